package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/operate"
)

// leftEarlier makes it longer ago that a user left a group.
func leftEarlier(c *cloud, user string, conversationID chat.ConversationID, by time.Duration) {
	c.T.Helper()
	key, err := attributevalue.MarshalMap(map[string]any{"userId": user, "conversationId": conversationID})
	require.NoError(c.T, err)
	values, err := attributevalue.MarshalMap(map[string]any{":by": by.Milliseconds()})
	require.NoError(c.T, err)
	_, err = c.DB.UpdateItem(context.Background(), &dynamodb.UpdateItemInput{
		TableName: &c.Tables.Inboxes, Key: key,
		UpdateExpression: new("SET leftAt = leftAt - :by"), ConditionExpression: new("attribute_exists(leftAt)"), ExpressionAttributeValues: values,
	})
	require.NoError(c.T, err)
}

// Everyone gets out of a dissolved group, as of any other, and the others go on
// reading it.
func TestG9_LeaveWorksInADissolvedGroup(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	ctx := t.Context()
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob", "cy")
	end := must(t)(s.Dissolve(ctx, by("ann", "d"), id))
	left := must(t)(s.Leave(ctx, by("bob", "l"), id))
	require.Equal(t, end.Seq+1, left.Seq)
	again := must(t)(c.Store(nil).Leave(ctx, by("bob", "l"), id))
	require.True(t, again.Duplicate)
	require.Equal(t, left.MessageID, again.MessageID)
	_, err := s.Leave(ctx, by("bob", "l2"), id)
	requireCode(t, chat.CodeNotFound, err)
	require.Equal(t, left.Seq, c.Inbox("bob", id).LeftSeq)
	require.Equal(t, chat.StateDissolved, mustLine(t, s, "bob", id).Head.State)
	require.Equal(t, map[string]chat.Role{"ann": chat.RoleOwner, "cy": chat.RolePlain}, requireWhole(t, c, s, id).roles)

	must(t)(s.Leave(ctx, by("ann", "l"), id))
	require.Equal(t, "cy", requireWhole(t, c, s, id).owner, "who is left owns what is left")
	_, err = s.Append(ctx, chatIn(text("cy", "x", "hi"), id), "")
	requireCode(t, chat.CodeDissolved, err)
	_, err = s.AdmitMembers(ctx, id, []string{"bob"}, "x")
	requireCode(t, chat.CodeDissolved, err, "nor does the product add to it")
	must(t)(s.Leave(ctx, by("cy", "l"), id))
	require.Empty(t, requireWhole(t, c, s, id).roles)
	require.Equal(t, chat.StateDissolved, c.Head(id).State)
	requireDense(t, ledger(t, s, "cy", id), 5)
	report, err := operate.New(s).AuditConversation(ctx, id)
	require.NoError(t, err)
	require.Empty(t, report.Violations)
}

// A member who leaves at the moment at which the group is dissolved, or who is one
// of many that do, is out.
func TestG9_LeaveRacesTheEndOfTheGroup(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	members := users(6)
	id := newGroup(t, s, chat.VisibleAll, "ann", members...)
	dissolved := false
	w := &wire{Rule: func(op string, _ int) fault {
		if op == "TransactWriteItems" && !dissolved {
			dissolved = true
			must(t)(s.Dissolve(t.Context(), by("ann", "d"), id))
		}
		return none
	}}
	first := must(t)(c.Store(w).Leave(t.Context(), by(members[0], "l"), id))
	require.Equal(t, 2, first.Attempts)
	require.NoError(t, parallel(len(members)-1, func(i int) error {
		_, err := c.Store(nil).Leave(t.Context(), by(members[i+1], "l"), id)
		return err
	}))
	require.Equal(t, map[string]chat.Role{"ann": chat.RoleOwner}, requireWhole(t, c, s, id).roles)
}

