package main

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"unicode/utf8"

	"inorder/shared/chat"
	"inorder/shared/store"
	"inorder/shared/wire"
)

type ledger interface {
	Publish(ctx context.Context, p store.Publication) (store.Receipt, error)
}

type handler struct {
	ledger ledger
	log    *slog.Logger
}

// request is the event of a direct invocation.
type request struct {
	Key         string           `json:"key"`        // the conversation is system:<key>
	Title       string           `json:"title"`      // of a new conversation
	Recipients  []string         `json:"recipients"` // who reads from this message on, beside those who do
	ClientMsgID string           `json:"clientMsgId"`
	MessageType chat.MessageType `json:"messageType"` // system if empty
	Text        string           `json:"text"`
	Data        json.RawMessage  `json:"data"`
}

// handle answers with the receipt. A refusal is the function's error, whose
// message starts with the code.
func (h handler) handle(ctx context.Context, r request) (wire.Sent, error) {
	sent, err := h.publish(ctx, r)
	code := chat.Code("OK")
	level := slog.LevelInfo
	if err != nil {
		if code = chat.CodeOf(err); code == chat.Internal {
			level = slog.LevelError
		}
	}
	h.log.Log(ctx, level, "publish", "conversationId", sent.ConversationID, "seq", sent.Seq,
		"messageId", sent.MessageID, "duplicate", sent.Duplicate, "code", code, "err", err)
	return sent, err
}

func (h handler) publish(ctx context.Context, r request) (wire.Sent, error) {
	if r.Key == "" || !utf8.ValidString(r.Key) {
		return wire.Sent{}, chat.FieldErrorf(chat.BadRequest, "key", "say what the conversation is about, such as order:123")
	}
	if string(r.Data) == "null" {
		r.Data = nil
	}
	messageType := cmp.Or(r.MessageType, chat.TypeSystem)
	if messageType != chat.TypeSystem && !messageType.Sendable() {
		return wire.Sent{}, chat.FieldErrorf(chat.BadRequest, "messageType", "%q cannot be published; use system, text, image, voice, file or custom", messageType)
	}
	receipt, err := h.ledger.Publish(ctx, store.Publication{
		Key:         r.Key,
		Title:       r.Title,
		Recipients:  r.Recipients,
		ClientMsgID: r.ClientMsgID,
		Message:     chat.Message{MessageType: messageType, Text: r.Text, Data: r.Data},
	})
	return receipt.Sent(), err
}
