package route_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/limit"
	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/wire"
)

// bucket is what all environments share, with a number of tokens.
type bucket struct {
	tokens, charges int
	err             error
}

func (b *bucket) charge(_ context.Context, _ string, _ limit.Rate, n int, _ time.Time) (time.Duration, error) {
	b.charges++
	if b.err != nil || b.tokens < n {
		return 250 * time.Millisecond, b.err
	}
	b.tokens -= n
	return 0, nil
}

// forgiving is a bucket that all environments share, as full as its rate has it.
func forgiving(now func() time.Time) limit.Charge {
	var refusals *limit.Limiter
	return func(_ context.Context, user string, rate limit.Rate, _ int, _ time.Time) (time.Duration, error) {
		if refusals == nil {
			refusals = limit.New(rate, now)
		}
		return refusals.Take(user), nil
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	now, users := time.UnixMilli(1795950300123), &bucket{tokens: 6}
	clock := func() time.Time { return now }
	calls, sockets := 0, &dismissals{}
	count := route.To(func(context.Context, route.Caller, struct{}) (struct{}, error) {
		calls++
		return struct{}{}, nil
	})
	limits := route.NewLimits(limit.Rate{PerSecond: 2, Burst: 3}, clock, users.charge, forgiving(clock), sockets)
	handler := route.Serve(slog.New(slog.DiscardHandler), nil, limits, map[string]route.Action{"echo": count, "other": count})
	ask := func(action, user, connection string) frame {
		t.Helper()
		e := event(`{"action":"` + action + `","id":"r-1"}`)
		e.RequestContext.ConnectionID = connection
		e.RequestContext.Authorizer = map[string]any{"principalId": user, "device": "phone"}
		before := calls
		response, err := handler(t.Context(), e)
		require.NoError(t, err)
		var f frame
		require.NoError(t, json.Unmarshal([]byte(response.Body), &f))
		require.Equal(t, f.Type == wire.TypeReply, calls > before, "what is refused reaches nothing")
		return f
	}
	requireAdmitted := func(action, user, connection string) {
		t.Helper()
		require.Equal(t, wire.TypeReply, ask(action, user, connection).Type)
	}

	requireAdmitted("echo", "alice", "c1")
	requireAdmitted("other", "alice", "c1")
	requireAdmitted("echo", "alice", "c1")
	refused := ask("other", "alice", "c1")
	require.Equal(t, &wire.Error{
		Code: chat.CodeBusy, Retryable: true, Details: map[string]any{"retryAfterMs": 500.0},
		Message: "one connection may do this 2 a second, and up to 3 at once; send it again in 500 ms, a message with the same clientMsgId",
	}, refused.Error)
	require.Equal(t, "r-1", refused.ID)

	// The user's other devices are not silenced by it, and get as much again.
	for range 3 {
		requireAdmitted("echo", "alice", "c2")
	}
	users.tokens = 0
	require.Equal(t, chat.CodeBusy, ask("echo", "alice", "c2").Error.Code)
	third := ask("echo", "alice", "c3").Error
	require.Contains(t, third.Message, "one user may do this 4 a second, and up to 6 at once")
	require.Equal(t, map[string]any{"retryAfterMs": 250.0}, third.Details)
	users.tokens = 1
	requireAdmitted("echo", "bob", "c4")

	now = now.Add(500 * time.Millisecond)
	requireAdmitted("echo", "alice", "c1")
	require.Equal(t, chat.CodeBusy, ask("echo", "alice", "c1").Error.Code)

	// Who is told and goes on all the same is sent away: of the four times that alice
	// was told two are forgiven by now.
	for range 20*3 - 2 {
		require.Empty(t, sockets.calls)
		require.Equal(t, chat.CodeBusy, ask("echo", "alice", "c1").Error.Code)
	}
	sockets.err = errors.New("429")
	require.Equal(t, chat.CodeBusy, ask("echo", "alice", "c1").Error.Code)
	require.Equal(t, []string{"c1 flooding"}, sockets.calls)
	now = now.Add(time.Minute)
	requireAdmitted("echo", "alice", "c2")
	require.Len(t, sockets.calls, 1)
}

// A user who floods by many connections, and comes back by new ones, is told no more
// often than one who has one, in however many environments.
func TestG10_AFloodByManyConnectionsIsOneFlood(t *testing.T) {
	t.Parallel()
	now, users, sockets := time.UnixMilli(1795950300123), &bucket{}, &dismissals{}
	clock := func() time.Time { return now }
	refuse := forgiving(clock)
	var environments [4]route.Handler
	for i := range environments {
		limits := route.NewLimits(limit.Rate{PerSecond: 10, Burst: 50}, clock, users.charge, refuse, sockets)
		environments[i] = route.Serve(slog.New(slog.DiscardHandler), nil, limits, nil)
	}
	asked := 0
	ask := func(user, connection string) {
		t.Helper()
		e := event(`{"action":"echo","id":"r-1"}`)
		e.RequestContext.ConnectionID = connection
		e.RequestContext.Authorizer = map[string]any{"principalId": user, "device": "phone"}
		_, err := environments[asked%4](t.Context(), e)
		require.NoError(t, err)
		asked++
	}
	for i := range 4*1 + 100 { // what environments admit unasked, and what they forgive
		ask("mallory", "c"+strconv.Itoa(i%16))
		require.Empty(t, sockets.calls)
	}
	ask("mallory", "c1")
	ask("mallory", "another")
	require.Equal(t, []string{"c1 flooding", "another flooding"}, sockets.calls)
	for range 4 * 2 {
		ask("alice", "c17")
	}
	require.Len(t, sockets.calls, 2)
	now = now.Add(time.Minute)
	for range 100 {
		ask("mallory", "c18")
	}
	require.Len(t, sockets.calls, 2, "after a while it is forgiven")
}

// What is no request, or asks for what there is not, costs an invocation as well.
func TestG10_EveryFrameCounts(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"no JSON":           `send`,
		"no id":             `{"action":"echo"}`,
		"no action":         `{"id":"r-1"}`,
		"an unknown action": `{"action":"make money","id":"r-1"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now, sockets, users := time.UnixMilli(1795950300123), &dismissals{}, &bucket{tokens: 100}
			clock := func() time.Time { return now }
			limits := route.NewLimits(limit.Rate{PerSecond: 2, Burst: 3}, clock, users.charge, forgiving(clock), sockets)
			var log bytes.Buffer
			handler := route.Serve(slog.New(slog.NewJSONHandler(&log, nil)), nil, limits, nil)
			codes := map[chat.Code]int{}
			for range 3 + 60 + 1 {
				response, err := handler(t.Context(), event(body))
				require.NoError(t, err)
				var f frame
				require.NoError(t, json.Unmarshal([]byte(response.Body), &f))
				codes[f.Error.Code]++
			}
			require.Equal(t, 61, codes[chat.CodeBusy], "%v", codes)
			require.Equal(t, 61, strings.Count(log.String(), `"Refusals":1`))
			require.Equal(t, []string{"conn-1 flooding"}, sockets.calls)
		})
	}
}

// Where the shared bucket cannot be charged, an environment limits by itself.
func TestG10_WithoutTheSharedBucketTheLimitIsAnEnvironments(t *testing.T) {
	t.Parallel()
	now, users := time.UnixMilli(1795950300123), &bucket{err: errors.New("no table")}
	limits := route.NewLimits(limit.Rate{PerSecond: 8, Burst: 8}, func() time.Time { return now }, users.charge, (&bucket{}).charge, &dismissals{})
	var log bytes.Buffer
	handler := route.Serve(slog.New(slog.NewJSONHandler(&log, nil)), nil, limits, map[string]route.Action{
		"echo": route.To(func(context.Context, route.Caller, struct{}) (struct{}, error) { return struct{}{}, nil }),
	})
	admitted := 0
	for i := range 40 {
		e := event(`{"action":"echo","id":"r-1"}`)
		e.RequestContext.ConnectionID = "c" + strconv.Itoa(i)
		response, err := handler(t.Context(), e)
		require.NoError(t, err)
		var f frame
		require.NoError(t, json.Unmarshal([]byte(response.Body), &f))
		if f.Type == wire.TypeReply {
			admitted++
		}
	}
	require.Equal(t, 1+16, admitted, "what is free, and the user's burst")
	require.Equal(t, 1, users.charges, "not each request waits for it")
	require.Equal(t, 1, strings.Count(log.String(), "no table"))
}
