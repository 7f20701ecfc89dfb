package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	streamtypes "github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/letter"
	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/store"
)

// aside is a conversation that could not be served, as a message of the queue. It
// has all that the stream told, so that it does not depend on the stream's 24
// hours.
type aside struct {
	ConversationID chat.ConversationID `json:"conversationId"`
	FromSeq        int64               `json:"fromSeq"`
	ToSeq          int64               `json:"toSeq"`
	MembersVersion int64               `json:"membersVersion"`
	MembersBefore  int64               `json:"membersBefore"`
	RosterChanged  bool                `json:"rosterChanged,omitempty"`
	Members        int64               `json:"members,omitempty"`
	CommittedAt    int64               `json:"committedAt"`      // ms
	Attempts       int                 `json:"attempts"`         // that were made from the queue
	Err            string              `json:"err"`              // of the last one
	Unread         []string            `json:"unread,omitempty"` // who alone is to be told; none: all
}

func (a aside) conversation() *conversation {
	c := &conversation{
		id: a.ConversationID, news: chat.Range{From: a.FromSeq, To: a.ToSeq}, membersVersion: a.MembersVersion,
		membersBefore: a.MembersBefore, rosterChanged: a.RosterChanged, committedAt: a.CommittedAt, attempts: a.Attempts,
		members: a.Members, unread: a.Unread,
	}
	if a.Members > chat.MaxGroupMembers {
		c.rounds = []dueRound{{from: a.FromSeq}} // at once, whether it was the round that failed or not
	}
	return c
}

const (
	// maxAttempts of which each waits twice as long as the one before, from a second
	// to 15 minutes, take a day.
	maxAttempts = 105
	maxDelay    = 15 * time.Minute

	// lasting is after how many attempts, a quarter of an hour, a failure is an error, of
	// which an alarm tells. One that passes is none: a partition that is throttled for
	// seconds, as one user can have it, has a conversation set aside.
	lasting = 10

	maxReason = 1000 // bytes of an error that go along
	maxUnread = 100  // users who go along: as many as one request looks up
)

// setAside puts the conversations that failed into the queue, from which they come
// back one by one, and returns those that could not be put there either. What
// fails for good, and what has failed for a day, is left to an operator.
func (h handler) setAside(ctx context.Context, conversations []*conversation, failed map[chat.ConversationID]error) (stuck []*conversation) {
	ctx, cancel := context.WithTimeout(ctx, asideBudget)
	defer cancel()
	var mu sync.Mutex
	each(slices.All(conversations), func(_ int, c *conversation) {
		err := failed[c.id]
		if err == nil {
			return
		}
		about := []slog.Attr{metric.Conversation(c.id), metric.Seq(c.news.To), slog.Int("attempts", c.attempts), slog.Any("err", err)}
		level := slog.LevelWarn
		if c.attempts >= lasting || store.Permanent(err) {
			level = slog.LevelError
		}
		if lost := h.put(ctx, c, err); lost != nil {
			level = slog.LevelError
			mu.Lock()
			stuck = append(stuck, c)
			mu.Unlock()
			about = append(about, slog.Any("lost", lost))
		}
		h.log.LogAttrs(ctx, level, "a conversation failed", about...)
	})
	return stuck
}

func (h handler) put(ctx context.Context, c *conversation, err error) error {
	body, encoding := json.Marshal(asideOf(c, err))
	if encoding != nil {
		return encoding
	}
	if c.attempts >= maxAttempts || store.Permanent(err) {
		return h.queue.Bury(ctx, string(body))
	}
	return h.queue.Retry(ctx, string(body), min(time.Second<<min(c.attempts, 10), maxDelay))
}

func asideOf(c *conversation, err error) aside {
	reason, unread := err.Error(), c.unread
	if part, ok := errors.AsType[*store.UnreadError](err); ok && len(part.UserIDs) <= maxUnread {
		unread = part.UserIDs
	}
	return aside{
		ConversationID: c.id, FromSeq: c.news.From, ToSeq: c.news.To, MembersVersion: c.membersVersion, MembersBefore: c.membersBefore,
		RosterChanged: c.rosterChanged, Members: c.members, CommittedAt: c.committedAt, Attempts: c.attempts + 1, Err: reason[:min(len(reason), maxReason)],
		Unread: unread,
	}
}

// retry serves what was set aside, or given up by the stream's mapping. The
// mapping of the queue hands over one message at a time. With an error the message
// comes back once its time of invisibility is over.
func (h handler) retry(ctx context.Context, event events.SQSEvent) error {
	var errs []error
	for _, m := range event.Records {
		errs = append(errs, h.retryOne(ctx, m.Body))
	}
	return errors.Join(errs...)
}

func (h handler) retryOne(ctx context.Context, body string) error {
	if r, ok := roundOf(body); ok {
		return h.deliver(ctx, r)
	}
	var a aside
	if err := json.Unmarshal([]byte(body), &a); err == nil && a.ConversationID != "" {
		return h.again(ctx, a)
	}
	l, err := letter.Parse(body)
	if err != nil {
		h.passOver(ctx, err)
		return h.queue.Bury(ctx, body)
	}
	changes, err := l.Records(ctx, h.streams)
	if errors.Is(err, letter.ErrTooOld) {
		h.passOver(ctx, err, slog.String("from", l.Batch.Start), slog.String("to", l.Batch.End))
		return h.queue.Bury(ctx, body)
	}
	if err != nil {
		return err
	}
	// A batch may fail as a whole for one of its conversations: each by itself.
	conversations, _, poison := read(h.delivered(ctx, l.Batch.StreamARN, changes))
	for sequenceNumber, err := range poison {
		h.passOver(ctx, err, slog.String("sequenceNumber", sequenceNumber))
	}
	for _, c := range conversations {
		if err := h.put(ctx, c, errGivenUp); err != nil {
			return fmt.Errorf("setting %s aside: %w", c.id, err)
		}
	}
	return nil
}

var errGivenUp = errors.New("the stream's mapping gave the changes up")

// again serves a conversation that was set aside.
func (h handler) again(ctx context.Context, a aside) error {
	start := h.now()
	conversations := []*conversation{a.conversation()}
	b, all, tally := h.serve(ctx, conversations, stepTimeout)
	stuck := h.setAside(ctx, conversations, b.failed)
	tally.aside = len(b.failed) - len(stuck)
	h.record(ctx, nil, all, tally, len(stuck), start)
	if len(stuck) > 0 {
		return fmt.Errorf("conversation %s is neither served nor set aside again: %w", a.ConversationID, b.failed[a.ConversationID])
	}
	return nil
}

// delivered returns changes as the mapping hands them over. It passes over what has
// no such form.
func (h handler) delivered(ctx context.Context, streamARN string, changes []streamtypes.Record) []events.DynamoDBEventRecord {
	var records []events.DynamoDBEventRecord
	for _, c := range changes {
		var r events.DynamoDBEventRecord
		data, err := letter.Change(streamARN, c)
		if err == nil {
			err = json.Unmarshal(data, &r)
		}
		if err != nil {
			h.passOver(ctx, err, slog.String("sequenceNumber", aws.ToString(c.Dynamodb.SequenceNumber)))
			continue
		}
		records = append(records, r)
	}
	return records
}
