package client_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/client/clienttest"
	"github.com/inorder-im/inorder/shared/wire"
)

// requireUnread checks what devices of a user show as unread, and that a new device,
// which starts from the server's number, shows the same.
func requireUnread(t *testing.T, s *clienttest.Server, want int64, id chat.ConversationID, user string, devices ...*client.Client) {
	t.Helper()
	synctest.Wait()
	for i, device := range devices {
		line, _ := device.Conversation(id)
		require.Equal(t, want, line.Unread, "device %d, read to %d of %d", i, line.ReadSeq, line.LastSeq)
	}
	fresh := online(t, config(s, user, "fresh"))
	line, _ := fresh.Conversation(id)
	require.Equal(t, want, line.Unread, "a new device, read to %d of %d", line.ReadSeq, line.LastSeq)
	fresh.Close()
}

// What a user writes on any device is not unread, whatever it is, and whichever way
// the device hears of it.
func TestOwnEntriesAreNotUnread(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		ctx := within(t, time.Hour)
		cfg := config(s, "alice", "phone")
		cfg.Store = client.NewMemory()
		phone, laptop := online(t, cfg), online(t, config(s, "alice", "laptop"))
		id := chat.SingleID("alice", "bob")
		say := func(c *client.Client, text string) wire.Sent {
			t.Helper()
			sent, err := c.Send(ctx, client.Draft{To: "bob", Text: text})
			require.NoError(t, err)
			return sent
		}
		sent := say(phone, "1")
		say(laptop, "2")
		requireUnread(t, s, 0, id, "alice", phone, laptop)
		requireUnread(t, s, 2, id, "bob")
		edited, err := laptop.RequestEdit(ctx, wire.Edit{ConversationID: id, Seq: sent.Seq, MessageID: sent.MessageID, Version: 1, Text: "one"})
		require.NoError(t, err)
		recalled, err := phone.RequestRecall(ctx, wire.Recall{ConversationID: id, Seq: sent.Seq, MessageID: sent.MessageID})
		require.NoError(t, err)
		require.Equal(t, [2]int64{3, 4}, [2]int64{edited.Seq, recalled.Seq})
		requireUnread(t, s, 0, id, "alice", phone, laptop)
		requireUnread(t, s, 4, id, "bob")

		s.Post("bob", wire.Send{To: "alice", Text: "5"})
		s.Post("bob", wire.Send{To: "alice", Text: "6"})
		requireUnread(t, s, 2, id, "alice", phone, laptop)
		say(phone, "7")
		requireUnread(t, s, 2, id, "alice", phone, laptop)
		_, err = laptop.Ack(ctx, id, 0, 5)
		require.NoError(t, err)
		requireUnread(t, s, 1, id, "alice", phone, laptop)
		_, err = phone.Ack(ctx, id, 0, 6)
		require.NoError(t, err)
		requireUnread(t, s, 0, id, "alice", phone, laptop)
		say(laptop, "8")
		requireUnread(t, s, 0, id, "alice", phone, laptop)
		s.Post("bob", wire.Send{To: "alice", Text: "9"})
		synctest.Wait() // the phone has it
		phone.Close()
		phone = dial(t, cfg)
		line, _ := phone.Conversation(id)
		require.Equal(t, int64(1), line.Unread, "after a restart, before it is connected")

		for n := range 20 {
			_, err := phone.Send(ctx, client.Draft{To: "alice", Text: fmt.Sprint(n)})
			require.NoError(t, err)
		}
		requireUnread(t, s, 0, chat.SingleID("alice", "alice"), "alice", phone, laptop)
	})
}

