package fault

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
)

// Sockets is a proxy between devices and the gateway. It passes bytes and knows
// nothing of what they mean.
type Sockets struct {
	plan     *Plan
	listener net.Listener
	target   url.URL
	work     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	away   bool
	pairs  map[*pair]struct{}
}

// NewSockets starts a proxy for a WebSocket URL, such as ws://127.0.0.1:3000/v1.
func NewSockets(plan *Plan, target string) (*Sockets, error) {
	u, err := url.Parse(target)
	if err != nil || u.Scheme != "ws" || u.Port() == "" {
		return nil, fmt.Errorf("the target is %q; it has to be a URL such as ws://127.0.0.1:3000/v1", target)
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting a proxy: %w", err)
	}
	s := &Sockets{plan: plan, listener: listener, target: *u, pairs: map[*pair]struct{}{}}
	s.work.Go(s.accept)
	return s, nil
}

// URL is where devices connect instead of the target.
func (s *Sockets) URL() string {
	u := s.target
	u.Host = s.listener.Addr().String()
	return u.String()
}

// Open is how many sockets are open.
func (s *Sockets) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pairs)
}

// Cut cuts all sockets that are open now.
func (s *Sockets) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.pairs {
		p.cut()
	}
}

// Away takes the server away: it cuts all sockets and every new one, until it is called
// with false.
func (s *Sockets) Away(away bool) {
	s.mu.Lock()
	s.away = away
	s.mu.Unlock()
	if away {
		s.Cut()
	}
}

// Close ends the proxy and all sockets.
func (s *Sockets) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	_ = s.listener.Close()
	s.Cut()
	s.work.Wait()
}

func (s *Sockets) accept() {
	for {
		device, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		s.work.Go(func() { s.carry(device) })
	}
}

// pair is a device's socket and the one to the gateway.
type pair struct {
	device, gateway net.Conn

	plan     *Plan
	cutAfter int64 // bytes of both directions; -1: never
	passed   atomic.Int64
	counted  atomic.Bool
}

func (s *Sockets) carry(device net.Conn) {
	defer func() { _ = device.Close() }()
	gateway, err := new(net.Dialer).DialContext(context.Background(), "tcp", s.target.Host)
	if err != nil {
		return // the device sees its socket close, as without the proxy
	}
	defer func() { _ = gateway.Close() }()
	p := &pair{device: device, gateway: gateway, plan: s.plan, cutAfter: -1}
	if strike, ok := s.plan.consider(SocketCut); ok {
		p.cutAfter = strike.bytes()
	}
	if !s.add(p) {
		p.cut()
		return
	}
	defer s.remove(p)
	var directions sync.WaitGroup
	directions.Go(func() { p.pass(gateway, device) })
	directions.Go(func() { p.pass(device, gateway) })
	directions.Wait()
}

func (s *Sockets) add(p *pair) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.away {
		return false
	}
	s.pairs[p] = struct{}{}
	return true
}

func (s *Sockets) remove(p *pair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pairs, p)
}

// pass copies one direction, up to the byte at which the socket is cut.
func (p *pair) pass(to, from net.Conn) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		end := p.passed.Add(int64(n))
		planned := p.cutAfter >= 0 && end >= p.cutAfter && p.plan.isOn()
		if planned {
			n = max(0, n-int(end-p.cutAfter))
		}
		if _, failed := to.Write(buffer[:n]); planned || failed != nil {
			p.strike(planned)
			return
		}
		if err != nil {
			p.finish(to, err)
			return
		}
	}
}

// strike cuts the socket, which counts once as a fault of the plan.
func (p *pair) strike(planned bool) {
	if planned && p.counted.CompareAndSwap(false, true) {
		p.plan.count(SocketCut)
	}
	p.cut()
}

// finish passes on the orderly end of one direction.
func (p *pair) finish(to net.Conn, err error) {
	half, ok := to.(*net.TCPConn)
	if errors.Is(err, io.EOF) && ok && half.CloseWrite() == nil {
		return
	}
	p.cut()
}

// cut ends both sockets with a reset: neither side hears a farewell.
func (p *pair) cut() {
	for _, c := range []net.Conn{p.device, p.gateway} {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}
