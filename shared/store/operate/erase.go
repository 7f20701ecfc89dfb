package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/internal/table"
)

// Erasure counts what EraseUser has blanked, or in a dry run would blank.
type Erasure struct {
	Conversations int   `json:"conversations"` // of the user, looked through
	Scanned       int64 `json:"scanned"`       // messages looked at, of everyone
	Messages      int64 `json:"messages"`      // messages of the user that had content
	Edits         int64 `json:"edits"`         // events of edits that had content
	Devices       int64 `json:"devices"`       // messages and events that named a device
	Events        int   `json:"events"`        // events written, each of which tells the devices of a conversation
	Connections   bool  `json:"connections"`   // whether there were any

	// What was passed over, and still has content. The log names each.
	Damaged int64 `json:"damaged"` // messages and events of the user that cannot be read or written
	Untold  int   `json:"untold"`  // conversations whose devices could not be told, for a reason that lies in them

	// After is the last conversation that was looked through. An erasure that broke
	// off goes on after it.
	After chat.ConversationID `json:"after,omitempty"`
}

// Whole reports whether nothing was passed over.
func (e Erasure) Whole() bool { return e.Damaged == 0 && e.Untold == 0 }

// erased stands where the fingerprint of a message stood: from the fingerprint, a
// short text could be guessed.
const erased = "erased"

// EraseUser takes the content out of everything that a user has sent, in all
// conversations that are or were the user's, after one of them ("" for all).
// Unless act is true it only counts.
//
// A message stays where it is, under its seq and messageId, with status recalled
// and the next version: ledgers stay dense, every device passes it, and a retry of
// the user's does not send it again. Events of edits lose the text they carry, and
// everything the user sent the device it came from. The lines in rosters and
// inboxes stay, for without them the conversations of others would not be whole. So
// do the idempotency records of messages that retention has deleted, with their
// fingerprints, for recordGrace: nothing leads to them any more.
//
// Devices are told by an event in each ledger that has anything to blank: what the
// user has sent before it has no content any more (see chat.Message.Erased). It has
// its place among the messages, so whichever way a device reads them, by pushes, sync
// or history, and however late, it has met the messages when it meets the event, and
// needs to read nothing again. An event of each message would double the ledgers, and
// a number on the head that makes devices read again would cost reading them whole.
// The event is written also where the user has left and where a group is dissolved.
// It never expires: who was away for longer than messages are kept still hears of it.
//
// It is written before anything is blanked. So a run that breaks off leaves content
// that the next one finds, and never blank messages of which no device was told.
//
// Each write is conditional on the version that was read, so it never undoes an
// edit: it reads again and takes the edit's content too, and that of its event.
// What is blank already is passed over, so it may be repeated at will, and has to
// be if the user goes on writing meanwhile. progress is called after each page.
//
// What cannot be erased as it is, one message or one conversation, keeps its content and
// nothing else from being erased (G10). It is counted, and erased by a run that comes
// once it is mended. Of a damaged message devices are told as of any other: the server
// shows it to nobody, and they may hold it.
func (o *Operator) EraseUser(ctx context.Context, userID string, after chat.ConversationID, act bool, progress func(Erasure)) (Erasure, error) {
	e := eraser{Operator: o, userID: userID, act: act, progress: progress}
	e.done.After = after
	for {
		lines, next, err := o.LinesOf(ctx, userID, string(after), auditPage)
		if err != nil {
			return e.done, err
		}
		for _, l := range lines {
			err := e.conversation(ctx, l.ConversationID)
			if untold := (*untoldError)(nil); errors.As(err, &untold) && ctx.Err() == nil {
				e.db.Log.ErrorContext(ctx, "a conversation is not erased", "conversationId", l.ConversationID, "err", err)
				e.done.Untold++
			} else if err != nil {
				return e.done, err
			}
			e.done.Conversations++
			e.done.After = l.ConversationID
			progress(e.done)
		}
		if after = chat.ConversationID(next); next == "" {
			break
		}
	}
	return e.done, e.connections(ctx)
}

