// Package cron reads the cron expressions of EventBridge and tells when they are due.
//
// The dialect is that of "Cron expressions reference" in the EventBridge user guide,
// whose table says which field takes what; in years it is held to that table, although
// EventBridge has been seen to take others. What is due when is go-cron's to say. Its
// parser is left alone: it reads the cron of Unix, which counts the days of the week
// from 0, writes the last Friday FRI#L, and has no last day of the week.
package cron

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	gocron "github.com/netresearch/go-cron"
)

// Expression is the inside of cron(...), read.
type Expression struct{ schedule gocron.SpecSchedule }

// Next is the first minute after t for which the expression is due, in UTC, which is
// the only time zone of a rule; the zero time if there is none any more. EventBridge
// takes expressions without one: among those that LocalStack's tests, held against AWS,
// have for PutRule is cron(15 10 ? * 6L 2002-2005).
func (e *Expression) Next(t time.Time) time.Time {
	// Without its monotonic reading, which go-cron would pass on: whether a minute has
	// come is for the wall clock to say.
	return e.schedule.Next(t.UTC().Round(0))
}

// Last is the last minute up to t for which the expression was due, in UTC; the zero
// time if there was none.
func (e *Expression) Last(t time.Time) time.Time {
	return e.schedule.Prev(t.UTC().Round(0).Add(time.Second)) // which is what is before
}

// Parse reads what stands in cron(...). Its errors say what EventBridge would take.
func Parse(expression string) (*Expression, error) {
	texts := strings.Fields(expression)
	if len(texts) != 6 {
		return nil, fmt.Errorf("want six fields, minutes hours day-of-month month day-of-week year, as in cron(0 3 * * ? *), not %d", len(texts))
	}
	if (texts[2] == "?") == (texts[4] == "?") {
		return nil, fmt.Errorf("want ? for either day-of-month or day-of-week, as in cron(0 3 * * ? *) or cron(0 3 ? * MON-FRI *), not %s and %s", texts[2], texts[4])
	}
	var (
		minutes = field{name: "minutes", max: 59, steps: true}
		hours   = field{name: "hours", max: 23, steps: true}
		months  = field{name: "month", min: 1, max: 12, steps: true,
			names: []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}}
		years = field{name: "year", min: firstYear, max: lastYear, steps: true, linear: true}

		s      = gocron.SpecSchedule{Second: 1, Location: time.UTC, Year: map[int]struct{}{}, MaxSearchYears: lastYear - firstYear + 1}
		wanted []int
		errs   [6]error
	)
	s.Minute, errs[0] = minutes.bits(texts[0])
	s.Hour, errs[1] = hours.bits(texts[1])
	s.Dom, s.DomConstraints, errs[2] = daysOfMonth(texts[2])
	s.Month, errs[3] = months.bits(texts[3])
	s.Dow, s.DowConstraints, errs[4] = daysOfWeek(texts[4])
	wanted, errs[5] = years.values(texts[5])
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	for _, year := range wanted {
		s.Year[year] = struct{}{}
	}
	return &Expression{s}, nil
}

// The years of the reference.
const firstYear, lastYear = 1970, 2199

// daysOfMonth reads the days by number, or one of the forms that depend on the month.
// LW and L-3 are not in the reference: they are in Quartz, whose dialect this is.
func daysOfMonth(text string) (uint64, []gocron.DomConstraint, error) {
	f := field{name: "day-of-month", min: 1, max: 31, steps: true, alone: "L or 15W"}
	only := func(kind gocron.DomConstraintType, n int, err error) (uint64, []gocron.DomConstraint, error) {
		return 0, []gocron.DomConstraint{{Type: kind, N: n}}, err
	}
	upper, alone := strings.ToUpper(text), !strings.Contains(text, ",")
	day, nearest := strings.CutSuffix(upper, "W")
	before, fromLast := strings.CutPrefix(upper, "L-")
	switch {
	case text == "?":
		text = "*"
	case upper == "L":
		return only(gocron.DomLast, 0, nil)
	case upper == "LW":
		return only(gocron.DomLastWeekday, 0, nil)
	case nearest && alone:
		// A month that does not have the day has no day near it, as in EventBridge:
		// github.com/winebarrel/cronplan/issues/106 has what its console says of 31W.
		n, err := f.value(day)
		return only(gocron.DomNearestWeekday, n, err)
	case fromLast && alone:
		n, err := f.value(before)
		return only(gocron.DomLastOffset, n, err)
	}
	bits, err := f.bits(text)
	return bits, nil, err
}

