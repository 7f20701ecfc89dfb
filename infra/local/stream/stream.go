// Package stream is the event source mapping between a DynamoDB stream and a
// function: it does locally what Lambda does in the cloud. It reads the standard
// DynamoDB Streams API and invokes the function with batches of records, in
// order, at least once, with the retries, bisecting, partial failures, filters
// and on-failure destination of a Lambda event source mapping. The rules are
// those of "Using AWS Lambda with Amazon DynamoDB" in the Lambda developer guide.
//
// What dynoxide 1.2.1 does and this package allows for: a table has one shard
// that never ends, although DescribeStream reports an ending sequence number for
// it; sequence numbers, shard ids and iterators survive a restart with a data
// file; iterators do not expire; a position that was trimmed is not an error, but
// goes on with the oldest record; a call returns at most 1,000 records, of any size;
// creation times are whole seconds; an iterator beyond the last record is not an error.
package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	smithytime "github.com/aws/smithy-go/time"
)

// Starting positions of a [Mapping].
const (
	TrimHorizon = "TRIM_HORIZON" // the oldest record there is
	Latest      = "LATEST"       // what is written from now on
)

const (
	// defaultPollInterval is how often Lambda looks at an idle shard. A push feels
	// immediate all the same: see [Poller.Wake].
	defaultPollInterval = 250 * time.Millisecond
	// pollGap is between two polls of a shard at least. Writes that come in quick
	// succession share a poll, and a batch; one alone does not wait.
	pollGap = 5 * time.Millisecond

	// shardRefresh is how often new shards are looked for besides the moments
	// when one ends.
	shardRefresh = 10 * time.Second

	// enablingTimeout is how long a new stream may take to be switched on. After
	// it reading begins, with an error and another try if it is still too early.
	enablingTimeout = 10 * time.Second
	enablingPoll    = 50 * time.Millisecond

	// clockSkew is how far the stream's clock may be behind ours.
	clockSkew = time.Minute

	backoffMin = 100 * time.Millisecond
	backoffMax = 10 * time.Second
)

// Mapping says which function gets which records, and how. The limits in
// brackets are Lambda's (CreateEventSourceMapping in the API reference).
type Mapping struct {
	Name        string // unique among mappings; names the checkpoint file
	Function    string // given to the [Invoker]
	FunctionARN string // only for dead-letter records

	// StreamARN is the stream; if it is empty, Table names the table whose
	// enabled stream is used.
	StreamARN string
	Table     string

	StartingPosition string        // TrimHorizon or Latest
	BatchSize        int           // records per invocation [1 to 10,000]; 0 means 100
	BatchingWindow   time.Duration // how long to wait for a full batch [0 to 300 s]
	MaxRetries       int           // after the first try [0 to 10,000]; -1 means without end
	MaxRecordAge     time.Duration // older records are given up [up to 7 days]; not above 0 means none
	BisectOnError    bool          // halve a batch that fails
	// ReportBatchItemFailures makes the answer {"batchItemFailures":
	// [{"itemIdentifier": sequence number}]} count.
	ReportBatchItemFailures bool
	// ParallelizationFactor is how many batches of a shard run at a time
	// [1 to 10]; 0 means 1. Records of one partition key stay in order.
	ParallelizationFactor int
	// Filters are event patterns; a record is delivered if one of them matches
	// or if there are none [up to 10]. See [Mapping.Validate] for the operators.
	Filters []json.RawMessage
}

// Streams is the part of the DynamoDB Streams API in use, which
// [dynamodbstreams.Client] has.
type Streams interface {
	ListStreams(context.Context, *dynamodbstreams.ListStreamsInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.ListStreamsOutput, error)
	DescribeStream(context.Context, *dynamodbstreams.DescribeStreamInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.DescribeStreamOutput, error)
	GetShardIterator(context.Context, *dynamodbstreams.GetShardIteratorInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetShardIteratorOutput, error)
	GetRecords(context.Context, *dynamodbstreams.GetRecordsInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetRecordsOutput, error)
}

