package operate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/feature/dynamodb/attributevalue"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/oklog/ulid/v2"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/store"
	"github.com/inorder-im/inorder/shared/store/internal/storetest"
	"github.com/inorder-im/inorder/shared/store/operate"
)

// finding is what a test expects of a violation.
type finding struct {
	kind operate.ViolationKind
	id   chat.ConversationID
	seq  int64
	user string
}

// found returns the violations in an order of their own.
func found(r operate.AuditReport) []finding {
	all := []finding{}
	for _, v := range r.Violations {
		all = append(all, finding{v.Kind, v.ConversationID, v.Seq, v.UserID})
	}
	slices.SortFunc(all, func(a, b finding) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return all
}

func sorted(all ...finding) []finding {
	slices.SortFunc(all, func(a, b finding) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return all
}

// lively fills a store with all that the product does, and returns the ids of a
// single conversation of 12 messages and of a group.
func lively(t *testing.T, s *store.Store) (single, group chat.ConversationID) {
	t.Helper()
	ctx := t.Context()
	for i := range 6 {
		single = send(t, s, "alice", "bob", fmt.Sprintf("a%d", i)).ConversationID
		send(t, s, "bob", "alice", fmt.Sprintf("b%d", i))
	}
	send(t, s, "alice", "alice", "note")
	r := func(user, id string) store.Request {
		return store.Request{UserID: user, DeviceID: "phone", ClientMsgID: id}
	}
	line, _, err := s.CreateGroup(ctx, r("alice", "g"), "All", []string{"bob", "cy"}, chat.VisibleSinceJoin)
	require.NoError(t, err)
	group = line.Head.ConversationID
	say := func(user, id string) store.Committed {
		got, err := s.Append(ctx, chatIn(text(user, id, "hello from "+user), group), "")
		require.NoError(t, err)
		return got
	}
	edited, recalled := say("bob", "g1"), say("cy", "g2")
	target := store.Target{ConversationID: group, Seq: edited.Seq, MessageID: edited.MessageID}
	for v := range int64(2) {
		_, err = s.Edit(ctx, r("bob", fmt.Sprintf("e%d", v)), target, store.Edited{Version: v + 1, Text: "better"}, store.NoWindow)
		require.NoError(t, err)
	}
	target = store.Target{ConversationID: group, Seq: recalled.Seq, MessageID: recalled.MessageID}
	_, err = s.Edit(ctx, r("cy", "e9"), target, store.Edited{Version: 1, Text: "worse"}, store.NoWindow)
	require.NoError(t, err)
	_, err = s.Recall(ctx, r("alice", "r"), target, store.NoWindow)
	require.NoError(t, err)
	_, err = s.RemoveMembers(ctx, r("alice", "rm"), group, []string{"cy"})
	require.NoError(t, err)
	_, err = s.AddMembers(ctx, r("alice", "add"), group, []string{"cy", "dan"})
	require.NoError(t, err)
	_, err = s.Leave(ctx, r("bob", "leave"), group)
	require.NoError(t, err)
	_, err = s.SetTitle(ctx, r("alice", "title"), group, "Some")
	require.NoError(t, err)
	_, err = s.Ack(ctx, "bob", single, store.Watermarks{ReadSeq: 12})
	require.NoError(t, err)
	_, _, err = s.Clear(ctx, "bob", single, 3)
	require.NoError(t, err)
	_, err = s.Publish(ctx, store.Publication{
		Key: "order:1", Title: "Order", Recipients: []string{"alice", "bob"}, ClientMsgID: "p",
		Message: chat.Message{MessageType: chat.TypeSystem, Text: "shipped"},
	})
	require.NoError(t, err)
	_, err = s.Raise(ctx, "alice", []chat.ConversationID{single, group})
	require.NoError(t, err)
	return single, group
}

func TestAudit_AHealthyStore(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	single, group := lively(t, s)
	messages, lines := int64(c.Count(c.Tables.Messages)), int64(c.Count(c.Tables.Members))
	for name, audit := range map[string]func() (operate.AuditReport, error){
		"all": func() (operate.AuditReport, error) {
			return operate.New(s).AuditAll(t.Context(), operate.AuditCursor{})
		},
		"sample": func() (operate.AuditReport, error) { return operate.New(s).AuditSample(t.Context(), 1000) },
	} {
		r, err := audit()
		require.NoError(t, err, name)
		require.Empty(t, r.Violations, name)
		require.Empty(t, r.Counts, name)
		require.Equal(t, messages, r.Messages, "%s: each once", name)
		require.Equal(t, 4, r.Conversations, name)
		require.GreaterOrEqual(t, r.Lines, lines, name)
		require.Nil(t, r.Next)
	}
	for _, id := range []chat.ConversationID{single, group, "system:order:1"} {
		r, err := operate.New(s).AuditConversation(t.Context(), id)
		require.NoError(t, err)
		require.Empty(t, r.Violations)
		require.Equal(t, c.Head(id).LastSeq, r.Messages)
	}
	_, err := operate.New(s).AuditConversation(t.Context(), "group:none")
	requireCode(t, chat.CodeNotFound, err)
}

// Each corruption is found by its name, alone, both in the conversation and among
// all.
func TestAudit_FindsCorruption(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		plant func(c *cloud, single, group chat.ConversationID)
		want  func(single, group chat.ConversationID) []finding
	}{
		"a head behind": {
			func(c *cloud, single, _ chat.ConversationID) {
				c.Set(c.Tables.Conversations, convKey(single), values{"lastSeq": 9})
			},
			func(single, _ chat.ConversationID) []finding {
				return []finding{{operate.ViolationHeadBehind, single, 12, ""}}
			},
		},
		"a head ahead": {
			func(c *cloud, single, _ chat.ConversationID) {
				c.Delete(c.Tables.Messages, entryKey(single, 12))
				c.Delete(c.Tables.Messages, entryKey(single, 11))
			},
			func(single, _ chat.ConversationID) []finding {
				return []finding{{operate.ViolationHeadAhead, single, 11, ""}}
			},
		},
		"a ledger lost": {
			func(c *cloud, single, _ chat.ConversationID) {
				for seq := range int64(12) {
					c.Delete(c.Tables.Messages, entryKey(single, seq+1))
				}
			},
			func(single, _ chat.ConversationID) []finding {
				return []finding{{operate.ViolationHeadAhead, single, 1, ""}}
			},
		},
		"two holes": {
			func(c *cloud, single, _ chat.ConversationID) {
				for _, seq := range []int64{4, 7, 8} {
					c.Delete(c.Tables.Messages, entryKey(single, seq))
				}
			},
			func(single, _ chat.ConversationID) []finding {
				return []finding{{operate.ViolationHole, single, 4, ""}, {operate.ViolationHole, single, 7, ""}}
			},
		},
		"a message twice": {
			func(c *cloud, single, _ chat.ConversationID) { c.CopyMessage(single, 3, 6) },
			func(single, _ chat.ConversationID) []finding {
				return []finding{{operate.ViolationDuplicateMessage, single, 6, "alice"}}
			},
		},
		"a messageId twice, each with a record": {
			func(c *cloud, single, _ chat.ConversationID) {
				id := c.Raw(c.Tables.Messages, entryKey(single, 3))["messageId"].(*types.AttributeValueMemberS).Value
				c.Set(c.Tables.Messages, entryKey(single, 6), values{"messageId": id})
				c.Set(c.Tables.Idempotency, recordKey("bob", "b2"), values{"messageId": id})
			},
			func(single, _ chat.ConversationID) []finding {
				return []finding{{operate.ViolationDuplicateMessage, single, 6, "bob"}}
			},
		},
		"two messages of one key": {
			func(c *cloud, single, _ chat.ConversationID) {
				c.Set(c.Tables.Messages, entryKey(single, 5), values{"clientMsgId": "a1"})
			},
			func(single, _ chat.ConversationID) []finding {
				return []finding{{operate.ViolationDuplicateKey, single, 5, "alice"}}
			},
		},
		"no record": {
			func(c *cloud, _, _ chat.ConversationID) { c.Delete(c.Tables.Idempotency, recordKey("alice", "a1")) },
			func(single, _ chat.ConversationID) []finding {
				return []finding{{operate.ViolationRecordMissing, single, 3, "alice"}}
			},
		},
		"a record of another conversation": {
			func(c *cloud, _, group chat.ConversationID) {
				c.Set(c.Tables.Idempotency, recordKey("alice", "a1"), values{"conversationId": group})
			},
			func(single, _ chat.ConversationID) []finding {
				return []finding{{operate.ViolationRecordMismatch, single, 3, "alice"}}
			},
		},
		"a record of another messageId": {
			func(c *cloud, _, _ chat.ConversationID) {
				c.Set(c.Tables.Idempotency, recordKey("alice", "a1"), values{"messageId": "other"})
			},
			func(single, _ chat.ConversationID) []finding {
				return []finding{{operate.ViolationRecordMismatch, single, 3, "alice"}}
			},
		},
		"read too far": {
			func(c *cloud, single, _ chat.ConversationID) {
				c.Set(c.Tables.Inboxes, lineKey("bob", single), values{"readSeq": 13})
			},
			func(single, _ chat.ConversationID) []finding {
				return []finding{{operate.ViolationPositionAhead, single, 0, "bob"}}
			},
		},
		"left too far": {
			func(c *cloud, _, group chat.ConversationID) {
				c.Set(c.Tables.Inboxes, lineKey("bob", group), values{"leftSeq": 99})
			},
			func(_, group chat.ConversationID) []finding {
				return []finding{{operate.ViolationPositionAhead, group, 0, "bob"}}
			},
		},
		"a wrong count": {
			func(c *cloud, _, group chat.ConversationID) {
				c.Set(c.Tables.Conversations, convKey(group), values{"memberCount": 7})
			},
			func(_, group chat.ConversationID) []finding {
				return []finding{{operate.ViolationMemberCountWrong, group, 0, ""}}
			},
		},
		"a hash of other members": {
			func(c *cloud, _, group chat.ConversationID) {
				c.Set(c.Tables.Conversations, convKey(group), values{"rosterHash": 7})
			},
			func(_, group chat.ConversationID) []finding {
				return []finding{{operate.ViolationRosterWrong, group, 0, ""}}
			},
		},
		"one member in the place of another": {
			func(c *cloud, _, group chat.ConversationID) {
				c.Delete(c.Tables.Members, rosterKey(group, "dan"))
				c.Set(c.Tables.Members, rosterKey(group, "eve"), values{"role": "member", "joinSeq": 1, "joinedSeq": 1})
				c.Set(c.Tables.Inboxes, lineKey("eve", group), values{"joinSeq": 1})
				c.Delete(c.Tables.Inboxes, lineKey("dan", group))
			},
			func(_, group chat.ConversationID) []finding {
				return []finding{{operate.ViolationRosterWrong, group, 0, ""}}
			},
		},
		"a member without a line": {
			func(c *cloud, _, group chat.ConversationID) { c.Delete(c.Tables.Inboxes, lineKey("dan", group)) },
			func(_, group chat.ConversationID) []finding {
				return []finding{{operate.ViolationLineMissing, group, 0, "dan"}}
			},
		},
		"a member who has left": {
			func(c *cloud, _, group chat.ConversationID) {
				c.Set(c.Tables.Inboxes, lineKey("dan", group), values{"leftSeq": 5})
			},
			func(_, group chat.ConversationID) []finding {
				return []finding{{operate.ViolationLineFormer, group, 0, "dan"}}
			},
		},
		"a line without a roster item": {
			func(c *cloud, _, group chat.ConversationID) {
				c.Set(c.Tables.Inboxes, lineKey("bob", group), values{"leftSeq": nil})
			},
			func(_, group chat.ConversationID) []finding {
				return []finding{{operate.ViolationLineOrphaned, group, 0, "bob"}}
			},
		},
		"no head": {
			func(c *cloud, single, _ chat.ConversationID) { c.Delete(c.Tables.Conversations, convKey(single)) },
			func(single, _ chat.ConversationID) []finding {
				return []finding{{operate.ViolationHeadMissing, single, 12, ""}}
			},
		},
		"a recall undone": {
			func(c *cloud, _, group chat.ConversationID) {
				c.Set(c.Tables.Messages, entryKey(group, 3), values{"status": "normal", "text": "back"})
			},
			func(_, group chat.ConversationID) []finding {
				return []finding{{operate.ViolationEventTarget, group, 7, "alice"}}
			},
		},
		"a recalled message with content": {
			func(c *cloud, _, group chat.ConversationID) {
				c.Set(c.Tables.Messages, entryKey(group, 6), values{"text": "back"})
			},
			func(_, group chat.ConversationID) []finding {
				return sorted(finding{operate.ViolationNotBlank, group, 6, "cy"}, finding{operate.ViolationEventTarget, group, 6, "cy"})
			},
		},
		"an edit undone": {
			func(c *cloud, _, group chat.ConversationID) {
				c.Set(c.Tables.Messages, entryKey(group, 2), values{"version": 2})
			},
			func(_, group chat.ConversationID) []finding {
				return []finding{{operate.ViolationEventTarget, group, 5, "bob"}}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			s := c.Store(nil)
			single, group := lively(t, s)
			tc.plant(c, single, group)
			want := tc.want(single, group)
			one, err := operate.New(s).AuditConversation(t.Context(), want[0].id)
			require.NoError(t, err)
			require.Equal(t, want, found(one))
			for _, v := range one.Violations {
				require.NotEmpty(t, v.Expected)
				require.NotEmpty(t, v.Found)
				require.NotEmpty(t, v.Remedy)
			}
			all, err := operate.New(s).AuditAll(t.Context(), operate.AuditCursor{})
			require.NoError(t, err)
			if name == "no head" { // nothing but the lines tells of it
				want = []finding{{operate.ViolationHeadMissing, single, 0, ""}}
			}
			require.Equal(t, want, found(all))
			counted := 0
			for _, n := range all.Counts {
				counted += n
			}
			require.Equal(t, len(want), counted)
		})
	}
}

// What retention has taken, or is about to, is no corruption; what it cannot have
// taken is.
func TestAudit_Retention(t *testing.T) {
	t.Parallel()
	const long = 100 * 24 * time.Hour
	for name, tc := range map[string]struct {
		age     map[int64]time.Duration // since they were sent; the others now
		expires map[int64]time.Duration // from now; the others never
		gone    []int64
		want    []int64 // the seqs at which a hole is
	}{
		"the start is gone":          {gone: []int64{1, 2, 3}},
		"some of the expired are":    {expires: map[int64]time.Duration{1: -time.Hour, 2: -time.Hour, 3: -time.Hour, 4: -time.Hour}, gone: []int64{2, 3}},
		"the last of the expired is": {expires: map[int64]time.Duration{1: -time.Hour, 2: -time.Hour, 3: long, 4: long}, gone: []int64{2}},
		"neighbours by seconds":      {expires: map[int64]time.Duration{1: time.Second, 2: time.Second, 3: long}, gone: []int64{2}},
		"there was no retention before": {
			age:     map[int64]time.Duration{1: 2 * long, 2: 2 * long, 5: long / 2, 6: long / 2},
			expires: map[int64]time.Duration{5: long / 2, 6: long / 2}, gone: []int64{3, 4},
		},
		"there was none, and none has expired": {
			age:     map[int64]time.Duration{1: long / 2, 2: long / 2},
			expires: map[int64]time.Duration{5: long, 6: long}, gone: []int64{3, 4}, want: []int64{3},
		},
		"retention was longer before": {
			age:     map[int64]time.Duration{1: long, 2: long, 5: long / 4, 6: long / 4},
			expires: map[int64]time.Duration{1: long, 2: long, 5: long / 4, 6: long / 4}, gone: []int64{3, 4},
		},
		"it was longer, and what is shorter has not expired": {
			age:     map[int64]time.Duration{1: long / 4, 2: long / 4, 5: long / 8, 6: long / 8},
			expires: map[int64]time.Duration{1: long, 2: long, 5: long / 2, 6: long / 2}, gone: []int64{3, 4}, want: []int64{3},
		},
		"among those that never expire":    {gone: []int64{1, 3}, want: []int64{3}},
		"among those that do not yet":      {expires: map[int64]time.Duration{1: long, 2: long, 3: long, 4: long}, gone: []int64{2, 3}, want: []int64{2}},
		"among those after retention went": {expires: map[int64]time.Duration{1: -time.Hour, 2: long}, gone: []int64{3, 5}, want: []int64{3, 5}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			s := c.Store(nil)
			var id chat.ConversationID
			for i := range 6 {
				id = send(t, s, "alice", "bob", fmt.Sprint(i)).ConversationID
			}
			for seq, age := range tc.age {
				c.Age(id, seq, age)
			}
			for seq, in := range tc.expires {
				c.Set(c.Tables.Messages, entryKey(id, seq), values{"expiresAt": time.Now().Add(in).Unix()})
			}
			for _, seq := range tc.gone {
				c.Delete(c.Tables.Messages, entryKey(id, seq))
				c.Delete(c.Tables.Idempotency, recordKey("alice", fmt.Sprint(seq-1)))
			}
			r, err := operate.New(s).AuditConversation(t.Context(), id)
			require.NoError(t, err)
			var holes []int64
			for _, v := range r.Violations {
				require.Equal(t, operate.ViolationHole, v.Kind)
				holes = append(holes, v.Seq)
			}
			require.Equal(t, tc.want, holes)
		})
	}

	// The end of a ledger, and all of one, by how old the last message is.
	const week = 7 * 24 * time.Hour
	for name, tc := range map[string]struct {
		retention, age time.Duration
		gone           []int64
		want           []finding
	}{
		"all of what ended long ago":        {0, long, []int64{1, 2}, []finding{}},
		"all of what ended now":             {0, time.Minute, []int64{1, 2}, []finding{{operate.ViolationHeadAhead, "", 1, ""}}},
		"all, within the retention":         {week, 6 * 24 * time.Hour, []int64{1, 2}, []finding{{operate.ViolationHeadAhead, "", 1, ""}}},
		"all, after the retention":          {week, 8 * 24 * time.Hour, []int64{1, 2}, []finding{}},
		"the end, older than the retention": {week, 8 * 24 * time.Hour, []int64{2}, []finding{}},
		"the end, within the retention":     {week, 6 * 24 * time.Hour, []int64{2}, []finding{{operate.ViolationHeadAhead, "", 2, ""}}},
		"the end, without retention":        {0, long, []int64{2}, []finding{{operate.ViolationHeadAhead, "", 2, ""}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			// From before there was retention.
			id := send(t, c.Store(nil), "alice", "bob", "1").ConversationID
			send(t, c.Store(nil), "alice", "bob", "2")
			c.Set(c.Tables.Conversations, convKey(id), values{"updatedAt": time.Now().Add(-tc.age).UnixMilli()})
			for _, seq := range tc.gone {
				c.Delete(c.Tables.Messages, entryKey(id, seq))
			}
			for i := range tc.want {
				tc.want[i].id = id
			}
			// What comes before the end may be from when retention was longer.
			for _, expires := range []any{nil, time.Now().Add(long).Unix()} {
				if !slices.Contains(tc.gone, 1) {
					c.Set(c.Tables.Messages, entryKey(id, 1), values{"expiresAt": expires})
				}
				r, err := operate.New(c.Store(nil, store.WithRetention(tc.retention))).AuditConversation(t.Context(), id)
				require.NoError(t, err)
				require.Equal(t, tc.want, found(r))
			}
		})
	}
}

