// Command send is the function behind the route send: it commits one message.
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
		return route.Serve(log, handler{ledger: s}.actions()), err
	})
}
