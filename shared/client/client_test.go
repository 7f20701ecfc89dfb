package client_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/client/clienttest"
)

func TestTwoDevicesTalk(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		alice, bob := online(t, config(s, "alice", "phone")), online(t, config(s, "bob", "phone"))
		sent, err := alice.Send(within(t, time.Minute), text(group, "hi"))
		require.NoError(t, err)
		require.Equal(t, int64(1), sent.Seq)
		_, err = bob.Send(within(t, time.Minute), text(group, "hello"))
		require.NoError(t, err)
		require.Equal(t, []string{"hi", "hello"}, texts(take(t, bob, group, 2)))
		require.Equal(t, []string{"hi", "hello"}, texts(take(t, alice, group, 2)))
		require.Zero(t, alice.Stats().Violations)
	})
}
