package main

import (
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longest is what a histogram counts anything longer as.
const longest = time.Hour

// histogram counts durations to 1% of their value, in some 50 KB, however many there
// are. It is safe for concurrent use.
type histogram struct {
	mu     sync.Mutex
	all    *hdrhistogram.Histogram
	recent *hdrhistogram.Histogram // since the last call of sinceLast
}

func newHistogram() *histogram {
	empty := func() *hdrhistogram.Histogram { return hdrhistogram.New(1, longest.Microseconds(), 2) }
	return &histogram{all: empty(), recent: empty()}
}

// observe counts a duration.
func (h *histogram) observe(d time.Duration) {
	us := min(max(d, 0), longest).Microseconds()
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.all.RecordValue(us) // it is in the range
	_ = h.recent.RecordValue(us)
}

// total is all that was counted, and how many that are.
func (h *histogram) total() (latency, int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return latencyOf(h.all), h.all.TotalCount()
}

// sinceLast is what was counted since it was called last.
func (h *histogram) sinceLast() latency {
	h.mu.Lock()
	defer h.mu.Unlock()
	defer h.recent.Reset()
	return latencyOf(h.recent)
}

// latency is the quantiles of a histogram in milliseconds, 0 where there is nothing.
type latency struct {
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

func latencyOf(h *hdrhistogram.Histogram) latency {
	ms := func(percent float64) float64 { return float64(h.ValueAtQuantile(percent)) / 1000 }
	return latency{P50: ms(50), P99: ms(99), P999: ms(99.9), Max: ms(100)}
}
