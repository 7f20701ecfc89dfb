package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// Draft is a message to send.
type Draft struct {
	// ConversationID or To says where: To is a user, for the single conversation
	// with that user, which need not exist yet.
	ConversationID chat.ConversationID
	To             string

	Type    chat.MessageType // text if empty
	Text    string           // up to chat.MaxTextRunes
	Data    json.RawMessage  // a JSON object, or nothing
	ReplyTo *chat.ReplyTo

	// ClientMsgID is the idempotency key, 1 to 64 printable ASCII characters;
	// one is made if it is empty. A program that sends the same draft with the
	// same id again, even after a restart, gets the first one's answer.
	ClientMsgID string
}

// Draft returns the message that an entry is to send; ok is false for any other write.
func (e OutboxEntry) Draft() (d Draft, ok bool) {
	var s wire.Send
	if e.Action != wire.ActionSend || json.Unmarshal(e.Request, &s) != nil {
		return Draft{}, false
	}
	return Draft{
		ConversationID: s.ConversationID, To: s.To, Type: s.MessageType, Text: s.Text, Data: s.Data, ReplyTo: s.ReplyTo,
		ClientMsgID: s.ClientMsgID,
	}, true
}

// entry is a write in the outbox.
type entry struct {
	OutboxEntry
	request  any // as its type
	attempts int
	obstacle error  // of the last attempt
	waiters  int    // calls that wait for the answer
	abort    func() // ends the attempt under way

	done   chan struct{} // closed when answer or err is there
	answer answer
	err    error
}

// lane is the unanswered writes of a conversation, in order.
type lane struct {
	entries []*entry
	sending bool // a goroutine of the session sends them
}

// Send returns when the message is committed (SENT). What the user writes in one
// conversation is committed in the order of the calls. Offline it waits, and after a lost
// connection it sends the same again.
//
// What the server refuses, and what it would refuse, is a *chat.Error; the
// message is not in the outbox then. ErrOutboxFull says that too much waits.
//
// If ctx or the client ends first, the error is a *PendingError: the message
// stays in the outbox, for it may be committed already and only its answer be
// missing. It is sent when possible, by the next run of the program too if the
// store lasts. Changes then tells of its end by Settled; Discard takes it out.
func (c *Client) Send(ctx context.Context, d Draft) (wire.Sent, error) {
	send, err := d.request(c.cfg)
	if err != nil {
		return wire.Sent{}, err
	}
	a, err := c.perform(ctx, wire.ActionSend, laneOf(send, c.cfg.UserID), send.ClientMsgID, send)
	return a.Sent, err
}

// request checks a draft as the server will and gives the request for it.
func (d Draft) request(cfg Config) (wire.Send, error) {
	switch {
	case d.ConversationID == "" && d.To == "":
		return wire.Send{}, chat.FieldErrorf(chat.CodeBadRequest, "conversationId", "name a conversation, or in To a user")
	case d.ConversationID != "" && d.To != "":
		return wire.Send{}, chat.FieldErrorf(chat.CodeBadRequest, "to", "name a conversation or, in To, a user, not both")
	case d.To != "":
		if err := chat.ValidateUserID("to", d.To); err != nil {
			return wire.Send{}, err
		}
	}
	send := wire.Send{
		ConversationID: d.ConversationID, To: d.To,
		ClientMsgID: key(d.ClientMsgID),
		MessageType: cmp.Or(d.Type, chat.TypeText),
		Text:        d.Text, Data: noNull(d.Data), ReplyTo: d.ReplyTo,
		ClientTime: time.Now().UnixMilli(),
	}
	if !send.MessageType.Sendable() {
		return wire.Send{}, chat.FieldErrorf(chat.CodeBadRequest, "messageType", "%q cannot be sent; use text, image, voice, file or custom", send.MessageType)
	}
	return send, messageOf(send, cfg.UserID, cfg.DeviceID).Validate()
}

// messageOf is the message that a request asks for, with an id as long as the
// server's.
func messageOf(s wire.Send, userID, deviceID string) chat.Message {
	return chat.Message{
		ConversationID: laneOf(s, userID), MessageID: "00000000000000000000000000",
		ClientMsgID: s.ClientMsgID, SenderID: userID, SenderDeviceID: deviceID,
		MessageType: s.MessageType, Text: s.Text, Data: s.Data, ReplyTo: s.ReplyTo,
		Version: 1, Status: chat.StatusNormal, ServerTime: s.ClientTime, ClientTime: s.ClientTime,
	}
}

// laneOf is the conversation that a request is for. The id of a single
// conversation is known before it exists.
func laneOf(s wire.Send, userID string) chat.ConversationID {
	if s.To != "" {
		return chat.SingleID(userID, s.To)
	}
	return s.ConversationID
}

