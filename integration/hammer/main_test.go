package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/build/buildtest"
	"github.com/inorder-im/inorder/infra/local/logtest"
	"github.com/inorder-im/inorder/integration/fault"
)

// asHammer makes this program the hammer.
const asHammer = "HAMMER_TEST_AS_HAMMER"

func TestMain(m *testing.M) {
	if os.Getenv(asHammer) != "" {
		main() // exits
	}
	os.Exit(m.Run())
}

// figuresOfTheMoment begin with the second, which is not always the first one on a
// machine that has much to do.
var figuresOfTheMoment = regexp.MustCompile(`(?m)^ *\d+ s  `)

func TestWrongUse(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"more":                      `unexpected argument "more"`,
		"-url http://x":             "want a WebSocket URL such as wss://",
		"-addr 3000":                "want an address such as 127.0.0.1:3000 or http://127.0.0.1:3000",
		"-addr ws://127.0.0.1:3000": "want an address such as 127.0.0.1:3000",
		"-addr :1 -local":           "name one",
		"-local -url ws://x/v1":     "name one",
		"-addr :1 -url ws://x/v1":   "name one",
		"-url wss://x.example/v1":   "-tokens is missing",
		"-users 0":                  "at least 1",
		"-users 2 -conversations 3": "cannot be spread",
		"-users 1001":               "at most 1000 users",
		"-devices 17":               "a user has 1 to 16",
		"-watchers -1":              "not below 0",
		"-users 4 -conversations 2 -watchers 3 -members 4": "2 users and 3 watchers already",
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

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"-addr 127.0.0.1:1": "no local cloud answers at http://127.0.0.1:1: ",
		"-url ws://127.0.0.1:1/v1 -tokens http://127.0.0.1:1": "getting a token",
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, exitFailure, run(append(strings.Fields(args), "-users", "2"), &stdout, &stderr), args)
		require.Contains(t, stderr.String(), want, args)
	}
}

// A send that is due when the time is up is not sent, even if a machine that has much
// to do does not know yet that it is.
func TestNothingIsDueAtTheEnd(t *testing.T) {
	t.Parallel()
	l := newLoad(options{rate: 40})
	begin := time.Now().Add(-time.Minute)
	ctx, cancel := context.WithDeadline(t.Context(), begin.Add(time.Hour))
	defer cancel()
	var slots atomic.Int64
	slots.Store(40) // due a second after the start, which was long ago
	_, ok := l.next(ctx, begin, &slots)
	require.True(t, ok)
	slots.Store(40 * 3600)
	_, ok = l.next(ctx, begin, &slots)
	require.False(t, ok)
}

// A server that takes connections and answers nothing, as one that is about to go.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/dev/token" {
			_, _ = w.Write([]byte(`{"token": "t"}`))
			return
		}
		conn, err := websocket.Accept(w, r, nil)
		if err != nil {
			return // its client went away
		}
		<-conn.CloseRead(r.Context()).Done()
	}))
	t.Cleanup(server.Close)
	for _, users := range []string{"2", "3"} {
		o, err := parse([]string{"-users", users, "-url", "ws" + strings.TrimPrefix(server.URL, "http") + "/v1", "-tokens", server.URL + "/dev/token"}, io.Discard)
		require.NoError(t, err)
		l := newLoad(o)
		l.createTimeout = 50 * time.Millisecond
		ctx, hangUp := context.WithCancel(t.Context())
		done, err := l.prepare(ctx)
		hangUp()
		done()
		require.EqualError(t, err, "making the conversations: "+o.Socket+" did not answer within 50ms")
	}
}

// startCloud starts a local cloud that ends with the test.
func startCloud(t *testing.T, flags ...string) *localCloud {
	t.Helper()
	dependOnTheProduct(t)
	c, err := startLocalCloud(t.Context(), nil, flags...)
	require.NoError(t, err)
	t.Cleanup(c.stop)
	return c
}

// dependOnTheProduct keeps go test from repeating a result of another product.
func dependOnTheProduct(t *testing.T) {
	t.Helper()
	require.NoError(t, buildtest.Sources("../../functions", "../../shared", "../../infra"))
}

