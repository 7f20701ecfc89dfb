package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/route/routetest"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/wire"
)

// fakeReader answers as told and keeps what it was asked.
type fakeReader struct {
	page     store.Page
	history  store.HistoryPage
	changed  store.Changed
	lines    []store.Line // of List, all of them
	next     string
	members  store.MemberPage
	receipts store.ReceiptPage
	err      error

	// fill makes the answers as long as maxBytes allows, by this way to make a
	// message.
	fill func(seq int64) chat.Message

	asked string
}

func (f *fakeReader) Sync(_ context.Context, userID string, conversationID chat.ConversationID, afterSeq int64, limit, maxBytes int) (store.Page, error) {
	f.asked = fmt.Sprint("sync ", userID, " ", conversationID, " ", afterSeq, " ", limit)
	if f.fill != nil {
		f.page.Messages = f.filled(maxBytes)
	}
	return f.page, f.err
}

func (f *fakeReader) History(_ context.Context, userID string, conversationID chat.ConversationID, beforeSeq int64, limit, maxBytes int) (store.HistoryPage, error) {
	f.asked = fmt.Sprint("history ", userID, " ", conversationID, " ", beforeSeq, " ", limit)
	if f.fill != nil {
		f.history.Messages = f.filled(maxBytes)
	}
	return f.history, f.err
}

// filled takes as many messages as fit, counting as the store does.
func (f *fakeReader) filled(maxBytes int) []chat.Message {
	messages := []chat.Message{}
	for seq, used := int64(1), 0; ; seq++ {
		m := f.fill(seq)
		size, err := m.Size()
		if used += size + 1; err != nil || used > maxBytes {
			return messages
		}
		messages = append(messages, m)
	}
}

func (f *fakeReader) Changes(_ context.Context, userID string, cursor int64, headsCursor string, pageSize int) (store.Changed, error) {
	f.asked = fmt.Sprint("changes ", userID, " ", cursor, " ", pageSize)
	return f.changed, f.err
}

func (f *fakeReader) List(_ context.Context, userID, cursor string, limit int) ([]store.Line, string, error) {
	f.asked = fmt.Sprint("list ", userID, " ", cursor, " ", limit)
	var page []store.Line
	for _, l := range f.lines {
		if l.Head.ConversationID > chat.ConversationID(cursor) {
			page = append(page, l)
		}
	}
	if len(page) > limit {
		return page[:limit], string(page[limit-1].Head.ConversationID), f.err
	}
	return page, f.next, f.err
}

func (f *fakeReader) ListAll(ctx context.Context, userID, cursor string, limit int) ([]store.Line, string, error) {
	lines, next, err := f.List(ctx, userID, cursor, limit)
	f.asked += " all"
	return lines, next, err
}

func (f *fakeReader) MembersOf(_ context.Context, userID string, conversationID chat.ConversationID, cursor string, limit int) (store.MemberPage, error) {
	f.asked = fmt.Sprint("members ", userID, " ", conversationID, " ", cursor, " ", limit)
	return f.members, f.err
}

func (f *fakeReader) Receipts(_ context.Context, userID string, conversationID chat.ConversationID, seq int64, cursor string, limit int) (store.ReceiptPage, error) {
	f.asked = fmt.Sprint("receipts ", userID, " ", conversationID, " ", seq, " ", cursor, " ", limit)
	return f.receipts, f.err
}

func serve(t require.TestingT, f *fakeReader, body string) string {
	var log bytes.Buffer
	h := handler{store: f, attend: func(context.Context, route.Caller) {}}
	answer := routetest.Answer(t, slog.NewJSONHandler(&log, nil), h.actions(), routetest.Frame(t, "sync", body))
	require.LessOrEqual(t, len(answer), wire.MaxFrameBytes)
	require.NotContains(t, log.String(), `"level":"ERROR"`)
	return answer
}

// result reads the result of a reply.
func result[T any](t require.TestingT, body string) T {
	var f struct {
		Type   string `json:"type"`
		Result T      `json:"result"`
	}
	require.NoError(t, json.Unmarshal([]byte(body), &f))
	require.Equal(t, wire.TypeReply, f.Type, body)
	return f.Result
}

