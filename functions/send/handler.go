package main

import (
	"context"
	"time"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/wire"
)

type ledger interface {
	// Append commits a message, to the single conversation with the user to if
	// that is given. Its *chat.Errors are for the client.
	Append(ctx context.Context, m chat.Message, to string) (store.Committed, error)
}

type handler struct {
	ledger ledger
}

func (h handler) actions() map[string]route.Action {
	return map[string]route.Action{wire.ActionSend: route.To(h.send)}
}

// send answers once the message is committed.
func (h handler) send(ctx context.Context, c route.Caller, r wire.Send) (wire.Sent, error) {
	start := time.Now()
	sent, err := h.append(ctx, c, r)
	metric.Note(ctx, metric.Send(time.Since(start), err)...)
	return sent, err
}

func (h handler) append(ctx context.Context, c route.Caller, r wire.Send) (wire.Sent, error) {
	id := r.ConversationID
	if r.To != "" {
		id = chat.SingleID(c.UserID, r.To)
	}
	metric.Note(ctx, metric.Conversation(id))
	committed, err := h.ledger.Append(ctx, chat.Message{
		ConversationID: r.ConversationID,
		ClientMsgID:    r.ClientMsgID,
		SenderID:       c.UserID,
		SenderDeviceID: c.DeviceID,
		Via:            c.ConnectionID,
		MessageType:    r.MessageType,
		Text:           r.Text,
		Data:           r.Data,
		ReplyTo:        r.ReplyTo,
		ClientTime:     r.ClientTime,
	}, r.To)
	metric.Note(ctx, metric.Entry(committed.Sent, committed.Effort)...)
	if err != nil {
		return wire.Sent{}, err
	}
	return committed.Sent, nil
}