type eraser struct {
	*Operator
	userID   string
	act      bool
	done     Erasure
	progress func(Erasure)
	edits    map[int64]bool // the seqs of the events of edits that were met in this conversation
	told     int64          // its seqs below this one have the event of an erasure after them
}

// conversation goes through a ledger from its end: the event of an edit is blanked
// before the message it is about, as a recall leaves no content in an event.
func (e *eraser) conversation(ctx context.Context, id chat.ConversationID) error {
	e.edits, e.told = map[int64]bool{}, 0
	in := &dynamodb.QueryInput{
		TableName:              &e.db.Messages,
		KeyConditionExpression: aws.String("conversationId = :c"),
		FilterExpression: aws.String("#event.erased = :u OR senderId = :u AND " +
			"(attribute_exists(#text) OR attribute_exists(#data) OR attribute_exists(senderDeviceId) OR attribute_exists(clientTime))"),
		ExpressionAttributeNames: map[string]string{
			"#text": "text", "#data": "data", "#event": "event",
		},
		ExpressionAttributeValues: table.Item{":c": table.Str(id), ":u": table.Str(e.userID)},
		ConsistentRead:            aws.Bool(true),
		ScanIndexForward:          aws.Bool(false),
	}
	for {
		out, err := e.db.Query(ctx, in)
		if err != nil {
			return fmt.Errorf("reading the ledger of %s: %w", id, err)
		}
		e.done.Scanned += int64(out.ScannedCount)
		for _, in := range out.Items {
			m, err := table.UnmarshalMessage(in)
			switch {
			case err != nil:
				err = e.passOver(ctx, in, err)
			case m.Is(chat.EventErase):
				e.told = max(e.told, m.Seq)
			default:
				err = e.message(ctx, m)
			}
			if err != nil {
				return err
			}
		}
		e.progress(e.done)
		if in.ExclusiveStartKey = out.LastEvaluatedKey; in.ExclusiveStartKey == nil {
			return nil
		}
	}
}

// passOver takes down a message of the user's that is damaged.
func (e *eraser) passOver(ctx context.Context, in table.Item, damage error) error {
	e.db.Damaged(ctx, e.db.Messages, in, damage)
	e.done.Damaged++
	var m table.Message
	m.ConversationID = table.KeyOf(in).ConversationID
	m.Seq, _ = table.SeqOf(in)
	return e.tell(ctx, m)
}

// message blanks one, and again if it was changed between the reading and the
// writing.
func (e *eraser) message(ctx context.Context, m table.Message) error {
	if err := e.tell(ctx, m); err != nil {
		return err
	}
	was := m
	if !e.act {
		e.count(was)
		return nil
	}
	if m.Event != nil {
		e.edits[m.Seq] = true
	}
	for attempt := 1; ; attempt++ {
		failed := e.newerEdits(ctx, m)
		if failed == nil {
			failed = e.blank(ctx, m)
		}
		untold := (*untoldError)(nil)
		switch {
		case failed == nil:
			e.count(was)
			return nil
		case errors.As(failed, &untold):
			return failed
		case store.Permanent(failed):
			return e.passOver(ctx, table.MessageKey(m.ConversationID, m.Seq), failed)
		case !table.ConditionFailed(failed) && !table.IsConflict(failed):
			return failed
		}
		if err := e.db.Pace.WaitRead(ctx, attempt, false); err != nil {
			return fmt.Errorf("waiting for message %s: %w", m.MessageID, err)
		}
		now, err := e.entryNext(ctx, m.ConversationID, chat.Range{From: m.Seq, To: m.Seq}, table.Ascending)
		if err != nil || now == nil || now.MessageID != m.MessageID {
			return err // expired, or removed
		}
		if table.ConditionFailed(failed) && now.Version == m.Version { // it lacks what the condition names
			return e.passOver(ctx, table.MessageKey(m.ConversationID, m.Seq), failed)
		}
		m = *now
	}
}

