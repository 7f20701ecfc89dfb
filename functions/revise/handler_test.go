package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/route/routetest"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/wire"
)

// fakeMessages keeps what it was asked and answers with its error, if it has one.
type fakeMessages struct {
	err     error
	request store.Request
	target  store.Target
	edited  store.Edited
	window  time.Duration
	calls   int
}

func (f *fakeMessages) Recall(_ context.Context, r store.Request, t store.Target, window time.Duration) (store.Committed, error) {
	f.calls++
	f.request, f.target, f.window = r, t, window
	return store.Committed{Sent: chat.Sent{ConversationID: t.ConversationID, Seq: 43, MessageID: "01K", ServerTime: 9, Duplicate: true}}, f.err
}

func (f *fakeMessages) Edit(ctx context.Context, r store.Request, t store.Target, edited store.Edited, window time.Duration) (store.Committed, error) {
	f.edited = edited
	return f.Recall(ctx, r, t, window)
}

func serve(t *testing.T, f *fakeMessages, body string) string {
	t.Helper()
	h := handler{messages: f, windows: store.Windows{Recall: time.Minute, Edit: time.Hour}}
	return routetest.Answer(t, slog.DiscardHandler, h.actions(), routetest.Frame(t, "revise", body))
}

func TestEdit(t *testing.T) {
	t.Parallel()
	f := &fakeMessages{}
	id := chat.SingleID("alice", "bob")
	require.Equal(t,
		`{"type":"reply","id":"r-13","action":"edit","result":{"conversationId":"`+string(id)+`","seq":43,"messageId":"01K","serverTime":9,"duplicate":true,"version":2}}`,
		serve(t, f, ""))
	require.Equal(t, store.Request{UserID: "alice", DeviceID: "phone", ClientMsgID: "phone-9d04"}, f.request)
	require.Equal(t, store.Target{ConversationID: id, Seq: 42, MessageID: "01KB6Z2Q8D8C6E2JY5R3T9V0WX"}, f.target)
	require.Equal(t, store.Edited{Version: 1, Text: "Grüße aus 北京"}, f.edited)
	require.Equal(t, time.Hour, f.window)

	serve(t, f, `{"action":"edit","id":"r","conversationId":"group:1","seq":9007199254740991,"messageId":"m","version":7,"data":{"a":[1]},"text":null,"clientMsgId":"c"}`)
	require.Equal(t, store.Edited{Version: 7, Data: json.RawMessage(`{"a":[1]}`)}, f.edited)
}

func TestRecall(t *testing.T) {
	t.Parallel()
	f := &fakeMessages{}
	require.Equal(t,
		`{"type":"reply","id":"r","action":"recall","result":{"conversationId":"group:1","seq":43,"messageId":"01K","serverTime":9,"duplicate":true}}`,
		serve(t, f, `{"action":"recall","id":"r","conversationId":"group:1","seq":1,"messageId":"m","clientMsgId":"c"}`))
	require.Equal(t, store.Request{UserID: "alice", DeviceID: "phone", ClientMsgID: "c"}, f.request)
	require.Equal(t, store.Target{ConversationID: "group:1", Seq: 1, MessageID: "m"}, f.target)
	require.Equal(t, time.Minute, f.window)
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ fields, field string }{
		"no seq":                {`"messageId":"m","version":1`, "seq"},
		"seq 0":                 {`"seq":0,"messageId":"m","version":1`, "seq"},
		"a negative seq":        {`"seq":-1,"messageId":"m","version":1`, "seq"},
		"a seq of 2^53":         {`"seq":9007199254740992,"messageId":"m","version":1`, "seq"},
		"a fraction for seq":    {`"seq":1.5,"messageId":"m","version":1`, "seq"},
		"no messageId":          {`"seq":1,"version":1`, "messageId"},
		"an empty messageId":    {`"seq":1,"messageId":"","version":1`, "messageId"},
		"a number as messageId": {`"seq":1,"messageId":1,"version":1`, "messageId"},
		"a list of ids":         {`"seq":1,"messageId":"m","version":1,"conversationId":["group:1"]`, "conversationId"},
	} {
		for _, action := range []string{"edit", "recall"} {
			t.Run(action+" with "+name, func(t *testing.T) {
				t.Parallel()
				requireBad(t, `{"id":"r","action":"`+action+`","conversationId":"group:1","clientMsgId":"c","text":"x",`+tc.fields+`}`, tc.field)
			})
		}
	}
	for name, tc := range map[string]struct{ fields, field string }{
		"no version":         {`"text":"x"`, "version"},
		"version 0":          {`"text":"x","version":0`, "version"},
		"the last version":   {`"text":"x","version":9007199254740991`, "version"},
		"a string's version": {`"text":"x","version":"1"`, "version"},
		"a number for text":  {`"text":1,"version":1`, "text"},
	} {
		t.Run("edit with "+name, func(t *testing.T) {
			t.Parallel()
			requireBad(t, `{"id":"r","action":"edit","conversationId":"group:1","clientMsgId":"c","seq":1,"messageId":"m",`+tc.fields+`}`, tc.field)
		})
	}
	for _, action := range []string{"edit", "recall"} {
		t.Run(action+" as the store refuses it", func(t *testing.T) {
			t.Parallel()
			f := &fakeMessages{err: fmt.Errorf("wrapped: %w", &chat.Error{Code: chat.CodeVersionConflict, Field: "version", Message: "changed", Details: map[string]any{"version": 3}})}
			e := refusalOf(t, serve(t, f, `{"id":"r","action":"`+action+`","conversationId":"group:1","clientMsgId":"c","seq":1,"messageId":"m","version":1,"text":"x"}`))
			require.Equal(t, wire.Error{Code: chat.CodeVersionConflict, Field: "version", Message: "changed", Details: map[string]any{"version": 3.0}}, e)
		})
	}
}

func requireBad(t *testing.T, body, field string) {
	t.Helper()
	f := &fakeMessages{}
	e := refusalOf(t, serve(t, f, body))
	require.Equal(t, chat.CodeBadRequest, e.Code, e.Message)
	require.Equal(t, field, e.Field, e.Message)
	require.Zero(t, f.calls)
}

func refusalOf(t *testing.T, body string) wire.Error {
	t.Helper()
	var f wire.ErrorReply
	require.NoError(t, json.Unmarshal([]byte(body), &f))
	require.Equal(t, wire.TypeError, f.Type, body)
	return f.Error
}
