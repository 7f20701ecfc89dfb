package integration_test

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// modelTime is how long sequences are tried, unless -rapid.checks says how many. A
// failure says how it is run again.
const (
	modelTime  = 12 * time.Second
	modelLeast = 8 // sequences, however long they take
)

// TestModel drives random sequences of all actions, by several users on several
// devices, and compares every answer and all that is left in the end with a model.
func TestModel(t *testing.T) {
	t.Parallel()
	checks := flag.Lookup("rapid.checks")
	bounded := checks.Value.String() == checks.DefValue
	end := time.Now().Add(modelTime)
	var sequences int
	outcomes := map[string]int{}
	var failing atomic.Bool // what failed once is run again, to make it smaller
	rapid.Check(t, func(rt *rapid.T) {
		if bounded && sequences >= modelLeast && time.Now().After(end) && !failing.Load() {
			return
		}
		passed := false
		defer func() { failing.Store(!passed) }()
		w := newModelWorld(rt, outcomes)
		defer w.close()
		for range 3 { // the first actions only make what the later ones are about
			rt.Repeat(w.actions())
		}
		w.compare(rt)
		sequences++
		passed = true
	})
	t.Logf("%d sequences; %v", sequences, outcomes)
}

func (w *modelWorld) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"send": w.send, "sendTo": w.sendTo, "reply": w.reply, "burst": w.burst, "ack": w.ack, "clear": w.clear,
		"recall": w.recall, "edit": w.edit, "createGroup": w.createGroup, "addMembers": w.addMembers,
		"removeMembers": w.removeMembers, "leave": w.leave, "setRole": w.setRole, "setTitle": w.setTitle,
		"dissolve": w.dissolve, "retry": w.retry, "look": w.look,
		"send more": w.send, "edit more": w.edit, "recall more": w.recall, "add more": w.addMembers,
	}
}

// modelUsers is how many take part; each has two devices.
const modelUsers = 4

// The model: what the protocol says, without time and concurrency.
type (
	modelConversation struct {
		id      chat.ConversationID
		head    wire.Conversation     // the fields that all members see alike
		entries []chat.Message        // seq n is at n-1
		said    map[int64][]modelText // by seq: what it said, and then its edits
		members map[string]wire.Member
		lines   map[string]*modelLine // of members and former ones
	}
	modelText struct {
		seq  int64 // of the message, or of the edit
		text string
	}
	modelLine struct {
		read, delivered, cleared int64
		from, left               int64
		gone                     bool // left by itself
		past                     []chat.Range
		leftHead                 wire.Conversation
	}
	modelRequest struct {
		user, action string
		frame        any
		conversation chat.ConversationID
		seq          int64
	}
	modelWorld struct {
		users         []string
		devices       map[string][2]*listener
		conversations []*modelConversation
		done          []modelRequest // those that made a message
		outcomes      map[string]int // of all sequences, by action and code
	}
)

func newModelWorld(rt *rapid.T, outcomes map[string]int) *modelWorld {
	w := &modelWorld{users: users("u", modelUsers), devices: map[string][2]*listener{}, outcomes: outcomes}
	opened := make([]*listener, 2*modelUsers)
	require.NoError(rt, concurrently(context.Background(), len(opened), func(ctx context.Context, i int) (err error) {
		opened[i], err = openListener(ctx, shared, w.users[i/2], []string{"phone", "laptop"}[i%2])
		return err
	}))
	for i, user := range w.users {
		w.devices[user] = [2]*listener{opened[2*i], opened[2*i+1]}
	}
	return w
}

func (w *modelWorld) close() {
	for _, two := range w.devices {
		for _, l := range two {
			l.close()
		}
	}
}

func (c *modelConversation) last() int64 { return int64(len(c.entries)) }

func (c *modelConversation) committedMax(l *modelLine) int64 {
	if l.left != 0 {
		return l.left
	}
	return c.last()
}

// times are the user's times of membership.
func (c *modelConversation) times(user string) []chat.Range {
	l := c.lines[user]
	return append(slices.Clone(l.past), chat.Range{From: l.from, To: c.committedMax(l)})
}

func (c *modelConversation) time(user string, seq int64) chat.Range {
	for _, r := range c.times(user) {
		if r.Has(seq) {
			return r
		}
	}
	return chat.Range{}
}

