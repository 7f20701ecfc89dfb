package store

import (
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// Sent gives the receipt as the protocol has it.
func (r Receipt) Sent() wire.Sent {
	return wire.Sent{
		ConversationID: r.ConversationID,
		Seq:            r.Seq,
		MessageID:      r.MessageID,
		ServerTime:     r.ServerTime,
		Duplicate:      r.Duplicate,
	}
}

// Listed gives the line as the protocol has it.
func (l Line) Listed() wire.Conversation {
	return wire.Conversation{
		ConversationID: l.Conversation.ConversationID,
		Kind:           l.Conversation.Kind,
		Title:          l.Conversation.Title,
		Peer:           l.Peer,
		State:          l.Conversation.State,
		Owner:          l.Conversation.Owner,
		Visibility:     l.Conversation.Visibility,
		MemberCount:    l.Conversation.MemberCount,
		LastSeq:        l.MaxSeq,
		ReadSeq:        l.ReadSeq,
		DeliveredSeq:   l.DeliveredSeq,
		ClearedSeq:     l.ClearedSeq,
		LeftSeq:        l.LeftSeq,
		Unread:         l.Unread,
		UpdatedAt:      l.Conversation.UpdatedAt,
		LastMessage:    preview(l.Last),
	}
}

func preview(m *chat.Message) *wire.MessagePreview {
	if m == nil {
		return nil
	}
	return &wire.MessagePreview{
		Seq:         m.Seq,
		SenderID:    m.SenderID,
		MessageType: m.MessageType,
		Text:        firstRunes(m.Text, wire.PreviewRunes),
		Status:      m.Status,
		ServerTime:  m.ServerTime,
	}
}

func firstRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}
