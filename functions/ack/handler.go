package main

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/push"
	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/wire"
)

// positions is what the routes change, and what they need to tell of it. Errors
// for the client are *chat.Errors.
type positions interface {
	Ack(ctx context.Context, userID string, conversationID chat.ConversationID, want store.Watermarks) (store.Acked, error)
	Clear(ctx context.Context, userID string, conversationID chat.ConversationID, throughSeq int64) (clearedSeq int64, rose bool, err error)
	Raise(ctx context.Context, userID string, conversationIDs []chat.ConversationID) (cursor int64, err error)
	Roster(ctx context.Context, conversationID chat.ConversationID) ([]chat.Member, error)
	Connections(ctx context.Context, userIDs []string) (map[string][]store.Connection, error)
}

// lookUpTimeout is for how long an answer waits for the connections of those who are to
// be told.
const lookUpTimeout = 500 * time.Millisecond

type pusher interface {
	// Deliver returns the outcomes in the order of the deliveries.
	Deliver(ctx context.Context, deliveries []push.Delivery) []push.Outcome
}

type handler struct {
	positions positions
	pusher    pusher
	log       *slog.Logger
}

func (h handler) actions() map[string]route.Action {
	return map[string]route.Action{
		wire.ActionAck:   route.To(h.ack),
		wire.ActionTell:  route.To(h.ack), // its route gives no answer back
		wire.ActionClear: route.To(h.clear),
	}
}

// ack raises the user's watermarks. What the user read is noted for the user's
// other devices, which have to show the same; the rest is told by a push alone.
//
// It is noted too when the request repeats what is in force: it may be the retry
// of one that failed between the two writes.
func (h handler) ack(ctx context.Context, c route.Caller, r wire.Ack) (wire.Acked, error) {
	metric.Note(ctx, metric.Conversation(r.ConversationID))
	want := store.Watermarks{DeliveredSeq: orNone(r.DeliveredSeq), ReadSeq: orNone(r.ReadSeq)}
	acked, err := h.positions.Ack(ctx, c.UserID, r.ConversationID, want)
	if err != nil {
		return wire.Acked{}, err
	}
	metric.Note(ctx, metric.Seq(max(acked.DeliveredSeq, acked.ReadSeq)))
	if r.ReadSeq != nil && want.ReadSeq >= acked.ReadSeq {
		if _, err := h.positions.Raise(ctx, c.UserID, []chat.ConversationID{r.ConversationID}); err != nil {
			return wire.Acked{}, err
		}
	}
	if acked.Rose() {
		h.tell(ctx, c, acked)
	}
	return wire.Acked{DeliveredSeq: acked.DeliveredSeq, ReadSeq: acked.ReadSeq}, nil
}

// orNone returns a seq; one that is absent is 0.
func orNone(seq *int64) int64 {
	if seq == nil {
		return 0
	}
	return *seq
}

// tell pushes a receipt to the conversation's other members, if they are few,
// and to the user's other devices. It says both watermarks, risen or not: one that
// got lost, or was not for the others yet, is made good by the next one.
func (h handler) tell(ctx context.Context, c route.Caller, acked store.Acked) {
	log := h.log.With("requestId", c.RequestID, "conversationId", acked.Head.ConversationID)
	users, err := h.audience(ctx, c.UserID, acked)
	if err != nil {
		log.WarnContext(ctx, "looking up who hears of a receipt", "err", err)
		return
	}
	h.post(ctx, log, c, users, wire.Receipt{
		Type: wire.TypeReceipt, ConversationID: acked.Head.ConversationID, UserID: c.UserID,
		DeliveredSeq: acked.DeliveredSeq, ReadSeq: acked.ReadSeq,
	})
}

// audience is who hears of the user's receipts in a conversation: not a stranger
// whom the user has not answered, and in a group those who wrote what was acked: what a
// receipt tells the others of, they do not show. The roster is read, not remembered:
// the head may be an old one, at which someone was a member who must not hear of
// anything now.
//
// An old head may also lack the answer. It reaches the seqs that were acked, so what
// is acked after the answer is told.
func (h handler) audience(ctx context.Context, userID string, acked store.Acked) ([]string, error) {
	alone, head := []string{userID}, acked.Head
	if head.Kind == chat.KindSystem || head.MemberCount > chat.InboxGroupMax {
		return alone, nil // its readers do not know each other, or are too many
	}
	if head.Kind == chat.KindSingle && !head.Answered() {
		return alone, nil
	}
	members, err := h.positions.Roster(ctx, head.ConversationID)
	if err != nil {
		return nil, err
	}
	is := func(m chat.Member) bool { return m.UserID == userID }
	if len(members) > chat.InboxGroupMax || !slices.ContainsFunc(members, is) {
		return alone, nil // too many by now, or the user is a former member
	}
	users := alone
	after, through := acked.Raised()
	for _, m := range members {
		if !is(m) && (head.Kind == chat.KindSingle || head.Runs.Concern(m.UserID, after, through)) {
			users = append(users, m.UserID)
		}
	}
	return users, nil
}

// clear hides a conversation up to a seq on all of the user's devices. Like what
// was read, it is noted again for a request that repeats what is in force.
func (h handler) clear(ctx context.Context, c route.Caller, r wire.Clear) (wire.Cleared, error) {
	through := *r.ThroughSeq
	metric.Note(ctx, metric.Conversation(r.ConversationID), metric.Seq(through))
	clearedSeq, _, err := h.positions.Clear(ctx, c.UserID, r.ConversationID, through)
	if err != nil {
		return wire.Cleared{}, err
	}
	if through >= clearedSeq {
		cursor, err := h.positions.Raise(ctx, c.UserID, []chat.ConversationID{r.ConversationID})
		if err != nil {
			return wire.Cleared{}, err
		}
		log := h.log.With("requestId", c.RequestID, "conversationId", r.ConversationID)
		h.post(ctx, log, c, []string{c.UserID}, wire.ChangedHint{Type: wire.TypeChanged, SyncCursor: cursor})
	}
	return wire.Cleared{ClearedSeq: clearedSeq}, nil
}

// post pushes a frame to all devices of the users but the caller's.
func (h handler) post(ctx context.Context, log *slog.Logger, c route.Caller, userIDs []string, frame any) {
	encoded, err := wire.Encode(frame)
	if err != nil {
		log.ErrorContext(ctx, "encoding a push", "err", err)
		return
	}
	soon, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	found, err := h.positions.Connections(soon, userIDs)
	if err != nil { // those who could be read are told
		log.WarnContext(ctx, "looking up connections", "err", err)
	}
	frames := slices.Values([][]byte{encoded})
	var deliveries []push.Delivery
	for _, conns := range found {
		for _, conn := range conns {
			if conn.ID != c.ConnectionID {
				deliveries = append(deliveries, push.Delivery{ConnectionID: conn.ID, ExpiresAt: conn.ExpiresAt, Frames: frames})
			}
		}
	}
	for _, o := range h.pusher.Deliver(ctx, deliveries) {
		if o.Err != nil && !o.Gone() && !o.Expired() { // $disconnect, or the fan-out, forgets those; it counts what is gone
			metric.Note(ctx, metric.Count(metric.PushFailures, 1))
			log.WarnContext(ctx, "pushing", "err", o.Err)
		}
	}
}
