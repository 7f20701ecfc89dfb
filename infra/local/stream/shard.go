package stream

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	smithytime "github.com/aws/smithy-go/time"
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

// reader reads one shard and hands its records to the lanes. Lanes work them off out
// of order; the shard's position is before the first record that is not done.
type reader struct {
	*cursor
	lanes []*lane

	mu      sync.Mutex // guards what follows, and the lanes' places
	handed  string     // sequence number of the last record that the lanes were offered
	stopped bool       // nothing more will come
	saved   string     // the position
}

// runShard works on a shard until it ends, is gone, or ctx is done.
func (p *Poller) runShard(ctx context.Context, shard, partitionKey string) {
	last := p.checkpoint.get(shard).Sequence
	r := &reader{handed: last, saved: last}
	r.cursor = &cursor{
		Poller: p, shard: shard, partitionKey: partitionKey, only: allLanes, last: last, log: p.log.With("shard", shard),
	}
	if last == "" {
		r.iterator = p.latest[shard]
	}
	var lanes sync.WaitGroup
	for i := range p.m.ParallelizationFactor {
		l := &lane{reader: r, number: i, at: last, changed: make(chan struct{}, 1), room: make(chan struct{}, 1)}
		r.lanes = append(r.lanes, l)
		lanes.Go(func() { l.run(ctx) })
	}
	ended := r.read(ctx)
	r.stop()
	lanes.Wait()
	if ended && ctx.Err() == nil {
		p.logged(p.checkpoint.set(shard, position{Sequence: r.handed, Ended: true}))
	}
}

// read polls the shard. It is true if the shard was read to its end, false if
// ctx ended or the shard is gone.
func (r *reader) read(ctx context.Context) (ended bool) {
	for {
		start, woken := time.Now(), r.nextWake()
		records, ok := r.page(ctx)
		if !ok {
			return false
		}
		if len(records) > 0 {
			r.dispatch(ctx, records)
		}
		if r.iterator == "" {
			return true
		}
		if len(records) == 0 && !r.idle(ctx, woken) || smithytime.SleepWithContext(ctx, min(pollGap, r.cfg.PollInterval)-time.Since(start)) != nil {
			return false
		}
	}
}

// idle waits until it is time to look, or somebody says so. It is false if ctx ended.
func (r *reader) idle(ctx context.Context, woken <-chan struct{}) bool {
	timer := time.NewTimer(r.cfg.PollInterval)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-woken:
	case <-ctx.Done():
		return false
	}
	return true
}

const (
	// maxWaiting is how many records wait in a lane before it is full; what is left of
	// the page that fills it comes on top, at most 1,000.
	maxWaiting = 5000
	// roomWait is how long a page waits for room in a lane that is full, so that a
	// backlog of all lanes is not read once more by each. It is what Lambda lets pass
	// between two polls.
	roomWait = 250 * time.Millisecond
)

// dispatch hands the records of a page to their lanes. A lane that is full and stays
// so is left behind: it reads the shard on its own until it has caught up. So no other
// lane waits for it for long, and no more than maxWaiting records are kept for it.
func (r *reader) dispatch(ctx context.Context, page []*record) {
	parts := make([][]*record, len(r.lanes))
	for _, n := range page {
		if n.body != nil {
			parts[n.lane] = append(parts[n.lane], n)
		}
	}
	r.awaitRoom(ctx, parts)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handed = page[len(page)-1].sequence
	for i, l := range r.lanes {
		if len(parts[i]) > 0 && len(l.waiting) >= maxWaiting && !l.behind {
			l.behind = true
			l.log.Warn("a lane is full and left behind: it goes on by itself", "lane", i, "after", l.at)
		}
		if !l.behind {
			l.at = r.handed
			l.give(parts[i])
		}
	}
	r.save()
}

// awaitRoom waits until the lanes that get a part have room: for a while, or, if there
// is no other lane that could go on, as long as it takes.
func (r *reader) awaitRoom(ctx context.Context, parts [][]*record) {
	limit := time.NewTimer(roomWait)
	defer limit.Stop()
	if len(r.lanes) == 1 {
		limit.Stop()
	}
	for i, l := range r.lanes {
		for len(parts[i]) > 0 && l.isFull() {
			select {
			case <-l.room:
			case <-limit.C:
				return
			case <-ctx.Done():
				return
			}
		}
	}
}

// stop tells the lanes that nothing more will come.
func (r *reader) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	for _, l := range r.lanes {
		signal(l.changed)
	}
}

// save stores the shard's position if it has changed: that of the lane that is the
// farthest behind. The caller holds mu.
func (r *reader) save() {
	first := r.lanes[0].done()
	for _, l := range r.lanes[1:] {
		if done := l.done(); isAfter(first, done) {
			first = done
		}
	}
	if first != r.saved {
		r.saved = first
		r.logged(r.checkpoint.set(r.shard, position{Sequence: first}))
	}
}

// isAfter compares sequence numbers, which have too many digits for an integer.
func isAfter(a, b string) bool {
	if len(a) != len(b) {
		return len(a) > len(b)
	}
	return a > b
}

// signal wakes who waits for it, or will.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
