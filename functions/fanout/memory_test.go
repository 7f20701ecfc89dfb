package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/push"
)

// scale delivers to nobody, and notes how much memory is in use meanwhile.
type scale struct {
	*world

	frames int
	most   uint64 // bytes
}

func (s *scale) Deliver(_ context.Context, deliveries []push.Delivery) []push.Outcome {
	outcomes := make([]push.Outcome, len(deliveries))
	s.most = max(s.most, inUse())
	for i, d := range deliveries {
		for range d.Frames {
			s.frames++
		}
		if i%100 == 0 {
			s.most = max(s.most, inUse())
		}
	}
	runtime.KeepAlive(deliveries)
	return outcomes
}

func inUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// In a group each of whose members wrote, every device is to get something else: all but
// its own message. What they get is not held for all of them at a time.
func TestG10_APushTakesTheMemoryOfItsMessagesOnce(t *testing.T) { //nolint:paralleltest // others would be weighed with it
	w := newWorld()
	for i := range chat.MaxGroupMembers {
		w.member("group:a", fmt.Sprint("user", i), 1, "phone")
	}
	const messages, size = 40, 23_000
	w.write("group:a", messages)
	for i := range w.ledgers["group:a"] {
		m := &w.ledgers["group:a"][i]
		m.Text, m.Via = strings.Repeat("x", size), fmt.Sprintf("user%d-phone", i)
	}
	h, _ := w.handler()
	s := &scale{world: w}
	h.pusher = s
	before := inUse()
	h.follow(t.Context(), batchOf(changed("1", "group:a", 0, messages)))
	require.Equal(t, chat.MaxGroupMembers*messages-messages, s.frames)
	require.Less(t, s.most-before, uint64(4*messages*size), "bytes more than before")
}
