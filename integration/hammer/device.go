package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	smithytime "github.com/aws/smithy-go/time"

	raw "github.com/inorder-im/inorder/integration/device"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

const (
	// answerTimeout is a little more than API Gateway waits for a function.
	answerTimeout = 31 * time.Second
	dialTimeout   = 30 * time.Second
	// gapPatience is how long a gap may fill by itself before it is asked for.
	gapPatience = time.Second
	// pingEvery keeps a connection that API Gateway would close after 10 minutes.
	pingEvery = 5 * time.Minute
	// maxAhead is how many messages after a gap a device remembers; beyond it a
	// sync brings them again.
	maxAhead = 4096
)

// device is one device of a user, in one conversation. It keeps which messages it
// has, and nothing of what they say.
type device struct {
	load         *load
	user, name   string
	conversation *conversation
	number       int
	watches      bool          // it sends nothing
	gap          chan struct{} // has an element when there may be something to pull

	mu         sync.Mutex
	conn       *raw.Conn     // nil while there is none
	online     chan struct{} // closed when there is one
	messages   int
	contiguous int64          // every message up to it is here
	ahead      map[int64]bool // those after it that are
	committed  int64          // the highest seq heard of
}

// pushed is a push or a notification: what a device needs of it. All of it is of
// its one conversation: its user is new and in no other.
type pushed struct {
	Updates []struct {
		Messages        []message `json:"messages"`
		CommittedMaxSeq int64     `json:"committedMaxSeq"`
	} `json:"updates"`
}

// message is what the hammer needs of one.
type message struct {
	Seq            int64  `json:"seq"`
	SenderID       string `json:"senderId"`
	SenderDeviceID string `json:"senderDeviceId"`
	Text           string `json:"text"`
}

func newDevice(l *load, user, name string, c *conversation, number int) *device {
	return &device{
		load: l, user: user, name: name, conversation: c, number: number,
		gap: make(chan struct{}, 1), online: make(chan struct{}), ahead: map[int64]bool{},
	}
}

// live keeps the device connected until ctx ends. connected is called when it is
// for the first time, or with the reason why it cannot be.
func (d *device) live(ctx context.Context, connected func(error)) {
	var first sync.Once
	for failures := 0; ctx.Err() == nil; {
		conn, err := d.dial(ctx)
		if err != nil {
			first.Do(func() { connected(err) })
			failures++
			d.load.figures.dialErrors.Add(1)
			_ = smithytime.SleepWithContext(ctx, jitter(100*time.Millisecond<<min(failures, 8)))
			continue
		}
		failures = 0
		d.attach(conn)
		first.Do(func() { connected(nil) })
		d.wake()
		select {
		case <-conn.Closed():
		case <-ctx.Done():
		}
		d.detach()
		_ = conn.CloseNow()
		<-conn.Closed()
		if ctx.Err() == nil {
			d.load.figures.reconnects.Add(1)
			_ = smithytime.SleepWithContext(ctx, jitter(100*time.Millisecond))
		}
	}
}

func (d *device) dial(ctx context.Context) (*raw.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	token, err := d.load.Token(ctx, d.user, nil)
	if err != nil {
		return nil, err
	}
	conn, _, err := raw.Dial(ctx, d.load.Socket, d.name, token, d.take)
	if err != nil {
		return nil, fmt.Errorf("connecting %s/%s: %w", d.user, d.name, err)
	}
	return conn, nil
}

func (d *device) attach(conn *raw.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conn = conn
	close(d.online)
}

func (d *device) detach() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.conn = nil
	d.online = make(chan struct{})
}

// take takes in a push.
func (d *device) take(kind string, frame []byte) {
	now := time.Now()
	d.load.figures.framesIn.Add(1)
	var p pushed
	switch kind {
	case "":
		d.load.figures.note(fmt.Errorf("a frame that cannot be read: %.200q", frame))
		return
	case wire.TypePush, wire.TypeNotify:
	default:
		return
	}
	if err := json.Unmarshal(frame, &p); err != nil {
		d.load.figures.note(fmt.Errorf("a push that cannot be read: %w", err))
		return
	}
	for _, u := range p.Updates {
		for _, m := range u.Messages {
			if !d.learn(m, now) {
				d.load.figures.duplicates.Add(1)
			}
		}
		if d.heard(u.CommittedMaxSeq) {
			d.wake()
		}
	}
}

// learn takes in a message, and reports whether it is new.
func (d *device) learn(m message, now time.Time) bool {
	d.mu.Lock()
	if m.Seq <= d.contiguous || d.ahead[m.Seq] {
		d.mu.Unlock()
		return false
	}
	if m.Seq == d.contiguous+1 || len(d.ahead) < maxAhead {
		d.ahead[m.Seq] = true
	}
	d.advance()
	d.mu.Unlock()
	if m.SenderID != d.user || m.SenderDeviceID != d.name {
		if sent, ok := d.load.sentAt(m.Text); ok {
			d.load.figures.deliver.observe(now.Sub(sent))
			if d.watches {
				d.conversation.reach.has(m.Seq, now.Sub(sent))
			}
		}
	}
	return true
}

// advance moves over what is here. The caller holds the lock.
func (d *device) advance() {
	for d.ahead[d.contiguous+1] {
		d.contiguous++
		delete(d.ahead, d.contiguous)
	}
	d.committed = max(d.committed, d.contiguous)
}

// heard takes in how far the conversation has come, and reports whether something
// is missing here.
func (d *device) heard(seq int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.committed = max(d.committed, seq)
	return d.contiguous < d.committed
}

// missing is how many messages up to seq are not here.
func (d *device) missing(seq int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := max(0, seq-d.contiguous)
	for s := range d.ahead {
		if s <= seq {
			n--
		}
	}
	return n
}

