package route_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/wire"
)

type registry struct {
	err  error
	seen []store.Connection
}

func (r *registry) Attend(_ context.Context, userID string, c store.Connection) error {
	c.ID = userID + " " + c.ID
	r.seen = append(r.seen, c)
	return r.err
}

type dismissed []string

func (d *dismissed) Dismiss(_ context.Context, connectionID, reason string) error {
	*d = append(*d, connectionID+" "+reason)
	return nil
}

// A connection that was taken out by mistake is put back when its device asks; one
// whose place another has is ended.
func TestG5_WhoAsksIsReachedByPushes(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err    error
		ended  dismissed
		logged bool
	}{
		"it is there":       {},
		"a newer one is":    {err: errors.Join(store.ErrSuperseded, nil), ended: dismissed{"c1 " + wire.GoodbyeReplaced}},
		"too many others":   {err: store.ErrTooManyDevices, ended: dismissed{"c1 " + wire.GoodbyeDevices}},
		"it cannot be seen": {err: errors.New("throttled"), logged: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			var ended dismissed
			r := &registry{err: tc.err}
			attend := route.NewAttend(slog.New(slog.NewTextHandler(&log, nil)), r, &ended)
			attend(t.Context(), route.Caller{UserID: "alice", DeviceID: "phone", ConnectionID: "c1", ConnectedAt: 3, ExpiresAt: 9})
			require.Equal(t, []store.Connection{{ID: "alice c1", DeviceID: "phone", ConnectedAt: 3, ExpiresAt: 9}}, r.seen)
			require.Equal(t, tc.ended, ended)
			require.Equal(t, tc.logged, log.Len() > 0)
		})
	}
}
