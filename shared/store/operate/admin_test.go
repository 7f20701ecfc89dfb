package operate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/template"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/internal/storetest"
	"github.com/inorder-im/inorder/shared/store/operate"
)

func TestAdmin_Heads(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	want := map[chat.ConversationID]bool{}
	for i := range 7 {
		want[send(t, s, "alice", fmt.Sprintf("user%d", i), fmt.Sprint(i)).ConversationID] = true
	}
	got := map[chat.ConversationID]bool{}
	pages := 0
	for cursor := ""; ; pages++ {
		heads, _, next, err := operate.New(s).Heads(t.Context(), cursor, 3)
		require.NoError(t, err)
		require.LessOrEqual(t, len(heads), 3)
		for _, h := range heads {
			require.Equal(t, c.Head(h.ConversationID), h)
			got[h.ConversationID] = true
		}
		if cursor = next; next == "" {
			break
		}
	}
	require.Equal(t, want, got)
	require.GreaterOrEqual(t, pages, 2)
	_, err := operate.New(s).Head(t.Context(), "group:none")
	requireCode(t, chat.CodeNotFound, err)
}

func TestAdmin_ALedgerAsItIs(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	single, _ := lively(t, s)
	c.Delete(c.Tables.Messages, entryKey(single, 4))
	c.Set(c.Tables.Messages, entryKey(single, 6), values{"expiresAt": time.Now().Add(-time.Hour).Unix()})
	var seqs []int64
	for r := (chat.Range{From: 2, To: 9}); r.From <= r.To; {
		page, left, err := operate.New(s).LedgerPage(t.Context(), single, r, 3)
		require.NoError(t, err)
		require.Greater(t, left.From, r.From)
		for _, m := range page {
			seqs = append(seqs, m.Seq)
		}
		r = left
	}
	require.Equal(t, []int64{2, 3, 5, 7, 8, 9}, seqs, "what alice cleared, too")
}

func TestAdmin_Positions(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	single, group := lively(t, s)
	lines, err := operate.New(s).Lines(t.Context(), single, []string{"alice", "bob", "cy"})
	require.NoError(t, err)
	require.Len(t, lines, 2)
	require.Equal(t, chat.Line{
		UserID: "bob", ConversationID: single, Peer: "alice", ReadSeq: 12, DeliveredSeq: 12, ClearedSeq: 3, JoinSeq: 1,
	}, lines["bob"])
	var ids []chat.ConversationID
	for cursor := ""; ; {
		page, next, err := operate.New(s).LinesOf(t.Context(), "bob", cursor, 1)
		require.NoError(t, err)
		for _, p := range page {
			ids = append(ids, p.ConversationID)
		}
		if cursor = next; next == "" {
			break
		}
	}
	require.Equal(t, []chat.ConversationID{group, single, "system:order:1"}, ids)
}

func TestAdmin_FindMessage(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	m := text("alice", "x", "look at this")
	m.Data = json.RawMessage(`{"a": 1}`)
	sent, err := s.Append(t.Context(), m, "bob")
	require.NoError(t, err)
	found, err := operate.New(s).FindMessage(t.Context(), sent.MessageID)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, [3]any{sent.ConversationID, sent.Seq, "look at this"}, [3]any{found[0].ConversationID, found[0].Seq, found[0].Text})
	require.JSONEq(t, `{"a": 1}`, string(found[0].Data))
	c.CopyMessage(sent.ConversationID, 1, 2)
	found, err = operate.New(s).FindMessage(t.Context(), sent.MessageID)
	require.NoError(t, err)
	require.Len(t, found, 2, "both of a duplicate")
	_, err = operate.New(s).FindMessage(t.Context(), "none")
	requireCode(t, chat.CodeNotFound, err)
}

func TestAdmin_FindMessageWithoutAnIndex(t *testing.T) {
	t.Parallel()
	stack, err := storetest.TheStack()
	require.NoError(t, err)
	without := *stack
	without.Tables = slices.Clone(stack.Tables)
	for i, table := range without.Tables {
		if len(table.Indexes) > 0 {
			bare := *table
			bare.Indexes = nil
			bare.Attributes = slices.DeleteFunc(slices.Clone(table.Attributes), func(a template.Attribute) bool { return a.Name == "messageId" })
			without.Tables[i] = &bare
		}
	}
	s := storetest.CloudOf(t, &without).Store(nil)
	sent, err := s.Append(t.Context(), text("alice", "x", "look at this"), "bob")
	require.NoError(t, err)
	_, err = operate.New(s).FindMessage(t.Context(), sent.MessageID)
	require.ErrorIs(t, err, operate.ErrNoIndex)
	found, err := operate.New(s).ScanMessage(t.Context(), sent.MessageID)
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.Equal(t, "look at this", found[0].Text)
	_, err = operate.New(s).ScanMessage(t.Context(), "none")
	requireCode(t, chat.CodeNotFound, err)
}

