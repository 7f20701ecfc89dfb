package store_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
)

// group is the model: a group in memory, without transactions, pages or
// idempotency records, as one would explain it.
type group struct {
	id         chat.ConversationID
	visibility chat.Visibility
	title      string
	dissolved  bool
	ledger     []said // by seq-1
	roles      map[string]chat.Role
	joined     map[string]int64 // ms
	windows    map[string][]chat.Range
	cleared    map[string]int64
	gone       map[string]bool // left by themselves
	marks      map[string]store.Watermarks
}

type said struct {
	by, text  string
	committed store.Committed
	event     bool
	target    int64 // of an edit: the seq of the message
	version   int64
	recall    *store.Committed // what recalled it
	versions  []version        // the first is its own
}

// version is a text, and the seq of the message or of the edit that brought it.
type version struct {
	seq  int64
	text string
}

func (g *group) last() int64 { return int64(len(g.ledger)) }

// refusal is what everyone meets who writes.
func (g *group) refusal(user string) chat.Code {
	switch {
	case g.roles[user] == "":
		return chat.CodeNotFound
	case g.dissolved:
		return chat.CodeDissolved
	}
	return ""
}

// may is the table of rights once more, in other words.
func (g *group) may(user string, do string, whose string) bool {
	rank := map[chat.Role]int{"": 0, chat.RolePlain: 0, chat.RoleAdmin: 1, chat.RoleOwner: 2}
	mine, theirs := rank[g.roles[user]], rank[g.roles[whose]]
	switch do {
	case "add", "title":
		return mine >= 1
	case "remove", "recall":
		return mine >= 1 && mine > theirs
	case "role", "dissolve":
		return mine == 2
	}
	return false
}

// heir is who owns the group when the owner leaves.
func (g *group) heir(leaving string) string {
	best := ""
	for _, user := range slices.Sorted(maps.Keys(g.roles)) {
		if user == leaving {
			continue
		}
		admin, bestAdmin := g.roles[user] == chat.RoleAdmin, g.roles[best] == chat.RoleAdmin
		if best == "" || admin && !bestAdmin || admin == bestAdmin && g.joined[user] < g.joined[best] {
			best = user
		}
	}
	return best
}

func (g *group) add(user string, seq, at int64) {
	from := seq
	if g.visibility == chat.VisibleAll && g.windows[user] == nil {
		from = 1
	}
	if g.windows[user] == nil {
		g.marks[user] = store.Watermarks{DeliveredSeq: seq - 1, ReadSeq: seq - 1}
	}
	g.roles[user], g.joined[user] = chat.RolePlain, at
	delete(g.gone, user)
	if n := len(g.windows[user]); n > 0 && g.windows[user][n-1].To == seq-1 {
		g.windows[user][n-1].To = 0 // who is back at once was never away
		return
	}
	g.windows[user] = append(g.windows[user], chat.Range{From: from})
}

func (g *group) remove(user string, seq int64) {
	delete(g.roles, user)
	g.windows[user][len(g.windows[user])-1].To = seq
}

// end is the last seq a user may read.
func (g *group) end(user string) int64 {
	if to := g.windows[user][len(g.windows[user])-1].To; to != 0 {
		return to
	}
	return g.last()
}

// unread is what a user has not read, but for what is the user's own among the last
// runs.
func (g *group) unread(user string) int64 {
	now := g.windows[user][len(g.windows[user])-1]
	n, runs, writer := int64(0), 0, ""
	for seq := g.end(user); seq > max(g.marks[user].ReadSeq, g.cleared[user], now.From-1); seq-- {
		if by := g.ledger[seq-1].by; by != writer {
			runs, writer = runs+1, by
		}
		if writer != user || runs > chat.MaxRuns {
			n++
		}
	}
	return n
}

func (g *group) sees(user string) []int64 {
	visible := []int64{}
	for _, w := range g.windows[user] {
		to := w.To
		if to == 0 {
			to = g.last()
		}
		for seq := max(w.From, g.cleared[user]+1); seq <= to; seq++ {
			visible = append(visible, seq)
		}
	}
	return visible
}

