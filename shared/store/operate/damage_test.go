package operate_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/operate"
)

// One item that cannot be read, of whatever table, is told of, and keeps nothing else from
// being audited: a position that is wrong in another conversation is found as before.
func TestG10_TheAuditGoesOnPastADamagedItem(t *testing.T) {
	t.Parallel()
	single := chat.SingleID("alice", "bob")
	for name, damage := range map[string]struct {
		item func(c *cloud) (table string, key values, attribute string)
		want finding
	}{
		"a head": {func(c *cloud) (string, values, string) {
			return c.Tables.Conversations, convKey(single), "memberCount"
		}, finding{operate.ViolationItemDamaged, single, 0, ""}},
		"a message": {func(c *cloud) (string, values, string) { return c.Tables.Messages, entryKey(single, 2), "serverTime" }, finding{operate.ViolationItemDamaged, single, 2, ""}},
		"the last message": {func(c *cloud) (string, values, string) {
			return c.Tables.Messages, entryKey(single, 3), "serverTime"
		}, finding{operate.ViolationItemDamaged, single, 3, ""}},
		"a sender": {func(c *cloud) (string, values, string) { return c.Tables.Messages, entryKey(single, 2), "senderId" }, finding{operate.ViolationItemDamaged, single, 0, ""}},
		"a line": {func(c *cloud) (string, values, string) {
			return c.Tables.Inboxes, lineKey("bob", single), "readSeq"
		}, finding{operate.ViolationItemDamaged, single, 0, "bob"}},
		"a record": {func(c *cloud) (string, values, string) { return c.Tables.Idempotency, recordKey("alice", "1"), "seq" }, finding{operate.ViolationItemDamaged, single, 1, "alice"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			s := c.Store(nil)
			sendN(t, s, 3)
			for _, other := range []string{"carol", "dave", "erin", "frank"} { // before and after it, in whatever order
				send(t, s, "alice", other, other)
				c.Set(c.Tables.Inboxes, lineKey("alice", chat.SingleID("alice", other)), values{"readSeq": 9})
			}
			table, key, attribute := damage.item(c)
			c.Set(table, key, values{attribute: "x"})
			if name == "a sender" {
				c.Set(table, key, values{attribute: strings.Repeat("x", 3000)}) // longer than a key may be
			}
			wrong := func(r operate.AuditReport, err error) (all []finding) {
				t.Helper()
				require.NoError(t, err)
				require.Nil(t, r.Next)
				require.Empty(t, r.Unfinished)
				for _, f := range found(r) {
					if f.id == single {
						all = append(all, f)
					}
				}
				require.Equal(t, 4, r.Counts[operate.ViolationPositionAhead], "%v", r.Violations)
				return all
			}
			o := operate.New(s)
			require.Contains(t, wrong(o.AuditAll(t.Context(), operate.AuditCursor{})), damage.want)
			require.NotEmpty(t, wrong(o.AuditSample(t.Context(), 1000)))
			r, err := o.AuditConversation(t.Context(), single)
			require.NoError(t, err)
			require.Equal(t, []finding{damage.want}, found(r))
		})
	}
}

// Nor does it stop what an operator does to all of them.
func TestG10_WhatIsDoneToAllPassesOverADamagedItem(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	single := sendN(t, s, 3)
	for _, other := range []string{"carol", "dave"} {
		send(t, s, "alice", other, other)
	}
	c.Set(c.Tables.Messages, entryKey(single, 3), values{"serverTime": "x"})
	c.Set(c.Tables.Inboxes, lineKey("alice", single), values{"readSeq": "x"})
	o := operate.New(s)

	messages, left, err := o.LedgerPage(t.Context(), single, chat.Range{From: 1, To: 3}, 3)
	require.NoError(t, err)
	require.Len(t, messages, 2)
	require.Equal(t, chat.Range{From: 4, To: 3}, left)
	lines, _, err := o.LinesOf(t.Context(), "alice", "", 10)
	require.NoError(t, err)
	require.Len(t, lines, 3)
	require.Contains(t, lines, chat.Line{UserID: "alice", ConversationID: single}, "an erasure must not pass it over")
	rosters, err := o.Lines(t.Context(), single, []string{"alice", "bob"})
	require.NoError(t, err)
	require.Len(t, rosters, 1)
	require.Contains(t, rosters, "bob")
	raised, err := o.RaiseHead(t.Context(), single, 10)
	require.NoError(t, err)
	require.Equal(t, int64(13), raised.After)

	c.Set(c.Tables.Conversations, convKey(single), values{"memberCount": "x"})
	heads, damaged, _, err := o.Heads(t.Context(), "", 10)
	require.NoError(t, err)
	require.Equal(t, [2]int{2, 1}, [2]int{len(heads), damaged})
	changed := 0
	require.NoError(t, o.ChangedBetween(t.Context(), 0, chat.MaxSeq, func(chat.Conversation) error { changed++; return nil }))
	require.Equal(t, 2, changed)
}

// A conversation that was damaged between two looks is not among the hottest, and all
// others are.
func TestG10_TheHottestAreListedBesideADamagedHead(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	single := sendN(t, s, 3)
	send(t, s, "alice", "carol", "c1")
	hot, err := operate.New(s).Hottest(t.Context(), 10, func(context.Context) error {
		send(t, s, "alice", "carol", "c2")
		c.Set(c.Tables.Conversations, convKey(single), values{"memberCount": "x"})
		return nil
	})
	require.NoError(t, err)
	require.Len(t, hot, 1)
}

// A message that is found twice, once damaged, is found once.
func TestG10_AMessageIsFoundBesideADamagedOne(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	single := sendN(t, s, 3)
	c.CopyMessage(single, 1, 9)
	id := ledger(t, s, "alice", single)[0].MessageID
	c.Set(c.Tables.Messages, entryKey(single, 1), values{"serverTime": "x"})
	found, err := operate.New(s).ScanMessage(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, found, 1)
	c.Delete(c.Tables.Messages, entryKey(single, 9))
	_, err = operate.New(s).ScanMessage(t.Context(), id)
	require.ErrorContains(t, err, "decoding", "it is there")
}

// Nor does a list of large conversations that has what is no key.
func TestG10_TheAuditGoesOnPastAListOfWhatIsNoKey(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	sendN(t, s, 3)
	c.Set(c.Tables.Inboxes, lineKey("alice", chat.SingleID("alice", "bob")), values{"readSeq": 9})
	for _, user := range []string{"aaron", "zed"} {
		require.NoError(t, s.Enlist(t.Context(), user, chat.ConversationID("group:"+strings.Repeat("x", 3000))))
	}
	r, err := operate.New(s).AuditAll(t.Context(), operate.AuditCursor{})
	require.NoError(t, err)
	require.Equal(t, []finding{
		{operate.ViolationItemDamaged, "", 0, "aaron"}, {operate.ViolationItemDamaged, "", 0, "zed"}, {operate.ViolationPositionAhead, chat.SingleID("alice", "bob"), 0, "alice"},
	}, found(r))
}
