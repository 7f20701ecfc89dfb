package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// edit makes the message with this seq the event of an edit.
func (w *world) edit(conversationID chat.ConversationID, seq, target int64) {
	m := &w.ledgers[conversationID][seq-1]
	m.MessageType, m.Text = chat.TypeEvent, fmt.Sprint("edit of ", target)
	m.Event = &chat.Event{Kind: chat.EventEdit, TargetSeq: target}
}

// read lists what a connection was pushed, as "seq:text".
func (w *world) read(t *testing.T, connectionID string) string {
	t.Helper()
	var list []string
	for _, frame := range w.frames[connectionID] {
		var p wire.Push
		require.NoError(t, json.Unmarshal([]byte(frame), &p))
		for _, u := range p.Updates {
			for _, m := range u.Messages {
				said := m.Text
				if m.Withheld {
					require.Empty(t, m.Text)
					said = "withheld"
				}
				list = append(list, fmt.Sprint(m.Seq, ":", said))
			}
		}
	}
	return strings.Join(list, ", ")
}

// A push brings nobody what sync would not: not the content of what was said before
// the joining, and not what was made of a message after the leaving.
func TestG9_APushShowsWhatSyncShows(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.member("group:a", "alice", 1, "phone")
	w.member("group:a", "bob", 1, "phone")
	w.member("group:a", "late", 10, "phone")
	w.member("group:a", "newer", 12, "phone")
	w.online("gone", "phone")
	w.online("came", "phone")
	w.write("group:a", 18)
	w.edit("group:a", 11, 9)  // of before all of this
	w.edit("group:a", 13, 11) // and of what is in this batch
	w.membersEvent("group:a", 12, []string{"newer", "came"}, nil)
	w.membersEvent("group:a", 15, nil, []string{"gone", "came"})
	w.edit("group:a", 16, 14)
	w.edit("group:a", 17, 3)
	failed, _ := w.handle(t, batchOf(record("1", "group:a", 10, 18)))
	require.Empty(t, failed)
	all := "11:edit of 9, 12:, 13:edit of 11, 14:hi, 15:, 16:edit of 14, 17:edit of 3, 18:hi"
	for device, want := range map[string]string{
		"alice-phone": all,
		"bob-phone":   all,
		"late-phone":  "11:withheld, 12:, 13:edit of 11, 14:hi, 15:, 16:edit of 14, 17:withheld, 18:hi",
		"newer-phone": "12:, 13:withheld, 14:hi, 15:, 16:edit of 14, 17:withheld, 18:hi",
		"gone-phone":  "12:, 13:edit of 11, 15:", // the rest it gets by sync, which knows since when it was there
		"came-phone":  "12:, 15:",
	} {
		require.Equal(t, want, w.read(t, device), device)
	}
}
