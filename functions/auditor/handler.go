package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/store/operate"
)

type storage interface {
	AuditSample(ctx context.Context, messages int) (operate.AuditReport, error)
	AuditConversation(ctx context.Context, conversationID chat.ConversationID) (operate.AuditReport, error)
	AuditAll(ctx context.Context, after operate.AuditCursor) (operate.AuditReport, error)
}

type handler struct {
	store    storage
	messages int // of a sample
	log      *slog.Logger
}

// request is the event of a direct invocation. An empty one, and the event of a
// schedule, asks for a sample.
type request struct {
	Messages       int                  `json:"messages"`       // of the sample, instead of the configured number
	ConversationID chat.ConversationID  `json:"conversationId"` // the whole of one conversation instead
	All            bool                 `json:"all"`            // everything instead
	After          *operate.AuditCursor `json:"after"`          // with all: next of the report before
}

// handle answers with the report: what was looked at, and each violation with what
// to do about it. Violations are no error of the function; a refused request, or
// tables that cannot be read, are.
func (h handler) handle(ctx context.Context, event json.RawMessage) (operate.AuditReport, error) {
	start := time.Now()
	r, err := h.audit(ctx, event)
	h.record(ctx, r, err, time.Since(start))
	return r, err
}

func (h handler) audit(ctx context.Context, event json.RawMessage) (operate.AuditReport, error) {
	req, err := read(event)
	if err != nil {
		return operate.AuditReport{}, err
	}
	switch {
	case req.ConversationID != "":
		return h.store.AuditConversation(ctx, req.ConversationID)
	case req.All:
		var after operate.AuditCursor
		if req.After != nil {
			after = *req.After
		}
		return h.store.AuditAll(ctx, after)
	}
	messages := h.messages
	if req.Messages != 0 {
		messages = req.Messages
	}
	return h.store.AuditSample(ctx, messages)
}

// read takes an event. A field that it does not know is refused: a misspelled
// conversationId must not become a sample.
func read(event json.RawMessage) (request, error) {
	var scheduled struct {
		Source string `json:"source"`
	}
	if json.Unmarshal(event, &scheduled) == nil && (scheduled.Source == "aws.events" || scheduled.Source == "aws.scheduler") {
		return request{}, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(event))
	decoder.DisallowUnknownFields()
	var r request
	if err := decoder.Decode(&r); err != nil && !errors.Is(err, io.EOF) {
		return request{}, chat.Errorf(chat.CodeBadRequest, "the event is {}, or has messages, conversationId, all, after: %v", err)
	}
	if r.ConversationID != "" {
		if err := chat.ValidateConversationID("conversationId", r.ConversationID); err != nil {
			return request{}, err
		}
	}
	switch {
	case r.Messages < 0:
		return request{}, chat.FieldErrorf(chat.CodeBadRequest, "messages", "a sample has at least 1 message")
	case r.All && r.ConversationID != "", r.Messages != 0 && (r.All || r.ConversationID != ""):
		return request{}, chat.Errorf(chat.CodeBadRequest, "ask for one of messages, conversationId and all")
	case r.After != nil && !r.All:
		return request{}, chat.FieldErrorf(chat.CodeBadRequest, "after", "after goes with all")
	}
	return r, nil
}

// invariants are the metrics that the kinds of violations count in.
var invariants = map[operate.ViolationKind]metric.Name{
	operate.ViolationHeadMissing:      metric.InvariantHead,
	operate.ViolationHeadBehind:       metric.InvariantHead,
	operate.ViolationMemberCountWrong: metric.InvariantHead,
	operate.ViolationRosterWrong:      metric.InvariantHead,
	operate.ViolationLineMissing:      metric.InvariantHead,
	operate.ViolationLargeNotListed:   metric.InvariantHead,
	operate.ViolationLargeStale:       metric.InvariantHead,
	operate.ViolationSyncHeadWrong:    metric.InvariantHead,
	operate.ViolationLineFormer:       metric.InvariantHead,
	operate.ViolationLineOrphaned:     metric.InvariantHead,
	operate.ViolationHeadAhead:        metric.InvariantHole,
	operate.ViolationHole:             metric.InvariantHole,
	operate.ViolationDuplicateMessage: metric.InvariantIdempotency,
	operate.ViolationDuplicateKey:     metric.InvariantIdempotency,
	operate.ViolationRecordMissing:    metric.InvariantIdempotency,
	operate.ViolationRecordMismatch:   metric.InvariantIdempotency,
	operate.ViolationPositionAhead:    metric.InvariantPosition,
	operate.ViolationEventTarget:      metric.InvariantRevision,
	operate.ViolationNotBlank:         metric.InvariantRevision,
	operate.ViolationNotErased:        metric.InvariantRevision,
	operate.ViolationItemDamaged:      metric.InvariantItem,
}

// maxNamed is how many conversations that were not finished a line names.
const maxNamed = 10

// record writes the report's log line, and one for each violation. They have
// nothing of what messages say.
func (h handler) record(ctx context.Context, r operate.AuditReport, err error, took time.Duration) {
	log := h.log
	if invocation, ok := lambdacontext.FromContext(ctx); ok {
		log = log.With("requestId", invocation.AwsRequestID)
	}
	for _, v := range r.Violations {
		log.LogAttrs(ctx, slog.LevelError, "violation", metric.Conversation(v.ConversationID), metric.Seq(v.Seq),
			slog.String("kind", string(v.Kind)), slog.Int64("toSeq", v.ToSeq), slog.String("userId", v.UserID),
			slog.String("expected", v.Expected), slog.String("found", v.Found), slog.String("remedy", v.Remedy),
			metric.Count(invariants[v.Kind], 1))
	}
	total := 0
	counts := make([]any, 0, len(r.Counts))
	for _, kind := range slices.Sorted(maps.Keys(r.Counts)) {
		total += r.Counts[kind]
		counts = append(counts, slog.Int(string(kind), r.Counts[kind]))
	}
	log = log.With("conversations", r.Conversations, "messages", r.Messages, "lines", r.Lines,
		"violations", total, slog.Group("kinds", counts...), "finished", r.Next == nil && len(r.Unfinished) == 0, "ms", took.Milliseconds())
	if len(r.Unfinished) > 0 {
		log = log.With("unfinished", r.Unfinished[:min(len(r.Unfinished), maxNamed)])
	}
	switch {
	case err != nil && chat.CodeOf(err) == chat.CodeInternal:
		log.ErrorContext(ctx, "audit", "err", err)
	case err != nil:
		log.WarnContext(ctx, "audit", "err", err)
	case total > 0:
		log.ErrorContext(ctx, "audit")
	case len(r.Unfinished) > 0:
		log.WarnContext(ctx, "audit")
	default:
		log.InfoContext(ctx, "audit")
	}
}
