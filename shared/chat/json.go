package chat

import (
	"bytes"
	"encoding/json"
)

// EncodeJSON returns v as frames carry it: on one line, and without turning <, >
// and & into six-byte escapes, which only matter inside HTML.
func EncodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
