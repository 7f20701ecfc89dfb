package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
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

// probe is how many missing seqs are looked for at first; see resolve.
const probe = 16

// maxListed is the longest run of seqs without a message that a page lists one by
// one. Longer ones, which retention leaves, are told by where they end.
const maxListed = 100

// maxQueries bounds what one page may cost where entries that expired, and that
// DynamoDB has not deleted yet, have to be read through.
const maxQueries = 20

// Page is a stretch of a ledger. Every seq after the asked one up to NextSeq is
// accounted for: it is in Messages, in Skipped, or below FirstSeq.
type Page struct {
	Messages        []chat.Message // ascending
	NextSeq         int64
	CommittedMaxSeq int64 // of what this user may read
	HasMore         bool
	Skipped         []int64 // no such entry any more: expired, or removed by an operator
	FirstSeq        int64   // not 0: the seqs before it are not for this user, or gone
	Resolved        int     // of the messages, those that a Query did not show yet
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
	if found.first != 0 {
		page.FirstSeq = found.first
	}
	page.Messages = found.messages
	page.Skipped = found.skipped
	page.Resolved = found.resolved
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
	Resolved        int // of the messages, those that a Query did not show yet
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
	page.Resolved = found.resolved
	page.NextBeforeSeq = found.through
	_, page.HasMore = v.windowBefore(found.through)
	return page, nil
}

