package gateway_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	management "github.com/aws/aws-sdk-go-v2/service/apigatewaymanagementapi"
	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/inorder-im/inorder/infra/local/gateway"
	"github.com/inorder-im/inorder/infra/local/logtest"
	"github.com/inorder-im/inorder/infra/local/selection"
	"github.com/inorder-im/inorder/infra/local/template"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// function is a fake Lambda function.
type function func(ctx context.Context, payload []byte) (out, functionError string, err error)

func returns(out string) function {
	return func(context.Context, []byte) (string, string, error) { return out, "", nil }
}

func raises(errorType, message string) function {
	out, _ := json.Marshal(map[string]string{"errorType": errorType, "errorMessage": message})
	return func(context.Context, []byte) (string, string, error) { return string(out), "Unhandled", nil }
}

func ok() function { return returns(`{"statusCode": 200}`) }

// echo replies with the message's own body.
func echo() function {
	return func(_ context.Context, payload []byte) (string, string, error) {
		var event struct {
			Body string `json:"body"`
		}
		if err := json.Unmarshal(payload, &event); err != nil {
			return "", "", err
		}
		out, err := json.Marshal(map[string]any{"statusCode": 200, "body": event.Body})
		return string(out), "", err
	}
}

// invocation is one event a function got.
type invocation struct {
	function string
	raw      []byte
}

func (i invocation) object(t *testing.T) map[string]any {
	t.Helper()
	var object map[string]any
	require.NoError(t, json.Unmarshal(i.raw, &object))
	return object
}

func (i invocation) context(t *testing.T) map[string]any {
	t.Helper()
	context, isObject := i.object(t)["requestContext"].(map[string]any)
	require.True(t, isObject)
	return context
}

// functions is an Invoker that remembers what it ran.
type functions struct {
	byName map[string]function

	mu   sync.Mutex
	seen []invocation
}

func (f *functions) Invoke(ctx context.Context, name string, payload []byte) ([]byte, string, error) {
	f.mu.Lock()
	f.seen = append(f.seen, invocation{name, bytes.Clone(payload)})
	f.mu.Unlock()
	fn, known := f.byName[name]
	if !known {
		return nil, "", fmt.Errorf("no function %q", name)
	}
	out, functionError, err := fn(ctx, payload)
	return []byte(out), functionError, err
}

func (f *functions) of(name string) []invocation {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []invocation
	for _, i := range f.seen {
		if i.function == name {
			all = append(all, i)
		}
	}
	return all
}

// await waits for the n-th invocation of a function and returns it; the first is 1.
func (f *functions) await(t *testing.T, name string, n int) invocation {
	t.Helper()
	require.Eventually(t, func() bool { return len(f.of(name)) >= n }, patience, time.Millisecond, "function %s was not invoked %d times", name, n)
	return f.of(name)[n-1]
}

// api is a running gateway.
type api struct {
	*functions
	gateway *gateway.Gateway
	server  *httptest.Server
	log     *logtest.Log
}

// start runs a gateway with cfg, whose missing required fields it fills in, and these
// functions.
func start(t *testing.T, cfg gateway.Config, byName map[string]function) *api {
	t.Helper()
	a := &api{functions: &functions{byName: byName}, log: &logtest.Log{}}
	cfg.API.ID, cfg.API.Stage, cfg.Invoker = "api123", "dev", a.functions
	cfg.Log = slog.New(slog.NewTextHandler(a.log, nil))
	if cfg.API.RouteSelection == nil {
		cfg.API.RouteSelection = parsed(t, "$request.body.action")
	}
	for i := range cfg.API.Routes {
		cfg.API.Routes[i].Timeout = cmp.Or(cfg.API.Routes[i].Timeout, 29*time.Second)
	}
	a.gateway = gateway.New(cfg)
	a.server = httptest.NewServer(a.gateway)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, a.gateway.Close(ctx))
		a.server.Close()
	})
	return a
}

func (a *api) url(query string) string {
	return "ws" + strings.TrimPrefix(a.server.URL, "http") + "/dev" + query
}

