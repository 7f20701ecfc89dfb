// Package stream is the event source mapping between a DynamoDB stream and a
// function: it does locally what Lambda does in the cloud. It reads the standard
// DynamoDB Streams API and invokes the function with batches of records, in
// order, at least once, with the retries, bisecting, partial failures and on-failure
// destination of a Lambda event source mapping. The rules are those of
// "Using AWS Lambda with Amazon DynamoDB" in the Lambda developer guide.
//
// What dynoxide 1.2.1 does and this package allows for: a table has one shard
// that never ends, although DescribeStream reports an ending sequence number for
// it; sequence numbers, shard ids and iterators survive a restart with a data
// file; iterators do not expire; a position that was trimmed is not an error, but
// goes on with the oldest record; a call returns at most 1,000 records, of any size;
// creation times are whole seconds; an iterator beyond the last record is not an error.
package stream

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	smithytime "github.com/aws/smithy-go/time"

	"github.com/inorder-im/inorder/infra/local/template"
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

// Mapping says which function gets which records, and how.
type Mapping struct {
	template.StreamMapping
	Function    string // given to the [Invoker]
	FunctionARN string // only for dead-letter records
	Table       string // whose stream is used that is enabled
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

// Open finds the stream, and fixes the starting position: with Latest, every record
// written after Open returned is delivered. Call [Poller.Run] to start.
func Open(ctx context.Context, cfg Config, m Mapping) (*Poller, error) {
	if cfg.PollInterval <= 0 {
		cfg.PollInterval = defaultPollInterval
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	p := &Poller{cfg: cfg, m: m, log: cfg.Log.With("mapping", m.LogicalID, "function", m.Function), woken: make(chan struct{})}
	var err error
	if p.arn, err = streamOf(ctx, cfg.Streams, m.Table); err != nil {
		return nil, fmt.Errorf("event source mapping %s: %w", m.LogicalID, err)
	}
	if err := p.openCheckpoint(ctx); err != nil {
		return nil, fmt.Errorf("event source mapping %s: %w", m.LogicalID, err)
	}
	return p, nil
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
	c, note, err := loadCheckpoint(p.cfg.CheckpointDir, p.m.LogicalID, p.arn)
	if err != nil {
		return err
	}
	if note != "" {
		p.log.Warn(note)
	}
	p.checkpoint = c
	if !c.fresh || p.m.StartingPosition != template.Latest {
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
