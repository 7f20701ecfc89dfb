package store_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
)

func publication(clientMsgID string, recipients ...string) store.Publication {
	return store.Publication{
		Key: "order:1", Title: "Order 1", Recipients: recipients, ClientMsgID: clientMsgID,
		Message: chat.Message{MessageType: chat.TypeSystem, Text: "text of " + clientMsgID},
	}
}

func publish(t testing.TB, s *store.Store, p store.Publication) store.Committed {
	t.Helper()
	return must(t)(s.Publish(t.Context(), p))
}

func TestPublish(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	w := &wire{}
	s := c.Store(w)
	first := publish(t, s, publication("1", "ann", "bob"))
	require.EqualValues(t, "system:order:1", first.ConversationID)
	require.Equal(t, int64(1), first.Seq)
	id := first.ConversationID
	require.Equal(t, int64(2), publish(t, s, publication("2")).Seq, "without recipients it goes to those there are")
	_, n := w.Since(0)
	publish(t, s, publication("3"))
	calls, _ := w.Since(n)
	require.Equal(t, []string{"TransactWriteItems"}, calls, "warm")
	added := publish(t, c.Store(nil), publication("4", "cy", "ann"))
	require.Equal(t, int64(4), added.Seq)

	requireSees(t, s, "ann", id, 1, 2, 3, 4)
	requireSees(t, s, "bob", id, 1, 2, 3, 4)
	requireSees(t, s, "cy", id, 4) // from its message on
	require.Equal(t, int64(1), mustLine(t, s, "cy", id).Unread())
	require.Equal(t, int64(4), mustLine(t, s, "ann", id).Unread())
	head := c.Head(id)
	require.Equal(t, chat.KindSystem, head.Kind)
	require.Equal(t, "Order 1", head.Title)
	require.Equal(t, 3, head.MemberCount)
	require.Equal(t, int64(2), head.MembersVersion, "one more, with the one who came")
	roster, err := s.Roster(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, roster, 3)
	m := ledger(t, s, "ann", id)[0]
	require.Equal(t, chat.SystemSender, m.SenderID)
	require.Equal(t, chat.TypeSystem, m.MessageType)
	got, err := s.Ack(t.Context(), "cy", id, store.Watermarks{ReadSeq: 4})
	require.NoError(t, err)
	require.Equal(t, int64(4), got.ReadSeq)
}

func TestPublishIsIdempotent(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	const tries = 8
	committed := make([]store.Committed, tries)
	require.NoError(t, parallel(tries, func(i int) error {
		p := publication("same", "ann", "bob")
		if i%2 == 1 {
			p.Recipients = []string{"bob", "ann"}
		}
		var err error
		committed[i], err = c.Store(nil).Publish(t.Context(), p)
		return err
	}))
	for _, r := range committed {
		require.Equal(t, committed[0].MessageID, r.MessageID)
	}
	require.Equal(t, int64(1), c.Head(committed[0].ConversationID).LastSeq)
	s := c.Store(nil)
	for name, change := range map[string]func(*store.Publication){
		"other text":         func(p *store.Publication) { p.Message.Text = "other" },
		"other key":          func(p *store.Publication) { p.Key = "order:2" },
		"another recipient":  func(p *store.Publication) { p.Recipients = []string{"ann", "cy"} },
		"no recipient":       func(p *store.Publication) { p.Recipients = nil },
		"one recipient more": func(p *store.Publication) { p.Recipients = append(p.Recipients, "cy") },
	} {
		p := publication("same", "ann", "bob")
		change(&p)
		_, err := s.Publish(t.Context(), p)
		e := refused(t, chat.CodeIdempotencyConflict, err, name)
		require.Equal(t, committed[0].MessageID, e.Details["messageId"], name)
	}
	// A user's idempotency keys are others.
	require.False(t, send(t, s, "ann", "bob", "same").Duplicate)
}

