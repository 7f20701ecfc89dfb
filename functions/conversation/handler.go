package main

import (
	"cmp"
	"context"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/wire"
)

// groups is what the routes change. Errors for the client are *chat.Errors.
type groups interface {
	CreateGroup(ctx context.Context, r store.Request, title string, userIDs []string, v chat.Visibility) (store.Line, store.Committed, error)
	AddMembers(ctx context.Context, r store.Request, conversationID chat.ConversationID, userIDs []string) (store.Committed, error)
	RemoveMembers(ctx context.Context, r store.Request, conversationID chat.ConversationID, userIDs []string) (store.Committed, error)
	Leave(ctx context.Context, r store.Request, conversationID chat.ConversationID) (store.Committed, error)
	SetRole(ctx context.Context, r store.Request, conversationID chat.ConversationID, userID string, role chat.Role) (store.Committed, error)
	SetTitle(ctx context.Context, r store.Request, conversationID chat.ConversationID, title string) (store.Committed, error)
	Dissolve(ctx context.Context, r store.Request, conversationID chat.ConversationID) (store.Committed, error)
}

type handler struct {
	groups groups
}

func (h handler) actions() map[string]route.Action {
	return map[string]route.Action{
		wire.ActionCreateGroup:   route.To(h.createGroup),
		wire.ActionAddMembers:    route.To(h.addMembers),
		wire.ActionRemoveMembers: route.To(h.removeMembers),
		wire.ActionLeave:         route.To(h.leave),
		wire.ActionSetRole:       route.To(h.setRole),
		wire.ActionSetTitle:      route.To(h.setTitle),
		wire.ActionDissolve:      route.To(h.dissolve),
	}
}

func (h handler) createGroup(ctx context.Context, c route.Caller, r wire.CreateGroup) (wire.Created, error) {
	line, committed, err := h.groups.CreateGroup(ctx, by(c, r.ClientMsgID), r.Title, r.Members, cmp.Or(r.Visibility, chat.VisibleAll))
	note(ctx, committed)
	if err != nil {
		return wire.Created{}, err
	}
	return wire.Created{Conversation: wire.Listed(line.View, line.Last), Duplicate: committed.Duplicate}, nil
}

func (h handler) addMembers(ctx context.Context, c route.Caller, r wire.ChangeMembers) (wire.Sent, error) {
	metric.Note(ctx, metric.Conversation(r.ConversationID))
	committed, err := h.groups.AddMembers(ctx, by(c, r.ClientMsgID), r.ConversationID, r.Members)
	return sent(ctx, committed, err)
}

func (h handler) removeMembers(ctx context.Context, c route.Caller, r wire.ChangeMembers) (wire.Sent, error) {
	metric.Note(ctx, metric.Conversation(r.ConversationID))
	committed, err := h.groups.RemoveMembers(ctx, by(c, r.ClientMsgID), r.ConversationID, r.Members)
	return sent(ctx, committed, err)
}

func (h handler) leave(ctx context.Context, c route.Caller, r wire.ChangeGroup) (wire.Sent, error) {
	metric.Note(ctx, metric.Conversation(r.ConversationID))
	committed, err := h.groups.Leave(ctx, by(c, r.ClientMsgID), r.ConversationID)
	return sent(ctx, committed, err)
}

func (h handler) setRole(ctx context.Context, c route.Caller, r wire.SetRole) (wire.Sent, error) {
	metric.Note(ctx, metric.Conversation(r.ConversationID))
	committed, err := h.groups.SetRole(ctx, by(c, r.ClientMsgID), r.ConversationID, r.UserID, r.Role)
	return sent(ctx, committed, err)
}

func (h handler) setTitle(ctx context.Context, c route.Caller, r wire.SetTitle) (wire.Sent, error) {
	metric.Note(ctx, metric.Conversation(r.ConversationID))
	committed, err := h.groups.SetTitle(ctx, by(c, r.ClientMsgID), r.ConversationID, r.Title)
	return sent(ctx, committed, err)
}

func (h handler) dissolve(ctx context.Context, c route.Caller, r wire.ChangeGroup) (wire.Sent, error) {
	metric.Note(ctx, metric.Conversation(r.ConversationID))
	committed, err := h.groups.Dissolve(ctx, by(c, r.ClientMsgID), r.ConversationID)
	return sent(ctx, committed, err)
}

func by(c route.Caller, clientMsgID string) store.Request {
	return store.Request{UserID: c.UserID, DeviceID: c.DeviceID, ClientMsgID: clientMsgID}
}

func sent(ctx context.Context, r store.Committed, err error) (wire.Sent, error) {
	note(ctx, r)
	if err != nil {
		return wire.Sent{}, err
	}
	return r.Sent, nil
}

func note(ctx context.Context, r store.Committed) {
	metric.Note(ctx, metric.Entry(r.Sent, r.Effort)...)
}
