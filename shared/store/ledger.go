package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/oklog/ulid/v2"

	"inorder/shared/chat"
	"inorder/shared/store/internal/table"
)

// Receipt says what a message became. Duplicate is true when an earlier request
// with the same clientMsgId had made it so. What the request took is told beside
// an error too.
type Receipt struct {
	ConversationID string
	Seq            int64
	MessageID      string
	ServerTime     int64 // ms
	Duplicate      bool
	Attempts       int // transactions this request took; 0 if it only read
	Conflicts      int // of these, those that another writer came before
	Throttles      int // of these, those that DynamoDB put off
}

// Append commits a message and gives it its seq. The message carries everything
// but seq, messageId, serverTime, version and status, which are made here.
//
// With to, the message goes to the single conversation of the sender and that
// user, which its first message creates, unless the Store is closed; without, to
// m.ConversationID.
//
// Append returns only after the commit, or with the first result if this
// (senderId, clientMsgId) was committed before, even where the sender has lost
// the right to send since. Errors the caller can show are of type *chat.Error:
// what Message.Validate refuses, NotFound for a conversation that does not exist
// or that the sender is no member of, Forbidden for a system conversation or to
// create one where the Store is closed, Dissolved, IdempotencyConflict, Limit in a
// conversation that has reached chat.MaxSeq, and Busy when contention outlasted the
// context's deadline (the message may then be committed or not, and the same
// clientMsgId finds out). Any other error is a fault.
func (s *Store) Append(ctx context.Context, m chat.Message, to string) (Receipt, error) {
	if to != "" {
		if err := chat.ValidateUserID("to", to); err != nil {
			return Receipt{}, err
		}
		m.ConversationID = chat.SingleID(m.SenderID, to)
	}
	m = s.stamp(m)
	w := write{message: m, to: to}
	if to != "" && !s.closed {
		w.create = singleOf(m.ConversationID, m.SenderID, to)
	}
	if m.ReplyTo != nil {
		w.change = s.replyTo(m)
	}
	return s.commit(ctx, w)
}

// stamp gives a message what the server gives it, but for the seq.
func (s *Store) stamp(m chat.Message) chat.Message {
	now := s.db.Now()
	m.MessageID = ulid.MustNewDefault(now).String()
	m.ServerTime = now.UnixMilli()
	m.Version, m.Status = 1, chat.Normal
	return m
}

// replyTo checks that the message answered exists and that the sender sees it.
func (s *Store) replyTo(m chat.Message) changeFunc {
	return func(ctx context.Context, head chat.Conversation, _ chat.Member) (plan, error) {
		_, err := s.target(ctx, m.SenderID, head, m.ReplyTo.Seq, m.ReplyTo.MessageID, "replyTo")
		return nothingElse, err
	}
}

// write is one message on its way into the ledger.
type write struct {
	message     chat.Message // complete but for seq
	to          string       // the other user of a single conversation, "" if unknown
	fingerprint string       // of the request; commit computes it if it is ""

	// create says what to make if there is no such conversation; nil: nothing.
	create *creation

	counted bool // the group that is created counts for its creator's quota

	change changeFunc // nil for a plain message

	// trusted writes come from the product itself: no membership is asked for,
	// and system conversations are written by nothing else.
	trusted bool

	// anyState writes go into dissolved groups too.
	anyState bool
}

// changeFunc reads what a message is to change and refuses what the sender may
// not do. It sees the head and the sender's roster item that the transaction is
// conditional on.
type changeFunc func(ctx context.Context, head chat.Conversation, self chat.Member) (plan, error)

// plan gives the effect of a message whose seq is set, and may complete the
// message. It reads nothing and holds for every head with the same roster, so
// that a change that was outrun by a message is tried again without delay: a
// member who never stops sending could otherwise not be removed.
type plan func(head chat.Conversation, m *chat.Message) (effect, error)

func nothingElse(chat.Conversation, *chat.Message) (effect, error) { return effect{}, nil }

// effect is what a message changes beside the ledger, in the same transaction.
type effect struct {
	items  []types.TransactWriteItem // further writes; one that fails by its condition makes the whole attempt anew
	roster bool                      // the roster changes, by those who join or leave or in its roles
	joined []chat.Member
	left   []chat.Member
	state  chat.State // the head's new state, "" as it is
	title  string     // the head's new title, "" as it is
	owner  string     // the head's new owner, "" as it is

	original *table.Content // kept with the message: what it replaces, see messageItem
}

