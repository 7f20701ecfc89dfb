package integration_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

func ackRead(tb testing.TB, d *device, conversationID chat.ConversationID, seq int64) wire.Acked {
	tb.Helper()
	return must[wire.Acked](tb, d, wire.ActionAck, wire.Ack{ConversationID: conversationID, ReadSeq: &seq})
}

func ackDelivered(tb testing.TB, d *device, conversationID chat.ConversationID, seq int64) wire.Acked {
	tb.Helper()
	return must[wire.Acked](tb, d, wire.ActionAck, wire.Ack{ConversationID: conversationID, DeliveredSeq: &seq})
}

// Sixteen members ack everything in an order of their own, beyond the end too,
// while messages come in. No answer and no receipt goes back or above the ledger.
func TestG7_SixteenMembersAckInRandomOrder(t *testing.T) {
	t.Parallel()
	const members, messages, acks = 16, 30, 40
	all := listenAll(t, shared, users("member", members)...)
	others := make([]string, 0, members-1)
	for _, l := range all[1:] {
		others = append(others, l.user)
	}
	writer := mustConnect(t, shared, all[0].user, "writer")
	id := createGroup(t, writer, "", others...)
	for n := range messages / 2 {
		say(t, writer, id, text(0, n))
	}

	require.NoError(t, concurrently(t.Context(), members+1, func(ctx context.Context, i int) error {
		if i == members { // the rest of the messages
			for n := range messages / 2 {
				if _, err := writer.send(ctx, wire.Send{ConversationID: id, Text: text(1, n)}); err != nil {
					return err
				}
			}
			return nil
		}
		return ackAtRandom(ctx, t, all[i].device, id, acks, 1+messages)
	}))
	last := int64(1 + messages)
	for _, l := range all {
		final := ackRead(t, l.device, id, chat.MaxSeq)
		require.Equal(t, wire.Acked{DeliveredSeq: last, ReadSeq: last}, final, "as far as the ledger, and no further")
		require.Equal(t, final, ackRead(t, l.device, id, 1), "and never back")
	}
	receipts := receiptsOf(t, writer, id, last)
	require.Len(t, receipts.Delivered, members)
	require.Len(t, receipts.Read, members)

	for _, other := range all[1:] { // of what the first one wrote, that one hears
		require.NoError(t, all[0].await(t.Context(), "the last receipts of "+other.user, func() bool {
			delivered, read := int64(0), int64(0)
			for _, p := range all[0].pushesLocked(wire.TypeReceipt) {
				if p.UserID == other.user {
					delivered, read = max(delivered, p.DeliveredSeq), max(read, p.ReadSeq)
				}
			}
			return delivered == last && read == last
		}))
		require.Empty(t, other.pushes(wire.TypeReceipt), "who wrote nothing hears nothing")
	}
	requireReceiptsRise(t, all[0], id, last)
}

// ackAtRandom acks n times, any seq up to last and some beyond, and checks that
// the answers rise to what was asked for.
func ackAtRandom(ctx context.Context, t *testing.T, d *device, id chat.ConversationID, n int, last int64) error {
	var before wire.Acked
	for range n {
		seq := 1 + rand.Int64N(last+5)
		request := wire.Ack{ConversationID: id}
		switch rand.IntN(3) {
		case 0:
			request.DeliveredSeq = &seq
		case 1:
			request.ReadSeq = &seq
		default:
			further := seq + rand.Int64N(3)
			request.DeliveredSeq, request.ReadSeq = &further, &seq
		}
		now, err := try[wire.Acked](ctx, d, wire.ActionAck, request)
		if err != nil {
			return err
		}
		for what, went := range map[string][2]int64{"delivered": {before.DeliveredSeq, now.DeliveredSeq}, "read": {before.ReadSeq, now.ReadSeq}} {
			if went[1] < went[0] || went[1] > last {
				t.Errorf("%s went from %d to %d, of %d", what, went[0], went[1], last)
			}
		}
		if now.ReadSeq > now.DeliveredSeq {
			t.Errorf("%+v: what is read is delivered", now)
		}
		before = now
	}
	return nil
}

