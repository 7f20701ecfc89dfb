package store_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"inorder/infra/local/dynamo"
	"inorder/infra/local/dynamo/dynamotest"
	"inorder/infra/local/template"
	"inorder/shared/chat"
	"inorder/shared/store"
)

// theStack is template.yaml, read once for all tests.
var theStack = sync.OnceValues(func() (*template.Stack, error) {
	return template.Load("../../template.yaml", template.Options{Parameters: map[string]string{
		"JwksUrl": "https://example.com/jwks.json", "JwtIssuer": "test", "MessageIndex": "on",
	}})
})

// cloud is a DynamoDB with the tables of template.yaml.
type cloud struct {
	t      testing.TB
	db     *dynamodb.Client
	tables store.Tables
}

func newCloud(t testing.TB) *cloud {
	t.Helper()
	stack, err := theStack()
	require.NoError(t, err)
	return cloudOf(t, stack)
}

func cloudOf(t testing.TB, stack *template.Stack) *cloud {
	t.Helper()
	db, _ := dynamotest.Start(t)
	require.NoError(t, dynamo.CreateTables(t.Context(), db, stack.Tables))
	env := func(name string) string {
		for _, f := range stack.Functions {
			if v, ok := f.Environment[name]; ok {
				return v
			}
		}
		return ""
	}
	tables, err := store.TablesFromEnv(env)
	require.NoError(t, err)
	return &cloud{t: t, db: db, tables: tables}
}

// store is a Store of its own, as each Lambda environment has one. wire sees
// every request of it; nil for none.
func (c *cloud) store(wire *wire) *store.Store {
	return store.New(dynamodb.New(c.options(wire)), c.tables)
}

func (c *cloud) options(wire *wire) dynamodb.Options {
	options := c.db.Options()
	if wire != nil {
		wire.next = options.HTTPClient.(*http.Client).Transport
		options.HTTPClient = &http.Client{Transport: wire}
		options.Retryer = aws.NopRetryer{} // every retry seen is the store's own
	}
	return options
}

// wire is the connection to DynamoDB. It counts operations and breaks them: a
// rule sees each request and says what becomes of it.
type wire struct {
	next  http.RoundTripper
	mu    sync.Mutex
	calls []string
	rule  func(op string, n int) fault // n counts the calls of this op from 1
	edit  func(op string, request, answer []byte) []byte

	// cancel gives, for a transaction, the answer that cancels it; "" for none.
	cancel func(request []byte) string
}

type fault int

const (
	none        fault = iota
	dropped           // the request never arrives: failed, not applied
	unanswered        // the answer never arrives: failed, yet applied
	conflicting       // refused: a transaction is at work on the item, or on some of the items
	throttled         // refused: too many requests, for some of the items
	hanging           // nothing comes until the caller gives up
	gateway503        // 503 without an error document, not applied
	gateway504        // 504 without an error document, yet applied
)

const (
	conflictAnswer = `{"__type":"com.amazonaws.dynamodb.v20120810#TransactionConflictException","message":"Transaction is ongoing for the item"}`
	throttleAnswer = `{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"Rate exceeded"}`
)

var errWire = errors.New("the wire is cut")

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	w.mu.Lock()
	w.calls = append(w.calls, op)
	n := 0
	for _, c := range w.calls {
		if c == op {
			n++
		}
	}
	f := none
	if w.rule != nil {
		f = w.rule(op, n)
	}
	w.mu.Unlock()
	request, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(request))
	if w.cancel != nil && op == "TransactWriteItems" {
		if answer := w.cancel(request); answer != "" {
			return refusing(r, http.StatusBadRequest, answer), nil
		}
	}
	switch f {
	case dropped:
		return nil, errWire
	case hanging:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case conflicting:
		if items := itemsOf(request); items > 0 {
			return refusing(r, http.StatusBadRequest, cancelledAnswer(someOf(items, n, "TransactionConflict")...)), nil
		}
		return refusing(r, http.StatusBadRequest, conflictAnswer), nil
	case throttled:
		if items := itemsOf(request); items > 0 && n%2 == 0 { // both are DynamoDB's ways
			return refusing(r, http.StatusBadRequest, cancelledAnswer(someOf(items, n, "ThrottlingError")...)), nil
		}
		return refusing(r, http.StatusBadRequest, throttleAnswer), nil
	case gateway503:
		return refusing(r, http.StatusServiceUnavailable, ""), nil
	}
	resp, err := w.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	answer, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	switch f {
	case unanswered:
		return nil, errWire
	case gateway504:
		return refusing(r, http.StatusGatewayTimeout, ""), nil
	}
	if w.edit != nil {
		answer = w.edit(op, request, answer)
		resp.Header.Del("X-Amz-Crc32")
	}
	resp.Body = io.NopCloser(bytes.NewReader(answer))
	resp.ContentLength = int64(len(answer))
	return resp, nil
}

