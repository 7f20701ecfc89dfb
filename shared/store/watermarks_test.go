package store_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"inorder/shared/chat"
	"inorder/shared/store"
)

// Sixteen devices of one user ack in random order, beyond the end too, while
// someone watches.
func TestG7_WatermarksOnlyGoUp(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	const devices, last = 16, 30
	id := sendN(t, c.store(nil), last)
	watch := c.store(nil)
	done := make(chan struct{})
	var watching sync.WaitGroup
	var seen []store.Watermarks
	var watchErr error
	watching.Go(func() {
		for {
			line, err := watch.Line(t.Context(), "bob", id)
			if err != nil {
				watchErr = err
				return
			}
			seen = append(seen, store.Watermarks{DeliveredSeq: line.DeliveredSeq, ReadSeq: line.ReadSeq})
			select {
			case <-done:
				return
			default:
			}
		}
	})
	highest := make([]store.Watermarks, devices)
	err := parallel(devices, func(i int) error {
		s := c.store(nil)
		random := rand.New(rand.NewPCG(uint64(i), 7))
		before := store.Watermarks{}
		for range 12 {
			want := store.Watermarks{DeliveredSeq: random.Int64N(last), ReadSeq: random.Int64N(last - 5)}
			if random.IntN(3) == 0 {
				want.ReadSeq = 0
			}
			if random.IntN(8) == 0 {
				want.DeliveredSeq = 0
			}
			got, err := s.Ack(t.Context(), "bob", id, want)
			if err != nil {
				return err
			}
			switch {
			case got.DeliveredSeq < max(want.DeliveredSeq, want.ReadSeq) || got.ReadSeq < want.ReadSeq:
				return fmt.Errorf("%+v was asked, %+v is in force", want, got.Watermarks)
			case got.DeliveredSeq < before.DeliveredSeq || got.ReadSeq < before.ReadSeq:
				return fmt.Errorf("%+v after %+v", got.Watermarks, before)
			case got.Rose() != (got.Watermarks != got.Before):
				return fmt.Errorf("%+v", got)
			}
			before = got.Watermarks
			highest[i].DeliveredSeq = max(highest[i].DeliveredSeq, want.DeliveredSeq, want.ReadSeq)
			highest[i].ReadSeq = max(highest[i].ReadSeq, want.ReadSeq)
		}
		return nil
	})
	close(done)
	watching.Wait()
	require.NoError(t, err)
	require.NoError(t, watchErr)
	want := store.Watermarks{}
	for _, h := range highest {
		want.DeliveredSeq, want.ReadSeq = max(want.DeliveredSeq, h.DeliveredSeq), max(want.ReadSeq, h.ReadSeq)
	}
	require.Equal(t, want, seen[len(seen)-1])
	for i, w := range seen {
		require.LessOrEqual(t, w.ReadSeq, w.DeliveredSeq)
		if i > 0 {
			require.GreaterOrEqual(t, w.DeliveredSeq, seen[i-1].DeliveredSeq)
			require.GreaterOrEqual(t, w.ReadSeq, seen[i-1].ReadSeq)
		}
	}
	_, err = c.store(nil).Ack(t.Context(), "bob", id, store.Watermarks{DeliveredSeq: 1000, ReadSeq: 999})
	require.NoError(t, err)
	require.Equal(t, inbox{JoinSeq: 1, ReadSeq: last, DeliveredSeq: last}, c.inbox("bob", id), "never above the last seq")
}

