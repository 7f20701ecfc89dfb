package integration_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	raw "github.com/inorder-im/inorder/integration/device"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// maxDevices is how many devices of one user may be connected.
const maxDevices = 16

// Two users on 16 devices each are the most senders that a single conversation
// can have.
func TestG1_ConcurrentSendersFillOneLedgerInOrder(t *testing.T) {
	t.Parallel()
	const each = 50
	alice, bob := newUser("alice"), newUser("bob")
	conversation := chat.SingleID(alice, bob)
	var devices []*device
	for i := range maxDevices {
		name := strconv.Itoa(i)
		devices = append(devices, mustConnect(t, shared, alice, name), mustConnect(t, shared, bob, name))
	}
	acks := make([][]wire.Sent, len(devices))
	senders, ctx := errgroup.WithContext(t.Context())
	for i, d := range devices {
		to := map[string]string{alice: bob, bob: alice}[d.user]
		senders.Go(func() error {
			for n := range each {
				sent, err := d.send(ctx, wire.Send{To: to, Text: text(i, n)})
				if err != nil {
					return err
				}
				acks[i] = append(acks[i], sent)
			}
			return nil
		})
	}
	require.NoError(t, senders.Wait())
	require.NoError(t, syncAll(t.Context(), devices, conversation))

	want := devices[0].messages(conversation)
	requireDense(t, want, len(devices)*each)
	for _, d := range devices[1:] {
		require.Equal(t, want, d.messages(conversation), "device %s of %s", d.name, d.user)
	}
	for i, d := range devices {
		last := int64(0)
		for n, ack := range acks[i] {
			require.Greater(t, ack.Seq, last, "a message that was sent after the other was acked comes after it")
			last = ack.Seq
			m := want[ack.Seq-1]
			require.Equal(t, ack.MessageID, m.MessageID)
			require.Equal(t, text(i, n), m.Text)
			require.Equal(t, [2]string{d.user, d.name}, [2]string{m.SenderID, m.SenderDeviceID})
		}
	}
}

func text(sender, n int) string { return fmt.Sprintf("message %d of sender %d", n, sender) }

// requireDense checks that a ledger is the seqs 1 to n, each once, of n messages.
func requireDense(tb testing.TB, messages []chat.Message, n int) {
	tb.Helper()
	require.Len(tb, messages, n)
	ids := map[string]bool{}
	for i, m := range messages {
		require.Equal(tb, int64(i+1), m.Seq)
		require.False(tb, ids[m.SenderID+m.ClientMsgID], "clientMsgId %s of %s is there twice", m.ClientMsgID, m.SenderID)
		ids[m.SenderID+m.ClientMsgID] = true
	}
}

func syncAll(ctx context.Context, devices []*device, conversation chat.ConversationID) error {
	syncs, ctx := errgroup.WithContext(ctx)
	for _, d := range devices {
		syncs.Go(func() error { return d.sync(ctx, conversation) })
	}
	return syncs.Wait()
}

func TestG3_OneMessageOfOneClientMsgID(t *testing.T) {
	t.Parallel()
	t.Run("asked for at the same time", oneMessageOfTwentyConcurrentRequests)
	t.Run("for one content", anIDIsForOneContent)
}

// A clientMsgId is the sender's, and a user has at most 16 connections: so the 20
// requests come over 16 connections, four of which carry two at a time.
func oneMessageOfTwentyConcurrentRequests(t *testing.T) {
	t.Parallel()
	const requests = 20
	alice, bob := newUser("alice"), newUser("bob")
	var devices []*device
	for i := range maxDevices {
		devices = append(devices, mustConnect(t, shared, alice, strconv.Itoa(i)))
	}
	var answers [requests]wire.Sent
	var senders errgroup.Group
	for i := range requests {
		senders.Go(func() (err error) {
			answers[i], err = devices[i%maxDevices].send(t.Context(), wire.Send{To: bob, ClientMsgID: "the one", Text: "once"})
			return err
		})
	}
	require.NoError(t, senders.Wait())
	firsts := 0
	for _, a := range answers {
		if !a.Duplicate {
			firsts++
		}
		a.Duplicate = false
		require.Equal(t, wire.Sent{
			ConversationID: chat.SingleID(alice, bob), Seq: 1, MessageID: answers[0].MessageID, ServerTime: answers[0].ServerTime,
		}, a)
	}
	require.Equal(t, 1, firsts, "one answer is of the request that made the message, the others are duplicates")
	d := devices[0]
	require.NoError(t, d.sync(t.Context(), answers[0].ConversationID))
	require.Len(t, d.messages(answers[0].ConversationID), 1)
}

