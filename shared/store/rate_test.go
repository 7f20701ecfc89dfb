package store_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/internal/table"
	"github.com/inorder-im/inorder/shared/store/regiontest"
)

// say has a store append a message of some bytes, once.
func (h *hot) say(s *store.Store, sender, id string, bytes int) (store.Committed, error) {
	return s.Append(h.t.Context(), chatIn(text(sender, id, strings.Repeat("x", bytes)), h.group), "")
}

// requireFull wants a refusal as of a conversation that takes no more, and returns the
// wait that it tells.
func requireFull(t *testing.T, r store.Committed, err error) time.Duration {
	t.Helper()
	refusal := refused(t, chat.CodeBusy, err)
	require.Equal(t, store.Committed{Effort: metric.Effort{Full: 1}}, r, "it was not tried")
	require.Contains(t, refusal.Message, "messages a second")
	require.Equal(t, "conversationId", refusal.Field, "not the sender is too fast")
	ms, _ := refusal.Details[chat.DetailRetryAfter].(int64)
	require.Positive(t, ms)
	return time.Duration(ms) * time.Millisecond
}

// Whoever sends, in whatever environment: a conversation takes what its rate says, and
// all of that, where more than twice as much is sent.
func TestG10_AConversationTakesNoMoreThanItsRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const perSecond, span = 20, 5 * time.Second
		const underWay = 50 * time.Millisecond // from the bucket to the ack, at most
		h := newHot(t, 40, store.WithConversationRate(perSecond))
		start := time.Now()
		h.open(50, 40, span)
		for i, first := range h.acked {
			for n, last := range h.acked[i:] {
				require.LessOrEqual(t, float64(n+1), perSecond*(last.Sub(first)+underWay+time.Second).Seconds()+1)
			}
		}
		took := h.acked[len(h.acked)-1].Sub(start).Seconds()
		require.Greater(t, float64(len(h.acked)), .9*perSecond*took, "what it may take it takes")
		require.Greater(t, h.made, 1)
		h.requireLedger()
	})
}

// By the rate that the template has, the partition never refuses anything, where twice as
// much is sent for seconds, by the lane.
func TestG10_TheRateKeepsTheLaneBelowThePartition(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const perSecond, atOnce = 400, 100
		const underWay = 50 * time.Millisecond // from the bucket to the ack, at most
		h := newHot(t, 40, store.WithConversationRate(perSecond))
		start := time.Now()
		h.open(2*perSecond, 40, 3*time.Second)
		took := h.acked[len(h.acked)-1].Sub(start).Seconds()
		require.Zero(t, h.region.Stats().Throttles)
		require.Greater(t, float64(len(h.acked)), .9*perSecond*took, "what it may take it takes")
		n := 0 // acked in the second before
		for i, last := range h.acked {
			for n++; last.Sub(h.acked[i+1-n]) > time.Second; n-- {
			}
			require.LessOrEqual(t, float64(n), perSecond*(1+underWay.Seconds())+atOnce)
		}
		require.LessOrEqual(t, float64(h.attempts)/float64(len(h.acked)), .2, "most are committed by others")
		require.LessOrEqual(t, h.most, 250, "and none of too many waits in a function")
		h.requireLedger()
	})
}

// Those who do not heed it cost few reads, and nobody beside them anything.
func TestG10_AFloodOfAFullConversation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const perSecond, flood, span = 20, 500, 5 * time.Second
		h := newHot(t, 40, store.WithConversationRate(perSecond))
		other := &hot{t: t, region: h.region, options: h.options, took: map[string][]time.Duration{}}
		line, _, err := h.store().CreateGroup(t.Context(), store.Request{UserID: who(0), ClientMsgID: "other"}, "other", []string{who(1)}, chat.VisibleAll)
		require.NoError(t, err)
		other.group = line.Head.ConversationID
		before := h.region.Stats()
		var all sync.WaitGroup
		all.Go(func() { other.open(5, 2, span) })
		end := time.Now().Add(span)
		sent := 0
		for ; time.Now().Before(end); sent++ {
			time.Sleep(time.Second / flood)
			n := sent
			all.Go(func() {
				s := h.take()
				defer h.giveBack(s)
				if _, err := h.say(s, who(n%40), fmt.Sprint("flood", n), 10); err != nil {
					requireCode(t, chat.CodeBusy, err)
				}
			})
		}
		all.Wait()
		require.Zero(t, other.busy)
		require.Less(t, at(other.all(), .99), 100*time.Millisecond)
		after := h.region.Stats()
		made := func(op string) int { return after.Calls[op] - before.Calls[op] }
		looks := made("Query") / table.Lanes // into the lane: beside each the record is read
		reads := made("GetItem") + made("TransactGetItems") - looks
		t.Logf("%d sent, %d transactions, %d reads, %d looks by %d in the lane, %d environments", sent, made("TransactWriteItems"), reads, looks, made("PutItem"), h.made)
		require.Greater(t, sent, 2000)
		require.Less(t, made("PutItem"), sent/5, "few wait in the lane")
		require.Less(t, looks, 10*made("PutItem"), "and not long")
		require.Less(t, reads, made("TransactWriteItems")+2*made("PutItem")+3*h.made*int(span.Seconds()),
			"two a second in each environment, one for each attempt, and two in the lane")
		require.Zero(t, after.Throttles)
	})
}

