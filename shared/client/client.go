package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// ConnectionState is how a client stands to the server.
type ConnectionState int

// The states of a connection.
const (
	Connecting ConnectionState = iota // not there, or not there yet
	CatchingUp                        // connected; what was missed is being fetched
	Online                            // connected, and nothing that was missed is missing any more
	Ended                             // for good: by Close, or by a goodbye
)

// String names the state.
func (s ConnectionState) String() string {
	return [...]string{"connecting", "catching up", "online", "ended"}[s]
}

// Client is one device. Its methods may be called from several goroutines.
type Client struct {
	cfg  Config
	url  string
	http *http.Client

	ctx    context.Context // ends with the client; its cause says why
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when nothing runs any more

	mu            sync.Mutex
	state         ConnectionState
	lastErr       error    // why it is not connected
	session       *session // nil while not connected
	closing       bool
	news          signal // whenever state, session or rounds change
	conversations map[chat.ConversationID]*conversation
	buffered      int // messages in all reorder buffers
	syncCursor    int64
	headsCursor   string
	rewinds       int // times that a conversation started over
	telling       bool
	arrived       signal            // whenever a conversation's position moves, or the client ends
	outbox        map[string]*entry // by clientMsgId
	lanes         map[string]*lane  // those that are not empty
	refused       map[string]OutboxEntry
	hurry         signal // by RetryNow
	lastOrder     int64
	asked, made   uint64 // rounds of catching up: asked for by Refresh, and made
	progress      progress
	stats         Stats
	subscriptions map[*subscription]bool
}

// Dial reads the store and starts the client. It does not wait for the
// connection: a device without a network shows what it has and takes messages to
// send. Online waits. ctx is for reading the store only; the client lives until
// Close.
//
// It errs if the configuration is wrong or the store cannot be read.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	url, err := cfg.endpoint()
	if err != nil {
		return nil, err
	}
	state, err := cfg.Store.Load(ctx, cfg.UserID)
	if err != nil {
		return nil, fmt.Errorf("loading the store: %w", err)
	}
	c := &Client{
		cfg: cfg, url: url, http: cfg.HTTPClient,
		done:          make(chan struct{}),
		conversations: map[chat.ConversationID]*conversation{},
		outbox:        map[string]*entry{},
		lanes:         map[string]*lane{},
		refused:       map[string]OutboxEntry{},
		subscriptions: map[*subscription]bool{},
	}
	var idle func()
	if c.http == nil {
		c.http, idle = newHTTPClient()
	}
	if err := c.load(state); err != nil {
		return nil, fmt.Errorf("loading the store: %w", err)
	}
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	go func() { //nolint:contextcheck // the client outlives ctx
		defer close(c.done)
		c.run()
		if idle != nil {
			idle()
		}
	}()
	return c, nil
}

// newHTTPClient makes one that keeps no connection of its own open.
func newHTTPClient() (*http.Client, func()) {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSHandshakeTimeout: 10 * time.Second}
	return &http.Client{Transport: transport}, transport.CloseIdleConnections
}

func (c *Client) load(state State) error {
	c.syncCursor = state.SyncCursor
	for _, stored := range state.Conversations {
		cv := newConversation(stored.ConversationID)
		cv.known = stored
		cv.ledger.contiguous = stored.MaxContiguousSeq
		cv.ledger.seen = max(stored.MaxSeenSeq, stored.MaxContiguousSeq)
		cv.ledger.cleared = stored.ClearedSeq
		c.conversations[stored.ConversationID] = cv
	}
	for _, m := range state.Buffered {
		cv := c.conversation(m.ConversationID)
		cv.ledger.early = append(cv.ledger.early, m)
		cv.ledger.see(m.Seq)
		c.buffered++
	}
	for _, stored := range state.Outbox {
		request, err := decodeWrite(stored)
		if err != nil {
			return err
		}
		if stored.Refused != nil {
			c.refused[stored.ClientMsgID] = stored
			c.lastOrder = max(c.lastOrder, stored.Order)
			continue
		}
		if send, ok := request.(wire.Send); ok && stored.ConversationID == "" {
			stored.ConversationID = laneOf(send, c.cfg.UserID) // an earlier version did not store it
		}
		c.enqueue(&entry{OutboxEntry: stored, request: request})
	}
	return nil
}

// Close ends the client and waits until nothing of it runs any more. What is in
// the outbox stays in the store. It closes the connection in order, for which it
// takes at most a second or so. The store is the caller's to close.
func (c *Client) Close() {
	c.mu.Lock()
	c.closing = true
	s := c.session
	c.mu.Unlock()
	if s != nil {
		s.farewell()
	}
	c.cancel(ErrClosed)
	<-c.done
}

