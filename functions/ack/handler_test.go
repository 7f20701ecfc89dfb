package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/push"
	"github.com/inorder-im/inorder/shared/route/routetest"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/wire"
)

// world is everything around the handler. The sample's caller is alice, on the
// connection self.
type world struct {
	acked   store.Acked
	cleared int64
	roster  []string
	conns   map[string][]string // connection ids by user
	posts   map[string]error    // what a post to a connection comes to; nil is well

	ackErr, clearErr, raiseErr, rosterErr, connErr error

	hidden string // whose connections cannot be read

	steps  []string
	frames map[string]string // posted, by connection
}

const self = "TWegAcC4EowCHnA="

func (w *world) step(format string, args ...any) {
	w.steps = append(w.steps, fmt.Sprintf(format, args...))
}

func (w *world) Ack(_ context.Context, userID string, id chat.ConversationID, want store.Watermarks) (store.Acked, error) {
	w.step("ack %s %s %d %d", userID, id, want.DeliveredSeq, want.ReadSeq)
	w.acked.Head.ConversationID = id
	return w.acked, w.ackErr
}

func (w *world) Clear(_ context.Context, userID string, id chat.ConversationID, throughSeq int64) (int64, bool, error) {
	w.step("clear %s %s %d", userID, id, throughSeq)
	return w.cleared, true, w.clearErr
}

func (w *world) Raise(_ context.Context, userID string, ids []chat.ConversationID) (int64, error) {
	w.step("raise %s %s", userID, strings.Trim(fmt.Sprint(ids), "[]"))
	return 77, w.raiseErr
}

func (w *world) Roster(_ context.Context, id chat.ConversationID) ([]chat.Member, error) {
	w.step("roster %s", id)
	members := make([]chat.Member, len(w.roster))
	for i, userID := range w.roster {
		members[i].UserID = userID
	}
	return members, w.rosterErr
}

func (w *world) Connections(ctx context.Context, userIDs []string) (map[string][]store.Connection, error) {
	w.step("connections")
	found := map[string][]store.Connection{}
	for _, userID := range userIDs {
		for _, id := range w.conns[userID] {
			found[userID] = append(found[userID], store.Connection{ID: id})
		}
	}
	if w.hidden != "" && slices.Contains(userIDs, w.hidden) {
		<-ctx.Done()
		delete(found, w.hidden)
		return found, &store.UnreadError{UserIDs: []string{w.hidden}, Err: ctx.Err()}
	}
	return found, w.connErr
}

func (w *world) Deliver(_ context.Context, deliveries []push.Delivery) []push.Outcome {
	w.frames = map[string]string{}
	outcomes := make([]push.Outcome, len(deliveries))
	for i, d := range deliveries {
		w.frames[d.ConnectionID] = string(bytes.Join(slices.Collect(d.Frames), []byte(" ")))
		outcomes[i].Err = w.posts[d.ConnectionID]
	}
	return outcomes
}

// serve returns the answer to a frame, or to the sample, and what was logged.
func serve(t *testing.T, w *world, body string) (answer, log string) {
	t.Helper()
	var logged bytes.Buffer
	lines := slog.NewJSONHandler(&logged, nil)
	h := handler{positions: w, pusher: w, log: slog.New(lines)}
	return routetest.Answer(t, lines, h.actions(), routetest.Frame(t, "ack", body)), logged.String()
}

// rose is watermarks of before that are now after.
func rose(before, after store.Watermarks, kind chat.Kind, members int) store.Acked {
	return store.Acked{Before: before, Watermarks: after, Head: chat.Conversation{Kind: kind, MemberCount: members}}
}

// crowd is n users: alice, who has two more devices, and others with one each.
func crowd(n int) (roster []string, conns map[string][]string) {
	roster = []string{"alice"}
	conns = map[string][]string{"alice": {"tablet", self, "laptop"}}
	for i := 1; i < n; i++ {
		userID := fmt.Sprintf("user%02d", i)
		roster = append(roster, userID)
		conns[userID] = []string{"phone of " + userID}
	}
	return roster, conns
}

func TestAckAnswersWhatIsInForce(t *testing.T) {
	t.Parallel()
	w := &world{acked: rose(store.Watermarks{DeliveredSeq: 41, ReadSeq: 39}, store.Watermarks{DeliveredSeq: 42, ReadSeq: 40}, chat.KindSingle, 2), roster: []string{"alice", "bob"}}
	id := chat.SingleID("alice", "bob")
	body, log := serve(t, w, "")
	require.Equal(t, `{"type":"reply","id":"r-11","action":"ack","result":{"deliveredSeq":42,"readSeq":40}}`, body)
	require.Equal(t, []string{"ack alice " + string(id) + " 42 40", "raise alice " + string(id), "roster " + string(id), "connections"}, w.steps)
	require.NotContains(t, log, "WARN")
	require.NotContains(t, log, "ERROR")
}

