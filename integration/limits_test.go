package integration_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	raw "github.com/inorder-im/inorder/integration/device"
	"github.com/inorder-im/inorder/integration/proxy"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/wire"
)

// A conversation that has taken what it takes refuses all who write to it, and says when
// to come again; their other conversations go on.
func TestLimits_AHotConversationStopsNoOther(t *testing.T) {
	t.Parallel()
	c := startCloud(t, "-param", "ConversationWritesPerSecond=1")
	alice, bob := mustConnect(t, c.Stack, newUser("alice"), "phone"), mustConnect(t, c.Stack, newUser("bob"), "phone")
	message := func(to, id string) wire.Send {
		return wire.Send{To: to, ClientMsgID: id, MessageType: chat.TypeText, Text: "!"}
	}
	var refused *refusal
	id := ""
	for from, to := alice, bob; refused == nil; from, to = to, from {
		id = newID()
		err := from.do(t.Context(), wire.ActionSend, message(to.user, id), nil)
		if _, is := errors.AsType[*refusal](err); !is {
			require.NoError(t, err)
			continue
		}
		refused, _ = errors.AsType[*refusal](err)
		require.Equal(t, chat.CodeBusy, refused.Frame.Code)
		require.Contains(t, refused.Frame.Message, "takes 1 messages a second")
		require.NoError(t, from.do(t.Context(), wire.ActionSend, message(newUser("carol"), newID()), nil), "beside it all is as ever")
		alice, bob = from, to
	}
	// Who waits as long as told is taken: nobody else writes.
	ms, _ := refused.Frame.Details[chat.DetailRetryAfter].(float64)
	require.Positive(t, ms)
	again := time.After(time.Duration(ms) * time.Millisecond)
	require.Eventually(t, func() bool { return strings.Contains(c.stderr.String(), `"HotRefusals":1`) }, patience, time.Millisecond)
	<-again
	var sent wire.Sent
	require.NoError(t, alice.do(t.Context(), wire.ActionSend, message(bob.user, id), &sent))
	require.Equal(t, chat.SingleID(alice.user, bob.user), sent.ConversationID)
}

// What API Gateway throttles it says itself, and without the request's id. A
// client goes on asking, and everything gets through in the end.
func TestLimits_TheAPIThrottles(t *testing.T) {
	t.Parallel()
	const burst = 8
	c := startCloud(t, "-param", "RequestsPerSecond=1", "-param", "RequestBurst="+strconv.Itoa(burst),
		"-param", "ConnectsPerSecond=1", "-param", "ConnectBurst="+strconv.Itoa(burst))
	d := mustConnect(t, c.Stack, newUser("alice"), "phone")
	for throttled := false; !throttled; {
		a, err := d.ask(t.Context(), wire.ActionPing, nil)
		require.NoError(t, err)
		throttled = a.Type == ""
		require.Equal(t, throttled, a.Platform == "Too Many Requests", "%+v", a)
	}
	bob := newUser("bob")
	sender := dialClient(t, c.Stack, newUser("carol"))
	for i := 0; i < burst+3 || sender.Stats().Resent == 0; i++ { // until some were throttled
		sent, err := sender.Send(t.Context(), client.Draft{To: bob, Text: text(0, i)})
		require.NoError(t, err)
		require.Equal(t, int64(i+1), sent.Seq)
	}

	for handshakeOf(t, c.Stack, bob) == http.StatusSwitchingProtocols {
		continue
	}
	receiver := dialClient(t, c.Stack, bob)
	require.NoError(t, receiver.Online(t.Context()), "it tries the handshake again")
}

// clientOf is what a Go client of a user starts with.
func clientOf(s stack, user, device string) client.Config {
	return client.Config{
		URL: s.Socket, UserID: user, DeviceID: device,
		Token: func(ctx context.Context) (string, error) { return s.Token(ctx, user, nil) },
	}
}

