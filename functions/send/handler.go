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
	Append(ctx context.Context, m chat.Message, to string) (store.Receipt, error)
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
	if err := validate(r); err != nil {
		return wire.Sent{}, err
	}
	id := r.ConversationID
	if r.To != "" {
		id = chat.SingleID(c.UserID, r.To)
	}
	metric.Note(ctx, metric.Conversation(id))
	receipt, err := h.ledger.Append(ctx, chat.Message{
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
	metric.Note(ctx, metric.Entry(receipt.Sent, receipt.Effort)...)
	return receipt.Sent, err
}

// validate refuses what is wrong with the request; the ledger refuses what is
// wrong with the message.
func validate(r wire.Send) error {
	switch {
	case r.ConversationID == "" && r.To == "":
		return chat.FieldErrorf(chat.CodeBadRequest, "conversationId", "name a conversationId, or in to a user")
	case r.ConversationID != "" && r.To != "":
		return chat.FieldErrorf(chat.CodeBadRequest, "to", "name a conversationId or, in to, a user, not both")
	case r.MessageType == "":
		return chat.FieldErrorf(chat.CodeBadRequest, "messageType", "messageType is missing; use text, image, voice, file or custom")
	case !r.MessageType.Sendable():
		return chat.FieldErrorf(chat.CodeBadRequest, "messageType", "%q cannot be sent; use text, image, voice, file or custom", r.MessageType)
	case r.ClientTime < 0 || r.ClientTime > chat.MaxSeq:
		return chat.FieldErrorf(chat.CodeBadRequest, "clientTime", "clientTime is milliseconds since 1970, from 0 to %d", int64(chat.MaxSeq))
	}
	return nil
}
