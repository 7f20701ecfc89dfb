package route_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/wire"
)

// probe is a request with a field of every kind that requests have.
type probe struct {
	Text    string          `json:"text"`
	Seq     *int64          `json:"seq"`
	Limit   int             `json:"limit,omitempty"`
	Flag    bool            `json:"flag"`
	Data    json.RawMessage `json:"data"`
	ReplyTo *chat.ReplyTo   `json:"replyTo"`
	Members []string        `json:"members"`
}

// echo answers with what it got.
func echo(_ context.Context, _ route.Caller, r probe) (probe, error) { return r, nil }

func event(body string) events.APIGatewayWebsocketProxyRequest {
	return events.APIGatewayWebsocketProxyRequest{
		Body: body,
		RequestContext: events.APIGatewayWebsocketProxyRequestContext{
			RequestID: "req-1", ConnectionID: "conn-1", ConnectedAt: 1795950299871, RouteKey: "echo", EventType: "MESSAGE",
			Authorizer: map[string]any{"principalId": "alice", "device": "phone", "integrationLatency": 3.0},
		},
	}
}

// frame is a reply or an error frame.
type frame struct {
	Type   string          `json:"type"`
	ID     string          `json:"id"`
	Action string          `json:"action"`
	Result json.RawMessage `json:"result"`
	Error  *wire.Error     `json:"error"`
}

func serve(t testing.TB, action route.Action, e events.APIGatewayWebsocketProxyRequest) (frame, string) {
	t.Helper()
	var log bytes.Buffer
	all := &slog.HandlerOptions{Level: slog.LevelDebug}
	handler := route.Serve(slog.New(slog.NewJSONHandler(&log, all)), nil, nil, map[string]route.Action{"echo": action})
	response, err := handler(t.Context(), e)
	require.NoError(t, err)
	require.Equal(t, 200, response.StatusCode)
	require.LessOrEqual(t, len(response.Body), wire.MaxFrameBytes)
	var f frame
	require.NoError(t, json.Unmarshal([]byte(response.Body), &f))
	require.Equal(t, 1, strings.Count(log.String(), "\n"), "one line for one request")
	return f, log.String()
}

