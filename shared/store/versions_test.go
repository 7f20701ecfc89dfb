package store_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/internal/storetest"
	"github.com/inorder-im/inorder/shared/store/operate"
)

// editIn edits ann's message, whose version is the one given.
func editIn(t testing.TB, s *store.Store, target store.Committed, version int64, content string) store.Committed {
	t.Helper()
	return must(t)(s.Edit(t.Context(), by("ann", fmt.Sprintf("edit %d-%d", target.Seq, version)), targetOf(target), store.Edited{Version: version, Text: content}, hour))
}

// read returns what a user reads at a seq, and that history says the same.
func read(t testing.TB, s *store.Store, user string, id chat.ConversationID, seq int64) chat.Message {
	t.Helper()
	page, err := s.Sync(t.Context(), user, id, seq-1, 1, frame)
	require.NoError(t, err)
	require.Equal(t, []int64{seq}, seqs(page.Messages), user)
	before, err := s.History(t.Context(), user, id, seq+1, 1, frame)
	require.NoError(t, err)
	require.Equal(t, page.Messages, before.Messages, user)
	return page.Messages[0]
}

// Each of them left at another moment, and reads what there was at that moment.
func TestG9_AFormerMemberReadsWhatThereWasThen(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := newGroup(t, s, chat.VisibleAll, "ann", "v1", "v2", "v3", "stays")
	m := chatIn(text("ann", "m", "first"), id)
	m.Data = json.RawMessage(`{"n":1}`)
	sent := must(t)(s.Append(t.Context(), m, ""))
	leave := func(user string) { must(t)(s.RemoveMembers(t.Context(), by("ann", user), id, []string{user})) }
	leave("v1")
	editIn(t, s, sent, 1, "second")
	leave("v2")
	editIn(t, s, sent, 2, "third")
	leave("v3")
	editIn(t, s, sent, 3, "fourth")
	must(t)(s.AddMembers(t.Context(), by("ann", "back"), id, []string{"v2"}))

	for user, want := range map[string]chat.Message{
		"v1":    {Version: 1, Text: "first", Data: m.Data},
		"v2":    {Version: 2, Text: "second"}, // who came back, too
		"v3":    {Version: 3, Text: "third"},
		"stays": {Version: 4, Text: "fourth"},
	} {
		got := read(t, s, user, id, sent.Seq)
		require.Equal(t, want, chat.Message{Version: got.Version, Text: got.Text, Data: got.Data, Withheld: got.Withheld}, user)
		require.Equal(t, chat.StatusNormal, got.Status)
	}

	must(t)(s.Recall(t.Context(), by("ann", "recall"), targetOf(sent), hour))
	for _, user := range []string{"v1", "v2", "v3", "stays"} {
		got := read(t, s, user, id, sent.Seq)
		require.Equal(t, chat.StatusRecalled, got.Status, "a recall is for everyone: %s", user)
		require.Empty(t, got.Text)
		require.Empty(t, got.Data)
	}
	for _, raw := range c.Scan(c.Tables.Messages) {
		for _, gone := range []string{"first", "second", "third", "fourth", `"n":1`} {
			require.NotContains(t, raw, gone, "it is kept nowhere")
		}
	}
	report, err := operate.New(s).AuditAll(t.Context(), operate.AuditCursor{})
	require.NoError(t, err)
	require.Empty(t, report.Violations)
}

