package client

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/inorder-im/inorder/shared/chat"
)

// revised is a conversation's messages while a step is put together: those that
// the step writes, over those that are stored.
type revised struct {
	store          Store
	conversationID chat.ConversationID
	written        map[int64]chat.Message
}

// revise returns the messages that a step writes, ascending: what it admits and
// holds, and the targets of admitted events, as these leave them.
func revise(ctx context.Context, store Store, conversationID chat.ConversationID, s step) ([]chat.Message, error) {
	r := revised{store: store, conversationID: conversationID, written: map[int64]chat.Message{}}
	for _, m := range s.admitted {
		r.written[m.Seq] = m
		if err := r.apply(ctx, m); err != nil {
			return nil, err
		}
	}
	for _, m := range s.held {
		r.written[m.Seq] = m
	}
	return slices.SortedFunc(maps.Values(r.written), func(a, b chat.Message) int { return cmp.Compare(a.Seq, b.Seq) }), nil
}

// apply does to an event's target what the event says. The target may show it
// already, for sync gives messages as they are now: versions decide, and a recall
// is final. A recall takes the content out of the target's edits too, even where
// the target itself is not there.
func (r revised) apply(ctx context.Context, event chat.Message) error {
	seq, ok := event.Target()
	switch {
	case !ok:
		return nil
	case seq == 0:
		return r.erase(ctx, event)
	}
	target, known, err := r.message(ctx, seq)
	if err != nil {
		return err
	}
	recalled := event.Is(chat.EventRecall)
	if known && target.MessageID == event.Event.TargetMessageID {
		changed, ok := target.After(event)
		if ok {
			r.written[seq] = changed
		}
		recalled = recalled || changed.Status == chat.StatusRecalled
	}
	if !recalled {
		return nil
	}
	edits, err := r.events(ctx, seq)
	if err != nil {
		return err
	}
	for _, e := range edits {
		if !e.Is(chat.EventEdit) || e.Event.TargetMessageID != event.Event.TargetMessageID {
			continue
		}
		if emptied, ok := e.Recalled(); ok {
			r.written[e.Seq] = emptied
		}
	}
	return nil
}

// erase takes the content out of all that a user has sent before the event. The whole
// conversation is read for it, which happens once for a user.
func (r revised) erase(ctx context.Context, event chat.Message) error {
	for seq, m := range r.written {
		r.written[seq], _ = m.After(event)
	}
	for after := int64(0); ; {
		page, err := r.store.Messages(ctx, r.conversationID, after, event.Seq-1, readPage)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, m := range page {
			after = m.Seq
			if _, newer := r.written[m.Seq]; newer {
				continue
			}
			if erased, ok := m.After(event); ok {
				r.written[m.Seq] = erased
			}
		}
	}
}

func (r revised) message(ctx context.Context, seq int64) (chat.Message, bool, error) {
	if m, ok := r.written[seq]; ok {
		return m, true, nil
	}
	found, err := r.store.Messages(ctx, r.conversationID, seq-1, seq, 1)
	if err != nil || len(found) == 0 {
		return chat.Message{}, false, err
	}
	return found[0], true, nil
}

func (r revised) events(ctx context.Context, targetSeq int64) ([]chat.Message, error) {
	events, err := r.store.Revisions(ctx, r.conversationID, targetSeq)
	if err != nil {
		return nil, err
	}
	events = slices.DeleteFunc(events, func(m chat.Message) bool {
		_, newer := r.written[m.Seq]
		return newer
	})
	for _, m := range r.written {
		if target, ok := m.Target(); ok && target == targetSeq {
			events = append(events, m)
		}
	}
	return events, nil
}

// asTold returns messages that came past the ledger as the events in the store
// leave them.
func asTold(ctx context.Context, store Store, messages []chat.Message) error {
	if len(messages) == 0 {
		return nil
	}
	erasures, err := store.Revisions(ctx, messages[0].ConversationID, 0)
	if err != nil {
		return err
	}
	for i := range messages {
		m := &messages[i]
		events, err := store.Revisions(ctx, m.ConversationID, m.Seq)
		if err != nil {
			return err
		}
		for _, e := range slices.Concat(events, erasures) {
			*m, _ = m.After(e)
		}
	}
	return nil
}

// tidy drops the data field that says "none".
func tidy(messages []chat.Message) {
	for i := range messages {
		messages[i].Data = noNull(messages[i].Data)
	}
}

func noNull(data json.RawMessage) json.RawMessage {
	if string(data) == "null" {
		return nil
	}
	return data
}
