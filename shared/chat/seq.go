package chat

import (
	"cmp"
	"fmt"
	"slices"
)

// AssignSeq numbers a batch of messages of one conversation whose last seq is
// last: it orders them by server receive time and then by messageId and gives
// them last+1, last+2, and so on. It works on a copy, and it numbers what it is
// given: finding messages that were sent twice is the idempotency record's job.
//
// It refuses a negative last, messages of more than one conversation, messages
// without conversationId or messageId, and numbers beyond MaxSeq. For no
// messages it returns an empty slice that is not nil.
func AssignSeq(last int64, messages []Message) ([]Message, error) {
	if last < 0 {
		return nil, fmt.Errorf("last seq is %d, it cannot be negative", last)
	}
	if last > MaxSeq-int64(len(messages)) {
		return nil, fmt.Errorf("no seq is left after %d for %d messages", last, len(messages))
	}
	for i, m := range messages {
		if m.ConversationID == "" || m.MessageID == "" {
			return nil, fmt.Errorf("message %d of the batch has no identity: conversationId %q, messageId %q", i, m.ConversationID, m.MessageID)
		}
		if m.ConversationID != messages[0].ConversationID {
			return nil, fmt.Errorf("message %d is of conversation %s, the batch is of %s", i, m.ConversationID, messages[0].ConversationID)
		}
	}
	numbered := append(make([]Message, 0, len(messages)), messages...)
	slices.SortStableFunc(numbered, func(a, b Message) int {
		return cmp.Or(cmp.Compare(a.ServerTime, b.ServerTime), cmp.Compare(a.MessageID, b.MessageID))
	})
	for i := range numbered {
		numbered[i].Seq = last + 1 + int64(i)
	}
	return numbered, nil
}
