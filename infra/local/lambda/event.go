package lambda

import (
	"context"
	"errors"
	"fmt"
	"time"

	smithytime "github.com/aws/smithy-go/time"
)

// Asynchronous invocations, by "How Lambda handles errors and retries with
// asynchronous invocation" and "Lambda quotas".
const (
	// maxEvent is the largest payload, in bytes.
	maxEvent = 1 << 20
	// eventRetries are for an event that the function failed on: after a minute,
	// and after two more.
	eventRetries      = 2
	defaultEventRetry = time.Minute
	// An event that found no free process is tried again for hours, first after a
	// second.
	maxEventAge   = 6 * time.Hour
	minEventWait  = time.Second
	maxEventWait  = 5 * time.Minute
	maxEventQueue = 1000 // events that wait or run; Lambda's own limit is not told
)

// InvokeEvent calls a function without waiting for it, as Lambda's invocation type
// Event: what the function answers is dropped, and when it fails it is called twice
// more. An event that is given up is logged; those that wait when the service is
// closed are dropped.
//
// The errors are [ErrUnknownFunction], [ErrRequestTooLarge] for more than 1 MB,
// [ErrTooManyRequests] when 1,000 events wait, and [ErrClosed].
func (s *Service) InvokeEvent(function string, payload []byte) error {
	p, err := s.poolOf(function)
	switch {
	case err != nil:
		return err
	case len(payload) > maxEvent:
		return fmt.Errorf("an event for %s of %d bytes, above %d: %w", function, len(payload), maxEvent, ErrRequestTooLarge)
	case s.ctx.Err() != nil:
		return ErrClosed
	}
	select {
	case s.events <- struct{}{}:
	default:
		return fmt.Errorf("%w: %d events wait already", ErrTooManyRequests, maxEventQueue)
	}
	go func() {
		defer func() { <-s.events }()
		p.deliver(s.ctx, payload)
	}()
	return nil
}

// deliver calls the function until it has succeeded or the event is given up.
func (p *pool) deliver(ctx context.Context, payload []byte) {
	log := p.cfg.Log.With("function", p.fn.LogicalID)
	received, retries, backoff := time.Now(), 0, minEventWait
	for {
		res, err := p.invoke(ctx, payload)
		var wait time.Duration
		switch {
		case ctx.Err() != nil || errors.Is(err, ErrClosed):
			return
		case err != nil && time.Since(received) > maxEventAge:
			log.Error("an event is given up: the function could not be run", "error", err)
			return
		case err != nil:
			wait, backoff = backoff, min(2*backoff, maxEventWait)
			log.Warn("an event waits: the function could not be run", "error", err, "retryIn", wait)
		case res.functionError == "":
			return
		case retries == eventRetries:
			log.Error("an event is given up: the function failed", "error", string(res.payload), "calls", retries+1)
			return
		default:
			retries++
			wait = time.Duration(retries) * p.cfg.EventRetry
			log.Warn("the function failed on an event", "error", string(res.payload), "retryIn", wait)
		}
		if smithytime.SleepWithContext(ctx, wait) != nil {
			return
		}
	}
}
