package lambda_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/inorder-im/inorder/infra/local/lambda"
	"github.com/inorder-im/inorder/infra/local/process"
	"github.com/inorder-im/inorder/infra/local/template"
)

const (
	deadline = time.Minute
	tick     = time.Millisecond
)

// buildDir has bootstrap, built once for all tests.
var buildDir string

func TestMain(m *testing.M) {
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	// What a developer may have set, and no function may see.
	must(os.Setenv("AWS_SECRET_ACCESS_KEY", "of the developer"))
	must(os.Setenv("AWS_PROFILE", "of the developer"))
	// Else every process that ends under the race detector sleeps a second.
	must(os.Setenv("GORACE", "atexit_sleep_ms=0"))

	dir, err := os.MkdirTemp("", "lambda-test")
	must(err)
	defer func() { _ = os.RemoveAll(dir) }()
	buildDir = dir
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "bootstrap"), "./testdata/function")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		log.Printf("building the test function: %v\n%s", err, out)
		return 1
	}
	code := m.Run()
	if err := goleak.Find(); err != nil && code == 0 {
		log.Print(err)
		return 1
	}
	return code
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// fixture is a service with one function, "F".
type fixture struct {
	*lambda.Service
	mu    sync.Mutex
	lines []string
}

// atMost is a function that has that many processes.
func atMost(n int) lambda.Function {
	return lambda.Function{Function: template.Function{ReservedConcurrency: n}}
}

func start(t testing.TB, fn lambda.Function, change ...func(*lambda.Config)) *fixture {
	t.Helper()
	reaper, err := process.StartReaper()
	require.NoError(t, err)
	f := &fixture{}
	fn.LogicalID = "F"
	if fn.Name == "" {
		fn.Name, fn.ARN, fn.MemoryMB = "F", "arn:aws:lambda:eu-north-1:000000000000:function:F", 128
	}
	if fn.Dir == "" {
		fn.Dir = buildDir
	}
	if fn.Timeout == 0 {
		fn.Timeout = time.Minute
	}
	cfg := lambda.Config{Functions: []lambda.Function{fn}, Region: "eu-north-1", Reaper: reaper, Output: f.note}
	for _, c := range change {
		c(&cfg)
	}
	f.Service, err = lambda.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = f.Close(ctx)
		require.NoError(t, reaper.Close())
		s := f.Stats()[0]
		require.Zero(t, s.Processes+s.Idle+s.Waiting)
	})
	return f
}

func (f *fixture) note(function, line string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lines = append(f.lines, function+": "+line)
}

func (f *fixture) output() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.lines)
}

func (f *fixture) stats() lambda.Stats { return f.Stats()[0] }

type command struct {
	Do    string
	Value string `json:",omitempty"`
	Path  string `json:",omitempty"`
	N     int    `json:",omitempty"`
}

type answer struct {
	Pid      int
	Value    string
	Env      []string
	Context  *lambdacontext.LambdaContext
	Deadline time.Time
	TraceID  string
}

type failure struct {
	ErrorType    string `json:"errorType"`
	ErrorMessage string `json:"errorMessage"`
}

func (f *fixture) do(ctx context.Context, c command) ([]byte, string, error) {
	payload, err := json.Marshal(c)
	if err != nil {
		return nil, "", err
	}
	return f.Invoke(ctx, "F", payload)
}

func (f *fixture) succeed(t testing.TB, c command) answer {
	t.Helper()
	payload, functionError, err := f.do(context.Background(), c)
	require.NoError(t, err)
	require.Empty(t, functionError, string(payload))
	var a answer
	require.NoError(t, json.Unmarshal(payload, &a))
	return a
}

func (f *fixture) fail(t testing.TB, c command) failure {
	t.Helper()
	payload, functionError, err := f.do(context.Background(), c)
	require.NoError(t, err)
	require.Equal(t, "Unhandled", functionError, string(payload))
	var e failure
	require.NoError(t, json.Unmarshal(payload, &e), string(payload))
	return e
}

// text invokes with no command and returns the raw answer.
func (f *fixture) text(t testing.TB) string {
	t.Helper()
	payload, functionError, err := f.Invoke(context.Background(), "F", []byte("{}"))
	require.NoError(t, err)
	require.Empty(t, functionError, string(payload))
	return string(payload)
}

func eventually(t testing.TB, condition func() bool, why string) {
	t.Helper()
	require.Eventually(t, condition, deadline, tick, why)
}

