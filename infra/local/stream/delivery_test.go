package stream_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/stream"
)

// answer makes a batchItemFailures answer.
func answer(identifiers ...string) string {
	type failure struct {
		Identifier string `json:"itemIdentifier"`
	}
	failures := []failure{}
	for _, id := range identifiers {
		failures = append(failures, failure{id})
	}
	data, _ := json.Marshal(map[string]any{"batchItemFailures": failures})
	return string(data)
}

// handler is what a function does with a call.
type handler = func(call int, batch []events.DynamoDBEventRecord) (result, functionError string, err error)

// poison fails, as an error of the whole batch, when the record is in it.
func poison(sequence string) handler {
	return func(_ int, batch []events.DynamoDBEventRecord) (string, string, error) {
		for _, r := range batch {
			if r.Change.SequenceNumber == sequence {
				return `{"errorMessage":"poison"}`, "Unhandled", nil
			}
		}
		return "null", "", nil
	}
}

// reports names the record as failed when it is in the batch.
func reports(sequence string) handler {
	return func(_ int, batch []events.DynamoDBEventRecord) (string, string, error) {
		for _, r := range batch {
			if r.Change.SequenceNumber == sequence {
				return answer(sequence), "", nil
			}
		}
		return answer(), "", nil
	}
}

// first gives these results to the first calls, and success to later ones.
func first(results ...string) handler {
	return func(call int, _ []events.DynamoDBEventRecord) (string, string, error) {
		if call <= len(results) {
			return results[call-1], "", nil
		}
		return "null", "", nil
	}
}

