package store

// Who joins a crowd (chat.MaxCrowdMembers) joins by a transaction of its own, without a
// message. README.md, "Crowds", has the arithmetic.

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// maxQuiet is how many users join quietly in one transaction of 100 items: three for
// each (roster, line, list of large conversations) beside the head.
const maxQuiet = 33

// errCrowd is how a change says that users join without the message that it was for. As
// a refusal it lets an earlier request that wrote one be found first.
var errCrowd = chat.Errorf(chat.CodeLimit, "a crowd is joined quietly")

// joinsQuietly reports whether users who are added to the conversation join quietly.
func (s *Store) joinsQuietly(head chat.Conversation, userIDs []string) bool {
	return s.maxCrowd > 0 && (head.Kind == chat.KindGroup || head.Kind == chat.KindSystem) &&
		head.MemberCount+len(userIDs) > chat.MaxGroupMembers
}

// admitQuietly makes users members who are none yet. What it did it says by a Committed
// of the conversation alone, which is a Duplicate if that was nothing.
//
// Their devices hear of the conversation by their sync heads, which are raised once they
// are members; where that got lost, by the list of large conversations, which is written
// in the same transaction as the membership.
func (s *Store) admitQuietly(ctx context.Context, conversationID chat.ConversationID, userIDs []string, field string) (Committed, error) {
	ctx, cancel := table.WithBudget(ctx)
	defer cancel()
	committed := Committed{Sent: chat.Sent{ConversationID: conversationID, Duplicate: true}}
	for users := range slices.Chunk(userIDs, maxQuiet) {
		for joined := false; !joined; {
			var some bool
			var err error
			committed.Attempts++
			some, joined, err = s.joinQuietly(ctx, conversationID, users, field, committed.Attempts)
			if err != nil {
				return committed, err
			}
			committed.Duplicate = committed.Duplicate && !some
		}
	}
	return committed, s.raiseAll(ctx, userIDs, conversationID)
}

// joinQuietly tries one transaction for those who are no members yet, if there are
// some. Where another change came before, done is false, after a while to wait.
func (s *Store) joinQuietly(ctx context.Context, conversationID chat.ConversationID, userIDs []string, field string, attempt int) (some, done bool, err error) {
	head, found, err := s.head(ctx, conversationID)
	switch {
	case err != nil:
		return false, false, err
	case !found:
		return false, false, errNoConversation()
	case head.State != chat.StateActive:
		return false, false, errDissolved()
	}
	if err := checkHead(head); err != nil {
		return false, false, err
	}
	absent, err := s.absentAmong(ctx, conversationID, userIDs)
	if err != nil || len(absent) == 0 {
		return false, true, err
	}
	if head.MemberCount+len(absent) > s.maxCrowd {
		return false, false, &chat.Error{
			Code: chat.CodeLimit, Field: field, Details: map[string]any{"max": s.maxCrowd},
			Message: fmt.Sprintf("a conversation has at most %d members", s.maxCrowd),
		}
	}
	if err := s.mayGrow(ctx, head, absent, field); err != nil {
		return false, false, err
	}
	items, err := s.quietly(ctx, head, absent)
	if err != nil {
		return false, false, err
	}
	throttled, err := s.tryQuietly(ctx, items, absent, field)
	if err == nil {
		return true, true, nil
	}
	if !errors.Is(err, errUnsettled) {
		return false, false, err
	}
	if waiting := s.db.Pace.Wait(ctx, attempt, 1, throttled); waiting != nil {
		return false, false, busy(conversationID, attempt, err)
	}
	return false, false, nil
}

func (s *Store) absentAmong(ctx context.Context, conversationID chat.ConversationID, userIDs []string) ([]string, error) {
	present, err := s.membersAmong(ctx, conversationID, userIDs)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(userIDs), func(id string) bool {
		_, is := present[id]
		return is
	}), nil
}

