package integration_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/integration/proxy"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// The local cloud with a DynamoDB that it did not start: moto's, which is written
// independently of the usual one. moto has two flaws that the test goes around.
// It is not atomic, so it gets one request at a time. And a transaction that
// fails replaces its tables by copies, after which a stream's iterators read the
// old ones for ever; so what is pushed is awaited before anything is refused.
func TestAnotherDynamoDB(t *testing.T) {
	t.Parallel()
	needLocal(t)
	ctx := t.Context()
	var c *localCloud
	var a, b *device
	var conversation chat.ConversationID
	pushed := errors.New("not begun")
	for attempt := 1; pushed != nil; attempt++ {
		c = startCloud(t, "-dynamodb-endpoint", serially(t, startMoto(t)))
		a, b = mustConnect(t, c.Stack, newUser("alice"), "phone"), mustConnect(t, c.Stack, newUser("bob"), "phone")
		conversation = exchangeMessages(t, a, b, 5)
		pushed = errors.Join(a.awaitPushed(ctx, conversation, seqsTo(10)...), b.awaitPushed(ctx, conversation, seqsTo(10)...))
		// A call that was given up is made again, which is refused.
		require.True(t, pushed == nil || c.troubles() > 0 && attempt < attempts, pushed)
	}
	for _, d := range []*device{a, b} {
		requireDense(t, d.messages(conversation), 10)
	}
	var group wire.Created
	create := wire.CreateGroup{Title: "All", Members: []string{b.user}, ClientMsgID: newID()}
	require.NoError(t, a.do(ctx, wire.ActionCreateGroup, create, &group))
	said := mustSend(t, b, wire.Send{ConversationID: group.ConversationID, Text: "hi"})
	require.NoError(t, a.awaitPushed(ctx, group.ConversationID, said.Seq))

	request := wire.Send{To: b.user, Text: "once", ClientMsgID: newID()}
	first := mustSend(t, a, request)
	require.Equal(t, int64(11), first.Seq)
	again := mustSend(t, a, request)
	first.Duplicate = true
	require.Equal(t, first, again)
	for _, writer := range []*device{a, b} { // one of the two has a stale head
		mustSend(t, writer, wire.Send{ConversationID: conversation, Text: "on"})
	}
	fresh := mustConnect(t, c.Stack, b.user, "laptop")
	require.NoError(t, patiently(ctx, func() error { // one request at a time can take its time
		_, err := fresh.catchUp(ctx, 0)
		return err
	}))
	requireDense(t, fresh.messages(conversation), 13)
	requireDense(t, fresh.messages(group.ConversationID), int(said.Seq))
}

var motoRuns = regexp.MustCompile(`Running on (http://127\.0\.0\.1:\d+)`)

// startMoto starts moto's server, which ends with the test. Without one the test
// is skipped, except in CI, where nobody would notice.
func startMoto(t *testing.T) (endpoint string) {
	t.Helper()
	program, err := exec.LookPath("moto_server")
	if err != nil {
		const help = "there is no moto_server on PATH: pip install 'moto[server]'"
		if os.Getenv("CI") != "" {
			t.Fatal(help)
		}
		t.Skip(help)
	}
	cmd := exec.Command(program, "-H", "127.0.0.1", "-p", "0")
	stderr, in := io.Pipe()
	cmd.Stderr = in
	moto, err := launcher.Reaper.Start(cmd)
	require.NoError(t, err)
	found := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if m := motoRuns.FindStringSubmatch(lines.Text()); m != nil {
				found <- m[1]
			}
		}
	}()
	t.Cleanup(func() {
		moto.Stop(20 * time.Second)
		_ = in.Close()
		<-read
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case endpoint = <-found:
		return endpoint
	case <-moto.Done():
		require.FailNow(t, "moto ended before it served")
	case <-ctx.Done():
		require.FailNow(t, "moto does not serve")
	}
	return ""
}

// serially starts a proxy that has one request under way at a time.
func serially(t *testing.T, endpoint string) string {
	t.Helper()
	var one sync.Mutex
	return startProxy(t, endpoint, func(p *proxy.Proxy, r proxy.Request) proxy.Answer {
		one.Lock()
		defer one.Unlock()
		return p.Forward(r)
	}).URL()
}
