package store_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/store"
)

// telling returns a Store that tells of damaged items, and what it has told since it
// was last asked: a line for each.
func telling(c *cloud, w *wire) (s *store.Store, told func() []map[string]any) {
	var out bytes.Buffer
	s = c.Store(w, store.WithLog(slog.New(metric.NewHandler(&out, metric.Options{}))))
	return s, func() (lines []map[string]any) {
		c.T.Helper()
		for line := range strings.Lines(out.String()) {
			var fields map[string]any
			require.NoError(c.T, json.Unmarshal([]byte(line), &fields))
			require.Equal(c.T, "ERROR", fields["level"])
			require.InDelta(c.T, 1, fields[string(metric.InvariantItem)], 0)
			require.NotEmpty(c.T, fields["err"])
			lines = append(lines, fields)
		}
		out.Reset()
		return lines
	}
}

// requireTold checks that there is one line, and that it names the item by these.
func requireTold(t *testing.T, told []map[string]any, fields values) {
	t.Helper()
	require.Len(t, told, 1)
	for name, want := range fields {
		require.Equal(t, want, told[0][name], name)
	}
}

// One conversation of a user is damaged: the others are listed, and go on.
func TestG10_ADamagedLineIsLeftOutOfTheList(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 40_000)
	for name, damage := range map[string]func(c *cloud, id chat.ConversationID){
		"a text for the head's memberCount": func(c *cloud, id chat.ConversationID) {
			c.Set(c.Tables.Conversations, convKey(id), values{"memberCount": "two"})
		},
		"a text for the head's lastSeq": func(c *cloud, id chat.ConversationID) {
			c.Set(c.Tables.Conversations, convKey(id), values{"lastSeq": "1"})
		},
		"a lastSeq beyond all": func(c *cloud, id chat.ConversationID) {
			c.Set(c.Tables.Conversations, convKey(id), values{"lastSeq": 1 << 60})
		},
		"a title that no frame takes": func(c *cloud, id chat.ConversationID) {
			c.Set(c.Tables.Conversations, convKey(id), values{"title": long})
		},
		"a text for the line's readSeq": func(c *cloud, id chat.ConversationID) {
			c.Set(c.Tables.Inboxes, lineKey("bob", id), values{"readSeq": "1"})
		},
		"a peer that no frame takes": func(c *cloud, id chat.ConversationID) {
			c.Set(c.Tables.Inboxes, lineKey("bob", id), values{"peer": long})
		},
		"a head of a former member's line": func(c *cloud, id chat.ConversationID) {
			c.Set(c.Tables.Inboxes, lineKey("bob", id), values{"leftHead": "gone"})
		},
		"a list for what one may read again": func(c *cloud, id chat.ConversationID) {
			c.Set(c.Tables.Inboxes, lineKey("bob", id), values{"past": []string{"all"}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			s, told := telling(c, nil)
			var ids []chat.ConversationID
			for _, sender := range []string{"alice", "carol", "dave"} {
				ids = append(ids, send(t, s, sender, "bob", "hi").ConversationID)
			}
			cursor, err := s.Raise(t.Context(), "bob", ids)
			require.NoError(t, err)
			_, err = s.Raise(t.Context(), "bob", ids)
			require.NoError(t, err)
			damage(c, ids[1])
			check := func(lines []store.Line, err error) {
				t.Helper()
				require.NoError(t, err)
				var got []chat.ConversationID
				for _, line := range lines {
					got = append(got, line.Head.ConversationID)
					require.NotNil(t, line.Last)
				}
				require.ElementsMatch(t, []chat.ConversationID{ids[0], ids[2]}, got)
				requireTold(t, told(), values{"conversationId": string(ids[1])})
			}
			lines, _, err := s.List(t.Context(), "bob", "", 50)
			check(lines, err)
			changed, err := s.Changes(t.Context(), "bob", cursor, "", 50)
			require.False(t, changed.Full)
			check(changed.Lines, err)
			changed, err = s.Changes(t.Context(), "bob", 0, "", 50)
			check(changed.Lines, err)
		})
	}
}

// A last message that is damaged is no preview; its conversation is listed.
func TestG10_ADamagedLastMessageIsNoPreview(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]values{
		"a text for a time":        {"serverTime": "noon"},
		"a sender no frame takes":  {"senderId": strings.Repeat("x", 30_000)},
		"a list for an event":      {"event": []string{"edit"}},
		"a text for when it ended": {"expiresAt": "never"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			s, told := telling(c, nil)
			healthy, damaged := send(t, s, "alice", "bob", "hi").ConversationID, send(t, s, "carol", "bob", "hi").ConversationID
			c.Set(c.Tables.Messages, entryKey(damaged, 1), damage)
			lines, _, err := s.List(t.Context(), "bob", "", 50)
			require.NoError(t, err)
			require.Len(t, lines, 2)
			for _, line := range lines {
				require.Equal(t, line.Head.ConversationID == healthy, line.Last != nil)
				require.Equal(t, int64(1), line.LastSeq())
			}
			requireTold(t, told(), values{"table": c.Tables.Messages, "conversationId": string(damaged), "seq": "1"})
		})
	}
}

