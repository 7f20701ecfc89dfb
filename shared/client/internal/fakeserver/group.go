package fakeserver

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

func (a *act) createGroup(r wire.CreateGroup) (any, error) {
	e := &chat.Event{Kind: chat.EventMembers, Title: r.Title, Owner: a.userID, Added: append([]string{a.userID}, r.Members...)}
	m := chat.Message{ClientMsgID: r.ClientMsgID, MessageType: chat.TypeEvent, Event: e}
	return a.once(r.ClientMsgID, m, func() (any, error) {
		a.s.lastID++
		c := a.s.open(fmt.Sprintf("group:%026d", a.s.lastID), chat.KindGroup, a.userID)
		c.head.Visibility = cmp.Or(r.Visibility, chat.VisibleAll)
		for _, id := range e.Added {
			c.members[id] = atFirst(id)
		}
		c.members[a.userID].role = chat.RoleOwner
		a.append(c, m)
		return wire.Created{Conversation: a.line(c.head.ConversationID)}, nil
	})
}

// change commits an event of a group; effect is what it does that the entry does not
// tell by itself, nil for nothing.
func (a *act) change(conversationID, clientMsgID string, e *chat.Event, effect func(c *conversation, seq int64)) (any, error) {
	m := chat.Message{ConversationID: conversationID, ClientMsgID: clientMsgID, MessageType: chat.TypeEvent, Event: e}
	return a.once(clientMsgID, m, func() (any, error) {
		c, err := a.writable(conversationID)
		if chat.CodeOf(err) == chat.CodeDissolved && slices.Equal(e.Removed, []string{a.userID}) {
			err = nil // leaving is always possible
		}
		if err != nil {
			return nil, err
		}
		if c.head.Kind != chat.KindGroup {
			return nil, chat.Errorf(chat.CodeForbidden, "no group")
		}
		if effect != nil {
			effect(c, c.last()+1)
		}
		return a.append(c, m), nil
	})
}

func (a *act) addMembers(r wire.ChangeMembers) (any, error) {
	e := &chat.Event{Kind: chat.EventMembers, Added: r.Members}
	return a.change(r.ConversationID, r.ClientMsgID, e, func(c *conversation, seq int64) {
		for _, id := range r.Members {
			m := c.members[id]
			if m == nil {
				m = &member{role: chat.RolePlain, Line: chat.Line{UserID: id}}
				c.members[id] = m
			} else if m.LeftSeq == 0 {
				continue
			}
			m.Line = m.Joined(c.head.Visibility, seq)
		}
	})
}

func (a *act) remove(conversationID, clientMsgID string, userIDs []string) (any, error) {
	e := &chat.Event{Kind: chat.EventMembers, Removed: userIDs}
	return a.change(conversationID, clientMsgID, e, func(c *conversation, seq int64) {
		for _, id := range userIDs {
			if m := c.members[id]; m != nil && m.LeftSeq == 0 {
				m.LeftSeq = seq
				a.s.raise(id, conversationID)
			}
		}
	})
}

func (a *act) removeMembers(r wire.ChangeMembers) (any, error) {
	return a.remove(r.ConversationID, r.ClientMsgID, r.Members)
}

func (a *act) leave(r wire.ChangeGroup) (any, error) {
	return a.remove(r.ConversationID, r.ClientMsgID, []string{a.userID})
}

func (a *act) setTitle(r wire.SetTitle) (any, error) {
	e := &chat.Event{Kind: chat.EventTitle, Title: r.Title}
	return a.change(r.ConversationID, r.ClientMsgID, e, nil)
}

func (a *act) setRole(r wire.SetRole) (any, error) {
	e := &chat.Event{Kind: chat.EventMembers, Member: r.UserID, Role: r.Role}
	return a.change(r.ConversationID, r.ClientMsgID, e, func(c *conversation, _ int64) {
		if m := c.members[r.UserID]; m != nil {
			m.role = r.Role
		}
	})
}

func (a *act) dissolve(r wire.ChangeGroup) (any, error) {
	e := &chat.Event{Kind: chat.EventDissolve}
	return a.change(r.ConversationID, r.ClientMsgID, e, nil)
}

const rosterPage = 2

func (a *act) members(r wire.Members) (any, error) {
	c, _, err := a.conversation(r.ConversationID)
	if err != nil {
		return nil, err
	}
	page := wire.MembersPage{Members: []wire.Member{}, MembersVersion: c.last()}
	for _, id := range c.after(r.Cursor) {
		if len(page.Members) == rosterPage {
			page.Cursor = page.Members[rosterPage-1].UserID
			break
		}
		page.Members = append(page.Members, wire.Member{UserID: id, Role: c.members[id].role, JoinSeq: c.members[id].JoinSeq})
	}
	return page, nil
}

func (c *conversation) after(cursor string) []string {
	return slices.DeleteFunc(c.present(), func(id string) bool { return id <= cursor })
}

func (a *act) receipts(r wire.Receipts) (any, error) {
	c, _, err := a.conversation(r.ConversationID)
	if err != nil {
		return nil, err
	}
	page := wire.ReceiptsPage{Delivered: []string{}, Read: []string{}}
	for i, id := range c.after(r.Cursor) {
		if i == rosterPage {
			page.Cursor = c.after(r.Cursor)[i-1]
			break
		}
		if c.strangers() && id != a.userID {
			continue
		}
		if c.members[id].DeliveredSeq >= r.Seq {
			page.Delivered = append(page.Delivered, id)
		}
		if c.members[id].ReadSeq >= r.Seq {
			page.Read = append(page.Read, id)
		}
	}
	return page, nil
}
