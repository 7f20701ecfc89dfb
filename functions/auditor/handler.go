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

	"inorder/shared/chat"
	"inorder/shared/metric"
	"inorder/shared/store"
)

type storage interface {
	AuditSample(ctx context.Context, messages int) (store.AuditReport, error)
	AuditConversation(ctx context.Context, conversationID string) (store.AuditReport, error)
	AuditAll(ctx context.Context, after store.AuditCursor) (store.AuditReport, error)
	RepairHead(ctx context.Context, conversationID string, margin int64) (store.Repair, error)
	Relist(ctx context.Context, conversationID string) (users int, err error)
}

type handler struct {
	store     storage
	messages  int  // of a sample
	mayRepair bool // whether this stack lets its heads be repaired
	log       *slog.Logger
}

// request is the event of a direct invocation. An empty one, and the event of a
// schedule, asks for a sample.
type request struct {
	Messages       int                `json:"messages"`       // of the sample, instead of the configured number
	ConversationID string             `json:"conversationId"` // the whole of one conversation instead
	All            bool               `json:"all"`            // everything instead
	After          *store.AuditCursor `json:"after"`          // with all: next of the report before

	// Repair raises the head of the conversation, if it is behind its ledger, to
	// the ledger's last seq and Margin, and lists a large conversation where it is
	// not listed, before the audit.
	Repair bool   `json:"repair"`
	Margin *int64 `json:"margin"`
}

// report is the function's answer.
type report struct {
	store.AuditReport
	Repair   *store.Repair `json:"repair,omitempty"`
	Relisted int           `json:"relisted,omitempty"` // members for whom a large conversation was not listed
}

// handle answers with the report: what was looked at, and each violation with what
// to do about it. Violations are no error of the function; a refused request, or
// tables that cannot be read, are.
func (h handler) handle(ctx context.Context, event json.RawMessage) (report, error) {
	start := time.Now()
	r, err := h.audit(ctx, event)
	h.record(ctx, r, err, time.Since(start))
	return r, err
}

func (h handler) audit(ctx context.Context, event json.RawMessage) (r report, err error) {
	req, err := read(event)
	if err != nil {
		return report{}, err
	}
	switch {
	case req.Repair:
		if !h.mayRepair {
			return report{}, chat.FieldErrorf(chat.Forbidden, "repair",
				"this stack does not allow repairs; deploy it with the parameter AuditRepair=on for as long as it takes")
		}
		repair, err := h.store.RepairHead(ctx, req.ConversationID, *req.Margin)
		if err != nil {
			return report{}, err
		}
		h.log.WarnContext(ctx, "repair", "conversationId", repair.ConversationID, "changed", repair.Changed,
			"before", repair.Before, "maxSeq", repair.MaxSeq, "after", repair.After)
		r.Repair = &repair
		if r.Relisted, err = h.store.Relist(ctx, req.ConversationID); err != nil {
			return r, err
		}
		fallthrough
	case req.ConversationID != "":
		r.AuditReport, err = h.store.AuditConversation(ctx, req.ConversationID)
	case req.All:
		var after store.AuditCursor
		if req.After != nil {
			after = *req.After
		}
		r.AuditReport, err = h.store.AuditAll(ctx, after)
	default:
		messages := h.messages
		if req.Messages != 0 {
			messages = req.Messages
		}
		r.AuditReport, err = h.store.AuditSample(ctx, messages)
	}
	return r, err
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
		return request{}, chat.Errorf(chat.BadRequest, "the event is {}, or has messages, conversationId, all, after, repair, margin: %v", err)
	}
	if r.ConversationID != "" {
		if err := chat.ValidateConversationID("conversationId", r.ConversationID); err != nil {
			return request{}, err
		}
	}
	switch {
	case r.Messages < 0:
		return request{}, chat.FieldErrorf(chat.BadRequest, "messages", "a sample has at least 1 message")
	case r.All && r.ConversationID != "", r.Messages != 0 && (r.All || r.ConversationID != ""):
		return request{}, chat.Errorf(chat.BadRequest, "ask for one of messages, conversationId and all")
	case r.After != nil && !r.All:
		return request{}, chat.FieldErrorf(chat.BadRequest, "after", "after goes with all")
	case r.Repair && r.ConversationID == "":
		return request{}, chat.FieldErrorf(chat.BadRequest, "conversationId", "a repair is of one conversation")
	case r.Repair && r.Margin == nil:
		return request{}, chat.FieldErrorf(chat.BadRequest, "margin",
			"say how many seqs to leave out: 0 if no message was lost, else more than devices may have seen beyond the ledger")
	case r.Margin != nil && !r.Repair:
		return request{}, chat.FieldErrorf(chat.BadRequest, "margin", "a margin goes with repair")
	}
	return r, nil
}

// invariants are the metrics that the kinds of violations count in.
var invariants = map[store.ViolationKind]metric.Name{
	store.HeadMissing:      metric.InvariantHead,
	store.HeadBehind:       metric.InvariantHead,
	store.MemberCountWrong: metric.InvariantHead,
	store.RosterWrong:      metric.InvariantHead,
	store.LineMissing:      metric.InvariantHead,
	store.LargeNotListed:   metric.InvariantHead,
	store.SyncHeadWrong:    metric.InvariantHead,
	store.LineFormer:       metric.InvariantHead,
	store.LineOrphaned:     metric.InvariantHead,
	store.HeadAhead:        metric.InvariantHole,
	store.Hole:             metric.InvariantHole,
	store.DuplicateMessage: metric.InvariantIdempotency,
	store.DuplicateKey:     metric.InvariantIdempotency,
	store.RecordMissing:    metric.InvariantIdempotency,
	store.RecordMismatch:   metric.InvariantIdempotency,
	store.PositionAhead:    metric.InvariantPosition,
	store.EventTarget:      metric.InvariantRevision,
	store.NotBlank:         metric.InvariantRevision,
}

// record writes the report's log line, and one for each violation. They have
// nothing of what messages say.
func (h handler) record(ctx context.Context, r report, err error, took time.Duration) {
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
	switch {
	case err != nil && chat.CodeOf(err) == chat.Internal:
		log.ErrorContext(ctx, "audit", "err", err)
	case err != nil:
		log.WarnContext(ctx, "audit", "err", err)
	case total > 0:
		log.ErrorContext(ctx, "audit")
	default:
		log.InfoContext(ctx, "audit")
	}
}
