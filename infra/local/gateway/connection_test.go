package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/gateway"
	"github.com/inorder-im/inorder/infra/local/template"
)

const (
	frameLimit   = 32 << 10
	messageLimit = 128 << 10
)

// fragments splits a message into a client's frames of at most size bytes.
func fragments(message []byte, size int) []byte {
	var all []byte
	first := byte(opText)
	for {
		n := min(size, len(message))
		if n == len(message) {
			return append(all, frame(first|fin, message)...)
		}
		all = append(all, frame(first, message[:n])...)
		first, message = 0, message[n:] // 0 continues a message
	}
}

func TestFramesAndMessagesUpToTheLimitsArrive(t *testing.T) {
	t.Parallel()
	tests := map[string][]byte{
		"small":                         fragments(bytes.Repeat([]byte("x"), 10), frameLimit),
		"126 bytes":                     fragments(bytes.Repeat([]byte("x"), 126), frameLimit),
		"frame at the limit":            fragments(bytes.Repeat([]byte("x"), frameLimit), frameLimit),
		"message at the limit":          fragments(bytes.Repeat([]byte("x"), messageLimit), frameLimit),
		"message of many small frames":  fragments(bytes.Repeat([]byte("x"), 2000), 1),
		"ping between two fragments":    bytes.Join([][]byte{frame(opText, []byte("x")), frame(fin|9, []byte("p")), frame(fin, []byte("x"))}, nil),
		"two-byte character cut in two": bytes.Join([][]byte{frame(opText, []byte("\xc3")), frame(fin, []byte("\xa4"))}, nil),
	}
	for name, bytes := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := startLifecycle(t, gateway.Limits{})
			raw := a.dialRaw(t)
			raw.write(bytes)
			a.await(t, "default", 1)
		})
	}
}

func TestFrameSplitOverManyPacketsArrives(t *testing.T) {
	t.Parallel()
	a := startLifecycle(t, gateway.Limits{})
	raw := a.dialRaw(t)
	message := strings.Repeat("x", 200)
	for _, b := range frame(fin|opText, []byte(message)) {
		raw.write([]byte{b})
	}
	require.Equal(t, message, a.await(t, "default", 1).object(t)["body"])
}

func TestClientThatBreaksARuleIsClosed(t *testing.T) {
	t.Parallel()
	large := bytes.Repeat([]byte("x"), messageLimit+1)
	tests := map[string]struct {
		bytes []byte
		want  int
	}{
		"frame over the limit":                      {frame(fin|opText, large[:frameLimit+1]), 1009},
		"fragment over the limit":                   {append(frame(opText, []byte("x")), frame(fin, large[:frameLimit+1])...), 1009},
		"frame that only announces a huge size":     {[]byte{fin | opText, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 'x'}, 1009},
		"frame that announces a negative size":      {[]byte{fin | opText, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 'x'}, 1009},
		"message over the limit, frames within":     {fragments(large, frameLimit), 1009},
		"unfinished message over the limit":         {fragments(large, frameLimit)[:messageLimit+60], 1009},
		"binary":                                    {frame(fin|opBinary, []byte("x")), 1003},
		"text that is no UTF-8":                     {frame(fin|opText, []byte("\xff")), 1007},
		"frame without a mask":                      {[]byte{fin | opText, 1, 'x'}, 1002},
		"unknown opcode":                            {frame(fin|3, nil), 1002},
		"continuation of nothing":                   {frame(fin, []byte("x")), 1002},
		"good message first, then one of this kind": {append(frame(fin|opText, []byte("good")), frame(fin|opBinary, nil)...), 1003},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := startLifecycle(t, gateway.Limits{})
			raw := a.dialRaw(t)
			raw.write(tt.bytes)
			require.Equal(t, tt.want, raw.closing())
			_ = raw.Close()
			code, _ := a.disconnected(t)
			require.Equal(t, tt.want, code)
		})
	}
}

func TestClientReadsTheCloseFrameBehindAFrameTooLarge(t *testing.T) {
	t.Parallel()
	a := startLifecycle(t, gateway.Limits{})
	raw := a.dialRaw(t)
	// The server has to read this to the end: a socket closed with unread bytes is
	// reset, and the close frame can be lost with it.
	raw.write(frame(fin|opText, make([]byte, 4<<20)))
	require.Equal(t, 1009, raw.closing())
	raw.write(frame(fin|opClose, []byte{0x03, 0xf1}))
	_, err := raw.in.ReadByte()
	require.ErrorIs(t, err, io.EOF, "an orderly end")
}

