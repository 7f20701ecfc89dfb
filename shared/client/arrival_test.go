package client_test

import (
	"context"
	"fmt"
	"slices"
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

// nth does something else with the nth push than to deliver it at once.
func nth(n int64, copies int, delay time.Duration) clienttest.Hooks {
	var count atomic.Int64
	return clienttest.Hooks{OnPush: func(string, string) (int, time.Duration) {
		if count.Add(1) == n {
			return copies, delay
		}
		return 1, 0
	}}
}

func post(s *clienttest.Server, group chat.ConversationID, n int) []string {
	var all []string
	for i := range n {
		s.Post("bob", wire.Send{ConversationID: group, Text: fmt.Sprint(i)})
		all = append(all, fmt.Sprint(i))
	}
	return all
}

func TestALatePushIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		alice := online(t, config(s, "alice", "phone"))
		s.Interfere(nth(2, 1, 150*time.Millisecond))
		want := post(s, group, 5)
		synctest.Wait()
		require.Equal(t, want[:1], texts(stored(t, alice, group)), "nothing is shown past a gap")
		require.Equal(t, want, texts(take(t, alice, group, 5)))
		time.Sleep(time.Minute)
		require.Zero(t, s.Count(wire.ActionSync))
	})
}

func TestALostPushIsFetched(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		alice := online(t, config(s, "alice", "phone"))
		s.Interfere(nth(2, 0, 0))
		start := time.Now()
		want := post(s, group, 5)
		require.Equal(t, want, texts(take(t, alice, group, 5)))
		require.InDelta(t, 200, time.Since(start).Milliseconds(), 20)
		require.Equal(t, 1, s.Count(wire.ActionSync))
		require.Equal(t, int64(1), alice.Stats().Gaps)
	})
}

func TestTheLastPushOfAQuietConversationIsFetchedByTheHeartbeat(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		alice := online(t, config(s, "alice", "phone"))
		s.Interfere(clienttest.Hooks{OnPush: noPushes})
		start := time.Now()
		post(s, group, 1)
		take(t, alice, group, 1)
		require.InDelta(t, 9.5, time.Since(start).Minutes(), 0.1)
		s.Post("bob", wire.Send{ConversationID: group, Text: "again"})
		require.NoError(t, alice.Refresh(within(t, time.Second)))
		require.Len(t, stored(t, alice, group), 2, "or when the program asks")
	})
}

func TestRepeatedAndReorderedPushesAreInOrderAndOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		alice := online(t, config(s, "alice", "phone"))
		var count atomic.Int64
		s.Interfere(clienttest.Hooks{OnPush: func(string, string) (int, time.Duration) {
			n := count.Add(1)
			return 1 + int(n%3), time.Duration(100-n) * time.Millisecond // the last come first
		}})
		want := post(s, group, 50)
		require.Equal(t, want, texts(take(t, alice, group, 50)))
		time.Sleep(time.Minute)
		require.Equal(t, want, texts(stored(t, alice, group)))
		require.Positive(t, alice.Stats().Repeated)
	})
}

func TestTheReorderBufferIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		cfg := config(s, "alice", "phone")
		cfg.MaxBuffered = 10
		cfg.Store = client.NewMemory()
		cfg.GapWait = time.Minute
		alice := online(t, cfg)
		s.Interfere(nth(1, 0, 0))
		want := post(s, group, 50)
		synctest.Wait()
		state, err := cfg.Store.Load(t.Context(), "alice")
		require.NoError(t, err)
		require.Len(t, state.Buffered, 10)
		require.Equal(t, int64(11), state.Buffered[9].Seq, "the ones that are needed first stay")
		require.Equal(t, int64(39), alice.Stats().Overflowed)
		require.Equal(t, want, texts(take(t, alice, group, 50)))
		state, err = cfg.Store.Load(t.Context(), "alice")
		require.NoError(t, err)
		require.Empty(t, state.Buffered)
	})
}

func TestTheReorderBufferOutlivesTheClient(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		cfg := config(s, "alice", "phone")
		cfg.Store = client.NewMemory()
		cfg.GapWait = time.Minute
		alice := online(t, cfg)
		s.Interfere(nth(1, 0, 0))
		want := post(s, group, 3)
		synctest.Wait()
		alice.Close()
		alice = online(t, cfg)
		require.Equal(t, want, texts(stored(t, alice, group)))
	})
}

func TestHolesAndHiddenStretchesAreNotWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		alice := online(t, config(s, "alice", "phone"))
		bob := online(t, config(s, "bob", "phone"))
		made, err := alice.CreateGroup(within(t, time.Minute), wire.CreateGroup{Title: "t", Members: []string{"carol"}, Visibility: chat.VisibleSinceJoin})
		require.NoError(t, err)
		group := made.ConversationID
		send := func(text string) {
			s.Post("carol", wire.Send{ConversationID: group, Text: text})
		}
		send("before")
		members := wire.ChangeMembers{ConversationID: group, Members: []string{"bob"}}
		_, err = alice.AddMembers(within(t, time.Minute), members)
		require.NoError(t, err)
		send("with")
		_, err = alice.RemoveMembers(within(t, time.Minute), members)
		require.NoError(t, err)
		require.NoError(t, bob.Refresh(within(t, time.Minute)))
		send("without")
		left, ok := bob.Conversation(group)
		require.True(t, ok)
		require.Equal(t, int64(5), left.LeftSeq)
		require.Equal(t, int64(5), left.MaxContiguousSeq)
		_, err = alice.AddMembers(within(t, time.Minute), members)
		require.NoError(t, err)
		for _, text := range []string{"a", "b", "c"} {
			send(text)
		}
		s.Punch(group, 9)
		require.NoError(t, bob.Refresh(within(t, time.Minute)))
		fresh := online(t, config(s, "bob", "laptop"))
		for _, device := range []*client.Client{bob, fresh} {
			messages := stored(t, device, group)
			seqs := make([]int64, len(messages))
			for i, m := range messages {
				seqs[i] = m.Seq
			}
			require.Contains(t, [][]int64{{3, 4, 5, 7, 8, 9, 10}, {3, 4, 5, 7, 8, 10}}, seqs, "an expired message may be kept")
			line, _ := device.Conversation(group)
			require.Equal(t, int64(10), line.MaxContiguousSeq)
			require.Zero(t, line.LeftSeq)
			require.Zero(t, device.Stats().Violations)
		}
	})
}

// A line may tell of a removal in everything but that the user is gone: the server
// reads head and membership while the transaction of both is being applied. No other
// line need ever come.
func TestARemovalIsNotMissedBecauseOfALineThatIsTorn(t *testing.T) {
	t.Parallel()
	for name, pushed := range map[string]bool{"told by a push": true, "told by the line": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *clienttest.Server) {
				alice := online(t, config(s, "alice", "phone"))
				made, err := alice.CreateGroup(within(t, time.Minute), wire.CreateGroup{Title: "t", Members: []string{"bob", "carol"}})
				require.NoError(t, err)
				group := made.ConversationID
				bob := online(t, config(s, "bob", "phone"))
				if !pushed {
					s.Interfere(clienttest.Hooks{OnPush: noPushes})
				}
				_, err = alice.RemoveMembers(within(t, time.Minute), wire.ChangeMembers{ConversationID: group, Members: []string{"bob"}})
				require.NoError(t, err)
				s.Interfere(clienttest.Hooks{OnPush: noPushes, OnLine: func(_ string, line *wire.Conversation) { line.LeftSeq = 0 }})
				require.NoError(t, bob.Refresh(within(t, time.Minute)))
				line, _ := bob.Conversation(group)
				require.Equal(t, int64(2), line.MaxContiguousSeq)
				require.Equal(t, int64(2), line.LeftSeq)
			})
		})
	}
}

// Nor because the device was led to believe that the conversation is further.
func TestARemovalIsNotMissedBecauseItsLineEndsEarlier(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		alice := online(t, config(s, "alice", "phone"))
		made, err := alice.CreateGroup(within(t, time.Minute), wire.CreateGroup{Title: "t", Members: []string{"bob", "carol"}})
		require.NoError(t, err)
		group := made.ConversationID
		post := func(text string) { s.Post("carol", wire.Send{ConversationID: group, Text: text}) }
		bob := online(t, config(s, "bob", "phone"))
		s.Interfere(clienttest.Hooks{OnPush: noPushes, OnLine: func(_ string, line *wire.Conversation) { line.LastSeq, line.LeftSeq = 4, 0 }})
		members := wire.ChangeMembers{ConversationID: group, Members: []string{"bob"}}
		_, err = alice.RemoveMembers(within(t, time.Minute), members)
		require.NoError(t, err)
		post("without bob")
		post("without bob")
		require.NoError(t, bob.Refresh(within(t, time.Minute)))
		s.Interfere(clienttest.Hooks{})
		laptop := online(t, config(s, "bob", "laptop"))
		_, err = laptop.Ack(within(t, time.Minute), group, 0, 1)
		require.NoError(t, err)
		require.NoError(t, bob.Refresh(within(t, time.Minute)))
		line, _ := bob.Conversation(group)
		require.Equal(t, [2]int64{2, 2}, [2]int64{line.LeftSeq, line.LastSeq})

		_, err = alice.AddMembers(within(t, time.Minute), members)
		require.NoError(t, err)
		require.NoError(t, bob.Refresh(within(t, time.Minute)))
		line, _ = bob.Conversation(group)
		require.Equal(t, [2]int64{0, 5}, [2]int64{line.LeftSeq, line.LastSeq})
	})
}

