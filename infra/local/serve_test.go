//go:build !windows

package main_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
)

// client is one end of a socket.
type client struct {
	t    *testing.T
	conn *websocket.Conn
}

// dial connects; header is a name and a value, or nothing.
func (c *local) dial(query string, header ...string) *client {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	headers := http.Header{}
	if len(header) == 2 {
		headers.Set(header[0], header[1])
	}
	conn, _, err := websocket.Dial(ctx, c.socket+query, &websocket.DialOptions{HTTPHeader: headers})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = conn.CloseNow() })
	return &client{t: c.t, conn: conn}
}

// listen answers control frames, such as a close, and takes nothing else.
func (c *client) listen() { c.conn.CloseRead(context.Background()) }

func (c *client) send(frame string) {
	c.t.Helper()
	require.NoError(c.t, c.conn.Write(c.t.Context(), websocket.MessageText, []byte(frame)))
}

func (c *client) receive() string {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	_, frame, err := c.conn.Read(ctx)
	require.NoError(c.t, err)
	return string(frame)
}

// A function that fails is the function's affair: the client gets the platform's
// frame, the log says which function and why, and everything else goes on.
func TestFunctionsThatFail(t *testing.T) {
	t.Parallel()
	c := startApp(t)
	tests := []struct{ name, action, log string }{
		{"crash at start", "crash", `^crash      \| panic: the configuration is missing$`},
		{"crash at start, the gateway's view", "crash", `^gateway    \| error: function failed function=CrashFunction routeKey=crash .*Runtime\.ExitError`},
		{"time-out", "late", `^gateway    \| error: function failed function=LateFunction routeKey=late .*Timedout`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			user := c.dial("")
			user.send(`{"action":"` + test.action + `"}`)
			require.Regexp(t, `^\{"message": ?"Internal server error", ?"connectionId": ?".+", ?"requestId": ?".+"\}$`, user.receive())
			c.awaitLog(test.log)
			user.send(`{"action":"echo","text":"still there"}`)
			require.Equal(t, "still there", user.receive())
			c.awaitLog(`^echo       \| heard still there$`)
		})
	}
}

// Any function can be invoked, as with the AWS CLI.
func TestInvoke(t *testing.T) {
	t.Parallel()
	c := startApp(t)
	addr := strings.Trim(strings.TrimPrefix(c.page, "http:"), "/")
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	event := file("event.json", `{"requestContext":{"eventType":"MESSAGE"},"body":"{\"text\":\"by hand\"}"}`)
	stranger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			t.Errorf("a stranger is asked to %s %s", r.Method, r.URL)
		}
	}))
	t.Cleanup(stranger.Close)
	other := strings.TrimPrefix(stranger.URL, "http://")
	tests := []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string
	}{
		{"in short", []string{"-addr", addr, "echo", event}, 0, `"body":"by hand"`, ""},
		{"logical id", []string{"-addr", addr, "EchoFunction", event}, 0, `"body":"by hand"`, ""},
		{"name in the cloud", []string{"-addr", addr, "inorder-EchoFunction", event}, 0, `"body":"by hand"`, ""},
		{"a function that fails", []string{"-addr", addr, "crash", event}, 1, `"errorType":"Runtime.ExitError"`, ""},
		{"unknown function", []string{"-addr", addr, "nothing", event}, 1, "", `there is no function \"nothing\"; there are crash, echo, late, post, refuse, retry, stuck, tick`},
		{"no event", []string{"-addr", addr, "echo", filepath.Join(dir, "nowhere.json")}, 1, "", "nowhere.json: no such file"},
		{"no JSON", []string{"-addr", addr, "echo", file("text.json", "hello")}, 1, "", "text.json is not JSON"},
		{"nobody there", []string{"-addr", "127.0.0.1:1", "echo", event}, 1, "", "no local cloud answers at http://127.0.0.1:1"},
		{"no local cloud there", []string{"-addr", other, "echo", event}, 1, "", "what answers at http://" + other + " is no local cloud"},
		{"which one", []string{"-addr", addr, "echo", event}, 0, `"body":"by hand"`, "example/template.yaml, at http://" + addr},
		{"no function", []string{"-addr", addr}, 2, "", "usage: go run ./infra/local invoke"},
		{"help", []string{"-h"}, 0, "", "usage: go run ./infra/local invoke"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := runToEnd(t, options{}, append([]string{"invoke"}, test.args...)...)
			require.Equal(t, test.code, got.code, "%s%s", got.stdout, got.stderr)
			require.Contains(t, got.stdout, test.stdout)
			require.Contains(t, got.stderr, test.stderr)
			require.True(t, test.stdout != "" || got.stdout == "", "nothing is to be said but %q", got.stdout)
		})
	}
}

