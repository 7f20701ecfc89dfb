package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"github.com/inorder-im/inorder/shared/chat"
)

// Publication is a message that the product itself writes into a system
// conversation.
type Publication struct {
	Key         string   // the business key: the conversation is system:<key>
	Title       string   // for the first message, which makes the conversation
	Recipients  []string // who reads it from this message on, beside those who do already
	ClientMsgID string   // idempotency key, among all publications
	Message     chat.Message
}

// Publish appends a message to a system conversation, which the first one
// creates. It is idempotent on ClientMsgID as Append is; the recipients, in any
// order, are part of the content.
//
// Errors of type *chat.Error: what Message.Validate refuses, Limit for more than
// chat.MaxRosterChange recipients or what a quota does not allow, NotFound if there is
// no such conversation and no recipient to make one for, IdempotencyConflict, Busy.
func (s *Store) Publish(ctx context.Context, p Publication) (Committed, error) {
	if len(p.Recipients) > 0 {
		if err := chat.ValidateMembers("recipients", p.Recipients); err != nil {
			return Committed{}, err
		}
	}
	if p.Title != "" {
		if err := chat.ValidateTitle("title", p.Title); err != nil {
			return Committed{}, err
		}
	}
	m := p.Message
	m.ConversationID = chat.SystemID(p.Key)
	m.ClientMsgID = p.ClientMsgID
	m.SenderID = chat.SystemSender
	m = s.stamp(m)
	content, err := m.Fingerprint()
	if err != nil {
		return Committed{}, cmp.Or(m.Validate(), err) // data that is no JSON
	}
	// Under the same key for other recipients, it would never reach them.
	fingerprint := chat.LengthPrefixed(append([]string{content}, slices.Sorted(slices.Values(p.Recipients))...)...)
	w := write{message: m, fingerprint: fingerprint, trusted: true}
	if len(p.Recipients) > 0 {
		w.create = &creation{head: chat.Conversation{ConversationID: m.ConversationID, Kind: chat.KindSystem, Title: p.Title}}
		for _, id := range p.Recipients {
			w.create.members = append(w.create.members, newMember{userID: id, role: chat.RolePlain})
		}
		w.change = func(ctx context.Context, head chat.Conversation, _ chat.Member) (changesFunc, error) {
			if head.LastSeq == 0 {
				return nothingElse, s.systemMayGrow(ctx, head, p.Recipients) // created with them
			}
			return s.newRecipients(ctx, head, p.Recipients)
		}
	}
	return s.commit(ctx, w)
}

// newRecipients adds those who do not read the conversation yet: with the message, or
// before it where they join a crowd.
func (s *Store) newRecipients(ctx context.Context, head chat.Conversation, userIDs []string) (changesFunc, error) {
	if s.joinsQuietly(head, userIDs) {
		_, err := s.admitQuietly(ctx, head.ConversationID, userIDs, "recipients")
		if err != nil {
			return nil, err
		}
		return nothingElse, nil
	}
	present, err := s.membersAmong(ctx, head.ConversationID, userIDs)
	if err != nil {
		return nil, err
	}
	var added []string
	for _, id := range userIDs {
		if _, ok := present[id]; !ok {
			added = append(added, id)
		}
	}
	if len(added) == 0 {
		return nothingElse, nil
	}
	if err := s.systemMayGrow(ctx, head, added); err != nil {
		return nil, err
	}
	return s.joining(ctx, head.ConversationID, added, 0)
}

// TellErased writes the event that what a user has sent to a conversation, up to the
// message upTo, has no content any more. It does so in a dissolved group too. Whoever
// begins with the same message at the same time writes one. NotFound (*chat.Error) where
// there is no head.
func (s *Store) TellErased(ctx context.Context, conversationID chat.ConversationID, userID, upTo string) (Committed, error) {
	sum := sha256.Sum256([]byte(chat.LengthPrefixed(userID, upTo)))
	return s.commit(ctx, write{
		message: s.stamp(chat.Message{
			ConversationID: conversationID,
			SenderID:       chat.SystemSender,
			ClientMsgID:    "erase:" + hex.EncodeToString(sum[:16]),
			MessageType:    chat.TypeEvent,
			Event:          &chat.Event{Kind: chat.EventErase, Erased: userID},
		}),
		trusted:  true,
		anyState: true,
	})
}
