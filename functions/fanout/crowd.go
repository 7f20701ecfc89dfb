package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/wire"
)

// A crowd (chat.Conversation.IsCrowd) is pushed to in rounds, by an environment of their
// own: the stream's function only puts a round into the queue where a head's pushAt says
// that there is one, and tells those who were removed. A round reads what is new once and
// the roster in pages, with the connections of each, and takes care not to post faster
// than its budget, which leaves the account's rate to everybody else.

// rounds takes the rounds of crowds.
type rounds interface {
	// Deliver has a round handled after a delay of at most 15 minutes.
	Deliver(ctx context.Context, body string, delay time.Duration) error
}

// round is the pushing of a stretch of a crowd's ledger to all members after the cursor,
// as a message of the queue.
type round struct {
	Crowd   chat.ConversationID `json:"crowd"` // the conversationId
	FromSeq int64               `json:"fromSeq"`
	ToSeq   int64               `json:"toSeq,omitempty"` // 0: up to where the ledger ends once the round begins
	Cursor  string              `json:"cursor,omitempty"`

	Attempts int `json:"attempts,omitempty"` // that failed at this cursor
}

const (
	roundPage = 500 // members at a time: a Query of 14 units or more, and five BatchGetItems

	// maxRound is how many entries, and of how many bytes, are pushed whole: about a
	// frame. Devices are told of more than that by the head alone, and pull.
	maxRound      = 100
	maxRoundBytes = wire.MaxFrameBytes
	envelope      = 300 // bytes of an entry beside its content, about

	// maxRoundAttempts of which each waits twice as long as the one before, from a second,
	// take 17 minutes: devices have asked by then.
	maxRoundAttempts = 10

	// roundReserve is what of a function's time is left when a round goes on in
	// another: a page that hangs has pushBudget, a step for who is looked up late, and
	// settleBudget.
	roundReserve = 15 * time.Second
)

// isCrowd reports whether the conversation is pushed to in rounds.
func (h handler) isCrowd(c *conversation) bool {
	return h.rounds != nil && c.members > chat.MaxGroupMembers
}

// loadCrowd sends the rounds of a crowd on their way. What it returns is for those alone
// who came by an event or were removed: they are not told of by the roster, and in their
// sync heads.
func (h handler) loadCrowd(ctx context.Context, c *conversation) (news, error) {
	rounds := c.rounds
	if len(c.unread) > 0 { // they were ordered
		rounds = nil
	}
	for _, due := range rounds {
		if err := h.sendRound(ctx, round{Crowd: c.id, FromSeq: due.from}, time.UnixMilli(due.at).Sub(h.now())); err != nil {
			return news{}, err
		}
	}
	n := news{conversation: c}
	if !c.rosterChanged {
		return n, nil
	}
	var err error
	if n.entries, err = h.store.Entries(ctx, c.id, c.news); err != nil {
		return news{}, err
	}
	left, joined := moves(c.news.From, n.entries)
	for _, userID := range slices.Sorted(maps.Keys(left)) {
		n.windows = append(n.windows, window{userID: userID, from: left[userID].From, to: left[userID].To, gone: true})
	}
	for _, userID := range slices.Sorted(maps.Keys(joined)) {
		if seq := joined[userID]; seq > left[userID].To {
			n.windows = slices.DeleteFunc(n.windows, func(w window) bool { return w.userID == userID })
			n.windows = append(n.windows, window{userID: userID, from: seq, to: c.news.To, since: seq, came: true})
		}
	}
	if c.membersBefore > chat.InboxGroupMax {
		return n, nil
	}
	few, err := h.before(ctx, c, left)
	if err != nil {
		return news{}, err
	}
	n.windows = append(n.windows, few...)
	return n, nil
}

