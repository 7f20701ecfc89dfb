package store

// The lane is how many messages at a time get into one conversation: group commit,
// without a server, a queue or a lock.
//
//	put the intent ──► watch ──┬──► the record is there: its answer
//	                    ▲      ├──► the oldest: combine ──┬──► committed: the answer
//	                    │      │                          ├──► may not write any more: withdraw, refuse
//	                    └──────┴── wait ──────────────────┘
//	                           └──► the time is up: withdraw ──┬──► deleted: BUSY, and certainly not sent
//	                                                           └──► gone: it was committed
//
// Whoever combines commits a batch for all: the head goes up by k, k messages and k
// records are put, k intents are deleted, in one transaction (lane_combine.go). Who it
// is matters for speed alone. The head's condition decides between two who try; one who
// dies leaves all of the batch or nothing; the message of one who died is committed by
// the others, and a retry finds its record.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

const (
	// laneOpenFor is how long a batch of more than one keeps the lane open: who comes
	// meanwhile does not try alone first.
	laneOpenFor = 2 * time.Second

	// laneWait bounds how long a request waits in the lane. A sender waits at home
	// better than in a function that is paid for and held.
	laneWait = 1500 * time.Millisecond

	// maxBeat bounds what a transaction is taken to last.
	maxBeat = 15 * time.Millisecond

	// maxLaneTries is how many transactions a request tries for the lane.
	maxLaneTries = 8

	// Someone watches anew after a part of what a transaction takes, and each time
	// later by a quarter, up to twice that.
	watchFirst  = 0.4
	watchGrowth = 1.25
	watchMost   = 2.5

	// seenOfLane is how many of each lane's oldest are watched. Where they are small,
	// that is half a read unit, as for one.
	seenOfLane = 2

	// maxIntent is how many KB a message that goes by the lane has at most. Everyone who
	// waits reads the oldest intents again and again, at a price by their size: with those
	// of 24 KB two hundred messages of one member held up all others for eight seconds, in
	// the model of a region.
	maxIntent = 4

	// fullAfter is after how many looks a sender looks whether the conversation takes any
	// more: usually it is in by then.
	fullAfter = 4

	// overdue is after how many times what a transaction takes the next in line takes
	// over from one that should have combined.
	overdue = 5

	// othersTry is of how many who are further behind one takes over at first.
	othersTry = 10

	// maxWithdrawals is how often a request tries to take its intent out again.
	maxWithdrawals = 4
)

// errNoLane says that the intent could not be put, so that the message has to be
// written by itself.
var errNoLane = errors.New("the intent was not put into the lane")

// batches reports whether this is a write that others may commit: a message that
// changes nothing beside the ledger, and is not a large one.
func (w write) batches() bool {
	return w.message.Event == nil && !w.trusted && kilobytes(w.message) <= maxIntent
}

// laneOpen reports whether this head's messages go by the lane.
func (s *Store) laneOpen(head chat.Conversation) bool { return head.LaneUntil > s.db.Now().UnixMilli() }

// asOf is what of a head says who may write. A member as of one value is a member at
// every head with the same, see headCache.
func asOf(head chat.Conversation) int64 { return head.Removals() }

// waiting is a request in the lane.
type waiting struct {
	w      write
	at     base
	intent table.Intent
	so     *metric.Effort
	looks  int
	tries  int
	most   int           // messages of a batch, since larger ones were put off; 0 as the head says
	pause  time.Duration // to wait at least, for the same reason

	oldest string    // of all intents, when last seen
	since  time.Time // it was
}

// laneUse says whether a write may go by the lane, whether it met another writer, and
// whether its head is one that was remembered.
type laneUse struct{ open, collided, remembered bool }

func (u *laneUse) note(o outcome) { u.collided = u.collided || o.conflict && !o.throttled }

