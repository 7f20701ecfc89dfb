package store

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

const (
	// requestTimeout bounds one request to DynamoDB, so that one connection that
	// hangs does not use up the time in which another would answer.
	requestTimeout = 3 * time.Second

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

// pace waits between attempts, by two measures it takes: how long transactions
// take here, for what is a long wait on one machine is a stampede on another; and
// how large a crowd is writing, for which the only sign is how often one collides.
//
// Who has just committed goes on at once, and often wins again. To wait first, so
// that others come in between, was measured with 64 writers: it shortens the slowest
// of 4,000 sends from 3.1–4.1 s to 1.8–2.8 s and costs a fifth to a quarter of all
// sends a second.
type pace struct {
	mu      sync.Mutex
	latency time.Duration // moving average, 0 until one was seen
	crowd   float64       // the window that keeps such a crowd apart, in latencies
}

const (
	initialLatency = 10 * time.Millisecond // what DynamoDB usually takes
	minLatency     = 500 * time.Microsecond
	maxWindow      = 2 * time.Second

	// The window grows by half with each collision, from the first guess on, and
	// shrinks more slowly with each commit, so that it settles where most
	// attempts succeed. It is forgotten where hardly anyone else is left.
	firstCrowd  = 20
	maxCrowd    = 512
	minCrowd    = 10
	crowdGrowth = 1.5
	crowdDecay  = 1.2
	loneWindow  = 4 // latencies, when there is no crowd, or one has waited long
)

func newPace() *pace { return &pace{} }

// observe takes in a transaction that was answered.
func (p *pace) observe(took time.Duration, committed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.latency == 0 {
		p.latency = took
	}
	p.latency += (took - p.latency) / 8
	if !committed {
		return
	}
	if p.crowd /= crowdDecay; p.crowd < minCrowd {
		p.crowd = 0
	}
}

// wait sleeps after the given attempt, which collided or was throttled, or
// returns the context's error if the time would not suffice.
//
// Full jitter: the sleep is anywhere in the window, so that writers that
// collided do not collide again.
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

// window is the longest that the sleep after this attempt may be. Who has tried
// more often waits less: with windows that grow, the unlucky ones would be
// overtaken for seconds by those who come new.
func (p *pace) window(attempt int, throttled bool) time.Duration {
	if throttled {
		// A throttled partition needs time to split, not another try.
		return min(50*time.Millisecond<<min(attempt, 6), maxWindow)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.crowd = min(max(p.crowd*crowdGrowth, firstCrowd), maxCrowd)
	latency := max(cmp.Or(p.latency, initialLatency), minLatency)
	window := float64(latency) * max(p.crowd/float64(attempt), loneWindow)
	return min(time.Duration(window), maxWindow)
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

// conditionFailed reports whether a single write was refused by its condition.
func conditionFailed(err error) bool {
	_, ok := errors.AsType[*types.ConditionalCheckFailedException](err)
	return ok
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
	if response, ok := errors.AsType[*smithyhttp.ResponseError](err); ok && response.HTTPStatusCode() >= http.StatusInternalServerError {
		return true // also from what stands before DynamoDB and sends no error document
	}
	switch api.ErrorCode() {
	case "InternalServerError", "ServiceUnavailable", "TransactionInProgressException", "TransactionConflictException":
		return true
	}
	return false
}