// quietly returns the writes by which users join: the head, and three items of each.
//
// They read from the first message on, or by the conversation's visibility from the next
// one: the one after the head as it was read, which is when they join. A message that is
// committed between that and the transaction is for them.
func (s *Store) quietly(ctx context.Context, head chat.Conversation, userIDs []string) ([]types.TransactWriteItem, error) {
	former, err := s.db.LinesOf(ctx, head.ConversationID, userIDs)
	if err != nil {
		return nil, err
	}
	next := head.LastSeq + 1
	items := make([]types.TransactWriteItem, 1, 1+3*len(userIDs))
	joined := make([]chat.Member, len(userIDs))
	for i, id := range userIDs {
		line := former[id]
		line.UserID, line.ConversationID = id, head.ConversationID
		after := line.Joined(head.Visibility, next)
		joined[i] = chat.Member{
			ConversationID: head.ConversationID, UserID: id, Role: chat.RolePlain, JoinSeq: after.JoinSeq, JoinedSeq: next,
			JoinedAt: s.db.Now().UnixMilli(),
		}
		member, err := table.Marshal(joined[i])
		if err != nil {
			return nil, err
		}
		inbox, err := s.joinInbox(line, after)
		if err != nil {
			return nil, err
		}
		list := s.enlisting(id, head.ConversationID)
		items = append(items,
			types.TransactWriteItem{Put: &types.Put{
				TableName: &s.db.Members, Item: member, ConditionExpression: aws.String("attribute_not_exists(userId)"),
			}},
			inbox,
			types.TransactWriteItem{Update: &types.Update{
				TableName: list.TableName, Key: list.Key, UpdateExpression: list.UpdateExpression,
				ConditionExpression: list.ConditionExpression, ExpressionAttributeValues: list.ExpressionAttributeValues,
			}})
	}
	items[0] = s.quietHead(head, head.JoinedQuietly(joined))
	return items, nil
}

// quietHead returns the write of a head that users join, if its roster is as read: see
// chat.Conversation.JoinedQuietly.
func (s *Store) quietHead(head, after chat.Conversation) types.TransactWriteItem {
	values := table.Item{
		":mv": table.Num(head.MembersVersion), ":mc": table.Num(int64(head.MemberCount)), ":active": table.Str(string(chat.StateActive)),
		":count": table.Num(int64(after.MemberCount)), ":version": table.Num(after.MembersVersion), ":kept": table.Num(after.Kept),
	}
	set := "SET memberCount = :count, membersVersion = :version, kept = :kept"
	if head.Hashed() {
		set += ", rosterHash = :hash, hashedVersion = :version"
		values[":hash"] = table.Unum(after.RosterHash)
	}
	return types.TransactWriteItem{Update: &types.Update{
		TableName: &s.db.Conversations, Key: table.HeadKey(head.ConversationID), UpdateExpression: &set,
		ConditionExpression:       aws.String("membersVersion = :mv AND memberCount = :mc AND #state = :active"),
		ExpressionAttributeNames:  map[string]string{"#state": "state"},
		ExpressionAttributeValues: values,
	}}
}

// tryQuietly runs the transaction. The error is errUnsettled where it may do better
// later, a refusal where a user's list of large conversations is full.
func (s *Store) tryQuietly(ctx context.Context, items []types.TransactWriteItem, userIDs []string, field string) (throttled bool, err error) {
	canceled, err := s.db.Transact(ctx, items)
	if err == nil {
		return false, nil
	}
	if canceled == nil {
		if !table.MayRetry(err) {
			return false, fmt.Errorf("adding %d users: %w", len(userIDs), err)
		}
		return table.IsThrottle(err), fmt.Errorf("%w: %w", errUnsettled, err)
	}
	reasons := canceled.CancellationReasons
	throttled, ok := table.MayPass(reasons)
	if !ok || len(reasons) != len(items) {
		return false, fmt.Errorf("adding %d users: %w", len(userIDs), canceled)
	}
	var full []string
	for i, id := range userIDs {
		if table.IsConditionFailed(reasons[3*i+3]) {
			full = append(full, id)
		}
	}
	if len(full) > 0 {
		return false, &chat.Error{
			Code: chat.CodeLimit, Field: field, Details: map[string]any{"max": table.MaxLarge, "members": full},
			Message: fmt.Sprintf("%d of the users are in as many conversations of more than %d members as can be listed", len(full), chat.InboxGroupMax),
		}
	}
	return throttled, fmt.Errorf("%w: %w", errUnsettled, canceled)
}

// raising is how many sync heads are raised at a time.
const raising = 16

// raiseAll notes in the sync heads of users that they have a conversation. One that can
// never be raised is passed over: its user's devices read the whole list.
func (s *Store) raiseAll(ctx context.Context, userIDs []string, conversationID chat.ConversationID) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(raising)
	for _, id := range userIDs {
		g.Go(func() error {
			if _, err := s.Raise(ctx, id, []chat.ConversationID{conversationID}); err != nil && !Permanent(err) {
				return busy(conversationID, 1, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// Crowd reads a head that is followed by its roster, in pages: who is on one that is read
// after the head is a member at the head's LastSeq, but for those whom a message up to
// there removes at this moment.
func (s *Store) Crowd(ctx context.Context, conversationID chat.ConversationID) (head chat.Conversation, found bool, err error) {
	return s.head(ctx, conversationID)
}

// CrowdPage reads at most limit members after the cursor, ordered by userId, strongly
// consistent, and returns the cursor of the next page, "" after the last.
func (s *Store) CrowdPage(ctx context.Context, conversationID chat.ConversationID, cursor string, limit int) (members []chat.Member, next string, err error) {
	return s.db.RosterPage(ctx, conversationID, cursor, limit)
}
