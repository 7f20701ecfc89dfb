package route

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/limit"
	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/wire"
)

// userShare is how many times as often as one connection its user may ask, with
// all devices together: a device that runs wild does not silence the others, and
// many devices are not many times the rate.
const userShare = 2

// How often a user may be refused, by whichever connection and in all environments
// together, before the connection is closed: that many times a connection's burst, but no
// more than maxRefused, and then as often as the user may ask. API Gateway's own limit is
// for all users together: a flood that is only refused would take from the others what it
// lets through. It comes to as many environments as it has frames under way, hundreds
// while they start, so what each of them forgave would be more than API Gateway's burst.
const (
	patience   = 20
	maxRefused = 100
)

// Limits bound how often callers may ask: a rate for one connection, in each
// environment, and twice that for one user, in all environments together. A frame
// beyond it is BUSY, says when to come again, and has reached no action, whatever is
// in it. A connection of a user who does not heed that is dismissed.
type Limits struct {
	connections     *limit.Limiter
	users, refusals *limit.Shared
	sockets         Sockets
}

// NewLimits makes Limits. now is the clock, and charge and refuse are the buckets of each
// user that the environments share: of its requests, and of those that were refused. A
// rate of 0 is no limit.
func NewLimits(rate limit.Rate, now func() time.Time, charge, refuse limit.Charge, sockets Sockets) *Limits {
	refused := limit.Rate{PerSecond: userShare * rate.PerSecond, Burst: min(patience*rate.Burst, maxRefused)}
	return &Limits{
		connections: limit.New(rate, now),
		users:       limit.NewShared(rate.Times(userShare), now, charge),
		refusals:    limit.NewStrict(refused, now, refuse),
		sockets:     sockets,
	}
}

// admit returns the refusal of a caller who is too fast.
func (l *Limits) admit(ctx context.Context, c Caller) error {
	who, rate := "one connection", l.connections.Rate()
	wait := l.connections.Take(c.ConnectionID)
	if wait == 0 {
		who, rate = "one user", l.users.Rate()
		var err error
		if wait, err = l.users.Take(ctx, c.UserID); err != nil {
			metric.Note(ctx, slog.String("uncharged", err.Error()))
		}
	}
	if wait == 0 {
		return nil
	}
	metric.Note(ctx, metric.Count(metric.Refusals, 1))
	flooding, err := l.refusals.Take(ctx, c.UserID)
	if err != nil {
		metric.Note(ctx, slog.String("uncharged", err.Error()))
	}
	if flooding > 0 {
		if err := l.sockets.Dismiss(ctx, c.ConnectionID, wire.GoodbyeFlooding); err != nil {
			return fmt.Errorf("%w; closing the connection that floods: %w", tooFast(who, rate, wait), err)
		}
	}
	return tooFast(who, rate, wait)
}

func tooFast(who string, rate limit.Rate, wait time.Duration) error {
	ms := limit.Millis(wait)
	return chat.BusyFor(time.Duration(ms)*time.Millisecond, "%s may do this %s; send it again in %d ms, a message with the same clientMsgId", who, rate, ms)
}
