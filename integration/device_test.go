package integration_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	smithytime "github.com/aws/smithy-go/time"
	"github.com/stretchr/testify/require"

	raw "github.com/inorder-im/inorder/integration/device"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// patience is how long anything may take before a test gives up on it.
const patience = 90 * time.Second

// newUser makes up a user that no other test and no other run has.
func newUser(name string) string { return name + "-" + rand.Text()[:12] }

// device is a client: it does what the protocol asks of one, and keeps what it
// was pushed. Its methods may be called from several goroutines.
type device struct {
	stack      stack
	user, name string
	tokens     url.Values                      // more to ask of its tokens
	take       func(kind string, frame []byte) // what it is pushed
	conn       *raw.Conn

	mu        sync.Mutex
	news      chan struct{} // closed and replaced whenever something changed
	ledgers   map[chat.ConversationID]*ledger
	goodbyes  []string
	answered  func(chat.Message) // told of the own messages that answers stand for; the lock is held
	violation error              // the first thing that no server may do
}

// ledger is what a device knows of one conversation.
type ledger struct {
	messages map[int64]chat.Message
	pushed   []int64 // seqs in the order in which they were pushed
	skipped  []int64
	next     int64 // everything up to it is accounted for by syncs
}

type (
	answer  = raw.Answer
	refusal = raw.Refusal
)

// isPlatforms reports whether the answer was API Gateway's own.
func isPlatforms(err error) bool {
	_, ok := errors.AsType[*raw.PlatformError](err)
	return ok
}

// newDevice makes a device that knows nothing yet.
func newDevice(s stack, user, name string) *device {
	d := &device{stack: s, user: user, name: name, news: make(chan struct{}), ledgers: map[chat.ConversationID]*ledger{}}
	d.take = d.learnPush
	return d
}

// connect opens a new device's socket.
func connect(ctx context.Context, s stack, user, name string) (*device, error) {
	d := newDevice(s, user, name)
	err := d.reconnect(ctx)
	return d, err
}

// mustConnect is connect for a test, with a device that ends with it.
func mustConnect(tb testing.TB, s stack, user, name string) *device {
	tb.Helper()
	require.NoError(tb, dependOnTheProduct())
	d, err := connect(tb.Context(), s, user, name)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		d.close()
		if err := d.fault(); err != nil {
			tb.Error(err)
		}
	})
	return d
}

// reconnect opens the socket again; the device keeps what it knows. The server
// that d.stack names may have changed.
func (d *device) reconnect(ctx context.Context) error {
	token, err := d.stack.Token(ctx, d.user, d.tokens)
	if err != nil {
		return err
	}
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, _, err := raw.Dial(within, d.stack.Socket, d.name, token, func(kind string, frame []byte) {
		d.mu.Lock()
		defer d.mu.Unlock()
		defer d.changed()
		d.take(kind, frame)
	})
	if err != nil {
		return fmt.Errorf("connecting %s/%s: %w", d.user, d.name, err)
	}
	d.conn = conn
	go func() {
		<-conn.Closed()
		d.mu.Lock()
		defer d.mu.Unlock()
		d.changed()
	}()
	return nil
}

// close ends the socket, orderly, and waits for the reader.
func (d *device) close() { d.conn.Close() }

// changed wakes those who wait in await. The caller holds the lock.
func (d *device) changed() {
	close(d.news)
	d.news = make(chan struct{})
}

// learnPush takes in what is pushed. The caller holds the lock.
func (d *device) learnPush(kind string, frame []byte) {
	switch kind {
	case "":
		d.violated("a frame that cannot be read: %.200q", frame)
	case wire.TypePush:
		var p wire.Push
		if err := json.Unmarshal(frame, &p); err != nil {
			d.violated("a push that cannot be read: %w", err)
		}
		for _, u := range p.Updates {
			for _, m := range u.Messages {
				d.learn(u.ConversationID, m)
				l := d.ledger(u.ConversationID)
				l.pushed = append(l.pushed, m.Seq)
			}
		}
	case wire.TypeGoodbye:
		var g wire.Goodbye
		_ = json.Unmarshal(frame, &g)
		d.goodbyes = append(d.goodbyes, g.Reason)
	}
}

