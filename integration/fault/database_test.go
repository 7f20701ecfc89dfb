package fault_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
	"github.com/inorder-im/inorder/integration/fault"
)

// database returns a client, without retries, of a DynamoDB behind a proxy.
func database(t *testing.T, plan *fault.Plan, endpoint string) *dynamodb.Client {
	t.Helper()
	proxy, err := fault.NewDatabase(plan, endpoint)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	return dynamodb.New(dynamodb.Options{
		Region: dynamotest.Region, BaseEndpoint: aws.String(proxy.URL()), Retryer: aws.NopRetryer{},
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""), HTTPClient: httpClient(t),
	})
}

func httpClient(t *testing.T) *http.Client {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func str(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func item(pairs ...string) map[string]types.AttributeValue {
	m := map[string]types.AttributeValue{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = str(pairs[i+1])
	}
	return m
}

func get(ctx context.Context, c *dynamodb.Client) error {
	_, err := c.GetItem(ctx, &dynamodb.GetItemInput{TableName: aws.String("things"), Key: item("k", "1")})
	return err
}

// put creates an item in a transaction that also raises a head.
func put(ctx context.Context, c *dynamodb.Client, token string, created map[string]types.AttributeValue) error {
	var clientRequestToken *string // made by the SDK
	if token != "" {
		clientRequestToken = &token
	}
	_, err := c.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{
		ClientRequestToken: clientRequestToken,
		TransactItems: []types.TransactWriteItem{
			{Update: &types.Update{
				TableName: aws.String("things"), Key: item("p", "head", "k", "head"), UpdateExpression: aws.String("SET newest = :v"),
				ExpressionAttributeValues: map[string]types.AttributeValue{":v": created["k"]},
			}},
			{Put: &types.Put{TableName: aws.String("things"), Item: created, ConditionExpression: aws.String("attribute_not_exists(p)")}},
		},
	})
	return err
}

func TestConflict(t *testing.T) {
	t.Parallel()
	b := startBackend(t, nil)
	plan := always(t, fault.Conflict)
	c := database(t, plan, b.url)
	for range 20 {
		err := put(t.Context(), c, "", item("p", "1", "k", "1"))
		var cancelled *types.TransactionCanceledException
		require.ErrorAs(t, err, &cancelled)
		require.Len(t, cancelled.CancellationReasons, 2)
		var codes []string
		for _, r := range cancelled.CancellationReasons {
			codes = append(codes, *r.Code)
		}
		require.Contains(t, codes, "TransactionConflict")
		require.Subset(t, []string{"None", "TransactionConflict"}, codes)
	}
	_, err := c.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: aws.String("things"), Key: item("k", "1")})
	var conflict *types.TransactionConflictException
	require.ErrorAs(t, err, &conflict)
	requireNothingToDo(t, b)
	require.NoError(t, get(t.Context(), c), "a read of one item is never refused")
	require.Equal(t, map[fault.Kind]int{fault.Conflict: 21}, plan.Counts())
}

func TestThrottle(t *testing.T) {
	t.Parallel()
	b := startBackend(t, nil)
	c := database(t, always(t, fault.Throttle), b.url)
	seen := map[string]bool{}
	for range 40 {
		err := put(t.Context(), c, "", item("p", "1", "k", "1"))
		var refused smithy.APIError
		require.ErrorAs(t, err, &refused)
		seen[refused.ErrorCode()] = true
		var cancelled *types.TransactionCanceledException
		if errorsAs(err, &cancelled) {
			for _, r := range cancelled.CancellationReasons {
				seen[*r.Code] = true
			}
		}
	}
	for _, code := range []string{
		"ThrottlingException", "ProvisionedThroughputExceededException",
		"TransactionCanceledException", "ThrottlingError", "ProvisionedThroughputExceeded",
	} {
		require.Contains(t, seen, code)
	}
	require.Error(t, get(t.Context(), c))
	requireNothingToDo(t, b)
}

// requireNothingToDo checks that what was asked of a backend cannot be carried out.
func requireNothingToDo(t *testing.T, b *backend) {
	t.Helper()
	for _, request := range b.got() {
		require.Contains(t, request, "TransactWriteItems")
		require.Contains(t, request, "no such attribute")
	}
}

