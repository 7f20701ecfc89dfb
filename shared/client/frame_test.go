package client

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// What passes decode has to be safe: possible seqs and ids, and a step of the
// ledger that it leads to keeps the ledger's rules.
func FuzzDecode(f *testing.F) {
	message := `{"conversationId":"group:g","seq":2,"messageId":"m","clientMsgId":"c","senderId":"bob","messageType":"text","text":"x","data":null,"version":1,"status":"normal"}`
	for _, seed := range []string{
		`{"type":"push","updates":[{"conversationId":"group:g","messages":[` + message + `],"committedMaxSeq":2}]}`,
		`{"type":"notify","updates":[{"conversationId":"group:g","committedMaxSeq":9007199254740991}]}`,
		`{"type":"receipt","conversationId":"group:g","userId":"bob","deliveredSeq":3,"readSeq":2}`,
		`{"type":"reply","id":"1","action":"sync","result":{"messages":[` + message + `],"nextSeq":2,"committedMaxSeq":5,"hasMore":true,"skipped":[1]}}`,
		`{"type":"reply","id":"1","action":"changes","result":{"conversations":[],"heads":[{"conversationId":"group:g","committedMaxSeq":1}],"syncCursor":4,"full":true}}`,
		`{"type":"error","id":"1","action":"send","error":{"code":"BUSY","message":"m","retryable":true,"details":{"a":1}}}`,
		`{"type":"changed","syncCursor":4}`, `{"type":"goodbye","reason":"replaced"}`,
		`{"message":"Internal server error","connectionId":"c","requestId":"r"}`,
		`{"type":"push","updates":[{"conversationId":"group:g","messages":[{"seq":-1}]}]}`,
		`[`, `null`, `"x"`, `{"type":7}`, "\xff", `{"type":"push","updates":[null]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		frame, err := decode(data)
		if err != nil {
			require.ErrorIs(t, err, ErrProtocol)
			require.True(t, mayRetry(err))
			return
		}
		switch frame.Type {
		case wire.TypePush, wire.TypeNotify:
			for _, u := range frame.Updates {
				require.Contains(t, u.ConversationID, ":")
				l := ledger{contiguous: 1, seen: 1}
				requireRules(t, l, l.push(u.Messages, u.CommittedMaxSeq, 3).next)
			}
		case wire.TypeReceipt:
			require.True(t, possible(frame.ReadSeq) && possible(frame.DeliveredSeq))
		case wire.TypeReply:
			require.NotEmpty(t, frame.ID)
			var page wire.Synced
			if json.Unmarshal(frame.Result, &page) == nil && check("group:g", 1, page) == nil {
				l := ledger{contiguous: 1, seen: 1}
				next := l.page(page).next
				requireRules(t, l, next)
				require.Equal(t, max(1, page.NextSeq), next.contiguous)
			}
			_ = read(frame, &wire.Sent{})
		case wire.TypeError, "":
			require.Error(t, frame.failure())
			if frame.ID == "" {
				require.True(t, mayRetry(frame.failure()), "nobody knows whose request it refuses")
			}
		}
	})
}

func requireRules(t *testing.T, before, l ledger) {
	t.Helper()
	require.GreaterOrEqual(t, l.contiguous, before.contiguous)
	require.GreaterOrEqual(t, l.seen, l.contiguous)
	require.LessOrEqual(t, l.seen, int64(chat.MaxSeq))
	last := l.contiguous + 1
	for _, m := range l.early {
		require.Greater(t, m.Seq, last, "early messages ascend, above the one that is missing")
		require.LessOrEqual(t, m.Seq, l.seen)
		last = m.Seq
	}
}

func TestRequestsAreFrames(t *testing.T) {
	t.Parallel()
	for want, request := range map[string]any{
		`{"action":"ping","id":"7"}`:          nil,
		`{"action":"conversations","id":"7"}`: wire.Conversations{},
		`{"action":"sync","id":"7","conversationId":"<&>"}`: struct {
			ConversationID chat.ConversationID `json:"conversationId"`
		}{"<&>"},
	} {
		var header wire.Header
		require.NoError(t, json.Unmarshal([]byte(want), &header))
		data, err := encodeRequest(header.Action, header.ID, request)
		require.NoError(t, err)
		require.Equal(t, want, string(data))
	}
	_, err := encodeRequest("send", "7", wire.Send{Text: strings.Repeat("x", wire.MaxFrameBytes)})
	require.Equal(t, chat.CodeTooLarge, chat.CodeOf(err))
	require.True(t, isRefusal(err), "sending it again would not help")
}
