package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-lambda-go/lambda/messages"
	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/wire"
)

type ledger interface {
	Publish(ctx context.Context, p store.Publication) (store.Committed, error)
	OpenSingle(ctx context.Context, userID, otherID string) (store.Committed, error)
	OpenGroup(ctx context.Context, r store.Request, title string, userIDs []string, v chat.Visibility) (store.Committed, error)
	AdmitMembers(ctx context.Context, conversationID chat.ConversationID, userIDs []string, clientMsgID string) (store.Committed, error)
}

type handler struct {
	ledger ledger
	log    *slog.Logger
}

// request is the event of a direct invocation: a message to a system conversation
// (key), the opening of a single conversation (between) or a group (group), or new
// members for a group (addMembers).
type request struct {
	Between    []string    `json:"between"` // two users
	Group      *group      `json:"group"`
	AddMembers *newMembers `json:"addMembers"`

	Key         string           `json:"key"`        // the conversation is system:<key>
	Title       string           `json:"title"`      // of a new conversation
	Recipients  []string         `json:"recipients"` // who reads from this message on, beside those who do
	ClientMsgID string           `json:"clientMsgId"`
	MessageType chat.MessageType `json:"messageType"` // system if empty
	Text        string           `json:"text"`
	Data        json.RawMessage  `json:"data"`
}

// group is a group to be opened for its owner, under the request's clientMsgId.
type group struct {
	Owner      string          `json:"owner"`
	Title      string          `json:"title"`
	Members    []string        `json:"members"`    // beside the owner
	Visibility chat.Visibility `json:"visibility"` // all if empty
}

// newMembers are to join a group, under the request's clientMsgId.
type newMembers struct {
	ConversationID chat.ConversationID `json:"conversationId"`
	Members        []string            `json:"members"`
}

// handle answers with what the message became. A refusal is the function's error: its
// errorType is the code, by which a caller can tell errors apart, and its message
// starts with it. The Lambda runtime logs the error, so none quotes the message.
func (h handler) handle(ctx context.Context, event json.RawMessage) (wire.Sent, error) {
	start := time.Now()
	ctx, notes := metric.Begin(ctx)
	var r request
	var committed store.Committed
	err := route.DecodeEvent(event, &r)
	if err == nil {
		committed, err = h.carryOut(ctx, r)
	}
	took := time.Since(start)
	sent := committed.Sent
	metric.Note(ctx, metric.Entry(sent, committed.Effort)...)
	metric.Note(ctx, metric.Send(took, err)...)
	h.record(ctx, notes, err, took)
	if err != nil {
		return sent, messages.InvokeResponse_Error{Type: string(chat.CodeOf(err)), Message: err.Error()}
	}
	return sent, nil
}

func (h handler) carryOut(ctx context.Context, r request) (store.Committed, error) {
	asked := 0
	for _, there := range []bool{r.Key != "", r.Between != nil, r.Group != nil, r.AddMembers != nil} {
		if there {
			asked++
		}
	}
	switch {
	case asked > 1:
		return store.Committed{}, chat.Errorf(chat.CodeBadRequest, "one at a time: a message (key), a single conversation (between), a group (group) or new members (addMembers)")
	case r.Between != nil:
		return h.openSingle(ctx, r)
	case r.Group != nil:
		return h.openGroup(ctx, r)
	case r.AddMembers != nil:
		return h.addMembers(ctx, r)
	}
	return h.publish(ctx, r)
}

func (h handler) openSingle(ctx context.Context, r request) (store.Committed, error) {
	if err := nothingToSay(r); err != nil {
		return store.Committed{}, err
	}
	if len(r.Between) != 2 {
		return store.Committed{}, chat.FieldErrorf(chat.CodeBadRequest, "between", "a single conversation is between 2 users, not %d", len(r.Between))
	}
	return h.ledger.OpenSingle(ctx, r.Between[0], r.Between[1])
}

func (h handler) openGroup(ctx context.Context, r request) (store.Committed, error) {
	if err := nothingToSay(r); err != nil {
		return store.Committed{}, err
	}
	by := store.Request{UserID: r.Group.Owner, ClientMsgID: r.ClientMsgID}
	return h.ledger.OpenGroup(ctx, by, r.Group.Title, r.Group.Members, cmp.Or(r.Group.Visibility, chat.VisibleAll))
}

