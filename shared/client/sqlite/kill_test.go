package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/client/clienttest"
	"github.com/inorder-im/inorder/shared/client/sqlite"
	"github.com/inorder-im/inorder/shared/wire"
)

// The program that is killed is this test binary, started again with these set.
const (
	programURL   = "INORDER_TEST_URL"
	programStore = "INORDER_TEST_STORE"
	programRun   = "INORDER_TEST_RUN"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(programURL); url != "" {
		if err := program(url, os.Getenv(programStore), os.Getenv(programRun)); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

const group = "group:g"

// program sends messages and renames the group, several at a time, and prints the key of
// each write that returned. It ends by being killed.
func program(url, path, run string) error {
	ctx := context.Background()
	store, err := sqlite.Open(ctx, path)
	if err != nil {
		return err
	}
	c, err := client.Dial(ctx, settings(url, store))
	if err != nil {
		return err
	}
	lines := make(chan string)
	for worker := range 4 {
		go func() {
			for n := 0; ; n++ {
				key := fmt.Sprintf("run%s-%d-%d", run, worker, n)
				var err error
				if worker == 0 {
					_, err = c.SetTitle(ctx, client.SetTitle{ConversationID: group, Title: key, ClientMsgID: key})
				} else {
					_, err = c.Send(ctx, client.Draft{ConversationID: group, Text: key, ClientMsgID: key})
				}
				if err != nil {
					lines <- "error " + err.Error()
				}
				lines <- key
			}
		}()
	}
	for line := range lines {
		fmt.Println(line)
	}
	return nil
}

func settings(url string, store client.Store) client.Config {
	return client.Config{
		URL: url, UserID: "alice", DeviceID: "phone", Token: clienttest.Token("alice"), Store: store,
		BackoffBase: 5 * time.Millisecond, RequestTimeout: 200 * time.Millisecond, GapWait: 20 * time.Millisecond,
	}
}

func TestAKillLosesNothing(t *testing.T) {
	t.Parallel()
	s, err := clienttest.Listen(t.Context())
	require.NoError(t, err)
	defer s.Close()
	s.MakeGroup("g", "alice", "bob")
	n := 0
	s.Interfere(clienttest.Hooks{OnRequest: func(r clienttest.Request) clienttest.Fate {
		if r.Action == wire.ActionSend {
			s.Post("bob", wire.Send{ConversationID: group, Text: "meanwhile"})
		}
		return clienttest.Handle
	}, OnPush: func(string, string) (int, time.Duration) {
		return 1 + len(s.Entries(group))%2, time.Duration(len(s.Entries(group))%5) * time.Millisecond
	}})
	path := filepath.Join(t.TempDir(), "store.db")
	sent := map[string]bool{}
	for run := range 5 {
		for _, key := range runAndKill(t, s.URL(), path, run, 5+7*run) {
			sent[key] = true
			n++
		}
		checkStore(t, s, path, sent)
	}
	require.Len(t, sent, n, "every key is of its own")

	store := open(t, path)
	defer func() { require.NoError(t, store.Close()) }()
	c, err := client.Dial(t.Context(), settings(s.URL(), store))
	require.NoError(t, err)
	defer c.Close()
	require.Eventually(t, func() bool { return len(c.Outbox()) == 0 }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, c.Refresh(t.Context()))
	messages, err := c.Stored(t.Context(), group, 0, 1_000_000)
	require.NoError(t, err)
	require.Equal(t, s.Entries(group), messages)
	for key := range sent {
		require.Equal(t, 1, count(messages, key), key)
	}
}

// runAndKill returns the keys that the program printed before it was killed in the
// middle of its work.
func runAndKill(t *testing.T, url, path string, run, lines int) []string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), programURL+"="+url, programStore+"="+path, fmt.Sprintf("%s=%d", programRun, run))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var keys []string
	scanner := bufio.NewScanner(out)
	for scanner.Scan() {
		require.NotContains(t, scanner.Text(), "error")
		keys = append(keys, scanner.Text())
		if len(keys) == lines {
			require.NoError(t, cmd.Process.Kill())
		}
	}
	require.ErrorContains(t, cmd.Wait(), "killed")
	// The last line may be cut.
	require.GreaterOrEqual(t, len(keys), lines)
	return keys[:lines]
}

// checkStore looks into what the kill left.
func checkStore(t *testing.T, s *clienttest.Server, path string, sent map[string]bool) {
	t.Helper()
	store := open(t, path)
	defer func() { require.NoError(t, store.Close()) }()
	state, err := store.Load(t.Context(), "alice")
	require.NoError(t, err)
	require.Len(t, state.Conversations, 1)
	line := state.Conversations[0]
	stored, err := store.Messages(t.Context(), group, 0, line.MaxContiguousSeq, 1_000_000)
	require.NoError(t, err)
	require.Len(t, stored, int(line.MaxContiguousSeq), "no position without its messages")
	require.Equal(t, s.Entries(group)[:line.MaxContiguousSeq], stored)

	outbox := map[string]bool{}
	for _, e := range state.Outbox {
		outbox[e.ClientMsgID] = true
		require.False(t, sent[e.ClientMsgID], "what was answered has left the outbox")
	}
	for _, m := range s.Entries(group) {
		if m.SenderID == "alice" && !outbox[m.ClientMsgID] {
			require.LessOrEqual(t, m.Seq, line.MaxSeenSeq, "%s left the outbox before its answer was stored", m.ClientMsgID)
		}
	}
	for key := range sent {
		require.Equal(t, 1, count(s.Entries(group), key), key)
	}
}

func count(messages []chat.Message, key string) int {
	n := 0
	for _, m := range messages {
		if m.ClientMsgID == key {
			n++
		}
	}
	return n
}
