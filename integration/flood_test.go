package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	raw "github.com/inorder-im/inorder/integration/device"
	launch "github.com/inorder-im/inorder/integration/stack"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

// environments is how many processes of a function the local cloud runs at most.
const environments = 10

// mostOf is what a user gets at most in a span of time, as shared/limit has it, of a
// rate that is twice a connection's.
func mostOf(perSecond float64, burst int, span time.Duration) int {
	perSecond, burst = 2*perSecond, 2*burst
	free := float64(max(1, burst/8)) + perSecond*span.Seconds()/64
	return int(2*float64(burst) + perSecond*span.Seconds() + environments*free)
}

// withRate starts a cloud with one of its rates set.
func withRate(t *testing.T, parameter string, perSecond float64, burst int, args ...string) *localCloud {
	t.Helper()
	return startCloud(t, append([]string{
		"-param", fmt.Sprintf("%ssPerSecond=%v", parameter, perSecond), "-param", fmt.Sprintf("%sBurst=%d", parameter, burst),
	}, args...)...)
}

// One user writes by 8 connections and 6 frames at a time on each, to as many
// environments as that takes. Others, who write as people do, are refused nothing.
func TestFlood_OfWritesIsRefusedAndHarmsNoOther(t *testing.T) {
	t.Parallel()
	const sockets, outstanding, perSecond, burst = 8, 6, 1, 8
	c := withRate(t, "Write", perSecond, burst)
	var pairs [2][2]*device
	for i := range pairs {
		pairs[i] = [2]*device{mustConnect(t, c.Stack, newUser("quiet"), "phone"), mustConnect(t, c.Stack, newUser("other"), "phone")}
	}
	user := newUser("flooder")
	devices := make([]*device, sockets)
	for i := range devices {
		devices[i] = mustConnect(t, c.Stack, user, "d"+strconv.Itoa(i))
	}
	alone := converse(t, pairs[0], burst)

	var written, refused atomic.Int64
	flooding := make(chan struct{}, sockets) // one for the first refusal of each
	var flood errgroup.Group
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	start := time.Now()
	for _, d := range devices {
		first := sync.OnceFunc(func() { flooding <- struct{}{} })
		for range outstanding {
			flood.Go(func() error {
				for ctx.Err() == nil {
					err := d.do(ctx, wire.ActionSend, wire.Send{To: newUser("victim"), ClientMsgID: newID(), MessageType: chat.TypeText, Text: "!"}, nil)
					switch {
					case err == nil:
						written.Add(1)
					case retryAfter(err) > 0:
						refused.Add(1)
						first()
					case errors.Is(err, raw.ErrClosed): // dismissed
						return nil
					case ctx.Err() == nil:
						return err
					}
				}
				return nil
			})
		}
	}
	for range sockets {
		select {
		case <-flooding:
		case <-time.After(patience):
			require.Fail(t, "a socket of the flood was never refused")
		}
	}
	flooded := converse(t, pairs[1], burst)
	stop()
	require.NoError(t, flood.Wait())
	took := time.Since(start)
	most := mostOf(perSecond, burst, took)
	t.Logf("%d written and %d refused in %v; the bound is %d; send to ack of %d messages, slowest: alone %v, beside the flood %v",
		written.Load(), refused.Load(), took, most, burst, slices.Max(alone), slices.Max(flooded))
	require.GreaterOrEqual(t, int(written.Load()), 2*burst, "what one may have one gets")
	require.LessOrEqual(t, int(written.Load()), most)
	require.Greater(t, refused.Load(), written.Load())
}

// converse sends n messages one after the other, each of which has to be answered
// at once, and pushed, and returns how long the answers took.
func converse(t *testing.T, pair [2]*device, n int) []time.Duration {
	t.Helper()
	var took []time.Duration
	for i := range n {
		start := time.Now()
		var sent wire.Sent
		require.NoError(t, pair[0].do(t.Context(), wire.ActionSend, wire.Send{
			To: pair[1].user, ClientMsgID: newID(), MessageType: chat.TypeText, Text: text(0, i),
		}, &sent), "message %d is not refused", i)
		took = append(took, time.Since(start))
		require.Equal(t, int64(i+1), sent.Seq)
		require.NoError(t, pair[1].awaitPushed(t.Context(), sent.ConversationID, sent.Seq))
	}
	return took
}

