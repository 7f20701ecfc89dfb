package store_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/internal/storetest"
	"github.com/inorder-im/inorder/shared/store/operate"
)

const frame = 31 * 1024

func seqs(messages []chat.Message) []int64 {
	out := []int64{}
	for _, m := range messages {
		out = append(out, m.Seq)
	}
	return out
}

func TestG6_SyncNeverPassesAMessageThatQueryDoesNotShowYet(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := sendN(t, c.Store(nil), 6)
	for name, hidden := range map[string][]int64{
		"the last": {6}, "the first": {1}, "in between": {3, 4}, "all": {1, 2, 3, 4, 5, 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &wire{Edit: hides(func(seq int64) bool {
				for _, h := range hidden {
					if h == seq {
						return true
					}
				}
				return false
			})}
			page, err := c.Store(w).Sync(t.Context(), "bob", id, 0, 100, frame)
			require.NoError(t, err)
			require.Equal(t, []int64{1, 2, 3, 4, 5, 6}, seqs(page.Messages))
			require.Empty(t, page.Skipped)
			require.Len(t, hidden, page.Resolved)
			require.Equal(t, int64(6), page.NextSeq)
			older, err := c.Store(w).History(t.Context(), "bob", id, 0, 100, frame)
			require.NoError(t, err)
			require.Equal(t, []int64{1, 2, 3, 4, 5, 6}, seqs(older.Messages))
			require.Len(t, hidden, older.Resolved)
			entries, err := c.Store(w).Entries(t.Context(), id, chat.Range{From: 2, To: 5})
			require.NoError(t, err)
			require.Equal(t, []int64{2, 3, 4, 5}, seqs(entries))
		})
	}
}

func TestG6_SyncNamesWhatAnOperatorDeletedAndMovesOn(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := sendN(t, s, 6)
	for _, seq := range []int64{2, 3, 6} {
		c.DeleteMessage(id, seq)
	}
	page, err := s.Sync(t.Context(), "bob", id, 0, 100, frame)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 4, 5}, seqs(page.Messages))
	require.Equal(t, []int64{2, 3, 6}, page.Skipped)
	require.Zero(t, page.Resolved)
	require.Equal(t, int64(6), page.NextSeq)
	require.Equal(t, int64(6), page.CommittedMaxSeq)
	require.False(t, page.HasMore)
	older, err := s.History(t.Context(), "bob", id, 4, 100, frame)
	require.NoError(t, err)
	require.Equal(t, []int64{1}, seqs(older.Messages))
	require.Equal(t, int64(1), older.NextBeforeSeq)
	require.False(t, older.HasMore)
}

func TestG6_ExpiredMessagesAreSkippedBeforeDynamoDBDeletesThem(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := sendN(t, s, 2)
	c.Put(c.Tables.Messages, map[string]any{
		"conversationId": id, "seq": 1, "messageId": "old", "expiresAt": time.Now().Unix() - 1,
	})
	page, err := s.Sync(t.Context(), "bob", id, 0, 100, frame)
	require.NoError(t, err)
	require.Equal(t, []int64{2}, seqs(page.Messages))
	require.Equal(t, []int64{1}, page.Skipped)
}

// walk syncs from the start in small pages, checks that they account for every
// seq, and returns what was read.
func walk(t *testing.T, s *store.Store, conversationID chat.ConversationID, last int64) (got []chat.Message, skipped []int64, first int64, pages int) {
	t.Helper()
	for after := int64(0); after < last; pages++ {
		page, err := s.Sync(t.Context(), "bob", conversationID, after, 500, 2000)
		require.NoError(t, err)
		require.Greater(t, page.NextSeq, after, "every page moves on")
		from := max(after+1, page.FirstSeq)
		require.Equal(t, page.NextSeq+1, from+int64(len(page.Messages)+len(page.Skipped)), "every seq is accounted for")
		require.Equal(t, page.NextSeq < last, page.HasMore)
		require.Equal(t, last, page.CommittedMaxSeq)
		first = max(first, page.FirstSeq)
		got, skipped, after = append(got, page.Messages...), append(skipped, page.Skipped...), page.NextSeq
	}
	return got, skipped, first, pages
}