// A remembered head is no way around the end of a group.
func TestADissolvedGroupTakesNoMessageFromOneWhoRemembersIt(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s, other := c.Store(nil), c.Store(nil)
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
	sendIn(t, other, "bob", id, "1")
	must(t)(s.Dissolve(t.Context(), by("ann", "d"), id))
	for i := range 3 {
		_, err := other.Append(t.Context(), chatIn(text("bob", fmt.Sprint("x", i), "hi"), id), "")
		requireCode(t, chat.CodeDissolved, err)
	}
	require.Equal(t, int64(3), c.Head(id).LastSeq)
}

// Who left by itself stays out of reach of the members for a time, and of nobody
// else's.
func TestG9_WhoLeftIsAddedAgainByTheProductAlone(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	const days = 24 * time.Hour
	s := c.Store(nil, store.WithRejoin(30*days))
	ctx := t.Context()
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob", "cy")
	must(t)(s.Leave(ctx, by("bob", "l1"), id))
	must(t)(s.RemoveMembers(ctx, by("ann", "r1"), id, []string{"cy"}))

	_, err := s.AddMembers(ctx, by("ann", "a1"), id, []string{"dan", "bob", "cy"})
	e := refused(t, chat.CodeForbidden, err)
	require.Equal(t, "members", e.Field)
	require.Equal(t, map[string]any{"members": []string{"bob"}}, e.Details)
	require.Equal(t, "1 of the users named left this group by themselves; for 30 days after that only the product adds them again, so leave them out", e.Message)
	must(t)(s.AddMembers(ctx, by("ann", "a2"), id, []string{"dan", "cy"}))

	admitted := must(t)(s.AdmitMembers(ctx, id, []string{"bob"}, "p1"))
	again := must(t)(c.Store(nil).AdmitMembers(ctx, id, []string{"bob"}, "p1"))
	require.True(t, again.Duplicate)
	require.Equal(t, admitted.MessageID, again.MessageID)
	entries, err := s.Entries(ctx, id, chat.Range{From: admitted.Seq, To: admitted.Seq})
	require.NoError(t, err)
	require.Equal(t, chat.SystemSender, entries[0].SenderID)
	require.Equal(t, &chat.Event{Kind: chat.EventMembers, Added: []string{"bob"}}, entries[0].Event)

	// What a removal ended, members begin again, also of one who left before that.
	must(t)(s.RemoveMembers(ctx, by("ann", "r2"), id, []string{"bob"}))
	must(t)(s.AddMembers(ctx, by("ann", "a3"), id, []string{"bob"}))

	// The time is over, or there is none.
	must(t)(s.Leave(ctx, by("bob", "l2"), id))
	must(t)(s.Leave(ctx, by("cy", "l2"), id))
	must(t)(c.Store(nil).AddMembers(ctx, by("ann", "a4"), id, []string{"cy"}))
	leftEarlier(c, "bob", id, 30*days-time.Minute)
	_, err = s.AddMembers(ctx, by("ann", "a5"), id, []string{"bob"})
	requireCode(t, chat.CodeForbidden, err)
	leftEarlier(c, "bob", id, time.Minute)
	must(t)(s.AddMembers(ctx, by("ann", "a5"), id, []string{"bob"}))
	requireWhole(t, c, s, id)
}

func TestAdmitMembersRefusals(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil, store.WithMaxGroupMembers(4))
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
	single := send(t, s, "ann", "bob", "1").ConversationID
	must(t)(s.AdmitMembers(t.Context(), id, []string{"cy"}, "used"))
	for name, tc := range map[string]struct {
		id      chat.ConversationID
		members []string
		key     string
		code    chat.Code
	}{
		"who is there":      {id, []string{"bob"}, "k", chat.CodeBadRequest},
		"one too many":      {id, []string{"dan", "eve"}, "k", chat.CodeLimit},
		"nobody":            {id, nil, "k", chat.CodeBadRequest},
		"no name":           {id, []string{""}, "k", chat.CodeBadRequest},
		"no key":            {id, []string{"dan"}, "", chat.CodeBadRequest},
		"a used key":        {id, []string{"dan"}, "used", chat.CodeIdempotencyConflict},
		"no group":          {single, []string{"dan"}, "k", chat.CodeForbidden},
		"an unknown group":  {"group:none", []string{"dan"}, "k", chat.CodeNotFound},
		"an id that is not": {"room:1", []string{"dan"}, "k", chat.CodeBadRequest},
	} {
		_, err := s.AdmitMembers(t.Context(), tc.id, tc.members, tc.key)
		requireCode(t, tc.code, err, name)
	}
	requireWhole(t, c, s, id)
}