func anIDIsForOneContent(t *testing.T) {
	t.Parallel()
	alice, bob, carol := newUser("alice"), newUser("bob"), newUser("carol")
	d := mustConnect(t, shared, alice, "phone")
	first := mustSend(t, d, wire.Send{To: bob, ClientMsgID: "1", Text: "hello"})

	for name, other := range map[string]wire.Send{
		"other text":         {To: bob, ClientMsgID: "1", Text: "hallo"},
		"other type":         {To: bob, ClientMsgID: "1", Text: "hello", MessageType: chat.TypeCustom, Data: []byte(`{}`)},
		"other conversation": {To: carol, ClientMsgID: "1", Text: "hello"},
	} {
		_, err := d.send(t.Context(), other)
		refused := &refusal{}
		require.ErrorAs(t, err, &refused, name)
		require.Equal(t, chat.CodeIdempotencyConflict, refused.Frame.Code, name)
		require.False(t, refused.Frame.Retryable, name)
		require.Equal(t, first.MessageID, refused.Frame.Details["messageId"], name)
		require.Equal(t, float64(first.Seq), refused.Frame.Details["seq"], name)
	}

	again, err := d.send(t.Context(), wire.Send{To: bob, ClientMsgID: "1", Text: "hello", ClientTime: 1})
	require.NoError(t, err, "the same content is a retry, whatever its clientTime")
	first.Duplicate = true
	require.Equal(t, first, again)

	b := mustConnect(t, shared, bob, "phone")
	theirs, err := b.send(t.Context(), wire.Send{To: alice, ClientMsgID: "1", Text: "mine"})
	require.NoError(t, err, "another sender's ids are others")
	require.Equal(t, int64(2), theirs.Seq)
	require.False(t, theirs.Duplicate)
}

func TestG5_AllDevicesEndWithTheSame(t *testing.T) {
	t.Parallel()
	t.Run("by push", everyDeviceIsPushedTheSame)
	t.Run("by sync, after a time offline", aDeviceThatWasOfflineConverges)
}

func everyDeviceIsPushedTheSame(t *testing.T) {
	t.Parallel()
	alice, bob := newUser("alice"), newUser("bob")
	devices := []*device{
		mustConnect(t, shared, alice, "phone"), mustConnect(t, shared, alice, "laptop"),
		mustConnect(t, shared, bob, "phone"), mustConnect(t, shared, bob, "laptop"),
	}
	conversation := exchangeMessages(t, devices[0], devices[2], 10)
	for _, d := range devices {
		require.NoError(t, d.awaitPushed(t.Context(), conversation, seqsTo(20)...))
	}
	want := devices[0].messages(conversation)
	requireDense(t, want, 20)
	for _, d := range devices {
		require.Equal(t, want, d.messages(conversation), "by push alone")
		require.NoError(t, d.sync(t.Context(), conversation))
		require.Equal(t, want, d.messages(conversation), "the same by sync")
	}
}

// exchangeMessages lets each of two users send n messages to the other.
func exchangeMessages(tb testing.TB, a, b *device, n int) (conversation chat.ConversationID) {
	tb.Helper()
	for i := range n {
		for _, way := range [][2]*device{{a, b}, {b, a}} {
			sent := mustSend(tb, way[0], wire.Send{To: way[1].user, Text: text(0, i)})
			conversation = sent.ConversationID
		}
	}
	return conversation
}

// A device that comes back hears of what it missed by the changes it asks for or,
// where the fan-out was later than that, by a push. Either leads to a sync. Once
// the fan-out has pushed to the others, the changes have all of it.
func aDeviceThatWasOfflineConverges(t *testing.T) {
	t.Parallel()
	for _, pushedBefore := range []bool{true, false} {
		t.Run(fmt.Sprintf("pushed before it is back %t", pushedBefore), func(t *testing.T) {
			t.Parallel()
			a, c := mustConnect(t, shared, newUser("alice"), "phone"), mustConnect(t, shared, newUser("carol"), "phone")
			b := mustConnect(t, shared, newUser("bob"), "phone")
			tablet := mustConnect(t, shared, b.user, "tablet")
			exchangeMessages(t, a, b, 2)
			cursor, err := b.catchUp(t.Context(), 0)
			require.NoError(t, err)
			for range 3 {
				b.close()
				sent := map[*device]wire.Sent{a: {}, c: {}} // the last of each
				for i := range 10 {
					for from := range sent {
						sent[from] = mustSend(t, from, wire.Send{To: b.user, Text: text(1, i)})
					}
				}
				if pushedBefore {
					for from, last := range sent {
						require.NoError(t, from.awaitPushed(t.Context(), last.ConversationID, last.Seq))
					}
				}
				ackRead(t, tablet, sent[a].ConversationID, sent[a].Seq)
				require.NoError(t, b.reconnect(t.Context()))
				cursor, err = b.catchUp(t.Context(), cursor)
				require.NoError(t, err)
				line, _ := lineOf(t, b, sent[a].ConversationID)
				require.Equal(t, [2]int64{sent[a].Seq, 0}, [2]int64{line.ReadSeq, line.Unread}, "read on the other device")
				for from, last := range sent {
					if !pushedBefore {
						require.NoError(t, b.awaitNews(t.Context(), last))
						require.NoError(t, b.sync(t.Context(), last.ConversationID))
					}
					require.NoError(t, from.sync(t.Context(), last.ConversationID))
					require.Equal(t, from.messages(last.ConversationID), b.messages(last.ConversationID))
				}
			}
		})
	}
}

