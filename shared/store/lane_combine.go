package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"golang.org/x/sync/errgroup"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

const (
	// maxBatch is how many messages are committed at a time: each takes three items
	// beside the head, of a transaction's 100.
	maxBatch = 33

	// maxBatchUnits bounds a batch by its write units, and with them its bytes to some
	// 150 KB, where a transaction may have 4 MB: a partition has a thousand units a
	// second, and a batch that waits for them makes all of it wait.
	maxBatchUnits = 300

	// readOfLane is how many intents of each lane are read for a batch.
	readOfLane = 20

	// batchGrowth is by how many messages a batch may be larger than the last one, after
	// one was put off.
	batchGrowth = 1

	// putOffUnit is how long a write unit is waited for then: a partition has one a
	// millisecond, and of those that are counted a third or less is of one partition.
	putOffUnit = time.Millisecond / 2

	// openAfter is after how many tries in vain one opens the lane.
	openAfter = 2

	// maxRounds is how often a batch is tried again at once without those that were
	// found settled.
	maxRounds = 4
)

// The items of one message in a batch, after the head, in their order.
const (
	ofEntry = iota
	ofRecord
	ofIntent
	itemsEach
)

// batch is what is about to be committed at once on one head.
type batch struct {
	head    chat.Conversation
	intents []table.Intent // numbered
	after   chat.Conversation
}

// combine commits the oldest intents, the own one among them. What is wrong with
// another's intent never stops it.
func (s *Store) combine(ctx context.Context, q *waiting) (*Committed, error) {
	head, others, err := s.readLane(ctx, q.w.message.ConversationID)
	if err == nil {
		err = s.verify(ctx, q, head)
	}
	if err != nil {
		return nil, unlessPassing(err)
	}
	head = q.at.head
	if err := s.takesNoMore(q.w, head, inLane, q.so); err != nil {
		return nil, err
	}
	intents := choose(q.intent, others, min(q.limit(head), s.room(head)))
	for range maxRounds {
		b, err := s.newBatch(head, intents)
		if err != nil {
			return nil, err
		}
		q.mark(&b, s.db.Now())
		result := s.tryBatch(ctx, q, b)
		switch {
		case result.committed != nil || result.err != nil:
			return result.committed, result.err
		case result.alone && len(intents) > 1:
			intents = []table.Intent{q.intent}
			continue
		case !result.again || q.tries >= maxLaneTries:
			s.openLane(ctx, q, result.head)
			return nil, nil //nolint:nilnil // not yet
		}
		head, intents = result.head, result.left
	}
	s.openLane(ctx, q, head)
	return nil, nil //nolint:nilnil // not yet
}

// openLane opens the lane for one who lost some tries to who writes alone: the head has
// not told that one of the lane, and who writes as fast as it can always comes first.
func (s *Store) openLane(ctx context.Context, q *waiting, head chat.Conversation) {
	if q.tries < openAfter || head.ConversationID == "" || s.laneOpen(head) {
		return
	}
	now := s.db.Now()
	_, _ = s.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{ // if not, the next try does
		TableName:           &s.db.Conversations,
		Key:                 table.HeadKey(head.ConversationID),
		UpdateExpression:    aws.String("SET laneUntil = :until"),
		ConditionExpression: aws.String("attribute_exists(conversationId) AND (attribute_not_exists(laneUntil) OR laneUntil < :now)"),
		ExpressionAttributeValues: table.Item{
			":until": table.Num(now.Add(laneOpenFor).UnixMilli()), ":now": table.Num(now.UnixMilli()),
		},
	})
}

// unlessPassing leaves out what may be otherwise at the next look: a request that
// DynamoDB did not answer or put off, and what is being changed at this moment.
func unlessPassing(err error) error {
	if _, asked := errors.AsType[*smithy.OperationError](err); asked && table.MayRetry(err) || errors.Is(err, errUnsettled) {
		return nil
	}
	return err
}

// verify makes sure of the sender's right at this head, or a later one, and that what
// the intent says of it is so: where a member was removed since, it is asked for anew.
func (s *Store) verify(ctx context.Context, q *waiting, head chat.Conversation) error {
	at, err := s.at(ctx, q.w, head)
	if err != nil {
		return err
	}
	if at.head.LastSeq >= chat.MaxSeq {
		return errFull()
	}
	if asOf(at.head) == q.intent.Removals {
		at.changes = q.at.changes
	} else if err := s.check(ctx, q.w, &at); err != nil {
		return err
	}
	q.at = at
	q.intent.Removals = asOf(at.head)
	return nil
}

