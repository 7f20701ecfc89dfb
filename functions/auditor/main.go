// Command auditor verifies the invariants of the product against its tables. It
// is invoked by a schedule, to look at a sample, and by operators. It changes nothing.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"

	"github.com/inorder-im/inorder/shared/start"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/operate"
)

func main() {
	start.Function(func(ctx context.Context, log *slog.Logger) (any, error) {
		h := handler{log: log}
		var err error
		if h.messages, err = strconv.Atoi(os.Getenv("AUDIT_MESSAGES")); err != nil || h.messages < 1 {
			return nil, fmt.Errorf("AUDIT_MESSAGES is %q; it has to be how many messages a sample has, at least 1", os.Getenv("AUDIT_MESSAGES"))
		}
		s, err := store.Open(ctx, log)
		if err != nil {
			return nil, err
		}
		h.store = operate.New(s)
		return h.handle, nil
	})
}
