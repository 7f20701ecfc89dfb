package sqlite_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/client/clienttest"
	"github.com/inorder-im/inorder/shared/wire"
)

// onDisk returns all that the files of a store contain.
func onDisk(t *testing.T, path string) []byte {
	t.Helper()
	files, err := filepath.Glob(path + "*")
	require.NoError(t, err)
	var all []byte
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		all = append(all, content...)
	}
	return all
}

// What was erased is not in the file any more, nor in its log: neither while the
// program runs on, nor where it was away meanwhile.
func TestG5_WhatWasErasedIsNotInTheFile(t *testing.T) {
	t.Parallel()
	s, err := clienttest.Listen(t.Context())
	require.NoError(t, err)
	defer s.Close()
	s.MakeGroup("g", "alice", "bob", "mallory")
	for i := range 300 {
		size := 10 + i*37%300
		if i%50 == 0 {
			size = 3000 // on pages of its own
		}
		s.Post("mallory", wire.Send{ConversationID: group, Text: fmt.Sprint("geheim", i, strings.Repeat("x", size))})
		s.Post("bob", wire.Send{ConversationID: group, Text: fmt.Sprint("offen", i)})
	}
	paths := map[string]string{"on": filepath.Join(t.TempDir(), "on.db"), "away": filepath.Join(t.TempDir(), "away.db")}
	clients := map[string]*client.Client{}
	start := func(name string) (*client.Client, func()) {
		store := open(t, paths[name])
		cfg := settings(s.URL(), store)
		cfg.DeviceID, cfg.StartWith = name, client.Everything
		c, err := client.Dial(t.Context(), cfg)
		require.NoError(t, err)
		require.NoError(t, c.Online(t.Context()))
		clients[name] = c
		return c, func() {
			c.Close()
			require.NoError(t, store.Close())
		}
	}
	on, stop := start("on")
	defer stop()
	_, leave := start("away")
	for name, path := range paths {
		require.True(t, bytes.Contains(onDisk(t, path), []byte("geheim")), name)
	}
	leave()

	s.Erase("mallory")
	require.Eventually(t, func() bool { return len(heldBy(t, on)) == 601 }, 10*time.Second, 5*time.Millisecond)
	away, stopAway := start("away")
	require.NoError(t, away.Refresh(t.Context()))
	for name, path := range paths {
		require.Equal(t, s.Entries(group), heldBy(t, clients[name]), name)
		content := onDisk(t, path)
		require.False(t, bytes.Contains(content, []byte("geheim")), name)
		require.True(t, bytes.Contains(content, []byte("offen299")), name)
	}
	stopAway()
}

func heldBy(t *testing.T, c *client.Client) []chat.Message {
	t.Helper()
	messages, err := c.Stored(t.Context(), group, 0, 1_000_000)
	require.NoError(t, err)
	return messages
}
