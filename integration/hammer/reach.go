package main

import (
	"sync"
	"time"
)

// maxReaching bounds how many messages of one conversation are followed at a time. Those
// beyond it are not counted.
const maxReaching = 1 << 16

// reach counts how soon messages are on all devices that watch a conversation. It is
// safe for concurrent use.
type reach struct {
	took *histogram
	want int // devices

	mu      sync.Mutex
	missing map[int64]int // by seq: devices that do not have it yet
}

func newReach(took *histogram, want int) *reach {
	return &reach{took: took, want: want, missing: map[int64]int{}}
}

// has notes that one more device has a message, this long after it was due.
func (r *reach) has(seq int64, after time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	missing, known := r.missing[seq]
	switch {
	case !known && len(r.missing) >= maxReaching:
		return
	case !known:
		missing = r.want
	}
	if missing--; missing > 0 {
		r.missing[seq] = missing
		return
	}
	delete(r.missing, seq)
	r.took.observe(after)
}
