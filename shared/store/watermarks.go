package store

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// Watermarks are how far a user has come in a conversation. Both only go up.
type Watermarks struct {
	DeliveredSeq int64 // at least one of the user's devices has all up to here
	ReadSeq      int64 // the user has read up to here
}

// Acked is the result of Ack: the watermarks now in force, those before, and the
// conversation.
type Acked struct {
	Watermarks
	Before Watermarks
	Head   chat.Conversation
}

// Rose reports whether this request raised a watermark.
func (a Acked) Rose() bool { return a.Watermarks != a.Before }

// Raised returns the stretch that this request raised a watermark over: the seqs above
// after, up to through.
func (a Acked) Raised() (after, through int64) {
	after = math.MaxInt64
	if a.DeliveredSeq > a.Before.DeliveredSeq {
		after, through = a.Before.DeliveredSeq, a.DeliveredSeq
	}
	if a.ReadSeq > a.Before.ReadSeq {
		after, through = min(after, a.Before.ReadSeq), max(through, a.ReadSeq)
	}
	return after, through
}

// Ack raises a user's watermarks to at least these; 0 leaves one as it is. What
// is read counts as delivered. Neither ever goes down, nor above the last seq
// the user may read: a receipt beyond it counts up to it. It errs with NotFound
// (*chat.Error) where the user is and was no member.
func (s *Store) Ack(ctx context.Context, userID string, conversationID chat.ConversationID, want Watermarks) (Acked, error) {
	head, remembered, err := s.headWith(ctx, conversationID, max(want.DeliveredSeq, want.ReadSeq))
	if err != nil {
		return Acked{}, err
	}
	want = want.upTo(head.LastSeq)
	// Most receipts come in order and raise what is there: one write, no read.
	const member = "attribute_not_exists(leftSeq) AND "
	update := lineUpdate{"SET deliveredSeq = :d", member + "deliveredSeq < :d", table.Item{":d": table.Num(want.DeliveredSeq)}}
	if want.ReadSeq > 0 {
		update.set += ", readSeq = :r"
		update.condition = member + "deliveredSeq <= :d AND readSeq < :r"
		update.values[":r"] = table.Num(want.ReadSeq)
	}
	next := want
	for {
		old, done, err := s.updateLine(ctx, userID, head, remembered, update)
		if err != nil {
			return Acked{}, err
		}
		before := Watermarks{old.DeliveredSeq, old.ReadSeq}
		if done {
			return Acked{Watermarks: before.max(next), Before: before, Head: head}, nil
		}
		next = before.max(want.upTo(chat.View{Head: head, Line: old}.LastSeq()))
		if next == before {
			return Acked{Watermarks: before, Before: before, Head: head}, nil
		}
		update = lineUpdate{"SET deliveredSeq = :d, readSeq = :r", member + "deliveredSeq = :od AND readSeq = :or", table.Item{
			":d": table.Num(next.DeliveredSeq), ":r": table.Num(next.ReadSeq),
			":od": table.Num(before.DeliveredSeq), ":or": table.Num(before.ReadSeq),
		}}
		if old.LeftSeq != 0 {
			update.condition = "leftSeq = :left AND deliveredSeq = :od AND readSeq = :or"
			update.values[":left"] = table.Num(old.LeftSeq)
		}
	}
}

func (w Watermarks) upTo(seq int64) Watermarks {
	w.ReadSeq = min(w.ReadSeq, seq)
	w.DeliveredSeq = max(min(w.DeliveredSeq, seq), w.ReadSeq)
	return w
}

func (w Watermarks) max(other Watermarks) Watermarks {
	return Watermarks{max(w.DeliveredSeq, other.DeliveredSeq), max(w.ReadSeq, other.ReadSeq)}
}

// Clear hides a conversation from the user up to throughSeq, on all devices, and
// returns the position now in force. It never goes down. rose is false if it was
// there already. It errs as Ack does.
//
// Through the last seq of a conversation that the user has left, it takes the
// conversation off the user's list.
func (s *Store) Clear(ctx context.Context, userID string, conversationID chat.ConversationID, throughSeq int64) (clearedSeq int64, rose bool, err error) {
	head, remembered, err := s.headWith(ctx, conversationID, throughSeq)
	if err != nil {
		return 0, false, err
	}
	next := min(throughSeq, head.LastSeq)
	for {
		old, done, err := s.updateLine(ctx, userID, head, remembered, lineUpdate{
			"SET clearedSeq = :c", "clearedSeq < :c AND (attribute_not_exists(leftSeq) OR leftSeq >= :c)", table.Item{":c": table.Num(next)},
		})
		if err != nil {
			return 0, false, err
		}
		if done {
			return next, true, nil
		}
		if next = min(next, chat.View{Head: head, Line: old}.LastSeq()); next <= old.ClearedSeq {
			return old.ClearedSeq, false, nil
		}
	}
}

