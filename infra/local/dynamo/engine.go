package dynamo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/inorder-im/inorder/infra/local/process"
)

const (
	// startTimeout bounds one start. A large data file opens in milliseconds,
	// a busy machine needs more.
	startTimeout = 30 * time.Second
	// startAttempts is how many ports are tried. A port is only lost to a
	// process that takes it between our choice and dynoxide's bind.
	startAttempts = 5
	// stopGrace is how long dynoxide may take to finish its requests.
	stopGrace  = 3 * time.Second
	probeEvery = 5 * time.Millisecond
)

// Config describes an engine to start.
type Config struct {
	// Binary is the path of dynoxide, see [Find].
	Binary string
	// DataFile is the SQLite file that keeps the data; it and its folder are
	// made. Empty: the data ends with the engine, and is on a disk only where
	// there is no folder in memory, see scratchFile. Nothing stops two engines
	// from opening one file, so the caller has to lock it.
	DataFile string
	// Reaper sees to it that the engine does not outlive this program. Required.
	Reaper *process.Reaper
	// Output, if set, gets each line that the engine writes. It is called from
	// two goroutines, but not at the same time for one stream.
	Output func(line string)
	// TimeToLive makes [Engine.Sweep] possible.
	TimeToLive bool
}

// Engine is a running dynoxide.
type Engine struct {
	endpoint string
	sweeper  *sweeper // nil without Config.TimeToLive
	proc     *process.Process
	log      *output
	stopping atomic.Bool
}

// ErrDamaged says that the data file is no database any more.
var ErrDamaged = errors.New("the data file cannot be read")

// errPortTaken asks for another try with another port.
var errPortTaken = errors.New("the port was taken")

// Start starts dynoxide on a free port of a loopback address and returns when it
// answers. ctx bounds the start only; call [Engine.Stop] in the end.
//
// dynoxide takes any request with any Authorization header, and lets any web page
// read the answer. So the address is hard to find where it can be, see freeAddress,
// and not to be told to people, who would put it into a page or a browser.
func Start(ctx context.Context, cfg Config) (*Engine, error) {
	if cfg.DataFile == "" {
		path, forget, err := scratchFile()
		if err != nil {
			return nil, fmt.Errorf("starting dynoxide: %w", err)
		}
		defer forget() // once dynoxide has opened it, the name is not needed
		cfg.DataFile = path
	} else if err := prepare(cfg); err != nil {
		return nil, fmt.Errorf("starting dynoxide: %w", err)
	}
	for attempt := 1; ; attempt++ {
		// dynoxide takes port 0 but does not tell which port it got.
		host, port, err := freeAddress(ctx)
		if err != nil {
			return nil, fmt.Errorf("starting dynoxide: %w", err)
		}
		e, err := startOn(ctx, cfg, host, port)
		if err == nil {
			return e, nil
		}
		if attempt == startAttempts || !errors.Is(err, errPortTaken) {
			return nil, fmt.Errorf("starting dynoxide: %w", err)
		}
	}
}

// prepare makes the data file if it is not there.
func prepare(cfg Config) error {
	if err := os.MkdirAll(filepath.Dir(cfg.DataFile), 0o755); err != nil {
		return fmt.Errorf("making the folder of the data file: %w", err)
	}
	indexed, err := plant(cfg.DataFile)
	if err == nil && !indexed && cfg.Output != nil {
		cfg.Output("the data file is of an earlier version, whose writes get slower the more there are; with a new one they do not")
	}
	return err
}

// freeAddress finds an address and a port that nobody has. A web page can try all
// ports of 127.0.0.1, so where all of 127.0.0.0/8 is this machine, as on Linux, it
// is one of 16 million others with 28,000 ports each. Elsewhere, as on macOS, it is
// 127.0.0.1, which leaves the port to be found.
func freeAddress(ctx context.Context) (host, port string, err error) {
	var hidden [3]byte
	_, _ = rand.Read(hidden[:]) // never fails
	host = fmt.Sprintf("127.%d.%d.%d", hidden[0], hidden[1], 1+hidden[2]%254)
	if port, err = freePort(ctx, host); err != nil {
		host = "127.0.0.1"
		port, err = freePort(ctx, host)
	}
	return host, port, err
}

func freePort(ctx context.Context, host string) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", fmt.Errorf("looking for a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}