// shown is an entry as a user may see it: with what it said at the end of that time
// of membership, and without what an edit made of an entry of another time.
func (c *modelConversation) shown(user string, seq int64) chat.Message {
	m, during := c.entries[seq-1], c.time(user, seq)
	if m.Status == chat.StatusRecalled {
		return m
	}
	if m.Event != nil && m.Event.Kind == chat.EventEdit && !during.Has(m.Event.TargetSeq) {
		m.Text, m.Withheld = "", true
	}
	for i, said := range c.said[seq] {
		if said.seq <= during.To && m.Event == nil {
			m.Text, m.Version = said.text, int64(i+1)
		}
	}
	return m
}

// hidden reports whether the user has left, and cleared all of it.
func (l *modelLine) hidden() bool { return l.left != 0 && l.cleared >= l.left }

func (c *modelConversation) visible(user string) []int64 {
	l := c.lines[user]
	if l == nil {
		return nil
	}
	seqs := []int64{}
	for _, r := range c.times(user) {
		for seq := max(r.From, l.cleared+1); seq <= r.To; seq++ {
			seqs = append(seqs, seq)
		}
	}
	return seqs
}

func (c *modelConversation) role(user string) chat.Role { return c.members[user].Role }

// mayWrite says how a write of a member with a right is refused; "" is not.
func (c *modelConversation) mayWrite(user string, right chat.Action) chat.Code {
	_, member := c.members[user]
	switch {
	case !member:
		return chat.CodeNotFound
	case c.head.State != chat.StateActive && right != chat.ActLeave:
		return chat.CodeDissolved
	case right != chat.ActSend && (c.head.Kind != chat.KindGroup || !c.role(user).May(right, chat.RolePlain)):
		return chat.CodeForbidden
	}
	return ""
}

func (c *modelConversation) add(m chat.Message) {
	m.ConversationID, m.Seq = c.id, c.last()+1
	m.Version, m.Status = cmp.Or(m.Version, 1), chat.StatusNormal
	c.entries = append(c.entries, m)
	if c.said == nil {
		c.said = map[int64][]modelText{}
	}
	c.said[m.Seq] = []modelText{{m.Seq, m.Text}}
}

// join makes users members, with the message that is next.
func (c *modelConversation) join(at int64, users ...string) {
	for _, user := range users {
		seq := c.last() + 1
		l, before := c.lines[user]
		from := seq
		switch {
		case !before:
			l = &modelLine{read: seq - 1, delivered: seq - 1}
			c.lines[user] = l
			if c.head.Visibility != chat.VisibleSinceJoin {
				from = 1
			}
		case l.left == seq-1:
			from = l.from // back at once: never away
		default:
			l.past = append(l.past, chat.Range{From: l.from, To: l.left})
		}
		l.from, l.left, l.gone = from, 0, false
		c.members[user] = wire.Member{UserID: user, Role: chat.RolePlain, JoinSeq: from, JoinedAt: at}
	}
	c.head.MemberCount = len(c.members)
}

// part ends memberships, with the message that is next.
func (c *modelConversation) part(users ...string) {
	for _, user := range users {
		delete(c.members, user)
	}
	c.head.MemberCount = len(c.members)
	for _, user := range users {
		c.lines[user].left, c.lines[user].leftHead = c.last()+1, c.head
	}
}

func (c *modelConversation) successor(leaving string) string {
	var roster []chat.Member
	for _, m := range c.members {
		roster = append(roster, chat.Member{UserID: m.UserID, Role: m.Role, JoinedAt: m.JoinedAt})
	}
	next, _ := chat.Successor(roster, leaving)
	return next.UserID
}

func (c *modelConversation) setRole(user string, role chat.Role) {
	m := c.members[user]
	m.Role = role
	c.members[user] = m
	if role == chat.RoleOwner {
		c.head.Owner = user
	}
}

// What follows draws requests, and makes them in both worlds.

func (w *modelWorld) user(rt *rapid.T) string { return rapid.SampledFrom(w.users).Draw(rt, "user") }

func (w *modelWorld) device(rt *rapid.T, user string) *device {
	return w.devices[user][rapid.IntRange(0, 1).Draw(rt, "device")].device
}

// conversation draws one; most are groups.
func (w *modelWorld) conversation(rt *rapid.T) *modelConversation {
	if len(w.conversations) == 0 {
		rt.Skip("there is no conversation yet")
	}
	return rapid.SampledFrom(w.conversations).Draw(rt, "conversation")
}