// retryAfter is how long a refusal for being too fast asks to wait. What a crowded
// conversation refuses is none.
func retryAfter(err error) float64 {
	r, refused := errors.AsType[*refusal](err)
	if !refused || r.Frame.Code != chat.CodeBusy || !r.Frame.Retryable || !strings.Contains(r.Frame.Message, "may do this") {
		return 0
	}
	ms, _ := r.Frame.Details[chat.DetailRetryAfter].(float64)
	return ms
}

// One connection asks what changed without a pause, and comes again when it is
// dismissed, until it may connect no more. Another user is not refused once.
func TestFlood_OfReadsIsRefusedAndHarmsNoOther(t *testing.T) {
	t.Parallel()
	const perSecond, burst = 1, 60
	c := withRate(t, "Read", perSecond, burst, "-param", "UserConnectsPerSecond=0.1", "-param", "UserConnectBurst=20")
	d := mustConnect(t, c.Stack, newUser("flooder"), "phone")
	quiet := mustConnect(t, c.Stack, newUser("quiet"), "phone")
	start := time.Now()
	asked, admitted, dismissed, shutOut := 0, 0, 0, false
	for ; !shutOut; asked++ {
		switch err := d.do(t.Context(), wire.ActionChanges, map[string]any{"syncCursor": 0}, nil); {
		case err == nil:
			admitted++
		case errors.Is(err, raw.ErrClosed):
			dismissed++
			requireDismissed(t, d, wire.GoodbyeFlooding)
			d.mu.Lock()
			d.goodbyes = nil
			d.mu.Unlock()
			shutOut = d.reconnect(t.Context()) != nil
		default:
			require.Positive(t, retryAfter(err), err)
		}
		if asked%50 == 0 {
			require.NoError(t, quiet.do(t.Context(), wire.ActionChanges, map[string]any{"syncCursor": 0}, nil))
			require.NoError(t, quiet.do(t.Context(), wire.ActionPing, nil, nil))
		}
	}
	took := time.Since(start)
	t.Logf("%d of %d admitted in %v, and dismissed %d times; the bound is %d", admitted, asked, took, dismissed, mostOf(perSecond, burst, took))
	require.GreaterOrEqual(t, admitted, burst)
	require.LessOrEqual(t, admitted, mostOf(perSecond, burst, took))
	require.Positive(t, dismissed)
	require.Eventually(t, func() bool { return strings.Contains(c.stderr.String(), `"Refusals":1`) }, patience, time.Millisecond)
}

// Who is refused, whatever the frame, and goes on all the same, loses the connection,
// and nothing else.
func TestFlood_ByAnyFrameIsSentAway(t *testing.T) {
	t.Parallel()
	c := withRate(t, "Read", 0.1, 1, "-param", "WritesPerSecond=0.1", "-param", "WriteBurst=1")
	hello := wire.Send{To: newUser("friend"), ClientMsgID: newID(), MessageType: chat.TypeText, Text: "hi"}
	type frame struct {
		action  string
		request any
	}
	send, ping := frame{wire.ActionSend, hello}, frame{wire.ActionPing, nil}
	for name, frames := range map[string][2]frame{ // of the flood, and of what is counted apart
		"writes": {send, ping}, "reads": {{wire.ActionHistory, nil}, send}, "pings": {ping, send}, "nonsense": {{"nonsense", nil}, send},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := mustConnect(t, c.Stack, newUser("flooder"), "phone")
			var err error
			refused := 0
			for !errors.Is(err, raw.ErrClosed) {
				if err = d.do(t.Context(), frames[0].action, frames[0].request, nil); retryAfter(err) > 0 {
					refused++
				}
			}
			require.GreaterOrEqual(t, refused, 15, "not before it was told often enough")
			requireDismissed(t, d, wire.GoodbyeFlooding)
			require.NoError(t, d.reconnect(t.Context()))
			require.NoError(t, d.do(t.Context(), frames[1].action, frames[1].request, nil))
		})
	}
}

// handshakeOf tries one, and returns its status.
func handshakeOf(t *testing.T, s stack, user string) int {
	t.Helper()
	token, err := s.Token(t.Context(), user, nil)
	require.NoError(t, err)
	return handshake(t, s, token, url.Values{"device": {"phone"}}, nil)
}

