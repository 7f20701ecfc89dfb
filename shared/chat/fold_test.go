package chat_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
)

func told(e chat.Event) chat.Message {
	return chat.Message{ConversationID: "group:1", Seq: 8, MessageID: "01E", MessageType: chat.TypeEvent, Status: chat.StatusNormal, ServerTime: 80, Event: &e}
}

func TestConversationWith(t *testing.T) {
	t.Parallel()
	before := chat.Conversation{LastSeq: 7, UpdatedAt: 70, State: chat.StateActive, Title: "hike", Owner: "ann", MemberCount: 3}
	for name, tc := range map[string]struct {
		message chat.Message
		change  func(c *chat.Conversation)
	}{
		"a message":        {chat.Message{Seq: 8, ServerTime: 80, MessageType: chat.TypeText}, func(*chat.Conversation) {}},
		"a recall":         {told(chat.Event{Kind: chat.EventRecall, TargetSeq: 2}), func(*chat.Conversation) {}},
		"a title":          {told(chat.Event{Kind: chat.EventTitle, Title: "swim"}), func(c *chat.Conversation) { c.Title = "swim" }},
		"the end":          {told(chat.Event{Kind: chat.EventDissolve}), func(c *chat.Conversation) { c.State = chat.StateDissolved }},
		"newcomers":        {told(chat.Event{Kind: chat.EventMembers, Added: []string{"bob", "cy"}}), func(c *chat.Conversation) { c.MemberCount = 5 }},
		"one who left":     {told(chat.Event{Kind: chat.EventMembers, Removed: []string{"ann"}, Owner: "bob"}), func(c *chat.Conversation) { c.MemberCount, c.Owner, c.RemovedAt = 2, "bob", 80 }},
		"a role":           {told(chat.Event{Kind: chat.EventMembers, Member: "bob", Role: chat.RoleAdmin}), func(*chat.Conversation) {}},
		"the first event":  {told(chat.Event{Kind: chat.EventMembers, Added: []string{"dee"}, Owner: "dee", Title: "new"}), func(c *chat.Conversation) { c.MemberCount, c.Owner, c.Title = 4, "dee", "new" }},
		"a title of many":  {told(chat.Event{Kind: chat.EventRecall, Title: "not told by this kind"}), func(*chat.Conversation) {}},
		"an erasure, once": {told(chat.Event{Kind: chat.EventErase, Erased: "bob"}), func(*chat.Conversation) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := before
			want.LastSeq, want.UpdatedAt, want.Runs = 8, 80, want.Runs.With(tc.message)
			tc.change(&want)
			require.Equal(t, want, before.With(tc.message))
		})
	}
}

