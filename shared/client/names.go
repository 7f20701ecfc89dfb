package client

import (
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// What a program meets besides this package's own types, so that it need not import
// where they are defined.

type (
	// Message is chat.Message.
	Message = chat.Message
	// ConversationID is chat.ConversationID.
	ConversationID = chat.ConversationID
	// MessageType is chat.MessageType.
	MessageType = chat.MessageType
	// Status is chat.Status.
	Status = chat.Status
	// Event is chat.Event.
	Event = chat.Event
	// EventKind is chat.EventKind.
	EventKind = chat.EventKind
	// ReplyTo is chat.ReplyTo.
	ReplyTo = chat.ReplyTo
	// Kind is chat.Kind.
	Kind = chat.Kind
	// Role is chat.Role.
	Role = chat.Role
	// Visibility is chat.Visibility.
	Visibility = chat.Visibility
	// Error is chat.Error.
	Error = chat.Error
	// Code is chat.Code.
	Code = chat.Code
	// Sent is wire.Sent.
	Sent = wire.Sent
	// Edited is wire.Edited.
	Edited = wire.Edited
	// Acked is wire.Acked.
	Acked = wire.Acked
	// Cleared is wire.Cleared.
	Cleared = wire.Cleared
	// Created is wire.Created.
	Created = wire.Created
	// Edit is wire.Edit.
	Edit = wire.Edit
	// Recall is wire.Recall.
	Recall = wire.Recall
	// Refusal is wire.Error.
	Refusal = wire.Error
	// CreateGroup is wire.CreateGroup.
	CreateGroup = wire.CreateGroup
	// ChangeGroup is wire.ChangeGroup.
	ChangeGroup = wire.ChangeGroup
	// ChangeMembers is wire.ChangeMembers.
	ChangeMembers = wire.ChangeMembers
	// SetRole is wire.SetRole.
	SetRole = wire.SetRole
	// SetTitle is wire.SetTitle.
	SetTitle = wire.SetTitle
	// Member is wire.Member.
	Member = wire.Member
	// MessagePreview is wire.MessagePreview.
	MessagePreview = wire.MessagePreview
	// HistoryPage is wire.HistoryPage.
	HistoryPage = wire.HistoryPage
	// Pong is wire.Pong.
	Pong = wire.Pong
)

// The values that these have.
const (
	TypeText   = chat.TypeText
	TypeImage  = chat.TypeImage
	TypeVoice  = chat.TypeVoice
	TypeFile   = chat.TypeFile
	TypeCustom = chat.TypeCustom
	TypeSystem = chat.TypeSystem
	TypeEvent  = chat.TypeEvent

	StatusNormal   = chat.StatusNormal
	StatusRecalled = chat.StatusRecalled

	EventRecall   = chat.EventRecall
	EventEdit     = chat.EventEdit
	EventMembers  = chat.EventMembers
	EventTitle    = chat.EventTitle
	EventDissolve = chat.EventDissolve
	EventErase    = chat.EventErase

	KindSingle = chat.KindSingle
	KindGroup  = chat.KindGroup
	KindSystem = chat.KindSystem

	RoleOwner = chat.RoleOwner
	RoleAdmin = chat.RoleAdmin
	RolePlain = chat.RolePlain

	VisibleAll       = chat.VisibleAll
	VisibleSinceJoin = chat.VisibleSinceJoin

	CodeBadRequest          = chat.CodeBadRequest
	CodeTooLarge            = chat.CodeTooLarge
	CodeNotFound            = chat.CodeNotFound
	CodeForbidden           = chat.CodeForbidden
	CodeIdempotencyConflict = chat.CodeIdempotencyConflict
	CodeVersionConflict     = chat.CodeVersionConflict
	CodeTooLate             = chat.CodeTooLate
	CodeDissolved           = chat.CodeDissolved
	CodeLimit               = chat.CodeLimit
	CodeBusy                = chat.CodeBusy
	CodeInternal            = chat.CodeInternal
)

// SingleID is the id of the conversation of two users.
func SingleID(a, b string) ConversationID { return chat.SingleID(a, b) }

// CodeOf returns the code of a refusal, or CodeInternal for any other error.
func CodeOf(err error) Code { return chat.CodeOf(err) }

// IsEvent reports whether a message tells of something that happened, such as a recall,
// an edit or a change of members, and is nothing that a user wrote.
func IsEvent(m Message) bool { return m.Event != nil }
