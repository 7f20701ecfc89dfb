package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// auditReport is the answer of the auditor.
type auditReport struct {
	Conversations int            `json:"conversations"`
	Messages      int64          `json:"messages"`
	Counts        map[string]int `json:"counts"`
	Violations    []struct {
		ConversationID chat.ConversationID `json:"conversationId"`
		Kind           chat.ConversationID `json:"kind"`
		Seq            int64               `json:"seq"`
		UserID         string              `json:"userId"`
		Remedy         string              `json:"remedy"`
	} `json:"violations"`
}

// audit invokes the auditor of a local cloud.
func audit(ctx context.Context, s stack, event string) (auditReport, error) {
	return invoke[auditReport](ctx, s, "auditor", []byte(event))
}

func mustAudit(t *testing.T, s stack, event string) auditReport {
	t.Helper()
	r, err := audit(t.Context(), s, event)
	require.NoError(t, err)
	return r
}

func setLastSeq(t *testing.T, db *dynamodb.Client, conversationID chat.ConversationID, seq int64) {
	t.Helper()
	change(t, db, "Conversations", map[string]any{"conversationId": conversationID}, "SET lastSeq = :s", map[string]any{":s": seq})
}

// everyAudit makes the auditor do all it can.
func everyAudit(t *testing.T, s stack, db *dynamodb.Client) {
	t.Helper()
	ann, bob := mustConnect(t, s, newUser("ann"), "phone"), newUser("bob")
	var sent wire.Sent
	for range 4 {
		sent = mustSend(t, ann, wire.Send{To: bob, MessageType: chat.TypeText, Text: "hi", ClientMsgID: newUser("m")})
	}
	id := sent.ConversationID
	edit := wire.Edit{ConversationID: id, Seq: 4, MessageID: sent.MessageID, Version: 1, Text: "ho", ClientMsgID: "edit"}
	require.NoError(t, ann.do(t.Context(), wire.ActionEdit, edit, nil))
	change(t, db, "Idempotency", map[string]any{"dedupeKey": chat.DedupeKey(ann.user, "edit")}, "", nil)
	change(t, db, "Inboxes", map[string]any{"userId": bob, "conversationId": id}, "SET readSeq = :s", map[string]any{":s": 99})
	setLastSeq(t, db, id, 3)
	mustAudit(t, s, "{}")
	r := mustAudit(t, s, `{"all": true}`)
	require.Equal(t, []int{1, 1}, []int{r.Counts["headBehind"], r.Counts["positionAhead"]})
	setLastSeq(t, db, id, 5)
	require.Equal(t, 1, mustAudit(t, s, `{"conversationId": "`+string(id)+`"}`).Counts["recordMissing"])
}

// The auditor finds nothing wrong with what the product did, and names what an
// operator's accident did. It mends nothing: the operator's tool does.
func TestAuditor(t *testing.T) {
	t.Parallel()
	c := startCloud(t, "-param", "AuditMessages=50", "-param", "AuditSchedule=off")
	db := dynamotest.Client(t, c.DynamoDB)
	a, b := mustConnect(t, c.Stack, newUser("alice"), "phone"), mustConnect(t, c.Stack, newUser("bob"), "phone")
	id := exchangeMessages(t, a, b, 5)

	sub := exec.Command(launcher.Program, "invoke", "-addr", strings.TrimSuffix(strings.TrimPrefix(c.Page, "http://"), "/"), "auditor", "events/auditor.json")
	sub.Dir = ".."
	var stderr bytes.Buffer
	sub.Stderr = &stderr
	out, err := sub.Output()
	require.NoError(t, err, stderr.String())
	var r auditReport
	require.NoError(t, json.Unmarshal(out, &r))
	require.Equal(t, auditReport{Conversations: 1, Messages: 10, Counts: map[string]int{}, Violations: r.Violations}, r)
	require.Empty(t, r.Violations)
	whole := operate(t, c.Stack, "repair", string(id), "-margin", "20", "-yes")
	require.Equal(t, "the head of "+string(id)+", at 10, is not behind its ledger\n", whole.must(t))
	require.Contains(t, whole.stderr, "nothing is wrong with "+string(id))

	setLastSeq(t, db, id, 6)
	r = mustAudit(t, c.Stack, `{"all": true}`)
	require.Len(t, r.Violations, 1)
	require.Equal(t, [2]chat.ConversationID{id, "headBehind"}, [2]chat.ConversationID{r.Violations[0].ConversationID, r.Violations[0].Kind})
	require.Contains(t, r.Violations[0].Remedy, "repair")
	_, err = audit(t.Context(), c.Stack, `{"conversationId": "`+string(id)+`", "repair": true, "margin": 20}`)
	require.ErrorContains(t, err, "BAD_REQUEST")

	dry := operate(t, c.Stack, "repair", string(id))
	require.Regexp(t, `headBehind .* -yes would raise the head`, dry.must(t))
	require.Contains(t, dry.stderr, "nothing was changed")
	for _, args := range [][]string{{"-yes"}, {"-yes", "-margin", "-1"}, {"-yes", "-margin", "1000001"}} {
		refused := operate(t, c.Stack, append([]string{"repair", string(id)}, args...)...)
		require.Equal(t, 1, refused.code, args)
		require.Contains(t, refused.stderr, "margin")
	}
	require.Len(t, mustAudit(t, c.Stack, `{"all": true}`).Violations, 1, "nothing of this has changed it")

	require.JSONEq(t, `{"dryRun": false, "violations": [],
		"repair": {"conversationId": "`+string(id)+`", "changed": true, "before": 6, "maxSeq": 10, "after": 30}}`,
		operate(t, c.Stack, "repair", string(id), "-margin", "20", "-yes", "-json").must(t))
	sent := mustSend(t, a, wire.Send{ConversationID: id, MessageType: chat.TypeText, Text: "on we go", ClientMsgID: newID()})
	require.Equal(t, int64(31), sent.Seq)
	require.NoError(t, b.awaitPushed(t.Context(), id, sent.Seq, sent.Seq))
	d := mustConnect(t, c.Stack, b.user, "tablet")
	require.NoError(t, d.sync(t.Context(), id), "a new device gets past the margin")
	require.Equal(t, []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 31}, seqsOf(d.messages(id)))
	require.Empty(t, mustAudit(t, c.Stack, `{"all": true}`).Violations)
}

