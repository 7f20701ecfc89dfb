package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/client/clienttest"
	"github.com/inorder-im/inorder/shared/wire"
)

// absence is a group of alice's from which she removes bob, and to which she adds him
// again.
type absence struct {
	t      *testing.T
	ctx    context.Context
	server *clienttest.Server
	alice  *client.Client
	group  chat.ConversationID
}

func newAbsence(t *testing.T, s *clienttest.Server) *absence {
	t.Helper()
	a := &absence{t: t, ctx: within(t, time.Hour), server: s, alice: online(t, config(s, "alice", "phone"))}
	made, err := a.alice.CreateGroup(a.ctx, wire.CreateGroup{Title: "g", Members: []string{"bob", "carol"}})
	require.NoError(t, err)
	a.group = made.ConversationID
	return a
}

// post sends texts of alice's, and one of carol's after each tenth.
func (a *absence) post(n int) {
	for i := range n {
		a.server.Post("alice", wire.Send{ConversationID: a.group, Text: fmt.Sprintf("text %d", i)})
		if i%10 == 9 {
			a.server.Post("carol", wire.Send{ConversationID: a.group, Text: "from carol"})
		}
	}
}

func (a *absence) remove() {
	a.t.Helper()
	_, err := a.alice.RemoveMembers(a.ctx, wire.ChangeMembers{ConversationID: a.group, Members: []string{"bob"}})
	require.NoError(a.t, err)
}

func (a *absence) add() {
	a.t.Helper()
	_, err := a.alice.AddMembers(a.ctx, wire.ChangeMembers{ConversationID: a.group, Members: []string{"bob"}})
	require.NoError(a.t, err)
}

func (a *absence) at(seq int64) chat.Message { return a.server.Entries(a.group)[seq-1] }

func (a *absence) recall(seqs ...int64) {
	a.t.Helper()
	for _, seq := range seqs {
		_, err := a.alice.RequestRecall(a.ctx, wire.Recall{ConversationID: a.group, Seq: seq, MessageID: a.at(seq).MessageID})
		require.NoError(a.t, err)
	}
}

func (a *absence) edit(seq int64, text string) {
	a.t.Helper()
	m := a.at(seq)
	_, err := a.alice.RequestEdit(a.ctx, wire.Edit{ConversationID: a.group, Seq: seq, MessageID: m.MessageID, Version: m.Version, Text: text})
	require.NoError(a.t, err)
}

// caughtUp checks that a device of bob's has what the server gives to one that is new.
func (a *absence) caughtUp(c *client.Client, name string) {
	a.t.Helper()
	require.NoError(a.t, c.Refresh(a.ctx), name)
	synctest.Wait()
	line, _ := c.Conversation(a.group)
	want := slices.DeleteFunc(a.server.Ledger("bob", a.group), func(m chat.Message) bool { return m.Seq <= line.BaseSeq })
	require.Equal(a.t, want, stored(a.t, c, a.group), name)
}

