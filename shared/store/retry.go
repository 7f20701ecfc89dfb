package store

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
)

const (
	// attemptTimeout bounds one transaction, so that one connection that hangs
	// does not use up the time in which another would answer.
	attemptTimeout = 3 * time.Second

	// defaultBudget is the time for a write whose context has no deadline.
	defaultBudget = 8 * time.Second

	// answerReserve is kept of the deadline to tell the client BUSY; a function
	// that is killed at its deadline tells nothing.
	answerReserve = 500 * time.Millisecond
)

// withReserve shortens a context so that time is left for an answer.
func withReserve(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithTimeout(ctx, defaultBudget)
	}
	reserve := min(answerReserve, time.Until(deadline)/4)
	return context.WithDeadline(ctx, deadline.Add(-reserve))
}

// pace knows how long transactions take here, and waits between attempts by
// that measure: what is a long wait on one machine is a stampede on another.
type pace struct {
	mu      sync.Mutex
	latency time.Duration // moving average, 0 until one was seen
}

const (
	initialLatency = 10 * time.Millisecond // what DynamoDB usually takes
	minLatency     = 500 * time.Microsecond
	maxWindow      = 2 * time.Second
)

func newPace() *pace { return &pace{} }

func (p *pace) observe(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.latency == 0 {
		p.latency = took
	}
	p.latency += (took - p.latency) / 8
}

// wait sleeps before the attempt after the given one, or returns the context's
// error if the time would not suffice.
//
// Full jitter: the sleep is anywhere in the window, so that writers that
// collided do not collide again. The window starts at the number of
// transactions a small crowd needs and doubles with each collision.
func (p *pace) wait(ctx context.Context, attempt int, throttled bool) error {
	sleep := rand.N(p.window(attempt, throttled)) //nolint:gosec // jitter is no secret
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= sleep {
		return context.DeadlineExceeded
	}
	timer := time.NewTimer(sleep)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func (p *pace) window(attempt int, throttled bool) time.Duration {
	p.mu.Lock()
	latency := max(cmp.Or(p.latency, initialLatency), minLatency)
	p.mu.Unlock()
	window := latency * 10 << min(attempt, 6)
	if throttled {
		// A throttled partition needs time to split, not another try.
		window = max(window, 50*time.Millisecond<<min(attempt, 6))
	}
	return min(window, maxWindow)
}

func isConditionFailed(r types.CancellationReason) bool {
	return aws.ToString(r.Code) == "ConditionalCheckFailed"
}

// isThrottle reports whether DynamoDB asked to slow down.
func isThrottle(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return false
	}
	switch api.ErrorCode() {
	case "ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded", "Throttling":
		return true
	}
	return false
}

// isConflict reports whether a single write met a transaction on the same item.
func isConflict(err error) bool {
	_, ok := errors.AsType[*types.TransactionConflictException](err)
	return ok
}

// mayRetry reports whether a transaction that failed with err, other than by
// being cancelled, is worth the same attempt again: DynamoDB throttled it, or
// failed on its side, or no answer came, in which case it may be committed. A
// request that DynamoDB refused as wrong fails the same way again.
func mayRetry(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return true // no answer
	}
	if isThrottle(err) || api.ErrorFault() == smithy.FaultServer {
		return true
	}
	switch api.ErrorCode() {
	case "InternalServerError", "ServiceUnavailable", "TransactionInProgressException", "TransactionConflictException":
		return true
	}
	return false
}