func TestG6_ALongGapIsCrossedAtOnce(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := sendN(t, s, 1)
	c.Put(c.Tables.Conversations, map[string]any{
		"conversationId": id, "kind": "single", "lastSeq": 3500, "membersVersion": 1, "memberCount": 2, "state": "active",
	})
	require.Equal(t, int64(3501), send(t, s, "alice", "bob", "after the repair").Seq)

	got, skipped, first, pages := walk(t, s, id, 3501)
	require.Equal(t, []int64{1, 3501}, seqs(got), "the gap does not hide what is before it")
	require.Empty(t, skipped)
	require.Equal(t, int64(3501), first)
	require.Equal(t, 2, pages)

	c.DeleteMessage(id, 1)
	_, _, first, pages = walk(t, s, id, 3501)
	require.Equal(t, int64(3501), first)
	require.Equal(t, 1, pages)
	history, err := s.History(t.Context(), "bob", id, 0, 100, frame)
	require.NoError(t, err)
	require.Equal(t, []int64{3501}, seqs(history.Messages))
	require.False(t, history.HasMore)
	entries, err := s.Entries(t.Context(), id, chat.Range{From: 1, To: 3501})
	require.NoError(t, err)
	require.Equal(t, []int64{3501}, seqs(entries))
}

func TestSyncPages(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := sendN(t, s, 120)
	one, err := s.Sync(t.Context(), "bob", id, 0, 1, frame)
	require.NoError(t, err)
	size, err := one.Messages[0].Size()
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		after           int64
		limit, maxBytes int
		first, last     int64
	}{
		"limit":               {0, 7, frame, 1, 7},
		"across query pages":  {0, 60, frame, 1, 60},
		"to the end":          {100, 500, frame, 101, 120},
		"bytes":               {0, 500, 3*size + 10, 1, 3},
		"at least one":        {5, 500, 1, 6, 6},
		"nothing new":         {120, 10, frame, 0, 120},
		"a cursor beyond all": {500, 10, frame, 0, 500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page, err := s.Sync(t.Context(), "bob", id, tc.after, tc.limit, tc.maxBytes)
			require.NoError(t, err)
			require.NotNil(t, page.Messages)
			require.Equal(t, tc.last, page.NextSeq)
			require.Equal(t, int64(120), page.CommittedMaxSeq)
			require.Equal(t, tc.last < 120, page.HasMore)
			if tc.first == 0 {
				require.Empty(t, page.Messages)
				return
			}
			require.Len(t, page.Messages, int(tc.last-tc.first)+1)
			for i, m := range page.Messages {
				require.Equal(t, tc.first+int64(i), m.Seq)
			}
		})
	}
	requireDense(t, ledger(t, s, "alice", id), 120)
}

func TestHistoryPages(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := sendN(t, s, 70)
	var all []chat.Message
	before := int64(0)
	for pages := 1; ; pages++ {
		page, err := s.History(t.Context(), "bob", id, before, 30, frame)
		require.NoError(t, err)
		all = append(page.Messages, all...)
		before = page.NextBeforeSeq
		if !page.HasMore {
			require.Equal(t, 3, pages)
			break
		}
	}
	requireDense(t, all, 70)
}

func TestSyncReadsOnlyWhatItNeeds(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := sendN(t, c.Store(nil), 20)
	w := &wire{}
	s := c.Store(w)
	_, err := s.Sync(t.Context(), "bob", id, 0, 100, frame)
	require.NoError(t, err)
	calls, n := w.Since(0)
	require.Equal(t, []string{"GetItem", "GetItem", "Query"}, calls)
	_, err = s.Sync(t.Context(), "bob", id, 20, 100, frame)
	require.NoError(t, err)
	calls, _ = w.Since(n)
	require.Equal(t, []string{"GetItem", "GetItem"}, calls, "nothing is new")
}

