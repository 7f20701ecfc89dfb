package stream_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/stream"
	"github.com/inorder-im/inorder/infra/local/template"
)

const streamARN = "arn:aws:dynamodb:us-east-1:000000000000:table/Heads/stream/2026-11-29T00:00:00.000"

// fakeStreams is a stream that can do what dynoxide does not: several shards,
// trimming, iterators that expire, errors. Sequence numbers count up over all
// shards. It has no network, so that the tests run on synctest's clock.
type fakeStreams struct {
	arn       string
	keySchema []types.KeySchemaElement
	page      int // records per call

	mu         sync.Mutex
	shards     []*fakeShard
	sequence   int
	generation int // of iterators
	failures   []error
	reads      int
	enabledAt  time.Time // until then there is no position to be had
}

type fakeShard struct {
	id, parent string
	records    []types.Record
	trimmed    int // records that are gone; positions count them
	closed     bool
}

func newFakeStreams(shards ...string) *fakeStreams {
	f := &fakeStreams{arn: streamARN, page: 1000}
	for _, id := range shards {
		f.addShard(id, "")
	}
	return f
}

func (f *fakeStreams) addShard(id, parent string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shards = append(f.shards, &fakeShard{id: id, parent: parent})
}

func (f *fakeStreams) closeShard(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shard(id).closed = true
}

func (f *fakeStreams) trim(id string, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.shard(id)
	s.records, s.trimmed = s.records[n:], s.trimmed+n
}

func (f *fakeStreams) expireIterators() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.generation++
}

// fail makes the next calls fail.
func (f *fakeStreams) fail(errs ...error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failures = append(f.failures, errs...)
}

func (f *fakeStreams) shard(id string) *fakeShard {
	for _, s := range f.shards {
		if s.id == id {
			return s
		}
	}
	return nil
}

// polls is how often the stream was read.
func (f *fakeStreams) polls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reads
}

// put writes one record per key, created at that time.
func (f *fakeStreams) put(shard string, created time.Time, keys ...string) {
	for _, key := range keys {
		f.putItem(shard, created, map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: key}}, nil)
	}
}

func (f *fakeStreams) putItem(shard string, created time.Time, keys, image map[string]types.AttributeValue) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sequence++
	f.shard(shard).records = append(f.shard(shard).records, types.Record{
		EventID: aws.String("event-" + strconv.Itoa(f.sequence)), EventName: types.OperationTypeInsert, EventVersion: aws.String("1.1"),
		EventSource: aws.String("aws:dynamodb"), AwsRegion: aws.String("us-east-1"),
		Dynamodb: &types.StreamRecord{
			Keys: keys, NewImage: image, SequenceNumber: aws.String(strconv.Itoa(f.sequence)), SizeBytes: aws.Int64(26),
			StreamViewType: types.StreamViewTypeNewAndOldImages, ApproximateCreationDateTime: aws.Time(created),
		},
	})
}

func (f *fakeStreams) failure() error {
	if len(f.failures) == 0 {
		return nil
	}
	err := f.failures[0]
	f.failures = f.failures[1:]
	return err
}

func (f *fakeStreams) ListStreams(context.Context, *dynamodbstreams.ListStreamsInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.ListStreamsOutput, error) {
	return &dynamodbstreams.ListStreamsOutput{Streams: []types.Stream{{StreamArn: &f.arn}}}, nil
}

func (f *fakeStreams) DescribeStream(_ context.Context, in *dynamodbstreams.DescribeStreamInput, _ ...func(*dynamodbstreams.Options)) (*dynamodbstreams.DescribeStreamOutput, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := &types.StreamDescription{StreamArn: &f.arn, StreamStatus: types.StreamStatusEnabled, KeySchema: f.keySchema}
	if time.Now().Before(f.enabledAt) {
		d.StreamStatus = types.StreamStatusEnabling
	}
	start := 0
	for i, s := range f.shards {
		if in.ExclusiveStartShardId != nil && s.id == *in.ExclusiveStartShardId {
			start = i + 1
		}
	}
	// One shard per page, the smallest there can be.
	if start < len(f.shards) {
		s := f.shards[start]
		d.Shards = []types.Shard{{ShardId: &s.id}}
		if s.parent != "" {
			d.Shards[0].ParentShardId = &s.parent
		}
		if start+1 < len(f.shards) {
			d.LastEvaluatedShardId = &s.id
		}
	}
	return &dynamodbstreams.DescribeStreamOutput{StreamDescription: d}, nil
}

func (f *fakeStreams) GetShardIterator(_ context.Context, in *dynamodbstreams.GetShardIteratorInput, _ ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetShardIteratorOutput, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Now().Before(f.enabledAt) {
		return nil, &types.InternalServerError{} // as LocalStack
	}
	s := f.shard(*in.ShardId)
	if s == nil {
		return nil, &types.ResourceNotFoundException{}
	}
	at := s.trimmed
	switch in.ShardIteratorType {
	case types.ShardIteratorTypeLatest:
		at += len(s.records)
	case types.ShardIteratorTypeAfterSequenceNumber:
		found := false
		for i, r := range s.records {
			if *r.Dynamodb.SequenceNumber == *in.SequenceNumber {
				at, found = s.trimmed+i+1, true
			}
		}
		if !found {
			return nil, &types.TrimmedDataAccessException{}
		}
	}
	return &dynamodbstreams.GetShardIteratorOutput{ShardIterator: f.iterator(s.id, at)}, nil
}

