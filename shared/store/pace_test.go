package store_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"inorder/shared/chat"
	"inorder/shared/store"
)

// cannedLatency is how long a canned DynamoDB takes for each request.
const cannedLatency = 10 * time.Millisecond

// canned is a DynamoDB that answers what the test says, for times that are too
// long, and waits that are to be too exact, to be those of a real one. It needs no
// network, so its time can be that of a synctest bubble.
type canned struct {
	answer func(op, request string) (status int, answer string)
	calls  []cannedCall
}

type cannedCall struct {
	op         string
	begun, end time.Time
}

func (d *canned) RoundTrip(r *http.Request) (*http.Response, error) {
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	request, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	call := cannedCall{op: op, begun: time.Now()}
	time.Sleep(cannedLatency)
	call.end = time.Now()
	d.calls = append(d.calls, call)
	status, answer := d.answer(op, string(request))
	return refusing(r, status, answer), nil
}

func (d *canned) store() *store.Store {
	return store.New(dynamodb.New(dynamodb.Options{
		Region: "local", BaseEndpoint: aws.String("http://canned"), HTTPClient: &http.Client{Transport: d},
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""), Retryer: aws.NopRetryer{},
	}), store.Tables{
		Conversations: "conversations", Messages: "messages", Idempotency: "idempotency",
		Members: "members", Inboxes: "inboxes", Connections: "connections",
	})
}

// waits gives how long it was between the answers to one operation and the next
// request, since the n-th call.
func (d *canned) waits(n int, op string) []time.Duration {
	var waits []time.Duration
	for i := n + 1; i < len(d.calls); i++ {
		if d.calls[i-1].op == op {
			waits = append(waits, d.calls[i].begun.Sub(d.calls[i-1].end))
		}
	}
	return waits
}

const (
	cannedHead = `{"Item":{"conversationId":{"S":"group:1"},"kind":{"S":"group"},"lastSeq":{"N":"9"},"membersVersion":{"N":"1"},` +
		`"memberCount":{"N":"2"},"state":{"S":"active"}}}`
	cannedMember  = `{"conversationId":{"S":"group:1"},"userId":{"S":"ann"},"role":{"S":"member"},"joinSeq":{"N":"1"},"joinedSeq":{"N":"1"}}`
	cannedMessage = `{"conversationId":{"S":"group:1"},"seq":{"N":"1"},"messageId":{"S":"m"},"messageType":{"S":"text"},"text":{"S":"hi"}}`
	cannedLine    = `{"userId":{"S":"ann"},"conversationId":{"S":"group:1"},"joinSeq":{"N":"1"},"readSeq":{"N":"0"},"deliveredSeq":{"N":"0"}}`
)

// refuse answers an operation so many times with a refusal, and then as the rest.
func (d *canned) refuse(op string, times int, refusal string) {
	rest := d.answer
	d.answer = func(o, request string) (int, string) {
		if o == op && times > 0 {
			times--
			return http.StatusBadRequest, refusal
		}
		return rest(o, request)
	}
}

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
