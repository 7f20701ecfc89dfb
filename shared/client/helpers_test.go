package client_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/client/clienttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	t.Parallel()
	clienttest.TestStore(t, func(*testing.T) (client.Store, func() client.Store) {
		s := client.NewMemory()
		return s, func() client.Store { return s }
	})
}

// bubble runs a test with a server in virtual time. The bubble ends only when
// every goroutine in it has.
func bubble(t *testing.T, test func(t *testing.T, s *clienttest.Server)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New()
		defer s.Close()
		s.ListSize, s.RosterSize = 3, 2 // so that there are several pages
		test(t, s)
	})
}

func config(s *clienttest.Server, userID, deviceID string) client.Config {
	return client.Config{
		URL: s.URL(), UserID: userID, DeviceID: deviceID, Token: clienttest.Token(userID), HTTPClient: s.HTTPClient(),
		Log: slog.New(slog.DiscardHandler),
	}
}

// dial starts a client that ends with the test.
func dial(t *testing.T, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// online is dial for a client that has caught up.
func online(t *testing.T, cfg client.Config) *client.Client {
	t.Helper()
	c := dial(t, cfg)
	require.NoError(t, c.Online(within(t, time.Minute)))
	return c
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func text(conversationID chat.ConversationID, text string) client.Draft {
	return client.Draft{ConversationID: conversationID, Text: text}
}

// take reads n messages of a conversation.
func take(t *testing.T, c *client.Client, conversationID chat.ConversationID, n int) []chat.Message {
	t.Helper()
	var found []chat.Message
	for m, err := range c.Messages(within(t, 10*time.Minute), conversationID, 0) {
		require.NoError(t, err)
		found = append(found, m)
		if len(found) == n {
			break
		}
	}
	return found
}

func texts(messages []chat.Message) []string {
	var all []string
	for _, m := range messages {
		all = append(all, m.Text)
	}
	return all
}

func stored(t *testing.T, c *client.Client, conversationID chat.ConversationID) []chat.Message {
	t.Helper()
	messages, err := c.Stored(t.Context(), conversationID, 0, 1_000_000)
	require.NoError(t, err)
	if messages == nil {
		messages = []chat.Message{}
	}
	return messages
}

// first lets the first n requests of an action meet a fate.
func first(n int64, action string, fate clienttest.Fate) clienttest.Hooks {
	var met atomic.Int64
	return clienttest.Hooks{OnRequest: func(r clienttest.Request) clienttest.Fate {
		if r.Action == action && met.Add(1) <= n {
			return fate
		}
		return clienttest.Handle
	}}
}
