package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"inorder/shared/chat"
)

// inboxItem is one user's view of one conversation.
type inboxItem struct {
	UserID         string `json:"userId"`
	ConversationID string `json:"conversationId"`
	Peer           string `json:"peer,omitempty"` // of a single conversation: the other user, or oneself
	ReadSeq        int64  `json:"readSeq"`
	DeliveredSeq   int64  `json:"deliveredSeq"`
	ClearedSeq     int64  `json:"clearedSeq"`
	JoinSeq        int64  `json:"joinSeq"`           // the first seq this user may read
	LeftSeq        int64  `json:"leftSeq,omitempty"` // the last one, for a former member

	LeftHead *chat.Conversation `json:"leftHead,omitempty"` // the head as it was then
	Past     []chat.Range       `json:"past,omitempty"`     // what a member who came back may read from before
}

// syncHeadKey is the sort key of a user's sync head among the user's inbox
// lines. It sorts before every conversation id.
const syncHeadKey = "#"

// maxRecent is how many conversations a sync head lists. With ids of up to 45
// bytes the item stays below 1 KB, so that raising it costs one write unit.
// What is evicted goes down to half, so that one raise in eight evicts.
const (
	maxRecent  = 16
	keepRecent = maxRecent / 2

	// maxRaise keeps an expression far below DynamoDB's 4 KB and 300 operators.
	maxRaise = 50
)

// syncHead is the number a user's devices follow to learn which conversations
// changed. V goes up with each change; At holds V as of each recent
// conversation's last change; what was evicted from At changed at Floor or
// before.
//
// Large lists the user's conversations above chat.InboxGroupMax members. Their
// messages raise nothing; their heads are read whenever a device asks.
type syncHead struct {
	V     int64            `json:"v"`
	Floor int64            `json:"floor"`
	At    map[string]int64 `json:"at"`
	Large []string         `json:"large"`
}

// Raise notes in the user's sync head that these conversations changed, and
// gives the cursor that stands for it. It is one write; repeating it only makes
// a device look twice.
func (s *Store) Raise(ctx context.Context, userID string, conversationIDs []string) (cursor int64, err error) {
	for chunk := range slices.Chunk(conversationIDs, maxRaise) {
		if cursor, err = s.raiseChunk(ctx, userID, chunk); err != nil {
			return 0, err
		}
	}
	return cursor, nil
}

func (s *Store) raiseChunk(ctx context.Context, userID string, conversationIDs []string) (int64, error) {
	for {
		head, err := s.raise(ctx, userID, conversationIDs)
		if errors.Is(err, errNoSyncHead) {
			if err := s.createSyncHead(ctx, userID); err != nil {
				return 0, err
			}
			continue
		}
		if err == nil && len(head.At) > maxRecent {
			err = s.evict(ctx, userID, head)
		}
		return head.V, err
	}
}

// Enlist notes that a conversation of the user has become a large one.
func (s *Store) Enlist(ctx context.Context, userID, conversationID string) error {
	return s.updateLarge(ctx, "ADD", userID, conversationID)
}

// Delist notes that a conversation of the user is no large one any more, or no
// longer the user's.
func (s *Store) Delist(ctx context.Context, userID, conversationID string) error {
	return s.updateLarge(ctx, "DELETE", userID, conversationID)
}

func (s *Store) updateLarge(ctx context.Context, verb, userID, conversationID string) error {
	_, err := s.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                 &s.tables.Inboxes,
		Key:                       inboxKey(userID, syncHeadKey),
		UpdateExpression:          aws.String(verb + " #large :c"),
		ExpressionAttributeNames:  map[string]string{"#large": "large"},
		ExpressionAttributeValues: item{":c": set(conversationID)},
	})
	if err != nil {
		return fmt.Errorf("updating the large conversations of %s: %w", userID, err)
	}
	return nil
}

var errNoSyncHead = errors.New("the user has no sync head yet")

func (s *Store) raise(ctx context.Context, userID string, conversationIDs []string) (syncHead, error) {
	sets := []string{"v = v + :one"}
	names := map[string]string{}
	for i, id := range conversationIDs {
		name := "#c" + strconv.Itoa(i)
		names[name] = id
		sets = append(sets, "#at."+name+" = v + :one") // v is the old value on every right-hand side
	}
	names["#at"] = "at"
	out, err := s.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                 &s.tables.Inboxes,
		Key:                       inboxKey(userID, syncHeadKey),
		UpdateExpression:          aws.String("SET " + strings.Join(sets, ", ")),
		ConditionExpression:       aws.String("attribute_exists(v)"),
		ExpressionAttributeNames:  names,
		ExpressionAttributeValues: item{":one": num(1)},
		ReturnValues:              types.ReturnValueAllNew,
	})
	if conditionFailed(err) {
		return syncHead{}, errNoSyncHead
	}
	if err != nil {
		return syncHead{}, fmt.Errorf("raising the sync head of %s: %w", userID, err)
	}
	var head syncHead
	return head, unmarshal(out.Attributes, &head)
}

