package integration_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/costs/bill"
	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
	"github.com/inorder-im/inorder/integration/proxy"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// What each action costs, as infra/COSTS.md has it:
//
//	go test ./integration -run TestCost_OfEachAction -costs /tmp/costs.md
var costsFile = flag.String("costs", "", "`file` to write what each action costs to, as a Markdown table")

// usage is what DynamoDB was asked for.
type usage struct {
	calls     int
	wru, rru  float64
	lookups   int // BatchGetItem and Query of rosters and connections
	cancelled int // transactions, whose answers do not say what they consumed
}

func (u usage) minus(o usage) usage {
	return usage{u.calls - o.calls, u.wru - o.wru, u.rru - o.rru, u.lookups - o.lookups, u.cancelled - o.cancelled}
}

func (u usage) plus(o usage) usage {
	return usage{u.calls + o.calls, u.wru + o.wru, u.rru + o.rru, u.lookups + o.lookups, u.cancelled + o.cancelled}
}

// meter is a proxy in front of DynamoDB that lets it say what each request
// consumed, and adds that up.
type meter struct {
	url     string
	client  *dynamodb.Client // past the proxy
	streams sync.RWMutex     // held: no change leaves the stream, and no fan-out runs

	mu    sync.Mutex
	total usage
	fault error // the first answer that does not say
}

func startMeter(tb testing.TB) *meter {
	tb.Helper()
	client, engine := dynamotest.Start(tb)
	m := &meter{client: client}
	m.url = startProxy(tb, engine, m.serve).URL()
	return m
}

// again finds the attempts of the SDK after its first, as the header counts them: an
// answer got lost, as on a machine that does too much. The product asked once.
var again = regexp.MustCompile(`^attempt=([2-9]|\d\d)`)

