package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/internal/storetest"
)

// must returns what a change became, which has to work.
func must(t testing.TB) func(store.Committed, error) store.Committed {
	return func(r store.Committed, err error) store.Committed {
		t.Helper()
		require.NoError(t, err)
		return r
	}
}

// told is a group as its ledger tells of it.
type told struct {
	roles        map[string]chat.Role
	owner, title string
	state        chat.State
	version      int64
	removals     int64
	windows      map[string][]chat.Range // To is 0 while the user is a member
}

// replay reads a group's history off its events.
func replay(t require.TestingT, v chat.Visibility, entries []chat.Message) told {
	g := told{roles: map[string]chat.Role{}, state: chat.StateActive, windows: map[string][]chat.Range{}}
	for _, m := range entries {
		leaves := m.Event != nil && slices.Equal(m.Event.Removed, []string{m.SenderID})
		require.True(t, g.state == chat.StateActive || leaves, "seq %d came after the end", m.Seq)
		_, isMember := g.roles[m.SenderID]
		require.True(t, isMember || m.Seq == 1 || m.SenderID == chat.SystemSender, "seq %d is of %s, who is no member", m.Seq, m.SenderID)
		if m.Event == nil {
			continue
		}
		switch m.Event.Kind {
		case chat.EventTitle:
			g.title = m.Event.Title
		case chat.EventDissolve:
			g.state = chat.StateDissolved
		case chat.EventMembers:
			g.members(t, v, m)
		}
	}
	return g
}

func (g *told) members(t require.TestingT, v chat.Visibility, m chat.Message) {
	e := m.Event
	g.version++
	if len(e.Removed) > 0 {
		g.removals++
	}
	if m.Seq == 1 {
		g.title = e.Title
	}
	for _, id := range e.Added {
		require.NotContains(t, g.roles, id, "seq %d adds a member", m.Seq)
		g.roles[id] = chat.RolePlain
		before := len(g.windows[id])
		switch {
		case before > 0 && g.windows[id][before-1].To == m.Seq-1:
			g.windows[id][before-1].To = 0 // back at once: never away
		case before == 0 && v == chat.VisibleAll:
			g.windows[id] = []chat.Range{{From: 1}}
		default:
			g.windows[id] = append(g.windows[id], chat.Range{From: m.Seq})
		}
	}
	for _, id := range e.Removed {
		require.Contains(t, g.roles, id, "seq %d removes no member", m.Seq)
		delete(g.roles, id)
		g.windows[id][len(g.windows[id])-1].To = m.Seq
	}
	if e.Member != "" {
		require.Contains(t, g.roles, e.Member, "seq %d", m.Seq)
		g.roles[e.Member] = e.Role
	}
	if e.Owner != "" {
		if _, stays := g.roles[g.owner]; stays {
			g.roles[g.owner] = chat.RoleAdmin
		}
		require.Contains(t, g.roles, e.Owner, "seq %d", m.Seq)
		g.owner, g.roles[e.Owner] = e.Owner, chat.RoleOwner
	}
	if len(g.roles) == 0 {
		g.state = chat.StateDissolved
	}
}

// requireWhole checks that ledger, head, roster and inboxes of a group say the
// same, and returns what they say.
func requireWhole(t require.TestingT, c *cloud, s *store.Store, id chat.ConversationID) told {
	head := c.Head(id)
	entries, err := s.Entries(context.Background(), id, chat.Range{From: 1, To: head.LastSeq})
	require.NoError(t, err)
	for i, m := range entries {
		require.Equal(t, int64(i+1), m.Seq)
	}
	require.Len(t, entries, int(head.LastSeq))
	g := replay(t, head.Visibility, entries)

	roster, err := s.Roster(context.Background(), id)
	require.NoError(t, err)
	roles, joins := map[string]chat.Role{}, map[string]int64{}
	for _, m := range roster {
		roles[m.UserID], joins[m.UserID] = m.Role, m.JoinSeq
	}
	require.Equal(t, g.roles, roles)
	require.Equal(t, len(roster), head.MemberCount)
	require.True(t, head.Hashed())
	require.Equal(t, chat.RosterHash(roster), head.RosterHash)
	require.Equal(t, g.version, head.MembersVersion)
	require.Equal(t, g.removals, head.Removals()-1, "making the group may have removed someone, for all it knows")
	require.Equal(t, g.title, head.Title)
	require.Equal(t, g.state, head.State)
	if len(roster) > 0 {
		require.Equal(t, g.owner, head.Owner)
	}
	for user, windows := range g.windows {
		in := c.Inbox(user, id)
		windows = windows[max(0, len(windows)-1-chat.MaxPastStretches):]
		require.Equal(t, windows, append(in.Past, chat.Range{From: in.JoinSeq, To: in.LeftSeq}), user)
		require.LessOrEqual(t, in.ReadSeq, in.DeliveredSeq, user)
		if in.LeftSeq == 0 {
			require.Equal(t, in.JoinSeq, joins[user], user)
		}
	}
	return g
}

func TestCreateGroup(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	w := &wire{}
	s := c.Store(w)
	line, r, err := s.CreateGroup(t.Context(), by("ann", "1"), "Café 字", []string{"bob", "cy"}, chat.VisibleSinceJoin)
	require.NoError(t, err)
	calls, _ := w.Since(0)
	require.Equal(t, []string{"TransactWriteItems"}, calls)
	id := line.Head.ConversationID
	kind, ok := id.Kind()
	require.True(t, ok)
	require.Equal(t, chat.KindGroup, kind)
	require.Equal(t, store.Committed{Sent: chat.Sent{ConversationID: id, Seq: 1, MessageID: line.Last.MessageID, ServerTime: r.ServerTime}, Effort: metric.Effort{Attempts: 1}}, r)
	require.Equal(t, c.Head(id), line.Head, "what was answered is what was written")
	again, err := s.Line(t.Context(), "ann", id)
	require.NoError(t, err)
	require.Equal(t, again, line)
	require.Zero(t, line.Unread())

	g := requireWhole(t, c, s, id)
	require.Equal(t, map[string]chat.Role{"ann": chat.RoleOwner, "bob": chat.RolePlain, "cy": chat.RolePlain}, g.roles)
	require.Equal(t, "Café 字", g.title)
	require.Equal(t, chat.VisibleSinceJoin, line.Head.Visibility)
	for _, user := range []string{"bob", "cy"} {
		requireDense(t, ledger(t, s, user, id), 1)
		bobs, _, err := s.List(t.Context(), user, "", 10)
		require.NoError(t, err)
		require.Equal(t, int64(1), bobs[0].Unread())
	}
	alone, _, err := s.CreateGroup(t.Context(), by("ann", "2"), "notes", nil, chat.VisibleAll)
	require.NoError(t, err)
	require.Equal(t, 1, alone.Head.MemberCount)
}

