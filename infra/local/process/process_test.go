package process_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/inorder-im/inorder/infra/local/process"
)

const (
	// parentEnv makes the test binary a parent of children, for a test to kill.
	parentEnv = "PROCESS_TEST_PARENT"

	// family is a shell with a child of its own; both live until killed.
	family = "sleep 1000 & wait"

	deadline = time.Minute
)

func TestMain(m *testing.M) {
	// Else every process that ends under the race detector sleeps a second.
	check(os.Setenv("GORACE", "atexit_sleep_ms=0"))
	if scripts := os.Getenv(parentEnv); scripts != "" {
		runParent(strings.Split(scripts, "\n"))
	}
	goleak.VerifyTestMain(m)
}

// runParent starts one child per script, writes its own reaper's pid and
// "ready", and stays. Every child inherits file descriptor 3, so the test sees
// the end of that pipe only when the last of them is gone.
func runParent(scripts []string) {
	reaper, err := process.StartReaper()
	check(err)
	lifeline := os.NewFile(3, "lifeline")
	for _, script := range scripts {
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.ExtraFiles = []*os.File{lifeline}
		_, err := reaper.Start(cmd)
		check(err)
	}
	fmt.Println("ready", process.ReaperPid(reaper))
	select {}
}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// parent is a process under test and the pipe that its children hold open.
type parent struct {
	cmd       *exec.Cmd
	lifeline  *os.File
	reaperPid int
}

func startParent(t *testing.T, scripts ...string) *parent {
	t.Helper()
	lifeline, held, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = lifeline.Close() })
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), parentEnv+"="+strings.Join(scripts, "\n"))
	cmd.ExtraFiles = []*os.File{held}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	require.NoError(t, held.Close())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pid, isReady := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	require.True(t, isReady, line)
	reaperPid, err := strconv.Atoi(pid)
	require.NoError(t, err)
	return &parent{cmd: cmd, lifeline: lifeline, reaperPid: reaperPid}
}

// requireChildrenGone waits until no process holds the lifeline.
func (p *parent) requireChildrenGone(t *testing.T) {
	t.Helper()
	require.NoError(t, p.lifeline.SetReadDeadline(time.Now().Add(deadline)))
	_, err := p.lifeline.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "a child outlived its parent")
}

func newReaper(t *testing.T) *process.Reaper {
	t.Helper()
	reaper, err := process.StartReaper()
	require.NoError(t, err)
	t.Cleanup(func() { _ = reaper.Close() })
	return reaper
}

func shell(script string) *exec.Cmd { return exec.Command("/bin/sh", "-c", script) }

// startWithOutput returns a lifeline of the child too: it ends when the child
// and its descendants have.
func startWithOutput(t *testing.T, reaper *process.Reaper, cmd *exec.Cmd) (*process.Process, *bufio.Reader) {
	t.Helper()
	out, in, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { _ = out.Close() })
	require.NoError(t, out.SetReadDeadline(time.Now().Add(deadline)))
	cmd.Stdout = in
	p, err := reaper.Start(cmd)
	require.NoError(t, err)
	require.NoError(t, in.Close())
	return p, bufio.NewReader(out)
}

func requireLine(t *testing.T, out *bufio.Reader, want string) {
	t.Helper()
	line, err := out.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, want+"\n", line)
}

func requireEnd(t *testing.T, out *bufio.Reader) {
	t.Helper()
	rest, err := io.ReadAll(out)
	require.NoError(t, err, "a descendant of the child lives on")
	require.Empty(t, rest)
}

func requireDone(t *testing.T, p *process.Process) {
	t.Helper()
	select {
	case <-p.Done():
	case <-time.After(deadline):
		require.Fail(t, "the child did not end")
	}
}

func TestChildrenDieWithTheirParent(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{
		"killed":      syscall.SIGKILL,
		"interrupted": syscall.SIGINT,
		"aborted":     syscall.SIGABRT,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startParent(t, family, family, "trap '' INT TERM HUP; "+family, "kill -STOP $$; "+family)
			require.NoError(t, p.cmd.Process.Signal(sig))
			p.requireChildrenGone(t)
		})
	}
}

