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

// member is one user's line; former members stay, with LeftSeq set.
type member struct {
	role                chat.Role
	joinedSeq, joinedAt int64 // the entry that made it a member
	chat.Line
}

// atFirst is one who was there from the first entry.
func atFirst(userID string) *member {
	return &member{role: chat.RolePlain, Line: chat.Line{UserID: userID, JoinSeq: 1}}
}

type user struct {
	v, floor int64
	at       map[chat.ConversationID]int64
}

type result struct {
	fingerprint string
	sent        wire.Sent
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
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		panic(err) // what was encoded a moment ago
	}
	out, pushes, err := s.carryOut(&Conn{device: device{senderID, "other"}}, wire.ActionSend, fields)
	if err != nil {
		panic(err) // a test that posts what cannot be posted
	}
	s.send(nil, false, pushes)
	return out.(wire.Sent)
}

// MakeGroup makes a group without an entry of its own; the first is the owner.
func (s *Server) MakeGroup(name string, userIDs ...string) chat.ConversationID {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.open(chat.ConversationID("group:"+name), chat.KindGroup, userIDs[0])
	for _, id := range userIDs {
		c.members[id] = atFirst(id)
	}
	c.members[userIDs[0]].role = chat.RoleOwner
	c.head.MemberCount, c.head.MembersVersion = len(c.members), 1
	return c.head.ConversationID
}

// Join makes a user a member of a group, again if it was one, without an entry: so one
// joins a crowd.
func (s *Server) Join(conversationID chat.ConversationID, userID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.conversations[conversationID]
	if m := c.members[userID]; m != nil {
		m.Line = m.Joined(c.head.Visibility, c.last()+1)
	} else {
		c.members[userID] = atFirst(userID)
	}
	s.raise(userID, conversationID)
	c.head.MemberCount = len(c.present())
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
		}, nil)
		event := c.entries[len(c.entries)-1]
		for i, m := range c.entries {
			c.entries[i], _ = m.After(event)
		}
	}
	s.mu.Unlock()
	s.send(nil, false, a.pushes)
}

// Punch makes holes: the entries with these seqs are gone.
func (s *Server) Punch(conversationID chat.ConversationID, seqs ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seq := range seqs {
		s.conversations[conversationID].holes[seq] = true
	}
}

// GoBack makes the server what it was when the ledger of a conversation ended with
// lastSeq, as a restore of its tables does; the users' sync heads go back to v.
func (s *Server) GoBack(conversationID chat.ConversationID, lastSeq, v int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.conversations[conversationID]
	maps.DeleteFunc(s.results, func(_ string, r result) bool {
		return r.sent.ConversationID == conversationID && r.sent.Seq > lastSeq
	})
	c.entries = c.entries[:lastSeq:lastSeq]
	c.head.Runs, c.head.LastSeq = "", lastSeq
	for _, m := range c.entries {
		c.head.Runs = c.head.Runs.With(m)
	}
	for id, m := range c.members {
		m.DeliveredSeq, m.ReadSeq, m.ClearedSeq = min(m.DeliveredSeq, lastSeq), min(m.ReadSeq, lastSeq), min(m.ClearedSeq, lastSeq)
		u := s.user(id)
		u.v, u.floor = v, min(u.floor, v)
		maps.DeleteFunc(u.at, func(_ chat.ConversationID, at int64) bool { return at > v })
	}
}

// BeginAnew makes the server one that nobody has used yet.
func (s *Server) BeginAnew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conversations, s.users, s.results = map[chat.ConversationID]*conversation{}, map[string]*user{}, map[string]result{}
}

