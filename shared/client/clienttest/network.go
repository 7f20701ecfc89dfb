package clienttest

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// network is a listener whose connections are pipes in memory, so that a test can
// run in a bubble of testing/synctest.
type network struct {
	incoming chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func newNetwork() *network {
	return &network{incoming: make(chan net.Conn), closed: make(chan struct{})}
}

func (n *network) Accept() (net.Conn, error) {
	select {
	case conn := <-n.incoming:
		return conn, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *network) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

func (n *network) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

func (n *network) dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case n.incoming <- there:
		return here, nil
	case <-n.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// frail is a connection that breaks after so many bytes in either direction.
type frail struct {
	net.Conn
	mu   sync.Mutex
	left int
}

func (f *frail) spend(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left -= n; f.left <= 0 {
		_ = f.Close()
	}
}

func (f *frail) Read(p []byte) (int, error) {
	f.mu.Lock()
	p = p[:min(len(p), max(f.left, 1))]
	f.mu.Unlock()
	n, err := f.Conn.Read(p)
	f.spend(n)
	return n, err
}

func (f *frail) Write(p []byte) (int, error) {
	f.mu.Lock()
	allowed := min(len(p), max(f.left, 1))
	f.mu.Unlock()
	n, err := f.Conn.Write(p[:allowed])
	f.spend(n)
	if err == nil && n < len(p) {
		err = net.ErrClosed
	}
	return n, err
}

// HTTPClient returns a client whose connections lead to this server and, by the
// hook CutAfter, break at some byte.
func (s *Server) HTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := s.network.dial(ctx)
			if err != nil {
				return nil, err
			}
			if n := s.hooks().CutAfter; n != nil {
				if left := n(); left > 0 {
					return &frail{Conn: conn, left: left}, nil
				}
			}
			return conn, nil
		},
	}}
}
