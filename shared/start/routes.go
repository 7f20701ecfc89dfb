package start

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/inorder-im/inorder/shared/limit"
	"github.com/inorder-im/inorder/shared/push"
	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/store"
)

// Backend is what functions behind routes of the API work with.
type Backend struct {
	Store  *store.Store
	Pusher *push.Pusher
	Log    *slog.Logger
}

// Routes wires a function behind routes of the API and serves its invocations, see
// [Function]. Its callers are limited as the environment says for requests of this
// kind, reads or writes.
func Routes(kind store.Requests, wire func(b Backend) (map[string]route.Action, error)) {
	Function(func(ctx context.Context, log *slog.Logger) (any, error) {
		rate, err := rateOf(kind)
		if err != nil {
			return nil, err
		}
		b := Backend{Log: log}
		if b.Store, err = store.Open(ctx, log); err != nil {
			return nil, err
		}
		if b.Pusher, err = push.Open(ctx); err != nil {
			return nil, err
		}
		actions, err := wire(b)
		if err != nil {
			return nil, err
		}
		return route.Serve(log, b.Pusher, route.NewLimits(rate, time.Now, b.Store.Charge(kind), b.Store.Charge(kind.Refused()), b.Pusher), actions), nil
	})
}

func rateOf(kind store.Requests) (limit.Rate, error) {
	switch kind {
	case store.RequestReads:
		return limit.RateFromEnv(os.Getenv, "READS_PER_SECOND", "READ_BURST")
	case store.RequestWrites:
		return limit.RateFromEnv(os.Getenv, "WRITES_PER_SECOND", "WRITE_BURST")
	}
	return limit.Rate{}, fmt.Errorf("no routes have requests of the kind %q", kind)
}