func (s *Store) createSyncHead(ctx context.Context, userID string) error {
	_, err := s.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                &s.tables.Inboxes,
		Key:                      inboxKey(userID, syncHeadKey),
		UpdateExpression:         aws.String("SET v = :zero, #floor = :zero, #at = :none"),
		ConditionExpression:      aws.String("attribute_not_exists(v)"),
		ExpressionAttributeNames: map[string]string{"#floor": "floor", "#at": "at"},
		ExpressionAttributeValues: item{
			":zero": num(0), ":none": &types.AttributeValueMemberM{Value: item{}},
		},
	})
	if err != nil && !conditionFailed(err) { // else another has created it
		return fmt.Errorf("creating the sync head of %s: %w", userID, err)
	}
	return nil
}

// evict takes the conversations out of the sync head that changed longest ago
// and raises the floor to the last of those changes. If one of them changes
// meanwhile, nothing is evicted; a later raise tries again.
func (s *Store) evict(ctx context.Context, userID string, head syncHead) error {
	oldest := slices.SortedFunc(maps.Keys(head.At), func(a, b string) int {
		return cmp.Or(cmp.Compare(head.At[a], head.At[b]), cmp.Compare(a, b))
	})
	oldest = oldest[:len(oldest)-keepRecent]
	floor := head.At[oldest[len(oldest)-1]]
	names := map[string]string{"#floor": "floor", "#at": "at"}
	values := item{":floor": num(floor)}
	var removes, conditions []string
	for i, id := range oldest {
		n := strconv.Itoa(i)
		names["#c"+n] = id
		values[":v"+n] = num(head.At[id])
		removes = append(removes, "#at.#c"+n)
		conditions = append(conditions, "#at.#c"+n+" = :v"+n)
	}
	_, err := s.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                 &s.tables.Inboxes,
		Key:                       inboxKey(userID, syncHeadKey),
		UpdateExpression:          aws.String("SET #floor = :floor REMOVE " + strings.Join(removes, ", ")),
		ConditionExpression:       aws.String(strings.Join(conditions, " AND ")),
		ExpressionAttributeNames:  names,
		ExpressionAttributeValues: values,
	})
	if err != nil && !conditionFailed(err) { // else one of them has changed
		return fmt.Errorf("evicting from the sync head of %s: %w", userID, err)
	}
	return nil
}

// Line is one conversation in a user's list.
type Line struct {
	Conversation chat.Conversation
	Peer         string
	ReadSeq      int64
	DeliveredSeq int64
	ClearedSeq   int64
	LeftSeq      int64
	MaxSeq       int64         // the last seq this user may read
	Unread       int64         // from positions and the head's runs, never counted
	Last         *chat.Message // nil if cleared, expired or not visible yet
}

// Changed is what a user's device missed.
type Changed struct {
	Lines  []Line
	Heads  []chat.Conversation // of the user's large conversations, changed or not
	Cursor int64               // for the next call
	Full   bool                // Lines is the start of the whole list
	Next   string              // where the list goes on, "" if Lines is all
}

// Changes gives the conversations that changed after the cursor. For a device
// that has no cursor (0), or one too old to tell, it gives the first page of the
// whole list. The sync head is read before the lines, so a change in between is
// told twice rather than not.
func (s *Store) Changes(ctx context.Context, userID string, cursor int64, pageSize int) (Changed, error) {
	var head syncHead
	if _, err := s.get(ctx, s.tables.Inboxes, inboxKey(userID, syncHeadKey), &head); err != nil {
		return Changed{}, err
	}
	out := Changed{Cursor: head.V}
	var err error
	if out.Heads, err = s.readHeads(ctx, head.Large); err != nil {
		return Changed{}, err
	}
	// A cursor above V is not of this store: it was restored, or begun anew.
	if cursor <= 0 || cursor < head.Floor || cursor > head.V {
		out.Full = true
		out.Lines, out.Next, err = s.List(ctx, userID, "", pageSize)
		return out, err
	}
	var keys []item
	for _, id := range slices.Sorted(maps.Keys(head.At)) {
		if head.At[id] > cursor {
			keys = append(keys, inboxKey(userID, id))
		}
	}
	inboxes, err := s.batchGet(ctx, s.tables.Inboxes, keys, true)
	if err != nil {
		return Changed{}, fmt.Errorf("reading %d inbox lines of %s: %w", len(keys), userID, err)
	}
	out.Lines, err = s.lines(ctx, inboxes)
	return out, err
}

// readHeads reads heads by id, strongly consistent: a device takes a head's
// lastSeq for all there is. They come in no order.
func (s *Store) readHeads(ctx context.Context, conversationIDs []string) ([]chat.Conversation, error) {
	keys := make([]item, len(conversationIDs))
	for i, id := range conversationIDs {
		keys[i] = headKey(id)
	}
	items, err := s.batchGet(ctx, s.tables.Conversations, keys, true)
	if err != nil {
		return nil, fmt.Errorf("reading %d heads: %w", len(keys), err)
	}
	heads := make([]chat.Conversation, len(items))
	for i, in := range items {
		if err := unmarshal(in, &heads[i]); err != nil {
			return nil, err
		}
	}
	return heads, nil
}

