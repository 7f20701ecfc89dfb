package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/apigatewaymanagementapi"
	smithytime "github.com/aws/smithy-go/time"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/inorder-im/inorder/shared/limit"
	"github.com/inorder-im/inorder/shared/push"
	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/regiontest"
	"github.com/inorder-im/inorder/shared/wire"
)

// What stands around DynamoDB and the functions in a region, as the developer guides of
// Lambda, API Gateway and DynamoDB Streams have it, in virtual time. Figures that no guide
// has are what such a stack usually shows.
const (
	shards   = 4                      // of a new table's stream
	pollEach = 250 * time.Millisecond // of a shard in which there was nothing: four times a second

	coldStart  = 250 * time.Millisecond
	invocation = 2 * time.Millisecond  // what each takes besides what it waits for
	postTime   = 10 * time.Millisecond // of a request to @connections
	postsOfAll = 10_000                // a second, of the account
	queuePoll  = 20 * time.Millisecond
)

func jittered(mean time.Duration) time.Duration {
	return time.Duration(float64(mean) * (0.7 + 0.6*rand.Float64()))
}

// defaults are those of template.yaml's parameters, by the names of the variables that
// functions get them by.
func defaults(t *testing.T) func(variable string) string {
	t.Helper()
	raw, err := os.ReadFile("../../template.yaml")
	require.NoError(t, err)
	var template struct {
		Parameters map[string]struct {
			Default string `yaml:"Default"`
		} `yaml:"Parameters"`
	}
	require.NoError(t, yaml.Unmarshal(raw, &template))
	return func(variable string) string {
		name := ""
		for word := range strings.SplitSeq(variable, "_") {
			name += word[:1] + strings.ToLower(word[1:])
		}
		return template.Parameters[name].Default
	}
}

// account is what all functions share: the environments that run at a time.
type account struct {
	quota int

	mu        sync.Mutex
	busy      int
	most      int
	throttled int
}

func (a *account) enter() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.busy == a.quota {
		a.throttled++
		return false
	}
	a.busy++
	a.most = max(a.most, a.busy)
	return true
}

func (a *account) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busy--
}

// function is one of them, with the environments that are idle: the one used last goes
// first.
type function[E any] struct {
	account *account
	timeout time.Duration
	start   func() E // of an environment

	mu   sync.Mutex
	idle []E
}

// invoke is false where the account has no environment left.
func (f *function[E]) invoke(serve func(context.Context, E)) bool {
	if !f.account.enter() {
		return false
	}
	defer f.account.leave()
	e := f.environment()
	time.Sleep(jittered(invocation))
	ctx, cancel := context.WithTimeout(context.Background(), f.timeout)
	defer cancel()
	serve(ctx, e)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.idle = append(f.idle, e)
	return true
}

func (f *function[E]) environment() E {
	f.mu.Lock()
	if n := len(f.idle); n > 0 {
		e := f.idle[n-1]
		f.idle = f.idle[:n-1]
		f.mu.Unlock()
		return e
	}
	f.mu.Unlock()
	time.Sleep(jittered(coldStart))
	return f.start()
}

// socket is a device's connection, as API Gateway has it.
type socket struct {
	id, user, device string
	connectedAt      time.Time
	refuses          int // the status that posts to it get; 0: they arrive
	hear             func(frame []byte)

	mu     sync.Mutex
	closed bool
}

func (s *socket) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

var errShut = errors.New("the socket is closed")

// cloud is a stack in a region.
type cloud struct {
	t       *testing.T
	region  *regiontest.Region
	account *account
	getenv  func(string) string

	connect              *function[*connecting]
	disconnect           *function[*store.Store]
	writes, reads, makes *function[route.Handler] // send, sync and conversation
	fanout               *function[handler]
	retries              chan string

	mu      sync.Mutex
	sockets map[string]*socket
	routes  *limit.Limiter // API Gateway's, by route
	posts   *limit.Limiter
	made    int
	shut    int      // frames that API Gateway refused
	lost    int      // pushes that did not come
	aside   int      // conversations that were set aside, each time
	buried  []string // for an operator
}

// connecting is an environment of the connect function. The authorizer before it asks
// nothing that this account could wear out.
type connecting struct {
	store      *store.Store
	handshakes *limit.Shared
	pusher     *push.Pusher
}

