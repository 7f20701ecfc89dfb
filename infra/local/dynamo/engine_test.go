package dynamo_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/dynamo"
	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
	"github.com/inorder-im/inorder/infra/local/process"
)

// holdEngine makes the test binary start an engine, say its endpoint, and wait
// to be killed.
const holdEngine = "DYNAMO_TEST_HOLD_ENGINE"

func TestMain(m *testing.M) {
	if binary := os.Getenv(holdEngine); binary != "" {
		reaper, err := process.StartReaper()
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		e, err := dynamo.Start(context.Background(), dynamo.Config{Binary: binary, Reaper: reaper})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(e.Endpoint())
		<-e.Done()
	}
	os.Exit(m.Run())
}

func find(t *testing.T) string {
	t.Helper()
	binary, err := dynamo.Find(t.Context(), dynamo.Options{Progress: func(s string) { t.Log(s) }})
	require.NoError(t, err)
	return binary
}

func TestStartServesAndStops(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var lines []string
	e, err := dynamo.Start(t.Context(), dynamo.Config{
		Binary: find(t), Reaper: dynamotest.Reaper(t),
		Output: func(line string) { mu.Lock(); lines = append(lines, line); mu.Unlock() },
	})
	require.NoError(t, err)
	_, err = dynamotest.Client(t, e.Endpoint()).ListTables(t.Context(), &dynamodb.ListTablesInput{})
	require.NoError(t, err)
	require.NoError(t, e.Err())

	e.Stop(t.Context())
	e.Stop(t.Context())
	<-e.Done()
	require.NoError(t, e.Err(), "a stop is no failure")
	require.Error(t, get(e.Endpoint()))
	mu.Lock()
	defer mu.Unlock()
	require.Contains(t, strings.Join(lines, "\n"), "listening on "+e.Endpoint())
}

func TestUnexpectedEndIsReported(t *testing.T) {
	t.Parallel()
	// exec keeps the process id of the shell, which the script tells us.
	dir := t.TempDir()
	script := writeScript(t, filepath.Join(dir, "dynoxide"), fmt.Sprintf("echo $$ > %q\nexec %q \"$@\"\n", filepath.Join(dir, "pid"), find(t)))
	e, err := dynamo.Start(t.Context(), dynamo.Config{Binary: script, Reaper: dynamotest.Reaper(t)})
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	require.NoError(t, err)
	var pid int
	_, err = fmt.Sscan(string(text), &pid)
	require.NoError(t, err)

	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	<-e.Done()
	require.ErrorContains(t, e.Err(), "ended unexpectedly (signal: killed)")
	require.ErrorContains(t, e.Err(), "listening on", "the last output helps to find the reason")
}

func TestStartTriesAnotherPortWhenOneIsTaken(t *testing.T) {
	t.Parallel()
	// The first call sends dynoxide to a port where another server answers as
	// it would itself.
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	other := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go func() { _ = other.Serve(taken) }()
	t.Cleanup(func() { _ = other.Close() })
	_, port, err := net.SplitHostPort(taken.Addr().String())
	require.NoError(t, err)

	dir := t.TempDir()
	script := writeScript(t, filepath.Join(dir, "dynoxide"), fmt.Sprintf(
		"if mkdir %q 2>/dev/null; then exec %q serve --host 127.0.0.1 --port %s; fi\nexec %q \"$@\"\n",
		filepath.Join(dir, "called"), find(t), port, find(t)))
	e, err := dynamo.Start(t.Context(), dynamo.Config{Binary: script, Reaper: dynamotest.Reaper(t)})
	require.NoError(t, err)
	defer e.Stop(t.Context())
	require.NoError(t, get(e.Endpoint()))
	require.NotContains(t, e.Endpoint(), ":"+port)
}

func TestStartIsNotFooledByAnotherServer(t *testing.T) {
	t.Parallel()
	// Here "dynoxide" is anything that never listens, while its address answers.
	dir := t.TempDir()
	script := writeScript(t, filepath.Join(dir, "dynoxide"), fmt.Sprintf("echo $3:$5 > %q\nmv %[1]q %q\nsleep 60\n", filepath.Join(dir, "a"), filepath.Join(dir, "address")))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := dynamo.Start(ctx, dynamo.Config{Binary: script, Reaper: dynamotest.Reaper(t)})
		failed <- err
	}()
	var address []byte
	require.Eventually(t, func() bool {
		var err error
		address, err = os.ReadFile(filepath.Join(dir, "address"))
		return err == nil
	}, 10*time.Second, time.Millisecond)
	impostor, err := net.Listen("tcp", string(bytes.TrimSpace(address)))
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	go func() { _ = server.Serve(impostor) }()
	defer func() { _ = server.Close() }()
	require.NoError(t, get("http://"+impostor.Addr().String()))
	select {
	case err := <-failed:
		require.Fail(t, "Start came back", "%v", err)
	default:
	}
	cancel()
	require.ErrorContains(t, <-failed, "does not listen")
}

func TestStartFailsWithTheReason(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "data.db")
	require.NoError(t, os.WriteFile(file, bytes.Repeat([]byte("no database "), 1000), 0o600))
	_, err := dynamo.Start(t.Context(), dynamo.Config{Binary: find(t), Reaper: dynamotest.Reaper(t), DataFile: file})
	require.ErrorContains(t, err, "not a valid SQLite database")
	require.ErrorIs(t, err, dynamo.ErrDamaged)

	_, err = dynamo.Start(t.Context(), dynamo.Config{Binary: filepath.Join(t.TempDir(), "nothing"), Reaper: dynamotest.Reaper(t)})
	require.ErrorContains(t, err, "starting dynoxide")
}

func TestDataFileKeepsData(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "new", "data.db")
	cfg := dynamo.Config{DataFile: file}
	e := dynamotest.StartEngine(t, cfg)
	createSimple(t, dynamotest.Client(t, e.Endpoint()), "Kept")
	e.Stop(t.Context())

	e = dynamotest.StartEngine(t, cfg)
	out, err := dynamotest.Client(t, e.Endpoint()).ListTables(t.Context(), &dynamodb.ListTablesInput{})
	require.NoError(t, err)
	require.Equal(t, []string{"Kept"}, out.TableNames)
}

func TestEngineDoesNotOutliveAKilledParent(t *testing.T) {
	t.Parallel()
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), holdEngine+"="+find(t))
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	var endpoint string
	_, err = fmt.Fscan(out, &endpoint)
	require.NoError(t, err)
	require.NoError(t, get(endpoint))

	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait()
	require.Eventually(t, func() bool { return get(endpoint) != nil }, time.Minute, 5*time.Millisecond)
}

func createSimple(t *testing.T, client *dynamodb.Client, name string) {
	t.Helper()
	_, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName:            &name,
		BillingMode:          types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("id"), AttributeType: types.ScalarAttributeTypeS}},
		KeySchema:            []types.KeySchemaElement{{AttributeName: aws.String("id"), KeyType: types.KeyTypeHash}},
	})
	require.NoError(t, err)
}

func get(url string) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func writeScript(t *testing.T, path, body string) string {
	t.Helper()
	// A process forked meanwhile would hold the file open for writing, and the
	// script could not be run ("text file busy").
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body), 0o755))
	return path
}