// time is the time of membership that a seq which the user sees lies in.
func (g *group) time(user string, seq int64) chat.Range {
	for _, w := range g.windows[user] {
		if w.To == 0 {
			w.To = g.last()
		}
		if w.From <= seq && seq <= w.To {
			return w
		}
	}
	return chat.Range{}
}

// shown is what the user reads at a seq: what was said by the end of that time of
// membership, and nothing of what was said at another one.
func (g *group) shown(user string, seq int64) chat.Message {
	m, during := g.ledger[seq-1], g.time(user, seq)
	shown := chat.Message{Seq: seq, MessageID: m.committed.MessageID, SenderID: m.by, Version: m.version, Status: chat.StatusNormal}
	switch {
	case m.recall != nil:
		shown.Status = chat.StatusRecalled
	case m.target != 0 && (m.target < during.From || m.target > during.To):
		shown.Withheld = true
	case m.event:
		shown.Text = m.text
	default:
		for i, v := range m.versions {
			if v.seq <= during.To {
				shown.Version, shown.Text = int64(i+1), v.text
			}
		}
	}
	return shown
}

// run drives one group and its model with the same random steps.
type run struct {
	*rapid.T
	ctx    context.Context
	stores []*store.Store
	people []string
	g      *group
	keys   int    // how many idempotency keys were used
	prefix string // of them
	crowd  bool   // the head says more members than there are
	done   []func(*store.Store) (store.Committed, error)
	got    []store.Committed
}

func (r *run) pick(label string) string { return rapid.SampledFrom(r.people).Draw(r.T, label) }

// mostly draws one of those that are wanted, if there are any, and at times anyone.
func (r *run) mostly(label string, wanted func(user string) bool) string {
	users := slices.DeleteFunc(slices.Clone(r.people), func(user string) bool { return !wanted(user) })
	if len(users) == 0 || rapid.IntRange(0, 3).Draw(r.T, "any") == 0 {
		users = r.people
	}
	return rapid.SampledFrom(users).Draw(r.T, label)
}

func (r *run) admin() string {
	return r.mostly("admin", func(user string) bool { return r.g.may(user, "add", "") })
}

func (r *run) some(label string, wanted func(user string) bool) []string {
	whom := []string{r.mostly(label, wanted)}
	if rapid.IntRange(0, 3).Draw(r.T, "more") == 0 {
		whom = append(whom, r.pick("one more"))
	}
	return slices.Compact(whom)
}
func (r *run) store() *store.Store { return rapid.SampledFrom(r.stores).Draw(r.T, "store") }

// write makes a change and compares its outcome with what the model says. ok
// tells that it was made.
func (r *run) write(what, user string, want chat.Code, do func(*store.Store, store.Request) (store.Committed, error)) (committed store.Committed, ok bool) {
	r.keys++
	request := by(user, fmt.Sprintf("%s-%d", r.prefix, r.keys))
	call := func(s *store.Store) (store.Committed, error) { return do(s, request) }
	committed, err := call(r.store())
	if want != "" {
		requireCode(r, want, err, "%s by %s", what, user)
		return store.Committed{}, false
	}
	require.NoError(r, err, "%s by %s", what, user)
	require.False(r, committed.Duplicate)
	require.Equal(r, r.g.last()+1, committed.Seq)
	r.done, r.got = append(r.done, call), append(r.got, committed)
	return committed, true
}

// event notes an event in the model's ledger.
func (r *run) event(user, text string, committed store.Committed) int64 {
	r.g.ledger = append(r.g.ledger, said{by: user, text: text, committed: committed, event: true, version: 1})
	return committed.Seq
}

func (r *run) send() {
	g, user := r.g, r.mostly("sender", func(user string) bool { return r.g.roles[user] != "" })
	want := g.refusal(user)
	m := chatIn(text(user, "", fmt.Sprint("text ", r.keys)), g.id)
	if rapid.IntRange(0, 3).Draw(r.T, "reply") == 0 {
		seq := rapid.Int64Range(1, g.last()).Draw(r.T, "to")
		m.ReplyTo = &chat.ReplyTo{Seq: seq, MessageID: g.ledger[seq-1].committed.MessageID}
		if want == "" && !slices.Contains(g.sees(user), seq) {
			want = chat.CodeNotFound
		}
	}
	if committed, ok := r.write("send", user, want, func(s *store.Store, q store.Request) (store.Committed, error) {
		m := m
		m.ClientMsgID = q.ClientMsgID
		return s.Append(r.ctx, m, "")
	}); ok {
		g.ledger = append(g.ledger, said{by: user, text: m.Text, committed: committed, version: 1, versions: []version{{committed.Seq, m.Text}}})
	}
}