// byLane commits a message by the lane, if it is to go there. done is false if it is to
// be written by itself.
func (s *Store) byLane(ctx context.Context, w write, at base, so *metric.Effort, use *laneUse) (committed Committed, done bool, err error) {
	if !use.open || at.head.LastSeq == 0 || !use.collided && !s.laneOpen(at.head) {
		return Committed{}, false, nil
	}
	if use.remembered && !use.collided && s.nearFull(at.head) {
		if at, err = s.look(ctx, w); err != nil { // or it would wait in the lane to be refused
			committed, err = s.refuse(ctx, w, so.Attempts, err)
			return committed, true, err
		}
	}
	committed, err = s.viaLane(ctx, w, at, so)
	use.open = !errors.Is(err, errNoLane)
	return committed, use.open, err
}

// viaLane commits a message whose sender was verified at this base, by whomever. It
// returns errNoLane if the lane does not take it.
func (s *Store) viaLane(ctx context.Context, w write, at base, so *metric.Effort) (Committed, error) {
	if err := s.takesNoMore(w, at.head, beforeLane, so); err != nil {
		return Committed{}, err
	}
	if err := s.check(ctx, w, &at); err != nil {
		return s.refuse(ctx, w, so.Attempts, err)
	}
	q := &waiting{w: w, at: at, so: so}
	q.intent = table.NewIntent(w.message, w.fingerprint, asOf(at.head), s.db.Now())
	if err := s.putIntent(ctx, q); err != nil {
		return Committed{}, err
	}
	pause := watchFirst * float64(s.beat())
	until := s.laneDeadline(ctx)
	for {
		committed, err := s.step(ctx, q)
		if committed != nil || err != nil {
			return s.answer(ctx, q, committed, err)
		}
		wait := max(q.pause, time.Duration(pause*(0.5+rand.Float64()))) //nolint:gosec // jitter is no secret
		q.pause = 0
		if q.tries >= maxLaneTries || time.Now().Add(wait).After(until) {
			return s.withdraw(ctx, q, nil)
		}
		if err := table.Sleep(ctx, wait); err != nil {
			return s.withdraw(ctx, q, nil)
		}
		pause = min(pause*watchGrowth, watchMost*float64(s.beat()))
	}
}

// check makes sure that a message may be written on the base, beside its sender being a
// member: one that answers another has to see that one.
func (s *Store) check(ctx context.Context, w write, at *base) (err error) {
	if w.change == nil || at.changes != nil {
		return nil
	}
	at.changes, err = w.change(ctx, at.head, at.self)
	return err
}

// beat is what a transaction takes here, by which the lane counts its time. It is no
// longer than lets those behind the dead take over before they have to leave.
func (s *Store) beat() time.Duration { return min(s.db.Pace.Usual(), maxBeat) }

// laneDeadline is when a request has to leave the lane: time has to be left to take
// the intent out.
func (s *Store) laneDeadline(ctx context.Context) time.Time {
	until := time.Now().Add(laneWait)
	if deadline, ok := ctx.Deadline(); ok {
		until = time.Now().Add(min(laneWait, time.Until(deadline)*3/4))
	}
	return until
}

// putIntent puts the intent. What is put though no answer came is committed or passed
// over as one whose owner died.
func (s *Store) putIntent(ctx context.Context, q *waiting) error {
	item, err := table.Marshal(q.intent)
	if err != nil {
		return err
	}
	_, err = s.db.PutItem(ctx, &dynamodb.PutItemInput{TableName: &s.db.Lane, Item: item})
	switch {
	case err == nil:
		return nil
	case table.IsThrottle(err):
		q.so.Throttles++
		return crowded(q.w.message.ConversationID, q.so.Attempts, err)
	}
	return fmt.Errorf("%w: %w", errNoLane, err)
}

