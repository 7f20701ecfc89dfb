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
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"inorder/shared/chat"
	"inorder/shared/wire"
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
	tokens     url.Values // more to ask of its tokens
	conn       *websocket.Conn
	closed     chan struct{} // when the socket is; then closeErr says why
	closeErr   error

	mu        sync.Mutex
	news      chan struct{} // closed and replaced whenever something changed
	requests  int
	waiting   map[string]chan answer
	ledgers   map[string]*ledger
	goodbyes  []string
	violation error // the first thing that no server may do
}

// ledger is what a device knows of one conversation.
type ledger struct {
	messages map[int64]chat.Message
	pushed   []int64 // seqs in the order in which they were pushed
	skipped  []int64
	next     int64 // everything up to it is accounted for by syncs
}

// answer is a frame that is no push. One of API Gateway itself has a Platform
// text and no id.
type answer struct {
	Type     string          `json:"type"`
	ID       string          `json:"id"`
	Action   string          `json:"action"`
	Result   json.RawMessage `json:"result"`
	Error    wire.Error      `json:"error"`
	Platform string          `json:"message"`
}

// refusal is an error frame as an error.
type refusal struct{ frame wire.Error }

func (r *refusal) Error() string {
	return fmt.Sprintf("%s %s: %s", r.frame.Code, r.frame.Field, r.frame.Message)
}

// errPlatform is the error frame of API Gateway: the function crashed, or could
// not be run. Nobody knows whether it did its work.
var errPlatform = errors.New("API Gateway answered with an error")

var errClosed = errors.New("the socket is closed")

// connect opens a device's socket, as a device that knows nothing yet.
func connect(ctx context.Context, s stack, user, name string) (*device, error) {
	d := &device{stack: s, user: user, name: name, ledgers: map[string]*ledger{}}
	return d, d.reconnect(ctx)
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
	conn, err := dial(ctx, d.stack, d.name, token)
	if err != nil {
		return fmt.Errorf("connecting %s/%s: %w", d.user, d.name, err)
	}
	d.conn = conn
	d.closed = make(chan struct{})
	d.mu.Lock()
	d.closeErr = nil
	d.waiting = map[string]chan answer{}
	d.news = make(chan struct{})
	d.mu.Unlock()
	go d.read(conn, d.closed)
	return nil
}

func dial(ctx context.Context, s stack, device, token string) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, _, err := shake(ctx, s, url.Values{"device": {device}}, &websocket.DialOptions{HTTPHeader: bearer(token)})
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(wire.MaxFrameBytes) // the server promises no more
	return conn, nil
}

// shake tries a handshake and gives its HTTP status, 0 if there was no answer.
func shake(ctx context.Context, s stack, query url.Values, o *websocket.DialOptions) (conn *websocket.Conn, status int, err error) {
	conn, resp, err := websocket.Dial(ctx, s.Socket+"?"+query.Encode(), o)
	if resp == nil {
		return conn, 0, err
	}
	if err != nil {
		_ = resp.Body.Close()
	}
	return conn, resp.StatusCode, err
}

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// close ends the socket, orderly, and waits for the reader.
func (d *device) close() {
	_ = d.conn.Close(websocket.StatusNormalClosure, "")
	<-d.closed
}

// read takes in frames until the socket ends.
func (d *device) read(conn *websocket.Conn, closed chan struct{}) {
	defer close(closed)
	for {
		_, data, err := conn.Read(context.Background())
		if err != nil {
			d.mu.Lock()
			d.closeErr = err
			d.changed()
			d.mu.Unlock()
			return
		}
		d.take(data)
	}
}

// changed wakes those who wait in await. The caller holds the lock.
func (d *device) changed() {
	close(d.news)
	d.news = make(chan struct{})
}

