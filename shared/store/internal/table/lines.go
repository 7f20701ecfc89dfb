package table

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/inorder-im/inorder/shared/chat"
)

// notHidden is the condition on inbox lines that are on the user's list: those of
// conversations that the user has not both left and cleared to the end. A line that
// lacks one of the two is on it. What a hidden line holds stays, and whoever is added
// again has it on the list again.
const notHidden = "NOT clearedSeq >= leftSeq"

// LinePage reads at most limit inbox items of a user from the cursor on, without
// what the store keeps for itself, and returns the cursor of the next page, "" after the
// last.
func (db *DB) LinePage(ctx context.Context, userID, cursor string, limit int) (items []Item, next string, err error) {
	return db.ListPage(ctx, userID, cursor, limit, true)
}

// ListPage is LinePage, without hidden lines if not all are wanted.
func (db *DB) ListPage(ctx context.Context, userID, cursor string, limit int, all bool) (items []Item, next string, err error) {
	in := &dynamodb.QueryInput{
		TableName:                 &db.Inboxes,
		KeyConditionExpression:    aws.String("userId = :u AND conversationId > :c"),
		ExpressionAttributeValues: Item{":u": Str(userID), ":c": Str(max(cursor, FirstLine))},
		ConsistentRead:            aws.Bool(true),
		Limit:                     aws.Int32(int32(limit)), //nolint:gosec // bounded by the callers
	}
	if !all {
		in.FilterExpression = aws.String(notHidden)
	}
	out, err := db.Query(ctx, in)
	if err != nil {
		return nil, "", fmt.Errorf("reading the inbox of %s: %w", userID, err)
	}
	var last chat.Line
	err = Unmarshal(out.LastEvaluatedKey, &last)
	if err != nil {
		return nil, "", err
	}
	return out.Items, string(last.ConversationID), nil
}

// LinesOf returns the lines that users have of a conversation, by userId.
func (db *DB) LinesOf(ctx context.Context, conversationID chat.ConversationID, userIDs []string) (map[string]chat.Line, error) {
	items, err := db.lineItems(ctx, conversationID, userIDs)
	if err != nil {
		return nil, err
	}
	return LinesByUser(items)
}

// ReadableLinesOf is LinesOf for who changes nothing by them: damaged ones are told of and
// left out.
func (db *DB) ReadableLinesOf(ctx context.Context, conversationID chat.ConversationID, userIDs []string) (map[string]chat.Line, error) {
	items, err := db.lineItems(ctx, conversationID, userIDs)
	if err != nil {
		return nil, err
	}
	lines := make(map[string]chat.Line, len(items))
	for _, in := range items {
		var line chat.Line
		if err := Unmarshal(in, &line); err != nil {
			db.Damaged(ctx, db.Inboxes, in, err)
			continue
		}
		lines[line.UserID] = line
	}
	return lines, nil
}

func (db *DB) lineItems(ctx context.Context, conversationID chat.ConversationID, userIDs []string) ([]Item, error) {
	keys := make([]Item, len(userIDs))
	for i, id := range userIDs {
		keys[i] = LineKey(id, conversationID)
	}
	items, err := db.BatchGet(ctx, db.Inboxes, keys, true)
	if err != nil {
		return nil, fmt.Errorf("reading %d inbox lines of %s: %w", len(keys), conversationID, err)
	}
	return items, nil
}

// KeyOf returns a line of which there is only its key: that of a damaged one can be read.
func KeyOf(line Item) (key chat.Line) {
	_ = Unmarshal(Item{"userId": line["userId"], "conversationId": line["conversationId"]}, &key) // they are strings, or it were no key
	return key
}

// LinesByUser reads the lines that users have of one conversation, by userId.
func LinesByUser(items []Item) (map[string]chat.Line, error) {
	lines := make(map[string]chat.Line, len(items))
	for _, in := range items {
		var line chat.Line
		if err := Unmarshal(in, &line); err != nil {
			return nil, err
		}
		lines[line.UserID] = line
	}
	return lines, nil
}

