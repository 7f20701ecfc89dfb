package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/logtest"
	"github.com/inorder-im/inorder/infra/local/queue"
	"github.com/inorder-im/inorder/infra/local/template"
)

// function is an Invoker that runs a Go function and notes what it was given.
type function struct {
	handle func(batch []events.SQSMessage) (answer, functionError string, err error)

	mu      sync.Mutex
	calls   []string // the bodies, each with its receive count
	payload []byte   // of the last call
	running int
	most    int // at a time
}

func (f *function) Invoke(_ context.Context, name string, payload []byte) ([]byte, string, error) {
	var e events.SQSEvent
	if err := json.Unmarshal(payload, &e); err != nil {
		return nil, "", err
	}
	var texts []string
	for _, m := range e.Records {
		texts = append(texts, m.Body+"/"+m.Attributes["ApproximateReceiveCount"])
	}
	f.mu.Lock()
	f.calls = append(f.calls, strings.Join(texts, " "))
	f.payload = payload
	f.running++
	f.most = max(f.most, f.running)
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.running--
	}()
	if name != "retry" {
		return nil, "", fmt.Errorf("no function %q", name)
	}
	if f.handle == nil {
		return []byte("null"), "", nil
	}
	answer, functionError, err := f.handle(e.Records)
	return []byte(answer), functionError, err
}

func (f *function) heard() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.calls)
}

// scene is a queue with a dead-letter queue and a function that it feeds.
type scene struct {
	q, dead  *queue.Queue
	function *function
	source   queue.Source
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{function: &function{}}
	s.q, s.dead = redriving(t.TempDir(), 3)
	s.source = queue.Source{
		QueueMapping: template.QueueMapping{LogicalID: "RetryQueue", BatchSize: 10, ReportBatchItemFailures: true},
		Function:     "retry", Region: "us-east-1", Invoker: s.function,
	}
	return s
}

func (s *scene) send(t *testing.T, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		require.NoError(t, s.q.Send(t.Context(), []byte(body)))
	}
}

// start runs the mapping until the returned function is called.
func (s *scene) start(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		s.q.Feed(ctx, s.source)
		close(done)
	}()
	return func() {
		cancel()
		<-done
	}
}

// elapse lets the fake clock of a synctest bubble go on.
func elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// left are the bodies in a queue's file.
func left(t *testing.T, q *queue.Queue) []string {
	t.Helper()
	content, err := os.ReadFile(q.Path)
	if errors.Is(err, os.ErrNotExist) {
		return []string{}
	}
	require.NoError(t, err)
	bodies := []string{}
	for line := range strings.Lines(string(content)) {
		var l struct{ Body string }
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		bodies = append(bodies, l.Body)
	}
	return bodies
}

// reports answers that the messages with these bodies failed, and those ids.
func reports(failing string, ids ...string) func([]events.SQSMessage) (string, string, error) {
	return func(batch []events.SQSMessage) (string, string, error) {
		failures := []events.SQSBatchItemFailure{}
		for _, m := range batch {
			if strings.Contains(failing, m.Body) {
				failures = append(failures, events.SQSBatchItemFailure{ItemIdentifier: m.MessageId})
			}
		}
		for _, id := range ids {
			failures = append(failures, events.SQSBatchItemFailure{ItemIdentifier: id})
		}
		answer, err := json.Marshal(events.SQSEventResponse{BatchItemFailures: failures})
		return string(answer), "", err
	}
}

func says(answer, functionError string) func([]events.SQSMessage) (string, string, error) {
	return func([]events.SQSMessage) (string, string, error) { return answer, functionError, nil }
}

func TestFeed(t *testing.T) {
	t.Parallel()
	const first = "a/1 b/1 c/1"
	thrice := []string{first, "a/2 b/2 c/2", "a/3 b/3 c/3"}
	all := []string{"a", "b", "c"}
	tests := map[string]struct {
		handle func([]events.SQSMessage) (string, string, error)
		plain  bool // without ReportBatchItemFailures
		calls  []string
		dead   []string
		log    string
	}{
		"success":                         {calls: []string{first}},
		"no failures":                     {handle: reports(""), calls: []string{first}},
		"an empty answer":                 {handle: says("", ""), calls: []string{first}},
		"one fails":                       {handle: reports("b"), calls: []string{first, "b/2", "b/3"}, dead: []string{"b"}, log: `could not do all messages`},
		"all fail":                        {handle: reports("a b c"), calls: thrice, dead: all},
		"an error":                        {handle: says(`{}`, "Unhandled"), calls: thrice, dead: all, log: `error=Unhandled`},
		"an error without reports":        {handle: says(`{}`, "Unhandled"), plain: true, calls: thrice, dead: all},
		"an unknown identifier":           {handle: reports("b", "nobody"), calls: thrice, dead: all, log: `names \"nobody\" as failed`},
		"an empty identifier":             {handle: reports("b", ""), calls: thrice, dead: all, log: `an itemIdentifier is empty`},
		"an answer that is no object":     {handle: says(`"done"`, ""), calls: thrice, dead: all},
		"an answer that is no JSON":       {handle: says(`oops`, ""), calls: thrice, dead: all, log: `its answer cannot be used: invalid character`},
		"a report that was not asked for": {handle: reports("b"), plain: true, calls: []string{first}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				s.function.handle, s.source.ReportBatchItemFailures = test.handle, !test.plain
				var log logtest.Log
				s.source.Log = slog.New(slog.NewTextHandler(&log, nil))
				s.send(t, "a", "b", "c")
				stop := s.start(t)
				elapse(29 * time.Second)
				require.Equal(t, test.calls[:1], s.function.heard(), "until its visibility timeout is over, a message is hidden")
				elapse(2 * time.Minute)
				stop()
				require.Equal(t, test.calls, s.function.heard())
				if test.dead == nil {
					test.dead = []string{}
				}
				require.Equal(t, test.dead, left(t, s.dead))
				require.Empty(t, left(t, s.q))
				require.Contains(t, log.String(), test.log)
			})
		})
	}
}

