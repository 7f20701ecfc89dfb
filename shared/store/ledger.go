package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/oklog/ulid/v2"

	"inorder/shared/chat"
)

// Receipt says what a message became. Duplicate is true when an earlier request
// with the same clientMsgId had made it so.
type Receipt struct {
	ConversationID string
	Seq            int64
	MessageID      string
	ServerTime     int64 // ms
	Duplicate      bool
	Attempts       int // transactions this request took; 0 if it only read
}

// Append commits a message and gives it its seq. The message carries everything
// but seq, messageId, serverTime, version and status, which are made here.
//
// With to, the message goes to the single conversation of the sender and that
// user, which its first message creates; without, to m.ConversationID.
//
// Append returns only after the commit, or with the first result if this
// (senderId, clientMsgId) was committed before, even where the sender has lost
// the right to send since. Errors the caller can show are of type *chat.Error:
// what Message.Validate refuses, NotFound for a conversation that does not exist
// or that the sender is no member of, Forbidden for a system conversation,
// Dissolved, IdempotencyConflict, and Busy when contention outlasted the
// context's deadline (the message may then be committed or not, and the same
// clientMsgId finds out). Any other error is a fault.
func (s *Store) Append(ctx context.Context, m chat.Message, to string) (Receipt, error) {
	if to != "" {
		if err := chat.ValidateUserID("to", to); err != nil {
			return Receipt{}, err
		}
		m.ConversationID = chat.SingleID(m.SenderID, to)
	}
	now := s.now()
	m.MessageID = ulid.MustNewDefault(now).String()
	m.ServerTime = now.UnixMilli()
	m.Version, m.Status = 1, chat.Normal
	if err := m.Validate(); err != nil {
		return Receipt{}, err
	}
	fingerprint, err := m.Fingerprint()
	if err != nil {
		return Receipt{}, err
	}
	return s.commit(ctx, write{message: m, to: to, fingerprint: fingerprint})
}

// write is one message on its way into the ledger.
type write struct {
	message     chat.Message // complete but for seq
	to          string       // the other user of a single conversation, "" if unknown
	fingerprint string
}

// commit tries the transaction until it is settled or the time is up. The
// idempotency record, not this process's memory, decides whether an attempt
// whose answer got lost was committed.
func (s *Store) commit(ctx context.Context, w write) (Receipt, error) {
	ctx, cancel := withReserve(ctx)
	defer cancel()

	head, known := s.heads.trusted(w.message.ConversationID, w.message.SenderID)
	read := false // whether head was read for this attempt
	for attempt := 1; ; attempt++ {
		if !known {
			var err error
			if head, err = s.look(ctx, w); err != nil {
				return s.refuse(ctx, w, attempt-1, err)
			}
			read = true
		}
		result := s.try(ctx, w, head)
		switch {
		case result.receipt != nil:
			result.receipt.Attempts = attempt
			return *result.receipt, nil
		case result.err != nil:
			return Receipt{}, result.err
		case result.head != nil && !read:
			// What this process remembered was stale. The failed condition brought
			// the head as it is, so the next attempt needs no read and no wait.
			head, read = *result.head, true
			if err := s.mayWrite(ctx, w, head); err != nil {
				return s.refuse(ctx, w, attempt, err)
			}
			continue
		}
		if err := s.pace.wait(ctx, attempt, result.throttled); err != nil {
			return Receipt{}, busy(w.message.ConversationID, attempt, result.cause)
		}
		known, read = false, false
	}
}

