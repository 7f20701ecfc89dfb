package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// Target names the message that is recalled or edited.
type Target struct {
	ConversationID chat.ConversationID
	Seq            int64
	MessageID      string
}

// Recall takes a message back: its text and data go, from the events of its
// edits too, and an event in the ledger tells of it. Senders recall their own
// within the window; the owner and the admins of a group recall at any time, by
// chat.Role.May. Recalling what is recalled returns what the first recall became.
//
// Beside the errors of Append: NotFound for a message that does not exist or
// that the caller may not read, Forbidden without the right, TooLate.
func (s *Store) Recall(ctx context.Context, r Request, t Target, window time.Duration) (Committed, error) {
	e := chat.Event{Kind: chat.EventRecall, TargetSeq: t.Seq, TargetMessageID: t.MessageID}
	return s.commit(ctx, write{
		message: s.event(r, t.ConversationID, e),
		change: func(ctx context.Context, head chat.Conversation, self chat.Member) (changesFunc, error) {
			target, err := s.target(ctx, r.UserID, head, t.Seq, t.MessageID, "messageId")
			if err != nil {
				return nil, err
			}
			if by := target.RecalledBy; by != nil {
				return nil, &doneError{Committed{Sent: chat.Sent{
					ConversationID: head.ConversationID, Seq: by.Seq, MessageID: by.MessageID, ServerTime: by.ServerTime,
				}}}
			}
			if err := s.mayRecall(ctx, r, head, self, target, window); err != nil {
				return nil, err
			}
			if n := len(target.Edits); n > 0 && target.Edits[n-1] > head.LastSeq {
				return nil, errUnsettled // edited since the head was read
			}
			return s.recalling(ctx, target)
		},
	})
}

// recalling plans that a message is recalled, and its edits with it.
func (s *Store) recalling(ctx context.Context, target table.Message) (changesFunc, error) {
	edits, err := s.recallEdits(ctx, target)
	if err != nil {
		return nil, err
	}
	return func(_ chat.Conversation, m *chat.Message) (changes, error) {
		event := *m.Event // the request's own stays as it is, for the next attempt
		event.Version = target.Version + 1
		m.Event = &event
		by, err := table.Marshal(table.RecalledBy{Seq: m.Seq, MessageID: m.MessageID, ServerTime: m.ServerTime})
		if err != nil {
			return changes{}, err
		}
		return changes{items: append(slices.Clip(edits), s.reviseTarget(target,
			"SET #status = :status, #version = :next, recalledBy = :by REMOVE #text, #data",
			table.Item{
				":status": table.Str(string(chat.StatusRecalled)),
				":next":   table.Num(event.Version),
				":by":     &types.AttributeValueMemberM{Value: by},
			}))}, nil
	}, nil
}

// recallEdits takes the content out of the events that edited a message. Those
// that expired are gone already.
func (s *Store) recallEdits(ctx context.Context, target table.Message) ([]types.TransactWriteItem, error) {
	edits := map[int64]table.Message{}
	if _, err := s.db.LookUp(ctx, target.ConversationID, target.Edits, edits); err != nil {
		return nil, err
	}
	var items []types.TransactWriteItem
	for _, seq := range slices.Sorted(maps.Keys(edits)) {
		items = append(items, s.reviseTarget(edits[seq], "SET #status = :status REMOVE #text, #data, original",
			table.Item{":status": table.Str(string(chat.StatusRecalled))}))
	}
	return items, nil
}

func (s *Store) mayRecall(ctx context.Context, r Request, head chat.Conversation, self chat.Member, target table.Message, window time.Duration) error {
	if err := revisable(target); err != nil {
		return err
	}
	own := target.SenderID == r.UserID
	if head.Kind == chat.KindGroup && (self.Role == chat.RoleOwner || self.Role == chat.RoleAdmin) {
		if own {
			return nil
		}
		role := chat.RolePlain
		present, err := s.membersAmong(ctx, head.ConversationID, []string{target.SenderID})
		if err != nil {
			return err
		}
		if sender, ok := present[target.SenderID]; ok {
			role = sender.Role
		}
		if self.Role.May(chat.ActRecall, role) {
			return nil
		}
	}
	if !own {
		return chat.Errorf(chat.CodeForbidden, "this message is not yours to recall")
	}
	return s.within(window, target, "recalled")
}

// Edited is new content for a message. Version is the one its author has seen.
type Edited struct {
	Version int64
	Text    string
	Data    json.RawMessage
}

// Edit replaces the content of the caller's own message within the window; an
// event in the ledger carries the new content. The message's version is then one
// more than the one given.
//
// The event of a group message's first edit keeps what it replaced, for those who
// leave, or left, before it: they read on what there was then, see asOf.
//
// Beside the errors of Append: NotFound as for Recall, Forbidden for another's
// message and for one from before the caller was away, TooLate, VersionConflict if it
// was edited or recalled meanwhile, Limit after chat.MaxEdits edits, and what
// chat.Message.Validate says of the new content.
func (s *Store) Edit(ctx context.Context, r Request, t Target, edited Edited, window time.Duration) (Committed, error) {
	event := s.event(r, t.ConversationID, chat.Event{
		Kind: chat.EventEdit, TargetSeq: t.Seq, TargetMessageID: t.MessageID, Version: edited.Version + 1,
	})
	event.Text, event.Data = edited.Text, edited.Data
	return s.commit(ctx, write{
		message: event,
		change: func(ctx context.Context, head chat.Conversation, _ chat.Member) (changesFunc, error) {
			target, err := s.target(ctx, r.UserID, head, t.Seq, t.MessageID, "messageId")
			if err != nil {
				return nil, err
			}
			if err := s.mayEdit(r, target, edited, window); err != nil {
				return nil, err
			}
			return func(_ chat.Conversation, m *chat.Message) (changes, error) {
				e := changes{items: []types.TransactWriteItem{s.editTarget(target, edited, m.Seq)}}
				if head.Kind == chat.KindGroup && len(target.Edits) == 0 {
					e.original = &table.Content{Text: target.Text, Data: target.Data}
				}
				return e, nil
			}, nil
		},
	})
}

