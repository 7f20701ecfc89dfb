// Package metric makes log lines count. A line that a function writes about one
// invocation carries its numbers as plain fields, and where metrics are on the
// same line tells CloudWatch which of the fields are metrics (the embedded metric
// format), so that nothing is written twice and nothing has to be sent.
//
// All metrics are in one namespace and have one dimension, the stack: CloudWatch
// bills each combination of dimensions as a metric of its own. What has no bound,
// such as conversations and users, is a field of the line and never a dimension.
//
// A count of zero is left out, and so costs nothing; a sum takes it for the zero
// it is.
package metric

import (
	"log/slog"
	"slices"
	"time"
)

// Namespace is where CloudWatch has the metrics.
const Namespace = "Inorder"

// Dimension is the only dimension; its value is the stack's name.
const Dimension = "Stack"

// Name is a metric's name, in the log line as in CloudWatch.
type Name string

// What requests tell.
const (
	Sends                Name = "Sends"                // requests to write a message, or, of publish, to open a conversation
	SendSuccess          Name = "SendSuccess"          // of these, those that were committed
	SendFailures         Name = "SendFailures"         // of these, those that failed on the server's side: BUSY, INTERNAL
	SendLatency          Name = "SendLatency"          // ms, from the request's arrival in the function to its answer or error
	IdempotencyHits      Name = "IdempotencyHits"      // requests to write an entry that found it done, as a rule by an earlier one with their clientMsgId
	TransactionAttempts  Name = "TransactionAttempts"  // transactions to write an entry; one is the least
	TransactionConflicts Name = "TransactionConflicts" // of these, those that another writer came before
	BatchedMessages      Name = "BatchedMessages"      // messages that requests committed for one another, in one transaction for each line of the log
	SyncCalls            Name = "SyncCalls"            // pages that sync answered
	SyncEntries          Name = "SyncEntries"          // entries in them
	SkippedSeqs          Name = "SkippedSeqs"          // seqs that they list because no entry has them any more; long runs, told by firstSeq, are not in it
	GapsResolved         Name = "GapsResolved"         // entries that a Query did not show yet and a serialisable read did
	Refusals             Name = "Refusals"             // frames and handshakes of users who were too fast
	HotRefusals          Name = "HotRefusals"          // messages and edits refused because their conversation takes no more
)

// What connections and pushes tell.
const (
	AuthorizerRefusals  Name = "AuthorizerRefusals" // handshakes that the authorizer let not through
	ConnectionsOpened   Name = "ConnectionsOpened"
	ConnectionsClosed   Name = "ConnectionsClosed"   // those that $disconnect told of
	ConnectionsReplaced Name = "ConnectionsReplaced" // closed because a newer one came
	Pushes              Name = "Pushes"              // frames posted by the fan-out
	GoneConnections     Name = "GoneConnections"     // found gone by a push, and forgotten
	PushFailures        Name = "PushFailures"        // connections that missed frames for another reason
	SetAside            Name = "SetAside"            // conversations whose push failed, and is tried again from the queue
	CommitToPush        Name = "CommitToPush"        // ms, from an entry's serverTime until it was posted
	StreamAge           Name = "StreamAge"           // ms, from the oldest change of a batch, which DynamoDB dates to the second, to its arrival in the fan-out
)

// What must never be: each is a count of places where a guarantee does not hold.
// Nothing is published while it holds.
const (
	InvariantDuplicateSeq Name = "InvariantDuplicateSeq" // two entries with one seq
	InvariantSeqWentBack  Name = "InvariantSeqWentBack"  // a head whose lastSeq became smaller
	InvariantIdempotency  Name = "InvariantIdempotency"  // one (senderId, clientMsgId) that stands for two entries
	InvariantHole         Name = "InvariantHole"         // a seq without an entry that nothing removed
	InvariantHead         Name = "InvariantHead"         // a head that disagrees with its ledger or roster
	InvariantPosition     Name = "InvariantPosition"     // a user's position beyond what there is
	InvariantRevision     Name = "InvariantRevision"     // a message that is not as its last recall or edit left it
	InvariantItem         Name = "InvariantItem"         // an item that cannot be read, and was left out
)

// Names lists every metric, for tests: they hold template.yaml and the documents to it.
func Names() []Name {
	return []Name{
		Sends, SendSuccess, SendFailures, SendLatency, IdempotencyHits, TransactionAttempts, TransactionConflicts, BatchedMessages,
		SyncCalls, SyncEntries, SkippedSeqs, GapsResolved, Refusals, HotRefusals,
		AuthorizerRefusals, ConnectionsOpened, ConnectionsClosed, ConnectionsReplaced,
		Pushes, GoneConnections, PushFailures, SetAside, CommitToPush, StreamAge,
		InvariantDuplicateSeq, InvariantSeqWentBack, InvariantIdempotency, InvariantHole, InvariantHead, InvariantPosition, InvariantRevision, InvariantItem,
	}
}

// unit is one of CloudWatch's (CloudWatch API Reference, "MetricDatum").
type unit string

const (
	count        unit = "Count"
	milliseconds unit = "Milliseconds"
)

// maxValues is how many values one metric may have in one line (CloudWatch User
// Guide, "Specification: Embedded metric format", target members).
const maxValues = 100

// quantity is the value of a field that is a metric.
type quantity struct {
	unit   unit
	values []int64
}

// LogValue is the number itself, or the list of them.
func (q quantity) LogValue() slog.Value {
	if len(q.values) == 1 {
		return slog.Int64Value(q.values[0])
	}
	return slog.AnyValue(q.values)
}

// plus takes in another value of the same metric: counts add up, durations are
// kept side by side, up to the hundred that a line may have.
func (q quantity) plus(other quantity) quantity {
	if q.unit == count {
		return quantity{count, []int64{q.values[0] + other.values[0]}}
	}
	all := slices.Concat(q.values, other.values)
	return quantity{q.unit, all[:min(len(all), maxValues)]}
}

// quantityOf returns the quantity of a field, if it is a metric.
func quantityOf(a slog.Attr) (quantity, bool) {
	if a.Value.Kind() != slog.KindLogValuer {
		return quantity{}, false
	}
	q, ok := a.Value.Any().(quantity)
	return q, ok
}

// Count is a field that counts. A count of zero is no field.
func Count(name Name, n int) slog.Attr {
	if n == 0 {
		return slog.Attr{}
	}
	return slog.Any(string(name), quantity{count, []int64{int64(n)}})
}

// Millis is a field of durations, in whole milliseconds: one for each thing that
// took its time, of which a line takes a hundred. Clocks differ, so one that is
// below zero counts as zero. No duration is no field.
func Millis(name Name, took ...time.Duration) slog.Attr {
	if len(took) == 0 {
		return slog.Attr{}
	}
	q := quantity{unit: milliseconds}
	for _, d := range took[:min(len(took), maxValues)] {
		q.values = append(q.values, max(0, d.Milliseconds()))
	}
	return slog.Any(string(name), q)
}