// dialClient starts a Go client that ends with the test.
func dialClient(t *testing.T, s stack, user string) *client.Client {
	t.Helper()
	c, err := client.Dial(t.Context(), clientOf(s, user, "phone"))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// What is malformed or too large is refused before anything is asked of DynamoDB.
func TestLimits_BadFramesDoNotReachDynamoDB(t *testing.T) {
	t.Parallel()
	db := startDatabase(t)
	c := startCloud(t, "-dynamodb-endpoint", db.endpoint)
	d := mustConnect(t, c.Stack, newUser("mallory"), "phone")
	var reached requests
	db.set(reached.note)

	n := 0
	for _, tt := range slices.Concat(badFrames("group:foreign"), moreBadFrames()) {
		if tt.code != chat.CodeBadRequest && tt.code != chat.CodeTooLarge && tt.code != chat.CodeUnknownAction && tt.code != chat.CodeLimit {
			continue // well-formed, and refused for what the tables say
		}
		n++
		got, err := d.exchange(t.Context(), "7", []byte(tt.frame))
		require.NoError(t, err, tt.name)
		require.Equal(t, tt.code, got.Error.Code, "%s: %+v", tt.name, got)
		require.Equal(t, tt.field, got.Error.Field, "%s: %+v", tt.name, got)
		require.Empty(t, reached.all(), tt.name)
	}
	require.Greater(t, n, 100)

	for name, tt := range map[string]struct {
		kind websocket.MessageType
		data string
	}{
		"a binary frame": {websocket.MessageBinary, `{"action":"changes","id":"7","syncCursor":0}`},
		"a frame of more than 32 KB": {websocket.MessageText, `{"action":"changes","id":"7","syncCursor":0` +
			strings.Repeat(" ", wire.MaxFrameBytes) + `}`},
	} {
		require.NoError(t, d.conn.Write(t.Context(), tt.kind, []byte(tt.data)), name)
		<-d.conn.Closed()
		require.NoError(t, d.reconnect(t.Context()))
	}
	for _, r := range reached.all() {
		require.True(t, strings.HasPrefix(r, "UpdateItem ") && strings.Contains(r, "Connections"), "only connections came and went: %s", r)
	}
	require.NoError(t, d.do(t.Context(), wire.ActionChanges, map[string]any{"syncCursor": 0}, nil))
	require.True(t, slices.ContainsFunc(reached.all(), func(r string) bool { return strings.Contains(r, "Inboxes") }), "what is right is seen")
}

// requests keeps what DynamoDB is asked for.
type requests struct {
	mu   sync.Mutex
	seen []string
}

func (r *requests) note(operation string, request []byte, forward func() proxy.Answer) proxy.Answer {
	r.mu.Lock()
	r.seen = append(r.seen, operation+" "+string(request))
	r.mu.Unlock()
	return forward()
}

func (r *requests) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.seen)
}