func newCloud(t *testing.T, quota int) *cloud {
	t.Helper()
	c := &cloud{
		t: t, account: &account{quota: quota}, getenv: defaults(t), sockets: map[string]*socket{}, retries: make(chan string, 10_000),
		posts:  limit.New(limit.Rate{PerSecond: postsOfAll, Burst: postsOfAll / 2}, time.Now),
		region: regiontest.WithTables(regiontest.Usual()),
	}
	c.routes = limit.New(c.rate("REQUESTS_PER_SECOND", "REQUEST_BURST"), time.Now)
	c.connect = lambda(c, func() *connecting {
		s, p := c.store(), c.pusher()
		return &connecting{s, limit.NewShared(c.rate("USER_CONNECTS_PER_SECOND", "USER_CONNECT_BURST"), time.Now, s.Charge(store.RequestHandshakes)), p}
	})
	c.disconnect = lambda(c, c.store)
	c.writes = lambda(c, func() route.Handler { return c.routesOf(store.RequestWrites) })
	c.makes = lambda(c, func() route.Handler { return c.routesOf(store.RequestWrites) })
	c.reads = lambda(c, func() route.Handler { return c.routesOf(store.RequestReads) })
	c.fanout = lambda(c, func() handler {
		s := c.store()
		return handler{store: s, rosters: store.NewRosters(s), pusher: c.pusher(), queue: c, log: slog.New(slog.DiscardHandler), now: time.Now}
	})
	c.fanout.timeout = time.Minute
	return c
}

func lambda[E any](c *cloud, start func() E) *function[E] {
	return &function[E]{account: c.account, timeout: 10 * time.Second, start: start}
}

func (c *cloud) rate(perSecond, burst string) limit.Rate {
	r, err := limit.RateFromEnv(c.getenv, perSecond, burst)
	require.NoError(c.t, err)
	return r
}

func (c *cloud) store() *store.Store {
	options, err := store.OptionsFromEnv(c.getenv)
	require.NoError(c.t, err)
	return store.New(c.region.Client(), regiontest.Tables(), options...)
}

func (c *cloud) pusher() *push.Pusher {
	endpoint := "https://api.example.com/v1"
	return push.New(apigatewaymanagementapi.New(apigatewaymanagementapi.Options{
		Region: "us-east-1", BaseEndpoint: &endpoint, HTTPClient: c, Credentials: credentials.NewStaticCredentialsProvider("id", "secret", ""),
	}))
}

// routesOf are the routes that the attack and the pairs use. Their functions are
// other packages main, and what those do beside this is to choose fields.
func (c *cloud) routesOf(kind store.Requests) route.Handler {
	s, p := c.store(), c.pusher()
	rate := c.rate("WRITES_PER_SECOND", "WRITE_BURST")
	if kind == store.RequestReads {
		rate = c.rate("READS_PER_SECOND", "READ_BURST")
	}
	attend := route.NewAttend(slog.New(slog.DiscardHandler), s, p)
	return route.Serve(slog.New(slog.DiscardHandler), p, route.NewLimits(rate, time.Now, s.Charge(kind), s.Charge(kind.Refused()), p), map[string]route.Action{
		wire.ActionSend: route.To(func(ctx context.Context, caller route.Caller, r wire.Send) (wire.Sent, error) {
			committed, err := s.Append(ctx, messageOf(caller, r), r.To)
			return committed.Sent, err
		}),
		wire.ActionCreateGroup: route.To(func(ctx context.Context, caller route.Caller, r wire.CreateGroup) (wire.Created, error) {
			line, _, err := s.CreateGroup(ctx, store.Request{UserID: caller.UserID, DeviceID: caller.DeviceID, ClientMsgID: r.ClientMsgID}, r.Title, r.Members, "all")
			return wire.Created{Conversation: wire.Listed(line.View, line.Last)}, err
		}),
		wire.ActionChanges: route.To(func(ctx context.Context, caller route.Caller, r wire.Changes) (wire.Changed, error) {
			attend(ctx, caller)
			changed, err := s.Changes(ctx, caller.UserID, *r.SyncCursor, r.HeadsCursor, wire.DefaultListLimit)
			return wire.Changed{SyncCursor: changed.Cursor}, err
		}),
		wire.ActionConversations: route.To(func(ctx context.Context, caller route.Caller, _ wire.Conversations) (wire.ConversationsPage, error) {
			_, next, err := s.List(ctx, caller.UserID, "", wire.DefaultListLimit)
			return wire.ConversationsPage{Cursor: next}, err
		}),
		wire.ActionSync: route.To(func(ctx context.Context, caller route.Caller, r wire.Sync) (wire.Synced, error) {
			page, err := s.Sync(ctx, caller.UserID, r.ConversationID, *r.AfterSeq, wire.DefaultSyncLimit, caller.Room)
			return wire.Synced{Messages: page.Messages, NextSeq: page.NextSeq}, err
		}),
	})
}

