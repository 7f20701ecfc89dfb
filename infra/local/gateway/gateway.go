// Package gateway is an API Gateway WebSocket API on one loopback address: the client side
// (handshake, authorizer, routes, replies, limits) and the @connections API with which
// functions write to clients.
//
// It reproduces what API Gateway documents, and where the documentation is silent, what
// events and frames of the real service show. Choices without any source say so where
// they are made.
package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/inorder-im/inorder/infra/local/template"
	"github.com/inorder-im/inorder/shared/limit"
)

// The keys of the three routes with a meaning of their own.
const (
	routeConnect    = "$connect"
	routeDisconnect = "$disconnect"
	routeDefault    = "$default"
)

// maxURLLength is how many characters the URL of a WebSocket API may have (same page).
const maxURLLength = 4096

// Invoker runs functions.
type Invoker interface {
	// Invoke runs function with payload and waits for its result. functionError is ""
	// when it returned normally, else "Unhandled": it crashed, ran out of time or
	// returned an error, and payloadOut is the Lambda error object {"errorMessage",
	// "errorType"}. err is set only when the function could not be run at all: it is
	// unknown, throttled or shutting down.
	//
	// ctx ends only when the gateway is being closed and has run out of patience. In
	// particular it does not end with the integration timeout: the cloud stops waiting
	// then, and the function runs on.
	Invoke(ctx context.Context, function string, payload []byte) (payloadOut []byte, functionError string, err error)
}

// Config says which API is served, and how.
type Config struct {
	API       *template.WebSocketAPI // required
	Region    string                 // default "us-east-1"
	AccountID string                 // default "000000000000"
	// DomainName is what events carry as requestContext.domainName; the default is the
	// service's own <API id>.execute-api.<Region>.amazonaws.com.
	DomainName string
	Limits     Limits
	// Serial hands the frames of one client to the functions one after the other, and
	// $disconnect after all of them. API Gateway does not do that: it promises no order
	// between two frames.
	Serial  bool
	Invoker Invoker      // required
	Log     *slog.Logger // default slog.Default()
}

// Limits are the quotas of the service. Zero means the service's own value; there is no
// "unlimited".
type Limits struct {
	IdleTimeout       time.Duration // between two messages, in either direction; 10 minutes
	MaxLifetime       time.Duration // of a connection; 2 hours
	MessageBytes      int           // of one message, in either direction; 128 KiB
	FrameBytes        int           // of one frame, in either direction; 32 KiB
	PerSecond         int           // new connections; 500
	RequestsPerSecond int           // to the @connections API; 10,000, the account's request rate
	AuthorizerTimeout time.Duration // how long the authorizer is waited for; 29 seconds

	// The next three are not documented by the service; they bound what one client can
	// cost.
	WriteTimeout time.Duration // for one message to a client, and for a place in its queue; 5 seconds
	Queue        int           // messages waiting for one client to read; 64
	InFlight     int           // frames of one client that are being worked on; 64. More are not read.
}

func (l Limits) withDefaults() Limits {
	return Limits{
		IdleTimeout:       cmp.Or(l.IdleTimeout, 10*time.Minute),
		MaxLifetime:       cmp.Or(l.MaxLifetime, 2*time.Hour),
		MessageBytes:      cmp.Or(l.MessageBytes, 128<<10),
		FrameBytes:        cmp.Or(l.FrameBytes, 32<<10),
		PerSecond:         cmp.Or(l.PerSecond, 500),
		RequestsPerSecond: cmp.Or(l.RequestsPerSecond, 10_000),
		AuthorizerTimeout: cmp.Or(l.AuthorizerTimeout, 29*time.Second),
		WriteTimeout:      cmp.Or(l.WriteTimeout, 5*time.Second),
		Queue:             cmp.Or(l.Queue, 64),
		InFlight:          cmp.Or(l.InFlight, 64),
	}
}

// Gateway serves one WebSocket API. Make it with New; end it with Close.
type Gateway struct {
	cfg        Config
	limits     Limits
	log        *slog.Logger
	routes     map[string]template.Route // by key
	throttles  map[string]*limit.Limiter // by route key
	handshakes *limit.Limiter
	requests   *limit.Limiter

	ctx     context.Context // ends when Close gives up waiting
	cancel  context.CancelFunc
	running sync.WaitGroup // every handshake, connection and invocation

	mu      sync.Mutex
	closing bool
	open    map[string]*connection // those that @connections reaches, by id
}