// place draws a conversation and a user, who is mostly a member.
func (w *modelWorld) place(rt *rapid.T) (*modelConversation, string) {
	c := w.conversation(rt)
	return c, w.someone(rt, c)
}

func (w *modelWorld) someone(rt *rapid.T, c *modelConversation) string {
	switch who := rapid.IntRange(0, 7).Draw(rt, "who"); {
	case who < 4 && len(c.members) > 0:
		return rapid.SampledFrom(slices.Sorted(maps.Keys(c.members))).Draw(rt, "member")
	case who < 7 && c.head.Owner != "":
		return c.head.Owner
	}
	return w.user(rt)
}

// group is place for what is done to groups; most are active.
func (w *modelWorld) group(rt *rapid.T) (*modelConversation, string) {
	var active []*modelConversation
	for _, c := range w.conversations {
		if c.head.Kind == chat.KindGroup && c.head.State == chat.StateActive {
			active = append(active, c)
		}
	}
	if len(active) == 0 || rapid.IntRange(0, 5).Draw(rt, "any") == 0 {
		return w.place(rt)
	}
	c := rapid.SampledFrom(active).Draw(rt, "group")
	return c, w.someone(rt, c)
}

// some draws users, at least one, mostly of those that are wanted.
func (w *modelWorld) some(rt *rapid.T, wanted func(user string) bool) []string {
	from := slices.DeleteFunc(slices.Clone(w.users), func(u string) bool { return !wanted(u) })
	if len(from) == 0 || rapid.IntRange(0, 4).Draw(rt, "any") == 0 {
		from = w.users
	}
	return rapid.SliceOfNDistinct(rapid.SampledFrom(from), 1, len(from), rapid.ID).Draw(rt, "users")
}

// write makes a request that the model refuses with this code, or takes as this
// message. record says that a retry can be tried of it.
func (w *modelWorld) write(rt *rapid.T, c *modelConversation, user, action string, request any, refused chat.Code, m chat.Message) (committed bool) {
	d := w.device(rt, user)
	sent, err := try[wire.Sent](context.Background(), d, action, request)
	if s, ok := request.(wire.Send); ok && err == nil {
		d.arrived(s, sent)
	}
	require.Equal(rt, refused, codeOf(err), "%s by %s: %+v: %v", action, user, request, err)
	w.outcomes[action+" "+cmp.Or(string(refused), "OK")]++
	if refused != "" {
		return false
	}
	require.NoError(rt, err)
	m.SenderID, m.MessageID, m.ServerTime = user, sent.MessageID, sent.ServerTime
	c.add(m)
	require.Equal(rt, wire.Sent{ConversationID: c.id, Seq: c.last(), MessageID: sent.MessageID, ServerTime: sent.ServerTime}, sent)
	w.done = append(w.done, modelRequest{user, action, request, c.id, c.last()})
	return true
}

func textOf(rt *rapid.T) string { return rapid.StringMatching(`[a-zé界👋]{1,8}`).Draw(rt, "text") }

func (w *modelWorld) send(rt *rapid.T) {
	c, user := w.place(rt)
	m := chat.Message{MessageType: chat.TypeText, Text: textOf(rt)}
	w.write(rt, c, user, wire.ActionSend, wire.Send{ConversationID: c.id, ClientMsgID: newID(), MessageType: m.MessageType, Text: m.Text}, c.mayWrite(user, chat.ActSend), m)
}

func (w *modelWorld) sendTo(rt *rapid.T) {
	user, to := w.user(rt), w.user(rt)
	id := chat.SingleID(user, to)
	i := slices.IndexFunc(w.conversations, func(c *modelConversation) bool { return c.id == id })
	if i < 0 {
		c := &modelConversation{
			id: id, head: wire.Conversation{ConversationID: id, Kind: chat.KindSingle, State: chat.StateActive},
			members: map[string]wire.Member{}, lines: map[string]*modelLine{},
		}
		i = len(w.conversations)
		w.conversations = append(w.conversations, c)
		for _, u := range slices.Compact([]string{user, to}) {
			c.join(0, u)
		}
		c.lines[user].read, c.lines[user].delivered = 1, 1
	}
	m := chat.Message{MessageType: chat.TypeText, Text: textOf(rt)}
	w.write(rt, w.conversations[i], user, wire.ActionSend, wire.Send{To: to, ClientMsgID: newID(), MessageType: m.MessageType, Text: m.Text}, "", m)
}