// Who was away hears of no recall and no erasure of that time, for they are not for it.
// All its devices agree all the same, once it is back.
func TestG5_WhoComesBackHasWhatANewDeviceHas(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(a *absence){
		"a recall": func(a *absence) {
			a.remove()
			a.recall(2, 100, 276)
			a.add()
		},
		"of what was edited before, and edited meanwhile": func(a *absence) {
			a.edit(5, "edited")
			a.edit(6, "edited, and seen by nobody who comes later")
			a.remove()
			a.edit(5, "edited meanwhile")
			a.edit(7, "this too")
			a.recall(5, 6)
			a.add()
			a.recall(7)
		},
		"an erasure": func(a *absence) {
			a.remove()
			a.server.Erase("carol")
			a.add()
		},
		"away twice": func(a *absence) {
			a.remove()
			a.recall(3)
			a.add()
			a.post(150)
			a.remove()
			a.recall(4, 270, 300)
			a.add()
		},
		"removed again, and still away": func(a *absence) {
			a.remove()
			a.recall(3)
			a.add()
			a.remove()
		},
		"into a crowd, where nothing says so": func(a *absence) {
			a.remove()
			a.recall(3, 276)
			a.server.Join(a.group, "bob")
		},
		"and more is said than a device takes in at once": func(a *absence) {
			a.remove()
			a.recall(3)
			a.add()
			a.post(700)
			a.recall(4, 800)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *clienttest.Server) {
				a := newAbsence(t, s)
				a.post(250)
				configs := map[string]client.Config{}
				devices := map[string]*client.Client{}
				for _, name := range []string{"online", "offline", "only there meanwhile", "begun late"} {
					cfg := config(s, "bob", fmt.Sprint("phone", len(configs)))
					cfg.Store, cfg.StartWith = client.NewMemory(), client.Everything
					if name == "begun late" {
						cfg.StartWith = 20
					}
					configs[name], devices[name] = cfg, online(t, cfg)
				}
				devices["offline"].Close()
				test(a)
				devices["only there meanwhile"].Close()
				for _, name := range []string{"offline", "only there meanwhile"} {
					devices[name] = online(t, configs[name])
				}
				fresh := config(s, "bob", "new")
				fresh.StartWith = client.Everything
				devices["new"] = online(t, fresh)
				for name, c := range devices {
					a.caughtUp(c, name)
				}
			})
		})
	}
}

// A device that ends in the middle goes on from there, the newest first.
func TestG5_ADeviceThatEndsWhileItReadsAgainGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		a := newAbsence(t, s)
		a.post(400)
		cfg := config(s, "bob", "phone")
		cfg.Store, cfg.StartWith, cfg.RequestTimeout = client.NewMemory(), client.Everything, time.Second
		bob := online(t, cfg)
		a.remove()
		last := int64(len(s.Entries(a.group)))
		a.recall(2, last-1)
		require.NoError(t, bob.Refresh(a.ctx))
		bob.Close()
		a.add()
		pages := 0
		s.Interfere(clienttest.Hooks{OnRequest: func(r clienttest.Request) clienttest.Fate {
			if r.Action == wire.ActionHistory {
				if pages++; pages > 2 {
					return clienttest.Ignore
				}
			}
			return clienttest.Handle
		}})
		bob = dial(t, cfg)
		time.Sleep(time.Minute)
		messages := stored(t, bob, a.group)
		require.Equal(t, []chat.Status{chat.StatusNormal, chat.StatusRecalled}, []chat.Status{messages[1].Status, messages[last-2].Status})
		bob.Close()
		s.Interfere(clienttest.Hooks{})
		asked := s.Count(wire.ActionHistory)
		a.caughtUp(online(t, cfg), "started again")
		require.Equal(t, 3, s.Count(wire.ActionHistory)-asked, "of five pages")
	})
}

// A page that the server read before an event does not undo what the device has of it.
func TestG5_WhatIsReadAgainUndoesNoEvent(t *testing.T) {
	t.Parallel()
	for name, later := range map[string]func(a *absence){
		"recalls":    func(a *absence) { a.recall(3, 4) },
		"an erasure": func(a *absence) { a.server.Erase("alice") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *clienttest.Server) {
				a := newAbsence(t, s)
				a.post(20)
				a.edit(3, "edited")
				bob := online(t, config(s, "bob", "phone"))
				a.remove()
				old := s.Ledger("bob", a.group)
				a.recall(2)
				s.Interfere(first(1000, wire.ActionHistory, clienttest.Busy))
				a.add()
				later(a)
				time.Sleep(time.Minute)
				s.Interfere(clienttest.Hooks{OnHistory: func(p *wire.HistoryPage) {
					for i, m := range p.Messages {
						if m.Seq != 2 {
							p.Messages[i] = old[m.Seq-1]
						}
					}
				}})
				a.caughtUp(bob, "bob")
			})
		})
	}
}

