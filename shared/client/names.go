package client

import (
	"inorder/shared/chat"
	"inorder/shared/wire"
)

// What a program meets besides this package's own types, so that it need not import
// where they are defined.

type ( //nolint:revive // each is documented where it is defined
	Message        = chat.Message
	MessageType    = chat.MessageType
	Status         = chat.Status
	Event          = chat.Event
	EventKind      = chat.EventKind
	ReplyTo        = chat.ReplyTo
	Kind           = chat.Kind
	Role           = chat.Role
	Visibility     = chat.Visibility
	Error          = chat.Error
	Code           = chat.Code
	Sent           = wire.Sent
	Edited         = wire.Edited
	Acked          = wire.Acked
	Cleared        = wire.Cleared
	Created        = wire.Created
	CreateGroup    = wire.CreateGroup
	ChangeGroup    = wire.ChangeGroup
	ChangeMembers  = wire.ChangeMembers
	SetRole        = wire.SetRole
	SetTitle       = wire.SetTitle
	Member         = wire.Member
	MessagePreview = wire.MessagePreview
	HistoryPage    = wire.HistoryPage
	Pong           = wire.Pong
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

	Normal   = chat.Normal
	Recalled = chat.Recalled

	EventRecall   = chat.EventRecall
	EventEdit     = chat.EventEdit
	EventMembers  = chat.EventMembers
	EventTitle    = chat.EventTitle
	EventDissolve = chat.EventDissolve
	EventErase    = chat.EventErase

	Single = chat.Single
	Group  = chat.Group
	System = chat.System

	Owner = chat.Owner
	Admin = chat.Admin
	Plain = chat.Plain

	VisibleAll       = chat.VisibleAll
	VisibleSinceJoin = chat.VisibleSinceJoin

	BadRequest          = chat.BadRequest
	TooLarge            = chat.TooLarge
	NotFound            = chat.NotFound
	Forbidden           = chat.Forbidden
	IdempotencyConflict = chat.IdempotencyConflict
	VersionConflict     = chat.VersionConflict
	TooLate             = chat.TooLate
	Dissolved           = chat.Dissolved
	Limit               = chat.Limit
	Busy                = chat.Busy
	Internal            = chat.Internal
)

// SingleID is the id of the conversation of two users.
func SingleID(a, b string) string { return chat.SingleID(a, b) }

// CodeOf gives the code of a refusal, or Internal for any other error.
func CodeOf(err error) Code { return chat.CodeOf(err) }

// IsEvent reports whether a message tells of something that happened, such as a recall,
// an edit or a change of members, and is nothing that a user wrote.
func IsEvent(m Message) bool { return m.Event != nil }
