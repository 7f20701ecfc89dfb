package integration_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// A crowd as large as it gets, and 20 pairs beside it, which takes some minutes:
//
//	go test ./integration -run TestCrowd -crowd.members 100000 -crowd.devices 500 -crowd.pairs 20 -v
var (
	crowdMembers = flag.Int("crowd.members", 1100, "how many `members` the crowd has")
	crowdDevices = flag.Int("crowd.devices", 12, "how many of their `devices` are connected")
	crowdPairs   = flag.Int("crowd.pairs", 0, "how many `pairs` write to each other beside it, and keep their p99 within twice")
)

// crowdUser is a member of the crowd, by its place in the roster.
func crowdUser(i int) string { return fmt.Sprintf("member-%06d", i) }

// fillCrowd makes users members of a group past the product, all but the last ones, by
// their roster items, their lines and the group's head.
func fillCrowd(t *testing.T, db *dynamodb.Client, id chat.ConversationID, n int) {
	t.Helper()
	members := make([]chat.Member, n)
	for i := range members {
		members[i] = chat.Member{
			ConversationID: id, UserID: crowdUser(i), Role: chat.RolePlain, JoinSeq: 1, JoinedSeq: 2, JoinedAt: time.Now().UnixMilli(),
		}
	}
	roster, inboxes := tableName(t, db, "Members"), tableName(t, db, "Inboxes")
	var writes errgroup.Group
	writes.SetLimit(4)
	for chunk := range slices.Chunk(members, 12) { // of 25 items in a batch
		writes.Go(func() error {
			var puts [2][]types.WriteRequest
			for _, m := range chunk {
				line := map[string]any{
					"userId": m.UserID, "conversationId": id, "joinSeq": 1, "readSeq": 1, "deliveredSeq": 1, "clearedSeq": 0,
				}
				member := map[string]any{
					"conversationId": id, "userId": m.UserID, "role": m.Role, "joinSeq": m.JoinSeq, "joinedSeq": m.JoinedSeq, "joinedAt": m.JoinedAt,
				}
				for i, v := range []map[string]any{member, line} {
					puts[i] = append(puts[i], types.WriteRequest{PutRequest: &types.PutRequest{Item: item(t, v)}})
				}
			}
			_, err := db.BatchWriteItem(t.Context(), &dynamodb.BatchWriteItemInput{
				RequestItems: map[string][]types.WriteRequest{roster: puts[0], inboxes: puts[1]},
			})
			return err
		})
	}
	require.NoError(t, writes.Wait())
	key := map[string]any{"conversationId": id}
	var head chat.Conversation
	require.NoError(t, attributevalue.UnmarshalMapWithOptions(itemAt(t, db, "Conversations", key), &head, func(o *attributevalue.DecoderOptions) { o.TagKey = "json" }))
	after := head.JoinedQuietly(members)
	change(t, db, "Conversations", key, "SET memberCount = :n, membersVersion = :v, hashedVersion = :v, kept = :k, rosterHash = :h",
		map[string]any{":n": after.MemberCount, ":v": after.MembersVersion, ":k": after.Kept, ":h": after.RosterHash})
}

// pairs are two users each who write to each other.
type pairs [][2]*listener

