package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// FromStart is the cursor of a list's first page, where "" is no cursor.
const FromStart = table.SyncHeadKey

// Changed is what a user's device missed.
type Changed struct {
	// Lines changed after the cursor, the earliest change first; or, if Full, they
	// are the start of the whole list, the latest change first.
	Lines []Line

	Cursor      int64               // for the next call
	More        bool                // and that there is more to tell right now
	Heads       []chat.Conversation // of large conversations, those that the device does not know as they are
	HeadsCursor string              // for the next call

	Full bool
	Next string // where the whole list goes on, "" if Lines is all
}

// Changes returns the conversations that changed after the cursor, at most
// pageSize. For a device that has no cursor (0), or one too old to tell, it
// returns the first page of the whole list. headsCursor is that of an earlier
// answer, or "". The sync head is read before the lines, so a change in between
// is told twice rather than not. Hidden conversations are among them, in each case:
// it depends on the device whether it has to be told.
func (s *Store) Changes(ctx context.Context, userID string, cursor int64, headsCursor string, pageSize int) (Changed, error) {
	head, large, err := s.readSyncHead(ctx, userID)
	if err != nil {
		return Changed{}, err
	}
	changed, floor := maps.Clone(head.At), head.Base
	if changed == nil {
		changed = map[chat.ConversationID]int64{}
	}
	maps.Copy(changed, head.Long)
	if cursor < head.Floor {
		page, err := s.readSecond(ctx, userID)
		switch {
		case errors.Is(err, table.ErrDamaged): // it tells nothing: the whole list does
			s.db.Damaged(ctx, s.db.Inboxes, table.LineKey(userID, table.SecondKey), err)
			page.Floor = head.V + 1
		case err != nil:
			return Changed{}, err
		}
		for id, v := range page.At {
			changed[id] = max(changed[id], v)
		}
		floor = max(floor, page.Floor)
	}
	if large.Over && len(large.IDs) <= maxRelisted { // for the next time
		if err := s.relist(ctx, userID, large); err != nil {
			s.db.Log.WarnContext(ctx, "a list that is too long stays so", "err", err)
		}
	}
	// A cursor above V is not of this store: it was restored, or begun anew.
	if cursor <= 0 || cursor < floor || cursor > head.V || large.Over {
		return s.everything(ctx, userID, head.V, changed, pageSize)
	}
	maps.DeleteFunc(changed, func(_ chat.ConversationID, v int64) bool { return v <= cursor })
	out, err := s.changedLines(ctx, userID, head.V, changed, pageSize)
	if err != nil {
		return Changed{}, err
	}
	heads, err := s.readHeads(ctx, large.IDs)
	if err != nil {
		return Changed{}, err
	}
	out.Heads, out.HeadsCursor = unseenHeads(heads, headsCursor)
	gone, err := s.gone(ctx, userID, out.Heads)
	if err != nil {
		return Changed{}, err
	}
	if len(gone) > 0 {
		heads = slices.DeleteFunc(heads, func(h chat.Conversation) bool { return gone[h.ConversationID] })
		out.Heads, out.HeadsCursor = unseenHeads(heads, headsCursor)
	}
	return out, nil
}

// readSyncHead reads the sync head and what lies beside it, in one request. A user
// who was told of nothing yet has neither.
func (s *Store) readSyncHead(ctx context.Context, userID string) (head table.SyncHead, large table.LargeList, err error) {
	out, err := s.db.Query(ctx, &dynamodb.QueryInput{
		TableName:                 &s.db.Inboxes,
		KeyConditionExpression:    aws.String("userId = :u AND conversationId BETWEEN :head AND :large"),
		ExpressionAttributeValues: table.Item{":u": table.Str(userID), ":head": table.Str(table.SyncHeadKey), ":large": table.Str(table.LargeKey)},
		ConsistentRead:            aws.Bool(true),
	})
	if err != nil {
		return head, large, fmt.Errorf("reading the sync head of %s: %w", userID, err)
	}
	for _, in := range out.Items {
		var into any = &large
		if id, ok := in["conversationId"].(*types.AttributeValueMemberS); ok && id.Value == table.SyncHeadKey {
			into = &head
		}
		if damage := table.Unmarshal(in, into); damage != nil { // it tells nothing: the whole list does
			s.db.Damaged(ctx, s.db.Inboxes, in, damage)
			return table.SyncHead{}, table.LargeList{}, nil
		}
	}
	return head, large, nil
}

