package integration_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	raw "github.com/inorder-im/inorder/integration/device"
	"github.com/inorder-im/inorder/integration/proxy"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/metric"
	"github.com/inorder-im/inorder/shared/metric/metrictest"
	"github.com/inorder-im/inorder/shared/wire"
)

// notHere are metrics that this test cannot bring about: a table has no two items
// with one key, and the others take an audit of whole ledgers.
var notHere = []metric.Name{
	metric.InvariantDuplicateSeq, metric.InvariantHole, metric.InvariantHead, metric.InvariantPosition, metric.InvariantRevision,
}

// secrets makes up what must not get into a log, and keeps it.
type secrets []string

func (s *secrets) make(what string) string {
	*s = append(*s, newUser("secret-"+what))
	return (*s)[len(*s)-1]
}

// token keeps each part of a token on its own too.
func (s *secrets) token(token string) string {
	*s = append(*s, token)
	for part := range strings.SplitSeq(token, ".") {
		if len(part) > 20 {
			*s = append(*s, part)
		}
	}
	return token
}

// TestEveryMetricIsEmittedAndNoLogHasContent makes the functions do all they
// count, with all lines on, and reads what they wrote.
func TestEveryMetricIsEmittedAndNoLogHasContent(t *testing.T) {
	t.Parallel()
	db := startDatabase(t)
	c := startCloud(t, "-dynamodb-endpoint", db.endpoint,
		"-param", "UserConnectsPerSecond=0.1", "-param", "UserConnectBurst=20",
		"-param", "ConversationWritesPerSecond=400", "-param", "LogLevel=debug", "-param", "Alarms=on", "-param", "AlarmEmail=ops@example.com")
	o := &observed{t: t, cloud: c, db: db}
	o.handshakes()
	o.messages()
	o.fullConversation()
	o.groups()
	o.refusals()
	o.publications()
	o.deadConnections()
	o.failedPush()
	o.brokenLedger()

	missing := func() (names []metric.Name) {
		seen := o.published()
		for _, name := range metric.Names() {
			if !seen[name] && !slices.Contains(notHere, name) {
				names = append(names, name)
			}
		}
		return names
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); len(missing()) > 0; <-tick.C {
		require.True(t, time.Now().Before(deadline), "no function emitted %v", missing())
	}
	require.NoError(t, c.Stop()) // so that all is written
	o.requireNoSecret()
	o.requireIdentified()
}

// failedPush lets the fan-out fail once, and set the conversation aside.
func (o *observed) failedPush() {
	o.t.Helper()
	messages := []byte(tableName(o.t, o.db.client, "Messages"))
	o.db.set(func(operation string, request []byte, forward func() proxy.Answer) proxy.Answer {
		if operation == "Query" && bytes.Contains(request, messages) {
			return failure("AccessDeniedException")
		}
		return forward()
	})
	_, err := o.ann.send(o.t.Context(), wire.Send{To: o.bob.user, Text: o.secrets.make("text")})
	require.NoError(o.t, err)
	require.Eventually(o.t, func() bool { return o.published()[metric.SetAside] }, patience, 10*time.Millisecond)
	o.db.set(nil)
}

// observed is a local cloud whose output is read.
type observed struct {
	t       *testing.T
	cloud   *localCloud
	db      *database
	secrets secrets

	ann, bob *device
}

// lines returns the JSON lines of the functions.
func (o *observed) lines() []string {
	var found []string
	for line := range strings.Lines(o.cloud.stderr.String()) {
		if _, text, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " | {"); ok && strings.HasSuffix(line, "\n") {
			found = append(found, "{"+text)
		}
	}
	return found
}

// published says which metrics were, and checks every line by CloudWatch's rules.
func (o *observed) published() map[metric.Name]bool {
	o.t.Helper()
	seen := map[metric.Name]bool{}
	for _, line := range o.lines() {
		values, err := metrictest.Published([]byte(line))
		require.NoError(o.t, err, line)
		for name := range values {
			seen[name] = true
		}
	}
	return seen
}

func (o *observed) requireNoSecret() {
	o.t.Helper()
	output := o.cloud.stderr.String()
	require.Greater(o.t, len(o.secrets), 20)
	for _, secret := range o.secrets {
		if at := strings.Index(output, secret); at >= 0 {
			start := strings.LastIndexByte(output[:at], '\n') + 1
			line, _, _ := strings.Cut(output[start:], "\n")
			o.t.Errorf("%q is in the log: %s", secret, line)
		}
	}
}

