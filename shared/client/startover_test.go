package client_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/client/clienttest"
	"github.com/inorder-im/inorder/shared/wire"
)

// restored is a device that holds ten messages of a group whose server goes back to the
// sixth, and what it hears of.
type restored struct {
	*client.Client
	server *clienttest.Server
	group  chat.ConversationID
	want   []string // what was held
}

func newRestored(t *testing.T, s *clienttest.Server, change func(*client.Config)) *restored {
	t.Helper()
	r := &restored{server: s, group: s.MakeGroup("g", "alice", "bob")}
	r.want = post(s, r.group, 10)
	cfg := config(s, "alice", "phone")
	cfg.Store = client.NewMemory()
	if change != nil {
		change(&cfg)
	}
	r.Client = online(t, cfg)
	require.Equal(t, r.want, texts(stored(t, r.Client, r.group)))
	return r
}

// more posts messages of the world that the server is in now.
func (r *restored) more(n int) {
	for i := range n {
		r.server.Post("bob", wire.Send{ConversationID: r.group, Text: fmt.Sprintf("new %d", i+1)})
	}
}

// requireConverged checks that the device has the server's ledger, and aside what the
// server has lost.
func (r *restored) requireConverged(t *testing.T, fork int64) {
	t.Helper()
	require.NoError(t, r.Refresh(within(t, time.Minute)))
	require.Equal(t, r.server.Ledger("alice", r.group), stored(t, r.Client, r.group))
	orphans, err := r.Orphans(t.Context(), r.group)
	require.NoError(t, err)
	require.Equal(t, r.want[fork:], texts(orphans))
	line, ok := r.Conversation(r.group)
	require.True(t, ok)
	require.True(t, line.HasOrphans)
	require.Equal(t, int64(len(r.server.Entries(r.group))), line.LastSeq)
	_, read, _ := r.server.Positions("alice", r.group)
	require.Equal(t, read, line.ReadSeq)
	fresh, _ := online(t, config(r.server, "alice", "tablet")).Conversation(r.group)
	require.Equal(t, fresh.Unread, line.Unread)
}

// However the device comes to know of it, a server that was restored to an earlier time
// and went on costs no message: neither those of its new world nor those of the old one.
func TestG5_ARestoredServerLosesNoMessages(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		v   int64 // the sync head after the restore; that of before is 10
		act func(*testing.T, *restored)
	}{
		"the cursor went back":                  {5, func(t *testing.T, r *restored) { r.more(2) }},
		"the cursor went back and nothing came": {5, func(*testing.T, *restored) {}},
		"the head has passed the cursor":        {60, func(t *testing.T, r *restored) { r.more(2) }},
		"the ledger has passed the device":      {60, func(t *testing.T, r *restored) { r.more(9) }},
		"the ledger is as long as it was": {60, func(t *testing.T, r *restored) {
			time.Sleep(time.Second)
			r.more(4)
		}},
		"nobody says so but a push": {10, func(t *testing.T, r *restored) {
			r.server.Interfere(first(1000, wire.ActionChanges, clienttest.Busy))
			r.more(2)
			time.Sleep(10 * time.Second)
			r.server.Interfere(clienttest.Hooks{})
		}},
		"nobody says so but sync": {10, func(_ *testing.T, r *restored) {
			r.server.Interfere(first(1000, wire.ActionChanges, clienttest.Busy))
			r.server.Say("alice", "phone", fmt.Sprintf(`{"type":"notify","updates":[{"conversationId":%q,"committedMaxSeq":20}]}`, r.group))
			time.Sleep(10 * time.Second)
			r.server.Interfere(clienttest.Hooks{})
		}},
		"nobody says so but an answer": {60, func(t *testing.T, r *restored) {
			r.server.Interfere(clienttest.Hooks{OnPush: noPushes})
			_, err := r.Send(within(t, time.Minute), text(r.group, "mine"))
			require.NoError(t, err)
			_, err = r.SetTitle(within(t, time.Minute), wire.SetTitle{ConversationID: r.group, Title: "t"})
			require.NoError(t, err)
			time.Sleep(10 * time.Second)
			r.server.Interfere(clienttest.Hooks{})
		}},
	} {
		for state, offline := range map[string]bool{"connected": false, "away": true} {
			t.Run(name+"/"+state, func(t *testing.T) {
				bubble(t, func(t *testing.T, s *clienttest.Server) {
					r := newRestored(t, s, nil)
					_, err := r.Ack(within(t, time.Minute), r.group, 9, 9)
					require.NoError(t, err)
					s.GoBack(r.group, 6, c.v)
					if offline {
						s.Interfere(clienttest.Hooks{OnHandshake: func(string, string) int { return 503 }})
						s.CutAll()
						synctest.Wait()
						if !strings.HasPrefix(name, "nobody") {
							c.act(t, r)
						}
						s.Interfere(clienttest.Hooks{})
						require.NoError(t, r.Online(within(t, 10*time.Minute)))
					} else {
						c.act(t, r)
					}
					r.more(1)
					r.requireConverged(t, 6)
				})
			})
		}
	}
}

