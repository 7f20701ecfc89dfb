package gateway

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

var errFrameTooLarge = errors.New("a frame is larger than the limit")

// maxFrameHeader is the longest frame header: two bytes, eight of length, four of mask
// (RFC 6455, section 5.2).
const maxFrameHeader = 14

// frameConn is a connection whose incoming bytes are WebSocket frames. A frame over the
// limit is answered with errFrameTooLarge, once; later reads skip its payload and go on
// with the frame after it. So the WebSocket library above, which shows no frame sizes,
// can still read the client's answer to the close frame, and the socket is not reset
// with unread bytes in it.
type frameConn struct {
	net.Conn
	in     *bufio.Reader
	limit  uint64
	header []byte // of the current frame, not yet handed up
	left   uint64 // payload bytes of the current frame, not yet handed up
	skip   uint64 // payload bytes of a refused frame, not yet read
	buffer [maxFrameHeader]byte
	broken atomic.Bool
}

// Read hands up the bytes of one frame at a time.
func (f *frameConn) Read(p []byte) (int, error) {
	n, err := f.read(p)
	if err != nil && !errors.Is(err, errFrameTooLarge) {
		f.broken.Store(true)
	}
	return n, err
}

// isBroken reports whether reading failed below the WebSocket protocol.
func (f *frameConn) isBroken() bool {
	return f.broken.Load()
}

func (f *frameConn) read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if len(f.header) == 0 && f.left == 0 {
		if err := f.nextFrame(); err != nil {
			return 0, err
		}
	}
	if len(f.header) > 0 {
		n := copy(p, f.header)
		f.header = f.header[n:]
		return n, nil
	}
	n, err := f.in.Read(p[:min(uint64(len(p)), f.left)])
	f.left -= uint64(n) //nolint:gosec // Read gives no negative count
	return n, err
}

func (f *frameConn) nextFrame() error {
	for f.skip > 0 {
		n, err := f.in.Discard(int(min(f.skip, 1<<20)))
		f.skip -= uint64(n) //nolint:gosec // Discard gives no negative count
		if err != nil {
			return err
		}
	}
	header := f.buffer[:2]
	if _, err := io.ReadFull(f.in, header); err != nil {
		return err
	}
	length := uint64(header[1] & 0x7f)
	extra := 0
	switch length {
	case 126:
		extra = 2
	case 127:
		extra = 8
	}
	if header[1]&0x80 != 0 {
		extra += 4
	}
	header = f.buffer[:2+extra]
	if _, err := io.ReadFull(f.in, header[2:]); err != nil {
		return err
	}
	switch length {
	case 126:
		length = uint64(binary.BigEndian.Uint16(header[2:]))
	case 127:
		length = binary.BigEndian.Uint64(header[2:])
	}
	if length > f.limit {
		f.skip = length
		return errFrameTooLarge
	}
	f.header, f.left = header, length
	return nil
}

// hijackWriter makes the connection that is hijacked from it a frameConn.
type hijackWriter struct {
	http.ResponseWriter
	limit uint64
	conn  *frameConn // set by Hijack
}

// Hijack takes the connection from the HTTP server, with what the server had read ahead.
func (h *hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil { // the HTTP server's timeouts end here
		_ = conn.Close()
		return nil, nil, err
	}
	h.conn = &frameConn{Conn: conn, in: rw.Reader, limit: h.limit}
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), rw.Writer), nil
}