// requireIdentified checks that each kind of line says what it is about.
func (o *observed) requireIdentified() {
	o.t.Helper()
	request := []string{"requestId", "connectionId", "userId", "deviceId", "action", "code", "ms"}
	entry := []string{"conversationId", "seq", "messageId", "TransactionAttempts"}
	for what, fields := range map[string][]string{
		`"action":"send","code":"OK"`:       slices.Concat(request, entry, []string{"Sends", "SendLatency"}),
		`"action":"send","code":"INTERNAL"`: append(request, "conversationId", "SendFailures", "err"),
		`"action":"recall","code":"OK"`:     slices.Concat(request, entry),
		`"action":"edit","code":"OK"`:       slices.Concat(request, entry),
		`"action":"createGroup"`:            slices.Concat(request, entry),
		`"action":"setTitle","code":"OK"`:   slices.Concat(request, entry),
		`"action":"sync","code":"OK"`:       append(request, "conversationId", "seq", "SyncCalls"),
		`"action":"history","code":"OK"`:    append(request, "conversationId", "entries"),
		`"action":"ack","code":"OK"`:        append(request, "conversationId", "seq"),
		`"code":"BAD_REQUEST","ms"`:         append(request, "field"),
		`"msg":"publish"`:                   {"requestId", "conversationId", "seq", "messageId", "code", "ms", "Sends"},
		`"msg":"batch"`:                     {"records", "conversations", "entries", "failures", "ms", "StreamAge"},
		`"reason":"signature"`:              {"requestId", "reason", "AuthorizerRefusals"},
		`"msg":"connected"`:                 {"requestId", "connectionId", "userId", "deviceId", "ConnectionsOpened"},
		`"msg":"disconnected"`:              {"requestId", "connectionId", "userId", "deviceId", "ConnectionsClosed"},
	} {
		lines := o.lines()
		i := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, what) })
		require.GreaterOrEqual(o.t, i, 0, "no line has %s", what)
		var members map[string]any
		require.NoError(o.t, json.Unmarshal([]byte(lines[i]), &members))
		for _, field := range fields {
			require.Contains(o.t, members, field, lines[i])
			require.NotEqual(o.t, "", members[field], "%s of %s", field, lines[i])
		}
	}
}

func (o *observed) do(d *device, action string, request any) {
	o.t.Helper()
	require.NoError(o.t, d.do(o.t.Context(), action, request, nil), action)
}

// refused sends what has to be refused with this code.
func (o *observed) refused(d *device, code chat.Code, action string, request any) {
	o.t.Helper()
	var r *refusal
	require.ErrorAs(o.t, d.do(o.t.Context(), action, request, nil), &r, action)
	require.Equal(o.t, code, r.Frame.Code, action)
}

func (o *observed) handshakes() {
	o.t.Helper()
	ctx := o.t.Context()
	for hasty := newUser("hasty"); handshakeOf(o.t, o.cloud.Stack, hasty) != http.StatusTooManyRequests; {
	}
	user := newUser("ann")
	token, err := o.cloud.Token(ctx, user, nil)
	require.NoError(o.t, err)
	o.secrets.token(token)
	device := url.Values{"device": {"phone"}}
	forged := o.secrets.token(token[:len(token)-8] + "AAAAAAAA")
	foreign, err := o.cloud.Token(ctx, user, url.Values{"iss": {"https://other.example.com/"}})
	require.NoError(o.t, err)
	o.secrets.token(foreign)
	for name, header := range map[string]http.Header{
		"forged":      raw.Bearer(forged),
		"none":        {},
		"no token":    raw.Bearer(o.secrets.make("bearer")),
		"two":         {"Authorization": {"Bearer " + token, "Bearer " + forged}},
		"subprotocol": {"Sec-WebSocket-Protocol": {wire.Subprotocol + ", " + wire.BearerPrefix + forged}},
		"foreign":     raw.Bearer(foreign),
	} {
		_, status, err := raw.Handshake(ctx, o.cloud.Socket, device, &websocket.DialOptions{HTTPHeader: header})
		require.Error(o.t, err, name)
		require.Contains(o.t, []int{http.StatusUnauthorized, http.StatusForbidden}, status, name)
	}
	for _, query := range []url.Values{{"token": {token}}, {"device": {"phone"}, "token": {token}}} {
		_, _, err = raw.Handshake(ctx, o.cloud.Socket, query, nil)
		require.Error(o.t, err)
	}
	_, status, err := raw.Handshake(ctx, o.cloud.Socket, url.Values{"device": {o.secrets.make("device") + "?"}}, &websocket.DialOptions{HTTPHeader: raw.Bearer(token)})
	require.Error(o.t, err)
	require.Equal(o.t, http.StatusBadRequest, status)

	replaced := mustConnect(o.t, o.cloud.Stack, user, "phone")
	o.ann = mustConnect(o.t, o.cloud.Stack, user, "phone")
	require.NoError(o.t, replaced.await(ctx, "the end", func() bool { return replaced.conn.Err() != nil }))
	o.bob = mustConnect(o.t, o.cloud.Stack, newUser("bob"), "phone")
}

