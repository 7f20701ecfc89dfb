package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/internal/storetest"
)

const hour = time.Hour

func targetOf(r store.Committed) store.Target {
	return store.Target{ConversationID: r.ConversationID, Seq: r.Seq, MessageID: r.MessageID}
}

// entry reads one message as it is now; of a group's, as it was before any edit.
func entry(t testing.TB, s *store.Store, r store.Committed) chat.Message {
	t.Helper()
	entries, err := s.Entries(t.Context(), r.ConversationID, chat.Range{From: r.Seq, To: r.Seq})
	require.NoError(t, err)
	require.Len(t, entries, 1)
	return entries[0]
}

func TestRecallTakesTheContentAway(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	w := &wire{}
	s := c.Store(w)
	m := text("alice", "1", "a secret")
	m.Data = json.RawMessage(`{"k":"v"}`)
	sent, err := s.Append(t.Context(), m, "bob")
	require.NoError(t, err)
	_, n := w.Since(0)
	r, err := s.Recall(t.Context(), by("alice", "recall"), targetOf(sent), hour)
	require.NoError(t, err)
	calls, _ := w.Since(n)
	require.Equal(t, []string{"TransactGetItems", "GetItem", "Query", "TransactWriteItems"}, calls)
	require.Equal(t, int64(2), r.Seq)
	require.False(t, r.Duplicate)

	target, event := entry(t, s, sent), entry(t, s, r)
	require.Equal(t, chat.StatusRecalled, target.Status)
	require.Empty(t, target.Text)
	require.Empty(t, target.Data)
	require.Equal(t, int64(2), target.Version)
	require.Equal(t, sent.MessageID, target.MessageID)
	require.Equal(t, "alice", target.SenderID)
	require.Equal(t, &chat.Event{Kind: chat.EventRecall, TargetSeq: 1, TargetMessageID: sent.MessageID, Version: 2}, event.Event)
	requireDense(t, ledger(t, c.Store(nil), "bob", sent.ConversationID), 2)

	// Again, by a retry and by another device: the one recall, and no new entry.
	for _, key := range []string{"recall", "recall again"} {
		again, err := c.Store(nil).Recall(t.Context(), by("alice", key), targetOf(sent), 0)
		require.NoError(t, err)
		require.True(t, again.Duplicate)
		again.Duplicate, again.Attempts = false, r.Attempts
		require.Equal(t, r, again)
	}
	require.Equal(t, int64(2), c.Head(sent.ConversationID).LastSeq)
	// A retry of the send finds what it made.
	retry, err := c.Store(nil).Append(t.Context(), m, "bob")
	require.NoError(t, err)
	require.Equal(t, sent.MessageID, retry.MessageID)
	line := mustLine(t, s, "bob", sent.ConversationID)
	require.Equal(t, chat.EventRecall, line.Last.Event.Kind)
}

