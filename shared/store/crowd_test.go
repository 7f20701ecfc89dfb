package store_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/operate"
	"github.com/inorder-im/inorder/shared/store/regiontest"
)

// fullGroup is a group of as many members as users may make it: ann, who owns it, and
// users. Each is on the list of large conversations, which the fan-out keeps.
func fullGroup(t *testing.T, s *store.Store, v chat.Visibility) chat.ConversationID {
	t.Helper()
	id := newGroup(t, s, v, "ann")
	all := users(chat.MaxGroupMembers - 1)
	for i, chunk := range slices.Collect(slices.Chunk(all, chat.MaxRosterChange)) {
		must(t)(s.AddMembers(t.Context(), by("ann", fmt.Sprint("fill", i)), id, chunk))
	}
	require.NoError(t, parallel(len(all), func(i int) error { return s.Enlist(t.Context(), all[i], id) }))
	require.NoError(t, s.Enlist(t.Context(), "ann", id))
	return id
}

// others are users who are none of users.
func others(from, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("other%04d", from+i)
	}
	return ids
}

// requireCrowd checks a crowd's head against its roster, and all of it by an audit.
func requireCrowd(t *testing.T, c *cloud, s *store.Store, id chat.ConversationID) {
	t.Helper()
	head := c.Head(id)
	roster, err := s.Roster(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, len(roster), head.MemberCount)
	require.True(t, head.Hashed())
	require.True(t, head.IsRoster(roster))
	report, err := operate.New(s).AuditConversation(t.Context(), id)
	require.NoError(t, err)
	require.Empty(t, report.Violations)
}

func TestWhoJoinsACrowdJoinsQuietly(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	w := &wire{}
	product := c.Store(w, store.WithMaxCrowdMembers(2000))
	senders := &wire{}
	s := c.Store(senders)
	id := fullGroup(t, s, chat.VisibleSinceJoin)
	before := c.Head(id)

	joined := must(t)(product.AdmitMembers(t.Context(), id, others(0, chat.MaxRosterChange), "a"))
	require.Equal(t, id, joined.ConversationID)
	require.Zero(t, joined.Seq)
	require.False(t, joined.Duplicate)
	crowd := c.Head(id)
	require.Equal(t, before.LastSeq, crowd.LastSeq, "no message tells of it")
	require.Equal(t, before.MemberCount+chat.MaxRosterChange, crowd.MemberCount)
	require.Equal(t, before.MembersVersion+1, crowd.MembersVersion, "it became a crowd")
	require.Equal(t, before.Removals(), crowd.Removals())
	requireCrowd(t, c, s, id)
	_, err := store.NewSmallRosters(s).At(t.Context(), id, 1)
	require.ErrorIs(t, err, store.ErrCrowd)
	roster, err := store.NewRosters(s).At(t.Context(), id, crowd.MembersVersion)
	require.NoError(t, err)
	require.Len(t, roster, crowd.MemberCount)

	sendIn(t, s, "ann", id, "m1") // which remembers the head then
	must(t)(product.AdmitMembers(t.Context(), id, others(100, 10), "b"))
	require.Equal(t, crowd.MembersVersion, c.Head(id).MembersVersion, "nobody who sends notices")
	_, n := senders.Since(0)
	require.Equal(t, 1, sendIn(t, s, "ann", id, "m2").Attempts)
	calls, _ := senders.Since(n)
	require.Equal(t, []string{"TransactWriteItems"}, calls)
	requireCrowd(t, c, s, id)

	require.Equal(t, []string{"m1", "m2"}, clientIDs(ledger(t, s, "other0000", id)), "from the next message on")
	require.Equal(t, []string{"m2"}, clientIDs(ledger(t, s, "other0100", id)))
	require.Equal(t, int64(1), mustLine(t, s, "other0100", id).Unread())
	changed, err := s.Changes(t.Context(), "other0100", 0, "", 50)
	require.NoError(t, err)
	require.Equal(t, id, changed.Lines[0].Head.ConversationID)
	changed, err = s.Changes(t.Context(), "other0100", changed.Cursor, "", 50)
	require.NoError(t, err)
	require.Len(t, changed.Heads, 1, "it is on the list of large conversations")

	_, n = w.Since(0)
	again := must(t)(product.AdmitMembers(t.Context(), id, others(100, 10), "c"))
	require.True(t, again.Duplicate)
	calls, _ = w.Since(n)
	require.NotContains(t, calls, "Query", "no roster is read")
	must(t)(product.AdmitMembers(t.Context(), id, slices.Concat(others(100, 10), []string{"late"}), "d"))
	require.Equal(t, crowd.MemberCount+11, c.Head(id).MemberCount)

	_, err = s.AddMembers(t.Context(), by("ann", "e"), id, []string{"bob"})
	require.Equal(t, chat.MaxGroupMembers, refused(t, chat.CodeLimit, err).Details["max"], "users do not add to a crowd")
	_, err = s.AdmitMembers(t.Context(), id, []string{"bob"}, "f")
	requireCode(t, chat.CodeLimit, err, "nor the product, where there are no crowds")
}

