package integration_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/inorder-im/inorder/integration/proxy"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// createGroup makes a group of the device's user and others.
func createGroup(tb testing.TB, d *device, v chat.Visibility, others ...string) chat.ConversationID {
	tb.Helper()
	if others == nil {
		others = []string{}
	}
	return must[wire.Created](tb, d, wire.ActionCreateGroup, wire.CreateGroup{
		Title: "a group", Members: others, ClientMsgID: newID(), Visibility: v,
	}).ConversationID
}

func addMembers(tb testing.TB, d *device, conversationID chat.ConversationID, users ...string) wire.Sent {
	tb.Helper()
	return must[wire.Sent](tb, d, wire.ActionAddMembers, wire.ChangeMembers{ConversationID: conversationID, Members: users, ClientMsgID: newID()})
}

func removeMembers(tb testing.TB, d *device, conversationID chat.ConversationID, users ...string) wire.Sent {
	tb.Helper()
	return must[wire.Sent](tb, d, wire.ActionRemoveMembers, wire.ChangeMembers{ConversationID: conversationID, Members: users, ClientMsgID: newID()})
}

func say(tb testing.TB, d *device, conversationID chat.ConversationID, text string) wire.Sent {
	tb.Helper()
	return mustSend(tb, d, wire.Send{ConversationID: conversationID, Text: text})
}

// users makes up n users.
func users(name string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = newUser(name + strconv.Itoa(i))
	}
	return all
}

// A group's whole life, as its members are pushed it.
func TestTheLifeOfAGroup(t *testing.T) {
	t.Parallel()
	alice, bob, carol, dave := newUser("alice"), newUser("bob"), newUser("carol"), newUser("dave")
	all := listenAll(t, shared, alice, bob, carol, dave)
	a, b, c, d := all[0], all[1], all[2], all[3]

	request := wire.CreateGroup{Title: "Wanderung 🥾", Members: []string{bob, carol}, ClientMsgID: newID()}
	made := must[wire.Created](t, a.device, wire.ActionCreateGroup, request)
	id := made.ConversationID
	require.True(t, strings.HasPrefix(string(id), "group:"), id)
	require.Equal(t, wire.Created{Conversation: wire.Conversation{
		ConversationID: id, Kind: chat.KindGroup, Title: "Wanderung 🥾", State: chat.StateActive, Owner: alice, Visibility: chat.VisibleAll,
		MemberCount: 3, LastSeq: 1, ReadSeq: 1, DeliveredSeq: 1, UpdatedAt: made.UpdatedAt,
		LastMessage: &wire.MessagePreview{Seq: 1, SenderID: alice, MessageType: chat.TypeEvent, Status: chat.StatusNormal, ServerTime: made.UpdatedAt},
	}}, made)
	again := must[wire.Created](t, a.device, wire.ActionCreateGroup, request)
	require.True(t, again.Duplicate)
	require.Equal(t, id, again.ConversationID, "a retry makes no second group")
	request.Title = "another"
	requireRefused(t, a.device, wire.ActionCreateGroup, request, chat.CodeIdempotencyConflict, "clientMsgId")

	var want []chat.Event
	step := func(sent wire.Sent, e chat.Event) {
		t.Helper()
		want = append(want, e)
		require.Equal(t, wire.Sent{ConversationID: id, Seq: int64(len(want)), MessageID: sent.MessageID, ServerTime: sent.ServerTime}, sent)
	}
	change := func(by *listener, action string, fields any) wire.Sent {
		t.Helper()
		first := must[wire.Sent](t, by.device, action, fields)
		repeated := must[wire.Sent](t, by.device, action, fields)
		require.True(t, repeated.Duplicate)
		repeated.Duplicate = false
		require.Equal(t, first, repeated, "a retry of %s", action)
		return first
	}
	want = append(want, chat.Event{Kind: chat.EventMembers, Added: []string{alice, bob, carol}, Owner: alice, Title: "Wanderung 🥾"})
	step(change(a, wire.ActionSetRole, wire.SetRole{ConversationID: id, UserID: bob, Role: chat.RoleAdmin, ClientMsgID: newID()}),
		chat.Event{Kind: chat.EventMembers, Member: bob, Role: chat.RoleAdmin})
	step(change(b, wire.ActionSetTitle, wire.SetTitle{ConversationID: id, Title: "Sonntag", ClientMsgID: newID()}),
		chat.Event{Kind: chat.EventTitle, Title: "Sonntag"})
	step(change(b, wire.ActionAddMembers, wire.ChangeMembers{ConversationID: id, Members: []string{dave}, ClientMsgID: newID()}),
		chat.Event{Kind: chat.EventMembers, Added: []string{dave}})
	step(change(b, wire.ActionRemoveMembers, wire.ChangeMembers{ConversationID: id, Members: []string{carol}, ClientMsgID: newID()}),
		chat.Event{Kind: chat.EventMembers, Removed: []string{carol}})
	step(change(a, wire.ActionLeave, wire.ChangeGroup{ConversationID: id, ClientMsgID: newID()}),
		chat.Event{Kind: chat.EventMembers, Removed: []string{alice}, Owner: bob})

	roster, _ := rosterOf(t, b.device, id)
	require.Equal(t, map[string]chat.Role{bob: chat.RoleOwner, dave: chat.RolePlain}, byUser(roster))
	for _, l := range []*listener{a, c} {
		requireRefused(t, l.device, wire.ActionMembers, wire.Members{ConversationID: id}, chat.CodeForbidden, "")
	}
	step(change(b, wire.ActionDissolve, wire.ChangeGroup{ConversationID: id, ClientMsgID: newID()}), chat.Event{Kind: chat.EventDissolve})
	requireRefused(t, d.device, wire.ActionSend, wire.Send{ConversationID: id, ClientMsgID: newID(), MessageType: chat.TypeText, Text: "anyone?"}, chat.CodeDissolved, "")
	requireRefused(t, b.device, wire.ActionAddMembers, wire.ChangeMembers{ConversationID: id, Members: []string{carol}, ClientMsgID: newID()}, chat.CodeDissolved, "")

	for l, through := range map[*listener]int64{a: 6, b: 7, c: 5, d: 7} {
		entryAt(t, l, id, through)
		pushed := map[int64]chat.Event{}
		for _, m := range l.entries(id) {
			require.Equal(t, chat.TypeEvent, m.MessageType)
			pushed[m.Seq] = *m.Event
		}
		// A push may be lost, above all that of what was before a change of the roster
		// to those whom it concerns; but not that of the change.
		for seq, e := range pushed {
			require.LessOrEqual(t, seq, through, "pushed to %s, who was gone", l.user)
			require.Equal(t, want[seq-1], e)
		}
		require.NoError(t, l.sync(t.Context(), id))
		requireDense(t, l.messages(id), int(through))
		line, ok := lineOf(t, l.device, id)
		require.True(t, ok)
		require.Equal(t, through, line.LastSeq)
		require.Equal(t, "Sonntag", line.Title)
	}
}

