package store_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/internal/storetest"
	"github.com/inorder-im/inorder/shared/store/operate"
)

func headsOf(conversations []chat.Conversation) map[chat.ConversationID]int64 {
	heads := map[chat.ConversationID]int64{}
	for _, c := range conversations {
		heads[c.ConversationID] = c.LastSeq
	}
	return heads
}

// Of large conversations a device gets the heads that it does not know as they
// are, whatever its cursor is.
func TestChangesGiveTheHeadsOfLargeConversations(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	ctx := t.Context()
	ids := c.Lines("bob", 4)
	known := ""
	changes := func(cursor int64) map[chat.ConversationID]int64 {
		t.Helper()
		changed, err := s.Changes(ctx, "bob", cursor, known, 50)
		require.NoError(t, err)
		require.False(t, changed.Full)
		require.Empty(t, changed.Lines)
		known = changed.HeadsCursor
		return headsOf(changed.Heads)
	}
	// Enlisted before anything raised the sync head, and again.
	for range 2 {
		require.NoError(t, s.Enlist(ctx, "bob", ids[0]))
	}
	require.NoError(t, s.Enlist(ctx, "bob", ids[1]))
	begin, err := s.Changes(ctx, "bob", 0, "", 50)
	require.NoError(t, err)
	require.True(t, begin.Full)
	require.Len(t, begin.Lines, 4, "what the store keeps for itself is no conversation")
	require.Empty(t, begin.Heads, "the list tells of them")

	cursor := raise(t, s, "bob", ids[2:3])
	require.Equal(t, map[chat.ConversationID]int64{ids[0]: 1, ids[1]: 2}, changes(cursor))
	require.Empty(t, changes(cursor), "they are known")
	setLastSeq(c, ids[0], 7)
	require.Equal(t, map[chat.ConversationID]int64{ids[0]: 7}, changes(cursor), "the head as it is now")
	require.Empty(t, changes(cursor))
	for _, other := range []string{"", "?", "AAAA", known[:len(known)-1], known + "AAAA"} {
		known = other
		require.Equal(t, map[chat.ConversationID]int64{ids[0]: 7, ids[1]: 2}, changes(cursor), "for the cursor %q", other)
	}

	require.NoError(t, s.Delist(ctx, "bob", ids[0]))
	require.Equal(t, map[chat.ConversationID]int64{ids[1]: 2}, changes(cursor), "of other conversations than those known")
	for range 2 {
		require.NoError(t, s.Delist(ctx, "bob", ids[1]))
	}
	require.Empty(t, changes(cursor))
	require.NoError(t, s.Delist(ctx, "nobody", ids[1]))
	lines, _, err := s.List(ctx, "nobody", "", 10)
	require.NoError(t, err)
	require.Empty(t, lines)
}

// A user who was put into more large conversations than can be listed loses
// nothing: each time the whole list tells.
func TestG5_ALargeListThatIsFullLosesNothing(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	cursor := raise(t, s, "bob", c.Lines("bob", 1))
	for i := range 250 {
		require.NoError(t, s.Enlist(t.Context(), "bob", chat.ConversationID(fmt.Sprint("group:large", i))))
	}
	require.NoError(t, s.Enlist(t.Context(), "bob", "group:large7"), "it is listed")
	changed, err := s.Changes(t.Context(), "bob", cursor, "", 50)
	require.NoError(t, err)
	require.False(t, changed.Full)
	err = s.Enlist(t.Context(), "bob", "group:large250")
	require.ErrorIs(t, err, store.ErrLargeFull)
	require.True(t, store.Permanent(err))
	changed, err = s.Changes(t.Context(), "bob", cursor, "", 50)
	require.NoError(t, err)
	require.True(t, changed.Full)
}

