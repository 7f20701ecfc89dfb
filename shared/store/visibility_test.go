package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
)

// synced reads a conversation by Sync in pages of limit and checks that each
// page accounts for what it passes.
func synced(t require.TestingT, s *store.Store, user string, id chat.ConversationID, limit int) []chat.Message {
	ctx, cancel := contextOf()
	defer cancel()
	got := []chat.Message{}
	for after := int64(0); ; {
		page, err := s.Sync(ctx, user, id, after, limit, frame)
		require.NoError(t, err)
		require.Empty(t, page.Skipped)
		first := after + 1
		if page.FirstSeq != 0 {
			require.Greater(t, page.FirstSeq, first, "a jump is a jump")
			first = page.FirstSeq
		}
		for i, m := range page.Messages {
			require.Equal(t, first+int64(i), m.Seq)
		}
		require.Equal(t, page.NextSeq, first+int64(len(page.Messages))-1, "after %d: %+v", after, page)
		require.Equal(t, page.NextSeq < page.CommittedMaxSeq, page.HasMore)
		got = append(got, page.Messages...)
		if !page.HasMore {
			return got
		}
		require.Greater(t, page.NextSeq, after)
		after = page.NextSeq
	}
}

// paged reads a conversation by History in pages of limit.
func paged(t require.TestingT, s *store.Store, user string, id chat.ConversationID, limit int) []chat.Message {
	ctx, cancel := contextOf()
	defer cancel()
	got := []chat.Message{}
	for before := int64(0); ; {
		page, err := s.History(ctx, user, id, before, limit, frame)
		require.NoError(t, err)
		got = append(page.Messages, got...)
		if !page.HasMore {
			return got
		}
		require.NotEmpty(t, page.Messages)
		before = page.NextBeforeSeq
	}
}

// requireSees checks what a user reads by every way there is.
func requireSees(t require.TestingT, s *store.Store, user string, id chat.ConversationID, want ...int64) {
	for _, limit := range []int{1, 2, 100} {
		require.Equal(t, append([]int64{}, want...), seqs(synced(t, s, user, id, limit)), "%s, sync by %d", user, limit)
		require.Equal(t, append([]int64{}, want...), seqs(paged(t, s, user, id, limit)), "%s, history by %d", user, limit)
	}
	ctx, cancel := contextOf()
	defer cancel()
	line, err := s.Line(ctx, user, id)
	require.NoError(t, err)
	if line.Last != nil {
		require.Equal(t, slices.Max(want), line.Last.Seq)
	} else {
		require.NotContains(t, want, line.LastSeq())
	}
}

func TestVisibility(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		visibility chat.Visibility
		late       []int64 // what one who was added with seq 3 reads
	}{
		{chat.VisibleAll, []int64{1, 2, 3, 4, 5}},
		{chat.VisibleSinceJoin, []int64{3, 4, 5}},
	} {
		t.Run(string(tc.visibility), func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			s := c.Store(nil)
			id := newGroup(t, s, tc.visibility, "ann", "bob")
			sendIn(t, s, "ann", id, "2")
			must(t)(s.AddMembers(t.Context(), by("ann", "3"), id, []string{"late"}))
			sendIn(t, s, "late", id, "4")
			sendIn(t, s, "ann", id, "5")
			requireSees(t, s, "bob", id, 1, 2, 3, 4, 5)
			requireSees(t, s, "late", id, tc.late...)
			line, err := s.Line(t.Context(), "late", id)
			require.NoError(t, err)
			require.Equal(t, int64(2), line.Unread(), "what was there before is not unread, nor one's own")

			// What one may not read cannot be answered, recalled or looked up.
			second, err := s.Entries(t.Context(), id, chat.Range{From: 2, To: 2})
			require.NoError(t, err)
			want := chat.Code("")
			if tc.visibility == chat.VisibleSinceJoin {
				want = chat.CodeNotFound
			}
			reply := chatIn(text("late", "reply", "to that"), id)
			reply.ReplyTo = &chat.ReplyTo{Seq: 2, MessageID: second[0].MessageID}
			_, replied := s.Append(t.Context(), reply, "")
			_, looked := s.Receipts(t.Context(), "late", id, 2, "", 10)
			for name, err := range map[string]error{"reply": replied, "receipts": looked} {
				if want == "" {
					require.NoError(t, err, name)
				} else {
					requireCode(t, want, err, name)
				}
			}
		})
	}
}

