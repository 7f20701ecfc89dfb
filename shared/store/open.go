package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/inorder-im/inorder/shared/chat"
)

// OpenSingle opens the single conversation of two users, for the product's own
// side: it asks for no one's right, and does so where the Store is closed. The two
// may be one and the same, for notes to oneself. Its first message is the event
// that both joined.
//
// A conversation that is there already, by whomever it was opened, stays as it
// is: what is committed then is a Duplicate, without seq and messageId. So it may be
// repeated at will.
//
// Errors of type *chat.Error: BadRequest for what is no user id, Busy.
func (s *Store) OpenSingle(ctx context.Context, userID, otherID string) (Committed, error) {
	for _, id := range []string{userID, otherID} {
		if err := chat.ValidateUserID("between", id); err != nil {
			return Committed{}, err
		}
	}
	id := chat.SingleID(userID, otherID)
	c := singleOf(id, userID, otherID)
	event := chat.Event{Kind: chat.EventMembers}
	for _, m := range c.members {
		event.Added = append(event.Added, m.userID)
	}
	_, digest, _ := strings.Cut(string(id), ":")
	by := Request{UserID: chat.SystemSender, ClientMsgID: "open:" + digest}
	return s.commit(ctx, write{
		message: s.event(by, id, event),
		// Named the other way round, the two are still the same.
		fingerprint: string(id),
		create:      c,
		trusted:     true,
		change: func(_ context.Context, head chat.Conversation, _ chat.Member) (changesFunc, error) {
			if head.LastSeq != 0 {
				return nil, &doneError{Committed{Sent: chat.Sent{ConversationID: id}}}
			}
			return nothingElse, nil
		},
	})
}

// OpenGroup makes a group as CreateGroup does, which r.UserID owns, for the
// product's own side: it does so where the Store is closed, and does not count it
// as one of that user's. Its first message is of chat.SystemSender.
//
// It is idempotent on r.ClientMsgID, for each owner: the product's keys are its
// own, and one that the owner has used is free.
func (s *Store) OpenGroup(ctx context.Context, r Request, title string, userIDs []string, v chat.Visibility) (Committed, error) {
	if err := cmp.Or(chat.ValidateUserID("group.owner", r.UserID), chat.ValidateClientMsgID("clientMsgId", r.ClientMsgID)); err != nil {
		return Committed{}, err
	}
	w, err := s.newGroup(r, title, userIDs, v)
	if err != nil {
		return Committed{}, err
	}
	digest := sha256.Sum256([]byte(chat.LengthPrefixed(r.UserID, r.ClientMsgID)))
	w.message.SenderID, w.message.SenderDeviceID = chat.SystemSender, ""
	w.message.ClientMsgID = "group:" + hex.EncodeToString(digest[:16])
	return s.commit(ctx, w)
}

// newGroup is the first message of a group.
func (s *Store) newGroup(r Request, title string, userIDs []string, v chat.Visibility) (write, error) {
	if err := validateGroup(r, title, userIDs, v); err != nil {
		return write{}, err
	}
	all := append([]string{r.UserID}, userIDs...)
	if len(all) > s.maxMembers {
		return write{}, s.errTooLarge()
	}
	event := s.event(r, "", chat.Event{Kind: chat.EventMembers, Added: all, Owner: r.UserID, Title: title})
	// The request has no conversation id, so it is not part of what a retry repeats.
	fingerprint, err := event.Fingerprint()
	if err != nil {
		return write{}, err
	}
	event.ConversationID = chat.ConversationID(string(chat.KindGroup) + ":" + ulid.MustNewDefault(s.db.Now()).String())
	w := write{
		message:     event,
		fingerprint: fingerprint + string(v),
		create: &creation{head: chat.Conversation{
			ConversationID: event.ConversationID,
			Kind:           chat.KindGroup,
			Title:          title,
			Owner:          r.UserID,
			Visibility:     v,
		}},
		change: func(ctx context.Context, head chat.Conversation, _ chat.Member) (changesFunc, error) {
			return nothingElse, s.mayGrow(ctx, head, all, "members")
		},
	}
	for _, id := range all {
		role := chat.RolePlain
		if id == r.UserID {
			role = chat.RoleOwner
		}
		w.create.members = append(w.create.members, newMember{userID: id, role: role})
	}
	return w, nil
}
