package integration_test

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/inorder-im/inorder/infra/local/build"
	"github.com/inorder-im/inorder/infra/local/dynamo"
	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
	"github.com/inorder-im/inorder/infra/local/issuer"
	"github.com/inorder-im/inorder/infra/local/lambda"
	"github.com/inorder-im/inorder/infra/local/process"
	"github.com/inorder-im/inorder/infra/local/template"
	"github.com/inorder-im/inorder/shared/wire"
)

// Cost and speed, printed and not judged:
//
//	go test -run '^$' -bench . ./integration

// BenchmarkLatency is one sender at a time and one receiver: from the send to its
// ack, and to its push on the other's device.
func BenchmarkLatency(b *testing.B) {
	alice, bob := newUser("alice"), newUser("bob")
	from, to := mustConnect(b, shared, alice, "phone"), mustConnect(b, shared, bob, "phone")
	var acks, pushes []time.Duration
	for b.Loop() {
		start := time.Now()
		sent := mustSend(b, from, wire.Send{To: bob, Text: "How long does this take?"})
		acks = append(acks, time.Since(start))
		require.NoError(b, to.awaitNews(b.Context(), sent))
		pushes = append(pushes, time.Since(start))
	}
	reportQuantiles(b, "ack", acks)
	reportQuantiles(b, "push", pushes)
}

func reportQuantiles(b *testing.B, what string, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	quantile := func(q float64) float64 { return milliseconds(took[int(q*float64(len(took)-1))]) }
	b.ReportMetric(0, "ns/op") // would be another number for the same
	b.ReportMetric(quantile(.5), what+"-p50-ms")
	b.ReportMetric(quantile(.99), what+"-p99-ms")
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// outstanding is how many sends are under way at a time.
const outstanding = 64

// BenchmarkSends is the throughput of 64 senders, and what it takes. The
// transactions are counted by a proxy, which costs throughput: in runs of their
// own.
func BenchmarkSends(b *testing.B) {
	for name, crowd := range map[string]func(*testing.B, stack) []sender{
		"64 conversations": inConversationsOfTheirOwn, "1 conversation": inOneConversation,
	} {
		b.Run(name, func(b *testing.B) {
			senders := crowd(b, shared)
			b.Run("rate", func(b *testing.B) {
				sendAll(b, senders)
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "sends/s")
			})
			db := startDatabase(b)
			senders = crowd(b, startCloud(b, "-dynamodb-endpoint", db.endpoint).Stack)
			b.Run("transactions", func(b *testing.B) {
				before := db.count("TransactWriteItems")
				sendAll(b, senders)
				b.ReportMetric(float64(db.count("TransactWriteItems")-before)/float64(b.N), "transactions/send")
			})
		})
	}
}

// sender has one send under way at a time.
type sender struct {
	device *device
	to     string
}

// inConversationsOfTheirOwn is 64 users, each of whom writes to the next.
func inConversationsOfTheirOwn(b *testing.B, s stack) []sender {
	b.Helper()
	var users [outstanding]string
	for i := range users {
		users[i] = newUser("user")
	}
	var senders []sender
	for i, user := range users {
		senders = append(senders, sender{mustConnect(b, s, user, "phone"), users[(i+1)%outstanding]})
	}
	return senders
}

// inOneConversation is two users, the most that a single conversation has, on 16
// devices each, the most that a user may connect, with two sends each under way.
func inOneConversation(b *testing.B, s stack) []sender {
	b.Helper()
	users := [2]string{newUser("alice"), newUser("bob")}
	var senders []sender
	for i := range maxDevices {
		for n, user := range users {
			d := mustConnect(b, s, user, strconv.Itoa(i))
			senders = append(senders, sender{d, users[1-n]}, sender{d, users[1-n]})
		}
	}
	return senders
}