// before finds those who were members already when a conversation was small, which became
// a crowd since then: they are not on any list of large ones yet. It reads all of the
// roster, once in a conversation's life.
func (h handler) before(ctx context.Context, c *conversation, left map[string]chat.Range) (windows []window, err error) {
	for cursor := ""; ; {
		page, next, err := h.store.CrowdPage(ctx, c.id, cursor, roundPage)
		if err != nil {
			return nil, err
		}
		for _, m := range page {
			if m.JoinedSeq < c.news.From && m.JoinSeq <= c.news.To && !isGone(m, left) {
				windows = append(windows, window{userID: m.UserID, from: max(m.JoinSeq, c.news.From), to: c.news.To, since: m.JoinSeq, came: true})
			}
		}
		if cursor = next; next == "" {
			return windows, nil
		}
	}
}

// sendRound orders a round. A queue counts in whole seconds: it must not come before its
// time, for those who write until shortly before count on it.
func (h handler) sendRound(ctx context.Context, r round, delay time.Duration) error {
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding a round: %w", err)
	}
	delay = (delay + time.Second - 1).Truncate(time.Second)
	return h.rounds.Deliver(ctx, string(body), min(max(delay, 0), maxDelay))
}

// told remembers of each crowd the stretch that rounds of this environment have begun to
// tell. A round takes longer than the gap to the next one where most members are
// connected, so rounds wait in the queue, and each tells all there is by the time it
// begins. Those that waited with it would tell it again, in ever more rounds at a time,
// and keep those of other crowds waiting. The other environment does not know: it may
// tell it a second time, and no more.
type told struct {
	mu sync.Mutex
	by map[chat.ConversationID]chat.Range
}

// maxTold bounds the memory. When it is full it starts over.
const maxTold = 1000

// rest returns what of a stretch no round has begun to tell, and notes that one does now.
// It is empty, with To before From, if there is nothing left.
func (t *told) rest(conversationID chat.ConversationID, r chat.Range) chat.Range {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, ok := t.by[conversationID]
	if ok && before.From <= r.From && r.From <= before.To+1 { // else they came in another order
		r.From = before.To + 1
		before.To = max(before.To, r.To)
	} else {
		before = r
	}
	if t.by == nil || len(t.by) >= maxTold {
		t.by = map[chat.ConversationID]chat.Range{}
	}
	t.by[conversationID] = before
	return r
}

// forget has later rounds tell all that they were ordered for: one has failed.
func (t *told) forget(conversationID chat.ConversationID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.by, conversationID)
}

// roundOf reads a round; ok is false for any other message.
func roundOf(body string) (r round, ok bool) {
	err := json.Unmarshal([]byte(body), &r)
	return r, err == nil && r.Crowd != ""
}

// deliver pushes a round, or begins it and sends the rest on its way: what fails is tried
// again from where it came to. With an error the queue has it repeated, and gives it up
// in the end.
func (h handler) deliver(ctx context.Context, r round) error {
	start := time.Now()
	n, left, err := h.loadRound(ctx, &r)
	if err != nil {
		return h.repeatRound(ctx, r, tally{}, 0, start, err)
	}
	if n.conversation == nil {
		return nil
	}
	var t tally
	members := 0
	for {
		page, next, err := h.store.CrowdPage(ctx, r.Crowd, r.Cursor, roundPage)
		if err == nil {
			n.windows = present(n.news, page, left)
			members += len(page)
			b := &batch{step: hasty, passes: true, failed: map[chat.ConversationID]error{}}
			t = t.plus(h.push(ctx, b, []news{n}))
			err = b.failed[r.Crowd]
		}
		if err != nil {
			return h.repeatRound(ctx, r, t, members, start, err)
		}
		r.Attempts = 0
		if r.Cursor = next; next == "" {
			break
		}
		h.pace(ctx, t.pushes, start)
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < roundReserve {
			if err = h.sendRound(ctx, r, 0); err != nil {
				h.told.forget(r.Crowd) // the queue repeats this one from its beginning
			}
			h.recordRound(ctx, r, t, members, start, err)
			return err
		}
	}
	h.recordRound(ctx, r, t, members, start, nil)
	return nil
}