func (r *run) addMembers() {
	g, user := r.g, r.admin()
	whom := r.some("whom", func(user string) bool { return g.roles[user] == "" })
	want := g.refusal(user)
	switch {
	case want != "":
	case !g.may(user, "add", ""):
		want = chat.CodeForbidden
	case slices.ContainsFunc(whom, func(id string) bool { return g.roles[id] != "" }):
		want = chat.CodeBadRequest
	case slices.ContainsFunc(whom, func(id string) bool { return g.gone[id] }):
		want = chat.CodeForbidden
	}
	if committed, ok := r.write("add", user, want, func(s *store.Store, q store.Request) (store.Committed, error) {
		return s.AddMembers(r.ctx, q, g.id, whom)
	}); ok {
		seq := r.event(user, "", committed)
		for _, id := range whom {
			g.add(id, seq, committed.ServerTime)
		}
	}
}

// admit is what the product adds.
func (r *run) admit() {
	g := r.g
	whom := r.some("whom", func(user string) bool { return g.roles[user] == "" })
	want := chat.Code("")
	switch {
	case g.dissolved:
		want = chat.CodeDissolved
	case slices.ContainsFunc(whom, func(id string) bool { return g.roles[id] != "" }):
		want = chat.CodeBadRequest
	}
	if committed, ok := r.write("admit", chat.SystemSender, want, func(s *store.Store, q store.Request) (store.Committed, error) {
		return s.AdmitMembers(r.ctx, g.id, whom, q.ClientMsgID)
	}); ok {
		seq := r.event(chat.SystemSender, "", committed)
		for _, id := range whom {
			g.add(id, seq, committed.ServerTime)
		}
	}
}

// admitQuietly is what the product adds to a crowd: no message tells of it.
func (r *run) admitQuietly() {
	g, user := r.g, r.mostly("whom", func(user string) bool { return r.g.roles[user] == "" })
	r.keys++
	joined, err := r.store().AdmitMembers(r.ctx, g.id, []string{user}, fmt.Sprintf("%s-%d", r.prefix, r.keys))
	require.NoError(r, err)
	require.Zero(r, joined.Seq)
	require.Equal(r, g.roles[user] != "", joined.Duplicate, "%s is there already", user)
	if !joined.Duplicate {
		g.add(user, g.last()+1, time.Now().UnixMilli())
	}
}

func (r *run) removeMembers() {
	g, user := r.g, r.admin()
	whom := r.some("whom", func(id string) bool { return g.may(user, "remove", id) && g.roles[id] != "" })
	want := g.refusal(user)
	switch {
	case slices.Contains(whom, user):
		want = chat.CodeBadRequest
	case want != "":
	case !g.may(user, "add", ""): // who may not add may remove nobody
		want = chat.CodeForbidden
	case slices.ContainsFunc(whom, func(id string) bool { return g.roles[id] != "" && !g.may(user, "remove", id) }):
		want = chat.CodeForbidden
	case slices.ContainsFunc(whom, func(id string) bool { return g.roles[id] == "" }):
		want = chat.CodeBadRequest
	}
	if committed, ok := r.write("remove", user, want, func(s *store.Store, q store.Request) (store.Committed, error) {
		return s.RemoveMembers(r.ctx, q, g.id, whom)
	}); ok {
		seq := r.event(user, "", committed)
		for _, id := range whom {
			g.remove(id, seq)
		}
	}
}

func (r *run) leave() { r.leaves(r.pick("who leaves")) }

