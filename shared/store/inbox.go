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
type syncHead struct {
	V     int64            `json:"v"`
	Floor int64            `json:"floor"`
	At    map[string]int64 `json:"at"`
}

// Raise notes in the user's sync head that these conversations changed. It is
// one write; repeating it only makes a device look twice.
func (s *Store) Raise(ctx context.Context, userID string, conversationIDs []string) error {
	for chunk := range slices.Chunk(conversationIDs, maxRaise) {
		if err := s.raiseChunk(ctx, userID, chunk); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) raiseChunk(ctx context.Context, userID string, conversationIDs []string) error {
	for {
		head, err := s.raise(ctx, userID, conversationIDs)
		if errors.Is(err, errNoSyncHead) {
			if err := s.createSyncHead(ctx, userID); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		if len(head.At) > maxRecent {
			return s.evict(ctx, userID, head)
		}
		return nil
	}
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
	if _, absent := errors.AsType[*types.ConditionalCheckFailedException](err); absent {
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
	if _, exists := errors.AsType[*types.ConditionalCheckFailedException](err); err != nil && !exists {
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
	if _, changed := errors.AsType[*types.ConditionalCheckFailedException](err); err != nil && !changed {
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
	Unread       int64         // from positions, never counted
	Last         *chat.Message // nil if cleared, expired or not visible yet
}

// Changed is what a user's device missed.
type Changed struct {
	Lines  []Line
	Cursor int64 // for the next call
	Full   bool  // Lines is the start of the whole list, because the cursor was too old
	Next   string
}

// Changes gives the conversations that changed after the cursor, or the first
// page of the whole list when the cursor is too old to tell. The sync head is
// read before the lines, so a change in between is told twice rather than not.
func (s *Store) Changes(ctx context.Context, userID string, cursor int64, pageSize int) (Changed, error) {
	out, err := s.db.GetItem(ctx, &dynamodb.GetItemInput{
		TableName:      &s.tables.Inboxes,
		Key:            inboxKey(userID, syncHeadKey),
		ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return Changed{}, fmt.Errorf("reading the sync head of %s: %w", userID, err)
	}
	var head syncHead
	if out.Item != nil {
		if err := unmarshal(out.Item, &head); err != nil {
			return Changed{}, err
		}
	}
	// A cursor above V is not of this store: it was restored, or begun anew.
	if cursor < head.Floor || cursor > head.V {
		lines, next, err := s.List(ctx, userID, "", pageSize)
		return Changed{Lines: lines, Cursor: head.V, Full: true, Next: next}, err
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
	lines, err := s.lines(ctx, inboxes)
	return Changed{Lines: lines, Cursor: head.V}, err
}

// List gives the user's conversations by id, at most limit from the cursor on,
// and the cursor of the next page, "" after the last.
func (s *Store) List(ctx context.Context, userID, cursor string, limit int) (lines []Line, next string, err error) {
	out, err := s.db.Query(ctx, &dynamodb.QueryInput{
		TableName:                 &s.tables.Inboxes,
		KeyConditionExpression:    aws.String("userId = :u AND conversationId > :c"),
		ExpressionAttributeValues: item{":u": str(userID), ":c": str(max(cursor, syncHeadKey))},
		ConsistentRead:            aws.Bool(true),
		Limit:                     aws.Int32(int32(limit)), //nolint:gosec // bounded by the caller
	})
	if err != nil {
		return nil, "", fmt.Errorf("reading the inbox of %s: %w", userID, err)
	}
	lines, err = s.lines(ctx, out.Items)
	if err != nil {
		return nil, "", err
	}
	var last inboxItem
	if err := unmarshal(out.LastEvaluatedKey, &last); err != nil {
		return nil, "", err
	}
	return lines, last.ConversationID, nil
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
	lines := make([]Line, 0, len(views))
	for _, v := range views {
		line := Line{
			Conversation: v.head,
			Peer:         v.inbox.Peer,
			ReadSeq:      v.inbox.ReadSeq,
			DeliveredSeq: v.inbox.DeliveredSeq,
			ClearedSeq:   v.inbox.ClearedSeq,
			LeftSeq:      v.inbox.LeftSeq,
			MaxSeq:       v.committedMax(),
		}
		seen := max(v.inbox.ReadSeq, v.inbox.ClearedSeq, v.inbox.JoinSeq-1)
		line.Unread = max(0, line.MaxSeq-seen)
		if m, ok := last[v.head.ConversationID]; ok {
			line.Last = &m
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// views reads the heads that belong to inbox items. Heads are read strongly
// consistent: a device takes a head's lastSeq for all there is.
func (s *Store) views(ctx context.Context, inboxes []item) ([]view, error) {
	views := make([]view, len(inboxes))
	keys := make([]item, len(inboxes))
	for i, in := range inboxes {
		if err := unmarshal(in, &views[i].inbox); err != nil {
			return nil, err
		}
		keys[i] = headKey(views[i].inbox.ConversationID)
	}
	found, err := s.batchGet(ctx, s.tables.Conversations, keys, true)
	if err != nil {
		return nil, fmt.Errorf("reading %d heads: %w", len(keys), err)
	}
	heads := make(map[string]chat.Conversation, len(found))
	for _, in := range found {
		var head chat.Conversation
		if err := unmarshal(in, &head); err != nil {
			return nil, err
		}
		heads[head.ConversationID] = head
	}
	for i := range views {
		views[i].head = heads[views[i].inbox.ConversationID]
	}
	views = slices.DeleteFunc(views, func(v view) bool { return v.head.ConversationID == "" })
	slices.SortFunc(views, func(a, b view) int {
		return cmp.Compare(a.head.ConversationID, b.head.ConversationID)
	})
	return views, nil
}

// lastMessages reads the message each view ends with, eventually consistent: it
// is for display only.
func (s *Store) lastMessages(ctx context.Context, views []view) (map[string]chat.Message, error) {
	var keys []item
	for _, v := range views {
		if seq := v.committedMax(); seq >= max(v.inbox.JoinSeq, v.inbox.ClearedSeq+1) {
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
