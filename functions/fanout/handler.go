package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"golang.org/x/sync/errgroup"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/letter"
	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/push"
	"github.com/inorder-im/inorder/shared/store"
)

// How many DynamoDB calls are under way at a time.
const (
	parallel  = 64 // of a batch
	comparing = 16 // of one conversation whose lists are compared
)

// How long the parts of a batch may take. What is slow is told in a second round, so
// notes and pushes may come twice, and each round may push twice, each time with a step
// more for who is looked up late: in all at most 52 seconds of the function's minute.
const (
	swift        = 250 * time.Millisecond // after which the others of a batch go on without one that is slow
	hasty        = 2 * time.Second        // reading one conversation, or noting one user, while a lane waits
	stepTimeout  = 8 * time.Second        // the same, of what was set aside, for which nobody waits
	loadBudget   = 10 * time.Second       // reading all
	tellBudget   = 17 * time.Second       // noting and pushing all of a round
	raiseBudget  = 8 * time.Second        // noting all of a part of them
	pushBudget   = 5 * time.Second        // looking up connections and posting; what is left then is dropped: a push is a hint
	lookUpEach   = 50 * time.Microsecond  // for each user of large conversations, beside swift
	settleBudget = 2 * time.Second        // forgetting connections
	asideBudget  = 8 * time.Second        // setting aside what failed
)

// handshake is how long a registered connection may still be on its way: API
// Gateway gives $connect at most 29 seconds and answers 410 to posts until it
// has returned. A younger connection that seems gone is only not there yet, and
// forgetting it would leave its device without pushes.
const handshake = 30 * time.Second

type storage interface {
	Entries(ctx context.Context, conversationID chat.ConversationID, r chat.Range) ([]chat.Message, error)
	Raise(ctx context.Context, userID string, conversationIDs []chat.ConversationID) (cursor int64, err error)
	Enlist(ctx context.Context, userID string, conversationID chat.ConversationID) error
	Delist(ctx context.Context, userID string, conversationID chat.ConversationID) error
	Connections(ctx context.Context, userIDs []string) (map[string][]store.Connection, error)
	Disconnect(ctx context.Context, userID string, conns ...store.Connection) error
	MembersAmong(ctx context.Context, conversationID chat.ConversationID, userIDs []string) (head chat.Conversation, members map[string]bool, err error)
	Crowd(ctx context.Context, conversationID chat.ConversationID) (head chat.Conversation, found bool, err error)
	CrowdPage(ctx context.Context, conversationID chat.ConversationID, cursor string, limit int) (members []chat.Member, next string, err error)
}

type rosters interface {
	// At returns the roster at this version or a later one.
	At(ctx context.Context, conversationID chat.ConversationID, version int64) ([]chat.Member, error)
}

type pusher interface {
	// Deliver returns the outcomes in the order of the deliveries.
	Deliver(ctx context.Context, deliveries []push.Delivery) []push.Outcome
	Close(ctx context.Context, connectionID string) error
}

// queue takes what is to be tried again.
type queue interface {
	// Retry has a message handled after a delay of at most 15 minutes.
	Retry(ctx context.Context, body string, delay time.Duration) error
	// Bury puts a message where an operator finds it.
	Bury(ctx context.Context, body string) error
}

type handler struct {
	store   storage
	rosters rosters
	pusher  pusher
	queue   queue
	rounds  rounds // nil: there are no crowds
	told    *told
	streams letter.Streams
	log     *slog.Logger
	now     func() time.Time

	postsPerSecond int // of a round; 0: as fast as it goes
}

// handle serves a batch of head changes, or what was set aside of earlier ones.
func (h handler) handle(ctx context.Context, event json.RawMessage) (any, error) {
	var changes events.DynamoDBEvent
	if err := json.Unmarshal(event, &changes); err != nil {
		return nil, fmt.Errorf("reading the event: %w", err)
	}
	// A queue's event has the same outer form.
	if len(changes.Records) > 0 && changes.Records[0].EventSource == "aws:sqs" {
		var messages events.SQSEvent
		if err := json.Unmarshal(event, &messages); err != nil {
			return nil, fmt.Errorf("reading the event: %w", err)
		}
		return nil, h.retry(ctx, messages)
	}
	return h.follow(ctx, changes), nil
}

