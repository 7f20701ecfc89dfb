package queue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
)

// tidyBelow is how many messages a queue may have for its file to be written anew with
// each change, so that a person finds in it what is in the queue. Above, changes are
// added at the end until most lines are of the past.
const tidyBelow = 100

// line is one of the file: a message, or what has become of one that is further up. A
// line without an id is the body of a message that somebody put there by hand.
type line struct {
	ID       string          `json:"messageId"`
	Sent     time.Time       `json:"sent,omitzero"`
	First    time.Time       `json:"firstReceived,omitzero"`
	Received int             `json:"received,omitempty"`
	Gone     bool            `json:"gone,omitempty"`
	Body     json.RawMessage `json:"body,omitempty"` // an object as it is, else a string
}

// file is where a queue is kept.
type file struct {
	path  string
	lines int
	state state // as it was left here
}

// state tells whether somebody else has changed a file.
type state struct {
	size     int64
	modified time.Time
}

func (f *file) now() (state, error) {
	info, err := os.Stat(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return state{}, nil
	}
	if err != nil {
		return state{}, fmt.Errorf("looking at a queue: %w", err)
	}
	return state{info.Size(), info.ModTime()}, nil
}

// read returns the messages if the file is not as it was left.
func (f *file) read() (messages []*message, changed bool, err error) {
	now, err := f.now()
	if err != nil || now == f.state {
		return nil, false, err
	}
	content, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading a queue: %w", err)
	}
	f.lines, f.state = 0, now
	known := map[string]*message{}
	for text := range bytes.Lines(content) {
		f.lines++
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		l := f.parse(text)
		switch m := known[l.ID]; {
		case m == nil && l.Body != nil:
			m = l.message()
			known[m.id] = m
			messages = append(messages, m)
		case m != nil && l.Gone:
			delete(known, l.ID)
		case m != nil:
			m.first, m.received = l.First, l.Received
		}
	}
	messages = slices.DeleteFunc(messages, func(m *message) bool { return known[m.id] != m })
	if len(content) > 0 && content[len(content)-1] != '\n' { // by hand; the next line would be added to it
		err = f.write(messages)
	}
	return messages, true, err
}

// parse reads a line. One made by hand gets an id by its place and text, so that it is
// the same when the file is read again.
func (f *file) parse(text []byte) line {
	var l line
	if err := json.Unmarshal(text, &l); err == nil && l.ID != "" {
		return l
	}
	name := append(strconv.AppendInt(nil, int64(f.lines), 10), text...)
	return line{ID: uuid.NewSHA1(uuid.Nil, name).String(), Sent: time.Now().Truncate(time.Millisecond), Body: encode(string(text))}
}

func (l line) message() *message {
	m := &message{id: l.ID, sent: l.Sent, first: l.First, received: l.Received, body: string(l.Body)}
	var text string
	if json.Unmarshal(l.Body, &text) == nil {
		m.body = text
	}
	return m
}

func (m *message) line() line {
	return line{ID: m.id, Sent: m.sent, First: m.first, Received: m.received, Body: encode(m.body)}
}

// encode makes a body part of a line: an object stays readable.
func encode(body string) json.RawMessage {
	var compact bytes.Buffer
	if body[0] == '{' && json.Compact(&compact, []byte(body)) == nil && compact.String() == body {
		return json.RawMessage(body)
	}
	return marshal(body)
}

func marshal(v any) []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // an object must come back as it was
	_ = encoder.Encode(v)        // strings, times, numbers and valid JSON cannot fail
	return b.Bytes()
}

// change notes what has become of messages; after it those given are in the queue.
func (f *file) change(messages []*message, changes []line) error {
	switch {
	case len(changes) == 0:
		return nil
	case len(messages) < tidyBelow || f.lines > 2*len(messages):
		return f.write(messages)
	}
	return f.append(changes)
}

func (f *file) append(lines []line) error {
	var content []byte
	for _, l := range lines {
		content = append(content, marshal(l)...)
	}
	f.lines += len(lines)
	return f.left(func() (err error) {
		if err := os.MkdirAll(filepath.Dir(f.path), 0o755); err != nil {
			return err
		}
		opened, err := os.OpenFile(f.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, opened.Close()) }()
		_, err = opened.Write(content)
		return err
	})
}

// write writes the file anew, in two steps, so that a crash leaves all of the old one
// or all of the new one.
func (f *file) write(messages []*message) error {
	var content []byte
	for _, m := range messages {
		content = append(content, marshal(m.line())...)
	}
	f.lines = len(messages)
	return f.left(func() error {
		next := f.path + ".next"
		if err := os.WriteFile(next, content, 0o644); err != nil {
			return err
		}
		return os.Rename(next, f.path)
	})
}

// left writes and notes the state in which the file is left. After an error the queue is
// what the file says, which is then read again.
func (f *file) left(write func() error) error {
	if err := write(); err != nil {
		f.state = state{size: -1}
		return fmt.Errorf("writing a queue: %w", err)
	}
	now, err := f.now()
	f.state = now
	return err
}
