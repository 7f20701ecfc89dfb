package operate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

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
				ConversationID: head.ConversationID, UserID: m.UserID, Kind: ViolationLargeNotListed,
				Expected: "the conversation in the item " + table.LargeKey, Found: fmt.Sprintf("%d others", len(list.IDs)),
			})
		}
	}
	return nil
}

// own checks an item that the store keeps for itself among a user's lines.
func (a *audit) own(ctx context.Context, line chat.Line, in table.Item) error {
	wrong, stale := "", false
	switch line.ConversationID {
	case table.SyncHeadKey:
		wrong = wrongHead(in)
	case table.SecondKey:
		wrong = wrongSecond(in)
	case table.LargeKey:
		wrong = wrongLarge(in)
		stale = wrong == ""
	}
	if wrong != "" {
		a.add(Violation{
			UserID: line.UserID, Kind: ViolationSyncHeadWrong, Expected: "a " + string(line.ConversationID) + " within its bounds", Found: wrong,
		})
	}
	if stale {
		return a.damaged(a.stale(ctx, line.UserID, in), Violation{UserID: line.UserID})
	}
	return nil
}

// stale looks for conversations in a list of large ones that should not be there.
func (a *audit) stale(ctx context.Context, userID string, in table.Item) error {
	var list table.LargeList
	if err := table.Unmarshal(in, &list); err != nil {
		return err
	}
	var headKeys, lineKeys []table.Item
	for _, id := range list.IDs {
		headKeys, lineKeys = append(headKeys, table.HeadKey(id)), append(lineKeys, table.LineKey(userID, id))
	}
	heads, err := a.peek(ctx, a.db.Conversations, headKeys)
	if err != nil {
		return err
	}
	lines, err := a.peek(ctx, a.db.Inboxes, lineKeys)
	if err != nil {
		return err
	}
	a.report.Lines += int64(len(lines))
	items := map[chat.ConversationID][2]table.Item{}
	for i, all := range [][]table.Item{heads, lines} {
		for _, in := range all {
			id := table.KeyOf(in).ConversationID
			pair := items[id]
			pair[i] = in
			items[id] = pair
		}
	}
	for _, id := range list.IDs {
		if staleSince(items[id][0], items[id][1]) < 0 {
			continue
		}
		out, err := a.again(ctx, a.getHead(id), getOf(a.db.Inboxes, table.LineKey(userID, id)), getOf(a.db.Inboxes, table.LineKey(userID, table.LargeKey)))
		if err != nil {
			err = a.leave(ctx, err, id)
		}
		if err != nil {
			return err
		}
		if out == nil {
			continue
		}
		var now table.LargeList
		if err := table.Unmarshal(out[2], &now); err != nil || !slices.Contains(now.IDs, id) {
			continue // taken off meanwhile
		}
		if since := staleSince(out[0], out[1]); since >= 0 && since < a.db.Now().Add(-listingTime).UnixMilli() {
			a.add(Violation{
				ConversationID: id, UserID: userID, Kind: ViolationLargeStale,
				Expected: "no conversation in the item " + table.LargeKey + " that is not large or not the user's", Found: "this one",
			})
		}
	}
	return nil
}

// staleSince says since when, in ms, a conversation should not be on the user's list of
// large ones: 0 for always, and -1 if it should, or one of the two is damaged.
func staleSince(head, line table.Item) int64 {
	var h chat.Conversation
	var l chat.Line
	switch {
	case head == nil || line == nil:
		return 0
	case table.Unmarshal(head, &h) != nil || table.Unmarshal(line, &l) != nil:
		return -1
	case l.LeftSeq != 0 && l.LeftHead != nil:
		return l.LeftHead.UpdatedAt
	case l.LeftSeq != 0 || h.MemberCount <= chat.InboxGroupMax:
		return h.RemovedAt
	}
	return -1
}

// ShouldUnlist reports whether a conversation is on a user's list of large ones and should
// not be.
func (o *Operator) ShouldUnlist(ctx context.Context, userID string, conversationID chat.ConversationID) (bool, error) {
	out, err := o.db.TransactGet(ctx, []types.TransactGetItem{
		getOf(o.db.Conversations, table.HeadKey(conversationID)), getOf(o.db.Inboxes, table.LineKey(userID, conversationID)),
	})
	if err != nil {
		return false, fmt.Errorf("looking at %s and what it is to %s: %w", conversationID, userID, err)
	}
	lists, err := o.db.LargeLists(ctx, []string{userID}, true)
	return slices.Contains(lists[userID].IDs, conversationID) && staleSince(out.Responses[0].Item, out.Responses[1].Item) >= 0, err
}

// Unlist takes such a conversation off the list.
func (o *Operator) Unlist(ctx context.Context, userID string, conversationID chat.ConversationID) (off bool, err error) {
	if off, err = o.ShouldUnlist(ctx, userID, conversationID); err != nil || !off {
		return false, err
	}
	if err := o.store.Delist(ctx, userID, conversationID); err != nil {
		return false, err
	}
	// The user may have come back at this moment.
	head, members, err := o.store.MembersAmong(ctx, conversationID, []string{userID})
	if err == nil && members[userID] && head.MemberCount > chat.InboxGroupMax {
		err = o.store.Enlist(ctx, userID, conversationID)
	}
	return true, err
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
	var listed []string
	for _, m := range members {
		if slices.Contains(lists[m.UserID].IDs, conversationID) {
			continue
		}
		listed = append(listed, m.UserID)
		if err := o.store.Enlist(ctx, m.UserID, conversationID); err != nil && !store.Permanent(err) {
			return users, err
		}
		if _, err := o.store.Raise(ctx, m.UserID, []chat.ConversationID{conversationID}); err != nil && !store.Permanent(err) {
			return users, err
		}
		users++
	}
	// Some of them may have left meanwhile.
	_, still, err := o.store.MembersAmong(ctx, conversationID, listed)
	for _, userID := range listed {
		if err == nil && !still[userID] {
			err = o.store.Delist(ctx, userID, conversationID)
		}
	}
	return users, err
}
