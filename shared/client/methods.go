package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// The methods below ask the server. Each waits for a connection, repeats the
// request over reconnects and while the server is busy. What the server refuses is a
// *chat.Error. When ctx ends, what reads, and Ack, gives up.
//
// All other writes are in the outbox until they are answered, in their place among what
// else the user writes in the conversation, and end as Send does: with a *PendingError if
// ctx or the client ends first. The requests have a ClientMsgID, which is made if it is
// empty: a program that calls again with the id of the first call gets the first call's
// result.

// Ack raises the user's positions in a conversation; 0 leaves one as it is. They
// never go back, and never above what is committed. It gives the positions now in
// force. Where only the user's own messages are between, nobody learns anything by it
// and the server is not asked.
func (c *Client) Ack(ctx context.Context, conversationID chat.ConversationID, deliveredSeq, readSeq int64) (wire.Acked, error) {
	request := wire.Ack{ConversationID: conversationID}
	if deliveredSeq != 0 || readSeq != 0 {
		var now Positions
		if deliveredSeq, readSeq, now = c.untold(conversationID, deliveredSeq, readSeq); deliveredSeq == 0 && readSeq == 0 {
			return wire.Acked(now), nil
		}
	}
	if deliveredSeq != 0 {
		request.DeliveredSeq = &deliveredSeq
	}
	if readSeq != 0 {
		request.ReadSeq = &readSeq
	}
	var acked wire.Acked
	if err := c.do(ctx, wire.ActionAck, request, &acked); err != nil {
		return wire.Acked{}, err
	}
	if !possible(acked.DeliveredSeq) || !possible(acked.ReadSeq) {
		return wire.Acked{}, fmt.Errorf("%w: ack answered deliveredSeq %d and readSeq %d", ErrProtocol, acked.DeliveredSeq, acked.ReadSeq)
	}
	return acked, c.raiseOwn(conversationID, Positions(acked), 0)
}

// untold returns the positions that are to be raised so far, 0 for one that nobody need
// hear of, and those that are known to be in force.
func (c *Client) untold(conversationID chat.ConversationID, deliveredSeq, readSeq int64) (delivered, read int64, now Positions) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cv := c.conversations[conversationID]
	if cv == nil || !cv.exists() {
		return deliveredSeq, readSeq, Positions{}
	}
	now = Positions{DeliveredSeq: cv.known.DeliveredSeq, ReadSeq: cv.known.ReadSeq}
	if deliveredSeq < 0 || cv.others(c.cfg.UserID, now.DeliveredSeq, deliveredSeq) > 0 {
		delivered = deliveredSeq
	}
	if readSeq < 0 || cv.others(c.cfg.UserID, now.ReadSeq, readSeq) > 0 {
		read = readSeq
	}
	return delivered, read, now
}

// Clear hides a conversation up to throughSeq on all of the user's devices, and
// deletes it from this one's store. It gives the position now in force. What the
// user has left is hidden once it is cleared to its end: Conversations leaves it out.
func (c *Client) Clear(ctx context.Context, conversationID chat.ConversationID, throughSeq int64) (wire.Cleared, error) {
	if err := cmp.Or(chat.ValidateConversationID("conversationId", conversationID), chat.ValidateNumber("throughSeq", throughSeq, 0)); err != nil {
		return wire.Cleared{}, err
	}
	request := wire.Clear{ConversationID: conversationID, ThroughSeq: &throughSeq}
	a, err := c.perform(ctx, wire.ActionClear, conversationID, key(""), request)
	if err != nil {
		return wire.Cleared{}, err
	}
	return wire.Cleared{ClearedSeq: a.cleared}, nil
}

func (c *Client) raiseOwn(conversationID chat.ConversationID, at Positions, clearedSeq int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.raise(c.conversation(conversationID), at, clearedSeq)
}

