package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/letter"
	"github.com/inorder-im/inorder/shared/push"
	"github.com/inorder-im/inorder/shared/route/routetest"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/wire"
)

const now = 1795950400000 // ms, two minutes after the sample

// world is everything around the handler: ledgers, rosters, sync heads,
// connections and sockets.
type world struct {
	heads       map[chat.ConversationID]chat.Conversation // their rosters' versions and sizes
	rosters     map[chat.ConversationID][]chat.Member
	ledgers     map[chat.ConversationID][]chat.Message
	connections map[string][]store.Connection
	sockets     map[string]error // what a post to a connection comes to; nil is well
	streams     letter.Streams

	entriesErr             map[chat.ConversationID]error // by conversation
	rosterErr              map[chat.ConversationID]error // by conversation
	raiseErr               map[string]error              // by user
	connErr                error
	hidden                 string // whose connections cannot be read
	forgetErr              error
	slowEntries, slowRaise <-chan struct{} // what is of mallory waits for it

	unread   string              // how connections begin that take nothing until the time is up
	panics   chat.ConversationID // a conversation whose entries make the reader panic
	retryErr error

	queueTakes time.Duration
	buryErr    error

	mu      sync.Mutex
	steps   []string                           // the order of "raise", "connections", "deliver"
	raised  map[string][]chat.ConversationID   // by user
	listed  map[listing]bool                   // as large, or no more
	asked   map[chat.ConversationID]chat.Range // of Entries, by conversation
	looked  []string                           // users of Connections
	frames  map[string][]string                // posted, by connection
	forgot  map[string][]store.Connection
	closed  []string
	groups  [][]string // connections, by call of Deliver
	notedBy []int      // how many notes there were before, by call of Deliver
	aside   []aside    // in the queue
	delays  []time.Duration
	buried  []string
}

func newWorld() *world {
	return &world{
		heads: map[chat.ConversationID]chat.Conversation{}, rosters: map[chat.ConversationID][]chat.Member{}, ledgers: map[chat.ConversationID][]chat.Message{}, connections: map[string][]store.Connection{},
		sockets: map[string]error{}, entriesErr: map[chat.ConversationID]error{}, rosterErr: map[chat.ConversationID]error{}, raiseErr: map[string]error{},
		raised: map[string][]chat.ConversationID{}, listed: map[listing]bool{}, asked: map[chat.ConversationID]chat.Range{}, frames: map[string][]string{}, forgot: map[string][]store.Connection{},
	}
}

func (w *world) step(name string) {
	if !slices.Contains(w.steps, name) {
		w.steps = append(w.steps, name)
	}
}