func TestLargeConversationsArePulled(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		s.LargeAbove, s.NotifyAbove = 1, 1
		group := s.MakeGroup("g", "alice", "bob")
		post(s, group, 3)
		alice := online(t, config(s, "alice", "phone"))
		require.Len(t, stored(t, alice, group), 3, "its head stands in the answer of changes")
		post(s, group, 3)
		take(t, alice, group, 6)
		require.Equal(t, 2, s.Count(wire.ActionSync))
	})
}

// All members of a large group hear at the same moment that there is something to pull.
// Were they to ask for it at once, a message would be as many requests in one moment.
func TestPullsOfTheSameGapAreSpreadByTheSizeOfTheGroup(t *testing.T) {
	for name, tc := range map[string]struct {
		notifyAbove, lost, more int
		spread                  time.Duration
	}{
		"a notify":               {399, 0, 0, 2 * chat.MaxGroupMembers * time.Millisecond}, // as a crowd of whose size it does not know yet
		"a push after lost one":  {400, 1, 0, 2 * 400 * time.Millisecond},
		"pushes after lost ones": {400, 1, 20, 2 * 400 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *clienttest.Server) {
				const members, devices = 400, 20
				s.NotifyAbove = tc.notifyAbove
				users := make([]string, members)
				for i := range users {
					users[i] = fmt.Sprint("user", i)
				}
				group := s.MakeGroup("g", users...)
				var clients []*client.Client
				for i := range devices {
					clients = append(clients, online(t, config(s, users[i], "phone")))
				}
				start := time.Now()
				pulled := make(chan time.Duration, devices)
				hooks := clienttest.Hooks{
					OnPush: func(string, string) (int, time.Duration) { return 0, 0 },
					OnRequest: func(r clienttest.Request) clienttest.Fate {
						if r.Action == wire.ActionSync {
							pulled <- time.Since(start)
						}
						return clienttest.Handle
					},
				}
				s.Interfere(hooks)
				for range tc.lost {
					s.Post(users[members-1], wire.Send{ConversationID: group, Text: "lost"})
				}
				hooks.OnPush = nil
				s.Interfere(hooks)
				s.Post(users[members-1], wire.Send{ConversationID: group, Text: "all at once"})
				for range tc.more {
					time.Sleep(time.Millisecond)
					s.Post(users[members-1], wire.Send{ConversationID: group, Text: "and more"})
				}
				for _, c := range clients {
					take(t, c, group, tc.lost+1+tc.more)
				}
				first, last := time.Hour, time.Duration(0)
				for range devices {
					at := <-pulled
					first, last = min(first, at), max(last, at)
				}
				require.Greater(t, last-first, 300*time.Millisecond)
				require.LessOrEqual(t, last, 200*time.Millisecond+tc.spread)
			})
		})
	}
}

func TestALongListComesInPages(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		for i := range 10 {
			s.Post("bob", wire.Send{ConversationID: s.MakeGroup(fmt.Sprint(i), "alice", "bob"), Text: "x"})
		}
		cfg := config(s, "alice", "phone")
		cfg.Store = client.NewMemory()
		alice := online(t, cfg)
		require.Len(t, alice.Conversations(), 10)
		for _, line := range alice.Conversations() {
			require.Len(t, stored(t, alice, line.ConversationID), 1)
			require.Equal(t, int64(1), line.Unread)
		}
		require.Equal(t, 3, s.Count(wire.ActionConversations))
		require.Equal(t, 10, s.Count(wire.ActionSync))

		s.Post("bob", wire.Send{ConversationID: "group:3", Text: "y"})
		s.CutAll()
		require.NoError(t, alice.Refresh(within(t, time.Minute)))
		require.Equal(t, 3, s.Count(wire.ActionConversations), "with a cursor, only what changed is told")
		require.Len(t, stored(t, alice, "group:3"), 2)
	})
}

