package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"inorder/shared/store"
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

// fakePusher notes calls as "post id frame" and "close id".
type fakePusher struct {
	post, close func(ctx context.Context) error

	mu    sync.Mutex
	calls []string
}

func (f *fakePusher) note(call string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
}

func (f *fakePusher) Post(ctx context.Context, id string, frame []byte) error {
	f.note(fmt.Sprintf("post %s %s", id, frame))
	if f.post != nil {
		return f.post(ctx)
	}
	return nil
}

func (f *fakePusher) Close(ctx context.Context, id string) error {
	if ctx.Err() != nil {
		id += " too late"
	}
	f.note("close " + id)
	if f.close != nil {
		return f.close(ctx)
	}
	return nil
}

func sample(t *testing.T) events.APIGatewayWebsocketProxyRequest {
	t.Helper()
	raw, err := os.ReadFile("../../events/connect.json")
	require.NoError(t, err)
	var event events.APIGatewayWebsocketProxyRequest
	require.NoError(t, json.Unmarshal(raw, &event))
	return event
}

func newHandler(c *fakeConnections, p *fakePusher) handler {
	return handler{connections: c, pusher: p, log: slog.New(slog.DiscardHandler), farewell: 10 * time.Second}
}

func TestConnectRegisters(t *testing.T) {
	t.Parallel()
	fake, pusher := &fakeConnections{}, &fakePusher{}
	response, err := newHandler(fake, pusher).handle(t.Context(), sample(t))
	require.NoError(t, err)
	require.Equal(t, events.APIGatewayProxyResponse{
		StatusCode: 200, Headers: map[string]string{"Sec-WebSocket-Protocol": "inorder.v1"},
	}, response)
	require.Equal(t, "alice", fake.userID)
	require.Equal(t, store.Connection{ID: "TWegAcC4EowCHnA=", DeviceID: "phone", ConnectedAt: 1795950299871}, fake.conn)
	require.Empty(t, pusher.calls)
}

func TestConnectSelectsTheSubprotocolOnlyIfOffered(t *testing.T) {
	t.Parallel()
	for _, offer := range []string{"", "other", "bearer.x", "inorder.v2"} {
		event := sample(t)
		event.Headers, event.MultiValueHeaders = map[string]string{"Sec-WebSocket-Protocol": offer}, nil
		response, err := newHandler(&fakeConnections{}, &fakePusher{}).handle(t.Context(), event)
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
			h := newHandler(fake, &fakePusher{})
			h.log = slog.New(slog.NewJSONHandler(&log, nil))
			event := sample(t)
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
	pusher := &fakePusher{}
	response, err := newHandler(&fakeConnections{displaced: displaced()}, pusher).handle(t.Context(), sample(t))
	require.NoError(t, err)
	require.Equal(t, 200, response.StatusCode)
	for id, reason := range map[string]string{"old": "replaced", "far": "devices", "further": "devices"} {
		told := slices.Index(pusher.calls, fmt.Sprintf(`post %s {"type":"goodbye","reason":"%s"}`, id, reason))
		ended := slices.Index(pusher.calls, "close "+id)
		require.GreaterOrEqual(t, told, 0, id)
		require.Greater(t, ended, told, id)
	}
	require.Len(t, pusher.calls, 6)
}

func TestConnectIsNotHeldUpByWhatItDisplaces(t *testing.T) {
	t.Parallel()
	hang := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	fail := func(context.Context) error { return errors.New("no") }
	for name, tc := range map[string]struct {
		post, close func(context.Context) error
		farewell    time.Duration
		inTime      bool // whether Close is called with time left
	}{
		"when it fails":         {fail, fail, time.Minute, true},
		"when it does not read": {hang, nil, time.Second, true},
		"when all hangs":        {hang, hang, 20 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pusher := &fakePusher{post: tc.post, close: tc.close}
			h := newHandler(&fakeConnections{displaced: displaced()}, pusher)
			h.farewell = tc.farewell
			start := time.Now()
			response, err := h.handle(t.Context(), sample(t))
			require.NoError(t, err)
			require.Equal(t, 200, response.StatusCode)
			require.Less(t, time.Since(start), 10*time.Second)
			if tc.inTime {
				for _, id := range []string{"old", "far", "further"} {
					require.Contains(t, pusher.calls, "close "+id, "one that does not read is closed all the same")
				}
			}
		})
	}
}
