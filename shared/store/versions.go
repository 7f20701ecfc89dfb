package store

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// show makes of messages what one sees of them who reads them as of a time of
// membership: the content of then, and none that is about another time.
func (s *Store) show(ctx context.Context, conversationID chat.ConversationID, known map[int64]table.Message, during chat.Range) error {
	if err := s.asOf(ctx, conversationID, known, during.To); err != nil {
		return err
	}
	for seq, m := range known {
		m.Message = m.In(during)
		if m.Earlier || m.Withheld { // what is shown is not what was measured
			size, err := m.Size()
			if err != nil {
				return err
			}
			m.Bytes = size + len(",")
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
func (s *Store) asOf(ctx context.Context, conversationID chat.ConversationID, known map[int64]table.Message, end int64) error {
	if kind, _ := conversationID.Kind(); kind != chat.KindGroup {
		return nil
	}
	var later []table.Message
	for _, m := range known {
		if editedAfter(m, end) {
			later = append(later, m)
		}
	}
	events, err := s.editsOf(ctx, conversationID, later, known, end)
	if err != nil {
		return err
	}
	for _, m := range later {
		edits := editsUntil(m, end)
		event, found := events[sourceAt(m, end)]
		switch {
		case found && edits > 0:
			setContent(&m, table.Content{Text: event.Text, Data: event.Data})
		case found && event.Original != nil:
			setContent(&m, *event.Original)
		default:
			setContent(&m, table.Content{})
			m.Withheld = event.Status != chat.StatusRecalled
		}
		if found {
			m.Status = event.Status // recalled since the message was read
		}
		m.Version, m.Earlier = int64(edits)+1, true
		known[m.Seq] = m
	}
	return nil
}

// editsOf returns the events that the content of messages as of end comes from, by
// seq; known are those at hand.
func (s *Store) editsOf(ctx context.Context, conversationID chat.ConversationID, messages []table.Message, known map[int64]table.Message, end int64) (map[int64]table.Message, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	events := maps.Clone(known)
	var missing []int64
	for _, m := range messages {
		if _, ok := known[sourceAt(m, end)]; !ok {
			missing = append(missing, sourceAt(m, end))
		}
	}
	for seqs := range slices.Chunk(missing, table.MaxTransactGet) {
		if _, err := s.db.LookUp(ctx, conversationID, seqs, events); err != nil {
			return nil, err
		}
	}
	return events, nil
}

// editedAfter reports whether the content is from after the ledger ended with seq
// end.
func editedAfter(mi table.Message, end int64) bool {
	return mi.Status == chat.StatusNormal && editsUntil(mi, end) < len(mi.Edits)
}

// editsUntil is how many edits the message had when the ledger ended with seq end.
func editsUntil(mi table.Message, end int64) int {
	n, _ := slices.BinarySearch(mi.Edits, end+1)
	return n
}

// sourceAt is the seq of the event that has the content as of end.
func sourceAt(mi table.Message, end int64) int64 {
	return mi.Edits[max(0, editsUntil(mi, end)-1)]
}

// setContent gives a message other content.
func setContent(mi *table.Message, c table.Content) {
	mi.Text, mi.Data, mi.Message.Data = c.Text, c.Data, nil
	if c.Data != "" {
		mi.Message.Data = json.RawMessage(c.Data)
	}
}
