package store_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/internal/storetest"
)

func isBusy(err error) bool {
	refusal, ok := errors.AsType[*chat.Error](err)
	return ok && refusal.Code == chat.CodeBusy
}

func TestG1G2_SeqsAreDenseUnderConcurrentSenders(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	const senders, each = 16, 15
	var mu sync.Mutex
	acked := map[int64]string{}
	err := parallel(senders, func(i int) error {
		s := c.Store(nil)
		sender, to := "alice", "bob"
		if i%2 == 1 {
			sender, to = to, sender
		}
		last := int64(0)
		for n := range each {
			m := text(sender, fmt.Sprintf("%d-%d", i, n), "hi")
			r, err := s.Append(t.Context(), m, to)
			for isBusy(err) { // who is told so sends again
				r, err = s.Append(t.Context(), m, to)
			}
			if err != nil {
				return err
			}
			if r.Seq <= last {
				return fmt.Errorf("seq %d was committed after %d", r.Seq, last)
			}
			last = r.Seq
			mu.Lock()
			acked[r.Seq] = r.MessageID
			mu.Unlock()
		}
		return nil
	})
	require.NoError(t, err)
	all := ledger(t, c.Store(nil), "bob", chat.SingleID("alice", "bob"))
	requireDense(t, all, senders*each)
	require.Len(t, acked, senders*each)
	for _, m := range all {
		require.Equal(t, acked[m.Seq], m.MessageID)
	}
}

func TestG3_OneClientMsgIDMakesOneMessage(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	const tries = 20
	committed := make([]store.Committed, tries)
	err := parallel(tries, func(i int) error {
		var err error
		committed[i], err = c.Store(nil).Append(t.Context(), text("alice", "same", "hi"), "bob")
		return err
	})
	require.NoError(t, err)
	duplicates := 0
	for i := range committed {
		if committed[i].Duplicate {
			duplicates++
		}
		committed[i].Duplicate, committed[i].Attempts = false, 0
		require.Equal(t, committed[0], committed[i])
	}
	require.Equal(t, tries-1, duplicates)
	requireDense(t, ledger(t, c.Store(nil), "alice", chat.SingleID("alice", "bob")), 1)
	require.Equal(t, 1, c.Count(c.Tables.Messages))
	require.Equal(t, 1, c.Count(c.Tables.Idempotency))
}

func TestG3_OtherContentUnderTheSameClientMsgIDIsRefused(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	first := send(t, s, "alice", "bob", "same")
	for name, second := range map[string]struct {
		m  chat.Message
		to string
	}{
		"other text":         {text("alice", "same", "something else"), "bob"},
		"other conversation": {text("alice", "same", "text of same"), "carol"},
	} {
		_, err := s.Append(t.Context(), second.m, second.to)
		var refusal *chat.Error
		require.ErrorAs(t, err, &refusal, name)
		require.Equal(t, chat.CodeIdempotencyConflict, refusal.Code, name)
		require.Equal(t, first.MessageID, refusal.Details["messageId"], name)
		require.Equal(t, first.Seq, refusal.Details["seq"], name)
	}
	// Another sender's clientMsgId is another key.
	require.False(t, send(t, s, "bob", "alice", "same").Duplicate)
}

// Each pair: the same fault, once before the transaction and once after it.
func TestG3G4_FailedNotAppliedAndFailedYetApplied(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fault fault
		times int
	}{
		"failed, not applied":               {dropped, 1},
		"failed, yet applied":               {unanswered, 1},
		"failed, not applied, three times":  {dropped, 3},
		"failed, yet applied, then dropped": {unanswered, 3},
		"503 from before DynamoDB":          {storetest.Gateway503, 1},
		"504 from before DynamoDB":          {storetest.Gateway504, 1},
	} {
		for _, first := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, first message %v", name, first), func(t *testing.T) {
				t.Parallel()
				c := newCloud(t)
				w := &wire{}
				s := c.Store(w)
				want := int64(1)
				if !first {
					send(t, s, "alice", "bob", "before")
					want = 2
				}
				w.Set(func(op string, n int) fault {
					if op == "TransactWriteItems" && n <= tc.times {
						return tc.fault
					}
					return none
				})
				r := send(t, s, "alice", "bob", "broken")
				require.Equal(t, want, r.Seq)
				require.False(t, r.Duplicate, "it is this request's own message")
				after := send(t, s, "alice", "bob", "after")
				require.Equal(t, want+1, after.Seq)
				all := ledger(t, s, "bob", r.ConversationID)
				requireDense(t, all, int(want)+1)
				require.Equal(t, r.MessageID, all[want-1].MessageID)
			})
		}
	}
}