// Beside a conflict or a throttle stand the reasons that the other items have by
// themselves, in every order, and none that are not so.
func TestReasonsAreMixed(t *testing.T) {
	t.Parallel()
	client, endpoint := dynamotest.Start(t)
	createTable(t, client)
	require.NoError(t, put(t.Context(), client, "", item("p", "1", "k", "there")))
	create := func(k string) types.TransactWriteItem {
		return types.TransactWriteItem{Put: &types.Put{
			TableName: aws.String("things"), Item: item("p", "1", "k", k), ConditionExpression: aws.String("attribute_not_exists(p)"),
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}}
	}
	touch := types.TransactWriteItem{Update: &types.Update{
		TableName: aws.String("things"), Key: item("p", "1", "k", "head"), UpdateExpression: aws.String("SET a = :a"),
		ExpressionAttributeValues: item(":a", "1"),
	}}
	for kind, codes := range map[fault.Kind][]string{
		fault.Conflict: {"TransactionConflict"},
		fault.Throttle: {"ThrottlingError", "ProvisionedThroughputExceeded"},
	} {
		c := database(t, always(t, kind), endpoint)
		for name, items := range map[string][]types.TransactWriteItem{
			"puts":             {create("there"), create("new"), create("newer")},
			"an update before": {touch, create("there"), create("new")},
		} {
			seen := map[string]int{}
			for range 300 {
				_, err := c.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{TransactItems: items})
				var cancelled *types.TransactionCanceledException
				if !errorsAs(err, &cancelled) {
					continue // throttled as a whole
				}
				var mixture []string
				for i, r := range cancelled.CancellationReasons {
					code := *r.Code
					if slices.Contains(codes, code) {
						code = "passing"
					}
					mixture = append(mixture, code)
					if code == "ConditionalCheckFailed" {
						require.Equal(t, items[i].Put.Item["k"], r.Item["k"], "the item as it is")
					}
				}
				seen[strings.Join(mixture, " ")]++
			}
			judged := []string{"None", "None", "None"}
			judged[slices.IndexFunc(items, func(i types.TransactWriteItem) bool {
				return i.Put != nil && i.Put.Item["k"].(*types.AttributeValueMemberS).Value == "there"
			})] = "ConditionalCheckFailed"
			want := map[string]bool{}
			for chosen := 1; chosen < 8; chosen++ {
				mixture := slices.Clone(judged)
				for i := range mixture {
					if chosen>>i&1 == 1 {
						mixture[i] = "passing"
					}
				}
				want[strings.Join(mixture, " ")] = true
			}
			require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(seen)), "%s, %s", kind, name)
		}
	}
	out, err := client.Scan(t.Context(), &dynamodb.ScanInput{TableName: aws.String("things")})
	require.NoError(t, err)
	require.Len(t, out.Items, 2, "nothing is carried out")
}

func TestServerError(t *testing.T) {
	t.Parallel()
	b := startBackend(t, nil)
	c := database(t, always(t, fault.ServerError), b.url)
	for range 40 {
		var refused *types.InternalServerError
		require.ErrorAs(t, get(t.Context(), c), &refused)
	}
	require.InDelta(t, 20, len(b.got()), 12, "half of them were carried out")
}

