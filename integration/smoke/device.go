package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"

	raw "github.com/inorder-im/inorder/integration/device"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// fault is what went wrong, and what to look at.
type fault struct {
	what string
	look string
}

func (f *fault) Error() string { return f.what + "\n        " + f.look }

// byStatus says what a handshake's status is a sign of.
var byStatus = map[int]string{
	401: "The token is expired, malformed, or not signed by a key of JwksUrl; or its sub is no user id.\n" +
		"        The log says which: query \"refused logins\".",
	403: "The token's iss and aud have to be the parameters JwtIssuer and JwtAudience; or the URL is not the output\n" +
		"        WebSocketUrl, whose path is /v1, and / with a domain of your own.",
	404: "The path is not the stage's, which is /v1, and / with a domain of your own.",
	429: "Too many handshakes of this user, or of all: UserConnectsPerSecond, ConnectsPerSecond. Again in a minute.",
	500: "The authorizer cannot read the keys at JwksUrl, or the connect function failed: query \"failures\".",
	502: "The connect function broke off: look for its last lines in the log group /inorder/STACK.",
	503: "The stack is overloaded, or API Gateway is: metric Throttles of AWS/Lambda.",
	504: "The connect function took too long: its metric Duration, and DynamoDB's throttles.",
}

// byCode says the same of an error frame's code.
var byCode = map[chat.Code]string{
	chat.CodeBusy:      "The server is overloaded, or DynamoDB throttles: query \"failures\".",
	chat.CodeInternal:  "Query \"failures\" for this requestId: err says what failed. A right that the function lacks is AccessDenied.",
	chat.CodeForbidden: "With DirectMessages=closed the two need a conversation: go run ./infra/admin create USER USER -stack STACK -yes.",
}

// frame is what the server pushes.
type frame struct {
	Type    string        `json:"type"`
	Updates []wire.Update `json:"updates"`
	wire.Receipt

	Reason string `json:"reason"` // of a goodbye
}

// maxFrames is how many frames a device keeps. A run takes some ten.
const maxFrames = 10_000

// device is one connection.
type device struct {
	user string
	conn *raw.Conn

	mu     sync.Mutex
	frames []frame
	ended  error
	news   chan struct{} // closed, and another, at each frame
	over   chan struct{} // closed when requests are of no use any more
}

// dial opens a connection.
func dial(ctx context.Context, socket *url.URL, token, user, name string) (*device, error) {
	d := &device{user: user, news: make(chan struct{}), over: make(chan struct{})}
	conn, status, err := raw.Dial(ctx, socket.String(), name, token, d.take)
	d.conn = conn
	switch {
	case err == nil:
	case status != 0 && status != http.StatusSwitchingProtocols:
		look := byStatus[status]
		if look == "" {
			look = "Is " + socket.Host + " the stack's? What is there answers as no WebSocket."
		}
		return nil, &statusFault{fault{fmt.Sprintf("the handshake was refused with %d %s", status, http.StatusText(status)), look}, status}
	case errors.Is(err, context.DeadlineExceeded):
		return nil, &fault{"the handshake got no answer in time", "The authorizer or connect function took too long, or a firewall drops it: metric Duration of AWS/Lambda."}
	default:
		look := "Is the URL the stack's output WebSocketUrl? Of a domain of your own: its DNS record, and its certificate."
		if isLocal(socket) {
			look = "Does the local cloud run there? go run ./infra/local starts one. For a stack on AWS say -url."
		}
		return nil, &fault{fmt.Sprintf("no connection to %s: %v", socket.Host, err), look}
	}
	return d, nil
}

// statusFault is a handshake that was answered with a status.
type statusFault struct {
	fault
	status int
}

func (f *statusFault) Error() string { return f.fault.Error() }

// take keeps what is pushed.
func (d *device) take(_ string, data []byte) {
	var f frame
	err := json.Unmarshal(data, &f)
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.over:
		return
	default:
	}
	switch {
	case err == nil && len(d.frames) == maxFrames:
		err = fmt.Errorf("it got more than %d frames; use users that are kept for this", maxFrames)
	case err == nil:
		d.frames = append(d.frames, f)
	}
	if d.ended = err; err != nil || f.Type == wire.TypeGoodbye {
		close(d.over)
	}
	close(d.news)
	d.news = make(chan struct{})
}

// end is why the connection is of no use any more; nil if it is.
func (d *device) end() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended != nil {
		return d.ended
	}
	return d.conn.Err()
}

// await waits for a frame. what and look say what is wrong if none comes.
func (d *device) await(ctx context.Context, what, look string, is func(frame) bool) error {
	for seen := 0; ; {
		d.mu.Lock()
		frames, news := d.frames, d.news
		d.mu.Unlock()
		for ; seen < len(frames); seen++ {
			switch f := frames[seen]; {
			case is(f):
				return nil
			case f.Type == wire.TypeGoodbye:
				return d.goodbye(f.Reason)
			}
		}
		if err := d.end(); err != nil {
			return d.lost(err, look)
		}
		select {
		case <-news:
		case <-d.conn.Closed():
		case <-ctx.Done():
			return &fault{what, look}
		}
	}
}

func (d *device) goodbye(reason string) error {
	return &fault{fmt.Sprintf("the server said goodbye to %s: %s", d.user, reason),
		"Another connection of the same device came, or the token has expired."}
}

func (d *device) lost(why error, look string) error {
	return &fault{fmt.Sprintf("the connection of %s ended: %v", d.user, why), look}
}

// do sends a request and reads its result.
func (d *device) do(ctx context.Context, action string, request, result any) error {
	const look = "The function took too long (metric Duration of AWS/Lambda), or the route has no response: does the stack have all of template.yaml?"
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-d.over:
			cancel()
		case <-asking.Done():
		}
	}()
	err := d.conn.Do(asking, action, request, result)
	refused, isRefusal := errors.AsType[*raw.Refusal](err)
	platforms, isPlatforms := errors.AsType[*raw.PlatformError](err)
	switch {
	case err == nil:
		return nil
	case isPlatforms:
		return &fault{fmt.Sprintf("API Gateway answered %s with %q (requestId %s)", action, platforms.Message, platforms.RequestID),
			"The function broke off, timed out, or may not be called: its last lines in the log group /inorder/STACK,\n" +
				"        and Errors and Throttles on the dashboard. \"Forbidden\": there is no such route."}
	case isRefusal:
		look := byCode[refused.Frame.Code]
		if look == "" {
			look = "The code's meaning is in shared/wire/README.md."
		}
		what := fmt.Sprintf("%s was refused: %s: %s", action, refused.Frame.Code, refused.Frame.Message)
		if len(refused.Frame.Details) > 0 {
			what += fmt.Sprintf(" %v", refused.Frame.Details)
		}
		return &fault{what, look}
	case asking.Err() != nil || errors.Is(err, raw.ErrClosed):
		// A goodbye, or too much that was pushed, says more than that there is no answer.
		return d.await(ctx, action+" was not answered", look, func(frame) bool { return false })
	}
	return &fault{fmt.Sprintf("the answer to %s cannot be read: %v", action, err), "Is what answers of this version?"}
}
