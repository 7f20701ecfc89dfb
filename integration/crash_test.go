package integration_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	raw "github.com/inorder-im/inorder/integration/device"
	"github.com/inorder-im/inorder/integration/proxy"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

func TestG4_ACrashLeavesAllOrNothing(t *testing.T) {
	t.Parallel()
	t.Run("of the process that sends", killingSendInMidFlight)
	t.Run("of the whole local cloud", killingTheWholeLocalCloud)
}

// The process that runs send is killed at the two moments that matter: when its
// transaction has not reached DynamoDB, and when it is committed but its answer
// is not there yet.
func killingSendInMidFlight(t *testing.T) {
	t.Parallel()
	needProc(t)
	db := startDatabase(t)
	c := startCloud(t, "-dynamodb-endpoint", db.endpoint)
	alice, bob := newUser("alice"), newUser("bob")
	conversation := chat.SingleID(alice, bob)
	phone := mustConnect(t, c.Stack, alice, "phone")
	kill := func() {
		killed, err := c.KillFunction("SendFunction")
		if err != nil || killed == 0 {
			t.Errorf("killed %d processes: %v", killed, err)
		}
	}

	sent := map[string]wire.Sent{}
	for name, killAt := range map[string]meddle{
		"before the commit": func(string, []byte, func() proxy.Answer) proxy.Answer {
			kill()
			return proxy.Answer{Status: http.StatusServiceUnavailable} // nobody hears it
		},
		"after the commit": func(_ string, _ []byte, forward func() proxy.Answer) proxy.Answer {
			answer := forward()
			kill()
			return answer
		},
	} {
		for round := range 5 {
			id := name + strconv.Itoa(round)
			f := &firstSend{clientMsgID: id, meddle: killAt, done: make(chan struct{})}
			db.set(f.serve)
			s := wire.Send{To: bob, ClientMsgID: id, MessageType: chat.TypeText, Text: id}
			err := phone.do(t.Context(), wire.ActionSend, s, nil)
			require.True(t, isPlatforms(err), "%s: %v", id, err)
			result, err := phone.send(t.Context(), s)
			require.NoError(t, err, id)
			if name == "after the commit" {
				require.Equal(t, f.killed(), result.MessageID, id)
				require.True(t, result.Duplicate, id)
			} else {
				require.NotEqual(t, f.killed(), result.MessageID, id)
			}
			again, err := phone.send(t.Context(), s)
			require.NoError(t, err, id)
			result.Duplicate = true
			require.Equal(t, result, again, id)
			sent[id] = result
		}
	}
	require.NoError(t, phone.sync(t.Context(), conversation))
	requireLedgerOf(t, phone.messages(conversation), sent)
}

// messageIDOfItem finds the message's id in a transaction, where it is in the ledger's
// entry and in the idempotency record.
var messageIDOfItem = regexp.MustCompile(`"messageId":\{"S":"([^"]+)"\}`)

// firstSend meddles with the first transaction that has a clientMsgId. Each request
// has a messageId of its own, and by it what else the same request asks for, as a
// sender does that loses patience while it is being killed, is held up until it is
// dead and never arrives.
type firstSend struct {
	clientMsgID string
	meddle      meddle

	mu        sync.Mutex
	messageID string
	done      chan struct{} // closed once the first one is answered
}

func (f *firstSend) serve(operation string, request []byte, forward func() proxy.Answer) proxy.Answer {
	if operation != "TransactWriteItems" || !bytes.Contains(request, []byte(`"`+f.clientMsgID+`"`)) {
		return forward()
	}
	messageID := messageIDOfItem.FindSubmatch(request)
	if messageID == nil {
		return failure("ValidationException")
	}
	f.mu.Lock()
	first := f.messageID == ""
	f.messageID = cmp.Or(f.messageID, string(messageID[1]))
	same := f.messageID == string(messageID[1])
	f.mu.Unlock()
	switch {
	case first:
		defer close(f.done)
		return f.meddle(operation, request, forward)
	case same:
		<-f.done
		return proxy.Answer{Status: http.StatusServiceUnavailable}
	default:
		return forward()
	}
}

// killed is the messageId of the request that was meddled with.
func (f *firstSend) killed() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.messageID
}

// requireLedgerOf checks that a ledger is these messages, each once and as it was
// acked, and nothing else. The keys are the clientMsgIds.
func requireLedgerOf(t *testing.T, messages []chat.Message, sent map[string]wire.Sent) {
	t.Helper()
	requireDense(t, messages, len(sent))
	for _, m := range messages {
		ack, ok := sent[m.ClientMsgID]
		require.True(t, ok, "nobody sent %s", m.ClientMsgID)
		require.Equal(t, ack.Seq, m.Seq)
		require.Equal(t, ack.MessageID, m.MessageID)
		require.Equal(t, ack.ServerTime, m.ServerTime)
	}
}

