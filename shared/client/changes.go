package client

import (
	"context"
	"iter"
	"sync"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// Change says that something is different now. It is one of MessagesChanged,
// ReceiptChanged, ConversationChanged, RosterChanged, StateChanged, Progress,
// Settled, StartedOver and Missed.
type Change interface {
	// key is what the change is about: a later one about the same replaces it.
	key() changeKey
}

// changeKey identifies what a change is about.
type changeKey struct {
	kind           string
	conversationID chat.ConversationID
	id             string
}

// MessagesChanged says that messages in this stretch of seqs are new, or have
// another state: recalled, edited. Stored has them.
type MessagesChanged struct {
	ConversationID      chat.ConversationID
	FromSeq, ThroughSeq int64
}

// ReceiptChanged says how far another member has received and read.
type ReceiptChanged struct {
	ConversationID chat.ConversationID
	UserID         string
	Positions
}

// ConversationChanged says that the line of a conversation is different: its
// title, state, the user's own positions. Conversation has it.
type ConversationChanged struct{ ConversationID chat.ConversationID }

// RosterChanged says that an event told of members, roles, the title or the end
// of a group. Members has the roster.
type RosterChanged struct{ ConversationID chat.ConversationID }

// StateChanged says how the client stands to the server, and if it is not
// connected why.
type StateChanged struct {
	State ConnectionState
	Err   error
}

// Progress says how far catching up is, in seqs. Total is what was known to be
// missing and may grow. It is through when Done is Total.
type Progress struct{ Done, Total int64 }

// Settled tells the end of a write in the outbox that no call waited for any more: it is
// committed, or Err says why not, and Refused keeps it. Action is that of the protocol,
// such as send. Sent is of the message or the event; Clear makes none. ConversationID
// is "" of a group that could not be made.
type Settled struct {
	ClientMsgID    string
	ConversationID chat.ConversationID
	Action         string
	Sent           wire.Sent
	Err            error
}

// StartedOver says that the server does not have the messages above AfterSeq any more
// which this device had: it was restored to an earlier time, or begun anew. Orphans has
// them now, and what the server has instead comes under the same seqs.
type StartedOver struct {
	ConversationID chat.ConversationID
	AfterSeq       int64
}

// Missed says that the reader was so slow that changes were dropped: all may be
// different.
type Missed struct{}

func (c MessagesChanged) key() changeKey {
	return changeKey{kind: "messages", conversationID: c.ConversationID}
}
func (c ReceiptChanged) key() changeKey {
	return changeKey{kind: "receipt", conversationID: c.ConversationID, id: c.UserID}
}
func (c ConversationChanged) key() changeKey {
	return changeKey{kind: "conversation", conversationID: c.ConversationID}
}
func (c RosterChanged) key() changeKey {
	return changeKey{kind: "roster", conversationID: c.ConversationID}
}
func (StateChanged) key() changeKey { return changeKey{kind: "state"} }
func (Progress) key() changeKey     { return changeKey{kind: "progress"} }
func (c Settled) key() changeKey    { return changeKey{kind: "settled", id: c.ClientMsgID} }
func (c StartedOver) key() changeKey {
	return changeKey{kind: "startedOver", conversationID: c.ConversationID}
}
func (Missed) key() changeKey { return changeKey{kind: "missed"} }

// maxPending is how many changes wait for a slow reader. Those about the same
// thing are one.
const maxPending = 4096

// Changes returns what changes from this call on, until ctx or the client ends, or
// the loop breaks; the last is StateChanged to Ended when the client ends. It is
// for one loop. A reader that is slow gets the latest of several changes about
// the same thing, in the place of the first.
func (c *Client) Changes(ctx context.Context) iter.Seq[Change] {
	sub := &subscription{wake: make(chan struct{}, 1), pending: map[changeKey]Change{}}
	c.mu.Lock()
	c.subscriptions[sub] = true
	ended := c.state == Ended
	if ended {
		sub.add(StateChanged{State: Ended, Err: c.lastErr})
	}
	c.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { c.unsubscribe(sub) })
	return func(yield func(Change) bool) {
		defer c.unsubscribe(sub)
		defer stop()
		for {
			change, ok := sub.take()
			if !ok {
				select {
				case <-sub.wake:
				case <-ctx.Done():
					return
				}
				continue
			}
			if ctx.Err() != nil || !yield(change) {
				return
			}
			if s, ok := change.(StateChanged); ok && s.State == Ended {
				return
			}
		}
	}
}

func (c *Client) unsubscribe(sub *subscription) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.subscriptions, sub)
}

// publish tells all readers. The caller holds the mutex.
func (c *Client) publish(change Change) {
	for sub := range c.subscriptions {
		sub.add(change)
	}
}

// subscription is one reader's changes that wait.
type subscription struct {
	wake chan struct{} // has one element when something waits

	mu      sync.Mutex
	order   []changeKey
	pending map[changeKey]Change
}

func (s *subscription) add(change Change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := change.key()
	old, waits := s.pending[key]
	switch {
	case waits:
		change = merged(old, change)
	case len(s.order) >= maxPending:
		delete(s.pending, s.order[0])
		s.order = append(s.order[1:], key)
		s.pending[Missed{}.key()] = Missed{}
	default:
		s.order = append(s.order, key)
	}
	s.pending[key] = change
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// merged is one change that says what two about the same thing say.
func merged(old, change Change) Change {
	switch o := old.(type) {
	case MessagesChanged:
		if m, ok := change.(MessagesChanged); ok {
			m.FromSeq, m.ThroughSeq = min(m.FromSeq, o.FromSeq), max(m.ThroughSeq, o.ThroughSeq)
			return m
		}
	case StartedOver:
		if s, ok := change.(StartedOver); ok {
			s.AfterSeq = min(s.AfterSeq, o.AfterSeq)
			return s
		}
	}
	return change
}

// take returns the next change. That some were missed comes before those that
// followed.
func (s *subscription) take() (Change, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	missed := Missed{}.key()
	if m, ok := s.pending[missed]; ok {
		delete(s.pending, missed)
		return m, true
	}
	if len(s.order) == 0 {
		return nil, false
	}
	key := s.order[0]
	s.order = s.order[1:]
	change := s.pending[key]
	delete(s.pending, key)
	return change, true
}
