package store

import (
	"time"

	"github.com/inorder-im/inorder/shared/chat"
)

// expiry is when a message expires, in seconds; 0 is never. The event of an erasure
// stays for devices that hold what expired long ago.
func (s *Store) expiry(m chat.Message) int64 {
	if s.db.Retention == 0 || m.Is(chat.EventErase) {
		return 0
	}
	return time.UnixMilli(m.ServerTime).Add(s.db.Retention).Unix()
}

// recordGrace is for how much longer than its message an idempotency record
// lives. A device that was away, and resends what it never got an answer to, must
// find the first result even where the message is gone by then.
const recordGrace = 30 * day

// recordExpiry is when the idempotency record of a message expires, in seconds; 0
// is never.
func (s *Store) recordExpiry(m chat.Message) int64 {
	if s.db.Retention == 0 || m.Is(chat.EventErase) {
		return 0
	}
	return time.UnixMilli(m.ServerTime).Add(s.db.Retention + recordGrace).Unix()
}