func TestReaperOutlivesTheSignalsOfATerminal(t *testing.T) {
	t.Parallel()
	orphan := exec.Command("sleep", "1000")
	orphan.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	require.NoError(t, orphan.Start())
	t.Cleanup(func() { _ = orphan.Process.Kill() })
	reaper := process.ReaperCommand()
	notes, err := reaper.StdinPipe()
	require.NoError(t, err)
	out, err := reaper.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, reaper.Start())
	requireLine(t, bufio.NewReader(out), "ready")

	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		require.NoError(t, reaper.Process.Signal(sig))
	}
	// More notes than a pipe holds: the reaper has to read them after the
	// signals, and a dead one breaks the pipe.
	_, err = io.WriteString(notes, strings.Repeat("-999999\n", 1<<14))
	require.NoError(t, err)
	_, err = fmt.Fprintf(notes, "+%d\n", orphan.Process.Pid)
	require.NoError(t, err)
	require.NoError(t, notes.Close())
	require.NoError(t, reaper.Wait())
	require.EqualError(t, orphan.Wait(), "signal: killed")
}

func TestReaperIsNotInTheProcessGroupOfATerminal(t *testing.T) {
	t.Parallel()
	pid := process.ReaperPid(newReaper(t))
	group, err := syscall.Getpgid(pid)
	require.NoError(t, err)
	require.Equal(t, pid, group)
}

func TestReaperEndsWithThePipe(t *testing.T) {
	t.Parallel()
	first, left, gone, last := exec.Command("sleep", "1000"), exec.Command("sleep", "1000"), exec.Command("sleep", "1000"), exec.Command("sleep", "1000")
	for _, cmd := range []*exec.Cmd{first, left, gone, last} {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() })
	}
	reaper := process.ReaperCommand()
	notes := fmt.Sprintf("+%d\n+%d\n+%d\n-%[3]d\n-%[1]d\n-%[1]d\n+%[4]d\n+0\n+1\n+x\n\n", first.Process.Pid, left.Process.Pid, gone.Process.Pid, last.Process.Pid)
	reaper.Stdin = strings.NewReader(notes)
	require.NoError(t, reaper.Run())

	for _, cmd := range []*exec.Cmd{left, last} {
		require.EqualError(t, cmd.Wait(), "signal: killed")
	}
	for _, cmd := range []*exec.Cmd{first, gone} {
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		require.EqualError(t, cmd.Wait(), "signal: terminated", "the reaper killed a child that it was told is gone")
	}
}

func TestWaitTellsHowTheChildEnded(t *testing.T) {
	t.Parallel()
	reaper := newReaper(t)
	for script, want := range map[string]string{"exit 0": "", "exit 3": "exit status 3", "kill -9 $$": "signal: killed"} {
		p, err := reaper.Start(shell(script))
		require.NoError(t, err)
		requireDone(t, p)
		if want == "" {
			require.NoError(t, p.Wait())
		} else {
			require.EqualError(t, p.Wait(), want)
		}
		require.NoError(t, p.Kill(), "killing a child that has ended")
		p.Stop(time.Hour)
	}
}

func TestDescendantsEndWithTheChild(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*process.Process) error{
		"by itself": func(*process.Process) error { return nil },
		"killed":    (*process.Process).Kill,
		"stopped":   func(p *process.Process) error { p.Stop(deadline); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			script := "sleep 1000 & echo up"
			if name != "by itself" {
				script += "; wait"
			}
			p, out := startWithOutput(t, newReaper(t), shell(script))
			requireLine(t, out, "up")
			require.NoError(t, end(p))
			requireDone(t, p)
			requireEnd(t, out)
		})
	}
}

func TestStopKillsAChildThatWillNotEnd(t *testing.T) {
	t.Parallel()
	p, out := startWithOutput(t, newReaper(t), shell("trap 'echo no' TERM; echo up; while :; do sleep 0.01; done"))
	requireLine(t, out, "up")
	p.Stop(100 * time.Millisecond)
	require.EqualError(t, p.Wait(), "signal: killed")
}

