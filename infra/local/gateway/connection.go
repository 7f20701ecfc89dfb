package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/inorder-im/inorder/infra/local/template"
)

// ending is how a connection ended: what $disconnect reports.
type ending struct {
	code   websocket.StatusCode
	reason string
	// ours says that the gateway ends it and owes the client a close frame.
	ours bool
}

// "Going away", "Connection Closed Normally" and the text for 1005 are in real
// $disconnect events. No source was found for the reasons of the others.
var (
	goingAway     = ending{websocket.StatusGoingAway, "Going away", true}
	deleted       = ending{websocket.StatusNormalClosure, "Connection Closed Normally", true}
	binaryFrame   = ending{websocket.StatusUnsupportedData, "Binary frames are not supported", true}
	notUTF8       = ending{websocket.StatusInvalidFramePayloadData, "Invalid UTF-8", true}
	tooLarge      = ending{websocket.StatusMessageTooBig, "Message or frame too large", true}
	protocolError = ending{websocket.StatusProtocolError, "Protocol error", true}
	cut           = ending{websocket.StatusAbnormalClosure, "Connection closed abnormally", false}
)

// noStatusReason is what $disconnect says of a client's close frame without a status, 1005.
const noStatusReason = "Client-side close frame status not set"

var errGone = errors.New("the connection is gone")

// connection is one client, from its handshake on. Until it is accepted only the fields
// of the first group are set.
type connection struct {
	gateway     *Gateway
	id          string
	connectedAt time.Time
	identity    identity
	authorizer  map[string]any
	lastActive  atomic.Int64  // Unix nanoseconds
	slots       chan struct{} // one element for each frame being worked on
	out         chan []byte   // messages to the client, in order
	ended       chan struct{} // closed by end
	ending      ending        // set before ended is closed
	endOnce     sync.Once

	ws   *websocket.Conn
	conn *frameConn
}

// touch notes a message in either direction. Control frames do not count: the
// documentation speaks of messages, and a client that relied on pings could be wrong in
// the cloud.
func (c *connection) touch() {
	c.lastActive.Store(time.Now().UnixNano())
}

// end makes the connection unreachable and records why. Only the first call counts. The
// writer then closes the socket and serve runs $disconnect.
func (c *connection) end(why ending) {
	c.endOnce.Do(func() {
		c.gateway.unregister(c.id)
		c.ending = why
		close(c.ended)
	})
}

// serve runs an accepted connection to its end. The reader and the writer may outlive
// it by the time a close handshake takes: $disconnect does not wait for a client that
// does not answer.
func (g *Gateway) serve(c *connection) {
	if !g.register(c) {
		c.end(goingAway)
	}
	stop := context.AfterFunc(g.ctx, func() { _ = c.conn.Close() })
	g.running.Go(func() {
		defer stop()
		c.write()
	})
	g.running.Go(c.read)
	<-c.ended
	if g.cfg.Serial {
		c.slots <- struct{}{} // wait for the last frame
	}
	g.disconnect(c)
}

func (g *Gateway) disconnect(c *connection) {
	route, ok := g.routes[routeDisconnect]
	if !ok {
		return
	}
	event := g.disconnectEvent(c)
	if _, err := g.call(route.FunctionID, event, route.Timeout); err != nil {
		g.logFailure(route.FunctionID, event.RequestContext, err)
	}
}

func (g *Gateway) logFailure(function string, request requestContext, err error) {
	g.log.Error("function failed", "function", function, "routeKey", request.RouteKey,
		"connectionId", request.ConnectionID, "requestId", request.RequestID, "error", err)
}

// read dispatches the client's messages until the connection ends. When all slots are
// taken it does not read on, so a client that floods waits.
func (c *connection) read() {
	for {
		message, end := c.next()
		if end != nil {
			c.end(*end)
			return
		}
		c.touch()
		select {
		case c.slots <- struct{}{}:
		case <-c.ended:
			return
		}
		c.gateway.running.Go(func() {
			defer func() { <-c.slots }()
			c.dispatch(message)
		})
	}
}

// next returns the client's next message, or how the connection ends.
func (c *connection) next() ([]byte, *ending) {
	kind, r, err := c.ws.Reader(context.Background())
	if err != nil {
		return nil, c.endingOf(err)
	}
	if kind != websocket.MessageText {
		return nil, &binaryFrame
	}
	limit := c.gateway.limits.MessageBytes
	message, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	switch {
	case err != nil:
		return nil, c.endingOf(err)
	case len(message) > limit:
		return nil, &tooLarge
	case !utf8.Valid(message):
		return nil, &notUTF8
	}
	return message, nil
}

