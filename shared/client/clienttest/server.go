package clienttest

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// Fate is what becomes of a request.
type Fate int

// The fates of a request.
const (
	Handle    Fate = iota // it is carried out and answered
	Ignore                // it gets lost
	LoseReply             // it is carried out, its answer gets lost
	CutBefore             // the connection breaks before it
	CutAfter              // the connection breaks after it was carried out
	Busy                  // it is refused with BUSY
	Platform              // API Gateway answers in place of the function
	Garbage               // its answer cannot be read
	Missing               // it is refused with NOT_FOUND
	TooFast               // it is refused with BUSY, for RetryAfter
	Full                  // likewise, for its conversation takes no more just now
	Throttled             // API Gateway throttles it
)

// RetryAfter is for how long the server refuses a request that comes too fast.
const RetryAfter = 7 * time.Second

// Request is one that a device sent. Body is the whole frame.
type Request struct {
	UserID, DeviceID, Action string
	Body                     []byte
}

// Hooks are where a test interferes. Each may be nil. They are called from several
// goroutines, those from OnSync on while the server does nothing else: they must not call
// its methods.
type Hooks struct {
	// OnRequest decides what becomes of a request, before it is carried out.
	OnRequest func(Request) Fate
	// OnPush decides how often a device is pushed a frame, and how late; 0 copies lose it.
	OnPush func(userID, deviceID string) (copies int, delay time.Duration)
	// OnHandshake returns the HTTP status with which a connection is refused; 0 lets it
	// pass.
	OnHandshake func(userID, deviceID string) (status int)
	// OnOpen serves a connection in place of the server, until it returns.
	OnOpen func(*Conn)
	// CutAfter returns after how many bytes, in either direction, a new connection of
	// HTTPClient breaks; 0 is never.
	CutAfter func() (bytes int)

	OnSync    func(*wire.Synced)                        // changes the answer to sync
	OnHistory func(*wire.HistoryPage)                   // changes the answer to history
	OnChanges func(*wire.Changed)                       // changes the answer to changes
	OnLine    func(userID string, _ *wire.Conversation) // changes a line of a list
}

// Server is the fake server. It keeps everything in memory, until Close, and answers as the
// corpus in shared/wire/testdata says. Make it with New or Listen, and change its fields
// before the first device connects.
type Server struct {
	// PageSize bounds a page of sync, ListSize one of conversations or changes, RosterSize
	// one of members or receipts. They are what the real server has, which for RosterSize
	// is 0; smaller ones show whether a program reads on.
	PageSize, ListSize, RosterSize int
	// LargeAbove is the number of members above which a conversation is a head in
	// the answer of changes, NotifyAbove that above which it is not pushed whole.
	LargeAbove, NotifyAbove int

	network *network
	http    *http.Server
	url     string
	ctx     context.Context
	cancel  context.CancelFunc
	work    sync.WaitGroup

	hookMu sync.Mutex
	hook   Hooks

	mu            sync.Mutex
	closed        bool
	conversations map[chat.ConversationID]*conversation
	users         map[string]*user
	results       map[string]result
	conns         map[device]*Conn
	counts        map[string]int
	lastID        int64
}

type device struct{ userID, deviceID string }

// Conn is one device's connection.
type Conn struct {
	device
	server *Server
	open   chan struct{} // closed once there is a socket
	ws     *websocket.Conn
}

// New makes a server that is reached by HTTPClient, without a network: so it works in a
// bubble of testing/synctest, too. Call Close in the end.
func New() *Server {
	s := newServer()
	s.network = newNetwork()
	s.url = "ws://fake/prod"
	s.serve(s.network)
	return s
}

// Listen makes a server on a free port of the loopback interface. Call Close in the end.
func Listen(ctx context.Context) (*Server, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	s := newServer()
	s.url = "ws://" + listener.Addr().String() + "/prod"
	s.serve(listener)
	return s, nil
}

