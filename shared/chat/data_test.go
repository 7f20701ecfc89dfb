package chat_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
)

// deep is data of this many objects, one in the other.
func deep(levels int) string {
	return strings.Repeat(`{"a":`, levels-1) + `{}` + strings.Repeat(`}`, levels-1)
}

// lists is data of this many levels, all lists but the first.
func lists(levels int) string {
	return `{"a":` + strings.Repeat(`[`, levels-1) + strings.Repeat(`]`, levels-1) + `}`
}

// What one device can send, every device can read: data is what all readers of
// JSON take, and take for the same.
func TestG5_DataIsWhatEveryReaderTakes(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]string{
		"empty":                   `{}`,
		"space around":            " \t\r\n{ } ",
		"32 objects deep":         deep(chat.MaxDataDepth),
		"32 lists deep":           lists(chat.MaxDataDepth),
		"wide, not deep":          `{"a":[` + strings.Repeat(`[],`, 500) + `{}]}`,
		"many keys":               `{"a":1,"b":{"a":1},"A":2,"":[{"a":1},{"a":2}]}`,
		"escaped pairs":           `{"\ud83d\ude42":"\uD83D\uDE42 \u0000 \\ud800 \\\" \ue000"}`,
		"a backslash at the end":  `{"a":"\\"}`,
		"the largest double":      `{"a":[1.7976931348623157e308,-1.7976931348623157e308]}`,
		"a double holds it rough": `{"a":[9007199254740993,0.1,1e-999,123456789012345678901234567890]}`,
		"0 to any power":          `{"a":0e999}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, withData(data).Validate())
		})
	}
	for name, tc := range map[string]struct{ data, says string }{
		"a list":                     {`[1]`, "object"},
		"a string":                   {`"a"`, "object"},
		"null":                       {`null`, "object"},
		"cut off":                    {`{"a":`, "object"},
		"two of them":                {`{}{}`, "object"},
		"33 objects deep":            {deep(chat.MaxDataDepth + 1), "deep"},
		"33 lists deep":              {lists(chat.MaxDataDepth + 1), "deep"},
		"9,999 lists deep":           {lists(9999), "deep"},
		"lists after lists":          {`{"a":[` + strings.Repeat(`[],`, 100) + strings.Repeat(`[`, 40) + strings.Repeat(`]`, 40) + `]}`, "deep"},
		"beyond a double":            {`{"a":1e999}`, "double"},
		"beyond a double, below":     {`{"a":{"b":[-1e309]}}`, "double"},
		"beyond a double, in digits": {`{"a":` + strings.Repeat("9", 310) + `}`, "double"},
		"an exponent beyond all":     {`{"a":1e99999999999999999999}`, "double"},
		"a key twice":                {`{"a":1,"a":2}`, "twice"},
		"a key twice, deep":          {`{"b":[1,{"c":{"a":1,"b":2,"a":1}}]}`, "twice"},
		"a key twice, once escaped":  {`{"a":1,"\u0061":1}`, "twice"},
		"an empty key twice":         {`{"":1,"":2}`, "twice"},
		"half a pair":                {`{"a":"\ud800"}`, "half"},
		"the other half":             {`{"a":"\udc00"}`, "half"},
		"two first halves":           {`{"a":"\ud800\ud800"}`, "half"},
		"the wrong way round":        {`{"a":"\udc00\ud800"}`, "half"},
		"half a pair, then another":  {`{"a":"\ud800\n"}`, "half"},
		"half a pair, then text":     {`{"a":"\uD83Dude42"}`, "half"},
		"half a pair in a key":       {`{"\ud800":1}`, "half"},
		"half a pair after a pair":   {`{"a":"\ud83d\ude42\ude42"}`, "half"},
		"half a pair after \\":       {`{"a":"\\\ud800"}`, "half"},
		"no UTF-8":                   {"{\"a\":\"\xff\"}", "UTF-8"},
		"an encoded half":            {"{\"a\":\"\xed\xa0\x80\"}", "UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := withData(tc.data).Validate()
			refusal := &chat.Error{}
			require.ErrorAs(t, err, &refusal)
			require.Equal(t, chat.CodeBadRequest, refusal.Code)
			require.Equal(t, "data", refusal.Field)
			require.Contains(t, refusal.Message, tc.says)
		})
	}
}

// What a message is edited to is held to the same.
func TestG5_DataOfAnEditIsWhatEveryReaderTakes(t *testing.T) {
	t.Parallel()
	edit := withData(deep(chat.MaxDataDepth))
	edit.MessageType, edit.Event = chat.TypeEvent, &chat.Event{Kind: chat.EventEdit}
	require.NoError(t, edit.Validate())
	edit.Data = json.RawMessage(deep(chat.MaxDataDepth + 1))
	require.Equal(t, chat.CodeBadRequest, chat.CodeOf(edit.Validate()))
}

// FuzzG5_Data compares Validate with another implementation's idea of I-JSON: what
// passes is read by both, is at most MaxDataDepth deep, and has numbers that
// doubles hold; and all that is so passes.
func FuzzG5_Data(f *testing.F) {
	for _, seed := range []string{
		`{}`, `[]`, ``, `{"a":[1,2.5e3,-0,null,true,"x"]}`, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"a":1e999}`,
		`{"a":"\ud800"}`, `{"a":"\ud83d\ude42"}`, `{"a":"\\ud800"}`, `{"a":"\udc00\ud800"}`, "{\"\xff\":1}",
		deep(chat.MaxDataDepth), deep(chat.MaxDataDepth + 1), lists(chat.MaxDataDepth), lists(chat.MaxDataDepth + 1),
		`{"a":1}}`, `{"a":[1,]}`, `{"a" 1}`, `{"a":{"b":{}},"b":[{"a":[]}]}`, "\ufeff{}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return // no data
		}
		err := withData(string(data)).Validate()
		if chat.CodeOf(err) == chat.CodeTooLarge {
			return
		}
		require.Equal(t, isStrict(data), err == nil, "%q: %v", data, err)
		if err != nil {
			return
		}
		var v any
		require.NoError(t, json.Unmarshal(data, &v), "%q", data)
		_, err = withData(string(data)).Fingerprint()
		require.NoError(t, err)
	})
}

// isStrict reports whether data is one object of I-JSON, not too deep, with
// numbers that doubles hold.
func isStrict(data []byte) bool {
	dec := jsontext.NewDecoder(bytes.NewReader(data))
	if dec.PeekKind() != '{' {
		return false
	}
	for values := 0; ; {
		token, err := dec.ReadToken()
		if errors.Is(err, io.EOF) {
			return values == 1
		}
		var number float64
		switch {
		case err != nil, dec.StackDepth() > chat.MaxDataDepth:
			return false
		case token.Kind() == '0' && json.Unmarshal([]byte(token.String()), &number) != nil:
			return false
		case dec.StackDepth() == 0:
			values++
		}
	}
}

func withData(data string) chat.Message {
	m := text("hi")
	m.Data = json.RawMessage(data)
	return m
}
