package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/apigatewaymanagementapi/types"
	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/gateway"
	"github.com/inorder-im/inorder/infra/local/template"
)

func TestHandshakeIsPendingUntilConnectReturns(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	a := start(t, gateway.Config{API: app()}, lifecycleFunctions(map[string]function{
		"connect": func(context.Context, []byte) (string, string, error) {
			<-release
			return `{"statusCode":200}`, "", nil
		},
	}))
	dialed := make(chan error, 1)
	go func() {
		ctx, cancel := contextWithPatience()
		defer cancel()
		conn, _, err := websocket.Dial(ctx, a.url(""), nil)
		if err == nil {
			defer func() { _ = conn.CloseNow() }()
			_, _, err = conn.Read(ctx)
			if websocket.CloseStatus(err) == websocket.StatusNormalClosure {
				err = nil
			}
		}
		dialed <- err
	}()
	id, _ := a.await(t, "connect", 1).context(t)["connectionId"].(string)

	var gone *types.GoneException
	require.ErrorAs(t, a.post(id, "too early"), &gone, "posting while $connect runs")
	require.ErrorAs(t, a.get(id), &gone)
	require.ErrorAs(t, a.delete(id), &gone)
	require.Empty(t, dialed, "the handshake was answered before $connect returned")

	close(release)
	a.awaitOpen(t, id)
	require.NoError(t, a.delete(id))
	require.NoError(t, <-dialed)
}

func TestConnectResultIsTheStatusOfTheHandshake(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		function function
		want     int // 101 if it opens
	}{
		"200":                {returns(`{"statusCode":200}`), 101},
		"201":                {returns(`{"statusCode":201}`), 101},
		"no status":          {returns(`{}`), 101},
		"301":                {returns(`{"statusCode":301}`), 301},
		"400":                {returns(`{"statusCode":400,"body":"bad device"}`), 400},
		"401":                {returns(`{"statusCode":401}`), 401},
		"403":                {returns(`{"statusCode":403}`), 403},
		"410":                {returns(`{"statusCode":410}`), 410},
		"501":                {returns(`{"statusCode":501}`), 501},
		"crash":              {raises("Runtime.ExitError", "exit status 2"), 502},
		"malformed result":   {returns(`"yes"`), 502},
		"cannot be run":      {func(context.Context, []byte) (string, string, error) { return "", "", errors.New("throttled") }, 500},
		"longer than waited": {func(ctx context.Context, _ []byte) (string, string, error) { <-ctx.Done(); return "", "", ctx.Err() }, 504},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := start(t, gateway.Config{API: app(template.Route{Key: "$connect", FunctionID: "connect", Timeout: timeoutFor(tt.want)})}, lifecycleFunctions(map[string]function{"connect": tt.function}))
			if tt.want == 504 {
				// That function runs on; let it see the gateway give up, before the
				// clean-up waits for it.
				defer func() {
					ctx, cancel := context.WithCancel(context.Background())
					cancel()
					_ = a.gateway.Close(ctx)
				}()
			}
			if tt.want == 101 {
				a.dial(t, nil).send("hello")
				a.await(t, "default", 1)
				return
			}
			status, body := a.refusal(t, "", nil)
			require.Equal(t, tt.want, status)
			require.Len(t, body["connectionId"], 16)
			require.Contains(t, a.log.String(), fmt.Sprintf("status=%d", tt.want))
			require.Contains(t, a.log.String(), "connect")
			require.Empty(t, a.of("disconnect"), "a connection that never was has no $disconnect")
		})
	}
}

func timeoutFor(status int) time.Duration {
	if status == http.StatusGatewayTimeout {
		return 50 * time.Millisecond
	}
	return 0
}

func TestConnectAndDisconnectRoutesAreOptional(t *testing.T) {
	t.Parallel()
	a := start(t, gateway.Config{API: &template.WebSocketAPI{Routes: []template.Route{{Key: "$default", FunctionID: "default", Reply: true}}}}, lifecycleFunctions(nil))
	c := a.dial(t, nil)
	c.send("hello")
	require.Equal(t, "hello", c.receive())
	require.NoError(t, c.Close(websocket.StatusNormalClosure, ""))
}

func TestConnectSelectsTheSubprotocol(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		offered []string
		result  string
		want    string
	}{
		"as offered":           {[]string{"inorder.v1", "bearer.x"}, `{"statusCode":200,"headers":{"Sec-WebSocket-Protocol":"inorder.v1"}}`, "inorder.v1"},
		"not the first":        {[]string{"a", "b"}, `{"statusCode":200,"headers":{"Sec-WebSocket-Protocol":"b"}}`, "b"},
		"lower-case header":    {[]string{"a", "b"}, `{"statusCode":200,"headers":{"sec-websocket-protocol":"b"}}`, "b"},
		"multi-value header":   {[]string{"a", "b"}, `{"statusCode":200,"multiValueHeaders":{"Sec-WebSocket-Protocol":["b"]}}`, "b"},
		"none selected":        {[]string{"a", "b"}, `{"statusCode":200}`, ""},
		"not offered":          {[]string{"a"}, `{"statusCode":200,"headers":{"Sec-WebSocket-Protocol":"b"}}`, ""},
		"nothing was offered":  {nil, `{"statusCode":200,"headers":{"Sec-WebSocket-Protocol":"b"}}`, ""},
		"other headers remain": {nil, `{"statusCode":200,"headers":{"X-Other":"b"}}`, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := start(t, gateway.Config{API: app()}, lifecycleFunctions(map[string]function{"connect": returns(tt.result)}))
			c := a.dial(t, &websocket.DialOptions{Subprotocols: tt.offered})
			require.Equal(t, tt.want, c.Subprotocol())
			require.Empty(t, c.response.Header.Get("X-Other"))
			impossible := tt.want == "" && strings.Contains(tt.result, "Sec-")
			require.Equal(t, impossible, strings.Contains(a.log.String(), "did not offer"))
		})
	}
}

