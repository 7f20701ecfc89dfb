package integration_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// All of these go over one socket, which is open in the end.
func TestBadInputIsRefusedAndTheSocketStaysOpen(t *testing.T) {
	t.Parallel()
	alice, bob, mallory := newUser("alice"), newUser("bob"), newUser("mallory")
	a, d := mustConnect(t, shared, alice, "phone"), mustConnect(t, shared, mallory, "phone")
	sent := mustSend(t, a, wire.Send{To: bob, Text: "a secret"})
	for _, tt := range badFrames(sent.ConversationID) {
		got, err := d.exchange(t.Context(), "7", []byte(tt.frame))
		require.NoError(t, err, tt.name)
		require.Equal(t, wire.TypeError, got.Type, "%s: %+v", tt.name, got)
		require.Equal(t, tt.code, got.Error.Code, "%s: %+v", tt.name, got)
		require.Equal(t, tt.field, got.Error.Field, "%s: %+v", tt.name, got)
		require.False(t, got.Error.Retryable, tt.name)
		require.NotEmpty(t, got.Error.Message, tt.name)
		requireEcho(t, tt.name, tt.frame, got)
	}
	require.NoError(t, d.do(t.Context(), wire.ActionPing, nil, nil))
	var list wire.ConversationsPage
	require.NoError(t, d.do(t.Context(), wire.ActionConversations, nil, &list))
	require.Empty(t, list.Conversations, "nothing of all that was done")
}

// badFrame is one with the id 7, and how it is refused.
type badFrame struct {
	name, frame string
	code        chat.Code
	field       string
}

