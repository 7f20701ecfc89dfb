package fault_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/integration/fault"
)

func TestARateHasToBeOne(t *testing.T) {
	t.Parallel()
	for _, rate := range []float64{-0.1, 1.1} {
		_, err := fault.NewPlan(1, fault.Faults{fault.Delay: {Rate: rate}})
		require.ErrorContains(t, err, "the rate of delay is")
	}
	_, err := fault.NewPlan(1, fault.Faults{fault.Delay: {UpTo: -1}})
	require.Error(t, err)
}

// pattern is which of 200 requests were answered, one after the other.
func pattern(t *testing.T, plan *fault.Plan) string {
	t.Helper()
	b := startBackend(t, nil)
	c := database(t, plan, b.url)
	var p strings.Builder
	for range 200 {
		if get(t.Context(), c) == nil {
			p.WriteByte('.')
		} else {
			p.WriteByte('x')
		}
	}
	return p.String()
}

func TestASeedReplays(t *testing.T) {
	t.Parallel()
	patternOf := func(seed uint64) (string, map[fault.Kind]int) {
		plan, err := fault.NewPlan(seed, fault.Faults{fault.Throttle: {Rate: 0.2}, fault.DropAnswer: {Rate: 0.1}})
		require.NoError(t, err)
		require.Equal(t, seed, plan.Seed())
		plan.On()
		return pattern(t, plan), plan.Counts()
	}
	first, counts := patternOf(7)
	again, countsAgain := patternOf(7)
	other, _ := patternOf(8)
	require.Equal(t, first, again)
	require.Equal(t, counts, countsAgain)
	require.NotEqual(t, first, other)
	require.Equal(t, strings.Count(first, "x"), counts[fault.Throttle]+counts[fault.DropAnswer])
	require.InDelta(t, 40, counts[fault.Throttle], 20)
	require.InDelta(t, 16, counts[fault.DropAnswer], 12)
}

func TestKindsAreIndependent(t *testing.T) {
	t.Parallel()
	plan := newPlan(t, fault.Faults{fault.Delay: {Rate: 0.5, UpTo: 1}, fault.DropRequest: {Rate: 0.5}})
	c := database(t, plan, startBackend(t, nil).url)
	together := 0
	for range 100 {
		before := plan.Counts()
		_ = get(t.Context(), c)
		after := plan.Counts()
		if (after[fault.Delay] > before[fault.Delay]) == (after[fault.DropRequest] > before[fault.DropRequest]) {
			together++
		}
	}
	require.InDelta(t, 50, together, 25)
}

func TestAPlanIsOffAtFirstAndCanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	faults := fault.Faults{}
	for kind := range fault.Everything() {
		faults[kind] = fault.Fault{Rate: 1, UpTo: time.Millisecond}
	}
	plan, err := fault.NewPlan(3, faults)
	require.NoError(t, err)
	require.NotContains(t, pattern(t, plan), "x")
	plan.On()
	require.NotContains(t, pattern(t, plan), ".")
	plan.Off()
	require.NotContains(t, pattern(t, plan), "x")
	require.Contains(t, plan.String(), "seed 3: delay 200 drop-request 200")
}

func TestATargetHasToBeAURL(t *testing.T) {
	t.Parallel()
	plan := newPlan(t, nil)
	_, err := fault.NewDatabase(plan, "127.0.0.1:8000")
	require.ErrorContains(t, err, "http://127.0.0.1:8000")
	_, err = fault.NewSockets(plan, "http://127.0.0.1:8000")
	require.ErrorContains(t, err, "ws://127.0.0.1:3000/v1")
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