func TestG3_OneClientMsgIDMakesOneGroup(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	const tries = 8
	lines, committed := make([]store.Line, tries), make([]store.Committed, tries)
	require.NoError(t, parallel(tries, func(i int) error {
		var err error
		lines[i], committed[i], err = c.Store(nil).CreateGroup(t.Context(), by("ann", "same"), "one", []string{"bob"}, chat.VisibleAll)
		return err
	}))
	fresh := 0
	for i := range tries {
		if !committed[i].Duplicate {
			fresh++
		}
		require.Equal(t, lines[0], lines[i])
		require.Equal(t, committed[0].MessageID, committed[i].MessageID)
	}
	require.Equal(t, 1, fresh)
	require.Equal(t, 1, c.Count(c.Tables.Conversations))
	s := c.Store(nil)
	for name, tc := range map[string]struct {
		title   string
		members []string
		v       chat.Visibility
	}{
		"other title":      {"two", []string{"bob"}, chat.VisibleAll},
		"other members":    {"one", []string{"cy"}, chat.VisibleAll},
		"other visibility": {"one", []string{"bob"}, chat.VisibleSinceJoin},
	} {
		_, _, err := s.CreateGroup(t.Context(), by("ann", "same"), tc.title, tc.members, tc.v)
		e := refused(t, chat.CodeIdempotencyConflict, err, name)
		require.Equal(t, committed[0].MessageID, e.Details["messageId"], name)
	}
	must(t)(s.Leave(t.Context(), by("ann", "leave"), committed[0].ConversationID))
	line, r, err := c.Store(nil).CreateGroup(t.Context(), by("ann", "same"), "one", []string{"bob"}, chat.VisibleAll)
	require.NoError(t, err, "a retry after the owner has left")
	require.True(t, r.Duplicate)
	require.Equal(t, committed[0].ConversationID, line.Head.ConversationID)
	require.Equal(t, 1, c.Count(c.Tables.Conversations))
}

func users(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("user%03d", i)
	}
	return ids
}

func TestCreateGroupRefusals(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	for name, tc := range map[string]struct {
		title   string
		members []string
		v       chat.Visibility
		code    chat.Code
		field   string
		most    any
	}{
		"empty title":        {"", []string{"bob"}, chat.VisibleAll, chat.CodeBadRequest, "title", nil},
		"blank title":        {" \u00a0", []string{"bob"}, chat.VisibleAll, chat.CodeBadRequest, "title", nil},
		"long title":         {strings.Repeat("字", 101), []string{"bob"}, chat.VisibleAll, chat.CodeTooLarge, "title", nil},
		"101 recipients":     {"g", users(101), chat.VisibleAll, chat.CodeLimit, "members", 47},
		"48 recipients":      {"g", users(48), chat.VisibleAll, chat.CodeLimit, "members", 47},
		"duplicate member":   {"g", []string{"bob", "cy", "bob"}, chat.VisibleAll, chat.CodeBadRequest, "members", nil},
		"oneself":            {"g", []string{"bob", "ann"}, chat.VisibleAll, chat.CodeBadRequest, "members", nil},
		"empty user id":      {"g", []string{""}, chat.VisibleAll, chat.CodeBadRequest, "members", nil},
		"long user id":       {"g", []string{strings.Repeat("u", 129)}, chat.VisibleAll, chat.CodeBadRequest, "members", nil},
		"user id with a tab": {"g", []string{"b\tb"}, chat.VisibleAll, chat.CodeBadRequest, "members", nil},
		"no visibility":      {"g", []string{"bob"}, "", chat.CodeBadRequest, "visibility", nil},
	} {
		_, _, err := s.CreateGroup(t.Context(), by("ann", "x"), tc.title, tc.members, tc.v)
		e := refused(t, tc.code, err, name)
		require.Equal(t, tc.field, e.Field, name)
		require.Equal(t, tc.most, e.Details["max"], name)
	}
	_, _, err := s.CreateGroup(t.Context(), by("ann", ""), "g", nil, chat.VisibleAll)
	require.Equal(t, "clientMsgId", refused(t, chat.CodeBadRequest, err).Field)
	require.Zero(t, c.Count(c.Tables.Conversations))

	line, _, err := s.CreateGroup(t.Context(), by("ann", "x"), "g", users(47), chat.VisibleAll)
	require.NoError(t, err, "the largest that is allowed")
	requireWhole(t, c, s, line.Head.ConversationID)
}

// step is a change of a group and what it has to do.
type step struct {
	name  string
	do    func(*store.Store) (store.Committed, error)
	event chat.Event
	after map[string]chat.Role
}

