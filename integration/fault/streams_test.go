package fault_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	streamsapi "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
	"github.com/inorder-im/inorder/integration/fault"
)

// stream is a table with a stream, read through a proxy.
type stream struct {
	t      *testing.T
	table  *dynamodb.Client
	reader *streamsapi.Client
	arn    string
	shard  string
}

func startStream(t *testing.T, plan *fault.Plan) *stream {
	t.Helper()
	client, endpoint := dynamotest.Start(t)
	createTable(t, client)
	proxy, err := fault.NewDatabase(plan, endpoint)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	s := &stream{t: t, table: client, reader: dynamotest.Streams(t, proxy.URL())}
	list, err := s.reader.ListStreams(t.Context(), &streamsapi.ListStreamsInput{})
	require.NoError(t, err)
	s.arn = *list.Streams[0].StreamArn
	d, err := s.reader.DescribeStream(t.Context(), &streamsapi.DescribeStreamInput{StreamArn: &s.arn})
	require.NoError(t, err)
	s.shard = *d.StreamDescription.Shards[0].ShardId
	return s
}

// write writes version 1 to versions of each of n items, in turn.
func (s *stream) write(from, to, items int) {
	for v := from; v <= to; v++ {
		for i := range items {
			_, err := s.table.PutItem(s.t.Context(), &dynamodb.PutItemInput{
				TableName: aws.String("things"), Item: item("p", fmt.Sprint(i), "k", "k", "v", fmt.Sprint(v)),
			})
			require.NoError(s.t, err)
		}
	}
}

func (s *stream) seek(kind streamtypes.ShardIteratorType, sequence *string) *string {
	s.t.Helper()
	for {
		out, err := s.reader.GetShardIterator(s.t.Context(), &streamsapi.GetShardIteratorInput{
			StreamArn: &s.arn, ShardId: &s.shard, ShardIteratorType: kind, SequenceNumber: sequence,
		})
		if err == nil {
			return out.ShardIterator
		}
	}
}

// version is what a record says.
type version struct {
	item     string
	number   int
	sequence string
}

// read reads from the iterator until n different records came.
func (s *stream) read(iterator *string, n int) []version {
	s.t.Helper()
	var all []version
	different := map[string]bool{}
	deadline := time.Now().Add(20 * time.Second)
	for len(different) < n {
		require.True(s.t, time.Now().Before(deadline), "%d of %d records came", len(different), n)
		out, err := s.reader.GetRecords(s.t.Context(), &streamsapi.GetRecordsInput{ShardIterator: iterator, Limit: aws.Int32(7)})
		if err != nil {
			continue // as often as it takes: the iterator is still good
		}
		for _, r := range out.Records {
			v := version{sequence: *r.Dynamodb.SequenceNumber}
			v.item = r.Dynamodb.NewImage["p"].(*streamtypes.AttributeValueMemberS).Value
			v.number, _ = strconv.Atoi(r.Dynamodb.NewImage["v"].(*streamtypes.AttributeValueMemberS).Value)
			all = append(all, v)
			different[v.sequence] = true
		}
		iterator = out.NextShardIterator
	}
	return all
}

// once leaves out what was there before.
func once(all []version) []version {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(all), func(v version) bool {
		defer func() { seen[v.sequence] = true }()
		return seen[v.sequence]
	})
}

// requireOrder checks that the versions of each item are in order, and numbered
// in the order in which they are.
func requireOrder(t *testing.T, all []version) {
	t.Helper()
	last := map[string]int{}
	for _, v := range all {
		require.Equal(t, last[v.item]+1, v.number, "of item %s", v.item)
		last[v.item]++
	}
	require.True(t, slices.IsSortedFunc(all, func(a, b version) int { return compareNumbers(a.sequence, b.sequence) }))
}

func compareNumbers(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return slices.Compare([]byte(a), []byte(b))
}

// inTurn reports whether the items come as they were written.
func inTurn(all []version, items int) bool {
	for i, v := range all {
		if v.item != fmt.Sprint(i%items) {
			return false
		}
	}
	return true
}

func TestAStreamWithoutFaults(t *testing.T) {
	t.Parallel()
	s := startStream(t, newPlan(t, nil))
	s.write(1, 10, 3)
	all := s.read(s.seek(streamtypes.ShardIteratorTypeTrimHorizon, nil), 30)
	require.Len(t, all, 30)
	require.True(t, inTurn(all, 3))
	requireOrder(t, all)

	latest := s.seek(streamtypes.ShardIteratorTypeLatest, nil)
	s.write(11, 11, 3)
	for i, v := range s.read(latest, 3) {
		require.Equal(t, version{fmt.Sprint(i), 11, v.sequence}, v)
	}
	// In the engine the iterators are its own.
	_, err := s.reader.GetRecords(t.Context(), &streamsapi.GetRecordsInput{ShardIterator: aws.String("fault-9-0")})
	require.ErrorContains(t, err, "is not one of this proxy")
	_, err = s.reader.GetShardIterator(t.Context(), &streamsapi.GetShardIteratorInput{
		StreamArn: &s.arn, ShardId: &s.shard, ShardIteratorType: streamtypes.ShardIteratorTypeAfterSequenceNumber, SequenceNumber: aws.String("7777777777"),
	})
	require.ErrorContains(t, err, "there is no record 7777777777")
	_, err = s.reader.GetShardIterator(t.Context(), &streamsapi.GetShardIteratorInput{
		StreamArn: &s.arn, ShardId: aws.String("shardId-00000000000000000000-nosuchone"), ShardIteratorType: streamtypes.ShardIteratorTypeTrimHorizon,
	})
	require.NoError(t, err, "the engine is asked at the first read")
}

