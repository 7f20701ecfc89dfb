package route

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"inorder/shared/chat"
	"inorder/shared/limit"
	"inorder/shared/wire"
)

// userShare is how many times as often as one connection its user may ask, with
// all devices together: a device that runs wild does not silence the others, and
// many devices are not many times the rate.
const userShare = 2

// patience is how many times as often as it may ask a connection may be refused
// before it is closed. API Gateway's own limit is for all users together: a flood
// that is only refused would take from the others what it lets through.
const patience = 20

// Limited puts a limit before actions: rate for all of them together by one
// connection, and twice that by one user. A request beyond it is BUSY, says when
// to come again, and has reached nothing. A connection that does not heed that is
// dismissed. now is the clock.
func Limited(rate limit.Rate, now func() time.Time, sockets Sockets, actions map[string]Action) map[string]Action {
	l := limits{
		connections: limit.New(rate, now),
		users:       limit.New(rate.Times(userShare), now),
		refusals:    limit.New(rate.Times(patience), now),
		sockets:     sockets,
	}
	limited := make(map[string]Action, len(actions))
	for name, action := range actions {
		limited[name] = func(ctx context.Context, c Caller, fields map[string]json.RawMessage) (any, error) {
			if err := l.admit(ctx, c); err != nil {
				return nil, err
			}
			return action(ctx, c, fields)
		}
	}
	return limited
}

type limits struct {
	connections, users, refusals *limit.Limiter
	sockets                      Sockets
}

func (l limits) admit(ctx context.Context, c Caller) error {
	who, rate := "one connection", l.connections.Rate()
	wait := l.connections.Take(c.ConnectionID)
	if wait == 0 {
		who, rate = "one user", l.users.Rate()
		wait = l.users.Take(c.UserID)
	}
	if wait == 0 {
		return nil
	}
	if l.refusals.Take(c.ConnectionID) > 0 {
		if err := l.sockets.Dismiss(ctx, c.ConnectionID, wire.GoodbyeFlooding); err != nil {
			return fmt.Errorf("%w; closing the connection that floods: %w", tooFast(who, rate, wait), err)
		}
	}
	return tooFast(who, rate, wait)
}

func tooFast(who string, rate limit.Rate, wait time.Duration) error {
	ms := (wait + time.Millisecond - 1).Milliseconds()
	e := chat.Errorf(chat.Busy, "%s may do this %s; send it again in %d ms, a message with the same clientMsgId", who, rate, ms)
	e.Details = map[string]any{wire.DetailRetryAfter: ms}
	return e
}
