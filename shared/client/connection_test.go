package client_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/client/clienttest"
	"github.com/inorder-im/inorder/shared/wire"
)

func TestABadServerIsReportedAndNotPestered(t *testing.T) {
	t.Parallel()
	const watch = 10 * time.Minute
	closing := func(after time.Duration) func(*clienttest.Conn) {
		return func(*clienttest.Conn) { time.Sleep(after) }
	}
	babblingBy := func(say func(*clienttest.Conn, string) bool, frame string) func(*clienttest.Conn) {
		return func(c *clienttest.Conn) {
			go c.Wait()
			for say(c, frame) {
			}
		}
	}
	babbling := func(frame string) func(*clienttest.Conn) { return babblingBy((*clienttest.Conn).Say, frame) }
	for name, c := range map[string]struct {
		hooks  clienttest.Hooks
		most   int // connections within the time
		reason string
	}{
		"closes at once":        {clienttest.Hooks{OnOpen: closing(0)}, 80, "the connection was lost"},
		"closes after a second": {clienttest.Hooks{OnOpen: closing(time.Second)}, 80, "the connection was lost"},
		"never answers":         {clienttest.Hooks{OnOpen: (*clienttest.Conn).Wait}, 60, "the server stopped answering"},
		"refuses":               {clienttest.Hooks{OnHandshake: func(string, string) int { return 401 }}, 0, "status 401: no entry"},
		"cuts the handshake":    {clienttest.Hooks{CutAfter: func() int { return 50 }}, 0, "connecting to"},
		"talks no JSON":         {clienttest.Hooks{OnOpen: babbling("hello")}, 80, "100 frames of nonsense"},
		"talks nonsense":        {clienttest.Hooks{OnOpen: babbling(`{"type":"push","updates":[{"conversationId":"x"}]}`)}, 80, "100 frames of nonsense"},
		"talks binary":          {clienttest.Hooks{OnOpen: babblingBy((*clienttest.Conn).SayBinary, `{"type":"changed","syncCursor":4}`)}, 80, "a binary frame of 33 bytes"},
		"talks too much":        {clienttest.Hooks{OnOpen: babbling(strings.Repeat("x", 200*1024))}, 80, "read limited"},
		"answers only pushes": {clienttest.Hooks{OnOpen: func(c *clienttest.Conn) {
			go c.Wait()
			for c.Say(`{"type":"receipt","conversationId":"group:g","userId":"bob","readSeq":1}`) {
				time.Sleep(time.Second)
			}
		}}, 3, "no answer within"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *clienttest.Server) {
				s.Interfere(c.hooks)
				alice := dial(t, config(s, "alice", "phone"))
				var reasons []string
				for change := range alice.Changes(within(t, watch)) {
					if state, ok := change.(client.StateChanged); ok && state.Err != nil {
						reasons = append(reasons, state.Err.Error())
					}
				}
				require.LessOrEqual(t, s.Count("connect"), c.most)
				_, err := alice.State()
				require.Contains(t, strings.Join(reasons, "\n")+"\n"+errorText(err), c.reason)
				require.ErrorContains(t, alice.Online(within(t, time.Second)), "waiting to be online")
				s.Interfere(clienttest.Hooks{})
				s.CutAll()
				require.NoError(t, alice.Online(within(t, 2*time.Minute)), "when it gets well, so does the client")
			})
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestFramesOfNoUseDoNoHarm(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice")
		alice := online(t, config(s, "alice", "phone"))
		for _, frame := range []string{
			`{"type":"reply","id":"999","result":{}}`, `{"type":"error","id":"999","error":{"code":"BUSY"}}`,
			`{"type":"news from the future","of":["what"]}`, `[]`, `null`, `{}`, ``, `{"type":"reply","id":5}`,
			`{"type":"push","updates":null}`, `{"type":"push"}`, `{"type":"receipt","conversationId":"group:none","userId":"x","readSeq":3}`,
		} {
			s.Say("alice", "phone", frame)
		}
		_, err := alice.Send(within(t, time.Minute), text(group, "still here"))
		require.NoError(t, err)
		require.Equal(t, 1, s.Count("connect"))
	})
}