func TestDrop(t *testing.T) {
	t.Parallel()
	for kind, carriedOut := range map[fault.Kind]int{fault.DropRequest: 0, fault.DropAnswer: 5} {
		b := startBackend(t, nil)
		c := database(t, always(t, kind), b.url)
		for range 5 {
			err := get(t.Context(), c)
			require.ErrorContains(t, err, "EOF")
			var refused smithy.APIError
			require.False(t, errorsAs(err, &refused), "there was no answer: %v", err)
		}
		require.Len(t, b.got(), carriedOut, kind)
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	b := startBackend(t, nil)
	plan := newPlan(t, fault.Faults{fault.Delay: {Rate: 1, UpTo: 20 * time.Millisecond}})
	c := database(t, plan, b.url)
	start := time.Now()
	for range 10 {
		require.NoError(t, get(t.Context(), c))
	}
	require.Greater(t, time.Since(start), 20*time.Millisecond)
	require.Equal(t, 10, plan.Counts()[fault.Delay])
}

func TestUnprocessed(t *testing.T) {
	t.Parallel()
	const n = 5
	client, endpoint := dynamotest.Start(t)
	createTable(t, client)
	plan := always(t, fault.Unprocessed)
	c := database(t, plan, endpoint)
	keys := types.KeysAndAttributes{ConsistentRead: aws.Bool(true)}
	for i := range n {
		require.NoError(t, put(t.Context(), client, "", item("p", "1", "k", fmt.Sprint(i))))
		keys.Keys = append(keys.Keys, item("p", "1", "k", fmt.Sprint(i)))
	}
	found := map[string]bool{}
	requests := 0
	for left := map[string]types.KeysAndAttributes{"things": keys}; len(left) > 0; requests++ {
		require.True(t, *left["things"].ConsistentRead)
		out, err := c.BatchGetItem(t.Context(), &dynamodb.BatchGetItemInput{RequestItems: left})
		require.NoError(t, err)
		require.NotEmpty(t, out.Responses["things"], "at least one is always processed")
		for _, i := range out.Responses["things"] {
			found[i["k"].(*types.AttributeValueMemberS).Value] = true
		}
		left = out.UnprocessedKeys
	}
	require.Len(t, found, n)
	require.Greater(t, requests, 1)
	require.Equal(t, requests-1, plan.Counts()[fault.Unprocessed])
}

func createTable(t *testing.T, client *dynamodb.Client) {
	t.Helper()
	_, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: aws.String("things"), BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: aws.String("p"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: aws.String("k"), AttributeType: types.ScalarAttributeTypeS},
		},
		KeySchema: []types.KeySchemaElement{
			{AttributeName: aws.String("p"), KeyType: types.KeyTypeHash},
			{AttributeName: aws.String("k"), KeyType: types.KeyTypeRange},
		},
		StreamSpecification: &types.StreamSpecification{StreamEnabled: aws.Bool(true), StreamViewType: types.StreamViewTypeNewAndOldImages},
	})
	require.NoError(t, err)
}

// reads are the ways to look for the item with p = "1" and k.
var reads = map[string]func(context.Context, *dynamodb.Client, string) (int, error){
	"Query": func(ctx context.Context, c *dynamodb.Client, k string) (int, error) {
		out, err := c.Query(ctx, &dynamodb.QueryInput{
			TableName: aws.String("things"), ConsistentRead: aws.Bool(true), KeyConditionExpression: aws.String("p = :p AND k = :k"),
			ExpressionAttributeValues: item(":p", "1", ":k", k),
		})
		if err != nil {
			return 0, err
		}
		if int(out.Count) != len(out.Items) {
			return 0, fmt.Errorf("a count of %d for %d items", out.Count, len(out.Items))
		}
		return len(out.Items), nil
	},
	"BatchGetItem": func(ctx context.Context, c *dynamodb.Client, k string) (int, error) {
		out, err := c.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{
			"things": {ConsistentRead: aws.Bool(true), Keys: []map[string]types.AttributeValue{item("p", "1", "k", k)}},
		}})
		if err != nil {
			return 0, err
		}
		return len(out.Responses["things"]), nil
	},
	"Query of a projection": func(ctx context.Context, c *dynamodb.Client, k string) (int, error) {
		out, err := c.Query(ctx, &dynamodb.QueryInput{
			TableName: aws.String("things"), ConsistentRead: aws.Bool(true), KeyConditionExpression: aws.String("p = :p AND k = :k"),
			ExpressionAttributeValues: item(":p", "1", ":k", k), ProjectionExpression: aws.String("k"),
		})
		if err != nil {
			return 0, err
		}
		return len(out.Items), nil
	},
}

func TestApplying(t *testing.T) {
	t.Parallel()
	for name, look := range reads {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, endpoint := dynamotest.Start(t)
			createTable(t, client)
			c := database(t, newPlan(t, fault.Faults{fault.Applying: {Rate: 1, UpTo: 200 * time.Millisecond}}), endpoint)
			require.NoError(t, put(t.Context(), c, "", item("p", "0", "k", "0")))
			for i, hidden := 0, 0; hidden < 2; i++ {
				require.Less(t, i, 20, "the item is nearly always hidden")
				if transactAndLook(t, c, client, look, fmt.Sprint(i)) > 0 {
					hidden++
				}
			}
		})
	}
}

