package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"inorder/infra/local/stream"
	"inorder/shared/chat"
)

const (
	// hideFor is how long a letter that is being replayed is hidden from others, in
	// seconds.
	hideFor = 300

	// giveBackTimeout bounds how long an end takes, also one by Ctrl-C.
	giveBackTimeout = 10 * time.Second

	// recordsPerInvocation is the batch size of the mapping in template.yaml.
	recordsPerInvocation = 100

	// emptyPages is after how many pages without records in a row the end of a batch
	// is taken for gone: GetRecords may give some.
	emptyPages = 20

	// clockSkew is how far the times of changes are apart from those of the stream.
	clockSkew = time.Minute
)

func replayCommand() command {
	return command{
		name: "replay", about: "pushes again what the fan-out gave up",
		help: `Reads the dead-letter queue. A letter says where in the stream the changes are that could
not be pushed; within 24 hours they are read from there and given to the fan-out again,
which pushes them. Pushing twice is harmless. A letter is deleted when that succeeded.

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
				return (&replay{session: s, queue: queue, yes: *yes, raise: *raise}).run(ctx)
			}
		},
	}
}

// replay is one run over the dead-letter queue.
type replay struct {
	*session
	queue      string // its URL
	yes, raise bool
	seen       []string           // messageIds
	held       []sqstypes.Message // letters that are hidden from others, and not deleted
	left       int                // of these, those that failed or are too old
}

// letter is what Lambda sends to the on-failure destination of a stream (Lambda
// developer guide, "Retaining discarded batches"): where the records are, and not
// the records.
type letter struct {
	RequestContext struct {
		Condition              string `json:"condition"`
		ApproximateInvokeCount int    `json:"approximateInvokeCount"`
	} `json:"requestContext"`
	Batch struct {
		ShardID   string    `json:"shardId"`
		Start     string    `json:"startSequenceNumber"`
		End       string    `json:"endSequenceNumber"`
		First     time.Time `json:"approximateArrivalOfFirstRecord"`
		Last      time.Time `json:"approximateArrivalOfLastRecord"`
		Size      int       `json:"batchSize"`
		StreamARN string    `json:"streamArn"`
	} `json:"DDBStreamBatchInfo"`
}

// outcome is what became of a letter.
type outcome struct {
	MessageID string    `json:"messageId"`
	Outcome   string    `json:"outcome"` // replayed, raised, tooOld, failed; in a dry run replayable or tooOld
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
		letters, err := r.receive(ctx)
		if err != nil {
			return err
		}
		if len(letters) == 0 {
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

// receive gives letters that this run has not seen.
func (r *replay) receive(ctx context.Context) ([]sqstypes.Message, error) {
	out, err := r.queues.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: &r.queue, MaxNumberOfMessages: 10, VisibilityTimeout: hideFor, WaitTimeSeconds: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("reading the dead-letter queue: %w", err)
	}
	fresh := slices.DeleteFunc(out.Messages, func(m sqstypes.Message) bool { return slices.Contains(r.seen, aws.ToString(m.MessageId)) })
	for _, m := range fresh {
		r.seen = append(r.seen, aws.ToString(m.MessageId))
	}
	r.held = append(r.held, fresh...)
	return fresh, nil
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
	var l letter
	err := json.Unmarshal([]byte(aws.ToString(m.Body)), &l)
	if err == nil && l.Batch.StreamARN == "" {
		err = errors.New("it is no letter of a stream's mapping")
	}
	if err == nil {
		o.Condition, o.From, o.To, o.Changes = l.RequestContext.Condition, l.Batch.First, l.Batch.Last, l.Batch.Size
		o.Outcome, o.Detail, err = r.deal(ctx, l)
	}
	if err != nil {
		o.Outcome, o.Detail = "failed", err.Error()
	}
	if o.Outcome == "replayed" || o.Outcome == "raised" {
		if _, err := r.queues.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &r.queue, ReceiptHandle: m.ReceiptHandle}); err != nil {
			o.Outcome, o.Detail = "failed", fmt.Sprintf("it was %s, and could not be deleted: %v", o.Outcome, err)
			return o
		}
		r.held = slices.DeleteFunc(r.held, func(held sqstypes.Message) bool { return held.MessageId == m.MessageId })
	}
	return o
}

func (r *replay) deal(ctx context.Context, l letter) (is, detail string, err error) {
	records, err := r.records(ctx, l)
	switch {
	case errors.Is(err, errTooOld) && r.raise && r.yes:
		detail, err = r.raiseHeads(ctx, l)
		return "raised", detail, err
	case errors.Is(err, errTooOld):
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

// errTooOld says that the stream does not have the records any more.
var errTooOld = errors.New("the stream keeps changes for 24 hours")

// records reads the changes of a batch from the stream. Others that lie between
// them come with them: a batch is of some conversations, a range of all.
func (r *replay) records(ctx context.Context, l letter) ([]streamtypes.Record, error) {
	it, err := r.streams.GetShardIterator(ctx, &dynamodbstreams.GetShardIteratorInput{
		StreamArn: &l.Batch.StreamARN, ShardId: &l.Batch.ShardID,
		ShardIteratorType: streamtypes.ShardIteratorTypeAtSequenceNumber, SequenceNumber: &l.Batch.Start,
	})
	if gone(err) {
		return nil, errTooOld
	}
	if err != nil {
		return nil, fmt.Errorf("finding the changes in the stream: %w", err)
	}
	var records []streamtypes.Record
	for next, empty := it.ShardIterator, 0; next != nil && empty < emptyPages; empty++ {
		page, err := r.streams.GetRecords(ctx, &dynamodbstreams.GetRecordsInput{ShardIterator: next})
		if gone(err) {
			return nil, errTooOld
		}
		if err != nil {
			return nil, fmt.Errorf("reading the changes from the stream: %w", err)
		}
		for _, record := range page.Records {
			empty = 0
			switch order := compare(aws.ToString(record.Dynamodb.SequenceNumber), l.Batch.End); {
			case order < 0:
				records = append(records, record)
			case order == 0:
				return append(records, record), nil
			default:
				return records, nil
			}
		}
		next = page.NextShardIterator
	}
	if len(records) == 0 {
		return nil, errTooOld
	}
	return nil, fmt.Errorf("the stream has changes after %s, and not those up to %s", l.Batch.Start, l.Batch.End)
}

func gone(err error) bool {
	_, trimmed := errors.AsType[*streamtypes.TrimmedDataAccessException](err)
	_, absent := errors.AsType[*streamtypes.ResourceNotFoundException](err)
	return trimmed || absent
}

// compare orders two sequence numbers, which have up to 40 digits.
func compare(a, b string) int {
	x, _ := new(big.Int).SetString(a, 10)
	y, _ := new(big.Int).SetString(b, 10)
	if x == nil || y == nil {
		return strings.Compare(a, b) // no numbers
	}
	return x.Cmp(y)
}

// push gives changes to the fan-out.
func (r *replay) push(ctx context.Context, streamARN string, records []streamtypes.Record) error {
	event, err := stream.Event(streamARN, records)
	if err != nil {
		return err
	}
	answer, err := r.invoke(ctx, "FanoutFunction", event)
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
// Whoever changed later was told with that change; of large ones devices read the
// head whenever they ask.
func (r *replay) raiseHeads(ctx context.Context, l letter) (string, error) {
	conversations, users := 0, 0
	err := r.store.ChangedBetween(ctx, l.Batch.First.Add(-clockSkew).UnixMilli(), l.Batch.Last.Add(clockSkew).UnixMilli(), func(head chat.Conversation) error {
		if head.MemberCount > chat.InboxGroupMax {
			return nil
		}
		members, err := r.store.Roster(ctx, head.ConversationID)
		if err != nil {
			return err
		}
		for _, m := range members {
			if _, err := r.store.Raise(ctx, m.UserID, []string{head.ConversationID}); err != nil {
				return err
			}
		}
		conversations, users = conversations+1, users+len(members)
		return nil
	})
	return fmt.Sprintf("%d sync heads, for %d conversations", users, conversations), err
}
