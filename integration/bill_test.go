package integration_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/costs/bill"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/wire"
)

// What the shipped clients do costs, as infra/COSTS.md has it:
//
//	go test ./integration -run TestCost_OfTheShippedClients -units infra/costs/bill/units.json
var unitsFile = flag.String("units", "", "`file`, from the repository's top, to write what the shipped clients take to")

// turnstile is a proxy in front of the socket that counts frames, and the bytes of
// those that go out to clients.
type turnstile struct {
	url string

	mu      sync.Mutex
	in, out float64
	bytes   float64
	opened  float64
}

func startTurnstile(t *testing.T, target string) *turnstile {
	t.Helper()
	ts := &turnstile{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { ts.pass(w, r, target) }))
	t.Cleanup(server.Close)
	ts.url = strings.Replace(server.URL, "http", "ws", 1)
	return ts
}

func (ts *turnstile) pass(w http.ResponseWriter, r *http.Request, target string) {
	asked := &websocket.DialOptions{HTTPHeader: http.Header{}}
	if token := r.Header.Get("Authorization"); token != "" {
		asked.HTTPHeader.Set("Authorization", token)
	}
	if protocols := r.Header.Get("Sec-Websocket-Protocol"); protocols != "" {
		asked.Subprotocols = strings.Split(strings.ReplaceAll(protocols, " ", ""), ",")
	}
	stack, resp, err := websocket.Dial(r.Context(), target+"?"+r.URL.RawQuery, asked)
	if err != nil {
		status := http.StatusBadGateway
		if resp != nil {
			_ = resp.Body.Close()
			status = resp.StatusCode
		}
		http.Error(w, err.Error(), status)
		return
	}
	defer func() { _ = stack.CloseNow() }()
	o := &websocket.AcceptOptions{InsecureSkipVerify: true}
	if p := resp.Header.Get("Sec-Websocket-Protocol"); p != "" {
		o.Subprotocols = []string{p}
	}
	device, err := websocket.Accept(w, r, o)
	if err != nil {
		return
	}
	defer func() { _ = device.CloseNow() }()
	ts.count(func() { ts.opened++ })
	stack.SetReadLimit(1 << 20)
	ctx, cancel := context.WithCancel(r.Context())
	var both sync.WaitGroup
	relay := func(from, to *websocket.Conn, note func(n int)) {
		defer cancel()
		for {
			kind, data, err := from.Read(ctx)
			if err != nil {
				_ = to.Close(max(websocket.CloseStatus(err), websocket.StatusNormalClosure), "")
				return
			}
			note(len(data))
			if to.Write(ctx, kind, data) != nil {
				return
			}
		}
	}
	both.Go(func() {
		relay(stack, device, func(n int) { ts.count(func() { ts.out, ts.bytes = ts.out+1, ts.bytes+float64(n) }) })
	})
	both.Go(func() { relay(device, stack, func(int) { ts.count(func() { ts.in++ }) }) })
	both.Wait()
}

func (ts *turnstile) count(f func()) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	f()
}

// meters measure all that is paid for, of one stack.
type meters struct {
	t        *testing.T
	db       *meter
	cloud    *localCloud
	client   *dynamodb.Client // past the meter
	sockets  *turnstile
	measured map[string]bill.Use
}

func startMeters(t *testing.T) *meters {
	t.Helper()
	db := startMeter(t)
	cloud := startCloud(t, "-dynamodb-endpoint", db.url)
	return &meters{t: t, db: db, client: db.client, cloud: cloud, sockets: startTurnstile(t, cloud.Socket), measured: map[string]bill.Use{}}
}

// through is the stack as devices reach it through the turnstile.
func (m *meters) through() stack {
	s := m.cloud.Stack
	s.Socket = m.sockets.url
	return s
}

// eventBytes is what CloudWatch adds to each log event.
const eventBytes = 26

// sum is what was used so far. A frame calls one function, a handshake two, and each
// batch of the fan-out writes a line. Lambda's own lines are off (PlatformLogLevel).
func (m *meters) sum() bill.Use {
	u := m.db.used(m.t)
	logged, batches := 0.0, 0.0
	for line := range strings.Lines(m.cloud.stderr.String()) {
		if _, text, ok := strings.Cut(line, " | {"); ok {
			logged += float64(len(text) + eventBytes) // the brace and the newline make up for each other
			if strings.Contains(text, `"msg":"batch"`) {
				batches++
			}
		}
	}
	m.sockets.mu.Lock()
	defer m.sockets.mu.Unlock()
	requests := m.sockets.in + 2*m.sockets.opened
	return bill.Use{
		Frames: m.sockets.in + m.sockets.out, Calls: requests + batches,
		GBSeconds:   requests*bill.RequestGBSeconds + batches*bill.FanoutGBSeconds,
		StoredBytes: m.stored(),
		WRU:         u.wru, RRU: u.rru, LogBytes: logged, OutBytes: m.sockets.bytes,
	}
}

