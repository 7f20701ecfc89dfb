package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/wire"
)

var (
	regionSpan         = flag.Duration("region.span", 4*time.Second, "for how long the pairs chat before the attack, and after its first second")
	regionEnvironments = flag.Int("region.environments", 1000, "how many environments of functions the account has")
)

const (
	bystanders = 10 // pairs who chat
	attacker   = "mallory"

	outstanding = 4                     // frames of one socket that are not answered yet
	roundTrip   = 20 * time.Millisecond // between a device and API Gateway
	openLoop    = 100                   // frames a second, by one socket, of who does not wait for answers
)

func messageOf(c route.Caller, r wire.Send) chat.Message {
	return chat.Message{
		ConversationID: r.ConversationID, ClientMsgID: r.ClientMsgID, SenderID: c.UserID, SenderDeviceID: c.DeviceID, Via: c.ConnectionID,
		MessageType: r.MessageType, Text: r.Text, Data: r.Data,
	}
}

// One account does its worst: its items are overgrown, heads are damaged, sixteen sockets
// flood with writes, reads, deep data and groups of strangers and of the pairs, and half of
// them do not read. Ten pairs who chat get each of their pushes, and their p99 at most
// doubles, with template.yaml's defaults. For a second it may be four times as high: Lambda
// starts up to hundreds of environments then, for which others wait, too.
//
// Who comes back when it is told to gets all that the limits allow for as long as it
// likes; who does not takes more at first, and is thrown out. Who does not even wait for
// answers is so before API Gateway refuses anyone.
func TestG10_OneAccountAtItsWorstInARegion(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]manners{
		"that heeds when to come again":       {heeds: true, waits: true},
		"that heeds nothing":                  {waits: true},
		"that does not even wait for answers": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c *cloud
			var a *attack
			var before, first, during []time.Duration
			synctest.Test(t, func(t *testing.T) {
				c = newCloud(t, *regionEnvironments)
				ctx, stop := context.WithCancel(t.Context())
				lanes, err := strconv.Atoi(c.getenv("FANOUT_LANES"))
				require.NoError(t, err)
				c.stream(ctx, lanes)
				pairs := c.pairs()
				c.chat(pairs, time.Second) // until what is cold is warm
				before = c.chat(pairs, *regionSpan)
				a = c.attack(ctx, pairs, how)
				first = c.chat(pairs, time.Second)
				during = c.chat(pairs, *regionSpan)
				stop()
				a.all.Wait()
				time.Sleep(2 * time.Minute) // until whatever runs has ended: time stops with this goroutine
			})
			t.Logf("send to push, p50 and p99: %v and %v before, %v and %v in the first second, %v and %v during; %d, %d and %d messages",
				quantile(before, 50), quantile(before, 99), quantile(first, 50), quantile(first, 99),
				quantile(during, 50), quantile(during, 99), len(before), len(first), len(during))
			t.Logf("the attack: %v; API Gateway refused %d frames, Lambda %d calls; up to %d environments; %d throttles, %d set aside, %d buried",
				a.outcomes, c.shut, c.account.throttled, c.account.most, c.region.Stats().Throttles, c.aside, len(c.buried))
			require.Zero(t, c.lost, "every push arrived")
			require.Zero(t, c.shut, "API Gateway's own limit is for all")
			require.Positive(t, a.outcomes["send error BUSY"], "the attacker met its limits")
			require.Positive(t, a.outcomes["send reply "])
			require.LessOrEqual(t, quantile(first, 99), 4*quantile(before, 99))
			require.LessOrEqual(t, quantile(during, 99), 2*quantile(before, 99))
		})
	}
}

func quantile(took []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[len(sorted)*percent/100].Round(time.Millisecond)
}

// person is one of a pair, by one device.
type person struct {
	user   string
	socket *socket

	mu    sync.Mutex
	heard map[string]chan struct{} // by clientMsgId
}

func (p *person) awaits(id string) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.heard[id] == nil {
		p.heard[id] = make(chan struct{})
	}
	return p.heard[id]
}

