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
)

func main() {
	start.Function(func(ctx context.Context, log *slog.Logger) (any, error) {
		p, err := push.Open(ctx)
		return route.Serve(log, p, handler{now: time.Now}.actions()), err
	})
}
