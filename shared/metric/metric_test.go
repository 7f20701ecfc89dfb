package metric_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/metric/metrictest"
)

// write returns the line of one record, "" if it is not written.
func write(t *testing.T, o metric.Options, level slog.Level, attrs ...slog.Attr) string {
	t.Helper()
	var out bytes.Buffer
	slog.New(metric.NewHandler(&out, o)).LogAttrs(t.Context(), level, "request", attrs...)
	require.LessOrEqual(t, strings.Count(out.String(), "\n"), 1)
	return strings.TrimSuffix(out.String(), "\n")
}

var on = metric.Options{Stack: "shop"}

func TestALineIsLogAndMetric(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	record := slog.NewRecord(time.UnixMilli(1795950400123).UTC(), slog.LevelInfo, "request", 0)
	record.AddAttrs(slog.String("userId", "alice"), metric.Count(metric.Sends, 1), metric.Millis(metric.SendLatency, 12*time.Millisecond),
		metric.Millis(metric.CommitToPush, 40*time.Millisecond, 41*time.Millisecond), metric.Count(metric.SkippedSeqs, 0), slog.Int("surplus", 0))
	require.NoError(t, metric.NewHandler(&out, on).Handle(t.Context(), record))
	require.Equal(t, `{"time":"2026-11-29T11:06:40.123Z","level":"INFO","msg":"request","userId":"alice",`+
		`"Sends":1,"SendLatency":12,"CommitToPush":[40,41],"surplus":0,"Stack":"shop",`+
		`"_aws":{"Timestamp":1795950400123,"CloudWatchMetrics":[{"Namespace":"Inorder","Dimensions":[["Stack"]],`+
		`"Metrics":[{"Name":"Sends","Unit":"Count"},{"Name":"SendLatency","Unit":"Milliseconds"},{"Name":"CommitToPush","Unit":"Milliseconds"}]}]}}`+"\n",
		out.String())
	published, err := metrictest.Published(out.Bytes())
	require.NoError(t, err)
	require.Equal(t, map[metric.Name][]float64{metric.Sends: {1}, metric.SendLatency: {12}, metric.CommitToPush: {40, 41}}, published)
}

func TestMetricsOffLeavesTheNumbers(t *testing.T) {
	t.Parallel()
	line := write(t, metric.Options{}, slog.LevelInfo, metric.Count(metric.Sends, 1), metric.Millis(metric.CommitToPush, 1e6, 2e6))
	require.Contains(t, line, `"Sends":1,"CommitToPush":[1,2]}`)
	published, err := metrictest.Published([]byte(line))
	require.NoError(t, err)
	require.Empty(t, published)
}

func TestALineWithoutMetricsHasNoMetadata(t *testing.T) {
	t.Parallel()
	line := write(t, on, slog.LevelInfo, slog.String("Sends", "a field that only has the name"), metric.Count(metric.Pushes, 0))
	require.NotContains(t, line, "_aws")
	require.NotContains(t, line, `"Stack"`)
	require.NotContains(t, line, "Pushes")
}

func TestLevels(t *testing.T) {
	t.Parallel()
	sends := metric.Count(metric.Sends, 1)
	for name, tc := range map[string]struct {
		options metric.Options
		level   slog.Level
		attr    slog.Attr
		written bool
	}{
		"below":                         {metric.Options{Level: slog.LevelWarn}, slog.LevelInfo, slog.Int("n", 1), false},
		"at":                            {metric.Options{Level: slog.LevelWarn}, slog.LevelWarn, slog.Int("n", 1), true},
		"below, with numbers":           {metric.Options{Level: slog.LevelWarn}, slog.LevelInfo, sends, false},
		"below, with metrics published": {metric.Options{Level: slog.LevelWarn, Stack: "shop"}, slog.LevelInfo, sends, true},
		"below, none published in it":   {metric.Options{Level: slog.LevelWarn, Stack: "shop"}, slog.LevelInfo, slog.Int("n", 1), false},
		"debug":                         {metric.Options{Level: slog.LevelDebug}, slog.LevelDebug, slog.Int("n", 1), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.written, write(t, tc.options, tc.level, tc.attr) != "")
		})
	}
}

