package process_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The parent-death signal alone must do for a child that the reaper never
// heard of; here it lost its reaper.
func TestChildrenDieWithTheirParentEvenWithoutReaper(t *testing.T) {
	t.Parallel()
	p := startParent(t, "exec sleep 1000", "exec sleep 1000")
	require.NoError(t, syscall.Kill(p.reaperPid, syscall.SIGKILL))
	require.NoError(t, p.cmd.Process.Kill())
	p.requireChildrenGone(t)
}

// A child must not die with the thread of the goroutine that asked for it.
func TestChildOutlivesTheThreadThatAskedForIt(t *testing.T) {
	t.Parallel()
	reaper := newReaper(t)
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, stdout, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = out.Close() })
	cmd.Stdout = stdout

	started, thread := make(chan error, 1), make(chan int, 1)
	var onDyingThread func()
	onDyingThread = func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if syscall.Gettid() == os.Getpid() {
			// Go never ends the main thread: keep it busy while another asks.
			asked := make(chan struct{})
			go func() { defer close(asked); onDyingThread() }()
			<-asked
			return
		}
		thread <- syscall.Gettid()
		_, err := reaper.Start(cmd)
		started <- err
	}
	go onDyingThread()
	require.NoError(t, <-started)
	require.NoError(t, stdout.Close())
	task := fmt.Sprintf("/proc/self/task/%d", <-thread)
	require.Eventually(t, func() bool {
		_, err := os.Stat(task)
		return os.IsNotExist(err)
	}, deadline, time.Millisecond, "the thread should end")

	_, err = fmt.Fprintln(in, "alive")
	require.NoError(t, err)
	requireLine(t, bufio.NewReader(out), "alive")
}