// A member to whom a large conversation is not listed hears of it again.
func TestAdmin_RepairListsALargeConversation(t *testing.T) {
	t.Parallel()
	c := startCloud(t, "-param", "AuditSchedule=off")
	db := dynamotest.Client(t, c.DynamoDB)
	owner := mustConnect(t, c.Stack, newUser("owner"), "phone")
	var members []string
	for range chat.InboxGroupMax {
		members = append(members, newUser("hal"))
	}
	var large wire.Created
	require.NoError(t, owner.do(t.Context(), wire.ActionCreateGroup, wire.CreateGroup{Title: "Large", Members: members, ClientMsgID: "large"}, &large))
	list := map[string]any{"userId": members[0], "conversationId": "#large"}
	require.Eventually(t, func() bool { return itemAt(t, db, "Inboxes", list) != nil }, patience, 10*time.Millisecond)
	require.Eventually(t, func() bool { return len(mustAudit(t, c.Stack, `{"all": true}`).Violations) == 0 }, patience, 10*time.Millisecond)
	change(t, db, "Inboxes", list, "", nil)
	id := large.ConversationID
	for _, user := range append(members, owner.user) { // who came long ago is listed, or never will be
		change(t, db, "Members", map[string]any{"conversationId": id, "userId": user}, "SET joinedAt = :t", map[string]any{":t": 1})
	}

	require.Regexp(t, `largeNotListed .*`+members[0]+`.* -yes would list`, operate(t, c.Stack, "repair", string(id)).must(t))
	require.Contains(t, operate(t, c.Stack, "repair", string(id), "-margin", "0", "-yes").must(t), "listed it for 1 members\n")
	require.Empty(t, mustAudit(t, c.Stack, `{"all": true}`).Violations)

	// And one to whom it is listed without being a member hears of it no more.
	listed := item(t, map[string]any{"userId": "stranger", "conversationId": "#large"})
	listed["ids"] = &types.AttributeValueMemberSS{Value: []string{string(id)}}
	_, err := db.PutItem(t.Context(), &dynamodb.PutItemInput{TableName: aws.String(tableName(t, db, "Inboxes")), Item: listed})
	require.NoError(t, err)
	stale := mustAudit(t, c.Stack, `{"all": true}`).Violations
	require.Len(t, stale, 1)
	require.Equal(t, []any{"largeStale", "stranger", id}, []any{string(stale[0].Kind), stale[0].UserID, stale[0].ConversationID})
	would := operate(t, c.Stack, "repair", string(id), "-user", "stranger")
	require.Equal(t, "would take "+string(id)+" off the list of stranger\n", would.must(t))
	require.Contains(t, would.stderr, "-yes")
	require.Equal(t, "took "+string(id)+" off the list of stranger\n", operate(t, c.Stack, "repair", string(id), "-user", "stranger", "-yes").must(t))
	require.Contains(t, operate(t, c.Stack, "repair", string(id), "-user", "stranger", "-yes").must(t), "is not on the list of stranger")
	require.Empty(t, mustAudit(t, c.Stack, `{"all": true}`).Violations)
}

// keepAuditing audits while things go wrong. An audit may fail then; what it must
// not do is to take what is only half visible for a corruption.
func (o *ordeal) keepAuditing(ctx context.Context) {
	rng := o.chance(200)
	for o.audit(ctx, false) && pause(ctx, rng) == nil {
	}
}

// audit checks all that was written against the invariants.
func (o *ordeal) audit(ctx context.Context, must bool) bool {
	r, err := audit(ctx, o.cloud.Stack, `{"all": true}`)
	if err != nil && must {
		o.t.Errorf("auditing: %v", err)
	}
	if err == nil && len(r.Violations) > 0 {
		o.t.Errorf("the auditor found %+v", r.Violations)
	}
	return ctx.Err() == nil
}