// An edit brings nobody what was written while that one was not there.
func TestG9_AnEditOfWhatOneMayNotReadIsWithheld(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := newGroup(t, s, chat.VisibleSinceJoin, "ann", "bob", "stays")
	before := sendIn(t, s, "ann", id, "before")
	must(t)(s.RemoveMembers(t.Context(), by("ann", "3"), id, []string{"bob"}))
	away := sendIn(t, s, "ann", id, "away")
	must(t)(s.AddMembers(t.Context(), by("ann", "5"), id, []string{"bob", "late"}))
	after := sendIn(t, s, "ann", id, "after")
	for name, tc := range map[string]struct {
		target store.Committed
		sees   []string // who sees the target where the edit is
	}{
		"of before": {before, []string{"ann", "stays"}}, // bob saw it at another time, and keeps what was then
		"of away":   {away, []string{"ann", "stays"}},
		"of after":  {after, []string{"ann", "stays", "bob", "late"}},
	} {
		edit := editIn(t, s, tc.target, 1, name)
		event := chat.Event{Kind: chat.EventEdit, TargetSeq: tc.target.Seq, TargetMessageID: tc.target.MessageID, Version: 2}
		for _, user := range []string{"ann", "stays", "bob", "late"} {
			want := chat.Message{Text: name, Event: &event}
			if len(tc.sees) == 2 && (user == "bob" || user == "late") {
				want = chat.Message{Withheld: true, Event: &event}
			}
			got := read(t, s, user, id, edit.Seq)
			require.Equal(t, want, chat.Message{Text: got.Text, Withheld: got.Withheld, Event: got.Event}, "%s: %s", name, user)
			line := mustLine(t, s, user, id)
			require.Equal(t, got, *line.Last, "the list says the same")
			lines, _, err := s.List(t.Context(), user, "", 10)
			require.NoError(t, err)
			require.Equal(t, got, *lines[0].Last)
			require.Equal(t, want.Text, lines[0].Last.Preview().Text)
		}
	}
	require.Equal(t, "text of before", read(t, s, "bob", id, before.Seq).Text)
	require.Equal(t, "of after", read(t, s, "bob", id, after.Seq).Text)

	// What one cleared oneself is hidden, and ends no time of membership.
	_, _, err := s.Clear(t.Context(), "bob", id, after.Seq)
	require.NoError(t, err)
	require.Equal(t, "again", read(t, s, "bob", id, editIn(t, s, after, 2, "again").Seq).Text)

	// A recall has no content, and is told to all.
	recall := must(t)(s.Recall(t.Context(), by("ann", "recall"), targetOf(before), hour))
	for _, user := range []string{"bob", "late"} {
		got := read(t, s, user, id, recall.Seq)
		require.Equal(t, before.Seq, got.Event.TargetSeq)
		require.False(t, got.Withheld)
	}
}

// An edit would be withheld from its own author's devices.
func TestG9_WhoWasAwayEditsNothingFromBefore(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := newGroup(t, s, chat.VisibleAll, "own", "ann")
	sent := sendIn(t, s, "ann", id, "mine")
	edit := func(key string, version int64) error {
		_, err := s.Edit(t.Context(), by("ann", key), targetOf(sent), store.Edited{Version: version, Text: key}, hour)
		return err
	}
	remove := func(key string) { must(t)(s.RemoveMembers(t.Context(), by("own", key), id, []string{"ann"})) }
	add := func(key string) { must(t)(s.AddMembers(t.Context(), by("own", key), id, []string{"ann"})) }
	remove("1")
	add("2")
	require.NoError(t, edit("e1", 1), "with nothing in between nobody was away")
	remove("3")
	sendIn(t, s, "own", id, "unseen")
	add("4")
	requireCode(t, chat.CodeForbidden, edit("e2", 2))
	requireSees(t, s, "ann", id, 1, 2, 3, 4, 5, 6, 8)
	must(t)(s.Recall(t.Context(), by("ann", "recall"), targetOf(sent), hour))
}

// The reads that it takes: none where all is at hand, one where the edit is not.
func TestG9_WhatThereWasThenIsReadAtOnce(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	w := &wire{}
	s, read := c.Store(nil), c.Store(w)
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob", "cy")
	old, recent := sendIn(t, s, "ann", id, "old"), sendIn(t, s, "ann", id, "new")
	editIn(t, s, old, 1, "old, better")
	must(t)(s.RemoveMembers(t.Context(), by("ann", "rm"), id, []string{"bob"}))
	c.Set(c.Tables.Conversations, convKey(id), values{"removedAt": 1}) // long ago
	calls := func(user string, want ...string) {
		t.Helper()
		_, n := w.Since(0)
		_, err := read.Sync(t.Context(), user, id, 0, 100, frame)
		require.NoError(t, err)
		got, _ := w.Since(n)
		require.Equal(t, append([]string{"GetItem", "GetItem", "Query"}, want...), got, user)
	}
	calls("bob")
	editIn(t, s, old, 2, "old, best")
	calls("bob") // the edit of before is on the page
	calls("cy")
	editIn(t, s, recent, 1, "new, better")
	calls("bob", "TransactGetItems")
	calls("cy")
}