func TestLargeMessagesToTheClientAreSplitIntoFrames(t *testing.T) {
	t.Parallel()
	a := startLifecycle(t, gateway.Limits{})
	for _, size := range []int{0, 1, frameLimit, frameLimit + 1, messageLimit} {
		n := len(a.of("connect"))
		raw := a.dialRaw(t)
		id, _ := a.await(t, "connect", n+1).context(t)["connectionId"].(string)
		a.awaitOpen(t, id)
		message := strings.Repeat("x", size)
		require.NoError(t, a.post(id, message))
		var got []byte
		for opcode, last := byte(opText), false; !last; opcode = 0 {
			first, payload := raw.readFrame()
			require.Equal(t, opcode, first&0x0f, "the frames of one message")
			require.LessOrEqual(t, len(payload), frameLimit)
			got = append(got, payload...)
			last = first&fin != 0
		}
		require.Equal(t, message, string(got))
	}
}

func TestDisconnectSaysHowTheConnectionEnded(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		end        func(t *testing.T, a *api, c *rawClient, id string)
		wantCode   int
		wantReason string
	}{
		"client's code and reason": {
			func(_ *testing.T, _ *api, c *rawClient, _ string) {
				c.write(frame(fin|opClose, []byte("\x0f\xa1enough")))
			},
			4001, "enough",
		},
		"client goes away without a reason": {
			func(_ *testing.T, _ *api, c *rawClient, _ string) { c.write(frame(fin|opClose, []byte{0x03, 0xe9})) },
			1001, "",
		},
		"client's close frame has no status": {
			func(_ *testing.T, _ *api, c *rawClient, _ string) { c.write(frame(fin|opClose, nil)) },
			1005, "Client-side close frame status not set",
		},
		"client is cut off": {
			func(t *testing.T, _ *api, c *rawClient, _ string) { require.NoError(t, c.Close()) },
			1006, "Connection closed abnormally",
		},
		"client is cut off in a frame": {
			func(t *testing.T, _ *api, c *rawClient, _ string) {
				c.write([]byte{fin | opText, 0x85, 0, 0, 0, 0, 'h'})
				require.NoError(t, c.Close())
			},
			1006, "Connection closed abnormally",
		},
		"deleted through @connections": {
			func(t *testing.T, a *api, c *rawClient, id string) {
				require.NoError(t, a.delete(id))
				require.Equal(t, 1000, c.closing())
				c.write(frame(fin|opClose, []byte{0x03, 0xe8}))
			},
			1000, "Connection Closed Normally",
		},
		"the gateway closes": {
			func(t *testing.T, a *api, c *rawClient, _ string) {
				go func() {
					ctx, cancel := contextWithPatience()
					defer cancel()
					_ = a.gateway.Close(ctx)
				}()
				require.Equal(t, 1001, c.closing())
				require.NoError(t, c.Close())
			},
			1001, "Going away",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := startLifecycle(t, gateway.Limits{})
			raw := a.dialRaw(t)
			id, _ := a.await(t, "connect", 1).context(t)["connectionId"].(string)
			a.awaitOpen(t, id)
			tt.end(t, a, raw, id)
			code, reason := a.disconnected(t)
			require.Equal(t, tt.wantCode, code)
			require.Equal(t, tt.wantReason, reason)
			require.Equal(t, id, a.await(t, "disconnect", 1).context(t)["connectionId"])
		})
	}
}

func TestDisconnectDoesNotWaitForAClientThatDoesNotAnswerTheClose(t *testing.T) {
	t.Parallel()
	a := startLifecycle(t, gateway.Limits{})
	raw := a.dialRaw(t)
	id, _ := a.await(t, "connect", 1).context(t)["connectionId"].(string)
	a.awaitOpen(t, id)
	begin := time.Now()
	require.NoError(t, a.delete(id))
	a.await(t, "disconnect", 1)
	require.Less(t, time.Since(begin), 4*time.Second, "a close handshake is waited for 5 seconds")
	require.NoError(t, raw.Close())
}

func TestFailureOfDisconnectIsLogged(t *testing.T) {
	t.Parallel()
	a := start(t, gateway.Config{API: app()}, lifecycleFunctions(map[string]function{"disconnect": raises("Oops", "x")}))
	c, _ := a.connect(t)
	require.NoError(t, c.Close(1000, ""))
	a.disconnected(t)
	require.Contains(t, a.log.String(), "function=disconnect")
}

