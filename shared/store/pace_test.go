package store_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"inorder/shared/chat"
	"inorder/shared/store"
)

// collide makes writers of a store collide until their window is as wide as it gets.
func collide(t *testing.T, d *canned, s *store.Store) {
	t.Helper()
	rest := d.answer
	defer func() { d.answer = rest }()
	d.refuse("TransactWriteItems", 1<<30, cancelledAnswer("TransactionConflict", "None", "None"))
	for n := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, err := s.Append(ctx, chatIn(text("ann", fmt.Sprint("in vain", n), "hi"), "group:1"), "")
		cancel()
		requireCode(t, chat.Busy, err)
	}
}

// cannedGroup has a group of ann and another, whose first message no Query shows.
func cannedGroup() *canned {
	return &canned{answer: func(op, request string) (int, string) {
		switch op {
		case "GetItem":
			return http.StatusOK, cannedHead
		case "Query": // not all of a roster, nor of a ledger
			return http.StatusOK, `{"Items":[],"Count":0,"ScannedCount":0}`
		case "TransactGetItems":
			if strings.Contains(request, `"messages"`) {
				return http.StatusOK, `{"Responses":[{"Item":` + cannedMessage + `}]}`
			}
			return http.StatusOK, `{"Responses":[` + strings.TrimSuffix(cannedHead, "}") + `},{"Item":` + cannedMember + `}]}`
		case "UpdateItem":
			return http.StatusOK, `{"Attributes":` + cannedLine + `}`
		default:
			return http.StatusOK, `{}`
		}
	}}
}

// Those who read wait for one transaction, from one to three of its latencies,
// however often this environment has met one, and however many write.
func TestG10_ReadersDoNotWaitAsLongAsWriters(t *testing.T) {
	t.Parallel()
	const inARow = 3
	entries := func(t *testing.T, s *store.Store) {
		_, err := s.Entries(t.Context(), "group:1", chat.Range{From: 1, To: 1})
		require.NoError(t, err)
	}
	for name, tc := range map[string]struct {
		op, refusal string // "" where what a Query gave does not fit
		read        func(t *testing.T, s *store.Store)
	}{
		"a message that is being committed": {"TransactGetItems", cancelledAnswer("None", "TransactionConflict"), entries},
		"one of them is refused as a whole": {"TransactGetItems", conflictAnswer, entries},
		"watermarks of one who is being joined": {"UpdateItem", conflictAnswer, func(t *testing.T, s *store.Store) {
			_, err := s.Ack(t.Context(), "ann", "group:1", store.Watermarks{ReadSeq: 5})
			require.NoError(t, err)
		}},
		"a roster that is older than its head": {"Query", "", func(t *testing.T, s *store.Store) {
			_, err := store.NewRosters(s).At(t.Context(), "group:1", 1)
			require.NoError(t, err)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := cannedGroup()
				s := d.store()
				collide(t, d, s)
				rest := d.answer
				for range 30 {
					d.answer = rest
					if tc.refusal != "" {
						d.refuse(tc.op, inARow, tc.refusal)
					}
					n := len(d.calls)
					tc.read(t, s)
					waits := d.waits(n, tc.op)
					require.Len(t, waits, inARow, "%v", d.calls[n:])
					for _, wait := range waits {
						require.GreaterOrEqual(t, wait, cannedLatency)
						require.LessOrEqual(t, wait, 3*cannedLatency)
					}
				}
			})
		})
	}
}

// Who is throttled waits longer, and longer each time.
func TestG10_ThrottledReadersBackOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const inARow = 4
		d := cannedGroup()
		s := d.store()
		var sums [inARow]time.Duration
		for range 50 {
			rest := d.answer
			d.refuse("TransactGetItems", inARow, cancelledAnswer("ThrottlingError"))
			n := len(d.calls)
			_, err := s.Entries(t.Context(), "group:1", chat.Range{From: 1, To: 1})
			require.NoError(t, err)
			d.answer = rest
			waits := d.waits(n, "TransactGetItems")
			require.Len(t, waits, inARow)
			for i, wait := range waits {
				sums[i] += wait
			}
		}
		for i, sum := range sums {
			window := 100 * time.Millisecond << i
			require.InDelta(t, window/2, sum/50, float64(window)/4, "full jitter in %v", window)
		}
	})
}

// What will not go away is not tried again.
func TestAReadThatIsRefusedAsWrongFailsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := cannedGroup()
		d.refuse("TransactGetItems", 1<<30, cancelledAnswer("ValidationError"))
		_, err := d.store().Entries(t.Context(), "group:1", chat.Range{From: 1, To: 1})
		require.ErrorContains(t, err, "ValidationError")
		require.Equal(t, chat.Internal, chat.CodeOf(err))
		require.Len(t, d.calls, 2)
	})
}

// The window of writers shrinks with time where nobody commits.
func TestG10_WritersForgetACrowdThatIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := cannedGroup()
		s := d.store()
		waitOfOne := func(n int) time.Duration {
			rest := d.answer
			defer func() { d.answer = rest }()
			d.refuse("TransactWriteItems", 1, cancelledAnswer("TransactionConflict", "None", "None"))
			before := len(d.calls)
			_, err := s.Append(t.Context(), chatIn(text("ann", fmt.Sprint(n), "hi"), "group:1"), "")
			require.NoError(t, err)
			return d.waits(before, "TransactWriteItems")[0]
		}
		longest := time.Duration(0)
		for n := range 10 {
			collide(t, d, s)
			longest = max(longest, waitOfOne(n))
		}
		require.Greater(t, longest, 400*time.Millisecond, "right after a crowd")
		for n := range 10 {
			collide(t, d, s)
			time.Sleep(2 * time.Minute)
			require.LessOrEqual(t, waitOfOne(10+n), 20*cannedLatency, "as if there had been none")
		}
	})
}