// itemsOf gives how many items a transaction has, 0 for another request.
func itemsOf(request []byte) int {
	var transaction struct{ TransactItems []json.RawMessage }
	_ = json.Unmarshal(request, &transaction)
	return len(transaction.TransactItems)
}

// someOf gives the reasons of a transaction in which some items have this one:
// others for each n, and all choices in turn.
func someOf(items, n int, code string) []string {
	reasons := slices.Repeat([]string{"None"}, items)
	chosen := n%(1<<min(items, 10)-1) + 1
	for i := range reasons {
		if chosen>>i&1 == 1 {
			reasons[i] = code
		}
	}
	return reasons
}

// cancelledAnswer is the answer to a transaction that was cancelled for these
// reasons: a code, or a code and the item that failed its condition.
func cancelledAnswer(reasons ...string) string {
	answer := make([]string, len(reasons))
	codes := make([]string, len(reasons))
	for i, reason := range reasons {
		code, item, _ := strings.Cut(reason, " ")
		codes[i], answer[i] = code, `{"Code":"`+code+`"}`
		if item != "" {
			answer[i] = `{"Code":"` + code + `","Item":` + item + `}`
		}
	}
	return `{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException",` +
		`"Message":"Transaction cancelled, please refer cancellation reasons for specific reasons [` + strings.Join(codes, ", ") + `]",` +
		`"CancellationReasons":[` + strings.Join(answer, ",") + `]}`
}

func refusing(r *http.Request, status int, answer string) *http.Response {
	return &http.Response{
		StatusCode: status, Request: r, Body: io.NopCloser(strings.NewReader(answer)),
		Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
	}
}

// since gives the operations after the first n, and how many there are now.
func (w *wire) since(n int) ([]string, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string{}, w.calls[n:]...), len(w.calls)
}

func (w *wire) set(rule func(op string, n int) fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rule, w.calls = rule, nil
}

func text(sender, clientMsgID, body string) chat.Message {
	return chat.Message{
		SenderID: sender, SenderDeviceID: "phone", ClientMsgID: clientMsgID,
		MessageType: chat.TypeText, Text: body,
	}
}

func send(t testing.TB, s *store.Store, sender, to, clientMsgID string) store.Receipt {
	t.Helper()
	r, err := s.Append(t.Context(), text(sender, clientMsgID, "text of "+clientMsgID), to)
	require.NoError(t, err)
	return r
}

// ledger reads the whole conversation as userID sees it, in pages.
func ledger(t testing.TB, s *store.Store, userID, conversationID string) []chat.Message {
	t.Helper()
	var all []chat.Message
	for after := int64(0); ; {
		page, err := s.Sync(t.Context(), userID, conversationID, after, 500, 32*1024)
		require.NoError(t, err)
		require.Empty(t, page.Skipped)
		all = append(all, page.Messages...)
		if page.NextSeq >= page.CommittedMaxSeq {
			require.False(t, page.HasMore)
			return all
		}
		require.Greater(t, page.NextSeq, after, "every page moves on")
		after = page.NextSeq
	}
}

// requireDense checks G1 and G2 on a whole ledger.
func requireDense(t testing.TB, messages []chat.Message, n int) {
	t.Helper()
	require.Len(t, messages, n)
	ids := map[string]bool{}
	for i, m := range messages {
		require.Equal(t, int64(i+1), m.Seq)
		require.False(t, ids[m.MessageID], "%s is there twice", m.MessageID)
		ids[m.MessageID] = true
	}
}

func parallel(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// count asks DynamoDB how many items a table has.
func (c *cloud) count(table string) int {
	c.t.Helper()
	out, err := c.db.Scan(context.Background(), &dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)})
	require.NoError(c.t, err)
	return int(out.Count)
}

// editItems changes the Items of an answer.
func editItems(answer []byte, change func([]map[string]json.RawMessage) []map[string]json.RawMessage) []byte {
	var body map[string]json.RawMessage
	if err := json.Unmarshal(answer, &body); err != nil {
		panic(fmt.Sprintf("%s: %v", answer, err))
	}
	var items []map[string]json.RawMessage
	if err := json.Unmarshal(body["Items"], &items); err != nil {
		panic(fmt.Sprintf("%s: %v", answer, err))
	}
	body["Items"], _ = json.Marshal(change(items))
	out, _ := json.Marshal(body)
	return out
}