// learn puts a message into the ledger. One place never holds two messages, and
// what the device had by push has to be what it gets by sync.
func (d *device) learn(conversationID chat.ConversationID, m chat.Message) {
	l := d.ledger(conversationID)
	if m.ConversationID != conversationID || m.Seq < 1 || m.MessageID == "" {
		d.violated("a message of conversation %q, seq %d, messageId %q in an update of %s", m.ConversationID, m.Seq, m.MessageID, conversationID)
	}
	known, ok := l.messages[m.Seq]
	if ok && (known.MessageID != m.MessageID || known.SenderID != m.SenderID || known.Version == m.Version && known.Text != m.Text) {
		d.violated("seq %d of %s is %+v and also %+v", m.Seq, conversationID, known, m)
	}
	if m.Version >= known.Version { // a push may bring what it was before an edit
		l.messages[m.Seq] = m
	}
}

func (d *device) ledger(conversationID chat.ConversationID) *ledger {
	l := d.ledgers[conversationID]
	if l == nil {
		l = &ledger{messages: map[int64]chat.Message{}}
		d.ledgers[conversationID] = l
	}
	return l
}

func (d *device) violated(format string, args ...any) {
	d.violation = cmp.Or(d.violation, fmt.Errorf("device %s/%s got "+format, append([]any{d.user, d.name}, args...)...))
}

// fault is the first thing the server did that no server may do.
func (d *device) fault() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.violation
}

// do sends a request and reads its result into into, if that is not nil. The
// error is that of [raw.Conn.Do].
func (d *device) do(ctx context.Context, action string, request, into any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return d.conn.Do(ctx, action, request, into)
}

// ask sends a request under a new id and waits for its answer.
func (d *device) ask(ctx context.Context, action string, request any) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return d.conn.Ask(ctx, action, request)
}

// exchange writes a frame as it is and waits for the answer to this id, or for
// one without id.
func (d *device) exchange(ctx context.Context, id string, frame []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return d.conn.Exchange(ctx, id, frame)
}

// send sends a message, patiently and with the same clientMsgId, until it is answered.
func (d *device) send(ctx context.Context, s wire.Send) (wire.Sent, error) {
	s.ClientMsgID = cmp.Or(s.ClientMsgID, rand.Text())
	s.MessageType = cmp.Or(s.MessageType, chat.TypeText)
	var sent wire.Sent
	err := patiently(ctx, func() error { return d.do(ctx, wire.ActionSend, s, &sent) })
	if err == nil && !sent.Duplicate {
		d.arrived(s, sent)
	}
	return sent, err
}

// mustSend is send for a test, which ends where it fails.
func mustSend(tb testing.TB, d *device, s wire.Send) wire.Sent {
	tb.Helper()
	sent, err := d.send(tb.Context(), s)
	require.NoError(tb, err)
	return sent
}

// arrived takes in an own message by the answer to its send: to this connection it is
// not pushed.
func (d *device) arrived(s wire.Send, sent wire.Sent) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.changed()
	m := chat.Message{
		ConversationID: sent.ConversationID, Seq: sent.Seq, MessageID: sent.MessageID, ServerTime: sent.ServerTime,
		ClientMsgID: s.ClientMsgID, SenderID: d.user, SenderDeviceID: d.name, MessageType: s.MessageType,
		Text: s.Text, Data: s.Data, ReplyTo: s.ReplyTo, ClientTime: s.ClientTime, Version: 1, Status: chat.StatusNormal,
	}
	d.learn(sent.ConversationID, m)
	l := d.ledger(sent.ConversationID)
	l.pushed = append(l.pushed, m.Seq)
	if d.answered != nil {
		d.answered(m)
	}
}

// patiently makes a request again, after a growing, random while, when it was BUSY or
// the answer got lost.
func patiently(ctx context.Context, request func() error) error {
	for attempt := 0; ; attempt++ {
		err := request()
		if err == nil || !mayRetry(err) || attempt == 20 {
			return err
		}
		if smithytime.SleepWithContext(ctx, mathrand.N(20*time.Millisecond<<min(attempt, 6))) != nil {
			return err
		}
	}
}

func mayRetry(err error) bool {
	r, refused := errors.AsType[*refusal](err)
	return refused && r.Frame.Retryable || isPlatforms(err)
}

// sync pulls a conversation from where the device is until it has caught up.
func (d *device) sync(ctx context.Context, conversationID chat.ConversationID) error {
	for {
		page, err := d.syncPage(ctx, conversationID, 0)
		if err != nil {
			return err
		}
		if page.NextSeq >= page.CommittedMaxSeq {
			return nil
		}
	}
}