// Every change is one transaction and one message with a seq of its own, leaves
// head, roster and inboxes in agreement, and gives its first result to a retry,
// however much has happened since.
func TestEveryChangeIsOneTransactionAndOneMessage(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	w := &wire{}
	s := c.Store(w)
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob", "cy")
	const owner, admin, plain = chat.RoleOwner, chat.RoleAdmin, chat.RolePlain
	members := func(e chat.Event) chat.Event { e.Kind = chat.EventMembers; return e }
	ctx := t.Context()
	steps := []step{
		{"owner adds", func(s *store.Store) (store.Committed, error) {
			return s.AddMembers(ctx, by("ann", "1"), id, []string{"dan", "eve"})
		}, members(chat.Event{Added: []string{"dan", "eve"}}),
			map[string]chat.Role{"ann": owner, "bob": plain, "cy": plain, "dan": plain, "eve": plain}},
		{"owner makes an admin", func(s *store.Store) (store.Committed, error) {
			return s.SetRole(ctx, by("ann", "2"), id, "bob", admin)
		}, members(chat.Event{Member: "bob", Role: admin}),
			map[string]chat.Role{"ann": owner, "bob": admin, "cy": plain, "dan": plain, "eve": plain}},
		{"admin removes", func(s *store.Store) (store.Committed, error) {
			return s.RemoveMembers(ctx, by("bob", "3"), id, []string{"cy", "dan"})
		}, members(chat.Event{Removed: []string{"cy", "dan"}}),
			map[string]chat.Role{"ann": owner, "bob": admin, "eve": plain}},
		{"admin renames", func(s *store.Store) (store.Committed, error) {
			return s.SetTitle(ctx, by("bob", "4"), id, "new")
		}, chat.Event{Kind: chat.EventTitle, Title: "new"},
			map[string]chat.Role{"ann": owner, "bob": admin, "eve": plain}},
		{"admin adds a former member", func(s *store.Store) (store.Committed, error) {
			return s.AddMembers(ctx, by("bob", "5"), id, []string{"cy"})
		}, members(chat.Event{Added: []string{"cy"}}),
			map[string]chat.Role{"ann": owner, "bob": admin, "cy": plain, "eve": plain}},
		{"owner passes the group on", func(s *store.Store) (store.Committed, error) {
			return s.SetRole(ctx, by("ann", "6"), id, "eve", owner)
		}, members(chat.Event{Member: "eve", Role: owner, Owner: "eve"}),
			map[string]chat.Role{"ann": admin, "bob": admin, "cy": plain, "eve": owner}},
		{"new owner demotes an admin", func(s *store.Store) (store.Committed, error) {
			return s.SetRole(ctx, by("eve", "7"), id, "bob", plain)
		}, members(chat.Event{Member: "bob", Role: plain}),
			map[string]chat.Role{"ann": admin, "bob": plain, "cy": plain, "eve": owner}},
		{"member leaves", func(s *store.Store) (store.Committed, error) {
			return s.Leave(ctx, by("bob", "8"), id)
		}, members(chat.Event{Removed: []string{"bob"}}),
			map[string]chat.Role{"ann": admin, "cy": plain, "eve": owner}},
		{"owner leaves", func(s *store.Store) (store.Committed, error) {
			return s.Leave(ctx, by("eve", "9"), id)
		}, members(chat.Event{Removed: []string{"eve"}, Owner: "ann"}),
			map[string]chat.Role{"ann": owner, "cy": plain}},
		{"owner removes", func(s *store.Store) (store.Committed, error) {
			return s.RemoveMembers(ctx, by("ann", "10"), id, []string{"cy"})
		}, members(chat.Event{Removed: []string{"cy"}}),
			map[string]chat.Role{"ann": owner}},
		{"owner dissolves", func(s *store.Store) (store.Committed, error) {
			return s.Dissolve(ctx, by("ann", "11"), id)
		}, chat.Event{Kind: chat.EventDissolve},
			map[string]chat.Role{"ann": owner}},
	}
	first := make([]store.Committed, len(steps))
	for i, st := range steps {
		_, n := w.Since(0)
		r, err := st.do(s)
		require.NoError(t, err, st.name)
		calls, _ := w.Since(n)
		require.Equal(t, "TransactWriteItems", calls[len(calls)-1], st.name)
		for _, op := range calls[:len(calls)-1] {
			require.Contains(t, []string{"TransactGetItems", "BatchGetItem", "Query"}, op, "%s writes once", st.name)
		}
		require.LessOrEqual(t, len(calls), 4, "%s: %v", st.name, calls)
		require.Equal(t, int64(i+2), r.Seq, st.name)
		require.False(t, r.Duplicate, st.name)
		entries, err := s.Entries(ctx, id, chat.Range{From: r.Seq, To: r.Seq})
		require.NoError(t, err)
		require.Equal(t, &st.event, entries[0].Event, st.name)
		require.Equal(t, r.MessageID, entries[0].MessageID, st.name)
		require.Equal(t, st.after, requireWhole(t, c, s, id).roles, st.name)
		first[i] = r
	}
	before := c.Head(id)
	for i, st := range steps {
		r, err := st.do(c.Store(nil))
		require.NoError(t, err, "retry: %s", st.name)
		require.True(t, r.Duplicate, st.name)
		r.Duplicate, r.Attempts = false, first[i].Attempts
		require.Equal(t, first[i], r, st.name)
	}
	require.Equal(t, before, c.Head(id), "retries change nothing")
}

func TestGroupRefusals(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	ctx := t.Context()
	id := newGroup(t, s, chat.VisibleAll, "owner", "admin", "admin2", "member", "former", "member2")
	must(t)(s.SetRole(ctx, by("owner", "a1"), id, "admin", chat.RoleAdmin))
	must(t)(s.SetRole(ctx, by("owner", "a2"), id, "admin2", chat.RoleAdmin))
	must(t)(s.RemoveMembers(ctx, by("owner", "a3"), id, []string{"former"}))
	single := send(t, s, "owner", "admin", "s1").ConversationID
	published, err := s.Publish(ctx, store.Publication{
		Key: "order:1", Recipients: []string{"owner"}, ClientMsgID: "p", Message: chat.Message{MessageType: chat.TypeSystem, Text: "hi"},
	})
	require.NoError(t, err)

	type call func(user string, id chat.ConversationID, key string) (store.Committed, error)
	add := func(ids ...string) call {
		return func(user string, id chat.ConversationID, key string) (store.Committed, error) {
			return s.AddMembers(ctx, by(user, key), id, ids)
		}
	}
	remove := func(ids ...string) call {
		return func(user string, id chat.ConversationID, key string) (store.Committed, error) {
			return s.RemoveMembers(ctx, by(user, key), id, ids)
		}
	}
	role := func(whose string, r chat.Role) call {
		return func(user string, id chat.ConversationID, key string) (store.Committed, error) {
			return s.SetRole(ctx, by(user, key), id, whose, r)
		}
	}
	title := func(title string) call {
		return func(user string, id chat.ConversationID, key string) (store.Committed, error) {
			return s.SetTitle(ctx, by(user, key), id, title)
		}
	}
	leave := call(func(user string, id chat.ConversationID, key string) (store.Committed, error) {
		return s.Leave(ctx, by(user, key), id)
	})
	dissolve := call(func(user string, id chat.ConversationID, key string) (store.Committed, error) {
		return s.Dissolve(ctx, by(user, key), id)
	})
	every := map[string]call{
		"add": add("new"), "remove": remove("member2"), "role": role("member2", chat.RoleAdmin),
		"title": title("t"), "leave": leave, "dissolve": dissolve,
	}
	type refusal struct {
		user    string
		id      chat.ConversationID
		do      call
		code    chat.Code
		details map[string]any
	}
	cases := map[string]refusal{
		"member adds":                {"member", id, add("new"), chat.CodeForbidden, nil},
		"member removes":             {"member", id, remove("member2"), chat.CodeForbidden, nil},
		"admin removes an admin":     {"admin", id, remove("admin2"), chat.CodeForbidden, nil},
		"admin removes the owner":    {"admin", id, remove("owner"), chat.CodeForbidden, nil},
		"admin removes one too many": {"admin", id, remove("member", "admin2"), chat.CodeForbidden, nil},
		"admin changes a role":       {"admin", id, role("member", chat.RoleAdmin), chat.CodeForbidden, nil},
		"member changes a role":      {"member", id, role("member2", chat.RoleAdmin), chat.CodeForbidden, nil},
		"member renames":             {"member", id, title("t"), chat.CodeForbidden, nil},
		"admin dissolves":            {"admin", id, dissolve, chat.CodeForbidden, nil},
		"member dissolves":           {"member", id, dissolve, chat.CodeForbidden, nil},
		"adding members again":       {"owner", id, add("new", "member", "member2"), chat.CodeBadRequest, map[string]any{"members": []string{"member", "member2"}}},
		"adding oneself":             {"owner", id, add("owner"), chat.CodeBadRequest, map[string]any{"members": []string{"owner"}}},
		"adding twice":               {"owner", id, add("new", "new"), chat.CodeBadRequest, nil},
		"adding nobody":              {"owner", id, add(), chat.CodeBadRequest, nil},
		"adding 101":                 {"owner", id, add(users(101)...), chat.CodeLimit, map[string]any{"max": 48}},
		"adding an odd id":           {"owner", id, add("a\nb"), chat.CodeBadRequest, nil},
		"removing strangers":         {"owner", id, remove("member", "x", "former"), chat.CodeBadRequest, map[string]any{"members": []string{"x", "former"}}},
		"removing oneself":           {"owner", id, remove("owner"), chat.CodeBadRequest, nil},
		"removing 49":                {"owner", id, remove(users(49)...), chat.CodeLimit, map[string]any{"max": 48}},
		"a role for oneself":         {"owner", id, role("owner", chat.RolePlain), chat.CodeBadRequest, nil},
		"a role for a former member": {"owner", id, role("former", chat.RoleAdmin), chat.CodeBadRequest, map[string]any{"members": []string{"former"}}},
		"a role that is none":        {"owner", id, role("member", "king"), chat.CodeBadRequest, nil},
		"an empty title":             {"owner", id, title(" "), chat.CodeBadRequest, nil},
		"a title with a line break":  {"owner", id, title("a\nb"), chat.CodeBadRequest, nil},
		"a title of 101 characters":  {"owner", id, title(strings.Repeat("é", 101)), chat.CodeTooLarge, nil},
		"an id that is none":         {"owner", "room:1", title("t"), chat.CodeBadRequest, nil},
		"no idempotency key is given": {"owner", id, func(user string, id chat.ConversationID, _ string) (store.Committed, error) {
			return s.SetTitle(ctx, by(user, ""), id, "t")
		}, chat.CodeBadRequest, nil},
	}
	for name, do := range every {
		cases["former: "+name] = refusal{"former", id, do, chat.CodeNotFound, nil}
		cases["stranger: "+name] = refusal{"mallory", id, do, chat.CodeNotFound, nil}
		cases["unknown group: "+name] = refusal{"owner", "group:none", do, chat.CodeNotFound, nil}
		cases["no group: "+name] = refusal{"owner", single, do, chat.CodeForbidden, nil}
		cases["no group, stranger: "+name] = refusal{"mallory", single, do, chat.CodeNotFound, nil}
		cases["system: "+name] = refusal{"owner", published.ConversationID, do, chat.CodeForbidden, nil}
		cases["system, stranger: "+name] = refusal{"mallory", published.ConversationID, do, chat.CodeNotFound, nil}
	}
	before, records := c.Head(id), c.Count(c.Tables.Idempotency)
	for name, tc := range cases {
		_, err := tc.do(tc.user, tc.id, "refused")
		e := refused(t, tc.code, err, name)
		require.Equal(t, tc.details, e.Details, name)
	}
	require.Equal(t, before, c.Head(id))
	require.Equal(t, records, c.Count(c.Tables.Idempotency))
	requireWhole(t, c, s, id)
	require.Equal(t, int64(1), c.Head(single).LastSeq)
}

