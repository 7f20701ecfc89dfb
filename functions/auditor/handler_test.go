package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/metric/metrictest"
	"github.com/inorder-im/inorder/shared/route/routetest"
	"github.com/inorder-im/inorder/shared/store/operate"
)

// fakeStore notes what it is asked for, and returns one report.
type fakeStore struct {
	calls  []string
	report operate.AuditReport
	err    error
}

func (f *fakeStore) AuditSample(_ context.Context, messages int) (operate.AuditReport, error) {
	f.calls = append(f.calls, fmt.Sprintf("sample of %d", messages))
	return f.report, f.err
}

func (f *fakeStore) AuditConversation(_ context.Context, id chat.ConversationID) (operate.AuditReport, error) {
	f.calls = append(f.calls, "audit of "+string(id))
	return f.report, f.err
}

func (f *fakeStore) AuditAll(_ context.Context, after operate.AuditCursor) (operate.AuditReport, error) {
	f.calls = append(f.calls, fmt.Sprintf("all after %q %q", after.ConversationID, after.UserID))
	return f.report, f.err
}

// invoke returns the answer to an event and the log's lines.
func invoke(t *testing.T, f *fakeStore, event string) (operate.AuditReport, []map[string]any, error) {
	t.Helper()
	var log bytes.Buffer
	ctx := lambdacontext.NewContext(t.Context(), &lambdacontext.LambdaContext{AwsRequestID: "req-1"})
	h := handler{store: f, messages: 1000, log: slog.New(slog.NewJSONHandler(&log, nil))}
	r, err := h.handle(ctx, json.RawMessage(event))
	var lines []map[string]any
	for line := range strings.Lines(log.String()) {
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		delete(m, "time")
		delete(m, "ms")
		lines = append(lines, m)
	}
	return r, lines, err
}

func TestAuditor_WhatItIsAskedFor(t *testing.T) {
	t.Parallel()
	sample := routetest.Sample[json.RawMessage](t, "auditor")
	for event, want := range map[string][]string{
		string(sample): {"sample of 1000"},
		"":             {"sample of 1000"},
		"null":         {"sample of 1000"},
		"{}":           {"sample of 1000"},
		`{"source": "aws.scheduler", "detail": "{}"}`: {"sample of 1000"},
		`{"messages": 50}`:                            {"sample of 50"},
		`{"all": true}`:                               {`all after "" ""`},
		`{"all": true, "after": {"conversationId": "group:1", "userId": "u"}}`: {`all after "group:1" "u"`},
		`{"conversationId": "group:1"}`:                                        {"audit of group:1"},
	} {
		f := &fakeStore{}
		_, lines, err := invoke(t, f, event)
		require.NoError(t, err, event)
		require.Equal(t, want, f.calls, event)
		require.Len(t, lines, 1)
		require.Equal(t, map[string]any{
			"level": "INFO", "msg": "audit", "requestId": "req-1", "conversations": 0.0, "messages": 0.0, "lines": 0.0,
			"violations": 0.0, "finished": true,
		}, lines[0])
	}
}

func TestAuditor_Refuses(t *testing.T) {
	t.Parallel()
	for event, want := range map[string]struct {
		code  chat.Code
		field string
	}{
		`[]`:                                            {chat.CodeBadRequest, ""},
		`{"conversation": "group:1"}`:                   {chat.CodeBadRequest, ""},
		`{"conversationId": "1"}`:                       {chat.CodeBadRequest, "conversationId"},
		`{"messages": -1}`:                              {chat.CodeBadRequest, "messages"},
		`{"messages": "1"}`:                             {chat.CodeBadRequest, ""},
		`{"messages": 1, "all": true}`:                  {chat.CodeBadRequest, ""},
		`{"conversationId": "group:1", "all": true}`:    {chat.CodeBadRequest, ""},
		`{"conversationId": "group:1", "messages": 5}`:  {chat.CodeBadRequest, ""},
		`{"after": {}}`:                                 {chat.CodeBadRequest, "after"},
		`{"conversationId": "group:1", "repair": true}`: {chat.CodeBadRequest, ""},
	} {
		f := &fakeStore{}
		_, lines, err := invoke(t, f, event)
		refused := &chat.Error{}
		require.ErrorAs(t, err, &refused, event)
		require.Equal(t, want.code, refused.Code, event)
		require.Equal(t, want.field, refused.Field, event)
		require.Empty(t, f.calls, event)
		require.Equal(t, "WARN", lines[0]["level"])
	}
}

