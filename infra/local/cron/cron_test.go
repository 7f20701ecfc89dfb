package cron_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/inorder-im/inorder/infra/local/cron"
)

const layout = "2006-01-02 15:04:05"

// times are the next ones after another, each after the one before.
func times(t *testing.T, expression string, after time.Time, count int) []string {
	t.Helper()
	e, err := cron.Parse(expression)
	require.NoError(t, err)
	var all []string
	for range count {
		after = e.Next(after)
		if after.IsZero() {
			return append(all, "never")
		}
		require.Equal(t, time.UTC, after.Location())
		all = append(all, after.Format(layout))
	}
	return all
}

// The first ones are the examples of "Cron expressions reference" in the EventBridge
// user guide.
func TestNext(t *testing.T) {
	t.Parallel()
	sunday := time.Date(2026, 11, 29, 11, 5, 30, 250e6, time.UTC)
	for _, tt := range []struct {
		expression string
		want       []string
	}{
		{"0 10 * * ? *", []string{"2026-11-30 10:00:00", "2026-12-01 10:00:00"}},
		{"15 12 * * ? *", []string{"2026-11-29 12:15:00", "2026-11-30 12:15:00"}},
		{"0 18 ? * MON-FRI *", []string{"2026-11-30 18:00:00", "2026-12-01 18:00:00", "2026-12-02 18:00:00", "2026-12-03 18:00:00", "2026-12-04 18:00:00", "2026-12-07 18:00:00"}},
		{"0 8 1 * ? *", []string{"2026-12-01 08:00:00", "2027-01-01 08:00:00"}},
		{"0/15 * * * ? *", []string{"2026-11-29 11:15:00", "2026-11-29 11:30:00", "2026-11-29 11:45:00", "2026-11-29 12:00:00"}},
		{"0/10 * ? * MON-FRI *", []string{"2026-11-30 00:00:00", "2026-11-30 00:10:00"}},
		{"0/5 8-17 ? * MON-FRI *", []string{"2026-11-30 08:00:00", "2026-11-30 08:05:00"}},
		{"0/30 20-2 ? * MON-FRI *", []string{"2026-11-30 00:00:00", "2026-11-30 00:30:00", "2026-11-30 01:00:00", "2026-11-30 01:30:00", "2026-11-30 02:00:00", "2026-11-30 02:30:00", "2026-11-30 20:00:00"}},
		{"5,35 14 * * ? *", []string{"2026-11-29 14:05:00", "2026-11-29 14:35:00", "2026-11-30 14:05:00"}},
		{"15 10 ? * 6L 2026-2027", []string{"2026-12-25 10:15:00", "2027-01-29 10:15:00", "2027-02-26 10:15:00"}},
		{"1/10 * * * ? *", []string{"2026-11-29 11:11:00", "2026-11-29 11:21:00", "2026-11-29 11:31:00"}},
		{"0 0 3W * ? *", []string{"2026-12-03 00:00:00", "2027-01-04 00:00:00", "2027-02-03 00:00:00", "2027-03-03 00:00:00", "2027-04-02 00:00:00"}},
		{"0 0 ? * 3#2 *", []string{"2026-12-08 00:00:00", "2027-01-12 00:00:00"}},
		{"0 0 1-15 * ? *", []string{"2026-12-01 00:00:00", "2026-12-02 00:00:00"}},
		{"0 0 1 JAN,FEB,MAR ? *", []string{"2027-01-01 00:00:00", "2027-02-01 00:00:00", "2027-03-01 00:00:00", "2028-01-01 00:00:00"}},

		// minutes and hours
		{"* * * * ? *", []string{"2026-11-29 11:06:00", "2026-11-29 11:07:00"}},
		{"*/20 * * * ? *", []string{"2026-11-29 11:20:00", "2026-11-29 11:40:00", "2026-11-29 12:00:00"}},
		{"30/45 * * * ? *", []string{"2026-11-29 11:30:00", "2026-11-29 12:30:00"}},
		{"0-15/5,59 11 * * ? *", []string{"2026-11-29 11:10:00", "2026-11-29 11:15:00", "2026-11-29 11:59:00", "2026-11-30 11:00:00"}},
		{"0 22-3/3 * * ? *", []string{"2026-11-29 22:00:00", "2026-11-30 01:00:00", "2026-11-30 22:00:00"}},
		{"0\t 12  * * ? *", []string{"2026-11-29 12:00:00"}},

		// days of the month
		{"0 0 L * ? *", []string{"2026-11-30 00:00:00", "2026-12-31 00:00:00", "2027-01-31 00:00:00", "2027-02-28 00:00:00"}},
		{"0 0 LW * ? *", []string{"2026-11-30 00:00:00", "2026-12-31 00:00:00", "2027-01-29 00:00:00"}},
		{"0 0 L-2 * ? *", []string{"2026-12-29 00:00:00", "2027-01-29 00:00:00", "2027-02-26 00:00:00"}},
		{"0 0 1W * ? *", []string{"2026-12-01 00:00:00", "2027-01-01 00:00:00", "2027-02-01 00:00:00", "2027-03-01 00:00:00", "2027-04-01 00:00:00", "2027-05-03 00:00:00"}},
		{"0 0 31W * ? *", []string{"2026-12-31 00:00:00", "2027-01-29 00:00:00", "2027-03-31 00:00:00"}},
		{"0 0 31 * ? *", []string{"2026-12-31 00:00:00", "2027-01-31 00:00:00", "2027-03-31 00:00:00"}},
		{"0 0 10/10 * ? *", []string{"2026-11-30 00:00:00", "2026-12-10 00:00:00", "2026-12-20 00:00:00", "2026-12-30 00:00:00"}},
		{"0 0 29 2 ? *", []string{"2028-02-29 00:00:00", "2032-02-29 00:00:00"}},

		// months
		{"0 0 1 nov-feb ? *", []string{"2026-12-01 00:00:00", "2027-01-01 00:00:00", "2027-02-01 00:00:00", "2027-11-01 00:00:00"}},
		{"0 0 1 */6 ? *", []string{"2027-01-01 00:00:00", "2027-07-01 00:00:00", "2028-01-01 00:00:00"}},

		// days of the week
		{"0 0 ? * 1 *", []string{"2026-12-06 00:00:00", "2026-12-13 00:00:00"}},
		{"0 0 ? * 7,mon *", []string{"2026-11-30 00:00:00", "2026-12-05 00:00:00", "2026-12-07 00:00:00"}},
		{"0 0 ? * FRI-MON *", []string{"2026-11-30 00:00:00", "2026-12-04 00:00:00", "2026-12-05 00:00:00", "2026-12-06 00:00:00", "2026-12-07 00:00:00", "2026-12-11 00:00:00"}},
		{"0 0 ? * L *", []string{"2026-12-05 00:00:00", "2026-12-12 00:00:00"}},
		{"0 0 ? * SUNL *", []string{"2026-12-27 00:00:00", "2027-01-31 00:00:00"}},
		{"0 0 ? * SAT#5 *", []string{"2027-01-30 00:00:00", "2027-05-29 00:00:00"}},
		{"0 0 ? * * *", []string{"2026-11-30 00:00:00", "2026-12-01 00:00:00"}},

		// years
		{"0 0 1 1 ? 2027/2", []string{"2027-01-01 00:00:00", "2029-01-01 00:00:00"}},
		{"0 0 1 1 ? 2150,2199", []string{"2150-01-01 00:00:00", "2199-01-01 00:00:00", "never"}},
		{"59 23 31 12 ? 2198-2199", []string{"2198-12-31 23:59:00", "2199-12-31 23:59:00", "never"}},
		{"15 10 ? * 6L 2002-2005", []string{"never"}},
		{"0 0 30 2 ? *", []string{"never"}},
	} {
		t.Run(tt.expression, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, times(t, tt.expression, sunday, len(tt.want)))
		})
	}
}

