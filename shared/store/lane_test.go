package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/internal/storetest"
)

// farFuture is a laneUntil that keeps a lane open for the length of a test.
const farFuture = int64(1) << 45

// laneOf makes a group whose messages all go by the lane.
func laneOf(t testing.TB, c *cloud, owner string, members ...string) chat.ConversationID {
	t.Helper()
	id := newGroup(t, c.Store(nil), chat.VisibleAll, owner, members...)
	c.Set(c.Tables.Conversations, convKey(id), values{"laneUntil": farFuture})
	return id
}

// die puts a message into an open lane, and does and hears nothing from then on.
func die(t testing.TB, c *cloud, m chat.Message, to string) error {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	put := false
	_, err := c.Store(&wire{Rule: func(op string, _ int) fault {
		if put {
			cancel()
			return dropped
		}
		put = op == "PutItem"
		return none
	}}).Append(ctx, m, to)
	return err
}

// leaveIntent leaves the intent of one who died in an open lane.
func leaveIntent(t testing.TB, c *cloud, m chat.Message, to string) {
	t.Helper()
	before := c.Count(c.Tables.Lane)
	requireCode(t, chat.CodeBusy, die(t, c, m, to))
	require.Equal(t, before+1, c.Count(c.Tables.Lane))
}

// messagesOf are those of a clientMsgId in a ledger.
func messagesOf(all []chat.Message, clientMsgID string) []chat.Message {
	var found []chat.Message
	for _, m := range all {
		if m.ClientMsgID == clientMsgID {
			found = append(found, m)
		}
	}
	return found
}

func TestG1G2_ManySendersInTheLane(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := laneOf(t, c, "ann", "bob")
	const senders, each = 12, 6
	var mu sync.Mutex
	acked, batched := map[int64]string{}, 0
	require.NoError(t, parallel(senders, func(i int) error {
		s, last := c.Store(nil), int64(0)
		for n := range each {
			m := chatIn(text([]string{"ann", "bob"}[i%2], fmt.Sprintf("%d-%d", i, n), "hi"), id)
			r, err := s.Append(t.Context(), m, "")
			for isBusy(err) {
				r, err = s.Append(t.Context(), m, "")
			}
			if err != nil {
				return err
			}
			if r.Seq <= last {
				return fmt.Errorf("seq %d was acked after %d", r.Seq, last)
			}
			last = r.Seq
			mu.Lock()
			acked[r.Seq] = r.MessageID
			batched += r.Batch
			mu.Unlock()
		}
		return nil
	}))
	all := ledger(t, c.Store(nil), "bob", id)
	requireDense(t, all, 1+senders*each)
	for _, m := range all[1:] {
		require.Equal(t, acked[m.Seq], m.MessageID)
	}
	require.Equal(t, senders*each, batched, "each was in one batch")
	require.Zero(t, c.Count(c.Tables.Lane))
	require.Equal(t, int64(1+senders*each), c.Head(id).LastSeq)
	requireRuns(t, c.Head(id), all)
}

func requireRuns(t testing.TB, head chat.Conversation, all []chat.Message) {
	t.Helper()
	var runs chat.Runs
	for _, m := range all {
		runs = runs.With(m)
	}
	require.Equal(t, runs, head.Runs)
}

