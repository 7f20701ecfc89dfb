package integration_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/inorder-im/inorder/integration/proxy"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// listener is a device that only keeps what it is pushed, and takes none of it for
// its ledgers.
type listener struct {
	*device
	heard  []push                                 // in the order of their coming
	pushed map[chat.ConversationID][]chat.Message // by conversation, in that order
}

// push is a frame that answers no request. Which fields it has depends on Type.
type push struct {
	Type           string              `json:"type"`
	Updates        json.RawMessage     `json:"updates"`
	ConversationID chat.ConversationID `json:"conversationId"`
	UserID         string              `json:"userId"`
	DeliveredSeq   int64               `json:"deliveredSeq"`
	ReadSeq        int64               `json:"readSeq"`
	SyncCursor     int64               `json:"syncCursor"`
	Reason         string              `json:"reason"`
}

// listen opens a listener's socket, which ends with the test.
func listen(tb testing.TB, s stack, user, name string) *listener {
	tb.Helper()
	l, err := openListener(tb.Context(), s, user, name)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		l.close()
		if err := l.fault(); err != nil {
			tb.Error(err)
		}
	})
	return l
}

func openListener(ctx context.Context, s stack, user, name string) (*listener, error) {
	l := &listener{device: newDevice(s, user, name), pushed: map[chat.ConversationID][]chat.Message{}}
	l.take = l.keep
	l.answered = func(m chat.Message) { l.pushed[m.ConversationID] = append(l.pushed[m.ConversationID], m) }
	err := l.reconnect(ctx)
	return l, err
}

// listenAll opens a listener for each user, under one device name.
func listenAll(tb testing.TB, s stack, users ...string) []*listener {
	tb.Helper()
	all := make([]*listener, len(users))
	for i, user := range users {
		all[i] = listen(tb, s, user, "phone")
	}
	return all
}

// keep takes in a push. The caller holds the lock.
func (l *listener) keep(kind string, frame []byte) {
	var p push
	if err := json.Unmarshal(frame, &p); kind == "" || err != nil {
		l.violated("a frame that cannot be read: %.200q", frame)
		return
	}
	if p.Type == wire.TypePush {
		var updates []wire.Update
		if err := json.Unmarshal(p.Updates, &updates); err != nil {
			l.violated("a push that cannot be read: %w", err)
		}
		for _, u := range updates {
			l.pushed[u.ConversationID] = append(l.pushed[u.ConversationID], u.Messages...)
		}
	}
	l.heard = append(l.heard, p)
}

// pushes returns what was heard so far, of one type.
func (l *listener) pushes(kind string) []push {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pushesLocked(kind)
}

func (l *listener) pushesLocked(kind string) []push {
	return slices.DeleteFunc(slices.Clone(l.heard), func(p push) bool { return p.Type != kind })
}

// entries returns the messages of a conversation in the order they were pushed in.
func (l *listener) entries(conversationID chat.ConversationID) []chat.Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.pushed[conversationID])
}

// awaitEntry waits until the message with this seq was pushed, and returns it.
func (l *listener) awaitEntry(ctx context.Context, conversationID chat.ConversationID, seq int64) (chat.Message, error) {
	var found chat.Message
	err := l.await(ctx, fmt.Sprintf("the push of seq %d of %s", seq, conversationID), func() bool {
		entries := l.pushed[conversationID]
		i := slices.IndexFunc(entries, func(m chat.Message) bool { return m.Seq == seq })
		if i >= 0 {
			found = entries[i]
		}
		return i >= 0
	})
	return found, err
}

// entryAt is awaitEntry for a test, which ends where it fails.
func entryAt(tb testing.TB, l *listener, conversationID chat.ConversationID, seq int64) chat.Message {
	tb.Helper()
	m, err := l.awaitEntry(tb.Context(), conversationID, seq)
	require.NoError(tb, err)
	return m
}

// awaitPush waits until a push is as wanted, and returns it.
func (l *listener) awaitPush(ctx context.Context, what string, wanted func(push) bool) (push, error) {
	var found push
	err := l.await(ctx, what, func() bool {
		i := slices.IndexFunc(l.heard, wanted)
		if i >= 0 {
			found = l.heard[i]
		}
		return i >= 0
	})
	return found, err
}