// call is an invocation under way that ends when it is told to.
type call struct {
	path   string
	result chan outcome
}

type outcome struct {
	payload       []byte
	functionError string
	err           error
}

func (f *fixture) startWaiting(ctx context.Context, t testing.TB) *call {
	t.Helper()
	c := &call{path: filepath.Join(t.TempDir(), "end"), result: make(chan outcome, 1)}
	go func() {
		var o outcome
		o.payload, o.functionError, o.err = f.do(ctx, command{Do: "wait", Path: c.path})
		c.result <- o
	}()
	return c
}

// pid waits until the function has begun.
func (c *call) pid(t testing.TB) int {
	t.Helper()
	pid := 0
	eventually(t, func() bool {
		text, err := os.ReadFile(c.path + ".begun")
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(string(text))
		return err == nil
	}, "the function should begin")
	return pid
}

func (c *call) end(t testing.TB) {
	t.Helper()
	require.NoError(t, os.WriteFile(c.path, nil, 0o600))
}

func (c *call) wait(t testing.TB) outcome {
	t.Helper()
	select {
	case o := <-c.result:
		return o
	case <-time.After(deadline):
		require.Fail(t, "the call does not end")
		return outcome{}
	}
}

// requireGone checks that a process has been reaped: its id is free.
func requireGone(t testing.TB, pid int) {
	t.Helper()
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
}

func TestOneProcessServesCallsInSequence(t *testing.T) {
	t.Parallel()
	f := start(t, lambda.Function{})
	first := f.succeed(t, command{Do: "echo", Value: "0"})
	for i := range 50 {
		value := strconv.Itoa(i)
		require.Equal(t, answer{Pid: first.Pid, Value: value}, f.succeed(t, command{Do: "echo", Value: value}))
	}
	require.Equal(t, lambda.Stats{Name: "F", Processes: 1, Idle: 1, Starts: 1, Invocations: 51}, f.stats())
}

func TestErrorOfTheHandlerKeepsTheProcess(t *testing.T) {
	t.Parallel()
	f := start(t, lambda.Function{})
	pid := f.succeed(t, command{Do: "echo"}).Pid
	require.Equal(t, failure{ErrorType: "errorString", ErrorMessage: "no luck"}, f.fail(t, command{Do: "error", Value: "no luck"}))
	require.Equal(t, pid, f.succeed(t, command{Do: "echo"}).Pid)
	s := f.stats()
	require.Equal(t, []int{1, 3, 1, 0}, []int{s.Starts, s.Invocations, s.Errors, s.Crashes})
}

// Whoever waits for what a function writes is told before the caller has the answer,
// also of an invocation that failed.
func TestAnsweredIsToldFirst(t *testing.T) {
	t.Parallel()
	var told atomic.Int32
	f := start(t, lambda.Function{}, func(c *lambda.Config) { c.Answered = func(string) { told.Add(1) } })
	for i := range int32(10) {
		f.succeed(t, command{Do: "echo"})
		require.Equal(t, 2*i+1, told.Load())
		f.fail(t, command{Do: "panic", Value: "oh no"})
		require.Equal(t, 2*i+2, told.Load())
	}
}

func TestPanicFailsOneCallOnly(t *testing.T) {
	t.Parallel()
	f := start(t, atMost(1))
	for range 10 {
		before := f.succeed(t, command{Do: "echo"}).Pid
		require.Equal(t, failure{ErrorType: "string", ErrorMessage: "oh no"}, f.fail(t, command{Do: "panic", Value: "oh no"}))
		require.NotEqual(t, before, f.succeed(t, command{Do: "echo"}).Pid)
	}
	s := f.stats()
	require.Equal(t, []int{11, 30, 10}, []int{s.Starts, s.Invocations, s.Errors})
}

func TestLongErrorsArePassedOn(t *testing.T) {
	t.Parallel()
	f := start(t, lambda.Function{})
	// aws-lambda-go repeats it in a header.
	long := strings.Repeat("x", 1000<<10)
	require.Equal(t, long, f.fail(t, command{Do: "error", Value: long}).ErrorMessage)
}