// A whole history comes page by page, however large its messages are.
func TestSync_PagesByCountAndByBytes(t *testing.T) {
	t.Parallel()
	alice := newUser("alice")
	d := mustConnect(t, shared, alice, "phone")
	conversation := chat.SingleID(alice, alice)
	const n = 12
	for i := range n {
		// At 4,000 characters of 3 bytes, two messages fill a frame.
		mustSend(t, d, wire.Send{To: alice, Text: strings.Repeat("界", chat.MaxTextRunes-i)})
	}
	for _, limit := range []int{1, 5, 500} {
		fresh := mustConnect(t, shared, alice, "limit-"+strconv.Itoa(limit))
		for pages := 1; ; pages++ {
			page, err := fresh.syncPage(t.Context(), conversation, limit)
			require.NoError(t, err)
			require.NotEmpty(t, page.Messages)
			require.LessOrEqual(t, len(page.Messages), limit)
			if !page.HasMore {
				require.GreaterOrEqual(t, pages, max(n/limit, n/2))
				break
			}
		}
		requireDense(t, fresh.messages(conversation), n)
	}
	var got []chat.Message
	for before, more := (*int64)(nil), true; more; {
		var page wire.HistoryPage
		require.NoError(t, d.do(t.Context(), wire.ActionHistory, wire.History{ConversationID: conversation, BeforeSeq: before}, &page))
		require.NotEmpty(t, page.Messages)
		got = append(page.Messages, got...)
		before, more = &page.NextBeforeSeq, page.HasMore
	}
	require.NoError(t, d.sync(t.Context(), conversation))
	require.Equal(t, d.messages(conversation), got)
}

func TestANewerConnectionReplacesTheOlder(t *testing.T) {
	t.Parallel()
	alice := newUser("alice")
	older := mustConnect(t, shared, alice, "phone")
	other := mustConnect(t, shared, alice, "laptop")
	newer := mustConnect(t, shared, alice, "phone")
	requireDismissed(t, older, wire.GoodbyeReplaced)
	for _, d := range []*device{newer, other} {
		require.NoError(t, d.do(t.Context(), wire.ActionPing, nil, nil))
	}
	conversation := exchangeMessages(t, newer, newer, 1)
	require.NoError(t, newer.awaitPushed(t.Context(), conversation, 1, 2))
	require.NoError(t, other.awaitPushed(t.Context(), conversation, 1, 2))
}

func TestTheOldestOfTooManyDevicesGoes(t *testing.T) {
	t.Parallel()
	alice := newUser("alice")
	var devices []*device
	for i := range maxDevices + 1 {
		devices = append(devices, mustConnect(t, shared, alice, strconv.Itoa(i)))
	}
	requireDismissed(t, devices[0], wire.GoodbyeDevices)
	for _, d := range devices[1:] {
		require.NoError(t, d.do(t.Context(), wire.ActionPing, nil, nil))
	}
}

// requireDismissed waits for the end of a device's socket, and checks that it was told
// why. Several functions that find the reason at the same time all tell it.
func requireDismissed(t *testing.T, d *device, reason string) {
	t.Helper()
	require.NoError(t, d.await(t.Context(), "the end of its socket", func() bool { return d.conn.Err() != nil }))
	d.mu.Lock()
	defer d.mu.Unlock()
	require.Equal(t, []string{reason}, slices.Compact(slices.Clone(d.goodbyes)))
	require.Equal(t, websocket.StatusNormalClosure, websocket.CloseStatus(d.conn.Err()))
}

// The conversation of a user with oneself is a notebook.
func TestNotes(t *testing.T) {
	t.Parallel()
	alice := newUser("alice")
	d := mustConnect(t, shared, alice, "phone")
	sent := mustSend(t, d, wire.Send{To: alice, Text: "milk"})
	require.Equal(t, chat.SingleID(alice, alice), sent.ConversationID)
	require.NoError(t, d.awaitPushed(t.Context(), sent.ConversationID, 1))
	var list wire.ConversationsPage
	require.NoError(t, d.do(t.Context(), wire.ActionConversations, wire.Conversations{}, &list))
	require.Len(t, list.Conversations, 1)
	require.Equal(t, alice, list.Conversations[0].Peer)
	require.Equal(t, 1, list.Conversations[0].MemberCount)
}

// A browser cannot set headers: its token is a subprotocol.
func TestABrowserConnects(t *testing.T) {
	t.Parallel()
	token, err := shared.Token(t.Context(), newUser("alice"), nil)
	require.NoError(t, err)
	conn, _, err := raw.Handshake(t.Context(), shared.Socket, url.Values{"device": {"tab"}}, &websocket.DialOptions{
		Subprotocols: []string{wire.Subprotocol, wire.BearerPrefix + token},
	})
	require.NoError(t, err)
	defer func() { _ = conn.CloseNow() }()
	require.Equal(t, wire.Subprotocol, conn.Subprotocol())
	frame, err := raw.Frame(wire.ActionPing, rand.Text(), nil)
	require.NoError(t, err)
	require.NoError(t, conn.Write(t.Context(), websocket.MessageText, frame))
	_, _, err = conn.Read(t.Context())
	require.NoError(t, err)
}