// repeatRound sends a round that failed on its way once more, from its cursor on.
func (h handler) repeatRound(ctx context.Context, r round, t tally, members int, start time.Time, err error) error {
	h.recordRound(ctx, r, t, members, start, err)
	h.told.forget(r.Crowd)
	if r.Attempts >= maxRoundAttempts {
		return fmt.Errorf("a round of %s: %w", r.Crowd, err)
	}
	delay := time.Second << r.Attempts
	r.Attempts++
	return h.sendRound(ctx, r, delay)
}

// loadRound reads what a round is to push: from the seq that it was ordered with to the
// end of the ledger as it is when it begins. There is no conversation in what it returns
// if there is nothing to push. left are those who were removed in this stretch: the
// roster, which is read after the head, may still have them at this moment.
func (h handler) loadRound(ctx context.Context, r *round) (n news, left map[string]chat.Range, err error) {
	if r.ToSeq == 0 {
		head, found, err := h.store.Crowd(ctx, r.Crowd)
		if err != nil || !found {
			return news{}, nil, err
		}
		r.ToSeq = head.LastSeq
		r.FromSeq = h.told.rest(r.Crowd, chat.Range{From: r.FromSeq, To: r.ToSeq}).From
	}
	if r.FromSeq > r.ToSeq {
		return news{}, nil, nil
	}
	first := max(r.FromSeq, r.ToSeq-maxRound+1)
	n = news{conversation: &conversation{id: r.Crowd, news: chat.Range{From: r.FromSeq, To: r.ToSeq}}}
	if n.entries, err = h.store.Entries(ctx, r.Crowd, chat.Range{From: first, To: r.ToSeq}); err != nil {
		return news{}, nil, err
	}
	bytes := 0
	for _, m := range n.entries {
		bytes += envelope + len(m.Text) + len(m.Data)
		n.committedAt = max(n.committedAt, m.ServerTime)
	}
	n.brief = first > r.FromSeq || bytes > maxRoundBytes
	left, _ = moves(first, n.entries)
	return n, left, nil
}

// present says what the members of a page hear of a stretch.
func present(stretch chat.Range, members []chat.Member, left map[string]chat.Range) []window {
	windows := make([]window, 0, len(members))
	for _, m := range members {
		if isGone(m, left) || m.JoinSeq > stretch.To {
			continue
		}
		windows = append(windows, window{userID: m.UserID, from: max(m.JoinSeq, stretch.From), to: stretch.To, since: m.JoinSeq})
	}
	return windows
}

// pace waits until so many posts are no more than the budget allows in this time.
func (h handler) pace(ctx context.Context, posts int, start time.Time) {
	if h.postsPerSecond == 0 {
		return
	}
	patiently(ctx.Done(), time.Duration(posts)*time.Second/time.Duration(h.postsPerSecond)-time.Since(start))
}

func (h handler) recordRound(ctx context.Context, r round, t tally, members int, start time.Time, err error) {
	level := slog.LevelInfo
	attrs := []slog.Attr{
		metric.Conversation(r.Crowd), slog.Int64("fromSeq", r.FromSeq), metric.Seq(r.ToSeq), slog.Int("members", members),
		metric.Count(metric.Pushes, t.pushes), metric.Count(metric.GoneConnections, t.gone), metric.Count(metric.PushFailures, t.unpushed),
		slog.Int("expired", t.expired), slog.Int64("ms", time.Since(start).Milliseconds()),
	}
	if r.Cursor != "" {
		attrs = append(attrs, slog.String("cursor", r.Cursor))
	}
	if err != nil || t.firstErr != nil {
		level = slog.LevelWarn
		attrs = append(attrs, slog.Any("err", err), slog.Any("pushErr", t.firstErr))
	}
	h.log.LogAttrs(ctx, level, "round", attrs...)
}
