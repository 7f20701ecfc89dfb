//go:build !windows

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
)

// console writes whole lines, each with the name of who says it.
type console struct {
	mu  sync.Mutex
	out io.Writer
}

func newConsole(out io.Writer) *console { return &console{out: out} }

// nameWidth is the room for names, so that what they say lines up.
const nameWidth = 10

// self is the name of the local cloud itself.
const self = "local"

func (c *console) line(name, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = fmt.Fprintf(c.out, "%-*s | %s\n", nameWidth, name, text)
}

// function passes on a line of a function, in words unless it is wanted raw.
func (c *console) function(name, line string, raw bool) {
	if !raw {
		line = inWords(line)
	}
	c.line(name, line)
}

// step tells of progress.
func (c *console) step(format string, args ...any) {
	c.line(self, fmt.Sprintf(format, args...))
}

// failure tells why the program ends, line by line.
func (c *console) failure(err error) {
	for text := range strings.SplitSeq(strings.TrimRight(err.Error(), "\n"), "\n") {
		c.line(self, "error: "+text)
	}
}

// logger returns a log whose lines look like the others.
func (c *console) logger(name string) *slog.Logger {
	return slog.New(&consoleHandler{console: c, name: name})
}

// consoleHandler turns log records into lines: the message, then the attributes.
type consoleHandler struct {
	console *console
	name    string
	attrs   []slog.Attr
}

func (h *consoleHandler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelInfo
}

func (h *consoleHandler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	if r.Level >= slog.LevelWarn {
		b.WriteString(strings.ToLower(r.Level.String()) + ": ")
	}
	b.WriteString(r.Message)
	for _, a := range h.attrs {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
	}
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	h.console.line(h.name, strings.ReplaceAll(b.String(), "\n", " "))
	return nil
}

func (h *consoleHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &consoleHandler{console: h.console, name: h.name, attrs: append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)}
}

func (h *consoleHandler) WithGroup(string) slog.Handler { return h }
