//go:build !windows

package main

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
)

// inWords returns a function's log line as people read it: the level if it is more than
// information, what happened, and the other fields. A line that is no log record in
// JSON stays as it is. What is for CloudWatch alone is left out: the time, the metric
// envelope (_aws, CloudWatch User Guide, "Embedded metric format") and the metrics and
// dimensions that it names.
func inWords(line string) string {
	fields, ok := fieldsOf(line)
	if !ok {
		return line
	}
	hidden := map[string]bool{"time": true, "level": true, "msg": true, "_aws": true}
	var level, message string
	for _, f := range fields {
		switch f.name {
		case "level":
			level = word(f.value)
		case "msg":
			message = word(f.value)
		case "_aws":
			hide(hidden, f.value)
		}
	}
	if level == "" || message == "" {
		return line
	}
	var b strings.Builder
	if level != "INFO" {
		b.WriteString(strings.ToLower(level) + ": ")
	}
	b.WriteString(strings.ReplaceAll(message, "\n", " "))
	for _, f := range fields {
		if !hidden[f.name] {
			b.WriteString(" " + f.name + "=" + quoted(f.value))
		}
	}
	return b.String()
}

// field is a member of an object, in its place.
type field struct {
	name  string
	value json.RawMessage
}

// fieldsOf reads a line that is one JSON object.
func fieldsOf(line string) ([]field, bool) {
	if !strings.HasPrefix(line, "{") || !json.Valid([]byte(line)) {
		return nil, false
	}
	d := json.NewDecoder(strings.NewReader(line))
	_, _ = d.Token() // the brace; the line is valid
	var fields []field
	for d.More() {
		name, err := d.Token()
		var f field
		if err != nil || d.Decode(&f.value) != nil {
			return nil, false
		}
		f.name, _ = name.(string)
		fields = append(fields, f)
	}
	return fields, true
}

// hide adds what an envelope names.
func hide(hidden map[string]bool, envelope json.RawMessage) {
	var e struct {
		CloudWatchMetrics []struct {
			Dimensions [][]string
			Metrics    []struct{ Name string }
		}
	}
	_ = json.Unmarshal(envelope, &e) // what is no envelope hides nothing
	for _, m := range e.CloudWatchMetrics {
		for _, set := range m.Dimensions {
			for _, name := range set {
				hidden[name] = true
			}
		}
		for _, metric := range m.Metrics {
			hidden[metric.Name] = true
		}
	}
}

// word is a string, or another value as it is written.
func word(value json.RawMessage) string {
	var s string
	if json.Unmarshal(value, &s) != nil {
		return string(bytes.TrimSpace(value))
	}
	return s
}

// quoted is a value as one word: a string with spaces, or with what is not to be seen,
// stands in quotes.
func quoted(value json.RawMessage) string {
	w := word(value)
	odd := func(r rune) bool { return r == '"' || r == '=' || unicode.IsSpace(r) || !unicode.IsPrint(r) }
	if value[0] == '"' && (w == "" || strings.ContainsFunc(w, odd)) {
		return strconv.Quote(w)
	}
	return w
}
