package stream

import (
	"context"
	"slices"
	"time"

	smithytime "github.com/aws/smithy-go/time"

	"github.com/inorder-im/inorder/infra/local/batch"
	"github.com/inorder-im/inorder/shared/letter"
)

// lane invokes the function with one batch after the other. A shard has as many
// lanes as batches may run at a time; records that must stay in order share one.
type lane struct {
	*reader
	number  int
	own     *cursor       // where it reads while it is behind, nil if it does not
	changed chan struct{} // there is more to do; of capacity 1, as room
	room    chan struct{} // there is room for more

	// Guarded by the reader's mu.
	at      string    // the last record of the shard that it was offered
	taken   []*record // what it works on
	waiting []*record // what it has not begun with
	behind  bool      // it was full, and gets nothing from the reader until it has caught up
}

// job is a batch, or what is left of one.
type job struct {
	records []*record
	retries int // used up
	// invocations counts those for the batch and the ones it was split from.
	invocations   int
	functionError string // of the last invocation
	throttles     int    // in a row: times that the function could not be run
}

func (l *lane) run(ctx context.Context) {
	for {
		records := l.next(ctx)
		if len(records) == 0 {
			return
		}
		l.deliver(ctx, records)
	}
}

// next collects a batch: what is there, or with a batching window what comes
// until the window, which opens with the first record, closes or the batch is
// full. It is empty when ctx or the shard has ended.
func (l *lane) next(ctx context.Context) []*record {
	if !l.await(ctx) {
		return nil
	}
	window := time.NewTimer(l.m.BatchingWindow)
	defer window.Stop()
	for l.m.BatchingWindow > 0 && l.mayGrow() {
		select {
		case <-l.changed:
			continue
		case <-window.C:
		case <-ctx.Done():
			return nil
		}
		break
	}
	return l.take()
}

// await waits for records. It is false when ctx or the shard has ended.
func (l *lane) await(ctx context.Context) bool {
	for ctx.Err() == nil {
		l.mu.Lock()
		some, behind, stopped := len(l.waiting) > 0, l.behind, l.stopped
		l.mu.Unlock()
		switch {
		case some:
			return true
		case behind:
			if !l.catchUp(ctx) && stopped {
				return false
			}
		case stopped:
			return false
		default:
			select {
			case <-l.changed:
			case <-ctx.Done():
			}
		}
	}
	return false
}

// catchUp reads a page on its own, of what it was not given. It is false if that
// cannot be read any more.
func (l *lane) catchUp(ctx context.Context) bool {
	if l.own == nil {
		l.own = &cursor{Poller: l.Poller, shard: l.shard, partitionKey: l.partitionKey, only: l.number, last: l.at, log: l.log}
	}
	page, ok := l.own.page(ctx)
	if !ok {
		l.own = nil
		return false
	}
	if len(page) == 0 && l.own.iterator != "" { // as DynamoDB answers now and then
		return smithytime.SleepWithContext(ctx, l.cfg.PollInterval) == nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	beyond := slices.IndexFunc(page, func(n *record) bool { return isAfter(n.sequence, l.handed) })
	if beyond >= 0 {
		page = page[:beyond] // the reader will hand that over
	}
	if beyond >= 0 || !isAfter(l.handed, l.own.last) || l.own.iterator == "" {
		l.at, l.behind, l.own = l.handed, false, nil
	} else {
		l.at = l.own.last
	}
	l.give(slices.DeleteFunc(page, func(n *record) bool { return n.body == nil }))
	l.save()
	return true
}

// give adds records to those that wait. The caller holds mu.
func (l *lane) give(records []*record) {
	if len(records) > 0 {
		l.waiting = append(l.waiting, records...)
		signal(l.changed)
	}
}

func (l *lane) isFull() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.waiting) >= maxWaiting && !l.behind
}

// mayGrow tells whether the batch is not full and more can come.
func (l *lane) mayGrow() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.waiting)
	return n < l.m.BatchSize && l.fit() == n && !l.behind && !l.stopped
}

// take begins with the next batch.
func (l *lane) take() []*record {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.fit()
	l.taken = slices.Clone(l.waiting[:n])
	l.waiting = slices.Delete(l.waiting, 0, n)
	signal(l.room)
	return l.taken
}

// fit returns how many records go into one invocation. The caller holds mu.
func (l *lane) fit() int {
	size := letter.Size() - 1 // the first record has no comma
	for i, r := range l.waiting {
		size += len(r.body) + 1
		// One record alone is always below the limit: an item has 400 KB.
		if i > 0 && size > maxPayload || i == l.m.BatchSize {
			return i
		}
	}
	return len(l.waiting)
}

// finish is told of the records, the first of those it works on, that need no more work.
func (l *lane) finish(records []*record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken = l.taken[len(records):]
	l.save()
}

// done is the sequence number up to which nothing is left to do for it. The caller
// holds mu.
func (l *lane) done() string {
	switch {
	case len(l.taken) > 0:
		return l.taken[0].before
	case len(l.waiting) > 0:
		return l.waiting[0].before
	}
	return l.at
}

