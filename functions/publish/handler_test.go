package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/lambda/messages"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/route/routetest"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/wire"
)

// fakeLedger keeps what it was given.
type fakeLedger struct {
	err    error
	given  store.Publication
	single [2]string
	group  opened
	added  []any
	keys   []string // of all that were to be added
	calls  int
	failAt int // the call that fails; 0: none by itself
}

func (f *fakeLedger) Publish(_ context.Context, p store.Publication) (store.Committed, error) {
	f.calls++
	f.given = p
	if f.err != nil {
		return store.Committed{}, f.err
	}
	return store.Committed{Sent: chat.Sent{ConversationID: chat.SystemID(p.Key), Seq: 5, MessageID: "01K", ServerTime: 9, Duplicate: true}}, nil
}

func (f *fakeLedger) OpenSingle(_ context.Context, userID, otherID string) (store.Committed, error) {
	f.calls++
	f.single = [2]string{userID, otherID}
	return store.Committed{Sent: chat.Sent{ConversationID: "single:x", Seq: 1, MessageID: "01S", ServerTime: 9}}, f.err
}

func (f *fakeLedger) OpenGroup(_ context.Context, r store.Request, title string, userIDs []string, v chat.Visibility) (store.Committed, error) {
	f.calls++
	f.group = opened{r, title, userIDs, v}
	return store.Committed{Sent: chat.Sent{ConversationID: "group:x", Seq: 1, MessageID: "01G", ServerTime: 9}}, f.err
}

func (f *fakeLedger) AdmitMembers(_ context.Context, conversationID chat.ConversationID, userIDs []string, clientMsgID string) (store.Committed, error) {
	f.calls++
	f.added = []any{conversationID, userIDs, clientMsgID}
	f.keys = append(f.keys, fmt.Sprintf("%s: %d", clientMsgID, len(userIDs)))
	if f.calls == f.failAt {
		return store.Committed{}, chat.Errorf(chat.CodeBusy, "later")
	}
	return store.Committed{Sent: chat.Sent{ConversationID: conversationID, Seq: 7, MessageID: "01A", ServerTime: 9}}, f.err
}

// opened is a group as it was asked for.
type opened struct {
	by      store.Request
	title   string
	members []string
	v       chat.Visibility
}

// publish returns the function's answer to an event, and its log line.
func publish(t *testing.T, f *fakeLedger, event string) (answer wire.Sent, line map[string]any, err error) {
	t.Helper()
	if event == "" {
		event = string(routetest.Sample[json.RawMessage](t, "publish"))
	}
	var log bytes.Buffer
	ctx := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "req-1"})
	answer, err = handler{ledger: f, log: slog.New(slog.NewJSONHandler(&log, nil))}.handle(ctx, json.RawMessage(event))
	require.NoError(t, json.Unmarshal(log.Bytes(), &line), "one line: %s", log.String())
	require.Equal(t, "req-1", line["requestId"])
	return answer, line, err
}

// failure is how the caller of the function gets an error: the runtime takes its
// errorType from it.
func failure(t *testing.T, err error) messages.InvokeResponse_Error {
	t.Helper()
	failed, ok := err.(messages.InvokeResponse_Error) //nolint:errorlint // nor does the runtime look within
	require.True(t, ok, "%T", err)
	return failed
}

func TestPublishTheSample(t *testing.T) {
	t.Parallel()
	f := &fakeLedger{}
	answer, line, err := publish(t, f, "")
	require.NoError(t, err)
	require.Equal(t, wire.Sent{ConversationID: "system:order:123", Seq: 5, MessageID: "01K", ServerTime: 9, Duplicate: true}, answer)
	require.Equal(t, store.Publication{
		Key: "order:123", Title: "Your order 123", Recipients: []string{"alice", "bob"}, ClientMsgID: "order-123-shipped",
		Message: chat.Message{
			MessageType: chat.TypeSystem, Text: "Your order is on its way.", Data: json.RawMessage(`{"status": "shipped", "carrier": "post"}`),
		},
	}, f.given)
	delete(line, "time")
	delete(line, "ms")
	delete(line, "SendLatency")
	require.Equal(t, map[string]any{
		"level": "INFO", "msg": "publish", "requestId": "req-1", "code": "OK",
		"conversationId": "system:order:123", "seq": 5.0, "messageId": "01K",
		"Sends": 1.0, "SendSuccess": 1.0, "IdempotencyHits": 1.0,
	}, line, "what it was about, and nothing of what it said")
}

