package integration_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inorder/integration/fault"
)

const (
	// readyTimeout bounds a start; the first one on a machine compiles the
	// functions and may download the DynamoDB engine.
	readyTimeout = 3 * time.Minute
	// endTimeout bounds the end of a local cloud and of what it started.
	endTimeout = 20 * time.Second
)

// localCloud is a local cloud of a test's own, as a child process.
type localCloud struct {
	stack
	dynamoDB string // the endpoint

	cmd    *exec.Cmd
	stderr *lines
	exited chan struct{}
	err    error // of the process, once exited is closed
}

// needLocal skips the test where the tests run against a stack that is up.
func needLocal(tb testing.TB) {
	tb.Helper()
	if localProgram == "" {
		tb.Skip("this test needs a local cloud of its own: run it without INORDER_WS_URL and INORDER_DYNAMODB_ENDPOINT")
	}
}

// startCloud starts a local cloud that ends with the test.
func startCloud(tb testing.TB, args ...string) *localCloud {
	tb.Helper()
	return startCloudIn(tb, nil, args...)
}

// startCloudIn is startCloud with more variables in the environment.
func startCloudIn(tb testing.TB, env []string, args ...string) *localCloud {
	tb.Helper()
	needLocal(tb)
	require.NoError(tb, dependOnTheProduct())
	c, err := launch(tb.Context(), env, args...)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		if err := c.stop(); err != nil {
			tb.Error(err)
		}
		if tb.Failed() {
			tb.Logf("what the local cloud had to say, without its info lines:\n%s", c.complaints())
		}
	})
	return c
}

var readyLine = regexp.MustCompile(`^ready  page=(\S+)  websocket=(\S+)  dynamodb=(\S+)$`)

// withoutLimits switches the limits off: the users of the tests are programs, which
// write as fast as they can. Tests of the limits set them again.
func withoutLimits() []string {
	const most = "1000000"
	var args []string
	for _, p := range []string{
		"WritesPerSecond=0", "ReadsPerSecond=0", "UserConnectsPerSecond=0", "GroupsPerDay=0", "MaxLargeConversations=0",
		"RequestsPerSecond=" + most, "RequestBurst=" + most, "ConnectsPerSecond=" + most, "ConnectBurst=" + most,
	} {
		args = append(args, "-param", p)
	}
	return args
}

// launch starts a local cloud on a free port, with these variables added to the
// environment, and waits until it is ready.
func launch(ctx context.Context, env []string, args ...string) (*localCloud, error) {
	c := &localCloud{stderr: &lines{}, exited: make(chan struct{})}
	c.cmd = exec.Command(localProgram, slices.Concat([]string{"-addr", "127.0.0.1:0", "-raw-logs", "-watch=false"}, withoutLimits(), args)...)
	c.cmd.Env = append(os.Environ(), env...)
	c.cmd.Dir = ".." // where template.yaml is
	c.cmd.Stderr = c.stderr
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the local cloud: %w", err)
	}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the local cloud: %w", err)
	}
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(stdout).ReadString('\n')
		said <- strings.TrimSuffix(line, "\n")
		_, _ = io.Copy(io.Discard, stdout)
		c.err = c.cmd.Wait()
		close(c.exited)
	}()
	timer := time.NewTimer(readyTimeout)
	defer timer.Stop()
	select {
	case line := <-said:
		m := readyLine.FindStringSubmatch(line)
		if m == nil {
			_ = c.stop()
			return nil, fmt.Errorf("the local cloud said %q instead of that it is ready:\n%s", line, c.stderr)
		}
		c.page, c.socket, c.dynamoDB = m[1], m[2], m[3]
		c.tokens = c.page + "dev/token"
		return c, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = errors.New("it took too long")
	}
	_ = c.stop()
	return nil, fmt.Errorf("waiting for the local cloud: %w\n%s", err, c.stderr)
}

// stop ends the local cloud as Ctrl-C does. The error says that it was not there
// any more, did not end as it should, or left something running.
func (c *localCloud) stop() error {
	select {
	case <-c.exited:
		if c.err == nil || c.killed() {
			return nil
		}
		return fmt.Errorf("the local cloud ended by itself: %w\n%s", c.err, c.stderr)
	default:
	}
	family := fault.Descendants(c.cmd.Process.Pid)
	_ = c.cmd.Process.Signal(os.Interrupt)
	timer := time.NewTimer(endTimeout)
	defer timer.Stop()
	select {
	case <-c.exited:
	case <-timer.C:
		_ = c.cmd.Process.Kill()
		<-c.exited
		return fmt.Errorf("the local cloud did not end on SIGINT:\n%s", c.stderr)
	}
	if c.err != nil {
		return fmt.Errorf("the local cloud ended on SIGINT with %w:\n%s", c.err, c.stderr)
	}
	return awaitEnd(family)
}

// kill is kill -9. It returns when nothing is left of what the local cloud
// started; the error says what outlived it.
func (c *localCloud) kill() error {
	family := fault.Descendants(c.cmd.Process.Pid)
	if err := c.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("killing the local cloud: %w", err)
	}
	<-c.exited
	return awaitEnd(family)
}

func (c *localCloud) killed() bool {
	status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// complaints is what the local cloud and its functions logged, but for the lines
// that tell of a request that went well.
func (c *localCloud) complaints() string {
	var b strings.Builder
	for line := range strings.Lines(c.stderr.String()) {
		if !strings.Contains(line, `"level":"INFO"`) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// killFunction is kill -9 of every process of a function, and says how many there
// were. It returns when they have ended. name is the function's logical id.
func (c *localCloud) killFunction(name string) (int, error) {
	victims := fault.ProcessesOf(c.cmd.Process.Pid, name)
	for _, p := range victims {
		if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return 0, fmt.Errorf("killing a process of %s: %w", name, err)
		}
	}
	return len(victims), awaitEnd(victims)
}

// needProc skips the test where there is no /proc to find processes in.
func needProc(tb testing.TB) {
	tb.Helper()
	if runtime.GOOS != "linux" {
		tb.Skip("this test finds processes in /proc, which " + runtime.GOOS + " does not have")
	}
}

// awaitEnd waits until none of them runs. The error names those that still do.
func awaitEnd(processes []fault.Process) error {
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

// lines collects output for the report of a failure.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}
