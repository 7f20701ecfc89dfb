// Command connect is the function behind $connect: it registers a connection and
// ends those it displaces.
package main

import (
	"context"
	"log/slog"

	"inorder/shared/push"
	"inorder/shared/start"
	"inorder/shared/store"
)

func main() {
	start.Function(func(ctx context.Context, log *slog.Logger) (any, error) {
		s, err := store.Open(ctx, log)
		if err != nil {
			return nil, err
		}
		p, err := push.Open(ctx)
		return handler{connections: s, sockets: p, log: log, farewell: farewell}.handle, err
	})
}