func TestIdleConnectionIsClosed(t *testing.T) {
	t.Parallel()
	const idle = 150 * time.Millisecond
	for name, pings := range map[string]bool{"with nothing sent": false, "though the client pings": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := startLifecycle(t, gateway.Limits{IdleTimeout: idle})
			begin := time.Now()
			c := a.dial(t, nil)
			if pings {
				go func() { // closing reads the pongs
					ctx, cancel := contextWithPatience()
					defer cancel()
					for c.Ping(ctx) == nil {
					}
				}()
			}
			require.Equal(t, websocket.CloseError{Code: 1001, Reason: "Going away"}, c.closing())
			require.GreaterOrEqual(t, time.Since(begin), idle)
			code, reason := a.disconnected(t)
			require.Equal(t, 1001, code)
			require.Equal(t, "Going away", reason)
		})
	}
}

func TestMessagesKeepAConnectionFromBeingIdle(t *testing.T) {
	t.Parallel()
	const idle = 250 * time.Millisecond
	tests := map[string]func(a *api, c *client, id string) error{
		"from the client": func(_ *api, c *client, _ string) error {
			ctx, cancel := contextWithPatience()
			defer cancel()
			return c.Write(ctx, websocket.MessageText, []byte(`{"action":"quiet"}`))
		},
		"to the client": func(a *api, _ *client, id string) error { return a.post(id, "x") },
	}
	for name, message := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := app(template.Route{Key: "quiet", FunctionID: "quiet"})
			a := start(t, gateway.Config{API: api, Limits: gateway.Limits{IdleTimeout: idle}}, lifecycleFunctions(map[string]function{"quiet": ok()}))
			// On a busy machine the test itself can be too slow: then it tries again.
			for slow, n := true, 1; slow; n++ {
				last := time.Now()
				c := a.dial(t, nil)
				id, _ := a.await(t, "connect", n).context(t)["connectionId"].(string)
				closed := make(chan error, 1)
				go func() {
					for {
						if _, _, err := c.Read(context.Background()); err != nil {
							closed <- err
							return
						}
					}
				}()
				for a.get(id) != nil && len(closed) == 0 { // it is open, or idle already
					continue
				}
				begin, open := time.Now(), true
				slow = false
				for open && time.Since(begin) < 2*idle {
					open = message(a, c, id) == nil && len(closed) == 0
					slow = slow || time.Since(last) > idle/2
					last = time.Now()
				}
				require.True(t, open || slow, "closed as idle %v after the last message", time.Since(last))
				slow = slow && !open
				_ = c.CloseNow()
			}
		})
	}
}

func TestWriteThatIsStuckEndsTheConnection(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	const large = 32 << 20 // more than the socket buffers hold
	a := start(t, gateway.Config{
		API:    app(),
		Limits: gateway.Limits{MessageBytes: large, WriteTimeout: 50 * time.Millisecond, InFlight: 1},
	}, lifecycleFunctions(map[string]function{
		"default": func(context.Context, []byte) (string, string, error) { <-release; return `{}`, "", nil },
	}))
	defer close(release)
	raw := a.dialRaw(t) // it never reads
	raw.write(frame(fin|opText, []byte("1")), frame(fin|opText, []byte("2")))
	a.await(t, "default", 1) // and the second keeps the gateway from reading
	id, _ := a.await(t, "connect", 1).context(t)["connectionId"].(string)
	require.NoError(t, a.post(id, strings.Repeat("x", large)))
	require.Equal(t, 1006.0, a.await(t, "disconnect", 1).context(t)["disconnectStatusCode"])
}

func TestConnectionIsClosedAtTheEndOfItsLife(t *testing.T) {
	t.Parallel()
	const life = 300 * time.Millisecond
	a := startLifecycle(t, gateway.Limits{MaxLifetime: life})
	begin := time.Now()
	c := a.dial(t, nil)
	id, _ := a.await(t, "connect", 1).context(t)["connectionId"].(string)
	ctx, end := context.WithCancel(t.Context())
	var posts sync.WaitGroup
	posts.Go(func() { // activity does not help
		for ctx.Err() == nil {
			_ = a.post(id, "x")
		}
	})
	require.Equal(t, websocket.StatusGoingAway, c.closing().Code)
	require.GreaterOrEqual(t, time.Since(begin), life)
	end()
	posts.Wait()
	code, _ := a.disconnected(t)
	require.Equal(t, 1001, code)
}