// The other ways to invoke: to try whether one may, and not to wait.
func TestInvocationTypes(t *testing.T) {
	t.Parallel()
	c := startApp(t)
	invoke := func(kind, function, payload string) (int, string) {
		r := request{method: http.MethodPost, path: "2015-03-31/functions/" + function + "/invocations", body: payload}
		response, body := c.ask(r, "", "X-Amz-Invocation-Type", kind)
		return response.StatusCode, strings.TrimSpace(body)
	}
	const event = `{"requestContext":{"eventType":"MESSAGE"},"body":"{\"text\":\"quietly\"}"}`
	status, body := invoke("DryRun", "echo", event)
	require.Equal(t, http.StatusNoContent, status, body)
	require.Empty(t, body)
	require.NotContains(t, c.stderr.String(), "heard", "a trial runs nothing")

	status, body = invoke("Event", "echo", event)
	require.Equal(t, http.StatusAccepted, status, body)
	require.Empty(t, body)
	require.Eventually(t, func() bool { return strings.Contains(c.stderr.String(), "heard quietly") }, patience, often)

	status, body = invoke("Event", "stuck", "{}")
	require.Equal(t, http.StatusAccepted, status, body)
	for kind, want := range map[string]int{"DryRun": http.StatusNotFound, "Event": http.StatusNotFound} {
		status, body = invoke(kind, "nothing", event)
		require.Equal(t, want, status, body)
	}
	status, body = invoke("Event", "echo", "{")
	require.Equal(t, http.StatusBadRequest, status, body)
	status, body = invoke("Perhaps", "echo", event)
	require.Equal(t, http.StatusBadRequest, status, body)
	require.Contains(t, body, "want RequestResponse, Event or DryRun")
}

func TestSerial(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		flags []string
		want  []string
	}{
		// Two frames of one client run at the same time, as in the cloud.
		{"off", nil, []string{"quick", "slow"}},
		{"on", []string{"-serial"}, []string{"slow", "quick"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			user := startApp(t, test.flags...).dial("")
			user.send(`{"action":"echo","text":"slow","waitMs":1500}`)
			user.send(`{"action":"echo","text":"quick"}`)
			require.Equal(t, test.want, []string{user.receive(), user.receive()})
		})
	}
}

func TestData(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/made/by/it"
	first := startApp(t, "-data", dir)
	putThing(t, dynamotest.Client(t, first.dynamoDB), "before the end")

	runToEnd(t, options{}, "-addr", "127.0.0.1:0", "-template", smallApp, "-data", dir).
		requireError(t, "the data folder "+dir+" is in use by another local cloud", "-data")

	first.stop()
	second := startApp(t, "-data", dir)
	db := dynamotest.Client(t, second.dynamoDB)
	require.True(t, hasThing(t, db, "before the end"))
	putThing(t, db, "before kill -9")

	require.NoError(t, second.cmd.Process.Kill())
	second.requireEnd(patience)
	third := startApp(t, "-data", dir)
	db = dynamotest.Client(t, third.dynamoDB)
	require.True(t, hasThing(t, db, "before the end"))
	require.True(t, hasThing(t, db, "before kill -9"))
}

func TestData_MemoryByDefault(t *testing.T) {
	t.Parallel()
	first := startApp(t)
	putThing(t, dynamotest.Client(t, first.dynamoDB), "for now")
	first.stop()
	require.False(t, hasThing(t, dynamotest.Client(t, startApp(t).dynamoDB), "for now"))
}