func TestProcessThatEndsUnanswered(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]string{
		2: "Error: Runtime exited with error: exit status 2",
		0: "Error: Runtime exited without providing a reason",
	} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			t.Parallel()
			f := start(t, lambda.Function{})
			e := f.fail(t, command{Do: "exit", N: code})
			require.Equal(t, "Runtime.ExitError", e.ErrorType)
			require.Regexp(t, "^RequestId: [0-9a-f-]{36} "+want+"$", e.ErrorMessage)
			require.Contains(t, f.output(), "F: "+e.ErrorMessage+" Runtime.ExitError")
			f.succeed(t, command{Do: "echo"})
			s := f.stats()
			require.Equal(t, []int{2, 2, 1, 1}, []int{s.Starts, s.Invocations, s.Errors, s.Crashes})
		})
	}
}

func TestKillInFlight(t *testing.T) {
	t.Parallel()
	f := start(t, lambda.Function{})
	c := f.startWaiting(context.Background(), t)
	require.NoError(t, syscall.Kill(c.pid(t), syscall.SIGKILL))
	o := c.wait(t)
	require.NoError(t, o.err)
	require.Equal(t, "Unhandled", o.functionError)
	require.Contains(t, string(o.payload), `"errorType":"Runtime.ExitError"`)
	require.Contains(t, string(o.payload), "Error: Runtime exited with error: signal: killed")
	f.succeed(t, command{Do: "echo"})
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	f := start(t, lambda.Function{Function: template.Function{Timeout: 500 * time.Millisecond, ReservedConcurrency: 1}})
	before := f.succeed(t, command{Do: "echo"}).Pid
	e := f.fail(t, command{Do: "sleep"})
	require.Equal(t, "Sandbox.Timedout", e.ErrorType)
	require.Regexp(t, "^RequestId: [0-9a-f-]{36} Error: Task timed out after 0.50 seconds$", e.ErrorMessage)
	require.Equal(t, []string{"F: " + e.ErrorMessage + " Sandbox.Timedout"}, f.output())
	require.NotEqual(t, before, f.succeed(t, command{Do: "echo"}).Pid)
	requireGone(t, before)
	s := f.stats()
	require.Equal(t, []int{2, 3, 1, 1, 0}, []int{s.Starts, s.Invocations, s.Errors, s.Timeouts, s.Crashes})
}

func TestConcurrencyIsLimited(t *testing.T) {
	t.Parallel()
	f := start(t, atMost(3), func(c *lambda.Config) { c.QueueWait = 20 * time.Millisecond })
	calls := make([]*call, 3)
	pids := make(map[int]bool)
	for i := range calls {
		calls[i] = f.startWaiting(context.Background(), t)
		pids[calls[i].pid(t)] = true
	}
	require.Len(t, pids, 3, "one invocation at a time per process")

	_, _, err := f.do(context.Background(), command{Do: "echo"})
	require.ErrorIs(t, err, lambda.ErrTooManyRequests)
	require.ErrorContains(t, err, "invoking F: too many requests: all 3 processes stayed busy for 20ms")

	for _, c := range calls {
		c.end(t)
		require.Empty(t, c.wait(t).functionError)
	}
	eventually(t, func() bool { return f.stats().Idle == 3 }, "all processes should be free again")
	require.True(t, pids[f.succeed(t, command{Do: "echo"}).Pid])
	s := f.stats()
	require.Equal(t, []int{3, 3, 3, 0, 4}, []int{s.Processes, s.Idle, s.Starts, s.Waiting, s.Invocations})
}

func TestMostRecentlyUsedProcessGoesFirst(t *testing.T) {
	t.Parallel()
	f := start(t, lambda.Function{})
	a, b := f.startWaiting(context.Background(), t), f.startWaiting(context.Background(), t)
	pid := a.pid(t)
	b.pid(t)
	b.end(t)
	b.wait(t)
	a.end(t)
	a.wait(t)
	for range 5 {
		require.Equal(t, pid, f.succeed(t, command{Do: "echo"}).Pid)
	}
}

func TestQueueIsServedInOrder(t *testing.T) {
	t.Parallel()
	f := start(t, atMost(1), func(c *lambda.Config) { c.QueueWait = deadline })
	holder := f.startWaiting(context.Background(), t)
	holder.pid(t)
	var calls sync.WaitGroup
	var want []string
	for i := range 5 {
		want = append(want, fmt.Sprintf("F: %d", i))
		calls.Go(func() {
			if _, _, err := f.do(context.Background(), command{Do: "print", Value: fmt.Sprintln(i)}); err != nil {
				t.Error(err)
			}
		})
		eventually(t, func() bool { return f.stats().Waiting == i+1 }, "the call should wait")
	}
	holder.end(t)
	calls.Wait()
	eventually(t, func() bool { return len(f.output()) == 5 }, "all calls should print")
	require.Equal(t, want, f.output())
}

