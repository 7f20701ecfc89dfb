package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
	raw "github.com/inorder-im/inorder/integration/device"
	"github.com/inorder-im/inorder/integration/proxy"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// hider keeps committed messages from the first answers to Query that have them,
// as DynamoDB may while it applies a transaction, and lets every third
// TransactGetItems run into a conflict, as DynamoDB does at that time.
type hider struct {
	mu        sync.Mutex
	seen      map[string]int // by conversation and seq: answers it was kept from
	hidden    int
	gets      int
	conflicts int
}

// hideFrom is how many answers lack a message.
const hideFrom = 3

func (h *hider) meddle(operation string, request []byte, forward func() proxy.Answer) proxy.Answer {
	switch operation {
	case "Query":
		return h.query(forward())
	case "TransactGetItems":
		if h.conflict() {
			return conflict(strings.Count(string(request), `"Get":`))
		}
	}
	return forward()
}

func (h *hider) conflict() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.gets++
	if h.gets%3 != 0 {
		return false
	}
	h.conflicts++
	return true
}

// query takes the messages that are to be hidden out of an answer. Every second
// message is never hidden, so that there are answers with a hole in the middle.
func (h *hider) query(answer proxy.Answer) proxy.Answer {
	var fields map[string]json.RawMessage
	var items []json.RawMessage
	if json.Unmarshal(answer.Body, &fields) != nil || json.Unmarshal(fields["Items"], &items) != nil {
		return answer
	}
	kept := []json.RawMessage{}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, raw := range items {
		var message struct {
			ConversationID struct{ S string } `json:"conversationId"`
			Seq            struct{ N string } `json:"seq"`
		}
		_ = json.Unmarshal(raw, &message) // what has no seq is no message
		seq, err := strconv.Atoi(message.Seq.N)
		key := message.ConversationID.S + " " + message.Seq.N
		if err == nil && seq%2 == 0 && h.seen[key] < hideFrom {
			h.seen[key]++
			h.hidden++
			continue
		}
		kept = append(kept, raw)
	}
	fields["Items"], _ = json.Marshal(kept)
	fields["Count"] = []byte(strconv.Itoa(len(kept)))
	answer.Body, _ = json.Marshal(fields)
	return answer
}

func TestG6_SyncPassesNothingAndWaitsForNothing(t *testing.T) {
	t.Parallel()
	t.Run("what Query does not show yet", syncNeverPassesAMessageThatQueryDoesNotShowYet)
	t.Run("what an operator deleted", syncNamesWhatAnOperatorDeletedAndGoesOn)
}

func syncNeverPassesAMessageThatQueryDoesNotShowYet(t *testing.T) {
	t.Parallel()
	const n = 60
	db := startDatabase(t)
	h := &hider{seen: map[string]int{}}
	c := startCloud(t, "-dynamodb-endpoint", db.endpoint)
	db.set(h.meddle)
	alice, bob := newUser("alice"), newUser("bob")
	conversation := chat.SingleID(alice, bob)
	phone := mustConnect(t, c.Stack, alice, "phone")
	mustSend(t, phone, wire.Send{To: bob, Text: "the first"})

	group, ctx := errgroup.WithContext(t.Context())
	group.Go(func() error {
		for i := range n - 1 {
			if _, err := phone.send(ctx, wire.Send{To: bob, Text: text(0, i)}); err != nil {
				return err
			}
		}
		return nil
	})
	readers := []*device{mustConnect(t, c.Stack, bob, "phone"), mustConnect(t, c.Stack, bob, "laptop")}
	for _, d := range readers {
		group.Go(func() error {
			for {
				// syncPage checks that no page passes over a seq.
				page, err := d.syncPage(ctx, conversation, 0)
				if err != nil || page.NextSeq == n {
					return err
				}
			}
		})
	}
	require.NoError(t, group.Wait())
	for _, d := range readers {
		requireDense(t, d.messages(conversation), n)
		require.Empty(t, d.skipped(conversation), "nothing was deleted")
		// The fan-out has the same to cope with.
		require.NoError(t, d.awaitPushed(t.Context(), conversation, n))
	}
	require.Greater(t, h.hidden, n/2)
	require.Positive(t, h.conflicts)
}