// At the bound, in environments that take turns.
func TestG10_TheRateOfAConversationAtItsBound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const perSecond = 4
		h := newHot(t, 3, store.WithConversationRate(perSecond))
		a, b := h.store(), h.store()
		time.Sleep(time.Second) // the group's own message counted
		send := func(s *store.Store, id string) {
			t.Helper()
			_, err := h.say(s, who(1), id, 400)
			require.NoError(t, err)
		}
		for i := range perSecond {
			send([]*store.Store{a, b}[i%2], fmt.Sprint("m", i))
		}
		calls := h.region.Stats().Calls
		r, err := h.say(b, who(1), "more", 400)
		wait := requireFull(t, r, err)
		require.InDelta(t, .7, wait.Seconds(), .3) // what is above half of the bucket, and up to half a second of jitter
		calls["GetItem"]++
		for i := range 6 {
			require.Equal(t, calls, h.region.Stats().Calls, "what was refused once is remembered")
			_, _ = h.say(h.store(), who(1), fmt.Sprint("between ", i), 400) // by whom there is room again
			time.Sleep(50 * time.Millisecond)
			calls = h.region.Stats().Calls
			r, err = h.say(b, who(1), "more", 400)
			requireFull(t, r, err)
		}
		_, err = h.say(h.store(), "stranger", "s", 400)
		requireCode(t, chat.CodeNotFound, err)

		// What ends a flood is not held up by it.
		request := store.Request{UserID: who(0), DeviceID: "phone", ClientMsgID: "away"}
		_, err = a.RemoveMembers(t.Context(), request, h.group, []string{who(2)})
		require.NoError(t, err)
		messages := ledger(t, a, who(0), h.group)
		target := store.Target{ConversationID: h.group, Seq: messages[2].Seq, MessageID: messages[2].MessageID}
		_, err = a.Edit(t.Context(), by(who(1), "edit"), target, store.Edited{Version: 1, Text: "new"}, store.NoWindow)
		requireCode(t, chat.CodeBusy, err)
		_, err = a.Recall(t.Context(), by(who(0), "recall"), target, store.NoWindow)
		require.NoError(t, err)

		time.Sleep(wait + time.Second/2)
		send(b, "more")
		time.Sleep(time.Second)
		_, err = h.say(a, who(1), "3 KB", 2500)
		require.NoError(t, err)
		r, err = h.say(a, who(1), "2 KB", 1500)
		requireFull(t, r, err)
		send(a, "1 KB") // which has room still
		r, err = h.say(a, who(1), "1 KB more", 400)
		requireFull(t, r, err)
		time.Sleep(time.Second)
		_, err = h.say(a, who(1), "as large as can be", 3900)
		require.NoError(t, err)
		time.Sleep(time.Second)
		once := h.region.Stats()
		send(a, "last")
		then := h.region.Stats()
		require.Equal(t, once.Calls["TransactWriteItems"]+1, then.Calls["TransactWriteItems"])
		require.Equal(t, once.Calls["GetItem"], then.Calls["GetItem"])
		require.InDelta(t, 6, then.WriteWRU-once.WriteWRU, 0, "the bucket costs nothing")
	})
}

// A bucket that a wrong clock filled shuts nobody out.
func TestG10_AConversationIsNotShutByAClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHot(t, 2, store.WithConversationRate(1))
		_, err := h.region.Client().UpdateItem(context.Background(), &dynamodb.UpdateItemInput{
			TableName: aws.String(regiontest.Tables().Conversations), UpdateExpression: aws.String("SET fullAt = :far"),
			Key:                       map[string]types.AttributeValue{"conversationId": &types.AttributeValueMemberS{Value: string(h.group)}},
			ExpressionAttributeValues: map[string]types.AttributeValue{":far": &types.AttributeValueMemberN{Value: fmt.Sprint(time.Now().Add(time.Hour).UnixMicro())}},
		})
		require.NoError(t, err)
		_, err = h.say(h.store(), who(0), "m", 10)
		require.NoError(t, err)
		r, err := h.say(h.store(), who(0), "m2", 10)
		requireFull(t, r, err)
	})
}