func newServer() *Server {
	s := &Server{
		PageSize: wire.DefaultSyncLimit, ListSize: wire.DefaultListLimit, LargeAbove: chat.InboxGroupMax, NotifyAbove: chat.MaxGroupMembers,
		conversations: map[chat.ConversationID]*conversation{},
		users:         map[string]*user{},
		results:       map[string]result{},
		conns:         map[device]*Conn{},
		counts:        map[string]int{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

func (s *Server) serve(l net.Listener) {
	s.http = &http.Server{Handler: http.HandlerFunc(s.handshake), ReadHeaderTimeout: 10 * time.Second}
	s.work.Go(func() { _ = s.http.Serve(l) })
}

// URL is where the server is.
func (s *Server) URL() string { return s.url }

// Close ends the server and all of its connections.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	_ = s.http.Close()
	s.CutAll()
	s.work.Wait()
}

// Interfere replaces all hooks.
func (s *Server) Interfere(h Hooks) {
	s.hookMu.Lock()
	defer s.hookMu.Unlock()
	s.hook = h
}

func (s *Server) hooks() Hooks {
	s.hookMu.Lock()
	defer s.hookMu.Unlock()
	return s.hook
}

// Token returns a token of a user, as Config.Token wants it: a JWT that nobody signed.
func Token(userID string) func(context.Context) (string, error) {
	encode := base64.RawURLEncoding.EncodeToString
	token := encode([]byte(`{"alg":"none"}`)) + "." + encode(fmt.Appendf(nil, `{"sub":%q}`, userID)) + "."
	return func(context.Context) (string, error) { return token, nil }
}

// opaque begins a token that says nothing to a client.
const opaque = "opaque."

// OpaqueToken is Token with one that only the server can read.
func OpaqueToken(userID string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		return opaque + base64.RawURLEncoding.EncodeToString([]byte(userID)), nil
	}
}

// subjectOf returns the user of such a token, "" of another.
func subjectOf(token string) string {
	if encoded, ok := strings.CutPrefix(token, opaque); ok {
		userID, _ := base64.RawURLEncoding.DecodeString(encoded)
		return string(userID)
	}
	var claims struct {
		Sub string `json:"sub"`
	}
	if parts := strings.Split(token, "."); len(parts) == 3 {
		payload, _ := base64.RawURLEncoding.DecodeString(parts[1])
		_ = json.Unmarshal(payload, &claims)
	}
	return claims.Sub
}

// Count returns how often an action was asked for; "connect" counts connections.
func (s *Server) Count(action string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts[action]
}

// CutAll breaks every connection.
func (s *Server) CutAll() {
	s.mu.Lock()
	var all []*Conn
	for _, c := range s.conns {
		all = append(all, c)
	}
	s.mu.Unlock()
	for _, c := range all {
		c.Cut()
	}
}

// Say writes a frame to a device's connection, if it has one.
func (s *Server) Say(userID, deviceID string, frame string) {
	s.mu.Lock()
	c := s.conns[device{userID, deviceID}]
	s.mu.Unlock()
	if c != nil {
		c.Say(frame)
	}
}

// Say writes a frame as it is. It is false if the connection is gone.
func (c *Conn) Say(frame string) bool { return c.write(websocket.MessageText, frame) }

// SayBinary is Say with a binary frame, which the protocol has no use for.
func (c *Conn) SayBinary(frame string) bool { return c.write(websocket.MessageBinary, frame) }

func (c *Conn) write(kind websocket.MessageType, frame string) bool {
	ctx, cancel := context.WithTimeout(c.server.ctx, 10*time.Second)
	defer cancel()
	select {
	case <-c.open:
	case <-ctx.Done():
		return false
	}
	return c.ws != nil && c.ws.Write(ctx, kind, []byte(frame)) == nil
}

// Cut breaks the connection.
func (c *Conn) Cut() {
	<-c.open
	if c.ws != nil {
		_ = c.ws.CloseNow()
	}
}

// Wait reads and drops what the device sends, until the connection ends.
func (c *Conn) Wait() {
	for {
		if _, _, err := c.ws.Read(c.server.ctx); err != nil {
			return
		}
	}
}

// enter lets a handler run, unless the server is closed.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.work.Add(1)
	}
	return !s.closed
}

//nolint:contextcheck // a connection outlives its handshake's context
func (s *Server) handshake(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		return
	}
	defer s.work.Done()
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	d := device{subjectOf(token), r.URL.Query().Get("device")}
	if !bearer || d.userID == "" || d.deviceID == "" {
		http.Error(w, `{"message":"Unauthorized"}`, http.StatusUnauthorized)
		return
	}
	if h := s.hooks().OnHandshake; h != nil {
		if status := h(d.userID, d.deviceID); status != 0 {
			http.Error(w, `{"message":"no entry"}`, status)
			return
		}
	}
	// It is registered before it is open, as on AWS: whoever is connected misses no push.
	c := &Conn{device: d, server: s, open: make(chan struct{})}
	s.mu.Lock()
	s.counts["connect"]++
	old := s.conns[d]
	s.conns[d] = c
	s.mu.Unlock()
	defer s.gone(c)
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true})
	if err == nil {
		ws.SetReadLimit(wire.MaxFrameBytes)
		c.ws = ws
	}
	close(c.open)
	if err != nil {
		return
	}
	if old != nil {
		old.Say(`{"type":"goodbye","reason":"replaced"}`)
		old.Cut()
	}
	if open := s.hooks().OnOpen; open != nil {
		open(c)
		return
	}
	s.listen(c)
}