func TestMessageAfter(t *testing.T) {
	t.Parallel()
	sent := chat.Message{
		ConversationID: "group:1", Seq: 3, MessageID: "01M", SenderID: "bob", SenderDeviceID: "phone", Text: "old",
		Data: json.RawMessage(`{"n":1}`), Version: 2, Status: chat.StatusNormal,
	}
	with := func(m chat.Message, change func(m *chat.Message)) chat.Message {
		change(&m)
		return m
	}
	recalled := with(sent, func(m *chat.Message) { m.Text, m.Data, m.Status, m.Version = "", nil, chat.StatusRecalled, 3 })
	edit := with(told(chat.Event{Kind: chat.EventEdit, TargetSeq: 3, TargetMessageID: "01M", Version: 3}), func(m *chat.Message) { m.Text = "new" })
	recall := told(chat.Event{Kind: chat.EventRecall, TargetSeq: 3, TargetMessageID: "01M", Version: 3})
	erase := told(chat.Event{Kind: chat.EventErase, Erased: "bob"})
	for name, tc := range map[string]struct {
		target, event, want chat.Message
	}{
		"an edit":                      {sent, edit, with(sent, func(m *chat.Message) { m.Text, m.Data, m.Version = "new", nil, 3 })},
		"an edit that came late":       {with(sent, func(m *chat.Message) { m.Version = 3 }), edit, with(sent, func(m *chat.Message) { m.Version = 3 })},
		"an edit of another":           {sent, with(edit, func(m *chat.Message) { m.Event = &chat.Event{Kind: chat.EventEdit, TargetMessageID: "01X", Version: 3} }), sent},
		"an edit that is not for one":  {sent, with(edit, func(m *chat.Message) { m.Withheld = true }), sent},
		"an edit after the recall":     {recalled, with(edit, func(m *chat.Message) { m.Event = &chat.Event{Kind: chat.EventEdit, TargetMessageID: "01M", Version: 9} }), recalled},
		"an edit that was recalled":    {sent, with(edit, func(m *chat.Message) { m.Text, m.Status = "", chat.StatusRecalled }), recalled},
		"a recall":                     {sent, recall, recalled},
		"a recall again":               {recalled, recall, recalled},
		"a recall of what was shown":   {with(recalled, func(m *chat.Message) { m.Version = 2 }), recall, recalled},
		"a recall of what is withheld": {with(sent, func(m *chat.Message) { m.Text, m.Data, m.Withheld = "", nil, true }), recall, recalled},
		"an erasure":                   {sent, erase, with(recalled, func(m *chat.Message) { m.SenderDeviceID = "" })},
		"an erasure of another":        {with(sent, func(m *chat.Message) { m.SenderID = "ann" }), erase, with(sent, func(m *chat.Message) { m.SenderID = "ann" })},
		"an erasure of what was later": {with(sent, func(m *chat.Message) { m.Seq = 9 }), erase, with(sent, func(m *chat.Message) { m.Seq = 9 })},
		"what changes no message":      {sent, told(chat.Event{Kind: chat.EventTitle, TargetMessageID: "01M", Version: 3}), sent},
		"what is no event":             {sent, with(sent, func(m *chat.Message) { m.Text, m.Version = "new", 9 }), sent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ok := tc.target.After(tc.event)
			require.Equal(t, tc.want, got)
			changed, err := chat.EncodeJSON(tc.want)
			require.NoError(t, err)
			was, err := chat.EncodeJSON(tc.target)
			require.NoError(t, err)
			require.Equal(t, string(changed) != string(was), ok)
			_, ok = got.After(tc.event)
			require.False(t, ok, "twice is once")
		})
	}
}

func TestMessageTarget(t *testing.T) {
	t.Parallel()
	for kind, want := range map[chat.EventKind]int64{chat.EventRecall: 3, chat.EventEdit: 3, chat.EventErase: 0, chat.EventTitle: -1, chat.EventMembers: -1} {
		seq, ok := told(chat.Event{Kind: kind, TargetSeq: 3}).Target()
		require.Equal(t, want >= 0, ok, kind)
		require.Equal(t, max(0, want), seq, kind)
	}
	_, ok := chat.Message{}.Target()
	require.False(t, ok)
}

func TestMessagePreview(t *testing.T) {
	t.Parallel()
	m := chat.Message{Seq: 9, SenderID: "bob", MessageType: chat.TypeText, Status: chat.StatusNormal, ServerTime: 70}
	for _, n := range []int{0, 1, chat.PreviewRunes - 1, chat.PreviewRunes, chat.PreviewRunes + 1, chat.MaxTextRunes} {
		m.Text = strings.Repeat("好", n)
		require.Equal(t, &chat.MessagePreview{
			Seq: 9, SenderID: "bob", MessageType: chat.TypeText, Text: strings.Repeat("好", min(n, chat.PreviewRunes)),
			Status: chat.StatusNormal, ServerTime: 70,
		}, m.Preview(), n)
	}
	require.Nil(t, (*chat.Message)(nil).Preview())
}

func TestMessageStampedAndSent(t *testing.T) {
	t.Parallel()
	m := chat.Message{ConversationID: "group:1", Text: "hi"}.Stamped("01M", time.UnixMilli(70))
	require.Equal(t, chat.Message{ConversationID: "group:1", Text: "hi", MessageID: "01M", ServerTime: 70, Version: 1, Status: chat.StatusNormal}, m)
	m.Seq = 3
	require.Equal(t, chat.Sent{ConversationID: "group:1", Seq: 3, MessageID: "01M", ServerTime: 70}, m.Sent())
}
