package chat_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
)

func TestLineJoined(t *testing.T) {
	t.Parallel()
	full := make([]chat.Range, chat.MaxPastStretches)
	for i := range full {
		full[i] = chat.Range{From: int64(10 * i), To: int64(10*i + 1)}
	}
	head := &chat.Conversation{Title: "then"}
	for name, tc := range map[string]struct {
		was, want  chat.Line
		visibility chat.Visibility
	}{
		"a newcomer where all is visible":        {chat.Line{}, chat.Line{JoinSeq: 1, ReadSeq: 499, DeliveredSeq: 499}, chat.VisibleAll},
		"a newcomer":                             {chat.Line{UserID: "bob"}, chat.Line{UserID: "bob", JoinSeq: 500, ReadSeq: 499, DeliveredSeq: 499}, chat.VisibleSinceJoin},
		"a newcomer where no visibility is told": {chat.Line{}, chat.Line{JoinSeq: 500, ReadSeq: 499, DeliveredSeq: 499}, ""},
		"one who comes back": {
			chat.Line{JoinSeq: 3, LeftSeq: 9, ReadSeq: 5, DeliveredSeq: 6, ClearedSeq: 4, LeftHead: head, LeftAt: 70},
			chat.Line{JoinSeq: 500, ReadSeq: 5, DeliveredSeq: 6, ClearedSeq: 4, Past: []chat.Range{{From: 3, To: 9}}}, chat.VisibleAll,
		},
		"one who comes back at once": {
			chat.Line{JoinSeq: 3, LeftSeq: 499, ReadSeq: 5},
			chat.Line{JoinSeq: 3, ReadSeq: 5, Past: []chat.Range{}}, chat.VisibleAll,
		},
		"one who could read nothing": {
			chat.Line{JoinSeq: 10, LeftSeq: 9}, chat.Line{JoinSeq: 500, Past: []chat.Range{}}, chat.VisibleAll,
		},
		"one who was here more often than is kept": {
			chat.Line{JoinSeq: 400, LeftSeq: 410, Past: full},
			chat.Line{JoinSeq: 500, Past: append(full[1:len(full):len(full)], chat.Range{From: 400, To: 410})}, chat.VisibleAll,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, tc.was.Joined(tc.visibility, 500))
		})
	}
	require.Equal(t, int64(1), full[0].To, "the line as it was is left alone")
}

func TestLineHidden(t *testing.T) {
	t.Parallel()
	require.False(t, chat.Line{ClearedSeq: 9}.Hidden(), "a member's")
	require.False(t, chat.Line{LeftSeq: 9, ClearedSeq: 8}.Hidden())
	require.True(t, chat.Line{LeftSeq: 9, ClearedSeq: 9}.Hidden())
}

func TestView(t *testing.T) {
	t.Parallel()
	head := chat.Conversation{
		ConversationID: "group:1", Kind: chat.KindGroup, LastSeq: 20, State: chat.StateActive, Title: "now", Owner: "ann", CreatedAt: 7,
	}
	then := head
	then.LastSeq, then.Title = 12, "then"
	window := func(from, to, since, until int64) chat.Window {
		return chat.Window{Range: chat.Range{From: from, To: to}, During: chat.Range{From: since, To: until}}
	}
	past := []chat.Range{{From: 2, To: 4}, {From: 8, To: 9}}
	for name, tc := range map[string]struct {
		line    chat.Line
		title   string
		last    int64
		unread  int64
		windows []chat.Window
	}{
		"a member":                            {chat.Line{JoinSeq: 1, ReadSeq: 18}, "now", 20, 2, []chat.Window{window(1, 20, 1, 20)}},
		"one who joined late":                 {chat.Line{JoinSeq: 15}, "now", 20, 6, []chat.Window{window(15, 20, 15, 20)}},
		"one who cleared a part":              {chat.Line{JoinSeq: 1, ClearedSeq: 5}, "now", 20, 15, []chat.Window{window(6, 20, 1, 20)}},
		"one who cleared all":                 {chat.Line{JoinSeq: 1, ClearedSeq: 20}, "now", 20, 0, nil},
		"one who was away":                    {chat.Line{JoinSeq: 15, Past: past, ReadSeq: 15}, "now", 20, 5, []chat.Window{window(2, 4, 2, 4), window(8, 9, 8, 9), window(15, 20, 15, 20)}},
		"one who was away, and cleared":       {chat.Line{JoinSeq: 15, Past: past, ClearedSeq: 8}, "now", 20, 6, []chat.Window{window(9, 9, 8, 9), window(15, 20, 15, 20)}},
		"a former member":                     {chat.Line{JoinSeq: 3, LeftSeq: 12, LeftHead: &then, ReadSeq: 10}, "then", 12, 2, []chat.Window{window(3, 12, 3, 12)}},
		"a former member by an operator":      {chat.Line{JoinSeq: 3, LeftSeq: 12, ReadSeq: 12}, "", 12, 0, []chat.Window{window(3, 12, 3, 12)}},
		"a former member of what was undone":  {chat.Line{JoinSeq: 3, LeftSeq: 30, ReadSeq: 30}, "", 20, 0, []chat.Window{window(3, 20, 3, 20)}},
		"a former member who could read none": {chat.Line{JoinSeq: 13, LeftSeq: 12, LeftHead: &then}, "then", 12, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := chat.ViewOf(head, tc.line)
			require.Equal(t, tc.title, v.Head.Title)
			require.EqualValues(t, "group:1", v.Head.ConversationID)
			require.Equal(t, tc.last, v.LastSeq())
			require.Equal(t, tc.unread, v.Unread())
			require.Equal(t, tc.windows, v.Windows())
			requireWindows(t, v)
		})
	}
}

// requireWindows holds what finds a window against the list of them, for every seq.
func requireWindows(t *testing.T, v chat.View) {
	t.Helper()
	for seq := range int64(25) {
		var at, above, below chat.Window
		for _, w := range v.Windows() {
			if w.Has(seq) {
				at = w
			}
			if above.To == 0 && w.To > seq {
				above = w
				above.From = max(w.From, seq+1)
			}
			if w.From < seq {
				below = w
				below.To = min(w.To, seq-1)
			}
		}
		for want, find := range map[*chat.Window]func(int64) (chat.Window, bool){&at: v.WindowAt, &above: v.WindowAfter, &below: v.WindowBefore} {
			got, ok := find(seq)
			require.Equal(t, *want, got, seq)
			require.Equal(t, want.To != 0, ok, seq)
		}
	}
}
