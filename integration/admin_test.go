package integration_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
	"github.com/inorder-im/inorder/integration/proxy"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// adminProgram is the operator's tool, built beside the local cloud.
var adminProgram = sync.OnceValues(func() (string, error) {
	program := filepath.Join(filepath.Dir(launcher.Program), "admin")
	cmd := exec.Command("go", "build", "-o", program, "./infra/admin")
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the operator's tool: %w\n%s", err, out)
	}
	return program, nil
})

// operated is what the operator's tool did.
type operated struct {
	code           int
	stdout, stderr string
}

// operate runs the operator's tool on a local cloud.
func operate(t *testing.T, s stack, args ...string) operated {
	t.Helper()
	return runAdmin(t, append(args, "-addr", s.Page)...)
}

func runAdmin(t *testing.T, args ...string) operated {
	t.Helper()
	return runAdminIn(t, nil, args...)
}

// runAdminIn is runAdmin with more variables in the environment.
func runAdminIn(t *testing.T, env []string, args ...string) operated {
	t.Helper()
	needLocal(t)
	program, err := adminProgram()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	if exit := (&exec.ExitError{}); err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return operated{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// must is what the tool answered, if it did what it was asked to.
func (o operated) must(t *testing.T) string {
	t.Helper()
	require.Zero(t, o.code, o.stderr)
	return o.stdout
}

// decoded reads an answer of JSON lines.
func decoded[T any](t *testing.T, answer string) []T {
	t.Helper()
	var all []T
	for line := range strings.Lines(answer) {
		var v T
		require.NoError(t, json.Unmarshal([]byte(line), &v), line)
		all = append(all, v)
	}
	return all
}

func TestAdmin_LooksAtAConversation(t *testing.T) {
	t.Parallel()
	needLocal(t)
	a, b := mustConnect(t, shared, newUser("alice"), "phone"), mustConnect(t, shared, newUser("bob"), "phone")
	id := exchangeMessages(t, a, b, 60) // more than a page
	require.Equal(t, int64(7), ackRead(t, b, id, 7).ReadSeq)
	require.NoError(t, b.sync(t.Context(), id))
	entries := b.messages(id)

	require.Contains(t, operate(t, shared, "list", "-limit", "0").must(t), id)
	require.Contains(t, operate(t, shared, "list", "-user", a.user).must(t), id)
	heads := decoded[chat.Conversation](t, operate(t, shared, "show", string(id), "-json").must(t))
	require.Equal(t, [2]any{id, int64(120)}, [2]any{heads[0].ConversationID, heads[0].LastSeq})
	require.Regexp(t, `(?m)^lastSeq +120$`, operate(t, shared, "show", string(id)).must(t))

	ledger := operate(t, shared, "ledger", string(id), "-from", "5", "-limit", "3").must(t)
	require.Equal(t, 4, strings.Count(ledger, "\n"), ledger)
	require.Contains(t, ledger, entries[4].MessageID)
	require.NotContains(t, ledger, entries[4].Text, "what people say is not for the operator's eyes")
	require.Contains(t, operate(t, shared, "ledger", "-content", string(id), "-from", "5").must(t), entries[4].Text)
	end := decoded[chat.Message](t, operate(t, shared, "ledger", string(id), "-json", "-limit", "2").must(t))
	require.Equal(t, []int64{119, 120}, seqsOf(end))

	require.Contains(t, operate(t, shared, "ledger", string(id), "-from", "121").stderr, "-from 121: the last seq is 120")

	roster := decoded[struct {
		UserID string
		Line   struct{ ReadSeq, DeliveredSeq int64 }
	}](t, operate(t, shared, "roster", string(id), "-json").must(t))
	require.Len(t, roster, 2)
	for _, member := range roster {
		if member.UserID == b.user {
			require.Equal(t, int64(7), member.Line.ReadSeq)
		}
	}
	require.Regexp(t, `(?m)^`+b.user+` +member +\S+ +1 +7 +`, operate(t, shared, "roster", string(id)).must(t))

	require.Contains(t, operate(t, shared, "find", entries[9].MessageID).stderr, "MessageIndex=on")
	found := decoded[chat.Message](t, operate(t, shared, "find", entries[9].MessageID, "-scan", "-json").must(t))
	require.Equal(t, [2]any{id, int64(10)}, [2]any{found[0].ConversationID, found[0].Seq})

	file := filepath.Join(t.TempDir(), "out.jsonl")
	require.Empty(t, operate(t, shared, "export", string(id), "-o", file).must(t))
	written, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, operate(t, shared, "export", string(id)).must(t), string(written))
	head, rest, _ := strings.Cut(string(written), "\n")
	require.Equal(t, heads, decoded[chat.Conversation](t, head))
	require.Equal(t, entries, decoded[chat.Message](t, rest), "every message as devices have it, by seq")
}

// LocalStack and DynamoDB Local have tables of their own for each access key, or
// account: the tool comes with the one that the local cloud passes on.
func TestAdmin_ComesWithTheAccessKeyOfTheLocalCloud(t *testing.T) {
	t.Parallel()
	needLocal(t)
	const key = "111111111111"
	_, engine := dynamotest.Start(t)
	accounts := startProxy(t, engine, func(p *proxy.Proxy, r proxy.Request) proxy.Answer {
		if r.Method == http.MethodPost && !strings.Contains(r.Header.Get("Authorization"), "Credential="+key+"/") {
			return failure("ResourceNotFoundException")
		}
		return p.Forward(r)
	})
	env := func(key string) []string {
		return []string{"AWS_ACCESS_KEY_ID=" + key, "AWS_SECRET_ACCESS_KEY=test", "AWS_SESSION_TOKEN="}
	}
	c := startCloudIn(t, env(key), "-dynamodb-endpoint", accounts.URL())
	a := mustConnect(t, c.Stack, newUser("alice"), "phone")
	sent := mustSend(t, a, wire.Send{To: newUser("bob"), Text: "hi"})

	list := []string{"list", "-addr", c.Page}
	require.Contains(t, runAdminIn(t, env(key), list...).must(t), sent.ConversationID)
	for _, other := range []string{"", "222222222222"} {
		refused := runAdminIn(t, env(other), list...)
		require.Equal(t, 1, refused.code)
		require.Contains(t, refused.stderr, "it is called with the access key "+key+"; set AWS_ACCESS_KEY_ID")
	}
}

func TestAdmin_ListsTheHottest(t *testing.T) {
	t.Parallel()
	a, b := mustConnect(t, shared, newUser("alice"), "phone"), mustConnect(t, shared, newUser("bob"), "phone")
	id := exchangeMessages(t, a, b, 1)
	looked := make(chan operated, 1)
	go func() { looked <- operate(t, shared, "hottest", "-for", "1s", "-limit", "1000") }()
	for {
		select {
		case o := <-looked:
			require.Regexp(t, `(?m)^`+string(id)+` +single +\d+\.\d +\d+% +\d+ +2`, o.must(t))
			require.Contains(t, o.stderr, "looking again in 1s")
			return
		default:
			exchangeMessages(t, a, b, 1)
		}
	}
}

// The scripts of testdata/admin: commands, and what they say. exits wants an exit code.
func TestAdmin_Scripts(t *testing.T) {
	t.Parallel()
	needLocal(t)
	program, err := adminProgram()
	require.NoError(t, err)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/admin",
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", filepath.Dir(program))
			env.Setenv("ADDR", shared.Page)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": func(ts *testscript.TestScript, _ bool, args []string) {
				code, exit := 0, (*exec.ExitError)(nil)
				if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
					code = exit.ExitCode()
				} else {
					ts.Check(err)
				}
				if strconv.Itoa(code) != args[0] {
					ts.Fatalf("exit code %d, want %s", code, args[0])
				}
			},
		},
	})
}