// Invoker runs a function. functionError is "" if the function succeeded and
// otherwise what Lambda says in X-Amz-Function-Error, such as "Unhandled". err
// means that the function could not be run, for example because it is throttled.
type Invoker interface {
	Invoke(ctx context.Context, function string, payload []byte) (result []byte, functionError string, err error)
}

// Config is what a mapping runs with.
type Config struct {
	Streams Streams
	Invoker Invoker

	// DeadLetter gets the record of every batch that is given up: the JSON that
	// Lambda sends to an on-failure destination. The batch is not passed over
	// before it returns nil. If DeadLetter is nil, batches are only logged.
	DeadLetter func(ctx context.Context, record []byte) error

	// CheckpointDir is the folder for the positions in the stream, one small
	// file per mapping. A mapping that starts again there goes on after the
	// last batch that was done, also after kill -9: records are delivered at
	// least once. Empty: positions are kept in memory.
	CheckpointDir string

	PollInterval time.Duration // of an idle shard; 0 means 250 ms
	Log          *slog.Logger  // nil: no log
}

// Poller reads a stream for one mapping.
type Poller struct {
	cfg        Config
	m          Mapping
	filters    []matcher
	arn        string
	checkpoint *checkpoint
	latest     map[string]string // first iterators of shards, if starting at Latest
	log        *slog.Logger

	mu    sync.Mutex
	woken chan struct{} // is closed by the next Wake
}

// Wake says that there may be new records: an idle shard is polled now. It may be
// called at any time, and often.
func (p *Poller) Wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.woken)
	p.woken = make(chan struct{})
}

// nextWake is closed when Wake is called after this.
func (p *Poller) nextWake() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.woken
}

// Run opens the mapping and runs it until ctx is done, see [Open].
func Run(ctx context.Context, cfg Config, m Mapping) error {
	p, err := Open(ctx, cfg, m)
	if err != nil {
		return err
	}
	p.Run(ctx)
	return nil
}

// Open checks the mapping, finds the stream, and fixes the starting position:
// with Latest, every record written after Open returned is delivered. Call
// [Poller.Run] to start.
func Open(ctx context.Context, cfg Config, m Mapping) (*Poller, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if m.BatchSize == 0 {
		m.BatchSize = 100
	}
	if m.ParallelizationFactor == 0 {
		m.ParallelizationFactor = 1
	}
	if cfg.PollInterval <= 0 {
		cfg.PollInterval = defaultPollInterval
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	filters, err := compileFilters(m.Filters)
	if err != nil {
		return nil, fmt.Errorf("event source mapping %s: %w", m.Name, err)
	}
	p := &Poller{cfg: cfg, m: m, filters: filters, arn: m.StreamARN,
		log: cfg.Log.With("mapping", m.Name, "function", m.Function), woken: make(chan struct{})}
	if p.arn == "" {
		if p.arn, err = streamOf(ctx, cfg.Streams, m.Table); err != nil {
			return nil, fmt.Errorf("event source mapping %s: %w", m.Name, err)
		}
	}
	if err := p.openCheckpoint(ctx); err != nil {
		return nil, fmt.Errorf("event source mapping %s: %w", m.Name, err)
	}
	return p, nil
}

// Validate checks the mapping without running it. The filter operators are the
// ones that Lambda documents: exact values, prefix, suffix, equals-ignore-case,
// anything-but, numeric, exists and $or. Any other is an error.
func (m Mapping) Validate() error {
	var errs []error
	limit := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	limit(m.Name != "", "the mapping needs a name")
	limit(m.Function != "", "the mapping needs a function")
	limit(m.StreamARN != "" || m.Table != "", "the mapping needs a stream or a table")
	limit(m.StartingPosition == TrimHorizon || m.StartingPosition == Latest,
		"StartingPosition is %q, want %s or %s", m.StartingPosition, TrimHorizon, Latest)
	limit(m.BatchSize >= 0 && m.BatchSize <= 10_000, "BatchSize is %d, want 1 to 10000", m.BatchSize)
	limit(m.BatchingWindow >= 0 && m.BatchingWindow <= 300*time.Second, "the batching window is %v, want 0 to 300 seconds", m.BatchingWindow)
	limit(m.MaxRetries >= -1 && m.MaxRetries <= 10_000, "the maximum of retries is %d, want -1 to 10000", m.MaxRetries)
	limit(m.MaxRecordAge <= 604_800*time.Second, "the maximum record age is %v, want at most 7 days", m.MaxRecordAge)
	limit(m.ParallelizationFactor >= 0 && m.ParallelizationFactor <= 10, "ParallelizationFactor is %d, want 1 to 10", m.ParallelizationFactor)
	limit(len(m.Filters) <= 10, "there are %d filters, want at most 10", len(m.Filters))
	if _, err := compileFilters(m.Filters); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return fmt.Errorf("event source mapping %s: %w", m.Name, errors.Join(errs...))
	}
	return nil
}

