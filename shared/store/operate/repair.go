package operate

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// MaxRepairMargin is the largest margin of a repair.
const MaxRepairMargin = 1_000_000

// Repair is what RepairHead or RaiseHead did.
type Repair struct {
	ConversationID chat.ConversationID `json:"conversationId"`
	Changed        bool                `json:"changed"` // false: the head was not behind, or the margin is 0
	Before         int64               `json:"before"`  // the head's lastSeq
	MaxSeq         int64               `json:"maxSeq"`  // the highest seq of the ledger
	After          int64               `json:"after"`   // the head's lastSeq now
}

// RepairHead raises the lastSeq of a head that fell behind its ledger, as one
// restored from an older backup does, to the ledger's highest seq and margin. It
// never lowers one. NotFound (*chat.Error) if there is no such head.
//
// The margin is for messages that devices have seen and the ledger has lost too:
// their seqs must not be given out again, for a device would take what is new for
// what it has. Nothing is ever written under the seqs of the margin, so the
// ledger is not dense there: Sync names them as skipped, which lets every device
// pass (G6), and the head keeps them in its attribute skipped, for they are not
// unread, and for an audit to tell them from a loss.
//
// The write is conditional on the head as read before the ledger. So no message
// was committed between the two, and a send at this moment wins or tries again.
func (o *Operator) RepairHead(ctx context.Context, conversationID chat.ConversationID, margin int64) (Repair, error) {
	return o.raiseHead(ctx, conversationID, margin, true)
}

// RaiseHead is RepairHead for a head that need not be behind: it raises the
// lastSeq by the margin, from the head's or the ledger's highest seq. That is for
// tables that were restored to an earlier time, head and ledger alike, while
// devices have seen what came after.
func (o *Operator) RaiseHead(ctx context.Context, conversationID chat.ConversationID, margin int64) (Repair, error) {
	return o.raiseHead(ctx, conversationID, margin, false)
}

func (o *Operator) raiseHead(ctx context.Context, conversationID chat.ConversationID, margin int64, onlyBehind bool) (Repair, error) {
	if margin < 0 || margin > MaxRepairMargin {
		return Repair{}, chat.FieldErrorf(chat.CodeBadRequest, "margin", "a margin is from 0 to %d", MaxRepairMargin)
	}
	ctx, cancel := table.WithBudget(ctx)
	defer cancel()
	var repair Repair
	for attempt := 1; ; attempt++ {
		var err error
		repair, err = o.tryRaise(ctx, repair, conversationID, margin, onlyBehind)
		if err == nil {
			return repair, nil
		}
		if !table.ConditionFailed(err) && !table.IsConflict(err) {
			return Repair{}, err
		}
		if o.db.Pace.WaitRead(ctx, attempt, false) != nil {
			return Repair{}, fmt.Errorf("%w: %w", chat.Errorf(chat.CodeBusy, "conversation %s is being written to; try again", conversationID), err)
		}
	}
}

// tryRaise returns, beside the error of its write, what it tried; the next try finds
// by that whether it was carried out and only the answer got lost.
func (o *Operator) tryRaise(ctx context.Context, tried Repair, conversationID chat.ConversationID, margin int64, onlyBehind bool) (Repair, error) {
	var head chat.Conversation
	found, err := o.db.Get(ctx, o.db.Conversations, table.HeadKey(conversationID), &head)
	if err != nil {
		return Repair{}, err
	}
	if !found {
		return Repair{}, chat.FieldErrorf(chat.CodeNotFound, "conversationId", "there is no head of %s", conversationID)
	}
	if tried.wasMade(head) {
		tried.Changed = true
		return tried, nil
	}
	last, err := o.lastEntry(ctx, conversationID)
	if err != nil {
		return Repair{}, err
	}
	r := Repair{ConversationID: conversationID, Before: head.LastSeq, After: head.LastSeq}
	if last != nil {
		r.MaxSeq = last.Seq
	}
	top := r.top()
	if onlyBehind && r.MaxSeq <= head.LastSeq || top+margin == head.LastSeq {
		return r, nil
	}
	if err := o.awaitApplied(ctx, conversationID, head.LastSeq); err != nil {
		return Repair{}, err
	}
	r.After = min(top+margin, chat.MaxSeq)
	update := "SET lastSeq = :after"
	values := table.Item{":after": table.Num(r.After), ":before": table.Num(r.Before)}
	if r.After > top {
		update += ", skipped = :skipped"
		values[":skipped"] = ranges(withSkip(head.Skipped, chat.Range{From: top + 1, To: r.After}))
	}
	_, err = o.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                 &o.db.Conversations,
		Key:                       table.HeadKey(conversationID),
		UpdateExpression:          &update,
		ConditionExpression:       aws.String("lastSeq = :before"),
		ExpressionAttributeValues: values,
	})
	if err != nil {
		return r, fmt.Errorf("raising the head of %s: %w", conversationID, err)
	}
	r.Changed = true
	return r, nil
}

// maxSkips is how many stretches a head remembers as skipped. They take 30 bytes
// each, and a head that stays below 1 KB is written for one unit.
const maxSkips = 6

// withSkip adds a stretch. What is one too many is joined with its neighbour, where
// the fewest seqs are in between: these then count as skipped too. The newest stays
// as it is, see wasMade.
func withSkip(skips []chat.Range, r chat.Range) []chat.Range {
	skips = append(slices.Clip(skips), r)
	for len(skips) > maxSkips {
		at := 0
		for i := 1; i < len(skips)-2; i++ {
			if skips[i+1].From-skips[i].To < skips[at+1].From-skips[at].To {
				at = i
			}
		}
		skips[at].To = skips[at+1].To
		skips = slices.Delete(skips, at+1, at+2)
	}
	return skips
}

func ranges(list []chat.Range) types.AttributeValue {
	values := make([]types.AttributeValue, len(list))
	for i, r := range list {
		values[i] = &types.AttributeValueMemberM{Value: table.Item{"from": table.Num(r.From), "to": table.Num(r.To)}}
	}
	return &types.AttributeValueMemberL{Value: values}
}

// top is the highest seq that was given out before the repair.
func (r Repair) top() int64 { return max(r.Before, r.MaxSeq) }

// wasMade reports whether a repair that was tried is what the head shows: its
// margin, or, without one, a head that is not behind any more.
func (r Repair) wasMade(head chat.Conversation) bool {
	if r.After == r.Before {
		return false // nothing was tried
	}
	return head.LastSeq >= r.After &&
		(r.After == r.top() || slices.Contains(head.Skipped, chat.Range{From: r.top() + 1, To: r.After}))
}

// awaitApplied waits until the newest seqs through last are applied as a whole.
// Readers take a run of seqs that are gone for the proof that what is before it
// was applied long ago (see resolve), and a margin makes such a run.
func (o *Operator) awaitApplied(ctx context.Context, conversationID chat.ConversationID, last int64) error {
	var newest []int64
	for seq := last; seq > max(0, last-table.MaxTransactGet); seq-- {
		newest = append(newest, seq)
	}
	_, err := o.db.LookUp(ctx, conversationID, newest, map[int64]table.Message{})
	return err
}