// creation is a conversation about to be made by its first message.
type creation struct {
	head    chat.Conversation
	members []newMember
}

type newMember struct {
	userID string
	role   chat.Role
	peer   string // of a single conversation
}

// roster gives the members whom the first message makes.
func (c *creation) roster(first chat.Message) []chat.Member {
	roster := make([]chat.Member, len(c.members))
	for i, m := range c.members {
		roster[i] = chat.Member{
			ConversationID: first.ConversationID, UserID: m.userID, Role: m.role, JoinSeq: 1, JoinedSeq: 1, JoinedAt: first.ServerTime,
		}
	}
	return roster
}

func singleOf(conversationID, userID, to string) *creation {
	c := &creation{
		head:    chat.Conversation{ConversationID: conversationID, Kind: chat.Single},
		members: []newMember{{userID: userID, role: chat.Plain, peer: to}},
	}
	if to != userID {
		c.members = append(c.members, newMember{userID: to, role: chat.Plain, peer: userID})
	}
	return c
}

// commit tries the transaction until it is settled or the time is up. The
// idempotency record, not this process's memory, decides whether an attempt
// whose answer got lost was committed.
func (s *Store) commit(ctx context.Context, w write) (receipt Receipt, err error) {
	ctx, cancel := table.WithReserve(ctx)
	defer cancel()
	var so tries
	defer func() {
		receipt.Attempts, receipt.Conflicts, receipt.Throttles = so.attempts, so.conflicts, so.throttles
	}()
	if err := w.message.Validate(); err != nil {
		return Receipt{}, err
	}
	if w.fingerprint == "" {
		if w.fingerprint, err = w.message.Fingerprint(); err != nil {
			return Receipt{}, err
		}
	}
	at, known := place{}, false
	if w.change == nil {
		at.head, known = s.heads.trusted(w.message.ConversationID, w.message.SenderID)
	}
	read := false // whether the head was read for this attempt
	atOnce := 0   // attempts since then that did not wait
	for {
		if !known {
			if at, err = s.look(ctx, w); err != nil {
				return s.refuse(ctx, w, so.attempts, err)
			}
			read, atOnce = true, 0
		}
		result, err := s.attempt(ctx, w, &at)
		if err != nil {
			return s.refuse(ctx, w, so.attempts, err)
		}
		so.count(result)
		switch {
		case result.receipt != nil:
			return *result.receipt, nil
		case result.err != nil:
			return Receipt{}, result.err
		case result.refusal != nil:
			return s.refuse(ctx, w, so.attempts, result.refusal)
		case result.head != nil && w.message.Event != nil && at.sameRoster(*result.head) && atOnce < maxAtOnce:
			at.head, known = *result.head, true
			atOnce++
			continue
		case result.head != nil && !read:
			// What this process remembered was stale. The failed condition brought
			// the head as it is, so the next attempt needs no read and no wait.
			read = true
			if at, err = s.at(ctx, w, *result.head); err != nil {
				return s.refuse(ctx, w, so.attempts, err)
			}
			continue
		}
		if w.message.Event == nil && so.inVain() {
			return Receipt{}, crowded(w.message.ConversationID, so.attempts, result.cause)
		}
		if err := s.db.Pace.Wait(ctx, so.attempts, result.throttled); err != nil {
			return Receipt{}, busy(w.message.ConversationID, so.attempts, result.cause)
		}
		known, read = false, false
	}
}

// attempt prepares the write for this place and tries it once. The error is a
// refusal, or a failure to read what the change needs.
func (s *Store) attempt(ctx context.Context, w write, at *place) (outcome, error) {
	if at.head.LastSeq >= chat.MaxSeq {
		return outcome{}, errFull()
	}
	w.message.Seq = at.head.LastSeq + 1
	if w.change != nil && at.plan == nil {
		var err error
		at.plan, err = w.change(ctx, at.head, at.self)
		if errors.Is(err, errUnsettled) {
			return outcome{conflict: true, cause: err}, nil
		}
		if err != nil {
			return outcome{}, err
		}
	}
	var e effect
	if at.plan != nil {
		var err error
		if e, err = at.plan(at.head, &w.message); err != nil {
			return outcome{}, err
		}
	}
	return s.try(ctx, w, at.head, e), nil
}

