package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"github.com/coder/websocket"

	"inorder/shared/chat"
	"inorder/shared/wire"
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
	403: "The token's iss and aud have to be the parameters JwtIssuer and JwtAudience; or the URL's path is not\n" +
		"        the stage's, which is /v1, and / with a domain of your own.",
	404: "The path is not the stage's, which is /v1, and / with a domain of your own.",
	429: "Too many handshakes of this user, or of all: UserConnectsPerSecond, ConnectsPerSecond. Again in a minute.",
	500: "The authorizer cannot read the keys at JwksUrl, or the connect function failed: query \"failures\".",
	502: "The connect function broke off: look for its last lines in the log group /inorder/STACK.",
	503: "The stack is overloaded, or API Gateway is: metric Throttles of AWS/Lambda.",
	504: "The connect function took too long: its metric Duration, and DynamoDB's throttles.",
}

// byCode says the same of an error frame's code.
var byCode = map[chat.Code]string{
	chat.Busy:      "The server is overloaded, or DynamoDB throttles: query \"failures\".",
	chat.Internal:  "Query \"failures\" for this requestId: err says what failed. A right that the function lacks is AccessDenied.",
	chat.Forbidden: "With DirectMessages=closed the two need a conversation: go run ./infra/admin create USER USER -stack STACK -yes.",
}

// frame is any frame from the server.
type frame struct {
	Type    string          `json:"type"`
	ID      string          `json:"id"`
	Result  json.RawMessage `json:"result"`
	Error   wire.Error      `json:"error"`
	Updates []wire.Update   `json:"updates"`
	wire.Receipt

	Reason string `json:"reason"` // of a goodbye

	// API Gateway's own frame.
	Message   string `json:"message"`
	RequestID string `json:"requestId"`
}

// maxFrames is how many frames a device keeps. A run takes some ten.
const maxFrames = 10_000

// device is one connection.
type device struct {
	user     string
	conn     *websocket.Conn
	requests int

	mu     sync.Mutex
	frames []frame
	ended  error
	news   chan struct{} // closed, and another, at each frame
}

// dial opens a connection. Its reader ends with ctx.
func dial(ctx context.Context, living context.Context, socket *url.URL, token, user, name string) (*device, error) {
	u := *socket
	query := u.Query()
	query.Set("device", name)
	u.RawQuery = query.Encode()
	conn, resp, err := websocket.Dial(ctx, u.String(), &websocket.DialOptions{ //nolint:bodyclose // Dial: "you never need to close resp.Body yourself"
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}},
	})
	switch {
	case err == nil:
	case resp != nil && resp.StatusCode != http.StatusSwitchingProtocols:
		look := byStatus[resp.StatusCode]
		if look == "" {
			look = "Is " + socket.Host + " the stack's? What is there answers as no WebSocket."
		}
		return nil, &statusFault{fault{fmt.Sprintf("the handshake was refused with %s", resp.Status), look}, resp.StatusCode}
	case errors.Is(err, context.DeadlineExceeded):
		return nil, &fault{"the handshake got no answer in time", "The authorizer or connect function took too long, or a firewall drops it: metric Duration of AWS/Lambda."}
	default:
		return nil, &fault{fmt.Sprintf("no connection to %s: %v", socket.Host, err),
			"Is the URL the stack's output WebSocketUrl? Of a domain of your own: its DNS record, and its certificate."}
	}
	conn.SetReadLimit(2 * wire.MaxFrameBytes)
	d := &device{user: user, conn: conn, news: make(chan struct{})}
	go d.read(living)
	return d, nil
}

// statusFault is a handshake that was answered with a status.
type statusFault struct {
	fault
	status int
}

func (f *statusFault) Error() string { return f.fault.Error() }

func (d *device) read(ctx context.Context) {
	for {
		_, data, err := d.conn.Read(ctx)
		var f frame
		if err == nil {
			err = json.Unmarshal(data, &f)
		}
		if err == nil && len(d.frames) == maxFrames {
			err = fmt.Errorf("it got more than %d frames; use users that are kept for this", maxFrames)
		}
		d.mu.Lock()
		if err != nil {
			d.ended = err
		} else {
			d.frames = append(d.frames, f)
		}
		close(d.news)
		d.news = make(chan struct{})
		d.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// await waits for a frame. what and look say what is wrong if none comes.
func (d *device) await(ctx context.Context, what, look string, is func(frame) bool) (frame, error) {
	for seen := 0; ; {
		d.mu.Lock()
		frames, ended, news := d.frames, d.ended, d.news
		d.mu.Unlock()
		for ; seen < len(frames); seen++ {
			switch f := frames[seen]; {
			case is(f):
				return f, nil
			case f.Type == wire.TypeGoodbye:
				return frame{}, &fault{fmt.Sprintf("the server said goodbye to %s: %s", d.user, f.Reason),
					"Another connection of the same device came, or the token has expired."}
			}
		}
		if ended != nil {
			return frame{}, &fault{fmt.Sprintf("the connection of %s ended: %v", d.user, ended), look}
		}
		select {
		case <-news:
		case <-ctx.Done():
			return frame{}, &fault{what, look}
		}
	}
}

// do sends a request and reads its result.
func (d *device) do(ctx context.Context, action string, request, result any) error {
	d.requests++
	id := "smoke-" + strconv.Itoa(d.requests)
	fields := map[string]any{}
	raw, err := json.Marshal(request)
	if err == nil {
		err = json.Unmarshal(raw, &fields)
	}
	if err == nil {
		fields["action"], fields["id"] = action, id
		raw, err = json.Marshal(fields)
	}
	if err != nil {
		return fmt.Errorf("encoding %s: %w", action, err)
	}
	if err := d.conn.Write(ctx, websocket.MessageText, raw); err != nil {
		return &fault{fmt.Sprintf("%s could not be sent: %v", action, err), "The connection ended: is the token still good?"}
	}
	f, err := d.await(ctx, action+" was not answered",
		"The function took too long (metric Duration of AWS/Lambda), or the route has no response: does the stack have all of template.yaml?",
		func(f frame) bool { return f.ID == id || f.Type == "" && f.Message != "" })
	switch {
	case err != nil:
		return err
	case f.Type == "":
		return &fault{fmt.Sprintf("API Gateway answered %s with %q (requestId %s)", action, f.Message, f.RequestID),
			"The function broke off, timed out, or may not be called: its last lines in the log group /inorder/STACK,\n" +
				"        and Errors and Throttles on the dashboard. \"Forbidden\": there is no such route."}
	case f.Type == wire.TypeError:
		look := byCode[f.Error.Code]
		if look == "" {
			look = "The code's meaning is in shared/wire/README.md."
		}
		what := fmt.Sprintf("%s was refused: %s: %s", action, f.Error.Code, f.Error.Message)
		if len(f.Error.Details) > 0 {
			what += fmt.Sprintf(" %v", f.Error.Details)
		}
		return &fault{what, look}
	}
	if err := json.Unmarshal(f.Result, result); err != nil {
		return &fault{fmt.Sprintf("the answer to %s cannot be read: %v", action, err), "Is what answers of this version?"}
	}
	return nil
}
