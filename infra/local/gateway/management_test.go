package gateway_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	management "github.com/aws/aws-sdk-go-v2/service/apigatewaymanagementapi"
	"github.com/aws/aws-sdk-go-v2/service/apigatewaymanagementapi/types"
	"github.com/aws/smithy-go"
	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/gateway"
)

func TestPostsArriveInTheOrderPosted(t *testing.T) {
	t.Parallel()
	const messages = 200
	a := startLifecycle(t, gateway.Limits{Queue: 4})
	c, id := a.connect(t)
	go func() {
		for i := range messages {
			_ = a.post(id, fmt.Sprint(i))
		}
	}()
	for i := range messages {
		require.Equal(t, fmt.Sprint(i), c.receive()) // receive checks that it is text
	}
}

func TestPostToAFunctionsOwnCaller(t *testing.T) {
	t.Parallel()
	a := startLifecycle(t, gateway.Limits{})
	c, id := a.connect(t)
	c.send("hello")
	require.Equal(t, "hello", c.receive())
	require.NoError(t, a.post(id, strings.Repeat("ä", 10)))
	require.Equal(t, strings.Repeat("ä", 10), c.receive())
}

// A text frame that is no UTF-8 would make the client end the connection.
func TestPostsThatAreNoUTF8AreMadeText(t *testing.T) {
	t.Parallel()
	a := startLifecycle(t, gateway.Limits{})
	c, id := a.connect(t)
	require.NoError(t, a.post(id, "a\xffb\xc3"))
	require.Equal(t, "a\uFFFDb\uFFFD", c.receive())
	c.send("still here")
	require.Equal(t, "still here", c.receive())
}

func TestGetDescribesTheConnection(t *testing.T) {
	t.Parallel()
	a := startLifecycle(t, gateway.Limits{})
	before := time.Now().Truncate(time.Millisecond)
	c := a.dial(t, &websocket.DialOptions{HTTPHeader: http.Header{"User-Agent": {"tests/1"}}})
	id, _ := a.await(t, "connect", 1).context(t)["connectionId"].(string)
	a.awaitOpen(t, id)
	first, err := a.sdk().GetConnection(t.Context(), &management.GetConnectionInput{ConnectionId: &id})
	require.NoError(t, err)
	require.WithinRange(t, *first.ConnectedAt, before, time.Now())
	require.Equal(t, "127.0.0.1", *first.Identity.SourceIp)
	require.Equal(t, "tests/1", *first.Identity.UserAgent)
	require.False(t, first.LastActiveAt.Before(*first.ConnectedAt))

	require.Eventually(t, func() bool { return time.Since(*first.LastActiveAt) > 2*time.Millisecond }, patience, time.Millisecond)
	c.send("hello")
	require.Equal(t, "hello", c.receive())
	second, err := a.sdk().GetConnection(t.Context(), &management.GetConnectionInput{ConnectionId: &id})
	require.NoError(t, err)
	require.Equal(t, first.ConnectedAt, second.ConnectedAt)
	require.True(t, second.LastActiveAt.After(*first.LastActiveAt))
}

func TestDeleteClosesTheConnection(t *testing.T) {
	t.Parallel()
	a := startLifecycle(t, gateway.Limits{})
	c, id := a.connect(t)
	const messages = 20
	for range messages {
		require.NoError(t, a.post(id, "before"))
	}
	require.NoError(t, a.delete(id))
	var gone *types.GoneException
	require.ErrorAs(t, a.post(id, "after"), &gone, "from the answer to DELETE on")
	require.ErrorAs(t, a.get(id), &gone)
	require.ErrorAs(t, a.delete(id), &gone)
	for range messages {
		require.Equal(t, "before", c.receive(), "what was posted before arrives")
	}
	require.Equal(t, websocket.CloseError{Code: 1000, Reason: "Connection Closed Normally"}, c.closing())
}

func TestErrorsAreThoseOfTheSDK(t *testing.T) {
	t.Parallel()
	a := startLifecycle(t, gateway.Limits{})
	c, id := a.connect(t)
	var gone *types.GoneException
	var large *types.PayloadTooLargeException

	require.ErrorAs(t, a.post("TWegAcC4EowCHnA=", "x"), &gone, "an id that never was")
	require.ErrorAs(t, a.post(id, strings.Repeat("x", 128<<10+1)), &large)
	require.NoError(t, a.post(id, strings.Repeat("x", 128<<10)))
	require.Len(t, c.receive(), 128<<10)

	for _, malformed := range []string{"x", "TWegAcC4EowCHnA", "TWegAcC4EowCHnA==", "TWeg/cC4EowCHnA=", "TWegAcC4EowCHnA=AAAA"} {
		for _, err := range []error{a.post(malformed, "x"), a.get(malformed), a.delete(malformed)} {
			var answer smithy.APIError
			require.ErrorAs(t, err, &answer)
			require.Equal(t, "BadRequestException", answer.ErrorCode(), malformed)
		}
	}

	require.NoError(t, c.Close(websocket.StatusNormalClosure, ""))
	a.await(t, "disconnect", 1)
	require.ErrorAs(t, a.post(id, "x"), &gone, "after the client closed")
}

