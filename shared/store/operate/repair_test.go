package operate_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/internal/storetest"
	"github.com/inorder-im/inorder/shared/store/operate"
)

// unread is what the user's list says.
func unread(t *testing.T, s *store.Store, user string) int64 {
	t.Helper()
	lines, _, err := s.List(t.Context(), user, "", 10)
	require.NoError(t, err)
	require.Len(t, lines, 1)
	return lines[0].Unread()
}

// The seqs that an operator's repair leaves out are nobody's unread messages.
func TestRaiseHead_WhatItSkipsIsNotUnread(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob", "cy")
	sendIn(t, s, "ann", id, "m1")
	sendIn(t, s, "ann", id, "m2")
	_, err := s.Ack(t.Context(), "bob", id, store.Watermarks{ReadSeq: 3})
	require.NoError(t, err)
	before := unread(t, s, "cy")
	require.Zero(t, unread(t, s, "bob"))

	r, err := operate.New(s).RaiseHead(t.Context(), id, 10_000)
	require.NoError(t, err)
	require.Equal(t, []chat.Range{{From: 4, To: r.After}}, c.Head(id).Skipped)
	require.Zero(t, unread(t, s, "bob"))
	require.Equal(t, before, unread(t, s, "cy"))

	sent := sendIn(t, s, "ann", id, "after")
	require.Equal(t, int64(1), unread(t, s, "bob"))
	require.Equal(t, before+1, unread(t, s, "cy"))
	_, err = s.Ack(t.Context(), "bob", id, store.Watermarks{ReadSeq: r.After - 5})
	require.NoError(t, err)
	require.Equal(t, int64(1), unread(t, s, "bob"), "who read to the middle of it has one to read")

	_, err = s.RemoveMembers(t.Context(), by("ann", "rm"), id, []string{"cy"})
	require.NoError(t, err)
	require.Equal(t, before+2, unread(t, s, "cy"), "a former member's line too")
	_, err = s.Ack(t.Context(), "bob", id, store.Watermarks{ReadSeq: sent.Seq + 1})
	require.NoError(t, err)
	require.Zero(t, unread(t, s, "bob"))
}

// However often a head is raised, it stays below 1 KB, for which a write is one
// unit.
func TestRaiseHead_AHeadRemembersSoManyStretches(t *testing.T) {
	t.Parallel()
	const most, rounds = 6, 20
	for name, tc := range map[string]struct {
		sends  int // between two repairs
		unread func(sent int64) (least, most int64)
	}{
		"one after the other":   {0, func(int64) (int64, int64) { return 0, 0 }},
		"with messages between": {1, func(sent int64) (int64, int64) { return most - 1, sent }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			s := c.Store(nil)
			line, _, err := s.CreateGroup(t.Context(), by(strings.Repeat("o", chat.MaxUserIDBytes), "create"),
				strings.Repeat("字", chat.MaxTitleRunes), []string{"bob"}, chat.VisibleSinceJoin)
			require.NoError(t, err)
			id, owner := line.Head.ConversationID, line.Head.Owner
			_, err = s.Ack(t.Context(), "bob", id, store.Watermarks{ReadSeq: 1})
			require.NoError(t, err)
			c.Set(c.Tables.Conversations, convKey(id), values{"lastSeq": int64(1) << 50}) // the longest numbers
			_, err = s.Ack(t.Context(), "bob", id, store.Watermarks{ReadSeq: 1 << 50})
			require.NoError(t, err)
			sent := int64(0)
			for round := range rounds {
				for range tc.sends {
					sendIn(t, s, owner, id, fmt.Sprint("m", sent))
					sent++
				}
				r, err := operate.New(s).RaiseHead(t.Context(), id, 1000)
				require.NoError(t, err)
				skipped := c.Head(id).Skipped
				require.Len(t, skipped, min(round+1, most))
				require.Equal(t, chat.Range{From: r.After - 999, To: r.After}, skipped[len(skipped)-1], "the newest is as it is")
				for i := 1; i < len(skipped); i++ {
					require.Less(t, skipped[i-1].To, skipped[i].From)
				}
			}
			low, high := tc.unread(sent)
			got := unread(t, s, "bob")
			require.GreaterOrEqual(t, got, low)
			require.LessOrEqual(t, got, high)
			require.Less(t, storetest.SizeOf(&types.AttributeValueMemberM{Value: c.Raw(c.Tables.Conversations, convKey(id))}), 1024)
		})
	}
}

// A large conversation that stays on the list of one who has left it, or is large no more,
// is found by the audit of everything, and taken off by the repair.
func TestG9_TheAuditorFindsWhoIsListedForTooLong(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	var others []string
	for i := range 24 {
		others = append(others, fmt.Sprintf("u%02d", i))
	}
	id, small := newGroup(t, s, chat.VisibleAll, "ann", others...), newGroup(t, s, chat.VisibleAll, "zoe", others[3:5]...)
	gone, removed := others[0], others[1]
	for _, user := range append(others, "ann") {
		require.NoError(t, s.Enlist(t.Context(), user, id))
	}
	_, err := s.Leave(t.Context(), by(gone, "leave"), id)
	require.NoError(t, err)
	_, err = s.RemoveMembers(t.Context(), by("ann", "remove"), id, []string{removed})
	require.NoError(t, err)
	require.NoError(t, s.Enlist(t.Context(), "stranger", id))
	require.NoError(t, s.Enlist(t.Context(), others[3], small))
	require.NoError(t, s.Enlist(t.Context(), others[4], "group:none"))

	stale := func() (found []string) {
		report, err := operate.New(s).AuditAll(t.Context(), operate.AuditCursor{UserID: " "})
		require.NoError(t, err)
		for _, v := range report.Violations {
			if v.Kind == operate.ViolationLargeStale {
				found = append(found, fmt.Sprint(v.UserID, " ", v.ConversationID))
			}
		}
		slices.Sort(found)
		return found
	}
	require.Equal(t, []string{
		fmt.Sprint("stranger ", id), fmt.Sprint(others[3], " ", small), fmt.Sprint(others[4], " group:none"),
	}, stale(), "those who went may be on their way off the list")
	early := time.Now().Add(-2 * time.Hour).UnixMilli()
	c.Set(c.Tables.Conversations, convKey(id), values{"removedAt": early})
	for _, user := range []string{gone, removed} {
		c.Set(c.Tables.Inboxes, lineKey(user, id), values{"leftAt": early, "leftHead": map[string]any{"conversationId": id, "updatedAt": early}})
	}
	require.Equal(t, []string{
		fmt.Sprint("stranger ", id), fmt.Sprint(gone, " ", id), fmt.Sprint(removed, " ", id), fmt.Sprint(others[3], " ", small), fmt.Sprint(others[4], " group:none"),
	}, stale())
	for user, conversation := range map[string]chat.ConversationID{gone: id, removed: id, "stranger": id, others[3]: small, others[4]: "group:none"} {
		off, err := operate.New(s).Unlist(t.Context(), user, conversation)
		require.NoError(t, err)
		require.True(t, off)
	}
	off, err := operate.New(s).Unlist(t.Context(), "ann", id)
	require.NoError(t, err)
	require.False(t, off, "a member is on it rightly")
	require.Empty(t, stale())
}
