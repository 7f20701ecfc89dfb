package main

import (
	"errors"
	"fmt"

	"github.com/aws/aws-lambda-go/events"

	"github.com/inorder-im/inorder/shared/chat"
)

// conversation is what a batch tells of one conversation: the stretch of its
// ledger that is new, and the records that told so.
type conversation struct {
	id             chat.ConversationID
	news           chat.Range
	membersVersion int64 // as of the newest record
	membersBefore  int64 // how many there were before the oldest record
	committedAt    int64 // ms, when the newest entry was made
	rosterChanged  bool
	members        int64      // as of the newest record
	rounds         []dueRound // of a crowd: those that begin in these records
	records        []string   // SequenceNumbers
	attempts       int        // that were made from the queue
	unread         []string   // who alone is to be told: the others were, but nobody could look these up
}

// dueRound is a round of pushes of a crowd, see chat.Conversation.NextPush.
type dueRound struct{ at, from int64 } // ms, and the first seq of it

// read groups the records of a batch by conversation, in the order in which
// they first appear. Records that cannot be understood come back as poison, by
// their SequenceNumber.
//
// The stream keeps the order of one head's changes, so the range from the
// smallest old lastSeq to the largest new one is whole; but it may repeat them.
// A change by which a head went back is no news, and comes back as such.
func read(records []events.DynamoDBEventRecord) (found []*conversation, back []change, poison map[string]error) {
	poison = map[string]error{}
	byID := map[chat.ConversationID]*conversation{}
	for _, r := range records {
		ch, err := changeOf(r)
		if err != nil {
			poison[r.Change.SequenceNumber] = err
			continue
		}
		if ch.newSeq < ch.oldSeq {
			back = append(back, ch)
		}
		if ch.newSeq <= ch.oldSeq || ch.copied() {
			continue // deleted, or changed in something else than its ledger
		}
		c := byID[ch.conversationID]
		if c == nil {
			c = &conversation{id: ch.conversationID, news: chat.Range{From: ch.oldSeq + 1, To: ch.newSeq}, membersBefore: ch.oldMembers}
			byID[c.id] = c
			found = append(found, c)
		}
		c.news.From = min(c.news.From, ch.oldSeq+1)
		c.news.To = max(c.news.To, ch.newSeq)
		c.committedAt = max(c.committedAt, ch.updatedAt)
		c.membersVersion = max(c.membersVersion, ch.newVersion)
		c.rosterChanged = c.rosterChanged || ch.oldVersion != ch.newVersion
		c.members = ch.newMembers
		if ch.beginsRound() {
			c.rounds = append(c.rounds, dueRound{at: ch.pushAt, from: ch.oldSeq + 1})
		}
		c.records = append(c.records, r.Change.SequenceNumber)
	}
	return found, back, poison
}

// change is one record: a head before and after. A head that did not exist has
// zeros.
type change struct {
	conversationID         chat.ConversationID
	oldSeq, newSeq         int64
	oldVersion, newVersion int64
	oldMembers, newMembers int64
	oldPushAt, pushAt      int64 // ms; 0 of what is no crowd
	updatedAt              int64 // ms, of the new image; 0 if it has none
	created                bool  // there was no head before
}

// copied reports whether the head was put there by a restore: one that its first
// message makes has the seq 1. Its devices ask anew, and its whole ledger must not
// be read.
func (ch change) copied() bool { return ch.created && ch.newSeq > 1 }

// beginsRound reports whether a crowd's next round begins with this change. What writes
// no pushAt, such as an older version of a function, leaves that to no later change.
func (ch change) beginsRound() bool {
	return ch.newMembers > chat.MaxGroupMembers && (ch.pushAt != ch.oldPushAt || ch.pushAt == 0)
}

func changeOf(r events.DynamoDBEventRecord) (change, error) {
	var ch change
	if r.EventName == string(events.DynamoDBOperationTypeRemove) {
		return ch, nil
	}
	id := r.Change.Keys["conversationId"]
	if id.DataType() != events.DataTypeString || id.String() == "" {
		return ch, errors.New("the record's keys have no conversationId")
	}
	ch.conversationID = chat.ConversationID(id.String())
	if r.Change.NewImage == nil {
		return ch, errors.New("the record has no NewImage; the stream's view type has to be NEW_AND_OLD_IMAGES")
	}
	var err error
	if ch.newSeq, ch.newVersion, err = headOf(r.Change.NewImage); err != nil {
		return ch, fmt.Errorf("NewImage of %s: %w", ch.conversationID, err)
	}
	ch.updatedAt, _ = number(r.Change.NewImage, "updatedAt")    // nothing but a figure depends on it
	ch.newMembers, _ = number(r.Change.NewImage, "memberCount") // without, it is pushed to as a small one
	ch.pushAt, _ = number(r.Change.NewImage, "pushAt")
	if r.Change.OldImage == nil {
		ch.created = true
		return ch, nil
	}
	if ch.oldSeq, ch.oldVersion, err = headOf(r.Change.OldImage); err != nil {
		return ch, fmt.Errorf("OldImage of %s: %w", ch.conversationID, err)
	}
	ch.oldPushAt, _ = number(r.Change.OldImage, "pushAt")
	ch.oldMembers, err = number(r.Change.OldImage, "memberCount")
	if err != nil {
		return ch, fmt.Errorf("OldImage of %s: %w", ch.conversationID, err)
	}
	return ch, nil
}

func headOf(image map[string]events.DynamoDBAttributeValue) (lastSeq, membersVersion int64, err error) {
	if lastSeq, err = number(image, "lastSeq"); err != nil {
		return 0, 0, err
	}
	if membersVersion, err = number(image, "membersVersion"); err != nil {
		return 0, 0, err
	}
	return lastSeq, membersVersion, nil
}

func number(image map[string]events.DynamoDBAttributeValue, name string) (int64, error) {
	v := image[name]
	if v.DataType() != events.DataTypeNumber {
		return 0, fmt.Errorf("%s is missing or is no number", name)
	}
	n, err := v.Int64()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	if n < 0 || n > chat.MaxSeq {
		return 0, fmt.Errorf("%s is %d; it has to be from 0 to %d", name, n, int64(chat.MaxSeq))
	}
	return n, nil
}