func (w *world) Entries(ctx context.Context, id chat.ConversationID, r chat.Range) ([]chat.Message, error) {
	if w.slowEntries != nil && id == "group:slow" {
		select {
		case <-w.slowEntries:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, twice := w.asked[id]; twice {
		return nil, fmt.Errorf("the entries of %s were read twice", id)
	}
	w.asked[id] = r
	if w.panics == id {
		panic("a surprise")
	}
	if err := w.entriesErr[id]; err != nil {
		return nil, err
	}
	var found []chat.Message
	for _, m := range w.ledgers[id] {
		if r.From <= m.Seq && m.Seq <= r.To {
			found = append(found, m)
		}
	}
	return found, nil
}

func (w *world) At(_ context.Context, id chat.ConversationID, version int64) ([]chat.Member, error) {
	if version == 0 {
		return nil, errors.New("version 0 of a roster")
	}
	return w.rosters[id], w.rosterErr[id]
}

func (w *world) Raise(ctx context.Context, userID string, ids []chat.ConversationID) (int64, error) {
	if w.slowRaise != nil && userID == "mallory" {
		select {
		case <-w.slowRaise:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.step("raise")
	if err := w.raiseErr[userID]; err != nil {
		return 0, err
	}
	if _, twice := w.raised[userID]; twice {
		return 0, fmt.Errorf("%s was raised twice", userID)
	}
	w.raised[userID] = ids
	return 1, nil
}

func (w *world) Enlist(_ context.Context, userID string, conversationID chat.ConversationID) error {
	return w.list(userID, conversationID, true)
}

func (w *world) Delist(_ context.Context, userID string, conversationID chat.ConversationID) error {
	return w.list(userID, conversationID, false)
}

func (w *world) list(userID string, conversationID chat.ConversationID, large bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.step(map[bool]string{true: "list", false: "delist"}[large])
	w.listed[listing{userID, conversationID}] = large
	return w.raiseErr[userID]
}

func (w *world) Connections(ctx context.Context, userIDs []string) (map[string][]store.Connection, error) {
	w.step("connections")
	w.looked = userIDs
	if w.connErr != nil {
		return nil, w.connErr
	}
	found := map[string][]store.Connection{}
	for _, id := range userIDs {
		if conns := w.connections[id]; len(conns) > 0 {
			found[id] = conns
		}
	}
	if w.hidden != "" && slices.Contains(userIDs, w.hidden) {
		<-ctx.Done()
		delete(found, w.hidden)
		return found, &store.UnreadError{UserIDs: []string{w.hidden}, Err: ctx.Err()}
	}
	return found, nil
}

func (w *world) Disconnect(_ context.Context, userID string, conns ...store.Connection) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forgot[userID] = append(w.forgot[userID], conns...)
	return w.forgetErr
}

func (w *world) Deliver(ctx context.Context, deliveries []push.Delivery) []push.Outcome {
	w.step("deliver")
	if slices.ContainsFunc(deliveries, func(d push.Delivery) bool { return strings.HasPrefix(d.ConnectionID, w.unread) }) && w.unread != "" {
		<-ctx.Done()
	}
	var group []string
	for _, d := range deliveries {
		group = append(group, d.ConnectionID)
	}
	w.groups = append(w.groups, group)
	w.mu.Lock()
	w.notedBy = append(w.notedBy, len(w.raised)+len(w.listed))
	w.mu.Unlock()
	outcomes := make([]push.Outcome, len(deliveries))
	expires := map[string]int64{}
	for _, conns := range w.connections {
		for _, c := range conns {
			expires[c.ID] = c.ExpiresAt
		}
	}
	for i, d := range deliveries {
		if expires[d.ConnectionID] != d.ExpiresAt {
			outcomes[i].Err = fmt.Errorf("connection %s was delivered to with another expiry, %d", d.ConnectionID, d.ExpiresAt)
		}
		if outcomes[i].Err = cmp.Or(outcomes[i].Err, w.sockets[d.ConnectionID], ctx.Err()); outcomes[i].Err != nil {
			continue
		}
		w.mu.Lock()
		for f := range d.Frames {
			w.frames[d.ConnectionID] = append(w.frames[d.ConnectionID], string(f))
			outcomes[i].Sent++
		}
		w.mu.Unlock()
	}
	return outcomes
}

func (w *world) Close(_ context.Context, connectionID string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = append(w.closed, connectionID)
	return nil
}

func (w *world) Retry(_ context.Context, body string, delay time.Duration) error {
	time.Sleep(w.queueTakes)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.retryErr != nil {
		return w.retryErr
	}
	var a aside
	if err := json.Unmarshal([]byte(body), &a); err != nil {
		return err
	}
	w.aside, w.delays = append(w.aside, a), append(w.delays, delay)
	return nil
}

func (w *world) Bury(_ context.Context, body string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.buryErr == nil {
		w.buried = append(w.buried, body)
	}
	return w.buryErr
}

// member joins a conversation, and is online with one device if that has a name.
func (w *world) member(conversationID chat.ConversationID, userID string, joinSeq int64, devices ...string) {
	w.rosters[conversationID] = append(w.rosters[conversationID], chat.Member{ConversationID: conversationID, UserID: userID, JoinSeq: joinSeq})
	for _, d := range devices {
		w.online(userID, d)
	}
}

func (w *world) online(userID, device string) {
	w.connections[userID] = append(w.connections[userID], store.Connection{ID: userID + "-" + device, DeviceID: device, ConnectedAt: now - 60_000})
}

// write appends n messages to a ledger.
func (w *world) write(conversationID chat.ConversationID, n int) {
	for range n {
		seq := int64(len(w.ledgers[conversationID]) + 1)
		w.ledgers[conversationID] = append(w.ledgers[conversationID], chat.Message{
			ConversationID: conversationID, Seq: seq, MessageID: fmt.Sprint("01K", seq), ClientMsgID: fmt.Sprint(conversationID, seq), SenderID: "alice",
			MessageType: chat.TypeText, Text: "hi", Version: 1, Status: chat.StatusNormal,
		})
	}
}

func (w *world) membersEvent(conversationID chat.ConversationID, seq int64, added, removed []string) {
	m := &w.ledgers[conversationID][seq-1]
	m.MessageType, m.Text = chat.TypeEvent, ""
	m.Event = &chat.Event{Kind: chat.EventMembers, Added: added, Removed: removed}
}

func (w *world) handler() (handler, *bytes.Buffer) {
	var log bytes.Buffer
	return handler{
		store: w, rosters: w, pusher: w, queue: w, told: &told{}, streams: w.streams,
		log: slog.New(slog.NewJSONHandler(&log, nil)), now: func() time.Time { return time.UnixMilli(now) },
	}, &log
}

// tell has the heads as the stream tells of them.
func (w *world) tell(event events.DynamoDBEvent) {
	for _, r := range event.Records {
		if ch, err := changeOf(r); err == nil {
			w.heads[ch.conversationID] = chat.Conversation{MembersVersion: ch.newVersion, MemberCount: int(ch.newMembers)}
		}
	}
}

func (w *world) handle(t *testing.T, event events.DynamoDBEvent) (failed []string, log string) {
	t.Helper()
	w.tell(event)
	h, buffer := w.handler()
	response := h.follow(t.Context(), event)
	require.NotNil(t, response.BatchItemFailures)
	for _, f := range response.BatchItemFailures {
		failed = append(failed, f.ItemIdentifier)
	}
	require.Contains(t, buffer.String(), `"msg":"batch"`)
	return failed, buffer.String()
}

// got lists what a connection was pushed, as "conversation seqs<committed".
func (w *world) got(t *testing.T, connectionID string) []string {
	t.Helper()
	var list []string
	for _, frame := range w.frames[connectionID] {
		require.LessOrEqual(t, len(frame), wire.MaxFrameBytes)
		var p struct {
			Type    string        `json:"type"`
			Updates []wire.Update `json:"updates"`
		}
		require.NoError(t, json.Unmarshal([]byte(frame), &p))
		for _, u := range p.Updates {
			var seqs []string
			for _, m := range u.Messages {
				seqs = append(seqs, fmt.Sprint(m.Seq))
			}
			list = append(list, fmt.Sprintf("%s %s %s<%d", p.Type, u.ConversationID, strings.Join(seqs, ","), u.CommittedMaxSeq))
		}
	}
	return list
}

// head is an image of a head.
func head(id chat.ConversationID, lastSeq, membersVersion int64) map[string]events.DynamoDBAttributeValue {
	return map[string]events.DynamoDBAttributeValue{
		"conversationId": events.NewStringAttribute(string(id)),
		"lastSeq":        events.NewNumberAttribute(fmt.Sprint(lastSeq)),
		"membersVersion": events.NewNumberAttribute(fmt.Sprint(membersVersion)),
		"memberCount":    events.NewNumberAttribute("2"),
	}
}

// record is a head's change from one seq to another, at an unchanged roster. A
// head that was at 0 was not there.
func record(sequenceNumber string, id chat.ConversationID, from, to int64) events.DynamoDBEventRecord {
	r := events.DynamoDBEventRecord{EventName: "MODIFY", Change: events.DynamoDBStreamRecord{
		SequenceNumber: sequenceNumber,
		Keys:           map[string]events.DynamoDBAttributeValue{"conversationId": events.NewStringAttribute(string(id))},
		NewImage:       head(id, to, 1), OldImage: head(id, from, 1),
	}}
	if from == 0 {
		r.EventName, r.Change.OldImage = "INSERT", nil
	}
	return r
}

// changed is record for a head that was there, whatever its seq.
func changed(sequenceNumber string, id chat.ConversationID, from, to int64) events.DynamoDBEventRecord {
	r := record(sequenceNumber, id, from, to)
	r.EventName, r.Change.OldImage = "MODIFY", head(id, from, 1)
	return r
}

func batchOf(records ...events.DynamoDBEventRecord) events.DynamoDBEvent {
	return events.DynamoDBEvent{Records: records}
}

func TestSample(t *testing.T) {
	t.Parallel()
	w := newWorld()
	single, group := chat.SingleID("alice", "bob"), chat.ConversationID("group:01KB7T4QZC5F0M8N2R6S9V3W1X")
	w.member(single, "alice", 1, "phone", "web")
	w.member(single, "bob", 1, "phone")
	w.member(group, "alice", 1)
	w.member(group, "carol", 42, "phone") // taken back in by the last message
	w.online("dave", "phone")             // who was removed by it
	w.write(single, 2)
	w.write(group, 42)
	w.membersEvent(group, 42, []string{"carol"}, []string{"dave"})

	failed, log := w.handle(t, routetest.Sample[events.DynamoDBEvent](t, "fanout"))
	require.Empty(t, failed)
	require.Equal(t, map[chat.ConversationID]chat.Range{single: {From: 1, To: 2}, group: {From: 41, To: 42}}, w.asked)

	both := []string{"push " + string(single) + " 1,2<2", "push " + string(group) + " 41,42<42"}
	require.Equal(t, both, w.got(t, "alice-phone"), "the sender's devices too")
	require.Equal(t, both, w.got(t, "alice-web"))
	require.Equal(t, both[:1], w.got(t, "bob-phone"))
	require.Equal(t, []string{"push " + string(group) + " 42<42"}, w.got(t, "carol-phone"), "nothing from before the join")
	require.Equal(t, []string{"push " + string(group) + " 41,42<42"}, w.got(t, "dave-phone"), "up to the removal")

	require.Equal(t, []string{"raise", "connections", "deliver"}, w.steps, "this order makes reconnects lossless")
	require.Equal(t, map[string][]chat.ConversationID{
		"alice": {single, group}, "bob": {single}, "carol": {group}, "dave": {group},
	}, w.raised)
	require.Equal(t, []string{"alice", "bob", "carol", "dave"}, w.looked)
	require.Contains(t, log, `"records":4,"conversations":2,"entries":4,"Pushes":5,"failures":0`)
}

func TestRanges(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		records []events.DynamoDBEventRecord
		want    map[chat.ConversationID]chat.Range
	}{
		"one":                   {batchOf(record("1", "group:a", 4, 5)).Records, map[chat.ConversationID]chat.Range{"group:a": {From: 5, To: 5}}},
		"the first of all":      {batchOf(record("1", "group:a", 0, 1)).Records, map[chat.ConversationID]chat.Range{"group:a": {From: 1, To: 1}}},
		"several":               {batchOf(record("1", "group:a", 4, 5), record("2", "group:b", 0, 1), record("3", "group:a", 5, 6)).Records, map[chat.ConversationID]chat.Range{"group:a": {From: 5, To: 6}, "group:b": {From: 1, To: 1}}},
		"repeated":              {batchOf(record("1", "group:a", 4, 5), record("2", "group:a", 5, 6), record("1", "group:a", 4, 5)).Records, map[chat.ConversationID]chat.Range{"group:a": {From: 5, To: 6}}},
		"nothing":               {nil, map[chat.ConversationID]chat.Range{}},
		"a change of the title": {batchOf(record("1", "group:a", 4, 4)).Records, map[chat.ConversationID]chat.Range{}},
		"a head of a restore":   {batchOf(record("1", "group:a", 0, 100_000), record("2", "group:a", 100_000, 110_000)).Records, map[chat.ConversationID]chat.Range{"group:a": {From: 100_001, To: 110_000}}},
		"a head of a repair":    {[]events.DynamoDBEventRecord{changed("1", "group:a", 0, 3)}, map[chat.ConversationID]chat.Range{"group:a": {From: 1, To: 3}}},
		"a head set back":       {batchOf(record("1", "group:a", 4, 3)).Records, map[chat.ConversationID]chat.Range{}},
		"a deletion": {[]events.DynamoDBEventRecord{{EventName: "REMOVE", Change: events.DynamoDBStreamRecord{
			SequenceNumber: "1", OldImage: head("group:a", 4, 1),
			Keys: map[string]events.DynamoDBAttributeValue{"conversationId": events.NewStringAttribute("group:a")},
		}}}, map[chat.ConversationID]chat.Range{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.member("group:a", "alice", 1)
			w.member("group:b", "alice", 1)
			failed, _ := w.handle(t, events.DynamoDBEvent{Records: tc.records})
			require.Empty(t, failed)
			require.Equal(t, tc.want, w.asked)
		})
	}
}

func TestDepartures(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		events map[int64][2][]string // seq to added, removed
		want   []string
	}{
		"removed":                 {map[int64][2][]string{13: {nil, {"dave"}}}, []string{"push group:a 11,12,13<13"}},
		"added and removed":       {map[int64][2][]string{12: {{"dave"}, nil}, 14: {nil, {"dave"}}}, []string{"push group:a 12,13,14<14"}},
		"removed, added, removed": {map[int64][2][]string{11: {nil, {"dave"}}, 13: {{"dave"}, nil}, 14: {nil, {"dave"}}}, []string{"push group:a 13,14<14"}},
		"others removed":          {map[int64][2][]string{13: {nil, {"erin"}}}, nil},
		"added, and gone later":   {map[int64][2][]string{13: {{"dave"}, nil}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.member("group:a", "alice", 1, "phone")
			w.online("dave", "phone")
			w.write("group:a", 15)
			for seq, e := range tc.events {
				w.membersEvent("group:a", seq, e[0], e[1])
			}
			failed, _ := w.handle(t, batchOf(record("1", "group:a", 10, 15)))
			require.Empty(t, failed)
			require.Equal(t, tc.want, w.got(t, "dave-phone"))
			require.Equal(t, []string{"push group:a 11,12,13,14,15<15"}, w.got(t, "alice-phone"))
		})
	}
}

func TestWhoComesBackIsAMember(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.member("group:a", "dave", 13, "phone")
	w.write("group:a", 15)
	w.membersEvent("group:a", 11, nil, []string{"dave"})
	w.membersEvent("group:a", 13, []string{"dave"}, nil)
	failed, _ := w.handle(t, batchOf(record("1", "group:a", 10, 15)))
	require.Empty(t, failed)
	require.Equal(t, []string{"push group:a 13,14,15<15"}, w.got(t, "dave-phone"))
	require.Equal(t, map[string][]chat.ConversationID{"dave": {"group:a"}}, w.raised)
}

func TestMembersHearFromTheirJoinOn(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.member("group:a", "alice", 1, "phone")
	w.member("group:a", "bob", 12, "phone")
	w.member("group:a", "carol", 14, "phone") // joined after this batch
	w.write("group:a", 14)
	failed, _ := w.handle(t, batchOf(record("1", "group:a", 10, 13)))
	require.Empty(t, failed)
	require.Equal(t, []string{"push group:a 11,12,13<13"}, w.got(t, "alice-phone"))
	require.Equal(t, []string{"push group:a 12,13<13"}, w.got(t, "bob-phone"))
	require.Empty(t, w.got(t, "carol-phone"))
	require.NotContains(t, w.raised, "carol")
}

func TestSizesOfGroups(t *testing.T) {
	t.Parallel()
	for members, raised := range map[int]bool{chat.InboxGroupMax: true, chat.InboxGroupMax + 1: false, chat.MaxGroupMembers: false} {
		t.Run(fmt.Sprint(members), func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			for i := range members - 1 {
				w.member("group:a", fmt.Sprint("u", i), 1, "phone")
			}
			w.member("group:a", "late", 5, "phone")
			w.write("group:a", 5)
			failed, _ := w.handle(t, batchOf(record("1", "group:a", 3, 4), record("2", "group:a", 4, 5)))
			require.Empty(t, failed)
			require.Equal(t, raised, len(w.raised) == members)
			require.Equal(t, !raised, len(w.raised) == 0)
			for i := range members - 1 {
				require.Equal(t, []string{"push group:a 4,5<5"}, w.got(t, fmt.Sprint("u", i, "-phone")))
			}
			require.Equal(t, []string{"push group:a 5<5"}, w.got(t, "late-phone"))
		})
	}

	t.Run("who is removed from the largest one is told until then", func(t *testing.T) {
		t.Parallel()
		w := newWorld()
		for i := range chat.MaxGroupMembers {
			w.member("group:a", fmt.Sprint("u", i), 1)
		}
		w.online("dave", "phone")
		w.write("group:a", 5)
		w.membersEvent("group:a", 4, nil, []string{"dave"})
		removal := record("1", "group:a", 3, 5)
		removal.Change.NewImage = head("group:a", 5, 2)
		failed, _ := w.handle(t, batchOf(removal))
		require.Empty(t, failed)
		require.Equal(t, []string{"push group:a 4<4"}, w.got(t, "dave-phone"))
	})
}

