// Package storetest is the kit of the tests of the store and of its operators' part: a
// DynamoDB with the project's tables, a connection to it that can be broken, and what
// tests of both write and read.
package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/dynamo"
	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
	"github.com/inorder-im/inorder/infra/local/template"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
)

// TheStack is template.yaml, read once for all tests.
var TheStack = sync.OnceValues(func() (*template.Stack, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for { // a test runs in the folder of its package
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(root)
		if parent == root {
			return nil, errors.New("no folder above this test has a go.mod")
		}
		root = parent
	}
	return template.Load(filepath.Join(root, "template.yaml"), template.Options{Parameters: map[string]string{
		"JwksUrl": "https://example.com/jwks.json", "JwtIssuer": "test", "MessageIndex": "on",
	}})
})

// Cloud is a DynamoDB with the tables of template.yaml.
type Cloud struct {
	T      testing.TB
	DB     *dynamodb.Client
	Tables store.Tables
}

// NewCloud starts a DynamoDB that ends with the test.
func NewCloud(t testing.TB) *Cloud {
	t.Helper()
	stack, err := TheStack()
	require.NoError(t, err)
	return CloudOf(t, stack)
}

// CloudOf starts a DynamoDB with the tables of another stack.
func CloudOf(t testing.TB, stack *template.Stack) *Cloud {
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
	return &Cloud{T: t, DB: db, Tables: tables}
}

// Store is a Store of its own, as each Lambda environment has one. wire sees
// every request of it; nil for none.
func (c *Cloud) Store(wire *Wire, options ...store.Option) *store.Store {
	return store.New(dynamodb.New(c.Options(wire)), c.Tables, options...)
}

// Options are those of a client whose requests the wire sees; nil for none.
func (c *Cloud) Options(wire *Wire) dynamodb.Options {
	options := c.DB.Options()
	if wire != nil {
		wire.next = options.HTTPClient.(*http.Client).Transport
		options.HTTPClient = &http.Client{Transport: wire}
		options.Retryer = aws.NopRetryer{} // every retry seen is the store's own
	}
	return options
}

// Wire is the connection to DynamoDB. It counts operations and breaks them: a
// rule sees each request and says what becomes of it.
type Wire struct {
	next  http.RoundTripper
	mu    sync.Mutex
	calls []string
	Rule  func(op string, n int) Fault // n counts the calls of this op from 1
	Edit  func(op string, request, answer []byte) []byte

	// cancel returns, for a transaction, the answer that cancels it; "" for none.
	Cancel func(request []byte) string
}

// Fault is what becomes of a request.
type Fault int

// What may become of a request.
const (
	None        Fault = iota
	Dropped           // the request never arrives: failed, not applied
	Unanswered        // the answer never arrives: failed, yet applied
	Conflicting       // refused: a transaction is at work on the item, or on some of the items
	Throttled         // refused: too many requests, for some of the items
	Hanging           // nothing comes until the caller gives up
	Gateway503        // 503 without an error document, not applied
	Gateway504        // 504 without an error document, yet applied
)

// Refusals of DynamoDB's.
const (
	ConflictAnswer = `{"__type":"com.amazonaws.dynamodb.v20120810#TransactionConflictException","message":"Transaction is ongoing for the item"}`
	throttleAnswer = `{"__type":"com.amazonaws.dynamodb.v20120810#ThrottlingException","message":"Rate exceeded"}`
)

var errWire = errors.New("the wire is cut")

// RoundTrip carries a request, or breaks it.
func (w *Wire) RoundTrip(r *http.Request) (*http.Response, error) {
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	w.mu.Lock()
	w.calls = append(w.calls, op)
	n := 0
	for _, c := range w.calls {
		if c == op {
			n++
		}
	}
	f := None
	if w.Rule != nil {
		f = w.Rule(op, n)
	}
	w.mu.Unlock()
	request, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(request))
	if w.Cancel != nil && op == "TransactWriteItems" {
		if answer := w.Cancel(request); answer != "" {
			return Refusing(r, http.StatusBadRequest, answer), nil
		}
	}
	switch f {
	case Dropped:
		return nil, errWire
	case Hanging:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case Conflicting:
		if items := ItemsOf(request); items > 0 {
			return Refusing(r, http.StatusBadRequest, CancelledAnswer(someOf(items, n, "TransactionConflict")...)), nil
		}
		return Refusing(r, http.StatusBadRequest, ConflictAnswer), nil
	case Throttled:
		if items := ItemsOf(request); items > 0 && n%2 == 0 { // both are DynamoDB's ways
			return Refusing(r, http.StatusBadRequest, CancelledAnswer(someOf(items, n, "ThrottlingError")...)), nil
		}
		return Refusing(r, http.StatusBadRequest, throttleAnswer), nil
	case Gateway503:
		return Refusing(r, http.StatusServiceUnavailable, ""), nil
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
	case Unanswered:
		return nil, errWire
	case Gateway504:
		return Refusing(r, http.StatusGatewayTimeout, ""), nil
	}
	if w.Edit != nil {
		answer = w.Edit(op, request, answer)
		resp.Header.Del("X-Amz-Crc32")
	}
	resp.Body = io.NopCloser(bytes.NewReader(answer))
	resp.ContentLength = int64(len(answer))
	return resp, nil
}