// It is due in UTC, wherever the machine is, and in a minute that is there.
func TestNext_AnotherZone(t *testing.T) {
	t.Parallel()
	kathmandu := time.FixedZone("", 5*3600+45*60)
	require.Equal(t, []string{"2026-11-30 03:00:00"}, times(t, "0 3 * * ? *", time.Date(2026, 11, 29, 8, 45, 0, 0, kathmandu), 1))
	require.Equal(t, []string{"2026-11-29 03:00:00"}, times(t, "0 3 * * ? *", time.Date(2026, 11, 29, 8, 44, 59, 999, kathmandu), 1))
}

func TestParse_WhatEventBridgeRefuses(t *testing.T) {
	t.Parallel()
	const (
		fields = "want six fields, minutes hours day-of-month month day-of-week year, as in cron(0 3 * * ? *), not "
		either = "want ? for either day-of-month or day-of-week, as in cron(0 3 * * ? *) or cron(0 3 ? * MON-FRI *), not "
		day    = "day-of-month: want 1 to 31, or alone L or 15W, not "
		week   = "day-of-week: want 1 to 7 or SUN to SAT, or alone L, 6L or 3#2, not "
	)
	for expression, want := range map[string]string{
		"":                      fields + "0",
		"0 3 * * ?":             fields + "5",
		"0 0 3 * * ? *":         fields + "7",
		"0 3 * * * *":           either + "* and *",
		"0 3 ? * ? *":           either + "? and ?",
		"0 3 1 * MON *":         either + "1 and MON",
		"71 8 1 * ? *":          `minutes: want 0 to 59, not "71"`,
		"? 8 1 * ? *":           `minutes: want 0 to 59, not "?"`,
		"-5 8 1 * ? *":          `minutes: want 0 to 59, not ""`,
		"+5 8 1 * ? *":          `minutes: want 0 to 59, not "+5"`,
		"1-2-3 8 1 * ? *":       `minutes: want 0 to 59, not "2-3"`,
		"5, 8 1 * ? *":          `minutes: want 0 to 59, not ""`,
		"*/60 8 1 * ? *":        `minutes: want a step of 1 to 59, not "*/60"`,
		"0/0 8 1 * ? *":         `minutes: want a step of 1 to 59, not "0/0"`,
		"0/ 8 1 * ? *":          `minutes: want a step of 1 to 59, not "0/"`,
		"/5 8 1 * ? *":          `minutes: want 0 to 59, not ""`,
		"0 24 1 * ? *":          `hours: want 0 to 23, not "24"`,
		"0 dummy ? * MON-FRI *": `hours: want 0 to 23, not "dummy"`,
		"0 9999999999 1 * ? *":  `hours: want 0 to 23, not "9999999999"`,
		"0 8 0 * ? *":           day + `"0"`,
		"0 8 32 * ? *":          day + `"32"`,
		"0 8 1-32 * ? *":        day + `"32"`,
		"0 8 1,L * ? *":         day + `"L"`,
		"0 8 1,15W * ? *":       day + `"15W"`,
		"0 8 W * ? *":           day + `""`,
		"0 8 32W * ? *":         day + `"32"`,
		"0 8 L-x * ? *":         day + `"X"`,
		"0 8 ?,1 * ? *":         day + `"?"`,
		"0 8 1 13 ? *":          `month: want 1 to 12 or JAN to DEC, not "13"`,
		"0 8 1 JANUARY ? *":     `month: want 1 to 12 or JAN to DEC, not "JANUARY"`,
		"0 8 ? * 0 *":           week + `"0"`,
		"0 8 ? * 8 *":           week + `"8"`,
		"0 8 ? * NOT *":         week + `"NOT"`,
		"0 8 ? * 3#1,6#3 *":     week + `"3#1"`,
		"0 8 ? * 2,6L *":        week + `"6L"`,
		"0 8 ? * 8L *":          week + `"8"`,
		"0 8 ? * 3#6 *":         `day-of-week: want 1 to 5 after #, not "3#6"`,
		"0 8 ? * 0#1 *":         week + `"0"`,
		"0 8 ? * 2/2 *":         `day-of-week: there are no steps, not "2/2"`,
		"0 8 1 * ? 1969":        `year: want 1970 to 2199, not "1969"`,
		"0 8 1 * ? 2200":        `year: want 1970 to 2199, not "2200"`,
		"0 8 1 * ? 2030-2027":   `year: want the earlier first, not "2030-2027"`,
	} {
		t.Run(expression, func(t *testing.T) {
			t.Parallel()
			e, err := cron.Parse(expression)
			require.EqualError(t, err, want)
			require.Nil(t, e)
		})
	}
}

