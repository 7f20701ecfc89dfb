package integration_test

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"inorder/shared/chat"
	"inorder/shared/wire"
)

// account is what the store has for a user, read by a device that knew nothing.
type account struct {
	lines    map[string]wire.Conversation
	messages map[string][]chat.Message
}

// judge checks what has to hold in the end:
//   - Every device has the ledgers that the store has for its user, every message
//     in its last state, and the same watermarks.
//   - Ledgers are dense. Each answered write is there once, as it was answered; no
//     refused one is; of the others each is there once at most.
//   - No device ever saw a seq go back or change its message, nor anything that
//     the protocol does not allow.
//   - What was answered when could have happened one after the other.
func (o *ordeal) judge() {
	accounts := map[string]account{}
	for _, user := range []string{owner, second, guest, fourth} {
		accounts[user] = o.accountOf(user)
	}
	ledgers := map[string][]chat.Message{}
	for _, where := range o.places {
		ledgers[where.id] = accounts[where.members[0]].messages[where.id]
		o.checkStored(where.id, ledgers[where.id])
	}
	o.checkWrites(ledgers)
	o.await("the devices do not converge", func() string {
		for _, a := range o.actors {
			a.revive()
			a.readAll()
			if found := a.difference(accounts[a.user], ledgers); found != "" {
				return fmt.Sprintf("%s: %s", a, found)
			}
		}
		return ""
	})
	for _, a := range o.actors {
		a.checkSeen(accounts[a.user], ledgers)
	}
	for _, where := range o.places {
		o.log.requireLinearizable(o.t, where.id, ledgers[where.id])
	}
}

// accountOf reads what the store has for a user. Pushes that come meanwhile are of
// no account: a fan-out that was held up tells of messages as they were before.
func (o *ordeal) accountOf(user string) account {
	d, err := connect(o.ctx, o.cloud.stack, user, "fresh")
	require.NoError(o.t, err)
	defer d.close()
	found := account{lines: map[string]wire.Conversation{}, messages: map[string][]chat.Message{}}
	for _, line := range changesSince(o.t, d, 0).Conversations {
		id := line.ConversationID
		found.lines[id] = line
		for after := int64(0); ; {
			page := must[wire.Synced](o.t, d, wire.ActionSync, wire.Sync{ConversationID: id, AfterSeq: &after})
			require.Empty(o.t, page.Skipped, "nothing was ever deleted")
			found.messages[id] = append(found.messages[id], page.Messages...)
			if page.NextSeq >= page.CommittedMaxSeq {
				break
			}
			require.Greater(o.t, page.NextSeq, after, "a page has to move")
			after = page.NextSeq
		}
	}
	return found
}

// checkStored checks that a ledger is dense, and that the table has no more.
func (o *ordeal) checkStored(place string, ledger []chat.Message) {
	for i, m := range ledger {
		require.Equal(o.t, int64(i+1), m.Seq, place)
	}
	count, err := o.db.Query(o.t.Context(), &dynamodb.QueryInput{
		TableName: aws.String(tableName(o.t, o.db, "Messages")), Select: types.SelectCount, ConsistentRead: aws.Bool(true),
		KeyConditionExpression:    aws.String("conversationId = :c"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":c": &types.AttributeValueMemberS{Value: place}},
	})
	require.NoError(o.t, err)
	require.EqualValues(o.t, len(ledger), count.Count, place)
}

func (o *ordeal) checkWrites(ledgers map[string][]chat.Message) {
	found := map[string]chat.Message{}
	for place, ledger := range ledgers {
		for _, m := range ledger {
			key := writeKey(m.SenderID, m.ClientMsgID)
			if first, twice := found[key]; twice {
				o.t.Errorf("%q is in %s as seq %d, and in %s as seq %d too", key, first.ConversationID, first.Seq, place, m.Seq)
			}
			found[key] = m
			w := o.log.writes[key]
			switch {
			case w == nil || w.place != place:
				o.t.Errorf("seq %d of %s is %q, which nobody wrote there", m.Seq, place, key)
			case w.refusal != nil && m.SenderID == guest && chat.CodeOf(w.refusal) == chat.NotFound:
				// Two copies of one request were under way: one was refused while the
				// guest was out, the other committed once the guest was back.
			case w.refusal != nil:
				o.t.Errorf("seq %d of %s is %q, which was refused: %v", m.Seq, place, key, w.refusal)
			case w.sent.Seq != 0 && (w.sent.Seq != m.Seq || w.sent.MessageID != m.MessageID || w.sent.ServerTime != m.ServerTime):
				o.t.Errorf("%q was answered as %+v and is %+v", key, w.sent, m)
			}
		}
	}
	var answered, refused int
	for key, w := range o.log.writes {
		if _, there := found[key]; w.ret != 0 && !there && !w.repeats(ledgers[w.place]) {
			o.t.Errorf("%q was answered as %+v and is lost", key, w.sent)
		}
		if w.ret != 0 {
			answered++
		}
		if w.refusal != nil {
			refused++
		}
	}
	replaced := 0
	for _, a := range o.actors {
		replaced += a.replaced
	}
	o.t.Logf("%d writes: %d answered, %d refused, %d entries in all; %d times a ghost took over a device",
		len(o.log.writes), answered, refused, len(found), replaced)
}

