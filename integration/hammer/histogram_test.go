package main

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestHistogramQuantiles(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var h histogram
		us := rapid.SliceOfN(rapid.Int64Range(0, int64(10*time.Hour/time.Microsecond)), 1, 200).Draw(t, "microseconds")
		for _, v := range us {
			h.observe(time.Duration(v) * time.Microsecond)
		}
		slices.Sort(us)
		c := h.snapshot()
		require.Equal(t, int64(len(us)), c.total())
		for _, q := range []float64{0, 0.5, 0.99, 1} {
			want := us[max(int(math.Ceil(q*float64(len(us)))), 1)-1]
			got := float64(c.quantile(q) / time.Microsecond)
			require.InDelta(t, want, got, float64(want)/64+1, "the quantile %v", q)
		}
	})
}

func TestHistogramSince(t *testing.T) {
	t.Parallel()
	var h histogram
	require.Zero(t, h.snapshot().quantile(0.5))
	h.observe(time.Hour)
	h.observe(-time.Hour)
	h.observe(1000 * time.Hour)
	before := h.snapshot()
	h.observe(time.Millisecond)
	recent := h.snapshot().since(before)
	require.Equal(t, int64(1), recent.total())
	require.InDelta(t, time.Millisecond, recent.quantile(0.5), float64(time.Millisecond)/64)
}

func TestBucketsAreInOrder(t *testing.T) {
	t.Parallel()
	last := -1
	for us := range 1 << 20 {
		b := bucketOf(time.Duration(us) * time.Microsecond)
		require.True(t, b == last || b == last+1, "%d us is in bucket %d after %d", us, b, last)
		last = b
	}
}
