package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/route/routetest"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/wire"
)

// fakeLedger validates as the ledger does and keeps what it was given.
type fakeLedger struct {
	err     error
	message chat.Message
	to      string
	calls   int
}

func (f *fakeLedger) Append(_ context.Context, m chat.Message, to string) (store.Committed, error) {
	f.calls++
	f.message, f.to = m, to
	if to != "" {
		m.ConversationID = chat.SingleID(m.SenderID, to)
	}
	m.MessageID, m.ServerTime, m.Version, m.Status = "01K", 9, 1, chat.StatusNormal
	if err := m.Validate(); err != nil {
		return store.Committed{}, err
	}
	return store.Committed{Sent: chat.Sent{ConversationID: m.ConversationID, Seq: 5, MessageID: "01K", ServerTime: 9, Duplicate: true}, Effort: metric.Effort{Attempts: 2}}, f.err
}

func serve(t *testing.T, l *fakeLedger, body string) string {
	t.Helper()
	return routetest.Answer(t, slog.DiscardHandler, handler{ledger: l}.actions(), routetest.Frame(t, "send", body))
}

func TestSendCommits(t *testing.T) {
	t.Parallel()

	t.Run("the sample, to a user", func(t *testing.T) {
		t.Parallel()
		l := &fakeLedger{}
		require.Equal(t,
			`{"type":"reply","id":"r-7","action":"send","result":{"conversationId":"`+string(chat.SingleID("alice", "bob"))+`","seq":5,"messageId":"01K","serverTime":9,"duplicate":true}}`,
			serve(t, l, ""))
		require.Equal(t, "bob", l.to)
		require.Equal(t, chat.Message{
			ClientMsgID: "phone-7f3a", SenderID: "alice", SenderDeviceID: "phone", Via: "TWegAcC4EowCHnA=", MessageType: chat.TypeText,
			Text: "Grüße, 你好 👋", ClientTime: 1795950300001,
		}, l.message)
	})

	t.Run("all fields, to a conversation", func(t *testing.T) {
		t.Parallel()
		l := &fakeLedger{}
		require.Contains(t, serve(t, l, `{"action":"send","id":"r","conversationId":"group:1","to":null,"clientMsgId":"c","messageType":"image","text":"look",
			"data":{"key":"k"},"replyTo":{"seq":3,"messageId":"m"},"clientTime":0,"senderId":"mallory","serverTime":1}`), `"type":"reply"`)
		require.Equal(t, chat.Message{
			ConversationID: "group:1", ClientMsgID: "c", SenderID: "alice", SenderDeviceID: "phone", Via: "TWegAcC4EowCHnA=", MessageType: chat.TypeImage,
			Text: "look", Data: json.RawMessage(`{"key":"k"}`), ReplyTo: &chat.ReplyTo{Seq: 3, MessageID: "m"},
		}, l.message)
		require.Empty(t, l.to)
	})

	t.Run("null for what may be absent", func(t *testing.T) {
		t.Parallel()
		l := &fakeLedger{}
		require.Contains(t, serve(t, l, `{"action":"send","id":"r","conversationId":null,"to":"bob","clientMsgId":"c","messageType":"text","text":"x",
			"data":null,"replyTo":null,"clientTime":null}`), `"type":"reply"`)
		require.Nil(t, l.message.Data)
		require.Nil(t, l.message.ReplyTo)
	})
}

