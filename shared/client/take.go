package client

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// pushed takes in the updates of a push or a notify.
func (c *Client) pushed(s *session, f frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, u := range f.Updates {
		cv := c.conversation(u.ConversationID)
		unknown := !cv.exists()
		other, err := c.contradicts(cv, u.Messages)
		if err != nil {
			return err
		}
		if cv.doubted = cv.doubted || other; cv.doubted {
			c.refuse(s, cv, u)
			continue
		}
		step := cv.ledger.push(u.Messages, u.CommittedMaxSeq, c.cfg.MaxBuffered-c.buffered)
		c.stats.Pushed += int64(len(u.Messages))
		c.stats.Repeated += int64(step.repeats)
		c.stats.Overflowed += int64(step.overflow)
		if err := c.take(cv, step, u.Messages); err != nil {
			return err
		}
		members := cv.known.MemberCount
		if f.Type == wire.TypeNotify {
			members = max(members, chat.MaxGroupMembers) // a crowd, known as such or not
		}
		c.mind(s, cv, c.cfg.GapWait, spread(members))
		if unknown {
			s.wake() // for its title and the like
		}
	}
	return nil
}

// spread is over what time to spread a pull that all members of a conversation are about
// to make: they hear of a gap at the same moment.
func spread(members int) time.Duration {
	members = min(max(members, 0), chat.MaxCrowdMembers) // a wrong number is no reason to fail
	return time.Duration(members) * spreadPerMember
}

// take makes a step of a conversation true: it stores what the step brings, and
// tells of it. arrived are the messages that led to it; one of them may be the
// answer to a message in the outbox, even while it is too early to be shown. The
// caller holds the mutex.
func (c *Client) take(cv *conversation, s step, arrived []chat.Message) error {
	answers := c.answersAmong(cv, arrived)
	if !s.moved(cv.ledger) && len(answers) == 0 {
		cv.ledger.see(s.next.seen)
		return nil
	}
	id := cv.id
	messages, err := revise(c.ctx, c.cfg.Store, id, s)
	if err != nil {
		return fmt.Errorf("reading from the store: %w", err)
	}
	next := *cv
	next.ledger = s.next
	if s.hidden && cv.known.Kind == chat.KindGroup {
		next.known.RecheckSeq = cv.ledger.contiguous
	}
	events := next.digest(c.cfg.UserID, cv.ledger.contiguous, s.admitted, messages)
	batch := Batch{Messages: messages, Conversations: []Conversation{next.record()}}
	if batch.OrphanDelete, err = c.erasedOrphans(cv, s.admitted); err != nil {
		return err
	}
	for _, seq := range s.dropped {
		batch.Delete = append(batch.Delete, Span{id, chat.Range{From: seq, To: seq}})
	}
	for _, a := range answers {
		batch.OutboxDelete = append(batch.OutboxDelete, a.entry.ClientMsgID)
	}
	if err := c.commit(batch); err != nil {
		return err
	}
	before := cv.ledger
	cv.known, cv.ledger = next.known, next.ledger
	c.buffered += len(cv.ledger.early) - len(before.early)
	if cv.ledger.contiguous != before.contiguous {
		cv.due = time.Now().Add(cv.wait) // it moves, so what is missing may just be late
		if !cv.ledger.gap() {
			cv.wait = 0
		}
		cv.news.fire()
		c.arrived.fire()
	}
	for _, a := range answers {
		c.settle(a.entry, a.answer, nil)
	}
	c.tell(id, messages, cv.ledger.contiguous, events)
	return nil
}

// tell publishes what a step changed, without what still waits for an earlier
// message.
func (c *Client) tell(id chat.ConversationID, messages []chat.Message, contiguous int64, roster bool) {
	first, last := int64(0), int64(0)
	for _, m := range messages {
		if m.Seq <= contiguous {
			first, last = cmp.Or(first, m.Seq), m.Seq
		}
	}
	if first > 0 {
		c.publish(MessagesChanged{ConversationID: id, FromSeq: first, ThroughSeq: last})
	}
	if roster {
		c.publish(RosterChanged{ConversationID: id})
	}
}

