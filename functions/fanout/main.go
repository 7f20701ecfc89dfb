// Command fanout follows the stream of the Conversations table and pushes new
// messages to the members' devices. What fails it tries again from a queue. What is for
// crowds it puts into another, from which a second function of this code pushes it.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
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
		posts, err := strconv.Atoi(cmp.Or(os.Getenv("POSTS_PER_SECOND"), "0"))
		if err != nil || posts < 0 {
			return nil, fmt.Errorf("the environment variable POSTS_PER_SECOND is %q; it is a number, and 0 for no budget", os.Getenv("POSTS_PER_SECOND"))
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
			store: s, rosters: store.NewRosters(s), pusher: p, queue: q, told: &told{}, log: log, now: time.Now,
			streams: dynamodbstreams.NewFromConfig(cfg), postsPerSecond: posts,
		}
		if q.rounds != "" {
			h.rounds, h.rosters = q, store.NewSmallRosters(s)
		}
		return h.handle, nil
	})
}
