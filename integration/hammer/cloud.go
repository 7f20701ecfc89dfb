package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"inorder/infra/local/child"
	"inorder/infra/local/dynamo"
)

// localCloud is a local cloud of the hammer's own, with a meter between it and
// its DynamoDB.
type localCloud struct {
	page, socket, tokens string
	meter                *meter

	closers []func()
}

const (
	// readyTimeout bounds a start; the first one on a machine compiles the
	// functions.
	readyTimeout = 3 * time.Minute
	stopGrace    = 15 * time.Second
)

var readyLine = regexp.MustCompile(`^ready  page=(\S+)  websocket=(\S+)  dynamodb=(\S+)$`)

// startLocalCloud builds and starts a local cloud, with these flags too. What it has
// to say goes to log if that is not nil. Call stop in the end.
func startLocalCloud(ctx context.Context, log io.Writer, flags ...string) (_ *localCloud, err error) {
	c := &localCloud{}
	defer func() {
		if err != nil {
			c.stop()
			err = fmt.Errorf("starting a local cloud: %w", err)
		}
	}()
	reaper, err := child.StartReaper()
	if err != nil {
		return nil, err
	}
	c.onStop(func() { _ = reaper.Close() })
	binary, err := dynamo.Find(ctx, dynamo.Options{})
	if err != nil {
		return nil, err
	}
	engine, err := dynamo.Start(ctx, dynamo.Config{Binary: binary, Reaper: reaper})
	if err != nil {
		return nil, err
	}
	c.onStop(func() { engine.Stop(context.WithoutCancel(ctx)) })
	if c.meter, err = startMeter(engine.Endpoint()); err != nil {
		return nil, err
	}
	c.onStop(c.meter.Close)
	root, program, err := c.build(ctx)
	if err != nil {
		return nil, err
	}
	return c, c.run(ctx, reaper, root, program, log, flags)
}

func (c *localCloud) onStop(f func()) { c.closers = append(c.closers, f) }

func (c *localCloud) stop() {
	for i := len(c.closers) - 1; i >= 0; i-- {
		c.closers[i]()
	}
	c.closers = nil
}

// build compiles the local cloud and finds the folder of the module.
func (c *localCloud) build(ctx context.Context) (root, program string, err error) {
	goMod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", "", fmt.Errorf("asking go for the module: %w", err)
	}
	root = filepath.Dir(strings.TrimSpace(string(goMod)))
	if _, err := os.Stat(filepath.Join(root, "template.yaml")); err != nil {
		return "", "", fmt.Errorf("run this in the folder of Inorder's sources: %w", err)
	}
	dir, err := os.MkdirTemp("", "inorder-hammer-")
	if err != nil {
		return "", "", err
	}
	c.onStop(func() { _ = os.RemoveAll(dir) })
	program = filepath.Join(dir, "local")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, "./infra/local") //nolint:gosec // a program of its own
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("building it: %w\n%s", err, out)
	}
	return root, program, nil
}

// run starts the program and waits until it is ready.
func (c *localCloud) run(ctx context.Context, reaper *child.Reaper, root, program string, log io.Writer, flags []string) error {
	// What a user may do in a second is not what is to be measured.
	const most = "1000000"
	flags = append([]string{
		"-addr", "127.0.0.1:0", "-watch=false", "-dynamodb-endpoint", c.meter.URL(),
		"-param", "WritesPerSecond=0", "-param", "ReadsPerSecond=0", "-param", "UserConnectsPerSecond=0",
		"-param", "RequestsPerSecond=" + most, "-param", "RequestBurst=" + most,
		"-param", "ConnectsPerSecond=" + most, "-param", "ConnectBurst=" + most,
	}, flags...)
	cmd := exec.Command(program, flags...) //nolint:gosec,noctx // its own program, which the reaper ends
	cmd.Dir = root
	said := &tail{to: log}
	cmd.Stderr = said
	out, in := io.Pipe()
	cmd.Stdout = in
	process, err := reaper.Start(cmd)
	if err != nil {
		return err
	}
	c.onStop(func() {
		process.Stop(stopGrace)
		_ = in.Close()
	})
	line := make(chan string, 1)
	go func() {
		first, _ := bufio.NewReader(out).ReadString('\n')
		line <- strings.TrimSpace(first)
		_, _ = io.Copy(io.Discard, out)
	}()
	timer := time.NewTimer(readyTimeout)
	defer timer.Stop()
	select {
	case first := <-line:
		m := readyLine.FindStringSubmatch(first)
		if m == nil {
			return fmt.Errorf("it said %q instead of that it is ready:\n%s", first, said)
		}
		c.page, c.socket, c.tokens = m[1], m[2], m[1]+"dev/token"
		return nil
	case <-process.Done():
		return fmt.Errorf("it ended:\n%s", said)
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return errors.New("it took too long")
	}
}

// tail passes on what is written and keeps the last of it.
type tail struct {
	to io.Writer

	mu   sync.Mutex
	last []byte
}

const keptOutput = 4096

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, p...)
	t.last = bytes.Clone(t.last[max(0, len(t.last)-keptOutput):])
	if t.to != nil {
		_, _ = t.to.Write(p)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.last)
}