// ItemsOf returns how many items a transaction has, 0 for another request.
func ItemsOf(request []byte) int {
	var transaction struct{ TransactItems []json.RawMessage }
	_ = json.Unmarshal(request, &transaction)
	return len(transaction.TransactItems)
}

// someOf returns the reasons of a transaction in which some items have this one:
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

// CancelledAnswer is the answer to a transaction that was cancelled for these
// reasons: a code, or a code and the item that failed its condition.
func CancelledAnswer(reasons ...string) string {
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

// Refusing is a refusal of DynamoDB's.
func Refusing(r *http.Request, status int, answer string) *http.Response {
	return &http.Response{
		StatusCode: status, Request: r, Body: io.NopCloser(strings.NewReader(answer)),
		Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
	}
}

// Since returns the operations after the first n, and how many there are now.
func (w *Wire) Since(n int) ([]string, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string{}, w.calls[n:]...), len(w.calls)
}

// Set sets the rule, and counts anew.
func (w *Wire) Set(rule func(op string, n int) Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Rule, w.calls = rule, nil
}

// Text is a message that has no conversation yet.
func Text(sender, clientMsgID, body string) chat.Message {
	return chat.Message{
		SenderID: sender, SenderDeviceID: "phone", ClientMsgID: clientMsgID,
		MessageType: chat.TypeText, Text: body,
	}
}

// Send sends a text from one user to another.
func Send(t testing.TB, s *store.Store, sender, to, clientMsgID string) store.Committed {
	t.Helper()
	r, err := s.Append(t.Context(), Text(sender, clientMsgID, "text of "+clientMsgID), to)
	require.NoError(t, err)
	return r
}

// Ledger reads the whole conversation as userID sees it, in pages.
func Ledger(t testing.TB, s *store.Store, userID string, conversationID chat.ConversationID) []chat.Message {
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

// RequireDense checks G1 and G2 on a whole ledger.
func RequireDense(t testing.TB, messages []chat.Message, n int) {
	t.Helper()
	require.Len(t, messages, n)
	ids := map[string]bool{}
	for i, m := range messages {
		require.Equal(t, int64(i+1), m.Seq)
		require.False(t, ids[m.MessageID], "%s is there twice", m.MessageID)
		ids[m.MessageID] = true
	}
}

// Parallel calls f so many times at once, and joins the errors.
func Parallel(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Count asks DynamoDB how many items a table has.
func (c *Cloud) Count(table string) int {
	c.T.Helper()
	out, err := c.DB.Scan(context.Background(), &dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)})
	require.NoError(c.T, err)
	return int(out.Count)
}

// EditItems changes the Items of an answer.
func EditItems(answer []byte, change func([]map[string]json.RawMessage) []map[string]json.RawMessage) []byte {
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

// Hides drops messages from the answers of Query while hidden says so: what a
// reader sees while a transaction is being applied.
func Hides(hidden func(seq int64) bool) func(op string, request, answer []byte) []byte {
	return func(op string, _, answer []byte) []byte {
		if op != "Query" {
			return answer
		}
		return EditItems(answer, func(items []map[string]json.RawMessage) []map[string]json.RawMessage {
			var left []map[string]json.RawMessage
			for _, in := range items {
				var n struct{ N string }
				_ = json.Unmarshal(in["seq"], &n)
				if seq, _ := strconv.ParseInt(n.N, 10, 64); !hidden(seq) {
					left = append(left, in)
				}
			}
			return left
		})
	}
}
