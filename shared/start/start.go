// Package start begins a Lambda function: the same log and the same end for all
// of them when something they need is missing.
package start

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/inorder-im/inorder/shared/metric"
)

// Function wires a function and serves its invocations. wire gets the log and
// returns the handler, in one of the forms that lambda.Start takes. An error of it
// is logged and ends the process, which Lambda reports as a failed start.
//
// The handler's context ends half a second before the function does, so that there is
// time for an answer. The log is JSON lines on standard output: there CloudWatch finds
// the metrics in them (CloudWatch User Guide, "Specification: Embedded metric format").
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
	lambda.Start(inTime{lambda.NewHandler(handler)})
}

// answerReserve is kept of a function's time to tell the caller that the rest did not
// suffice; a function that is killed at its deadline tells nothing.
const answerReserve = 500 * time.Millisecond

// inTime is a handler whose context ends before the function does.
type inTime struct{ lambda.Handler }

func (h inTime) Invoke(ctx context.Context, payload []byte) ([]byte, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-answerReserve))
		defer cancel()
	}
	return h.Handler.Invoke(ctx, payload)
}
