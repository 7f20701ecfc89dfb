package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"expvar"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	smithytime "github.com/aws/smithy-go/time"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
	raw "github.com/inorder-im/inorder/integration/device"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/wire"
)

const (
	bystanders = 10 // pairs who chat
	exchanges  = 12 // messages of each of them, before and during the attack

	// coarse is what the p99 may be: the functions, the database and the attacker itself
	// share this machine's few processors, which on AWS they do not. On a machine that has
	// other work the times say nothing; that is one whose p99 is no better than idle
	// before.
	coarse = 3 * time.Second
	idle   = 500 * time.Millisecond
)

// One account does its worst: its items are overgrown, heads are damaged, sixteen
// sockets flood with writes, reads, deep data and new groups of strangers. Ten
// pairs who have nothing to do with it get each of their pushes, and about as fast
// as before. It runs alone: beside other tests it would compare those.
func TestAttack_OneAccountAtItsWorstHarmsNobody(t *testing.T) {
	// Limits in proportion to a database on one processor: what the defaults let an
	// account do, a hundred groups of 23 among it, keeps it busy for ten seconds.
	c := startCloud(t, "-param", "GroupsPerDay=20", "-param", "WritesPerSecond=2", "-param", "WriteBurst=20")
	db := dynamotest.Client(t, c.DynamoDB)
	var pairs [bystanders][2]*device
	for i := range pairs {
		pairs[i] = [2]*device{mustConnect(t, c.Stack, newUser("ann"), "phone"), mustConnect(t, c.Stack, newUser("bob"), "phone")}
	}
	before := converseAll(t, pairs)

	attacker := newUser("mallory")
	overgrow(t, db, attacker)
	ctx, stop := context.WithCancel(t.Context())
	var attack errgroup.Group
	counts := new(expvar.Map)
	for i := range store.MaxDevices {
		attack.Go(func() error { return doWorst(ctx, c.Stack, attacker, i, counts) })
	}
	attack.Go(func() error { return damageHeads(ctx, db, tableName(t, db, "Conversations")) })
	require.Eventually(t, func() (underWay bool) {
		sum := int64(0)
		counts.Do(func(count expvar.KeyValue) { sum += count.Value.(*expvar.Int).Value() })
		return sum > 10*store.MaxDevices
	}, patience, time.Millisecond)
	during := converseAll(t, pairs)
	stop()
	require.NoError(t, attack.Wait())

	t.Logf("send to push, p50 and p99: %v and %v before, %v and %v during an attack of %s",
		quantile(before, 50), quantile(before, 99), quantile(during, 50), quantile(during, 99), counts)
	require.Len(t, during, bystanders*exchanges, "every push arrived")
	require.NotNil(t, counts.Get("refused"), "the attacker met its limits")
	if quantile(before, 99) < idle {
		require.LessOrEqual(t, quantile(during, 99), coarse)
	}
}

// converseAll lets all pairs chat, and returns how long each message took from its
// sending to its push at the other.
func converseAll(t *testing.T, pairs [bystanders][2]*device) []time.Duration {
	t.Helper()
	took := make([][]time.Duration, len(pairs))
	var all errgroup.Group
	for i, pair := range pairs {
		all.Go(func() error {
			for n := range exchanges {
				from, to := pair[n%2], pair[1-n%2]
				start := time.Now()
				sent, err := from.send(t.Context(), wire.Send{To: to.user, Text: "hi"})
				if err == nil {
					err = to.awaitPushed(t.Context(), sent.ConversationID, sent.Seq)
				}
				if err != nil {
					return err
				}
				took[i] = append(took[i], time.Since(start))
			}
			return nil
		})
	}
	require.NoError(t, all.Wait())
	return slices.Concat(took...)
}

func quantile(took []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(took))
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)].Round(time.Millisecond)
}

// doWorst floods by one socket, which comes back whenever it is thrown out.
func doWorst(ctx context.Context, s stack, user string, socket int, counts *expvar.Map) error {
	d, err := connect(ctx, s, user, fmt.Sprint("d", socket))
	deep := strings.Repeat(`{"a":`, 4000) + "1" + strings.Repeat("}", 4000)
	for n := 0; ctx.Err() == nil; n++ {
		if err != nil { // it may not connect as often as it wants to
			counts.Add("shut out", 1)
			_ = smithytime.SleepWithContext(ctx, 100*time.Millisecond)
			err = d.reconnect(ctx)
			continue
		}
		switch socket % 4 {
		case 0: // each message raises its own sync head
			err = d.do(ctx, wire.ActionSend, wire.Send{To: newUser("victim"), ClientMsgID: newID(), MessageType: chat.TypeText, Text: "!"}, nil)
		case 1:
			err = d.do(ctx, wire.ActionChanges, map[string]any{"syncCursor": 0}, nil)
		case 2:
			err = d.do(ctx, wire.ActionSend, map[string]any{"to": "victim", "clientMsgId": newID(), "messageType": "custom", "data": json.RawMessage(deep)}, nil)
		case 3: // a thousand groups, of those who are in all of them
			var victims []string
			for i := range chat.InboxGroupMax + 2 {
				victims = append(victims, fmt.Sprint(user, "-victim-", i))
			}
			err = d.do(ctx, wire.ActionCreateGroup, wire.CreateGroup{Title: "!", Members: victims, ClientMsgID: newID()}, nil)
		}
		var refused *refusal
		switch {
		case err == nil:
			counts.Add("done", 1)
		case errors.As(err, &refused):
			counts.Add("refused", 1)
			err = nil
		case errors.Is(err, raw.ErrClosed):
			counts.Add("thrown out", 1)
		case isPlatforms(err):
			counts.Add("turned away by the gateway", 1)
			err = nil
		}
		_ = smithytime.SleepWithContext(ctx, 20*time.Millisecond) // in all 800 frames a second and more would only measure this machine
	}
	d.close()
	return nil
}

// overgrow makes the attacker's own items as large as they can be, and its sync head as
// large as the fault let it get that is mended.
func overgrow(t *testing.T, db *dynamodb.Client, user string) {
	t.Helper()
	at, large := map[string]int{}, []string{}
	const most, overgrown = 250, 300
	for i := range overgrown {
		at[fmt.Sprint("group:overgrown-", i)] = i + 1
	}
	for i := range most {
		large = append(large, fmt.Sprintf("group:large-%032d", i))
	}
	put(t, db, "Inboxes", map[string]any{"userId": user, "conversationId": "#", "v": overgrown, "floor": 0, "at": at})
	put(t, db, "Inboxes", map[string]any{"userId": user, "conversationId": "#large", "ids": large})
}

// damageHeads writes heads that make no sense, into all lanes.
func damageHeads(ctx context.Context, db *dynamodb.Client, table string) error {
	for i := 0; ctx.Err() == nil; i++ {
		encoded, err := attributevalue.MarshalMap(map[string]any{"conversationId": fmt.Sprint("group:poison-", i%200), "lastSeq": fmt.Sprint("many ", i)})
		if err != nil {
			return err
		}
		if _, err := db.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String(table), Item: encoded}); err != nil && ctx.Err() == nil {
			return err
		}
		_ = smithytime.SleepWithContext(ctx, 10*time.Millisecond)
	}
	return nil
}
