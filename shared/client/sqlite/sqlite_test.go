package sqlite_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/client/clienttest"
	"github.com/inorder-im/inorder/shared/client/sqlite"
	"github.com/inorder-im/inorder/shared/wire"
)

func TestStore(t *testing.T) {
	t.Parallel()
	clienttest.TestStore(t, func(t *testing.T) (client.Store, func() client.Store) {
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

// A file of the version that kept messages alone in its outbox opens, and they are sent.
func TestAnOlderFileOpens(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	require.NoError(t, open(t, path).Close())
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	const send = `{"to":"bob","clientMsgId":"a","messageType":"custom","data":{"n":9007199254740993},"text":"<&>","clientTime":1}`
	for _, statement := range []string{
		"PRAGMA user_version = 2",
		`INSERT INTO outbox VALUES ('a', 1, '{"order":1,"send":` + send + `}')`,
		`INSERT INTO outbox VALUES ('b', 2, '{"order":2,"send":{"conversationId":"group:g","clientMsgId":"b","messageType":"text","text":"hi"}}')`,
	} {
		_, err = db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	require.NoError(t, db.Close())
	store := open(t, path)
	state, err := store.Load(t.Context(), "alice")
	require.NoError(t, err)
	require.Equal(t, []client.OutboxEntry{
		{Order: 1, ClientMsgID: "a", Action: wire.ActionSend, Request: json.RawMessage(send)},
		{Order: 2, ClientMsgID: "b", ConversationID: "group:g", Action: wire.ActionSend, Request: json.RawMessage(`{"conversationId":"group:g","clientMsgId":"b","messageType":"text","text":"hi"}`)},
	}, state.Outbox)
	draft, ok := state.Outbox[0].Draft()
	require.True(t, ok)
	require.Equal(t, client.Draft{To: "bob", ClientMsgID: "a", Type: chat.TypeCustom, Text: "<&>", Data: json.RawMessage(`{"n":9007199254740993}`)}, draft)

	s, err := clienttest.Listen(t.Context())
	require.NoError(t, err)
	defer s.Close()
	s.MakeGroup("g", "alice", "bob")
	c, err := client.Dial(t.Context(), settings(s.URL(), store))
	require.NoError(t, err)
	require.NoError(t, c.Online(t.Context()))
	require.Eventually(t, func() bool { return len(c.Outbox()) == 0 }, 10*time.Second, 5*time.Millisecond)
	require.Len(t, s.Entries("group:g"), 1)
	require.Len(t, s.Entries(chat.SingleID("alice", "bob")), 1)
	c.Close()
	require.NoError(t, store.Close())
}

// What the user wrote of any kind is in the file before it is sent, and a next run does it.
func TestAnyWriteIsInTheFile(t *testing.T) {
	t.Parallel()
	s, err := clienttest.Listen(t.Context())
	require.NoError(t, err)
	defer s.Close()
	s.MakeGroup("g", "alice", "bob")
	s.Interfere(clienttest.Hooks{OnHandshake: func(string, string) int { return 503 }})
	path := filepath.Join(t.TempDir(), "store.db")
	store := open(t, path)
	c, err := client.Dial(t.Context(), settings(s.URL(), store))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for i, call := range []func() error{
		func() error { _, err := c.Send(ctx, client.Draft{ConversationID: group, Text: "hi"}); return err },
		func() error {
			_, err := c.SetTitle(ctx, client.SetTitle{ConversationID: group, Title: "title"})
			return err
		},
		func() error { _, err := c.CreateGroup(ctx, client.CreateGroup{Title: "made"}); return err },
		func() error { _, err := c.Clear(ctx, group, 1); return err },
	} {
		calls.Go(func() {
			_, ok := errors.AsType[*client.PendingError](call())
			require.True(t, ok)
		})
		require.Eventually(t, func() bool { return len(c.Outbox()) == i+1 }, 10*time.Second, time.Millisecond)
	}
	cancel()
	calls.Wait()
	left := c.Outbox()
	c.Close()
	require.NoError(t, store.Close())

	s.Interfere(clienttest.Hooks{})
	store = open(t, path)
	state, err := store.Load(t.Context(), "alice")
	require.NoError(t, err)
	require.Equal(t, left, state.Outbox)
	c, err = client.Dial(t.Context(), settings(s.URL(), store))
	require.NoError(t, err)
	require.NoError(t, c.Online(t.Context()))
	require.Eventually(t, func() bool { return len(c.Outbox()) == 0 }, 10*time.Second, 5*time.Millisecond)
	line, _ := c.Conversation(group)
	require.Equal(t, int64(1), line.ClearedSeq)
	require.Equal(t, "title", s.Entries(group)[1].Event.Title)
	require.Len(t, s.Conversations("alice"), 2)
	c.Close()
	require.NoError(t, store.Close())
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
		m := chat.Message{ConversationID: group, Seq: seq, MessageID: "m", SenderID: "bob", MessageType: chat.TypeText, Text: "hello", Version: 1, Status: chat.StatusNormal}
		c := client.Conversation{MaxContiguousSeq: seq, MaxSeenSeq: seq}
		c.ConversationID = group
		require.NoError(b, s.Commit(b.Context(), client.Batch{Messages: []chat.Message{m}, Conversations: []client.Conversation{c}}))
	}
}