func TestAGroupHasALargestSize(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := newGroup(t, s, chat.VisibleAll, "ann")
	for i, chunk := range slices.Collect(slices.Chunk(users(chat.MaxGroupMembers-1), chat.MaxRosterChange)) {
		must(t)(s.AddMembers(t.Context(), by("ann", fmt.Sprint(i)), id, chunk))
	}
	_, err := s.AddMembers(t.Context(), by("ann", "more"), id, []string{"bob"})
	require.Equal(t, chat.MaxGroupMembers, refused(t, chat.CodeLimit, err).Details["max"])
	must(t)(s.RemoveMembers(t.Context(), by("ann", "less"), id, users(chat.MaxRosterChange)))
	must(t)(s.AddMembers(t.Context(), by("ann", "more"), id, []string{"bob"}))
	require.Equal(t, chat.MaxGroupMembers-chat.MaxRosterChange+1, c.Head(id).MemberCount)
	roster, err := s.Roster(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, roster, c.Head(id).MemberCount)
	page, err := s.MembersOf(t.Context(), "bob", id, "", 100)
	require.NoError(t, err)
	var paged []chat.Member
	for paged = page.Members; page.Next != ""; paged = append(paged, page.Members...) {
		page, err = s.MembersOf(t.Context(), "bob", id, page.Next, 100)
		require.NoError(t, err)
		require.Equal(t, c.Head(id).MembersVersion, page.MembersVersion)
	}
	require.Equal(t, roster, paged)
}

func TestMembersAreShownToMembers(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob", "cy")
	must(t)(s.RemoveMembers(t.Context(), by("ann", "r"), id, []string{"cy"}))
	_, err := s.MembersOf(t.Context(), "bob", id, "", 10)
	require.NoError(t, err)
	for user, code := range map[string]chat.Code{"cy": chat.CodeForbidden, "mallory": chat.CodeNotFound} {
		_, err = s.MembersOf(t.Context(), user, id, "", 10)
		requireCode(t, code, err, user)
		_, err = s.Receipts(t.Context(), user, id, 1, "", 10)
		requireCode(t, code, err, user)
	}
}

func TestAnOwnerWhoLeavesPassesTheGroupOn(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	ctx := t.Context()
	id := newGroup(t, s, chat.VisibleAll, "ann", "dan", "cy")
	must(t)(s.AddMembers(ctx, by("ann", "1"), id, []string{"bob", "aaron"}))
	must(t)(s.SetRole(ctx, by("ann", "2"), id, "bob", chat.RoleAdmin))
	must(t)(s.SetRole(ctx, by("ann", "3"), id, "aaron", chat.RoleAdmin))
	for i, want := range []string{
		"aaron", // of the admins who joined at the same time the first by id
		"bob",   // the other admin
		"cy",    // no admin is left: of those who joined first the first by id
		"dan",
	} {
		must(t)(s.Leave(ctx, by(c.Head(id).Owner, fmt.Sprint("leave", i)), id))
		require.Equal(t, want, c.Head(id).Owner)
		require.Equal(t, want, requireWhole(t, c, s, id).owner)
	}
	must(t)(s.Leave(ctx, by("dan", "last"), id))
	g := requireWhole(t, c, s, id)
	require.Empty(t, g.roles)
	require.Equal(t, chat.StateDissolved, g.state)
	require.Equal(t, chat.StateDissolved, c.Head(id).State)
	_, err := s.Append(ctx, chatIn(text("dan", "x", "hi"), id), "")
	requireCode(t, chat.CodeNotFound, err)
	requireDense(t, ledger(t, s, "dan", id), int(c.Head(id).LastSeq))
}