func (s *Server) gone(c *Conn) {
	c.Cut()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[c.device] == c {
		delete(s.conns, c.device)
	}
}

// listen handles the frames of one connection, each by itself.
func (s *Server) listen(c *Conn) {
	var work sync.WaitGroup
	defer work.Wait()
	for {
		_, data, err := c.ws.Read(s.ctx)
		if err != nil {
			return
		}
		work.Go(func() { s.receive(c, data) })
	}
}

func (s *Server) receive(c *Conn, data []byte) {
	r, err := wire.ReadRequest(data)
	if err != nil {
		c.answer(r.Header, nil, err)
		return
	}
	header, fate := r.Header, Handle
	if h := s.hooks().OnRequest; h != nil {
		fate = h(Request{c.userID, c.deviceID, header.Action, data})
	}
	switch fate {
	case Ignore:
		return
	case CutBefore:
		c.Cut()
		return
	case Busy:
		c.answer(header, nil, chat.Errorf(chat.CodeBusy, "too much at once"))
		return
	case TooFast:
		c.answer(header, nil, chat.BusyFor(RetryAfter, "too fast"))
		return
	case Full:
		c.answer(header, nil, chat.FullFor(RetryAfter, "the conversation takes no more"))
		return
	case Throttled:
		c.Say(`{"message": "Too Many Requests", "connectionId":"x", "requestId":"y"}`)
		return
	case Missing:
		c.answer(header, nil, chat.Errorf(chat.CodeNotFound, "no such conversation"))
		return
	case Platform:
		c.Say(`{"message":"Internal server error","connectionId":"x","requestId":"y"}`)
		return
	}
	result, pushes, err := s.carryOut(c, header.Action, r.Fields)
	s.send(c, header.Action == wire.ActionSend, pushes)
	if header.Action == wire.ActionTell {
		return
	}
	switch fate {
	case CutAfter:
		c.Cut()
	case LoseReply:
	case Garbage:
		c.Say(fmt.Sprintf(`{"type":"reply","id":%q,"action":%q,"result":"?"}`, header.ID, header.Action))
	default:
		c.answer(header, result, err)
	}
}

func (c *Conn) answer(h wire.Header, result any, err error) {
	var frame any = wire.Reply{Type: wire.TypeReply, ID: h.ID, Action: h.Action, Result: result}
	if err != nil {
		e := &chat.Error{Code: chat.CodeInternal, Message: err.Error()}
		if refused, ok := errors.AsType[*chat.Error](err); ok {
			e = refused
		}
		frame = wire.ErrorReply{Type: wire.TypeError, ID: h.ID, Action: h.Action, Error: wire.Error{
			Code: e.Code, Message: e.Message, Retryable: e.Code.Retryable(), Field: e.Field, Details: e.Details,
		}}
	}
	encoded, err := wire.Encode(frame)
	if err != nil {
		panic(err) // the test's own types
	}
	c.Say(string(encoded))
}

// push is a frame for the devices of some users.
type push struct {
	userIDs []string
	frame   any
}

// send pushes frames to all devices of their users but the one whose request led
// to receipts and hints, or that has its message by the answer.
func (s *Server) send(from *Conn, sends bool, pushes []push) {
	for _, p := range pushes {
		encoded, err := wire.Encode(p.frame)
		if err != nil {
			panic(err) // the test's own types
		}
		for _, c := range s.connsOf(p.userIDs) {
			switch p.frame.(type) {
			case wire.Receipt, wire.ChangedHint:
				if c == from {
					continue
				}
			case wire.Push:
				if c == from && sends {
					continue
				}
			}
			s.deliver(c, string(encoded))
		}
	}
}

func (s *Server) deliver(c *Conn, frame string) {
	copies, delay := 1, time.Duration(0)
	if h := s.hooks().OnPush; h != nil {
		copies, delay = h(c.userID, c.deviceID)
	}
	for range copies {
		if delay == 0 {
			c.Say(frame)
			continue
		}
		s.work.Go(func() {
			select {
			case <-time.After(delay):
				c.Say(frame)
			case <-s.ctx.Done():
			}
		})
	}
}

func (s *Server) connsOf(userIDs []string) []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*Conn
	for d, c := range s.conns {
		for _, id := range userIDs {
			if d.userID == id {
				found = append(found, c)
			}
		}
	}
	return found
}