func TestPublishHandsOn(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		event string
		want  store.Publication
	}{
		"the least":    {`{"key":"k","clientMsgId":"c","text":"x"}`, store.Publication{Key: "k", ClientMsgID: "c", Message: chat.Message{MessageType: chat.TypeSystem, Text: "x"}}},
		"another type": {`{"key":"k","clientMsgId":"c","messageType":"image","data":{"a":1}}`, store.Publication{Key: "k", ClientMsgID: "c", Message: chat.Message{MessageType: chat.TypeImage, Data: json.RawMessage(`{"a":1}`)}}},
		"nulls":        {`{"key":"k","clientMsgId":"c","text":"x","title":null,"recipients":null,"messageType":null,"data":null}`, store.Publication{Key: "k", ClientMsgID: "c", Message: chat.Message{MessageType: chat.TypeSystem, Text: "x"}}},
		"the longest key": {`{"key":"` + strings.Repeat("k", 121) + `","clientMsgId":"c","text":"x"}`,
			store.Publication{Key: strings.Repeat("k", 121), ClientMsgID: "c", Message: chat.Message{MessageType: chat.TypeSystem, Text: "x"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fakeLedger{}
			_, _, err := publish(t, f, tc.event)
			require.NoError(t, err)
			require.Equal(t, tc.want, f.given)
		})
	}
}

func TestPublishRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ event, field string }{
		"no key":                     {`{"clientMsgId":"c","text":"a secret"}`, "key"},
		"an empty key":               {`{"key":"","clientMsgId":"c","text":"a secret"}`, "key"},
		"a key of two lines":         {`{"key":"a\nb","clientMsgId":"c","text":"a secret"}`, "key"},
		"a key of 122 bytes":         {`{"key":"` + strings.Repeat("k", 122) + `","clientMsgId":"c","text":"a secret"}`, "key"},
		"one user alone":             {`{"between":["alice"]}`, "between"},
		"three users":                {`{"between":["alice","bob","cy"]}`, "between"},
		"no object":                  {`["a secret"]`, ""},
		"null":                       {`null`, ""},
		"a number for key":           {`{"key":1,"clientMsgId":"c","text":"a secret"}`, "key"},
		"a text for recipients":      {`{"key":"k","recipients":"a secret"}`, "recipients"},
		"a list for group":           {`{"group":["a secret"]}`, "group"},
		"a misspelt field":           {`{"key":"k","receipients":["a secret"],"clientMsgId":"c","text":"a secret"}`, "receipients"},
		"a field in other case":      {`{"key":"k","ClientMsgId":"a secret","clientMsgId":"c","text":"x"}`, "ClientMsgId"},
		"a misspelt null":            {`{"key":"k","clientMsgId":"c","text":"x","titel":null}`, "titel"},
		"a misspelt field within":    {`{"group":{"owner":"alice","title":"Trip","member":["a secret"]},"clientMsgId":"c"}`, "group.member"},
		"a misspelt field of others": {`{"addMembers":{"conversationId":"group:x","memebers":["a secret"]},"clientMsgId":"c"}`, "addMembers.memebers"},
		"a field of the level above": {`{"group":{"owner":"alice","title":"Trip","clientMsgId":"c"}}`, "group.clientMsgId"},
		"an event":                   {`{"key":"k","clientMsgId":"c","messageType":"event","text":"a secret"}`, "messageType"},
		"an unknown messageType":     {`{"key":"k","clientMsgId":"c","messageType":"smell","text":"a secret"}`, "messageType"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fakeLedger{}
			answer, line, err := publish(t, f, tc.event)
			require.Zero(t, answer)
			require.Zero(t, f.calls)
			failed := failure(t, err)
			require.Equal(t, "BAD_REQUEST", failed.Type)
			says := "BAD_REQUEST: "
			if tc.field != "" {
				says += tc.field + ": "
			}
			require.True(t, strings.HasPrefix(failed.Message, says), failed.Message)
			require.Equal(t, "INFO", line["level"], "the caller is told; there is nothing to look into")
			require.Equal(t, "BAD_REQUEST", line["code"])
			if tc.field != "" {
				require.Equal(t, tc.field, line["field"])
			}
			require.NotContains(t, fmt.Sprint(line), "a secret")
			require.NotContains(t, failed.Message, "smell", "the Lambda runtime logs the error")
			require.NotContains(t, failed.Message, "a secret")
		})
	}
}

