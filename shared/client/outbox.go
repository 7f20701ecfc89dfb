package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"inorder/shared/chat"
	"inorder/shared/wire"
)

// Draft is a message to send.
type Draft struct {
	// ConversationID or To says where: To is a user, for the single conversation
	// with that user, which need not exist yet.
	ConversationID string
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

// entry is a message in the outbox.
type entry struct {
	OutboxEntry
	conversationID string
	attempts       int
	obstacle       error  // of the last attempt
	waiters        int    // calls of Send
	abort          func() // ends the attempt under way

	done chan struct{} // closed when sent or err is there
	sent wire.Sent
	err  error
}

// Send returns when the message is committed (SENT). Messages of one conversation
// are committed in the order of their Sends. Offline it waits, and after a lost
// connection it sends the same again.
//
// What the server refuses, and what it would refuse, is a *chat.Error; the
// message is not in the outbox then. ErrOutboxFull says that too many wait.
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
	if err := ctx.Err(); err != nil {
		return wire.Sent{}, context.Cause(ctx)
	}
	e, err := c.accept(send) //nolint:contextcheck // what it starts outlives ctx
	if err != nil {
		return wire.Sent{}, err
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
		return e.sent, e.err
	default:
		return wire.Sent{}, &PendingError{ClientMsgID: send.ClientMsgID, Err: err, Obstacle: cmp.Or(c.lastErr, e.obstacle)}
	}
}

// request checks a draft as the server will and gives the request for it.
func (d Draft) request(cfg Config) (wire.Send, error) {
	switch {
	case d.ConversationID == "" && d.To == "":
		return wire.Send{}, chat.FieldErrorf(chat.BadRequest, "conversationId", "name a conversation, or in To a user")
	case d.ConversationID != "" && d.To != "":
		return wire.Send{}, chat.FieldErrorf(chat.BadRequest, "to", "name a conversation or, in To, a user, not both")
	case d.To != "":
		if err := chat.ValidateUserID("to", d.To); err != nil {
			return wire.Send{}, err
		}
	}
	send := wire.Send{
		ConversationID: d.ConversationID, To: d.To,
		ClientMsgID: cmp.Or(d.ClientMsgID, rand.Text()),
		MessageType: cmp.Or(d.Type, chat.TypeText),
		Text:        d.Text, Data: noNull(d.Data), ReplyTo: d.ReplyTo,
		ClientTime: time.Now().UnixMilli(),
	}
	if !send.MessageType.Sendable() {
		return wire.Send{}, chat.FieldErrorf(chat.BadRequest, "messageType", "%q cannot be sent; use text, image, voice, file or custom", send.MessageType)
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
		Version: 1, Status: chat.Normal, ServerTime: s.ClientTime, ClientTime: s.ClientTime,
	}
}

// laneOf is the conversation that a request is for. The id of a single
// conversation is known before it exists.
func laneOf(s wire.Send, userID string) string {
	if s.To != "" {
		return chat.SingleID(userID, s.To)
	}
	return s.ConversationID
}

// accept puts a message into the outbox, stored, or finds it there.
func (c *Client) accept(send wire.Send) (*entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ctx.Err() != nil:
		return nil, c.why()
	case c.closing:
		return nil, ErrClosed
	}
	if e := c.outbox[send.ClientMsgID]; e != nil {
		same, err := c.same(messageOf(send, c.cfg.UserID, ""), e)
		if err != nil {
			return nil, err
		}
		if !same {
			return nil, chat.FieldErrorf(chat.IdempotencyConflict, "clientMsgId", "this clientMsgId is in the outbox with other content")
		}
		e.waiters++
		return e, nil
	}
	if len(c.outbox) >= c.cfg.MaxOutbox {
		return nil, fmt.Errorf("%w: %d messages wait to be sent", ErrOutboxFull, len(c.outbox))
	}
	e := &entry{OutboxEntry: OutboxEntry{Order: c.lastOrder + 1, Send: send}, waiters: 1}
	if err := c.commit(Batch{OutboxPut: []OutboxEntry{e.OutboxEntry}}); err != nil {
		return nil, err
	}
	c.pump(c.enqueue(e))
	return e, nil
}

