// Package push writes frames to devices. It is the only place that speaks the
// @connections API of API Gateway.
//
// A push is a hint: it may get lost, repeated or overtaken, and a device that
// missed one finds what it told of by asking. So nothing here fails a message,
// and everything here gives up in bounded time.
package push

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/apigatewaymanagementapi"
	smithytime "github.com/aws/smithy-go/time"

	"github.com/inorder-im/inorder/shared/env"
	"github.com/inorder-im/inorder/shared/wire"
)

// ErrGone says that there is no such connection any more, or that there never
// was one of this id.
var ErrGone = errors.New("the connection is gone")

// ErrExpired says that a connection got a goodbye instead of its frames, because
// the token with which it was opened has expired.
var ErrExpired = errors.New("the connection's token has expired")

const (
	parallel     = 64
	maxAttempts  = 3
	firstBackoff = 25 * time.Millisecond // doubles with each attempt

	// deafFor is for how long a connection that was answered 429 to the last is tried
	// once for each frame: were it given all attempts each time, one client that does not
	// read would have every batch that it is in take as long as they do.
	deafFor = 30 * time.Second
	maxDeaf = 10_000 // connections that are remembered for it
)

// Pusher posts to connections. It is safe for concurrent use; its fields are set
// before the first one.
type Pusher struct {
	api *apigatewaymanagementapi.Client

	PostTimeout    time.Duration // for one frame to one connection, retries included
	DeliverTimeout time.Duration // for one Deliver
	Parallel       int           // connections that Deliver serves at a time

	Now func() time.Time // the clock by which connections expire

	mu   sync.Mutex
	deaf map[string]time.Time // by connection, until when
}

// New makes a Pusher on a client, with limits that suit a function: 2 seconds
// for a frame, 5 for a Deliver, 64 connections at a time. The client's own
// retries are not used.
func New(api *apigatewaymanagementapi.Client) *Pusher {
	return &Pusher{api: api, PostTimeout: 2 * time.Second, DeliverTimeout: 5 * time.Second, Parallel: parallel, Now: time.Now, deaf: map[string]time.Time{}}
}

// Open makes a Pusher from the environment: WEBSOCKET_ENDPOINT is the URL of the
// @connections API with its stage, and the SDK's own variables say the rest.
func Open(ctx context.Context) (*Pusher, error) {
	e := env.From(os.Getenv)
	endpoint := e.Text("WEBSOCKET_ENDPOINT", "https://<api>.execute-api.<region>.amazonaws.com/<stage>")
	if err := e.Err(); err != nil {
		return nil, err
	}
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("loading the AWS configuration: %w", err)
	}
	return New(apigatewaymanagementapi.NewFromConfig(cfg, func(o *apigatewaymanagementapi.Options) {
		o.BaseEndpoint = &endpoint
		// The SDK keeps 10 idle connections to a host; with more posts at a time
		// than that, each batch would open new ones.
		o.HTTPClient = awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
			t.MaxIdleConnsPerHost = parallel
		})
	})), nil
}

// Post sends one frame, and again while API Gateway answers 429 or 5xx or not at
// all, a few times and within PostTimeout. The error is ErrGone for a connection
// that is over.
//
// A 429 may also stand for one client that reads too slowly (API Gateway
// Management API, "LimitExceededException"). After a post whose last attempt met one the
// connection has one attempt for each frame, until one succeeds or half a minute is over.
func (p *Pusher) Post(ctx context.Context, connectionID string, frame []byte) error {
	ctx, cancel := context.WithTimeout(ctx, p.PostTimeout)
	defer cancel()
	most := maxAttempts
	if p.isDeaf(connectionID) {
		most = 1
	}
	for attempt := 1; ; attempt++ {
		_, err := p.api.PostToConnection(ctx, &apigatewaymanagementapi.PostToConnectionInput{
			ConnectionId: &connectionID, Data: frame,
		}, withoutRetries)
		if err == nil {
			p.hears(connectionID)
			return nil
		}
		err = fmt.Errorf("posting to connection %s: %w", connectionID, classify(err))
		if attempt == maxAttempts && statusOf(err) == http.StatusTooManyRequests {
			p.isTooSlow(connectionID)
		}
		if attempt == most || !mayRetry(err) || !wait(ctx, attempt) {
			return err
		}
	}
}

func (p *Pusher) isDeaf(connectionID string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.Now().Before(p.deaf[connectionID])
}

func (p *Pusher) hears(connectionID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.deaf, connectionID)
}

func (p *Pusher) isTooSlow(connectionID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.deaf) >= maxDeaf {
		clear(p.deaf)
	}
	p.deaf[connectionID] = p.Now().Add(deafFor)
}

// Close ends a connection. One that is gone already is no error.
func (p *Pusher) Close(ctx context.Context, connectionID string) error {
	ctx, cancel := context.WithTimeout(ctx, p.PostTimeout)
	defer cancel()
	for attempt := 1; ; attempt++ {
		_, err := p.api.DeleteConnection(ctx, &apigatewaymanagementapi.DeleteConnectionInput{
			ConnectionId: &connectionID,
		}, withoutRetries)
		if err == nil {
			return nil
		}
		if err = classify(err); errors.Is(err, ErrGone) {
			return nil
		}
		if attempt == maxAttempts || !mayRetry(err) || !wait(ctx, attempt) {
			return fmt.Errorf("closing connection %s: %w", connectionID, err)
		}
	}
}

// Dismiss tells a connection by a goodbye why it ends, and ends it, told or not:
// one that could not be told because it does not read is all the more to be
// closed. One that is gone already is no error.
func (p *Pusher) Dismiss(ctx context.Context, connectionID, reason string) error {
	frame, err := wire.Encode(wire.Goodbye{Type: wire.TypeGoodbye, Reason: reason})
	if err != nil {
		return err
	}
	half := p.PostTimeout / 2
	if deadline, ok := ctx.Deadline(); ok {
		half = min(half, time.Until(deadline)/2)
	}
	telling, cancel := context.WithTimeout(ctx, half)
	defer cancel()
	_ = p.Post(telling, connectionID, frame) // it is gone, or will learn it from the close
	return p.Close(ctx, connectionID)
}

// withoutRetries leaves the number of attempts to this package: the SDK's own
// retries would multiply it.
func withoutRetries(o *apigatewaymanagementapi.Options) { o.Retryer = aws.NopRetryer{} }

// classify adds ErrGone to what means it: 410, and also 400, which API Gateway
// answers to an id that no connection can have. Frames are always well-formed,
// so nothing else in the request can be the reason.
func classify(err error) error {
	switch statusOf(err) {
	case http.StatusGone, http.StatusBadRequest:
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return err
}

// mayRetry reports whether another attempt may do better: API Gateway was busy
// or failed, or no answer came.
func mayRetry(err error) bool {
	status := statusOf(err)
	return status == 0 || status == http.StatusTooManyRequests || status >= http.StatusInternalServerError
}

// statusOf is the HTTP status of a failed call, 0 if there was no answer.
func statusOf(err error) int {
	if answer, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		return answer.HTTPStatusCode()
	}
	return 0
}

// wait sleeps before the next attempt, anywhere in a window that doubles (full
// jitter). It reports false, at once, if the time would not suffice.
func wait(ctx context.Context, attempt int) bool {
	sleep := rand.N(firstBackoff << (attempt - 1)) //nolint:gosec // jitter is no secret
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= sleep {
		return false
	}
	return smithytime.SleepWithContext(ctx, sleep) == nil
}
