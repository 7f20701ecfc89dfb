package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/aws/aws-lambda-go/events"

	"github.com/inorder-im/inorder/shared/metric"
)

// record writes the line of a batch. It names one conversation, the one with the
// most news; most batches have no other. At debug level each has a line.
func (h handler) record(ctx context.Context, records []events.DynamoDBEventRecord, all []news, t tally, failures int, start time.Time) {
	entries := 0
	var busiest news
	for _, n := range all {
		entries += len(n.entries)
		if busiest.conversation == nil || n.news.To-n.news.From > busiest.news.To-busiest.news.From {
			busiest = n
		}
		h.log.DebugContext(ctx, "pushed", "conversationId", n.id, "fromSeq", n.news.From, "seq", n.news.To, "users", len(n.windows))
	}
	attrs := []slog.Attr{
		slog.Int("records", len(records)), slog.Int("conversations", len(all)), slog.Int("entries", entries),
		metric.Count(metric.Pushes, t.pushes), metric.Count(metric.GoneConnections, t.gone), metric.Count(metric.PushFailures, t.unpushed),
		metric.Count(metric.SetAside, t.aside), slog.Int("failures", failures), slog.Int("expired", t.expired), slog.Int64("ms", h.now().Sub(start).Milliseconds()),
		metric.Millis(metric.StreamAge, streamAge(records, start)...),
	}
	if busiest.conversation != nil {
		attrs = append(attrs, metric.Conversation(busiest.id), metric.Seq(busiest.news.To))
	}
	if t.pushes > 0 {
		attrs = append(attrs, metric.Millis(metric.CommitToPush, commitToPush(all, h.now())...))
	}
	level := slog.LevelInfo
	if t.firstErr != nil {
		level = slog.LevelWarn
		attrs = append(attrs, slog.Any("err", t.firstErr))
	}
	h.log.LogAttrs(ctx, level, "batch", attrs...)
}

// streamAge is how old the batch's oldest change was when it came here.
func streamAge(records []events.DynamoDBEventRecord, now time.Time) []time.Duration {
	var oldest time.Time
	for _, r := range records {
		if at := r.Change.ApproximateCreationDateTime.Time; !at.IsZero() && (oldest.IsZero() || at.Before(oldest)) {
			oldest = at
		}
	}
	if oldest.IsZero() {
		return nil
	}
	return []time.Duration{now.Sub(oldest)}
}

// commitToPush is how long the newest entry of each conversation took from its
// serverTime until all was posted.
func commitToPush(all []news, now time.Time) []time.Duration {
	var took []time.Duration
	for _, n := range all {
		if n.committedAt > 0 {
			took = append(took, now.Sub(time.UnixMilli(n.committedAt)))
		}
	}
	return took
}

// inspect looks for what must never be in what was read anyway: it costs no
// request. Each finding is a line of its own, with the metric that sets off the
// alarm.
func (h handler) inspect(ctx context.Context, all []news, back []change) {
	for _, ch := range back {
		h.log.LogAttrs(ctx, slog.LevelError, "a head went back", metric.Conversation(ch.conversationID), metric.Seq(ch.newSeq),
			slog.Int64("before", ch.oldSeq), metric.Count(metric.InvariantSeqWentBack, 1))
	}
	written := map[idempotencyKey]string{} // the messageId
	for _, n := range all {
		last := int64(0)
		for _, m := range n.entries {
			about := []slog.Attr{metric.Conversation(n.id), metric.Seq(m.Seq), slog.String("messageId", m.MessageID)}
			if m.Seq <= last {
				h.log.LogAttrs(ctx, slog.LevelError, "a seq has two entries", append(about, metric.Count(metric.InvariantDuplicateSeq, 1))...)
			}
			last = m.Seq
			key := idempotencyKey{m.SenderID, m.ClientMsgID}
			if other := written[key]; other != "" {
				h.log.LogAttrs(ctx, slog.LevelError, "a clientMsgId has two entries", append(about,
					slog.String("other", other), metric.Count(metric.InvariantIdempotency, 1))...)
			}
			written[key] = m.MessageID
		}
	}
}

// idempotencyKey is what stands for at most one entry.
type idempotencyKey struct{ senderID, clientMsgID string }