func syncNamesWhatAnOperatorDeletedAndGoesOn(t *testing.T) {
	t.Parallel()
	c := startCloud(t)
	db := dynamotest.Client(t, c.DynamoDB)
	for name, deleted := range map[string][]int64{
		"the first":    {1, 2},
		"in between":   {3, 5},
		"the last":     {5, 6},
		"all":          {1, 2, 3, 4, 5, 6},
		"all but one":  {1, 2, 3, 5, 6},
		"nothing gone": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			alice := newUser("alice")
			conversation := chat.SingleID(alice, alice)
			writer := mustConnect(t, c.Stack, alice, "writer")
			exchangeMessages(t, writer, writer, 3)
			for _, seq := range deleted {
				change(t, db, "Messages", map[string]any{"conversationId": conversation, "seq": seq}, "", nil)
			}
			for _, limit := range []int{1, 2, 100} {
				d := mustConnect(t, c.Stack, alice, "limit-"+strconv.Itoa(limit))
				found, pages := 0, 0
				for more := true; more; pages++ {
					page, err := d.syncPage(t.Context(), conversation, limit)
					require.NoError(t, err)
					require.Less(t, pages, 7, "every page has to move on")
					found, more = found+len(page.Messages), page.HasMore
				}
				require.Equal(t, deleted, d.skipped(conversation))
				require.Equal(t, 6-len(deleted), found)
			}
			sent := mustSend(t, writer, wire.Send{To: alice, Text: "life goes on"})
			require.Equal(t, int64(7), sent.Seq)
			require.NoError(t, writer.sync(t.Context(), conversation))
			require.Equal(t, deleted, writer.skipped(conversation))
		})
	}
}

// One cloud for all that may go wrong beside each other. What a flood does is in
// [TestAttack_OneAccountAtItsWorstHarmsNobody].
func TestG10_OneDoesNotStopTheOthers(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	c := startCloud(t, "-data", data)
	db := dynamotest.Client(t, c.DynamoDB)
	for name, test := range map[string]func(*testing.T, stack, *dynamodb.Client){
		"a connection that is gone": aPushToAGoneConnectionRemovesThatOne, "a connection that never reads": aConnectionThatNeverReads,
		"a record that makes no sense": aPoisonRecord, "a hot conversation": aHotConversation,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, c.Stack, db)
		})
	}
	t.Cleanup(func() { // when all of them have ended, and before the cloud does
		letters, err := filepath.Glob(filepath.Join(data, "dead-letters", "*.jsonl"))
		require.NoError(t, err)
		for _, file := range letters {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Empty(t, content, "nothing is given up: %s", file)
		}
	})
}

// Sixteen devices send into one conversation, as fast as it takes that. Two who have
// nothing to do with it are refused nothing.
func aHotConversation(t *testing.T, s stack, _ *dynamodb.Client) {
	hot := newUser("hot")
	quiet := [2]*device{mustConnect(t, s, newUser("quiet"), "phone"), mustConnect(t, s, newUser("other"), "phone")}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	heat, ctx := errgroup.WithContext(ctx)
	var sent atomic.Int64
	for i := range maxDevices {
		d := mustConnect(t, s, hot, strconv.Itoa(i))
		heat.Go(func() error {
			for ctx.Err() == nil {
				if _, err := d.send(ctx, wire.Send{To: hot, Text: "!"}); err != nil && ctx.Err() == nil {
					return err
				}
				sent.Add(1)
			}
			return nil
		})
	}
	require.Eventually(t, func() bool { return sent.Load() > 2*maxDevices }, patience, time.Millisecond)
	converse(t, quiet, 10)
	stop()
	require.NoError(t, heat.Wait())
}

// A connection that is gone without a $disconnect, which is best effort, is found
// out by the push and forgotten, and no other with it.
func aPushToAGoneConnectionRemovesThatOne(t *testing.T, s stack, db *dynamodb.Client) {
	alice := newUser("alice")
	phone, laptop := mustConnect(t, s, alice, "phone"), mustConnect(t, s, alice, "laptop")
	gone := leaveBehind(t, db, alice, time.Hour, "AAAAAAAAAAAAAAA=|tablet", "no-such-id|desk")
	require.Len(t, connections(t, db, alice), 4)

	conversation := exchangeMessages(t, phone, phone, 1)
	for _, d := range []*device{phone, laptop} {
		require.NoError(t, d.awaitPushed(t.Context(), conversation, 1, 2))
	}
	for _, conn := range awaitConnections(t, db, alice, 2) {
		require.NotContains(t, gone, conn)
	}
	exchangeMessages(t, phone, phone, 1)
	for _, d := range []*device{phone, laptop} {
		require.NoError(t, d.awaitPushed(t.Context(), conversation, 3, 4))
	}
}

