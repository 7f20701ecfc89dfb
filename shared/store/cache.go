package store

import (
	"sync"

	"inorder/shared/chat"
)

// headCache remembers heads as this process last wrote or read them, and which
// senders were members at that roster version. It needs no invalidation: every
// write repeats lastSeq, membersVersion and state as conditions, so a stale copy
// costs a failed transaction and never a wrong one.
//
// A failed transaction costs as much as a good one, many times a read. So a
// head that another process also writes is marked shared and is read before it
// is used, until a read finds it as remembered.
type headCache struct {
	mu    sync.Mutex
	known map[string]*knownHead
}

type knownHead struct {
	head    chat.Conversation
	shared  bool
	members map[string]bool // at head.MembersVersion
}

// maxKnownHeads bounds the cache's memory to about a megabyte. When it is full
// it starts over, which costs one read per conversation.
const maxKnownHeads = 2048

func newHeadCache() *headCache { return &headCache{known: map[string]*knownHead{}} }

// trusted gives the head to write on without reading, if the sender is known to
// be a member.
func (c *headCache) trusted(conversationID, senderID string) (chat.Conversation, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[conversationID]
	if k == nil || k.shared || !k.members[senderID] {
		return chat.Conversation{}, false
	}
	return k.head, true
}

// reaching gives the head as remembered, if its ledger is known to reach seq.
func (c *headCache) reaching(conversationID string, seq int64) (chat.Conversation, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[conversationID]
	if k == nil || k.head.LastSeq < seq {
		return chat.Conversation{}, false
	}
	return k.head, true
}

// member reports whether the user is known to be a member at this version.
func (c *headCache) member(conversationID, userID string, membersVersion int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[conversationID]
	return k != nil && k.head.MembersVersion == membersVersion && k.members[userID]
}

// knows reports whether the user was seen to be a member at the version of the
// head as remembered.
func (c *headCache) knows(conversationID, userID string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.known[conversationID]
	return k != nil && k.members[userID]
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
	k.set(head)
}

// wrote takes in a head that this process has just committed. If the roster
// changed with it, its sender may be a member no more.
func (c *headCache) wrote(head chat.Conversation, senderID string, rosterChanged bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.entry(head)
	if k.head.LastSeq > head.LastSeq {
		return // a concurrent write of this process is ahead
	}
	k.set(head)
	if !rosterChanged {
		k.members[senderID] = true
	}
}

// admit notes that the user is a member at the head's roster version.
func (c *headCache) admit(head chat.Conversation, userID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.known[head.ConversationID]; k != nil && k.head.MembersVersion == head.MembersVersion {
		k.members[userID] = true
	}
}

func (c *headCache) entry(head chat.Conversation) *knownHead {
	k := c.known[head.ConversationID]
	if k == nil {
		if len(c.known) >= maxKnownHeads {
			clear(c.known)
		}
		k = &knownHead{members: map[string]bool{}}
		c.known[head.ConversationID] = k
	}
	return k
}

func (k *knownHead) set(head chat.Conversation) {
	if k.head.MembersVersion != head.MembersVersion {
		clear(k.members)
	}
	k.head = head
}