// A damaged entry is as good as gone: devices pass it, and so does the fan-out.
func TestG6_SyncPassesADamagedEntry(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]values{
		"a text for a time":        {"serverTime": "noon"},
		"data that is no JSON":     {"data": "{"},
		"more than a frame":        {"text": strings.Repeat("x", 40_000)},
		"more than a message":      {"data": `{"a":"` + strings.Repeat("x", chat.MaxMessageBytes) + `"}`},
		"no messageId":             {"messageId": nil},
		"a text for when it ended": {"expiresAt": "never"},
	} {
		for _, seq := range []int64{1, 3, 5} {
			t.Run(fmt.Sprint(name, " at ", seq), func(t *testing.T) {
				t.Parallel()
				c := newCloud(t)
				s, told := telling(c, nil)
				id := sendN(t, s, 5)
				c.Set(c.Tables.Messages, entryKey(id, seq), damage)
				var rest []int64
				for other := int64(1); other <= 5; other++ {
					if other != seq {
						rest = append(rest, other)
					}
				}
				item := values{"table": c.Tables.Messages, "conversationId": string(id), "seq": fmt.Sprint(seq)}

				page, err := s.Sync(t.Context(), "bob", id, 0, 100, frame)
				require.NoError(t, err)
				require.Equal(t, rest, seqs(page.Messages))
				require.Equal(t, []int64{seq}, page.Skipped)
				require.Equal(t, int64(5), page.NextSeq)
				requireTold(t, told(), item)

				history, err := s.History(t.Context(), "bob", id, 0, 100, frame)
				require.NoError(t, err)
				require.Equal(t, rest, seqs(history.Messages))
				require.False(t, history.HasMore)
				requireTold(t, told(), item)

				entries, err := s.Entries(t.Context(), id, chat.Range{From: 1, To: 5})
				require.NoError(t, err)
				require.Equal(t, rest, seqs(entries))
				requireTold(t, told(), item)
				require.Equal(t, int64(6), send(t, s, "alice", "bob", "life goes on").Seq)
			})
		}
	}
}

// The largest message that can be sent, edited as often as can be, is read.
func TestG6_TheLargestMessageIsNoDamage(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s, told := telling(c, nil)
	m := chatOf(func(n int) chat.Message {
		m := text("alice", "large", "")
		m.MessageType, m.Data = chat.TypeCustom, json.RawMessage(`{"a":"`+strings.Repeat("x", n)+`"}`)
		m.ConversationID, m.MessageID, m.Version, m.Status = chat.SingleID("alice", "bob"), strings.Repeat("0", 26), 1, chat.StatusNormal
		m.ServerTime, m.Seq = 1795950400000, chat.MaxSeq
		return m
	})
	r, err := s.Append(t.Context(), m, "bob")
	require.NoError(t, err)
	c.Set(c.Tables.Messages, entryKey(r.ConversationID, 1), values{"version": int64(chat.MaxSeq), "status": "recalled"})
	page, err := s.Sync(t.Context(), "bob", r.ConversationID, 0, 100, frame)
	require.NoError(t, err)
	require.Len(t, page.Messages, 1)
	require.Empty(t, told())
}

// chatOf returns the largest message that a function of a size makes valid.
func chatOf(of func(n int) chat.Message) chat.Message {
	n := chat.MaxMessageBytes
	for of(n).Validate() != nil {
		n--
	}
	return of(n)
}

// What stands between two seqs is no entry of anyone's, and hides none.
func TestG6_SyncPassesWhatStandsBetweenTwoSeqs(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s, told := telling(c, nil)
	id := sendN(t, s, 5)
	for i := range 70 { // more than a Query gives
		c.Put(c.Tables.Messages, values{"conversationId": id, "seq": 2.01 + float64(i)/100, "messageId": fmt.Sprint("m", i)})
	}
	want := []int64{1, 2, 3, 4, 5}
	page, err := s.Sync(t.Context(), "bob", id, 0, 100, frame)
	require.NoError(t, err)
	require.Equal(t, want, seqs(page.Messages))
	require.Empty(t, page.Skipped)
	history, err := s.History(t.Context(), "bob", id, 0, 100, frame)
	require.NoError(t, err)
	require.Equal(t, want, seqs(history.Messages))
	require.NotEmpty(t, told())
}