func TestADissolvedGroupCanBeReadAndLeftAndNothingElse(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	ctx := t.Context()
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
	sent := sendIn(t, s, "ann", id, "m")
	must(t)(s.Dissolve(ctx, by("ann", "d"), id))
	target := store.Target{ConversationID: id, Seq: sent.Seq, MessageID: sent.MessageID}
	for name, do := range map[string]func(user string) (store.Committed, error){
		"send": func(user string) (store.Committed, error) {
			return s.Append(ctx, chatIn(text(user, "x", "hi"), id), "")
		},
		"add": func(user string) (store.Committed, error) {
			return s.AddMembers(ctx, by(user, "x"), id, []string{"cy"})
		},
		"remove": func(user string) (store.Committed, error) {
			return s.RemoveMembers(ctx, by(user, "x"), id, []string{"cy"})
		},
		"role": func(user string) (store.Committed, error) {
			return s.SetRole(ctx, by(user, "x"), id, "cy", chat.RoleAdmin)
		},
		"title":    func(user string) (store.Committed, error) { return s.SetTitle(ctx, by(user, "x"), id, "t") },
		"dissolve": func(user string) (store.Committed, error) { return s.Dissolve(ctx, by(user, "x"), id) },
		"recall": func(user string) (store.Committed, error) {
			return s.Recall(ctx, by(user, "x"), target, store.NoWindow)
		},
		"edit": func(user string) (store.Committed, error) {
			return s.Edit(ctx, by(user, "x"), target, store.Edited{Version: 1, Text: "new"}, store.NoWindow)
		},
	} {
		for user, code := range map[string]chat.Code{"ann": chat.CodeDissolved, "bob": chat.CodeDissolved, "mallory": chat.CodeNotFound} {
			_, err := do(user)
			requireCode(t, code, err, "%s: %s", user, name)
		}
	}
	for _, user := range []string{"ann", "bob"} {
		requireDense(t, ledger(t, c.Store(nil), user, id), 3)
		acked, err := s.Ack(ctx, user, id, store.Watermarks{ReadSeq: 3})
		require.NoError(t, err)
		require.Equal(t, int64(3), acked.ReadSeq)
	}
	requireWhole(t, c, s, id)
}

// Of what becomes of a group after they left, former members learn nothing.
func TestAFormerMemberSeesTheGroupAsItWas(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	ctx := t.Context()
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob", "cy")
	removed := must(t)(s.RemoveMembers(ctx, by("ann", "1"), id, []string{"bob"}))
	was := c.Head(id)
	was.RosterHash, was.HashedVersion, was.Kept, was.RemovedAt = 0, 0, 0, 0 // they are shown no roster
	must(t)(s.SetTitle(ctx, by("ann", "2"), id, "without bob"))
	must(t)(s.SetRole(ctx, by("ann", "3"), id, "cy", chat.RoleOwner))
	must(t)(s.Dissolve(ctx, by("cy", "4"), id))
	line, err := s.Line(ctx, "bob", id)
	require.NoError(t, err)
	require.Equal(t, was, line.Head)
	require.Equal(t, removed.Seq, line.LastSeq())
	lines, _, err := s.List(ctx, "bob", "", 10)
	require.NoError(t, err)
	require.Equal(t, []store.Line{line}, lines)
}

// Each way to change a roster leaves a head that knows it, and how often someone
// may have been removed.
func TestG9_EveryChangeOfARosterIsInItsHash(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	ctx := t.Context()
	check := func(id chat.ConversationID, changes, removals int64, members ...string) {
		t.Helper()
		head := c.Head(id)
		roster, err := s.Roster(ctx, id)
		require.NoError(t, err)
		ids := make([]string, len(roster))
		for i, m := range roster {
			ids[i] = m.UserID
		}
		require.Equal(t, append([]string{}, members...), ids)
		require.True(t, head.Hashed())
		require.True(t, head.IsRoster(roster))
		require.Equal(t, chat.RosterHash(roster), head.RosterHash)
		require.Equal(t, []int64{1 + changes, 1 + removals}, []int64{head.MembersVersion, head.Removals()})
	}
	check(send(t, s, "ann", "bob", "1").ConversationID, 0, 0, "ann", "bob")
	check(send(t, s, "ann", "ann", "2").ConversationID, 0, 0, "ann")
	check(must(t)(s.OpenSingle(ctx, "cy", "dan")).ConversationID, 0, 0, "cy", "dan")
	check(must(t)(s.OpenGroup(ctx, by("ann", "3"), "a group", []string{"bob"}, chat.VisibleAll)).ConversationID, 0, 0, "ann", "bob")

	publish := func(key string, to ...string) chat.ConversationID {
		return must(t)(s.Publish(ctx, store.Publication{
			Key: "1", Title: "T", Recipients: to, ClientMsgID: key, Message: chat.Message{MessageType: chat.TypeSystem, Text: "x"},
		})).ConversationID
	}
	check(publish("1", "bob", "ann"), 0, 0, "ann", "bob")
	check(publish("2", "ann"), 0, 0, "ann", "bob")
	check(publish("3", "ann", "cy"), 1, 0, "ann", "bob", "cy")

	id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
	check(id, 0, 0, "ann", "bob")
	must(t)(s.AddMembers(ctx, by("ann", "a"), id, []string{"cy", "dan"}))
	check(id, 1, 0, "ann", "bob", "cy", "dan")
	must(t)(s.SetRole(ctx, by("ann", "b"), id, "cy", chat.RoleAdmin))
	check(id, 2, 0, "ann", "bob", "cy", "dan")
	must(t)(s.SetTitle(ctx, by("ann", "c"), id, "other"))
	check(id, 2, 0, "ann", "bob", "cy", "dan")
	must(t)(s.RemoveMembers(ctx, by("ann", "d"), id, []string{"bob", "dan"}))
	check(id, 3, 1, "ann", "cy")
	must(t)(s.AddMembers(ctx, by("ann", "e"), id, []string{"bob"}))
	check(id, 4, 1, "ann", "bob", "cy")
	must(t)(s.Leave(ctx, by("ann", "f"), id))
	check(id, 5, 2, "bob", "cy")
	must(t)(s.Leave(ctx, by("bob", "g"), id))
	check(id, 6, 3, "cy")
	must(t)(s.Leave(ctx, by("cy", "h"), id))
	check(id, 7, 4)
}