func clientIDs(messages []chat.Message) []string {
	ids := make([]string, len(messages))
	for i, m := range messages {
		ids[i] = m.ClientMsgID
	}
	return ids
}

// A former member reads what was before, and what is from now on.
func TestG9_WhoComesBackToACrowd(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil, store.WithMaxCrowdMembers(2000))
	id := fullGroup(t, s, chat.VisibleSinceJoin)
	must(t)(s.AdmitMembers(t.Context(), id, []string{"bob", "cy"}, "join"))
	sendIn(t, s, "ann", id, "heard")
	must(t)(s.Leave(t.Context(), by("bob", "bob leaves"), id))
	must(t)(s.RemoveMembers(t.Context(), by("ann", "cy goes"), id, []string{"cy"}))
	for _, user := range []string{"bob", "cy"} {
		_, err := s.Append(t.Context(), chatIn(text(user, "refused", "x"), id), "")
		requireCode(t, chat.CodeNotFound, err, user)
	}
	must(t)(s.AdmitMembers(t.Context(), id, []string{"cy"}, "cy is back at once"))
	sendIn(t, s, "ann", id, "missed")
	must(t)(s.AdmitMembers(t.Context(), id, []string{"bob"}, "bob is back"))
	sendIn(t, s, "bob", id, "back")
	require.Equal(t, []string{"heard", "bob leaves", "back"}, clientIDs(ledger(t, s, "bob", id)))
	require.Equal(t, []string{"heard", "bob leaves", "cy goes", "missed", "back"}, clientIDs(ledger(t, s, "cy", id)))
	requireCrowd(t, c, s, id)
}

// Joins, leaves, removals and sends at the same time, of processes that remember what
// they will: nothing is committed by one who is out, and no one is lost or counted twice.
func TestG9_RostersOfCrowdsAndSendsAreLinearised(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil, store.WithMaxCrowdMembers(chat.MaxCrowdMembers))
	id := fullGroup(t, s, chat.VisibleAll)
	must(t)(s.AdmitMembers(t.Context(), id, others(0, 20), "first"))
	before := c.Head(id).MemberCount
	const each = 8
	var refusals atomic.Int64
	tasks := []func(s *store.Store, i int) error{
		func(s *store.Store, i int) error { // joins
			_, err := s.AdmitMembers(context.Background(), id, others(1000+5*i, 5), fmt.Sprint("join", i))
			return err
		},
		func(s *store.Store, i int) error { // leaves
			user := fmt.Sprintf("other%04d", i)
			_, err := s.Leave(context.Background(), by(user, "leave"), id)
			return err
		},
		func(s *store.Store, i int) error { // is removed
			_, err := s.RemoveMembers(context.Background(), by("ann", fmt.Sprint("remove", i)), id, []string{fmt.Sprintf("other%04d", each+i)})
			return err
		},
		func(s *store.Store, i int) error { // sends, until it is out
			for n := range 40 {
				user := fmt.Sprintf("other%04d", i+each*(n%2))
				_, err := s.Append(context.Background(), chatIn(text(user, fmt.Sprint("m", n), "x"), id), "")
				if code := chat.CodeOf(err); err != nil && (code == chat.CodeNotFound || code == chat.CodeForbidden) {
					refusals.Add(1)
				}
			}
			return nil
		},
	}
	stores := make([]*store.Store, len(tasks))
	for i := range stores {
		stores[i] = c.Store(nil, store.WithMaxCrowdMembers(chat.MaxCrowdMembers))
	}
	require.NoError(t, parallel(len(tasks)*each, func(n int) error {
		i, task := n/len(tasks), n%len(tasks)
		for { // what is under contention is tried again, as clients do
			err := tasks[task](stores[(i+task)%len(stores)], i)
			if chat.CodeOf(err) != chat.CodeBusy {
				return err
			}
		}
	}))
	head := c.Head(id)
	require.Equal(t, before+5*each-2*each, head.MemberCount)
	require.NotZero(t, refusals.Load(), "the test has to see some")
	requireCrowd(t, c, s, id)
	entries, err := s.Entries(t.Context(), id, chat.Range{From: 1, To: head.LastSeq})
	require.NoError(t, err)
	out := map[string]bool{}
	for _, m := range entries {
		require.False(t, out[m.SenderID], "%s sent %d after it was out", m.SenderID, m.Seq)
		if m.Event != nil {
			for _, user := range m.Event.Removed {
				out[user] = true
				require.Equal(t, m.Seq, c.Inbox(user, id).LeftSeq)
			}
		}
	}
	require.Len(t, out, 2*each)
}

