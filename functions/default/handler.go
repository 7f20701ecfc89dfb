package main

import (
	"context"
	"time"

	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/wire"
)

type handler struct {
	now    func() time.Time
	attend route.Attend
}

func (h handler) actions() map[string]route.Action {
	return map[string]route.Action{wire.ActionPing: route.To(h.ping)}
}

// ping tells the server's time, for display: no order depends on it.
func (h handler) ping(ctx context.Context, c route.Caller, _ struct{}) (wire.Pong, error) {
	h.attend(ctx, c)
	return wire.Pong{ServerTime: h.now().UnixMilli()}, nil
}
