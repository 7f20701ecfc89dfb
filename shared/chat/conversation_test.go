package chat_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
)

func TestBetween(t *testing.T) {
	t.Parallel()
	skipped := []chat.Range{{From: 4, To: 6}, {From: 10, To: 1_000_009}}
	for name, tc := range map[string]struct {
		skipped        []chat.Range
		after, through int64
		want           int64
	}{
		"nothing was skipped":        {nil, 3, 10, 7},
		"nothing is between":         {nil, 3, 3, 0},
		"backwards":                  {skipped, 9, 3, 0},
		"all":                        {skipped, 0, 1_000_012, 9},
		"after one":                  {skipped, 6, 1_000_012, 6},
		"from the middle of one":     {skipped, 5, 9, 3},
		"to the middle of one":       {skipped, 2, 5, 1},
		"inside of one":              {skipped, 20, 500, 0},
		"beside all":                 {skipped, 0, 3, 3},
		"they overlap":               {[]chat.Range{{From: 2, To: 5}, {From: 4, To: 7}}, 0, 10, 4},
		"one is inside of the other": {[]chat.Range{{From: 2, To: 8}, {From: 4, To: 7}}, 0, 10, 3},
		"as many as there can be":    {[]chat.Range{{From: 1, To: chat.MaxSeq - 1}}, 0, chat.MaxSeq, 1},
	} {
		require.Equal(t, tc.want, chat.Conversation{Skipped: tc.skipped}.Between(tc.after, tc.through), name)
	}
}

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