// editTarget changes a message's content and notes the event that did.
func (s *Store) editTarget(target table.Message, edited Edited, eventSeq int64) types.TransactWriteItem {
	set, remove := "SET #version = :next, edits = list_append(if_not_exists(edits, :none), :event)", ""
	values := table.Item{
		":next":  table.Num(target.Version + 1),
		":none":  &types.AttributeValueMemberL{Value: []types.AttributeValue{}},
		":event": &types.AttributeValueMemberL{Value: []types.AttributeValue{table.Num(eventSeq)}},
	}
	for name, value := range map[string]string{"text": edited.Text, "data": string(edited.Data)} {
		if value == "" {
			remove += ", #" + name
			continue
		}
		set += ", #" + name + " = :" + name
		values[":"+name] = table.Str(value)
	}
	if remove != "" {
		set += " REMOVE " + remove[len(", "):]
	}
	return s.reviseTarget(target, set, values)
}

func (s *Store) mayEdit(r Request, target table.Message, edited Edited, window time.Duration) error {
	if err := revisable(target); err != nil {
		return err
	}
	if target.SenderID != r.UserID {
		return chat.Errorf(chat.CodeForbidden, "this message is not yours to edit")
	}
	if target.Earlier { // the edit would be withheld from its own author
		return chat.Errorf(chat.CodeForbidden, "you were away since you sent this message; it can be recalled, not edited")
	}
	if target.Version != edited.Version || target.Status != chat.StatusNormal {
		return &chat.Error{
			Code: chat.CodeVersionConflict, Field: "version", Message: "the message was changed meanwhile; look at it again",
			Details: map[string]any{"version": target.Version, "status": target.Status},
		}
	}
	if err := s.within(window, target, "edited"); err != nil {
		return err
	}
	if len(target.Edits) >= chat.MaxEdits {
		return &chat.Error{
			Code: chat.CodeLimit, Details: map[string]any{"max": chat.MaxEdits},
			Message: fmt.Sprintf("a message can be edited %d times", chat.MaxEdits),
		}
	}
	changed := target.Message
	changed.Text, changed.Data = edited.Text, edited.Data
	return changed.Validate()
}

// revisable refuses what was not sent by a person.
func revisable(target table.Message) error {
	if !target.MessageType.Sendable() {
		return chat.Errorf(chat.CodeForbidden, "a message of type %s stays as it is", target.MessageType)
	}
	return nil
}

// within refuses a message whose window is over.
func (s *Store) within(window time.Duration, target table.Message, what string) error {
	switch age := s.db.Now().Sub(time.UnixMilli(target.ServerTime)); {
	case window < 0 || age < window:
		return nil
	case window == 0:
		return chat.Errorf(chat.CodeTooLate, "messages cannot be %s here", what)
	default:
		return chat.Errorf(chat.CodeTooLate, "a message can be %s for %s", what, window)
	}
}

// target reads the message with this seq and id, if the user may read it.
func (s *Store) target(ctx context.Context, userID string, head chat.Conversation, seq int64, messageID, field string) (table.Message, error) {
	v := chat.View{Head: head}
	found, err := s.db.Get(ctx, s.db.Inboxes, table.LineKey(userID, head.ConversationID), &v.Line)
	if err != nil {
		return table.Message{}, err
	}
	w, visible := v.WindowAt(seq)
	if !found || !visible {
		return table.Message{}, errNoMessage(field)
	}
	known, _, err := s.query(ctx, head.ConversationID, chat.Range{From: seq, To: seq}, table.Ascending, 1)
	if err != nil {
		return table.Message{}, err
	}
	m, ok := known[seq]
	if !ok || m.MessageID != messageID {
		return table.Message{}, errNoMessage(field)
	}
	m.Earlier = w.During.To < v.LastSeq()
	return m, nil
}

// reviseTarget changes a message if it is still as read.
func (s *Store) reviseTarget(target table.Message, update string, values table.Item) types.TransactWriteItem {
	names := map[string]string{"#version": "version", "#status": "status", "#text": "text", "#data": "data"}
	maps.DeleteFunc(names, func(name, _ string) bool { // unused ones are an error
		return name != "#version" && !strings.Contains(update, name)
	})
	values[":id"] = table.Str(target.MessageID)
	values[":version"] = table.Num(target.Version)
	return types.TransactWriteItem{Update: &types.Update{
		TableName:                 &s.db.Messages,
		Key:                       table.MessageKey(target.ConversationID, target.Seq),
		UpdateExpression:          &update,
		ConditionExpression:       aws.String("messageId = :id AND #version = :version"),
		ExpressionAttributeNames:  names,
		ExpressionAttributeValues: values,
	}}
}

func errNoMessage(field string) error {
	return chat.FieldErrorf(chat.CodeNotFound, field, "no such message in this conversation, or you may not read it")
}
