// Package lambda runs Lambda functions that were built as a "bootstrap" binary
// (runtime provided.al2023) without a container: each function is a pool of
// processes that speak the Lambda Runtime API, one invocation at a time each, as
// execution environments do in the cloud.
//
// What follows the cloud: processes start on demand and are reused, the most
// recently used first; one that has answered and asks for its next call is frozen
// until there is one, with all that it does in the background; a crash, a timeout or a
// failed start is a function error for one call only and the next call gets another
// process; an error returned by the handler keeps the process; a caller that goes away
// does not stop its invocation. What does not: calls over the limit of concurrency wait
// a few seconds before they are refused, memory is not limited, and /tmp is shared.
package lambda

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/inorder-im/inorder/infra/local/process"
	"github.com/inorder-im/inorder/infra/local/template"
)

// Defaults and limits. Those of AWS are from "Lambda quotas" and "Understanding
// the Lambda execution environment lifecycle" in its documentation.
const (
	defaultMaxProcesses = 10
	defaultIdleAfter    = 5 * time.Minute
	defaultInitTimeout  = 10 * time.Second
	defaultQueueWait    = 5 * time.Second

	// debugTimeout is what a function to debug is told; nobody holds it to that.
	debugTimeout = 24 * time.Hour

	// maxRequest and maxResponse are in bytes: 6 MB, and for responses the
	// 100 bytes more that Lambda allows.
	maxRequest  = 6 << 20
	maxResponse = 6<<20 + 100
)

// ErrClosed is returned for calls after, or cut off by, [Service.Close].
var ErrClosed = errors.New("the Lambda service is closed")

// ErrTooManyRequests is returned when every process of a function stays busy
// for as long as a call may wait. Lambda answers 429 TooManyRequestsException
// at once in this case.
var ErrTooManyRequests = errors.New("too many requests")

// ErrRequestTooLarge is returned for a payload of more than 6 MB, as Lambda's
// RequestTooLargeException.
var ErrRequestTooLarge = errors.New("the request payload is larger than 6 MB")

// ErrUnknownFunction is returned for a function that is not configured.
var ErrUnknownFunction = errors.New("there is no function")

// Function is a function of the template, and what it takes to run it. The memory is
// told to the function and not enforced. Without a ReservedConcurrency, 10 processes are
// the most.
type Function struct {
	template.Function
	// Dir holds the executable file bootstrap; it is the working directory too.
	Dir string
	// Env is set as the template's Environment is, which overrides it. Together with what
	// Lambda sets, which both override, it is all the environment that the function sees.
	Env map[string]string
	// Debug makes it fit for a debugger: there is always one process, which
	// sees every invocation, and nothing has a limit of time: not its start,
	// not an invocation, not a call that waits for it. The deadline that the
	// function is told is a day away.
	Debug bool
}

// Config is what New needs.
type Config struct {
	Functions []Function
	Region    string
	// IdleAfter is how long a process is kept without work, by default 5 min.
	IdleAfter time.Duration
	// InitTimeout is how long a process may take to ask for its first
	// invocation, by default 10 s as in Lambda.
	InitTimeout time.Duration
	// QueueWait is how long a call waits for a process before
	// ErrTooManyRequests, by default 5 s.
	QueueWait time.Duration
	// EventRetry is how long an event that failed waits for its second call, and
	// half of what it waits for its third, by default 1 min as in Lambda.
	EventRetry time.Duration
	// Reaper starts the processes. It must stay open until Close has returned.
	Reaper *process.Reaper
	// Output gets each line that a function writes to stdout or stderr,
	// without its end, and one for each time-out or exit that a call did not
	// survive. It is called from several goroutines at once and must
	// not block for long: a function waits for it when its pipe is full.
	Output func(function, line string)
	// Answered, if set, is called when an invocation has ended, before its caller
	// has the answer: what the function wrote is there. As Output.
	Answered func(function string)
	// Started, if set, gets the process id of each process when it has started. As
	// Output.
	Started func(function string, pid int)
	// Log gets a debug line per invocation and process.
	Log *slog.Logger
}

// Service runs functions. Its methods may be called at any time from any goroutine.
type Service struct {
	pools map[string]*pool
	names []string // in the order of Config.Functions
	// processes counts them until their last line of output is delivered. One
	// is added only by a pool that is not closed, so never after Close waits.
	processes sync.WaitGroup

	events chan struct{}   // one element for each event that waits or runs
	ctx    context.Context //nolint:containedctx // that of the events; ends with Close
	cancel context.CancelFunc
}