// streamOf finds the stream of a table that is switched on; streams of the past
// stay listed for a day.
func streamOf(ctx context.Context, streams Streams, table string) (string, error) {
	in := &dynamodbstreams.ListStreamsInput{TableName: &table}
	for {
		out, err := streams.ListStreams(ctx, in)
		if err != nil {
			return "", fmt.Errorf("listing the streams of table %s: %w", table, err)
		}
		for _, s := range out.Streams {
			status, err := statusOf(ctx, streams, s.StreamArn)
			if err != nil {
				return "", fmt.Errorf("describing stream %s: %w", aws.ToString(s.StreamArn), err)
			}
			switch status {
			case types.StreamStatusEnabled, types.StreamStatusEnabling:
				return aws.ToString(s.StreamArn), nil
			}
		}
		if out.LastEvaluatedStreamArn == nil {
			return "", fmt.Errorf("table %s has no stream: give it a StreamSpecification", table)
		}
		in.ExclusiveStartStreamArn = out.LastEvaluatedStreamArn
	}
}

// statusOf waits while a stream is being switched on, which takes LocalStack half a
// second: until then it has shards, but GetShardIterator is an error.
func statusOf(ctx context.Context, streams Streams, arn *string) (types.StreamStatus, error) {
	for deadline := time.Now().Add(enablingTimeout); ; {
		d, err := streams.DescribeStream(ctx, &dynamodbstreams.DescribeStreamInput{StreamArn: arn})
		if err != nil {
			return "", err
		}
		status := d.StreamDescription.StreamStatus
		if status != types.StreamStatusEnabling || time.Now().After(deadline) {
			return status, nil
		}
		if err := smithytime.SleepWithContext(ctx, enablingPoll); err != nil {
			return "", err
		}
	}
}

// openCheckpoint loads the positions, or makes the first ones.
func (p *Poller) openCheckpoint(ctx context.Context) error {
	c, note, err := loadCheckpoint(p.cfg.CheckpointDir, p.m.Name, p.arn)
	if err != nil {
		return err
	}
	if note != "" {
		p.log.Warn(note)
	}
	p.checkpoint = c
	if !c.fresh || p.m.StartingPosition != Latest {
		return nil
	}
	c.Since = time.Now().Add(-clockSkew)
	d, err := p.describe(ctx)
	if err != nil {
		return err
	}
	p.latest = make(map[string]string)
	for _, s := range d.shards {
		it, err := p.cfg.Streams.GetShardIterator(ctx, &dynamodbstreams.GetShardIteratorInput{
			StreamArn: &p.arn, ShardId: &s.id, ShardIteratorType: types.ShardIteratorTypeLatest,
		})
		if err != nil {
			return fmt.Errorf("getting the latest position of shard %s: %w", s.id, err)
		}
		p.latest[s.id] = aws.ToString(it.ShardIterator)
	}
	return c.save()
}

// backoff returns the wait after the n-th failure in a row, counted from 1.
func backoff(n int) time.Duration {
	d := backoffMin
	for ; n > 1 && d < backoffMax; n-- {
		d *= 2
	}
	return min(d, backoffMax)
}
