package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/letter"
	"github.com/inorder-im/inorder/shared/store"
)

const (
	// hideFor is how long a letter that is being replayed is hidden from others, in
	// seconds.
	hideFor = 300

	// giveBackTimeout bounds how long an end takes, also one by Ctrl-C.
	giveBackTimeout = 10 * time.Second

	// recordsPerInvocation is the batch size of the mapping in template.yaml.
	recordsPerInvocation = 100

	// clockSkew is how far the times of changes are apart from those of the stream.
	clockSkew = time.Minute
)

func replayCommand() command {
	return command{
		name: "replay", about: "pushes again what the fan-out gave up",
		help: `Reads the dead-letter queue. A letter is a conversation that could not be served for a
day, and goes back into the queue from which the fan-out tries it; or it says where in the
stream the changes are, and within 24 hours they are read from there and given to the
fan-out. Pushing twice is harmless. A letter is deleted when that succeeded.

Older letters have lost their changes, and the messages are not lost with them: devices
get them when they sync. With -raise the members of the conversations whose last change
was at that time are told so at their devices' next start, by their sync heads.

Without -yes it only says what there is.`,
		prepare: func(flags *flag.FlagSet) func(context.Context, *session, []string) error {
			yes := flags.Bool("yes", false, "do it")
			raise := flags.Bool("raise", false, "raise sync heads for letters that are too old to replay")
			return func(ctx context.Context, s *session, _ []string) error {
				queue, err := s.resource("DeadLetters")
				if err != nil {
					return err
				}
				retries, err := s.resource("Retries")
				if err != nil {
					return err
				}
				return (&replay{session: s, queue: queue, retries: retries, yes: *yes, raise: *raise}).run(ctx)
			}
		},
	}
}

// replay is one run over the dead-letter queue.
type replay struct {
	*session
	queue      string // its URL
	retries    string // that of the queue that the fan-out tries again from
	yes, raise bool
	seen       []string           // messageIds
	held       []sqstypes.Message // letters that are hidden from others, and not deleted
	left       int                // of these, those that failed or are too old
}

// outcome is what became of a letter.
type outcome struct {
	MessageID string    `json:"messageId"`
	Outcome   string    `json:"outcome"` // replayed, requeued, raised, tooOld, failed; in a dry run replayable or tooOld
	Condition string    `json:"condition"`
	From      time.Time `json:"from"`
	To        time.Time `json:"to"`
	Changes   int       `json:"changes"` // of the batch
	Detail    string    `json:"detail,omitempty"`
}

func (r *replay) run(ctx context.Context) (err error) {
	t := r.table("letter", "outcome", "condition", "from", "to", "changes", "")
	// Also of a run that breaks off one can see what it did.
	defer func() { err = errors.Join(err, t.flush(), r.giveBack(context.WithoutCancel(ctx))) }()
	for {
		letters, more, err := r.receive(ctx)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		for _, m := range letters {
			o := r.one(ctx, m)
			if err := ctx.Err(); err != nil && o.Outcome == "failed" {
				return err
			}
			if o.Outcome == "failed" || o.Outcome == "tooOld" {
				r.left++
			}
			if err := t.row(o, o.MessageID, o.Outcome, o.Condition, clock(o.From.UnixMilli()), clock(o.To.UnixMilli()), o.Changes, o.Detail); err != nil {
				return err
			}
		}
	}
	switch {
	case len(r.seen) == 0:
		r.note("there are no dead letters")
	case !r.yes:
		r.note("nothing was changed; do it with -yes")
	case r.left > 0:
		return fmt.Errorf("%d of %d letters stay in the queue", r.left, len(r.seen))
	}
	return nil
}

// receive returns letters that this run has not seen. more is false once none is visible:
// those that it has seen are hidden again, and known by their newest handle.
func (r *replay) receive(ctx context.Context) (fresh []sqstypes.Message, more bool, err error) {
	out, err := r.queues.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &r.queue, MaxNumberOfMessages: 10, VisibilityTimeout: hideFor, WaitTimeSeconds: 1,
	})
	if err != nil {
		return nil, false, fmt.Errorf("reading the dead-letter queue: %w", err)
	}
	for _, m := range out.Messages {
		if id := aws.ToString(m.MessageId); !slices.Contains(r.seen, id) {
			r.seen, fresh = append(r.seen, id), append(fresh, m)
		}
		r.held = append(slices.DeleteFunc(r.held, func(held sqstypes.Message) bool { return aws.ToString(held.MessageId) == aws.ToString(m.MessageId) }), m)
	}
	return fresh, len(out.Messages) > 0, nil
}

// giveBack makes the letters that stay visible to the next run. It is for the end:
// this run would receive them again and again.
func (r *replay) giveBack(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, giveBackTimeout)
	defer cancel()
	failures := 0
	var last error
	for _, m := range r.held {
		_, err := r.queues.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
			QueueUrl: &r.queue, ReceiptHandle: m.ReceiptHandle, VisibilityTimeout: 0,
		})
		if _, visible := errors.AsType[*sqstypes.MessageNotInflight](err); err != nil && !visible {
			failures, last = failures+1, err
		}
	}
	if last != nil {
		return fmt.Errorf("giving %d letters back to the queue, where they are hidden for %d seconds: %w", failures, hideFor, last)
	}
	return nil
}

