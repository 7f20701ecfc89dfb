package client

import (
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// keepUp catches up at the start of a session, whenever it is woken, and as a heartbeat,
// for the last push into a quiet conversation may be lost and the server be gone. The
// outbox is sent once the first round is made: what other devices did comes
// first, but not if that takes long.
func (c *Client) keepUp(s *session) {
	open := func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.openOutbox(s)
	}
	flush := time.AfterFunc(flushAfter, open)
	defer flush.Stop()
	beat := time.NewTimer(c.cfg.HeartbeatEvery)
	defer beat.Stop()
	s.wake()
	for failures := 0; ; {
		select {
		case <-s.ctx.Done():
			return
		case <-s.kick:
		case <-beat.C:
		}
		if err := c.round(s); err != nil {
			if s.ctx.Err() != nil {
				return
			}
			c.stumbled(err)
			s.wake()
			if !sleep(s.ctx, c.cfg.pauseAfter(err, failures), nil) {
				return
			}
			failures++
			continue
		}
		failures = 0
		beat.Reset(c.cfg.HeartbeatEvery)
		open()
	}
}

// stumbled notes why catching up failed, for those who wait for it.
func (c *Client) stumbled(err error) {
	c.noteError(err)
	c.cfg.Log.Warn("could not catch up", "err", err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lastErr = err
}

// round asks what changed and pulls it, until there is no more.
func (c *Client) round(s *session) error {
	c.mu.Lock()
	round := c.asked
	c.mu.Unlock()
	for more := true; more; {
		var err error
		if more, err = c.page(s); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = round
	if c.session == s && c.state == CatchingUp {
		c.state, c.lastErr = Online, nil
		c.publish(StateChanged{State: Online})
	}
	c.news.fire()
	return nil
}

// page asks what changed and pulls as much of it as one answer tells. The cursors
// move last. That of the heads is not stored: a new process is told of all heads.
func (c *Client) page(s *session) (more bool, err error) {
	c.mu.Lock()
	cursor, rewinds := c.syncCursor, c.rewinds
	for _, cv := range c.conversations {
		cv.held = max(cv.ledger.contiguous, cv.known.DescribedSeq)
	}
	ask := wire.Changes{SyncCursor: &cursor, HeadsCursor: c.headsCursor, Hidden: len(c.conversations) > 0}
	c.mu.Unlock()
	var changed wire.Changed
	if err := c.ask(s, wire.ActionChanges, ask, &changed); err != nil {
		return false, err
	}
	if err := c.identify(s, changed.UserID); err != nil {
		return false, err
	}
	if changed.SyncCursor < 0 || changed.SyncCursor > chat.MaxSeq {
		return false, violated("changes answered syncCursor %d", changed.SyncCursor)
	}
	if changed.SyncCursor < cursor && !changed.Full {
		return false, errors.Join(violated("changes after syncCursor %d answered %d, and not all", cursor, changed.SyncCursor), c.forgetCursor())
	}
	if changed.More && changed.SyncCursor == cursor && changed.HeadsCursor == ask.HeadsCursor {
		return false, violated("changes answered more, and the cursors it was asked with")
	}
	if err := c.learn(s, changed, ask.Hidden); err != nil {
		return false, err
	}
	if err := c.pullAll(s); err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rewinds != rewinds {
		return false, again(errStartedOver) // the lines that were told are of no use any more
	}
	if changed.SyncCursor != c.syncCursor {
		if err := c.commit(Batch{SyncCursor: &changed.SyncCursor}); err != nil {
			return false, err
		}
		c.syncCursor = changed.SyncCursor
	}
	c.headsCursor = changed.HeadsCursor
	return changed.More, nil
}

// ask asks for what a device pulls. One that is too fast is told for how long to
// wait and does so here, in its place among the pulls: what the others asked
// meanwhile would be refused as well.
func (c *Client) ask(s *session, action string, request, result any) error {
	for failures := 0; ; failures++ {
		err := s.request(s.ctx, action, request, result)
		if retryAfter(err) == 0 || !sleep(s.ctx, c.cfg.pauseAfter(err, failures), nil) {
			return err
		}
	}
}

// learn takes in what changed, the whole of a list that came in pages.
func (c *Client) learn(s *session, changed wire.Changed, hidden bool) error {
	for _, h := range changed.Heads {
		if _, ok := h.ConversationID.Kind(); !ok || !possible(h.CommittedMaxSeq) {
			return violated("a head of conversation %.100q at %d", h.ConversationID, h.CommittedMaxSeq)
		}
	}
	page := wire.ConversationsPage{Conversations: changed.Conversations, Cursor: changed.Cursor}
	listed := map[chat.ConversationID]bool{}
	for {
		for _, line := range page.Conversations {
			listed[line.ConversationID] = true
		}
		if err := c.learnLines(page.Conversations); err != nil {
			return err
		}
		if page.Cursor == "" {
			break
		}
		last := page.Cursor
		page = wire.ConversationsPage{}
		if err := c.ask(s, wire.ActionConversations, wire.Conversations{Cursor: last, Hidden: hidden}, &page); err != nil {
			return err
		}
		if page.Cursor == last {
			return violated("conversations answered the cursor it was asked with")
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, cv := range c.conversations {
		cv.doubted = cv.doubted || changed.Full && cv.held > 0 && cv.ledger.contiguous > 0 && !listed[id]
	}
	for _, h := range changed.Heads {
		c.conversation(h.ConversationID).ledger.see(h.CommittedMaxSeq)
	}
	return nil
}

func (c *Client) learnLines(lines []wire.Conversation) error {
	for _, line := range lines {
		if err := plausibleLine(line); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, line := range lines {
		if err := c.describe(line); err != nil {
			return err
		}
	}
	return nil
}

// plausibleLine refuses a line that no conversation can have.
func plausibleLine(line wire.Conversation) error {
	if _, ok := line.ConversationID.Kind(); !ok || !possible(line.LastSeq) || !possible(line.ClearedSeq) || !possible(line.ReadSeq) {
		return violated("a conversation %.100q with lastSeq %d, readSeq %d and clearedSeq %d", line.ConversationID, line.LastSeq, line.ReadSeq, line.ClearedSeq)
	}
	return nil
}

// pullAll pulls every conversation that has a gap, a few at a time. One that fails does not
// keep the others from being pulled. What is in doubt is read again after that, which may
// be long: what else changes is heard of meanwhile.
func (c *Client) pullAll(s *session) error {
	c.mu.Lock()
	var due []*conversation
	c.progress = progress{}
	for _, cv := range c.conversations {
		if cv.behind() {
			due = append(due, cv)
			c.progress.total += cv.ledger.seen - cv.ledger.contiguous
		}
	}
	c.progress.on = len(due) > 0
	c.mu.Unlock()
	var pulls errgroup.Group
	pulls.SetLimit(pullsAtOnce)
	for _, cv := range due {
		pulls.Go(func() error { return c.pull(s, cv) })
	}
	err := pulls.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cv := range due {
		if cv.unchecked() > 0 {
			c.mind(s, cv, c.cfg.GapWait, 0)
		}
	}
	if c.progress.on && err == nil {
		c.publish(Progress{Done: c.progress.done, Total: c.progress.done})
	}
	c.progress.on = false
	return err
}

// progress is how far a round of catching up is, in seqs.
type progress struct {
	on          bool
	done, total int64
}

// advance notes that a page was taken in. The caller holds the mutex.
func (c *Client) advance(by int64) {
	if !c.progress.on || by <= 0 {
		return
	}
	c.progress.done += by
	c.progress.total = max(c.progress.total, c.progress.done)
	c.publish(Progress{Done: c.progress.done, Total: c.progress.total})
}

// mind makes sure that a gap is pulled after a wait, and at random up to spread later,
// unless pushes close it first. A wait of the same length that is under way stays, or the
// pulls of those who hear of a gap again and again would hardly be spread. The caller holds
// the mutex.
func (c *Client) mind(s *session, cv *conversation, wait, spread time.Duration) {
	if !cv.behind() || s == nil || s.ctx.Err() != nil {
		return
	}
	if !cv.minded {
		cv.minded = s.start(func() { c.closeGap(s, cv) })
	}
	fresh := cv.wait == 0
	if !fresh && wait >= cv.patience {
		return
	}
	cv.patience, cv.wait = wait, wait+jitterWithin(spread)
	if due := time.Now().Add(cv.wait); fresh || due.Before(cv.due) {
		cv.due = due
		cv.sooner.fire()
	}
}

// closeGap waits and pulls until there is no gap, or the session ends.
func (c *Client) closeGap(s *session, cv *conversation) {
	for failures := 0; ; {
		c.mu.Lock()
		if !cv.behind() || s.ctx.Err() != nil {
			cv.minded, cv.wait = false, 0
			c.news.fire()
			c.mu.Unlock()
			return
		}
		rest, sooner := time.Until(cv.due), cv.sooner.wait()
		c.mu.Unlock()
		if rest > 0 {
			sleep(s.ctx, rest, sooner)
			continue
		}
		c.mu.Lock()
		if cv.ledger.gap() {
			c.stats.Gaps++
		}
		c.mu.Unlock()
		err := c.pull(s, cv)
		if err == nil {
			err = c.recheck(s, cv)
		}
		pause := c.cfg.GapWait
		if err != nil && s.ctx.Err() == nil {
			c.noteError(err)
			c.cfg.Log.Warn("could not fill a gap", "conversationId", cv.id, "err", err)
			pause += c.cfg.pauseAfter(err, failures)
			failures++
		} else {
			failures = 0
		}
		c.mu.Lock()
		cv.wait, cv.due = c.cfg.GapWait, time.Now().Add(pause)
		c.mu.Unlock()
	}
}

// pull syncs a conversation until the server says that there is no more. There is one
// pull of a conversation at a time; who comes second finds the work done.
func (c *Client) pull(s *session, cv *conversation) error {
	return s.inTurn(func() error {
		if err := c.startLate(s, cv); err != nil {
			return err
		}
		return c.sync(s, cv)
	}, cv.pulling, s.pulls)
}

// sync pulls what follows the position. A refusal is final, such as that of a group the
// user was removed from: it must not keep the cursor from moving.
func (c *Client) sync(s *session, cv *conversation) error {
	for {
		c.mu.Lock()
		id, held, seen := cv.id, cv.ledger.contiguous, cv.ledger.seen
		doubted, after := cv.doubted, held
		if held > 0 && cv.confirmed != s {
			after-- // what is held last comes along, to be compared
		}
		c.mu.Unlock()
		if doubted {
			if err := c.verify(s, cv); err != nil {
				return err
			}
			continue
		}
		if seen <= held {
			return nil
		}
		limit := min(c.cfg.PageSize+int(held-after), wire.MaxSyncLimit)
		var page wire.Synced
		err := c.ask(s, wire.ActionSync, wire.Sync{ConversationID: id, AfterSeq: &after, Limit: &limit}, &page)
		if err == nil {
			err = check(id, after, page)
		}
		if isRefusal(err) {
			c.cfg.Log.Warn("the server does not give this conversation", "conversationId", id, "err", err)
			return c.giveUp(cv, held, seen)
		}
		if err != nil {
			return err
		}
		if last, err := c.takePage(s, cv, held, seen, page); err != nil || last {
			return err
		}
	}
}

// startLate lets a device that is new to a long conversation begin with its end.
func (c *Client) startLate(s *session, cv *conversation) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, most := cv.ledger, int64(c.cfg.StartWith)
	if most < 0 || l.contiguous > 0 || l.seen-l.cleared <= lateFactor*most {
		return nil
	}
	base := l.seen - most
	cv.known.BaseSeq, cv.confirmed = base, s // nothing is held that could be compared
	c.advance(base)
	return c.take(cv, l.page(wire.Synced{NextSeq: base}), nil)
}

// takePage takes in a sync answer that passed check, and if it is the last one what
// settle makes of it. One that does not agree with what is held puts that in doubt.
func (c *Client) takePage(s *session, cv *conversation, held, seen int64, page wire.Synced) (last bool, err error) {
	tidy(page.Messages)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stats.Pages++
	other, err := c.contradicts(cv, page.Messages)
	if err != nil {
		return false, err
	}
	if other || page.CommittedMaxSeq < held {
		cv.doubted = true
		return false, nil
	}
	cv.confirmed = s
	compared, _ := seqIndex(page.Messages, held+1)
	c.stats.Pulled += int64(len(page.Messages) - compared)
	if err := c.take(cv, cv.ledger.page(page), page.Messages); err != nil {
		return false, err
	}
	c.advance(page.NextSeq - held)
	if page.NextSeq < page.CommittedMaxSeq {
		return false, nil
	}
	return true, c.quieten(cv, cv.ledger.settle(page.CommittedMaxSeq, seen))
}

// giveUp takes a refusal for an answer: there is nothing for us.
func (c *Client) giveUp(cv *conversation, after, seen int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.advance(seen - after)
	return c.quieten(cv, cv.ledger.settle(cv.ledger.contiguous, seen))
}

// quieten takes a step that may lower what was seen, which take leaves alone.
// The caller holds the mutex.
func (c *Client) quieten(cv *conversation, s step) error {
	if err := c.take(cv, s, nil); err != nil {
		return err
	}
	cv.ledger.seen = s.next.seen
	return nil
}

// openOutbox lets the outbox be sent over a session. The caller holds the mutex.
func (c *Client) openOutbox(s *session) {
	s.due = true
	if s.ready || !s.known || s.ctx.Err() != nil {
		return
	}
	s.ready = true
	for name := range c.lanes {
		c.pump(name)
	}
}