// A Query that does not show what is being committed is no proof of a hole, and a
// stale reading none of anything (D4).
func TestAudit_BelievesOnlySerialisableReadings(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	single, group := lively(t, c.Store(nil))
	for name, hide := range map[string]func(op string) bool{
		"queries show nothing":       func(op string) bool { return op == "Query" },
		"batches show nothing":       func(op string) bool { return op == "BatchGetItem" },
		"nothing but scans and gets": func(op string) bool { return op == "Query" || op == "BatchGetItem" },
	} {
		w := &wire{Edit: func(op string, _, answer []byte) []byte {
			switch {
			case !hide(op):
			case op == "Query":
				return []byte(`{"Count":0,"Items":[],"ScannedCount":0}`)
			default:
				return []byte(`{"Responses":{},"UnprocessedKeys":{}}`)
			}
			return answer
		}}
		s := c.Store(w)
		for _, id := range []chat.ConversationID{single, group} {
			r, err := operate.New(s).AuditConversation(t.Context(), id)
			require.NoError(t, err, name)
			got := found(r)
			// A roster is the one thing that no transaction can read.
			if hide("Query") {
				require.Equal(t, sorted(finding{operate.ViolationMemberCountWrong, id, 0, ""}, finding{operate.ViolationRosterWrong, id, 0, ""}), got, name)
			} else {
				require.Empty(t, got, name)
			}
		}
	}
}

