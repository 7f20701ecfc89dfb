// Command publish writes into system conversations. It has no route: the
// product's own backend invokes it, by IAM.
package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"inorder/shared/store"
)

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	s, err := store.Open(context.Background())
	if err != nil {
		log.Error("starting", "err", err)
		os.Exit(1)
	}
	lambda.Start(handler{ledger: s, log: log}.handle)
}