// The client hears nothing, because every answer is lost; its retry through
// another environment gets the one result.
func TestG3G4_RetryAfterAFunctionDiedInMidFlight(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"failed, not applied": dropped, "failed, yet applied": unanswered} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			w := &wire{Rule: func(op string, _ int) fault {
				if op == "TransactWriteItems" {
					return f
				}
				return none
			}}
			ctx, cancel := contextFor(t, 400)
			defer cancel()
			_, err := c.Store(w).Append(ctx, text("alice", "once", "text of once"), "bob")
			require.Equal(t, chat.CodeBusy, chat.CodeOf(err), "%v", err)
			require.True(t, chat.CodeOf(err).Retryable())
			r := send(t, c.Store(nil), "alice", "bob", "once")
			require.Equal(t, int64(1), r.Seq)
			require.Equal(t, f == unanswered, r.Duplicate)
			requireDense(t, ledger(t, c.Store(nil), "bob", r.ConversationID), 1)
		})
	}
}

func TestUncontendedSendIsOneTransactionAndNoRead(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	w := &wire{}
	s := c.Store(w)
	send(t, s, "alice", "bob", "1")
	calls, n := w.Since(0)
	require.Equal(t, []string{"GetItem", "TransactWriteItems"}, calls, "the first message looks for the head")
	for i := range 5 {
		r := send(t, s, "alice", "bob", fmt.Sprint("warm", i))
		calls, n = w.Since(n)
		require.Equal(t, []string{"TransactWriteItems"}, calls)
		require.Equal(t, 1, r.Attempts)
	}
	r, err := s.Append(t.Context(), chatIn(text("bob", "b1", "hi"), chat.SingleID("alice", "bob")), "")
	require.NoError(t, err)
	calls, n = w.Since(n)
	require.Equal(t, []string{"TransactGetItems", "TransactWriteItems"}, calls, "bob is not known to be a member yet")
	require.Equal(t, int64(7), r.Seq)
	_, err = s.Append(t.Context(), chatIn(text("bob", "b2", "hi"), chat.SingleID("alice", "bob")), "")
	require.NoError(t, err)
	calls, _ = w.Since(n)
	require.Equal(t, []string{"TransactWriteItems"}, calls)
}

// A stale copy costs one failed transaction once; then the head is read first,
// which is cheaper, until no one else writes any more.
func TestAStaleHeadIsNotedAndReadNextTime(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	w := &wire{}
	mine, other := c.Store(w), c.Store(nil)
	send(t, mine, "alice", "bob", "1")
	send(t, other, "bob", "alice", "2")
	_, n := w.Since(0)
	r := send(t, mine, "alice", "bob", "3")
	require.Equal(t, int64(3), r.Seq)
	calls, n := w.Since(n)
	require.Equal(t, []string{"TransactWriteItems", "TransactWriteItems"}, calls, "the failed condition brought the head")
	send(t, other, "bob", "alice", "4")
	send(t, mine, "alice", "bob", "5")
	calls, n = w.Since(n)
	require.Equal(t, []string{"GetItem", "TransactWriteItems"}, calls)
	send(t, mine, "alice", "bob", "6")
	calls, n = w.Since(n)
	require.Equal(t, []string{"GetItem", "TransactWriteItems"}, calls, "the head was as remembered")
	send(t, mine, "alice", "bob", "7")
	calls, _ = w.Since(n)
	require.Equal(t, []string{"TransactWriteItems"}, calls)
}

