package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// The bounds of a sync head. Each raise pays for the whole item by the kilobyte,
// so it stays below one, whatever happens: beside at most 194 bytes of keys,
// names and numbers, it has 14 ids of up to 39 bytes, which all are but those of
// system conversations with long keys, and one of up to 128. An entry takes 9
// bytes more than its id.
const (
	maxRecent  = 14
	keepRecent = 6
	maxRaise   = maxRecent - keepRecent // conversations that one write raises

	shortID = 39
	maxLong = 1
)

// overgrown is more than any raise leaves behind.
const overgrown = 2 * maxRecent

// evictShare is which part of the caller's time a raise makes room for at most: of the
// fan-out's two seconds 200 ms, where it usually takes 12.
const evictShare = 10

// maxRaiseRounds is how often a raise makes room before it gives up what the
// sync head lists.
const maxRaiseRounds = 6

// needsRoom reports whether it is time to make room. Of several who raise at a time one
// sees this number; if that one fails, those who find no room make some.
func needsRoom(h table.SyncHead) bool { return len(h.At) == maxRecent-1 }

// oldestOf returns the entries of a map to evict: so many of those that changed
// longest ago that the next raise has room, and never more than one write takes.
func oldestOf(h table.SyncHead, field string) map[chat.ConversationID]int64 {
	if field == table.LongField {
		return firstOf(h.Long, maxRaise)
	}
	return firstOf(h.At, min(len(h.At)-keepRecent, maxRaise))
}

// firstOf returns the n entries with the smallest values.
func firstOf(entries map[chat.ConversationID]int64, n int) map[chat.ConversationID]int64 {
	first := map[chat.ConversationID]int64{}
	for _, id := range byChange(entries)[:max(0, min(n, len(entries)))] {
		first[id] = entries[id]
	}
	return first
}

// byChange sorts conversations by when they changed, the earliest first.
func byChange(entries map[chat.ConversationID]int64) []chat.ConversationID {
	return slices.SortedFunc(maps.Keys(entries), func(a, b chat.ConversationID) int {
		return cmp.Or(cmp.Compare(entries[a], entries[b]), cmp.Compare(a, b))
	})
}

// Raise notes in the user's sync head that these conversations changed, and
// returns the cursor that stands for it. It is one write; repeating it only makes
// a device look twice. An error for which Permanent holds comes back with every
// later raise of this user.
func (s *Store) Raise(ctx context.Context, userID string, conversationIDs []chat.ConversationID) (cursor int64, err error) {
	var short, long []chat.ConversationID
	for _, id := range conversationIDs {
		if len(id) > shortID {
			long = append(long, id)
		} else {
			short = append(short, id)
		}
	}
	for chunk := range slices.Chunk(short, maxRaise) {
		if cursor, err = s.raiseChunk(ctx, userID, table.AtField, chunk); err != nil {
			return 0, err
		}
	}
	for chunk := range slices.Chunk(long, maxLong) {
		if cursor, err = s.raiseChunk(ctx, userID, table.LongField, chunk); err != nil {
			return 0, err
		}
	}
	return cursor, nil
}

// raiseChunk raises as many conversations as the sync head has room for once it
// was emptied. Where others fill it faster than it is emptied, it is cleared:
// devices that ask then read the whole list once, and no raise waits longer.
func (s *Store) raiseChunk(ctx context.Context, userID, field string, conversationIDs []chat.ConversationID) (int64, error) {
	for round := range maxRaiseRounds {
		head, err := s.raise(ctx, userID, field, conversationIDs)
		switch {
		case err == nil && needsRoom(head):
			_ = s.evict(ctx, userID, field, head) // else the next raise will
			return head.V, nil
		case err == nil:
			return head.V, nil
		case errors.Is(err, errNoSyncHead):
			err = s.createSyncHead(ctx, userID)
		case errors.Is(err, errNoRoom) && len(head.At)+len(head.Long) > overgrown:
			return s.clearSyncHead(ctx, userID) // of an earlier version; to move all that would take as long as it took to grow
		case errors.Is(err, errNoRoom):
			if failed := s.evict(ctx, userID, field, head); errors.Is(failed, context.DeadlineExceeded) && ctx.Err() == nil {
				return s.clearSyncHead(ctx, userID)
			}
			// What fails here is tried again, and in the end not needed.
			err = table.Sleep(ctx, rand.N(time.Duration(round)*10*time.Millisecond+1)) //nolint:gosec // jitter is no secret
		}
		if err != nil {
			return 0, err
		}
	}
	return s.clearSyncHead(ctx, userID)
}

