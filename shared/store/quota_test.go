package store_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
)

// create asks for a group of ann and others.
func create(t *testing.T, s *store.Store, clientMsgID string, others ...string) (store.Committed, error) {
	t.Helper()
	_, r, err := s.CreateGroup(t.Context(), store.Request{UserID: "ann", ClientMsgID: clientMsgID}, "All", others, chat.VisibleAll)
	return r, err
}

func names(prefix string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprint(prefix, i)
	}
	return all
}

func TestG10_GroupsOfADayAreCounted(t *testing.T) {
	t.Parallel()
	const most = 3
	c := newCloud(t)
	w := &wire{}
	s := c.Store(w, store.WithQuotas(store.Quotas{GroupsPerDay: most}))
	first := must(t)(create(t, s, "0", names("m", chat.MaxRosterChange-1)...))
	calls, n := w.Since(0)
	require.Equal(t, []string{"TransactWriteItems"}, calls, "the largest group and its count are one transaction")
	for i := 1; i < most; i++ {
		must(t)(create(t, s, fmt.Sprint(i)))
	}
	_, n = w.Since(n)
	_, err := create(t, s, "one more")
	e := refused(t, chat.CodeLimit, err)
	require.Equal(t, map[string]any{"max": most}, e.Details)
	calls, _ = w.Since(n)
	require.Equal(t, []string{"TransactWriteItems", "TransactGetItems"}, calls)
	require.Equal(t, most, c.Count(c.Tables.Conversations))

	// A retry is neither refused nor counted.
	for range 2 {
		again := must(t)(create(t, s, "0", names("m", chat.MaxRosterChange-1)...))
		require.True(t, again.Duplicate)
		require.Equal(t, first.ConversationID, again.ConversationID)
	}
	require.Equal(t, most, groupsOf(c, "ann"))

	// The product's own are not, nor are another user's.
	for i := range 2 {
		must(t)(s.OpenGroup(t.Context(), store.Request{UserID: "ann", ClientMsgID: fmt.Sprint("open", i)}, "All", nil, chat.VisibleAll))
	}
	_, _, err = s.CreateGroup(t.Context(), store.Request{UserID: "bob", ClientMsgID: "0"}, "All", nil, chat.VisibleAll)
	require.NoError(t, err)
	require.Equal(t, most, groupsOf(c, "ann"))
	require.Equal(t, 1, groupsOf(c, "bob"))
}

// groupsOf is how many groups of a user are counted today, or were yesterday, if a
// test runs at midnight.
func groupsOf(c *cloud, user string) int {
	c.T.Helper()
	groups := 0
	for _, day := range []time.Time{time.Now().UTC(), time.Now().UTC().Add(-time.Hour)} {
		var count struct {
			Groups    int   `json:"groups"`
			ExpiresAt int64 `json:"expiresAt"`
		}
		key := map[string]any{"userId": user, "conversationId": "#quota:groups:" + day.Format(time.DateOnly)}
		if !c.Get(c.Tables.Inboxes, key, &count) {
			continue
		}
		require.InDelta(c.T, time.Now().Add(48*time.Hour).Unix(), count.ExpiresAt, 3600)
		groups = max(groups, count.Groups)
	}
	return groups
}

func TestG10_GroupsThatAreMadeAtOnceAreCounted(t *testing.T) {
	t.Parallel()
	const most, asked = 4, 8
	c := newCloud(t)
	made := make([]bool, asked)
	require.NoError(t, parallel(2*asked, func(i int) error { // each is asked for twice
		s := store.New(c.DB, c.Tables, store.WithQuotas(store.Quotas{GroupsPerDay: most}))
		_, err := create(t, s, fmt.Sprint(i/2))
		if chat.CodeOf(err) == chat.CodeLimit {
			return nil
		}
		if i%2 == 0 {
			made[i/2] = err == nil
		}
		return err
	}))
	require.Equal(t, most, c.Count(c.Tables.Conversations))
	require.Equal(t, most, groupsOf(c, "ann"))
	s := store.New(c.DB, c.Tables, store.WithQuotas(store.Quotas{GroupsPerDay: most}))
	for i, ok := range made {
		if ok {
			require.True(t, must(t)(create(t, s, fmt.Sprint(i))).Duplicate)
		}
	}
}

// The answer to the last group of a day gets lost, and it is asked for again.
func TestG10_ARetryOfTheLastGroupIsNotRefused(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	w := &wire{}
	s := c.Store(w, store.WithQuotas(store.Quotas{GroupsPerDay: 1}))
	w.Set(func(op string, n int) fault {
		if op == "TransactWriteItems" && n == 1 {
			return unanswered
		}
		return none
	})
	r := must(t)(create(t, s, "g"))
	require.Equal(t, 1, groupsOf(c, "ann"))
	require.Equal(t, int64(1), c.Head(r.ConversationID).LastSeq)
	_, err := create(t, s, "g2")
	requireCode(t, chat.CodeLimit, err)
}

