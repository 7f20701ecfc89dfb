package operate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

const (
	// maxHole is how many seqs of one gap are looked up. Only the newest seqs of a
	// ledger can be in the middle of a transaction.
	maxHole = 1000

	// retentionAtLeast is the shortest retention there is; it may have been switched
	// off since. expirySlack is how far expiry times of neighbours are apart from
	// their order: senders' clocks differ, and DynamoDB deletes in no order.
	retentionAtLeast = 24 * time.Hour
	expirySlack      = time.Hour
)

// headless reports messages without a head, if it is still so.
func (a *audit) headless(ctx context.Context, id chat.ConversationID, last *table.Message) (found bool, err error) {
	if last == nil {
		return false, nil
	}
	out, err := a.again(ctx, a.getHead(id), a.getMessage(id, last.Seq))
	if err != nil {
		return false, err
	}
	if out[0] == nil && out[1] != nil {
		a.add(Violation{
			ConversationID: id, Kind: ViolationHeadMissing, Seq: last.Seq,
			Expected: "a head", Found: fmt.Sprintf("messages up to seq %d", last.Seq),
		})
	}
	return true, nil
}

// end compares the head with the last message.
func (a *audit) end(ctx context.Context, head chat.Conversation, last *table.Message) error {
	id := head.ConversationID
	switch {
	case last != nil && last.Seq > head.LastSeq:
		out, err := a.again(ctx, a.getHead(id), a.getMessage(id, last.Seq))
		if err != nil || out[0] == nil || out[1] == nil {
			return err
		}
		var now chat.Conversation
		if err := table.Unmarshal(out[0], &now); err != nil {
			return err
		}
		if now.LastSeq < last.Seq {
			a.add(Violation{
				ConversationID: id, Kind: ViolationHeadBehind, Seq: last.Seq,
				Expected: fmt.Sprintf("a head with lastSeq of at least %d", last.Seq), Found: fmt.Sprintf("lastSeq %d", now.LastSeq),
			})
		}
		return nil
	case last == nil:
		// All that retention leaves of a conversation that ended long ago.
		if a.outlived(head, max(a.db.Retention, retentionAtLeast)) {
			return nil
		}
		return a.missing(ctx, head, nil, nil, chat.Range{From: max(1, head.LastSeq-maxHole+1), To: head.LastSeq})
	default:
		return a.missing(ctx, head, last, nil, chat.Range{From: last.Seq + 1, To: head.LastSeq})
	}
}

// lastEntry reads the message with the highest seq; nil if there is none.
func (o *Operator) lastEntry(ctx context.Context, conversationID chat.ConversationID) (*table.Message, error) {
	return o.entryNext(ctx, conversationID, chat.Range{From: 0, To: chat.MaxSeq}, table.Descending)
}

// entryNext reads the first message of a range, in reading order; nil if there
// is none. Of one that is damaged it returns what its key says.
func (o *Operator) entryNext(ctx context.Context, conversationID chat.ConversationID, r chat.Range, d table.Direction) (*table.Message, error) {
	out, err := o.db.QueryRange(ctx, conversationID, r, d, 1)
	if err != nil || len(out.Items) == 0 {
		return nil, err
	}
	m, err := table.UnmarshalMessage(out.Items[0])
	if err != nil {
		o.db.Damaged(ctx, o.db.Messages, out.Items[0], err)
		m = table.Message{}
		m.ConversationID = conversationID
		m.Seq, _ = table.SeqOf(out.Items[0])
	}
	return &m, nil
}

// between returns the seqs from from on that are after prev and before seq.
func between(from int64, prev *table.Message, seq int64) chat.Range {
	if prev != nil {
		from = max(from, prev.Seq+1)
	}
	return chat.Range{From: from, To: seq - 1}
}

// missing reports the seqs of a gap between two messages, if they should be
// there. It is next nil for the end of the ledger, and prev nil for its start.
//
// What retention takes is mostly the start of a ledger, as later messages expire
// later. But each keeps the lifetime it was sent with: after those from before
// there was retention, or from when it was longer, a gap is its work too.
func (a *audit) missing(ctx context.Context, head chat.Conversation, prev, next *table.Message, gap chat.Range) error {
	if gap.From > gap.To || prev == nil && next != nil || prev != nil && a.retained(head, prev, next) {
		return nil
	}
	for _, r := range without(gap, head.Skipped) {
		absent, err := a.absent(ctx, head.ConversationID, r)
		if err != nil {
			return err
		}
		for _, hole := range absent {
			v := Violation{ConversationID: head.ConversationID, Kind: ViolationHole, Seq: hole.From, ToSeq: hole.To, Found: "nothing"}
			if next == nil && hole.To == head.LastSeq {
				v.Kind = ViolationHeadAhead
			}
			v.Expected = fmt.Sprintf("%d messages", hole.To-hole.From+1)
			a.add(v)
		}
	}
	return nil
}

// retained reports whether retention can have taken what is after prev, up to next
// or to the end: whether a message sent as early as prev would have expired, with
// the lifetime of one of the two.
func (a *audit) retained(head chat.Conversation, prev, next *table.Message) bool {
	if next == nil && a.db.Retention > 0 && a.outlived(head, a.db.Retention) {
		return true
	}
	soon := a.db.Now().Add(expirySlack)
	for _, m := range []*table.Message{prev, next} {
		if m == nil || m.ExpiresAt == 0 && (!m.Is(chat.EventErase) || a.db.Retention == 0) {
			continue
		}
		lifetime := time.Unix(m.ExpiresAt, 0).Sub(time.UnixMilli(m.ServerTime))
		if m.Is(chat.EventErase) { // it stays where its neighbours go
			lifetime = a.db.Retention
		}
		if !time.UnixMilli(prev.ServerTime).Add(lifetime).After(soon) {
			return true
		}
	}
	return false
}

// outlived reports whether even the last message is older than this.
func (a *audit) outlived(head chat.Conversation, age time.Duration) bool {
	return a.db.Now().Add(expirySlack).Sub(time.UnixMilli(head.UpdatedAt)) > age
}

// without returns the parts of r that are in none of the others.
func without(r chat.Range, others []chat.Range) []chat.Range {
	rest := []chat.Range{r}
	for _, o := range others {
		var cut []chat.Range
		for _, r := range rest {
			for _, part := range []chat.Range{{From: r.From, To: min(r.To, o.From-1)}, {From: max(r.From, o.To+1), To: r.To}} {
				if part.From <= part.To {
					cut = append(cut, part)
				}
			}
		}
		rest = cut
	}
	return rest
}

// absent returns the parts of r that no message has for certain.
func (a *audit) absent(ctx context.Context, id chat.ConversationID, r chat.Range) ([]chat.Range, error) {
	there := map[int64]bool{}
	first := max(r.From, r.To-maxHole+1) // what is being written is at the end
	for from := first; from <= r.To; from += table.MaxTransactGet {
		var gets []types.TransactGetItem
		for seq := from; seq <= min(r.To, from+table.MaxTransactGet-1); seq++ {
			gets = append(gets, a.getMessage(id, seq))
		}
		out, err := a.again(ctx, gets...)
		if err != nil {
			return nil, err
		}
		for i, in := range out {
			if in != nil {
				there[from+int64(i)] = true
			}
		}
	}
	var found []chat.Range
	for _, seq := range slices.Sorted(maps.Keys(there)) {
		if r.From < seq {
			found = append(found, chat.Range{From: r.From, To: seq - 1})
		}
		r.From = seq + 1
	}
	if r.From <= r.To {
		found = append(found, r)
	}
	return found, nil
}
