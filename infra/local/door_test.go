//go:build !windows

package main_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
)

// request is one to the local cloud, and how it is answered to who may ask.
type request struct {
	name, method, path, target, body string
	status                           int
}

// guarded is one request to each part that is for programs on this machine.
var guarded = []request{
	{"a token", http.MethodGet, "dev/token?user=alice", "", "", http.StatusOK},
	{"the keys", http.MethodGet, "dev/jwks.json", "", "", http.StatusOK},
	{"what runs", http.MethodGet, "dev/stack", "", "", http.StatusOK},
	{"a function", http.MethodPost, "2015-03-31/functions/echo/invocations", "", `{"requestContext":{"eventType":"MESSAGE"},"body":"{}"}`, http.StatusOK},
	{"a connection", http.MethodGet, "local/@connections/L0SM9cOFvHcCIhw=", "", "", http.StatusGone},
	{"a queue", http.MethodPost, "", "AmazonSQS.ReceiveMessage", `{"QueueUrl":"none"}`, http.StatusBadRequest},
	{"the database", http.MethodPost, "", "DynamoDB_20120810.ListTables", "{}", http.StatusOK},
	{"its streams", http.MethodPost, "", "DynamoDBStreams_20120810.ListStreams", "{}", http.StatusOK},
}

// open is what anybody may have.
var open = []request{
	{"the page", http.MethodGet, "", "", "", http.StatusOK},
	{"a file of it", http.MethodGet, "page.js", "", "", http.StatusOK},
	{"where it connects", http.MethodGet, "config.json", "", "", http.StatusOK},
	{"no upgrade", http.MethodGet, "local", "", "", http.StatusForbidden},
	{"no upgrade, with a slash", http.MethodGet, "local/", "", "", http.StatusForbidden},
}

// ask makes a request as someone; header are names and values.
func (c *local) ask(r request, host string, header ...string) (*http.Response, string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), r.method, c.page+strings.Replace(r.path, "local", c.stage(), 1), strings.NewReader(r.body))
	require.NoError(c.t, err)
	req.Host = host
	req.Header = http.Header{"Authorization": {"AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0"},
		"X-Amz-Date": {"20260101T000000Z"}}
	if r.target != "" {
		req.Header.Set("X-Amz-Target", r.target)
		req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	response, err := http.DefaultClient.Do(req)
	require.NoError(c.t, err)
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	require.NoError(c.t, err)
	return response, string(body)
}

func (c *local) stage() string { return c.socket[strings.LastIndex(c.socket, "/")+1:] }

// Whoever calls: the same check is in front of everything but the socket and the page.
func TestWhoMayAskForWhat(t *testing.T) {
	t.Parallel()
	const mine = "http://localhost:5173"
	allowed := []string{"http://127.0.0.1:8080", mine}
	c := startApp(t, "-allow-origin", "http://127.0.0.1:8080", "-allow-origin", mine+"/")
	self := strings.TrimSuffix(c.page, "/")
	port := self[strings.LastIndex(self, ":"):]
	tests := []struct {
		name   string
		host   string
		header []string
		let    bool
		reads  string // the origin that may read the answer
	}{
		{"a program", "", nil, true, ""},
		{"a program, by name", "localhost" + port, nil, true, ""},
		{"a name of the internet", "evil.example", nil, false, ""},
		{"a page that was made to point here", "evil.example" + port, []string{"Origin", "http://evil.example" + port}, false, ""},
		{"a page of another machine", "", []string{"Origin", "https://evil.example"}, false, ""},
		{"a page of another port", "", []string{"Origin", "http://127.0.0.1:1"}, false, ""},
		{"a page from a file", "", []string{"Origin", "null"}, false, ""},
		{"an image in any page", "", []string{"Sec-Fetch-Site", "cross-site"}, false, ""},
		{"its own page", "", []string{"Origin", self, "Sec-Fetch-Site", "same-origin"}, true, ""},
		{"its own page, by name", "localhost" + port, []string{"Origin", "http://localhost" + port}, true, ""},
		{"a page that is let", "", []string{"Origin", mine, "Sec-Fetch-Site", "cross-site"}, true, mine},
		{"another that is", "", []string{"Origin", "http://127.0.0.1:8080"}, true, "http://127.0.0.1:8080"},
		{"one that is, by a wrong name", "evil.example", []string{"Origin", mine}, false, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, r := range guarded {
				want := r.status
				if !test.let {
					want = http.StatusForbidden
				}
				response, body := c.ask(r, test.host, test.header...)
				require.Equal(t, want, response.StatusCode, "%s: %s", r.name, body)
				require.Equal(t, test.reads, strings.Join(response.Header.Values("Access-Control-Allow-Origin"), ", "), r.name)
			}
			for _, r := range open {
				response, body := c.ask(r, test.host, test.header...)
				require.Equal(t, r.status, response.StatusCode, "%s: %s", r.name, body)
				reads := response.Header.Get("Access-Control-Allow-Origin")
				if origin := test.header; r.status == http.StatusOK && len(origin) > 0 && origin[0] == "Origin" && slices.Contains(allowed, origin[1]) {
					require.Equal(t, origin[1], reads, "%s: the client can be imported", r.name)
					continue
				}
				require.Empty(t, reads, r.name)
			}
			if test.host == "" || strings.HasPrefix(test.host, "localhost") {
				header := http.Header{}
				for i := 0; i < len(test.header); i += 2 {
					header.Set(test.header[i], test.header[i+1])
				}
				conn, _, err := websocket.Dial(t.Context(), c.socket, &websocket.DialOptions{HTTPHeader: header})
				require.NoError(t, err, "the socket, as on AWS")
				require.NoError(t, conn.CloseNow())
			}
		})
	}
}

// A browser asks first whether a page may ask.
func TestAPageIsToldBeforehand(t *testing.T) {
	t.Parallel()
	const mine = "http://localhost:5173"
	c := startApp(t, "-allow-origin", mine)
	for _, r := range guarded {
		method := r.method
		r.method, r.body = http.MethodOptions, ""
		for origin, let := range map[string]bool{mine: true, "https://evil.example": false} {
			response, body := c.ask(r, "", "Origin", origin, "Access-Control-Request-Method", method, "Access-Control-Request-Headers", "x-amz-target")
			if !let {
				require.Equal(t, http.StatusForbidden, response.StatusCode, "%s: %s", r.name, body)
				require.Empty(t, response.Header.Get("Access-Control-Allow-Origin"))
				continue
			}
			require.Equal(t, http.StatusNoContent, response.StatusCode, "%s: %s", r.name, body)
			require.Equal(t, mine, response.Header.Get("Access-Control-Allow-Origin"))
			require.Equal(t, method, response.Header.Get("Access-Control-Allow-Methods"))
			require.Equal(t, "x-amz-target", response.Header.Get("Access-Control-Allow-Headers"))
		}
	}
}

// What people are told of the database is behind the check, and it is the database.
func TestTheDatabaseIsBehindTheDoor(t *testing.T) {
	t.Parallel()
	c := startApp(t)
	require.Equal(t, strings.TrimSuffix(c.page, "/"), c.dynamoDB)
	db := dynamotest.Client(t, c.dynamoDB)
	putThing(t, db, "by the front door")
	require.True(t, hasThing(t, db, "by the front door"))
	response, body := c.ask(request{method: http.MethodGet, path: "dev/stack"}, "")
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.Contains(t, body, `"dynamodb":"`+c.dynamoDB+`"`)
}
