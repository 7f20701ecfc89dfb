package client

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// Pushes in any order, with losses and repeats, and honest pages in between: the
// device holds a prefix of what is committed, in order, each once.
func TestLedger(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		committed := rapid.Int64Range(1, 30).Draw(t, "committed")
		holes := map[int64]bool{}
		for _, seq := range rapid.SliceOfN(rapid.Int64Range(1, committed), 0, 5).Draw(t, "holes") {
			holes[seq] = true
		}
		room := rapid.IntRange(0, 8).Draw(t, "room")
		var l ledger
		var got []int64
		stored := map[int64]bool{}
		accept := func(s step) {
			require.GreaterOrEqual(t, s.next.contiguous, l.contiguous)
			for _, seq := range s.dropped {
				delete(stored, seq)
			}
			for _, m := range append(s.admitted, s.held...) {
				stored[m.Seq] = true
			}
			for _, m := range s.admitted {
				got = append(got, m.Seq)
			}
			l = s.next
		}
		honest := func(after int64, limit int64) wire.Synced {
			p := wire.Synced{NextSeq: min(committed, after+limit), CommittedMaxSeq: committed}
			p.NextSeq = max(after, p.NextSeq)
			for seq := after + 1; seq <= p.NextSeq; seq++ {
				if holes[seq] {
					p.Skipped = append(p.Skipped, seq)
				} else {
					p.Messages = append(p.Messages, numbered(seq))
				}
			}
			return p
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				var messages []chat.Message
				for _, seq := range rapid.SliceOfN(rapid.Int64Range(1, committed), 0, 6).Draw(t, "seqs") {
					if !holes[seq] {
						messages = append(messages, numbered(seq))
					}
				}
				accept(l.push(messages, rapid.Int64Range(0, committed).Draw(t, "head"), room-len(l.early)))
				require.LessOrEqual(t, len(l.early), room)
			},
			"page": func(t *rapid.T) {
				after := rapid.Int64Range(0, l.contiguous).Draw(t, "after")
				p := honest(after, rapid.Int64Range(1, 9).Draw(t, "limit"))
				require.NoError(t, check("group:g", after, p))
				accept(l.page(p))
			},
			"settle": func(*rapid.T) {
				p := honest(l.contiguous, committed)
				seen := l.seen
				accept(l.page(p))
				accept(l.settle(committed, seen))
				require.False(t, l.gap())
			},
			"": func(*rapid.T) {
				want := []int64(nil)
				for seq := int64(1); seq <= l.contiguous; seq++ {
					if !holes[seq] {
						want = append(want, seq)
					}
				}
				require.Equal(t, want, got)
				last := l.contiguous + 1
				for _, m := range l.early {
					require.Greater(t, m.Seq, last)
					last = m.Seq
				}
				require.Len(t, stored, len(got)+len(l.early), "the store has what the ledger says")
			},
		})
	})
}

func numbered(seq int64) chat.Message {
	return chat.Message{ConversationID: "group:g", Seq: seq, MessageID: fmt.Sprintf("m%d", seq)}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	page := func(next, committed, first int64, skipped []int64, seqs ...int64) wire.Synced {
		p := wire.Synced{NextSeq: next, CommittedMaxSeq: committed, FirstSeq: first, Skipped: skipped}
		for _, seq := range seqs {
			p.Messages = append(p.Messages, numbered(seq))
		}
		return p
	}
	for name, c := range map[string]struct {
		after int64
		page  wire.Synced
		ok    bool
	}{
		"whole":                        {2, page(4, 9, 0, nil, 3, 4), true},
		"skipped at the start":         {2, page(5, 9, 0, []int64{3, 4}, 5), true},
		"skipped at the end":           {2, page(5, 9, 0, []int64{5, 4}, 3), true},
		"all skipped":                  {2, page(4, 9, 0, []int64{3, 4}), true},
		"hidden before":                {2, page(8, 9, 7, nil, 7, 8), true},
		"hidden and skipped":           {2, page(9, 9, 7, []int64{8}, 7, 9), true},
		"all hidden":                   {2, page(9, 9, 10, nil), true},
		"nothing new":                  {9, page(9, 9, 0, nil), true},
		"the server has less":          {9, page(9, 4, 0, nil), true},
		"too little":                   {2, page(5, 9, 0, nil, 3, 4), false},
		"too much":                     {2, page(3, 9, 0, nil, 3, 4), false},
		"a gap":                        {2, page(5, 9, 0, nil, 3, 5), false},
		"from before":                  {2, page(4, 9, 0, nil, 2, 3, 4), false},
		"before the first":             {2, page(8, 9, 7, nil, 6, 7, 8), false},
		"no move though there is more": {2, page(2, 9, 0, nil), false},
	} {
		err := check("group:g", c.after, c.page)
		if c.ok {
			require.NoError(t, err, name)
		} else {
			require.ErrorIs(t, err, ErrProtocol, name)
		}
	}
}
