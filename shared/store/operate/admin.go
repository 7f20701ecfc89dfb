package operate

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/smithy-go"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// Head reads the head of a conversation. NotFound (*chat.Error) if there is none.
func (o *Operator) Head(ctx context.Context, conversationID chat.ConversationID) (chat.Conversation, error) {
	var head chat.Conversation
	found, err := o.db.Get(ctx, o.db.Conversations, table.HeadKey(conversationID), &head)
	if err == nil && !found {
		err = chat.FieldErrorf(chat.CodeNotFound, "conversationId", "there is no conversation %q", conversationID)
	}
	return head, err
}

// Heads returns the heads of all conversations, in no order, from the cursor on: a
// page of at most limit, and the next cursor, "" after the last. Damaged ones are told
// of, counted and left out.
func (o *Operator) Heads(ctx context.Context, cursor string, limit int) (heads []chat.Conversation, damaged int, next string, err error) {
	in := &dynamodb.ScanInput{TableName: &o.db.Conversations, Limit: aws.Int32(int32(limit))} //nolint:gosec // bounded by the caller
	if cursor != "" {
		in.ExclusiveStartKey = table.HeadKey(chat.ConversationID(cursor))
	}
	out, err := o.db.Scan(ctx, in)
	if err != nil {
		return nil, 0, "", fmt.Errorf("listing conversations: %w", err)
	}
	heads = make([]chat.Conversation, 0, len(out.Items))
	for _, in := range out.Items {
		var head chat.Conversation
		if err := table.Unmarshal(in, &head); err != nil {
			o.db.Damaged(ctx, o.db.Conversations, in, err)
			damaged++
			continue
		}
		heads = append(heads, head)
	}
	var last chat.Conversation
	err = table.Unmarshal(out.LastEvaluatedKey, &last)
	if err != nil {
		return nil, 0, "", err
	}
	return heads, damaged, string(last.ConversationID), nil
}

// LedgerPage reads at most limit messages of a range as they are, ascending, and
// returns the range that is left, which is empty at the end. Expired messages are
// left out, and damaged ones, which are told of. Unlike Entries it takes what is being
// written at this moment for missing.
func (o *Operator) LedgerPage(ctx context.Context, conversationID chat.ConversationID, r chat.Range, limit int) ([]chat.Message, chat.Range, error) {
	out, err := o.db.QueryRange(ctx, conversationID, r, table.Ascending, limit)
	if err != nil {
		return nil, chat.Range{}, err
	}
	var messages []chat.Message
	left := chat.Range{From: r.To + 1, To: r.To}
	for _, in := range out.Items {
		seq, _ := table.SeqOf(in)
		left.From = seq + 1
		m, err := table.UnmarshalMessage(in)
		if err != nil {
			o.db.Damaged(ctx, o.db.Messages, in, err)
			continue
		}
		if !o.db.Expired(m) {
			messages = append(messages, m.Message)
		}
	}
	return messages, left, nil
}

// Lines returns the lines that users have of a conversation. Users without one are
// absent from the map, and those of a damaged one, which is told of.
func (o *Operator) Lines(ctx context.Context, conversationID chat.ConversationID, userIDs []string) (map[string]chat.Line, error) {
	return o.db.ReadableLinesOf(ctx, conversationID, userIDs)
}

// LinesOf returns a user's lines of all conversations, by conversation id: at most
// limit after the cursor, and the next cursor, "" after the last. Of a damaged one it has
// the conversation alone, and tells of it.
func (o *Operator) LinesOf(ctx context.Context, userID, cursor string, limit int) (lines []chat.Line, next string, err error) {
	items, next, err := o.db.LinePage(ctx, userID, cursor, limit)
	if err != nil {
		return nil, "", err
	}
	lines = make([]chat.Line, len(items))
	for i, in := range items {
		if err := table.Unmarshal(in, &lines[i]); err != nil {
			o.db.Damaged(ctx, o.db.Inboxes, in, err)
			lines[i] = table.KeyOf(in)
		}
	}
	return lines, next, nil
}

// byMessageID is the index of the Messages table.
const byMessageID = "byMessageId"

// ErrNoIndex says that the stack does not index messages by their id.
var ErrNoIndex = errors.New("the table has no index " + byMessageID)

