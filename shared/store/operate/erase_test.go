package operate_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/operate"
)

// erasuresIn returns the events of erasures in a ledger, with all that is in it.
func erasuresIn(t *testing.T, s *store.Store, id chat.ConversationID) (events, all []chat.Message) {
	t.Helper()
	head, err := operate.New(s).Head(t.Context(), id)
	require.NoError(t, err)
	all, err = s.Entries(t.Context(), id, chat.Range{From: 1, To: head.LastSeq})
	require.NoError(t, err)
	for _, m := range all {
		if m.Event != nil && m.Event.Kind == chat.EventErase {
			events = append(events, m)
		}
	}
	return events, all
}

func erase(t *testing.T, s *store.Store, userID string) operate.Erasure {
	t.Helper()
	done, err := operate.New(s).EraseUser(t.Context(), userID, "", true, nothing)
	require.NoError(t, err)
	return done
}

// places returns conversations in each state that one may be in where a user has
// written, by what it is, and one where the user cannot write.
func places(t *testing.T, s *store.Store) (written map[string]chat.ConversationID, system chat.ConversationID) {
	t.Helper()
	ctx := t.Context()
	by := func(id string) store.Request {
		return store.Request{UserID: "alice", DeviceID: "phone", ClientMsgID: id}
	}
	written = map[string]chat.ConversationID{
		"single": send(t, s, "alice", "bob", "s").ConversationID,
		"notes":  send(t, s, "alice", "alice", "n").ConversationID,
	}
	for _, name := range []string{"group", "left", "dissolved"} {
		line, _, err := s.CreateGroup(ctx, by(name), name, []string{"bob"}, chat.VisibleAll)
		require.NoError(t, err)
		id := line.Head.ConversationID
		_, err = s.Append(ctx, chatIn(text("alice", "in "+name, "my secret"), id), "")
		require.NoError(t, err)
		switch name {
		case "left":
			_, err = s.Leave(ctx, by("leave"), id)
		case "dissolved":
			_, err = s.Dissolve(ctx, by("dissolve"), id)
		}
		require.NoError(t, err)
		written[name] = id
	}
	committed, err := s.Publish(ctx, store.Publication{
		Key: "order:1", Title: "Order", Recipients: []string{"alice", "bob"}, ClientMsgID: "p",
		Message: chat.Message{MessageType: chat.TypeSystem, Text: "shipped"},
	})
	require.NoError(t, err)
	return written, committed.ConversationID
}

// A device is told where it holds something of the user's, whatever has become of
// the conversation, once.
func TestG5_AnErasureIsAnEventOfEachLedger(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	written, system := places(t, s)
	before := map[chat.ConversationID]chat.Conversation{}
	for _, id := range written {
		before[id] = c.Head(id)
	}
	done := erase(t, s, "alice")
	require.Equal(t, [2]int{6, 5}, [2]int{done.Conversations, done.Events})
	for name, id := range written {
		events, all := erasuresIn(t, s, id)
		require.Len(t, events, 1, name)
		m := events[0]
		require.Equal(t, all[len(all)-1], m, name)
		require.Equal(t, &chat.Event{Kind: chat.EventErase, Erased: "alice"}, m.Event, name)
		require.Equal(t, [3]any{chat.SystemSender, chat.TypeEvent, chat.StatusNormal}, [3]any{m.SenderID, m.MessageType, m.Status}, name)
		for _, m := range all {
			_, more := m.Erased()
			require.False(t, more && m.SenderID == "alice", "%s: nothing is left at seq %d", name, m.Seq)
			require.Empty(t, m.Text, name)
		}
		want := before[id]
		want.LastSeq, want.UpdatedAt, want.Runs = m.Seq, m.ServerTime, want.Runs.With(m)
		require.Equal(t, want, c.Head(id), "%s: the head is as it was", name)
	}
	events, _ := erasuresIn(t, s, system)
	require.Empty(t, events, "the product wrote it")
	report, err := operate.New(s).AuditAll(t.Context(), operate.AuditCursor{})
	require.NoError(t, err)
	require.Empty(t, report.Violations)

	require.Zero(t, erase(t, s, "alice").Events, "once is enough")
	_, err = s.Append(t.Context(), chatIn(text("alice", "late", "my new secret"), written["single"]), "")
	require.NoError(t, err)
	require.Equal(t, 1, erase(t, s, "alice").Events, "for what was sent since")
	events, _ = erasuresIn(t, s, written["single"])
	require.Len(t, events, 2)
	require.Zero(t, erase(t, s, "bob").Events, "who has written nothing")
}

// What the server's blanking does to a message is what a device does by the event.
func TestG5_ADeviceBlanksAsTheServerDoes(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	_, group := erasable(t, s)
	held := ledger(t, s, "alice", group)
	erase(t, s, "alice")
	now := ledger(t, s, "alice", group)
	event := now[len(now)-1]
	for i, m := range held {
		if event.Erases(m) {
			m, _ = m.Erased()
		}
		require.Equal(t, now[i], m)
	}
}

