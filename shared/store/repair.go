package store

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"inorder/shared/chat"
)

// MaxRepairMargin is the largest margin of a repair.
const MaxRepairMargin = 1_000_000

// Repair is what RepairHead did.
type Repair struct {
	ConversationID string `json:"conversationId"`
	Changed        bool   `json:"changed"` // false: the head was not behind
	Before         int64  `json:"before"`  // the head's lastSeq
	MaxSeq         int64  `json:"maxSeq"`  // the highest seq of the ledger
	After          int64  `json:"after"`   // the head's lastSeq now
}

// RepairHead raises the lastSeq of a head that fell behind its ledger, as one
// restored from an older backup does, to the ledger's highest seq and margin. It
// never lowers one. NotFound (*chat.Error) if there is no such head.
//
// The margin is for messages that devices have seen and the ledger has lost too:
// their seqs must not be given out again, for a device would take what is new for
// what it has. Nothing is ever written under the seqs of the margin, so the
// ledger is not dense there: Sync names them as skipped, which lets every device
// pass (G6), and the head keeps them in its attribute skipped, which lets an
// audit tell them from a loss.
//
// The write is conditional on the head as read before the ledger. So no message
// was committed between the two, and a send at this moment wins or tries again.
func (s *Store) RepairHead(ctx context.Context, conversationID string, margin int64) (Repair, error) {
	if margin < 0 || margin > MaxRepairMargin {
		return Repair{}, chat.FieldErrorf(chat.BadRequest, "margin", "a margin is from 0 to %d", MaxRepairMargin)
	}
	ctx, cancel := withReserve(ctx)
	defer cancel()
	for attempt := 1; ; attempt++ {
		repair, err := s.tryRepair(ctx, conversationID, margin)
		if err == nil || !conditionFailed(err) && !isConflict(err) {
			return repair, err
		}
		if s.pace.wait(ctx, attempt, false) != nil {
			return Repair{}, fmt.Errorf("%w: %w", chat.Errorf(chat.Busy, "conversation %s is being written to; try again", conversationID), err)
		}
	}
}

func (s *Store) tryRepair(ctx context.Context, conversationID string, margin int64) (Repair, error) {
	var head chat.Conversation
	found, err := s.get(ctx, s.tables.Conversations, headKey(conversationID), &head)
	if err != nil {
		return Repair{}, err
	}
	if !found {
		return Repair{}, chat.FieldErrorf(chat.NotFound, "conversationId", "there is no head of %s", conversationID)
	}
	last, err := s.lastEntry(ctx, conversationID)
	if err != nil {
		return Repair{}, err
	}
	r := Repair{ConversationID: conversationID, Before: head.LastSeq, After: head.LastSeq}
	if last != nil {
		r.MaxSeq = last.Seq
	}
	if r.MaxSeq <= head.LastSeq {
		return r, nil
	}
	r.After = min(r.MaxSeq+margin, chat.MaxSeq)
	update := "SET lastSeq = :after"
	values := item{":after": num(r.After), ":before": num(r.Before)}
	if r.After > r.MaxSeq {
		update += ", skipped = list_append(if_not_exists(skipped, :none), :margin)"
		values[":none"] = &types.AttributeValueMemberL{Value: []types.AttributeValue{}}
		values[":margin"] = &types.AttributeValueMemberL{Value: []types.AttributeValue{
			&types.AttributeValueMemberM{Value: item{"from": num(r.MaxSeq + 1), "to": num(r.After)}},
		}}
	}
	_, err = s.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                 &s.tables.Conversations,
		Key:                       headKey(conversationID),
		UpdateExpression:          &update,
		ConditionExpression:       aws.String("lastSeq = :before"),
		ExpressionAttributeValues: values,
	})
	if err != nil {
		return Repair{}, fmt.Errorf("raising the head of %s: %w", conversationID, err)
	}
	r.Changed = true
	return r, nil
}
