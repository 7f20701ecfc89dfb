package main

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
)

func TestMeter(t *testing.T) {
	t.Parallel()
	client, endpoint := dynamotest.Start(t)
	_, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: aws.String("things"), BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("k"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("k"), KeyType: types.KeyTypeHash}},
	})
	require.NoError(t, err)
	m, err := startMeter(endpoint)
	require.NoError(t, err)
	t.Cleanup(m.Close)
	metered := dynamotest.Client(t, m.URL())

	key := map[string]types.AttributeValue{"k": &types.AttributeValueMemberS{Value: "1"}}
	create := func() error {
		_, err := metered.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: []types.TransactWriteItem{
			{Put: &types.Put{TableName: aws.String("things"), Item: key, ConditionExpression: aws.String("attribute_not_exists(k)")}},
		}})
		return err
	}
	before := m.now()
	require.NoError(t, create())
	// The developer guide, "Capacity management for transactions": two units for a
	// write of up to 1 KB.
	require.InDelta(t, 2, m.now().writeUnits, 0)
	var cancelled *types.TransactionCanceledException
	require.ErrorAs(t, create(), &cancelled)
	require.InDelta(t, 4, m.now().writeUnits, 0, "what is cancelled costs the same")
	_, err = metered.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String("things"), Key: key, ConsistentRead: aws.Bool(true)})
	require.NoError(t, err)
	_, err = metered.BatchGetItem(t.Context(), &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{
		"things": {Keys: []map[string]types.AttributeValue{key}},
	}})
	require.NoError(t, err)
	_, err = metered.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String("things"), Item: key})
	require.NoError(t, err)
	_, err = metered.ListTables(t.Context(), &dynamodb.ListTablesInput{})
	require.NoError(t, err)

	u := m.now()
	require.InDelta(t, 1.5, u.readUnits, 0)
	require.InDelta(t, 5, u.writeUnits, 0)
	require.Equal(t, int64(1), u.written)
	require.Equal(t, int64(1), u.conflicts)
	require.Zero(t, u.throttled)
	require.Equal(t, map[string]int64{"TransactWriteItems": 2, "GetItem": 1, "BatchGetItem": 1, "PutItem": 1}, u.requests)
	require.Empty(t, before.requests, "an earlier reading stays as it was")
}