func TestRequests(t *testing.T) {
	t.Parallel()
	id := chat.SingleID("alice", "bob")
	for name, tc := range map[string]struct{ body, asked string }{
		"the sample":                   {"", "sync alice " + string(id) + " 40 100"},
		"sync with the default":        {`{"action":"sync","id":"r","conversationId":"group:1","afterSeq":0}`, "sync alice group:1 0 100"},
		"sync to the limit":            {`{"action":"sync","id":"r","conversationId":"group:1","afterSeq":9007199254740991,"limit":500}`, "sync alice group:1 9007199254740991 500"},
		"history from the end":         {`{"action":"history","id":"r","conversationId":"group:1","beforeSeq":null}`, "history alice group:1 0 50"},
		"history before a seq":         {`{"action":"history","id":"r","conversationId":"group:1","beforeSeq":1,"limit":100}`, "history alice group:1 1 100"},
		"conversations from the start": {`{"action":"conversations","id":"r"}`, "list alice  50"},
		"conversations from a cursor":  {`{"action":"conversations","id":"r","cursor":"group:1","limit":100}`, "list alice group:1 100"},
		"hidden conversations too":     {`{"action":"conversations","id":"r","hidden":true}`, "list alice  50 all"},
		"changes":                      {`{"action":"changes","id":"r","syncCursor":0}`, "changes alice 0 50"},
		"members from the start":       {`{"action":"members","id":"r","conversationId":"group:1"}`, "members alice group:1  80"},
		"members from a cursor":        {`{"action":"members","id":"r","conversationId":"group:1","cursor":"bob"}`, "members alice group:1 bob 80"},
		"receipts from the start":      {`{"action":"receipts","id":"r","conversationId":"group:1","seq":1,"cursor":null}`, "receipts alice group:1 1  50"},
		"receipts from a cursor":       {`{"action":"receipts","id":"r","conversationId":"group:1","seq":9007199254740991,"cursor":"bob"}`, "receipts alice group:1 9007199254740991 bob 50"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fakeReader{}
			require.Contains(t, serve(t, f, tc.body), `"type":"reply"`)
			require.Equal(t, tc.asked, f.asked)
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ body, field string }{
		"sync without conversation":       {`"action":"sync","afterSeq":0`, "conversationId"},
		"sync of no kind":                 {`"action":"sync","afterSeq":0,"conversationId":"x:1"`, "conversationId"},
		"sync of an id too long":          {`"action":"sync","afterSeq":0,"conversationId":"group:` + strings.Repeat("x", 128) + `"`, "conversationId"},
		"sync of a number":                {`"action":"sync","afterSeq":0,"conversationId":1`, "conversationId"},
		"sync without afterSeq":           {`"action":"sync","conversationId":"group:1"`, "afterSeq"},
		"sync after null":                 {`"action":"sync","conversationId":"group:1","afterSeq":null`, "afterSeq"},
		"sync after a negative":           {`"action":"sync","conversationId":"group:1","afterSeq":-1`, "afterSeq"},
		"sync after 2^53":                 {`"action":"sync","conversationId":"group:1","afterSeq":9007199254740992`, "afterSeq"},
		"sync after a fraction":           {`"action":"sync","conversationId":"group:1","afterSeq":1.5`, "afterSeq"},
		"sync after a string":             {`"action":"sync","conversationId":"group:1","afterSeq":"1"`, "afterSeq"},
		"sync of 0":                       {`"action":"sync","conversationId":"group:1","afterSeq":0,"limit":0`, "limit"},
		"sync of 501":                     {`"action":"sync","conversationId":"group:1","afterSeq":0,"limit":501`, "limit"},
		"sync of 1e2":                     {`"action":"sync","conversationId":"group:1","afterSeq":0,"limit":1e2`, "limit"},
		"history without conversation":    {`"action":"history"`, "conversationId"},
		"history before 0":                {`"action":"history","conversationId":"group:1","beforeSeq":0`, "beforeSeq"},
		"history before a negative":       {`"action":"history","conversationId":"group:1","beforeSeq":-1`, "beforeSeq"},
		"history before 2^53":             {`"action":"history","conversationId":"group:1","beforeSeq":9007199254740992`, "beforeSeq"},
		"history of 0":                    {`"action":"history","conversationId":"group:1","limit":0`, "limit"},
		"history of 101":                  {`"action":"history","conversationId":"group:1","limit":101`, "limit"},
		"conversations from no id":        {`"action":"conversations","cursor":"x"`, "cursor"},
		"conversations from a number":     {`"action":"conversations","cursor":1`, "cursor"},
		"conversations of 0":              {`"action":"conversations","limit":0`, "limit"},
		"conversations and a text":        {`"action":"conversations","hidden":"true"`, "hidden"},
		"conversations of 101":            {`"action":"conversations","limit":101`, "limit"},
		"changes without syncCursor":      {`"action":"changes"`, "syncCursor"},
		"changes since a negative":        {`"action":"changes","syncCursor":-1`, "syncCursor"},
		"changes since 2^53":              {`"action":"changes","syncCursor":9007199254740992`, "syncCursor"},
		"changes since a seq of the list": {`"action":"changes","syncCursor":"group:1"`, "syncCursor"},
		"members without conversation":    {`"action":"members"`, "conversationId"},
		"members of no kind":              {`"action":"members","conversationId":"x:1"`, "conversationId"},
		"members from no userId":          {`"action":"members","conversationId":"group:1","cursor":"a\nb"`, "cursor"},
		"members from a number":           {`"action":"members","conversationId":"group:1","cursor":1`, "cursor"},
		"members from beyond a userId":    {`"action":"members","conversationId":"group:1","cursor":"` + strings.Repeat("x", 129) + `"`, "cursor"},
		"receipts without conversation":   {`"action":"receipts","seq":1`, "conversationId"},
		"receipts of no kind":             {`"action":"receipts","seq":1,"conversationId":"group"`, "conversationId"},
		"receipts without seq":            {`"action":"receipts","conversationId":"group:1"`, "seq"},
		"receipts of null":                {`"action":"receipts","conversationId":"group:1","seq":null`, "seq"},
		"receipts of 0":                   {`"action":"receipts","conversationId":"group:1","seq":0`, "seq"},
		"receipts of 2^53":                {`"action":"receipts","conversationId":"group:1","seq":9007199254740992`, "seq"},
		"receipts of a string":            {`"action":"receipts","conversationId":"group:1","seq":"1"`, "seq"},
		"receipts from no userId":         {`"action":"receipts","conversationId":"group:1","seq":1,"cursor":"a\tb"`, "cursor"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fakeReader{}
			var e wire.ErrorReply
			require.NoError(t, json.Unmarshal([]byte(serve(t, f, `{"id":"r",`+tc.body+`}`)), &e))
			require.Equal(t, chat.CodeBadRequest, e.Error.Code, e.Error.Message)
			require.Equal(t, tc.field, e.Error.Field)
			require.Empty(t, f.asked)
		})
	}

	t.Run("what the store refuses", func(t *testing.T) {
		t.Parallel()
		for _, body := range []string{
			"", `{"action":"members","id":"r","conversationId":"group:1"}`, `{"action":"receipts","id":"r","conversationId":"group:1","seq":1}`,
		} {
			var e wire.ErrorReply
			require.NoError(t, json.Unmarshal([]byte(serve(t, &fakeReader{err: chat.FieldErrorf(chat.CodeNotFound, "conversationId", "no such")}, body)), &e))
			require.Equal(t, chat.CodeNotFound, e.Error.Code, body)
		}
	})
}