// tell makes sure that the event of an erasure comes after a message.
func (e *eraser) tell(ctx context.Context, m table.Message) error {
	if m.Seq < e.told {
		return nil
	}
	e.told = m.Seq + 1
	if e.act {
		committed, err := e.store.TellErased(ctx, m.ConversationID, e.userID, cmp.Or(m.MessageID, fmt.Sprint(m.Seq)))
		if refusal, ok := errors.AsType[*chat.Error](err); ok && refusal.Code == chat.CodeNotFound {
			e.told = chat.MaxSeq + 1 // there is no head: nobody can read the conversation
			return nil
		}
		if err != nil {
			return &untoldError{err}
		}
		e.told = committed.Seq
	}
	e.done.Events++
	return nil
}

// untoldError says that the devices of a conversation could not be told.
type untoldError struct{ err error }

func (e *untoldError) Error() string { return "telling the devices: " + e.err.Error() }
func (e *untoldError) Unwrap() error { return e.err }

// newerEdits blanks the events of a message's edits that the ledger did not show:
// they came after its end was read, or were being written.
func (e *eraser) newerEdits(ctx context.Context, m table.Message) error {
	seqs := slices.DeleteFunc(slices.Clone(m.Edits), func(seq int64) bool { return e.edits[seq] })
	events := map[int64]table.Message{}
	if _, err := e.db.LookUp(ctx, m.ConversationID, seqs, events); err != nil {
		return err
	}
	for _, seq := range slices.Sorted(maps.Keys(events)) {
		if event := events[seq]; event.Is(chat.EventEdit) && event.SenderID == m.SenderID && !blank(event) {
			if err := e.message(ctx, event); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *eraser) count(m table.Message) {
	switch {
	case blank(m):
	case m.Event == nil:
		e.done.Messages++
	default:
		e.done.Edits++
	}
	if m.SenderDeviceID != "" {
		e.done.Devices++
	}
}

// blank writes the idempotency record without the fingerprint, then the message
// without its content: what broke off in between is found again by the message.
func (e *eraser) blank(ctx context.Context, m table.Message) error {
	_, err := e.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                 &e.db.Idempotency,
		Key:                       table.Item{"dedupeKey": table.Str(chat.DedupeKey(m.SenderID, m.ClientMsgID))},
		UpdateExpression:          aws.String("SET fingerprint = :erased"),
		ConditionExpression:       aws.String("messageId = :id"),
		ExpressionAttributeValues: table.Item{":id": table.Str(m.MessageID), ":erased": table.Str(erased)},
	})
	if err != nil && !table.ConditionFailed(err) { // else there is no such record
		return fmt.Errorf("blanking the idempotency record of message %s: %w", m.MessageID, err)
	}
	update := "REMOVE #text, #data, original, senderDeviceId, clientTime, via"
	names := map[string]string{"#text": "text", "#data": "data", "#version": "version"}
	values := table.Item{":id": table.Str(m.MessageID), ":version": table.Num(m.Version)}
	if m.Event == nil || m.Event.Kind == chat.EventEdit {
		update = "SET #status = :recalled, #version = :next " + update
		names["#status"] = "status"
		values[":recalled"], values[":next"] = table.Str(string(chat.StatusRecalled)), table.Num(m.Version+1)
	}
	_, err = e.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName:                 &e.db.Messages,
		Key:                       table.MessageKey(m.ConversationID, m.Seq),
		UpdateExpression:          &update,
		ConditionExpression:       aws.String("messageId = :id AND #version = :version"),
		ExpressionAttributeNames:  names,
		ExpressionAttributeValues: values,
	})
	if err != nil {
		return fmt.Errorf("blanking message %s: %w", m.MessageID, err)
	}
	return nil
}

// connections forgets the user's sockets.
func (e *eraser) connections(ctx context.Context) error {
	key := table.Item{"userId": table.Str(e.userID)}
	if !e.act {
		var found table.Connections
		exists, err := e.db.Get(ctx, e.db.Connections, key, &found)
		if e.done.Connections = exists; errors.Is(err, table.ErrDamaged) {
			return nil // it is deleted as it is
		}
		return err
	}
	out, err := e.db.DeleteItem(ctx, &dynamodb.DeleteItemInput{
		TableName: &e.db.Connections, Key: key, ReturnValues: types.ReturnValueAllOld,
	})
	if err != nil {
		return fmt.Errorf("forgetting the connections of %s: %w", e.userID, err)
	}
	e.done.Connections = out.Attributes != nil
	return nil
}
