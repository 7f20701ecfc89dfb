package store

import (
	"sync"
	"time"

	"github.com/inorder-im/inorder/shared/chat"
)

// headCache remembers heads as this process last wrote or read them, and which
// senders are members. It needs no invalidation: every write repeats lastSeq,
// membersVersion and state as conditions, so a stale copy costs a failed transaction
// and never a wrong one.
//
// A failed transaction costs as much as a good one, many times a read. So a
// head that another process also writes is marked shared and is read before it
// is used, until a read finds it as remembered.
//
// What is known of members outlives those who join; only a removal ends it (G9). It
// is kept for one value R of the head's Removals, and used for heads with that R
// alone:
//
//   - It is learned of a head h with Removals R: the sender's roster item was read
//     serialisably with h, or the whole roster was found to be that of h by its hash,
//     or the sender's own write was committed on h.
//   - It is used on a head g with Removals R. The write is conditional on
//     membersVersion being that of g, and is committed only while it is. Both values
//     are of one image of one item, and change together or not at all, so the head
//     then still has Removals R.
//   - Removals never goes down. So each change of the roster between h and the
//     commit, whichever of the two was first, left it as it is: removed nobody.
//     The sender, who was a member at h, is one at the commit.
type headCache struct {
	mu      sync.Mutex
	known   map[chat.ConversationID]*knownHead
	members int // known, of all heads
}

type knownHead struct {
	head      chat.Conversation
	shared    bool
	members   map[string]bool // at head.Removals
	fullUntil time.Time       // the conversation takes nothing until then
	alone     int             // of the members, those who were looked up alone since the roster was read
}

const (
	// maxKnownHeads bounds the cache's memory to about a megabyte of heads. When it
	// is full it starts over, which costs one read per conversation.
	maxKnownHeads = 2048

	// maxKnownMembers bounds it to some 3 MB of user ids. When it is full it starts
	// over too.
	maxKnownMembers = 16_384
)

func newHeadCache() *headCache { return &headCache{known: map[chat.ConversationID]*knownHead{}} }

// trusted returns the head to write on without reading, if the sender is known to
// be a member.
func (c *headCache) trusted(conversationID chat.ConversationID, senderID string) (chat.Conversation, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[conversationID]
	if k == nil || k.shared || !k.members[senderID] {
		return chat.Conversation{}, false
	}
	return k.head, true
}

// reaching returns the head as remembered, if its ledger is known to reach seq.
func (c *headCache) reaching(conversationID chat.ConversationID, seq int64) (chat.Conversation, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[conversationID]
	if k == nil || k.head.LastSeq < seq {
		return chat.Conversation{}, false
	}
	return k.head, true
}

// member reports whether the user is known to be a member at this head.
func (c *headCache) member(head chat.Conversation, userID string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[head.ConversationID]
	return k != nil && k.head.Removals() == head.Removals() && k.members[userID]
}

// knows reports whether the user is known to be a member at the head as remembered.
func (c *headCache) knows(conversationID chat.ConversationID, userID string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[conversationID]
	return k != nil && k.members[userID]
}

// fullUntil returns until when a conversation is known to take nothing from the user, who
// is known to be a member.
func (c *headCache) fullUntil(conversationID chat.ConversationID, userID string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[conversationID]
	if k == nil || !k.members[userID] {
		return time.Time{}
	}
	return k.fullUntil
}

// full notes until when a conversation takes nothing.
func (c *headCache) full(conversationID chat.ConversationID, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.known[conversationID]; k != nil {
		k.fullUntil = until
	}
}

// learn takes in a head that was read, or came back with a failed condition. One
// that is damaged gives nothing to write on, see checkHead.
func (c *headCache) learn(head chat.Conversation) {
	if checkHead(head) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.entry(head)
	k.shared = k.head.LastSeq != 0 && k.head.LastSeq != head.LastSeq
	c.set(k, head)
}

// wrote takes in a head that this process has just committed. If the write removed
// members, its sender may be one no more.
func (c *headCache) wrote(head chat.Conversation, senderID string, removed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.entry(head)
	if k.head.LastSeq > head.LastSeq {
		return // a concurrent write of this process is ahead
	}
	c.set(k, head)
	if !removed {
		c.note(k, senderID)
	}
}

// admit notes that the user, who was looked up alone, is a member at this head.
func (c *headCache) admit(head chat.Conversation, userID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[head.ConversationID]
	if k != nil && k.head.Removals() == head.Removals() && c.note(k, userID) {
		k.alone++
	}
}

// admitAll notes that these are the members at this head.
func (c *headCache) admitAll(head chat.Conversation, roster []chat.Member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[head.ConversationID]
	if k == nil || k.head.Removals() != head.Removals() {
		return
	}
	for _, m := range roster {
		if !k.members[m.UserID] && !c.note(k, m.UserID) {
			return
		}
	}
}

const (
	// To look a sender up is a transactional read of two items, 4 read units. A
	// roster is one unit for each 4 KB, which are about 27 members of 150 bytes, and
	// one for its head.
	unitsAlone     = 4
	membersPerUnit = 27

	// minAlone is how many senders are looked up alone at least: two who talk to
	// each other need no roster.
	minAlone = 2
)

// paysForRoster reports whether as much was read of this conversation's senders, one
// by one, as its whole roster takes, and then counts anew: who reads the roster at
// that point pays at most twice what would have been the cheapest, however many
// senders are still to come. It is at the third sender of a group of up to 188, and
// at the eleventh of one of 1,000.
func (c *headCache) paysForRoster(conversationID chat.ConversationID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[conversationID]
	if k == nil || k.head.IsCrowd() || !k.head.Hashed() || k.alone < minAlone || k.alone*unitsAlone < 2+k.head.MemberCount/membersPerUnit {
		return false
	}
	k.alone = 0
	return true
}

func (c *headCache) entry(head chat.Conversation) *knownHead {
	k := c.known[head.ConversationID]
	if k == nil {
		if len(c.known) >= maxKnownHeads {
			c.startOver()
		}
		k = &knownHead{members: map[string]bool{}}
		c.known[head.ConversationID] = k
	}
	return k
}

// note adds a member, and reports whether it is one more that is known.
func (c *headCache) note(k *knownHead, userID string) bool {
	if k.members[userID] {
		return false
	}
	if c.members >= maxKnownMembers {
		c.startOver()
		return false
	}
	k.members[userID] = true
	c.members++
	return true
}

func (c *headCache) startOver() {
	clear(c.known)
	c.members = 0
}

func (c *headCache) set(k *knownHead, head chat.Conversation) {
	if k.head.Removals() != head.Removals() {
		c.members -= len(k.members)
		k.members, k.alone = map[string]bool{}, 0
	}
	k.head = head
}