func (o *observed) messages() {
	o.t.Helper()
	ctx := o.t.Context()
	say := func() wire.Send {
		return wire.Send{
			To: o.bob.user, MessageType: chat.TypeCustom, ClientMsgID: newUser("m"),
			Text: o.secrets.make("text"), Data: json.RawMessage(`{"` + o.secrets.make("name") + `":"` + o.secrets.make("data") + `"}`),
		}
	}
	first := say()
	sent := mustSend(o.t, o.ann, first)
	again := mustSend(o.t, o.ann, first)
	require.True(o.t, again.Duplicate)
	first.Text = o.secrets.make("other")
	o.refused(o.ann, chat.CodeIdempotencyConflict, wire.ActionSend, first)

	o.db.set(conflicting(2))
	second := mustSend(o.t, o.ann, say())
	o.db.set(func(operation string, _ []byte, forward func() proxy.Answer) proxy.Answer {
		if operation == "TransactWriteItems" {
			return failure("ValidationException")
		}
		return forward()
	})
	o.refused(o.ann, chat.CodeInternal, wire.ActionSend, say())
	o.db.set(nil)
	require.NoError(o.t, o.bob.awaitNews(ctx, second))

	id := sent.ConversationID
	edit := wire.Edit{ConversationID: id, Seq: second.Seq, MessageID: second.MessageID, Version: 1, Text: o.secrets.make("edit"), ClientMsgID: newUser("e")}
	edit.Data = json.RawMessage(`{"x":"` + o.secrets.make("data") + `"}`)
	o.do(o.ann, wire.ActionEdit, edit)
	o.do(o.ann, wire.ActionRecall, wire.Recall{ConversationID: id, Seq: second.Seq, MessageID: second.MessageID, ClientMsgID: newUser("r")})
	o.do(o.bob, wire.ActionAck, map[string]any{"conversationId": id, "readSeq": 2})
	o.do(o.bob, wire.ActionHistory, map[string]any{"conversationId": id})

	o.db.set((&hider{seen: map[string]int{}}).meddle)
	desk := mustConnect(o.t, o.cloud.Stack, o.bob.user, "desk") // a device takes what was recalled for another message
	require.NoError(o.t, desk.sync(ctx, id))
	o.db.set(nil)
	change(o.t, o.db.client, "Messages", map[string]any{"conversationId": id, "seq": 1}, "", nil)
	fresh := mustConnect(o.t, o.cloud.Stack, o.bob.user, "laptop")
	require.NoError(o.t, fresh.sync(ctx, id))
	require.Equal(o.t, []int64{1}, fresh.skipped(id))
	o.do(fresh, wire.ActionConversations, nil)
	o.do(fresh, wire.ActionChanges, map[string]any{"syncCursor": 0})
	o.do(fresh, wire.ActionReceipts, map[string]any{"conversationId": id, "seq": 2})
	o.do(fresh, wire.ActionClear, map[string]any{"conversationId": id, "throughSeq": 2})
	fresh.close()
}