// More changes than one answer takes, of small and of large conversations.
func TestG5_ChangesThatComeInSeveralAnswers(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		s.LargeAbove = 2
		large := s.MakeGroup("large", "alice", "bob", "cy")
		var small []chat.ConversationID
		for i := range 4 { // the server tells of the last four one by one, three in an answer
			small = append(small, s.MakeGroup(fmt.Sprint(i), "alice", "bob"))
			post(s, small[i], 1)
		}
		post(s, large, 1)
		alice := online(t, config(s, "alice", "phone"))
		require.Len(t, stored(t, alice, large), 1)
		asked := s.Count(wire.ActionChanges)
		s.Interfere(clienttest.Hooks{OnPush: func(string, string) (int, time.Duration) { return 0, 0 }})
		for _, id := range small {
			post(s, id, 1)
		}
		post(s, large, 1)
		require.NoError(t, alice.Refresh(within(t, time.Hour)))
		for _, id := range append(small, large) {
			require.Len(t, stored(t, alice, id), 2, id)
		}
		require.Equal(t, asked+2, s.Count(wire.ActionChanges))
		require.Equal(t, 1, s.Count(wire.ActionConversations), "only to begin with")
	})
}

func TestTheCursorIsStoredLast(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		post(s, group, 3)
		cfg := config(s, "alice", "phone")
		cfg.Store = client.NewMemory()
		s.Interfere(first(1_000_000, wire.ActionSync, clienttest.Busy))
		alice := dial(t, cfg)
		require.Error(t, alice.Online(within(t, time.Hour)))
		state, err := cfg.Store.Load(t.Context(), "alice")
		require.NoError(t, err)
		require.Zero(t, state.SyncCursor)
		s.Interfere(clienttest.Hooks{})
		require.NoError(t, alice.Online(within(t, time.Minute)))
		state, err = cfg.Store.Load(t.Context(), "alice")
		require.NoError(t, err)
		require.Equal(t, int64(3), state.SyncCursor)
	})
}

// A device that comes back to many conversations may read some of them at a time.
// It waits as it is told, and does not ask for the others meanwhile.
func TestG10_ReadsThatComeTooFastWait(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		const groups, each, atOnce = 100, 10, 4
		for i := range groups {
			post(s, s.MakeGroup(fmt.Sprint(i), "alice", "bob"), 2)
		}
		var mu sync.Mutex
		var window time.Time
		admitted, refused, windows := 0, 0, 0
		s.Interfere(clienttest.Hooks{OnRequest: func(r clienttest.Request) clienttest.Fate {
			if !slices.Contains([]string{wire.ActionChanges, wire.ActionConversations, wire.ActionSync}, r.Action) {
				return clienttest.Handle
			}
			mu.Lock()
			defer mu.Unlock()
			if now := time.Now(); now.Sub(window) >= clienttest.RetryAfter {
				window, admitted = now, 0
				windows++
			}
			if admitted == each {
				refused++
				return clienttest.TooFast
			}
			admitted++
			return clienttest.Handle
		}})
		alice := dial(t, config(s, "alice", "phone"))
		require.NoError(t, alice.Online(within(t, time.Hour)))
		for i := range groups {
			require.Len(t, stored(t, alice, chat.ConversationID(fmt.Sprint("group:", i))), 2)
		}
		mu.Lock()
		defer mu.Unlock()
		require.GreaterOrEqual(t, windows, groups/each)
		require.LessOrEqual(t, refused, atOnce*windows, "of %d windows", windows)
		require.Equal(t, 1, s.Count(wire.ActionChanges), "and begins nothing anew")
	})
}

func TestOneConversationThatIsRefusedDoesNotStopTheOthers(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		for i := range 4 {
			post(s, s.MakeGroup(fmt.Sprint(i), "alice", "bob"), 2)
		}
		s.Interfere(first(1, wire.ActionSync, clienttest.Missing))
		alice := online(t, config(s, "alice", "phone"))
		require.Equal(t, 4, s.Count(wire.ActionSync)+1)
		whole := 0
		for _, line := range alice.Conversations() {
			whole += len(stored(t, alice, line.ConversationID))
		}
		require.Equal(t, 6, whole)
	})
}

// watched counts what a store is given at once.
type watched struct {
	client.Store
	largest atomic.Int64
}

func (w *watched) Commit(ctx context.Context, b client.Batch) error {
	w.largest.Store(max(w.largest.Load(), int64(len(b.Messages))))
	return w.Store.Commit(ctx, b)
}

