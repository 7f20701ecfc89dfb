package client_test

import (
	"context"
	"encoding/json"
	"errors"
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

func TestGroups(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		ctx := within(t, time.Hour)
		alice, bob := online(t, config(s, "alice", "phone")), online(t, config(s, "bob", "phone"))
		made, err := alice.CreateGroup(ctx, wire.CreateGroup{Title: "Lunch", Members: []string{"bob"}, ClientMsgID: "make"})
		require.NoError(t, err)
		again, err := alice.CreateGroup(ctx, wire.CreateGroup{Title: "Lunch", Members: []string{"bob"}, ClientMsgID: "make"})
		require.NoError(t, err)
		require.True(t, again.Duplicate)
		require.Equal(t, made.ConversationID, again.ConversationID)
		group := made.ConversationID
		line, ok := alice.Conversation(group)
		require.True(t, ok)
		require.Equal(t, "Lunch", line.Title)

		_, err = alice.AddMembers(ctx, wire.ChangeMembers{ConversationID: group, Members: []string{"carol", "dave", "eve"}})
		require.NoError(t, err)
		_, err = alice.RemoveMembers(ctx, wire.ChangeMembers{ConversationID: group, Members: []string{"dave"}})
		require.NoError(t, err)
		_, err = alice.SetRole(ctx, wire.SetRole{ConversationID: group, UserID: "bob", Role: chat.RoleAdmin})
		require.NoError(t, err)
		_, err = alice.SetTitle(ctx, wire.SetTitle{ConversationID: group, Title: "Dinner"})
		require.NoError(t, err)
		take(t, bob, group, 5)
		line, _ = bob.Conversation(group)
		require.Equal(t, "Dinner", line.Title)
		require.Equal(t, 4, line.MemberCount)
		require.Equal(t, "alice", line.Owner)

		members, version, err := bob.Members(ctx, group)
		require.NoError(t, err)
		require.Equal(t, int64(4), version)
		roles := map[string]chat.Role{}
		for _, m := range members {
			roles[m.UserID] = m.Role
		}
		require.Equal(t, map[string]chat.Role{"alice": chat.RoleOwner, "bob": chat.RoleAdmin, "carol": chat.RolePlain, "eve": chat.RolePlain}, roles)

		_, err = bob.Leave(ctx, wire.ChangeGroup{ConversationID: group})
		require.NoError(t, err)
		require.NoError(t, bob.Refresh(ctx))
		line, _ = bob.Conversation(group)
		require.Equal(t, int64(6), line.LeftSeq)
		require.Equal(t, int64(6), line.MaxContiguousSeq)
		_, err = alice.Dissolve(ctx, wire.ChangeGroup{ConversationID: group})
		require.NoError(t, err)
		take(t, alice, group, 7)
		line, _ = alice.Conversation(group)
		require.Equal(t, chat.StateDissolved, line.State)
		_, err = alice.Send(ctx, text(group, "anyone?"))
		require.Equal(t, chat.CodeDissolved, chat.CodeOf(err))
		pong, err := alice.Ping(ctx)
		require.NoError(t, err)
		require.Equal(t, time.Now().UnixMilli(), pong.ServerTime)
	})
}

func TestWhatTheServerRefusesIsATypedError(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		ctx := within(t, time.Hour)
		group := s.MakeGroup("g", "alice", "bob")
		alice, bob := online(t, config(s, "alice", "phone")), online(t, config(s, "bob", "phone"))
		sent, err := alice.Send(ctx, client.Draft{ConversationID: group, Type: chat.TypeCustom, Data: json.RawMessage(`{"a": 1}`)})
		require.NoError(t, err)
		_, err = bob.RequestRecall(ctx, wire.Recall{ConversationID: group, Seq: sent.Seq, MessageID: sent.MessageID})
		require.Equal(t, chat.CodeForbidden, chat.CodeOf(err))
		_, err = alice.RequestEdit(ctx, wire.Edit{ConversationID: group, Seq: sent.Seq, MessageID: sent.MessageID, Version: 7, Text: "x"})
		refused, ok := errors.AsType[*chat.Error](err)
		require.True(t, ok)
		require.Equal(t, chat.CodeVersionConflict, refused.Code)
		require.EqualValues(t, 1, refused.Details["version"])
		_, _, err = alice.Members(ctx, "group:none")
		require.Equal(t, chat.CodeNotFound, chat.CodeOf(err))
		_, err = alice.History(ctx, "group:none", 0, 0)
		require.Equal(t, chat.CodeNotFound, chat.CodeOf(err))
		_, err = alice.SetTitle(ctx, wire.SetTitle{ConversationID: group, Title: string(make([]byte, 40_000))})
		require.Equal(t, chat.CodeTooLarge, chat.CodeOf(err))
	})
}

func TestACallEndsWithItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		s.Interfere(first(1_000_000, wire.ActionAck, clienttest.Busy))
		alice := online(t, config(s, "alice", "phone"))
		_, err := alice.Ack(within(t, time.Minute), "group:g", 1, 0)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "too much at once", "it says what stood in the way")
		require.Less(t, s.Count(wire.ActionAck), 30)
	})
}