func sendAll(b *testing.B, senders []sender) {
	b.Helper()
	var taken atomic.Int64
	group, ctx := errgroup.WithContext(b.Context())
	b.ResetTimer()
	for _, s := range senders {
		group.Go(func() error {
			for taken.Add(1) <= int64(b.N) {
				if _, err := s.device.send(ctx, wire.Send{To: s.to, Text: "one of many"}); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(b, group.Wait())
	b.StopTimer()
	b.ReportMetric(0, "ns/op")
}

// BenchmarkReady is the start of the local cloud, with functions that are built.
func BenchmarkReady(b *testing.B) {
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		c := startCloud(b)
		took = append(took, time.Since(start))
		require.NoError(b, c.Stop())
	}
	reportQuantiles(b, "ready", took)
}

// BenchmarkColdStart is, for each function, the time from the start of a process
// to its first answer, and the size of its executable.
func BenchmarkColdStart(b *testing.B) {
	tokens, err := issuer.New("http://issuer.example/", "inorder")
	require.NoError(b, err)
	server := httptest.NewServer(tokens.Handler())
	defer server.Close()
	token, err := stack{Tokens: server.URL + issuer.TokenPath}.Token(b.Context(), "alice", url.Values{})
	require.NoError(b, err)
	stack, err := template.Load("../template.yaml", template.Options{
		Parameters: map[string]string{"JwksUrl": server.URL + issuer.KeysPath, "JwtIssuer": "http://issuer.example/"},
		HTTPBase:   "http://127.0.0.1:1", WSBase: "ws://127.0.0.1:1",
	})
	require.NoError(b, err)
	executables, err := build.Functions(b.Context(), stack, build.Options{OutDir: b.TempDir()})
	require.NoError(b, err)
	db, endpoint := dynamotest.Start(b)
	require.NoError(b, dynamo.CreateTables(b.Context(), db, stack.Tables))
	reaper, err := process.StartReaper()
	require.NoError(b, err)
	defer func() { _ = reaper.Close() }()

	start := func(b *testing.B, f *template.Function, event []byte) time.Duration {
		return coldStart(b, reaper, lambda.Function{Function: *f, Dir: executables[f.LogicalID], Env: map[string]string{
			"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_ENDPOINT_URL_DYNAMODB": endpoint,
		}}, event)
	}
	// The message of which the others' events tell.
	start(b, stack.Function("SendFunction"), sampleEvent(b, "send", token))
	for _, f := range stack.Functions {
		name := strings.ToLower(strings.TrimSuffix(f.LogicalID, "Function"))
		event := sampleEvent(b, name, token)
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				took = append(took, start(b, f, event))
			}
			reportQuantiles(b, "cold", took)
			info, err := os.Stat(filepath.Join(executables[f.LogicalID], "bootstrap"))
			require.NoError(b, err)
			b.ReportMetric(float64(info.Size())/(1<<20), "MB")
		})
	}
}

// sampleEvent is the function's event from the events folder, made fit for here
// and now: a token that is good, and only the conversation that there is.
func sampleEvent(b *testing.B, name, token string) []byte {
	b.Helper()
	event, err := os.ReadFile(filepath.Join("..", "events", name+".json"))
	require.NoError(b, err)
	var fields map[string]any
	require.NoError(b, json.Unmarshal(event, &fields))
	switch name {
	case "authorizer":
		fields["headers"] = map[string]string{"Authorization": "Bearer " + token}
		delete(fields, "multiValueHeaders")
	case "fanout":
		records, ok := fields["Records"].([]any)
		require.True(b, ok)
		fields["Records"] = records[:1]
	}
	event, err = json.Marshal(fields)
	require.NoError(b, err)
	return event
}

// coldStart gives one event to a process that has to be started for it.
func coldStart(b *testing.B, reaper *process.Reaper, f lambda.Function, event []byte) time.Duration {
	b.Helper()
	var mu sync.Mutex
	var output []string
	service, err := lambda.New(lambda.Config{
		Functions: []lambda.Function{f}, Region: dynamotest.Region, Reaper: reaper,
		Output: func(_, line string) {
			mu.Lock()
			defer mu.Unlock()
			output = append(output, line)
		},
	})
	require.NoError(b, err)
	began := time.Now()
	answer, failed, err := service.Invoke(b.Context(), f.LogicalID, event)
	took := time.Since(began)
	require.NoError(b, err)
	require.NoError(b, service.Close(context.Background()))
	require.Empty(b, failed, "%s: %s\n%s", f.Name, answer, strings.Join(output, "\n"))
	return took
}
