package store

import (
	"cmp"
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// The transaction's items, in the order of its cancellation reasons. First
// messages and changes have more after them.
const (
	atHead = iota
	atMessage
	atRecord
)

// try runs the transaction once on the given head.
func (s *Store) try(ctx context.Context, w write, head chat.Conversation, e changes) outcome {
	items, err := s.transaction(w, head, e)
	if err != nil {
		return outcome{err: err}
	}
	canceled, err := s.db.Transact(ctx, items)
	if err == nil {
		s.heads.wrote(w.headAfter(head, e), w.message.SenderID, len(e.left) > 0)
		return outcome{committed: &Committed{Sent: w.message.Sent()}}
	}
	if canceled == nil {
		if !table.MayRetry(err) {
			return outcome{err: fmt.Errorf("writing message %s to %s: %w", w.message.MessageID, w.message.ConversationID, err)}
		}
		return outcome{throttled: table.IsThrottle(err), conflict: table.IsConflict(err), cause: err}
	}
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
	if table.IsConditionFailed(reasons[atRecord]) {
		var record table.Record
		if err := table.Unmarshal(reasons[atRecord].Item, &record); err != nil {
			return outcome{err: err}
		}
		committed, err := w.first(record)
		return outcome{committed: committed, err: err}
	}
	if w.counted && table.IsConditionFailed(reasons[len(reasons)-1]) {
		return outcome{refusal: s.errGroupsToday()}
	}
	throttled, ok := table.MayPass(reasons)
	if !ok {
		return outcome{err: fmt.Errorf("writing message %s to %s: %w", w.message.MessageID, w.message.ConversationID, canceled)}
	}
	result := outcome{conflict: true, throttled: throttled, cause: canceled}
	if table.IsConditionFailed(reasons[atHead]) {
		head, err := s.headFound(reasons[atHead].Item)
		if err != nil {
			return outcome{err: err}
		}
		result.head = &head
		return result
	}
	if table.IsConditionFailed(reasons[atMessage]) && table.IsHeld(reasons[atHead]) {
		// The head was right, yet its next seq is taken: the head is behind its
		// ledger, which only a repair can mend. Going on would overwrite.
		//
		// A head that met a conflict or a throttle was not judged: who was before
		// this attempt may be in the middle of writing head and message.
		return outcome{err: fmt.Errorf("the head of %s is behind its ledger: seq %d exists", w.message.ConversationID, w.message.Seq)}
	}
	return result
}

// headFound reads the head that a failed condition brought, on which to go on.
func (s *Store) headFound(item table.Item) (head chat.Conversation, err error) {
	if err := table.Unmarshal(item, &head); err != nil {
		return head, err
	}
	if head.ConversationID == "" {
		return head, errNoConversation() // an operator deleted the head meanwhile
	}
	if err := checkHead(head); err != nil {
		return head, err
	}
	s.heads.learn(head)
	return head, nil
}

// transaction returns the items to write on the given head.
func (s *Store) transaction(w write, head chat.Conversation, e changes) ([]types.TransactWriteItem, error) {
	entry, record, err := s.entryAndRecord(w, e.original)
	if err != nil {
		return nil, err
	}
	first, err := s.headWrite(w, head, e)
	if err != nil {
		return nil, err
	}
	rest := e.items
	if head.LastSeq == 0 {
		if rest, err = s.firstMembers(w); err != nil {
			return nil, err
		}
		if w.counted {
			rest = append(rest, s.countGroup(w.message))
		}
	}
	return append([]types.TransactWriteItem{atHead: first, atMessage: entry, atRecord: record}, rest...), nil
}

// entryAndRecord returns the writes of a message and of its idempotency record.
func (s *Store) entryAndRecord(w write, original *table.Content) (entry, record types.TransactWriteItem, err error) {
	message, err := table.MarshalMessage(w.message, original, s.expiry(w.message))
	if err != nil {
		return entry, record, err
	}
	became, err := table.Marshal(table.Record{
		DedupeKey:      chat.DedupeKey(w.message.SenderID, w.message.ClientMsgID),
		ConversationID: w.message.ConversationID,
		Seq:            w.message.Seq,
		MessageID:      w.message.MessageID,
		Fingerprint:    w.fingerprint,
		ServerTime:     w.message.ServerTime,
		ExpiresAt:      s.recordExpiry(w.message),
	})
	if err != nil {
		return entry, record, err
	}
	entry.Put = &types.Put{
		TableName:           &s.db.Messages,
		Item:                message,
		ConditionExpression: aws.String("attribute_not_exists(conversationId)"),
	}
	record.Put = &types.Put{
		TableName:                           &s.db.Idempotency,
		Item:                                became,
		ConditionExpression:                 aws.String("attribute_not_exists(dedupeKey)"),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	return entry, record, nil
}

// headWrite returns the write that hands out the seq.
func (s *Store) headWrite(w write, head chat.Conversation, e changes) (types.TransactWriteItem, error) {
	after := w.headAfter(head, e)
	if head.LastSeq == 0 {
		created, err := table.Marshal(after)
		if err != nil {
			return types.TransactWriteItem{}, err
		}
		return types.TransactWriteItem{Put: &types.Put{
			TableName:                           &s.db.Conversations,
			Item:                                created,
			ConditionExpression:                 aws.String("attribute_not_exists(conversationId)"),
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}}, nil
	}
	state := chat.StateActive
	if w.anyState {
		state = head.State
	}
	item := s.headUpdate(head, after, state, e)
	if w.batches() { // one that the lane takes waits there, once somebody has opened it
		lane := "attribute_not_exists(laneUntil)"
		if head.LaneUntil != 0 {
			lane = "laneUntil = :lane"
			item.Update.ExpressionAttributeValues[":lane"] = table.Num(head.LaneUntil)
		}
		*item.Update.ConditionExpression += " AND " + lane
	}
	return item, nil
}

// headUpdate returns the write that makes one head into another, on condition that it is
// as it was read, in this state.
func (s *Store) headUpdate(head, after chat.Conversation, state chat.State, e changes) types.TransactWriteItem {
	set := "SET lastSeq = :next, updatedAt = :now"
	values := table.Item{
		":next": table.Num(after.LastSeq),
		":now":  table.Num(after.UpdatedAt),
		":prev": table.Num(head.LastSeq),
		":mv":   table.Num(head.MembersVersion),
		":as":   table.Str(string(state)),
	}
	names := map[string]string{"#state": "state"}
	also := func(name string, changed bool, value types.AttributeValue) {
		if changed {
			set += ", #" + name + " = :" + name
			names["#"+name] = name
			values[":"+name] = value
		}
	}
	also("runs", true, table.Str(string(after.Runs)))
	also("membersVersion", e.roster, table.Num(after.MembersVersion))
	also("memberCount", after.MemberCount != head.MemberCount, table.Num(int64(after.MemberCount)))
	also("rosterHash", after.RosterHash != head.RosterHash, table.Unum(after.RosterHash))
	also("hashedVersion", after.HashedVersion != head.HashedVersion, table.Num(after.HashedVersion))
	also("kept", after.Kept != head.Kept, table.Num(after.Kept))
	also("state", after.State != head.State, table.Str(string(after.State)))
	also("title", after.Title != head.Title, table.Str(after.Title))
	also("owner", after.Owner != head.Owner, table.Str(after.Owner))
	also("pushAt", after.PushAt != head.PushAt, table.Num(after.PushAt))
	also("removedAt", after.RemovedAt != head.RemovedAt, table.Num(after.RemovedAt))
	also("fullAt", after.FullAt != head.FullAt, table.Num(after.FullAt))
	also("largestEntry", after.LargestEntry != head.LargestEntry, table.Num(int64(after.LargestEntry)))
	also("laneUntil", after.LaneUntil != head.LaneUntil, table.Num(after.LaneUntil))
	also("laneBatch", after.LaneBatch != head.LaneBatch, table.Num(int64(after.LaneBatch)))
	condition := "lastSeq = :prev AND membersVersion = :mv AND #state = :as"
	if e.roster && head.IsCrowd() { // where users join without a new version
		condition += " AND memberCount = :members"
		values[":members"] = table.Num(int64(head.MemberCount))
	}
	return types.TransactWriteItem{Update: &types.Update{
		TableName:                           &s.db.Conversations,
		Key:                                 table.HeadKey(head.ConversationID),
		UpdateExpression:                    &set,
		ConditionExpression:                 &condition,
		ExpressionAttributeNames:            names,
		ExpressionAttributeValues:           values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}
}

// firstMembers returns the roster and inbox items of a new conversation.
func (s *Store) firstMembers(w write) ([]types.TransactWriteItem, error) {
	m := w.message
	writes := make([]types.TransactWriteItem, 0, 2*len(w.create.members))
	roster := w.create.roster(m)
	for i, nm := range w.create.members {
		member, err := table.Marshal(roster[i])
		if err != nil {
			return nil, err
		}
		line := chat.Line{UserID: nm.userID, ConversationID: m.ConversationID, Peer: nm.peer, JoinSeq: 1}
		if nm.userID == m.SenderID {
			line.ReadSeq, line.DeliveredSeq = m.Seq, m.Seq // one has read what one wrote
		}
		inbox, err := table.Marshal(line)
		if err != nil {
			return nil, err
		}
		writes = append(writes,
			types.TransactWriteItem{Put: &types.Put{TableName: &s.db.Members, Item: member}},
			types.TransactWriteItem{Put: &types.Put{TableName: &s.db.Inboxes, Item: inbox}})
	}
	return writes, nil
}

// headAfter is the head once the message is committed.
func (w write) headAfter(head chat.Conversation, e changes) chat.Conversation {
	if head.LastSeq == 0 || head.LargestEntry != 0 { // else what was written earlier is not known
		head.LargestEntry = max(head.LargestEntry, weight(w.message))
	}
	if head.LastSeq == 0 {
		roster := w.create.roster(w.message)
		head.MembersVersion, head.HashedVersion = 1, 1
		head.MemberCount, head.RosterHash = len(roster), chat.RosterHash(roster)
		head.State = chat.StateActive
		head.CreatedAt = w.message.ServerTime
	}
	members := head.MemberCount
	head = head.With(w.message)
	head.FullAt = cmp.Or(w.fullAt, head.FullAt)
	head.MemberCount = members // the roster itself says it: no event tells of a publication's readers
	if e.roster {
		head = head.WithRoster(e.joined, e.left)
	}
	if head.IsCrowd() {
		head.PushAt = head.NextPush(max(w.message.ServerTime, w.at))
	}
	if e.dissolved {
		head.State = chat.StateDissolved
	}
	return head
}

// envelope is about what an entry takes beside its content.
const envelope = 512

// weight is about how many bytes an entry takes, by which reads are billed.
func weight(m chat.Message) int { return envelope + len(m.Text) + len(m.Data) }