func TestTenThousandMessagesComeInPagesWithProgress(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		const n, before = 10_000, 3
		group := s.MakeGroup("g", "alice", "bob")
		post(s, group, before)
		store := &watched{Store: client.NewMemory()}
		cfg := config(s, "alice", "phone")
		cfg.Store, cfg.PageSize = store, 50
		online(t, cfg).Close()
		asked := s.Count(wire.ActionSync)
		post(s, group, n) // while the device is offline
		alice := dial(t, cfg)
		seen, last := 0, client.Progress{}
		for change := range alice.Changes(within(t, time.Hour)) {
			p, ok := change.(client.Progress)
			if !ok {
				continue
			}
			seen++
			require.GreaterOrEqual(t, p.Done, last.Done)
			require.LessOrEqual(t, p.Done, p.Total)
			last = p
			if p.Done == p.Total {
				break
			}
		}
		require.Equal(t, client.Progress{Done: n, Total: n}, last)
		require.Greater(t, seen, 10)
		require.NoError(t, alice.Online(within(t, time.Minute)))
		require.Len(t, stored(t, alice, group), before+n)
		require.Equal(t, n/50, s.Count(wire.ActionSync)-asked)
		require.LessOrEqual(t, store.largest.Load(), int64(50), "never more than a page is held")
	})
}

func TestASyncAnswerThatDoesNotAddUpIsNotBelieved(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*wire.Synced){
		"nextSeq passes what is missing": func(p *wire.Synced) { p.Messages = slices.Delete(p.Messages, 1, 2) },
		"it goes back":                   func(p *wire.Synced) { p.NextSeq = -1 },
		"it does not move":               func(p *wire.Synced) { *p = wire.Synced{CommittedMaxSeq: p.CommittedMaxSeq} },
		"the order is wrong":             func(p *wire.Synced) { slices.Reverse(p.Messages) },
		"a message twice":                func(p *wire.Synced) { p.Messages = append(p.Messages, p.Messages[2]) },
		"of another conversation":        func(p *wire.Synced) { p.Messages[0].ConversationID = "group:other" },
		"without identity":               func(p *wire.Synced) { p.Messages[0].MessageID = "" },
		"beyond any number":              func(p *wire.Synced) { p.NextSeq = chat.MaxSeq + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *clienttest.Server) {
				group := s.MakeGroup("g", "alice", "bob")
				want := post(s, group, 3)
				var times atomic.Int64
				s.Interfere(clienttest.Hooks{OnSync: func(p *wire.Synced) {
					if times.Add(1) <= 4 {
						p.Messages = slices.Clone(p.Messages)
						spoil(p)
					}
				}})
				alice := dial(t, config(s, "alice", "phone"))
				require.NoError(t, alice.Online(within(t, 10*time.Minute)))
				require.Equal(t, want, texts(stored(t, alice, group)))
				require.Equal(t, int64(4), alice.Stats().Violations)
			})
		})
	}
}

func TestASeqThatIsNotOursIsNotWaitedForForEver(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		post(s, group, 1)
		alice := online(t, config(s, "alice", "phone"))
		s.Say("alice", "phone", `{"type":"notify","updates":[{"conversationId":"group:g","committedMaxSeq":99}]}`)
		s.Say("alice", "phone", `{"type":"push","updates":[{"conversationId":"group:g","committedMaxSeq":50,"messages":[
			{"conversationId":"group:g","seq":50,"messageId":"x","clientMsgId":"x","senderId":"bob","messageType":"text","text":"?","version":1,"status":"normal"}]}]}`)
		time.Sleep(4 * time.Minute)
		require.Equal(t, 2, s.Count(wire.ActionSync), "one at the start, one for the gap")
		post(s, group, 1)
		require.Len(t, take(t, alice, group, 2), 2)
		line, _ := alice.Conversation(group)
		require.Equal(t, int64(2), line.MaxSeenSeq)
	})
}

// failing is a store that cannot write for a while.
type failing struct {
	client.Store
	left atomic.Int64
}

func (f *failing) Commit(ctx context.Context, b client.Batch) error {
	if f.left.Add(-1) >= 0 {
		return fmt.Errorf("the disk is full")
	}
	return f.Store.Commit(ctx, b)
}

func TestAStoreThatFailsForAWhileLosesNothing(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		group := s.MakeGroup("g", "alice", "bob")
		store := &failing{Store: client.NewMemory()}
		cfg := config(s, "alice", "phone")
		cfg.Store = store
		alice := online(t, cfg)
		store.left.Store(5)
		want := post(s, group, 3)
		_, err := alice.Send(t.Context(), text(group, "x"))
		if err == nil {
			want = append(want, "x")
		} else {
			require.ErrorContains(t, err, "the disk is full")
		}
		require.Equal(t, want, texts(take(t, alice, group, len(want))))
		require.Equal(t, texts(s.Ledger("alice", group)), texts(stored(t, alice, group)))
	})
}