// Processes are killed again and again under several senders, each of whom sends
// a message until it is answered: no seq is given out without its message.
func TestG2_KillingSendUnderAStreamOfMessagesLeavesNoHole(t *testing.T) {
	t.Parallel()
	needProc(t)
	const senders, each, killEvery = 6, 25, 9
	db := startDatabase(t)
	c := startCloud(t, "-dynamodb-endpoint", db.endpoint)
	alice, bob := newUser("alice"), newUser("bob")
	conversation := chat.SingleID(alice, bob)
	var transactions, killed atomic.Int64
	var one sync.Mutex // murderer at a time
	kill := func() {
		one.Lock()
		defer one.Unlock()
		n, err := c.KillFunction("SendFunction")
		if err != nil {
			t.Error(err)
		}
		killed.Add(int64(n))
	}
	db.set(func(operation string, _ []byte, forward func() proxy.Answer) proxy.Answer {
		if operation != "TransactWriteItems" {
			return forward()
		}
		switch n := transactions.Add(1); {
		case n%killEvery != 0:
			return forward()
		case n%(2*killEvery) == 0:
			kill()
			return proxy.Answer{Status: http.StatusServiceUnavailable}
		default:
			answer := forward()
			kill()
			return answer
		}
	})

	var mu sync.Mutex
	sent := map[string]wire.Sent{}
	group, ctx := errgroup.WithContext(t.Context())
	for i := range senders {
		d := mustConnect(t, c.Stack, alice, strconv.Itoa(i))
		group.Go(func() error {
			for n := range each {
				id := text(i, n)
				result, err := d.send(ctx, wire.Send{To: bob, ClientMsgID: id, Text: id})
				if err != nil {
					return err
				}
				mu.Lock()
				sent[id] = result
				mu.Unlock()
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	db.set(nil)
	reader := mustConnect(t, c.Stack, bob, "phone")
	require.NoError(t, reader.sync(t.Context(), conversation))
	requireLedgerOf(t, reader.messages(conversation), sent)
	require.Greater(t, killed.Load(), int64(10))
}

// The whole local cloud is killed in the middle of a stream of messages and
// started again on the same data, three times.
func killingTheWholeLocalCloud(t *testing.T) {
	t.Parallel()
	needProc(t)
	const senders, acksPerLife = 4, 60
	data := t.TempDir()
	alice, bob := newUser("alice"), newUser("bob")
	conversation := chat.SingleID(alice, bob)
	sent := map[string]wire.Sent{}
	reader := newDevice(stack{}, bob, "phone")
	for life := range 3 {
		c := startCloud(t, "-data", data)
		reader.stack = c.Stack
		require.NoError(t, reader.reconnect(t.Context()))
		acked, unanswered := sendUntilDead(t, c, alice, bob, senders, life, acksPerLife)
		require.GreaterOrEqual(t, len(acked), acksPerLife)
		reader.close()

		c = startCloud(t, "-data", data)
		reader.stack = c.Stack
		require.NoError(t, reader.reconnect(t.Context()))
		require.NoError(t, reader.sync(t.Context(), conversation))
		found := map[string]wire.Sent{}
		for _, m := range reader.messages(conversation) {
			found[m.ClientMsgID] = wire.Sent{ConversationID: conversation, Seq: m.Seq, MessageID: m.MessageID, ServerTime: m.ServerTime}
		}
		for id, ack := range acked {
			ack.Duplicate = false
			require.Equal(t, ack, found[id], "acked, and there after the crash")
			sent[id] = ack
		}
		d := mustConnect(t, c.Stack, alice, "phone")
		for _, id := range unanswered {
			result := mustSend(t, d, wire.Send{To: bob, ClientMsgID: id, Text: id})
			before, committed := found[id]
			require.Equal(t, committed, result.Duplicate)
			result.Duplicate = false
			if committed {
				require.Equal(t, before, result)
			}
			sent[id] = result
		}
		require.NoError(t, reader.sync(t.Context(), conversation))
		requireLedgerOf(t, reader.messages(conversation), sent)
		require.NoError(t, reader.fault())
		reader.close()
		require.NoError(t, c.Stop())
	}
}

// sendUntilDead sends from several devices and kills the cloud after a number of
// acks. It returns what was acked, by clientMsgId, and what was sent without answer.
func sendUntilDead(t *testing.T, c *localCloud, alice, bob string, senders, life, acks int) (acked map[string]wire.Sent, unanswered []string) {
	t.Helper()
	acked = map[string]wire.Sent{}
	var mu sync.Mutex
	enough := make(chan struct{})
	group, ctx := errgroup.WithContext(t.Context())
	for i := range senders {
		d, err := connect(ctx, c.Stack, alice, strconv.Itoa(i))
		require.NoError(t, err)
		group.Go(func() error {
			for n := 0; ; n++ {
				id := "life " + strconv.Itoa(life) + " " + text(i, n)
				result, err := d.send(ctx, wire.Send{To: bob, ClientMsgID: id, Text: id})
				mu.Lock()
				if err != nil {
					unanswered = append(unanswered, id)
				} else {
					acked[id] = result
					if len(acked) == acks {
						close(enough)
					}
				}
				mu.Unlock()
				if errors.Is(err, raw.ErrClosed) {
					return nil
				}
				if err != nil {
					return err
				}
			}
		})
	}
	group.Go(func() error {
		select {
		case <-enough:
			return c.Kill()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	require.NoError(t, group.Wait())
	return acked, unanswered
}