func TestAdmin_ChangedBetween(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	var ids []chat.ConversationID
	for i := range 4 {
		id := send(t, s, "alice", fmt.Sprintf("u%d", i), fmt.Sprint(i)).ConversationID
		c.Set(c.Tables.Conversations, convKey(id), values{"updatedAt": 1000 + 10*i})
		ids = append(ids, id)
	}
	var got []chat.ConversationID
	require.NoError(t, operate.New(s).ChangedBetween(t.Context(), 1010, 1020, func(h chat.Conversation) error {
		got = append(got, h.ConversationID)
		return nil
	}))
	require.ElementsMatch(t, ids[1:3], got)
	stop := errors.New("stop")
	require.ErrorIs(t, operate.New(s).ChangedBetween(t.Context(), 0, 9999, func(chat.Conversation) error { return stop }), stop)
}

// erasable fills a store and returns the ledgers as cy sees them.
func erasable(t *testing.T, s *store.Store) (single, group chat.ConversationID) {
	t.Helper()
	single, group = lively(t, s)
	m := text("alice", "file", "")
	m.MessageType, m.Text, m.Data = chat.TypeFile, "", json.RawMessage(`{"name": "cv.pdf"}`)
	_, err := s.Append(t.Context(), chatIn(m, group), "")
	require.NoError(t, err)
	sent, err := s.Append(t.Context(), chatIn(text("alice", "told", "my secret"), group), "")
	require.NoError(t, err)
	r := store.Request{UserID: "alice", DeviceID: "phone", ClientMsgID: "edit"}
	_, err = s.Edit(t.Context(), r, store.Target{ConversationID: group, Seq: sent.Seq, MessageID: sent.MessageID},
		store.Edited{Version: 1, Text: "my other secret"}, store.NoWindow)
	require.NoError(t, err)
	_, err = s.Append(t.Context(), chatIn(text("cy", "reply", "I see"), group), "")
	require.NoError(t, err)
	_, err = s.Connect(t.Context(), "alice", store.Connection{ID: "c", DeviceID: "phone", ConnectedAt: time.Now().UnixMilli()})
	require.NoError(t, err)
	return single, group
}

func nothing(operate.Erasure) {}

func TestEraseUser(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	single, group := erasable(t, s)
	before := map[chat.ConversationID][]chat.Message{single: ledger(t, s, "alice", single), group: ledger(t, s, "alice", group)}

	dry, err := operate.New(s).EraseUser(t.Context(), "alice", "", false, nothing)
	require.NoError(t, err)
	require.Equal(t, before[group], ledger(t, s, "alice", group), "a dry run changes nothing")
	online, err := s.Connections(t.Context(), []string{"alice"})
	require.NoError(t, err)
	require.Len(t, online, 1)

	var last operate.Erasure
	done, err := operate.New(s).EraseUser(t.Context(), "alice", "", true, func(e operate.Erasure) { last = e })
	require.NoError(t, err)
	require.Equal(t, dry, done)
	require.Equal(t, operate.Erasure{
		Conversations: 4, Scanned: int64(c.Count(c.Tables.Messages)) - 3,
		// 6 texts, a note, a file, a secret; her devices in the group: created, recalled,
		// removed, added, titled, and the edit.
		Messages: 9, Edits: 1, Devices: 15, Events: 3, Connections: true, After: "system:order:1",
	}, done)
	require.Equal(t, done.After, last.After)

	// A device that syncs afterwards has the same seqs, and nothing of hers.
	for id, old := range before {
		now := ledger(t, s, "alice", id)
		require.Len(t, now, len(old)+1, "and the event")
		for i, want := range old {
			m := now[i]
			if want.SenderID == "alice" {
				want.SenderDeviceID, want.ClientTime = "", 0
				if want.MessageType != chat.TypeEvent || want.Event.Kind == chat.EventEdit {
					want.Text, want.Data, want.Status = "", nil, chat.StatusRecalled
					want.Version++
				}
			}
			require.Equal(t, want, m)
		}
	}
	for _, raw := range c.Scan(c.Tables.Messages) {
		require.NotContains(t, raw, "secret")
		require.NotContains(t, raw, "cv.pdf")
	}
	online, err = s.Connections(t.Context(), []string{"alice"})
	require.NoError(t, err)
	require.Empty(t, online)

	// Nothing is broken by it: not the invariants, not a retry, not an edit.
	report, err := operate.New(s).AuditAll(t.Context(), operate.AuditCursor{})
	require.NoError(t, err)
	require.Empty(t, report.Violations)
	_, err = s.Append(t.Context(), chatIn(text("alice", "told", "my secret"), group), "")
	requireCode(t, chat.CodeIdempotencyConflict, err)
	secret := before[group][slices.IndexFunc(before[group], func(m chat.Message) bool { return m.ClientMsgID == "told" })]
	_, err = s.Edit(t.Context(), store.Request{UserID: "alice", ClientMsgID: "late"},
		store.Target{ConversationID: group, Seq: secret.Seq, MessageID: secret.MessageID}, store.Edited{Version: 3, Text: "back"}, store.NoWindow)
	requireCode(t, chat.CodeVersionConflict, err)

	again, err := operate.New(s).EraseUser(t.Context(), "alice", "", true, nothing)
	require.NoError(t, err)
	require.Equal(t, operate.Erasure{Conversations: 4, Scanned: done.Scanned + 3, After: "system:order:1"}, again, "once is enough")
}

