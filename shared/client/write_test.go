package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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

// scene is a group of alice's in which she wrote, and what is written in it.
type scene struct {
	server *clienttest.Server
	group  chat.ConversationID
	first  chat.Message // alice's
}

func newScene(s *clienttest.Server) scene {
	group := s.MakeGroup("g", "alice", "bob", "carol")
	s.Post("alice", wire.Send{ConversationID: group, Text: "first"})
	return scene{s, group, s.Entries(group)[0]}
}

// writes are all that the outbox keeps, by action; done counts how often the server has
// carried it out.
var writes = map[string]struct {
	do   func(ctx context.Context, c *client.Client, in scene, key string) error
	done func(in scene) int
}{
	wire.ActionSend: {
		func(ctx context.Context, c *client.Client, in scene, key string) error {
			_, err := c.Send(ctx, client.Draft{ConversationID: in.group, Text: "x", ClientMsgID: key})
			return err
		},
		func(in scene) int { return in.count(func(m chat.Message) bool { return m.Text == "x" }) },
	},
	wire.ActionEdit: {
		func(ctx context.Context, c *client.Client, in scene, key string) error {
			edited, err := c.RequestEdit(ctx, wire.Edit{
				ConversationID: in.group, Seq: in.first.Seq, MessageID: in.first.MessageID, Version: 1, Text: "edited", ClientMsgID: key,
			})
			if err == nil && edited.Version != 2 {
				return fmt.Errorf("the version is %d", edited.Version)
			}
			return err
		},
		events(chat.EventEdit),
	},
	wire.ActionRecall: {
		func(ctx context.Context, c *client.Client, in scene, key string) error {
			_, err := c.RequestRecall(ctx, wire.Recall{ConversationID: in.group, Seq: in.first.Seq, MessageID: in.first.MessageID, ClientMsgID: key})
			return err
		},
		events(chat.EventRecall),
	},
	wire.ActionClear: {
		func(ctx context.Context, c *client.Client, in scene, _ string) error {
			cleared, err := c.Clear(ctx, in.group, 1)
			if err == nil && cleared.ClearedSeq != 1 {
				return fmt.Errorf("cleared through %d", cleared.ClearedSeq)
			}
			return err
		},
		func(in scene) int {
			_, _, cleared := in.server.Positions("alice", in.group)
			return int(cleared)
		},
	},
	wire.ActionCreateGroup: {
		func(ctx context.Context, c *client.Client, _ scene, key string) error {
			created, err := c.CreateGroup(ctx, wire.CreateGroup{Title: "new", Members: []string{"bob"}, ClientMsgID: key})
			if line, ok := c.Conversation(created.ConversationID); err == nil && (!ok || line.Title != "new") {
				return fmt.Errorf("the device knows %+v of %+v", line, created)
			}
			return err
		},
		func(in scene) int { return len(in.server.Conversations("alice")) - 1 },
	},
	wire.ActionAddMembers: {
		func(ctx context.Context, c *client.Client, in scene, key string) error {
			_, err := c.AddMembers(ctx, wire.ChangeMembers{ConversationID: in.group, Members: []string{"dave"}, ClientMsgID: key})
			return err
		},
		events(chat.EventMembers),
	},
	wire.ActionRemoveMembers: {
		func(ctx context.Context, c *client.Client, in scene, key string) error {
			_, err := c.RemoveMembers(ctx, wire.ChangeMembers{ConversationID: in.group, Members: []string{"carol"}, ClientMsgID: key})
			return err
		},
		events(chat.EventMembers),
	},
	wire.ActionLeave: {
		func(ctx context.Context, c *client.Client, in scene, key string) error {
			_, err := c.Leave(ctx, wire.ChangeGroup{ConversationID: in.group, ClientMsgID: key})
			return err
		},
		events(chat.EventMembers),
	},
	wire.ActionSetRole: {
		func(ctx context.Context, c *client.Client, in scene, key string) error {
			_, err := c.SetRole(ctx, wire.SetRole{ConversationID: in.group, UserID: "bob", Role: chat.RoleAdmin, ClientMsgID: key})
			return err
		},
		events(chat.EventMembers),
	},
	wire.ActionSetTitle: {
		func(ctx context.Context, c *client.Client, in scene, key string) error {
			_, err := c.SetTitle(ctx, wire.SetTitle{ConversationID: in.group, Title: "title", ClientMsgID: key})
			return err
		},
		events(chat.EventTitle),
	},
	wire.ActionDissolve: {
		func(ctx context.Context, c *client.Client, in scene, key string) error {
			_, err := c.Dissolve(ctx, wire.ChangeGroup{ConversationID: in.group, ClientMsgID: key})
			return err
		},
		events(chat.EventDissolve),
	},
}

