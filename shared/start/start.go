// Package start begins a Lambda function: the same log and the same end for all
// of them when something they need is missing.
package start

import (
	"context"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"
)

// Function wires a function and serves its invocations. wire gets the log, JSON
// lines on standard error, and gives the handler, in one of the forms that
// lambda.Start takes. An error of it is logged and ends the process, which Lambda
// reports as a failed start.
func Function(wire func(ctx context.Context, log *slog.Logger) (handler any, err error)) {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	handler, err := wire(context.Background(), log)
	if err != nil {
		log.Error("starting", "err", err)
		os.Exit(1)
	}
	lambda.Start(handler)
}
