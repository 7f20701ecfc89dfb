package table

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/oklog/ulid/v2"

	"github.com/inorder-im/inorder/shared/chat"
)

const (
	// intentFormat is the form in which this version writes intents. It reads no other.
	intentFormat = 1

	// intentLife is how old an intent may become and still be committed. It is well
	// above what a function may take, so that its owner has long answered or is dead; a
	// message that shows up later than that would surprise its sender.
	intentLife = 30 * time.Second

	// intentExpiry is when the table's TTL takes an intent that its owner left behind.
	intentExpiry = time.Hour

	// Lanes is how many partitions the intents of one conversation lie in. A message
	// takes three write units there, one to be put and two to be taken out in the
	// transaction that commits it. A partition has a thousand a second, so one would end
	// at 333 messages a second, which is below what the ledger takes.
	Lanes = 2
)

// Intent is a message that waits for its commit.
type Intent struct {
	LaneID      string  `json:"laneId"`
	MessageID   string  `json:"messageId"`
	Format      int     `json:"format"`
	Removals    int64   `json:"removals"` // the head's, as of which its sender is known to be a member
	Fingerprint string  `json:"fingerprint"`
	Message     Message `json:"message"` // without seq
	ExpiresAt   int64   `json:"expiresAt"`
}

// NewIntent makes the intent of a message that is complete but for its seq.
func NewIntent(m chat.Message, fingerprint string, removals int64, now time.Time) Intent {
	m.Seq = 0
	return Intent{
		LaneID: laneOf(m), MessageID: m.MessageID, Format: intentFormat, Removals: removals, Fingerprint: fingerprint,
		Message: Message{Message: m, Data: string(m.Data), Via: m.Via}, ExpiresAt: now.Add(intentExpiry).Unix(),
	}
}

// laneOf returns the lane of its conversation that a message waits in.
func laneOf(m chat.Message) string {
	return LaneID(m.ConversationID, int(m.MessageID[len(m.MessageID)-1])%Lanes)
}

// LaneID is the partition key of one of a conversation's Lanes.
func LaneID(conversationID chat.ConversationID, n int) string {
	return string(conversationID) + "#" + strconv.Itoa(n)
}

// Key is the key of the intent.
func (i Intent) Key() Item { return Item{"laneId": Str(i.LaneID), "messageId": Str(i.MessageID)} }

// UnmarshalIntent reads an intent that is to be committed. The error says what is
// wrong with it: it is of another version of the product, or damaged.
func UnmarshalIntent(in Item, conversationID chat.ConversationID) (Intent, error) {
	var i Intent
	if err := Unmarshal(in, &i); err != nil {
		return Intent{}, err
	}
	if i.Format != intentFormat {
		return Intent{}, fmt.Errorf("the intent is of format %d, not %d", i.Format, intentFormat)
	}
	m := &i.Message.Message
	if i.Message.Data != "" {
		m.Data = []byte(i.Message.Data)
	}
	m.Via = i.Message.Via
	if err := m.Validate(); err != nil {
		return Intent{}, err
	}
	if m.ConversationID != conversationID || m.MessageID != i.MessageID || m.Event != nil || m.ServerTime <= 0 || i.Fingerprint == "" || laneOf(*m) != i.LaneID {
		return Intent{}, errors.New("the intent is not what its key says")
	}
	return i, nil
}

// OldestIntents reads at most limit items of one lane, the oldest first, but for those
// that are too old to be committed.
func (db *DB) OldestIntents(ctx context.Context, laneID string, limit int, consistent bool) ([]Item, error) {
	var since ulid.ULID
	if err := since.SetTime(ulid.Timestamp(db.Now().Add(-intentLife))); err != nil {
		return nil, fmt.Errorf("the clock is wrong: %w", err)
	}
	out, err := db.Query(ctx, &dynamodb.QueryInput{
		TableName:                 &db.Lane,
		KeyConditionExpression:    aws.String("laneId = :l AND messageId > :since"),
		ExpressionAttributeValues: Item{":l": Str(laneID), ":since": Str(since.String())},
		ConsistentRead:            aws.Bool(consistent),
		Limit:                     aws.Int32(int32(limit)), //nolint:gosec // bounded by the callers
	})
	if err != nil {
		return nil, fmt.Errorf("reading the lane %s: %w", laneID, err)
	}
	return out.Items, nil
}