// Whatever becomes of a request or its answer, repeating it is enough.
func TestJoiningACrowdSurvivesWhatGetsLost(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := fullGroup(t, c.Store(nil), chat.VisibleAll)
	for i, f := range []fault{dropped, unanswered, conflicting, throttled} {
		for _, op := range []string{"TransactWriteItems", "UpdateItem", "BatchGetItem"} {
			w := &wire{}
			s := c.Store(w, store.WithMaxCrowdMembers(2000))
			once := false
			w.Set(func(called string, _ int) fault {
				if called != op || once {
					return none
				}
				once = true
				return f
			})
			name := fmt.Sprint(op, f)
			user := fmt.Sprintf("%s%d", op, i)
			for { // a product repeats what failed
				if _, err := s.AdmitMembers(t.Context(), id, []string{user}, name); err == nil {
					break
				}
			}
			require.True(t, once, name)
			require.Zero(t, mustLine(t, s, user, id).LeftSeq, name)
			changed, err := s.Changes(t.Context(), user, 0, "", 10)
			require.NoError(t, err)
			require.Positive(t, changed.Cursor, name)
		}
	}
	require.Equal(t, chat.MaxGroupMembers+12, c.Head(id).MemberCount)
	requireCrowd(t, c, c.Store(nil), id)
}

// A request that was answered by an event is, once the group is a crowd.
func TestARetryOfAnEventFindsItInACrowd(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil, store.WithMaxCrowdMembers(2000))
	id := newGroup(t, s, chat.VisibleAll, "ann")
	first := must(t)(s.AdmitMembers(t.Context(), id, []string{"bob"}, "key"))
	require.NotZero(t, first.Seq)
	c.Set(c.Tables.Conversations, convKey(id), values{"memberCount": 1500}) // as good as one
	again := must(t)(s.AdmitMembers(t.Context(), id, []string{"bob"}, "key"))
	require.Equal(t, first.Seq, again.Seq)
	require.True(t, again.Duplicate)
	requireCode(t, chat.CodeIdempotencyConflict, errOf(s.AdmitMembers(t.Context(), id, []string{"cy"}, "key")))
}

func errOf(_ store.Committed, err error) error { return err }

func TestCrowdsHaveBounds(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil, store.WithMaxCrowdMembers(1100))
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
	c.Set(c.Tables.Conversations, convKey(id), values{"memberCount": 1080})
	_, err := s.AdmitMembers(t.Context(), id, others(0, 21), "a")
	require.Equal(t, 1100, refused(t, chat.CodeLimit, err).Details["max"])
	must(t)(s.AdmitMembers(t.Context(), id, others(0, 19), "b"))

	for i := range 250 {
		require.NoError(t, s.Enlist(t.Context(), "busy", chat.ConversationID(fmt.Sprint("group:", i))))
	}
	_, err = s.AdmitMembers(t.Context(), id, []string{"busy"}, "c")
	require.Equal(t, []string{"busy"}, refused(t, chat.CodeLimit, err).Details["members"])
	must(t)(s.AdmitMembers(t.Context(), id, []string{"busy2"}, "c"))

	must(t)(s.Dissolve(t.Context(), by("ann", "end"), id))
	_, err = s.AdmitMembers(t.Context(), id, []string{"late"}, "d")
	requireCode(t, chat.CodeDissolved, err)
	_, err = s.AdmitMembers(t.Context(), "group:none", []string{"late"}, "e")
	requireCode(t, chat.CodeNotFound, err)
}