// commit stores a batch. The caller holds the mutex, so that what is stored and
// what is held go the same way.
func (c *Client) commit(b Batch) error {
	if err := c.cfg.Store.Commit(c.ctx, b); err != nil {
		return fmt.Errorf("writing to the store: %w", err)
	}
	return nil
}

// digest brings what is known of a conversation up to what was admitted after a seq: who
// wrote it, its preview, and what events say of it. The server's own description holds up
// to DescribedSeq, but for the user's removal, see describe. It reports whether the
// roster or the title is different now.
func (cv *conversation) digest(self string, after int64, admitted, written []chat.Message) (roster bool) {
	k := &cv.known
	for _, m := range admitted {
		cv.pass(after, m.Seq-1)
		after = m.Seq
		k.Runs = k.Runs.With(m)
		if k.Peer == "" && chat.SingleID(self, m.SenderID) == k.ConversationID {
			k.Peer = m.SenderID // until the server's line comes
		}
		if m.Seq <= k.DescribedSeq {
			if m.Seq == k.DescribedSeq && m.Event != nil && slices.Contains(m.Event.Removed, self) {
				k.LeftSeq = m.Seq
			}
			continue
		}
		head := chat.Conversation{Title: k.Title, Owner: k.Owner, State: k.State, MemberCount: k.MemberCount}.With(m)
		k.Title, k.Owner, k.State, k.MemberCount, k.UpdatedAt = head.Title, head.Owner, head.State, head.MemberCount, head.UpdatedAt
		k.LastMessage = m.Preview()
		switch {
		case m.Is(chat.EventMembers) && slices.Contains(m.Event.Removed, self):
			k.LeftSeq = m.Seq
		case m.Is(chat.EventMembers) && slices.Contains(m.Event.Added, self):
			k.LeftSeq = 0
			k.DescribedSeq, k.Unread = m.Seq-1, 0 // what was there before is not unread
		}
		roster = roster || m.Is(chat.EventMembers) || m.Is(chat.EventTitle) || m.Is(chat.EventDissolve)
	}
	cv.pass(after, cv.ledger.contiguous)
	k.preview(written)
	return roster
}

// preview shows the last message as it is now, if it is among those written.
func (k *Conversation) preview(written []chat.Message) {
	if k.LastMessage == nil {
		return
	}
	if i, ok := seqIndex(written, k.LastMessage.Seq); ok {
		k.LastMessage = written[i].Preview()
	}
}

// maxSkipped is how many stretches of seqs that are gone a conversation's record names.
const maxSkipped = 16

// pass notes that the seqs above after, up to through, are gone, or not ours to see: they
// are not unread. Of what the server's own description reaches, its number counts, and
// what is before BaseSeq has not been asked for.
func (cv *conversation) pass(after, through int64) {
	k := &cv.known
	if after = max(after, k.DescribedSeq, k.BaseSeq); through <= after {
		return
	}
	k.Skipped = append(slices.Clip(k.Skipped), chat.Range{From: after + 1, To: through})
	k.Skipped = k.Skipped[max(0, len(k.Skipped)-maxSkipped):]
}

// receipt takes in that a user's positions rose: the user's own, told by another
// device, or another member's.
func (c *Client) receipt(f frame) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	cv := c.conversations[f.ConversationID]
	if cv == nil || !cv.exists() {
		return nil // catching up brings it
	}
	at := Positions{DeliveredSeq: max(f.DeliveredSeq, f.ReadSeq), ReadSeq: f.ReadSeq}
	if f.UserID == c.cfg.UserID {
		return c.raise(cv, at, 0)
	}
	next := *cv
	next.known = cloned(cv.known)
	old := next.known.Receipts[f.UserID]
	raised := Positions{DeliveredSeq: max(old.DeliveredSeq, at.DeliveredSeq), ReadSeq: max(old.ReadSeq, at.ReadSeq)}
	if raised == old || len(next.known.Receipts) >= chat.MaxGroupMembers {
		return nil
	}
	if next.known.Receipts == nil {
		next.known.Receipts = map[string]Positions{}
	}
	next.known.Receipts[f.UserID] = raised
	if err := c.commit(Batch{Conversations: []Conversation{next.record()}}); err != nil {
		return err
	}
	cv.known = next.known
	c.publish(ReceiptChanged{ConversationID: f.ConversationID, UserID: f.UserID, Positions: raised})
	return nil
}

