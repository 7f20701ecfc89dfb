package main

import (
	"context"
	"log/slog"
	"slices"

	"inorder/shared/chat"
	"inorder/shared/push"
	"inorder/shared/route"
	"inorder/shared/store"
	"inorder/shared/wire"
)

type positions interface {
	Ack(ctx context.Context, userID, conversationID string, want store.Watermarks) (store.Acked, error)
	Clear(ctx context.Context, userID, conversationID string, throughSeq int64) (clearedSeq int64, rose bool, err error)
	Raise(ctx context.Context, userID string, conversationIDs []string) (cursor int64, err error)
	Connections(ctx context.Context, userIDs []string) (map[string][]store.Connection, error)
}

type rosters interface {
	At(ctx context.Context, conversationID string, version int64) ([]chat.Member, error)
}

type pusher interface {
	Deliver(ctx context.Context, deliveries []push.Delivery) []push.Outcome
}

type handler struct {
	positions positions
	rosters   rosters
	pusher    pusher
	log       *slog.Logger
}

func (h handler) actions() map[string]route.Action {
	return map[string]route.Action{
		wire.ActionAck:   route.To(h.ack),
		wire.ActionClear: route.To(h.clear),
	}
}

// ack raises the user's watermarks. What the user read is noted for the user's
// other devices, which have to show the same; the rest is told by a push alone.
func (h handler) ack(ctx context.Context, c route.Caller, r wire.Ack) (wire.Acked, error) {
	want, err := watermarks(r)
	if err != nil {
		return wire.Acked{}, err
	}
	acked, err := h.positions.Ack(ctx, c.UserID, r.ConversationID, want)
	if err != nil {
		return wire.Acked{}, err
	}
	if acked.ReadSeq > acked.Before.ReadSeq {
		if _, err := h.positions.Raise(ctx, c.UserID, []string{r.ConversationID}); err != nil {
			return wire.Acked{}, err
		}
	}
	if acked.Rose() {
		h.tell(ctx, c, acked)
	}
	return wire.Acked{DeliveredSeq: acked.DeliveredSeq, ReadSeq: acked.ReadSeq}, nil
}

func watermarks(r wire.Ack) (store.Watermarks, error) {
	if err := chat.ValidateConversationID("conversationId", r.ConversationID); err != nil {
		return store.Watermarks{}, err
	}
	if r.DeliveredSeq == nil && r.ReadSeq == nil {
		return store.Watermarks{}, chat.FieldErrorf(chat.BadRequest, "readSeq", "say how far in deliveredSeq, readSeq or both")
	}
	var want store.Watermarks
	for _, part := range []struct {
		field string
		seq   *int64
		into  *int64
	}{
		{"deliveredSeq", r.DeliveredSeq, &want.DeliveredSeq},
		{"readSeq", r.ReadSeq, &want.ReadSeq},
	} {
		if part.seq == nil {
			continue
		}
		if *part.seq < 1 || *part.seq > chat.MaxSeq {
			return store.Watermarks{}, chat.FieldErrorf(chat.BadRequest, part.field, "%s is from 1 to %d", part.field, int64(chat.MaxSeq))
		}
		*part.into = *part.seq
	}
	return want, nil
}

// tell pushes a receipt to the conversation's other members, if they are few,
// and to the user's other devices. A receipt that gets lost is in no one's way:
// the next one, or the action receipts, says the same.
func (h handler) tell(ctx context.Context, c route.Caller, acked store.Acked) {
	log := h.log.With("requestId", c.RequestID, "conversationId", acked.Head.ConversationID)
	users, err := h.audience(ctx, c.UserID, acked.Head)
	if err != nil {
		log.WarnContext(ctx, "looking up who hears of a receipt", "err", err)
		return
	}
	receipt := wire.Receipt{Type: wire.TypeReceipt, ConversationID: acked.Head.ConversationID, UserID: c.UserID}
	if acked.DeliveredSeq > acked.Before.DeliveredSeq {
		receipt.DeliveredSeq = acked.DeliveredSeq
	}
	if acked.ReadSeq > acked.Before.ReadSeq {
		receipt.ReadSeq = acked.ReadSeq
	}
	h.post(ctx, log, c, users, receipt)
}

// audience is who hears of the user's receipts in a conversation.
func (h handler) audience(ctx context.Context, userID string, head chat.Conversation) ([]string, error) {
	alone := []string{userID}
	if head.Kind == chat.System || head.MemberCount > chat.InboxGroupMax {
		return alone, nil // its readers do not know each other, or are too many
	}
	members, err := h.rosters.At(ctx, head.ConversationID, head.MembersVersion)
	if err != nil {
		return nil, err
	}
	users := make([]string, len(members))
	for i, m := range members {
		users[i] = m.UserID
	}
	if !slices.Contains(users, userID) {
		return alone, nil // a former member
	}
	return users, nil
}

// clear hides a conversation up to a seq on all of the user's devices.
func (h handler) clear(ctx context.Context, c route.Caller, r wire.Clear) (wire.Cleared, error) {
	if err := chat.ValidateConversationID("conversationId", r.ConversationID); err != nil {
		return wire.Cleared{}, err
	}
	if r.ThroughSeq == nil || *r.ThroughSeq < 1 || *r.ThroughSeq > chat.MaxSeq {
		return wire.Cleared{}, chat.FieldErrorf(chat.BadRequest, "throughSeq", "throughSeq is from 1 to %d", int64(chat.MaxSeq))
	}
	clearedSeq, rose, err := h.positions.Clear(ctx, c.UserID, r.ConversationID, *r.ThroughSeq)
	if err != nil {
		return wire.Cleared{}, err
	}
	if rose {
		cursor, err := h.positions.Raise(ctx, c.UserID, []string{r.ConversationID})
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
	found, err := h.positions.Connections(ctx, userIDs)
	if err != nil {
		log.WarnContext(ctx, "looking up connections", "err", err)
		return
	}
	var deliveries []push.Delivery
	for _, conns := range found {
		for _, conn := range conns {
			if conn.ID != c.ConnectionID {
				deliveries = append(deliveries, push.Delivery{ConnectionID: conn.ID, Frames: [][]byte{encoded}})
			}
		}
	}
	for _, o := range h.pusher.Deliver(ctx, deliveries) {
		if o.Err != nil && !o.Gone() { // the fan-out forgets what is gone
			log.WarnContext(ctx, "pushing", "err", o.Err)
		}
	}
}