// A member whose item is damaged is counted, and told nothing; the others hear as
// before, for no more reads.
func TestG10_ADamagedMemberDoesNotStopTheRoster(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	w := &wire{}
	s, told := telling(c, w)
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob", "cy")
	c.Set(c.Tables.Members, rosterKey(id, "bob"), values{"joinSeq": "first"})

	rosters := store.NewRosters(s)
	_, before := w.Since(0)
	members, err := rosters.At(t.Context(), id, 1)
	require.NoError(t, err)
	calls, _ := w.Since(before)
	require.Equal(t, []string{"GetItem", "Query"}, calls)
	var readers []string
	for _, m := range members {
		if m.JoinSeq <= 1 {
			readers = append(readers, m.UserID)
		}
	}
	require.Equal(t, []string{"ann", "cy"}, readers)
	requireTold(t, told(), values{"table": c.Tables.Members, "conversationId": string(id), "userId": "bob"})

	page, err := s.MembersOf(t.Context(), "ann", id, "", 80)
	require.NoError(t, err)
	require.Len(t, page.Members, 3)
	require.Equal(t, "bob", page.Members[1].UserID)
	require.Equal(t, chat.RolePlain, page.Members[1].Role)
	receipts, err := s.Receipts(t.Context(), "ann", id, 1, "", 50)
	require.NoError(t, err)
	require.NotContains(t, receipts.Delivered, "bob")
}

func TestG10_ADamagedConnectionsItemDoesNotStopOthersPushes(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s, told := telling(c, nil)
	c.Put(c.Tables.Connections, values{"userId": "alice", "conns": "one"})
	conn := store.Connection{ID: "c1", DeviceID: "phone", ConnectedAt: 4102444800000}
	_, err := s.Connect(t.Context(), "bob", conn)
	require.NoError(t, err)
	found, err := s.Connections(t.Context(), []string{"alice", "bob"})
	require.NoError(t, err)
	require.Equal(t, map[string][]store.Connection{"bob": {conn}}, found)
	requireTold(t, told(), values{"table": c.Tables.Connections, "userId": "alice"})
}

// A second page that cannot be read tells nothing: the whole list does.
func TestG10_ADamagedSecondPageIsNoReasonToHearNothing(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	ids := c.Lines("bob", 40)
	cursor := raise(t, s, "bob", ids[:1])
	for _, id := range ids {
		raise(t, s, "bob", []chat.ConversationID{id})
	}
	c.Set(c.Tables.Inboxes, lineKey("bob", "#second"), values{"floor": "x"})
	changed, err := s.Changes(t.Context(), "bob", cursor, "", 50)
	require.NoError(t, err)
	require.True(t, changed.Full)
	for _, id := range ids {
		raise(t, s, "bob", []chat.ConversationID{id})
	}
	changed, err = s.Changes(t.Context(), "bob", cursor, "", 50)
	require.NoError(t, err)
	require.True(t, changed.Full)
}

// One that is met when a gap is looked into, as it was being committed when the Query read
// the ledger, is passed over too.
func TestG6_SyncPassesADamagedEntryInAGap(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := sendN(t, c.Store(nil), 4)
	c.Set(c.Tables.Messages, entryKey(id, 3), values{"serverTime": "x"})
	s := c.Store(&wire{Edit: hides(func(seq int64) bool { return seq == 3 })})
	page, err := s.Sync(t.Context(), "bob", id, 0, 100, frame)
	require.NoError(t, err)
	require.Len(t, page.Messages, 3)
	require.Equal(t, int64(4), page.NextSeq)
	require.Equal(t, []int64{3}, page.Skipped)
}

// One member's line is damaged: what the others have read is told.
func TestG10_ADamagedLineDoesNotStopTheReceipts(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s, told := telling(c, nil)
	id := newGroup(t, s, chat.VisibleAll, "ann", "bob", "cy")
	sent, err := s.Append(t.Context(), chatIn(text("ann", "1", "hi"), id), "")
	require.NoError(t, err)
	for _, user := range []string{"bob", "cy"} {
		c.Set(c.Tables.Inboxes, lineKey(user, id), values{"readSeq": sent.Seq})
	}
	c.Set(c.Tables.Inboxes, lineKey("cy", id), values{"readSeq": "x"})
	page, err := s.Receipts(t.Context(), "ann", id, sent.Seq, "", 100)
	require.NoError(t, err)
	require.Contains(t, page.Read, "bob")
	require.NotContains(t, page.Read, "cy")
	requireTold(t, told(), values{"userId": "cy", "conversationId": string(id)})
}

// A list of large conversations with what is no id tells of the others.
func TestG10_AListWithWhatIsNoIDTellsOfTheOthers(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	ids := c.Lines("bob", 2)
	cursor := raise(t, s, "bob", ids[:1])
	require.NoError(t, s.Enlist(t.Context(), "bob", ids[1]))
	require.NoError(t, s.Enlist(t.Context(), "bob", chat.ConversationID("group:"+strings.Repeat("x", 3000))))
	changed, err := s.Changes(t.Context(), "bob", cursor, "", 50)
	require.NoError(t, err)
	require.Len(t, changed.Heads, 1)
}
