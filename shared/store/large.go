package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
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

// ErrLargeFull says that a user's large conversations are too many to be listed.
// It does not go away by trying again, and nothing is lost by it: the user's
// devices get the whole list instead.
var ErrLargeFull = errors.New("the user is in too many large conversations")

// Enlist notes that a conversation of the user has become a large one. It returns
// ErrLargeFull where there is no room.
func (s *Store) Enlist(ctx context.Context, userID string, conversationID chat.ConversationID) error {
	_, err := s.db.UpdateItem(ctx, s.enlisting(userID, conversationID))
	if table.ConditionFailed(err) {
		over := s.updateLarge(userID, "SET #over = :true", conversationID)
		over.ConditionExpression = aws.String("attribute_not_exists(#over)") // once is enough
		over.ExpressionAttributeNames = map[string]string{"#over": "over"}
		over.ExpressionAttributeValues = table.Item{":true": &types.AttributeValueMemberBOOL{Value: true}}
		if _, err = s.db.UpdateItem(ctx, over); err == nil || table.ConditionFailed(err) {
			return fmt.Errorf("listing %s for %s: %w", conversationID, userID, ErrLargeFull)
		}
	}
	if err != nil {
		return fmt.Errorf("listing %s for %s: %w", conversationID, userID, err)
	}
	return nil
}

// enlisting adds to a user's list, if there is room.
func (s *Store) enlisting(userID string, conversationID chat.ConversationID) *dynamodb.UpdateItemInput {
	in := s.updateLarge(userID, "ADD ids :c", conversationID)
	in.ConditionExpression = aws.String("attribute_not_exists(ids) OR size(ids) < :max OR contains(ids, :id)")
	in.ExpressionAttributeValues[":max"], in.ExpressionAttributeValues[":id"] = table.Num(table.MaxLarge), table.Str(conversationID)
	return in
}

// Delist notes that a conversation of the user is no large one any more, or no
// longer the user's.
func (s *Store) Delist(ctx context.Context, userID string, conversationID chat.ConversationID) error {
	if _, err := s.db.UpdateItem(ctx, s.updateLarge(userID, "DELETE ids :c", conversationID)); err != nil {
		return fmt.Errorf("taking %s off the list of %s: %w", conversationID, userID, err)
	}
	return nil
}

const (
	// maxRelisted leaves room on a list that is made anew, or the next conversations
	// would make it too long again.
	maxRelisted = table.MaxLarge - largeSlack

	// relistTimeout is for how long a device waits for that, whose user may have any
	// number of conversations.
	relistTimeout = 2 * time.Second

	relistPage = 500
)

// relist makes anew the list of a user who was in too many large conversations, of which
// it has only some. If there are few enough by now it is right again; else that user's
// devices would read the whole list for ever. If there are not, it gets so many that this
// is not tried again before the user leaves one of them.
//
// What became large since the list was read changes it, and then this does nothing: it is
// not so long that what comes finds no room without a trace. What the user has left since
// then may have been taken off before it was on, and is taken off in the end.
func (s *Store) relist(ctx context.Context, userID string, was table.LargeList) error {
	ctx, cancel := context.WithTimeout(ctx, relistTimeout)
	defer cancel()
	large, err := s.largeOf(ctx, userID, maxRelisted+1)
	if err != nil {
		return err
	}
	in := &dynamodb.UpdateItemInput{
		TableName:                 &s.db.Inboxes,
		Key:                       table.LineKey(userID, table.LargeKey),
		UpdateExpression:          aws.String("REMOVE ids, #over"),
		ConditionExpression:       aws.String("attribute_not_exists(ids) AND #over = :true"),
		ExpressionAttributeNames:  map[string]string{"#over": "over"},
		ExpressionAttributeValues: table.Item{":true": &types.AttributeValueMemberBOOL{Value: true}},
	}
	if len(large) > 0 {
		in.UpdateExpression = aws.String("SET ids = :ids REMOVE #over")
		in.ExpressionAttributeValues[":ids"] = table.Set(large...)
	}
	if len(large) > maxRelisted {
		in.UpdateExpression = aws.String("SET ids = :ids")
	}
	if len(was.IDs) > 0 {
		in.ConditionExpression = aws.String("ids = :was AND #over = :true")
		in.ExpressionAttributeValues[":was"] = table.Set(was.IDs...)
	}
	if _, err := s.db.UpdateItem(ctx, in); table.ConditionFailed(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("listing the large conversations of %s anew: %w", userID, err)
	}
	keys := make([]table.Item, len(large))
	for i, id := range large {
		keys[i] = table.LineKey(userID, id)
	}
	return s.linesNow(ctx, keys, func(in table.Item) error {
		var line chat.Line
		if err := table.Unmarshal(in, &line); err != nil || line.LeftSeq == 0 {
			return err
		}
		return s.Delist(ctx, userID, line.ConversationID)
	})
}