// While the product writes, edits, recalls, and changes rosters, an audit finds
// nothing wrong.
func TestAudit_WhileWriting(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	single, group := lively(t, c.Store(nil))
	ctx, cancel := context.WithCancel(t.Context())
	writing := make(chan error, 3)
	for w := range 3 {
		go func() {
			s := c.Store(nil)
			for i := 0; ctx.Err() == nil; i++ {
				if err := churn(ctx, s, group, w, i); err != nil && ctx.Err() == nil {
					writing <- err
					return
				}
			}
			writing <- nil
		}()
	}
	auditor := operate.New(c.Store(nil))
	for range 4 {
		r, err := auditor.AuditConversation(t.Context(), group)
		require.NoError(t, err)
		require.Empty(t, r.Violations)
		r, err = auditor.AuditAll(t.Context(), operate.AuditCursor{})
		require.NoError(t, err)
		require.Empty(t, r.Violations)
	}
	cancel()
	for range 3 {
		require.NoError(t, <-writing)
	}
	require.Greater(t, c.Head(group).LastSeq+c.Head(single).LastSeq, int64(26), "it was written to")
}

func churn(ctx context.Context, s *store.Store, group chat.ConversationID, w, i int) error {
	id := fmt.Sprintf("w%d-%d", w, i)
	r := func(suffix string) store.Request {
		return store.Request{UserID: "alice", DeviceID: "phone", ClientMsgID: id + suffix}
	}
	sent, err := s.Append(ctx, chatIn(text("alice", id, "x"), group), "")
	if err != nil {
		return err
	}
	target := store.Target{ConversationID: group, Seq: sent.Seq, MessageID: sent.MessageID}
	if _, err = s.Edit(ctx, r("e"), target, store.Edited{Version: 1, Text: "y"}, store.NoWindow); err != nil {
		return err
	}
	if _, err = s.Recall(ctx, r("r"), target, store.NoWindow); err != nil {
		return err
	}
	user := []string{fmt.Sprintf("guest%d", w)}
	if _, err = s.AddMembers(ctx, r("+"), group, user); err != nil {
		return err
	}
	if _, err := s.Append(ctx, text("alice", id+"s", "x"), "bob"); err != nil {
		return err
	}
	_, err = s.RemoveMembers(ctx, r("-"), group, user)
	return err
}

