package client_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/client/clienttest"
	"github.com/inorder-im/inorder/shared/wire"
)

// revisions: alice writes "one", edits it twice, and recalls it; "two" stays
// edited.
func revisions(t *testing.T, s *clienttest.Server, alice *client.Client, group chat.ConversationID, recall bool) {
	t.Helper()
	ctx := within(t, time.Hour)
	for _, word := range []string{"one", "two"} {
		sent, err := alice.Send(ctx, text(group, word))
		require.NoError(t, err)
		for version := range int64(2) {
			edited, err := alice.RequestEdit(ctx, wire.Edit{
				ConversationID: group, Seq: sent.Seq, MessageID: sent.MessageID, Version: version + 1, Text: word + " edited",
			})
			require.NoError(t, err)
			require.Equal(t, version+2, edited.Version)
		}
		if word == "one" && recall {
			_, err := alice.RequestRecall(ctx, wire.Recall{ConversationID: group, Seq: sent.Seq, MessageID: sent.MessageID})
			require.NoError(t, err)
		}
	}
}

func TestEveryDeviceHoldsTheLastState(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		alice := online(t, config(s, "alice", "phone"))
		live := online(t, config(s, "bob", "phone"))
		revisions(t, s, alice, group, true)
		late := online(t, config(s, "bob", "laptop"))
		want := s.Ledger("bob", group)
		require.Len(t, want, 7)
		require.Equal(t, chat.StatusRecalled, want[0].Status)
		require.Empty(t, want[1].Text, "a recall empties the edits too")
		require.Equal(t, "two edited", want[4].Text)
		for name, device := range map[string]*client.Client{"live": live, "late": late, "own": alice} {
			take(t, device, group, 7)
			require.Equal(t, want, stored(t, device, group), name)
		}
		require.Zero(t, live.Stats().Gaps)
	})
}

func TestEventsThatArriveBeforeTheirTargets(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		alice := online(t, config(s, "alice", "phone"))
		cfg := config(s, "bob", "phone")
		cfg.GapWait = time.Hour
		bob := online(t, cfg)
		var n atomic.Int64
		s.Interfere(clienttest.Hooks{OnPush: func(userID, _ string) (int, time.Duration) {
			if userID != "bob" {
				return 1, 0
			}
			return 1, time.Minute - time.Duration(n.Add(1))*time.Second // all in reverse
		}})
		revisions(t, s, alice, group, true)
		take(t, bob, group, 7)
		require.Equal(t, s.Ledger("bob", group), stored(t, bob, group))
		require.Zero(t, s.Count(wire.ActionSync))
	})
}

// A page read after a recall, over an edit that was pushed before it: what the
// push said must not come back.
func TestAnEarlyEditOfARecalledMessageIsEmpty(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		alice := online(t, config(s, "alice", "phone"))
		bob := online(t, config(s, "bob", "phone"))
		var n atomic.Int64
		s.Interfere(clienttest.Hooks{OnPush: func(userID, _ string) (int, time.Duration) {
			if userID == "bob" && n.Add(1) == 2 { // the first edit: only that is pushed
				return 1, 0
			}
			return 0, 0
		}})
		s.PageSize = 1
		revisions(t, s, alice, group, true)
		take(t, bob, group, 7)
		require.Equal(t, s.Ledger("bob", group), stored(t, bob, group))
	})
}

func TestHistoryShowsWhatTheDeviceKnowsOfLaterEvents(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		alice := online(t, config(s, "alice", "phone"))
		bob := online(t, config(s, "bob", "phone"))
		revisions(t, s, alice, group, true)
		take(t, bob, group, 7)
		page, err := bob.History(within(t, time.Minute), group, 0, 3)
		require.NoError(t, err)
		require.Equal(t, s.Ledger("bob", group)[4:], page.Messages)
		require.True(t, page.HasMore)
		page, err = bob.History(within(t, time.Minute), group, page.NextBeforeSeq, 0)
		require.NoError(t, err)
		require.Equal(t, s.Ledger("bob", group)[:4], page.Messages)
		require.False(t, page.HasMore)
	})
}

func TestARecallOfAMessageThatWasClearedEmptiesItsEdits(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		alice := online(t, config(s, "alice", "phone"))
		bob := online(t, config(s, "bob", "phone"))
		revisions(t, s, alice, group, false)
		take(t, bob, group, 6)
		_, err := bob.Clear(within(t, time.Minute), group, 1)
		require.NoError(t, err)
		target := stored(t, alice, group)[0]
		_, err = alice.RequestRecall(within(t, time.Minute), wire.Recall{ConversationID: group, Seq: target.Seq, MessageID: target.MessageID})
		require.NoError(t, err)
		require.NoError(t, bob.Refresh(within(t, time.Minute)))
		messages := stored(t, bob, group)
		require.Equal(t, s.Ledger("bob", group), messages)
		require.Equal(t, int64(2), messages[0].Seq)
		require.Equal(t, chat.StatusRecalled, messages[0].Status)
	})
}