// perform puts a write, which passed the checks, into the outbox and waits for its answer.
func (c *Client) perform(ctx context.Context, action string, conversationID chat.ConversationID, clientMsgID string, request any) (answer, error) {
	encoded, err := encodeWrite(action, request)
	if err != nil {
		return answer{}, err
	}
	if ctx.Err() != nil {
		return answer{}, context.Cause(ctx)
	}
	e, err := c.accept(OutboxEntry{ClientMsgID: clientMsgID, ConversationID: conversationID, Action: action, Request: encoded}, request) //nolint:contextcheck // what it starts outlives ctx
	if err != nil {
		return answer{}, err
	}
	select {
	case <-e.done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-c.ctx.Done():
		err = c.why()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e.waiters--
	select {
	case <-e.done:
		return e.answer, e.err
	default:
		return answer{}, &PendingError{ClientMsgID: clientMsgID, Err: err, Obstacle: cmp.Or(c.lastErr, e.obstacle)}
	}
}

// accept puts a write into the outbox, stored, or finds it there.
func (c *Client) accept(w OutboxEntry, request any) (*entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ctx.Err() != nil:
		return nil, c.why()
	case c.closing:
		return nil, ErrClosed
	}
	if e := c.outbox[w.ClientMsgID]; e != nil {
		same, err := c.sameWrite(e, w, request)
		if err != nil {
			return nil, err
		}
		if !same {
			return nil, chat.FieldErrorf(chat.CodeIdempotencyConflict, "clientMsgId", "this clientMsgId is in the outbox with other content")
		}
		e.waiters++
		return e, nil
	}
	if len(c.outbox) >= c.cfg.MaxOutbox { // those refused have a bound of their own
		return nil, fmt.Errorf("%w: %d writes wait to be sent", ErrOutboxFull, len(c.outbox))
	}
	w.Order = c.lastOrder + 1
	if err := c.commit(Batch{OutboxPut: []OutboxEntry{w}}); err != nil {
		return nil, err
	}
	delete(c.refused, w.ClientMsgID) // it is tried anew
	e := &entry{OutboxEntry: w, request: request, waiters: 1}
	c.enqueue(e)
	c.pump(e.lane())
	return e, nil
}

// lane names what an entry has to keep its place in: its conversation, or the making of
// a group, which has none yet.
func (e *entry) lane() string {
	if e.ConversationID == "" {
		return "new:" + e.ClientMsgID
	}
	return string(e.ConversationID)
}

// enqueue adds a stored entry to its lane.
func (c *Client) enqueue(e *entry) {
	e.done = make(chan struct{})
	c.lastOrder = max(c.lastOrder, e.Order)
	c.outbox[e.ClientMsgID] = e
	l := c.lanes[e.lane()]
	if l == nil {
		l = &lane{}
		c.lanes[e.lane()] = l
	}
	l.entries = append(l.entries, e)
	if send, ok := e.request.(wire.Send); ok && send.To != "" {
		if cv := c.conversation(e.ConversationID); cv.known.Peer == "" {
			cv.known.Peer = send.To
		}
	}
}

// pump sees to it that the writes of a lane are being sent, if they may be. The caller
// holds the mutex.
func (c *Client) pump(name string) {
	l, s := c.lanes[name], c.session
	if l == nil || l.sending || s == nil || !s.ready {
		return
	}
	l.sending = s.start(func() { c.sendLane(s, l) })
}

// sendLane sends the writes of a lane one after the other: frames of one client may be
// handled at the same time, in any order.
func (c *Client) sendLane(s *session, l *lane) {
	for failures := 0; ; {
		more, err := c.sendInTurn(s, l, failures)
		switch {
		case err == nil && !more:
			return
		case s.ctx.Err() != nil:
			c.mu.Lock()
			l.sending = false
			c.mu.Unlock()
			return
		case err == nil:
			failures = 0
		default:
			failures++
		}
	}
}

// sendInTurn is sendNext, with the pause after it, in one of a few places for all lanes:
// what is sent to hundreds of people would be too fast, again and again, and the user
// thrown out for it. Who is told so waits in its place, for the others would be told the
// same. Who waits for anything else, an answer that does not come too, holds up no other.
func (c *Client) sendInTurn(s *session, l *lane, failures int) (more bool, err error) {
	select {
	case s.sends <- struct{}{}:
	case <-s.ctx.Done():
		return false, again(context.Cause(s.ctx))
	}
	leave := sync.OnceFunc(func() { <-s.sends })
	defer leave()
	slow := time.AfterFunc(slowAfter, leave)
	more, err = c.sendNext(s, l)
	slow.Stop()
	if err != nil {
		if !isTooFast(err) {
			leave()
		}
		sleep(s.ctx, c.cfg.pauseAfter(err, failures), nil)
	}
	return more, err
}

