// Command connect is the function behind $connect: it registers a connection and
// ends those it displaces.
package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/inorder-im/inorder/shared/limit"
	"github.com/inorder-im/inorder/shared/push"
	"github.com/inorder-im/inorder/shared/start"
	"github.com/inorder-im/inorder/shared/store"
)

func main() {
	start.Function(func(ctx context.Context, log *slog.Logger) (any, error) {
		rate, err := limit.RateFromEnv(os.Getenv, "USER_CONNECTS_PER_SECOND", "USER_CONNECT_BURST")
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
		handshakes := limit.NewShared(rate, time.Now, s.Charge(store.RequestHandshakes))
		return handler{connections: s, sockets: p, handshakes: handshakes, log: log, farewell: farewell}.handle, nil
	})
}
