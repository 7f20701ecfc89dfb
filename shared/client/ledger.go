package client

import (
	"slices"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// ledger is how far a device is in one conversation. It is a value: each method
// gives a step to the next one, which counts once the step is stored. It does no
// I/O and knows no time.
type ledger struct {
	contiguous int64          // every seq up to it is stored, or not ours to see
	seen       int64          // the highest seq that anyone said was committed
	cleared    int64          // up to here the user wants to see nothing
	early      []chat.Message // by seq, all above contiguous+1: the reorder buffer
	own        []int64        // of the user's own writes, not in order when they were answered
}

// step is what has to be stored for next to become true.
type step struct {
	next     ledger
	admitted []chat.Message // ascending: the messages that are in order now
	held     []chat.Message // newly in the reorder buffer
	dropped  []int64        // not in the reorder buffer any more, and not admitted
	repeats  int            // messages that were there already
	overflow int            // messages that the reorder buffer had no room for
	hidden   bool           // what follows the position it started from is not ours to see
}

// moved reports whether there is anything to store besides what was seen.
func (s step) moved(from ledger) bool {
	return s.next.contiguous != from.contiguous || len(s.held) > 0 || len(s.dropped) > 0
}

// gap reports whether something committed has not arrived yet.
func (l ledger) gap() bool { return l.seen > l.contiguous }

func (l *ledger) see(seq int64) {
	if seq > l.seen && seq <= chat.MaxSeq {
		l.seen = seq
	}
}

// wrote notes that a write of the user's own is committed with this seq.
func (l *ledger) wrote(seq int64) {
	l.see(seq)
	l.own = slices.DeleteFunc(slices.Clone(l.own), func(other int64) bool { return other <= l.contiguous || other == seq })
	if seq > l.contiguous {
		l.own = append(l.own, seq)
	}
}

// ownAbove counts the seqs above after, up to through, that are the user's own, or
// news to nobody, and not in order yet.
func (l ledger) ownAbove(userID string, after, through int64) (n int64) {
	after = max(after, l.contiguous)
	for _, seq := range l.own {
		if _, early := seqIndex(l.early, seq); !early && after < seq && seq <= through {
			n++
		}
	}
	for _, m := range l.early {
		if (m.SenderID == userID || m.Is(chat.EventErase)) && after < m.Seq && m.Seq <= through {
			n++
		}
	}
	return n
}

// push takes pushed messages, in any order and with repeats. The reorder buffer
// may grow by room messages; what does not fit is left to sync, the highest seqs
// first, for they are needed last.
func (l ledger) push(messages []chat.Message, committedMaxSeq int64, room int) step {
	s := step{next: l}
	n := &s.next
	n.early = slices.Clone(l.early)
	n.see(committedMaxSeq)
	added := map[int64]bool{}
	for _, m := range messages {
		n.see(m.Seq)
		if m.Seq == n.contiguous+1 {
			n.admit(&s, m)
			n.drain(&s)
			continue
		}
		i, known := seqIndex(n.early, m.Seq)
		if m.Seq <= n.contiguous || known {
			s.repeats++
			continue
		}
		if room <= 0 {
			s.overflow++
			if i == len(n.early) {
				continue
			}
			last := n.early[len(n.early)-1].Seq
			n.early = n.early[:len(n.early)-1]
			s.dropped = append(s.dropped, last)
			delete(added, last)
			room++
		}
		n.early = slices.Insert(n.early, i, m)
		added[m.Seq] = true
		room--
	}
	for _, m := range n.early {
		if added[m.Seq] {
			s.held = append(s.held, m)
		}
	}
	return s
}

// page takes a sync answer that passed check, asked for from contiguous or from
// a value it had before. It is the authority on its range: a seq up to nextSeq
// that it lacks is not ours to see, whatever a push said.
func (l ledger) page(p wire.Synced) step {
	s := step{next: l, hidden: p.FirstSeq > l.contiguous+1}
	n := &s.next
	n.early = slices.Clone(l.early)
	for _, m := range p.Messages {
		if m.Seq > l.contiguous {
			n.admit(&s, m)
		}
	}
	n.contiguous = max(l.contiguous, p.NextSeq)
	for len(n.early) > 0 && n.early[0].Seq <= n.contiguous {
		if _, replaced := seqIndex(p.Messages, n.early[0].Seq); !replaced {
			s.dropped = append(s.dropped, n.early[0].Seq)
		}
		n.early = n.early[1:]
	}
	n.see(p.NextSeq)
	n.see(p.CommittedMaxSeq)
	n.drain(&s)
	return s
}

// settle takes the server's word that there is nothing above committedMaxSeq, in
// answer to a question asked when seenWhenAsked was seen. A higher seq that was
// heard of before the question is then not for us, such as the head of a group
// that the user left, and waiting for it would never end.
func (l ledger) settle(committedMaxSeq, seenWhenAsked int64) step {
	s := step{next: l}
	n := &s.next
	n.early = nil
	for _, m := range l.early {
		if m.Seq > committedMaxSeq && m.Seq <= seenWhenAsked {
			s.dropped = append(s.dropped, m.Seq)
		} else {
			n.early = append(n.early, m)
		}
	}
	if n.seen <= seenWhenAsked {
		n.seen = n.contiguous
		if len(n.early) > 0 {
			n.seen = n.early[len(n.early)-1].Seq
		}
	}
	return s
}

// clear notes that the user wants to see nothing up to seq.
func (l ledger) clear(seq int64) ledger {
	l.cleared = max(l.cleared, seq)
	return l
}

func (l *ledger) admit(s *step, m chat.Message) {
	l.contiguous = m.Seq
	if m.Seq > l.cleared {
		s.admitted = append(s.admitted, m)
	} else {
		s.dropped = append(s.dropped, m.Seq) // it may be in the reorder buffer
	}
}

func (l *ledger) drain(s *step) {
	for len(l.early) > 0 && l.early[0].Seq == l.contiguous+1 {
		l.admit(s, l.early[0])
		l.early = l.early[1:]
	}
}

// check refuses a sync answer that does not do what the protocol promises:
// account for each seq after the asked one up to nextSeq.
func check(conversationID chat.ConversationID, after int64, p wire.Synced) error {
	if p.NextSeq < after || p.NextSeq > chat.MaxSeq || p.CommittedMaxSeq < 0 || p.CommittedMaxSeq > chat.MaxSeq {
		return violated("sync of %s after %d answered nextSeq %d and committedMaxSeq %d", conversationID, after, p.NextSeq, p.CommittedMaxSeq)
	}
	if p.NextSeq == after && p.CommittedMaxSeq > after {
		return violated("sync of %s after %d did not move, though %d is committed", conversationID, after, p.CommittedMaxSeq)
	}
	next := max(after+1, p.FirstSeq)
	skipped := slices.Sorted(slices.Values(p.Skipped))
	passSkipped := func() {
		for len(skipped) > 0 && skipped[0] <= next {
			if skipped[0] == next {
				next++
			}
			skipped = skipped[1:]
		}
	}
	for i, m := range p.Messages {
		if err := plausible(conversationID, m); err != nil {
			return err
		}
		passSkipped()
		if m.Seq != next {
			return violated("sync of %s after %d has seq %d at place %d, where %d is due", conversationID, after, m.Seq, i, next)
		}
		next++
	}
	passSkipped()
	if p.NextSeq > after && next != p.NextSeq+1 {
		return violated("sync of %s after %d accounts for seqs up to %d, not to nextSeq %d", conversationID, after, next-1, p.NextSeq)
	}
	return nil
}

// plausible refuses a message that cannot be one of this conversation.
func plausible(conversationID chat.ConversationID, m chat.Message) error {
	if m.ConversationID != conversationID || m.Seq < 1 || m.Seq > chat.MaxSeq || m.MessageID == "" {
		return violated("a message of conversation %q with seq %d and messageId %q came as one of %q", m.ConversationID, m.Seq, m.MessageID, conversationID)
	}
	return nil
}