// List gives the user's conversations by id, at most limit from the cursor on,
// and the cursor of the next page, "" after the last.
func (s *Store) List(ctx context.Context, userID, cursor string, limit int) (lines []Line, next string, err error) {
	items, next, err := s.inboxPage(ctx, userID, cursor, limit)
	if err != nil {
		return nil, "", err
	}
	lines, err = s.lines(ctx, items)
	if err != nil {
		return nil, "", err
	}
	return lines, next, nil
}

// inboxPage reads at most limit inbox items of a user from the cursor on, without
// the sync head, and gives the cursor of the next page, "" after the last.
func (s *Store) inboxPage(ctx context.Context, userID, cursor string, limit int) (items []item, next string, err error) {
	out, err := s.db.Query(ctx, &dynamodb.QueryInput{
		TableName:                 &s.tables.Inboxes,
		KeyConditionExpression:    aws.String("userId = :u AND conversationId > :c"),
		ExpressionAttributeValues: item{":u": str(userID), ":c": str(max(cursor, syncHeadKey))},
		ConsistentRead:            aws.Bool(true),
		Limit:                     aws.Int32(int32(limit)), //nolint:gosec // bounded by the callers
	})
	if err != nil {
		return nil, "", fmt.Errorf("reading the inbox of %s: %w", userID, err)
	}
	var last inboxItem
	err = unmarshal(out.LastEvaluatedKey, &last)
	return out.Items, last.ConversationID, err
}

// lines completes inbox items to lines, ordered by conversation id.
func (s *Store) lines(ctx context.Context, inboxes []item) ([]Line, error) {
	views, err := s.views(ctx, inboxes)
	if err != nil {
		return nil, err
	}
	last, err := s.lastMessages(ctx, views)
	if err != nil {
		return nil, err
	}
	lines := make([]Line, len(views))
	for i, v := range views {
		lines[i] = v.line()
		if m, ok := last[v.head.ConversationID]; ok {
			lines[i].Last = &m
		}
	}
	return lines, nil
}

// line gives the user's line of the conversation, without the last message.
func (v view) line() Line {
	line := Line{
		Conversation: v.head,
		Peer:         v.inbox.Peer,
		ReadSeq:      v.inbox.ReadSeq,
		DeliveredSeq: v.inbox.DeliveredSeq,
		ClearedSeq:   v.inbox.ClearedSeq,
		LeftSeq:      v.inbox.LeftSeq,
		MaxSeq:       v.committedMax(),
	}
	read := max(v.inbox.ReadSeq, v.inbox.ClearedSeq, v.inbox.JoinSeq-1)
	line.Unread = v.head.Unread(v.inbox.UserID, read, line.MaxSeq)
	return line
}

// views reads the heads that belong to inbox items, ordered by conversation id.
//
// For the reason that view gives, the head has to be read before the inbox, whose
// ids alone are known before the heads are. So a group's line is read once more;
// nobody leaves a conversation of another kind.
func (s *Store) views(ctx context.Context, inboxes []item) ([]view, error) {
	byID := make(map[string]inboxItem, len(inboxes))
	if err := addInboxes(byID, inboxes); err != nil {
		return nil, err
	}
	heads, err := s.readHeads(ctx, slices.Sorted(maps.Keys(byID)))
	if err != nil {
		return nil, err
	}
	var again []item
	for _, head := range heads {
		if line := byID[head.ConversationID]; head.Kind == chat.Group && line.LeftSeq == 0 {
			again = append(again, inboxKey(line.UserID, line.ConversationID))
		}
	}
	later, err := s.batchGet(ctx, s.tables.Inboxes, again, true)
	if err != nil {
		return nil, fmt.Errorf("reading %d inbox lines again: %w", len(again), err)
	}
	if err := addInboxes(byID, later); err != nil {
		return nil, err
	}
	views := make([]view, len(heads))
	for i, head := range heads {
		views[i] = viewOf(head, byID[head.ConversationID])
	}
	slices.SortFunc(views, func(a, b view) int {
		return cmp.Compare(a.head.ConversationID, b.head.ConversationID)
	})
	return views, nil
}

func addInboxes(byID map[string]inboxItem, items []item) error {
	for _, in := range items {
		var line inboxItem
		if err := unmarshal(in, &line); err != nil {
			return err
		}
		byID[line.ConversationID] = line
	}
	return nil
}

// lastMessages reads the message each view ends with, eventually consistent: it
// is for display only.
func (s *Store) lastMessages(ctx context.Context, views []view) (map[string]chat.Message, error) {
	var keys []item
	for _, v := range views {
		if seq := v.committedMax(); v.sees(seq) {
			keys = append(keys, messageKey(v.head.ConversationID, seq))
		}
	}
	found, err := s.batchGet(ctx, s.tables.Messages, keys, false)
	if err != nil {
		return nil, fmt.Errorf("reading %d last messages: %w", len(keys), err)
	}
	last := make(map[string]chat.Message, len(found))
	for _, in := range found {
		mi, err := unmarshalMessage(in)
		if err != nil {
			return nil, err
		}
		if !s.expired(mi) {
			last[mi.ConversationID] = mi.Message
		}
	}
	return last, nil
}
