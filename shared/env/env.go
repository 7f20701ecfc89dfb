// Package env reads the environment variables that template.yaml gives the functions. It
// is the one place that says of one that it is wrong.
package env

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Reader reads variables and takes down what is wrong with them, for Err.
type Reader struct {
	getenv func(string) string
	errs   []error
}

// From makes a Reader. getenv is os.Getenv.
func From(getenv func(string) string) *Reader { return &Reader{getenv: getenv} }

// Err is what was wrong with the variables that were read, of each its name, its value
// and what it has to be; nil if that was nothing. What was read is good only without it.
func (r *Reader) Err() error { return errors.Join(r.errs...) }

// Wrong takes down that a variable is not what it has to be.
func (r *Reader) Wrong(name, want string) {
	is := "is not set"
	if v := r.getenv(name); v != "" {
		is = fmt.Sprintf("is %q", v)
	}
	r.errs = append(r.errs, fmt.Errorf("the environment variable %s %s; it has to be %s, as template.yaml sets it", name, is, want))
}

// Text is a variable that has to be set. what it is, is for the error.
func (r *Reader) Text(name, what string) string {
	v := r.getenv(name)
	if v == "" {
		r.Wrong(name, what)
	}
	return v
}

// OneOf is a variable that has one of these values, or is not set: then it is the first.
func (r *Reader) OneOf(name string, values ...string) string {
	v := r.getenv(name)
	if v == "" {
		return values[0]
	}
	if !slices.Contains(values, v) {
		r.Wrong(name, strings.Join(values, " or "))
	}
	return v
}

// Int is a whole number that has to be set. A fraction counts as the next whole number
// above: CloudFormation takes any number for a parameter, and half a day of retention must
// neither stop every function nor become 0, which often is for ever.
func (r *Reader) Int(name string, least, most int) int {
	f, err := strconv.ParseFloat(r.getenv(name), 64)
	if f = math.Ceil(f); err != nil || !(f >= float64(least) && f <= float64(most)) {
		r.Wrong(name, fmt.Sprintf("a whole number from %d to %d", least, most))
		return 0
	}
	return int(f)
}

// IntOr is a whole number that may be left out.
func (r *Reader) IntOr(otherwise int, name string, least, most int) int {
	if r.getenv(name) == "" {
		return otherwise
	}
	return r.Int(name, least, most)
}

// Float is a number of at least 0 that has to be set.
func (r *Reader) Float(name string) float64 {
	f, err := strconv.ParseFloat(r.getenv(name), 64)
	if err != nil || !(f >= 0) || math.IsInf(f, 0) {
		r.Wrong(name, "a number of at least 0")
	}
	return f
}
