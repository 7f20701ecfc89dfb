package limit_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/limit"
)

// account answers charges, and notes them.
type account struct {
	tokens []int
	wait   time.Duration
	err    error
}

func (a *account) charge(_ context.Context, _ string, _ limit.Rate, n int, _ time.Time) (time.Duration, error) {
	a.tokens = append(a.tokens, n)
	return a.wait, a.err
}

func newShared(perSecond float64, burst int) (*limit.Shared, *account, *clock) {
	c, a := &clock{now: time.UnixMilli(1795950300123)}, &account{}
	return limit.NewShared(limit.Rate{PerSecond: perSecond, Burst: burst}, func() time.Time { return c.now }, a.charge), a, c
}

func TestShared(t *testing.T) {
	t.Parallel()
	take := func(t *testing.T, s *limit.Shared) time.Duration {
		t.Helper()
		wait, err := s.Take(t.Context(), "alice")
		require.NoError(t, err)
		return wait
	}

	t.Run("charges nothing for a 64th of a burst and a 20th of the rate", func(t *testing.T) {
		t.Parallel()
		s, a, c := newShared(20, 640)
		for range 10 {
			require.Zero(t, take(t, s))
		}
		for range 100 {
			c.now = c.now.Add(time.Second)
			require.Zero(t, take(t, s))
		}
		require.Empty(t, a.tokens)
	})

	t.Run("then charges an eighth of the burst at a time", func(t *testing.T) {
		t.Parallel()
		s, a, _ := newShared(64, 80)
		for range 1 + 20 {
			require.Zero(t, take(t, s))
		}
		require.Equal(t, []int{10, 10}, a.tokens)
		require.Zero(t, take(t, s))
		require.Equal(t, []int{10, 10, 10}, a.tokens)
	})

	t.Run("charges one at a time where an eighth is less", func(t *testing.T) {
		t.Parallel()
		s, a, _ := newShared(1, 7)
		for range 4 {
			require.Zero(t, take(t, s))
		}
		require.Equal(t, []int{1, 1, 1}, a.tokens)
	})

	t.Run("asks again after its clock was set back", func(t *testing.T) {
		t.Parallel()
		s, a, c := newShared(1, 8)
		a.wait = 4 * time.Second
		require.Zero(t, take(t, s), "unasked")
		require.Equal(t, a.wait, take(t, s))
		require.Equal(t, a.wait, take(t, s))
		require.Len(t, a.tokens, 1, "a refusal is remembered")
		c.now = c.now.Add(-time.Hour)
		a.wait = 0
		require.Zero(t, take(t, s), "not for an hour")
	})

	t.Run("forgets tokens that were not used in time", func(t *testing.T) {
		t.Parallel()
		s, a, c := newShared(64, 80)
		for range 1 + 1 {
			require.Zero(t, take(t, s))
		}
		c.now = c.now.Add(1250*time.Millisecond - 1)
		for range 2 { // of which one is free again
			require.Zero(t, take(t, s))
		}
		require.Len(t, a.tokens, 1)
		c.now = c.now.Add(1)
		require.Zero(t, take(t, s))
		require.Len(t, a.tokens, 2)
	})

	t.Run("remembers a refusal, and charges nothing meanwhile", func(t *testing.T) {
		t.Parallel()
		s, a, c := newShared(64, 80)
		a.wait = 400 * time.Millisecond
		require.Zero(t, take(t, s))
		require.Equal(t, 400*time.Millisecond, take(t, s))
		c.now = c.now.Add(399 * time.Millisecond)
		for range 1000 {
			require.Equal(t, time.Millisecond, take(t, s))
		}
		require.Len(t, a.tokens, 1)
		a.wait = 0
		c.now = c.now.Add(time.Millisecond)
		for range 2 { // of which one is free again
			require.Zero(t, take(t, s))
		}
		require.Len(t, a.tokens, 2)
	})

	t.Run("limits by itself for a while when it cannot charge", func(t *testing.T) {
		t.Parallel()
		s, a, c := newShared(8, 16)
		a.err = errors.New("no table")
		require.Zero(t, take(t, s))
		wait, err := s.Take(t.Context(), "alice")
		require.ErrorContains(t, err, "no table")
		require.Zero(t, wait, "what cannot be counted is admitted")
		for range 15 {
			require.Zero(t, take(t, s))
		}
		require.Equal(t, 125*time.Millisecond, take(t, s), "up to the rate, here alone")
		c.now = c.now.Add(4 * time.Second)
		require.Zero(t, take(t, s))
		require.Len(t, a.tokens, 1)
		a.err = nil
		c.now = c.now.Add(time.Second)
		for range 2 { // of which one is free again
			require.Zero(t, take(t, s))
		}
		require.Len(t, a.tokens, 2)
	})

	t.Run("that is strict charges each token", func(t *testing.T) {
		t.Parallel()
		c, a := &clock{now: time.UnixMilli(1795950300123)}, &account{}
		s := limit.NewStrict(limit.Rate{PerSecond: 64, Burst: 640}, func() time.Time { return c.now }, a.charge)
		for range 3 {
			require.Zero(t, take(t, s))
		}
		require.Equal(t, []int{1, 1, 1}, a.tokens)
		a.wait = time.Second
		require.Equal(t, time.Second, take(t, s))
		require.Equal(t, time.Second, take(t, s))
		require.Len(t, a.tokens, 4, "a refusal is remembered")
	})

	t.Run("admits all without a rate", func(t *testing.T) {
		t.Parallel()
		s, a, _ := newShared(0, 1)
		for range 1000 {
			require.Zero(t, take(t, s))
		}
		require.Empty(t, a.tokens)
	})
}

func TestSharedMemoryIsBounded(t *testing.T) {
	t.Parallel()
	const most = 10_000
	s, a, _ := newShared(1, 1)
	a.wait = time.Minute
	for i := range 3 * most {
		for range 2 {
			_, err := s.Take(t.Context(), strconv.Itoa(i))
			require.NoError(t, err)
		}
		require.LessOrEqual(t, s.Len(), most)
	}
	a.tokens = nil
	wait, err := s.Take(t.Context(), strconv.Itoa(3*most-1))
	require.NoError(t, err)
	require.Equal(t, time.Minute, wait)
	require.Empty(t, a.tokens, "who comes now is not forgotten")
}
