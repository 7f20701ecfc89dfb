package client_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/client/clienttest"
	"github.com/inorder-im/inorder/shared/wire"
)

// secrets: alice writes more than a page of the store, edits, recalls and answers;
// bob answers her.
func secrets(t *testing.T, s *clienttest.Server, alice *client.Client, group chat.ConversationID) {
	t.Helper()
	revisions(t, s, alice, group, true)
	for i := range 150 {
		s.Post("alice", wire.Send{ConversationID: group, Text: fmt.Sprintf("secret %d", i)})
	}
	last := s.Ledger("alice", group)
	target := last[len(last)-1]
	s.Post("bob", wire.Send{ConversationID: group, Text: "I see", ReplyTo: &chat.ReplyTo{Seq: target.Seq, MessageID: target.MessageID}})
	s.Post("alice", wire.Send{ConversationID: group, MessageType: chat.TypeFile, Data: []byte(`{"name": "secret.pdf"}`)})
	s.Post("alice", wire.Send{ConversationID: group, Text: "the last secret"})
}

// requireErased checks that a device holds what the server has, and nothing of hers.
func requireErased(t *testing.T, s *clienttest.Server, c *client.Client, user string, group chat.ConversationID, name string) {
	t.Helper()
	messages := stored(t, c, group)
	require.Equal(t, s.Ledger(user, group), messages, name)
	for _, m := range messages {
		require.NotContains(t, m.Text+string(m.Data), "secret", name)
		require.False(t, m.SenderID == "alice" && (m.Text != "" || m.SenderDeviceID != ""), "%s: seq %d", name, m.Seq)
	}
	line, ok := c.Conversation(group)
	require.True(t, ok)
	if line.LastMessage != nil {
		require.NotContains(t, line.LastMessage.Text, "secret", name)
	}
}

func TestG5_AnErasureReachesDevices(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob", "carol")
		alice := online(t, config(s, "alice", "phone"))
		live := online(t, config(s, "bob", "phone"))
		away := config(s, "bob", "tablet")
		away.Store = client.NewMemory()
		tablet := online(t, away)
		secrets(t, s, alice, group)
		n := len(s.Ledger("bob", group))
		for _, c := range []*client.Client{alice, live, tablet} {
			take(t, c, group, n)
		}
		tablet.Close()
		require.Contains(t, texts(stored(t, live, group)), "the last secret")

		s.Erase("alice")
		s.Post("bob", wire.Send{ConversationID: group, Text: "who was that?"})
		for name, c := range map[string]*client.Client{
			"live": live, "her own": alice, "back after a while": online(t, away), "new": online(t, config(s, "carol", "phone")),
		} {
			take(t, c, group, n+2)
			user := "bob"
			if name == "new" {
				user = "carol"
			}
			requireErased(t, s, c, user, group, name)
		}
		page, err := live.History(within(t, time.Minute), group, 0, 10)
		require.NoError(t, err)
		require.Equal(t, s.Ledger("bob", group)[n-8:], page.Messages)
	})
}

// The event comes before some of what it is about, and twice.
func TestG5_AnErasureThatIsPushedFirst(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		cfg := config(s, "bob", "phone")
		cfg.GapWait = time.Hour
		bob := online(t, cfg)
		var n atomic.Int64
		s.Interfere(clienttest.Hooks{OnPush: func(string, string) (int, time.Duration) {
			return 2, time.Minute - time.Duration(n.Add(1))*time.Second // all in reverse
		}})
		s.Post("alice", wire.Send{ConversationID: group, Text: "secret 1"})
		s.Post("alice", wire.Send{ConversationID: group, Text: "secret 2"})
		s.Erase("alice")
		take(t, bob, group, 3)
		requireErased(t, s, bob, "bob", group, "bob")
		require.Zero(t, s.Count(wire.ActionSync), "the pushes had the content")
	})
}

// Who looks at the device is told which messages are different now.
func TestG5_AnErasureIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		bob := online(t, config(s, "bob", "phone"))
		s.Post("bob", wire.Send{ConversationID: group, Text: "hi"})
		s.Post("alice", wire.Send{ConversationID: group, Text: "secret"})
		take(t, bob, group, 2)
		changes := bob.Changes(within(t, time.Minute))
		s.Erase("alice")
		for change := range changes {
			if m, ok := change.(client.MessagesChanged); ok {
				require.Equal(t, client.MessagesChanged{ConversationID: group, FromSeq: 2, ThroughSeq: 3}, m)
				break
			}
		}
		s.Erase("alice") // again, as where something was missed
		take(t, bob, group, 4)
		requireErased(t, s, bob, "bob", group, "bob")
	})
}

// A page of history that the server read before it blanked what is on it.
func TestG5_HistoryDoesNotBringBackWhatWasErased(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		s.Post("alice", wire.Send{ConversationID: group, Text: "secret"})
		s.Post("alice", wire.Send{ConversationID: group, Text: "the erasure, which its history does not show yet"})
		held, second := s.Ledger("bob", group)[0], s.Ledger("bob", group)[1]
		want, _ := held.Erased()
		store := client.NewMemory()
		_, err := store.Load(t.Context(), "bob")
		require.NoError(t, err)
		erasure := chat.Message{
			ConversationID: group, Seq: 2, MessageID: second.MessageID, SenderID: chat.SystemSender, MessageType: chat.TypeEvent,
			Event: &chat.Event{Kind: chat.EventErase, Erased: "alice"}, Version: 1, Status: chat.StatusNormal,
		}
		require.NoError(t, store.Commit(t.Context(), client.Batch{
			Messages: []chat.Message{want, erasure},
			Conversations: []client.Conversation{{
				Conversation: wire.Conversation{ConversationID: group}, MaxContiguousSeq: 2, MaxSeenSeq: 2,
			}},
		}))
		cfg := config(s, "bob", "phone")
		cfg.Store = store
		page, err := dial(t, cfg).History(within(t, time.Minute), group, 2, 0)
		require.NoError(t, err)
		require.Equal(t, []chat.Message{want}, page.Messages)
		require.False(t, strings.Contains(page.Messages[0].Text, "secret"))
	})
}
