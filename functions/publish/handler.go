package main

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"

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
	start := time.Now()
	sent, err := h.publish(ctx, r)
	h.record(ctx, sent, err, time.Since(start))
	return sent, err
}

func (h handler) publish(ctx context.Context, r request) (wire.Sent, error) {
	if _, ok := chat.KindOf(string(chat.System) + ":" + r.Key); !ok {
		return wire.Sent{}, chat.FieldErrorf(chat.BadRequest, "key",
			"say what the conversation is about, such as order:123, in 1 to %d bytes without control characters",
			chat.MaxConversationIDBytes-len(chat.System)-len(":"))
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

// record writes the request's log line, which has none of the message.
func (h handler) record(ctx context.Context, sent wire.Sent, err error, took time.Duration) {
	level, code := slog.LevelInfo, "OK"
	var attrs []slog.Attr
	if invocation, ok := lambdacontext.FromContext(ctx); ok {
		attrs = append(attrs, slog.String("requestId", invocation.AwsRequestID))
	}
	if err == nil {
		attrs = append(attrs, slog.String("conversationId", sent.ConversationID), slog.Int64("seq", sent.Seq),
			slog.String("messageId", sent.MessageID), slog.Bool("duplicate", sent.Duplicate))
	} else {
		code = string(chat.CodeOf(err))
		attrs = append(attrs, slog.Any("err", err))
	}
	switch chat.Code(code) {
	case chat.Internal:
		level = slog.LevelError
	case chat.Busy:
		level = slog.LevelWarn
	}
	attrs = append(attrs, slog.String("code", code), slog.Int64("ms", took.Milliseconds()))
	h.log.LogAttrs(ctx, level, "publish", attrs...)
}
