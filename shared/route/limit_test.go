package route_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inorder/shared/chat"
	"inorder/shared/limit"
	"inorder/shared/route"
	"inorder/shared/wire"
)

func TestLimited(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1795950300123)
	calls, sockets := 0, &dismissals{}
	count := route.To(func(context.Context, route.Caller, struct{}) (struct{}, error) {
		calls++
		return struct{}{}, nil
	})
	handler := route.Serve(slog.New(slog.DiscardHandler), nil, route.Limited(limit.Rate{PerSecond: 2, Burst: 3},
		func() time.Time { return now }, sockets, map[string]route.Action{"echo": count, "other": count}))
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
		Code: chat.Busy, Retryable: true, Details: map[string]any{"retryAfterMs": 500.0},
		Message: "one connection may do this 2 a second, and up to 3 at once; send it again in 500 ms, a message with the same clientMsgId",
	}, refused.Error)
	require.Equal(t, "r-1", refused.ID)

	// The user's other devices are not silenced by it, and get as much again.
	for range 3 {
		requireAdmitted("echo", "alice", "c2")
	}
	require.Equal(t, chat.Busy, ask("echo", "alice", "c2").Error.Code)
	third := ask("echo", "alice", "c3").Error
	require.Contains(t, third.Message, "one user may do this 4 a second, and up to 6 at once")
	require.Equal(t, map[string]any{"retryAfterMs": 250.0}, third.Details)
	requireAdmitted("echo", "bob", "c4")

	now = now.Add(500 * time.Millisecond)
	requireAdmitted("echo", "alice", "c1")
	require.Equal(t, chat.Busy, ask("echo", "alice", "c1").Error.Code)

	// Who is told and goes on all the same is sent away.
	for range 20*3 - 1 {
		require.Empty(t, sockets.calls)
		require.Equal(t, chat.Busy, ask("echo", "alice", "c1").Error.Code)
	}
	sockets.err = errors.New("429")
	require.Equal(t, chat.Busy, ask("echo", "alice", "c1").Error.Code)
	require.Equal(t, []string{"c1 flooding"}, sockets.calls)
	now = now.Add(time.Minute)
	requireAdmitted("echo", "alice", "c2")
	require.Len(t, sockets.calls, 1)
}