// A sample stays in its budget, and in a large ledger reads another stretch each
// time, so that what is wrong anywhere is found sooner or s.
func TestAudit_ASampleOfALargeLedger(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	b := newBulk(c)
	id := b.conversation(2000)
	b.flush()
	c.Delete(c.Tables.Messages, entryKey(id, 777))
	s := c.Store(nil)
	for tries := 1; ; tries++ {
		r, err := operate.New(s).AuditSample(t.Context(), 300)
		require.NoError(t, err)
		require.LessOrEqual(t, r.Messages, int64(300))
		require.Positive(t, r.Messages)
		if len(r.Violations) > 0 {
			require.Equal(t, []finding{{operate.ViolationHole, id, 777, ""}}, found(r))
			return
		}
		require.Less(t, tries, 2000)
	}
}

// Small samples come to every conversation sooner or s.
func TestAudit_SamplesAreFromEverywhere(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	b := newBulk(c)
	want := map[chat.ConversationID]bool{}
	for range 50 {
		want[b.conversation(1)] = true
	}
	b.flush()
	for i := range len(want) {
		c.Delete(c.Tables.Idempotency, recordKey(fmt.Sprintf("v%d", i+1), "c1"))
	}
	got := map[chat.ConversationID]bool{}
	s := c.Store(nil)
	for tries := 0; len(got) < len(want); tries++ {
		require.Less(t, tries, 200)
		r, err := operate.New(s).AuditSample(t.Context(), 10)
		require.NoError(t, err)
		require.LessOrEqual(t, r.Conversations, 10)
		for _, v := range r.Violations {
			got[v.ConversationID] = true
		}
	}
	require.Equal(t, want, got)
}