// FindMessage returns the messages with this id: one, unless something is wrong. The
// index it asks is eventually consistent, so a message that was sent this second
// may not be found. NotFound (*chat.Error) if there is none, ErrNoIndex if there is no
// index, which ScanMessage does without.
func (o *Operator) FindMessage(ctx context.Context, messageID string) ([]chat.Message, error) {
	out, err := o.db.Query(ctx, &dynamodb.QueryInput{
		TableName:                 &o.db.Messages,
		IndexName:                 aws.String(byMessageID),
		KeyConditionExpression:    aws.String("messageId = :id"),
		ExpressionAttributeValues: table.Item{":id": table.Str(messageID)},
	})
	if isNoIndex(err) {
		return nil, ErrNoIndex
	}
	if err != nil {
		return nil, fmt.Errorf("looking for message %s: %w", messageID, err)
	}
	return o.messagesAt(ctx, messageID, out.Items)
}

// ScanMessage is FindMessage without an index: it reads all messages of the stack.
func (o *Operator) ScanMessage(ctx context.Context, messageID string) ([]chat.Message, error) {
	in := &dynamodb.ScanInput{
		TableName:                 &o.db.Messages,
		FilterExpression:          aws.String("messageId = :id"),
		ProjectionExpression:      aws.String("conversationId, seq"),
		ExpressionAttributeValues: table.Item{":id": table.Str(messageID)},
	}
	var keys []table.Item
	for {
		out, err := o.db.Scan(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("looking for message %s: %w", messageID, err)
		}
		keys = append(keys, out.Items...)
		if in.ExclusiveStartKey = out.LastEvaluatedKey; in.ExclusiveStartKey == nil {
			return o.messagesAt(ctx, messageID, keys)
		}
	}
}

// isNoIndex reports whether a Query failed for want of its index: a
// ValidationException that says so, which no other of these queries can.
func isNoIndex(err error) bool {
	e, ok := errors.AsType[smithy.APIError](err)
	return ok && e.ErrorCode() == "ValidationException" && strings.Contains(strings.ToLower(e.ErrorMessage()), "index")
}

func (o *Operator) messagesAt(ctx context.Context, messageID string, keys []table.Item) ([]chat.Message, error) {
	var messages []chat.Message
	var damage error
	for _, in := range keys {
		var key table.Message
		if err := table.Unmarshal(in, &key); err != nil {
			return nil, err
		}
		var m table.Message
		found, err := o.db.Get(ctx, o.db.Messages, table.MessageKey(key.ConversationID, key.Seq), &m)
		if errors.Is(err, table.ErrDamaged) {
			o.db.Damaged(ctx, o.db.Messages, in, err)
			damage = fmt.Errorf("message %s, at seq %d of %s: %w", messageID, key.Seq, key.ConversationID, err)
			continue
		}
		if err != nil {
			return nil, err
		}
		if found && !o.db.Expired(m) {
			m.Message.Data = []byte(m.Data)
			messages = append(messages, m.Message)
		}
	}
	if len(messages) == 0 && damage != nil {
		return nil, damage
	}
	if len(messages) == 0 {
		return nil, chat.FieldErrorf(chat.CodeNotFound, "messageId", "there is no message %q", messageID)
	}
	return messages, nil
}

// ChangedBetween calls f for each conversation whose last change is in a stretch of
// time, both ends in ms. It reads all heads; damaged ones are told of and left out.
func (o *Operator) ChangedBetween(ctx context.Context, from, to int64, f func(chat.Conversation) error) error {
	in := &dynamodb.ScanInput{
		TableName:                 &o.db.Conversations,
		FilterExpression:          aws.String("updatedAt BETWEEN :from AND :to"),
		ExpressionAttributeValues: table.Item{":from": table.Num(from), ":to": table.Num(to)},
	}
	for {
		out, err := o.db.Scan(ctx, in)
		if err != nil {
			return fmt.Errorf("looking for conversations that changed: %w", err)
		}
		for _, in := range out.Items {
			var head chat.Conversation
			if err := table.Unmarshal(in, &head); err != nil {
				o.db.Damaged(ctx, o.db.Conversations, in, err)
				continue
			}
			if err := f(head); err != nil {
				return err
			}
		}
		if in.ExclusiveStartKey = out.LastEvaluatedKey; in.ExclusiveStartKey == nil {
			return nil
		}
	}
}