// enqueue adds a stored entry to its conversation's lane.
func (c *Client) enqueue(e *entry) *conversation {
	e.conversationID = laneOf(e.Send, c.cfg.UserID)
	e.done = make(chan struct{})
	c.lastOrder = max(c.lastOrder, e.Order)
	c.outbox[e.Send.ClientMsgID] = e
	cv := c.conversation(e.conversationID)
	cv.lane = append(cv.lane, e)
	if e.Send.To != "" && cv.known.Peer == "" {
		cv.known.Peer = e.Send.To
	}
	return cv
}

// pump sees to it that a conversation's messages are being sent, if they may be.
// The caller holds the mutex.
func (c *Client) pump(cv *conversation) {
	s := c.session
	if len(cv.lane) == 0 || cv.sending || s == nil || !s.ready {
		return
	}
	cv.sending = s.start(func() { c.sendLane(s, cv) })
}

// sendLane sends a conversation's messages one after the other: frames of one
// client may be handled at the same time, in any order.
func (c *Client) sendLane(s *session, cv *conversation) {
	for failures := 0; ; {
		ctx, cancel := context.WithCancel(s.ctx)
		e, send := c.nextOf(s, cv, cancel)
		if e == nil {
			cancel()
			return
		}
		var sent wire.Sent
		err := s.request(ctx, wire.ActionSend, send, &sent)
		if err == nil {
			err = plausibleAnswer(e.conversationID, sent)
		}
		err = c.answered(cv, e, sent, err)
		cancel()
		if err == nil {
			failures = 0
			continue
		}
		c.noteError(err)
		c.cfg.Log.Info("not sent yet", "clientMsgId", e.Send.ClientMsgID, "err", err)
		sleep(s.ctx, c.cfg.pauseAfter(err, failures))
		failures++
	}
}

// nextOf gives the message to send now, with its request, or nil when the lane's
// goroutine is to end.
func (c *Client) nextOf(s *session, cv *conversation, abort func()) (*entry, wire.Send) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(cv.lane) == 0 || s.ctx.Err() != nil {
		cv.sending = false
		return nil, wire.Send{}
	}
	e := cv.lane[0]
	e.abort = abort
	if e.attempts > 0 {
		c.stats.Resent++
	}
	e.attempts++
	return e, e.Send
}

// answered takes in how an attempt ended. An error means that there has to be
// another.
func (c *Client) answered(cv *conversation, e *entry, sent wire.Sent, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.outbox[e.Send.ClientMsgID] != e {
		return nil // its message arrived, or it was discarded
	}
	if err != nil && !isRefusal(err) {
		e.obstacle = err
		return err
	}
	if err == nil && !sent.Duplicate {
		return c.takeOwn(cv, e, sent)
	}
	batch := Batch{OutboxDelete: []string{e.Send.ClientMsgID}}
	next := *cv
	if err == nil {
		next.ledger.wrote(sent.Seq)
		batch.Conversations = []Conversation{next.record()}
	}
	if failed := c.commit(batch); failed != nil {
		return again(failed)
	}
	cv.ledger = next.ledger
	c.settle(cv, e, sent, err)
	if err == nil {
		if err := c.compare(cv, sent); err != nil {
			return again(err)
		}
		c.mind(c.session, cv, ownWaitFactor*c.cfg.GapWait)
	}
	return nil
}

// takeOwn takes in a message by the first answer to it, which tells all of it: it is
// not pushed to this connection. The caller holds the mutex.
func (c *Client) takeOwn(cv *conversation, e *entry, sent wire.Sent) error {
	m := messageOf(e.Send, c.cfg.UserID, c.cfg.DeviceID)
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
	c.mind(c.session, cv, ownWaitFactor*c.cfg.GapWait)
	return nil
}

