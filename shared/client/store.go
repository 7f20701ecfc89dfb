package client

import (
	"context"
	"encoding/json"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// Store is what a device keeps: messages, how far each conversation is complete,
// the cursor of changes, and the outbox. It belongs to one user's one device and
// is used by one Client at a time, from several goroutines. NewMemory keeps it in
// memory; the package sqlite keeps it in a file.
//
// Any error ends the connection; the client reconnects, with backoff, and does
// the same again.
type Store interface {
	// Load reads what there is. It errs if the store belongs to another user,
	// and makes an empty one this user's.
	Load(ctx context.Context, userID string) (State, error)

	// Commit writes a batch whole or not at all, in the order of its fields.
	Commit(ctx context.Context, b Batch) error

	// Messages returns at most limit messages with afterSeq < seq <= throughSeq,
	// ascending.
	Messages(ctx context.Context, conversationID chat.ConversationID, afterSeq, throughSeq int64, limit int) ([]chat.Message, error)

	// Orphans returns what Batch.Orphan set aside of a conversation, by seq.
	Orphans(ctx context.Context, conversationID chat.ConversationID) ([]chat.Message, error)

	// Revisions returns the events whose target is the message with this seq,
	// ascending; for 0 those of erasures, whose target is all that a user has sent
	// before.
	Revisions(ctx context.Context, conversationID chat.ConversationID, targetSeq int64) ([]chat.Message, error)
}

// State is what a client starts from.
type State struct {
	SyncCursor    int64
	Conversations []Conversation
	Buffered      []chat.Message // above their conversation's MaxContiguousSeq, by conversation and seq
	Outbox        []OutboxEntry  // by Order
}

// Batch is one step of a client. Messages come before the positions and the
// cursor that stand for them.
type Batch struct {
	Orphan        []Span // messages that are set aside: the server has lost them
	OrphanDelete  []Span // of what was set aside
	Delete        []Span
	Messages      []chat.Message // each replaces the one with its seq
	Conversations []Conversation // each replaces the one with its id
	OutboxPut     []OutboxEntry
	OutboxDelete  []string // clientMsgIds
	SyncCursor    *int64
}

// Span is a stretch of a conversation's seqs.
type Span struct {
	ConversationID chat.ConversationID
	chat.Range
}

// Conversation is what a device knows of a conversation: the server's line, kept
// up to date by what arrived since, and how far the device is. What a Store keeps as
// Unread is the server's number as of DescribedSeq; Client.Conversation counts on.
type Conversation struct {
	wire.Conversation

	// MaxContiguousSeq is the device's position: every seq up to it is stored,
	// or is none of this user's to see.
	MaxContiguousSeq int64 `json:"maxContiguousSeq"`
	// BaseSeq is where the device began: what is before it has not been asked for, see
	// Config.StartWith.
	BaseSeq int64 `json:"baseSeq,omitempty"`
	// RecheckSeq says that what is stored up to it is to be read again: the user was away
	// since, and nobody told what was recalled meanwhile.
	RecheckSeq int64 `json:"recheckSeq,omitempty"`
	// MaxSeenSeq is the highest seq that anyone said was committed.
	MaxSeenSeq int64 `json:"maxSeenSeq"`
	// DoneSeq is how far a program that uses Incoming is.
	DoneSeq int64 `json:"doneSeq,omitempty"`
	// HasOrphans says that the server has lost messages which this device had.
	// Client.Orphans has them, until Client.DiscardOrphans.
	HasOrphans bool `json:"hasOrphans,omitempty"`
	// Receipts are the other members' positions, as far as the server told them.
	Receipts map[string]Positions `json:"receipts,omitempty"`

	DescribedSeq int64     `json:"describedSeq"`   // LastSeq when the server described the conversation
	Runs         chat.Runs `json:"runs,omitempty"` // who wrote what is in order

	// Skipped are the last seqs above DescribedSeq that no message has, ascending: what an
	// operator's repair skipped, or is not for this user.
	Skipped []chat.Range `json:"skipped,omitempty"`
}

// Positions are how far a user has received and read a conversation.
type Positions struct {
	DeliveredSeq int64 `json:"deliveredSeq"`
	ReadSeq      int64 `json:"readSeq"`
}

// OutboxEntry is a write that the server has not answered, or has refused when no call
// waited for it. Draft has what it is if it is a message.
type OutboxEntry struct {
	Order       int64  `json:"order"` // those of one conversation are sent by ascending Order
	ClientMsgID string `json:"clientMsgId"`
	// ConversationID is "" for a group that is to be made.
	ConversationID chat.ConversationID `json:"conversationId,omitempty"`
	Action         string              `json:"action"`  // of the protocol: send, edit, recall, createGroup, …
	Request        json.RawMessage     `json:"request"` // as the protocol has it for the action, without action and id
	Refused        *wire.Error         `json:"refused,omitempty"`
}
