package operate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/operate"
)

func TestHottest(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil, store.WithConversationRate(1))
	quick, slow, quiet := newGroup(t, s, chat.VisibleAll, "ann", "bob"), newGroup(t, c.Store(nil), chat.VisibleAll, "bob", "ann"), newGroup(t, s, chat.VisibleAll, "cy")
	look := func(limit int) []operate.Hot {
		t.Helper()
		hot, err := operate.New(s).Hottest(t.Context(), limit, func(context.Context) error {
			for i := range 3 {
				sendIn(t, c.Store(nil), "ann", quick, fmt.Sprint("m", limit, i))
			}
			sendIn(t, c.Store(nil), "ann", slow, fmt.Sprint("m", limit))
			return nil
		})
		require.NoError(t, err)
		return hot
	}
	hot := look(10)
	require.Len(t, hot, 2, "%s did not grow", quiet)
	require.Equal(t, []chat.ConversationID{quick, slow}, []chat.ConversationID{hot[0].ConversationID, hot[1].ConversationID})
	require.Equal(t, []int64{3, 1}, []int64{hot[0].Grown, hot[1].Grown})
	require.Equal(t, []int64{4, 2}, []int64{hot[0].LastSeq, hot[1].LastSeq})
	require.Greater(t, hot[0].PerSecond, hot[1].PerSecond)
	require.Equal(t, 2, hot[0].MemberCount)
	require.Zero(t, hot[1].FullInMs, "what nobody counts is not full")

	hot = look(1)
	require.Len(t, hot, 1)
	require.Equal(t, quick, hot[0].ConversationID)

	gaveUp := errors.New("no time")
	_, err := operate.New(s).Hottest(t.Context(), 1, func(context.Context) error { return gaveUp })
	require.ErrorIs(t, err, gaveUp)
}
