package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// answer is what the server says to a write.
type answer struct {
	wire.Edited               // of the message that it made; a Clear makes none, and Version is of an edit
	created     *wire.Created // of a createGroup
	cleared     int64         // of a Clear
}

// encodeWrite returns a request as the outbox keeps it. It errs with CodeTooLarge if it
// would fit no frame.
func encodeWrite(action string, request any) (json.RawMessage, error) {
	longestID := strings.Repeat("9", wire.MaxRequestIDBytes)
	if _, err := encodeRequest(action, longestID, request); err != nil {
		return nil, err
	}
	return wire.Encode(request)
}

// decodeWrite returns a request of the outbox as its type.
func decodeWrite(e OutboxEntry) (any, error) {
	decode := map[string]func(json.RawMessage) (any, error){
		wire.ActionSend:          as[wire.Send],
		wire.ActionRecall:        as[wire.Recall],
		wire.ActionEdit:          as[wire.Edit],
		wire.ActionClear:         as[wire.Clear],
		wire.ActionCreateGroup:   as[wire.CreateGroup],
		wire.ActionAddMembers:    as[wire.ChangeMembers],
		wire.ActionRemoveMembers: as[wire.ChangeMembers],
		wire.ActionLeave:         as[wire.ChangeGroup],
		wire.ActionDissolve:      as[wire.ChangeGroup],
		wire.ActionSetRole:       as[wire.SetRole],
		wire.ActionSetTitle:      as[wire.SetTitle],
	}[e.Action]
	if decode == nil {
		return nil, fmt.Errorf("the outbox has %q under %s, which this program does not know: use a newer program", e.Action, e.ClientMsgID)
	}
	request, err := decode(e.Request)
	if err != nil {
		return nil, fmt.Errorf("reading the %s under %s in the outbox: %w", e.Action, e.ClientMsgID, err)
	}
	return request, nil
}

func as[Request any](encoded json.RawMessage) (any, error) {
	var r Request
	err := json.Unmarshal(encoded, &r)
	return r, err
}

// read returns what a result says. An error means that it cannot be one of this write.
func (e *entry) read(result json.RawMessage) (a answer, err error) {
	var into any = &a.Edited
	var cleared wire.Cleared
	switch e.Action {
	case wire.ActionCreateGroup:
		a.created = &wire.Created{}
		into = a.created
	case wire.ActionClear:
		into = &cleared
	}
	if err := json.Unmarshal(result, into); err != nil {
		return answer{}, violated("a result that cannot be read: %v", err)
	}
	switch e.Action {
	case wire.ActionCreateGroup:
		if kind, _ := a.created.ConversationID.Kind(); kind != chat.KindGroup {
			return answer{}, violated("createGroup was answered with conversation %.100q", a.created.ConversationID)
		}
		a.Sent = wire.Sent{ConversationID: a.created.ConversationID, Seq: 1, Duplicate: a.created.Duplicate} // a group begins with its making
		return a, plausibleLine(a.created.Conversation)
	case wire.ActionClear:
		if a.cleared = cleared.ClearedSeq; !possible(a.cleared) {
			return answer{}, violated("clear answered clearedSeq %d", a.cleared)
		}
		return a, nil
	}
	if a.ConversationID != e.ConversationID || a.Seq < 1 || a.Seq > chat.MaxSeq || a.MessageID == "" {
		return answer{}, violated("%s in %s was answered with conversation %q, seq %d, messageId %q", e.Action, e.ConversationID, a.ConversationID, a.Seq, a.MessageID)
	}
	return a, nil
}

// learnFrom takes in what an answer says besides that the write is committed. The caller
// holds the mutex.
func (c *Client) learnFrom(e *entry, a answer) error {
	switch e.Action {
	case wire.ActionCreateGroup:
		return c.describe(a.created.Conversation)
	case wire.ActionClear:
		return c.raise(c.conversation(e.ConversationID), Positions{}, a.cleared)
	}
	return nil
}

// sameWrite reports whether an entry is the write that is asked for again. Of two sends
// the content counts, and not the time.
func (c *Client) sameWrite(e *entry, w OutboxEntry, request any) (bool, error) {
	send, ok := request.(wire.Send)
	if !ok {
		return e.Action == w.Action && bytes.Equal(e.Request, w.Request), nil
	}
	before, ok := e.request.(wire.Send)
	if !ok {
		return false, nil
	}
	return sameContent(messageOf(before, c.cfg.UserID, ""), messageOf(send, c.cfg.UserID, ""))
}

func sameContent(one, other chat.Message) (bool, error) {
	a, err := one.Fingerprint()
	if err != nil {
		return false, err
	}
	b, err := other.Fingerprint()
	if err != nil {
		return false, err
	}
	return a == b, nil
}

// isAskedFor reports whether a message that arrived under an entry's clientMsgId is what
// the entry asks for. The caller holds the mutex.
func (c *Client) isAskedFor(m chat.Message, e *entry) bool {
	if send, ok := e.request.(wire.Send); ok {
		same, err := sameContent(m, messageOf(send, c.cfg.UserID, ""))
		return err == nil && same && m.Version == 1 && m.Status == chat.StatusNormal
	}
	if m.Event == nil {
		return false
	}
	event := *m.Event
	switch r := e.request.(type) {
	case wire.Recall:
		return event.Kind == chat.EventRecall && event.TargetSeq == r.Seq && event.TargetMessageID == r.MessageID
	case wire.Edit:
		return event.Kind == chat.EventEdit && event.TargetSeq == r.Seq && event.TargetMessageID == r.MessageID && event.Version == r.Version+1
	case wire.ChangeMembers:
		named := event.Added
		if e.Action == wire.ActionRemoveMembers {
			named = event.Removed
		}
		return event.Kind == chat.EventMembers && slices.Equal(named, r.Members)
	case wire.ChangeGroup:
		if e.Action == wire.ActionDissolve {
			return event.Kind == chat.EventDissolve
		}
		return event.Kind == chat.EventMembers && slices.Equal(event.Removed, []string{c.cfg.UserID})
	case wire.SetRole:
		return event.Kind == chat.EventMembers && event.Member == r.UserID && event.Role == r.Role
	case wire.SetTitle:
		return event.Kind == chat.EventTitle && event.Title == r.Title
	}
	return false
}
