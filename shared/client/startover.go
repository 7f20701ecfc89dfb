package client

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// A server may lose messages that devices have: it was restored to an earlier time, or
// a local cloud was begun anew. Then its ledger and the one held here are the same up to
// some seq, and above it the same seqs are other messages. What gives that away puts a
// conversation in doubt; verify finds the place, and rewind starts over from there.

// errStartedOver ends a round of catching up whose conversations are not as they were
// when it asked.
var errStartedOver = errors.New("the server has lost messages that this device had; starting over")

// Orphans returns the messages of a conversation that the server has lost and that only
// this device still has, by seq, as they were; a conversation may have some if its
// HasOrphans says so. Other messages may have their seqs now. To send one again is the
// program's decision.
func (c *Client) Orphans(ctx context.Context, conversationID chat.ConversationID) ([]chat.Message, error) {
	messages, err := c.cfg.Store.Orphans(ctx, conversationID)
	if err != nil {
		return nil, fmt.Errorf("reading from the store: %w", err)
	}
	return messages, nil
}

// DiscardOrphans deletes the Orphans of a conversation. Clear deletes those up to its
// seq, and an erasure those of its user.
func (c *Client) DiscardOrphans(conversationID chat.ConversationID) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := *c.conversation(conversationID)
	next.known.HasOrphans = false
	err := c.commit(Batch{
		OrphanDelete:  []Span{{conversationID, chat.Range{From: 1, To: chat.MaxSeq}}},
		Conversations: []Conversation{next.record()},
	})
	if err != nil {
		return err
	}
	c.conversation(conversationID).known = next.known
	c.publish(ConversationChanged{ConversationID: conversationID})
	return nil
}

// erasedOrphans are the messages set aside that the events among these erase.
func (c *Client) erasedOrphans(cv *conversation, admitted []chat.Message) ([]Span, error) {
	erased := map[string]bool{}
	for _, m := range admitted {
		if m.Is(chat.EventErase) {
			erased[m.Event.Erased] = true
		}
	}
	if len(erased) == 0 || !cv.known.HasOrphans {
		return nil, nil
	}
	orphans, err := c.Orphans(c.ctx, cv.id)
	if err != nil {
		return nil, err
	}
	var spans []Span
	for _, m := range orphans {
		if erased[m.SenderID] {
			spans = append(spans, Span{cv.id, chat.Range{From: m.Seq, To: m.Seq}})
		}
	}
	return spans, nil
}

// differs reports whether a preview of the server's is of another message than the one
// with its seq here.
func (k *Conversation) differs(last *wire.MessagePreview) bool {
	return last != nil && k.LastMessage != nil && last.Seq == k.LastMessage.Seq && last.ServerTime != k.LastMessage.ServerTime
}

// contradicts reports whether one of these messages has the seq of another one that the
// device has. The caller holds the mutex.
func (c *Client) contradicts(cv *conversation, messages []chat.Message) (bool, error) {
	for _, m := range messages {
		i, early := seqIndex(cv.ledger.early, m.Seq)
		switch {
		case early && cv.ledger.early[i].MessageID != m.MessageID:
			return true, nil
		case early || m.Seq > cv.ledger.contiguous || m.Seq <= cv.ledger.cleared:
			continue
		}
		held, err := c.cfg.Store.Messages(c.ctx, cv.id, m.Seq-1, m.Seq, 1)
		if err != nil {
			return false, fmt.Errorf("reading from the store: %w", err)
		}
		if len(held) > 0 && held[0].MessageID != m.MessageID {
			return true, nil
		}
	}
	return false, nil
}

// compare puts a conversation in doubt if a write was committed with the seq of another
// message. The caller holds the mutex.
func (c *Client) compare(cv *conversation, sent wire.Sent) error {
	if sent.MessageID == "" {
		return nil // of a group that was made, and its first message is not told
	}
	other, err := c.contradicts(cv, []chat.Message{{Seq: sent.Seq, MessageID: sent.MessageID}})
	cv.doubted = cv.doubted || other
	return err
}

// refuse passes over what was pushed into a conversation in doubt; sync brings it.
func (c *Client) refuse(s *session, cv *conversation, u wire.Update) {
	cv.ledger.see(u.CommittedMaxSeq)
	for _, m := range u.Messages {
		cv.ledger.see(m.Seq)
	}
	c.mind(s, cv, c.cfg.GapWait, 0)
}

// verify looks for the last message that both the device and the server have of a
// conversation in doubt, from the end backwards, and starts over from there.
func (c *Client) verify(s *session, cv *conversation) error {
	c.mu.Lock()
	held, before := cv.ledger.contiguous, cv.ledger.contiguous+1
	c.mu.Unlock()
	limit := wire.MaxHistoryLimit
	for parted := false; ; {
		var page wire.HistoryPage
		err := c.ask(s, wire.ActionHistory, wire.History{ConversationID: cv.id, BeforeSeq: &before, Limit: &limit}, &page)
		switch {
		case isRefusal(err) && chat.CodeOf(err) == chat.CodeNotFound:
			return c.rewind(cv, 0, 0)
		case isRefusal(err):
			c.trust(cv, err)
			return nil
		case err != nil:
			return err
		case !possible(page.CommittedMaxSeq) || page.HasMore && page.NextBeforeSeq >= before:
			return violated("history of %s before %d leads on to %d", cv.id, before, page.NextBeforeSeq)
		}
		same, other, err := c.agreed(cv, page.Messages)
		if err != nil {
			return err
		}
		parted = parted || other
		if same == 0 && page.HasMore {
			before = page.NextBeforeSeq
			continue
		}
		if !parted {
			same = held // what is gone from the server is no contradiction
		}
		return c.rewind(cv, min(same, page.CommittedMaxSeq), page.CommittedMaxSeq)
	}
}