func TestEditReplacesTheContent(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	w := &wire{}
	s := c.Store(w)
	sent := send(t, s, "alice", "bob", "1")
	_, n := w.Since(0)
	r, err := s.Edit(t.Context(), by("alice", "e1"), targetOf(sent), store.Edited{Version: 1, Text: "second", Data: json.RawMessage(`{"n":2}`)}, hour)
	require.NoError(t, err)
	calls, _ := w.Since(n)
	require.Equal(t, []string{"TransactGetItems", "GetItem", "Query", "TransactWriteItems"}, calls)
	third, err := s.Edit(t.Context(), by("alice", "e2"), targetOf(sent), store.Edited{Version: 2, Text: "third"}, hour)
	require.NoError(t, err)

	target := entry(t, s, sent)
	require.Equal(t, "third", target.Text)
	require.Empty(t, target.Data, "the whole content is replaced")
	require.Equal(t, int64(3), target.Version)
	require.Equal(t, chat.StatusNormal, target.Status)
	for committed, want := range map[store.Committed]chat.Message{
		r:     {Text: "second", Data: json.RawMessage(`{"n":2}`), Event: &chat.Event{Kind: chat.EventEdit, TargetSeq: 1, TargetMessageID: sent.MessageID, Version: 2}},
		third: {Text: "third", Event: &chat.Event{Kind: chat.EventEdit, TargetSeq: 1, TargetMessageID: sent.MessageID, Version: 3}},
	} {
		got := entry(t, s, committed)
		require.Equal(t, want, chat.Message{Text: got.Text, Data: got.Data, Event: got.Event})
		require.Equal(t, chat.TypeEvent, got.MessageType)
	}

	// A late retry of the first edit gets its result and changes nothing.
	retry, err := c.Store(nil).Edit(t.Context(), by("alice", "e1"), targetOf(sent), store.Edited{Version: 1, Text: "second", Data: json.RawMessage(`{ "n": 2 }`)}, 0)
	require.NoError(t, err)
	require.True(t, retry.Duplicate)
	require.Equal(t, r.Seq, retry.Seq)
	require.Equal(t, "third", entry(t, s, sent).Text)
	_, err = s.Edit(t.Context(), by("alice", "e1"), targetOf(sent), store.Edited{Version: 3, Text: "other"}, hour)
	requireCode(t, chat.CodeIdempotencyConflict, err)

	// An older edit does not override a newer one.
	_, err = s.Edit(t.Context(), by("alice", "e3"), targetOf(sent), store.Edited{Version: 2, Text: "late"}, hour)
	e := refused(t, chat.CodeVersionConflict, err)
	require.Equal(t, map[string]any{"version": int64(3), "status": chat.StatusNormal}, e.Details)
	_, err = s.Edit(t.Context(), by("alice", "e4"), targetOf(sent), store.Edited{Version: 4, Text: "early"}, hour)
	requireCode(t, chat.CodeVersionConflict, err)

	// Nor does an edit bring back what was recalled.
	_, err = s.Recall(t.Context(), by("alice", "recall"), targetOf(sent), hour)
	require.NoError(t, err)
	for _, version := range []int64{3, 4} {
		_, err = s.Edit(t.Context(), by("alice", fmt.Sprint("e5", version)), targetOf(sent), store.Edited{Version: version, Text: "back"}, hour)
		e = refused(t, chat.CodeVersionConflict, err)
		require.Equal(t, map[string]any{"version": int64(4), "status": chat.StatusRecalled}, e.Details)
	}
	require.Empty(t, entry(t, s, sent).Text)
	for _, committed := range []store.Committed{r, third} {
		got := entry(t, s, committed)
		require.Empty(t, got.Text, "the events of the edits do not keep what was recalled")
		require.Empty(t, got.Data)
		require.Equal(t, chat.StatusRecalled, got.Status)
		require.NotNil(t, got.Event)
	}
}

func TestReviseRefusals(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	ctx := t.Context()
	sent := send(t, s, "alice", "bob", "1")
	other := send(t, s, "alice", "carol", "2")
	published, err := s.Publish(ctx, store.Publication{
		Key: "k", Recipients: []string{"alice"}, ClientMsgID: "p", Message: chat.Message{MessageType: chat.TypeSystem, Text: "hi"},
	})
	require.NoError(t, err)
	group := newGroup(t, s, chat.VisibleAll, "alice", "bob")
	event := entry(t, s, store.Committed{Sent: chat.Sent{ConversationID: group, Seq: 1}})
	good := targetOf(sent)
	with := func(change func(*store.Target)) store.Target {
		target := good
		change(&target)
		return target
	}
	for name, tc := range map[string]struct {
		user   string
		target store.Target
		window time.Duration
		code   chat.Code
	}{
		"another's":                         {"bob", good, hour, chat.CodeForbidden},
		"another's, no window":              {"bob", good, store.NoWindow, chat.CodeForbidden},
		"a stranger":                        {"mallory", good, hour, chat.CodeNotFound},
		"switched off":                      {"alice", good, 0, chat.CodeTooLate},
		"no such seq":                       {"alice", with(func(t *store.Target) { t.Seq = 9 }), hour, chat.CodeNotFound},
		"seq 0":                             {"alice", with(func(t *store.Target) { t.Seq = 0 }), hour, chat.CodeNotFound},
		"another messageId":                 {"alice", with(func(t *store.Target) { t.MessageID = other.MessageID }), hour, chat.CodeNotFound},
		"a message of another conversation": {"alice", with(func(t *store.Target) { t.ConversationID = other.ConversationID }), hour, chat.CodeNotFound},
		"no such conversation":              {"alice", with(func(t *store.Target) { t.ConversationID = "group:none" }), hour, chat.CodeNotFound},
		"a system conversation":             {"alice", targetOf(published), hour, chat.CodeForbidden},
		"an event":                          {"alice", store.Target{ConversationID: group, Seq: 1, MessageID: event.MessageID}, hour, chat.CodeForbidden},
	} {
		_, err := s.Recall(ctx, by(tc.user, "r"), tc.target, tc.window)
		requireCode(t, tc.code, err, "recall: %s", name)
		_, err = s.Edit(ctx, by(tc.user, "e"), tc.target, store.Edited{Version: 1, Text: "new"}, tc.window)
		requireCode(t, tc.code, err, "edit: %s", name)
	}
	for name, edited := range map[string]store.Edited{
		"without content":   {Version: 1},
		"data is no object": {Version: 1, Text: "x", Data: json.RawMessage(`[1]`)},
	} {
		_, err := s.Edit(ctx, by("alice", "e"), good, edited, hour)
		requireCode(t, chat.CodeBadRequest, err, name)
	}
	require.Equal(t, int64(1), c.Head(sent.ConversationID).LastSeq)
	require.Equal(t, "text of 1", entry(t, s, sent).Text)
}