// The last one to leave ends the group.
func TestTheLastMemberLeaves(t *testing.T) {
	t.Parallel()
	alice := newUser("alice")
	a := mustConnect(t, shared, alice, "phone")
	id := createGroup(t, a, "")
	must[wire.Sent](t, a, wire.ActionLeave, wire.ChangeGroup{ConversationID: id, ClientMsgID: newID()})
	line, ok := lineOf(t, a, id)
	require.True(t, ok)
	require.Equal(t, int64(2), line.LeftSeq)
	require.Zero(t, line.MemberCount)
	requireRefused(t, a, wire.ActionSend, wire.Send{ConversationID: id, ClientMsgID: newID(), MessageType: chat.TypeText, Text: "?"}, chat.CodeNotFound, "conversationId")
}

// What is malformed is among the frames of moreBadFrames.
func TestGroupRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	alice, bob, carol, dave := newUser("alice"), newUser("bob"), newUser("carol"), newUser("dave")
	a, b := mustConnect(t, shared, alice, "phone"), mustConnect(t, shared, bob, "phone")
	id := createGroup(t, a, "", bob, carol)
	single := exchangeMessages(t, a, b, 1)
	long := strings.Repeat("x", 129)
	create := func(title string, v chat.Visibility, members ...string) wire.CreateGroup {
		return wire.CreateGroup{Title: title, Members: members, ClientMsgID: newID(), Visibility: v}
	}
	members := func(users ...string) wire.ChangeMembers {
		return wire.ChangeMembers{ConversationID: id, Members: users, ClientMsgID: newID()}
	}
	for name, tt := range map[string]struct {
		by      *device
		action  string
		request any
		code    chat.Code
		field   string
	}{
		"create with a blank title":   {a, wire.ActionCreateGroup, create(" \u00a0", "", bob), chat.CodeBadRequest, "title"},
		"create with a title of 101":  {a, wire.ActionCreateGroup, create(strings.Repeat("界", 101), "", bob), chat.CodeTooLarge, "title"},
		"create with a line break":    {a, wire.ActionCreateGroup, create("a\nb", "", bob), chat.CodeBadRequest, "title"},
		"create with oneself":         {a, wire.ActionCreateGroup, create("T", "", bob, alice), chat.CodeBadRequest, "members"},
		"create with no one's id":     {a, wire.ActionCreateGroup, create("T", "", bob, ""), chat.CodeBadRequest, "members"},
		"create with too long an id":  {a, wire.ActionCreateGroup, create("T", "", long), chat.CodeBadRequest, "members"},
		"create with a control char":  {a, wire.ActionCreateGroup, create("T", "", "b\u0085b"), chat.CodeBadRequest, "members"},
		"add 101":                     {a, wire.ActionAddMembers, members(users("u", 101)...), chat.CodeLimit, "members"},
		"add someone twice":           {a, wire.ActionAddMembers, members(dave, dave), chat.CodeBadRequest, "members"},
		"add oneself":                 {a, wire.ActionAddMembers, members(dave, alice), chat.CodeBadRequest, "members"},
		"add a member":                {a, wire.ActionAddMembers, members(dave, bob), chat.CodeBadRequest, "members"},
		"add an odd id":               {a, wire.ActionAddMembers, members("a\tb"), chat.CodeBadRequest, "members"},
		"add as a plain member":       {b, wire.ActionAddMembers, members(dave), chat.CodeForbidden, ""},
		"remove a stranger":           {a, wire.ActionRemoveMembers, members(bob, dave), chat.CodeBadRequest, "members"},
		"remove oneself":              {a, wire.ActionRemoveMembers, members(alice), chat.CodeBadRequest, "members"},
		"remove someone twice":        {a, wire.ActionRemoveMembers, members(bob, bob), chat.CodeBadRequest, "members"},
		"remove as a plain member":    {b, wire.ActionRemoveMembers, members(carol), chat.CodeForbidden, ""},
		"rename as a plain member":    {b, wire.ActionSetTitle, wire.SetTitle{ConversationID: id, Title: "T", ClientMsgID: newID()}, chat.CodeForbidden, ""},
		"promote as a plain member":   {b, wire.ActionSetRole, wire.SetRole{ConversationID: id, UserID: carol, Role: chat.RoleAdmin, ClientMsgID: newID()}, chat.CodeForbidden, ""},
		"promote oneself":             {a, wire.ActionSetRole, wire.SetRole{ConversationID: id, UserID: alice, Role: chat.RoleAdmin, ClientMsgID: newID()}, chat.CodeBadRequest, "userId"},
		"dissolve as a plain member":  {b, wire.ActionDissolve, wire.ChangeGroup{ConversationID: id, ClientMsgID: newID()}, chat.CodeForbidden, ""},
		"leave a single conversation": {a, wire.ActionLeave, wire.ChangeGroup{ConversationID: single, ClientMsgID: newID()}, chat.CodeForbidden, "conversationId"},
		"add to a single one":         {a, wire.ActionAddMembers, wire.ChangeMembers{ConversationID: single, Members: []string{carol}, ClientMsgID: newID()}, chat.CodeForbidden, "conversationId"},
	} {
		e := requireRefused(t, tt.by, tt.action, tt.request, tt.code, tt.field)
		require.NotEmpty(t, e.Message, name)
		require.False(t, e.Retryable, name)
		if tt.code == chat.CodeLimit {
			require.Greater(t, e.Details["max"], 40.0, "%s: how many are possible", name)
		}
	}
	require.NoError(t, a.sync(t.Context(), id))
	requireDense(t, a.messages(id), 1)
	roster, _ := rosterOf(t, a, id)
	require.Equal(t, map[string]chat.Role{alice: chat.RoleOwner, bob: chat.RolePlain, carol: chat.RolePlain}, byUser(roster))
}

