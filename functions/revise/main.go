// Command revise is the function behind the routes recall and edit.
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
		w, err := store.WindowsFromEnv(os.Getenv)
		if err != nil {
			return nil, err
		}
		rate, err := limit.RateFromEnv(os.Getenv, "WRITES_PER_SECOND", "WRITE_BURST")
		if err != nil {
			return nil, err
		}
		s, err := store.Open(ctx, log)
		if err != nil {
			return nil, err
		}
		p, err := push.Open(ctx)
		return route.Serve(log, p, route.NewLimits(rate, time.Now, s.Charge(store.RequestWrites), p), handler{messages: s, windows: w}.actions()), err
	})
}
