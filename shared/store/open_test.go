package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/operate"
)

func TestOpenSingle(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	w := &wire{}
	s := c.Store(w, store.WithClosed(true))
	opened := must(t)(s.OpenSingle(t.Context(), "ann", "bob"))
	calls, n := w.Since(0)
	require.Equal(t, []string{"GetItem", "TransactWriteItems"}, calls)
	id := chat.SingleID("ann", "bob")
	require.Equal(t, id, opened.ConversationID)
	require.Equal(t, int64(1), opened.Seq)
	require.False(t, opened.Duplicate)

	for _, user := range []string{"ann", "bob"} {
		all := ledger(t, s, user, id)
		require.Len(t, all, 1)
		require.Equal(t, chat.SystemSender, all[0].SenderID)
		require.Equal(t, &chat.Event{Kind: chat.EventMembers, Added: []string{"ann", "bob"}}, all[0].Event)
		require.Equal(t, map[string]string{"ann": "bob", "bob": "ann"}[user], mustLine(t, s, user, id).Peer)
	}
	require.Equal(t, chat.KindSingle, c.Head(id).Kind)
	require.Equal(t, 2, c.Head(id).MemberCount)

	_, n = w.Since(n)
	for _, pair := range [][2]string{{"ann", "bob"}, {"bob", "ann"}} {
		again := must(t)(s.OpenSingle(t.Context(), pair[0], pair[1]))
		require.Equal(t, store.Committed{Sent: chat.Sent{ConversationID: id, Duplicate: true}}, again)
	}
	calls, _ = w.Since(n)
	require.Equal(t, []string{"GetItem", "GetItem"}, calls, "nothing is written")
	require.Equal(t, int64(1), c.Head(id).LastSeq)

	require.Equal(t, int64(2), send(t, s, "ann", "bob", "hi").Seq, "and it is as any other")
	require.Equal(t, int64(3), send(t, s, "bob", "ann", "ho").Seq)

	own := must(t)(s.OpenSingle(t.Context(), "ann", "ann"))
	require.Equal(t, 1, c.Head(own.ConversationID).MemberCount)
	_, err := s.OpenSingle(t.Context(), "ann", "")
	require.Equal(t, chat.CodeBadRequest, chat.CodeOf(err))
}

// The product opens, and the two users write to each other, all at once: there is
// one conversation, and nothing is lost.
func TestOpenSingleRacesWithItsUsers(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	const each = 4
	require.NoError(t, parallel(3*each, func(i int) error {
		var err error
		switch s := c.Store(nil); i % 3 {
		case 0:
			_, err = s.OpenSingle(t.Context(), "ann", "bob")
		case 1:
			_, err = s.Append(t.Context(), text("ann", fmt.Sprint(i), "hi"), "bob")
		case 2:
			_, err = s.Append(t.Context(), text("bob", fmt.Sprint(i), "ho"), "ann")
		}
		return err
	}))
	s := c.Store(nil)
	id := chat.SingleID("ann", "bob")
	all := ledger(t, s, "ann", id)
	requireDense(t, all, len(all))
	events := 0
	for _, m := range all {
		if m.Event != nil {
			events++
			require.Equal(t, int64(1), m.Seq, "it opens, or it is not there")
		}
	}
	require.Len(t, all, 2*each+events)
	require.LessOrEqual(t, events, 1)
	require.Equal(t, 2, c.Head(id).MemberCount)
}

