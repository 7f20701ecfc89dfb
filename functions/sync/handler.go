package main

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/wire"
)

// reader is what the routes read. Errors for the client are *chat.Errors.
type reader interface {
	Sync(ctx context.Context, userID string, conversationID chat.ConversationID, afterSeq int64, limit, maxBytes int) (store.Page, error)
	History(ctx context.Context, userID string, conversationID chat.ConversationID, beforeSeq int64, limit, maxBytes int) (store.HistoryPage, error)
	Changes(ctx context.Context, userID string, cursor int64, headsCursor string, pageSize int) (store.Changed, error)
	List(ctx context.Context, userID, cursor string, limit int) (lines []store.Line, next string, err error)
	ListAll(ctx context.Context, userID, cursor string, limit int) (lines []store.Line, next string, err error)
	MembersOf(ctx context.Context, userID string, conversationID chat.ConversationID, cursor string, limit int) (store.MemberPage, error)
	Receipts(ctx context.Context, userID string, conversationID chat.ConversationID, seq int64, cursor string, limit int) (store.ReceiptPage, error)
}

type handler struct {
	store   reader
	attend  route.Attend
	windows wire.Windows
}

func (h handler) actions() map[string]route.Action {
	return map[string]route.Action{
		wire.ActionSync:          route.To(h.sync),
		wire.ActionHistory:       route.To(h.history),
		wire.ActionChanges:       route.To(h.changes),
		wire.ActionConversations: route.To(h.conversations),
		wire.ActionMembers:       route.To(h.members),
		wire.ActionReceipts:      route.To(h.receipts),
	}
}

func (h handler) sync(ctx context.Context, c route.Caller, r wire.Sync) (wire.Synced, error) {
	room, err := roomIn(c, wire.Synced{
		Messages: []chat.Message{}, NextSeq: chat.MaxSeq, CommittedMaxSeq: chat.MaxSeq, FirstSeq: chat.MaxSeq, Skipped: []int64{chat.MaxSeq},
	})
	if err != nil {
		return wire.Synced{}, err
	}
	metric.Note(ctx, metric.Conversation(r.ConversationID))
	page, err := h.store.Sync(ctx, c.UserID, r.ConversationID, *r.AfterSeq, sizeOf(r.Limit, wire.DefaultSyncLimit), room)
	if err != nil {
		return wire.Synced{}, err
	}
	metric.Note(ctx, metric.Seq(page.NextSeq), metric.Count(metric.SyncCalls, 1),
		metric.Count(metric.SyncEntries, len(page.Messages)), metric.Count(metric.SkippedSeqs, len(page.Skipped)),
		metric.Count(metric.GapsResolved, page.Resolved))
	return wire.Synced{
		Messages:        page.Messages,
		NextSeq:         page.NextSeq,
		CommittedMaxSeq: page.CommittedMaxSeq,
		HasMore:         page.HasMore,
		Skipped:         page.Skipped,
		FirstSeq:        page.FirstSeq,
	}, nil
}

func (h handler) history(ctx context.Context, c route.Caller, r wire.History) (wire.HistoryPage, error) {
	before := int64(0) // the end
	if r.BeforeSeq != nil {
		before = *r.BeforeSeq
	}
	room, err := roomIn(c, wire.HistoryPage{
		Messages: []chat.Message{}, NextBeforeSeq: chat.MaxSeq, CommittedMaxSeq: chat.MaxSeq,
	})
	if err != nil {
		return wire.HistoryPage{}, err
	}
	metric.Note(ctx, metric.Conversation(r.ConversationID))
	page, err := h.store.History(ctx, c.UserID, r.ConversationID, before, sizeOf(r.Limit, wire.DefaultHistoryLimit), room)
	if err != nil {
		return wire.HistoryPage{}, err
	}
	metric.Note(ctx, slog.Int("entries", len(page.Messages)), metric.Count(metric.GapsResolved, page.Resolved))
	return wire.HistoryPage{
		Messages:        page.Messages,
		NextBeforeSeq:   page.NextBeforeSeq,
		CommittedMaxSeq: page.CommittedMaxSeq,
		HasMore:         page.HasMore,
	}, nil
}

func (h handler) conversations(ctx context.Context, c route.Caller, r wire.Conversations) (wire.ConversationsPage, error) {
	if _, ok := chat.ConversationID(r.Cursor).Kind(); r.Cursor != "" && r.Cursor != store.FromStart && !ok {
		return wire.ConversationsPage{}, chat.FieldErrorf(chat.CodeBadRequest, "cursor", "use the cursor of an earlier answer, or none")
	}
	page := h.store.List
	if r.Hidden {
		page = h.store.ListAll
	}
	lines, next, err := page(ctx, c.UserID, r.Cursor, sizeOf(r.Limit, wire.DefaultListLimit))
	if err != nil {
		return wire.ConversationsPage{}, err
	}
	list := conversationsOf(lines)
	room, err := roomIn(c, wire.ConversationsPage{Conversations: []wire.Conversation{}, Cursor: longestCursor(list, next)})
	if err != nil {
		return wire.ConversationsPage{}, err
	}
	list, next, err = cut(list, next, room)
	if err != nil {
		return wire.ConversationsPage{}, err
	}
	return wire.ConversationsPage{Conversations: list, Cursor: next}, nil
}

