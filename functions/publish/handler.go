package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"inorder/shared/chat"
	"inorder/shared/metric"
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
// message starts with the code; the Lambda runtime logs it, so none quotes the
// message.
func (h handler) handle(ctx context.Context, r request) (wire.Sent, error) {
	start := time.Now()
	ctx, notes := metric.Begin(ctx)
	sent, err := h.publish(ctx, r)
	took := time.Since(start)
	metric.Note(ctx, metric.Send(took, err)...)
	h.record(ctx, notes, err, took)
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
		return wire.Sent{}, chat.FieldErrorf(chat.BadRequest, "messageType", "this messageType cannot be published; use system, text, image, voice, file or custom")
	}
	metric.Note(ctx, metric.Conversation(string(chat.System)+":"+r.Key))
	receipt, err := h.ledger.Publish(ctx, store.Publication{
		Key:         r.Key,
		Title:       r.Title,
		Recipients:  r.Recipients,
		ClientMsgID: r.ClientMsgID,
		Message:     chat.Message{MessageType: messageType, Text: r.Text, Data: r.Data},
	})
	metric.Note(ctx, metric.Entry(receipt.Sent(), receipt.Attempts, receipt.Conflicts, receipt.Throttles)...)
	return receipt.Sent(), err
}

// record writes the request's log line, which has none of the message. A refusal
// is told by code and field alone: its text, which may quote the request, is for
// the caller.
func (h handler) record(ctx context.Context, notes *metric.Notes, err error, took time.Duration) {
	level, code := slog.LevelInfo, "OK"
	var attrs []slog.Attr
	if invocation, ok := lambdacontext.FromContext(ctx); ok {
		attrs = append(attrs, slog.String("requestId", invocation.AwsRequestID))
	}
	if err != nil {
		code = string(chat.CodeOf(err))
	}
	attrs = append(attrs, slog.String("code", code), slog.Int64("ms", took.Milliseconds()))
	noted := notes.Attrs()
	refused, _ := errors.AsType[*chat.Error](err)
	switch {
	case err == nil:
	case chat.Code(code) == chat.Internal:
		level = slog.LevelError
		attrs = append(attrs, slog.Any("err", err))
	case chat.Code(code) == chat.Busy:
		level = slog.LevelWarn
		attrs = append(attrs, slog.Any("err", err))
	default:
		noted = notes.Metrics()
		if refused.Field != "" {
			attrs = append(attrs, slog.String("field", refused.Field))
		}
	}
	h.log.LogAttrs(ctx, level, "publish", append(attrs, noted...)...)
}
