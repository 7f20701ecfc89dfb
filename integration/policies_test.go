package integration_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	smithytime "github.com/aws/smithy-go/time"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sync/errgroup"

	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
	"github.com/inorder-im/inorder/integration/proxy"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// permission is what one function may do to one table or queue, or to connections, or
// does. What Lambda does to the queue of an SQS event is none of these: SAM lets it.
type permission struct{ function, action, table string }

// On connections there is one permission for all that can be done to them.
const (
	manageConnections = "ManageConnections"
	ofTheAPI          = "@connections"
)

var (
	policiesDeny = flag.Bool("policies.deny", false,
		"take each permission away in turn and want something to fail; about a quarter of an hour")
	policiesDenied = flag.String("policies.denied", "",
		"take this `function/action/table` away from TestPoliciesAllowWhatTheFunctionsDo, which then has to fail")
)

func (p permission) String() string { return p.function + "/" + p.action + "/" + p.table }

// No permission is spare: whichever is missing, something fails that a user or an
// operator would see. A denial fails a test, so each runs in a process of its own.
func TestPolicies_EachPermissionIsNeeded(t *testing.T) {
	if !*policiesDeny {
		t.Skip("it takes long: run it with -policies.deny")
	}
	needLocal(t)
	granted := slices.SortedFunc(maps.Keys(grantedIn(t, "../template.yaml")), func(a, b permission) int {
		return cmp.Compare(a.String(), b.String())
	})
	deny := func(t *testing.T, what string, limit time.Duration) (out []byte, took time.Duration, err error) {
		cmd := exec.Command(os.Args[0], "-test.run=^TestPoliciesAllowWhatTheFunctionsDo$", "-test.timeout="+limit.String(), "-policies.denied="+what)
		cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
		start := time.Now()
		out, err = cmd.CombinedOutput()
		return out, time.Since(start), err
	}
	// A time-out tells of a denial only if there is none without.
	out, usual, err := deny(t, "nothing", patience)
	require.NoError(t, err, "%s", out)
	for i, p := range granted {
		t.Run(p.String(), func(t *testing.T) {
			out, took, err := deny(t, p.String(), max(45*time.Second, 3*usual))
			require.Error(t, err, "%s is spare: without it all goes well", p)
			// What waits in vain is stopped by the time-out.
			require.Regexp(t, "(?m)^(--- FAIL: TestPoliciesAllow|panic: test timed out)", string(out[:min(len(out), 5000)]))
			fmt.Fprintf(os.Stderr, "%d of %d: %s is needed (%.0f s)\n", i+1, len(granted), p, took.Seconds())
		})
	}
}