func TestAdmin_EraseUser(t *testing.T) {
	t.Parallel()
	needLocal(t)
	a, b := mustConnect(t, shared, newUser("alice"), "phone"), mustConnect(t, shared, newUser("bob"), "phone")
	id := exchangeMessages(t, a, b, 3)
	sent := mustSend(t, a, wire.Send{ConversationID: id, Text: "my secret"})
	edit := wire.Edit{ConversationID: id, Seq: sent.Seq, MessageID: sent.MessageID, Version: 1, Text: "my other secret", ClientMsgID: newID()}
	require.NoError(t, a.do(t.Context(), wire.ActionEdit, edit, nil))
	before := mustConnect(t, shared, b.user, "laptop")
	require.NoError(t, before.sync(t.Context(), id))
	held := before.messages(id)

	dry := operate(t, shared, "erase-user", a.user)
	require.Equal(t, "would blank 4 messages and 1 edits of "+a.user+" in 1 conversations (8 messages looked at), and in 5 the name of the device; 1 events tell devices\n", dry.must(t))
	require.Contains(t, dry.stderr, "-yes")
	same := mustConnect(t, shared, b.user, "tablet")
	require.NoError(t, same.sync(t.Context(), id))
	require.Equal(t, held, same.messages(id))

	done := decoded[map[string]any](t, operate(t, shared, "erase-user", "-yes", "-json", a.user).must(t))
	require.Equal(t, []any{a.user, false, 4.0, 1.0, 1.0},
		[]any{done[0]["userId"], done[0]["dryRun"], done[0]["messages"], done[0]["edits"], done[0]["events"]})
	for i, user := range []string{b.user, a.user} {
		after := mustConnect(t, shared, user, fmt.Sprintf("new%d", i))
		require.NoError(t, after.sync(t.Context(), id))
		messages := after.messages(id)
		event := messages[len(messages)-1]
		require.Equal(t, &chat.Event{Kind: chat.EventErase, Erased: a.user}, event.Event)
		require.Equal(t, append(seqsOf(held), event.Seq), seqsOf(messages))
		for i, was := range held {
			m := messages[i]
			require.Equal(t, [2]string{was.MessageID, was.SenderID}, [2]string{m.MessageID, m.SenderID})
			if m.SenderID == a.user {
				require.Equal(t, [4]any{"", "", chat.StatusRecalled, was.Version + 1}, [4]any{m.Text, m.SenderDeviceID, m.Status, m.Version})
			} else {
				require.Equal(t, was, m)
			}
		}
	}
	require.NotContains(t, operate(t, shared, "export", string(id)).must(t), "secret")
	require.Contains(t, operate(t, shared, "erase-user", "-yes", a.user).must(t), "blanked 0 messages and 0 edits")
	require.Empty(t, mustAudit(t, shared, `{"conversationId": "`+string(id)+`"}`).Violations)
}

