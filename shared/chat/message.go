package chat

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"
)

// Limits on a message.
const (
	MaxTextRunes    = 4000      // runes, not bytes: 4,000 Chinese characters pass
	MaxMessageBytes = 24 * 1024 // of its JSON, so that any message fits a frame of 32 KB
	MaxEdits        = 96        // of one message: a recall takes the content out of each event of an edit, and a transaction has 100 items
	MaxSeq          = 1<<53 - 1 // the largest whole number every JSON reader keeps exact
)

// MessageType is what a message holds.
type MessageType string

// The message types. Clients send the first five; the server writes the others.
const (
	TypeText   MessageType = "text"
	TypeImage  MessageType = "image"
	TypeVoice  MessageType = "voice"
	TypeFile   MessageType = "file"
	TypeCustom MessageType = "custom"
	TypeSystem MessageType = "system"
	TypeEvent  MessageType = "event"
)

// Sendable reports whether a client may send this type.
func (t MessageType) Sendable() bool {
	switch t {
	case TypeText, TypeImage, TypeVoice, TypeFile, TypeCustom:
		return true
	}
	return false
}

// Status is the state a message is shown in.
type Status string

// The states of a message.
const (
	StatusNormal   Status = "normal"
	StatusRecalled Status = "recalled" // its text and data are gone
)

// EventKind is what an event message tells of.
type EventKind string

// The kinds of events.
const (
	EventRecall   EventKind = "recall"
	EventEdit     EventKind = "edit"
	EventMembers  EventKind = "members"
	EventTitle    EventKind = "title"
	EventDissolve EventKind = "dissolve"
	EventErase    EventKind = "erase" // of an operator: it takes the content out of all that a user has sent before
)

// Message is one entry of a conversation's ledger. Its JSON is what travels in
// frames; fields that are empty are left out. Times are milliseconds since 1970.
type Message struct {
	ConversationID ConversationID  `json:"conversationId"`
	Seq            int64           `json:"seq"`
	MessageID      string          `json:"messageId"`
	ClientMsgID    string          `json:"clientMsgId"`
	SenderID       string          `json:"senderId"`
	SenderDeviceID string          `json:"senderDeviceId,omitempty"`
	MessageType    MessageType     `json:"messageType"`
	Text           string          `json:"text,omitempty"`
	Data           json.RawMessage `json:"data,omitempty"`
	ReplyTo        *ReplyTo        `json:"replyTo,omitempty"`
	Version        int64           `json:"version"` // 1, and one more with each edit
	Status         Status          `json:"status"`
	Withheld       bool            `json:"withheld,omitempty"` // it has content, which is not for this reader; never stored
	ServerTime     int64           `json:"serverTime"`         // when the server received it: for display, never for order
	ClientTime     int64           `json:"clientTime,omitempty"`
	Event          *Event          `json:"event,omitempty"`

	// Via is the connection whose request wrote it, where its answer tells all of the
	// message. Nobody is shown it.
	Via string `json:"-"`
}

// ReplyTo points at the message of the same conversation that is answered.
type ReplyTo struct {
	Seq       int64  `json:"seq"`
	MessageID string `json:"messageId"`
}

// Event is what a message of TypeEvent tells of. The new content of an edited
// message stands in the event message's own text and data.
type Event struct {
	Kind            EventKind `json:"kind"`
	TargetSeq       int64     `json:"targetSeq,omitempty"`       // recall, edit
	TargetMessageID string    `json:"targetMessageId,omitempty"` // recall, edit
	Version         int64     `json:"version,omitempty"`         // recall, edit: the target's, after the event
	Added           []string  `json:"added,omitempty"`           // members: who came
	Removed         []string  `json:"removed,omitempty"`         // members: who went, or was removed
	Owner           string    `json:"owner,omitempty"`           // members: who owns the group from here on
	Member          string    `json:"member,omitempty"`          // members: whose role changed
	Role            Role      `json:"role,omitempty"`            // members: to what
	Title           string    `json:"title,omitempty"`           // title, and the first event of a group
	Erased          string    `json:"erased,omitempty"`          // erase: whose messages have no content any more
}

// In returns the message as a reader sees it whose time of membership it lies in. The
// event of an edit carries the content of another message: who may not see that one
// at this time, or saw it at an earlier one, must not read it here. A device leaves
// what it has of the message as it is.
func (m Message) In(during Range) Message {
	if !m.Is(EventEdit) || during.Has(m.Event.TargetSeq) || m.Text == "" && len(m.Data) == 0 {
		return m
	}
	m.Text, m.Data, m.Withheld = "", nil, true
	return m
}

// Stamped returns the message as a server takes it in at this time, under this id; what
// it lacks yet is its seq.
func (m Message) Stamped(messageID string, at time.Time) Message {
	m.MessageID, m.ServerTime, m.Version, m.Status = messageID, at.UnixMilli(), 1, StatusNormal
	return m
}

// Sent says what a message became: it is committed, with this seq. Duplicate says that
// an earlier request with the same clientMsgId had made it so.
type Sent struct {
	ConversationID ConversationID `json:"conversationId"`
	Seq            int64          `json:"seq"`
	MessageID      string         `json:"messageId"`
	ServerTime     int64          `json:"serverTime"` // ms
	Duplicate      bool           `json:"duplicate"`
}

// Sent returns what the message became, once it has its seq.
func (m Message) Sent() Sent {
	return Sent{ConversationID: m.ConversationID, Seq: m.Seq, MessageID: m.MessageID, ServerTime: m.ServerTime}
}

// PreviewRunes is how much of a text a list shows.
const PreviewRunes = 100