// A History page that the server read before a recall, though the device has the
// recall already.
func TestAHistoryPageThatIsOutOfDate(t *testing.T) {
	t.Parallel()
	for name, event := range map[string]chat.Message{
		"recalled": {MessageType: chat.TypeEvent, Event: &chat.Event{Kind: chat.EventRecall, TargetSeq: 1, TargetMessageID: "m1", Version: 2}},
		"edited":   {MessageType: chat.TypeEvent, Text: "new", Event: &chat.Event{Kind: chat.EventEdit, TargetSeq: 1, TargetMessageID: "m1", Version: 2}},
		"another":  {MessageType: chat.TypeEvent, Text: "new", Event: &chat.Event{Kind: chat.EventEdit, TargetSeq: 1, TargetMessageID: "other", Version: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *clienttest.Server) {
				group := s.MakeGroup("g", "alice")
				s.Post("alice", wire.Send{ConversationID: group, Text: "old"})
				s.Post("alice", wire.Send{ConversationID: group, Text: "the event, which its history does not show yet"})
				store := client.NewMemory()
				_, err := store.Load(t.Context(), "alice")
				require.NoError(t, err)
				target := s.Ledger("alice", group)[0]
				event.ConversationID, event.Seq, event.MessageID = group, 2, s.Ledger("alice", group)[1].MessageID
				if event.Event.TargetMessageID == "m1" {
					event.Event.TargetMessageID = target.MessageID
				}
				require.NoError(t, store.Commit(t.Context(), client.Batch{
					Messages: []chat.Message{event},
					Conversations: []client.Conversation{{
						Conversation: wire.Conversation{ConversationID: group}, MaxContiguousSeq: 2, MaxSeenSeq: 2,
					}},
				}))
				cfg := config(s, "alice", "phone")
				cfg.Store = store
				page, err := dial(t, cfg).History(within(t, time.Minute), group, 2, 0)
				require.NoError(t, err)
				switch want := target; name {
				case "recalled":
					want.Status, want.Text, want.Version = chat.StatusRecalled, "", 2
					require.Equal(t, want, page.Messages[0])
				case "edited":
					want.Text, want.Version = "new", 2
					require.Equal(t, want, page.Messages[0])
				default:
					require.Equal(t, want, page.Messages[0])
				}
			})
		})
	}
}

// What was made of a message while the user was away is not for it: a device keeps
// what it has, and one that knows nothing gets the same.
func TestG9_AWithheldEditChangesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		ctx := within(t, time.Hour)
		alice := online(t, config(s, "alice", "phone"))
		bob := online(t, config(s, "bob", "phone"))
		made, err := alice.CreateGroup(ctx, wire.CreateGroup{Title: "g", Members: []string{"bob"}, Visibility: chat.VisibleSinceJoin})
		require.NoError(t, err)
		group := made.ConversationID
		before, err := alice.Send(ctx, text(group, "before"))
		require.NoError(t, err)
		take(t, bob, group, 2)
		change := wire.ChangeMembers{ConversationID: group, Members: []string{"bob"}}
		_, err = alice.RemoveMembers(ctx, change)
		require.NoError(t, err)
		away, err := alice.Send(ctx, text(group, "away"))
		require.NoError(t, err)
		_, err = alice.AddMembers(ctx, change)
		require.NoError(t, err)
		for _, target := range []wire.Sent{before, away} {
			_, err = alice.RequestEdit(ctx, wire.Edit{ConversationID: group, Seq: target.Seq, MessageID: target.MessageID, Version: 1, Text: "edited"})
			require.NoError(t, err)
		}
		require.NoError(t, bob.Refresh(ctx))
		late := online(t, config(s, "bob", "laptop"))
		require.NoError(t, late.Refresh(ctx))
		for name, device := range map[string]*client.Client{"live": bob, "late": late} {
			messages := stored(t, device, group)
			require.Equal(t, s.Ledger("bob", group), messages, name)
			require.Len(t, messages, 6, name) // but for the one that was sent meanwhile
			require.Equal(t, "before", messages[1].Text, name)
			for _, edit := range messages[4:] {
				require.True(t, edit.Withheld, name)
				require.Empty(t, edit.Text, name)
			}
			page, err := device.History(ctx, group, 0, 0) // of one time of membership
			require.NoError(t, err)
			require.Equal(t, messages[3:], page.Messages, name)
			page, err = device.History(ctx, group, page.NextBeforeSeq, 0)
			require.NoError(t, err)
			require.Equal(t, messages[:3], page.Messages, name)
		}

		// A recall has no content, and reaches what the device has.
		_, err = alice.RequestRecall(ctx, wire.Recall{ConversationID: group, Seq: before.Seq, MessageID: before.MessageID})
		require.NoError(t, err)
		require.NoError(t, bob.Refresh(ctx))
		messages := stored(t, bob, group)
		require.Equal(t, s.Ledger("bob", group), messages)
		require.Equal(t, chat.StatusRecalled, messages[1].Status)
	})
}