// What the fan-out gave up is pushed when an operator replays it. An error that does
// not pass it gives up at once.
func TestAdmin_ReplaysADeadLetter(t *testing.T) {
	t.Parallel()
	db := startDatabase(t)
	data := t.TempDir()
	c := startCloud(t, "-data", data, "-dynamodb-endpoint", db.endpoint)
	a, b := mustConnect(t, c.Stack, newUser("alice"), "phone"), mustConnect(t, c.Stack, newUser("bob"), "phone")
	id := exchangeMessages(t, a, b, 1)
	require.NoError(t, b.awaitPushed(t.Context(), id, 1, 2))
	empty := operate(t, c.Stack, "replay")
	require.Empty(t, empty.must(t))
	require.Contains(t, empty.stderr, "there are no dead letters")

	messages := tableName(t, db.client, "Messages")
	db.set(func(operation string, request []byte, forward func() proxy.Answer) proxy.Answer {
		if operation == "Query" && bytes.Contains(request, []byte(messages)) {
			return failure("ValidationException")
		}
		return forward()
	})
	exchangeMessages(t, a, b, 1)
	letters := filepath.Join(data, "dead-letters", "inorder-DeadLetters.jsonl")
	lines := func() int {
		content, _ := os.ReadFile(letters)
		return bytes.Count(content, []byte("\n"))
	}
	require.Eventually(t, func() bool { return lines() > 0 }, patience, 20*time.Millisecond)
	require.Regexp(t, `replayable +SetAside .*`+string(id), operate(t, c.Stack, "replay").must(t))
	require.Regexp(t, `requeued +SetAside .*`+string(id), operate(t, c.Stack, "replay", "-yes").must(t))
	require.Eventually(t, func() bool { return lines() > 0 }, patience, 20*time.Millisecond, "it fails again")
	db.set(nil)
	// Both messages were in one batch, or each gets a letter of its own.
	require.Eventually(t, func() bool {
		_ = operate(t, c.Stack, "replay", "-yes")
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.pushed(id, 3, 4)
	}, patience, 20*time.Millisecond)
	require.Zero(t, lines(), "a letter that was replayed is gone")

	// One whose changes the stream has no more. Among them were joins into a large group.
	const large = "group:large"
	users := []string{b.user}
	for range chat.InboxGroupMax {
		users = append(users, newUser("other"))
	}
	put(t, db.client, "Conversations", map[string]any{
		"conversationId": large, "kind": chat.KindGroup, "lastSeq": 5, "membersVersion": 1, "memberCount": len(users), "state": chat.StateActive,
		"updatedAt": time.Now().UnixMilli(),
	})
	for _, user := range users {
		put(t, db.client, "Members", map[string]any{"conversationId": large, "userId": user, "role": chat.RolePlain, "joinSeq": 1, "joinedSeq": 1})
	}
	now := time.Now().UTC().Format(time.RFC3339)
	old := `{"requestContext":{"condition":"RecordAgeExceeded"},"DDBStreamBatchInfo":{"shardId":"gone","startSequenceNumber":"1",` +
		`"endSequenceNumber":"2","approximateArrivalOfFirstRecord":"` + now + `","approximateArrivalOfLastRecord":"` + now + `","batchSize":1,` +
		`"streamArn":"arn:aws:dynamodb:us-east-1:000000000000:table/gone/stream/2026-01-01T00:00:00.000"}}` + "\n"
	require.NoError(t, os.WriteFile(letters, []byte(old), 0o600))
	var changed wire.Changed
	require.NoError(t, b.do(t.Context(), wire.ActionChanges, map[string]any{"syncCursor": 0}, &changed))
	cursor := changed.SyncCursor
	stays := operate(t, c.Stack, "replay", "-yes")
	require.Equal(t, 1, stays.code)
	require.Regexp(t, `tooOld +RecordAgeExceeded .* -raise`, stays.stdout)
	require.Regexp(t, `tooOld +RecordAgeExceeded .* -raise`, operate(t, c.Stack, "replay", "-raise").must(t), "not without -yes")
	require.Regexp(t, `raised +RecordAgeExceeded .* 23 sync heads, for 2 conversations`, operate(t, c.Stack, "replay", "-raise", "-yes").must(t))
	require.NoError(t, b.do(t.Context(), wire.ActionChanges, map[string]any{"syncCursor": cursor}, &changed))
	require.False(t, changed.Full)
	require.Len(t, changed.Conversations, 1)
	require.Equal(t, id, changed.Conversations[0].ConversationID)
	require.Len(t, changed.Heads, 1, "of the large group")
	require.Equal(t, wire.Head{ConversationID: large, CommittedMaxSeq: 5}, changed.Heads[0])
	require.Contains(t, operate(t, c.Stack, "replay").stderr, "there are no dead letters")
}

