// Package wire is the protocol, version 1: the frames that travel between a
// device and the server, as both sides read and write them. A frame is one JSON
// object in one WebSocket text message. Unknown fields are ignored.
package wire

import (
	"encoding/json"

	"github.com/inorder-im/inorder/shared/chat"
)

// Subprotocol is the WebSocket subprotocol the server selects. A browser, which
// cannot set headers, offers it together with BearerPrefix and its token.
const (
	Subprotocol  = "inorder.v1"
	BearerPrefix = "bearer."
)

// Limits of the protocol.
const (
	// MaxFrameBytes bounds every frame in either direction. API Gateway takes
	// messages of 128 KB in frames of 32 KB; one frame of 32 KB is safe on every
	// path, and metering is by 32 KB anyway.
	MaxFrameBytes = 32 * 1024

	MaxRequestIDBytes = 64

	DefaultSyncLimit    = 100
	MaxSyncLimit        = 500
	DefaultHistoryLimit = 50
	MaxHistoryLimit     = 100
	DefaultListLimit    = 50
	MaxListLimit        = 100
	MemberPage          = 80 // members in a page: one takes at most 400 bytes
)

// Actions, which are also the route keys of the API.
const (
	ActionSend          = "send"
	ActionSync          = "sync"
	ActionHistory       = "history"
	ActionAck           = "ack"
	ActionTell          = "tell" // as ack, and never answered
	ActionRecall        = "recall"
	ActionEdit          = "edit"
	ActionClear         = "clear"
	ActionCreateGroup   = "createGroup"
	ActionAddMembers    = "addMembers"
	ActionRemoveMembers = "removeMembers"
	ActionLeave         = "leave"
	ActionSetRole       = "setRole"
	ActionSetTitle      = "setTitle"
	ActionDissolve      = "dissolve"
	ActionMembers       = "members"
	ActionConversations = "conversations"
	ActionChanges       = "changes"
	ActionReceipts      = "receipts"
	ActionPing          = "ping"
)

// The values of a frame's type.
const (
	TypeReply   = "reply"
	TypeError   = "error"
	TypePush    = "push"
	TypeNotify  = "notify"
	TypeReceipt = "receipt"
	TypeChanged = "changed"
	TypeGoodbye = "goodbye"
)

// Header is what every request starts with.
type Header struct {
	Action string `json:"action"`
	ID     string `json:"id"`
}

// Reply answers a request.
type Reply struct {
	Type   string `json:"type"`
	ID     string `json:"id"`
	Action string `json:"action"`
	Result any    `json:"result"`
}

// ErrorReply refuses a request. ID and Action are empty where the request did
// not have them in a readable form.
type ErrorReply struct {
	Type   string `json:"type"`
	ID     string `json:"id,omitempty"`
	Action string `json:"action,omitempty"`
	Error  Error  `json:"error"`
}

// Error is the body of an ErrorReply.
type Error struct {
	Code      chat.Code      `json:"code"`
	Message   string         `json:"message"`
	Retryable bool           `json:"retryable"`
	Field     string         `json:"field,omitempty"`
	Details   map[string]any `json:"details,omitempty"`
}

// Send asks for a new message, in a conversation or to a user.
type Send struct {
	ConversationID chat.ConversationID `json:"conversationId,omitempty"`
	To             string              `json:"to,omitempty"`
	ClientMsgID    string              `json:"clientMsgId"`
	MessageType    chat.MessageType    `json:"messageType"`
	Text           string              `json:"text,omitempty"`
	Data           json.RawMessage     `json:"data,omitempty"`
	ReplyTo        *chat.ReplyTo       `json:"replyTo,omitempty"`
	ClientTime     int64               `json:"clientTime,omitempty"`
}

// Sent is the result of Send.
type Sent = chat.Sent

// Sync asks for the messages after a seq, oldest first.
type Sync struct {
	ConversationID chat.ConversationID `json:"conversationId"`
	AfterSeq       *int64              `json:"afterSeq"`
	Limit          *int                `json:"limit,omitempty"`
}

