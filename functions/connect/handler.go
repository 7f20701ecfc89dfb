package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/limit"
	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/wire"
)

// farewell is the time in which displaced connections are told and closed. The
// new one waits for it.
const farewell = 2 * time.Second

type connections interface {
	Connect(ctx context.Context, userID string, c store.Connection) (store.Displaced, error)
}

type handler struct {
	connections connections
	sockets     route.Sockets
	handshakes  *limit.Shared // of each user
	log         *slog.Logger
	farewell    time.Duration
}

// handle decides on one handshake. What it answers besides 200 becomes the
// status of the handshake.
//
// The connection is registered before the handshake is through. A fan-out in
// between cannot reach it yet; the device hears of that message by the changes
// it asks for once it is connected.
func (h handler) handle(ctx context.Context, event events.APIGatewayWebsocketProxyRequest) (events.APIGatewayProxyResponse, error) {
	caller, err := route.CallerOf(event)
	log := h.log.With("requestId", caller.RequestID, "connectionId", caller.ConnectionID, "userId", caller.UserID)
	if err != nil {
		log.ErrorContext(ctx, "connecting", "err", err)
		return answer(500, failed(caller.RequestID))
	}
	if err := chat.ValidateDeviceID("device", caller.DeviceID); err != nil {
		refusal, _ := errors.AsType[*chat.Error](err)
		log.InfoContext(ctx, "refused", "code", refusal.Code, "field", refusal.Field)
		return answer(400, wire.Error{Code: refusal.Code, Message: refusal.Message, Field: refusal.Field})
	}
	wait, uncharged := h.handshakes.Take(ctx, caller.UserID)
	if uncharged != nil {
		log.WarnContext(ctx, "limiting handshakes", "err", uncharged)
	}
	if wait > 0 {
		log.LogAttrs(ctx, slog.LevelWarn, "refused", slog.String("code", string(chat.CodeBusy)), metric.Count(metric.Refusals, 1))
		return tooMany(h.handshakes.Rate(), wait)
	}
	displaced, err := h.connections.Connect(ctx, caller.UserID, store.Connection{
		ID: caller.ConnectionID, DeviceID: caller.DeviceID, ConnectedAt: caller.ConnectedAt, ExpiresAt: caller.ExpiresAt,
	})
	if errors.Is(err, store.ErrSuperseded) {
		log.InfoContext(ctx, "superseded", "deviceId", caller.DeviceID)
		return answer(409, wire.Error{Code: chat.CodeBusy, Retryable: true, Message: "a newer connection of this device is there"})
	}
	if err != nil {
		log.ErrorContext(ctx, "connecting", "deviceId", caller.DeviceID, "err", err)
		return answer(500, failed(caller.RequestID))
	}
	h.dismiss(ctx, log, displaced)
	log.LogAttrs(ctx, slog.LevelInfo, "connected", slog.String("deviceId", caller.DeviceID),
		metric.Count(metric.ConnectionsOpened, 1),
		metric.Count(metric.ConnectionsReplaced, len(displaced.Replaced)), slog.Int("surplus", len(displaced.Surplus)))
	return accept(event), nil
}

// accept answers 200 and selects the subprotocol where it was offered; a browser
// closes a connection for which none of its offers was taken.
func accept(event events.APIGatewayWebsocketProxyRequest) events.APIGatewayProxyResponse {
	response := events.APIGatewayProxyResponse{StatusCode: 200}
	if slices.Contains(route.Subprotocols(event.Headers, event.MultiValueHeaders), wire.Subprotocol) {
		response.Headers = map[string]string{"Sec-WebSocket-Protocol": wire.Subprotocol}
	}
	return response
}

func failed(requestID string) wire.Error {
	return wire.Error{
		Code: chat.CodeInternal, Retryable: true,
		Message: "the server failed; its log has the reason under request id " + requestID,
	}
}

// tooMany tells a client that heeds it when to come again. Whether API Gateway
// passes on more than the status is documented nowhere.
func tooMany(rate limit.Rate, wait time.Duration) (events.APIGatewayProxyResponse, error) {
	ms := limit.Millis(wait)
	response, err := answer(429, wire.Error{
		Code: chat.CodeBusy, Retryable: true, Details: map[string]any{chat.DetailRetryAfter: ms},
		Message: fmt.Sprintf("one user may connect %s; come again in %d ms", rate, ms),
	})
	if err == nil {
		response.Headers["Retry-After"] = strconv.FormatInt((ms+999)/1000, 10)
	}
	return response, err
}

func answer(status int, e wire.Error) (events.APIGatewayProxyResponse, error) {
	body, err := wire.Encode(e)
	if err != nil {
		return events.APIGatewayProxyResponse{}, err
	}
	return events.APIGatewayProxyResponse{
		StatusCode: status, Headers: map[string]string{"Content-Type": "application/json"}, Body: string(body),
	}, nil
}

// dismiss tells the displaced connections why they end, and ends them. They are
// forgotten already, so a failure is only logged: at worst such a connection
// stays open, without pushes, until it is idle.
func (h handler) dismiss(ctx context.Context, log *slog.Logger, d store.Displaced) {
	ctx, cancel := context.WithTimeout(ctx, h.farewell)
	defer cancel()
	var all sync.WaitGroup
	end := func(conns []store.Connection, reason string) {
		for _, c := range conns {
			all.Go(func() {
				if err := h.sockets.Dismiss(ctx, c.ID, reason); err != nil {
					log.WarnContext(ctx, "closing a displaced connection", "displaced", c.ID, "reason", reason, "err", err)
				}
			})
		}
	}
	end(d.Replaced, wire.GoodbyeReplaced)
	end(d.Surplus, wire.GoodbyeDevices)
	all.Wait()
}
