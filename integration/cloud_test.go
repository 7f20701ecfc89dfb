package integration_test

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/logtest"
	launch "github.com/inorder-im/inorder/integration/stack"
)

// stack is an Inorder that is up.
type stack = launch.Stack

// localCloud is a local cloud of a test's own.
type localCloud struct {
	*launch.Local
	stderr *logtest.Log
}

// needLocal skips the test where the tests run against a stack that is up.
func needLocal(tb testing.TB) {
	tb.Helper()
	if launcher == nil {
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
	c, err := startFrom(tb.Context(), launcher, env, args...)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		if err := c.Stop(); err != nil {
			tb.Error(err)
		}
		if tb.Failed() {
			tb.Logf("what the local cloud had to say, without its info lines:\n%s", c.complaints())
		}
	})
	return c
}

func startFrom(ctx context.Context, l *launch.Launcher, env []string, args ...string) (*localCloud, error) {
	c := &localCloud{stderr: &logtest.Log{}}
	var err error
	c.Local, err = l.Launch(ctx, launch.Options{Env: env, Args: slices.Concat([]string{"-raw-logs"}, args), Log: c.stderr})
	return c, err
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

// troubles counts what the local cloud and its functions complained of so far. On a
// machine that does too much, calls are given up and made again, and frames without an
// answer get lost: a measurement during which that happened is made again.
func (c *localCloud) troubles() (n int) {
	for line := range strings.Lines(c.stderr.String()) {
		if strings.Contains(line, ` | error: `) || strings.Contains(line, `"level":"WARN"`) || strings.Contains(line, `"level":"ERROR"`) {
			n++
		}
	}
	return n
}

// attempts is how often a measurement is made before a test fails.
const attempts = 3

// needProc skips the test where there is no /proc to find processes in.
func needProc(tb testing.TB) {
	tb.Helper()
	if runtime.GOOS != "linux" {
		tb.Skip("this test finds processes in /proc, which " + runtime.GOOS + " does not have")
	}
}
