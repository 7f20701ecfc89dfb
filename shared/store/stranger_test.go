package store_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
)

// Whether a conversation exists that one is not in can be told neither by what is
// answered nor by what it takes: it is the same work, whatever this process
// remembers.
func TestG9_AStrangerCausesTheSameWorkWhetherTheConversationExistsOrNot(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	w := &wire{}
	shared := c.Store(w) // where the members are active, so that it remembers
	ctx := t.Context()
	group := newGroup(t, shared, chat.VisibleAll, "ann", "bob")
	dissolved := must(t)(shared.OpenGroup(ctx, by("ann", "g2"), "over", []string{"bob"}, chat.VisibleAll)).ConversationID
	must(t)(shared.Dissolve(ctx, by("ann", "d"), dissolved))
	single := send(t, shared, "ann", "bob", "s").ConversationID
	system := publish(t, shared, publication("p", "ann")).ConversationID
	existing := map[string]chat.ConversationID{"a group": group, "a dissolved one": dissolved, "a single one": single, "a system one": system}
	absent := []chat.ConversationID{"group:01KB6Z2Q8D8C6E2JY5R3T9V0WX", chat.SingleID("ann", "zoe"), "system:none"}
	active := func() {
		for i, id := range []chat.ConversationID{group, single} {
			sendIn(t, shared, "ann", id, fmt.Sprint("more", i, time.Now().UnixNano()))
			_, err := shared.Ack(ctx, "bob", id, store.Watermarks{ReadSeq: 2})
			require.NoError(t, err)
		}
	}
	target := func(id chat.ConversationID) store.Target {
		return store.Target{ConversationID: id, Seq: 1, MessageID: "01K"}
	}
	keys := 0
	key := func() store.Request { keys++; return by("mallory", fmt.Sprint("k", keys)) }
	sent := func(_ store.Committed, err error) error { return err }
	actions := map[string]func(s *store.Store, id chat.ConversationID) error{
		"send": func(s *store.Store, id chat.ConversationID) error {
			return sent(s.Append(ctx, chatIn(text("mallory", key().ClientMsgID, "hi"), id), ""))
		},
		"reply": func(s *store.Store, id chat.ConversationID) error {
			m := chatIn(text("mallory", key().ClientMsgID, "hi"), id)
			m.ReplyTo = &chat.ReplyTo{Seq: 1, MessageID: "01K"}
			return sent(s.Append(ctx, m, ""))
		},
		"recall": func(s *store.Store, id chat.ConversationID) error {
			return sent(s.Recall(ctx, key(), target(id), store.NoWindow))
		},
		"edit": func(s *store.Store, id chat.ConversationID) error {
			return sent(s.Edit(ctx, key(), target(id), store.Edited{Version: 1, Text: "new"}, store.NoWindow))
		},
		"addMembers": func(s *store.Store, id chat.ConversationID) error {
			return sent(s.AddMembers(ctx, key(), id, []string{"mallory"}))
		},
		"removeMembers": func(s *store.Store, id chat.ConversationID) error {
			return sent(s.RemoveMembers(ctx, key(), id, []string{"ann"}))
		},
		"leave": func(s *store.Store, id chat.ConversationID) error { return sent(s.Leave(ctx, key(), id)) },
		"setRole": func(s *store.Store, id chat.ConversationID) error {
			return sent(s.SetRole(ctx, key(), id, "bob", chat.RoleAdmin))
		},
		"setTitle": func(s *store.Store, id chat.ConversationID) error { return sent(s.SetTitle(ctx, key(), id, "mine")) },
		"dissolve": func(s *store.Store, id chat.ConversationID) error { return sent(s.Dissolve(ctx, key(), id)) },
		"sync": func(s *store.Store, id chat.ConversationID) error {
			_, err := s.Sync(ctx, "mallory", id, 0, 10, frame)
			return err
		},
		"history": func(s *store.Store, id chat.ConversationID) error {
			_, err := s.History(ctx, "mallory", id, 0, 10, frame)
			return err
		},
		"members": func(s *store.Store, id chat.ConversationID) error {
			_, err := s.MembersOf(ctx, "mallory", id, "", 10)
			return err
		},
		"receipts": func(s *store.Store, id chat.ConversationID) error {
			_, err := s.Receipts(ctx, "mallory", id, 1, "", 10)
			return err
		},
		"ack": func(s *store.Store, id chat.ConversationID) error {
			_, err := s.Ack(ctx, "mallory", id, store.Watermarks{DeliveredSeq: 1, ReadSeq: 1})
			return err
		},
		"ack beyond": func(s *store.Store, id chat.ConversationID) error {
			_, err := s.Ack(ctx, "mallory", id, store.Watermarks{ReadSeq: 1000})
			return err
		},
		"clear": func(s *store.Store, id chat.ConversationID) error {
			_, _, err := s.Clear(ctx, "mallory", id, 1)
			return err
		},
	}
	for action, do := range actions {
		work := func(s *store.Store, w *wire, id chat.ConversationID) []string {
			_, n := w.Since(0)
			err := do(s, id)
			require.Equal(t, refusedAs(t, c, do, absent[0]), refused(t, chat.CodeNotFound, err, action), action)
			calls, _ := w.Since(n)
			return slices.Sorted(slices.Values(calls)) // an ack of what is remembered reads last
		}
		cold := func(id chat.ConversationID) (first, second []string) {
			w := &wire{}
			s := c.Store(w)
			return work(s, w, id), work(s, w, id)
		}
		want, again := cold(absent[0])
		require.NotEmpty(t, want, action)
		require.Equal(t, want, again, "%s: absent, asked again", action)
		for _, id := range append(absent, slices.Sorted(maps.Values(existing))...) {
			first, second := cold(id)
			require.Equal(t, want, first, "%s: %s, cold", action, id)
			require.Equal(t, want, second, "%s: %s, asked again", action, id)
			active()
			require.Equal(t, want, work(shared, w, id), "%s: %s, warm", action, id)
		}
	}
}

// refusedAs is how an action is refused, by a Store that remembers nothing.
func refusedAs(t testing.TB, c *cloud, do func(*store.Store, chat.ConversationID) error, id chat.ConversationID) *chat.Error {
	t.Helper()
	return refused(t, chat.CodeNotFound, do(c.Store(nil), id))
}

// What the above costs is paid by strangers: for members a warm ack is one write.
func TestAWarmAckIsOneWriteAndAViewTwoReads(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	w := &wire{}
	s := c.Store(w)
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob", "cy")
	sendIn(t, s, "ann", id, "m")
	for _, user := range []string{"bob", "cy"} {
		_, n := w.Since(0)
		_, err := s.Ack(t.Context(), user, id, store.Watermarks{ReadSeq: 2})
		require.NoError(t, err)
		_, _, err = s.Clear(t.Context(), user, id, 1)
		require.NoError(t, err)
		_, err = s.MembersOf(t.Context(), user, id, "", 10)
		require.NoError(t, err)
		calls, _ := w.Since(n)
		require.Equal(t, []string{"UpdateItem", "UpdateItem", "GetItem", "GetItem", "Query"}, calls)
	}
}
