// Command conversation is the function behind the routes that make a group and
// change its roster, title and state.
package main

import (
	"context"
	"log/slog"

	"inorder/shared/route"
	"inorder/shared/start"
	"inorder/shared/store"
)

func main() {
	start.Function(func(ctx context.Context, log *slog.Logger) (any, error) {
		s, err := store.Open(ctx)
		return route.Serve(log, handler{groups: s}.actions()), err
	})
}