func TestAnErrorWithoutAnIdGivesNothingUp(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice")
		alice := online(t, config(s, "alice", "phone"))
		s.Interfere(first(1, wire.ActionSend, clienttest.Ignore))
		done := make(chan error)
		go func() {
			_, err := alice.Send(t.Context(), text(group, "x"))
			done <- err
		}()
		synctest.Wait()
		s.Say("alice", "phone", `{"type":"error","error":{"code":"UNKNOWN_ACTION","message":"?","retryable":false}}`)
		require.NoError(t, <-done)
		require.Len(t, s.Ledger("alice", group), 1)
	})
}

func TestHeartbeatsAndLife(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		alice := online(t, config(s, "alice", "phone"))
		time.Sleep(100 * time.Minute)
		require.InDelta(t, 12, s.Count(wire.ActionChanges), 1)
		require.Zero(t, s.Count(wire.ActionPing), "one question serves both ends")
		require.Equal(t, 1, s.Count("connect"))
		time.Sleep(16 * time.Minute)
		require.Equal(t, 2, s.Count("connect"), "it leaves before the two hours are over")
		time.Sleep(20 * time.Hour)
		require.InDelta(t, 12, s.Count("connect"), 2)
		require.NoError(t, alice.Online(within(t, time.Minute)))
	})
}

func TestAServerThatFallsSilentIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice")
		alice := online(t, config(s, "alice", "phone"))
		s.Interfere(clienttest.Hooks{OnRequest: func(clienttest.Request) clienttest.Fate {
			if s.Count("connect") == 1 {
				return clienttest.Ignore
			}
			return clienttest.Handle
		}})
		start := time.Now()
		_, err := alice.Send(within(t, time.Minute), text(group, "x"))
		require.NoError(t, err)
		require.Less(t, time.Since(start), 17*time.Second)
		require.Equal(t, 2, s.Count("connect"))
	})
}

func TestEachConnectHasAFreshToken(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		var asked atomic.Int64
		cfg := config(s, "alice", "phone")
		fresh := cfg.Token
		cfg.Token = func(ctx context.Context) (string, error) {
			deadline, ok := ctx.Deadline()
			require.True(t, ok)
			require.LessOrEqual(t, time.Until(deadline), 15*time.Second)
			if asked.Add(1) == 1 {
				return "", errors.New("the issuer is away")
			}
			return fresh(ctx)
		}
		alice := dial(t, cfg)
		synctest.Wait()
		_, err := alice.State()
		require.ErrorContains(t, err, "getting a token: the issuer is away")
		require.NoError(t, alice.Online(within(t, time.Minute)))
		s.CutAll()
		require.NoError(t, alice.Refresh(within(t, time.Minute)))
		require.Equal(t, int64(3), asked.Load())
	})
}

// Who has the wrong user's token would send in that user's name.
func TestATokenOfAnotherUserIsRefusedBeforeConnecting(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		cfg := config(s, "alice", "phone")
		cfg.Token = clienttest.Token("mallory")
		alice := dial(t, cfg)
		_, err := alice.Send(t.Context(), client.Draft{To: "bob", Text: "x"})
		require.ErrorIs(t, err, client.ErrWrongUser)
		require.ErrorIs(t, alice.Online(t.Context()), client.ErrWrongUser)
		state, err := alice.State()
		require.Equal(t, client.Ended, state)
		require.EqualError(t, err, `the token is another user's: its sub is "mallory", UserID is "alice"`)
		require.Zero(t, s.Count("connect"))
	})
}

