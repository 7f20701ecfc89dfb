package main

import (
	"maps"
	"slices"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// news is a conversation's new stretch, read and ready to be pushed.
type news struct {
	*conversation
	entries []chat.Message
	windows []window
	noted   bool // in the sync heads of all members, with each message
	brief   bool // the head is pushed instead of the entries, which are too much
}

// window is what one user may hear of: the seqs from from through to. They lie in a
// time of membership that began with since. Of one who is gone since is not known;
// the roster told of it.
type window struct {
	userID   string
	from, to int64
	since    int64
	came     bool // became a member in this stretch
	gone     bool // is a member no more
}

// listing is a conversation in a user's sync head.
type listing struct {
	userID         string
	conversationID chat.ConversationID
}

// isListed reports whether a change of the roster may have made the conversation one that
// is listed as large for someone, or no more: someone came or went, or the number of
// members crossed the bound.
func (n news) isListed() bool {
	return n.rosterChanged && (!n.noted || max(n.membersBefore, n.members) > chat.InboxGroupMax)
}

// listings says in whose sync head the conversation has to be listed as large
// from here on (true), or no more (false).
func (n news) listings() map[listing]bool {
	if !n.isListed() {
		return nil
	}
	large, wasLarge := !n.noted, n.membersBefore > chat.InboxGroupMax
	crossed := wasLarge != large || wasLarge != (n.members > chat.InboxGroupMax)
	changes := map[listing]bool{}
	for _, w := range n.windows {
		if w.gone || w.came || crossed {
			changes[listing{w.userID, n.id}] = large && !w.gone
		}
	}
	return changes
}

// isManyWrites reports whether the news may have to be listed for more than
// chat.InboxGroupMax users.
func (n news) isManyWrites() bool { return n.rosterChanged && n.audience().size > 0 }

// audience says who hears of what: each member from the first seq it may read,
// and those who were removed in this stretch up to the message that says so, whether
// the roster shows that yet or not.
func audience(c *conversation, members []chat.Member, entries []chat.Message) []window {
	var windows []window
	left, joined := moves(c.news.From, entries)
	inside := make(map[string]bool, len(members))
	for _, m := range members {
		if isGone(m, left) {
			continue
		}
		inside[m.UserID] = true
		if m.JoinSeq <= c.news.To {
			windows = append(windows, window{
				userID: m.UserID, from: max(m.JoinSeq, c.news.From), to: c.news.To, since: m.JoinSeq,
				came: c.news.Has(m.JoinedSeq), // by an event, or as the recipient of a publication, which tells of none
			})
		}
	}
	for i := range windows {
		windows[i].came = windows[i].came || joined[windows[i].userID] != 0
	}
	for _, userID := range slices.Sorted(maps.Keys(left)) {
		if !inside[userID] {
			windows = append(windows, window{userID: userID, from: left[userID].From, to: left[userID].To, gone: true})
		}
	}
	return windows
}

// moves returns the users that were removed among these messages, with the last
// stretch of them in which each was a member, and for those that were added the
// seq of that message, which is never earlier than what the user may read.
func moves(from int64, entries []chat.Message) (left map[string]chat.Range, joined map[string]int64) {
	left, joined = map[string]chat.Range{}, map[string]int64{}
	for _, m := range entries {
		if !m.Is(chat.EventMembers) {
			continue
		}
		for _, userID := range m.Event.Added {
			joined[userID] = m.Seq
		}
		for _, userID := range m.Event.Removed {
			left[userID] = chat.Range{From: max(from, joined[userID]), To: m.Seq}
		}
	}
	return left, joined
}

// isGone reports whether one who is on a roster was removed all the same, by these moves:
// a roster can be older than the head it was read after.
func isGone(m chat.Member, left map[string]chat.Range) bool {
	gone, moved := left[m.UserID]
	return moved && max(m.JoinSeq, m.JoinedSeq) <= gone.To
}

// update is what a connection in this window is pushed: what sync would give it, but for
// the messages that it has by an answer. If that was lost the device sends again, and
// learns the seq by the answer to that; of what is pushed, committedMaxSeq tells of it.
// A message that is not as it was sent any more is pushed.
func (n news) update(w window, connectionID string) wire.Update {
	from, _ := slices.BinarySearchFunc(n.entries, w.from, bySeq)
	to, _ := slices.BinarySearchFunc(n.entries, w.to+1, bySeq)
	messages := n.shown(w, n.entries[from:to])
	answered := func(m chat.Message) bool {
		return m.Via == connectionID && m.Version == 1 && m.Status == chat.StatusNormal
	}
	if slices.ContainsFunc(messages, answered) {
		messages = slices.DeleteFunc(slices.Clone(messages), answered)
	}
	return wire.Update{ConversationID: n.id, Messages: messages, CommittedMaxSeq: w.to}
}

// shown returns the entries of a window as its user may see them. What only sync can
// tell of is left to sync, for a push is a hint: to one who is gone, the edit of a
// message from before this stretch, and a message that was edited after the leaving.
func (n news) shown(w window, entries []chat.Message) []chat.Message {
	edits := func(m chat.Message) bool { return m.Is(chat.EventEdit) }
	if !slices.ContainsFunc(n.entries, edits) {
		return entries
	}
	if !w.gone {
		seen := make([]chat.Message, len(entries))
		for i, m := range entries {
			seen[i] = m.In(chat.Range{From: w.since, To: w.to})
		}
		return seen
	}
	later := map[int64]bool{} // the seqs that were edited after the leaving
	for _, m := range n.entries {
		if edits(m) && m.Seq > w.to {
			later[m.Event.TargetSeq] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(entries), func(m chat.Message) bool {
		return later[m.Seq] || edits(m) && m.Event.TargetSeq < w.from
	})
}

func bySeq(m chat.Message, seq int64) int {
	switch {
	case m.Seq < seq:
		return -1
	case m.Seq > seq:
		return 1
	}
	return 0
}
