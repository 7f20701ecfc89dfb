package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/store/regiontest"
)

type stringSet []string

// MarshalDynamoDBAttributeValue makes a set of it, not a list.
func (s stringSet) MarshalDynamoDBAttributeValue() (types.AttributeValue, error) {
	return &types.AttributeValueMemberSS{Value: s}, nil
}

// usedIn leaves those that an expression mentions: DynamoDB refuses others.
func usedIn[V any](expression string, all map[string]V) map[string]V {
	used := map[string]V{}
	for _, word := range strings.FieldsFunc(expression, func(r rune) bool { return strings.ContainsRune(" (),.", r) }) {
		if v, ok := all[word]; ok {
			used[word] = v
		}
	}
	return used
}

// The model of a region judges conditions and applies updates as the engine does.
func TestTheModelAgreesWithTheEngine(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	model := regiontest.New(regiontest.Latencies{}, map[string]regiontest.Keys{
		c.Tables.Inboxes: {Partition: "userId", Sort: "conversationId"},
	}).Client()
	before := map[string]any{
		"n": 5, "s": "abc", "tags": stringSet{"a", "b"}, "m": map[string]any{"x": 1, "y": map[string]any{"z": 2}}, "l": []any{1, 2}, "big": 9007199254740991,
	}
	values := map[string]any{":1": 1, ":5": 5, ":6": 6, ":10": 10, ":abc": "abc", ":ab": "ab", ":a": "a", ":c": stringSet{"c"}, ":as": stringSet{"a"}, ":l": []any{3}}
	names := map[string]string{"#n": "n", "#m": "m", "#x": "x", "#y": "y", "#z": "z", "#state": "state"}
	for _, tc := range []struct{ condition, update string }{
		{"n = :5", "SET n = n + :1"},
		{"n = :5 AND s = :ab", "SET n = :1"},
		{"n = :1 OR s = :abc AND big > :6", "SET n = :10 - n, big = big + :1"},
		{"(n = :1 OR s = :abc) AND big < :6", "SET n = :1"},
		{"NOT n = :1 AND NOT (s = :ab OR n > :5)", "REMOVE s, l"},
		{"n BETWEEN :1 AND :5 AND attribute_exists(s)", "SET #m.#x = :5, #m.n = :1 REMOVE #m.#y.#z"},
		{"n BETWEEN :6 AND :10", "SET n = :1"},
		{"n IN (:1, :5)", "ADD n :1, tags :c"},
		{"n <> :5", "SET n = :1"},
		{"gone <> :5", "SET n = :1"},
		{"gone = :5", "SET n = :1"},
		{"gone < :5", "SET n = :1"},
		{"s = :5", "SET n = :1"},
		{"attribute_not_exists(gone) AND attribute_not_exists(#m.gone)", "DELETE tags :as SET n = if_not_exists(gone, n) + :1"},
		{"attribute_exists(#m.#y.#z)", "SET gone = if_not_exists(gone, :5), l = list_append(l, :l)"},
		{"size(tags) <= :5 AND size(s) > :1 AND size(#m) < :5", "SET n = :1"},
		{"contains(tags, :a) AND contains(s, :ab)", "ADD gone :5"},
		{"contains(tags, :abc)", "SET n = :1"},
		{"begins_with(s, :ab) AND n >= :5 AND n <= :5", "SET s = :a"},
		{"", "ADD tags :c DELETE tags2 :as"},
	} {
		var items []map[string]any
		var codes []string
		for _, db := range []*dynamodb.Client{c.DB, model} {
			in, err := attributevalue.MarshalMap(before)
			require.NoError(t, err)
			key := map[string]types.AttributeValue{"userId": &types.AttributeValueMemberS{Value: "u"}, "conversationId": &types.AttributeValueMemberS{Value: "c"}}
			for name, v := range key {
				in[name] = v
			}
			_, err = db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &c.Tables.Inboxes, Item: in})
			require.NoError(t, err)
			text := tc.condition + " " + tc.update
			update := &dynamodb.UpdateItemInput{TableName: &c.Tables.Inboxes, Key: key, UpdateExpression: &tc.update}
			if tc.condition != "" {
				update.ConditionExpression = &tc.condition
			}
			if used := usedIn(text, names); len(used) > 0 {
				update.ExpressionAttributeNames = used
			}
			update.ExpressionAttributeValues, err = attributevalue.MarshalMap(usedIn(text, values))
			require.NoError(t, err)
			_, err = db.UpdateItem(t.Context(), update)
			code := ""
			if e, ok := errors.AsType[smithy.APIError](err); ok {
				code = e.ErrorCode()
			} else {
				require.NoError(t, err)
			}
			codes = append(codes, code)
			out, err := db.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: &c.Tables.Inboxes, Key: key, ConsistentRead: aws.Bool(true)})
			require.NoError(t, err)
			var after map[string]any
			require.NoError(t, attributevalue.UnmarshalMap(out.Item, &after))
			items = append(items, after)
		}
		require.Equal(t, codes[0], codes[1], "%s", tc.condition)
		require.Equal(t, items[0], items[1], "%s | %s", tc.condition, tc.update)
	}
}