// moreBadFrames are those of the actions that badFrames leaves out.
func moreBadFrames() []badFrame {
	const (
		ack    = `{"action":"ack","id":"7","conversationId":"group:x","readSeq":1}`
		clean  = `{"action":"clear","id":"7","conversationId":"group:x","throughSeq":1}`
		recall = `{"action":"recall","id":"7","conversationId":"group:x","seq":1,"messageId":"m","clientMsgId":"c"}`
		edit   = `{"action":"edit","id":"7","conversationId":"group:x","seq":1,"messageId":"m","version":1,"text":"hi","clientMsgId":"c"}`
		create = `{"action":"createGroup","id":"7","title":"Trip","members":["bob"],"clientMsgId":"c"}`
		add    = `{"action":"addMembers","id":"7","conversationId":"group:x","members":["bob"],"clientMsgId":"c"}`
		remove = `{"action":"removeMembers","id":"7","conversationId":"group:x","members":["bob"],"clientMsgId":"c"}`
		leave  = `{"action":"leave","id":"7","conversationId":"group:x","clientMsgId":"c"}`
		role   = `{"action":"setRole","id":"7","conversationId":"group:x","userId":"bob","role":"admin","clientMsgId":"c"}`
		title  = `{"action":"setTitle","id":"7","conversationId":"group:x","title":"Trip","clientMsgId":"c"}`
		end    = `{"action":"dissolve","id":"7","conversationId":"group:x","clientMsgId":"c"}`
		list   = `{"action":"members","id":"7","conversationId":"group:x"}`
		tell   = `{"action":"receipts","id":"7","conversationId":"group:x","seq":1}`
	)
	var crowd []string
	for i := range 49 {
		crowd = append(crowd, "user"+strconv.Itoa(i))
	}
	many, _ := json.Marshal(crowd)
	all := []badFrame{
		{"ack of nothing", without(ack, "readSeq"), chat.CodeBadRequest, "readSeq"},
		{"ack of 0", with(ack, "readSeq", `0`), chat.CodeBadRequest, "readSeq"},
		{"ack of half", with(ack, "readSeq", `1.5`), chat.CodeBadRequest, "readSeq"},
		{"ack beyond numbers", with(ack, "deliveredSeq", `9007199254740992`), chat.CodeBadRequest, "deliveredSeq"},
		{"clear of nothing", without(clean, "throughSeq"), chat.CodeBadRequest, "throughSeq"},
		{"clear of less than nothing", with(clean, "throughSeq", `-1`), chat.CodeBadRequest, "throughSeq"},
		{"recall of seq 0", with(recall, "seq", `0`), chat.CodeBadRequest, "seq"},
		{"recall without messageId", without(recall, "messageId"), chat.CodeBadRequest, "messageId"},
		{"edit of no version", with(edit, "version", `0`), chat.CodeBadRequest, "version"},
		{"edit of seq -1", with(edit, "seq", `-1`), chat.CodeBadRequest, "seq"},
		{"edit without messageId", without(edit, "messageId"), chat.CodeBadRequest, "messageId"},
		{"edit to 4,001 characters", with(edit, "text", quoted(4001)), chat.CodeTooLarge, "text"},
		{"edit to more than 24 KB", with(edit, "data", `{"x":`+quoted(24*1024)+`}`), chat.CodeTooLarge, ""},
		{"a group without members", without(create, "members"), chat.CodeBadRequest, "members"},
		{"a group with oneself twice", with(create, "members", `["bob","bob"]`), chat.CodeBadRequest, "members"},
		{"a group of a number", with(create, "members", `[7]`), chat.CodeBadRequest, "members"},
		{"a group of too many", with(create, "members", string(many)), chat.CodeLimit, "members"},
		{"a group without a title", without(create, "title"), chat.CodeBadRequest, "title"},
		{"a group of no visibility", with(create, "visibility", `"some"`), chat.CodeBadRequest, "visibility"},
		{"adding nobody", with(add, "members", `[]`), chat.CodeBadRequest, "members"},
		{"adding too many", with(add, "members", string(many)), chat.CodeLimit, "members"},
		{"removing nobody", with(remove, "members", `[]`), chat.CodeBadRequest, "members"},
		{"removing too many", with(remove, "members", string(many)), chat.CodeLimit, "members"},
		{"a role that is none", with(role, "role", `"king"`), chat.CodeBadRequest, "role"},
		{"a role of nobody", with(role, "userId", `""`), chat.CodeBadRequest, "userId"},
		{"a title of nothing", without(title, "title"), chat.CodeBadRequest, "title"},
		{"a title of two lines", with(title, "title", `"a\nb"`), chat.CodeBadRequest, "title"},
		{"members from a made-up cursor", with(list, "cursor", quoted(129)), chat.CodeBadRequest, "cursor"},
		{"receipts of seq 0", with(tell, "seq", `0`), chat.CodeBadRequest, "seq"},
		{"receipts from a made-up cursor", with(tell, "cursor", quoted(129)), chat.CodeBadRequest, "cursor"},
	}
	for _, frame := range []string{ack, clean, recall, edit, add, remove, leave, role, title, end, list, tell} {
		all = append(all, badFrame{"no conversation: " + frame, with(frame, "conversationId", `"bob"`), chat.CodeBadRequest, "conversationId"})
	}
	for _, frame := range []string{recall, edit, create, add, remove, leave, role, title, end} {
		all = append(all, badFrame{"no key: " + frame, without(frame, "clientMsgId"), chat.CodeBadRequest, "clientMsgId"})
	}
	return all
}

// expiring asks for tokens with a few seconds left: the authorizer allows clocks to
// differ by 30 seconds, and this one stands behind by most of them.
func expiring() url.Values { return url.Values{"ttl": {(timeLeft - 30*time.Second).String()}} }

// timeLeft has to suffice for a handshake, on a machine that has much to do.
const timeLeft = 8 * time.Second

// expiringDevice connects with a token that is about to expire, and returns when it
// will have.
func expiringDevice(t *testing.T, s stack, user string) (*device, time.Time) {
	t.Helper()
	d := newDevice(s, user, "phone")
	d.tokens = expiring()
	require.NoError(t, d.reconnect(t.Context()))
	expires := time.Now().Add(timeLeft) // at the latest
	t.Cleanup(func() {
		d.close()
		if err := d.fault(); err != nil {
			t.Error(err)
		}
	})
	return d, expires
}