// Whatever goes wrong with the n-th call of any kind, and however: the sender hears
// its answer or BUSY, its retry hears the one result, and nothing is left behind that
// could come twice.
func TestG3G4_FailuresAtEveryStepOfTheLane(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	cases := 0
	for _, op := range []string{"PutItem", "GetItem", "Query", "TransactWriteItems", "TransactGetItems", "DeleteItem"} {
		for how, f := range map[string]fault{
			"not applied": dropped, "applied": unanswered, "conflict": conflicting, "throttle": throttled,
			"503": storetest.Gateway503, "504": storetest.Gateway504,
		} {
			for _, from := range []int{1, 2, 3} {
				for _, calls := range []int{1, 100} { // from then on one, or all
					if op != "TransactWriteItems" && calls > 1 && from > 1 {
						continue
					}
					cases++
					t.Run(fmt.Sprintf("%s %d+%d %s", op, from, calls, how), func(t *testing.T) {
						t.Parallel()
						ann, bob := "ann "+t.Name()[38:], "bob "+t.Name()[38:]
						id := laneOf(t, c, ann, bob)
						w := &wire{Rule: func(o string, n int) fault {
							if o == op && from <= n && n < from+calls {
								return f
							}
							return none
						}}
						ctx, cancel := contextFor(t, 800)
						defer cancel()
						m := chatIn(text(ann, "once", "hi"), id)
						first, err := c.Store(w).Append(ctx, m, "")
						if _, refused := errors.AsType[*chat.Error](err); refused {
							requireCode(t, chat.CodeBusy, err)
						}
						if err == nil {
							require.Len(t, messagesOf(ledger(t, c.Store(nil), bob, id), "once"), 1, "it was acked")
						}
						other := sendIn(t, c.Store(nil), bob, id, "other")
						again, retryErr := c.Store(nil).Append(t.Context(), m, "")
						require.NoError(t, retryErr)
						require.NotEqual(t, other.Seq, again.Seq)
						if err == nil {
							require.Equal(t, first.MessageID, again.MessageID)
							require.Equal(t, first.Seq, again.Seq)
						}
						all := ledger(t, c.Store(nil), bob, id)
						requireDense(t, all, 3)
						require.Len(t, messagesOf(all, "once"), 1)
						sendIn(t, c.Store(nil), bob, id, "last") // takes what is left out of the lane
						for _, left := range c.Scan(c.Tables.Lane) {
							require.NotContains(t, left, id)
						}
						all = ledger(t, c.Store(nil), bob, id)
						requireDense(t, all, 4)
						requireRuns(t, c.Head(id), all)
					})
				}
			}
		}
	}
	require.Positive(t, cases)
}

// Who died with its message in the lane is sent by the next who comes, as it was
// received, and its retry hears so.
func TestG3G4_TheDeadAreCommittedByOthers(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := laneOf(t, c, "ann", "bob")
	m := chatIn(chat.Message{
		SenderID: "ann", SenderDeviceID: "phone", ClientMsgID: "dead", MessageType: chat.TypeCustom, Text: "look", ClientTime: 7, Via: "conn",
		Data: json.RawMessage(`{"b":1, "a":[2]}`), ReplyTo: &chat.ReplyTo{Seq: 1, MessageID: ledger(t, c.Store(nil), "ann", id)[0].MessageID},
	}, id)
	leaveIntent(t, c, m, "")
	require.Len(t, ledger(t, c.Store(nil), "ann", id), 1)
	other := sendIn(t, c.Store(nil), "bob", id, "alive")
	require.Equal(t, 2, other.Batch)
	require.Equal(t, int64(3), other.Seq, "it was received after the other")
	all := ledger(t, c.Store(nil), "bob", id)
	requireDense(t, all, 3)
	got := all[1]
	require.NotEmpty(t, got.MessageID)
	require.Less(t, got.MessageID, other.MessageID)
	require.LessOrEqual(t, got.ServerTime, other.ServerTime)
	require.JSONEq(t, string(m.Data), string(got.Data))
	want := m
	want.Seq, want.MessageID, want.ServerTime, want.Data, want.Via = 2, got.MessageID, got.ServerTime, got.Data, got.Via
	want.Version, want.Status = 1, chat.StatusNormal
	require.Equal(t, want, got)
	require.Contains(t, fmt.Sprint(c.Raw(c.Tables.Messages, storetest.EntryKey(id, 2))["via"]), "conn", "its own connection is not pushed to")
	retry, err := c.Store(nil).Append(t.Context(), m, "")
	require.NoError(t, err)
	require.True(t, retry.Duplicate)
	require.Equal(t, got.MessageID, retry.MessageID)
	require.Equal(t, int64(2), retry.Seq)
	require.Zero(t, c.Count(c.Tables.Lane))
}

// Whose time is up takes the message out again, and then it is not sent for certain.
func TestG4_WithdrawnIsNotSent(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := laneOf(t, c, "ann", "bob")
	w := &wire{Rule: func(op string, _ int) fault {
		if op == "TransactWriteItems" {
			return conflicting
		}
		return none
	}}
	begin := time.Now()
	_, err := c.Store(w).Append(t.Context(), chatIn(text("ann", "1", "hi"), id), "")
	refusal := refused(t, chat.CodeBusy, err)
	require.Positive(t, refusal.Details[chat.DetailRetryAfter])
	require.Equal(t, "conversationId", refusal.Field, "not the sender is too fast")
	require.Less(t, time.Since(begin), 8*time.Second)
	require.Zero(t, c.Count(c.Tables.Lane), "nobody can commit it any more")
	other := sendIn(t, c.Store(nil), "bob", id, "2")
	require.Equal(t, int64(2), other.Seq)
	require.Equal(t, 2, c.Count(c.Tables.Idempotency))
	// Each request looks at its record and at both lanes, less often the longer it waits.
	calls, _ := w.Since(0)
	count := map[string]int{}
	for _, op := range calls {
		count[op]++
	}
	require.LessOrEqual(t, count["Query"], 2*(60+8), "%v", count)
	require.LessOrEqual(t, count["GetItem"], 60+8+1, "%v", count)
	require.LessOrEqual(t, count["TransactWriteItems"], 8, "%v", count)
	require.Equal(t, 1, count["PutItem"])
	require.Equal(t, 1, count["DeleteItem"])
}