// dial is a handshake, and the socket if it gets through.
func (c *cloud) dial(user, device string, refuses int, hear func([]byte)) (*socket, error) {
	c.mu.Lock()
	c.made++
	s := &socket{id: fmt.Sprint("c", c.made), user: user, device: device, connectedAt: time.Now(), refuses: refuses, hear: hear}
	c.sockets[s.id] = s
	c.mu.Unlock()
	err := errShut
	c.connect.invoke(func(ctx context.Context, f *connecting) {
		wait, uncharged := f.handshakes.Take(ctx, user)
		if wait > 0 || uncharged != nil {
			return
		}
		var displaced store.Displaced
		displaced, err = f.store.Connect(ctx, user, store.Connection{ID: s.id, DeviceID: device, ConnectedAt: s.connectedAt.UnixMilli()})
		for _, old := range append(displaced.Replaced, displaced.Surplus...) {
			_ = f.pusher.Dismiss(ctx, old.ID, wire.GoodbyeReplaced)
		}
	})
	if err != nil {
		c.shutSocket(s)
		return nil, err
	}
	return s, nil
}

func (c *cloud) shutSocket(s *socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sockets, s.id)
}

// frame is what a device sends, and the answer.
func (c *cloud) frame(s *socket, action string, request any) (answer []byte, err error) {
	if s.isClosed() {
		return nil, errShut
	}
	if c.routes.Take(action) > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.shut++
		return []byte(`{"message": "Too Many Requests"}`), nil
	}
	fields := map[string]any{}
	raw, err := json.Marshal(request)
	if err == nil {
		err = json.Unmarshal(raw, &fields)
	}
	if err != nil {
		return nil, err
	}
	fields["action"], fields["id"] = action, "r"
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	return c.forward(s, action, string(body)), nil
}

func (c *cloud) forward(s *socket, action, body string) []byte {
	f := c.reads
	switch action {
	case wire.ActionSend:
		f = c.writes
	case wire.ActionCreateGroup:
		f = c.makes
	}
	answer := []byte(`{"message": "Internal server error"}`)
	f.invoke(func(ctx context.Context, serve route.Handler) {
		response, err := serve(ctx, events.APIGatewayWebsocketProxyRequest{Body: body, RequestContext: events.APIGatewayWebsocketProxyRequestContext{
			ConnectionID: s.id, ConnectedAt: s.connectedAt.UnixMilli(), RequestID: "q",
			Authorizer: map[string]any{"principalId": s.user, "device": s.device},
		}})
		if err == nil {
			answer = []byte(response.Body)
		}
	})
	return answer
}

// Do is the @connections API.
func (c *cloud) Do(r *http.Request) (*http.Response, error) {
	time.Sleep(jittered(postTime))
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	status := http.StatusOK
	c.mu.Lock()
	s := c.sockets[path.Base(r.URL.Path)]
	c.mu.Unlock()
	switch {
	case c.posts.Take("") > 0:
		status = http.StatusTooManyRequests
	case s == nil:
		status = http.StatusGone
	case r.Method == http.MethodDelete:
		status = http.StatusNoContent
		c.shutSocket(s)
		go c.disconnect.invoke(func(ctx context.Context, st *store.Store) {
			_ = st.Disconnect(ctx, s.user, store.Connection{ID: s.id, DeviceID: s.device, ConnectedAt: s.connectedAt.UnixMilli()})
		})
	case s.refuses != 0:
		status = s.refuses
	default:
		frame, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		s.hear(frame)
	}
	return &http.Response{StatusCode: status, Request: r, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader([]byte("{}")))}, nil
}

