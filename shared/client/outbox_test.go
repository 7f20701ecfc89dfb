package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/client/clienttest"
	"github.com/inorder-im/inorder/shared/wire"
)

// noPushes loses every push.
func noPushes(string, string) (int, time.Duration) { return 0, 0 }

// mishaps are what may become of a request, by what a person would say.
func mishaps() map[string]clienttest.Fate {
	return map[string]clienttest.Fate{
		"the request got lost":               clienttest.Ignore,
		"the answer got lost":                clienttest.LoseReply,
		"the connection broke before it":     clienttest.CutBefore,
		"the connection broke after it":      clienttest.CutAfter,
		"the server was busy":                clienttest.Busy,
		"API Gateway answered in its place":  clienttest.Platform,
		"API Gateway throttled it":           clienttest.Throttled,
		"the answer could not be understood": clienttest.Garbage,
	}
}

func TestASendIsCommittedOnceWhateverHappens(t *testing.T) {
	t.Parallel()
	for name, fate := range mishaps() {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *clienttest.Server) {
				group := s.MakeGroup("g", "alice", "bob")
				alice := online(t, config(s, "alice", "phone"))
				hooks := first(3, wire.ActionSend, fate)
				hooks.OnPush = noPushes
				s.Interfere(hooks)
				sent, err := alice.Send(within(t, 10*time.Minute), text(group, "once"))
				require.NoError(t, err)
				require.Equal(t, int64(1), sent.Seq)
				require.Equal(t, []string{"once"}, texts(s.Ledger("bob", group)))
				if fate != clienttest.LoseReply && fate != clienttest.CutAfter { // there, catching up brings it first
					require.Equal(t, int64(3), alice.Stats().Resent)
					require.Equal(t, fate == clienttest.Garbage, sent.Duplicate)
				}
				require.Empty(t, alice.Outbox())
				require.Equal(t, []string{"once"}, texts(take(t, alice, group, 1)))
			})
		})
	}
}

func TestAClientComesAgainWhenTheServerSays(t *testing.T) {
	t.Parallel()
	for action, ask := range map[string]func(context.Context, *client.Client, chat.ConversationID) error{
		wire.ActionSend: func(ctx context.Context, c *client.Client, group chat.ConversationID) error {
			_, err := c.Send(ctx, text(group, "hi"))
			return err
		},
		wire.ActionSetTitle: func(ctx context.Context, c *client.Client, group chat.ConversationID) error {
			_, err := c.SetTitle(ctx, wire.SetTitle{ConversationID: group, Title: "title"})
			return err
		},
		wire.ActionChanges: func(ctx context.Context, c *client.Client, _ chat.ConversationID) error { return c.Refresh(ctx) },
	} {
		t.Run(action, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *clienttest.Server) {
				group := s.MakeGroup("g", "alice", "bob")
				alice := online(t, config(s, "alice", "phone"))
				s.Interfere(first(3, action, clienttest.TooFast))
				start := time.Now()
				require.NoError(t, ask(t.Context(), alice, group))
				took := time.Since(start)
				require.GreaterOrEqual(t, took, 3*clienttest.RetryAfter)
				require.Less(t, took, 4*clienttest.RetryAfter, "and not much later")
			})
		})
	}
}

func TestAServerCannotSendAClientAwayForLong(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		cfg := config(s, "alice", "phone")
		cfg.BackoffCap = time.Second
		alice := online(t, cfg)
		s.Interfere(first(1, wire.ActionSend, clienttest.TooFast))
		start := time.Now()
		_, err := alice.Send(t.Context(), text(group, "hi"))
		require.NoError(t, err)
		require.LessOrEqual(t, time.Since(start), 2*time.Second)
	})
}

// API Gateway's frame does not say which request it throttled, so all that wait
// are made again: later and later, and none is given up.
func TestAThrottledClientBacksOffAndLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		const lanes = 5
		alice := online(t, config(s, "alice", "phone"))
		start := time.Now()
		var asked atomic.Int64
		s.Interfere(clienttest.Hooks{OnRequest: func(clienttest.Request) clienttest.Fate {
			if time.Since(start) > 10*time.Minute {
				return clienttest.Handle
			}
			asked.Add(1)
			return clienttest.Throttled
		}})
		var all errgroup.Group
		for i := range lanes {
			all.Go(func() error {
				_, err := alice.Send(t.Context(), client.Draft{To: fmt.Sprint("bob", i), Text: "hi"})
				return err
			})
		}
		require.NoError(t, all.Wait())
		require.Less(t, asked.Load(), int64(lanes*100), "in ten minutes")
		require.Equal(t, 1, s.Count("connect"))
	})
}

