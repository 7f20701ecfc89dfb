// Command revise is the function behind the routes recall and edit.
package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"inorder/shared/limit"
	"inorder/shared/push"
	"inorder/shared/route"
	"inorder/shared/start"
	"inorder/shared/store"
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
		return route.Serve(log, p, route.NewLimits(rate, time.Now, s.Charge(store.Writes), p), handler{messages: s, windows: w}.actions()), err
	})
}