// target draws a seq, perhaps the one after the last but mostly that of what the
// user wrote, and returns its messageId.
func (w *modelWorld) target(rt *rapid.T, c *modelConversation, user string) (seq int64, messageID string, target *chat.Message) {
	seq = rapid.Int64Range(1, c.last()+1).Draw(rt, "seq")
	var own []int64
	for _, m := range c.entries {
		if m.SenderID == user && m.Event == nil {
			own = append(own, m.Seq)
		}
	}
	if len(own) > 0 && rapid.IntRange(0, 3).Draw(rt, "any") > 0 {
		seq = rapid.SampledFrom(own).Draw(rt, "own")
	}
	if seq > c.last() {
		return seq, "01KB6Z2Q8D8C6E2JY5R3T9V0WX", nil
	}
	return seq, c.entries[seq-1].MessageID, &c.entries[seq-1]
}

func (w *modelWorld) reply(rt *rapid.T) {
	c, user := w.place(rt)
	seq, messageID, _ := w.target(rt, c, "")
	refused := c.mayWrite(user, chat.ActSend)
	if refused == "" && !slices.Contains(c.visible(user), seq) {
		refused = chat.CodeNotFound
	}
	m := chat.Message{MessageType: chat.TypeText, Text: textOf(rt), ReplyTo: &chat.ReplyTo{Seq: seq, MessageID: messageID}}
	w.write(rt, c, user, wire.ActionSend, wire.Send{ConversationID: c.id, ClientMsgID: newID(), MessageType: m.MessageType, Text: m.Text, ReplyTo: m.ReplyTo}, refused, m)
}

// burst lets all members send at the same time. The model takes their order from
// the answers, which have to be the next seqs.
func (w *modelWorld) burst(rt *rapid.T) {
	c := w.conversation(rt)
	if c.head.State != chat.StateActive || len(c.members) == 0 {
		rt.Skip("no one may write")
	}
	var senders []string
	for _, user := range w.users {
		if c.role(user) != "" {
			senders = append(senders, user)
		}
	}
	sent := make([]wire.Sent, len(senders))
	require.NoError(rt, concurrently(context.Background(), len(senders), func(ctx context.Context, i int) (err error) {
		sent[i], err = w.devices[senders[i]][i%2].send(ctx, wire.Send{ConversationID: c.id, Text: "burst of " + senders[i]})
		return err
	}))
	order := make([]int, len(senders))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(sent[a].Seq, sent[b].Seq) })
	for _, i := range order {
		c.add(chat.Message{
			MessageType: chat.TypeText, Text: "burst of " + senders[i],
			SenderID: senders[i], MessageID: sent[i].MessageID, ServerTime: sent[i].ServerTime,
		})
		require.Equal(rt, c.last(), sent[i].Seq)
	}
}

func (w *modelWorld) ack(rt *rapid.T) {
	c, user := w.place(rt)
	delivered, read := rapid.Int64Range(0, c.last()+2).Draw(rt, "delivered"), rapid.Int64Range(0, c.last()+2).Draw(rt, "read")
	request := wire.Ack{ConversationID: c.id}
	if delivered > 0 {
		request.DeliveredSeq = &delivered
	}
	if read > 0 {
		request.ReadSeq = &read
	}
	acked, err := try[wire.Acked](context.Background(), w.device(rt, user), wire.ActionAck, request)
	l := c.lines[user]
	switch {
	case delivered+read == 0:
		require.Equal(rt, chat.CodeBadRequest, codeOf(err))
		return
	case l == nil:
		require.Equal(rt, chat.CodeNotFound, codeOf(err))
		return
	}
	require.NoError(rt, err)
	l.read = max(l.read, min(read, c.committedMax(l)))
	l.delivered = max(l.delivered, l.read, min(delivered, c.committedMax(l)))
	require.Equal(rt, wire.Acked{DeliveredSeq: l.delivered, ReadSeq: l.read}, acked)
}

func (w *modelWorld) clear(rt *rapid.T) {
	c, user := w.place(rt)
	through := rapid.Int64Range(1, c.last()+2).Draw(rt, "through")
	cleared, err := try[wire.Cleared](context.Background(), w.device(rt, user), wire.ActionClear, wire.Clear{ConversationID: c.id, ThroughSeq: &through})
	l := c.lines[user]
	if l == nil {
		require.Equal(rt, chat.CodeNotFound, codeOf(err))
		return
	}
	require.NoError(rt, err)
	l.cleared = max(l.cleared, min(through, c.committedMax(l)))
	require.Equal(rt, l.cleared, cleared.ClearedSeq)
}

