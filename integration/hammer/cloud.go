package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/inorder-im/inorder/infra/local/dynamo"
	"github.com/inorder-im/inorder/integration/stack"
)

// localCloud is a local cloud of the hammer's own, with a meter between it and
// its DynamoDB.
type localCloud struct {
	*stack.Local
	meter *meter

	closers []func()
}

// startLocalCloud builds and starts a local cloud, with these arguments too. What it has
// to say goes to log if that is not nil. Call stop in the end.
func startLocalCloud(ctx context.Context, log io.Writer, args ...string) (_ *localCloud, err error) {
	c := &localCloud{}
	defer func() {
		if err != nil {
			c.stop()
			err = fmt.Errorf("starting a local cloud: %w", err)
		}
	}()
	launcher, err := stack.NewLauncher(ctx)
	if err != nil {
		return nil, err
	}
	c.onStop(func() { _ = launcher.Close() })
	binary, err := dynamo.Find(ctx, dynamo.Options{})
	if err != nil {
		return nil, err
	}
	engine, err := dynamo.Start(ctx, dynamo.Config{Binary: binary, Reaper: launcher.Reaper})
	if err != nil {
		return nil, err
	}
	c.onStop(func() { engine.Stop(context.WithoutCancel(ctx)) })
	if c.meter, err = startMeter(engine.Endpoint()); err != nil { //nolint:contextcheck // stop ends it
		return nil, err
	}
	c.onStop(c.meter.Close)
	args = slices.Concat([]string{"-dynamodb-endpoint", c.meter.URL()}, args)
	if c.Local, err = launcher.Launch(ctx, stack.Options{Args: args, Log: log}); err != nil {
		return nil, err
	}
	c.onStop(func() { _ = c.Stop() })
	return c, nil
}

func (c *localCloud) onStop(f func()) { c.closers = append(c.closers, f) }

func (c *localCloud) stop() {
	for _, f := range slices.Backward(c.closers) {
		f()
	}
	c.closers = nil
}
