// Command default is the function behind $default: it answers ping, and tells
// what no route serves that it is unknown.
package main

import (
	"context"
	"log/slog"
	"time"

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
		actions := handler{now: time.Now}.actions()
		actions[wire.ActionPing] = route.Attended(log, s, p, actions[wire.ActionPing])
		return route.Serve(log, p, actions), err
	})
}