func TestServeReplies(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ fields, result string }{
		"nothing but the header": {``, `{"text":"","seq":null,"flag":false,"data":null,"replyTo":null,"members":null}`},
		"all fields": {
			`,"text":"<hi>","seq":9007199254740991,"limit":-5,"flag":true,"data":{"a": 1},"replyTo":{"seq":3,"messageId":"m"},"members":["a","b"]`,
			`{"text":"<hi>","seq":9007199254740991,"limit":-5,"flag":true,"data":{"a":1},"replyTo":{"seq":3,"messageId":"m"},"members":["a","b"]}`,
		},
		"null is as good as absent": {
			`,"text": null ,"seq":null,"limit":null,"flag":null,"data": null,"replyTo":null,"members":null`,
			`{"text":"","seq":null,"flag":false,"data":null,"replyTo":null,"members":null}`,
		},
		"unknown fields are ignored": {
			`,"mood":{"deep":[1]},"text":"x"`,
			`{"text":"x","seq":null,"flag":false,"data":null,"replyTo":null,"members":null}`,
		},
		"names match exactly": {
			`,"Text":"no","TEXT":"no","replyTo":{"Seq":7,"SEQ":8,"messageId":"m"}`,
			`{"text":"","seq":null,"flag":false,"data":null,"replyTo":{"seq":0,"messageId":"m"},"members":null}`,
		},
		"of two fields the last counts": {
			`,"text":"first","text":"last","Text":"no"`,
			`{"text":"last","seq":null,"flag":false,"data":null,"replyTo":null,"members":null}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, log := serve(t, route.To(echo), event(`{"action":"echo","id":"r-1"`+tc.fields+`}`))
			require.Equal(t, frame{Type: wire.TypeReply, ID: "r-1", Action: "echo", Result: json.RawMessage(tc.result)}, f)
			require.Contains(t, log, `"level":"DEBUG","msg":"request","requestId":"req-1","connectionId":"conn-1","userId":"alice","deviceId":"phone","action":"echo","code":"OK","ms":`)
		})
	}
}

func TestServeRefusesFrames(t *testing.T) {
	t.Parallel()
	const head = `{"action":"echo","id":"r-1",`
	for name, tc := range map[string]struct {
		body  string
		code  chat.Code
		field string
		id    string
	}{
		"nothing":              {"", chat.CodeUnknownAction, "", ""},
		"no JSON":              {"hello", chat.CodeUnknownAction, "", ""},
		"null":                 {"null", chat.CodeUnknownAction, "", ""},
		"a list":               {`[{"action":"echo","id":"r-1"}]`, chat.CodeUnknownAction, "", ""},
		"a string":             {`"echo"`, chat.CodeUnknownAction, "", ""},
		"a number":             {"7", chat.CodeUnknownAction, "", ""},
		"half an object":       {head, chat.CodeUnknownAction, "", ""},
		"more than an object":  {`{"action":"echo","id":"r-1"}{}`, chat.CodeUnknownAction, "", ""},
		"endless nesting":      {strings.Repeat(`{"a":`, 20_000), chat.CodeUnknownAction, "", ""},
		"an unknown action":    {`{"action":"fly","id":"r-1"}`, chat.CodeUnknownAction, "", "r-1"},
		"no action":            {`{"id":"r-1"}`, chat.CodeUnknownAction, "", "r-1"},
		"a null action":        {`{"action":null,"id":"r-1"}`, chat.CodeUnknownAction, "", "r-1"},
		"a number for action":  {`{"action":7,"id":"r-1"}`, chat.CodeUnknownAction, "", "r-1"},
		"Action for action":    {`{"Action":"echo","id":"r-1"}`, chat.CodeUnknownAction, "", "r-1"},
		"an endless action":    {`{"action":"` + strings.Repeat("\u2028", 10_000) + `","id":"r-1"}`, chat.CodeUnknownAction, "", "r-1"},
		"no id":                {`{"action":"echo"}`, chat.CodeBadRequest, "id", ""},
		"an empty id":          {`{"action":"echo","id":""}`, chat.CodeBadRequest, "id", ""},
		"a null id":            {`{"action":"echo","id":null}`, chat.CodeBadRequest, "id", ""},
		"a number for id":      {`{"action":"echo","id":1}`, chat.CodeBadRequest, "id", ""},
		"Id for id":            {`{"action":"echo","Id":"r-1"}`, chat.CodeBadRequest, "id", ""},
		"an id of 65":          {`{"action":"echo","id":"` + strings.Repeat("i", 65) + `"}`, chat.CodeBadRequest, "id", ""},
		"a number for text":    {head + `"text":1}`, chat.CodeBadRequest, "text", "r-1"},
		"a string for seq":     {head + `"seq":"1"}`, chat.CodeBadRequest, "seq", "r-1"},
		"a fraction":           {head + `"seq":1.5}`, chat.CodeBadRequest, "seq", "r-1"},
		"an exponent":          {head + `"seq":1e3}`, chat.CodeBadRequest, "seq", "r-1"},
		"a seq beyond 64 bits": {head + `"seq":9223372036854775808}`, chat.CodeBadRequest, "seq", "r-1"},
		"a fraction for limit": {head + `"limit":1.0}`, chat.CodeBadRequest, "limit", "r-1"},
		"a string for flag":    {head + `"flag":"true"}`, chat.CodeBadRequest, "flag", "r-1"},
		"a string for members": {head + `"members":"bob"}`, chat.CodeBadRequest, "members", "r-1"},
		"a number as member":   {head + `"members":["bob",1]}`, chat.CodeBadRequest, "members", "r-1"},
		"a string for replyTo": {head + `"replyTo":"m"}`, chat.CodeBadRequest, "replyTo", "r-1"},
		"a list for replyTo":   {head + `"replyTo":[1]}`, chat.CodeBadRequest, "replyTo", "r-1"},
		"a nested fraction":    {head + `"replyTo":{"seq":1.5,"messageId":"m"}}`, chat.CodeBadRequest, "replyTo.seq", "r-1"},
		"a nested number":      {head + `"replyTo":{"seq":1,"messageId":2}}`, chat.CodeBadRequest, "replyTo.messageId", "r-1"},
		"over 32 KB":           {head + `"text":"` + strings.Repeat("x", wire.MaxFrameBytes) + `"}`, chat.CodeTooLarge, "", "r-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, log := serve(t, route.To(echo), event(tc.body))
			require.Equal(t, wire.TypeError, f.Type)
			require.Equal(t, tc.id, f.ID)
			require.Equal(t, tc.code, f.Error.Code, f.Error.Message)
			require.Equal(t, tc.field, f.Error.Field)
			require.NotEmpty(t, f.Error.Message)
			require.False(t, f.Error.Retryable)
			require.Contains(t, log, `"code":"`+string(tc.code)+`"`)
			require.Contains(t, log, `"userId":"alice"`)
		})
	}

	t.Run("an unknown action comes back", func(t *testing.T) {
		t.Parallel()
		f, _ := serve(t, route.To(echo), event(`{"action":"fly","id":"r-1"}`))
		require.Equal(t, "fly", f.Action)
	})

	t.Run("a frame of exactly 32 KB passes", func(t *testing.T) {
		t.Parallel()
		body := head + `"x":"` + strings.Repeat("x", wire.MaxFrameBytes-len(head)-len(`"x":""}`)) + `"}`
		require.Len(t, body, wire.MaxFrameBytes)
		f, _ := serve(t, route.To(echo), event(body))
		require.Equal(t, wire.TypeReply, f.Type)
	})
}

func failing(err error) route.Action {
	return route.To(func(context.Context, route.Caller, probe) (probe, error) { return probe{}, err })
}

func TestServeTellsErrors(t *testing.T) {
	t.Parallel()
	busy := chat.Errorf(chat.CodeBusy, "send again")
	for name, tc := range map[string]struct {
		err   error
		want  wire.Error
		level string
	}{
		"of the domain, with field and details": {
			fmt.Errorf("sending: %w", &chat.Error{Code: chat.CodeIdempotencyConflict, Field: "clientMsgId", Message: "used", Details: map[string]any{"seq": 4}}),
			wire.Error{Code: chat.CodeIdempotencyConflict, Field: "clientMsgId", Message: "used", Details: map[string]any{"seq": 4.0}},
			"INFO",
		},
		"busy, whatever the deadline": {
			fmt.Errorf("%w (%w)", busy, context.DeadlineExceeded),
			wire.Error{Code: chat.CodeBusy, Message: "send again", Retryable: true},
			"WARN",
		},
		"a deadline as busy": {
			fmt.Errorf("reading: %w", context.DeadlineExceeded),
			wire.Error{Code: chat.CodeBusy, Message: "the time for this request is over; send it again, a message with the same clientMsgId", Retryable: true},
			"WARN",
		},
		"of the server, by its request id only": {
			errors.New("table x1 is missing"),
			wire.Error{Code: chat.CodeInternal, Message: "the server failed; its log has the reason under request id req-1", Retryable: true},
			"ERROR",
		},
		"with details that fit no frame, as the server's": {
			&chat.Error{Code: chat.CodeLimit, Details: map[string]any{"x": strings.Repeat("x", wire.MaxFrameBytes)}},
			wire.Error{Code: chat.CodeInternal, Message: "the server failed; its log has the reason under request id req-1", Retryable: true},
			"",
		},
		"with details that cannot be encoded, as the server's": {
			&chat.Error{Code: chat.CodeLimit, Details: map[string]any{"x": func() {}}},
			wire.Error{Code: chat.CodeInternal, Message: "the server failed; its log has the reason under request id req-1", Retryable: true},
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, log := serve(t, failing(tc.err), event(`{"action":"echo","id":"r-1","text":"secret words","data":{"k":"secret words"}}`))
			require.Equal(t, frame{Type: wire.TypeError, ID: "r-1", Action: "echo", Error: &tc.want}, f)
			if tc.level != "" {
				require.Contains(t, log, `"level":"`+tc.level+`"`)
			}
			if tc.want.Code == chat.CodeInternal && tc.level != "" {
				require.Contains(t, log, "table x1 is missing")
			}
			require.NotContains(t, log, "secret")
		})
	}

	t.Run("without letting a quote of the request fill the frame", func(t *testing.T) {
		t.Parallel()
		f, _ := serve(t, failing(chat.Errorf(chat.CodeBadRequest, "%q is wrong", strings.Repeat("ü\x00", 15_000))), event(`{"action":"echo","id":"r-1"}`))
		require.Equal(t, chat.CodeBadRequest, f.Error.Code)
		require.Less(t, len(f.Error.Message), 600)
	})
}

func TestServeBoundsReplies(t *testing.T) {
	t.Parallel()
	id := strings.Repeat(`\"`, wire.MaxRequestIDBytes) // two bytes each, once encoded
	filling := func(extra int) route.Action {
		return route.To(func(_ context.Context, c route.Caller, _ probe) (string, error) {
			return strings.Repeat("x", c.Room-len(`""`)+extra), nil
		})
	}
	f, _ := serve(t, filling(0), event(`{"action":"echo","id":"`+id+`"}`))
	require.Equal(t, wire.TypeReply, f.Type)

	f, log := serve(t, filling(1), event(`{"action":"echo","id":"`+id+`"}`))
	require.Equal(t, chat.CodeInternal, f.Error.Code)
	require.Contains(t, log, `"level":"ERROR"`)
	require.Contains(t, log, "32769 bytes")
}