func TestPublishToACrowd(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil, store.WithMaxCrowdMembers(chat.MaxCrowdMembers), store.WithQuotas(store.Quotas{SystemMembers: 1000}))
	say := func(key string, recipients ...string) store.Committed {
		return must(t)(s.Publish(t.Context(), store.Publication{
			Key: "news", Recipients: recipients, ClientMsgID: key, Message: chat.Message{MessageType: chat.TypeSystem, Text: key},
		}))
	}
	id := say("first", "bob").ConversationID
	_, err := s.AdmitMembers(t.Context(), id, []string{"cy"}, "small")
	requireCode(t, chat.CodeForbidden, err)
	c.Set(c.Tables.Conversations, convKey(id), values{"memberCount": 1000})
	must(t)(s.AdmitMembers(t.Context(), id, others(0, 48), "many"))
	say("second", "late", "bob")
	say("third")
	require.Equal(t, []string{"second", "third"}, clientIDs(ledger(t, s, "other0003", id)))
	require.Equal(t, []string{"second", "third"}, clientIDs(ledger(t, s, "late", id)))
	require.Equal(t, 1049, c.Head(id).MemberCount)
	require.Equal(t, int64(3), c.Head(id).LastSeq)
}

// deaf is DynamoDB that gives the first transaction of writes no answer, and does not
// apply it.
type deaf struct {
	*regiontest.Region
	heard atomic.Bool
}

func (d *deaf) Do(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".TransactWriteItems") && d.heard.CompareAndSwap(false, true) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return d.Region.Do(r)
}

// A message that is committed long after it was received is not counted to a round that
// is over by then: no later change would tell of it.
func TestG5_ARoundIsToComeWhenItsMessageIsCommitted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHot(t, 2)
		round := time.Now().Add(2500 * time.Millisecond).UnixMilli()
		_, err := h.region.Client().UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
			TableName: aws.String(regiontest.Tables().Conversations), UpdateExpression: aws.String("SET pushAt = :at, memberCount = :many"),
			Key: map[string]types.AttributeValue{"conversationId": &types.AttributeValueMemberS{Value: string(h.group)}},
			ExpressionAttributeValues: map[string]types.AttributeValue{
				":at": &types.AttributeValueMemberN{Value: fmt.Sprint(round)}, ":many": &types.AttributeValueMemberN{Value: "1500"},
			},
		})
		require.NoError(t, err)
		options := h.region.Client().Options()
		options.HTTPClient = &deaf{Region: h.region}
		slow := store.New(dynamodb.New(options), regiontest.Tables())
		_, err = h.say(slow, who(0), "m", 10)
		require.NoError(t, err)
		head, _, err := h.store().Crowd(t.Context(), h.group)
		require.NoError(t, err)
		require.Equal(t, int64(2), head.LastSeq)
		require.Greater(t, head.PushAt, time.Now().Add(-100*time.Millisecond).UnixMilli())
	})
}

// What a crowd's head says of pushes: at once where it was quiet, then with a gap, and
// never further away than a gap and what a message may be late by.
func TestRoundsOfPushesOfACrowd(t *testing.T) {
	t.Parallel()
	head := chat.Conversation{MemberCount: 100_000}
	at := int64(1_000_000)
	head.PushAt = head.NextPush(at)
	require.Equal(t, at, head.PushAt)
	head.PushAt = head.NextPush(at + 1)
	require.Equal(t, at+31_000, head.PushAt)
	require.Equal(t, head.PushAt, head.NextPush(at+28_000))
	require.Equal(t, at+62_000, head.NextPush(at+29_000), "it may be committed too late")
	small := chat.Conversation{MemberCount: 1001}
	for now := at; now < at+60_000; now += 20 {
		next := small.NextPush(now)
		require.GreaterOrEqual(t, next, small.PushAt)
		require.LessOrEqual(t, next, now+2000+1300)
		small.PushAt = next
	}
	small.PushAt = at + time.Hour.Milliseconds()
	require.Equal(t, at, small.NextPush(at), "a clock that is wrong does not keep it from all")
}
