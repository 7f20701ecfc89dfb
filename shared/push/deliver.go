package push

import (
	"context"
	"errors"
	"iter"

	"golang.org/x/sync/errgroup"

	"github.com/inorder-im/inorder/shared/wire"
)

// Delivery is what one connection is to get, in this order. The frames are asked for once,
// one by one, as they are posted.
type Delivery struct {
	ConnectionID string
	ExpiresAt    int64 // ms: from when on it gets a goodbye instead; 0 for never
	Frames       iter.Seq[[]byte]
}

// Outcome is what became of a Delivery.
type Outcome struct {
	Sent int   // frames that were posted
	Err  error // why the others were not; nil if there are none
}

// Gone reports whether the connection turned out to be over.
func (o Outcome) Gone() bool { return errors.Is(o.Err, ErrGone) }

// Expired reports whether the connection was dismissed because its token has
// expired.
func (o Outcome) Expired() bool { return errors.Is(o.Err, ErrExpired) }

// Deliver serves the connections, each in order, several at a time, and returns
// the outcomes in the order of the deliveries.
//
// After the first frame that fails, the rest of that connection's are dropped: a
// device that sees a later message without the former has to fetch the gap
// anyway. A connection that hangs costs its own PostTimeout and one of the
// places; after DeliverTimeout whatever is left fails.
//
// A connection whose token has expired is dismissed, and pushed nothing: who only
// listens makes no request that would notice.
func (p *Pusher) Deliver(ctx context.Context, deliveries []Delivery) []Outcome {
	ctx, cancel := context.WithTimeout(ctx, p.DeliverTimeout)
	defer cancel()
	outcomes := make([]Outcome, len(deliveries))
	var g errgroup.Group
	g.SetLimit(p.Parallel)
	for i, d := range deliveries {
		g.Go(func() error {
			outcomes[i] = p.deliver(ctx, d)
			return nil
		})
	}
	_ = g.Wait() // the outcomes have the errors
	return outcomes
}

func (p *Pusher) deliver(ctx context.Context, d Delivery) Outcome {
	if err := ctx.Err(); err != nil { // a post would fail all the same, after it was signed
		return Outcome{Err: err}
	}
	if d.ExpiresAt != 0 && p.Now().UnixMilli() >= d.ExpiresAt {
		if err := p.Dismiss(ctx, d.ConnectionID, wire.GoodbyeExpired); err != nil {
			return Outcome{Err: err}
		}
		return Outcome{Err: ErrExpired}
	}
	sent := 0
	for frame := range d.Frames {
		if err := p.Post(ctx, d.ConnectionID, frame); err != nil {
			return Outcome{Sent: sent, Err: err}
		}
		sent++
	}
	return Outcome{Sent: sent}
}