func TestServeGivesTheCaller(t *testing.T) {
	t.Parallel()
	var got route.Caller
	_, _ = serve(t, route.To(func(_ context.Context, c route.Caller, _ probe) (struct{}, error) {
		got = c
		return struct{}{}, nil
	}), event(`{"action":"echo","id":"r-1"}`))
	got.Room = 0
	require.Equal(t, route.Caller{UserID: "alice", DeviceID: "phone", ConnectionID: "conn-1", ConnectedAt: 1795950299871, RequestID: "req-1"}, got)

	t.Run("and serves nobody without one", func(t *testing.T) {
		t.Parallel()
		for _, authorizer := range []any{nil, "alice", map[string]any{}, map[string]any{"principalId": 7}} {
			e := event(`{"action":"echo","id":"r-1"}`)
			e.RequestContext.Authorizer = authorizer
			f, log := serve(t, route.To(echo), e)
			require.Equal(t, chat.CodeInternal, f.Error.Code)
			require.Contains(t, log, "principalId")
		}
	})
}

// FuzzDecode feeds frames to a real action: whatever comes, the answer is one
// frame of the protocol.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"action":"echo","id":"1","conversationId":"group:1","clientMsgId":"c","messageType":"text","text":"hi"}`,
		`{"action":"echo","id":"1","replyTo":{"seq":1.5}}`, `{"action":"echo","id":"1","data":{"a":[1,{}]}}`,
		`{"action":"echo","id":"1","text":"\ud800"}`, `{"id":"1","id":2}`, `[]`, `null`, ``, "\x00", `{"action":"echo","id":"\u0000"}`,
	} {
		f.Add(seed)
	}
	action := route.To(func(_ context.Context, _ route.Caller, r wire.Send) (wire.Send, error) { return r, nil })
	f.Fuzz(func(t *testing.T, body string) {
		answer, _ := serve(t, action, event(body))
		require.Contains(t, []string{wire.TypeReply, wire.TypeError}, answer.Type)
		require.Equal(t, answer.Type == wire.TypeError, answer.Error != nil)
	})
}