// difference says what a device does not have as the store has it; "" is nothing.
func (a *actor) difference(of account, ledgers map[string][]chat.Message) string {
	if known := a.client.Conversations(); len(known) != len(of.lines) {
		return fmt.Sprintf("it knows %d conversations of %d", len(known), len(of.lines))
	}
	for id, line := range of.lines {
		mine, _ := a.client.Conversation(id)
		if mine.MaxContiguousSeq != mine.MaxSeenSeq {
			return fmt.Sprintf("%s: it has %d of %d", id, mine.MaxContiguousSeq, mine.MaxSeenSeq)
		}
		got := [...]int64{mine.LastSeq, mine.ReadSeq, mine.DeliveredSeq, mine.ClearedSeq, mine.LeftSeq, mine.Unread, int64(mine.MemberCount)}
		want := [...]int64{line.LastSeq, line.ReadSeq, line.DeliveredSeq, line.ClearedSeq, line.LeftSeq, line.Unread, int64(line.MemberCount)}
		if got != want {
			return fmt.Sprintf("%s: last, read, delivered, cleared, left, unread and members are %v, the store has %v", id, got, want)
		}
		stored, err := a.client.Stored(a.ctx, id, 0, len(ledgers[id])+1)
		if err != nil {
			return err.Error()
		}
		if found := unlike(stored, of.messages[id], ledgers[id]); found != "" {
			return id + ": " + found
		}
		a.mu.Lock()
		given := len(a.given[id])
		a.mu.Unlock()
		if given != len(stored) {
			return fmt.Sprintf("%s: the user was given %d messages of %d", id, given, len(stored))
		}
	}
	return ""
}

// unlike compares what a device has with what the store has for its user. Where
// an event came while the user was no member, nobody tells the device of it, and
// it has the message as it was before.
func unlike(have, want, all []chat.Message) string {
	for i := range max(len(have), len(want)) {
		if i >= len(have) || i >= len(want) || have[i].Seq != want[i].Seq || have[i].MessageID != want[i].MessageID {
			return fmt.Sprintf("it has the seqs %v, the store %v", seqsOf(have), seqsOf(want))
		}
		if reflect.DeepEqual(plain(have[i]), plain(want[i])) {
			continue
		}
		if !changedUnseen(want[i], want, all) {
			return fmt.Sprintf("it has %+v, the store %+v", have[i], want[i])
		}
	}
	return ""
}

func changedUnseen(m chat.Message, visible, all []chat.Message) bool {
	return slices.ContainsFunc(all, func(e chat.Message) bool {
		target := e.Event != nil && (e.Event.TargetSeq == m.Seq || m.Event != nil && m.Event.TargetSeq == e.Event.TargetSeq && m.Event.TargetSeq != 0)
		_, seen := slices.BinarySearchFunc(visible, e.Seq, func(v chat.Message, seq int64) int { return cmp.Compare(v.Seq, seq) })
		return target && !seen
	})
}

// plain is a message without the ways of JSON to say "nothing".
func plain(m chat.Message) chat.Message {
	if string(m.Data) == "null" {
		m.Data = nil
	}
	return m
}

// checkSeen checks what a device saw on the way.
func (a *actor) checkSeen(of account, ledgers map[string][]chat.Message) {
	if err := a.memory.fault(); err != nil {
		a.t.Errorf("%s: %v", a, err)
	}
	stats := a.client.Stats()
	if stats.Violations > 0 {
		a.t.Errorf("%s: %d answers or frames were against the protocol", a, stats.Violations)
	}
	for id, seen := range a.memory.everSeen() {
		for seq, messageID := range seen {
			if seq > int64(len(ledgers[id])) || ledgers[id][seq-1].MessageID != messageID {
				a.t.Errorf("%s once had %s as seq %d of %s, which it is not", a, messageID, seq, id)
			}
		}
	}
	for id, at := range a.acked {
		if line := of.lines[id]; line.ReadSeq < at.ReadSeq || line.DeliveredSeq < at.DeliveredSeq {
			a.t.Errorf("%s was answered %+v for %s, and the store has readSeq %d and deliveredSeq %d", a, at, id, line.ReadSeq, line.DeliveredSeq)
		}
	}
	for id, given := range a.given {
		if !slices.Equal(seqsOf(given), seqsOf(of.messages[id])) {
			a.t.Errorf("%s was given the seqs %v of %s, the store has %v", a, seqsOf(given), id, seqsOf(of.messages[id]))
		}
	}
}