// An operator opens conversations for users, also where they may not themselves.
func TestAdmin_CreatesConversations(t *testing.T) {
	t.Parallel()
	c := startCloud(t, "-param", "DirectMessages=closed")
	a, b := newUser("alice"), newUser("bob")
	dry := operate(t, c.Stack, "create", a, b)
	require.Contains(t, dry.must(t), chat.SingleID(a, b))
	require.Contains(t, dry.stderr, "-yes")
	require.Equal(t, 1, operate(t, c.Stack, "show", string(chat.SingleID(a, b))).code, "not yet")

	require.Equal(t, []map[string]any{{"dryRun": true, "conversationId": string(chat.SingleID(a, b)), "duplicate": false}},
		decoded[map[string]any](t, operate(t, c.Stack, "create", "-json", a, b).must(t)))
	require.Contains(t, operate(t, c.Stack, "list").stderr, "there are no conversations yet")
	would := decoded[map[string]any](t, operate(t, c.Stack, "create-group", "-json", "-title", "T", "-owner", a, b).must(t))
	require.Equal(t, []map[string]any{{"dryRun": true, "owner": a, "title": "T", "members": []any{b}}}, would)
	require.Contains(t, operate(t, c.Stack, "create", a, "").stderr, "between", "nor is what cannot be")

	for range 2 { // it may be repeated
		created := decoded[wire.Sent](t, operate(t, c.Stack, "create", "-yes", "-json", a, b).must(t))
		require.Equal(t, chat.SingleID(a, b), created[0].ConversationID)
	}
	require.Equal(t, "there already: "+string(chat.SingleID(a, b))+"\n", operate(t, c.Stack, "create", a, b).must(t))
	alice := mustConnect(t, c.Stack, a, "phone")
	mustSend(t, alice, wire.Send{To: b, Text: "now I may"})

	args := []string{"create-group", "-yes", "-json", "-title", "All of us", "-owner", a, "-key", "k1", b, newUser("carol")}
	first := decoded[wire.Sent](t, operate(t, c.Stack, args...).must(t))[0]
	again := decoded[wire.Sent](t, operate(t, c.Stack, args...).must(t))[0]
	require.Equal(t, first.ConversationID, again.ConversationID, "one group of one key")
	head := decoded[chat.Conversation](t, operate(t, c.Stack, "show", "-json", string(first.ConversationID)).must(t))[0]
	require.Equal(t, [3]any{"All of us", a, 3}, [3]any{head.Title, head.Owner, head.MemberCount})
	require.Contains(t, operate(t, c.Stack, "create", "-yes", a, "").stderr, "between")
}