// The event is there before anything is blank: whatever breaks off is found by the
// next run, and a transaction whose answer was lost is not made twice.
func TestG5_AnErasureThatBreaksOffStillTells(t *testing.T) {
	t.Parallel()
	breaks := map[string]int{"TransactWriteItems": 1, "UpdateItem": 4} // of each: the requests of a run
	for op, requests := range breaks {
		for n := 1; n <= requests; n++ {
			for name, f := range map[string]fault{"dropped": dropped, "unanswered": unanswered} {
				t.Run(fmt.Sprintf("%s %d %s", op, n, name), func(t *testing.T) {
					t.Parallel()
					c := newCloud(t)
					plain := c.Store(nil)
					id := send(t, plain, "alice", "bob", "1").ConversationID
					send(t, plain, "alice", "bob", "2")
					w := &wire{}
					w.Set(func(o string, i int) fault {
						if o == op && i == n {
							return f
						}
						return none
					})
					_, err := operate.New(c.Store(w)).EraseUser(t.Context(), "alice", "", true, nothing)
					require.Equal(t, op == "UpdateItem", err != nil, "%v", err)
					events, _ := erasuresIn(t, plain, id)
					require.Len(t, events, 1)
					erase(t, plain, "alice")
					again, all := erasuresIn(t, plain, id)
					require.Equal(t, events, again)
					require.Len(t, all, 3)
					require.Equal(t, [2]string{}, [2]string{all[0].Text, all[1].Text})
				})
			}
		}
	}
}

// Two runs at a time tell once of what both have found.
func TestG5_TwoErasuresAtATimeTellOnce(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	plain := c.Store(nil)
	id := send(t, plain, "alice", "bob", "1").ConversationID
	w := &wire{}
	s := c.Store(w)
	w.Set(func(op string, n int) fault {
		if op == "TransactWriteItems" && n == 1 {
			erase(t, plain, "alice")
		}
		return none
	})
	erase(t, s, "alice")
	events, _ := erasuresIn(t, plain, id)
	require.Len(t, events, 1)
}

// The event of an edit that came after the event of the erasure has one of its own.
func TestG5_AnEditDuringAnErasureIsToldOfToo(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	other := c.Store(nil)
	sent := send(t, other, "alice", "bob", "1")
	w := &wire{}
	s := c.Store(w)
	w.Set(func(op string, n int) fault {
		if op == "UpdateItem" && n == 2 { // the message, after its record
			edit(t, other, sent, "newer", 1)
		}
		return none
	})
	require.Equal(t, 2, erase(t, s, "alice").Events)
	_, all := erasuresIn(t, other, sent.ConversationID)
	kinds := make([]chat.EventKind, 0, len(all))
	for _, m := range all[1:] {
		require.Empty(t, m.Text)
		kinds = append(kinds, m.Event.Kind)
	}
	require.Equal(t, []chat.EventKind{chat.EventErase, chat.EventEdit, chat.EventErase}, kinds)
}

// A device that was away for longer than messages are kept hears of it.
func TestG5_TheEventOfAnErasureDoesNotExpire(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil, store.WithRetention(7*days))
	id := send(t, s, "alice", "bob", "1").ConversationID
	erase(t, s, "alice")
	events, _ := erasuresIn(t, s, id)
	message, record := c.Lifetimes(store.Committed{Sent: chat.Sent{ConversationID: id, Seq: events[0].Seq}}, chat.SystemSender, events[0].ClientMsgID)
	require.Equal(t, [2]int64{}, [2]int64{message.ExpiresAt, record.ExpiresAt})

	// What goes around it is no loss.
	send(t, s, "bob", "alice", "2")
	erase(t, s, "bob")
	for seq := int64(1); seq <= 4; seq++ {
		c.Age(id, seq, 8*days)
	}
	c.Delete(c.Tables.Messages, entryKey(id, 1))
	c.Delete(c.Tables.Messages, entryKey(id, 3))
	audited := func(s *store.Store) []finding {
		report, err := operate.New(s).AuditConversation(t.Context(), id)
		require.NoError(t, err)
		return found(report)
	}
	require.Empty(t, audited(s))
	require.Equal(t, []finding{{operate.ViolationHole, id, 3, ""}}, audited(c.Store(nil)), "nothing expires without retention")
	page, err := s.Sync(t.Context(), "bob", id, 0, 500, 32*1024)
	require.NoError(t, err)
	require.Equal(t, []int64{2, 4}, []int64{page.Messages[0].Seq, page.Messages[1].Seq})
}

// An erasure that nobody has finished is found by the auditor, once it cannot be
// under way any more.
func TestAudit_FindsAnErasureThatBrokeOff(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := send(t, s, "alice", "bob", "1").ConversationID
	send(t, s, "bob", "alice", "2")
	send(t, s, "alice", "bob", "3")
	w := &wire{}
	w.Set(func(op string, _ int) fault {
		if op == "UpdateItem" {
			return dropped
		}
		return none
	})
	_, err := operate.New(c.Store(w)).EraseUser(t.Context(), "alice", "", true, nothing)
	require.Error(t, err)
	audited := func() []finding {
		report, err := operate.New(s).AuditConversation(t.Context(), id)
		require.NoError(t, err)
		return found(report)
	}
	require.Empty(t, audited(), "it may be under way")
	c.Age(id, 4, 2*time.Hour)
	require.Equal(t, []finding{{operate.ViolationNotErased, id, 1, "alice"}}, audited())
	send(t, s, "alice", "bob", "5")
	require.Zero(t, slices.Index(audited(), finding{operate.ViolationNotErased, id, 1, "alice"}), "what she sends since is another matter")
	erase(t, s, "alice")
	require.Empty(t, audited())
}