func (p *person) hear(frame []byte) {
	var f wire.Push
	if json.Unmarshal(frame, &f) != nil || f.Type != wire.TypePush {
		return
	}
	for _, u := range f.Updates {
		for _, m := range u.Messages {
			if m.SenderID == attacker {
				continue
			}
			heard := p.awaits(m.ClientMsgID)
			p.mu.Lock()
			select {
			case <-heard:
			default:
				close(heard)
			}
			p.mu.Unlock()
		}
	}
}

func (c *cloud) pairs() (pairs [bystanders][2]*person) {
	for i := range pairs {
		for j := range pairs[i] {
			p := &person{user: fmt.Sprint("user", i, "-", j), heard: map[string]chan struct{}{}}
			var err error
			p.socket, err = c.dial(p.user, "phone", 0, p.hear)
			require.NoError(c.t, err)
			pairs[i][j] = p
		}
	}
	return pairs
}

// chat lets all pairs chat as people do, and gives how long each message took from its
// sending to its push at the other.
func (c *cloud) chat(pairs [bystanders][2]*person, span time.Duration) []time.Duration {
	var took [bystanders][]time.Duration
	var all sync.WaitGroup
	end := time.Now().Add(span)
	for i, pair := range pairs {
		all.Go(func() {
			for n := 0; time.Now().Before(end); n++ {
				time.Sleep(rand.N(time.Second / 4))
				from, to := pair[n%2], pair[1-n%2]
				start, id := time.Now(), fmt.Sprint(from.user, time.Now().UnixNano())
				heard := to.awaits(id)
				c.send(from, wire.Send{To: to.user, ClientMsgID: id, MessageType: chat.TypeText, Text: "hi"})
				select {
				case <-heard:
				case <-time.After(10 * time.Second):
					c.mu.Lock()
					c.lost++
					c.mu.Unlock()
				}
				took[i] = append(took[i], time.Since(start))
			}
		})
	}
	all.Wait()
	return slices.Concat(took[:]...)
}

// send sends until it is answered, as the clients do.
func (c *cloud) send(p *person, r wire.Send) {
	for failures := 0; ; failures++ {
		answer, err := c.frame(p.socket, wire.ActionSend, r)
		if err != nil {
			c.t.Errorf("sending of %s: %v", p.user, err)
			return
		}
		if strings.HasPrefix(string(answer), `{"type":"reply"`) {
			return
		}
		time.Sleep(rand.N(300 * time.Millisecond << min(failures, 6)))
	}
}

// manners are what an attacker does all the same.
type manners struct {
	heeds bool // when it is told to come again
	waits bool // for the answer to a frame, before it sends one more
}

// attack is one account with all its sockets.
type attack struct {
	cloud *cloud
	pairs [bystanders][2]*person
	manners
	all sync.WaitGroup

	mu       sync.Mutex
	groups   []chat.ConversationID
	outcomes map[string]int
}

func (c *cloud) attack(ctx context.Context, pairs [bystanders][2]*person, how manners) *attack {
	a := &attack{cloud: c, pairs: pairs, manners: how, outcomes: map[string]int{}}
	a.overgrow()
	for i := range store.MaxDevices {
		a.all.Go(func() { a.flood(ctx, i) })
	}
	a.all.Go(func() { a.damage(ctx) })
	return a
}

func (a *attack) put(table string, in map[string]any) {
	encoded, err := attributevalue.MarshalMap(in)
	if err == nil {
		_, err = a.cloud.region.Client().PutItem(context.Background(), &dynamodb.PutItemInput{TableName: &table, Item: encoded})
	}
	if err != nil {
		a.cloud.t.Errorf("writing into %s: %v", table, err)
	}
}

// overgrow makes the attacker's sync head as large as a fault once let it get.
func (a *attack) overgrow() {
	at, large := map[string]int{}, []string{}
	for i := range 300 {
		at[fmt.Sprint("group:overgrown-", i)] = i + 1
	}
	for i := range 200 {
		large = append(large, fmt.Sprintf("group:large-%032d", i))
	}
	a.put("Inboxes", map[string]any{"userId": attacker, "conversationId": "#", "v": 300, "floor": 0, "at": at})
	a.put("Inboxes", map[string]any{"userId": attacker, "conversationId": "#large", "ids": &types.AttributeValueMemberSS{Value: large}})
}