// tries are the transactions of one write so far.
type tries struct{ attempts, conflicts, throttles int }

func (t *tries) count(o outcome) {
	t.attempts++
	switch {
	case o.throttled:
		t.throttles++
	case o.conflict:
		t.conflicts++
	}
}

// inVain reports whether there were as many as a message is tried for.
func (t *tries) inVain() bool { return t.conflicts >= maxConflicts || t.throttles >= maxThrottles }

// A message is given up as BUSY after so many transactions that others came before,
// some 0.6 s in a region, or that were put off, which is about a second: its sender waits
// at home better than in a function that is paid for and held. What changes a roster
// goes on for as long as there is time, else those who never stop sending could keep a
// member in.
const (
	maxConflicts = 16
	maxThrottles = 5
)

// maxAtOnce is how many attempts in a row a change is repeated without a wait.
// Messages wait: if all their senders did not, none would get on.
const maxAtOnce = 8

// place is where a message is written: the head, the sender's roster item where
// it was needed, and what the message changes there. A head with LastSeq 0 is to
// be created.
type place struct {
	head chat.Conversation
	self chat.Member
	plan plan
}

// sameRoster reports whether only messages came between the place and this head.
func (p place) sameRoster(head chat.Conversation) bool {
	return p.head.LastSeq != 0 && p.head.MembersVersion == head.MembersVersion && p.head.State == head.State
}

// errUnsettled is how a change says that what it read does not fit the head: a
// transaction is being applied, or came in between. The whole attempt is made
// anew.
var errUnsettled = errors.New("the conversation is being changed right now")

// look reads the head and checks the sender's right to write.
func (s *Store) look(ctx context.Context, w write) (place, error) {
	if w.create != nil && w.create.head.Kind == chat.Group {
		return place{head: w.create.head}, nil // its id is new
	}
	if w.readsSelf() || w.to == "" && !w.trusted && !s.heads.knows(w.message.ConversationID, w.message.SenderID) {
		return s.at(ctx, w, chat.Conversation{ConversationID: w.message.ConversationID}) // reads both
	}
	head, found, err := s.head(ctx, w.message.ConversationID)
	if err != nil {
		return place{}, err
	}
	if !found {
		switch {
		case w.create == nil && w.to != "":
			return place{}, errClosed("to", "a conversation with another user")
		case w.create == nil:
			return place{}, errNoConversation()
		}
		return place{head: w.create.head}, nil
	}
	return s.at(ctx, w, head)
}

// head reads a conversation's head.
func (s *Store) head(ctx context.Context, conversationID string) (head chat.Conversation, found bool, err error) {
	found, err = s.db.Get(ctx, s.db.Conversations, table.HeadKey(conversationID), &head)
	if found {
		s.heads.learn(head)
	}
	return head, found, err
}

// readsSelf reports whether the write needs the sender's roster item: what a
// change may do depends on the role.
func (w write) readsSelf() bool { return w.change != nil && w.to == "" && !w.trusted }

// at checks the sender's right at this version of the roster, or at a later one
// whose head it then gives.
func (s *Store) at(ctx context.Context, w write, head chat.Conversation) (place, error) {
	p := place{head: head}
	if w.trusted {
		return p, checkHead(head)
	}
	// The id of a single conversation is made of its two users, so who names
	// the other one is a member.
	if w.to == "" && (w.readsSelf() || !s.heads.member(head, w.message.SenderID)) {
		var err error
		if p, err = s.sender(ctx, w, head); err != nil {
			return place{}, err
		}
	}
	if err := checkHead(p.head); err != nil {
		return place{}, err
	}
	s.heads.admit(p.head, w.message.SenderID)
	switch {
	case p.head.Kind == chat.System:
		return place{}, chat.Errorf(chat.Forbidden, "a system conversation can be read, not written")
	case p.head.State != chat.Active && !w.anyState:
		return place{}, errDissolved()
	}
	return p, nil
}

// checkHead refuses a head that no message can have left. To write on one would be
// to create the conversation again, which fails for ever.
func checkHead(head chat.Conversation) error {
	if head.LastSeq > 0 {
		return nil
	}
	return fmt.Errorf("the head of %s is damaged: its lastSeq is %d or missing; nothing can be sent to it until a repair raises it to its ledger",
		head.ConversationID, head.LastSeq)
}