// Of a table of a million conversations, too, each can be picked: not only those that
// a Scan of a segment begins with.
func TestAudit_SamplesAreFromEverywhereInALargeTable(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	const all, fixed = 1_000_000, 1 << 16
	first := func(segment, segments int) int { return (segment*all + segments - 1) / segments }
	passedOver := 0 // picks that a division into a fixed number of segments never gives
	w := &wire{Edit: func(op string, request, answer []byte) []byte {
		var scan struct {
			TableName                     string
			Limit, Segment, TotalSegments int
		}
		if op != "Scan" || json.Unmarshal(request, &scan) != nil || scan.TableName != c.Tables.Conversations {
			return answer
		}
		var items []string
		for i := first(scan.Segment, scan.TotalSegments); i < first(scan.Segment+1, scan.TotalSegments) && len(items) < scan.Limit; i++ {
			items = append(items, fmt.Sprintf(`{"conversationId":{"S":"group:%d"}}`, i))
			if i >= first(i*fixed/all, fixed)+scan.Limit {
				passedOver++
			}
		}
		return fmt.Appendf(nil, `{"Count":%d,"ScannedCount":%[1]d,"Items":[%s]}`, len(items), strings.Join(items, ","))
	}}
	_, err := operate.New(c.Store(w)).AuditSample(t.Context(), 100)
	require.NoError(t, err)
	require.Positive(t, passedOver)
}

// All is done in as many invocations as it takes.
func TestAudit_GoesOnWhereTheTimeWasUp(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	b := newBulk(c)
	for range 12 {
		b.conversation(3)
	}
	b.flush()
	s := c.Store(nil)
	var cursor operate.AuditCursor
	conversations, runs := 0, 0
	for {
		// Less than what an audit keeps for its report, so each does the least.
		ctx, cancel := contextFor(t, 4000)
		r, err := operate.New(s).AuditAll(ctx, cursor)
		cancel()
		require.NoError(t, err)
		require.Empty(t, r.Violations)
		conversations += r.Conversations
		runs++
		if r.Next == nil {
			break
		}
		require.NotEqual(t, cursor, *r.Next, "it gets on")
		cursor = *r.Next
	}
	require.Equal(t, 12, conversations)
	require.GreaterOrEqual(t, runs, 12)
}

// bulk writes healthy conversations as fast as DynamoDB takes them.
type bulk struct {
	c       *cloud
	ids     int
	batches map[string][]types.WriteRequest // by table
	pending chan map[string][]types.WriteRequest
	done    chan error
}

const bulkWriters = 8

func newBulk(c *cloud) *bulk {
	b := &bulk{c: c, batches: map[string][]types.WriteRequest{}, pending: make(chan map[string][]types.WriteRequest), done: make(chan error, bulkWriters)}
	for range bulkWriters {
		go func() {
			var failed error
			for batch := range b.pending {
				for len(batch) > 0 && failed == nil {
					out, err := c.DB.BatchWriteItem(context.Background(), &dynamodb.BatchWriteItemInput{RequestItems: batch})
					if failed = err; err == nil {
						batch = out.UnprocessedItems
					}
				}
			}
			b.done <- failed
		}()
	}
	return b
}

func (b *bulk) put(table string, v any) {
	in, err := attributevalue.MarshalMapWithOptions(v, func(o *attributevalue.EncoderOptions) { o.TagKey = "json" })
	require.NoError(b.c.T, err)
	b.batches[table] = append(b.batches[table], types.WriteRequest{PutRequest: &types.PutRequest{Item: in}})
	if len(b.batches[table]) == 25 {
		b.pending <- map[string][]types.WriteRequest{table: b.batches[table]}
		b.batches[table] = nil
	}
}

func (b *bulk) flush() {
	for table, requests := range b.batches {
		if len(requests) > 0 {
			b.pending <- map[string][]types.WriteRequest{table: requests}
		}
	}
	close(b.pending)
	for range bulkWriters {
		require.NoError(b.c.T, <-b.done)
	}
}

// conversation writes one of two users with n messages.
func (b *bulk) conversation(n int64) (id chat.ConversationID) {
	b.ids++
	users := []string{fmt.Sprintf("u%d", b.ids), fmt.Sprintf("v%d", b.ids)}
	id = chat.SingleID(users[0], users[1])
	now := time.Now()
	for seq := int64(1); seq <= n; seq++ {
		m := text(users[seq%2], fmt.Sprintf("c%d", seq), strings.Repeat("long ", 40))
		m.ConversationID, m.Seq, m.MessageID = id, seq, ulid.MustNewDefault(now).String()
		m.Version, m.Status, m.ServerTime, m.Data = 1, chat.StatusNormal, now.UnixMilli(), nil
		b.put(b.c.Tables.Messages, m)
		b.put(b.c.Tables.Idempotency, values{
			"dedupeKey": chat.DedupeKey(m.SenderID, m.ClientMsgID), "conversationId": id, "seq": seq,
			"messageId": m.MessageID, "fingerprint": "0123456789abcdef0123456789abcdef", "serverTime": m.ServerTime,
		})
	}
	b.put(b.c.Tables.Conversations, chat.Conversation{
		ConversationID: id, Kind: chat.KindSingle, LastSeq: n, MembersVersion: 1, MemberCount: 2, State: chat.StateActive,
		CreatedAt: now.UnixMilli(), UpdatedAt: now.UnixMilli(),
	})
	for i, user := range users {
		b.put(b.c.Tables.Members, chat.Member{ConversationID: id, UserID: user, Role: chat.RolePlain, JoinSeq: 1, JoinedSeq: 1, JoinedAt: 1})
		b.put(b.c.Tables.Inboxes, values{
			"userId": user, "conversationId": id, "peer": users[1-i], "readSeq": n, "deliveredSeq": n, "clearedSeq": 0, "joinSeq": 1,
		})
	}
	return id
}

// auditMessages is how many messages TestAudit_ALargeStore makes. 100,000 take
// DynamoDB half a minute to load.
var auditMessages = flag.Int64("audit.messages", 20_000, "how many messages the large store of the audit test has, at least 15,000")

