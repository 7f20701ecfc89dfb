package main

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/push"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/wire"
)

// mail is what one user is to get.
type mail struct {
	parts    []part
	smallest audienceOf // of its conversations
}

// part is what a user hears of one conversation.
type part struct {
	of     *news
	window window
}

// recipient is a connection and whose it is.
type recipient struct {
	userID string
	conn   store.Connection
}

// tally counts, for the log.
type tally struct {
	pushes   int // frames posted
	gone     int // connections found gone
	expired  int // connections dismissed
	unpushed int // connections that missed frames for another reason
	aside    int // conversations set aside

	firstErr error // of those
}

func (t tally) plus(other tally) tally {
	return tally{
		pushes: t.pushes + other.pushes, gone: t.gone + other.gone, expired: t.expired + other.expired,
		unpushed: t.unpushed + other.unpushed, aside: t.aside + other.aside, firstErr: cmp.Or(t.firstErr, other.firstErr),
	}
}

// push sends each user's news to all of the user's devices, but no message to the
// connection that has it by the answer to its send. Small audiences come first, so
// that they do not wait for a large one: each conversation of more than
// chat.InboxGroupMax members has its posts, and their time, to itself.
//
// Whose connections cannot be read soon, as their partition is throttled, is waited for
// when all others have their posts.
func (h handler) push(ctx context.Context, b *batch, all []news) (t tally) {
	mails := address(all)
	users := slices.Sorted(maps.Keys(mails))
	limited, cancel := context.WithTimeout(ctx, pushBudget)
	defer cancel()
	var unread error
	for _, most := range []time.Duration{swift, b.step} {
		if len(users) == 0 {
			return t
		}
		connections, err := h.lookUp(limited, most, users)
		t = t.plus(h.post(ctx, limited, mails, connections))
		if err == nil {
			return t
		}
		if part, ok := errors.AsType[*store.UnreadError](err); ok {
			users = part.UserIDs
		}
		unread = err
	}
	if b.passes && len(users) < len(mails) {
		t.unpushed += len(users)
		t.firstErr = cmp.Or(t.firstErr, unread)
		return t
	}
	for _, n := range all {
		if slices.ContainsFunc(n.windows, func(w window) bool { return slices.Contains(users, w.userID) }) {
			b.fail(unread, n.id)
		}
	}
	return t
}

func (h handler) lookUp(ctx context.Context, most time.Duration, userIDs []string) (map[string][]store.Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return h.store.Connections(ctx, userIDs)
}

// post sends mail to the connections of its users, within the limited time.
func (h handler) post(ctx, limited context.Context, mails map[string]*mail, connections map[string][]store.Connection) tally {
	encoder := push.NewEncoder()
	recipients, deliveries := prepare(encoder, mails, connections)
	outcomes := make([]push.Outcome, len(deliveries))
	groups := byAudience(mails, recipients)
	for n, places := range groups {
		group := make([]push.Delivery, len(places))
		for i, place := range places {
			group[i] = deliveries[place]
		}
		large := mails[recipients[places[0]].userID].smallest != audienceOf{}
		for i, o := range h.deliverInTime(limited, group, large, len(groups)-n) {
			outcomes[places[i]] = o
		}
	}
	if err := encoder.Err(); err != nil {
		h.log.ErrorContext(ctx, "encoding a push", "err", err)
	}
	return h.settle(ctx, recipients, outcomes)
}

// deliverInTime delivers to the first of so many groups that are left. Of what is left of
// the time a large conversation has an equal part, so that one whose devices do not read
// leaves the others theirs, and all small ones together have half at least.
func (h handler) deliverInTime(ctx context.Context, group []push.Delivery, large bool, left int) []push.Outcome {
	if !large {
		left = min(left, 2)
	}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
		defer cancel()
	}
	return h.pusher.Deliver(ctx, group)
}