// requireReceiptsRise checks what a device heard of others, each of whom acked
// from one socket, one ack after the other.
func requireReceiptsRise(t *testing.T, l *listener, id chat.ConversationID, last int64) {
	t.Helper()
	delivered, read := map[string]int64{}, map[string]int64{}
	for _, p := range l.pushes(wire.TypeReceipt) {
		require.Equal(t, id, p.ConversationID)
		require.NotEqual(t, l.user, p.UserID, "of its own acks a device knows")
		rose := false
		for seq, of := range map[*int64]map[string]int64{&p.DeliveredSeq: delivered, &p.ReadSeq: read} {
			if *seq != 0 {
				require.GreaterOrEqual(t, *seq, of[p.UserID], "a receipt tells what is in force")
				require.LessOrEqual(t, *seq, last)
				rose = rose || *seq > of[p.UserID]
				of[p.UserID] = *seq
			}
		}
		require.True(t, rose, "%+v", p)
	}
}

// Delivered is the first of a user's devices, read is the user's.
func TestReceiptsOfAUserWithTwoDevices(t *testing.T) {
	t.Parallel()
	alice, bob := newUser("alice"), newUser("bob")
	a := listen(t, shared, alice, "phone")
	phone, laptop := listen(t, shared, bob, "phone"), listen(t, shared, bob, "laptop")
	sent := mustSend(t, a.device, wire.Send{To: bob, Text: "1"})
	id := sent.ConversationID
	say(t, phone.device, id, "2")
	for n := 3; n <= 6; n++ {
		say(t, a.device, id, strconv.Itoa(n))
	}
	entryAt(t, laptop, id, 6)
	cursor := changesSince(t, laptop.device, 0).SyncCursor
	unread := func(l *listener) int64 {
		line, ok := lineOf(t, l.device, id)
		require.True(t, ok)
		return line.Unread
	}
	require.Equal(t, int64(5), unread(laptop))

	require.Equal(t, wire.Acked{DeliveredSeq: 4}, ackDelivered(t, phone.device, id, 4))
	require.Equal(t, wire.Acked{DeliveredSeq: 4}, ackDelivered(t, laptop.device, id, 3))
	require.Empty(t, changesSince(t, laptop.device, cursor).Conversations, "what is delivered changes nothing for the user")
	require.Equal(t, wire.Acked{DeliveredSeq: 4, ReadSeq: 3}, ackRead(t, phone.device, id, 3))
	for _, l := range []*listener{a, laptop} {
		require.NoError(t, l.awaitReceipt(t.Context(), id, bob, 4, 0))
		require.NoError(t, l.awaitReceipt(t.Context(), id, bob, 4, 3))
		require.Len(t, l.pushes(wire.TypeReceipt), 2)
	}
	require.Empty(t, phone.pushes(wire.TypeReceipt))
	changed := changesSince(t, laptop.device, cursor)
	require.Len(t, changed.Conversations, 1, "what is read does")
	require.Equal(t, int64(3), changed.Conversations[0].Unread)
	require.Equal(t, int64(3), unread(phone))

	require.Equal(t, wire.Acked{DeliveredSeq: 6, ReadSeq: 6}, ackRead(t, laptop.device, id, 6))
	require.NoError(t, phone.awaitReceipt(t.Context(), id, bob, 6, 6))
	require.Zero(t, unread(phone))
	for seq, want := range map[int64][]string{1: {alice, bob}, 6: {bob}} {
		require.ElementsMatch(t, want, receiptsOf(t, a.device, id, seq).Read, "seq %d; one has read what one began with", seq)
	}
	requireRefused(t, a.device, wire.ActionReceipts, wire.Receipts{ConversationID: id, Seq: 7}, chat.CodeNotFound, "seq")
}

