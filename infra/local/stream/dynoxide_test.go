package stream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/inorder-im/inorder/infra/local/dynamo"
	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
	"github.com/inorder-im/inorder/infra/local/stream"
	"github.com/inorder-im/inorder/infra/local/template"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const deadline = time.Minute

func heads() []*template.Table {
	return []*template.Table{{
		LogicalID: "Heads", Name: "Heads", StreamView: "NEW_AND_OLD_IMAGES",
		Attributes: []template.Attribute{{Name: "id", Type: "S"}}, Key: []template.KeyElement{{Name: "id", Role: "HASH"}},
	}}
}

// onDynoxide prepares a mapping of the table Heads on an engine.
func onDynoxide(t *testing.T, endpoint string) *scene {
	t.Helper()
	s := newScene()
	s.config.Streams = dynamotest.Streams(t, endpoint)
	s.config.PollInterval = 0
	return s
}

func put(t *testing.T, client *dynamodb.Client, id string, n int) {
	t.Helper()
	_, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String("Heads"), Item: map[string]types.AttributeValue{
		"id": &types.AttributeValueMemberS{Value: id}, "n": &types.AttributeValueMemberN{Value: strconv.Itoa(n)}}})
	require.NoError(t, err)
}

// received returns "id:n" for every record that came, in order.
func (f *function) received() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := []string{}
	for _, c := range f.calls {
		var e events.DynamoDBEvent
		if json.Unmarshal(c.payload, &e) != nil {
			return nil
		}
		for _, r := range e.Records {
			all = append(all, r.Change.NewImage["id"].String()+":"+r.Change.NewImage["n"].Number())
		}
	}
	return all
}

// count returns how many records came.
func (f *function) count() int { return len(strings.Fields(strings.Join(f.batches(), " "))) }

func TestDynoxideEventShape(t *testing.T) {
	t.Parallel()
	client, endpoint := dynamotest.Start(t)
	require.NoError(t, dynamo.CreateTables(t.Context(), client, heads()))
	s := onDynoxide(t, endpoint)
	stop := s.start(t)
	defer stop()

	before := time.Now().Truncate(time.Second)
	old := map[string]types.AttributeValue{
		"id":   &types.AttributeValueMemberS{Value: "a <b> & \"c\" \u2028"},
		"n":    &types.AttributeValueMemberN{Value: "12345678901234567890.5"},
		"b":    &types.AttributeValueMemberB{Value: []byte{0, 1, 255}},
		"yes":  &types.AttributeValueMemberBOOL{Value: true},
		"null": &types.AttributeValueMemberNULL{Value: true},
		"ss":   &types.AttributeValueMemberSS{Value: []string{"x"}},
		"ns":   &types.AttributeValueMemberNS{Value: []string{"7"}},
		"bs":   &types.AttributeValueMemberBS{Value: [][]byte{{1}, {2}}},
		"l":    &types.AttributeValueMemberL{Value: []types.AttributeValue{&types.AttributeValueMemberL{}, &types.AttributeValueMemberS{Value: ""}}},
		"m":    &types.AttributeValueMemberM{Value: map[string]types.AttributeValue{"empty": &types.AttributeValueMemberM{}}},
	}
	_, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String("Heads"), Item: old})
	require.NoError(t, err)
	_, err = client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: aws.String("Heads"),
		Key: map[string]types.AttributeValue{"id": old["id"]}, UpdateExpression: aws.String("SET n = :n"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":n": &types.AttributeValueMemberN{Value: "2"}}})
	require.NoError(t, err)
	_, err = client.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: aws.String("Heads"), Key: map[string]types.AttributeValue{"id": old["id"]}})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.function.count() == 3 }, deadline, time.Millisecond)
	stop()

	var records []events.DynamoDBEventRecord
	for _, c := range s.function.calls {
		var e events.DynamoDBEvent
		require.NoError(t, json.Unmarshal(c.payload, &e))
		records = append(records, e.Records...)
	}
	stream := records[0].EventSourceArn
	require.Contains(t, stream, ":table/Heads/stream/")
	for i, name := range []string{"INSERT", "MODIFY", "REMOVE"} {
		r := records[i]
		require.Equal(t, name, r.EventName)
		require.Equal(t, "aws:dynamodb", r.EventSource)
		require.Equal(t, "1.1", r.EventVersion)
		require.Equal(t, stream, r.EventSourceArn)
		require.NotEmpty(t, r.EventID)
		require.NotEmpty(t, r.AWSRegion)
		require.NotEmpty(t, r.Change.SequenceNumber)
		require.Positive(t, r.Change.SizeBytes)
		require.Equal(t, "NEW_AND_OLD_IMAGES", r.Change.StreamViewType)
		require.WithinRange(t, r.Change.ApproximateCreationDateTime.Time, before, time.Now())
		require.Equal(t, "a <b> & \"c\" \u2028", r.Change.Keys["id"].String())
		require.Nil(t, r.UserIdentity)
	}
	image := records[0].Change.NewImage
	require.Equal(t, "12345678901234567890.5", image["n"].Number(), "numbers keep all their digits")
	require.Equal(t, []byte{0, 1, 255}, image["b"].Binary())
	require.True(t, image["yes"].Boolean())
	require.True(t, image["null"].IsNull())
	require.Equal(t, []string{"x"}, image["ss"].StringSet())
	require.Equal(t, []string{"7"}, image["ns"].NumberSet())
	require.ElementsMatch(t, [][]byte{{1}, {2}}, image["bs"].BinarySet())
	require.Empty(t, image["l"].List()[0].List())
	require.Empty(t, image["l"].List()[1].String())
	require.Empty(t, image["m"].Map()["empty"].Map())
	require.Nil(t, records[0].Change.OldImage)
	require.Equal(t, "12345678901234567890.5", records[1].Change.OldImage["n"].Number())
	require.Equal(t, "2", records[1].Change.NewImage["n"].Number())
	require.Nil(t, records[2].Change.NewImage)
	require.Equal(t, "2", records[2].Change.OldImage["n"].Number())
}

