// Package start begins a Lambda function: the same log and the same end for all
// of them when something they need is missing.
package start

import (
	"context"
	"log/slog"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/inorder-im/inorder/shared/metric"
)

// Function wires a function and serves its invocations. wire gets the log and
// returns the handler, in one of the forms that lambda.Start takes. An error of it
// is logged and ends the process, which Lambda reports as a failed start.
//
// The log is JSON lines on standard output: there CloudWatch finds the metrics in
// them (CloudWatch User Guide, "Specification: Embedded metric format").
func Function(wire func(ctx context.Context, log *slog.Logger) (handler any, err error)) {
	options, err := metric.OptionsFromEnv(os.Getenv)
	log := slog.New(metric.NewHandler(os.Stdout, options))
	var handler any
	if err == nil {
		handler, err = wire(context.Background(), log)
	}
	if err != nil {
		log.Error("starting", "err", err)
		os.Exit(1)
	}
	lambda.Start(handler)
}
