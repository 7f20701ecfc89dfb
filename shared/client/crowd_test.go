package client_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/client/clienttest"
)

// Hundreds of devices in one process, as a load tool has them.
func TestACrowd(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		const n = 200
		users := make([]string, n)
		for i := range users {
			users[i] = fmt.Sprintf("user%03d", i)
		}
		group := s.MakeGroup("g", users...)
		clients := make([]*client.Client, n)
		var all sync.WaitGroup
		for i, user := range users {
			clients[i] = dial(t, config(s, user, "phone"))
			all.Go(func() { _ = clients[i].Online(within(t, time.Minute)) })
		}
		all.Wait()
		synctest.Wait()
		for i, c := range clients[:20] {
			all.Go(func() {
				if _, err := c.Send(within(t, time.Minute), text(group, fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		synctest.Wait()
		want := s.Ledger(users[0], group)
		require.Len(t, want, 20)
		for _, c := range clients {
			require.Equal(t, want, stored(t, c, group))
		}
	})
}

// BenchmarkSend is one device's sends to a server that answers at once.
func BenchmarkSend(b *testing.B) {
	s, err := clienttest.Listen(b.Context())
	require.NoError(b, err)
	defer s.Close()
	group := s.MakeGroup("g", "alice")
	cfg := config(s, "alice", "phone")
	cfg.HTTPClient = nil
	c, err := client.Dial(b.Context(), cfg)
	require.NoError(b, err)
	defer c.Close()
	for b.Loop() {
		if _, err := c.Send(b.Context(), text(group, "x")); err != nil {
			b.Fatal(err)
		}
	}
}