// The place of a process that ends goes to the first in the queue as well.
func TestQueueGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	f := start(t, atMost(1), func(c *lambda.Config) { c.QueueWait = deadline })
	holder := f.startWaiting(context.Background(), t)
	pid := holder.pid(t)
	next := f.startWaiting(context.Background(), t)
	eventually(t, func() bool { return f.stats().Waiting == 1 }, "the call should wait")
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.Equal(t, "Unhandled", holder.wait(t).functionError)
	next.pid(t)
	next.end(t)
	require.Empty(t, next.wait(t).functionError)
}

func TestCallerThatGoesAway(t *testing.T) {
	t.Parallel()
	f := start(t, atMost(1))
	ctx, cancel := context.WithCancel(context.Background())
	c := f.startWaiting(ctx, t)
	pid := c.pid(t)

	short, cancelShort := context.WithTimeout(context.Background(), tick)
	defer cancelShort()
	_, _, err := f.do(short, command{Do: "echo"})
	require.ErrorIs(t, err, lambda.ErrTooManyRequests, "in the queue")
	require.ErrorIs(t, err, context.DeadlineExceeded)

	cancel()
	require.ErrorIs(t, c.wait(t).err, context.Canceled)
	require.Zero(t, f.stats().Idle, "the invocation should go on")
	c.end(t)
	require.Equal(t, pid, f.succeed(t, command{Do: "echo"}).Pid)
	require.Equal(t, 2, f.stats().Invocations)

	_, _, err = f.do(ctx, command{Do: "echo"})
	require.ErrorIs(t, err, context.Canceled, "gone before the call")
	require.Equal(t, 2, f.stats().Invocations)
}

func TestIdleProcessesEnd(t *testing.T) {
	t.Parallel()
	f := start(t, lambda.Function{}, func(c *lambda.Config) { c.IdleAfter = 50 * time.Millisecond })
	busy := f.startWaiting(context.Background(), t)
	busyPid := busy.pid(t)
	pid := f.succeed(t, command{Do: "echo"}).Pid
	eventually(t, func() bool { return f.stats().Processes == 1 }, "the idle process should end")
	requireGone(t, pid)
	require.NoError(t, syscall.Kill(busyPid, 0), "a busy process should stay")
	busy.end(t)
	require.Empty(t, busy.wait(t).functionError)
	eventually(t, func() bool { return f.stats().Processes == 0 }, "the idle process should end")

	f.succeed(t, command{Do: "echo"})
	s := f.stats()
	require.Equal(t, []int{3, 0, 0}, []int{s.Starts, s.Errors, s.Crashes})
}

func TestIdleProcessThatDiesIsReplaced(t *testing.T) {
	t.Parallel()
	f := start(t, lambda.Function{})
	pid := f.succeed(t, command{Do: "echo"}).Pid
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	eventually(t, func() bool { return f.stats().Processes == 0 }, "the dead process should be noticed")
	f.succeed(t, command{Do: "echo"})
	require.Zero(t, f.stats().Errors)
}

// The invocation has been given to a process that ends without fetching it.
func TestInvocationThatNoProcessSawGoesToAnother(t *testing.T) {
	t.Parallel()
	marker := filepath.Join(t.TempDir(), "marker")
	f := start(t, lambda.Function{Debug: true, Env: map[string]string{"RAW": "lose-poll", "MARKER": marker}})
	require.JSONEq(t, `"first process"`, f.text(t))
	eventually(t, func() bool { return slices.Contains(f.output(), "F: lost") }, "the process should stop asking")
	second := make(chan outcome, 1)
	go func() {
		var o outcome
		o.payload, o.functionError, o.err = f.Invoke(context.Background(), "F", nil)
		second <- o
	}()
	eventually(t, func() bool { return f.stats().Idle == 0 }, "the invocation should be under way")
	require.NoError(t, os.WriteFile(marker+".end", nil, 0o600))
	require.Equal(t, outcome{payload: []byte(`"second process"`)}, <-second)
	s := f.stats()
	require.Equal(t, []int{2, 2, 0}, []int{s.Starts, s.Invocations, s.Crashes})
}

