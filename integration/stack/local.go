package stack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/inorder-im/inorder/infra/local/process"
)

const (
	// readyTimeout bounds a start; the first one on a machine compiles the
	// functions and may download the DynamoDB engine.
	readyTimeout = 3 * time.Minute
	// endTimeout bounds the end of a local cloud and of what it started.
	endTimeout = 20 * time.Second
)

// Launcher starts local clouds, all of one build. They end with this program, however
// that ends.
type Launcher struct {
	Reaper  *process.Reaper // for what has to end likewise
	Program string          // in a folder that Close removes

	root string // the folder of the module
	dir  string
}

// NewLauncher builds the local cloud of the module that the working directory is in.
// Call Close in the end.
func NewLauncher(ctx context.Context) (_ *Launcher, err error) {
	goMod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return nil, fmt.Errorf("asking go for the module: %w", err)
	}
	l := &Launcher{root: filepath.Dir(strings.TrimSpace(string(goMod)))}
	if _, err := os.Stat(filepath.Join(l.root, "template.yaml")); err != nil {
		return nil, fmt.Errorf("run this in the folder of Inorder's sources: %w", err)
	}
	if l.dir, err = os.MkdirTemp("", "inorder-local-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(l.dir)
		}
	}()
	l.Program = filepath.Join(l.dir, "local")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", l.Program, "./infra/local") //nolint:gosec // a program of its own
	cmd.Dir = l.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the local cloud: %w\n%s", err, out)
	}
	l.Reaper, err = process.StartReaper()
	return l, err
}

// Close kills what still runs.
func (l *Launcher) Close() error {
	return errors.Join(l.Reaper.Close(), os.RemoveAll(l.dir))
}

// Options are how a local cloud is started.
type Options struct {
	Env  []string  // more variables
	Args []string  // more arguments; a -param goes before one of Launch
	Log  io.Writer // what it says; nil is nowhere
}

// Local is a local cloud, as a process.
type Local struct {
	Stack
	DynamoDB string // its endpoint

	process *process.Process
	said    *tail
}

// withoutLimits switches the limits off: users here are programs, which write as fast
// as they can.
func withoutLimits() []string {
	const most = "1000000"
	var args []string
	for _, p := range []string{
		"WritesPerSecond=0", "ReadsPerSecond=0", "UserConnectsPerSecond=0", "GroupsPerDay=0", "MaxLargeConversations=0",
		"ConversationWritesPerSecond=0",
		"RequestsPerSecond=" + most, "RequestBurst=" + most, "ConnectsPerSecond=" + most, "ConnectBurst=" + most,
	} {
		args = append(args, "-param", p)
	}
	return args
}

var readyLine = regexp.MustCompile(`^ready  page=(\S+)  websocket=(\S+)  dynamodb=(\S+)$`)

// Launch starts a local cloud on a free port, without limits, and waits until it is
// ready. Call Stop in the end.
func (l *Launcher) Launch(ctx context.Context, o Options) (*Local, error) {
	c := &Local{said: &tail{to: o.Log}}
	args := slices.Concat([]string{"-addr", "127.0.0.1:0", "-watch=false"}, withoutLimits(), o.Args)
	cmd := exec.Command(l.Program, args...) //nolint:gosec,noctx // its own program, which the reaper ends
	cmd.Env = append(os.Environ(), o.Env...)
	cmd.Dir = l.root
	line := firstLine{found: make(chan string, 1)}
	cmd.Stdout, cmd.Stderr = &line, c.said
	var err error
	if c.process, err = l.Reaper.Start(cmd); err != nil {
		return nil, fmt.Errorf("starting the local cloud: %w", err)
	}
	timer := time.NewTimer(readyTimeout)
	defer timer.Stop()
	select {
	case first := <-line.found:
		m := readyLine.FindStringSubmatch(first)
		if m != nil {
			c.Stack, c.DynamoDB = Stack{Page: m[1], Socket: m[2], Tokens: m[1] + "dev/token"}, m[3]
			return c, nil
		}
		err = fmt.Errorf("it said %q instead of that it is ready", first)
	case <-c.process.Done():
		err = fmt.Errorf("it ended: %w", c.process.Wait())
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = errors.New("it took too long")
	}
	_ = c.Stop()
	return nil, fmt.Errorf("starting the local cloud: %w\n%s", err, c.said)
}

// PID is its process id.
func (c *Local) PID() int { return c.process.Pid() }

// Stop ends the local cloud as Ctrl-C does. The error says that it was not there
// any more, did not end as it should, or left something running.
func (c *Local) Stop() error {
	select {
	case <-c.process.Done():
		if err := c.process.Wait(); err != nil && !killed(err) {
			return fmt.Errorf("the local cloud ended by itself: %w\n%s", err, c.said)
		}
		return nil
	default:
	}
	family := descendants(c.PID())
	_ = syscall.Kill(c.PID(), syscall.SIGINT)
	timer := time.NewTimer(endTimeout)
	defer timer.Stop()
	select {
	case <-c.process.Done():
	case <-timer.C:
		_ = c.process.Kill()
		<-c.process.Done()
		return fmt.Errorf("the local cloud did not end on SIGINT:\n%s", c.said)
	}
	if err := c.process.Wait(); err != nil {
		return fmt.Errorf("the local cloud ended on SIGINT with %w:\n%s", err, c.said)
	}
	return awaitEnd(family)
}

// Kill is kill -9. It returns when nothing is left of what the local cloud
// started; the error says what outlived it.
func (c *Local) Kill() error {
	family := descendants(c.PID())
	if err := c.process.Kill(); err != nil {
		return fmt.Errorf("killing the local cloud: %w", err)
	}
	<-c.process.Done()
	return awaitEnd(family)
}

func killed(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// KillFunction is kill -9 of every process of a function, and says how many there
// were. It returns when they have ended. name is the function's logical id.
func (c *Local) KillFunction(name string) (int, error) {
	victims := ProcessesOf(c.PID(), name)
	for _, p := range victims {
		if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return 0, fmt.Errorf("killing a process of %s: %w", name, err)
		}
	}
	return len(victims), awaitEnd(victims)
}

// awaitEnd waits until none of them runs. The error names those that still do.
func awaitEnd(processes []Process) error {
	deadline := time.Now().Add(endTimeout)
	for {
		var left []string
		for _, p := range processes {
			if p.Runs() {
				left = append(left, fmt.Sprintf("%s (%d)", p.Program, p.PID))
			}
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the local cloud left running: %s", strings.Join(left, ", "))
		}
		time.Sleep(time.Millisecond) // nothing tells of the end of another's child
	}
}

// firstLine takes in output, and tells its first line.
type firstLine struct {
	found chan string
	begun []byte
	told  bool
}

func (l *firstLine) Write(p []byte) (int, error) {
	if !l.told {
		l.begun = append(l.begun, p...)
		var line []byte
		if line, _, l.told = bytes.Cut(l.begun, []byte("\n")); l.told {
			l.found <- string(line)
		}
	}
	return len(p), nil
}

// tail passes on what is written and keeps the last of it, for the report of a failure.
type tail struct {
	to io.Writer

	mu   sync.Mutex
	last []byte
}

// keptOutput is how many bytes of output are kept.
const keptOutput = 64 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, p...)
	if len(t.last) > 2*keptOutput {
		t.last = bytes.Clone(t.last[len(t.last)-keptOutput:])
	}
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
