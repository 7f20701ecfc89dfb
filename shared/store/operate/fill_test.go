package operate_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/dynamo"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/internal/storetest"
	"github.com/inorder-im/inorder/shared/store/operate"
)

// restored returns tables in the same database, as DynamoDB restores into new ones.
func restored(c *cloud) store.Tables {
	c.T.Helper()
	stack, err := storetest.TheStack()
	require.NoError(c.T, err)
	rename := func(name string) string { return strings.Replace(name, "inorder-", "restored-", 1) }
	tables := slices.Clone(stack.Tables)
	for i, table := range tables {
		copied := *table
		copied.Name = rename(table.Name)
		tables[i] = &copied
	}
	require.NoError(c.T, dynamo.CreateTables(c.T.Context(), c.DB, tables))
	return store.Tables{
		Conversations: rename(c.Tables.Conversations), Messages: rename(c.Tables.Messages), Idempotency: rename(c.Tables.Idempotency),
		Members: rename(c.Tables.Members), Inboxes: rename(c.Tables.Inboxes), Connections: rename(c.Tables.Connections), Lane: rename(c.Tables.Lane),
	}
}

func withoutSyncHeads(items []string) []string {
	return slices.DeleteFunc(items, func(item string) bool { return strings.Contains(item, "conversationId:# ") })
}

func TestFill(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	from := restored(c)
	old := store.New(c.DB, from)
	single, _ := lively(t, old)
	send(t, old, "zoe", "zoe", "note")
	s := c.Store(nil)

	counted, err := operate.New(s).Fill(t.Context(), from, operate.FillOptions{}, func(operate.Filled) {})
	require.NoError(t, err)
	require.Zero(t, c.Count(c.Tables.Messages), "a dry run copies nothing")
	var last operate.Filled
	done, err := operate.New(s).Fill(t.Context(), from, operate.FillOptions{Act: true}, func(f operate.Filled) { last = f })
	require.NoError(t, err)
	require.Equal(t, counted, done)
	require.Equal(t, done, last)
	for table, copied := range map[[2]string]int64{
		{from.Conversations, c.Tables.Conversations}: done.Conversations,
		{from.Messages, c.Tables.Messages}:           done.Messages,
		{from.Idempotency, c.Tables.Idempotency}:     done.Idempotency,
		{from.Members, c.Tables.Members}:             done.Members,
		{from.Inboxes, c.Tables.Inboxes}:             done.Inboxes,
	} {
		require.Equal(t, withoutSyncHeads(c.Scan(table[0])), withoutSyncHeads(c.Scan(table[1])), table[1])
		require.Len(t, c.Scan(table[1]), int(copied), table[1])
		require.Positive(t, copied, table[1])
	}
	report, err := operate.New(s).AuditAll(t.Context(), operate.AuditCursor{})
	require.NoError(t, err)
	require.Empty(t, report.Violations)
	require.Equal(t, int64(13), send(t, s, "alice", "bob", "goes on").Seq)

	_, err = operate.New(s).Fill(t.Context(), from, operate.FillOptions{Act: true}, func(operate.Filled) {})
	require.ErrorContains(t, err, "is not empty")
	_, err = operate.New(s).Fill(t.Context(), from, operate.FillOptions{Act: true, Again: true}, func(operate.Filled) {})
	require.NoError(t, err)
	require.Equal(t, int64(12), c.Head(single).LastSeq, "as it was restored")
	_, err = operate.New(s).Fill(t.Context(), c.Tables, operate.FillOptions{Act: true, Again: true}, func(operate.Filled) {})
	require.ErrorContains(t, err, "from itself")
}

