// Package route turns an API Gateway WebSocket event into a typed request and a
// typed answer into a reply frame, the same way for every action.
package route

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/aws/aws-lambda-go/events"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/wire"
)

// Caller is the device a request came from, as the authorizer saw it.
type Caller struct {
	UserID       string
	DeviceID     string
	ConnectionID string
	ConnectedAt  int64 // ms; the same in every event of a connection
	ExpiresAt    int64 // ms: from when on the connection's token no longer counts; 0 if that is not known
	RequestID    string

	// Room is how many bytes of JSON the result may take so that the reply fits
	// its frame. Only actions have it.
	Room int
}

// CallerOf reads the caller off an event. It errs if the event has no user,
// which no event behind an authorizer can lack.
func CallerOf(event events.APIGatewayWebsocketProxyRequest) (Caller, error) {
	rc := event.RequestContext
	c := Caller{ConnectionID: rc.ConnectionID, ConnectedAt: rc.ConnectedAt, RequestID: rc.RequestID}
	authorizer, _ := rc.Authorizer.(map[string]any)
	c.UserID, _ = authorizer["principalId"].(string)
	c.DeviceID, _ = authorizer["device"].(string)
	exp, _ := authorizer["exp"].(string)
	if seconds, err := strconv.ParseInt(exp, 10, 64); err == nil && seconds <= math.MaxInt64/1000 {
		c.ExpiresAt = 1000 * seconds
	}
	if c.UserID == "" {
		return c, errors.New("the event has no requestContext.authorizer.principalId; the API needs its authorizer")
	}
	return c, nil
}

// Action serves one kind of request. To makes it.
type Action func(ctx context.Context, c Caller, fields map[string]json.RawMessage) (any, error)

// To makes an Action of a function on typed values. Req is a struct whose json
// tags name the request's fields.
func To[Req, Res any](handle func(ctx context.Context, c Caller, r Req) (Res, error)) Action {
	return func(ctx context.Context, c Caller, fields map[string]json.RawMessage) (any, error) {
		var r Req
		if err := wire.Decode(fields, &r); err != nil {
			return nil, err
		}
		return handle(ctx, c, r)
	}
}

// Handler is what a Lambda function runs for a route with a reply.
type Handler = func(context.Context, events.APIGatewayWebsocketProxyRequest) (events.APIGatewayProxyResponse, error)

// Sockets ends connections; a *push.Pusher does.
type Sockets interface {
	// Dismiss says goodbye, with this reason, and closes.
	Dismiss(ctx context.Context, connectionID, reason string) error
}

// Serve answers frames by their action. API Gateway selects the route by the
// same field, so one function may have several routes, and $default too.
//
// A connection whose token has expired gets the goodbye instead, whatever it
// asks, and is closed: the authorizer looks at a token once, for up to two hours.
//
// Every frame gets an answer: the action's result, or an error frame. A
// *chat.Error in an action's error is shown to the client; the end of the context, which
// is before that of the function's time (shared/start), becomes BUSY; anything else is
// INTERNAL, and only the log says more. A request is one log line, see record, with what
// the action took down by metric.Note; it has none of the request's content.
//
// Every frame counts for the limits, those too that are no requests; nil is none.
func Serve(log *slog.Logger, sockets Sockets, limits *Limits, actions map[string]Action) Handler {
	return func(ctx context.Context, event events.APIGatewayWebsocketProxyRequest) (events.APIGatewayProxyResponse, error) {
		start := time.Now()
		ctx, notes := metric.Begin(ctx)
		caller, anonymous := CallerOf(event)
		if caller.ExpiresAt != 0 && start.UnixMilli() >= caller.ExpiresAt {
			return expired(ctx, log, sockets, caller), nil
		}
		r, err := wire.ReadRequest([]byte(event.Body))
		if err == nil {
			err = anonymous
		}
		if limits != nil && anonymous == nil {
			if refused := limits.admit(ctx, caller); refused != nil {
				err = refused
			}
		}
		var result any
		if err == nil {
			result, err = run(ctx, actions, caller, r)
		}
		body, err := encode(r, result, err, caller.RequestID)
		if actions[r.Action] == nil {
			r.Action = "" // whatever the client made up
		}
		record(ctx, log, caller, r, notes, err, time.Since(start))
		return events.APIGatewayProxyResponse{StatusCode: 200, Body: string(body)}, nil
	}
}

