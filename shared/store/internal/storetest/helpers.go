package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
)

// ContextFor is a context of the test that ends in so many milliseconds.
func ContextFor(t testing.TB, ms int) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), time.Duration(ms)*time.Millisecond)
}

// ChatIn gives a message a conversation.
func ChatIn(m chat.Message, conversationID chat.ConversationID) chat.Message {
	m.ConversationID = conversationID
	return m
}

// Put writes an item as an operator, or an earlier version, might.
func (c *Cloud) Put(table string, v map[string]any) {
	c.T.Helper()
	in, err := attributevalue.MarshalMap(v)
	require.NoError(c.T, err)
	_, err = c.DB.PutItem(context.Background(), &dynamodb.PutItemInput{TableName: &table, Item: in})
	require.NoError(c.T, err)
}

// Update changes an item by an expression on one string set, :v.
func (c *Cloud) Update(table string, key map[string]any, expression, element string) {
	c.T.Helper()
	k, err := attributevalue.MarshalMap(key)
	require.NoError(c.T, err)
	_, err = c.DB.UpdateItem(context.Background(), &dynamodb.UpdateItemInput{
		TableName: &table, Key: k, UpdateExpression: &expression,
		ExpressionAttributeValues: map[string]types.AttributeValue{":v": &types.AttributeValueMemberSS{Value: []string{element}}},
	})
	require.NoError(c.T, err)
}

// DeleteMessage takes a message out of its ledger.
func (c *Cloud) DeleteMessage(conversationID chat.ConversationID, seq int64) {
	c.T.Helper()
	key, err := attributevalue.MarshalMap(map[string]any{"conversationId": conversationID, "seq": seq})
	require.NoError(c.T, err)
	_, err = c.DB.DeleteItem(context.Background(), &dynamodb.DeleteItemInput{TableName: &c.Tables.Messages, Key: key})
	require.NoError(c.T, err)
}

// Bill is what transactions of writes and Queries were billed.
type Bill struct {
	Writes, Reads float64 // units
	Queries       int
}

// Charge has the requests of a client say what they are billed, and adds it up.
func (b *Bill) Charge(stack *middleware.Stack) error {
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("bill",
		func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
			switch request := in.Parameters.(type) {
			case *dynamodb.TransactWriteItemsInput:
				request.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
			case *dynamodb.QueryInput:
				request.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
			}
			out, meta, err := next.HandleInitialize(ctx, in)
			switch answer := out.Result.(type) {
			case *dynamodb.TransactWriteItemsOutput:
				for _, c := range answer.ConsumedCapacity {
					b.Writes += *c.CapacityUnits
				}
			case *dynamodb.QueryOutput:
				b.Queries++
				b.Reads += *answer.ConsumedCapacity.CapacityUnits
			}
			return out, meta, err
		}), middleware.Before)
}

// Get reads an item as it is in the table.
func (c *Cloud) Get(table string, key map[string]any, into any) bool {
	c.T.Helper()
	k, err := attributevalue.MarshalMap(key)
	require.NoError(c.T, err)
	out, err := c.DB.GetItem(context.Background(), &dynamodb.GetItemInput{TableName: &table, Key: k, ConsistentRead: new(true)})
	require.NoError(c.T, err)
	require.NoError(c.T, attributevalue.UnmarshalMapWithOptions(out.Item, into, func(o *attributevalue.DecoderOptions) { o.TagKey = "json" }))
	return out.Item != nil
}

// Head reads a head, which has to be there.
func (c *Cloud) Head(conversationID chat.ConversationID) chat.Conversation {
	c.T.Helper()
	var head chat.Conversation
	require.True(c.T, c.Get(c.Tables.Conversations, map[string]any{"conversationId": conversationID}, &head))
	return head
}

// Inbox is a user's line of a conversation as the table holds it.
type Inbox struct {
	ReadSeq      int64        `json:"readSeq"`
	DeliveredSeq int64        `json:"deliveredSeq"`
	ClearedSeq   int64        `json:"clearedSeq"`
	JoinSeq      int64        `json:"joinSeq"`
	LeftSeq      int64        `json:"leftSeq"`
	Past         []chat.Range `json:"past"`
}

// Inbox reads a user's line of a conversation, which has to be there.
func (c *Cloud) Inbox(user string, conversationID chat.ConversationID) Inbox {
	c.T.Helper()
	var in Inbox
	require.True(c.T, c.Get(c.Tables.Inboxes, map[string]any{"userId": user, "conversationId": conversationID}, &in), user)
	return in
}

