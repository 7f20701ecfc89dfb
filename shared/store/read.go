package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"inorder/shared/chat"
)

// queryPage is how many messages one Query asks for. DynamoDB cannot stop at a
// number of bytes, so a larger page would read, and bill, messages that do not
// fit the frame.
const queryPage = 50

// maxTransactGet is DynamoDB's limit of items in one TransactGetItems.
const maxTransactGet = 100

// Page is a stretch of a ledger. Every seq after the asked one up to NextSeq is
// accounted for: it is in Messages, in Skipped, or below FirstSeq.
type Page struct {
	Messages        []chat.Message // ascending
	NextSeq         int64
	CommittedMaxSeq int64 // of what this user may read
	HasMore         bool
	Skipped         []int64 // no such entry any more: expired, or removed by an operator
	FirstSeq        int64   // not 0: the seqs before it are not for this user
}

// Sync reads on from afterSeq: at most limit messages that take at most maxBytes
// as JSON. A seq that is committed, or is being committed at this moment, is
// never passed over. It errs with NotFound (*chat.Error) for a user who is and
// was no member.
func (s *Store) Sync(ctx context.Context, userID, conversationID string, afterSeq int64, limit, maxBytes int) (Page, error) {
	v, err := s.view(ctx, userID, conversationID)
	if err != nil {
		return Page{}, err
	}
	page := Page{Messages: []chat.Message{}, NextSeq: max(afterSeq, v.committedMax()), CommittedMaxSeq: v.committedMax()}
	window, ok := v.windowAfter(afterSeq)
	if !ok {
		if page.NextSeq > afterSeq {
			page.FirstSeq = page.NextSeq + 1 // all that is left is hidden
		}
		return page, nil
	}
	if window.From > afterSeq+1 {
		page.FirstSeq = window.From
	}
	found, err := s.read(ctx, conversationID, window, ascending, limit, maxBytes)
	if err != nil {
		return Page{}, err
	}
	page.Messages = found.messages
	page.Skipped = found.skipped
	page.NextSeq = found.through
	page.HasMore = page.NextSeq < page.CommittedMaxSeq
	return page, nil
}

// HistoryPage is a stretch of a ledger read backwards.
type HistoryPage struct {
	Messages        []chat.Message // ascending
	NextBeforeSeq   int64          // the beforeSeq of the page before this one
	CommittedMaxSeq int64
	HasMore         bool
}

// History reads the newest messages before beforeSeq; 0 stands for the end. The
// limits and errors are those of Sync.
func (s *Store) History(ctx context.Context, userID, conversationID string, beforeSeq int64, limit, maxBytes int) (HistoryPage, error) {
	v, err := s.view(ctx, userID, conversationID)
	if err != nil {
		return HistoryPage{}, err
	}
	if beforeSeq == 0 {
		beforeSeq = v.committedMax() + 1
	}
	page := HistoryPage{Messages: []chat.Message{}, NextBeforeSeq: beforeSeq, CommittedMaxSeq: v.committedMax()}
	window, ok := v.windowBefore(beforeSeq)
	if !ok {
		return page, nil
	}
	found, err := s.read(ctx, conversationID, window, descending, limit, maxBytes)
	if err != nil {
		return HistoryPage{}, err
	}
	slices.Reverse(found.messages)
	page.Messages = found.messages
	page.NextBeforeSeq = found.through
	_, page.HasMore = v.windowBefore(found.through)
	return page, nil
}

// Entries reads every message in r, ascending. Seqs in r that no entry has any
// more are left out; one that is being committed is waited for, or an error.
func (s *Store) Entries(ctx context.Context, conversationID string, r chat.Range) ([]chat.Message, error) {
	found, err := s.read(ctx, conversationID, r, ascending, math.MaxInt, math.MaxInt)
	return found.messages, err
}

// view is what a user may see of a conversation.
type view struct {
	head  chat.Conversation
	inbox inboxItem
}

// view reads head and inbox line, the head first: who is a member after the head
// was read was one when its lastSeq was committed, and nothing above that
// lastSeq is shown. Read the other way round, a removal between the two reads
// would show what was written after it.
func (s *Store) view(ctx context.Context, userID, conversationID string) (view, error) {
	var v view
	found, err := s.get(ctx, s.tables.Conversations, headKey(conversationID), &v.head)
	if found && err == nil {
		found, err = s.get(ctx, s.tables.Inboxes, inboxKey(userID, conversationID), &v.inbox)
	}
	if err != nil {
		return view{}, err
	}
	if !found {
		return view{}, errNoConversation()
	}
	return viewOf(v.head, v.inbox), nil
}

