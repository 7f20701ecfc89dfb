package store

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// Line is one conversation in a user's list.
type Line struct {
	chat.View
	Last      *chat.Message // nil if cleared, expired or not visible yet
	ChangedAt int64         // the cursor that stands for it, in Changed
}

// readHeads reads heads by id, strongly consistent: a device takes a head's
// lastSeq for all there is. They come in no order; damaged ones are left out, and what is
// no id, which DynamoDB may refuse with all others.
func (s *Store) readHeads(ctx context.Context, conversationIDs []chat.ConversationID) ([]chat.Conversation, error) {
	keys := make([]table.Item, 0, len(conversationIDs))
	for _, id := range conversationIDs {
		if _, ok := id.Kind(); ok {
			keys = append(keys, table.HeadKey(id))
		}
	}
	items, err := s.db.BatchGet(ctx, s.db.Conversations, keys, true)
	if err != nil {
		return nil, fmt.Errorf("reading %d heads: %w", len(keys), err)
	}
	heads := make([]chat.Conversation, 0, len(items))
	for _, in := range items {
		head, err := unmarshalHead(in)
		if err != nil {
			s.db.Damaged(ctx, s.db.Conversations, in, err)
			continue
		}
		heads = append(heads, head)
	}
	return heads, nil
}

// unmarshalHead reads a head that is to stand in a list. It refuses what no frame,
// or no device, takes.
func unmarshalHead(in table.Item) (head chat.Conversation, err error) {
	if err := table.Unmarshal(in, &head); err != nil {
		return chat.Conversation{}, err
	}
	switch {
	case head.LastSeq < 0 || head.LastSeq > chat.MaxSeq:
		err = fmt.Errorf("lastSeq is %d", head.LastSeq)
	case len(head.Title) > utf8.UTFMax*chat.MaxTitleRunes || len(head.Owner) > chat.MaxUserIDBytes:
		err = fmt.Errorf("the title takes %d bytes, the owner %d", len(head.Title), len(head.Owner))
	}
	return head, err
}

// List returns the user's conversations by id, without those that are hidden: at most
// limit from the cursor on, and the cursor of the next page, "" after the last. A
// page may be empty and not the last.
func (s *Store) List(ctx context.Context, userID, cursor string, limit int) (lines []Line, next string, err error) {
	return s.list(ctx, userID, cursor, limit, false)
}

// ListAll is List with those that are hidden, for a device that may know them from
// before.
func (s *Store) ListAll(ctx context.Context, userID, cursor string, limit int) (lines []Line, next string, err error) {
	return s.list(ctx, userID, cursor, limit, true)
}

func (s *Store) list(ctx context.Context, userID, cursor string, limit int, all bool) (lines []Line, next string, err error) {
	items, next, err := s.db.ListPage(ctx, userID, cursor, limit, all)
	if err != nil {
		return nil, "", err
	}
	lines, err = s.lines(ctx, items)
	if err != nil {
		return nil, "", err
	}
	return lines, next, nil
}

// lines completes inbox items to lines, ordered by conversation id.
func (s *Store) lines(ctx context.Context, inboxes []table.Item) ([]Line, error) {
	views, err := s.views(ctx, inboxes)
	if err != nil {
		return nil, err
	}
	return s.listed(ctx, views)
}