// Permanent reports whether an error comes back however often the same is tried:
// an item that is damaged, or a request that DynamoDB will never take.
func Permanent(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && api.ErrorCode() == "ValidationException" || errors.Is(err, table.ErrDamaged) || errors.Is(err, ErrLargeFull)
}

var (
	errNoSyncHead = errors.New("the user has no sync head yet")
	errNoRoom     = errors.New("the sync head is full")
)

// raise writes the conversations to one of the two maps of the sync head. With
// errNoRoom the head comes back as it is.
func (s *Store) raise(ctx context.Context, userID, field string, conversationIDs []chat.ConversationID) (table.SyncHead, error) {
	room := maxRecent - len(conversationIDs)
	if field == table.LongField {
		room = maxLong - len(conversationIDs)
	}
	sets, listed := []string{"v = v + :one"}, []string{}
	names := map[string]string{"#in": field}
	for i, id := range conversationIDs {
		entry := "#in.#c" + strconv.Itoa(i)
		names["#c"+strconv.Itoa(i)] = string(id)
		sets = append(sets, entry+" = v + :one") // v is the old value on every right-hand side
		listed = append(listed, "attribute_exists("+entry+")")
	}
	var head table.SyncHead
	out, err := s.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                           &s.db.Inboxes,
		Key:                                 table.LineKey(userID, table.SyncHeadKey),
		UpdateExpression:                    aws.String("SET " + strings.Join(sets, ", ")),
		ConditionExpression:                 aws.String("attribute_exists(#in) AND (size(#in) <= :room OR " + strings.Join(listed, " AND ") + ")"),
		ExpressionAttributeNames:            names,
		ExpressionAttributeValues:           table.Item{":one": table.Num(1), ":room": table.Num(int64(room))},
		ReturnValues:                        types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		if err := table.Unmarshal(failed.Item, &head); err != nil {
			return head, err
		}
		if failed.Item["v"] == nil {
			return head, errNoSyncHead
		}
		return head, errNoRoom
	}
	if err != nil {
		return head, fmt.Errorf("raising the sync head of %s: %w", userID, err)
	}
	err = table.Unmarshal(out.Attributes, &head)
	return head, err
}

func (s *Store) createSyncHead(ctx context.Context, userID string) error {
	none := &types.AttributeValueMemberM{Value: table.Item{}}
	_, err := s.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                 &s.db.Inboxes,
		Key:                       table.LineKey(userID, table.SyncHeadKey),
		UpdateExpression:          aws.String("SET v = :zero, #floor = :zero, #at = :none, #long = :none"),
		ConditionExpression:       aws.String("attribute_not_exists(v)"),
		ExpressionAttributeNames:  map[string]string{"#floor": "floor", "#at": "at", "#long": "long"},
		ExpressionAttributeValues: table.Item{":zero": table.Num(0), ":none": none},
	})
	if err != nil && !table.ConditionFailed(err) { // else another has created it
		return fmt.Errorf("creating the sync head of %s: %w", userID, err)
	}
	return nil
}

// clearSyncHead raises the sync head and forgets what it lists.
func (s *Store) clearSyncHead(ctx context.Context, userID string) (cursor int64, err error) {
	out, err := s.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:        &s.db.Inboxes,
		Key:              table.LineKey(userID, table.SyncHeadKey),
		UpdateExpression: aws.String("SET v = v + :one, #floor = v + :one, #base = v + :one, #at = :none, #long = :none"),
		ExpressionAttributeNames: map[string]string{
			"#floor": "floor", "#base": "base", "#at": "at", "#long": "long",
		},
		ExpressionAttributeValues: table.Item{":one": table.Num(1), ":none": &types.AttributeValueMemberM{Value: table.Item{}}},
		ReturnValues:              types.ReturnValueUpdatedNew,
	})
	if err != nil {
		return 0, fmt.Errorf("clearing the sync head of %s: %w", userID, err)
	}
	var head table.SyncHead
	err = table.Unmarshal(out.Attributes, &head)
	return head.V, err
}

