package push_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/push"
	"github.com/inorder-im/inorder/shared/wire"
)

func message(conversationID chat.ConversationID, seq int64, text string) chat.Message {
	return chat.Message{
		ConversationID: conversationID, Seq: seq, MessageID: fmt.Sprintf("01K%d", seq), ClientMsgID: "c",
		SenderID: "alice", MessageType: chat.TypeText, Text: text, Version: 1, Status: chat.StatusNormal, ServerTime: 1,
		Data: json.RawMessage(`{"a":"<b>"}`),
	}
}

// decoded reads push frames; that encoding them again gives the same bytes shows
// that they are frames of the protocol and nothing else.
func decoded(t require.TestingT, frames [][]byte) []wire.Push {
	pushes := make([]wire.Push, len(frames))
	for i, frame := range frames {
		require.LessOrEqual(t, len(frame), wire.MaxFrameBytes)
		require.NoError(t, json.Unmarshal(frame, &pushes[i]))
		again, err := wire.Encode(pushes[i])
		require.NoError(t, err)
		require.Equal(t, string(again), string(frame))
	}
	return pushes
}

func TestFrames(t *testing.T) {
	t.Parallel()

	t.Run("puts entries and conversations into one frame", func(t *testing.T) {
		t.Parallel()
		updates := []wire.Update{
			{ConversationID: "group:b", CommittedMaxSeq: 8, Messages: []chat.Message{message("group:b", 7, "hi"), message("group:b", 8, "<ho>")}},
			{ConversationID: "group:a", CommittedMaxSeq: 1, Messages: []chat.Message{message("group:a", 1, `"`)}},
		}
		frames, err := push.NewEncoder().Frames(updates)
		require.NoError(t, err)
		require.Equal(t, []wire.Push{{Type: wire.TypePush, Updates: updates}}, decoded(t, frames))
	})

	t.Run("has no frame for no messages", func(t *testing.T) {
		t.Parallel()
		frames, err := push.NewEncoder().Frames([]wire.Update{{ConversationID: "group:a", CommittedMaxSeq: 1}})
		require.NoError(t, err)
		require.Empty(t, frames)
	})

	t.Run("refuses a message that fits no frame", func(t *testing.T) {
		t.Parallel()
		_, err := push.NewEncoder().Frames([]wire.Update{{ConversationID: "group:a", CommittedMaxSeq: 1, Messages: []chat.Message{
			message("group:a", 1, strings.Repeat("x", wire.MaxFrameBytes)),
		}}})
		require.ErrorContains(t, err, "message 1 of group:a")
	})

	t.Run("shares frames between those who get the same, and only those", func(t *testing.T) {
		t.Parallel()
		e := push.NewEncoder()
		entries := []chat.Message{message("group:a", 1, "one"), message("group:a", 2, "two"), message("group:a", 3, "three"), message("group:a", 4, "four")}
		whole := []wire.Update{{ConversationID: "group:a", CommittedMaxSeq: 2, Messages: entries[:2]}}
		first, err := e.Frames(whole)
		require.NoError(t, err)
		second, err := e.Frames(slices.Clone(whole))
		require.NoError(t, err)
		require.Same(t, &first[0][0], &second[0][0])
		withheld := slices.Clone(entries[:2])
		withheld[1].Text, withheld[1].Withheld = "", true
		for _, other := range [][]wire.Update{
			{{ConversationID: "group:a", CommittedMaxSeq: 2, Messages: withheld}},
			{{ConversationID: "group:a", CommittedMaxSeq: 2, Messages: entries[1:2]}},
			{{ConversationID: "group:a", CommittedMaxSeq: 2, Messages: entries[:1]}},
			{{ConversationID: "group:a", CommittedMaxSeq: 2, Messages: []chat.Message{entries[0], entries[2]}}},
			{{ConversationID: "group:a", CommittedMaxSeq: 9, Messages: entries[:2]}},
			{{ConversationID: "group:a", CommittedMaxSeq: 4, Messages: []chat.Message{entries[0], entries[1], entries[3]}}},
			{{ConversationID: "group:a", CommittedMaxSeq: 4, Messages: []chat.Message{entries[0], entries[2], entries[3]}}},
		} {
			frames, err := e.Frames(other)
			require.NoError(t, err)
			require.Equal(t, []wire.Push{{Type: wire.TypePush, Updates: other}}, decoded(t, frames))
		}
	})

	t.Run("fills frames to the byte", func(t *testing.T) {
		t.Parallel()
		update := func(extra int) []wire.Update {
			return []wire.Update{{ConversationID: "group:a", CommittedMaxSeq: 2, Messages: []chat.Message{
				message("group:a", 1, strings.Repeat("x", 20_000)), message("group:a", 2, strings.Repeat("y", extra)),
			}}}
		}
		empty, err := wire.Encode(wire.Push{Type: wire.TypePush, Updates: update(0)})
		require.NoError(t, err)
		exact := wire.MaxFrameBytes - len(empty) - len(`"text":"",`)
		for extra, want := range map[int]int{exact: 1, exact + 1: 2} {
			frames, err := push.NewEncoder().Frames(update(extra))
			require.NoError(t, err)
			require.Len(t, frames, want)
			decoded(t, frames)
		}
	})
}