// A userId is whatever the login service says, if only it has no control
// characters.
func TestOddUserIDs(t *testing.T) {
	t.Parallel()
	suffix := newUser("")
	odd := []string{
		"auth0|5f7c" + suffix, "a b" + suffix, "#" + suffix, "single:" + suffix, `"\/` + suffix, "<&>" + suffix, "用户👋" + suffix,
		suffix + strings.Repeat("é", (chat.MaxUserIDBytes-len(suffix))/2),
	}
	a := listen(t, shared, odd[0], "phone")
	others := listenAll(t, shared, odd[1:]...)
	id := createGroup(t, a.device, "", odd[1:]...)
	for i, l := range others {
		sent := say(t, l.device, id, "I am "+l.user)
		require.Equal(t, int64(i+2), sent.Seq)
		must[wire.Acked](t, l.device, wire.ActionAck, wire.Ack{ConversationID: id, ReadSeq: &sent.Seq})
		require.NoError(t, a.awaitReceipt(t.Context(), id, l.user, sent.Seq, sent.Seq))
	}
	for _, l := range append(others, a) {
		m := entryAt(t, l, id, int64(len(odd)))
		require.Equal(t, odd[len(odd)-1], m.SenderID)
	}
	roster, _ := rosterOf(t, a.device, id)
	require.ElementsMatch(t, odd, slices.Collect(maps.Keys(byUser(roster))))
}

func TestG9_OnlyMembersReadAndWrite(t *testing.T) {
	t.Parallel()
	t.Run("sends beside a removal", aRemovalRacing200Sends)
	t.Run("two admins at the same time", twoAdminsAddAndRemoveTheSamePerson)
	t.Run("what was before, between and after", visibility)
	t.Run("strangers", existenceIsNotDisclosed)
	t.Run("edits", anEditBringsNobodyWhatOneMayNotRead)
}

