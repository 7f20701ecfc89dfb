package proxy_test

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/inorder-im/inorder/integration/proxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// meter is a proxy that meters what it is asked, one request at a time.
type meter struct {
	*proxy.Proxy
	spent *proxy.Spent
	err   error
}

func startMeter(t *testing.T, backend http.HandlerFunc) *meter {
	t.Helper()
	server := httptest.NewServer(backend)
	t.Cleanup(server.Close)
	p, err := proxy.New()
	require.NoError(t, err)
	t.Cleanup(p.Close)
	require.NoError(t, p.SetTarget(server.URL))
	m := &meter{Proxy: p}
	p.Serve(func(r proxy.Request) (a proxy.Answer) {
		a, m.spent, m.err = p.Metered(r)
		return a
	})
	return m
}

// ask asks for an operation, such as DynamoDB_20120810.Query.
func (m *meter) ask(t *testing.T, target, body string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m.URL(), bytes.NewBufferString(body))
	require.NoError(t, err)
	req.Header.Set("X-Amz-Target", target)
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(answer)
}

func TestMetered(t *testing.T) {
	t.Parallel()
	const data = "DynamoDB_20120810."
	for name, tt := range map[string]struct {
		target string
		status int
		answer string
		want   *proxy.Spent
		fails  bool
	}{
		"one table":      {data + "PutItem", 200, `{"ConsumedCapacity":{"CapacityUnits":2}}`, &proxy.Spent{Operation: "PutItem", Units: 2}, false},
		"several tables": {data + "BatchGetItem", 200, `{"ConsumedCapacity":[{"CapacityUnits":2},{"CapacityUnits":0.5}]}`, &proxy.Spent{Operation: "BatchGetItem", Units: 2.5}, false},
		"a condition":    {data + "UpdateItem", 400, `{"__type":"x#ConditionalCheckFailedException"}`, &proxy.Spent{Operation: "UpdateItem", Units: 1}, false},
		"a cancelled transaction": {data + "TransactWriteItems", 400, `{"__type":"x#TransactionCanceledException","CancellationReasons":[{"Code":"TransactionConflict"}]}`,
			&proxy.Spent{Operation: "TransactWriteItems", Cancelled: true}, false},
		"a throttled transaction": {data + "TransactWriteItems", 400, `{"__type":"x#TransactionCanceledException","CancellationReasons":[{"Code":"ThrottlingError"}]}`,
			&proxy.Spent{Operation: "TransactWriteItems", Throttled: true}, false},
		"throttled":            {data + "PutItem", 400, `{"__type":"x#ProvisionedThroughputExceededException"}`, &proxy.Spent{Operation: "PutItem", Throttled: true}, false},
		"no word of it":        {data + "Query", 200, `{"Items":[]}`, &proxy.Spent{Operation: "Query"}, true},
		"no DynamoDB":          {data + "Query", 200, `<html>`, &proxy.Spent{Operation: "Query"}, true},
		"not about items":      {data + "ListTables", 200, `{}`, nil, false},
		"of a stream":          {"DynamoDBStreams_20120810.GetRecords", 200, `{"Records":[]}`, nil, false},
		"a text about a limit": {data + "Query", 200, `{"Items":[{"text":{"S":"Throttling"}}],"ConsumedCapacity":{"CapacityUnits":1}}`, &proxy.Spent{Operation: "Query", Units: 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := startMeter(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.answer)
			})
			require.Equal(t, tt.answer, m.ask(t, tt.target, `{"TableName":"t"}`), "who asked has the answer as it is")
			require.Equal(t, tt.want, m.spent)
			require.Equal(t, tt.fails, m.err != nil, "%v", m.err)
		})
	}
}

func TestMeteredAsks(t *testing.T) {
	t.Parallel()
	m := startMeter(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	for asked, want := range map[string]string{
		`{"TableName":"t"}`:                  `{"ReturnConsumedCapacity":"TOTAL","TableName":"t"}`,
		`{}`:                                 `{"ReturnConsumedCapacity":"TOTAL"}`,
		`{"ReturnConsumedCapacity":"INDEX"}`: `{"ReturnConsumedCapacity":"INDEX"}`,
		`no JSON`:                            `no JSON`,
	} {
		require.Equal(t, want, m.ask(t, "DynamoDB_20120810.Query", asked))
	}
	require.Equal(t, `{"TableName":"t"}`, m.ask(t, "DynamoDB_20120810.ListTables", `{"TableName":"t"}`))
}

func TestProxyWithoutATarget(t *testing.T) {
	t.Parallel()
	p, err := proxy.New()
	require.NoError(t, err)
	defer p.Close()
	require.ErrorContains(t, p.SetTarget("127.0.0.1:8000"), "it has to be a URL such as http://127.0.0.1:8000")
	require.Equal(t, http.StatusBadGateway, p.Forward(proxy.Request{Method: http.MethodGet, Path: "/"}).Status)
}