// What is taken out between a combiner's look and its transaction is not committed: its
// owner was told so.
func TestG4_WhatWasWithdrawnIsNotCommitted(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := laneOf(t, c, "ann", "bob", "cy")
	leaveIntent(t, c, chatIn(text("bob", "withdrawn", "hi"), id), "")
	leaveIntent(t, c, chatIn(text("cy", "waits", "hi"), id), "")
	w := &wire{Cancel: func(request []byte) string {
		for _, lane := range []string{"#0", "#1"} {
			c.Delete(c.Tables.Lane, values{"laneId": string(id) + lane, "messageId": idOfSender(request, "bob")})
		}
		return ""
	}}
	r := sendIn(t, c.Store(w), "ann", id, "1")
	require.Equal(t, 2, r.Batch)
	all := ledger(t, c.Store(nil), "ann", id)
	requireDense(t, all, 3)
	require.Empty(t, messagesOf(all, "withdrawn"))
	require.Len(t, messagesOf(all, "waits"), 1)
}

// idOfSender finds the messageId of a sender's message in a transaction, "-" if there
// is none.
func idOfSender(request []byte, sender string) string {
	var tx struct {
		TransactItems []struct {
			Put struct {
				Item map[string]struct{ S string }
			}
		}
	}
	_ = json.Unmarshal(request, &tx)
	for _, part := range tx.TransactItems {
		if part.Put.Item["senderId"].S == sender {
			return part.Put.Item["messageId"].S
		}
	}
	return "-"
}

// One who sees nothing until its time is up, and finds its intent gone, was sent.
func TestG4_GoneWasCommitted(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := laneOf(t, c, "ann", "bob")
	var other store.Committed
	put, deleting := false, make(chan struct{})
	w := &wire{Rule: func(op string, _ int) fault {
		switch {
		case op == "DeleteItem":
			return none
		case op == "TransactGetItems" && put:
			return none
		case put:
			return dropped
		}
		put = op == "PutItem"
		return none
	}}
	go func() {
		defer close(deleting)
		for c.Count(c.Tables.Lane) == 0 {
			time.Sleep(time.Millisecond)
		}
		other = sendIn(t, c.Store(nil), "bob", id, "2")
	}()
	r, err := c.Store(w).Append(t.Context(), chatIn(text("ann", "1", "hi"), id), "")
	<-deleting
	require.NoError(t, err)
	require.False(t, r.Duplicate)
	require.Equal(t, int64(2), r.Seq)
	require.Equal(t, int64(3), other.Seq)
	require.Equal(t, r.MessageID, ledger(t, c.Store(nil), "bob", id)[1].MessageID)
}

// A right is that of the commit. Who is removed while waiting is not sent by others, and
// is refused; who stays a member is sent.
func TestG9_RightsAreVerifiedAnew(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := laneOf(t, c, "ann", "bob", "cy", "dan")
	leaveIntent(t, c, chatIn(text("bob", "1", "of one who goes"), id), "")
	leaveIntent(t, c, chatIn(text("cy", "1", "of one who stays"), id), "")
	must(t)(c.Store(nil).RemoveMembers(t.Context(), by("ann", "remove"), id, []string{"bob"}))
	sendIn(t, c.Store(nil), "dan", id, "2")
	all := ledger(t, c.Store(nil), "ann", id)
	requireDense(t, all, 3)
	require.Empty(t, messagesOf(all, "1"))
	_, err := c.Store(nil).Append(t.Context(), chatIn(text("bob", "1", "of one who goes"), id), "")
	requireCode(t, chat.CodeNotFound, err)
	again := sendInText(t, c.Store(nil), "cy", id, "1", "of one who stays")
	require.False(t, again.Duplicate)
	all = ledger(t, c.Store(nil), "ann", id)
	requireDense(t, all, 4)
	require.Equal(t, "cy", all[3].SenderID)
}