func TestRequestsPerSecondAreLimited(t *testing.T) {
	t.Parallel()
	const limit = 2
	a := startLifecycle(t, gateway.Limits{RequestsPerSecond: limit})
	begin := time.Now()
	limited := 0
	for range 3 * limit {
		var exceeded *types.LimitExceededException
		var gone *types.GoneException
		if err := a.post("TWegAcC4EowCHnA=", "x"); !errors.As(err, &exceeded) {
			require.ErrorAs(t, err, &gone)
			continue
		}
		limited++
	}
	if time.Since(begin) < time.Second {
		require.GreaterOrEqual(t, limited, limit)
	}
}

func TestConnectionsAPIByHand(t *testing.T) {
	t.Parallel()
	a := startLifecycle(t, gateway.Limits{})
	c, id := a.connect(t)
	signature := "AWS4-HMAC-SHA256 Credential=local/20261129/us-east-1/execute-api/aws4_request, SignedHeaders=host, Signature=00"
	tests := []struct {
		name, method, path, authorization string
		want                              int
		wantType                          string
	}{
		{"unsigned", "POST", url.PathEscape(id), "", 403, "ForbiddenException"},
		{"signed in another way", "POST", url.PathEscape(id), "Bearer x", 403, "ForbiddenException"},
		{"signed", "POST", url.PathEscape(id), signature, 200, ""},
		{"signed in the query", "POST", url.PathEscape(id) + "?X-Amz-Signature=00", "", 200, ""},
		{"equals sign escaped", "POST", strings.ReplaceAll(id, "=", "%3D"), signature, 200, ""},
		{"escaped slash is part of the id", "POST", "TWeg%2FcC4EowCHnA=", signature, 400, "BadRequestException"},
		{"other method", "PUT", url.PathEscape(id), signature, 403, "ForbiddenException"},
	}
	for _, tt := range tests {
		request, err := http.NewRequestWithContext(t.Context(), tt.method, a.server.URL+"/dev/@connections/"+tt.path, strings.NewReader(tt.name))
		require.NoError(t, err)
		request.Header.Set("Authorization", tt.authorization)
		response, err := a.server.Client().Do(request)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, tt.want, response.StatusCode, "%s: %s", tt.name, body)
		require.Equal(t, tt.wantType, response.Header.Get("X-Amzn-ErrorType"), tt.name)
		require.Len(t, response.Header.Get("X-Amzn-RequestId"), 16)
		if tt.want == 200 {
			require.Equal(t, tt.name, c.receive())
		}
	}
}

func TestClientThatDoesNotReadIsGone(t *testing.T) {
	t.Parallel()
	a := startLifecycle(t, gateway.Limits{WriteTimeout: 200 * time.Millisecond, Queue: 2})
	a.dialRaw(t) // and never reads
	id, _ := a.await(t, "connect", 1).context(t)["connectionId"].(string)
	a.awaitOpen(t, id)
	other, otherID := a.connect(t)
	message := strings.Repeat("x", 128<<10)
	var err error
	// The socket buffers of both ends take some megabytes.
	for i := 0; i < 1000 && err == nil; i++ {
		err = a.post(id, message) // which blocks no longer than that
	}
	var gone *types.GoneException
	require.ErrorAs(t, err, &gone)
	require.Equal(t, 1006.0, a.await(t, "disconnect", 1).context(t)["disconnectStatusCode"])
	require.NoError(t, a.post(otherID, "still served"))
	require.Equal(t, "still served", other.receive())
}

func TestConnectionIDsAreUniqueAndURLSafe(t *testing.T) {
	t.Parallel()
	a := startLifecycle(t, gateway.Limits{})
	seen := map[string]bool{}
	for range 50 {
		c, id := a.connect(t)
		require.False(t, seen[id])
		seen[id] = true
		decoded, err := base64.URLEncoding.DecodeString(id)
		require.NoError(t, err)
		require.Len(t, decoded, 11)
		require.NoError(t, c.CloseNow())
	}
}
