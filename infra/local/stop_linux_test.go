package main_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// busy starts the small application and has it run functions: one that waits for
// its next call and one in the middle of a call that takes an hour.
func busy(t *testing.T, o options) *local {
	t.Helper()
	c := start(t, o, "-template", smallApp)
	user := c.dial("")
	user.listen()
	user.send(`{"action":"stuck"}`)
	c.awaitLog(`^stuck      \| stuck$`)
	return c
}

// requireAllThere makes sure that there is something to be left behind.
func (c *local) requireAllThere() {
	c.t.Helper()
	all := strings.Join(c.running(), "\n")
	for _, part := range []string{program + " -watch=false -addr", "/bin/sh -c # The reaper", "serve --host", "/EchoFunction/bootstrap", "/StuckFunction/bootstrap"} {
		require.Contains(c.t, all, part)
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	tests := []struct {
		signal syscall.Signal
		code   int
		ended  syscall.Signal
	}{
		{signal: syscall.SIGINT},
		{signal: syscall.SIGTERM},
		{signal: syscall.SIGHUP}, // the terminal was closed
		{signal: syscall.SIGKILL, code: -1, ended: syscall.SIGKILL},
	}
	for _, test := range tests {
		t.Run(test.signal.String(), func(t *testing.T) {
			t.Parallel()
			c := start(t, options{}, "-template", smallApp)
			c.dial("").listen() // its function waits for the next call
			c.signal(test.signal)
			c.requireEnd(patience)
			require.Equal(t, test.code, c.cmd.ProcessState.ExitCode())
			require.Equal(t, test.ended, c.exitSignal())
			c.requireNothingLeft()
		})
	}
}

func TestStop_KilledAtWork(t *testing.T) {
	t.Parallel()
	c := busy(t, options{})
	c.requireAllThere()
	c.signal(syscall.SIGKILL)
	c.requireEnd(patience)
	c.requireNothingLeft()
}

// A function in the middle of a call is waited for, but not for ever, and not by
// someone who presses Ctrl-C again.
func TestStop_SecondCtrlC(t *testing.T) {
	t.Parallel()
	c := busy(t, options{})
	c.signal(syscall.SIGINT)
	c.awaitLog(`^local      \| stopping$`)
	c.requireAllThere()
	c.signal(syscall.SIGINT)
	c.requireEnd(2 * time.Second)
	require.Equal(t, syscall.SIGINT, c.exitSignal())
	c.requireNothingLeft()
}

func TestStop_ACallThatDoesNotEnd(t *testing.T) {
	t.Parallel()
	c := busy(t, options{})
	c.signal(syscall.SIGTERM)
	c.requireEnd(patience)
	require.Equal(t, 0, c.cmd.ProcessState.ExitCode())
	c.requireNothingLeft()
}

// `go run` stands between the shell and the local cloud. When it is killed, the
// local cloud gets no signal at all.
func TestStop_ParentKilled(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "parent")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\n\"$@\" &\nwait\n"), 0o700))
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			c := start(t, options{program: script}, "-template", smallApp)
			c.dial("").listen() // its function waits for the next call
			require.Len(t, c.running(), 5, "the parent, the local cloud, the reaper, the engine, the function")
			c.signal(signal)
			c.requireEnd(patience) // of all that holds the output, too
			c.requireNothingLeft()
		})
	}
}

// With a go tool that never comes to an end, the local cloud is stopped while it
// builds. Its engine runs by then.
func TestStop_WhileBuilding(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			c := launchBuilding(t)
			c.signal(signal)
			c.requireEnd(patience)
			require.Equal(t, 1, c.cmd.ProcessState.ExitCode())
			require.Empty(t, c.stdout.String())
			require.NotContains(t, c.stderr.String(), "error")
			c.requireNothingLeft()
		})
	}
}

func launchBuilding(t *testing.T) *local {
	t.Helper()
	tools := t.TempDir()
	began := filepath.Join(tools, "began")
	script := fmt.Sprintf("#!/bin/sh\n: > %s\nexec sleep 3600\n", began)
	require.NoError(t, os.WriteFile(filepath.Join(tools, "go"), []byte(script), 0o700))
	env := append(emptyHome(t), engine(t), "PATH="+tools+":"+os.Getenv("PATH"))
	c := launch(t, options{env: env}, "-addr", "127.0.0.1:0", "-template", smallApp)
	c.awaitLog(`^local      \| 1 tables at `)
	require.Eventually(t, func() bool {
		_, err := os.Stat(began)
		return err == nil
	}, patience, often)
	return c
}

// An engine that ends by itself takes the local cloud with it.
func TestStop_EngineGone(t *testing.T) {
	t.Parallel()
	c := start(t, options{}, "-template", smallApp)
	c.dial("").listen()
	killed := false
	for pid, commandLine := range marked(c.mark) {
		if strings.Contains(commandLine, "serve --host") {
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
			killed = true
		}
	}
	require.True(t, killed)
	c.requireEnd(patience)
	require.Equal(t, 1, c.cmd.ProcessState.ExitCode())
	c.awaitLog(`^local      \| error: dynoxide ended unexpectedly \(signal: killed\)`)
	c.requireNothingLeft()
}
