package store_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/limit"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/internal/storetest"
	"github.com/inorder-im/inorder/shared/store/operate"
)

// environments are those of a function, each with a Shared and a Store of its own,
// and one clock.
type environments struct {
	t    *testing.T
	rate limit.Rate
	now  time.Time
	wire *wire
	all  []*limit.Shared
}

func newEnvironments(t *testing.T, n int, rate limit.Rate) *environments {
	t.Helper()
	c := newCloud(t)
	e := &environments{t: t, rate: rate, now: time.UnixMilli(1795950300123), wire: &wire{}}
	options := c.Options(e.wire)
	for range n {
		s := store.New(dynamodb.New(options), c.Tables)
		e.all = append(e.all, limit.NewShared(rate, func() time.Time { return e.now }, s.Charge(store.RequestWrites)))
	}
	return e
}

// flood asks each environment until it refuses, at most that often, several at a
// time, and returns how often it was admitted.
func (e *environments) flood(most int) int {
	e.t.Helper()
	var admitted atomic.Int64
	const atOnce = 4 // few enough for a charge to be in time, on a machine that has much to do
	require.NoError(e.t, parallel(atOnce, func(i int) error {
		for ; i < len(e.all); i += atOnce {
			for range most {
				wait, err := e.all[i].Take(e.t.Context(), "alice")
				if err != nil {
					return err
				}
				if wait > 0 {
					break
				}
				admitted.Add(1)
			}
		}
		return nil
	}))
	return int(admitted.Load())
}

// bound is what a user gets at most in a stretch of time, as limit.Shared has it.
func (e *environments) bound(span time.Duration) int {
	passed := e.rate.PerSecond * span.Seconds()
	each := float64(max(1, e.rate.Burst/64)) + passed/20
	return int(2*float64(e.rate.Burst) + passed + float64(len(e.all))*each)
}

func TestG10_AUserIsLimitedAcrossEnvironments(t *testing.T) {
	t.Parallel()
	const n, ticks, tick = 40, 120, 250 * time.Millisecond
	e := newEnvironments(t, n, limit.Rate{PerSecond: 20, Burst: 100})
	admitted := make([]int, ticks)
	for i := range admitted {
		admitted[i] = e.flood(50)
		e.now = e.now.Add(tick)
	}
	total := 0
	for i := range admitted {
		sum := 0
		for j, a := range admitted[i:] {
			sum += a
			require.LessOrEqual(t, sum, e.bound(time.Duration(j)*tick), "%d ticks from %d on: %v", j+1, i, admitted)
		}
		total += admitted[i]
	}
	const rate = 20 * ticks / 4
	require.Greater(t, total, 100+rate*9/10, "what one may have one gets")
	calls, _ := e.wire.Since(0)
	t.Logf("%d admitted of what %d environments were asked in %v, with %d charges; the bound is %d", total, n, ticks*tick, len(calls), e.bound(ticks*tick))
	// A refusal lasts three eighths of the time in which a burst comes back, at least.
	const refusals = n * (1 + ticks*250*8/(5000*3))
	require.Less(t, len(calls), refusals+2*total/12, "who is refused is remembered")
}

// The bound is met: tokens that an environment has can be used together with those
// that have come in since.
func TestG10_TheBoundAcrossEnvironmentsIsTold(t *testing.T) {
	t.Parallel()
	const n = 40
	rate := limit.Rate{PerSecond: 20, Burst: 100}
	e := newEnvironments(t, n, rate)
	before := e.flood(1 + 1) // each takes what is free, and those that can charge 12 tokens
	require.Equal(t, n*1+8, before)
	e.now = e.now.Add(5*time.Second - time.Microsecond)
	at := e.flood(1000)
	t.Logf("%d at once, of which %d came back free; the bound is %d", at, n, e.bound(0))
	require.GreaterOrEqual(t, at, 8*11+8*12, "8 have 11 tokens, and 8 can be charged again")
	require.LessOrEqual(t, at, e.bound(0))
}

func TestG10_AnIdleUserHasTheWholeBurst(t *testing.T) {
	t.Parallel()
	for _, rate := range []limit.Rate{{PerSecond: 0.1, Burst: 1}, {PerSecond: 2, Burst: 3}, {PerSecond: 5000, Burst: 7}, {PerSecond: 60, Burst: 600}} {
		e := newEnvironments(t, 1, rate)
		share := max(1, rate.Burst/8)
		want := max(1, rate.Burst/64) + rate.Burst/share*share
		for range 3 {
			require.Equal(t, want, e.flood(10_000), "%v", rate)
			wait, err := e.all[0].Take(t.Context(), "alice")
			require.NoError(t, err)
			refill := time.Duration(float64(rate.Burst) / rate.PerSecond * float64(time.Second))
			require.LessOrEqual(t, wait, max(refill/2, refill/time.Duration(rate.Burst))+time.Microsecond, "%v", rate)
			e.now = e.now.Add(wait)
			require.Positive(t, e.flood(1), "%v: who waited as long as told is admitted", rate)
			e.now = e.now.Add(100 * refill)
		}
		wait, err := e.all[0].Take(t.Context(), "bob")
		require.NoError(t, err)
		require.Zero(t, wait)
	}
}

