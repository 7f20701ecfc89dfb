package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/gateway"
	"github.com/inorder-im/inorder/infra/local/template"
)

func TestRouteIsSelectedByExpression(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		expression, message, want string
	}{
		"key at the top":                 {"$request.body.action", `{"action":"send"}`, "send"},
		"nested path":                    {"$request.body.head.action", `{"head":{"action":"send"}}`, "send"},
		"number":                         {"$request.body.action", `{"action":7}`, "7"},
		"boolean":                        {"$request.body.action", `{"action":true}`, "true"},
		"unknown key goes to default":    {"$request.body.action", `{"action":"nothing"}`, "$default"},
		"missing path goes to default":   {"$request.body.action", `{"other":"send"}`, "$default"},
		"null goes to default":           {"$request.body.action", `{"action":null}`, "$default"},
		"path through a string":          {"$request.body.action.name", `{"action":"send"}`, "$default"},
		"no JSON goes to default":        {"$request.body.action", `send`, "$default"},
		"empty message goes to default":  {"$request.body.action", ``, "$default"},
		"JSON array goes to default":     {"$request.body.action", `["send"]`, "$default"},
		"client cannot name $connect":    {"$request.body.action", `{"action":"$connect"}`, "$default"},
		"client cannot name $disconnect": {"$request.body.action", `{"action":"$disconnect"}`, "$default"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := app()
			api.RouteSelection = parsed(t, tt.expression)
			for _, key := range []string{"send", "7", "true"} {
				api.Routes = append(api.Routes, template.Route{Key: key, FunctionID: "route"})
			}
			a := start(t, gateway.Config{API: api}, lifecycleFunctions(map[string]function{"route": ok()}))
			a.dial(t, nil).send(tt.message)
			name := "route"
			if tt.want == "$default" {
				name = "default"
			}
			require.Equal(t, tt.want, a.await(t, name, 1).context(t)["routeKey"])
			require.Len(t, a.of("connect"), 1)
		})
	}
}

func TestMessageWithoutRouteIsForbidden(t *testing.T) {
	t.Parallel()
	a := start(t, gateway.Config{API: &template.WebSocketAPI{Routes: []template.Route{{Key: "$connect", FunctionID: "connect"}}}}, lifecycleFunctions(nil))
	c, id := a.connect(t)
	c.send(`{"action":"send"}`)
	frame := c.receive()
	var fields map[string]string
	require.NoError(t, json.Unmarshal([]byte(frame), &fields))
	require.Equal(t, fmt.Sprintf(`{"message": "Forbidden", "connectionId":"%s", "requestId":"%s"}`, id, fields["requestId"]), frame)
}

func TestFramesOfOneClientRunConcurrently(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	a := start(t, gateway.Config{API: app()}, lifecycleFunctions(map[string]function{
		"default": func(context.Context, []byte) (string, string, error) {
			<-release
			return `{"statusCode":200,"body":"done"}`, "", nil
		},
	}))
	c := a.dial(t, nil)
	c.send("1")
	c.send("2")
	a.await(t, "default", 2) // the second began while the first was running
	close(release)
	require.Equal(t, "done", c.receive())
	require.Equal(t, "done", c.receive())
}

func TestSerialRunsFramesOfOneClientOneByOne(t *testing.T) {
	t.Parallel()
	const messages = 50
	var running atomic.Int32
	var order []string // no lock: the race detector checks the claim too
	a := start(t, gateway.Config{API: app(), Serial: true}, lifecycleFunctions(map[string]function{
		"default": func(_ context.Context, payload []byte) (string, string, error) {
			if running.Add(1) > 1 {
				return "", "", fmt.Errorf("two at a time")
			}
			defer running.Add(-1)
			var event struct{ Body string }
			err := json.Unmarshal(payload, &event)
			order = append(order, event.Body)
			return `{"statusCode":200,"body":"done"}`, "", err
		},
		"disconnect": func(context.Context, []byte) (string, string, error) {
			order = append(order, "end")
			return `{}`, "", nil
		},
	}))
	c := a.dial(t, nil)
	var want []string
	for i := range messages {
		c.send(fmt.Sprint(i))
		want = append(want, fmt.Sprint(i))
	}
	for range messages {
		require.Equal(t, "done", c.receive())
	}
	require.NoError(t, c.Close(1000, ""))
	a.disconnected(t)
	require.Equal(t, append(want, "end"), order)
}

func TestSerialRunsDisconnectAfterTheLastFrame(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	a := start(t, gateway.Config{API: app(), Serial: true}, lifecycleFunctions(map[string]function{
		"default": func(context.Context, []byte) (string, string, error) { <-release; return `{}`, "", nil },
	}))
	c, id := a.connect(t)
	c.send("x")
	a.await(t, "default", 1)
	require.NoError(t, c.Close(1000, ""))
	require.Eventually(t, func() bool { return a.get(id) != nil }, patience, time.Millisecond)
	require.Never(t, func() bool { return len(a.of("disconnect")) > 0 }, 50*time.Millisecond, 5*time.Millisecond)
	close(release)
	a.await(t, "disconnect", 1)
}

