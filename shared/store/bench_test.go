package store_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/inorder-im/inorder/shared/chat"
)

// BenchmarkAppend shows what contention costs: writers that each are a process
// of their own, all in one conversation or each in its own.
func BenchmarkAppend(b *testing.B) {
	for _, shared := range []bool{true, false} {
		for _, writers := range []int{1, 4, 16, 64} {
			where := "a conversation each"
			if shared {
				where = "one conversation"
			}
			b.Run(fmt.Sprintf("%s/%d writers", where, writers), func(b *testing.B) {
				c := newCloud(b)
				var next, attempts, busy, slowest atomic.Int64
				b.ResetTimer()
				start := time.Now()
				err := parallel(writers, func(i int) error {
					s := c.Store(nil)
					to := "bob"
					if !shared {
						to = fmt.Sprint("bob", i)
					}
					for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
						began := time.Now()
						r, err := s.Append(b.Context(), text("alice", fmt.Sprintf("%d", n), "hi"), to)
						if err != nil {
							busy.Add(1)
							continue
						}
						attempts.Add(int64(r.Attempts))
						if took := int64(time.Since(began)); took > slowest.Load() {
							slowest.Store(took)
						}
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
				acked := float64(int64(b.N) - busy.Load())
				b.ReportMetric(acked/time.Since(start).Seconds(), "sends/s")
				b.ReportMetric(float64(attempts.Load())/acked, "tx/send")
				b.ReportMetric(float64(busy.Load()), "busy")
				b.ReportMetric(float64(slowest.Load())/1e6, "slowest-ms")
			})
		}
	}
}

// BenchmarkMessage is what a message of two users takes of the database, by one process
// with nothing else in between: the transaction, the two sync heads, and the entry as the
// fan-out reads it. Without functions, sockets and polls it is what the database alone
// allows.
func BenchmarkMessage(b *testing.B) {
	const pairs = 32
	c := newCloud(b)
	var next atomic.Int64
	b.ResetTimer()
	start := time.Now()
	err := parallel(pairs, func(i int) error {
		s, from, to := c.Store(nil), fmt.Sprint("a", i), fmt.Sprint("b", i)
		for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
			r, err := s.Append(b.Context(), text(from, fmt.Sprint(n), strings.Repeat("x", 100)), to)
			if err != nil {
				return err
			}
			for _, user := range []string{from, to} {
				if _, err := s.Raise(b.Context(), user, []chat.ConversationID{r.ConversationID}); err != nil {
					return err
				}
			}
			if _, err := s.Entries(b.Context(), r.ConversationID, chat.Range{From: r.Seq, To: r.Seq}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "messages/s")
}