func TestG9_AFormerMemberReadsUpToTheRemoval(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob", "cy")
	sendIn(t, s, "ann", id, "2")
	must(t)(s.RemoveMembers(t.Context(), by("ann", "3"), id, []string{"bob"}))
	sendIn(t, s, "ann", id, "4")
	must(t)(s.Leave(t.Context(), by("cy", "5"), id))
	sendIn(t, s, "ann", id, "6")
	requireSees(t, s, "ann", id, 1, 2, 3, 4, 5, 6)
	requireSees(t, s, "bob", id, 1, 2, 3)
	requireSees(t, s, "cy", id, 1, 2, 3, 4, 5)
	for user, want := range map[string]struct{ last, unread int64 }{"bob": {3, 3}, "cy": {5, 4}} {
		last := want.last
		page, err := s.Sync(t.Context(), user, id, 0, 100, frame)
		require.NoError(t, err)
		require.Equal(t, last, page.CommittedMaxSeq, "nor does the number tell of more")
		past, err := s.Sync(t.Context(), user, id, last, 100, frame)
		require.NoError(t, err)
		require.Empty(t, past.Messages)
		require.Equal(t, last, past.NextSeq)
		beyond, err := s.History(t.Context(), user, id, 100, 100, frame)
		require.NoError(t, err)
		require.Equal(t, last, beyond.Messages[len(beyond.Messages)-1].Seq)
		line, err := s.Line(t.Context(), user, id)
		require.NoError(t, err)
		require.Equal(t, last, line.LeftSeq)
		require.Equal(t, last, line.LastSeq())
		require.Equal(t, want.unread, line.Unread(), "that one left is no news to oneself")
	}
}

func TestG9_ComingBackOpensASecondWindow(t *testing.T) {
	t.Parallel()
	for _, v := range []chat.Visibility{chat.VisibleAll, chat.VisibleSinceJoin} {
		t.Run(string(v), func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			s := c.Store(nil)
			ctx := t.Context()
			id := newGroup(t, s, v, "ann", "bob")
			sendIn(t, s, "ann", id, "2")
			must(t)(s.RemoveMembers(ctx, by("ann", "3"), id, []string{"bob"}))
			hidden := sendIn(t, s, "ann", id, "4")
			sendIn(t, s, "ann", id, "5")
			must(t)(s.AddMembers(ctx, by("ann", "6"), id, []string{"bob"}))
			sendIn(t, s, "bob", id, "7")
			requireSees(t, s, "bob", id, 1, 2, 3, 6, 7)
			requireWhole(t, c, s, id)

			page, err := s.Sync(ctx, "bob", id, 3, 100, frame)
			require.NoError(t, err)
			require.Equal(t, int64(6), page.FirstSeq)
			require.Equal(t, []int64{6, 7}, seqs(page.Messages))
			page, err = s.Sync(ctx, "bob", id, 4, 100, frame) // a device that knew of 4
			require.NoError(t, err)
			require.Equal(t, int64(6), page.FirstSeq)
			history, err := s.History(ctx, "bob", id, 6, 100, frame)
			require.NoError(t, err)
			require.Equal(t, []int64{1, 2, 3}, seqs(history.Messages), "history goes on below the gap")

			_, err = s.Recall(ctx, by("bob", "x"), store.Target{ConversationID: id, Seq: hidden.Seq, MessageID: hidden.MessageID}, store.NoWindow)
			requireCode(t, chat.CodeNotFound, err)
			line, err := s.Line(ctx, "bob", id)
			require.NoError(t, err)
			require.Equal(t, int64(1), line.Unread(), "what was written while away is not unread, nor one's own")

			must(t)(s.Leave(ctx, by("bob", "8"), id))
			sendIn(t, s, "ann", id, "9")
			requireSees(t, s, "bob", id, 1, 2, 3, 6, 7, 8)
			must(t)(s.AddMembers(ctx, by("ann", "10"), id, []string{"bob"}))
			requireSees(t, s, "bob", id, 1, 2, 3, 6, 7, 8, 10)
			requireWhole(t, c, s, id)
		})
	}
}

// All that is left after the cursor is hidden: the device is told to go on
// behind it.
func TestG6_SyncPassesOverAHiddenEnd(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
	sendIn(t, s, "ann", id, "2")
	_, rose, err := s.Clear(t.Context(), "bob", id, 2)
	require.NoError(t, err)
	require.True(t, rose)
	page, err := s.Sync(t.Context(), "bob", id, 0, 100, frame)
	require.NoError(t, err)
	require.Equal(t, store.Page{Messages: []chat.Message{}, NextSeq: 2, CommittedMaxSeq: 2, FirstSeq: 3}, page)
	requireSees(t, s, "bob", id)
}