// revisable says how the change of a message is refused.
func (c *modelConversation) revisable(user string, seq int64) chat.Code {
	switch refused := c.mayWrite(user, chat.ActSend); {
	case refused != "":
		return refused
	case !slices.Contains(c.visible(user), seq):
		return chat.CodeNotFound
	case c.entries[seq-1].Event != nil:
		return chat.CodeForbidden
	}
	return ""
}

func (w *modelWorld) recall(rt *rapid.T) {
	c, user := w.place(rt)
	seq, messageID, target := w.target(rt, c, user)
	request := wire.Recall{ConversationID: c.id, Seq: seq, MessageID: messageID, ClientMsgID: newID()}
	refused := c.revisable(user, seq)
	if refused == "" && target.Status == chat.StatusRecalled {
		sent := answered[wire.Sent](rt, w.device(rt, user), wire.ActionRecall, request)
		require.True(rt, sent.Duplicate)
		require.Equal(rt, seq, c.entries[sent.Seq-1].Event.TargetSeq, "the first recall")
		require.Equal(rt, chat.EventRecall, c.entries[sent.Seq-1].Event.Kind)
		return
	}
	if refused == "" && target.SenderID != user {
		role := cmp.Or(c.role(target.SenderID), chat.RolePlain)
		if c.head.Kind != chat.KindGroup || !c.role(user).May(chat.ActRecall, role) {
			refused = chat.CodeForbidden
		}
	}
	event := chat.Message{MessageType: chat.TypeEvent, Event: &chat.Event{Kind: chat.EventRecall, TargetSeq: seq, TargetMessageID: messageID}}
	if target != nil {
		event.Event.Version = target.Version + 1
	}
	if w.write(rt, c, user, wire.ActionRecall, request, refused, event) {
		for i, m := range c.entries {
			if i == int(seq)-1 || m.Event != nil && m.Event.Kind == chat.EventEdit && m.Event.TargetSeq == seq {
				c.entries[i].Text, c.entries[i].Status = "", chat.StatusRecalled
			}
		}
		c.entries[seq-1].Version++
	}
}

func (w *modelWorld) edit(rt *rapid.T) {
	c, user := w.place(rt)
	seq, messageID, target := w.target(rt, c, user)
	version := int64(1)
	if target != nil {
		version = max(1, target.Version-rapid.Int64Range(0, 1).Draw(rt, "late"))
	}
	text := textOf(rt)
	refused := c.revisable(user, seq)
	switch {
	case refused != "":
	case target.SenderID != user || c.time(user, seq).To < c.last():
		refused = chat.CodeForbidden
	case target.Status == chat.StatusRecalled || target.Version != version:
		refused = chat.CodeVersionConflict
	}
	request := wire.Edit{ConversationID: c.id, Seq: seq, MessageID: messageID, Version: version, Text: text, ClientMsgID: newID()}
	event := chat.Message{MessageType: chat.TypeEvent, Text: text, Event: &chat.Event{Kind: chat.EventEdit, TargetSeq: seq, TargetMessageID: messageID, Version: version + 1}}
	if w.write(rt, c, user, wire.ActionEdit, request, refused, event) {
		c.entries[seq-1].Text = text
		c.entries[seq-1].Version++
		c.said[seq] = append(c.said[seq], modelText{c.last(), text})
	}
}

