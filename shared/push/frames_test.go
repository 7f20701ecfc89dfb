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

func framesOf(t require.TestingT, updates []wire.Update) [][]byte {
	e := push.NewEncoder()
	frames := slices.Collect(e.Frames(updates))
	require.NoError(t, e.Err())
	return frames
}

func TestFrames(t *testing.T) {
	t.Parallel()

	t.Run("puts entries and conversations into one frame", func(t *testing.T) {
		t.Parallel()
		updates := []wire.Update{
			{ConversationID: "group:b", CommittedMaxSeq: 8, Messages: []chat.Message{message("group:b", 7, "hi"), message("group:b", 8, "<ho>")}},
			{ConversationID: "group:a", CommittedMaxSeq: 1, Messages: []chat.Message{message("group:a", 1, `"`)}},
		}
		frames := framesOf(t, updates)
		require.Equal(t, []wire.Push{{Type: wire.TypePush, Updates: updates}}, decoded(t, frames))
	})

	t.Run("has no frame for no messages", func(t *testing.T) {
		t.Parallel()
		require.Empty(t, framesOf(t, []wire.Update{{ConversationID: "group:a", CommittedMaxSeq: 1}}))
	})

	t.Run("leaves out what has no frame, and nothing else", func(t *testing.T) {
		t.Parallel()
		broken, long := message("group:a", 1, "one"), message("group:a", 3, strings.Repeat("x", wire.MaxFrameBytes))
		broken.Data = json.RawMessage("{")
		rest := []chat.Message{message("group:a", 2, "two"), message("group:a", 4, "four")}
		e := push.NewEncoder()
		require.NoError(t, e.Err())
		for range 2 {
			frames := slices.Collect(e.Frames([]wire.Update{
				{ConversationID: "group:a", CommittedMaxSeq: 4, Messages: []chat.Message{broken, rest[0], long, rest[1]}},
				{ConversationID: "group:b", CommittedMaxSeq: 3, Messages: []chat.Message{long}},
			}))
			require.Equal(t, []wire.Push{{Type: wire.TypePush, Updates: []wire.Update{
				{ConversationID: "group:a", CommittedMaxSeq: 4, Messages: rest},
			}}}, decoded(t, frames))
			require.ErrorContains(t, e.Err(), "encoding message 1 of group:a")
		}
		e = push.NewEncoder()
		require.Empty(t, slices.Collect(e.Frames([]wire.Update{{ConversationID: "group:a", CommittedMaxSeq: 3, Messages: []chat.Message{long}}})))
		require.ErrorContains(t, e.Err(), "encoding message 3 of group:a: its 3")
	})

	t.Run("knows the messages of a batch apart", func(t *testing.T) {
		t.Parallel()
		e := push.NewEncoder()
		entries := []chat.Message{message("group:a", 1, "one"), message("group:a", 2, "two"), message("group:b", 2, "three")}
		withheld := entries[1]
		withheld.Text, withheld.Data, withheld.Withheld = "", nil, true
		for _, updates := range [][]wire.Update{
			{{ConversationID: "group:a", CommittedMaxSeq: 2, Messages: entries[:2]}},
			{{ConversationID: "group:a", CommittedMaxSeq: 2, Messages: []chat.Message{entries[0], withheld}}},
			{{ConversationID: "group:a", CommittedMaxSeq: 9, Messages: entries[1:2]}, {ConversationID: "group:b", CommittedMaxSeq: 2, Messages: entries[2:]}},
		} {
			require.Equal(t, []wire.Push{{Type: wire.TypePush, Updates: updates}}, decoded(t, slices.Collect(e.Frames(updates))))
		}
		require.NoError(t, e.Err())
	})

	t.Run("makes no more frames than are wanted", func(t *testing.T) {
		t.Parallel()
		e := push.NewEncoder()
		long := strings.Repeat("x", 20_000)
		broken := message("group:b", 1, "never reached")
		broken.Data = json.RawMessage("{")
		taken := 0
		for range e.Frames([]wire.Update{
			{ConversationID: "group:a", CommittedMaxSeq: 2, Messages: []chat.Message{message("group:a", 1, long), message("group:a", 2, long)}},
			{ConversationID: "group:b", CommittedMaxSeq: 1, Messages: []chat.Message{broken}},
		}) {
			taken++
			break
		}
		require.Equal(t, 1, taken)
		require.NoError(t, e.Err())
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
			frames := framesOf(t, update(extra))
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
		frames := framesOf(t, updates)

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
