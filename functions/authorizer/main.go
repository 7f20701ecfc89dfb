// Command authorizer is the Lambda authorizer of the API: it says who may open a
// WebSocket, and as which user.
package main

import (
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
)

func main() {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	cfg, err := configFromEnv(os.Getenv)
	if err != nil {
		log.Error("starting", "err", err)
		os.Exit(1)
	}
	lambda.Start(newAuthorizer(cfg, log).handle)
}
