package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// Quotas bound what requests leave behind, however slowly they come. 0 is none.
type Quotas struct {
	GroupsPerDay       int // that one user creates, by days of UTC
	SystemMembers      int // of one system conversation
	LargeConversations int // of more than chat.InboxGroupMax members, that one user is in
}

// maxQuota is more than any product needs; beyond it a number is a slip.
const maxQuota = 1_000_000

// groupsKey begins the sort key of the count of groups that a user created in a
// day, among the user's inbox lines. The table's TTL deletes it.
const groupsKey = "#quota:groups:"

// countGroup counts a new group for its creator, in the transaction that makes it:
// so what is repeated counts once. It is the transaction's last item.
func (s *Store) countGroup(m chat.Message) types.TransactWriteItem {
	at := time.UnixMilli(m.ServerTime).UTC()
	return types.TransactWriteItem{Update: &types.Update{
		TableName:                &s.db.Inboxes,
		Key:                      table.LineKey(m.SenderID, chat.ConversationID(groupsKey+at.Format(time.DateOnly))),
		UpdateExpression:         aws.String("ADD #groups :one SET expiresAt = :end"),
		ConditionExpression:      aws.String("attribute_not_exists(#groups) OR #groups < :max"),
		ExpressionAttributeNames: map[string]string{"#groups": "groups"},
		ExpressionAttributeValues: table.Item{
			":one": table.Num(1), ":end": table.Num(at.Add(2 * day).Unix()), ":max": table.Num(int64(s.quotas.GroupsPerDay)),
		},
	}}
}

func (s *Store) errGroupsToday() error {
	return &chat.Error{
		Code: chat.CodeLimit, Details: map[string]any{"max": s.quotas.GroupsPerDay},
		Message: fmt.Sprintf("a user creates at most %d groups a day; the next day begins at 0:00 UTC", s.quotas.GroupsPerDay),
	}
}

// systemMayGrow refuses to give a system conversation more readers than it may
// have.
func (s *Store) systemMayGrow(ctx context.Context, head chat.Conversation, added []string) error {
	if most := s.quotas.SystemMembers; most > 0 && head.MemberCount+len(added) > most {
		return &chat.Error{
			Code: chat.CodeLimit, Field: "recipients", Details: map[string]any{"max": most},
			Message: fmt.Sprintf("a system conversation has at most %d members; publish under another key", most),
		}
	}
	return s.mayGrow(ctx, head, added, "recipients")
}

// mayGrow refuses to add users to a conversation which is then a large one, if one
// of its members has as many of these as a user may have. Those who are members
// already count when it is this change that makes it large.
//
// The list follows the conversations' changes and is read eventually consistent: a
// user can get past the quota by what is under way at that time.
func (s *Store) mayGrow(ctx context.Context, head chat.Conversation, added []string, field string) error {
	most := s.quotas.LargeConversations
	if most == 0 || head.MemberCount+len(added) <= chat.InboxGroupMax {
		return nil
	}
	users := slices.Clone(added)
	if head.LastSeq != 0 && head.MemberCount <= chat.InboxGroupMax {
		roster, err := s.Roster(ctx, head.ConversationID)
		if err != nil {
			return err
		}
		for _, m := range roster {
			users = append(users, m.UserID)
		}
	}
	lists, err := s.db.LargeLists(ctx, users, false)
	if err != nil {
		return err
	}
	var full []string
	for _, id := range users {
		if large := lists[id].IDs; len(large) >= most && !slices.Contains(large, head.ConversationID) {
			full = append(full, id)
		}
	}
	if len(full) == 0 {
		return nil
	}
	return &chat.Error{
		Code: chat.CodeLimit, Field: field, Details: map[string]any{"max": most, "members": full},
		Message: fmt.Sprintf("%d of the users are in as many conversations of more than %d members as one may be in: %d",
			len(full), chat.InboxGroupMax, most),
	}
}

// largeSlack is by how much several additions at a time may pass the quota.
const largeSlack = 50
