package store

// What one conversation takes is bounded by the partition that its messages end in, which
// no table-wide capacity widens: beyond it all its writers are throttled, and those who
// read it too. So a conversation has a token bucket, and its head carries the bucket: the
// one number fullAt, when it will be full again, is written by the transaction that hands
// out the seq, and read with the head that each attempt is based on. That costs no call
// and no unit, and holds in all environments alike: a head is committed on only as it was
// read, so each message finds the bucket as the one before left it.

import (
	"math/rand/v2"
	"time"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/metric"
)

// WithConversationRate bounds what one conversation takes from all its senders together:
// so many messages a second, each counting once for each started KB that it takes in the
// ledger, and as many at once as in a second. So in n seconds it takes
// perSecond·(n+1) KB, and what the environments' clocks differ by. Append, Publish and
// Edit refuse what is more as Busy, with chat.DetailRetryAfter. Other changes count, and
// are never refused: who removes, recalls or dissolves to end a flood is not kept out by
// it. 0, the default, is no bound.
func WithConversationRate(perSecond int) Option {
	return func(s *Store) { s.perSecond = perSecond }
}

// maxConversationRate is what a partition takes: 1,000 write units a second, of which a
// transaction needs two for each KB.
const maxConversationRate = 500

// conversationBurst is in what time an empty bucket becomes full.
const conversationBurst = time.Second

// stillFull refuses what this environment has just refused: so that a flood does not
// become one of reads.
func (s *Store) stillFull(w write) (full int, err error) {
	if s.perSecond == 0 || !w.mayWait() {
		return 0, nil
	}
	wait := s.heads.fullUntil(w.message.ConversationID, w.message.SenderID).Sub(s.db.Now())
	if wait <= 0 {
		return 0, nil
	}
	return 1, s.errFullFor(w.message.ConversationID, wait)
}

// meter counts a message in the bucket as the head has it, or returns its refusal.
func (s *Store) meter(w *write, head chat.Conversation) (refused *outcome) {
	if s.perSecond == 0 {
		return nil
	}
	now := s.db.Now()
	w.fullAt = s.filled(head.FullAt, w.message, now)
	taken := taken(head.FullAt, now)
	over := taken + s.takes(kilobytes(w.message)) - conversationBurst
	if over <= 0 || !w.mayWait() {
		return nil
	}
	// Until half of it is back, so that not every token is asked for by everyone.
	wait := max(taken-conversationBurst/2, over)
	if taken+s.takes(1) > conversationBurst { // for small messages too
		s.heads.full(w.message.ConversationID, now.Add(wait))
	}
	return &outcome{full: 1, err: s.errFullFor(w.message.ConversationID, wait)}
}

// takesNoMore is meter's refusal of a message that others may commit.
func (s *Store) takesNoMore(w write, head chat.Conversation, so *metric.Effort) error {
	refused := s.meter(&w, head)
	if refused == nil {
		return nil
	}
	so.Full = refused.full
	return refused.err
}

// room is how many messages of 1 KB the head's bucket has for a batch.
func (s *Store) room(head chat.Conversation) int {
	if s.perSecond == 0 {
		return maxBatch
	}
	return int((conversationBurst - taken(head.FullAt, s.db.Now())) / s.takes(1))
}

// nearFull reports whether the last message found half of the bucket taken, or more.
func (s *Store) nearFull(head chat.Conversation) bool {
	return s.perSecond > 0 && taken(head.FullAt, time.UnixMilli(head.UpdatedAt)) > conversationBurst/2
}

// filled is when a bucket will be full again, once a message is taken out of it too, in
// µs. What may not wait can take more than there is. Where there is no bound it stays as
// it is.
func (s *Store) filled(fullAt int64, m chat.Message, now time.Time) int64 {
	if s.perSecond == 0 {
		return fullAt
	}
	return now.Add(min(taken(fullAt, now)+s.takes(kilobytes(m)), conversationBurst*3/2)).UnixMicro()
}

// taken is what is out of a bucket, as the time in which it comes in.
func taken(fullAt int64, now time.Time) time.Duration {
	out := time.UnixMicro(fullAt).Sub(now)
	if out > 2*conversationBurst {
		return 0 // or, by a clock that is wrong, the conversation would be shut until that time
	}
	return max(0, out)
}

// takes is the time in which so many tokens come in, but for what is more than all of
// them.
func (s *Store) takes(tokens int) time.Duration {
	return min(conversationBurst, time.Duration(tokens)*conversationBurst/time.Duration(s.perSecond))
}

// mayWait reports whether the write is one that may be refused for what others wrote.
func (w write) mayWait() bool {
	return w.message.Event == nil || w.message.Event.Kind == chat.EventEdit
}

// kilobytes is what an entry counts for.
func kilobytes(m chat.Message) int { return (weight(m) + 1023) / 1024 }

// errFullFor asks to come again when there is room. Those who were refused together do
// not come back together.
func (s *Store) errFullFor(conversationID chat.ConversationID, wait time.Duration) error {
	wait += rand.N(conversationBurst / 2) //nolint:gosec // jitter is no secret
	return chat.BusyFor(wait, "conversation %s takes %d messages a second, of 1 KB each, from all its senders; send again in %d ms with the same clientMsgId",
		conversationID, s.perSecond, wait.Milliseconds())
}