func (in scene) count(is func(chat.Message) bool) (n int) {
	for _, m := range in.server.Entries(in.group) {
		if is(m) {
			n++
		}
	}
	return n
}

func events(kind chat.EventKind) func(scene) int {
	return func(in scene) int {
		return in.count(func(m chat.Message) bool { return m.Event != nil && m.Event.Kind == kind })
	}
}

func TestG3_AWriteIsCarriedOutOnceWhateverHappens(t *testing.T) {
	t.Parallel()
	for action, write := range writes {
		for name, fate := range mishaps() {
			for pushed, onPush := range map[string]func(string, string) (int, time.Duration){"pushed": nil, "not pushed": noPushes} {
				t.Run(action+"/"+name+"/"+pushed, func(t *testing.T) {
					bubble(t, func(t *testing.T, s *clienttest.Server) {
						in := newScene(s)
						alice := online(t, config(s, "alice", "phone"))
						hooks := first(3, action, fate)
						hooks.OnPush = onPush
						s.Interfere(hooks)
						require.NoError(t, write.do(within(t, 10*time.Minute), alice, in, "key"))
						require.Equal(t, 1, write.done(in))
						require.Empty(t, alice.Outbox())
						require.NoError(t, alice.Refresh(within(t, time.Minute)))
						require.Equal(t, s.Ledger("alice", in.group), stored(t, alice, in.group))
					})
				})
			}
		}
	}
}

// The arrival of an event tells that its write is committed, as that of a message does.
func TestAnArrivingEventIsItsOwnAnswer(t *testing.T) {
	t.Parallel()
	for action, write := range writes {
		switch action {
		case wire.ActionCreateGroup, wire.ActionClear:
			continue // a line or a position is the answer
		case wire.ActionLeave:
			continue // who has left is pushed nothing
		case wire.ActionSend:
			continue // the connection that is answered is pushed nothing
		}
		t.Run(action, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *clienttest.Server) {
				in := newScene(s)
				alice := online(t, config(s, "alice", "phone"))
				s.Interfere(first(1, action, clienttest.LoseReply))
				start := time.Now()
				require.NoError(t, write.do(within(t, time.Minute), alice, in, "key"))
				require.Less(t, time.Since(start), time.Second)
				require.Zero(t, alice.Stats().Resent)
			})
		})
	}
}

// What was under way when the program ended is done by its next run, which hears of it by
// Settled.
func TestG3_AnyWriteOutlivesTheClient(t *testing.T) {
	t.Parallel()
	for action, write := range writes {
		for name, fate := range map[string]clienttest.Fate{"not carried out": clienttest.Ignore, "carried out": clienttest.LoseReply} {
			t.Run(action+"/"+name, func(t *testing.T) {
				bubble(t, func(t *testing.T, s *clienttest.Server) {
					in := newScene(s)
					cfg := config(s, "alice", "phone")
					cfg.Store = client.NewMemory()
					alice := online(t, cfg)
					hooks := first(1, action, fate)
					hooks.OnPush = noPushes
					s.Interfere(hooks)
					pending, ok := errors.AsType[*client.PendingError](write.do(within(t, time.Second), alice, in, "key"))
					require.True(t, ok)
					require.ErrorIs(t, pending, context.DeadlineExceeded)
					left := alice.Outbox()
					require.Len(t, left, 1)
					require.Equal(t, action, left[0].Action)
					require.Equal(t, pending.ClientMsgID, left[0].ClientMsgID)
					_, isMessage := left[0].Draft()
					require.Equal(t, action == wire.ActionSend, isMessage)
					alice.Close()

					s.Interfere(clienttest.Hooks{OnHandshake: func(string, string) int { return 503 }, OnPush: noPushes})
					alice = dial(t, cfg)
					require.Equal(t, left, alice.Outbox())
					changes := alice.Changes(within(t, time.Minute))
					s.Interfere(clienttest.Hooks{OnPush: noPushes})
					for change := range changes {
						settled, ok := change.(client.Settled)
						if !ok {
							continue
						}
						require.NoError(t, settled.Err)
						require.Equal(t, [2]string{action, pending.ClientMsgID}, [2]string{settled.Action, settled.ClientMsgID})
						if action == wire.ActionCreateGroup {
							require.Contains(t, s.Conversations("alice"), settled.ConversationID)
						} else {
							require.Equal(t, in.group, settled.ConversationID)
						}
						break
					}
					require.Empty(t, alice.Outbox())
					require.Equal(t, 1, write.done(in))
					kept, err := cfg.Store.Load(t.Context(), "alice")
					require.NoError(t, err)
					require.Empty(t, kept.Outbox)
				})
			})
		}
	}
}