func TestPagesAreHandedOn(t *testing.T) {
	t.Parallel()
	m := chat.Message{ConversationID: "group:1", Seq: 3, MessageID: "01K", ClientMsgID: "c", SenderID: "bob", MessageType: chat.TypeText, Text: "<hi>", Version: 1, Status: chat.StatusNormal}

	t.Run("sync", func(t *testing.T) {
		t.Parallel()
		f := &fakeReader{page: store.Page{Messages: []chat.Message{m}, NextSeq: 4, CommittedMaxSeq: 9, HasMore: true, Skipped: []int64{4}, FirstSeq: 3}}
		require.Equal(t, wire.Synced{Messages: []chat.Message{m}, NextSeq: 4, CommittedMaxSeq: 9, HasMore: true, Skipped: []int64{4}, FirstSeq: 3},
			result[wire.Synced](t, serve(t, f, "")))
	})

	t.Run("history", func(t *testing.T) {
		t.Parallel()
		f := &fakeReader{history: store.HistoryPage{Messages: []chat.Message{m}, NextBeforeSeq: 3, CommittedMaxSeq: 9, HasMore: true}}
		require.Equal(t, wire.HistoryPage{Messages: []chat.Message{m}, NextBeforeSeq: 3, CommittedMaxSeq: 9, HasMore: true},
			result[wire.HistoryPage](t, serve(t, f, `{"action":"history","id":"r","conversationId":"group:1"}`)))
	})

	t.Run("members", func(t *testing.T) {
		t.Parallel()
		f := &fakeReader{members: store.MemberPage{
			Members: []chat.Member{
				{ConversationID: "group:1", UserID: "alice", Role: chat.RoleOwner, JoinSeq: 1, JoinedAt: 7},
				{ConversationID: "group:1", UserID: "bob", Role: chat.RolePlain, JoinSeq: 4, JoinedAt: 8},
			},
			MembersVersion: 3, Next: "bob",
		}}
		require.Equal(t, wire.MembersPage{
			Members: []wire.Member{
				{UserID: "alice", Role: chat.RoleOwner, JoinSeq: 1, JoinedAt: 7},
				{UserID: "bob", Role: chat.RolePlain, JoinSeq: 4, JoinedAt: 8},
			},
			MembersVersion: 3, Cursor: "bob",
		}, result[wire.MembersPage](t, serve(t, f, `{"action":"members","id":"r","conversationId":"group:1"}`)))
	})

	t.Run("receipts", func(t *testing.T) {
		t.Parallel()
		f := &fakeReader{receipts: store.ReceiptPage{Delivered: []string{"alice", "bob"}, Read: []string{}, Next: "bob"}}
		require.Contains(t, serve(t, f, `{"action":"receipts","id":"r","conversationId":"group:1","seq":9}`),
			`"result":{"delivered":["alice","bob"],"read":[],"cursor":"bob"}`)
	})

	t.Run("lists that are empty are lists", func(t *testing.T) {
		t.Parallel()
		f := &fakeReader{page: store.Page{Messages: []chat.Message{}}, history: store.HistoryPage{Messages: []chat.Message{}}}
		require.Contains(t, serve(t, f, ""), `"messages":[]`)
		require.Contains(t, serve(t, f, `{"action":"conversations","id":"r"}`), `"conversations":[]`)
		require.Contains(t, serve(t, f, `{"action":"members","id":"r","conversationId":"group:1"}`), `{"members":[],"membersVersion":0}`)
		require.Contains(t, serve(t, f, `{"action":"changes","id":"r","syncCursor":0}`), `{"conversations":[],"heads":[],"syncCursor":0,"full":false,"windows":{},"userId":"alice"}`)
	})
}