// A function tells apart what has expired from what was deleted, as in the cloud (DynamoDB
// Developer Guide, "DynamoDB Streams and Time to Live").
func TestDynoxideEventOfAnExpiredItem(t *testing.T) {
	t.Parallel()
	e := dynamotest.StartEngine(t, dynamo.Config{TimeToLive: true})
	client := dynamotest.Client(t, e.Endpoint())
	tables := heads()
	tables[0].TTLAttribute = "n"
	require.NoError(t, dynamo.CreateTables(t.Context(), client, tables))
	s := onDynoxide(t, e.Endpoint())
	endpoint, transport := e.Endpoint(), &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	s.config.Streams = dynamodbstreams.New(dynamodbstreams.Options{ // as the local cloud asks
		Region: "us-east-1", BaseEndpoint: &endpoint, Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
		HTTPClient: &http.Client{Transport: dynamo.Likeness{Region: "us-east-1", Account: "000000000000", Base: transport}},
	})
	stop := s.start(t)
	defer stop()
	put(t, client, "expired", 1)
	deleted, err := e.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, deleted)
	require.Eventually(t, func() bool { return s.function.count() == 2 }, deadline, time.Millisecond)
	stop()
	var records []json.RawMessage
	for _, c := range s.function.calls {
		var e struct{ Records []json.RawMessage }
		require.NoError(t, json.Unmarshal(c.payload, &e))
		records = append(records, e.Records...)
	}
	require.NotContains(t, string(records[0]), "userIdentity")
	var removed struct {
		EventName    string
		UserIdentity map[string]string
	}
	require.NoError(t, json.Unmarshal(records[1], &removed))
	require.Equal(t, "REMOVE", removed.EventName)
	require.Equal(t, map[string]string{"type": "Service", "principalId": "dynamodb.amazonaws.com"}, removed.UserIdentity)
}

