package chat_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/inorder-im/inorder/shared/chat"
)

func entry(id string, serverTime int64) chat.Message {
	return chat.Message{ConversationID: "group:1", MessageID: id, ServerTime: serverTime}
}

func TestAssignSeq(t *testing.T) {
	t.Parallel()
	other := entry("d", 1)
	other.ConversationID = "group:2"
	for name, tc := range map[string]struct {
		last int64
		in   []chat.Message
		want []string // messageIds in seq order
		err  string
	}{
		"nothing":               {last: 7, want: []string{}},
		"by receive time":       {in: []chat.Message{entry("a", 20), entry("b", 10)}, want: []string{"b", "a"}},
		"ties by messageId":     {in: []chat.Message{entry("b", 5), entry("a", 5)}, want: []string{"a", "b"}},
		"after the last":        {last: 41, in: []chat.Message{entry("a", 1)}, want: []string{"a"}},
		"does not dedupe":       {in: []chat.Message{entry("a", 1), entry("a", 1)}, want: []string{"a", "a"}},
		"negative last":         {last: -1, in: []chat.Message{entry("a", 1)}, err: "negative"},
		"negative last, no one": {last: -1, err: "negative"},
		"mixed conversations":   {in: []chat.Message{entry("a", 1), other}, err: "group:2"},
		"no messageId":          {in: []chat.Message{entry("", 1)}, err: "no identity"},
		"no conversationId":     {in: []chat.Message{{MessageID: "a"}}, err: "no identity"},
		"numbers used up":       {last: chat.MaxSeq, in: []chat.Message{entry("a", 1)}, err: "no seq is left"},
		"the very last number":  {last: chat.MaxSeq - 1, in: []chat.Message{entry("a", 1)}, want: []string{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := chat.AssignSeq(tc.last, tc.in)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.NotNil(t, got)
			ids := []string{}
			for i, m := range got {
				require.Equal(t, tc.last+1+int64(i), m.Seq)
				ids = append(ids, m.MessageID)
			}
			require.Equal(t, tc.want, ids)
		})
	}
}

func TestAssignSeqLeavesItsInputAlone(t *testing.T) {
	t.Parallel()
	in := []chat.Message{entry("b", 2), entry("a", 1)}
	_, err := chat.AssignSeq(3, in)
	require.NoError(t, err)
	require.Equal(t, []chat.Message{entry("b", 2), entry("a", 1)}, in)
}

// Whatever the order of arrival, the numbers are the same.
func TestAssignSeqIsIndependentOfInputOrder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOfDistinct(rapid.Custom(func(t *rapid.T) chat.Message {
			return entry(rapid.StringMatching(`[a-z]{1,3}`).Draw(t, "id"), rapid.Int64Range(0, 5).Draw(t, "time"))
		}), func(m chat.Message) string { return m.MessageID }).Draw(t, "in")
		last := rapid.Int64Range(0, 1000).Draw(t, "last")
		one, err := chat.AssignSeq(last, in)
		require.NoError(t, err)
		two, err := chat.AssignSeq(last, rapid.Permutation(in).Draw(t, "shuffled"))
		require.NoError(t, err)
		require.Equal(t, one, two)
	})
}
