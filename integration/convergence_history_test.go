package integration_test

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/wire"
)

// history is who wrote and read what when, in the order of one clock.
type history struct {
	began time.Time

	mu     sync.Mutex
	writes map[string]*written // by sender and clientMsgId
	reads  map[chat.ConversationID][]porcupine.Operation
}

// written is one call that adds an entry to a ledger.
type written struct {
	client    int
	device    string
	place     chat.ConversationID
	number    int    // of the device's writes
	send      bool   // a message, which the outbox keeps until it is settled
	text      string // of a message or an edit
	recalls   int64  // of a recall: the seq of its target
	call, ret int64  // ret is 0 while the outcome is not known
	accepted  bool   // of a message: it was in the outbox
	sent      wire.Sent
	refusal   error
}

// repeats reports whether it is the recall of a message that was recalled before,
// which is answered with the first recall's entry.
func (w *written) repeats(ledger []chat.Message) bool {
	if w.recalls == 0 || !w.sent.Duplicate || w.sent.Seq > int64(len(ledger)) {
		return false
	}
	m := ledger[w.sent.Seq-1]
	return m.MessageID == w.sent.MessageID && m.Event != nil && m.Event.Kind == chat.EventRecall && m.Event.TargetSeq == w.recalls
}

func newHistory() *history {
	return &history{began: time.Now(), writes: map[string]*written{}, reads: map[chat.ConversationID][]porcupine.Operation{}}
}

func (h *history) now() int64 { return int64(time.Since(h.began)) }

func writeKey(sender, clientMsgID string) string { return sender + ": " + clientMsgID }

func (h *history) begin(sender, clientMsgID string, w written) *written {
	w.call = h.now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writes[writeKey(sender, clientMsgID)] = &w
	return &w
}

// end notes what came of it. It returns an error that is neither a refusal nor a
// message that is still to be sent.
func (h *history) end(w *written, sent wire.Sent, err error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, pending := errors.AsType[*client.PendingError](err); pending {
		w.accepted = true
		return nil
	}
	if refusal, refused := errors.AsType[*chat.Error](err); refused {
		w.refusal = refusal
		return nil
	}
	if err == nil {
		w.sent, w.ret, w.accepted = sent, h.now(), true
	}
	return err
}

func (h *history) read(client int, place chat.ConversationID, call, committedMaxSeq int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reads[place] = append(h.reads[place], porcupine.Operation{
		ClientId: client, Input: logCall{}, Call: call, Output: committedMaxSeq, Return: h.now(),
	})
}

// logCall is a call to a ledger: one that appends an entry and gives its seq, or
// one that reads and gives the last seq.
type logCall struct{ appends bool }

// appendOnlyLog is the ledger of one conversation as it would be if one call came
// after the other. The state is the last seq.
var appendOnlyLog = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		last, seq := state.(int64), output.(int64)
		if input.(logCall).appends {
			return seq == last+1, seq
		}
		return seq == last, state
	},
	DescribeOperation: func(input, output any) string {
		if input.(logCall).appends {
			return fmt.Sprintf("append → %v", output)
		}
		return fmt.Sprintf("read → %v", output)
	},
}

// requireLinearizable checks that the calls to a conversation can be put in an
// order that is that of the ledger and not against the clock. An entry whose
// writer was not answered came in at any time after it was first tried.
func (h *history) requireLinearizable(t *testing.T, place chat.ConversationID, ledger []chat.Message) {
	t.Helper()
	h.mu.Lock()
	operations := slices.Clone(h.reads[place])
	for _, m := range ledger {
		w := h.writes[writeKey(m.SenderID, m.ClientMsgID)]
		if w == nil {
			continue // a failure by itself, elsewhere
		}
		op := porcupine.Operation{ClientId: w.client, Input: logCall{appends: true}, Call: w.call, Output: m.Seq, Return: math.MaxInt64}
		if w.ret != 0 {
			op.Return = w.ret
		}
		operations = append(operations, op)
	}
	h.mu.Unlock()
	result := porcupine.CheckOperationsTimeout(appendOnlyLog, operations, time.Minute)
	if result == porcupine.Ok {
		return
	}
	slices.SortFunc(operations, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var b strings.Builder
	for _, op := range operations {
		fmt.Fprintf(&b, "%12d to %12d  client %2d  %s\n", op.Call, op.Return, op.ClientId, appendOnlyLog.DescribeOperation(op.Input, op.Output))
	}
	require.Fail(t, "the history of "+string(place)+" is not linearizable", "%s\n%s", result, b.String())
}