// TestPoliciesAllowWhatTheFunctionsDo runs every action behind a proxy that notes
// which function asks for what, and compares that with the policies in the
// template: the local cloud enforces none, and AWS would refuse what is missing.
func TestPoliciesAllowWhatTheFunctionsDo(t *testing.T) {
	t.Parallel()
	granted := grantedIn(t, "../template.yaml")
	seen := &watchman{used: map[permission]bool{}, denied: *policiesDenied}
	connections, queues := seen.watchCloud(t, onConnections), seen.watchCloud(t, onQueues)
	c := startCloud(t, "-dynamodb-endpoint", seen.watch(t), "-connections-endpoint", connections.URL(), "-queues-endpoint", queues.URL(),
		"-param", "MaxLargeConversations=200", "-param", "UserConnectsPerSecond=10", "-param", "UserConnectBurst=8",
		"-param", "WritesPerSecond=50", "-param", "WriteBurst=100", "-param", "ReadsPerSecond=50", "-param", "ReadBurst=100",
		"-param", "MaxCrowdMembers=2000")
	require.NoError(t, connections.SetTarget(c.Page))
	require.NoError(t, queues.SetTarget(c.Page))
	everything(t, c.Stack, seen.client)
	nearTheLimits(t, c.Stack, seen.client)
	everyAudit(t, c.Stack, seen.client)
	crowded(t, c.Stack, seen)
	evictions(t, c.Stack, seen)
	unlucky(t, c.Stack, seen)
	byTheLane(t, c.Stack, seen)
	for _, late := range []permission{ // what the fan-out does after, or without, a push
		{"FanoutFunction", "UpdateItem", "Connections"},
		{"FanoutFunction", "GetItem", "Messages"},
	} {
		require.Eventually(t, func() bool { return seen.saw(late) }, patience, time.Millisecond)
	}

	if *policiesDenied != "" {
		return // what is asked for is as ever; something else should have failed
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for p := range seen.used {
		if !granted[p] {
			t.Errorf("template.yaml: %s does %s on %s, which its policy does not allow", p.function, p.action, p.table)
		}
	}
	for p := range granted {
		if !seen.used[p] {
			t.Errorf("template.yaml: %s may do %s on %s, and never does", p.function, p.action, p.table)
		}
	}
}

// grantedIn reads the statements of the functions' policies.
func grantedIn(t *testing.T, file string) map[permission]bool {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	type policy struct {
		Statement []struct {
			Action   yaml.Node `yaml:"Action"`
			Resource yaml.Node `yaml:"Resource"`
		} `yaml:"Statement"`
	}
	var doc struct {
		Resources map[string]struct {
			Properties struct {
				Policies []policy `yaml:"Policies"`
			} `yaml:"Properties"`
		} `yaml:"Resources"`
	}
	var template yaml.Node
	require.NoError(t, yaml.Unmarshal(raw, &template))
	chosen(&template)
	require.NoError(t, template.Decode(&doc))
	granted := map[permission]bool{}
	for function, r := range doc.Resources {
		for _, policy := range r.Properties.Policies {
			for _, s := range policy.Statement {
				table, isTable := strings.CutSuffix(s.Resource.Value, ".Arn")
				for _, action := range append([]*yaml.Node{&s.Action}, s.Action.Content...) {
					require.NotContains(t, action.Value, "*", "%s has a policy for too much", function)
					service, name, _ := strings.Cut(action.Value, ":")
					isData := service == "dynamodb" || service == "sqs"
					require.Equal(t, isTable && action.Value != "", isData, "%s: %s on %s", function, action.Value, s.Resource.Value)
					if isData {
						granted[permission{function, name, table}] = true
					}
					if action.Value == "execute-api:"+manageConnections {
						require.Regexp(t, `^arn:\S+:execute-api:\S+:\$\{Api\}/v1/\*/@connections/\*$`, s.Resource.Value, function)
						granted[permission{function, manageConnections, ofTheAPI}] = true
					}
				}
			}
		}
	}
	require.NotEmpty(t, granted)
	return granted
}

// chosen puts what a condition chooses where it is true in the place of the choice.
func chosen(n *yaml.Node) {
	if n.Tag == "!If" {
		*n = *n.Content[1]
	}
	for _, c := range n.Content {
		chosen(c)
	}
}

// watchman notes who asks DynamoDB for what, and denies one permission.
type watchman struct {
	client  *dynamodb.Client
	denied  string
	failing string // a permission whose use fails, with failure
	failure string
	mu      sync.Mutex
	used    map[permission]bool
}

func (w *watchman) watch(t *testing.T) (endpoint string) {
	t.Helper()
	client, engine := dynamotest.Start(t)
	w.client = client
	return startProxy(t, engine, func(p *proxy.Proxy, r proxy.Request) proxy.Answer {
		if allowed, reason := w.allows(r); !allowed {
			return failure(reason)
		}
		return p.Forward(r)
	}).URL()
}

// watchCloud starts a proxy in front of a part of the local cloud, whose target is to be
// set.
func (w *watchman) watchCloud(t *testing.T, uses func(function string, r proxy.Request) permission) *proxy.Proxy {
	t.Helper()
	return startProxy(t, "", func(p *proxy.Proxy, r proxy.Request) proxy.Answer {
		if function := appID.FindStringSubmatch(r.Header.Get("User-Agent")); function != nil {
			use := uses(function[1], r)
			w.mu.Lock()
			w.used[use] = true
			w.mu.Unlock()
			if use.String() == w.denied {
				return proxy.Answer{Status: http.StatusForbidden, Header: http.Header{"X-Amzn-Errortype": {"ForbiddenException"}}}
			}
		}
		return p.Forward(r)
	})
}

// onConnections is what a request to the @connections API takes.
func onConnections(function string, _ proxy.Request) permission {
	return permission{function, manageConnections, ofTheAPI}
}

// onQueues is what a request to SQS takes: a batch the same as one message.
func onQueues(function string, r proxy.Request) permission {
	var request struct {
		QueueURL string `json:"QueueUrl"`
	}
	_ = json.Unmarshal(r.Body, &request) // else it is on no queue that a policy names
	_, action := r.Operation()
	return permission{function, strings.TrimSuffix(action, "Batch"), strings.TrimPrefix(path.Base(request.QueueURL), "inorder-")}
}

func (w *watchman) saw(p permission) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.used[p]
}