func TestStopLetsAChildEndByItself(t *testing.T) {
	t.Parallel()
	p, out := startWithOutput(t, newReaper(t), shell("trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.01; done"))
	requireLine(t, out, "up")
	p.Stop(deadline)
	requireLine(t, out, "bye")
	require.EqualError(t, p.Wait(), "exit status 5")
}

func TestAFrozenChild(t *testing.T) {
	t.Parallel()
	const script = "trap 'echo bye; exit 5' TERM; echo up; while read -r line; do echo $line; done"
	for name, test := range map[string]struct {
		end  func(r *process.Reaper, p *process.Process)
		want string
	}{
		"is killed":                {func(_ *process.Reaper, p *process.Process) { _ = p.Kill() }, "signal: killed"},
		"ends with the reaper":     {func(r *process.Reaper, _ *process.Process) { _ = r.Close() }, "signal: killed"},
		"hears that it should end": {func(_ *process.Reaper, p *process.Process) { p.Stop(deadline) }, "exit status 5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reaper, cmd := newReaper(t), shell(script)
			input, err := cmd.StdinPipe()
			require.NoError(t, err)
			p, out := startWithOutput(t, reaper, cmd)
			requireLine(t, out, "up")
			for range 3 {
				require.NoError(t, p.Freeze())
				require.Eventually(t, func() bool { return stateOf(t, p.Pid()) == 'T' }, deadline, time.Millisecond)
				_, err = io.WriteString(input, "asked\n")
				require.NoError(t, err)
				require.Equal(t, 'T', stateOf(t, p.Pid()))
				require.NoError(t, p.Thaw())
				requireLine(t, out, "asked")
			}
			require.NoError(t, p.Freeze())
			test.end(reaper, p)
			requireDone(t, p)
			require.EqualError(t, p.Wait(), test.want)
			require.NoError(t, p.Freeze(), "one that has ended")
			require.NoError(t, p.Thaw())
		})
	}
}

// stateOf is the first letter of what ps says of a process: T is stopped.
func stateOf(t *testing.T, pid int) rune {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), "ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	require.NoError(t, err)
	return rune(strings.TrimSpace(string(said))[0])
}

func TestOutputHeldOpenByADescendantDoesNotBlockWait(t *testing.T) {
	t.Parallel()
	cmd := shell("sleep 1000 & exit 0")
	cmd.Stdout = &strings.Builder{} // not a file: os/exec copies through a pipe
	p, err := newReaper(t).Start(cmd)
	require.NoError(t, err)
	requireDone(t, p)
	require.ErrorIs(t, p.Wait(), exec.ErrWaitDelay)
}

func TestCloseKillsWhatIsLeft(t *testing.T) {
	t.Parallel()
	reaper := newReaper(t)
	p, out := startWithOutput(t, reaper, shell("echo up; "+family))
	requireLine(t, out, "up")
	require.NoError(t, reaper.Close())
	require.EqualError(t, p.Wait(), "signal: killed")
	requireEnd(t, out)
	require.NoError(t, reaper.Close(), "closing twice")

	_, err := reaper.Start(shell("exit 0"))
	require.ErrorIs(t, err, process.ErrClosed)
}

func TestStartNamesTheProgramThatCannotRun(t *testing.T) {
	t.Parallel()
	missing := t.TempDir() + "/missing"
	_, err := newReaper(t).Start(exec.Command(missing))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.ErrorContains(t, err, missing)
}

func TestNothingStartsUnguarded(t *testing.T) {
	t.Parallel()
	reaper := newReaper(t)
	require.NoError(t, syscall.Kill(process.ReaperPid(reaper), syscall.SIGKILL))

	// The pipe breaks when the kernel has closed the reaper's end.
	var cmd *exec.Cmd
	require.Eventually(t, func() bool {
		cmd = exec.Command("sleep", "1000")
		p, err := reaper.Start(cmd)
		if err == nil {
			_ = p.Kill()
			<-p.Done()
			return false
		}
		require.ErrorContains(t, err, "restart this program")
		return true
	}, deadline, time.Millisecond)
	require.NotNil(t, cmd.ProcessState, "the unguarded child was not reaped")
	require.Error(t, reaper.Close())
}