// viewOf is what the user of this inbox line sees: the head, or if the user has
// left the head as it was then.
func viewOf(head chat.Conversation, inbox inboxItem) view {
	if inbox.LeftSeq != 0 && inbox.LeftHead != nil {
		head = *inbox.LeftHead
	}
	return view{head: head, inbox: inbox}
}

// committedMax is the last seq this user may read.
func (v view) committedMax() int64 {
	if v.inbox.LeftSeq != 0 {
		return min(v.head.LastSeq, v.inbox.LeftSeq)
	}
	return v.head.LastSeq
}

// visible gives the stretches this user may read, ascending: one for each time
// of membership, without what was cleared.
func (v view) visible() []chat.Range {
	var stretches []chat.Range
	now := chat.Range{From: v.inbox.JoinSeq, To: v.committedMax()}
	for _, r := range append(slices.Clip(v.inbox.Past), now) {
		r.From = max(r.From, v.inbox.ClearedSeq+1)
		if r.From <= r.To {
			stretches = append(stretches, r)
		}
	}
	return stretches
}

// sees reports whether this user may read the message with this seq.
func (v view) sees(seq int64) bool {
	return slices.ContainsFunc(v.visible(), func(r chat.Range) bool { return r.From <= seq && seq <= r.To })
}

// windowAfter gives the first stretch of seqs above seq that may be read.
func (v view) windowAfter(seq int64) (chat.Range, bool) {
	for _, r := range v.visible() {
		if r.To > seq {
			return chat.Range{From: max(r.From, seq+1), To: r.To}, true
		}
	}
	return chat.Range{}, false
}

// windowBefore gives the last stretch of seqs below seq that may be read.
func (v view) windowBefore(seq int64) (chat.Range, bool) {
	for _, r := range slices.Backward(v.visible()) {
		if r.From < seq {
			return chat.Range{From: r.From, To: min(r.To, seq-1)}, true
		}
	}
	return chat.Range{}, false
}

// direction is the order in which a range is read.
type direction bool

const (
	ascending  direction = true
	descending direction = false
)

func (d direction) step() int64 {
	if d == ascending {
		return 1
	}
	return -1
}

// stretch is what read found, in reading order. Every seq from the range's
// start through the last one is in messages or in skipped.
type stretch struct {
	messages []chat.Message
	skipped  []int64
	through  int64
	bytes    int
}

// skippedBytes is the most a skipped seq takes in a frame: 16 digits and a comma.
const skippedBytes = 17

// read reads a range in one direction until it is through, or limit messages or
// maxBytes of their JSON are reached. It gives at least one seq.
func (s *Store) read(ctx context.Context, conversationID string, r chat.Range, d direction, limit, maxBytes int) (stretch, error) {
	out := stretch{messages: []chat.Message{}, through: r.From - 1}
	if d == descending {
		out.through = r.To + 1
	}
	for r.From <= r.To && len(out.messages) < limit {
		known, covered, err := s.query(ctx, conversationID, r, d, min(queryPage, limit-len(out.messages)))
		if err != nil {
			return stretch{}, err
		}
		for seq := out.through + d.step(); covered.From <= seq && seq <= covered.To; seq += d.step() {
			size := skippedBytes
			m, ok := known[seq]
			if ok {
				if size, err = m.Size(); err != nil {
					return stretch{}, err
				}
				size++ // the comma
			}
			if len(out.messages) == limit || out.bytes+size > maxBytes && out.bytes > 0 {
				return out, nil
			}
			out.bytes += size
			out.through = seq
			if ok {
				out.messages = append(out.messages, m.Message)
			} else {
				out.skipped = append(out.skipped, seq)
			}
		}
		r = rest(r, out.through, d)
	}
	return out, nil
}

// rest gives what comes after seq in a range, in reading order.
func rest(r chat.Range, seq int64, d direction) chat.Range {
	if d == ascending {
		r.From = seq + 1
	} else {
		r.To = seq - 1
	}
	return r
}

