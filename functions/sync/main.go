// Command sync is the function behind the routes by which a device pulls: sync,
// history, changes, conversations, members and receipts.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"inorder/shared/route"
	"inorder/shared/store"
)

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	s, err := store.Open(context.Background())
	if err != nil {
		log.Error("starting", "err", err)
		os.Exit(1)
	}
	lambda.Start(route.Serve(log, handler{store: s}.actions()))
}
