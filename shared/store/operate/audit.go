package operate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// ViolationKind names what is wrong with the data of a conversation.
type ViolationKind string

// The kinds of violations.
const (
	HeadMissing      ViolationKind = "headMissing"      // there are messages or inbox lines, and no head
	HeadBehind       ViolationKind = "headBehind"       // the ledger has seqs above the head's
	HeadAhead        ViolationKind = "headAhead"        // the last messages are not there
	Hole             ViolationKind = "hole"             // messages between two others are not there
	DuplicateMessage ViolationKind = "duplicateMessage" // one messageId under two seqs
	DuplicateKey     ViolationKind = "duplicateKey"     // two messages of one idempotency key
	RecordMissing    ViolationKind = "recordMissing"    // a message without its idempotency record
	RecordMismatch   ViolationKind = "recordMismatch"   // the record is about another message
	PositionAhead    ViolationKind = "positionAhead"    // a position of an inbox line above the head
	MemberCountWrong ViolationKind = "memberCount"      // the head counts other than the roster has
	RosterWrong      ViolationKind = "roster"           // the head's hash is of other members than the roster has
	LineMissing      ViolationKind = "lineMissing"      // a member without an inbox line
	LineFormer       ViolationKind = "lineFormer"       // a member whose inbox line says it has left
	LineOrphaned     ViolationKind = "lineOrphaned"     // the inbox line of a member that the roster lacks
	LargeNotListed   ViolationKind = "largeNotListed"   // a member whose devices are not told of a large conversation
	LargeStale       ViolationKind = "largeStale"       // a user whose devices are told of a large conversation that is none of the user's
	SyncHeadWrong    ViolationKind = "syncHead"         // a sync head, or what lies beside it, that cannot be right
	EventTarget      ViolationKind = "eventTarget"      // a recall or edit whose message does not fit
	NotBlank         ViolationKind = "notBlank"         // a recalled message that still has content
	NotErased        ViolationKind = "notErased"        // content of a user from before the event of the user's erasure
	ItemDamaged      ViolationKind = "item"             // an item that cannot be read
)

// remedies say what an operator does about each kind.
var remedies = map[ViolationKind]string{
	HeadMissing:      "restore the head from a backup of the Conversations table; nobody can read or write the conversation until then",
	HeadBehind:       "raise the head, by go run ./infra/admin repair with this conversationId; nothing can be sent to it until then",
	HeadAhead:        "restore the messages from a backup of the Messages table; without one, devices are told that they are gone",
	Hole:             "restore the messages from a backup of the Messages table; without one, devices are told that they are gone",
	DuplicateMessage: "keep the one its idempotency record names and delete the other",
	DuplicateKey:     "keep the one its idempotency record names and recall or delete the other",
	RecordMissing:    "put the record back from a backup of the Idempotency table; until then a late retry would send the message again",
	RecordMismatch:   "look at both with the admin tool; a late retry is answered with what the record says",
	PositionAhead:    "lower the position to the head's lastSeq; until then the user is told too few unread messages",
	MemberCountWrong: "set memberCount to the number of roster items",
	RosterWrong:      "compare the roster with the events about members; once it is right, set rosterHash to its hash, or remove hashedVersion",
	LineMissing:      "remove the member and add it again, or restore the line from a backup of the Inboxes table",
	LineFormer:       "remove leftSeq, leftHead and leftAt from the line, or delete the roster item, by what the last event about this user says",
	LineOrphaned:     "put the roster item back, or set leftSeq in the line, by what the last event about this user says",
	LargeNotListed:   "list it, by go run ./infra/admin repair with this conversationId; until then the member's devices learn of messages there by pushes only",
	LargeStale:       "take it off, by go run ./infra/admin repair with this conversationId and -user with this userId; until then the user's devices are told how far it has come",
	SyncHeadWrong:    "delete the item; the user's devices then read their whole list once",
	EventTarget:      "restore both messages from a backup of the Messages table, or make the message what the event says",
	NotBlank:         "remove text and data of the message",
	NotErased:        "run the operator's tool again, with erase-user and this user; it broke off",
	ItemDamaged:      "restore the item from a backup of its table; it is left out of lists and pages until then",
}

// Violation is one thing that is wrong, confirmed by a serialisable reading.
type Violation struct {
	ConversationID chat.ConversationID `json:"conversationId"`
	Kind           ViolationKind       `json:"kind"`
	Seq            int64               `json:"seq,omitempty"`
	ToSeq          int64               `json:"toSeq,omitempty"` // of a range that begins with Seq
	UserID         string              `json:"userId,omitempty"`
	Expected       string              `json:"expected"`
	Found          string              `json:"found"`
	Remedy         string              `json:"remedy"`
}