func (c *connection) endingOf(err error) *ending {
	var closed websocket.CloseError
	switch {
	case errors.As(err, &closed):
		if closed.Code == websocket.StatusNoStatusRcvd {
			closed.Reason = noStatusReason
		}
		return &ending{code: closed.Code, reason: closed.Reason}
	case errors.Is(err, errFrameTooLarge):
		return &tooLarge
	case c.conn.isBroken(), errors.Is(err, net.ErrClosed), errors.Is(err, context.DeadlineExceeded):
		return &cut
	default:
		return &protocolError
	}
}

// dispatch runs the function of one message and answers the client.
func (c *connection) dispatch(message []byte) {
	g := c.gateway
	key, route, ok := g.route(message)
	event := g.messageEvent(c, key, string(message))
	if !ok {
		c.sendError("Forbidden", event.RequestContext)
		return
	}
	if g.throttled(key) {
		// The documentation has "429 Too Many Requests" for throttled requests of a
		// WebSocket API and does not show the frame; no client should need the text.
		c.sendError("Too Many Requests", event.RequestContext)
		return
	}
	body, err := g.answer(route, event)
	switch {
	case errors.Is(err, errTimedOut):
		g.logFailure(route.FunctionID, event.RequestContext, err)
		c.sendError("Endpoint request timed out", event.RequestContext)
	case err != nil:
		g.logFailure(route.FunctionID, event.RequestContext, err)
		c.sendError("Internal server error", event.RequestContext)
	case route.Reply && len(body) > 0:
		// Whatever the statusCode: in real APIs a body with status 500 reaches the
		// client too.
		_ = c.send(g.ctx, body) // if it is gone, so is the need for a reply
	}
}

func (g *Gateway) answer(route template.Route, event event) ([]byte, error) {
	payload, err := g.call(route.FunctionID, event, route.Timeout)
	if err != nil {
		return nil, err
	}
	response, err := parseProxyResponse(payload)
	if err != nil {
		return nil, err
	}
	if len(response.body) > g.limits.MessageBytes {
		return nil, fmt.Errorf("the function's body has %d bytes and a message can have %d", len(response.body), g.limits.MessageBytes)
	}
	return response.body, nil
}

// sendError sends the service's own error frame, spaced as the service spaces it.
func (c *connection) sendError(message string, request requestContext) {
	frame := fmt.Sprintf(`{"message": %q, "connectionId":%q, "requestId":%q}`, message, c.id, request.RequestID)
	_ = c.send(c.gateway.ctx, []byte(frame)) // as above
}

// send puts a message into the client's queue. It goes in a text frame, so bytes that
// are no UTF-8 become U+FFFD: a client has to end a connection that brings them (RFC
// 6455, section 8.1). A client that leaves no place in its queue for the write timeout
// is cut off. The error is errGone or that of ctx.
func (c *connection) send(ctx context.Context, message []byte) error {
	message = bytes.ToValidUTF8(message, []byte("\uFFFD"))
	select {
	case <-c.ended:
		return errGone
	default:
	}
	timer := time.NewTimer(c.gateway.limits.WriteTimeout)
	defer timer.Stop()
	select {
	case c.out <- message:
		c.touch()
		return nil
	case <-c.ended:
		return errGone
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		c.end(cut) // the writer gives up at the same time, or is only slow
		return errGone
	}
}

// write sends the queue to the client, watches the connection's age and, when it has
// ended, closes the socket.
func (c *connection) write() {
	limits := c.gateway.limits
	idle := time.NewTimer(limits.IdleTimeout)
	defer idle.Stop()
	life := time.NewTimer(limits.MaxLifetime)
	defer life.Stop()
	for {
		select {
		case message := <-c.out:
			if c.writeMessage(message) != nil {
				c.end(cut)
			}
		case <-idle.C:
			if left := limits.IdleTimeout - time.Since(time.Unix(0, c.lastActive.Load())); left > 0 {
				idle.Reset(left)
				continue
			}
			c.end(goingAway)
		case <-life.C:
			c.end(goingAway)
		case <-c.ended:
			c.shut()
			return
		}
	}
}

// shut writes what was queued before the gateway ended the connection, then closes it.
func (c *connection) shut() {
	for c.ending.ours {
		select {
		case message := <-c.out:
			if c.writeMessage(message) == nil {
				continue
			}
		default:
			_ = c.ws.Close(c.ending.code, c.ending.reason) // the client may not answer
		}
		break
	}
	_ = c.ws.CloseNow()
}

// writeMessage writes one text message in frames of at most the limit.
func (c *connection) writeMessage(message []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.gateway.limits.WriteTimeout)
	defer cancel()
	limit := c.gateway.limits.FrameBytes
	if len(message) <= limit {
		return c.ws.Write(ctx, websocket.MessageText, message)
	}
	w, err := c.ws.Writer(ctx, websocket.MessageText)
	if err != nil {
		return err
	}
	for len(message) > 0 {
		n := min(len(message), limit)
		if _, err := w.Write(message[:n]); err != nil {
			return err
		}
		message = message[n:]
	}
	return w.Close()
}