func TestPublishOpensConversations(t *testing.T) {
	t.Parallel()

	t.Run("a single one", func(t *testing.T) {
		t.Parallel()
		f := &fakeLedger{}
		answer, line, err := publish(t, f, `{"between":["alice","bob"],"group":null,"data":null}`)
		require.NoError(t, err)
		require.Equal(t, [2]string{"alice", "bob"}, f.single)
		require.Equal(t, 1, f.calls)
		require.Equal(t, wire.Sent{ConversationID: "single:x", Seq: 1, MessageID: "01S", ServerTime: 9}, answer)
		require.Equal(t, "single:x", line["conversationId"])
	})

	t.Run("a group", func(t *testing.T) {
		t.Parallel()
		for extra, v := range map[string]chat.Visibility{"": chat.VisibleAll, `,"visibility":"sinceJoin"`: chat.VisibleSinceJoin} {
			f := &fakeLedger{}
			answer, _, err := publish(t, f, `{"group":{"owner":"alice","title":"Trip","members":["bob"]`+extra+`},"clientMsgId":"c"}`)
			require.NoError(t, err)
			require.Equal(t, opened{store.Request{UserID: "alice", ClientMsgID: "c"}, "Trip", []string{"bob"}, v}, f.group)
			require.Equal(t, 1, f.calls)
			require.EqualValues(t, "group:x", answer.ConversationID)
		}
	})

	t.Run("new members", func(t *testing.T) {
		t.Parallel()
		f := &fakeLedger{}
		answer, line, err := publish(t, f, `{"addMembers":{"conversationId":"group:x","members":["bob","cy"]},"clientMsgId":"c"}`)
		require.NoError(t, err)
		require.Equal(t, []any{chat.ConversationID("group:x"), []string{"bob", "cy"}, "c"}, f.added)
		require.Equal(t, 1, f.calls)
		require.Equal(t, wire.Sent{ConversationID: "group:x", Seq: 7, MessageID: "01A", ServerTime: 9}, answer)
		require.EqualValues(t, "group:x", line["conversationId"])
	})

	t.Run("many new members", func(t *testing.T) {
		t.Parallel()
		event := func(members ...string) string {
			encoded, err := json.Marshal(members)
			require.NoError(t, err)
			return `{"addMembers":{"conversationId":"group:x","members":` + string(encoded) + `},"clientMsgId":"c"}`
		}
		var many []string
		for i := range maxAdded {
			many = append(many, fmt.Sprint("user", i))
		}
		f := &fakeLedger{}
		_, _, err := publish(t, f, event(many[:100]...))
		require.NoError(t, err)
		require.Equal(t, []string{"c: 48", "c:1: 48", "c:2: 4"}, f.keys)
		f = &fakeLedger{}
		_, _, err = publish(t, f, event(many...))
		require.NoError(t, err)
		require.Equal(t, "c:9: 48", f.keys[9])
		f = &fakeLedger{failAt: 2}
		_, _, err = publish(t, f, event(many...))
		require.Equal(t, "BUSY", failure(t, err).Type)
		require.Equal(t, 2, f.calls)
		for code, members := range map[string][]string{"LIMIT": append(many, "one more"), "BAD_REQUEST": append(many[:100:100], "user0")} {
			f = &fakeLedger{}
			_, _, err = publish(t, f, event(members...))
			require.Equal(t, code, failure(t, err).Type)
			require.Zero(t, f.calls)
		}
	})

	t.Run("and nothing else with them", func(t *testing.T) {
		t.Parallel()
		for _, event := range []string{
			`{"between":["alice","bob"],"text":"hi"}`, `{"between":["alice","bob"],"data":{}}`,
			`{"between":["alice","bob"],"recipients":["cy"]}`, `{"between":["alice","bob"],"title":"Trip"}`,
			`{"between":["alice","bob"],"key":"order:1"}`, `{"between":["alice","bob"],"group":{"owner":"alice"}}`,
			`{"group":{"owner":"alice","title":"Trip","members":["bob"]},"clientMsgId":"c","messageType":"text"}`,
			`{"addMembers":{"conversationId":"group:x","members":["bob"]},"clientMsgId":"c","text":"hi"}`,
			`{"addMembers":{"conversationId":"group:x","members":["bob"]},"key":"order:1","clientMsgId":"c"}`,
		} {
			f := &fakeLedger{}
			_, _, err := publish(t, f, event)
			require.Equal(t, "BAD_REQUEST", failure(t, err).Type, event)
			require.Zero(t, f.calls, event)
		}
	})
}

func TestPublishFails(t *testing.T) {
	t.Parallel()
	for code, tc := range map[string]struct {
		err   error
		level string
		shown any
	}{
		"IDEMPOTENCY_CONFLICT": {chat.FieldErrorf(chat.CodeIdempotencyConflict, "clientMsgId", "used"), "INFO", nil},
		"BUSY":                 {fmt.Errorf("%w (after 3 transactions)", chat.Errorf(chat.CodeBusy, "busy")), "WARN", "BUSY: busy (after 3 transactions)"},
		"INTERNAL":             {errors.New("no table"), "ERROR", "no table"},
	} {
		t.Run(code, func(t *testing.T) {
			t.Parallel()
			answer, line, err := publish(t, &fakeLedger{err: tc.err}, "")
			require.Zero(t, answer)
			require.Equal(t, messages.InvokeResponse_Error{Type: code, Message: tc.err.Error()}, failure(t, err))
			require.Equal(t, tc.level, line["level"])
			require.Equal(t, code, line["code"])
			require.Equal(t, tc.shown, line["err"])
			require.Equal(t, 1.0, line["Sends"])
			require.Nil(t, line["SendSuccess"])
			require.Equal(t, tc.level != "INFO", line["SendFailures"] != nil, "a refusal is the caller's to mend")
			require.NotContains(t, fmt.Sprint(line), "on its way")
		})
	}
}