func TestFramesAreCoalesced(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var records []events.DynamoDBEventRecord
	for c := range 10 {
		id := chat.ConversationID(fmt.Sprint("group:", c))
		w.member(id, "alice", 1)
		w.member(id, "bob", 1)
		w.write(id, 4)
		for seq := range 4 {
			w.ledgers[id][seq].Text = strings.Repeat("x", 2000)
			records = append(records, record(fmt.Sprint(len(records)), id, int64(seq), int64(seq+1)))
		}
	}
	w.online("alice", "phone")
	w.online("bob", "phone")
	failed, _ := w.handle(t, batchOf(records...))
	require.Empty(t, failed)
	require.Len(t, w.frames["alice-phone"], 3, "some 88 KB in three frames")
	require.Equal(t, w.frames["alice-phone"], w.frames["bob-phone"])
}

// The connection that has a message by the answer to its send is not pushed it; all
// others of its user are, one under the same device name too: its device came back, and
// has no answer.
func TestG5_OnlyTheAnsweredConnectionIsLeftOut(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.member("group:a", "alice", 1, "phone", "laptop")
	w.member("group:a", "bob", 1, "phone")
	w.online("alice", "phone-again")
	w.write("group:a", 7)
	via := func(seq int64, connectionID string) { w.ledgers["group:a"][seq-1].Via = connectionID }
	via(2, "alice-phone")
	via(3, "bob-phone")
	via(4, "alice-laptop")
	via(5, "alice-phone")
	w.ledgers["group:a"][4].Version = 2 // edited since: it is not what was sent
	via(6, "alice-phone")
	w.ledgers["group:a"][5].Status = chat.StatusRecalled
	via(7, "alice-phone")
	failed, _ := w.handle(t, batchOf(record("1", "group:a", 1, 7)))
	require.Empty(t, failed)
	require.Equal(t, "3:hi, 4:hi, 5:hi, 6:hi", w.read(t, "alice-phone"))
	require.Equal(t, "2:hi, 3:hi, 5:hi, 6:hi, 7:hi", w.read(t, "alice-laptop"))
	require.Equal(t, "2:hi, 3:hi, 4:hi, 5:hi, 6:hi, 7:hi", w.read(t, "alice-phone-again"))
	require.Equal(t, "2:hi, 4:hi, 5:hi, 6:hi, 7:hi", w.read(t, "bob-phone"))
	require.Contains(t, w.frames["alice-phone"][0], `"committedMaxSeq":7`, "had the answer got lost, this tells of it")

	w = newWorld()
	w.member("group:a", "alice", 1, "phone")
	w.write("group:a", 1)
	w.ledgers["group:a"][0].Via = "alice-phone"
	w.handle(t, batchOf(record("1", "group:a", 0, 1)))
	require.Empty(t, w.frames, "there is nothing else to tell")
	require.Equal(t, []chat.ConversationID{"group:a"}, w.raised["alice"], "her other devices hear of it when they ask")
}

func TestGoneConnectionsAreForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.member("group:a", "alice", 1, "phone", "web", "old")
	w.member("group:a", "bob", 1, "phone")
	w.write("group:a", 1)
	gone := fmt.Errorf("posting: %w", push.ErrGone)
	w.sockets["alice-old"], w.sockets["bob-phone"] = gone, gone
	w.sockets["alice-web"] = errors.New("429")
	w.connections["carol"] = []store.Connection{{ID: "carol-new", DeviceID: "new", ConnectedAt: now - 29_000}}
	w.member("group:a", "carol", 1)
	w.sockets["carol-new"] = gone
	dave := store.Connection{ID: "dave-new", DeviceID: "new", ConnectedAt: now - 1000, ExpiresAt: now}
	w.connections["dave"] = []store.Connection{dave}
	w.member("group:a", "dave", 1)
	w.sockets["dave-new"] = push.ErrExpired

	failed, log := w.handle(t, batchOf(record("1", "group:a", 0, 1)))
	require.Empty(t, failed, "a push never fails a record")
	require.Equal(t, map[string][]store.Connection{
		"alice": {{ID: "alice-old", DeviceID: "old", ConnectedAt: now - 60_000}},
		"bob":   {{ID: "bob-phone", DeviceID: "phone", ConnectedAt: now - 60_000}},
		"dave":  {dave},
	}, w.forgot, "exactly those, one that was dismissed whenever it came, and none whose $connect may not have returned yet")
	slices.Sort(w.closed)
	require.Equal(t, []string{"alice-old", "bob-phone"}, w.closed, "were one not gone, its device comes back")
	require.Contains(t, log, `"Pushes":1,"GoneConnections":2,"PushFailures":2,"failures":0,"expired":1`)
	require.Contains(t, log, `"err":"429"`)

	t.Run("and a failure to forget them is no failure", func(t *testing.T) {
		t.Parallel()
		w := newWorld()
		w.member("group:a", "alice", 1, "old")
		w.write("group:a", 1)
		w.sockets["alice-old"], w.forgetErr = push.ErrGone, errors.New("no table")
		failed, log := w.handle(t, batchOf(record("1", "group:a", 0, 1)))
		require.Empty(t, failed)
		require.Contains(t, log, "no table")
	})
}

func TestG10_PoisonIsPassedOver(t *testing.T) {
	t.Parallel()
	noImage := record("2", "group:p", 0, 1)
	noImage.Change.NewImage = nil
	noSeq := record("2", "group:p", 0, 1)
	delete(noSeq.Change.NewImage, "lastSeq")
	textSeq := record("2", "group:p", 0, 1)
	textSeq.Change.NewImage["lastSeq"] = events.NewStringAttribute("1")
	fraction := record("2", "group:p", 0, 1)
	fraction.Change.NewImage["lastSeq"] = events.NewNumberAttribute("1.5")
	endless := record("2", "group:p", 0, 1)
	endless.Change.NewImage["lastSeq"] = events.NewNumberAttribute("1E+30")
	beyond := record("2", "group:p", 0, 1)
	beyond.Change.NewImage["lastSeq"] = events.NewNumberAttribute("9007199254740992")
	noVersion := record("2", "group:p", 0, 1)
	noVersion.Change.NewImage["membersVersion"] = events.NewNullAttribute()
	oldSeq := record("2", "group:p", 1, 2)
	delete(oldSeq.Change.OldImage, "lastSeq")
	noKey := record("2", "group:p", 0, 1)
	noKey.Change.Keys = nil
	for name, poison := range map[string]events.DynamoDBEventRecord{
		"no image": noImage, "no lastSeq": noSeq, "a text for lastSeq": textSeq, "a fraction": fraction, "a number beyond int64": endless,
		"a seq beyond 2^53": beyond, "no membersVersion": noVersion, "no old lastSeq": oldSeq, "no key": noKey,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.member("group:a", "alice", 1, "phone")
			w.write("group:a", 2)
			failed, log := w.handle(t, batchOf(record("1", "group:a", 0, 1), poison, record("3", "group:a", 1, 2)))
			require.Empty(t, failed, "it would be no better the next time")
			require.Empty(t, w.aside)
			require.Contains(t, log, `"InvariantItem":1`)
			require.Equal(t, []string{"push group:a 1,2<2"}, w.got(t, "alice-phone"), "those after it are served")
			require.Contains(t, log, `"sequenceNumber":"2"`)
		})
	}
}