func TestDelivery(t *testing.T) {
	t.Parallel()
	report := func(m *stream.Mapping) { m.ReportBatchItemFailures = true }
	const all = "1 2 3 4"
	tests := map[string]struct {
		mapping func(*stream.Mapping)
		handle  handler
		batches []string
		letters []string
	}{
		"success": {batches: []string{all}},
		"batch size": {
			mapping: func(m *stream.Mapping) { m.BatchSize = 3 },
			batches: []string{"1 2 3", "4"}},
		"no retry": {
			mapping: func(m *stream.Mapping) { m.MaxRetries = 0; m.BatchSize = 2 }, handle: poison("2"),
			batches: []string{"1 2", "3 4"}, letters: []string{"RetryAttemptsExhausted 1-2 (2) after 1"}},
		"retries, then the next batch": {
			mapping: func(m *stream.Mapping) { m.MaxRetries = 2; m.BatchSize = 2 }, handle: poison("2"),
			batches: []string{"1 2", "1 2", "1 2", "3 4"}, letters: []string{"RetryAttemptsExhausted 1-2 (2) after 3"}},
		"bisecting uses no retries": {
			mapping: func(m *stream.Mapping) { m.MaxRetries = 1; m.BisectOnError = true }, handle: poison("3"),
			batches: []string{all, "1 2", "3 4", "3", "3", "4"}, letters: []string{"RetryAttemptsExhausted 3-3 (1) after 4"}},

		"partial failure":              {mapping: report, handle: first(answer("3")), batches: []string{all, "3 4"}},
		"partial failure of the first": {mapping: report, handle: first(answer("1")), batches: []string{all, all}},
		"the lowest counts":            {mapping: report, handle: first(answer("4", "2", "3")), batches: []string{all, "2 3 4"}},
		"partial failures without end of retries": {mapping: report, handle: first(answer("2"), answer("2"), answer("3"), answer("4")),
			batches: []string{all, "2 3 4", "2 3 4", "3 4", "4"}},
		"what is left is given up": {
			mapping: func(m *stream.Mapping) { report(m); m.MaxRetries = 1 }, handle: reports("3"),
			batches: []string{all, "3 4"}, letters: []string{"RetryAttemptsExhausted 3-4 (2) after 2"}},
		"bisecting at the reported record uses no retry": {
			mapping: func(m *stream.Mapping) { report(m); m.BisectOnError = true; m.MaxRetries = 1 }, handle: reports("3"),
			batches: []string{all, "3 4", "3 4"}, letters: []string{"RetryAttemptsExhausted 3-4 (2) after 3"}},
		"an error bisects also with reporting": {
			mapping: func(m *stream.Mapping) { report(m); m.BisectOnError = true; m.MaxRetries = 0 }, handle: poison("4"),
			batches: []string{all, "1 2", "3 4", "3", "4"}, letters: []string{"RetryAttemptsExhausted 4-4 (1) after 3"}},
		"a report of everything bisects": {
			mapping: func(m *stream.Mapping) { report(m); m.BisectOnError = true }, handle: first(answer("nobody")),
			batches: []string{all, "1 2", "3 4"}},

		"an unknown identifier":           {mapping: report, handle: first(answer("3", "77")), batches: []string{all, all}},
		"an event id":                     {mapping: report, handle: first(answer("event-3")), batches: []string{all, all}},
		"an empty identifier":             {mapping: report, handle: first(answer("")), batches: []string{all, all}},
		"a null identifier":               {mapping: report, handle: first(`{"batchItemFailures":[{"itemIdentifier":null}]}`), batches: []string{all, all}},
		"a misspelt identifier":           {mapping: report, handle: first(`{"batchItemFailures":[{"ItemIdentifier":"3"}]}`), batches: []string{all, all}},
		"a number as identifier":          {mapping: report, handle: first(`{"batchItemFailures":[{"itemIdentifier":3}]}`), batches: []string{all, all}},
		"a null failure":                  {mapping: report, handle: first(`{"batchItemFailures":[null]}`), batches: []string{all, all}},
		"failures that are no list":       {mapping: report, handle: first(`{"batchItemFailures":"3"}`), batches: []string{all, all}},
		"an answer that is no object":     {mapping: report, handle: first(`"done"`), batches: []string{all, all}},
		"an answer that is no JSON":       {mapping: report, handle: first(`oops`), batches: []string{all, all}},
		"an empty list":                   {mapping: report, handle: first(answer()), batches: []string{all}},
		"a null list":                     {mapping: report, handle: first(`{"batchItemFailures":null}`), batches: []string{all}},
		"an empty object":                 {mapping: report, handle: first(`{}`), batches: []string{all}},
		"an empty answer":                 {mapping: report, handle: first(``), batches: []string{all}},
		"another case of the name":        {mapping: report, handle: first(`{"BatchItemFailures":[{"itemIdentifier":"3"}]}`), batches: []string{all}},
		"a report that was not asked for": {handle: first(answer("3")), batches: []string{all}},

		"throttling uses no retries": {
			mapping: func(m *stream.Mapping) { m.MaxRetries = 0 },
			handle: func(call int, _ []events.DynamoDBEventRecord) (string, string, error) {
				if call < 4 {
					return "", "", errors.New("too many invocations")
				}
				return "null", "", nil
			},
			batches: []string{all, all, all, all}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScene()
				s.function.handle = test.handle
				if test.mapping != nil {
					test.mapping(&s.mapping)
				}
				s.streams.put("shard", time.Now(), "a", "b", "c", "d")
				s.run(t, time.Minute)
				require.Equal(t, test.batches, s.function.batches())
				if test.letters == nil {
					test.letters = []string{}
				}
				require.Equal(t, test.letters, s.letters.texts())
			})
		})
	}
}

func TestRetriesBackOffAndDoNotEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.function.handle = poison("1")
		s.streams.put("shard", time.Now(), "a")
		s.run(t, 10*time.Minute)
		calls := s.function.calls
		require.Greater(t, len(calls), 50, "retries go on")
		require.Less(t, len(calls), 100, "retries back off")
		require.Less(t, calls[1].at.Sub(calls[0].at), time.Second, "the first retry comes soon")
		require.Empty(t, s.letters.texts())
	})
}

func TestOldRecordsAreGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.mapping.MaxRecordAge = time.Minute
		start := time.Now()
		s.streams.put("shard", start.Add(-3*time.Minute), "a", "b")
		s.streams.put("shard", start, "c")
		s.run(t, 10*time.Second)
		require.Equal(t, []string{"3"}, s.function.batches())
		require.Equal(t, []string{"RecordAgeExceeded 1-2 (2) after 0"}, s.letters.texts())
		require.NotContains(t, string(s.letters.stored[0].raw), "responseContext", "there was no response")
	})
}