// All that the user does in a conversation is done in that order, and what is done in
// another does not wait for it.
func TestWritesOfAllKindsKeepTheUsersOrder(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		in := newScene(s)
		other := s.MakeGroup("h", "alice")
		alice := online(t, config(s, "alice", "phone"))
		var n atomic.Int64
		s.Interfere(clienttest.Hooks{OnPush: noPushes, OnRequest: func(r clienttest.Request) clienttest.Fate {
			if writes[r.Action].do == nil || !strings.Contains(string(r.Body), string(in.group)) {
				return clienttest.Handle
			}
			time.Sleep(time.Duration(n.Add(1)%7) * 20 * time.Millisecond)
			return []clienttest.Fate{clienttest.Handle, clienttest.Busy, clienttest.LoseReply, clienttest.Platform, clienttest.CutAfter}[n.Load()%5]
		}})
		ctx := within(t, time.Hour)
		order := []string{
			wire.ActionSend, wire.ActionEdit, wire.ActionSetTitle, wire.ActionRecall, wire.ActionAddMembers, wire.ActionRemoveMembers,
			wire.ActionSetRole, wire.ActionClear, wire.ActionDissolve, wire.ActionLeave,
		}
		var all sync.WaitGroup
		for _, action := range order {
			all.Go(func() { require.NoError(t, writes[action].do(ctx, alice, in, action)) })
			synctest.Wait() // it is in the outbox
		}
		start := time.Now()
		_, err := alice.Send(ctx, text(other, "another conversation does not wait"))
		require.NoError(t, err)
		require.Less(t, time.Since(start), 30*time.Second)
		all.Wait()
		var committed []string
		for _, m := range s.Entries(in.group)[1:] {
			committed = append(committed, m.ClientMsgID)
		}
		require.Equal(t, slices.DeleteFunc(order, func(action string) bool { return action == wire.ActionClear }), committed)
	})
}

func TestEditsThatWaitComeOneAfterTheOther(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		in := newScene(s)
		alice := online(t, config(s, "alice", "phone"))
		message := take(t, alice, in.group, 1)[0]
		s.Interfere(clienttest.Hooks{OnHandshake: func(string, string) int { return 503 }})
		s.CutAll()
		var all sync.WaitGroup
		for i := range 3 {
			all.Go(func() {
				edited, err := alice.Edit(within(t, time.Hour), message, fmt.Sprint(i))
				require.NoError(t, err)
				require.Equal(t, int64(i+2), edited.Version)
			})
			synctest.Wait()
		}
		s.Interfere(clienttest.Hooks{})
		all.Wait()
		require.Equal(t, "2", s.Entries(in.group)[0].Text)
	})
}

func TestOneKeyIsOneWrite(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		in := newScene(s)
		s.Interfere(clienttest.Hooks{OnHandshake: func(string, string) int { return 503 }})
		alice := dial(t, config(s, "alice", "phone"))
		rename := func(title string) error {
			_, err := alice.SetTitle(within(t, time.Hour), wire.SetTitle{ConversationID: in.group, Title: title, ClientMsgID: "key"})
			return err
		}
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { require.NoError(t, rename("one")) })
		}
		synctest.Wait()
		require.Equal(t, chat.CodeIdempotencyConflict, chat.CodeOf(rename("other")))
		require.Equal(t, chat.CodeIdempotencyConflict, chat.CodeOf(writes[wire.ActionSend].do(t.Context(), alice, in, "key")))
		require.Equal(t, chat.CodeIdempotencyConflict, chat.CodeOf(writes[wire.ActionDissolve].do(t.Context(), alice, in, "key")))
		require.Len(t, alice.Outbox(), 1)
		s.Interfere(clienttest.Hooks{})
		all.Wait()
		require.Equal(t, 1, s.Count(wire.ActionSetTitle))
	})
}

