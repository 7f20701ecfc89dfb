package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"inorder/shared/chat"
	"inorder/shared/metric"
	"inorder/shared/route"
	"inorder/shared/store"
	"inorder/shared/wire"
)

// messages is what the routes change. Errors for the client are *chat.Errors.
type messages interface {
	Recall(ctx context.Context, r store.Request, t store.Target, window time.Duration) (store.Receipt, error)
	Edit(ctx context.Context, r store.Request, t store.Target, edited store.Edited, window time.Duration) (store.Receipt, error)
}

// windows say how long after its sending a message can be changed by its sender:
// 0 is never, store.NoWindow always.
type windows struct {
	recall, edit time.Duration
}

// windowsFromEnv reads RECALL_WINDOW_SECONDS and EDIT_WINDOW_SECONDS, which
// template.yaml sets.
func windowsFromEnv(getenv func(string) string) (w windows, err error) {
	if w.recall, err = windowFromEnv(getenv, "RECALL_WINDOW_SECONDS"); err != nil {
		return windows{}, err
	}
	if w.edit, err = windowFromEnv(getenv, "EDIT_WINDOW_SECONDS"); err != nil {
		return windows{}, err
	}
	return w, nil
}

// maxWindowSeconds is the longest that a time.Duration holds, 292 years.
const maxWindowSeconds = int64(math.MaxInt64 / time.Second)

func windowFromEnv(getenv func(string) string, name string) (time.Duration, error) {
	n, err := strconv.ParseInt(getenv(name), 10, 64)
	switch {
	case err != nil || n < -1 || n > maxWindowSeconds:
		return 0, fmt.Errorf("the environment variable %s is %q; use seconds, 0 for never or -1 for always", name, getenv(name))
	case n == -1:
		return store.NoWindow, nil
	}
	return time.Duration(n) * time.Second, nil
}

type handler struct {
	messages messages
	windows  windows
}

func (h handler) actions() map[string]route.Action {
	return map[string]route.Action{
		wire.ActionRecall: route.To(h.recall),
		wire.ActionEdit:   route.To(h.edit),
	}
}

func (h handler) recall(ctx context.Context, c route.Caller, r wire.Recall) (wire.Sent, error) {
	if err := validateTarget(r.Seq, r.MessageID); err != nil {
		return wire.Sent{}, err
	}
	metric.Note(ctx, metric.Conversation(r.ConversationID))
	receipt, err := h.messages.Recall(ctx, by(c, r.ClientMsgID),
		store.Target{ConversationID: r.ConversationID, Seq: r.Seq, MessageID: r.MessageID}, h.windows.recall)
	note(ctx, receipt)
	return receipt.Sent(), err
}

func (h handler) edit(ctx context.Context, c route.Caller, r wire.Edit) (wire.Edited, error) {
	if err := validateTarget(r.Seq, r.MessageID); err != nil {
		return wire.Edited{}, err
	}
	if r.Version < 1 || r.Version >= chat.MaxSeq {
		return wire.Edited{}, chat.FieldErrorf(chat.BadRequest, "version", "say which version you have seen; the first is 1")
	}
	metric.Note(ctx, metric.Conversation(r.ConversationID))
	receipt, err := h.messages.Edit(ctx, by(c, r.ClientMsgID),
		store.Target{ConversationID: r.ConversationID, Seq: r.Seq, MessageID: r.MessageID},
		store.Edited{Version: r.Version, Text: r.Text, Data: r.Data}, h.windows.edit)
	note(ctx, receipt)
	return wire.Edited{Sent: receipt.Sent(), Version: r.Version + 1}, err
}

func validateTarget(seq int64, messageID string) error {
	if err := chat.ValidateNumber("seq", seq, 1); err != nil {
		return err
	}
	if messageID == "" {
		return chat.FieldErrorf(chat.BadRequest, "messageId", "messageId is missing")
	}
	return nil
}

func note(ctx context.Context, r store.Receipt) {
	metric.Note(ctx, metric.Entry(r.Sent(), r.Attempts, r.Conflicts, r.Throttles)...)
}

func by(c route.Caller, clientMsgID string) store.Request {
	return store.Request{UserID: c.UserID, DeviceID: c.DeviceID, ClientMsgID: clientMsgID}
}