// AuditReport is what an audit looked at and what it found.
type AuditReport struct {
	Conversations int                   `json:"conversations"`
	Messages      int64                 `json:"messages"`
	Lines         int64                 `json:"lines"` // roster items and inbox lines
	Violations    []Violation           `json:"violations"`
	Counts        map[ViolationKind]int `json:"counts"`            // of all, by kind
	Omitted       int                   `json:"omitted,omitempty"` // violations counted and not listed: there are too many

	// Unfinished are conversations that were not looked at to their end: the time was up,
	// or they were written to all the time. Next is where AuditAll goes on; nil if it is
	// through.
	Unfinished []chat.ConversationID `json:"unfinished,omitempty"`
	Next       *AuditCursor          `json:"next,omitempty"`
}

// AuditCursor is a place in the tables: after a conversation or, with a userId,
// after an inbox line.
type AuditCursor struct {
	ConversationID chat.ConversationID `json:"conversationId,omitempty"`
	UserID         string              `json:"userId,omitempty"`
}

const (
	// auditPage is how many messages, roster items or lines are held at a time.
	// Query returns at most 1 MB whatever it is asked for.
	auditPage = 100

	// maxViolations bounds the report: 1,000 take about 500 KB.
	maxViolations = 1000

	// maxHole is how many seqs of one gap are looked up. Only the newest seqs of a
	// ledger can be in the middle of a transaction.
	maxHole = 1000

	// retentionAtLeast is the shortest retention there is; it may have been switched
	// off since. expirySlack is how far expiry times of neighbours are apart from
	// their order: senders' clocks differ, and DynamoDB deletes in no order.
	retentionAtLeast = 24 * time.Hour
	expirySlack      = time.Hour

	// eraseTime is how long after its event an erasure may still be blanking the
	// messages of that conversation.
	eraseTime = time.Hour

	// maxWriters is of how many users an audit notes where their content begins.
	maxWriters = 10_000

	// auditReserve is kept of the time to give the report.
	auditReserve = 5 * time.Second

	// lookAgain is for how long something is looked at again while transactions are at work
	// on it, which each take milliseconds.
	lookAgain = 3 * time.Second
	// maxRosterCounts is how often a roster is counted that does not fit its head.
	maxRosterCounts = 4
)

// audit is one run. What it holds does not grow with the ledgers.
//
// The product goes on writing meanwhile. So a conversation's head is read first,
// and only seqs up to its lastSeq are judged; and every other reading may be
// stale, or show a transaction half applied: what looks wrong is read again by
// TransactGetItems, which is serialisable, before it is reported.
type audit struct {
	*Operator
	report AuditReport
	seen   *seenIDs
	wrote  map[string]int64 // by sender: the first seq with content in the stretch of a ledger that is read
}

func (o *Operator) newAudit() *audit {
	return &audit{
		Operator: o, seen: &seenIDs{},
		report: AuditReport{Violations: []Violation{}, Counts: map[ViolationKind]int{}},
	}
}

// AuditConversation checks a whole conversation: head, ledger, idempotency
// records, roster and inbox lines. It errs with NotFound (*chat.Error) if there
// is none. A ledger that the context's deadline cuts off is in Unfinished.
func (o *Operator) AuditConversation(ctx context.Context, conversationID chat.ConversationID) (AuditReport, error) {
	a := o.newAudit()
	found, err := a.conversation(ctx, conversationID, everything)
	if err == nil && !found {
		err = chat.FieldErrorf(chat.CodeNotFound, "conversationId", "there is no conversation %s", conversationID)
	}
	return a.report, err
}

// AuditAll checks all conversations and all inbox lines. It ends before the
// context's deadline; Next then says where to go on.
func (o *Operator) AuditAll(ctx context.Context, after AuditCursor) (AuditReport, error) {
	a := o.newAudit()
	if after.UserID == "" {
		next, err := a.eachConversation(ctx, after.ConversationID)
		if err != nil || next != "" {
			if next != "" {
				a.report.Next = &AuditCursor{ConversationID: next}
			}
			return a.report, err
		}
		after = AuditCursor{}
	}
	next, err := a.eachLine(ctx, after)
	a.report.Next = next
	return a.report, err
}