func TestFramesAnySizes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var updates []wire.Update
		for c := range rapid.IntRange(0, 6).Draw(t, "conversations") {
			id := chat.ConversationID(fmt.Sprintf("group:%d", c))
			n := rapid.IntRange(1, 8).Draw(t, "messages")
			u := wire.Update{ConversationID: id, CommittedMaxSeq: int64(n)}
			for seq := range n {
				size := rapid.IntRange(1, 24_000).Draw(t, "size")
				u.Messages = append(u.Messages, message(id, int64(seq+1), strings.Repeat("é", size/2+1)))
			}
			updates = append(updates, u)
		}
		frames, err := push.NewEncoder().Frames(updates)
		require.NoError(t, err)

		// Put together again, the frames are the updates: all messages, in order.
		var together []wire.Update
		for _, p := range decoded(t, frames) {
			for _, u := range p.Updates {
				if n := len(together); n > 0 && together[n-1].ConversationID == u.ConversationID {
					require.Equal(t, together[n-1].CommittedMaxSeq, u.CommittedMaxSeq)
					together[n-1].Messages = append(together[n-1].Messages, u.Messages...)
				} else {
					together = append(together, u)
				}
			}
		}
		require.Equal(t, updates, together)

		// No frame could have taken the next one's first message.
		for i := range len(frames) - 1 {
			next := decoded(t, frames[i+1:])[0].Updates[0].Messages[0]
			size, err := next.Size()
			require.NoError(t, err)
			require.Greater(t, len(frames[i])+size+len(`,{"conversationId":"group:0","messages":[],"committedMaxSeq":8}`), wire.MaxFrameBytes)
		}
	})
}

func TestNotifyFrames(t *testing.T) {
	t.Parallel()
	heads := make([]wire.Head, 1000)
	for i := range heads {
		heads[i] = wire.Head{ConversationID: chat.ConversationID(fmt.Sprintf("group:%d", i)), CommittedMaxSeq: int64(i)}
	}
	frames, err := push.NotifyFrames(heads)
	require.NoError(t, err)
	require.Greater(t, len(frames), 1)
	var together []wire.Head
	for _, frame := range frames {
		require.LessOrEqual(t, len(frame), wire.MaxFrameBytes)
		var n wire.Notify
		require.NoError(t, json.Unmarshal(frame, &n))
		again, err := wire.Encode(n)
		require.NoError(t, err)
		require.Equal(t, string(again), string(frame))
		require.Equal(t, wire.TypeNotify, n.Type)
		together = append(together, n.Updates...)
	}
	require.Equal(t, heads, together)

	none, err := push.NotifyFrames(nil)
	require.NoError(t, err)
	require.Empty(t, none)
}
