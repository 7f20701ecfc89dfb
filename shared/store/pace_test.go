package store_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/internal/storetest"
)

// collide makes writers of a store collide.
func collide(t *testing.T, d *canned, s *store.Store) {
	t.Helper()
	rest := d.answer
	defer func() { d.answer = rest }()
	d.refuse("TransactWriteItems", 1<<30, cancelledAnswer("TransactionConflict", "None", "None"))
	for n := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, err := s.Append(ctx, chatIn(text("ann", fmt.Sprint("in vain", n), "hi"), "group:1"), "")
		cancel()
		requireCode(t, chat.CodeBusy, err)
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
		case "PutItem": // no lane, so that writers are by themselves
			return http.StatusBadRequest, `{"__type":"ResourceNotFoundException"}`
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
		"one of them is refused as a whole": {"TransactGetItems", storetest.ConflictAnswer, entries},
		"watermarks of one who is being joined": {"UpdateItem", storetest.ConflictAnswer, func(t *testing.T, s *store.Store) {
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
		require.Equal(t, chat.CodeInternal, chat.CodeOf(err))
		require.Len(t, d.calls, 2)
	})
}

// A message that others come before again and again is given back to its sender, who
// is told when to come again. What changes the roster is not: it has all the time that
// there is.
func TestG10_AMessageIsNotTriedForEver(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason string
		change bool
		most   int // transactions
	}{
		"conflicts":            {"TransactionConflict", false, 16},
		"throttles":            {"ThrottlingError", false, 5},
		"conflicts of a leave": {"TransactionConflict", true, 1 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const budget = 8 * time.Second
				d := cannedGroup()
				d.refuse("TransactWriteItems", 1<<30, cancelledAnswer(tc.reason, "None", "None"))
				s := d.store()
				start := time.Now()
				var err error
				var r store.Committed
				if tc.change {
					_, err = s.Leave(t.Context(), store.Request{UserID: "ann", DeviceID: "phone", ClientMsgID: "1"}, "group:1")
				} else {
					r, err = s.Append(t.Context(), chatIn(text("ann", "1", "hi"), "group:1"), "")
				}
				requireCode(t, chat.CodeBusy, err)
				refusal, _ := errors.AsType[*chat.Error](err)
				took := time.Since(start)
				if tc.change {
					require.Greater(t, took, budget/2)
					return
				}
				require.LessOrEqual(t, r.Attempts, tc.most)
				require.Less(t, took, 3*time.Second)
				require.InDelta(t, 750, refusal.Details[chat.DetailRetryAfter], 250)
			})
		})
	}
}
