package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHistogram(t *testing.T) {
	t.Parallel()
	h := newHistogram()
	require.Zero(t, h.sinceLast())
	for ms := range 1000 {
		h.observe(time.Duration(ms+1) * time.Millisecond)
	}
	all, count := h.total()
	require.Equal(t, int64(1000), count)
	for want, got := range map[float64]float64{500: all.P50, 990: all.P99, 999: all.P999, 1000: all.Max} {
		require.InEpsilon(t, want, got, 0.01)
	}
	require.Equal(t, all, h.sinceLast())

	h.observe(7 * time.Microsecond)
	require.Equal(t, latency{0.007, 0.007, 0.007, 0.007}, h.sinceLast(), "what was before is not of the moment")
	h.observe(-time.Hour)
	require.Zero(t, h.sinceLast())
	h.observe(1000 * time.Hour)
	require.InEpsilon(t, float64(longest.Milliseconds()), h.sinceLast().Max, 0.01)
	_, count = h.total()
	require.Equal(t, int64(1003), count, "what is out of range counts too")
}