// A message to someone does not tell when that one is online, until it is answered.
func TestReceiptsAreNotForStrangers(t *testing.T) {
	t.Parallel()
	mallory, bob := newUser("mallory"), newUser("bob")
	m := listen(t, shared, mallory, "phone")
	phone, laptop := listen(t, shared, bob, "phone"), listen(t, shared, bob, "laptop")
	sent := mustSend(t, m.device, wire.Send{To: bob, Text: "1"})
	id := sent.ConversationID
	require.Equal(t, wire.Acked{DeliveredSeq: 1, ReadSeq: 1}, ackRead(t, phone.device, id, 1))
	require.NoError(t, laptop.awaitReceipt(t.Context(), id, bob, 1, 1), "the user's own devices hear of it")
	own := wire.ReceiptsPage{Delivered: []string{mallory}, Read: []string{mallory}}
	require.Equal(t, own, receiptsOf(t, m.device, id, 1))

	say(t, m.device, id, "2")
	require.Equal(t, int64(2), ackDelivered(t, laptop.device, id, 2).DeliveredSeq)
	require.NoError(t, phone.awaitReceipt(t.Context(), id, bob, 2, 1))
	say(t, phone.device, id, "do I know you?")
	require.Equal(t, int64(3), ackDelivered(t, laptop.device, id, 3).DeliveredSeq)
	require.NoError(t, m.awaitReceipt(t.Context(), id, bob, 3, 1), "with what was kept back")
	require.Len(t, m.pushes(wire.TypeReceipt), 1)
	require.ElementsMatch(t, []string{mallory, bob}, receiptsOf(t, m.device, id, 1).Read)
}

// One who was removed can still say what was read, and no one hears of it; nor
// does such a one hear of others.
func TestReceiptsOfAFormerMember(t *testing.T) {
	t.Parallel()
	alice, bob, carol := newUser("alice"), newUser("bob"), newUser("carol")
	a, c := listen(t, shared, alice, "phone"), listen(t, shared, carol, "phone")
	phone, laptop := listen(t, shared, bob, "phone"), listen(t, shared, bob, "laptop")
	tablet := listen(t, shared, alice, "tablet")
	id := createGroup(t, a.device, "", bob, carol)
	say(t, phone.device, id, "hello")
	require.Equal(t, int64(2), ackRead(t, c.device, id, 2).ReadSeq)
	require.NoError(t, phone.awaitReceipt(t.Context(), id, carol, 2, 2))
	require.Equal(t, int64(3), removeMembers(t, a.device, id, bob).Seq)
	say(t, a.device, id, "without bob")

	// Alice acks what bob wrote before the removal: the function may remember that
	// time's roster.
	require.Equal(t, wire.Acked{DeliveredSeq: 2, ReadSeq: 2}, ackRead(t, a.device, id, 2))
	require.NoError(t, tablet.awaitReceipt(t.Context(), id, alice, 2, 2))

	require.Equal(t, wire.Acked{DeliveredSeq: 3, ReadSeq: 3}, ackRead(t, phone.device, id, 4), "up to the removal")
	require.NoError(t, laptop.awaitReceipt(t.Context(), id, bob, 3, 3))
	require.Equal(t, int64(4), ackRead(t, c.device, id, 4).ReadSeq)
	require.NoError(t, a.awaitReceipt(t.Context(), id, carol, 4, 4))
	for _, l := range []*listener{a, c} {
		for _, p := range l.pushes(wire.TypeReceipt) {
			require.NotEqual(t, bob, p.UserID)
		}
	}
	// What was posted to bob's devices before this came before it.
	addMembers(t, a.device, id, bob)
	for _, l := range []*listener{phone, laptop} {
		entryAt(t, l, id, 5)
		for _, p := range l.pushes(wire.TypeReceipt) {
			require.False(t, p.UserID != bob && (p.UserID != carol || p.ReadSeq != 2), "%+v", p)
		}
	}
	requireRefused(t, phone.device, wire.ActionReceipts, wire.Receipts{ConversationID: id, Seq: 4}, chat.CodeNotFound, "seq")
}