// badFrames are of a user who is no member of the conversation foreign.
func badFrames(foreign chat.ConversationID) []badFrame {
	// A good request of each action, to be spoiled field by field.
	const (
		send          = `{"action":"send","id":"7","to":"bob","clientMsgId":"1","messageType":"text","text":"hi"}`
		sync          = `{"action":"sync","id":"7","conversationId":"single:x","afterSeq":0,"limit":10}`
		history       = `{"action":"history","id":"7","conversationId":"single:x","beforeSeq":5,"limit":10}`
		changes       = `{"action":"changes","id":"7","syncCursor":0}`
		conversations = `{"action":"conversations","id":"7","limit":10}`
		ping          = `{"action":"ping","id":"7"}`
		edit          = `{"action":"edit","id":"7","conversationId":"single:x","seq":1,"messageId":"x","version":1,"text":"hi","clientMsgId":"1"}`
		createGroup   = `{"action":"createGroup","id":"7","title":"Trip","members":["bob"],"clientMsgId":"1"}`
		addMembers    = `{"action":"addMembers","id":"7","conversationId":"group:x","members":["bob"],"clientMsgId":"1"}`
		setTitle      = `{"action":"setTitle","id":"7","conversationId":"group:x","title":"Trip","clientMsgId":"1"}`
	)
	sendInto := func(conversation chat.ConversationID) string {
		return with(without(send, "to"), "conversationId", `"`+string(conversation)+`"`)
	}
	return []badFrame{
		{"no JSON", `hello`, chat.CodeUnknownAction, ""},
		{"half JSON", send[:40], chat.CodeUnknownAction, ""},
		{"JSON and more", ping + `}`, chat.CodeUnknownAction, ""},
		{"a JSON array", `[` + send + `]`, chat.CodeUnknownAction, ""},
		{"a JSON string", `"send"`, chat.CodeUnknownAction, ""},
		{"a JSON number", `7`, chat.CodeUnknownAction, ""},
		{"null", `null`, chat.CodeUnknownAction, ""},
		{"white space", ` `, chat.CodeUnknownAction, ""},
		{"an empty object", `{}`, chat.CodeBadRequest, "id"},
		{"no action", without(ping, "action"), chat.CodeUnknownAction, ""},
		{"an unknown action", with(ping, "action", `"fly"`), chat.CodeUnknownAction, ""},
		{"an action in capitals", with(ping, "action", `"PING"`), chat.CodeUnknownAction, ""},
		{"an action that is a number", with(ping, "action", `1`), chat.CodeUnknownAction, ""},
		{"an action that is an object", with(ping, "action", `{"ping":1}`), chat.CodeUnknownAction, ""},
		{"a platform route as action", with(ping, "action", `"$connect"`), chat.CodeUnknownAction, ""},
		{"no id", without(send, "id"), chat.CodeBadRequest, "id"},
		{"an empty id", with(send, "id", `""`), chat.CodeBadRequest, "id"},
		{"an id that is a number", with(sync, "id", `7`), chat.CodeBadRequest, "id"},
		{"an id of 65 characters", with(ping, "id", quoted(65)), chat.CodeBadRequest, "id"},

		{"send to nobody", without(send, "to"), chat.CodeBadRequest, "conversationId"},
		{"send to both", with(send, "conversationId", `"single:x"`), chat.CodeBadRequest, "to"},
		{"send to a number", with(send, "to", `5`), chat.CodeBadRequest, "to"},
		{"send to a control character", with(send, "to", `"a\u0007"`), chat.CodeBadRequest, "to"},
		{"send to 129 characters", with(send, "to", quoted(129)), chat.CodeBadRequest, "to"},
		{"send to what is no Unicode", with(send, "to", `"bob\ud800"`), chat.CodeBadRequest, "to"},
		{"send to nothing to see", with(send, "to", `"\u200b"`), chat.CodeBadRequest, "to"},
		{"send to who looks like the product", with(send, "to", `"ｓyѕTEM"`), chat.CodeBadRequest, "to"},
		{"send without clientMsgId", without(send, "clientMsgId"), chat.CodeBadRequest, "clientMsgId"},
		{"send with an empty clientMsgId", with(send, "clientMsgId", `""`), chat.CodeBadRequest, "clientMsgId"},
		{"send with null as clientMsgId", with(send, "clientMsgId", `null`), chat.CodeBadRequest, "clientMsgId"},
		{"send with a long clientMsgId", with(send, "clientMsgId", quoted(65)), chat.CodeBadRequest, "clientMsgId"},
		{"send with a clientMsgId beyond ASCII", with(send, "clientMsgId", `"ü"`), chat.CodeBadRequest, "clientMsgId"},
		{"send with a clientMsgId that is a number", with(send, "clientMsgId", `1`), chat.CodeBadRequest, "clientMsgId"},
		{"send without messageType", without(send, "messageType"), chat.CodeBadRequest, "messageType"},
		{"send of an unknown messageType", with(send, "messageType", `"smell"`), chat.CodeBadRequest, "messageType"},
		{"send of an event", with(send, "messageType", `"event"`), chat.CodeBadRequest, "messageType"},
		{"send of a system message", with(send, "messageType", `"system"`), chat.CodeBadRequest, "messageType"},
		{"send without text", without(send, "text"), chat.CodeBadRequest, "text"},
		{"send with an empty text", with(send, "text", `""`), chat.CodeBadRequest, "text"},
		{"send with a text that is a number", with(send, "text", `5`), chat.CodeBadRequest, "text"},
		{"send with a text that is a list", with(send, "text", `["hi"]`), chat.CodeBadRequest, "text"},
		{"send of an image without data", with(send, "messageType", `"image"`), chat.CodeBadRequest, "data"},
		{"send with data that is no object", with(send, "data", `[1]`), chat.CodeBadRequest, "data"},
		{"send with data of 33 levels", with(send, "data", nested(chat.MaxDataDepth+1)), chat.CodeBadRequest, "data"},
		{"send with data of 9,900 levels", with(send, "data", nested(9900)), chat.CodeBadRequest, "data"},
		{"send with a number beyond a double", with(send, "data", `{"a":1e999}`), chat.CodeBadRequest, "data"},
		{"send with a key twice", with(send, "data", `{"b":{"a":1,"a":2}}`), chat.CodeBadRequest, "data"},
		{"send with half a character in data", with(send, "data", `{"a":"\ud83d"}`), chat.CodeBadRequest, "data"},
		{"edit to data of 33 levels", with(edit, "data", nested(chat.MaxDataDepth+1)), chat.CodeBadRequest, "data"},
		{"edit to a key twice", with(edit, "data", `{"a":1,"a":2}`), chat.CodeBadRequest, "data"},
		{"send with a replyTo that is a number", with(send, "replyTo", `4`), chat.CodeBadRequest, "replyTo"},
		{"send with a replyTo without messageId", with(send, "replyTo", `{"seq":1}`), chat.CodeBadRequest, "replyTo"},
		{"send with a replyTo of a text as seq", with(send, "replyTo", `{"seq":"1","messageId":"x"}`), chat.CodeBadRequest, "replyTo.seq"},
		{"send with a clientTime that is a text", with(send, "clientTime", `"now"`), chat.CodeBadRequest, "clientTime"},
		{"send with a negative clientTime", with(send, "clientTime", `-1`), chat.CodeBadRequest, "clientTime"},
		{"send of 4,001 characters", with(send, "text", quoted(4001)), chat.CodeTooLarge, "text"},
		{"send of 4,001 Chinese characters", with(send, "text", `"`+strings.Repeat("界", 4001)+`"`), chat.CodeTooLarge, "text"},
		{"send of more than 24 KB", with(send, "data", `{"x":`+quoted(24*1024)+`}`), chat.CodeTooLarge, ""},
		{"send to a foreign conversation", sendInto(foreign), chat.CodeNotFound, "conversationId"},
		{"send to no conversation", sendInto("single:none"), chat.CodeNotFound, "conversationId"},
		{"send to a system conversation", sendInto("system:order:1"), chat.CodeNotFound, "conversationId"},
		{"send to what is no conversation id", sendInto("bob"), chat.CodeBadRequest, "conversationId"},

		{"a group with a title of no width", with(createGroup, "title", `"\u200b\u2060"`), chat.CodeBadRequest, "title"},
		{"a group with a title that turns the text", with(createGroup, "title", `"Trip\u202e"`), chat.CodeBadRequest, "title"},
		{"a group with the product", with(createGroup, "members", `["bob","System"]`), chat.CodeBadRequest, "members"},
		{"a title of spaces", with(setTitle, "title", `"\u3000"`), chat.CodeBadRequest, "title"},
		{"a title that turns the text", with(setTitle, "title", `"\u2066Trip"`), chat.CodeBadRequest, "title"},
		{"a member that is the product", with(addMembers, "members", `["s y s t e m"]`), chat.CodeBadRequest, "members"},

		{"sync of a foreign conversation", with(sync, "conversationId", `"`+string(foreign)+`"`), chat.CodeNotFound, "conversationId"},
		{"sync of no conversation", sync, chat.CodeNotFound, "conversationId"},
		{"sync without conversationId", without(sync, "conversationId"), chat.CodeBadRequest, "conversationId"},
		{"sync of a number", with(sync, "conversationId", `4`), chat.CodeBadRequest, "conversationId"},
		{"sync without afterSeq", without(sync, "afterSeq"), chat.CodeBadRequest, "afterSeq"},
		{"sync with a negative afterSeq", with(sync, "afterSeq", `-1`), chat.CodeBadRequest, "afterSeq"},
		{"sync with half an afterSeq", with(sync, "afterSeq", `0.5`), chat.CodeBadRequest, "afterSeq"},
		{"sync with a text as afterSeq", with(sync, "afterSeq", `"0"`), chat.CodeBadRequest, "afterSeq"},
		{"sync with an afterSeq beyond numbers", with(sync, "afterSeq", `9007199254740992`), chat.CodeBadRequest, "afterSeq"},
		{"sync with limit 0", with(sync, "limit", `0`), chat.CodeBadRequest, "limit"},
		{"sync with limit 501", with(sync, "limit", `501`), chat.CodeBadRequest, "limit"},
		{"sync with a limit that is true", with(sync, "limit", `true`), chat.CodeBadRequest, "limit"},
		{"history of a foreign conversation", with(history, "conversationId", `"`+string(foreign)+`"`), chat.CodeNotFound, "conversationId"},
		{"history before 0", with(history, "beforeSeq", `0`), chat.CodeBadRequest, "beforeSeq"},
		{"history with limit 101", with(history, "limit", `101`), chat.CodeBadRequest, "limit"},
		{"changes without syncCursor", without(changes, "syncCursor"), chat.CodeBadRequest, "syncCursor"},
		{"changes with a negative syncCursor", with(changes, "syncCursor", `-1`), chat.CodeBadRequest, "syncCursor"},
		{"conversations with limit 0", with(conversations, "limit", `0`), chat.CodeBadRequest, "limit"},
		{"conversations with a made-up cursor", with(conversations, "cursor", `"x"`), chat.CodeBadRequest, "cursor"},
	}
}