// lane is a part of a shard whose batches come one after the other.
type lane struct {
	cloud *cloud

	mu      sync.Mutex
	records []streamed
	last    time.Time
}

type streamed struct {
	at   time.Time // from when on it can be read
	body json.RawMessage
}

// stream has the fan-out follow the heads, by so many lanes of each shard.
func (c *cloud) stream(ctx context.Context, lanes int) {
	all := make([]*lane, shards*lanes)
	for i := range all {
		all[i] = &lane{cloud: c}
	}
	sequence := 0
	c.region.Follow("Conversations", func(ch regiontest.Change) {
		sequence++
		body := recordOf(ch, sequence)
		h := fnv.New32a()
		h.Write([]byte(ch.Key))
		all[int(h.Sum32())%len(all)].add(body)
	})
	for _, l := range all {
		go l.run(ctx)
	}
	for range 2 { // MaximumConcurrency of the mapping of Retries
		go c.tryAgain(ctx)
	}
}

// recordOf is a change as the stream has it.
func recordOf(ch regiontest.Change, sequence int) json.RawMessage {
	change := map[string]any{
		"Keys": map[string]any{"conversationId": map[string]string{"S": ch.Key}}, "SequenceNumber": fmt.Sprint(sequence),
		"ApproximateCreationDateTime": time.Now().Unix(),
	}
	name := "MODIFY"
	if ch.Old == nil {
		name = "INSERT"
	} else {
		change["OldImage"] = ch.Old
	}
	change["NewImage"] = ch.New
	body, err := json.Marshal(map[string]any{"eventName": name, "eventSource": "aws:dynamodb", "dynamodb": change})
	if err != nil {
		panic(err)
	}
	return body
}

func (l *lane) add(body json.RawMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := time.Now().Add(jittered(30 * time.Millisecond)); at.After(l.last) {
		l.last = at
	}
	l.records = append(l.records, streamed{l.last, body})
}

// take returns a batch of at most 100.
func (l *lane) take() (batch []json.RawMessage) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(batch) < 100 && len(l.records) > 0 && !l.records[0].at.After(time.Now()) {
		batch, l.records = append(batch, l.records[0].body), l.records[1:]
	}
	return batch
}

func (l *lane) run(ctx context.Context) {
	for pause(ctx, jittered(pollEach)) {
		for batch := l.take(); len(batch) > 0; batch = l.take() {
			l.deliver(ctx, batch)
		}
	}
}

// deliver hands a batch over, as often as it takes.
func (l *lane) deliver(ctx context.Context, batch []json.RawMessage) {
	raw, err := json.Marshal(map[string]any{"Records": batch})
	if err != nil {
		panic(err)
	}
	again := true
	for again && pause(ctx, jittered(5*time.Millisecond)) {
		invoked := l.cloud.fanout.invoke(func(ctx context.Context, h handler) {
			answer, err := h.handle(ctx, raw)
			response, _ := answer.(events.DynamoDBEventResponse)
			// All of it then, and now and then for no reason: it comes at least once.
			again = err != nil || len(response.BatchItemFailures) > 0 || rand.N(100) == 0
		})
		if !invoked {
			pause(ctx, jittered(100*time.Millisecond))
		}
	}
}

// Retry puts into the queue of what is tried again.
func (c *cloud) Retry(_ context.Context, body string, delay time.Duration) error {
	c.mu.Lock()
	c.aside++
	c.mu.Unlock()
	time.Sleep(jittered(postTime))
	time.AfterFunc(delay, func() { c.retries <- body })
	return nil
}

// Bury puts into the queue behind that one.
func (c *cloud) Bury(_ context.Context, body string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.buried = append(c.buried, body)
	return nil
}

func (c *cloud) tryAgain(ctx context.Context) {
	for pause(ctx, jittered(queuePoll)) {
		select {
		case <-ctx.Done():
			return
		case body := <-c.retries:
			raw, err := json.Marshal(map[string]any{"Records": []any{map[string]any{"eventSource": "aws:sqs", "body": body}}})
			if err != nil {
				panic(err)
			}
			if !c.fanout.invoke(func(ctx context.Context, h handler) { _, err = h.handle(ctx, raw) }) || err != nil {
				c.retries <- body
			}
		}
	}
}

// pause is false if ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	return smithytime.SleepWithContext(ctx, d) == nil
}