// readLane reads a head and the oldest intents, side by side. It leaves out intents
// that this version cannot commit.
func (s *Store) readLane(ctx context.Context, conversationID chat.ConversationID) (head chat.Conversation, intents []table.Intent, err error) {
	var found bool
	var items [table.Lanes][]table.Item
	g, reads := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		head, found, err = s.head(reads, conversationID)
		return err
	})
	for n := range table.Lanes {
		g.Go(func() (err error) {
			items[n], err = s.db.OldestIntents(reads, table.LaneID(conversationID, n), readOfLane, true)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return head, nil, err
	}
	if !found {
		return head, nil, errNoConversation()
	}
	for _, item := range slices.Concat(items[:]...) {
		intent, err := table.UnmarshalIntent(item, conversationID)
		if err != nil {
			s.db.Damaged(ctx, s.db.Lane, item, err)
			continue
		}
		intents = append(intents, intent)
	}
	return head, intents, nil
}

// choose takes the own intent, and the oldest others whose senders are known to be
// members as of the same head: those of another version wait for their owners to
// verify. One (senderId, clientMsgId) is taken once, for a transaction has no item
// twice.
func choose(own table.Intent, others []table.Intent, most int) []table.Intent {
	slices.SortFunc(others, func(a, b table.Intent) int { return strings.Compare(a.MessageID, b.MessageID) })
	chosen, units := []table.Intent{own}, headUnits+unitsOf(own)
	keys := map[string]bool{dedupeKey(own): true}
	for _, other := range others {
		key := dedupeKey(other)
		if other.MessageID == own.MessageID || other.Removals != own.Removals || keys[key] {
			continue
		}
		units += unitsOf(other)
		if len(chosen) >= most || units > maxBatchUnits {
			break
		}
		keys[key] = true
		chosen = append(chosen, other)
	}
	return chosen
}

func dedupeKey(i table.Intent) string {
	return chat.DedupeKey(i.Message.SenderID, i.Message.ClientMsgID)
}

const headUnits = 2

// unitsOf is about how many write units a message takes in a batch: twice for its entry
// and for its intent, once for the index, and two for its record.
func unitsOf(i table.Intent) int {
	return 4*((weight(i.Message.Message)+1023)/1024) + 3
}

// newBatch numbers intents in the order in which their messages were received.
func (s *Store) newBatch(head chat.Conversation, intents []table.Intent) (batch, error) {
	byID := make(map[string]table.Intent, len(intents))
	messages := make([]chat.Message, len(intents))
	for i, intent := range intents {
		byID[intent.MessageID] = intent
		messages[i] = intent.Message.Message
	}
	numbered, err := chat.AssignSeq(head.LastSeq, messages)
	if err != nil {
		return batch{}, err
	}
	b, now := batch{head: head, after: head}, s.db.Now()
	for _, m := range numbered {
		intent := byID[m.MessageID]
		intent.Message.Message = m
		b.intents = append(b.intents, intent)
		b.after = write{message: m, at: now.UnixMilli(), fullAt: s.filled(b.after.FullAt, m, now)}.headAfter(b.after, changes{})
	}
	return b, nil
}

// limit is how many messages a batch on this head may have.
func (q *waiting) limit(head chat.Conversation) int {
	most := maxBatch
	if head.LaneBatch > 0 {
		most = min(most, head.LaneBatch)
	}
	if q.most > 0 {
		most = min(most, q.most)
	}
	return most
}

// mark notes on the head that the lane is open, and how many the partition takes at a
// time: half of what it put off, and a little more with each batch since.
func (q *waiting) mark(b *batch, now time.Time) {
	if q.opens(len(b.intents)) {
		b.after.LaneUntil = max(b.head.LaneUntil, now.Add(laneOpenFor).UnixMilli())
	}
	switch {
	case q.most > 0:
		b.after.LaneBatch = min(q.most, q.limit(b.head))
	case b.head.LaneBatch > 0:
		b.after.LaneBatch = b.head.LaneBatch + batchGrowth
	}
	if b.after.LaneBatch >= maxBatch {
		b.after.LaneBatch = 0
	}
}

// putOff makes the next try a smaller one, and lets the units for it come in first: a
// transaction that is refused for one item has taken those of others, and one that is
// always refused would take all there ever are.
func (q *waiting) putOff(b batch) {
	q.most = max(1, len(b.intents)/2)
	units := 0
	for _, intent := range b.intents[:q.most] {
		units += unitsOf(intent)
	}
	q.pause = time.Duration(units) * putOffUnit
}

// batchOutcome is what became of a batch: one of committed, err, and "not yet". That may
// be tried again at once, with the head and the intents that are left, or without all
// the others, since one of them may be what DynamoDB does not take.
type batchOutcome struct {
	committed *Committed
	err       error
	again     bool
	alone     bool
	head      chat.Conversation
	left      []table.Intent
}

// tryBatch runs the transaction once.
func (s *Store) tryBatch(ctx context.Context, q *waiting, b batch) batchOutcome {
	items, err := s.batchItems(b)
	if err != nil {
		return batchOutcome{err: err}
	}
	q.tries++
	q.so.Attempts++
	canceled, err := s.db.Transact(ctx, items)
	if err == nil {
		s.heads.wrote(b.after, q.w.message.SenderID, false)
		own := b.intents[b.own(q)]
		q.so.Batch = len(b.intents)
		return batchOutcome{committed: &Committed{Sent: own.Message.Sent()}}
	}
	if canceled == nil {
		if table.IsThrottle(err) {
			q.so.Throttles++
			q.putOff(b)
		}
		if table.MayRetry(err) {
			return batchOutcome{}
		}
		return s.aloneOr(b, fmt.Errorf("writing a batch of %d to %s: %w", len(b.intents), b.head.ConversationID, err))
	}
	return s.readBatch(ctx, q, b, canceled)
}

// opens reports whether a batch opens the lane, or keeps it open: there are others, or
// there was one who came before.
func (q *waiting) opens(messages int) bool { return messages > 1 || q.so.Conflicts > 0 }

// own returns the place of the own intent.
func (b batch) own(q *waiting) int {
	return slices.IndexFunc(b.intents, func(i table.Intent) bool { return i.MessageID == q.intent.MessageID })
}

// aloneOr is for what may be the fault of any of a batch, or else is that of its only
// one.
func (s *Store) aloneOr(b batch, err error) batchOutcome {
	if len(b.intents) > 1 {
		return batchOutcome{alone: true}
	}
	return batchOutcome{err: err}
}

// readBatch tells what a cancelled batch means. As with one message, records come
// first: a message of which there is a record was committed, and its intent is for
// nothing; one whose intent is gone is committed or withdrawn. The others are left.
func (s *Store) readBatch(ctx context.Context, q *waiting, b batch, canceled *types.TransactionCanceledException) batchOutcome {
	reasons := canceled.CancellationReasons
	if len(reasons) != 1+itemsEach*len(b.intents) {
		return batchOutcome{err: fmt.Errorf("a cancelled transaction without reasons: %w", canceled)}
	}
	throttled, ok := table.MayPass(reasons)
	if !ok {
		return s.aloneOr(b, fmt.Errorf("writing a batch of %d to %s: %w", len(b.intents), b.head.ConversationID, canceled))
	}
	result := batchOutcome{head: b.head}
	taken := false
	for i, intent := range b.intents {
		of := reasons[1+itemsEach*i:][:itemsEach]
		taken = taken || table.IsConditionFailed(of[ofEntry])
		switch own := intent.MessageID == q.intent.MessageID; {
		case table.IsConditionFailed(of[ofRecord]) && own:
			var record table.Record
			if err := table.Unmarshal(of[ofRecord].Item, &record); err != nil {
				return batchOutcome{err: err}
			}
			committed, err := q.first(record)
			return batchOutcome{committed: committed, err: err}
		case table.IsConditionFailed(of[ofIntent]) && own:
			committed, err := s.settle(ctx, q)
			return batchOutcome{committed: committed, err: err}
		case table.IsConditionFailed(of[ofRecord]):
			s.drop(ctx, intent)
		case !table.IsConditionFailed(of[ofIntent]):
			result.left = append(result.left, intent)
		}
	}
	result.again = !slices.ContainsFunc(reasons, table.IsTaken) && !throttled
	if throttled {
		q.so.Throttles++
		q.putOff(b)
	} else {
		q.so.Conflicts++
	}
	switch {
	case table.IsConditionFailed(reasons[atHead]):
		return s.afterOther(b, result, reasons[atHead].Item)
	case taken && table.IsHeld(reasons[atHead]):
		return batchOutcome{err: fmt.Errorf("the head of %s is behind its ledger: seq %d exists", b.head.ConversationID, b.head.LastSeq+1)}
	}
	return result
}

// afterOther goes on from the head that another left, if only messages came between.
func (s *Store) afterOther(b batch, result batchOutcome, item table.Item) batchOutcome {
	head, err := s.headFound(item)
	if err != nil {
		return batchOutcome{err: err}
	}
	result.head = head
	result.again = result.again && base{head: b.head}.sameRoster(result.head)
	return result
}

// batchItems returns the transaction of a batch.
func (s *Store) batchItems(b batch) ([]types.TransactWriteItem, error) {
	items := []types.TransactWriteItem{s.headUpdate(b.head, b.after, chat.StateActive, changes{})}
	for _, intent := range b.intents {
		w := write{message: intent.Message.Message, fingerprint: intent.Fingerprint}
		entry, record, err := s.entryAndRecord(w, nil)
		if err != nil {
			return nil, err
		}
		items = append(items, entry, record, types.TransactWriteItem{Delete: &types.Delete{
			TableName: &s.db.Lane, Key: intent.Key(), ConditionExpression: aws.String("attribute_exists(messageId)"),
		}})
	}
	return items, nil
}