// raise takes in the user's own positions; they only ever rise. What was cleared
// leaves the store. The caller holds the mutex.
func (c *Client) raise(cv *conversation, at Positions, clearedSeq int64) error {
	next := *cv
	k := &next.known
	k.DeliveredSeq = max(k.DeliveredSeq, at.DeliveredSeq)
	k.ReadSeq = max(k.ReadSeq, at.ReadSeq)
	k.ClearedSeq = max(k.ClearedSeq, clearedSeq)
	next.ledger = next.ledger.clear(k.ClearedSeq)
	if k.DeliveredSeq == cv.known.DeliveredSeq && k.ReadSeq == cv.known.ReadSeq && k.ClearedSeq == cv.known.ClearedSeq {
		return nil
	}
	if err := c.commit(next.withoutCleared(cv)); err != nil {
		return err
	}
	cv.known, cv.ledger = next.known, next.ledger
	c.publish(ConversationChanged{ConversationID: k.ConversationID})
	return nil
}

// withoutCleared is the batch that stores a conversation, and deletes what was
// cleared since before.
func (cv *conversation) withoutCleared(before *conversation) Batch {
	b := Batch{Conversations: []Conversation{cv.record()}}
	// What is above the position is the reorder buffer, which the ledger looks after.
	through := min(cv.known.ClearedSeq, cv.ledger.contiguous)
	if cv.known.ClearedSeq > before.known.ClearedSeq {
		b.OrphanDelete = []Span{{cv.id, chat.Range{From: 1, To: cv.known.ClearedSeq}}}
		if through > 0 {
			b.Delete = []Span{{cv.id, chat.Range{From: 1, To: through}}}
		}
	}
	if cv.known.LastMessage != nil && cv.known.LastMessage.Seq <= cv.known.ClearedSeq {
		cv.known.LastMessage = nil
		b.Conversations[0].LastMessage = nil
	}
	return b
}

// describe takes in the server's line of a conversation. One that was read before
// what the device has is out of date in all but the positions.
//
// A line that was read while the transaction of the user's own removal was being
// applied may have the head of after and the membership of before. The caller holds
// the mutex.
func (c *Client) describe(line wire.Conversation) error {
	cv := c.conversation(line.ConversationID)
	cv.doubted = cv.doubted || line.LastSeq < cv.held || cv.known.differs(line.LastMessage)
	next := *cv
	k := &next.known
	if line.LastSeq >= max(k.DescribedSeq, cv.ledger.contiguous) {
		positions := k.Conversation
		preview := k.LastMessage
		k.Conversation = line
		if line.LastMessage == nil && preview != nil && preview.Seq > line.ClearedSeq {
			k.LastMessage = preview // the server leaves them out where they do not fit
		}
		k.ReadSeq = max(line.ReadSeq, positions.ReadSeq)
		k.DeliveredSeq = max(line.DeliveredSeq, positions.DeliveredSeq)
		k.ClearedSeq = max(line.ClearedSeq, positions.ClearedSeq)
		if line.LeftSeq == 0 && positions.LeftSeq == line.LastSeq {
			k.LeftSeq = positions.LeftSeq // it ends with the user's own end, and does not say so yet
		}
		k.DescribedSeq, k.Skipped = line.LastSeq, nil
		k.Unread = max(0, line.Unread)
	} else {
		k.ReadSeq = max(k.ReadSeq, line.ReadSeq)
		k.DeliveredSeq = max(k.DeliveredSeq, line.DeliveredSeq)
		k.ClearedSeq = max(k.ClearedSeq, line.ClearedSeq)
		// That the user is gone is not passed over, for nothing may come any more to
		// say it again. Who has come back meanwhile hears that, with the next round.
		k.LeftSeq = max(k.LeftSeq, line.LeftSeq)
	}
	next.ledger = next.ledger.clear(k.ClearedSeq)
	next.ledger.see(line.LastSeq)
	if err := c.commit(next.withoutCleared(cv)); err != nil {
		return err
	}
	cv.known, cv.ledger = next.known, next.ledger
	c.publish(ConversationChanged{ConversationID: line.ConversationID})
	return nil
}
