package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// Request is what every change of a conversation carries: who asks, and the
// idempotency key.
type Request struct {
	UserID      string
	DeviceID    string
	ClientMsgID string
}

// event makes the message that tells of a change.
func (s *Store) event(r Request, conversationID chat.ConversationID, e chat.Event) chat.Message {
	return s.stamp(chat.Message{
		ConversationID: conversationID,
		ClientMsgID:    r.ClientMsgID,
		SenderID:       r.UserID,
		SenderDeviceID: r.DeviceID,
		MessageType:    chat.TypeEvent,
		Event:          &e,
	})
}

// CreateGroup makes a group of the caller, who owns it, and the given users. Its
// first message is the event that they joined.
//
// Beside the errors of Append it refuses with BadRequest a bad title, members
// named twice or the caller among them, and with Limit more than
// chat.MaxRosterChange users in all, or than a group may have, or what a quota does
// not allow; and with Forbidden any group where the Store is closed.
func (s *Store) CreateGroup(ctx context.Context, r Request, title string, userIDs []string, v chat.Visibility) (Line, Committed, error) {
	w, err := s.newGroup(r, title, userIDs, v)
	if err != nil {
		return Line{}, Committed{}, err
	}
	w.counted = s.quotas.GroupsPerDay > 0
	committed, err := s.create(ctx, w)
	if err != nil {
		return Line{}, committed, err
	}
	if committed.Duplicate {
		line, err := s.Line(ctx, r.UserID, committed.ConversationID)
		return line, committed, err
	}
	w.message.Seq = committed.Seq
	return Line{
		View: chat.View{
			Head: w.headAfter(w.create.head, changes{}),
			Line: chat.Line{UserID: r.UserID, ConversationID: committed.ConversationID, JoinSeq: 1, ReadSeq: 1, DeliveredSeq: 1},
		},
		Last: &w.message,
	}, committed, nil
}

// create commits what a user asks to create. Where the Store is closed that is
// only what was created before it was.
func (s *Store) create(ctx context.Context, w write) (Committed, error) {
	if !s.closed {
		return s.commit(ctx, w)
	}
	if err := w.message.Validate(); err != nil {
		return Committed{}, err
	}
	return s.refuse(ctx, w, 0, errClosed("", "a group"))
}

func validateGroup(r Request, title string, userIDs []string, v chat.Visibility) error {
	if err := chat.ValidateTitle("title", title); err != nil {
		return err
	}
	if v != chat.VisibleAll && v != chat.VisibleSinceJoin {
		return chat.FieldErrorf(chat.CodeBadRequest, "visibility", "%q is no visibility; use all or sinceJoin", v)
	}
	if len(userIDs)+1 > chat.MaxRosterChange {
		return &chat.Error{
			Code: chat.CodeLimit, Field: "members", Details: map[string]any{"max": chat.MaxRosterChange - 1},
			Message: fmt.Sprintf("a group begins with at most %d others; add the rest with addMembers", chat.MaxRosterChange-1),
		}
	}
	if slices.Contains(userIDs, r.UserID) {
		return chat.FieldErrorf(chat.CodeBadRequest, "members", "you are a member of what you create; name the others")
	}
	if len(userIDs) == 0 {
		return nil // a group may begin with its owner alone
	}
	return chat.ValidateMembers("members", userIDs)
}

// Line returns the user's line of one conversation.
func (s *Store) Line(ctx context.Context, userID string, conversationID chat.ConversationID) (Line, error) {
	v, err := s.view(ctx, userID, conversationID)
	if err != nil {
		return Line{}, err
	}
	lines, err := s.listed(ctx, []chat.View{v})
	if err != nil {
		return Line{}, err
	}
	return lines[0], nil
}

// groupChange commits an event of a group. may is the right it takes, and change
// what it does.
func (s *Store) groupChange(ctx context.Context, r Request, conversationID chat.ConversationID, e chat.Event, may chat.Action, change changeFunc) (Committed, error) {
	return s.commit(ctx, write{
		message: s.event(r, conversationID, e),
		// Whoever wants to leave is never refused for what became of the group.
		anyState: may == chat.ActLeave,
		change: func(ctx context.Context, head chat.Conversation, self chat.Member) (changesFunc, error) {
			if head.Kind != chat.KindGroup {
				return nil, errNoGroup()
			}
			if !self.Role.May(may, chat.RolePlain) {
				return nil, chat.Errorf(chat.CodeForbidden, "your role is %s, which may not %s", self.Role, may)
			}
			return change(ctx, head, self)
		},
	})
}

