// Command publish writes into system conversations. It has no route: the
// product's own backend invokes it, by IAM.
package main

import (
	"context"
	"log/slog"

	"github.com/inorder-im/inorder/shared/start"
	"github.com/inorder-im/inorder/shared/store"
)

func main() {
	start.Function(func(ctx context.Context, log *slog.Logger) (any, error) {
		s, err := store.Open(ctx, log)
		if err != nil {
			return nil, err
		}
		return handler{ledger: s, log: log}.handle, nil
	})
}
