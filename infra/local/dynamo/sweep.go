package dynamo

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	smithytime "github.com/aws/smithy-go/time"
)

const (
	// sweepPause is how long a sweep is waited with after the one before, and
	// sweepShare how many times as long as that one took: dynoxide reads all items of
	// the tables that have a time to live, and does nothing else meanwhile. DynamoDB
	// itself takes up to days.
	sweepPause = time.Minute
	sweepShare = 1000
	// sweepStart is how long the tool may take to be there once dynoxide is. If its port
	// was taken, dynoxide says nothing and goes on without.
	sweepStart = 5 * time.Second
	// sweepTimeout bounds a sweep.
	sweepTimeout = 5 * time.Minute

	// sweepCall calls a tool of the Model Context Protocol, which dynoxide has for that.
	sweepCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sweep_ttl","arguments":{}}}`
)

// sweeper is how dynoxide is told to delete what has expired. By itself `dynoxide serve`
// deletes nothing; it does so when the tool sweep_ttl is called by its MCP server. That
// takes a token, which only this program and dynoxide know.
type sweeper struct {
	host, port, token string
}

func newSweeper(ctx context.Context, host string) (*sweeper, error) {
	port, err := freePort(ctx, host)
	if err != nil {
		return nil, err
	}
	return &sweeper{host: host, port: port, token: rand.Text()}, nil
}

// arguments are what dynoxide is to be started with. The token is in its environment, as
// all users of a machine can read arguments.
func (s *sweeper) arguments() (args []string, env string) {
	return []string{"--mcp", "--mcp-host", s.host, "--mcp-port", s.port, "--mcp-allowed-host", s.host}, "DYNOXIDE_MCP_AUTH_TOKEN=" + s.token
}

func (s *sweeper) url() string { return "http://" + net.JoinHostPort(s.host, s.port) + "/mcp" }

// awaitReady waits until the tool asks for its token.
func (s *sweeper) awaitReady(ctx context.Context, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, sweepStart)
	defer cancel()
	err := awaitAnswer(ctx, s.url(), http.StatusUnauthorized, ended)
	switch {
	case errors.Is(err, errEnded):
		return fmt.Errorf("it ended before it could delete what has expired: %w", err)
	case err != nil:
		return fmt.Errorf("%w: %w", errPortTaken, err)
	}
	return nil
}

// Sweep deletes the items that have expired, in all tables with a time to live, and
// returns their number. Their stream records are those of DynamoDB: REMOVE, by the service.
// The engine does nothing else meanwhile: 6 ms with 1,000 items in these tables, 2 s with
// 40,000, on 2 busy cores. It takes an engine with Config.TimeToLive.
func (e *Engine) Sweep(ctx context.Context) (deleted int, err error) {
	if e.sweeper == nil {
		return 0, errors.New("the engine was started without time to live")
	}
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	deleted, err = e.sweeper.sweep(ctx)
	if err != nil {
		return 0, fmt.Errorf("deleting what has expired: %w", err)
	}
	return deleted, nil
}

func (s *sweeper) sweep(ctx context.Context) (deleted int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url(), strings.NewReader(sweepCall))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+s.token)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	transport := &http.Transport{DisableKeepAlives: true} // it is done once a minute
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if err != nil {
		return 0, err
	}
	var answer struct {
		Result struct {
			IsError bool
			Content []struct{ Text string }
		}
	}
	var count struct {
		Deleted *int `json:"items_deleted"`
	}
	if json.Unmarshal(body, &answer) != nil || answer.Result.IsError || len(answer.Result.Content) == 0 ||
		json.Unmarshal([]byte(answer.Result.Content[0].Text), &count) != nil || count.Deleted == nil {
		return 0, fmt.Errorf("dynoxide answers %s: %s", response.Status, body)
	}
	return *count.Deleted, nil
}

// SweepOften is [Engine.Sweep] at once, and then about once a minute, or less often where
// it takes long, until ctx ends. Each outcome is told.
func (e *Engine) SweepOften(ctx context.Context, tell func(deleted int, err error)) {
	for {
		began := time.Now()
		deleted, err := e.Sweep(ctx)
		if ctx.Err() != nil {
			return
		}
		tell(deleted, err)
		if smithytime.SleepWithContext(ctx, pauseAfter(time.Since(began))) != nil {
			return
		}
	}
}

// pauseAfter is how long to wait after a sweep that took so long.
func pauseAfter(took time.Duration) time.Duration {
	return max(sweepPause, sweepShare*took)
}