// Several first publications of one key, to different recipients, at once: one
// makes the conversation, and the others add to it.
func TestConcurrentPublicationsMakeOneConversation(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	const n = 8
	require.NoError(t, parallel(n, func(i int) error {
		_, err := c.Store(nil).Publish(t.Context(), publication(fmt.Sprint(i), fmt.Sprint("user", i), "all"))
		return err
	}))
	s := c.Store(nil)
	id := chat.ConversationID("system:order:1")
	all, err := s.Entries(t.Context(), id, chat.Range{From: 1, To: n})
	require.NoError(t, err)
	requireDense(t, all, n)
	require.Equal(t, n+1, c.Head(id).MemberCount)
	require.Equal(t, int64(n), c.Head(id).MembersVersion)
	roster, err := s.Roster(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, roster, n+1)
	for _, m := range all {
		user := "user" + m.ClientMsgID
		require.Equal(t, m.Seq, synced(t, s, user, id, 100)[0].Seq, "%s reads from its message on", user)
	}
}

func TestPublishRefusals(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	for name, tc := range map[string]struct {
		change func(*store.Publication)
		code   chat.Code
		field  string
	}{
		"nobody to make it for": {func(p *store.Publication) { p.Recipients = nil }, chat.CodeNotFound, "conversationId"},
		"no key":                {func(p *store.Publication) { p.Key = "" }, chat.CodeBadRequest, "conversationId"},
		"no idempotency key":    {func(p *store.Publication) { p.ClientMsgID = "" }, chat.CodeBadRequest, "clientMsgId"},
		"101 recipients":        {func(p *store.Publication) { p.Recipients = users(101) }, chat.CodeLimit, "recipients"},
		"a recipient twice":     {func(p *store.Publication) { p.Recipients = []string{"ann", "ann"} }, chat.CodeBadRequest, "recipients"},
		"an odd title":          {func(p *store.Publication) { p.Title = "a\nb" }, chat.CodeBadRequest, "title"},
		"no content":            {func(p *store.Publication) { p.Message.Text = "" }, chat.CodeBadRequest, "text"},
		"data is broken":        {func(p *store.Publication) { p.Message.Data = []byte(`{"a":`) }, chat.CodeBadRequest, "data"},
	} {
		p := publication("x", "ann")
		tc.change(&p)
		_, err := s.Publish(t.Context(), p)
		require.Equal(t, tc.field, refused(t, tc.code, err, name).Field, name)
	}
	require.Zero(t, c.Count(c.Tables.Conversations))
	p := publication("x", users(chat.MaxRosterChange)...)
	p.Title = "" // it needs none
	require.Equal(t, chat.MaxRosterChange, c.Head(publish(t, s, p).ConversationID).MemberCount)
}

func TestNobodyWritesToASystemConversation(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := publish(t, s, publication("1", "ann")).ConversationID
	for user, code := range map[string]chat.Code{"ann": chat.CodeForbidden, "mallory": chat.CodeNotFound} {
		for _, from := range []*store.Store{s, c.Store(nil)} {
			_, err := from.Append(t.Context(), chatIn(text(user, "x", "hi"), id), "")
			requireCode(t, code, err, user)
		}
	}
	_, err := s.Sync(t.Context(), "mallory", id, 0, 10, frame)
	requireCode(t, chat.CodeNotFound, err)
	require.Equal(t, int64(1), c.Head(id).LastSeq)
}

func TestG3G4_PublishFailedNotAppliedAndFailedYetApplied(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"failed, not applied": dropped, "failed, yet applied": unanswered} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			w := &wire{}
			s := c.Store(w)
			for i, recipients := range [][]string{{"ann"}, {"ann", "bob"}, nil} {
				w.Set(func(op string, n int) fault {
					if op == "TransactWriteItems" && n == 1 {
						return f
					}
					return none
				})
				r := publish(t, s, publication(fmt.Sprint(i), recipients...))
				require.Equal(t, int64(i+1), r.Seq)
				require.False(t, r.Duplicate)
			}
			require.Equal(t, 2, c.Head("system:order:1").MemberCount)
			require.Equal(t, 3, c.Count(c.Tables.Messages))
		})
	}
}

func TestReadersOfASystemConversationAreNotToldOfEachOther(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := publish(t, s, publication("1", "ann", "bob")).ConversationID
	_, members := s.MembersOf(t.Context(), "ann", id, "", 10)
	requireCode(t, chat.CodeForbidden, members, "members")
	_, receipts := s.Receipts(t.Context(), "ann", id, 1, "", 10)
	requireCode(t, chat.CodeForbidden, receipts, "receipts")
}