func TestAdmin_RaisesHeads(t *testing.T) {
	t.Parallel()
	c := startCloud(t)
	a, b := mustConnect(t, c.Stack, newUser("alice"), "phone"), mustConnect(t, c.Stack, newUser("bob"), "phone")
	first := exchangeMessages(t, a, b, 2)
	second := exchangeMessages(t, a, a, 1)

	require.Equal(t, "would raise 2 heads by 500\n", operate(t, c.Stack, "raise", "-all", "-margin", "500").must(t))
	require.Equal(t, "would raise the head of "+string(first)+", now at 4, by 500\n", operate(t, c.Stack, "raise", "-conversation", string(first), "-margin", "500").must(t))
	require.JSONEq(t, `{"dryRun": true, "conversationId": "`+string(first)+`", "before": 4, "margin": 500}`,
		operate(t, c.Stack, "raise", "-conversation", string(first), "-margin", "500", "-json").must(t))
	require.Equal(t, "raised 2 heads by 500\n", operate(t, c.Stack, "raise", "-all", "-margin", "500", "-yes").must(t))
	require.Equal(t, "raised the head of "+string(first)+" from 504 to 514\n", operate(t, c.Stack, "raise", "-conversation", string(first), "-margin", "10", "-yes").must(t))

	next := map[chat.ConversationID]int64{first: 515, second: 503}
	for id, seq := range next {
		sent := mustSend(t, a, wire.Send{ConversationID: id, Text: "on"})
		require.Equal(t, seq, sent.Seq)
		require.NoError(t, a.sync(t.Context(), id))
		messages := a.messages(id)
		require.Equal(t, seq, messages[len(messages)-1].Seq)
	}
	for _, args := range [][]string{{}, {"-all"}, {"-margin", "5"}, {"-all", "-conversation", string(first), "-margin", "5"}, {"-all", "-margin", "-1"}, {"-all", "-margin", "1000001"}} {
		refused := operate(t, c.Stack, append([]string{"raise"}, args...)...)
		require.Equal(t, 1, refused.code, args)
		require.Regexp(t, "-all|-margin", refused.stderr)
	}
}

// Work that breaks off says which command does the rest: on the same stack, and no
// more than was asked for.
func TestAdmin_SaysHowToGoOn(t *testing.T) {
	t.Parallel()
	db := startDatabase(t)
	c := startCloud(t, "-dynamodb-endpoint", db.endpoint)
	a := mustConnect(t, c.Stack, newUser("o'alice"), "phone")
	for range 3 {
		mustSend(t, a, wire.Send{To: newUser("bob"), Text: "hi"})
	}
	// breakOff lets what the tool asks for succeed n times, and fails it then. The
	// functions are at work too, and have no such requests.
	breakOff := func(n int64, operation, part string) {
		var done atomic.Int64
		db.set(func(op string, request []byte, forward func() proxy.Answer) proxy.Answer {
			if op == operation && bytes.Contains(request, []byte(part)) && done.Add(1) > n {
				return failure("AccessDeniedException") // of the tables, and not of one item
			}
			return forward()
		})
	}
	goOn := func(o operated) []string {
		db.set(nil)
		require.Equal(t, 1, o.code, o.stdout)
		_, command, found := strings.Cut(strings.TrimSpace(o.stderr), "go on with: ")
		require.True(t, found, o.stderr)
		words, err := exec.CommandContext(t.Context(), "sh", "-c", `printf '%s\n' `+command).Output()
		require.NoError(t, err)
		return strings.Split(strings.TrimSpace(string(words)), "\n")
	}
	const ofALedger, ofAHead = "FilterExpression", "Conversations"
	breakOff(0, "Query", ofALedger)
	nothing := operate(t, c.Stack, "erase-user", a.user)
	require.Equal(t, 1, nothing.code)
	require.NotContains(t, nothing.stderr, "go on", "it has not begun")
	breakOff(1, "Query", ofALedger)
	rest := goOn(operate(t, c.Stack, "erase-user", a.user))
	require.NotContains(t, rest, "-yes", "a dry run stays one")
	require.Regexp(t, `^would blank 2 messages .* in 2 conversations`, runAdmin(t, rest...).must(t))

	breakOff(1, "UpdateItem", ofAHead)
	rest = goOn(operate(t, c.Stack, "raise", "-all", "-margin", "10", "-yes"))
	require.Equal(t, "raised 2 heads by 10\n", runAdmin(t, rest...).must(t))
	for _, head := range decoded[chat.Conversation](t, operate(t, c.Stack, "list", "-json").must(t)) {
		require.Equal(t, int64(11), head.LastSeq, "each once")
	}
}

