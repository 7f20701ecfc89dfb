// Command fanout follows the stream of the Conversations table and pushes new
// messages to the members' devices.
package main

import (
	"context"
	"log/slog"
	"time"

	"inorder/shared/push"
	"inorder/shared/start"
	"inorder/shared/store"
)

func main() {
	start.Function(func(ctx context.Context, log *slog.Logger) (any, error) {
		s, err := store.Open(ctx, log)
		if err != nil {
			return nil, err
		}
		p, err := push.Open(ctx)
		return handler{store: s, rosters: store.NewRosters(s), pusher: p, log: log, now: time.Now}.handle, err
	})
}
