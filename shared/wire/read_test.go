package wire_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// FuzzG10_Requests reads a frame as each action's request: whatever comes is refused in
// the words of the protocol, or is a request that reads the same once it is written.
func FuzzG10_Requests(f *testing.F) {
	for _, seed := range []string{
		`{"action":"send","id":"1","to":"bob","clientMsgId":"c","messageType":"text","text":"hi","replyTo":{"seq":1,"messageId":"m"},"clientTime":1}`,
		`{"action":"send","id":"1","conversationId":"group:1","data":{"a":[1,{}]},"messageType":"custom","text":"\ud800"}`,
		`{"action":"sync","id":"1","conversationId":"single:a","afterSeq":0,"limit":500}`, `{"action":"ack","id":"1","readSeq":1e3}`,
		`{"action":"edit","id":"1","seq":1,"messageId":"m","version":9007199254740991,"data":null}`,
		`{"action":"members","id":"1","conversationId":"group:1","cursor":"\u0000"}`, `{"id":"1","members":["a",null,1]}`,
		`{"id":"1","syncCursor":-0,"headsCursor":"x","Hidden":true}`, `{"id":"1","id":2}`, `[]`, `null`, ``, "\x00",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := wire.ReadRequest(body)
		if err != nil {
			requireRefusal(t, err)
			return
		}
		for _, action := range slices.Sorted(maps.Keys(exchanges)) {
			of := reflect.TypeOf(exchanges[action].request)
			request := reflect.New(of)
			if err := wire.Decode(r.Fields, request.Interface()); err != nil {
				requireRefusal(t, err)
				continue
			}
			written := mustEncode(t, request.Interface())
			var fields map[string]json.RawMessage
			require.NoError(t, json.Unmarshal(written, &fields))
			again := reflect.New(of)
			require.NoError(t, wire.Decode(fields, again.Interface()), "%s", written)
			require.Equal(t, string(written), string(mustEncode(t, again.Interface())))
		}
	})
}

// Data that is mostly spaces would be read, at a price, by all who are sent a few bytes.
func TestG10_SpacesInDataAreNotKept(t *testing.T) {
	t.Parallel()
	r, err := wire.ReadRequest([]byte(`{"action":"send","id":"1","to":"bob","messageType":"custom","seq":1,"messageId":"m","version":1,"data": {` +
		strings.Repeat(" \n", 10_000) + `"a b" : [ 1, "x  y\u0020" ,{ } ]}}`))
	require.NoError(t, err)
	for _, into := range []any{&wire.Send{}, &wire.Edit{}} {
		require.NoError(t, wire.Decode(r.Fields, into))
		var data json.RawMessage
		switch request := into.(type) {
		case *wire.Send:
			data = request.Data
		case *wire.Edit:
			data = request.Data
		}
		require.Equal(t, `{"a b":[1,"x  y\u0020",{}]}`, string(data))
	}
}

func mustEncode(t *testing.T, v any) []byte {
	t.Helper()
	encoded, err := wire.Encode(v)
	require.NoError(t, err)
	return encoded
}

// requireRefusal checks that an error can be told to a client.
func requireRefusal(t *testing.T, err error) {
	t.Helper()
	refusal := &chat.Error{}
	require.ErrorAs(t, err, &refusal)
	require.Contains(t, []chat.Code{chat.CodeBadRequest, chat.CodeTooLarge, chat.CodeUnknownAction}, refusal.Code)
	require.NotEmpty(t, refusal.Message)
}