// run keeps a connection up until the client ends.
func (c *Client) run() {
	for failures := 0; ; {
		stable, err := c.live()
		if c.ctx.Err() != nil || c.isClosing() {
			c.ended(ErrClosed)
			return
		}
		if errors.Is(err, ErrReplaced) || errors.Is(err, ErrTooManyDevices) || errors.Is(err, ErrWrongUser) {
			c.cfg.Log.Warn("stays away for good", "err", err)
			c.ended(err)
			return
		}
		if stable {
			failures = 0
		}
		pause := c.cfg.jitter(failures)
		failures++
		c.cfg.Log.Info("not connected", "err", err, "pause", pause, "failures", failures)
		c.setState(Connecting, err, nil)
		if !c.pause(pause) {
			c.ended(ErrClosed)
			return
		}
	}
}

// pause waits before the next attempt to connect, unless RetryNow is called. It is false if
// the client ended.
func (c *Client) pause(d time.Duration) bool {
	c.mu.Lock()
	hurry := c.hurry.wait()
	c.mu.Unlock()
	return sleep(c.ctx, d, hurry)
}

// RetryNow is for when the network may have changed, or the machine slept: a client that
// waits to connect does so at once, and a connection that shows no life within seconds is
// replaced. Without it the next heartbeat would tell.
func (c *Client) RetryNow() {
	c.mu.Lock()
	s := c.session
	c.hurry.fire()
	c.mu.Unlock()
	if s != nil {
		s.probe()
	}
}

// live makes one connection and stays until it ends. stable says that it was of
// use, and for long enough not to count as a failure: a server that accepts
// connections and drops them is not to be asked again and again at once.
func (c *Client) live() (stable bool, err error) {
	s, err := c.connect()
	if err != nil {
		return false, err
	}
	c.setState(CatchingUp, nil, s)
	c.cfg.Log.Debug("connected", "device", c.cfg.DeviceID)
	err = c.serve(s)
	return s.useful.Load() && time.Since(s.born) >= stableAfter, err
}

func (c *Client) isClosing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}

// setState notes a new state, and the session that it comes with.
func (c *Client) setState(state ConnectionState, err error, s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing && s != nil {
		s.end(ErrClosed) // Close came while the handshake was under way
	}
	if c.session == nil && s != nil {
		c.stats.Connects++
	}
	c.state, c.session = state, s
	if err != nil || state == Online {
		c.lastErr = err
	}
	c.news.fire()
	c.publish(StateChanged{State: state, Err: err})
}

