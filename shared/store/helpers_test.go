package store_test

import (
	"context"
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
