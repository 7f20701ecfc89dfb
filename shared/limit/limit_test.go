package limit_test

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/limit"
)

// clock is a time that a test moves.
type clock struct{ now time.Time }

func newLimiter(perSecond float64, burst int) (*limit.Limiter, *clock) {
	c := &clock{now: time.UnixMilli(1795950300123)}
	return limit.New(limit.Rate{PerSecond: perSecond, Burst: burst}, func() time.Time { return c.now }), c
}

func TestTake(t *testing.T) {
	t.Parallel()

	t.Run("admits a burst, then the rate", func(t *testing.T) {
		t.Parallel()
		l, c := newLimiter(2, 3)
		for range 3 {
			require.Zero(t, l.Take("alice"))
		}
		require.Equal(t, 500*time.Millisecond, l.Take("alice"))
		require.Equal(t, 500*time.Millisecond, l.Take("alice"), "a refusal takes nothing")
		c.now = c.now.Add(200 * time.Millisecond)
		require.Equal(t, 300*time.Millisecond, l.Take("alice"))
		c.now = c.now.Add(300 * time.Millisecond)
		require.Zero(t, l.Take("alice"), "who waited as long as told is admitted")
		require.Positive(t, l.Take("alice"))
	})

	t.Run("keeps no more than a burst", func(t *testing.T) {
		t.Parallel()
		l, c := newLimiter(2, 3)
		require.Zero(t, l.Take("alice"))
		c.now = c.now.Add(time.Hour)
		for range 3 {
			require.Zero(t, l.Take("alice"))
		}
		require.Positive(t, l.Take("alice"))
	})

	t.Run("does not let one take from another", func(t *testing.T) {
		t.Parallel()
		l, _ := newLimiter(1, 1)
		require.Zero(t, l.Take("alice"))
		require.Positive(t, l.Take("alice"))
		require.Zero(t, l.Take("bob"))
	})

	t.Run("admits all without a rate", func(t *testing.T) {
		t.Parallel()
		l, _ := newLimiter(0, 1)
		for range 1000 {
			require.Zero(t, l.Take("alice"))
		}
	})

	t.Run("bears a rate below one and a clock that is set back", func(t *testing.T) {
		t.Parallel()
		l, c := newLimiter(0.1, 1)
		require.Zero(t, l.Take("alice"))
		c.now = c.now.Add(-time.Hour)
		require.Equal(t, 10*time.Second, l.Take("alice"))
		c.now = c.now.Add(10 * time.Second)
		require.Zero(t, l.Take("alice"))
	})

	t.Run("admits a burst to those who come at the same time", func(t *testing.T) {
		t.Parallel()
		l, _ := newLimiter(1, 20)
		var admitted atomic.Int64
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if l.Take("alice") == 0 {
					admitted.Add(1)
				}
			})
		}
		all.Wait()
		require.EqualValues(t, 20, admitted.Load())
	})
}

func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	const most = 10_000
	fill := func(l *limit.Limiter, from, n int) {
		for i := range n {
			require.Zero(t, l.Take(strconv.Itoa(from+i)))
		}
	}

	t.Run("by forgetting who has not come for a while", func(t *testing.T) {
		t.Parallel()
		l, c := newLimiter(1, 1)
		fill(l, 0, most-1)
		c.now = c.now.Add(time.Second)
		require.Zero(t, l.Take("flooder"))
		fill(l, most, 1)
		require.Positive(t, l.Take("flooder"), "who comes now is not forgotten")
		require.Equal(t, 2, l.Len())
	})

	t.Run("by starting over when all come at once", func(t *testing.T) {
		t.Parallel()
		l, _ := newLimiter(1, 1)
		fill(l, 0, 3*most)
		require.LessOrEqual(t, l.Len(), most)
	})
}

func TestRateFromEnv(t *testing.T) {
	t.Parallel()
	read := func(perSecond, burst string) (limit.Rate, error) {
		env := map[string]string{"A": perSecond, "B": burst}
		return limit.RateFromEnv(func(name string) string { return env[name] }, "A", "B")
	}
	r, err := read("2.5", "10")
	require.NoError(t, err)
	require.Equal(t, limit.Rate{PerSecond: 2.5, Burst: 10}, r)
	require.Equal(t, "2.5 a second, and up to 10 at once", r.String())
	require.Equal(t, limit.Rate{PerSecond: 5, Burst: 20}, r.Times(2))
	for _, bad := range [][2]string{{"", "1"}, {"-1", "1"}, {"NaN", "1"}, {"+Inf", "1"}, {"x", "1"}} {
		_, err := read(bad[0], bad[1])
		require.ErrorContains(t, err, "variable A is", bad)
	}
	for _, bad := range []string{"", "0", "-1", "x"} {
		_, err := read("1", bad)
		require.ErrorContains(t, err, "variable B is", bad)
	}
}