// byAudience groups the places of recipients: first all whose mail is of a small
// conversation, then for each large one those that have no mail of a smaller one.
func byAudience(mails map[string]*mail, recipients []recipient) [][]int {
	groups := map[audienceOf][]int{}
	for i, r := range recipients {
		groups[mails[r.userID].smallest] = append(groups[mails[r.userID].smallest], i)
	}
	order := slices.SortedFunc(maps.Keys(groups), func(a, b audienceOf) int {
		return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.conversationID, b.conversationID))
	})
	sorted := make([][]int, len(order))
	for i, key := range order {
		sorted[i] = groups[key]
	}
	return sorted
}

// audienceOf is a conversation and how many hear of it; of all small ones it is
// zero.
type audienceOf struct {
	size           int
	conversationID chat.ConversationID
}

func (n news) audience() audienceOf {
	if len(n.windows) <= chat.InboxGroupMax {
		return audienceOf{}
	}
	return audienceOf{len(n.windows), n.id}
}

func address(all []news) map[string]*mail {
	mails := map[string]*mail{}
	for i := range all {
		n := &all[i]
		for _, w := range n.windows {
			m := mails[w.userID]
			if m == nil {
				m = &mail{smallest: n.audience()}
				mails[w.userID] = m
			}
			if n.audience().size < m.smallest.size {
				m.smallest = n.audience()
			}
			m.parts = append(m.parts, part{n, w})
		}
	}
	return mails
}

// prepare addresses the mail to the connections of those who have any.
func prepare(encoder *push.Encoder, mails map[string]*mail, connections map[string][]store.Connection) ([]recipient, []push.Delivery) {
	var recipients []recipient
	var deliveries []push.Delivery
	for userID, conns := range connections {
		for _, c := range conns {
			recipients = append(recipients, recipient{userID: userID, conn: c})
			deliveries = append(deliveries, push.Delivery{
				ConnectionID: c.ID, ExpiresAt: c.ExpiresAt, Frames: mails[userID].frames(encoder, c.ID),
			})
		}
	}
	return recipients, deliveries
}

// frames are what one of the user's connections is to get. They are made when they are
// asked for, for those of all members of a large group would take too much memory.
func (m *mail) frames(encoder *push.Encoder, connectionID string) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		var updates []wire.Update
		for _, p := range m.parts {
			if p.of.notify == nil {
				updates = append(updates, p.of.update(p.window, connectionID))
			} else if !yield(p.of.notify) {
				return
			}
		}
		encoder.Frames(updates)(yield)
	}
}

// settle forgets the connections that turned out to be gone, or whose token has
// expired. One that API Gateway called gone is closed, too: were that a mistake,
// its device would wait without pushes for what may be hours. Failures here and in
// the push are logged only: a push is a hint.
func (h handler) settle(ctx context.Context, recipients []recipient, outcomes []push.Outcome) tally {
	ctx, cancel := context.WithTimeout(ctx, settleBudget)
	defer cancel()
	var t tally
	over := map[string][]store.Connection{}
	gone := map[string]bool{}
	for i, o := range outcomes {
		t.pushes += o.Sent
		r := recipients[i]
		switch {
		case o.Err == nil:
		case o.Expired():
			t.expired++
			over[r.userID] = append(over[r.userID], r.conn)
		case !o.Gone():
			t.unpushed++
			t.firstErr = cmp.Or(t.firstErr, o.Err)
		case h.now().Sub(time.UnixMilli(r.conn.ConnectedAt)) < handshake:
			t.unpushed++
		default:
			t.gone++
			gone[r.conn.ID] = true
			over[r.userID] = append(over[r.userID], r.conn)
		}
	}
	each(maps.All(over), func(userID string, conns []store.Connection) {
		if err := h.store.Disconnect(ctx, userID, conns...); err != nil {
			h.log.WarnContext(ctx, "forgetting connections", "userId", userID, "err", err)
		}
		for _, c := range conns {
			if !gone[c.ID] {
				continue
			}
			if err := h.pusher.Close(ctx, c.ID); err != nil {
				h.log.WarnContext(ctx, "closing a connection that seemed gone", "connectionId", c.ID, "err", err)
			}
		}
	})
	return t
}
