package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/route/routetest"
	"github.com/inorder-im/inorder/shared/store"
)

type fakeConnections struct {
	err    error
	userID string
	conns  []store.Connection
}

func (f *fakeConnections) Disconnect(_ context.Context, userID string, conns ...store.Connection) error {
	f.userID, f.conns = userID, conns
	return f.err
}

func TestDisconnect(t *testing.T) {
	t.Parallel()

	t.Run("forgets exactly that connection", func(t *testing.T) {
		t.Parallel()
		fake := &fakeConnections{}
		response, err := handler{connections: fake, log: slog.New(slog.DiscardHandler)}.handle(t.Context(), routetest.Frame(t, "disconnect", ""))
		require.NoError(t, err)
		require.Equal(t, 200, response.StatusCode)
		require.Equal(t, "alice", fake.userID)
		require.Equal(t, []store.Connection{{ID: "TWegAcC4EowCHnA=", DeviceID: "phone", ConnectedAt: 1795950299871, ExpiresAt: 4102444800_000}}, fake.conns)
	})

	t.Run("says that the store failed", func(t *testing.T) {
		t.Parallel()
		var log bytes.Buffer
		fake := &fakeConnections{err: errors.New("no table")}
		response, err := handler{connections: fake, log: slog.New(slog.NewJSONHandler(&log, nil))}.handle(t.Context(), routetest.Frame(t, "disconnect", ""))
		require.NoError(t, err)
		require.Equal(t, 500, response.StatusCode)
		require.Contains(t, log.String(), "no table")
	})

	t.Run("asks nothing of the store without a user", func(t *testing.T) {
		t.Parallel()
		fake := &fakeConnections{}
		event := routetest.Frame(t, "disconnect", "")
		event.RequestContext.Authorizer = nil
		response, err := handler{connections: fake, log: slog.New(slog.DiscardHandler)}.handle(t.Context(), event)
		require.NoError(t, err)
		require.Equal(t, 500, response.StatusCode)
		require.Empty(t, fake.conns)
	})
}