// A page with another message at a seq that the device holds puts the conversation in
// doubt, once.
func TestWhatIsReadAgainIsCompared(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		a := newAbsence(t, s)
		a.post(20)
		bob := online(t, config(s, "bob", "phone"))
		a.remove()
		a.recall(2)
		pages := 0
		s.Interfere(clienttest.Hooks{OnHistory: func(p *wire.HistoryPage) {
			if pages++; pages == 1 {
				p.Messages[0].MessageID = "another"
			}
		}})
		a.add()
		a.caughtUp(bob, "bob")
		line, _ := bob.Conversation(a.group)
		require.False(t, line.HasOrphans)
		require.Greater(t, pages, 2)
	})
}

// Who looks at the device is told which messages are different now.
func TestG5_WhatWasRecalledInAnAbsenceIsTold(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		a := newAbsence(t, s)
		a.post(9)
		bob := online(t, config(s, "bob", "phone"))
		a.remove()
		a.recall(3, 7)
		require.NoError(t, bob.Refresh(a.ctx))
		changes := bob.Changes(a.ctx)
		s.Join(a.group, "bob")
		require.NoError(t, bob.Refresh(a.ctx))
		bob.Close()
		var told []client.Change
		for change := range changes {
			if _, ok := change.(client.MessagesChanged); ok {
				told = append(told, change)
			}
		}
		require.Equal(t, []client.Change{client.MessagesChanged{ConversationID: a.group, FromSeq: 3, ThroughSeq: 7}}, told)
	})
}

// A long stretch of a conversation that nobody leaves is passed over if it is gone.
func TestWhatIsGoneIsNoAbsence(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		cfg := config(s, "bob", "phone")
		cfg.Store = client.NewMemory()
		bob := online(t, cfg)
		single := s.Post("alice", wire.Send{To: "bob", Text: "hi"}).ConversationID
		take(t, bob, single, 1)
		bob.Close()
		post(s, single, 9)
		s.Punch(single, 2, 3, 4)
		s.Interfere(clienttest.Hooks{OnSync: func(p *wire.Synced) {
			if p.Messages[0].Seq == 1 { // as the real server, which begins a page with what follows
				p.Messages, p.Skipped, p.NextSeq, p.HasMore = p.Messages[:1], nil, 1, true
			} else {
				p.Skipped, p.FirstSeq = nil, 5
			}
		}})
		bob = online(t, cfg)
		require.Len(t, stored(t, bob, single), 7)
		require.Zero(t, s.Count(wire.ActionHistory))
	})
}

// A group that is read again keeps no other conversation waiting, nor what follows in it.
func TestG10_ReadingAgainHoldsNothingUp(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		a := newAbsence(t, s)
		groups := []chat.ConversationID{a.group}
		for range 5 {
			made, err := a.alice.CreateGroup(a.ctx, wire.CreateGroup{Title: "g", Members: []string{"bob"}})
			require.NoError(t, err)
			groups = append(groups, made.ConversationID)
		}
		cfg := config(s, "bob", "phone")
		cfg.Store = client.NewMemory()
		online(t, cfg).Close()
		for _, a.group = range groups {
			a.remove()
			a.post(1)
			a.add()
			a.post(1)
		}
		s.Interfere(first(1000, wire.ActionHistory, clienttest.Ignore))
		bob := dial(t, cfg)
		single := s.Post("alice", wire.Send{To: "bob", Text: "hi"}).ConversationID
		time.Sleep(time.Second)
		for _, id := range append(groups, single) {
			require.NotEmpty(t, stored(t, bob, id))
			require.Equal(t, s.Entries(id)[len(s.Entries(id))-1], stored(t, bob, id)[len(stored(t, bob, id))-1])
		}
		late := s.MakeGroup("late", "alice", "bob")
		s.Post("alice", wire.Send{ConversationID: late, Text: "hi"})
		time.Sleep(2 * time.Second)
		line, _ := bob.Conversation(late)
		require.Equal(t, 2, line.MemberCount, "nor what is told of others")
		s.Interfere(clienttest.Hooks{})
		for _, a.group = range groups {
			a.caughtUp(bob, "bob")
		}
	})
}

