package route

import (
	"context"
	"errors"
	"log/slog"

	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/wire"
)

// Registry knows who is connected; a *store.Store does.
type Registry interface {
	Attend(ctx context.Context, userID string, c store.Connection) error
}

// Attend sees to it that pushes reach the caller's connection, and ends it where
// another has its place. An action does that before it reads what the device has to
// know. Devices ask by ping and changes: whatever took their connection out, they go
// without pushes until then and no longer. A failure to look is logged only.
type Attend func(ctx context.Context, c Caller)

// NewAttend makes an Attend.
func NewAttend(log *slog.Logger, registry Registry, sockets Sockets) Attend {
	return func(ctx context.Context, c Caller) {
		if err := attend(ctx, registry, sockets, c); err != nil {
			log.WarnContext(ctx, "attending a connection", "requestId", c.RequestID, "connectionId", c.ConnectionID, "err", err)
		}
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