// forget makes as if a permission had not been used yet.
func (w *watchman) forget(p permission) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.used, p)
}

var appID = regexp.MustCompile(`app/(\w+)`)

// fail makes uses of a permission fail from here on; "" ends that.
func (w *watchman) fail(p, reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failing, w.failure = p, reason
}

// allows notes a request, and says how it fails if it is to.
func (w *watchman) allows(r proxy.Request) (allowed bool, reason string) {
	reason = "AccessDeniedException"
	function := appID.FindStringSubmatch(r.Header.Get("User-Agent"))
	if function == nil {
		return true, "" // the local cloud itself
	}
	_, operation := r.Operation()
	var request struct {
		TableName     string
		RequestItems  map[string]json.RawMessage
		TransactItems []map[string]struct{ TableName string }
	}
	if json.Unmarshal(r.Body, &request) != nil {
		return true, ""
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	allowed = true
	use := func(action, table string) {
		p := permission{function[1], action, strings.TrimPrefix(table, "inorder-")}
		w.used[p] = true
		if p.String() == w.failing {
			reason = w.failure
		}
		allowed = allowed && p.String() != w.denied && p.String() != w.failing
	}
	if request.TableName != "" {
		use(operation, request.TableName)
	}
	for table := range request.RequestItems {
		use(operation, table)
	}
	// A transaction takes the permissions of its parts (DynamoDB Developer Guide,
	// "Using IAM with DynamoDB transactions").
	for _, part := range request.TransactItems {
		for kind, on := range part {
			action := kind + "Item"
			if kind == "ConditionCheck" {
				action = "ConditionCheckItem"
			}
			use(action, on.TableName)
		}
	}
	return allowed, reason
}

// outlived lets each function with a route see a request of a connection whose
// token has expired.
func outlived(t *testing.T, s stack) {
	t.Helper()
	var devices []*device
	var late sync.WaitGroup
	for _, action := range []string{
		wire.ActionPing, wire.ActionSend, wire.ActionAck, wire.ActionRecall, wire.ActionSetTitle, wire.ActionChanges,
	} {
		d, expires := expiringDevice(t, s, newUser("late"))
		devices = append(devices, d)
		late.Go(func() {
			<-time.After(time.Until(expires))
			_ = d.do(t.Context(), action, nil, nil) // it says goodbye, which answers nothing
		})
	}
	late.Wait()
	for _, d := range devices {
		requireDismissed(t, d, wire.GoodbyeExpired)
	}
}

// unlucky takes connections out behind their devices' backs, lets the fan-out fail
// in passing and for good, and takes a large conversation off a member's list.
func unlucky(t *testing.T, s stack, seen *watchman) {
	t.Helper()
	ctx := t.Context()
	d := mustConnect(t, s, newUser("fay"), "phone")
	for _, action := range []string{wire.ActionPing, wire.ActionChanges} {
		change(t, seen.client, "Connections", map[string]any{"userId": d.user}, "", nil)
		require.NoError(t, d.do(ctx, action, map[string]any{"syncCursor": 0}, nil))
	}
	for table, failure := range map[string]string{"Retries": "AccessDeniedException", "DeadLetters": "ValidationException"} {
		seen.fail("FanoutFunction/Query/Messages", failure)
		mustSend(t, d, wire.Send{To: newUser("gil"), Text: "hi"})
		require.Eventually(t, func() bool { return seen.saw(permission{"FanoutFunction", "SendMessage", table}) }, patience, time.Millisecond)
		seen.fail("", "")
	}
}

// asCrowd makes a conversation pass for a crowd.
func asCrowd(t *testing.T, db *dynamodb.Client, conversationID chat.ConversationID, members int) {
	t.Helper()
	change(t, db, "Conversations", map[string]any{"conversationId": conversationID}, "SET memberCount = :many", map[string]any{":many": members})
}

// crowded lets the product add someone to a crowd, who writes there; of its rounds one
// fails in passing, one meets a socket that is gone, and one entries that are. In the end
// one leaves it.
func crowded(t *testing.T, s stack, seen *watchman) {
	t.Helper()
	ctx := t.Context()
	ann, bob, cy := listen(t, s, newUser("ann"), "phone"), listen(t, s, newUser("bob"), "phone"), listen(t, s, newUser("cy"), "phone")
	id := createGroup(t, ann.device, chat.VisibleAll, cy.user)
	entryAt(t, cy, id, 1) // or there would be a round of it too, which could be the one that fails
	asCrowd(t, seen.client, id, 1500)
	_, err := publish(ctx, t, s, map[string]any{"addMembers": map[string]any{"conversationId": id, "members": []string{bob.user}}, "clientMsgId": newID()})
	require.NoError(t, err)
	seen.fail("DeliverFunction/Query/Members", "AccessDeniedException")
	sent := say(t, bob.device, id, "hi")
	require.Eventually(t, func() bool { return seen.saw(permission{"DeliverFunction", "SendMessage", "Rounds"}) }, patience, time.Millisecond)
	seen.fail("", "")
	_, err = ann.awaitEntry(ctx, id, sent.Seq)
	require.NoError(t, err)
	leaveBehind(t, seen.client, ann.user, time.Hour, "TWegAcC4EowCHnA=|tablet")
	say(t, bob.device, id, "ho")
	awaitConnections(t, seen.client, ann.user, 1)
	// A round of entries that are not there.
	change(t, seen.client, "Conversations", map[string]any{"conversationId": id}, "SET pushAt = :some ADD lastSeq :some", map[string]any{":some": 5})
	for _, p := range []permission{{"DeliverFunction", "GetItem", "Messages"}, {"DeliverFunction", "UpdateItem", "Connections"}} {
		require.Eventually(t, func() bool { return seen.saw(p) }, patience, time.Millisecond, p)
	}
	// One goes, which is told only after others have come.
	seen.fail("FanoutFunction/Query/Messages", "AccessDeniedException")
	require.NoError(t, cy.do(ctx, wire.ActionLeave, wire.ChangeGroup{ConversationID: id, ClientMsgID: newID()}, nil))
	require.Eventually(t, func() bool { return seen.saw(permission{"FanoutFunction", "SendMessage", "Retries"}) }, patience, time.Millisecond)
	asCrowd(t, seen.client, id, 1600)
	seen.fail("", "")
	require.Eventually(t, func() bool { return seen.saw(permission{"FanoutFunction", "GetItem", "Members"}) }, patience, time.Millisecond)
}

// evictions lets each function that raises sync heads make room in one.
func evictions(t *testing.T, s stack, seen *watchman) {
	t.Helper()
	ctx := t.Context()
	fill := func(d *device) *device { // one more, and it is time to make room
		at := map[string]int{}
		for i := range 12 {
			at[fmt.Sprint("group:", i)] = i + 1
		}
		put(t, seen.client, "Inboxes", map[string]any{
			"userId": d.user, "conversationId": "#", "v": 12, "floor": 0, "at": at, "long": map[string]int{},
		})
		return d
	}
	// On a machine that is slow a raise has no time left to make room.
	evicts := func(by string, raise func(*device) error) {
		t.Helper()
		for end := time.Now().Add(patience); ; {
			d := mustConnect(t, s, newUser("told"), "phone")
			require.NoError(t, raise(d))
			for soon := time.Now().Add(5 * time.Second); time.Now().Before(soon); {
				if itemAt(t, seen.client, "Inboxes", map[string]any{"userId": d.user, "conversationId": "#second"}) != nil {
					return
				}
				_ = smithytime.SleepWithContext(ctx, 10*time.Millisecond)
			}
			require.True(t, time.Now().Before(end), by)
		}
	}
	ann := mustConnect(t, s, newUser("ann"), "phone")
	evicts("FanoutFunction", func(d *device) error {
		_, err := ann.send(ctx, wire.Send{To: fill(d).user, Text: "hi"})
		return err
	})
	group := createGroup(t, ann, chat.VisibleAll)
	asCrowd(t, seen.client, group, 1500)
	evicts("PublishFunction", func(d *device) error {
		_, err := publish(ctx, t, s, map[string]any{"addMembers": map[string]any{"conversationId": group, "members": []string{fill(d).user}}, "clientMsgId": newID()})
		return err
	})
	evicts("AckFunction", func(d *device) error {
		sent, err := ann.send(ctx, wire.Send{To: d.user, Text: "hi"})
		require.NoError(t, err)
		require.NoError(t, d.awaitNews(ctx, sent)) // after its sync head was raised
		return fill(d).do(ctx, wire.ActionAck, map[string]any{"conversationId": sent.ConversationID, "readSeq": sent.Seq}, nil)
	})
}

// byTheLane lets a message be sent by its conversation's lane, and another that the lane
// loses while it waits.
func byTheLane(t *testing.T, s stack, seen *watchman) {
	t.Helper()
	ctx := t.Context()
	d, to := mustConnect(t, s, newUser("hal"), "phone"), newUser("ida")
	first, err := d.send(ctx, wire.Send{To: to, Text: "hi"})
	require.NoError(t, err)
	_, err = seen.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
		TableName: new(tableName(t, seen.client, "Conversations")),
		Key:       map[string]types.AttributeValue{"conversationId": &types.AttributeValueMemberS{Value: string(first.ConversationID)}},
		// As if someone had joined, so that what environments know of the head is stale.
		UpdateExpression: new("SET laneUntil = :until, membersVersion = membersVersion + :one, kept = if_not_exists(kept, :zero) + :one"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":until": &types.AttributeValueMemberN{Value: farFuture},
			":one":   &types.AttributeValueMemberN{Value: "1"}, ":zero": &types.AttributeValueMemberN{Value: "0"},
		},
	})
	require.NoError(t, err)
	_, err = d.send(ctx, wire.Send{To: to, Text: "by the lane"})
	require.NoError(t, err)
	require.True(t, seen.saw(permission{"SendFunction", "DeleteItem", "Lane"}))

	// What is lost in the lane is put there anew, and committed.
	for deadline := time.Now().Add(patience); !lostInTheLane(t, d, to, seen); {
		require.True(t, time.Now().Before(deadline), "nothing that was lost in the lane was committed")
	}
}