func TestFlood_HandshakesOfAUserAreLimited(t *testing.T) {
	t.Parallel()
	const perSecond, burst, tries = 0.1, 4, 60
	c := withRate(t, "UserConnect", perSecond, burst)
	user := newUser("restless")
	start := time.Now()
	statuses := map[int]int{}
	for range tries {
		statuses[handshakeOf(t, c.Stack, user)]++
	}
	require.Equal(t, tries, statuses[http.StatusSwitchingProtocols]+statuses[http.StatusTooManyRequests], "%v", statuses)
	require.GreaterOrEqual(t, statuses[http.StatusSwitchingProtocols], burst)
	// The rate is a user's here, of which mostOf takes the double.
	require.LessOrEqual(t, statuses[http.StatusSwitchingProtocols], mostOf(perSecond/2, burst/2, time.Since(start)))
	require.Equal(t, http.StatusSwitchingProtocols, handshakeOf(t, c.Stack, newUser("other")))
}

// $connect has a throttle of its own: who is connected does not notice.
func TestFlood_HandshakesOfAllAreThrottledApart(t *testing.T) {
	t.Parallel()
	const burst = 5
	c := startCloud(t, "-param", "ConnectsPerSecond=1", "-param", "ConnectBurst="+strconv.Itoa(burst))
	d := mustConnect(t, c.Stack, newUser("alice"), "phone")
	admitted, start := 0, time.Now()
	for handshakeOf(t, c.Stack, newUser("crowd")) != http.StatusTooManyRequests {
		admitted++
	}
	require.LessOrEqual(t, admitted, burst+int(time.Since(start).Seconds()))
	for range 3 * burst {
		require.NoError(t, d.do(t.Context(), wire.ActionPing, nil, nil))
	}
}

func TestLimits_QuotasAreTold(t *testing.T) {
	t.Parallel()
	c := startCloud(t, "-param", "GroupsPerDay=2", "-param", "MaxSystemMembers=3")
	d := mustConnect(t, c.Stack, newUser("alice"), "phone")
	create := func(id string) error {
		return d.do(t.Context(), wire.ActionCreateGroup, wire.CreateGroup{Title: "All", Members: []string{}, ClientMsgID: id}, nil)
	}
	require.NoError(t, create("1"))
	require.NoError(t, create("2"))
	var r *refusal
	require.ErrorAs(t, create("3"), &r)
	require.Equal(t, chat.CodeLimit, r.Frame.Code)
	require.Equal(t, map[string]any{"max": 2.0}, r.Frame.Details)
	require.NoError(t, create("2"), "a retry gets the first result")

	_, err := publish(t.Context(), t, c.Stack, publication{
		Key: newUser("order"), Recipients: []string{"a", "b", "c", "d"}, ClientMsgID: newID(), Text: "hi",
	})
	require.ErrorContains(t, err, string(chat.CodeLimit))
	_, err = publish(t.Context(), t, c.Stack, map[string]any{
		"group": map[string]any{"owner": d.user, "title": "All", "members": []string{}}, "clientMsgId": newID(),
	})
	require.NoError(t, err, "the product's own groups do not count")
}

// With reserved concurrency the function that is flooded takes no more than its
// part, and pushes go on.
func TestFlood_TakesNoMoreThanWhatIsReserved(t *testing.T) {
	t.Parallel()
	needProc(t)
	const senders = 6
	c := startCloud(t, "-param", "SendConcurrency=2", "-param", "FanoutConcurrency=10", "-param", "HandshakeConcurrency=3")
	to := listen(t, c.Stack, newUser("other"), "phone")
	var wg sync.WaitGroup
	for i := range senders {
		wg.Go(func() {
			d, err := connect(t.Context(), c.Stack, newUser("sender"), "phone")
			if err != nil {
				t.Error(err)
				return
			}
			defer d.close()
			for range 20 {
				sent, err := d.send(t.Context(), wire.Send{To: to.user, Text: strconv.Itoa(i)})
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := to.awaitEntry(t.Context(), sent.ConversationID, sent.Seq); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, launch.ProcessesOf(c.PID(), "SendFunction"), 2)
	require.LessOrEqual(t, len(launch.ProcessesOf(c.PID(), "ConnectFunction")), 3)
}