// expired ends the caller's connection. The goodbye is posted, because an answer
// would come after the close; it is the answer too, for a connection that could
// not be closed.
func expired(ctx context.Context, log *slog.Logger, sockets Sockets, c Caller) events.APIGatewayProxyResponse {
	log = log.With("requestId", c.RequestID, "connectionId", c.ConnectionID, "userId", c.UserID, "deviceId", c.DeviceID)
	if err := sockets.Dismiss(ctx, c.ConnectionID, wire.GoodbyeExpired); err != nil {
		log.WarnContext(ctx, "closing a connection whose token has expired", "err", err)
	} else {
		log.InfoContext(ctx, "the token has expired")
	}
	body, _ := wire.Encode(wire.Goodbye{Type: wire.TypeGoodbye, Reason: wire.GoodbyeExpired}) // nothing in it can fail
	return events.APIGatewayProxyResponse{StatusCode: 200, Body: string(body)}
}

func run(ctx context.Context, actions map[string]Action, c Caller, r wire.Request) (any, error) {
	action, ok := actions[r.Action]
	if !ok {
		return nil, chat.Errorf(chat.CodeUnknownAction, "there is no action %q here; see the protocol for those there are", r.Action)
	}
	envelope, err := wire.Encode(reply(r, struct{}{}))
	if err != nil {
		return nil, err
	}
	c.Room = wire.MaxFrameBytes - len(envelope) + len("{}")
	return action(ctx, c, r.Fields)
}

func reply(r wire.Request, result any) wire.Reply {
	return wire.Reply{Type: wire.TypeReply, ID: r.ID, Action: r.Action, Result: result}
}

// encode returns the frame that answers the request, and the error that became of
// it: that of the action, or that its result cannot be sent.
func encode(r wire.Request, result any, err error, requestID string) ([]byte, error) {
	var body []byte
	if err == nil {
		body, err = wire.Encode(reply(r, result))
	}
	if err == nil && len(body) > wire.MaxFrameBytes {
		err = fmt.Errorf("the reply takes %d bytes, a frame has at most %d", len(body), wire.MaxFrameBytes)
	}
	if err == nil {
		return body, nil
	}
	body, failed := wire.Encode(errorReply(r, refusal(err, requestID)))
	if failed == nil && len(body) <= wire.MaxFrameBytes {
		return body, err
	}
	err = fmt.Errorf("details that fit no frame, of: %w", errors.Join(err, failed))
	body, _ = wire.Encode(errorReply(r, internal(requestID))) // nothing in it can fail
	return body, err
}

func errorReply(r wire.Request, e wire.Error) wire.ErrorReply {
	return wire.ErrorReply{Type: wire.TypeError, ID: r.ID, Action: r.Action, Error: e}
}

// refusal is what the client is told of an error.
func refusal(err error, requestID string) wire.Error {
	if e, ok := errors.AsType[*chat.Error](err); ok {
		return wire.Error{
			Code: e.Code, Message: clip(e.Message), Retryable: e.Code.Retryable(), Field: e.Field, Details: e.Details,
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return wire.Error{
			Code: chat.CodeBusy, Retryable: true,
			Message: "the time for this request is over; send it again, a message with the same clientMsgId",
		}
	}
	return internal(requestID)
}

func internal(requestID string) wire.Error {
	return wire.Error{
		Code: chat.CodeInternal, Retryable: true,
		Message: "the server failed; its log has the reason under request id " + requestID,
	}
}

// maxErrorBytes bounds an error's message, which may quote what the client sent.
const maxErrorBytes = 500

func clip(s string) string {
	if len(s) <= maxErrorBytes {
		return s
	}
	cut := maxErrorBytes
	for !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

// slow is from when on a request is told of, though nothing else is to be told.
const slow = time.Second

// record writes a request's log line. One of what went well, and has nothing to tell,
// such as a heartbeat or a receipt, is of debug level: it would cost more than what it
// tells of.
func record(ctx context.Context, log *slog.Logger, c Caller, r wire.Request, notes *metric.Notes, err error, took time.Duration) {
	attrs := []slog.Attr{
		slog.String("requestId", c.RequestID),
		slog.String("connectionId", c.ConnectionID),
		slog.String("userId", c.UserID),
		slog.String("deviceId", c.DeviceID),
		slog.String("action", r.Action),
	}
	var told wire.Error
	if err != nil {
		told = refusal(err, "")
	}
	level, outcome := notes.Outcome(err, told.Code, told.Field, took)
	if err == nil && took < slow && !notes.Tell() {
		level = slog.LevelDebug
	}
	log.LogAttrs(ctx, level, "request", append(attrs, outcome...)...)
}
