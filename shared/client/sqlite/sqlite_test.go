package sqlite_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"inorder/shared/chat"
	"inorder/shared/client"
	"inorder/shared/client/internal/storetest"
	"inorder/shared/client/sqlite"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) (client.Store, func() client.Store) {
		path := filepath.Join(t.TempDir(), "a ?#%20 name.db")
		current := open(t, path)
		t.Cleanup(func() { require.NoError(t, current.Close()) })
		return current, func() client.Store {
			require.NoError(t, current.Close())
			current = open(t, path)
			return current
		}
	})
}

func open(t *testing.T, path string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path)
	require.NoError(t, err)
	return s
}

func TestAStoreIsOneProgramsAtATime(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	_, err := sqlite.Open(t.Context(), path)
	require.ErrorIs(t, err, sqlite.ErrInUse)
	require.NoError(t, s.Close())
	require.NoError(t, open(t, path).Close())
}

func TestAStoreIsItsOwnersOnly(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s := open(t, path)
	defer func() { require.NoError(t, s.Close()) }()
	_, err := s.Load(t.Context(), "alice")
	require.NoError(t, err)
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, e.Name())
	}
}

func TestANewerFileIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	require.NoError(t, open(t, path).Close())
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "PRAGMA user_version = 99")
	require.NoError(t, err)
	require.NoError(t, db.Close())
	_, err = sqlite.Open(t.Context(), path)
	require.ErrorContains(t, err, "version 99")
	require.ErrorContains(t, err, "use a newer program")
}

func TestABadPathIsAnError(t *testing.T) {
	t.Parallel()
	_, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "no", "such", "folder", "store.db"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// BenchmarkCommit is what an arriving message costs.
func BenchmarkCommit(b *testing.B) {
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "store.db"))
	require.NoError(b, err)
	defer func() { require.NoError(b, s.Close()) }()
	seq := int64(0)
	for b.Loop() {
		seq++
		m := chat.Message{ConversationID: group, Seq: seq, MessageID: "m", SenderID: "bob", MessageType: chat.TypeText, Text: "hello", Version: 1, Status: chat.Normal}
		c := client.Conversation{MaxContiguousSeq: seq, MaxSeenSeq: seq}
		c.ConversationID = group
		require.NoError(b, s.Commit(b.Context(), client.Batch{Messages: []chat.Message{m}, Conversations: []client.Conversation{c}}))
	}
}