func TestLoggersMadeOfIt(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(metric.NewHandler(&out, metric.Options{Level: slog.LevelError, Stack: "shop"})).With("requestId", "r").WithGroup("")
	log.Info("not this")
	log.LogAttrs(t.Context(), slog.LevelInfo, "this", metric.Count(metric.Sends, 1))
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
	require.Contains(t, out.String(), `"requestId":"r"`)
	published, err := metrictest.Published(out.Bytes())
	require.NoError(t, err)
	require.Len(t, published, 1)
}

// What an attacker or a long batch can do to a line: nothing.
func TestBounds(t *testing.T) {
	t.Parallel()
	many := make([]time.Duration, 300)
	many[0] = -time.Hour // a clock that is behind
	ctx, notes := metric.Begin(t.Context())
	for range 3 {
		metric.Note(ctx, metric.Millis(metric.CommitToPush, many...), metric.Count(metric.Pushes, 7), slog.String("userId", "\"\n\x00"+strings.Repeat("u", 100)))
	}
	for _, name := range metric.Names() {
		metric.Note(ctx, metric.Count(name, 1))
	}
	line := write(t, on, slog.LevelInfo, notes.Attrs()...)
	published, err := metrictest.Published([]byte(line))
	require.NoError(t, err)
	require.Len(t, published, len(metric.Names()))
	require.Len(t, published[metric.CommitToPush], 100)
	require.Zero(t, published[metric.CommitToPush][0])
	require.Equal(t, []float64{22}, published[metric.Pushes])
}

func TestNamesAreAllDifferent(t *testing.T) {
	t.Parallel()
	seen := map[metric.Name]bool{}
	for _, name := range metric.Names() {
		require.False(t, seen[name], name)
		seen[name] = true
	}
}

func TestNotes(t *testing.T) {
	t.Parallel()

	t.Run("without a line to stand in they go nowhere", func(t *testing.T) {
		t.Parallel()
		metric.Note(context.Background(), metric.Count(metric.Sends, 1))
	})

	t.Run("the last of a field counts, metrics add up", func(t *testing.T) {
		t.Parallel()
		ctx, notes := metric.Begin(t.Context())
		metric.Note(ctx, metric.Conversation("group:1"), metric.Seq(1), metric.Count(metric.Pushes, 2))
		metric.Note(ctx, metric.Conversation(""), metric.Seq(2), metric.Count(metric.Pushes, 3), slog.Attr{})
		line := write(t, metric.Options{}, slog.LevelInfo, notes.Attrs()...)
		require.Contains(t, line, `"conversationId":"group:1","seq":2,"Pushes":5}`)
		line = write(t, metric.Options{}, slog.LevelInfo, notes.Metrics()...)
		require.Contains(t, line, `"msg":"request","Pushes":5}`)
	})

	t.Run("from many sides at once", func(t *testing.T) {
		t.Parallel()
		ctx, notes := metric.Begin(t.Context())
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() { metric.Note(ctx, metric.Count(metric.Pushes, 1)) })
		}
		all.Wait()
		require.Contains(t, write(t, metric.Options{}, slog.LevelInfo, notes.Attrs()...), `"Pushes":50}`)
	})
}

func TestEntry(t *testing.T) {
	t.Parallel()
	sent := chat.Sent{ConversationID: "group:1", Seq: 5, MessageID: "01K", ServerTime: 9}
	line := func(attrs []slog.Attr) string { return write(t, metric.Options{}, slog.LevelInfo, attrs...) }
	require.Contains(t, line(metric.Entry(sent, metric.Effort{Attempts: 1})),
		`"msg":"request","conversationId":"group:1","seq":5,"messageId":"01K","TransactionAttempts":1}`)
	sent.Duplicate = true
	require.Contains(t, line(metric.Entry(sent, metric.Effort{})),
		`"msg":"request","conversationId":"group:1","seq":5,"messageId":"01K","IdempotencyHits":1}`)
	require.Contains(t, line(metric.Entry(chat.Sent{}, metric.Effort{Attempts: 9, Conflicts: 6, Throttles: 2})),
		`"msg":"request","throttles":2,"TransactionAttempts":9,"TransactionConflicts":6}`)
	require.Contains(t, line(metric.Entry(chat.Sent{}, metric.Effort{Full: 1})), `"msg":"request","HotRefusals":1}`)
}

