package dynamo

import (
	"bytes"
	"io"
	"strings"
	"sync"
)

// keptLines is how much of the output an error message can quote.
const keptLines = 10

// output collects what the engine writes, line by line.
type output struct {
	marker string        // the text that ends the start
	seen   chan struct{} // closed when a line with the marker came
	notify func(string)

	once sync.Once
	mu   sync.Mutex
	last []string
}

func newOutput(marker string, notify func(string)) *output {
	if notify == nil {
		notify = func(string) {}
	}
	return &output{marker: marker, seen: make(chan struct{}), notify: notify}
}

// stream returns a writer for one of the engine's two streams.
func (o *output) stream() io.Writer { return &lineWriter{emit: o.line} }

func (o *output) line(line string) {
	if strings.TrimSpace(line) == "" {
		return
	}
	o.mu.Lock()
	o.last = append(o.last, line)
	if len(o.last) > keptLines {
		o.last = o.last[1:]
	}
	o.mu.Unlock()
	if strings.Contains(line, o.marker) {
		o.once.Do(func() { close(o.seen) })
	}
	o.notify(line)
}

// tail returns the last lines as one text.
func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.last) == 0 {
		return "it wrote nothing"
	}
	return strings.Join(o.last, "\n")
}

// lineWriter calls emit for every whole line.
type lineWriter struct {
	emit func(string)
	rest []byte
}

// maxLine bounds the memory for a line that does not end.
const maxLine = 64 << 10

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		i := bytes.IndexByte(w.rest, '\n')
		if i < 0 && len(w.rest) > maxLine {
			i = maxLine
		}
		if i < 0 {
			return len(p), nil
		}
		w.emit(strings.TrimRight(string(w.rest[:i]), "\r"))
		w.rest = w.rest[i+1:]
	}
}