// syncPage pulls one page, of at most limit messages if that is not 0, and checks
// what each has to hold: every seq it passes is accounted for.
func (d *device) syncPage(ctx context.Context, conversationID chat.ConversationID, limit int) (wire.Synced, error) {
	d.mu.Lock()
	after := d.ledger(conversationID).next
	d.mu.Unlock()
	request := wire.Sync{ConversationID: conversationID, AfterSeq: &after}
	if limit != 0 {
		request.Limit = &limit
	}
	var page wire.Synced
	if err := d.do(ctx, wire.ActionSync, request, &page); err != nil {
		return page, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	accounted := slices.Clone(page.Skipped)
	for i, m := range page.Messages {
		d.learn(conversationID, m)
		accounted = append(accounted, m.Seq)
		if i > 0 && m.Seq <= page.Messages[i-1].Seq {
			d.violated("a page of %s that does not ascend at seq %d", conversationID, m.Seq)
		}
	}
	slices.Sort(accounted)
	first := max(after+1, page.FirstSeq)
	for i, seq := range accounted {
		if seq != first+int64(i) {
			d.violated("a page of %s after %d that passes over seq %d", conversationID, after, first+int64(i))
			break
		}
	}
	if page.NextSeq != max(after, first+int64(len(accounted))-1) || page.NextSeq > max(after, page.CommittedMaxSeq) {
		d.violated("a page of %s after %d with %d seqs, nextSeq %d and committedMaxSeq %d",
			conversationID, after, len(accounted), page.NextSeq, page.CommittedMaxSeq)
	}
	if page.HasMore != (page.NextSeq < page.CommittedMaxSeq) {
		d.violated("hasMore %t with nextSeq %d and committedMaxSeq %d", page.HasMore, page.NextSeq, page.CommittedMaxSeq)
	}
	l := d.ledger(conversationID)
	l.skipped = append(l.skipped, page.Skipped...)
	l.next = page.NextSeq
	return page, d.violation
}

// catchUp does what a device does after it has connected: it asks what changed
// since the cursor, pulls that, and returns the new cursor.
func (d *device) catchUp(ctx context.Context, cursor int64) (int64, error) {
	var changed wire.Changed
	if err := d.do(ctx, wire.ActionChanges, wire.Changes{SyncCursor: &cursor}, &changed); err != nil {
		return cursor, err
	}
	for _, c := range changed.Conversations {
		if err := d.sync(ctx, c.ConversationID); err != nil {
			return cursor, err
		}
	}
	return changed.SyncCursor, nil
}

// messages returns the ledger of a conversation, by seq.
func (d *device) messages(conversationID chat.ConversationID) []chat.Message {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(maps.Values(d.ledger(conversationID).messages), func(a, b chat.Message) int {
		return cmp.Compare(a.Seq, b.Seq)
	})
}

// skipped returns the seqs that syncs named as absent.
func (d *device) skipped(conversationID chat.ConversationID) []int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.ledger(conversationID).skipped)
}

// await waits until the device's state is as wanted; hold says so, under the
// lock. The error is what is, in the words of hold, when patience ends.
func (d *device) await(ctx context.Context, what string, hold func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		d.mu.Lock()
		held, news := hold(), d.news
		d.mu.Unlock()
		if held {
			return nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return fmt.Errorf("device %s/%s waited in vain: %s", d.user, d.name, what)
		}
	}
}

// awaitPushed waits until the device was pushed each of these seqs.
func (d *device) awaitPushed(ctx context.Context, conversationID chat.ConversationID, seqs ...int64) error {
	return d.await(ctx, fmt.Sprintf("the push of seqs %v of %s", seqs, conversationID), func() bool {
		return d.pushed(conversationID, seqs...)
	})
}

// seqsTo returns the seqs 1 to n.
func seqsTo(n int64) []int64 {
	all := make([]int64, n)
	for i := range all {
		all[i] = int64(i + 1)
	}
	return all
}

// pushed reports whether all of these have been pushed. d.mu is held.
func (d *device) pushed(conversationID chat.ConversationID, seqs ...int64) bool {
	pushed := d.ledger(conversationID).pushed
	for _, seq := range seqs {
		if !slices.Contains(pushed, seq) {
			return false
		}
	}
	return true
}

// awaitNews waits until the device has this message, by whatever way.
func (d *device) awaitNews(ctx context.Context, sent wire.Sent) error {
	return d.await(ctx, fmt.Sprintf("to hear of seq %d of %s", sent.Seq, sent.ConversationID), func() bool {
		return d.ledger(sent.ConversationID).messages[sent.Seq].MessageID == sent.MessageID
	})
}