// A removal and the sends of the one removed are in one order: what is acked is
// before the removal.
func aRemovalRacing200Sends(t *testing.T) {
	t.Parallel()
	const sends, devices = 200, 4
	alice, bob, carol := newUser("alice"), newUser("bob"), newUser("carol")
	a, c := mustConnect(t, shared, alice, "phone"), mustConnect(t, shared, carol, "phone")
	id := createGroup(t, a, "", bob, carol)
	var started atomic.Int64
	halfway := make(chan struct{})
	acked := make([][]int64, devices)
	var racing errgroup.Group
	for i := range devices {
		d := mustConnect(t, shared, bob, strconv.Itoa(i))
		racing.Go(func() error {
			for n := range sends / devices {
				if started.Add(1) == sends/2 {
					close(halfway)
				}
				sent, err := d.send(t.Context(), wire.Send{ConversationID: id, Text: text(i, n)})
				if err == nil {
					acked[i] = append(acked[i], sent.Seq)
				} else if codeOf(err) != chat.CodeNotFound {
					return err
				}
			}
			return nil
		})
	}
	racing.Go(func() error {
		for n := range sends / devices {
			if _, err := c.send(t.Context(), wire.Send{ConversationID: id, Text: text(99, n)}); err != nil {
				return fmt.Errorf("who is not removed is not disturbed: %w", err)
			}
		}
		return nil
	})
	<-halfway
	removal := removeMembers(t, a, id, bob)
	b := mustConnect(t, shared, bob, "another") // of 5 devices
	requireRefused(t, b, wire.ActionSend, wire.Send{ConversationID: id, ClientMsgID: newID(), MessageType: chat.TypeText, Text: "late"}, chat.CodeNotFound, "conversationId")
	require.NoError(t, racing.Wait())

	require.NoError(t, a.sync(t.Context(), id))
	ledger := a.messages(id)
	requireDense(t, ledger, len(ledger))
	var committed []int64
	for _, m := range ledger {
		if m.SenderID == bob {
			committed = append(committed, m.Seq)
			require.Less(t, m.Seq, removal.Seq)
		}
	}
	require.ElementsMatch(t, committed, slices.Concat(acked...), "acked is committed, refused is not")
	require.NotEmpty(t, committed)
	require.Less(t, len(committed), sends)

	require.NoError(t, b.sync(t.Context(), id))
	requireDense(t, b.messages(id), int(removal.Seq))
	requireRefused(t, b, wire.ActionSend, wire.Send{ConversationID: id, ClientMsgID: newID(), MessageType: chat.TypeText, Text: "later"}, chat.CodeNotFound, "conversationId")
}

