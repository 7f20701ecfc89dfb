package main

import (
	"context"
	"log/slog"

	"github.com/aws/aws-lambda-go/events"

	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/store"
)

type connections interface {
	Disconnect(ctx context.Context, userID string, conns ...store.Connection) error
}

type handler struct {
	connections connections
	log         *slog.Logger
}

// handle forgets exactly the connection that ended: id, device and time say
// which, so a newer connection of the same device stays. API Gateway calls it at
// best once; what it misses ages out, or is forgotten when a push finds it gone.
func (h handler) handle(ctx context.Context, event events.APIGatewayWebsocketProxyRequest) (events.APIGatewayProxyResponse, error) {
	caller, err := route.CallerOf(event)
	if err == nil {
		err = h.connections.Disconnect(ctx, caller.UserID, store.Connection{
			ID: caller.ConnectionID, DeviceID: caller.DeviceID, ConnectedAt: caller.ConnectedAt, ExpiresAt: caller.ExpiresAt,
		})
	}
	log := h.log.With("requestId", caller.RequestID, "connectionId", caller.ConnectionID,
		"userId", caller.UserID, "deviceId", caller.DeviceID)
	if err != nil {
		log.ErrorContext(ctx, "disconnecting", "err", err)
		return events.APIGatewayProxyResponse{StatusCode: 500}, nil
	}
	log.LogAttrs(ctx, slog.LevelInfo, "disconnected", metric.Count(metric.ConnectionsClosed, 1))
	return events.APIGatewayProxyResponse{StatusCode: 200}, nil
}
