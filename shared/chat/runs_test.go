package chat_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
)

// written is the head after entries of these senders, one for each word, from seq 1
// on. A number is how many seqs have no entry.
func written(entries string) chat.Conversation {
	var head chat.Conversation
	for sender := range strings.FieldsSeq(entries) {
		if n, err := strconv.ParseInt(sender, 10, 64); err == nil {
			head.LastSeq += n
			continue
		}
		head.LastSeq++
		head.Runs = head.Runs.With(entryOf(sender, head.LastSeq))
	}
	return head
}

// entryOf is an entry of a sender; that of the sender "erasure" is what tells of one.
func entryOf(sender string, seq int64) chat.Message {
	m := chat.Message{SenderID: sender, Seq: seq}
	if sender == "erasure" {
		m.SenderID, m.Event = chat.SystemSender, &chat.Event{Kind: chat.EventErase}
	}
	return m
}

func times(n int, sender string) string { return strings.Repeat(sender+" ", n) }

func TestUnreadIsWhatOthersWrote(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		entries        string
		after, through int64 // 0 is the last seq
		alice, bob     int64
	}{
		"nothing":                           {entries: ""},
		"three of one's own":                {entries: "alice alice alice", bob: 3},
		"an answer where all was read":      {entries: "bob bob alice", after: 2, bob: 1},
		"an answer where nothing was":       {entries: "bob bob alice", alice: 2, bob: 1},
		"turns":                             {entries: "alice bob alice bob bob", alice: 3, bob: 2},
		"turns, read to within a run":       {entries: "alice bob bob bob alice", after: 3, alice: 1, bob: 1},
		"turns, up to a removal":            {entries: "alice bob bob bob alice", after: 1, through: 3, alice: 2},
		"read further than there is":        {entries: "bob bob", after: 9},
		"notes to self":                     {entries: times(320, "alice"), bob: 320},
		"as many runs as are known":         {entries: times(chat.MaxRuns/2, "alice bob"), alice: 4, bob: 4},
		"one run more than is known":        {entries: "alice " + times(chat.MaxRuns/2, "bob alice"), alice: 5, bob: 5},
		"one more, and what is before read": {entries: "alice " + times(chat.MaxRuns/2, "bob alice"), after: 1, alice: 4, bob: 4},
		"a crowd":                           {entries: times(3, "alice") + "c d e f g h i", alice: 7, bob: 10},
		"a crowd that is too large":         {entries: times(3, "alice") + "c d e f g h i j", alice: 11, bob: 11},
		"from before runs were kept":        {entries: "7", alice: 7, bob: 7},
		"runs since then":                   {entries: "7 alice bob", alice: 8, bob: 8},
		"a raised head":                     {entries: "alice alice 10", alice: 10, bob: 12},
		"and who goes on":                   {entries: "alice alice 10 alice", alice: 10, bob: 13},
		"an erasure":                        {entries: "alice erasure bob erasure", alice: 1, bob: 1},
		"an erasure alone":                  {entries: "erasure"},
		"the product and others":            {entries: "system alice system bob", alice: 3, bob: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			head := written(tc.entries)
			through := tc.through
			if through == 0 {
				through = head.LastSeq
			}
			require.Equal(t, tc.alice, head.Unread("alice", tc.after, through), head.Runs)
			require.Equal(t, tc.bob, head.Unread("bob", tc.after, through), head.Runs)
		})
	}
}

// Whatever comes, no entry of another's is taken for one's own, and the last
// MaxRuns runs are known.
func TestRunsKnowTheLastWriters(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(20, 8))
	for range 20 {
		var runs chat.Runs
		senders := make([]string, 1, 60) // by seq
		for seq := int64(1); seq < 60; seq++ {
			sender := fmt.Sprint("user", random.IntN(4))
			runs, senders = runs.With(entryOf(sender, seq)), append(senders, sender)
			known, turns := seq, 0
			for ; known > 0; known-- {
				if known == seq || senders[known] != senders[known+1] {
					if turns++; turns > chat.MaxRuns {
						break
					}
				}
			}
			for i := int64(1); i <= seq; i++ {
				for user := range 4 {
					id := fmt.Sprint("user", user)
					want := senders[i] == id && i > known
					require.Equal(t, want, runs.Written(id, i-1, i) == 1, "seq %d of %s in %q, of %v", i, id, runs, senders[1:])
				}
			}
		}
	}
}

