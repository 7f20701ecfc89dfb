package clienttest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/wire"
)

// TestStore checks that a kind of store does what client.Store says. open returns a new,
// empty one, and reopen the same one as a program sees it after a restart.
func TestStore(t *testing.T, open func(t *testing.T) (store client.Store, reopen func() client.Store)) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, client.Store, func() client.Store){
		"what was committed is there after a restart":      survives,
		"messages are returned in stretches":               stretches,
		"a message replaces the one with its seq":          replaces,
		"deletions come before messages":                   deletes,
		"revisions are found by target":                    revisions,
		"erasures are found by target 0":                   erasures,
		"what is above the position is the reorder buffer": buffered,
		"what is set aside is not lost":                    orphans,
		"the outbox is in order":                           outbox,
		"it belongs to one user":                           owned,
		"a commit whose context ended changes nothing":     ended,
		"what was given or taken stays as it was":          apart,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, reopen := open(t)
			_, err := store.Load(t.Context(), "alice")
			require.NoError(t, err)
			test(t, store, reopen)
		})
	}
}

const testedID = "group:g"

func message(seq int64, text string) chat.Message {
	return chat.Message{
		ConversationID: testedID, Seq: seq, MessageID: fmt.Sprintf("m%d", seq), ClientMsgID: fmt.Sprintf("c%d", seq), SenderID: "bob",
		MessageType: chat.TypeText, Text: text, Version: 1, Status: chat.StatusNormal, ServerTime: 1,
	}
}

func event(seq, target int64, kind chat.EventKind) chat.Message {
	m := message(seq, "")
	m.MessageType = chat.TypeEvent
	m.Event = &chat.Event{Kind: kind, TargetSeq: target, TargetMessageID: fmt.Sprintf("m%d", target), Version: 2}
	return m
}

func at(contiguous, seen int64) client.Conversation {
	return client.Conversation{
		Conversation:     wire.Conversation{ConversationID: testedID, Kind: chat.KindGroup, Title: "the title", LastSeq: seen},
		MaxContiguousSeq: contiguous, MaxSeenSeq: seen,
		Receipts: map[string]client.Positions{"bob": {DeliveredSeq: 2, ReadSeq: 1}},
	}
}

func load(t *testing.T, s client.Store) client.State {
	t.Helper()
	state, err := s.Load(t.Context(), "alice")
	require.NoError(t, err)
	return state
}

func all(t *testing.T, s client.Store) []chat.Message {
	t.Helper()
	found, err := s.Messages(t.Context(), testedID, 0, chat.MaxSeq, 1000)
	require.NoError(t, err)
	return found
}

func survives(t *testing.T, s client.Store, reopen func() client.Store) {
	cursor := int64(17)
	m := message(1, "it's <b>&\u2028")
	m.Data = []byte(`{"a":1}`)
	m.ReplyTo = &chat.ReplyTo{Seq: 1, MessageID: "m"}
	require.NoError(t, s.Commit(t.Context(), client.Batch{
		Messages: []chat.Message{m}, Conversations: []client.Conversation{at(1, 4)}, SyncCursor: &cursor,
	}))
	s = reopen()
	state := load(t, s)
	require.Equal(t, cursor, state.SyncCursor)
	require.Equal(t, []client.Conversation{at(1, 4)}, state.Conversations)
	require.Empty(t, state.Buffered)
	require.Equal(t, []chat.Message{m}, all(t, s))
}