func TestCommittedTellsWhatARequestTook(t *testing.T) {
	t.Parallel()
	type effort struct{ attempts, conflicts, throttles int }
	of := func(r store.Committed) effort { return effort{r.Attempts, r.Conflicts, r.Throttles} }

	for name, tc := range map[string]struct {
		fault fault
		times int
		want  effort
	}{
		"no fault":      {none, 0, effort{1, 0, 0}},
		"conflicts":     {conflicting, 2, effort{3, 2, 0}},
		"throttles":     {throttled, 2, effort{3, 0, 2}},
		"lost requests": {dropped, 2, effort{3, 0, 0}},
		"a lost answer": {unanswered, 1, effort{2, 0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &wire{Rule: func(op string, n int) fault {
				if op == "TransactWriteItems" && n <= tc.times {
					return tc.fault
				}
				return none
			}}
			require.Equal(t, tc.want, of(send(t, newCloud(t).Store(w), "alice", "bob", "1")))
		})
	}

	t.Run("another writer, and a retry", func(t *testing.T) {
		t.Parallel()
		c := newCloud(t)
		mine, other := c.Store(nil), c.Store(nil)
		send(t, mine, "alice", "bob", "1")
		send(t, other, "bob", "alice", "2")
		require.Equal(t, effort{2, 1, 0}, of(send(t, mine, "alice", "bob", "3")))
		retry := send(t, mine, "alice", "bob", "3")
		require.True(t, retry.Duplicate)
		require.Equal(t, effort{1, 0, 0}, of(retry), "to find the first result is no conflict")
	})

	t.Run("in vain", func(t *testing.T) {
		t.Parallel()
		w := &wire{Rule: func(op string, _ int) fault {
			if op == "TransactWriteItems" {
				return conflicting
			}
			return none
		}}
		ctx, cancel := contextFor(t, 400)
		defer cancel()
		r, err := newCloud(t).Store(w).Append(ctx, text("alice", "1", "hi"), "bob")
		requireCode(t, chat.CodeBusy, err)
		require.Positive(t, r.Attempts)
		require.InDelta(t, r.Attempts, r.Conflicts, 1, "the time may be up in the middle of the last")
		require.Equal(t, store.Committed{Effort: r.Effort}, r)
	})
}

func TestSendCosts(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	var bill storetest.Bill
	options := c.DB.Options()
	options.APIOptions = append(options.APIOptions, bill.Charge)
	s := store.New(dynamodb.New(options), c.Tables)
	send(t, s, "alice", "bob", "1")
	bill = storetest.Bill{}
	send(t, s, "alice", "bob", "2")
	require.InDelta(t, 7, bill.Writes, 0, "head 2, message 2 and its index 1, idempotency record 2")
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	single := send(t, s, "alice", "bob", "1").ConversationID
	c.Put(c.Tables.Conversations, map[string]any{
		"conversationId": "system:order:1", "kind": "system", "lastSeq": 1, "membersVersion": 1, "state": "active",
	})
	c.Put(c.Tables.Members, map[string]any{"conversationId": "system:order:1", "userId": "alice"})
	c.Put(c.Tables.Conversations, map[string]any{
		"conversationId": "group:1", "kind": "group", "lastSeq": 1, "membersVersion": 1, "state": "dissolved",
	})
	c.Put(c.Tables.Members, map[string]any{"conversationId": "group:1", "userId": "alice"})
	for name, tc := range map[string]struct {
		sender       string
		conversation chat.ConversationID
		code         chat.Code
	}{
		"unknown conversation": {"alice", chat.SingleID("x", "y"), chat.CodeNotFound},
		"stranger":             {"mallory", single, chat.CodeNotFound},
		"system conversation":  {"alice", "system:order:1", chat.CodeForbidden},
		"system, stranger":     {"mallory", "system:order:1", chat.CodeNotFound},
		"dissolved":            {"alice", "group:1", chat.CodeDissolved},
		"dissolved, stranger":  {"mallory", "group:1", chat.CodeNotFound},
	} {
		_, err := s.Append(t.Context(), chatIn(text(tc.sender, "r-"+name, "hi"), tc.conversation), "")
		require.Equal(t, tc.code, chat.CodeOf(err), "%s: %v", name, err)
	}
	require.Equal(t, 1, c.Count(c.Tables.Messages))
	require.Equal(t, 1, c.Count(c.Tables.Idempotency))
}

// Who may no longer send still gets the result of what was sent.
func TestG3_RetryAfterTheRightWasLost(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	first := send(t, s, "alice", "bob", "1")
	_, err := c.DB.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{
		TableName: &c.Tables.Members, Key: map[string]types.AttributeValue{
			"conversationId": &types.AttributeValueMemberS{Value: string(first.ConversationID)},
			"userId":         &types.AttributeValueMemberS{Value: "alice"},
		},
	})
	require.NoError(t, err)
	retry, err := c.Store(nil).Append(t.Context(), chatIn(text("alice", "1", "text of 1"), first.ConversationID), "")
	require.NoError(t, err)
	require.True(t, retry.Duplicate)
	require.Equal(t, first.MessageID, retry.MessageID)
	_, err = c.Store(nil).Append(t.Context(), chatIn(text("alice", "2", "hi"), first.ConversationID), "")
	require.Equal(t, chat.CodeNotFound, chat.CodeOf(err))
}

