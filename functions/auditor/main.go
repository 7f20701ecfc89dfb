// Command auditor verifies the invariants of the product against its tables. It
// is invoked by a schedule, to look at a sample, and by operators. It changes nothing.
package main

import (
	"context"
	"log/slog"
	"math"
	"os"

	"github.com/inorder-im/inorder/shared/env"
	"github.com/inorder-im/inorder/shared/start"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/operate"
)

func main() {
	start.Function(func(ctx context.Context, log *slog.Logger) (any, error) {
		e := env.From(os.Getenv)
		h := handler{log: log, messages: e.Int("AUDIT_MESSAGES", 1, math.MaxInt32)}
		if err := e.Err(); err != nil {
			return nil, err
		}
		s, err := store.Open(ctx, log)
		if err != nil {
			return nil, err
		}
		h.store = operate.New(s)
		return h.handle, nil
	})
}