func TestTheBoundOfTheOutboxIsForAllWrites(t *testing.T) {
	t.Parallel()
	for action, write := range writes {
		t.Run(action, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *clienttest.Server) {
				in := newScene(s)
				s.Interfere(clienttest.Hooks{OnHandshake: func(string, string) int { return 503 }})
				cfg := config(s, "alice", "phone")
				cfg.MaxOutbox = 1
				alice := dial(t, cfg)
				var waits sync.WaitGroup
				waits.Go(func() { require.ErrorIs(t, write.do(t.Context(), alice, in, "a"), client.ErrDiscarded) })
				synctest.Wait()
				require.ErrorIs(t, write.do(t.Context(), alice, in, "b"), client.ErrOutboxFull)
				require.NoError(t, alice.Discard(alice.Outbox()[0].ClientMsgID))
				waits.Wait()
				require.Empty(t, alice.Outbox())
			})
		})
	}
}

// What could never be carried out is told at once, also without a network.
func TestAWriteThatCannotBeIsRefusedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		in := newScene(s)
		s.Interfere(clienttest.Hooks{OnHandshake: func(string, string) int { return 503 }})
		alice := dial(t, config(s, "alice", "phone"))
		ctx := within(t, time.Minute)
		edit := wire.Edit{ConversationID: in.group, Seq: 1, MessageID: "m", Version: 1, Text: "x"}
		for name, c := range map[string]struct {
			do    func() error
			code  chat.Code
			field string
		}{
			"no conversation": {func() error { _, err := alice.Leave(ctx, wire.ChangeGroup{}); return err }, chat.CodeBadRequest, "conversationId"},
			"a bad key": {func() error {
				_, err := alice.Dissolve(ctx, wire.ChangeGroup{ConversationID: in.group, ClientMsgID: "ü"})
				return err
			}, chat.CodeBadRequest, "clientMsgId"},
			"no title": {func() error { _, err := alice.CreateGroup(ctx, wire.CreateGroup{}); return err }, chat.CodeBadRequest, "title"},
			"a long title": {func() error {
				_, err := alice.SetTitle(ctx, wire.SetTitle{ConversationID: in.group, Title: strings.Repeat("x", 101)})
				return err
			}, chat.CodeTooLarge, "title"},
			"no members": {func() error {
				_, err := alice.AddMembers(ctx, wire.ChangeMembers{ConversationID: in.group})
				return err
			}, chat.CodeBadRequest, "members"},
			"a bad seq":  {func() error { _, err := alice.Clear(ctx, in.group, -1); return err }, chat.CodeBadRequest, "throughSeq"},
			"no message": {func() error { _, err := alice.Recall(ctx, chat.Message{ConversationID: in.group}); return err }, chat.CodeBadRequest, "seq"},
			"a long text": {func() error {
				e := edit
				e.Text = strings.Repeat("x", 4001)
				_, err := alice.RequestEdit(ctx, e)
				return err
			}, chat.CodeTooLarge, "text"},
			"data is none": {func() error { e := edit; e.Data = []byte(`{"x`); _, err := alice.RequestEdit(ctx, e); return err }, chat.CodeBadRequest, "data"},
			"no version":   {func() error { e := edit; e.Version = 0; _, err := alice.RequestEdit(ctx, e); return err }, chat.CodeBadRequest, "version"},
			"a long roster": {func() error {
				_, err := alice.CreateGroup(ctx, wire.CreateGroup{Title: "x", Members: make([]string, chat.MaxRosterChange)})
				return err
			}, chat.CodeLimit, "members"},
			"a group with oneself": {func() error {
				_, err := alice.CreateGroup(ctx, wire.CreateGroup{Title: "x", Members: []string{"alice"}})
				return err
			}, chat.CodeBadRequest, "members"},
			"a group with somebody twice": {func() error {
				_, err := alice.CreateGroup(ctx, wire.CreateGroup{Title: "x", Members: []string{"bob", "bob"}})
				return err
			}, chat.CodeBadRequest, "members"},
			"a role for nobody": {func() error {
				_, err := alice.SetRole(ctx, wire.SetRole{ConversationID: in.group, Role: chat.RoleAdmin})
				return err
			}, chat.CodeBadRequest, "userId"},
			"no role": {func() error {
				_, err := alice.SetRole(ctx, wire.SetRole{ConversationID: in.group, UserID: "bob", Role: "moderator"})
				return err
			}, chat.CodeBadRequest, "role"},
		} {
			refused, ok := errors.AsType[*chat.Error](c.do())
			require.True(t, ok, name)
			require.Equal(t, c.code, refused.Code, name)
			require.Equal(t, c.field, refused.Field, name)
		}
		require.Empty(t, alice.Outbox())
	})
}

