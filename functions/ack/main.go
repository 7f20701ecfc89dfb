// Command ack is the function behind the routes ack and clear, by which a user's
// own positions in a conversation go up.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"inorder/shared/push"
	"inorder/shared/route"
	"inorder/shared/store"
)

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
	lambda.Start(route.Serve(log, handler{positions: s, rosters: store.NewRosters(s), pusher: p, log: log}.actions()))
}
