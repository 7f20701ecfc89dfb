// Package process starts processes that never outlive their parent, not even
// when the parent is killed with SIGKILL and can clean up nothing. It works on
// Linux and macOS, and asks nothing of the program that uses it.
//
// A small second process, the reaper, holds the reading end of a pipe whose
// writing end only the parent has. The parent tells it which children live; when
// the pipe ends, the parent is gone for whatever reason, and the reaper kills
// every child that is left, with all of its descendants in the child's process
// group. The reaper is a script of /bin/sh, so there is nothing to install.
package process

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// ErrClosed is returned by [Reaper.Start] after [Reaper.Close].
var ErrClosed = errors.New("the reaper of child processes is closed")

// outputDelay bounds how long a finished child is waited for because a
// descendant of it still holds its output open. [exec.Cmd.WaitDelay]
// set by the caller goes before it.
const outputDelay = time.Second

//go:embed reaper.sh
var reaperScript string

// readyAnswer is what the reaper writes when it is on guard.
const readyAnswer = "ready\n"

// Reaper starts children and sees to it that none is left behind.
type Reaper struct {
	cmd   *exec.Cmd
	pipe  io.WriteCloser // its end tells the reaper that the parent is gone
	start chan startRequest

	mu     sync.Mutex
	closed bool
	live   map[*Process]struct{}

	closing  sync.Once
	closeErr error
}

type startRequest struct {
	cmd    *exec.Cmd
	result chan error
}

// StartReaper starts the reaper and waits until it is on guard. Call [Reaper.Close]
// in the end.
func StartReaper() (*Reaper, error) {
	cmd := reaperCommand()
	r := &Reaper{cmd: cmd, start: make(chan startRequest), live: make(map[*Process]struct{})}
	if err := r.launch(); err != nil {
		return nil, fmt.Errorf("starting the reaper of child processes: %w", err)
	}
	go r.startChildren()
	return r, nil
}

func reaperCommand() *exec.Cmd {
	cmd := exec.Command("/bin/sh", "-c", reaperScript) //nolint:noctx // it outlives every context
	cmd.Dir = "/"                                      // hold no directory that someone may want to unmount or remove
	// A session of its own: Ctrl-C in the terminal goes to the parent's process
	// group and must not end the reaper before the parent.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// launch starts the process of the reaper, and waits for its answer.
func (r *Reaper) launch() (err error) {
	if r.pipe, err = r.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := r.cmd.Start(); err != nil {
		return err
	}
	answer := make([]byte, len(readyAnswer))
	if _, err := io.ReadFull(out, answer); err != nil {
		_ = r.pipe.Close()
		return errors.Join(fmt.Errorf("it does not answer: %w", err), r.cmd.Wait())
	}
	return nil
}

// startChildren is the goroutine that starts all children. It never leaves its
// thread, because Linux ties the parent-death signal (see dieWithParent) to the
// thread that forked: on another thread a child would die when the Go runtime
// ends that thread.
func (r *Reaper) startChildren() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for req := range r.start {
		req.result <- req.cmd.Start()
	}
}

// Start starts cmd in a process group of its own and puts it under guard. The
// caller must not call cmd.Wait: [Process.Wait] does it. It returns [ErrClosed]
// after Close, the error of [exec.Cmd.Start] when the program cannot be run,
// and another error when the reaper itself was killed: nothing is started
// unguarded.
func (r *Reaper) Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pgid = 0
	dieWithParent(cmd.SysProcAttr)
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = outputDelay
	}

	// The lock is held over the start, so that Close finds every child in
	// live. Go forks one process at a time anyway.
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, ErrClosed
	}
	req := startRequest{cmd: cmd, result: make(chan error)}
	r.start <- req
	if err := <-req.result; err != nil {
		return nil, fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	p := &Process{cmd: cmd, pid: cmd.Process.Pid, done: make(chan struct{})}
	// Between the fork and this line the reaper does not know the child. On
	// Linux the parent-death signal covers a parent killed just then. macOS has
	// no such signal: there the gap of some microseconds remains, for a child
	// that would not notice by itself that its parent's servers are gone.
	if _, err := fmt.Fprintf(r.pipe, "+%d\n", p.pid); err != nil {
		_ = p.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("starting %s: the reaper of child processes is gone, restart this program: %w", cmd.Path, err)
	}
	r.live[p] = struct{}{}
	go r.reap(p)
	return p, nil
}

// reap waits for the end of p.
func (r *Reaper) reap(p *Process) {
	p.err = p.cmd.Wait()
	// The descendants of a child go with it.
	_ = syscall.Kill(-p.pid, syscall.SIGKILL)
	r.mu.Lock()
	delete(r.live, p)
	if !r.closed {
		// If the reaper is gone, so is what it knew.
		_, _ = fmt.Fprintf(r.pipe, "-%d\n", p.pid)
	}
	r.mu.Unlock()
	close(p.done)
}

// Close kills the children that are left, waits for them, and ends the reaper.
// It may be called more than once. The error says that the reaper did not end
// as it should.
func (r *Reaper) Close() error {
	r.closing.Do(func() {
		r.mu.Lock()
		r.closed = true
		left := make([]*Process, 0, len(r.live))
		for p := range r.live {
			left = append(left, p)
		}
		r.mu.Unlock()
		for _, p := range left {
			_ = p.Kill()
		}
		for _, p := range left {
			<-p.Done()
		}
		close(r.start)
		_ = r.pipe.Close()
		if err := r.cmd.Wait(); err != nil {
			r.closeErr = fmt.Errorf("ending the reaper of child processes: %w", err)
		}
	})
	return r.closeErr
}

// Process is a child under guard. Its methods may be called at any time and
// from any goroutine.
type Process struct {
	cmd  *exec.Cmd
	pid  int
	done chan struct{}
	err  error // set before done is closed
}

// Pid is the process id, which is the id of the process group too.
func (p *Process) Pid() int { return p.pid }

// Done is closed when the process has ended and been reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the process to end and returns what [exec.Cmd.Wait] returned:
// nil for exit status 0, an [*exec.ExitError] for another or for a signal.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// Kill sends SIGKILL to the process and its descendants in the group. It does
// not wait, and is nil for a process that has ended.
func (p *Process) Kill() error { return p.signal(syscall.SIGKILL) }

// Freeze stops the process and its descendants in the group where they are, until
// [Process.Thaw] or an end. It does not wait, and is nil for a process that has ended.
func (p *Process) Freeze() error { return p.signal(syscall.SIGSTOP) }

// Thaw lets them go on. It is nil for a process that is not frozen, or has ended.
func (p *Process) Thaw() error { return p.signal(syscall.SIGCONT) }

// Stop asks the process group to end with SIGTERM, kills it when it is still
// there after grace, and returns when it is gone.
func (p *Process) Stop(grace time.Duration) {
	_ = p.signal(syscall.SIGTERM)
	_ = p.Thaw() // what is frozen hears nothing
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
		return
	case <-timer.C:
	}
	_ = p.Kill()
	<-p.done
}

func (p *Process) signal(sig syscall.Signal) error {
	select {
	case <-p.done: // the id may belong to another process by now
		return nil
	default:
	}
	err := syscall.Kill(-p.pid, sig)
	if errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.EPERM) {
		// Nobody in the group can be signalled: all of it has ended (for
		// which macOS says EPERM while the child is not reaped yet).
		return nil
	}
	if err != nil {
		return fmt.Errorf("sending %v to process group %d: %w", sig, p.pid, err)
	}
	return nil
}