func (r *run) leaves(user string) {
	g := r.g
	want := chat.Code("") // also of a group that is dissolved
	if g.roles[user] == "" {
		want = chat.CodeNotFound
	}
	if committed, ok := r.write("leave", user, want, func(s *store.Store, q store.Request) (store.Committed, error) {
		return s.Leave(r.ctx, q, g.id)
	}); ok {
		heir := ""
		if g.roles[user] == chat.RoleOwner {
			heir = g.heir(user)
			g.dissolved = g.dissolved || heir == ""
		}
		g.remove(user, r.event(user, "", committed))
		g.gone[user] = true
		if heir != "" {
			g.roles[heir] = chat.RoleOwner
		}
	}
}

func (r *run) setRole() {
	g, user, whose := r.g, r.pick("owner"), r.pick("whose")
	role := rapid.SampledFrom([]chat.Role{chat.RoleOwner, chat.RoleAdmin, chat.RoleAdmin, chat.RolePlain}).Draw(r.T, "role")
	want := g.refusal(user)
	switch {
	case user == whose:
		want = chat.CodeBadRequest
	case want != "":
	case !g.may(user, "role", ""):
		want = chat.CodeForbidden
	case g.roles[whose] == "":
		want = chat.CodeBadRequest
	}
	if committed, ok := r.write("role", user, want, func(s *store.Store, q store.Request) (store.Committed, error) {
		return s.SetRole(r.ctx, q, g.id, whose, role)
	}); ok {
		r.event(user, "", committed)
		g.roles[whose] = role
		if role == chat.RoleOwner {
			g.roles[user] = chat.RoleAdmin
		}
	}
}

func (r *run) setTitle() {
	g, user, title := r.g, r.pick("admin"), rapid.StringMatching(`[a-zé字]{1,5}`).Draw(r.T, "title")
	want := g.refusal(user)
	if want == "" && !g.may(user, "title", "") {
		want = chat.CodeForbidden
	}
	if committed, ok := r.write("title", user, want, func(s *store.Store, q store.Request) (store.Committed, error) {
		return s.SetTitle(r.ctx, q, g.id, title)
	}); ok {
		r.event(user, "", committed)
		g.title = title
	}
}

func (r *run) dissolve() {
	g, user := r.g, r.pick("owner")
	if rapid.IntRange(0, 9).Draw(r.T, "really") > 0 {
		return // else most groups would end early
	}
	want := g.refusal(user)
	if want == "" && !g.may(user, "dissolve", "") {
		want = chat.CodeForbidden
	}
	if committed, ok := r.write("dissolve", user, want, func(s *store.Store, q store.Request) (store.Committed, error) {
		return s.Dissolve(r.ctx, q, g.id)
	}); ok {
		r.event(user, "", committed)
		g.dissolved = true
	}
}

// target draws a message, mostly one that someone said, and who revises it, mostly
// its sender; and returns what stands against that.
func (r *run) target(label string) (m *said, user string, want chat.Code) {
	seq := rapid.Int64Range(1, r.g.last()).Draw(r.T, "target")
	for ; seq > 1 && r.g.ledger[seq-1].event; seq-- {
		if rapid.IntRange(0, 5).Draw(r.T, "any") == 0 {
			break
		}
	}
	m = &r.g.ledger[seq-1]
	user = r.mostly(label, func(user string) bool { return user == m.by })
	want = r.g.refusal(user)
	if want == "" && !slices.Contains(r.g.sees(user), seq) {
		want = chat.CodeNotFound
	}
	if want == "" && m.event {
		want = chat.CodeForbidden
	}
	return m, user, want
}

func (r *run) recall() {
	g := r.g
	m, user, want := r.target("who recalls")
	if want == "" && m.recall != nil { // again: the first one
		got, err := r.store().Recall(r.ctx, by(user, r.prefix+"-again"), targetOf(m.committed), store.NoWindow)
		require.NoError(r, err)
		require.True(r, got.Duplicate)
		require.Equal(r, m.recall.MessageID, got.MessageID)
		return
	}
	if want == "" && m.by != user && !g.may(user, "recall", m.by) {
		want = chat.CodeForbidden
	}
	if committed, ok := r.write("recall", user, want, func(s *store.Store, q store.Request) (store.Committed, error) {
		return s.Recall(r.ctx, q, targetOf(m.committed), store.NoWindow)
	}); ok {
		m.recall, m.text = &committed, ""
		m.version++
		for _, v := range m.versions[1:] {
			g.ledger[v.seq-1].text, g.ledger[v.seq-1].recall = "", &committed
		}
		r.event(user, "", committed)
	}
}