// deliver works on a batch until each record is done or given up.
func (l *lane) deliver(ctx context.Context, records []*record) {
	work := []*job{{records: records}}
	for len(work) > 0 && ctx.Err() == nil {
		work = append(l.attempt(ctx, work[0]), work[1:]...)
	}
}

// attempt invokes the function once for a job and returns what is left to do.
func (l *lane) attempt(ctx context.Context, j *job) []*job {
	if n := l.tooOld(j); n > 0 {
		old := *j
		old.records = j.records[:n]
		if !l.giveUp(ctx, recordAgeExceeded, &old) {
			return []*job{j}
		}
		return j.rest(n)
	}
	result, functionError, err := l.cfg.Invoker.Invoke(ctx, l.m.Function, event(j.records))
	if err != nil {
		// Lambda goes on until the records expire; this uses up no retries.
		j.throttles++
		if ctx.Err() == nil {
			l.log.Warn("the function cannot be run", "error", err, "records", len(j.records), "retryIn", backoff(j.throttles))
		}
		_ = smithytime.SleepWithContext(ctx, backoff(j.throttles)) // if ctx ends, so does the lane
		return []*job{j}
	}
	j.throttles, j.invocations, j.functionError = 0, j.invocations+1, functionError
	o := l.judge(j, result)
	l.finish(j.records[:o.done])
	if o.done == len(j.records) {
		return nil
	}
	return l.retry(ctx, j, o)
}

// outcome of an invocation.
type outcome struct {
	done  int  // records that are done, from the first on
	named bool // the function named the record to go back to
}

func (l *lane) judge(j *job, result []byte) outcome {
	switch {
	case j.functionError != "":
		return outcome{}
	case !l.m.ReportBatchItemFailures:
		return outcome{done: len(j.records)}
	}
	return reported(j.records, result)
}

// reported finds the record that the answer of a function asks to go back to:
// the lowest of those that failed. The whole batch failed if an identifier is unknown
// or the answer cannot be read.
func reported(records []*record, result []byte) outcome {
	failed, err := batch.Failed(result)
	if err != nil {
		return outcome{}
	}
	first := outcome{done: len(records)}
	for _, identifier := range failed {
		i := slices.IndexFunc(records, func(r *record) bool { return r.sequence == identifier })
		if i < 0 {
			return outcome{}
		}
		first = outcome{done: min(first.done, i), named: true}
	}
	return first
}

// retry decides what becomes of the records that an invocation did not do. With
// bisecting the batch is split, which uses up no retry: at the record that the
// function named, or in halves if it named none. A batch that fails at its first
// record cannot be split there; it is tried again as it is, and in the end given
// up as a whole.
func (l *lane) retry(ctx context.Context, j *job, o outcome) []*job {
	left := j.rest(o.done)[0]
	n := len(left.records)
	l.log.Warn("the function failed", "error", j.functionError, "partial", o.named,
		"first", left.records[0].sequence, "records", n, "retries", left.retries)
	switch {
	case l.m.BisectOnError && o.done > 0:
		return []*job{left}
	case l.m.BisectOnError && !o.named && n > 1:
		first := *left
		first.records = left.records[:n/2]
		return append([]*job{&first}, left.rest(n/2)...)
	case l.m.MaxRetries >= 0 && left.retries >= l.m.MaxRetries:
		if !l.giveUp(ctx, retriesExhausted, left) {
			return []*job{left}
		}
		return nil
	}
	left.retries++
	_ = smithytime.SleepWithContext(ctx, backoff(left.retries)) // if ctx ends, so does the lane
	return []*job{left}
}

// rest is the job without its first n records.
func (j *job) rest(n int) []*job {
	if n == len(j.records) {
		return nil
	}
	left := *j
	left.records = j.records[n:]
	return []*job{&left}
}

// tooOld returns how many records, from the first on, are over the age limit.
func (l *lane) tooOld(j *job) int {
	if l.m.MaxRecordAge <= 0 {
		return 0
	}
	oldest := time.Now().Add(-l.m.MaxRecordAge)
	n := slices.IndexFunc(j.records, func(r *record) bool { return !r.created.Before(oldest) })
	if n < 0 {
		return len(j.records)
	}
	return n
}

// giveUp sends a batch to the on-failure destination and passes it over. It is
// false if ctx ended before the destination had it.
func (l *lane) giveUp(ctx context.Context, condition string, j *job) bool {
	l.log.Error("records are given up", "condition", condition, "records", len(j.records),
		"first", j.records[0].sequence, "last", j.records[len(j.records)-1].sequence, "invocations", j.invocations)
	for failures := 0; l.cfg.DeadLetter != nil; {
		letter, err := l.deadLetterRecord(l.shard, condition, j)
		if err == nil {
			err = l.cfg.DeadLetter(ctx, letter)
		}
		if err == nil {
			break
		}
		failures++
		l.log.Error("the on-failure destination does not work", "error", err, "retryIn", backoff(failures))
		if smithytime.SleepWithContext(ctx, backoff(failures)) != nil {
			return false
		}
	}
	l.finish(j.records)
	return true
}