func TestAckRaisesTheSyncHeadForWhatWasRead(t *testing.T) {
	t.Parallel()
	const delivered, read, both = `"deliveredSeq":9`, `"readSeq":9`, `"deliveredSeq":9,"readSeq":9`
	for name, tc := range map[string]struct {
		fields        string
		before, after store.Watermarks
		raises        bool
	}{
		"read rose":                         {read, store.Watermarks{DeliveredSeq: 9, ReadSeq: 3}, store.Watermarks{DeliveredSeq: 9, ReadSeq: 9}, true},
		"both rose":                         {both, store.Watermarks{DeliveredSeq: 3, ReadSeq: 3}, store.Watermarks{DeliveredSeq: 9, ReadSeq: 9}, true},
		"read rose to the end":              {read, store.Watermarks{DeliveredSeq: 3, ReadSeq: 3}, store.Watermarks{DeliveredSeq: 5, ReadSeq: 5}, true},
		"delivered alone rose":              {delivered, store.Watermarks{DeliveredSeq: 3, ReadSeq: 3}, store.Watermarks{DeliveredSeq: 9, ReadSeq: 3}, false},
		"delivered at what is read":         {delivered, store.Watermarks{DeliveredSeq: 9, ReadSeq: 9}, store.Watermarks{DeliveredSeq: 9, ReadSeq: 9}, false},
		"read is further already":           {read, store.Watermarks{DeliveredSeq: 12, ReadSeq: 12}, store.Watermarks{DeliveredSeq: 12, ReadSeq: 12}, false},
		"a retry, which may not have noted": {read, store.Watermarks{DeliveredSeq: 9, ReadSeq: 9}, store.Watermarks{DeliveredSeq: 9, ReadSeq: 9}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{acked: rose(tc.before, tc.after, chat.KindGroup, 3)}
			body, _ := serve(t, w, `{"action":"ack","id":"r","conversationId":"group:1",`+tc.fields+`}`)
			require.Contains(t, body, `"type":"reply"`)
			require.Equal(t, tc.raises, slices.Contains(w.steps, "raise alice group:1"), w.steps)
		})
	}
}

// What did not rise is told too: it may have been acked when it was not for the
// others yet.
func TestAReceiptTellsWhatIsInForce(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		before, after store.Watermarks
		want          string // "" is no push
	}{
		"delivered": {store.Watermarks{DeliveredSeq: 3, ReadSeq: 3}, store.Watermarks{DeliveredSeq: 9, ReadSeq: 3}, `,"deliveredSeq":9,"readSeq":3`},
		"read":      {store.Watermarks{DeliveredSeq: 9, ReadSeq: 3}, store.Watermarks{DeliveredSeq: 9, ReadSeq: 9}, `,"deliveredSeq":9,"readSeq":9`},
		"the first": {store.Watermarks{}, store.Watermarks{DeliveredSeq: 9}, `,"deliveredSeq":9`},
		"both":      {store.Watermarks{DeliveredSeq: 3, ReadSeq: 3}, store.Watermarks{DeliveredSeq: 9, ReadSeq: 8}, `,"deliveredSeq":9,"readSeq":8`},
		"neither":   {store.Watermarks{DeliveredSeq: 9, ReadSeq: 9}, store.Watermarks{DeliveredSeq: 9, ReadSeq: 9}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{acked: rose(tc.before, tc.after, chat.KindGroup, 2), roster: []string{"alice", "bob"}, conns: map[string][]string{"bob": {"phone"}}}
			serve(t, w, `{"action":"ack","id":"r","conversationId":"group:1","deliveredSeq":9,"readSeq":9}`)
			if tc.want == "" {
				require.Nil(t, w.frames)
				require.NotContains(t, w.steps, "roster group:1")
				return
			}
			require.Equal(t, map[string]string{"phone": `{"type":"receipt","conversationId":"group:1","userId":"alice"` + tc.want + `}`}, w.frames)
		})
	}
}

