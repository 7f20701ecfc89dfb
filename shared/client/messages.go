package client

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"inorder/shared/chat"
)

// Messages gives a conversation's messages above afterSeq strictly by seq, each
// once and in its last state, and waits for new ones. It ends with an error: that
// of ctx, ErrClosed, ErrReplaced or ErrTooManyDevices once all that is stored was
// given, or one of the store. A loop that breaks needs no error.
//
// A message that is recalled, edited or erased after it was given is not given again;
// its event is, with the target's seq and an edit's new content or, of an erasure,
// with the user whose earlier messages have no content any more. Stored has them as
// they are then. Messages that the user cleared are left out.
//
// It reads from the store page by page, so it needs no memory for what has not
// been asked for yet, and no connection.
func (c *Client) Messages(ctx context.Context, conversationID string, afterSeq int64) iter.Seq2[chat.Message, error] {
	return func(yield func(chat.Message, error) bool) {
		if err := chat.ValidateConversationID("conversationId", conversationID); err != nil {
			yield(chat.Message{}, err)
			return
		}
		for {
			page, through, err := c.next(ctx, conversationID, afterSeq)
			if err != nil {
				yield(chat.Message{}, err)
				return
			}
			for _, m := range page {
				if !yield(m, nil) {
					return
				}
			}
			afterSeq = through
		}
	}
}

// next waits for messages above afterSeq; they account for the seqs up to
// through.
func (c *Client) next(ctx context.Context, conversationID string, afterSeq int64) (page []chat.Message, through int64, err error) {
	for {
		if ctx.Err() != nil {
			return nil, 0, context.Cause(ctx)
		}
		c.mu.Lock()
		cv := c.conversation(conversationID)
		through, news, ended := cv.ledger.contiguous, cv.news.wait(), c.state == Ended
		c.mu.Unlock()
		if through > afterSeq {
			page, err = c.cfg.Store.Messages(ctx, conversationID, afterSeq, through, readPage)
			if err != nil {
				return nil, 0, fmt.Errorf("reading from the store: %w", err)
			}
			if len(page) == readPage {
				through = page[readPage-1].Seq
			}
			return page, through, nil
		}
		if ended {
			return nil, 0, c.why()
		}
		select {
		case <-news:
		case <-ctx.Done():
		}
	}
}

// Stored gives what the device has of a conversation now: at most limit messages
// above afterSeq, ascending, each in its last state. It stops before the first
// seq that is missing.
func (c *Client) Stored(ctx context.Context, conversationID string, afterSeq int64, limit int) ([]chat.Message, error) {
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

// Conversation gives what the device knows of one conversation; ok is false if
// that is nothing.
func (c *Client) Conversation(conversationID string) (conversation Conversation, ok bool) {
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
	head := chat.Conversation{Runs: cv.known.Runs}
	others := func(after int64) int64 {
		return head.Unread(userID, after, through) - cv.ledger.ownAbove(userID, after, through)
	}
	read := max(cv.known.ReadSeq, cv.known.ClearedSeq)
	return min(others(read), cv.known.Unread+others(max(read, cv.known.DescribedSeq)))
}