// answer ends a request that is settled: its own intent is in nobody's way then.
func (s *Store) answer(ctx context.Context, q *waiting, committed *Committed, err error) (Committed, error) {
	switch {
	case errors.Is(err, errSettled): // by another request, with other content
		s.drop(ctx, q.intent)
		return Committed{}, errors.Unwrap(err)
	case err != nil:
		return s.withdraw(ctx, q, err)
	case committed.MessageID != q.intent.MessageID: // by another request of the same clientMsgId
		s.drop(ctx, q.intent)
	}
	return *committed, nil
}

// errSettled wraps what a record says that is not this message's: the intent is for
// nothing, and no later look would say otherwise.
var errSettled = errors.New("settled")

type settledError struct{ error }

func (settledError) Is(target error) bool { return target == errSettled }
func (e settledError) Unwrap() error      { return e.error }

// step looks once, and combines if it is this request's turn. Neither committed nor an
// error: not yet.
func (s *Store) step(ctx context.Context, q *waiting) (*Committed, error) {
	seen, err := s.watch(ctx, q)
	switch {
	case err != nil:
		return nil, unlessPassing(err)
	case seen.record != nil:
		return q.first(*seen.record)
	case seen.gone:
		return s.settle(ctx, q)
	case !s.turn(q, seen):
		return nil, s.stillTaken(ctx, q)
	}
	return s.combine(ctx, q)
}

// stillTaken refuses a message that waits for a conversation which takes no more.
func (s *Store) stillTaken(ctx context.Context, q *waiting) error {
	if q.looks++; s.perSecond == 0 || q.looks < fullAfter {
		return nil
	}
	head, found, err := s.head(ctx, q.w.message.ConversationID)
	if err != nil || !found {
		return unlessPassing(err)
	}
	return s.takesNoMore(q.w, head, inLane, q.so)
}

// first is write.first, which no later look would contradict.
func (q *waiting) first(r table.Record) (*Committed, error) {
	committed, err := q.w.first(r)
	if err != nil {
		return nil, settledError{err}
	}
	return committed, nil
}

// seen is what a look at the lane showed.
type seen struct {
	record *table.Record
	oldest string // the messageId of the oldest intent
	place  int    // of the own one behind it, -1 if it is further behind
	gone   bool   // the own one is not where it should be
}