// The auditor finds each planted corruption and nothing else in a large store, and
// holds a page of it at a time. It measures the memory of the whole process, so it
// does not run in parallel with others.
func TestAudit_ALargeStore(t *testing.T) {
	c := newCloud(t)
	b := newBulk(c)
	large := b.conversation(*auditMessages - 10_000)
	var small []chat.ConversationID
	for range 100 {
		small = append(small, b.conversation(100))
	}
	start := time.Now()
	b.flush()
	t.Logf("loaded within %v of the last", time.Since(start))

	watch := &heapWatch{}
	options := c.DB.Options()
	watch.next = options.HTTPClient.(*http.Client).Transport
	options.HTTPClient = &http.Client{Transport: watch}
	s := store.New(dynamodb.New(options), c.Tables)

	before := watch.measure()
	start = time.Now()
	r, err := operate.New(s).AuditAll(t.Context(), operate.AuditCursor{})
	require.NoError(t, err)
	t.Logf("audited in %v by %d requests; the heap grew by %d KB", time.Since(start), watch.requests, (watch.peak-before)/1024)
	require.Empty(t, r.Violations)
	require.Equal(t, *auditMessages, r.Messages)
	require.Equal(t, 101, r.Conversations)
	require.Less(t, watch.peak, before+3<<20, "their texts alone take 4 MB")

	behind, tail, hole, twin, key, lost, position, count, orphan := small[1], small[15], large, small[29], small[50], small[60], small[70], small[80], small[90]
	user := func(prefix string, id chat.ConversationID) string {
		return fmt.Sprintf("%s%d", prefix, slices.Index(small, id)+2)
	}
	c.Set(c.Tables.Conversations, convKey(behind), values{"lastSeq": 40})
	c.Delete(c.Tables.Messages, entryKey(tail, 100))
	c.Delete(c.Tables.Messages, entryKey(hole, 3_141))
	c.CopyMessage(twin, 10, 90)
	c.Set(c.Tables.Messages, entryKey(key, 7), values{"clientMsgId": "c99"})
	c.Delete(c.Tables.Idempotency, recordKey(user("v", lost), "c55"))
	c.Set(c.Tables.Inboxes, lineKey(user("u", position), position), values{"deliveredSeq": 101})
	c.Set(c.Tables.Conversations, convKey(count), values{"memberCount": 3})
	c.Set(c.Tables.Conversations, convKey(orphan), values{"memberCount": 1})
	c.Delete(c.Tables.Members, rosterKey(orphan, user("u", orphan)))

	r, err = operate.New(s).AuditAll(t.Context(), operate.AuditCursor{})
	require.NoError(t, err)
	require.Equal(t, sorted(
		finding{operate.ViolationHeadBehind, behind, 100, ""},
		finding{operate.ViolationHeadAhead, tail, 100, ""},
		finding{operate.ViolationHole, hole, 3_141, ""},
		finding{operate.ViolationDuplicateMessage, twin, 90, user("u", twin)},
		finding{operate.ViolationDuplicateKey, key, 7, user("v", key)},
		finding{operate.ViolationRecordMissing, lost, 55, user("v", lost)},
		finding{operate.ViolationPositionAhead, position, 0, user("u", position)},
		finding{operate.ViolationMemberCountWrong, count, 0, ""},
		finding{operate.ViolationLineOrphaned, orphan, 0, user("u", orphan)},
	), found(r))
}

// heapWatch measures what is live on the heap at every hundredth request.
type heapWatch struct {
	next     http.RoundTripper
	requests int
	peak     uint64
}

func (w *heapWatch) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.requests++; w.requests%100 == 0 {
		w.peak = max(w.peak, w.measure())
	}
	return w.next.RoundTrip(r)
}

func (w *heapWatch) measure() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// After a repair the conversation goes on; the seqs of the margin are skipped by
// every device (G6), and no audit takes them for a loss.
func TestG6_ARepairedHead(t *testing.T) {
	t.Parallel()
	for _, margin := range []int64{0, 5, 250} {
		t.Run(fmt.Sprint(margin), func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			s := c.Store(nil)
			single, _ := lively(t, s)
			c.Set(c.Tables.Conversations, convKey(single), values{"lastSeq": 7})
			_, err := c.Store(nil).Append(t.Context(), text("alice", "blocked", "x"), "bob")
			require.ErrorContains(t, err, "behind its ledger")

			r, err := operate.New(s).RepairHead(t.Context(), single, margin)
			require.NoError(t, err)
			require.Equal(t, operate.Repair{ConversationID: single, Changed: true, Before: 7, MaxSeq: 12, After: 12 + margin}, r)
			report, err := operate.New(s).AuditConversation(t.Context(), single)
			require.NoError(t, err)
			require.Empty(t, report.Violations)

			again, err := operate.New(s).RepairHead(t.Context(), single, margin+1)
			require.NoError(t, err)
			require.Equal(t, operate.Repair{ConversationID: single, Before: r.After, MaxSeq: 12, After: r.After}, again, "it is not behind any more")

			sent := send(t, s, "alice", "bob", "after")
			require.Equal(t, r.After+1, sent.Seq)
			var got []int64
			skipped := int64(0)
			for after := int64(0); ; {
				page, err := s.Sync(t.Context(), "bob", single, after, 100, 32*1024)
				require.NoError(t, err)
				for _, m := range page.Messages {
					got = append(got, m.Seq)
				}
				skipped += int64(len(page.Skipped))
				if page.FirstSeq > after+1 && after > 0 { // a long margin is told by its end
					skipped += page.FirstSeq - after - 1
				}
				if !page.HasMore {
					break
				}
				require.Greater(t, page.NextSeq, after, "it moves")
				after = page.NextSeq
			}
			require.Equal(t, []int64{4, 5, 6, 7, 8, 9, 10, 11, 12, sent.Seq}, got, "bob has cleared 3")
			require.Equal(t, margin, skipped)
			report, err = operate.New(s).AuditConversation(t.Context(), single)
			require.NoError(t, err)
			require.Empty(t, report.Violations)

			c.Delete(c.Tables.Messages, entryKey(single, 12))
			report, err = operate.New(s).AuditConversation(t.Context(), single)
			require.NoError(t, err)
			require.Equal(t, []finding{{operate.ViolationHole, single, 12, ""}}, found(report), "what is lost beside the margin is lost")
		})
	}
}

