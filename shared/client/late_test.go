package client_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/client/clienttest"
	"github.com/inorder-im/inorder/shared/wire"
)

// Nobody waits for ten thousand messages to read the last ten.
func TestANewDeviceStartsWithTheEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		startWith, messages int
		cleared             int64
		base                int64
		pages               int
	}{
		"a long conversation":        {0, 1000, 0, 900, 1},
		"one beyond the bound":       {0, 301, 0, 201, 1},
		"one at the bound":           {0, 300, 0, 0, 3},
		"one that was mostly read":   {0, 1000, 750, 0, 3},
		"fewer, as the program says": {10, 31, 0, 21, 1},
		"all, as the program says":   {client.Everything, 1000, 0, 0, 10},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *clienttest.Server) {
				group := s.MakeGroup("g", "alice", "bob")
				want := post(s, group, c.messages)
				if c.cleared > 0 {
					_, err := online(t, config(s, "alice", "laptop")).Clear(within(t, time.Minute), group, c.cleared)
					require.NoError(t, err)
				}
				asked := s.Count(wire.ActionSync)
				cfg := config(s, "alice", "phone")
				cfg.Store, cfg.StartWith = client.NewMemory(), c.startWith
				alice := online(t, cfg)
				line, _ := alice.Conversation(group)
				require.Equal(t, c.base, line.BaseSeq)
				require.Equal(t, want[max(c.base, c.cleared):], texts(stored(t, alice, group)))
				require.Equal(t, int64(c.messages)-c.cleared, line.Unread, "of all, as the server says")
				require.Equal(t, c.pages, s.Count(wire.ActionSync)-asked)

				alice.Close()
				want = append(want, post(s, group, 400)...)
				alice = online(t, cfg)
				require.Equal(t, want[max(c.base, c.cleared):], texts(stored(t, alice, group)), "it is not new any more")
				if c.base > 0 {
					page, err := alice.History(within(t, time.Minute), group, c.base+1, 5)
					require.NoError(t, err)
					require.Equal(t, want[c.base-5:c.base], texts(page.Messages))
				}
			})
		})
	}
}

// What was pushed before the first pull is not lost by it, nor asked for again.
func TestANewDeviceStartsWithTheEndWhateverWasPushed(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		alice := dial(t, config(s, "alice", "phone"))
		s.Interfere(first(1000, wire.ActionChanges, clienttest.Busy))
		time.Sleep(time.Second)
		s.Interfere(clienttest.Hooks{OnPush: noPushes, OnRequest: first(1000, wire.ActionChanges, clienttest.Busy).OnRequest})
		want := post(s, group, 990)
		s.Interfere(first(1000, wire.ActionChanges, clienttest.Busy))
		want = append(want, post(s, group, 10)...)
		time.Sleep(time.Second)
		require.Equal(t, want[900:], texts(stored(t, alice, group)))
		line, _ := alice.Conversation(group)
		require.Equal(t, int64(1000), line.Unread, "what it has not asked for counts, too")
	})
}
