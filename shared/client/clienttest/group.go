package clienttest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

func (a *act) createGroup(r wire.CreateGroup) (wire.Created, error) {
	visibility := cmp.Or(r.Visibility, chat.VisibleAll)
	if err := a.mayCreate(r, visibility); err != nil {
		return wire.Created{}, err
	}
	e := &chat.Event{Kind: chat.EventMembers, Title: r.Title, Owner: a.userID, Added: append([]string{a.userID}, r.Members...)}
	m := chat.Message{ConversationID: "group:new", ClientMsgID: r.ClientMsgID, MessageType: chat.TypeEvent, Event: e}
	sent, err := a.once(m, string(visibility), func() (wire.Sent, error) {
		a.s.lastID++
		c := a.s.open(chat.ConversationID(fmt.Sprintf("group:%026d", a.s.lastID)), chat.KindGroup, a.userID)
		c.head.Visibility = visibility
		for _, id := range e.Added {
			c.members[id] = atFirst(id)
		}
		self := c.members[a.userID]
		self.role, self.ReadSeq, self.DeliveredSeq = chat.RoleOwner, 1, 1
		return a.append(c, m, nil), nil
	})
	if err != nil {
		return wire.Created{}, err
	}
	return wire.Created{Conversation: a.line(sent.ConversationID), Duplicate: sent.Duplicate}, nil
}

func (a *act) mayCreate(r wire.CreateGroup, v chat.Visibility) error {
	switch {
	case v != chat.VisibleAll && v != chat.VisibleSinceJoin:
		return chat.FieldErrorf(chat.CodeBadRequest, "visibility", "%q is no visibility", v)
	case len(r.Members)+1 > chat.MaxRosterChange:
		return &chat.Error{
			Code: chat.CodeLimit, Field: "members", Message: "too many at once", Details: map[string]any{"max": chat.MaxRosterChange - 1},
		}
	case slices.Contains(r.Members, a.userID):
		return chat.FieldErrorf(chat.CodeBadRequest, "members", "you are a member of what you create")
	}
	err := chat.ValidateTitle("title", r.Title)
	if err == nil && len(r.Members) > 0 {
		err = chat.ValidateMembers("members", r.Members)
	}
	return err
}

// change commits an event of a group. effect does what else it does, or refuses.
func (a *act) change(conversationID chat.ConversationID, clientMsgID string, e *chat.Event, may chat.Action, effect func(c *conversation, self *member) error) (wire.Sent, error) {
	m := chat.Message{ConversationID: conversationID, ClientMsgID: clientMsgID, MessageType: chat.TypeEvent, Event: e}
	return a.once(m, "", func() (wire.Sent, error) {
		c, self, err := a.writable(conversationID)
		switch {
		case may == chat.ActLeave && chat.CodeOf(err) == chat.CodeDissolved: // leaving is always possible
		case err != nil:
			return wire.Sent{}, err
		}
		if c.head.Kind != chat.KindGroup {
			return wire.Sent{}, chat.FieldErrorf(chat.CodeForbidden, "conversationId", "this is no group")
		}
		if !self.role.May(may, chat.RolePlain) {
			return wire.Sent{}, chat.Errorf(chat.CodeForbidden, "your role is %s", self.role)
		}
		before := c.present()
		if err := effect(c, self); err != nil {
			return wire.Sent{}, err
		}
		return a.append(c, m, before), nil
	})
}

// rejoin is for how long who left by itself is not added by members again.
const rejoin = 30 * 24 * time.Hour

func (a *act) addMembers(r wire.ChangeMembers) (wire.Sent, error) {
	if err := chat.ValidateMembers("members", r.Members); err != nil {
		return wire.Sent{}, err
	}
	e := &chat.Event{Kind: chat.EventMembers, Added: r.Members}
	return a.change(r.ConversationID, r.ClientMsgID, e, chat.ActAdd, func(c *conversation, _ *member) error {
		if len(c.present())+len(r.Members) > chat.MaxGroupMembers {
			return &chat.Error{Code: chat.CodeLimit, Field: "members", Message: "too many members", Details: map[string]any{"max": chat.MaxGroupMembers}}
		}
		present, former := []string{}, []string{}
		for _, id := range r.Members {
			switch m := c.members[id]; {
			case m != nil && m.LeftSeq == 0:
				present = append(present, id)
			case m != nil && m.LeftAt != 0 && time.Since(time.UnixMilli(m.LeftAt)) < rejoin:
				former = append(former, id)
			}
		}
		if err := cmp.Or(refuse(chat.CodeBadRequest, "already a member", present), refuse(chat.CodeForbidden, "left by itself", former)); err != nil {
			return err
		}
		for _, id := range r.Members {
			if c.members[id] == nil {
				c.members[id] = &member{Line: chat.Line{UserID: id}}
			}
			m := c.members[id]
			m.role, m.Line = chat.RolePlain, m.Joined(c.head.Visibility, c.last()+1)
		}
		return nil
	})
}

// refuse blames some of the users that a request names, if there are any.
func refuse(code chat.Code, why string, userIDs []string) error {
	if len(userIDs) == 0 {
		return nil
	}
	return &chat.Error{Code: code, Field: "members", Message: why, Details: map[string]any{"members": userIDs}}
}