// The client cannot read every token; then the server says whose it is, and until it has,
// the client asks for nothing and takes nothing in.
func TestATokenThatOnlyTheServerCanRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		owner string
		want  error
	}{
		"is the user's":     {"alice", nil},
		"is another user's": {"mallory", client.ErrWrongUser},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *clienttest.Server) {
				group, theirs := s.MakeGroup("g", "alice", "bob"), s.MakeGroup("theirs", "mallory", "bob")
				cfg := config(s, "alice", "phone")
				cfg.Token, cfg.Store = clienttest.OpaqueToken(c.owner), client.NewMemory()
				refused := first(20, wire.ActionChanges, clienttest.Busy)
				var asked atomic.Int64 // besides changes, while nobody has said whose the token is
				s.Interfere(clienttest.Hooks{OnRequest: func(r clienttest.Request) clienttest.Fate {
					fate := refused.OnRequest(r)
					if r.Action == wire.ActionChanges && fate == clienttest.Busy {
						s.Post("bob", wire.Send{ConversationID: group, Text: "hi"}) // it is pushed before the answer
						s.Post("bob", wire.Send{ConversationID: theirs, Text: "secret"})
					}
					if r.Action != wire.ActionChanges && c.want != nil {
						asked.Add(1)
					}
					return fate
				}})
				alice := dial(t, cfg)
				sent := make(chan error, 2)
				go func() {
					_, err := alice.Send(t.Context(), text(group, "mine"))
					sent <- err
				}()
				go func() {
					_, _, err := alice.Members(t.Context(), group)
					sent <- err
				}()
				require.ErrorIs(t, <-sent, c.want)
				require.ErrorIs(t, <-sent, c.want)
				if c.want == nil {
					require.NoError(t, alice.Refresh(t.Context()))
					require.Equal(t, s.Ledger("alice", group), stored(t, alice, group))
					require.Len(t, stored(t, alice, group), 21)
					require.Equal(t, 1, s.Count("connect"))
					return
				}
				state, err := alice.State()
				require.Equal(t, client.Ended, state)
				require.EqualError(t, err, `the token is another user's: the server knows it as that of "mallory", UserID is "alice"`)
				require.Zero(t, asked.Load())
				kept, err := cfg.Store.Load(t.Context(), "alice")
				require.NoError(t, err)
				require.Empty(t, kept.Conversations)
				require.Empty(t, stored(t, alice, theirs))
				require.Len(t, kept.Outbox, 1, "it is sent once the token is right")

				s.Interfere(clienttest.Hooks{})
				cfg.Token = clienttest.OpaqueToken("alice")
				alice = online(t, cfg)
				require.Len(t, take(t, alice, group, 21), 21)
			})
		})
	}
}

// An older server names nobody. Then the token has to.
func TestAServerThatNamesNobody(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		s.Interfere(clienttest.Hooks{OnChanges: func(changed *wire.Changed) { changed.UserID = "" }})
		online(t, config(s, "alice", "phone"))
		cfg := config(s, "alice", "tablet")
		cfg.Token = clienttest.OpaqueToken("alice")
		alice := dial(t, cfg)
		require.ErrorContains(t, alice.Online(within(t, time.Minute)), "changes did not name the user")
	})
}

// What is no token of the protocol is for the server to refuse.
func TestATokenThatCannotBeReadIsTheServersToRefuse(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"x", "a.b.c", "..", "a.e30.c", "é.é.é"} {
		t.Run(token, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *clienttest.Server) {
				cfg := config(s, "alice", "phone")
				cfg.Token = func(context.Context) (string, error) { return token, nil }
				alice := dial(t, cfg)
				require.ErrorContains(t, alice.Online(within(t, time.Second)), "status 401")
			})
		})
	}
}

func TestAnExpiredTokenIsReplacedOnGoodbye(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		var asked atomic.Int64
		cfg := config(s, "alice", "phone")
		fresh := cfg.Token
		cfg.Token = func(ctx context.Context) (string, error) {
			asked.Add(1)
			return fresh(ctx)
		}
		group := s.MakeGroup("g", "alice", "bob")
		alice := online(t, cfg)
		time.Sleep(time.Hour)
		s.Say("alice", "phone", `{"type":"goodbye","reason":"`+wire.GoodbyeExpired+`"}`)
		synctest.Wait()
		_, err := alice.Send(within(t, time.Minute), text(group, "with a new token"))
		require.NoError(t, err)
		require.Equal(t, 2, s.Count("connect"))
		require.Equal(t, int64(2), asked.Load())
		require.Equal(t, []string{"with a new token"}, texts(s.Ledger("bob", group)))
	})
}