// Entries reads every message in r, ascending. Seqs in r that no entry has any
// more are left out; one that is being committed is waited for, or an error.
func (s *Store) Entries(ctx context.Context, conversationID string, r chat.Range) ([]chat.Message, error) {
	var all []chat.Message
	for r.From <= r.To {
		found, err := s.read(ctx, conversationID, r, ascending, math.MaxInt, math.MaxInt)
		if err != nil {
			return nil, err
		}
		all = append(all, found.messages...)
		r.From = found.through + 1
	}
	return all, nil
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
//
// The line is read where there is no head, too: a stranger would tell by the time
// whether there is one.
func (s *Store) view(ctx context.Context, userID, conversationID string) (view, error) {
	var v view
	exists, err := s.get(ctx, s.tables.Conversations, headKey(conversationID), &v.head)
	if err != nil {
		return view{}, err
	}
	known, err := s.get(ctx, s.tables.Inboxes, inboxKey(userID, conversationID), &v.inbox)
	if err != nil {
		return view{}, err
	}
	if !exists || !known {
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
// start through the last one is in messages, in skipped, or before first.
type stretch struct {
	messages []chat.Message
	skipped  []int64
	first    int64 // not 0: the seqs before it, from the range's start on, are gone
	resolved int   // of the messages, those that a Query did not show yet
	through  int64
	bytes    int
}

func (s stretch) empty() bool { return len(s.messages)+len(s.skipped) == 0 }

// skippedBytes is the most a skipped seq takes in a frame: 16 digits and a comma.
const skippedBytes = 17

// read reads a range in one direction until it is through, or limit messages or
// maxBytes of their JSON are reached, or a long run of seqs that are gone would
// have to be listed. It gives at least one seq.
func (s *Store) read(ctx context.Context, conversationID string, r chat.Range, d direction, limit, maxBytes int) (stretch, error) {
	out := stretch{messages: []chat.Message{}, through: r.From - 1}
	if d == descending {
		out.through = r.To + 1
	}
	for queries := 0; r.From <= r.To && len(out.messages) < limit && queries < maxQueries; queries++ {
		want := min(queryPage, limit-len(out.messages))
		if queries > 0 && len(out.messages) == 0 {
			want = queryPage // what expired is passed in whole pages, whatever the limit
		}
		known, covered, err := s.query(ctx, conversationID, r, d, want)
		if err != nil {
			return stretch{}, err
		}
		for seq := out.through + d.step(); covered.From <= seq && seq <= covered.To; seq = out.through + d.step() {
			var fits bool
			if m, ok := known[seq]; ok {
				fits, err = out.add(m, limit, maxBytes)
			} else {
				fits = out.pass(endOfRun(seq, covered, known, d), d, maxBytes)
			}
			if err != nil || !fits {
				return out, err
			}
		}
		r = rest(r, out.through, d)
	}
	return out, nil
}

// add takes the next message, if it fits.
func (s *stretch) add(m messageItem, limit, maxBytes int) (fits bool, err error) {
	size, err := m.Size()
	if err != nil {
		return false, err
	}
	size++ // the comma
	if len(s.messages) == limit || s.bytes+size > maxBytes && !s.empty() {
		return false, nil
	}
	s.bytes += size
	s.messages = append(s.messages, m.Message)
	if m.late {
		s.resolved++
	}
	s.through = m.Seq
	return true, nil
}

// pass takes the next run of seqs without a message, which ends with seq last: as
// many as fit. Only at the start of a page can that be a long one, or become one.
func (s *stretch) pass(last int64, d direction, maxBytes int) (fits bool) {
	run := last - s.through
	switch {
	case d == descending: // nobody waits for them
		s.through = last
		return true
	case len(s.messages) == 0 && (s.first != 0 && len(s.skipped) == 0 || int64(len(s.skipped))+run > maxListed):
		s.through, s.first, s.skipped, s.bytes = last, last+1, nil, 0
		return true
	case run > maxListed:
		return false
	}
	for s.through < last {
		if s.bytes+skippedBytes > maxBytes && !s.empty() {
			return false
		}
		s.bytes += skippedBytes
		s.through++
		s.skipped = append(s.skipped, s.through)
	}
	return true
}

// endOfRun gives the last of the seqs without a message that begin with seq.
func endOfRun(seq int64, covered chat.Range, known map[int64]messageItem, d direction) int64 {
	for next := seq + d.step(); covered.From <= next && next <= covered.To; next += d.step() {
		if _, ok := known[next]; ok {
			break
		}
		seq = next
	}
	return seq
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
	out, err := s.queryRange(ctx, conversationID, r, d, limit)
	if err != nil {
		return nil, chat.Range{}, err
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
	return known, covered, s.resolve(ctx, conversationID, missingIn(covered, seen), known)
}

// queryRange reads at most limit messages of a range, expired ones too, as one page
// of a Query has them: strongly consistent, and no proof of what it lacks.
func (s *Store) queryRange(ctx context.Context, conversationID string, r chat.Range, d direction, limit int) (*dynamodb.QueryOutput, error) {
	out, err := s.db.Query(ctx, &dynamodb.QueryInput{
		TableName:              &s.tables.Messages,
		KeyConditionExpression: aws.String("conversationId = :c AND seq BETWEEN :from AND :to"),
		ExpressionAttributeValues: item{
			":c": str(conversationID), ":from": num(r.From), ":to": num(r.To),
		},
		ConsistentRead:   aws.Bool(true),
		ScanIndexForward: aws.Bool(bool(d)),
		Limit:            aws.Int32(int32(limit)), //nolint:gosec // bounded by the callers
	})
	if err != nil {
		return nil, fmt.Errorf("reading messages %d to %d of %s: %w", r.From, r.To, conversationID, err)
	}
	return out, nil
}

// missingIn gives the seqs of r that were not seen, descending.
func missingIn(r chat.Range, seen map[int64]bool) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for seq := r.To; seq >= r.From; seq-- {
			if !seen[seq] && !yield(seq) {
				return
			}
		}
	}
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

// resolve adds those of the missing messages, given in descending order, that
// exist after all.
//
// It ends where all that it looked for at a time is gone. Each of them was
// committed and later removed, by retention or by an operator (or jumped by an
// operator's repair of the head), and what has a smaller seq was committed before
// that. So it was applied long before the Query, which is proof then. A device
// that was away for longer than the retention would otherwise pay for every
// number that was ever given out.
func (s *Store) resolve(ctx context.Context, conversationID string, missing iter.Seq[int64], known map[int64]messageItem) error {
	batch := make([]int64, 0, maxTransactGet)
	size := probe
	for seq := range missing {
		if batch = append(batch, seq); len(batch) < size {
			continue
		}
		found, err := s.lookUp(ctx, conversationID, batch, known)
		if err != nil || !found {
			return err
		}
		batch, size = batch[:0], maxTransactGet
	}
	_, err := s.lookUp(ctx, conversationID, batch, known)
	return err
}

// lookUp adds those of the messages that exist, at most maxTransactGet of them,
// and reports whether any does, expired or not.
func (s *Store) lookUp(ctx context.Context, conversationID string, seqs []int64, known map[int64]messageItem) (found bool, err error) {
	if len(seqs) == 0 {
		return false, nil
	}
	gets := make([]types.TransactGetItem, len(seqs))
	for i, seq := range seqs {
		gets[i] = types.TransactGetItem{Get: &types.Get{
			TableName: &s.tables.Messages, Key: messageKey(conversationID, seq),
		}}
	}
	out, err := s.transactGet(ctx, gets)
	if err != nil {
		return false, fmt.Errorf("looking for %d seqs, from %d to %d, of %s: %w",
			len(seqs), slices.Min(seqs), slices.Max(seqs), conversationID, err)
	}
	for _, r := range out.Responses {
		if r.Item == nil {
			continue
		}
		found = true
		mi, err := unmarshalMessage(r.Item)
		if err != nil {
			return false, err
		}
		if !s.expired(mi) {
			mi.late = true
			known[mi.Seq] = mi
		}
	}
	return found, nil
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
		if _, canceled := errors.AsType[*types.TransactionCanceledException](err); !canceled && !isConflict(err) {
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