// What the user wrote is not gone because nobody was there when the server refused it.
func TestWhatIsRefusedWhileNobodyWaitsIsKept(t *testing.T) {
	t.Parallel()
	for action, write := range writes {
		t.Run(action, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *clienttest.Server) {
				in := newScene(s)
				cfg := config(s, "alice", "phone")
				cfg.Store = client.NewMemory()
				s.Interfere(clienttest.Hooks{OnHandshake: func(string, string) int { return 503 }})
				alice := dial(t, cfg)
				pending, ok := errors.AsType[*client.PendingError](write.do(within(t, time.Second), alice, in, "key"))
				require.True(t, ok)
				left := alice.Outbox()
				alice.Close()

				s.Interfere(first(2, action, clienttest.Missing))
				alice = online(t, cfg)
				for len(alice.Outbox()) > 0 {
					time.Sleep(time.Second)
				}
				alice.Close()
				alice = online(t, cfg)
				refused := alice.Refused()
				require.Len(t, refused, 1)
				require.Equal(t, chat.CodeNotFound, refused[0].Refused.Code)
				refused[0].Refused = nil
				require.Equal(t, left, refused)
				require.Empty(t, alice.Outbox())

				_, err := alice.Retry(within(t, time.Minute), pending.ClientMsgID)
				require.Equal(t, chat.CodeNotFound, chat.CodeOf(err), "it is the call's now")
				require.Empty(t, alice.Refused())
				_, err = alice.Retry(within(t, time.Minute), pending.ClientMsgID)
				require.Equal(t, chat.CodeNotFound, chat.CodeOf(err))
				require.NoError(t, write.do(within(t, time.Minute), alice, in, "key"))
				require.Equal(t, 1, write.done(in))
				kept, err := cfg.Store.Load(t.Context(), "alice")
				require.NoError(t, err)
				require.Empty(t, kept.Outbox)
			})
		})
	}
}

func TestTheLastRefusedAreKept(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "bob")
		cfg := config(s, "alice", "phone")
		cfg.Store = client.NewMemory()
		s.Interfere(clienttest.Hooks{OnHandshake: func(string, string) int { return 503 }})
		alice := dial(t, cfg)
		var all sync.WaitGroup
		for i := range 105 {
			all.Go(func() {
				_, _ = alice.Send(within(t, time.Second), client.Draft{ConversationID: group, Text: "x", ClientMsgID: fmt.Sprint(i)})
			})
			synctest.Wait()
		}
		all.Wait()
		s.Interfere(clienttest.Hooks{})
		require.NoError(t, alice.Online(within(t, time.Minute)))
		for len(alice.Outbox()) > 0 {
			time.Sleep(time.Second)
		}
		refused := alice.Refused()
		require.Len(t, refused, 100)
		require.Equal(t, "5", refused[0].ClientMsgID)
		kept, err := cfg.Store.Load(t.Context(), "alice")
		require.NoError(t, err)
		require.Equal(t, refused, kept.Outbox)
		require.NoError(t, alice.Discard("5"))
		require.Len(t, alice.Refused(), 99)

		s.Post("bob", wire.Send{ConversationID: group, Text: "welcome"})
		s.Join(group, "alice")
		sent, err := alice.Retry(within(t, time.Minute), "6")
		require.NoError(t, err)
		require.Equal(t, int64(2), sent.Seq)
		require.Len(t, alice.Refused(), 98)
	})
}
