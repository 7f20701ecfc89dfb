// Package queue is SQS for one machine: standard queues with delays, visibility
// timeouts, receive counts and redrive policies ([Handler]), and the event source
// mapping that invokes a function with their messages ([Queue.Feed]). A queue is kept
// in a file, whose lines a person can read and change.
//
// What differs from SQS: messages come in the order in which they were sent, unless
// they were received before; a receipt handle is of no use once its message was
// received again; ReceiveMessage does not wait (WaitTimeSeconds); there are no message
// attributes. With the process it is forgotten how long a message is hidden (also by a
// delay): after a start all are visible. How often they were received is kept. The file
// is not synced to disk, so that the end of the process loses nothing, that of the
// machine may.
package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/inorder-im/inorder/infra/local/template"
)

// Limits of SQS ("Amazon SQS message quotas" in its developer guide), and of a queue
// here, which has none there.
const (
	// maxBody is in bytes, for a message and for all of a batch. SQS takes 1 MiB since
	// 2025; 256 KB is what it takes anywhere.
	maxBody       = 256 << 10
	maxBatch      = 10
	maxDelay      = 900       // seconds
	maxVisibility = 12 * 3600 // seconds
	maxMessages   = 20_000    // of a queue: more are refused with OverLimit
)

// Config is what a queue is made of.
type Config struct {
	template.Queue
	Path string // the file, which need not exist
}

// Queue is a queue in a file. It is safe for concurrent use within one process.
type Queue struct {
	Config
	dead *Queue // where messages go that were received MaxReceives times; nil for none

	moving sync.Mutex // held while messages go to dead: before mu, of any queue

	mu       sync.Mutex // guards what follows, and the file
	messages []*message // in the order in which they were sent
	file     file
	changed  chan struct{} // closed when a message comes, or is visible earlier than before
}

// message is one, as long as it is in a queue.
type message struct {
	id       string
	body     string
	sent     time.Time
	first    time.Time // when it was received first; zero: never
	received int       // how often
	visible  time.Time // it is hidden until then
}

// Open makes a queue of what is in its file.
func Open(cfg Config) *Queue {
	return &Queue{Config: cfg, file: file{path: cfg.Path}, changed: make(chan struct{})}
}

// RedriveTo says which queue the configured DeadLetters are: messages that were received
// MaxReceives times go there when they are asked for once more. It is called before the
// queue is used.
func (q *Queue) RedriveTo(dead *Queue) { q.dead = dead }

// Send sends a message, with the queue's delay.
func (q *Queue) Send(_ context.Context, body []byte) error {
	_, err := q.send(string(body), q.Delay)
	return err
}

func (q *Queue) send(body string, delay time.Duration) (*message, error) {
	if err := checkBody(body); err != nil {
		return nil, err
	}
	now := time.Now()
	m := &message{id: uuid.NewString(), body: body, sent: now.Truncate(time.Millisecond)}
	if delay > 0 {
		m.visible = now.Add(delay)
	}
	return m, q.add(m)
}

// checkBody checks a message as SQS does ("SendMessage" in the API reference).
func checkBody(body string) error {
	switch {
	case body == "":
		return refusal("MissingParameter", "a message has a body")
	case len(body) > maxBody:
		return refusal("InvalidParameterValue", "a message has up to %d bytes, not %d", maxBody, len(body))
	case strings.ContainsFunc(body, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF
	}):
		return refusal("InvalidMessageContents", "a message has no control characters but tab and the ends of lines")
	}
	return nil
}

func (q *Queue) add(messages ...*message) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.refresh(); err != nil {
		return err
	}
	if len(q.messages)+len(messages) > maxMessages {
		return refusal("OverLimit", "the queue %s has %d messages; the local cloud keeps no more", q.Name, len(q.messages))
	}
	lines := make([]line, len(messages))
	for i, m := range messages {
		lines[i] = m.line()
	}
	if err := q.file.append(lines); err != nil {
		return err
	}
	q.messages = append(q.messages, messages...)
	q.wake()
	return nil
}

// wake tells those who wait that there is something new. The caller holds mu.
func (q *Queue) wake() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// await waits until a message is visible, and is false if ctx ended before.
func (q *Queue) await(ctx context.Context) bool {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		q.mu.Lock()
		next, changed := q.next(), q.changed
		q.mu.Unlock()
		wait := time.Until(next)
		switch {
		case next.IsZero():
			timer.Stop()
		case wait <= 0:
			return true
		default:
			timer.Reset(wait)
		}
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	return false
}

// next is when the first message is visible; zero if there are none. The caller holds mu.
func (q *Queue) next() (first time.Time) {
	for i, m := range q.messages {
		visible := m.visible
		if visible.IsZero() {
			visible = m.sent
		}
		if i == 0 || visible.Before(first) {
			first = visible
		}
	}
	return first
}