func (r *run) edit() {
	g := r.g
	m, user, want := r.target("who edits")
	behind := max(1, m.version-rapid.Int64Range(0, 3).Draw(r.T, "behind")/3)
	switch {
	case want != "":
	case m.by != user || g.time(user, m.committed.Seq).To != g.end(user):
		want = chat.CodeForbidden
	case behind != m.version || m.recall != nil:
		want = chat.CodeVersionConflict
	}
	content := fmt.Sprint("edited ", r.keys)
	if committed, ok := r.write("edit", user, want, func(s *store.Store, q store.Request) (store.Committed, error) {
		return s.Edit(r.ctx, q, targetOf(m.committed), store.Edited{Version: behind, Text: content}, store.NoWindow)
	}); ok {
		m.text = content
		m.version++
		m.versions = append(m.versions, version{committed.Seq, content})
		target := m.committed.Seq
		g.ledger[r.event(user, content, committed)-1].target = target
	}
}

func (r *run) ack() {
	g, user := r.g, r.pick("reader")
	to := rapid.Int64Range(0, g.last()+3)
	want := store.Watermarks{DeliveredSeq: to.Draw(r.T, "delivered"), ReadSeq: to.Draw(r.T, "read")}
	got, err := r.store().Ack(r.ctx, user, g.id, want)
	if g.windows[user] == nil {
		requireCode(r, chat.CodeNotFound, err)
		return
	}
	require.NoError(r, err)
	mark := g.marks[user]
	require.Equal(r, mark, got.Before)
	mark.ReadSeq = max(mark.ReadSeq, min(want.ReadSeq, g.end(user)))
	mark.DeliveredSeq = max(mark.DeliveredSeq, min(want.DeliveredSeq, g.end(user)), mark.ReadSeq)
	require.Equal(r, mark, got.Watermarks)
	g.marks[user] = mark
}

func (r *run) clear() {
	g, user := r.g, r.pick("who clears")
	through := rapid.Int64Range(1, g.last()+3).Draw(r.T, "through")
	got, rose, err := r.store().Clear(r.ctx, user, g.id, through)
	if g.windows[user] == nil {
		requireCode(r, chat.CodeNotFound, err)
		return
	}
	require.NoError(r, err)
	want := max(g.cleared[user], min(through, g.end(user)))
	require.Equal(r, want, got)
	require.Equal(r, want > g.cleared[user], rose)
	g.cleared[user] = want
}

// retry repeats a request of long ago.
func (r *run) retry() {
	if len(r.done) == 0 {
		return
	}
	i := rapid.IntRange(0, len(r.done)-1).Draw(r.T, "which")
	again, err := r.done[i](r.store())
	require.NoError(r, err)
	require.True(r, again.Duplicate)
	require.Equal(r, r.got[i].MessageID, again.MessageID)
	require.Equal(r, r.got[i].Seq, again.Seq)
}

// compare holds the tables and the answers of a fresh store against the model.
func (r *run) compare(c *cloud) {
	g, s := r.g, c.Store(nil)
	if !r.crowd {
		told := requireWhole(r, c, s, g.id)
		require.Equal(r, g.roles, told.roles)
		require.Equal(r, g.title, told.title)
		require.Equal(r, g.dissolved, told.state == chat.StateDissolved)
	}
	require.Equal(r, g.last(), c.Head(g.id).LastSeq)
	entries, err := s.Entries(r.ctx, g.id, chat.Range{From: 1, To: g.last()})
	require.NoError(r, err)
	for i, m := range entries {
		want := g.ledger[i]
		require.Equal(r, want.committed.MessageID, m.MessageID)
		require.Equal(r, want.by, m.SenderID)
		require.Equal(r, want.text, m.Text, "seq %d", m.Seq)
		require.Equal(r, want.version, m.Version, "seq %d", m.Seq)
		require.Equal(r, want.recall != nil, m.Status == chat.StatusRecalled, "seq %d", m.Seq)
	}
	limit := rapid.IntRange(1, 5).Draw(r.T, "limit")
	for _, user := range r.people {
		line, ok := r.reads(s, user, limit)
		if !ok {
			continue
		}
		require.Equal(r, g.marks[user], store.Watermarks{DeliveredSeq: line.DeliveredSeq, ReadSeq: line.ReadSeq}, user)
		require.Equal(r, g.cleared[user], line.ClearedSeq, user)
		require.Equal(r, g.end(user), line.LastSeq(), user)
		require.Equal(r, g.roles[user] == "", line.LeftSeq != 0, user)
		require.Equal(r, g.unread(user), line.Unread(), user)
		listed := r.lines(s, user)[g.id]
		require.Equal(r, g.roles[user] != "" || g.cleared[user] < g.end(user), listed, "what %s has left and cleared is hidden", user)
	}
}

