package store

import (
	"context"

	"github.com/oklog/ulid/v2"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/metric"
)

// Committed says what a message became, and what this request took, which is told beside
// an error too.
type Committed struct {
	chat.Sent
	metric.Effort
}

// Append commits a message and gives it its seq. The message carries everything
// but seq, messageId, serverTime, version and status, which are made here.
//
// With to, the message goes to the single conversation of the sender and that
// user, which its first message creates, unless the Store is closed; without, to
// m.ConversationID.
//
// Append returns only after the commit, or with the first result if this
// (senderId, clientMsgId) was committed before, even where the sender has lost
// the right to send since. Errors the caller can show are of type *chat.Error:
// what Message.Validate refuses, NotFound for a conversation that does not exist
// or that the sender is no member of, Forbidden for a system conversation or to
// create one where the Store is closed, Dissolved, IdempotencyConflict, Limit in a
// conversation that has reached chat.MaxSeq, and Busy when contention outlasted the
// context's deadline, or where the conversation takes no more (WithConversationRate).
// The message may then be committed or not, and the same clientMsgId finds out. Any
// other error is a fault.
func (s *Store) Append(ctx context.Context, m chat.Message, to string) (Committed, error) {
	if to != "" {
		if err := chat.ValidateUserID("to", to); err != nil {
			return Committed{}, err
		}
		m.ConversationID = chat.SingleID(m.SenderID, to)
	}
	m = s.stamp(m)
	w := write{message: m, to: to}
	if to != "" && !s.closed {
		w.create = singleOf(m.ConversationID, m.SenderID, to)
	}
	if m.ReplyTo != nil {
		w.change = s.replyTo(m)
	}
	return s.commit(ctx, w)
}

// stamp gives a message what the server gives it, but for the seq.
func (s *Store) stamp(m chat.Message) chat.Message {
	now := s.db.Now()
	return m.Stamped(ulid.MustNewDefault(now).String(), now)
}

// replyTo checks that the message answered exists and that the sender sees it.
func (s *Store) replyTo(m chat.Message) changeFunc {
	return func(ctx context.Context, head chat.Conversation, _ chat.Member) (changesFunc, error) {
		_, err := s.target(ctx, m.SenderID, head, m.ReplyTo.Seq, m.ReplyTo.MessageID, "replyTo")
		if err != nil {
			return nil, err
		}
		return nothingElse, nil
	}
}

func singleOf(conversationID chat.ConversationID, userID, to string) *creation {
	c := &creation{
		head:    chat.Conversation{ConversationID: conversationID, Kind: chat.KindSingle},
		members: []newMember{{userID: userID, role: chat.RolePlain, peer: to}},
	}
	if to != userID {
		c.members = append(c.members, newMember{userID: to, role: chat.RolePlain, peer: userID})
	}
	return c
}