func TestServeLogsWhatActionsNote(t *testing.T) {
	t.Parallel()
	noting := func(err error) route.Action {
		return route.To(func(ctx context.Context, _ route.Caller, r probe) (probe, error) {
			metric.Note(ctx, metric.Conversation(chat.ConversationID(r.Text)), metric.Count(metric.Sends, 1))
			return r, err
		})
	}
	const frame = `{"action":"echo","id":"r-1","text":"group:secret"}`
	for name, tc := range map[string]struct {
		err      error
		contains string
		told     bool // which conversation
	}{
		"a result":          {nil, `"code":"OK"`, true},
		"a busy one":        {chat.Errorf(chat.CodeBusy, "busy"), `"code":"BUSY"`, true},
		"a failed one":      {errors.New("no table"), `"code":"INTERNAL"`, true},
		"a refusal":         {chat.FieldErrorf(chat.CodeNotFound, "conversationId", "no group:secret"), `"code":"NOT_FOUND"`, false},
		"a refusal's field": {chat.FieldErrorf(chat.CodeBadRequest, "replyTo.seq", "group:secret"), `"field":"replyTo.seq"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, log := serve(t, noting(tc.err), event(frame))
			require.Contains(t, log, tc.contains)
			require.Contains(t, log, `"Sends":1`)
			require.Equal(t, tc.told, strings.Contains(log, "group:secret"), log)
		})
	}

	t.Run("an action that a client made up is not repeated", func(t *testing.T) {
		t.Parallel()
		_, log := serve(t, route.To(echo), event(`{"action":"secret","id":"r-1"}`))
		require.Contains(t, log, `"action":"","code":"UNKNOWN_ACTION"`)
		require.NotContains(t, log, "secret")
	})
}

// dismissals notes which connections were dismissed, and why.
type dismissals struct {
	err   error
	calls []string
}

func (d *dismissals) Dismiss(_ context.Context, connectionID, reason string) error {
	d.calls = append(d.calls, connectionID+" "+reason)
	return d.err
}

func TestServeDismissesWhoseTokenHasExpired(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		exp     any
		body    string
		err     error
		expired bool
	}{
		"a second ago":          {exp: time.Now().Add(-time.Second).Unix(), body: `{"action":"echo","id":"r-1"}`, expired: true},
		"whatever it says":      {exp: 1, body: `no JSON`, expired: true},
		"when it stays open":    {exp: 1, body: `{"action":"echo","id":"r-1"}`, err: errors.New("429"), expired: true},
		"but not in an hour":    {exp: time.Now().Add(time.Hour).Unix(), body: `{"action":"echo","id":"r-1"}`},
		"nor in a million ages": {exp: "9223372036854775807", body: `{"action":"echo","id":"r-1"}`},
		"nor if nobody knows":   {exp: nil, body: `{"action":"echo","id":"r-1"}`},
		"nor of what is no exp": {exp: "soon", body: `{"action":"echo","id":"r-1"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			ran := false
			sockets := &dismissals{err: tc.err}
			handler := route.Serve(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), sockets, nil, map[string]route.Action{
				"echo": route.To(func(context.Context, route.Caller, struct{}) (struct{}, error) {
					ran = true
					return struct{}{}, nil
				}),
			})
			e := event(tc.body)
			e.RequestContext.Authorizer = map[string]any{"principalId": "alice", "device": "phone"}
			if tc.exp != nil {
				e.RequestContext.Authorizer.(map[string]any)["exp"] = fmt.Sprint(tc.exp)
			}
			response, err := handler(t.Context(), e)
			require.NoError(t, err)
			require.Equal(t, 200, response.StatusCode)
			require.Equal(t, !tc.expired, ran)
			require.Equal(t, 1, strings.Count(log.String(), "\n"))
			if !tc.expired {
				require.Empty(t, sockets.calls)
				return
			}
			require.Equal(t, []string{"conn-1 expired"}, sockets.calls)
			require.Equal(t, `{"type":"goodbye","reason":"expired"}`, response.Body)
			require.Equal(t, tc.err != nil, strings.Contains(log.String(), "429"))
		})
	}
}

