package main

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"inorder/shared/chat"
	"inorder/shared/push"
	"inorder/shared/store"
	"inorder/shared/wire"
)

// parallel is how many DynamoDB calls of a batch are under way at a time.
const parallel = 32

// handshake is how long a registered connection may still be on its way: API
// Gateway gives $connect at most 29 seconds and answers 410 to posts until it
// has returned. A younger connection that seems gone is only not there yet, and
// forgetting it would leave its device without pushes.
const handshake = 30 * time.Second

type storage interface {
	Entries(ctx context.Context, conversationID string, r chat.Range) ([]chat.Message, error)
	Raise(ctx context.Context, userID string, conversationIDs []string) (cursor int64, err error)
	Enlist(ctx context.Context, userID, conversationID string) error
	Delist(ctx context.Context, userID, conversationID string) error
	Connections(ctx context.Context, userIDs []string) (map[string][]store.Connection, error)
	Disconnect(ctx context.Context, userID string, conns ...store.Connection) error
}

type rosters interface {
	// At gives the roster at this version or a later one.
	At(ctx context.Context, conversationID string, version int64) ([]chat.Member, error)
}

type pusher interface {
	// Deliver gives the outcomes in the order of the deliveries.
	Deliver(ctx context.Context, deliveries []push.Delivery) []push.Outcome
}

type handler struct {
	store   storage
	rosters rosters
	pusher  pusher
	log     *slog.Logger
	now     func() time.Time
}

// handle pushes what a batch of head changes tells of.
//
// The order of the steps makes reconnecting lossless. The sync heads are raised
// first, then the connections are read, strongly consistent; a device registers
// first and asks for changes then. Whichever of the two comes first, the device
// hears of the message by the push or by the changes.
//
// Only a record that cannot be understood, or whose conversation could not be
// read or noted, is reported as failed; Lambda then repeats it and all that
// follow it, which only repeats pushes. Everything else in the batch is served.
func (h handler) handle(ctx context.Context, event events.DynamoDBEvent) (events.DynamoDBEventResponse, error) {
	start := h.now()
	conversations, back, poison := read(event.Records)
	b := &batch{failed: map[string]error{}}
	all := h.load(ctx, b, conversations)
	h.raise(ctx, b, all)
	tally := h.push(ctx, b, all)

	for sequenceNumber, err := range poison {
		h.log.ErrorContext(ctx, "a record makes no sense", "sequenceNumber", sequenceNumber, "err", err)
	}
	for id, err := range b.failed {
		h.log.ErrorContext(ctx, "a conversation failed", "conversationId", id, "err", err)
	}
	failures := failuresOf(event.Records, conversations, b.failed, poison)
	h.inspect(ctx, all, back)
	h.record(ctx, event.Records, all, tally, len(failures), start)
	return events.DynamoDBEventResponse{BatchItemFailures: failures}, nil
}

// batch collects, from several goroutines, the conversations that failed.
type batch struct {
	mu     sync.Mutex
	failed map[string]error // by conversation id, the first error
}

func (b *batch) fail(err error, conversationIDs ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range conversationIDs {
		if b.failed[id] == nil {
			b.failed[id] = err
		}
	}
}

// failuresOf names the failed records in the order of the batch. Lambda goes on
// from the first of them.
func failuresOf(records []events.DynamoDBEventRecord, conversations []*conversation, failed, poison map[string]error) []events.DynamoDBBatchItemFailure {
	bad := map[string]bool{}
	for sequenceNumber := range poison {
		bad[sequenceNumber] = true
	}
	for _, c := range conversations {
		if failed[c.id] == nil {
			continue
		}
		for _, sequenceNumber := range c.records {
			bad[sequenceNumber] = true
		}
	}
	failures := []events.DynamoDBBatchItemFailure{}
	for _, r := range records {
		if bad[r.Change.SequenceNumber] {
			failures = append(failures, events.DynamoDBBatchItemFailure{ItemIdentifier: r.Change.SequenceNumber})
		}
	}
	return failures
}

// load reads what is new in each conversation, and for whom. Those that could
// not be read are left out.
func (h handler) load(ctx context.Context, b *batch, conversations []*conversation) []news {
	loaded := make([]*news, len(conversations))
	each(slices.All(conversations), func(i int, c *conversation) {
		n, err := h.loadOne(ctx, c)
		if err != nil {
			b.fail(err, c.id)
			return
		}
		loaded[i] = &n
	})
	var all []news
	for _, n := range loaded {
		if n != nil {
			all = append(all, *n)
		}
	}
	return all
}