// Recall takes a message back. It errs with CodeNotFound, CodeForbidden or CodeTooLate.
func (c *Client) Recall(ctx context.Context, m Message) (Sent, error) {
	return c.RequestRecall(ctx, wire.Recall{ConversationID: m.ConversationID, Seq: m.Seq, MessageID: m.MessageID})
}

// RequestRecall is Recall with a ClientMsgID of the program's own.
func (c *Client) RequestRecall(ctx context.Context, r wire.Recall) (wire.Sent, error) {
	r.ClientMsgID = key(r.ClientMsgID)
	return c.write(ctx, wire.ActionRecall, r.ConversationID, r.ClientMsgID, r, chat.ValidateNumber("seq", r.Seq, 1))
}

// Edit replaces the text of one of the user's own messages and leaves its data. It errs
// with CodeVersionConflict if m is not its last version, with that in the details, with
// CodeNotFound, CodeForbidden, CodeTooLate, or CodeLimit after chat.MaxEdits edits. One
// that waits behind others of the same m comes after them.
func (c *Client) Edit(ctx context.Context, m Message, text string) (Edited, error) {
	return c.RequestEdit(ctx, wire.Edit{
		ConversationID: m.ConversationID, Seq: m.Seq, MessageID: m.MessageID, Version: m.Version + c.editsOf(m), Text: text, Data: m.Data,
	})
}

// editsOf counts the edits of a message in the outbox: each makes another version.
func (c *Client) editsOf(m Message) (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.outbox {
		if r, ok := e.request.(wire.Edit); ok && r.MessageID == m.MessageID && r.Version >= m.Version {
			n++
		}
	}
	return n
}

// RequestEdit is Edit with new data and a ClientMsgID of the program's own.
func (c *Client) RequestEdit(ctx context.Context, r wire.Edit) (wire.Edited, error) {
	r.ClientMsgID, r.Data = key(r.ClientMsgID), noNull(r.Data)
	event := messageOf(wire.Send{
		ConversationID: r.ConversationID, ClientMsgID: r.ClientMsgID, MessageType: chat.TypeEvent, Text: r.Text, Data: r.Data,
	}, c.cfg.UserID, c.cfg.DeviceID)
	event.Event = &chat.Event{Kind: chat.EventEdit, TargetSeq: r.Seq, TargetMessageID: r.MessageID, Version: r.Version}
	if err := cmp.Or(event.Validate(), chat.ValidateNumber("seq", r.Seq, 1), chat.ValidateNumber("version", r.Version, 1)); err != nil {
		return wire.Edited{}, err
	}
	a, err := c.perform(ctx, wire.ActionEdit, r.ConversationID, r.ClientMsgID, r)
	return a.Edited, err
}

// CreateGroup makes a group of the user, who owns it, and up to chat.MaxRosterChange-1
// others, who may be none; AddMembers takes the rest. Visibility is all if empty. It errs
// with CodeLimit where the server's quotas are used up, and with CodeForbidden where only
// the product makes groups.
func (c *Client) CreateGroup(ctx context.Context, r wire.CreateGroup) (wire.Created, error) {
	r.ClientMsgID = key(r.ClientMsgID)
	if r.Members == nil {
		r.Members = []string{}
	}
	all := append([]string{c.cfg.UserID}, r.Members...)
	err := cmp.Or(chat.ValidateClientMsgID("clientMsgId", r.ClientMsgID), chat.ValidateTitle("title", r.Title), chat.ValidateMembers("members", all))
	if err != nil {
		return wire.Created{}, err
	}
	a, err := c.perform(ctx, wire.ActionCreateGroup, "", r.ClientMsgID, r)
	if err != nil {
		return wire.Created{}, err
	}
	return *a.created, nil
}