// What a function leaves running in the background stands still from its answer to the
// next call, and goes on then.
func TestIdleProcessesAreFrozen(t *testing.T) {
	t.Parallel()
	f := start(t, lambda.Function{})
	path := filepath.Join(t.TempDir(), "count")
	pid := f.succeed(t, command{Do: "count", Path: path}).Pid
	for range 3 {
		eventually(t, func() bool { return stateOf(t, pid) == 'T' }, "it is frozen")
		frozen := sizeOf(t, path)
		require.Equal(t, pid, f.succeed(t, command{Do: "until", Path: path, N: frozen + 10}).Pid)
		require.GreaterOrEqual(t, sizeOf(t, path), frozen+10, "it goes on")
	}
	eventually(t, func() bool { return f.stats().Idle == 1 }, "it has no work")
	s := f.stats()
	require.Equal(t, []int{1, 4, 0}, []int{s.Starts, s.Invocations, s.Errors})
}

// A call that finds no process free goes to the first that is, without a stop between.
func TestAProcessThatIsWaitedForIsNotFrozen(t *testing.T) {
	t.Parallel()
	f := start(t, atMost(1), func(c *lambda.Config) { c.QueueWait = deadline })
	first := f.startWaiting(context.Background(), t)
	pid := first.pid(t)
	second := f.startWaiting(context.Background(), t)
	eventually(t, func() bool { return f.stats().Waiting == 1 }, "the second call should wait")
	first.end(t)
	require.Empty(t, first.wait(t).functionError)
	require.Equal(t, pid, second.pid(t))
	require.NotEqual(t, 'T', stateOf(t, pid))
	second.end(t)
	require.Empty(t, second.wait(t).functionError)
	eventually(t, func() bool { return stateOf(t, pid) == 'T' }, "it is frozen now")
}

func TestAFunctionThatIsDebuggedIsNotFrozen(t *testing.T) {
	t.Parallel()
	f := start(t, lambda.Function{Debug: true})
	path := filepath.Join(t.TempDir(), "count")
	f.succeed(t, command{Do: "count", Path: path})
	eventually(t, func() bool { return f.stats().Idle == 1 }, "it has no work")
	before := sizeOf(t, path)
	eventually(t, func() bool { return sizeOf(t, path) > before+10 }, "it counts on")
}

// A frozen process ends like any other: by its age, with the service, with the last of its
// output.
func TestAFrozenProcessEnds(t *testing.T) {
	t.Parallel()
	f := start(t, lambda.Function{}, func(c *lambda.Config) { c.IdleAfter = time.Hour })
	pid := f.succeed(t, command{Do: "print", Value: "last words"}).Pid
	eventually(t, func() bool { return stateOf(t, pid) == 'T' }, "it is frozen")
	require.NoError(t, f.Close(t.Context()))
	requireGone(t, pid)
	require.Equal(t, []string{"F: last words"}, f.output())
}

func sizeOf(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	return int(info.Size())
}

// stateOf is the first letter of what ps says of a process: T is stopped.
func stateOf(t *testing.T, pid int) rune {
	t.Helper()
	said, err := exec.CommandContext(t.Context(), "ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	require.NoError(t, err)
	return rune(strings.TrimSpace(string(said))[0])
}

func TestProcessThatEndsLongAfterItsAnswer(t *testing.T) {
	t.Parallel()
	f := start(t, lambda.Function{Env: map[string]string{"RAW": "linger"}})
	for range 3 {
		require.JSONEq(t, `"lingering"`, f.text(t))
	}
	require.Equal(t, 3, f.stats().Starts)
}

func TestProcessThatIsSlowToAskForMore(t *testing.T) {
	t.Parallel()
	f := start(t, lambda.Function{Function: template.Function{ReservedConcurrency: 1}, Env: map[string]string{"RAW": "slow-return"}})
	pid := f.text(t)
	require.Zero(t, f.stats().Idle, "the answer should not wait for the next request")
	require.Equal(t, pid, f.text(t))
}

func TestProcessThatFailsToStart(t *testing.T) {
	t.Parallel()
	garbage := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(garbage, "bootstrap"), []byte{0x7f, 'E', 'L', 'F', 0}, 0o700))
	for name, test := range map[string]struct {
		fn            lambda.Function
		initTimeout   time.Duration
		errorType     string
		message       string
		starts, crash int
	}{
		"it exits": {
			fn:        lambda.Function{Env: map[string]string{"INIT": "exit"}},
			errorType: "Runtime.ExitError", message: "Error: Runtime exited with error: exit status 1", starts: 1, crash: 1,
		},
		"it hangs": {
			fn: lambda.Function{Env: map[string]string{"INIT": "hang"}}, initTimeout: 200 * time.Millisecond,
			errorType: "Sandbox.Timedout", message: "Error: Init timed out after 0.20 seconds", starts: 1,
		},
		"it says why": {
			fn:        lambda.Function{Env: map[string]string{"RAW": "init-error"}},
			errorType: "Mine.NoConfig", message: "no config", starts: 1,
		},
		"it names the type and exits": {
			fn:        lambda.Function{Env: map[string]string{"RAW": "init-error-exit"}},
			errorType: "Mine.Empty", starts: 1,
		},
		"it is no program": {
			fn:        lambda.Function{Dir: garbage},
			errorType: "Runtime.InvalidEntrypoint", message: "exec format error",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.fn.ReservedConcurrency = 1
			f := start(t, test.fn, func(c *lambda.Config) { c.InitTimeout = test.initTimeout })
			for i := 1; i <= 2; i++ {
				e := f.fail(t, command{Do: "echo"})
				require.Equal(t, test.errorType, e.ErrorType)
				require.Contains(t, e.ErrorMessage, test.message)
				require.Equal(t, i*test.starts, f.stats().Starts, "one attempt per call")
			}
			s := f.stats()
			require.Equal(t, []int{2, 2}, []int{s.Invocations, s.Errors})
			if test.crash > 0 {
				require.Equal(t, 2, s.Crashes)
			}
		})
	}
}