// one deals with a letter.
func (r *replay) one(ctx context.Context, m sqstypes.Message) outcome {
	o := outcome{MessageID: aws.ToString(m.MessageId)}
	l, err := letter.Parse(aws.ToString(m.Body))
	if aside, ok := conversationOf(aws.ToString(m.Body)); ok {
		o.Condition, o.Changes = "SetAside", 1
		o.Outcome, o.Detail, err = r.requeue(ctx, aside)
	} else if err == nil {
		o.Condition, o.From, o.To, o.Changes = l.RequestContext.Condition, l.Batch.First, l.Batch.Last, l.Batch.Size
		o.Outcome, o.Detail, err = r.deal(ctx, l)
	}
	if err != nil {
		o.Outcome, o.Detail = "failed", err.Error()
	}
	if o.Outcome == "replayed" || o.Outcome == "requeued" || o.Outcome == "raised" {
		if _, err := r.queues.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &r.queue, ReceiptHandle: m.ReceiptHandle}); err != nil {
			o.Outcome, o.Detail = "failed", fmt.Sprintf("it was %s, and could not be deleted: %v", o.Outcome, err)
			return o
		}
		r.held = slices.DeleteFunc(r.held, func(held sqstypes.Message) bool { return held.MessageId == m.MessageId })
	}
	return o
}

// conversationOf reads a conversation that the fan-out set aside, to be tried as
// often as one that has just failed.
func conversationOf(body string) (aside map[string]any, ok bool) {
	if json.Unmarshal([]byte(body), &aside) != nil || aside["conversationId"] == nil {
		return nil, false
	}
	aside["attempts"] = 0
	return aside, true
}

// requeue gives a conversation back to the fan-out's queue.
func (r *replay) requeue(ctx context.Context, aside map[string]any) (is, detail string, err error) {
	detail = fmt.Sprintf("%v, which failed with: %v", aside["conversationId"], aside["err"])
	if !r.yes {
		return "replayable", detail, nil
	}
	body, err := json.Marshal(aside)
	if err != nil {
		return "", "", err
	}
	if _, err := r.queues.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: &r.retries, MessageBody: aws.String(string(body))}); err != nil {
		return "", "", fmt.Errorf("putting %v back into the queue: %w", aside["conversationId"], err)
	}
	return "requeued", detail, nil
}

func (r *replay) deal(ctx context.Context, l letter.Letter) (is, detail string, err error) {
	records, err := l.Records(ctx, r.streams)
	switch {
	case errors.Is(err, letter.ErrTooOld) && r.raise && r.yes:
		if detail, err = r.raiseHeads(ctx, l); err != nil {
			return "", "", err
		}
		return "raised", detail, nil
	case errors.Is(err, letter.ErrTooOld):
		return "tooOld", "devices learn of it when they sync; -raise tells them to", nil
	case err != nil:
		return "", "", err
	case !r.yes:
		return "replayable", fmt.Sprintf("%d changes are in the stream there", len(records)), nil
	}
	for batch := range slices.Chunk(records, recordsPerInvocation) {
		if err := r.push(ctx, l.Batch.StreamARN, batch); err != nil {
			return "", "", err
		}
	}
	return "replayed", fmt.Sprintf("%d changes", len(records)), nil
}

// push gives changes to the fan-out.
func (r *replay) push(ctx context.Context, streamARN string, records []streamtypes.Record) error {
	changes := make([]json.RawMessage, len(records))
	for i, record := range records {
		var err error
		if changes[i], err = letter.Change(streamARN, record); err != nil {
			return err
		}
	}
	answer, err := r.invoke(ctx, "FanoutFunction", letter.Event(changes...))
	if err != nil {
		return err
	}
	var failures struct {
		BatchItemFailures []json.RawMessage `json:"batchItemFailures"`
	}
	if err := json.Unmarshal(answer, &failures); err != nil {
		return fmt.Errorf("the answer of FanoutFunction: %w", err)
	}
	if n := len(failures.BatchItemFailures); n > 0 {
		return fmt.Errorf("the fan-out failed again on %d of %d changes; its log says why", n, len(records))
	}
	return nil
}

// raiseHeads tells the members of the conversations that did not change since.
// Whoever changed later was told with that change. Of large ones devices read the head
// whenever they ask, if they are listed for them, which the join that was lost did not do.
func (r *replay) raiseHeads(ctx context.Context, l letter.Letter) (string, error) {
	conversations, users, failed := 0, 0, 0
	var last error
	err := r.operator.ChangedBetween(ctx, l.Batch.First.Add(-clockSkew).UnixMilli(), l.Batch.Last.Add(clockSkew).UnixMilli(), func(head chat.Conversation) error {
		told, err := r.raiseHeadsOf(ctx, head)
		if told > 0 {
			conversations, users = conversations+1, users+told
		}
		if err != nil {
			failed, last = failed+1, fmt.Errorf("%s: %w", head.ConversationID, err)
		}
		return ctx.Err()
	})
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d conversations could not be told of, at last %w", failed, last)
	}
	return fmt.Sprintf("%d sync heads, for %d conversations", users, conversations), err
}

// raiseHeadsOf tells the members of a conversation. One whom it cannot tell keeps no other
// from being told.
func (r *replay) raiseHeadsOf(ctx context.Context, head chat.Conversation) (told int, err error) {
	if head.MemberCount > chat.InboxGroupMax {
		return r.operator.Relist(ctx, head.ConversationID)
	}
	members, err := r.store.Roster(ctx, head.ConversationID)
	if err != nil {
		return 0, err
	}
	for _, m := range members {
		_, failed := r.store.Raise(ctx, m.UserID, []chat.ConversationID{head.ConversationID})
		if failed != nil && !store.Permanent(failed) {
			err = fmt.Errorf("telling %s: %w", m.UserID, failed)
		} else {
			told++
		}
		if ctx.Err() != nil {
			break
		}
	}
	return told, err
}