func TestLimits_AnExpiredTokenEndsTheConnection(t *testing.T) {
	t.Parallel()
	db := startDatabase(t)
	c := startCloud(t, "-dynamodb-endpoint", db.endpoint)
	registered := func(t *testing.T, user string) int {
		t.Helper()
		return len(connections(t, db.client, user))
	}

	t.Run("of who asks for something, which is not done", func(t *testing.T) {
		t.Parallel()
		d, expires := expiringDevice(t, c.Stack, newUser("alice"))
		bob, acked, id := newUser("bob"), 0, chat.ConversationID("")
		for {
			var sent wire.Sent
			err := d.do(t.Context(), wire.ActionSend, wire.Send{To: bob, ClientMsgID: newID(), MessageType: chat.TypeText, Text: "hi"}, &sent)
			if errors.Is(err, raw.ErrClosed) {
				break
			}
			require.NoError(t, err)
			acked, id = acked+1, sent.ConversationID
		}
		requireDismissed(t, d, wire.GoodbyeExpired)
		require.Eventually(t, func() bool { return registered(t, d.user) == 0 }, patience, time.Millisecond, "$disconnect names the very entry")

		d.tokens = nil
		require.NoError(t, d.reconnect(t.Context()))
		require.NoError(t, d.sync(t.Context(), id))
		// The fan-out, pushing an earlier message, may have ended the connection at the
		// moment of the expiry, and before the last one that was still right was answered.
		messages := d.messages(id)
		requireDense(t, messages, min(max(len(messages), acked), acked+1))
		require.Less(t, messages[len(messages)-1].ServerTime, expires.Add(time.Second).UnixMilli(), "nothing was written after that")
	})

	t.Run("of who only listens, at the next message", func(t *testing.T) {
		t.Parallel()
		alice := mustConnect(t, c.Stack, newUser("alice"), "phone")
		bob, _ := expiringDevice(t, c.Stack, newUser("bob"))
		require.Equal(t, 1, registered(t, bob.user))
		for ended := false; !ended; {
			mustSend(t, alice, wire.Send{To: bob.user, Text: "hi"})
			select {
			case <-bob.conn.Closed():
				ended = true
			default:
			}
		}
		requireDismissed(t, bob, wire.GoodbyeExpired)
		require.Eventually(t, func() bool { return registered(t, bob.user) == 0 }, patience, time.Millisecond)
	})

	t.Run("of who only listens, at the next receipt", func(t *testing.T) {
		t.Parallel()
		alice := mustConnect(t, c.Stack, newUser("alice"), "phone")
		laptop := mustConnect(t, c.Stack, newUser("bob"), "laptop")
		sent := mustSend(t, laptop, wire.Send{To: alice.user, Text: "hi"})
		require.NoError(t, alice.awaitNews(t.Context(), sent))
		answer, err := alice.send(t.Context(), wire.Send{To: laptop.user, Text: "hi"}) // else there are no receipts
		require.NoError(t, err)
		require.NoError(t, laptop.awaitNews(t.Context(), answer))
		require.NoError(t, alice.awaitNews(t.Context(), answer)) // the fan-out has no more to do
		bob, expires := expiringDevice(t, c.Stack, laptop.user)
		<-time.After(time.Until(expires))
		bob.mu.Lock()
		require.Empty(t, bob.goodbyes, "nobody has looked yet")
		bob.mu.Unlock()
		must[wire.Acked](t, alice, wire.ActionAck, wire.Ack{ConversationID: sent.ConversationID, ReadSeq: &sent.Seq})
		requireDismissed(t, bob, wire.GoodbyeExpired)
	})

	t.Run("and a client comes back with a new one", func(t *testing.T) {
		t.Parallel()
		alice := mustConnect(t, c.Stack, newUser("alice"), "phone")
		user, asked := newUser("bob"), atomic.Int64{}
		bob, err := client.Dial(t.Context(), client.Config{
			URL: c.Socket, UserID: user, DeviceID: "phone",
			Token: func(ctx context.Context) (string, error) {
				if asked.Add(1) == 1 {
					return c.Token(ctx, user, expiring())
				}
				return c.Token(ctx, user, nil)
			},
		})
		require.NoError(t, err)
		t.Cleanup(bob.Close)
		require.NoError(t, bob.Online(t.Context()))
		id, last := chat.ConversationID(""), int64(0)
		for bob.Stats().Connects < 2 {
			sent := mustSend(t, alice, wire.Send{To: user, Text: "hi"})
			id, last = sent.ConversationID, sent.Seq
		}
		next := int64(1)
		for m, err := range bob.Messages(t.Context(), id, 0) {
			require.NoError(t, err)
			require.Equal(t, next, m.Seq)
			if next++; m.Seq == last {
				break
			}
		}
		require.Equal(t, int64(2), asked.Load())
	})
}

