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

func TestRetention_EveryEntryExpiresAndItsIdempotencyRecordLater(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil, store.WithRetention(7*days))
	request := func(id string) store.Request {
		return store.Request{UserID: "alice", DeviceID: "phone", ClientMsgID: id}
	}
	committed := map[string]store.Committed{"text": send(t, s, "alice", "bob", "text")}
	target := store.Target{ConversationID: committed["text"].ConversationID, Seq: 1, MessageID: committed["text"].MessageID}
	var err error
	committed["edit"], err = s.Edit(t.Context(), request("edit"), target, store.Edited{Version: 1, Text: "other"}, store.NoWindow)
	require.NoError(t, err)
	committed["recall"], err = s.Recall(t.Context(), request("recall"), target, store.NoWindow)
	require.NoError(t, err)
	for name, r := range committed {
		message, record := c.Lifetimes(r, "alice", name)
		written := time.UnixMilli(message.ServerTime)
		require.Equal(t, written.Add(7*days).Unix(), message.ExpiresAt, name)
		require.Equal(t, written.Add(37*days).Unix(), record.ExpiresAt, name)
	}

	kept := send(t, c.Store(nil), "alice", "bob", "kept")
	message, record := c.Lifetimes(kept, "alice", "kept")
	require.Zero(t, message.ExpiresAt, "without retention nothing expires")
	require.Zero(t, record.ExpiresAt)
}

func TestOptionsFromEnv(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	open := func(env map[string]string) (*store.Store, error) {
		options, err := store.OptionsFromEnv(func(name string) string { return env[name] })
		return store.New(c.DB, c.Tables, options...), err
	}
	for i, tc := range []struct {
		days string
		want time.Duration
	}{{"", 0}, {"0", 0}, {"1", days}, {"30", 30 * days}, {"36500", 36500 * days}} {
		s, err := open(map[string]string{"RETENTION_DAYS": tc.days})
		require.NoError(t, err, tc.days)
		id := fmt.Sprint("days-", i)
		message, _ := c.Lifetimes(send(t, s, "alice", "bob", id), "alice", id)
		if tc.want == 0 {
			require.Zero(t, message.ExpiresAt)
			continue
		}
		require.Equal(t, time.UnixMilli(message.ServerTime).Add(tc.want).Unix(), message.ExpiresAt, tc.days)
	}

	s, err := open(map[string]string{"MAX_GROUP_MEMBERS": "3"})
	require.NoError(t, err)
	_, _, err = s.CreateGroup(t.Context(), store.Request{UserID: "alice", ClientMsgID: "g1"}, "All", []string{"b", "c", "d"}, chat.VisibleAll)
	require.Equal(t, 3, refused(t, chat.CodeLimit, err).Details["max"])
	line, _, err := s.CreateGroup(t.Context(), store.Request{UserID: "alice", ClientMsgID: "g2"}, "All", []string{"b", "c"}, chat.VisibleAll)
	require.NoError(t, err)
	_, err = s.AddMembers(t.Context(), store.Request{UserID: "alice", ClientMsgID: "a"}, line.Head.ConversationID, []string{"d"})
	require.Equal(t, 3, refused(t, chat.CodeLimit, err).Details["max"])

	s, err = open(map[string]string{"GROUPS_PER_DAY": "1", "MAX_SYSTEM_MEMBERS": "2", "MAX_LARGE_CONVERSATIONS": "1"})
	require.NoError(t, err)
	_, err = create(t, s, "one")
	require.NoError(t, err)
	_, err = create(t, s, "two")
	require.Equal(t, 1, refused(t, chat.CodeLimit, err).Details["max"])
	_, err = s.Publish(t.Context(), store.Publication{
		Key: "k", Recipients: names("u", 3), ClientMsgID: "p", Message: chat.Message{MessageType: chat.TypeSystem, Text: "hi"},
	})
	require.Equal(t, 2, refused(t, chat.CodeLimit, err).Details["max"])

	s, err = open(map[string]string{"DIRECT_MESSAGES": "closed"})
	require.NoError(t, err)
	_, err = s.Append(t.Context(), text("ann", "m", "hi"), "zoe")
	_ = refused(t, chat.CodeForbidden, err)
	s, err = open(map[string]string{"DIRECT_MESSAGES": "open"})
	require.NoError(t, err)
	send(t, s, "ann", "zoe", "m")

	for name, values := range map[string][]string{
		"DIRECT_MESSAGES":                {"Closed", "on"},
		"RETENTION_DAYS":                 {"-1", "x", "1d", "36500.5", " 1"},
		"MAX_GROUP_MEMBERS":              {"1", "1001", "x"},
		"MAX_CROWD_MEMBERS":              {"-1", "100001", "x"},
		"REJOIN_DAYS":                    {"-1", "3651", "x"},
		"CONVERSATION_WRITES_PER_SECOND": {"-1", "501", "x"},
		"GROUPS_PER_DAY":                 {"-1", "1000001", "x"},

		"MAX_SYSTEM_MEMBERS":      {"-1", "x"},
		"MAX_LARGE_CONVERSATIONS": {"-1", "x"},
	} {
		for _, v := range values {
			_, err := open(map[string]string{name: v})
			require.ErrorContains(t, err, name, v)
		}
	}
}