func TestSend(t *testing.T) {
	t.Parallel()
	busy := chat.Errorf(chat.CodeBusy, "busy")
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"done":        {nil, `"SendLatency":7,"SendSuccess":1}`},
		"refused":     {chat.Errorf(chat.CodeNotFound, "no"), `"SendLatency":7}`},
		"busy":        {fmt.Errorf("sending: %w", busy), `"SendLatency":7,"SendFailures":1}`},
		"failed":      {errors.New("no table"), `"SendLatency":7,"SendFailures":1}`},
		"out of time": {context.DeadlineExceeded, `"SendLatency":7,"SendFailures":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, write(t, metric.Options{}, slog.LevelInfo, metric.Send(7*time.Millisecond, tc.err)...), `"Sends":1,`+tc.want)
		})
	}
}

func TestOptionsFromEnv(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		env  map[string]string
		want metric.Options
		err  string
	}{
		"nothing":       {nil, metric.Options{}, ""},
		"all":           {map[string]string{"LOG_LEVEL": "debug", "METRICS": "on", "STACK_NAME": "shop"}, metric.Options{Level: slog.LevelDebug, Stack: "shop"}, ""},
		"off":           {map[string]string{"LOG_LEVEL": "error", "METRICS": "off", "STACK_NAME": "shop"}, metric.Options{Level: slog.LevelError}, ""},
		"a wrong level": {map[string]string{"LOG_LEVEL": "loud"}, metric.Options{}, "LOG_LEVEL"},
		"on or off":     {map[string]string{"METRICS": "yes"}, metric.Options{}, "METRICS"},
		"no stack":      {map[string]string{"METRICS": "on"}, metric.Options{}, "STACK_NAME"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, err := metric.OptionsFromEnv(func(name string) string { return tc.env[name] })
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, tc.want, o)
		})
	}
}

// The judge of the other tests has to judge.
func TestPublishedFindsFault(t *testing.T) {
	t.Parallel()
	const good = `{"Sends":1,"Stack":"shop","_aws":{"Timestamp":1795950400123,"CloudWatchMetrics":[{"Namespace":"Inorder","Dimensions":[["Stack"]],"Metrics":[{"Name":"Sends","Unit":"Count"}]}]}}`
	_, err := metrictest.Published([]byte(good))
	require.NoError(t, err)
	for name, change := range map[string][2]string{
		"no object":            {good, `[]`},
		"cut off":              {`]}}`, ``},
		"seconds":              {`1795950400123`, `1795950400`},
		"a text for a time":    {`1795950400123`, `"1795950400123"`},
		"no time":              {`"Timestamp":1795950400123,`, ``},
		"no dimension":         {`[["Stack"]]`, `[]`},
		"another dimension":    {`[["Stack"]]`, `[["Stack"],["Stack","userId"]]`},
		"no member for it":     {`"Stack":"shop",`, ``},
		"a number for it":      {`"Stack":"shop"`, `"Stack":7`},
		"another namespace":    {`"Inorder"`, `"AWS/Lambda"`},
		"no metrics":           {`[{"Name":"Sends","Unit":"Count"}]`, `[]`},
		"an unknown metric":    {`"Name":"Sends"`, `"Name":"Sensd"`},
		"an unknown unit":      {`"Count"`, `"Counts"`},
		"no value":             {`"Sends":1,`, ``},
		"two values":           {`"Sends":1,`, `"Sends":1,"Sends":2,`},
		"a text for a value":   {`"Sends":1,`, `"Sends":"1",`},
		"an empty list":        {`"Sends":1,`, `"Sends":[],`},
		"a list too long":      {`"Sends":1,`, `"Sends":[1` + strings.Repeat(",1", 100) + `],`},
		"an additional member": {`"Namespace"`, `"Color":"red","Namespace"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := metrictest.Published([]byte(strings.Replace(good, change[0], change[1], 1)))
			require.Error(t, err)
		})
	}
}
