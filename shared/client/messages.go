package client

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/inorder-im/inorder/shared/chat"
)

// Messages returns a conversation's messages above afterSeq, or above the conversation's
// BaseSeq if that is higher, strictly by seq, each once and in its last state, and
// waits for new ones. It ends with an error: that of ctx, what ended the client
// (ErrClosed, ErrReplaced, …) once all that is stored was given, or one of the store. A
// loop that breaks needs no error.
//
// A message that is recalled, edited or erased after it was given is not given again;
// its event is, with the target's seq and an edit's new content or, of an erasure,
// with the user whose earlier messages have no content any more. Of a time in which the
// user was away there is no event, but MessagesChanged once the user is back. Stored has
// them as they are then. Messages that the user cleared are left out.
//
// Where the server has lost messages and went on without them (StartedOver), their seqs
// come again, with other messages.
//
// It reads from the store page by page, so it needs no memory for what has not
// been asked for yet, and no connection.
func (c *Client) Messages(ctx context.Context, conversationID chat.ConversationID, afterSeq int64) iter.Seq2[chat.Message, error] {
	return func(yield func(chat.Message, error) bool) {
		if err := chat.ValidateConversationID("conversationId", conversationID); err != nil {
			yield(chat.Message{}, err)
			return
		}
		r := c.newReader(conversationID, afterSeq)
		defer c.endReader(r)
		for {
			page, err := c.next(ctx, r)
			if err != nil {
				yield(chat.Message{}, err)
				return
			}
			for _, m := range page {
				if !yield(m, nil) {
					return
				}
			}
		}
	}
}

// reader is a loop over Messages.
type reader struct {
	of    *conversation
	after int64 // what was given; guarded by the client's mutex
}

func (c *Client) newReader(conversationID chat.ConversationID, after int64) *reader {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := &reader{of: c.conversation(conversationID), after: after}
	r.of.readers[r] = true
	return r
}

func (c *Client) endReader(r *reader) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(r.of.readers, r)
}

// next waits for messages that the reader has not had.
func (c *Client) next(ctx context.Context, r *reader) ([]chat.Message, error) {
	for {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		c.mu.Lock()
		waiting := r.of.ledger.contiguous > r.after
		news, ended := r.of.news.wait(), c.state == Ended
		c.mu.Unlock()
		if waiting {
			if page, _, err := c.stored(ctx, r); err != nil || len(page) > 0 {
				return page, err
			}
			continue
		}
		if ended {
			return nil, c.why()
		}
		select {
		case <-news:
		case <-ctx.Done():
		}
	}
}

// stored returns messages that the reader has not had; none if there are none, or the
// conversation started over meanwhile. world is how often it has.
func (c *Client) stored(ctx context.Context, r *reader) (page []chat.Message, world int, err error) {
	c.mu.Lock()
	after, through, world := r.after, r.of.ledger.contiguous, r.of.rewinds
	c.mu.Unlock()
	page, err = c.cfg.Store.Messages(ctx, r.of.id, after, through, readPage)
	if err != nil {
		return nil, 0, fmt.Errorf("reading from the store: %w", err)
	}
	if len(page) == readPage {
		through = page[readPage-1].Seq
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.of.rewinds != world {
		return nil, 0, nil
	}
	r.after = through
	return page, world, nil
}

// Stored returns what the device has of a conversation now: at most limit messages
// above afterSeq, ascending, each in its last state. It stops before the first
// seq that is missing.
func (c *Client) Stored(ctx context.Context, conversationID chat.ConversationID, afterSeq int64, limit int) ([]chat.Message, error) {
	c.mu.Lock()
	through := int64(0)
	if cv := c.conversations[conversationID]; cv != nil {
		through = cv.ledger.contiguous
	}
	c.mu.Unlock()
	if through <= afterSeq || limit <= 0 {
		return nil, nil
	}
	messages, err := c.cfg.Store.Messages(ctx, conversationID, afterSeq, through, limit)
	if err != nil {
		return nil, fmt.Errorf("reading from the store: %w", err)
	}
	return messages, nil
}

// Latest returns the last n messages that the device has of a conversation, ascending, each
// in its last state: what a program shows first. History has the ones before.
func (c *Client) Latest(ctx context.Context, conversationID chat.ConversationID, n int) ([]Message, error) {
	c.mu.Lock()
	through := int64(0)
	if cv := c.conversations[conversationID]; cv != nil {
		through = cv.ledger.contiguous
	}
	c.mu.Unlock()
	n = max(n, 0)
	var latest []Message
	for span := int64(n); len(latest) < n; span *= 2 { // of a stretch some may be gone
		after := max(0, through-span)
		var err error
		if latest, err = c.stretch(ctx, conversationID, after, through); err != nil {
			return nil, err
		}
		if after == 0 {
			break
		}
	}
	return latest[max(0, len(latest)-n):], nil
}

// stretch returns all stored messages with after < seq <= through.
func (c *Client) stretch(ctx context.Context, conversationID chat.ConversationID, after, through int64) ([]Message, error) {
	var all []Message
	for after < through {
		page, err := c.cfg.Store.Messages(ctx, conversationID, after, through, readPage)
		if err != nil {
			return nil, fmt.Errorf("reading from the store: %w", err)
		}
		all = append(all, page...)
		if len(page) < readPage {
			break
		}
		after = page[len(page)-1].Seq
	}
	return all, nil
}

// Conversations lists what the device knows of the user's conversations, the one
// that changed last first. It is the server's list as of the last catch-up, with
// what arrived since; it needs no connection. What is hidden, which the user has left
// and cleared to its end, is left out.
func (c *Client) Conversations() []Conversation {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]Conversation, 0, len(c.conversations))
	for _, cv := range c.conversations {
		if cv.exists() && !cv.known.Hidden() {
			list = append(list, cv.shown(c.cfg.UserID))
		}
	}
	slices.SortFunc(list, func(a, b Conversation) int {
		return cmp.Or(cmp.Compare(b.UpdatedAt, a.UpdatedAt), cmp.Compare(a.ConversationID, b.ConversationID))
	})
	return list
}

// Conversation returns what the device knows of one conversation; ok is false if
// that is nothing.
func (c *Client) Conversation(conversationID chat.ConversationID) (conversation Conversation, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cv := c.conversations[conversationID]
	if cv == nil || !cv.exists() {
		return Conversation{}, false
	}
	return cv.shown(c.cfg.UserID), true
}

// shown is the record with the numbers of now, for the user.
func (cv *conversation) shown(userID string) Conversation {
	r := cloned(cv.record())
	r.LastSeq = max(r.LastSeq, cv.ledger.seen)
	if r.LeftSeq > 0 {
		r.LastSeq = min(r.LastSeq, r.LeftSeq)
	}
	r.Unread = cv.unread(userID, r.LastSeq)
	return r
}

// unread counts on from the server's number, as the server does: what is above the
// user's positions and not known to be the user's own. What the server did not count
// when it described the conversation, the device may not know.
func (cv *conversation) unread(userID string, through int64) int64 {
	read := max(cv.known.ReadSeq, cv.known.ClearedSeq)
	after := max(read, cv.known.DescribedSeq)
	return min(cv.others(userID, read, through), cv.known.Unread+cv.others(userID, after, through))
}

// others counts the seqs above after, up to through, that are not known to be the user's
// own, or gone.
func (cv *conversation) others(userID string, after, through int64) int64 {
	head := chat.Conversation{Runs: cv.known.Runs, Skipped: cv.known.Skipped}
	return head.Unread(userID, after, through) - cv.ledger.ownAbove(userID, after, through)
}
