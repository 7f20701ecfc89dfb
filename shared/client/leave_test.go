package client_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/client/clienttest"
	"github.com/inorder-im/inorder/shared/wire"
)

func listedIDs(c *client.Client) []chat.ConversationID {
	ids := []chat.ConversationID{}
	for _, line := range c.Conversations() {
		ids = append(ids, line.ConversationID)
	}
	return ids
}

// What the user has left and cleared on one device is off the list on all of them,
// and on it again once the user is added again.
func TestWhatIsLeftAndClearedIsOffTheList(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		ctx := within(t, time.Hour)
		alice := online(t, config(s, "alice", "phone"))
		phone, laptop := online(t, config(s, "bob", "phone")), online(t, config(s, "bob", "laptop"))
		made, err := alice.CreateGroup(ctx, wire.CreateGroup{Title: "Lunch", Members: []string{"bob"}})
		require.NoError(t, err)
		group := made.ConversationID
		_, err = alice.Dissolve(ctx, wire.ChangeGroup{ConversationID: group})
		require.NoError(t, err)
		take(t, laptop, group, 2)

		left, err := phone.Leave(ctx, wire.ChangeGroup{ConversationID: group})
		require.NoError(t, err, "of a dissolved group too")
		require.NoError(t, phone.Refresh(ctx))
		require.Equal(t, []chat.ConversationID{group}, listedIDs(phone))
		_, err = phone.Clear(ctx, group, left.Seq)
		require.NoError(t, err)
		require.Empty(t, listedIDs(phone), "at once")
		require.NoError(t, laptop.Refresh(ctx))
		require.Empty(t, listedIDs(laptop))
		require.Empty(t, stored(t, laptop, group))
		require.Empty(t, listedIDs(online(t, config(s, "bob", "tablet"))))
		line, ok := laptop.Conversation(group)
		require.True(t, ok)
		require.True(t, line.Hidden())
	})
}

func TestWhoIsAddedAgainHasTheConversationBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		ctx := within(t, time.Hour)
		alice, bob := online(t, config(s, "alice", "phone")), online(t, config(s, "bob", "phone"))
		made, err := alice.CreateGroup(ctx, wire.CreateGroup{Title: "Lunch", Members: []string{"bob"}})
		require.NoError(t, err)
		group := made.ConversationID
		_, err = alice.RemoveMembers(ctx, wire.ChangeMembers{ConversationID: group, Members: []string{"bob"}})
		require.NoError(t, err)
		require.NoError(t, bob.Refresh(ctx))
		_, err = bob.Clear(ctx, group, 2)
		require.NoError(t, err)
		require.Empty(t, listedIDs(bob))

		_, err = alice.AddMembers(ctx, wire.ChangeMembers{ConversationID: group, Members: []string{"bob"}})
		require.NoError(t, err)
		require.Equal(t, []string{""}, texts(take(t, bob, group, 1)), "by the push alone")
		require.Equal(t, []chat.ConversationID{group}, listedIDs(bob))
	})
}

// A device that was away for so long that it gets the whole list hears of what was
// hidden meanwhile; one that begins asks for nothing that is hidden.
func TestADeviceThatWasAwayHearsOfWhatIsHidden(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		ctx := within(t, time.Hour)
		const groups, stay = 30, 7
		s.ListSize = 4
		var ids []chat.ConversationID
		for i := range groups {
			ids = append(ids, s.MakeGroup(fmt.Sprintf("%02d", i), "alice", "bob"))
			s.Post("alice", wire.Send{ConversationID: ids[i], Text: "hi"})
		}
		away := config(s, "bob", "laptop")
		away.Store = client.NewMemory()
		laptop := online(t, away)
		require.Len(t, listedIDs(laptop), groups)
		laptop.Close()

		phone := online(t, config(s, "bob", "phone"))
		for i, id := range ids {
			if i == stay {
				continue
			}
			left, err := phone.Leave(ctx, wire.ChangeGroup{ConversationID: id})
			require.NoError(t, err)
			_, err = phone.Clear(ctx, id, left.Seq)
			require.NoError(t, err)
		}
		require.NoError(t, phone.Refresh(ctx))
		require.Equal(t, []chat.ConversationID{ids[stay]}, listedIDs(phone))
		require.Equal(t, []chat.ConversationID{ids[stay]}, listedIDs(online(t, away)))
		require.Equal(t, []chat.ConversationID{ids[stay]}, listedIDs(online(t, config(s, "bob", "tablet"))), "behind pages of nothing")
	})
}
