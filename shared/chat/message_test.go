package chat_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
)

func text(s string) chat.Message {
	return chat.Message{
		ConversationID: chat.SingleID("alice", "bob"), MessageID: "01K", ClientMsgID: "c1", SenderID: "alice",
		MessageType: chat.TypeText, Text: s, Version: 1, Status: chat.StatusNormal,
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	with := func(change func(*chat.Message)) chat.Message {
		m := text("hi")
		change(&m)
		return m
	}
	object := func(n int) json.RawMessage { return json.RawMessage(`{"k":"` + strings.Repeat("x", n) + `"}`) }
	for name, tc := range map[string]struct {
		m     chat.Message
		code  chat.Code // "" is valid
		field string
	}{
		"text":                     {m: text("hi")},
		"4,000 Chinese characters": {m: text(strings.Repeat("字", 4000))},
		"4,000 emoji":              {m: text(strings.Repeat("😀", 4000))},
		"4,001 runes":              {m: text(strings.Repeat("a", 4001)), code: chat.CodeTooLarge, field: "text"},
		"not UTF-8":                {m: text("\xff"), code: chat.CodeBadRequest, field: "text"},
		"empty text":               {m: text(""), code: chat.CodeBadRequest, field: "text"},
		"4,000 six-byte escapes":   {m: text(strings.Repeat("\x01", 4000))},
		"escapes count as sent":    {m: with(func(m *chat.Message) { m.Text, m.Data = strings.Repeat("\x01", 4000), object(600) }), code: chat.CodeTooLarge},
		"angle brackets are small": {m: text(strings.Repeat("<", 4000))},
		"no conversation":          {m: with(func(m *chat.Message) { m.ConversationID = "" }), code: chat.CodeBadRequest, field: "conversationId"},
		"odd conversation":         {m: with(func(m *chat.Message) { m.ConversationID = "room:1" }), code: chat.CodeBadRequest, field: "conversationId"},
		"no messageId":             {m: with(func(m *chat.Message) { m.MessageID = "" }), code: chat.CodeBadRequest, field: "messageId"},
		"no sender":                {m: with(func(m *chat.Message) { m.SenderID = "" }), code: chat.CodeBadRequest, field: "senderId"},
		"no clientMsgId":           {m: with(func(m *chat.Message) { m.ClientMsgID = "" }), code: chat.CodeBadRequest, field: "clientMsgId"},
		"64 of clientMsgId":        {m: with(func(m *chat.Message) { m.ClientMsgID = strings.Repeat("c", 64) })},
		"65 of clientMsgId":        {m: with(func(m *chat.Message) { m.ClientMsgID = strings.Repeat("c", 65) }), code: chat.CodeBadRequest, field: "clientMsgId"},
		"clientMsgId with accent":  {m: with(func(m *chat.Message) { m.ClientMsgID = "é" }), code: chat.CodeBadRequest, field: "clientMsgId"},
		"clientMsgId with tab":     {m: with(func(m *chat.Message) { m.ClientMsgID = "\t" }), code: chat.CodeBadRequest, field: "clientMsgId"},
		"no type":                  {m: with(func(m *chat.Message) { m.MessageType = "" }), code: chat.CodeBadRequest, field: "messageType"},
		"odd type":                 {m: with(func(m *chat.Message) { m.MessageType = "poem" }), code: chat.CodeBadRequest, field: "messageType"},
		"image":                    {m: with(func(m *chat.Message) { m.MessageType, m.Text, m.Data = chat.TypeImage, "", object(3) })},
		"image without data":       {m: with(func(m *chat.Message) { m.MessageType = chat.TypeImage }), code: chat.CodeBadRequest, field: "data"},
		"data is an array":         {m: with(func(m *chat.Message) { m.Data = json.RawMessage(`[1]`) }), code: chat.CodeBadRequest, field: "data"},
		"data is broken":           {m: with(func(m *chat.Message) { m.Data = json.RawMessage(`{"a":`) }), code: chat.CodeBadRequest, field: "data"},
		"24 KB in all":             {m: with(func(m *chat.Message) { m.Data = object(chat.MaxMessageBytes) }), code: chat.CodeTooLarge},
		"reply to nothing":         {m: with(func(m *chat.Message) { m.ReplyTo = &chat.ReplyTo{} }), code: chat.CodeBadRequest, field: "replyTo"},
		"reply":                    {m: with(func(m *chat.Message) { m.ReplyTo = &chat.ReplyTo{Seq: 1, MessageID: "01J"} })},
		"event without event":      {m: with(func(m *chat.Message) { m.MessageType = chat.TypeEvent }), code: chat.CodeBadRequest, field: "event"},
		"text with event":          {m: with(func(m *chat.Message) { m.Event = &chat.Event{Kind: chat.EventTitle} }), code: chat.CodeBadRequest, field: "event"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tc.m.Validate()
			if tc.code == "" {
				require.NoError(t, err)
				return
			}
			require.Equal(t, tc.code, chat.CodeOf(err), "%v", err)
			var refusal *chat.Error
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, tc.field, refusal.Field)
		})
	}
}