func (d *device) take(data []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.changed()
	var kind struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(data, &kind); err != nil {
		d.violated("a frame that is no JSON object: %.200q", data)
		return
	}
	switch kind.Type {
	case wire.TypePush:
		var p wire.Push
		if err := json.Unmarshal(data, &p); err != nil {
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
		_ = json.Unmarshal(data, &g)
		d.goodbyes = append(d.goodbyes, g.Reason)
	case wire.TypeReply, wire.TypeError, "":
		var a answer
		if err := json.Unmarshal(data, &a); err != nil {
			d.violated("an answer that cannot be read: %w", err)
		}
		d.deliver(a)
	}
}

// deliver gives an answer to who waits for it. One without id may be anyone's.
func (d *device) deliver(a answer) {
	for id, waiter := range d.waiting {
		if a.ID == id || a.ID == "" {
			waiter <- a
			delete(d.waiting, id)
		}
	}
}

// learn puts a message into the ledger. One place never holds two messages, and
// what the device had by push has to be what it gets by sync.
func (d *device) learn(conversationID string, m chat.Message) {
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

func (d *device) ledger(conversationID string) *ledger {
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
// error is a *refusal, errPlatform, errClosed, or that of ctx.
func (d *device) do(ctx context.Context, action string, request, into any) error {
	a, err := d.ask(ctx, action, request)
	if err != nil {
		return err
	}
	switch {
	case a.Type == "":
		return fmt.Errorf("%s: %w: %s", action, errPlatform, a.Platform)
	case a.Type == wire.TypeError:
		return &refusal{a.Error}
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(a.Result, into); err != nil {
		return fmt.Errorf("reading the result of %s: %w", action, err)
	}
	return nil
}

// ask sends a request under a new id and waits for its answer.
func (d *device) ask(ctx context.Context, action string, request any) (answer, error) {
	d.mu.Lock()
	d.requests++
	id := strconv.Itoa(d.requests)
	d.mu.Unlock()
	frame, err := frameOf(action, id, request)
	if err != nil {
		return answer{}, err
	}
	return d.exchange(ctx, id, frame)
}

// frameOf adds action and id to a request.
func frameOf(action, id string, request any) ([]byte, error) {
	fields := map[string]json.RawMessage{}
	if request != nil {
		encoded, err := wire.Encode(request)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(encoded, &fields); err != nil {
			return nil, err
		}
	}
	fields["action"], _ = wire.Encode(action)
	fields["id"], _ = wire.Encode(id)
	return wire.Encode(fields)
}

// exchange writes a frame as it is and waits for the answer to this id, or for
// one without id.
func (d *device) exchange(ctx context.Context, id string, frame []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	waiter := make(chan answer, 1)
	d.mu.Lock()
	d.waiting[id] = waiter
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.waiting, id)
		d.mu.Unlock()
	}()
	if err := d.conn.Write(ctx, websocket.MessageText, frame); err != nil {
		return answer{}, fmt.Errorf("%w: %w", errClosed, err)
	}
	select {
	case a := <-waiter:
		return a, nil
	case <-d.closed:
		return answer{}, fmt.Errorf("%w before the answer: %w", errClosed, d.closeErr)
	case <-ctx.Done():
		return answer{}, fmt.Errorf("waiting for the answer to %.100s: %w", frame, ctx.Err())
	}
}

// send sends a message, patiently and with the same clientMsgId, until it is answered.
func (d *device) send(ctx context.Context, s wire.Send) (wire.Sent, error) {
	s.ClientMsgID = cmp.Or(s.ClientMsgID, rand.Text())
	s.MessageType = cmp.Or(s.MessageType, chat.TypeText)
	var sent wire.Sent
	err := patiently(ctx, func() error { return d.do(ctx, wire.ActionSend, s, &sent) })
	return sent, err
}

// patiently makes a request again, after a growing, random while, when it was BUSY or
// the answer got lost.
func patiently(ctx context.Context, request func() error) error {
	for attempt := 0; ; attempt++ {
		err := request()
		if err == nil || !mayRetry(err) || attempt == 20 {
			return err
		}
		timer := time.NewTimer(mathrand.N(20 * time.Millisecond << min(attempt, 6)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
	}
}

func mayRetry(err error) bool {
	r, refused := errors.AsType[*refusal](err)
	return refused && r.frame.Retryable || errors.Is(err, errPlatform)
}

// sync pulls a conversation from where the device is until it has caught up.
func (d *device) sync(ctx context.Context, conversationID string) error {
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
func (d *device) syncPage(ctx context.Context, conversationID string, limit int) (wire.Synced, error) {
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
// since the cursor, pulls that, and gives the new cursor.
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

// messages gives the ledger of a conversation, by seq.
func (d *device) messages(conversationID string) []chat.Message {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(maps.Values(d.ledger(conversationID).messages), func(a, b chat.Message) int {
		return cmp.Compare(a.Seq, b.Seq)
	})
}

// skipped gives the seqs that syncs named as absent.
func (d *device) skipped(conversationID string) []int64 {
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
func (d *device) awaitPushed(ctx context.Context, conversationID string, seqs ...int64) error {
	return d.await(ctx, fmt.Sprintf("the push of seqs %v of %s", seqs, conversationID), func() bool {
		return d.pushed(conversationID, seqs...)
	})
}

// pushed reports whether all of these have been pushed. d.mu is held.
func (d *device) pushed(conversationID string, seqs ...int64) bool {
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