// An edit between the reading and the writing is not undone, and is erased too.
func TestEraseUser_MeetsAnEdit(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	other := c.Store(nil)
	sent := send(t, other, "alice", "bob", "1")
	w := &wire{}
	s := c.Store(w)
	w.Set(func(op string, n int) fault {
		if op == "UpdateItem" && n == 2 { // the message, after its record
			_, err := other.Edit(t.Context(), store.Request{UserID: "alice", ClientMsgID: "e"},
				store.Target{ConversationID: sent.ConversationID, Seq: 1, MessageID: sent.MessageID}, store.Edited{Version: 1, Text: "newer"}, store.NoWindow)
			require.NoError(t, err)
		}
		return none
	})
	done, err := operate.New(s).EraseUser(t.Context(), "alice", "", true, nothing)
	require.NoError(t, err)
	m := ledger(t, other, "bob", sent.ConversationID)[0]
	require.Equal(t, [3]any{"", chat.StatusRecalled, int64(3)}, [3]any{m.Text, m.Status, m.Version}, "after the edit")
	require.Equal(t, [2]int64{1, 1}, [2]int64{done.Messages, done.Edits}, "the event of the edit came after")
	w.Set(nil)
	again, err := operate.New(s).EraseUser(t.Context(), "alice", "", true, nothing)
	require.NoError(t, err)
	require.Equal(t, [2]int64{0, 0}, [2]int64{again.Messages, again.Edits})
	report, err := operate.New(s).AuditConversation(t.Context(), sent.ConversationID)
	require.NoError(t, err)
	require.Empty(t, report.Violations)
	for _, raw := range c.Scan(c.Tables.Messages) {
		require.NotContains(t, raw, "newer")
	}
}

// The event of an edit that a Query does not show yet (D4) is found by the message.
func TestEraseUser_MeetsAnEditThatIsBeingWritten(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	plain := c.Store(nil)
	sent := send(t, plain, "alice", "bob", "1")
	edit(t, plain, sent, "2", 1)
	edit(t, plain, sent, "3", 2)
	s := c.Store(&wire{Edit: hides(func(seq int64) bool { return seq == 3 })})
	done, err := operate.New(s).EraseUser(t.Context(), "alice", "", true, nothing)
	require.NoError(t, err)
	require.Equal(t, [2]int64{1, 2}, [2]int64{done.Messages, done.Edits})
	for _, m := range ledger(t, plain, "bob", sent.ConversationID) {
		require.Empty(t, m.Text, m.Seq)
	}
}

func edit(t *testing.T, s *store.Store, sent store.Committed, body string, version int64) {
	t.Helper()
	_, err := s.Edit(t.Context(), store.Request{UserID: "alice", DeviceID: "phone", ClientMsgID: "edit-" + body},
		store.Target{ConversationID: sent.ConversationID, Seq: sent.Seq, MessageID: sent.MessageID},
		store.Edited{Version: version, Text: body}, store.NoWindow)
	require.NoError(t, err)
}

// What broke off goes on where it was, and leaves nothing out.
func TestEraseUser_GoesOn(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	plain := c.Store(nil)
	erasable(t, plain)
	w := &wire{}
	s := c.Store(w)
	after, broken := chat.ConversationID(""), 0
	for {
		w.Set(func(op string, n int) fault {
			if op == "UpdateItem" && n == 8 {
				return []fault{dropped, unanswered}[broken%2]
			}
			return none
		})
		done, err := operate.New(s).EraseUser(t.Context(), "alice", after, true, nothing)
		if err == nil {
			break
		}
		broken++
		require.Less(t, broken, 50)
		report, err := operate.New(plain).AuditAll(t.Context(), operate.AuditCursor{})
		require.NoError(t, err)
		require.Empty(t, report.Violations, "what is half done is not wrong")
		after = done.After
	}
	require.Greater(t, broken, 2)
	for _, raw := range c.Scan(c.Tables.Messages) {
		require.NotContains(t, raw, "secret")
	}
	again, err := operate.New(plain).EraseUser(t.Context(), "alice", "", true, nothing)
	require.NoError(t, err)
	require.Equal(t, [3]int64{}, [3]int64{again.Messages, again.Edits, again.Devices})
	for _, record := range c.Scan(c.Tables.Idempotency) {
		require.Equal(t, strings.Contains(record, "dedupeKey:5:alice"), strings.Contains(record, "fingerprint:erased"), record)
	}
}
