package queue

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	smithytime "github.com/aws/smithy-go/time"

	"github.com/inorder-im/inorder/infra/local/batch"
	"github.com/inorder-im/inorder/infra/local/template"
)

const (
	// defaultConcurrency is how many batches run at a time: Lambda begins with five.
	defaultConcurrency = 5
	// again is how long a mapping waits after the function could not be run, or the
	// queue could not be read.
	again = time.Second
)

// Source is an event source mapping: which function gets a queue's messages, and how.
// It does what "Using Lambda with Amazon SQS" in the Lambda developer guide says. What
// differs: nothing is polled, and batches that fail do not slow it down.
type Source struct {
	template.QueueMapping
	Function string // given to the [Invoker]
	Region   string
	Invoker  Invoker
	Log      *slog.Logger // nil: no log
}

// Invoker runs a function. functionError is "" if the function succeeded, err
// means that it could not be run, for example because it is throttled.
type Invoker interface {
	Invoke(ctx context.Context, function string, payload []byte) (result []byte, functionError string, err error)
}

// feeder feeds one function with one queue.
type feeder struct {
	*Queue
	Source
}

// Feed invokes the function with the queue's messages until ctx is done, and returns
// when nothing is running any more.
func (q *Queue) Feed(ctx context.Context, s Source) {
	if s.MaxConcurrency == 0 {
		s.MaxConcurrency = defaultConcurrency
	}
	s.Log = cmp.Or(s.Log, slog.New(slog.DiscardHandler))
	s.Log = s.Log.With("mapping", s.LogicalID, "function", s.Function)
	f := &feeder{q, s}
	places := make(chan struct{}, s.MaxConcurrency)
	var running sync.WaitGroup
	defer running.Wait()
	for {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		messages := f.collect(ctx)
		if len(messages) == 0 {
			return
		}
		running.Go(func() {
			f.deliver(ctx, messages)
			<-places
		})
	}
}

// collect waits for messages, and within the window for a full batch. There are none
// if ctx has ended.
func (f *feeder) collect(ctx context.Context) []message {
	var messages []message
	closes := ctx
	for f.await(closes) {
		more, err := f.receive(f.BatchSize-len(messages), f.Visibility)
		if err != nil {
			f.Log.Error("cannot read the queue", "error", err, "retryIn", again)
			_ = smithytime.SleepWithContext(ctx, again) // the loop sees that ctx has ended
		}
		if len(more) > 0 && len(messages) == 0 {
			var cancel context.CancelFunc
			closes, cancel = context.WithTimeout(ctx, f.BatchingWindow)
			defer cancel()
		}
		messages = append(messages, more...)
		if len(messages) == f.BatchSize {
			break
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return messages
}

// deliver invokes the function and deletes what it has done. The rest is visible again
// when its visibility timeout is over.
func (f *feeder) deliver(ctx context.Context, messages []message) {
	payload, err := f.event(messages)
	if err != nil {
		f.Log.Error("no event", "error", err)
		return
	}
	for {
		result, functionError, err := f.Invoker.Invoke(ctx, f.Function, payload)
		if err == nil {
			f.settle(messages, result, functionError)
			return
		}
		if ctx.Err() != nil {
			return
		}
		f.Log.Warn("the function cannot be run", "error", err, "messages", len(messages), "retryIn", again)
		if smithytime.SleepWithContext(ctx, again) != nil || !time.Now().Before(messages[0].visible) {
			return // they are visible again
		}
	}
}

// settle deletes the messages that the function does not name as failed.
func (f *feeder) settle(messages []message, result []byte, functionError string) {
	done, err := f.done(messages, result, functionError)
	switch {
	case err != nil:
		f.Log.Warn("the function failed", "error", err, "messages", len(messages))
	case len(done) < len(messages):
		f.Log.Warn("the function could not do all messages", "messages", len(messages), "failed", len(messages)-len(done))
	}
	if err := f.remove(done...); err != nil {
		f.Log.Error("cannot delete messages", "error", err)
	}
}

// done returns the handles of the messages that need no more work: none, and an error, if
// the function failed, or its answer cannot be read or names a message that is not in the
// batch.
func (f *feeder) done(messages []message, result []byte, functionError string) (handles []string, err error) {
	if functionError != "" {
		return nil, errors.New(functionError)
	}
	var failed []string
	if f.ReportBatchItemFailures {
		if failed, err = batch.Failed(result); err != nil {
			return nil, fmt.Errorf("its answer cannot be used: %w", err)
		}
	}
	for _, id := range failed {
		if !slices.ContainsFunc(messages, func(m message) bool { return m.id == id }) {
			return nil, fmt.Errorf("its answer names %q as failed, which is no message of the batch", id)
		}
	}
	for _, m := range messages {
		if !slices.Contains(failed, m.id) {
			handles = append(handles, m.handle())
		}
	}
	return handles, nil
}

// delivered is a message as Lambda gives it to a function ("Example standard queue
// message event" in the developer guide).
type delivered struct {
	MessageID         string            `json:"messageId"`
	ReceiptHandle     string            `json:"receiptHandle"`
	Body              string            `json:"body"`
	Attributes        map[string]string `json:"attributes"`
	MessageAttributes struct{}          `json:"messageAttributes"`
	MD5OfBody         string            `json:"md5OfBody"`
	EventSource       string            `json:"eventSource"`
	EventSourceARN    string            `json:"eventSourceARN"`
	AWSRegion         string            `json:"awsRegion"`
}

func (f *feeder) event(messages []message) ([]byte, error) {
	list := make([]delivered, len(messages))
	for i, m := range messages {
		list[i] = delivered{
			MessageID: m.id, ReceiptHandle: m.handle(), Body: m.body, Attributes: m.attributes(), MD5OfBody: sumOf(m.body),
			EventSource: "aws:sqs", EventSourceARN: f.ARN, AWSRegion: f.Region,
		}
	}
	payload, err := json.Marshal(map[string]any{"Records": list})
	if err != nil {
		return nil, fmt.Errorf("encoding an event: %w", err)
	}
	return payload, nil
}