// query reads one page and gives the messages by seq with the part of r they
// cover: a seq there without a message has none, for certain.
//
// A strongly consistent Query shows what is committed but is not serialisable
// with transactions: while one is being applied, the head may be visible and the
// message not yet (DynamoDB Developer Guide, "Isolation levels"). So what the
// Query lacked is looked up by TransactGetItems, which is serialisable.
func (s *Store) query(ctx context.Context, conversationID string, r chat.Range, d direction, limit int) (map[int64]messageItem, chat.Range, error) {
	out, err := s.db.Query(ctx, &dynamodb.QueryInput{
		TableName:              &s.tables.Messages,
		KeyConditionExpression: aws.String("conversationId = :c AND seq BETWEEN :from AND :to"),
		ExpressionAttributeValues: item{
			":c": str(conversationID), ":from": num(r.From), ":to": num(r.To),
		},
		ConsistentRead:   aws.Bool(true),
		ScanIndexForward: aws.Bool(bool(d)),
		Limit:            aws.Int32(int32(limit)), //nolint:gosec // at most queryPage
	})
	if err != nil {
		return nil, chat.Range{}, fmt.Errorf("reading messages %d to %d of %s: %w", r.From, r.To, conversationID, err)
	}
	known := make(map[int64]messageItem, len(out.Items))
	seen := make(map[int64]bool, len(out.Items))
	last := int64(0)
	for _, in := range out.Items {
		mi, err := unmarshalMessage(in)
		if err != nil {
			return nil, chat.Range{}, err
		}
		last = mi.Seq
		seen[mi.Seq] = true
		if !s.expired(mi) {
			known[mi.Seq] = mi
		}
	}
	covered := r
	if out.LastEvaluatedKey != nil && last != 0 {
		covered = cut(covered, last, d)
	}
	missing, covered := missingIn(covered, d, seen)
	if err := s.resolve(ctx, conversationID, missing, known); err != nil {
		return nil, chat.Range{}, err
	}
	return known, covered, nil
}

// missingIn lists the seqs of r that were not seen, at most as many as one
// TransactGetItems takes, and shortens r to the part they are all of.
func missingIn(r chat.Range, d direction, seen map[int64]bool) ([]int64, chat.Range) {
	var missing []int64
	start := r.From
	if d == descending {
		start = r.To
	}
	for seq := start; r.From <= seq && seq <= r.To; seq += d.step() {
		if seen[seq] {
			continue
		}
		missing = append(missing, seq)
		if len(missing) == maxTransactGet {
			return missing, cut(r, seq, d)
		}
	}
	return missing, r
}

// cut ends a range at seq, in reading order.
func cut(r chat.Range, seq int64, d direction) chat.Range {
	if d == ascending {
		r.To = seq
	} else {
		r.From = seq
	}
	return r
}

// resolve adds those of the missing messages that exist after all.
func (s *Store) resolve(ctx context.Context, conversationID string, missing []int64, known map[int64]messageItem) error {
	if len(missing) == 0 {
		return nil
	}
	gets := make([]types.TransactGetItem, len(missing))
	for i, seq := range missing {
		gets[i] = types.TransactGetItem{Get: &types.Get{
			TableName: &s.tables.Messages, Key: messageKey(conversationID, seq),
		}}
	}
	out, err := s.transactGet(ctx, gets)
	if err != nil {
		return fmt.Errorf("looking for seqs %d to %d of %s: %w", missing[0], missing[len(missing)-1], conversationID, err)
	}
	for _, r := range out.Responses {
		if r.Item == nil {
			continue
		}
		mi, err := unmarshalMessage(r.Item)
		if err != nil {
			return err
		}
		if !s.expired(mi) {
			known[mi.Seq] = mi
		}
	}
	return nil
}

// transactGet reads serialisably. A conflict means that one of the items is
// being written at this moment, so it waits for that to end.
func (s *Store) transactGet(ctx context.Context, gets []types.TransactGetItem) (*dynamodb.TransactGetItemsOutput, error) {
	ctx, cancel := withReserve(ctx)
	defer cancel()
	for attempt := 1; ; attempt++ {
		out, err := s.db.TransactGetItems(ctx, &dynamodb.TransactGetItemsInput{TransactItems: gets})
		if err == nil {
			return out, nil
		}
		if _, canceled := errors.AsType[*types.TransactionCanceledException](err); !canceled {
			return nil, err
		}
		if s.pace.wait(ctx, attempt, false) != nil {
			return nil, fmt.Errorf("%w: %w", chat.Errorf(chat.Busy, "messages are being written right now; ask again"), err)
		}
	}
}

// expired reports whether the message's time is over. DynamoDB deletes expired
// items within days, not at once, and asks readers to filter them.
func (s *Store) expired(mi messageItem) bool {
	return mi.ExpiresAt != 0 && mi.ExpiresAt <= s.now().Unix()
}