func stretches(t *testing.T, s client.Store, _ func() client.Store) {
	var b client.Batch
	for _, seq := range []int64{5, 1, 3, 2, 9} {
		b.Messages = append(b.Messages, message(seq, "x"))
	}
	other := message(2, "other")
	other.ConversationID = "group:other"
	b.Messages = append(b.Messages, other)
	require.NoError(t, s.Commit(t.Context(), b))
	for _, c := range []struct {
		after, through int64
		limit          int
		want           []int64
	}{
		{0, 9, 10, []int64{1, 2, 3, 5, 9}},
		{0, 9, 2, []int64{1, 2}},
		{2, 5, 10, []int64{3, 5}},
		{3, 4, 10, nil},
		{9, 20, 10, nil},
		{5, 2, 10, nil},
	} {
		found, err := s.Messages(t.Context(), testedID, c.after, c.through, c.limit)
		require.NoError(t, err)
		var seqs []int64
		for _, m := range found {
			seqs = append(seqs, m.Seq)
		}
		require.Equal(t, c.want, seqs, "after %d through %d limit %d", c.after, c.through, c.limit)
	}
	none, err := s.Messages(t.Context(), "group:none", 0, 9, 9)
	require.NoError(t, err)
	require.Empty(t, none)
}

func replaces(t *testing.T, s client.Store, _ func() client.Store) {
	require.NoError(t, s.Commit(t.Context(), client.Batch{Messages: []chat.Message{message(1, "old"), message(2, "two")}}))
	require.NoError(t, s.Commit(t.Context(), client.Batch{Messages: []chat.Message{message(1, "new")}}))
	require.Equal(t, []chat.Message{message(1, "new"), message(2, "two")}, all(t, s))
}

func deletes(t *testing.T, s client.Store, _ func() client.Store) {
	require.NoError(t, s.Commit(t.Context(), client.Batch{Messages: []chat.Message{message(1, ""), message(2, ""), event(3, 1, chat.EventEdit), message(4, "")}}))
	require.NoError(t, s.Commit(t.Context(), client.Batch{
		Delete:   []client.Span{{ConversationID: testedID, Range: chat.Range{From: 2, To: 3}}, {ConversationID: "group:none", Range: chat.Range{From: 1, To: 9}}},
		Messages: []chat.Message{message(2, "again")},
	}))
	require.Equal(t, []chat.Message{message(1, ""), message(2, "again"), message(4, "")}, all(t, s))
	events, err := s.Revisions(t.Context(), testedID, 1)
	require.NoError(t, err)
	require.Empty(t, events)
}

func revisions(t *testing.T, s client.Store, _ func() client.Store) {
	title := event(6, 1, chat.EventTitle)
	b := client.Batch{Messages: []chat.Message{event(5, 1, chat.EventRecall), event(4, 2, chat.EventEdit), event(3, 1, chat.EventEdit), title}}
	require.NoError(t, s.Commit(t.Context(), b))
	require.NoError(t, s.Commit(t.Context(), b)) // the same again
	events, err := s.Revisions(t.Context(), testedID, 1)
	require.NoError(t, err)
	require.Equal(t, []chat.Message{event(3, 1, chat.EventEdit), event(5, 1, chat.EventRecall)}, events)
}

func erasures(t *testing.T, s client.Store, reopen func() client.Store) {
	erasure := message(3, "")
	erasure.MessageType, erasure.Event = chat.TypeEvent, &chat.Event{Kind: chat.EventErase, Erased: "bob"}
	require.NoError(t, s.Commit(t.Context(), client.Batch{Messages: []chat.Message{message(1, "hi"), event(2, 1, chat.EventEdit), erasure}}))
	events, err := s.Revisions(t.Context(), testedID, 0)
	require.NoError(t, err)
	require.Equal(t, []chat.Message{erasure}, events)
	span := client.Span{ConversationID: testedID, Range: chat.Range{From: 3, To: 3}}
	require.NoError(t, s.Commit(t.Context(), client.Batch{Delete: []client.Span{span}}))
	events, err = reopen().Revisions(t.Context(), testedID, 0)
	require.NoError(t, err)
	require.Empty(t, events)
}

