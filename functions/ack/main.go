// Command ack is the function behind the routes ack and clear, by which a user's
// own positions in a conversation go up.
package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"inorder/shared/push"
	"inorder/shared/route"
	"inorder/shared/store"
)

// deliverTimeout bounds the pushes, which the answer to the request waits for: a
// function is stopped once it has answered.
const deliverTimeout = 2 * time.Second

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ctx := context.Background()
	s, err := store.Open(ctx)
	if err != nil {
		log.Error("starting", "err", err)
		os.Exit(1)
	}
	p, err := push.Open(ctx)
	if err != nil {
		log.Error("starting", "err", err)
		os.Exit(1)
	}
	p.DeliverTimeout = deliverTimeout
	lambda.Start(route.Serve(log, handler{positions: s, pusher: p, log: log}.actions()))
}