// rest waits until nothing more is used, and returns the sum.
func (m *meters) rest() bill.Use {
	m.t.Helper()
	last, same := m.sum(), 0
	require.Eventually(m.t, func() bool {
		now := m.sum()
		if now == last {
			same++
		} else {
			last, same = now, 0
		}
		return same == 15
	}, patience, 20*time.Millisecond)
	return last
}

// measure does something a few times without trouble, and notes what one time takes.
func (m *meters) measure(what string, times int, do func()) {
	m.t.Helper()
	for range attempts {
		troubles, before := m.cloud.troubles(), m.rest()
		for range times {
			do()
		}
		m.measured[what] = m.rest().Plus(before.Times(-1)).Times(1 / float64(times))
		if m.cloud.troubles() == troubles {
			return
		}
	}
	require.FailNow(m.t, "each attempt had trouble", what)
}

// crowd is the browser client of several users, in one Node.
type crowd struct {
	t     *testing.T
	users []string
	in    *json.Encoder
	out   *bufio.Scanner
	end   *time.Timer // of a command that does not end
}

func startCrowd(t *testing.T, s stack, users ...string) *crowd {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	in, out := startNode(ctx, t, "testdata/crowd.mjs", append([]string{s.Socket, s.Tokens}, users...)...)
	return &crowd{t: t, users: users, in: in, out: out, end: time.AfterFunc(2*patience, cancel)}
}

func (c *crowd) do(command string, fields map[string]any, answer any) {
	c.t.Helper()
	if fields == nil {
		fields = map[string]any{}
	}
	fields["command"] = command
	c.end.Reset(2 * patience)
	require.NoError(c.t, c.in.Encode(fields))
	require.True(c.t, c.out.Scan(), "the browser clients ended: %v", c.out.Err())
	c.end.Stop()
	if answer != nil {
		require.NoError(c.t, json.Unmarshal(c.out.Bytes(), answer), c.out.Text())
	}
}

// talk measures a message in a conversation that all look at: what it takes until each
// has it, has said so, and the sender knows, if there are receipts.
func (m *meters) talk(what string, c *crowd, id chat.ConversationID, seq int64) {
	m.t.Helper()
	say := func() {
		troubles := m.cloud.troubles()
		c.do("send", map[string]any{"by": 0, "id": id, "text": costText}, nil)
		seq++
		var settled struct{ Lacks bool }
		c.do("settled", map[string]any{"by": 0, "id": id, "seq": seq, "told": true, "receipts": len(c.users) <= chat.InboxGroupMax}, &settled)
		if settled.Lacks { // the next telling says it too
			require.Greater(m.t, m.cloud.troubles(), troubles, "nothing went wrong, and the sender does not know that all have it")
		}
	}
	for range 3 { // until the functions know the conversation
		say()
	}
	m.measure(what, 5, say)
}

// month is what a device takes that does nothing: as often as the browser client, whose
// timers may be late, asks what changed, and connects anew.
func (m *meters) month(c *crowd) bill.Use {
	var timing struct{ HeartbeatMs, LifeMs, LifeJitterMs float64 }
	c.do("timing", nil, &timing)
	life := timing.LifeMs - timing.LifeJitterMs/2
	lives := bill.MonthMinutes * 60_000 / life
	heartbeats := math.Floor(life / timing.HeartbeatMs)
	return m.measured[bill.Reconnect].Plus(m.measured[bill.Heartbeat].Times(heartbeats)).Times(lives).
		Plus(bill.Use{ConnectionMinutes: bill.MonthMinutes})
}

// stored is how much the tables of what was written hold, with the 100 bytes that
// DynamoDB bills for each item (Developer Guide, "Item sizes and formats").
func (m *meters) stored() float64 {
	m.t.Helper()
	sum := 0.0
	for _, table := range []string{"Messages", "Idempotency"} {
		pages := dynamodb.NewScanPaginator(m.client, &dynamodb.ScanInput{TableName: aws.String(tableName(m.t, m.client, table))})
		for pages.HasMorePages() {
			page, err := pages.NextPage(m.t.Context())
			require.NoError(m.t, err)
			for _, item := range page.Items {
				sum += 100
				for name, value := range item {
					sum += float64(len(name)) + sizeOf(value)
				}
			}
		}
	}
	return sum
}