// Once the user has left so many that all fit, the list is right again by itself, and
// devices hear of changes alone.
func TestG10_WhoLeavesLargeConversationsIsListedAgain(t *testing.T) {
	t.Parallel()
	for name, stay := range map[string]int{"some": 150, "none": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			w := &wire{}
			s := c.Store(w)
			ids := c.Lines("bob", 260)
			cursor := raise(t, s, "bob", ids[:1])
			for i, id := range ids {
				c.Set(c.Tables.Conversations, convKey(id), values{"memberCount": 30})
				if err := s.Enlist(t.Context(), "bob", id); i >= 250 {
					require.ErrorIs(t, err, store.ErrLargeFull)
				}
			}
			full := func() store.Changed {
				t.Helper()
				changed, err := s.Changes(t.Context(), "bob", cursor, "", 50)
				require.NoError(t, err)
				require.True(t, changed.Full)
				return changed
			}
			leave := func(ids []chat.ConversationID) {
				t.Helper()
				for _, id := range ids {
					c.Set(c.Tables.Inboxes, lineKey("bob", id), values{"leftSeq": 1})
					require.NoError(t, s.Delist(t.Context(), "bob", id))
				}
			}
			leave(ids[:55]) // and 205 stay, of which 195 are listed
			full()
			_, n := w.Since(0)
			full()
			calls, _ := w.Since(n)
			calls = slices.DeleteFunc(calls, func(op string) bool { return op != "Query" })
			require.Len(t, calls, 2, "the sync head and a page: it is tried again once there are fewer")
			leave(ids[55 : 260-stay])
			joined := false
			w.Rule = func(op string, _ int) fault { // another one becomes large in between
				if op == "UpdateItem" && !joined {
					joined = true
					require.NoError(t, c.Store(nil).Enlist(t.Context(), "bob", ids[0]))
				}
				return none
			}
			full()
			require.True(t, joined)
			leave(ids[:1])
			full()
			changed, err := s.Changes(t.Context(), "bob", cursor, "", 50)
			require.NoError(t, err)
			require.False(t, changed.Full)
			require.Len(t, changed.Heads, stay, "those that found no room among them")
		})
	}
}

// setLastSeq sets a head's last seq.
func setLastSeq(c *cloud, id chat.ConversationID, lastSeq int64) {
	c.Put(c.Tables.Conversations, map[string]any{
		"conversationId": id, "kind": "group", "lastSeq": lastSeq, "membersVersion": 1, "state": "active",
	})
}

// More large conversations than one BatchGetItem takes.
func TestChangesGiveManyHeads(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	w := &wire{}
	s := c.Store(w)
	ids := c.Lines("bob", 120)
	for _, id := range ids {
		require.NoError(t, s.Enlist(t.Context(), "bob", id))
	}
	cursor := raise(t, s, "bob", []chat.ConversationID{"group:any"})
	_, n := w.Since(0)
	changed, err := s.Changes(t.Context(), "bob", cursor, "", 50)
	require.NoError(t, err)
	require.Len(t, headsOf(changed.Heads), 120)
	calls, _ := w.Since(n)
	require.Equal(t, []string{"Query", "BatchGetItem", "BatchGetItem"}, calls)
}