// There is nothing due between Last and Next, which tell the same times.
func TestLast(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		e, err := cron.Parse(strings.Join([]string{
			rapid.SampledFrom([]string{"*", "0", "59", "0/7", "5,30"}).Draw(t, "minutes"),
			rapid.SampledFrom([]string{"*", "0", "23", "20-2", "3/5"}).Draw(t, "hours"),
			rapid.SampledFrom([]string{"* * ?", "? * MON-FRI", "L * ?", "31W * ?", "? * 3#5", "29 2 ?", "? 6 6L", "31 * ?", "1 1 ?", "? 11-2 *"}).Draw(t, "days"),
			rapid.SampledFrom([]string{"*", "2020-2030", "2028", "1970/4"}).Draw(t, "years"),
		}, " "))
		require.NoError(t, err)
		at := time.Unix(rapid.Int64Range(1.6e9, 2.2e9).Draw(t, "at"), 0)
		if next := e.Next(at); !next.IsZero() && rapid.Bool().Draw(t, "due") {
			at = next
		}
		last := e.Last(at)
		if last.IsZero() {
			return
		}
		require.False(t, last.After(at))
		require.Equal(t, last, e.Next(last.Add(-time.Nanosecond)))
		if next := e.Next(last); !next.IsZero() {
			require.True(t, next.After(at))
		}
	})
}

// Whatever it is given, it says no or goes forward.
func FuzzParse(f *testing.F) {
	for _, expression := range []string{"0/30 20-2 ? * MON-FRI *", "0 0 LW * ? *", "0 0 ? * 3#2 2026/3", "0 0 L-30 2 ? *"} {
		f.Add(expression)
	}
	now := time.Date(2026, 11, 29, 11, 5, 30, 0, time.UTC)
	f.Fuzz(func(t *testing.T, expression string) {
		e, err := cron.Parse(expression)
		if err != nil {
			return
		}
		if next := e.Next(now); !next.IsZero() {
			require.True(t, next.After(now))
			require.Zero(t, next.Second()+next.Nanosecond())
			require.LessOrEqual(t, next.Year(), 2199)
		}
	})
}