// talk lets every pair exchange messages, and gives the 99th of a hundred times from the
// send to the push.
func (p pairs) talk(t *testing.T, messages int) time.Duration {
	t.Helper()
	var mu sync.Mutex
	var took []time.Duration
	var all errgroup.Group
	for _, pair := range p {
		all.Go(func() error {
			for range messages {
				start := time.Now()
				sent, err := pair[0].send(t.Context(), wire.Send{To: pair[1].user, Text: "hi"})
				if err != nil {
					return err
				}
				if _, err := pair[1].awaitEntry(t.Context(), sent.ConversationID, sent.Seq); err != nil {
					return err
				}
				mu.Lock()
				took = append(took, time.Since(start))
				mu.Unlock()
			}
			return nil
		})
	}
	require.NoError(t, all.Wait())
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// A message to a crowd reaches every device that is connected, and in the end all have
// the same. The roster is read in pages, and nobody else waits for that.
func TestCrowd(t *testing.T) {
	t.Parallel()
	db := startMeter(t)
	c := startCloud(t, "-dynamodb-endpoint", db.url, "-param", "MaxCrowdMembers=100000", "-param", "ConnectsPerSecond=1000", "-param", "ConnectBurst=1000")
	ann := listen(t, c.Stack, newUser("ann"), "phone")
	id := createGroup(t, ann.device, chat.VisibleAll)
	const quiet = 40
	others := *crowdMembers - 1
	fillCrowd(t, db.client, id, others-quiet)
	var late []string
	for i := range quiet {
		late = append(late, crowdUser(others-quiet+i))
	}
	for _, what := range []string{"joining", "a retry"} { // which finds it done
		before := db.used(t)
		_, err := publish(t.Context(), t, c.Stack, map[string]any{"addMembers": map[string]any{"conversationId": id, "members": late}, "clientMsgId": newID()})
		require.NoError(t, err)
		used := db.used(t).minus(before)
		t.Logf("%s, of %d: %.1f write and %.1f read units for each", what, quiet, used.wru/quiet, used.rru/quiet)
	}

	listeners := make([]*listener, *crowdDevices)
	for i := range listeners { // from the first to the last of the roster
		listeners[i] = listen(t, c.Stack, crowdUser(i*(others-1)/(len(listeners)-1)), "phone")
	}
	beside := make(pairs, *crowdPairs)
	for i := range beside {
		beside[i] = [2]*listener{listen(t, c.Stack, newUser("left"), "phone"), listen(t, c.Stack, newUser("right"), "phone")}
	}
	beside.talk(t, 3) // until all that is needed runs
	alone := beside.talk(t, 25)

	before := db.used(t)
	var crowded errgroup.Group
	const messages = 3
	var seq int64
	var took []time.Duration
	crowded.Go(func() error {
		for n := range messages {
			start := time.Now()
			sent, err := ann.send(t.Context(), wire.Send{ConversationID: id, Text: fmt.Sprint("to all ", n)})
			if err != nil {
				return err
			}
			for _, l := range listeners {
				if _, err := l.awaitEntry(t.Context(), id, sent.Seq); err != nil {
					return fmt.Errorf("%s: %w", l.user, err)
				}
			}
			seq, took = sent.Seq, append(took, time.Since(start).Round(time.Millisecond))
		}
		return nil
	})
	meanwhile := beside.talk(t, 25)
	require.NoError(t, crowded.Wait())
	used := db.used(t).minus(before)
	t.Logf("a crowd of %d with %d connected: messages, each after the one before, reached all of them within %v; %d took %.0f read and %.0f write units, those of the pairs included",
		*crowdMembers, len(listeners), took, messages, used.rru, used.wru)
	t.Logf("%d pairs: p99 %v alone, %v beside the crowd", len(beside), alone, meanwhile)
	if len(beside) > 0 {
		require.LessOrEqual(t, meanwhile, 2*alone)
	}

	removed := listeners[1]
	removeMembers(t, ann.device, id, removed.user)
	last := say(t, ann.device, id, "without one").Seq
	for i, l := range listeners {
		if i == 1 {
			continue
		}
		_, err := l.awaitEntry(t.Context(), id, last)
		require.NoError(t, err)
		require.NoError(t, l.sync(t.Context(), id))
		requireDense(t, l.messages(id), int(last))
	}
	_, err := removed.awaitEntry(t.Context(), id, seq+1)
	require.NoError(t, err, "it is told that it is out")
	require.NoError(t, removed.sync(t.Context(), id))
	requireDense(t, removed.messages(id), int(seq+1))
	require.NotContains(t, slices.Collect(maps.Keys(pushedSeqs(removed, id))), last)
	require.Empty(t, mustAudit(t, c.Stack, fmt.Sprintf(`{"conversationId": %q}`, id)).Violations)
}

// pushedSeqs are the seqs that a device was pushed of a conversation.
func pushedSeqs(l *listener, conversationID chat.ConversationID) map[int64]bool {
	seqs := map[int64]bool{}
	for _, m := range l.entries(conversationID) {
		seqs[m.Seq] = true
	}
	return seqs
}