// The place where the two part ways may be many pages back.
func TestG5_ARestoredServerThatLostMuch(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		r := newRestored(t, s, nil)
		r.want = append(r.want, post(s, r.group, 440)...)
		require.NoError(t, r.Refresh(within(t, time.Minute)))
		s.Punch(r.group, 151, 300)
		s.GoBack(r.group, 150, 5)
		r.more(320)
		r.requireConverged(t, 150)
	})
}

func TestG5_AServerBegunAnewLosesNoMessages(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		ctx := within(t, time.Hour)
		cfg := config(s, "alice", "phone")
		cfg.Store = client.NewMemory()
		alice := online(t, cfg)
		for _, words := range []string{"one", "two"} {
			_, err := alice.Send(ctx, client.Draft{To: "bob", Text: words})
			require.NoError(t, err)
		}
		id := chat.SingleID("alice", "bob")
		alice.Close()
		s.BeginAnew()
		s.Interfere(clienttest.Hooks{OnHandshake: func(string, string) int { return 503 }})
		alice = dial(t, cfg)
		waiting := make(chan error, 1)
		go func() {
			_, err := alice.Send(ctx, text(id, "three"))
			waiting <- err
		}()
		synctest.Wait()
		s.Interfere(clienttest.Hooks{})
		require.NoError(t, <-waiting, "its conversation is made anew")
		require.NoError(t, alice.Refresh(ctx))
		require.Equal(t, []string{"three"}, texts(stored(t, alice, id)))
		orphans, err := alice.Orphans(ctx, id)
		require.NoError(t, err)
		require.Equal(t, []string{"one", "two"}, texts(orphans))
		require.Equal(t, []chat.ConversationID{id}, listedIDs(alice))
	})
}

// What only the device has stays to be seen until the user does not want it any more.
func TestOrphansOfAConversationThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		r := newRestored(t, s, nil)
		changes := r.Changes(within(t, time.Hour))
		s.BeginAnew()
		require.NoError(t, r.Refresh(within(t, time.Minute)))
		require.Equal(t, []chat.ConversationID{r.group}, listedIDs(r.Client))
		require.Empty(t, stored(t, r.Client, r.group))
		orphans, err := r.Orphans(t.Context(), r.group)
		require.NoError(t, err)
		require.Equal(t, r.want, texts(orphans))
		for change := range changes {
			if over, ok := change.(client.StartedOver); ok {
				require.Equal(t, client.StartedOver{ConversationID: r.group}, over)
				break
			}
		}
		require.NoError(t, r.DiscardOrphans(r.group))
		orphans, err = r.Orphans(t.Context(), r.group)
		require.NoError(t, err)
		require.Empty(t, orphans)
		require.Empty(t, listedIDs(r.Client))
		require.NoError(t, r.Refresh(within(t, time.Minute)))
		require.Empty(t, listedIDs(r.Client))
	})
}