// A request to DynamoDB that is never answered, as over a connection that has died
// without a word, holds up its function for the three seconds after which it is made
// again, and not until the function's time is up.
func TestARequestThatHangsIsMadeAgain(t *testing.T) {
	t.Parallel()
	db := startDatabase(t)
	c := startCloud(t, "-dynamodb-endpoint", db.endpoint)
	alice, bob := newUser("alice"), newUser("bob")
	a, b := mustConnect(t, c.Stack, alice, "phone"), mustConnect(t, c.Stack, bob, "phone")
	conversation := exchangeMessages(t, a, b, 1)
	require.NoError(t, b.awaitPushed(t.Context(), conversation, 1, 2))

	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	hangOnce := func(operation string) {
		var hung atomic.Bool
		db.set(func(op string, _ []byte, forward func() proxy.Answer) proxy.Answer {
			if op == operation && hung.CompareAndSwap(false, true) {
				<-over
			}
			return forward()
		})
	}
	hangOnce("TransactWriteItems")
	sent := mustSend(t, a, wire.Send{To: bob, Text: "late"})
	require.False(t, sent.Duplicate, "the function asked again, not the device")
	require.NoError(t, b.awaitPushed(t.Context(), conversation, sent.Seq))

	hangOnce("Query") // of the fan-out
	sent = mustSend(t, a, wire.Send{To: bob, Text: "later"})
	require.NoError(t, b.awaitPushed(t.Context(), conversation, sent.Seq))

	hangOnce("Query")
	_, err := b.syncPage(t.Context(), conversation, 0)
	require.NoError(t, err)
}

// A device that is connected and never reads fills the buffers on its way until
// nothing more can be written to it, and is cut off then.
func aConnectionThatNeverReads(t *testing.T, s stack, db *dynamodb.Client) {
	const n = 350 // of 20 KB: more than any buffer takes
	alice, bob := newUser("alice"), newUser("bob")
	a, b := mustConnect(t, s, alice, "phone"), mustConnect(t, s, bob, "phone")
	connectDeaf(t, s, bob)
	require.Len(t, connections(t, db, bob), 2)
	data := []byte(`{"filler":"` + strings.Repeat("x", 20_000) + `"}`)
	var conversation chat.ConversationID
	for range n {
		sent := mustSend(t, a, wire.Send{To: bob, MessageType: chat.TypeCustom, Data: data})
		conversation = sent.ConversationID
	}
	for _, d := range []*device{a, b} {
		require.NoError(t, d.await(t.Context(), "all pushes", func() bool { return len(d.ledger(conversation).messages) == n }))
	}
	awaitConnections(t, db, bob, 1) // the one that does not read is cut off
}

// connectDeaf opens a connection that nobody reads and that has room for little.
func connectDeaf(t *testing.T, s stack, user string) {
	t.Helper()
	token, err := s.Token(t.Context(), user, nil)
	require.NoError(t, err)
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		if tcp, ok := conn.(*net.TCPConn); ok {
			err = tcp.SetReadBuffer(4096)
		}
		return conn, err
	}}
	conn, _, err := raw.Handshake(t.Context(), s.Socket, url.Values{"device": {"deaf"}}, &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: transport}, HTTPHeader: raw.Bearer(token),
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.CloseNow() })
}

// A head that makes no sense is passed over at once: its record would be no better
// the next time, and what comes behind it must not wait.
func aPoisonRecord(t *testing.T, s stack, db *dynamodb.Client) {
	a, b := mustConnect(t, s, newUser("alice"), "phone"), mustConnect(t, s, newUser("bob"), "phone")
	conversation := exchangeMessages(t, a, b, 1)
	require.NoError(t, b.awaitPushed(t.Context(), conversation, 1, 2))
	for i := range 40 { // in all lanes
		put(t, db, "Conversations", map[string]any{"conversationId": fmt.Sprint("single:poison", i), "lastSeq": "many"})
	}
	exchangeMessages(t, a, b, 1)
	require.NoError(t, b.awaitPushed(t.Context(), conversation, 3, 4))
}

// An uncontended send is one transaction and, once its process knows the
// conversation, reads nothing.
func TestCost_AnUncontendedSendIsOneTransaction(t *testing.T) {
	t.Parallel()
	const n = 20
	db := startDatabase(t)
	c := startCloud(t, "-dynamodb-endpoint", db.endpoint)
	alice, bob := newUser("alice"), newUser("bob")
	phone, other := mustConnect(t, c.Stack, alice, "phone"), mustConnect(t, c.Stack, bob, "phone")
	send := func() {
		sent := mustSend(t, phone, wire.Send{To: bob, Text: "hi"})
		require.NoError(t, other.awaitPushed(t.Context(), sent.ConversationID, sent.Seq))
	}
	// Then the fan-out, too, has seen the conversation, and no function but send
	// uses these operations.
	send()
	transactions, reads := db.count("TransactWriteItems"), db.count("GetItem")
	for range n {
		send()
	}
	require.Equal(t, n, db.count("TransactWriteItems")-transactions)
	require.Zero(t, db.count("GetItem")-reads)
}