func TestAClosedStoreCreatesNothingForUsers(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	open := c.Store(nil)
	before := send(t, open, "ann", "old", "1")
	group := store.Request{UserID: "ann", ClientMsgID: "g"}
	_, made, err := open.CreateGroup(t.Context(), group, "Trip", []string{"bob"}, chat.VisibleAll)
	require.NoError(t, err)

	w := &wire{}
	s := c.Store(w, store.WithClosed(true))
	for name, to := range map[string]string{"one who writes": "old2", "nobody": "no-such-user", "oneself": "ann"} {
		_, err := s.Append(t.Context(), text("ann", to, "hi"), to)
		e := refused(t, chat.CodeForbidden, err, name)
		require.Equal(t, "to", e.Field, name)
		require.Equal(t, "here only the product opens a conversation with another user, and it has not opened this one", e.Message, name)
	}
	_, n := w.Since(0)
	_, _, err = s.CreateGroup(t.Context(), store.Request{UserID: "ann", ClientMsgID: "g2"}, "Trip", []string{"bob"}, chat.VisibleAll)
	require.Equal(t, chat.CodeForbidden, chat.CodeOf(err))
	calls, _ := w.Since(n)
	require.Equal(t, []string{"TransactGetItems"}, calls, "it asks whether that was made before, and writes nothing")
	require.Equal(t, 2, c.Count(c.Tables.Conversations))

	// What there is goes on, and what was answered before is answered so again.
	require.Equal(t, int64(2), send(t, s, "old", "ann", "2").Seq)
	require.Equal(t, int64(3), send(t, s, "ann", "old", "3").Seq)
	_, n = w.Since(n)
	require.Equal(t, int64(4), send(t, s, "ann", "old", "4").Seq)
	calls, _ = w.Since(n)
	require.Equal(t, []string{"TransactWriteItems"}, calls, "warm, it costs what it costs where all is open")
	again := send(t, s, "ann", "old", "1")
	require.True(t, again.Duplicate)
	require.Equal(t, before.MessageID, again.MessageID)
	line, repeated, err := s.CreateGroup(t.Context(), group, "Trip", []string{"bob"}, chat.VisibleAll)
	require.NoError(t, err)
	require.True(t, repeated.Duplicate)
	require.Equal(t, made.ConversationID, line.Head.ConversationID)

	byProduct := must(t)(s.OpenGroup(t.Context(), store.Request{UserID: "ann", ClientMsgID: "g3"}, "Trip", []string{"bob"}, chat.VisibleAll))
	require.Equal(t, "ann", c.Head(byProduct.ConversationID).Owner)
	require.Equal(t, 2, c.Head(byProduct.ConversationID).MemberCount)
}

// A user who has taken the product's key does not stand in its way.
func TestG3_TheProductsKeysAreItsOwn(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	open := func(owner, key, title string) (store.Committed, error) {
		return s.OpenGroup(t.Context(), store.Request{UserID: owner, ClientMsgID: key}, title, []string{"bob"}, chat.VisibleAll)
	}
	send(t, s, "ann", "bob", "trip-7")
	group := must(t)(open("ann", "trip-7", "Trip"))
	require.False(t, group.Duplicate)
	again := must(t)(open("ann", "trip-7", "Trip"))
	require.True(t, again.Duplicate)
	require.Equal(t, group.MessageID, again.MessageID)
	_, err := open("ann", "trip-7", "Tour")
	requireCode(t, chat.CodeIdempotencyConflict, err)
	require.NotEqual(t, group.ConversationID, must(t)(open("cy", "trip-7", "Trip")).ConversationID, "each owner has keys")

	head := c.Head(group.ConversationID)
	require.Equal(t, "ann", head.Owner)
	m := ledger(t, s, "ann", group.ConversationID)[0]
	require.Equal(t, chat.SystemSender, m.SenderID)
	require.Equal(t, &chat.Event{Kind: chat.EventMembers, Added: []string{"ann", "bob"}, Owner: "ann", Title: "Trip"}, m.Event)
	must(t)(s.SetTitle(t.Context(), by("ann", "trip-8"), group.ConversationID, "Tour"))

	// Nor does it use up theirs.
	must(t)(open("ann", "mine", "Trip"))
	require.False(t, send(t, s, "ann", "bob", "mine").Duplicate)
	// And what else it publishes is apart from it.
	require.False(t, publish(t, s, publication("trip-7", "ann")).Duplicate)

	for name, key := range map[string]string{"none": "", "too long": string(make([]byte, 65)), "no ASCII": "é"} {
		_, err := open("ann", key, "Trip")
		require.Equal(t, "clientMsgId", refused(t, chat.CodeBadRequest, err, name).Field)
	}
	report, err := operate.New(s).AuditConversation(t.Context(), group.ConversationID)
	require.NoError(t, err)
	require.Empty(t, report.Violations)
}
