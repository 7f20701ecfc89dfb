package main

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// histogram counts durations in buckets that are 1/64 of their value wide, from a
// microsecond to some 19 hours, in 16 KB, however many there are. Its zero value
// is empty. It is safe for concurrent use.
type histogram struct {
	counts [buckets]atomic.Int64
}

const (
	subBits = 6
	buckets = 2048
)

// observe counts a duration.
func (h *histogram) observe(d time.Duration) { h.counts[bucketOf(d)].Add(1) }

// counts is a histogram at a moment.
type counts [buckets]int64

func (h *histogram) snapshot() *counts {
	var c counts
	for i := range h.counts {
		c[i] = h.counts[i].Load()
	}
	return &c
}

// since gives what came after an earlier snapshot.
func (c *counts) since(earlier *counts) *counts {
	var d counts
	for i := range c {
		d[i] = c[i] - earlier[i]
	}
	return &d
}

func (c *counts) total() (n int64) {
	for _, count := range c {
		n += count
	}
	return n
}

// quantile is the duration that a share q of all, from 0 to 1, do not exceed; 0
// where there are none.
func (c *counts) quantile(q float64) time.Duration {
	rank := max(int64(math.Ceil(q*float64(c.total()))), 1)
	var n int64
	for i, count := range c {
		if n += count; count > 0 && n >= rank {
			return durationOf(i)
		}
	}
	return 0
}

// bucketOf numbers the buckets: the first 128 are a microsecond wide, then each
// 64 are twice as wide as the 64 before.
func bucketOf(d time.Duration) int {
	us := uint64(max(d, 0) / time.Microsecond)
	shift := max(bits.Len64(us)-subBits-1, 0)
	return min(shift<<subBits+int(us>>shift), buckets-1) //nolint:gosec // below 128
}

// durationOf is the middle of a bucket.
func durationOf(bucket int) time.Duration {
	shift := max(bucket>>subBits-1, 0)
	us := (bucket - shift<<subBits) << shift
	return time.Duration(us+(1<<shift)/2) * time.Microsecond
}
