package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/aws/smithy-go"
)

// description is what DescribeStream tells.
type description struct {
	shards       []shard
	partitionKey string // the attribute's name; "" if the engine does not say
}

type shard struct{ id, parent string }

func (p *Poller) describe(ctx context.Context) (description, error) {
	var d description
	in := &dynamodbstreams.DescribeStreamInput{StreamArn: &p.arn}
	for {
		out, err := p.cfg.Streams.DescribeStream(ctx, in)
		if err != nil {
			return description{}, fmt.Errorf("describing stream %s: %w", p.arn, err)
		}
		for _, k := range out.StreamDescription.KeySchema {
			if k.KeyType == types.KeyTypeHash {
				d.partitionKey = aws.ToString(k.AttributeName)
			}
		}
		for _, s := range out.StreamDescription.Shards {
			d.shards = append(d.shards, shard{aws.ToString(s.ShardId), aws.ToString(s.ParentShardId)})
		}
		if out.StreamDescription.LastEvaluatedShardId == nil {
			return d, nil
		}
		in.ExclusiveStartShardId = out.StreamDescription.LastEvaluatedShardId
	}
}

// Run delivers records until ctx is done, and returns when nothing is running
// any more. Errors of the stream are logged and tried again.
func (p *Poller) Run(ctx context.Context) {
	running := make(map[string]bool)
	ended := make(chan string)
	defer func() {
		for range running {
			<-ended
		}
	}()
	for failures := 0; ; {
		wait := shardRefresh
		d, err := p.describe(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			failures++
			wait = backoff(failures)
			p.log.Warn("cannot read the stream", "error", err, "retryIn", wait)
		} else {
			failures = 0
			for _, s := range p.startable(d, running) {
				running[s] = true
				go func() {
					p.runShard(ctx, s, d.partitionKey)
					ended <- s
				}()
			}
			if len(running) == 0 {
				wait = time.Second
			}
		}
		timer := time.NewTimer(wait)
		select {
		case s := <-ended:
			delete(running, s)
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// startable returns the shards to start: a child only after its parent is done,
// so that the records of an item stay in order.
func (p *Poller) startable(d description, running map[string]bool) []string {
	present := make(map[string]bool)
	for _, s := range d.shards {
		present[s.id] = true
	}
	for id := range running {
		present[id] = true
	}
	p.logged(p.checkpoint.forget(present))
	var start []string
	for _, s := range d.shards {
		parentDone := !present[s.parent] || p.checkpoint.get(s.parent).Ended
		if !running[s.id] && parentDone && !p.checkpoint.get(s.id).Ended {
			start = append(start, s.id)
		}
	}
	return start
}

// logged reports a position that could not be stored. The work goes on: the
// position in memory is right, and a restart delivers some records again.
func (p *Poller) logged(err error) {
	if err != nil {
		p.log.Error("cannot store the position in the stream", "error", err)
	}
}

// reader reads one shard and hands its records to the lanes.
type reader struct {
	*Poller
	shard        string
	partitionKey string
	iterator     string // "" if one has to be asked for
	sinceStart   bool   // pass over what is older than the mapping's start
	last         string // sequence number of the last record read
	lanes        []*lane
	progress     progress
	log          *slog.Logger
}

// runShard works on a shard until it ends, is gone, or ctx is done.
func (p *Poller) runShard(ctx context.Context, shard, partitionKey string) {
	r := &reader{
		Poller: p, shard: shard, partitionKey: partitionKey,
		last: p.checkpoint.get(shard).Sequence, log: p.log.With("shard", shard),
	}
	if r.last == "" {
		r.iterator = p.latest[shard]
	}
	r.progress.advance = func(sequence string) {
		p.logged(p.checkpoint.set(shard, position{Sequence: sequence}))
	}
	var lanes sync.WaitGroup
	for range p.m.ParallelizationFactor {
		l := &lane{Poller: p, shard: shard, in: make(chan []*record, 1), finish: r.progress.finish, log: r.log}
		r.lanes = append(r.lanes, l)
		lanes.Go(func() { l.run(ctx) })
	}
	ended := r.read(ctx)
	for _, l := range r.lanes {
		close(l.in)
	}
	lanes.Wait()
	if ended && ctx.Err() == nil {
		p.logged(p.checkpoint.set(shard, position{Sequence: r.last, Ended: true}))
	}
}

// read polls the shard. It is true if the shard was read to its end, false if
// ctx ended or the shard is gone.
func (r *reader) read(ctx context.Context) (ended bool) {
	for failures := 0; ctx.Err() == nil; {
		start := time.Now()
		n, err := r.poll(ctx)
		took := time.Since(start)
		switch {
		case err != nil:
			failures++
			gone := r.afterError(ctx, err, backoff(failures))
			if !pause(ctx, backoff(failures)) || gone {
				return false
			}
		case r.iterator == "":
			return true
		case n == 0:
			failures = 0
			pause(ctx, max(r.cfg.PollInterval, min(pollShare*took, maxPollWait)))
		default:
			failures = 0
		}
	}
	return false
}

// poll reads once and dispatches what came. After it an empty iterator means the
// end of the shard.
func (r *reader) poll(ctx context.Context) (n int, err error) {
	if r.iterator == "" {
		if err := r.seek(ctx); err != nil {
			return 0, err
		}
	}
	out, err := r.cfg.Streams.GetRecords(ctx, &dynamodbstreams.GetRecordsInput{ShardIterator: &r.iterator})
	if err != nil {
		return 0, fmt.Errorf("reading records: %w", err)
	}
	records, err := r.records(out.Records)
	if err != nil {
		return 0, err
	}
	r.dispatch(ctx, records)
	if len(out.Records) > 0 {
		r.last = aws.ToString(out.Records[len(out.Records)-1].Dynamodb.SequenceNumber)
	}
	r.iterator = aws.ToString(out.NextShardIterator)
	return len(out.Records), nil
}

// seek gets an iterator for the record after the last one.
func (r *reader) seek(ctx context.Context) error {
	in := &dynamodbstreams.GetShardIteratorInput{StreamArn: &r.arn, ShardId: &r.shard, ShardIteratorType: types.ShardIteratorTypeTrimHorizon}
	// A mapping that started at LATEST, and was restarted before it had a
	// position in the shard, must not begin with its whole past.
	r.sinceStart = r.last == ""
	if r.last != "" {
		in.ShardIteratorType, in.SequenceNumber = types.ShardIteratorTypeAfterSequenceNumber, &r.last
	}
	out, err := r.cfg.Streams.GetShardIterator(ctx, in)
	if err != nil {
		return fmt.Errorf("getting a position in the shard: %w", err)
	}
	r.iterator = aws.ToString(out.ShardIterator)
	return nil
}

// afterError prepares the next try after an error of the stream. It is true if the
// shard is not there any more.
func (r *reader) afterError(ctx context.Context, err error, retryIn time.Duration) (gone bool) {
	if ctx.Err() != nil {
		return false
	}
	r.iterator = "" // it may be the iterator's fault
	if _, expired := errors.AsType[*types.ExpiredIteratorException](err); expired {
		return false // after 15 minutes, nothing is lost
	}
	api, _ := errors.AsType[smithy.APIError](err)
	switch {
	case api == nil:
	case api.ErrorCode() == "TrimmedDataAccessException", api.ErrorCode() == "ValidationException" && r.last != "":
		// The position is older than the stream's 24 hours, or unknown to it.
		r.log.Warn("records were lost: the stream no longer has the position, going on with its oldest record", "after", r.last, "error", err)
		r.last = ""
		return false
	case api.ErrorCode() == "ResourceNotFoundException":
		r.log.Warn("the shard is gone", "error", err)
		return true
	}
	r.log.Warn("cannot read the stream", "error", err, "retryIn", retryIn)
	return false
}

// records converts what was read. Records that no filter matches come back
// without a body.
func (r *reader) records(in []types.Record) ([]*record, error) {
	out := make([]*record, 0, len(in))
	for _, rec := range in {
		doc, err := document(rec, r.arn)
		if err != nil {
			return nil, err
		}
		n := &record{
			sequence: aws.ToString(rec.Dynamodb.SequenceNumber),
			created:  aws.ToTime(rec.Dynamodb.ApproximateCreationDateTime),
		}
		out = append(out, n)
		if r.sinceStart && n.created.Before(r.checkpoint.Since) || !matchesAny(r.filters, doc) {
			continue
		}
		if n.body, err = json.Marshal(doc); err != nil {
			return nil, fmt.Errorf("encoding stream record %s: %w", n.sequence, err)
		}
		if n.lane, err = r.laneKey(rec.Dynamodb.Keys); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// laneKey returns what keeps records in order: the partition key. An engine that
// does not tell which of two keys is the partition key gets no parallelism.
func (r *reader) laneKey(keys map[string]types.AttributeValue) (string, error) {
	if len(r.lanes) == 1 {
		return "", nil
	}
	value, ok := keys[r.partitionKey]
	if !ok && len(keys) == 1 {
		for _, v := range keys {
			value, ok = v, true
		}
	}
	if !ok {
		return "", nil
	}
	a, err := attribute(value)
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(a)
	return string(data), err
}

// dispatch hands records to their lanes, and waits while a lane is full.
func (r *reader) dispatch(ctx context.Context, records []*record) {
	r.progress.add(records)
	perLane := make([][]*record, len(r.lanes))
	var passedOver []*record
	for _, n := range records {
		if n.body == nil {
			passedOver = append(passedOver, n)
			continue
		}
		h := fnv.New32a()
		_, _ = h.Write([]byte(n.lane))
		i := int(h.Sum32() % uint32(len(r.lanes))) //nolint:gosec // at most 10
		perLane[i] = append(perLane[i], n)
	}
	r.progress.finish(passedOver...)
	for i, part := range perLane {
		if len(part) == 0 {
			continue
		}
		select {
		case r.lanes[i].in <- part:
		case <-ctx.Done():
			return
		}
	}
}

// progress knows which records of a shard are done. Lanes finish them out of
// order; the shard's position is before the first that is not done.
type progress struct {
	advance func(sequence string) // called with the position, in order

	mu    sync.Mutex
	queue []*record
}

func (p *progress) add(records []*record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, records...)
}

func (p *progress) finish(records ...*record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range records {
		r.done = true
	}
	n := 0
	for n < len(p.queue) && p.queue[n].done {
		n++
	}
	if n > 0 {
		sequence := p.queue[n-1].sequence
		p.queue = slices.Delete(p.queue, 0, n)
		p.advance(sequence)
	}
}