// settle ends a message's time in the outbox; it is out of the store already. The
// caller holds the mutex.
func (c *Client) settle(cv *conversation, e *entry, sent wire.Sent, err error) {
	if c.outbox[e.Send.ClientMsgID] != e {
		return
	}
	delete(c.outbox, e.Send.ClientMsgID)
	cv.lane = slices.DeleteFunc(cv.lane, func(other *entry) bool { return other == e })
	e.sent, e.err = sent, err
	close(e.done)
	if e.abort != nil {
		e.abort()
	}
	if e.waiters > 0 {
		return
	}
	if err != nil {
		c.cfg.Log.Warn("not sent", "clientMsgId", e.Send.ClientMsgID, "conversationId", e.conversationID, "err", err)
	}
	c.publish(Settled{ClientMsgID: e.Send.ClientMsgID, ConversationID: e.conversationID, Sent: sent, Err: err})
}

// answer is a message in the outbox with the answer that its arrival is.
type answer struct {
	entry *entry
	sent  wire.Sent
}

// answersAmong finds own messages that arrived before the answers to them: they
// are committed and need not be sent again. The caller holds the mutex.
func (c *Client) answersAmong(cv *conversation, arrived []chat.Message) []answer {
	if len(cv.lane) == 0 {
		return nil
	}
	var answers []answer
	for _, m := range arrived {
		e := c.outbox[m.ClientMsgID]
		if e == nil || m.SenderID != c.cfg.UserID || m.ConversationID != e.conversationID || m.Version != 1 || m.Status != chat.Normal {
			continue
		}
		if same, err := c.same(m, e); err != nil || !same {
			continue // the server will say what is wrong
		}
		answers = append(answers, answer{e, wire.Sent{ConversationID: m.ConversationID, Seq: m.Seq, MessageID: m.MessageID, ServerTime: m.ServerTime}})
	}
	return answers
}

// same reports whether a message is the one that an entry asks for.
func (c *Client) same(m chat.Message, e *entry) (bool, error) {
	one, err := m.Fingerprint()
	if err != nil {
		return false, err
	}
	other, err := messageOf(e.Send, c.cfg.UserID, "").Fingerprint()
	return one == other, err
}

func plausibleAnswer(conversationID string, sent wire.Sent) error {
	if sent.ConversationID != conversationID || sent.Seq < 1 || sent.Seq > chat.MaxSeq || sent.MessageID == "" {
		return violated("a write to %s was answered with conversation %q, seq %d, messageId %q", conversationID, sent.ConversationID, sent.Seq, sent.MessageID)
	}
	return nil
}

// Outbox lists the messages that the server has not answered for, in the order in
// which they were accepted.
func (c *Client) Outbox() []OutboxEntry {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries := make([]OutboxEntry, 0, len(c.outbox))
	for _, e := range c.outbox {
		entries = append(entries, e.OutboxEntry)
	}
	slices.SortFunc(entries, func(a, b OutboxEntry) int { return cmp.Compare(a.Order, b.Order) })
	return entries
}

// Discard takes a message out of the outbox, so that it is not sent any more; a
// Send that waits for it gets ErrDiscarded. If it was on its way, it may be
// committed nevertheless and arrive like any other message. It errs with NotFound
// (*chat.Error) if the outbox does not have it.
func (c *Client) Discard(clientMsgID string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.outbox[clientMsgID]
	if e == nil {
		return chat.FieldErrorf(chat.NotFound, "clientMsgId", "the outbox has no message %q", clientMsgID)
	}
	if err := c.commit(Batch{OutboxDelete: []string{clientMsgID}}); err != nil {
		return err
	}
	c.settle(c.conversation(e.conversationID), e, wire.Sent{}, ErrDiscarded)
	return nil
}