func TestG10_MembersOfSystemConversationsAreLimited(t *testing.T) {
	t.Parallel()
	const most = 5
	c := newCloud(t)
	s := store.New(c.DB, c.Tables, store.WithQuotas(store.Quotas{SystemMembers: most}))
	publish := func(key, clientMsgID string, recipients ...string) (store.Committed, error) {
		return s.Publish(t.Context(), store.Publication{
			Key: key, Recipients: recipients, ClientMsgID: clientMsgID, Message: chat.Message{MessageType: chat.TypeSystem, Text: "hi"},
		})
	}
	_, err := publish("big", "1", names("u", most+1)...)
	e := refused(t, chat.CodeLimit, err)
	require.Equal(t, "recipients", e.Field)
	require.Equal(t, map[string]any{"max": most}, e.Details)

	first := must(t)(publish("k", "2", names("u", most-1)...))
	_, err = publish("k", "3", "new1", "new2")
	requireCode(t, chat.CodeLimit, err)
	must(t)(publish("k", "4", "new1"))
	must(t)(publish("k", "5", append(names("u", most-1), "new1")...))
	_, err = publish("k", "6", "new2")
	requireCode(t, chat.CodeLimit, err)
	must(t)(publish("k", "7"))
	require.Equal(t, most, c.Head(first.ConversationID).MemberCount)
	require.True(t, must(t)(publish("k", "4", "new1")).Duplicate)
}

func TestG10_LargeConversationsOfAUserAreLimited(t *testing.T) {
	t.Parallel()
	const most = 2
	c := newCloud(t)
	w := &wire{}
	s := c.Store(w, store.WithQuotas(store.Quotas{LargeConversations: most}))
	in := func(user string, ids ...chat.ConversationID) {
		c.Put(c.Tables.Inboxes, map[string]any{"userId": user, "conversationId": "#large"})
		for _, id := range ids {
			c.Update(c.Tables.Inboxes, map[string]any{"userId": user, "conversationId": "#large"}, "ADD ids :v", string(id))
		}
	}
	requireFull := func(err error, field string, users ...string) {
		t.Helper()
		e := refused(t, chat.CodeLimit, err)
		require.Equal(t, field, e.Field)
		require.Equal(t, most, e.Details["max"])
		require.ElementsMatch(t, users, e.Details["members"])
	}
	add := func(clientMsgID string, id chat.ConversationID, users ...string) error {
		_, err := s.AddMembers(t.Context(), store.Request{UserID: "ann", ClientMsgID: clientMsgID}, id, users)
		return err
	}
	in("busy", "group:1", "group:2")
	in("near", "group:1")

	// To create one.
	_, err := create(t, s, "1", append(names("m", 19), "busy")...)
	requireFull(err, "members", "busy")
	_, n := w.Since(0)
	small := must(t)(create(t, s, "2", append(names("m", 18), "busy")...))
	calls, n := w.Since(n)
	require.Equal(t, []string{"TransactWriteItems"}, calls, "one of 20 asks nothing")
	large := must(t)(create(t, s, "3", append(names("m", 19), "near")...))
	calls, n = w.Since(n)
	require.Equal(t, []string{"BatchGetItem", "TransactWriteItems"}, calls)
	_, err = s.OpenGroup(t.Context(), store.Request{UserID: "ann", ClientMsgID: "4"}, "All", append(names("m", 19), "busy"), chat.VisibleAll)
	requireFull(err, "members", "busy")

	// To make one large counts for all of its members.
	requireFull(add("5", small.ConversationID, "new"), "members", "busy")
	in("new", "group:1", "group:2", "group:3")
	requireFull(add("6", small.ConversationID, "new"), "members", "busy", "new")
	in("busy", "group:1", small.ConversationID)
	require.NoError(t, add("7", small.ConversationID, "newer"), "who has it already has no more by it")

	// To add to a large one, for those who are added.
	in("ann", "group:1", "group:2")
	requireFull(add("8", large.ConversationID, "new"), "members", "new")
	_, n = w.Since(n)
	require.NoError(t, add("9", large.ConversationID, "newer"))
	calls, _ = w.Since(n)
	require.Equal(t, 1, slices.Index(calls, "BatchGetItem"), "%v", calls)
	require.NotContains(t, calls, "Query")

	// System conversations as well.
	publish := func(clientMsgID string, recipients ...string) error {
		_, err := s.Publish(t.Context(), store.Publication{
			Key: "k", Recipients: recipients, ClientMsgID: clientMsgID, Message: chat.Message{MessageType: chat.TypeSystem, Text: "hi"},
		})
		return err
	}
	requireFull(publish("a", append(names("m", 20), "new")...), "recipients", "new")
	require.NoError(t, publish("b", append(names("m", 19), "new")...))
	requireFull(publish("c", "newer"), "recipients", "new")
}
