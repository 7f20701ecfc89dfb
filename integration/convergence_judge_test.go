package integration_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// judge checks what has to hold in the end:
//   - The ledgers in the table are dense. Each answered write is there once, as it
//     was answered, and each message that an outbox took; no refused one is; of
//     the others each is there once at most. Every message is by a member, in the
//     state that its events make of it, and a device's own come in its order.
//   - A device that knew nothing reads of that what its user may see, and
//     positions that someone asked for and none below one that was answered.
//   - So does every other device, and was given all of it, by seq.
//   - No device ever saw a seq go back or change its message, nor anything that
//     the protocol does not allow.
//   - What was answered when could have happened one after the other.
func (o *ordeal) judge() {
	ledgers := map[chat.ConversationID][]chat.Message{}
	defer o.tell(ledgers)
	for _, where := range o.places {
		ledgers[where.id] = o.ledgerOf(where.id)
		o.checkLedger(where, ledgers[where.id])
	}
	o.checkWrites(ledgers)
	accounts := map[string]account{}
	for _, user := range []string{owner, second, guest, fourth} {
		accounts[user] = o.accountOf(user)
		o.checkAccount(user, accounts[user], ledgers)
	}
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
	for _, w := range o.watchers {
		w.checkSeen(accounts[w.user], ledgers)
	}
	for _, where := range o.places {
		o.log.requireLinearizable(o.t, where.id, ledgers[where.id])
	}
}

// tell logs the ledgers of a run that failed: each entry, who wrote it, and from when
// to when it was under way, in ms of the run.
func (o *ordeal) tell(ledgers map[chat.ConversationID][]chat.Message) {
	if !o.t.Failed() {
		return
	}
	for place, ledger := range ledgers {
		var b strings.Builder
		for _, m := range ledger {
			fmt.Fprintf(&b, "%4d %s %q", m.Seq, m.SenderID, m.ClientMsgID)
			if m.Event != nil {
				fmt.Fprintf(&b, " %+v", *m.Event)
			}
			if w := o.log.writes[writeKey(m.SenderID, m.ClientMsgID)]; w != nil {
				fmt.Fprintf(&b, " %d to %d", w.call/1e6, w.ret/1e6)
				if w.refusal != nil {
					fmt.Fprintf(&b, ", refused: %v", w.refusal)
				}
			}
			b.WriteByte('\n')
		}
		o.t.Logf("%s:\n%s", place, &b)
	}
}

// ledgerOf reads a ledger from its table, past all that is tested here.
func (o *ordeal) ledgerOf(place chat.ConversationID) []chat.Message {
	var ledger []chat.Message
	in := &dynamodb.QueryInput{
		TableName: aws.String(tableName(o.t, o.db, "Messages")), ConsistentRead: aws.Bool(true),
		KeyConditionExpression:    aws.String("conversationId = :c"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":c": &types.AttributeValueMemberS{Value: string(place)}},
	}
	for pages := dynamodb.NewQueryPaginator(o.db, in); pages.HasMorePages(); {
		page, err := pages.NextPage(o.ctx)
		require.NoError(o.t, err)
		for _, item := range page.Items {
			var stored struct {
				chat.Message
				Data string `json:"data"`
			}
			require.NoError(o.t, attributevalue.UnmarshalMapWithOptions(item, &stored, func(d *attributevalue.DecoderOptions) { d.TagKey = "json" }))
			if stored.Data != "" {
				stored.Message.Data = json.RawMessage(stored.Data)
			}
			ledger = append(ledger, stored.Message)
		}
	}
	return ledger
}

