package integration_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// publication is the event of a direct invocation of publish.
type publication struct {
	Key         string          `json:"key"`
	Title       string          `json:"title,omitempty"`
	Recipients  []string        `json:"recipients,omitempty"`
	ClientMsgID string          `json:"clientMsgId"`
	MessageType string          `json:"messageType,omitempty"`
	Text        string          `json:"text,omitempty"`
	Data        json.RawMessage `json:"data,omitempty"`
}

// functionError is what a function that failed has to say.
type functionError struct {
	Message string `json:"errorMessage"`
	Type    string `json:"errorType"`
}

func (e *functionError) Error() string { return e.Message }

// invoke invokes a function of the local cloud as the AWS SDK does.
func invoke[T any](ctx context.Context, s stack, function string, event []byte) (answer T, err error) {
	url := strings.TrimSuffix(s.Page, "/") + "/2015-03-31/functions/" + function + "/invocations"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(event))
	if err != nil {
		return answer, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return answer, fmt.Errorf("invoking %s: %s", function, resp.Status)
	}
	if resp.Header.Get("X-Amz-Function-Error") == "" {
		err = json.NewDecoder(resp.Body).Decode(&answer)
		return answer, err
	}
	var failed functionError
	if err := json.NewDecoder(resp.Body).Decode(&failed); err != nil {
		return answer, err
	}
	return answer, &failed
}

// publish invokes the function of this name. It skips the test where there is only a
// socket.
func publish(ctx context.Context, t *testing.T, s stack, p any) (wire.Sent, error) {
	t.Helper()
	if s.Page == "" {
		t.Skip("publish has no route; this test invokes it at the local cloud")
	}
	event, err := json.Marshal(p)
	if err != nil {
		return wire.Sent{}, err
	}
	return invoke[wire.Sent](ctx, s, "PublishFunction", event)
}

func mustPublish(t *testing.T, s stack, p publication) wire.Sent {
	t.Helper()
	sent, err := publish(t.Context(), t, s, p)
	require.NoError(t, err)
	return sent
}

func TestPublish(t *testing.T) {
	t.Parallel()
	alice, bob, mallory := newUser("alice"), newUser("bob"), newUser("mallory")
	a, b, m := listen(t, shared, alice, "phone"), listen(t, shared, bob, "phone"), listen(t, shared, mallory, "phone")
	key := newUser("order:")
	first := publication{
		Key: key, Title: "Your order", Recipients: []string{alice}, ClientMsgID: newID(),
		Text: "on its way", Data: json.RawMessage(`{"status": "shipped"}`),
	}
	sent := mustPublish(t, shared, first)
	id := chat.SystemID(key)
	require.Equal(t, wire.Sent{ConversationID: id, Seq: 1, MessageID: sent.MessageID, ServerTime: sent.ServerTime}, sent)
	again := mustPublish(t, shared, first)
	require.True(t, again.Duplicate)
	again.Duplicate = false
	require.Equal(t, sent, again)

	got := entryAt(t, a, id, 1)
	require.Equal(t, [3]string{"system", "system", "on its way"}, [3]string{got.SenderID, string(got.MessageType), got.Text})
	require.JSONEq(t, `{"status": "shipped"}`, string(got.Data))
	line, ok := lineOf(t, a.device, id)
	require.True(t, ok)
	require.Equal(t, [2]any{"Your order", chat.KindSystem}, [2]any{line.Title, line.Kind})
	require.Equal(t, int64(1), line.Unread)

	// A later reader reads from then on; those who read already go on.
	second := mustPublish(t, shared, publication{Key: key, Recipients: []string{bob, alice}, ClientMsgID: newID(), MessageType: "text", Text: "delivered"})
	require.Equal(t, int64(2), second.Seq)
	third := mustPublish(t, shared, publication{Key: key, ClientMsgID: newID(), Text: "rate us"})
	for l, want := range map[*listener][]int64{a: {1, 2, 3}, b: {2, 3}} {
		entryAt(t, l, id, third.Seq)
		require.NoError(t, l.sync(t.Context(), id))
		require.Equal(t, want, seqsOf(l.messages(id)))
	}

	// Readers read, and say how far; they write nothing, and hear nothing of each other.
	require.Equal(t, int64(2), ackRead(t, b.device, id, 2).ReadSeq)
	tablet := listen(t, shared, bob, "tablet")
	require.Equal(t, int64(3), ackRead(t, b.device, id, 3).ReadSeq)
	require.NoError(t, tablet.awaitReceipt(t.Context(), id, bob, 3, 3))
	require.Empty(t, a.pushes(wire.TypeReceipt))
	for action, request := range map[string]any{
		wire.ActionSend:       wire.Send{ConversationID: id, ClientMsgID: newID(), MessageType: chat.TypeText, Text: "thanks"},
		wire.ActionRecall:     recallOf(second),
		wire.ActionLeave:      wire.ChangeGroup{ConversationID: id, ClientMsgID: newID()},
		wire.ActionAddMembers: wire.ChangeMembers{ConversationID: id, Members: []string{mallory}, ClientMsgID: newID()},
		wire.ActionReceipts:   wire.Receipts{ConversationID: id, Seq: 2},
		wire.ActionMembers:    wire.Members{ConversationID: id},
	} {
		_, err := try[json.RawMessage](t.Context(), b.device, action, request)
		require.Equal(t, chat.CodeForbidden, codeOf(err), "%s: %v", action, err)
		_, err = try[json.RawMessage](t.Context(), m.device, action, request)
		require.Equal(t, chat.CodeNotFound, codeOf(err), "%s by a stranger: %v", action, err)
	}
}