// AddMembers adds up to chat.MaxRosterChange users to a group, of up to
// chat.MaxGroupMembers; owners and admins may. It errs with CodeBadRequest for those who
// are members already, with CodeForbidden for those who lately left it themselves, and with
// CodeLimit where the group or a quota is full: the users concerned are in the details.
func (c *Client) AddMembers(ctx context.Context, r wire.ChangeMembers) (wire.Sent, error) {
	r.ClientMsgID = key(r.ClientMsgID)
	return c.write(ctx, wire.ActionAddMembers, r.ConversationID, r.ClientMsgID, r, chat.ValidateMembers("members", r.Members))
}

// RemoveMembers removes up to chat.MaxRosterChange members from a group; the owner removes
// anyone, an admin plain members. It errs with CodeBadRequest for those who are no members,
// and for the user, who can Leave.
func (c *Client) RemoveMembers(ctx context.Context, r wire.ChangeMembers) (wire.Sent, error) {
	r.ClientMsgID = key(r.ClientMsgID)
	return c.write(ctx, wire.ActionRemoveMembers, r.ConversationID, r.ClientMsgID, r, chat.ValidateKnownMembers("members", r.Members))
}

// Leave takes the user out of a group, a dissolved one too. If it is the owner, the oldest
// admin owns it then, or else the oldest member.
func (c *Client) Leave(ctx context.Context, r wire.ChangeGroup) (wire.Sent, error) {
	r.ClientMsgID = key(r.ClientMsgID)
	return c.write(ctx, wire.ActionLeave, r.ConversationID, r.ClientMsgID, r, nil)
}

// SetRole gives another member another role, which the owner may. The owner who makes
// another the owner becomes an admin.
func (c *Client) SetRole(ctx context.Context, r wire.SetRole) (wire.Sent, error) {
	r.ClientMsgID = key(r.ClientMsgID)
	return c.write(ctx, wire.ActionSetRole, r.ConversationID, r.ClientMsgID, r, cmp.Or(chat.ValidateKnownUserID("userId", r.UserID), chat.ValidateRole("role", r.Role)))
}

// SetTitle renames a group, in up to chat.MaxTitleRunes; owners and admins may.
func (c *Client) SetTitle(ctx context.Context, r wire.SetTitle) (wire.Sent, error) {
	r.ClientMsgID = key(r.ClientMsgID)
	return c.write(ctx, wire.ActionSetTitle, r.ConversationID, r.ClientMsgID, r, chat.ValidateTitle("title", r.Title))
}

// Dissolve ends a group, which the owner may: it can be read and left, and takes no
// messages any more.
func (c *Client) Dissolve(ctx context.Context, r wire.ChangeGroup) (wire.Sent, error) {
	r.ClientMsgID = key(r.ClientMsgID)
	return c.write(ctx, wire.ActionDissolve, r.ConversationID, r.ClientMsgID, r, nil)
}

func key(clientMsgID string) string { return cmp.Or(clientMsgID, rand.Text()) }

// write is perform for what makes an event. wrong is what else is wrong with the request.
func (c *Client) write(ctx context.Context, action string, conversationID chat.ConversationID, clientMsgID string, request any, wrong error) (wire.Sent, error) {
	err := cmp.Or(chat.ValidateConversationID("conversationId", conversationID), chat.ValidateClientMsgID("clientMsgId", clientMsgID), wrong)
	if err != nil {
		return wire.Sent{}, err
	}
	a, err := c.perform(ctx, action, conversationID, clientMsgID, request)
	return a.Sent, err
}

// maxPages is more than a roster of chat.MaxCrowdMembers has in pages of 50, which are
// the smallest.
const maxPages = chat.MaxCrowdMembers/50 + 1

// maxRereads bounds how often a roster is read that changes on the way.
const maxRereads = 10