// requireEcho checks that an answer names its request as far as that has names.
func requireEcho(t *testing.T, name, frame string, got answer) {
	t.Helper()
	var fields map[string]any
	_ = json.Unmarshal([]byte(frame), &fields) // what is no object has no names
	if id, _ := fields["id"].(string); id != "" && len(id) <= wire.MaxRequestIDBytes {
		require.Equal(t, id, got.ID, name)
	}
	if action, ok := fields["action"].(string); ok {
		require.Equal(t, action, got.Action, name)
	}
}

// with sets a field of a request, without takes one out.
func with(frame, field, value string) string {
	return edit(frame, func(fields map[string]json.RawMessage) { fields[field] = json.RawMessage(value) })
}

func without(frame, field string) string {
	return edit(frame, func(fields map[string]json.RawMessage) { delete(fields, field) })
}

func edit(frame string, change func(map[string]json.RawMessage)) string {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(frame), &fields); err != nil {
		panic(err) // a mistake in a test
	}
	change(fields)
	edited, err := wire.Encode(fields)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", frame, err))
	}
	return string(edited)
}

// nested is an object in which lists are, one in the other, to this depth in all.
func nested(levels int) string {
	return `{"a":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`
}

func quoted(n int) string { return `"` + strings.Repeat("x", n) + `"` }