// MessagePreview is what a list shows of a conversation's last message.
type MessagePreview struct {
	Seq         int64       `json:"seq"`
	SenderID    string      `json:"senderId"`
	MessageType MessageType `json:"messageType"`
	Text        string      `json:"text,omitempty"` // at most PreviewRunes runes
	Status      Status      `json:"status"`
	ServerTime  int64       `json:"serverTime"`
}

// Preview returns what a list shows of the message, nil of none.
func (m *Message) Preview() *MessagePreview {
	if m == nil {
		return nil
	}
	text, n := m.Text, 0
	for i := range text {
		if n++; n > PreviewRunes {
			text = text[:i]
			break
		}
	}
	return &MessagePreview{
		Seq: m.Seq, SenderID: m.SenderID, MessageType: m.MessageType, Text: text, Status: m.Status, ServerTime: m.ServerTime,
	}
}

// Validate refuses a message that must not enter a ledger. It looks at content
// and identity, not at seq, which only the ledger knows. Errors are of type
// *Error: BadRequest with the field, or TooLarge.
func (m Message) Validate() error {
	if err := ValidateConversationID("conversationId", m.ConversationID); err != nil {
		return err
	}
	if m.MessageID == "" {
		return FieldErrorf(CodeBadRequest, "messageId", "a message id is missing")
	}
	if err := ValidateClientMsgID("clientMsgId", m.ClientMsgID); err != nil {
		return err
	}
	if err := ValidateKnownUserID("senderId", m.SenderID); err != nil {
		return err
	}
	if err := m.validateContent(); err != nil {
		return err
	}
	return m.validateSize()
}

func (m Message) validateContent() error {
	if !utf8.ValidString(m.Text) {
		return FieldErrorf(CodeBadRequest, "text", "the text is not UTF-8")
	}
	if n := utf8.RuneCountInString(m.Text); n > MaxTextRunes {
		return FieldErrorf(CodeTooLarge, "text", "the text has %d characters, at most %d are allowed", n, MaxTextRunes)
	}
	if len(m.Data) > 0 {
		if err := validateData(m.Data); err != nil {
			return err
		}
	}
	if m.ReplyTo != nil && (m.ReplyTo.Seq < 1 || m.ReplyTo.Seq > MaxSeq || m.ReplyTo.MessageID == "") {
		return FieldErrorf(CodeBadRequest, "replyTo", "replyTo needs the seq and the messageId of a message")
	}
	if (m.MessageType == TypeEvent) != (m.Event != nil) {
		return FieldErrorf(CodeBadRequest, "event", "an event, and nothing else, has an event field")
	}
	switch m.MessageType {
	case TypeText:
		if m.Text == "" {
			return FieldErrorf(CodeBadRequest, "text", "a text message needs a text")
		}
	case TypeImage, TypeVoice, TypeFile, TypeCustom:
		if len(m.Data) == 0 {
			return FieldErrorf(CodeBadRequest, "data", "a message of type %s needs data", m.MessageType)
		}
	case TypeSystem:
		if m.Text == "" && len(m.Data) == 0 {
			return FieldErrorf(CodeBadRequest, "text", "a system message needs a text or data")
		}
	case TypeEvent:
		if m.Event.Kind == "" {
			return FieldErrorf(CodeBadRequest, "event", "an event needs a kind")
		}
	default:
		return FieldErrorf(CodeBadRequest, "messageType", "%q is no message type; use text, image, voice, file or custom", m.MessageType)
	}
	return nil
}

// validateSize takes the size the message has once it carries the longest seq,
// so that what passes here fits its frame later.
func (m Message) validateSize() error {
	m.Seq = MaxSeq
	size, err := m.Size()
	if err != nil {
		return FieldErrorf(CodeBadRequest, "data", "the message cannot be encoded: %v", err)
	}
	if size > MaxMessageBytes {
		return Errorf(CodeTooLarge, "the message takes %d bytes, at most %d are allowed", size, MaxMessageBytes)
	}
	return nil
}

// Size is the number of bytes of the message's JSON as frames carry it.
func (m Message) Size() (int, error) {
	b, err := EncodeJSON(m)
	if err != nil {
		return 0, fmt.Errorf("encoding message %s: %w", m.MessageID, err)
	}
	return len(b), nil
}

// Fingerprint identifies what the sender asked for: a retry of the same request
// has the same one. Device, times and ids the server makes are left out, and
// data counts as a value, not as spelled. It tells messages apart that Validate
// takes: of those with a key twice in data, the last of the two counts.
func (m Message) Fingerprint() (string, error) {
	data, err := canonicalJSON(m.Data)
	if err != nil {
		return "", fmt.Errorf("reading data of message %s: %w", m.MessageID, err)
	}
	parts := []string{string(m.ConversationID), string(m.MessageType), m.Text, data}
	if m.ReplyTo != nil {
		parts = append(parts, "replyTo", strconv.FormatInt(m.ReplyTo.Seq, 10), m.ReplyTo.MessageID)
	}
	if m.Event != nil {
		event, err := json.Marshal(m.Event)
		if err != nil {
			return "", fmt.Errorf("encoding event of message %s: %w", m.MessageID, err)
		}
		parts = append(parts, "event", string(event))
	}
	sum := sha256.Sum256([]byte(LengthPrefixed(parts...)))
	return hex.EncodeToString(sum[:16]), nil
}

// canonicalJSON gives equal values equal text: keys sorted, no spaces, numbers
// as they were spelled.
func canonicalJSON(raw json.RawMessage) (string, error) {
	if len(raw) == 0 {
		return "", nil
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return "", err
	}
	out, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	return string(out), nil
}