// look reads the head and checks the sender's right to write. A single
// conversation that does not exist yet comes back with LastSeq 0.
//
// The head is read before the roster, never together with it in one
// BatchGetItem, whose reads have no order: a roster item from before a removal
// with a head from after it would pass the removal's membersVersion off as the
// one at which the sender was seen to be a member.
func (s *Store) look(ctx context.Context, w write) (chat.Conversation, error) {
	out, err := s.db.GetItem(ctx, &dynamodb.GetItemInput{
		TableName:      &s.tables.Conversations,
		Key:            headKey(w.message.ConversationID),
		ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return chat.Conversation{}, fmt.Errorf("reading the head of %s: %w", w.message.ConversationID, err)
	}
	if out.Item == nil {
		if w.to == "" {
			return chat.Conversation{}, errNoConversation()
		}
		return chat.Conversation{ConversationID: w.message.ConversationID}, nil
	}
	var head chat.Conversation
	if err := unmarshal(out.Item, &head); err != nil {
		return chat.Conversation{}, err
	}
	s.heads.learn(head)
	return head, s.mayWrite(ctx, w, head)
}

// mayWrite checks the sender's right at this version of the roster.
func (s *Store) mayWrite(ctx context.Context, w write, head chat.Conversation) error {
	// The id of a single conversation is made of its two users, so who names
	// the other one is a member.
	member := w.to != "" || s.heads.member(head.ConversationID, w.message.SenderID, head.MembersVersion)
	if !member {
		out, err := s.db.GetItem(ctx, &dynamodb.GetItemInput{
			TableName:      &s.tables.Members,
			Key:            memberKey(head.ConversationID, w.message.SenderID),
			ConsistentRead: aws.Bool(true),
		})
		if err != nil {
			return fmt.Errorf("reading member %s of %s: %w", w.message.SenderID, head.ConversationID, err)
		}
		if out.Item == nil {
			return errNoConversation()
		}
	}
	s.heads.admit(head, w.message.SenderID)
	switch {
	case head.Kind == chat.System:
		return chat.Errorf(chat.Forbidden, "a system conversation can be read, not written")
	case head.State != chat.Active:
		return chat.Errorf(chat.Dissolved, "the group is dissolved")
	}
	return nil
}

// refuse gives the refusal, unless this message was committed by an earlier
// request: then its sender gets that result, whatever has changed since.
func (s *Store) refuse(ctx context.Context, w write, attempts int, refusal error) (Receipt, error) {
	if _, isRefusal := errors.AsType[*chat.Error](refusal); !isRefusal {
		if ctx.Err() != nil || isThrottle(refusal) {
			return Receipt{}, busy(w.message.ConversationID, attempts, refusal)
		}
		return Receipt{}, refusal
	}
	out, err := s.db.GetItem(ctx, &dynamodb.GetItemInput{
		TableName:      &s.tables.Idempotency,
		Key:            item{"dedupeKey": str(chat.DedupeKey(w.message.SenderID, w.message.ClientMsgID))},
		ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return Receipt{}, fmt.Errorf("reading the idempotency record of a refused message: %w", err)
	}
	if out.Item == nil {
		return Receipt{}, refusal
	}
	receipt, err := w.first(out.Item)
	if err != nil {
		return Receipt{}, err
	}
	receipt.Attempts = attempts
	return *receipt, nil
}

// outcome is what became of one transaction: exactly one of receipt, err and
// "not yet" (neither), which has a cause and perhaps the head as it is.
type outcome struct {
	receipt   *Receipt
	err       error
	head      *chat.Conversation
	throttled bool
	cause     error
}

// The transaction's items, in the order of its cancellation reasons. A first
// message has more after them.
const (
	atHead = iota
	atMessage
	atRecord
)

// try runs the transaction once on the given head.
func (s *Store) try(ctx context.Context, w write, head chat.Conversation) outcome {
	w.message.Seq = head.LastSeq + 1
	items, err := s.transaction(w, head)
	if err != nil {
		return outcome{err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	start := time.Now()
	_, err = s.db.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: items})
	if err == nil {
		s.pace.observe(time.Since(start))
		s.heads.wrote(w.headAfter(head), w.message.SenderID)
		return outcome{receipt: w.receipt()}
	}
	canceled, ok := errors.AsType[*types.TransactionCanceledException](err)
	if !ok {
		if !mayRetry(err) {
			return outcome{err: fmt.Errorf("writing message %s to %s: %w", w.message.MessageID, w.message.ConversationID, err)}
		}
		return outcome{throttled: isThrottle(err), cause: err}
	}
	s.pace.observe(time.Since(start))
	return s.readReasons(w, canceled)
}

// readReasons tells what a cancelled transaction means. The idempotency record
// comes first: a retry that also lost the race for the seq still gets its
// original result.
func (s *Store) readReasons(w write, canceled *types.TransactionCanceledException) outcome {
	reasons := canceled.CancellationReasons
	if len(reasons) <= atRecord {
		return outcome{err: fmt.Errorf("a cancelled transaction without reasons: %w", canceled)}
	}
	if isConditionFailed(reasons[atRecord]) {
		receipt, err := w.first(reasons[atRecord].Item)
		return outcome{receipt: receipt, err: err}
	}
	result := outcome{cause: canceled}
	for _, r := range reasons {
		switch aws.ToString(r.Code) {
		case "None", "ConditionalCheckFailed", "TransactionConflict":
		case "ThrottlingError", "ProvisionedThroughputExceeded":
			result.throttled = true
		default:
			return outcome{err: fmt.Errorf("writing message %s to %s: %w", w.message.MessageID, w.message.ConversationID, canceled)}
		}
	}
	if isConditionFailed(reasons[atHead]) {
		var head chat.Conversation
		if err := unmarshal(reasons[atHead].Item, &head); err != nil {
			return outcome{err: err}
		}
		if head.ConversationID == "" {
			return outcome{err: errNoConversation()} // an operator deleted the head meanwhile
		}
		s.heads.learn(head)
		result.head = &head
		return result
	}
	if isConditionFailed(reasons[atMessage]) {
		// The head was right, yet its next seq is taken: the head is behind its
		// ledger, which only a repair can mend. Going on would overwrite.
		return outcome{err: fmt.Errorf("the head of %s is behind its ledger: seq %d exists", w.message.ConversationID, w.message.Seq)}
	}
	return result
}

// transaction gives the items to write on the given head.
func (s *Store) transaction(w write, head chat.Conversation) ([]types.TransactWriteItem, error) {
	entry, err := marshalMessage(w.message)
	if err != nil {
		return nil, err
	}
	record, err := marshal(idempotencyRecord{
		DedupeKey:      chat.DedupeKey(w.message.SenderID, w.message.ClientMsgID),
		ConversationID: w.message.ConversationID,
		Seq:            w.message.Seq,
		MessageID:      w.message.MessageID,
		Fingerprint:    w.fingerprint,
		ServerTime:     w.message.ServerTime,
	})
	if err != nil {
		return nil, err
	}
	headWrite, rest, err := s.headWrite(w, head)
	if err != nil {
		return nil, err
	}
	return append([]types.TransactWriteItem{
		atHead: headWrite,
		atMessage: {Put: &types.Put{
			TableName:           &s.tables.Messages,
			Item:                entry,
			ConditionExpression: aws.String("attribute_not_exists(conversationId)"),
		}},
		atRecord: {Put: &types.Put{
			TableName:                           &s.tables.Idempotency,
			Item:                                record,
			ConditionExpression:                 aws.String("attribute_not_exists(dedupeKey)"),
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}},
	}, rest...), nil
}

// headWrite gives the write that hands out the seq, and for the first message
// of a single conversation the rosters and inboxes that come with it.
func (s *Store) headWrite(w write, head chat.Conversation) (types.TransactWriteItem, []types.TransactWriteItem, error) {
	if head.LastSeq == 0 {
		created, err := marshal(w.headAfter(head))
		if err != nil {
			return types.TransactWriteItem{}, nil, err
		}
		rest, err := s.singleMembers(w)
		return types.TransactWriteItem{Put: &types.Put{
			TableName:                           &s.tables.Conversations,
			Item:                                created,
			ConditionExpression:                 aws.String("attribute_not_exists(conversationId)"),
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}}, rest, err
	}
	return types.TransactWriteItem{Update: &types.Update{
		TableName:                &s.tables.Conversations,
		Key:                      headKey(head.ConversationID),
		UpdateExpression:         aws.String("SET lastSeq = :next, updatedAt = :now"),
		ConditionExpression:      aws.String("lastSeq = :prev AND membersVersion = :mv AND #state = :active"),
		ExpressionAttributeNames: map[string]string{"#state": "state"},
		ExpressionAttributeValues: item{
			":next":   num(w.message.Seq),
			":now":    num(w.message.ServerTime),
			":prev":   num(head.LastSeq),
			":mv":     num(head.MembersVersion),
			":active": str(string(chat.Active)),
		},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}, nil, nil
}

// singleMembers gives the roster and inbox items of a new single conversation:
// two each, or one each for a user's notes.
func (s *Store) singleMembers(w write) ([]types.TransactWriteItem, error) {
	m := w.message
	var writes []types.TransactWriteItem
	for _, userID := range singleUsers(m.SenderID, w.to) {
		member, err := marshal(chat.Member{
			ConversationID: m.ConversationID, UserID: userID, Role: chat.Plain, JoinSeq: 1, JoinedAt: m.ServerTime,
		})
		if err != nil {
			return nil, err
		}
		line := inboxItem{UserID: userID, ConversationID: m.ConversationID, Peer: m.SenderID, JoinSeq: 1}
		if userID == m.SenderID {
			line.Peer, line.ReadSeq, line.DeliveredSeq = w.to, m.Seq, m.Seq // one has read what one wrote
		}
		inbox, err := marshal(line)
		if err != nil {
			return nil, err
		}
		writes = append(writes,
			types.TransactWriteItem{Put: &types.Put{TableName: &s.tables.Members, Item: member}},
			types.TransactWriteItem{Put: &types.Put{TableName: &s.tables.Inboxes, Item: inbox}})
	}
	return writes, nil
}

func singleUsers(a, b string) []string {
	if a == b {
		return []string{a}
	}
	return []string{a, b}
}

// headAfter is the head once the message is committed.
func (w write) headAfter(head chat.Conversation) chat.Conversation {
	if head.LastSeq == 0 {
		head = chat.Conversation{
			ConversationID: w.message.ConversationID,
			Kind:           chat.Single,
			MembersVersion: 1,
			MemberCount:    len(singleUsers(w.message.SenderID, w.to)),
			State:          chat.Active,
			CreatedAt:      w.message.ServerTime,
		}
	}
	head.LastSeq = w.message.Seq
	head.UpdatedAt = w.message.ServerTime
	return head
}

func (w write) receipt() *Receipt {
	return &Receipt{
		ConversationID: w.message.ConversationID,
		Seq:            w.message.Seq,
		MessageID:      w.message.MessageID,
		ServerTime:     w.message.ServerTime,
	}
}

// first gives the result an idempotency record stands for, or a conflict if the
// record was made by other content.
func (w write) first(in item) (*Receipt, error) {
	var r idempotencyRecord
	if err := unmarshal(in, &r); err != nil {
		return nil, err
	}
	if r.MessageID == "" {
		return nil, fmt.Errorf("the idempotency record of %s is empty", w.message.ClientMsgID)
	}
	if r.Fingerprint != w.fingerprint {
		return nil, &chat.Error{
			Code:    chat.IdempotencyConflict,
			Field:   "clientMsgId",
			Message: "this clientMsgId was used for other content; a new message needs a new one",
			Details: map[string]any{"messageId": r.MessageID, "seq": r.Seq, "conversationId": r.ConversationID},
		}
	}
	return &Receipt{
		ConversationID: r.ConversationID,
		Seq:            r.Seq,
		MessageID:      r.MessageID,
		ServerTime:     r.ServerTime,
		Duplicate:      r.MessageID != w.message.MessageID,
	}, nil
}

func errNoConversation() error {
	return chat.FieldErrorf(chat.NotFound, "conversationId", "no such conversation, or you are no member of it")
}

func busy(conversationID string, attempts int, cause error) error {
	return fmt.Errorf("%w (after %d transactions: %w)", chat.Errorf(chat.Busy,
		"conversation %s is busy; send again with the same clientMsgId", conversationID), attempts, cause)
}