// The limits themselves are allowed, and what is allowed comes through unchanged.
func TestGoodInputComesThrough(t *testing.T) {
	t.Parallel()
	alice, bob := newUser("阿丽思 <&>\u2028"), newUser("bob")
	a, b := mustConnect(t, shared, alice, "A.b_c-"+strings.Repeat("9", 58)), mustConnect(t, shared, bob, "phone")
	sends := map[string]wire.Send{
		"4,000 Chinese characters": {Text: strings.Repeat("界", chat.MaxTextRunes)},
		"4,000 emoji":              {Text: strings.Repeat("🙂", chat.MaxTextRunes)},
		"HTML and line ends":       {Text: "<b>&amp;</b>\r\n\t\"\\\u2028 \u0000 $request.body.action"},
		"data":                     {MessageType: chat.TypeCustom, Data: []byte(`{"b":[1,2.50,null],"a":{"ü":"\u0000"}}`)},
		"the deepest data":         {MessageType: chat.TypeCustom, Data: []byte(nested(chat.MaxDataDepth))},
		"numbers as written":       {MessageType: chat.TypeCustom, Data: []byte(`{"a":[9007199254740993,1.0,1e-999],"b":"\ud83d\ude42"}`)},
		"the longest clientMsgId":  {Text: "x", ClientMsgID: strings.Repeat("~", 63) + " "},
		"a clientTime":             {Text: "x", ClientTime: chat.MaxSeq},
	}
	for name, s := range sends {
		s.To = bob
		sent, err := a.send(t.Context(), s)
		require.NoError(t, err, name)
		require.NoError(t, b.awaitPushed(t.Context(), sent.ConversationID, sent.Seq), name)
		require.NoError(t, b.sync(t.Context(), sent.ConversationID), name)
		messages := b.messages(sent.ConversationID)
		got := messages[len(messages)-1]
		require.Equal(t, s.Text, got.Text, name)
		require.Equal(t, s.ClientTime, got.ClientTime, name)
		require.Equal(t, alice, got.SenderID, name)
		require.Equal(t, a.name, got.SenderDeviceID, name)
		if s.Data != nil {
			require.JSONEq(t, string(s.Data), string(got.Data), name)
		}
	}
}

// API Gateway ends a connection itself for what is no text or too long for it.
func TestWhatEndsTheSocket(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		kind websocket.MessageType
		data string
		want websocket.StatusCode
	}{
		"a binary frame":             {websocket.MessageBinary, `{"action":"ping","id":"1"}`, websocket.StatusUnsupportedData},
		"a frame of more than 32 KB": {websocket.MessageText, strings.Repeat(" ", wire.MaxFrameBytes+1), websocket.StatusMessageTooBig},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := mustConnect(t, shared, newUser("alice"), "phone")
			require.NoError(t, d.conn.Write(t.Context(), tt.kind, []byte(tt.data)))
			require.NoError(t, d.await(t.Context(), "the end of the socket", func() bool { return d.conn.Err() != nil }))
			require.Equal(t, tt.want, websocket.CloseStatus(d.conn.Err()), "%v", d.conn.Err())
			require.NoError(t, d.reconnect(t.Context()))
			require.NoError(t, d.do(t.Context(), wire.ActionPing, nil, nil))
		})
	}
}

// A message in several frames may be as long as API Gateway takes it; the
// protocol has a limit of its own.
func TestAMessageOfManyFrames(t *testing.T) {
	t.Parallel()
	d := mustConnect(t, shared, newUser("alice"), "phone")
	write := func(parts ...string) {
		w, err := d.conn.Writer(t.Context(), websocket.MessageText)
		require.NoError(t, err)
		for _, p := range parts {
			_, err = w.Write([]byte(p))
			require.NoError(t, err)
		}
		require.NoError(t, w.Close())
	}
	waiter, _ := d.conn.Expect("short")
	write(`{"action":"ping",`, `"id":"short"}`)
	require.Equal(t, wire.TypeReply, (<-waiter).Type)

	waiter, _ = d.conn.Expect("long")
	filler := strings.Repeat(" ", 20_000)
	write(`{"action":"ping","id":"long"`, filler, filler, `}`)
	got := <-waiter
	require.Equal(t, chat.CodeTooLarge, got.Error.Code, "%+v", got)
	require.NoError(t, d.do(t.Context(), wire.ActionPing, nil, nil))
}
