package store

// Every change of a conversation is a message, and every message is written here:
//
//	look ──► base ──► change ──► transaction ──┬──► committed: its answer
//	 ▲                  ▲                      ├──► its record is there: the first answer
//	 │                  │                      ├──► never to be taken: refuse, or an error
//	 │                  └─────── at once ──────┤    only messages came between, or the head was remembered and stale
//	 └────────────────── pace.Wait ────────────┘    another was first, or DynamoDB put it off or did not answer
//
// A plain message whose head and sender are remembered begins at the change. Before it
// refuses, refuse asks whether an earlier request of this clientMsgId did the same. A
// message is given up as BUSY by how often it was tried, a change when its time is up.

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// write is one message on its way into the ledger.
type write struct {
	message     chat.Message // complete but for seq
	to          string       // the other user of a single conversation, "" if unknown
	fingerprint string       // of the request; commit computes it if it is ""

	// create says what to make if there is no such conversation; nil: nothing.
	create *creation

	counted bool // the group that is created counts for its creator's quota

	at     int64 // when this attempt is made, in ms: the message may have been received long before
	fullAt int64 // of the head that it leaves, in µs; 0 where nothing is counted

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
type changeFunc func(ctx context.Context, head chat.Conversation, self chat.Member) (changesFunc, error)

// changesFunc returns what a message changes whose seq is set, and may complete the
// message. It reads nothing and holds for every head with the same roster, so
// that a change that was outrun by a message is tried again without delay: a
// member who never stops sending could otherwise not be removed.
type changesFunc func(head chat.Conversation, m *chat.Message) (changes, error)

func nothingElse(chat.Conversation, *chat.Message) (changes, error) { return changes{}, nil }

// changes is what a message changes beside the ledger, in the same transaction.
type changes struct {
	items  []types.TransactWriteItem // further writes; one that fails by its condition makes the whole attempt anew
	roster bool                      // the roster changes, by those who join or leave or in its roles
	joined []chat.Member
	left   []chat.Member

	dissolved bool // by the leaving of the last member; what else changes the head, the event says itself

	original *table.Content // kept with the message: what it replaces, see table.Message
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

// roster returns the members whom the first message makes.
func (c *creation) roster(first chat.Message) []chat.Member {
	roster := make([]chat.Member, len(c.members))
	for i, m := range c.members {
		roster[i] = chat.Member{
			ConversationID: first.ConversationID, UserID: m.userID, Role: m.role, JoinSeq: 1, JoinedSeq: 1, JoinedAt: first.ServerTime,
		}
	}
	return roster
}

// commit tries the transaction until it is settled or the time is up. The
// idempotency record, not this process's memory, decides whether an attempt
// whose answer got lost was committed.
func (s *Store) commit(ctx context.Context, w write) (committed Committed, err error) {
	ctx, cancel := table.WithBudget(ctx)
	defer cancel()
	var so metric.Effort
	defer func() { committed.Effort = so }()
	if err := w.message.Validate(); err != nil {
		return Committed{}, err
	}
	if w.fingerprint == "" {
		if w.fingerprint, err = w.message.Fingerprint(); err != nil {
			return Committed{}, err
		}
	}
	at, known, err := s.remembered(w, &so)
	if err != nil {
		return Committed{}, err
	}
	read := false // whether the head was read for this attempt
	atOnce := 0   // attempts since then that did not wait
	lane := laneUse{open: w.batches()}
	for {
		if !known {
			if at, err = s.look(ctx, w); err != nil {
				return s.refuse(ctx, w, so.Attempts, err)
			}
			read, atOnce = true, 0
		}
		lane.remembered = known
		if committed, done, err := s.byLane(ctx, w, at, &so, &lane); done {
			return committed, err
		}
		result, err := s.attempt(ctx, w, &at)
		if err != nil {
			return s.refuse(ctx, w, so.Attempts, err)
		}
		result.countIn(&so)
		switch {
		case result.committed != nil:
			return *result.committed, nil
		case result.err != nil:
			return Committed{}, result.err
		case result.refusal != nil:
			return s.refuse(ctx, w, so.Attempts, result.refusal)
		case result.head != nil && w.message.Event != nil && at.sameRoster(*result.head) && atOnce < maxAtOnce:
			at.head, known = *result.head, true
			atOnce++
			continue
		case result.head != nil && !read:
			// What this process remembered was stale. The failed condition brought
			// the head as it is, so the next attempt needs no read and no wait.
			read = true
			if at, err = s.at(ctx, w, *result.head); err != nil {
				return s.refuse(ctx, w, so.Attempts, err)
			}
			continue
		}
		if err := s.wait(ctx, w, so, result); err != nil {
			return Committed{}, err
		}
		known, read = false, false
		lane.note(result)
	}
}

// wait waits until the next attempt, or says that there is none.
func (s *Store) wait(ctx context.Context, w write, so metric.Effort, result outcome) error {
	if w.message.Event == nil && w.inVain(so) {
		return crowded(w.message.ConversationID, so.Attempts, result.cause)
	}
	if err := s.db.Pace.Wait(ctx, so.Attempts, w.heft(), result.throttled); err != nil {
		return busy(w.message.ConversationID, so.Attempts, result.cause)
	}
	return nil
}

// remembered returns the head to write on without reading it first, if that is known.
func (s *Store) remembered(w write, so *metric.Effort) (at base, known bool, err error) {
	if so.Full, err = s.stillFull(w); err != nil || w.change != nil {
		return base{}, false, err
	}
	at.head, known = s.heads.trusted(w.message.ConversationID, w.message.SenderID)
	return at, known, nil
}

// attempt prepares the write for this base and tries it once. The error is a
// refusal, or a failure to read what the change needs.
func (s *Store) attempt(ctx context.Context, w write, at *base) (outcome, error) {
	if at.head.LastSeq >= chat.MaxSeq {
		return outcome{}, errFull()
	}
	if refused := s.meter(&w, at.head, alone); refused != nil {
		return *refused, nil
	}
	w.message.Seq, w.at = at.head.LastSeq+1, s.db.Now().UnixMilli()
	if w.change != nil && at.changes == nil {
		var err error
		at.changes, err = w.change(ctx, at.head, at.self)
		if errors.Is(err, errUnsettled) {
			return outcome{conflict: true, cause: err}, nil
		}
		if err != nil {
			return outcome{}, err
		}
	}
	var e changes
	if at.changes != nil {
		var err error
		if e, err = at.changes(at.head, &w.message); err != nil {
			return outcome{}, err
		}
	}
	return s.try(ctx, w, at.head, e), nil
}

// inVain reports whether there were as many transactions as a message is tried for.
func (w write) inVain(so metric.Effort) bool {
	most := maxConflicts
	if w.heft() > 1 {
		most = maxLargeConflicts
	}
	return so.Conflicts >= most || so.Throttles >= maxThrottles
}

// heft is how many times as long as others a message waits that is too large for the
// lane: what it tries in vain takes units of the partition, which are missed by all.
func (w write) heft() int {
	return max(1, (kilobytes(w.message)+maxIntent-1)/maxIntent)
}

// A message is given up as BUSY after so many transactions that others came before,
// some 0.6 s in a region, or that were put off, which is about a second: its sender waits
// at home better than in a function that is paid for and held. What changes a roster
// goes on for as long as there is time, else those who never stop sending could keep a
// member in.
const (
	maxConflicts      = 16
	maxLargeConflicts = 8 // about a second too, see heft
	maxThrottles      = 5
)

// maxAtOnce is how many attempts in a row a change is repeated without a wait.
// Messages wait: if all their senders did not, none would get on.
const maxAtOnce = 8

// base is where a message is written: the head, the sender's roster item where
// it was needed, and what the message changes there. A head with LastSeq 0 is to
// be created.
type base struct {
	head    chat.Conversation
	self    chat.Member
	changes changesFunc
}

// sameRoster reports whether only messages came between the base and this head.
func (p base) sameRoster(head chat.Conversation) bool {
	return p.head.LastSeq != 0 && p.head.MembersVersion == head.MembersVersion && p.head.State == head.State
}

// errUnsettled is how a change says that what it read does not fit the head: a
// transaction is being applied, or came in between. The whole attempt is made
// anew.
var errUnsettled = errors.New("the conversation is being changed right now")

// look reads the head and checks the sender's right to write.
func (s *Store) look(ctx context.Context, w write) (base, error) {
	if w.create != nil && w.create.head.Kind == chat.KindGroup {
		return base{head: w.create.head}, nil // its id is new
	}
	if w.readsSelf() || w.to == "" && !w.trusted && !s.heads.knows(w.message.ConversationID, w.message.SenderID) {
		return s.at(ctx, w, chat.Conversation{ConversationID: w.message.ConversationID}) // reads both
	}
	head, found, err := s.head(ctx, w.message.ConversationID)
	if err != nil {
		return base{}, err
	}
	if !found {
		switch {
		case w.create == nil && w.to != "":
			return base{}, errClosed("to", "a conversation with another user")
		case w.create == nil:
			return base{}, errNoConversation()
		}
		return base{head: w.create.head}, nil
	}
	return s.at(ctx, w, head)
}

// readsSelf reports whether the write needs the sender's roster item: what a
// change may do depends on the role.
func (w write) readsSelf() bool { return w.change != nil && w.to == "" && !w.trusted }

// at checks the sender's right at this version of the roster, or at a later one
// whose head it then returns.
func (s *Store) at(ctx context.Context, w write, head chat.Conversation) (base, error) {
	p := base{head: head}
	if w.trusted {
		return p, checkHead(head)
	}
	// The id of a single conversation is made of its two users, so who names
	// the other one is a member.
	if w.to == "" && (w.readsSelf() || !s.heads.member(head, w.message.SenderID)) {
		var err error
		if p, err = s.sender(ctx, w, head); err != nil {
			return base{}, err
		}
	}
	if err := checkHead(p.head); err != nil {
		return base{}, err
	}
	s.heads.admit(p.head, w.message.SenderID)
	switch {
	case p.head.Kind == chat.KindSystem:
		return base{}, chat.Errorf(chat.CodeForbidden, "a system conversation can be read, not written")
	case p.head.State != chat.StateActive && !w.anyState:
		return base{}, errDissolved()
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
func (s *Store) sender(ctx context.Context, w write, head chat.Conversation) (base, error) {
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
func (s *Store) headAndRoster(ctx context.Context, head chat.Conversation, userID string) (p base, found bool, err error) {
	if head.LastSeq == 0 {
		if head, found, err = s.head(ctx, head.ConversationID); err != nil || !found {
			return base{}, false, err
		}
	}
	roster, err := s.Roster(ctx, head.ConversationID)
	if err != nil || !head.Hashed() || !head.IsRoster(roster) {
		return base{}, false, err
	}
	s.heads.admitAll(head, roster)
	i := slices.IndexFunc(roster, func(m chat.Member) bool { return m.UserID == userID })
	if i < 0 {
		return base{}, false, nil
	}
	return base{head: head, self: roster[i]}, true, nil
}

// headAndSelf reads a head and a user's roster item of the same version.
//
// Reads one after the other would not do, however consistent each is: while the
// transaction of a removal is being applied, its head can be visible and the
// roster item still there (DynamoDB Developer Guide, "Isolation levels"). The
// removal's membersVersion would then pass for one at which the user was seen to
// be a member.
func (s *Store) headAndSelf(ctx context.Context, conversationID chat.ConversationID, userID string) (base, error) {
	out, err := s.db.TransactGet(ctx, []types.TransactGetItem{
		{Get: &types.Get{TableName: &s.db.Conversations, Key: table.HeadKey(conversationID)}},
		{Get: &types.Get{TableName: &s.db.Members, Key: table.MemberKey(conversationID, userID)}},
	})
	if err != nil {
		return base{}, fmt.Errorf("reading head and member of %s: %w", conversationID, err)
	}
	var p base
	if out.Responses[0].Item == nil || out.Responses[1].Item == nil {
		return base{}, errNoConversation()
	}
	if err := table.Unmarshal(out.Responses[0].Item, &p.head); err != nil {
		return base{}, err
	}
	s.heads.learn(p.head)
	err = table.Unmarshal(out.Responses[1].Item, &p.self)
	return p, err
}

// doneError is how a change says that there is nothing left to do: an earlier
// message did it.
type doneError struct{ committed Committed }

func (e *doneError) Error() string {
	return fmt.Sprintf("message %s did this already", e.committed.MessageID)
}

// refuse returns the refusal, unless this message was committed by an earlier
// request: then its sender gets that result, whatever has changed since.
//
// What is refused may be refused for what the earlier request did itself, seen
// while its transaction is being applied. A plain read may then not show the
// record yet; a serialisable one waits for it.
func (s *Store) refuse(ctx context.Context, w write, attempts int, refusal error) (Committed, error) {
	if done, ok := errors.AsType[*doneError](refusal); ok {
		// It may be this very message, whose first attempt's answer got lost.
		done.committed.Duplicate = done.committed.MessageID != w.message.MessageID
		return done.committed, nil
	}
	failed := func(err error) error {
		if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) || table.IsThrottle(err) {
			return busy(w.message.ConversationID, attempts, err)
		}
		return err
	}
	if _, isRefusal := errors.AsType[*chat.Error](refusal); !isRefusal {
		return Committed{}, failed(refusal)
	}
	out, err := s.db.TransactGet(ctx, []types.TransactGetItem{{Get: &types.Get{
		TableName: &s.db.Idempotency, Key: w.recordKey(),
	}}})
	if err != nil {
		return Committed{}, failed(fmt.Errorf("reading the idempotency record of %s: %w", w.message.ClientMsgID, err))
	}
	if out.Responses[0].Item == nil {
		return Committed{}, refusal
	}
	var record table.Record
	if err := table.Unmarshal(out.Responses[0].Item, &record); err != nil {
		return Committed{}, err
	}
	committed, err := w.first(record)
	if err != nil {
		return Committed{}, err
	}
	return *committed, nil
}

// outcome is what became of one transaction: exactly one of committed, err, refusal
// and "not yet" (none of them), which has a cause and perhaps the head as it is.
type outcome struct {
	committed *Committed
	err       error
	refusal   error // unless an earlier request did the same
	head      *chat.Conversation
	conflict  bool // another writer came before
	throttled bool
	full      int // 1 if the conversation takes no more, which err says
	cause     error
}

func (o outcome) countIn(so *metric.Effort) {
	so.Full = o.full
	if o.full > 0 {
		return // it was not even tried
	}
	so.Attempts++
	switch {
	case o.throttled:
		so.Throttles++
	case o.conflict:
		so.Conflicts++
	}
}

// first returns the result an idempotency record stands for, or a conflict if the
// record was made by other content.
func (w write) first(r table.Record) (*Committed, error) {
	if r.MessageID == "" {
		return nil, fmt.Errorf("the idempotency record of %s is empty", w.message.ClientMsgID)
	}
	if r.Fingerprint != w.fingerprint {
		return nil, &chat.Error{
			Code:    chat.CodeIdempotencyConflict,
			Field:   "clientMsgId",
			Message: "this clientMsgId was used for other content; a new message needs a new one",
			Details: map[string]any{"messageId": r.MessageID, "seq": r.Seq, "conversationId": r.ConversationID},
		}
	}
	return &Committed{Sent: chat.Sent{
		ConversationID: r.ConversationID,
		Seq:            r.Seq,
		MessageID:      r.MessageID,
		ServerTime:     r.ServerTime,
		Duplicate:      r.MessageID != w.message.MessageID,
	}}, nil
}

// recordKey is the key of the message's idempotency record.
func (w write) recordKey() table.Item {
	return table.Item{"dedupeKey": table.Str(chat.DedupeKey(w.message.SenderID, w.message.ClientMsgID))}
}
