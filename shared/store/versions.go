package store

import (
	"context"
	"maps"
	"slices"

	"inorder/shared/chat"
)

// show makes of messages what one sees of them who reads them as of a time of
// membership: the content of then, and none that is about another time.
func (s *Store) show(ctx context.Context, conversationID string, known map[int64]messageItem, during chat.Range) error {
	if err := s.asOf(ctx, conversationID, known, during.To); err != nil {
		return err
	}
	for seq, m := range known {
		m.Message = m.In(during)
		if m.earlier || m.Withheld { // what is shown is not what was measured
			size, err := m.Size()
			if err != nil {
				return err
			}
			m.size = size + len(",")
		}
		known[seq] = m
	}
	return nil
}

// asOf gives messages of a group the content they had when the ledger ended with
// seq end, for nobody is shown what was made of a message after one's leaving. Only
// where there was a later edit is anything read, unless it is at hand: the edit
// before the end, or the first of all, which keeps what it replaced. Where that is
// gone from the ledger the content is withheld. A recall is for everyone.
//
// Nobody leaves a conversation of another kind.
func (s *Store) asOf(ctx context.Context, conversationID string, known map[int64]messageItem, end int64) error {
	if kind, _ := chat.KindOf(conversationID); kind != chat.Group {
		return nil
	}
	var later []messageItem
	for _, m := range known {
		if m.editedAfter(end) {
			later = append(later, m)
		}
	}
	events, err := s.editsOf(ctx, conversationID, later, known, end)
	if err != nil {
		return err
	}
	for _, m := range later {
		edits := m.editsUntil(end)
		event, found := events[m.sourceAt(end)]
		switch {
		case found && edits > 0:
			m.show(content{Text: event.Text, Data: event.Data})
		case found && event.Original != nil:
			m.show(*event.Original)
		default:
			m.show(content{})
			m.Withheld = event.Status != chat.Recalled
		}
		if found {
			m.Status = event.Status // recalled since the message was read
		}
		m.Version, m.earlier = int64(edits)+1, true
		known[m.Seq] = m
	}
	return nil
}

// editsOf gives the events that the content of messages as of end comes from, by
// seq; known are those at hand.
func (s *Store) editsOf(ctx context.Context, conversationID string, messages []messageItem, known map[int64]messageItem, end int64) (map[int64]messageItem, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	events := maps.Clone(known)
	var missing []int64
	for _, m := range messages {
		if _, ok := known[m.sourceAt(end)]; !ok {
			missing = append(missing, m.sourceAt(end))
		}
	}
	for seqs := range slices.Chunk(missing, maxTransactGet) {
		if _, err := s.lookUp(ctx, conversationID, seqs, events); err != nil {
			return nil, err
		}
	}
	return events, nil
}

// editedAfter reports whether the content is from after the ledger ended with seq
// end.
func (mi messageItem) editedAfter(end int64) bool {
	return mi.Status == chat.Normal && mi.editsUntil(end) < len(mi.Edits)
}

// editsUntil is how many edits the message had when the ledger ended with seq end.
func (mi messageItem) editsUntil(end int64) int {
	n, _ := slices.BinarySearch(mi.Edits, end+1)
	return n
}

// sourceAt is the seq of the event that has the content as of end.
func (mi messageItem) sourceAt(end int64) int64 {
	return mi.Edits[max(0, mi.editsUntil(end)-1)]
}
