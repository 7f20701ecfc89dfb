// Package logtest has a log that a test can read while it is written.
package logtest

import (
	"bytes"
	"sync"
)

// Log collects what is written to it. Its zero value is empty, and ready for use by
// several goroutines.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds to the log. It does not fail.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns all that was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