func startOn(ctx context.Context, cfg Config, host, port string) (*Engine, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	address := net.JoinHostPort(host, port)
	args := []string{"serve", "--host", host, "--port", port, "--db-path", cfg.DataFile}
	e := &Engine{endpoint: "http://" + address, log: newOutput("listening on http://"+address, cfg.Output)}
	var env []string
	if cfg.TimeToLive {
		var err error
		if e.sweeper, err = newSweeper(ctx, host); err != nil {
			return nil, err
		}
		more, token := e.sweeper.arguments()
		args, env = append(args, more...), append(os.Environ(), token)
	}
	if err := e.spawn(cfg, args, env); err != nil {
		return nil, err
	}
	err := e.awaitReady(ctx)
	if err == nil && e.sweeper != nil {
		err = e.sweeper.awaitReady(ctx, e.proc.Done())
	}
	if err != nil {
		e.stopping.Store(true)
		e.proc.Stop(0)
		return nil, err
	}
	return e, nil
}

// spawn starts the program; an env of nil is this program's.
func (e *Engine) spawn(cfg Config, args, env []string) error {
	stdout, stderr := e.log.stream(), e.log.stream()
	cmd := exec.Command(cfg.Binary, args...) //nolint:noctx // it outlives every context and is stopped by name
	cmd.Stdout, cmd.Stderr, cmd.Env = stdout, stderr, env
	p, err := cfg.Reaper.Start(cmd)
	if err != nil {
		return err
	}
	e.proc = p
	return nil
}

// awaitReady waits until this very process serves. An answer on the port alone
// would not prove that: another server may have taken the port first. dynoxide
// writes "listening on" after it has bound the port, exclusively, so the line
// in the output of our child does.
func (e *Engine) awaitReady(ctx context.Context) error {
	select {
	case <-e.log.seen:
	case <-e.proc.Done():
		return e.failedStart()
	case <-ctx.Done():
		return fmt.Errorf("it does not listen on %s: %w", e.endpoint, ctx.Err())
	}
	err := awaitAnswer(ctx, e.endpoint, http.StatusOK, e.proc.Done())
	if errors.Is(err, errEnded) {
		return e.failedStart()
	}
	return err
}

// errEnded says that a process ended that was to answer.
var errEnded = errors.New("the process ended")

// awaitAnswer asks the URL until the answer has the status that is wanted. It errs with
// errEnded, and if ctx ends.
func awaitAnswer(ctx context.Context, url string, want int, ended <-chan struct{}) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		err := probe(ctx, client, url, want)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ended:
			return fmt.Errorf("%w: %w", errEnded, err)
		case <-ctx.Done():
			return fmt.Errorf("it does not answer on %s: %w", url, err)
		}
	}
}

func probe(ctx context.Context, client *http.Client, endpoint string, want int) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != want {
		return fmt.Errorf("status %s", resp.Status)
	}
	return nil
}

// failedStart explains the end of a process that never served.
func (e *Engine) failedStart() error {
	err := e.proc.Wait()
	said := e.log.tail()
	lower := strings.ToLower(said)
	switch {
	case strings.Contains(lower, "already in use"), strings.Contains(lower, "address in use"):
		return fmt.Errorf("%w: %s", errPortTaken, said)
	case strings.Contains(lower, "not a valid sqlite database"), strings.Contains(lower, "malformed"), strings.Contains(lower, "not a database"):
		return fmt.Errorf("%w: %s", ErrDamaged, said)
	}
	return fmt.Errorf("it ended (%s): %s", exitText(err), said)
}

// Endpoint is the URL for the SDK, such as http://127.84.2.190:40123.
func (e *Engine) Endpoint() string { return e.endpoint }

// Done is closed when the engine has ended, by [Engine.Stop] or by itself.
func (e *Engine) Done() <-chan struct{} { return e.proc.Done() }

// Err tells after Done why the engine ended by itself. It is nil while it runs
// and when [Engine.Stop] ended it.
func (e *Engine) Err() error {
	select {
	case <-e.proc.Done():
	default:
		return nil
	}
	if e.stopping.Load() {
		return nil
	}
	return fmt.Errorf("dynoxide ended unexpectedly (%s): %s", exitText(e.proc.Wait()), e.log.tail())
}

// Stop ends the engine and returns when it is gone: politely at first, with
// SIGKILL after three seconds or when ctx is done. A data file is safe either
// way. It may be called more than once.
func (e *Engine) Stop(ctx context.Context) {
	e.stopping.Store(true)
	release := context.AfterFunc(ctx, func() { _ = e.proc.Kill() })
	defer release()
	e.proc.Stop(stopGrace)
}

func exitText(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}