// Synced is the result of Sync. Every seq in (afterSeq, NextSeq] is accounted
// for: it is in Messages, or in Skipped (no such entry any more), or it is below
// FirstSeq. A device has caught up when NextSeq >= CommittedMaxSeq.
type Synced struct {
	Messages        []chat.Message `json:"messages"`
	NextSeq         int64          `json:"nextSeq"`
	CommittedMaxSeq int64          `json:"committedMaxSeq"`
	HasMore         bool           `json:"hasMore"`
	Skipped         []int64        `json:"skipped,omitempty"`
	// FirstSeq is there when the seqs from afterSeq+1 to FirstSeq-1 are not for
	// this user: cleared, or from before or between the times of membership.
	FirstSeq int64 `json:"firstSeq,omitempty"`
}

// History asks for the messages before a seq, or for the newest.
type History struct {
	ConversationID chat.ConversationID `json:"conversationId"`
	BeforeSeq      *int64              `json:"beforeSeq,omitempty"`
	Limit          *int                `json:"limit,omitempty"`
}

// HistoryPage is the result of History; Messages ascend. NextBeforeSeq is the
// beforeSeq of the page before this one.
type HistoryPage struct {
	Messages        []chat.Message `json:"messages"`
	NextBeforeSeq   int64          `json:"nextBeforeSeq"`
	CommittedMaxSeq int64          `json:"committedMaxSeq"`
	HasMore         bool           `json:"hasMore"`
}

// Ack raises the user's watermarks in a conversation. At least one is there.
type Ack struct {
	ConversationID chat.ConversationID `json:"conversationId"`
	DeliveredSeq   *int64              `json:"deliveredSeq,omitempty"`
	ReadSeq        *int64              `json:"readSeq,omitempty"`
}

// Acked is the result of Ack: the watermarks now in force.
type Acked struct {
	DeliveredSeq int64 `json:"deliveredSeq"`
	ReadSeq      int64 `json:"readSeq"`
}

// Recall takes a message back.
type Recall struct {
	ConversationID chat.ConversationID `json:"conversationId"`
	Seq            int64               `json:"seq"`
	MessageID      string              `json:"messageId"`
	ClientMsgID    string              `json:"clientMsgId"`
}

// Edit replaces a message's content. Version is the one the author has seen.
type Edit struct {
	ConversationID chat.ConversationID `json:"conversationId"`
	Seq            int64               `json:"seq"`
	MessageID      string              `json:"messageId"`
	Version        int64               `json:"version"`
	Text           string              `json:"text,omitempty"`
	Data           json.RawMessage     `json:"data,omitempty"`
	ClientMsgID    string              `json:"clientMsgId"`
}

// Edited is the result of Edit; Seq and MessageID are the event's, Version is
// the message's.
type Edited struct {
	Sent
	Version int64 `json:"version"`
}

// Clear hides a conversation up to ThroughSeq on all of the user's devices.
type Clear struct {
	ConversationID chat.ConversationID `json:"conversationId"`
	ThroughSeq     *int64              `json:"throughSeq"`
}

// Cleared is the result of Clear: the position now in force.
type Cleared struct {
	ClearedSeq int64 `json:"clearedSeq"`
}

// CreateGroup makes a group of the caller and Members. Its result is a Created.
type CreateGroup struct {
	Title       string          `json:"title"`
	Members     []string        `json:"members"`
	ClientMsgID string          `json:"clientMsgId"`
	Visibility  chat.Visibility `json:"visibility,omitempty"` // all if empty
}

// Created is the result of CreateGroup.
type Created struct {
	Conversation
	Duplicate bool `json:"duplicate"`
}

// ChangeMembers is the request of addMembers and removeMembers.
type ChangeMembers struct {
	ConversationID chat.ConversationID `json:"conversationId"`
	Members        []string            `json:"members"`
	ClientMsgID    string              `json:"clientMsgId"`
}

// ChangeGroup is the request of leave and dissolve.
type ChangeGroup struct {
	ConversationID chat.ConversationID `json:"conversationId"`
	ClientMsgID    string              `json:"clientMsgId"`
}

// SetRole gives a member another role. The caller who makes another the owner
// becomes an admin.
type SetRole struct {
	ConversationID chat.ConversationID `json:"conversationId"`
	UserID         string              `json:"userId"`
	Role           chat.Role           `json:"role"`
	ClientMsgID    string              `json:"clientMsgId"`
}

