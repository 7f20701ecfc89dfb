package integration_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/client/web/browsertest"
	"github.com/inorder-im/inorder/shared/wire"
)

// unread is how many of a ledger's entries a user has not read: as the server knows
// it by the last runs of entries, and how many others really wrote.
type unread struct{ server, others int64 }

func unreadOf(user string, ledger []chat.Message, after, through int64) unread {
	var n unread
	runs, writer := 0, ""
	for _, m := range slices.Backward(ledger) {
		if m.Seq > through {
			continue
		}
		if m.SenderID != writer {
			runs, writer = runs+1, m.SenderID
		}
		if m.Seq <= after {
			break
		}
		if writer != user {
			n.others++
		}
		if writer != user || runs > chat.MaxRuns {
			n.server++
		}
	}
	return n
}

// browserDevice is the browser client in Node.
type browserDevice struct {
	t   *testing.T
	in  *json.Encoder
	out *bufio.Scanner
}

// startBrowserDevice starts one that ends with the test. Without Node the test is
// skipped, except in CI, where a skipped test would go unnoticed.
func startBrowserDevice(t *testing.T, s stack, user, name string) *browserDevice {
	t.Helper()
	in, out := startNode(t.Context(), t, "testdata/browserdevice.mjs", s.Socket, s.Tokens, user, name)
	return &browserDevice{t: t, in: in, out: out}
}

// startNode runs a module that takes commands and answers each, a line of JSON both
// ways, until its input ends or ctx does.
func startNode(ctx context.Context, t *testing.T, module string, args ...string) (in *json.Encoder, out *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(ctx, browsertest.Node(t), append([]string{"--experimental-websocket", "--no-warnings", module}, args...)...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = stdin.Close() // it ends by that
		_, _ = io.Copy(io.Discard, stdout)
		_ = cmd.Wait()
	})
	return json.NewEncoder(stdin), bufio.NewScanner(stdout)
}

func (b *browserDevice) do(command map[string]any) (unread int64) {
	b.t.Helper()
	require.NoError(b.t, b.in.Encode(command))
	require.True(b.t, b.out.Scan(), "the browser client ended: %v", b.out.Err())
	var answer struct {
		Unread int64 `json:"unread"`
	}
	require.NoError(b.t, json.Unmarshal(b.out.Bytes(), &answer), b.out.Text())
	return answer.Unread
}

// threeWays is a user with a device of each kind, and one to ask the server.
type threeWays struct {
	t       *testing.T
	raw     *listener
	program *client.Client
	browser *browserDevice
}

// agree checks what is unread of a conversation, once the devices have it through a
// seq and know how far the user has read it.
func (w *threeWays) agree(id chat.ConversationID, through, read, want int64) {
	w.t.Helper()
	line, ok := lineOf(w.t, w.raw.device, id)
	require.True(w.t, ok)
	require.Equal(w.t, [3]int64{through, read, want}, [3]int64{line.LastSeq, line.ReadSeq, line.Unread}, "the server")
	require.Eventually(w.t, func() bool {
		mine, _ := w.program.Conversation(id)
		return mine.MaxContiguousSeq >= through && mine.ReadSeq >= read
	}, patience, 20*time.Millisecond, "the Go client does not get as far")
	mine, _ := w.program.Conversation(id)
	require.Equal(w.t, want, mine.Unread, "the Go client: %+v", mine)
	require.Equal(w.t, want, w.browser.do(map[string]any{"command": "look", "id": id, "through": through, "read": read}), "the browser client")
}

