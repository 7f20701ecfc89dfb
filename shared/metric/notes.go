package metric

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/inorder-im/inorder/shared/chat"
)

// Notes are fields for the one line of an invocation, taken down on the way by
// whoever knows them. They are safe for concurrent use.
type Notes struct {
	mu    sync.Mutex
	attrs []slog.Attr
}

type notesKey struct{}

// Begin returns a context that carries new Notes.
func Begin(ctx context.Context) (context.Context, *Notes) {
	n := &Notes{}
	return context.WithValue(ctx, notesKey{}, n), n
}

// Note takes fields down in the context's Notes. A metric noted twice counts
// twice; of another field the last value counts. Without Notes it does nothing.
func Note(ctx context.Context, attrs ...slog.Attr) {
	n, ok := ctx.Value(notesKey{}).(*Notes)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, a := range attrs {
		n.take(a)
	}
}

func (n *Notes) take(a slog.Attr) {
	if a.Equal(slog.Attr{}) {
		return
	}
	for i, known := range n.attrs {
		if known.Key != a.Key {
			continue
		}
		before, ok := quantityOf(known)
		if now, isQuantity := quantityOf(a); ok && isQuantity {
			a = slog.Any(a.Key, before.plus(now))
		}
		n.attrs[i] = a
		return
	}
	n.attrs = append(n.attrs, a)
}

// Attrs returns what was noted.
func (n *Notes) Attrs() []slog.Attr {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]slog.Attr(nil), n.attrs...)
}

// Metrics returns the metrics among it: what may be told of a request that was
// refused, whose other fields are only what a client made up.
func (n *Notes) Metrics() []slog.Attr {
	var metrics []slog.Attr
	for _, a := range n.Attrs() {
		if _, ok := quantityOf(a); ok {
			metrics = append(metrics, a)
		}
	}
	return metrics
}

// Tell reports whether anything was noted besides what the line is about.
func (n *Notes) Tell() bool {
	return slices.ContainsFunc(n.Attrs(), func(a slog.Attr) bool { return a.Key != conversationField && a.Key != seqField })
}

// Outcome returns the level of a request's log line and what it says of how the
// request ended: at error level what an operator has to look into, at warn level
// what may become that. code and field are what the caller is told of err. What was
// refused is told by these two alone and by metrics, for the caller may have put
// anything into what it named.
func (n *Notes) Outcome(err error, code chat.Code, field string, took time.Duration) (slog.Level, []slog.Attr) {
	level, said, noted := slog.LevelInfo, "OK", n.Attrs()
	var more []slog.Attr
	if err != nil {
		said = string(code)
	}
	switch {
	case err == nil:
	case code == chat.CodeInternal:
		level = slog.LevelError
		more = append(more, slog.Any("err", err))
	case code == chat.CodeBusy:
		level = slog.LevelWarn
		more = append(more, slog.Any("err", err))
	default:
		noted = n.Metrics()
		if field != "" {
			more = append(more, slog.String("field", field))
		}
	}
	return level, slices.Concat([]slog.Attr{slog.String("code", said), slog.Int64("ms", took.Milliseconds())}, more, noted)
}

// What a line is about.
const (
	conversationField = "conversationId"
	seqField          = "seq"
)

// Conversation is the field that says which conversation a line is about.
func Conversation(id chat.ConversationID) slog.Attr {
	if id == "" {
		return slog.Attr{}
	}
	return slog.String(conversationField, string(id))
}

// Seq is the field that says up to which seq.
func Seq(seq int64) slog.Attr { return slog.Int64(seqField, seq) }

// Effort is what writing an entry took, in transactions.
type Effort struct {
	Attempts  int // 0 if it was only read
	Conflicts int // of these, those that another writer came before
	Throttles int // of these, those that DynamoDB put off
	Batch     int // messages that the last one committed, where it was for the lane; 0 where it was not
	Full      int // 1 if it was refused, since the conversation takes no more
}

// Entry returns the fields of an entry's writing: what it became, if it is written, and
// what that took.
func Entry(sent chat.Sent, took Effort) []slog.Attr {
	var attrs []slog.Attr
	if sent.MessageID != "" {
		attrs = append(attrs, Conversation(sent.ConversationID), Seq(sent.Seq), slog.String("messageId", sent.MessageID))
	}
	if took.Throttles > 0 {
		attrs = append(attrs, slog.Int("throttles", took.Throttles))
	}
	attrs = append(attrs, Count(TransactionAttempts, took.Attempts), Count(TransactionConflicts, took.Conflicts), Count(BatchedMessages, took.Batch),
		Count(HotRefusals, took.Full))
	if sent.Duplicate {
		attrs = append(attrs, Count(IdempotencyHits, 1))
	}
	return attrs
}

// Send returns the metrics of a message that was to be sent. A refusal that the
// client has to mend is neither success nor failure.
func Send(took time.Duration, err error) []slog.Attr {
	attrs := []slog.Attr{Count(Sends, 1), Millis(SendLatency, took)}
	switch {
	case err == nil:
		attrs = append(attrs, Count(SendSuccess, 1))
	case chat.CodeOf(err).Retryable():
		attrs = append(attrs, Count(SendFailures, 1))
	}
	return attrs
}
