// Package schedule invokes functions by the clock: it does locally what an
// EventBridge rule does in the cloud, for rate and cron.
//
// The event is theirs ("Scheduled Event"). What differs: the first invocation of a
// rate comes one interval after the start of the local cloud, which forgets when the
// one before was; and one that fails is logged and not repeated.
package schedule

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/inorder-im/inorder/infra/local/template"
)

// Schedule says which function is invoked when.
type Schedule struct {
	template.Schedule
	Function string // given to the [Invoker]
}

// Invoker runs a function. functionError is "" if the function succeeded, err
// means that it could not be run.
type Invoker interface {
	Invoke(ctx context.Context, function string, payload []byte) (result []byte, functionError string, err error)
}

// Clock tells the time and waits.
type Clock interface {
	Now() time.Time
	// After returns a channel that gets the time once d has passed.
	After(d time.Duration) <-chan time.Time
}

// Config is what schedules run with.
type Config struct {
	Invoker           Invoker
	Region, AccountID string
	Clock             Clock        // nil: this machine's
	Log               *slog.Logger // nil: no log
}

// Run keeps the schedules until ctx is done, and returns when the invocations
// under way have ended.
func Run(ctx context.Context, cfg Config, schedules ...Schedule) {
	if cfg.Clock == nil {
		cfg.Clock = machine{}
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	var all sync.WaitGroup
	for _, s := range schedules {
		all.Go(func() { cfg.keep(ctx, s) })
	}
	all.Wait()
}

// first is when the function is invoked first after now; the zero time for never.
func (s Schedule) first(now time.Time) time.Time {
	if s.Cron != nil {
		return s.Cron.Next(now)
	}
	return now.Add(s.Every)
}

// due is the last planned time up to now, and the next; planned is one of them. All
// that were between are left out, and the next is counted from what was planned, so
// that a rate does not drift.
func (s Schedule) due(planned, now time.Time) (last, next time.Time) {
	if s.Cron != nil {
		return s.Cron.Last(now), s.Cron.Next(now)
	}
	last = planned.Add(now.Sub(planned).Truncate(s.Every))
	return last, last.Add(s.Every)
}

// look is the longest wait without a look at the clock. Timers stand still while the
// machine sleeps, and the clock may be set. It is a minute because EventBridge means
// no second by its minutes ("Creating a scheduled rule" in its user guide).
const look = time.Minute

// keep invokes the function by one schedule. An invocation that takes longer than
// the interval does not hold up the next, as in the cloud.
func (cfg Config) keep(ctx context.Context, s Schedule) {
	var running sync.WaitGroup
	defer running.Wait()
	now := cfg.now()
	next := s.first(now)
	for !next.IsZero() {
		select {
		case <-ctx.Done():
			return
		case <-cfg.Clock.After(min(next.Sub(now), look)):
		}
		before := now
		now = cfg.now()
		if !next.After(now) {
			var at time.Time
			at, next = s.due(next, now)
			running.Go(func() { cfg.invoke(ctx, s, at) })
			continue
		}
		// Had the clock been set back, it would be silent until it is again what it was.
		// A little is a correction, after which nothing is to run twice.
		if now.Before(before.Add(-look)) {
			if again := s.first(now); again.Before(next) {
				next = again
			}
		}
	}
	cfg.Log.Warn("the schedule has no time that is yet to come", "schedule", s.LogicalID, "function", s.Function)
}

// now is by the wall clock: the monotonic one stands still while the machine sleeps.
func (cfg Config) now() time.Time { return cfg.Clock.Now().Round(0) }

func (cfg Config) invoke(ctx context.Context, s Schedule, at time.Time) {
	log := cfg.Log.With("schedule", s.LogicalID, "function", s.Function)
	payload := []byte(s.Input)
	if s.Input == "" {
		var err error
		if payload, err = cfg.event(s, at); err != nil {
			log.Error("no event", "err", err)
			return
		}
	}
	result, functionError, err := cfg.Invoker.Invoke(ctx, s.Function, payload)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		log.Error("the scheduled function could not be run", "err", err)
	case functionError != "":
		log.Error("the scheduled function failed", "error", functionError, "answer", string(result))
	}
}

// event is "Scheduled Event" of the EventBridge user guide.
type event struct {
	Version    string    `json:"version"`
	ID         string    `json:"id"`
	DetailType string    `json:"detail-type"`
	Source     string    `json:"source"`
	Account    string    `json:"account"`
	Time       time.Time `json:"time"`
	Region     string    `json:"region"`
	Resources  []string  `json:"resources"`
	Detail     struct{}  `json:"detail"`
}

func (cfg Config) event(s Schedule, at time.Time) ([]byte, error) {
	e := event{
		Version: "0", ID: uuid.NewString(), DetailType: "Scheduled Event", Source: "aws.events",
		Account: cfg.AccountID, Time: at.UTC().Truncate(time.Second), Region: cfg.Region,
		Resources: []string{s.ARN},
	}
	data, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encoding the event: %w", err)
	}
	return data, nil
}

// machine is the clock of this machine.
type machine struct{}

func (machine) Now() time.Time                         { return time.Now() }
func (machine) After(d time.Duration) <-chan time.Time { return time.After(d) }
