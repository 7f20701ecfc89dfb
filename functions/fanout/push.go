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

// mail is what one user is to get, of small audiences first.
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
// that they do not wait for a large one, nor for the many connections of its members:
// each conversation of more than chat.InboxGroupMax members has its posts, and their
// time, to itself.
//
// Whose connections cannot be read soon, as their partition is throttled, is waited for
// when all others have their posts.
func (h handler) push(ctx context.Context, b *batch, all []news) tally {
	p := posting{handler: h, encoder: push.NewEncoder(), mails: address(all)}
	small, large := p.users()
	limited, cancel := context.WithTimeout(ctx, pushBudget)
	defer cancel()
	p.post(limited, small, swift, len(large) > 0)
	p.post(limited, large, swift+time.Duration(len(large))*lookUpEach, false)
	if late := p.unread; len(late) > 0 {
		waiting, cancel := context.WithTimeout(ctx, b.step)
		defer cancel()
		p.unread = nil
		p.post(waiting, late, b.step, false)
	}
	if err := p.encoder.Err(); err != nil {
		h.log.ErrorContext(ctx, "encoding a push", "err", err)
	}
	t := h.settle(ctx, p.recipients, p.outcomes)
	if b.passes && len(p.unread) < len(p.mails) {
		t.unpushed += len(p.unread)
		t.firstErr = cmp.Or(t.firstErr, p.why)
		return t
	}
	unread := map[string]bool{}
	for _, userID := range p.unread {
		unread[userID] = true
	}
	for _, n := range all {
		part := &store.UnreadError{Err: p.why}
		for _, w := range n.windows {
			if unread[w.userID] {
				part.UserIDs = append(part.UserIDs, w.userID)
			}
		}
		if len(part.UserIDs) > 0 {
			b.fail(part, n.id)
		}
	}
	return t
}

// posting is what becomes of a batch's mail.
type posting struct {
	handler
	encoder *push.Encoder
	mails   map[string]*mail

	recipients []recipient
	outcomes   []push.Outcome
	large      int      // posts of large conversations
	unread     []string // whose connections could not be read
	why        error
}

// maxPosts is how many posts a push takes on for large conversations, but for one to each
// of their connections. A function of 512 MB makes about a thousand a second.
const maxPosts = 5000

// users are those who get mail: who is in a small conversation of the batch, and all
// others, those of smaller ones first.
func (p *posting) users() (small, large []string) {
	all := slices.SortedFunc(maps.Keys(p.mails), func(a, b string) int {
		return cmp.Or(p.mails[a].smallest.compare(p.mails[b].smallest), cmp.Compare(a, b))
	})
	n, _ := slices.BinarySearchFunc(all, 1, func(userID string, size int) int {
		return cmp.Compare(p.mails[userID].smallest.size, size)
	})
	return all[:n], all[n:]
}

// post posts the mail of those users whose connections can be read in so long. More
// says that it is to leave half of the time.
func (p *posting) post(ctx context.Context, users []string, most time.Duration, more bool) {
	if len(users) == 0 {
		return
	}
	connections, err := p.lookUp(ctx, most, users)
	if part, ok := errors.AsType[*store.UnreadError](err); ok {
		users = part.UserIDs
	}
	if err != nil {
		p.unread, p.why = append(p.unread, users...), cmp.Or(p.why, err)
	}
	recipients, deliveries := prepare(p.encoder, p.mails, connections)
	p.abridge(recipients)
	groups := byAudience(p.mails, recipients)
	for n, places := range groups {
		group := make([]push.Delivery, len(places))
		for i, place := range places {
			group[i] = deliveries[place]
			p.recipients = append(p.recipients, recipients[place])
		}
		left := len(groups) - n
		if more {
			left++
		}
		p.outcomes = append(p.outcomes, p.deliverInTime(ctx, group, left)...)
	}
}

// abridge has large conversations told of by their heads alone where their messages take
// more posts than there is time for, those first that spare most: whoever was not reached
// would hear of nothing before the next push, or before it asks.
func (p *posting) abridge(recipients []recipient) {
	connections := map[*news]int{}
	for _, r := range recipients {
		for _, part := range p.mails[r.userID].parts {
			connections[part.of]++
		}
	}
	spared := map[*news]int{}
	for n, posts := range connections {
		if n.audience().size == 0 || n.brief {
			continue
		}
		frames := 0
		for range p.encoder.Frames([]wire.Update{{ConversationID: n.id, Messages: n.entries, CommittedMaxSeq: n.news.To}}) {
			frames++
		}
		if p.large += frames * posts; frames > 1 {
			spared[n] = (frames - 1) * posts
		}
	}
	most := slices.SortedFunc(maps.Keys(spared), func(a, b *news) int {
		return cmp.Or(cmp.Compare(spared[b], spared[a]), cmp.Compare(a.id, b.id))
	})
	for _, n := range most {
		if p.large > maxPosts {
			n.brief = true
			p.large -= spared[n]
		}
	}
}

func (h handler) lookUp(ctx context.Context, most time.Duration, userIDs []string) (map[string][]store.Connection, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	return h.store.Connections(ctx, userIDs)
}

// deliverInTime delivers to the first of so many groups that are left, each of which has
// an equal part of what is left of the time: a large conversation whose devices do not
// read leaves the others theirs.
func (h handler) deliverInTime(ctx context.Context, group []push.Delivery, left int) []push.Outcome {
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
	order := slices.SortedFunc(maps.Keys(groups), audienceOf.compare)
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

func (a audienceOf) compare(b audienceOf) int {
	return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.conversationID, b.conversationID))
}

func (n news) audience() audienceOf {
	if len(n.windows) <= chat.InboxGroupMax {
		return audienceOf{}
	}
	return audienceOf{len(n.windows), n.id}
}

func address(all []news) map[string]*mail {
	mails := map[string]*mail{}
	for _, n := range bySize(all) {
		for _, w := range n.windows {
			if len(n.unread) > 0 && !slices.Contains(n.unread, w.userID) {
				continue
			}
			m := mails[w.userID]
			if m == nil {
				m = &mail{smallest: n.audience()}
				mails[w.userID] = m
			}
			m.parts = append(m.parts, part{n, w})
		}
	}
	return mails
}

// bySize sorts news, small audiences first.
func bySize(all []news) []*news {
	sorted := make([]*news, len(all))
	for i := range all {
		sorted[i] = &all[i]
	}
	slices.SortStableFunc(sorted, func(a, b *news) int { return cmp.Compare(a.audience().size, b.audience().size) })
	return sorted
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
		var heads []wire.Head
		for _, p := range m.parts {
			if p.of.brief {
				heads = append(heads, wire.Head{ConversationID: p.of.id, CommittedMaxSeq: p.window.to})
			} else {
				updates = append(updates, p.of.update(p.window, connectionID))
			}
		}
		for frame := range encoder.Frames(updates) {
			if !yield(frame) {
				return
			}
		}
		if len(heads) > 0 { // of a batch, so that they fit one frame
			frame, _ := wire.Encode(wire.Notify{Type: wire.TypeNotify, Updates: heads}) // ids always can be encoded
			yield(frame)
		}
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
