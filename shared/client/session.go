package client

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/inorder-im/inorder/shared/wire"
)

// session is one connection. It matches answers to requests, and ends when the
// socket does, when nobody answers, or when its time is over.
type session struct {
	conn  *websocket.Conn
	ctx   context.Context // ends with the session; its cause says why
	end   context.CancelCauseFunc
	limit time.Duration // for an answer
	log   *slog.Logger
	work  sync.WaitGroup // what runs for this session, besides the reader
	pulls chan struct{}  // a place for each sync under way
	kick  chan struct{}  // asks for another round of catching up

	rechecks chan struct{} // a place for a conversation that is read again
	sends    chan struct{} // a place for each write under way

	born   time.Time
	heard  atomic.Int64 // time since born at which a frame came
	nextID atomic.Int64
	useful atomic.Bool // a request was answered
	probed atomic.Bool // a probe is under way

	mu      sync.Mutex
	waiting map[string]chan frame
	over    bool // nothing may be started any more

	// Guarded by the client's mutex:
	known      bool // whose connection it is: until then nothing is sent over it, and nothing taken in
	passedOver bool // a push came before that
	due        bool // the outbox was to be sent before that
	ready      bool // the outbox may be sent
}

// errLifeOver ends a session whose connection is to be replaced.
var errLifeOver = errors.New("the connection has lived long enough")

func (c *Client) connect() (*session, error) {
	ctx, cancel := context.WithTimeout(c.ctx, c.cfg.DialTimeout)
	defer cancel()
	token, err := c.cfg.Token(ctx)
	if err != nil {
		return nil, fmt.Errorf("getting a token: %w", err)
	}
	sub := subjectOf(token)
	if sub != "" && sub != c.cfg.UserID {
		return nil, fmt.Errorf("%w: its sub is %q, UserID is %q", ErrWrongUser, sub, c.cfg.UserID)
	}
	//nolint:bodyclose // Dial: "you never need to close resp.Body yourself"
	conn, response, err := websocket.Dial(ctx, c.url, &websocket.DialOptions{
		HTTPClient: c.http,
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}},
	})
	if err != nil {
		if response != nil && response.StatusCode != http.StatusSwitchingProtocols {
			return nil, refusedHandshake(response)
		}
		return nil, fmt.Errorf("connecting to %s: %w", c.cfg.URL, err)
	}
	conn.SetReadLimit(maxMessageBytes)
	s := &session{
		conn: conn, limit: c.cfg.RequestTimeout, log: c.cfg.Log,
		pulls: make(chan struct{}, pullsAtOnce), kick: make(chan struct{}, 1), rechecks: make(chan struct{}, 1),
		sends: make(chan struct{}, sendsAtOnce),
		born:  time.Now(), waiting: map[string]chan frame{}, known: sub != "",
	}
	s.ctx, s.end = context.WithCancelCause(c.ctx)
	return s, nil
}

// subjectOf reads the sub of a JWT; "" if it cannot be read, and the server has to say
// whose it is. Who signed it is for the server to check.
func subjectOf(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Sub string `json:"sub"`
	}
	_ = json.Unmarshal(payload, &claims)
	return claims.Sub
}

// refusedHandshake reads the reason; the websocket package leaves the first
// kilobyte of the body.
func refusedHandshake(response *http.Response) error {
	var said struct {
		Message string `json:"message"`
	}
	_ = json.NewDecoder(response.Body).Decode(&said) // it may say nothing
	return &HandshakeError{Status: response.StatusCode, Reason: said.Message}
}

// request sends a request and reads its result into result. The error is
// retryable unless the server refused the request or the request is too large;
// in any case but a refusal it may have been carried out.
func (s *session) request(ctx context.Context, action string, request, result any) error {
	id := strconv.FormatInt(s.nextID.Add(1), 10)
	data, err := encodeRequest(action, id, request)
	if err != nil {
		return err
	}
	answered := make(chan frame, 1)
	s.mu.Lock()
	s.waiting[id] = answered
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.waiting, id)
		s.mu.Unlock()
	}()
	asked := time.Since(s.born)
	if err := s.write(data); err != nil { //nolint:contextcheck // see there
		return again(fmt.Errorf("%s: %w", action, err))
	}
	timer := time.NewTimer(s.limit)
	defer timer.Stop()
	select {
	case f := <-answered:
		if err := read(f, result); err != nil {
			return fmt.Errorf("%s: %w", action, err)
		}
		s.useful.Store(true)
		return nil
	case <-s.ctx.Done():
		return s.ended(action)
	case <-ctx.Done():
		if s.ctx.Err() != nil { // ctx may be part of it
			return s.ended(action)
		}
		return context.Cause(ctx)
	case <-timer.C:
		err := fmt.Errorf("%s: no answer within %s", action, s.limit)
		if time.Duration(s.heard.Load()) <= asked {
			s.end(fmt.Errorf("the server stopped answering: %w", err))
		}
		return again(err)
	}
}

// probe ends the session unless anything is heard within probeTime: a socket whose other
// end is gone can look open for many minutes.
func (s *session) probe() {
	if !s.probed.CompareAndSwap(false, true) {
		return
	}
	started := s.start(func() {
		defer s.probed.Store(false)
		ctx, cancel := context.WithTimeout(s.ctx, probeTime)
		defer cancel()
		asked := time.Since(s.born)
		err := s.request(ctx, wire.ActionPing, nil, nil)
		if errors.Is(err, context.DeadlineExceeded) && time.Duration(s.heard.Load()) <= asked {
			s.end(errors.New("the server stopped answering"))
		}
	})
	if !started {
		s.probed.Store(false)
	}
}

