package chat

// A crowd is a conversation of more than MaxGroupMembers members. Only the product
// brings one about, and adds to it. Who joins a crowd joins quietly: no message tells of
// it, and nobody who sends notices. Whoever leaves, or is removed, does so with a
// message, as in any group.
const (
	// MaxCrowdMembers is how large a crowd may grow.
	MaxCrowdMembers = 100_000

	// gapLeast and gapPerMember make the time between two rounds of pushes of a crowd: a
	// second for one of 1,000, half a minute for one of 100,000. All that is written
	// within it comes in one round.
	gapLeast     = 1000 // ms
	gapPerMember = 0.3  // ms

	// commitSlack is how long before a round one tries to commit a message that is to be in
	// it for certain: that takes a while, and a clock may be slow.
	commitSlack = 2000 // ms
)

// IsCrowd reports whether the conversation is a crowd.
func (c Conversation) IsCrowd() bool { return c.MemberCount > MaxGroupMembers }

// JoinedQuietly returns the head after users joined without a message. In a crowd
// MembersVersion stays, so that no send fails for it: as long as it does, MemberCount
// only goes up, and tells rosters apart. A conversation that becomes a crowd by it gets
// another MembersVersion once, for processes that remember it as a smaller one.
func (c Conversation) JoinedQuietly(joined []Member) Conversation {
	after := c.WithRoster(joined, nil)
	if c.IsCrowd() {
		after.MembersVersion, after.HashedVersion, after.Kept = c.MembersVersion, c.HashedVersion, c.Kept
	}
	return after
}

// NextPush returns the time, in ms, of the round of pushes that a message of this time is
// in: PushAt if it comes early enough for that, else one that is at least the gap later,
// and not before the message. So a crowd that was quiet hears of a message at once. What
// is further away than any message leaves it is of a clock that is wrong, and is no round
// to wait for.
func (c Conversation) NextPush(at int64) int64 {
	gap := gapLeast + int64(gapPerMember*float64(c.MemberCount))
	switch ahead := c.PushAt - at; {
	case ahead > 2*(gap+commitSlack):
		return at
	case ahead > commitSlack:
		return c.PushAt
	}
	return max(at, c.PushAt+gap)
}