func (a *act) removeMembers(r wire.ChangeMembers) (wire.Sent, error) {
	if err := chat.ValidateKnownMembers("members", r.Members); err != nil {
		return wire.Sent{}, err
	}
	if slices.Contains(r.Members, a.userID) {
		return wire.Sent{}, chat.FieldErrorf(chat.CodeBadRequest, "members", "to go yourself, leave")
	}
	e := &chat.Event{Kind: chat.EventMembers, Removed: r.Members}
	return a.change(r.ConversationID, r.ClientMsgID, e, chat.ActRemove, func(c *conversation, self *member) error {
		absent := []string{}
		for _, id := range r.Members {
			switch m := c.members[id]; {
			case m == nil || m.LeftSeq != 0:
				absent = append(absent, id)
			case !self.role.May(chat.ActRemove, m.role):
				return chat.FieldErrorf(chat.CodeForbidden, "members", "your role is %s", self.role)
			}
		}
		if err := refuse(chat.CodeBadRequest, "no member", absent); err != nil {
			return err
		}
		for _, id := range r.Members {
			c.members[id].LeftSeq = c.last() + 1
		}
		return nil
	})
}

func (a *act) leave(r wire.ChangeGroup) (wire.Sent, error) {
	e := &chat.Event{Kind: chat.EventMembers, Removed: []string{a.userID}}
	return a.change(r.ConversationID, r.ClientMsgID, e, chat.ActLeave, func(c *conversation, self *member) error {
		if self.role == chat.RoleOwner {
			if next, ok := chat.Successor(c.roster(), a.userID); ok {
				c.members[next.UserID].role, e.Owner = chat.RoleOwner, next.UserID
			} else {
				c.head.State = chat.StateDissolved
			}
		}
		self.LeftSeq = c.last() + 1
		return nil
	})
}

func (a *act) setTitle(r wire.SetTitle) (wire.Sent, error) {
	if err := chat.ValidateTitle("title", r.Title); err != nil {
		return wire.Sent{}, err
	}
	e := &chat.Event{Kind: chat.EventTitle, Title: r.Title}
	return a.change(r.ConversationID, r.ClientMsgID, e, chat.ActSetTitle, nothingElse)
}

func nothingElse(*conversation, *member) error { return nil }

func (a *act) setRole(r wire.SetRole) (wire.Sent, error) {
	switch {
	case chat.ValidateKnownUserID("userId", r.UserID) != nil:
		return wire.Sent{}, chat.ValidateKnownUserID("userId", r.UserID)
	case chat.ValidateRole("role", r.Role) != nil:
		return wire.Sent{}, chat.ValidateRole("role", r.Role)
	case r.UserID == a.userID:
		return wire.Sent{}, chat.FieldErrorf(chat.CodeBadRequest, "userId", "not your own")
	}
	e := &chat.Event{Kind: chat.EventMembers, Member: r.UserID, Role: r.Role}
	if r.Role == chat.RoleOwner {
		e.Owner = r.UserID
	}
	return a.change(r.ConversationID, r.ClientMsgID, e, chat.ActSetRole, func(c *conversation, self *member) error {
		m := c.members[r.UserID]
		if m == nil || m.LeftSeq != 0 {
			return refuse(chat.CodeBadRequest, "no member", []string{r.UserID})
		}
		m.role = r.Role
		if r.Role == chat.RoleOwner {
			self.role = chat.RoleAdmin
		}
		return nil
	})
}

func (a *act) dissolve(r wire.ChangeGroup) (wire.Sent, error) {
	return a.change(r.ConversationID, r.ClientMsgID, &chat.Event{Kind: chat.EventDissolve}, chat.ActDissolve, nothingElse)
}

// current is a conversation for a present member, who alone is told of the others.
func (a *act) current(id chat.ConversationID) (*conversation, error) {
	c, m, err := a.conversation(id)
	if err == nil && m.LeftSeq != 0 {
		err = chat.Errorf(chat.CodeForbidden, "you are no member any more")
	}
	return c, err
}

func (a *act) members(r wire.Members) (wire.MembersPage, error) {
	c, err := a.current(r.ConversationID)
	if err != nil {
		return wire.MembersPage{}, err
	}
	page := wire.MembersPage{Members: []wire.Member{}, MembersVersion: c.head.MembersVersion}
	var ids []string
	ids, page.Cursor = a.rosterPage(c, r.Cursor, wire.MemberPage)
	for _, id := range ids {
		m := c.members[id]
		page.Members = append(page.Members, wire.Member{UserID: id, Role: m.role, JoinSeq: m.JoinSeq, JoinedAt: m.joinedAt})
	}
	return page, nil
}

// rosterPage is the members after a cursor, and the next cursor.
func (a *act) rosterPage(c *conversation, cursor string, most int) (ids []string, next string) {
	size := cmp.Or(a.s.RosterSize, most)
	ids = slices.DeleteFunc(c.present(), func(id string) bool { return id <= cursor })
	if len(ids) > size {
		return ids[:size], ids[size-1]
	}
	return ids, ""
}

// receiptPage is how many members the real server looks at for a page of receipts.
const receiptPage = 50

func (a *act) receipts(r wire.Receipts) (wire.ReceiptsPage, error) {
	c, _, err := a.conversation(r.ConversationID)
	if err != nil {
		return wire.ReceiptsPage{}, err
	}
	if _, visible := c.view(a.userID).WindowAt(r.Seq); !visible {
		return wire.ReceiptsPage{}, chat.FieldErrorf(chat.CodeNotFound, "seq", "no such message")
	}
	if _, err := a.current(r.ConversationID); err != nil {
		return wire.ReceiptsPage{}, err
	}
	page := wire.ReceiptsPage{Delivered: []string{}, Read: []string{}}
	var ids []string
	ids, page.Cursor = a.rosterPage(c, r.Cursor, receiptPage)
	for _, id := range ids {
		m := c.members[id]
		if m.joinedSeq > r.Seq || c.strangers() && id != a.userID {
			continue
		}
		if m.DeliveredSeq >= r.Seq {
			page.Delivered = append(page.Delivered, id)
		}
		if m.ReadSeq >= r.Seq {
			page.Read = append(page.Read, id)
		}
	}
	return page, nil
}