func TestAHandshakeErrorTellsItsStatus(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		s.Interfere(clienttest.Hooks{OnHandshake: func(string, string) int { return http.StatusForbidden }})
		alice := dial(t, config(s, "alice", "phone"))
		err := alice.Online(within(t, time.Second))
		refused, ok := errors.AsType[*client.HandshakeError](err)
		require.True(t, ok, "%v", err)
		require.Equal(t, http.StatusForbidden, refused.Status)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

func TestAnOlderDeviceDoesNotFight(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		old := online(t, config(s, "alice", "phone"))
		want := post(s, group, 2)
		take(t, old, group, 2)
		changes := old.Changes(t.Context())
		fresh := online(t, config(s, "alice", "phone"))
		var got []string
		for m, err := range old.Messages(t.Context(), group, 0) {
			if err != nil {
				require.ErrorIs(t, err, client.ErrReplaced)
				break
			}
			got = append(got, m.Text)
		}
		require.Equal(t, want, got, "what is stored can still be read")
		var last client.Change
		for last = range changes {
		}
		require.Equal(t, client.StateChanged{State: client.Ended, Err: client.ErrReplaced}, last)
		_, err := old.Send(t.Context(), text(group, "x"))
		require.ErrorIs(t, err, client.ErrReplaced)
		_, err = old.Ping(t.Context())
		require.ErrorIs(t, err, client.ErrReplaced)
		require.ErrorIs(t, old.Online(t.Context()), client.ErrReplaced)
		time.Sleep(time.Hour)
		require.Equal(t, 2, s.Count("connect"))
		require.NoError(t, fresh.Online(t.Context()))
	})
}

func TestGoodbyes(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]error{"devices": client.ErrTooManyDevices, "replaced": client.ErrReplaced, "maintenance": nil} {
		t.Run(reason, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *clienttest.Server) {
				alice := online(t, config(s, "alice", "phone"))
				time.Sleep(time.Minute)
				s.Say("alice", "phone", `{"type":"goodbye","reason":"`+reason+`"}`)
				start := time.Now()
				synctest.Wait()
				err := alice.Refresh(within(t, time.Minute))
				if want != nil {
					require.ErrorIs(t, err, want)
					return
				}
				require.NoError(t, err)
				require.Less(t, time.Since(start), time.Second)
				require.Equal(t, 2, s.Count("connect"))
			})
		})
	}
}

func TestCloseEndsEverything(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice")
		s.Interfere(clienttest.Hooks{OnRequest: func(r clienttest.Request) clienttest.Fate {
			if r.Action == wire.ActionHistory {
				return clienttest.Ignore
			}
			return clienttest.Handle
		}})
		alice := online(t, config(s, "alice", "phone"))
		ends := make(chan error, 4)
		go func() {
			_, err := alice.History(context.Background(), group, 0, 0)
			ends <- err
		}()
		go func() {
			for _, err := range alice.Messages(context.Background(), group, 0) {
				ends <- err
			}
		}()
		go func() {
			for range alice.Changes(context.Background()) {
			}
			ends <- client.ErrClosed
		}()
		synctest.Wait()
		start := time.Now()
		alice.Close()
		require.Less(t, time.Since(start), time.Second)
		for range 3 {
			require.ErrorIs(t, <-ends, client.ErrClosed)
		}
		alice.Close() // again
		state, err := alice.State()
		require.Equal(t, client.Ended, state)
		require.ErrorIs(t, err, client.ErrClosed)
		for range alice.Changes(context.Background()) { // ends
		}
	})
}

func TestCloseDoesNotWaitForAServerThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		stuck := make(chan struct{})
		s.Interfere(clienttest.Hooks{OnOpen: func(*clienttest.Conn) { <-stuck }})
		alice := dial(t, config(s, "alice", "phone"))
		time.Sleep(time.Second)
		start := time.Now()
		alice.Close()
		require.LessOrEqual(t, time.Since(start), 2*time.Second)
		close(stuck)
	})
}