// The server, the Go client and the browser client say the same is unread: what
// others wrote above the user's positions, and nothing of the user's own, on whatever
// device. They do so between two answers of changes, and from the first one on.
func TestUnreadIsTheSameOnTheServerAndInBothClients(t *testing.T) {
	t.Parallel()
	alice, bob := newUser("alice"), newUser("bob")
	b := listen(t, shared, bob, "phone")
	w := &threeWays{
		t: t, raw: listen(t, shared, alice, "raw"),
		program: dialClient(t, shared, alice), browser: startBrowserDevice(t, shared, alice, "web"),
	}
	bySelf := map[string]func(id chat.ConversationID, text string){
		"raw": func(id chat.ConversationID, text string) { say(t, w.raw.device, id, text) },
		"program": func(id chat.ConversationID, text string) {
			_, err := w.program.Send(t.Context(), client.Draft{ConversationID: id, Text: text})
			require.NoError(t, err)
		},
		"browser": func(id chat.ConversationID, text string) {
			w.browser.do(map[string]any{"command": "send", "id": id, "text": text})
		},
	}

	t.Log("a single conversation")
	first := mustSend(t, b.device, wire.Send{To: alice, Text: "1"})
	id := first.ConversationID
	say(t, b.device, id, "2")
	say(t, b.device, id, "3")
	w.agree(id, 3, 0, 3)
	bySelf["program"](id, "4")
	w.agree(id, 4, 0, 3)
	bySelf["browser"](id, "5")
	w.await(id, 5)
	w.agree(id, 5, 0, 3)
	ackRead(t, w.raw.device, id, 2)
	w.agree(id, 5, 2, 1)
	w.browser.do(map[string]any{"command": "markRead", "id": id})
	require.NoError(t, b.await(t.Context(), "alice has read", func() bool {
		return slices.ContainsFunc(b.pushesLocked(wire.TypeReceipt), func(p push) bool { return p.UserID == alice && p.ReadSeq == 5 })
	}))
	w.agree(id, 5, 5, 0)
	bySelf["raw"](id, "6")
	w.agree(id, 6, 5, 0)
	edit := wire.Edit{ConversationID: id, Seq: 1, MessageID: first.MessageID, Version: 1, Text: "one", ClientMsgID: newID()}
	must[wire.Edited](t, b.device, wire.ActionEdit, edit)
	w.agree(id, 7, 5, 1)
	own := w.raw.entries(id)[5]
	require.Equal(t, "6", own.Text)
	must[wire.Sent](t, w.raw.device, wire.ActionRecall, wire.Recall{ConversationID: id, Seq: own.Seq, MessageID: own.MessageID, ClientMsgID: newID()})
	w.agree(id, 8, 5, 1)
	line, _ := lineOf(t, b.device, id)
	require.Equal(t, int64(4), line.Unread, "to bob, who has read what he began with, and wrote 2, 3 and 7")

	t.Log("notes to self")
	notes := mustSend(t, w.raw.device, wire.Send{To: alice, Text: "1"})
	w.agree(notes.ConversationID, 1, 1, 0)
	for n, name := range []string{"program", "browser", "raw", "program"} {
		bySelf[name](notes.ConversationID, "note")
		w.await(notes.ConversationID, int64(n+2))
	}
	w.agree(notes.ConversationID, 5, 1, 0)

	t.Log("a group, which alice leaves and comes back to")
	group := createGroup(t, b.device, "", alice)
	bySelf["browser"](group, "2")
	w.await(group, 2)
	w.agree(group, 2, 0, 1)
	say(t, b.device, group, "3")
	removeMembers(t, b.device, group, alice)
	say(t, b.device, group, "5")
	w.agree(group, 4, 0, 3)
	addMembers(t, b.device, group, alice)
	bySelf["raw"](group, "7")
	say(t, b.device, group, "8")
	w.agree(group, 8, 0, 2)

	t.Log("a group whose messages are in nobody's sync head")
	large := createGroup(t, b.device, chat.VisibleAll, append(users("other", chat.InboxGroupMax), alice)...)
	say(t, b.device, large, "2")
	say(t, b.device, large, "3")
	w.agree(large, 3, 0, 3)
	bySelf["browser"](large, "4")
	w.await(large, 4)
	w.agree(large, 4, 0, 3)

	t.Log("devices that are new")
	w.program.Close()
	w.program, w.browser = dialClient(t, shared, alice), startBrowserDevice(t, shared, alice, "new")
	w.agree(id, 8, 5, 1)
	w.agree(notes.ConversationID, 5, 1, 0)
	w.agree(group, 8, 0, 2)
	w.agree(large, 4, 0, 3)
	say(t, b.device, id, "9")
	w.agree(id, 9, 5, 2)

	t.Log("what operators do")
	require.Contains(t, operate(t, shared, "erase-user", "-yes", bob).must(t), "blanked")
	w.agree(id, 10, 5, 2) // the event of it is news to nobody
	require.Contains(t, operate(t, shared, "raise", "-conversation", string(id), "-margin", "10000", "-yes").must(t), "raised")
	say(t, b.device, id, "10011")
	w.agree(id, 10011, 5, 3)
	bySelf["browser"](id, "10012")
	w.await(id, 10012)
	w.agree(id, 10012, 5, 3)

	t.Log("a group whose head was raised, which alice leaves and comes back to")
	require.Contains(t, operate(t, shared, "raise", "-conversation", string(group), "-margin", "1000", "-yes").must(t), "raised")
	say(t, b.device, group, "1010")
	w.agree(group, 1010, 0, 3) // 9 is the event of the erasure
	removeMembers(t, b.device, group, alice)
	w.agree(group, 1011, 0, 4)
	for range 120 { // more than a page
		say(t, b.device, group, "meanwhile")
	}
	addMembers(t, b.device, group, alice)
	w.agree(group, 1132, 0, 1)
	say(t, b.device, group, "1133")
	w.agree(group, 1133, 0, 2)

	w.program.Close()
	w.program, w.browser = dialClient(t, shared, alice), startBrowserDevice(t, shared, alice, "newer")
	w.agree(id, 10012, 5, 3)
	w.agree(group, 1133, 0, 2)
}

// await waits until the server has a conversation through a seq.
func (w *threeWays) await(id chat.ConversationID, through int64) {
	w.t.Helper()
	_, err := w.raw.awaitEntry(w.t.Context(), id, through)
	require.NoError(w.t, err)
}
