package wire

import (
	"cmp"

	"github.com/inorder-im/inorder/shared/chat"
)

// The Validate methods refuse a request that lacks a field, or has one out of its bounds,
// before anything is looked up. What a message, a name or a title may be is chat's
// affair, and not looked at here. The errors are *chat.Errors, BadRequest with the field.

// Validate refuses a bad request.
func (r Send) Validate() error {
	switch {
	case r.ConversationID == "" && r.To == "":
		return chat.FieldErrorf(chat.CodeBadRequest, "conversationId", "name a conversationId, or in to a user")
	case r.ConversationID != "" && r.To != "":
		return chat.FieldErrorf(chat.CodeBadRequest, "to", "name a conversationId or, in to, a user, not both")
	case r.MessageType == "":
		return chat.FieldErrorf(chat.CodeBadRequest, "messageType", "messageType is missing; use text, image, voice, file or custom")
	case !r.MessageType.Sendable():
		return chat.FieldErrorf(chat.CodeBadRequest, "messageType", "%q cannot be sent; use text, image, voice, file or custom", r.MessageType)
	case r.ClientTime < 0 || r.ClientTime > chat.MaxSeq:
		return chat.FieldErrorf(chat.CodeBadRequest, "clientTime", "clientTime is milliseconds since 1970, from 0 to %d", int64(chat.MaxSeq))
	}
	return nil
}

// Validate refuses a bad request.
func (r Sync) Validate() error {
	return cmp.Or(conversation(r.ConversationID), required("afterSeq", r.AfterSeq, 0), limit(r.Limit, MaxSyncLimit))
}

// Validate refuses a bad request.
func (r History) Validate() error {
	return cmp.Or(conversation(r.ConversationID), optional("beforeSeq", r.BeforeSeq), limit(r.Limit, MaxHistoryLimit))
}

// Validate refuses a bad request.
func (r Ack) Validate() error {
	err := conversation(r.ConversationID)
	if err == nil && r.DeliveredSeq == nil && r.ReadSeq == nil {
		err = chat.FieldErrorf(chat.CodeBadRequest, "readSeq", "say how far in deliveredSeq, readSeq or both")
	}
	return cmp.Or(err, optional("deliveredSeq", r.DeliveredSeq), optional("readSeq", r.ReadSeq))
}

// Validate refuses a bad request.
func (r Recall) Validate() error { return target(r.Seq, r.MessageID) }

// Validate refuses a bad request.
func (r Edit) Validate() error {
	err := target(r.Seq, r.MessageID)
	if err == nil && (r.Version < 1 || r.Version >= chat.MaxSeq) {
		err = chat.FieldErrorf(chat.CodeBadRequest, "version", "say which version you have seen; the first is 1")
	}
	return err
}

func target(seq int64, messageID string) error {
	err := chat.ValidateNumber("seq", seq, 1)
	if err == nil && messageID == "" {
		err = chat.FieldErrorf(chat.CodeBadRequest, "messageId", "messageId is missing")
	}
	return err
}

// Validate refuses a bad request.
func (r Clear) Validate() error {
	return cmp.Or(conversation(r.ConversationID), required("throughSeq", r.ThroughSeq, 1))
}

// Validate refuses a bad request.
func (r CreateGroup) Validate() error {
	if r.Members == nil {
		return chat.FieldErrorf(chat.CodeBadRequest, "members", "members is missing; it is [] for a group of yourself alone")
	}
	return nil
}

// Validate refuses a bad request.
func (r Members) Validate() error {
	return cmp.Or(conversation(r.ConversationID), rosterCursor(r.Cursor))
}

// Validate refuses a bad request.
func (r Receipts) Validate() error {
	return cmp.Or(conversation(r.ConversationID), rosterCursor(r.Cursor), chat.ValidateNumber("seq", r.Seq, 1))
}

// rosterCursor checks the cursor of a page of a roster, which is a user id.
func rosterCursor(cursor string) error {
	if cursor == "" {
		return nil
	}
	return chat.ValidateKnownUserID("cursor", cursor)
}

// Validate refuses a bad request.
func (r Changes) Validate() error { return required("syncCursor", r.SyncCursor, 0) }

// Validate refuses a bad request. What cursors there are is the server's affair.
func (r Conversations) Validate() error { return limit(r.Limit, MaxListLimit) }

func conversation(id chat.ConversationID) error {
	return chat.ValidateConversationID("conversationId", id)
}

// required checks a seq or a cursor that has to be there.
func required(field string, n *int64, least int64) error {
	if n == nil {
		return chat.FieldErrorf(chat.CodeBadRequest, field, "%s is missing", field)
	}
	return chat.ValidateNumber(field, *n, least)
}

// optional checks a seq that may be absent.
func optional(field string, n *int64) error {
	if n == nil {
		return nil
	}
	return chat.ValidateNumber(field, *n, 1)
}

func limit(limit *int, most int) error {
	if limit != nil && (*limit < 1 || *limit > most) {
		return chat.FieldErrorf(chat.CodeBadRequest, "limit", "limit is from 1 to %d", most)
	}
	return nil
}