func TestAnswered(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		entries string
		want    bool
	}{
		"one message":                           {"mallory", false},
		"a thousand":                            {times(1000, "mallory"), false},
		"one message and a raised head":         {"mallory 10 mallory", false},
		"an answer":                             {"mallory bob", true},
		"an answer long ago":                    {"mallory bob " + times(1000, "mallory"), true},
		"more turns than are known":             {times(chat.MaxRuns, "mallory bob"), true},
		"the product's introduction":            {"system", true},
		"the product's, and one message":        {"system mallory", true},
		"from before runs were kept":            {"7", true},
		"from before runs were kept, and after": {"7 mallory", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			head := written(tc.entries)
			require.Equal(t, tc.want, head.Answered(), head.Runs)
		})
	}
}

// A damaged text is one that says nothing, or less; what is written next is known
// again.
func TestRunsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	good := string(written("alice alice bob").Runs)
	for _, bad := range []string{
		"", " ", "x", "3", "-3 a:1", "3 a", "3 a:0", "3 a:-1", "3 a:4", "3 a:9223372036854775807", "9223372036854775808 a:1", ":", "3 :", good[:1], good[2:],
	} {
		head := chat.Conversation{LastSeq: 3, Runs: chat.Runs(bad)}
		require.Equal(t, int64(3), head.Unread("alice", 0, 3), bad)
		head.Runs = head.Runs.With(entryOf("alice", 4))
		require.Equal(t, int64(3), head.Unread("alice", 0, 4), bad)
		require.Equal(t, int64(4), head.Unread("bob", 0, 4), bad)
	}
	require.Equal(t, int64(1), chat.Runs(good+" x").Written("bob", 0, 3), "what can be read is")
	ahead := chat.Runs(good).With(entryOf("bob", 2))
	require.Equal(t, chat.Runs("").With(entryOf("bob", 2)), ahead, "a list that is ahead of its ledger is not believed")
}

// The bound on what a head keeps. No user's writer is that of the product.
func TestRunsAreShort(t *testing.T) {
	t.Parallel()
	var runs chat.Runs
	for seq := range int64(100) {
		runs = runs.With(entryOf(fmt.Sprint("user", seq), 1_000_000+10*seq))
	}
	require.LessOrEqual(t, len(runs), 100, runs)
	for seq := range int64(100) {
		runs = runs.With(entryOf(fmt.Sprint("user", seq%20), chat.MaxSeq-100+seq))
	}
	require.LessOrEqual(t, len(runs), 17+chat.MaxRuns*9, runs)
	for _, id := range []string{"*", "?", "System", ""} {
		require.NotEqual(t, chat.Runs("").With(entryOf(chat.SystemSender, 1)), chat.Runs("").With(entryOf(id, 1)))
	}
}

func TestWhomAReceiptConcerns(t *testing.T) {
	t.Parallel()
	var runs chat.Runs
	for seq, sender := range []string{"alice", "bob", "bob", "cy", "alice", "bob"} {
		runs = runs.With(entryOf(sender, int64(seq+11))) // alice 11, bob 12 and 13, cy 14, alice 15, bob 16
	}
	for name, tc := range map[string]struct {
		runs           chat.Runs
		after, through int64
		want           string
	}{
		"one":                            {runs, 11, 13, "bob"},
		"two":                            {runs, 13, 15, "alice cy"},
		"all that is known":              {runs, 10, 16, "alice bob cy"},
		"none, as nothing rose":          {runs, 15, 15, ""},
		"anyone, from before what is":    {runs, 9, 11, "alice bob cy dan"},
		"anyone, beyond the head":        {runs, 15, 17, "alice bob cy dan"},
		"anyone, of a head without runs": {"", 3, 4, "alice bob cy dan"},
		"anyone, over seqs left out":     {runs.With(entryOf("cy", 20)), 16, 20, "alice bob cy dan"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var concerned []string
			for _, userID := range []string{"alice", "bob", "cy", "dan"} {
				if tc.runs.Concern(userID, tc.after, tc.through) {
					concerned = append(concerned, userID)
				}
			}
			require.Equal(t, tc.want, strings.Join(concerned, " "))
		})
	}
}