// Where the head is lost nobody can be told, and nobody can read.
func TestEraseUser_WithoutAHead(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := send(t, s, "alice", "bob", "1").ConversationID
	c.Delete(c.Tables.Conversations, convKey(id))
	done := erase(t, c.Store(nil), "alice")
	require.Equal(t, [2]int64{1, 0}, [2]int64{done.Messages, int64(done.Events)})
	require.NotContains(t, fmt.Sprint(c.Scan(c.Tables.Messages)), "text of 1")
}

// What cannot be erased as it is, one message or one conversation, is passed over, told
// of and counted, and keeps nothing else from being erased. The next run finishes once
// it is mended.
func TestG10_AnErasureGoesOnPastWhatIsDamaged(t *testing.T) {
	t.Parallel()
	single := chat.SingleID("alice", "bob")
	type place func(c *cloud) (table string, key values)
	message := func(seq int64) place {
		return func(c *cloud) (string, values) { return c.Tables.Messages, entryKey(single, seq) }
	}
	head := func(c *cloud) (string, values) { return c.Tables.Conversations, convKey(single) }
	for name, tc := range map[string]struct {
		place
		damage  values
		damaged int64
		untold  int
	}{
		"the first message":           {message(1), values{"serverTime": "x"}, 1, 0},
		"the last message":            {message(3), values{"version": "x"}, 1, 0},
		"a text of another type":      {message(2), values{"text": values{"a": 1}}, 1, 0},
		"a message without a version": {message(2), values{"version": nil}, 1, 0},
		"a message without its id":    {message(2), values{"messageId": nil}, 1, 0},
		"a version in halves":         {message(2), values{"version": 1.5}, 1, 0},
		"edits that come twice":       {message(2), values{"edits": []int{3, 3}}, 1, 0},
		"a head":                      {head, values{"memberCount": "x"}, 0, 1},
		"a head behind its ledger":    {head, values{"lastSeq": 1}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			var lines strings.Builder
			s := c.Store(nil, store.WithLog(slog.New(slog.NewTextHandler(&lines, nil))))
			sendN(t, s, 3)
			others := []string{"carol", "dave", "erin", "frank"} // before and after it
			for _, other := range others {
				send(t, s, "alice", other, other)
			}
			table, key := tc.place(c)
			whole := c.Raw(table, key)
			c.Set(table, key, tc.damage)
			// A conversation is written to by another environment.
			s = c.Store(nil, store.WithLog(slog.New(slog.NewTextHandler(&lines, nil))))
			dry, err := operate.New(s).EraseUser(t.Context(), "alice", "", false, nothing)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			done, err := operate.New(s).EraseUser(ctx, "alice", "", true, nothing)
			require.NoError(t, err)
			require.Equal(t, [2]any{tc.damaged, tc.untold}, [2]any{done.Damaged, done.Untold})
			require.False(t, done.Whole())
			require.Equal(t, 5, done.Conversations)
			if tc.untold == 0 && !strings.Contains(name, "without") && !strings.Contains(name, "twice") {
				require.Equal(t, dry, done, "a dry run says so too")
			}
			for _, other := range others {
				events, all := erasuresIn(t, s, chat.SingleID("alice", other))
				require.Len(t, events, 1, other)
				require.Empty(t, all[0].Text, other)
			}
			require.Regexp(t, `conversationId=`+string(single), lines.String(), "it is told of")

			_, err = c.DB.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: &table, Item: whole})
			require.NoError(t, err)
			s = c.Store(nil)
			require.True(t, erase(t, s, "alice").Whole())
			events, all := erasuresIn(t, s, single)
			require.NotEmpty(t, events)
			for _, m := range all {
				require.Empty(t, m.Text)
			}
			require.NotContains(t, fmt.Sprint(c.Scan(c.Tables.Messages)), "text of")
			require.True(t, erase(t, s, "alice").Whole())
			report, err := operate.New(s).AuditAll(t.Context(), operate.AuditCursor{})
			require.NoError(t, err)
			require.Empty(t, report.Violations)
		})
	}
}

// A message that names as its edits what is none takes nothing of anyone's with it.
func TestG10_AnErasureFollowsNoEditThatIsNone(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := send(t, s, "alice", "bob", "1").ConversationID
	send(t, s, "bob", "alice", "2")
	c.Set(c.Tables.Messages, entryKey(id, 1), values{"edits": []int{1, 2}})
	require.True(t, erase(t, s, "alice").Whole())
	_, all := erasuresIn(t, s, id)
	require.Equal(t, [2]string{"", "text of 2"}, [2]string{all[0].Text, all[1].Text})
}
