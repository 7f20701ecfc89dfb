package table

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
	smithytime "github.com/aws/smithy-go/time"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

const (
	// RequestTimeout bounds one request to DynamoDB, so that one connection that
	// hangs does not use up the time in which another would answer.
	RequestTimeout = 3 * time.Second

	// defaultBudget is the time for attempts whose context has no deadline.
	defaultBudget = 8 * time.Second
)

// WithBudget returns a context that ends, so that attempts do. In a function the
// context ends while there is time for an answer (shared/start).
func WithBudget(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, defaultBudget)
}

// Pace waits between attempts, as measured by how long transactions take here: what is
// a long wait on one machine is a stampede on another.
//
// A writer's window is the same after each collision. Windows that grow with the crowd
// were measured too, in a model of a region (TestContention): they let one writer in
// while the others sleep, and at 60 sends a second into one conversation the 99th of a
// hundred took 3.7 s, where it takes a quarter of one so. What such windows save is
// transactions, which maxConflicts bounds.
type Pace struct {
	mu      sync.Mutex
	latency time.Duration // moving average, 0 until one was seen
}

const (
	initialLatency = 10 * time.Millisecond // what DynamoDB usually takes
	minLatency     = 500 * time.Microsecond
	maxWindow      = 2 * time.Second

	// maxLatency is the longest that counts: one above it had a try in it that the
	// SDK made again, and is no measure of the next.
	maxLatency = 100 * time.Millisecond

	// A writer waits for up to writeWindow latencies, a reader for one to readWindow:
	// a transaction keeps its items for less than one.
	writeWindow = 5
	readWindow  = 3
)

// NewPace makes a pace that has seen no transaction yet.
func NewPace() *Pace { return &Pace{} }

// Observe takes in a transaction that was answered, of reads or of writes.
func (p *Pace) Observe(took time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	took = min(took, maxLatency)
	if p.latency == 0 {
		p.latency = took
	}
	p.latency += (took - p.latency) / 8
}

// Wait sleeps after the given attempt of a write, which collided or was throttled,
// or returns the context's error if the time would not suffice.
//
// Full jitter: the sleep is anywhere in the window, so that writers that
// collided do not collide again. The window after a collision is so many times the
// usual one.
func (p *Pace) Wait(ctx context.Context, attempt, times int, throttled bool) error {
	window := writeWindow * p.Usual() * time.Duration(times)
	if throttled {
		window = throttleWindow(attempt)
	}
	return Sleep(ctx, rand.N(window)) //nolint:gosec // jitter is no secret
}

// WaitRead is wait for a reader, and for a write that meets no other of its kind.
func (p *Pace) WaitRead(ctx context.Context, attempt int, throttled bool) error {
	if throttled {
		return Sleep(ctx, rand.N(throttleWindow(attempt))) //nolint:gosec // jitter is no secret
	}
	latency := p.Usual()
	return Sleep(ctx, latency+rand.N((readWindow-1)*latency)) //nolint:gosec // jitter is no secret
}

// Sleep waits, or returns the context's error at once if its time would not suffice.
func Sleep(ctx context.Context, d time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return context.DeadlineExceeded
	}
	return smithytime.SleepWithContext(ctx, d)
}

// throttleWindow grows: a throttled partition needs time to split, not another
// try.
func throttleWindow(attempt int) time.Duration {
	return min(50*time.Millisecond<<min(attempt, 6), maxWindow)
}

// Usual is what a transaction takes here.
func (p *Pace) Usual() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(cmp.Or(p.latency, initialLatency), minLatency)
}

// MayPass tells of the reasons of a cancelled transaction whether one is that
// DynamoDB asks to slow down, and whether all of them may pass: conditions,
// conflicts and throttles do.
func MayPass(reasons []types.CancellationReason) (throttled, ok bool) {
	for _, r := range reasons {
		switch aws.ToString(r.Code) {
		case "None", "ConditionalCheckFailed", "TransactionConflict":
		case "ThrottlingError", "ProvisionedThroughputExceeded":
			throttled = true
		default:
			return false, false
		}
	}
	return throttled, true
}

// IsConditionFailed reports whether an item of a cancelled transaction failed its
// condition.
func IsConditionFailed(r types.CancellationReason) bool {
	return aws.ToString(r.Code) == "ConditionalCheckFailed"
}

// IsHeld reports whether an item of a cancelled transaction was judged, and its
// condition held.
func IsHeld(r types.CancellationReason) bool { return aws.ToString(r.Code) == "None" }

// IsTaken reports whether an item of a cancelled transaction was another's at that moment.
func IsTaken(r types.CancellationReason) bool { return aws.ToString(r.Code) == "TransactionConflict" }

// IsThrottle reports whether DynamoDB asked to slow down.
func IsThrottle(err error) bool {
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

// ConditionFailed reports whether a single write was refused by its condition.
func ConditionFailed(err error) bool {
	_, ok := errors.AsType[*types.ConditionalCheckFailedException](err)
	return ok
}

// IsConflict reports whether a single write met a transaction on the same item.
func IsConflict(err error) bool {
	_, ok := errors.AsType[*types.TransactionConflictException](err)
	return ok
}

// MayRetry reports whether a transaction that failed with err, other than by
// being cancelled, is worth the same attempt again: DynamoDB throttled it, or
// failed on its side, or no answer came, in which case it may be committed. A
// request that DynamoDB refused as wrong fails the same way again.
func MayRetry(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return true // no answer
	}
	if IsThrottle(err) || api.ErrorFault() == smithy.FaultServer {
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
