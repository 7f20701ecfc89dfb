package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/limit"
	"github.com/inorder-im/inorder/shared/route/routetest"
	"github.com/inorder-im/inorder/shared/store"
)

type fakeConnections struct {
	displaced store.Displaced
	err       error
	userID    string
	conn      store.Connection
}

func (f *fakeConnections) Connect(_ context.Context, userID string, c store.Connection) (store.Displaced, error) {
	f.userID, f.conn = userID, c
	return f.displaced, f.err
}

// fakeSockets notes who was dismissed, and why.
type fakeSockets struct {
	dismiss func(ctx context.Context) error

	mu    sync.Mutex
	calls []string
}

func (f *fakeSockets) Dismiss(ctx context.Context, id, reason string) error {
	f.mu.Lock()
	f.calls = append(f.calls, id+" "+reason)
	f.mu.Unlock()
	if f.dismiss != nil {
		return f.dismiss(ctx)
	}
	return nil
}

func newHandler(c *fakeConnections, s *fakeSockets) handler {
	return handler{
		connections: c, sockets: s, handshakes: limit.NewShared(limit.Rate{}, time.Now, nil),
		log: slog.New(slog.DiscardHandler), farewell: 10 * time.Second,
	}
}

func TestConnectRegisters(t *testing.T) {
	t.Parallel()
	fake, sockets := &fakeConnections{}, &fakeSockets{}
	response, err := newHandler(fake, sockets).handle(t.Context(), routetest.Frame(t, "connect", ""))
	require.NoError(t, err)
	require.Equal(t, events.APIGatewayProxyResponse{
		StatusCode: 200, Headers: map[string]string{"Sec-WebSocket-Protocol": "inorder.v1"},
	}, response)
	require.Equal(t, "alice", fake.userID)
	require.Equal(t, store.Connection{ID: "TWegAcC4EowCHnA=", DeviceID: "phone", ConnectedAt: 1795950299871, ExpiresAt: 4102444800_000}, fake.conn)
	require.Empty(t, sockets.calls)
}

func TestConnectSelectsTheSubprotocolOnlyIfOffered(t *testing.T) {
	t.Parallel()
	for _, offer := range []string{"", "other", "bearer.x", "inorder.v2"} {
		event := routetest.Frame(t, "connect", "")
		event.Headers, event.MultiValueHeaders = map[string]string{"Sec-WebSocket-Protocol": offer}, nil
		response, err := newHandler(&fakeConnections{}, &fakeSockets{}).handle(t.Context(), event)
		require.NoError(t, err)
		require.Equal(t, events.APIGatewayProxyResponse{StatusCode: 200}, response, offer)
	}
}

func TestConnectRefuses(t *testing.T) {
	t.Parallel()
	const failed = `{"code":"INTERNAL","message":"the server failed; its log has the reason under request id U8p2GEhSliAFrJw=","retryable":true}`
	for name, tc := range map[string]struct {
		authorizer any
		err        error
		status     int
		body       string
	}{
		"a device with a space":  {map[string]any{"principalId": "alice", "device": "my phone"}, nil, 400, `{"code":"BAD_REQUEST","message":"a device id is 1 to 64 of A-Z a-z 0-9 . _ -","retryable":false,"field":"device"}`},
		"a device with a bar":    {map[string]any{"principalId": "alice", "device": "a|b"}, nil, 400, ""},
		"no device":              {map[string]any{"principalId": "alice"}, nil, 400, ""},
		"no user":                {map[string]any{"device": "phone"}, nil, 500, failed},
		"no authorizer":          {nil, nil, 500, failed},
		"a ghost":                {map[string]any{"principalId": "alice", "device": "phone"}, fmt.Errorf("late: %w", store.ErrSuperseded), 409, `{"code":"BUSY","message":"a newer connection of this device is there","retryable":true}`},
		"what cannot be written": {map[string]any{"principalId": "alice", "device": "phone"}, errors.New("no table"), 500, failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			fake := &fakeConnections{err: tc.err}
			h := newHandler(fake, &fakeSockets{})
			h.log = slog.New(slog.NewJSONHandler(&log, nil))
			event := routetest.Frame(t, "connect", "")
			event.RequestContext.Authorizer = tc.authorizer
			response, err := h.handle(t.Context(), event)
			require.NoError(t, err)
			require.Equal(t, tc.status, response.StatusCode)
			if tc.body != "" {
				require.Equal(t, tc.body, response.Body)
			}
			require.Equal(t, tc.err != nil, fake.userID != "", "nothing is registered for a refused one")
			require.NotEmpty(t, log.String())
			require.NotContains(t, response.Body, "no table")
		})
	}
}