// awaitReceipt waits for the receipt of a user that says one of these positions;
// 0 is none.
func (l *listener) awaitReceipt(ctx context.Context, conversationID chat.ConversationID, user string, delivered, read int64) error {
	want := push{Type: wire.TypeReceipt, ConversationID: conversationID, UserID: user, DeliveredSeq: delivered, ReadSeq: read}
	_, err := l.awaitPush(ctx, fmt.Sprintf("%+v", want), func(p push) bool {
		p.Updates = nil
		return p.Type == want.Type && p.ConversationID == conversationID && p.UserID == user && p.DeliveredSeq == delivered && p.ReadSeq == read
	})
	return err
}

// must is a request that succeeds.
func must[T any](tb testing.TB, d *device, action string, request any) T {
	tb.Helper()
	result, err := try[T](tb.Context(), d, action, request)
	require.NoError(tb, err, "%s by %s: %+v", action, d.user, request)
	return result
}

// try is a request that is made again, under its clientMsgId, while it is BUSY.
func try[T any](ctx context.Context, d *device, action string, request any) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		var result T
		err := d.do(ctx, action, request, &result)
		if err == nil || !mayRetry(err) {
			return result, err
		}
	}
}

// requireRefused is a request that is refused, and how.
func requireRefused(tb testing.TB, d *device, action string, request any, code chat.Code, field string) wire.Error {
	tb.Helper()
	_, err := try[json.RawMessage](tb.Context(), d, action, request)
	refused := &refusal{}
	require.ErrorAs(tb, err, &refused, "%s by %s: %+v", action, d.user, request)
	require.Equal(tb, [2]string{string(code), field}, [2]string{string(refused.Frame.Code), refused.Frame.Field}, "%s: %s", action, refused.Frame.Message)
	return refused.Frame
}

func codeOf(err error) chat.Code {
	if refused, ok := errors.AsType[*refusal](err); ok {
		return refused.Frame.Code
	}
	return ""
}

// newID makes a clientMsgId.
func newID() string { return newUser("id") }

// lineOf returns a user's line of a conversation; ok is false if there is none.
func lineOf(tb testing.TB, d *device, conversationID chat.ConversationID) (wire.Conversation, bool) {
	tb.Helper()
	for cursor := ""; ; {
		page := must[wire.ConversationsPage](tb, d, wire.ActionConversations, wire.Conversations{Cursor: cursor})
		for _, c := range page.Conversations {
			if c.ConversationID == conversationID {
				return c, true
			}
		}
		if cursor = page.Cursor; cursor == "" {
			return wire.Conversation{}, false
		}
	}
}

// changesSince returns all that changed since a cursor: the whole answer, and of a
// full one the rest of the list too.
func changesSince(tb testing.TB, d *device, cursor int64) wire.Changed {
	tb.Helper()
	changed := must[wire.Changed](tb, d, wire.ActionChanges, wire.Changes{SyncCursor: &cursor})
	for next := changed.Cursor; next != ""; {
		page := must[wire.ConversationsPage](tb, d, wire.ActionConversations, wire.Conversations{Cursor: next})
		changed.Conversations = append(changed.Conversations, page.Conversations...)
		next = page.Cursor
	}
	return changed
}

func idsOf(list []wire.Conversation) []chat.ConversationID {
	ids := make([]chat.ConversationID, len(list))
	for i, c := range list {
		ids[i] = c.ConversationID
	}
	return ids
}