// listedFor is for how long after a removal the fan-out may take, which it may have set
// aside, until the conversation is off the list of who was removed.
const listedFor = time.Hour

// gone returns those of the heads on a user's list that the user was removed from: by them
// one would hear of what was written since.
func (s *Store) gone(ctx context.Context, userID string, heads []chat.Conversation) (map[chat.ConversationID]bool, error) {
	var doubtful []table.Item
	for _, head := range heads {
		if head.RemovedAt != 0 && s.db.Now().Sub(time.UnixMilli(head.RemovedAt)) < listedFor {
			doubtful = append(doubtful, table.LineKey(userID, head.ConversationID))
		}
	}
	lines, gone := map[chat.ConversationID]chat.Line{}, map[chat.ConversationID]bool{}
	err := s.linesNow(ctx, doubtful, func(in table.Item) error {
		s.addInboxes(ctx, lines, []table.Item{in})
		return nil
	})
	for id, line := range lines {
		if line.LeftSeq != 0 {
			gone[id] = true
		}
	}
	return gone, err
}

// changedLines reads the lines of the conversations that changed first, about
// pageSize of them: what changed together is told together.
func (s *Store) changedLines(ctx context.Context, userID string, v int64, changed map[chat.ConversationID]int64, pageSize int) (Changed, error) {
	ids := byChange(changed)
	out := Changed{Cursor: v}
	if len(ids) > pageSize {
		n := pageSize
		for n < len(ids) && changed[ids[n]] == changed[ids[n-1]] {
			n++
		}
		out.More = n < len(ids)
		ids = ids[:n]
		if out.More {
			out.Cursor = changed[ids[n-1]]
		}
	}
	var err error
	if out.Lines, err = s.linesOf(ctx, userID, ids, changed); err != nil {
		return Changed{}, err
	}
	return out, nil
}

// linesOf reads the user's lines of these conversations, in this order.
func (s *Store) linesOf(ctx context.Context, userID string, ids []chat.ConversationID, changed map[chat.ConversationID]int64) ([]Line, error) {
	keys := make([]table.Item, len(ids))
	at := make(map[chat.ConversationID]int, len(ids))
	for i, id := range ids {
		keys[i], at[id] = table.LineKey(userID, id), i
	}
	inboxes, err := s.db.BatchGet(ctx, s.db.Inboxes, keys, true)
	if err != nil {
		return nil, fmt.Errorf("reading %d inbox lines of %s: %w", len(keys), userID, err)
	}
	lines, err := s.lines(ctx, inboxes)
	if err != nil {
		return nil, err
	}
	for i := range lines {
		lines[i].ChangedAt = changed[lines[i].Head.ConversationID]
	}
	slices.SortFunc(lines, func(a, b Line) int {
		return at[a.Head.ConversationID] - at[b.Head.ConversationID]
	})
	return lines, nil
}

// everything begins the whole list: with the conversations that changed last, if
// any are known, and then from the start, where those come again.
func (s *Store) everything(ctx context.Context, userID string, v int64, recent map[chat.ConversationID]int64, pageSize int) (Changed, error) {
	out := Changed{Cursor: v, Full: true}
	items, next, err := s.db.LinePage(ctx, userID, "", pageSize)
	if err != nil {
		return Changed{}, err
	}
	if next == "" || len(recent) == 0 {
		out.Next = next
		if out.Lines, err = s.lines(ctx, items); err != nil {
			return Changed{}, err
		}
		return out, nil
	}
	ids := byChange(recent)
	slices.Reverse(ids)
	out.Next = FromStart
	if out.Lines, err = s.linesOf(ctx, userID, ids[:min(len(ids), pageSize)], nil); err != nil {
		return Changed{}, err
	}
	return out, nil
}