// A head that fell behind its ledger must not overwrite, nor spin.
func TestAHeadBehindItsLedgerIsAFault(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := send(t, s, "alice", "bob", "1").ConversationID
	kept := send(t, s, "alice", "bob", "2")
	_, err := c.DB.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
		TableName:                 &c.Tables.Conversations,
		Key:                       map[string]types.AttributeValue{"conversationId": &types.AttributeValueMemberS{Value: string(id)}},
		UpdateExpression:          new("SET lastSeq = :one"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":one": &types.AttributeValueMemberN{Value: "1"}},
	})
	require.NoError(t, err)
	_, err = c.Store(nil).Append(t.Context(), text("alice", "3", "hi"), "bob")
	require.ErrorContains(t, err, "behind its ledger")
	require.Equal(t, chat.CodeInternal, chat.CodeOf(err))
	require.NotEmpty(t, kept.MessageID)
}

// A cancelled transaction tells of each item by itself, in any mixture. Only what
// was judged counts: a head that met a conflict or a throttle is not known to be
// behind its ledger, whatever is said of the message.
func TestG4_MixedReasonsAreReadByWhatWasJudged(t *testing.T) {
	t.Parallel()
	const failed = "ConditionalCheckFailed"
	codes := []string{"None", failed, "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}
	c := newCloud(t)
	type mixture struct{ head, message, record string }
	var mixtures []mixture
	for _, head := range codes {
		for _, message := range codes {
			for _, record := range codes {
				mixtures = append(mixtures, mixture{head, message, record})
			}
		}
	}
	for name, write := range map[string]func(s *store.Store, user string, id chat.ConversationID) (store.Committed, error){
		"a message": func(s *store.Store, user string, id chat.ConversationID) (store.Committed, error) {
			return s.Append(t.Context(), chatIn(text(user, "1", "hi"), id), "")
		},
		"a change of the roster": func(s *store.Store, user string, id chat.ConversationID) (store.Committed, error) {
			return s.AddMembers(t.Context(), by(user, "1"), id, []string{"new"})
		},
	} {
		require.NoError(t, parallel(len(mixtures), func(i int) error {
			m, user := mixtures[i], fmt.Sprintf("user %d", i)
			id := newGroup(t, c.Store(nil), chat.VisibleAll, user+name)
			transactions := 0
			w := &wire{Cancel: func(request []byte) string {
				if transactions++; transactions > 1 {
					return ""
				}
				reasons := []string{m.head, m.message, m.record}
				for more := 3; more < storetest.ItemsOf(request); more++ {
					reasons = append(reasons, codes[(i+more)%len(codes)])
				}
				if m == (mixture{"None", "None", "None"}) {
					reasons[0] = "TransactionConflict" // something was the matter
				}
				if reasons[0] == failed {
					reasons[0] += ` {"conversationId":{"S":"` + string(id) + `"},"kind":{"S":"group"},"lastSeq":{"N":"1"},"membersVersion":{"N":"1"},"memberCount":{"N":"1"},"state":{"S":"active"}}`
				}
				if reasons[2] == failed {
					reasons[2] += ` {"messageId":{"S":"first"},"fingerprint":{"S":"of other content"},"seq":{"N":"1"}}`
				}
				return cancelledAnswer(reasons...)
			}}
			r, err := write(c.Store(w), user+name, id)
			want, tries := chat.Code(""), 2
			switch {
			case m.record == failed:
				want, tries = chat.CodeIdempotencyConflict, 1
			case m.head == "None" && m.message == failed:
				want, tries = chat.CodeInternal, 1
			}
			switch {
			case want == "" && (err != nil || r.Seq != 2):
				return fmt.Errorf("%s with %v: seq %d, %w", name, m, r.Seq, err)
			case want != "" && (err == nil || chat.CodeOf(err) != want):
				return fmt.Errorf("%s with %v: %w instead of %s", name, m, err, want)
			case transactions != tries:
				return fmt.Errorf("%s with %v took %d transactions", name, m, transactions)
			}
			return nil
		}))
	}
}

// A head that is damaged is a fault that is told once, with what it is. It used to
// be created again, in vain, until the time was up.
func TestG10_ADamagedHeadFailsAtOnce(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	for name, lastSeq := range map[string]any{"0": 0, "below 0": -3, "missing": nil, "a text": "12"} {
		ann, bob := "ann "+name, "bob "+name
		group := newGroup(t, s, chat.VisibleAll, ann, bob)
		single := send(t, s, ann, bob, "1").ConversationID
		system := chat.SystemID(name)
		publish := func(s *store.Store, key string) (store.Committed, error) {
			return s.Publish(t.Context(), store.Publication{
				Key: name, Title: "T", Recipients: []string{ann, bob}, ClientMsgID: name + key, Message: chat.Message{MessageType: chat.TypeSystem, Text: "x"},
			})
		}
		must(t)(publish(s, "1"))
		w := &wire{}
		warm := c.Store(w)
		sendIn(t, warm, ann, group, "warm")
		must(t)(warm.Append(t.Context(), text(ann, "warm single", "hi"), bob))
		for _, id := range []chat.ConversationID{group, single, system} {
			c.Set(c.Tables.Conversations, convKey(id), values{"lastSeq": lastSeq})
		}
		cold := &wire{}
		for _, env := range []struct {
			wire *wire
			*store.Store
		}{{w, warm}, {cold, c.Store(cold)}, {cold, c.Store(cold)}} {
			for what, write := range map[string]func() (store.Committed, error){
				string(group): func() (store.Committed, error) {
					return env.Append(t.Context(), chatIn(text(ann, "2", "hi"), group), "")
				},
				string(single): func() (store.Committed, error) { return env.Append(t.Context(), text(ann, "3", "hi"), bob) },
				string(system): func() (store.Committed, error) { return publish(env.Store, "2") },
				string(group) + " ": func() (store.Committed, error) {
					return env.AddMembers(t.Context(), by(ann, "4"), group, []string{"cy"})
				},
				string(single) + " ": func() (store.Committed, error) { return env.OpenSingle(t.Context(), ann, bob) },
			} {
				_, n := env.wire.Since(0)
				_, err := write()
				require.Error(t, err, "%s with lastSeq %s", what, name)
				require.Equal(t, chat.CodeInternal, chat.CodeOf(err), "%s with lastSeq %s: %v", what, name, err)
				if name != "a text" {
					require.ErrorContains(t, err, "the head of "+strings.TrimSpace(what)+" is damaged")
				}
				calls, _ := env.wire.Since(n)
				require.LessOrEqual(t, len(calls), 3, "%s with lastSeq %s: %v", what, name, calls)
			}
		}
	}
}

// The last seq that every JSON reader keeps exact is given out, and none after it.
func TestG2_NoSeqIsGivenOutBeyondTheLast(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob")
	c.Set(c.Tables.Conversations, convKey(id), values{"lastSeq": int64(chat.MaxSeq) - 1})
	last := sendIn(t, s, "ann", id, "last")
	require.Equal(t, int64(chat.MaxSeq), last.Seq)
	for name, env := range map[string]*store.Store{"warm": s, "cold": c.Store(nil)} {
		_, err := env.Append(t.Context(), chatIn(text("bob", "1", "hi"), id), "")
		require.Equal(t, int64(chat.MaxSeq), refused(t, chat.CodeLimit, err, name).Details["max"])
		_, err = env.Leave(t.Context(), by("bob", "2"), id)
		requireCode(t, chat.CodeLimit, err, name)
		retry := sendIn(t, env, "ann", id, "last")
		require.True(t, retry.Duplicate, name)
		require.Equal(t, last.MessageID, retry.MessageID, name)
	}
	require.Equal(t, int64(chat.MaxSeq), c.Head(id).LastSeq)
}

func TestNotesAreAConversationOfOne(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	r := send(t, s, "alice", "alice", "1")
	require.Equal(t, int64(2), send(t, s, "alice", "alice", "2").Seq)
	requireDense(t, ledger(t, s, "alice", r.ConversationID), 2)
	members, err := s.Roster(t.Context(), r.ConversationID)
	require.NoError(t, err)
	require.Len(t, members, 1)
	lines, _, err := s.List(t.Context(), "alice", "", 10)
	require.NoError(t, err)
	require.Len(t, lines, 1)
	require.Equal(t, "alice", lines[0].Peer)
}
