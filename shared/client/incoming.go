package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// Incoming is what another user, or the product, wrote: what a bot answers.
type Incoming struct {
	Message
	client  *Client
	world   int // how often the conversation had started over
	replies int
}

// Incoming returns what others write in all of the user's conversations, and waits for
// more: in each conversation by seq and each once, in its last state. It leaves out events,
// such as edits, what the user wrote, and what is recalled. It ends as Messages does.
//
// The store keeps how far the program is. What it was not [Incoming.Done] with when it
// ended is given again, to whichever run of it that comes next. A conversation that is new
// to it starts above what the user has read. It is for one loop at a time.
func (c *Client) Incoming(ctx context.Context) iter.Seq2[*Incoming, error] {
	return func(yield func(*Incoming, error) bool) {
		readers := map[*conversation]*reader{}
		defer func() {
			for _, r := range readers {
				c.endReader(r)
			}
		}()
		for {
			page, world, err := c.arrivals(ctx, readers)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, m := range page {
				if m.SenderID == c.cfg.UserID || IsEvent(m) || m.Status == chat.StatusRecalled {
					continue
				}
				if !yield(&Incoming{Message: m, client: c, world: world}, nil) {
					return
				}
			}
		}
	}
}

// arrivals waits for messages in any conversation, of one at a time.
func (c *Client) arrivals(ctx context.Context, readers map[*conversation]*reader) (page []Message, world int, err error) {
	for {
		if ctx.Err() != nil {
			return nil, 0, context.Cause(ctx)
		}
		c.mu.Lock()
		arrived, ended := c.arrived.wait(), c.state == Ended
		due := c.unread(readers)
		c.mu.Unlock()
		for _, r := range due {
			if page, world, err = c.stored(ctx, r); err != nil || len(page) > 0 {
				return page, world, err
			}
		}
		if len(due) > 0 {
			continue
		}
		if ended {
			return nil, 0, c.why()
		}
		c.tellDone()
		select {
		case <-arrived:
		case <-ctx.Done():
		}
	}
}

// unread returns the readers that are not at the end of their conversation, and makes those
// that are missing. The caller holds the mutex.
func (c *Client) unread(readers map[*conversation]*reader) (due []*reader) {
	for _, id := range slices.Sorted(maps.Keys(c.conversations)) {
		cv := c.conversations[id]
		if cv.ledger.contiguous == 0 {
			continue
		}
		r := readers[cv]
		if r == nil {
			r = &reader{of: cv, after: cmp.Or(cv.known.DoneSeq, cv.known.ReadSeq)}
			readers[cv], cv.readers[r] = r, true
		}
		if r.after < cv.ledger.contiguous {
			due = append(due, r)
		}
	}
	return due
}

// Reply answers a message with a text, as Client.Send sends it. Its key is made of the
// message's id: the first reply to a message is sent once, however often the program
// starts anew in between, and so are the second and the third. A reply that was sent by an
// earlier run, maybe with other words, is not sent again; its answer is given.
func (in *Incoming) Reply(ctx context.Context, text string) (Sent, error) {
	in.replies++
	d := Draft{
		ConversationID: in.ConversationID, Text: text, ReplyTo: &ReplyTo{Seq: in.Seq, MessageID: in.MessageID},
		ClientMsgID: fmt.Sprintf("re-%s-%d", in.MessageID, in.replies),
	}
	in.client.mu.Lock()
	if e := in.client.outbox[d.ClientMsgID]; e != nil {
		if before, ok := e.request.(wire.Send); ok {
			d.Text = before.Text
		}
	}
	in.client.mu.Unlock()
	sent, err := in.client.Send(ctx, d)
	if first, ok := firstOf(err); ok {
		first.ConversationID = in.ConversationID
		return first, nil
	}
	return sent, err
}

// firstOf reads what a conflict of idempotency keys says of the message that has the key.
func firstOf(err error) (Sent, bool) {
	e, ok := errors.AsType[*chat.Error](err)
	if !ok || e.Code != chat.CodeIdempotencyConflict {
		return Sent{}, false
	}
	messageID, _ := e.Details["messageId"].(string)
	seq, _ := e.Details["seq"].(float64)
	return Sent{MessageID: messageID, Seq: int64(seq), Duplicate: true}, messageID != "" && seq >= 1
}

// Done stores that the program is done with a message, and with all before it in its
// conversation: they are not given again. The user's read position follows once nothing
// waits.
func (in *Incoming) Done() error {
	c := in.client
	c.mu.Lock()
	defer c.mu.Unlock()
	cv := c.conversation(in.ConversationID)
	if in.Seq <= cv.known.DoneSeq || in.world != cv.rewinds {
		return nil // or the server may have lost it meanwhile, and given its seq to another
	}
	next := *cv
	next.known.DoneSeq = in.Seq
	if err := c.commit(Batch{Conversations: []Conversation{next.record()}}); err != nil {
		return err
	}
	cv.known = next.known
	return nil
}

// tellDone raises the user's read positions to where the program is, in the background.
// What fails is told the next time.
func (c *Client) tellDone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.session; s != nil && s.known && !c.telling && c.undone() != nil {
		c.telling = s.start(func() { c.tellAllDone(s) })
	}
}

func (c *Client) tellAllDone(s *session) {
	for {
		c.mu.Lock()
		cv := c.undone()
		if cv == nil || s.ctx.Err() != nil {
			c.telling = false
			c.mu.Unlock()
			return
		}
		id, done := cv.id, cv.known.DoneSeq
		c.mu.Unlock()
		var acked wire.Acked
		err := c.ask(s, wire.ActionAck, wire.Ack{ConversationID: id, ReadSeq: &done}, &acked)
		if err == nil && possible(acked.DeliveredSeq) {
			err = c.raiseOwn(id, Positions{DeliveredSeq: acked.DeliveredSeq, ReadSeq: max(acked.ReadSeq, done)}, 0)
		}
		if err != nil {
			c.noteError(err)
			c.mu.Lock()
			c.telling = false
			c.mu.Unlock()
			return
		}
	}
}

// undone returns a conversation whose read position is behind what the program is done
// with.
func (c *Client) undone() *conversation {
	for _, cv := range c.conversations {
		if cv.known.DoneSeq > cv.known.ReadSeq {
			return cv
		}
	}
	return nil
}