// lostInTheLane sends a message, takes it out of the lane until its sender asks what became
// of it, and reports whether it was committed then.
func lostInTheLane(t *testing.T, d *device, to string, seen *watchman) bool {
	t.Helper()
	ctx := t.Context()
	asks := permission{"SendFunction", "GetItem", "Lane"}
	seen.forget(asks)
	seen.fail("SendFunction/PutItem/Messages", "TransactionConflictException")
	defer seen.fail("", "")
	committed := make(chan bool, 1)
	go func() {
		// Once: who sends again would not need to ask.
		committed <- d.do(ctx, wire.ActionSend, wire.Send{To: to, MessageType: chat.TypeText, Text: "lost", ClientMsgID: newID()}, nil) == nil
	}()
	lane := tableName(t, seen.client, "Lane")
	for !seen.saw(asks) {
		select {
		case <-committed:
			return false // it was refused before it asked
		default:
		}
		out, err := seen.client.Scan(ctx, &dynamodb.ScanInput{TableName: &lane})
		require.NoError(t, err)
		for _, in := range out.Items {
			_, err := seen.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
				TableName: &lane, Key: map[string]types.AttributeValue{"laneId": in["laneId"], "messageId": in["messageId"]},
			})
			require.NoError(t, err)
		}
	}
	seen.fail("", "")
	return <-committed
}