// AWS's own pages connect with a slash behind the stage.
func TestASlashBehindTheStageIsAccepted(t *testing.T) {
	t.Parallel()
	a := startLifecycle(t, gateway.Limits{})
	conn, _, err := a.tryDial(t, "/?token=x", nil)
	require.NoError(t, err)
	defer func() { _ = conn.CloseNow() }()
	a.await(t, "connect", 1)
	for _, wrong := range []string{"//", "/x", "x/"} {
		status, _ := a.refusal(t, wrong, nil)
		require.Equal(t, http.StatusForbidden, status, wrong)
	}
}

func TestAnyOriginIsAccepted(t *testing.T) {
	t.Parallel()
	a := startLifecycle(t, gateway.Limits{})
	c := a.dial(t, &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"https://elsewhere.example"}}})
	c.send("hello")
	require.Equal(t, "hello", c.receive())
}

func TestNewConnectionsPerSecondAreLimited(t *testing.T) {
	t.Parallel()
	const limit = 3
	a := startLifecycle(t, gateway.Limits{PerSecond: limit})
	begin := time.Now()
	refused := 0
	// More than the limit in any one second: at most two windows can begin while these run.
	for range 3 * limit {
		conn, response, err := a.tryDial(t, "", nil)
		if err == nil {
			defer func() { _ = conn.CloseNow() }()
			continue
		}
		require.NotNil(t, response)
		require.Equal(t, http.StatusTooManyRequests, response.StatusCode)
		refused++
	}
	if time.Since(begin) < time.Second {
		require.GreaterOrEqual(t, refused, limit)
		require.Contains(t, a.log.String(), "too many new connections")
	}
	// The next second has its own share.
	require.Eventually(t, func() bool {
		conn, _, err := a.tryDial(t, "", nil)
		if err == nil {
			_ = conn.CloseNow()
		}
		return err == nil
	}, patience, 20*time.Millisecond)
}

func TestURLIsAtMost4096Characters(t *testing.T) {
	t.Parallel()
	a := startLifecycle(t, gateway.Limits{})
	room := 4096 - len(a.url("?x="))
	conn, _, err := a.tryDial(t, "?x="+strings.Repeat("a", room-1), nil) // "ws:" is one shorter than "wss:"
	require.NoError(t, err)
	require.NoError(t, conn.CloseNow())
	status, _ := a.refusal(t, "?x="+strings.Repeat("a", room), nil)
	require.Equal(t, http.StatusRequestURITooLong, status)
}

func TestRequestsThatAreNoHandshake(t *testing.T) {
	t.Parallel()
	upgrade := http.Header{
		"Connection": {"keep-alive, Upgrade"}, "Upgrade": {"websocket"},
		"Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"MDEyMzQ1Njc4OWFiY2RlZg=="},
	}
	without := func(name string) http.Header {
		h := upgrade.Clone()
		h.Del(name)
		return h
	}
	tests := map[string]struct {
		method, path string
		header       http.Header
		want         int
	}{
		"no upgrade":         {"GET", "/dev", nil, 403},
		"no upgrade header":  {"GET", "/dev", without("Upgrade"), 403},
		"post":               {"POST", "/dev", upgrade, 403},
		"root":               {"GET", "/", upgrade, 403},
		"other stage":        {"GET", "/prod", upgrade, 403},
		"below the stage":    {"GET", "/dev/x", upgrade, 403},
		"no connection id":   {"POST", "/dev/@connections", nil, 403},
		"other stage's @":    {"POST", "/prod/@connections/TWegAcC4EowCHnA=", nil, 403},
		"longer than an id":  {"POST", "/dev/@connections/a/b", nil, 403},
		"no key":             {"GET", "/dev", without("Sec-Websocket-Key"), 400},
		"no version":         {"GET", "/dev", without("Sec-Websocket-Version"), 400},
		"unknown capability": {"DELETE", "/dev", nil, 403},
	}
	a := startLifecycle(t, gateway.Limits{})
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), tt.method, a.server.URL+tt.path, nil)
			require.NoError(t, err)
			request.Header = tt.header.Clone()
			response, err := a.server.Client().Do(request)
			require.NoError(t, err)
			body, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			require.Equal(t, tt.want, response.StatusCode)
			if tt.want == 403 {
				require.Contains(t, string(body), `"message":"Forbidden"`)
			}
		})
	}
	require.Empty(t, a.of("connect"), "a function was invoked")
}