// TestRosterPagesFitTheirFrame shows it for the longest userIds there are: those
// that JSON doubles.
func TestRosterPagesFitTheirFrame(t *testing.T) {
	t.Parallel()
	ids := make([]string, wire.MemberPage)
	var f fakeReader
	for i := range ids {
		ids[i] = strings.Repeat(`"`, chat.MaxUserIDBytes-2) + fmt.Sprintf("%02d", i)
		f.members.Members = append(f.members.Members, chat.Member{UserID: ids[i], Role: chat.RolePlain, JoinSeq: chat.MaxSeq, JoinedAt: chat.MaxSeq})
	}
	f.members.MembersVersion, f.members.Next = chat.MaxSeq, ids[len(ids)-1]
	f.receipts = store.ReceiptPage{Delivered: ids[:receiptPage], Read: ids[:receiptPage], Next: ids[receiptPage-1]}
	id := strings.Repeat(`\u0001`, wire.MaxRequestIDBytes)
	members := result[wire.MembersPage](t, serve(t, &f, `{"action":"members","id":"`+id+`","conversationId":"group:1"}`))
	require.Len(t, members.Members, wire.MemberPage)
	receipts := result[wire.ReceiptsPage](t, serve(t, &f, `{"action":"receipts","id":"`+id+`","conversationId":"group:1","seq":1}`))
	require.Equal(t, ids[:receiptPage], receipts.Read)
}

