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
// ledger, and as many at once, or less where that would be more in a second than a
// partition takes: of 400, the default of a deployment, 100. So in n seconds it takes
// 400·n + 100 KB, and what the environments' clocks differ by. Append, Publish and Edit
// refuse what is more as Busy, with chat.DetailRetryAfter. Other changes count, and are
// never refused: who removes, recalls or dissolves to end a flood is not kept out by it.
// 0, the default, is no bound.
func WithConversationRate(perSecond int) Option {
	return func(s *Store) { s.perSecond = perSecond }
}

// maxConversationRate is what a partition takes: 1,000 write units a second, of which a
// transaction needs two for each KB.
const maxConversationRate = 500

// clockSlack is by how much an environment's clock may be ahead of another's: what a
// bucket has beyond that is of one that is wrong.
const clockSlack = time.Second

// burst is in what time an empty bucket becomes full. It has the messages of a second, but
// no more than are left of what a partition takes in one, and not less than a batch.
func (s *Store) burst() time.Duration {
	tokens := max(min(s.perSecond, maxConversationRate-s.perSecond), maxBatch)
	return time.Duration(min(tokens, s.perSecond)) * time.Second / time.Duration(s.perSecond)
}

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
func (s *Store) meter(w *write, head chat.Conversation, at place) (refused *outcome) {
	if s.perSecond == 0 {
		return nil
	}
	now := s.db.Now()
	w.fullAt = s.filled(head.FullAt, w.message, now)
	taken, most := s.taken(head.FullAt, now), s.most(kilobytes(w.message), at)
	over := taken + min(most, s.takes(kilobytes(w.message))) - most
	if over <= 0 || !w.mayWait() {
		return nil
	}
	// Until half of it is back, so that not every token is asked for by everyone.
	wait := max(taken-s.burst()/2, over)
	if taken+s.takes(1) > s.most(1, at) { // for small messages too
		s.heads.full(w.message.ConversationID, now.Add(wait))
	}
	return &outcome{full: 1, err: s.errFullFor(w.message.ConversationID, wait)}
}

// takesNoMore is meter's refusal of a message that others may commit.
func (s *Store) takesNoMore(w write, head chat.Conversation, at place, so *metric.Effort) error {
	refused := s.meter(&w, head, at)
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
	return int((s.burst() - s.taken(head.FullAt, s.db.Now())) / s.takes(1))
}

// nearFull reports whether the last message found half of the bucket taken, or more.
func (s *Store) nearFull(head chat.Conversation) bool {
	return s.perSecond > 0 && s.taken(head.FullAt, time.UnixMilli(head.UpdatedAt)) > s.burst()/2
}

// filled is when a bucket will be full again, once a message is taken out of it too, in
// µs. What may not wait can take more than there is. Where there is no bound it stays as
// it is.
func (s *Store) filled(fullAt int64, m chat.Message, now time.Time) int64 {
	if s.perSecond == 0 {
		return fullAt
	}
	return now.Add(min(s.taken(fullAt, now)+s.takes(kilobytes(m)), s.burst()*3/2)).UnixMicro()
}

// taken is what is out of a bucket, as the time in which it comes in.
func (s *Store) taken(fullAt int64, now time.Time) time.Duration {
	out := time.UnixMicro(fullAt).Sub(now)
	if out > s.burst()*3/2+clockSlack {
		return 0 // or, by a clock that is wrong, the conversation would be shut until that time
	}
	return max(0, out)
}

// takes is the time in which so many tokens come in, but for what is more than all of
// them.
func (s *Store) takes(tokens int) time.Duration {
	return min(s.burst(), time.Duration(tokens)*time.Second/time.Duration(s.perSecond))
}

// mayWait reports whether the write is one that may be refused for what others wrote.
func (w write) mayWait() bool {
	return w.message.Event == nil || w.message.Event.Kind == chat.EventEdit
}

// kilobytes is what an entry counts for.
func kilobytes(m chat.Message) int { return (weight(m) + 1023) / 1024 }

// errFullFor asks to come again when there is room, and not sooner than in half a second:
// of those who are too many each would come again and again. Those who were refused
// together do not come back together.
func (s *Store) errFullFor(conversationID chat.ConversationID, wait time.Duration) error {
	wait = max(wait, time.Second/2) + rand.N(time.Second/2) //nolint:gosec // jitter is no secret
	return chat.FullFor(wait, "conversation %s takes %d messages a second, of 1 KB each, from all its senders; send again in %d ms with the same clientMsgId",
		conversationID, s.perSecond, wait.Milliseconds())
}

// place is where a message is that asks for room.
type place int

const (
	alone      place = iota // to be written by itself
	beforeLane              // about to be put into the lane
	inLane                  // waiting there
)

// most is how far a message may empty the bucket. Those who wait in the lane may take all
// of it: a quarter is left to them, for if they were many they would all wait until their
// time is up. Half is left to the small ones, for a large one takes the room of many.
func (s *Store) most(kilobytes int, at place) time.Duration {
	switch {
	case kilobytes > 1 && at != inLane:
		return s.burst() / 2
	case at == beforeLane:
		return s.burst() * 3 / 4
	}
	return s.burst()
}
