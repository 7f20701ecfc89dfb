package main

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/route/routetest"
)

func TestDefault(t *testing.T) {
	t.Parallel()
	h := handler{now: func() time.Time { return time.UnixMilli(1795950300123) }, attend: func(context.Context, route.Caller) {}}
	serve := route.Serve(slog.New(slog.DiscardHandler), nil, nil, h.actions())
	for name, tc := range map[string]struct{ body, want string }{
		"ping": {
			routetest.Frame(t, "default", "").Body,
			`{"type":"reply","id":"p-1","action":"ping","result":{"serverTime":1795950300123}}`,
		},
		"an unknown action": {
			`{"action":"fly","id":"r-1"}`,
			`{"type":"error","id":"r-1","action":"fly","error":{"code":"UNKNOWN_ACTION","message":"there is no action \"fly\" here; see the protocol for those there are","retryable":false}}`,
		},
		"no object": {
			`[1]`,
			`{"type":"error","error":{"code":"UNKNOWN_ACTION","message":"a frame is one JSON object with an action and an id","retryable":false}}`,
		},
		"a ping without id": {
			`{"action":"ping"}`,
			`{"type":"error","action":"ping","error":{"code":"BAD_REQUEST","message":"a request has an id, a string of 1 to 64 bytes","retryable":false,"field":"id"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			event := routetest.Frame(t, "default", "")
			event.Body = tc.body
			response, err := serve(t.Context(), event)
			require.NoError(t, err)
			require.Equal(t, 200, response.StatusCode)
			require.Equal(t, tc.want, response.Body)
		})
	}
}
