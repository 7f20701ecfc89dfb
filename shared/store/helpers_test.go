package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"
	"github.com/stretchr/testify/require"

	"inorder/shared/chat"
)

func ptr[T any](v T) *T { return &v }

func contextFor(t testing.TB, ms int) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), time.Duration(ms)*time.Millisecond)
}

func chatIn(m chat.Message, conversationID string) chat.Message {
	m.ConversationID = conversationID
	return m
}

// put writes an item as an operator, or an earlier version, might.
func (c *cloud) put(table string, v map[string]any) {
	c.t.Helper()
	in, err := attributevalue.MarshalMap(v)
	require.NoError(c.t, err)
	_, err = c.db.PutItem(context.Background(), &dynamodb.PutItemInput{TableName: &table, Item: in})
	require.NoError(c.t, err)
}

// update changes an item by an expression on one string set, :v.
func (c *cloud) update(table string, key map[string]any, expression, element string) {
	c.t.Helper()
	k, err := attributevalue.MarshalMap(key)
	require.NoError(c.t, err)
	_, err = c.db.UpdateItem(context.Background(), &dynamodb.UpdateItemInput{
		TableName: &table, Key: k, UpdateExpression: &expression,
		ExpressionAttributeValues: map[string]types.AttributeValue{":v": &types.AttributeValueMemberSS{Value: []string{element}}},
	})
	require.NoError(c.t, err)
}

func (c *cloud) deleteMessage(conversationID string, seq int64) {
	c.t.Helper()
	key, err := attributevalue.MarshalMap(map[string]any{"conversationId": conversationID, "seq": seq})
	require.NoError(c.t, err)
	_, err = c.db.DeleteItem(context.Background(), &dynamodb.DeleteItemInput{TableName: &c.tables.Messages, Key: key})
	require.NoError(c.t, err)
}

// capacityOf asks for and adds up the write units of transactions.
func capacityOf(units *float64) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("capacity",
			func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
				if tx, ok := in.Parameters.(*dynamodb.TransactWriteItemsInput); ok {
					tx.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
				}
				out, meta, err := next.HandleInitialize(ctx, in)
				if tx, ok := out.Result.(*dynamodb.TransactWriteItemsOutput); ok {
					for _, c := range tx.ConsumedCapacity {
						*units += *c.CapacityUnits
					}
				}
				return out, meta, err
			}), middleware.Before)
	}
}

// get reads an item as it is in the table.
func (c *cloud) get(table string, key map[string]any, into any) bool {
	c.t.Helper()
	k, err := attributevalue.MarshalMap(key)
	require.NoError(c.t, err)
	out, err := c.db.GetItem(context.Background(), &dynamodb.GetItemInput{TableName: &table, Key: k, ConsistentRead: ptr(true)})
	require.NoError(c.t, err)
	require.NoError(c.t, attributevalue.UnmarshalMapWithOptions(out.Item, into, func(o *attributevalue.DecoderOptions) { o.TagKey = "json" }))
	return out.Item != nil
}

func (c *cloud) head(conversationID string) chat.Conversation {
	c.t.Helper()
	var head chat.Conversation
	require.True(c.t, c.get(c.tables.Conversations, map[string]any{"conversationId": conversationID}, &head))
	return head
}

// inbox is a user's line of a conversation as the table holds it.
type inbox struct {
	ReadSeq      int64        `json:"readSeq"`
	DeliveredSeq int64        `json:"deliveredSeq"`
	ClearedSeq   int64        `json:"clearedSeq"`
	JoinSeq      int64        `json:"joinSeq"`
	LeftSeq      int64        `json:"leftSeq"`
	Past         []chat.Range `json:"past"`
}

func (c *cloud) inbox(user, conversationID string) inbox {
	c.t.Helper()
	var in inbox
	require.True(c.t, c.get(c.tables.Inboxes, map[string]any{"userId": user, "conversationId": conversationID}, &in), user)
	return in
}

// age makes a message older.
func (c *cloud) age(conversationID string, seq int64, by time.Duration) {
	c.t.Helper()
	key, err := attributevalue.MarshalMap(map[string]any{"conversationId": conversationID, "seq": seq})
	require.NoError(c.t, err)
	values, err := attributevalue.MarshalMap(map[string]any{":by": by.Milliseconds()})
	require.NoError(c.t, err)
	_, err = c.db.UpdateItem(context.Background(), &dynamodb.UpdateItemInput{
		TableName: &c.tables.Messages, Key: key,
		UpdateExpression: ptr("SET serverTime = serverTime - :by"), ExpressionAttributeValues: values,
	})
	require.NoError(c.t, err)
}

// requireCode checks that err is a refusal with this code.
func requireCode(t require.TestingT, code chat.Code, err error, about ...any) {
	_ = refused(t, code, err, about...)
}

// refused is requireCode, and gives the refusal.
func refused(t require.TestingT, code chat.Code, err error, about ...any) *chat.Error {
	var refusal *chat.Error
	require.ErrorAs(t, err, &refusal, about...)
	require.Equal(t, code, refusal.Code, about...)
	return refusal
}

// contextOf is for checks that run under rapid, whose T is no testing.TB.
func contextOf() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Second)
}

// scan gives the items of a table, each as text.
func (c *cloud) scan(table string) []string {
	c.t.Helper()
	out, err := c.db.Scan(context.Background(), &dynamodb.ScanInput{TableName: &table, ConsistentRead: ptr(true)})
	require.NoError(c.t, err)
	items := make([]string, len(out.Items))
	for i, in := range out.Items {
		var v map[string]any
		require.NoError(c.t, attributevalue.UnmarshalMap(in, &v))
		items[i] = fmt.Sprint(v)
	}
	return items
}