// What cannot be read or noted is set aside alone, and comes back from the queue.
func TestG10_WhatFailsIsSetAside(t *testing.T) {
	t.Parallel()
	broken := errors.New("throttled")
	for name, tc := range map[string]struct {
		breakIt func(w *world)
		aside   []chat.ConversationID
		a, b    bool // whether the conversations' pushes arrive
	}{
		"entries":         {func(w *world) { w.entriesErr["group:a"] = broken }, []chat.ConversationID{"group:a"}, false, true},
		"a roster":        {func(w *world) { w.rosterErr["group:a"] = broken }, []chat.ConversationID{"group:a"}, false, true},
		"a raise":         {func(w *world) { w.raiseErr["alice"] = broken }, []chat.ConversationID{"group:a"}, true, true},
		"two raises":      {func(w *world) { w.raiseErr["alice"], w.raiseErr["bob"] = broken, broken }, []chat.ConversationID{"group:a", "group:b"}, true, true},
		"the connections": {func(w *world) { w.connErr = broken }, []chat.ConversationID{"group:a", "group:b"}, false, false},
		"a panic":         {func(w *world) { w.panics = "group:a" }, []chat.ConversationID{"group:a"}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.member("group:a", "alice", 1, "phone")
			w.member("group:b", "bob", 1, "phone")
			w.write("group:a", 2)
			w.write("group:b", 1)
			tc.breakIt(w)
			event := batchOf(record("1", "group:a", 0, 1), record("2", "group:b", 0, 1), record("3", "group:a", 1, 2))
			failed, log := w.handle(t, event)
			require.Empty(t, failed)
			require.Contains(t, log, fmt.Sprintf(`"SetAside":%d`, len(tc.aside)))
			require.Contains(t, log, `"conversationId":"group:`)
			require.Equal(t, tc.a, len(w.got(t, "alice-phone")) > 0)
			require.Equal(t, tc.b, len(w.got(t, "bob-phone")) > 0)
			var ids []chat.ConversationID
			slices.SortFunc(w.aside, func(a, b aside) int { return cmp.Compare(a.ConversationID, b.ConversationID) })
			for i, a := range w.aside {
				ids = append(ids, a.ConversationID)
				require.Equal(t, 1, a.Attempts)
				require.Equal(t, time.Second, w.delays[i])
			}
			require.Equal(t, tc.aside, ids)
			require.Equal(t, int64(1), w.aside[0].FromSeq)
			require.Equal(t, int64(2), w.aside[0].ToSeq)

			// It fails again, and then it does not.
			h, _ := w.handler()
			again := func() error {
				body, err := json.Marshal(w.aside[0])
				require.NoError(t, err)
				w.aside, w.delays = nil, nil
				w.asked, w.raised, w.frames = map[chat.ConversationID]chat.Range{}, map[string][]chat.ConversationID{}, map[string][]string{}
				_, err = h.handle(t.Context(), sqsEvent(t, string(body)))
				return err
			}
			require.NoError(t, again())
			require.Len(t, w.aside, 1)
			require.Equal(t, 2, w.aside[0].Attempts)
			require.Equal(t, 2*time.Second, w.delays[0])
			healthy := newWorld()
			w.entriesErr, w.rosterErr, w.raiseErr, w.connErr, w.panics = healthy.entriesErr, healthy.rosterErr, healthy.raiseErr, nil, ""
			require.NoError(t, again())
			require.Empty(t, w.aside)
			require.Equal(t, []string{"push group:a 1,2<2"}, w.got(t, "alice-phone"))
			require.Equal(t, map[string][]chat.ConversationID{"alice": {"group:a"}}, w.raised)

			// Without the queue, the stream keeps it.
			tc.breakIt(w)
			w.asked, w.raised = map[chat.ConversationID]chat.Range{}, map[string][]chat.ConversationID{}
			w.retryErr = errors.New("no queue")
			failed, log = w.handle(t, event)
			want := []string{"1", "3"}
			if len(tc.aside) == 2 {
				want = []string{"1", "2", "3"}
			}
			require.Equal(t, want, failed, "in the order of the batch")
			require.Contains(t, log, "no queue")
		})
	}
}

// A conversation that is set aside for a moment is no error: one user can have it so, by
// what that user's partition is throttled for. One that fails for a quarter of an hour is.
func TestWhatFailsForLongIsAnError(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		attempts int
		err      error
		lost     error
		level    string
	}{
		"at first":          {0, context.DeadlineExceeded, nil, "WARN"},
		"for eight minutes": {lasting - 1, context.DeadlineExceeded, nil, "WARN"},
		"for seventeen":     {lasting, context.DeadlineExceeded, nil, "ERROR"},
		"for good":          {0, store.ErrLargeFull, nil, "ERROR"},
		"without the queue": {0, context.DeadlineExceeded, errors.New("no queue"), "ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.retryErr = tc.lost
			h, log := w.handler()
			h.setAside(t.Context(), []*conversation{{id: "group:a", attempts: tc.attempts}}, map[chat.ConversationID]error{"group:a": tc.err})
			require.Contains(t, log.String(), `"level":"`+tc.level+`","msg":"a conversation failed"`)
		})
	}
}

func sqsEvent(t *testing.T, bodies ...string) json.RawMessage {
	t.Helper()
	event := routetest.Sample[events.SQSEvent](t, "fanout-retry")
	message := event.Records[0]
	event.Records = nil
	for _, body := range bodies {
		message.Body = body
		event.Records = append(event.Records, message)
	}
	encoded, err := json.Marshal(event)
	require.NoError(t, err)
	return encoded
}

// What one user's item does not take, ever, is no reason to try again.
func TestG10_OneUsersItemStopsNobody(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.member("group:a", "alice", 1, "phone")
	w.member("group:a", "bob", 1, "phone")
	w.write("group:a", 1)
	w.raiseErr["alice"] = fmt.Errorf("listing: %w", store.ErrLargeFull)
	failed, log := w.handle(t, batchOf(record("1", "group:a", 0, 1)))
	require.Empty(t, failed)
	require.Empty(t, w.aside)
	require.Contains(t, log, `"InvariantItem":1`)
	require.Contains(t, log, `"userId":"alice"`)
	require.Len(t, w.got(t, "alice-phone"), 1)
	require.Len(t, w.got(t, "bob-phone"), 1)
}

// The queue's end: a day of attempts, and what makes no sense.
func TestG10_WhatFailsForGoodIsBuried(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.member("group:a", "alice", 1)
	w.write("group:a", 1)
	w.entriesErr["group:a"] = errors.New("throttled")
	h, _ := w.handler()
	waited, attempts := time.Duration(0), 0
	c := &conversation{id: "group:a", news: chat.Range{From: 1, To: 1}, membersVersion: 1}
	for ; len(w.buried) == 0; attempts++ {
		require.NoError(t, h.put(t.Context(), c, w.entriesErr["group:a"]))
		if n := len(w.aside); n > 0 && len(w.buried) == 0 {
			waited += w.delays[n-1]
			c = w.aside[n-1].conversation()
			require.LessOrEqual(t, w.delays[n-1], 15*time.Minute)
		}
	}
	require.Greater(t, waited, 24*time.Hour)
	require.Less(t, waited, 25*time.Hour)
	require.Less(t, attempts, 120)

	for _, body := range []string{"", "no JSON", `{"a":1}`} {
		w.buried = nil
		_, err := h.handle(t.Context(), sqsEvent(t, body))
		require.NoError(t, err)
		require.Equal(t, []string{body}, w.buried)
	}
	w.buryErr = errors.New("no queue")
	_, err := h.handle(t.Context(), sqsEvent(t, "no JSON"))
	require.Error(t, err, "it comes back")
}