func TestRepairHead_NeverBackwards(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	single, _ := lively(t, s)
	head := c.Head(single)
	for _, plant := range []func(){
		func() {}, // healthy
		func() { c.Delete(c.Tables.Messages, entryKey(single, 12)) }, // ahead
	} {
		plant()
		r, err := operate.New(s).RepairHead(t.Context(), single, 100)
		require.NoError(t, err)
		require.False(t, r.Changed)
		require.Equal(t, head, c.Head(single))
	}
	for name, tc := range map[string]struct {
		id     chat.ConversationID
		margin int64
		code   chat.Code
	}{
		"nothing there":   {"group:none", 1, chat.CodeNotFound},
		"a margin below":  {single, -1, chat.CodeBadRequest},
		"a margin beyond": {single, operate.MaxRepairMargin + 1, chat.CodeBadRequest},
	} {
		_, err := operate.New(s).RepairHead(t.Context(), tc.id, tc.margin)
		requireCode(t, tc.code, err, name)
	}
}

// A head that another raises between the reading and the writing is read again.
func TestRepairHead_IsConditional(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	single, _ := lively(t, c.Store(nil))
	c.Set(c.Tables.Conversations, convKey(single), values{"lastSeq": 7})
	w := &wire{}
	s := c.Store(w)
	w.Set(func(op string, n int) fault {
		if op == "UpdateItem" && n == 1 {
			c.Set(c.Tables.Conversations, convKey(single), values{"lastSeq": 11})
		}
		return none
	})
	r, err := operate.New(s).RepairHead(t.Context(), single, 1)
	require.NoError(t, err)
	require.Equal(t, operate.Repair{ConversationID: single, Changed: true, Before: 11, MaxSeq: 12, After: 13}, r)
}

// A repair whose answer gets lost is made once, and says so.
func TestRepairHead_LostAnswers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		lastSeq int64 // of the head, of a ledger of 12
		repair  func(*operate.Operator, context.Context, chat.ConversationID, int64) (operate.Repair, error)
		margin  int64
	}{
		"of what is behind":              {7, (*operate.Operator).RepairHead, 0},
		"of what is behind, by a margin": {7, (*operate.Operator).RepairHead, 5},
		"of what is not behind":          {12, (*operate.Operator).RaiseHead, 5},
		"of either":                      {7, (*operate.Operator).RaiseHead, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCloud(t)
			id := sendN(t, c.Store(nil), 12)
			c.Set(c.Tables.Conversations, convKey(id), values{"lastSeq": tc.lastSeq})
			w := &wire{}
			options := c.Options(w)
			options.Retryer = retry.NewStandard() // which makes the same call again
			s := store.New(dynamodb.New(options), c.Tables)
			w.Set(func(op string, n int) fault {
				if op == "UpdateItem" && n == 1 {
					return unanswered
				}
				return none
			})
			r, err := tc.repair(operate.New(s), t.Context(), id, tc.margin)
			require.NoError(t, err)
			want := operate.Repair{ConversationID: id, Changed: true, Before: tc.lastSeq, MaxSeq: 12, After: 12 + tc.margin}
			require.Equal(t, want, r)
			require.Equal(t, want.After, c.Head(id).LastSeq)
		})
	}
}

// Tables were restored to an earlier time: no head is behind its ledger, but a
// device has seen the seqs that would be given out next.
func TestG5_ARaisedHeadGivesOutNoSeqThatADeviceHasSeen(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	id := sendN(t, s, 10)
	for seq := int64(6); seq <= 10; seq++ { // lost by the restore
		c.Delete(c.Tables.Messages, entryKey(id, seq))
		c.Delete(c.Tables.Idempotency, values{"dedupeKey": chat.DedupeKey("alice", fmt.Sprint(seq))})
	}
	c.Set(c.Tables.Conversations, convKey(id), values{"lastSeq": 5})
	restored := c.Store(nil) // knows nothing of what was
	repaired, err := operate.New(restored).RepairHead(t.Context(), id, 1000)
	require.NoError(t, err)
	require.False(t, repaired.Changed, "it is not behind")

	r, err := operate.New(restored).RaiseHead(t.Context(), id, 1000)
	require.NoError(t, err)
	require.Equal(t, operate.Repair{ConversationID: id, Changed: true, Before: 5, MaxSeq: 5, After: 1005}, r)
	require.Equal(t, int64(1006), send(t, restored, "alice", "bob", "7").Seq, "a retry of what was lost is sent again")
	page, err := restored.Sync(t.Context(), "bob", id, 10, 100, 32*1024)
	require.NoError(t, err)
	require.Len(t, page.Messages, 1)
	require.Equal(t, int64(1006), page.Messages[0].Seq)
	require.Equal(t, int64(1006), page.FirstSeq)
	report, err := operate.New(restored).AuditConversation(t.Context(), id)
	require.NoError(t, err)
	require.Empty(t, report.Violations)
}

// A margin must not hide a message whose transaction is being applied.
func TestG6_AHeadIsRaisedOnceItsLastMessagesAreApplied(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	id := sendN(t, c.Store(nil), 3)
	w := &wire{}
	s := c.Store(w)
	applying := 3
	w.Set(func(op string, _ int) fault {
		if op == "TransactGetItems" && applying > 0 {
			applying--
			return conflicting
		}
		return none
	})
	r, err := operate.New(s).RaiseHead(t.Context(), id, 200)
	require.NoError(t, err)
	require.Equal(t, int64(203), r.After)
	require.Zero(t, applying)
	calls, _ := w.Since(0)
	require.Equal(t, "UpdateItem", calls[len(calls)-1])
}