func TestErasuresAndClearsReachOrphans(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		r := newRestored(t, s, nil)
		_, err := r.Send(within(t, time.Minute), text(r.group, "mine"))
		require.NoError(t, err)
		r.want = append(r.want, "mine")
		s.GoBack(r.group, 6, 60)
		r.more(1)
		r.requireConverged(t, 6)
		s.Erase("bob")
		take(t, r.Client, r.group, 8)
		orphans, err := r.Orphans(t.Context(), r.group)
		require.NoError(t, err)
		require.Equal(t, []string{"mine"}, texts(orphans))
		r.more(8)
		require.NoError(t, r.Refresh(within(t, time.Minute)))
		_, err = r.Clear(within(t, time.Minute), r.group, 11)
		require.NoError(t, err)
		orphans, err = r.Orphans(t.Context(), r.group)
		require.NoError(t, err)
		require.Empty(t, orphans)
	})
}

// A loop over Messages goes back with the conversation.
func TestMessagesGivesWhatCameInPlaceOfLostOnes(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		r := newRestored(t, s, nil)
		var given []string
		for m, err := range r.Messages(within(t, time.Hour), r.group, 0) {
			require.NoError(t, err)
			if given = append(given, m.Text); len(given) == 10 {
				s.GoBack(r.group, 6, 60)
				r.more(2)
			}
			if len(given) == 12 {
				break
			}
		}
		require.Equal(t, append(r.want, "new 1", "new 2"), given)
	})
}

// A server that never says the same twice is asked with backoff.
func TestAServerThatGoesBackAgainAndAgainIsNotPestered(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		r := newRestored(t, s, nil)
		_, err := r.Ack(within(t, time.Minute), r.group, 9, 8)
		require.NoError(t, err)
		was := s.Count(wire.ActionChanges)
		s.Interfere(clienttest.Hooks{OnLine: func(_ string, line *wire.Conversation) { line.LastSeq = 3 }})
		s.GoBack(r.group, 10, 1)
		_ = r.Refresh(within(t, 10*time.Minute))
		require.Less(t, s.Count(wire.ActionChanges)-was, 60)
		require.Equal(t, r.want, texts(stored(t, r.Client, r.group)))
		line, _ := r.Conversation(r.group)
		require.Equal(t, [2]int64{9, 8}, [2]int64{line.DeliveredSeq, line.ReadSeq}, "what was doubted for nothing stays as it is")
		require.False(t, line.HasOrphans)
	})
}

// What the user meant to hide is what there was; what the server's other world has instead
// the user has not seen.
func TestAClearThatWaitsHidesNothingOfTheOtherWorld(t *testing.T) {
	bubble(t, func(t *testing.T, s *clienttest.Server) {
		store := client.NewMemory()
		r := newRestored(t, s, func(cfg *client.Config) { cfg.Store = store })
		s.Interfere(first(1_000_000, wire.ActionClear, clienttest.Busy))
		var waits sync.WaitGroup
		waits.Go(func() {
			cleared, err := r.Clear(within(t, time.Hour), r.group, 10)
			require.NoError(t, err)
			require.Equal(t, int64(6), cleared.ClearedSeq)
		})
		synctest.Wait()
		s.GoBack(r.group, 6, 5)
		r.more(4)
		require.NoError(t, r.Refresh(within(t, time.Minute)))
		s.Interfere(clienttest.Hooks{})
		waits.Wait()
		require.Equal(t, []string{"new 1", "new 2", "new 3", "new 4"}, texts(stored(t, r.Client, r.group)))
		_, _, cleared := s.Positions("alice", r.group)
		require.Equal(t, int64(6), cleared)
	})
}