func displaced() store.Displaced {
	return store.Displaced{
		Replaced: []store.Connection{{ID: "old", DeviceID: "phone"}},
		Surplus:  []store.Connection{{ID: "far", DeviceID: "d1"}, {ID: "further", DeviceID: "d2"}},
	}
}

func TestConnectEndsWhatItDisplaces(t *testing.T) {
	t.Parallel()
	sockets := &fakeSockets{}
	response, err := newHandler(&fakeConnections{displaced: displaced()}, sockets).handle(t.Context(), routetest.Frame(t, "connect", ""))
	require.NoError(t, err)
	require.Equal(t, 200, response.StatusCode)
	require.ElementsMatch(t, []string{"old replaced", "far devices", "further devices"}, sockets.calls)
}

func TestConnectIsNotHeldUpByWhatItDisplaces(t *testing.T) {
	t.Parallel()
	for name, dismiss := range map[string]func(context.Context) error{
		"when it fails": func(context.Context) error { return errors.New("no") },
		"when it hangs": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHandler(&fakeConnections{displaced: displaced()}, &fakeSockets{dismiss: dismiss})
			h.farewell = 20 * time.Millisecond
			response, err := h.handle(t.Context(), routetest.Frame(t, "connect", ""))
			require.NoError(t, err)
			require.Equal(t, 200, response.StatusCode)
		})
	}
}

func TestG10_AUsersHandshakesAreLimited(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	fake := &fakeConnections{}
	h := newHandler(fake, &fakeSockets{})
	h.log = slog.New(slog.NewJSONHandler(&log, nil))
	now := time.UnixMilli(1795950300123)
	var failure error
	h.handshakes = limit.NewShared(limit.Rate{PerSecond: 1, Burst: 1}, func() time.Time { return now },
		func(_ context.Context, userID string, _ limit.Rate, n int, _ time.Time) (time.Duration, error) {
			require.Equal(t, "alice", userID)
			require.Equal(t, 1, n)
			return 1200 * time.Millisecond, failure
		})
	first, err := h.handle(t.Context(), routetest.Frame(t, "connect", ""))
	require.NoError(t, err)
	require.Equal(t, 200, first.StatusCode)

	fake.userID = ""
	refused, err := h.handle(t.Context(), routetest.Frame(t, "connect", ""))
	require.NoError(t, err)
	require.Equal(t, 429, refused.StatusCode)
	require.Equal(t, "2", refused.Headers["Retry-After"])
	require.JSONEq(t, `{"code":"BUSY","retryable":true,"details":{"retryAfterMs":1200},
		"message":"one user may connect 1 a second, and up to 1 at once; come again in 1200 ms"}`, refused.Body)
	require.Empty(t, fake.userID, "nothing is registered for it")
	require.Contains(t, log.String(), `"Refusals":1`)

	now, failure = now.Add(2*time.Minute), errors.New("no table")
	for range 2 { // one is free, one is not
		response, err := h.handle(t.Context(), routetest.Frame(t, "connect", ""))
		require.NoError(t, err)
		require.Equal(t, 200, response.StatusCode, "what cannot be counted is let through")
	}
	require.Contains(t, log.String(), "no table")
}
