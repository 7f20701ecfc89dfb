package client

import (
	"reflect"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// Who was away is not told what was recalled or erased meanwhile, for those events are
// not for it. When it is back, the first sync answer passes over its absence: from then
// on all that was held before is in doubt (Conversation.RecheckSeq), and is read again,
// the newest first. What happens to it later comes as an event.

// recheck reads again what is in doubt. That may be much: what follows comes first after
// each page, and of all conversations one is read at a time, so that none waits for it.
func (c *Client) recheck(s *session, cv *conversation) error {
	for {
		var more bool
		err := s.inTurn(func() (err error) {
			more, err = c.recheckPage(s, cv)
			return err
		}, s.rechecks, cv.pulling)
		if err != nil || !more {
			return err
		}
		if err := c.pull(s, cv); err != nil {
			return err
		}
	}
}

// recheckPage reads a page of what is held from before an absence, and reports whether
// there may be more.
func (c *Client) recheckPage(s *session, cv *conversation) (more bool, err error) {
	c.mu.Lock()
	before := cv.unchecked() + 1
	c.mu.Unlock()
	if before == 1 {
		return false, nil
	}
	limit := wire.MaxHistoryLimit
	var page wire.HistoryPage
	err = c.ask(s, wire.ActionHistory, wire.History{ConversationID: cv.id, BeforeSeq: &before, Limit: &limit}, &page)
	switch {
	case isRefusal(err): // the server does not give any of it
		c.cfg.Log.Warn("the server does not give this conversation", "conversationId", cv.id, "err", err)
		page = wire.HistoryPage{}
	case err != nil:
		return false, err
	case page.HasMore && page.NextBeforeSeq >= before:
		return false, violated("history of %s before %d leads on to %d", cv.id, before, page.NextBeforeSeq)
	}
	return true, c.takeAgain(cv, page)
}

// takeAgain takes in a page of what is held already.
func (c *Client) takeAgain(cv *conversation, page wire.HistoryPage) error {
	for _, m := range page.Messages {
		if err := plausible(cv.id, m); err != nil {
			return err
		}
	}
	tidy(page.Messages)
	c.mu.Lock()
	defer c.mu.Unlock()
	changed, other, err := c.changedSince(cv, page.Messages)
	if err != nil {
		return err
	}
	if other {
		cv.doubted = true
		return again(errStartedOver)
	}
	next := *cv
	next.known.RecheckSeq = 0
	if page.HasMore {
		next.known.RecheckSeq = page.NextBeforeSeq - 1
	}
	next.known.preview(changed)
	if err := c.commit(Batch{Messages: changed, Conversations: []Conversation{next.record()}}); err != nil {
		return err
	}
	cv.known = next.known
	c.tell(cv.id, changed, cv.ledger.contiguous, false)
	return nil
}

// changedSince returns those of the messages that the device holds otherwise, as they are
// now, and whether it holds another one in the place of one. A page that the server read
// before an event which the device has by now does not undo it.
func (c *Client) changedSince(cv *conversation, messages []chat.Message) (changed []chat.Message, other bool, err error) {
	if len(messages) == 0 {
		return nil, false, nil
	}
	held, err := c.stretch(c.ctx, cv.id, messages[0].Seq-1, messages[len(messages)-1].Seq)
	if err != nil {
		return nil, false, err
	}
	for _, m := range messages {
		i, ok := seqIndex(held, m.Seq)
		switch {
		case !ok || reflect.DeepEqual(held[i], m):
			continue
		case held[i].MessageID != m.MessageID:
			return nil, true, nil
		}
		now := []chat.Message{m}
		if err := asTold(c.ctx, c.cfg.Store, now); err != nil {
			return nil, false, err
		}
		if held[i].Status != chat.StatusRecalled || now[0].Status == chat.StatusRecalled {
			changed = append(changed, now[0])
		}
	}
	return changed, false, nil
}