func errNoGroup() error {
	return chat.FieldErrorf(chat.CodeForbidden, "conversationId", "this is no group")
}

// AddMembers adds users to a group. They read from the first message on, or by
// the group's visibility from the event that they joined. Who was a member
// before reads what there was until then, and what there is from now on; who is
// taken back by the very next message has not been away. Of the times before, the
// last chat.MaxPastStretches are kept.
//
// Beside the errors of Append: Forbidden without the right, for one of them who left
// the group lately without being removed (see WithRejoin), or where the Store is
// closed; BadRequest if one of them is a member already, Limit for too many in one
// request or in the group, or where one is in too many large conversations.
func (s *Store) AddMembers(ctx context.Context, r Request, conversationID chat.ConversationID, userIDs []string) (Committed, error) {
	if err := chat.ValidateMembers("members", userIDs); err != nil {
		return Committed{}, err
	}
	e := chat.Event{Kind: chat.EventMembers, Added: userIDs}
	return s.groupChange(ctx, r, conversationID, e, chat.ActAdd, func(ctx context.Context, head chat.Conversation, _ chat.Member) (changesFunc, error) {
		if s.closed {
			return nil, chat.FieldErrorf(chat.CodeForbidden, "members", "here only the product adds members to a group")
		}
		return s.adding(ctx, head, userIDs, s.rejoin)
	})
}

// AdmitMembers adds users to a group as AddMembers does, for the product's own
// side: it asks for no one's right, does so where the Store is closed, and takes
// in who has left. The event's sender is chat.SystemSender. It is idempotent on
// clientMsgID, among all that the product writes.
//
// Where the conversation is a crowd, or becomes one by it (see WithMaxCrowdMembers),
// they join quietly, and a system conversation takes them too: no message tells of it,
// and what it became is without seq and messageId. Those who are members already are passed
// over then, and it is a Duplicate if all are. So it may be repeated, but for one who has
// left meanwhile.
func (s *Store) AdmitMembers(ctx context.Context, conversationID chat.ConversationID, userIDs []string, clientMsgID string) (Committed, error) {
	if err := chat.ValidateMembers("members", userIDs); err != nil {
		return Committed{}, err
	}
	r := Request{UserID: chat.SystemSender, ClientMsgID: clientMsgID}
	committed, err := s.commit(ctx, write{
		message: s.event(r, conversationID, chat.Event{Kind: chat.EventMembers, Added: userIDs}),
		trusted: true,
		change: func(ctx context.Context, head chat.Conversation, _ chat.Member) (changesFunc, error) {
			switch {
			case s.joinsQuietly(head, userIDs):
				return nil, errCrowd
			case head.Kind != chat.KindGroup:
				return nil, errNoGroup()
			case head.State != chat.StateActive:
				return nil, errDissolved()
			}
			return s.adding(ctx, head, userIDs, 0)
		},
	})
	if errors.Is(err, errCrowd) { // and no earlier request of this clientMsgID was an event
		return s.admitQuietly(ctx, conversationID, userIDs, "members")
	}
	return committed, err
}

// adding plans that users who are no members join a group, none of whom left it
// by itself within the time given.
func (s *Store) adding(ctx context.Context, head chat.Conversation, userIDs []string, within time.Duration) (changesFunc, error) {
	if head.MemberCount+len(userIDs) > s.maxMembers {
		return nil, s.errTooLarge()
	}
	present, err := s.membersAmong(ctx, head.ConversationID, userIDs)
	if err != nil {
		return nil, err
	}
	if len(present) > 0 {
		return nil, membersError("already a member", slices.DeleteFunc(slices.Clone(userIDs), func(id string) bool {
			return present[id].UserID == ""
		}))
	}
	if err := s.mayGrow(ctx, head, userIDs, "members"); err != nil {
		return nil, err
	}
	return s.joining(ctx, head.ConversationID, userIDs, within)
}

