// Package dynamotest gives tests a DynamoDB of their own.
package dynamotest

import (
	"context"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"github.com/inorder-im/inorder/infra/local/dynamo"
	"github.com/inorder-im/inorder/infra/local/process"
)

// Region is the region that the clients sign for. The engine takes any.
const Region = "us-east-1"

// Start starts an engine without a data file that ends with the test, and returns a
// client and the endpoint for others. An engine takes some 10 ms to start and
// 4 MB of memory, so every test can have its own. It fails the test if there is
// no dynoxide and none can be installed; see [dynamo.Find].
func Start(tb testing.TB) (client *dynamodb.Client, endpoint string) {
	tb.Helper()
	e := StartEngine(tb, dynamo.Config{})
	return Client(tb, e.Endpoint()), e.Endpoint()
}

// StartEngine is [Start] with a configuration, for a test that needs a data file
// or stops the engine itself. An empty cfg.Binary is looked for, and a cfg.Reaper that
// is missing is started.
func StartEngine(tb testing.TB, cfg dynamo.Config) *dynamo.Engine {
	tb.Helper()
	if cfg.Binary == "" {
		binary, err := dynamo.Find(tb.Context(), dynamo.Options{Progress: func(s string) { tb.Log(s) }})
		if err != nil {
			tb.Fatal(err)
		}
		cfg.Binary = binary
	}
	if cfg.Reaper == nil {
		cfg.Reaper = Reaper(tb)
	}
	e, err := dynamo.Start(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		e.Stop(context.Background())
		if err := e.Err(); err != nil {
			tb.Error(err)
		}
	})
	return e
}

// Reaper guards the processes that a test starts, and ends with it.
func Reaper(tb testing.TB) *process.Reaper {
	tb.Helper()
	reaper, err := process.StartReaper()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := reaper.Close(); err != nil {
			tb.Error(err)
		}
	})
	return reaper
}

// Client returns a client of an engine. Its connections are closed with the test.
func Client(tb testing.TB, endpoint string) *dynamodb.Client {
	return dynamodb.New(dynamodb.Options{
		Region:       Region,
		BaseEndpoint: &endpoint,
		Credentials:  credentials.NewStaticCredentialsProvider("test", "test", ""),
		HTTPClient:   httpClient(tb),
	})
}

// Streams returns a client of an engine's streams.
func Streams(tb testing.TB, endpoint string) *dynamodbstreams.Client {
	return dynamodbstreams.New(dynamodbstreams.Options{
		Region:       Region,
		BaseEndpoint: &endpoint,
		Credentials:  credentials.NewStaticCredentialsProvider("test", "test", ""),
		HTTPClient:   httpClient(tb),
	})
}

func httpClient(tb testing.TB) *http.Client {
	// As many idle connections as a test has goroutines, or each request opens one.
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	tb.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
