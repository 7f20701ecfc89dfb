// Command fanout follows the stream of the Conversations table and pushes new
// messages to the members' devices. What fails it tries again from a queue. What is for
// crowds it puts into another, from which a second function of this code pushes it.
package main

import (
	"context"
	"log/slog"
	"math"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/inorder-im/inorder/shared/env"
	"github.com/inorder-im/inorder/shared/push"
	"github.com/inorder-im/inorder/shared/start"
	"github.com/inorder-im/inorder/shared/store"
)

func main() {
	start.Function(func(ctx context.Context, log *slog.Logger) (any, error) {
		e := env.From(os.Getenv)
		retries, deadLetters := e.Text("RETRIES_URL", "a queue's URL"), e.Text("DEAD_LETTERS_URL", "a queue's URL")
		posts := e.IntOr(0, "POSTS_PER_SECOND", 0, math.MaxInt32) // 0 is no budget
		if err := e.Err(); err != nil {
			return nil, err
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
		q := queues{sqs.NewFromConfig(cfg), retries, deadLetters, os.Getenv("ROUNDS_URL")}
		h := handler{
			store: s, rosters: store.NewRosters(s), pusher: p, queue: q, log: log, now: time.Now,
			streams: dynamodbstreams.NewFromConfig(cfg), postsPerSecond: posts,
		}
		if q.rounds != "" {
			h.rounds, h.rosters = q, store.NewSmallRosters(s)
		}
		return h.handle, nil
	})
}