func (w *modelWorld) createGroup(rt *rapid.T) {
	user := w.user(rt)
	others := rapid.SliceOfNDistinct(rapid.SampledFrom(w.users), 0, modelUsers, rapid.ID).Draw(rt, "others")
	others = slices.DeleteFunc(others, func(u string) bool { return u == user })
	v := rapid.SampledFrom([]chat.Visibility{chat.VisibleAll, chat.VisibleSinceJoin}).Draw(rt, "visibility")
	request := wire.CreateGroup{Title: textOf(rt), Members: others, ClientMsgID: newID(), Visibility: v}
	made := answered[wire.Created](rt, w.device(rt, user), wire.ActionCreateGroup, request)
	c := &modelConversation{
		id: made.ConversationID, members: map[string]wire.Member{}, lines: map[string]*modelLine{},
		head: wire.Conversation{ConversationID: made.ConversationID, Kind: chat.KindGroup, State: chat.StateActive, Title: request.Title, Visibility: v},
	}
	all := append([]string{user}, others...)
	c.join(made.UpdatedAt, all...)
	c.setRole(user, chat.RoleOwner)
	c.lines[user].read, c.lines[user].delivered = 1, 1
	c.add(chat.Message{
		MessageType: chat.TypeEvent, SenderID: user, ServerTime: made.UpdatedAt,
		Event: &chat.Event{Kind: chat.EventMembers, Added: all, Owner: user, Title: request.Title},
	})
	w.conversations = append(w.conversations, c)
	w.done = append(w.done, modelRequest{user, wire.ActionCreateGroup, request, c.id, 0})
	page := answered[wire.HistoryPage](rt, w.device(rt, user), wire.ActionHistory, wire.History{ConversationID: c.id})
	c.entries[0].MessageID = page.Messages[0].MessageID
}

func (w *modelWorld) addMembers(rt *rapid.T) {
	c, user := w.group(rt)
	some := w.some(rt, func(u string) bool { return c.role(u) == "" })
	refused := c.mayWrite(user, chat.ActAdd)
	switch {
	case refused != "":
	case slices.ContainsFunc(some, func(u string) bool { return c.role(u) != "" }):
		refused = chat.CodeBadRequest
	case slices.ContainsFunc(some, func(u string) bool { return c.lines[u] != nil && c.lines[u].gone }):
		refused = chat.CodeForbidden
	}
	request := wire.ChangeMembers{ConversationID: c.id, Members: some, ClientMsgID: newID()}
	if w.write(rt, c, user, wire.ActionAddMembers, request, refused, chat.Message{MessageType: chat.TypeEvent, Event: &chat.Event{Kind: chat.EventMembers, Added: some}}) {
		w.before(c, func(at int64) { c.join(at, some...) })
	}
}

// before makes a change as of the message that has just been added.
func (w *modelWorld) before(c *modelConversation, change func(at int64)) {
	m := c.entries[c.last()-1]
	c.entries = c.entries[:c.last()-1]
	change(m.ServerTime)
	c.entries = append(c.entries, m)
}

func (w *modelWorld) removeMembers(rt *rapid.T) {
	c, user := w.group(rt)
	some := w.some(rt, func(u string) bool { return u != user && c.role(u) != "" })
	refused := c.mayWrite(user, chat.ActRemove)
	if slices.Contains(some, user) {
		refused = chat.CodeBadRequest
	}
	if refused == "" {
		for _, u := range some {
			switch role := c.role(u); {
			case role == "":
				refused = cmp.Or(refused, chat.CodeBadRequest)
			case !c.role(user).May(chat.ActRemove, role):
				refused = chat.CodeForbidden
			}
		}
	}
	request := wire.ChangeMembers{ConversationID: c.id, Members: some, ClientMsgID: newID()}
	if w.write(rt, c, user, wire.ActionRemoveMembers, request, refused, chat.Message{MessageType: chat.TypeEvent, Event: &chat.Event{Kind: chat.EventMembers, Removed: some}}) {
		w.before(c, func(int64) { c.part(some...) })
	}
}

func (w *modelWorld) leave(rt *rapid.T) {
	c, user := w.group(rt)
	event := &chat.Event{Kind: chat.EventMembers, Removed: []string{user}}
	owner := c.role(user) == chat.RoleOwner
	if owner {
		event.Owner = c.successor(user)
	}
	if !w.write(rt, c, user, wire.ActionLeave, wire.ChangeGroup{ConversationID: c.id, ClientMsgID: newID()}, c.mayWrite(user, chat.ActLeave), chat.Message{MessageType: chat.TypeEvent, Event: event}) {
		return
	}
	w.before(c, func(int64) { c.part(user) })
	line := c.lines[user] // which shows what became of the group by the leaving
	line.gone = true
	switch {
	case event.Owner != "":
		c.setRole(event.Owner, chat.RoleOwner)
		line.leftHead.Owner = event.Owner
	case owner:
		c.head.State, line.leftHead.State = chat.StateDissolved, chat.StateDissolved
	}
}