// sendNext sends the next write of a lane, and reports whether there was one. An error
// means that there has to be another attempt.
func (c *Client) sendNext(s *session, l *lane) (sent bool, err error) {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	e, request := c.nextOf(s, l, cancel)
	if e == nil {
		return false, nil
	}
	var result json.RawMessage
	var a answer
	if err = s.request(ctx, e.Action, request, &result); err == nil {
		a, err = e.read(result)
	}
	if err = c.answered(e, a, err); err != nil {
		c.noteError(err)
		c.cfg.Log.Info("not sent yet", "action", e.Action, "clientMsgId", e.ClientMsgID, "err", err)
	}
	return true, err
}

// nextOf returns the write to send now, with its request, or nil when the lane's
// goroutine is to end.
func (c *Client) nextOf(s *session, l *lane, abort func()) (*entry, json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(l.entries) == 0 || s.ctx.Err() != nil {
		l.sending = false
		return nil, nil
	}
	e := l.entries[0]
	e.abort = abort
	if e.attempts > 0 {
		c.stats.Resent++
	}
	e.attempts++
	return e, e.Request
}

// answered takes in how an attempt ended. An error means that there has to be
// another.
func (c *Client) answered(e *entry, a answer, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.outbox[e.ClientMsgID] != e {
		return nil // its message arrived, or it was discarded
	}
	if err != nil && !isRefusal(err) {
		e.obstacle = err
		return err
	}
	if send, ok := e.request.(wire.Send); ok && err == nil && !a.Duplicate {
		return c.takeOwn(send, a.Sent)
	}
	if err == nil {
		if failed := c.learnFrom(e, a); failed != nil {
			return again(failed)
		}
	}
	batch := Batch{OutboxDelete: []string{e.ClientMsgID}}
	if err != nil && e.waiters == 0 {
		return c.keepRefused(e, err)
	}
	var cv *conversation
	var next conversation
	if err == nil && a.Seq > 0 {
		cv = c.conversation(a.ConversationID)
		next = *cv
		next.ledger.wrote(a.Seq)
		batch.Conversations = []Conversation{next.record()}
	}
	if failed := c.commit(batch); failed != nil {
		return again(failed)
	}
	c.settle(e, a, err)
	if cv == nil {
		return nil
	}
	cv.ledger = next.ledger
	if err := c.compare(cv, a.Sent); err != nil {
		return again(err)
	}
	c.mind(c.session, cv, ownWaitFactor*c.cfg.GapWait, 0)
	return nil
}

// keepRefused sets a write aside of whose refusal no call hears. The caller holds the
// mutex.
func (c *Client) keepRefused(e *entry, err error) error {
	refused := e.OutboxEntry
	refused.Refused = wireError(err)
	batch := Batch{OutboxPut: []OutboxEntry{refused}}
	if kept := c.refusals(); len(kept) >= maxRefused {
		batch.OutboxDelete = []string{kept[0].ClientMsgID}
	}
	if failed := c.commit(batch); failed != nil {
		return again(failed)
	}
	for _, id := range batch.OutboxDelete {
		delete(c.refused, id)
	}
	c.refused[e.ClientMsgID] = refused
	c.settle(e, answer{}, err)
	return nil
}

// takeOwn takes in a message by the first answer to it, which tells all of it: it is
// not pushed to this connection. The caller holds the mutex.
func (c *Client) takeOwn(send wire.Send, sent wire.Sent) error {
	m := messageOf(send, c.cfg.UserID, c.cfg.DeviceID)
	cv := c.conversation(sent.ConversationID)
	m.Seq, m.MessageID, m.ServerTime = sent.Seq, sent.MessageID, sent.ServerTime
	if compact := new(bytes.Buffer); json.Compact(compact, m.Data) == nil { // as it travels
		m.Data = compact.Bytes()
	}
	other, err := c.contradicts(cv, []chat.Message{m})
	if err != nil {
		return again(err)
	}
	step := step{next: cv.ledger}
	if cv.doubted = cv.doubted || other; cv.doubted {
		step.next.see(m.Seq) // sync brings it
	} else {
		step = cv.ledger.push([]chat.Message{m}, m.Seq, c.cfg.MaxBuffered-c.buffered)
	}
	step.next.wrote(m.Seq)
	c.stats.Overflowed += int64(step.overflow)
	if err := c.take(cv, step, []chat.Message{m}); err != nil {
		return again(err)
	}
	c.mind(c.session, cv, ownWaitFactor*c.cfg.GapWait, 0)
	return nil
}