func TestFeed_Event(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.function.handle = says("", "Unhandled")
		s.send(t, `{"a":1}`)
		stop := s.start(t)
		elapse(31 * time.Second)
		stop()
		var event struct{ Records []map[string]any }
		require.NoError(t, json.Unmarshal(s.function.payload, &event))
		record := event.Records[0]
		require.Regexp(t, `^[0-9a-f-]{36}$`, record["messageId"])
		require.NotEmpty(t, record["receiptHandle"])
		delete(record, "messageId")
		delete(record, "receiptHandle")
		require.Equal(t, map[string]any{
			"body": `{"a":1}`, "md5OfBody": "bb6cb5c68df4652941caf652a366f2d8", "messageAttributes": map[string]any{},
			"eventSource": "aws:sqs", "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:q", "awsRegion": "us-east-1",
			// The clock of the test starts at midnight UTC, 2000-01-01.
			"attributes": map[string]any{
				"ApproximateReceiveCount": "2", "SentTimestamp": "946684800000", "SenderId": "local", "ApproximateFirstReceiveTimestamp": "946684800000",
			},
		}, record)
	})
}

// It does not look at the queue when there is nothing to see: each message is brought
// when it comes, or when it is visible, and not a moment later.
func TestFeed_Wakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.q.Delay = 5 * time.Second
		stop := s.start(t)
		elapse(time.Hour)
		s.send(t, "late")
		elapse(5*time.Second - time.Nanosecond)
		require.Empty(t, s.function.heard())
		elapse(time.Nanosecond)
		require.Equal(t, []string{"late/1"}, s.function.heard())
		s.q.Delay = 0
		s.send(t, "now")
		synctest.Wait()
		require.Equal(t, []string{"late/1", "now/1"}, s.function.heard())
		stop()
	})
}

func TestFeed_BatchesAndConcurrency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.source.BatchSize, s.source.MaxConcurrency = 2, 3
		s.function.handle = func([]events.SQSMessage) (string, string, error) {
			time.Sleep(10 * time.Second)
			return "", "", nil
		}
		for i := range 9 {
			s.send(t, fmt.Sprint(i))
		}
		stop := s.start(t)
		elapse(time.Second)
		require.Len(t, s.function.heard(), 3)
		elapse(time.Minute)
		stop()
		require.ElementsMatch(t, []string{"0/1 1/1", "2/1 3/1", "4/1 5/1", "6/1 7/1", "8/1"}, s.function.heard())
		require.Equal(t, 3, s.function.most)
	})
}

func TestFeed_Window(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.source.BatchingWindow, s.source.BatchSize = 5*time.Second, 3
		stop := s.start(t)
		s.send(t, "a")
		elapse(4 * time.Second)
		s.send(t, "b")
		elapse(999 * time.Millisecond)
		require.Empty(t, s.function.heard(), "the window is open")
		elapse(time.Millisecond)
		require.Equal(t, []string{"a/1 b/1"}, s.function.heard())
		s.send(t, "c", "d", "e", "f")
		synctest.Wait()
		require.Equal(t, []string{"a/1 b/1", "c/1 d/1 e/1"}, s.function.heard(), "a full batch does not wait")
		stop()
		require.Equal(t, []string{"f"}, left(t, s.q), "what was not delivered stays")
	})
}

// A function that cannot be run uses up no receives, unless that lasts too long.
func TestFeed_Throttled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		runs := time.Now().Add(40 * time.Second)
		s.function.handle = func([]events.SQSMessage) (string, string, error) {
			if time.Now().Before(runs) {
				return "", "", errors.New("too many requests")
			}
			return "", "", nil
		}
		s.send(t, "a")
		stop := s.start(t)
		elapse(time.Minute)
		stop()
		calls := s.function.heard()
		require.Len(t, calls, 41)
		require.Equal(t, []string{"a/1", "a/2"}, []string{calls[29], calls[30]})
		require.Empty(t, left(t, s.q))
		require.Empty(t, left(t, s.dead))
	})
}

// A function that takes longer than a message is hidden does not delete what somebody
// else has by then.
func TestFeed_TooSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.function.handle = func([]events.SQSMessage) (string, string, error) {
			time.Sleep(45 * time.Second)
			return "", "", nil
		}
		s.send(t, "a")
		stop := s.start(t)
		elapse(10 * time.Minute)
		stop()
		require.Equal(t, []string{"a/1", "a/2", "a/3"}, s.function.heard())
		require.Equal(t, []string{"a"}, left(t, s.dead))
	})
}
