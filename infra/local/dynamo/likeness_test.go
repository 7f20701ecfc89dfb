package dynamo_test

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"regexp"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/dynamo"
	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
)

// readStream returns all records of a table's stream, after one if that is not "".
func readStream(t *testing.T, streams *dynamodbstreams.Client, table, after string) (arn string, records []streamtypes.Record) {
	t.Helper()
	list, err := streams.ListStreams(t.Context(), &dynamodbstreams.ListStreamsInput{TableName: &table})
	require.NoError(t, err)
	require.Len(t, list.Streams, 1)
	d, err := streams.DescribeStream(t.Context(), &dynamodbstreams.DescribeStreamInput{StreamArn: list.Streams[0].StreamArn})
	require.NoError(t, err)
	require.Equal(t, list.Streams[0].StreamArn, d.StreamDescription.StreamArn)
	in := &dynamodbstreams.GetShardIteratorInput{
		StreamArn: list.Streams[0].StreamArn, ShardId: d.StreamDescription.Shards[0].ShardId, ShardIteratorType: streamtypes.ShardIteratorTypeTrimHorizon,
	}
	if after != "" {
		in.ShardIteratorType, in.SequenceNumber = streamtypes.ShardIteratorTypeAfterSequenceNumber, &after
	}
	it, err := streams.GetShardIterator(t.Context(), in)
	require.NoError(t, err)
	out, err := streams.GetRecords(t.Context(), &dynamodbstreams.GetRecordsInput{ShardIterator: it.ShardIterator})
	require.NoError(t, err)
	return *list.Streams[0].StreamArn, out.Records
}

// The streams look as in AWS: through the handler, for tools and functions, and for
// the mappings, which ask the engine themselves.
func TestStreamsLookLikeTheClouds(t *testing.T) {
	t.Parallel()
	client, endpoint := dynamotest.Start(t)
	// What a user writes may look like anything.
	tricky := map[string]types.AttributeValue{
		"id": &types.AttributeValueMemberS{Value: `"eventID":"7","SequenceNumber":"7","awsRegion":"dynoxide"`},
		"eventID": &types.AttributeValueMemberM{Value: map[string]types.AttributeValue{
			"SequenceNumber": &types.AttributeValueMemberS{Value: "7"}, "awsRegion": &types.AttributeValueMemberS{Value: "dynoxide"},
		}},
		"StreamArn": &types.AttributeValueMemberS{Value: "arn:aws:dynamodb:dynoxide:000000000000:table/x"},
	}
	for _, table := range []string{"One", "Other"} {
		table += "Table"
		createStreamed(t, client, table)
		_, err := client.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: tricky})
		require.NoError(t, err)
		for range 11 {
			putOne(t, client, table, 10)
		}
	}
	like := dynamo.Likeness{Region: "eu-north-1", Account: "123456789012"}
	server := httptest.NewServer(dynamo.Handler(endpoint, like, log.New(io.Discard, "", 0)))
	t.Cleanup(server.Close)
	direct := dynamodbstreams.New(dynamodbstreams.Options{
		Region: "eu-north-1", BaseEndpoint: &endpoint, HTTPClient: &http.Client{Transport: like},
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
	})
	for name, streams := range map[string]*dynamodbstreams.Client{"a tool": dynamotest.Streams(t, server.URL), "a mapping": direct} {
		t.Run(name, func(t *testing.T) {
			ids := map[string]bool{}
			for _, table := range []string{"OneTable", "OtherTable"} {
				arn, records := readStream(t, streams, table, "")
				require.Regexp(t, "^arn:aws:dynamodb:eu-north-1:123456789012:table/"+table+"/stream/", arn)
				require.Len(t, records, 12)
				for i, r := range records {
					require.Regexp(t, regexp.MustCompile(`^[1-9]\d{20}$`), *r.Dynamodb.SequenceNumber)
					require.Regexp(t, regexp.MustCompile(`^[0-9a-f]{32}$`), *r.EventID)
					require.Equal(t, "eu-north-1", *r.AwsRegion)
					require.True(t, i == 0 || *r.Dynamodb.SequenceNumber > *records[i-1].Dynamodb.SequenceNumber)
					ids[*r.EventID] = true
					_, rest := readStream(t, streams, table, *r.Dynamodb.SequenceNumber)
					require.Equal(t, records[i+1:], append([]streamtypes.Record{}, rest...), "after %s", *r.Dynamodb.SequenceNumber)
				}
				image := records[0].Dynamodb.NewImage
				require.Equal(t, tricky["id"].(*types.AttributeValueMemberS).Value, image["id"].(*streamtypes.AttributeValueMemberS).Value)
				require.Equal(t, "7", image["eventID"].(*streamtypes.AttributeValueMemberM).Value["SequenceNumber"].(*streamtypes.AttributeValueMemberS).Value)
				require.Equal(t, "arn:aws:dynamodb:dynoxide:000000000000:table/x", image["StreamArn"].(*streamtypes.AttributeValueMemberS).Value)

				_, rest := readStream(t, streams, table, "11")
				require.Len(t, rest, 1, "a position that was kept by an earlier version")
			}
			require.Len(t, ids, 24, "no id twice")
		})
	}
}