// Forty conversations are more than a sync head remembers, so a device with an
// old cursor gets the whole list, and loses none of them.
func TestSyncHead_FortyChangedConversationsLoseNone(t *testing.T) {
	t.Parallel()
	const n = 40
	alice, bob := newUser("alice"), newUser("bob")
	a, b := mustConnect(t, shared, alice, "phone"), mustConnect(t, shared, bob, "phone")
	var groups [n]chat.ConversationID
	create := func(i int) error {
		made, err := try[wire.Created](t.Context(), b, wire.ActionCreateGroup, wire.CreateGroup{
			Title: "group " + strconv.Itoa(i), Members: []string{alice}, ClientMsgID: newID(),
		})
		groups[i] = made.ConversationID
		return err
	}
	require.NoError(t, create(0))
	require.NoError(t, a.awaitPushed(t.Context(), groups[0], 1))
	old := changesSince(t, a, 0).SyncCursor
	require.Positive(t, old)

	var creators errgroup.Group
	creators.SetLimit(8)
	for i := 1; i < n; i++ {
		creators.Go(func() error { return create(i) })
	}
	require.NoError(t, creators.Wait())
	for _, id := range groups {
		require.NoError(t, a.awaitPushed(t.Context(), id, 1), "what is pushed is noted in the sync head")
	}
	changed := changesSince(t, a, old)
	require.False(t, changed.Full, "forty are told without the whole list")
	require.ElementsMatch(t, groups[1:], idsOf(changed.Conversations))
	require.False(t, changed.More)

	some := groups[10:13]
	for _, id := range some {
		mustSend(t, b, wire.Send{ConversationID: id, Text: "news"})
		require.NoError(t, a.awaitPushed(t.Context(), id, 2))
	}
	recent := changesSince(t, a, changed.SyncCursor)
	require.False(t, recent.Full)
	require.ElementsMatch(t, some, idsOf(recent.Conversations))
	require.Equal(t, changed.SyncCursor+3, recent.SyncCursor)
	for _, c := range recent.Conversations {
		require.Equal(t, int64(2), c.LastSeq)
		require.Equal(t, "news", c.LastMessage.Text)
	}
	require.Empty(t, changesSince(t, a, recent.SyncCursor).Conversations)

	for name, cursor := range map[string]int64{"none": 0, "one of before a restore": recent.SyncCursor + 1000} {
		everything := changesSince(t, a, cursor)
		require.True(t, everything.Full, name)
		require.ElementsMatch(t, groups[:], idsOf(everything.Conversations), name)
	}
}

// Whenever in a storm a device connects, it hears of everything: by the changes
// it asks for once, or by a push. So it does when the fan-out is late at every
// step, and when it fails after its work is done and does it again.
func TestSyncHead_ADeviceThatReconnectsInAStormEndsWithAllChanges(t *testing.T) {
	t.Parallel()
	t.Run("as it is", func(t *testing.T) {
		t.Parallel()
		reconnectInAStorm(t, shared)
	})
	t.Run("with a late fan-out that repeats itself", func(t *testing.T) {
		t.Parallel()
		db := startDatabase(t)
		c := startCloud(t, "-dynamodb-endpoint", db.endpoint)
		var late, failed atomic.Int64
		db.set(func(operation string, request []byte, forward func() proxy.Answer) proxy.Answer {
			if !isRaise(operation, request) && !isLookup(operation, request) {
				return forward()
			}
			n := late.Add(1)
			<-time.After(rand.N(40 * time.Millisecond))
			answer := forward()
			if n%10 == 0 {
				failed.Add(1)
				return failure("ValidationException")
			}
			return answer
		})
		reconnectInAStorm(t, c.Stack)
		db.set(nil)
		t.Logf("%d late, %d of them failed", late.Load(), failed.Load())
		require.Positive(t, failed.Load())
	})
}

// isRaise recognises the write of a sync head, and isLookup the read of
// connections.
func isRaise(operation string, request []byte) bool {
	return operation == "UpdateItem" && bytes.Contains(request, []byte(`{"S":"#"}`))
}

func isLookup(operation string, request []byte) bool {
	return operation == "BatchGetItem" && bytes.Contains(request, []byte("Connections"))
}

