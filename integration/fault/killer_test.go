package fault_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/integration/fault"
)

func needLinux(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("this needs /proc")
	}
}

// startIdle starts this program under the name that a function's process has.
func startIdle(t *testing.T, dir, function string) *exec.Cmd {
	t.Helper()
	program := filepath.Join(dir, function, "bootstrap")
	require.NoError(t, os.MkdirAll(filepath.Dir(program), 0o755))
	self, err := os.Executable()
	require.NoError(t, err)
	if err := os.Link(self, program); err != nil && !errors.Is(err, os.ErrExist) {
		copyFile(t, self, program)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), idle+"=1")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	return cmd
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	require.NoError(t, err)
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	require.NoError(t, err)
	_, err = io.Copy(out, in)
	require.NoError(t, errors.Join(err, out.Close()))
}

func TestKill(t *testing.T) {
	t.Parallel()
	needLinux(t)
	dir := t.TempDir()
	victims := []*exec.Cmd{startIdle(t, dir, "SendFunction"), startIdle(t, dir, "SendFunction"), startIdle(t, dir, "FanoutFunction")}
	spared := startIdle(t, dir, "SyncFunction")
	plan := newPlan(t, fault.Faults{fault.Kill: {Rate: 0.5, UpTo: 5 * time.Millisecond}})
	killer, err := fault.NewKiller(plan, os.Getpid(), "SendFunction", "FanoutFunction")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		killer.Run(ctx)
	}()
	for _, v := range victims {
		_ = v.Wait()
		require.Equal(t, syscall.SIGKILL, v.ProcessState.Sys().(syscall.WaitStatus).Signal())
	}
	cancel()
	<-done
	require.Equal(t, map[fault.Kind]int{fault.KillOf("SendFunction"): 2, fault.KillOf("FanoutFunction"): 1}, plan.Counts())
	require.NoError(t, spared.Process.Signal(syscall.Signal(0)), "the others live")
}
