package clienttest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

type conversation struct {
	head    chat.Conversation
	entries []chat.Message         // entries[i] has seq i+1
	first   map[int64]chat.Message // of an edited one: as it was sent
	holes   map[int64]bool         // seqs whose entries are gone
	members map[string]*member
}

// member is one user's view; former members stay, with left set.
type member struct {
	role                     chat.Role
	join, left               int64
	past                     []chat.Range
	delivered, read, cleared int64
}

type user struct {
	v, floor int64
	at       map[string]int64
}

type result struct {
	fingerprint string
	value       any
}

const maxRecent = 4

// Post commits a text as another client's send does.
func (s *Server) Post(senderID string, r wire.Send) wire.Sent {
	r.MessageType = cmp.Or(r.MessageType, chat.TypeText)
	s.mu.Lock()
	s.lastID++
	r.ClientMsgID = cmp.Or(r.ClientMsgID, fmt.Sprintf("post-%d", s.lastID))
	body, err := wire.Encode(r)
	s.mu.Unlock()
	if err != nil {
		panic(err) // the test's own types
	}
	out, pushes, err := s.carryOut(&Conn{device: device{senderID, "other"}}, wire.ActionSend, body)
	if err != nil {
		panic(err) // a test that posts what cannot be posted
	}
	s.send(nil, false, pushes)
	return out.(wire.Sent)
}

// MakeGroup makes a group without an entry of its own; the first is the owner.
func (s *Server) MakeGroup(name string, userIDs ...string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.open("group:"+name, chat.KindGroup, userIDs[0])
	for _, id := range userIDs {
		c.members[id] = &member{role: chat.RolePlain, join: 1}
	}
	c.members[userIDs[0]].role = chat.RoleOwner
	return c.head.ConversationID
}

// Join makes a user a member of a group, without an entry.
func (s *Server) Join(conversationID, userID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conversations[conversationID].members[userID] = &member{role: chat.RolePlain, join: 1}
}

// Erase takes the content out of all that a user has sent, as the operator's tool
// does.
func (s *Server) Erase(userID string) {
	s.mu.Lock()
	a := act{s: s, userID: chat.SystemSender}
	for _, id := range slices.Sorted(maps.Keys(s.conversations)) {
		c := s.conversations[id]
		if !slices.ContainsFunc(c.entries, func(m chat.Message) bool { return m.SenderID == userID }) {
			continue
		}
		a.append(c, chat.Message{
			ClientMsgID: fmt.Sprintf("erase-%d", s.lastID), MessageType: chat.TypeEvent,
			Event: &chat.Event{Kind: chat.EventErase, Erased: userID},
		})
		event := c.entries[len(c.entries)-1]
		for i, m := range c.entries {
			if event.Erases(m) {
				c.entries[i], _ = m.Erased()
			}
		}
	}
	s.mu.Unlock()
	s.send(nil, false, a.pushes)
}

// Punch makes holes: the entries with these seqs are gone.
func (s *Server) Punch(conversationID string, seqs ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seq := range seqs {
		s.conversations[conversationID].holes[seq] = true
	}
}

// GoBack makes the server what it was when the ledger of a conversation ended with
// lastSeq, as a restore of its tables does; the users' sync heads go back to v.
func (s *Server) GoBack(conversationID string, lastSeq, v int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.conversations[conversationID]
	maps.DeleteFunc(s.results, func(_ string, r result) bool {
		sent, ok := r.value.(wire.Sent)
		return ok && sent.ConversationID == conversationID && sent.Seq > lastSeq
	})
	c.entries = c.entries[:lastSeq:lastSeq]
	c.head.Runs = ""
	for _, m := range c.entries {
		c.head.Runs = c.head.Runs.With(m)
	}
	for id, m := range c.members {
		m.delivered, m.read, m.cleared = min(m.delivered, lastSeq), min(m.read, lastSeq), min(m.cleared, lastSeq)
		u := s.user(id)
		u.v, u.floor = v, min(u.floor, v)
		maps.DeleteFunc(u.at, func(_ string, at int64) bool { return at > v })
	}
}

// BeginAnew makes the server one that nobody has used yet.
func (s *Server) BeginAnew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conversations, s.users, s.results = map[string]*conversation{}, map[string]*user{}, map[string]result{}
}