// A device connects and asks for changes at each moment of a message's fan-out,
// which is held until it has.
func TestSyncHead_ADeviceThatReconnectsAtAnyMomentHearsOfTheMessage(t *testing.T) {
	t.Parallel()
	db := startDatabase(t)
	c := startCloud(t, "-dynamodb-endpoint", db.endpoint)
	alice, bob := newUser("alice"), newUser("bob")
	b := mustConnect(t, c.Stack, bob, "phone")
	a, err := connect(t.Context(), c.Stack, alice, "phone")
	require.NoError(t, err)
	defer func() { a.close() }()
	conversation := exchangeMessages(t, b, a, 1)
	require.NoError(t, a.awaitPushed(t.Context(), conversation, 1, 2))
	cursor, err := a.catchUp(t.Context(), 0)
	require.NoError(t, err)

	for _, moment := range []struct {
		name   string
		of     func(operation string, request []byte) bool
		after  bool // when it is done, and not answered
		failed bool // and answered by a failure
	}{
		{"before the sync head is raised", isRaise, false, false},
		{"after the sync head is raised", isRaise, true, false},
		{"after the sync head is raised, which is tried again", isRaise, true, true},
		{"before the connections are read", isLookup, false, false},
		{"after the connections are read", isLookup, true, false},
		{"after the connections are read, which is tried again", isLookup, true, true},
	} {
		a.close()
		arrived, resume := make(chan struct{}), make(chan struct{})
		var once sync.Once
		db.set(func(operation string, request []byte, forward func() proxy.Answer) proxy.Answer {
			if !moment.of(operation, request) || !bytes.Contains(request, []byte(alice)) {
				return forward()
			}
			first := false
			once.Do(func() { first = true })
			if !first {
				return forward()
			}
			hold := func() {
				close(arrived)
				<-resume
			}
			if !moment.after {
				hold()
				return forward()
			}
			answer := forward()
			hold()
			if moment.failed {
				return failure("ValidationException")
			}
			return answer
		})
		func() {
			defer close(resume)
			sent := mustSend(t, b, wire.Send{To: alice, Text: moment.name})
			conversation = sent.ConversationID
			select {
			case <-arrived:
			case <-time.After(patience):
				require.Fail(t, "the fan-out did not come to the moment", moment.name)
			}
			require.NoError(t, a.reconnect(t.Context()))
			cursor, err = a.catchUp(t.Context(), cursor)
			require.NoError(t, err)
		}()
		require.NoError(t, b.sync(t.Context(), conversation))
		last := int64(len(b.messages(conversation)))
		require.NoError(t, a.await(t.Context(), "to hear of a message whose fan-out was held "+moment.name, func() bool {
			l := a.ledger(conversation)
			return l.next >= last || l.messages[last].Seq == last
		}))
	}
	require.NoError(t, a.fault())
}

func reconnectInAStorm(t *testing.T, s stack) {
	t.Helper()
	const conversations, each, reconnects = 12, 15, 9
	alice, bob := newUser("alice"), newUser("bob")
	b := mustConnect(t, s, bob, "phone")
	var groups []chat.ConversationID
	for i := range conversations {
		groups = append(groups, must[wire.Created](t, b, wire.ActionCreateGroup, wire.CreateGroup{
			Title: strconv.Itoa(i), Members: []string{alice}, ClientMsgID: newID(),
		}).ConversationID)
	}

	storm, ctx := errgroup.WithContext(t.Context())
	sent := make(chan struct{}, conversations*each)
	for i, id := range groups {
		storm.Go(func() error {
			for n := range each {
				if _, err := b.send(ctx, wire.Send{ConversationID: id, Text: text(i, n)}); err != nil {
					return err
				}
				sent <- struct{}{}
			}
			return nil
		})
	}
	a, err := connect(t.Context(), s, alice, "phone")
	require.NoError(t, err)
	defer func() { a.close() }()
	cursor := int64(0)
	for n := range reconnects {
		for range conversations * each / reconnects { // the last time, all
			select {
			case <-sent:
			case <-ctx.Done():
				require.NoError(t, storm.Wait())
			}
		}
		if n%2 == 0 {
			a.close() // the other times the newer connection replaces it
		}
		require.NoError(t, a.reconnect(t.Context()))
		cursor, err = a.catchUp(t.Context(), cursor)
		require.NoError(t, err)
	}
	require.NoError(t, storm.Wait())
	for _, id := range groups {
		const last = 1 + each
		require.NoError(t, a.await(t.Context(), "to hear of the end of "+string(id), func() bool {
			l := a.ledger(id)
			return l.next >= last || l.messages[last].Seq == last
		}))
		require.NoError(t, a.sync(t.Context(), id))
		requireDense(t, a.messages(id), last)
	}
	require.NoError(t, a.fault())
}

