package chat

import "slices"

// Line is one user's line of one conversation: what the user may read of it, and has
// read. It outlives the membership.
type Line struct {
	UserID         string         `json:"userId"`
	ConversationID ConversationID `json:"conversationId"`
	Peer           string         `json:"peer,omitempty"` // of a single conversation: the other user, or oneself
	ReadSeq        int64          `json:"readSeq"`
	DeliveredSeq   int64          `json:"deliveredSeq"`
	ClearedSeq     int64          `json:"clearedSeq"`
	JoinSeq        int64          `json:"joinSeq"`           // the first seq this user may read
	LeftSeq        int64          `json:"leftSeq,omitempty"` // the last one, for a former member

	LeftHead *Conversation `json:"leftHead,omitempty"` // the head as it was then
	LeftAt   int64         `json:"leftAt,omitempty"`   // ms; of one who left by itself, and was not removed
	Past     []Range       `json:"past,omitempty"`     // what a member who came back may read from before
}

// Joined returns the line once its user has become a member by the message with this
// seq. What was there before counts as read. A newcomer reads from that message on, or
// where all is visible from the first. Who was a member before, and has a LeftSeq,
// reads what there was until then and what there is from now on; who is taken back by
// the very next message has not been away. Of the times before, the last
// MaxPastStretches stay.
func (l Line) Joined(v Visibility, seq int64) Line {
	if l.LeftSeq == 0 {
		l.JoinSeq, l.ReadSeq, l.DeliveredSeq = seq, seq-1, seq-1
		if v == VisibleAll {
			l.JoinSeq = 1
		}
		return l
	}
	past := append([]Range{}, l.Past...)
	if l.LeftSeq != seq-1 {
		if l.JoinSeq <= l.LeftSeq && l.LeftSeq < seq {
			past = append(past, Range{From: l.JoinSeq, To: l.LeftSeq})
		}
		l.JoinSeq = seq
	}
	l.Past = past[max(0, len(past)-MaxPastStretches):]
	l.LeftSeq, l.LeftHead, l.LeftAt = 0, nil, 0
	return l
}

// Hidden reports whether the user has left the conversation and cleared all of it:
// then it is not on the user's list, until the user is added again.
func (l Line) Hidden() bool { return l.LeftSeq > 0 && l.ClearedSeq >= l.LeftSeq }

// View is what a user sees of a conversation: the head, and by the line which messages
// of the ledger.
type View struct {
	Head Conversation
	Line
}

// ViewOf returns what the user of this line sees: the head, or if the user has left
// the head as it was then. A line that an operator made a former member's has none;
// what the group is called by now is not for that user then.
func ViewOf(head Conversation, line Line) View {
	switch {
	case line.LeftSeq == 0:
	case line.LeftHead != nil:
		head = *line.LeftHead
	default:
		head = Conversation{
			ConversationID: head.ConversationID, Kind: head.Kind, LastSeq: head.LastSeq, State: StateActive, CreatedAt: head.CreatedAt,
		}
	}
	return View{Head: head, Line: line}
}

// LastSeq is the last seq this user may read.
func (v View) LastSeq() int64 {
	if v.LeftSeq != 0 {
		return min(v.Head.LastSeq, v.LeftSeq)
	}
	return v.Head.LastSeq
}

// Unread counts what the user may read, and has neither read, cleared nor written. It
// comes from positions and from the head's runs.
func (v View) Unread() int64 {
	read := max(v.ReadSeq, v.ClearedSeq, v.JoinSeq-1)
	return v.Head.Unread(v.UserID, read, v.LastSeq())
}

// Window is a range of seqs that a user may read, and the time of membership that it
// lies in. That decides which content is shown there: see Message.In. What the user
// cleared is only hidden, and ends no time.
type Window struct {
	Range
	During Range
}

// Windows returns what this user may read, ascending: one window for each time of
// membership, without what was cleared.
func (v View) Windows() []Window {
	var windows []Window
	now := Range{From: v.JoinSeq, To: v.LastSeq()}
	for _, during := range append(slices.Clip(v.Past), now) {
		w := Window{Range: during, During: during}
		if w.From = max(w.From, v.ClearedSeq+1); w.From <= w.To {
			windows = append(windows, w)
		}
	}
	return windows
}

// WindowAt returns the window with this seq, if this user may read it.
func (v View) WindowAt(seq int64) (Window, bool) {
	for _, w := range v.Windows() {
		if w.Has(seq) {
			return w, true
		}
	}
	return Window{}, false
}

// WindowAfter returns the first window above seq, without what is not above it.
func (v View) WindowAfter(seq int64) (Window, bool) {
	for _, w := range v.Windows() {
		if w.To > seq {
			w.From = max(w.From, seq+1)
			return w, true
		}
	}
	return Window{}, false
}

// WindowBefore returns the last window below seq, without what is not below it.
func (v View) WindowBefore(seq int64) (Window, bool) {
	for _, w := range slices.Backward(v.Windows()) {
		if w.From < seq {
			w.To = min(w.To, seq-1)
			return w, true
		}
	}
	return Window{}, false
}
