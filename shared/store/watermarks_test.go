package store_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/internal/storetest"
)

// Sixteen devices of one user ack in random order, beyond the end too, while
// someone watches.
func TestG7_WatermarksOnlyGoUp(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	const devices, last = 16, 30
	id := sendN(t, c.Store(nil), last)
	watch := c.Store(nil)
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
		s := c.Store(nil)
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
	_, err = c.Store(nil).Ack(t.Context(), "bob", id, store.Watermarks{DeliveredSeq: 1000, ReadSeq: 999})
	require.NoError(t, err)
	require.Equal(t, storetest.Inbox{JoinSeq: 1, ReadSeq: last, DeliveredSeq: last}, c.Inbox("bob", id), "never above the last seq")
}

// Members ack while messages come in; nobody gets ahead of the ledger, and the
// receipts say what was acked.
func TestG7_MembersAckWhileMessagesComeIn(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	members := users(16)
	s := c.Store(nil)
	id := newGroup(t, s, chat.VisibleAll, "ann", members...)
	reached := make([]int64, len(members)) // as answered last; less than asked while there was no more
	require.NoError(t, parallel(len(members)+1, func(i int) error {
		own := c.Store(nil)
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
	require.Equal(t, int64(13), c.Head(id).LastSeq)
	for i, user := range members {
		got, err := c.Store(nil).Ack(t.Context(), user, id, store.Watermarks{DeliveredSeq: 13, ReadSeq: int64(i)})
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
		requireCode(t, chat.CodeNotFound, err, seq)
	}
}

// What was there before a member joined is no longer unread, and yet not read.
func TestReceiptsLeaveOutWhoJoinedLater(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
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
	s := c.Store(nil)
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
		before := c.Inbox("bob", id)
		got, err := s.Ack(t.Context(), "bob", id, step.want)
		require.NoError(t, err)
		require.Equal(t, step.in, got.Watermarks, "step %d", i)
		require.Equal(t, store.Watermarks{DeliveredSeq: before.DeliveredSeq, ReadSeq: before.ReadSeq}, got.Before, "step %d", i)
		require.Equal(t, got.Before != step.in, got.Rose())
		after := c.Inbox("bob", id)
		require.Equal(t, step.in, store.Watermarks{DeliveredSeq: after.DeliveredSeq, ReadSeq: after.ReadSeq}, "step %d", i)
	}
	require.Equal(t, int64(0), mustLine(t, s, "bob", id).Unread())
	require.Equal(t, int64(0), mustLine(t, s, "alice", id).Unread(), "one's own is never unread")
}

func mustLine(t testing.TB, s *store.Store, user string, id chat.ConversationID) store.Line {
	t.Helper()
	line, err := s.Line(t.Context(), user, id)
	require.NoError(t, err)
	return line
}

func TestWhoMayNotAck(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := sendN(t, s, 3)
	other := send(t, s, "carol", "dave", "1").ConversationID
	lines := c.Count(c.Tables.Inboxes)
	for name, who := range map[string]struct {
		user string
		id   chat.ConversationID
	}{
		"a stranger":            {"mallory", id},
		"another conversation":  {"bob", other},
		"an unknown one":        {"bob", "group:none"},
		"the user's sync head":  {"bob", "#"},
		"one's notes, not made": {"bob", chat.SingleID("bob", "bob")},
	} {
		_, err := s.Ack(t.Context(), who.user, who.id, store.Watermarks{ReadSeq: 1})
		requireCode(t, chat.CodeNotFound, err, name)
	}
	require.Equal(t, lines, c.Count(c.Tables.Inboxes), "and no line is made")
}

func TestG7_AFormerMemberAcksUpToTheRemoval(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
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
	s := c.Store(nil)
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
	require.NoError(t, parallel(5, func(i int) error {
		own := c.Store(nil)
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
	id := sendN(t, c.Store(nil), 5)
	w := &wire{}
	s := c.Store(w)
	_, n := w.Since(0)
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
		calls, n = w.Since(n)
		require.Equal(t, step.calls, calls, "step %d", i)
	}
}

// An ack that meets the transaction of a roster change on the same line waits
// for it.
func TestG7_AnAckThatMeetsATransactionIsTriedAgain(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := sendN(t, c.Store(nil), 3)
	w := &wire{Rule: func(op string, n int) fault {
		if op == "UpdateItem" && n <= 2 {
			return conflicting
		}
		return none
	}}
	got, err := c.Store(w).Ack(t.Context(), "bob", id, store.Watermarks{ReadSeq: 2})
	require.NoError(t, err)
	require.Equal(t, int64(2), got.ReadSeq)
	calls, _ := w.Since(0)
	require.Equal(t, []string{"GetItem", "UpdateItem", "UpdateItem", "UpdateItem"}, calls)
}

// A send reads up to itself where all before was read, at no write of its own; what
// one does to messages is never unread to oneself, on no device.
func TestOwnEntriesAreNotUnread(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s, other := c.Store(nil), c.Store(nil)
	unread := func(id chat.ConversationID, alice, bob int64) {
		t.Helper()
		require.Equal(t, [2]int64{alice, bob}, [2]int64{mustLine(t, s, "alice", id).Unread(), mustLine(t, other, "bob", id).Unread()})
	}
	id := sendN(t, s, 3)
	unread(id, 0, 3)
	_, err := s.Ack(t.Context(), "bob", id, store.Watermarks{ReadSeq: 3})
	require.NoError(t, err)
	answer := send(t, other, "bob", "alice", "4")
	unread(id, 1, 0)
	must(t)(other.Edit(t.Context(), by("bob", "5"), store.Target{ConversationID: id, Seq: 4, MessageID: answer.MessageID}, store.Edited{Version: 1, Text: "new"}, store.NoWindow))
	must(t)(s.Recall(t.Context(), by("alice", "6"), store.Target{ConversationID: id, Seq: 1, MessageID: ledger(t, s, "alice", id)[0].MessageID}, store.NoWindow))
	unread(id, 2, 1)
	_, _, err = s.Clear(t.Context(), "alice", id, 4)
	require.NoError(t, err)
	unread(id, 1, 1)

	for n := range 20 {
		send(t, s, "alice", "alice", fmt.Sprint("note", n))
	}
	require.Zero(t, mustLine(t, other, "alice", chat.SingleID("alice", "alice")).Unread())

	group := newGroup(t, s, chat.VisibleAll, "alice", "bob")
	must(t)(s.AddMembers(t.Context(), by("alice", "add"), group, []string{"cy"}))
	must(t)(s.SetTitle(t.Context(), by("alice", "title"), group, "another"))
	unread(group, 0, 3)
	must(t)(s.RemoveMembers(t.Context(), by("alice", "remove"), group, []string{"bob"}))
	sendIn(t, s, "alice", group, "after")
	unread(group, 0, 4)
}

// A head from before runs were kept tells of no writer, and begins to with the next
// entry. What a version wrote that keeps none is nobody's.
func TestUnreadOfAHeadFromBefore(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := sendN(t, c.Store(nil), 3)
	c.Set(c.Tables.Conversations, values{"conversationId": id}, values{"runs": nil})
	require.Equal(t, int64(2), mustLine(t, c.Store(nil), "alice", id).Unread(), "but for what began the conversation")
	send(t, c.Store(nil), "alice", "bob", "new")
	require.Equal(t, int64(2), mustLine(t, c.Store(nil), "alice", id).Unread())
	require.True(t, c.Head(id).Answered(), "as it was before")
}

// By a single message, nobody learns when someone is online.
func TestReceiptsOfStrangers(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	ask := func(user string, id chat.ConversationID, seq int64) store.ReceiptPage {
		t.Helper()
		page, err := s.Receipts(t.Context(), user, id, seq, "", 10)
		require.NoError(t, err)
		return page
	}
	ack := func(user string, id chat.ConversationID, seq int64) chat.Conversation {
		t.Helper()
		acked, err := c.Store(nil).Ack(t.Context(), user, id, store.Watermarks{ReadSeq: seq})
		require.NoError(t, err)
		require.Equal(t, store.Watermarks{DeliveredSeq: seq, ReadSeq: seq}, acked.Watermarks)
		return acked.Head
	}
	for n := range 2 * chat.MaxRuns {
		send(t, s, "mallory", "bob", fmt.Sprint(n))
	}
	id := chat.SingleID("mallory", "bob")
	require.False(t, ack("bob", id, 2).Answered())
	require.Equal(t, store.ReceiptPage{Delivered: []string{"mallory"}, Read: []string{"mallory"}}, ask("mallory", id, 1))
	require.Equal(t, store.ReceiptPage{Delivered: []string{}, Read: []string{}}, ask("mallory", id, 2))
	require.Equal(t, store.ReceiptPage{Delivered: []string{"bob"}, Read: []string{"bob"}}, ask("bob", id, 2), "one's own are no secret")
	send(t, s, "bob", "mallory", "an answer")
	require.Equal(t, store.ReceiptPage{Delivered: []string{"bob"}, Read: []string{"bob"}}, ask("mallory", id, 2))
	require.True(t, ack("bob", id, 2*chat.MaxRuns+1).Answered())

	opened := must(t)(s.OpenSingle(t.Context(), "ann", "cy"))
	require.True(t, ack("cy", opened.ConversationID, 1).Answered(), "introduced by the product")
	require.Equal(t, []string{"cy"}, ask("ann", opened.ConversationID, 1).Read)
}

// An environment that remembers the head from before the answer learns of it with
// the next ack, without a read of its own for that.
func TestAnAckOfTheAnswerKnowsOfIt(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := sendN(t, c.Store(nil), 2)
	s := c.Store(nil)
	acked, err := s.Ack(t.Context(), "bob", id, store.Watermarks{DeliveredSeq: 1})
	require.NoError(t, err)
	require.False(t, acked.Head.Answered())
	send(t, c.Store(nil), "bob", "alice", "3")
	acked, err = s.Ack(t.Context(), "bob", id, store.Watermarks{ReadSeq: 2})
	require.NoError(t, err)
	require.False(t, acked.Head.Answered(), "remembered")
	acked, err = s.Ack(t.Context(), "bob", id, store.Watermarks{DeliveredSeq: 3})
	require.NoError(t, err)
	require.True(t, acked.Head.Answered())
	require.Equal(t, store.Watermarks{DeliveredSeq: 3, ReadSeq: 2}, acked.Watermarks, "and all that was acked is told")
}

// Above 1 KB, every write to a conversation would cost one unit more, and twice
// that as it is in a transaction.
func TestAHeadStaysUnder1KB(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	people := make([]string, chat.MaxRuns+1)
	for i := range people {
		people[i] = fmt.Sprintf("%0128d", i)
	}
	title := strings.Repeat("𝄞", chat.MaxTitleRunes)
	line, _, err := s.CreateGroup(t.Context(), by(people[0], "create"), title, people[1:], chat.VisibleSinceJoin)
	require.NoError(t, err)
	id := line.Head.ConversationID
	c.Set(c.Tables.Conversations, values{"conversationId": id}, values{"lastSeq": 1_000_000_000})
	for i, user := range people {
		sendIn(t, c.Store(nil), user, id, fmt.Sprint(i))
	}
	head := c.Raw(c.Tables.Conversations, values{"conversationId": id})
	size := 0
	for name, value := range head {
		size += len(name)
		switch v := value.(type) {
		case *types.AttributeValueMemberS:
			size += len(v.Value)
		case *types.AttributeValueMemberN:
			size += len(v.Value)/2 + 2 // two digits a byte, and two for the rest
		default:
			require.Failf(t, "an attribute of another type", "%s: %T", name, value)
		}
	}
	t.Logf("%d bytes, of these %d of runs", size, len(c.Head(id).Runs))
	require.Less(t, size, 1024)
}