// sender reads a head at which the sender is a member: with the sender's roster item,
// or, where many senders are not known, with the whole roster, after which all are.
func (s *Store) sender(ctx context.Context, w write, head chat.Conversation) (place, error) {
	if !w.readsSelf() && s.heads.paysForRoster(head.ConversationID) {
		p, found, err := s.headAndRoster(ctx, head, w.message.SenderID)
		if found || err != nil {
			return p, err
		}
	}
	return s.headAndSelf(ctx, head.ConversationID, w.message.SenderID)
}

// headAndRoster reads the roster of this head, which it reads too if its LastSeq is 0.
// found is false if what it read is not the head's roster for certain, or the user is
// not in it.
//
// A Query may show the members from before a change that the head has, or after one
// that it has not. Neither has the head's hash.
func (s *Store) headAndRoster(ctx context.Context, head chat.Conversation, userID string) (p place, found bool, err error) {
	if head.LastSeq == 0 {
		if head, found, err = s.head(ctx, head.ConversationID); err != nil || !found {
			return place{}, false, err
		}
	}
	roster, err := s.Roster(ctx, head.ConversationID)
	if err != nil || !head.Hashed() || !head.IsRoster(roster) {
		return place{}, false, err
	}
	s.heads.admitAll(head, roster)
	i := slices.IndexFunc(roster, func(m chat.Member) bool { return m.UserID == userID })
	if i < 0 {
		return place{}, false, nil
	}
	return place{head: head, self: roster[i]}, true, nil
}

// headAndSelf reads a head and a user's roster item of the same version.
//
// Reads one after the other would not do, however consistent each is: while the
// transaction of a removal is being applied, its head can be visible and the
// roster item still there (DynamoDB Developer Guide, "Isolation levels"). The
// removal's membersVersion would then pass for one at which the user was seen to
// be a member.
func (s *Store) headAndSelf(ctx context.Context, conversationID, userID string) (place, error) {
	out, err := s.db.TransactGet(ctx, []types.TransactGetItem{
		{Get: &types.Get{TableName: &s.db.Conversations, Key: table.HeadKey(conversationID)}},
		{Get: &types.Get{TableName: &s.db.Members, Key: table.MemberKey(conversationID, userID)}},
	})
	if err != nil {
		return place{}, fmt.Errorf("reading head and member of %s: %w", conversationID, err)
	}
	var p place
	if out.Responses[0].Item == nil || out.Responses[1].Item == nil {
		return place{}, errNoConversation()
	}
	if err := table.Unmarshal(out.Responses[0].Item, &p.head); err != nil {
		return place{}, err
	}
	s.heads.learn(p.head)
	return p, table.Unmarshal(out.Responses[1].Item, &p.self)
}

// settledError is how a change says that there is nothing left to do: an earlier
// message did it.
type settledError struct{ receipt Receipt }

func (e *settledError) Error() string {
	return fmt.Sprintf("message %s did this already", e.receipt.MessageID)
}

// refuse gives the refusal, unless this message was committed by an earlier
// request: then its sender gets that result, whatever has changed since.
//
// What is refused may be refused for what the earlier request did itself, seen
// while its transaction is being applied. A plain read may then not show the
// record yet; a serialisable one waits for it.
func (s *Store) refuse(ctx context.Context, w write, attempts int, refusal error) (Receipt, error) {
	if settled, ok := errors.AsType[*settledError](refusal); ok {
		// It may be this very message, whose first attempt's answer got lost.
		settled.receipt.Duplicate = settled.receipt.MessageID != w.message.MessageID
		return settled.receipt, nil
	}
	if _, isRefusal := errors.AsType[*chat.Error](refusal); !isRefusal {
		if ctx.Err() != nil || errors.Is(refusal, context.DeadlineExceeded) || table.IsThrottle(refusal) {
			return Receipt{}, busy(w.message.ConversationID, attempts, refusal)
		}
		return Receipt{}, refusal
	}
	out, err := s.db.TransactGet(ctx, []types.TransactGetItem{{Get: &types.Get{
		TableName: &s.db.Idempotency, Key: table.Item{"dedupeKey": table.Str(chat.DedupeKey(w.message.SenderID, w.message.ClientMsgID))},
	}}})
	if err != nil {
		return Receipt{}, fmt.Errorf("reading the idempotency record of %s: %w", w.message.ClientMsgID, err)
	}
	if out.Responses[0].Item == nil {
		return Receipt{}, refusal
	}
	var record table.Record
	if err := table.Unmarshal(out.Responses[0].Item, &record); err != nil {
		return Receipt{}, err
	}
	receipt, err := w.first(record)
	if err != nil {
		return Receipt{}, err
	}
	return *receipt, nil
}