func TestCloseLetsCallsFinish(t *testing.T) {
	t.Parallel()
	f := start(t, atMost(2))
	idle := f.startWaiting(context.Background(), t)
	idlePid := idle.pid(t)
	c := f.startWaiting(context.Background(), t)
	pid := c.pid(t)
	idle.end(t)
	idle.wait(t)

	closed := make(chan error, 1)
	go func() { closed <- f.Close(context.Background()) }()
	eventually(t, func() bool {
		_, _, err := f.do(context.Background(), command{Do: "echo"})
		return errors.Is(err, lambda.ErrClosed)
	}, "new calls should be refused")
	eventually(t, func() bool { return f.stats().Processes == 1 }, "the idle process should end")
	requireGone(t, idlePid)

	c.end(t)
	o := c.wait(t)
	require.NoError(t, o.err)
	require.Contains(t, string(o.payload), fmt.Sprintf(`"Pid":%d`, pid))
	require.NoError(t, <-closed)
	requireGone(t, pid)
	require.NoError(t, f.Close(context.Background()), "closing twice")
}

func TestCloseKillsWhatDoesNotFinish(t *testing.T) {
	t.Parallel()
	f := start(t, atMost(1), func(c *lambda.Config) { c.QueueWait = time.Minute })
	c := f.startWaiting(context.Background(), t)
	pid := c.pid(t)
	queued := f.startWaiting(context.Background(), t)
	eventually(t, func() bool { return f.stats().Waiting == 1 }, "the call should wait")

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	err := f.Close(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "1 processes were killed")
	requireGone(t, pid)
	require.ErrorIs(t, c.wait(t).err, lambda.ErrClosed)
	require.ErrorIs(t, queued.wait(t).err, lambda.ErrClosed)
}

func TestOutputIsForwardedByLine(t *testing.T) {
	t.Parallel()
	f := start(t, lambda.Function{})
	const limit = 256 << 10
	whole := strings.Repeat("w", limit)
	f.succeed(t, command{Do: "print", Value: "one\n\ntwo "})
	f.succeed(t, command{Do: "print-error", Value: "and a half\r\n"})
	f.succeed(t, command{Do: "print", Value: whole + "\n" + whole + "cut\n"})
	f.succeed(t, command{Do: "print", Value: "the end"})
	require.NoError(t, f.Close(context.Background()))
	require.Equal(t, []string{"F: one", "F: ", "F: two and a half\r", "F: " + whole, "F: " + whole, "F: cut", "F: the end"}, f.output())
}

func TestCloseDeliversAllOutput(t *testing.T) {
	t.Parallel()
	line, read := make(chan string), make(chan struct{})
	f := start(t, lambda.Function{}, func(c *lambda.Config) {
		c.Output = func(_, l string) { line <- l; <-read }
	})
	f.succeed(t, command{Do: "print", Value: "first\nlast"})
	require.Equal(t, "first", <-line)
	closed := make(chan error, 1)
	go func() { closed <- f.Close(context.Background()) }()
	eventually(t, func() bool { return f.stats().Processes == 0 }, "the process should end")
	read <- struct{}{}
	require.Equal(t, "last", <-line)
	select {
	case err := <-closed:
		require.Fail(t, "closed before the last line was delivered", "%v", err)
	default:
	}
	read <- struct{}{}
	require.NoError(t, <-closed)
}

