// Package queue is the part of SQS that an operator needs for dead letters: to
// receive messages, to give them back and to delete them. The messages of a queue
// are the lines of a file, which a person can read, too.
//
// What differs from SQS: messages are kept without end, they come in order, nobody
// waits for them (WaitTimeSeconds), and which are invisible is forgotten with the
// process.
package queue

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // SQS answers with MD5 sums, and the SDK checks them
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
)

// Queue is a queue in a file. It is safe for concurrent use within one process.
type Queue struct {
	path   string
	append func(context.Context, []byte) error
	now    func() time.Time

	mu     sync.Mutex
	hidden map[string]time.Time // until when, by receipt handle
}

// Open makes a queue of the lines of the file at path, which need not exist.
// add is how a line is appended to it.
func Open(path string, add func(context.Context, []byte) error) *Queue {
	return &Queue{path: path, append: add, now: time.Now, hidden: map[string]time.Time{}}
}

// Path is the queue's file.
func (q *Queue) Path() string { return q.path }

// Send appends a message, which is one line.
func (q *Queue) Send(ctx context.Context, body []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.append(ctx, body)
}

// message is one as SQS answers with it.
type message struct {
	MessageID     string `json:"MessageId"`
	ReceiptHandle string `json:"ReceiptHandle"`
	MD5OfBody     string `json:"MD5OfBody"`
	Body          string `json:"Body"`
}

// receive gives at most n visible messages and hides them for a while.
func (q *Queue) receive(n int, hide time.Duration) ([]message, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines, err := q.read()
	if err != nil {
		return nil, err
	}
	now := q.now()
	maps.DeleteFunc(q.hidden, func(_ string, until time.Time) bool { return !now.Before(until) })
	found := []message{}
	for _, line := range lines {
		handle := handleOf(line)
		if _, hidden := q.hidden[handle]; hidden {
			continue
		}
		if len(found) == n {
			break
		}
		q.hidden[handle] = now.Add(hide)
		sum := md5.Sum(line) //nolint:gosec // as SQS does
		found = append(found, message{MessageID: handle, ReceiptHandle: handle, MD5OfBody: hex.EncodeToString(sum[:]), Body: string(line)})
	}
	return found, nil
}

// hide makes the message with that handle visible after a while.
func (q *Queue) hide(handle string, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.hidden[handle] = q.now().Add(d)
}

// remove takes out the message with that handle, if it is there.
func (q *Queue) remove(handle string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines, err := q.read()
	if err != nil {
		return err
	}
	count := len(lines)
	rest := slices.DeleteFunc(lines, func(line []byte) bool { return handleOf(line) == handle })
	if len(rest) == count {
		return nil
	}
	var content []byte
	for _, line := range rest {
		content = append(append(content, line...), '\n')
	}
	// In two steps, so that a crash leaves all of the file or all of the new one.
	next := q.path + ".next"
	if err := os.WriteFile(next, content, 0o644); err != nil {
		return fmt.Errorf("deleting a message: %w", err)
	}
	if err := os.Rename(next, q.path); err != nil {
		return fmt.Errorf("deleting a message: %w", err)
	}
	delete(q.hidden, handle)
	return nil
}

func (q *Queue) read() ([][]byte, error) {
	content, err := os.ReadFile(q.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading a queue: %w", err)
	}
	lines := bytes.Split(content, []byte("\n"))
	return slices.DeleteFunc(lines, func(line []byte) bool { return len(line) == 0 }), nil
}

// handleOf names a message by its content. A dead letter has an id of its own, so
// no two are the same.
func handleOf(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:16])
}