func TestSendRefuses(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200)
	for name, tc := range map[string]struct {
		fields string
		code   chat.Code
		field  string
	}{
		"no conversation":             {`"clientMsgId":"c","messageType":"text","text":"x"`, chat.CodeBadRequest, "conversationId"},
		"a conversation and a user":   {`"conversationId":"group:1","to":"bob","clientMsgId":"c","messageType":"text","text":"x"`, chat.CodeBadRequest, "to"},
		"a number for conversation":   {`"conversationId":1,"clientMsgId":"c","messageType":"text","text":"x"`, chat.CodeBadRequest, "conversationId"},
		"no kind of conversation":     {`"conversationId":"room:1","clientMsgId":"c","messageType":"text","text":"x"`, chat.CodeBadRequest, "conversationId"},
		"no clientMsgId":              {`"to":"bob","messageType":"text","text":"x"`, chat.CodeBadRequest, "clientMsgId"},
		"an empty clientMsgId":        {`"to":"bob","clientMsgId":"","messageType":"text","text":"x"`, chat.CodeBadRequest, "clientMsgId"},
		"a clientMsgId of 65":         {`"to":"bob","clientMsgId":"` + long[:65] + `","messageType":"text","text":"x"`, chat.CodeBadRequest, "clientMsgId"},
		"a clientMsgId beyond ASCII":  {`"to":"bob","clientMsgId":"é","messageType":"text","text":"x"`, chat.CodeBadRequest, "clientMsgId"},
		"a number for clientMsgId":    {`"to":"bob","clientMsgId":7,"messageType":"text","text":"x"`, chat.CodeBadRequest, "clientMsgId"},
		"no messageType":              {`"to":"bob","clientMsgId":"c","text":"x"`, chat.CodeBadRequest, "messageType"},
		"an unknown messageType":      {`"to":"bob","clientMsgId":"c","messageType":"smell","text":"x"`, chat.CodeBadRequest, "messageType"},
		"the server's messageType":    {`"to":"bob","clientMsgId":"c","messageType":"system","text":"x"`, chat.CodeBadRequest, "messageType"},
		"an event":                    {`"to":"bob","clientMsgId":"c","messageType":"event","event":{"kind":"recall"}`, chat.CodeBadRequest, "messageType"},
		"a text without text":         {`"to":"bob","clientMsgId":"c","messageType":"text"`, chat.CodeBadRequest, "text"},
		"a text in the wrong case":    {`"to":"bob","clientMsgId":"c","messageType":"text","Text":"x"`, chat.CodeBadRequest, "text"},
		"a list for text":             {`"to":"bob","clientMsgId":"c","messageType":"text","text":["x"]`, chat.CodeBadRequest, "text"},
		"a text of 4,001 runes":       {`"to":"bob","clientMsgId":"c","messageType":"text","text":"` + strings.Repeat("é", 4001) + `"`, chat.CodeTooLarge, "text"},
		"an image without data":       {`"to":"bob","clientMsgId":"c","messageType":"image"`, chat.CodeBadRequest, "data"},
		"data that is no object":      {`"to":"bob","clientMsgId":"c","messageType":"image","data":[1]`, chat.CodeBadRequest, "data"},
		"an entry of over 24 KB":      {`"to":"bob","clientMsgId":"c","messageType":"custom","data":{"x":"` + strings.Repeat("x", 25_000) + `"}`, chat.CodeTooLarge, ""},
		"a reply to nothing":          {`"to":"bob","clientMsgId":"c","messageType":"text","text":"x","replyTo":{}`, chat.CodeBadRequest, "replyTo"},
		"a reply to half a message":   {`"to":"bob","clientMsgId":"c","messageType":"text","text":"x","replyTo":{"seq":1.5,"messageId":"m"}`, chat.CodeBadRequest, "replyTo.seq"},
		"a clientTime before 1970":    {`"to":"bob","clientMsgId":"c","messageType":"text","text":"x","clientTime":-1`, chat.CodeBadRequest, "clientTime"},
		"a clientTime of beyond 2^53": {`"to":"bob","clientMsgId":"c","messageType":"text","text":"x","clientTime":9007199254740992`, chat.CodeBadRequest, "clientTime"},
		"a clientTime with exponent":  {`"to":"bob","clientMsgId":"c","messageType":"text","text":"x","clientTime":1e12`, chat.CodeBadRequest, "clientTime"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var f wire.ErrorReply
			require.NoError(t, json.Unmarshal([]byte(serve(t, &fakeLedger{}, `{"action":"send","id":"r",`+tc.fields+`}`)), &f))
			require.Equal(t, wire.TypeError, f.Type)
			require.Equal(t, tc.code, f.Error.Code, f.Error.Message)
			require.Equal(t, tc.field, f.Error.Field, f.Error.Message)
			require.Equal(t, "r", f.ID)
		})
	}

	t.Run("what the ledger refuses", func(t *testing.T) {
		t.Parallel()
		l := &fakeLedger{err: &chat.Error{Code: chat.CodeIdempotencyConflict, Field: "clientMsgId", Message: "used", Details: map[string]any{"seq": 4}}}
		require.Equal(t,
			`{"type":"error","id":"r-7","action":"send","error":{"code":"IDEMPOTENCY_CONFLICT","message":"used","retryable":false,"field":"clientMsgId","details":{"seq":4}}}`,
			serve(t, l, ""))
		require.Equal(t, 1, l.calls)
	})
}
