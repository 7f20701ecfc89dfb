package lambda

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/inorder-im/inorder/infra/local/process"
)

const (
	// settleTime is how long an answer is held back until the process asks
	// for its next invocation or ends. It usually does in a fraction of a
	// millisecond, and so a caller in sequence gets the same process again
	// instead of having a second one started.
	settleTime = 250 * time.Millisecond

	// drainTime bounds the wait for the last output of a process that has
	// ended, in case a descendant that left its process group holds the pipe.
	drainTime = time.Second
)

// state is where a process is between two requests to the Runtime API.
type state int

const (
	starting state = iota // has not asked for an invocation yet
	ready                 // asks for an invocation, and there is none
	assigned              // has been given one that it has not fetched
	working               // has fetched it
	answered              // has answered, and not asked for the next one
)

// sandbox is one execution environment: a running bootstrap with a Runtime API
// of its own. At any time it belongs to the list of idle ones or to one call of
// pool.run.
type sandbox struct {
	pool       *pool
	executable int         // pool.executable when it was made
	expiry     *time.Timer // of an idle process; guarded by pool.mu

	becameReady chan struct{}    // capacity 1: once per change to ready
	work        chan *invocation // capacity 1
	initError   chan []byte      // capacity 1: what the runtime reported

	mu      sync.Mutex
	state   state
	current *invocation
	killed  bool
	child   *process.Process // nil until started
	began   time.Time        // when child was started
}

func newSandbox(p *pool) *sandbox {
	return &sandbox{
		pool:        p,
		becameReady: make(chan struct{}, 1),
		work:        make(chan *invocation, 1),
		initError:   make(chan []byte, 1),
	}
}

// invocation is one call on its way through a process.
type invocation struct {
	id, traceID string
	payload     []byte
	deadline    time.Time
	answer      chan *result // capacity 1: from the Runtime API
	result      chan result  // capacity 1: to the caller
}

func newInvocation(payload []byte) *invocation {
	return &invocation{
		id:      uuid.NewString(), // the form of Lambda's request ids
		traceID: newTraceID(time.Now()),
		payload: payload,
		answer:  make(chan *result, 1),
		result:  make(chan result, 1),
	}
}

// run takes an invocation through a process, which it starts if need be, and
// gives the process back or sees it end. It is false if the process had ended
// before it could take the invocation, which may thus go to another one.
func (p *pool) run(proc *sandbox, inv *invocation) (seen bool) {
	began := time.Now()
	cold := proc.child == nil
	if cold {
		if failure := proc.start(inv); failure != nil {
			p.finish(inv, failure, began, cold)
			return true
		}
	}
	limit, stop := p.limit(p.fn.Timeout)
	defer stop()
	proc.give(inv)
	res, alive := proc.await(inv, limit)
	p.cfg.Answered(p.fn.LogicalID)
	if !alive {
		p.finish(inv, res, began, cold)
		return res != nil
	}
	if proc.awaitReady(time.After(settleTime)) {
		p.release(proc)
		p.finish(inv, res, began, cold)
		return true
	}
	// The process ends, as after a panic, or still works on something.
	p.finish(inv, res, began, cold)
	if proc.awaitReady(limit) {
		p.release(proc)
	} else {
		proc.kill()
	}
	return true
}

// finish gives the caller its result, if there is one.
func (p *pool) finish(inv *invocation, res *result, began time.Time, cold bool) {
	if res == nil {
		return
	}
	p.count(func(s *Stats) {
		s.Invocations++
		if res.functionError != "" {
			s.Errors++
		}
	})
	p.cfg.Log.Debug("invocation", "function", p.fn.LogicalID, "requestId", inv.id,
		"duration", time.Since(began), "cold", cold, "functionError", res.functionError)
	if res.logged != "" {
		p.cfg.Output(p.fn.LogicalID, res.logged)
	}
	inv.result <- *res
}

// start starts the process and waits until it asks for work. If it does not,
// the result says why, and the process has ended or is ending.
func (proc *sandbox) start(inv *invocation) (failure *result) {
	if err := proc.launch(); err != nil {
		proc.pool.remove(proc)
		proc.pool.counter.Done()
		var unrunnable *fs.PathError
		if errors.As(err, &unrunnable) {
			return failed("Runtime.InvalidEntrypoint", inv, unrunnable.Error())
		}
		return &result{err: err}
	}
	proc.pool.count(func(s *Stats) { s.Starts++ })
	limit, stop := proc.pool.limit(proc.pool.cfg.InitTimeout)
	defer stop()
	select {
	case <-proc.becameReady:
		return nil
	case body := <-proc.initError:
		proc.kill()
		return &result{payload: body, functionError: unhandled}
	case <-proc.child.Done():
		return proc.exitResult(inv)
	case <-limit:
		proc.kill()
		proc.pool.count(func(s *Stats) { s.Timeouts++ })
		return failed("Sandbox.Timedout", inv, fmt.Sprintf("Init timed out after %.2f seconds", proc.pool.cfg.InitTimeout.Seconds()))
	}
}

