package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// The errors a program may want to tell apart. What the server refuses is a
// *chat.Error in the chain.
var (
	// ErrClosed is what calls end with after Close.
	ErrClosed = errors.New("the client is closed")
	// ErrReplaced ends a client for good: a newer connection of the same device
	// took over. Coming back would throw that one out in turn, without end.
	ErrReplaced = errors.New("a newer connection of this device took over")
	// ErrTooManyDevices ends a client for good: the user connected more devices
	// than the server allows and this was the oldest.
	ErrTooManyDevices = errors.New("the user has connected too many devices")
	// ErrWrongUser ends a client for good: Config.Token gave a token of another user, who
	// would be the sender of what this user wrote. The token says so itself, before the
	// client connects, or where it cannot be read the server does, before anything is sent
	// or taken in.
	ErrWrongUser = errors.New("the token is another user's")
	// ErrOutboxFull refuses a Send or another write: Config.MaxOutbox of them wait already.
	ErrOutboxFull = errors.New("the outbox is full")
	// ErrDiscarded ends a call whose write was taken out of the outbox.
	ErrDiscarded = errors.New("it was discarded")
	// ErrProtocol says that the server sent what the protocol does not allow.
	ErrProtocol = errors.New("the server broke the protocol")
)

// PendingError is what Send, and any other write, gives when it stops waiting before the
// server answered. The write stays in the outbox and is sent as soon as that is
// possible; it may be committed already. Settled tells of its end, Discard takes
// it out, and Client.Refused keeps it if it is refused then.
type PendingError struct {
	ClientMsgID string
	Err         error // why the call stopped waiting: the context's error, ErrClosed, ErrReplaced, …
	Obstacle    error // what has kept it from being sent, such as a connection that failed; nil if nothing has
}

// Error says which write is pending, why nobody waits for it, and what is in its way.
func (e *PendingError) Error() string {
	s := fmt.Sprintf("%s is still in the outbox: %v", e.ClientMsgID, e.Err)
	if e.Obstacle != nil {
		s += fmt.Sprintf("; before that: %v", e.Obstacle)
	}
	return s
}

// Unwrap returns Err.
func (e *PendingError) Unwrap() error { return e.Err }

// HandshakeError is a connection that the server refused: 401 for the token, 403
// for its issuer or audience, 400 for the device.
type HandshakeError struct {
	Status int    // of HTTP
	Reason string // what the server said, if it said anything
}

// Error returns the status and the reason.
func (e *HandshakeError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("the server refused the connection with status %d", e.Status)
	}
	return fmt.Sprintf("the server refused the connection with status %d: %s", e.Status, e.Reason)
}

// retryable marks an error after which the same request may succeed.
type retryable struct{ error }

func (r retryable) Unwrap() error { return r.error }

func again(err error) error { return retryable{err} }

func mayRetry(err error) bool {
	_, ok := errors.AsType[retryable](err)
	return ok
}

// isRefusal reports whether the server, or the protocol, says no for good.
func isRefusal(err error) bool {
	_, ok := errors.AsType[*chat.Error](err)
	return ok && !mayRetry(err)
}

// refusal is the server's error as the program gets it.
func refusal(e wire.Error) error {
	err := &chat.Error{Code: e.Code, Message: e.Message, Field: e.Field, Details: e.Details}
	if e.Retryable {
		return again(err)
	}
	return err
}

// wireError is a refusal as it is stored.
func wireError(err error) *wire.Error {
	e, ok := errors.AsType[*chat.Error](err)
	if !ok {
		return &wire.Error{Code: chat.CodeInternal, Message: err.Error()}
	}
	return &wire.Error{Code: e.Code, Message: e.Message, Field: e.Field, Details: e.Details}
}

// retryAfter is how long the server asks to wait, 0 if it does not.
func retryAfter(err error) time.Duration {
	e, ok := errors.AsType[*chat.Error](err)
	if !ok {
		return 0
	}
	ms, _ := e.Details[chat.DetailRetryAfter].(float64)
	if !(ms > 0) {
		return 0
	}
	return time.Duration(min(ms, float64(time.Hour/time.Millisecond))) * time.Millisecond
}

// isTooFast reports whether the server says that the user is too fast, and not that the
// conversation takes no more.
func isTooFast(err error) bool {
	e, ok := errors.AsType[*chat.Error](err)
	return ok && e.Field == "" && retryAfter(err) > 0
}

// violated is an answer that the protocol does not allow. The next one may be
// right, so it is worth asking again.
func violated(format string, args ...any) error {
	return again(fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...)))
}