// follow pushes what a batch of head changes tells of.
//
// The order of the steps makes reconnecting lossless. The sync heads are raised
// first, then the connections are read, strongly consistent; a device registers
// first and asks for changes then. Whichever of the two comes first, the device
// hears of the message by the push or by the changes.
//
// Nothing in a batch holds up the rest. A record that cannot be understood is
// passed over: it would be no better the next time. A conversation that could not
// be read or noted soon is set aside, and only if that fails too is its record reported
// as failed; Lambda then repeats it and all that follow it, for as long as the
// stream has them.
func (h handler) follow(ctx context.Context, event events.DynamoDBEvent) events.DynamoDBEventResponse {
	start := h.now()
	conversations, back, poison := read(event.Records)
	for sequenceNumber, err := range poison {
		h.passOver(ctx, err, slog.String("sequenceNumber", sequenceNumber))
	}
	b, all, tally := h.serve(ctx, conversations, hasty)
	stuck := h.setAside(ctx, conversations, b.failed)
	failures := failuresOf(event.Records, stuck)
	h.inspect(ctx, all, back)
	tally.aside = len(b.failed) - len(stuck)
	h.record(ctx, event.Records, all, tally, len(failures), start)
	return events.DynamoDBEventResponse{BatchItemFailures: failures}
}

// serve notes and pushes the conversations, as far as it can. A step is how long it reads
// one conversation, or notes one user.
func (h handler) serve(ctx context.Context, conversations []*conversation, step time.Duration) (*batch, []news, tally) {
	b := &batch{step: step, failed: map[chat.ConversationID]error{}, pending: map[chat.ConversationID]int{}}
	loading, cancel := context.WithTimeout(ctx, loadBudget)
	defer cancel()
	l := h.load(loading, b, conversations)
	patiently(l.done, swift)
	all := l.take()
	t := h.tellAll(ctx, b, all)
	<-l.done
	if late := l.take(); len(late) > 0 {
		all, t = append(all, late...), t.plus(h.tellAll(ctx, b, late))
	}
	return b, all, t
}

// tellAll tells of large conversations whose roster changed when all else is told: to
// list one for its members takes a write for each, and when many groups are made, who
// chats with one other would wait for thousands.
func (h handler) tellAll(ctx context.Context, b *batch, all []news) (t tally) {
	ctx, cancel := context.WithTimeout(ctx, tellBudget)
	defer cancel()
	for _, last := range []bool{false, true} {
		some := slices.DeleteFunc(slices.Clone(all), func(n news) bool { return n.isManyWrites() != last })
		if len(some) > 0 {
			t = t.plus(h.tell(ctx, b, some))
		}
	}
	return t
}

// tell notes news in the sync heads and pushes it: at first what is noted soon.
func (h handler) tell(ctx context.Context, b *batch, all []news) tally {
	raising, cancel := context.WithTimeout(ctx, raiseBudget)
	defer cancel()
	done := h.raise(raising, b, all)
	patiently(done, swift)
	noted, waiting := b.split(all)
	t := h.push(ctx, b, noted)
	<-done
	if len(waiting) == 0 {
		return t
	}
	return t.plus(h.push(ctx, b, waiting))
}