func (w *modelWorld) setRole(rt *rapid.T) {
	c, user := w.group(rt)
	other := w.user(rt)
	role := rapid.SampledFrom([]chat.Role{chat.RoleOwner, chat.RoleAdmin, chat.RolePlain}).Draw(rt, "role")
	refused := c.mayWrite(user, chat.ActSetRole)
	switch {
	case user == other:
		refused = chat.CodeBadRequest
	case refused == "" && c.role(other) == "":
		refused = chat.CodeBadRequest
	}
	event := &chat.Event{Kind: chat.EventMembers, Member: other, Role: role}
	if role == chat.RoleOwner {
		event.Owner = other
	}
	request := wire.SetRole{ConversationID: c.id, UserID: other, Role: role, ClientMsgID: newID()}
	if w.write(rt, c, user, wire.ActionSetRole, request, refused, chat.Message{MessageType: chat.TypeEvent, Event: event}) {
		c.setRole(other, role)
		if role == chat.RoleOwner {
			c.setRole(user, chat.RoleAdmin)
		}
	}
}

func (w *modelWorld) setTitle(rt *rapid.T) {
	c, user := w.group(rt)
	title := textOf(rt)
	request := wire.SetTitle{ConversationID: c.id, Title: title, ClientMsgID: newID()}
	if w.write(rt, c, user, wire.ActionSetTitle, request, c.mayWrite(user, chat.ActSetTitle), chat.Message{MessageType: chat.TypeEvent, Event: &chat.Event{Kind: chat.EventTitle, Title: title}}) {
		c.head.Title = title
	}
}

func (w *modelWorld) dissolve(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "really") > 0 {
		rt.Skip("most groups go on")
	}
	c, user := w.group(rt)
	request := wire.ChangeGroup{ConversationID: c.id, ClientMsgID: newID()}
	if w.write(rt, c, user, wire.ActionDissolve, request, c.mayWrite(user, chat.ActDissolve), chat.Message{MessageType: chat.TypeEvent, Event: &chat.Event{Kind: chat.EventDissolve}}) {
		c.head.State = chat.StateDissolved
	}
}

// retry repeats a request that was answered, whatever has changed since.
func (w *modelWorld) retry(rt *rapid.T) {
	if len(w.done) == 0 {
		rt.Skip("nothing is done yet")
	}
	r := rapid.SampledFrom(w.done).Draw(rt, "request")
	again := answered[wire.Sent](rt, w.device(rt, r.user), r.action, r.frame)
	require.True(rt, again.Duplicate)
	require.Equal(rt, r.conversation, again.ConversationID)
	require.Equal(rt, r.seq, again.Seq)
}

func answered[T any](rt *rapid.T, d *device, action string, request any) T {
	result, err := try[T](context.Background(), d, action, request)
	require.NoError(rt, err, "%s by %s: %+v", action, d.user, request)
	return result
}

// look compares what one user sees of one conversation.
func (w *modelWorld) look(rt *rapid.T) {
	c, user := w.place(rt)
	w.compareLedger(rt, c, user, w.device(rt, user))
}

func (w *modelWorld) compareLedger(rt *rapid.T, c *modelConversation, user string, d *device) {
	zero, most := int64(0), wire.MaxSyncLimit
	if c.lines[user] == nil {
		_, err := try[wire.Synced](context.Background(), d, wire.ActionSync, wire.Sync{ConversationID: c.id, AfterSeq: &zero})
		require.Equal(rt, chat.CodeNotFound, codeOf(err))
		return
	}
	got := []chat.Message{}
	for after := zero; ; {
		page := answered[wire.Synced](rt, d, wire.ActionSync, wire.Sync{ConversationID: c.id, AfterSeq: &after, Limit: &most})
		got = append(got, page.Messages...)
		require.Empty(rt, page.Skipped)
		if after = page.NextSeq; !page.HasMore {
			break
		}
	}
	want := []chat.Message{}
	for _, seq := range c.visible(user) {
		want = append(want, c.shown(user, seq))
	}
	for i := range got {
		got[i].ClientMsgID, got[i].SenderDeviceID = "", ""
	}
	require.Equal(rt, jsonOf(want), jsonOf(got), "what %s sees of %s", user, c.id)
}