// changes answers with what changed, as much of it as fits a frame, or where that
// is unknown with the start of the whole list, which tells of the heads too. It names
// the user, so that a device notices a token that is not of the user whom it keeps.
func (h handler) changes(ctx context.Context, c route.Caller, r wire.Changes) (wire.Changed, error) {
	h.attend(ctx, c) // first registered, then told: what comes in between is pushed
	changed, err := h.store.Changes(ctx, c.UserID, *r.SyncCursor, r.HeadsCursor, wire.DefaultListLimit)
	if err != nil {
		return wire.Changed{}, err
	}
	if !changed.Full {
		answer, ok, err := h.partial(c, r, changed)
		if ok || err != nil {
			return answer, err
		}
		if changed.Lines, changed.Next, err = h.store.ListAll(ctx, c.UserID, "", wire.DefaultListLimit); err != nil {
			return wire.Changed{}, err
		}
	}
	list := conversationsOf(changed.Lines)
	if !r.Hidden {
		list = slices.DeleteFunc(list, wire.Conversation.Hidden)
	}
	answer := wire.Changed{
		Conversations: []wire.Conversation{}, Heads: []wire.Head{}, SyncCursor: changed.Cursor, Full: true,
		Cursor: longestCursor(list, changed.Next), Windows: h.windows, UserID: c.UserID,
	}
	room, err := roomIn(c, answer)
	if err != nil {
		return wire.Changed{}, err
	}
	if answer.Conversations, answer.Cursor, err = cut(list, changed.Next, room); err != nil {
		return wire.Changed{}, err
	}
	if changed.Next == store.FromStart { // these are in no order that could go on
		answer.Cursor = store.FromStart
	}
	return answer, nil
}

// partial answers with what changed, the earliest change first. What does not fit
// comes when the device asks again: heads before lines, and of the lines all that
// changed together.
func (h handler) partial(c route.Caller, r wire.Changes, changed store.Changed) (answer wire.Changed, ok bool, err error) {
	list := conversationsOf(changed.Lines)
	answer = wire.Changed{
		Conversations: []wire.Conversation{}, Heads: headsOf(changed.Heads),
		SyncCursor: changed.Cursor, HeadsCursor: changed.HeadsCursor, More: changed.More, Windows: h.windows, UserID: c.UserID,
	}
	n, err := fittingBeside(c, answer, list)
	if err != nil || n == len(list) {
		answer.Conversations = list
		return answer, true, err
	}
	answer.Heads, answer.HeadsCursor, answer.More = []wire.Head{}, r.HeadsCursor, true
	if n, err = fittingBeside(c, answer, list); err != nil {
		return wire.Changed{}, false, err
	}
	for n > 0 && n < len(list) && changed.Lines[n-1].ChangedAt == changed.Lines[n].ChangedAt {
		n--
	}
	if n <= 0 {
		return wire.Changed{}, false, nil
	}
	if n < len(list) {
		answer.SyncCursor = changed.Lines[n-1].ChangedAt
	}
	answer.Conversations = list[:n]
	return answer, true, nil
}

// told returns windows as devices are told of them.
func told(w store.Windows) wire.Windows {
	ms := func(window time.Duration) *int64 {
		if window == store.NoWindow {
			return nil
		}
		n := window.Milliseconds()
		return &n
	}
	return wire.Windows{EditMs: ms(w.Edit), RecallMs: ms(w.Recall)}
}

func (h handler) members(ctx context.Context, c route.Caller, r wire.Members) (wire.MembersPage, error) {
	metric.Note(ctx, metric.Conversation(r.ConversationID))
	page, err := h.store.MembersOf(ctx, c.UserID, r.ConversationID, r.Cursor, wire.MemberPage)
	if err != nil {
		return wire.MembersPage{}, err
	}
	answer := wire.MembersPage{Members: make([]wire.Member, len(page.Members)), MembersVersion: page.MembersVersion, Cursor: page.Next}
	for i, m := range page.Members {
		answer.Members[i] = wire.Member{UserID: m.UserID, Role: m.Role, JoinSeq: m.JoinSeq, JoinedAt: m.JoinedAt}
	}
	return answer, nil
}

func (h handler) receipts(ctx context.Context, c route.Caller, r wire.Receipts) (wire.ReceiptsPage, error) {
	metric.Note(ctx, metric.Conversation(r.ConversationID))
	page, err := h.store.Receipts(ctx, c.UserID, r.ConversationID, r.Seq, r.Cursor, receiptPage)
	if err != nil {
		return wire.ReceiptsPage{}, err
	}
	return wire.ReceiptsPage{Delivered: page.Delivered, Read: page.Read, Cursor: page.Next}, nil
}

// receiptPage is how many members a page of receipts looks at: each userId may
// stand in it twice, of up to 128 bytes that JSON may double.
const receiptPage = 50

// sizeOf is how much a request asks for.
func sizeOf(limit *int, standard int) int {
	if limit == nil {
		return standard
	}
	return *limit
}
