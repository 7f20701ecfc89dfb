package main

import (
	"context"
	"time"

	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/wire"
)

// messages is what the routes change. Errors for the client are *chat.Errors.
type messages interface {
	Recall(ctx context.Context, r store.Request, t store.Target, window time.Duration) (store.Committed, error)
	Edit(ctx context.Context, r store.Request, t store.Target, edited store.Edited, window time.Duration) (store.Committed, error)
}

type handler struct {
	messages messages
	windows  store.Windows
}

func (h handler) actions() map[string]route.Action {
	return map[string]route.Action{
		wire.ActionRecall: route.To(h.recall),
		wire.ActionEdit:   route.To(h.edit),
	}
}

func (h handler) recall(ctx context.Context, c route.Caller, r wire.Recall) (wire.Sent, error) {
	metric.Note(ctx, metric.Conversation(r.ConversationID))
	committed, err := h.messages.Recall(ctx, by(c, r.ClientMsgID),
		store.Target{ConversationID: r.ConversationID, Seq: r.Seq, MessageID: r.MessageID}, h.windows.Recall)
	note(ctx, committed)
	if err != nil {
		return wire.Sent{}, err
	}
	return committed.Sent, nil
}

func (h handler) edit(ctx context.Context, c route.Caller, r wire.Edit) (wire.Edited, error) {
	metric.Note(ctx, metric.Conversation(r.ConversationID))
	committed, err := h.messages.Edit(ctx, by(c, r.ClientMsgID),
		store.Target{ConversationID: r.ConversationID, Seq: r.Seq, MessageID: r.MessageID},
		store.Edited{Version: r.Version, Text: r.Text, Data: r.Data}, h.windows.Edit)
	note(ctx, committed)
	if err != nil {
		return wire.Edited{}, err
	}
	return wire.Edited{Sent: committed.Sent, Version: r.Version + 1}, nil
}

func note(ctx context.Context, r store.Committed) {
	metric.Note(ctx, metric.Entry(r.Sent, r.Effort)...)
}

func by(c route.Caller, clientMsgID string) store.Request {
	return store.Request{UserID: c.UserID, DeviceID: c.DeviceID, ClientMsgID: clientMsgID}
}