func TestFloodingClientIsNotReadBeyondItsShare(t *testing.T) {
	t.Parallel()
	const share, messages = 3, 20
	release := make(chan struct{})
	var running, most atomic.Int32
	a := start(t, gateway.Config{API: app(), Limits: gateway.Limits{InFlight: share}}, lifecycleFunctions(map[string]function{
		"default": func(context.Context, []byte) (string, string, error) {
			n := running.Add(1)
			defer running.Add(-1)
			for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
			}
			<-release
			return `{"statusCode":200,"body":"done"}`, "", nil
		},
	}))
	flood := a.dial(t, nil)
	for range messages {
		flood.send("x")
	}
	a.await(t, "default", share)
	// Another client is served meanwhile: its function begins although the first
	// client's share is used up.
	a.dial(t, nil).send("y")
	a.await(t, "default", share+1)
	close(release)
	for range messages {
		require.Equal(t, "done", flood.receive())
	}
	require.LessOrEqual(t, most.Load(), int32(share+1))
}

func TestRepliesAndErrorFrames(t *testing.T) {
	t.Parallel()
	const ise = "Internal server error"
	tests := map[string]struct {
		function  function
		noReply   bool
		timeout   time.Duration
		want      string // the reply
		wantError string // or the message of the error frame; if both are "", nothing is sent
	}{
		"body is sent as it is":              {function: returns(`{"statusCode":200,"body":"{\"a\": 1} <&>"}`), want: `{"a": 1} <&>`},
		"base64 is decoded":                  {function: returns(`{"statusCode":200,"body":"aGVsbG8=","isBase64Encoded":true}`), want: "hello"},
		"body with an error status is sent":  {function: returns(`{"statusCode":500,"body":"sorry"}`), want: "sorry"},
		"status as a string":                 {function: returns(`{"statusCode":"200","body":"x"}`), want: "x"},
		"status is absent":                   {function: returns(`{"body":"x"}`), want: "x"},
		"no body sends nothing":              {function: returns(`{"statusCode":200}`)},
		"null body sends nothing":            {function: returns(`{"statusCode":200,"headers":null,"multiValueHeaders":null,"body":null}`)},
		"empty body sends nothing":           {function: returns(`{"statusCode":200,"body":""}`)},
		"no route response sends nothing":    {function: returns(`{"statusCode":200,"body":"x"}`), noReply: true},
		"function error":                     {function: raises("errorString", "boom"), wantError: ise},
		"function error on a one-way route":  {function: raises("errorString", "boom"), noReply: true, wantError: ise},
		"function cannot be run":             {function: func(context.Context, []byte) (string, string, error) { return "", "", fmt.Errorf("throttled") }, wantError: ise},
		"result is null":                     {function: returns(`null`), wantError: ise},
		"result is a string":                 {function: returns(`"hello"`), wantError: ise},
		"result has an unknown key":          {function: returns(`{"statusCode":200,"Data":"hello"}`), wantError: ise},
		"result has an unknown key, one-way": {function: returns(`{"statusCode":200,"Data":"hello"}`), noReply: true, wantError: ise},
		"body is an object":                  {function: returns(`{"statusCode":200,"body":{}}`), wantError: ise},
		"body is no base64":                  {function: returns(`{"statusCode":200,"body":"!","isBase64Encoded":true}`), wantError: ise},
		"status is no status":                {function: returns(`{"statusCode":20}`), wantError: ise},
		"body is over the message limit":     {function: returns(`{"body":"` + strings.Repeat("x", 128<<10+1) + `"}`), wantError: ise},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := app(template.Route{Key: "go", FunctionID: "go", Reply: !tt.noReply, Timeout: tt.timeout})
			// Serial, so that the echo after it shows that nothing was sent.
			a := start(t, gateway.Config{API: api, Serial: true}, lifecycleFunctions(map[string]function{"go": tt.function}))
			c := a.dial(t, nil)
			c.send(`{"action":"go"}`)
			if tt.wantError != "" {
				require.Equal(t, tt.wantError, c.receiveError())
			} else if tt.want != "" {
				require.Equal(t, tt.want, c.receive())
			}
			c.send("still open")
			require.Equal(t, "still open", c.receive())
		})
	}
}

func TestIntegrationTimeoutAnswersWhileTheFunctionRunsOn(t *testing.T) {
	t.Parallel()
	release, finished := make(chan struct{}), make(chan error, 1)
	a := start(t, gateway.Config{
		API: app(template.Route{Key: "slow", FunctionID: "slow", Reply: true, Timeout: 50 * time.Millisecond}),
	}, lifecycleFunctions(map[string]function{
		"slow": func(ctx context.Context, _ []byte) (string, string, error) {
			<-release
			finished <- ctx.Err()
			return `{"statusCode":200,"body":"too late"}`, "", nil
		},
	}))
	c := a.dial(t, nil)
	c.send(`{"action":"slow"}`)
	require.Equal(t, "Endpoint request timed out", c.receiveError())
	close(release)
	require.NoError(t, <-finished, "the function was cancelled")
	c.send("next")
	require.Equal(t, "next", c.receive(), "the late result was sent")
}

func TestFunctionErrorIsLoggedWithoutWhatTheClientSent(t *testing.T) {
	t.Parallel()
	a := start(t, gateway.Config{API: app()}, lifecycleFunctions(map[string]function{
		"default": raises("ParseError", "cannot parse my-secret"),
	}))
	c := a.dial(t, nil)
	c.send("my-secret")
	require.Equal(t, "Internal server error", c.receiveError())
	require.Contains(t, a.log.String(), "function=default")
	require.Contains(t, a.log.String(), "ParseError")
	require.NotContains(t, a.log.String(), "my-secret")
}