// New checks the functions and starts none of them yet, except those to debug. The
// caller must Close the service.
func New(cfg Config) (*Service, error) {
	if cfg.Reaper == nil {
		return nil, errors.New("lambda: Config.Reaper is missing")
	}
	cfg.IdleAfter = cmp.Or(cfg.IdleAfter, defaultIdleAfter)
	cfg.InitTimeout = cmp.Or(cfg.InitTimeout, defaultInitTimeout)
	cfg.QueueWait = cmp.Or(cfg.QueueWait, defaultQueueWait)
	cfg.EventRetry = cmp.Or(cfg.EventRetry, defaultEventRetry)
	if cfg.Output == nil {
		cfg.Output = func(string, string) {}
	}
	if cfg.Answered == nil {
		cfg.Answered = func(string) {}
	}
	if cfg.Started == nil {
		cfg.Started = func(string, int) {}
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	s := &Service{pools: make(map[string]*pool, len(cfg.Functions)), events: make(chan struct{}, maxEventQueue)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for _, fn := range cfg.Functions {
		if _, twice := s.pools[fn.LogicalID]; twice {
			return nil, fmt.Errorf("lambda: function %q is configured twice", fn.LogicalID)
		}
		fn, err := complete(fn)
		if err != nil {
			return nil, err
		}
		s.pools[fn.LogicalID] = newPool(fn, cfg, &s.processes)
		s.names = append(s.names, fn.LogicalID)
	}
	for _, p := range s.pools {
		p.warm()
	}
	return s, nil
}

// complete fills in the defaults of fn and checks that it can run.
func complete(fn Function) (Function, error) {
	dir, err := filepath.Abs(fn.Dir)
	if err != nil {
		return fn, fmt.Errorf("lambda: function %s: %w", fn.LogicalID, err)
	}
	fn.Dir = dir
	info, err := os.Stat(fn.bootstrap())
	if err != nil {
		return fn, fmt.Errorf("lambda: function %s is not built: %w", fn.LogicalID, err)
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return fn, fmt.Errorf("lambda: function %s: %s is not an executable file", fn.LogicalID, fn.bootstrap())
	}
	fn.ReservedConcurrency = cmp.Or(fn.ReservedConcurrency, defaultMaxProcesses)
	if fn.Debug {
		fn.ReservedConcurrency, fn.Timeout = 1, debugTimeout
	}
	return fn, nil
}

func (f Function) bootstrap() string { return filepath.Join(f.Dir, "bootstrap") }

// Invoke calls a function and waits for its answer.
//
// functionError is "" for an answer of the handler. It is "Unhandled" when the
// function failed, and the payload is then Lambda's error document with
// errorType and errorMessage: what the handler returned, Runtime.ExitError for a
// process that ended, Sandbox.Timedout, Function.ResponseSizeTooLarge, or
// Runtime.InvalidEntrypoint for a program that cannot be run.
//
// err is set when there was no invocation or no answer: [ErrUnknownFunction],
// [ErrRequestTooLarge], [ErrTooManyRequests] (together with the error of ctx if
// that ended the wait), [ErrClosed], or the error of ctx. In the last case the
// invocation goes on by itself, as in Lambda.
func (s *Service) Invoke(ctx context.Context, function string, payload []byte) (answer []byte, functionError string, err error) {
	p, err := s.poolOf(function)
	if err != nil {
		return nil, "", err
	}
	if len(payload) > maxRequest {
		return nil, "", fmt.Errorf("invoking %s with %d bytes: %w", function, len(payload), ErrRequestTooLarge)
	}
	res, err := p.invoke(ctx, payload)
	if err != nil {
		return nil, "", fmt.Errorf("invoking %s: %w", function, err)
	}
	return res.payload, res.functionError, nil
}

func (s *Service) poolOf(function string) (*pool, error) {
	if p, ok := s.pools[function]; ok {
		return p, nil
	}
	return nil, fmt.Errorf("%w %q", ErrUnknownFunction, function)
}

// Renew is for a function whose executable was replaced. Processes of the old one end,
// those at work when they have answered; calls from now on get the new one. It does
// not wait.
func (s *Service) Renew(function string) error {
	p, err := s.poolOf(function)
	if err == nil {
		p.renew()
	}
	return err
}

// Close refuses new calls, lets those under way finish, and ends all processes.
// When ctx ends first the rest is killed, and the error says so. After it has
// returned no process is left, and every line of output has been delivered.
func (s *Service) Close(ctx context.Context) error {
	s.cancel()
	for _, p := range s.pools {
		p.close()
	}
	ended := make(chan struct{})
	go func() {
		s.processes.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
	}
	killed := 0
	for _, p := range s.pools {
		killed += p.killAll()
	}
	<-ended
	if killed == 0 {
		return nil
	}
	return fmt.Errorf("lambda: %d processes were killed at work: %w", killed, ctx.Err())
}

// Stats is what happened to one function since New. Tests look at it.
type Stats struct {
	Name string
	// Processes exist now, Idle of them have no work. Waiting calls have no
	// process yet.
	Processes, Idle, Waiting int
	// Starts counts processes, Invocations the calls given to one.
	Starts, Invocations int
	// Errors counts invocations that ended in a function error. Timeouts are
	// those that took too long, Crashes those whose process ended unanswered.
	Errors, Timeouts, Crashes int
}

// Stats returns one entry per function, in the order of Config.Functions.
func (s *Service) Stats() []Stats {
	all := make([]Stats, 0, len(s.names))
	for _, name := range s.names {
		all = append(all, s.pools[name].snapshot())
	}
	return all
}