// checkLedger goes through a ledger as it came to be.
func (o *ordeal) checkLedger(where place, ledger []chat.Message) {
	inside := map[string]bool{}
	for _, user := range where.members {
		inside[user] = true
	}
	want := slices.Clone(ledger)
	for i, m := range ledger {
		require.Equal(o.t, int64(i+1), m.Seq, where.id)
		w := o.log.writes[writeKey(m.SenderID, m.ClientMsgID)]
		if w == nil {
			continue // a failure by itself, elsewhere
		}
		if m.Seq > 1 && !inside[m.SenderID] {
			o.t.Errorf("seq %d of %s is by %s, who was no member then", m.Seq, where.id, m.SenderID)
		}
		want[i].Text, want[i].Version, want[i].Status = w.text, 1, chat.StatusNormal
		if m.Event != nil {
			o.replay(want, m, inside)
		}
	}
	for i, m := range ledger {
		if m.Text != want[i].Text || m.Version != want[i].Version || m.Status != want[i].Status {
			o.t.Errorf("seq %d of %s is %q, version %d, %s; its events make it %q, version %d, %s", m.Seq, where.id,
				m.Text, m.Version, m.Status, want[i].Text, want[i].Version, want[i].Status)
		}
	}
}

// replay does to the messages before an event what it says.
func (o *ordeal) replay(want []chat.Message, m chat.Message, inside map[string]bool) {
	for _, user := range m.Event.Added {
		inside[user] = true
	}
	for _, user := range m.Event.Removed {
		delete(inside, user)
	}
	if m.Event.TargetSeq == 0 {
		return
	}
	target := &want[m.Event.TargetSeq-1]
	if target.Status == chat.StatusRecalled || m.Event.Version != target.Version+1 || m.Event.TargetMessageID != target.MessageID {
		o.t.Errorf("seq %d of %s is %+v, and what it changes was %s then, version %d, %s",
			m.Seq, m.ConversationID, *m.Event, target.MessageID, target.Version, target.Status)
	}
	target.Version++
	if m.Event.Kind == chat.EventEdit {
		target.Text = want[m.Seq-1].Text
		return
	}
	target.Text, target.Status = "", chat.StatusRecalled
	for i, e := range want[:m.Seq-1] { // the edits keep nothing of it
		if e.Event != nil && e.Event.Kind == chat.EventEdit && e.Event.TargetSeq == m.Event.TargetSeq {
			want[i].Text, want[i].Status = "", chat.StatusRecalled
		}
	}
}