// A user is charged little for coming near the limit, and nothing for staying away
// from it.
func TestG10_TheLimitCostsNothingFarAway(t *testing.T) {
	t.Parallel()
	e := newEnvironments(t, 1, limit.Rate{PerSecond: 60, Burst: 600})
	for range 100 {
		require.Equal(t, 1, e.flood(1))
		e.now = e.now.Add(2 * time.Second)
	}
	calls, n := e.wire.Since(0)
	require.Empty(t, calls)
	require.Equal(t, 200, e.flood(200), "a device that comes back after long")
	calls, _ = e.wire.Since(n)
	require.Equal(t, slices.Repeat([]string{"UpdateItem"}, 4), calls, "three charges, the first of a bucket that was full")
}

func TestG10_AChargeThatFailsRefusesNobody(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"dropped": dropped, "throttled": throttled, "hanging": storetest.Hanging} {
		e := newEnvironments(t, 1, limit.Rate{PerSecond: 8, Burst: 8})
		e.wire.Set(func(string, int) fault { return f })
		require.Equal(t, 1, e.flood(1), name)
		start := time.Now()
		wait, err := e.all[0].Take(t.Context(), "alice")
		require.Error(t, err, name)
		require.Zero(t, wait, name)
		require.Less(t, time.Since(start), 5*time.Second, name)
		require.Equal(t, 7, e.flood(100), "%s: the limit holds here alone", name)
		e.wire.Set(nil)
		e.now = e.now.Add(5 * time.Second)
		require.Equal(t, 1+7, e.flood(8), name)
		calls, _ := e.wire.Since(0)
		require.NotEmpty(t, calls, name)
	}
}

// What the store keeps for itself among a user's lines is no conversation.
func TestG10_WhatLimitsAUserIsNoConversation(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := store.New(c.DB, c.Tables, store.WithQuotas(store.Quotas{GroupsPerDay: 5}))
	now := time.Now()
	for _, kind := range []store.Requests{store.RequestReads, store.RequestWrites, store.RequestHandshakes} {
		wait, err := s.Charge(kind)(t.Context(), "alice", limit.Rate{PerSecond: 1, Burst: 1}, 1, now)
		require.NoError(t, err)
		require.Zero(t, wait)
		wait, err = s.Charge(kind)(t.Context(), "alice", limit.Rate{PerSecond: 1, Burst: 1}, 1, now)
		require.NoError(t, err)
		require.Equal(t, time.Second, wait)
	}
	c.Put(c.Tables.Inboxes, map[string]any{"userId": "alice", "conversationId": "#large", "ids": []string{"group:x"}})
	line, _, err := s.CreateGroup(t.Context(), store.Request{UserID: "alice", ClientMsgID: "g"}, "All", nil, chat.VisibleAll)
	require.NoError(t, err)
	_, err = s.Raise(t.Context(), "alice", []chat.ConversationID{line.Head.ConversationID})
	require.NoError(t, err)
	require.Equal(t, 1+3+1+1+1, c.Count(c.Tables.Inboxes))

	lines, next, err := s.List(t.Context(), "alice", "", 1)
	require.NoError(t, err)
	require.Len(t, lines, 1)
	require.Equal(t, line.Head.ConversationID, lines[0].Head.ConversationID)
	if next != "" {
		lines, _, err = s.List(t.Context(), "alice", next, 1)
		require.NoError(t, err)
		require.Empty(t, lines)
	}
	changed, err := s.Changes(t.Context(), "alice", 0, "", 10)
	require.NoError(t, err)
	require.Len(t, changed.Lines, 1)
	all, _, err := operate.New(s).LinesOf(t.Context(), "alice", "", 10)
	require.NoError(t, err)
	require.Len(t, all, 1)
}

// A bucket that an environment with a wrong clock filled shuts nobody out, and is one
// bucket again.
func TestG10_AUserIsNotShutOutByAClock(t *testing.T) {
	t.Parallel()
	rate := limit.Rate{PerSecond: 1, Burst: 4}
	s, now := newCloud(t).Store(nil), time.UnixMilli(1795950300123)
	charge := func(at time.Time) time.Duration {
		wait, err := s.Charge(store.RequestWrites)(t.Context(), "alice", rate, 2, at)
		require.NoError(t, err)
		return wait
	}
	require.Zero(t, charge(now.Add(time.Hour)))
	require.Zero(t, charge(now))
	require.Zero(t, charge(now))
	require.Positive(t, charge(now))
}
