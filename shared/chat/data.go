package chat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDataDepth is how deep objects and lists may stand in one another in data,
// which is the first of them itself.
const MaxDataDepth = 32

// validateData refuses data that not every reader of JSON takes, or that two of
// them take for different values: it travels as it was written, inside frames and
// pages that are lost to a device that cannot read them. So it is I-JSON (RFC
// 7493): no key twice in one object, no escape of half a character, no number
// beyond a double. A number that a double holds only roughly (2^53+1, 1e-999) is
// let through: every reader takes it, each as exactly as it can.
//
// The errors, BadRequest of the field data, quote nothing.
func validateData(raw json.RawMessage) error {
	switch {
	case !isJSONObject(raw):
		return dataErrorf("data is a JSON object")
	case !utf8.Valid(raw):
		return dataErrorf("data is not UTF-8")
	case hasHalfCharacter(raw):
		return dataErrorf(`data has an escape from \ud800 to \udfff that is half of a pair`)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return validateValue(dec, 1)
}

// validateValue reads the next value, which if it is an object or a list is the
// depth-th from outside. It calls itself at most MaxDataDepth times.
func validateValue(dec *json.Decoder, depth int) error {
	token, err := dec.Token()
	if err != nil {
		return dataErrorf("data is a JSON object: %v", err)
	}
	switch t := token.(type) {
	case json.Number:
		if _, err := strconv.ParseFloat(string(t), 64); err != nil {
			return dataErrorf("a number in data is too large for a double, at byte %d", dec.InputOffset())
		}
	case json.Delim:
		if depth > MaxDataDepth {
			return dataErrorf("data is at most %d objects and lists deep; it is deeper at byte %d", MaxDataDepth, dec.InputOffset())
		}
		return validateContainer(dec, t == '{', depth)
	}
	return nil
}

// validateContainer reads the rest of an object or a list.
func validateContainer(dec *json.Decoder, isObject bool, depth int) error {
	keys := map[json.Token]bool{}
	for dec.More() {
		if isObject {
			key, err := dec.Token()
			if err != nil {
				return dataErrorf("data is a JSON object: %v", err)
			}
			if keys[key] {
				return dataErrorf("an object in data has a key twice, at byte %d", dec.InputOffset())
			}
			keys[key] = true
		}
		if err := validateValue(dec, depth+1); err != nil {
			return err
		}
	}
	_, err := dec.Token()
	return err
}

// hasHalfCharacter reports whether JSON has an escaped surrogate without its
// other half. encoding/json puts U+FFFD there, others refuse the whole text.
func hasHalfCharacter(raw []byte) bool {
	for {
		at := bytes.IndexByte(raw, '\\')
		if at < 0 {
			return false
		}
		r, n := readEscape(raw[at:])
		if utf16.IsSurrogate(r) {
			low, more := readEscape(raw[at+n:])
			if utf16.DecodeRune(r, low) == unicode.ReplacementChar {
				return true
			}
			n += more
		}
		raw = raw[at+n:]
	}
}

// readEscape returns the character and the length of the escape at the beginning of
// raw. The character is 0 if it is not written in hex, or if there is no escape.
func readEscape(raw []byte) (r rune, n int) {
	switch {
	case len(raw) < 2 || raw[0] != '\\':
		return 0, 0
	case raw[1] != 'u' || len(raw) < len(`\u0000`):
		return 0, 2
	}
	n = len(`\u0000`)
	hex, err := strconv.ParseUint(string(raw[2:n]), 16, 16)
	if err != nil {
		return 0, 2
	}
	return rune(hex), n
}

func isJSONObject(raw json.RawMessage) bool {
	trimmed := bytes.TrimLeft(raw, " \t\r\n")
	return len(trimmed) > 0 && trimmed[0] == '{' && json.Valid(raw)
}

func dataErrorf(format string, args ...any) *Error {
	return &Error{Code: CodeBadRequest, Field: "data", Message: fmt.Sprintf(format, args...)}
}
