package main

import (
	"context"
	"time"

	"inorder/shared/route"
	"inorder/shared/wire"
)

type handler struct {
	now func() time.Time
}

func (h handler) actions() map[string]route.Action {
	return map[string]route.Action{wire.ActionPing: route.To(h.ping)}
}

// ping tells the server's time, for display: no order depends on it.
func (h handler) ping(context.Context, route.Caller, struct{}) (wire.Pong, error) {
	return wire.Pong{ServerTime: h.now().UnixMilli()}, nil
}
