package integration_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
	"github.com/inorder-im/inorder/integration/proxy"
)

// database is a DynamoDB with a proxy in front of it that a test can meddle with.
type database struct {
	client   *dynamodb.Client // past the proxy
	endpoint string           // of the proxy

	mu     sync.Mutex
	counts map[string]int // requests by operation, such as TransactWriteItems
	meddle meddle
}

// meddle answers a request to DynamoDB. forward does what would happen without
// it. It is called for several requests at a time.
type meddle func(operation string, request []byte, forward func() proxy.Answer) proxy.Answer

// startDatabase starts one that ends with the test.
func startDatabase(tb testing.TB) *database {
	tb.Helper()
	needLocal(tb)
	client, engine := dynamotest.Start(tb)
	db := &database{client: client, counts: map[string]int{}}
	db.endpoint = startProxy(tb, engine, db.serve).URL()
	return db
}

// set changes how the proxy meddles, from the next request on; nil ends it.
func (db *database) set(m meddle) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.meddle = m
}

// count says how often an operation was asked for.
func (db *database) count(operation string) int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.counts[operation]
}

func (db *database) serve(p *proxy.Proxy, r proxy.Request) proxy.Answer {
	api, operation := r.Operation()
	db.mu.Lock()
	meddle := db.meddle
	db.counts[operation]++
	db.mu.Unlock()
	if meddle == nil || !strings.HasPrefix(api, "DynamoDB_") {
		return p.Forward(r)
	}
	return meddle(operation, r.Body, func() proxy.Answer { return p.Forward(r) })
}

// startProxy starts a proxy that ends with the test. Its target may be set later: ""
// is none.
func startProxy(tb testing.TB, target string, handle func(*proxy.Proxy, proxy.Request) proxy.Answer) *proxy.Proxy {
	tb.Helper()
	p, err := proxy.New()
	require.NoError(tb, err)
	tb.Cleanup(p.Close)
	if target != "" {
		require.NoError(tb, p.SetTarget(target))
	}
	p.Serve(func(r proxy.Request) proxy.Answer { return handle(p, r) })
	return p
}

// failure is a refusal of DynamoDB, such as a ValidationException.
func failure(name string) proxy.Answer {
	return proxy.Refusal(http.StatusBadRequest, proxy.ErrorPrefix+name, "made up by a test", nil)
}

// conflict cancels a transaction of n items.
func conflict(n int) proxy.Answer {
	reasons := slices.Repeat([]map[string]string{{"Code": "TransactionConflict"}}, n)
	return proxy.Refusal(http.StatusBadRequest, proxy.ErrorPrefix+"TransactionCanceledException", "made up by a test",
		map[string]any{"CancellationReasons": reasons})
}

// item is plain values as DynamoDB has them.
func item(tb testing.TB, values any) map[string]types.AttributeValue {
	tb.Helper()
	encoded, err := attributevalue.MarshalMap(values)
	require.NoError(tb, err)
	return encoded
}

// itemAt reads an item past the product; it is empty if there is none.
func itemAt(tb testing.TB, db *dynamodb.Client, table string, key map[string]any) map[string]types.AttributeValue {
	tb.Helper()
	out, err := db.GetItem(tb.Context(), &dynamodb.GetItemInput{
		TableName: aws.String(tableName(tb, db, table)), Key: item(tb, key), ConsistentRead: aws.Bool(true),
	})
	require.NoError(tb, err)
	return out.Item
}

// put writes an item past the product.
func put(tb testing.TB, db *dynamodb.Client, table string, values map[string]any) {
	tb.Helper()
	_, err := db.PutItem(tb.Context(), &dynamodb.PutItemInput{TableName: aws.String(tableName(tb, db, table)), Item: item(tb, values)})
	require.NoError(tb, err)
}

// change updates or, with an empty update, deletes an item past the product.
func change(tb testing.TB, db *dynamodb.Client, table string, key map[string]any, update string, values any) {
	tb.Helper()
	name := aws.String(tableName(tb, db, table))
	var err error
	if update == "" {
		_, err = db.DeleteItem(tb.Context(), &dynamodb.DeleteItemInput{TableName: name, Key: item(tb, key)})
	} else {
		_, err = db.UpdateItem(tb.Context(), &dynamodb.UpdateItemInput{
			TableName: name, Key: item(tb, key), UpdateExpression: &update, ExpressionAttributeValues: item(tb, values),
		})
	}
	require.NoError(tb, err)
}

// connections returns the registered connections of a user.
func connections(tb testing.TB, db *dynamodb.Client, user string) []string {
	tb.Helper()
	conns, _ := itemAt(tb, db, "Connections", map[string]any{"userId": user})["conns"].(*types.AttributeValueMemberSS)
	if conns == nil {
		return nil
	}
	return conns.Value
}

// awaitConnections waits until a user has n of them.
func awaitConnections(tb testing.TB, db *dynamodb.Client, user string, n int) (found []string) {
	tb.Helper()
	require.Eventually(tb, func() bool {
		found = connections(tb, db, user)
		return len(found) == n
	}, patience, 20*time.Millisecond, "%s has not %d connections", user, n)
	return found
}

// leaveBehind registers connections of a user that are none, as where $disconnect was
// never called. They are named by id and device, and are this old.
func leaveBehind(tb testing.TB, db *dynamodb.Client, user string, age time.Duration, names ...string) (gone []string) {
	tb.Helper()
	for _, name := range names {
		gone = append(gone, fmt.Sprintf("%s|%d", name, time.Now().Add(-age).UnixMilli()))
	}
	change(tb, db, "Connections", map[string]any{"userId": user}, "ADD conns :c", struct {
		Conns []string `dynamodbav:":c,stringset"`
	}{gone})
	return gone
}

// tableName finds a table by its logical id in the template, which is in its name.
func tableName(tb testing.TB, db *dynamodb.Client, logicalID string) string {
	tb.Helper()
	out, err := db.ListTables(tb.Context(), &dynamodb.ListTablesInput{})
	require.NoError(tb, err)
	for _, name := range out.TableNames {
		if strings.Contains(name, logicalID) {
			return name
		}
	}
	require.Fail(tb, "no such table", "%s in %v", logicalID, out.TableNames)
	return ""
}
