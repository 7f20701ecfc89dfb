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

	"github.com/inorder-im/inorder/infra/local/cron"
	"github.com/inorder-im/inorder/infra/local/schedule"
	"github.com/inorder-im/inorder/infra/local/template"
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

// pass lets waits of the same length end, and late more time pass than that; a clock
// that is set back has less than none pass.
func (c *clock) pass(late time.Duration, waits ...wait) {
	c.mu.Lock()
	c.now = c.now.Add(waits[0].d + late)
	c.mu.Unlock()
	for _, w := range waits {
		w.fire <- c.now
	}
}

// advance lets d pass, in the waits of one schedule.
func (c *clock) advance(t *testing.T, d time.Duration) {
	t.Helper()
	for d > 0 {
		w := <-c.waits
		require.LessOrEqual(t, w.d, time.Minute, "longer than it goes without a look at the clock")
		c.pass(0, w)
		d -= w.d
	}
	require.Zero(t, d)
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

// run keeps schedules until the test, or the function it returns, ends them.
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
	c, i, _ := run(t, nil, schedule.Schedule{Schedule: template.Schedule{LogicalID: "Daily", ARN: arn, Every: 24 * time.Hour}, Function: "F"})
	ids := map[string]bool{}
	for day := 30; day <= 32; day++ {
		c.advance(t, 24*time.Hour-time.Minute)
		w := <-c.waits
		require.Empty(t, i.calls, "neither at the start nor in between")
		c.pass(0, w)
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
	}
	require.Len(t, ids, 3)
}

// One that is late, or takes long, neither shifts nor holds up the next; what was
// missed is not made up for.
func TestRun_KeepsItsTimes(t *testing.T) {
	t.Parallel()
	c, i, stop := run(t, nil, schedule.Schedule{Schedule: template.Schedule{Every: time.Minute, Input: `{"all": true}`}, Function: "F"})
	c.pass(10*time.Second, <-c.waits)
	require.Equal(t, call{"F", `{"all": true}`}, <-i.calls)
	w := <-c.waits
	require.Equal(t, 50*time.Second, w.d)
	c.pass(5*time.Minute+20*time.Second, w)
	<-i.calls // the first is still under way
	w = <-c.waits
	require.Equal(t, 40*time.Second, w.d)
	stop()
	require.Empty(t, i.calls)
}

func TestRun_Several(t *testing.T) {
	t.Parallel()
	c, i, _ := run(t, nil, schedule.Schedule{Schedule: template.Schedule{Every: time.Minute}, Function: "F"}, schedule.Schedule{Schedule: template.Schedule{Every: time.Hour}, Function: "G"})
	c.pass(59*time.Minute, <-c.waits, <-c.waits)
	require.ElementsMatch(t, []string{"F", "G"}, []string{(<-i.calls).function, (<-i.calls).function})
}

func expression(t *testing.T, text string) *cron.Expression {
	t.Helper()
	e, err := cron.Parse(text)
	require.NoError(t, err)
	return e
}

// at is the time of the event that the next call has.
func (i invoker) at(t *testing.T) string {
	t.Helper()
	call := <-i.calls
	i.answers <- nil
	var e events.EventBridgeEvent
	require.NoError(t, json.Unmarshal([]byte(call.payload), &e))
	return e.Time.Format(time.TimeOnly)
}

// The clock stands at 11:05:00.25.
func TestRun_Cron(t *testing.T) {
	t.Parallel()
	c, i, _ := run(t, nil, schedule.Schedule{Schedule: template.Schedule{Cron: expression(t, "0/15 11-12 * * ? *")}, Function: "F"})
	c.advance(t, 9*time.Minute)
	require.Empty(t, i.calls)
	c.advance(t, 59*time.Second+750*time.Millisecond)
	require.Equal(t, "11:15:00", i.at(t))
	for _, want := range []string{"11:30:00", "11:45:00", "12:00:00"} {
		c.advance(t, 15*time.Minute)
		require.Equal(t, want, i.at(t))
	}
}

