package store_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/limit"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/regiontest"
)

var printContention = flag.Bool("contention", false, "print the table of contention in a region")

// sendTime is what a send function may take, see its Timeout in template.yaml.
const sendTime = 10 * time.Second

// hot is one group in a region, and the environments of the function that writes to
// it, each with a store of its own.
type hot struct {
	t       *testing.T
	region  *regiontest.Region
	options []store.Option
	group   chat.ConversationID

	mu     sync.Mutex
	idle   []*store.Store
	made   int
	active int
	most   int // environments that were busy at once

	took     map[string][]time.Duration // of sends that were acked, by sender
	acked    []time.Time
	busy     int
	attempts int
}

func newHot(t *testing.T, members int, options ...store.Option) *hot {
	t.Helper()
	h := &hot{t: t, options: options, took: map[string][]time.Duration{}, region: regiontest.WithTables(regiontest.Usual())}
	var others []string
	for i := range members - 1 {
		others = append(others, who(i+1))
	}
	now := time.Now()
	line, _, err := h.store().CreateGroup(t.Context(), store.Request{
		UserID: who(0), DeviceID: "phone", ClientMsgID: ulid.MustNew(ulid.Timestamp(now), ulid.DefaultEntropy()).String(),
	}, "hot", others, chat.VisibleAll)
	require.NoError(t, err)
	h.group = line.Head.ConversationID
	return h
}

func who(i int) string { return fmt.Sprintf("user%02d", i) }

func (h *hot) store() *store.Store {
	return store.New(h.region.Client(), regiontest.Tables(), h.options...)
}

// take returns an environment that is idle, the one used last first as Lambda does, or a
// new one.
func (h *hot) take() *store.Store {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.active++
	h.most = max(h.most, h.active)
	if n := len(h.idle); n > 0 {
		s := h.idle[n-1]
		h.idle = h.idle[:n-1]
		return s
	}
	h.made++
	return h.store()
}

func (h *hot) giveBack(s *store.Store) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.active--
	h.idle = append(h.idle, s)
}

// send is a client's send: it goes again with the same clientMsgId when it is told
// BUSY, after the time that it is told, until it is acked.
func (h *hot) send(sender, id string) {
	start := time.Now()
	for {
		s := h.take()
		ctx, cancel := context.WithTimeout(context.Background(), sendTime)
		r, err := s.Append(ctx, chatIn(text(sender, id, "hello"), h.group), "")
		cancel()
		h.giveBack(s)
		h.mu.Lock()
		h.attempts += r.Attempts
		if err == nil {
			h.took[sender] = append(h.took[sender], time.Since(start))
			h.acked = append(h.acked, time.Now())
			h.mu.Unlock()
			return
		}
		h.busy++
		h.mu.Unlock()
		refusal, ok := errors.AsType[*chat.Error](err)
		if !ok || refusal.Code != chat.CodeBusy {
			h.t.Errorf("send %s of %s: %v", id, sender, err)
			return
		}
		ms, _ := refusal.Details[chat.DetailRetryAfter].(int64)
		time.Sleep(time.Duration(ms) * time.Millisecond)
	}
}

// open offers sends at a rate for some time, by whichever member, whether they are
// answered or not.
func (h *hot) open(rate float64, members int, span time.Duration) {
	var all sync.WaitGroup
	end := time.Now().Add(span)
	for n := 0; time.Now().Before(end); n++ {
		time.Sleep(time.Duration(rand.ExpFloat64() / rate * float64(time.Second)))
		all.Go(func() { h.send(who(rand.IntN(members)), fmt.Sprint(n)) })
	}
	all.Wait()
}

// closed has each writer send its next as soon as the last is acked.
func (h *hot) closed(writers int, span time.Duration) {
	var all sync.WaitGroup
	end := time.Now().Add(span)
	for i := range writers {
		all.Go(func() {
			for n := 0; time.Now().Before(end); n++ {
				h.send(who(i), fmt.Sprint(n))
			}
		})
	}
	all.Wait()
}

func (h *hot) all() []time.Duration {
	var all []time.Duration
	for _, took := range h.took {
		all = append(all, took...)
	}
	slices.Sort(all)
	return all
}

func at(sorted []time.Duration, part float64) time.Duration {
	return sorted[int(part*float64(len(sorted)-1))]
}

func (h *hot) row(name string, span time.Duration) string {
	all := h.all()
	stats := h.region.Stats()
	return fmt.Sprintf("| %s | %.0f | %d ms | %d ms | %.1f s | %.2f | %d | %d | %.1f | %.0f |", name,
		float64(len(all))/span.Seconds(), at(all, .5).Milliseconds(), at(all, .99).Milliseconds(), all[len(all)-1].Seconds(),
		float64(h.attempts)/float64(len(all)), h.busy, h.most, float64(stats.Conflicts+stats.Failed)/float64(len(all)), stats.ReadRRU/float64(len(all)))
}