// daysOfWeek reads the days of every week, or the one that 6L or 6#3 means: the last
// or the third Friday of the month. L is the last day of the week.
func daysOfWeek(text string) (uint64, []gocron.DowConstraint, error) {
	f := field{name: "day-of-week", min: 1, max: 7, alone: "L, 6L or 3#2",
		names: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}}
	only := func(day, n int, err error) (uint64, []gocron.DowConstraint, error) {
		return 0, []gocron.DowConstraint{{Weekday: day - f.min, N: n}}, err // time.Weekday has 0 for SUN
	}
	upper, alone := strings.ToUpper(text), !strings.Contains(text, ",")
	last, isLast := strings.CutSuffix(upper, "L")
	day, nth, isNth := strings.Cut(upper, "#")
	switch {
	case text == "?":
		text = "*"
	case upper == "L":
		text = "SAT"
	case isLast && alone:
		n, err := f.value(last)
		return only(n, -1, err)
	case isNth && alone:
		count, err := number(nth)
		if err != nil || count < 1 || count > 5 {
			return 0, nil, f.fail("want 1 to 5 after #", text)
		}
		n, err := f.value(day)
		return only(n, count, err)
	}
	bits, err := f.bits(text)
	return bits >> f.min, nil, err // bit 0 is SUN
}

// field is what one of the six fields takes.
type field struct {
	name     string
	min, max int
	names    []string // of the values, from min on
	alone    string   // what may stand there and in no list, for errors
	steps    bool     // such as 0/15
	linear   bool     // the last value is not followed by the first
}

func (f field) fail(want, text string) error {
	return fmt.Errorf("%s: %s, not %q", f.name, want, text)
}

// bits has a bit for each value.
func (f field) bits(text string) (bits uint64, err error) {
	values, err := f.values(text)
	for _, v := range values {
		bits |= 1 << v
	}
	return bits, err
}

// values are what a list of values, ranges, steps and * means.
func (f field) values(text string) (values []int, err error) {
	for item := range strings.SplitSeq(text, ",") {
		span, step, stepped := strings.Cut(item, "/")
		every := 1
		if stepped {
			if every, err = f.step(step, item); err != nil {
				return nil, err
			}
		}
		first, last, err := f.span(span, stepped)
		if err != nil {
			return nil, err
		}
		size := f.max - f.min + 1
		if first > last { // such as 20-2, one of the reference's examples
			if f.linear {
				return nil, f.fail("want the earlier first", item)
			}
			last += size
		}
		for v := first; v <= last; v += every {
			values = append(values, (v-f.min)%size+f.min)
		}
	}
	return values, nil
}

// step reads how many values apart the values of 0/15 are.
func (f field) step(text, item string) (int, error) {
	if !f.steps {
		return 0, f.fail("there are no steps", item)
	}
	n, err := number(text)
	if err != nil || n < 1 || n > f.max {
		return 0, f.fail(fmt.Sprintf("want a step of 1 to %d", f.max), item)
	}
	return n, nil
}

// span reads *, a range or a value, from which steps go on to the end.
func (f field) span(text string, stepped bool) (first, last int, err error) {
	if text == "*" {
		return f.min, f.max, nil
	}
	from, to, isRange := strings.Cut(text, "-")
	if first, err = f.value(from); err != nil {
		return 0, 0, err
	}
	switch {
	case isRange:
		last, err = f.value(to)
	case stepped:
		last = f.max
	default:
		last = first
	}
	return first, last, err
}

// value reads one value. Names may be in lower case.
func (f field) value(text string) (int, error) {
	if i := slices.Index(f.names, strings.ToUpper(text)); i >= 0 {
		return f.min + i, nil
	}
	n, err := number(text)
	if err != nil || n < f.min || n > f.max {
		want := fmt.Sprintf("want %d to %d", f.min, f.max)
		if f.names != nil {
			want += fmt.Sprintf(" or %s to %s", f.names[0], f.names[len(f.names)-1])
		}
		if f.alone != "" {
			want += ", or alone " + f.alone
		}
		return 0, f.fail(want, text)
	}
	return n, nil
}

// number reads digits, and no sign.
func number(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 15)
	return int(n), err
}
