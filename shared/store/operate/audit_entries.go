package operate

import (
	"context"
	"fmt"
	"hash/maphash"
	"slices"
	"time"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// entries checks a page of messages: their ids, their idempotency records, and
// what the events among them are about.
func (a *audit) entries(ctx context.Context, entries []table.Message) error {
	live := slices.DeleteFunc(slices.Clone(entries), a.db.Expired) // what is expired may be gone at any moment
	for _, m := range live {
		if other := a.seen.note(m); other != 0 {
			if err := a.sameID(ctx, m, other); err != nil {
				return err
			}
		}
		if m.Status == chat.StatusRecalled && !blank(m) {
			if err := a.notBlank(ctx, m); err != nil {
				return err
			}
		}
	}
	if err := a.records(ctx, live); err != nil {
		return err
	}
	if err := a.erasures(ctx, live); err != nil {
		return err
	}
	return a.events(ctx, live)
}

// erasures looks for content of users that is before the event of their erasure.
func (a *audit) erasures(ctx context.Context, entries []table.Message) error {
	for _, m := range entries {
		if _, noted := a.wrote[m.SenderID]; !noted && !blank(m) && len(a.wrote) < maxWriters {
			a.wrote[m.SenderID] = m.Seq
		}
		if !m.Is(chat.EventErase) {
			continue
		}
		first, wrote := a.wrote[m.Event.Erased]
		delete(a.wrote, m.Event.Erased)
		if !wrote || a.db.Now().Sub(time.UnixMilli(m.ServerTime)) < eraseTime {
			continue
		}
		if err := a.notErased(ctx, m, first); err != nil {
			return err
		}
	}
	return nil
}

func (a *audit) notErased(ctx context.Context, event table.Message, seq int64) error {
	out, err := a.again(ctx, a.getMessage(event.ConversationID, seq))
	if err != nil {
		return err
	}
	now, found, err := message(out[0])
	if err == nil && found && !blank(now) && event.Erases(now.Message) {
		a.add(Violation{
			ConversationID: event.ConversationID, Kind: ViolationNotErased, Seq: seq, UserID: now.SenderID,
			Expected: fmt.Sprintf("no text and no data: the event at seq %d says that they were erased", event.Seq), Found: "content",
		})
	}
	return err
}

// blank reports whether a message has no content.
func blank(mi table.Message) bool { return mi.Text == "" && mi.Data == "" && mi.Original == nil }

// message reads an item that may be nil.
func message(in table.Item) (m table.Message, found bool, err error) {
	if in == nil {
		return table.Message{}, false, nil
	}
	m, err = table.UnmarshalMessage(in)
	return m, err == nil, err
}

// sameID reports a message that has the id of the one at another seq.
func (a *audit) sameID(ctx context.Context, m table.Message, other int64) error {
	out, err := a.again(ctx, a.getMessage(m.ConversationID, other), a.getMessage(m.ConversationID, m.Seq))
	if err != nil {
		return err
	}
	one, found, err := message(out[0])
	if err != nil || !found {
		return err
	}
	two, found, err := message(out[1])
	if err != nil || !found {
		return err
	}
	if one.MessageID == two.MessageID {
		a.duplicateMessage(two, one.Seq)
	}
	return nil
}

func (a *audit) duplicateMessage(m table.Message, other int64) {
	a.add(Violation{
		ConversationID: m.ConversationID, Kind: ViolationDuplicateMessage, Seq: m.Seq, UserID: m.SenderID,
		Expected: "message " + m.MessageID + " under one seq", Found: fmt.Sprintf("it is at seq %d too", other),
	})
}

func (a *audit) notBlank(ctx context.Context, m table.Message) error {
	out, err := a.again(ctx, a.getMessage(m.ConversationID, m.Seq))
	if err != nil {
		return err
	}
	now, found, err := message(out[0])
	if err == nil && found && now.Status == chat.StatusRecalled && !blank(now) {
		a.add(Violation{
			ConversationID: m.ConversationID, Kind: ViolationNotBlank, Seq: m.Seq, UserID: m.SenderID,
			Expected: "no text and no data: the message was recalled", Found: "content",
		})
	}
	return err
}

// records compares messages with their idempotency records.
func (a *audit) records(ctx context.Context, entries []table.Message) error {
	byKey := make(map[string][]table.Message, len(entries))
	var keys []table.Item
	for _, m := range entries {
		key := chat.DedupeKey(m.SenderID, m.ClientMsgID)
		if len(byKey[key]) == 0 {
			keys = append(keys, table.Item{"dedupeKey": table.Str(key)})
		}
		byKey[key] = append(byKey[key], m)
	}
	items, err := a.peek(ctx, a.db.Idempotency, keys)
	if err != nil {
		return err
	}
	right := make(map[string]table.Record, len(items))
	for _, in := range items {
		var r table.Record
		if table.Unmarshal(in, &r) == nil { // else it is looked at again
			right[r.DedupeKey] = r
		}
	}
	for key, messages := range byKey {
		for _, m := range messages {
			if isRecordOf(right[key], m) {
				continue
			}
			if err := a.record(ctx, key, m); err != nil {
				return err
			}
		}
	}
	return nil
}

// isRecordOf reports whether the record is that of the message.
func isRecordOf(r table.Record, m table.Message) bool {
	return r.MessageID == m.MessageID && r.Seq == m.Seq && r.ConversationID == m.ConversationID
}

// record looks again at a message and its record, and tells what is wrong.
func (a *audit) record(ctx context.Context, key string, m table.Message) error {
	out, err := a.again(ctx, a.getMessage(m.ConversationID, m.Seq), a.getRecord(key))
	if err != nil {
		return err
	}
	now, found, err := message(out[0])
	if err != nil || !found || now.MessageID != m.MessageID || a.db.Expired(now) {
		return err // removed meanwhile
	}
	v := Violation{
		ConversationID: m.ConversationID, Kind: ViolationRecordMissing, Seq: m.Seq, UserID: m.SenderID,
		Expected: fmt.Sprintf("an idempotency record of %s that names message %s", m.ClientMsgID, m.MessageID), Found: "none",
	}
	if out[1] == nil {
		a.add(v)
		return nil
	}
	var r table.Record
	if err := table.Unmarshal(out[1], &r); err != nil {
		return a.damaged(err, v)
	}
	if isRecordOf(r, now) {
		return nil
	}
	v.Kind = ViolationRecordMismatch
	v.Found = fmt.Sprintf("it names message %s at seq %d of %s", r.MessageID, r.Seq, r.ConversationID)
	if r.ConversationID == "" || r.ConversationID == m.ConversationID && r.Seq == m.Seq {
		a.add(v)
		return nil
	}
	if out, err = a.again(ctx, a.getMessage(r.ConversationID, r.Seq)); err != nil {
		return err
	}
	other, found, err := message(out[0])
	if err != nil {
		return err
	}
	switch {
	case !found || other.SenderID != m.SenderID || other.ClientMsgID != m.ClientMsgID:
		a.add(v)
	case other.MessageID == m.MessageID && other.ConversationID == m.ConversationID:
		a.duplicateMessage(m, other.Seq)
	default:
		v.Kind = ViolationDuplicateKey
		v.Expected = fmt.Sprintf("one message of the idempotency key %s", m.ClientMsgID)
		v.Found = fmt.Sprintf("another at seq %d of %s", other.Seq, other.ConversationID)
		a.add(v)
	}
	return nil
}

// events compares recalls and edits with the messages they are about.
func (a *audit) events(ctx context.Context, entries []table.Message) error {
	about := map[int64][]table.Message{} // by the target's seq
	var keys []table.Item
	for _, m := range entries {
		if e := m.Event; e == nil || e.Kind != chat.EventRecall && e.Kind != chat.EventEdit {
			continue
		}
		if len(about[m.Event.TargetSeq]) == 0 {
			keys = append(keys, table.MessageKey(m.ConversationID, m.Event.TargetSeq))
		}
		about[m.Event.TargetSeq] = append(about[m.Event.TargetSeq], m)
	}
	items, err := a.peek(ctx, a.db.Messages, keys)
	if err != nil {
		return err
	}
	for _, in := range items {
		target, err := table.UnmarshalMessage(in)
		if err != nil {
			continue // as told of where the ledger has it
		}
		for _, event := range about[target.Seq] {
			if _, _, ok := fits(event, target); ok {
				continue
			}
			if err := a.target(ctx, event); err != nil {
				return err
			}
		}
	}
	return nil
}

// target looks again at an event and its message.
func (a *audit) target(ctx context.Context, event table.Message) error {
	out, err := a.again(ctx, a.getMessage(event.ConversationID, event.Seq), a.getMessage(event.ConversationID, event.Event.TargetSeq))
	if err != nil {
		return err
	}
	now, found, err := message(out[0])
	if err != nil || !found || now.Event == nil {
		return err
	}
	target, found, err := message(out[1])
	if err != nil || !found {
		return err
	}
	if expected, got, ok := fits(now, target); !ok {
		a.add(Violation{
			ConversationID: event.ConversationID, Kind: ViolationEventTarget, Seq: event.Seq, UserID: event.SenderID,
			Expected: fmt.Sprintf("at seq %d %s", target.Seq, expected), Found: got,
		})
	}
	return nil
}

// fits reports whether a message is as an event about it left it, or a later one.
func fits(event, target table.Message) (expected, found string, ok bool) {
	e := event.Event
	switch {
	case target.MessageID != e.TargetMessageID:
		return "message " + e.TargetMessageID, "message " + target.MessageID, false
	case target.Version < e.Version:
		return fmt.Sprintf("version %d or later", e.Version), fmt.Sprintf("version %d", target.Version), false
	case e.Kind == chat.EventRecall && (target.Status != chat.StatusRecalled || !blank(target)):
		return "a recalled message without content", fmt.Sprintf("status %s, content: %t", target.Status, !blank(target)), false
	case e.Kind == chat.EventEdit && target.Status == chat.StatusRecalled && !blank(event):
		return "a message that is not recalled, or no content in the event", "a recalled one", false
	}
	return "", "", true
}

// seenIDs finds messageIds that come twice, in a fixed amount of memory: 1 MB. A
// later one takes the place of another by chance, so twins that are more than
// some ten thousand messages apart may be missed here; the idempotency records
// find those that have their key in common, however far apart.
type seenIDs struct {
	seed  maphash.Seed
	slots [1 << 16]struct {
		hash uint64
		seq  int64
	}
}

func (s *seenIDs) reset() {
	s.seed = maphash.MakeSeed()
	clear(s.slots[:])
}

// note returns the seq of another message that has the same id, most probably, or 0.
func (s *seenIDs) note(m table.Message) int64 {
	hash := maphash.String(s.seed, m.MessageID)
	slot := &s.slots[hash%uint64(len(s.slots))]
	other := slot.seq
	if slot.hash != hash || other == m.Seq {
		other = 0
	}
	slot.hash, slot.seq = hash, m.Seq
	return other
}