// views reads the heads that belong to inbox items, ordered by conversation id.
//
// For the reason that view gives, the head has to be read before the inbox, whose
// ids alone are known before the heads are. So a group's line is read once more;
// nobody leaves a conversation of another kind.
func (s *Store) views(ctx context.Context, inboxes []table.Item) ([]chat.View, error) {
	byID := make(map[chat.ConversationID]chat.Line, len(inboxes))
	s.addInboxes(ctx, byID, inboxes)
	heads, err := s.readHeads(ctx, slices.Sorted(maps.Keys(byID)))
	if err != nil {
		return nil, err
	}
	var again, doubtful []table.Item
	for _, head := range heads {
		switch line := byID[head.ConversationID]; {
		case s.mayHaveGone(head, line):
			doubtful = append(doubtful, table.LineKey(line.UserID, line.ConversationID))
		case head.Kind == chat.KindGroup && line.LeftSeq == 0:
			again = append(again, table.LineKey(line.UserID, line.ConversationID))
		}
	}
	later, err := s.db.BatchGet(ctx, s.db.Inboxes, again, true)
	if err != nil {
		return nil, fmt.Errorf("reading %d inbox lines again: %w", len(again), err)
	}
	s.addInboxes(ctx, byID, later)
	if err := s.linesNow(ctx, doubtful, func(in table.Item) error {
		s.addInboxes(ctx, byID, []table.Item{in})
		return nil
	}); err != nil {
		return nil, err
	}
	views := make([]chat.View, 0, len(heads))
	for _, head := range heads {
		if line, ok := byID[head.ConversationID]; ok {
			views = append(views, chat.ViewOf(head, line))
		}
	}
	slices.SortFunc(views, func(a, b chat.View) int {
		return cmp.Compare(a.Head.ConversationID, b.Head.ConversationID)
	})
	return views, nil
}

// addInboxes takes in inbox items, those that were read later instead of earlier
// ones. Damaged ones are left out, also where one was readable before: it may say
// that the user has left.
func (s *Store) addInboxes(ctx context.Context, byID map[chat.ConversationID]chat.Line, items []table.Item) {
	for _, in := range items {
		var line chat.Line
		err := table.Unmarshal(in, &line)
		if err == nil && len(line.Peer) > chat.MaxUserIDBytes {
			err = fmt.Errorf("the peer takes %d bytes", len(line.Peer))
		}
		if err != nil {
			s.db.Damaged(ctx, s.db.Inboxes, in, err)
			if id, ok := in["conversationId"].(*types.AttributeValueMemberS); ok {
				delete(byID, chat.ConversationID(id.Value))
			}
			continue
		}
		byID[line.ConversationID] = line
	}
}

// listed completes views by the message that each ends with, read without its data and
// eventually consistent: it is for display only. One that is damaged is left out.
//
// DynamoDB bills an item by its whole size, whatever is read of it: half a unit up
// to 4 KB, three for one of 24 KB. A copy of its first words on the head would make
// that nothing, and cost more: with some 400 bytes more a head with a title is above
// 1 KB, and each message of the conversation takes two write units more, which is
// the price of 20 such reads of a small message.
func (s *Store) listed(ctx context.Context, views []chat.View) ([]Line, error) {
	var keys []table.Item
	windows, at := map[chat.ConversationID]chat.Window{}, map[chat.ConversationID]int{}
	lines := make([]Line, len(views))
	for i, v := range views {
		lines[i].View = v
		if w, ok := v.WindowAt(v.LastSeq()); ok {
			keys = append(keys, table.MessageKey(v.ConversationID, v.LastSeq()))
			windows[v.ConversationID], at[v.ConversationID] = w, i
		}
	}
	// All but the data, which no preview shows: that of a hundred may be 2.4 MB.
	found, err := s.db.BatchGet(ctx, s.db.Messages, keys, false,
		"conversationId", "seq", "messageId", "clientMsgId", "senderId", "senderDeviceId", "messageType", "text", "replyTo",
		"version", "status", "serverTime", "clientTime", "event", "expiresAt", "recalledBy", "edits")
	if err != nil {
		return nil, fmt.Errorf("reading %d last messages: %w", len(keys), err)
	}
	for _, in := range found {
		mi, err := table.UnmarshalMessage(in)
		if n := len(mi.SenderID) + len(mi.MessageType) + len(mi.Status); err == nil && n > 2*chat.MaxUserIDBytes {
			err = fmt.Errorf("sender, type and status take %d bytes", n)
		}
		during := windows[mi.ConversationID].During
		switch {
		case err != nil:
			s.db.Damaged(ctx, s.db.Messages, in, err)
		case !s.db.Expired(mi) && !editedAfter(mi, during.To): // else it was edited since the head was read
			m := mi.In(during)
			lines[at[mi.ConversationID]].Last = &m
		}
	}
	return lines, nil
}