// Members returns the roster of a conversation, as it was at one moment, and its version.
// It errs with CodeForbidden in what the user has left and in a system conversation, and
// with CodeBusy where the roster changes faster than it can be read.
func (c *Client) Members(ctx context.Context, conversationID chat.ConversationID) ([]wire.Member, int64, error) {
	for range maxRereads {
		members, version, err := c.membersOnce(ctx, conversationID)
		if err != nil || version >= 0 {
			return members, version, err
		}
	}
	return nil, 0, chat.Errorf(chat.CodeBusy, "the roster of %s changed %d times while it was read; ask again", conversationID, maxRereads)
}

// membersOnce reads the roster; the version is -1 if it changed on the way.
func (c *Client) membersOnce(ctx context.Context, conversationID chat.ConversationID) ([]wire.Member, int64, error) {
	var members []wire.Member
	version, cursor := int64(0), ""
	for n := range maxPages {
		var page wire.MembersPage
		if err := c.do(ctx, wire.ActionMembers, wire.Members{ConversationID: conversationID, Cursor: cursor}, &page); err != nil {
			return nil, 0, err
		}
		if n > 0 && page.MembersVersion != version {
			return nil, -1, nil
		}
		members, version, cursor = append(members, page.Members...), page.MembersVersion, page.Cursor
		if cursor == "" {
			return members, version, nil
		}
	}
	return nil, 0, fmt.Errorf("members of %s: %w: the list does not end", conversationID, ErrProtocol)
}

// Receipts returns the members who have received and who have read the message with this
// seq; of a single conversation in which only one has written, the user alone. It errs with
// CodeNotFound for a message that the user cannot see, and with CodeForbidden as Members
// does.
func (c *Client) Receipts(ctx context.Context, conversationID chat.ConversationID, seq int64) (delivered, read []string, err error) {
	cursor := ""
	for range maxPages {
		var page wire.ReceiptsPage
		request := wire.Receipts{ConversationID: conversationID, Seq: seq, Cursor: cursor}
		if err := c.do(ctx, wire.ActionReceipts, request, &page); err != nil {
			return nil, nil, err
		}
		delivered, read, cursor = append(delivered, page.Delivered...), append(read, page.Read...), page.Cursor
		if cursor == "" {
			return delivered, read, nil
		}
	}
	return nil, nil, fmt.Errorf("receipts of %s: %w: the list does not end", conversationID, ErrProtocol)
}

// History asks the server for the messages before beforeSeq, or for the newest if that is
// 0; limit is up to wire.MaxHistoryLimit, 0 for the server's own, and a page is at most
// 32 KB. It waits for a connection. The messages are not stored. What the device knows of
// their recalls and edits is applied.
func (c *Client) History(ctx context.Context, conversationID chat.ConversationID, beforeSeq int64, limit int) (wire.HistoryPage, error) {
	request := wire.History{ConversationID: conversationID}
	if beforeSeq != 0 {
		request.BeforeSeq = &beforeSeq
	}
	if limit != 0 {
		request.Limit = &limit
	}
	var page wire.HistoryPage
	if err := c.do(ctx, wire.ActionHistory, request, &page); err != nil {
		return wire.HistoryPage{}, err
	}
	if beforeSeq != 0 && page.HasMore && page.NextBeforeSeq >= beforeSeq {
		err := violated("history of %s before %d leads on to %d", conversationID, beforeSeq, page.NextBeforeSeq)
		c.noteError(err)
		return wire.HistoryPage{}, err
	}
	for _, m := range page.Messages {
		if err := plausible(conversationID, m); err != nil {
			c.noteError(err)
			return wire.HistoryPage{}, err
		}
	}
	tidy(page.Messages)
	if err := asTold(ctx, c.cfg.Store, page.Messages); err != nil {
		return wire.HistoryPage{}, fmt.Errorf("reading from the store: %w", err)
	}
	return page, nil
}

// Ping asks the server whether it is there, and gives its time.
func (c *Client) Ping(ctx context.Context) (wire.Pong, error) {
	var pong wire.Pong
	err := c.do(ctx, wire.ActionPing, nil, &pong)
	return pong, err
}