// In the model of a region, one conversation takes what forty people write in the
// liveliest minute, at a time that nobody notices and at less than the cost of one
// transaction each.
func TestG10_AHotConversation(t *testing.T) {
	t.Parallel()
	for _, load := range []struct {
		rate float64
		span time.Duration
		p99  time.Duration
		most int // environments
	}{
		{60, 10 * time.Second, 100 * time.Millisecond, 30},
		{500, 3 * time.Second, 150 * time.Millisecond, 120},
	} {
		t.Run(fmt.Sprintf("%.0f a second", load.rate), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newHot(t, 40)
				h.open(load.rate, 40, load.span)
				all := h.all()
				require.LessOrEqual(t, at(all, .99), load.p99)
				require.LessOrEqual(t, float64(h.attempts)/float64(len(all)), 2.0)
				require.LessOrEqual(t, h.most, load.most)
				require.LessOrEqual(t, h.region.Stats().ReadRRU/float64(len(all)), 20.0, "read units of each message")
				h.requireLedger()
			})
		})
	}
}

// Of two who write as fast as they can, none gets less than two fifths, and none waits for
// long: who met the other opens the lane to it.
func TestG10_TwoWritersShareAConversation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHot(t, 2)
		h.closed(2, 10*time.Second)
		a, b := len(h.took[who(0)]), len(h.took[who(1)])
		require.GreaterOrEqual(t, min(a, b)*5, (a+b)*2, "%d and %d", a, b)
		require.Less(t, at(h.all(), .99), 100*time.Millisecond)
		require.Less(t, at(h.all(), 1), 700*time.Millisecond)
		h.requireLedger()
	})
}

// One connection that sends 150 frames a second, of which the limit admits ten a second
// and fifty at once, holds few environments, where three others write too.
func TestG10_AFloodHoldsFewEnvironments(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const span = 10 * time.Second
		h := newHot(t, 4)
		limiter := limit.New(limit.Rate{PerSecond: 10, Burst: 50}, time.Now)
		var all sync.WaitGroup
		end := time.Now().Add(span)
		for i := range 3 {
			all.Go(func() {
				for n := 0; time.Now().Before(end); n++ {
					h.send(who(i+1), fmt.Sprint(n))
					time.Sleep(time.Second / 2)
				}
			})
		}
		for n := 0; time.Now().Before(end); n++ {
			time.Sleep(time.Second / 150)
			if limiter.Take(who(0)) == 0 {
				all.Go(func() { h.send(who(0), fmt.Sprint(n)) })
			}
		}
		all.Wait()
		require.LessOrEqual(t, h.most, 50)
		for i := range 3 {
			took := h.took[who(i+1)]
			slices.Sort(took)
			require.Less(t, at(took, .99), 200*time.Millisecond)
		}
		h.requireLedger()
	})
}

// requireLedger requires that what was acked is in the ledger, once, without a hole.
func (h *hot) requireLedger() {
	h.t.Helper()
	messages := ledger(h.t, h.store(), who(0), h.group)
	requireDense(h.t, messages, len(h.all())+1) // the first is the group's own
}

// TestContention prints what one conversation takes, in the model of a region.
func TestContention(t *testing.T) {
	if !*printContention {
		t.Skip("a table for people; -contention prints it")
	}
	fmt.Println("| load | messages/s | p50 | p99 | slowest | transactions each | BUSY | environments | cancelled each | read units each |")
	row := func(name string, span time.Duration, load func(h *hot, span time.Duration)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHot(t, 40)
				load(h, span)
				fmt.Println(h.row(name, span))
				h.requireLedger()
			})
		})
	}
	for _, rate := range []float64{5, 10, 20, 40, 60, 100, 200, 500, 800} {
		span := min(20*time.Second, time.Duration(4000/rate*float64(time.Second)))
		row(fmt.Sprintf("open, %.0f/s of 40", rate), span, func(h *hot, span time.Duration) { h.open(rate, 40, span) })
	}
	for _, writers := range []int{1, 2, 4, 16, 40} {
		row(fmt.Sprintf("closed, %d writers", writers), 10*time.Second, func(h *hot, span time.Duration) { h.closed(writers, span) })
	}
}

// One member spends all it may at once on messages as large as can be. Ten others, who
// write as people do, hardly notice.
func TestG10_LargeMessagesOfOneDoNotShutOutTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const burst, perSecond, others, span = 200, 20, 10, 2 * time.Second // of a user, as template.yaml has it
		h := newHot(t, 40, store.WithConversationRate(400))
		end := time.Now().Add(span)
		data := []byte(`{"x":"` + strings.Repeat("x", 22<<10) + `"}`)
		var all sync.WaitGroup
		all.Go(func() {
			for n := 0; time.Now().Before(end); n++ {
				if n > burst {
					time.Sleep(time.Second / perSecond)
				}
				all.Go(func() {
					s := h.take()
					defer h.giveBack(s)
					m := chatIn(text(who(0), fmt.Sprint("large", n), ""), h.group)
					m.MessageType, m.Data = chat.TypeCustom, data
					if _, err := s.Append(h.t.Context(), m, ""); err != nil {
						requireCode(t, chat.CodeBusy, err)
					}
				})
			}
		})
		for i := range others {
			all.Go(func() {
				for n := 0; time.Now().Before(end); n++ {
					h.send(who(i+1), fmt.Sprint(n))
					time.Sleep(time.Second)
				}
			})
		}
		all.Wait()
		took := h.all()
		t.Logf("%d messages, p50 %v, p99 %v, %d BUSY, %d environments", len(took), at(took, .5), at(took, .99), h.busy, h.most)
		require.Zero(t, h.busy)
		require.Less(t, at(took, .99), time.Second)
	})
}