// eachConversation returns the conversation after which the time was up, or "".
func (a *audit) eachConversation(ctx context.Context, after chat.ConversationID) (next chat.ConversationID, err error) {
	in := &dynamodb.ScanInput{
		TableName:            &a.db.Conversations,
		ProjectionExpression: aws.String("conversationId"),
		Limit:                aws.Int32(auditPage),
	}
	if after != "" {
		in.ExclusiveStartKey = table.HeadKey(after)
	}
	for first := true; ; {
		out, err := a.db.Scan(ctx, in)
		if err != nil {
			return "", fmt.Errorf("listing conversations: %w", err)
		}
		for _, id := range idsOf(out.Items) {
			if timeIsUp(ctx) && !first { // each call gets on
				return after, nil
			}
			if _, err := a.conversation(ctx, id, everything); err != nil {
				return "", err
			}
			after, first = id, false
		}
		if in.ExclusiveStartKey = out.LastEvaluatedKey; in.ExclusiveStartKey == nil {
			return "", nil
		}
	}
}

// eachLine checks all inbox lines against head and roster: those of users who
// neither are in a roster nor have written cannot be found by the conversation.
func (a *audit) eachLine(ctx context.Context, after AuditCursor) (*AuditCursor, error) {
	in := &dynamodb.ScanInput{TableName: &a.db.Inboxes, Limit: aws.Int32(auditPage)}
	if after.UserID != "" {
		in.ExclusiveStartKey = table.LineKey(after.UserID, cmp.Or(after.ConversationID, table.SyncHeadKey))
	}
	for first := true; ; first = false {
		if timeIsUp(ctx) && !first { // each call gets on
			return &after, nil
		}
		out, err := a.db.Scan(ctx, in)
		if err != nil {
			return nil, fmt.Errorf("listing inbox lines: %w", err)
		}
		if err := a.lines(ctx, out.Items); err != nil {
			return nil, err
		}
		if in.ExclusiveStartKey = out.LastEvaluatedKey; in.ExclusiveStartKey == nil {
			return nil, nil
		}
		if err := table.Unmarshal(out.LastEvaluatedKey, &after); err != nil {
			return nil, err
		}
	}
}

// AuditSample checks conversations picked at random until about so many messages
// were read, and some inbox lines. Of a large ledger it reads a random stretch.
func (o *Operator) AuditSample(ctx context.Context, messages int) (AuditReport, error) {
	a := o.newAudit()
	each := max(int64(messages)/5, auditPage)
	done := map[chat.ConversationID]bool{} // at most one for each message
	heads := sampler{db: o.db, table: o.db.Conversations, segments: firstSegments}
	for idle := 0; idle < idlePicks && len(done) < messages && a.report.Messages < int64(messages) && !timeIsUp(ctx); idle++ {
		items, err := heads.pick(ctx)
		if err != nil {
			return a.report, err
		}
		for _, id := range idsOf(items) {
			left := int64(messages) - a.report.Messages
			if done[id] || left <= 0 {
				continue
			}
			idle, done[id] = 0, true
			if _, err := a.conversation(ctx, id, min(each, left)); err != nil {
				return a.report, err
			}
		}
	}
	lines := sampler{db: o.db, table: o.db.Inboxes, segments: firstSegments}
	for range min(messages/auditPage, maxLinePicks) {
		items, err := lines.pick(ctx)
		if err == nil {
			err = a.lines(ctx, items)
		}
		if err != nil {
			return a.report, err
		}
	}
	return a.report, nil
}

// sampler picks items of a table at random: the first of a random segment of a Scan
// in many segments. DynamoDB divides by the hash of the partition key, so a
// segment's items have nothing else in common. The number of segments varies: with
// a fixed one, what is not among the first of its segment would never be picked.
type sampler struct {
	db       *table.DB
	table    string
	segments int32 // the most into which the table is divided: as many as leave few items in each
}

const (
	// firstSegments is where a sampler begins; Scan takes at most 1,000,000.
	firstSegments = 1 << 16
	// perPick bounds the items of one pick, so that a pick comes from one place only
	// in part.
	perPick = 10
	// idlePicks is after how many picks without anything new a sample ends: the
	// table is small and all of it was seen.
	idlePicks = 24
	// maxLinePicks bounds the inbox lines of one sample.
	maxLinePicks = 50
)

// pick returns some items, fewer than asked for or none if the table is empty. It
// halves the number of segments until one has something, and remembers that.
func (p *sampler) pick(ctx context.Context) ([]table.Item, error) {
	for {
		total := p.segments - rand.Int32N(max(1, p.segments/2)) //nolint:gosec // a sample is no secret
		out, err := p.db.Scan(ctx, &dynamodb.ScanInput{
			TableName:     &p.table,
			Limit:         aws.Int32(perPick),
			Segment:       aws.Int32(rand.Int32N(total)), //nolint:gosec // a sample is no secret
			TotalSegments: &total,
		})
		if err != nil {
			return nil, fmt.Errorf("sampling %s: %w", p.table, err)
		}
		if len(out.Items) > 0 || p.segments == 1 {
			rand.Shuffle(len(out.Items), func(i, j int) { //nolint:gosec // a sample is no secret
				out.Items[i], out.Items[j] = out.Items[j], out.Items[i]
			})
			return out.Items, nil
		}
		p.segments /= 2
	}
}