func (d *device) wake() {
	select {
	case d.gap <- struct{}{}:
	default:
	}
}

// follow fills gaps and pings until ctx ends.
func (d *device) follow(ctx context.Context) {
	ping := time.NewTicker(pingEvery)
	defer ping.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ping.C:
			_ = d.do(ctx, wire.ActionPing, struct{}{}, nil)
		case <-d.gap:
			before := d.position()
			_ = smithytime.SleepWithContext(ctx, gapPatience)
			// What moves fills by itself, and is looked at again.
			if d.heard(0) && d.position() == before {
				if err := d.catchUp(ctx); err != nil && ctx.Err() == nil {
					_ = smithytime.SleepWithContext(ctx, jitter(gapPatience))
				}
			}
			if d.heard(0) {
				d.wake()
			}
		}
	}
}

func (d *device) position() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.contiguous
}

// catchUp pulls the conversation from where the device is.
func (d *device) catchUp(ctx context.Context) error {
	for {
		after := d.position()
		var page struct {
			Messages        []message `json:"messages"`
			NextSeq         int64     `json:"nextSeq"`
			CommittedMaxSeq int64     `json:"committedMaxSeq"`
		}
		if err := d.do(ctx, wire.ActionSync, wire.Sync{ConversationID: d.conversation.id, AfterSeq: &after}, &page); err != nil {
			return err
		}
		now := time.Now()
		for _, m := range page.Messages {
			if d.learn(m, now) {
				d.load.figures.gapsFilled.Add(1)
			}
		}
		d.settled(page.NextSeq)
		if !d.heard(page.CommittedMaxSeq) {
			return nil
		}
		if page.NextSeq <= after {
			return fmt.Errorf("a sync after %d of %d does not move", after, page.CommittedMaxSeq)
		}
	}
}

// settled notes that a sync accounted for everything up to seq.
func (d *device) settled(seq int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.contiguous < seq {
		d.contiguous++
		delete(d.ahead, d.contiguous)
	}
	d.advance()
}

// do waits for a socket, sends a request and reads its result into result, if that is
// not nil. The error is that of [raw.Conn.Do].
func (d *device) do(ctx context.Context, action string, body, result any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	conn, err := d.connected(ctx)
	if err != nil {
		return err
	}
	d.load.figures.framesOut.Add(1)
	err = conn.Do(ctx, action, body, result)
	if !errors.Is(err, raw.ErrClosed) && ctx.Err() == nil {
		d.load.figures.framesIn.Add(1)
	}
	return err
}

// connected waits for a socket.
func (d *device) connected(ctx context.Context) (*raw.Conn, error) {
	for {
		d.mu.Lock()
		conn, online := d.conn, d.online
		d.mu.Unlock()
		if conn != nil {
			return conn, nil
		}
		select {
		case <-online:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// send sends a message until it is answered, always under the same clientMsgId.
func (d *device) send(ctx context.Context, s wire.Send) (wire.Sent, error) {
	d.mu.Lock()
	d.messages++
	s.ClientMsgID = d.load.run + "-" + strconv.Itoa(d.number) + "-" + strconv.Itoa(d.messages)
	d.mu.Unlock()
	s.MessageType = chat.TypeText
	for attempt := 0; ; attempt++ {
		var sent wire.Sent
		err := d.do(ctx, wire.ActionSend, s, &sent)
		if err == nil {
			return sent, nil
		}
		refused, isRefusal := errors.AsType[*raw.Refusal](err)
		switch {
		case ctx.Err() != nil:
			return wire.Sent{}, ctx.Err()
		case isRefusal && !refused.Frame.Retryable:
			return wire.Sent{}, err
		case isRefusal && refused.Frame.Code == chat.CodeBusy:
			d.load.figures.busy.Add(1)
		default:
			d.load.figures.lost.Add(1)
		}
		_ = smithytime.SleepWithContext(ctx, askedToWait(refused)+jitter(20*time.Millisecond<<min(attempt, 6)))
	}
}

// retry repeats a request of the preparation while that may help.
func (d *device) retry(ctx context.Context, action string, body, result any) error {
	for attempt := 0; ; attempt++ {
		err := d.do(ctx, action, body, result)
		refused, isRefusal := errors.AsType[*raw.Refusal](err)
		if err == nil || attempt == 10 || isRefusal && !refused.Frame.Retryable || ctx.Err() != nil {
			return err
		}
		_ = smithytime.SleepWithContext(ctx, askedToWait(refused)+jitter(50*time.Millisecond<<min(attempt, 6)))
	}
}

// askedToWait is for how long a refusal, if it is one, asks to wait.
func askedToWait(r *raw.Refusal) time.Duration {
	if r == nil {
		return 0
	}
	ms, _ := r.Frame.Details[chat.DetailRetryAfter].(float64)
	return time.Duration(ms * float64(time.Millisecond))
}

// jitter is anywhere in the window.
func jitter(window time.Duration) time.Duration {
	return rand.N(window) //nolint:gosec // jitter is no secret
}

// textOf is a message that says when it was sent, filled up to size.
func (l *load) textOf(sent time.Time, size int) string {
	text := l.run + " " + strconv.FormatInt(int64(sent.Sub(l.start)), 10) + " "
	return text + strings.Repeat("x", max(0, size-len(text)))
}

// sentAt reads it again; another run's message is no such.
func (l *load) sentAt(text string) (time.Time, bool) {
	rest, ok := strings.CutPrefix(text, l.run+" ")
	number, _, _ := strings.Cut(rest, " ")
	offset, err := strconv.ParseInt(number, 10, 64)
	return l.start.Add(time.Duration(offset)), ok && err == nil
}
