package main

import "time"

// progressEvery is how often long work says how far it is.
const progressEvery = time.Second

// progress gives a function that says how far the work is, unless it has just said
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
