package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// standIn is a stack with one thing wrong. The real one is in integration/smoke_test.go.
type standIn struct {
	server *httptest.Server
	wrong  string

	mu      sync.Mutex
	devices map[string]*websocket.Conn // by user
	seq     int64
	last    chat.Message
}

func start(t *testing.T, wrong string) *standIn {
	t.Helper()
	s := &standIn{wrong: wrong, devices: map[string]*websocket.Conn{}}
	s.server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.server.Close)
	return s
}

// tokenOf makes a token that says who it is of, and that nobody has signed.
func tokenOf(user string) string {
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{"alg":"RS256"}`)) + "." + part(fmt.Appendf(nil, `{"sub":%q}`, user)) + "." + part([]byte("signature"))
}

func (s *standIn) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/dev/token" {
		user := r.URL.Query().Get("user")
		if s.wrong == "one user" {
			user = "smoke"
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"token": tokenOf(user)})
		return
	}
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	user := ""
	if payload, err := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1]); err == nil {
		var claims struct{ Sub string }
		_ = json.Unmarshal(payload, &claims)
		user = claims.Sub
	}
	switch {
	case user == "" && s.wrong != "no authorizer":
		w.WriteHeader(http.StatusUnauthorized)
		return
	case strings.HasPrefix(s.wrong, "status "):
		var status int
		_, _ = fmt.Sscan(strings.TrimPrefix(s.wrong, "status "), &status)
		w.WriteHeader(status)
		return
	}
	s.mu.Lock() // before the device knows that it is connected
	conn, err := websocket.Accept(w, r, nil)
	s.devices[user] = conn
	s.mu.Unlock()
	if err != nil {
		return
	}
	defer func() { _ = conn.CloseNow() }()
	for {
		_, data, err := conn.Read(r.Context())
		if err != nil {
			return
		}
		s.answer(r, user, conn, data)
	}
}

func (s *standIn) answer(r *http.Request, user string, conn *websocket.Conn, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var request struct {
		wire.Header
		wire.Send
		ReadSeq int64 `json:"readSeq"`
	}
	_ = json.Unmarshal(data, &request)
	tell := func(to *websocket.Conn, frame any) {
		raw, _ := json.Marshal(frame)
		_ = to.Write(r.Context(), websocket.MessageText, raw)
	}
	reply := func(result any) {
		tell(conn, wire.Reply{Type: wire.TypeReply, ID: request.ID, Action: request.Action, Result: result})
	}
	const conversation = "single:1"
	switch wrong := strings.TrimPrefix(s.wrong, request.Action+" "); {
	case wrong == "silent":
		return
	case wrong == "floods":
		for range maxFrames + 1 {
			tell(conn, wire.ChangedHint{Type: wire.TypeChanged})
		}
		return
	case wrong == "crashes":
		tell(conn, map[string]string{"message": "Internal server error", "connectionId": "c", "requestId": "r-1"})
		return
	case wrong == "hangs up":
		_ = conn.Close(websocket.StatusGoingAway, "")
		return
	case strings.HasPrefix(wrong, "refused "):
		tell(conn, wire.ErrorReply{Type: wire.TypeError, ID: request.ID, Error: wire.Error{Code: chat.Code(strings.TrimPrefix(wrong, "refused ")), Message: "no"}})
		return
	}
	switch request.Action {
	case wire.ActionPing:
		reply(wire.Pong{})
	case wire.ActionSend:
		again := s.last.ClientMsgID == request.ClientMsgID && s.wrong != "sent twice"
		if !again {
			s.seq++
			s.last = chat.Message{Seq: s.seq, MessageID: fmt.Sprint("m", s.seq), ClientMsgID: request.ClientMsgID, Text: request.Text, SenderID: user}
		}
		reply(wire.Sent{ConversationID: conversation, Seq: s.seq, MessageID: s.last.MessageID, Duplicate: again})
		if to := s.devices[request.To]; to != nil && !again && s.wrong != "no push" {
			tell(to, wire.Push{Type: wire.TypePush, Updates: []wire.Update{{ConversationID: conversation, Messages: []chat.Message{s.last}}}})
		}
	case wire.ActionSync:
		page := wire.Synced{Messages: []chat.Message{s.last}}
		if s.wrong == "nothing to sync" {
			page.Messages = nil
		}
		reply(page)
	case wire.ActionAck:
		reply(wire.Acked{})
		for other, to := range s.devices {
			if other != user && s.wrong != "no receipt" {
				tell(to, wire.Receipt{Type: wire.TypeReceipt, ConversationID: conversation, UserID: user, ReadSeq: request.ReadSeq})
			}
		}
	}
}

func noEnvironment(string) string { return "" }

func TestEachFailureSaysWhatToLookAt(t *testing.T) {
	t.Parallel()
	for wrong, want := range map[string][2]string{
		"":                       {"all is well", "single:1"},
		"no authorizer":          {"FAILED  refuse a stranger", "Anyone can connect"},
		"status 401":             {"FAILED  connect user 1", "refused logins"},
		"status 403":             {"FAILED  connect user 1", "JwtIssuer and JwtAudience"},
		"status 404":             {"FAILED  connect user 1", "/v1"},
		"status 429":             {"FAILED  connect user 1", "UserConnectsPerSecond"},
		"status 500":             {"FAILED  connect user 1", "JwksUrl"},
		"status 502":             {"FAILED  connect user 1", "log group"},
		"status 200":             {"FAILED  connect user 1", "answers as no WebSocket"},
		"one user":               {"FAILED  connect user 2", "both tokens are of smoke"},
		"ping silent":            {"FAILED  ping", "ping was not answered"},
		"ping floods":            {"FAILED  ping", "more than 10000 frames"},
		"send crashes":           {"FAILED  send ", "requestId r-1"},
		"send hangs up":          {"FAILED  send ", "the connection of smoke-1 ended"},
		"send refused FORBIDDEN": {"FAILED  send ", "DirectMessages=closed"},
		"send refused INTERNAL":  {"FAILED  send ", `Query "failures"`},
		"send refused LIMIT":     {"FAILED  send ", "shared/wire/README.md"},
		"sent twice":             {"FAILED  send again", "made seq 1 and seq 2"},
		"no push":                {"FAILED  push", "The fan-out"},
		"nothing to sync":        {"FAILED  sync", "auditor"},
		"no receipt":             {"FAILED  receipt", "ManageConnections"},
	} {
		t.Run(wrong, func(t *testing.T) {
			t.Parallel()
			s := start(t, wrong)
			var stdout, stderr bytes.Buffer
			timeout := "30s"
			if wrong == "ping silent" || strings.HasPrefix(wrong, "no ") {
				timeout = "10s" // what does not come is waited for
			}
			code := run(t.Context(), []string{"-url", "ws" + strings.TrimPrefix(s.server.URL, "http") + "/v1", "-timeout", timeout}, noEnvironment, &stdout, &stderr)
			require.Contains(t, stdout.String(), want[0])
			require.Contains(t, stdout.String(), want[1])
			require.Equal(t, wrong == "", code == 0)
			require.Empty(t, stderr.String())
		})
	}
}

func TestTokensAreGiven(t *testing.T) {
	t.Parallel()
	given := func(name string) string {
		return map[string]string{"INORDER_TOKEN_1": tokenOf("ann") + "\n", "INORDER_TOKEN_2": tokenOf("bob")}[name]
	}
	for name, tt := range map[string]struct {
		getenv func(string) string
		args   []string
		want   string
	}{
		"in the environment": {given, nil, "all is well"},
		"by a command":       {noEnvironment, []string{"-token-command", `case $1 in 1) echo ` + tokenOf("ann") + `;; 2) echo ` + tokenOf("bob") + `;; esac`}, "all is well"},
		"by one that fails":  {noEnvironment, []string{"-token-command", "echo no login >&2; exit 3"}, "-token-command for user 1: exit status 3: no login"},
		"that are no tokens": {noEnvironment, []string{"-token-command", "echo hello"}, "is no JWT with a sub"},
		"by one that sleeps": {noEnvironment, []string{"-timeout", "10s", "-token-command", "exec sleep 60"}, "-token-command for user 1: it did not end in 10s"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, "") // it tells apart users, not who runs at the same time
			address := "ws" + strings.TrimPrefix(s.server.URL, "http") + "/v1"
			var stdout, stderr bytes.Buffer
			_ = run(t.Context(), append(tt.args, "-url", address), tt.getenv, &stdout, &stderr)
			require.Contains(t, stdout.String(), tt.want)
		})
	}
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	given := func(string) string { return tokenOf("ann") }
	for url, look := range map[string]string{
		"ws://127.0.0.1:1/v1":    "go run ./infra/local starts one",
		"wss://stack.invalid/v1": "Is the URL the stack's output WebSocketUrl?",
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, exitFailure, run(t.Context(), []string{"-url", url}, given, &stdout, &stderr))
		require.Contains(t, stdout.String(), "FAILED  refuse a stranger")
		require.Contains(t, stdout.String(), "no connection to ")
		require.Contains(t, stdout.String(), look)
	}
}

func TestWrongUse(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"more":                 `unexpected argument "more"`,
		"-url https://x/v1":    "want a URL such as",
		"-url wss://x.example": "tokens are missing",
		"-timeout 0s":          "-timeout is above 0",
		"-nonsense":            "not defined",
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, exitUsage, run(t.Context(), strings.Fields(args), noEnvironment, &stdout, &stderr), args)
		require.Contains(t, stderr.String(), want, args)
		require.Empty(t, stdout.String())
	}
	var stdout, stderr bytes.Buffer
	require.Zero(t, run(t.Context(), []string{"-h"}, noEnvironment, &stdout, &stderr))
	require.Contains(t, stderr.String(), "-token-command")
}