// mayRejoin refuses those of the users who left by themselves within the time
// given: whoever wants to be out of a group is not pulled back into it.
func (s *Store) mayRejoin(userIDs []string, former map[string]chat.Line, within time.Duration) error {
	var out []string
	for _, id := range userIDs {
		if at := former[id].LeftAt; at != 0 && s.db.Now().Sub(time.UnixMilli(at)) < within {
			out = append(out, id)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return &chat.Error{
		Code: chat.CodeForbidden, Field: "members", Details: map[string]any{"members": out},
		Message: fmt.Sprintf("%d of the users named left this group by themselves; for %d days after that only the product adds them again, so leave them out",
			len(out), within/day),
	}
}

func (s *Store) errTooLarge() error {
	return &chat.Error{
		Code: chat.CodeLimit, Field: "members", Details: map[string]any{"max": s.maxMembers},
		Message: fmt.Sprintf("a group has at most %d members", s.maxMembers),
	}
}

// joining plans that users join with a message; see mayRejoin for who may not.
//
// It and what follows make the writes conditional on what was read, beside the
// head: reads that are not part of a transaction can show a head from after a
// change of the roster with a roster or an inbox from before it. Whose inbox is
// as read is no member.
func (s *Store) joining(ctx context.Context, conversationID chat.ConversationID, userIDs []string, within time.Duration) (changesFunc, error) {
	former, err := s.db.LinesOf(ctx, conversationID, userIDs)
	if err != nil {
		return nil, err
	}
	if err := s.mayRejoin(userIDs, former, within); err != nil {
		return nil, err
	}
	return func(head chat.Conversation, m *chat.Message) (changes, error) {
		out := changes{roster: true}
		for _, id := range userIDs {
			line := former[id]
			line.UserID, line.ConversationID = id, conversationID
			after := line.Joined(head.Visibility, m.Seq)
			joined := chat.Member{
				ConversationID: conversationID, UserID: id, Role: chat.RolePlain, JoinSeq: after.JoinSeq, JoinedSeq: m.Seq, JoinedAt: m.ServerTime,
			}
			out.joined = append(out.joined, joined)
			member, err := table.Marshal(joined)
			if err != nil {
				return changes{}, err
			}
			inbox, err := s.joinInbox(line, after)
			if err != nil {
				return changes{}, err
			}
			out.items = append(out.items, types.TransactWriteItem{Put: &types.Put{TableName: &s.db.Members, Item: member}}, inbox)
		}
		return out, nil
	}, nil
}

// joinInbox returns the write of the line of one who joins. A former member's line is
// updated, not put, for its owner may be raising its positions at this moment.
func (s *Store) joinInbox(was, line chat.Line) (types.TransactWriteItem, error) {
	if was.LeftSeq == 0 {
		fresh, err := table.Marshal(line)
		if err != nil {
			return types.TransactWriteItem{}, err
		}
		return types.TransactWriteItem{Put: &types.Put{
			TableName: &s.db.Inboxes, Item: fresh, ConditionExpression: aws.String("attribute_not_exists(userId)"),
		}}, nil
	}
	values, err := table.Marshal(struct {
		Past []chat.Range `json:":past"`
		Join int64        `json:":join"`
		Left int64        `json:":left"`
	}{line.Past, line.JoinSeq, was.LeftSeq})
	if err != nil {
		return types.TransactWriteItem{}, err
	}
	return types.TransactWriteItem{Update: &types.Update{
		TableName:                 &s.db.Inboxes,
		Key:                       table.LineKey(line.UserID, line.ConversationID),
		UpdateExpression:          aws.String("SET joinSeq = :join, past = :past REMOVE leftSeq, leftHead, leftAt"),
		ConditionExpression:       aws.String("leftSeq = :left"),
		ExpressionAttributeValues: values,
	}}, nil
}

// RemoveMembers removes users from a group. They read up to the event that says
// so, and hear nothing after.
//
// Beside the errors of Append: Forbidden without the right over one of them,
// BadRequest if one of them is no member or is the caller.
func (s *Store) RemoveMembers(ctx context.Context, r Request, conversationID chat.ConversationID, userIDs []string) (Committed, error) {
	if err := chat.ValidateKnownMembers("members", userIDs); err != nil {
		return Committed{}, err
	}
	if slices.Contains(userIDs, r.UserID) {
		return Committed{}, chat.FieldErrorf(chat.CodeBadRequest, "members", "to go yourself, use leave")
	}
	e := chat.Event{Kind: chat.EventMembers, Removed: userIDs}
	return s.groupChange(ctx, r, conversationID, e, chat.ActRemove, func(ctx context.Context, _ chat.Conversation, self chat.Member) (changesFunc, error) {
		present, err := s.membersAmong(ctx, conversationID, userIDs)
		if err != nil {
			return nil, err
		}
		var absent []string
		var targets []chat.Member
		for _, id := range userIDs {
			target, ok := present[id]
			switch {
			case !ok:
				absent = append(absent, id)
			case !self.Role.May(chat.ActRemove, target.Role):
				return nil, chat.FieldErrorf(chat.CodeForbidden, "members", "your role is %s, which may not remove %s, who is %s", self.Role, id, target.Role)
			}
			targets = append(targets, target)
		}
		if len(absent) > 0 {
			return nil, membersError("no member", absent)
		}
		return s.leaving(targets), nil
	})
}

// Leave takes the caller out of a group, a dissolved one too. A group whose owner
// leaves passes on to chat.Successor; one whose last member leaves is dissolved.
func (s *Store) Leave(ctx context.Context, r Request, conversationID chat.ConversationID) (Committed, error) {
	e := chat.Event{Kind: chat.EventMembers, Removed: []string{r.UserID}}
	return s.groupChange(ctx, r, conversationID, e, chat.ActLeave, func(ctx context.Context, head chat.Conversation, self chat.Member) (changesFunc, error) {
		leave := s.leaving([]chat.Member{self})
		if self.Role != chat.RoleOwner {
			return leave, nil
		}
		roster, err := s.Roster(ctx, conversationID)
		if err != nil {
			return nil, err
		}
		if !head.IsRoster(roster) {
			return nil, errUnsettled // who is not seen yet must not be passed over
		}
		next, ok := chat.Successor(roster, r.UserID)
		return func(head chat.Conversation, m *chat.Message) (changes, error) {
			if !ok {
				head.State = chat.StateDissolved
				out, err := leave(head, m)
				out.dissolved = true
				return out, err
			}
			event := *m.Event // the request's own stays as it is, for the next attempt
			event.Owner = next.UserID
			m.Event = &event
			out, err := leave(head, m)
			out.items = append(out.items, s.setRole(next, chat.RoleOwner))
			return out, err
		}, nil
	})
}

// SetRole gives a member another role. To make someone owner is to pass the
// group on: the caller becomes an admin.
func (s *Store) SetRole(ctx context.Context, r Request, conversationID chat.ConversationID, userID string, role chat.Role) (Committed, error) {
	if err := chat.ValidateKnownUserID("userId", userID); err != nil {
		return Committed{}, err
	}
	if err := chat.ValidateRole("role", role); err != nil {
		return Committed{}, err
	}
	if userID == r.UserID {
		return Committed{}, chat.FieldErrorf(chat.CodeBadRequest, "userId", "your own role changes when you make another the owner")
	}
	e := chat.Event{Kind: chat.EventMembers, Member: userID, Role: role}
	if role == chat.RoleOwner {
		e.Owner = userID
	}
	return s.groupChange(ctx, r, conversationID, e, chat.ActSetRole, func(ctx context.Context, _ chat.Conversation, self chat.Member) (changesFunc, error) {
		present, err := s.membersAmong(ctx, conversationID, []string{userID})
		if err != nil {
			return nil, err
		}
		member, ok := present[userID]
		if !ok {
			return nil, membersError("no member", []string{userID})
		}
		out := changes{roster: true, items: []types.TransactWriteItem{s.setRole(member, role)}}
		if role == chat.RoleOwner {
			out.items = append(out.items, s.setRole(self, chat.RoleAdmin))
		}
		return func(chat.Conversation, *chat.Message) (changes, error) { return out, nil }, nil
	})
}

// SetTitle renames a group.
func (s *Store) SetTitle(ctx context.Context, r Request, conversationID chat.ConversationID, title string) (Committed, error) {
	if err := chat.ValidateTitle("title", title); err != nil {
		return Committed{}, err
	}
	e := chat.Event{Kind: chat.EventTitle, Title: title}
	return s.groupChange(ctx, r, conversationID, e, chat.ActSetTitle, func(context.Context, chat.Conversation, chat.Member) (changesFunc, error) {
		return nothingElse, nil
	})
}

// Dissolve ends a group: its members can read it and leave it, and nothing else
// is written to it any more.
func (s *Store) Dissolve(ctx context.Context, r Request, conversationID chat.ConversationID) (Committed, error) {
	e := chat.Event{Kind: chat.EventDissolve}
	return s.groupChange(ctx, r, conversationID, e, chat.ActDissolve, func(context.Context, chat.Conversation, chat.Member) (changesFunc, error) {
		return nothingElse, nil
	})
}

// leaving plans that memberships end with a message, if they are still as read. The
// head as it then is goes into each one's inbox: what becomes of the group later is
// not for those who left. The time goes there for one who wrote the message itself;
// see mayRejoin.
func (s *Store) leaving(members []chat.Member) changesFunc {
	return func(head chat.Conversation, m *chat.Message) (changes, error) {
		out := changes{roster: true, left: members}
		head = head.With(*m)
		head.MembersVersion++
		head.RosterHash, head.HashedVersion, head.Kept, head.PushAt, head.RemovedAt = 0, 0, 0, 0, 0 // of use where the roster is read, which is not for them
		last, err := table.Marshal(head)
		if err != nil {
			return changes{}, err
		}
		for _, member := range members {
			set, values := "SET leftSeq = :left, leftHead = :head", table.Item{
				":left": table.Num(m.Seq), ":head": &types.AttributeValueMemberM{Value: last},
			}
			if member.UserID == m.SenderID {
				set += ", leftAt = :at"
				values[":at"] = table.Num(m.ServerTime)
			}
			out.items = append(out.items,
				types.TransactWriteItem{Delete: &types.Delete{
					TableName:                 &s.db.Members,
					Key:                       table.MemberKey(head.ConversationID, member.UserID),
					ConditionExpression:       aws.String("attribute_exists(userId) AND (attribute_not_exists(joinedSeq) OR joinedSeq = :joined)"),
					ExpressionAttributeValues: table.Item{":joined": table.Num(member.JoinedSeq)},
				}},
				types.TransactWriteItem{Update: &types.Update{
					TableName:                 &s.db.Inboxes,
					Key:                       table.LineKey(member.UserID, head.ConversationID),
					UpdateExpression:          &set,
					ExpressionAttributeValues: values,
				}})
		}
		return out, nil
	}
}

// setRole changes a member's role, if it is still as read.
func (s *Store) setRole(member chat.Member, role chat.Role) types.TransactWriteItem {
	return types.TransactWriteItem{Update: &types.Update{
		TableName:                 &s.db.Members,
		Key:                       table.MemberKey(member.ConversationID, member.UserID),
		UpdateExpression:          aws.String("SET #role = :role"),
		ConditionExpression:       aws.String("#role = :was"),
		ExpressionAttributeNames:  map[string]string{"#role": "role"},
		ExpressionAttributeValues: table.Item{":role": table.Str(string(role)), ":was": table.Str(string(member.Role))},
	}}
}

// membersAmong returns those of the users who are members, by userId.
func (s *Store) membersAmong(ctx context.Context, conversationID chat.ConversationID, userIDs []string) (map[string]chat.Member, error) {
	keys := make([]table.Item, len(userIDs))
	for i, id := range userIDs {
		keys[i] = table.MemberKey(conversationID, id)
	}
	items, err := s.db.BatchGet(ctx, s.db.Members, keys, true)
	if err != nil {
		return nil, fmt.Errorf("reading %d members of %s: %w", len(keys), conversationID, err)
	}
	members := make(map[string]chat.Member, len(items))
	for _, in := range items {
		var m chat.Member
		if err := table.Unmarshal(in, &m); err != nil {
			return nil, err
		}
		members[m.UserID] = m
	}
	return members, nil
}

func membersError(what string, userIDs []string) error {
	return &chat.Error{
		Code: chat.CodeBadRequest, Field: "members", Details: map[string]any{"members": userIDs},
		Message: fmt.Sprintf("%d of the users named: %s", len(userIDs), what),
	}
}
