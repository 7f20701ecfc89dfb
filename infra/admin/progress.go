package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// progressEvery is how often long work says how far it is.
const progressEvery = time.Second

// progress returns a function that says how far the work is, unless it has just said
// so.
func (s *session) progress() func(format string, args ...any) {
	last := time.Now()
	return func(format string, args ...any) {
		if time.Since(last) < progressEvery {
			return
		}
		last = time.Now()
		s.note("… "+format, args...)
	}
}

// goOn adds to an error which command does the rest of the work that broke off. An
// argument may begin as a flag does.
func (s *session) goOn(err error, command []string, args ...string) error {
	words := slices.Concat(command, s.where.flags())
	if len(args) > 0 {
		words = append(append(words, "--"), args...)
	}
	for i, w := range words {
		words[i] = shell(w)
	}
	return fmt.Errorf("%w\ngo on with: %s", err, strings.Join(words, " "))
}

var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// shell makes a word one for a shell.
func shell(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