func sendInText(t testing.TB, s *store.Store, sender string, id chat.ConversationID, clientMsgID, body string) store.Committed {
	t.Helper()
	r, err := s.Append(t.Context(), chatIn(text(sender, clientMsgID, body), id), "")
	require.NoError(t, err)
	return r
}

// Those who wait while someone is removed: the owners verify anew, each by itself.
func TestG9_WhoWaitsDuringARemovalIsVerifiedAnew(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sender string
		code   chat.Code
	}{"one who is removed": {"bob ", chat.CodeNotFound}, "one who stays": {"cy ", ""}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			ann, bob, cy := "ann "+name, "bob "+name, "cy "+name
			id := laneOf(t, c, ann, bob, cy)
			removed := false
			w := &wire{}
			w.Cancel = func([]byte) string { // the removal comes before its first transaction
				if !removed {
					removed = true
					must(t)(c.Store(nil).RemoveMembers(t.Context(), by(ann, "remove"), id, []string{bob}))
				}
				return ""
			}
			r, err := c.Store(w).Append(t.Context(), chatIn(text(tc.sender+name, "1", "hi"), id), "")
			if tc.code != "" {
				requireCode(t, tc.code, err)
				requireDense(t, ledger(t, c.Store(nil), ann, id), 2)
			} else {
				require.NoError(t, err)
				require.Equal(t, int64(3), r.Seq)
			}
			require.Zero(t, c.Count(c.Tables.Lane))
		})
	}
}

// A join removes nobody, so all who wait stay verified.
func TestG9_AJoinLeavesTheLaneAsItIs(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := laneOf(t, c, "ann", "bob")
	leaveIntent(t, c, chatIn(text("bob", "1", "hi"), id), "")
	must(t)(c.Store(nil).AddMembers(t.Context(), by("ann", "add"), id, []string{"cy"}))
	require.Equal(t, 2, sendIn(t, c.Store(nil), "ann", id, "2").Batch)
}

// Two requests of one clientMsgId at once make one message; other content is refused.
func TestG3_OneClientMsgIDInTheLane(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := laneOf(t, c, "ann", "bob")
	const tries = 8
	committed, conflicts := make([]store.Committed, tries), make([]error, tries)
	require.NoError(t, parallel(2*tries, func(i int) (err error) {
		if i >= tries {
			_, conflicts[i-tries] = c.Store(nil).Append(t.Context(), chatIn(text("ann", "other", fmt.Sprint("content ", i)), id), "")
			return nil
		}
		committed[i], err = c.Store(nil).Append(t.Context(), chatIn(text("ann", "same", "hi"), id), "")
		return err
	}))
	originals, won := 0, 0
	for i := range tries {
		require.Equal(t, committed[0].MessageID, committed[i].MessageID)
		require.Equal(t, committed[0].Seq, committed[i].Seq)
		if !committed[i].Duplicate {
			originals++
		}
		if conflicts[i] == nil {
			won++
			continue
		}
		requireCode(t, chat.CodeIdempotencyConflict, conflicts[i])
	}
	require.Equal(t, 1, originals)
	require.Equal(t, 1, won)
	requireDense(t, ledger(t, c.Store(nil), "bob", id), 3)
	sendIn(t, c.Store(nil), "bob", id, "after")
	require.Zero(t, c.Count(c.Tables.Lane), "what was for nothing is dropped")
}