// fullConversation lets a reply, for which the head is read, meet a bucket that is empty.
func (o *observed) fullConversation() {
	o.t.Helper()
	first := mustSend(o.t, o.ann, wire.Send{To: newUser("eve"), Text: o.secrets.make("text")})
	for {
		fullAt := time.Now().Add(1900 * time.Millisecond).UnixMicro()
		change(o.t, o.db.client, "Conversations", map[string]any{"conversationId": first.ConversationID}, "SET fullAt = :at", map[string]any{":at": fullAt})
		err := o.ann.do(o.t.Context(), wire.ActionSend, wire.Send{
			ConversationID: first.ConversationID, ClientMsgID: newID(), MessageType: chat.TypeText, Text: o.secrets.make("text"),
			ReplyTo: &chat.ReplyTo{Seq: first.Seq, MessageID: first.MessageID},
		}, nil)
		if refused, is := errors.AsType[*refusal](err); is {
			require.Equal(o.t, chat.CodeBusy, refused.Frame.Code)
			return
		}
		require.NoError(o.t, err)
	}
}

// conflicting lets the next n transactions run into a conflict.
func conflicting(n int64) meddle {
	var left atomic.Int64
	left.Store(n)
	return func(operation string, request []byte, forward func() proxy.Answer) proxy.Answer {
		if operation != "TransactWriteItems" || left.Add(-1) < 0 {
			return forward()
		}
		return conflict(strings.Count(string(request), `"TableName"`))
	}
}

func (o *observed) groups() {
	o.t.Helper()
	var group wire.Created
	require.NoError(o.t, o.ann.do(o.t.Context(), wire.ActionCreateGroup, wire.CreateGroup{
		Title: o.secrets.make("title"), Members: []string{o.bob.user}, ClientMsgID: newUser("g"),
	}, &group))
	change := func(action string, more map[string]any) {
		o.t.Helper()
		request := map[string]any{"conversationId": group.ConversationID, "clientMsgId": newUser("c")}
		for name, value := range more {
			request[name] = value
		}
		o.do(o.ann, action, request)
	}
	change(wire.ActionSetTitle, map[string]any{"title": o.secrets.make("title")})
	change(wire.ActionSetRole, map[string]any{"userId": o.bob.user, "role": chat.RoleAdmin})
	change(wire.ActionRemoveMembers, map[string]any{"members": []string{o.bob.user}})
	change(wire.ActionAddMembers, map[string]any{"members": []string{o.bob.user}})
	o.do(o.bob, wire.ActionMembers, map[string]any{"conversationId": group.ConversationID})
	change(wire.ActionLeave, nil)
	o.refused(o.ann, chat.CodeNotFound, wire.ActionSetTitle, map[string]any{
		"conversationId": group.ConversationID, "clientMsgId": newUser("c"), "title": o.secrets.make("title"),
	})
}

// refusals quotes secrets in every field that an error might repeat.
func (o *observed) refusals() {
	o.t.Helper()
	secret := o.secrets.make
	text := func(more map[string]any) map[string]any {
		request := map[string]any{"to": o.bob.user, "clientMsgId": newUser("m"), "messageType": "text", "text": secret("text")}
		for name, value := range more {
			request[name] = value
		}
		return request
	}
	for i, tc := range []struct {
		action  string
		request map[string]any
		code    chat.Code
	}{
		{secret("action"), map[string]any{}, chat.CodeUnknownAction},
		{wire.ActionSend, text(map[string]any{"messageType": secret("type")}), chat.CodeBadRequest},
		{wire.ActionSend, text(map[string]any{"messageType": "image", "data": []string{secret("list")}}), chat.CodeBadRequest},
		{wire.ActionSend, text(map[string]any{"clientMsgId": "ü" + secret("id")}), chat.CodeBadRequest},
		{wire.ActionSend, text(map[string]any{"text": strings.Repeat(secret("long"), 300)}), chat.CodeTooLarge},
		{wire.ActionSend, text(map[string]any{"text": []string{secret("list")}}), chat.CodeBadRequest},
		{wire.ActionSend, text(map[string]any{"replyTo": map[string]any{"seq": 1, "messageId": secret("reply")}}), chat.CodeNotFound},
		{wire.ActionSend, text(map[string]any{"to": nil, "conversationId": secret("room")}), chat.CodeBadRequest},
		{wire.ActionSend, text(map[string]any{"to": nil, "conversationId": "group:" + secret("room")}), chat.CodeNotFound},
		{wire.ActionSync, map[string]any{"conversationId": "group:" + secret("room"), "afterSeq": 0}, chat.CodeNotFound},
		{wire.ActionSync, map[string]any{"conversationId": "group:x", "afterSeq": secret("seq")}, chat.CodeBadRequest},
		{wire.ActionConversations, map[string]any{"cursor": secret("cursor")}, chat.CodeBadRequest},
		{wire.ActionCreateGroup, map[string]any{"title": secret("title"), "members": []string{}, "visibility": secret("visibility"), "clientMsgId": "c"}, chat.CodeBadRequest},
		{wire.ActionCreateGroup, map[string]any{"title": strings.Repeat(secret("title"), 99), "members": []string{}, "clientMsgId": "c"}, chat.CodeTooLarge},
		{wire.ActionSetRole, map[string]any{"conversationId": "group:x", "userId": o.bob.user, "role": secret("role"), "clientMsgId": "c"}, chat.CodeBadRequest},
		{wire.ActionRecall, map[string]any{"conversationId": "group:x", "seq": 1, "messageId": secret("target"), "clientMsgId": "c"}, chat.CodeNotFound},
	} {
		var r *refusal
		require.ErrorAs(o.t, o.ann.do(o.t.Context(), tc.action, tc.request, nil), &r, "%d: %s", i, tc.action)
		require.Equal(o.t, tc.code, r.Frame.Code, "%d: %s: %s", i, tc.action, r.Frame.Message)
	}
	for _, frame := range []string{secret("frame"), `{"action":"send","id":"1","text":"` + secret("cut")} {
		a, err := o.ann.exchange(o.t.Context(), "", []byte(frame))
		require.NoError(o.t, err)
		require.Equal(o.t, chat.CodeUnknownAction, a.Error.Code)
	}
	_, err := o.bob.exchange(o.t.Context(), "", []byte(`{"action":"sync","id":"","text":"`+secret("sync")+`"}`))
	require.NoError(o.t, err)
}