func TestWhoHearsOfAReceipt(t *testing.T) {
	t.Parallel()
	own := []string{"laptop", "tablet"}
	for name, tc := range map[string]struct {
		kind    chat.Kind
		members int // by the head
		roster  int // by the roster
		former  bool
		senders []string // of the entries
		others  int      // who hear of it
	}{
		"two people":                        {kind: chat.KindSingle, members: 2, roster: 2, senders: []string{"user01", "alice"}, others: 1},
		"a stranger":                        {kind: chat.KindSingle, members: 2, roster: 2, senders: []string{"user01", "user01"}},
		"a stranger whom alice writes to":   {kind: chat.KindSingle, members: 2, roster: 2, senders: []string{"alice"}},
		"two whom the product introduced":   {kind: chat.KindSingle, members: 2, roster: 2, senders: []string{chat.SystemSender}, others: 1},
		"two with a head from before":       {kind: chat.KindSingle, members: 2, roster: 2, others: 1},
		"one person's notes":                {kind: chat.KindSingle, members: 1, roster: 1},
		"a small group":                     {kind: chat.KindGroup, members: 20, roster: 20, others: 19},
		"a small group of which two wrote":  {kind: chat.KindGroup, members: 20, roster: 20, senders: slices.Concat(slices.Repeat([]string{"user01"}, 5), slices.Repeat([]string{"user02"}, 3), []string{"alice"}), others: 2},
		"a small group, all of it by alice": {kind: chat.KindGroup, members: 20, roster: 20, senders: slices.Repeat([]string{"alice"}, 9)},
		"a small group whose head is short": {kind: chat.KindGroup, members: 20, roster: 20, senders: []string{"user01"}, others: 19},
		"a large group":                     {kind: chat.KindGroup, members: 21, roster: 21},
		"a group that has grown meanwhile":  {kind: chat.KindGroup, members: 20, roster: 21},
		"a group that has shrunk meanwhile": {kind: chat.KindGroup, members: 20, roster: 3, others: 2},
		"a system conversation":             {kind: chat.KindSystem, members: 3, roster: 3},
		"a former member":                   {kind: chat.KindGroup, members: 3, roster: 4, former: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{acked: rose(store.Watermarks{}, store.Watermarks{DeliveredSeq: 9}, tc.kind, tc.members)}
			for i, sender := range tc.senders {
				w.acked.Head.Runs = w.acked.Head.Runs.With(chat.Message{SenderID: sender, Seq: int64(i + 1)})
			}
			w.roster, w.conns = crowd(tc.roster)
			want := slices.Clone(own)
			for _, userID := range w.roster[1 : 1+tc.others] {
				want = append(want, w.conns[userID]...)
			}
			if tc.former {
				w.roster = w.roster[1:]
			}
			body, _ := serve(t, w, `{"action":"ack","id":"r","conversationId":"group:1","deliveredSeq":9}`)
			require.Contains(t, body, `"type":"reply"`)
			var got []string
			for id := range w.frames {
				got = append(got, id)
			}
			require.ElementsMatch(t, want, got, "and never the connection that acked")
		})
	}
}

// What was committed is answered, whoever could not be told.
func TestAPushFailsNoAck(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spoil func(*world)
		warns int
	}{
		"no roster":         {func(w *world) { w.rosterErr = errors.New("no table") }, 1},
		"no connections":    {func(w *world) { w.connErr = errors.New("no table") }, 1},
		"a failing post":    {func(w *world) { w.posts = map[string]error{"phone of user01": errors.New("slow")} }, 1},
		"a gone connection": {func(w *world) { w.posts = map[string]error{"phone of user01": push.ErrGone} }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{acked: rose(store.Watermarks{}, store.Watermarks{DeliveredSeq: 9, ReadSeq: 9}, chat.KindSingle, 2)}
			w.roster, w.conns = crowd(2)
			tc.spoil(w)
			body, log := serve(t, w, "")
			require.Contains(t, body, `"result":{"deliveredSeq":9,"readSeq":9}`)
			require.Equal(t, tc.warns, strings.Count(log, `"level":"WARN"`), log)
		})
	}
}

// One whose connections cannot be read, as their partition is throttled, keeps neither the
// answer nor the others' pushes.
func TestG10_WhoseConnectionsCannotBeReadHoldsUpNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{acked: rose(store.Watermarks{}, store.Watermarks{DeliveredSeq: 9, ReadSeq: 9}, chat.KindSingle, 2), hidden: "user01"}
		w.roster, w.conns = crowd(2)
		start := time.Now()
		body, _ := serve(t, w, "")
		require.Contains(t, body, `"result":{"deliveredSeq":9,"readSeq":9}`)
		require.LessOrEqual(t, time.Since(start), time.Second)
		require.ElementsMatch(t, []string{"tablet", "laptop"}, slices.Collect(maps.Keys(w.frames)))
	})
}