// nearTheLimits lets each function see a user who comes near the limit: a new one each, so
// that no other can have charged it.
func nearTheLimits(t *testing.T, s stack, db *dynamodb.Client) {
	t.Helper()
	const often = 200
	charged := func(user, kind string) bool {
		return itemAt(t, db, "Inboxes", map[string]any{"userId": user, "conversationId": "#limit:" + kind}) != nil
	}
	for action, kind := range map[string]string{
		wire.ActionPing: "r", wire.ActionChanges: "r",
		wire.ActionSend: "w", wire.ActionAck: "w", wire.ActionRecall: "w", wire.ActionSetTitle: "w",
	} {
		d := mustConnect(t, s, newUser("hurried"), "phone")
		for end := time.Now().Add(patience); !charged(d.user, kind); { // on a machine that is slow no one is fast
			require.True(t, time.Now().Before(end), action)
			var hurry errgroup.Group
			hurry.SetLimit(2) // one after the other could be slow enough, and more at a time spread over environments
			for range often {
				hurry.Go(func() error {
					_ = d.do(t.Context(), action, nil, nil) // what is refused counts
					return nil
				})
			}
			_ = hurry.Wait() // nothing in it fails
		}
	}
	d := mustConnect(t, s, newUser("restless"), "phone")
	for range 5 {
		d.close()
		require.NoError(t, d.reconnect(t.Context()))
	}
	require.True(t, charged(d.user, "c"))
}

