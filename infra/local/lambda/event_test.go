package lambda_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/lambda"
)

func (f *fixture) event(t *testing.T, c command) error {
	t.Helper()
	payload, err := json.Marshal(c)
	require.NoError(t, err)
	return f.InvokeEvent("F", payload)
}

func TestAnEventDoesNotWaitForTheFunction(t *testing.T) {
	t.Parallel()
	f := start(t, lambda.Function{})
	path := filepath.Join(t.TempDir(), "end")
	require.NoError(t, f.event(t, command{Do: "wait", Path: path}))
	eventually(t, func() bool { return f.stats().Invocations == 0 && f.stats().Processes == 1 }, "it runs")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	eventually(t, func() bool { return f.stats().Invocations == 1 }, "it ends")
}

func TestAnEventThatFailsIsTriedTwiceMore(t *testing.T) {
	t.Parallel()
	f := start(t, atMost(1), func(c *lambda.Config) { c.EventRetry = time.Millisecond })
	require.NoError(t, f.event(t, command{Do: "error", Value: "no luck"}))
	eventually(t, func() bool { return f.stats().Errors == 3 }, "three calls")
	require.NoError(t, f.event(t, command{Do: "echo"}))
	eventually(t, func() bool { return f.stats().Invocations == 4 }, "and no more")
}

func TestEventsThatCannotBe(t *testing.T) {
	t.Parallel()
	f := start(t, atMost(1))
	require.ErrorIs(t, f.InvokeEvent("G", nil), lambda.ErrUnknownFunction)
	require.ErrorIs(t, f.InvokeEvent("F", make([]byte, 1<<20+1)), lambda.ErrRequestTooLarge)
	path := filepath.Join(t.TempDir(), "end")
	for i := range 1000 {
		require.NoError(t, f.event(t, command{Do: "wait", Path: path}), fmt.Sprint(i))
	}
	require.ErrorIs(t, f.event(t, command{Do: "echo"}), lambda.ErrTooManyRequests)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	eventually(t, func() bool { return f.event(t, command{Do: "echo"}) == nil }, "there is room again")
	require.NoError(t, f.Close(t.Context()))
	require.ErrorIs(t, f.event(t, command{Do: "echo"}), lambda.ErrClosed)
}