func buffered(t *testing.T, s client.Store, reopen func() client.Store) {
	unknown := message(7, "of a conversation without a position")
	unknown.ConversationID = "group:a"
	require.NoError(t, s.Commit(t.Context(), client.Batch{
		Messages:      []chat.Message{message(4, ""), message(1, ""), message(3, ""), unknown},
		Conversations: []client.Conversation{at(1, 4)},
	}))
	s = reopen()
	require.Equal(t, []chat.Message{unknown, message(3, ""), message(4, "")}, load(t, s).Buffered)
	require.NoError(t, s.Commit(t.Context(), client.Batch{Conversations: []client.Conversation{at(4, 4)}}))
	require.Equal(t, []chat.Message{unknown}, load(t, reopen()).Buffered)
}

func orphans(t *testing.T, s client.Store, reopen func() client.Store) {
	span := func(from, to int64) []client.Span {
		return []client.Span{{ConversationID: testedID, Range: chat.Range{From: from, To: to}}}
	}
	require.NoError(t, s.Commit(t.Context(), client.Batch{Messages: []chat.Message{message(1, ""), message(2, ""), event(3, 1, chat.EventEdit), message(4, "")}}))
	require.NoError(t, s.Commit(t.Context(), client.Batch{Orphan: span(2, 3), Delete: span(4, chat.MaxSeq)}))
	require.Equal(t, []chat.Message{message(1, "")}, all(t, s))
	events, err := s.Revisions(t.Context(), testedID, 1)
	require.NoError(t, err)
	require.Empty(t, events)
	other := message(2, "of another world")
	other.MessageID = "m2b"
	require.NoError(t, s.Commit(t.Context(), client.Batch{Messages: []chat.Message{other}}))
	require.NoError(t, s.Commit(t.Context(), client.Batch{Orphan: span(2, chat.MaxSeq)}))
	s = reopen()
	aside := func() []chat.Message {
		found, err := s.Orphans(t.Context(), testedID)
		require.NoError(t, err)
		return found
	}
	require.Equal(t, []chat.Message{message(2, ""), other, event(3, 1, chat.EventEdit)}, aside())
	require.Equal(t, []chat.Message{message(1, "")}, all(t, s))
	require.NoError(t, s.Commit(t.Context(), client.Batch{OrphanDelete: span(1, 2)}))
	require.Equal(t, []chat.Message{event(3, 1, chat.EventEdit)}, aside())
}

func outbox(t *testing.T, s client.Store, reopen func() client.Store) {
	entry := func(order int64, key string) client.OutboxEntry {
		return client.OutboxEntry{
			Order: order, ClientMsgID: key, ConversationID: testedID, Action: wire.ActionEdit,
			Request: json.RawMessage(`{"text":"<&>","data":{"n":9007199254740993,"x":1e999}}`), // it is sent as it was written
		}
	}
	require.NoError(t, s.Commit(t.Context(), client.Batch{OutboxPut: []client.OutboxEntry{entry(2, "a"), entry(1, "z"), entry(3, "m")}}))
	require.NoError(t, s.Commit(t.Context(), client.Batch{OutboxDelete: []string{"a", "none"}}))
	require.Equal(t, []client.OutboxEntry{entry(1, "z"), entry(3, "m")}, load(t, reopen()).Outbox)
}

func owned(t *testing.T, s client.Store, reopen func() client.Store) {
	_, err := s.Load(t.Context(), "mallory")
	require.ErrorContains(t, err, `of user "alice"`)
	_, err = reopen().Load(t.Context(), "mallory")
	require.ErrorContains(t, err, `of user "alice"`)
}

func ended(t *testing.T, s client.Store, _ func() client.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, s.Commit(ctx, client.Batch{Messages: []chat.Message{message(1, "")}}))
	require.Empty(t, all(t, s))
}

func apart(t *testing.T, s client.Store, _ func() client.Store) {
	c := at(1, 1)
	require.NoError(t, s.Commit(t.Context(), client.Batch{Messages: []chat.Message{message(1, "one")}, Conversations: []client.Conversation{c}}))
	c.Receipts["bob"] = client.Positions{}
	all(t, s)[0].Text = "changed"
	require.Equal(t, []chat.Message{message(1, "one")}, all(t, s))
	require.Equal(t, []client.Conversation{at(1, 1)}, load(t, s).Conversations)
}