// After a change of the roster a device that asks finds the conversation among
// the changes, as its user now sees it.
func TestChangesAfterAChangeOfTheRoster(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	ctx := t.Context()
	cursor := raise(t, s, "bob", []chat.ConversationID{"group:before"})
	id := newGroup(t, s, chat.VisibleSinceJoin, "ann", "cy")
	sendIn(t, s, "ann", id, "2")
	ask := func() store.Line {
		t.Helper()
		raise(t, s, "bob", []chat.ConversationID{id}) // as the fan-out does
		changed, err := s.Changes(ctx, "bob", cursor, "", 10)
		require.NoError(t, err)
		require.False(t, changed.Full)
		require.Len(t, changed.Lines, 1)
		cursor = changed.Cursor
		return changed.Lines[0]
	}
	must(t)(s.AddMembers(ctx, by("ann", "3"), id, []string{"bob"}))
	joined := ask()
	require.Equal(t, id, joined.Head.ConversationID)
	require.Equal(t, 3, joined.Head.MemberCount)
	require.Equal(t, []string{"bob"}, joined.Last.Event.Added)
	require.Equal(t, int64(1), joined.Unread())
	require.Zero(t, joined.LeftSeq)

	_, err := s.Ack(ctx, "bob", id, store.Watermarks{ReadSeq: 3})
	require.NoError(t, err)
	require.Zero(t, ask().Unread())

	must(t)(s.RemoveMembers(ctx, by("ann", "4"), id, []string{"bob"}))
	sendIn(t, s, "ann", id, "5")
	removed := ask()
	require.Equal(t, int64(4), removed.LeftSeq)
	require.Equal(t, int64(4), removed.LastSeq())
	require.Equal(t, []string{"bob"}, removed.Last.Event.Removed)
	require.Equal(t, int64(1), removed.Unread())

	must(t)(s.AddMembers(ctx, by("ann", "6"), id, []string{"bob"}))
	back := ask()
	require.Zero(t, back.LeftSeq)
	require.Equal(t, int64(6), back.LastSeq())
	require.Equal(t, int64(1), back.Unread())
}

// A roster that is older than its head is not taken for the head's, nor
// remembered as such.
func TestRostersAreAsNewAsTheirHead(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	ctx := t.Context()
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
	must(t)(s.AddMembers(ctx, by("ann", "2"), id, []string{"cy"}))
	hidden := 2
	w := &wire{Edit: func(op string, _, answer []byte) []byte {
		if op != "Query" || hidden == 0 {
			return answer
		}
		hidden--
		return storetest.EditItems(answer, func(items []map[string]json.RawMessage) []map[string]json.RawMessage { return items[:2] })
	}}
	rosters := store.NewRosters(c.Store(w))
	members, err := rosters.At(ctx, id, 2)
	require.NoError(t, err)
	require.Len(t, members, 3)
	require.Zero(t, hidden)
	_, n := w.Since(0)
	members, err = rosters.At(ctx, id, 2)
	require.NoError(t, err)
	require.Len(t, members, 3)
	calls, _ := w.Since(n)
	require.Empty(t, calls, "it is remembered")
	must(t)(s.RemoveMembers(ctx, by("ann", "3"), id, []string{"bob"}))
	members, err = rosters.At(ctx, id, 3)
	require.NoError(t, err)
	require.Len(t, members, 2)
	calls, _ = w.Since(n)
	require.Equal(t, []string{"GetItem", "Query"}, calls)
	older, err := rosters.At(ctx, id, 1)
	require.NoError(t, err)
	require.Equal(t, members, older, "a later one will do")

	// A head that is wrong stops nothing.
	head := c.Head(id)
	c.Put(c.Tables.Conversations, map[string]any{
		"conversationId": id, "kind": "group", "lastSeq": head.LastSeq, "membersVersion": 9, "memberCount": 77, "state": "active",
	})
	members, err = rosters.At(ctx, id, 9)
	require.NoError(t, err)
	require.Len(t, members, 2)
}