func idsOf(heads []table.Item) []chat.ConversationID {
	ids := make([]chat.ConversationID, 0, len(heads))
	for _, in := range heads {
		if id, ok := in["conversationId"].(*types.AttributeValueMemberS); ok {
			ids = append(ids, chat.ConversationID(id.Value))
		}
	}
	return ids
}

// timeIsUp reports whether what is left of the context's time is for the report.
func timeIsUp(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(deadline) < auditReserve
}

// add reports a violation, once.
func (a *audit) add(v Violation) {
	v.Remedy, v.Expected, v.Found = remedies[v.Kind], short(v.Expected), short(v.Found)
	if slices.Contains(a.report.Violations, v) {
		return
	}
	a.report.Counts[v.Kind]++
	if len(a.report.Violations) == maxViolations {
		a.report.Omitted++
		return
	}
	a.report.Violations = append(a.report.Violations, v)
}

// maxSaid is of how many bytes what was expected or found is: an attribute that somebody
// has put there may take 400 KB, and a thousand of them are in a report.
const maxSaid = 300

func short(said string) string {
	if len(said) <= maxSaid {
		return said
	}
	return strings.ToValidUTF8(said[:maxSaid], "") + "…"
}

// everything is a limit that no ledger reaches.
const everything = chat.MaxSeq

// conversation checks one conversation, at most limit messages of its ledger from
// a random one on. found is false if there is no trace of it.
//
// Where it meets an item that cannot be read, and that it does not go on without, it
// says so and ends.
func (a *audit) conversation(ctx context.Context, id chat.ConversationID, limit int64) (found bool, err error) {
	found, err = a.wholeConversation(ctx, id, limit)
	if err != nil {
		return true, a.leave(ctx, err, id)
	}
	return found, nil
}

// leave ends the looking at one conversation, and lets the audit go on with the others
// (G10): it met an item that is damaged, or is written to all the time, or the time is up,
// as in the middle of a crowd's roster. Any other error it returns.
func (a *audit) leave(ctx context.Context, err error, id chat.ConversationID) error {
	if store.Permanent(err) {
		return a.damaged(err, Violation{ConversationID: id})
	}
	if chat.CodeOf(err) == chat.CodeBusy || timeIsUp(ctx) {
		a.unfinished(id)
		return nil
	}
	return err
}

// unfinished takes down a conversation that was not looked at to its end.
func (a *audit) unfinished(id chat.ConversationID) {
	if len(a.report.Unfinished) < maxViolations && !slices.Contains(a.report.Unfinished, id) {
		a.report.Unfinished = append(a.report.Unfinished, id)
	}
}

// damaged reports an item that cannot be read, or has what DynamoDB does not take, such as
// an id that is too long for a key, and lets the audit go on. Any other error it gives
// back.
func (a *audit) damaged(err error, v Violation) error {
	if !store.Permanent(err) {
		return err
	}
	v.Kind, v.Expected, v.Found = ItemDamaged, "items that can be read", err.Error()
	a.add(v)
	return nil
}

func (a *audit) wholeConversation(ctx context.Context, id chat.ConversationID, limit int64) (found bool, err error) {
	var head chat.Conversation
	found, err = a.db.Get(ctx, a.db.Conversations, table.HeadKey(id), &head)
	if err != nil {
		return false, err
	}
	last, err := a.lastEntry(ctx, id)
	if err != nil {
		return false, err
	}
	if !found {
		return a.headless(ctx, id, last)
	}
	a.report.Conversations++
	if err := a.end(ctx, head, last); err != nil {
		return true, err
	}
	top := head.LastSeq // of what positions may say: one that is right is not to blame for the head
	if last != nil {
		top = max(top, last.Seq)
	}
	if err := a.roster(ctx, head, top); err != nil {
		return true, err
	}
	if last == nil {
		return true, nil
	}
	r := chat.Range{From: 1, To: min(head.LastSeq, last.Seq)}
	if r.To > limit {
		r.From = 1 + rand.Int64N(r.To-limit+1) //nolint:gosec // a sample is no secret
		r.To = r.From + limit - 1
	}
	return true, a.ledger(ctx, head, r, top)
}

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
			ConversationID: id, Kind: HeadMissing, Seq: last.Seq,
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
				ConversationID: id, Kind: HeadBehind, Seq: last.Seq,
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