func TestPublishRefuses(t *testing.T) {
	t.Parallel()
	alice, key := newUser("alice"), newUser("order:")
	mustPublish(t, shared, publication{Key: key, Recipients: []string{alice}, ClientMsgID: "1" + key, Text: "hello"})
	for name, tt := range map[string]struct {
		event any
		says  string // how the error begins
	}{
		"no key":               {publication{Recipients: []string{alice}, ClientMsgID: newID(), Text: "x"}, "BAD_REQUEST: key: "},
		"no clientMsgId":       {publication{Key: key, Text: "x"}, "BAD_REQUEST: clientMsgId: "},
		"no text":              {publication{Key: key, ClientMsgID: newID()}, "BAD_REQUEST: text: "},
		"101 recipients":       {publication{Key: key, Recipients: users("u", 101), ClientMsgID: newID(), Text: "x"}, "LIMIT: recipients: "},
		"someone twice":        {publication{Key: key, Recipients: []string{alice, alice}, ClientMsgID: newID(), Text: "x"}, "BAD_REQUEST: recipients: "},
		"someone without name": {publication{Key: key, Recipients: []string{""}, ClientMsgID: newID(), Text: "x"}, "BAD_REQUEST: recipients: "},
		"no one to begin with": {publication{Key: newUser("order:"), ClientMsgID: newID(), Text: "x"}, "NOT_FOUND: conversationId: "},
		"an event":             {publication{Key: key, ClientMsgID: newID(), MessageType: "event", Text: "x"}, "BAD_REQUEST: messageType: "},
		"other content":        {publication{Key: key, Recipients: []string{alice}, ClientMsgID: "1" + key, Text: "other"}, "IDEMPOTENCY_CONFLICT: clientMsgId: "},
		"a number for key":     {map[string]any{"key": 1}, "BAD_REQUEST: key: "},
		"no object":            {[]string{"key"}, "BAD_REQUEST: the event "},
		"a misspelt field":     {map[string]any{"key": key, "receipients": []string{alice}, "clientMsgId": newID(), "text": "x"}, "BAD_REQUEST: receipients: "},
		"a key twice in data":  {publication{Key: key, ClientMsgID: newID(), Text: "x", Data: json.RawMessage(`{"a":1,"a":2}`)}, "BAD_REQUEST: data: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := publish(t.Context(), t, shared, tt.event)
			failed := &functionError{}
			require.ErrorAs(t, err, &failed)
			require.True(t, strings.HasPrefix(failed.Message, tt.says), failed.Message)
			code, _, _ := strings.Cut(tt.says, ":")
			require.Equal(t, code, failed.Type)
		})
	}
}

// A backend that retries while the first call is still under way makes one
// message, and concurrent ones make a dense ledger with all recipients.
func TestPublish_IsIdempotentUnderConcurrency(t *testing.T) {
	t.Parallel()
	const calls, keys = 12, 4
	readers := users("reader", keys)
	key := newUser("order:")
	publications := make([]publication, keys)
	for i := range publications {
		publications[i] = publication{Key: key, Title: "T", Recipients: []string{readers[i]}, ClientMsgID: newID(), Text: text(0, i)}
	}
	answers := make([]wire.Sent, calls)
	require.NoError(t, concurrently(t.Context(), calls, func(ctx context.Context, i int) (err error) {
		answers[i], err = publish(ctx, t, shared, publications[i%keys])
		return err
	}))
	seqs := map[int64]string{}
	for i, sent := range answers {
		require.Equal(t, answers[i%keys].MessageID, sent.MessageID)
		seqs[sent.Seq] = sent.MessageID
	}
	require.Len(t, seqs, keys)
	for i, reader := range readers {
		d := mustConnect(t, shared, reader, "phone")
		require.NoError(t, d.sync(t.Context(), chat.SystemID(key)))
		messages := d.messages(chat.SystemID(key))
		require.Equal(t, answers[i].Seq, messages[0].Seq, "from the message that made one a reader")
		require.Equal(t, int64(keys), messages[len(messages)-1].Seq)
	}
}
