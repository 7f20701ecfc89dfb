package integration_test

import (
	"bytes"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"inorder/infra/local/dynamo/dynamotest"
)

// database is a DynamoDB with a proxy in front of it that a test can meddle with.
type database struct {
	client   *dynamodb.Client // past the proxy
	endpoint string           // of the proxy

	mu     sync.Mutex
	counts map[string]int // requests by operation, such as TransactWriteItems
	meddle meddle
}

// reply is an answer of DynamoDB.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// meddle answers a request to DynamoDB. forward does what would happen without
// it. It is called for several requests at a time.
type meddle func(operation string, request []byte, forward func() reply) reply

// startDatabase starts one that ends with the test.
func startDatabase(tb testing.TB) *database {
	tb.Helper()
	needLocal(tb)
	client, engine := dynamotest.Start(tb)
	db := &database{client: client, counts: map[string]int{}}
	transport := &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true}
	tb.Cleanup(transport.CloseIdleConnections)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		db.serve(w, r, transport, engine)
	}))
	tb.Cleanup(server.Close)
	db.endpoint = server.URL
	return db
}

// set changes how the proxy meddles, from the next request on; nil ends it.
func (db *database) set(m meddle) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.meddle = m
}

// count says how often an operation was asked for.
func (db *database) count(operation string) int {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.counts[operation]
}

func (db *database) serve(w http.ResponseWriter, r *http.Request, transport http.RoundTripper, engine string) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller is gone
	}
	// DynamoDB_20120810.Query, or DynamoDBStreams_20120810.GetRecords.
	api, operation, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	forward := func() reply { return forwardTo(transport, engine, r, body) }
	db.mu.Lock()
	meddle := db.meddle
	db.counts[operation]++
	db.mu.Unlock()
	var answer reply
	if meddle == nil || !strings.HasPrefix(api, "DynamoDB_") {
		answer = forward()
	} else {
		answer = meddle(operation, body, forward)
	}
	for name, values := range answer.header {
		w.Header()[name] = values
	}
	w.Header().Set("X-Amz-Crc32", strconv.FormatUint(uint64(crc32.ChecksumIEEE(answer.body)), 10)) // the SDK checks it
	w.WriteHeader(answer.status)
	_, _ = w.Write(answer.body) // the caller may be gone
}

func forwardTo(transport http.RoundTripper, engine string, r *http.Request, body []byte) reply {
	// Not with the caller's context: what DynamoDB got, it carries out.
	req, err := http.NewRequest(r.Method, engine+r.URL.Path, bytes.NewReader(body))
	if err != nil {
		return reply{status: http.StatusBadGateway, body: []byte(err.Error())}
	}
	req.Header = r.Header.Clone()
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return reply{status: http.StatusBadGateway, body: []byte(err.Error())}
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return reply{status: http.StatusBadGateway, body: []byte(err.Error())}
	}
	header := resp.Header.Clone()
	header.Del("Content-Length") // of a body that may be changed
	return reply{status: resp.StatusCode, header: header, body: answer}
}

// failure is an answer that refuses, as DynamoDB words it.
func failure(status int, errorType, more string) reply {
	return reply{
		status: status,
		header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}},
		body:   []byte(`{"__type":"com.amazonaws.dynamodb.v20120810#` + errorType + `","message":"made up by a test"` + more + `}`),
	}
}

// tableName finds a table by its logical id in the template, which is in its name.
func tableName(tb testing.TB, db *dynamodb.Client, logicalID string) string {
	tb.Helper()
	out, err := db.ListTables(tb.Context(), &dynamodb.ListTablesInput{})
	require.NoError(tb, err)
	for _, name := range out.TableNames {
		if strings.Contains(name, logicalID) {
			return name
		}
	}
	require.Fail(tb, "no such table", "%s in %v", logicalID, out.TableNames)
	return ""
}
