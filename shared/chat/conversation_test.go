package chat_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"inorder/shared/chat"
)

func TestG9_AHeadKnowsItsRoster(t *testing.T) {
	t.Parallel()
	roster := []chat.Member{{UserID: "ann", JoinedSeq: 1}, {UserID: "bob", JoinedSeq: 1}}
	head := chat.Conversation{MembersVersion: 1, HashedVersion: 1, MemberCount: 2, RosterHash: chat.RosterHash(roster)}
	chance := rand.New(rand.NewPCG(1, 2))
	for seq := int64(2); seq < 500; seq++ {
		before, removals := slices.Clone(roster), head.Removals()
		switch leaves := chance.IntN(3); {
		case leaves == 0 && len(roster) > 1:
			i := chance.IntN(len(roster))
			head = head.WithRoster(nil, roster[i:i+1])
			roster = slices.Delete(slices.Clone(roster), i, i+1)
			require.Equal(t, removals+1, head.Removals())
		case leaves == 1:
			head = head.WithRoster(nil, nil) // a role
			require.Equal(t, removals, head.Removals())
		default:
			joined := []chat.Member{{UserID: fmt.Sprint("user", chance.IntN(5)), JoinedSeq: seq}, {UserID: fmt.Sprint("new", seq), JoinedSeq: seq}}
			head = head.WithRoster(joined, nil)
			roster = append(slices.Clone(roster), joined...)
			require.Equal(t, removals, head.Removals())
		}
		require.True(t, head.Hashed())
		require.Equal(t, seq, head.MembersVersion)
		chance.Shuffle(len(roster), func(i, j int) { roster[i], roster[j] = roster[j], roster[i] })
		require.True(t, head.IsRoster(roster), "in whatever order")
		if len(before) != len(roster) {
			require.False(t, head.IsRoster(before))
		}
		swapped := slices.Clone(roster)
		swapped[0].UserID = "mallory"
		require.False(t, head.IsRoster(swapped), "one for another")
		swapped[0] = roster[0]
		swapped[0].JoinedSeq++
		require.False(t, head.IsRoster(swapped), "one who came back")
	}
	require.NotEqual(t, chat.RosterHash([]chat.Member{{UserID: "a1", JoinedSeq: 1}}), chat.RosterHash([]chat.Member{{UserID: "a", JoinedSeq: 11}}))
}

func TestAHeadWithoutAHashCounts(t *testing.T) {
	t.Parallel()
	head := chat.Conversation{MembersVersion: 4, MemberCount: 1}
	require.False(t, head.Hashed())
	require.Equal(t, int64(4), head.Removals(), "each of those changes may have removed someone")
	head = head.WithRoster([]chat.Member{{UserID: "bob", JoinedSeq: 9}}, nil)
	require.False(t, head.Hashed())
	require.True(t, head.IsRoster(make([]chat.Member, 2)))
	require.False(t, head.IsRoster(make([]chat.Member, 1)))

	head = chat.Conversation{MembersVersion: 1, HashedVersion: 1}
	head.MembersVersion++ // by what knows of no hash
	require.False(t, head.Hashed())
	require.False(t, head.WithRoster(nil, nil).Hashed())
}
