// Package integration_test tests Inorder from outside, through the socket alone,
// as a device would.
//
// By default the tests start the local cloud themselves. With INORDER_WS_URL
// they run against a stack that is up, such as a deployed one, and
// INORDER_TOKEN_URL says where to get a token for any user (GET with
// ?user=NAME, answering {"token": …}; by default http://HOST/dev/token). With
// INORDER_DYNAMODB_ENDPOINT the local cloud uses the DynamoDB there, such as
// LocalStack's. Tests that need more than the socket of one stack are skipped in
// both cases. Every test has users of its own, so all of them run at the same
// time, and on a stack that is in use.
package integration_test

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"sync"
	"testing"

	"github.com/inorder-im/inorder/infra/local/build/buildtest"
	launch "github.com/inorder-im/inorder/integration/stack"
)

// shared is the stack that all tests use but those that need one to themselves.
var shared stack

// launcher starts local clouds; nil where tests cannot have their own.
var launcher *launch.Launcher

// dependOnTheProduct keeps go test from repeating a result of another product.
var dependOnTheProduct = sync.OnceValue(func() error {
	return buildtest.Sources("../functions", "../shared", "../infra")
})

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

// run is TestMain with defer. A local cloud that cannot be ended as it should be
// fails the whole.
func run(m *testing.M) (code int) {
	// The tests wait more than they compute.
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		_ = flag.Set("test.parallel", "16")
	}
	if socket := os.Getenv("INORDER_WS_URL"); socket != "" {
		tokens, err := tokenURL(socket)
		if err != nil {
			return failed(err)
		}
		shared = stack{Socket: socket, Tokens: tokens}
		return m.Run()
	}
	all, err := launch.NewLauncher(context.Background())
	if err != nil {
		return failed(err)
	}
	defer func() {
		if err := all.Close(); err != nil {
			code = failed(err)
		}
	}()
	var flags []string
	if endpoint := os.Getenv("INORDER_DYNAMODB_ENDPOINT"); endpoint != "" {
		flags = []string{"-dynamodb-endpoint", endpoint}
	}
	cloud, err := startFrom(context.Background(), all, nil, flags...)
	if err != nil {
		return failed(err)
	}
	if flags == nil { // another one would share the tables
		launcher = all
	}
	defer func() {
		if err := cloud.Stop(); err != nil {
			code = failed(err)
		}
		if code != 0 {
			fmt.Fprintf(os.Stderr, "What the local cloud had to say, without its info lines:\n%s", cloud.complaints())
		}
	}()
	shared = cloud.Stack
	return m.Run()
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, "integration:", err)
	return 1
}

func tokenURL(socket string) (string, error) {
	if tokens := os.Getenv("INORDER_TOKEN_URL"); tokens != "" {
		return tokens, nil
	}
	u, err := url.Parse(socket)
	if err != nil {
		return "", fmt.Errorf("INORDER_WS_URL: %w", err)
	}
	return (&url.URL{Scheme: "http", Host: u.Host, Path: "/dev/token"}).String(), nil
}