func TestClear(t *testing.T) {
	t.Parallel()
	const hint = `{"type":"changed","syncCursor":77}`
	for name, tc := range map[string]struct {
		through int
		cleared int64
		tells   bool
	}{
		"as asked":                        {5, 5, true},
		"to the end, which is nearer":     {9, 5, true},
		"what is cleared further already": {3, 5, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{cleared: tc.cleared}
			_, w.conns = crowd(2)
			body, _ := serve(t, w, fmt.Sprintf(`{"action":"clear","id":"r","conversationId":"group:1","throughSeq":%d}`, tc.through))
			require.Equal(t, fmt.Sprintf(`{"type":"reply","id":"r","action":"clear","result":{"clearedSeq":%d}}`, tc.cleared), body)
			want := []string{fmt.Sprintf("clear alice group:1 %d", tc.through)}
			if tc.tells {
				want = append(want, "raise alice group:1", "connections")
				require.Equal(t, map[string]string{"tablet": hint, "laptop": hint}, w.frames, "only the user's other devices")
			}
			require.Equal(t, want, w.steps)
		})
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ body, field string }{
		"ack without conversation":      {`"action":"ack","readSeq":1`, "conversationId"},
		"ack of no kind":                {`"action":"ack","readSeq":1,"conversationId":"x:1"`, "conversationId"},
		"ack of a number":               {`"action":"ack","readSeq":1,"conversationId":1`, "conversationId"},
		"ack of nothing":                {`"action":"ack","conversationId":"group:1"`, "readSeq"},
		"ack of nulls":                  {`"action":"ack","conversationId":"group:1","readSeq":null,"deliveredSeq":null`, "readSeq"},
		"ack of read 0":                 {`"action":"ack","conversationId":"group:1","readSeq":0`, "readSeq"},
		"ack of delivered 0":            {`"action":"ack","conversationId":"group:1","deliveredSeq":0,"readSeq":1`, "deliveredSeq"},
		"ack of a negative":             {`"action":"ack","conversationId":"group:1","deliveredSeq":-1`, "deliveredSeq"},
		"ack of read 2^53":              {`"action":"ack","conversationId":"group:1","readSeq":9007199254740992`, "readSeq"},
		"ack of delivered 2^53":         {`"action":"ack","conversationId":"group:1","deliveredSeq":9007199254740992`, "deliveredSeq"},
		"ack of a fraction":             {`"action":"ack","conversationId":"group:1","readSeq":1.5`, "readSeq"},
		"ack of a string":               {`"action":"ack","conversationId":"group:1","deliveredSeq":"1"`, "deliveredSeq"},
		"clear without conversation":    {`"action":"clear","throughSeq":1`, "conversationId"},
		"clear of no kind":              {`"action":"clear","throughSeq":1,"conversationId":"group:"`, "conversationId"},
		"clear through nothing":         {`"action":"clear","conversationId":"group:1"`, "throughSeq"},
		"clear through null":            {`"action":"clear","conversationId":"group:1","throughSeq":null`, "throughSeq"},
		"clear through 0":               {`"action":"clear","conversationId":"group:1","throughSeq":0`, "throughSeq"},
		"clear through 2^53":            {`"action":"clear","conversationId":"group:1","throughSeq":9007199254740992`, "throughSeq"},
		"clear through true":            {`"action":"clear","conversationId":"group:1","throughSeq":true`, "throughSeq"},
		"clear through an exponent's 1": {`"action":"clear","conversationId":"group:1","throughSeq":1e0`, "throughSeq"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{}
			body, _ := serve(t, w, `{"id":"r",`+tc.body+`}`)
			e := refusalOf(t, body)
			require.Equal(t, chat.CodeBadRequest, e.Code, e.Message)
			require.Equal(t, tc.field, e.Field, e.Message)
			require.Empty(t, w.steps)
		})
	}
	requests := map[string]string{
		"ack":   `{"action":"ack","id":"r","conversationId":"group:1","readSeq":9}`,
		"clear": `{"action":"clear","id":"r","conversationId":"group:1","throughSeq":9}`,
	}
	for action, body := range requests {
		t.Run(action+" as the store refuses it", func(t *testing.T) {
			t.Parallel()
			no := chat.FieldErrorf(chat.CodeNotFound, "conversationId", "no such")
			w := &world{ackErr: no, clearErr: no}
			answer, _ := serve(t, w, body)
			require.Equal(t, wire.Error{Code: chat.CodeNotFound, Field: "conversationId", Message: "no such"}, refusalOf(t, answer))
			require.Len(t, w.steps, 1, "nothing is noted, and no one is told")
		})
		t.Run(action+" that could not be noted", func(t *testing.T) {
			t.Parallel()
			w := &world{acked: rose(store.Watermarks{}, store.Watermarks{DeliveredSeq: 9, ReadSeq: 9}, chat.KindGroup, 2), cleared: 9, raiseErr: errors.New("no table")}
			answer, log := serve(t, w, body)
			e := refusalOf(t, answer)
			require.Equal(t, chat.CodeInternal, e.Code)
			require.True(t, e.Retryable, "so that the retry notes it")
			require.Contains(t, log, "no table")
			require.NotContains(t, w.steps, "connections")
		})
	}
}

func refusalOf(t *testing.T, body string) wire.Error {
	t.Helper()
	var f wire.ErrorReply
	require.NoError(t, json.Unmarshal([]byte(body), &f))
	require.Equal(t, wire.TypeError, f.Type, body)
	return f.Error
}