func TestCloseEndsEverything(t *testing.T) {
	t.Parallel()
	release, began := make(chan struct{}), make(chan struct{})
	a := start(t, gateway.Config{API: app()}, lifecycleFunctions(map[string]function{
		"default": func(context.Context, []byte) (string, string, error) {
			close(began)
			<-release
			return `{}`, "", nil
		},
	}))
	c, id := a.connect(t)
	other, _ := a.connect(t)
	c.send("x")
	<-began
	closed := make(chan error, 1)
	go func() {
		ctx, cancel := contextWithPatience()
		defer cancel()
		closed <- a.gateway.Close(ctx)
	}()
	require.Equal(t, websocket.StatusGoingAway, c.closing().Code)
	require.Equal(t, websocket.StatusGoingAway, other.closing().Code)
	a.await(t, "disconnect", 2)
	status, _ := a.refusal(t, "", nil)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Error(t, a.post(id, "x"))
	require.Empty(t, closed, "Close did not wait for a frame that is being worked on")
	close(release)
	require.NoError(t, <-closed)
}

func TestCloseIsBoundedByItsContext(t *testing.T) {
	t.Parallel()
	began := make(chan struct{})
	a := start(t, gateway.Config{API: app()}, lifecycleFunctions(map[string]function{
		"default": func(ctx context.Context, _ []byte) (string, string, error) {
			close(began)
			<-ctx.Done() // Close has run out of patience
			return "", "", ctx.Err()
		},
	}))
	raw := a.dialRaw(t) // it does not answer the close frame either
	raw.write(frame(fin|opText, []byte("x")))
	<-began
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	require.ErrorIs(t, a.gateway.Close(ctx), context.DeadlineExceeded)
	_, err := io.Copy(io.Discard, raw.in)
	require.NoError(t, err)
	require.Less(t, time.Since(begin), 4*time.Second, "the connection was left to its close handshake")
}

func TestHandshakeInProgressDuringCloseEndsAsAClosedConnection(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	a := start(t, gateway.Config{API: app()}, lifecycleFunctions(map[string]function{
		"connect": func(_ context.Context, payload []byte) (string, string, error) {
			if bytes.Contains(payload, []byte(`"slow":"yes"`)) {
				<-release
			}
			return `{}`, "", nil
		},
	}))
	first, _ := a.connect(t)
	opened := make(chan websocket.StatusCode, 1)
	go func() {
		ctx, cancel := contextWithPatience()
		defer cancel()
		conn, _, err := websocket.Dial(ctx, a.url("?slow=yes"), nil)
		if err == nil {
			_, _, err = conn.Read(ctx)
		}
		opened <- websocket.CloseStatus(err)
	}()
	a.await(t, "connect", 2)
	closed := make(chan error, 1)
	go func() {
		ctx, cancel := contextWithPatience()
		defer cancel()
		closed <- a.gateway.Close(ctx)
	}()
	require.Equal(t, websocket.StatusGoingAway, first.closing().Code) // Close has begun
	close(release)
	require.NoError(t, <-closed)
	require.Equal(t, websocket.StatusGoingAway, <-opened)
	require.Len(t, a.of("disconnect"), 2, "$connect had run, so $disconnect must")
}

func TestManyConnectionsAtOnce(t *testing.T) {
	t.Parallel()
	const clients, messages = 40, 10
	a := startLifecycle(t, gateway.Limits{})
	done := make(chan error, clients)
	for range clients {
		go func() {
			ctx, cancel := contextWithPatience()
			defer cancel()
			conn, _, err := websocket.Dial(ctx, a.url(""), nil)
			if err != nil {
				done <- err
				return
			}
			defer func() { _ = conn.CloseNow() }()
			for i := range messages {
				text, _ := json.Marshal(i)
				if err := conn.Write(ctx, websocket.MessageText, text); err != nil {
					done <- err
					return
				}
				if _, _, err := conn.Read(ctx); err != nil {
					done <- err
					return
				}
			}
			done <- conn.Close(websocket.StatusNormalClosure, "")
		}()
	}
	for range clients {
		require.NoError(t, <-done)
	}
	a.await(t, "disconnect", clients)
	require.Len(t, a.of("default"), clients*messages)
}