// A user who is removed while sending from several environments: what was
// committed came before the removal, and nothing comes after it.
func TestG9_ARemovalRacesTheSendsOfTheRemoved(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	admin := c.Store(nil)
	id := newGroup(t, admin, chat.VisibleAll, "ann", "bob")
	const stores, each = 5, 40
	acked := make([][]store.Committed, stores)
	begun := make(chan struct{})
	var first sync.Once
	var removal store.Committed
	require.NoError(t, parallel(stores+1, func(i int) error {
		if i == stores {
			<-begun
			var err error
			removal, err = admin.RemoveMembers(t.Context(), by("ann", "remove"), id, []string{"bob"})
			return err
		}
		s := c.Store(nil)
		refused := 0
		for n := 0; n < each || refused == 0; n++ {
			r, err := s.Append(t.Context(), chatIn(text("bob", fmt.Sprintf("%d-%d", i, n), "hi"), id), "")
			if err != nil && chat.CodeOf(err) == chat.CodeNotFound {
				refused++
				continue
			}
			if err != nil {
				return err
			}
			if refused > 0 {
				return fmt.Errorf("seq %d was committed after a refusal", r.Seq)
			}
			acked[i] = append(acked[i], r)
			if len(acked[i]) == 3 {
				first.Do(func() { close(begun) })
			}
			// As a device does. It may find that the user has been removed.
			if _, err := s.Sync(t.Context(), "bob", id, r.Seq-1, 10, frame); err != nil {
				return err
			}
		}
		return nil
	}))
	total := 0
	for i := range acked {
		for _, r := range acked[i] {
			require.Less(t, r.Seq, removal.Seq)
			total++
		}
	}
	require.Equal(t, removal.Seq, c.Head(id).LastSeq, "nothing came after it")
	require.Equal(t, int64(total)+2, removal.Seq, "all that is there was acked")
	_, err := c.Store(nil).Append(t.Context(), chatIn(text("bob", "after", "hi"), id), "")
	requireCode(t, chat.CodeNotFound, err)
	requireWhole(t, c, admin, id)
}

// countOps returns how often each operation was called since the n-th call, and how
// many calls there are now.
func countOps(w *wire, n int) (map[string]int, int) {
	calls, now := w.Since(n)
	count := map[string]int{}
	for _, op := range calls {
		count[op]++
	}
	return count, now
}

// On the warm path a send is one write, however many send, and whoever joins.
func TestSendersOfAGroupAreLearnedTogether(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	admin := c.Store(nil)
	var senders []string
	for i := range 40 {
		senders = append(senders, fmt.Sprintf("u%02d", i))
	}
	id := newGroup(t, admin, chat.VisibleAll, "ann", senders...)
	w := &wire{}
	env := c.Store(w)
	calls := 0
	all := func(key string, want map[string]int) {
		t.Helper()
		for _, sender := range senders {
			sendIn(t, env, sender, id, key)
		}
		var got map[string]int
		got, calls = countOps(w, calls)
		require.Equal(t, want, got, key)
	}
	all("cold", map[string]int{"TransactGetItems": 2, "GetItem": 1, "Query": 1, "TransactWriteItems": 40})
	all("warm", map[string]int{"TransactWriteItems": 40})

	must(t)(admin.AddMembers(t.Context(), by("ann", "join"), id, []string{"new"}))
	all("after a joining", map[string]int{"TransactWriteItems": 41, "GetItem": 1})
	must(t)(admin.SetRole(t.Context(), by("ann", "role"), id, "new", chat.RoleAdmin))
	all("after a new role", map[string]int{"TransactWriteItems": 41, "GetItem": 1})
	sendIn(t, env, "new", id, "hello")
	var got map[string]int
	got, calls = countOps(w, calls)
	require.Equal(t, map[string]int{"TransactGetItems": 1, "TransactWriteItems": 1}, got, "who joined later is looked up alone")

	must(t)(admin.RemoveMembers(t.Context(), by("ann", "remove"), id, []string{"new"}))
	_, err := env.Append(t.Context(), chatIn(text("new", "after", "hi"), id), "")
	requireCode(t, chat.CodeNotFound, err)
	_, calls = w.Since(0)
	all("after a removal", map[string]int{"TransactGetItems": 2, "GetItem": 1, "Query": 1, "TransactWriteItems": 40})

	// One who is no member makes nobody read rosters.
	for n := range 5 {
		_, err := env.Append(t.Context(), chatIn(text("mallory", fmt.Sprint(n), "hi"), id), "")
		requireCode(t, chat.CodeNotFound, err)
	}
	got, _ = countOps(w, calls)
	require.Equal(t, map[string]int{"TransactGetItems": 10}, got, "the head with the roster item, and the idempotency record")
	requireWhole(t, c, admin, id)
}

// What a Query returns of a roster while a removal is being applied is not believed,
// in either direction.
func TestG9_AStaleRosterLetsNobodySend(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob", "cy", "dan")
	var before []byte
	w := &wire{Edit: func(op string, _, answer []byte) []byte {
		switch {
		case op != "Query":
		case before == nil:
			before = answer
		default:
			return before
		}
		return answer
	}}
	env := c.Store(w)
	_, err := env.Roster(t.Context(), id)
	require.NoError(t, err)
	must(t)(s.RemoveMembers(t.Context(), by("ann", "r"), id, []string{"bob"}))
	must(t)(s.AddMembers(t.Context(), by("ann", "a"), id, []string{"eve"}))
	for _, sender := range []string{"ann", "cy"} {
		sendIn(t, env, sender, id, "1")
	}
	_, n := w.Since(0)
	_, err = env.Append(t.Context(), chatIn(text("bob", "1", "hi"), id), "")
	requireCode(t, chat.CodeNotFound, err)
	calls, _ := w.Since(n)
	require.Equal(t, []string{"GetItem", "Query", "TransactGetItems", "TransactGetItems"}, calls, "the roster was read, and not believed")
	sendIn(t, env, "eve", id, "1")
	requireWhole(t, c, s, id)

	// The other way round, the head is from before, and so is what is learned by it:
	// the write that relies on it fails.
	must(t)(s.AddMembers(t.Context(), by("ann", "b"), id, []string{"bob"}))
	removed := false
	w = &wire{Rule: func(op string, _ int) fault {
		if op == "TransactWriteItems" && !removed {
			removed = true
			must(t)(s.RemoveMembers(t.Context(), by("ann", "r2"), id, []string{"bob"}))
		}
		return none
	}}
	removed = true
	env = c.Store(w)
	for _, sender := range []string{"ann", "cy", "dan"} {
		sendIn(t, env, sender, id, "2")
	}
	calls, _ = w.Since(0)
	require.Contains(t, calls, "Query", "bob is known")
	removed = false
	_, n = w.Since(0)
	_, err = env.Append(t.Context(), chatIn(text("bob", "2", "hi"), id), "")
	requireCode(t, chat.CodeNotFound, err)
	calls, _ = w.Since(n)
	require.Equal(t, "TransactWriteItems", calls[0], "it was tried without a read")
	require.True(t, removed)
	requireWhole(t, c, s, id)
}