// maxAdded is how many users one request adds, in changes of chat.MaxRosterChange each: a
// crowd is not filled one by one, and ten changes fit well into the function's time.
const maxAdded = 10 * chat.MaxRosterChange

// addMembers answers with what the last change became. Each has a key of its own, so a
// request that broke off goes on where it did when it is repeated.
func (h handler) addMembers(ctx context.Context, r request) (all store.Committed, err error) {
	if err := nothingToSay(r); err != nil {
		return store.Committed{}, err
	}
	id, users := r.AddMembers.ConversationID, r.AddMembers.Members
	metric.Note(ctx, metric.Conversation(id))
	if len(users) > maxAdded {
		return store.Committed{}, &chat.Error{
			Code: chat.CodeLimit, Field: "addMembers.members", Details: map[string]any{"max": maxAdded},
			Message: fmt.Sprintf("one request adds at most %d users, this has %d; send the rest in further ones", maxAdded, len(users)),
		}
	}
	if sorted := slices.Sorted(slices.Values(users)); len(slices.Compact(sorted)) < len(users) {
		return store.Committed{}, chat.FieldErrorf(chat.CodeBadRequest, "addMembers.members", "someone is named twice")
	}
	all.Duplicate = true
	var took metric.Effort
	for i := 0; i == 0 || i*chat.MaxRosterChange < len(users); i++ {
		key := r.ClientMsgID
		if i > 0 {
			key += ":" + strconv.Itoa(i)
		}
		known := all.Duplicate
		change := users[i*chat.MaxRosterChange : min(len(users), (i+1)*chat.MaxRosterChange)]
		all, err = h.ledger.AdmitMembers(ctx, id, change, key)
		all.Duplicate = all.Duplicate && known
		took = metric.Effort{Attempts: took.Attempts + all.Attempts, Conflicts: took.Conflicts + all.Conflicts, Throttles: took.Throttles + all.Throttles}
		all.Effort = took
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// nothingToSay refuses a message beside what is to be opened, or who is to be added:
// it would not be sent.
func nothingToSay(r request) error {
	if r.Text != "" || len(r.Data) > 0 || len(r.Recipients) > 0 || r.MessageType != "" || r.Title != "" {
		return chat.Errorf(chat.CodeBadRequest, "what opens a conversation or adds members takes no message; leave out title, recipients, messageType, text and data")
	}
	return nil
}

func (h handler) publish(ctx context.Context, r request) (store.Committed, error) {
	if _, ok := chat.SystemID(r.Key).Kind(); !ok {
		return store.Committed{}, chat.FieldErrorf(chat.CodeBadRequest, "key",
			"say what the conversation is about, such as order:123, in 1 to %d bytes without control characters",
			chat.MaxConversationIDBytes-len(chat.KindSystem)-len(":"))
	}
	messageType := cmp.Or(r.MessageType, chat.TypeSystem)
	if messageType != chat.TypeSystem && !messageType.Sendable() {
		return store.Committed{}, chat.FieldErrorf(chat.CodeBadRequest, "messageType", "this messageType cannot be published; use system, text, image, voice, file or custom")
	}
	metric.Note(ctx, metric.Conversation(chat.SystemID(r.Key)))
	return h.ledger.Publish(ctx, store.Publication{
		Key:         r.Key,
		Title:       r.Title,
		Recipients:  r.Recipients,
		ClientMsgID: r.ClientMsgID,
		Message:     chat.Message{MessageType: messageType, Text: r.Text, Data: r.Data},
	})
}

// record writes the request's log line, which has none of the message.
func (h handler) record(ctx context.Context, notes *metric.Notes, err error, took time.Duration) {
	var attrs []slog.Attr
	if invocation, ok := lambdacontext.FromContext(ctx); ok {
		attrs = append(attrs, slog.String("requestId", invocation.AwsRequestID))
	}
	var code chat.Code
	var field string
	if err != nil {
		code = chat.CodeOf(err)
	}
	if refused, ok := errors.AsType[*chat.Error](err); ok {
		field = refused.Field
	}
	level, outcome := notes.Outcome(err, code, field, took)
	h.log.LogAttrs(ctx, level, "publish", append(attrs, outcome...)...)
}