// lines returns the user's list: the groups of all runs.
func (r *run) lines(s *store.Store, user string) map[chat.ConversationID]bool {
	all := map[chat.ConversationID]bool{}
	for cursor := store.FromStart; cursor != ""; {
		lines, next, err := s.List(r.ctx, user, cursor, 100)
		require.NoError(r, err)
		maps.Copy(all, conversationIDs(lines))
		cursor = next
	}
	return all
}

// reads compares all that a user reads of the group by every way there is.
func (r *run) reads(s *store.Store, user string, limit int) (line store.Line, ok bool) {
	g := r.g
	if g.windows[user] == nil {
		_, err := s.Sync(r.ctx, user, g.id, 0, 10, frame)
		requireCode(r, chat.CodeNotFound, err)
		return store.Line{}, false
	}
	want := []chat.Message{}
	for _, seq := range g.sees(user) {
		want = append(want, g.shown(user, seq))
	}
	require.Equal(r, want, bare(synced(r, s, user, g.id, limit)), "sync of %s", user)
	require.Equal(r, want, bare(paged(r, s, user, g.id, limit)), "history of %s", user)
	line, err := s.Line(r.ctx, user, g.id)
	require.NoError(r, err)
	if n := len(want); n > 0 && want[n-1].Seq == line.LastSeq() {
		require.Equal(r, want[n-1:], bare([]chat.Message{*line.Last}), "list of %s", user)
	} else {
		require.Nil(r, line.Last)
	}
	return line, true
}

// bare leaves of messages what the model knows.
func bare(messages []chat.Message) []chat.Message {
	left := make([]chat.Message, len(messages))
	for i, m := range messages {
		left[i] = chat.Message{
			Seq: m.Seq, MessageID: m.MessageID, SenderID: m.SenderID, Text: m.Text, Version: m.Version, Status: m.Status, Withheld: m.Withheld,
		}
	}
	return left
}

// modelTime bounds each property test: with the machine's load, how many groups it
// drives varies, and what it proves of each does not.
const modelTime = 3 * time.Second

func TestGroupsAgainstAModel(t *testing.T) {
	t.Parallel()
	driveGroups(t, []string{"ann", "bob", "cy", "dan", "eve"}, 40, nil, func(r *run) map[string]func() {
		return map[string]func(){
			"send": r.send, "send more": r.send, "add": r.addMembers, "admit": r.admit, "remove": r.removeMembers, "leave": r.leave,
			"role": r.setRole, "title": r.setTitle, "dissolve": r.dissolve, "recall": r.recall, "edit": r.edit,
			"ack": r.ack, "clear": r.clear, "retry": r.retry,
		}
	})
}

// Few people come and go, and much is edited: no one ever reads what was said, or
// made of what was said, while away.
func TestG9_WhatIsReadAgainstAModel(t *testing.T) {
	t.Parallel()
	driveGroups(t, []string{"ann", "bob", "cy"}, 60, nil, comingAndGoing)
}

// Nor where messages are committed by others.
func TestG9_WhatIsReadOfALaneAgainstAModel(t *testing.T) {
	t.Parallel()
	begin := func(c *cloud, r *run) { c.Set(c.Tables.Conversations, convKey(r.g.id), values{"laneUntil": farFuture}) }
	driveGroups(t, []string{"ann", "bob", "cy"}, 40, begin, comingAndGoing)
}

