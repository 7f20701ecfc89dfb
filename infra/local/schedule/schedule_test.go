package schedule_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"inorder/infra/local/schedule"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock stands until a test moves it. waits gets how long each wait is to be.
type clock struct {
	mu    sync.Mutex
	now   time.Time
	waits chan wait
}

type wait struct {
	d    time.Duration
	fire chan<- time.Time
}

func newClock() *clock {
	return &clock{now: time.Date(2026, 11, 29, 11, 5, 0, 250e6, time.UTC), waits: make(chan wait, 10)}
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) After(d time.Duration) <-chan time.Time {
	fire := make(chan time.Time, 1)
	c.waits <- wait{d, fire}
	return fire
}

// pass lets a wait end, and late more time pass than that.
func (c *clock) pass(w wait, late time.Duration) {
	c.mu.Lock()
	c.now = c.now.Add(w.d + late)
	c.mu.Unlock()
	w.fire <- c.now
}

type call struct {
	function string
	payload  string
}

// invoker hands over what it was called with, and answers what it is told.
type invoker struct {
	calls   chan call
	answers chan error
}

func (i invoker) Invoke(ctx context.Context, function string, payload []byte) ([]byte, string, error) {
	i.calls <- call{function, string(payload)}
	select {
	case err := <-i.answers:
		if err == nil {
			return nil, "", nil
		}
		if err.Error() == "Unhandled" {
			return []byte(`{"errorMessage":"no"}`), "Unhandled", nil
		}
		return nil, "", err
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
}

// run keeps schedules until the test, or the function it gives, ends them.
func run(t *testing.T, log *slog.Logger, schedules ...schedule.Schedule) (*clock, invoker, func()) {
	c, i := newClock(), invoker{calls: make(chan call, 10), answers: make(chan error, 10)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		schedule.Run(ctx, schedule.Config{Invoker: i, Region: "eu-west-1", AccountID: "123456789012", Clock: c, Log: log}, schedules...)
	}()
	stop := func() { cancel(); <-done }
	t.Cleanup(stop)
	return c, i, stop
}

func TestRun_ARule(t *testing.T) {
	t.Parallel()
	arn := "arn:aws:events:eu-west-1:123456789012:rule/inorder-Daily"
	c, i, _ := run(t, nil, schedule.Schedule{Name: "Daily", Function: "F", ARN: arn, Every: 24 * time.Hour})
	w := <-c.waits
	require.Equal(t, 24*time.Hour, w.d)
	require.Empty(t, i.calls, "not at the start")
	ids := map[string]bool{}
	for day := 30; day <= 32; day++ {
		c.pass(w, 0)
		got := <-i.calls
		i.answers <- nil
		require.Equal(t, "F", got.function)
		var e events.EventBridgeEvent
		require.NoError(t, json.Unmarshal([]byte(got.payload), &e))
		require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, e.ID)
		ids[e.ID] = true
		e.ID = ""
		require.Equal(t, events.EventBridgeEvent{
			Version: "0", DetailType: "Scheduled Event", Source: "aws.events", AccountID: "123456789012",
			Time: time.Date(2026, 11, day, 11, 5, 0, 0, time.UTC), Region: "eu-west-1", Resources: []string{arn}, Detail: json.RawMessage("{}"),
		}, e)
		w = <-c.waits
		require.Equal(t, 24*time.Hour, w.d)
	}
	require.Len(t, ids, 3)
}

func TestRun_Scheduler(t *testing.T) {
	t.Parallel()
	c, i, _ := run(t, nil, schedule.Schedule{Function: "F", ARN: "arn", Every: time.Minute, Scheduler: true})
	c.pass(<-c.waits, 0)
	var e struct{ Source, Detail string }
	require.NoError(t, json.Unmarshal([]byte((<-i.calls).payload), &e))
	require.Equal(t, "aws.scheduler", e.Source)
	require.Equal(t, "{}", e.Detail)
}

// One that is late, or takes long, neither shifts nor holds up the next; what was
// missed is not made up for.
func TestRun_KeepsItsTimes(t *testing.T) {
	t.Parallel()
	c, i, stop := run(t, nil, schedule.Schedule{Function: "F", Every: time.Minute, Input: []byte(`{"all": true}`)})
	c.pass(<-c.waits, 10*time.Second)
	require.Equal(t, call{"F", `{"all": true}`}, <-i.calls)
	w := <-c.waits
	require.Equal(t, 50*time.Second, w.d)
	c.pass(w, 5*time.Minute+20*time.Second)
	<-i.calls // the first is still under way
	w = <-c.waits
	require.Equal(t, 40*time.Second, w.d)
	stop()
	require.Empty(t, i.calls)
}

func TestRun_Several(t *testing.T) {
	t.Parallel()
	c, i, _ := run(t, nil, schedule.Schedule{Function: "F", Every: time.Minute}, schedule.Schedule{Function: "G", Every: time.Hour})
	waits := map[time.Duration]wait{}
	for range 2 {
		w := <-c.waits
		waits[w.d] = w
	}
	c.pass(waits[time.Hour], 0)
	require.Equal(t, "G", (<-i.calls).function)
}

// lines hands over each line that is written.
type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}

func TestRun_LogsFailures(t *testing.T) {
	t.Parallel()
	log := make(lines, 10)
	c, i, stop := run(t, slog.New(slog.NewJSONHandler(log, nil)), schedule.Schedule{Name: "Often", Function: "F", Every: time.Minute})
	fire := func(answer error) {
		c.pass(<-c.waits, 0)
		<-i.calls
		i.answers <- answer
	}
	fire(errors.New("Unhandled"))
	require.Contains(t, <-log, `"msg":"the scheduled function failed","schedule":"Often","function":"F","error":"Unhandled","answer":"{\"errorMessage\":\"no\"}"`)
	fire(errors.New("throttled"))
	require.Contains(t, <-log, `"msg":"the scheduled function could not be run","schedule":"Often","function":"F","err":"throttled"`)
	fire(nil)
	stop()
	require.Empty(t, log)
}