// SetTitle renames a group.
type SetTitle struct {
	ConversationID chat.ConversationID `json:"conversationId"`
	Title          string              `json:"title"`
	ClientMsgID    string              `json:"clientMsgId"`
}

// Members asks for the roster, page by page.
type Members struct {
	ConversationID chat.ConversationID `json:"conversationId"`
	Cursor         string              `json:"cursor,omitempty"`
}

// MembersPage is the result of Members. Cursor is there when more follow.
type MembersPage struct {
	Members        []Member `json:"members"`
	MembersVersion int64    `json:"membersVersion"`
	Cursor         string   `json:"cursor,omitempty"`
}

// Member is one line of a roster.
type Member struct {
	UserID   string    `json:"userId"`
	Role     chat.Role `json:"role"`
	JoinSeq  int64     `json:"joinSeq"`
	JoinedAt int64     `json:"joinedAt"`
}

// Receipts asks who has received and read the message with this seq.
type Receipts struct {
	ConversationID chat.ConversationID `json:"conversationId"`
	Seq            int64               `json:"seq"`
	Cursor         string              `json:"cursor,omitempty"`
}

// ReceiptsPage is the result of Receipts: of the members looked at, those who
// have. Cursor is there when more are to be looked at.
type ReceiptsPage struct {
	Delivered []string `json:"delivered"`
	Read      []string `json:"read"`
	Cursor    string   `json:"cursor,omitempty"`
}

// Changes asks which of the user's conversations changed since a cursor that an
// earlier answer gave; 0 for a device that has none. HeadsCursor is that of the
// last answer which this device has taken in, or empty: then all heads come. Hidden
// asks for the whole list, if that comes, with what is hidden; a device that knows
// any conversation has to be told.
type Changes struct {
	SyncCursor  *int64 `json:"syncCursor"`
	HeadsCursor string `json:"headsCursor,omitempty"`
	Hidden      bool   `json:"hidden,omitempty"`
}

// Changed is the result of Changes. Full says that Conversations is the whole
// list, because the cursor was too old to tell what changed. More says that there
// is more to tell right now, to whoever asks again with these cursors.
type Changed struct {
	Conversations []Conversation `json:"conversations"`
	Heads         []Head         `json:"heads"`
	SyncCursor    int64          `json:"syncCursor"`
	HeadsCursor   string         `json:"headsCursor,omitempty"`
	More          bool           `json:"more,omitempty"`
	Full          bool           `json:"full"`
	// Cursor is there when the whole list did not fit one frame: the rest comes
	// from the action conversations with it.
	Cursor  string  `json:"cursor,omitempty"`
	Windows Windows `json:"windows"`
	// UserID is whom the server takes the device's user for.
	UserID string `json:"userId"`
}

// Windows say for how many milliseconds after its serverTime a message can be
// changed by its sender: 0 for never, absent for always.
type Windows struct {
	EditMs   *int64 `json:"editMs,omitempty"`
	RecallMs *int64 `json:"recallMs,omitempty"`
}

// Conversations asks for the user's list of conversations, page by page. Hidden
// asks for what is hidden, too; see Conversation.Hidden.
type Conversations struct {
	Cursor string `json:"cursor,omitempty"`
	Limit  *int   `json:"limit,omitempty"`
	Hidden bool   `json:"hidden,omitempty"`
}

// ConversationsPage is the result of Conversations. Cursor is there when more
// follow, also after a page without any.
type ConversationsPage struct {
	Conversations []Conversation `json:"conversations"`
	Cursor        string         `json:"cursor,omitempty"`
}