// patiently waits until something is done, or as long as that.
func patiently(done <-chan struct{}, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// passOver tells of what nobody will come back to, as it would fail the same way.
func (h handler) passOver(ctx context.Context, err error, about ...slog.Attr) {
	h.log.LogAttrs(ctx, slog.LevelError, "passed over", append(about, metric.Count(metric.InvariantItem, 1), slog.Any("err", err))...)
}

// batch collects, from several goroutines, what became of conversations.
type batch struct {
	step   time.Duration
	passes bool // over users who cannot be looked up, unless nobody can

	mu      sync.Mutex
	failed  map[chat.ConversationID]error // by conversation id, the first error
	pending map[chat.ConversationID]int   // by conversation id, the writes that note it and are not done
}

// split tells the news that is noted from that which is not yet.
func (b *batch) split(all []news) (noted, waiting []news) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range all {
		if b.pending[n.id] == 0 {
			noted = append(noted, n)
		} else {
			waiting = append(waiting, n)
		}
	}
	return noted, waiting
}

// expect counts a write that notes these conversations, or with -1 that it is done.
func (b *batch) expect(n int, conversationIDs ...chat.ConversationID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range conversationIDs {
		b.pending[id] += n
	}
}

func (b *batch) fail(err error, conversationIDs ...chat.ConversationID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range conversationIDs {
		if b.failed[id] == nil {
			b.failed[id] = err
		}
	}
}

// guard runs f for these conversations, which fail with it. What panics on one
// conversation is no reason to stop the others.
func (b *batch) guard(f func() error, conversationIDs ...chat.ConversationID) {
	defer func() {
		if r := recover(); r != nil {
			b.fail(fmt.Errorf("panic: %v", r), conversationIDs...)
		}
	}()
	if err := f(); err != nil {
		b.fail(err, conversationIDs...)
	}
}