func TestDynoxideKeepsOrderOverManyPages(t *testing.T) {
	t.Parallel()
	client, endpoint := dynamotest.Start(t)
	require.NoError(t, dynamo.CreateTables(t.Context(), client, heads()))
	s := onDynoxide(t, endpoint)
	s.mapping.BatchSize = 300
	var want []string
	for n := 0; n < 1250; n += 25 { // more than a page of 1,000
		var writes []types.WriteRequest
		for i := n; i < n+25; i++ {
			want = append(want, fmt.Sprintf("%d:%d", i, i))
			writes = append(writes, types.WriteRequest{PutRequest: &types.PutRequest{Item: map[string]types.AttributeValue{
				"id": &types.AttributeValueMemberS{Value: strconv.Itoa(i)}, "n": &types.AttributeValueMemberN{Value: strconv.Itoa(i)}}}})
		}
		_, err := client.BatchWriteItem(t.Context(), &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{"Heads": writes}})
		require.NoError(t, err)
	}
	stop := s.start(t)
	require.Eventually(t, func() bool { return s.function.count() >= len(want) }, deadline, 5*time.Millisecond)
	stop()
	require.Equal(t, want, s.function.received())
}

func TestDynoxideLatest(t *testing.T) {
	t.Parallel()
	client, endpoint := dynamotest.Start(t)
	require.NoError(t, dynamo.CreateTables(t.Context(), client, heads()))
	put(t, client, "past", 1)
	s := onDynoxide(t, endpoint)
	s.mapping.StartingPosition = template.Latest
	p, err := stream.Open(t.Context(), s.config, s.mapping)
	require.NoError(t, err)
	put(t, client, "future", 2)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { p.Run(ctx); close(done) }()
	require.Eventually(t, func() bool { return len(s.function.received()) > 0 }, deadline, time.Millisecond)
	cancel()
	<-done
	require.Equal(t, []string{"future:2"}, s.function.received())
}

func TestDynoxideRestartWithDataGoesOn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := dynamo.Config{DataFile: filepath.Join(dir, "data.db")}
	engine := dynamotest.StartEngine(t, cfg)
	client := dynamotest.Client(t, engine.Endpoint())
	require.NoError(t, dynamo.CreateTables(t.Context(), client, heads()))
	s := onDynoxide(t, engine.Endpoint())
	s.config.CheckpointDir = dir
	stop := s.start(t)
	put(t, client, "a", 1)
	put(t, client, "a", 2)
	require.Eventually(t, func() bool { return len(s.function.received()) == 2 }, deadline, time.Millisecond)
	stop()
	put(t, client, "a", 3) // is not delivered before everything is restarted
	killed, kill := context.WithCancel(t.Context())
	kill()
	engine.Stop(killed) // with SIGKILL

	engine = dynamotest.StartEngine(t, cfg)
	client = dynamotest.Client(t, engine.Endpoint())
	require.NoError(t, dynamo.CreateTables(t.Context(), client, heads()))
	s.config.Streams = dynamotest.Streams(t, engine.Endpoint())
	stop = s.start(t)
	put(t, client, "a", 4)
	require.Eventually(t, func() bool { return len(s.function.received()) == 4 }, deadline, time.Millisecond)
	stop()
	require.Equal(t, []string{"a:1", "a:2", "a:3", "a:4"}, s.function.received())
}

func TestDynoxideSurvivesAnEngineThatIsAway(t *testing.T) {
	t.Parallel()
	cfg := dynamo.Config{DataFile: filepath.Join(t.TempDir(), "data.db")}
	engine := dynamotest.StartEngine(t, cfg)
	client := dynamotest.Client(t, engine.Endpoint())
	require.NoError(t, dynamo.CreateTables(t.Context(), client, heads()))
	s := onDynoxide(t, engine.Endpoint())
	log := s.withLog()
	stop := s.start(t)
	engine.Stop(t.Context())
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "cannot read the stream") }, deadline, time.Millisecond)
	stop() // ends although nobody answers
}

func TestTableWithoutStream(t *testing.T) {
	t.Parallel()
	client, endpoint := dynamotest.Start(t)
	tables := heads()
	tables[0].StreamView = ""
	require.NoError(t, dynamo.CreateTables(t.Context(), client, tables))
	s := onDynoxide(t, endpoint)
	for _, s.mapping.Table = range []string{"Heads", "Elsewhere"} {
		_, err := stream.Open(t.Context(), s.config, s.mapping)
		require.ErrorContains(t, err, "table "+s.mapping.Table+" has no stream")
	}
}