// Age makes a message older.
func (c *Cloud) Age(conversationID chat.ConversationID, seq int64, by time.Duration) {
	c.T.Helper()
	key, err := attributevalue.MarshalMap(map[string]any{"conversationId": conversationID, "seq": seq})
	require.NoError(c.T, err)
	values, err := attributevalue.MarshalMap(map[string]any{":by": by.Milliseconds()})
	require.NoError(c.T, err)
	_, err = c.DB.UpdateItem(context.Background(), &dynamodb.UpdateItemInput{
		TableName: &c.Tables.Messages, Key: key,
		UpdateExpression: new("SET serverTime = serverTime - :by"), ExpressionAttributeValues: values,
	})
	require.NoError(c.T, err)
}

// RequireCode checks that err is a refusal with this code.
func RequireCode(t require.TestingT, code chat.Code, err error, about ...any) {
	_ = Refused(t, code, err, about...)
}

// Refused is RequireCode, and returns the refusal.
func Refused(t require.TestingT, code chat.Code, err error, about ...any) *chat.Error {
	var refusal *chat.Error
	require.ErrorAs(t, err, &refusal, about...)
	require.Equal(t, code, refusal.Code, about...)
	return refusal
}

// ContextOf is for checks that run under rapid, whose T is no testing.TB.
func ContextOf() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Second)
}

// Scan returns the items of a table, each as text.
func (c *Cloud) Scan(table string) []string {
	c.T.Helper()
	out, err := c.DB.Scan(context.Background(), &dynamodb.ScanInput{TableName: &table, ConsistentRead: new(true)})
	require.NoError(c.T, err)
	items := make([]string, len(out.Items))
	for i, in := range out.Items {
		var v map[string]any
		require.NoError(c.T, attributevalue.UnmarshalMap(in, &v))
		items[i] = fmt.Sprint(v)
	}
	return items
}

// Values are attributes of an item.
type Values = map[string]any

// Set changes attributes of an item as an operator's mistake might. A nil value
// removes the attribute.
func (c *Cloud) Set(table string, key, attributes Values) {
	c.T.Helper()
	k, err := attributevalue.MarshalMap(key)
	require.NoError(c.T, err)
	names, in := map[string]string{}, map[string]types.AttributeValue{}
	var sets, removes []string
	for i, name := range slices.Sorted(maps.Keys(attributes)) {
		n := fmt.Sprintf("n%d", i)
		names["#"+n] = name
		if attributes[name] == nil {
			removes = append(removes, "#"+n)
			continue
		}
		sets = append(sets, "#"+n+" = :"+n)
		in[":"+n], err = attributevalue.Marshal(attributes[name])
		require.NoError(c.T, err)
	}
	update := ""
	if sets != nil {
		update = "SET " + strings.Join(sets, ", ")
	}
	if removes != nil {
		update += " REMOVE " + strings.Join(removes, ", ")
	}
	input := &dynamodb.UpdateItemInput{TableName: &table, Key: k, UpdateExpression: &update, ExpressionAttributeNames: names}
	if len(in) > 0 {
		input.ExpressionAttributeValues = in
	}
	_, err = c.DB.UpdateItem(context.Background(), input)
	require.NoError(c.T, err)
}

// Delete takes an item out of a table.
func (c *Cloud) Delete(table string, key Values) {
	c.T.Helper()
	k, err := attributevalue.MarshalMap(key)
	require.NoError(c.T, err)
	_, err = c.DB.DeleteItem(context.Background(), &dynamodb.DeleteItemInput{TableName: &table, Key: k})
	require.NoError(c.T, err)
}

// Raw reads an item as it is; nil if there is none.
func (c *Cloud) Raw(table string, key Values) map[string]types.AttributeValue {
	c.T.Helper()
	k, err := attributevalue.MarshalMap(key)
	require.NoError(c.T, err)
	out, err := c.DB.GetItem(context.Background(), &dynamodb.GetItemInput{TableName: &table, Key: k, ConsistentRead: new(true)})
	require.NoError(c.T, err)
	return out.Item
}