// What the stream's mapping gave up is read from the stream, and each conversation
// of it is tried by itself.
func TestG5_ALetterIsReadFromTheStream(t *testing.T) {
	t.Parallel()
	const body = `{"requestContext":{"condition":"RetryAttemptsExhausted"},"DDBStreamBatchInfo":{"shardId":"s","startSequenceNumber":"10",
		"endSequenceNumber":"12","batchSize":2,"streamArn":"arn:aws:dynamodb:us-east-1:1:table/t/stream/x"}}`
	image := func(id string, seq int64) map[string]streamtypes.AttributeValue {
		n := func(v int64) streamtypes.AttributeValue {
			return &streamtypes.AttributeValueMemberN{Value: fmt.Sprint(v)}
		}
		return map[string]streamtypes.AttributeValue{
			"conversationId": &streamtypes.AttributeValueMemberS{Value: id}, "lastSeq": n(seq), "membersVersion": n(3), "memberCount": n(2),
			"deleted": &streamtypes.AttributeValueMemberBOOL{Value: false},
		}
	}
	record := func(number, id string, from, to int64) streamtypes.Record {
		return streamtypes.Record{EventName: streamtypes.OperationTypeModify, Dynamodb: &streamtypes.StreamRecord{
			SequenceNumber: &number, Keys: image(id, to), OldImage: image(id, from), NewImage: image(id, to),
		}}
	}
	ofNoKnownKind := record("11", "group:b", 0, 1)
	ofNoKnownKind.Dynamodb.Keys["new"] = &streamtypes.UnknownUnionMember{}
	w := newWorld()
	w.streams = fakeStream{record("10", "group:a", 4, 5), ofNoKnownKind, record("11", "group:b", 1, 2), record("12", "group:a", 5, 7), record("13", "group:c", 1, 2)}
	h, _ := w.handler()
	_, err := h.handle(t.Context(), sqsEvent(t, body))
	require.NoError(t, err)
	require.Len(t, w.aside, 2)
	require.Equal(t, [3]any{chat.ConversationID("group:a"), int64(5), int64(7)}, [3]any{w.aside[0].ConversationID, w.aside[0].FromSeq, w.aside[0].ToSeq})
	require.EqualValues(t, "group:b", w.aside[1].ConversationID)

	w.streams = fakeStream{}
	h, _ = w.handler()
	_, err = h.handle(t.Context(), sqsEvent(t, body))
	require.NoError(t, err)
	require.Equal(t, []string{body}, w.buried, "the stream does not have it any more")
}

// fakeStream has one shard.
type fakeStream []streamtypes.Record

func (f fakeStream) GetShardIterator(context.Context, *dynamodbstreams.GetShardIteratorInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetShardIteratorOutput, error) {
	return &dynamodbstreams.GetShardIteratorOutput{ShardIterator: new(string)}, nil
}

func (f fakeStream) GetRecords(context.Context, *dynamodbstreams.GetRecordsInput, ...func(*dynamodbstreams.Options)) (*dynamodbstreams.GetRecordsOutput, error) {
	return &dynamodbstreams.GetRecordsOutput{Records: f}, nil
}

// One whose reading or noting takes long does not hold up the others of its batch.
func TestG10_ASlowConversationIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for name, slow := range map[string]func(w *world, release <-chan struct{}){
		"to be read":  func(w *world, release <-chan struct{}) { w.slowEntries = release },
		"to be noted": func(w *world, release <-chan struct{}) { w.slowRaise = release },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.member("group:slow", "mallory", 1, "phone")
			w.member("group:a", "alice", 1, "phone")
			w.write("group:slow", 1)
			w.write("group:a", 1)
			release := make(chan struct{})
			slow(w, release)
			done := make(chan []string)
			go func() {
				failed, _ := w.handle(t, batchOf(record("1", "group:slow", 0, 1), record("2", "group:a", 0, 1)))
				done <- failed
			}()
			require.Eventually(t, func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return len(w.frames["alice-phone"]) == 1
			}, 5*time.Second, time.Millisecond)
			w.mu.Lock()
			require.Empty(t, w.frames["mallory-phone"])
			w.mu.Unlock()
			close(release)
			require.Empty(t, <-done)
			require.Equal(t, []string{"push group:slow 1<1"}, w.got(t, "mallory-phone"))
		})
	}
}

// One that cannot be read or noted at all, as its partition is throttled for minutes, does
// not hold up its lane: it is set aside, and served from the queue with more patience.
func TestG10_ASlowConversationDoesNotHoldItsLane(t *testing.T) {
	t.Parallel()
	for name, slow := range map[string]func(w *world, release <-chan struct{}){
		"to be read":  func(w *world, release <-chan struct{}) { w.slowEntries = release },
		"to be noted": func(w *world, release <-chan struct{}) { w.slowRaise = release },
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.member("group:slow", "mallory", 1, "phone")
			w.write("group:slow", 1)
			release := make(chan struct{})
			slow(w, release)
			start := time.Now()
			failed, _ := w.handle(t, batchOf(record("1", "group:slow", 0, 1)))
			require.Empty(t, failed, name)
			require.Equal(t, hasty, time.Since(start), name)
			require.Len(t, w.aside, 1, name)

			body, err := json.Marshal(w.aside[0])
			require.NoError(t, err)
			w.aside, w.asked, w.frames = nil, map[chat.ConversationID]chat.Range{}, map[string][]string{}
			time.AfterFunc(stepTimeout-time.Second, func() { close(release) })
			h, _ := w.handler()
			_, err = h.handle(t.Context(), sqsEvent(t, string(body)))
			require.NoError(t, err, name)
			require.Empty(t, w.aside, name)
			require.Equal(t, []string{"push group:slow 1<1"}, w.got(t, "mallory-phone"), name)
		})
	}
}

// Where one user's partition is throttled, all conversations of that user in a batch are
// set aside, as soon as one.
func TestG10_ManyAreSetAsideAsSoonAsOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.raiseErr["mallory"] = errors.New("throttled")
		w.queueTakes = 100 * time.Millisecond
		var records []events.DynamoDBEventRecord
		for i := range 100 {
			id := chat.ConversationID(fmt.Sprint("group:", i))
			w.member(id, "mallory", 1)
			w.write(id, 1)
			records = append(records, record(fmt.Sprint(i), id, 0, 1))
		}
		start := time.Now()
		failed, _ := w.handle(t, batchOf(records...))
		require.Empty(t, failed, "none is left to the stream")
		require.Len(t, w.aside, 100)
		require.LessOrEqual(t, time.Since(start), 200*time.Millisecond)
	})
}

// One whose connections cannot be read, as their partition is throttled, keeps nobody else
// from the pushes, be it in the same conversation; what it misses is tried again.
func TestG10_WhoseConnectionsCannotBeReadHoldsUpNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.member("group:a", "alice", 1, "phone")
		w.member("group:b", "bob", 1, "phone")
		w.member("group:b", "mallory", 1, "phone")
		w.write("group:a", 1)
		w.write("group:b", 1)
		w.hidden = "mallory"
		var took time.Duration
		start := time.Now()
		go func() {
			time.Sleep(swift)
			synctest.Wait()
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(w.frames["alice-phone"]) == 1 && len(w.frames["bob-phone"]) == 1 {
				took = time.Since(start)
			}
		}()
		failed, _ := w.handle(t, batchOf(record("1", "group:a", 0, 1), record("2", "group:b", 0, 1)))
		require.Empty(t, failed)
		require.Equal(t, swift, took, "until alice and bob had their pushes")
		require.Equal(t, swift+hasty, time.Since(start), "the lane goes on")
		require.Len(t, w.aside, 1)
		require.Equal(t, chat.ConversationID("group:b"), w.aside[0].ConversationID)
	})
}