func TestWhatAFunctionSees(t *testing.T) {
	t.Parallel()
	f := start(t, lambda.Function{
		Function: template.Function{
			Name: "stack-send", ARN: "arn:aws:lambda:eu-north-1:123456789012:function:stack-send",
			MemoryMB: 256, Handler: "main", Timeout: 30 * time.Second, Environment: map[string]string{"TABLE": "Messages"},
		},
		Env: map[string]string{"TABLE": "overridden", "TZ": "Europe/Oslo", "AWS_ACCESS_KEY_ID": "local", "AWS_LAMBDA_RUNTIME_API": "elsewhere:1"},
	})
	before := time.Now()
	a := f.succeed(t, command{Do: "context"})
	env := make(map[string]string)
	for _, entry := range a.Env {
		name, value, _ := strings.Cut(entry, "=")
		env[name] = value
	}
	require.Regexp(t, `^127\.0\.0\.1:\d+$`, env["AWS_LAMBDA_RUNTIME_API"])
	require.Regexp(t, `^\d{4}/\d\d/\d\d/\[\$LATEST\][0-9a-f]{32}$`, env["AWS_LAMBDA_LOG_STREAM_NAME"])
	require.Regexp(t, `^Root=1-[0-9a-f]{8}-[0-9a-f]{24};Parent=[0-9a-f]{16};Sampled=0$`, env["_X_AMZN_TRACE_ID"])
	for _, checked := range []string{"AWS_LAMBDA_RUNTIME_API", "AWS_LAMBDA_LOG_STREAM_NAME", "_X_AMZN_TRACE_ID"} {
		delete(env, checked)
	}
	require.Equal(t, map[string]string{
		"AWS_LAMBDA_FUNCTION_NAME":        "stack-send",
		"AWS_LAMBDA_FUNCTION_VERSION":     "$LATEST",
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
		"AWS_LAMBDA_INITIALIZATION_TYPE":  "on-demand",
		"AWS_LAMBDA_LOG_GROUP_NAME":       "/aws/lambda/stack-send",
		"AWS_EXECUTION_ENV":               "AWS_Lambda_provided.al2023",
		"AWS_REGION":                      "eu-north-1",
		"AWS_DEFAULT_REGION":              "eu-north-1",
		"_HANDLER":                        "main",
		"LAMBDA_TASK_ROOT":                buildDir,
		"LAMBDA_RUNTIME_DIR":              buildDir,
		"HOME":                            buildDir,
		"LANG":                            "en_US.UTF-8",
		"PATH":                            "/usr/local/bin:/usr/bin:/bin",
		"TMPDIR":                          "/tmp",
		"TZ":                              "Europe/Oslo",
		"TABLE":                           "Messages",
		"AWS_ACCESS_KEY_ID":               "local",
	}, env)

	require.Equal(t, "arn:aws:lambda:eu-north-1:123456789012:function:stack-send", a.Context.InvokedFunctionArn)
	require.Regexp(t, "^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$", a.Context.AwsRequestID)
	require.WithinRange(t, a.Deadline, before.Add(29*time.Second), time.Now().Add(30*time.Second))

	again := f.succeed(t, command{Do: "context"})
	require.NotEqual(t, a.Context.AwsRequestID, again.Context.AwsRequestID)
	require.NotEqual(t, a.TraceID, again.TraceID)
}

func TestLimitsOfSize(t *testing.T) {
	t.Parallel()
	f := start(t, lambda.Function{})
	const most = 6<<20 + 100
	payload, functionError, err := f.do(context.Background(), command{Do: "big", N: most})
	require.NoError(t, err)
	require.Empty(t, functionError)
	require.Len(t, payload, most)

	require.Equal(t, failure{
		ErrorType:    "Function.ResponseSizeTooLarge",
		ErrorMessage: "Response payload size exceeded maximum allowed payload size (6291556 bytes).",
	}, f.fail(t, command{Do: "big", N: most + 1}))
	f.succeed(t, command{Do: "echo"})

	_, _, err = f.Invoke(context.Background(), "F", make([]byte, 6<<20+1))
	require.ErrorIs(t, err, lambda.ErrRequestTooLarge)
	require.Equal(t, 3, f.stats().Invocations)
}