func TestARunOnALocalCloud(t *testing.T) {
	t.Parallel()
	dependOnTheProduct(t)
	var stdout bytes.Buffer
	var stderr logtest.Log
	code := run([]string{"-local", "-users", "5", "-devices", "2", "-conversations", "2", "-rate", "40", "-for", "2s", "-json"}, &stdout, &stderr)
	require.Zero(t, code, "%s", &stderr)
	var s summary
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &s))
	require.Positive(t, s.Sends)
	require.LessOrEqual(t, s.Sends, int64(80), "no more than the rate says; fewer on a machine that cannot keep up")
	require.Equal(t, s.Sends, s.Acks)
	require.Positive(t, s.Seconds)
	// A conversation of three users and one of two, two devices each.
	require.GreaterOrEqual(t, s.Delivered, 3*s.Acks)
	require.LessOrEqual(t, s.Delivered, 5*s.Acks)
	require.Zero(t, s.Missing)
	require.Positive(t, s.Ack.P50)
	require.Positive(t, s.Deliver.P50)
	require.Positive(t, s.DynamoDB.Transactions)
	require.LessOrEqual(t, s.DynamoDB.Transactions, s.Acks+s.DynamoDB.Conflicts+s.DynamoDB.Throttled, "one may commit several")
	// Seven for the transaction, and one for the sync head of each member.
	require.Greater(t, s.DynamoDB.WriteUnits, float64(7*s.Acks))
	require.Positive(t, s.DynamoDB.ReadUnits)
	require.Greater(t, s.Frames, 2*s.Sends)
	require.InDelta(t, s.Price.Total, s.Price.DynamoDB+s.Price.WebSocket, 1e-12)
	require.Regexp(t, regexp.MustCompile(`(?m)^ +\d+ s  \d+ sends/s  \d+ acks/s  ack [\d./]+  deliver [\d./]+ ms p50/p99/p999  [\d.]+ tx/send`), stderr.String())
}

// Of a group's members one sends, some watch, and most are away.
func TestAGroupThatIsWatched(t *testing.T) {
	t.Parallel()
	dependOnTheProduct(t)
	var stdout bytes.Buffer
	var stderr logtest.Log
	code := run([]string{"-local", "-users", "1", "-watchers", "5", "-members", "60", "-rate", "10", "-for", "2s", "-json"}, &stdout, &stderr)
	require.Zero(t, code, "%s", &stderr)
	var s summary
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &s))
	require.Equal(t, [2]int{60, 5}, [2]int{s.Members, s.Watchers})
	require.Positive(t, s.Acks)
	require.Equal(t, s.Acks, s.Reached)
	require.Equal(t, 5*s.Acks, s.Delivered, "by those who watch, and nobody else")
	require.InEpsilon(t, s.Deliver.Max, s.Reach.Max, .05, "the last delivery is when the last message has reached all, but for the histograms' precision")
	require.Contains(t, stderr.String(), "connecting 6 devices of 6 users")
	var text bytes.Buffer
	s.print(&text)
	require.Regexp(t, `(?m)^reach +p50 [\d.]+  p99 .* all 5 devices that watch have a message`, text.String())
}

func TestReach(t *testing.T) {
	t.Parallel()
	h := newHistogram()
	r := newReach(h, 3)
	reached := func() int64 { _, n := h.total(); return n }
	for i, seq := range []int64{7, 8, 7, 8} {
		r.has(seq, time.Duration(i)*time.Second)
	}
	require.Zero(t, reached())
	r.has(7, 5*time.Second)
	took, n := h.total()
	require.EqualValues(t, 1, n)
	require.InDelta(t, 5000, took.Max, 50, "as the last of them")
	for seq := range int64(2 * maxReaching) {
		r.has(100+seq, time.Second)
	}
	r.has(8, time.Second)
	require.EqualValues(t, 2, reached())
	require.Len(t, r.missing, maxReaching-1, "no more are followed than that")
}