// Whoever could be told is not told again, as often as it takes until the others are.
func TestG10_OnlyWhoCouldNotBeLookedUpIsToldAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		for i := range 30 {
			w.member("group:a", fmt.Sprint("user", i), 1, "phone")
		}
		w.write("group:a", 1)
		w.hidden = "user7"
		failed, _ := w.handle(t, batchOf(changed("1", "group:a", 0, 1)))
		require.Empty(t, failed)
		for attempt := range 3 {
			require.Len(t, w.aside, attempt+1)
			if attempt == 2 {
				w.hidden = ""
			}
			clear(w.asked)
			h, _ := w.handler()
			require.NoError(t, h.again(t.Context(), w.aside[attempt]))
		}
		require.Len(t, w.aside, 3)
		for i := range 30 {
			require.Equal(t, []string{"push group:a 1<1"}, w.got(t, fmt.Sprint("user", i, "-phone")))
		}
	})
}

// The names of those who could not be looked up go along as far as a message of the queue
// has room for them; else all are told again.
func TestTheNamesOfFewGoAlong(t *testing.T) {
	t.Parallel()
	for n, along := range map[int]int{1: 1, maxUnread: maxUnread, maxUnread + 1: 0} {
		w := newWorld()
		unread := &store.UnreadError{Err: errors.New(strings.Repeat("<", 2000))}
		for i := range 2 * maxUnread {
			w.member("group:a", fmt.Sprintf("%s%03d", strings.Repeat("<", chat.MaxUserIDBytes-3), i), 1)
			if i < n {
				unread.UserIDs = append(unread.UserIDs, w.rosters["group:a"][i].UserID)
			}
		}
		w.connErr = unread
		w.write("group:a", 1)
		failed, _ := w.handle(t, batchOf(changed("1", "group:a", 0, 1)))
		require.Empty(t, failed)
		require.Len(t, w.aside, 1)
		require.Len(t, w.aside[0].Unread, along)
		body, err := json.Marshal(w.aside[0])
		require.NoError(t, err)
		require.Less(t, len(body), 256<<10, "SQS's limit")
	}
}

// A large conversation's posts do not use up a small one's time.
func TestG10_SmallAudiencesComeFirst(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for i := range 60 {
		w.member("group:large", fmt.Sprint("u", i), 1, "phone")
		if i < 30 {
			w.member("group:middle", fmt.Sprint("u", i), 1)
		}
	}
	w.member("group:small", "u7", 1)
	w.member("group:small", "alice", 1, "phone")
	for _, id := range []chat.ConversationID{"group:large", "group:middle", "group:small"} {
		w.write(id, 1)
	}
	failed, _ := w.handle(t, batchOf(changed("1", "group:large", 0, 1), changed("2", "group:middle", 0, 1), changed("3", "group:small", 0, 1)))
	require.Empty(t, failed)
	require.Len(t, w.groups, 3)
	require.ElementsMatch(t, []string{"alice-phone", "u7-phone"}, w.groups[0])
	require.Len(t, w.groups[1], 29, "those of the middle one who are not of the small one")
	require.Len(t, w.groups[2], 30)
	require.Equal(t, []string{"push group:small 1<1", "push group:middle 1<1", "push group:large 1<1"}, w.got(t, "u7-phone"), "one frame has all")
}

// distant is a world whose table of connections is asked for 800 users at a time, which
// takes 40 ms.
type distant struct{ *world }

func (d distant) Connections(ctx context.Context, userIDs []string) (map[string][]store.Connection, error) {
	found := map[string][]store.Connection{}
	for len(userIDs) > 0 {
		select {
		case <-time.After(40 * time.Millisecond):
		case <-ctx.Done():
			return found, &store.UnreadError{UserIDs: userIDs, Err: ctx.Err()}
		}
		for _, id := range userIDs[:min(len(userIDs), 800)] {
			found[id] = d.connections[id]
		}
		userIDs = userIDs[min(len(userIDs), 800):]
	}
	return found, nil
}

// Nor do those whose connections have to be read, however many they are: they are waited
// for, and nothing is set aside for it.
func TestG10_ManyLargeGroupsTakeNoOthersTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var records []events.DynamoDBEventRecord
		for g := range 8 {
			id := chat.ConversationID(fmt.Sprint("group:", g))
			for i := range chat.MaxGroupMembers {
				w.member(id, fmt.Sprint("member", g, "-", i), 1, "phone")
			}
			w.write(id, 1)
			records = append(records, changed(string(id), id, 0, 1))
		}
		w.member("single:a", "yan", 1, "phone")
		w.member("single:a", "zoe", 1, "phone")
		w.write("single:a", 1)
		h, _ := w.handler()
		h.store = distant{w}
		start := time.Now()
		var mu sync.Mutex
		var heard []time.Duration
		posts := 0
		h.pusher = gateway{latency: 10 * time.Millisecond, posted: func(connectionID string) {
			mu.Lock()
			defer mu.Unlock()
			posts++
			if !strings.HasPrefix(connectionID, "member") {
				heard = append(heard, time.Since(start))
			}
		}}.pusher()
		h.follow(t.Context(), batchOf(append(records, changed("last", "single:a", 0, 1))...))
		require.Equal(t, []time.Duration{50 * time.Millisecond, 50 * time.Millisecond}, heard)
		require.Equal(t, 8*chat.MaxGroupMembers+2, posts)
		require.LessOrEqual(t, time.Since(start), pushBudget)
		require.Empty(t, w.aside)
	})
}

// Nor do the many writes that a large conversation takes when it is made.
func TestG10_WhatTakesManyWritesComesLast(t *testing.T) {
	t.Parallel()
	w := newWorld()
	var all []string
	for i := range 40 {
		all = append(all, fmt.Sprint("u", i))
		w.member("group:made", all[i], 1, "phone")
	}
	w.member("group:small", "alice", 1, "phone")
	w.write("group:made", 1)
	w.membersEvent("group:made", 1, all, nil)
	w.write("group:small", 1)
	failed, _ := w.handle(t, batchOf(record("1", "group:made", 0, 1), record("2", "group:small", 0, 1)))
	require.Empty(t, failed)
	require.Equal(t, []string{"alice-phone"}, w.groups[0])
	require.Equal(t, []int{1, 1 + 2*40}, w.notedBy)
}

// A conversation whose devices do not read uses up its own part of the time: whatever it
// is, all others are pushed to.
func TestG10_AConversationThatDoesNotReadLeavesTheOthersTheirTime(t *testing.T) {
	t.Parallel()
	for _, unread := range []string{"small", "30", "40", "50"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			w.unread = unread
			w.member("group:small", "small", 1, "phone")
			w.write("group:small", 1)
			records := []events.DynamoDBEventRecord{record("1", "group:small", 0, 1)}
			for _, size := range []int{30, 40, 50} {
				id := chat.ConversationID(fmt.Sprint("group:", size))
				for i := range size {
					w.member(id, fmt.Sprint(size, " ", i), 1, "phone")
				}
				w.write(id, 1)
				records = append(records, record(string(id), id, 0, 1))
			}
			start := time.Now()
			failed, _ := w.handle(t, batchOf(records...))
			require.Empty(t, failed)
			require.Len(t, w.groups, 4)
			require.LessOrEqual(t, time.Since(start), pushBudget)
			for userID := range w.connections {
				if !strings.HasPrefix(userID, unread) {
					require.Len(t, w.frames[userID+"-phone"], 1, "%s where %s do not read", userID, unread)
				}
			}
		})
	}
}

