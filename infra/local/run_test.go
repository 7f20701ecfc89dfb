//go:build !windows

package main_test

import (
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/build/buildtest"
	"github.com/inorder-im/inorder/infra/local/logtest"
)

const (
	// patience bounds a wait for anything that the local cloud does by itself. The
	// first start on a machine compiles the functions and may fetch the engine.
	patience = 2 * time.Minute
	often    = 5 * time.Millisecond

	// smallApp is a template with functions that echo, crash and hang. It takes a
	// parameter Mark, which its functions get as an environment variable.
	smallApp = "example/template.yaml"
	// product is the template of this repository.
	product = "../../template.yaml"
)

// local is a running local cloud, or what is left of one.
type local struct {
	t              *testing.T
	cmd            *exec.Cmd
	mark           string // in the environment of all that it starts
	stdout, stderr *transcript
	done           chan struct{}

	page, socket, dynamoDB string // once it is ready
}

// options of a start, besides the flags.
type options struct {
	program  string   // instead of the local cloud, which is then its first argument
	env      []string // in addition to this process's
	bare     bool     // env is all there is
	together bool     // stdout and stderr are one, as in a terminal
	watch    bool     // it looks after the functions' sources
}

// launch starts the local cloud. It ends with the test, which fails if anything is
// left of it.
func launch(t *testing.T, o options, args ...string) *local {
	t.Helper()
	require.NoError(t, buildtest.Sources(".", "../../functions", "../../shared"))
	c := &local{t: t, mark: "mark-" + rand.Text(), stdout: &transcript{}, stderr: &transcript{}, done: make(chan struct{})}
	if slices.Contains(args, smallApp) {
		args = append(args, "-param", "Mark="+c.mark) // a function's environment is the template's
	}
	if !o.watch && strings.HasPrefix(args[0], "-") { // else it is a subcommand
		args = append([]string{"-watch=false"}, args...)
	}
	c.cmd = exec.Command(program, args...)
	if o.program != "" {
		c.cmd = exec.Command(o.program, append([]string{program}, args...)...)
	}
	if !o.bare {
		c.cmd.Env = os.Environ()
	}
	c.cmd.Env = append(append(c.cmd.Env, o.env...), "INORDER_TEST="+c.mark)
	if o.together {
		c.stderr = c.stdout
	}
	c.cmd.Stdout, c.cmd.Stderr = c.stdout, c.stderr
	c.cmd.WaitDelay = 10 * time.Second
	require.NoError(t, c.cmd.Start())
	go func() {
		_ = c.cmd.Wait()
		close(c.done)
	}()
	t.Cleanup(func() {
		defer endMarked(c.mark)
		_ = c.cmd.Process.Kill()
		<-c.done
		c.requireNothingLeft()
		if t.Failed() {
			t.Logf("stdout:\n%sstderr:\n%s", c.stdout, c.stderr)
		}
	})
	return c
}

// start starts the local cloud on a free port and waits until it is ready.
func start(t *testing.T, o options, args ...string) *local {
	t.Helper()
	return launch(t, o, append([]string{"-addr", "127.0.0.1:0"}, args...)...).awaitReady()
}

// startApp is start with the small application. Its functions carry the mark.
func startApp(t *testing.T, args ...string) *local {
	t.Helper()
	return start(t, options{}, append([]string{"-template", smallApp}, args...)...)
}

var readyLine = regexp.MustCompile(`(?m)^ready  page=(http://127\.0\.0\.1:\d+/)  websocket=(ws://127\.0\.0\.1:\d+/\w+)  dynamodb=(http://127\.\d+\.\d+\.\d+:\d+)\n`)

func (c *local) awaitReady() *local {
	c.t.Helper()
	var found []string
	require.Eventually(c.t, func() bool {
		found = readyLine.FindStringSubmatch(c.stdout.String())
		return found != nil || c.ended()
	}, patience, often)
	require.NotNil(c.t, found, "it ended instead of getting ready")
	c.page, c.socket, c.dynamoDB = found[1], found[2], found[3]
	return c
}

func (c *local) ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (c *local) signal(s os.Signal) {
	c.t.Helper()
	require.NoError(c.t, c.cmd.Process.Signal(s))
}

// requireEnd waits for the end, within a time that suits a person who waits for it.
func (c *local) requireEnd(within time.Duration) {
	c.t.Helper()
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		require.FailNow(c.t, "it did not end", "within %v", within)
	}
}

// stop ends it as Ctrl-C does.
func (c *local) stop() {
	c.t.Helper()
	c.signal(syscall.SIGINT)
	c.requireEnd(patience)
	require.Equal(c.t, 0, c.cmd.ProcessState.ExitCode())
}

func (c *local) awaitLog(pattern string) {
	c.t.Helper()
	c.stderr.await(c.t, pattern)
}

// outcome is how a run ended that was not meant to serve.
type outcome struct {
	code           int
	stdout, stderr string
}

// runToEnd runs the local cloud where it should end by itself.
func runToEnd(t *testing.T, o options, args ...string) outcome {
	t.Helper()
	c := launch(t, o, args...)
	c.requireEnd(patience)
	return outcome{c.cmd.ProcessState.ExitCode(), c.stdout.String(), c.stderr.String()}
}

// requireError checks that it ended as a program with something to complain about.
func (o outcome) requireError(t *testing.T, parts ...string) {
	t.Helper()
	require.Equal(t, 1, o.code)
	require.Empty(t, o.stdout)
	for _, part := range parts {
		require.Contains(t, o.stderr, part)
	}
	require.NotContains(t, o.stderr, "goroutine", "a user gets no stack trace")
}

// errorLines are the lines that explain the end, without their prefix.
func (o outcome) errorLines() string {
	var found []string
	for line := range strings.Lines(o.stderr) {
		if text, ok := strings.CutPrefix(line, "local      | error: "); ok {
			found = append(found, text)
		}
	}
	return strings.Join(found, "")
}

// transcript is output by lines.
type transcript struct{ logtest.Log }

// lines are the whole ones.
func (l *transcript) lines() []string {
	whole := slices.Collect(strings.SplitSeq(l.String(), "\n"))
	return whole[:len(whole)-1]
}

// await waits for a line.
func (l *transcript) await(t *testing.T, pattern string) {
	t.Helper()
	line := regexp.MustCompile("(?m)" + pattern)
	require.Eventually(t, func() bool { return line.MatchString(l.String()) }, patience, often, "no line like %q", pattern)
}

// exitSignal is the signal that ended the process, 0 if none did.
func (c *local) exitSignal() syscall.Signal {
	c.t.Helper()
	status, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(c.t, ok)
	if !status.Signaled() {
		return 0
	}
	return status.Signal()
}

// endMarked ends what a failed test shows to have been left behind.
func endMarked(mark string) {
	for pid := range marked(mark) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// running lists the processes that carry the mark.
func (c *local) running() []string {
	c.t.Helper()
	var list []string
	for pid, commandLine := range marked(c.mark) {
		list = append(list, fmt.Sprintf("%d %s", pid, commandLine))
	}
	return list
}

func (c *local) requireNothingLeft() {
	c.t.Helper()
	var left []string
	if !assert.Eventually(c.t, func() bool { left = c.running(); return len(left) == 0 }, patience, often) {
		require.FailNow(c.t, "not all has ended", "left running: %v", left)
	}
}
