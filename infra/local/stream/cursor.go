package stream

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/aws/smithy-go"
	smithytime "github.com/aws/smithy-go/time"

	"github.com/inorder-im/inorder/shared/letter"
)

// allLanes makes a cursor read the records of every lane.
const allLanes = -1

// cursor is a place in a shard, from which it is read on.
type cursor struct {
	*Poller
	shard        string
	partitionKey string
	only         int    // the lane whose records are wanted, or allLanes
	iterator     string // "" if one has to be asked for, and after the page at the shard's end
	last         string // sequence number of the last record read
	oldest       bool   // last is not in the stream any more: go on with its oldest record
	sinceStart   bool   // pass over what is older than the mapping's start
	log          *slog.Logger
}

// page reads on. It is false if ctx ended or the shard is gone; other errors of the
// stream are logged and tried again.
func (c *cursor) page(ctx context.Context) ([]*record, bool) {
	for failures := 1; ctx.Err() == nil; failures++ {
		records, err := c.poll(ctx)
		if err == nil {
			return records, true
		}
		gone := c.afterError(ctx, err, backoff(failures))
		if smithytime.SleepWithContext(ctx, backoff(failures)) != nil || gone {
			break
		}
	}
	return nil, false
}

// poll reads once.
func (c *cursor) poll(ctx context.Context) ([]*record, error) {
	if c.iterator == "" {
		if err := c.seek(ctx); err != nil {
			return nil, err
		}
	}
	out, err := c.cfg.Streams.GetRecords(ctx, &dynamodbstreams.GetRecordsInput{ShardIterator: &c.iterator})
	if err != nil {
		return nil, fmt.Errorf("reading records: %w", err)
	}
	records, err := c.records(out.Records)
	if err != nil {
		return nil, err
	}
	if len(records) > 0 {
		c.last, c.oldest = records[len(records)-1].sequence, false
	}
	c.iterator = aws.ToString(out.NextShardIterator)
	return records, nil
}

// seek gets an iterator for the record after the last one.
func (c *cursor) seek(ctx context.Context) error {
	in := &dynamodbstreams.GetShardIteratorInput{StreamArn: &c.arn, ShardId: &c.shard, ShardIteratorType: types.ShardIteratorTypeTrimHorizon}
	// A mapping that started at LATEST, and was restarted before it had a
	// position in the shard, must not begin with its whole past.
	c.sinceStart = c.last == "" || c.oldest
	if !c.sinceStart {
		in.ShardIteratorType, in.SequenceNumber = types.ShardIteratorTypeAfterSequenceNumber, &c.last
	}
	out, err := c.cfg.Streams.GetShardIterator(ctx, in)
	if err != nil {
		return fmt.Errorf("getting a position in the shard: %w", err)
	}
	c.iterator = aws.ToString(out.ShardIterator)
	return nil
}

// afterError prepares the next try after an error of the stream. It is true if the
// shard is not there any more.
func (c *cursor) afterError(ctx context.Context, err error, retryIn time.Duration) (gone bool) {
	if ctx.Err() != nil {
		return false
	}
	c.iterator = "" // it may be the iterator's fault
	if _, expired := errors.AsType[*types.ExpiredIteratorException](err); expired {
		return false // after 15 minutes, nothing is lost
	}
	api, _ := errors.AsType[smithy.APIError](err)
	switch {
	case api == nil:
	case api.ErrorCode() == "TrimmedDataAccessException", api.ErrorCode() == "ValidationException" && !c.sinceStart:
		// The position is older than the stream's 24 hours, or unknown to it.
		c.log.Warn("records were lost: the stream no longer has the position, going on with its oldest record", "after", c.last, "error", err)
		c.oldest = true
		return false
	case api.ErrorCode() == "ResourceNotFoundException":
		c.log.Warn("the shard is gone", "error", err)
		return true
	}
	c.log.Warn("cannot read the stream", "error", err, "retryIn", retryIn)
	return false
}

// records converts what was read. Records of lanes that are not wanted come back
// without a body.
func (c *cursor) records(in []types.Record) ([]*record, error) {
	out := make([]*record, 0, len(in))
	before := c.last
	for _, rec := range in {
		if rec.Dynamodb == nil {
			return nil, fmt.Errorf("stream record %s has no change", aws.ToString(rec.EventID))
		}
		n := &record{
			sequence: aws.ToString(rec.Dynamodb.SequenceNumber),
			before:   before,
			created:  aws.ToTime(rec.Dynamodb.ApproximateCreationDateTime),
		}
		out = append(out, n)
		before = n.sequence
		if err := c.fill(n, rec); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (c *cursor) fill(n *record, rec types.Record) (err error) {
	n.lane = c.laneOf(rec.Dynamodb.Keys)
	if c.only != allLanes && n.lane != c.only || c.sinceStart && n.created.Before(c.checkpoint.Since) {
		return nil
	}
	n.body, err = letter.Change(c.arn, rec)
	return err
}

// laneOf returns the number of the lane that keeps records in order: by the partition
// key. An engine that does not tell which of two keys that is gets no parallelism.
func (c *cursor) laneOf(keys map[string]types.AttributeValue) int {
	if c.m.ParallelizationFactor == 1 {
		return 0
	}
	value, ok := keys[c.partitionKey]
	if !ok && len(keys) == 1 {
		for _, v := range keys {
			value, ok = v, true
		}
	}
	if !ok {
		return 0
	}
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%T%v", value, value)
	return int(h.Sum32() % uint32(c.m.ParallelizationFactor)) //nolint:gosec // at most 10
}
