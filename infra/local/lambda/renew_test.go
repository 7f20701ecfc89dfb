package lambda_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/lambda"
	"github.com/inorder-im/inorder/infra/local/template"
)

// place makes dir/bootstrap one that has VERSION in its environment, as a build does:
// the file is replaced at once.
func place(t *testing.T, dir, version string) {
	t.Helper()
	next := filepath.Join(dir, "next")
	script := fmt.Sprintf("#!/bin/sh\nVERSION=%s exec %s\n", version, filepath.Join(buildDir, "bootstrap"))
	require.NoError(t, os.WriteFile(next, []byte(script), 0o700))
	require.NoError(t, os.Rename(next, filepath.Join(dir, "bootstrap")))
}

// version is that of the process that answers.
func (f *fixture) version(t *testing.T) string {
	t.Helper()
	env := f.succeed(t, command{Do: "context"}).Env
	i := slices.IndexFunc(env, func(s string) bool { return strings.HasPrefix(s, "VERSION=") })
	require.GreaterOrEqual(t, i, 0)
	return strings.TrimPrefix(env[i], "VERSION=")
}

func TestRenew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	place(t, dir, "one")
	f := start(t, lambda.Function{Function: template.Function{ReservedConcurrency: 2}, Dir: dir})
	require.Equal(t, "one", f.version(t))
	busy := f.startWaiting(t.Context(), t)
	old := busy.pid(t)
	idle := f.startWaiting(t.Context(), t)
	idle.pid(t)
	idle.end(t)
	require.NoError(t, idle.wait(t).err)
	require.Equal(t, "one", f.version(t))

	place(t, dir, "two")
	require.Equal(t, "one", f.version(t), "a process that runs is not touched before it is told")
	require.NoError(t, f.Renew("F"))
	require.Equal(t, "two", f.version(t))
	require.NoError(t, syscall.Kill(old, 0), "one at work is let finish")
	busy.end(t)
	require.Empty(t, busy.wait(t).functionError)
	eventually(t, func() bool { return syscall.Kill(old, 0) != nil }, "it ends when it has answered")
	for range 3 {
		require.Equal(t, "two", f.version(t))
	}
	require.Zero(t, f.stats().Errors)

	require.ErrorIs(t, f.Renew("G"), lambda.ErrUnknownFunction)
}

// Who waits for the only process gets the new one.
func TestRenew_CallsInTheQueue(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	place(t, dir, "one")
	f := start(t, lambda.Function{Function: template.Function{ReservedConcurrency: 1}, Dir: dir})
	busy := f.startWaiting(t.Context(), t)
	busy.pid(t)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		payload, _, err := f.do(t.Context(), command{Do: "context"})
		if err != nil || !strings.Contains(string(payload), "VERSION=two") {
			t.Errorf("%s, %v", payload, err)
		}
	})
	eventually(t, func() bool { return f.stats().Waiting == 1 }, "it waits")
	place(t, dir, "two")
	require.NoError(t, f.Renew("F"))
	busy.end(t)
	require.NoError(t, busy.wait(t).err)
	waiting.Wait()
}

// A storm of calls and renewals loses none.
func TestRenew_UnderLoad(t *testing.T) {
	t.Parallel()
	f := start(t, atMost(3))
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 25 {
				if _, functionError, err := f.do(t.Context(), command{Do: "echo"}); err != nil || functionError != "" {
					t.Errorf("%s, %v", functionError, err)
				}
			}
		})
	}
	ended := make(chan struct{})
	go func() {
		callers.Wait()
		close(ended)
	}()
	for {
		select {
		case <-ended:
			require.Equal(t, 100, f.stats().Invocations)
			return
		case <-time.After(10 * time.Millisecond):
			require.NoError(t, f.Renew("F"))
		}
	}
}

// debugged starts a function to debug, and returns the ids of its processes.
func debugged(t *testing.T, fn lambda.Function) (f *fixture, pids func() []int) {
	t.Helper()
	fn.Debug = true
	var mu sync.Mutex
	var started []int
	f = start(t, fn, func(c *lambda.Config) {
		// All limits of time that there are, so short that any would be met.
		c.IdleAfter, c.InitTimeout, c.QueueWait = time.Millisecond, time.Millisecond, time.Millisecond
		c.Started = func(_ string, pid int) {
			mu.Lock()
			defer mu.Unlock()
			started = append(started, pid)
		}
	})
	return f, func() []int {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(started)
	}
}

func TestDebug_HasNoLimits(t *testing.T) {
	t.Parallel()
	f, pids := debugged(t, lambda.Function{Function: template.Function{Timeout: time.Millisecond, ReservedConcurrency: 5}})
	eventually(t, func() bool { return f.stats().Idle == 1 }, "it is there before a call")
	require.Len(t, pids(), 1)
	first := f.startWaiting(t.Context(), t)
	require.Equal(t, pids()[0], first.pid(t))
	second := f.startWaiting(t.Context(), t)
	eventually(t, func() bool { return f.stats().Waiting == 1 }, "the second waits for the first")
	gone, cancel := context.WithCancel(t.Context())
	third := f.startWaiting(gone, t)
	eventually(t, func() bool { return f.stats().Waiting == 2 }, "so does the third")
	cancel()
	require.ErrorIs(t, third.wait(t).err, context.Canceled)
	first.end(t)
	require.Empty(t, first.wait(t).functionError)
	require.Equal(t, pids()[0], second.pid(t))
	second.end(t)
	require.Empty(t, second.wait(t).functionError)
	answer := f.succeed(t, command{Do: "context"})
	require.Greater(t, time.Until(answer.Deadline), 23*time.Hour)
	require.Len(t, pids(), 1)
	require.Zero(t, f.stats().Timeouts)
}

func TestDebug_ThereIsAlwaysAProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	place(t, dir, "one")
	f, pids := debugged(t, lambda.Function{Dir: dir})
	there := func(n int) {
		t.Helper()
		eventually(t, func() bool { return len(pids()) == n && f.stats().Idle == 1 }, "there is a process")
	}
	there(1)
	place(t, dir, "two")
	require.NoError(t, f.Renew("F"))
	there(2)
	require.Equal(t, "two", f.version(t))
	began := time.Now()
	eventually(t, func() bool { return time.Since(began) > time.Second }, "it has not ended as soon as it began")
	require.NoError(t, syscall.Kill(pids()[1], syscall.SIGKILL), "as a debugger does that is left")
	there(3)
}

// A process that cannot live is not started again and again, but for a call.
func TestDebug_NoLoopOfCrashes(t *testing.T) {
	t.Parallel()
	for name, fn := range map[string]lambda.Function{
		"no program":    {Dir: notAProgram(t)},
		"ends at start": {Env: map[string]string{"INIT": "exit"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, pids := debugged(t, fn)
			eventually(t, func() bool { return len(f.output()) > 0 }, "it says why")
			for i := range 3 {
				eventually(t, func() bool { return f.stats().Processes == 0 }, "it ends")
				require.LessOrEqual(t, len(pids()), i+1)
				f.fail(t, command{Do: "echo"})
			}
		})
	}
}

// notAProgram is a folder whose bootstrap is executable and nothing else.
func notAProgram(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bootstrap"), []byte("nothing"), 0o700))
	return dir
}
