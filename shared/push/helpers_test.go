package push_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/apigatewaymanagementapi"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/push"
)

// errorTypes are the error names that API Gateway sends with a status.
func errorTypes() map[int]string {
	return map[int]string{
		400: "BadRequestException", 403: "ForbiddenException", 410: "GoneException",
		413: "PayloadTooLargeException", 429: "LimitExceededException", 500: "InternalServerError",
	}
}

// gateway is the @connections API: it answers as told per connection, 200 and
// 204 unless told otherwise, and keeps what was posted.
type gateway struct {
	*httptest.Server
	reply func(method, connectionID string, attempt int) int // 0: hang until the caller gives up; -1: cut

	mu       sync.Mutex
	attempts map[string]int
	posted   map[string][]string
	running  int
	most     int // requests at a time
}

func newGateway(t *testing.T, reply func(method, connectionID string, attempt int) int) *gateway {
	t.Helper()
	g := &gateway{reply: reply, attempts: map[string]int{}, posted: map[string][]string{}}
	g.Server = httptest.NewServer(http.HandlerFunc(g.serve))
	t.Cleanup(g.Close)
	return g
}

func (g *gateway) serve(w http.ResponseWriter, r *http.Request) {
	escaped, ok := strings.CutPrefix(r.URL.EscapedPath(), "/v1/@connections/")
	if !ok || !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ") || strings.Contains(escaped, "=") {
		http.Error(w, "not a signed and escaped @connections request: "+r.URL.EscapedPath(), http.StatusNotFound)
		return
	}
	id, err := url.PathUnescape(escaped)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	g.mu.Lock()
	g.attempts[id]++
	attempt := g.attempts[id]
	g.running++
	g.most = max(g.most, g.running)
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.running--
		g.mu.Unlock()
	}()
	status := g.reply(r.Method, id, attempt)
	switch {
	case status == 0:
		<-r.Context().Done()
	case status < 0:
		panic(http.ErrAbortHandler)
	case status >= 300:
		w.Header().Set("X-Amzn-ErrorType", errorTypes()[status])
		w.WriteHeader(status)
		_, _ = fmt.Fprintf(w, `{"message":"%d"}`, status)
	default:
		g.mu.Lock()
		g.posted[id] = append(g.posted[id], string(body))
		g.mu.Unlock()
		w.WriteHeader(status)
	}
}

func (g *gateway) postedTo(id string) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.posted[id]
}

func (g *gateway) attemptsOf(id string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.attempts[id]
}

func (g *gateway) mostAtATime() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most
}

func newPusher(g *gateway) *push.Pusher {
	p := push.New(apigatewaymanagementapi.New(apigatewaymanagementapi.Options{
		BaseEndpoint: aws.String(g.URL + "/v1"),
		Region:       "eu-central-1",
		Credentials:  credentials.NewStaticCredentialsProvider("id", "secret", ""),
	}))
	p.PostTimeout = 10 * time.Second
	p.DeliverTimeout = 20 * time.Second
	return p
}

func always(status int) func(string, string, int) int {
	return func(string, string, int) int { return status }
}

// within fails the test if f takes longer than a machine under load may need.
func within(t *testing.T, limit time.Duration, f func()) {
	t.Helper()
	start := time.Now()
	f()
	require.Less(t, time.Since(start), limit)
}