// Where users open no conversations, the product does, and the rest is as ever.
func TestDirectMessages_Closed(t *testing.T) {
	t.Parallel()
	c := startCloud(t, "-param", "DirectMessages=closed")
	alice, bob := listen(t, c.Stack, newUser("alice"), "phone"), listen(t, c.Stack, newUser("bob"), "phone")
	hello := wire.Send{To: bob.user, ClientMsgID: newID(), MessageType: chat.TypeText, Text: "hello"}
	known := requireRefused(t, alice.device, wire.ActionSend, hello, chat.CodeForbidden, "to")
	hello.To = newUser("nobody")
	require.Equal(t, known, requireRefused(t, alice.device, wire.ActionSend, hello, chat.CodeForbidden, "to"), "it tells of no one")
	requireRefused(t, alice.device, wire.ActionSend, wire.Send{
		ConversationID: chat.SingleID(alice.user, bob.user), ClientMsgID: newID(), MessageType: chat.TypeText, Text: "hello",
	}, chat.CodeNotFound, "conversationId")
	requireRefused(t, alice.device, wire.ActionCreateGroup, wire.CreateGroup{Title: "Trip", Members: []string{bob.user}, ClientMsgID: newID()}, chat.CodeForbidden, "")

	opened, err := publish(t.Context(), t, c.Stack, map[string]any{"between": []string{alice.user, bob.user}})
	require.NoError(t, err)
	require.Equal(t, wire.Sent{ConversationID: chat.SingleID(alice.user, bob.user), Seq: 1, MessageID: opened.MessageID, ServerTime: opened.ServerTime}, opened)
	for _, l := range []*listener{alice, bob} {
		m := entryAt(t, l, opened.ConversationID, 1)
		require.Equal(t, chat.SystemSender, m.SenderID)
		require.Equal(t, []string{alice.user, bob.user}, m.Event.Added)
		line, ok := lineOf(t, l.device, opened.ConversationID)
		require.True(t, ok)
		require.Contains(t, []string{alice.user, bob.user}, line.Peer)
		require.NotEqual(t, l.user, line.Peer)
	}
	hello.To = bob.user
	require.Equal(t, int64(2), must[wire.Sent](t, alice.device, wire.ActionSend, hello).Seq, "the very request that was refused")
	entryAt(t, bob, opened.ConversationID, 2)
	require.Equal(t, int64(3), say(t, bob.device, opened.ConversationID, "hi").Seq)

	again, err := publish(t.Context(), t, c.Stack, map[string]any{"between": []string{bob.user, alice.user}})
	require.NoError(t, err)
	require.Equal(t, wire.Sent{ConversationID: opened.ConversationID, Duplicate: true}, again)

	group, err := publish(t.Context(), t, c.Stack, map[string]any{
		"group": map[string]any{"owner": alice.user, "title": "Trip", "members": []string{bob.user}}, "clientMsgId": newID(),
	})
	require.NoError(t, err)
	entryAt(t, bob, group.ConversationID, 1)
	say(t, bob.device, group.ConversationID, "hi all")
	carol := newUser("carol")
	requireRefused(t, alice.device, wire.ActionAddMembers, wire.ChangeMembers{
		ConversationID: group.ConversationID, Members: []string{carol}, ClientMsgID: newID(),
	}, chat.CodeForbidden, "members")
	added, err := publish(t.Context(), t, c.Stack, map[string]any{
		"addMembers": map[string]any{"conversationId": group.ConversationID, "members": []string{carol}}, "clientMsgId": newID(),
	})
	require.NoError(t, err)
	m := entryAt(t, bob, group.ConversationID, added.Seq)
	require.Equal(t, []string{carol}, m.Event.Added)

	_, err = publish(t.Context(), t, c.Stack, map[string]any{"between": []string{alice.user}})
	require.ErrorContains(t, err, "BAD_REQUEST: between")
}