// transactAndLook creates an item and says how often it was looked for in vain
// after it was committed. It must not vanish when seen, nor be hidden from whom
// the transaction is answered to.
func transactAndLook(t *testing.T, c, past *dynamodb.Client, look func(context.Context, *dynamodb.Client, string) (int, error), k string) (hidden int) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- put(t.Context(), c, "", item("p", "1", "k", k)) }()
	require.Eventually(t, func() bool { n, err := look(t.Context(), past, k); return err == nil && n == 1 }, patience, time.Millisecond)
	seen := false
	for answered := false; !answered; {
		select {
		case err := <-done:
			require.NoError(t, err)
			answered = true
		default:
		}
		n, err := look(t.Context(), c, k)
		require.NoError(t, err)
		switch {
		case n == 1:
			seen = true
		case seen:
			require.Fail(t, "an item that was seen has vanished")
		case answered:
			require.Fail(t, "an item is hidden from who was told that it is there")
		default:
			hidden++
		}
	}
	// What is serialisable shows the truth at any time, and so did the other item.
	out, err := c.TransactGetItems(t.Context(), &dynamodb.TransactGetItemsInput{TransactItems: []types.TransactGetItem{
		{Get: &types.Get{TableName: aws.String("things"), Key: item("p", "1", "k", k)}},
		{Get: &types.Get{TableName: aws.String("things"), Key: item("p", "head", "k", "head")}},
	}})
	require.NoError(t, err)
	require.Equal(t, str(k), out.Responses[0].Item["k"])
	require.Equal(t, str(k), out.Responses[1].Item["newest"])
	return hidden
}

// What a transaction failed to create, or had created before, is another's or
// was seen: it does not vanish.
func TestApplyingHidesNothingThatWasSeen(t *testing.T) {
	t.Parallel()
	client, endpoint := dynamotest.Start(t)
	createTable(t, client)
	plan := newPlan(t, fault.Faults{fault.Applying: {Rate: 1, UpTo: 100 * time.Millisecond}})
	c := database(t, plan, endpoint)
	const token = "the-same-request"
	require.NoError(t, put(t.Context(), c, token, item("p", "1", "k", "1", "by", "me")))
	for name, again := range map[string]func() error{
		"the same again": func() error { return put(t.Context(), c, token, item("p", "1", "k", "1", "by", "me")) },
		"another":        func() error { return put(t.Context(), c, "", item("p", "1", "k", "1", "by", "you")) },
	} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			for range 5 {
				_ = again()
			}
		}()
		for ended := false; !ended; {
			select {
			case <-done:
				ended = true
			default:
			}
			for _, look := range reads {
				n, err := look(t.Context(), c, "1")
				require.NoError(t, err)
				require.Equal(t, 1, n, name)
			}
		}
	}
}

func TestAnEngineThatIsGoneIsAnAnswer(t *testing.T) {
	t.Parallel()
	c := database(t, newPlan(t, nil), "http://"+freeAddress(t))
	require.ErrorContains(t, get(t.Context(), c), "the proxy cannot reach its target")
}

// The SDK makes three attempts. With one attempt in ten failing by itself, all three
// of a call would fail once in a thousand calls.
func TestDatabase_SomeCallsFailInEachAttempt(t *testing.T) {
	t.Parallel()
	const calls = 1000
	for _, kind := range []fault.Kind{fault.DropRequest, fault.DropAnswer, fault.ServerError, fault.Throttle} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			b := startBackend(t, nil)
			plan := newPlan(t, fault.Faults{kind: {Rate: 0.1}})
			proxy, err := fault.NewDatabase(plan, b.url)
			require.NoError(t, err)
			t.Cleanup(proxy.Close)
			c := dynamodb.New(dynamodb.Options{
				Region: dynamotest.Region, BaseEndpoint: aws.String(proxy.URL()),
				Retryer:     retry.NewStandard(func(o *retry.StandardOptions) { o.MaxBackoff, o.RateLimiter = time.Millisecond, ratelimit.None }),
				Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""), HTTPClient: httpClient(t),
			})
			failed := 0
			for range calls {
				if get(t.Context(), c) != nil {
					failed++
				}
			}
			require.Greater(t, failed, calls/100)
			require.Less(t, failed, calls/10, "most of what fails once works again")
			plan.Off()
			for range 10 {
				require.NoError(t, get(t.Context(), c))
			}
		})
	}
}