// What a user clears is hidden on all of the user's devices, and on no one else's.
func TestClearHidesOnAllDevices(t *testing.T) {
	t.Parallel()
	alice, bob := newUser("alice"), newUser("bob")
	phone, laptop := listen(t, shared, alice, "phone"), listen(t, shared, alice, "laptop")
	b := listen(t, shared, bob, "phone")
	conversation := exchangeMessages(t, phone.device, b.device, 3)
	entryAt(t, laptop, conversation, 6)
	before := changesSince(t, laptop.device, 0).SyncCursor

	clearTo := func(seq int64) int64 {
		return must[wire.Cleared](t, phone.device, wire.ActionClear, wire.Clear{ConversationID: conversation, ThroughSeq: &seq}).ClearedSeq
	}
	require.Equal(t, int64(4), clearTo(4))
	hint, err := laptop.awaitPush(t.Context(), "the hint that something changed", func(p push) bool { return p.Type == wire.TypeChanged })
	require.NoError(t, err)
	changed := changesSince(t, laptop.device, before)
	require.Equal(t, changed.SyncCursor, hint.SyncCursor, "the cursor is the one of the change")
	require.Len(t, changed.Conversations, 1)
	require.Equal(t, int64(4), changed.Conversations[0].ClearedSeq)
	require.Equal(t, int64(1), changed.Conversations[0].Unread, "of the two above, one is alice's own")

	for _, d := range []*listener{phone, laptop} {
		page, err := d.syncPage(t.Context(), conversation, 0)
		require.NoError(t, err)
		require.Equal(t, int64(5), page.FirstSeq)
		require.Len(t, page.Messages, 2)
		older := must[wire.HistoryPage](t, d.device, wire.ActionHistory, wire.History{ConversationID: conversation})
		require.Equal(t, page.Messages, older.Messages)
		require.False(t, older.HasMore)
	}
	require.NoError(t, b.sync(t.Context(), conversation))
	requireDense(t, b.messages(conversation), 6)

	require.Equal(t, int64(4), clearTo(2), "it never goes down")
	require.Equal(t, int64(6), clearTo(1000), "nor above what there is")
	line, ok := lineOf(t, laptop.device, conversation)
	require.True(t, ok, "the conversation stays in the list")
	require.Nil(t, line.LastMessage)
	require.Zero(t, line.Unread)
	page, err := mustConnect(t, shared, alice, "tablet").syncPage(t.Context(), conversation, 0)
	require.NoError(t, err)
	require.Empty(t, page.Messages)

	mustSend(t, b.device, wire.Send{To: alice, Text: "after"})
	require.NoError(t, laptop.sync(t.Context(), conversation))
	got := laptop.messages(conversation)
	require.Equal(t, "after", got[len(got)-1].Text)
	require.Empty(t, phone.pushes(wire.TypeChanged), "the device that cleared knows it")
	require.Empty(t, b.pushes(wire.TypeChanged))
}

// A user's own messages reach the user's other devices.
func TestOwnSendsReachTheOtherDevices(t *testing.T) {
	t.Parallel()
	alice, bob := newUser("alice"), newUser("bob")
	phone, laptop := listen(t, shared, alice, "phone"), listen(t, shared, alice, "laptop")
	sent := mustSend(t, phone.device, wire.Send{To: bob, Text: "from the phone"})
	m := entryAt(t, laptop, sent.ConversationID, 1)
	require.Equal(t, [3]string{alice, "phone", "from the phone"}, [3]string{m.SenderID, m.SenderDeviceID, m.Text})
}

// byUser returns a roster as roles by user.
func byUser(members []wire.Member) map[string]chat.Role {
	roles := map[string]chat.Role{}
	for _, m := range members {
		roles[m.UserID] = m.Role
	}
	return roles
}

// rosterOf reads a whole roster, page by page.
func rosterOf(tb testing.TB, d *device, conversationID chat.ConversationID) (members []wire.Member, pages int) {
	tb.Helper()
	for cursor := ""; ; {
		page := must[wire.MembersPage](tb, d, wire.ActionMembers, wire.Members{ConversationID: conversationID, Cursor: cursor})
		members, pages = append(members, page.Members...), pages+1
		if cursor = page.Cursor; cursor == "" {
			require.True(tb, slices.IsSortedFunc(members, func(a, b wire.Member) int { return cmp.Compare(a.UserID, b.UserID) }))
			require.Len(tb, slices.Collect(maps.Keys(byUser(members))), len(members), "each member once")
			return members, pages
		}
	}
}