// Of two admins who change the same membership at the same time, each finds it as
// the ledger says.
func twoAdminsAddAndRemoveTheSamePerson(t *testing.T) {
	t.Parallel()
	const rounds = 25
	alice, bob, carol := newUser("alice"), newUser("bob"), newUser("carol")
	a, b := mustConnect(t, shared, alice, "phone"), mustConnect(t, shared, bob, "phone")
	c := mustConnect(t, shared, carol, "phone")
	id := createGroup(t, a, chat.VisibleSinceJoin, bob)
	must[wire.Sent](t, a, wire.ActionSetRole, wire.SetRole{ConversationID: id, UserID: bob, Role: chat.RoleAdmin, ClientMsgID: newID()})
	var admins errgroup.Group
	var done [2]int
	for i, d := range []*device{a, b} {
		admins.Go(func() error {
			for n := range rounds {
				action := wire.ActionAddMembers
				if n%2 == 1 {
					action = wire.ActionRemoveMembers
				}
				_, err := try[wire.Sent](t.Context(), d, action, wire.ChangeMembers{ConversationID: id, Members: []string{carol}, ClientMsgID: newID()})
				switch {
				case err == nil:
					done[i]++
				case codeOf(err) != chat.CodeBadRequest: // a member already, or none
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, admins.Wait())
	require.NoError(t, a.sync(t.Context(), id))
	ledger := a.messages(id)
	require.Len(t, ledger, 2+done[0]+done[1])
	var windows [][2]int64 // of carol's memberships
	for _, m := range ledger[2:] {
		if len(windows) > 0 && windows[len(windows)-1][1] == 0 {
			require.Equal(t, []string{carol}, m.Event.Removed, "seq %d", m.Seq)
			windows[len(windows)-1][1] = m.Seq
		} else {
			require.Equal(t, []string{carol}, m.Event.Added, "seq %d", m.Seq)
			windows = append(windows, [2]int64{m.Seq, 0})
		}
	}
	inside := windows[len(windows)-1][1] == 0
	want := map[string]chat.Role{alice: chat.RoleOwner, bob: chat.RoleAdmin}
	if inside {
		want[carol] = chat.RolePlain
		windows[len(windows)-1][1] = int64(len(ledger))
	}
	roster, _ := rosterOf(t, a, id)
	require.Equal(t, want, byUser(roster))
	line, ok := lineOf(t, a, id)
	require.True(t, ok)
	require.Equal(t, len(want), line.MemberCount)

	var visible []int64
	for _, w := range windows {
		for seq := w[0]; seq <= w[1]; seq++ {
			visible = append(visible, seq)
		}
	}
	require.NoError(t, c.sync(t.Context(), id))
	require.Equal(t, visible, seqsOf(c.messages(id)), "carol sees each time of membership and nothing between")
}

func seqsOf(messages []chat.Message) []int64 {
	seqs := make([]int64, len(messages))
	for i, m := range messages {
		seqs[i] = m.Seq
	}
	return seqs
}

// What a member may read: by the visibility from the start or from the joining
// on, up to a removal, and once more from a second joining on.
func visibility(t *testing.T) {
	t.Parallel()
	for v, want := range map[chat.Visibility][]int64{
		chat.VisibleAll:       {1, 2, 3, 4, 5, 8, 9},
		chat.VisibleSinceJoin: {3, 4, 5, 8, 9},
	} {
		t.Run(string(v), func(t *testing.T) {
			t.Parallel()
			alice, bob := newUser("alice"), newUser("bob")
			a, b := mustConnect(t, shared, alice, "phone"), listen(t, shared, bob, "phone")
			id := createGroup(t, a, v) // 1
			say(t, a, id, "before")    // 2
			addMembers(t, a, id, bob)  // 3
			entryAt(t, b, id, 3)
			say(t, a, id, "while")       // 4
			removeMembers(t, a, id, bob) // 5
			say(t, a, id, "away")        // 6

			first := mustConnect(t, shared, bob, "laptop")
			require.NoError(t, first.sync(t.Context(), id))
			require.Equal(t, want[:len(want)-2], seqsOf(first.messages(id)))
			line, ok := lineOf(t, first, id)
			require.True(t, ok)
			require.Equal(t, [2]int64{5, 5}, [2]int64{line.LastSeq, line.LeftSeq}, "one who left learns nothing of what came after")
			require.Equal(t, int64(5), line.LastMessage.Seq)

			say(t, a, id, "away")     // 7
			addMembers(t, a, id, bob) // 8
			say(t, a, id, "again")    // 9
			entryAt(t, b, id, 9)
			for _, m := range b.entries(id) {
				require.NotEqual(t, "away", m.Text, "pushed to one who was no member")
			}
			require.NoError(t, first.sync(t.Context(), id))
			require.Equal(t, want, seqsOf(first.messages(id)), "by sync, the middle stays hidden")
			var got []int64
			for before := (*int64)(nil); ; {
				two := 2
				page := must[wire.HistoryPage](t, first, wire.ActionHistory, wire.History{ConversationID: id, BeforeSeq: before, Limit: &two})
				got = append(seqsOf(page.Messages), got...)
				if before = &page.NextBeforeSeq; !page.HasMore {
					break
				}
			}
			require.Equal(t, want, got, "by history too")
		})
	}
}

// What a stranger gets is the same whether the conversation exists or not, and
// whatever has become of it.
func existenceIsNotDisclosed(t *testing.T) {
	t.Parallel()
	alice, bob, mallory := newUser("alice"), newUser("bob"), newUser("mallory")
	a, b := mustConnect(t, shared, alice, "phone"), mustConnect(t, shared, bob, "phone")
	m := mustConnect(t, shared, mallory, "phone")
	single := exchangeMessages(t, a, b, 1)
	group, dissolved, left := createGroup(t, a, "", bob), createGroup(t, a, "", bob), createGroup(t, a, "", bob)
	must[wire.Sent](t, a, wire.ActionDissolve, wire.ChangeGroup{ConversationID: dissolved, ClientMsgID: newID()})
	removeMembers(t, a, left, bob)
	for _, id := range []chat.ConversationID{single, group, dissolved, left} {
		require.NoError(t, a.sync(t.Context(), id))
	}
	target := func(id chat.ConversationID) (seq int64, messageID string) {
		if messages := a.messages(id); len(messages) > 0 {
			return messages[0].Seq, messages[0].MessageID
		}
		return 1, "01KB6Z2Q8D8C6E2JY5R3T9V0WX"
	}
	zero, one := int64(0), int64(1)
	requests := map[string]func(id chat.ConversationID) any{
		wire.ActionSend: func(id chat.ConversationID) any {
			return wire.Send{ConversationID: id, ClientMsgID: newID(), MessageType: chat.TypeText, Text: "let me in"}
		},
		wire.ActionSync:    func(id chat.ConversationID) any { return wire.Sync{ConversationID: id, AfterSeq: &zero} },
		wire.ActionHistory: func(id chat.ConversationID) any { return wire.History{ConversationID: id} },
		wire.ActionAck: func(id chat.ConversationID) any {
			return wire.Ack{ConversationID: id, DeliveredSeq: &one, ReadSeq: &one}
		},
		wire.ActionClear: func(id chat.ConversationID) any { return wire.Clear{ConversationID: id, ThroughSeq: &one} },
		wire.ActionRecall: func(id chat.ConversationID) any {
			seq, messageID := target(id)
			return wire.Recall{ConversationID: id, Seq: seq, MessageID: messageID, ClientMsgID: newID()}
		},
		wire.ActionEdit: func(id chat.ConversationID) any {
			seq, messageID := target(id)
			return wire.Edit{ConversationID: id, Seq: seq, MessageID: messageID, Version: 1, Text: "mine", ClientMsgID: newID()}
		},
		wire.ActionAddMembers: func(id chat.ConversationID) any {
			return wire.ChangeMembers{ConversationID: id, Members: []string{mallory}, ClientMsgID: newID()}
		},
		wire.ActionRemoveMembers: func(id chat.ConversationID) any {
			return wire.ChangeMembers{ConversationID: id, Members: []string{alice}, ClientMsgID: newID()}
		},
		wire.ActionLeave:    func(id chat.ConversationID) any { return wire.ChangeGroup{ConversationID: id, ClientMsgID: newID()} },
		wire.ActionDissolve: func(id chat.ConversationID) any { return wire.ChangeGroup{ConversationID: id, ClientMsgID: newID()} },
		wire.ActionSetRole: func(id chat.ConversationID) any {
			return wire.SetRole{ConversationID: id, UserID: alice, Role: chat.RoleAdmin, ClientMsgID: newID()}
		},
		wire.ActionSetTitle: func(id chat.ConversationID) any {
			return wire.SetTitle{ConversationID: id, Title: "mine", ClientMsgID: newID()}
		},
		wire.ActionMembers:  func(id chat.ConversationID) any { return wire.Members{ConversationID: id} },
		wire.ActionReceipts: func(id chat.ConversationID) any { return wire.Receipts{ConversationID: id, Seq: 1} },
	}
	frame := func(action string, id chat.ConversationID) answer {
		got, err := m.ask(t.Context(), action, requests[action](id))
		require.NoError(t, err)
		got.ID = ""
		return got
	}
	existing := map[string]chat.ConversationID{"a single one": single, "a group": group, "a dissolved one": dissolved, "one that others left": left}
	for action := range requests {
		want := frame(action, "group:01KB6Z2Q8D8C6E2JY5R3T9V0WX")
		require.Equal(t, chat.CodeNotFound, want.Error.Code, action)
		require.Equal(t, want, frame(action, "single:0123456789abcdef0123456789abcdef"), action)
		require.Equal(t, want, frame(action, "system:no-such"), action)
		for name, id := range existing {
			require.Equal(t, want, frame(action, id), "%s of %s", action, name)
		}
	}

	// One who was a member keeps what was, and writes no more than a stranger.
	want := frame(wire.ActionSend, "group:01KB6Z2Q8D8C6E2JY5R3T9V0WX").Error
	for _, action := range []string{
		wire.ActionSend, wire.ActionRecall, wire.ActionEdit, wire.ActionAddMembers, wire.ActionRemoveMembers,
		wire.ActionLeave, wire.ActionDissolve, wire.ActionSetRole, wire.ActionSetTitle,
	} {
		got, err := b.ask(t.Context(), action, requests[action](left))
		require.NoError(t, err)
		require.Equal(t, want, got.Error, action)
	}
	must[wire.Synced](t, b, wire.ActionSync, requests[wire.ActionSync](left))
	must[wire.HistoryPage](t, b, wire.ActionHistory, requests[wire.ActionHistory](left))
	must[wire.Acked](t, b, wire.ActionAck, requests[wire.ActionAck](left))
	must[wire.Cleared](t, b, wire.ActionClear, requests[wire.ActionClear](left))

	// Members of a dissolved group are told so, and go on reading.
	for _, action := range []string{wire.ActionSend, wire.ActionSetTitle, wire.ActionRecall} {
		requireRefused(t, b, action, requests[action](dissolved), chat.CodeDissolved, "")
	}
	must[wire.Synced](t, b, wire.ActionSync, requests[wire.ActionSync](dissolved))

	line, ok := lineOf(t, m, single)
	require.False(t, ok, "%+v", line)
	require.Empty(t, m.messages(group))
}

// There is a way out of every group, and it stays one: off the list on all devices,
// and back only by the product.
func TestAWayOutOfEveryGroup(t *testing.T) {
	t.Parallel()
	alice, bob := newUser("alice"), newUser("bob")
	a, phone, laptop := mustConnect(t, shared, alice, "phone"), mustConnect(t, shared, bob, "phone"), listen(t, shared, bob, "laptop")
	dissolved, active := createGroup(t, a, "", bob), createGroup(t, a, "", bob)
	must[wire.Sent](t, a, wire.ActionDissolve, wire.ChangeGroup{ConversationID: dissolved, ClientMsgID: newID()})
	clear := func(id chat.ConversationID, through int64) int64 {
		return must[wire.Cleared](t, phone, wire.ActionClear, wire.Clear{ConversationID: id, ThroughSeq: &through}).ClearedSeq
	}
	for _, id := range []chat.ConversationID{dissolved, active} {
		leave := wire.ChangeGroup{ConversationID: id, ClientMsgID: newID()}
		left := must[wire.Sent](t, phone, wire.ActionLeave, leave)
		again := must[wire.Sent](t, phone, wire.ActionLeave, leave)
		require.True(t, again.Duplicate)
		require.Equal(t, left.Seq, again.Seq)
		m := entryAt(t, laptop, id, left.Seq)
		require.Equal(t, []string{bob}, m.Event.Removed)
		_, listed := lineOf(t, phone, id)
		require.True(t, listed, "it was not cleared yet")

		cursor := changesSince(t, phone, 0).SyncCursor
		require.Equal(t, left.Seq, clear(id, left.Seq+5))
		_, listed = lineOf(t, phone, id)
		require.False(t, listed)
		require.NotContains(t, idsOf(changesSince(t, phone, 0).Conversations), id)
		require.NoError(t, laptop.await(t.Context(), "the other device is told", func() bool {
			return slices.ContainsFunc(laptop.heard, func(p push) bool { return p.Type == wire.TypeChanged && p.SyncCursor > cursor })
		}))
		told := changesSince(t, laptop.device, cursor).Conversations
		require.Equal(t, []chat.ConversationID{id}, idsOf(told))
		require.True(t, told[0].Hidden())
		require.Contains(t, idsOf(everyLine(t, phone)), id)
	}

	add := wire.ChangeMembers{ConversationID: active, Members: []string{bob}, ClientMsgID: newID()}
	e := requireRefused(t, a, wire.ActionAddMembers, add, chat.CodeForbidden, "members")
	require.Equal(t, []any{bob}, e.Details["members"])
	admit := map[string]any{"addMembers": map[string]any{"conversationId": active, "members": []string{bob}}, "clientMsgId": newID()}
	added, err := publish(t.Context(), t, shared, admit)
	require.NoError(t, err)
	again, err := publish(t.Context(), t, shared, admit)
	require.NoError(t, err)
	require.Equal(t, wire.Sent{ConversationID: active, Seq: added.Seq, MessageID: added.MessageID, ServerTime: added.ServerTime, Duplicate: true}, again)
	m := entryAt(t, laptop, active, added.Seq)
	require.Equal(t, [2]any{chat.SystemSender, []string{bob}}, [2]any{m.SenderID, m.Event.Added})
	line, listed := lineOf(t, phone, active)
	require.True(t, listed)
	require.Zero(t, line.LeftSeq)
	tablet := mustConnect(t, shared, bob, "tablet")
	require.NoError(t, tablet.sync(t.Context(), active))
	require.Equal(t, []int64{added.Seq}, seqsOf(tablet.messages(active)), "what was cleared stays so")
}

// Above 20 members a group's messages are not noted in sync heads any more. They are
// pushed whole, however many the members are.
func TestALargeGroup(t *testing.T) {
	t.Parallel()
	alice := newUser("alice")
	others := users("m", 200)
	a := listen(t, shared, alice, "phone")
	first, last := listen(t, shared, others[0], "phone"), listen(t, shared, others[len(others)-1], "phone")
	id := createGroup(t, a.device, "", others[:19]...)
	entryAt(t, first, id, 1)
	small := changesSince(t, first.device, 0)
	require.Empty(t, small.Heads, "20 members are few")
	require.Equal(t, []chat.ConversationID{id}, idsOf(small.Conversations))

	seq := int64(1)
	grow := func(users []string) {
		for page := range slices.Chunk(users, chat.MaxRosterChange) {
			seq = addMembers(t, a.device, id, page...).Seq
		}
	}
	grow(others[19:59]) // 60 members
	entryAt(t, first, id, seq)
	large := changesSince(t, first.device, small.SyncCursor)
	require.Equal(t, []wire.Head{{ConversationID: id, CommittedMaxSeq: seq}}, large.Heads, "it is listed as large, with its head")
	seq = say(t, a.device, id, "hello, 60").Seq
	entryAt(t, first, id, seq)
	after := changesSince(t, first.device, large.SyncCursor)
	require.Empty(t, after.Conversations, "its messages raise no sync head")
	require.Equal(t, large.SyncCursor, after.SyncCursor)
	require.Equal(t, []wire.Head{{ConversationID: id, CommittedMaxSeq: seq}}, after.Heads)

	early := seq
	for i, l := range []*listener{a, first} {
		at := early - int64(i)
		acked := must[wire.Acked](t, l.device, wire.ActionAck, wire.Ack{ConversationID: id, ReadSeq: &at})
		require.Equal(t, wire.Acked{DeliveredSeq: at, ReadSeq: at}, acked)
	}
	require.Equal(t, wire.ReceiptsPage{Delivered: []string{alice}, Read: []string{alice}}, receiptsOf(t, first.device, id, early))

	grow(others[59:]) // 201 members
	entryAt(t, first, id, seq)
	entryAt(t, last, id, seq)
	seq = say(t, a.device, id, "hello, 201").Seq
	entryAt(t, first, id, seq)
	entryAt(t, last, id, seq)
	for _, l := range []*listener{a, first, last} {
		require.NoError(t, l.sync(t.Context(), id))
		requireDense(t, l.messages(id), int(seq))
	}
	list := changesSince(t, last.device, 0)
	require.True(t, list.Full)
	require.Empty(t, list.Heads, "the list tells")
	require.Equal(t, []chat.ConversationID{id}, idsOf(list.Conversations))
	require.Equal(t, seq, list.Conversations[0].LastSeq)
	roster, pages := rosterOf(t, last.device, id)
	require.Len(t, roster, len(others)+1)
	require.Equal(t, 3, pages)
	require.Equal(t, []string{alice}, receiptsOf(t, last.device, id, early).Read, "who came later has not read it")
	require.Empty(t, receiptsOf(t, last.device, id, seq).Read)
	require.Empty(t, first.pushes(wire.TypeReceipt), "of large groups one asks for receipts")

	for page := range slices.Chunk(others[19:], chat.MaxRosterChange) { // 20 members again
		seq = removeMembers(t, a.device, id, page...).Seq
	}
	entryAt(t, first, id, seq)
	again := changesSince(t, first.device, after.SyncCursor)
	require.Empty(t, again.Heads)
	require.Equal(t, []chat.ConversationID{id}, idsOf(again.Conversations))
	require.Equal(t, seq, again.Conversations[0].LastSeq)
	gone := changesSince(t, last.device, 0)
	require.Empty(t, gone.Heads, "one who was removed hears of it no more")
	require.Equal(t, []chat.ConversationID{id}, idsOf(gone.Conversations))
	require.LessOrEqual(t, gone.Conversations[0].LastSeq, seq)
	require.Positive(t, gone.Conversations[0].LeftSeq)
}

// receiptsOf reads all pages of receipts.
func receiptsOf(tb testing.TB, d *device, conversationID chat.ConversationID, seq int64) wire.ReceiptsPage {
	tb.Helper()
	var all wire.ReceiptsPage
	for cursor := ""; ; {
		page := must[wire.ReceiptsPage](tb, d, wire.ActionReceipts, wire.Receipts{ConversationID: conversationID, Seq: seq, Cursor: cursor})
		all.Delivered, all.Read = append(all.Delivered, page.Delivered...), append(all.Read, page.Read...)
		if cursor = page.Cursor; cursor == "" {
			return all
		}
	}
}

// concurrently runs f n times at the same time.
func concurrently(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for i := range n {
		group.Go(func() error { return f(ctx, i) })
	}
	return group.Wait()
}

// An edit carries the whole new content. Nobody gets it, by no way there is, who may
// not read the message, or left before.
func anEditBringsNobodyWhatOneMayNotRead(t *testing.T) {
	t.Parallel()
	alice, bob, late, gone := newUser("alice"), newUser("bob"), newUser("late"), newUser("gone")
	all := listenAll(t, shared, alice, bob, late, gone)
	a := all[0]
	id := createGroup(t, a.device, chat.VisibleSinceJoin, bob, gone)
	sent := say(t, a.device, id, "before")
	removeMembers(t, a.device, id, gone)
	addMembers(t, a.device, id, late)
	edit := must[wire.Edited](t, a.device, wire.ActionEdit, wire.Edit{
		ConversationID: id, Seq: sent.Seq, MessageID: sent.MessageID, Version: 1, Text: "edited", ClientMsgID: newID(),
	})
	for _, l := range all[:3] {
		want := chat.Message{Text: "edited"}
		if l.user == late {
			want = chat.Message{Withheld: true}
		}
		pushed := entryAt(t, l, id, edit.Seq)
		require.Equal(t, want, chat.Message{Text: pushed.Text, Withheld: pushed.Withheld}, "the push to %s", l.user)
		require.NoError(t, l.sync(t.Context(), id))
		messages := l.messages(id)
		require.Equal(t, pushed, messages[len(messages)-1], "the sync of %s", l.user)
		page := must[wire.HistoryPage](t, l.device, wire.ActionHistory, wire.History{ConversationID: id})
		require.Equal(t, pushed, page.Messages[len(page.Messages)-1], "the history of %s", l.user)
		line, ok := lineOf(t, l.device, id)
		require.True(t, ok)
		require.Equal(t, want.Text, line.LastMessage.Text, "the list of %s", l.user)
	}
	require.NoError(t, all[3].sync(t.Context(), id))
	require.Equal(t, "before", all[3].messages(id)[1].Text, "who was gone by then")
	require.Equal(t, "edited", all[1].messages(id)[1].Text)
}

// The fan-out lists a newcomer to a large group late, when the one who came has gone again
// and another environment has told of that: nothing of the group is told any more.
func TestG9_WhoHasLeftALargeGroupHearsNothingOfItAfterALateListing(t *testing.T) {
	t.Parallel()
	db := startDatabase(t)
	c := startCloud(t, "-dynamodb-endpoint", db.endpoint)
	owner, zed := mustConnect(t, c.Stack, newUser("owner"), "phone"), mustConnect(t, c.Stack, newUser("zed"), "phone")
	members := make([]string, chat.InboxGroupMax)
	for i := range members {
		members[i] = newUser("member")
	}
	id := createGroup(t, owner, chat.VisibleAll, members...)
	listedFor := func(user string) bool {
		list := itemAt(t, db.client, "Inboxes", map[string]any{"userId": user, "conversationId": "#large"})
		return strings.Contains(fmt.Sprint(list["ids"]), string(id))
	}
	for _, user := range append(members, owner.user) { // the making of the group is told
		require.Eventually(t, func() bool { return listedFor(user) }, patience, time.Millisecond)
	}
	var enlistings atomic.Int32
	retried, delisted, listed := make(chan struct{}), make(chan struct{}), make(chan struct{})
	db.set(func(operation string, request []byte, forward func() proxy.Answer) proxy.Answer {
		text := string(request)
		if operation != "UpdateItem" || !strings.Contains(text, `"#large"`) || !strings.Contains(text, zed.user) {
			return forward()
		}
		switch {
		case strings.Contains(text, "DELETE ids"):
			answer := forward()
			if enlistings.CompareAndSwap(2, 3) {
				close(delisted)
			}
			return answer
		case enlistings.Add(1) == 1: // of the stream: the conversation is set aside
			<-delisted
			return failure("ValidationException")
		}
		close(retried)
		<-delisted
		answer := forward()
		close(listed)
		return answer
	})
	addMembers(t, owner, id, zed.user)
	<-retried
	must[wire.Sent](t, zed, wire.ActionLeave, wire.ChangeGroup{ConversationID: id, ClientMsgID: newID()})
	<-listed
	require.Eventually(t, func() bool { return !listedFor(zed.user) }, patience, 10*time.Millisecond)
}
