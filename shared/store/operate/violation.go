package operate

import (
	"slices"

	"github.com/inorder-im/inorder/shared/chat"
)

// ViolationKind names what is wrong with the data of a conversation.
type ViolationKind string

// The kinds of violations.
const (
	ViolationHeadMissing      ViolationKind = "headMissing"      // there are messages or inbox lines, and no head
	ViolationHeadBehind       ViolationKind = "headBehind"       // the ledger has seqs above the head's
	ViolationHeadAhead        ViolationKind = "headAhead"        // the last messages are not there
	ViolationHole             ViolationKind = "hole"             // messages between two others are not there
	ViolationDuplicateMessage ViolationKind = "duplicateMessage" // one messageId under two seqs
	ViolationDuplicateKey     ViolationKind = "duplicateKey"     // two messages of one idempotency key
	ViolationRecordMissing    ViolationKind = "recordMissing"    // a message without its idempotency record
	ViolationRecordMismatch   ViolationKind = "recordMismatch"   // the record is about another message
	ViolationPositionAhead    ViolationKind = "positionAhead"    // a position of an inbox line above the head
	ViolationMemberCountWrong ViolationKind = "memberCount"      // the head counts other than the roster has
	ViolationRosterWrong      ViolationKind = "roster"           // the head's hash is of other members than the roster has
	ViolationLineMissing      ViolationKind = "lineMissing"      // a member without an inbox line
	ViolationLineFormer       ViolationKind = "lineFormer"       // a member whose inbox line says it has left
	ViolationLineOrphaned     ViolationKind = "lineOrphaned"     // the inbox line of a member that the roster lacks
	ViolationLargeNotListed   ViolationKind = "largeNotListed"   // a member whose devices are not told of a large conversation
	ViolationLargeStale       ViolationKind = "largeStale"       // a user whose devices are told of a large conversation that is none of the user's
	ViolationSyncHeadWrong    ViolationKind = "syncHead"         // a sync head, or what lies beside it, that cannot be right
	ViolationEventTarget      ViolationKind = "eventTarget"      // a recall or edit whose message does not fit
	ViolationNotBlank         ViolationKind = "notBlank"         // a recalled message that still has content
	ViolationNotErased        ViolationKind = "notErased"        // content of a user from before the event of the user's erasure
	ViolationItemDamaged      ViolationKind = "item"             // an item that cannot be read
)

// remedies say what an operator does about each kind.
var remedies = map[ViolationKind]string{
	ViolationHeadMissing:      "restore the head from a backup of the Conversations table; nobody can read or write the conversation until then",
	ViolationHeadBehind:       "raise the head, by go run ./infra/admin repair with this conversationId; nothing can be sent to it until then",
	ViolationHeadAhead:        "restore the messages from a backup of the Messages table; without one, devices are told that they are gone",
	ViolationHole:             "restore the messages from a backup of the Messages table; without one, devices are told that they are gone",
	ViolationDuplicateMessage: "keep the one its idempotency record names and delete the other",
	ViolationDuplicateKey:     "keep the one its idempotency record names and recall or delete the other",
	ViolationRecordMissing:    "put the record back from a backup of the Idempotency table; until then a late retry would send the message again",
	ViolationRecordMismatch:   "look at both with the admin tool; a late retry is answered with what the record says",
	ViolationPositionAhead:    "lower the position to the head's lastSeq; until then the user is told too few unread messages",
	ViolationMemberCountWrong: "set memberCount to the number of roster items",
	ViolationRosterWrong:      "compare the roster with the events about members; once it is right, set rosterHash to its hash, or remove hashedVersion",
	ViolationLineMissing:      "remove the member and add it again, or restore the line from a backup of the Inboxes table",
	ViolationLineFormer:       "remove leftSeq, leftHead and leftAt from the line, or delete the roster item, by what the last event about this user says",
	ViolationLineOrphaned:     "put the roster item back, or set leftSeq in the line, by what the last event about this user says",
	ViolationLargeNotListed:   "list it, by go run ./infra/admin repair with this conversationId; until then the member's devices learn of messages there by pushes only",
	ViolationLargeStale:       "take it off, by go run ./infra/admin repair with this conversationId and -user with this userId; until then the user's devices are told how far it has come",
	ViolationSyncHeadWrong:    "delete the item; the user's devices then read their whole list once",
	ViolationEventTarget:      "restore both messages from a backup of the Messages table, or make the message what the event says",
	ViolationNotBlank:         "remove text and data of the message",
	ViolationNotErased:        "run the operator's tool again, with erase-user and this user; it broke off",
	ViolationItemDamaged:      "restore the item from a backup of its table; it is left out of lists and pages until then",
}

// Violation is one thing that is wrong, confirmed by a serialisable reading.
type Violation struct {
	ConversationID chat.ConversationID `json:"conversationId"`
	Kind           ViolationKind       `json:"kind"`
	Seq            int64               `json:"seq,omitempty"`
	ToSeq          int64               `json:"toSeq,omitempty"` // of a range that begins with Seq
	UserID         string              `json:"userId,omitempty"`
	Expected       string              `json:"expected"`
	Found          string              `json:"found"`
	Remedy         string              `json:"remedy"`
}

// maxViolations bounds the report: 1,000 take about 500 KB.
const maxViolations = 1000

// add reports a violation, once.
func (a *audit) add(v Violation) {
	v.Remedy, v.Expected, v.Found = remedies[v.Kind], short(v.Expected), short(v.Found)
	if slices.Contains(a.report.Violations, v) {
		return
	}
	a.report.Counts[v.Kind]++
	if len(a.report.Violations) == maxViolations {
		a.report.Omitted++
		return
	}
	a.report.Violations = append(a.report.Violations, v)
}
