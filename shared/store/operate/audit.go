package operate

import (
	"cmp"
	"context"
	"fmt"
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
	v.Kind, v.Expected, v.Found = ViolationItemDamaged, "items that can be read", err.Error()
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