// What nobody can commit, or nobody of this version, stops no one.
func TestG10_PoisonDoesNotBlockTheLane(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := laneOf(t, c, "ann", "bob")
	leaveIntent(t, c, chatIn(text("bob", "good", "hi"), id), "")
	kinds := []func(in, message values){
		func(in, _ values) { in["format"] = 2 },
		func(in, _ values) { delete(in, "format") },
		func(in, _ values) { delete(in, "message") },
		func(in, _ values) { in["message"] = "text" },
		func(in, _ values) { in["fingerprint"] = "" },
		func(in, _ values) { in["removals"] = "many" },
		func(_, message values) { message["conversationId"] = "group:other" },
		func(_, message values) { message["messageId"] = "other" },
		func(_, message values) { message["senderId"] = "" },
		func(_, message values) { message["clientMsgId"] = "" },
		func(_, message values) { message["serverTime"] = 0 },
		func(_, message values) { message["text"] = strings.Repeat("x", 100_000) },
		func(_, message values) {
			message["messageType"], message["event"] = "event", values{"kind": "dissolve"}
		},
	}
	for i := range 3 * len(kinds) { // more than are read of a lane
		for _, lane := range []string{"#0", "#1"} {
			at := ulid.MustNew(ulid.Timestamp(time.Now().Add(-20*time.Second)), ulid.DefaultEntropy()).String()
			message := values{
				"conversationId": id, "messageId": at, "clientMsgId": at, "senderId": "bob", "messageType": "text", "text": "poison",
				"serverTime": 1, "version": 1, "status": "normal",
			}
			in := values{"laneId": string(id) + lane, "messageId": at, "format": 1, "removals": 1, "fingerprint": "f", "message": message}
			kinds[i%len(kinds)](in, message)
			c.Put(c.Tables.Lane, in)
		}
	}
	poison := c.Count(c.Tables.Lane) - 1
	for i := range 3 {
		require.LessOrEqual(t, sendIn(t, c.Store(nil), "ann", id, fmt.Sprint(i)).Attempts, 2)
	}
	all := ledger(t, c.Store(nil), "ann", id)
	require.Len(t, all, 4)
	for _, m := range all {
		require.NotContains(t, m.Text, "poison")
	}
	require.Equal(t, poison+1, c.Count(c.Tables.Lane))
}

// A batch that DynamoDB does not take as it is does not take its own sender down.
func TestG10_ABatchThatIsRefusedIsTriedAlone(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := laneOf(t, c, "ann", "bob")
	leaveIntent(t, c, chatIn(text("bob", "poison", "hi"), id), "")
	for name, answer := range map[string]string{
		"as a whole": `{"__type":"com.amazon.coral.validate#ValidationException","message":"no"}`,
		"by reasons": cancelledAnswer("None", "None", "None", "None", "ValidationError", "None", "None"),
	} {
		w := &wire{Cancel: func(request []byte) string {
			if storetest.ItemsOf(request) > 4 {
				return answer
			}
			return ""
		}}
		r := sendIn(t, c.Store(w), "ann", id, name)
		require.Equal(t, 1, r.Batch, name)
		require.Equal(t, 2, r.Attempts, name)
	}
}

// A batch has at most 33 messages, and about 300 write units.
func TestG10_ABatchIsBounded(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	for name, tc := range map[string]struct {
		body       string
		waiting    int
		batch, max int
	}{
		"by items": {"hi", 60, 33, 33},
		"by bytes": {strings.Repeat("é", 1700), 20, 5, 15},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ann, bob := "ann "+name, "bob "+name
			id := laneOf(t, c, ann, bob)
			require.NoError(t, parallel(tc.waiting, func(i int) error {
				if err := die(t, c, chatIn(text(bob, fmt.Sprint(i), tc.body), id), ""); !isBusy(err) {
					return fmt.Errorf("%d: %w", i, errors.Join(err, errors.New("it was to die")))
				}
				return nil
			}))
			waiting := strings.Count(strings.Join(c.Scan(c.Tables.Lane), "\n"), "laneId:"+string(id))
			require.Greater(t, waiting, tc.max)
			r := sendInText(t, c.Store(nil), ann, id, "own", tc.body)
			require.LessOrEqual(t, r.Batch, tc.max)
			require.GreaterOrEqual(t, r.Batch, tc.batch)
			n := 0
			for ; strings.Contains(strings.Join(c.Scan(c.Tables.Lane), "\n"), string(id)); n++ {
				sendInText(t, c.Store(nil), ann, id, fmt.Sprint("more", n), tc.body)
				require.Less(t, n, 20)
			}
			requireDense(t, ledger(t, c.Store(nil), ann, id), 1+waiting+1+n)
		})
	}
}