// agreed returns the seq of the last of these messages that is the same here, for then so
// is all that is before it, and whether there are other ones above it.
func (c *Client) agreed(cv *conversation, messages []chat.Message) (same int64, other bool, err error) {
	for _, m := range slices.Backward(messages) {
		if err := plausible(cv.id, m); err != nil {
			return 0, false, err
		}
		held, err := c.cfg.Store.Messages(c.ctx, cv.id, m.Seq-1, m.Seq, 1)
		switch {
		case err != nil:
			return 0, false, fmt.Errorf("reading from the store: %w", err)
		case len(held) == 0:
		case held[0].MessageID == m.MessageID:
			return m.Seq, other, nil
		default:
			other = true
		}
	}
	return 0, other, nil
}

// trust ends the doubt about a conversation that the server does not give.
func (c *Client) trust(cv *conversation, refused error) {
	c.cfg.Log.Warn("the server does not give this conversation", "conversationId", cv.id, "err", refused)
	c.mu.Lock()
	defer c.mu.Unlock()
	cv.doubted = false
}

// rewind ends the doubt about a conversation: what is held above fork is set aside, what
// came early is dropped, and the server describes and gives it anew.
func (c *Client) rewind(cv *conversation, fork, committedMaxSeq int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := cv.ledger.contiguous
	fork = min(fork, held)
	next := *cv
	next.ledger = ledger{contiguous: fork, seen: max(fork, committedMaxSeq), cleared: cv.ledger.cleared}
	next.known = cloned(cv.known)
	next.known.DescribedSeq, next.known.LastMessage = 0, nil
	none := int64(0)
	batch := Batch{Delete: []Span{{cv.id, chat.Range{From: held + 1, To: chat.MaxSeq}}}, SyncCursor: &none}
	if fork < held {
		next.known, next.ledger.cleared = cv.known.anew(fork), min(cv.ledger.cleared, fork)
		if committedMaxSeq == 0 {
			next.known.State = "" // it does not exist
		}
		batch.Orphan = []Span{{cv.id, chat.Range{From: fork + 1, To: held}}}
	}
	batch.Conversations = []Conversation{next.record()}
	adapted, err := c.adapted(cv, fork)
	if err != nil {
		return err
	}
	for _, e := range adapted {
		batch.OutboxPut = append(batch.OutboxPut, e.OutboxEntry)
	}
	if err := c.commit(batch); err != nil {
		return err
	}
	for _, e := range adapted {
		before := c.outbox[e.ClientMsgID]
		before.Request, before.request = e.Request, e.request
	}
	c.buffered -= len(cv.ledger.early)
	cv.known, cv.ledger, cv.doubted, cv.held = next.known, next.ledger, false, 0
	c.syncCursor, c.headsCursor = 0, ""
	c.rewinds++
	cv.rewinds++
	for r := range cv.readers {
		r.after = min(r.after, fork)
	}
	cv.news.fire()
	c.arrived.fire()
	if c.session != nil {
		c.session.wake()
	}
	if fork < held {
		c.cfg.Log.Warn("the server has lost messages that this device has", "conversationId", cv.id, "afterSeq", fork, "throughSeq", held)
		c.publish(StartedOver{ConversationID: cv.id, AfterSeq: fork})
	}
	return nil
}

// anew is what is known of a conversation of which the server is to say the rest again.
func (k Conversation) anew(fork int64) Conversation {
	k = cloned(k)
	k.LastSeq, k.LeftSeq, k.ReadSeq, k.DeliveredSeq, k.Unread = fork, 0, 0, 0, 0
	k.ClearedSeq, k.BaseSeq = min(k.ClearedSeq, fork), min(k.BaseSeq, fork)
	k.DoneSeq, k.RecheckSeq = min(k.DoneSeq, fork), min(k.RecheckSeq, fork)
	k.LastMessage, k.Receipts, k.Runs, k.Skipped, k.DescribedSeq = nil, nil, "", nil, 0
	k.HasOrphans = true
	return k
}

// adapted returns the writes in the outbox that have to ask for something else in the
// server's other world, as they are then. A single conversation that is gone may have to be
// made anew for what is sent to it. What was to be cleared is so up to the fork: what comes
// above it the user has not seen.
func (c *Client) adapted(cv *conversation, fork int64) ([]entry, error) {
	l := c.lanes[string(cv.id)]
	if l == nil {
		return nil, nil
	}
	var adapted []entry
	for _, e := range l.entries {
		to := *e
		switch r := e.request.(type) {
		case wire.Send:
			if fork > 0 || cv.known.Kind != chat.KindSingle || cv.known.Peer == "" {
				continue
			}
			r.ConversationID, r.To = "", cv.known.Peer
			to.request = r
		case wire.Clear:
			if *r.ThroughSeq <= fork {
				continue
			}
			r.ThroughSeq = &fork
			to.request = r
		default:
			continue
		}
		var err error
		if to.Request, err = encodeWrite(e.Action, to.request); err != nil {
			return nil, err
		}
		adapted = append(adapted, to)
	}
	return adapted, nil
}

// forgetCursor makes the next round ask for the whole list.
func (c *Client) forgetCursor() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	none := int64(0)
	if err := c.commit(Batch{SyncCursor: &none}); err != nil {
		return err
	}
	c.syncCursor, c.headsCursor = 0, ""
	return nil
}