// everything makes each function do all it can.
func everything(t *testing.T, s stack, db *dynamodb.Client) {
	t.Helper()
	ctx := t.Context()
	do := func(d *device, action string, request, into any) {
		t.Helper()
		require.NoError(t, d.do(ctx, action, request, into), action)
	}
	refused := func(d *device, action string, request any, code chat.Code) {
		t.Helper()
		var r *refusal
		require.ErrorAs(t, d.do(ctx, action, request, nil), &r, action)
		require.Equal(t, code, r.Frame.Code, action)
	}
	ann, bob := mustConnect(t, s, newUser("ann"), "phone"), mustConnect(t, s, newUser("bob"), "phone")
	cy := newUser("cy")
	say := func(d *device, to wire.Send) wire.Sent {
		t.Helper()
		to.MessageType, to.Text = chat.TypeText, "hi"
		if to.ClientMsgID == "" {
			to.ClientMsgID = newUser("m")
		}
		sent := mustSend(t, d, to)
		return sent
	}

	single := say(ann, wire.Send{To: bob.user})
	say(bob, wire.Send{ConversationID: single.ConversationID, ReplyTo: &chat.ReplyTo{Seq: 1, MessageID: single.MessageID}})
	for range 3 { // one that the writer, or the reader, finds gone
		say(ann, wire.Send{To: bob.user})
	}
	refused(ann, wire.ActionSend, wire.Send{ConversationID: "group:none", MessageType: chat.TypeText, Text: "hi", ClientMsgID: "x"}, chat.CodeNotFound)
	change(t, db, "Messages", map[string]any{"conversationId": single.ConversationID, "seq": 3}, "", nil)
	require.NoError(t, bob.sync(ctx, single.ConversationID))
	gone := wire.Send{ConversationID: single.ConversationID, MessageType: chat.TypeText, Text: "hi", ClientMsgID: "y", ReplyTo: &chat.ReplyTo{Seq: 3, MessageID: "gone"}}
	refused(bob, wire.ActionSend, gone, chat.CodeNotFound)
	do(bob, wire.ActionHistory, map[string]any{"conversationId": single.ConversationID}, nil)
	listener := listen(t, s, ann.user, "laptop")
	do(bob, wire.ActionAck, map[string]any{"conversationId": single.ConversationID, "readSeq": 2}, nil)
	require.NoError(t, listener.await(ctx, "a receipt", func() bool {
		return slices.ContainsFunc(listener.heard, func(p push) bool { return p.Type == wire.TypeReceipt })
	}))
	do(bob, wire.ActionReceipts, map[string]any{"conversationId": single.ConversationID, "seq": 1}, nil)

	target := say(ann, wire.Send{To: bob.user})
	do(ann, wire.ActionEdit, wire.Edit{ConversationID: target.ConversationID, Seq: target.Seq, MessageID: target.MessageID, Version: 1, Text: "ho", ClientMsgID: "e"}, nil)
	do(ann, wire.ActionRecall, wire.Recall{ConversationID: target.ConversationID, Seq: target.Seq, MessageID: target.MessageID, ClientMsgID: "r"}, nil)
	refused(ann, wire.ActionRecall, wire.Recall{ConversationID: target.ConversationID, Seq: 99, MessageID: "none", ClientMsgID: "r2"}, chat.CodeNotFound)
	do(bob, wire.ActionClear, map[string]any{"conversationId": single.ConversationID, "throughSeq": 1}, nil)

	var group wire.Created
	create := wire.CreateGroup{Title: "All", Members: []string{bob.user}, ClientMsgID: "g"}
	do(ann, wire.ActionCreateGroup, create, &group)
	do(ann, wire.ActionCreateGroup, create, &group)
	id := group.ConversationID
	ask := func(d *device, action string, more map[string]any) {
		t.Helper()
		request := map[string]any{"conversationId": id, "clientMsgId": newUser("c")}
		for name, value := range more {
			request[name] = value
		}
		do(d, action, request, nil)
	}
	ask(ann, wire.ActionAddMembers, map[string]any{"members": []string{cy}})
	ask(ann, wire.ActionRemoveMembers, map[string]any{"members": []string{cy}})
	ask(ann, wire.ActionAddMembers, map[string]any{"members": []string{cy}})
	ask(ann, wire.ActionSetTitle, map[string]any{"title": "Some"})
	ask(ann, wire.ActionSetRole, map[string]any{"userId": bob.user, "role": chat.RoleAdmin})
	theirs := say(bob, wire.Send{ConversationID: id})
	do(ann, wire.ActionRecall, wire.Recall{ConversationID: id, Seq: theirs.Seq, MessageID: theirs.MessageID, ClientMsgID: "r3"}, nil)
	do(ann, wire.ActionMembers, map[string]any{"conversationId": id}, nil)
	ask(ann, wire.ActionLeave, nil)
	_, err := publish(ctx, t, s, map[string]any{"addMembers": map[string]any{"conversationId": id, "members": []string{ann.user}}, "clientMsgId": "a1"})
	require.NoError(t, err)
	ask(ann, wire.ActionLeave, nil)
	refused(ann, wire.ActionSetTitle, map[string]any{"conversationId": id, "title": "x", "clientMsgId": "z"}, chat.CodeNotFound)
	ask(bob, wire.ActionDissolve, nil)

	do(bob, wire.ActionConversations, nil, nil)
	var changed wire.Changed
	do(bob, wire.ActionChanges, map[string]any{"syncCursor": 0}, &changed)
	do(bob, wire.ActionChanges, map[string]any{"syncCursor": max(1, changed.SyncCursor-1)}, nil)
	do(bob, wire.ActionPing, nil, nil)

	outlived(t, s)
	pair := map[string]any{"between": []string{newUser("dan"), newUser("eve")}}
	for range 2 { // one finds it there
		_, err := publish(ctx, t, s, pair)
		require.NoError(t, err)
	}
	_, err = publish(ctx, t, s, map[string]any{"group": map[string]any{"owner": ann.user, "title": "All", "members": []string{bob.user}}, "clientMsgId": "g2"})
	require.NoError(t, err)

	order := publication{Key: newUser("order"), Recipients: []string{ann.user}, ClientMsgID: newUser("p"), Text: "hi"}
	first := mustPublish(t, s, order)
	order.ClientMsgID, order.Recipients = newUser("p"), []string{ann.user, bob.user}
	mustPublish(t, s, order)
	_, err = publish(ctx, t, s, publication{Key: newUser("none"), ClientMsgID: newUser("p"), Text: "hi"})
	require.ErrorContains(t, err, string(chat.CodeNotFound))
	require.NoError(t, ann.awaitNews(ctx, first))
	crowd := publication{Key: newUser("crowd"), ClientMsgID: newUser("p"), Text: "hi"}
	for range chat.InboxGroupMax {
		crowd.Recipients = append(crowd.Recipients, newUser("c"))
	}
	mustPublish(t, s, crowd)
	crowd.ClientMsgID, crowd.Recipients = newUser("p"), []string{newUser("c")} // which makes it a large one
	mustPublish(t, s, crowd)

	// A head that was repaired with a margin: what the fan-out's Query lacks.
	change(t, db, "Conversations", map[string]any{"conversationId": single.ConversationID}, "ADD lastSeq :margin", map[string]any{":margin": 5})
	// A socket that is gone and that nobody told of.
	leaveBehind(t, db, bob.user, time.Hour, "TWegAcC4EowCHnA=|tablet")
	again := mustConnect(t, s, bob.user, "phone") // replaces
	require.NoError(t, bob.await(ctx, "the goodbye", func() bool { return len(bob.goodbyes) > 0 }))
	require.NoError(t, again.awaitNews(ctx, say(ann, wire.Send{To: bob.user})))
	again.close()
	// Both are forgotten: the one that was gone, and the one that said so.
	awaitConnections(t, db, bob.user, 0)
}
