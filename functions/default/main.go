// Command default is the function behind $default: it answers ping, and tells
// what no route serves that it is unknown.
package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/inorder-im/inorder/shared/limit"
	"github.com/inorder-im/inorder/shared/push"
	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/start"
	"github.com/inorder-im/inorder/shared/store"
)

func main() {
	start.Function(func(ctx context.Context, log *slog.Logger) (any, error) {
		rate, err := limit.RateFromEnv(os.Getenv, "READS_PER_SECOND", "READ_BURST")
		if err != nil {
			return nil, err
		}
		s, err := store.Open(ctx, log)
		if err != nil {
			return nil, err
		}
		p, err := push.Open(ctx)
		h := handler{now: time.Now, attend: route.NewAttend(log, s, p)}
		return route.Serve(log, p, route.NewLimits(rate, time.Now, s.Charge(store.RequestReads), p), h.actions()), err
	})
}