// launch starts the Runtime API, the program, and what looks after both.
func (proc *sandbox) launch() error {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("opening the Runtime API: %w", err)
	}
	output, stdout, err := os.Pipe()
	if err != nil {
		_ = listener.Close()
		return fmt.Errorf("opening a pipe for the output: %w", err)
	}
	fn := proc.pool.fn
	cmd := exec.Command(fn.bootstrap()) //nolint:noctx // it outlives every context and is stopped by name
	cmd.Dir = fn.Dir
	cmd.Env = environ(fn, proc.pool.cfg.Region, listener.Addr().String(), time.Now())
	cmd.Stdout, cmd.Stderr = stdout, stdout
	err = proc.startChild(cmd)
	_ = stdout.Close()
	if err != nil {
		_ = listener.Close()
		_ = output.Close()
		return err
	}
	api := proc.runtimeAPI()
	go func() { _ = api.Serve(listener) }()
	go proc.lookAfter(api, output)
	return nil
}

func (proc *sandbox) startChild(cmd *exec.Cmd) error {
	proc.mu.Lock()
	defer proc.mu.Unlock()
	if proc.killed {
		return ErrClosed
	}
	started, err := proc.pool.cfg.Reaper.Start(cmd)
	if err != nil {
		return err
	}
	proc.child, proc.began = started, time.Now()
	return nil
}

// lookAfter forwards the output, and cleans up when the process has ended.
func (proc *sandbox) lookAfter(api *http.Server, output *os.File) {
	p := proc.pool
	log := p.cfg.Log.With("function", p.fn.LogicalID, "pid", proc.child.Pid())
	log.Debug("process started")
	p.cfg.Started(p.fn.LogicalID, proc.child.Pid())
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		forwardLines(output, func(line string) { p.cfg.Output(p.fn.LogicalID, line) })
	}()
	<-proc.child.Done()
	_ = api.Close()
	p.remove(proc)
	if proc.isWorthAnother() {
		p.warm()
	}
	_ = output.SetReadDeadline(time.Now().Add(drainTime))
	<-drained
	_ = output.Close()
	log.Debug("process ended", "exit", proc.child.Wait())
	p.counter.Done()
}

// minLife is how long a process to debug has to live to be replaced when it ends.
const minLife = time.Second

// isWorthAnother is false for a process that ended by itself as soon as it had
// started: the next one would, too, and so on.
func (proc *sandbox) isWorthAnother() bool {
	proc.mu.Lock()
	defer proc.mu.Unlock()
	return proc.state != starting && (proc.killed || time.Since(proc.began) > minLife)
}

// kill ends the process, also one that is about to start. It tells whether
// nobody had before.
func (proc *sandbox) kill() bool {
	proc.mu.Lock()
	defer proc.mu.Unlock()
	first := !proc.killed
	proc.killed = true
	if proc.child != nil {
		_ = proc.child.Kill()
	}
	return first
}

// freeze lets nothing of an idle process run until it is given an invocation. The
// request for that has arrived, and is answered whenever there is one.
func (proc *sandbox) freeze() {
	if proc.pool.fn.Debug {
		return
	}
	if err := proc.child.Freeze(); err != nil { // then it goes on, which is no harm
		proc.pool.cfg.Log.Warn("cannot freeze a process", "function", proc.pool.fn.LogicalID, "error", err)
	}
}

// give hands an invocation to a ready process.
func (proc *sandbox) give(inv *invocation) {
	inv.deadline = time.Now().Add(proc.pool.fn.Timeout)
	_ = proc.child.Thaw() // it cannot fail where freezing did not
	proc.mu.Lock()
	defer proc.mu.Unlock()
	proc.state = assigned
	proc.current = inv
	proc.work <- inv
}

// await waits for the answer. If the process is not alive any more, it is of no
// further use, and there is no result if it never saw the invocation.
func (proc *sandbox) await(inv *invocation, limit <-chan time.Time) (res *result, alive bool) {
	select {
	case res = <-inv.answer:
		return res, true
	case <-proc.child.Done():
		select {
		case res = <-inv.answer: // its last deed
			return res, true
		default:
			return proc.exitResult(inv), false
		}
	case <-limit:
		proc.kill()
		proc.pool.count(func(s *Stats) { s.Timeouts++ })
		timeout := proc.pool.fn.Timeout.Seconds()
		return failed("Sandbox.Timedout", inv, fmt.Sprintf("Task timed out after %.2f seconds", timeout)), false
	}
}

// awaitReady waits until the process asks for its next invocation. It is false
// when the process ended or the limit came first.
func (proc *sandbox) awaitReady(limit <-chan time.Time) bool {
	select {
	case <-proc.becameReady:
		return true
	case <-proc.child.Done():
	case <-limit:
	}
	return false
}

// exitResult is what a call gets from a process that ended and owes an answer:
// nothing yet if it had not fetched the invocation.
func (proc *sandbox) exitResult(inv *invocation) *result {
	proc.mu.Lock()
	killed, unseen := proc.killed, proc.state == assigned
	proc.mu.Unlock()
	switch {
	case killed:
		return &result{err: ErrClosed}
	case unseen:
		return nil
	}
	proc.pool.count(func(s *Stats) { s.Crashes++ })
	select {
	case body := <-proc.initError:
		return &result{payload: body, functionError: unhandled}
	default:
	}
	reason := "Runtime exited without providing a reason"
	if err := proc.child.Wait(); err != nil {
		reason = "Runtime exited with error: " + err.Error()
	}
	return failed("Runtime.ExitError", inv, reason)
}