// A device that was away for longer than the retention is at the head after one
// page, for the price of one Query and one look at what is gone.
func TestRetention_ADeviceThatWasAwayIsToldWhatIsGone(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := sendN(t, s, 300)
	for seq := int64(1); seq <= 290; seq++ {
		c.DeleteMessage(id, seq)
	}
	w := &wire{}
	page, err := c.Store(w).Sync(t.Context(), "bob", id, 0, 100, frame)
	require.NoError(t, err)
	require.Equal(t, int64(291), page.FirstSeq)
	require.Equal(t, []int64{291, 292, 293, 294, 295, 296, 297, 298, 299, 300}, seqs(page.Messages))
	require.Empty(t, page.Skipped)
	require.False(t, page.HasMore)
	calls, _ := w.Since(0)
	require.Equal(t, []string{"GetItem", "GetItem", "Query", "TransactGetItems"}, calls)

	for seq := int64(291); seq <= 300; seq++ {
		c.DeleteMessage(id, seq)
	}
	page, err = s.Sync(t.Context(), "bob", id, 0, 100, frame)
	require.NoError(t, err)
	require.Equal(t, store.Page{Messages: []chat.Message{}, NextSeq: 300, CommittedMaxSeq: 300, FirstSeq: 301}, page)
	page, err = s.Sync(t.Context(), "bob", id, 295, 100, frame)
	require.NoError(t, err)
	require.Equal(t, []int64{296, 297, 298, 299, 300}, page.Skipped, "a few are listed")
	require.Zero(t, page.FirstSeq)
	history, err := s.History(t.Context(), "bob", id, 0, 100, frame)
	require.NoError(t, err)
	require.Equal(t, store.HistoryPage{Messages: []chat.Message{}, NextBeforeSeq: 1, CommittedMaxSeq: 300}, history)
	require.Equal(t, int64(301), send(t, s, "alice", "bob", "life goes on").Seq)
}

// What expired is not deleted at once: until then it is read and hidden, in pages
// of bounded cost.
func TestRetention_WhatExpiredIsHiddenBeforeItIsDeleted(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	const old, all = 1200, 1203
	c.Put(c.Tables.Conversations, map[string]any{
		"conversationId": chat.SingleID("alice", "bob"), "kind": "single", "lastSeq": old, "membersVersion": 1, "memberCount": 2, "state": "active",
	})
	id := chat.SingleID("alice", "bob")
	for _, user := range []string{"alice", "bob"} {
		c.Put(c.Tables.Inboxes, map[string]any{"userId": user, "conversationId": id, "joinSeq": 1})
	}
	require.NoError(t, parallel(8, func(worker int) error {
		for seq := worker + 1; seq <= old; seq += 8 {
			c.Put(c.Tables.Messages, map[string]any{
				"conversationId": id, "seq": seq, "messageId": fmt.Sprint("old-", seq), "expiresAt": time.Now().Unix() - 1,
			})
		}
		return nil
	}))
	for i := range all - old {
		send(t, s, "alice", "bob", fmt.Sprint("new-", i))
	}
	w := &wire{}
	got, skipped, first, pages := walk(t, c.Store(w), id, all)
	require.Equal(t, []int64{1201, 1202, 1203}, seqs(got))
	require.Empty(t, skipped)
	require.Equal(t, int64(1201), first)
	require.Equal(t, 2, pages, "a page reads at most 1,000 of them")
	calls, _ := w.Since(0)
	require.NotContains(t, calls, "TransactGetItems", "nothing is missing")

	// A small page costs no more than a large one.
	w = &wire{}
	page, err := c.Store(w).Sync(t.Context(), "bob", id, 300, 1, frame)
	require.NoError(t, err)
	require.Equal(t, []int64{1201}, seqs(page.Messages))
	require.Equal(t, int64(1201), page.NextSeq)
	calls, _ = w.Since(0)
	require.LessOrEqual(t, len(calls), 2+20)
	history, err := c.Store(nil).History(t.Context(), "bob", id, 1201, 1, frame)
	require.NoError(t, err)
	require.Empty(t, history.Messages)
	require.Less(t, history.NextBeforeSeq, int64(300))
}

// A message being committed is found even where everything before it is gone.
func TestG6_SyncFindsWhatIsBeingCommittedBehindALongGap(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := sendN(t, c.Store(nil), 260)
	for seq := int64(1); seq <= 255; seq++ {
		c.DeleteMessage(id, seq)
	}
	for name, hidden := range map[string][]int64{"the last": {260}, "the first": {256}, "two": {257, 259}, "all": {256, 257, 258, 259, 260}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &wire{Edit: hides(func(seq int64) bool { return slices.Contains(hidden, seq) })}
			page, err := c.Store(w).Sync(t.Context(), "bob", id, 0, 100, frame)
			require.NoError(t, err)
			require.Equal(t, []int64{256, 257, 258, 259, 260}, seqs(page.Messages))
			require.Equal(t, int64(256), page.FirstSeq)
		})
	}
}