func sizeOf(value types.AttributeValue) float64 {
	switch v := value.(type) {
	case *types.AttributeValueMemberS:
		return float64(len(v.Value))
	case *types.AttributeValueMemberN:
		return math.Ceil(float64(len(v.Value))/2) + 1
	}
	return 10
}

// What one message, and a device that is only there, take with the clients that are
// shipped: nothing more than what is documented, nor less.
func TestCost_OfTheShippedClients(t *testing.T) {
	t.Parallel()
	m := startMeters(t)
	s := m.through()

	pair := users("user", 2)
	two := startCrowd(t, s, pair...)
	id := chat.SingleID(pair[0], pair[1])
	two.do("send", map[string]any{"by": 0, "to": pair[1], "text": costText}, nil)
	two.do("settled", map[string]any{"by": 0, "id": id, "seq": 1}, nil)
	two.do("look", map[string]any{"id": id}, nil)
	two.do("send", map[string]any{"by": 1, "id": id, "text": costText}, nil)
	two.do("settled", map[string]any{"by": 1, "id": id, "seq": 2, "told": true, "receipts": true}, nil)
	m.talk(bill.Message2, two, id, 2)

	for _, g := range []struct {
		what string
		size int
	}{{bill.Message20, 20}, {bill.Message21, 21}, {bill.Message40, 40}} {
		group := users("user", g.size)
		many := startCrowd(t, s, group...)
		creator := mustConnect(t, m.cloud.Stack, group[0], "other")
		id = createGroup(t, creator, "", group[1:]...)
		creator.close()
		many.do("settled", map[string]any{"by": 0, "id": id, "seq": 1}, nil)
		many.do("look", map[string]any{"id": id}, nil)
		m.talk(g.what, many, id, 1)
	}

	idle, store := newUser("idle"), client.NewMemory()
	dial := func() *client.Client {
		cfg := clientOf(s, idle, "phone")
		cfg.Store = store
		c, err := client.Dial(t.Context(), cfg)
		require.NoError(t, err)
		require.NoError(t, c.Online(t.Context()))
		return c
	}
	other := mustConnect(t, m.cloud.Stack, newUser("other"), "phone")
	for range 5 { // what an idle user has
		mustSend(t, other, wire.Send{To: idle, Text: costText})
	}
	m.rest() // what is raised later is a change, which the first heartbeat would hear of
	c := dial()
	require.NoError(t, c.Refresh(t.Context()))
	m.measure(bill.Heartbeat, 4, func() { require.NoError(t, c.Refresh(t.Context())) })
	m.measure(bill.Reconnect, 4, func() {
		c.Close()
		c = dial()
	})
	c.Close()
	reconnect := m.measured[bill.Reconnect]
	reconnect.Calls++ // $disconnect
	reconnect.GBSeconds += bill.RequestGBSeconds
	m.measured[bill.Reconnect] = reconnect
	m.measured[bill.DeviceMonth] = m.month(two)

	for what, u := range m.measured {
		t.Logf("%s: $%.2f a million\n%+v", what, 1e6*u.Dollars(), u)
	}
	if *unitsFile != "" {
		raw, err := json.MarshalIndent(m.measured, "", "  ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile("../"+*unitsFile, append(raw, '\n'), 0o600))
		return
	}
	documented, err := bill.Measured()
	require.NoError(t, err)
	for what, u := range m.measured {
		// A slow machine starts more functions, and their lines tell of it.
		u.LogBytes = min(u.LogBytes, documented[what].LogBytes)
		m.measured[what] = u
		for i, l := range u.Lines() {
			want := documented[what].Lines()[i]
			require.InDelta(t, want.Amount, l.Amount, 0.15*want.Amount, "%s: %s. Is it meant? Then write it down by -units, and tell it in the documents: %+v", what, l.What, u)
		}
		require.InDelta(t, documented[what].StoredBytes, u.StoredBytes, 0.15*documented[what].StoredBytes, "%s: what stays in the tables", what)
	}
	require.LessOrEqual(t, 1e6*m.measured[bill.Message2].Dollars(), 14.0, "a million messages of two people")
	require.LessOrEqual(t, 1e3*m.measured[bill.DeviceMonth].Dollars(), 25.0, "a thousand devices that are always on, a month")
}