func (m *meter) serve(p *proxy.Proxy, r proxy.Request) proxy.Answer {
	_, operation := r.Operation()
	if operation == "GetRecords" {
		m.streams.RLock()
		defer m.streams.RUnlock()
	}
	if again.MatchString(r.Header.Get("Amz-Sdk-Request")) {
		return p.Forward(r)
	}
	answer, spent, err := p.Metered(r)
	if spent == nil {
		return answer
	}
	u := usage{calls: 1}
	switch {
	case spent.Cancelled:
		u.cancelled = 1
	case proxy.Writes(operation):
		u.wru = spent.Units
	default:
		u.rru = spent.Units
	}
	if (operation == "Query" || operation == "BatchGetItem") && looksUp(r.Body) {
		u.lookups = 1
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total = m.total.plus(u)
	m.fault = cmp.Or(m.fault, err)
	return answer
}

// looksUp reports whether a request is of a roster or of connections.
func looksUp(request []byte) bool {
	var of struct {
		TableName    string
		RequestItems map[string]json.RawMessage
	}
	_ = json.Unmarshal(request, &of)
	for table := range of.RequestItems {
		of.TableName += table
	}
	return strings.Contains(of.TableName, "Members") || strings.Contains(of.TableName, "Connections")
}

// withoutFanout does something, and only lets its change leave the stream when it
// is done.
func (m *meter) withoutFanout(do func() int64) int64 {
	m.streams.Lock()
	defer m.streams.Unlock()
	return do()
}

func (m *meter) used(tb testing.TB) usage {
	tb.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	require.NoError(tb, m.fault)
	return m.total
}

// rest waits until nothing more is asked for, and returns the sum: the fan-out tells
// again what took long, as the listing of all members of a new large group, after they
// have heard of it.
func (m *meter) rest(tb testing.TB) usage {
	tb.Helper()
	last, same := m.used(tb), 0
	require.Eventually(tb, func() bool {
		now := m.used(tb)
		if now == last {
			same++
		} else {
			last, same = now, 0
		}
		return same == 20
	}, patience, 20*time.Millisecond)
	return last
}

// cost is what one action took: itself, and its fan-out.
type cost struct {
	action         string
	members        int
	request        usage
	fanout         usage
	frames, invoke float64
	gbSeconds      float64
}

func (c cost) dollarsPerMillion() float64 {
	both := c.request.plus(c.fanout)
	return 1e6 * bill.Use{Frames: c.frames, Calls: c.invoke, GBSeconds: c.gbSeconds, WRU: both.wru, RRU: both.rru}.Dollars()
}

// ruler measures actions in one conversation, all of whose members are online on
// one device each.
type ruler struct {
	t       *testing.T
	meter   *meter
	id      chat.ConversationID
	members []*listener // the first acts
	costs   map[string]cost
	order   []string
}

func (r *ruler) actor() *device { return r.members[0].device }

// measure does something that makes an entry, if seq is not 0, and waits until
// hearers, who are all online, were told of it. Of several times the last counts:
// then the functions know the conversation.
func (r *ruler) measure(action string, hearers func() []*listener, do func() (seq int64)) {
	r.t.Helper()
	before := r.meter.rest(r.t)
	var middle usage
	seq := r.meter.withoutFanout(func() int64 {
		defer func() { middle = r.meter.used(r.t) }()
		return do()
	})
	c := cost{action: action, members: len(r.members), request: middle.minus(before), frames: 2, invoke: 1, gbSeconds: bill.RequestGBSeconds}
	told := hearers()
	if seq != 0 { // else the request waited for its pushes
		r.settle(told, seq)
	}
	c.frames += float64(len(told))
	if strings.HasPrefix(action, "send") {
		c.frames-- // to who sent it the answer says it all
	}
	if seq != 0 {
		c.fanout = r.meter.used(r.t).minus(middle)
		c.invoke++
		c.gbSeconds += bill.FanoutGBSeconds
	}
	if _, again := r.costs[action]; !again {
		r.order = append(r.order, action)
	}
	r.costs[action] = c
}

// settle waits until these were told of a seq, which is the last that the fan-out
// does of it.
func (r *ruler) settle(told []*listener, seq int64) {
	r.t.Helper()
	for _, l := range told {
		entryAt(r.t, l, r.id, seq)
	}
}

func (r *ruler) everyone() []*listener { return r.members }
func (r *ruler) others() []*listener   { return r.members[1:] }
func (r *ruler) noOne() []*listener    { return nil }

// ackHearers hear of an ack of what the actor wrote.
func (r *ruler) ackHearers() []*listener {
	if len(r.members) > chat.InboxGroupMax {
		return nil
	}
	return r.members[:1]
}

const costText = "Shall we meet at eight, as usual? I have the tickets."

func (r *ruler) send() wire.Sent { return say(r.t, r.actor(), r.id, costText) }

// common measures what there is in every conversation.
func (r *ruler) common() {
	t := r.t
	reader := r.members[1]
	for range 2 {
		var sent wire.Sent
		for range 2 { // other functions wrote since the last one: read, and find it unchanged
			r.settle(r.everyone(), r.send().Seq)
		}
		cursor := changesSince(t, reader.device, 0).SyncCursor
		r.measure("send", r.everyone, func() int64 { sent = r.send(); return sent.Seq })
		r.measure("sync, 1 new", r.noOne, func() int64 {
			after := sent.Seq - 1
			page := must[wire.Synced](t, reader.device, wire.ActionSync, wire.Sync{ConversationID: r.id, AfterSeq: &after})
			require.Len(t, page.Messages, 1)
			return 0
		})
		r.measure("changes, 1 changed", r.noOne, func() int64 {
			must[wire.Changed](t, reader.device, wire.ActionChanges, wire.Changes{SyncCursor: &cursor})
			return 0
		})
		r.measure("ack, delivered", r.ackHearers, func() int64 { return r.ack(&sent.Seq, nil) })
		r.measure("ack, read", r.ackHearers, func() int64 { return r.ack(nil, &sent.Seq) })
		r.measure("send, a reply", r.everyone, func() int64 {
			reply, err := r.actor().send(t.Context(), wire.Send{ConversationID: r.id, Text: costText, ReplyTo: &chat.ReplyTo{Seq: sent.Seq, MessageID: sent.MessageID}})
			require.NoError(t, err)
			return reply.Seq
		})
		r.measure("edit", r.everyone, func() int64 {
			return must[wire.Edited](t, r.actor(), wire.ActionEdit, editOf(sent, 1, costText+"!")).Seq
		})
		r.measure("recall, edited once", r.everyone, func() int64 { return must[wire.Sent](t, r.actor(), wire.ActionRecall, recallOf(sent)).Seq })
		r.measure("clear", r.noOne, func() int64 {
			must[wire.Cleared](t, r.actor(), wire.ActionClear, wire.Clear{ConversationID: r.id, ThroughSeq: &sent.Seq})
			return 0
		})
		r.measure("members, a page", r.noOne, func() int64 {
			must[wire.MembersPage](t, r.actor(), wire.ActionMembers, wire.Members{ConversationID: r.id})
			return 0
		})
		r.measure("receipts, a page", r.noOne, func() int64 {
			must[wire.ReceiptsPage](t, reader.device, wire.ActionReceipts, wire.Receipts{ConversationID: r.id, Seq: sent.Seq})
			return 0
		})
	}
}

// alone measures what does not depend on the number of members.
func (r *ruler) alone() {
	t := r.t
	reader := r.members[1]
	for range 49 {
		r.send()
	}
	r.settle(r.everyone(), r.send().Seq)
	r.measure("history, 50", r.noOne, func() int64 {
		page := must[wire.HistoryPage](t, reader.device, wire.ActionHistory, wire.History{ConversationID: r.id})
		require.Len(t, page.Messages, 50)
		return 0
	})
	r.measure("conversations, 1", r.noOne, func() int64 {
		page := must[wire.ConversationsPage](t, reader.device, wire.ActionConversations, wire.Conversations{})
		require.Len(t, page.Conversations, 1)
		return 0
	})
	r.measure("ping", r.noOne, func() int64 { must[wire.Pong](t, r.actor(), wire.ActionPing, nil); return 0 })
}

func (r *ruler) ack(delivered, read *int64) int64 {
	must[wire.Acked](r.t, r.members[1].device, wire.ActionAck, wire.Ack{ConversationID: r.id, DeliveredSeq: delivered, ReadSeq: read})
	return 0
}

// group measures what there is in groups alone.
func (r *ruler) group() {
	t := r.t
	second, last := r.members[1].user, r.members[len(r.members)-1].user
	r.measure("setTitle", r.everyone, func() int64 {
		return must[wire.Sent](t, r.actor(), wire.ActionSetTitle, wire.SetTitle{ConversationID: r.id, Title: newID(), ClientMsgID: newID()}).Seq
	})
	r.measure("setRole", r.everyone, func() int64 {
		return must[wire.Sent](t, r.actor(), wire.ActionSetRole, wire.SetRole{ConversationID: r.id, UserID: second, Role: chat.RoleAdmin, ClientMsgID: newID()}).Seq
	})
	r.measure("removeMembers, 1", r.everyone, func() int64 { return removeMembers(t, r.actor(), r.id, last).Seq })
	r.measure("addMembers, 1", r.everyone, func() int64 { return addMembers(t, r.actor(), r.id, last).Seq })
	r.measure("leave, of the owner", r.everyone, func() int64 {
		return must[wire.Sent](t, r.actor(), wire.ActionLeave, wire.ChangeGroup{ConversationID: r.id, ClientMsgID: newID()}).Seq
	})
	r.measure("dissolve", r.others, func() int64 {
		return must[wire.Sent](t, r.members[1].device, wire.ActionDissolve, wire.ChangeGroup{ConversationID: r.id, ClientMsgID: newID()}).Seq
	})
}

// newRuler makes a conversation of n users who are online.
func newRuler(t *testing.T, m *meter, s stack, n int) *ruler {
	t.Helper()
	r := &ruler{t: t, meter: m, members: listenAll(t, s, users("user", n)...), costs: map[string]cost{}}
	names := make([]string, n)
	for i, l := range r.members {
		names[i] = l.user
	}
	if n == 2 {
		r.id = chat.SingleID(names[0], names[1])
		r.measure("send, the first", r.everyone, func() int64 {
			sent, err := r.actor().send(t.Context(), wire.Send{To: names[1], Text: costText})
			require.NoError(t, err)
			return sent.Seq
		})
		r.settle(r.everyone(), say(t, r.members[1].device, r.id, costText).Seq) // before an answer there are no receipts
		return r
	}
	at := min(n, chat.MaxRosterChange-1)
	whole := r.members
	r.members = whole[:at]
	r.measure(fmt.Sprintf("createGroup of %d", at), r.everyone, func() int64 {
		r.id = createGroup(t, r.actor(), "", names[1:at]...)
		return 1
	})
	for at < n {
		page := min(chat.MaxRosterChange, n-at)
		r.members = whole[:at+page]
		r.measure(fmt.Sprintf("addMembers, %d", page), r.everyone, func() int64 { return addMembers(t, r.actor(), r.id, names[at:at+page]...).Seq })
		at += page
	}
	return r
}

// mostLookUps is how many BatchGetItem and Query of the roster and the connections of 200
// a fan-out needs.
const mostLookUps = 3

func (r *ruler) toldTwice() bool {
	for action, c := range r.costs {
		if c.fanout.lookups > mostLookUps {
			r.t.Logf("%s in a conversation of %d: %d look-ups of its roster and connections", action, c.members, c.fanout.lookups)
			return true
		}
	}
	return false
}

// measureUndisturbed measures a conversation of n users, and does so again with other
// users if there was trouble meanwhile, or something took so long that it was told twice.
func measureUndisturbed(t *testing.T, m *meter, c *localCloud, n int) *ruler {
	t.Helper()
	for range attempts {
		before := c.troubles()
		r := newRuler(t, m, c.Stack, n)
		r.common()
		if n > 2 {
			r.group()
		} else {
			r.alone()
		}
		if c.troubles() == before && !r.toldTwice() {
			return r
		}
	}
	require.FailNow(t, "each attempt had trouble, or asked more often for a roster or connections than it has to", "conversations of %d", n)
	return nil
}

func TestCost_OfEachAction(t *testing.T) {
	t.Parallel()
	m := startMeter(t)
	c := startCloud(t, "-dynamodb-endpoint", m.url, "-param", "GroupsPerDay=100", "-param", "MaxLargeConversations=200")
	rulers := map[int]*ruler{}
	for _, n := range []int{2, 20, 200} {
		rulers[n] = measureUndisturbed(t, m, c, n)
	}

	pair, few, many := rulers[2].costs, rulers[20].costs, rulers[200].costs
	send := pair["send"]
	require.Equal(t, 1, send.request.calls, "one transaction, and nothing is read")
	require.LessOrEqual(t, send.request.wru, 6.0, "a text of two people")
	require.LessOrEqual(t, send.fanout.wru, 2.0, "the sync heads, one unit per member")
	require.LessOrEqual(t, few["send"].fanout.wru, 20.0)
	require.Zero(t, many["send"].fanout.wru, "no one's sync head is raised by a large group")
	for _, r := range rulers {
		for action, c := range r.costs {
			require.Zero(t, c.request.plus(c.fanout).cancelled, "%s in a conversation of %d", action, len(r.members))
		}
	}
	require.Equal(t, 2, many["send"].fanout.lookups, "the roster is known")
	require.Equal(t, 3, many["addMembers, 1"].fanout.lookups, "the roster is new")

	table := costTable(rulers[2], rulers[20], rulers[200])
	t.Log("\n" + table)
	if *costsFile != "" {
		require.NoError(t, os.WriteFile(*costsFile, []byte(table), 0o600))
	}
}

func costTable(rulers ...*ruler) string {
	var b strings.Builder
	b.WriteString("| action | members | calls | WRU | RRU | fan-out calls | WRU | RRU | frames | $ per million |\n" +
		"|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range rulers {
		for _, action := range r.order {
			c := r.costs[action]
			fmt.Fprintf(&b, "| %s | %d | %d | %g | %g | %s | %g | %.2f |\n", action, c.members,
				c.request.calls, c.request.wru, c.request.rru, fanoutCells(c), c.frames, c.dollarsPerMillion())
		}
	}
	return b.String()
}

func fanoutCells(c cost) string {
	if c.fanout == (usage{}) {
		return "– | – | –"
	}
	return fmt.Sprintf("%d | %g | %g", c.fanout.calls, c.fanout.wru, c.fanout.rru)
}
