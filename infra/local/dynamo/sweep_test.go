package dynamo_test

import (
	"context"
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/dynamo"
	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
)

func expireBy(t testing.TB, client *dynamodb.Client, table string) {
	t.Helper()
	_, err := client.UpdateTimeToLive(t.Context(), &dynamodb.UpdateTimeToLiveInput{TableName: &table,
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: aws.String("expires"), Enabled: aws.Bool(true)}})
	require.NoError(t, err)
}

func putUntil(t testing.TB, client *dynamodb.Client, table, id string, until time.Time) {
	t.Helper()
	_, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: map[string]types.AttributeValue{
		"id": &types.AttributeValueMemberS{Value: id}, "expires": &types.AttributeValueMemberN{Value: strconv.FormatInt(until.Unix(), 10)},
	}})
	require.NoError(t, err)
}

// What has expired is deleted by the service, and its stream says so; what a program
// deletes is not, though it had expired.
func TestSweep(t *testing.T) {
	t.Parallel()
	e := dynamotest.StartEngine(t, dynamo.Config{TimeToLive: true, DataFile: filepath.Join(t.TempDir(), "data.db")})
	client := dynamotest.Client(t, e.Endpoint())
	for _, table := range []string{"Short", "Long"} {
		createStreamed(t, client, table)
	}
	expireBy(t, client, "Short")
	past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	for _, table := range []string{"Short", "Long"} {
		putUntil(t, client, table, "expired", past)
		putUntil(t, client, table, "fresh", future)
		putUntil(t, client, table, "deleted", past)
		putOne(t, client, table, 10) // has no time
		_, err := client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: &table,
			Key: map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: "deleted"}}})
		require.NoError(t, err)
	}
	for _, want := range []int{1, 0} {
		deleted, err := e.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, want, deleted)
	}

	server := httptest.NewServer(dynamo.Handler(e.Endpoint(), dynamo.Likeness{Region: "eu-north-1", Account: "123456789012"}, log.New(io.Discard, "", 0)))
	t.Cleanup(server.Close)
	streams := dynamotest.Streams(t, server.URL)
	_, records := readStream(t, streams, "Long", "")
	require.Len(t, records, 5, "a table without a time to live keeps all")
	_, records = readStream(t, streams, "Short", "")
	require.Len(t, records, 6)
	for i, r := range records {
		if i < 5 {
			require.Nil(t, r.UserIdentity, "%d", i)
		}
	}
	last := records[5]
	require.Equal(t, streamtypes.OperationTypeRemove, last.EventName)
	require.Equal(t, "Service", *last.UserIdentity.Type)
	require.Equal(t, "dynamodb.amazonaws.com", *last.UserIdentity.PrincipalId)
	require.Equal(t, &streamtypes.AttributeValueMemberS{Value: "expired"}, last.Dynamodb.Keys["id"])
	require.Contains(t, last.Dynamodb.OldImage, "expires")
	require.Nil(t, last.Dynamodb.NewImage)
	require.Regexp(t, `^[1-9]\d{20}$`, *last.Dynamodb.SequenceNumber)
}

func TestSweepOften(t *testing.T) {
	t.Parallel()
	e := dynamotest.StartEngine(t, dynamo.Config{TimeToLive: true})
	client := dynamotest.Client(t, e.Endpoint())
	createStreamed(t, client, "Short")
	expireBy(t, client, "Short")
	putUntil(t, client, "Short", "expired", time.Now().Add(-time.Hour))
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan int, 10)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.SweepOften(ctx, func(deleted int, err error) {
			if err == nil {
				told <- deleted
			}
		})
	}()
	require.Equal(t, 1, <-told, "at once")
	cancel()
	<-ended
	require.Empty(t, told)
}

func TestSweepOfAnEngineThatCannot(t *testing.T) {
	t.Parallel()
	_, err := dynamotest.StartEngine(t, dynamo.Config{}).Sweep(t.Context())
	require.ErrorContains(t, err, "started without time to live")
	gone := dynamotest.StartEngine(t, dynamo.Config{TimeToLive: true})
	gone.Stop(t.Context())
	_, err = gone.Sweep(t.Context())
	require.ErrorContains(t, err, "deleting what has expired: ")
}

// BenchmarkSweep is a sweep that finds nothing, by the number of items.
func BenchmarkSweep(b *testing.B) {
	for _, items := range []int{1_000, 10_000, 40_000} {
		b.Run(strconv.Itoa(items), func(b *testing.B) {
			e := dynamotest.StartEngine(b, dynamo.Config{TimeToLive: true})
			client := dynamotest.Client(b, e.Endpoint())
			createStreamed(b, client, "Short")
			expireBy(b, client, "Short")
			for range items {
				putOne(b, client, "Short", 300)
			}
			for b.Loop() {
				_, err := e.Sweep(b.Context())
				require.NoError(b, err)
			}
		})
	}
}