// The largest message that passes fits a frame with room for its envelope, and
// one byte more does not pass.
func TestValidateMeasuresTheWholeMessage(t *testing.T) {
	t.Parallel()
	m := text("hi")
	m.Seq = chat.MaxSeq
	m.Data = json.RawMessage(`{"k":""}`)
	size, err := m.Size()
	require.NoError(t, err)
	m.Seq = 0
	fill := strings.Repeat("x", chat.MaxMessageBytes-size)
	m.Data = json.RawMessage(`{"k":"` + fill + `"}`)
	require.NoError(t, m.Validate())
	m.Data = json.RawMessage(`{"k":"` + fill + `x"}`)
	require.Equal(t, chat.CodeTooLarge, chat.CodeOf(m.Validate()))
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	fingerprint := func(change func(*chat.Message)) string {
		m := text("hi")
		change(&m)
		f, err := m.Fingerprint()
		require.NoError(t, err)
		return f
	}
	base := fingerprint(func(*chat.Message) {})
	for name, change := range map[string]func(*chat.Message){
		"another device":    func(m *chat.Message) { m.SenderDeviceID = "tablet" },
		"another time":      func(m *chat.Message) { m.ServerTime, m.ClientTime = 5, 6 },
		"another messageId": func(m *chat.Message) { m.MessageID = "01Z" },
		"a seq":             func(m *chat.Message) { m.Seq = 9 },
	} {
		require.Equal(t, base, fingerprint(change), name)
	}
	for name, change := range map[string]func(*chat.Message){
		"another text":         func(m *chat.Message) { m.Text = "ho" },
		"another conversation": func(m *chat.Message) { m.ConversationID = "group:1" },
		"another type":         func(m *chat.Message) { m.MessageType = chat.TypeCustom },
		"data":                 func(m *chat.Message) { m.Data = json.RawMessage(`{}`) },
		"a reply":              func(m *chat.Message) { m.ReplyTo = &chat.ReplyTo{Seq: 1, MessageID: "x"} },
	} {
		require.NotEqual(t, base, fingerprint(change), name)
	}
	data := func(raw string) string {
		return fingerprint(func(m *chat.Message) { m.Data = json.RawMessage(raw) })
	}
	require.Equal(t, data(`{"a":1,"b":2}`), data(` { "b" : 2, "a" : 1 } `))
	require.NotEqual(t, data(`{"n":9007199254740993}`), data(`{"n":9007199254740992}`), "large numbers are kept exact")
}

func TestSingleID(t *testing.T) {
	t.Parallel()
	require.Equal(t, chat.SingleID("alice", "bob"), chat.SingleID("bob", "alice"))
	require.NotEqual(t, chat.SingleID("ab", "c"), chat.SingleID("a", "bc"), "the length is part of it")
	require.NotEqual(t, chat.SingleID("alice", "alice"), chat.SingleID("alice", "bob"))
	require.Regexp(t, `^single:[0-9a-f]{32}$`, chat.SingleID("alice", "bob"))
	kind, ok := chat.SingleID("a", "b").Kind()
	require.True(t, ok)
	require.Equal(t, chat.KindSingle, kind)
}

func TestDedupeKeyKeepsPartsApart(t *testing.T) {
	t.Parallel()
	require.NotEqual(t, chat.DedupeKey("a1", "1b"), chat.DedupeKey("a", "11b"))
	require.NotEqual(t, chat.DedupeKey("1:a", "b"), chat.DedupeKey("1", "a1:b"))
}

func TestValidateIDs(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"a", "alice@example.com", "爱丽丝", strings.Repeat("u", 128), "a|b", "#"} {
		require.NoError(t, chat.ValidateUserID("to", id), id)
	}
	for _, id := range []string{"", strings.Repeat("u", 129), "a\nb", "\x7f", "\xff", "a\u0085b"} {
		require.Error(t, chat.ValidateUserID("to", id), "%q", id)
	}
	for _, id := range []string{"a", "web-1.2_3", strings.Repeat("d", 64)} {
		require.NoError(t, chat.ValidateDeviceID("device", id), id)
	}
	for _, id := range []string{"", "a|b", "a b", "é", strings.Repeat("d", 65)} {
		require.Error(t, chat.ValidateDeviceID("device", id), "%q", id)
	}
}

func TestG9_In(t *testing.T) {
	t.Parallel()
	during := chat.Range{From: 5, To: 9}
	edit := func(target int64, change func(*chat.Message)) chat.Message {
		m := chat.Message{
			Seq: 8, MessageType: chat.TypeEvent, Text: "new", Data: json.RawMessage(`{}`), Status: chat.StatusNormal,
			Event: &chat.Event{Kind: chat.EventEdit, TargetSeq: target, Version: 2},
		}
		change(&m)
		return m
	}
	same := func(*chat.Message) {}
	for name, tc := range map[string]struct {
		m        chat.Message
		withheld bool
	}{
		"an edit of what is seen":     {edit(5, same), false},
		"an edit of what was before":  {edit(4, same), true},
		"an edit of what comes later": {edit(10, same), true}, // there is none such
		"only data":                   {edit(4, func(m *chat.Message) { m.Text = "" }), true},
		"without content":             {edit(4, func(m *chat.Message) { m.Text, m.Data, m.Status = "", nil, chat.StatusRecalled }), false},
		"a recall":                    {edit(4, func(m *chat.Message) { m.Event.Kind = chat.EventRecall }), false},
		"a reply":                     {chat.Message{Seq: 8, Text: "yes", ReplyTo: &chat.ReplyTo{Seq: 1, MessageID: "m"}}, false},
	} {
		want := tc.m
		if tc.withheld {
			want.Text, want.Data, want.Withheld = "", nil, true
		}
		require.Equal(t, want, tc.m.In(during), name)
	}
}
