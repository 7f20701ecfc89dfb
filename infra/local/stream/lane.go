package stream

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"time"
)

// lane invokes the function with one batch after the other. A shard has as many
// lanes as batches may run at a time; records that must stay in order share one.
type lane struct {
	*Poller
	shard   string
	in      chan []*record // closed at the end of the shard
	pending []*record
	finish  func(...*record) // told of every record that needs no more work
	log     *slog.Logger
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
		batch := l.next(ctx)
		if len(batch) == 0 {
			return
		}
		l.deliver(ctx, batch)
	}
}

// next collects a batch: what is there, or with a batching window what comes
// until the window, which opens with the first record, closes or the batch is
// full. It is empty when ctx or the shard has ended.
func (l *lane) next(ctx context.Context) []*record {
	if len(l.pending) == 0 {
		select {
		case l.pending = <-l.in: // nil when closed
		case <-ctx.Done():
		}
		if len(l.pending) == 0 {
			return nil
		}
	}
	window := time.NewTimer(l.m.BatchingWindow)
	defer window.Stop()
	for l.fit() == len(l.pending) && len(l.pending) < l.m.BatchSize {
		select {
		case more, open := <-l.in:
			if !open {
				return l.take(l.fit())
			}
			l.pending = append(l.pending, more...)
			continue
		default:
		}
		if l.m.BatchingWindow == 0 {
			break
		}
		select {
		case more, open := <-l.in:
			if !open {
				return l.take(l.fit())
			}
			l.pending = append(l.pending, more...)
		case <-window.C:
			return l.take(l.fit())
		case <-ctx.Done():
			return nil
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return l.take(l.fit())
}

// fit returns how many pending records go into one invocation.
func (l *lane) fit() int {
	size := eventOverhead - 1 // the first record has no comma
	for i, r := range l.pending {
		size += len(r.body) + 1
		// One record alone is always below the limit: an item has 400 KB.
		if i > 0 && size > maxPayload || i == l.m.BatchSize {
			return i
		}
	}
	return len(l.pending)
}

func (l *lane) take(n int) []*record {
	batch := slices.Clone(l.pending[:n])
	l.pending = slices.Delete(l.pending, 0, n)
	return batch
}

// deliver works on a batch until each record is done or given up.
func (l *lane) deliver(ctx context.Context, batch []*record) {
	work := []*job{{records: batch}}
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
		pause(ctx, backoff(j.throttles))
		return []*job{j}
	}
	j.throttles, j.invocations, j.functionError = 0, j.invocations+1, functionError
	o := l.judge(j, result)
	l.finish(j.records[:o.done]...)
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
// the lowest of those that failed. No failures, an empty answer and null mean
// success. The whole batch failed if an identifier is missing, empty or unknown
// or the answer cannot be read ("Configuring partial batch response with DynamoDB
// and Lambda" in the developer guide). Names are case-sensitive, unlike in
// encoding/json.
func reported(records []*record, result []byte) outcome {
	all, none := outcome{done: len(records)}, outcome{}
	if len(result) == 0 {
		return all
	}
	var answer map[string]json.RawMessage
	if err := json.Unmarshal(result, &answer); err != nil {
		return none
	}
	var failures []map[string]json.RawMessage
	if raw, ok := answer["batchItemFailures"]; !ok {
		return all
	} else if err := json.Unmarshal(raw, &failures); err != nil {
		return none
	}
	first := all
	for _, f := range failures {
		var identifier string
		if err := json.Unmarshal(f["itemIdentifier"], &identifier); err != nil {
			return none
		}
		i := slices.IndexFunc(records, func(r *record) bool { return r.sequence == identifier })
		if i < 0 {
			return none
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
	pause(ctx, backoff(left.retries))
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
		if !pause(ctx, backoff(failures)) {
			return false
		}
	}
	l.finish(j.records...)
	return true
}
