//go:build !windows

package main

import (
	"context"
	"net/http"
	"path/filepath"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"github.com/inorder-im/inorder/infra/local/queue"
	"github.com/inorder-im/inorder/infra/local/schedule"
	"github.com/inorder-im/inorder/infra/local/stream"
	"github.com/inorder-im/inorder/infra/local/template"
)

// streamConnections is how many connections for polling are kept.
const streamConnections = 16

// startStreams opens the event source mappings and runs them.
func (c *cloud) startStreams(ctx context.Context) error {
	streams := dynamodbstreams.New(dynamodbstreams.Options{
		Region:       c.stack.Region,
		BaseEndpoint: &c.dynamoDB,
		Credentials:  c.credentials(),
	}, func(o *dynamodbstreams.Options) {
		if !c.elsewhere {
			like := c.likeness()
			like.Base = &http.Transport{MaxIdleConnsPerHost: streamConnections}
			o.HTTPClient = &http.Client{Transport: like}
		}
	})
	run := c.beside(ctx)
	for _, f := range c.stack.Functions {
		for _, m := range f.Streams {
			poller, err := stream.Open(ctx, stream.Config{
				Streams:       streams,
				Invoker:       c.functions,
				DeadLetter:    c.deadLetters(m),
				CheckpointDir: filepath.Join(c.dir, "stream-positions"),
				Log:           c.out.logger("stream"),
			}, stream.Mapping{StreamMapping: m, Function: f.LogicalID, FunctionARN: f.ARN, Table: c.stack.Table(m.TableID).Name})
			if err != nil {
				return err
			}
			c.pollers = append(c.pollers, poller)
		}
	}
	for _, poller := range c.pollers {
		run(poller.Run)
	}
	return nil
}

// wakeStreams makes the mappings look for what a function has written.
func (c *cloud) wakeStreams() {
	for _, poller := range c.pollers {
		poller.Wake()
	}
}

// startQueues invokes functions with the messages of queues.
func (c *cloud) startQueues(ctx context.Context) {
	run := c.beside(ctx)
	for _, f := range c.stack.Functions {
		for _, m := range f.Queues {
			run(func(ctx context.Context) {
				c.queues[m.QueueID].Feed(ctx, queue.Source{
					QueueMapping: m, Function: f.LogicalID, Region: c.stack.Region,
					Invoker: c.functions, Log: c.out.logger("queue"),
				})
			})
		}
	}
}

// startSchedules invokes functions by the clock.
func (c *cloud) startSchedules(ctx context.Context) {
	var schedules []schedule.Schedule
	for _, f := range c.stack.Functions {
		for _, s := range f.Schedules {
			schedules = append(schedules, schedule.Schedule{Schedule: s, Function: f.LogicalID})
		}
	}
	c.beside(ctx)(func(ctx context.Context) {
		schedule.Run(ctx, schedule.Config{
			Invoker: c.functions, Region: c.stack.Region, AccountID: c.stack.AccountID, Log: c.out.logger("schedule"),
		}, schedules...)
	})
}

// openQueues makes the template's queues, in a folder that is called after what most
// often comes into them.
func (c *cloud) openQueues() {
	c.queues = map[string]*queue.Queue{}
	for _, q := range c.stack.Queues {
		c.queues[q.LogicalID] = queue.Open(queue.Config{Queue: *q, Path: filepath.Join(c.dir, "dead-letters", q.Name+".jsonl")})
	}
	for _, q := range c.stack.Queues {
		if q.DeadLetters != "" {
			c.queues[q.LogicalID].RedriveTo(c.queues[q.DeadLetters])
		}
	}
}

// deadLetters sends to the queue what the cloud would send to it.
func (c *cloud) deadLetters(m template.StreamMapping) func(context.Context, []byte) error {
	if m.OnFailureQueue == "" {
		return nil
	}
	q := c.queues[m.OnFailureQueue]
	return func(ctx context.Context, record []byte) error {
		c.out.step("a dead letter goes to %s", q.Path)
		return q.Send(ctx, record)
	}
}
