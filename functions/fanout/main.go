// Command fanout follows the stream of the Conversations table and pushes new
// messages to the members' devices. What fails it tries again from a queue.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/inorder-im/inorder/shared/push"
	"github.com/inorder-im/inorder/shared/start"
	"github.com/inorder-im/inorder/shared/store"
)

func main() {
	start.Function(func(ctx context.Context, log *slog.Logger) (any, error) {
		retries, deadLetters := os.Getenv("RETRIES_URL"), os.Getenv("DEAD_LETTERS_URL")
		if retries == "" || deadLetters == "" {
			return nil, errors.New("the environment variables RETRIES_URL and DEAD_LETTERS_URL are not both set; template.yaml sets them to queues")
		}
		cfg, err := config.LoadDefaultConfig(ctx)
		if err != nil {
			return nil, err
		}
		s, err := store.Open(ctx, log)
		if err != nil {
			return nil, err
		}
		p, err := push.Open(ctx)
		if err != nil {
			return nil, err
		}
		return handler{
			store: s, rosters: store.NewRosters(s), pusher: p, log: log, now: time.Now,
			queue:   queues{sqs.NewFromConfig(cfg), retries, deadLetters},
			streams: dynamodbstreams.NewFromConfig(cfg),
		}.handle, nil
	})
}