// again reads items serialisably; nil for those that are not there.
func (a *audit) again(ctx context.Context, gets ...types.TransactGetItem) ([]table.Item, error) {
	looking, cancel := context.WithTimeout(ctx, lookAgain)
	defer cancel()
	out, err := a.db.TransactGet(looking, gets)
	if err != nil && looking.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", chat.Errorf(chat.CodeBusy, "they are written to all the time"), err)
	}
	if err != nil {
		return nil, fmt.Errorf("looking again at %d items: %w", len(gets), err)
	}
	items := make([]table.Item, len(gets))
	for i, r := range out.Responses {
		if len(r.Item) > 0 {
			items[i] = r.Item
		}
	}
	return items, nil
}

func getOf(table string, key table.Item) types.TransactGetItem {
	return types.TransactGetItem{Get: &types.Get{TableName: &table, Key: key}}
}

func (a *audit) getHead(id chat.ConversationID) types.TransactGetItem {
	return getOf(a.db.Conversations, table.HeadKey(id))
}

func (a *audit) getMessage(id chat.ConversationID, seq int64) types.TransactGetItem {
	return getOf(a.db.Messages, table.MessageKey(id, seq))
}

func (a *audit) getRecord(dedupeKey string) types.TransactGetItem {
	return getOf(a.db.Idempotency, table.Item{"dedupeKey": table.Str(dedupeKey)})
}

// peek reads items by key, eventually consistent, which costs half.
func (a *audit) peek(ctx context.Context, table string, keys []table.Item) ([]table.Item, error) {
	items, err := a.db.BatchGet(ctx, table, keys, false)
	if err != nil {
		return nil, fmt.Errorf("reading %d items of %s: %w", len(keys), table, err)
	}
	return items, nil
}

// ledger checks a stretch of a ledger. top is the highest seq there is.
func (a *audit) ledger(ctx context.Context, head chat.Conversation, r chat.Range, top int64) error {
	id := head.ConversationID
	var prev *table.Message
	var err error
	if r.From > 1 {
		if prev, err = a.entryNext(ctx, id, chat.Range{From: 0, To: r.From - 1}, table.Descending); err != nil {
			return err
		}
	}
	a.seen.reset()
	a.wrote = map[string]int64{}
	checked := map[string]bool{}
	for r.From <= r.To {
		if timeIsUp(ctx) {
			a.unfinished(id)
			return nil
		}
		out, err := a.db.QueryRange(ctx, id, r, table.Ascending, auditPage)
		if err != nil {
			return err
		}
		if len(out.Items) == 0 {
			break // the range ends in a gap
		}
		entries, last, err := a.page(ctx, head, r.From, prev, out.Items)
		if err != nil {
			return err
		}
		prev = last
		a.report.Messages += int64(len(entries))
		r.From = prev.Seq + 1
		if err := a.entries(ctx, entries); err != nil {
			return err
		}
		if err := a.speakers(ctx, head.ConversationID, entries, checked, top); err != nil {
			return err
		}
	}
	if r.From > r.To {
		return nil
	}
	next, err := a.entryNext(ctx, id, chat.Range{From: r.To + 1, To: chat.MaxSeq}, table.Ascending)
	if err != nil || next == nil {
		return err
	}
	return a.missing(ctx, head, prev, next, r)
}

// page reads messages from a seq on, and looks for gaps after prev and between them. Of a
// last one that is damaged it returns the seq.
func (a *audit) page(ctx context.Context, head chat.Conversation, from int64, prev *table.Message, items []table.Item) (entries []table.Message, last *table.Message, err error) {
	for _, in := range items {
		m, damage := table.UnmarshalMessage(in)
		seq, _ := table.SeqOf(in)
		if err := a.missing(ctx, head, prev, &m, between(from, prev, seq)); err != nil {
			return nil, nil, err
		}
		if damage == nil {
			entries = append(entries, m)
		} else {
			_ = a.damaged(damage, Violation{ConversationID: head.ConversationID, Seq: seq}) // which it is
			m.Seq = seq
		}
		prev = &m
	}
	return entries, prev, nil
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
			v := Violation{ConversationID: head.ConversationID, Kind: Hole, Seq: hole.From, ToSeq: hole.To, Found: "nothing"}
			if next == nil && hole.To == head.LastSeq {
				v.Kind = HeadAhead
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