// damage writes heads that make no sense.
func (a *attack) damage(ctx context.Context) {
	for i := 0; pause(ctx, roundTrip); i++ {
		a.put("Conversations", map[string]any{"conversationId": fmt.Sprint("group:poison-", i%200), "lastSeq": fmt.Sprint("many ", i)})
	}
}

// flood sends by one socket, as many frames at a time as outstanding or, if it does not
// wait, openLoop a second, all by the route that the pairs need; and comes back
// whenever it is thrown out. Every other socket does not read what it is sent.
func (a *attack) flood(ctx context.Context, i int) {
	refuses := 0
	if i%2 == 1 {
		refuses = http.StatusTooManyRequests
	}
	for ctx.Err() == nil {
		s, err := a.cloud.dial(attacker, fmt.Sprint("d", i), refuses, func([]byte) {})
		if err != nil {
			a.count("shut out")
			pause(ctx, 100*time.Millisecond)
			continue
		}
		var frames sync.WaitGroup
		for n := 0; !a.waits && !s.isClosed() && pause(ctx, time.Second/openLoop); n++ {
			frames.Go(func() { a.frame(s, 0, n) })
		}
		for k := range outstanding {
			frames.Go(func() {
				for n := k; a.waits && !s.isClosed() && pause(ctx, roundTrip); n += outstanding {
					if wait := a.frame(s, i, n); a.heeds {
						pause(ctx, wait)
					}
				}
			})
		}
		frames.Wait()
		a.count("thrown out")
	}
}

func (a *attack) count(outcome string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.outcomes[outcome]++
}

func (a *attack) frame(s *socket, i, n int) (wait time.Duration) {
	id := fmt.Sprint("m-", i, "-", n, "-", time.Now().UnixNano())
	action, request := wire.ActionSend, any(nil)
	switch i % 4 {
	case 0: // to strangers, and into the groups
		send := wire.Send{To: "stranger" + id, ClientMsgID: id, MessageType: chat.TypeText, Text: "!"}
		a.mu.Lock()
		if len(a.groups) > 0 && n%2 == 0 {
			send.To, send.ConversationID = "", a.groups[rand.N(len(a.groups))]
		}
		a.mu.Unlock()
		request = send
	case 1:
		zero := int64(0)
		switch n % 3 {
		case 0:
			action, request = wire.ActionChanges, wire.Changes{SyncCursor: &zero}
		case 1:
			action, request = wire.ActionConversations, wire.Conversations{}
		case 2:
			action, request = wire.ActionSync, wire.Sync{ConversationID: chat.SingleID(attacker, "stranger"), AfterSeq: &zero}
		}
	case 2:
		request = map[string]any{"to": "stranger", "clientMsgId": id, "messageType": "custom", "data": deep}
	case 3:
		request = wire.CreateGroup{Title: "!", Members: a.victims(n), ClientMsgID: id}
		action = wire.ActionCreateGroup
	}
	answer, err := a.cloud.frame(s, action, request)
	var f struct {
		Type   string
		Action string
		Error  struct {
			Code    string
			Details struct{ RetryAfterMs int64 }
		}
		Result struct{ ConversationID chat.ConversationID }
	}
	if err != nil || json.Unmarshal(answer, &f) != nil {
		return 0
	}
	a.count(fmt.Sprint(action, " ", f.Type, " ", f.Error.Code))
	if action == wire.ActionCreateGroup && f.Result.ConversationID != "" {
		a.mu.Lock()
		a.groups = append(a.groups, f.Result.ConversationID)
		a.mu.Unlock()
	}
	return time.Duration(f.Error.Details.RetryAfterMs) * time.Millisecond
}

var deep = json.RawMessage(strings.Repeat(`{"a":`, 500) + "1" + strings.Repeat("}", 500))

// victims are who is put into a group: strangers, as many as go into one, or all of the
// pairs, whom each message to it then raises.
func (a *attack) victims(n int) (victims []string) {
	if n%2 == 0 {
		for _, pair := range a.pairs {
			victims = append(victims, pair[0].user, pair[1].user)
		}
		return victims[1:]
	}
	for i := range chat.MaxRosterChange - 1 {
		victims = append(victims, fmt.Sprint("victim-", i))
	}
	return victims
}
