package table

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/inorder-im/inorder/shared/chat"
)

// Direction is the order in which a range is read.
type Direction bool

// The directions.
const (
	Ascending  Direction = true
	Descending Direction = false
)

// Step leads from one seq to the next, in reading order.
func (d Direction) Step() int64 {
	if d == Ascending {
		return 1
	}
	return -1
}

// maxEntry is the most bytes that a message of ours takes as JSON: later versions
// have a longer number. What is larger might not fit a frame.
const maxEntry = chat.MaxMessageBytes + 64

// Measure takes the message's size, or says why no frame can carry it.
func (mi *Message) Measure() error {
	size, err := mi.Size()
	switch {
	case err != nil:
		return err
	case size > maxEntry:
		return fmt.Errorf("the message takes %d bytes, at most %d can be", size, maxEntry)
	case mi.MessageID == "":
		return errors.New("the message has no messageId")
	}
	mi.Bytes = size + len(",")
	return nil
}

// QueryRange reads at most limit messages of a range, expired ones too, as one page
// of a Query has them: strongly consistent, and no proof of what it lacks.
func (db *DB) QueryRange(ctx context.Context, conversationID chat.ConversationID, r chat.Range, d Direction, limit int) (*dynamodb.QueryOutput, error) {
	out, err := db.Query(ctx, &dynamodb.QueryInput{
		TableName:              &db.Messages,
		KeyConditionExpression: aws.String("conversationId = :c AND seq BETWEEN :from AND :to"),
		ExpressionAttributeValues: Item{
			":c": Str(conversationID), ":from": Num(r.From), ":to": Num(r.To),
		},
		ConsistentRead:   aws.Bool(true),
		ScanIndexForward: aws.Bool(bool(d)),
		Limit:            aws.Int32(int32(limit)), //nolint:gosec // bounded by the callers
	})
	if err != nil {
		return nil, fmt.Errorf("reading messages %d to %d of %s: %w", r.From, r.To, conversationID, err)
	}
	return out, nil
}

// LookUp adds those of the messages that exist, at most MaxTransactGet of them,
// and reports whether any does, expired or not.
func (db *DB) LookUp(ctx context.Context, conversationID chat.ConversationID, seqs []int64, known map[int64]Message) (found bool, err error) {
	if len(seqs) == 0 {
		return false, nil
	}
	gets := make([]types.TransactGetItem, len(seqs))
	for i, seq := range seqs {
		gets[i] = types.TransactGetItem{Get: &types.Get{
			TableName: &db.Messages, Key: MessageKey(conversationID, seq),
		}}
	}
	out, err := db.TransactGet(ctx, gets)
	if err != nil {
		return false, fmt.Errorf("looking for %d seqs, from %d to %d, of %s: %w",
			len(seqs), slices.Min(seqs), slices.Max(seqs), conversationID, err)
	}
	for _, r := range out.Responses {
		if r.Item == nil {
			continue
		}
		found = true
		mi, err := UnmarshalMessage(r.Item)
		if err != nil {
			return false, err
		}
		if db.Expired(mi) {
			continue
		}
		if err := mi.Measure(); err != nil {
			return false, fmt.Errorf("message %d of %s: %w", mi.Seq, conversationID, err)
		}
		mi.Late = true
		known[mi.Seq] = mi
	}
	return found, nil
}

// Expired reports whether the message's time is over. DynamoDB deletes expired
// items within days, not at once, and asks readers to filter them.
func (db *DB) Expired(mi Message) bool {
	return mi.ExpiresAt != 0 && mi.ExpiresAt <= db.Now().Unix()
}
