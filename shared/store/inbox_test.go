package store_test

import (
	"context"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
)

func conversationIDs(lines []store.Line) map[chat.ConversationID]bool {
	ids := map[chat.ConversationID]bool{}
	for _, l := range lines {
		ids[l.Head.ConversationID] = true
	}
	return ids
}

func TestChangesTellWhatChangedSinceTheCursor(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	w := &wire{}
	s := c.Store(w)
	ids := c.Lines("bob", 5)
	start, err := s.Changes(t.Context(), "bob", 0, "", 50)
	require.NoError(t, err)
	require.True(t, start.Full, "a device without a cursor gets the list")
	require.Len(t, start.Lines, 5)
	_, n := w.Since(0)

	cursor := raise(t, s, "bob", ids[:1])
	calls, n := w.Since(n)
	require.Equal(t, []string{"UpdateItem", "UpdateItem", "UpdateItem"}, calls, "the first raise makes the item")
	raise(t, s, "bob", ids[1:3])
	calls, n = w.Since(n)
	require.Equal(t, []string{"UpdateItem"}, calls)
	raise(t, s, "bob", ids[:2])

	first, err := s.Changes(t.Context(), "bob", cursor, "", 50)
	require.NoError(t, err)
	require.Equal(t, map[chat.ConversationID]bool{ids[0]: true, ids[1]: true, ids[2]: true}, conversationIDs(first.Lines))
	second, err := s.Changes(t.Context(), "bob", first.Cursor, "", 50)
	require.NoError(t, err)
	require.Empty(t, second.Lines)
	require.Equal(t, first.Cursor, second.Cursor)
	calls, _ = w.Since(n)
	require.Equal(t, "Query", calls[len(calls)-1], "nothing changed: one read")

	raise(t, s, "bob", ids[:1])
	third, err := s.Changes(t.Context(), "bob", first.Cursor, "", 50)
	require.NoError(t, err)
	require.Equal(t, map[chat.ConversationID]bool{ids[0]: true}, conversationIDs(third.Lines))
	other, err := s.Changes(t.Context(), "alice", 0, "", 50)
	require.NoError(t, err)
	require.Empty(t, other.Lines)
}

// raise raises a sync head, which has to work, and returns the cursor.
func raise(t require.TestingT, s *store.Store, user string, ids []chat.ConversationID) int64 {
	cursor, err := s.Raise(context.Background(), user, ids)
	require.NoError(t, err)
	return cursor
}

func TestChangesFallBackToTheWholeList(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	ids := c.Lines("bob", 230)
	for _, id := range ids {
		raise(t, s, "bob", []chat.ConversationID{id})
	}
	// Too long ago: the whole list, the latest changes first.
	old, err := s.Changes(t.Context(), "bob", 3, "", 25)
	require.NoError(t, err)
	require.True(t, old.Full)
	require.Len(t, old.Lines, 25)
	require.Equal(t, ids[229], old.Lines[0].Head.ConversationID)
	require.Equal(t, store.FromStart, old.Next)
	got := map[chat.ConversationID]bool{}
	for next := old.Next; next != ""; {
		var lines []store.Line
		lines, next, err = s.List(t.Context(), "bob", next, 100)
		require.NoError(t, err)
		maps.Copy(got, conversationIDs(lines))
	}
	require.Len(t, got, 230)
	fresh, err := s.Changes(t.Context(), "bob", 227, "", 25)
	require.NoError(t, err)
	require.False(t, fresh.Full)
	require.Equal(t, map[chat.ConversationID]bool{ids[227]: true, ids[228]: true, ids[229]: true}, conversationIDs(fresh.Lines))
	beyond, err := s.Changes(t.Context(), "bob", 1000, "", 25)
	require.NoError(t, err)
	require.True(t, beyond.Full, "a cursor of another store")
}

// Forty conversations that change at once, from several fan-outs, lose none,
// whatever the cursor.
func TestG5_ConcurrentRaisesLoseNoChange(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	ids := c.Lines("bob", 40)
	before := raise(t, s, "bob", ids[:1])
	require.NoError(t, parallel(8, func(i int) error {
		for n := i; n < len(ids); n += 8 {
			if _, err := s.Raise(t.Context(), "bob", ids[n:n+1]); err != nil {
				return err
			}
		}
		return nil
	}))
	after, err := s.Changes(t.Context(), "bob", before, "", 100)
	require.NoError(t, err)
	got := conversationIDs(after.Lines)
	for _, id := range ids {
		require.True(t, got[id], id)
	}
}

// Against a model: whatever the order of raises and of asking, a device that
// asks hears of every conversation raised since it last asked.
func TestG5_ADeviceHearsOfEveryRaise(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	ids := c.Lines("bob", 24)
	rapid.Check(t, func(rt *rapid.T) {
		cursor, unheard := int64(0), map[chat.ConversationID]bool{} // a new device
		if rapid.Bool().Draw(rt, "known") {
			now, err := s.Changes(t.Context(), "bob", 0, "", 100)
			require.NoError(rt, err)
			cursor = now.Cursor
		}
		steps := rapid.IntRange(5, 40).Draw(rt, "steps")
		for range steps {
			if rapid.IntRange(0, 5).Draw(rt, "ask") > 0 {
				batch := rapid.SliceOfNDistinct(rapid.SampledFrom(ids), 1, 4, rapid.ID).Draw(rt, "raise")
				raise(rt, s, "bob", batch)
				for _, id := range batch {
					unheard[id] = true
				}
				continue
			}
			got, err := s.Changes(t.Context(), "bob", cursor, "", 100)
			require.NoError(rt, err)
			heard := conversationIDs(got.Lines)
			for id := range unheard {
				require.True(rt, heard[id], "%s was raised after cursor %d", id, cursor)
			}
			if !got.Full {
				require.Len(rt, heard, len(unheard), "and of no other")
			}
			cursor, unheard = got.Cursor, map[chat.ConversationID]bool{}
		}
	})
}

func TestListPages(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	sendN(t, s, 3)
	send(t, s, "carol", "bob", "c1")
	lines, next, err := s.List(t.Context(), "bob", "", 1)
	require.NoError(t, err)
	require.Len(t, lines, 1)
	require.NotEmpty(t, next)
	rest, last, err := s.List(t.Context(), "bob", next, 10)
	require.NoError(t, err)
	require.Len(t, rest, 1)
	require.Empty(t, last)
	for _, l := range append(lines, rest...) {
		require.Contains(t, []string{"alice", "carol"}, l.Peer)
		require.Equal(t, l.LastSeq(), l.Unread())
		require.Equal(t, chat.SingleID("bob", l.Peer), l.Head.ConversationID)
		require.Equal(t, l.Peer, l.Last.SenderID)
		require.Equal(t, l.LastSeq(), l.Last.Seq)
	}
}