func (h handler) loadOne(ctx context.Context, c *conversation) (news, error) {
	members, err := h.rosters.At(ctx, c.id, c.membersVersion)
	if err != nil {
		return news{}, err
	}
	n := news{conversation: c, small: len(members) <= chat.SmallGroupMax, noted: len(members) <= chat.InboxGroupMax}
	// Of a large conversation only the head is pushed; who was removed from it
	// stands in the messages.
	if n.small || c.rosterChanged {
		if n.entries, err = h.store.Entries(ctx, c.id, c.news); err != nil {
			return news{}, err
		}
	}
	n.windows = audience(c, members, n.entries)
	return n, nil
}

// raise notes the conversations in the sync heads of their users, once for each
// user, and which of them are large.
func (h handler) raise(ctx context.Context, b *batch, all []news) {
	changed := map[string][]string{}
	large := map[listing]bool{}
	for _, n := range all {
		for _, w := range n.windows {
			if n.noted || w.came || w.gone {
				changed[w.userID] = append(changed[w.userID], n.id)
			}
		}
		maps.Copy(large, n.listings())
	}
	each(maps.All(large), func(l listing, large bool) {
		update := h.store.Delist
		if large {
			update = h.store.Enlist
		}
		if err := update(ctx, l.userID, l.conversationID); err != nil {
			b.fail(err, l.conversationID)
		}
	})
	each(maps.All(changed), func(userID string, ids []string) {
		if _, err := h.store.Raise(ctx, userID, ids); err != nil {
			b.fail(err, ids...)
		}
	})
}

// mail is what one user is to get.
type mail struct {
	updates []wire.Update
	heads   []wire.Head
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

	firstErr error // of those
}

// push sends each user's news to all of the user's devices, the sending one
// included: that one way is right for all of them.
func (h handler) push(ctx context.Context, b *batch, all []news) tally {
	mails := address(all)
	if len(mails) == 0 {
		return tally{}
	}
	connections, err := h.store.Connections(ctx, slices.Sorted(maps.Keys(mails)))
	if err != nil {
		for _, n := range all {
			b.fail(err, n.id)
		}
		return tally{}
	}
	recipients, deliveries := h.prepare(ctx, mails, connections)
	outcomes := h.pusher.Deliver(ctx, deliveries)
	return h.settle(ctx, recipients, outcomes)
}

func address(all []news) map[string]*mail {
	mails := map[string]*mail{}
	for _, n := range all {
		for _, w := range n.windows {
			m := mails[w.userID]
			if m == nil {
				m = &mail{}
				mails[w.userID] = m
			}
			if n.small {
				m.updates = append(m.updates, n.update(w))
			} else {
				m.heads = append(m.heads, wire.Head{ConversationID: n.id, CommittedMaxSeq: w.to})
			}
		}
	}
	return mails
}

// prepare encodes the mail of those who are connected.
func (h handler) prepare(ctx context.Context, mails map[string]*mail, connections map[string][]store.Connection) ([]recipient, []push.Delivery) {
	var recipients []recipient
	var deliveries []push.Delivery
	encoder := push.NewEncoder()
	for userID, conns := range connections {
		frames, err := framesOf(encoder, mails[userID])
		if err != nil {
			h.log.ErrorContext(ctx, "encoding a push", "userId", userID, "err", err)
			continue
		}
		if len(frames) == 0 {
			continue
		}
		for _, c := range conns {
			recipients = append(recipients, recipient{userID: userID, conn: c})
			deliveries = append(deliveries, push.Delivery{ConnectionID: c.ID, ExpiresAt: c.ExpiresAt, Frames: frames})
		}
	}
	return recipients, deliveries
}

func framesOf(encoder *push.Encoder, m *mail) ([][]byte, error) {
	frames, err := encoder.Frames(m.updates)
	if err != nil {
		return nil, err
	}
	notifications, err := push.NotifyFrames(m.heads)
	if err != nil {
		return nil, err
	}
	return slices.Concat(frames, notifications), nil
}

// settle forgets the connections that turned out to be gone, or whose token has
// expired. Failures here and in the push are logged only: a push is a hint.
func (h handler) settle(ctx context.Context, recipients []recipient, outcomes []push.Outcome) tally {
	var t tally
	over := map[string][]store.Connection{}
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
			over[r.userID] = append(over[r.userID], r.conn)
		}
	}
	each(maps.All(over), func(userID string, conns []store.Connection) {
		if err := h.store.Disconnect(ctx, userID, conns...); err != nil {
			h.log.WarnContext(ctx, "forgetting connections", "userId", userID, "err", err)
		}
	})
	return t
}

// each runs f for every pair, several at a time, and waits for all of them.
func each[K, V any](pairs iter.Seq2[K, V], f func(K, V)) {
	var all sync.WaitGroup
	places := make(chan struct{}, parallel)
	for k, v := range pairs {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			f(k, v)
		})
	}
	all.Wait()
}