func TestTheWindowCloses(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	sent := send(t, s, "alice", "bob", "1")
	edit := func(key string, version int64, window time.Duration) error {
		_, err := s.Edit(t.Context(), by("alice", "edit "+key), targetOf(sent), store.Edited{Version: version, Text: "new"}, window)
		return err
	}
	require.NoError(t, edit("1", 1, 2*time.Minute))
	c.Age(sent.ConversationID, sent.Seq, 3*time.Minute)
	requireCode(t, chat.CodeTooLate, edit("2", 2, 2*time.Minute))
	require.NoError(t, edit("3", 2, 4*time.Minute))
	require.NoError(t, edit("4", 3, store.NoWindow))
	_, err := s.Recall(t.Context(), by("alice", "r"), targetOf(sent), 2*time.Minute)
	requireCode(t, chat.CodeTooLate, err)
	_, err = s.Recall(t.Context(), by("alice", "r"), targetOf(sent), store.NoWindow)
	require.NoError(t, err)
}

func TestWhoRecallsWhatInAGroup(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	ctx := t.Context()
	id := newGroup(t, s, chat.VisibleAll, "owner", "admin", "admin2", "member", "member2", "former")
	for _, user := range []string{"admin", "admin2"} {
		must(t)(s.SetRole(ctx, by("owner", user), id, user, chat.RoleAdmin))
	}
	n := 0
	for _, tc := range []struct {
		by, of string
		code   chat.Code // "" is allowed
	}{
		{"owner", "owner", ""}, {"owner", "admin", ""}, {"owner", "member", ""}, {"owner", "former", ""},
		{"admin", "admin", ""}, {"admin", "member", ""}, {"admin", "former", ""},
		{"admin", "owner", chat.CodeForbidden}, {"admin", "admin2", chat.CodeForbidden},
		{"member", "member", chat.CodeTooLate},
		{"member", "owner", chat.CodeForbidden}, {"member", "admin", chat.CodeForbidden}, {"member", "member2", chat.CodeForbidden}, {"member", "former", chat.CodeForbidden},
		{"former", "former", chat.CodeNotFound}, {"mallory", "member", chat.CodeNotFound},
	} {
		n++
		name := fmt.Sprintf("%s recalls of %s", tc.by, tc.of)
		if tc.of == "former" && n > 1 {
			if _, err := s.AddMembers(ctx, by("owner", fmt.Sprint("add", n)), id, []string{"former"}); err != nil {
				requireCode(t, chat.CodeBadRequest, err) // the first time it is a member
			}
		}
		sent := sendIn(t, s, tc.of, id, fmt.Sprint("m", n))
		if tc.of == "former" {
			must(t)(s.RemoveMembers(ctx, by("owner", fmt.Sprint("remove", n)), id, []string{"former"}))
		}
		c.Age(id, sent.Seq, 24*hour) // long after the window
		_, err := s.Recall(ctx, by(tc.by, fmt.Sprint("r", n)), targetOf(sent), 2*time.Minute)
		_, editErr := s.Edit(ctx, by(tc.by, fmt.Sprint("e", n)), targetOf(sent), store.Edited{Version: 1, Text: "mine"}, store.NoWindow)
		if tc.code == "" {
			require.NoError(t, err, name)
			require.Equal(t, chat.StatusRecalled, entry(t, s, sent).Status, name)
		} else {
			requireCode(t, tc.code, err, name)
			require.Equal(t, tc.by == tc.of && tc.by != "former", editErr == nil, name)
		}
		if tc.by != tc.of {
			require.Contains(t, []chat.Code{chat.CodeForbidden, chat.CodeNotFound}, chat.CodeOf(editErr), "nobody edits what another wrote: %s", name)
		}
	}
	requireWhole(t, c, s, id)
}