// Where the Store is closed, no user's action brings in one who was not there.
func TestG9_AClosedStoreLetsNoUserReachAStranger(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	open, s := c.Store(nil), c.Store(nil, store.WithClosed(true))
	ctx := t.Context()
	id := newGroup(t, open, chat.VisibleAll, "ann", "bob", "cy")
	added := must(t)(open.AddMembers(ctx, by("ann", "before"), id, []string{"dan"}))
	must(t)(open.RemoveMembers(ctx, by("ann", "r"), id, []string{"dan"}))
	lines, members := c.Count(c.Tables.Inboxes), c.Count(c.Tables.Members)

	for _, whom := range []string{"zoe", "dan"} { // a former member is a stranger
		_, err := s.AddMembers(ctx, by("ann", "a"), id, []string{whom})
		e := refused(t, chat.CodeForbidden, err, whom)
		require.Equal(t, "members", e.Field)
		require.Equal(t, "here only the product adds members to a group", e.Message)
	}
	_, err := s.AddMembers(ctx, by("mallory", "a"), id, []string{"zoe"})
	requireCode(t, chat.CodeNotFound, err)
	again := must(t)(s.AddMembers(ctx, by("ann", "before"), id, []string{"dan"}))
	require.True(t, again.Duplicate, "what was answered before is answered so again")
	require.Equal(t, added.MessageID, again.MessageID)

	_, err = s.Append(ctx, text("ann", "s", "hi"), "zoe")
	requireCode(t, chat.CodeForbidden, err)
	_, _, err = s.CreateGroup(ctx, by("ann", "g"), "Trip", []string{"zoe"}, chat.VisibleAll)
	requireCode(t, chat.CodeForbidden, err)
	_, err = s.SetRole(ctx, by("ann", "o"), id, "zoe", chat.RoleOwner)
	requireCode(t, chat.CodeBadRequest, err)
	_, err = s.RemoveMembers(ctx, by("ann", "x"), id, []string{"zoe"})
	requireCode(t, chat.CodeBadRequest, err)
	require.Equal(t, lines, c.Count(c.Tables.Inboxes))
	require.Equal(t, members, c.Count(c.Tables.Members))

	must(t)(s.AdmitMembers(ctx, id, []string{"zoe", "dan"}, "p"))
	must(t)(s.RemoveMembers(ctx, by("ann", "x"), id, []string{"zoe"}))
	must(t)(s.Leave(ctx, by("dan", "l"), id))
	requireWhole(t, c, s, id)
}

// listed returns the user's list, read in pages of this size, and how many were
// empty.
func listed(t testing.TB, list func(ctx context.Context, userID, cursor string, limit int) ([]store.Line, string, error), user string, limit int) (ids []chat.ConversationID, empty int) {
	t.Helper()
	for cursor := ""; ; {
		lines, next, err := list(t.Context(), user, cursor, limit)
		require.NoError(t, err)
		if len(lines) == 0 {
			empty++
		}
		for _, l := range lines {
			ids = append(ids, l.Head.ConversationID)
		}
		if next == "" {
			return ids, empty
		}
		require.Greater(t, next, cursor)
		cursor = next
	}
}