func TestStreamedAnswerThatBreaksOffIsAnError(t *testing.T) {
	t.Parallel()
	f := start(t, lambda.Function{})
	require.Equal(t, failure{ErrorType: "errorString", ErrorMessage: "the source dried up"}, f.fail(t, command{Do: "break-off"}))
}

func TestRuntimeThatBreaksTheRules(t *testing.T) {
	t.Parallel()
	f := start(t, lambda.Function{Env: map[string]string{"RAW": "protocol"}})
	require.JSONEq(t, `"first"`, f.text(t))
	// next while working; response to another id; init/error after the
	// start; response; a second response; an error after it; no such path; next.
	require.JSONEq(t, `[403, 400, 403, 202, 403, 403, 404, 200]`, strings.ReplaceAll(f.text(t), "\n", ""))
}

func TestErrorWithoutDocumentGetsItsTypeFromTheHeader(t *testing.T) {
	t.Parallel()
	f := start(t, lambda.Function{Env: map[string]string{"RAW": "error-header"}})
	require.Equal(t, failure{ErrorType: "Mine.Odd", ErrorMessage: "not JSON"}, f.fail(t, command{}))
}

func TestUnknownFunction(t *testing.T) {
	t.Parallel()
	f := start(t, lambda.Function{})
	_, _, err := f.Invoke(context.Background(), "G", nil)
	require.ErrorIs(t, err, lambda.ErrUnknownFunction)
	require.EqualError(t, err, `there is no function "G"`)
}

func TestNewRefusesWhatCannotRun(t *testing.T) {
	t.Parallel()
	reaper, err := process.StartReaper()
	require.NoError(t, err)
	defer func() { _ = reaper.Close() }()
	plain := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(plain, "bootstrap"), nil, 0o600))
	named := template.Function{LogicalID: "F"}
	good := lambda.Function{Function: named, Dir: buildDir}
	for want, cfg := range map[string]lambda.Config{
		"Reaper is missing":                {Functions: []lambda.Function{good}},
		`function "F" is configured twice`: {Reaper: reaper, Functions: []lambda.Function{good, good}},
		"function F is not built":          {Reaper: reaper, Functions: []lambda.Function{{Function: named, Dir: t.TempDir()}}},
		"bootstrap is not an executable":   {Reaper: reaper, Functions: []lambda.Function{{Function: named, Dir: plain}}},
	} {
		_, err := lambda.New(cfg)
		require.ErrorContains(t, err, want)
	}
}

func TestManyCallersAtOnce(t *testing.T) {
	t.Parallel()
	f := start(t, atMost(4), func(c *lambda.Config) { c.QueueWait = time.Minute })
	var callers sync.WaitGroup
	for caller := range 16 {
		callers.Go(func() {
			for i := range 20 {
				value := fmt.Sprintf("%d-%d", caller, i)
				if i%10 == 9 {
					e, functionError, err := f.do(context.Background(), command{Do: "panic", Value: value})
					if err != nil || functionError == "" || !strings.Contains(string(e), value) {
						t.Errorf("panic %s: %s %q %v", value, e, functionError, err)
					}
					continue
				}
				a, functionError, err := f.do(context.Background(), command{Do: "echo", Value: value})
				if err != nil || functionError != "" || !strings.Contains(string(a), `"`+value+`"`) {
					t.Errorf("echo %s: %s %q %v", value, a, functionError, err)
				}
			}
		})
	}
	callers.Wait()
	s := f.stats()
	require.Equal(t, []int{320, 32, 0}, []int{s.Invocations, s.Errors, s.Waiting})
	require.LessOrEqual(t, s.Processes, 4)
}

func BenchmarkWarm(b *testing.B) {
	for name, awake := range map[string]bool{"frozen": false, "awake": true} {
		b.Run(name, func(b *testing.B) {
			f := start(b, lambda.Function{Debug: awake})
			f.succeed(b, command{Do: "echo"})
			for b.Loop() {
				f.succeed(b, command{Do: "echo"})
			}
		})
	}
}

func BenchmarkWarmParallel(b *testing.B) {
	f := start(b, atMost(4*runtime.GOMAXPROCS(0)))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, functionError, err := f.do(context.Background(), command{Do: "echo"}); err != nil || functionError != "" {
				b.Error(functionError, err)
			}
		}
	})
}

func BenchmarkCold(b *testing.B) {
	f := start(b, atMost(100))
	for b.Loop() {
		f.fail(b, command{Do: "exit", N: 1})
	}
}