func jsonOf(messages []chat.Message) string {
	out, err := json.MarshalIndent(messages, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// compare compares everything there is.
func (w *modelWorld) compare(rt *rapid.T) {
	for _, user := range w.users {
		d := w.devices[user][0]
		lines := map[chat.ConversationID]wire.Conversation{}
		for cursor := ""; ; {
			page := answered[wire.ConversationsPage](rt, d.device, wire.ActionConversations, wire.Conversations{Cursor: cursor})
			for _, line := range page.Conversations {
				lines[line.ConversationID] = line
			}
			if cursor = page.Cursor; cursor == "" {
				break
			}
		}
		for _, c := range w.conversations {
			w.compareLedger(rt, c, user, d.device)
			line, listed := lines[c.id]
			require.Equal(rt, c.lines[user] != nil && !c.lines[user].hidden(), listed)
			if listed {
				c.compareLine(rt, user, line)
				w.comparePushes(rt, c, user)
			}
			delete(lines, c.id)
			w.compareRoster(rt, c, user, d.device)
		}
		require.Empty(rt, lines)
		require.NoError(rt, d.fault())
	}
}

func (c *modelConversation) compareLine(rt *rapid.T, user string, got wire.Conversation) {
	l := c.lines[user]
	want := c.head
	if l.left != 0 {
		want = l.leftHead
	}
	want.LastSeq, want.LeftSeq = c.committedMax(l), l.left
	want.ReadSeq, want.DeliveredSeq, want.ClearedSeq = l.read, l.delivered, l.cleared
	want.Unread = unreadOf(user, c.entries, max(l.read, l.cleared, l.from-1), want.LastSeq).server
	if seqs := c.visible(user); len(seqs) > 0 && seqs[len(seqs)-1] == want.LastSeq {
		require.Equal(rt, want.LastSeq, got.LastMessage.Seq)
		require.Equal(rt, c.shown(user, want.LastSeq).Text, got.LastMessage.Text)
	} else {
		require.Nil(rt, got.LastMessage)
	}
	got.LastMessage, got.Peer, got.UpdatedAt = nil, "", 0
	require.Equal(rt, want, got, "the line of %s", user)
}

func (w *modelWorld) compareRoster(rt *rapid.T, c *modelConversation, user string, d *device) {
	page, err := try[wire.MembersPage](context.Background(), d, wire.ActionMembers, wire.Members{ConversationID: c.id})
	switch {
	case c.lines[user] == nil:
		require.Equal(rt, chat.CodeNotFound, codeOf(err))
		return
	case c.role(user) == "":
		require.Equal(rt, chat.CodeForbidden, codeOf(err))
		return
	}
	require.NoError(rt, err)
	got := map[string]wire.Member{}
	for _, m := range page.Members {
		if c.head.Kind == chat.KindSingle {
			m.JoinedAt = 0
		}
		got[m.UserID] = m
	}
	require.Equal(rt, c.members, got)
}

// comparePushes waits for the end of the conversation on all devices of a member,
// and checks that no one was ever pushed what is not for such a one: a push is what
// sync gives, or gave before an edit or a recall.
func (w *modelWorld) comparePushes(rt *rapid.T, c *modelConversation, user string) {
	l := c.lines[user]
	for _, d := range w.devices[user] {
		if l.left == 0 {
			_, err := d.awaitEntry(context.Background(), c.id, c.last())
			require.NoError(rt, err)
		}
		for _, m := range d.entries(c.id) {
			during := c.time(user, m.Seq)
			require.True(rt, during.Has(m.Seq), "%s was pushed seq %d of %s, and may read %+v", user, m.Seq, c.id, l)
			if want := c.shown(user, m.Seq); want.Status != chat.StatusRecalled {
				require.Equal(rt, want.Withheld, m.Withheld, "%s was pushed seq %d of %s: %+v", user, m.Seq, c.id, m)
			}
			if m.Status == chat.StatusRecalled || m.Withheld {
				require.Empty(rt, m.Text)
				continue
			}
			if m.Event != nil && m.Event.Kind == chat.EventEdit {
				require.True(rt, during.Has(m.Event.TargetSeq), "%s was pushed an edit of seq %d of %s: %+v", user, m.Event.TargetSeq, c.id, m)
			}
			said := c.said[m.Seq][m.Version-1]
			require.LessOrEqual(rt, said.seq, during.To, "%s was pushed what was made of seq %d of %s later: %+v", user, m.Seq, c.id, m)
			require.Equal(rt, said.text, m.Text, "%s was pushed seq %d of %s", user, m.Seq, c.id)
			require.Equal(rt, c.entries[m.Seq-1].MessageID, m.MessageID)
		}
	}
}
