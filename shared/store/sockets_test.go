package store_test

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
)

// What the fan-out asks for at a time does not open new connections to DynamoDB in each
// batch: handshakes cost more than the requests.
func TestG10_ABatchOpensNoNewConnections(t *testing.T) { //nolint:paralleltest // it sets the environment
	const batches, atOnce = 10, 64
	var opened atomic.Int64
	var arrived sync.WaitGroup // of a batch, which is answered when all of it has come
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		arrived.Done()
		arrived.Wait()
		_, _ = w.Write([]byte(`{"Attributes":{"v":{"N":"1"}}}`))
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			opened.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL_DYNAMODB": server.URL, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret",
	} {
		t.Setenv(name, value)
	}
	for _, table := range []string{"CONVERSATIONS", "MESSAGES", "IDEMPOTENCY", "MEMBERS", "INBOXES", "CONNECTIONS", "LANE"} {
		t.Setenv(table+"_TABLE", table)
	}
	s, err := store.Open(t.Context(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	for range batches {
		arrived.Add(atOnce)
		require.NoError(t, parallel(atOnce, func(i int) error {
			_, err := s.Raise(t.Context(), fmt.Sprint("user", i), []chat.ConversationID{"group:1"})
			return err
		}))
	}
	require.Less(t, opened.Load(), int64(3*atOnce), "of %d requests", batches*atOnce)
}

// A look-up of many is made side by side: the second request does not wait for the answer
// to the first.
func TestManyItemsAreReadSideBySide(t *testing.T) {
	t.Parallel()
	const patience = time.Minute
	c := newCloud(t)
	const requests = 4
	users := make([]string, requests*100)
	for i := range users {
		users[i] = fmt.Sprint("user", i)
	}
	var under atomic.Int64
	all := make(chan struct{})
	w := &wire{Edit: func(op string, _, answer []byte) []byte {
		if op == "BatchGetItem" {
			if under.Add(1) == requests {
				close(all)
			}
			select {
			case <-all:
			case <-time.After(patience):
				t.Error("the others were not asked for")
			}
		}
		return answer
	}}
	found, err := c.Store(w).Connections(t.Context(), users)
	require.NoError(t, err)
	require.Empty(t, found)
}