// dial opens a connection that must be accepted.
func (a *api) dial(t *testing.T, opts *websocket.DialOptions) *client {
	t.Helper()
	conn, response, err := a.tryDial(t, "", opts)
	require.NoError(t, err)
	c := &client{Conn: conn, t: t, response: response}
	conn.SetReadLimit(-1)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return c
}

func (a *api) tryDial(t *testing.T, query string, opts *websocket.DialOptions) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return websocket.Dial(ctx, a.url(query), opts)
}

// refusal opens a connection that must be refused and returns the status and the
// answer's body.
func (a *api) refusal(t *testing.T, query string, opts *websocket.DialOptions) (int, map[string]string) {
	t.Helper()
	conn, response, err := a.tryDial(t, query, opts)
	if err == nil {
		_ = conn.CloseNow()
	}
	require.Error(t, err, "the handshake was accepted")
	require.NotNil(t, response, "no HTTP answer: %v", err)
	var body map[string]string
	raw, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &body), "%s", raw)
	return response.StatusCode, body
}

// connect opens a connection and returns its id, which the API's $connect function
// "connect" saw.
func (a *api) connect(t *testing.T) (*client, string) {
	t.Helper()
	n := len(a.of("connect"))
	c := a.dial(t, nil)
	id, isString := a.await(t, "connect", n+1).context(t)["connectionId"].(string)
	require.True(t, isString)
	a.awaitOpen(t, id)
	return c, id
}

// awaitOpen waits until a connection can be posted to: that comes after the client's
// handshake.
func (a *api) awaitOpen(t *testing.T, id string) {
	t.Helper()
	require.Eventually(t, func() bool { return a.get(id) == nil }, patience, time.Millisecond)
}

// sdk is the real client of the @connections API.
func (a *api) sdk() *management.Client {
	return management.New(management.Options{
		BaseEndpoint: aws.String(a.server.URL + "/dev"),
		Region:       "us-east-1",
		Credentials:  credentials.NewStaticCredentialsProvider("local", "local", ""),
		Retryer:      aws.NopRetryer{},
		HTTPClient:   a.server.Client(),
	})
}

func (a *api) post(id, message string) error {
	_, err := a.sdk().PostToConnection(context.Background(), &management.PostToConnectionInput{ConnectionId: &id, Data: []byte(message)})
	return err
}

func (a *api) get(id string) error {
	_, err := a.sdk().GetConnection(context.Background(), &management.GetConnectionInput{ConnectionId: &id})
	return err
}

func (a *api) delete(id string) error {
	_, err := a.sdk().DeleteConnection(context.Background(), &management.DeleteConnectionInput{ConnectionId: &id})
	return err
}

// client is the client end of a connection.
type client struct {
	*websocket.Conn
	t        *testing.T
	response *http.Response
}

func (c *client) send(message string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	require.NoError(c.t, c.Write(ctx, websocket.MessageText, []byte(message)))
}

func (c *client) receive() string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	kind, message, err := c.Read(ctx)
	require.NoError(c.t, err)
	require.Equal(c.t, websocket.MessageText, kind)
	return string(message)
}

// receiveError receives an error frame of the gateway and returns its message.
func (c *client) receiveError() string {
	c.t.Helper()
	var frame struct{ Message, ConnectionID, RequestID string }
	require.NoError(c.t, json.Unmarshal([]byte(c.receive()), &frame))
	require.Len(c.t, frame.ConnectionID, 16)
	require.Len(c.t, frame.RequestID, 16)
	return frame.Message
}

// closing waits for the server's close frame.
func (c *client) closing() websocket.CloseError {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for {
		if _, _, err := c.Read(ctx); err != nil {
			var closed websocket.CloseError
			require.ErrorAs(c.t, err, &closed)
			return closed
		}
	}
}

// The opcodes of RFC 6455, section 5.2.
const (
	opText   = 1
	opBinary = 2
	opClose  = 8
	fin      = 0x80
)

// rawClient speaks WebSocket by hand, for what a correct client cannot do.
type rawClient struct {
	net.Conn
	t  *testing.T
	in *bufio.Reader
}