func TestCloseWhileConnecting(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		stuck := make(chan struct{})
		defer close(stuck)
		s.Interfere(clienttest.Hooks{OnHandshake: func(string, string) int {
			<-stuck
			return 0
		}})
		alice := dial(t, config(s, "alice", "phone"))
		synctest.Wait()
		start := time.Now()
		alice.Close()
		require.Zero(t, time.Since(start))
	})
}

func TestAWrongConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	good := client.Config{URL: "wss://example.com/prod", UserID: "alice", DeviceID: "phone", Token: clienttest.Token("alice")}
	for want, spoil := range map[string]func(*client.Config){
		"UserID":                              func(c *client.Config) { c.UserID = "" },
		"DeviceID":                            func(c *client.Config) { c.DeviceID = "my phone" },
		"Token is missing":                    func(c *client.Config) { c.Token = nil },
		"it starts with wss://":               func(c *client.Config) { c.URL = "example.com" },
		"reading URL":                         func(c *client.Config) { c.URL = "wss://%" },
		"PageSize is 501":                     func(c *client.Config) { c.PageSize = 501 },
		"MaxOutbox is -1":                     func(c *client.Config) { c.MaxOutbox = -1 },
		"HeartbeatEvery is -1s; it cannot be": func(c *client.Config) { c.HeartbeatEvery = -time.Second },
	} {
		cfg := good
		spoil(&cfg)
		_, err := client.Dial(t.Context(), cfg)
		require.ErrorContains(t, err, want)
	}
	store := client.NewMemory()
	_, err := store.Load(t.Context(), "bob")
	require.NoError(t, err)
	cfg := good
	cfg.Store = store
	_, err = client.Dial(t.Context(), cfg)
	require.ErrorContains(t, err, `the store is of user "bob"`)
}

// The other tests run on pipes in virtual time; this one on a real network, with
// the client's own HTTP client. TestMain looks for what it leaves behind.
func TestARealNetwork(t *testing.T) {
	t.Parallel()
	s, err := clienttest.Listen(t.Context())
	require.NoError(t, err)
	defer s.Close()
	cfg := config(s, "alice", "phone")
	cfg.HTTPClient, cfg.BackoffBase = nil, time.Millisecond
	alice := online(t, cfg)
	sent, err := alice.Send(within(t, 10*time.Second), client.Draft{To: "alice", Text: "a note"})
	require.NoError(t, err)
	require.Equal(t, chat.SingleID("alice", "alice"), sent.ConversationID)
	s.CutAll()
	require.NoError(t, alice.Refresh(within(t, 10*time.Second)))
	require.Len(t, take(t, alice, sent.ConversationID, 1), 1)
	alice.Close()
}

// A machine that slept, or changed its network, does not wait for the next heartbeat.
func TestRetryNow(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		hooks    clienttest.Hooks
		connects int // within seconds
	}{
		"a connection that lives stays": {connects: 1},
		"a dead connection is replaced": {
			hooks: first(1, wire.ActionPing, clienttest.Ignore), connects: 2,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *clienttest.Server) {
				alice := online(t, config(s, "alice", "phone"))
				s.Interfere(c.hooks)
				for range 3 { // it does no harm to ask more than once
					alice.RetryNow()
				}
				time.Sleep(6 * time.Second)
				require.NoError(t, alice.Refresh(within(t, time.Minute)))
				require.Equal(t, c.connects, s.Count("connect"))
			})
		})
	}
	t.Run("a pause is cut short", func(t *testing.T) {
		bubble(t, func(t *testing.T, s *clienttest.Server) {
			cfg := config(s, "alice", "phone")
			cfg.BackoffBase, cfg.BackoffCap = time.Hour, time.Hour
			s.Interfere(clienttest.Hooks{OnHandshake: func(string, string) int { return 503 }})
			alice := dial(t, cfg)
			synctest.Wait()
			s.Interfere(clienttest.Hooks{})
			start := time.Now()
			alice.RetryNow()
			require.NoError(t, alice.Online(within(t, time.Minute)))
			require.Less(t, time.Since(start), time.Second)
		})
	})
}