// A member whose devices are not told of a large conversation, as after a record of
// the stream that was lost, is found, and told by the repair.
func TestG5_TheAuditorFindsWhoIsNotListed(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	var others []string
	for i := range 24 {
		others = append(others, fmt.Sprintf("u%02d", i))
	}
	id := newGroup(t, s, chat.VisibleAll, "ann", others...)
	for _, user := range append(others[1:], "ann") { // the fan-out listed all but one
		require.NoError(t, s.Enlist(t.Context(), user, id))
	}
	cursor, err := s.Raise(t.Context(), others[0], []chat.ConversationID{"group:before"})
	require.NoError(t, err)
	report, err := operate.New(s).AuditConversation(t.Context(), id)
	require.NoError(t, err)
	require.Empty(t, report.Violations, "it may be on its way")

	for _, user := range append(others, "ann") { // two hours later
		c.Put(c.Tables.Members, map[string]any{
			"conversationId": id, "userId": user, "role": "member", "joinSeq": 1, "joinedSeq": 1, "joinedAt": time.Now().Add(-2 * time.Hour).UnixMilli(),
		})
	}
	report, err = operate.New(s).AuditConversation(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, report.Violations, 1)
	require.Equal(t, operate.ViolationLargeNotListed, report.Violations[0].Kind)
	require.Equal(t, others[0], report.Violations[0].UserID)

	users, err := operate.New(s).Relist(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, 1, users)
	report, err = operate.New(s).AuditConversation(t.Context(), id)
	require.NoError(t, err)
	require.Empty(t, report.Violations)
	changed, err := s.Changes(t.Context(), others[0], cursor, "", 50)
	require.NoError(t, err)
	require.Len(t, changed.Lines, 1)
	require.Equal(t, id, changed.Lines[0].Head.ConversationID)
	require.Len(t, changed.Heads, 1)
	require.Equal(t, [2]any{id, int64(1)}, [2]any{changed.Heads[0].ConversationID, changed.Heads[0].LastSeq})
	users, err = operate.New(s).Relist(t.Context(), id)
	require.NoError(t, err)
	require.Zero(t, users)
}

// What cannot be right about a sync head is told by the audit of everything.
func TestG10_TheAuditorLooksAtSyncHeads(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	ids := c.Lines("bob", 40)
	for _, id := range ids {
		_, err := s.Raise(t.Context(), "bob", []chat.ConversationID{id})
		require.NoError(t, err)
		require.NoError(t, s.Enlist(t.Context(), "bob", id))
	}
	kinds := func() (found []string) {
		report, err := operate.New(s).AuditAll(t.Context(), operate.AuditCursor{UserID: " "})
		require.NoError(t, err)
		for _, v := range report.Violations {
			if v.Kind == operate.ViolationSyncHeadWrong {
				found = append(found, v.UserID)
			}
		}
		slices.Sort(found)
		return found
	}
	require.Empty(t, kinds())
	many := map[string]any{}
	for i := range 201 {
		many[fmt.Sprint("group:", i)] = 1
	}
	for user, wrong := range map[string]map[string]any{
		"w1": {"conversationId": "#", "v": 3, "floor": 0, "at": map[string]any{"group:1": 4}, "long": map[string]any{}},
		"w2": {"conversationId": "#", "v": 3, "floor": 4, "at": map[string]any{}, "long": map[string]any{}},
		"w3": {"conversationId": "#", "v": "x"},
		"w4": {"conversationId": "#second", "version": 1, "floor": 0, "at": many},
		"w5": {"conversationId": "#large", "ids": "x"},
	} {
		wrong["userId"] = user
		c.Put(c.Tables.Inboxes, wrong)
	}
	require.Equal(t, []string{"w1", "w2", "w3", "w4", "w5"}, kinds())
}

// busyWith is a connection to DynamoDB on which a transaction is always at work on one
// conversation.
type busyWith struct {
	next http.RoundTripper
	id   chat.ConversationID
}

func (b busyWith) RoundTrip(r *http.Request) (*http.Response, error) {
	request, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(request))
	if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".TransactGetItems") && bytes.Contains(request, []byte(b.id)) {
		return storetest.Refusing(r, http.StatusBadRequest, storetest.CancelledAnswer(slices.Repeat([]string{"TransactionConflict"}, storetest.ItemsOf(request))...)), nil
	}
	return b.next.RoundTrip(r)
}

// A conversation that is written to all the time cannot be looked at again: the audit says
// so, and looks at all others.
func TestG10_TheAuditGoesOnPastAConversationThatIsAlwaysBusy(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	busy := sendN(t, s, 3)
	others := []string{"carol", "dave", "erin"}
	for _, other := range others {
		send(t, s, "alice", other, other)
		c.Set(c.Tables.Inboxes, lineKey("alice", chat.SingleID("alice", other)), values{"readSeq": 9})
	}
	c.Set(c.Tables.Inboxes, lineKey("alice", busy), values{"readSeq": 9})
	options := c.Options(&wire{})
	options.HTTPClient = &http.Client{Transport: busyWith{http.DefaultTransport, busy}}
	o := operate.New(store.New(dynamodb.New(options), c.Tables))
	for name, audit := range map[string]func(context.Context) (operate.AuditReport, error){
		"everything":       func(ctx context.Context) (operate.AuditReport, error) { return o.AuditAll(ctx, operate.AuditCursor{}) },
		"a sample":         func(ctx context.Context) (operate.AuditReport, error) { return o.AuditSample(ctx, 1000) },
		"one conversation": func(ctx context.Context) (operate.AuditReport, error) { return o.AuditConversation(ctx, busy) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// A function has a quarter of an hour.
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
			defer cancel()
			report, err := audit(ctx)
			require.NoError(t, err)
			require.Contains(t, report.Unfinished, busy)
			if name != "one conversation" {
				require.Equal(t, len(others), report.Counts[operate.ViolationPositionAhead], "%v", report.Violations)
			}
		})
	}
}

// What takes all the time that there is, such as the roster of a crowd, ends neither the
// report nor the going on after it.
func TestG10_AnAuditEndsInTheMiddleOfARoster(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	s := c.Store(nil)
	for _, other := range []string{"bob", "carol"} {
		send(t, s, "alice", other, other)
	}
	w := &wire{}
	o := operate.New(c.Store(w))
	report, err := o.AuditAll(t.Context(), operate.AuditCursor{})
	require.NoError(t, err)
	require.Equal(t, 2, report.Conversations)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w.Set(func(op string, n int) fault {
		if op == "Query" && n == 2 { // the roster of the first
			cancel()
			return dropped
		}
		return none
	})
	report, err = o.AuditAll(ctx, operate.AuditCursor{})
	require.NoError(t, err)
	require.Len(t, report.Unfinished, 1)
	require.NotNil(t, report.Next)
	require.Equal(t, report.Unfinished[0], report.Next.ConversationID)
	w.Set(nil)
	report, err = o.AuditAll(t.Context(), *report.Next)
	require.NoError(t, err)
	require.Equal(t, 1, report.Conversations, "it gets on")
	require.Nil(t, report.Next)
}
