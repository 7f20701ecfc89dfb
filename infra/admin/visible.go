package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// visible shows what is no letter to see as Go writes it in a string: what somebody has
// put into a table must not move the cursor of the operator's terminal, or turn the
// direction of a line. The characters of keep stay.
func visible(s, keep string) string {
	return escape(s, func(r rune) bool { return strconv.IsPrint(r) || strings.ContainsRune(keep, r) }, func(r rune) string {
		q := strconv.QuoteRune(r)
		return q[1 : len(q)-1]
	})
}

// visibleJSON is visible for JSON, of which it changes the form and not the meaning.
func visibleJSON(data []byte) []byte {
	return []byte(escape(string(data), func(r rune) bool { return strconv.IsPrint(r) || r == '\n' }, func(r rune) string {
		s := ""
		for _, unit := range utf16.Encode([]rune{r}) {
			s += fmt.Sprintf(`\u%04x`, unit)
		}
		return s
	}))
}

func escape(s string, stays func(rune) bool, as func(rune) string) string {
	var out strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 || stays(r) { // half a letter: a buffer ends there
			out.WriteString(s[i : i+n])
		} else {
			out.WriteString(as(r))
		}
		i += n
	}
	return out.String()
}

// terminal makes what is written to it visible.
type terminal struct{ to io.Writer }

func (t terminal) Write(p []byte) (int, error) {
	if _, err := io.WriteString(t.to, visible(string(p), "\n\t")); err != nil {
		return 0, err //nolint:wrapcheck // as a writer's
	}
	return len(p), nil
}