// What is written to hundreds of people at once is sent a few at a time: a server that
// limits writes throws out who is refused a hundred times.
func TestG10_WritesThatComeTooFastWait(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		const people, perWindow, atOnce = 300, 50, 4
		alice := online(t, config(s, "alice", "phone"))
		var mu sync.Mutex
		var since time.Time
		admitted, refused, windows := 0, 0, 0
		s.Interfere(clienttest.Hooks{OnRequest: func(r clienttest.Request) clienttest.Fate {
			mu.Lock()
			defer mu.Unlock()
			if now := time.Now(); now.Sub(since) >= clienttest.RetryAfter {
				since, admitted, windows = now, 0, windows+1
			}
			if admitted++; admitted <= perWindow {
				return clienttest.Handle
			}
			refused++
			return clienttest.TooFast
		}})
		var all errgroup.Group
		for i := range people {
			all.Go(func() error {
				_, err := alice.Send(t.Context(), client.Draft{To: fmt.Sprint("user", i), Text: "hi"})
				return err
			})
		}
		require.NoError(t, all.Wait())
		require.LessOrEqual(t, refused, windows*atOnce)
	})
}

// Conversations into which nothing can be sent hold up no other.
func TestG10_AWriteThatFailsHoldsUpNoOther(t *testing.T) {
	for name, tc := range map[string]struct {
		fate  clienttest.Fate
		limit time.Duration
	}{
		"refused":    {clienttest.Busy, time.Second},
		"full":       {clienttest.Full, time.Second},
		"unanswered": {clienttest.Ignore, 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *clienttest.Server) {
				alice := online(t, config(s, "alice", "phone"))
				s.Interfere(clienttest.Hooks{OnRequest: func(r clienttest.Request) clienttest.Fate {
					if strings.Contains(string(r.Body), "hot") {
						return tc.fate
					}
					return clienttest.Handle
				}})
				ctx := within(t, time.Minute)
				for i := range 8 {
					go func() { _, _ = alice.Send(ctx, client.Draft{To: fmt.Sprint("user", i), Text: "hot"}) }()
				}
				for range 10 {
					_, err := alice.Send(within(t, tc.limit), client.Draft{To: "bob", Text: "hi"})
					require.NoError(t, err)
					time.Sleep(4 * time.Second)
				}
				<-ctx.Done()
			})
		})
	}
}

func TestAnArrivingMessageIsItsOwnAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice")
		alice := online(t, config(s, "alice", "phone"))
		s.Interfere(first(1, wire.ActionSend, clienttest.LoseReply))
		start := time.Now()
		var all errgroup.Group
		var sent wire.Sent
		all.Go(func() (err error) {
			sent, err = alice.Send(within(t, time.Minute), text(group, "hi"))
			return err
		})
		synctest.Wait()
		require.NoError(t, alice.Refresh(t.Context()), "sync brings it")
		require.NoError(t, all.Wait())
		require.Equal(t, int64(1), sent.Seq)
		require.Less(t, time.Since(start), time.Second, "it need not wait for the answer")
		_, err := alice.Send(within(t, time.Minute), text(group, "next"))
		require.NoError(t, err)
		require.Less(t, time.Since(start), time.Second, "nor does the next one")
		require.Zero(t, alice.Stats().Resent)
	})
}

func TestTheUsersOwnOrderIsKept(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group, other := s.MakeGroup("g", "alice", "bob"), s.MakeGroup("h", "alice")
		alice := online(t, config(s, "alice", "phone"))
		var n, under, most atomic.Int64
		s.Interfere(clienttest.Hooks{OnRequest: func(r clienttest.Request) clienttest.Fate {
			if r.Action != wire.ActionSend || !strings.Contains(string(r.Body), string(group)) {
				return clienttest.Handle
			}
			most.Store(max(most.Load(), under.Add(1)))
			time.Sleep(time.Duration(n.Add(1)%7) * 20 * time.Millisecond)
			under.Add(-1)
			return []clienttest.Fate{clienttest.Handle, clienttest.Busy, clienttest.LoseReply, clienttest.Platform, clienttest.Handle}[n.Load()%5]
		}})
		var all sync.WaitGroup
		var want []string
		for i := range 20 {
			want = append(want, fmt.Sprint(i))
			all.Go(func() {
				_, err := alice.Send(within(t, time.Hour), text(group, fmt.Sprint(i)))
				require.NoError(t, err)
			})
			synctest.Wait() // it is in the outbox
		}
		start := time.Now()
		_, err := alice.Send(within(t, time.Hour), text(other, "another conversation does not wait"))
		require.NoError(t, err)
		require.Less(t, time.Since(start), 30*time.Second)
		all.Wait()
		require.Equal(t, want, texts(s.Ledger("bob", group)))
		require.Equal(t, int64(1), most.Load(), "one message of a conversation is on its way at a time")
		require.Equal(t, want, texts(take(t, alice, group, 20)))
	})
}

