// Package device is the raw device: a socket on which requests are answered, in
// whatever order, and all else is pushed. It keeps nothing of what it hears.
package device

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"github.com/coder/websocket"

	"github.com/inorder-im/inorder/shared/wire"
)

// Refusal is an error frame as an error.
type Refusal struct{ Frame wire.Error }

func (r *Refusal) Error() string {
	return fmt.Sprintf("%s %s: %s", r.Frame.Code, r.Frame.Field, r.Frame.Message)
}

// PlatformError is the error frame of API Gateway: the function crashed, or could not
// be run. Nobody knows whether it did its work.
type PlatformError struct{ Message, RequestID string }

func (e *PlatformError) Error() string {
	return fmt.Sprintf("API Gateway answered %q (requestId %s)", e.Message, e.RequestID)
}

// ErrClosed says that the socket ended before the answer came.
var ErrClosed = errors.New("the socket is closed")

// Answer is a frame that is no push. One of API Gateway itself has a Platform
// text, and neither Type nor ID.
type Answer struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Action    string          `json:"action"`
	Result    json.RawMessage `json:"result"`
	Error     wire.Error      `json:"error"`
	Platform  string          `json:"message"`
	RequestID string          `json:"requestId"`
}

// Bearer is a token as the header of a handshake.
func Bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// Handshake tries one at a socket's URL, and returns its HTTP status, 0 if there was no
// answer.
func Handshake(ctx context.Context, socket string, query url.Values, o *websocket.DialOptions) (conn *websocket.Conn, status int, err error) {
	conn, resp, err := websocket.Dial(ctx, socket+"?"+query.Encode(), o)
	if resp == nil {
		return conn, 0, err
	}
	if err != nil {
		_ = resp.Body.Close()
	}
	return conn, resp.StatusCode, err
}

// Conn is a socket. Its methods may be called from several goroutines.
type Conn struct {
	*websocket.Conn // for frames that are no requests; reading is not for others
	closed          chan struct{}
	err             error // set before closed is closed

	mu       sync.Mutex
	requests int
	waiting  map[string]chan Answer
}

// Dial opens a device's socket. The other results are those of [Handshake]. take gets
// each frame that answers no request, in turn, and none after it called Close; kind is
// its type, "" for one that cannot be read. The socket ends at a frame that is longer
// than the server promises.
func Dial(ctx context.Context, socket, name, token string, take func(kind string, frame []byte)) (*Conn, int, error) {
	conn, status, err := Handshake(ctx, socket, url.Values{"device": {name}}, &websocket.DialOptions{HTTPHeader: Bearer(token)})
	if err != nil {
		return nil, status, err
	}
	conn.SetReadLimit(wire.MaxFrameBytes)
	c := &Conn{Conn: conn, closed: make(chan struct{}), waiting: map[string]chan Answer{}}
	go c.read(take) //nolint:gosec,contextcheck // ctx is that of the handshake
	return c, status, nil
}

// Close ends the socket, orderly, and waits until nothing is heard any more.
func (c *Conn) Close() {
	_ = c.Conn.Close(websocket.StatusNormalClosure, "")
	<-c.closed
}

// Closed is closed when the socket has ended, and Err says why.
func (c *Conn) Closed() <-chan struct{} { return c.closed }

// Err is nil before the socket has ended.
func (c *Conn) Err() error {
	select {
	case <-c.closed:
		return c.err
	default:
		return nil
	}
}

func (c *Conn) read(take func(kind string, frame []byte)) {
	defer close(c.closed)
	for {
		_, data, err := c.Read(context.Background())
		if err != nil {
			c.err = err
			return
		}
		var kind struct {
			Type string `json:"type"`
		}
		if json.Unmarshal(data, &kind) != nil {
			take("", data)
			continue
		}
		switch kind.Type {
		case wire.TypeReply, wire.TypeError, "":
			var a Answer
			if json.Unmarshal(data, &a) != nil {
				take("", data)
				continue
			}
			c.deliver(a)
		default:
			take(kind.Type, data)
		}
	}
}

// deliver gives an answer to who waits for it. One without id may be anyone's.
func (c *Conn) deliver(a Answer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, waiter := range c.waiting {
		if a.ID == id || a.ID == "" {
			waiter <- a
			delete(c.waiting, id)
		}
	}
}

// Do sends a request and reads its result into result, if that is not nil. The error
// is a *[Refusal], a *[PlatformError], [ErrClosed], or that of ctx.
func (c *Conn) Do(ctx context.Context, action string, request, result any) error {
	a, err := c.Ask(ctx, action, request)
	switch {
	case err != nil:
		return err
	case a.Type == "":
		return fmt.Errorf("%s: %w", action, &PlatformError{a.Platform, a.RequestID})
	case a.Type == wire.TypeError:
		return &Refusal{a.Error}
	case result == nil:
		return nil
	}
	if err := json.Unmarshal(a.Result, result); err != nil {
		return fmt.Errorf("reading the result of %s: %w", action, err)
	}
	return nil
}

// Ask sends a request under a new id and waits for its answer.
func (c *Conn) Ask(ctx context.Context, action string, request any) (Answer, error) {
	c.mu.Lock()
	c.requests++
	id := strconv.Itoa(c.requests)
	c.mu.Unlock()
	frame, err := Frame(action, id, request)
	if err != nil {
		return Answer{}, err
	}
	return c.Exchange(ctx, id, frame)
}

// Frame adds action and id to a request, which may be nil.
func Frame(action, id string, request any) ([]byte, error) {
	header, err := wire.Encode(wire.Header{Action: action, ID: id})
	if err != nil || request == nil {
		return header, err
	}
	encoded, err := wire.Encode(request)
	if err != nil {
		return nil, err
	}
	if string(encoded) == "{}" {
		return header, nil
	}
	return append(append(header[:len(header)-1], ','), encoded[1:]...), nil
}

// Exchange writes a frame as it is and waits for the answer to this id, or for
// one without id.
func (c *Conn) Exchange(ctx context.Context, id string, frame []byte) (Answer, error) {
	waiter, forget := c.Expect(id)
	defer forget()
	if err := c.Write(ctx, websocket.MessageText, frame); err != nil {
		return Answer{}, fmt.Errorf("%w: %w", ErrClosed, err)
	}
	select {
	case a := <-waiter:
		return a, nil
	case <-c.closed:
		return Answer{}, fmt.Errorf("%w before the answer: %w", ErrClosed, c.err)
	case <-ctx.Done():
		return Answer{}, fmt.Errorf("waiting for the answer to %.100s: %w", frame, ctx.Err())
	}
}

// Expect makes room for the answer to this id, until forget.
func (c *Conn) Expect(id string) (answer <-chan Answer, forget func()) {
	waiter := make(chan Answer, 1)
	c.mu.Lock()
	c.waiting[id] = waiter
	c.mu.Unlock()
	return waiter, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, id)
	}
}