func (o *observed) publications() {
	o.t.Helper()
	p := publication{
		Key: newUser("order"), Title: o.secrets.make("title"), Recipients: []string{o.ann.user}, ClientMsgID: newUser("p"),
		Text: o.secrets.make("publication"), Data: json.RawMessage(`{"x":"` + o.secrets.make("data") + `"}`),
	}
	sent := mustPublish(o.t, o.cloud.Stack, p)
	require.NoError(o.t, o.ann.awaitNews(o.t.Context(), sent))
	p.Text = o.secrets.make("publication")
	_, err := publish(o.t.Context(), o.t, o.cloud.Stack, p)
	require.ErrorContains(o.t, err, "IDEMPOTENCY_CONFLICT")
	p.MessageType = o.secrets.make("type")
	_, err = publish(o.t.Context(), o.t, o.cloud.Stack, p)
	require.ErrorContains(o.t, err, "BAD_REQUEST")
	_, err = publish(o.t.Context(), o.t, o.cloud.Stack, map[string]any{"key": "k", "text": []string{o.secrets.make("list")}})
	require.Error(o.t, err)
}

// deadConnections makes pushes meet a socket that is gone, and one that may be on
// its way.
func (o *observed) deadConnections() {
	o.t.Helper()
	ctx := o.t.Context()
	leaveBehind(o.t, o.db.client, o.bob.user, time.Hour, "TWegAcC4EowCHnA=|tablet")
	leaveBehind(o.t, o.db.client, o.bob.user, 0, "TWegAcC4EowCHnB=|watch")
	sent := mustSend(o.t, o.ann, wire.Send{To: o.bob.user, Text: o.secrets.make("text")})
	require.NoError(o.t, o.bob.awaitNews(ctx, sent))
}

// brokenLedger breaks what the functions never do: it gives two messages one
// clientMsgId, damages a third, and sets their head back, and forth again.
func (o *observed) brokenLedger() {
	o.t.Helper()
	var sent wire.Sent
	for range 3 {
		sent = mustSend(o.t, o.ann, wire.Send{To: o.ann.user, Text: o.secrets.make("text")})
	}
	for seq := range 2 {
		o.set(sent.ConversationID, seq+1, "clientMsgId", "twice")
	}
	o.set(sent.ConversationID, 3, "serverTime", o.secrets.make("damage"))
	for _, lastSeq := range []int64{0, 3} {
		setLastSeq(o.t, o.db.client, sent.ConversationID, lastSeq)
	}
}

// set changes one attribute of a message past the functions.
func (o *observed) set(conversationID chat.ConversationID, seq int, name, value string) {
	o.t.Helper()
	change(o.t, o.db.client, "Messages", map[string]any{"conversationId": conversationID, "seq": seq}, "SET "+name+" = :v", map[string]any{":v": value})
}
