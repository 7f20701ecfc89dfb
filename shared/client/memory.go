package client

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/inorder-im/inorder/shared/chat"
)

// Memory is a Store that lasts as long as the program. It holds every message.
type Memory struct {
	mu            sync.RWMutex
	userID        string
	syncCursor    int64
	conversations map[chat.ConversationID]Conversation
	ledgers       map[chat.ConversationID]*memoryLedger
	orphans       map[chat.ConversationID][]chat.Message // by seq and id
	outbox        map[string]OutboxEntry
}

type memoryLedger struct {
	messages  []chat.Message    // by seq
	revisions map[int64][]int64 // the seqs of the events about a target
}

// NewMemory makes an empty store.
func NewMemory() *Memory {
	return &Memory{
		conversations: map[chat.ConversationID]Conversation{},
		ledgers:       map[chat.ConversationID]*memoryLedger{},
		orphans:       map[chat.ConversationID][]chat.Message{},
		outbox:        map[string]OutboxEntry{},
	}
}

// Load is Store.Load.
func (s *Memory) Load(_ context.Context, userID string) (State, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.userID != "" && s.userID != userID {
		return State{}, fmt.Errorf("the store is of user %q, not of %q", s.userID, userID)
	}
	s.userID = userID
	state := State{SyncCursor: s.syncCursor}
	for _, id := range slices.Sorted(maps.Keys(s.conversations)) {
		state.Conversations = append(state.Conversations, cloned(s.conversations[id]))
	}
	for _, id := range slices.Sorted(maps.Keys(s.ledgers)) {
		above := s.ledgers[id].after(s.conversations[id].MaxContiguousSeq)
		state.Buffered = append(state.Buffered, above...)
	}
	state.Outbox = slices.SortedFunc(maps.Values(s.outbox), func(a, b OutboxEntry) int {
		return cmp.Compare(a.Order, b.Order)
	})
	return state, nil
}

// Commit is Store.Commit.
func (s *Memory) Commit(ctx context.Context, b Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, span := range b.Orphan {
		s.orphan(span)
	}
	for _, span := range b.OrphanDelete {
		s.orphans[span.ConversationID] = slices.DeleteFunc(s.orphans[span.ConversationID], func(m chat.Message) bool { return span.Has(m.Seq) })
	}
	for _, span := range b.Delete {
		if l := s.ledgers[span.ConversationID]; l != nil {
			l.remove(span.Range)
		}
	}
	for _, m := range b.Messages {
		l := s.ledgers[m.ConversationID]
		if l == nil {
			l = &memoryLedger{revisions: map[int64][]int64{}}
			s.ledgers[m.ConversationID] = l
		}
		l.put(m)
	}
	for _, c := range b.Conversations {
		s.conversations[c.ConversationID] = cloned(c)
	}
	for _, e := range b.OutboxPut {
		s.outbox[e.ClientMsgID] = e
	}
	for _, id := range b.OutboxDelete {
		delete(s.outbox, id)
	}
	if b.SyncCursor != nil {
		s.syncCursor = *b.SyncCursor
	}
	return nil
}

// Messages is Store.Messages.
func (s *Memory) Messages(_ context.Context, conversationID chat.ConversationID, afterSeq, throughSeq int64, limit int) ([]chat.Message, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	l := s.ledgers[conversationID]
	if l == nil {
		return nil, nil
	}
	found := l.after(afterSeq)
	if end, _ := seqIndex(found, throughSeq+1); end < len(found) {
		found = found[:end]
	}
	return slices.Clone(found[:min(limit, len(found))]), nil
}

// orphan sets a stretch aside.
func (s *Memory) orphan(span Span) {
	l := s.ledgers[span.ConversationID]
	if l == nil {
		return
	}
	aside := s.orphans[span.ConversationID]
	for _, m := range l.after(span.From - 1) {
		if m.Seq > span.To {
			break
		}
		if !slices.ContainsFunc(aside, func(other chat.Message) bool { return other.MessageID == m.MessageID }) {
			aside = append(aside, m)
		}
	}
	slices.SortFunc(aside, func(a, b chat.Message) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.MessageID, b.MessageID))
	})
	s.orphans[span.ConversationID] = aside
	l.remove(span.Range)
}

// Orphans is Store.Orphans.
func (s *Memory) Orphans(_ context.Context, conversationID chat.ConversationID) ([]chat.Message, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.orphans[conversationID]), nil
}

// Revisions is Store.Revisions.
func (s *Memory) Revisions(_ context.Context, conversationID chat.ConversationID, targetSeq int64) ([]chat.Message, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	l := s.ledgers[conversationID]
	if l == nil {
		return nil, nil
	}
	var events []chat.Message
	for _, seq := range l.revisions[targetSeq] {
		if i, ok := seqIndex(l.messages, seq); ok {
			events = append(events, l.messages[i])
		}
	}
	return events, nil
}

func (l *memoryLedger) after(seq int64) []chat.Message {
	i, _ := seqIndex(l.messages, seq+1)
	return l.messages[i:]
}

func (l *memoryLedger) put(m chat.Message) {
	if target, ok := m.Target(); ok {
		seqs := l.revisions[target]
		if i, known := slices.BinarySearch(seqs, m.Seq); !known {
			l.revisions[target] = slices.Insert(seqs, i, m.Seq)
		}
	}
	i, known := seqIndex(l.messages, m.Seq)
	switch {
	case known:
		l.messages[i] = m
	case i == len(l.messages):
		l.messages = append(l.messages, m)
	default:
		l.messages = slices.Insert(l.messages, i, m)
	}
}

func (l *memoryLedger) remove(r chat.Range) {
	from, _ := seqIndex(l.messages, r.From)
	to, _ := seqIndex(l.messages, r.To+1)
	if from >= to {
		return
	}
	for _, m := range l.messages[from:to] {
		if target, ok := m.Target(); ok {
			l.revisions[target] = slices.DeleteFunc(l.revisions[target], func(seq int64) bool { return seq == m.Seq })
			if len(l.revisions[target]) == 0 {
				delete(l.revisions, target)
			}
		}
	}
	l.messages = slices.Delete(l.messages, from, to)
}

// seqIndex is where the message with this seq is, or would be.
func seqIndex(messages []chat.Message, seq int64) (int, bool) {
	return slices.BinarySearchFunc(messages, seq, func(m chat.Message, seq int64) int { return cmp.Compare(m.Seq, seq) })
}

func cloned(c Conversation) Conversation {
	c.Receipts = maps.Clone(c.Receipts)
	if c.LastMessage != nil {
		preview := *c.LastMessage
		c.LastMessage = &preview
	}
	return c
}
