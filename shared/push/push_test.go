package push_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/inorder-im/inorder/shared/push"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Idle keep-alive connections of the SDK's clients, which outlive a test.
		goleak.IgnoreTopFunction("internal/poll.runtime_pollWait"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"),
	)
}

// connectionID is of the form API Gateway gives: it has to be escaped in a path.
const connectionID = "TWegAcC4EowCHnA="

func TestPost(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reply    func(method, id string, attempt int) int
		gone     bool
		fails    bool
		attempts int
	}{
		"is delivered":                      {reply: always(200), attempts: 1},
		"finds the connection gone":         {reply: always(410), gone: true, fails: true, attempts: 1},
		"takes a malformed id for gone":     {reply: always(400), gone: true, fails: true, attempts: 1},
		"does not repeat what is forbidden": {reply: always(403), fails: true, attempts: 1},
		"does not repeat what is too large": {reply: always(413), fails: true, attempts: 1},
		"gives up on a busy API":            {reply: always(429), fails: true, attempts: 3},
		"repeats what was not answered":     {attempts: 2, reply: func(_, _ string, attempt int) int { return []int{-1, 200}[attempt-1] }},
		"gives up on a broken API":          {reply: always(500), fails: true, attempts: 3},
		"succeeds once the API is no longer busy": {attempts: 3, reply: func(_, _ string, attempt int) int {
			return []int{429, 500, 200}[attempt-1]
		}},
		"stops retrying when the connection goes": {gone: true, fails: true, attempts: 2, reply: func(_, _ string, attempt int) int {
			return []int{429, 410}[attempt-1]
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, tc.reply)
			err := newPusher(g).Post(t.Context(), connectionID, []byte(`{"type":"push"}`))
			require.Equal(t, tc.fails, err != nil, "%v", err)
			require.Equal(t, tc.gone, errors.Is(err, push.ErrGone), "%v", err)
			require.Equal(t, tc.attempts, g.attemptsOf(connectionID))
			if !tc.fails {
				require.Equal(t, []string{`{"type":"push"}`}, g.postedTo(connectionID))
			}
		})
	}

	t.Run("tries one that does not read once, until it reads", func(t *testing.T) {
		t.Parallel()
		g := newGateway(t, func(_, id string, attempt int) int {
			if id == connectionID && attempt <= 5 {
				return 429
			}
			return 200
		})
		p := newPusher(g)
		now := time.UnixMilli(1795950300123)
		p.Now = func() time.Time { return now }
		for _, attempts := range []int{3, 4, 5} {
			require.Error(t, p.Post(t.Context(), connectionID, []byte("{}")))
			require.Equal(t, attempts, g.attemptsOf(connectionID))
		}
		require.NoError(t, p.Post(t.Context(), connectionID, []byte("{}")))
	})

	t.Run("gives one that did not read all its tries after half a minute, or once it has read", func(t *testing.T) {
		t.Parallel()
		statuses := []int{429, 429, 429, 429, 200, 429, 429, 200}
		g := newGateway(t, func(_, _ string, attempt int) int { return statuses[attempt-1] })
		p := newPusher(g)
		now := time.UnixMilli(1795950300123)
		p.Now = func() time.Time { return now }
		require.Error(t, p.Post(t.Context(), connectionID, []byte("{}")))
		now = now.Add(31 * time.Second)
		require.NoError(t, p.Post(t.Context(), connectionID, []byte("{}")))
		require.NoError(t, p.Post(t.Context(), connectionID, []byte("{}")))
		require.Equal(t, len(statuses), g.attemptsOf(connectionID))
	})

	t.Run("does not wait for a connection that hangs", func(t *testing.T) {
		t.Parallel()
		g := newGateway(t, always(0))
		p := newPusher(g)
		p.PostTimeout = 50 * time.Millisecond
		within(t, 5*time.Second, func() {
			require.ErrorIs(t, p.Post(t.Context(), connectionID, []byte("{}")), context.DeadlineExceeded)
		})
	})
}

func TestClose(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reply    func(method, id string, attempt int) int
		fails    bool
		attempts int
	}{
		"ends the connection":       {reply: always(204), attempts: 1},
		"is content with one gone":  {reply: always(410), attempts: 1},
		"says that it is forbidden": {reply: always(403), fails: true, attempts: 1},
		"tries again":               {attempts: 2, reply: func(_, _ string, attempt int) int { return []int{429, 204}[attempt-1] }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, func(method, id string, attempt int) int {
				if method != "DELETE" {
					return 403
				}
				return tc.reply(method, id, attempt)
			})
			require.Equal(t, tc.fails, newPusher(g).Close(t.Context(), connectionID) != nil)
			require.Equal(t, tc.attempts, g.attemptsOf(connectionID))
		})
	}
}

func TestDismiss(t *testing.T) {
	t.Parallel()

	t.Run("says why, then closes", func(t *testing.T) {
		t.Parallel()
		var order []string
		g := newGateway(t, func(method, _ string, _ int) int {
			order = append(order, method)
			return 200
		})
		require.NoError(t, newPusher(g).Dismiss(t.Context(), connectionID, "expired"))
		require.Equal(t, []string{"POST", "DELETE"}, order)
		require.Equal(t, []string{`{"type":"goodbye","reason":"expired"}`, ""}, g.postedTo(connectionID))
	})

	t.Run("is content with one that is gone", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, newPusher(newGateway(t, always(410))).Dismiss(t.Context(), connectionID, "expired"))
	})

	t.Run("closes one that does not read", func(t *testing.T) {
		t.Parallel()
		g := newGateway(t, func(method, _ string, _ int) int {
			if method == "POST" {
				return 0
			}
			return 204
		})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		require.NoError(t, newPusher(g).Dismiss(ctx, connectionID, "expired"))
		require.Equal(t, []string{""}, g.postedTo(connectionID), "the close")
	})

	t.Run("says that it cannot close", func(t *testing.T) {
		t.Parallel()
		require.Error(t, newPusher(newGateway(t, always(403))).Dismiss(t.Context(), connectionID, "expired"))
	})
}

func TestOpen(t *testing.T) { // not parallel: it sets the environment
	g := newGateway(t, always(200))
	t.Setenv("AWS_REGION", "eu-central-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")

	t.Setenv("WEBSOCKET_ENDPOINT", "")
	_, err := push.Open(t.Context())
	require.ErrorContains(t, err, "WEBSOCKET_ENDPOINT")

	t.Setenv("WEBSOCKET_ENDPOINT", g.URL+"/v1")
	p, err := push.Open(t.Context())
	require.NoError(t, err)
	require.NoError(t, p.Post(t.Context(), connectionID, []byte("{}")))
	require.Equal(t, []string{"{}"}, g.postedTo(connectionID))
}