// What was missed while the machine slept is made up for once, with the event of the
// last time; then all is as it was.
func TestRun_AfterSleep(t *testing.T) {
	t.Parallel()
	const years = 50 * 365 * 24 * time.Hour
	for name, tt := range map[string]struct {
		schedule   schedule.Schedule
		slept      time.Duration // after the first wait
		last, next string
		until      time.Duration // the next
	}{
		"cron":            {schedule.Schedule{Schedule: template.Schedule{Cron: expression(t, "0/15 * * * ? *")}}, 8 * time.Hour, "19:00:00", "19:15:00", 9*time.Minute - 250*time.Millisecond},
		"rate":            {schedule.Schedule{Schedule: template.Schedule{Every: 15 * time.Minute}}, 8 * time.Hour, "19:05:00", "19:20:00", 14 * time.Minute},
		"cron, for years": {schedule.Schedule{Schedule: template.Schedule{Cron: expression(t, "* * * * ? *")}}, years, "11:06:00", "11:07:00", time.Minute},
		"rate, for years": {schedule.Schedule{Schedule: template.Schedule{Every: time.Minute}}, years, "11:06:00", "11:07:00", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, i, stop := run(t, nil, tt.schedule)
			c.pass(tt.slept, <-c.waits)
			require.Equal(t, tt.last, i.at(t))
			c.advance(t, tt.until)
			require.Equal(t, tt.next, i.at(t))
			stop()
			require.Empty(t, i.calls)
		})
	}
}

// A clock that is set back does not keep a schedule silent until it is again what it
// was. One that is corrected by a little does not make it run twice.
func TestRun_ClockSetBack(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		schedule schedule.Schedule
		first    time.Duration // until it runs
		back     time.Duration // from then
		until    time.Duration // it runs again
		next     string
	}{
		"cron":           {schedule.Schedule{Schedule: template.Schedule{Cron: expression(t, "0/2 * * * ? *")}}, time.Minute - 250*time.Millisecond, 2 * time.Hour, 2 * time.Minute, "09:08:00"},
		"rate":           {schedule.Schedule{Schedule: template.Schedule{Every: 2 * time.Minute}}, 2 * time.Minute, 2 * time.Hour, 2 * time.Minute, "09:09:00"},
		"cron, a little": {schedule.Schedule{Schedule: template.Schedule{Cron: expression(t, "0/2 * * * ? *")}}, time.Minute - 250*time.Millisecond, time.Second, 2*time.Minute + time.Second, "11:08:00"},
		"rate, a little": {schedule.Schedule{Schedule: template.Schedule{Every: 2 * time.Minute}}, 2 * time.Minute, time.Second, 2*time.Minute + time.Second, "11:09:00"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, i, stop := run(t, nil, tt.schedule)
			c.advance(t, tt.first)
			i.at(t)
			w := <-c.waits
			c.pass(-w.d-tt.back, w)
			c.advance(t, tt.until)
			require.Equal(t, tt.next, i.at(t))
			stop()
			require.Empty(t, i.calls)
		})
	}
}

// A cron expression without a time that is yet to come ends at once, not those beside it.
func TestRun_Never(t *testing.T) {
	t.Parallel()
	log := make(lines, 10)
	c, i, stop := run(t, slog.New(slog.NewJSONHandler(log, nil)),
		schedule.Schedule{Schedule: template.Schedule{LogicalID: "Over", Cron: expression(t, "15 10 ? * 6L 2002-2005")}, Function: "F"},
		schedule.Schedule{Schedule: template.Schedule{LogicalID: "Often", Every: time.Minute}, Function: "G"})
	require.Contains(t, <-log, `"level":"WARN","msg":"the schedule has no time that is yet to come","schedule":"Over","function":"F"`)
	c.advance(t, time.Minute)
	require.Equal(t, "G", (<-i.calls).function)
	stop()
	require.Empty(t, log)
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
	c, i, stop := run(t, slog.New(slog.NewJSONHandler(log, nil)), schedule.Schedule{Schedule: template.Schedule{LogicalID: "Often", Every: time.Minute}, Function: "F"})
	fire := func(answer error) {
		c.pass(0, <-c.waits)
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