// TestPagesFillTheirFrame shows that the bytes the store may use are those
// that the frame has: one more message would not have fitted.
func TestPagesFillTheirFrame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune{'x', 'é', '"', '<', '\n', '\u2028', '好'}), 1, 2000, -1).Draw(t, "text")
		f := &fakeReader{
			fill: func(seq int64) chat.Message {
				return chat.Message{ConversationID: "group:1", Seq: seq, MessageID: "01K", ClientMsgID: "c", SenderID: "bob",
					MessageType: chat.TypeText, Text: text, Data: json.RawMessage(`{"a":"<&>"}`), Version: 1, Status: chat.StatusNormal}
			},
			page:    store.Page{NextSeq: chat.MaxSeq, CommittedMaxSeq: chat.MaxSeq, FirstSeq: chat.MaxSeq},
			history: store.HistoryPage{NextBeforeSeq: chat.MaxSeq, CommittedMaxSeq: chat.MaxSeq},
		}
		one := f.fill(1)
		size, err := one.Size()
		require.NoError(t, err)
		id := rapid.SampledFrom([]string{"r", strings.Repeat(`\u0001`, 64)}).Draw(t, "id")
		for _, body := range []string{
			`{"action":"sync","id":"` + id + `","conversationId":"group:1","afterSeq":0}`,
			`{"action":"history","id":"` + id + `","conversationId":"group:1"}`,
		} {
			answer := serve(t, f, body)
			require.Contains(t, answer, `"type":"reply"`)
			require.Greater(t, len(answer)+size+len(`,"skipped":[9007199254740991]`)+10, wire.MaxFrameBytes)
		}
	})
}

func line(id chat.ConversationID, text string) store.Line {
	return store.Line{
		View: chat.View{
			Head: chat.Conversation{ConversationID: id, Kind: chat.KindGroup, Title: "T", LastSeq: 12, MemberCount: 3, State: chat.StateActive, UpdatedAt: 77},
			Line: chat.Line{ReadSeq: 4, DeliveredSeq: 5, ClearedSeq: 2, LeftSeq: 9},
		},
		Last: &chat.Message{ConversationID: id, Seq: 9, SenderID: "bob", MessageType: chat.TypeText, Text: text, Status: chat.StatusNormal, ServerTime: 70},
	}
}

func lines(n int, text string) []store.Line {
	all := make([]store.Line, n)
	for i := range all {
		all[i] = line(chat.ConversationID(fmt.Sprintf("group:%04d", i)), text)
	}
	return all
}

func TestConversationsShowLines(t *testing.T) {
	t.Parallel()
	single := store.Line{View: chat.View{
		Head: chat.Conversation{ConversationID: "single:1", Kind: chat.KindSingle, LastSeq: 1, MemberCount: 2, State: chat.StateActive},
		Line: chat.Line{Peer: "bob"},
	}}
	f := &fakeReader{lines: []store.Line{line("group:1", strings.Repeat("好", chat.PreviewRunes+1)), line("group:2", strings.Repeat("好", chat.PreviewRunes)), single}, next: "z"}
	page := result[wire.ConversationsPage](t, serve(t, f, `{"action":"conversations","id":"r"}`))
	want := func(id chat.ConversationID) wire.Conversation {
		return wire.Conversation{
			ConversationID: id, Kind: chat.KindGroup, Title: "T", State: chat.StateActive, MemberCount: 3, LastSeq: 9,
			ReadSeq: 4, DeliveredSeq: 5, ClearedSeq: 2, LeftSeq: 9, Unread: 5, UpdatedAt: 77,
			LastMessage: &wire.MessagePreview{Seq: 9, SenderID: "bob", MessageType: chat.TypeText, Text: strings.Repeat("好", chat.PreviewRunes), Status: chat.StatusNormal, ServerTime: 70},
		}
	}
	require.Equal(t, wire.ConversationsPage{Cursor: "z", Conversations: []wire.Conversation{
		want("group:1"), want("group:2"),
		{ConversationID: "single:1", Kind: chat.KindSingle, Peer: "bob", State: chat.StateActive, MemberCount: 2, LastSeq: 1, Unread: 1},
	}}, page)
}