// A removal and an edit between what a read reads: the head says for when.
func TestG9_AnEditBetweenTheReadsOfASync(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
	sent := sendIn(t, s, "ann", id, "m")
	do := func() {
		must(t)(s.RemoveMembers(t.Context(), by("ann", "rm"), id, []string{"bob"}))
		editIn(t, s, sent, 1, "not for bob")
	}
	for name, of := range map[string]func(*store.Store) chat.Message{
		"sync": func(s *store.Store) chat.Message {
			page, err := s.Sync(t.Context(), "bob", id, 1, 100, frame)
			require.NoError(t, err)
			return page.Messages[0]
		},
		"fan-out": func(s *store.Store) chat.Message {
			entries, err := s.Entries(t.Context(), id, chat.Range{From: 2, To: 2})
			require.NoError(t, err)
			return entries[0]
		},
	} {
		w := &wire{Rule: func(op string, n int) fault {
			if op == "Query" && n == 1 && do != nil {
				do()
				do = nil
			}
			return none
		}}
		got := of(c.Store(w))
		require.Equal(t, "text of m", got.Text, name)
		require.Equal(t, int64(1), got.Version, name)
	}
	require.Nil(t, do)

}

// The list leaves out what is edited while it is read, and a later look has it.
func TestG9_AnEditBetweenTheReadsOfAList(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
	last := sendIn(t, s, "ann", id, "last")
	w := &wire{}
	w.Set(func(op string, n int) fault {
		if op == "BatchGetItem" && n == 1 { // head and line were read
			editIn(t, s, last, 1, "edited meanwhile")
		}
		return none
	})
	require.Nil(t, mustLine(t, c.Store(w), "bob", id).Last)
	require.Equal(t, "edited meanwhile", mustLine(t, s, "bob", id).Last.Text)
}

// Where the content of then is gone there is none: nothing newer takes its place.
func TestG9_WhatIsGoneIsWithheld(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := newGroup(t, s, chat.VisibleAll, "ann", "v1", "v2")
	sent := sendIn(t, s, "ann", id, "m")
	must(t)(s.RemoveMembers(t.Context(), by("ann", "1"), id, []string{"v1"}))
	first := editIn(t, s, sent, 1, "second")
	must(t)(s.RemoveMembers(t.Context(), by("ann", "2"), id, []string{"v2"}))
	editIn(t, s, sent, 2, "third")
	c.DeleteMessage(id, first.Seq)
	for version, user := range []string{"v1", "v2"} {
		page, err := s.Sync(t.Context(), user, id, 1, 1, frame)
		require.NoError(t, err)
		got := page.Messages[0]
		require.Equal(t, [3]any{true, "", int64(version + 1)}, [3]any{got.Withheld, got.Text, got.Version}, user)
	}
}

func TestEraseUserTakesWhatAnEditReplaced(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := newGroup(t, s, chat.VisibleAll, "bob", "ann", "cy")
	sent := sendIn(t, s, "ann", id, "secret")
	must(t)(s.RemoveMembers(t.Context(), by("bob", "1"), id, []string{"cy"}))
	editIn(t, s, sent, 1, "better")
	require.Equal(t, "text of secret", read(t, s, "cy", id, sent.Seq).Text)
	_, err := operate.New(s).EraseUser(t.Context(), "ann", "", true, func(operate.Erasure) {})
	require.NoError(t, err)
	for _, raw := range c.Scan(c.Tables.Messages) {
		require.NotContains(t, raw, "text of secret")
	}
	require.Equal(t, chat.StatusRecalled, read(t, s, "cy", id, sent.Seq).Status)
}

