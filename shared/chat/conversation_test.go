package chat_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"inorder/shared/chat"
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