// A message can be edited only as often as one recall can undo.
func TestAMessageIsEditedANumberOfTimes(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	sent := send(t, s, "alice", "bob", "1")
	edit := func(version int64) error {
		_, err := s.Edit(t.Context(), by("alice", fmt.Sprint(version)+"e"), targetOf(sent), store.Edited{Version: version, Text: fmt.Sprint("secret ", version)}, hour)
		return err
	}
	for version := range int64(chat.MaxEdits) {
		require.NoError(t, edit(version+1))
	}
	require.Equal(t, chat.MaxEdits, refused(t, chat.CodeLimit, edit(chat.MaxEdits+1)).Details["max"])
	must(t)(s.Recall(t.Context(), by("alice", "r"), targetOf(sent), hour))
	all := ledger(t, s, "bob", sent.ConversationID)
	requireDense(t, all, chat.MaxEdits+2)
	for _, m := range all {
		require.Empty(t, m.Text, "seq %d", m.Seq)
	}
}

// A recall goes through though the event of an edit is gone from the ledger.
func TestRecallAfterAnEditExpired(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	sent := send(t, s, "alice", "bob", "1")
	must(t)(s.Edit(t.Context(), by("alice", "e1"), targetOf(sent), store.Edited{Version: 1, Text: "b"}, hour))
	must(t)(s.Edit(t.Context(), by("alice", "e2"), targetOf(sent), store.Edited{Version: 2, Text: "c"}, hour))
	c.DeleteMessage(sent.ConversationID, 2)
	must(t)(s.Recall(t.Context(), by("alice", "r"), targetOf(sent), hour))
	page, err := s.Sync(t.Context(), "bob", sent.ConversationID, 0, 100, frame)
	require.NoError(t, err)
	require.Equal(t, []int64{2}, page.Skipped, "nor does the recall make it again")
	require.Equal(t, []int64{1, 3, 4}, seqs(page.Messages))
}

// Twenty edits from environments of their own, and in the middle of them a
// recall: it wins, and what the edits brought is gone with it.
func TestG8_ARecallRacesEdits(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	sent := send(t, c.Store(nil), "alice", "bob", "1")
	const editors = 20
	var edits atomic.Int64
	begun := make(chan struct{})
	var once sync.Once
	var recalled store.Committed
	require.NoError(t, parallel(editors+1, func(i int) error {
		s := c.Store(nil)
		if i == editors {
			<-begun
			var err error
			recalled, err = s.Recall(t.Context(), by("alice", "recall"), targetOf(sent), hour)
			return err
		}
		version := int64(1)
		for n := 0; ; n++ {
			r, err := s.Edit(t.Context(), by("alice", fmt.Sprintf("%d-%d", i, n)), targetOf(sent),
				store.Edited{Version: version, Text: fmt.Sprintf("secret of %d", i)}, hour)
			if err == nil {
				if edits.Add(1) == 5 {
					once.Do(func() { close(begun) })
				}
				if r.Duplicate {
					return fmt.Errorf("edit %d-%d says it was made before", i, n)
				}
				return nil
			}
			var refusal *chat.Error
			if !errors.As(err, &refusal) || refusal.Code != chat.CodeVersionConflict {
				return err
			}
			if refusal.Details["status"] == chat.StatusRecalled {
				return nil
			}
			now := refusal.Details["version"].(int64)
			if now <= version {
				return fmt.Errorf("version %d was refused though %d is current", version, now)
			}
			version = now
		}
	}))
	all := ledger(t, c.Store(nil), "bob", sent.ConversationID)
	requireDense(t, all, int(edits.Load())+2)
	require.GreaterOrEqual(t, edits.Load(), int64(5))
	version := int64(1)
	for _, m := range all[1:] {
		version++
		require.Equal(t, version, m.Event.Version, "seq %d", m.Seq)
		require.Empty(t, m.Text)
		if m.Event.Kind == chat.EventRecall {
			require.Equal(t, recalled.Seq, m.Seq)
			require.Equal(t, m.Seq, all[len(all)-1].Seq, "no edit comes after the recall")
			continue
		}
		require.Equal(t, chat.EventEdit, m.Event.Kind)
	}
	require.Equal(t, chat.StatusRecalled, all[0].Status)
	require.Empty(t, all[0].Text)
	require.Equal(t, version, all[0].Version)
}

// An edit that comes between what a recall reads is not missed, and does not
// make the recall fail.
func TestG8_AnEditBetweenTheReadsOfARecall(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	other := c.Store(nil)
	sent := send(t, other, "alice", "bob", "1")
	edited := false
	var editErr error
	w := &wire{Edit: func(op string, _, answer []byte) []byte {
		if op == "TransactGetItems" && !edited { // head and member were read, the message was not
			edited = true
			_, editErr = other.Edit(t.Context(), by("alice", "e"), targetOf(sent), store.Edited{Version: 1, Text: "secret"}, hour)
		}
		return answer
	}}
	r := must(t)(c.Store(w).Recall(t.Context(), by("alice", "r"), targetOf(sent), hour))
	require.NoError(t, editErr)
	require.Equal(t, int64(3), r.Seq)
	for _, m := range ledger(t, other, "bob", sent.ConversationID) {
		require.Empty(t, m.Text, "seq %d", m.Seq)
	}
}