func TestClearHidesForOneUserOnAllDevices(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	w := &wire{}
	s := c.Store(w)
	ctx := t.Context()
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
	for n := 2; n <= 6; n++ {
		sendIn(t, s, "ann", id, fmt.Sprint(n))
	}
	for _, step := range []struct {
		through, in int64
		rose        bool
	}{
		{3, 3, true}, {2, 3, false}, {3, 3, false}, {4, 4, true}, {0, 4, false}, {-1, 4, false}, {100, 6, true}, {100, 6, false},
	} {
		in, rose, err := s.Clear(ctx, "bob", id, step.through)
		require.NoError(t, err)
		require.Equal(t, step.in, in, "through %d", step.through)
		require.Equal(t, step.rose, rose, "through %d", step.through)
		if step.through == 3 && rose {
			requireSees(t, c.Store(nil), "bob", id, 4, 5, 6)
			requireSees(t, s, "ann", id, 1, 2, 3, 4, 5, 6)
		}
	}
	sendIn(t, s, "ann", id, "7")
	requireSees(t, s, "bob", id, 7)
	must(t)(s.RemoveMembers(ctx, by("ann", "8"), id, []string{"bob"}))
	sendIn(t, s, "ann", id, "9")
	in, rose, err := s.Clear(ctx, "bob", id, 100)
	require.NoError(t, err)
	require.True(t, rose)
	require.Equal(t, int64(8), in, "a former member clears up to the end")
	requireSees(t, s, "bob", id)
	must(t)(s.AddMembers(ctx, by("ann", "10"), id, []string{"bob"}))
	requireSees(t, s, "bob", id, 10)

	_, n := w.Since(0)
	_, _, err = s.Clear(ctx, "ann", id, 3)
	require.NoError(t, err)
	calls, _ := w.Since(n)
	require.Equal(t, []string{"UpdateItem"}, calls)
	for who, id := range map[string]chat.ConversationID{"mallory": id, "ann": "group:none"} {
		_, _, err = s.Clear(ctx, who, id, 1)
		requireCode(t, chat.CodeNotFound, err)
	}
}

// While a removal is being applied, the head may tell of it, and of what was said since,
// before the line of the removed one does. Nothing of that is read.
func TestG9_ALineThatIsBehindItsHeadShowsNothing(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob", "cy")
	sendIn(t, s, "ann", id, "before")
	before, stale := map[string][]byte{}, false
	w := &wire{Edit: func(op string, request, answer []byte) []byte {
		if op == "TransactGetItems" || !strings.Contains(string(request), c.Tables.Inboxes) {
			return answer
		}
		if stale {
			return before[op]
		}
		before[op] = answer
		return answer
	}}
	reader, ctx := c.Store(w), t.Context()
	_, err := reader.Line(ctx, "bob", id)
	require.NoError(t, err)
	_, _, err = reader.List(ctx, "bob", store.FromStart, 10)
	require.NoError(t, err)
	removed := must(t)(s.RemoveMembers(ctx, by("ann", "rm"), id, []string{"bob"}))
	secret := sendIn(t, s, "ann", id, "after")

	stale = true
	page, err := reader.Sync(ctx, "bob", id, 0, 10, frame)
	require.NoError(t, err)
	require.Equal(t, removed.Seq, page.CommittedMaxSeq)
	require.Len(t, page.Messages, int(removed.Seq))
	page, err = reader.Sync(ctx, "bob", id, removed.Seq, 10, frame)
	require.NoError(t, err)
	require.Empty(t, page.Messages)
	history, err := reader.History(ctx, "bob", id, 0, 10, frame)
	require.NoError(t, err)
	require.Len(t, history.Messages, int(removed.Seq))
	line, err := reader.Line(ctx, "bob", id)
	require.NoError(t, err)
	lines, _, err := reader.List(ctx, "bob", store.FromStart, 10)
	require.NoError(t, err)
	for _, l := range append(lines, line) {
		require.Equal(t, removed.Seq, l.LastSeq())
		require.Equal(t, removed.Seq, l.Last.Seq)
	}
	_, err = reader.MembersOf(ctx, "bob", id, "", 10)
	requireCode(t, chat.CodeForbidden, err)
	_, err = reader.Receipts(ctx, "bob", id, secret.Seq, "", 10)
	requireCode(t, chat.CodeNotFound, err)

	stale = false
	_, n := w.Since(0)
	_, _, err = reader.List(ctx, "cy", store.FromStart, 10)
	require.NoError(t, err)
	calls, n := w.Since(n)
	require.Equal(t, []string{"Query", "BatchGetItem", "TransactGetItems", "BatchGetItem"}, calls, "lines, heads, lines again, last messages")
	c.Set(c.Tables.Conversations, convKey(id), values{"removedAt": time.Now().Add(-time.Minute).UnixMilli()})
	_, err = reader.Sync(ctx, "cy", id, 0, 10, frame)
	require.NoError(t, err)
	_, _, err = reader.List(ctx, "cy", store.FromStart, 10)
	require.NoError(t, err)
	calls, _ = w.Since(n)
	require.NotContains(t, calls, "TransactGetItems", "it has long been applied")
}
