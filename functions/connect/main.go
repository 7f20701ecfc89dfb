// Command connect is the function behind $connect: it registers a connection and
// ends those it displaces.
package main

import (
	"context"
	"log/slog"
	"os"

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
	lambda.Start(handler{connections: s, pusher: p, log: log, farewell: farewell}.handle)
}