func (f *fakeStreams) iterator(shard string, at int) *string {
	return aws.String(fmt.Sprintf("%s %d %d", shard, at, f.generation))
}

func (f *fakeStreams) GetRecords(_ context.Context, in *dynamodbstreams.GetRecordsInput, _ ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetRecordsOutput, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	if err := f.failure(); err != nil {
		return nil, err
	}
	var id string
	var at, generation int
	if _, err := fmt.Sscan(*in.ShardIterator, &id, &at, &generation); err != nil {
		return nil, err
	}
	s := f.shard(id)
	switch {
	case s == nil:
		return nil, &types.ResourceNotFoundException{}
	case generation != f.generation:
		return nil, &types.ExpiredIteratorException{}
	case at < s.trimmed:
		return nil, &types.TrimmedDataAccessException{}
	}
	out := &dynamodbstreams.GetRecordsOutput{Records: s.records[at-s.trimmed:]}
	out.Records = out.Records[:min(len(out.Records), f.page)]
	at += len(out.Records)
	if !s.closed || at < s.trimmed+len(s.records) {
		out.NextShardIterator = f.iterator(id, at)
	}
	return out, nil
}

// function is an Invoker that runs a Go function and notes what it was given.
type function struct {
	handle func(call int, batch []events.DynamoDBEventRecord) (result, functionError string, err error)

	mu    sync.Mutex
	calls []call
}

type call struct {
	at      time.Time
	records string // the sequence numbers
	payload []byte
}

func (f *function) Invoke(_ context.Context, name string, payload []byte) ([]byte, string, error) {
	var e events.DynamoDBEvent
	if err := json.Unmarshal(payload, &e); err != nil {
		return nil, "", err
	}
	if name != "fanout" {
		return nil, "", fmt.Errorf("no function %q", name)
	}
	f.mu.Lock()
	f.calls = append(f.calls, call{time.Now(), sequences(e.Records), payload})
	n := len(f.calls)
	f.mu.Unlock()
	if f.handle == nil {
		return []byte("null"), "", nil
	}
	result, functionError, err := f.handle(n, e.Records)
	return []byte(result), functionError, err
}

func sequences(records []events.DynamoDBEventRecord) string {
	var s []string
	for _, r := range records {
		s = append(s, r.Change.SequenceNumber)
	}
	return strings.Join(s, " ")
}

// batches returns the sequence numbers of every call.
func (f *function) batches() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := []string{}
	for _, c := range f.calls {
		b = append(b, c.records)
	}
	return b
}

// letters is an on-failure destination.
type letters struct {
	mu     sync.Mutex
	fail   int // calls to fail first
	stored []letter
}

// letter has the fields as the documentation writes them.
type letter struct {
	RequestContext struct {
		RequestID              string `json:"requestId"`
		FunctionARN            string `json:"functionArn"`
		Condition              string `json:"condition"`
		ApproximateInvokeCount int    `json:"approximateInvokeCount"`
	} `json:"requestContext"`
	Batch struct {
		Start string `json:"startSequenceNumber"`
		End   string `json:"endSequenceNumber"`
		Size  int    `json:"batchSize"`
	} `json:"DDBStreamBatchInfo"`
	raw []byte
}

func (l letter) String() string {
	return fmt.Sprintf("%s %s-%s (%d) after %d", l.RequestContext.Condition, l.Batch.Start, l.Batch.End, l.Batch.Size, l.RequestContext.ApproximateInvokeCount)
}

func (l *letters) take(_ context.Context, record []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fail > 0 {
		l.fail--
		return fmt.Errorf("the disk is full")
	}
	letter := letter{raw: record}
	if err := json.Unmarshal(record, &letter); err != nil {
		return err
	}
	l.stored = append(l.stored, letter)
	return nil
}

func (l *letters) texts() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	texts := []string{}
	for _, letter := range l.stored {
		texts = append(texts, letter.String())
	}
	return texts
}

// scene is a mapping on a fake stream.
type scene struct {
	streams  *fakeStreams
	function *function
	letters  *letters
	config   stream.Config
	mapping  stream.Mapping
	poller   *stream.Poller // once started
}

func newScene(shards ...string) *scene {
	if len(shards) == 0 {
		shards = []string{"shard"}
	}
	s := &scene{streams: newFakeStreams(shards...), function: &function{}, letters: &letters{}}
	s.config = stream.Config{Streams: s.streams, Invoker: s.function, DeadLetter: s.letters.take, PollInterval: time.Second}
	s.mapping = stream.Mapping{
		StreamMapping: template.StreamMapping{
			LogicalID: "FanoutHeads", StartingPosition: template.TrimHorizon, BatchSize: 100, MaxRetries: -1, MaxRecordAge: -1, ParallelizationFactor: 1,
		},
		Function: "fanout", FunctionARN: "arn:aws:lambda:us-east-1:000000000000:function:fanout", Table: "Heads",
	}
	return s
}

// start runs the mapping until the returned function is called.
func (s *scene) start(t *testing.T) (stop func()) {
	t.Helper()
	p, err := stream.Open(t.Context(), s.config, s.mapping)
	require.NoError(t, err)
	s.poller = p
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		p.Run(ctx)
		close(done)
	}()
	return func() {
		cancel()
		<-done
	}
}

// run runs the mapping for some time on the test's clock, which costs none.
func (s *scene) run(t *testing.T, d time.Duration) {
	t.Helper()
	stop := s.start(t)
	elapse(d)
	stop()
}

// elapse lets the fake clock of a synctest bubble go on.
func elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
