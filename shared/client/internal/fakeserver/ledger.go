package fakeserver

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

// member is one user's line; former members stay, with LeftSeq set.
type member struct {
	role chat.Role
	chat.Line
}

// atFirst is one who was there from the first entry.
func atFirst(userID string) *member {
	return &member{role: chat.RolePlain, Line: chat.Line{UserID: userID, JoinSeq: 1}}
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
		c.members[id] = atFirst(id)
	}
	c.members[userIDs[0]].role = chat.RoleOwner
	return c.head.ConversationID
}

// Join makes a user a member of a group, without an entry.
func (s *Server) Join(conversationID, userID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conversations[conversationID].members[userID] = atFirst(userID)
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
			c.entries[i], _ = m.After(event)
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
		m.DeliveredSeq, m.ReadSeq, m.ClearedSeq = min(m.DeliveredSeq, lastSeq), min(m.ReadSeq, lastSeq), min(m.ClearedSeq, lastSeq)
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
	for _, r := range c.view(userID).Windows() {
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
	return m.DeliveredSeq, m.ReadSeq, m.ClearedSeq
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
		if m.LeftSeq == 0 {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// strangers reports whether the members hear of no receipts of each other.
func (c *conversation) strangers() bool { return c.head.Kind == chat.KindSingle && !c.head.Answered() }

// view is what a user sees of the conversation as it is, which a former member does too.
func (c *conversation) view(userID string) chat.View {
	head := c.head
	head.LastSeq = c.last()
	return chat.View{Head: head, Line: c.members[userID].Line}
}

// shown is an entry as the user may see it: as it was at the end of that time.
func (c *conversation) shown(userID string, seq int64) chat.Message {
	m := c.entries[seq-1]
	v := c.view(userID)
	v.ClearedSeq = 0
	w, _ := v.WindowAt(seq)
	if first, edited := c.first[seq]; edited && m.Status == chat.StatusNormal {
		m = first
		for _, e := range c.entries[:w.During.To] {
			m, _ = m.After(e)
		}
	}
	return m.In(w.During)
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
	case m.LeftSeq != 0:
		err = chat.Errorf(chat.CodeNotFound, "no such conversation")
	case c.head.State != chat.StateActive:
		err = chat.Errorf(chat.CodeDissolved, "the group is dissolved")
	}
	return c, err
}

// append commits an entry, raises sync heads, and pushes.
func (a *act) append(c *conversation, m chat.Message) wire.Sent {
	a.s.lastID++
	m.ConversationID, m.Seq = c.head.ConversationID, c.last()+1
	m.SenderID, m.SenderDeviceID = a.userID, a.deviceID
	m = m.Stamped(fmt.Sprintf("01M%023d", a.s.lastID), time.Now())
	c.entries = append(c.entries, m)
	c.head = c.head.With(m)
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
	return m.Sent()
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
			c.members[a.userID] = atFirst(a.userID)
			c.members[r.To] = atFirst(r.To)
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
				if entry.Is(chat.EventRecall) && entry.Event.TargetSeq == r.Seq {
					return entry.Sent(), nil
				}
			}
		}
		e.Version = target.Version + 1
		*target, _ = target.After(m)
		for i, entry := range c.entries {
			if entry.Is(chat.EventEdit) && entry.Event.TargetSeq == r.Seq {
				c.entries[i], _ = entry.Recalled()
			}
		}
		return a.append(c, m), nil
	})
}

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
		if w, _ := c.view(a.userID).WindowAt(r.Seq); w.During.To < c.last() {
			return nil, chat.Errorf(chat.CodeForbidden, "you were away since")
		}
		if target.Version == 1 {
			c.first[r.Seq] = *target
		}
		*target, _ = target.After(m)
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
	v := c.view(a.userID)
	top := v.LastSeq()
	page := wire.Synced{Messages: []chat.Message{}, NextSeq: max(after, top), CommittedMaxSeq: top}
	w, ok := v.WindowAfter(after)
	switch {
	case !ok && page.NextSeq > after:
		page.FirstSeq = page.NextSeq + 1
	case ok && w.From > after+1:
		page.FirstSeq = w.From
	}
	if ok {
		page.NextSeq = min(w.To, w.From+int64(limit)-1)
	}
	for seq := w.From; ok && seq <= page.NextSeq; seq++ {
		if c.holes[seq] {
			page.Skipped = append(page.Skipped, seq)
		} else {
			page.Messages = append(page.Messages, c.shown(a.userID, seq))
		}
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
	v := c.view(a.userID)
	before, limit := v.LastSeq()+1, wire.DefaultHistoryLimit
	if r.BeforeSeq != nil {
		before = *r.BeforeSeq
	}
	if r.Limit != nil {
		limit = *r.Limit
	}
	page := wire.HistoryPage{Messages: []chat.Message{}, NextBeforeSeq: before, CommittedMaxSeq: v.LastSeq()}
	for _, stretch := range slices.Backward(v.Windows()) {
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
		if m := c.members[a.userID]; m != nil && m.LeftSeq == 0 && len(c.present()) > a.s.LargeAbove {
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
	v := c.view(a.userID)
	v.Head.MemberCount = len(c.present())
	if c.head.Kind == chat.KindSingle {
		v.Peer = a.userID
		for other := range c.members {
			if other != a.userID {
				v.Peer = other
			}
		}
	}
	var last *chat.Message
	if seq := v.LastSeq(); seq > v.ClearedSeq && !c.holes[seq] {
		m := c.shown(a.userID, seq)
		last = &m
	}
	line := wire.Listed(v, last)
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
		m.ReadSeq = max(m.ReadSeq, min(*r.ReadSeq, c.last()))
		m.DeliveredSeq = max(m.DeliveredSeq, m.ReadSeq)
		a.s.raise(a.userID, r.ConversationID)
	}
	if r.DeliveredSeq != nil {
		m.DeliveredSeq = max(m.DeliveredSeq, min(*r.DeliveredSeq, c.last()))
	}
	audience := c.present()
	if c.strangers() {
		audience = []string{a.userID}
	}
	a.pushes = append(a.pushes, push{audience, wire.Receipt{
		Type: wire.TypeReceipt, ConversationID: r.ConversationID, UserID: a.userID, DeliveredSeq: m.DeliveredSeq, ReadSeq: m.ReadSeq,
	}})
	return wire.Acked{DeliveredSeq: m.DeliveredSeq, ReadSeq: m.ReadSeq}, nil
}

func (a *act) clear(r wire.Clear) (any, error) {
	c, m, err := a.conversation(r.ConversationID)
	if err != nil {
		return nil, err
	}
	m.ClearedSeq = max(m.ClearedSeq, min(*r.ThroughSeq, c.view(a.userID).LastSeq()))
	v := a.s.raise(a.userID, r.ConversationID)
	a.pushes = append(a.pushes, push{[]string{a.userID}, wire.ChangedHint{Type: wire.TypeChanged, SyncCursor: v}})
	return wire.Cleared{ClearedSeq: m.ClearedSeq}, nil
}

// Entries gives all that is committed in a conversation.
func (s *Server) Entries(conversationID string) []chat.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.conversations[conversationID].entries)
}