// Who loses to one that writes alone opens the lane, and whoever knows the head from
// before comes to it, too.
func TestG10_TheLaneIsOpenedToWhoWritesAlone(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := newGroup(t, c.Store(nil), chat.VisibleAll, "ann", "bob")
	lost := &wire{Rule: func(op string, n int) fault {
		if op == "TransactWriteItems" && n <= 3 { // one by itself, two by the lane
			return conflicting
		}
		return none
	}}
	bob := c.Store(lost)
	sendIn(t, bob, "bob", id, "late")
	calls, _ := lost.Since(0)
	opened := slices.Index(calls, "UpdateItem")
	require.Positive(t, opened, "%v", calls)
	require.Equal(t, 3, strings.Count(strings.Join(calls[:opened], " "), "TransactWriteItems"))
	require.Greater(t, c.Head(id).LaneUntil, time.Now().UnixMilli())

	// A change of the head that tells of the lane, and of nothing else.
	c.Set(c.Tables.Conversations, convKey(id), values{"laneUntil": 1})
	own := &wire{}
	ann := c.Store(own)
	sendIn(t, ann, "ann", id, "alone")
	c.Set(c.Tables.Conversations, convKey(id), values{"laneUntil": farFuture})
	_, before := own.Since(0)
	sendIn(t, ann, "ann", id, "by the lane")
	calls, _ = own.Since(before)
	require.Equal(t, []string{"TransactWriteItems", "PutItem"}, calls[:2])
	requireDense(t, ledger(t, ann, "bob", id), 4)
}

// What is put off is tried again with half of it, and those who come next begin there.
func TestG10_AThrottledBatchIsHalved(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := laneOf(t, c, "ann", "bob")
	for i := range 7 {
		leaveIntent(t, c, chatIn(text("bob", fmt.Sprint(i), "hi"), id), "")
	}
	w := &wire{Rule: func(op string, n int) fault {
		if op == "TransactWriteItems" && n == 1 {
			return throttled
		}
		return none
	}}
	require.Equal(t, 4, sendIn(t, c.Store(w), "ann", id, "own").Batch)
	require.Equal(t, 4, c.Head(id).LaneBatch)
	require.LessOrEqual(t, sendIn(t, c.Store(nil), "ann", id, "next").Batch, 4)
	require.Equal(t, 5, c.Head(id).LaneBatch)
}

// An intent that is older than any function runs is not sent any more.
func TestG10_OldIntentsAreLeftToTheTTL(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := laneOf(t, c, "ann", "bob")
	at := ulid.MustNew(ulid.Timestamp(time.Now().Add(-31*time.Second)), ulid.DefaultEntropy()).String()
	c.Put(c.Tables.Lane, values{
		"laneId": fmt.Sprintf("%s#%d", id, at[len(at)-1]%2), "messageId": at, "format": 1, "removals": 1, "fingerprint": "f", "message": values{
			"conversationId": id, "messageId": at, "clientMsgId": "old", "senderId": "bob", "messageType": "text", "text": "old",
			"serverTime": 1, "version": 1, "status": "normal",
		},
	})
	require.Equal(t, 1, sendIn(t, c.Store(nil), "ann", id, "new").Batch)
	require.Equal(t, 1, c.Count(c.Tables.Lane))
	leaveIntent(t, c, chatIn(text("bob", "dead", "hi"), id), "")
	for _, item := range c.Scan(c.Tables.Lane) {
		require.True(t, strings.Contains(item, "expiresAt") || strings.Contains(item, "old"), item)
	}
}

// A lane that cannot be written to takes nothing away: messages are written one by one.
func TestG10_WithoutALaneMessagesAreWrittenAlone(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := laneOf(t, c, "ann", "bob")
	w := &wire{Rule: func(op string, _ int) fault {
		if op == "PutItem" {
			return dropped
		}
		return none
	}}
	r := sendIn(t, c.Store(w), "ann", id, "1")
	require.Equal(t, int64(2), r.Seq)
	require.Zero(t, r.Batch)
}

// Only batches and collisions open a lane, for two seconds, at no further write.
func TestTheLaneOpensAfterACollision(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := newGroup(t, c.Store(nil), chat.VisibleAll, "ann", "bob")
	sendIn(t, c.Store(nil), "ann", id, "1")
	require.Zero(t, c.Head(id).LaneUntil)
	w := &wire{Rule: func(op string, n int) fault {
		if op == "TransactWriteItems" && n == 1 {
			return conflicting
		}
		return none
	}}
	before := time.Now()
	r := sendIn(t, c.Store(w), "ann", id, "2")
	require.Equal(t, 1, r.Batch)
	until := time.UnixMilli(c.Head(id).LaneUntil)
	require.WithinRange(t, until, before.Add(1900*time.Millisecond), time.Now().Add(2100*time.Millisecond))
	calls, _ := w.Since(0)
	require.Equal(t, 2, strings.Count(fmt.Sprint(calls), "TransactWriteItems"))
	require.Equal(t, 1, sendIn(t, c.Store(nil), "bob", id, "3").Batch, "the next one takes the lane at once")
}
