package main

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

// queues are the queue of what is tried again, which this function is the mapping's
// target of, and the one behind it.
type queues struct {
	api                  *sqs.Client
	retries, deadLetters string // URLs
	rounds               string // of the queue of rounds, "" if there are no crowds
}

func (q queues) Retry(ctx context.Context, body string, delay time.Duration) error {
	return q.send(ctx, q.retries, body, delay)
}

func (q queues) Bury(ctx context.Context, body string) error {
	return q.send(ctx, q.deadLetters, body, 0)
}

func (q queues) Deliver(ctx context.Context, body string, delay time.Duration) error {
	return q.send(ctx, q.rounds, body, delay)
}

func (q queues) send(ctx context.Context, url, body string, delay time.Duration) error {
	_, err := q.api.SendMessage(ctx, &sqs.SendMessageInput{
		QueueUrl: &url, MessageBody: &body, DelaySeconds: int32(delay / time.Second), //nolint:gosec // at most 15 minutes
	})
	if err != nil {
		return fmt.Errorf("sending to %s: %w", url, err)
	}
	return nil
}