// receive returns at most n visible messages and hides them for a while. Whatever the
// error, those that it returns are received.
func (q *Queue) receive(n int, hide time.Duration) ([]message, error) {
	moved := q.redrive()
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := errors.Join(q.refresh(), q.expire()); err != nil {
		return nil, err
	}
	now := time.Now()
	var found []message
	var changes []line
	for _, m := range q.messages {
		if len(found) == n {
			break
		}
		if m.visible.After(now) || q.isExhausted(m) {
			continue
		}
		m.received++
		m.visible = now.Add(hide)
		if m.first.IsZero() {
			m.first = now.Truncate(time.Millisecond)
		}
		found = append(found, *m)
		changes = append(changes, line{ID: m.id, First: m.first, Received: m.received})
	}
	return found, errors.Join(moved, q.file.change(q.messages, changes))
}

func (q *Queue) isExhausted(m *message) bool { return q.dead != nil && m.received >= q.MaxReceives }

// expire takes out what is too old. The caller holds mu.
func (q *Queue) expire() error {
	oldest := time.Now().Add(-q.Retention)
	return q.drop(func(m *message) bool { return m.sent.Before(oldest) })
}

// redrive moves what was received too often. Its age goes on, its receives begin anew.
func (q *Queue) redrive() error {
	if q.dead == nil {
		return nil
	}
	q.moving.Lock()
	defer q.moving.Unlock()
	dead, err := q.exhausted()
	if len(dead) == 0 || err != nil {
		return err
	}
	// In this order a crash leaves a message in both queues, and in neither never.
	if err := q.dead.add(dead...); err != nil {
		return fmt.Errorf("moving %d messages from %s to %s: %w", len(dead), q.Name, q.dead.Name, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.drop(func(m *message) bool {
		return slices.ContainsFunc(dead, func(d *message) bool { return d.id == m.id })
	})
}

func (q *Queue) exhausted() (dead []*message, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.refresh(); err != nil {
		return nil, err
	}
	now := time.Now()
	for _, m := range q.messages {
		if q.isExhausted(m) && !m.visible.After(now) {
			dead = append(dead, &message{id: m.id, body: m.body, sent: m.sent})
		}
	}
	return dead, nil
}

// drop takes messages out. The caller holds mu.
func (q *Queue) drop(is func(*message) bool) error {
	var gone []line
	q.messages = slices.DeleteFunc(q.messages, func(m *message) bool {
		if !is(m) {
			return false
		}
		gone = append(gone, line{ID: m.id, Gone: true})
		return true
	})
	return q.file.change(q.messages, gone)
}

// handle is what a message is deleted by: that of the last time it was received is good.
func (m *message) handle() string { return fmt.Sprintf("%s#%d", m.id, m.received) }

// remove takes out the messages with those handles. Those that are not there, or were
// received again since, stay as they are, which is no error.
func (q *Queue) remove(handles ...string) error {
	wanted := map[string]string{}
	for _, handle := range handles {
		id, _, _ := strings.Cut(handle, "#")
		wanted[id] = handle
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.refresh(); err != nil {
		return err
	}
	return q.drop(func(m *message) bool {
		handle, found := wanted[m.id]
		return found && handle == m.handle()
	})
}

// hide makes a received message visible after a while, counted from now.
func (q *Queue) hide(handle string, d time.Duration) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.refresh(); err != nil {
		return err
	}
	now := time.Now()
	for _, m := range q.messages {
		if !strings.HasPrefix(handle, m.id) || m.handle() != handle {
			continue
		}
		if !m.visible.After(now) {
			return refusal("MessageNotInflight", "the message is visible")
		}
		m.visible = now.Add(d)
		q.wake()
		return nil
	}
	return refusal("InvalidParameterValue", "the message does not exist or is not available for a change of its visibility timeout")
}

// counts is how many messages are visible, received and hidden, and delayed.
func (q *Queue) counts() (visible, hidden, delayed int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := errors.Join(q.refresh(), q.expire()); err != nil {
		return 0, 0, 0, err
	}
	now := time.Now()
	for _, m := range q.messages {
		switch {
		case !m.visible.After(now):
			visible++
		case m.received > 0:
			hidden++
		default:
			delayed++
		}
	}
	return visible, hidden, delayed, nil
}

// refresh reads the file if somebody else has changed it. What is hidden stays hidden.
// The caller holds mu.
func (q *Queue) refresh() error {
	read, changed, err := q.file.read()
	if err != nil || !changed {
		return err
	}
	hidden := map[string]time.Time{}
	for _, m := range q.messages {
		hidden[m.id] = m.visible
	}
	for _, m := range read {
		m.visible = hidden[m.id]
	}
	q.messages = read
	return nil
}