// What an edit costs is what it did without keeping anything.
func TestEditCosts(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	var bill storetest.Bill
	options := c.DB.Options()
	options.APIOptions = append(options.APIOptions, bill.Charge)
	s := store.New(dynamodb.New(options), c.Tables)
	group := sendIn(t, s, "ann", newGroup(t, s, chat.VisibleAll, "ann", "bob"), strings.Repeat("m", 60))
	single := send(t, s, "ann", "bob", "m")
	for name, sent := range map[string]store.Committed{"group": group, "single": single} {
		for version := range int64(3) {
			bill = storetest.Bill{}
			editIn(t, s, sent, version+1, fmt.Sprint(name, " edited ", version))
			require.InDelta(t, 9, bill.Writes, 0, "%s: head 2, event 2 and its index 1, record 2, message 2", name)
		}
	}
	for _, raw := range c.Scan(c.Tables.Messages) {
		if strings.Contains(raw, string(single.ConversationID)) {
			require.NotContains(t, raw, "original", "nobody leaves a single conversation")
		}
	}
}

// A member is removed and taken back again and again: that always works, the line
// stays one write unit, and the last times stay to be read.
func TestG9_ComingAndGoingHasNoEnd(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	owner, user := strings.Repeat("o", 128), strings.Repeat("u", 128)
	id := newGroup(t, s, chat.VisibleAll, owner, user)
	must(t)(s.SetTitle(t.Context(), by(owner, "title"), id, strings.Repeat("🥾", chat.MaxTitleRunes)))
	_, err := operate.New(s).RaiseHead(t.Context(), id, operate.MaxRepairMargin) // seqs as long as they get
	require.NoError(t, err)
	var times []chat.Range
	const rounds = 100
	for n := range rounds {
		removed := must(t)(s.RemoveMembers(t.Context(), by(owner, fmt.Sprint("remove", n)), id, []string{user}))
		times = append(times, chat.Range{From: c.Inbox(user, id).JoinSeq, To: removed.Seq})
		if n == rounds-1 {
			break
		}
		sendIn(t, s, owner, id, fmt.Sprint("away", n))
		must(t)(s.AddMembers(t.Context(), by(owner, fmt.Sprint("add", n)), id, []string{user}))
	}
	require.Less(t, sizeInTable(c, c.Tables.Inboxes, map[string]any{"userId": user, "conversationId": id}), 2048, "with the longest names that there are")
	kept := times[len(times)-1-chat.MaxPastStretches:]
	in := c.Inbox(user, id)
	require.Equal(t, kept, append(in.Past, chat.Range{From: in.JoinSeq, To: in.LeftSeq}))
	var want []int64
	for _, r := range kept {
		for seq := r.From; seq <= r.To; seq++ {
			want = append(want, seq)
		}
	}
	require.Equal(t, want, seqs(paged(t, s, user, id, 5)), "the oldest are not shown any more, and nothing that never was")

	// Who is taken back by the next message has not been away, however often.
	const atOnce = 20
	for n := range atOnce {
		must(t)(s.AddMembers(t.Context(), by(owner, fmt.Sprint("back", n)), id, []string{user}))
		must(t)(s.RemoveMembers(t.Context(), by(owner, fmt.Sprint("out", n)), id, []string{user}))
	}
	now := c.Inbox(user, id)
	require.Equal(t, in.Past, now.Past)
	require.Equal(t, chat.Range{From: in.JoinSeq, To: in.LeftSeq + 2*atOnce}, chat.Range{From: now.JoinSeq, To: now.LeftSeq})
}

// A line that an operator made a former member's has no head of then. What the
// group is called by now is not for that user.
func TestG9_AFormerMemberWithoutAHeadLearnsNoLaterTitle(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
	c.Put(c.Tables.Inboxes, map[string]any{"userId": "bob", "conversationId": id, "joinSeq": 1, "leftSeq": 1, "readSeq": 1, "deliveredSeq": 1, "clearedSeq": 0})
	must(t)(s.SetTitle(t.Context(), by("ann", "2"), id, "a secret title"))
	line := mustLine(t, s, "bob", id)
	require.Empty(t, line.Head.Title)
	require.Empty(t, line.Head.Owner)
	require.Equal(t, int64(1), line.LastSeq())
	requireSees(t, s, "bob", id, 1)
}

// sizeInTable is how many bytes of an item DynamoDB counts, nearly.
func sizeInTable(c *cloud, table string, key map[string]any) int {
	c.T.Helper()
	var in map[string]any
	require.True(c.T, c.Get(table, key, &in))
	encoded, err := json.Marshal(in)
	require.NoError(c.T, err)
	return len(encoded)
}