func TestG9_WhatAUserMayRead(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := sendN(t, s, 20)
	inbox := func(user string, v map[string]any) {
		v["userId"], v["conversationId"] = user, id
		c.Put(c.Tables.Inboxes, v)
	}
	inbox("late", map[string]any{"joinSeq": 11})
	inbox("left", map[string]any{"joinSeq": 1, "leftSeq": 5})
	inbox("cleared", map[string]any{"joinSeq": 1, "clearedSeq": 18})
	inbox("cleared all", map[string]any{"joinSeq": 1, "clearedSeq": 20})
	for user, tc := range map[string]struct {
		first, last, firstSeq int64
		unread                int64
	}{
		"late":        {11, 20, 11, 10},
		"left":        {1, 5, 0, 5},
		"cleared":     {19, 20, 19, 2},
		"cleared all": {0, 20, 21, 0},
	} {
		page, err := s.Sync(t.Context(), user, id, 0, 100, frame)
		require.NoError(t, err, user)
		require.Equal(t, tc.last, page.NextSeq, user)
		require.Equal(t, tc.last, page.CommittedMaxSeq, user)
		require.Equal(t, tc.firstSeq, page.FirstSeq, user)
		require.False(t, page.HasMore, user)
		if tc.first == 0 {
			require.Empty(t, page.Messages, user)
		} else {
			require.Equal(t, tc.first, page.Messages[0].Seq, user)
			require.Equal(t, tc.last, page.Messages[len(page.Messages)-1].Seq, user)
		}
		older, err := s.History(t.Context(), user, id, 0, 100, frame)
		require.NoError(t, err, user)
		require.Equal(t, seqs(page.Messages), seqs(older.Messages), user)
		require.False(t, older.HasMore, user)
		lines, _, err := s.List(t.Context(), user, "", 10)
		require.NoError(t, err)
		require.Equal(t, tc.unread, lines[0].Unread(), user)
		require.Equal(t, tc.last, lines[0].LastSeq(), user)
		require.Equal(t, tc.first != 0, lines[0].Last != nil, user)
	}
	for _, user := range []string{"mallory", "#"} {
		_, err := s.Sync(t.Context(), user, id, 0, 100, frame)
		require.Equal(t, chat.CodeNotFound, chat.CodeOf(err))
	}
	_, err := s.Sync(t.Context(), "bob", "group:none", 0, 100, frame)
	require.Equal(t, chat.CodeNotFound, chat.CodeOf(err))
}

func TestDataComesBackAsItWasSent(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	m := text("alice", "1", "")
	m.MessageType, m.Text = chat.TypeCustom, ""
	m.Data = json.RawMessage(`{"big":12345678901234567890,"nested":{"a":[1,null,"é"]},"empty":""}`)
	answered := send(t, s, "bob", "alice", "0")
	m.ReplyTo = &chat.ReplyTo{Seq: 1, MessageID: answered.MessageID}
	m.ClientTime = 77
	r, err := s.Append(t.Context(), m, "bob")
	require.NoError(t, err)
	got := ledger(t, s, "bob", r.ConversationID)[1]
	require.Equal(t, string(m.Data), string(got.Data))
	require.Equal(t, m.ReplyTo, got.ReplyTo)
	m.ConversationID, m.Seq, m.MessageID, m.ServerTime = r.ConversationID, 2, r.MessageID, r.ServerTime
	m.Version, m.Status = 1, chat.StatusNormal
	require.Equal(t, m, got)
}

// plant puts a message where it was never sent.
func plant(c *cloud, conversationID chat.ConversationID, seq int64) {
	c.T.Helper()
	c.Put(c.Tables.Messages, values{
		"conversationId": conversationID, "seq": seq, "messageId": fmt.Sprint("m", seq), "clientMsgId": fmt.Sprint("c", seq),
		"senderId": "alice", "messageType": "text", "text": "x", "version": 1, "status": "normal", "serverTime": time.Now().UnixMilli(),
	})
}