// Until a message of one's own has come back, its seq is known by the answer alone.
func TestOwnMessagesAboveAGapAreNotUnread(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		cfg := config(s, "alice", "phone")
		cfg.GapWait = time.Hour
		phone := online(t, cfg)
		post(s, group, 1)
		synctest.Wait()
		s.Interfere(clienttest.Hooks{OnPush: func(string, string) (int, time.Duration) { return 0, 0 }})
		post(s, group, 1)
		_, err := phone.Send(within(t, time.Minute), text(group, "3"))
		require.NoError(t, err)
		s.Interfere(clienttest.Hooks{})
		s.Post("alice", wire.Send{ConversationID: group, Text: "4"})
		post(s, group, 1)
		requireUnread(t, s, 3, group, "alice", phone)
		require.Len(t, stored(t, phone, group), 1, "the rest is above the gap")
	})
}

// A device that has not everything goes by what the server says.
func TestUnreadStartsFromTheServersNumber(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		for n := range 10 {
			s.Post([]string{"alice", "bob"}[n/5], wire.Send{ConversationID: group, Text: fmt.Sprint(n)})
		}
		s.Interfere(first(1_000_000, wire.ActionSync, clienttest.Busy))
		alice := dial(t, config(s, "alice", "phone"))
		require.Error(t, alice.Online(within(t, time.Minute)))
		line, _ := alice.Conversation(group)
		require.Equal(t, int64(5), line.Unread, "it holds none of them")
		s.Interfere(clienttest.Hooks{})
		require.NoError(t, alice.Online(within(t, time.Hour)))
		requireUnread(t, s, 5, group, "alice", alice)
	})
}

// The server knows of seqs that were never given out, and does not count them; the
// device only sees that they are not there.
func TestUnreadOfSkippedSeqs(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		post(s, group, 10)
		s.Punch(group, 3, 4, 5, 6, 7, 8, 9)
		s.Interfere(clienttest.Hooks{OnLine: func(_ string, line *wire.Conversation) { line.Unread = 3 }})
		alice := online(t, config(s, "alice", "phone"))
		line, _ := alice.Conversation(group)
		require.Equal(t, int64(3), line.Unread)
		post(s, group, 1)
		synctest.Wait()
		line, _ = alice.Conversation(group)
		require.Equal(t, int64(4), line.Unread)
		_, err := alice.Ack(within(t, time.Minute), group, 0, 10)
		require.NoError(t, err)
		line, _ = alice.Conversation(group)
		require.Equal(t, int64(1), line.Unread)
	})
}

// In a conversation whose own entries lie further back than the server knows, a
// device says as the server does, or less where it knows better, and never counts
// what others wrote too low.
func TestUnreadBeyondWhatTheServerKnows(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		alice := online(t, config(s, "alice", "phone"))
		for n := range 2 * chat.MaxRuns {
			s.Post([]string{"alice", "bob"}[n%2], wire.Send{ConversationID: group, Text: fmt.Sprint(n)})
		}
		requireUnread(t, s, 12, group, "alice", alice) // of 16, four of the last eight are alice's
	})
}

// What a group holds from before its user came back is not unread, known or not.
func TestUnreadOfOneWhoComesBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		ctx := within(t, time.Hour)
		bob := online(t, config(s, "bob", "phone"))
		group, err := bob.CreateGroup(ctx, wire.CreateGroup{Title: "g", Members: []string{"alice"}, Visibility: chat.VisibleSinceJoin})
		require.NoError(t, err)
		id := group.ConversationID
		alice := online(t, config(s, "alice", "phone"))
		post(s, id, 2)
		requireUnread(t, s, 3, id, "alice", alice)
		_, err = bob.RemoveMembers(ctx, wire.ChangeMembers{ConversationID: id, Members: []string{"alice"}})
		require.NoError(t, err)
		post(s, id, 2)
		require.NoError(t, alice.Refresh(ctx))
		requireUnread(t, s, 4, id, "alice", alice)
		_, err = bob.AddMembers(ctx, wire.ChangeMembers{ConversationID: id, Members: []string{"alice"}})
		require.NoError(t, err)
		s.Post("alice", wire.Send{ConversationID: id, Text: "back"})
		post(s, id, 1)
		take(t, alice, id, 7) // it fills the gap, and does not ask what changed
		requireUnread(t, s, 2, id, "alice", alice)
	})
}
