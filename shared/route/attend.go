package route

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"

	"inorder/shared/store"
	"inorder/shared/wire"
)

// Registry knows who is connected; a *store.Store does.
type Registry interface {
	Attend(ctx context.Context, userID string, c store.Connection) error
}

// Attended makes an action see to it, before anything else, that pushes reach the
// caller's connection, and end it where another has its place. Devices ask by ping
// and changes: whatever took their connection out, they go without pushes until
// then and no longer. A failure to look is logged only.
func Attended(log *slog.Logger, registry Registry, sockets Sockets, action Action) Action {
	return func(ctx context.Context, c Caller, fields map[string]json.RawMessage) (any, error) {
		if err := attend(ctx, registry, sockets, c); err != nil {
			log.WarnContext(ctx, "attending a connection", "requestId", c.RequestID, "connectionId", c.ConnectionID, "err", err)
		}
		return action(ctx, c, fields)
	}
}

func attend(ctx context.Context, registry Registry, sockets Sockets, c Caller) error {
	err := registry.Attend(ctx, c.UserID, store.Connection{
		ID: c.ConnectionID, DeviceID: c.DeviceID, ConnectedAt: c.ConnectedAt, ExpiresAt: c.ExpiresAt,
	})
	switch {
	case errors.Is(err, store.ErrSuperseded):
		return sockets.Dismiss(ctx, c.ConnectionID, wire.GoodbyeReplaced)
	case errors.Is(err, store.ErrTooManyDevices):
		return sockets.Dismiss(ctx, c.ConnectionID, wire.GoodbyeDevices)
	}
	return err
}