// settle ends a write's time in the outbox; it is out of the store already. The
// caller holds the mutex.
func (c *Client) settle(e *entry, a answer, err error) {
	if c.outbox[e.ClientMsgID] != e {
		return
	}
	delete(c.outbox, e.ClientMsgID)
	l := c.lanes[e.lane()]
	l.entries = slices.DeleteFunc(l.entries, func(other *entry) bool { return other == e })
	if len(l.entries) == 0 {
		delete(c.lanes, e.lane())
	}
	e.answer, e.err = a, err
	close(e.done)
	if e.abort != nil {
		e.abort()
	}
	if e.waiters > 0 {
		return
	}
	if err != nil {
		c.cfg.Log.Warn("not sent", "action", e.Action, "clientMsgId", e.ClientMsgID, "conversationId", e.ConversationID, "err", err)
	}
	c.publish(Settled{
		ClientMsgID: e.ClientMsgID, ConversationID: cmp.Or(e.ConversationID, a.ConversationID), Action: e.Action, Sent: a.Sent, Err: err,
	})
}

// arrival is a write in the outbox with the answer that the arrival of its message is.
type arrival struct {
	entry  *entry
	answer answer
}

// answersAmong finds own messages that arrived before the answers to them: they
// are committed and need not be sent again. The caller holds the mutex.
func (c *Client) answersAmong(cv *conversation, arrived []chat.Message) []arrival {
	if c.lanes[string(cv.id)] == nil {
		return nil
	}
	var answers []arrival
	for _, m := range arrived {
		e := c.outbox[m.ClientMsgID]
		if e == nil || m.SenderID != c.cfg.UserID || m.ConversationID != e.ConversationID || !c.isAskedFor(m, e) {
			continue // where it is another's the server will say what is wrong
		}
		a := answer{Edited: wire.Edited{Sent: m.Sent()}}
		if m.Event != nil {
			a.Version = m.Event.Version
		}
		answers = append(answers, arrival{e, a})
	}
	return answers
}

// Outbox lists the writes that the server has not answered, in the order in which they
// were accepted.
func (c *Client) Outbox() []OutboxEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries := make([]OutboxEntry, 0, len(c.outbox))
	for _, e := range c.outbox {
		entries = append(entries, e.OutboxEntry)
	}
	return ordered(entries)
}

// Refused lists the writes that the server refused when no call waited for them any more,
// such as after a restart, in the order in which they were accepted: the last 100, each
// until Retry, Discard or a call with its ClientMsgID.
func (c *Client) Refused() []OutboxEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refusals()
}

func (c *Client) refusals() []OutboxEntry {
	return ordered(slices.Collect(maps.Values(c.refused)))
}

func ordered(entries []OutboxEntry) []OutboxEntry {
	slices.SortFunc(entries, func(a, b OutboxEntry) int { return cmp.Compare(a.Order, b.Order) })
	return entries
}

// Retry asks again for what was Refused, after all else in its conversation, and ends as
// Send does. It keeps its ClientMsgID: what was refused for that has to be written anew. It
// errs with CodeNotFound (*chat.Error) if nothing of it was refused.
func (c *Client) Retry(ctx context.Context, clientMsgID string) (wire.Sent, error) {
	c.mu.Lock()
	w, ok := c.refused[clientMsgID]
	c.mu.Unlock()
	if !ok {
		return wire.Sent{}, chat.FieldErrorf(chat.CodeNotFound, "clientMsgId", "nothing was refused under %q", clientMsgID)
	}
	request, err := decodeWrite(w)
	if err != nil {
		return wire.Sent{}, err
	}
	a, err := c.perform(ctx, w.Action, w.ConversationID, w.ClientMsgID, request)
	return a.Sent, err
}

// Discard takes a write out of the outbox, or what was Refused, so that it is not sent any
// more; a call that waits for it gets ErrDiscarded. If it was on its way, it may be
// committed nevertheless and arrive like any other message. It errs with CodeNotFound
// (*chat.Error) if the outbox does not have it.
func (c *Client) Discard(clientMsgID string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.outbox[clientMsgID]
	_, refused := c.refused[clientMsgID]
	if e == nil && !refused {
		return chat.FieldErrorf(chat.CodeNotFound, "clientMsgId", "the outbox has nothing under %q", clientMsgID)
	}
	if err := c.commit(Batch{OutboxDelete: []string{clientMsgID}}); err != nil {
		return err
	}
	delete(c.refused, clientMsgID)
	if e != nil {
		c.settle(e, answer{}, ErrDiscarded)
	}
	return nil
}