func TestAuditor_Reports(t *testing.T) {
	t.Parallel()
	violation := operate.Violation{
		ConversationID: "group:1", Kind: operate.ViolationHole, Seq: 4, ToSeq: 5, Expected: "2 messages", Found: "nothing", Remedy: "restore them",
	}
	f := &fakeStore{report: operate.AuditReport{
		Conversations: 2, Messages: 30, Lines: 4, Violations: []operate.Violation{violation},
		Counts: map[operate.ViolationKind]int{operate.ViolationHole: 1, operate.ViolationHeadBehind: 2}, Next: &operate.AuditCursor{ConversationID: "group:1"},
	}}
	r, lines, err := invoke(t, f, `{"all": true}`)
	require.NoError(t, err, "violations are no failure of the audit: it would be repeated")
	answer, err := json.Marshal(r)
	require.NoError(t, err)
	require.JSONEq(t, `{"conversations": 2, "messages": 30, "lines": 4, "counts": {"hole": 1, "headBehind": 2},
		"violations": [{"conversationId": "group:1", "kind": "hole", "seq": 4, "toSeq": 5, "expected": "2 messages", "found": "nothing", "remedy": "restore them"}],
		"next": {"conversationId": "group:1"}}`, string(answer))
	require.Equal(t, []map[string]any{
		{
			"level": "ERROR", "msg": "violation", "requestId": "req-1", "conversationId": "group:1", "kind": "hole", "seq": 4.0, "toSeq": 5.0,
			"userId": "", "expected": "2 messages", "found": "nothing", "remedy": "restore them",
			"InvariantHole": 1.0,
		}, {
			"level": "ERROR", "msg": "audit", "requestId": "req-1", "conversations": 2.0, "messages": 30.0, "lines": 4.0,
			"violations": 3.0, "kinds": map[string]any{"hole": 1.0, "headBehind": 2.0}, "finished": false,
		},
	}, lines)
}

// Each violation counts in the metric of the guarantee that it breaks.
func TestAuditor_Counts(t *testing.T) {
	t.Parallel()
	want := map[metric.Name][]operate.ViolationKind{
		metric.InvariantHead: {
			operate.ViolationHeadMissing, operate.ViolationHeadBehind, operate.ViolationMemberCountWrong, operate.ViolationRosterWrong, operate.ViolationLineMissing, operate.ViolationLineFormer, operate.ViolationLineOrphaned,
			operate.ViolationLargeNotListed, operate.ViolationLargeStale, operate.ViolationSyncHeadWrong,
		},
		metric.InvariantHole:        {operate.ViolationHeadAhead, operate.ViolationHole},
		metric.InvariantIdempotency: {operate.ViolationDuplicateMessage, operate.ViolationDuplicateKey, operate.ViolationRecordMissing, operate.ViolationRecordMismatch},
		metric.InvariantPosition:    {operate.ViolationPositionAhead},
		metric.InvariantRevision:    {operate.ViolationEventTarget, operate.ViolationNotBlank, operate.ViolationNotErased},
		metric.InvariantItem:        {operate.ViolationItemDamaged},
	}
	f := &fakeStore{}
	for _, kinds := range want {
		for _, kind := range kinds {
			f.report.Violations = append(f.report.Violations, operate.Violation{ConversationID: "group:1", Kind: kind})
		}
	}
	var log bytes.Buffer
	h := handler{store: f, messages: 1, log: slog.New(metric.NewHandler(&log, metric.Options{Stack: "shop"}))}
	_, err := h.handle(t.Context(), nil)
	require.NoError(t, err)
	got := map[metric.Name]int{}
	for line := range bytes.Lines(log.Bytes()) {
		published, err := metrictest.Published(line)
		require.NoError(t, err)
		for name, values := range published {
			require.Equal(t, []float64{1}, values)
			got[name]++
		}
	}
	for name, kinds := range want {
		require.Equal(t, len(kinds), got[name], name)
	}
	require.Len(t, got, len(want))
}

func TestAuditor_Fails(t *testing.T) {
	t.Parallel()
	f := &fakeStore{err: errors.New("no table")}
	_, lines, err := invoke(t, f, `{"conversationId": "group:1"}`)
	require.ErrorIs(t, err, f.err)
	require.Equal(t, []string{"audit of group:1"}, f.calls)
	require.Equal(t, "ERROR", lines[0]["level"])
	require.Equal(t, "no table", lines[0]["err"])
}

// What could not be finished is named in the line, since nobody reads a schedule's report.
func TestAuditor_SaysWhatItHasNotFinished(t *testing.T) {
	t.Parallel()
	f := &fakeStore{}
	for i := range 11 {
		f.report.Unfinished = append(f.report.Unfinished, chat.ConversationID(fmt.Sprint("group:", i)))
	}
	_, lines, err := invoke(t, f, `{}`)
	require.NoError(t, err)
	require.Equal(t, []any{"WARN", false}, []any{lines[0]["level"], lines[0]["finished"]})
	require.Len(t, lines[0]["unfinished"], 10)
}