// Members who are known by the roster send from several environments while others
// join all the time, and then are removed themselves.
func TestG9_ARemovalRacesSendersWhoAreKnownByTheRoster(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	admin := c.Store(nil)
	senders := []string{"bob", "cy", "dan", "eve"}
	id := newGroup(t, admin, chat.VisibleAll, "ann", senders...)
	var envs [3]*store.Store
	for i := range envs {
		w := &wire{}
		envs[i] = c.Store(w)
		for _, sender := range senders {
			sendIn(t, envs[i], sender, id, fmt.Sprint("before", i))
		}
		calls, _ := w.Since(0)
		require.Contains(t, calls, "Query", "all are known")
	}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	sent := make(chan struct{}, 1<<16)
	after10 := func(change func() (store.Committed, error)) (store.Committed, error) {
		for range 10 {
			select {
			case <-sent:
			case <-ctx.Done():
				return store.Committed{}, ctx.Err()
			}
		}
		return change()
	}
	var mu sync.Mutex
	removals := map[string]int64{}
	change := func() error {
		for n := range 6 {
			_, err := after10(func() (store.Committed, error) {
				return admin.AddMembers(ctx, by("ann", fmt.Sprint("join", n)), id, []string{fmt.Sprint("new", n)})
			})
			if err != nil {
				return err
			}
		}
		for _, sender := range senders {
			r, err := after10(func() (store.Committed, error) {
				return admin.RemoveMembers(ctx, by("ann", "remove "+sender), id, []string{sender})
			})
			if err != nil {
				return err
			}
			mu.Lock()
			removals[sender] = r.Seq
			mu.Unlock()
		}
		return nil
	}
	send := func(i int) error {
		gone := map[string]bool{}
		for n := 0; len(gone) < len(senders); n++ {
			for _, sender := range senders {
				m := chatIn(text(sender, fmt.Sprintf("%d-%d", i, n), "hi"), id)
				r, err := envs[i].Append(ctx, m, "")
				for isBusy(err) && ctx.Err() == nil { // who is told so sends again
					r, err = envs[i].Append(ctx, m, "")
				}
				sent <- struct{}{}
				mu.Lock()
				removal := removals[sender]
				mu.Unlock()
				switch {
				case err != nil && chat.CodeOf(err) == chat.CodeNotFound:
					gone[sender] = true
				case err != nil:
					return err
				case gone[sender] || removal != 0 && r.Seq > removal:
					return fmt.Errorf("seq %d of %s was committed after the removal at %d", r.Seq, sender, removal)
				}
			}
		}
		return nil
	}
	require.NoError(t, parallel(len(envs)+1, func(i int) error {
		var err error
		if i == len(envs) {
			err = change()
		} else {
			err = send(i)
		}
		if err != nil {
			stop() // the others need not go on
		}
		return err
	}))
	requireWhole(t, c, admin, id)
}

// A change that messages outrun is tried again at once and without a read, or
// one who sends without a pause could not be removed.
func TestG9_MessagesDoNotHoldARemovalUp(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
	var sent []error
	w := &wire{Rule: func(op string, n int) fault {
		if op == "TransactWriteItems" && n <= 5 {
			_, err := s.Append(t.Context(), chatIn(text("bob", fmt.Sprint(n), "hi"), id), "")
			sent = append(sent, err)
		}
		return none
	}}
	r := must(t)(c.Store(w).RemoveMembers(t.Context(), by("ann", "r"), id, []string{"bob"}))
	require.NoError(t, errors.Join(sent...))
	require.Equal(t, int64(7), r.Seq)
	require.Equal(t, 6, r.Attempts)
	calls, _ := w.Since(0)
	require.Equal(t, []string{"TransactGetItems", "BatchGetItem"}, calls[:2])
	require.Equal(t, slices.Repeat([]string{"TransactWriteItems"}, 6), calls[2:])
	requireWhole(t, c, s, id)

	// But when the roster has changed, what was read holds no more.
	must(t)(s.AddMembers(t.Context(), by("ann", "a"), id, []string{"bob"}))
	must(t)(s.SetRole(t.Context(), by("ann", "b"), id, "bob", chat.RoleAdmin))
	removed := false
	w = &wire{Rule: func(op string, _ int) fault {
		if op == "TransactWriteItems" && !removed {
			removed = true
			_, err := s.RemoveMembers(t.Context(), by("ann", "c"), id, []string{"bob"})
			sent = append(sent, err)
		}
		return none
	}}
	_, err := c.Store(w).SetTitle(t.Context(), by("bob", "t"), id, "bob was here")
	require.NoError(t, errors.Join(sent...))
	requireCode(t, chat.CodeNotFound, err)
	requireWhole(t, c, s, id)
}

func TestG9_TwoAdminsAddAndRemoveTheSamePerson(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := newGroup(t, s, chat.VisibleSinceJoin, "ann", "bob", "cy")
	must(t)(s.SetRole(t.Context(), by("ann", "admin"), id, "bob", chat.RoleAdmin))
	const rounds = 12
	var changes [4]int
	require.NoError(t, parallel(4, func(i int) error {
		admin, s := []string{"ann", "bob"}[i%2], c.Store(nil)
		for n := range rounds {
			var err error
			key := by(admin, fmt.Sprintf("%d-%d", i, n))
			if (i/2+n)%2 == 0 {
				_, err = s.AddMembers(t.Context(), key, id, []string{"dan"})
			} else {
				_, err = s.RemoveMembers(t.Context(), key, id, []string{"dan"})
			}
			switch {
			case err == nil:
				changes[i]++
			case chat.CodeOf(err) != chat.CodeBadRequest:
				return err
			}
		}
		return nil
	}))
	total := changes[0] + changes[1] + changes[2] + changes[3]
	require.Equal(t, int64(total)+2, c.Head(id).LastSeq, "each change that was answered is there, and no other")
	require.Greater(t, total, 4)
	requireWhole(t, c, s, id)
}

// stale returns the answer to the first request that matches again for the next
// one, once: what a reader can get while a transaction is being applied.
func stale(op, table string) func(op string, request, answer []byte) []byte {
	var mu sync.Mutex
	var old []byte
	seen := 0
	return func(o string, request, answer []byte) []byte {
		if o != op || !strings.Contains(string(request), `"`+table+`"`) {
			return answer
		}
		mu.Lock()
		defer mu.Unlock()
		if seen++; seen == 2 {
			return old
		}
		old = answer
		return answer
	}
}

