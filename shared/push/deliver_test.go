package push_test

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/push"
)

func frames(texts ...string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, text := range texts {
			if !yield([]byte(text)) {
				return
			}
		}
	}
}

func TestDeliver(t *testing.T) {
	t.Parallel()

	t.Run("serves each connection in order", func(t *testing.T) {
		t.Parallel()
		g := newGateway(t, always(200))
		var deliveries []push.Delivery
		for i := range 20 {
			deliveries = append(deliveries, push.Delivery{
				ConnectionID: fmt.Sprintf("c%d", i), Frames: frames("0", "1", "2", "3", "4", "5", "6", "7", "8", "9"),
			})
		}
		for i, o := range newPusher(g).Deliver(t.Context(), deliveries) {
			require.Equal(t, push.Outcome{Sent: 10}, o)
			require.Equal(t, "0123456789", strings.Join(g.postedTo(deliveries[i].ConnectionID), ""))
		}
	})

	t.Run("dismisses who has expired, and pushes it nothing", func(t *testing.T) {
		t.Parallel()
		g := newGateway(t, func(_, id string, _ int) int {
			if id == "stays" {
				return 403
			}
			return 200
		})
		p := newPusher(g)
		p.Now = func() time.Time { return time.UnixMilli(1000) }
		two := frames("1", "2")
		outcomes := p.Deliver(t.Context(), []push.Delivery{
			{ConnectionID: "expired", ExpiresAt: 1000, Frames: two},
			{ConnectionID: "valid", ExpiresAt: 1001, Frames: two},
			{ConnectionID: "unknown", Frames: two},
			{ConnectionID: "stays", ExpiresAt: 1, Frames: two},
		})
		require.Equal(t, push.Outcome{Err: push.ErrExpired}, outcomes[0])
		require.True(t, outcomes[0].Expired())
		require.False(t, outcomes[0].Gone())
		require.Equal(t, []string{`{"type":"goodbye","reason":"expired"}`, ""}, g.postedTo("expired"))
		require.Equal(t, []string{"1", "2"}, g.postedTo("valid"))
		require.Equal(t, []string{"1", "2"}, g.postedTo("unknown"))
		require.Error(t, outcomes[3].Err)
		require.False(t, outcomes[3].Expired(), "one that could not be closed is not forgotten")
	})

	t.Run("drops a connection's frames after one that failed", func(t *testing.T) {
		t.Parallel()
		g := newGateway(t, func(_, id string, attempt int) int {
			if id == "gone" && attempt == 2 {
				return 410
			}
			return 200
		})
		three := frames("1", "2", "3")
		outcomes := newPusher(g).Deliver(t.Context(), []push.Delivery{
			{ConnectionID: "gone", Frames: three}, {ConnectionID: "well", Frames: three},
		})
		require.Equal(t, 1, outcomes[0].Sent)
		require.True(t, outcomes[0].Gone())
		require.Equal(t, []string{"1"}, g.postedTo("gone"))
		require.Equal(t, push.Outcome{Sent: 3}, outcomes[1])
		require.False(t, outcomes[1].Gone())
	})

	t.Run("G10: a connection that never reads delays neither the others nor the batch", func(t *testing.T) {
		t.Parallel()
		g := newGateway(t, func(_, id string, _ int) int {
			if strings.HasPrefix(id, "stuck") {
				return 0
			}
			return 200
		})
		p := newPusher(g)
		p.PostTimeout, p.Parallel = 200*time.Millisecond, 4
		var deliveries []push.Delivery
		for i := range 3 {
			deliveries = append(deliveries, push.Delivery{ConnectionID: fmt.Sprintf("stuck%d", i), Frames: frames("1", "2")})
		}
		for i := range 20 {
			deliveries = append(deliveries, push.Delivery{ConnectionID: fmt.Sprintf("well%d", i), Frames: frames("1")})
		}
		within(t, 10*time.Second, func() {
			for i, o := range p.Deliver(t.Context(), deliveries) {
				stuck := strings.HasPrefix(deliveries[i].ConnectionID, "stuck")
				require.Equal(t, stuck, o.Err != nil, "%s: %v", deliveries[i].ConnectionID, o.Err)
				require.False(t, o.Gone())
				if stuck {
					require.Equal(t, 1, g.attemptsOf(deliveries[i].ConnectionID))
				}
			}
		})
	})

	t.Run("is over after its time whatever hangs", func(t *testing.T) {
		t.Parallel()
		g := newGateway(t, always(0))
		p := newPusher(g)
		p.DeliverTimeout, p.Parallel = 100*time.Millisecond, 2
		deliveries := make([]push.Delivery, 50)
		for i := range deliveries {
			deliveries[i] = push.Delivery{ConnectionID: fmt.Sprintf("c%d", i), Frames: frames("1")}
		}
		within(t, 5*time.Second, func() { // one after the other they would take 250 s
			for _, o := range p.Deliver(t.Context(), deliveries) {
				require.Error(t, o.Err)
				require.False(t, o.Gone())
			}
		})
	})

	t.Run("begins nothing once its time is over", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		asked := false
		outcomes := newPusher(newGateway(t, always(200))).Deliver(ctx, []push.Delivery{
			{ConnectionID: "late", Frames: func(func([]byte) bool) { asked = true }}, {ConnectionID: "expired", ExpiresAt: 1},
		})
		require.False(t, asked, "a frame was made for nobody")
		for _, o := range outcomes {
			require.ErrorIs(t, o.Err, context.Canceled)
			require.False(t, o.Gone() || o.Expired())
		}
	})

	t.Run("keeps its bound", func(t *testing.T) {
		t.Parallel()
		var g *gateway
		var once sync.Once
		g = newGateway(t, func(string, string, int) int {
			// The first ones are held, so that a fourth, which should wait, has
			// every chance to turn up.
			once.Do(func() {
				for end := time.Now().Add(100 * time.Millisecond); g.mostAtATime() < 4 && time.Now().Before(end); {
					runtime.Gosched()
				}
			})
			return 200
		})
		p := newPusher(g)
		p.Parallel = 3
		deliveries := make([]push.Delivery, 60)
		for i := range deliveries {
			deliveries[i] = push.Delivery{ConnectionID: fmt.Sprintf("c%d", i), Frames: frames("1")}
		}
		for _, o := range p.Deliver(t.Context(), deliveries) {
			require.NoError(t, o.Err)
		}
		require.Equal(t, 3, g.mostAtATime())
	})

	t.Run("does nothing for nobody", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, newPusher(newGateway(t, always(500))).Deliver(t.Context(), nil))
	})
}