// watch reads the own record and the oldest intents, side by side. What is seen of
// intents may be some milliseconds old, which costs half as much: it decides who
// tries, and nothing else.
func (s *Store) watch(ctx context.Context, q *waiting) (seen, error) {
	var record table.Record
	var found bool
	var items [table.Lanes][]table.Item
	g, reads := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		found, err = s.db.Get(reads, s.db.Idempotency, q.w.recordKey(), &record)
		return err
	})
	for n := range table.Lanes {
		g.Go(func() (err error) {
			items[n], err = s.db.OldestIntents(reads, table.LaneID(q.w.message.ConversationID, n), seenOfLane, false)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return seen{}, err
	}
	if found {
		return seen{record: &record}, nil
	}
	own := q.intent.MessageID
	var ids []string
	v := seen{}
	for n, lane := range items {
		last := ""
		for _, item := range lane {
			if id, ok := item["messageId"].(*types.AttributeValueMemberS); ok {
				last = id.Value
				ids = append(ids, last)
			}
		}
		if table.LaneID(q.w.message.ConversationID, n) == q.intent.LaneID {
			v.gone = (len(lane) < seenOfLane || last > own) && !slices.Contains(ids, own)
		}
	}
	slices.Sort(ids)
	v.place = slices.Index(ids, own)
	if len(ids) > 0 {
		v.oldest = ids[0]
	}
	return v, nil
}

// turn reports whether this request is to combine: as the owner of the oldest intent,
// as one of the next if those before do not, or else, a while later, as one in ten, and
// as the time goes on, one in fewer.
func (s *Store) turn(q *waiting, v seen) bool {
	if v.oldest != q.oldest {
		q.oldest, q.since = v.oldest, time.Now()
	}
	late := time.Since(q.since)
	step := overdue * s.beat()
	switch {
	case v.place == 0:
		return true
	case v.place > 0:
		return late > time.Duration(v.place)*step
	}
	steps := int(late / step)
	return steps >= seenOfLane*table.Lanes && rand.IntN(max(1, othersTry+seenOfLane*table.Lanes-steps)) == 0 //nolint:gosec // no secret
}

// settle finds out what became of an intent that is not in the lane, as it seems. If
// it is neither there nor committed, it was taken for dead, and is put anew.
func (s *Store) settle(ctx context.Context, q *waiting) (*Committed, error) {
	record, there, err := s.fate(ctx, q)
	switch {
	case err != nil:
		return nil, err
	case record != nil:
		return q.first(*record)
	case there:
		return nil, nil //nolint:nilnil // not yet
	}
	if err := s.putIntent(ctx, q); !errors.Is(err, errNoLane) {
		return nil, err
	}
	return nil, nil //nolint:nilnil // not yet
}

// fate reads serialisably whether the message is committed and whether its intent is
// there: one of the two, or neither.
func (s *Store) fate(ctx context.Context, q *waiting) (record *table.Record, there bool, err error) {
	out, err := s.db.TransactGet(ctx, []types.TransactGetItem{
		{Get: &types.Get{TableName: &s.db.Idempotency, Key: q.w.recordKey()}},
		{Get: &types.Get{TableName: &s.db.Lane, Key: q.intent.Key()}},
	})
	if err != nil {
		return nil, false, fmt.Errorf("reading what became of message %s: %w", q.intent.MessageID, err)
	}
	there = out.Responses[1].Item != nil
	if out.Responses[0].Item == nil {
		return nil, there, nil
	}
	record = &table.Record{}
	return record, there, table.Unmarshal(out.Responses[0].Item, record)
}

// withdraw takes the intent out of the lane because of a refusal or an error, or, if
// that is nil, since the time is up. If the intent is gone, it was committed.
func (s *Store) withdraw(ctx context.Context, q *waiting, why error) (Committed, error) {
	deleted, err := s.deleteIntent(ctx, q.intent)
	switch {
	case err != nil && why == nil:
		return Committed{}, busy(q.w.message.ConversationID, q.so.Attempts, err)
	case err == nil && !deleted:
		record, _, err := s.fate(ctx, q)
		if err != nil {
			return Committed{}, busy(q.w.message.ConversationID, q.so.Attempts, err)
		}
		if record != nil {
			committed, err := q.w.first(*record)
			if err != nil {
				return Committed{}, err
			}
			return *committed, nil
		}
	}
	if why == nil {
		return Committed{}, crowded(q.w.message.ConversationID, q.so.Attempts, errors.New("the time in the lane is up"))
	}
	return s.refuse(ctx, q.w, q.so.Attempts, why)
}

// deleteIntent deletes an intent, and reports whether it was there.
func (s *Store) deleteIntent(ctx context.Context, i table.Intent) (deleted bool, err error) {
	for attempt := 1; ; attempt++ {
		_, err = s.db.DeleteItem(ctx, &dynamodb.DeleteItemInput{
			TableName: &s.db.Lane, Key: i.Key(), ConditionExpression: aws.String("attribute_exists(messageId)"),
		})
		switch {
		case err == nil:
			return true, nil
		case table.ConditionFailed(err):
			return false, nil
		case attempt == maxWithdrawals, s.db.Pace.WaitRead(ctx, attempt, table.IsThrottle(err)) != nil:
			return false, fmt.Errorf("withdrawing message %s from the lane: %w", i.MessageID, err)
		}
	}
}

// drop deletes an intent whose message there is a record of: it can never be committed.
// If that fails, the next who combines does it.
func (s *Store) drop(ctx context.Context, i table.Intent) {
	_, _ = s.db.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &s.db.Lane, Key: i.Key()})
}