func (a *api) dialRaw(t *testing.T, headers ...string) *rawClient {
	t.Helper()
	conn, err := net.Dial("tcp", a.server.Listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	lines := append([]string{
		"GET /dev HTTP/1.1", "Host: gateway.test", "Connection: Upgrade", "Upgrade: websocket",
		"Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==",
	}, headers...)
	_, err = io.WriteString(conn, strings.Join(lines, "\r\n")+"\r\n\r\n")
	require.NoError(t, err)
	in := bufio.NewReader(conn)
	response, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, response.StatusCode)
	return &rawClient{conn, t, in}
}

// frame is a client's frame with the given first byte. Its mask is zero, so the payload
// is in plain.
func frame(first byte, payload []byte) []byte {
	const masked = 0x80
	var f []byte
	switch n := len(payload); {
	case n < 126:
		f = []byte{first, masked | byte(n)}
	case n <= 0xffff:
		f = binary.BigEndian.AppendUint16([]byte{first, masked | 126}, uint16(n))
	default:
		f = binary.BigEndian.AppendUint64([]byte{first, masked | 127}, uint64(n))
	}
	return append(append(f, 0, 0, 0, 0), payload...)
}

func (c *rawClient) write(frames ...[]byte) {
	c.t.Helper()
	_, err := c.Write(bytes.Join(frames, nil))
	require.NoError(c.t, err)
}

// readFrame reads one frame of the server.
func (c *rawClient) readFrame() (first byte, payload []byte) {
	c.t.Helper()
	header := make([]byte, 2)
	_, err := io.ReadFull(c.in, header)
	require.NoError(c.t, err)
	length := uint64(header[1])
	switch length {
	case 126:
		var n uint16
		require.NoError(c.t, binary.Read(c.in, binary.BigEndian, &n))
		length = uint64(n)
	case 127:
		require.NoError(c.t, binary.Read(c.in, binary.BigEndian, &length))
	}
	payload = make([]byte, length)
	_, err = io.ReadFull(c.in, payload)
	require.NoError(c.t, err)
	return header[0], payload
}

// closing reads up to the server's close frame and returns its code.
func (c *rawClient) closing() int {
	c.t.Helper()
	for {
		first, payload := c.readFrame()
		if first == fin|opClose {
			require.GreaterOrEqual(c.t, len(payload), 2)
			return int(binary.BigEndian.Uint16(payload))
		}
	}
}

func parsed(t *testing.T, expression string) selection.Path {
	t.Helper()
	parsed, err := selection.Parse(expression)
	require.NoError(t, err)
	return parsed
}

// app is an API with the routes that most tests need, each function called like its
// route without the $, and more, which take the place of those with the same key.
func app(more ...template.Route) *template.WebSocketAPI {
	return &template.WebSocketAPI{Routes: append([]template.Route{
		{Key: "$connect", FunctionID: "connect"},
		{Key: "$disconnect", FunctionID: "disconnect"},
		{Key: "$default", FunctionID: "default", Reply: true},
	}, more...)}
}

func lifecycleFunctions(more map[string]function) map[string]function {
	byName := map[string]function{"connect": ok(), "disconnect": ok(), "default": echo()}
	for name, fn := range more {
		byName[name] = fn
	}
	return byName
}

// startLifecycle runs an API whose $default route echoes.
func startLifecycle(t *testing.T, limits gateway.Limits) *api {
	t.Helper()
	return start(t, gateway.Config{API: app(), Limits: limits}, lifecycleFunctions(nil))
}

// disconnected waits for the $disconnect event and returns its code and reason, having
// made sure that it came once.
func (a *api) disconnected(t *testing.T) (code int, reason string) {
	t.Helper()
	context := a.await(t, "disconnect", 1).context(t)
	ctx, cancel := contextWithPatience()
	defer cancel()
	require.NoError(t, a.gateway.Close(ctx)) // nothing can come after this
	require.Len(t, a.of("disconnect"), 1)
	number, isNumber := context["disconnectStatusCode"].(float64)
	require.True(t, isNumber)
	reason, isString := context["disconnectReason"].(string)
	require.True(t, isString)
	return int(number), reason
}

func contextWithPatience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}