// evict moves entries from the sync head to its second page. First they are
// written there, then taken out here, so that a reader who reads the sync head
// first finds them in one of the two. Where another evicts at this moment, or one
// of them changes, it leaves things as they are.
//
// It takes a part of the time only, see evictShare: the others of a batch wait for a
// raise, and a user whose reads have the partition throttle makes the read of the second
// page a matter of seconds.
func (s *Store) evict(ctx context.Context, userID, field string, head table.SyncHead) error {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/evictShare)
		defer cancel()
	}
	oldest := oldestOf(head, field)
	if len(oldest) == 0 {
		return nil
	}
	if done, err := s.addToSecond(ctx, userID, oldest); err != nil || !done {
		return err
	}
	floor := max(head.Floor, slices.Max(slices.Collect(maps.Values(oldest))))
	names := map[string]string{"#floor": "floor", "#in": field}
	values := table.Item{":was": table.Num(head.Floor), ":floor": table.Num(floor)}
	var removes []string
	conditions := []string{"#floor = :was"}
	for i, id := range byChange(oldest) {
		n := strconv.Itoa(i)
		names["#c"+n], values[":v"+n] = string(id), table.Num(oldest[id])
		removes = append(removes, "#in.#c"+n)
		conditions = append(conditions, "#in.#c"+n+" = :v"+n)
	}
	_, err := s.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                 &s.db.Inboxes,
		Key:                       table.LineKey(userID, table.SyncHeadKey),
		UpdateExpression:          aws.String("SET #floor = :floor REMOVE " + strings.Join(removes, ", ")),
		ConditionExpression:       aws.String(strings.Join(conditions, " AND ")),
		ExpressionAttributeNames:  names,
		ExpressionAttributeValues: values,
	})
	if err != nil && !table.ConditionFailed(err) {
		return fmt.Errorf("evicting from the sync head of %s: %w", userID, err)
	}
	return nil
}

// addToSecond writes evicted entries to the second page. What that has no room
// for, the longest ago first, raises its floor. done is false where
// another has written the page meanwhile.
func (s *Store) addToSecond(ctx context.Context, userID string, evicted map[chat.ConversationID]int64) (done bool, err error) {
	page, err := s.readSecond(ctx, userID)
	if err != nil {
		return false, err
	}
	was := page.Version
	page.UserID, page.ConversationID, page.Version = userID, table.SecondKey, was+1
	addEntries(&page, evicted)
	in, err := table.Marshal(page)
	if err != nil {
		return false, err
	}
	put := &dynamodb.PutItemInput{
		TableName: &s.db.Inboxes, Item: in, ConditionExpression: aws.String("attribute_not_exists(userId)"),
	}
	if was > 0 {
		put.ConditionExpression = aws.String("#version = :was")
		put.ExpressionAttributeNames = map[string]string{"#version": "version"}
		put.ExpressionAttributeValues = table.Item{":was": table.Num(was)}
	}
	if _, err = s.db.PutItem(ctx, put); table.ConditionFailed(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("writing the second page of %s: %w", userID, err)
	}
	return true, nil
}

func (s *Store) readSecond(ctx context.Context, userID string) (page table.SecondPage, err error) {
	_, err = s.db.Get(ctx, s.db.Inboxes, table.LineKey(userID, table.SecondKey), &page)
	return page, err
}

// addEntries adds entries and drops those that there is no room for.
func addEntries(p *table.SecondPage, entries map[chat.ConversationID]int64) {
	if p.At == nil {
		p.At = map[chat.ConversationID]int64{}
	}
	bytes := 0
	for id, v := range entries {
		p.At[id] = max(p.At[id], v)
	}
	for id := range p.At {
		bytes += len(id)
	}
	for _, id := range byChange(p.At) {
		if len(p.At) <= table.MaxSecond && bytes <= table.MaxSecondBytes {
			return
		}
		p.Floor = max(p.Floor, p.At[id])
		bytes -= len(id)
		delete(p.At, id)
	}
}