func TestConversationsPageByBytes(t *testing.T) {
	t.Parallel()
	f := &fakeReader{lines: lines(230, strings.Repeat("\u2028", chat.PreviewRunes))} // 600 bytes each, once encoded
	var got []chat.ConversationID
	for cursor, pages := "", 0; ; pages++ {
		require.Less(t, pages, 20)
		body := serve(t, f, `{"action":"conversations","id":"r","limit":100,"cursor":"`+cursor+`"}`)
		page := result[wire.ConversationsPage](t, body)
		for _, c := range page.Conversations {
			got = append(got, c.ConversationID)
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
		require.Greater(t, len(body), wire.MaxFrameBytes-1000)
		require.Less(t, len(page.Conversations), 100)
	}
	require.Len(t, got, 230)
	require.IsIncreasing(t, got)
}

func TestChanges(t *testing.T) {
	t.Parallel()
	const ask = `{"action":"changes","id":"r","syncCursor":7}`
	wide := strings.Repeat("\u2028", chat.PreviewRunes)

	t.Run("that fit", func(t *testing.T) {
		t.Parallel()
		f := &fakeReader{changed: store.Changed{Lines: lines(3, "hi"), Cursor: 12}}
		c := result[wire.Changed](t, serve(t, f, ask))
		require.Len(t, c.Conversations, 3)
		require.Equal(t, "hi", c.Conversations[0].LastMessage.Text)
		require.Equal(t, int64(12), c.SyncCursor)
		require.False(t, c.Full)
		require.Empty(t, c.Cursor)
	})

	// at returns the lines as changed one after the other, several at a time.
	at := func(lines []store.Line, together int) []store.Line {
		for i := range lines {
			lines[i].ChangedAt = int64(100 + i/together)
		}
		return lines
	}

	t.Run("that do not fit come when asked for again", func(t *testing.T) {
		t.Parallel()
		f := &fakeReader{changed: store.Changed{Lines: at(lines(60, wide), 8), Cursor: 120}}
		c := result[wire.Changed](t, serve(t, f, ask))
		n := len(c.Conversations)
		require.Less(t, n, 60)
		require.Zero(t, n%8, "what changed together is told together")
		require.Equal(t, int64(100+n/8-1), c.SyncCursor)
		require.True(t, c.More)
		require.False(t, c.Full)
		require.NotNil(t, c.Conversations[0].LastMessage)
	})

	t.Run("that fit no frame together are the start of the whole list", func(t *testing.T) {
		t.Parallel()
		f := &fakeReader{changed: store.Changed{Lines: at(lines(300, "hi"), 300), Cursor: 12}, lines: lines(500, wide)}
		c := result[wire.Changed](t, serve(t, f, ask))
		require.True(t, c.Full)
		require.Equal(t, int64(12), c.SyncCursor, "the cursor is that from before the list was read")
		require.NotEmpty(t, c.Conversations)
		require.EqualValues(t, c.Conversations[len(c.Conversations)-1].ConversationID, c.Cursor)
		require.Equal(t, "list alice  50 all", f.asked)
	})

	t.Run("that are hidden come to devices that ask for them", func(t *testing.T) {
		t.Parallel()
		two := lines(2, "hi")
		two[0].LeftSeq, two[0].ClearedSeq = 7, 7
		for full, want := range map[bool]map[string]int{true: {"": 1, `,"hidden":true`: 2}, false: {"": 2, `,"hidden":true`: 2}} {
			for extra, n := range want {
				f := &fakeReader{changed: store.Changed{Lines: at(slices.Clone(two), 3), Cursor: 3, Full: full}}
				c := result[wire.Changed](t, serve(t, f, `{"action":"changes","id":"r","syncCursor":1`+extra+`}`))
				require.Len(t, c.Conversations, n, "full: %t %s", full, extra)
			}
		}
		f := &fakeReader{changed: store.Changed{Lines: two[:1], Cursor: 3, Full: true, Next: "group:000"}}
		c := result[wire.Changed](t, serve(t, f, `{"action":"changes","id":"r","syncCursor":0}`))
		require.Empty(t, c.Conversations)
		require.Equal(t, "group:000", c.Cursor, "a page of nothing leads on")
	})

	t.Run("begin with those that changed last", func(t *testing.T) {
		t.Parallel()
		f := &fakeReader{changed: store.Changed{Lines: lines(50, wide), Cursor: 12, Full: true, Next: store.FromStart}}
		c := result[wire.Changed](t, serve(t, f, ask))
		require.True(t, c.Full)
		require.Less(t, len(c.Conversations), 50)
		require.Equal(t, store.FromStart, c.Cursor, "what did not fit comes from the start, too")
		f = &fakeReader{lines: lines(10, "hi")}
		result[wire.ConversationsPage](t, serve(t, f, `{"action":"conversations","id":"r","cursor":"`+c.Cursor+`"}`))
	})

	t.Run("that are the whole list", func(t *testing.T) {
		t.Parallel()
		f := &fakeReader{changed: store.Changed{Lines: lines(50, "hi"), Cursor: 12, Full: true, Next: "group:0049"}}
		c := result[wire.Changed](t, serve(t, f, ask))
		require.True(t, c.Full)
		require.Len(t, c.Conversations, 50)
		require.Equal(t, "group:0049", c.Cursor)
	})

	t.Run("that are more than a frame of the whole list", func(t *testing.T) {
		t.Parallel()
		f := &fakeReader{changed: store.Changed{Lines: lines(50, wide), Cursor: 12, Full: true}}
		c := result[wire.Changed](t, serve(t, f, ask))
		require.True(t, c.Full)
		require.Less(t, len(c.Conversations), 50)
		require.EqualValues(t, c.Conversations[len(c.Conversations)-1].ConversationID, c.Cursor)
	})

	t.Run("leave room for the cursor", func(t *testing.T) {
		t.Parallel()
		f := &fakeReader{changed: store.Changed{Lines: lines(120, "hi"), Cursor: 12, Full: true}}
		size, err := wire.Encode(conversationsOf(f.changed.Lines)[0])
		require.NoError(t, err)
		require.Less(t, len(size), 6*wire.MaxRequestIDBytes)
		for n := range wire.MaxRequestIDBytes { // each takes 6 bytes more, less than a cursor
			body := serve(t, f, `{"action":"changes","id":"`+strings.Repeat(`\u0001`, n+1)+`","syncCursor":7}`)
			c := result[wire.Changed](t, body)
			require.EqualValues(t, c.Conversations[len(c.Conversations)-1].ConversationID, c.Cursor)
		}
	})

	heads := func(n int) []chat.Conversation {
		all := make([]chat.Conversation, n)
		for i := range all {
			all[i] = chat.Conversation{ConversationID: chat.ConversationID(fmt.Sprintf("group:%0100d", i)), LastSeq: int64(i)}
		}
		return all
	}

	t.Run("tell for how long messages can be changed", func(t *testing.T) {
		t.Parallel()
		for name, tc := range map[string]struct {
			windows store.Windows
			want    string
		}{
			"some time":        {store.Windows{Recall: 2 * time.Minute, Edit: time.Second}, `"windows":{"editMs":1000,"recallMs":120000}`},
			"never and always": {store.Windows{Recall: 0, Edit: store.NoWindow}, `"windows":{"recallMs":0}`},
		} {
			for _, full := range []bool{false, true} {
				h := handler{
					store:  &fakeReader{changed: store.Changed{Lines: lines(1, "hi"), Cursor: 12, Full: full}},
					attend: func(context.Context, route.Caller) {}, windows: told(tc.windows),
				}
				event := routetest.Frame(t, "sync", "")
				event.Body = ask
				response, err := route.Serve(slog.New(slog.DiscardHandler), nil, nil, h.actions())(t.Context(), event)
				require.NoError(t, err)
				require.Contains(t, response.Body, tc.want, name)
			}
		}
	})

	t.Run("name the user", func(t *testing.T) {
		t.Parallel()
		for _, full := range []bool{false, true} {
			f := &fakeReader{changed: store.Changed{Lines: lines(1, "hi"), Cursor: 12, Full: full}}
			require.Equal(t, "alice", result[wire.Changed](t, serve(t, f, ask)).UserID)
		}
	})

	t.Run("leave room for the user's name", func(t *testing.T) {
		t.Parallel()
		longest := strings.Repeat("\u2028", chat.MaxUserIDBytes/3) // each takes six bytes in JSON
		for _, full := range []bool{false, true} {
			for n := range 100 { // each takes a byte more
				f := &fakeReader{changed: store.Changed{Lines: at(lines(120, strings.Repeat("x", n)), 1), Cursor: 149, Full: full}}
				event := routetest.Frame(t, "sync", "")
				event.Body = ask
				event.RequestContext.Authorizer = map[string]any{"principalId": longest, "device": "phone"}
				h := handler{store: f, attend: func(context.Context, route.Caller) {}}
				response, err := route.Serve(slog.New(slog.DiscardHandler), nil, nil, h.actions())(t.Context(), event)
				require.NoError(t, err)
				require.LessOrEqual(t, len(response.Body), wire.MaxFrameBytes)
				c := result[wire.Changed](t, response.Body)
				require.Equal(t, longest, c.UserID)
				require.Less(t, len(c.Conversations), 120, "it is the frame that bounds them")
			}
		}
	})

	t.Run("with the heads of large conversations", func(t *testing.T) {
		t.Parallel()
		f := &fakeReader{changed: store.Changed{Heads: heads(3), HeadsCursor: "h", Lines: lines(1, "hi"), Cursor: 12}}
		c := result[wire.Changed](t, serve(t, f, ask))
		require.Equal(t, "h", c.HeadsCursor)
		require.False(t, c.More)
		require.Len(t, c.Heads, 3)
		require.Equal(t, wire.Head{ConversationID: heads(3)[2].ConversationID, CommittedMaxSeq: 2}, c.Heads[2])
		require.Len(t, c.Conversations, 1)
	})

	t.Run("with heads that fit no frame beside them", func(t *testing.T) {
		t.Parallel()
		f := &fakeReader{changed: store.Changed{Heads: heads(150), HeadsCursor: "new", Lines: at(lines(50, "hi"), 1), Cursor: 149}}
		c := result[wire.Changed](t, serve(t, f, `{"action":"changes","id":"r","syncCursor":7,"headsCursor":"old"}`))
		require.Len(t, c.Conversations, 50)
		require.Empty(t, c.Heads)
		require.Equal(t, "old", c.HeadsCursor, "they come when asked for again")
		require.Equal(t, int64(149), c.SyncCursor)
		require.True(t, c.More)
		require.False(t, c.Full)
	})

	t.Run("with more heads than a frame are the start of the whole list", func(t *testing.T) {
		t.Parallel()
		for _, changed := range []store.Changed{
			{Heads: heads(400), Cursor: 12},
			{Cursor: 12, Lines: lines(10, "hi"), Full: true},
		} {
			f := &fakeReader{changed: changed, lines: lines(10, "hi")}
			c := result[wire.Changed](t, serve(t, f, ask))
			require.True(t, c.Full)
			require.Empty(t, c.Heads)
			require.Len(t, c.Conversations, 10)
		}
	})
}