// Members ack while messages come in; nobody gets ahead of the ledger, and the
// receipts say what was acked.
func TestG7_MembersAckWhileMessagesComeIn(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	members := users(16)
	s := c.store(nil)
	id := newGroup(t, s, chat.VisibleAll, "ann", members...)
	reached := make([]int64, len(members)) // as answered last; less than asked while there was no more
	require.NoError(t, parallel(len(members)+1, func(i int) error {
		own := c.store(nil)
		for n := range 12 {
			if i == len(members) {
				if _, err := own.Append(t.Context(), chatIn(text("ann", fmt.Sprint(n), "hi"), id), ""); err != nil {
					return err
				}
				continue
			}
			got, err := own.Ack(t.Context(), members[i], id, store.Watermarks{DeliveredSeq: 100, ReadSeq: int64(n)})
			if err != nil {
				return err
			}
			if got.DeliveredSeq > got.Head.LastSeq {
				return fmt.Errorf("%s has received %d of %d", members[i], got.DeliveredSeq, got.Head.LastSeq)
			}
			reached[i] = got.ReadSeq
		}
		return nil
	}))
	require.Equal(t, int64(13), c.head(id).LastSeq)
	for i, user := range members {
		got, err := c.store(nil).Ack(t.Context(), user, id, store.Watermarks{DeliveredSeq: 13, ReadSeq: int64(i)})
		require.NoError(t, err)
		require.Equal(t, store.Watermarks{DeliveredSeq: 13, ReadSeq: min(13, max(reached[i], int64(i)))}, got.Watermarks)
	}
	var all store.ReceiptPage
	for cursor := ""; ; {
		page, err := s.Receipts(t.Context(), "ann", id, 13, cursor, 5)
		require.NoError(t, err)
		all.Delivered, all.Read = append(all.Delivered, page.Delivered...), append(all.Read, page.Read...)
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	require.Equal(t, members, all.Delivered, "everyone but ann, who did not ack")
	require.Equal(t, members[13:], all.Read)
	for _, seq := range []int64{0, 14} {
		_, err := s.Receipts(t.Context(), "ann", id, seq, "", 5)
		requireCode(t, chat.NotFound, err, seq)
	}
}

// What was there before a member joined is no longer unread, and yet not read.
func TestReceiptsLeaveOutWhoJoinedLater(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.store(nil)
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
	sent, err := s.Append(t.Context(), chatIn(text("ann", "1", "hi"), id), "")
	require.NoError(t, err)
	_, err = s.AddMembers(t.Context(), store.Request{UserID: "ann", ClientMsgID: "add"}, id, []string{"cy"})
	require.NoError(t, err)
	_, err = s.Ack(t.Context(), "bob", id, store.Watermarks{ReadSeq: sent.Seq})
	require.NoError(t, err)
	page, err := s.Receipts(t.Context(), "ann", id, sent.Seq, "", 10)
	require.NoError(t, err)
	require.Equal(t, []string{"bob"}, page.Delivered)
	require.Equal(t, []string{"bob"}, page.Read)
}

func TestG7_Acks(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.store(nil)
	id := sendN(t, s, 10)
	for i, step := range []struct{ want, in store.Watermarks }{
		{store.Watermarks{}, store.Watermarks{}},
		{store.Watermarks{DeliveredSeq: 4}, store.Watermarks{DeliveredSeq: 4}},
		{store.Watermarks{ReadSeq: 2}, store.Watermarks{DeliveredSeq: 4, ReadSeq: 2}},
		{store.Watermarks{DeliveredSeq: 3, ReadSeq: 1}, store.Watermarks{DeliveredSeq: 4, ReadSeq: 2}},
		{store.Watermarks{DeliveredSeq: 3, ReadSeq: 3}, store.Watermarks{DeliveredSeq: 4, ReadSeq: 3}},
		{store.Watermarks{DeliveredSeq: 6, ReadSeq: 1}, store.Watermarks{DeliveredSeq: 6, ReadSeq: 3}},
		{store.Watermarks{ReadSeq: 8}, store.Watermarks{DeliveredSeq: 8, ReadSeq: 8}},
		{store.Watermarks{ReadSeq: 8}, store.Watermarks{DeliveredSeq: 8, ReadSeq: 8}},
		{store.Watermarks{DeliveredSeq: chat.MaxSeq}, store.Watermarks{DeliveredSeq: 10, ReadSeq: 8}},
		{store.Watermarks{ReadSeq: chat.MaxSeq}, store.Watermarks{DeliveredSeq: 10, ReadSeq: 10}},
	} {
		before := c.inbox("bob", id)
		got, err := s.Ack(t.Context(), "bob", id, step.want)
		require.NoError(t, err)
		require.Equal(t, step.in, got.Watermarks, "step %d", i)
		require.Equal(t, store.Watermarks{DeliveredSeq: before.DeliveredSeq, ReadSeq: before.ReadSeq}, got.Before, "step %d", i)
		require.Equal(t, got.Before != step.in, got.Rose())
		after := c.inbox("bob", id)
		require.Equal(t, step.in, store.Watermarks{DeliveredSeq: after.DeliveredSeq, ReadSeq: after.ReadSeq}, "step %d", i)
	}
	require.Equal(t, int64(0), mustLine(t, s, "bob", id).Unread)
	require.Equal(t, int64(9), mustLine(t, s, "alice", id).Unread, "alice has read the one that made the conversation")
}

func mustLine(t testing.TB, s *store.Store, user, id string) store.Line {
	t.Helper()
	line, err := s.Line(t.Context(), user, id)
	require.NoError(t, err)
	return line
}

func TestWhoMayNotAck(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.store(nil)
	id := sendN(t, s, 3)
	other := send(t, s, "carol", "dave", "1").ConversationID
	lines := c.count(c.tables.Inboxes)
	for name, who := range map[string][2]string{
		"a stranger":            {"mallory", id},
		"another conversation":  {"bob", other},
		"an unknown one":        {"bob", "group:none"},
		"the user's sync head":  {"bob", "#"},
		"one's notes, not made": {"bob", chat.SingleID("bob", "bob")},
	} {
		_, err := s.Ack(t.Context(), who[0], who[1], store.Watermarks{ReadSeq: 1})
		requireCode(t, chat.NotFound, err, name)
	}
	require.Equal(t, lines, c.count(c.tables.Inboxes), "and no line is made")
}

func TestG7_AFormerMemberAcksUpToTheRemoval(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.store(nil)
	ctx := t.Context()
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
	sendIn(t, s, "ann", id, "2")
	must(t)(s.RemoveMembers(ctx, by("ann", "3"), id, []string{"bob"}))
	sendIn(t, s, "ann", id, "4")
	sendIn(t, s, "ann", id, "5")
	for _, step := range []struct{ want, in store.Watermarks }{
		{store.Watermarks{DeliveredSeq: 2}, store.Watermarks{DeliveredSeq: 2}},
		{store.Watermarks{DeliveredSeq: 5, ReadSeq: 1}, store.Watermarks{DeliveredSeq: 3, ReadSeq: 1}},
		{store.Watermarks{ReadSeq: 5}, store.Watermarks{DeliveredSeq: 3, ReadSeq: 3}},
		{store.Watermarks{DeliveredSeq: 5, ReadSeq: 5}, store.Watermarks{DeliveredSeq: 3, ReadSeq: 3}},
	} {
		got, err := s.Ack(ctx, "bob", id, step.want)
		require.NoError(t, err)
		require.Equal(t, step.in, got.Watermarks)
	}
	must(t)(s.AddMembers(ctx, by("ann", "6"), id, []string{"bob"}))
	got, err := s.Ack(ctx, "bob", id, store.Watermarks{ReadSeq: 6})
	require.NoError(t, err)
	require.Equal(t, store.Watermarks{DeliveredSeq: 6, ReadSeq: 6}, got.Watermarks, "back again")
}

// A removal and a re-adding at the same moment as acks: the watermarks survive
// both, and never pass the removal.
func TestG7_AcksRaceARemoval(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.store(nil)
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
	require.NoError(t, parallel(5, func(i int) error {
		own := c.store(nil)
		for n := range 10 {
			var err error
			key := by("ann", fmt.Sprintf("%d-%d", i, n))
			switch {
			case i == 0 && n%2 == 0:
				_, err = own.RemoveMembers(t.Context(), key, id, []string{"bob"})
			case i == 0:
				_, err = own.AddMembers(t.Context(), key, id, []string{"bob"})
			case i == 1:
				_, err = own.Append(t.Context(), chatIn(text("ann", key.ClientMsgID, "hi"), id), "")
			default:
				_, err = own.Ack(t.Context(), "bob", id, store.Watermarks{DeliveredSeq: 1000, ReadSeq: int64(n)})
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
	removed := must(t)(s.RemoveMembers(t.Context(), by("ann", "last"), id, []string{"bob"}))
	sendIn(t, s, "ann", id, "after")
	got, err := s.Ack(t.Context(), "bob", id, store.Watermarks{ReadSeq: 1000})
	require.NoError(t, err)
	require.Equal(t, store.Watermarks{DeliveredSeq: removed.Seq, ReadSeq: removed.Seq}, got.Watermarks)
	requireWhole(t, c, s, id)
}

func TestG7_AckCosts(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := sendN(t, c.store(nil), 5)
	w := &wire{}
	s := c.store(w)
	_, n := w.since(0)
	for i, step := range []struct {
		want  store.Watermarks
		calls []string
	}{
		{store.Watermarks{DeliveredSeq: 1}, []string{"GetItem", "UpdateItem"}}, // the head is not known yet
		{store.Watermarks{DeliveredSeq: 2}, []string{"UpdateItem"}},
		{store.Watermarks{DeliveredSeq: 3, ReadSeq: 3}, []string{"UpdateItem"}},
		{store.Watermarks{ReadSeq: 4}, []string{"UpdateItem"}},
		{store.Watermarks{DeliveredSeq: 4}, []string{"UpdateItem"}},                        // there already
		{store.Watermarks{DeliveredSeq: 5}, []string{"UpdateItem"}},                        //
		{store.Watermarks{DeliveredSeq: 3, ReadSeq: 5}, []string{"UpdateItem"}},            // read counts as delivered
		{store.Watermarks{DeliveredSeq: 9, ReadSeq: 9}, []string{"GetItem", "UpdateItem"}}, // beyond what is known
	} {
		_, err := s.Ack(t.Context(), "bob", id, step.want)
		require.NoError(t, err)
		var calls []string
		calls, n = w.since(n)
		require.Equal(t, step.calls, calls, "step %d", i)
	}
}

// An ack that meets the transaction of a roster change on the same line waits
// for it.
func TestG7_AnAckThatMeetsATransactionIsTriedAgain(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := sendN(t, c.store(nil), 3)
	w := &wire{rule: func(op string, n int) fault {
		if op == "UpdateItem" && n <= 2 {
			return conflicting
		}
		return none
	}}
	got, err := c.store(w).Ack(t.Context(), "bob", id, store.Watermarks{ReadSeq: 2})
	require.NoError(t, err)
	require.Equal(t, int64(2), got.ReadSeq)
	calls, _ := w.since(0)
	require.Equal(t, []string{"GetItem", "UpdateItem", "UpdateItem", "UpdateItem"}, calls)
}