func TestStreamReorder(t *testing.T) {
	t.Parallel()
	plan := always(t, fault.StreamReorder)
	s := startStream(t, plan)
	s.write(1, 20, 3)
	all := s.read(s.seek(streamtypes.ShardIteratorTypeTrimHorizon, nil), 60)
	require.Len(t, all, 60)
	require.False(t, inTurn(all, 3))
	requireOrder(t, all)
	require.Equal(t, 1, plan.Counts()[fault.StreamReorder])

	// Who goes back finds the same.
	for i, v := range all {
		require.Equal(t, all[i:], s.read(s.seek(streamtypes.ShardIteratorTypeAtSequenceNumber, &v.sequence), 60-i))
		if i < 59 {
			require.Equal(t, all[i+1:], s.read(s.seek(streamtypes.ShardIteratorTypeAfterSequenceNumber, &v.sequence), 59-i))
		}
	}
}

func TestStreamRepeat(t *testing.T) {
	t.Parallel()
	plan := newPlan(t, fault.Faults{fault.StreamRepeat: {Rate: 0.5}})
	s := startStream(t, plan)
	s.write(1, 20, 3)
	all := s.read(s.seek(streamtypes.ShardIteratorTypeTrimHorizon, nil), 60)
	require.Greater(t, len(all), 60)
	requireOrder(t, once(all))
	require.Positive(t, plan.Counts()[fault.StreamRepeat])
}

func TestStreamHold(t *testing.T) {
	t.Parallel()
	plan := newPlan(t, fault.Faults{fault.StreamHold: {Rate: 1, UpTo: time.Hour}})
	s := startStream(t, plan)
	s.write(1, 2, 2)
	iterator := s.seek(streamtypes.ShardIteratorTypeTrimHorizon, nil)
	for range 3 {
		out, err := s.reader.GetRecords(t.Context(), &streamsapi.GetRecordsInput{ShardIterator: iterator})
		require.NoError(t, err)
		require.Empty(t, out.Records)
		iterator = out.NextShardIterator
	}
	require.Equal(t, 1, plan.Counts()[fault.StreamHold], "what comes meanwhile waits with it")
	plan.Off()
	require.Len(t, s.read(iterator, 4), 4)
}

func TestStreamError(t *testing.T) {
	t.Parallel()
	b := startBackend(t, nil)
	proxy, err := fault.NewDatabase(always(t, fault.StreamError), b.url)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	reader := dynamotest.Streams(t, proxy.URL())
	seen := map[string]bool{}
	for range 60 {
		_, err := reader.GetRecords(t.Context(), &streamsapi.GetRecordsInput{ShardIterator: aws.String("x")}, withoutRetries)
		require.Error(t, err)
		var expired *streamtypes.ExpiredIteratorException
		var limit *streamtypes.LimitExceededException
		var internal *streamtypes.InternalServerError
		switch {
		case errorsAs(err, &expired):
			seen["expired"] = true
		case errorsAs(err, &limit):
			seen["limit"] = true
		case errorsAs(err, &internal):
			seen["internal"] = true
		default:
			seen["dropped"] = true
		}
	}
	require.Len(t, seen, 4)
}

func withoutRetries(o *streamsapi.Options) { o.Retryer = aws.NopRetryer{} }

func TestEverythingOfAStream(t *testing.T) {
	t.Parallel()
	plan := newPlan(t, fault.Faults{
		fault.StreamError: {Rate: 0.1}, fault.StreamReorder: {Rate: 0.7}, fault.StreamRepeat: {Rate: 0.3},
		fault.StreamHold: {Rate: 0.7, UpTo: 10 * time.Millisecond},
	})
	plan.Off()
	s := startStream(t, plan)
	plan.On()
	written := make(chan struct{})
	go func() {
		defer close(written)
		s.write(1, 40, 5)
	}()
	all := s.read(s.seek(streamtypes.ShardIteratorTypeTrimHorizon, nil), 200)
	<-written
	requireOrder(t, once(all))
	for _, kind := range []fault.Kind{fault.StreamError, fault.StreamReorder, fault.StreamRepeat, fault.StreamHold} {
		require.Positive(t, plan.Counts()[kind], kind)
	}
}