func TestRecordsGetOldWhileTheFunctionFails(t *testing.T) {
	t.Parallel()
	for name, handle := range map[string]handler{
		"failing": poison("1"),
		"throttled": func(_ int, batch []events.DynamoDBEventRecord) (string, string, error) {
			if sequences(batch) == "1" {
				return "", "", errors.New("too many invocations")
			}
			return "null", "", nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScene()
				s.mapping.MaxRecordAge = time.Minute
				s.mapping.BatchSize = 1
				s.function.handle = handle
				s.streams.put("shard", time.Now(), "a")
				stop := s.start(t)
				elapse(50 * time.Second)
				s.streams.put("shard", time.Now(), "b")
				elapse(5 * time.Second)
				require.Empty(t, s.letters.texts(), "not yet")
				elapse(20 * time.Second)
				stop()
				require.Len(t, s.letters.stored, 1)
				require.Equal(t, "RecordAgeExceeded", s.letters.stored[0].RequestContext.Condition)
				batches := s.function.batches()
				require.Equal(t, "2", batches[len(batches)-1], "the stream goes on")
			})
		})
	}
}

func TestDeadLetterRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.mapping.MaxRetries = 1
		s.function.handle = poison("2")
		// The clock of the test starts at midnight UTC, 2000-01-01.
		s.streams.put("shard", time.Now(), "a")
		s.streams.put("shard", time.Now().Add(time.Second), "b")
		s.run(t, 10*time.Second)
		s.streams.put("shard", time.Now(), "c")
		s.function.handle = poison("3")
		s.run(t, 10*time.Second)

		require.Len(t, s.letters.stored, 2, "the second run, without stored positions, begins anew")
		var got map[string]any
		require.NoError(t, json.Unmarshal(s.letters.stored[0].raw, &got))
		request := got["requestContext"].(map[string]any)
		require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, request["requestId"])
		delete(request, "requestId")
		require.Regexp(t, `^2000-01-01T00:00:0\d\.\d{3}Z$`, got["timestamp"])
		delete(got, "timestamp")
		want := `{
			"requestContext": {
				"functionArn": "arn:aws:lambda:us-east-1:000000000000:function:fanout",
				"condition": "RetryAttemptsExhausted",
				"approximateInvokeCount": 2
			},
			"responseContext": {"statusCode": 200, "executedVersion": "$LATEST", "functionError": "Unhandled"},
			"version": "1.0",
			"DDBStreamBatchInfo": {
				"shardId": "shard",
				"startSequenceNumber": "1",
				"endSequenceNumber": "2",
				"approximateArrivalOfFirstRecord": "2000-01-01T00:00:00Z",
				"approximateArrivalOfLastRecord": "2000-01-01T00:00:01Z",
				"batchSize": 2,
				"streamArn": "` + streamARN + `"
			}
		}`
		rest, err := json.Marshal(got)
		require.NoError(t, err)
		require.JSONEq(t, want, string(rest))
	})
}

func TestNothingIsGivenUpWithoutItsDeadLetter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.mapping.MaxRetries, s.mapping.BatchSize = 0, 1
		s.function.handle = poison("1")
		s.config.CheckpointDir = t.TempDir()
		s.letters.fail = 1000
		s.streams.put("shard", time.Now(), "a", "b")
		s.run(t, time.Minute)
		require.Equal(t, []string{"1"}, s.function.batches(), "neither passed over nor invoked again")

		s.letters.fail = 2
		s.run(t, time.Minute)
		require.Equal(t, []string{"1", "1", "2"}, s.function.batches())
		require.Equal(t, []string{"RetryAttemptsExhausted 1-1 (1) after 1"}, s.letters.texts())
	})
}

func TestNoDeadLetterDestination(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.mapping.MaxRetries, s.mapping.BatchSize = 0, 1
		s.function.handle = poison("1")
		s.config.DeadLetter = nil
		var log bytes.Buffer
		s.config.Log = slog.New(slog.NewTextHandler(&log, nil))
		s.streams.put("shard", time.Now(), "a", "b")
		s.run(t, time.Minute)
		require.Equal(t, []string{"1", "2"}, s.function.batches())
		require.Contains(t, log.String(), "records are given up")
	})
}

func TestBatchingWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.mapping.BatchingWindow = 10 * time.Second
		s.mapping.BatchSize = 4
		s.config.PollInterval = 100 * time.Millisecond
		stop := s.start(t)
		start := time.Now()
		s.streams.put("shard", start, "a")
		elapse(5 * time.Second)
		s.streams.put("shard", time.Now(), "b")
		elapse(4 * time.Second)
		require.Empty(t, s.function.batches(), "the window is open")
		elapse(2 * time.Second)
		require.Equal(t, []string{"1 2"}, s.function.batches())

		s.streams.put("shard", time.Now(), "a", "b", "c", "d", "e")
		elapse(time.Second)
		require.Equal(t, []string{"1 2", "3 4 5 6"}, s.function.batches(), "a full batch does not wait")
		elapse(10 * time.Second)
		require.Equal(t, []string{"1 2", "3 4 5 6", "7"}, s.function.batches())
		stop()
	})
}

func TestPayloadLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		for i := range 7 {
			s.streams.putItem("shard", time.Now(),
				map[string]types.AttributeValue{"id": &types.AttributeValueMemberN{Value: fmt.Sprint(i)}},
				map[string]types.AttributeValue{"text": &types.AttributeValueMemberS{Value: strings.Repeat("x", 1<<20)}})
		}
		s.run(t, time.Minute)
		require.Equal(t, []string{"1 2 3 4 5", "6 7"}, s.function.batches())
		for _, c := range s.function.calls {
			require.LessOrEqual(t, len(c.payload), 6<<20)
		}
	})
}

func TestOneBatchAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.mapping.BatchSize = 2
		running := 0
		s.function.handle = func(int, []events.DynamoDBEventRecord) (string, string, error) {
			// Unsynchronised on purpose: two at a time would be a data race.
			running++
			defer func() { running-- }()
			time.Sleep(3500 * time.Millisecond)
			if running > 1 {
				return "", "Unhandled", nil
			}
			return "null", "", nil
		}
		stop := s.start(t)
		s.streams.put("shard", time.Now(), "a", "b", "c")
		elapse(2 * time.Second)
		s.streams.put("shard", time.Now(), "d", "e")
		elapse(time.Minute)
		stop()
		require.Equal(t, []string{"1 2", "3 4", "5"}, s.function.batches())
	})
}

func TestParallelizationKeepsTheOrderOfAKey(t *testing.T) {
	t.Parallel()
	for name, schema := range map[string]struct {
		keySchema []types.KeySchemaElement
		sortKey   bool
		parallel  bool
	}{
		"one key":                  {parallel: true},
		"a known partition key":    {sortKey: true, parallel: true, keySchema: []types.KeySchemaElement{key("at", "RANGE"), key("id", "HASH")}},
		"an unknown partition key": {sortKey: true, parallel: false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScene()
				s.streams.keySchema = schema.keySchema
				s.mapping.ParallelizationFactor, s.mapping.BatchSize = 10, 1
				s.config.CheckpointDir = t.TempDir()
				// The first record of "bad" fails until it is repaired.
				repaired := false
				s.function.handle = func(_ int, batch []events.DynamoDBEventRecord) (string, string, error) {
					if batch[0].Change.SequenceNumber == "1" && !repaired {
						return "", "Unhandled", nil
					}
					return "null", "", nil
				}
				for i, id := range []string{"bad", "good", "fine", "bad", "good", "fine", "bad"} {
					keys := map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: id}}
					if schema.sortKey {
						keys["at"] = &types.AttributeValueMemberN{Value: fmt.Sprint(i)}
					}
					s.streams.putItem("shard", time.Now(), keys, nil)
				}
				s.run(t, 20*time.Second)
				seen := map[string]bool{}
				for _, b := range s.function.batches() {
					seen[b] = true
				}
				require.True(t, seen["1"])
				require.Equal(t, schema.parallel, seen["2"] && seen["5"], "other keys do not wait: %v", seen)
				require.False(t, seen["4"] || seen["7"], "the same key waits")

				// The position is before the record that was not done.
				repaired = true
				s.function.calls = nil
				s.run(t, 20*time.Second)
				require.ElementsMatch(t, []string{"1", "2", "3", "4", "5", "6", "7"}, s.function.batches())
				order := strings.Join(s.function.batches(), " ")
				require.Regexp(t, `1.*4.*7`, order)
				require.Regexp(t, `2.*5`, order)

				s.function.calls = nil
				s.run(t, 20*time.Second)
				require.Empty(t, s.function.batches(), "everything is done")
			})
		})
	}
}

func key(name, role string) types.KeySchemaElement {
	return types.KeySchemaElement{AttributeName: &name, KeyType: types.KeyType(role)}
}