// Who has left and cleared a conversation has it on no list, and nothing of what
// the line holds is lost.
func TestG9_WhatWasLeftAndClearedIsHidden(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	ctx := t.Context()
	id := newGroup(t, s, chat.VisibleSinceJoin, "ann", "bob")
	sendIn(t, s, "ann", id, "m")
	_, _, err := s.Clear(ctx, "bob", id, 2)
	require.NoError(t, err)
	left := must(t)(s.Leave(ctx, by("bob", "l"), id))
	cursor := raise(t, s, "bob", []chat.ConversationID{id})
	ids, _ := listed(t, s.List, "bob", 10)
	require.Equal(t, []chat.ConversationID{id}, ids, "left, and not cleared to the end")

	cleared, rose, err := s.Clear(ctx, "bob", id, 100)
	require.NoError(t, err)
	require.True(t, rose)
	require.Equal(t, left.Seq, cleared)
	ids, _ = listed(t, s.List, "bob", 10)
	require.Empty(t, ids)
	ids, _ = listed(t, s.ListAll, "bob", 10)
	require.Equal(t, []chat.ConversationID{id}, ids, "for a device that may not know")
	lines, _, err := operate.New(s).LinesOf(ctx, "bob", "", 10)
	require.NoError(t, err)
	require.Len(t, lines, 1, "and for an operator")

	raise(t, s, "bob", []chat.ConversationID{id}) // as the route does
	told, err := s.Changes(ctx, "bob", cursor, "", 50)
	require.NoError(t, err)
	require.Len(t, told.Lines, 1, "the user's other devices hear of it")
	require.True(t, told.Lines[0].Hidden())
	behind, err := s.Changes(ctx, "bob", 1000, "", 50)
	require.NoError(t, err)
	require.True(t, behind.Full)
	require.Len(t, behind.Lines, 1, "also by the whole list")

	page, err := s.Sync(ctx, "bob", id, 0, 10, frame)
	require.NoError(t, err, "it is there, and nothing in it")
	require.Empty(t, page.Messages)
	require.Equal(t, left.Seq, page.CommittedMaxSeq)

	sendIn(t, s, "ann", id, "without bob")
	back := must(t)(s.AddMembers(ctx, by("ann", "a"), id, []string{"bob"}))
	ids, _ = listed(t, s.List, "bob", 10)
	require.Equal(t, []chat.ConversationID{id}, ids, "added again, it is listed again")
	in := c.Inbox("bob", id)
	require.Equal(t, left.Seq, in.ClearedSeq)
	require.Equal(t, []chat.Range{{From: 1, To: left.Seq}}, in.Past)
	require.Equal(t, []int64{back.Seq}, seqs(synced(t, s, "bob", id, 10)))
	requireWhole(t, c, s, id)
}

// Clearing what one is in hides nothing, dissolved or not: more may come.
func TestAMemberHidesNothingByClearing(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
	end := must(t)(s.Dissolve(t.Context(), by("ann", "d"), id))
	_, _, err := s.Clear(t.Context(), "bob", id, end.Seq)
	require.NoError(t, err)
	ids, _ := listed(t, s.List, "bob", 10)
	require.Equal(t, []chat.ConversationID{id}, ids)
	left := must(t)(s.Leave(t.Context(), by("bob", "l"), id))
	_, _, err = s.Clear(t.Context(), "bob", id, left.Seq)
	require.NoError(t, err)
	ids, _ = listed(t, s.List, "bob", 10)
	require.Empty(t, ids)
}

// Pages of nothing but hidden lines lead on.
func TestAListGoesOnBehindHiddenLines(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	ids := c.Lines("bob", 30)
	for i, id := range ids {
		line := map[string]any{"userId": "bob", "conversationId": id, "joinSeq": 1, "readSeq": 0, "deliveredSeq": 0, "clearedSeq": 0}
		switch {
		case i == 3: // left, not cleared
			line["leftSeq"] = i + 1
		case i == 17: // cleared, not left
			line["clearedSeq"] = i + 1
		case i < 25:
			line["leftSeq"], line["clearedSeq"] = i+1, i+1
		}
		c.Put(c.Tables.Inboxes, line)
	}
	want := append([]chat.ConversationID{ids[3], ids[17]}, ids[25:]...)
	for _, limit := range []int{1, 4, 7, 100} {
		got, empty := listed(t, s.List, "bob", limit)
		require.Equal(t, want, got, limit)
		require.Equal(t, limit < 10, empty > 0, limit)
		got, _ = listed(t, s.ListAll, "bob", limit)
		require.Equal(t, ids, got, limit)
	}
}
