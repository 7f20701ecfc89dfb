package dynamo_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/dynamo"
	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
)

func TestHandlerPassesOnAndLetsNoPageRead(t *testing.T) {
	t.Parallel()
	client, endpoint := dynamotest.Start(t)
	createSimple(t, client, "Things")
	server := httptest.NewServer(dynamo.Handler(endpoint, dynamo.Likeness{}, log.New(io.Discard, "", 0)))
	t.Cleanup(server.Close)
	out, err := dynamotest.Client(t, server.URL).ListTables(t.Context(), &dynamodb.ListTablesInput{})
	require.NoError(t, err)
	require.Equal(t, []string{"Things"}, out.TableNames)

	// What a page can make of a signature.
	ask := func(url string) *http.Response {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader("{}"))
		require.NoError(t, err)
		request.Header = http.Header{
			"Origin": {"https://evil.example"}, "Content-Type": {"application/x-amz-json-1.0"},
			"X-Amz-Target": {"DynamoDB_20120810.ListTables"}, "X-Amz-Date": {"20260101T000000Z"},
			"Authorization": {"AWS4-HMAC-SHA256 Credential=a/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0"},
		}
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode)
		return response
	}
	require.Equal(t, "*", ask(endpoint).Header.Get("Access-Control-Allow-Origin"), "if the engine is not like that any more, it needs no hiding")
	for name := range ask(server.URL).Header {
		require.NotContains(t, name, "Access-Control")
	}
}

// On Linux all of 127.0.0.0/8 is this machine.
func TestAnEngineIsHardToFind(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("there is one loopback address only")
	}
	found := map[netip.Addr]bool{}
	for range 3 {
		_, endpoint := dynamotest.Start(t)
		at, err := netip.ParseAddrPort(strings.TrimPrefix(endpoint, "http://"))
		require.NoError(t, err)
		require.True(t, at.Addr().IsLoopback(), endpoint)
		_, err = http.Get("http://127.0.0.1:" + endpoint[strings.LastIndex(endpoint, ":")+1:])
		require.Error(t, err, "where a page would look for it")
		found[at.Addr()] = true
	}
	require.Len(t, found, 3)
}

// An engine answers when it has what it needs, which on a busy machine is before the proxy
// has seen the end of the request.
func TestAnAnswerMayBeginBeforeTheRequestEnds(t *testing.T) {
	t.Parallel()
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.WriteString(w, "an answer, ")
		_ = http.NewResponseController(w).Flush()
		asked, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "to %s", asked)
	}))
	t.Cleanup(engine.Close)
	door := httptest.NewServer(dynamo.Handler(engine.URL, dynamo.Likeness{}, log.New(io.Discard, "", 0)))
	t.Cleanup(door.Close)
	body, rest := io.Pipe()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, door.URL, body)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request) // returns with the beginning of the answer
	require.NoError(t, err)
	defer func() { _ = response.Body.Close() }()
	_, err = io.WriteString(rest, "a request")
	require.NoError(t, err)
	require.NoError(t, rest.Close())
	answer, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, "an answer, to a request", string(answer))
}