// Functions post where they are told to: here, to a proxy that passes on. The device
// that comes a second time is what makes one of them post.
func TestServe_ConnectionsEndpoint(t *testing.T) {
	t.Parallel()
	var target atomic.Pointer[url.URL]
	asked := make(chan string, 16)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.Path
		httputil.NewSingleHostReverseProxy(target.Load()).ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	c := start(t, options{}, "-template", product, "-connections-endpoint", proxy.URL+"/")
	page, err := url.Parse(c.page)
	require.NoError(t, err)
	target.Store(page)

	authorization := "Bearer " + c.token("alice")
	first := c.dial("?device=phone", "Authorization", authorization)
	c.dial("?device=phone", "Authorization", authorization)
	require.JSONEq(t, `{"type":"goodbye","reason":"replaced"}`, first.receive(), "what was posted arrives")
	for _, method := range []string{http.MethodPost, http.MethodDelete} {
		select {
		case got := <-asked:
			require.Regexp(t, "^"+method+" /v1/@connections/[^/]+$", got)
		case <-time.After(patience):
			require.Fail(t, "nothing came by the proxy", method)
		}
	}
}

// thingsTable is the table of the small application.
const thingsTable = "inorder-Things"

func putThing(t *testing.T, db *dynamodb.Client, id string) {
	t.Helper()
	_, err := db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(thingsTable), Item: thing(id)})
	require.NoError(t, err)
}

func hasThing(t *testing.T, db *dynamodb.Client, id string) bool {
	t.Helper()
	out, err := db.GetItem(t.Context(), &dynamodb.GetItemInput{TableName: aws.String(thingsTable), Key: thing(id)})
	require.NoError(t, err)
	return len(out.Item) > 0
}

func thing(id string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: id}}
}

// What has expired while nothing ran goes at the start; a function hears of it as of the
// service's deed.
func TestExpiredItemsAreDeleted(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	c := startApp(t, "-data", data)
	expired, expires := thing("expired"), time.Now().Unix()+5 // not before the sweep of this start
	expired["expires"] = &types.AttributeValueMemberN{Value: strconv.FormatInt(expires, 10)}
	_, err := dynamotest.Client(t, c.dynamoDB).PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(thingsTable), Item: expired})
	require.NoError(t, err)
	putThing(t, dynamotest.Client(t, c.dynamoDB), "fresh")
	c.stop()
	require.Eventually(t, func() bool { return time.Now().Unix() > expires }, patience, often)

	c = startApp(t, "-data", data)
	db, streams := dynamotest.Client(t, c.dynamoDB), dynamotest.Streams(t, c.dynamoDB)
	require.Eventually(t, func() bool { return !hasThing(t, db, "expired") }, patience, often)
	require.True(t, hasThing(t, db, "fresh"))
	c.awaitLog(`^dynamodb   \| items have expired and are deleted items=1$`)
	list, err := streams.ListStreams(t.Context(), &dynamodbstreams.ListStreamsInput{TableName: aws.String(thingsTable)})
	require.NoError(t, err)
	d, err := streams.DescribeStream(t.Context(), &dynamodbstreams.DescribeStreamInput{StreamArn: list.Streams[0].StreamArn})
	require.NoError(t, err)
	it, err := streams.GetShardIterator(t.Context(), &dynamodbstreams.GetShardIteratorInput{StreamArn: list.Streams[0].StreamArn,
		ShardId: d.StreamDescription.Shards[0].ShardId, ShardIteratorType: "TRIM_HORIZON"})
	require.NoError(t, err)
	out, err := streams.GetRecords(t.Context(), &dynamodbstreams.GetRecordsInput{ShardIterator: it.ShardIterator})
	require.NoError(t, err)
	last := out.Records[len(out.Records)-1]
	require.Equal(t, "REMOVE", string(last.EventName))
	require.NotNil(t, last.UserIdentity)
	require.Equal(t, "dynamodb.amazonaws.com", *last.UserIdentity.PrincipalId)
}

// Schedules really invoke their function. None of the cloud is shorter than a
// minute, so this takes one.
func TestSchedules(t *testing.T) {
	t.Parallel()
	c := startApp(t)
	for _, rule := range []string{"AtTheMinute", "EveryMinute"} {
		c.awaitLog(`^tick       \| tick of aws\.events \[arn:aws:events:us-east-1:000000000000:rule/inorder-TickFunction` + rule + `\]$`)
	}
}

