package operate

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// roster checks the roster: each member's inbox line, and who is in it. No position
// may be above top.
func (a *audit) roster(ctx context.Context, head chat.Conversation, top int64) error {
	id := head.ConversationID
	for attempt := 1; ; attempt++ {
		now, err := a.tally(ctx, head, attempt == 1, top)
		if err != nil || len(now.against(head)) == 0 {
			return err
		}
		// A roster cannot be read serialisably, for it may have more items than a
		// transaction. So it is read until it fits a head, or the head stays.
		version := head.MembersVersion
		head = chat.Conversation{}
		if _, err := a.db.Get(ctx, a.db.Conversations, table.HeadKey(id), &head); err != nil {
			return err
		}
		if attempt >= maxRosterCounts && version == head.MembersVersion {
			for _, v := range now.against(head) {
				a.add(v)
			}
			return nil
		}
		if attempt >= 2*maxRosterCounts {
			return nil // it changes all the time; another audit will see
		}
		if err := a.db.Pace.WaitRead(ctx, attempt, false); err != nil {
			return fmt.Errorf("waiting for the roster of %s: %w", id, err)
		}
	}
}

// tally is what a head says of its roster.
type tally struct {
	count int
	hash  uint64
}

// against returns what is wrong with a head whose roster this is.
func (t tally) against(head chat.Conversation) []Violation {
	var wrong []Violation
	if t.count != head.MemberCount {
		wrong = append(wrong, Violation{
			ConversationID: head.ConversationID, Kind: ViolationMemberCountWrong,
			Expected: fmt.Sprintf("memberCount %d, as the roster has", t.count), Found: fmt.Sprintf("memberCount %d", head.MemberCount),
		})
	}
	if head.Hashed() && t.hash != head.RosterHash {
		wrong = append(wrong, Violation{
			ConversationID: head.ConversationID, Kind: ViolationRosterWrong,
			Expected: fmt.Sprintf("rosterHash %d, as the roster has", t.hash), Found: fmt.Sprintf("rosterHash %d", head.RosterHash),
		})
	}
	return wrong
}

// tally reads a roster, and checks the members' lines if asked to.
func (a *audit) tally(ctx context.Context, head chat.Conversation, check bool, top int64) (t tally, err error) {
	id := head.ConversationID
	for cursor := ""; ; {
		members, next, err := a.db.RosterPage(ctx, id, cursor, auditPage)
		if err != nil {
			return tally{}, err
		}
		t.count += len(members)
		t.hash += chat.RosterHash(members)
		if check {
			if err := a.members(ctx, id, members, top); err != nil {
				return tally{}, err
			}
			if err := a.listed(ctx, head, members); err != nil {
				return tally{}, err
			}
		}
		if cursor = next; next == "" {
			return t, nil
		}
	}
}

// members checks the inbox lines of a page of a roster.
func (a *audit) members(ctx context.Context, id chat.ConversationID, members []chat.Member, top int64) error {
	userIDs := make([]string, len(members))
	for i, m := range members {
		userIDs[i] = m.UserID
	}
	lines, err := a.linesOf(ctx, id, userIDs)
	if err != nil {
		return err
	}
	a.report.Lines += int64(len(members) + len(lines))
	for _, userID := range userIDs {
		if line, ok := lines[userID]; ok && line.LeftSeq == 0 && ahead(line, top) == "" {
			continue
		}
		if err := a.line(ctx, id, userID, top); err != nil {
			return err
		}
	}
	return nil
}

func (a *audit) linesOf(ctx context.Context, id chat.ConversationID, userIDs []string) (map[string]chat.Line, error) {
	keys := make([]table.Item, len(userIDs))
	for i, userID := range userIDs {
		keys[i] = table.LineKey(userID, id)
	}
	items, err := a.peek(ctx, a.db.Inboxes, keys)
	if err != nil {
		return nil, err
	}
	lines := make(map[string]chat.Line, len(items))
	for _, in := range items {
		if line, ok := a.lineOf(in); ok {
			lines[line.UserID] = line
		}
	}
	return lines, nil
}