// However many seqs are gone, passing them takes no more calls and no work for each:
// one of these would take hours.
func TestG6_AGapOfAnyLengthIsCrossedAtOnce(t *testing.T) {
	t.Parallel()
	const gap = int64(1) << 40
	for name, tc := range map[string]struct {
		before, after int64 // how many messages there are on its sides
		pages         int   // of a device that syncs all
	}{
		"at the start":  {0, 60, 1},
		"in the middle": {3, 60, 2},
		"at the end":    {3, 0, 2},
		"all is gone":   {0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			id := sendN(t, c.Store(nil), 3)
			last := 3 + gap + tc.after
			want := []int64{}
			for seq := int64(1); seq <= 3; seq++ {
				if tc.before == 0 {
					c.DeleteMessage(id, seq)
				} else {
					want = append(want, seq)
				}
			}
			for seq := last - tc.after + 1; seq <= last; seq++ {
				plant(c, id, seq)
				want = append(want, seq)
			}
			c.Set(c.Tables.Conversations, convKey(id), values{"lastSeq": last})
			w := &wire{}
			s := c.Store(w)

			var got []int64
			pages, after := 0, int64(0)
			for more := true; more; pages++ {
				page, err := s.Sync(t.Context(), "bob", id, after, 100, frame)
				require.NoError(t, err)
				require.Greater(t, page.NextSeq, after)
				require.Empty(t, page.Skipped)
				got, after, more = append(got, seqs(page.Messages)...), page.NextSeq, page.HasMore
			}
			require.ElementsMatch(t, want, got)
			require.Equal(t, last, after)
			require.Equal(t, tc.pages, pages)
			calls, n := w.Since(0)
			require.LessOrEqual(t, len(calls), 6*pages, calls)

			got, pages = nil, 0
			for before := int64(0); ; pages++ {
				page, err := s.History(t.Context(), "bob", id, before, 50, frame)
				require.NoError(t, err)
				got = append(seqs(page.Messages), got...)
				if before = page.NextBeforeSeq; !page.HasMore {
					break
				}
			}
			require.ElementsMatch(t, want, got)
			calls, n2 := w.Since(n)
			require.LessOrEqual(t, len(calls), 6*(pages+1), calls)

			entries, err := s.Entries(t.Context(), id, chat.Range{From: 1, To: last})
			require.NoError(t, err)
			require.ElementsMatch(t, want, seqs(entries))
			calls, n3 := w.Since(n2)
			require.LessOrEqual(t, len(calls), 8, calls)

			_, err = operate.New(s).AuditConversation(t.Context(), id)
			require.NoError(t, err)
			calls, _ = w.Since(n3)
			require.LessOrEqual(t, len(calls), 100, "an audit looks at the newest seqs of a gap")
		})
	}
}

// A page of large messages reads few of them; one of small messages reads all at
// once, as if there were no large ones.
func TestAPageReadsAboutWhatItHasRoomFor(t *testing.T) {
	t.Parallel()
	const most = 60
	for name, tc := range map[string]struct {
		sizes   func(i int) int // of the data of message i, counted from the end
		limit   int
		unknown bool // a head from before it said how large its entries are
		queries int
		units   float64
		found   int
	}{
		"a page of small ones":                 {sizes: func(int) int { return 20 }, limit: 50, queries: 1, units: 3, found: 50},
		"the largest":                          {sizes: func(int) int { return 24000 }, limit: 50, queries: 1, units: 12, found: 1},
		"the largest, and nobody says so":      {sizes: func(int) int { return 24000 }, limit: 50, unknown: true, queries: 1, units: 36, found: 1},
		"of 8 KB":                              {sizes: func(int) int { return 8000 }, limit: 50, queries: 1, units: 13, found: 3},
		"small ones, and nobody says so":       {sizes: func(int) int { return 20 }, limit: 50, unknown: true, queries: 2, units: 4, found: 50},
		"small ones before a large one":        {sizes: func(i int) int { return map[bool]int{true: 24000, false: 20}[i == most-1] }, limit: 50, queries: 3, units: 5, found: 50},
		"a large one before small ones":        {sizes: func(i int) int { return map[bool]int{true: 24000, false: 20}[i == 0] }, limit: 50, queries: 3, units: 12, found: 26},
		"no more than asked for of large ones": {sizes: func(int) int { return 8000 }, limit: 2, queries: 1, units: 5, found: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			writer := c.Store(nil)
			id := chat.ConversationID("")
			for i := range most {
				m := text("alice", fmt.Sprint(i), "")
				m.MessageType = chat.TypeCustom
				m.Data = json.RawMessage(`{"a":"` + strings.Repeat("x", tc.sizes(most-1-i)) + `"}`)
				r, err := writer.Append(t.Context(), m, "bob")
				require.NoError(t, err)
				id = r.ConversationID
			}
			if tc.unknown {
				c.Set(c.Tables.Conversations, convKey(id), values{"largestEntry": nil})
			}
			var bill storetest.Bill
			options := c.Options(nil)
			options.APIOptions = append(options.APIOptions, bill.Charge)
			page, err := store.New(dynamodb.New(options), c.Tables).History(t.Context(), "bob", id, 0, tc.limit, frame)
			require.NoError(t, err)
			require.Equal(t, tc.found, len(page.Messages)) //nolint:testifylint // Len prints 24 KB messages
			require.Equal(t, int64(most), page.Messages[len(page.Messages)-1].Seq)
			require.Equal(t, tc.queries, bill.Queries)
			require.LessOrEqual(t, bill.Reads, tc.units)
			t.Logf("%v units", bill.Reads)
		})
	}
}
