package chat

import "cmp"

// Is reports whether the message is an event of this kind.
func (m Message) Is(kind EventKind) bool { return m.Event != nil && m.Event.Kind == kind }

// Target returns the seq that a recall or an edit is about, and 0 for an erasure, which
// is about many. Other messages are about none.
func (m Message) Target() (seq int64, ok bool) {
	switch {
	case m.Is(EventRecall), m.Is(EventEdit):
		return m.Event.TargetSeq, true
	case m.Is(EventErase):
		return 0, true
	}
	return 0, false
}

// With returns the head once the message is committed: how far the ledger goes, who
// wrote it, and what the event says, if it is one. Whose roster is known takes the
// change of it in by WithRoster, too.
func (c Conversation) With(m Message) Conversation {
	c.LastSeq, c.UpdatedAt, c.Runs = m.Seq, m.ServerTime, c.Runs.With(m)
	switch {
	case m.Is(EventTitle):
		c.Title = m.Event.Title
	case m.Is(EventDissolve):
		c.State = StateDissolved
	case m.Is(EventMembers):
		c.Title, c.Owner = cmp.Or(m.Event.Title, c.Title), cmp.Or(m.Event.Owner, c.Owner)
		c.MemberCount += len(m.Event.Added) - len(m.Event.Removed)
		if len(m.Event.Removed) > 0 {
			c.RemovedAt = m.ServerTime
		}
	}
	return c
}

// After returns the message as an event leaves it: edited, recalled or erased. Of
// events that come late or twice, versions decide, and a recall is final; so ok is
// false where the event changes nothing, or is about another message. An edit whose own
// content was taken out tells of a recall to come; one whose content is withheld is not
// for this reader, who was away, and changes nothing.
func (m Message) After(event Message) (changed Message, ok bool) {
	e := event.Event
	switch {
	case event.Is(EventErase):
		if !event.Erases(m) {
			return m, false
		}
		return m.Erased()
	case !event.Is(EventRecall) && !event.Is(EventEdit), e.TargetMessageID != m.MessageID, event.Withheld:
		return m, false
	case e.Kind == EventRecall, event.Status == StatusRecalled:
		changed, ok = m.Recalled()
		changed.Version = max(m.Version, e.Version)
		return changed, ok || changed.Version != m.Version
	case m.Status == StatusRecalled || e.Version <= m.Version:
		return m, false
	}
	m.Text, m.Data, m.Version = event.Text, event.Data, e.Version
	return m, true
}

// Recalled returns the message as a recall leaves it, and the events that edited it:
// without content, in the same version. ok is false if that is as it was.
func (m Message) Recalled() (recalled Message, ok bool) {
	ok = m.Status != StatusRecalled || m.Text != "" || len(m.Data) > 0
	m.Status, m.Text, m.Data, m.Withheld = StatusRecalled, "", nil, false
	return m, ok
}

// Erases reports whether the message is the event of an erasure, and the other one
// is among those that it takes the content out of.
func (m Message) Erases(other Message) bool {
	return m.Is(EventErase) && other.SenderID == m.Event.Erased && other.Seq < m.Seq
}

// Erased returns the message as an erasure leaves it: without text and data, and
// without the device and the time that it came from. What had content is recalled,
// in the next version. A message that has none of these stays as it is, and ok is
// false: so an erasure that is applied twice does the same.
func (m Message) Erased() (erased Message, ok bool) {
	if m.Text == "" && len(m.Data) == 0 && m.SenderDeviceID == "" && m.ClientTime == 0 {
		return m, false
	}
	m.Text, m.Data, m.Withheld, m.SenderDeviceID, m.ClientTime, m.Via = "", nil, false, "", 0, ""
	if m.Event == nil || m.Is(EventEdit) {
		m.Status = StatusRecalled
		m.Version++
	}
	return m, true
}