func TestAReadThatHangsIsBusy(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	sent := send(t, c.Store(nil), "alice", "bob", "1")
	for _, hangs := range []string{"TransactGetItems", "Query"} {
		ctx, cancel := contextFor(t, 200)
		_, err := c.Store(&wire{Rule: func(op string, _ int) fault {
			if op == hangs {
				return storetest.Hanging
			}
			return none
		}}).Recall(ctx, by("alice", "r"), targetOf(sent), hour)
		cancel()
		requireCode(t, chat.CodeBusy, err, hangs)
	}
}

// Two devices edit the same version at once: one is first, and the other is told.
func TestG8_OfTwoEditsOfOneVersionOneWins(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	sent := send(t, c.Store(nil), "alice", "bob", "1")
	var won [2]bool
	require.NoError(t, parallel(2, func(i int) error {
		_, err := c.Store(nil).Edit(t.Context(), by("alice", fmt.Sprint("e", i)), targetOf(sent), store.Edited{Version: 1, Text: fmt.Sprint(i)}, hour)
		won[i] = err == nil
		if err != nil && chat.CodeOf(err) == chat.CodeVersionConflict {
			return nil
		}
		return err
	}))
	require.NotEqual(t, won[0], won[1])
	want := "0"
	if won[1] {
		want = "1"
	}
	require.Equal(t, want, entry(t, c.Store(nil), sent).Text)
	requireDense(t, ledger(t, c.Store(nil), "bob", sent.ConversationID), 2)
}

// Each pair: the same fault, once before the transaction and once after it.
func TestG8_ReviseFailedNotAppliedAndFailedYetApplied(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"failed, not applied": dropped, "failed, yet applied": unanswered} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			w := &wire{}
			s := c.Store(w)
			sent := send(t, s, "alice", "bob", "1")
			once := func(op string, n int) fault {
				if op == "TransactWriteItems" && n == 1 {
					return f
				}
				return none
			}
			w.Set(once)
			edited, err := s.Edit(t.Context(), by("alice", "e"), targetOf(sent), store.Edited{Version: 1, Text: "new"}, hour)
			require.NoError(t, err)
			require.False(t, edited.Duplicate, "it is this request's own edit")
			require.Equal(t, "new", entry(t, s, sent).Text)
			require.Equal(t, int64(2), entry(t, s, sent).Version)
			w.Set(once)
			recalled, err := s.Recall(t.Context(), by("alice", "r"), targetOf(sent), hour)
			require.NoError(t, err)
			require.False(t, recalled.Duplicate, "it is this request's own recall")
			require.Equal(t, int64(3), recalled.Seq)
			require.Equal(t, recalled.MessageID, entry(t, s, recalled).MessageID)
			requireDense(t, ledger(t, s, "bob", sent.ConversationID), 3)
		})
		// The function dies: every answer is lost, and the client's retry comes
		// to another environment.
		t.Run(name+", and the function died", func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			sent := send(t, c.Store(nil), "alice", "bob", "1")
			w := &wire{Rule: func(op string, _ int) fault {
				if op == "TransactWriteItems" {
					return f
				}
				return none
			}}
			edit := func(s *store.Store, ms int) (store.Committed, error) {
				ctx, cancel := contextFor(t, ms)
				defer cancel()
				return s.Edit(ctx, by("alice", "e"), targetOf(sent), store.Edited{Version: 1, Text: "new"}, hour)
			}
			recall := func(s *store.Store, ms int) (store.Committed, error) {
				ctx, cancel := contextFor(t, ms)
				defer cancel()
				return s.Recall(ctx, by("alice", "r"), targetOf(sent), hour)
			}
			for i, do := range []func(*store.Store, int) (store.Committed, error){edit, recall} {
				died, err := do(c.Store(w), 300)
				if f == dropped {
					requireCode(t, chat.CodeBusy, err)
				}
				r, err := do(c.Store(nil), 10_000)
				require.NoError(t, err)
				require.Equal(t, int64(i+2), r.Seq)
				require.Equal(t, f == unanswered, r.Duplicate)
				if died.MessageID != "" {
					require.Equal(t, died.MessageID, r.MessageID)
				}
			}
			requireDense(t, ledger(t, c.Store(nil), "bob", sent.ConversationID), 3)
			require.Equal(t, chat.StatusRecalled, entry(t, c.Store(nil), sent).Status)
		})
	}
}
