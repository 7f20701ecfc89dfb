// Command default is the function behind $default: it answers ping, and tells
// what no route serves that it is unknown.
package main

import (
	"context"
	"log/slog"
	"time"

	"inorder/shared/route"
	"inorder/shared/start"
)

func main() {
	start.Function(func(_ context.Context, log *slog.Logger) (any, error) {
		return route.Serve(log, handler{now: time.Now}.actions()), nil
	})
}