// New returns a gateway.
func New(cfg Config) *Gateway {
	cfg.Region = cmp.Or(cfg.Region, "us-east-1")
	cfg.AccountID = cmp.Or(cfg.AccountID, "000000000000")
	cfg.DomainName = cmp.Or(cfg.DomainName, cfg.API.ID+".execute-api."+cfg.Region+".amazonaws.com")
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	ctx, cancel := context.WithCancel(context.Background())
	limits := cfg.Limits.withDefaults()
	g := &Gateway{
		cfg:        cfg,
		limits:     limits,
		log:        cfg.Log,
		routes:     map[string]template.Route{},
		throttles:  map[string]*limit.Limiter{},
		handshakes: newLimiter(float64(limits.PerSecond), limits.PerSecond),
		requests:   newLimiter(float64(limits.RequestsPerSecond), limits.RequestsPerSecond),
		ctx:        ctx,
		cancel:     cancel,
		open:       map[string]*connection{},
	}
	for _, r := range cfg.API.Routes {
		g.routes[r.Key] = r
		// "API Gateway throttles requests to your API using the token bucket algorithm"
		// (API Gateway, "Protect your WebSocket APIs"). Each route has a bucket of its
		// own.
		if t := r.Throttle; t != nil {
			g.throttles[r.Key] = newLimiter(t.PerSecond, t.Burst)
		}
	}
	return g
}

func newLimiter(perSecond float64, burst int) *limit.Limiter {
	return limit.New(limit.Rate{PerSecond: perSecond, Burst: burst}, time.Now)
}

// throttled counts a request of a route and reports whether it is one too many.
func (g *Gateway) throttled(key string) bool {
	throttle, ok := g.throttles[key]
	return ok && throttle.Take(key) > 0
}

// ServeHTTP serves GET /{stage} and /{stage}/ as a WebSocket handshake and
// /{stage}/@connections/{id} as the @connections API. Everything else is 403 Forbidden,
// as from the service. A signature is looked for and not checked, so who may reach
// @connections is for the caller to see to.
func (g *Gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	segments, ok := pathSegments(r.URL)
	switch {
	case ok && segments[0] == g.cfg.API.Stage && (len(segments) == 1 || len(segments) == 2 && segments[1] == ""):
		g.handshake(w, r)
	case ok && len(segments) == 3 && segments[0] == g.cfg.API.Stage && segments[1] == "@connections":
		g.manage(w, r, segments[2])
	default:
		writeJSON(w, http.StatusForbidden, map[string]string{"message": "Forbidden"})
	}
}

// pathSegments splits before it unescapes: a connection id can hold an escaped slash or
// equals sign.
func pathSegments(u *url.URL) ([]string, bool) {
	segments := strings.Split(strings.TrimPrefix(u.EscapedPath(), "/"), "/")
	for i, s := range segments {
		unescaped, err := url.PathUnescape(s)
		if err != nil {
			return nil, false
		}
		segments[i] = unescaped
	}
	return segments, true
}

// Close refuses new handshakes, closes every connection with 1001 and waits for the
// frames being worked on and for the $disconnect invocations. When ctx ends first, it
// cuts the connections, cancels the invocations and returns the error of ctx.
func (g *Gateway) Close(ctx context.Context) error {
	defer g.cancel()
	for _, c := range g.stopAccepting() {
		c.end(goingAway)
	}
	done := make(chan struct{})
	go func() {
		g.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("closing the gateway before its work was done: %w", ctx.Err())
	}
}

func (g *Gateway) stopAccepting() []*connection {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closing = true
	open := make([]*connection, 0, len(g.open))
	for _, c := range g.open {
		open = append(open, c)
	}
	return open
}

// begin counts the caller as running work, unless the gateway is closing. The caller calls
// g.running.Done. (Adding under the lock keeps Add and Wait from meeting at zero.)
func (g *Gateway) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closing {
		return false
	}
	g.running.Add(1)
	return true
}

// register makes c reachable by @connections. It reports false when the gateway began
// to close while c was being opened: then c has to be ended.
func (g *Gateway) register(c *connection) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open[c.id] = c
	return !g.closing
}

func (g *Gateway) unregister(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open, id)
}

func (g *Gateway) lookup(id string) (*connection, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c, ok := g.open[id]
	return c, ok
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // it fails only when the caller has gone
}