func (s *session) ended(action string) error {
	return again(fmt.Errorf("%s: the connection ended before the answer: %w", action, context.Cause(s.ctx)))
}

// write uses the session's context, not the caller's: a write that is given up
// half-way ends the connection.
func (s *session) write(data []byte) error {
	ctx, cancel := context.WithTimeout(s.ctx, s.limit)
	defer cancel()
	if err := s.conn.Write(ctx, websocket.MessageText, data); err != nil {
		s.end(err)
		return context.Cause(s.ctx)
	}
	return nil
}

func read(f frame, result any) error {
	if f.Type != wire.TypeReply {
		return f.failure()
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(f.Result, result); err != nil {
		return violated("a result that cannot be read: %v", err)
	}
	return nil
}

// deliver gives an answer to who waits for it, and one without an id to all:
// every request may be repeated.
func (s *session) deliver(f frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.ID != "" {
		s.hand(f.ID, f)
		return
	}
	for id := range s.waiting {
		s.hand(id, f)
	}
}

func (s *session) hand(id string, f frame) {
	answered, ok := s.waiting[id]
	if !ok {
		return // late or repeated
	}
	delete(s.waiting, id)
	answered <- f // it has room for one
}

// start runs work that the session's end waits for; it is false if that has come.
func (s *session) start(work func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	s.work.Go(work)
	return true
}

// inTurn does work once it has each of these places.
func (s *session) inTurn(work func() error, places ...chan struct{}) error {
	for _, place := range places {
		select {
		case place <- struct{}{}:
			defer func() { <-place }()
		case <-s.ctx.Done():
			return again(context.Cause(s.ctx))
		}
	}
	return work()
}

// serve runs a session to its end and gives the reason.
func (c *Client) serve(s *session) error {
	s.start(func() { c.limitLife(s) })
	s.start(func() { c.keepUp(s) })
	s.end(c.receive(s))
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.work.Wait()
	_ = s.conn.CloseNow() // it is closed already, by the end of its context
	return context.Cause(s.ctx)
}

// receive takes in frames until the connection ends.
func (c *Client) receive(s *session) error {
	bad := 0
	for {
		kind, data, err := s.conn.Read(s.ctx)
		if err != nil {
			return fmt.Errorf("the connection was lost: %w", err)
		}
		s.heard.Store(int64(time.Since(s.born)))
		var f frame
		if kind == websocket.MessageText {
			f, err = decode(data)
		} else {
			err = violated("a binary frame of %d bytes", len(data))
		}
		if err == nil {
			err = c.received(s, f)
		}
		switch {
		case err == nil:
		case errors.Is(err, ErrProtocol):
			bad++
			c.reportViolation(err)
			if bad == maxBadFrames {
				return fmt.Errorf("%d frames of nonsense, the last: %w", bad, err)
			}
		default:
			return err
		}
	}
}

func (c *Client) received(s *session, f frame) error {
	switch f.Type {
	case wire.TypeReply, wire.TypeError, "":
		s.deliver(f)
	case wire.TypePush, wire.TypeNotify, wire.TypeReceipt:
		switch {
		case c.passesOver(s):
		case f.Type == wire.TypeReceipt:
			return c.receipt(f)
		default:
			return c.pushed(s, f)
		}
	case wire.TypeChanged:
		s.wake()
	case wire.TypeGoodbye:
		return goodbye(f.Reason)
	}
	return nil
}

// passesOver reports whether a push is not to be taken in, because it may be for another
// user. Once the user is known the client asks again what changed.
func (c *Client) passesOver(s *session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.passedOver = s.passedOver || !s.known
	return !s.known
}

// identify takes in whom the server takes the device's user for. It ends the session of
// another user, before anything was sent or taken in.
func (c *Client) identify(s *session, userID string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case userID == c.cfg.UserID:
	case userID != "":
		s.end(fmt.Errorf("%w: the server knows it as that of %q, UserID is %q", ErrWrongUser, userID, c.cfg.UserID))
		return context.Cause(s.ctx)
	case !s.known:
		return violated("changes did not name the user, and the token is none that names one")
	}
	if s.known {
		return nil
	}
	s.known = true
	if s.passedOver {
		s.wake()
	}
	if s.due {
		c.openOutbox(s)
	}
	c.news.fire()
	return nil
}

// wake asks for another round of catching up.
func (s *session) wake() {
	select {
	case s.kick <- struct{}{}:
	default: // asked already
	}
}

func goodbye(reason string) error {
	switch reason {
	case wire.GoodbyeReplaced:
		return ErrReplaced
	case wire.GoodbyeDevices:
		return ErrTooManyDevices
	}
	return fmt.Errorf("the server said goodbye: %q", reason)
}

// limitLife ends the session when its time is over.
func (c *Client) limitLife(s *session) {
	if sleep(s.ctx, c.cfg.MaxLife-jitterWithin(c.cfg.MaxLife/10), nil) {
		s.end(errLifeOver)
	}
}

// farewell closes an open connection in order, if that is quickly done.
func (s *session) farewell() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = s.conn.Close(websocket.StatusNormalClosure, "")
	}()
	timer := time.NewTimer(goodbyeTime)
	defer timer.Stop()
	select {
	case <-closed:
	case <-timer.C:
	}
	s.end(ErrClosed)
	<-closed
}