// largeOf returns the large conversations that the user is in, the first so many of them.
func (s *Store) largeOf(ctx context.Context, userID string, most int) (large []chat.ConversationID, err error) {
	for cursor := ""; ; {
		items, next, err := s.db.LinePage(ctx, userID, cursor, relistPage)
		if err != nil {
			return nil, err
		}
		lines := map[chat.ConversationID]chat.Line{}
		s.addInboxes(ctx, lines, items)
		maps.DeleteFunc(lines, func(_ chat.ConversationID, line chat.Line) bool { return line.LeftSeq != 0 || line.Peer != "" })
		heads, err := s.readHeads(ctx, slices.Sorted(maps.Keys(lines)))
		if err != nil {
			return nil, err
		}
		for _, h := range heads {
			if h.MemberCount > chat.InboxGroupMax {
				large = append(large, h.ConversationID)
			}
		}
		if cursor = next; next == "" || len(large) >= most {
			return large[:min(len(large), most)], nil
		}
	}
}

func (s *Store) updateLarge(userID, update string, conversationID chat.ConversationID) *dynamodb.UpdateItemInput {
	return &dynamodb.UpdateItemInput{
		TableName:                 &s.db.Inboxes,
		Key:                       table.LineKey(userID, table.LargeKey),
		UpdateExpression:          &update,
		ExpressionAttributeValues: table.Item{":c": table.Set(conversationID)},
	}
}

// unseenHeads returns those of the heads that are not as the cursor has them, and
// the cursor of all. The cursor of an earlier answer stands for each head's
// lastSeq at that time, so a device is told of a head once.
//
// It is exact and needs no clock: the digest of the ids in order, then the lastSeq
// of each. One that is of other conversations, or none, tells of all heads.
func unseenHeads(heads []chat.Conversation, cursor string) (unseen []chat.Conversation, next string) {
	slices.SortFunc(heads, func(a, b chat.Conversation) int { return cmp.Compare(a.ConversationID, b.ConversationID) })
	digest := sha256.New()
	for _, h := range heads {
		digest.Write([]byte(chat.LengthPrefixed(string(h.ConversationID))))
	}
	all := digest.Sum(nil)[:8]
	seen := seqsOf(cursor, all)
	for i, h := range heads {
		if len(seen) != len(heads) || seen[i] != h.LastSeq {
			unseen = append(unseen, h)
		}
		all = binary.AppendVarint(all, h.LastSeq)
	}
	return unseen, base64.RawURLEncoding.EncodeToString(all)
}

// seqsOf reads the seqs of a cursor with this digest; there are none in any other.
func seqsOf(cursor string, digest []byte) (seqs []int64) {
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(raw) < len(digest) || !slices.Equal(raw[:len(digest)], digest) {
		return nil
	}
	for raw = raw[len(digest):]; len(raw) > 0; {
		seq, n := binary.Varint(raw)
		if n <= 0 {
			return nil
		}
		seqs, raw = append(seqs, seq), raw[n:]
	}
	return seqs
}