// What went well and counts for nothing has no line: of most requests there would be
// more to pay for it than for the request's own reads.
func TestALineThatSaysNothingIsOfDebugLevel(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		action route.Action
		want   string
	}{
		"nothing to tell": {func(context.Context, route.Caller, map[string]json.RawMessage) (any, error) { return nil, nil }, "DEBUG"},
		"a metric": {func(ctx context.Context, _ route.Caller, _ map[string]json.RawMessage) (any, error) {
			metric.Note(ctx, metric.Count(metric.SyncCalls, 1))
			return nil, nil
		}, "INFO"},
		"what it is about alone": {func(ctx context.Context, _ route.Caller, _ map[string]json.RawMessage) (any, error) {
			metric.Note(ctx, metric.Conversation("group:1"), metric.Seq(3))
			return nil, nil
		}, "DEBUG"},
		"a trouble that stopped nobody": {func(ctx context.Context, _ route.Caller, _ map[string]json.RawMessage) (any, error) {
			metric.Note(ctx, slog.String("uncharged", "no table"))
			return nil, nil
		}, "INFO"},
		"a refusal": {func(context.Context, route.Caller, map[string]json.RawMessage) (any, error) {
			return nil, chat.Errorf(chat.CodeNotFound, "no such thing")
		}, "INFO"},
		"a failure": {func(context.Context, route.Caller, map[string]json.RawMessage) (any, error) {
			return nil, errors.New("no table")
		}, "ERROR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, log := serve(t, tc.action, event(`{"action":"echo","id":"1"}`))
			require.Contains(t, log, `"level":"`+tc.want+`"`)
		})
	}
}
