package operate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// listingTime is how long after a change of the roster the fan-out may still be on
// its way to list a conversation as large.
const listingTime = time.Hour

// listed checks that a large conversation is in the lists of these members, unless
// one of them has come just now: with that it may have become large.
func (a *audit) listed(ctx context.Context, head chat.Conversation, members []chat.Member) error {
	late := a.db.Now().Add(-listingTime).UnixMilli()
	if head.MemberCount <= chat.InboxGroupMax || slices.ContainsFunc(members, func(m chat.Member) bool { return m.JoinedAt > late }) {
		return nil
	}
	lists, err := a.db.LargeLists(ctx, userIDsOf(members), true)
	if err != nil {
		return err
	}
	a.report.Lines += int64(len(members))
	for _, m := range members {
		if list := lists[m.UserID]; !list.Over && !slices.Contains(list.IDs, head.ConversationID) {
			a.add(Violation{
				ConversationID: head.ConversationID, UserID: m.UserID, Kind: LargeNotListed,
				Expected: "the conversation in the item " + table.LargeKey, Found: fmt.Sprintf("%d others", len(list.IDs)),
			})
		}
	}
	return nil
}

// own checks an item that the store keeps for itself among a user's lines.
func (a *audit) own(line chat.Line, in table.Item) {
	wrong := ""
	switch line.ConversationID {
	case table.SyncHeadKey:
		wrong = wrongHead(in)
	case table.SecondKey:
		wrong = wrongSecond(in)
	case table.LargeKey:
		wrong = wrongLarge(in)
	}
	if wrong != "" {
		a.add(Violation{
			UserID: line.UserID, Kind: SyncHeadWrong, Expected: "a " + string(line.ConversationID) + " within its bounds", Found: wrong,
		})
	}
}

// wrongHead says what cannot be right about a sync head, "" for nothing. One that
// was written by an earlier version may be longer, and is made shorter by its next
// raise.
func wrongHead(in table.Item) string {
	var head table.SyncHead
	if err := table.Unmarshal(in, &head); err != nil {
		return err.Error()
	}
	for _, v := range slices.Concat(slices.Collect(maps.Values(head.At)), slices.Collect(maps.Values(head.Long))) {
		if v > head.V {
			return fmt.Sprintf("a change at %d, above v %d", v, head.V)
		}
	}
	if head.Floor > head.V || head.Base > head.V || head.V > chat.MaxSeq {
		return fmt.Sprintf("floor %d and base %d at v %d", head.Floor, head.Base, head.V)
	}
	return ""
}

func wrongSecond(in table.Item) string {
	var page table.SecondPage
	if err := table.Unmarshal(in, &page); err != nil {
		return err.Error()
	}
	if len(page.At) > table.MaxSecond {
		return fmt.Sprintf("%d conversations, of at most %d", len(page.At), table.MaxSecond)
	}
	return ""
}

func wrongLarge(in table.Item) string {
	var list table.LargeList
	if err := table.Unmarshal(in, &list); err != nil {
		return err.Error()
	}
	if len(list.IDs) > table.MaxLarge {
		return fmt.Sprintf("%d conversations, of at most %d", len(list.IDs), table.MaxLarge)
	}
	return ""
}

// Relist lists a conversation as large for those of its members for whom it is not
// yet, and raises their sync heads, as the fan-out does when someone joins. It
// returns for how many. A conversation that is not large is left as it is.
func (o *Operator) Relist(ctx context.Context, conversationID chat.ConversationID) (users int, err error) {
	var head chat.Conversation
	found, err := o.db.Get(ctx, o.db.Conversations, table.HeadKey(conversationID), &head)
	if err != nil || !found || head.MemberCount <= chat.InboxGroupMax {
		return 0, err
	}
	members, err := o.store.Roster(ctx, conversationID)
	if err != nil {
		return 0, err
	}
	lists, err := o.db.LargeLists(ctx, userIDsOf(members), true)
	if err != nil {
		return 0, err
	}
	for _, m := range members {
		if slices.Contains(lists[m.UserID].IDs, conversationID) {
			continue
		}
		if err := o.store.Enlist(ctx, m.UserID, conversationID); err != nil && !store.Permanent(err) {
			return users, err
		}
		if _, err := o.store.Raise(ctx, m.UserID, []chat.ConversationID{conversationID}); err != nil && !store.Permanent(err) {
			return users, err
		}
		users++
	}
	return users, nil
}