// outcome is what became of one transaction: exactly one of receipt, err, refusal
// and "not yet" (none of them), which has a cause and perhaps the head as it is.
type outcome struct {
	receipt   *Receipt
	err       error
	refusal   error // unless an earlier request did the same
	head      *chat.Conversation
	conflict  bool // another writer came before
	throttled bool
	cause     error
}

// The transaction's items, in the order of its cancellation reasons. First
// messages and changes have more after them.
const (
	atHead = iota
	atMessage
	atRecord
)

// try runs the transaction once on the given head.
func (s *Store) try(ctx context.Context, w write, head chat.Conversation, e effect) outcome {
	items, err := s.transaction(w, head, e)
	if err != nil {
		return outcome{err: err}
	}
	ctx, cancel := context.WithTimeout(ctx, table.RequestTimeout)
	defer cancel()
	start := time.Now()
	_, err = s.db.TransactWriteItems(ctx, &dynamodb.TransactWriteItemsInput{TransactItems: items})
	if err == nil {
		s.db.Pace.Observe(time.Since(start))
		s.heads.wrote(w.headAfter(head, e), w.message.SenderID, len(e.left) > 0)
		return outcome{receipt: w.receipt()}
	}
	canceled, ok := errors.AsType[*types.TransactionCanceledException](err)
	if !ok {
		if !table.MayRetry(err) {
			return outcome{err: fmt.Errorf("writing message %s to %s: %w", w.message.MessageID, w.message.ConversationID, err)}
		}
		return outcome{throttled: table.IsThrottle(err), conflict: table.IsConflict(err), cause: err}
	}
	s.db.Pace.Observe(time.Since(start))
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
		receipt, err := w.first(record)
		return outcome{receipt: receipt, err: err}
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
		var head chat.Conversation
		if err := table.Unmarshal(reasons[atHead].Item, &head); err != nil {
			return outcome{err: err}
		}
		if head.ConversationID == "" {
			return outcome{err: errNoConversation()} // an operator deleted the head meanwhile
		}
		if err := checkHead(head); err != nil {
			return outcome{err: err}
		}
		s.heads.learn(head)
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

// transaction gives the items to write on the given head.
func (s *Store) transaction(w write, head chat.Conversation, e effect) ([]types.TransactWriteItem, error) {
	entry, err := table.MarshalMessage(w.message, e.original, s.expiry(w.message))
	if err != nil {
		return nil, err
	}
	record, err := table.Marshal(table.Record{
		DedupeKey:      chat.DedupeKey(w.message.SenderID, w.message.ClientMsgID),
		ConversationID: w.message.ConversationID,
		Seq:            w.message.Seq,
		MessageID:      w.message.MessageID,
		Fingerprint:    w.fingerprint,
		ServerTime:     w.message.ServerTime,
		ExpiresAt:      s.recordExpiry(w.message),
	})
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
	return append([]types.TransactWriteItem{
		atHead: first,
		atMessage: {Put: &types.Put{
			TableName:           &s.db.Messages,
			Item:                entry,
			ConditionExpression: aws.String("attribute_not_exists(conversationId)"),
		}},
		atRecord: {Put: &types.Put{
			TableName:                           &s.db.Idempotency,
			Item:                                record,
			ConditionExpression:                 aws.String("attribute_not_exists(dedupeKey)"),
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}},
	}, rest...), nil
}

// headWrite gives the write that hands out the seq.
func (s *Store) headWrite(w write, head chat.Conversation, e effect) (types.TransactWriteItem, error) {
	after := w.headAfter(head, e)
	if head.LastSeq == 0 {
		created, err := table.Marshal(after)
		return types.TransactWriteItem{Put: &types.Put{
			TableName:                           &s.db.Conversations,
			Item:                                created,
			ConditionExpression:                 aws.String("attribute_not_exists(conversationId)"),
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		}}, err
	}
	state := chat.Active
	if w.anyState {
		state = head.State
	}
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
	also("state", e.state != "", table.Str(string(after.State)))
	also("title", e.title != "", table.Str(after.Title))
	also("owner", e.owner != "", table.Str(after.Owner))
	also("largestEntry", after.LargestEntry != head.LargestEntry, table.Num(int64(after.LargestEntry)))
	return types.TransactWriteItem{Update: &types.Update{
		TableName:                           &s.db.Conversations,
		Key:                                 table.HeadKey(head.ConversationID),
		UpdateExpression:                    &set,
		ConditionExpression:                 aws.String("lastSeq = :prev AND membersVersion = :mv AND #state = :as"),
		ExpressionAttributeNames:            names,
		ExpressionAttributeValues:           values,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}, nil
}

// firstMembers gives the roster and inbox items of a new conversation.
func (s *Store) firstMembers(w write) ([]types.TransactWriteItem, error) {
	m := w.message
	writes := make([]types.TransactWriteItem, 0, 2*len(w.create.members))
	roster := w.create.roster(m)
	for i, nm := range w.create.members {
		member, err := table.Marshal(roster[i])
		if err != nil {
			return nil, err
		}
		line := table.Line{UserID: nm.userID, ConversationID: m.ConversationID, Peer: nm.peer, JoinSeq: 1}
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
func (w write) headAfter(head chat.Conversation, e effect) chat.Conversation {
	if head.LastSeq == 0 || head.LargestEntry != 0 { // else what was written earlier is not known
		head.LargestEntry = max(head.LargestEntry, weight(w.message))
	}
	if head.LastSeq == 0 {
		roster := w.create.roster(w.message)
		head.MembersVersion, head.HashedVersion = 1, 1
		head.MemberCount, head.RosterHash = len(roster), chat.RosterHash(roster)
		head.State = chat.Active
		head.CreatedAt = w.message.ServerTime
	}
	head.LastSeq = w.message.Seq
	head.Runs = head.Runs.With(w.message)
	head.UpdatedAt = w.message.ServerTime
	if e.roster {
		head = head.WithRoster(e.joined, e.left)
	}
	head.State = cmp.Or(e.state, head.State)
	head.Title = cmp.Or(e.title, head.Title)
	head.Owner = cmp.Or(e.owner, head.Owner)
	return head
}

// envelope is about what an entry takes beside its content.
const envelope = 512

// weight is about how many bytes an entry takes, by which reads are billed.
func weight(m chat.Message) int { return envelope + len(m.Text) + len(m.Data) }

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
func (w write) first(r table.Record) (*Receipt, error) {
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

func errDissolved() error { return chat.Errorf(chat.Dissolved, "the group is dissolved") }

func errNoConversation() error {
	return chat.FieldErrorf(chat.NotFound, "conversationId", "no such conversation, or you are no member of it")
}

// errFull refuses to write where no seq is left that every JSON reader keeps exact.
func errFull() error {
	return &chat.Error{
		Code: chat.Limit, Field: "conversationId", Details: map[string]any{"max": int64(chat.MaxSeq)},
		Message: fmt.Sprintf("this conversation has had %d messages, which is all it can have; go on in another", int64(chat.MaxSeq)),
	}
}

// errClosed refuses what creates a conversation. It is the same for every user
// named, whether there is such a user or not.
func errClosed(field, what string) error {
	return chat.FieldErrorf(chat.Forbidden, field, "here only the product opens %s, and it has not opened this one", what)
}

// crowded is busy for who may come again once some of the crowd is served, from half of
// crowdedPause to all of it later.
func crowded(conversationID string, attempts int, cause error) error {
	wait := crowdedPause/2 + rand.N(crowdedPause/2) //nolint:gosec // jitter is no secret
	return fmt.Errorf("%w (after %d transactions: %w)", chat.BusyFor(wait,
		"conversation %s takes no more at this moment; send again in %d ms with the same clientMsgId", conversationID, wait.Milliseconds()), attempts, cause)
}

const crowdedPause = time.Second

func busy(conversationID string, attempts int, cause error) error {
	return fmt.Errorf("%w (after %d transactions: %w)", chat.Errorf(chat.Busy,
		"conversation %s is busy; send again with the same clientMsgId", conversationID), attempts, cause)
}