// RosterPage reads a page of a roster, strongly consistent. Who has a damaged item
// stands in it too, as a plain member who may read nothing: without that, a roster
// would never have as many members as its head counts.
func (db *DB) RosterPage(ctx context.Context, conversationID chat.ConversationID, cursor string, limit int) (members []chat.Member, next string, err error) {
	in := &dynamodb.QueryInput{
		TableName:                 &db.Members,
		KeyConditionExpression:    aws.String("conversationId = :c"),
		ExpressionAttributeValues: Item{":c": Str(conversationID)},
		ConsistentRead:            aws.Bool(true),
		Limit:                     aws.Int32(int32(limit)), //nolint:gosec // bounded by the caller
	}
	if cursor != "" {
		in.KeyConditionExpression = aws.String("conversationId = :c AND userId > :u")
		in.ExpressionAttributeValues[":u"] = Str(cursor)
	}
	out, err := db.Query(ctx, in)
	if err != nil {
		return nil, "", fmt.Errorf("reading the roster of %s: %w", conversationID, err)
	}
	members = make([]chat.Member, len(out.Items))
	for i, in := range out.Items {
		if err := Unmarshal(in, &members[i]); err != nil {
			db.Damaged(ctx, db.Members, in, err)
			userID, _ := in["userId"].(*types.AttributeValueMemberS) // of the key, so it is there
			members[i] = chat.Member{
				ConversationID: conversationID, UserID: userID.Value, Role: chat.RolePlain, JoinSeq: chat.MaxSeq, JoinedSeq: chat.MaxSeq,
			}
			// With what else is in the head's hash, if that can be read.
			_ = Unmarshal(Item{"joinedSeq": in["joinedSeq"]}, &members[i])
		}
	}
	var last chat.Member
	err = Unmarshal(out.LastEvaluatedKey, &last)
	if err != nil {
		return nil, "", err
	}
	return members, last.UserID, nil
}

// Connections are the sockets of a user, each an element of a set.
type Connections struct {
	UserID string   `json:"userId"`
	Conns  []string `json:"conns"`
}

// The sort keys of what the store keeps for itself among a user's inbox lines.
// All begin with "#", which no conversation id does.
const (
	SyncHeadKey = "#"       // what changed last
	LargeKey    = "#large"  // the conversations that raise nothing
	SecondKey   = "#second" // what changed before that; sorts behind the two above, which are read together
	FirstLine   = "$"       // sorts after all of them and before every conversation id
)

// The bounds of the second page of a sync head.
const (
	MaxSecond      = 200
	MaxSecondBytes = 12 << 10
)

// SyncHead is the number a user's devices follow to learn which conversations
// changed. V goes up with each change; At and Long hold V as of each recent
// conversation's last change, by the length of its id. What is in neither
// changed at Floor or before and is on the second page, unless it changed at Base
// or before.
type SyncHead struct {
	V     int64                         `json:"v"`
	Floor int64                         `json:"floor"`
	Base  int64                         `json:"base"`
	At    map[chat.ConversationID]int64 `json:"at"`
	Long  map[chat.ConversationID]int64 `json:"long"`
}

// SecondPage takes what is evicted from a sync head. What it does not list either
// changed at Floor or before.
type SecondPage struct {
	UserID         string                        `json:"userId"`
	ConversationID chat.ConversationID           `json:"conversationId"`
	Version        int64                         `json:"version"` // one more with each write
	Floor          int64                         `json:"floor"`
	At             map[chat.ConversationID]int64 `json:"at"`
}

// The names of the two maps.
const (
	AtField   = "at"
	LongField = "long"
)

// MaxLarge is how many large conversations of a user are listed. It is above the
// largest quota that users meet when they are added, which several additions at a
// time may pass. Whoever has more reads the whole list whenever a device asks.
const MaxLarge = 250

// LargeList is what lists a user's conversations above chat.InboxGroupMax
// members. Their messages raise nothing; their heads are read whenever a device
// asks.
type LargeList struct {
	UserID string                `json:"userId"`
	IDs    []chat.ConversationID `json:"ids"`
	Over   bool                  `json:"over,omitempty"` // there were more than fit
}

// LargeLists reads the lists of large conversations of users, by userId.
func (db *DB) LargeLists(ctx context.Context, userIDs []string, consistent bool) (map[string]LargeList, error) {
	keys := make([]Item, len(userIDs))
	for i, id := range userIDs {
		keys[i] = LineKey(id, LargeKey)
	}
	items, err := db.BatchGet(ctx, db.Inboxes, keys, consistent)
	if err != nil {
		return nil, fmt.Errorf("reading the large conversations of %d users: %w", len(keys), err)
	}
	lists := make(map[string]LargeList, len(items))
	for _, in := range items {
		var list LargeList
		if err := Unmarshal(in, &list); err != nil {
			db.Damaged(ctx, db.Inboxes, in, err)
			continue
		}
		lists[list.UserID] = list
	}
	return lists, nil
}
