// Command sync is the function behind the routes by which a device pulls: sync,
// history, changes, conversations, members and receipts.
package main

import (
	"context"
	"log/slog"

	"inorder/shared/push"
	"inorder/shared/route"
	"inorder/shared/start"
	"inorder/shared/store"
	"inorder/shared/wire"
)

func main() {
	start.Function(func(ctx context.Context, log *slog.Logger) (any, error) {
		s, err := store.Open(ctx, log)
		if err != nil {
			return nil, err
		}
		p, err := push.Open(ctx)
		actions := handler{store: s}.actions()
		actions[wire.ActionChanges] = route.Attended(log, s, p, actions[wire.ActionChanges])
		return route.Serve(log, p, actions), err
	})
}