func TestCtrlCEndsWithTheSummary(t *testing.T) {
	t.Parallel()
	c := startCloud(t)
	o, err := parse([]string{"-url", c.Socket, "-tokens", c.Tokens, "-users", "3", "-for", "0"}, &bytes.Buffer{})
	require.NoError(t, err)
	var stderr logtest.Log
	ended := make(chan summary, 1)
	interrupted, interrupt := context.WithCancel(t.Context())
	go func() {
		s, err := execute(interrupted, o, &stderr)
		if err != nil {
			s.FirstError = err.Error()
		}
		ended <- s
	}()
	require.Eventually(t, func() bool { return figuresOfTheMoment.MatchString(stderr.String()) }, time.Minute, 10*time.Millisecond)
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

// The process itself: a signal, what is on stdout, and the exit code.
func TestCtrlCOfTheProcess(t *testing.T) {
	t.Parallel()
	c := startCloud(t)
	self, err := os.Executable()
	require.NoError(t, err)
	for _, form := range []string{"-json", ""} {
		args := []string{"-url", c.Socket, "-tokens", c.Tokens, "-users", "2", "-rate", "50", "-for", "0"}
		if form != "" {
			args = append(args, form)
		}
		hammer := exec.Command(self, args...)
		hammer.Env = append(os.Environ(), asHammer+"=1")
		var stdout, stderr logtest.Log
		hammer.Stdout, hammer.Stderr = &stdout, &stderr
		require.NoError(t, hammer.Start())
		ended := make(chan error, 1)
		go func() { ended <- hammer.Wait() }()
		require.Eventually(t, func() bool { return figuresOfTheMoment.MatchString(stderr.String()) }, time.Minute, 10*time.Millisecond)
		require.Empty(t, stdout.String(), "figures of the moment are no result")
		require.NoError(t, hammer.Process.Signal(os.Interrupt))
		require.NoError(t, <-ended, "%s", &stderr)
		if form == "" {
			require.Regexp(t, `(?m)^sends +\d+, [\d.]+/s; acked \d+`, stdout.String())
			continue
		}
		var names map[string]any
		require.NoError(t, json.Unmarshal([]byte(stdout.String()), &names))
		for _, name := range []string{
			"sendsPerSecond", "acksPerSecond", "ackMs", "deliverMs", "duplicatesFiltered", "gapsFilled", "missing", "frames", "priceUSD",
		} {
			require.Contains(t, names, name)
		}
		require.Contains(t, names["ackMs"], "p999")
	}
}

// Pushes are dropped and repeated, and all sockets are cut once: nothing is missing
// in the end, and the figures tell of it.
func TestABadDay(t *testing.T) {
	t.Parallel()
	plan, err := fault.NewPlan(1, fault.Faults{fault.PushDrop: {Rate: 0.2}, fault.PushRepeat: {Rate: 0.2}})
	require.NoError(t, err)
	posts, err := fault.NewConnections(plan)
	require.NoError(t, err)
	t.Cleanup(posts.Close)
	c := startCloud(t, "-connections-endpoint", posts.URL())
	require.NoError(t, posts.SetTarget(c.Page))
	sockets, err := fault.NewSockets(plan, c.Socket)
	require.NoError(t, err)
	t.Cleanup(sockets.Close)
	o, err := parse([]string{"-url", sockets.URL(), "-tokens", c.Tokens, "-users", "3", "-rate", "60", "-for", "0"}, &bytes.Buffer{})
	require.NoError(t, err)
	var stderr logtest.Log
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	ended := make(chan summary, 1)
	go func() {
		s, err := execute(ctx, o, &stderr)
		if err != nil {
			s.FirstError = err.Error()
		}
		ended <- s
	}()
	require.Eventually(t, func() bool { return figuresOfTheMoment.MatchString(stderr.String()) }, time.Minute, 10*time.Millisecond)
	plan.On()
	require.Eventually(t, func() bool {
		return plan.Counts()[fault.PushDrop] > 5 && plan.Counts()[fault.PushRepeat] > 5
	}, time.Minute, 10*time.Millisecond)
	sockets.Cut()
	filled := regexp.MustCompile(`dup [1-9]\d*  gaps [1-9]`)
	require.Eventually(t, func() bool { return filled.MatchString(stderr.String()) }, time.Minute, 10*time.Millisecond, "the figures of the moment tell of it too")
	interrupt()
	s := <-ended
	require.True(t, s.ok(), "%+v", s)
	require.GreaterOrEqual(t, s.Reconnects, int64(3))
	require.Positive(t, s.DuplicatesFiltered)
	require.Positive(t, s.GapsFilled)
}

func TestWhatIsNotAsItHasToBeEndsWithAnError(t *testing.T) {
	t.Parallel()
	require.True(t, summary{Busy: 5, LostAnswers: 3, Reconnects: 1, GapsFilled: 9}.ok(), "these are dealt with")
	for _, s := range []summary{{Missing: 1}, {Failed: 1}, {FirstError: "a frame that is no JSON"}} {
		require.False(t, s.ok(), "%+v", s)
	}
}

// Whose data the load goes into is said first; and only a local cloud is loaded,
// whatever listens on its port.
func TestTheHammerSaysWhomItLoads(t *testing.T) {
	t.Parallel()
	const stack = `{"name":"shop","template":"/home/ann/shop/template.yaml","websocket":"ws://127.0.0.1:3000/dev"}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/dev/stack" {
			_, _ = io.WriteString(w, stack)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(server.Close)
	stranger := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(stranger.Close)
	for name, tt := range map[string]struct{ addr, says, fails string }{
		"a local cloud":         {server.URL, "loading shop of /home/ann/shop/template.yaml, at " + server.URL + ":", ""},
		"the same, without URL": {strings.TrimPrefix(server.URL, "http://"), "at " + server.URL + ":", ""},
		"a stranger":            {stranger.URL, "", "what answers at " + stranger.URL + " is no local cloud"},
		"nobody":                {"127.0.0.1:1", "", "no local cloud answers at http://127.0.0.1:1: "},
	} {
		o, err := parse([]string{"-addr", tt.addr}, io.Discard)
		require.NoError(t, err, name)
		var said strings.Builder
		err = o.askWhich(t.Context(), func(format string, args ...any) { fmt.Fprintf(&said, format, args...) })
		require.Contains(t, said.String(), tt.says, name)
		if tt.fails == "" {
			require.NoError(t, err, name)
			require.Equal(t, "ws://127.0.0.1:3000/dev", o.Socket, name)
			require.Equal(t, server.URL+"/dev/token", o.Tokens, name)
			continue
		}
		require.ErrorContains(t, err, tt.fails, name)
	}
}