// A device that has heard more than the restored sync head has told is told
// everything, and not only what is above the number it heard last.
func TestG5_ADeviceHearsOfAllThatIsNewAfterARestore(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	from := restored(c)
	old := store.New(c.DB, from)
	single, group := lively(t, old)
	restored, err := old.Raise(t.Context(), "bob", []chat.ConversationID{single})
	require.NoError(t, err)
	require.NoError(t, old.Enlist(t.Context(), "cy", group)) // a sync head that has told of nothing
	heard := restored + 2                                    // what came between is lost

	s := c.Store(nil)
	_, err = operate.New(s).Fill(t.Context(), from, operate.FillOptions{Act: true}, func(operate.Filled) {})
	require.NoError(t, err)
	for _, id := range []chat.ConversationID{single, group, group, group} {
		_, err = s.Raise(t.Context(), "bob", []chat.ConversationID{id})
		require.NoError(t, err)
	}
	_, err = s.Raise(t.Context(), "cy", []chat.ConversationID{group})
	require.NoError(t, err)
	told, err := s.Changes(t.Context(), "bob", heard, "", 50)
	require.NoError(t, err)
	require.True(t, told.Full)
	var ids []chat.ConversationID
	for _, line := range told.Lines {
		ids = append(ids, line.Head.ConversationID)
	}
	require.Subset(t, ids, []chat.ConversationID{single, group})
	again, err := s.Changes(t.Context(), "bob", told.Cursor, "", 50)
	require.NoError(t, err)
	require.False(t, again.Full, "once")
	require.Empty(t, again.Lines)
}

// What DynamoDB does not take at once is offered again.
func TestFill_UnprocessedItems(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	from := restored(c)
	old := store.New(c.DB, from)
	for i := range 40 {
		send(t, old, "alice", "bob", string(rune('A'+i)))
	}
	w := &wire{}
	refusals := 3
	w.Set(func(op string, _ int) fault {
		if op == "BatchWriteItem" && refusals > 0 {
			refusals--
			return throttled
		}
		return none
	})
	done, err := operate.New(c.Store(w)).Fill(t.Context(), from, operate.FillOptions{Act: true}, func(operate.Filled) {})
	require.NoError(t, err)
	require.Zero(t, refusals)
	require.Equal(t, int64(40), done.Messages)
	require.Equal(t, c.Scan(from.Messages), c.Scan(c.Tables.Messages))
}

// A sync head that cannot be read cannot jump. It is left out, which has the user's
// devices read their whole list once, and keeps nothing else from being copied.
func TestG10_AFillGoesOnPastADamagedSyncHead(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	from := restored(c)
	old := store.New(c.DB, from)
	lively(t, old)
	for _, user := range []string{"alice", "bob", "cy"} {
		_, err := old.Raise(t.Context(), user, []chat.ConversationID{"group:1"})
		require.NoError(t, err)
	}
	c.Set(from.Inboxes, lineKey("bob", "#"), values{"v": "x"})
	all := len(c.Scan(from.Inboxes))
	s := c.Store(nil)
	done, err := operate.New(s).Fill(t.Context(), from, operate.FillOptions{Act: true}, func(operate.Filled) {})
	require.NoError(t, err)
	require.Equal(t, [2]int64{int64(all - 1), 1}, [2]int64{done.Inboxes, done.Damaged})
	require.Len(t, c.Scan(c.Tables.Inboxes), all-1)
	require.Equal(t, c.Scan(from.Messages), c.Scan(c.Tables.Messages))
	told, err := s.Changes(t.Context(), "bob", 1, "", 50)
	require.NoError(t, err)
	require.True(t, told.Full)
}

// Rosters and inboxes are made of the same attributes, and one table's items would stand
// in the place of another's without an error.
func TestFill_RefusesATableInThePlaceOfAnother(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	from := restored(c)
	lively(t, store.New(c.DB, from))
	for name, swap := range map[string]func(*store.Tables){
		"roster and inboxes":      func(t *store.Tables) { t.Members, t.Inboxes = t.Inboxes, t.Members },
		"messages for heads":      func(t *store.Tables) { t.Conversations = t.Messages },
		"a table that is not one": func(t *store.Tables) { t.Messages = "none" },
	} {
		wrong := from
		swap(&wrong)
		_, err := operate.New(c.Store(nil)).Fill(t.Context(), wrong, operate.FillOptions{Act: true}, func(operate.Filled) {})
		require.Error(t, err, name)
		for _, table := range []string{c.Tables.Conversations, c.Tables.Members, c.Tables.Inboxes, c.Tables.Messages} {
			require.Zero(t, c.Count(table), name)
		}
	}
}