// lineOf reads an inbox line, or what the store keeps among them. ok is false for one
// that is damaged, which it reports.
func (a *audit) lineOf(in table.Item) (line chat.Line, ok bool) {
	key := table.KeyOf(in)
	if key.ConversationID < table.FirstLine {
		return key, true // of another form
	}
	if err := table.Unmarshal(in, &line); err != nil {
		_ = a.damaged(err, Violation{ConversationID: key.ConversationID, UserID: key.UserID}) // which it is
		return chat.Line{}, false
	}
	return line, true
}

// ahead names a position of a line above top, "" if there is none.
func ahead(line chat.Line, top int64) string {
	for _, p := range []struct {
		name string
		seq  int64
	}{
		{"readSeq", line.ReadSeq}, {"deliveredSeq", line.DeliveredSeq}, {"clearedSeq", line.ClearedSeq},
		{"joinSeq", line.JoinSeq - 1}, {"leftSeq", line.LeftSeq}, // who joins quietly reads from the next seq on
	} {
		if p.seq > top {
			return fmt.Sprintf("%s %d", p.name, p.seq)
		}
	}
	return ""
}

// line looks again at a user's line, with head and roster item, and tells what is
// wrong with it.
func (a *audit) line(ctx context.Context, id chat.ConversationID, userID string, top int64) error {
	out, err := a.again(ctx, a.getHead(id), getOf(a.db.Members, table.MemberKey(id, userID)), getOf(a.db.Inboxes, table.LineKey(userID, id)))
	if err != nil {
		return err
	}
	v := Violation{ConversationID: id, UserID: userID}
	if out[2] == nil {
		if out[1] != nil {
			v.Kind, v.Expected, v.Found = ViolationLineMissing, "an inbox line of the member", "none"
			a.add(v)
		}
		return nil
	}
	if out[0] == nil {
		v.Kind, v.UserID, v.Expected, v.Found = ViolationHeadMissing, "", "a head", "inbox lines"
		a.add(v)
		return nil
	}
	var head chat.Conversation
	if err := table.Unmarshal(out[0], &head); err != nil {
		return err
	}
	var line chat.Line
	if err := table.Unmarshal(out[2], &line); err != nil {
		return a.damaged(err, v)
	}
	top = max(top, head.LastSeq)
	if position := ahead(line, top); position != "" {
		v.Kind, v.Expected, v.Found = ViolationPositionAhead, fmt.Sprintf("positions up to %d", top), position
		a.add(v)
	}
	switch isMember := out[1] != nil; {
	case isMember && line.LeftSeq != 0:
		v.Kind, v.Expected, v.Found = ViolationLineFormer, "the inbox line of a member", fmt.Sprintf("leftSeq %d", line.LeftSeq)
		a.add(v)
	case !isMember && line.LeftSeq == 0:
		v.Kind, v.Expected, v.Found = ViolationLineOrphaned, "a roster item", "an inbox line alone"
		a.add(v)
	}
	return nil
}

// maxSpeakers bounds who is remembered of a conversation as checked.
const maxSpeakers = 4096

// speakers checks the inbox lines of those who have written, or were added, and
// are in no roster any more: they have to say so.
func (a *audit) speakers(ctx context.Context, id chat.ConversationID, entries []table.Message, checked map[string]bool, top int64) error {
	var userIDs []string
	note := func(userID string) {
		if userID == "" || userID == chat.SystemSender || checked[userID] {
			return
		}
		if len(checked) >= maxSpeakers {
			clear(checked)
		}
		checked[userID] = true
		userIDs = append(userIDs, userID)
	}
	for _, m := range entries {
		note(m.SenderID)
		if m.Event != nil {
			for _, userID := range m.Event.Added {
				note(userID)
			}
		}
	}
	lines, err := a.linesOf(ctx, id, userIDs)
	if err != nil {
		return err
	}
	return a.unrostered(ctx, id, lines, top)
}

