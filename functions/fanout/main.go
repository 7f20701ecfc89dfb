// Command fanout follows the stream of the Conversations table and pushes new
// messages to the members' devices.
package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"inorder/shared/push"
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
	lambda.Start(handler{store: s, rosters: store.NewRosters(s), pusher: p, log: log, now: time.Now}.handle)
}