// While a removal is being applied, its head can be visible and the roster item
// still there. That must not let the removed one send.
func TestG9_AStaleRosterItemLetsNobodySend(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
	var member json.RawMessage
	w := &wire{Edit: func(op string, request, answer []byte) []byte {
		if op == "GetItem" && strings.Contains(string(request), `"`+c.Tables.Members+`"`) {
			return member
		}
		return answer
	}}
	member = json.RawMessage(`{"Item":{"conversationId":{"S":"` + string(id) + `"},"userId":{"S":"bob"},"role":{"S":"member"},"joinSeq":{"N":"1"},"joinedAt":{"N":"1"}}}`)
	bob := c.Store(w)
	sendIn(t, bob, "bob", id, "while a member")
	must(t)(s.RemoveMembers(t.Context(), by("ann", "r"), id, []string{"bob"}))
	for _, sender := range []*store.Store{bob, c.Store(w)} {
		_, err := sender.Append(t.Context(), chatIn(text("bob", "after", "hi"), id), "")
		requireCode(t, chat.CodeNotFound, err)
		_, err = sender.SetTitle(t.Context(), by("bob", "after"), id, "mine")
		requireCode(t, chat.CodeNotFound, err)
	}
	requireWhole(t, c, s, id)
}

func TestStaleReadsOfTheRosterChangeNothing(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	t.Run("a member is not removed twice", func(t *testing.T) {
		t.Parallel()
		c := newCloud(t)
		s := c.Store(nil)
		id := newGroup(t, s, chat.VisibleAll, "ann", "bob", "cy")
		admin := c.Store(&wire{Edit: stale("BatchGetItem", c.Tables.Members)})
		must(t)(admin.RemoveMembers(ctx, by("ann", "1"), id, []string{"bob"}))
		_, err := admin.RemoveMembers(ctx, by("ann", "2"), id, []string{"bob"})
		requireCode(t, chat.CodeBadRequest, err)
		requireWhole(t, c, s, id)
	})
	t.Run("a role is given to no former member", func(t *testing.T) {
		t.Parallel()
		c := newCloud(t)
		s := c.Store(nil)
		id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
		w := &wire{Edit: stale("BatchGetItem", c.Tables.Members)}
		admin := c.Store(w)
		must(t)(admin.SetRole(ctx, by("ann", "1"), id, "bob", chat.RoleAdmin))
		must(t)(s.RemoveMembers(ctx, by("ann", "2"), id, []string{"bob"}))
		_, err := admin.SetRole(ctx, by("ann", "3"), id, "bob", chat.RolePlain)
		requireCode(t, chat.CodeBadRequest, err)
		requireWhole(t, c, s, id)
	})
	t.Run("the first window of one who comes back is kept", func(t *testing.T) {
		t.Parallel()
		c := newCloud(t)
		s := c.Store(nil)
		id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
		current := map[string]json.RawMessage{}
		w := &wire{Edit: func(op string, request, answer []byte) []byte {
			if op != "BatchGetItem" || !strings.Contains(string(request), `"`+c.Tables.Inboxes+`"`) || current["used"] != nil {
				return answer
			}
			current["used"] = json.RawMessage(`true`)
			return []byte(`{"Responses":{"` + c.Tables.Inboxes + `":[{"userId":{"S":"bob"},"conversationId":{"S":"` + string(id) + `"},"joinSeq":{"N":"1"}}]},"UnprocessedKeys":{}}`)
		}}
		must(t)(s.RemoveMembers(ctx, by("ann", "1"), id, []string{"bob"}))
		must(t)(c.Store(w).AddMembers(ctx, by("ann", "2"), id, []string{"bob"}))
		require.NotEmpty(t, current, "the inbox was read")
		requireWhole(t, c, s, id)
	})
	t.Run("a group with a newcomer is not dissolved", func(t *testing.T) {
		t.Parallel()
		c := newCloud(t)
		s := c.Store(nil)
		id := newGroup(t, s, chat.VisibleAll, "ann")
		must(t)(s.AddMembers(ctx, by("ann", "1"), id, []string{"bob"}))
		times := 0
		w := &wire{Edit: func(op string, _, answer []byte) []byte {
			if times++; op != "Query" || times > 4 {
				return answer
			}
			return storetest.EditItems(answer, func(items []map[string]json.RawMessage) []map[string]json.RawMessage { return items[:1] })
		}}
		must(t)(c.Store(w).Leave(ctx, by("ann", "2"), id))
		require.Equal(t, map[string]chat.Role{"bob": chat.RoleOwner}, requireWhole(t, c, s, id).roles)
	})
}

// Each pair: the same fault, once before the transaction and once after it.
func TestG3G4_GroupChangesFailedNotAppliedAndFailedYetApplied(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"failed, not applied": dropped, "failed, yet applied": unanswered} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			w := &wire{}
			s := c.Store(w)
			breakOnce := func() {
				w.Set(func(op string, n int) fault {
					if op == "TransactWriteItems" && n == 1 {
						return f
					}
					return none
				})
			}
			breakOnce()
			id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
			require.Equal(t, 1, c.Count(c.Tables.Conversations))
			for i, do := range []func(store.Request) (store.Committed, error){
				func(r store.Request) (store.Committed, error) {
					return s.AddMembers(t.Context(), r, id, []string{"cy"})
				},
				func(r store.Request) (store.Committed, error) {
					return s.SetRole(t.Context(), r, id, "cy", chat.RoleAdmin)
				},
				func(r store.Request) (store.Committed, error) {
					return s.RemoveMembers(t.Context(), r, id, []string{"bob"})
				},
				func(r store.Request) (store.Committed, error) { return s.SetTitle(t.Context(), r, id, "t") },
				func(r store.Request) (store.Committed, error) { return s.Leave(t.Context(), r, id) },
			} {
				breakOnce()
				r, err := do(by("ann", fmt.Sprint(i)))
				require.NoError(t, err, i)
				require.Equal(t, int64(i+2), r.Seq)
				require.False(t, r.Duplicate, "it is this request's own change")
				requireWhole(t, c, s, id)
			}
		})
	}
}

// A change is refused for what its own first attempt did, whose answer got lost and
// whose transaction is still being applied: the refusal waits for that to end.
func TestG3_ARefusalWaitsForTheRequestsOwnFirstAttempt(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	w := &wire{}
	s := c.Store(w)
	line, _, err := s.CreateGroup(t.Context(), store.Request{UserID: "ann", ClientMsgID: "g"}, "All", []string{"bob"}, chat.VisibleAll)
	require.NoError(t, err)
	applying := 0
	w.Set(func(op string, n int) fault {
		switch {
		case op == "TransactWriteItems" && n == 1:
			return unanswered
		case op == "TransactGetItems" && n > 2 && applying < 3: // the first two read head and self
			applying++
			return conflicting
		}
		return none
	})
	got, err := s.AddMembers(t.Context(), store.Request{UserID: "ann", ClientMsgID: "add"}, line.Head.ConversationID, []string{"cy"})
	require.NoError(t, err)
	require.Equal(t, int64(2), got.Seq)
	require.False(t, got.Duplicate, "it is this request that did it")
	require.Equal(t, 3, applying)
	require.Equal(t, int64(2), c.Head(line.Head.ConversationID).LastSeq)
}