// What is damaged, or made to look like something else, stops no command of the operator's
// and does nothing to the terminal; the exit code says what was left undone.
func TestG10_TheOperatorsToolGoesOnPastWhatIsDamaged(t *testing.T) {
	t.Parallel()
	db := startDatabase(t)
	c := startCloud(t, "-dynamodb-endpoint", db.endpoint, "-param", "AuditSchedule=off")
	const alice = "-yes" // as a user may be called
	a, b := mustConnect(t, c.Stack, alice, "phone"), mustConnect(t, c.Stack, newUser("bob"), "phone")
	id := exchangeMessages(t, a, b, 2)
	other := mustSend(t, a, wire.Send{To: newUser("carol"), Text: "my secret"}).ConversationID
	line := map[string]any{"userId": b.user, "conversationId": id}
	change(t, db.client, "Inboxes", line, "SET readSeq = :x", map[string]any{":x": "\x1b[2J"})
	roster := operate(t, c.Stack, "roster", string(id))
	require.Regexp(t, `(?m)^`+alice+` .*\n`+b.user+` .*no line$`, roster.must(t))
	change(t, db.client, "Inboxes", line, "SET readSeq = :x", map[string]any{":x": 0})

	message := map[string]any{"conversationId": id, "seq": 1}
	change(t, db.client, "Messages", message, "SET serverTime = :x", map[string]any{":x": "\x1b[2J\u202e"})
	erase := []string{"erase-user", "-yes", "-addr", c.Page, "--", alice}
	left := runAdmin(t, erase...)
	require.Equal(t, 1, left.code)
	require.Contains(t, left.stdout, "blanked 2 messages")
	require.Contains(t, left.stderr, "-yes is not wholly erased: 1 damaged messages and 0 conversations were passed over")
	require.Regexp(t, `table=\S+ conversationId=`+string(id)+` seq=1 `, left.stderr)
	require.NotContains(t, operate(t, c.Stack, "export", string(other)).must(t), "secret")
	change(t, db.client, "Messages", message, "SET serverTime = :x", map[string]any{":x": 1})
	require.Contains(t, runAdmin(t, erase...).must(t), "blanked 1 messages")

	change(t, db.client, "Conversations", map[string]any{"conversationId": id}, "SET memberCount = :x", map[string]any{":x": "\x1b[2J"})
	raised := operate(t, c.Stack, "raise", "-all", "-margin", "5", "-yes")
	require.Equal(t, [2]any{1, "raised 1 heads by 5\n"}, [2]any{raised.code, raised.stdout})
	require.Contains(t, raised.stderr, "1 heads were passed over")
	change(t, db.client, "Conversations", map[string]any{"conversationId": id}, "SET memberCount = :x, title = :t, visibility = :v",
		map[string]any{":x": 2, ":t": "\x1b]0;title\a", ":v": "\u202ella\t\n\u009b2J"})

	var seen strings.Builder
	for _, args := range [][]string{{"list"}, {"show", string(id)}, {"ledger", string(id), "-content"}, {"repair", string(id)}, {"show", string(id), "-json"}, {"export", string(id)}} {
		o := operate(t, c.Stack, args...)
		seen.WriteString(o.must(t) + o.stderr)
	}
	for _, o := range []operated{roster, left, raised} {
		seen.WriteString(o.stdout + o.stderr)
	}
	for _, r := range seen.String() {
		require.True(t, strconv.IsPrint(r) || r == '\n', "%q in %q", r, seen.String())
	}
}