// Nor of a crowd, which one joins without a message.
func TestG9_WhatIsReadOfACrowdAgainstAModel(t *testing.T) {
	t.Parallel()
	begin := func(c *cloud, r *run) {
		r.crowd, r.stores[0], r.stores[1] = true, c.Store(nil, store.WithMaxCrowdMembers(5000)), c.Store(nil, store.WithMaxCrowdMembers(5000))
		c.Set(c.Tables.Conversations, convKey(r.g.id), values{"memberCount": 2 * chat.MaxGroupMembers})
	}
	driveGroups(t, []string{"ann", "bob", "cy"}, 60, begin, func(r *run) map[string]func() {
		return map[string]func(){
			"send": r.send, "edit": r.edit, "edit more": r.edit, "edit again": r.edit, "recall": r.recall, "remove": r.removeMembers,
			"admit": r.admitQuietly, "admit more": r.admitQuietly, "clear": r.clear, "ack": r.ack,
			"leave": func() { r.leaves(rapid.SampledFrom(r.people[1:]).Draw(r.T, "who leaves")) },
		}
	})
}

func comingAndGoing(r *run) map[string]func() {
	return map[string]func(){
		"send": r.send, "edit": r.edit, "edit more": r.edit, "edit again": r.edit, "recall": r.recall,
		"add": r.addMembers, "add more": r.addMembers, "admit": r.admit, "remove": r.removeMembers, "leave": r.leave, "clear": r.clear,
	}
}

// driveGroups drives groups of these people, whose first makes them, by at most so
// many random steps each, once begin has made of them what they are to be.
func driveGroups(t *testing.T, people []string, most int, begin func(*cloud, *run), stepsOf func(*run) map[string]func()) {
	c := newCloud(t)
	deadline := time.Now().Add(modelTime)
	groups := 0
	rapid.Check(t, func(rt *rapid.T) {
		if time.Now().After(deadline) {
			return
		}
		groups++
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		r := newRun(ctx, rt, c, people)
		if begin != nil {
			begin(c, r)
		}
		steps := stepsOf(r)
		names := slices.Sorted(maps.Keys(steps))
		for range rapid.IntRange(5, most).Draw(rt, "steps") {
			steps[rapid.SampledFrom(names).Draw(rt, "step")]()
			r.reads(r.store(), r.pick("who looks"), 100)
		}
		r.compare(c)
	})
	t.Logf("%d groups", groups)
	require.Positive(t, groups)
}

// newRun makes a group of the first of the people and some others.
func newRun(ctx context.Context, rt *rapid.T, c *cloud, people []string) *run {
	stores := []*store.Store{c.Store(nil, store.WithRejoin(time.Hour)), c.Store(nil, store.WithRejoin(time.Hour))}
	v := rapid.SampledFrom([]chat.Visibility{chat.VisibleAll, chat.VisibleSinceJoin}).Draw(rt, "visibility")
	owner, most := people[0], min(3, len(people)-1)
	first := rapid.SliceOfNDistinct(rapid.SampledFrom(people[1:]), 0, most, rapid.ID).Draw(rt, "members")
	prefix := fmt.Sprint(time.Now().UnixNano()) // the groups share the tables
	line, committed, err := stores[0].CreateGroup(ctx, by(owner, prefix), "title", first, v)
	require.NoError(rt, err)
	r := &run{T: rt, ctx: ctx, stores: stores, people: people, prefix: prefix, g: &group{
		id: line.Head.ConversationID, visibility: v, title: "title",
		roles: map[string]chat.Role{}, joined: map[string]int64{}, windows: map[string][]chat.Range{},
		cleared: map[string]int64{}, gone: map[string]bool{}, marks: map[string]store.Watermarks{},
	}}
	r.event(owner, "", committed)
	for _, user := range append([]string{owner}, first...) {
		r.g.add(user, 1, committed.ServerTime)
	}
	r.g.roles[owner], r.g.marks[owner] = chat.RoleOwner, store.Watermarks{DeliveredSeq: 1, ReadSeq: 1}
	return r
}
