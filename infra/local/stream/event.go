package stream

import (
	"encoding/json"
	"time"

	"github.com/inorder-im/inorder/shared/letter"
)

// maxPayload is the most that an invocation takes (Lambda quotas).
const maxPayload = 6 << 20

// record is a stream record on its way to the function.
type record struct {
	sequence string
	before   string // the sequence number of the record before it
	created  time.Time
	lane     int             // which of the shard's lanes it belongs to
	body     json.RawMessage // as an element of Records in the event; nil if it is not delivered
}

// event returns the invocation payload of a batch.
func event(batch []*record) []byte {
	changes := make([]json.RawMessage, len(batch))
	for i, r := range batch {
		changes[i] = r.body
	}
	return letter.Event(changes...)
}