func TestWhatTheServerRefusesIsNotSentAgain(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "bob")
		alice := online(t, config(s, "alice", "phone"))
		_, err := alice.Send(within(t, time.Minute), text(group, "let me in"))
		refused, ok := errors.AsType[*chat.Error](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, chat.CodeNotFound, refused.Code)
		require.Empty(t, alice.Outbox())
		require.Equal(t, 1, s.Count(wire.ActionSend))
	})
}

func TestADraftThatCannotBeSentIsRefusedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		alice := dial(t, config(s, "alice", "phone"))
		for name, c := range map[string]struct {
			draft client.Draft
			code  chat.Code
			field string
		}{
			"no address":       {client.Draft{Text: "x"}, chat.CodeBadRequest, "conversationId"},
			"two addresses":    {client.Draft{Text: "x", To: "bob", ConversationID: "group:g"}, chat.CodeBadRequest, "to"},
			"a bad user":       {client.Draft{Text: "x", To: "b\nb"}, chat.CodeBadRequest, "to"},
			"a bad id":         {client.Draft{Text: "x", ConversationID: "g"}, chat.CodeBadRequest, "conversationId"},
			"no text":          {client.Draft{To: "bob"}, chat.CodeBadRequest, "text"},
			"too long":         {client.Draft{To: "bob", Text: strings.Repeat("ü", chat.MaxTextRunes+1)}, chat.CodeTooLarge, "text"},
			"too large":        {client.Draft{To: "bob", Type: chat.TypeCustom, Data: json.RawMessage(`{"x":"` + strings.Repeat("x", chat.MaxMessageBytes) + `"}`)}, chat.CodeTooLarge, ""},
			"data is no JSON":  {client.Draft{To: "bob", Type: chat.TypeCustom, Data: json.RawMessage(`{"x`)}, chat.CodeBadRequest, "data"},
			"the server's own": {client.Draft{To: "bob", Text: "x", Type: chat.TypeSystem}, chat.CodeBadRequest, "messageType"},
			"a bad key":        {client.Draft{To: "bob", Text: "x", ClientMsgID: "ü"}, chat.CodeBadRequest, "clientMsgId"},
			"a reply to none":  {client.Draft{To: "bob", Text: "x", ReplyTo: &chat.ReplyTo{}}, chat.CodeBadRequest, "replyTo"},
		} {
			_, err := alice.Send(t.Context(), c.draft)
			refused, ok := errors.AsType[*chat.Error](err)
			require.True(t, ok, "%s: %v", name, err)
			require.Equal(t, c.code, refused.Code, name)
			require.Equal(t, c.field, refused.Field, name)
		}
		require.Empty(t, alice.Outbox())
	})
}

func TestASendThatIsNotWaitedForStaysInTheOutbox(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice")
		alice := online(t, config(s, "alice", "phone"))
		changes := alice.Changes(t.Context())
		s.Interfere(clienttest.Hooks{OnRequest: func(clienttest.Request) clienttest.Fate { return clienttest.Ignore }})
		_, err := alice.Send(within(t, time.Minute), client.Draft{ConversationID: group, Text: "later", ClientMsgID: "key"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		pending, ok := errors.AsType[*client.PendingError](err)
		require.True(t, ok)
		require.Equal(t, "key", pending.ClientMsgID)
		require.Len(t, alice.Outbox(), 1)

		s.Interfere(clienttest.Hooks{})
		for change := range changes {
			if settled, ok := change.(client.Settled); ok {
				require.NoError(t, settled.Err)
				require.Equal(t, "key", settled.ClientMsgID)
				require.Equal(t, int64(1), settled.Sent.Seq)
				break
			}
		}
		require.Equal(t, []string{"later"}, texts(s.Ledger("alice", group)))
		require.Empty(t, alice.Outbox())

		sent, err := alice.Send(within(t, time.Minute), client.Draft{ConversationID: group, Text: "later", ClientMsgID: "key"})
		require.NoError(t, err)
		require.True(t, sent.Duplicate, "the same draft again is the same message")
	})
}