func TestNobodyOnline(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.member("group:a", "alice", 1)
	w.write("group:a", 1)
	failed, _ := w.handle(t, batchOf(record("1", "group:a", 0, 1)))
	require.Empty(t, failed)
	require.Equal(t, map[string][]chat.ConversationID{"alice": {"group:a"}}, w.raised)
	require.Empty(t, w.frames)
}

// A device finds its large conversations in its user's sync head; who comes,
// goes, or is in one that crosses the line is noted there, and no one else.
func TestLargeConversationsAreListed(t *testing.T) {
	t.Parallel()
	user := func(i int) string { return fmt.Sprintf("user%03d", i) }
	for name, tc := range map[string]struct {
		before, after  int // members
		added, removed []string
		listed         int // how many users are listed as large
		delisted       int
		raised         int
	}{
		"stays small":           {before: 3, after: 4, added: []string{user(3)}, raised: 4},
		"becomes large":         {before: chat.InboxGroupMax, after: chat.InboxGroupMax + 1, added: []string{user(chat.InboxGroupMax)}, listed: chat.InboxGroupMax + 1, raised: 1},
		"large, one comes":      {before: 30, after: 31, added: []string{user(30)}, listed: 1, raised: 1},
		"large, one goes":       {before: 31, after: 30, removed: []string{"gone"}, delisted: 1, raised: 1},
		"becomes small":         {before: chat.InboxGroupMax + 1, after: chat.InboxGroupMax, removed: []string{"gone"}, delisted: chat.InboxGroupMax + 1, raised: chat.InboxGroupMax + 1},
		"created large":         {before: 0, after: 40, added: []string{user(0), user(1)}, listed: 40, raised: 2},
		"large, a role changes": {before: 30, after: 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			for i := range tc.after {
				w.member("group:a", user(i), 1)
			}
			w.write("group:a", 7)
			w.membersEvent("group:a", 7, tc.added, tc.removed)
			change := record("1", "group:a", 6, 7)
			change.Change.NewImage = head("group:a", 7, 2)
			change.Change.NewImage["memberCount"] = events.NewNumberAttribute(fmt.Sprint(tc.after))
			change.Change.OldImage["memberCount"] = events.NewNumberAttribute(fmt.Sprint(tc.before))
			failed, _ := w.handle(t, batchOf(change))
			require.Empty(t, failed)
			counts := map[bool]int{}
			for _, large := range w.listed {
				counts[large]++
			}
			require.Equal(t, tc.listed, counts[true], "listed")
			require.Equal(t, tc.delisted, counts[false], "delisted")
			require.Len(t, w.raised, tc.raised)
			if len(w.listed) > 0 {
				// A device that asks in between finds it on the list, or among the changes.
				order := slices.DeleteFunc([]string{"list", "raise", "delist", "connections"}, func(step string) bool { return !slices.Contains(w.steps, step) })
				require.Equal(t, order, w.steps)
			}
		})
	}
}

// Who reads a large system conversation from a publication on is in no event.
func TestNewReadersOfALargeConversationAreToldOfIt(t *testing.T) {
	t.Parallel()
	w := newWorld()
	for i := range 30 {
		w.member("system:news", fmt.Sprintf("user%03d", i), 1)
	}
	w.member("system:news", "late", 7)
	w.rosters["system:news"][30].JoinedSeq = 7
	w.write("system:news", 7)
	change := record("1", "system:news", 6, 7)
	change.Change.NewImage = head("system:news", 7, 2)
	change.Change.NewImage["memberCount"] = events.NewNumberAttribute("31")
	change.Change.OldImage["memberCount"] = events.NewNumberAttribute("30")
	failed, _ := w.handle(t, batchOf(change))
	require.Empty(t, failed)
	require.Equal(t, map[listing]bool{{"late", "system:news"}: true}, w.listed)
	require.Equal(t, map[string][]chat.ConversationID{"late": {"system:news"}}, w.raised)
}

func TestTheLineTellsAges(t *testing.T) {
	t.Parallel()
	aged := func(r events.DynamoDBEventRecord, created, updated int64) events.DynamoDBEventRecord {
		r.Change.ApproximateCreationDateTime = events.SecondsEpochTime{Time: time.UnixMilli(created)}
		r.Change.NewImage["updatedAt"] = events.NewNumberAttribute(fmt.Sprint(updated))
		return r
	}
	w := newWorld()
	w.member("group:a", "alice", 1, "phone")
	w.member("group:b", "bob", 1)
	w.write("group:a", 2)
	w.write("group:b", 5)
	_, log := w.handle(t, batchOf(
		aged(record("1", "group:a", 0, 1), now-3000, now-3100),
		aged(record("2", "group:a", 1, 2), now-1000, now-1100),
		aged(record("3", "group:b", 1, 5), now-2000, now-2100),
	))
	require.Contains(t, log, `"StreamAge":3000`, "of the oldest record")
	require.Contains(t, log, `"CommitToPush":[1100,2100]`, "of each conversation's newest entry")
	require.Contains(t, log, `"conversationId":"group:b","seq":5`, "the one with the most news")

	t.Run("where nobody was pushed to there is no latency", func(t *testing.T) {
		t.Parallel()
		w := newWorld()
		w.member("group:b", "bob", 1)
		w.write("group:b", 1)
		_, log := w.handle(t, batchOf(aged(record("1", "group:b", 0, 1), now+5000, now+5000)))
		require.NotContains(t, log, "CommitToPush")
		require.Contains(t, log, `"StreamAge":0`, "clocks differ")
	})
}

func TestInvariants(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ledger func(entries []chat.Message)
		record events.DynamoDBEventRecord
		want   string
	}{
		"hold":                    {func([]chat.Message) {}, record("1", "group:a", 1, 3), ""},
		"a head went back":        {func([]chat.Message) {}, record("1", "group:a", 3, 2), `"conversationId":"group:a","seq":2,"before":3,"InvariantSeqWentBack":1`},
		"two entries with a seq":  {func(e []chat.Message) { e[2].Seq = 2 }, record("1", "group:a", 1, 3), `"seq":2,"messageId":"01K3","InvariantDuplicateSeq":1`},
		"two for a clientMsgId":   {func(e []chat.Message) { e[2].ClientMsgID = e[1].ClientMsgID }, record("1", "group:a", 1, 3), `"messageId":"01K3","other":"01K2","InvariantIdempotency":1`},
		"one each of two senders": {func(e []chat.Message) { e[2].ClientMsgID, e[2].SenderID = e[1].ClientMsgID, "bob" }, record("1", "group:a", 1, 3), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.member("group:a", "alice", 1, "phone")
			w.write("group:a", 3)
			tc.ledger(w.ledgers["group:a"])
			failed, log := w.handle(t, batchOf(tc.record))
			require.Empty(t, failed, "to repeat it would not mend it")
			if tc.want == "" {
				require.NotContains(t, log, "Invariant")
				return
			}
			require.Contains(t, log, `"level":"ERROR"`)
			require.Contains(t, log, tc.want)
			require.Equal(t, 1, strings.Count(log, "Invariant"))
		})
	}
}