// mortal is a store that carries out some more commits, and no other.
type mortal struct {
	client.Store
	left int
}

func (m *mortal) Commit(ctx context.Context, b client.Batch) error {
	if m.left--; m.left < 0 {
		return errors.New("the device is dead")
	}
	return m.Store.Commit(ctx, b)
}

// Wherever a device is killed that comes back from absences, it has what a new one has.
func TestG5_ADeviceThatIsKilledWhileItComesBack(t *testing.T) {
	t.Parallel()
	for writes := range 20 {
		t.Run(fmt.Sprint(writes), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *clienttest.Server) {
				a := newAbsence(t, s)
				a.post(250)
				cfg := config(s, "bob", "phone")
				cfg.Store, cfg.StartWith = client.NewMemory(), client.Everything
				online(t, cfg).Close()
				a.edit(5, "edited")
				a.remove()
				a.recall(2, 100, 276)
				s.Erase("carol")
				a.add()
				a.post(150)
				a.remove()
				a.recall(4, 310)
				a.add()
				a.recall(6)
				killed := cfg
				killed.Store = &mortal{cfg.Store, writes}
				bob := dial(t, killed)
				ctx, cancel := context.WithTimeout(a.ctx, time.Minute)
				defer cancel()
				_, _ = bob.Send(ctx, client.Draft{ConversationID: a.group, Text: "mine", ClientMsgID: "mine"})
				<-ctx.Done()
				bob.Close()
				bob = online(t, cfg)
				a.caughtUp(bob, "bob")
				line, _ := bob.Conversation(a.group)
				require.Zero(t, line.RecheckSeq)
			})
		})
	}
}

// Only who was away reads anything again, and only what it holds, once.
func TestWhoWasNotAwayReadsNothingAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		test  func(a *absence, laptop *client.Client)
		pages int
	}{
		"never away": {func(a *absence, _ *client.Client) { a.recall(2, 3) }, 0},
		"taken back at once": {func(a *absence, _ *client.Client) {
			a.remove()
			a.add()
		}, 0},
		"cleared by another device": {func(a *absence, laptop *client.Client) {
			_, err := laptop.Clear(a.ctx, a.group, 25)
			require.NoError(a.t, err)
			a.post(20)
		}, 0},
		"cleared by another device, and then away": {func(a *absence, laptop *client.Client) {
			a.remove()
			a.post(1)
			a.add()
			require.NoError(a.t, laptop.Refresh(a.ctx))
			_, err := laptop.Clear(a.ctx, a.group, 24)
			require.NoError(a.t, err)
		}, 1},
		"cleared in part, and then away": {func(a *absence, laptop *client.Client) {
			_, err := laptop.Clear(a.ctx, a.group, 23)
			require.NoError(a.t, err)
			a.remove()
			a.post(1)
			a.add()
			require.NoError(a.t, laptop.Refresh(a.ctx))
		}, 2},
		"away": {func(a *absence, _ *client.Client) {
			a.remove()
			a.recall(2)
			a.add()
			a.post(20)
			a.remove()
			a.post(20)
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *clienttest.Server) {
				a := newAbsence(t, s)
				a.post(20)
				cfg := config(s, "bob", "phone")
				cfg.Store = client.NewMemory()
				phone, laptop := online(t, cfg), online(t, config(s, "bob", "laptop"))
				phone.Close()
				c.test(a, laptop)
				a.caughtUp(online(t, cfg), "phone")
				a.caughtUp(laptop, "laptop")
				require.Equal(t, c.pages, s.Count(wire.ActionHistory))
			})
		})
	}
}
