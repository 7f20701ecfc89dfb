package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inorder/infra/local/child"
)

func TestMain(m *testing.M) {
	child.RunReaper()
	os.Exit(m.Run())
}

func TestWrongUse(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"more":                        `unexpected argument "more"`,
		"-url http://x":               "want a URL such as ws://127.0.0.1:3000/v1",
		"-url wss://x.example/v1":     "-tokens is missing",
		"-users 0":                    "at least 1",
		"-users 2 -conversations 3":   "cannot be spread",
		"-users 1001":                 "at most 1000 users",
		"-devices 17":                 "a user has 1 to 16",
		"-rate -1":                    "not below 0",
		"-size 4001":                  "1 to 4000",
		"-nonsense":                   "not defined",
		"-url ws://localhost/v1 -for": "needs an argument",
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, exitUsage, run(strings.Fields(args), &stdout, &stderr), args)
		require.Contains(t, stderr.String(), want, args)
		require.Empty(t, stdout.String())
	}
	var stdout, stderr bytes.Buffer
	require.Zero(t, run([]string{"-h"}, &stdout, &stderr))
	require.Contains(t, stderr.String(), "-conversations")
}

func TestTheTokensOfALocalCloud(t *testing.T) {
	t.Parallel()
	o, err := parse([]string{"-url", "ws://127.0.0.1:3001/v1"}, &bytes.Buffer{})
	require.NoError(t, err)
	require.Equal(t, "http://127.0.0.1:3001/dev/token", o.tokens)
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	require.Equal(t, exitFailure, run([]string{"-url", "ws://127.0.0.1:1/v1", "-users", "2"}, &stdout, &stderr))
	require.Contains(t, stderr.String(), "getting a token")
}

// syncBuffer is written by a run and read by its test.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestARunOnALocalCloud(t *testing.T) {
	t.Parallel()
	var stdout bytes.Buffer
	var stderr syncBuffer
	code := run([]string{"-local", "-users", "5", "-devices", "2", "-conversations", "2", "-rate", "40", "-for", "2s", "-json"}, &stdout, &stderr)
	require.Zero(t, code, "%s", &stderr)
	var s summary
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &s))
	require.Positive(t, s.Sends)
	require.LessOrEqual(t, s.Sends, int64(81), "no more than the rate says; fewer on a machine that cannot keep up")
	require.Equal(t, s.Sends, s.Acks)
	require.Positive(t, s.Seconds)
	// A conversation of three users and one of two, two devices each.
	require.GreaterOrEqual(t, s.Delivered, 3*s.Acks)
	require.LessOrEqual(t, s.Delivered, 5*s.Acks)
	require.Zero(t, s.Missing)
	require.Positive(t, s.Ack.P50)
	require.Positive(t, s.Deliver.P50)
	require.GreaterOrEqual(t, s.DynamoDB.Transactions, s.Acks)
	require.Equal(t, s.DynamoDB.Transactions, s.Acks+s.DynamoDB.Conflicts+s.DynamoDB.Throttled)
	// Seven for the transaction, and one for the sync head of each member.
	require.Greater(t, s.DynamoDB.WriteUnits, float64(7*s.Acks))
	require.Positive(t, s.DynamoDB.ReadUnits)
	require.Greater(t, s.Frames, 2*s.Sends)
	require.InDelta(t, s.Price.Total, s.Price.DynamoDB+s.Price.WebSocket, 1e-12)
	require.Regexp(t, regexp.MustCompile(`(?m)^ +1 s  \d+ sends/s  \d+ acks/s  ack [\d./]+  deliver [\d./]+ ms p50/p99/p999  [\d.]+ tx/send`), stderr.String())
}

func TestCtrlCEndsWithTheSummary(t *testing.T) {
	t.Parallel()
	c, err := startLocalCloud(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(c.stop)
	o, err := parse([]string{"-url", c.socket, "-tokens", c.tokens, "-users", "3", "-for", "0"}, &bytes.Buffer{})
	require.NoError(t, err)
	var stderr syncBuffer
	ended := make(chan summary, 1)
	interrupted, interrupt := context.WithCancel(t.Context())
	go func() {
		s, err := execute(interrupted, o, &stderr)
		if err != nil {
			s.FirstError = err.Error()
		}
		ended <- s
	}()
	require.Eventually(t, func() bool { return strings.Contains(stderr.String(), "   1 s  ") }, time.Minute, 10*time.Millisecond)
	interrupt()
	s := <-ended
	require.Empty(t, s.FirstError)
	require.Positive(t, s.Acks)
	require.Equal(t, s.Sends, s.Acks, "sends under way are waited for")
	require.Zero(t, s.Missing)
	require.Nil(t, s.DynamoDB, "it cannot be seen")
	var text bytes.Buffer
	s.print(&text)
	require.Contains(t, text.String(), "3 users with 1 devices in 1 conversations")
}
