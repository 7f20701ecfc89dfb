package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// forwardTimeout bounds a request to what is behind a proxy.
	forwardTimeout = time.Minute
	// idlePerHost is how many connections to it are kept.
	idlePerHost = 256
)

// proxy is what the HTTP proxies have in common.
type proxy struct {
	plan      *Plan
	target    atomic.Pointer[string]
	url       string
	server    *http.Server
	transport *http.Transport
	running   context.Context // until Close
	cancel    context.CancelFunc
	work      sync.WaitGroup // serving, requests, and what goes on after an answer

	mu     sync.Mutex
	closed bool
}

// newProxy listens on a free port of 127.0.0.1; serve lets it answer.
func newProxy(plan *Plan) (*proxy, net.Listener, error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, fmt.Errorf("starting a proxy: %w", err)
	}
	p := &proxy{
		plan:      plan,
		url:       "http://" + listener.Addr().String(),
		transport: &http.Transport{MaxIdleConnsPerHost: idlePerHost, DisableCompression: true},
	}
	p.running, p.cancel = context.WithCancel(context.Background())
	return p, listener, nil
}

// serve answers with the handler. It is given no context, because a caller that
// hangs up changes nothing: what a server got, it carries out.
func (p *proxy) serve(listener net.Listener, handler func(request) answer) {
	p.server = &http.Server{ReadHeaderTimeout: forwardTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.begin() {
			hangUp()
		}
		defer p.work.Done()
		handler(readRequest(r)).write(w)
	})}
	p.work.Go(func() { _ = p.server.Serve(listener) })
}

// begin counts one piece of work, unless the proxy is closed.
func (p *proxy) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.work.Add(1)
	}
	return !p.closed
}

// URL is where the proxy is.
func (p *proxy) URL() string { return p.url }

// SetTarget says what the proxy stands for, such as "http://127.0.0.1:3000"; a
// path in it is not used. It may change at any time.
func (p *proxy) SetTarget(target string) error {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("the target of a proxy is %q; it has to be a URL such as http://127.0.0.1:8000", target)
	}
	base := u.Scheme + "://" + u.Host
	p.target.Store(&base)
	return nil
}

// Close ends the proxy and the requests under way.
func (p *proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	_ = p.server.Close()
	p.work.Wait()
	p.transport.CloseIdleConnections()
}

// sleep waits, and is false if the proxy was closed before.
func (p *proxy) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.running.Done():
		return false
	}
}

// hangUp ends a request without an answer.
func hangUp() { panic(http.ErrAbortHandler) }

// request is one that was read to its end.
type request struct {
	method string
	path   string // escaped, with the query
	header http.Header
	body   []byte
}

// answer is one to it.
type answer struct {
	status int
	header http.Header
	body   []byte
}

func (a answer) ok() bool { return a.status == http.StatusOK }

func readRequest(r *http.Request) request {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		hangUp() // the caller is gone
	}
	return request{method: r.Method, path: r.URL.RequestURI(), header: r.Header, body: body}
}

// forward gives a request to the target.
func (p *proxy) forward(r request) answer {
	target := p.target.Load()
	if target == nil {
		return unreachable("the proxy has no target yet")
	}
	ctx, cancel := context.WithTimeout(p.running, forwardTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, r.method, *target+r.path, bytes.NewReader(r.body))
	if err != nil {
		return unreachable(err.Error())
	}
	req.Header = r.header.Clone()
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
	for _, name := range []string{"Content-Length", "Connection", "X-Amz-Crc32"} {
		header.Del(name) // of a body, or a connection, that may be another one
	}
	return answer{status: resp.StatusCode, header: header, body: body}
}

func unreachable(why string) answer {
	body, _ := json.Marshal(map[string]string{"message": "the proxy cannot reach its target: " + strings.TrimSpace(why)})
	return answer{status: http.StatusBadGateway, header: http.Header{}, body: body}
}

func (a answer) write(w http.ResponseWriter) {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // the caller may be gone
}