func (o *ordeal) checkWrites(ledgers map[chat.ConversationID][]chat.Message) {
	found := map[string]chat.Message{}
	for place, ledger := range ledgers {
		last := map[string]int{} // by sender and device, the number of the last message
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
				continue
			case w.refusal != nil && !w.mayBoth(m):
				o.t.Errorf("seq %d of %s is %q, which was refused: %v", m.Seq, place, key, w.refusal)
			case w.sent.Seq != 0 && (w.sent.Seq != m.Seq || w.sent.MessageID != m.MessageID || w.sent.ServerTime != m.ServerTime):
				o.t.Errorf("%q was answered as %+v and is %+v", key, w.sent, m)
			}
			if !w.send || m.SenderID == guest && m.Event == nil && chat.CodeOf(w.refusal) == chat.CodeNotFound {
				continue
			}
			device := m.SenderID + "/" + w.device
			if w.number < last[device] {
				o.t.Errorf("seq %d of %s is number %d of %s, which wrote number %d before", m.Seq, place, w.number, device, last[device])
			}
			last[device] = w.number
		}
	}
	var answered, refused int
	for key, w := range o.log.writes {
		_, there := found[key]
		if !there && (w.ret != 0 && !w.repeats(ledgers[w.place]) || w.send && w.accepted && !w.mayBeRefused(o)) {
			o.t.Errorf("%q was accepted, answered as %+v, and is lost", key, w.sent)
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

// mayBoth reports whether a write may have been refused and be there: two copies of
// one request were under way, and one was refused because of what held at that
// moment, while the other waited and came through before or after. The guest was
// out, or had been removed already, or an admin was none just then; the user had
// cleared the target; the clock of the copy's process said that it was too late.
func (w *written) mayBoth(m chat.Message) bool {
	revises := m.Event != nil && m.Event.TargetSeq != 0
	ofRoster := m.Event != nil && m.Event.Kind == chat.EventMembers
	switch chat.CodeOf(w.refusal) {
	case chat.CodeNotFound:
		return m.SenderID == guest || revises
	case chat.CodeTooLate:
		return revises
	case chat.CodeBadRequest, chat.CodeForbidden:
		return ofRoster
	}
	return false
}

// mayBeRefused reports whether the outbox may have been told, when nobody waited
// any more, that a message is not taken: it is the guest's, to the group.
func (w *written) mayBeRefused(o *ordeal) bool {
	return o.actors[w.client].user == guest && w.place == o.places[len(o.places)-1].id
}

// account is what the store has for a user, read by a device that knew nothing.
type account struct {
	lines    map[chat.ConversationID]wire.Conversation
	messages map[chat.ConversationID][]chat.Message
}

// accountOf reads what the store has for a user. Pushes that come meanwhile are of
// no account: a fan-out that was held up tells of messages as they were before.
func (o *ordeal) accountOf(user string) account {
	d, err := connect(o.ctx, o.cloud.Stack, user, "fresh")
	require.NoError(o.t, err)
	defer d.close()
	found := account{lines: map[chat.ConversationID]wire.Conversation{}, messages: map[chat.ConversationID][]chat.Message{}}
	for _, line := range everyLine(o.t, d) {
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

// everyLine reads a user's list with what is hidden of it.
func everyLine(tb testing.TB, d *device) (lines []wire.Conversation) {
	tb.Helper()
	for page := (wire.ConversationsPage{}); ; {
		page = must[wire.ConversationsPage](tb, d, wire.ActionConversations, wire.Conversations{Cursor: page.Cursor, Hidden: true})
		if lines = append(lines, page.Conversations...); page.Cursor == "" {
			return lines
		}
	}
}

// checkAccount compares what a user reads with the ledgers: all that the user may
// see, and a line that fits it.
func (o *ordeal) checkAccount(user string, of account, ledgers map[chat.ConversationID][]chat.Message) {
	lines := 0
	for _, where := range o.places {
		place, ledger := where.id, ledgers[where.id]
		m := membershipOf(user, where, ledger)
		if len(m.stretches) == 0 {
			continue
		}
		lines++
		line, ok := of.lines[place]
		if !ok {
			o.t.Errorf("%s has no line of %s", user, place)
			continue
		}
		visible := slices.DeleteFunc(o.shown(m, ledger), func(e chat.Message) bool { return e.Seq <= line.ClearedSeq })
		if found := unlike(of.messages[place], visible, nil); found != "" {
			o.t.Errorf("what %s reads of %s: %s", user, place, found)
		}
		through := m.stretches[len(m.stretches)-1]
		unread := unreadOf(user, ledger, o.readTo(user, line, ledger), through.To).server
		if line.LastSeq != through.To || line.LeftSeq != m.left || line.Unread != unread || line.MemberCount != m.members || line.Title != m.title {
			o.t.Errorf("%s has the line %+v of %s; it ends at %d, the user left at %d, %d are unread, %d are members, and it is called %q",
				user, line, place, through.To, m.left, unread, m.members, m.title)
		}
		o.checkPositions(user, line, ledger)
	}
	require.Len(o.t, of.lines, lines, "conversations of %s", user)
}

// checkPositions checks that a user's positions are those that a device asked for,
// and not below one that was answered.
func (o *ordeal) checkPositions(user string, line wire.Conversation, ledger []chat.Message) {
	var least, most positions
	if ledger[0].SenderID == user {
		least = positions{delivered: 1, read: 1} // who begins a conversation has read that
	}
	most = least
	for _, a := range o.actors {
		if a.user == user {
			least, most = least.max(a.acked[line.ConversationID]), most.max(a.asked[line.ConversationID])
		}
	}
	most.delivered = max(most.delivered, most.read)
	got := positions{delivered: line.DeliveredSeq, read: line.ReadSeq, cleared: line.ClearedSeq}
	if got.max(least) != got || most.max(got) != most {
		o.t.Errorf("the positions of %s in %s are %+v; %+v was answered, and no more than %+v asked for", user, line.ConversationID, got, least, most)
	}
}

// membership is what a ledger says of a user, up to where the user may read it.
type membership struct {
	stretches []chat.Range // of seqs that the user may see
	left      int64        // the seq at which the user left; 0 for a member
	members   int
	title     string
}

func membershipOf(user string, where place, ledger []chat.Message) membership {
	last := int64(len(ledger))
	var m membership
	if !where.group {
		if slices.Contains(where.members, user) && last > 0 {
			m = membership{stretches: []chat.Range{{From: 1, To: last}}, members: len(where.members)}
		}
		return m
	}
	roster, title := map[string]bool{}, ""
	for _, e := range ledger {
		if e.Event == nil {
			continue
		}
		for _, added := range e.Event.Added {
			roster[added] = true
		}
		for _, removed := range e.Event.Removed {
			delete(roster, removed)
		}
		title = cmp.Or(e.Event.Title, title)
		switch {
		case slices.Contains(e.Event.Added, user) && m.left != 0 && m.left == e.Seq-1: // back at once: never away
			m.stretches[len(m.stretches)-1].To, m.left = last, 0
		case slices.Contains(e.Event.Added, user):
			m.stretches, m.left = append(m.stretches, chat.Range{From: e.Seq, To: last}), 0
		case slices.Contains(e.Event.Removed, user):
			m.stretches[len(m.stretches)-1].To, m.left = e.Seq, e.Seq
		case m.left != 0:
			continue // who left does not hear what becomes of the group
		}
		m.members, m.title = len(roster), title
	}
	return m
}

// shown returns what the user may see of a ledger: each message as it was at the end
// of the stretch it lies in, and of an edit of a message elsewhere only that it was.
func (o *ordeal) shown(m membership, ledger []chat.Message) []chat.Message {
	var visible []chat.Message
	for _, r := range m.stretches {
		seen := slices.Clone(ledger[:r.To])
		for i, e := range seen {
			if w := o.log.writes[writeKey(e.SenderID, e.ClientMsgID)]; w != nil && e.Event == nil && e.Status == chat.StatusNormal {
				seen[i].Text, seen[i].Version = w.text, 1
			}
			if e.Event == nil || e.Event.Kind != chat.EventEdit || e.Status != chat.StatusNormal {
				continue
			}
			if target := &seen[e.Event.TargetSeq-1]; r.Has(target.Seq) {
				target.Text, target.Version = e.Text, e.Event.Version
			} else {
				seen[i].Text, seen[i].Withheld = "", true
			}
		}
		visible = append(visible, seen[r.From-1:]...)
	}
	return visible
}

// difference says what a device does not have as the store has it; "" is nothing.
func (a *actor) difference(of account, ledgers map[chat.ConversationID][]chat.Message) string {
	listed := 0
	for _, line := range of.lines {
		if !line.Hidden() {
			listed++
		}
	}
	if known := a.client.Conversations(); len(known) != listed {
		return fmt.Sprintf("it lists %d conversations of %d", len(known), listed)
	}
	for id, line := range of.lines {
		mine, _ := a.client.Conversation(id)
		if mine.MaxContiguousSeq != mine.MaxSeenSeq {
			return fmt.Sprintf("%s: it has %d of %d", id, mine.MaxContiguousSeq, mine.MaxSeenSeq)
		}
		got := [...]any{mine.LastSeq, mine.ReadSeq, mine.ClearedSeq, mine.LeftSeq, mine.MemberCount, mine.Title}
		want := [...]any{line.LastSeq, line.ReadSeq, line.ClearedSeq, line.LeftSeq, line.MemberCount, line.Title}
		if got != want {
			return fmt.Sprintf("%s: last, read, cleared, left, members and title are %v, the store has %v", id, got, want)
		}
		if others := unreadOf(a.user, ledgers[id], a.readTo(a.user, line, ledgers[id]), line.LastSeq).others; mine.Unread < others || mine.Unread > line.Unread {
			return fmt.Sprintf("%s: unread are %d, the store has %d, and others wrote %d", id, mine.Unread, line.Unread, others)
		}
		// That another device of the user received something is told by a push alone.
		if mine.DeliveredSeq > line.DeliveredSeq || mine.DeliveredSeq < a.acked[id].delivered {
			return fmt.Sprintf("%s: delivered is %d, this device was answered %d, the store has %d", id, mine.DeliveredSeq, a.acked[id].delivered, line.DeliveredSeq)
		}
		stored, err := a.client.Stored(a.ctx, id, 0, len(ledgers[id])+1)
		if err != nil {
			return err.Error()
		}
		var untold []chat.Message
		if line.LeftSeq > 0 {
			untold = ledgers[id]
		}
		if found := unlike(stored, of.messages[id], untold); found != "" {
			return string(id) + ": " + found
		}
		if given := a.givenAbove(id, line.ClearedSeq); len(given) != len(stored) {
			return fmt.Sprintf("%s: the user was given %d messages of %d", id, len(given), len(stored))
		}
	}
	return ""
}

// readTo is where in a conversation what is unread to its user begins.
func (o *ordeal) readTo(user string, line wire.Conversation, ledger []chat.Message) int64 {
	where := o.places[slices.IndexFunc(o.places, func(p place) bool { return p.id == line.ConversationID })]
	stretches := membershipOf(user, where, ledger).stretches
	return max(line.ReadSeq, line.ClearedSeq, stretches[len(stretches)-1].From-1)
}

// givenAbove is the messages above seq that the user was given.
func (a *actor) givenAbove(place chat.ConversationID, seq int64) []chat.Message {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(a.given[place]), func(m chat.Message) bool { return m.Seq <= seq })
}

// unlike compares what a device has with what the store has for its user. A device of
// who is gone, which is given the ledger, may have a message as it was before a recall
// that is not for it: nobody tells of that before the user is back.
func unlike(have, want, ledger []chat.Message) string {
	for i := range max(len(have), len(want)) {
		if i >= len(have) || i >= len(want) || have[i].Seq != want[i].Seq || have[i].MessageID != want[i].MessageID {
			return fmt.Sprintf("it has the seqs %v, the store %v", seqsOf(have), seqsOf(want))
		}
		if reflect.DeepEqual(plain(have[i]), plain(want[i])) {
			continue
		}
		if !changedUnseen(want[i], want, ledger) {
			return fmt.Sprintf("it has %+v, the store %+v", have[i], want[i])
		}
	}
	return ""
}

func changedUnseen(m chat.Message, visible, ledger []chat.Message) bool {
	return slices.ContainsFunc(ledger, func(e chat.Message) bool {
		target := e.Event != nil && e.Event.Kind == chat.EventRecall && (e.Event.TargetSeq == m.Seq || m.Event != nil && m.Event.TargetSeq == e.Event.TargetSeq && m.Event.TargetSeq != 0)
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
func (a *actor) checkSeen(of account, ledgers map[chat.ConversationID][]chat.Message) {
	if err := a.store.fault(); err != nil {
		a.t.Errorf("%s: %v", a, err)
	}
	if stats := a.client.Stats(); stats.Violations > 0 {
		a.t.Errorf("%s: %d answers or frames were against the protocol", a, stats.Violations)
	}
	a.checkIDs(a.String(), a.store.everSeen(), ledgers)
	for id, line := range of.lines {
		if given := seqsOf(a.givenAbove(id, line.ClearedSeq)); !slices.Equal(given, seqsOf(of.messages[id])) {
			a.t.Errorf("%s was given the seqs %v of %s, the store has %v", a, given, id, seqsOf(of.messages[id]))
		}
	}
}

func (w *watcher) checkSeen(of account, ledgers map[chat.ConversationID][]chat.Message) {
	ids := map[chat.ConversationID]map[int64]string{}
	for id, s := range w.seen {
		ids[id] = s.ids
		if s.hidden > of.lines[id].ClearedSeq {
			w.t.Errorf("a watcher of %s was told that nothing up to %d of %s is for it, and it cleared up to %d", w.user, s.hidden, id, of.lines[id].ClearedSeq)
		}
	}
	w.checkIDs("a watcher of "+w.user, ids, ledgers)
}

// checkIDs checks that nobody ever saw another message at a seq than is there.
func (o *ordeal) checkIDs(who string, seen map[chat.ConversationID]map[int64]string, ledgers map[chat.ConversationID][]chat.Message) {
	for id, ids := range seen {
		for seq, messageID := range ids {
			if seq > int64(len(ledgers[id])) || ledgers[id][seq-1].MessageID != messageID {
				o.t.Errorf("%s once had %s as seq %d of %s, which it is not", who, messageID, seq, id)
			}
		}
	}
}