// failuresOf names the records of conversations that are neither served nor set
// aside, in the order of the batch. Lambda goes on from the first of them.
func failuresOf(records []events.DynamoDBEventRecord, stuck []*conversation) []events.DynamoDBBatchItemFailure {
	bad := map[string]bool{}
	for _, c := range stuck {
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

// loads are the conversations of a batch as they come in.
type loads struct {
	done chan struct{} // closed once all have come, or failed

	mu  sync.Mutex
	new []*news // in the order of the batch
}

// take returns those that have come since the last time.
func (l *loads) take() []news {
	l.mu.Lock()
	defer l.mu.Unlock()
	var taken []news
	for i, n := range l.new {
		if n != nil {
			taken = append(taken, *n)
			l.new[i] = nil
		}
	}
	return taken
}

// load begins to read what is new in each conversation, and for whom. Those that
// cannot be read are left out.
func (h handler) load(ctx context.Context, b *batch, conversations []*conversation) *loads {
	l := &loads{done: make(chan struct{}), new: make([]*news, len(conversations))}
	go func() {
		defer close(l.done)
		each(slices.All(conversations), func(i int, c *conversation) {
			b.guard(func() error {
				ctx, cancel := context.WithTimeout(ctx, b.step)
				defer cancel()
				n, err := h.loadOne(ctx, c)
				if err == nil {
					l.mu.Lock()
					defer l.mu.Unlock()
					l.new[i] = &n
				}
				return err
			}, c.id)
		})
	}()
	return l
}

func (h handler) loadOne(ctx context.Context, c *conversation) (news, error) {
	if h.isCrowd(c) {
		return h.loadCrowd(ctx, c)
	}
	members, err := h.rosters.At(ctx, c.id, c.membersVersion)
	if errors.Is(err, store.ErrCrowd) { // since then
		c.rounds = []dueRound{{from: c.news.From}}
		return h.loadCrowd(ctx, c)
	}
	if err != nil {
		return news{}, err
	}
	n := news{conversation: c, noted: len(members) <= chat.InboxGroupMax}
	if n.entries, err = h.store.Entries(ctx, c.id, c.news); err != nil {
		return news{}, err
	}
	n.windows = audience(c, members, n.entries)
	return n, nil
}

// raise begins to note the conversations in the sync heads of their users, once for
// each user, and which of them are large. One that becomes large is listed before,
// and one that does not stay so is taken off the list after: a device that asks in
// between is told of it, by either. The channel is closed once all is done.
func (h handler) raise(ctx context.Context, b *batch, all []news) <-chan struct{} {
	changed := map[string][]chat.ConversationID{}
	var larger, smaller []listing
	var toCompare []news
	for _, n := range all {
		if n.isListed() {
			toCompare = append(toCompare, n)
		}
		for _, w := range n.windows {
			if n.noted || w.came || w.gone {
				changed[w.userID] = append(changed[w.userID], n.id)
				b.expect(1, n.id)
			}
		}
		for l, large := range n.listings() {
			b.expect(1, n.id)
			if large {
				larger = append(larger, l)
			} else {
				smaller = append(smaller, l)
			}
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.list(ctx, b, larger, h.store.Enlist)
		each(maps.All(changed), func(userID string, ids []chat.ConversationID) {
			h.note(ctx, b, userID, ids, func(ctx context.Context) error {
				_, err := h.store.Raise(ctx, userID, ids)
				return err
			})
		})
		h.list(ctx, b, smaller, h.store.Delist)
		each(slices.All(toCompare), func(_ int, n news) {
			b.guard(func() error {
				ctx, cancel := context.WithTimeout(ctx, b.step)
				defer cancel()
				return h.compare(ctx, n)
			}, n.id)
		})
	}()
	return done
}

func (h handler) list(ctx context.Context, b *batch, listings []listing, update func(ctx context.Context, userID string, conversationID chat.ConversationID) error) {
	each(slices.All(listings), func(_ int, l listing) {
		h.note(ctx, b, l.userID, []chat.ConversationID{l.conversationID}, func(ctx context.Context) error {
			return update(ctx, l.userID, l.conversationID)
		})
	})
}

// compare has a conversation listed by the roster as it is, where that is another than the
// stream told of. What was set aside is served later than it was told, and by a roster
// that may be remembered; the changes since then were listed meanwhile, and are not told
// again. Who writes a list last looks at the roster after that, so the lists are right in
// the end, whoever it is.
func (h handler) compare(ctx context.Context, n news) error {
	type roster struct{ version, members int64 }
	seen, listed := roster{n.membersVersion, n.members}, map[string]bool{}
	for l, large := range n.listings() {
		listed[l.userID] = large
	}
	left, joined := moves(n.news.From, n.entries)
	users := slices.AppendSeq(slices.Collect(maps.Keys(listed)), maps.Keys(left))
	users = slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(users, maps.Keys(joined)))))
	for len(users) > 0 {
		head, found, err := h.store.Crowd(ctx, n.id)
		if err != nil || !found || seen == (roster{head.MembersVersion, int64(head.MemberCount)}) {
			return err
		}
		head, members, err := h.store.MembersAmong(ctx, n.id, users)
		if err != nil {
			return err
		}
		seen = roster{head.MembersVersion, int64(head.MemberCount)}
		var writes errgroup.Group // at once: meanwhile the roster may change again
		writes.SetLimit(comparing)
		for _, userID := range users {
			large := members[userID] && head.MemberCount > chat.InboxGroupMax
			if was, ok := listed[userID]; ok && was == large {
				continue
			}
			listed[userID] = large
			update := h.store.Delist
			if large {
				update = h.store.Enlist
			}
			writes.Go(func() error {
				if err := update(ctx, userID, n.id); err != nil && !store.Permanent(err) {
					return err
				}
				return nil
			})
		}
		if err := writes.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// note writes something of one user. What fails for good fails for this user
// alone, whose devices find out when they ask for the whole list.
func (h handler) note(ctx context.Context, b *batch, userID string, conversationIDs []chat.ConversationID, write func(context.Context) error) {
	defer b.expect(-1, conversationIDs...)
	b.guard(func() error {
		ctx, cancel := context.WithTimeout(ctx, b.step)
		defer cancel()
		err := write(ctx)
		if err != nil && store.Permanent(err) {
			h.passOver(ctx, err, slog.String("userId", userID))
			return nil
		}
		return err
	}, conversationIDs...)
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