// A Query may show the roster from before a removal and a joining though the head is
// from after both: as many members, and not the same. It is not taken for the
// head's, by those who push nor by an owner who leaves.
func TestG9_ARosterIsNotBelievedByItsCount(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, change := range map[string]func(t *testing.T, s *store.Store, id chat.ConversationID){
		"another in the place of one": func(t *testing.T, s *store.Store, id chat.ConversationID) {
			must(t)(s.RemoveMembers(ctx, by("ann", "r"), id, []string{"bob"}))
			must(t)(s.AddMembers(ctx, by("ann", "a"), id, []string{"dan"}))
		},
		"one who came back, and may read less": func(t *testing.T, s *store.Store, id chat.ConversationID) {
			must(t)(s.RemoveMembers(ctx, by("ann", "r"), id, []string{"bob"}))
			must(t)(s.AddMembers(ctx, by("ann", "a"), id, []string{"bob"}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			s := c.Store(nil)
			id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
			before, err := s.Roster(ctx, id)
			require.NoError(t, err)
			old := 0
			var applied []byte
			w := &wire{Edit: func(op string, _, answer []byte) []byte {
				switch {
				case op != "Query":
				case applied == nil:
					applied = answer
				case old > 0:
					old--
					return applied
				}
				return answer
			}}
			env := c.Store(w)
			_, err = env.Roster(ctx, id)
			require.NoError(t, err)
			change(t, s, id)
			after, err := s.Roster(ctx, id)
			require.NoError(t, err)
			require.Len(t, after, len(before))

			rosters := store.NewRosters(env)
			for _, times := range []int{1, 3} {
				old = times
				got, err := rosters.At(ctx, id, 3)
				require.NoError(t, err)
				require.Equal(t, after, got, "%d old readings", times)
				rosters = store.NewRosters(env)
			}
			old = 100
			_, err = rosters.At(ctx, id, 3)
			require.NoError(t, err, "an old roster stops nothing")
			old = 0
			got, err := rosters.At(ctx, id, 3)
			require.NoError(t, err)
			require.Equal(t, after, got, "and is not remembered")

			old = 1
			left := must(t)(env.Leave(ctx, by("ann", "l"), id))
			require.Equal(t, int64(4), left.Seq)
			owner := after[1].UserID
			require.Equal(t, owner, c.Head(id).Owner)
			requireWhole(t, c, s, id)
		})
	}
}

// What knows of no hash leaves it behind when it changes the roster, and by that is
// told apart; so is a head from before there was one. Both are counted.
func TestRostersOfHeadsWithoutAHashAreCounted(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	for name, change := range map[string]func(c *cloud, id chat.ConversationID){
		"from before": func(c *cloud, id chat.ConversationID) {
			c.Set(c.Tables.Conversations, convKey(id), values{"rosterHash": nil, "hashedVersion": nil, "kept": nil})
		},
		"changed by an older version": func(c *cloud, id chat.ConversationID) {
			c.Set(c.Tables.Conversations, convKey(id), values{"membersVersion": 2, "memberCount": 1})
			c.Delete(c.Tables.Members, rosterKey(id, "bob"))
			c.Set(c.Tables.Inboxes, lineKey("bob", id), values{"leftSeq": 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			w := &wire{}
			s := c.Store(w)
			id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
			change(c, id)
			was := c.Head(id)
			require.False(t, was.Hashed())
			must(t)(c.Store(nil).AddMembers(ctx, by("ann", "a"), id, []string{"cy"}))
			now := c.Head(id)
			require.False(t, now.Hashed(), "what is not known of all is not made up")
			require.Equal(t, was.Removals(), now.Removals())
			_, n := w.Since(0)
			members, err := store.NewRosters(s).At(ctx, id, now.MembersVersion)
			require.NoError(t, err)
			require.Len(t, members, now.MemberCount)
			calls, _ := w.Since(n)
			require.Equal(t, []string{"GetItem", "Query"}, calls)
			r, err := operate.New(s).AuditConversation(ctx, id)
			require.NoError(t, err)
			require.Empty(t, r.Violations)
			must(t)(s.Leave(ctx, by("ann", "l"), id))
			require.Equal(t, "cy", func() string {
				roster, err := s.Roster(ctx, id)
				require.NoError(t, err)
				return roster[len(roster)-1].UserID
			}())
		})
	}
}

// Who is a member is told as of one head, of however many users.
func TestMembersAmong(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
	asked := make([]string, 250)
	for i := range asked {
		asked[i] = fmt.Sprint("stranger", i)
	}
	asked[0], asked[99], asked[249] = "ann", "gone", "bob"
	must(t)(s.AddMembers(t.Context(), by("ann", "2"), id, []string{"gone"}))
	must(t)(s.RemoveMembers(t.Context(), by("ann", "3"), id, []string{"gone"}))
	head, members, err := s.MembersAmong(t.Context(), id, asked)
	require.NoError(t, err)
	require.Equal(t, c.Head(id), head)
	require.Equal(t, map[string]bool{"ann": true, "bob": true}, onlyTrue(members))
}

func onlyTrue(of map[string]bool) map[string]bool {
	maps.DeleteFunc(of, func(_ string, is bool) bool { return !is })
	return of
}

// Until the fan-out has taken a conversation off the list of one who was removed from it,
// its head is on that list. It tells of nothing that was written since.
func TestG9_AListTellsWhoWasRemovedOfNothingSince(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	ctx := t.Context()
	id, other := newGroup(t, s, chat.VisibleAll, "ann", "bob", "cy"), newGroup(t, s, chat.VisibleAll, "dan", "bob")
	cursor, err := s.Raise(ctx, "bob", []chat.ConversationID{other})
	require.NoError(t, err)
	for _, listed := range []chat.ConversationID{id, other} {
		require.NoError(t, s.Enlist(ctx, "bob", listed))
	}
	_, err = s.Raise(ctx, "cy", []chat.ConversationID{other})
	require.NoError(t, err)
	require.NoError(t, s.Enlist(ctx, "cy", id))
	must(t)(s.RemoveMembers(ctx, by("ann", "rm"), id, []string{"bob"}))
	sendIn(t, s, "ann", id, "after")

	changed, err := s.Changes(ctx, "bob", cursor, "", 10)
	require.NoError(t, err)
	require.Equal(t, []chat.Conversation{c.Head(other)}, changed.Heads)
	c.Set(c.Tables.Conversations, convKey(id), values{"removedAt": time.Now().Add(-50 * time.Minute).UnixMilli()}) // it was set aside
	sendIn(t, s, "dan", other, "too")
	changed, err = s.Changes(ctx, "bob", cursor, changed.HeadsCursor, 10)
	require.NoError(t, err)
	require.Equal(t, []chat.Conversation{c.Head(other)}, changed.Heads)
	require.NoError(t, s.Delist(ctx, "bob", id))
	changed, err = s.Changes(ctx, "bob", cursor, changed.HeadsCursor, 10)
	require.NoError(t, err)
	require.Empty(t, changed.Heads, "that it is off the list is nothing new")
	changed, err = s.Changes(ctx, "cy", 1, "", 10)
	require.NoError(t, err)
	require.Equal(t, []chat.Conversation{c.Head(id)}, changed.Heads, "who is still a member")
}

// A list that is made anew while its user is removed from one of its conversations does
// not have that one: it has been taken off already, from a list on which it was not.
func TestG9_AListMadeAnewHasNoConversationOfTheRemoved(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	ctx := t.Context()
	id := newGroup(t, s, chat.VisibleAll, "ann", append(others(0, chat.InboxGroupMax), "bob")...)
	c.Put(c.Tables.Inboxes, map[string]any{"userId": "bob", "conversationId": "#large", "over": true})
	removed := false
	reader := c.Store(&wire{Edit: func(op string, request, answer []byte) []byte {
		if op == "BatchGetItem" && strings.Contains(string(request), c.Tables.Conversations) && !removed {
			removed = true
			must(t)(s.RemoveMembers(ctx, by("ann", "rm"), id, []string{"bob"}))
			require.NoError(t, s.Delist(ctx, "bob", id))
		}
		return answer
	}})
	_, err := reader.Changes(ctx, "bob", 0, "", 10)
	require.NoError(t, err)
	require.True(t, removed)
	lists, err := s.DB().LargeLists(ctx, []string{"bob"}, true)
	require.NoError(t, err)
	require.Empty(t, lists["bob"].IDs)
	require.False(t, lists["bob"].Over)
}