func TestPositions(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		ctx := within(t, time.Hour)
		group := s.MakeGroup("g", "alice", "bob", "carol")
		alice, bob := online(t, config(s, "alice", "phone")), online(t, config(s, "bob", "phone"))
		laptop := online(t, config(s, "bob", "laptop"))
		for i := range 5 {
			_, err := alice.Send(ctx, text(group, fmt.Sprint(i)))
			require.NoError(t, err)
		}
		take(t, bob, group, 5)
		line, _ := bob.Conversation(group)
		require.Equal(t, int64(5), line.Unread)
		acked, err := bob.Ack(ctx, group, 5, 3)
		require.NoError(t, err)
		require.Equal(t, wire.Acked{DeliveredSeq: 5, ReadSeq: 3}, acked)
		acked, err = bob.Ack(ctx, group, 0, 2)
		require.NoError(t, err)
		require.Equal(t, int64(3), acked.ReadSeq, "it does not go back")
		synctest.Wait()
		for _, device := range []*client.Client{bob, laptop} {
			line, _ = device.Conversation(group)
			require.Equal(t, int64(2), line.Unread)
			require.Equal(t, int64(3), line.ReadSeq)
		}
		line, _ = alice.Conversation(group)
		require.Equal(t, map[string]client.Positions{"bob": {DeliveredSeq: 5, ReadSeq: 3}}, line.Receipts)
		delivered, read, err := alice.Receipts(ctx, group, 3)
		require.NoError(t, err)
		require.Equal(t, []string{"bob"}, delivered)
		require.Equal(t, []string{"bob"}, read)
		delivered, read, err = alice.Receipts(ctx, group, 4)
		require.NoError(t, err)
		require.Equal(t, []string{"bob"}, delivered)
		require.Empty(t, read)

		// An old receipt, out of order.
		s.Say("alice", "phone", `{"type":"receipt","conversationId":"group:g","userId":"bob","deliveredSeq":4,"readSeq":1}`)
		synctest.Wait()
		line, _ = alice.Conversation(group)
		require.Equal(t, client.Positions{DeliveredSeq: 5, ReadSeq: 3}, line.Receipts["bob"])
	})
}

// Nobody learns anything from it that one has one's own messages.
func TestOwnMessagesAreNotAcked(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		ctx := within(t, time.Hour)
		id := chat.SingleID("alice", "bob")
		users := []*client.Client{online(t, config(s, "alice", "phone")), online(t, config(s, "bob", "phone"))}
		seen := []int64{0, 0}
		for n := range 20 {
			sent, err := users[n%2].Send(ctx, client.Draft{To: []string{"bob", "alice"}[n%2], Text: "x"})
			require.NoError(t, err)
			for i, user := range users {
				for m, err := range user.Messages(ctx, id, seen[i]) {
					require.NoError(t, err)
					if seen[i] = m.Seq; m.Seq == sent.Seq {
						break
					}
				}
				acked, err := user.Ack(ctx, id, sent.Seq, sent.Seq)
				require.NoError(t, err)
				require.GreaterOrEqual(t, acked.ReadSeq, sent.Seq-1)
			}
		}
		require.Equal(t, 20, s.Count(wire.ActionAck), "of each message by the one who did not write it")
		line, _ := users[0].Conversation(id)
		require.Zero(t, line.Unread)
		_, err := users[0].Ack(ctx, id, 20, 20)
		require.NoError(t, err)
		require.Equal(t, 20, s.Count(wire.ActionAck), "nor is anything acked twice")
		_, err = users[0].Ack(ctx, "group:none", 1, 1)
		require.Equal(t, chat.CodeNotFound, chat.CodeOf(err))
	})
}

func TestClearReachesAllOfTheUsersDevices(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		ctx := within(t, time.Hour)
		group := s.MakeGroup("g", "alice", "bob")
		phone, laptop := online(t, config(s, "alice", "phone")), online(t, config(s, "alice", "laptop"))
		bob := online(t, config(s, "bob", "phone"))
		want := post(s, group, 5)
		take(t, phone, group, 5)
		cleared, err := phone.Clear(ctx, group, 3)
		require.NoError(t, err)
		require.Equal(t, int64(3), cleared.ClearedSeq)
		require.NoError(t, laptop.Refresh(ctx))
		for _, device := range []*client.Client{phone, laptop} {
			require.Equal(t, want[3:], texts(stored(t, device, group)))
			line, _ := device.Conversation(group)
			require.Equal(t, int64(2), line.Unread)
		}
		require.Equal(t, want, texts(take(t, bob, group, 5)))
		require.Equal(t, want[3:], texts(stored(t, online(t, config(s, "alice", "tablet")), group)))
	})
}

// What is cleared while it is still on its way does not come up later.
func TestWhatWasClearedDoesNotComeBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		cfg := config(s, "alice", "phone")
		cfg.GapWait, cfg.Store = time.Hour, client.NewMemory()
		alice := online(t, cfg)
		s.Interfere(nth(1, 1, time.Minute))
		want := post(s, group, 4)
		synctest.Wait()
		_, err := alice.Clear(within(t, time.Second), group, 3)
		require.NoError(t, err)
		time.Sleep(2 * time.Minute)
		require.Equal(t, want[3:], texts(stored(t, alice, group)))
		all, err := cfg.Store.Messages(t.Context(), group, 0, chat.MaxSeq, 10)
		require.NoError(t, err)
		require.Len(t, all, 1)
	})
}
