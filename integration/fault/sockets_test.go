package fault_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/integration/fault"
)

// echo serves connections that give back what they get, and end when the other
// side ends.
type echo struct {
	url  string
	most atomic.Int64 // bytes that one connection got
}

func startEcho(t *testing.T) *echo {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	e := &echo{url: "ws://" + l.Addr().String() + "/v1?x=y"}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { e.serve(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		serving.Wait()
	})
	return e
}

func (e *echo) serve(c net.Conn) {
	defer func() { _ = c.Close() }()
	var got int64
	for buffer := make([]byte, 32<<10); ; {
		n, err := c.Read(buffer)
		got += int64(n)
		for most := e.most.Load(); got > most && !e.most.CompareAndSwap(most, got); most = e.most.Load() {
		}
		if _, failed := c.Write(buffer[:n]); err != nil || failed != nil {
			return
		}
	}
}

func sockets(t *testing.T, plan *fault.Plan) (*fault.Sockets, *echo) {
	t.Helper()
	e := startEcho(t)
	s, err := fault.NewSockets(plan, e.url)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s, e
}

func dial(t *testing.T, s *fault.Sockets) net.Conn {
	t.Helper()
	u, err := url.Parse(s.URL())
	require.NoError(t, err)
	require.Equal(t, "/v1?x=y", u.RequestURI())
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", u.Host)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return c
}

// exchange sends much and counts what comes back.
func exchange(c net.Conn, much int) (got int, err error) {
	sent := bytes.Repeat([]byte("0123456789"), much/10)
	go func() {
		_, _ = c.Write(sent)
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	back, err := io.ReadAll(c)
	if !bytes.HasPrefix(sent, back) {
		return len(back), io.ErrUnexpectedEOF
	}
	return len(back), err
}

func TestSocketsPassOn(t *testing.T) {
	t.Parallel()
	s, _ := sockets(t, newPlan(t, nil))
	got, err := exchange(dial(t, s), 1_000_000)
	require.NoError(t, err)
	require.Equal(t, 1_000_000, got)
	require.Eventually(t, func() bool { return s.Open() == 0 }, patience, time.Millisecond)
}

func TestSocketCut(t *testing.T) {
	t.Parallel()
	const bytes = 1000
	plan := newPlan(t, fault.Faults{fault.SocketCut: {Rate: 1, Bytes: bytes}})
	s, e := sockets(t, plan)
	early := 0
	for range 30 {
		got, err := exchange(dial(t, s), 100_000)
		require.NotEqual(t, io.ErrUnexpectedEOF, err)
		require.LessOrEqual(t, got, bytes)
		if got < 10 {
			early++
		}
	}
	require.Positive(t, early)
	require.Positive(t, e.most.Load())
	require.LessOrEqual(t, e.most.Load(), int64(bytes), "no byte passes after the cut")
	require.Equal(t, 30, plan.Counts()[fault.SocketCut])
	plan.Off()
	got, err := exchange(dial(t, s), 100_000)
	require.NoError(t, err)
	require.Equal(t, 100_000, got)
}

func TestASocketIsNotCutAfterThePlanIsOff(t *testing.T) {
	t.Parallel()
	plan := newPlan(t, fault.Faults{fault.SocketCut: {Rate: 1, Bytes: 1000}})
	s, _ := sockets(t, plan)
	c := dial(t, s)
	require.Eventually(t, func() bool { return s.Open() == 1 }, patience, time.Millisecond)
	plan.Off()
	got, err := exchange(c, 100_000)
	require.NoError(t, err)
	require.Equal(t, 100_000, got)
}

func TestCutAll(t *testing.T) {
	t.Parallel()
	s, _ := sockets(t, newPlan(t, nil))
	first, second := dial(t, s), dial(t, s)
	require.Eventually(t, func() bool { return s.Open() == 2 }, patience, time.Millisecond)
	s.Cut()
	for _, c := range []net.Conn{first, second} {
		_, err := c.Read(make([]byte, 1))
		require.Error(t, err)
	}
	got, err := exchange(dial(t, s), 100)
	require.NoError(t, err)
	require.Equal(t, 100, got)
}

func TestSocketsAway(t *testing.T) {
	t.Parallel()
	s, e := sockets(t, newPlan(t, nil))
	open := dial(t, s)
	require.Eventually(t, func() bool { return s.Open() == 1 }, patience, time.Millisecond)
	s.Away(true)
	for _, c := range []net.Conn{open, dial(t, s)} {
		got, err := exchange(c, 100)
		require.Zero(t, got)
		require.Error(t, err)
	}
	require.Zero(t, e.most.Load(), "nothing gets to the other side")
	s.Away(false)
	got, err := exchange(dial(t, s), 100)
	require.NoError(t, err)
	require.Equal(t, 100, got)
}