// Conversation is one line of a user's list.
type Conversation struct {
	ConversationID chat.ConversationID `json:"conversationId"`
	Kind           chat.Kind           `json:"kind"`
	Title          string              `json:"title,omitempty"`
	Peer           string              `json:"peer,omitempty"` // of a single conversation: the other user, or oneself
	State          chat.State          `json:"state"`
	Owner          string              `json:"owner,omitempty"`
	Visibility     chat.Visibility     `json:"visibility,omitempty"`
	MemberCount    int                 `json:"memberCount"`
	LastSeq        int64               `json:"lastSeq"`
	ReadSeq        int64               `json:"readSeq"`
	DeliveredSeq   int64               `json:"deliveredSeq"`
	ClearedSeq     int64               `json:"clearedSeq"`
	LeftSeq        int64               `json:"leftSeq,omitempty"` // the last seq a former member may read
	Unread         int64               `json:"unread"`            // the seqs above ReadSeq and ClearedSeq that the user did not write
	UpdatedAt      int64               `json:"updatedAt"`
	LastMessage    *MessagePreview     `json:"lastMessage,omitempty"`
}

// Hidden is chat.Line.Hidden.
func (c Conversation) Hidden() bool {
	return chat.Line{LeftSeq: c.LeftSeq, ClearedSeq: c.ClearedSeq}.Hidden()
}

// MessagePreview is what a list shows of a conversation's last message.
type MessagePreview = chat.MessagePreview

// Listed returns the line of a list that shows a view and its last message, nil for
// none.
func Listed(v chat.View, last *chat.Message) Conversation {
	return Conversation{
		ConversationID: v.Head.ConversationID,
		Kind:           v.Head.Kind,
		Title:          v.Head.Title,
		Peer:           v.Peer,
		State:          v.Head.State,
		Owner:          v.Head.Owner,
		Visibility:     v.Head.Visibility,
		MemberCount:    v.Head.MemberCount,
		LastSeq:        v.LastSeq(),
		ReadSeq:        v.ReadSeq,
		DeliveredSeq:   v.DeliveredSeq,
		ClearedSeq:     v.ClearedSeq,
		LeftSeq:        v.LeftSeq,
		Unread:         v.Unread(),
		UpdatedAt:      v.Head.UpdatedAt,
		LastMessage:    last.Preview(),
	}
}

// Head tells how far a conversation has come.
type Head struct {
	ConversationID  chat.ConversationID `json:"conversationId"`
	CommittedMaxSeq int64               `json:"committedMaxSeq"`
}

// Pong is the result of ping.
type Pong struct {
	ServerTime int64 `json:"serverTime"`
}

// Push carries new messages. It may be lost, repeated or out of order; devices catch
// up by pulling from their cursor.
type Push struct {
	Type    string   `json:"type"`
	Updates []Update `json:"updates"`
}

// Update is what a Push carries of one conversation, in seq order.
type Update struct {
	ConversationID  chat.ConversationID `json:"conversationId"`
	Messages        []chat.Message      `json:"messages"`
	CommittedMaxSeq int64               `json:"committedMaxSeq"`
}

// Notify tells of more new messages in crowds and large groups than are pushed whole.
type Notify struct {
	Type    string `json:"type"`
	Updates []Head `json:"updates"`
}

// Receipt tells the members of a conversation of up to chat.InboxGroupMax, and
// the user's own other devices, that a user's watermarks rose, and how far both are
// now. The other one of a single conversation hears of it once two have written
// there, or the product (see chat.Conversation.Answered).
type Receipt struct {
	Type           string              `json:"type"`
	ConversationID chat.ConversationID `json:"conversationId"`
	UserID         string              `json:"userId"`
	DeliveredSeq   int64               `json:"deliveredSeq,omitempty"`
	ReadSeq        int64               `json:"readSeq,omitempty"`
}

// ChangedHint tells a device that something of its user's changed that no other
// push tells of; ask Changes.
type ChangedHint struct {
	Type       string `json:"type"`
	SyncCursor int64  `json:"syncCursor"`
}

// Goodbye tells that the server is about to close this connection.
type Goodbye struct {
	Type   string `json:"type"`
	Reason string `json:"reason"`
}

// Reasons of a Goodbye.
const (
	GoodbyeReplaced = "replaced" // a newer connection of the same device took over
	GoodbyeDevices  = "devices"  // the user has connected too many devices; the oldest goes
	GoodbyeExpired  = "expired"  // the token with which it was opened has expired; come back with a new one
	GoodbyeFlooding = "flooding" // it went on and on without heeding that it was too fast
)

// Encode returns the frame's bytes.
func Encode(frame any) ([]byte, error) { return chat.EncodeJSON(frame) }
