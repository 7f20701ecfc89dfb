package store_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/internal/storetest"
)

// ownItem returns an item that the store keeps for itself among a user's lines, and its
// size.
func ownItem(c *cloud, user, key string) (in map[string]types.AttributeValue, size int) {
	c.T.Helper()
	k, err := attributevalue.MarshalMap(map[string]string{"userId": user, "conversationId": key})
	require.NoError(c.T, err)
	out, err := c.DB.GetItem(c.T.Context(), &dynamodb.GetItemInput{TableName: &c.Tables.Inboxes, Key: k, ConsistentRead: new(true)})
	require.NoError(c.T, err)
	return out.Item, storetest.SizeOf(&types.AttributeValueMemberM{Value: out.Item})
}

// One user whose conversations change in many lanes at a time, with the longest
// ids there are: every raise succeeds, and the item that each of them pays for
// stays below the kilobyte.
func TestG10_ASyncHeadStaysBelowAKilobyte(t *testing.T) {
	t.Parallel()
	const lanes, each = 16, 30
	c := newCloud(t)
	s := c.Store(nil)
	user := strings.Repeat("u", chat.MaxUserIDBytes)
	cursor := raise(t, s, user, []chat.ConversationID{"group:first"})
	var ids []chat.ConversationID
	for i := range lanes * each {
		id := chat.SingleID(user, fmt.Sprint("peer-", i))
		if i%5 == 0 {
			id = chat.SystemID(strings.Repeat("s", chat.MaxConversationIDBytes-len("system:")-3) + fmt.Sprintf("%03d", i))
		}
		ids = append(ids, id)
	}
	var done atomic.Bool
	largest := make(chan int)
	go func() {
		most := 0
		for !done.Load() {
			_, size := ownItem(c, user, "#")
			most = max(most, size)
		}
		largest <- most
	}()
	err := parallel(lanes, func(lane int) error {
		mine := ids[lane*each : (lane+1)*each]
		for len(mine) > 0 { // a batch has one or many of a user's conversations
			n := min(1+lane, len(mine))
			if _, err := s.Raise(t.Context(), user, mine[:n]); err != nil {
				return err
			}
			mine = mine[n:]
		}
		return nil
	})
	done.Store(true)
	most := <-largest
	require.NoError(t, err)
	require.Less(t, most, 1024)
	_, second := ownItem(c, user, "#second")
	require.Less(t, second, 16<<10)
	changed, err := s.Changes(t.Context(), user, cursor, "", 50)
	require.NoError(t, err)
	require.True(t, changed.Full, "more changed than is listed")
}

// A sync head that an earlier version, or a fault, let grow far beyond what one
// expression may name is made small again by the raises themselves.
func TestG10_AnOvergrownSyncHeadStopsNoRaise(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	for _, n := range []int{15, 30, 100, 200, 1000} {
		user := fmt.Sprint("bot", n)
		at := map[chat.ConversationID]any{}
		for k := range n {
			at[chat.SingleID(user, fmt.Sprint("user-", k))] = k + 1
		}
		c.Put(c.Tables.Inboxes, map[string]any{"userId": user, "conversationId": "#", "v": n, "floor": 0, "at": at})
		cursor := raise(t, s, user, []chat.ConversationID{"single:x"})
		require.Greater(t, cursor, int64(n))
		raise(t, s, user, []chat.ConversationID{chat.SystemID(strings.Repeat("x", 100))})
		for range 10 {
			raise(t, s, user, []chat.ConversationID{"single:y"})
		}
		_, size := ownItem(c, user, "#")
		require.Less(t, size, 1024, "of %d", n)
		changed, err := s.Changes(t.Context(), user, 1, "", 50)
		require.NoError(t, err)
		if n > 200 {
			require.True(t, changed.Full)
		}
	}
}

// Up to two hundred changed conversations are told one by one, in pages; to know
// them takes two requests, however long the user's list is.
func TestG5_TwoHundredChangesAreToldWithoutTheWholeList(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	w := &wire{}
	s := c.Store(w)
	ids := c.Lines("bob", 240)
	cursor := raise(t, s, "bob", ids[239:])
	for i := range 200 {
		raise(t, s, "bob", ids[i:i+1])
		raise(t, s, "bob", ids[:1+i%7]) // some change all the time
	}
	got, pages := map[chat.ConversationID]bool{}, 0
	for more := true; more; pages++ {
		_, n := w.Since(0)
		changed, err := s.Changes(t.Context(), "bob", cursor, "", 50)
		require.NoError(t, err)
		require.False(t, changed.Full)
		require.LessOrEqual(t, len(changed.Lines), 50+8)
		require.Greater(t, changed.Cursor, cursor, "each answer moves on")
		for _, l := range changed.Lines {
			require.False(t, got[l.Head.ConversationID], "told twice")
			got[l.Head.ConversationID] = true
		}
		cursor, more = changed.Cursor, changed.More
		calls, _ := w.Since(n)
		require.Equal(t, []string{"Query", "GetItem"}, calls[:2])
	}
	require.Len(t, got, 200)
	require.Equal(t, 4, pages)
}

// Whatever becomes of an eviction, the raise that called for it succeeds, and no
// device misses a change.
func TestG5_AnEvictionThatFailsLosesNothing(t *testing.T) {
	t.Parallel()
	failing := map[string]func(op string, n int) fault{
		"not written":         func(op string, _ int) fault { return when(op == "PutItem", dropped) },
		"written, no answer":  func(op string, _ int) fault { return when(op == "PutItem", unanswered) },
		"page not read":       func(op string, _ int) fault { return when(op == "GetItem", throttled) },
		"every second update": func(op string, n int) fault { return when(op == "PutItem" && n%2 == 0, unanswered) },
	}
	for name, rule := range failing {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			ids := c.Lines("bob", 60)
			w := &wire{}
			broken := c.Store(w)
			cursor := raise(t, broken, "bob", ids[:1])
			w.Set(rule)
			for i, id := range ids {
				raise(t, broken, "bob", []chat.ConversationID{id})
				if i%10 == 9 {
					_, size := ownItem(c, "bob", "#")
					require.Less(t, size, 1024)
				}
			}
			changed, err := c.Store(nil).Changes(t.Context(), "bob", cursor, "", 100)
			require.NoError(t, err)
			got := conversationIDs(changed.Lines)
			require.Len(t, got, 60, "full: %t", changed.Full)
		})
	}
}

func when(condition bool, f fault) fault {
	if condition {
		return f
	}
	return none
}

// A sync head that makes no sense: its raises fail for good, which is told, and
// its devices read the whole list.
func TestG10_ADamagedSyncHead(t *testing.T) {
	t.Parallel()
	for name, damaged := range map[string]map[string]any{
		"at is a text": {"v": 7, "floor": 0, "at": "x", "long": map[string]any{}},
		"v is 1.5":     {"v": 1.5, "floor": 0, "at": map[string]any{"group:000": 1}, "long": map[string]any{}},
		"v is a text":  {"v": "x", "floor": 0, "at": map[string]any{}, "long": map[string]any{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			s := c.Store(nil)
			ids := c.Lines("bob", 3)
			damaged["userId"], damaged["conversationId"] = "bob", "#"
			c.Put(c.Tables.Inboxes, damaged)
			changed, err := s.Changes(t.Context(), "bob", 5, "", 50)
			require.NoError(t, err)
			require.True(t, changed.Full)
			require.Len(t, changed.Lines, 3)
			if _, err = s.Raise(t.Context(), "bob", ids[:1]); err != nil {
				require.True(t, store.Permanent(err), err)
			}
		})
	}
}
