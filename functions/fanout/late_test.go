package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/regiontest"
)

// hampered is a store that cannot raise anyone for a while, or before whose first write
// of a list something else happens.
type hampered struct {
	storage
	fails  *atomic.Bool
	before func()
}

func (h hampered) Raise(ctx context.Context, userID string, ids []chat.ConversationID) (int64, error) {
	if h.fails.Load() {
		return 0, errors.New("the partition is throttled")
	}
	return h.storage.Raise(ctx, userID, ids)
}

func (h hampered) Enlist(ctx context.Context, userID string, id chat.ConversationID) error {
	h.before()
	return h.storage.Enlist(ctx, userID, id)
}

func (h hampered) Delist(ctx context.Context, userID string, id chat.ConversationID) error {
	h.before()
	return h.storage.Delist(ctx, userID, id)
}

// A change of the roster that was set aside is served after the next one, of which the
// stream told another environment meanwhile, or at the same time. By whom a conversation
// is listed as a large one is then as that left it: else nothing tells a device of its
// messages any more, or tells one of it who has been removed.
func TestG5_AChangeThatWasSetAsideUndoesNoLaterOne(t *testing.T) {
	t.Parallel()
	const bound = chat.InboxGroupMax
	for name, tc := range map[string]struct {
		others int  // members beside bob
		before bool // bob is one before it
	}{
		"who was removed is back": {others: bound + 1, before: true},
		"who came is removed":     {others: bound + 1},
		"it is a large one again": {others: bound, before: true},
		"it is a small one again": {others: bound},
		"it stays a small one":    {others: bound - 1},
	} {
		for when, remembers := range map[string]bool{"by a remembered roster": true, "at the same time": false} {
			t.Run(name+", "+when, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { lateChange(t, tc.others, tc.before, remembers) })
			})
		}
	}
}

func lateChange(t *testing.T, others int, before, remembers bool) {
	c := newCloud(t, 10)
	s := c.store()
	var told []json.RawMessage
	c.region.Follow("Conversations", func(ch regiontest.Change) { told = append(told, recordOf(ch, len(told)+1)) })
	serve := func(h handler) {
		for _, record := range told {
			answer, err := h.handle(t.Context(), fmt.Appendf(nil, `{"Records":[%s]}`, record))
			require.NoError(t, err)
			require.Empty(t, answer.(events.DynamoDBEventResponse).BatchItemFailures)
		}
		told = nil
	}
	members := []string{"ann"}
	for i := range others - 1 {
		members = append(members, fmt.Sprintf("user%02d", i))
	}
	line, _, err := s.CreateGroup(t.Context(), store.Request{UserID: "ann", ClientMsgID: "0"}, "group", members[1:], chat.VisibleAll)
	require.NoError(t, err)
	id := line.Head.ConversationID
	n, is := 0, false // bob a member
	change := func() {
		n++
		move := s.AddMembers
		if is {
			move = s.RemoveMembers
		}
		_, err := move(t.Context(), store.Request{UserID: "ann", ClientMsgID: fmt.Sprint(n)}, id, []string{"bob"})
		require.NoError(t, err)
		is = !is
	}
	one, other, fails := c.fanout.start(), c.fanout.start(), &atomic.Bool{}
	begun, done := &atomic.Bool{}, make(chan struct{}) // a sync.Once would stop the bubble's time
	later := func() {
		if begun.CompareAndSwap(false, true) {
			change()
			serve(other)
			close(done)
		}
		<-done
	}
	one.store = hampered{one.store, fails, func() {}}
	if before {
		change()
	}
	serve(other)

	fails.Store(true)
	change()
	serve(one)
	require.Equal(t, 1, c.aside)
	fails.Store(false)
	again := one
	if remembers {
		later()
	} else {
		again = c.fanout.start()
		again.store = hampered{again.store, fails, later}
	}
	var aside aside
	require.NoError(t, json.Unmarshal([]byte(<-c.retries), &aside))
	require.NoError(t, again.again(t.Context(), aside))
	later() // where nothing was to be listed
	require.Equal(t, 1, c.aside)

	roster, err := s.Roster(t.Context(), id)
	require.NoError(t, err)
	want := map[string]bool{}
	for _, m := range roster {
		want[m.UserID] = len(roster) > chat.InboxGroupMax
	}
	lists, err := s.DB().LargeLists(t.Context(), append(members, "bob"), true)
	require.NoError(t, err)
	for _, userID := range append(members, "bob") {
		require.Equal(t, want[userID], len(lists[userID].IDs) == 1, "%s of %d members", userID, len(roster))
	}
}

// emptied is a group of which all who came have gone again since, where a read takes
// 10 ms and a write 5.
type emptied struct{ *world }

func (e emptied) Crowd(context.Context, chat.ConversationID) (chat.Conversation, bool, error) {
	time.Sleep(10 * time.Millisecond)
	return chat.Conversation{LastSeq: 21, MembersVersion: 21, MemberCount: 30}, true, nil
}

func (e emptied) MembersAmong(ctx context.Context, id chat.ConversationID, userIDs []string) (chat.Conversation, map[string]bool, error) {
	head, _, err := e.Crowd(ctx, id)
	return head, map[string]bool{}, err
}

func (e emptied) Enlist(ctx context.Context, userID string, id chat.ConversationID) error {
	time.Sleep(5 * time.Millisecond)
	return e.world.Enlist(ctx, userID, id)
}

func (e emptied) Delist(ctx context.Context, userID string, id chat.ConversationID) error {
	time.Sleep(5 * time.Millisecond)
	return e.world.Delist(ctx, userID, id)
}

// Nor is a lane held up by the lists of many who came and are gone when that is told.
func TestG10_ManyWhoCameAndWentHoldNoLane(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var came []string
		for i := range 10 * chat.MaxRosterChange {
			came = append(came, fmt.Sprint("user", i))
			w.member("group:a", came[i], 1)
		}
		w.write("group:a", 1)
		w.membersEvent("group:a", 1, came, nil)
		joining := changed("1", "group:a", 0, 1)
		joining.Change.OldImage = head("group:a", 0, 0)
		h, _ := w.handler()
		h.store = emptied{w}
		start := time.Now()
		h.follow(t.Context(), batchOf(joining))
		require.Empty(t, w.aside)
		require.LessOrEqual(t, time.Since(start), 500*time.Millisecond)
		require.Len(t, w.listed, len(came))
		for l, large := range w.listed {
			require.False(t, large, l.userID)
		}
	})
}
