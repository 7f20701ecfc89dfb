package gateway

import (
	"encoding/base64"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// handshake answers an upgrade request. It stays pending until the authorizer and the
// $connect function have returned, and only then is there a connection.
func (g *Gateway) handshake(w http.ResponseWriter, r *http.Request) {
	c := g.newConnection(r)
	if refused := checkUpgrade(r); refused != nil {
		g.refuse(w, c, newID(), refused)
		return
	}
	if !g.begin() {
		g.refuse(w, c, newID(), &refusal{http.StatusServiceUnavailable, "Service Unavailable", "the gateway is closing"})
		return
	}
	defer g.running.Done()
	if g.handshakes.Take("") > 0 {
		g.refuse(w, c, newID(), &refusal{http.StatusTooManyRequests, "Too Many Requests", "too many new connections in this second"})
		return
	}
	if g.throttled(routeConnect) {
		g.refuse(w, c, newID(), &refusal{http.StatusTooManyRequests, "Too Many Requests", "$connect is throttled"})
		return
	}
	connect := g.connectEvent(c, r)
	subprotocol, refused := g.connect(c, connect)
	if refused != nil {
		g.refuse(w, c, connect.RequestContext.RequestID, refused)
		return
	}
	if err := c.accept(w, r, subprotocol); err != nil {
		g.log.Warn("handshake failed", "connectionId", c.id, "error", err)
		return
	}
	g.serve(c) //nolint:contextcheck // a connection outlives the request that opened it
}

// checkUpgrade looks at what needs no function. A request that is no upgrade at all
// gets the 403 that every path gets that the API does not have.
func checkUpgrade(r *http.Request) *refusal {
	// The scheme is not in the request; it counts as the cloud's "wss://".
	if len("wss://")+len(r.Host)+len(r.URL.RequestURI()) > maxURLLength {
		return &refusal{http.StatusRequestURITooLong, "Request-URI Too Long", "the URL has more than 4096 characters"}
	}
	if r.Method != http.MethodGet || !hasToken(r.Header, "Connection", "upgrade") || !hasToken(r.Header, "Upgrade", "websocket") {
		return &refusal{http.StatusForbidden, "Forbidden", "the request is no WebSocket upgrade"}
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(r.Header.Get("Sec-WebSocket-Key")))
	if err != nil || len(key) != 16 || r.Header.Get("Sec-WebSocket-Version") != "13" {
		return &refusal{http.StatusBadRequest, "Bad Request", "Sec-WebSocket-Key or Sec-WebSocket-Version is missing or wrong"}
	}
	return nil
}

func hasToken(h http.Header, name, token string) bool {
	for _, t := range tokens(h, name) {
		if strings.EqualFold(t, token) {
			return true
		}
	}
	return false
}

func tokens(h http.Header, name string) []string {
	var all []string
	for _, line := range h.Values(name) {
		for token := range strings.SplitSeq(line, ",") {
			all = append(all, strings.TrimSpace(token))
		}
	}
	return all
}

// connect runs the authorizer and the $connect function, as far as the API has them,
// and returns the subprotocol that the function selected.
func (g *Gateway) connect(c *connection, connect event) (subprotocol string, refused *refusal) {
	route, ok := g.routes[routeConnect]
	if !ok {
		return "", nil
	}
	if route.Authorize {
		authorizer, refused := g.authorize(connect)
		if refused != nil {
			return "", refused
		}
		c.authorizer = authorizer
		connect.RequestContext.Authorizer = authorizer
	}
	payload, err := g.call(route.FunctionID, connect, route.Timeout)
	if failure := (*functionError)(nil); errors.As(err, &failure) {
		return "", &refusal{http.StatusBadGateway, "Internal server error", route.FunctionID + ": " + err.Error()}
	}
	if errors.Is(err, errTimedOut) {
		return "", &refusal{http.StatusGatewayTimeout, "Endpoint request timed out", route.FunctionID + ": " + err.Error()}
	}
	if err != nil {
		return "", &refusal{http.StatusInternalServerError, "Internal server error", route.FunctionID + ": " + err.Error()}
	}
	response, err := parseProxyResponse(payload)
	if err != nil {
		return "", &refusal{http.StatusBadGateway, "Internal server error", route.FunctionID + ": " + err.Error()}
	}
	if response.status >= 300 {
		// Real handshakes show the function's status; whether its body reaches the
		// client is documented nowhere, so no client should need it.
		return "", &refusal{response.status, http.StatusText(response.status), route.FunctionID + " refused it"}
	}
	return response.headers["sec-websocket-protocol"], nil
}

func (g *Gateway) refuse(w http.ResponseWriter, c *connection, requestID string, why *refusal) {
	g.log.Warn("handshake refused", "status", why.status, "reason", why.reason, "connectionId", c.id, "requestId", requestID)
	writeJSON(w, why.status, map[string]string{"message": why.message, "connectionId": c.id, "requestId": requestID})
}

func (g *Gateway) newConnection(r *http.Request) *connection {
	slots := g.limits.InFlight
	if g.cfg.Serial {
		slots = 1
	}
	c := &connection{
		gateway:     g,
		id:          newID(),
		connectedAt: time.Now(),
		identity:    identity{UserAgent: r.UserAgent(), SourceIP: sourceIP(r)},
		out:         make(chan []byte, g.limits.Queue),
		slots:       make(chan struct{}, slots),
		ended:       make(chan struct{}),
	}
	c.touch()
	return c
}

// accept sends the 101. A subprotocol that the client did not offer is left out: naming
// it would make the client fail the connection.
func (c *connection) accept(w http.ResponseWriter, r *http.Request, subprotocol string) error {
	if subprotocol != "" && !hasToken(r.Header, "Sec-WebSocket-Protocol", subprotocol) {
		c.gateway.log.Warn("$connect selected a subprotocol that the client did not offer", "connectionId", c.id)
	}
	hijacked := &hijackWriter{ResponseWriter: w, limit: uint64(c.gateway.limits.FrameBytes)} //nolint:gosec // a positive limit
	ws, err := websocket.Accept(hijacked, r, &websocket.AcceptOptions{
		Subprotocols:       []string{subprotocol},
		InsecureSkipVerify: true, // API Gateway does not look at Origin
	})
	if err != nil {
		return err
	}
	ws.SetReadLimit(-1) // next counts, to close with its own reason
	c.ws, c.conn = ws, hijacked.conn
	return nil
}