// Conversations lists the ids of a user's conversations.
func (s *Server) Conversations(userID string) []chat.ConversationID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []chat.ConversationID
	for id, c := range s.conversations {
		if c.members[userID] != nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// Ledger returns what a user may read of a conversation.
func (s *Server) Ledger(userID string, conversationID chat.ConversationID) []chat.Message {
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

// Positions returns a user's positions in a conversation.
func (s *Server) Positions(userID string, conversationID chat.ConversationID) (delivered, read, cleared int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.conversations[conversationID].members[userID]
	return m.DeliveredSeq, m.ReadSeq, m.ClearedSeq
}

func (s *Server) open(id chat.ConversationID, kind chat.Kind, owner string) *conversation {
	now := time.Now().UnixMilli()
	c := &conversation{
		head:    chat.Conversation{ConversationID: id, Kind: kind, State: chat.StateActive, Owner: owner, CreatedAt: now, UpdatedAt: now},
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

// roster is the present members, as the rules have them.
func (c *conversation) roster() []chat.Member {
	var roster []chat.Member
	for _, id := range c.present() {
		m := c.members[id]
		roster = append(roster, chat.Member{UserID: id, Role: m.role, JoinedAt: m.joinedAt})
	}
	return roster
}

// view is what a user sees of the conversation.
func (c *conversation) view(userID string) chat.View {
	return chat.ViewOf(c.head, c.members[userID].Line)
}

// time is the user's time of membership with this seq, whether cleared or not.
func (c *conversation) time(userID string, seq int64) chat.Range {
	v := c.view(userID)
	v.ClearedSeq = 0
	w, _ := v.WindowAt(seq)
	return w.During
}

// shown is an entry as the user may see it: as it was at the end of that time.
func (c *conversation) shown(userID string, seq int64) chat.Message {
	m := c.entries[seq-1]
	during := c.time(userID, seq)
	if first, edited := c.first[seq]; edited && m.Status == chat.StatusNormal {
		m = first
		for _, e := range c.entries[:during.To] {
			m, _ = m.After(e)
		}
	}
	return m.In(during)
}

func (s *Server) user(id string) *user {
	if s.users[id] == nil {
		s.users[id] = &user{at: map[chat.ConversationID]int64{}}
	}
	return s.users[id]
}

func (s *Server) raise(userID string, conversationID chat.ConversationID) int64 {
	u := s.user(userID)
	u.v++
	u.at[conversationID] = u.v
	for len(u.at) > maxRecent {
		oldest := slices.MinFunc(slices.Collect(maps.Keys(u.at)), func(a, b chat.ConversationID) int { return cmp.Compare(u.at[a], u.at[b]) })
		u.floor = max(u.floor, u.at[oldest])
		delete(u.at, oldest)
	}
	return u.v
}

// carryOut does what a request asks, whole or not at all.
func (s *Server) carryOut(c *Conn, action string, fields map[string]json.RawMessage) (any, []push, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[action]++
	a := act{s: s, userID: c.userID, deviceID: c.deviceID}
	do, ok := map[string]func(*act, map[string]json.RawMessage) (any, error){
		wire.ActionSend:          as((*act).send),
		wire.ActionRecall:        as((*act).recall),
		wire.ActionEdit:          as((*act).edit),
		wire.ActionSync:          as((*act).sync),
		wire.ActionHistory:       as((*act).history),
		wire.ActionChanges:       as((*act).changes),
		wire.ActionConversations: as((*act).list),
		wire.ActionAck:           as((*act).ack),
		wire.ActionTell:          as((*act).ack),
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
		wire.ActionPing: func(*act, map[string]json.RawMessage) (any, error) {
			return wire.Pong{ServerTime: time.Now().UnixMilli()}, nil
		},
	}[action]
	if !ok {
		return nil, nil, chat.Errorf(chat.CodeUnknownAction, "no action %q", action)
	}
	out, err := do(&a, fields)
	return out, a.pushes, err
}

// act is one request being carried out.
type act struct {
	s                *Server
	userID, deviceID string
	pushes           []push
}

// as reads a request as the real server does.
func as[Request, Result any](do func(*act, Request) (Result, error)) func(*act, map[string]json.RawMessage) (any, error) {
	return func(a *act, fields map[string]json.RawMessage) (any, error) {
		var r Request
		if err := wire.Decode(fields, &r); err != nil {
			return nil, err
		}
		return do(a, r)
	}
}

// once commits what do does, unless it was committed before: then the first result
// counts, or the request is refused if it asks for something else. more is what tells
// requests apart beside the message.
func (a *act) once(m chat.Message, more string, do func() (wire.Sent, error)) (wire.Sent, error) {
	m.SenderID = a.userID
	if err := m.Stamped("yet to come", time.Now()).Validate(); err != nil {
		return wire.Sent{}, err
	}
	fingerprint, err := m.Fingerprint()
	if err != nil {
		return wire.Sent{}, err
	}
	dedupeKey := chat.DedupeKey(a.userID, m.ClientMsgID)
	if first, known := a.s.results[dedupeKey]; known {
		if first.fingerprint != fingerprint+more {
			return wire.Sent{}, &chat.Error{
				Code: chat.CodeIdempotencyConflict, Field: "clientMsgId", Message: "this clientMsgId was used for other content",
				Details: map[string]any{"conversationId": first.sent.ConversationID, "messageId": first.sent.MessageID, "seq": first.sent.Seq},
			}
		}
		first.sent.Duplicate = true
		return first.sent, nil
	}
	sent, err := do()
	if err == nil && !sent.Duplicate {
		a.s.results[dedupeKey] = result{fingerprint + more, sent}
	}
	return sent, err
}

func errNoConversation() error {
	return chat.FieldErrorf(chat.CodeNotFound, "conversationId", "no such conversation")
}

// conversation is one that the user is or was a member of.
func (a *act) conversation(id chat.ConversationID) (*conversation, *member, error) {
	c := a.s.conversations[id]
	if c == nil || c.members[a.userID] == nil {
		return nil, nil, errNoConversation()
	}
	return c, c.members[a.userID], nil
}

// writable is conversation for a present member of one that is active.
func (a *act) writable(id chat.ConversationID) (*conversation, *member, error) {
	c, m, err := a.conversation(id)
	switch {
	case err != nil:
	case m.LeftSeq != 0:
		err = errNoConversation()
	case c.head.State != chat.StateActive:
		err = chat.Errorf(chat.CodeDissolved, "the group is dissolved")
	}
	return c, m, err
}

// append commits an entry, raises sync heads, and pushes. Who was a member until this
// entry hears of it, too.
func (a *act) append(c *conversation, m chat.Message, before []string) wire.Sent {
	a.s.lastID++
	m.ConversationID, m.Seq = c.head.ConversationID, c.last()+1
	m.SenderID, m.SenderDeviceID = a.userID, a.deviceID
	m = m.Stamped(fmt.Sprintf("01M%023d", a.s.lastID), time.Now())
	c.entries = append(c.entries, m)
	c.head = c.head.With(m)
	var moved []string
	if m.Is(chat.EventMembers) {
		moved = slices.Concat(m.Event.Added, m.Event.Removed)
		c.head.MembersVersion++
		c.move(m, moved)
	}
	if m.Seq == 1 { // who was there before is as one who joined by it
		for _, first := range c.members {
			first.joinedSeq, first.joinedAt = m.Seq, m.ServerTime
		}
	}
	present := c.present()
	audience := slices.Concat(present, before)
	slices.Sort(audience)
	for _, id := range slices.Compact(audience) {
		if len(present) <= a.s.LargeAbove || slices.Contains(moved, id) {
			a.s.raise(id, c.head.ConversationID)
		}
		a.tell(c, m, id, len(present) > a.s.NotifyAbove)
	}
	return m.Sent()
}

// tell pushes an entry to a user, or only that there is one.
func (a *act) tell(c *conversation, m chat.Message, userID string, large bool) {
	switch {
	case large:
		a.pushes = append(a.pushes, push{[]string{userID}, wire.Notify{
			Type: wire.TypeNotify, Updates: []wire.Head{{ConversationID: m.ConversationID, CommittedMaxSeq: m.Seq}},
		}})
	case c.time(userID, m.Seq).Has(m.Seq):
		a.pushes = append(a.pushes, push{[]string{userID}, wire.Push{Type: wire.TypePush, Updates: []wire.Update{{
			ConversationID: m.ConversationID, Messages: []chat.Message{c.shown(userID, m.Seq)}, CommittedMaxSeq: m.Seq,
		}}}})
	}
}

// move notes who joined and who left by an entry that is committed.
func (c *conversation) move(m chat.Message, moved []string) {
	for _, id := range moved {
		line := c.members[id]
		switch {
		case slices.Contains(m.Event.Added, id):
			line.joinedSeq, line.joinedAt = m.Seq, m.ServerTime
		case line.LeftSeq != 0:
			head := c.head
			line.LeftHead = &head
			if m.SenderID == id {
				line.LeftAt = m.ServerTime
			}
		}
	}
}

func (a *act) send(r wire.Send) (wire.Sent, error) {
	id := r.ConversationID
	if r.To != "" {
		if err := chat.ValidateUserID("to", r.To); err != nil {
			return wire.Sent{}, err
		}
		id = chat.SingleID(a.userID, r.To)
	}
	m := chat.Message{
		ConversationID: id, ClientMsgID: r.ClientMsgID, MessageType: r.MessageType,
		Text: r.Text, Data: r.Data, ReplyTo: r.ReplyTo, ClientTime: r.ClientTime,
	}
	return a.once(m, "", func() (wire.Sent, error) {
		if r.To != "" && a.s.conversations[id] == nil {
			c := a.s.open(id, chat.KindSingle, "")
			c.members[a.userID], c.members[r.To] = atFirst(a.userID), atFirst(r.To)
			c.members[a.userID].Peer, c.members[r.To].Peer = r.To, a.userID
			c.members[a.userID].ReadSeq, c.members[a.userID].DeliveredSeq = 1, 1
			c.head.MemberCount, c.head.MembersVersion = len(c.members), 1
		}
		c, _, err := a.writable(id)
		if err != nil {
			return wire.Sent{}, err
		}
		if r.ReplyTo != nil {
			if _, err := a.target(c, r.ReplyTo.Seq, r.ReplyTo.MessageID, "replyTo"); err != nil {
				return wire.Sent{}, err
			}
		}
		return a.append(c, m, nil), nil
	})
}

// target is the message with this seq and id, if the user may read it.
func (a *act) target(c *conversation, seq int64, messageID, field string) (*chat.Message, error) {
	_, visible := c.view(a.userID).WindowAt(seq)
	if !visible || c.holes[seq] || c.entries[seq-1].MessageID != messageID {
		return nil, chat.FieldErrorf(chat.CodeNotFound, field, "no such message")
	}
	return &c.entries[seq-1], nil
}

func (a *act) recall(r wire.Recall) (wire.Sent, error) {
	e := &chat.Event{Kind: chat.EventRecall, TargetSeq: r.Seq, TargetMessageID: r.MessageID}
	m := chat.Message{ConversationID: r.ConversationID, ClientMsgID: r.ClientMsgID, MessageType: chat.TypeEvent, Event: e}
	return a.once(m, "", func() (wire.Sent, error) {
		c, self, err := a.writable(r.ConversationID)
		if err != nil {
			return wire.Sent{}, err
		}
		target, err := a.target(c, r.Seq, r.MessageID, "messageId")
		if err != nil {
			return wire.Sent{}, err
		}
		for _, entry := range c.entries {
			if entry.Is(chat.EventRecall) && entry.Event.TargetSeq == r.Seq {
				first := entry.Sent()
				first.Duplicate = true
				return first, nil
			}
		}
		if !mayRecall(c, self, *target) {
			return wire.Sent{}, chat.Errorf(chat.CodeForbidden, "not yours")
		}
		e.Version = target.Version + 1
		*target, _ = target.After(m)
		for i, entry := range c.entries {
			if entry.Is(chat.EventEdit) && entry.Event.TargetSeq == r.Seq {
				c.entries[i], _ = entry.Recalled()
			}
		}
		return a.append(c, m, nil), nil
	})
}

func mayRecall(c *conversation, self *member, target chat.Message) bool {
	if !target.MessageType.Sendable() {
		return false
	}
	role := chat.RolePlain
	if sender := c.members[target.SenderID]; sender != nil && sender.LeftSeq == 0 {
		role = sender.role
	}
	return target.SenderID == self.UserID || c.head.Kind == chat.KindGroup && self.role.May(chat.ActRecall, role)
}

func (a *act) edit(r wire.Edit) (wire.Edited, error) {
	e := &chat.Event{Kind: chat.EventEdit, TargetSeq: r.Seq, TargetMessageID: r.MessageID, Version: r.Version + 1}
	m := chat.Message{ConversationID: r.ConversationID, ClientMsgID: r.ClientMsgID, MessageType: chat.TypeEvent, Event: e, Text: r.Text, Data: r.Data}
	sent, err := a.once(m, "", func() (wire.Sent, error) {
		c, _, err := a.writable(r.ConversationID)
		if err != nil {
			return wire.Sent{}, err
		}
		target, err := a.target(c, r.Seq, r.MessageID, "messageId")
		if err != nil {
			return wire.Sent{}, err
		}
		if err := a.mayEdit(c, *target, r); err != nil {
			return wire.Sent{}, err
		}
		if target.Version == 1 {
			c.first[r.Seq] = *target
		}
		*target, _ = target.After(m)
		return a.append(c, m, nil), nil
	})
	if err != nil {
		return wire.Edited{}, err
	}
	return wire.Edited{Sent: sent, Version: e.Version}, nil
}

func (a *act) mayEdit(c *conversation, target chat.Message, r wire.Edit) error {
	switch w, _ := c.view(a.userID).WindowAt(r.Seq); {
	case !target.MessageType.Sendable(), target.SenderID != a.userID:
		return chat.Errorf(chat.CodeForbidden, "not yours")
	case w.During.To < c.last():
		return chat.Errorf(chat.CodeForbidden, "you were away since")
	case target.Version != r.Version || target.Status != chat.StatusNormal:
		return &chat.Error{
			Code: chat.CodeVersionConflict, Field: "version", Message: "changed meanwhile",
			Details: map[string]any{"version": target.Version, "status": target.Status},
		}
	}
	target.Text, target.Data = r.Text, r.Data
	return target.Validate()
}

// A page of messages takes at most so many bytes, so that its frame is within bounds.
const pageBytes = wire.MaxFrameBytes - 1024

// room reports whether a page that is of a size takes another message, and that size.
func room(size int, m chat.Message) (fits bool, after int) {
	n, err := m.Size()
	if err != nil {
		panic(err) // the test's own types
	}
	return size == 0 || size+n <= pageBytes, size + n
}

func (a *act) sync(r wire.Sync) (wire.Synced, error) {
	c, _, err := a.conversation(r.ConversationID)
	if err != nil {
		return wire.Synced{}, err
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
	var fits bool
	size := 0
	for seq := w.From; ok && seq <= page.NextSeq; seq++ {
		if c.holes[seq] {
			page.Skipped = append(page.Skipped, seq)
			continue
		}
		m := c.shown(a.userID, seq)
		if fits, size = room(size, m); !fits {
			page.NextSeq = seq - 1
			break
		}
		page.Messages = append(page.Messages, m)
	}
	page.HasMore = page.NextSeq < top
	if h := a.s.hooks().OnSync; h != nil {
		h(&page)
	}
	return page, nil
}

func (a *act) history(r wire.History) (wire.HistoryPage, error) {
	c, _, err := a.conversation(r.ConversationID)
	if err != nil {
		return wire.HistoryPage{}, err
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
	w, ok := v.WindowBefore(before)
	var fits bool
	size := 0
	for seq := w.To; ok && seq >= w.From && len(page.Messages) < limit; seq-- {
		if !c.holes[seq] {
			m := c.shown(a.userID, seq)
			if fits, size = room(size, m); !fits {
				break
			}
			page.Messages = append(page.Messages, m)
		}
		page.NextBeforeSeq = seq
	}
	_, page.HasMore = v.WindowBefore(page.NextBeforeSeq)
	slices.Reverse(page.Messages)
	if h := a.s.hooks().OnHistory; h != nil {
		h(&page)
	}
	return page, nil
}

func (a *act) changes(r wire.Changes) (wire.Changed, error) {
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
		answer.Conversations, answer.Cursor = a.page("", a.s.ListSize, r.Hidden)
		return answer
	}
	changed := slices.SortedFunc(maps.Keys(u.at), func(a, b chat.ConversationID) int { return cmp.Compare(u.at[a], u.at[b]) })
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

func (a *act) list(r wire.Conversations) (wire.ConversationsPage, error) {
	if _, ok := chat.ConversationID(r.Cursor).Kind(); r.Cursor != "" && !ok {
		return wire.ConversationsPage{}, chat.FieldErrorf(chat.CodeBadRequest, "cursor", "no cursor of an earlier answer")
	}
	size := a.s.ListSize
	if r.Limit != nil {
		size = min(size, *r.Limit)
	}
	list, next := a.page(r.Cursor, size, r.Hidden)
	return wire.ConversationsPage{Conversations: list, Cursor: next}, nil
}

// page may be empty and not the last, as the real server's.
func (a *act) page(after string, size int, hidden bool) ([]wire.Conversation, string) {
	list, looked, last := []wire.Conversation{}, 0, ""
	for _, id := range slices.Sorted(maps.Keys(a.s.conversations)) {
		if a.s.conversations[id].members[a.userID] == nil || id <= chat.ConversationID(after) {
			continue
		}
		if looked == size {
			return list, last
		}
		looked, last = looked+1, string(id)
		if line := a.line(id); hidden || !line.Hidden() {
			list = append(list, line)
		}
	}
	return list, ""
}

func (a *act) line(id chat.ConversationID) wire.Conversation {
	c := a.s.conversations[id]
	v := c.view(a.userID)
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

func (a *act) ack(r wire.Ack) (wire.Acked, error) {
	c, m, err := a.conversation(r.ConversationID)
	if err != nil {
		return wire.Acked{}, err
	}
	before, top := m.Line, c.view(a.userID).LastSeq()
	if r.ReadSeq != nil {
		m.ReadSeq = max(m.ReadSeq, min(*r.ReadSeq, top))
		if *r.ReadSeq >= m.ReadSeq {
			a.s.raise(a.userID, r.ConversationID)
		}
	}
	if r.DeliveredSeq != nil {
		m.DeliveredSeq = max(m.DeliveredSeq, min(*r.DeliveredSeq, top))
	}
	m.DeliveredSeq = max(m.DeliveredSeq, m.ReadSeq)
	if m.DeliveredSeq > before.DeliveredSeq || m.ReadSeq > before.ReadSeq {
		a.pushes = append(a.pushes, push{a.hearing(c, m, before), wire.Receipt{
			Type: wire.TypeReceipt, ConversationID: r.ConversationID, UserID: a.userID, DeliveredSeq: m.DeliveredSeq, ReadSeq: m.ReadSeq,
		}})
	}
	return wire.Acked{DeliveredSeq: m.DeliveredSeq, ReadSeq: m.ReadSeq}, nil
}

// hearing is who hears of a receipt: the user, the other one of a single conversation
// once that is answered, and in a small group those who wrote what was acked.
func (a *act) hearing(c *conversation, m *member, before chat.Line) []string {
	users := []string{a.userID}
	if m.LeftSeq != 0 || c.strangers() || len(c.present()) > a.s.LargeAbove {
		return users
	}
	for _, id := range c.present() {
		concerns := c.head.Kind == chat.KindSingle ||
			m.DeliveredSeq > before.DeliveredSeq && c.head.Runs.Concern(id, before.DeliveredSeq, m.DeliveredSeq) ||
			m.ReadSeq > before.ReadSeq && c.head.Runs.Concern(id, before.ReadSeq, m.ReadSeq)
		if id != a.userID && concerns {
			users = append(users, id)
		}
	}
	return users
}

func (a *act) clear(r wire.Clear) (wire.Cleared, error) {
	c, m, err := a.conversation(r.ConversationID)
	if err != nil {
		return wire.Cleared{}, err
	}
	m.ClearedSeq = max(m.ClearedSeq, min(*r.ThroughSeq, c.view(a.userID).LastSeq()))
	if *r.ThroughSeq >= m.ClearedSeq {
		v := a.s.raise(a.userID, r.ConversationID)
		a.pushes = append(a.pushes, push{[]string{a.userID}, wire.ChangedHint{Type: wire.TypeChanged, SyncCursor: v}})
	}
	return wire.Cleared{ClearedSeq: m.ClearedSeq}, nil
}

// Entries returns all that is committed in a conversation.
func (s *Server) Entries(conversationID chat.ConversationID) []chat.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.conversations[conversationID].entries)
}