// unrostered checks that lines which say of no leaving have a roster item.
func (a *audit) unrostered(ctx context.Context, id chat.ConversationID, lines map[string]chat.Line, top int64) error {
	var keys []table.Item
	for userID, line := range lines {
		if line.LeftSeq == 0 {
			keys = append(keys, table.MemberKey(id, userID))
		}
	}
	items, err := a.peek(ctx, a.db.Members, keys)
	if err != nil {
		return err
	}
	present := make(map[string]bool, len(items))
	for _, in := range items {
		var m chat.Member
		if table.Unmarshal(in, &m) == nil { // else it is looked at again
			present[m.UserID] = true
		}
	}
	a.report.Lines += int64(len(lines) + len(items))
	for userID, line := range lines {
		if (present[userID] || line.LeftSeq != 0) && ahead(line, top) == "" {
			continue
		}
		if err := a.line(ctx, id, userID, top); err != nil {
			return err
		}
	}
	return nil
}

// byConversation sorts lines, and checks what the store keeps among them. Those of
// conversations that could not be finished are left out: they would take as long again.
func (a *audit) byConversation(ctx context.Context, items []table.Item) (map[chat.ConversationID]map[string]chat.Line, error) {
	byConversation := map[chat.ConversationID]map[string]chat.Line{}
	for _, in := range items {
		line, ok := a.lineOf(in)
		if !ok {
			continue
		}
		if line.ConversationID < table.FirstLine {
			if err := a.own(ctx, line, in); err != nil {
				return nil, err
			}
			continue
		}
		if slices.Contains(a.report.Unfinished, line.ConversationID) {
			continue
		}
		if byConversation[line.ConversationID] == nil {
			byConversation[line.ConversationID] = map[string]chat.Line{}
		}
		byConversation[line.ConversationID][line.UserID] = line
	}
	return byConversation, nil
}

// lines checks inbox lines of any users and conversations against heads and
// rosters.
func (a *audit) lines(ctx context.Context, items []table.Item) error {
	byConversation, err := a.byConversation(ctx, items)
	if err != nil {
		return err
	}
	keys := make([]table.Item, 0, len(byConversation))
	for id := range byConversation {
		keys = append(keys, table.HeadKey(id))
	}
	heads, err := a.peek(ctx, a.db.Conversations, keys)
	if err != nil {
		return err
	}
	tops := map[chat.ConversationID]int64{}
	for _, in := range heads {
		var head chat.Conversation
		if table.Unmarshal(in, &head) == nil { // else topOf tells of it
			tops[head.ConversationID] = head.LastSeq
		}
	}
	for id, lines := range byConversation {
		top, found := tops[id]
		if !found || slices.ContainsFunc(slices.Collect(maps.Values(lines)), func(l chat.Line) bool { return ahead(l, top) != "" }) {
			// The head may be what is wrong: do not blame a line for it.
			top, err = a.topOf(ctx, id)
		}
		if err == nil {
			err = a.unrostered(ctx, id, lines, top)
		}
		if err != nil {
			err = a.leave(ctx, err, id)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// topOf returns the highest seq of a ledger, 0 if there is no head: then no line is
// right.
func (a *audit) topOf(ctx context.Context, id chat.ConversationID) (int64, error) {
	var head chat.Conversation
	found, err := a.db.Get(ctx, a.db.Conversations, table.HeadKey(id), &head)
	if err != nil || !found {
		return 0, err
	}
	last, err := a.lastEntry(ctx, id)
	if err != nil {
		return 0, err
	}
	if last != nil {
		head.LastSeq = max(head.LastSeq, last.Seq)
	}
	return head.LastSeq, nil
}

func userIDsOf(members []chat.Member) []string {
	ids := make([]string, len(members))
	for i, m := range members {
		ids[i] = m.UserID
	}
	return ids
}
