package store

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// queryPage is how many messages one Query asks for at most. DynamoDB cannot stop
// at a number of bytes, so a larger page would read, and bill, messages that do
// not fit the frame. quota says when it asks for fewer.
const queryPage = 50

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
	Skipped         []int64 // no such entry any more: expired, or removed by an operator, or damaged
	FirstSeq        int64   // not 0: the seqs before it are not for this user, or gone
	Resolved        int     // of the messages, those that a Query did not show yet
}

// Sync reads on from afterSeq: at most limit messages that take at most maxBytes
// as JSON. A seq that is committed, or is being committed at this moment, is
// never passed over. It errs with NotFound (*chat.Error) for a user who is and
// was no member.
func (s *Store) Sync(ctx context.Context, userID string, conversationID chat.ConversationID, afterSeq int64, limit, maxBytes int) (Page, error) {
	v, err := s.view(ctx, userID, conversationID)
	if err != nil {
		return Page{}, err
	}
	page := Page{Messages: []chat.Message{}, NextSeq: max(afterSeq, v.LastSeq()), CommittedMaxSeq: v.LastSeq()}
	window, ok := v.WindowAfter(afterSeq)
	if !ok {
		if page.NextSeq > afterSeq {
			page.FirstSeq = page.NextSeq + 1 // all that is left is hidden
		}
		return page, nil
	}
	if window.From > afterSeq+1 {
		page.FirstSeq = window.From
	}
	found, err := s.read(ctx, conversationID, window, table.Ascending, quota{limit, maxBytes, v.Head.LargestEntry})
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
func (s *Store) History(ctx context.Context, userID string, conversationID chat.ConversationID, beforeSeq int64, limit, maxBytes int) (HistoryPage, error) {
	v, err := s.view(ctx, userID, conversationID)
	if err != nil {
		return HistoryPage{}, err
	}
	if beforeSeq == 0 {
		beforeSeq = v.LastSeq() + 1
	}
	page := HistoryPage{Messages: []chat.Message{}, NextBeforeSeq: beforeSeq, CommittedMaxSeq: v.LastSeq()}
	window, ok := v.WindowBefore(beforeSeq)
	if !ok {
		return page, nil
	}
	found, err := s.read(ctx, conversationID, window, table.Descending, quota{limit, maxBytes, v.Head.LargestEntry})
	if err != nil {
		return HistoryPage{}, err
	}
	slices.Reverse(found.messages)
	page.Messages = found.messages
	page.Resolved = found.resolved
	page.NextBeforeSeq = found.through
	_, page.HasMore = v.WindowBefore(found.through)
	return page, nil
}

// Entries reads every message in r, ascending, as it was when the ledger ended with
// r.To: who hears of r need not be there to hear of a later edit. Seqs in r that no
// entry has any more, or a damaged one, are left out; one that is being committed is
// waited for, or an error.
func (s *Store) Entries(ctx context.Context, conversationID chat.ConversationID, r chat.Range) ([]chat.Message, error) {
	var all []chat.Message
	w := chat.Window{Range: r, During: chat.Range{From: 1, To: r.To}}
	for w.From <= w.To {
		found, err := s.read(ctx, conversationID, w, table.Ascending, quota{messages: math.MaxInt, bytes: math.MaxInt})
		if err != nil {
			return nil, err
		}
		all = append(all, found.messages...)
		w.From = found.through + 1
	}
	return all, nil
}

// view reads head and inbox line, the head first: who is a member after the head
// was read was one when its lastSeq was committed, and nothing above that
// lastSeq is shown. Read the other way round, a removal between the two reads
// would show what was written after it.
//
// The line is read where there is no head, too: a stranger would tell by the time
// whether there is one.
func (s *Store) view(ctx context.Context, userID string, conversationID chat.ConversationID) (v chat.View, err error) {
	exists, err := s.db.Get(ctx, s.db.Conversations, table.HeadKey(conversationID), &v.Head)
	if err != nil {
		return chat.View{}, err
	}
	known, err := s.db.Get(ctx, s.db.Inboxes, table.LineKey(userID, conversationID), &v.Line)
	if err != nil {
		return chat.View{}, err
	}
	if !exists || !known {
		return chat.View{}, errNoConversation()
	}
	if s.mayHaveGone(v.Head, v.Line) {
		if err := s.linesNow(ctx, []table.Item{table.LineKey(userID, conversationID)}, func(in table.Item) error {
			return table.Unmarshal(in, &v.Line)
		}); err != nil {
			return chat.View{}, err
		}
	}
	return chat.ViewOf(v.Head, v.Line), nil
}

// goneFor is for how long after a removal was stamped its transaction may still be under
// way: well above what a function may take.
const goneFor = time.Minute

// mayHaveGone reports whether a line may say less than the head that was read before it.
// While a transaction is being applied its items show one after the other: the head, and
// even what was written after the removal, may be there when the line of the removed one
// is not.
func (s *Store) mayHaveGone(head chat.Conversation, line chat.Line) bool {
	return head.RemovedAt != 0 && line.LeftSeq == 0 && s.db.Now().Sub(time.UnixMilli(head.RemovedAt)) < goneFor
}

// linesNow reads lines that exist, serialisably.
func (s *Store) linesNow(ctx context.Context, keys []table.Item, take func(table.Item) error) error {
	for chunk := range slices.Chunk(keys, table.MaxTransactGet) {
		gets := make([]types.TransactGetItem, len(chunk))
		for i, key := range chunk {
			gets[i] = types.TransactGetItem{Get: &types.Get{TableName: &s.db.Inboxes, Key: key}}
		}
		out, err := s.db.TransactGet(ctx, gets)
		if err != nil {
			return fmt.Errorf("reading %d inbox lines: %w", len(chunk), err)
		}
		for _, r := range out.Responses {
			if err := take(r.Item); err != nil {
				return err
			}
		}
	}
	return nil
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
	smallest int // size of a message
}

func (s stretch) empty() bool { return len(s.messages)+len(s.skipped) == 0 }

// skippedBytes is the most a skipped seq takes in a frame: 16 digits and a comma.
const skippedBytes = 17

// quota is what a page has room for, and what is known of the ledger it comes from.
type quota struct {
	messages, bytes int // at most; of the bytes of their JSON

	largest int // chat.Conversation.LargestEntry
}

const (
	// modestEntry is how large entries may be without being looked at with care: a
	// Query of 50 of them bills 32 units at most. Those of most conversations are.
	modestEntry = 2560

	// unknownEntry stands for the largest entry of a ledger that does not say.
	unknownEntry = 8 * 1024

	// boldness is how many times as many messages the next Query asks for, at most,
	// as were found: what comes may be larger than what was seen.
	boldness = 8
)

// more reports whether another message like those found would fit.
func (q quota) more(s stretch) bool {
	return len(s.messages) < q.messages && (len(s.messages) == 0 || q.bytes-s.bytes >= s.smallest)
}

// next is how many messages the next Query is to ask for: those that may fit, by
// the sizes met so far. All that it reads is billed, whether it fits or not, and 50
// messages of 24 KB would be 254 units for a page of one.
//
// The first Query knows no sizes but that of the ledger's largest entry. Where that
// is modest it asks for a whole page; so a page of small messages is one Query. Else
// it asks for twice what would fit at that size.
func (q quota) next(s stretch, first bool) int {
	n := queryPage
	switch largest := cmp.Or(q.largest, unknownEntry); {
	case len(s.messages) > 0:
		n = min(n, boldness*len(s.messages), (q.bytes-s.bytes)/s.smallest)
	case !first:
		return n // what expired is passed in whole pages, whatever the limit
	case largest > modestEntry:
		n = max(1, min(n, q.bytes/largest*2))
	}
	return min(n, q.messages-len(s.messages))
}

// read reads a window in one direction until it is through, or the quota is used up,
// or a long run of seqs that are gone would have to be listed. It returns at least one
// seq.
func (s *Store) read(ctx context.Context, conversationID chat.ConversationID, w chat.Window, d table.Direction, q quota) (stretch, error) {
	r := w.Range
	out := stretch{messages: []chat.Message{}, through: r.From - 1}
	if d == table.Descending {
		out.through = r.To + 1
	}
	for queries := 0; r.From <= r.To && q.more(out) && queries < maxQueries; queries++ {
		known, covered, err := s.query(ctx, conversationID, r, d, q.next(out, queries == 0))
		if err == nil {
			err = s.show(ctx, conversationID, known, w.During)
		}
		if err != nil {
			return stretch{}, err
		}
		if !out.take(known, covered, d, q) {
			return out, nil
		}
		r = rest(r, out.through, d)
	}
	return out, nil
}

// take takes what a Query found in the part of a range that it covered, as much of
// it as fits. It goes from message to message, never from seq to seq: what retention
// or an operator took may be any number of seqs.
func (s *stretch) take(known map[int64]table.Message, covered chat.Range, d table.Direction, q quota) (all bool) {
	found, end := slices.Sorted(maps.Keys(known)), covered.To
	if d == table.Descending {
		slices.Reverse(found)
		end = covered.From
	}
	for _, seq := range found {
		if !s.pass(seq-d.Step(), d, q.bytes) || !s.add(known[seq], q) {
			return false
		}
	}
	return s.pass(end, d, q.bytes)
}

// add takes the next message, if it fits. The first one does.
func (s *stretch) add(m table.Message, q quota) (fits bool) {
	if len(s.messages) == q.messages || s.bytes+m.Bytes > q.bytes && !s.empty() {
		return false
	}
	if len(s.messages) == 0 || m.Bytes < s.smallest {
		s.smallest = m.Bytes
	}
	s.bytes += m.Bytes
	s.messages = append(s.messages, m.Message)
	if m.Late {
		s.resolved++
	}
	s.through = m.Seq
	return true
}

// pass takes the run of seqs without a message that ends with seq last, if there is
// one: as many as fit. Only at the start of a page can that be a long one, or become
// one.
func (s *stretch) pass(last int64, d table.Direction, maxBytes int) (fits bool) {
	run := last - s.through
	switch {
	case run == 0:
		return true
	case d == table.Descending: // nobody waits for them
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

// rest returns what comes after seq in a range, in reading order.
func rest(r chat.Range, seq int64, d table.Direction) chat.Range {
	if d == table.Ascending {
		r.From = seq + 1
	} else {
		r.To = seq - 1
	}
	return r
}

// query reads one page and returns the messages by seq with the part of r they
// cover: a seq there without a message has none, for certain, or a damaged one.
//
// A strongly consistent Query shows what is committed but is not serialisable
// with transactions: while one is being applied, the head may be visible and the
// message not yet (DynamoDB Developer Guide, "Isolation levels"). So what the
// Query lacked is looked up by TransactGetItems, which is serialisable.
func (s *Store) query(ctx context.Context, conversationID chat.ConversationID, r chat.Range, d table.Direction, limit int) (map[int64]table.Message, chat.Range, error) {
	out, err := s.db.QueryRange(ctx, conversationID, r, d, limit)
	if err != nil {
		return nil, chat.Range{}, err
	}
	known := make(map[int64]table.Message, len(out.Items))
	seen := make(map[int64]bool, len(out.Items))
	for _, in := range out.Items {
		if seq, whole := table.SeqOf(in); whole {
			seen[seq] = true
		}
		if mi, ok := s.entry(ctx, in); ok {
			known[mi.Seq] = mi
		}
	}
	covered := r
	if out.LastEvaluatedKey != nil {
		last, _ := table.SeqOf(out.LastEvaluatedKey)
		if last < r.From || last > r.To {
			return nil, chat.Range{}, fmt.Errorf("a Query of messages %d to %d of %s ended at %d", r.From, r.To, conversationID, last)
		}
		covered = cut(covered, last, d)
	}
	return known, covered, s.resolve(ctx, conversationID, missingIn(covered, seen), known)
}

// entry reads a message. ok is false if it expired, and for one that is damaged,
// which is then as good as gone: it must not hold up those after it.
func (s *Store) entry(ctx context.Context, in table.Item) (mi table.Message, ok bool) {
	mi, err := table.UnmarshalMessage(in)
	if err == nil && s.db.Expired(mi) {
		return table.Message{}, false
	}
	if err == nil {
		err = mi.Measure()
	}
	if err != nil {
		s.db.Damaged(ctx, s.db.Messages, in, err)
		return table.Message{}, false
	}
	return mi, true
}

// missingIn returns the seqs of r that were not seen, descending.
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
func cut(r chat.Range, seq int64, d table.Direction) chat.Range {
	if d == table.Ascending {
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
func (s *Store) resolve(ctx context.Context, conversationID chat.ConversationID, missing iter.Seq[int64], known map[int64]table.Message) error {
	batch := make([]int64, 0, table.MaxTransactGet)
	size := probe
	for seq := range missing {
		if batch = append(batch, seq); len(batch) < size {
			continue
		}
		found, err := s.db.LookUp(ctx, conversationID, batch, known)
		if err != nil || !found {
			return err
		}
		batch, size = batch[:0], table.MaxTransactGet
	}
	_, err := s.db.LookUp(ctx, conversationID, batch, known)
	return err
}

// head reads a conversation's head.
func (s *Store) head(ctx context.Context, conversationID chat.ConversationID) (head chat.Conversation, found bool, err error) {
	found, err = s.db.Get(ctx, s.db.Conversations, table.HeadKey(conversationID), &head)
	if found {
		s.heads.learn(head)
	}
	return head, found, err
}
