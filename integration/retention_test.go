package integration_test

import (
	"context"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/wire"
)

// A device was away for longer than messages are kept. It gets to the head, is
// told what is gone, and waits for nothing; the old ones of its messages that
// DynamoDB has not deleted yet are not shown either.
func TestRetention_ADeviceThatWasAwayForLonger(t *testing.T) {
	t.Parallel()
	c := startCloud(t, "-param", "RetentionDays=1")
	db := dynamotest.Client(t, c.DynamoDB)
	alice, bob := newUser("alice"), newUser("bob")
	conversation := chat.SingleID(alice, bob)
	writer := mustConnect(t, c.Stack, alice, "writer")
	away := client.NewMemory()
	const early, deleted, expired, all = 3, 110, 120, 125

	write := func(n int) {
		for i := range n {
			mustSend(t, writer, wire.Send{To: bob, Text: text(0, i)})
		}
	}
	write(early)
	requireReads(t, c.Stack, bob, away, conversation, 0, 1, 2, 3)
	write(all - early)
	for seq := int64(1); seq <= expired; seq++ {
		key := map[string]any{"conversationId": conversation, "seq": seq}
		requireExpiresInADay(t, db, key)
		if seq <= deleted {
			change(t, db, "Messages", key, "", nil)
		} else {
			change(t, db, "Messages", key, "SET expiresAt = :past", map[string]any{":past": time.Now().Unix() - 1})
		}
	}

	fresh := mustConnect(t, c.Stack, bob, "fresh")
	page, err := fresh.syncPage(t.Context(), conversation, 0)
	require.NoError(t, err)
	require.Equal(t, int64(expired+1), page.FirstSeq)
	require.Len(t, page.Messages, all-expired)
	require.False(t, page.HasMore)

	requireReads(t, c.Stack, bob, away, conversation, early, 121, 122, 123, 124, 125)
	var listed wire.ConversationsPage
	require.NoError(t, fresh.do(t.Context(), wire.ActionConversations, wire.Conversations{}, &listed))
	require.Equal(t, int64(all), listed.Conversations[0].LastSeq)
	require.NotNil(t, listed.Conversations[0].LastMessage)
}

func requireExpiresInADay(t *testing.T, db *dynamodb.Client, key map[string]any) {
	t.Helper()
	var message struct {
		ServerTime int64 `dynamodbav:"serverTime"`
		ExpiresAt  int64 `dynamodbav:"expiresAt"`
	}
	require.NoError(t, attributevalue.UnmarshalMap(itemAt(t, db, "Messages", key), &message))
	require.Equal(t, time.UnixMilli(message.ServerTime).Add(24*time.Hour).Unix(), message.ExpiresAt)
}

// requireReads runs a Go client on what it has stored, and wants exactly these
// messages after seq.
func requireReads(t *testing.T, s stack, user string, memory client.Store, conversation chat.ConversationID, after int64, want ...int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cfg := clientOf(s, user, "away")
	cfg.Store = memory
	device, err := client.Dial(ctx, cfg)
	require.NoError(t, err)
	defer device.Close()
	var got []int64
	for m, err := range device.Messages(ctx, conversation, after) {
		require.NoError(t, err, "got %v", got)
		got = append(got, m.Seq)
		if len(got) == len(want) {
			break
		}
	}
	require.Equal(t, want, got)
}