// CopyMessage puts a message under another seq too.
func (c *Cloud) CopyMessage(conversationID chat.ConversationID, from, to int64) {
	c.T.Helper()
	in := c.Raw(c.Tables.Messages, EntryKey(conversationID, from))
	in["seq"] = &types.AttributeValueMemberN{Value: fmt.Sprint(to)}
	_, err := c.DB.PutItem(context.Background(), &dynamodb.PutItemInput{TableName: &c.Tables.Messages, Item: in})
	require.NoError(c.T, err)
}

// ConvKey is the key of a head.
func ConvKey(id chat.ConversationID) Values { return Values{"conversationId": id} }

// EntryKey is the key of a message.
func EntryKey(id chat.ConversationID, seq int64) Values {
	return Values{"conversationId": id, "seq": seq}
}

// LineKey is the key of an inbox line.
func LineKey(user string, id chat.ConversationID) Values {
	return Values{"userId": user, "conversationId": id}
}

// RosterKey is the key of a roster item.
func RosterKey(id chat.ConversationID, user string) Values {
	return Values{"conversationId": id, "userId": user}
}

// RecordKey is the key of an idempotency record.
func RecordKey(sender, clientID string) Values {
	return Values{"dedupeKey": chat.DedupeKey(sender, clientID)}
}

// Lines makes conversations in which the user has an inbox line.
func (c *Cloud) Lines(user string, n int) []chat.ConversationID {
	c.T.Helper()
	ids := make([]chat.ConversationID, n)
	for i := range n {
		ids[i] = chat.ConversationID(fmt.Sprintf("group:%03d", i))
		c.Put(c.Tables.Conversations, map[string]any{
			"conversationId": ids[i], "kind": "group", "lastSeq": i + 1, "membersVersion": 1, "state": "active",
		})
		c.Put(c.Tables.Inboxes, map[string]any{"userId": user, "conversationId": ids[i], "joinSeq": 1})
	}
	return ids
}

// Days is one day: 7*Days are seven.
const Days = 24 * time.Hour

// Lifetime is when an item expires, in seconds, and when it was written, in
// milliseconds.
type Lifetime struct {
	ExpiresAt  int64 `json:"expiresAt"`
	ServerTime int64 `json:"serverTime"`
}

// Lifetimes reads how long a message and its idempotency record live.
func (c *Cloud) Lifetimes(r store.Committed, sender, clientMsgID string) (message, record Lifetime) {
	c.T.Helper()
	require.True(c.T, c.Get(c.Tables.Messages, map[string]any{"conversationId": r.ConversationID, "seq": r.Seq}, &message))
	require.True(c.T, c.Get(c.Tables.Idempotency, map[string]any{"dedupeKey": chat.DedupeKey(sender, clientMsgID)}, &record))
	return message, record
}

// By is a request of a user.
func By(user, clientMsgID string) store.Request {
	return store.Request{UserID: user, DeviceID: "phone", ClientMsgID: clientMsgID}
}

// NewGroup makes a group and returns its id. Its first message is the event.
func NewGroup(t testing.TB, s *store.Store, v chat.Visibility, owner string, members ...string) chat.ConversationID {
	t.Helper()
	line, _, err := s.CreateGroup(t.Context(), By(owner, "create"), "a group", members, v)
	require.NoError(t, err)
	return line.Head.ConversationID
}

// SendIn sends a text to a conversation.
func SendIn(t testing.TB, s *store.Store, sender string, conversationID chat.ConversationID, clientMsgID string) store.Committed {
	t.Helper()
	r, err := s.Append(t.Context(), ChatIn(Text(sender, clientMsgID, "text of "+clientMsgID), conversationID), "")
	require.NoError(t, err)
	return r
}

// SizeOf is about how large DynamoDB takes a value for (Developer Guide, "Item sizes
// and formats").
func SizeOf(value types.AttributeValue) int {
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberN:
		return len(v.Value)/2 + 2
	case *types.AttributeValueMemberL:
		n := 3
		for _, e := range v.Value {
			n += 1 + SizeOf(e)
		}
		return n
	case *types.AttributeValueMemberM:
		n := 3
		for name, e := range v.Value {
			n += 1 + len(name) + SizeOf(e)
		}
		return n
	}
	return 1
}

// SendN sends so many texts from alice to bob.
func SendN(t testing.TB, s *store.Store, n int) chat.ConversationID {
	t.Helper()
	for i := range n {
		Send(t, s, "alice", "bob", fmt.Sprint(i+1))
	}
	return chat.SingleID("alice", "bob")
}