// ended makes the end known to all who wait.
func (c *Client) ended(err error) {
	c.cancel(err)
	c.setState(Ended, err, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cv := range c.conversations {
		cv.news.fire()
	}
	c.arrived.fire()
}

// State returns the state of the connection, and if it is not up the reason.
func (c *Client) State() (ConnectionState, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state, c.lastErr
}

// Online waits until the client is connected and has caught up. If ctx ends
// before, the error also says what kept the client away so far.
func (c *Client) Online(ctx context.Context) error {
	return c.await(ctx, "waiting to be online", func() bool { return c.state == Online })
}

// Refresh asks what changed and pulls it, and returns when that is stored: all
// that was committed before the call is there then. The client does so by itself
// after each connect and from time to time.
func (c *Client) Refresh(ctx context.Context) error {
	c.mu.Lock()
	c.asked++
	round := c.asked
	if c.session != nil {
		c.session.wake()
	}
	c.mu.Unlock()
	return c.await(ctx, "catching up", func() bool { return c.made >= round && !c.rechecks() })
}

// rechecks reports whether anything is still to be read again. The caller holds the mutex.
func (c *Client) rechecks() bool {
	for _, cv := range c.conversations {
		if cv.unchecked() > 0 {
			return true
		}
	}
	return false
}

// await waits until hold, which is called with the mutex, is true.
func (c *Client) await(ctx context.Context, what string, hold func() bool) error {
	for {
		c.mu.Lock()
		held, news := hold(), c.news.wait()
		ended := c.state == Ended
		c.mu.Unlock()
		switch {
		case held:
			return nil
		case ended:
			return c.why()
		}
		select {
		case <-news:
		case <-ctx.Done():
			_, lastErr := c.State()
			return stopped(what, ctx, lastErr)
		}
	}
}

// stopped says that ctx ended, and what stood in the way until then.
func stopped(what string, ctx context.Context, obstacle error) error { //nolint:revive // ctx is the subject, not the scope
	if obstacle == nil {
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	return fmt.Errorf("%s: %w; before that: %w", what, context.Cause(ctx), obstacle)
}

// why returns what ended the client.
func (c *Client) why() error { return context.Cause(c.ctx) }

// do sends a request until it is answered, over reconnects, until ctx or the
// client ends.
func (c *Client) do(ctx context.Context, action string, request, result any) error {
	var obstacle error
	for failures := 0; ; failures++ {
		var s *session
		err := c.await(ctx, action, func() bool {
			s = c.session
			return s != nil && s.known
		})
		if err != nil {
			return err
		}
		err = s.request(ctx, action, request, result)
		if err == nil || isRefusal(err) {
			return err
		}
		c.noteError(err)
		if ctx.Err() == nil {
			obstacle = err
		}
		select {
		case <-time.After(c.cfg.pauseAfter(err, failures)):
		case <-ctx.Done():
			return stopped(action, ctx, obstacle)
		case <-c.ctx.Done():
			return c.why()
		}
	}
}

func (c *Client) noteError(err error) {
	if errors.Is(err, ErrProtocol) {
		c.reportViolation(err)
	}
}

func (c *Client) reportViolation(err error) {
	c.cfg.Log.Warn("ignored what the server sent", "err", err)
	c.mu.Lock()
	c.stats.Violations++
	c.mu.Unlock()
}

// Stats are counts since Dial.
type Stats struct {
	Connects   int64 // connections that were made
	Pushed     int64 // messages that came by push
	Pulled     int64 // messages that came by sync
	Pages      int64 // sync answers
	Repeated   int64 // pushed messages that were there already
	Gaps       int64 // times a message was missing for longer than GapWait
	Overflowed int64 // early messages that the reorder buffer had no room for
	Resent     int64 // attempts to send a write after the first
	Violations int64 // answers and frames that the protocol does not allow
}

// Stats returns the counts so far.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// conversation returns the state of a conversation, a new one if there is none.
// The caller holds the mutex.
func (c *Client) conversation(id chat.ConversationID) *conversation {
	cv := c.conversations[id]
	if cv == nil {
		cv = newConversation(id)
		c.conversations[id] = cv
	}
	return cv
}

// conversation is what a client holds of a conversation, guarded by its mutex.
type conversation struct {
	id      chat.ConversationID
	known   Conversation // as stored
	ledger  ledger
	news    signal        // whenever the position moves, or the client ends
	pulling chan struct{} // holds a place while a pull is under way
	readers map[*reader]bool

	held      int64    // how far the device knew it when changes was last asked
	doubted   bool     // the server may not have what is held any more
	confirmed *session // that the position was compared in with the server's ledger
	rewinds   int      // times that it started over

	minded   bool          // a goroutine of the session waits for the gap to close
	patience time.Duration // the shortest wait that was asked for this gap
	wait     time.Duration // how long it waits, with the spread; 0 without a gap
	due      time.Time     // when that is over
	sooner   signal        // whenever due comes nearer
}

func newConversation(id chat.ConversationID) *conversation {
	cv := &conversation{id: id, pulling: make(chan struct{}, 1), readers: map[*reader]bool{}}
	cv.known.ConversationID = id
	cv.known.Kind, _ = id.Kind()
	return cv
}

// exists reports whether anything is known of the conversation.
func (cv *conversation) exists() bool {
	return cv.ledger.seen > 0 || cv.known.State != "" || cv.known.HasOrphans
}

// behind reports whether there is anything to pull.
func (cv *conversation) behind() bool { return cv.ledger.gap() || cv.doubted || cv.unchecked() > 0 }

// unchecked is the last seq that is to be read again, 0 if there is none.
func (cv *conversation) unchecked() int64 {
	if cv.known.RecheckSeq <= max(cv.known.BaseSeq, cv.ledger.cleared) {
		return 0 // nothing is held there
	}
	return cv.known.RecheckSeq
}

// record is the conversation as it is to be stored.
func (cv *conversation) record() Conversation {
	r := cv.known
	r.Receipts = maps.Clone(r.Receipts)
	r.MaxContiguousSeq, r.MaxSeenSeq = cv.ledger.contiguous, cv.ledger.seen
	return r
}

// signal wakes all who wait. It is guarded by its owner's mutex.
type signal struct{ ch chan struct{} }

func (s *signal) wait() <-chan struct{} {
	if s.ch == nil {
		s.ch = make(chan struct{})
	}
	return s.ch
}

func (s *signal) fire() {
	if s.ch != nil {
		close(s.ch)
		s.ch = nil
	}
}

func jitterWithin(d time.Duration) time.Duration {
	return rand.N(d + 1) //nolint:gosec // no secret
}