// Conversations lists the ids of a user's conversations.
func (s *Server) Conversations(userID string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for id, c := range s.conversations {
		if c.members[userID] != nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Ledger gives what a user may read of a conversation.
func (s *Server) Ledger(userID, conversationID string) []chat.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.conversations[conversationID]
	messages := []chat.Message{}
	for _, r := range c.visible(userID) {
		for seq := r.From; seq <= r.To; seq++ {
			if !c.holes[seq] {
				messages = append(messages, c.shown(userID, seq))
			}
		}
	}
	return messages
}

// Positions gives a user's positions in a conversation.
func (s *Server) Positions(userID, conversationID string) (delivered, read, cleared int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.conversations[conversationID].members[userID]
	return m.delivered, m.read, m.cleared
}

func (s *Server) open(id string, kind chat.Kind, owner string) *conversation {
	now := time.Now().UnixMilli()
	c := &conversation{
		head:    chat.Conversation{ConversationID: id, Kind: kind, State: chat.StateActive, Owner: owner, Visibility: chat.VisibleAll, CreatedAt: now, UpdatedAt: now},
		holes:   map[int64]bool{},
		first:   map[int64]chat.Message{},
		members: map[string]*member{},
	}
	s.conversations[id] = c
	return c
}

func (c *conversation) last() int64 { return int64(len(c.entries)) }

func (c *conversation) present() []string {
	var ids []string
	for id, m := range c.members {
		if m.left == 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// strangers reports whether the members hear of no receipts of each other.
func (c *conversation) strangers() bool { return c.head.Kind == chat.KindSingle && !c.head.Answered() }

func (c *conversation) committedMax(userID string) int64 {
	if m := c.members[userID]; m.left != 0 {
		return m.left
	}
	return c.last()
}

// times gives the user's times of membership.
func (c *conversation) times(userID string) []chat.Range {
	m := c.members[userID]
	return append(slices.Clip(m.past), chat.Range{From: m.join, To: c.committedMax(userID)})
}

func (c *conversation) visible(userID string) []chat.Range {
	var stretches []chat.Range
	for _, r := range c.times(userID) {
		if r.From = max(r.From, c.members[userID].cleared+1); r.From <= r.To {
			stretches = append(stretches, r)
		}
	}
	return stretches
}

// time gives the user's time of membership with this seq.
func (c *conversation) time(userID string, seq int64) chat.Range {
	for _, r := range c.times(userID) {
		if r.Has(seq) {
			return r
		}
	}
	return chat.Range{}
}

// shown is an entry as the user may see it: as it was at the end of that time.
func (c *conversation) shown(userID string, seq int64) chat.Message {
	m := c.entries[seq-1]
	during := c.time(userID, seq)
	if first, edited := c.first[seq]; edited && m.Status == chat.StatusNormal {
		m = first
		for _, e := range c.entries[:during.To] {
			if e.Event != nil && e.Event.Kind == chat.EventEdit && e.Event.TargetSeq == seq {
				m.Text, m.Data, m.Version = e.Text, e.Data, e.Event.Version
			}
		}
	}
	return m.In(during)
}

func (s *Server) user(id string) *user {
	if s.users[id] == nil {
		s.users[id] = &user{at: map[string]int64{}}
	}
	return s.users[id]
}

func (s *Server) raise(userID, conversationID string) int64 {
	u := s.user(userID)
	u.v++
	u.at[conversationID] = u.v
	for len(u.at) > maxRecent {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(u.at)), func(a, b string) int { return cmp.Compare(u.at[a], u.at[b]) })
		u.floor = max(u.floor, u.at[oldest])
		delete(u.at, oldest)
	}
	return u.v
}

// carryOut does what a request asks, whole or not at all.
func (s *Server) carryOut(c *Conn, action string, body []byte) (any, []push, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[action]++
	a := act{s: s, userID: c.userID, deviceID: c.deviceID}
	do, ok := map[string]func(*act, []byte) (any, error){
		wire.ActionSend:          as((*act).send),
		wire.ActionRecall:        as((*act).recall),
		wire.ActionEdit:          as((*act).edit),
		wire.ActionSync:          as((*act).sync),
		wire.ActionHistory:       as((*act).history),
		wire.ActionChanges:       as((*act).changes),
		wire.ActionConversations: as((*act).list),
		wire.ActionAck:           as((*act).ack),
		wire.ActionClear:         as((*act).clear),
		wire.ActionCreateGroup:   as((*act).createGroup),
		wire.ActionAddMembers:    as((*act).addMembers),
		wire.ActionRemoveMembers: as((*act).removeMembers),
		wire.ActionLeave:         as((*act).leave),
		wire.ActionSetTitle:      as((*act).setTitle),
		wire.ActionSetRole:       as((*act).setRole),
		wire.ActionDissolve:      as((*act).dissolve),
		wire.ActionMembers:       as((*act).members),
		wire.ActionReceipts:      as((*act).receipts),
		wire.ActionPing: func(*act, []byte) (any, error) {
			return wire.Pong{ServerTime: time.Now().UnixMilli()}, nil
		},
	}[action]
	if !ok {
		return nil, nil, chat.Errorf(chat.CodeUnknownAction, "no action %q", action)
	}
	out, err := do(&a, body)
	return out, a.pushes, err
}

// act is one request being carried out.
type act struct {
	s                *Server
	userID, deviceID string
	pushes           []push
}

func as[Request any](do func(*act, Request) (any, error)) func(*act, []byte) (any, error) {
	return func(a *act, body []byte) (any, error) {
		var r Request
		if err := json.Unmarshal(body, &r); err != nil {
			return nil, chat.Errorf(chat.CodeBadRequest, "%v", err)
		}
		return do(a, r)
	}
}

// once gives the first result of a clientMsgId.
func (a *act) once(clientMsgID string, m chat.Message, do func() (any, error)) (any, error) {
	if clientMsgID == "" {
		return nil, chat.FieldErrorf(chat.CodeBadRequest, "clientMsgId", "missing")
	}
	fingerprint, err := m.Fingerprint()
	if err != nil {
		return nil, err
	}
	dedupeKey := chat.DedupeKey(a.userID, clientMsgID)
	if first, known := a.s.results[dedupeKey]; known {
		if first.fingerprint != fingerprint {
			e := chat.Errorf(chat.CodeIdempotencyConflict, "this clientMsgId was used for other content")
			if sent, ok := first.value.(wire.Sent); ok {
				e.Details = map[string]any{"messageId": sent.MessageID, "seq": sent.Seq}
			}
			return nil, e
		}
		return duplicate(first.value), nil
	}
	value, err := do()
	if err == nil {
		a.s.results[dedupeKey] = result{fingerprint, value}
	}
	return value, err
}

func duplicate(value any) any {
	switch v := value.(type) {
	case wire.Sent:
		v.Duplicate = true
		return v
	case wire.Edited:
		v.Duplicate = true
		return v
	case wire.Created:
		v.Duplicate = true
		return v
	}
	return value
}

func (a *act) conversation(id string) (*conversation, *member, error) {
	c := a.s.conversations[id]
	if c == nil || c.members[a.userID] == nil {
		return nil, nil, chat.Errorf(chat.CodeNotFound, "no such conversation")
	}
	return c, c.members[a.userID], nil
}

// writable is conversation for a present member of one that is active.
func (a *act) writable(id string) (*conversation, error) {
	c, m, err := a.conversation(id)
	switch {
	case err != nil:
	case m.left != 0:
		err = chat.Errorf(chat.CodeNotFound, "no such conversation")
	case c.head.State != chat.StateActive:
		err = chat.Errorf(chat.CodeDissolved, "the group is dissolved")
	}
	return c, err
}

// append commits an entry, raises sync heads, and pushes.
func (a *act) append(c *conversation, m chat.Message) wire.Sent {
	a.s.lastID++
	now := time.Now().UnixMilli()
	m.ConversationID, m.Seq = c.head.ConversationID, c.last()+1
	m.MessageID = fmt.Sprintf("01M%023d", a.s.lastID)
	m.SenderID, m.SenderDeviceID = a.userID, a.deviceID
	m.Version, m.Status, m.ServerTime = 1, chat.StatusNormal, now
	c.entries = append(c.entries, m)
	c.head.Runs = c.head.Runs.With(m)
	c.head.UpdatedAt = now
	present := c.present()
	if len(present) <= a.s.LargeAbove {
		for _, id := range present {
			a.s.raise(id, c.head.ConversationID)
		}
	}
	if len(present) > a.s.NotifyAbove {
		a.pushes = append(a.pushes, push{present, wire.Notify{Type: wire.TypeNotify, Updates: []wire.Head{{ConversationID: m.ConversationID, CommittedMaxSeq: m.Seq}}}})
	} else {
		for _, id := range present {
			a.pushes = append(a.pushes, push{[]string{id}, wire.Push{Type: wire.TypePush, Updates: []wire.Update{{
				ConversationID: m.ConversationID, Messages: []chat.Message{c.shown(id, m.Seq)}, CommittedMaxSeq: m.Seq,
			}}}})
		}
	}
	return wire.Sent{ConversationID: m.ConversationID, Seq: m.Seq, MessageID: m.MessageID, ServerTime: now}
}

func (a *act) send(r wire.Send) (any, error) {
	id := r.ConversationID
	if r.To != "" {
		id = chat.SingleID(a.userID, r.To)
	}
	m := chat.Message{
		ConversationID: id, ClientMsgID: r.ClientMsgID, MessageType: r.MessageType,
		Text: r.Text, Data: r.Data, ReplyTo: r.ReplyTo, ClientTime: r.ClientTime,
	}
	return a.once(r.ClientMsgID, m, func() (any, error) {
		if r.To != "" && a.s.conversations[id] == nil {
			c := a.s.open(id, chat.KindSingle, "")
			c.members[a.userID] = &member{role: chat.RolePlain, join: 1}
			c.members[r.To] = &member{role: chat.RolePlain, join: 1}
		}
		c, err := a.writable(id)
		if err != nil {
			return nil, err
		}
		return a.append(c, m), nil
	})
}

func (a *act) target(conversationID string, seq int64, messageID string) (*conversation, *chat.Message, error) {
	c, err := a.writable(conversationID)
	if err != nil {
		return nil, nil, err
	}
	if seq < 1 || seq > c.last() || c.entries[seq-1].MessageID != messageID {
		return nil, nil, chat.Errorf(chat.CodeNotFound, "no such message")
	}
	if c.entries[seq-1].SenderID != a.userID || c.entries[seq-1].Event != nil {
		return nil, nil, chat.Errorf(chat.CodeForbidden, "not yours")
	}
	return c, &c.entries[seq-1], nil
}

func (a *act) recall(r wire.Recall) (any, error) {
	e := &chat.Event{Kind: chat.EventRecall, TargetSeq: r.Seq, TargetMessageID: r.MessageID}
	m := chat.Message{ConversationID: r.ConversationID, ClientMsgID: r.ClientMsgID, MessageType: chat.TypeEvent, Event: e}
	return a.once(r.ClientMsgID, m, func() (any, error) {
		c, target, err := a.target(r.ConversationID, r.Seq, r.MessageID)
		if err != nil {
			return nil, err
		}
		if target.Status == chat.StatusRecalled {
			for _, entry := range c.entries {
				if entry.Event != nil && entry.Event.Kind == chat.EventRecall && entry.Event.TargetSeq == r.Seq {
					return wire.Sent{ConversationID: r.ConversationID, Seq: entry.Seq, MessageID: entry.MessageID, ServerTime: entry.ServerTime}, nil
				}
			}
		}
		target.Version++
		e.Version = target.Version
		empty(target)
		for i := range c.entries {
			if v := c.entries[i].Event; v != nil && v.Kind == chat.EventEdit && v.TargetSeq == r.Seq {
				empty(&c.entries[i])
			}
		}
		return a.append(c, m), nil
	})
}

func empty(m *chat.Message) { m.Status, m.Text, m.Data = chat.StatusRecalled, "", nil }

func (a *act) edit(r wire.Edit) (any, error) {
	e := &chat.Event{Kind: chat.EventEdit, TargetSeq: r.Seq, TargetMessageID: r.MessageID, Version: r.Version + 1}
	m := chat.Message{ConversationID: r.ConversationID, ClientMsgID: r.ClientMsgID, MessageType: chat.TypeEvent, Event: e, Text: r.Text, Data: r.Data}
	return a.once(r.ClientMsgID, m, func() (any, error) {
		c, target, err := a.target(r.ConversationID, r.Seq, r.MessageID)
		if err != nil {
			return nil, err
		}
		if target.Version != r.Version || target.Status != chat.StatusNormal {
			return nil, &chat.Error{Code: chat.CodeVersionConflict, Message: "changed meanwhile", Details: map[string]any{"version": target.Version}}
		}
		if c.time(a.userID, r.Seq).To < c.committedMax(a.userID) {
			return nil, chat.Errorf(chat.CodeForbidden, "you were away since")
		}
		if target.Version == 1 {
			c.first[r.Seq] = *target
		}
		target.Text, target.Data, target.Version = r.Text, r.Data, e.Version
		return wire.Edited{Sent: a.append(c, m), Version: e.Version}, nil
	})
}

func (a *act) sync(r wire.Sync) (any, error) {
	c, _, err := a.conversation(r.ConversationID)
	if err != nil {
		return nil, err
	}
	after, limit := *r.AfterSeq, a.s.PageSize
	if r.Limit != nil {
		limit = min(limit, *r.Limit)
	}
	top := c.committedMax(a.userID)
	page := wire.Synced{Messages: []chat.Message{}, NextSeq: max(after, top), CommittedMaxSeq: top}
	found := false
	for _, stretch := range c.visible(a.userID) {
		if stretch.To <= after {
			continue
		}
		found = true
		from := max(stretch.From, after+1)
		if from > after+1 {
			page.FirstSeq = from
		}
		page.NextSeq = min(stretch.To, from+int64(limit)-1)
		for seq := from; seq <= page.NextSeq; seq++ {
			if c.holes[seq] {
				page.Skipped = append(page.Skipped, seq)
			} else {
				page.Messages = append(page.Messages, c.shown(a.userID, seq))
			}
		}
		break
	}
	if !found && page.NextSeq > after {
		page.FirstSeq = page.NextSeq + 1
	}
	page.HasMore = page.NextSeq < top
	if h := a.s.hooks().OnSync; h != nil {
		h(&page)
	}
	return page, nil
}

func (a *act) history(r wire.History) (any, error) {
	c, _, err := a.conversation(r.ConversationID)
	if err != nil {
		return nil, err
	}
	before, limit := c.committedMax(a.userID)+1, wire.DefaultHistoryLimit
	if r.BeforeSeq != nil {
		before = *r.BeforeSeq
	}
	if r.Limit != nil {
		limit = *r.Limit
	}
	page := wire.HistoryPage{Messages: []chat.Message{}, NextBeforeSeq: before, CommittedMaxSeq: c.committedMax(a.userID)}
	for _, stretch := range slices.Backward(c.visible(a.userID)) {
		for seq := min(stretch.To, before-1); seq >= stretch.From; seq-- {
			if len(page.Messages) == limit {
				page.HasMore = true
				slices.Reverse(page.Messages)
				return page, nil
			}
			page.NextBeforeSeq = seq
			if !c.holes[seq] {
				page.Messages = append(page.Messages, c.shown(a.userID, seq))
			}
		}
	}
	slices.Reverse(page.Messages)
	return page, nil
}

func (a *act) changes(r wire.Changes) (any, error) {
	answer := a.changed(r)
	if h := a.s.hooks().OnChanges; h != nil {
		h(&answer)
	}
	return answer, nil
}

func (a *act) changed(r wire.Changes) wire.Changed {
	u := a.s.user(a.userID)
	answer := wire.Changed{Conversations: []wire.Conversation{}, Heads: []wire.Head{}, SyncCursor: u.v, UserID: a.userID}
	for _, id := range slices.Sorted(maps.Keys(a.s.conversations)) {
		c := a.s.conversations[id]
		if m := c.members[a.userID]; m != nil && m.left == 0 && len(c.present()) > a.s.LargeAbove {
			answer.Heads = append(answer.Heads, wire.Head{ConversationID: id, CommittedMaxSeq: c.last()})
		}
	}
	cursor := *r.SyncCursor
	if cursor <= 0 || cursor < u.floor || cursor > u.v {
		answer.Full, answer.Heads = true, []wire.Head{}
		answer.Conversations, answer.Cursor = a.page("", r.Hidden)
		return answer
	}
	changed := slices.SortedFunc(maps.Keys(u.at), func(a, b string) int { return cmp.Compare(u.at[a], u.at[b]) })
	for _, id := range changed {
		if u.at[id] <= cursor {
			continue
		}
		if answer.More = len(answer.Conversations) == a.s.ListSize; answer.More {
			break
		}
		answer.Conversations, answer.SyncCursor = append(answer.Conversations, a.line(id)), u.at[id]
	}
	if !answer.More {
		answer.SyncCursor = u.v
	}
	if answer.HeadsCursor = fmt.Sprint(answer.Heads); answer.HeadsCursor == r.HeadsCursor {
		answer.Heads = []wire.Head{}
	}
	return answer
}

func (a *act) list(r wire.Conversations) (any, error) {
	list, next := a.page(r.Cursor, r.Hidden)
	return wire.ConversationsPage{Conversations: list, Cursor: next}, nil
}

// page may be empty and not the last, as the real server's.
func (a *act) page(after string, hidden bool) ([]wire.Conversation, string) {
	list, looked, last := []wire.Conversation{}, 0, ""
	for _, id := range slices.Sorted(maps.Keys(a.s.conversations)) {
		if a.s.conversations[id].members[a.userID] == nil || id <= after {
			continue
		}
		if looked == a.s.ListSize {
			return list, last
		}
		looked, last = looked+1, id
		if line := a.line(id); hidden || !line.Hidden() {
			list = append(list, line)
		}
	}
	return list, ""
}

func (a *act) line(id string) wire.Conversation {
	c := a.s.conversations[id]
	m := c.members[a.userID]
	line := wire.Conversation{
		ConversationID: id, Kind: c.head.Kind, Title: c.head.Title, State: c.head.State, Owner: c.head.Owner, Visibility: c.head.Visibility,
		MemberCount: len(c.present()), LastSeq: c.committedMax(a.userID), UpdatedAt: c.head.UpdatedAt,
		ReadSeq: m.read, DeliveredSeq: m.delivered, ClearedSeq: m.cleared, LeftSeq: m.left,
	}
	line.Unread = c.head.Unread(a.userID, max(m.read, m.cleared, m.join-1), line.LastSeq)
	if c.head.Kind == chat.KindSingle {
		line.Peer = a.userID
		for other := range c.members {
			if other != a.userID {
				line.Peer = other
			}
		}
	}
	if last := line.LastSeq; last > line.ClearedSeq && !c.holes[last] {
		m := c.shown(a.userID, last)
		line.LastMessage = &wire.MessagePreview{
			Seq: m.Seq, SenderID: m.SenderID, MessageType: m.MessageType, Text: m.Text, Status: m.Status, ServerTime: m.ServerTime,
		}
	}
	if change := a.s.hooks().OnLine; change != nil {
		change(a.userID, &line)
	}
	return line
}

func (a *act) ack(r wire.Ack) (any, error) {
	c, m, err := a.conversation(r.ConversationID)
	if err != nil {
		return nil, err
	}
	if r.ReadSeq != nil {
		m.read = max(m.read, min(*r.ReadSeq, c.last()))
		m.delivered = max(m.delivered, m.read)
		a.s.raise(a.userID, r.ConversationID)
	}
	if r.DeliveredSeq != nil {
		m.delivered = max(m.delivered, min(*r.DeliveredSeq, c.last()))
	}
	audience := c.present()
	if c.strangers() {
		audience = []string{a.userID}
	}
	a.pushes = append(a.pushes, push{audience, wire.Receipt{
		Type: wire.TypeReceipt, ConversationID: r.ConversationID, UserID: a.userID, DeliveredSeq: m.delivered, ReadSeq: m.read,
	}})
	return wire.Acked{DeliveredSeq: m.delivered, ReadSeq: m.read}, nil
}

func (a *act) clear(r wire.Clear) (any, error) {
	c, m, err := a.conversation(r.ConversationID)
	if err != nil {
		return nil, err
	}
	m.cleared = max(m.cleared, min(*r.ThroughSeq, c.committedMax(a.userID)))
	v := a.s.raise(a.userID, r.ConversationID)
	a.pushes = append(a.pushes, push{[]string{a.userID}, wire.ChangedHint{Type: wire.TypeChanged, SyncCursor: v}})
	return wire.Cleared{ClearedSeq: m.cleared}, nil
}

// Entries gives all that is committed in a conversation.
func (s *Server) Entries(conversationID string) []chat.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.conversations[conversationID].entries)
}