// Tools on this machine learn what runs, and reach its dead letters; nobody else.
func TestWhatRuns(t *testing.T) {
	t.Parallel()
	file, err := filepath.Abs(smallApp)
	require.NoError(t, err)
	c := startApp(t)
	ask := func(method, path, host string, header ...string) (int, string) {
		response, body := c.ask(request{method: method, path: path, body: `{"QueueUrl":"none"}`}, host, header...)
		return response.StatusCode, body
	}
	status, body := ask(http.MethodGet, "dev/stack", "")
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"template": "`+file+`", "name": "inorder", "region": "us-east-1", "websocket": "`+c.socket+`", "dynamodb": "`+c.dynamoDB+`", "accessKeyId": "local", "endpoint": "`+strings.TrimSuffix(c.page, "/")+`", "resources": {
		"CrashFunction": "inorder-CrashFunction", "EchoFunction": "inorder-EchoFunction", "LateFunction": "inorder-LateFunction",
		"PostFunction": "inorder-PostFunction", "RefuseFunction": "inorder-RefuseFunction", "RetryFunction": "inorder-RetryFunction",
		"StuckFunction": "inorder-StuckFunction", "TickFunction": "inorder-TickFunction", "Things": "inorder-Things",
		"Retries": "`+c.page+`000000000000/inorder-Retries", "DeadLetters": "`+c.page+`000000000000/inorder-DeadLetters"}}`, body)
	for _, path := range []string{"", "000000000000/inorder-Retries"} {
		status, body = ask(http.MethodPost, path, "", "X-Amz-Target", "AmazonSQS.ReceiveMessage")
		require.Equal(t, http.StatusBadRequest, status)
		require.Contains(t, body, "QueueDoesNotExist", "that is what the body says, not the path")
	}

	for _, foreign := range []struct{ host, name, value string }{
		{"evil.example", "X-Amz-Target", "AmazonSQS.ReceiveMessage"},
		{"", "Origin", "https://evil.example"},
	} {
		for path, method := range map[string]string{"dev/stack": http.MethodGet, "": http.MethodPost, "000000000000/inorder-Retries": http.MethodPost} {
			status, _ = ask(method, path, foreign.host, foreign.name, foreign.value)
			require.Equal(t, http.StatusForbidden, status, "%s %s of %+v", method, path, foreign)
		}
	}
}

// A function sends to a queue, by a proxy if it is told of one; another gets the
// messages. What fails comes back, and in the end goes where dead letters go.
func TestQueues(t *testing.T) {
	t.Parallel()
	var target atomic.Pointer[url.URL]
	asked := make(chan string, 16)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("X-Amz-Target") + " of " + r.UserAgent()
		httputil.NewSingleHostReverseProxy(target.Load()).ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	data := t.TempDir()
	c := startApp(t, "-data", data, "-queues-endpoint", proxy.URL)
	page, err := url.Parse(c.page)
	require.NoError(t, err)
	target.Store(page)

	user := c.dial("")
	for _, frame := range []string{`{"action":"post","text":"fine"}`, `{"action":"post","text":"fail"}`} {
		user.send(frame)
		require.Regexp(t, `^AmazonSQS.SendMessage of .*app/PostFunction`, <-asked)
	}
	c.awaitLog(`^retry      \| receive 1 of .*fine`)
	c.awaitLog(`^retry      \| receive 1 of .*fail`)
	c.awaitLog(`^retry      \| receive 2 of .*fail`)
	dead := filepath.Join(data, "dead-letters", "inorder-DeadLetters.jsonl")
	var letters []byte
	require.Eventually(t, func() bool {
		letters, err = os.ReadFile(dead)
		return err == nil
	}, patience, often)
	require.Contains(t, string(letters), `"body":{"action":"post","text":"fail"}}`)
	require.NotContains(t, c.stderr.String(), "receive 2 of {\"action\":\"post\",\"text\":\"fine\"}")

	// What a stream's mapping gives up comes to the same function.
	putThing(t, dynamotest.Client(t, c.dynamoDB), "refused")
	c.awaitLog(`^retry      \| receive 1 of .*"DDBStreamBatchInfo":{"shardId":`)
	retries := filepath.Join(data, "dead-letters", "inorder-Retries.jsonl")
	require.Eventually(t, func() bool {
		content, err := os.ReadFile(retries)
		return err == nil && len(content) == 0
	}, patience, often, "what is done is gone")
}
