// Command disconnect is the function behind $disconnect: it forgets a
// connection.
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
	lambda.Start(handler{connections: s, log: log}.handle)
}