func TestAPendingErrorSaysWhatIsInTheWay(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice")
		pending := func(c *client.Client) *client.PendingError {
			_, err := c.Send(within(t, 10*time.Second), text(group, "x"))
			pending, ok := errors.AsType[*client.PendingError](err)
			require.True(t, ok, "%v", err)
			return pending
		}
		alice := online(t, config(s, "alice", "phone"))
		s.Interfere(first(1000, wire.ActionSend, clienttest.Busy))
		require.ErrorContains(t, pending(alice).Obstacle, "too much at once")
		alice.Close()
		s.Interfere(clienttest.Hooks{OnHandshake: func(string, string) int { return http.StatusForbidden }})
		alice = dial(t, config(s, "alice", "phone"))
		refused := pending(alice)
		require.ErrorContains(t, refused.Obstacle, "status 403")
		require.ErrorContains(t, refused, "status 403")
		require.ErrorIs(t, refused, context.DeadlineExceeded)
	})
}

func TestTheOutboxIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice")
		s.Interfere(clienttest.Hooks{OnHandshake: func(string, string) int { return 503 }})
		cfg := config(s, "alice", "phone")
		cfg.MaxOutbox = 2
		alice := dial(t, cfg)
		ctx, cancel := context.WithCancel(t.Context())
		var sends sync.WaitGroup
		for _, key := range []string{"a", "b"} {
			sends.Go(func() {
				_, err := alice.Send(ctx, client.Draft{ConversationID: group, Text: "x", ClientMsgID: key})
				if key == "a" {
					require.ErrorIs(t, err, client.ErrDiscarded)
				} else {
					require.ErrorIs(t, err, context.Canceled)
				}
			})
		}
		synctest.Wait()
		_, err := alice.Send(ctx, text(group, "one too many"))
		require.ErrorIs(t, err, client.ErrOutboxFull)
		require.ErrorContains(t, err, "2 writes wait")

		require.NoError(t, alice.Discard("a"))
		require.Equal(t, chat.CodeNotFound, chat.CodeOf(alice.Discard("a")))
		require.Len(t, alice.Outbox(), 1)
		cancel()
		sends.Wait()
	})
}

func TestOneKeyIsOneMessage(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice")
		s.Interfere(clienttest.Hooks{OnHandshake: func(string, string) int { return 503 }})
		alice := dial(t, config(s, "alice", "phone"))
		draft := client.Draft{ConversationID: group, Text: "x", ClientMsgID: "key"}
		var sends sync.WaitGroup
		for range 2 {
			sends.Go(func() {
				sent, err := alice.Send(within(t, 10*time.Minute), draft)
				require.NoError(t, err)
				require.Equal(t, int64(1), sent.Seq)
			})
		}
		synctest.Wait()
		draft.Text = "y"
		_, err := alice.Send(t.Context(), draft)
		require.Equal(t, chat.CodeIdempotencyConflict, chat.CodeOf(err))
		s.Interfere(clienttest.Hooks{})
		sends.Wait()
		require.Len(t, s.Ledger("alice", group), 1)
	})
}

func TestTheOutboxOutlivesTheClient(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		cfg := config(s, "alice", "phone")
		cfg.Store = client.NewMemory()
		s.Interfere(clienttest.Hooks{OnHandshake: func(string, string) int { return 503 }})
		alice := dial(t, cfg)
		var sends sync.WaitGroup
		for i := range 3 {
			sends.Go(func() {
				_, err := alice.Send(t.Context(), client.Draft{To: "bob", Text: fmt.Sprint(i)})
				require.ErrorIs(t, err, client.ErrClosed)
			})
			synctest.Wait()
		}
		alice.Close()
		sends.Wait()
		_, err := alice.Send(t.Context(), client.Draft{To: "bob", Text: "too late"})
		require.ErrorIs(t, err, client.ErrClosed)

		s.Interfere(clienttest.Hooks{})
		alice = online(t, cfg)
		id := chat.SingleID("alice", "bob")
		require.Equal(t, []string{"0", "1", "2"}, texts(take(t, alice, id, 3)))
		require.Equal(t, []string{"0", "1", "2"}, texts(s.Ledger("bob", id)))
		require.Empty(t, alice.Outbox())
		line, ok := alice.Conversation(id)
		require.True(t, ok)
		require.Equal(t, "bob", line.Peer)
	})
}

func TestTheOutboxDoesNotWaitForEverForTheCatchUp(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice")
		s.Interfere(first(1_000_000, wire.ActionChanges, clienttest.Busy))
		alice := dial(t, config(s, "alice", "phone"))
		_, err := alice.Send(within(t, 10*time.Second), text(group, "x"))
		require.NoError(t, err)
		require.ErrorContains(t, alice.Online(within(t, time.Second)), "too much at once")
	})
}
