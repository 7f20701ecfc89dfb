// Command ack is the function behind the routes ack and clear, by which a user's
// own positions in a conversation go up.
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

// deliverTimeout bounds the pushes, which the answer to the request waits for: a
// function is stopped once it has answered.
const deliverTimeout = 2 * time.Second

func main() {
	start.Function(func(ctx context.Context, log *slog.Logger) (any, error) {
		rate, err := limit.RateFromEnv(os.Getenv, "WRITES_PER_SECOND", "WRITE_BURST")
		if err != nil {
			return nil, err
		}
		s, err := store.Open(ctx, log)
		if err != nil {
			return nil, err
		}
		p, err := push.Open(ctx)
		if err != nil {
			return nil, err
		}
		p.DeliverTimeout = deliverTimeout
		return route.Serve(log, p, route.NewLimits(rate, time.Now, s.Charge(store.RequestWrites), p), handler{positions: s, pusher: p, log: log}.actions()), nil
	})
}