// headWith returns a head whose lastSeq is at least seq, from memory if it can be,
// or else as it is now. Where there is none, its lastSeq is 0.
func (s *Store) headWith(ctx context.Context, conversationID chat.ConversationID, seq int64) (head chat.Conversation, remembered bool, err error) {
	if head, ok := s.heads.reaching(conversationID, seq); ok {
		return head, true, nil
	}
	head, _, err = s.head(ctx, conversationID)
	head.ConversationID = conversationID
	return head, false, err
}

// noLine answers one who has no line. Neither whether there is the conversation
// nor whether this process remembers it may be told by the time that takes: in
// each case the line is updated once, and the head read once.
func (s *Store) noLine(ctx context.Context, head chat.Conversation, remembered bool) error {
	if remembered {
		if _, _, err := s.head(ctx, head.ConversationID); err != nil {
			return err
		}
	}
	return errNoConversation()
}

// lineUpdate is what changes a line, and under which condition.
type lineUpdate struct {
	set, condition string
	values         table.Item
}

// updateLine changes a user's line of a conversation under a condition. done is
// false if the condition failed; old is the line as it was, in both cases. Without
// a head or a line it errs with NotFound.
func (s *Store) updateLine(ctx context.Context, userID string, head chat.Conversation, remembered bool, update lineUpdate) (old chat.Line, done bool, err error) {
	ctx, cancel := table.WithBudget(ctx)
	defer cancel()
	in := &dynamodb.UpdateItemInput{
		TableName:                           &s.db.Inboxes,
		Key:                                 table.LineKey(userID, head.ConversationID),
		UpdateExpression:                    &update.set,
		ConditionExpression:                 aws.String("attribute_exists(userId) AND " + update.condition),
		ExpressionAttributeValues:           update.values,
		ReturnValues:                        types.ReturnValueAllOld,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	out, err := s.db.UpdateItem(ctx, in)
	for attempt := 1; table.IsConflict(err) && s.db.Pace.WaitRead(ctx, attempt, false) == nil; attempt++ {
		out, err = s.db.UpdateItem(ctx, in) // the user is joining or leaving at this moment
	}
	var attributes table.Item
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		attributes = failed.Item
	} else if err != nil {
		return chat.Line{}, false, fmt.Errorf("updating the line of %s in %s: %w", head.ConversationID, userID, err)
	} else {
		attributes, done = out.Attributes, true
	}
	if len(attributes) == 0 || head.LastSeq == 0 {
		return chat.Line{}, false, s.noLine(ctx, head, remembered)
	}
	err = table.Unmarshal(attributes, &old)
	return old, done, err
}

// ReceiptPage says who has received and who has read a message.
type ReceiptPage struct {
	Delivered, Read []string // userIds
	Next            string   // the cursor of the next page, "" after the last
}

// Receipts returns, of the members after the cursor, at most limit, those whose
// watermarks have reached seq; of a single conversation that is not answered, the
// caller alone. NotFound for a seq the caller may not read, and Forbidden for a
// former member, who is not told who came after.
func (s *Store) Receipts(ctx context.Context, userID string, conversationID chat.ConversationID, seq int64, cursor string, limit int) (ReceiptPage, error) {
	v, err := s.view(ctx, userID, conversationID)
	if err != nil {
		return ReceiptPage{}, err
	}
	if v.Head.Kind == chat.KindSystem {
		return ReceiptPage{}, errReaders()
	}
	if _, ok := v.WindowAt(seq); !ok {
		return ReceiptPage{}, errNoMessage("seq")
	}
	if v.LeftSeq != 0 {
		return ReceiptPage{}, errFormer()
	}
	members, next, err := s.db.RosterPage(ctx, conversationID, cursor, limit)
	if err != nil {
		return ReceiptPage{}, err
	}
	strangers := v.Head.Kind == chat.KindSingle && !v.Head.Answered()
	var ids []string
	for _, m := range members {
		// What was there before a member joined counts as read, but was not.
		if m.JoinedSeq <= seq && (m.UserID == userID || !strangers) {
			ids = append(ids, m.UserID)
		}
	}
	lines, err := s.db.ReadableLinesOf(ctx, conversationID, ids)
	if err != nil {
		return ReceiptPage{}, err
	}
	page := ReceiptPage{Delivered: []string{}, Read: []string{}, Next: next}
	for _, id := range ids {
		if lines[id].DeliveredSeq >= seq {
			page.Delivered = append(page.Delivered, id)
		}
		if lines[id].ReadSeq >= seq {
			page.Read = append(page.Read, id)
		}
	}
	return page, nil
}
