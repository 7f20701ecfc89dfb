// Package proxy stands between a program and a server of HTTP, above all between the
// functions and their DynamoDB: a handler sees each request whole, and answers it, or
// forwards it, once, several times, or changed.
package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	smithytime "github.com/aws/smithy-go/time"
)

const (
	// forwardTimeout bounds a request to what is behind a proxy.
	forwardTimeout = time.Minute
	// idlePerHost is how many connections to it are kept.
	idlePerHost = 256
)

// Proxy is one proxy.
type Proxy struct {
	listener  net.Listener
	target    atomic.Pointer[string]
	server    *http.Server
	transport *http.Transport
	running   context.Context // until Close
	cancel    context.CancelFunc
	work      sync.WaitGroup // serving, requests, and what goes on after an answer

	mu     sync.Mutex
	closed bool
}

// New listens on a free port of 127.0.0.1. Call Serve, which lets it answer, and Close
// in the end.
func New() (*Proxy, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting a proxy: %w", err)
	}
	p := &Proxy{listener: listener, transport: &http.Transport{MaxIdleConnsPerHost: idlePerHost, DisableCompression: true}}
	p.running, p.cancel = context.WithCancel(context.Background())
	return p, nil
}

// Serve answers with the handler, which is called for several requests at a time. It is
// given no context, because a caller that hangs up changes nothing: what a server got,
// it carries out.
func (p *Proxy) Serve(handle func(Request) Answer) {
	p.server = &http.Server{ReadHeaderTimeout: forwardTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.begin() {
			HangUp()
		}
		defer p.work.Done()
		request := read(r)
		handle(request).write(w, request)
	})}
	p.work.Go(func() { _ = p.server.Serve(p.listener) })
}

// begin counts one piece of work, unless the proxy is closed.
func (p *Proxy) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.work.Add(1)
	}
	return !p.closed
}

// URL is where the proxy is.
func (p *Proxy) URL() string { return "http://" + p.listener.Addr().String() }

// SetTarget says what the proxy stands for, such as "http://127.0.0.1:3000"; a
// path in it is not used. It may change at any time.
func (p *Proxy) SetTarget(target string) error {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("the target of a proxy is %q; it has to be a URL such as http://127.0.0.1:8000", target)
	}
	base := u.Scheme + "://" + u.Host
	p.target.Store(&base)
	return nil
}

// Close ends the proxy and the requests under way.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	if p.server != nil {
		_ = p.server.Close()
	}
	_ = p.listener.Close()
	p.work.Wait()
	p.transport.CloseIdleConnections()
}

// Sleep waits, and is false if the proxy was closed before.
func (p *Proxy) Sleep(d time.Duration) bool {
	return smithytime.SleepWithContext(p.running, d) == nil
}

// Go does something after the answer, which Close waits for. It is to be called by a
// handler.
func (p *Proxy) Go(f func()) { p.work.Go(f) }

// HangUp ends a request without an answer.
func HangUp() { panic(http.ErrAbortHandler) }

// Request is one that was read to its end.
type Request struct {
	Method string
	Path   string // escaped, with the query
	Header http.Header
	Body   []byte
}

// Operation is what a request asks of an API of AWS, such as "DynamoDB_20120810" and
// "Query", "DynamoDBStreams_20120810" and "GetRecords", or "AmazonSQS" and "SendMessage".
// Both are empty where the API does not name its operations by a header.
func (r Request) Operation() (api, operation string) {
	api, operation, _ = strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	return api, operation
}

// Answer is one to it.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// OK reports whether the request was carried out.
func (a Answer) OK() bool { return a.Status == http.StatusOK }

func read(r *http.Request) Request {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		HangUp() // the caller is gone
	}
	return Request{Method: r.Method, Path: r.URL.RequestURI(), Header: r.Header, Body: body}
}

// Forward passes a request on to the target, without the context of who made it. The answer
// is 502 where there is no target, or none that answers.
func (p *Proxy) Forward(r Request) Answer {
	target := p.target.Load()
	if target == nil {
		return unreachable("the proxy has no target yet")
	}
	ctx, cancel := context.WithTimeout(p.running, forwardTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.Method, *target+r.Path, bytes.NewReader(r.Body))
	if err != nil {
		return unreachable(err.Error())
	}
	req.Header = r.Header.Clone()
	for _, name := range []string{"Connection", "Content-Length", "Accept-Encoding"} {
		req.Header.Del(name)
	}
	resp, err := p.transport.RoundTrip(req)
	if err != nil {
		return unreachable(err.Error())
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return unreachable(err.Error())
	}
	header := resp.Header.Clone()
	for _, name := range []string{"Content-Length", "Connection"} {
		header.Del(name) // of a body, or a connection, that may be another one
	}
	return Answer{Status: resp.StatusCode, Header: header, Body: body}
}

func unreachable(why string) Answer {
	body, _ := json.Marshal(map[string]string{"message": "the proxy cannot reach its target: " + strings.TrimSpace(why)})
	return Answer{Status: http.StatusBadGateway, Body: body}
}

func (a Answer) write(w http.ResponseWriter, to Request) {
	for name, values := range a.Header {
		w.Header()[name] = values
	}
	if api, _ := to.Operation(); strings.HasPrefix(api, "DynamoDB") { // its clients check it
		w.Header().Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE(a.Body)), 10))
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // the caller may be gone
}
