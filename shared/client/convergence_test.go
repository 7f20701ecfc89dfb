package client_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
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

var (
	seeds = flag.Int("seeds", 12, "how many runs TestConvergence makes")
	seed  = flag.Uint64("seed", 0, "the one run that TestConvergence makes, if not 0")
)

// Whatever the network and the server do meanwhile, every device ends with the
// server's ledger, and every send that was answered is there once. A seed decides
// what happens; the order of goroutines is not its to decide, so a rare failure
// may take a few runs to come back.
func TestConvergence(t *testing.T) {
	t.Parallel()
	runs := []uint64{*seed}
	if *seed == 0 {
		runs = nil
		for n := range *seeds {
			runs = append(runs, uint64(n)+1)
		}
	}
	for _, n := range runs {
		t.Run(fmt.Sprintf("seed %d", n), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *clienttest.Server) {
				w := newWorld(t, s, n)
				s.Interfere(w.faults())
				w.run()
				s.Interfere(clienttest.Hooks{})
				s.CutAll()
				w.check()
			})
		})
	}
}

type world struct {
	t       *testing.T
	server  *clienttest.Server
	groups  []chat.ConversationID
	devices []*actor

	mu    sync.Mutex
	rng   *rand.Rand
	acked map[string]wire.Sent // by sender and clientMsgId
}

// actor is a device whose user does this and that.
type actor struct {
	*world
	cfg    client.Config
	client *client.Client
	sent   []wire.Sent
	reads  sync.WaitGroup
	seen   map[chat.ConversationID]int64 // the last seq that Messages gave, by conversation
}

func newWorld(t *testing.T, s *clienttest.Server, seed uint64) *world {
	s.PageSize, s.LargeAbove, s.NotifyAbove = 7, 3, 3
	w := &world{t: t, server: s, rng: rand.New(rand.NewPCG(seed, 0)), acked: map[string]wire.Sent{}}
	users := []string{"alice", "bob", "carol", "dave"}
	for i := range 5 {
		members := users[:2+i%3] // the largest is only notified of
		w.groups = append(w.groups, s.MakeGroup(fmt.Sprint(i), members...))
	}
	for _, user := range users[:3] {
		for _, device := range []string{"phone", "laptop"} {
			cfg := config(s, user, device)
			cfg.Store, cfg.MaxBuffered, cfg.PageSize = client.NewMemory(), 5, 10
			cfg.BackoffCap, cfg.RequestTimeout = 2*time.Second, 3*time.Second
			w.devices = append(w.devices, &actor{world: w, cfg: cfg, seen: map[chat.ConversationID]int64{}})
		}
	}
	return w
}

// one is true once in n times.
func (w *world) one(n int) bool { return w.below(n) == 0 }

func (w *world) below(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rng.IntN(n)
}

func (w *world) faults() clienttest.Hooks {
	fates := []clienttest.Fate{
		clienttest.Ignore, clienttest.LoseReply, clienttest.CutBefore, clienttest.CutAfter,
		clienttest.Busy, clienttest.Platform, clienttest.Garbage,
	}
	return clienttest.Hooks{
		OnRequest: func(clienttest.Request) clienttest.Fate {
			time.Sleep(time.Duration(w.below(50)) * time.Millisecond)
			if w.one(6) {
				return fates[w.below(len(fates))]
			}
			return clienttest.Handle
		},
		OnPush: func(string, string) (int, time.Duration) {
			return w.below(3), time.Duration(w.below(600)) * time.Millisecond
		},
		OnHandshake: func(string, string) int {
			if w.one(10) {
				return 503
			}
			return 0
		},
		OnSync: func(p *wire.Synced) {
			if w.one(20) && len(p.Messages) > 1 { // as if the server had a bug
				p.Messages = append([]chat.Message{}, p.Messages[1:]...)
			}
		},
		CutAfter: func() int {
			if w.one(3) {
				return 300 + w.below(20_000)
			}
			return 0
		},
	}
}

func (w *world) run() {
	var all sync.WaitGroup
	for _, a := range w.devices {
		all.Go(func() {
			a.start()
			for range 25 {
				time.Sleep(time.Duration(w.below(1500)) * time.Millisecond)
				a.act()
			}
		})
	}
	all.Wait()
}

func (a *actor) start() {
	c, err := client.Dial(a.t.Context(), a.cfg)
	require.NoError(a.t, err)
	a.t.Cleanup(c.Close)
	a.client = c
	for _, group := range a.groups {
		a.mu.Lock()
		after := a.seen[group]
		a.mu.Unlock()
		a.reads.Go(func() { a.read(group, after) })
	}
}

// read checks that Messages never goes back.
func (a *actor) read(group chat.ConversationID, after int64) {
	for m, err := range a.client.Messages(a.t.Context(), group, after) {
		if err != nil {
			return // the client or the test ends
		}
		a.mu.Lock()
		last := a.seen[group]
		a.seen[group] = m.Seq
		a.mu.Unlock()
		if m.Seq <= last {
			a.t.Errorf("seq %d of %s came after %d", m.Seq, group, last)
		}
	}
}

func (a *actor) act() {
	ctx := within(a.t, time.Hour)
	group := a.groups[a.below(len(a.groups))]
	var err error
	switch n := a.below(22); {
	case n < 10:
		err = a.send(group)
	case n < 12 && len(a.sent) > 0:
		err = a.edit()
	case n < 14 && len(a.sent) > 0:
		target := a.sent[a.below(len(a.sent))]
		_, err = a.client.RequestRecall(ctx, wire.Recall{ConversationID: target.ConversationID, Seq: target.Seq, MessageID: target.MessageID})
	case n < 16:
		if line, ok := a.client.Conversation(group); ok && line.MaxContiguousSeq > 0 {
			_, err = a.client.Ack(ctx, group, 0, line.MaxContiguousSeq)
		}
	case n < 17:
		if line, ok := a.client.Conversation(group); ok && line.MaxContiguousSeq > 9 {
			_, err = a.client.Clear(ctx, group, line.MaxContiguousSeq-8)
		}
	case n < 20:
		members := wire.ChangeMembers{ConversationID: a.groups[1+a.below(2)], Members: []string{"carol"}}
		if a.one(2) {
			_, err = a.client.AddMembers(ctx, members)
		} else if a.cfg.UserID != "carol" {
			_, err = a.client.RemoveMembers(ctx, members)
		}
	case n < 21 && a.one(4):
		a.server.Erase([]string{"alice", "bob", "carol"}[a.below(3)])
	case n < 21:
		a.client.Close() // the program restarts
		a.reads.Wait()
		a.start()
	}
	if _, refused := errors.AsType[*chat.Error](err); !refused {
		require.NoError(a.t, err)
	}
}

func (a *actor) send(group chat.ConversationID) error {
	key := fmt.Sprintf("%s-%d", a.cfg.DeviceID, a.below(1_000_000_000))
	draft := client.Draft{ConversationID: group, Text: key, ClientMsgID: key}
	if a.one(4) {
		draft.ConversationID, draft.To = "", []string{"alice", "bob", "carol"}[a.below(3)]
	}
	patience := time.Hour
	if a.one(4) {
		patience = time.Second
	}
	sent, err := a.client.Send(within(a.t, patience), draft)
	if _, pending := errors.AsType[*client.PendingError](err); pending {
		return nil
	}
	if err == nil {
		a.sent = append(a.sent, sent)
		a.mu.Lock()
		a.acked[a.cfg.UserID+"/"+key] = sent
		a.mu.Unlock()
	}
	return err
}

func (a *actor) edit() error {
	target := a.sent[a.below(len(a.sent))]
	found, err := a.client.Stored(a.t.Context(), target.ConversationID, target.Seq-1, 1)
	if err != nil || len(found) == 0 || found[0].Seq != target.Seq {
		return err
	}
	_, err = a.client.RequestEdit(within(a.t, time.Hour), wire.Edit{
		ConversationID: target.ConversationID, Seq: target.Seq, MessageID: target.MessageID, Version: found[0].Version,
		Text: fmt.Sprintf("edited %d", a.below(1000)),
	})
	return err
}

func (w *world) check() {
	for _, a := range w.devices {
		require.NoError(w.t, a.client.Online(within(w.t, time.Minute)))
	}
	time.Sleep(time.Minute) // the outboxes empty
	for _, a := range w.devices {
		require.Empty(w.t, a.client.Outbox())
		require.NoError(w.t, a.client.Refresh(within(w.t, time.Minute)))
	}
	synctest.Wait()
	counted := w.unread()
	for _, a := range w.devices {
		for _, id := range w.server.Conversations(a.cfg.UserID) {
			line, known := a.client.Conversation(id)
			if known && line.LeftSeq > 0 {
				continue // nobody tells a former member of later events
			}
			who := fmt.Sprintf("%s of %s/%s", id, a.cfg.UserID, a.cfg.DeviceID)
			require.Equal(w.t, withoutVersions(w.server.Ledger(a.cfg.UserID, id)), withoutVersions(stored(w.t, a.client, id)), who)
			_, read, cleared := w.server.Positions(a.cfg.UserID, id)
			require.Equal(w.t, []int64{read, cleared}, []int64{line.ReadSeq, line.ClearedSeq}, who)
			require.Equal(w.t, line.MaxSeenSeq, line.MaxContiguousSeq, who)
			require.LessOrEqual(w.t, line.Unread, counted[a.cfg.UserID][id], who)
			require.GreaterOrEqual(w.t, line.Unread, w.fromOthers(a.cfg.UserID, id, max(read, cleared)), who)
		}
		a.client.Close()
		a.reads.Wait()
	}
	w.checkAcked()
}

// withoutVersions leaves out the versions of what an erasure took the content of: who was
// away for an edit cannot count it when the sender is erased later.
func withoutVersions(messages []chat.Message) []chat.Message {
	for i := range messages {
		if messages[i].SenderDeviceID == "" {
			messages[i].Version = 0
		}
	}
	return messages
}

// unread gives what the server counts, which knows the last runs of who wrote.
func (w *world) unread() map[string]map[chat.ConversationID]int64 {
	counted := map[string]map[chat.ConversationID]int64{}
	w.server.Interfere(clienttest.Hooks{OnLine: func(userID string, line *wire.Conversation) {
		counted[userID][line.ConversationID] = line.Unread
	}})
	for _, user := range []string{"alice", "bob", "carol"} {
		counted[user] = map[chat.ConversationID]int64{}
		online(w.t, config(w.server, user, "new")).Close() // it is given all lines
	}
	w.server.Interfere(clienttest.Hooks{})
	return counted
}

// fromOthers counts what others wrote above a seq, since the user was last added.
func (w *world) fromOthers(userID string, id chat.ConversationID, read int64) (n int64) {
	for _, m := range w.server.Entries(id) {
		if m.Is(chat.EventMembers) && slices.Contains(m.Event.Added, userID) {
			n = 0
		}
		if m.Seq > read && m.SenderID != userID && !m.Is(chat.EventErase) {
			n++
		}
	}
	return n
}

// checkAcked looks into the ledgers for what was answered as sent.
func (w *world) checkAcked() {
	found := map[string]wire.Sent{}
	for _, user := range []string{"alice", "bob", "carol"} {
		for _, id := range w.server.Conversations(user) {
			for _, m := range w.server.Entries(id) {
				if m.SenderID == user {
					key := user + "/" + m.ClientMsgID
					require.NotContains(w.t, found, key, "a message twice")
					found[key] = wire.Sent{ConversationID: m.ConversationID, Seq: m.Seq, MessageID: m.MessageID, ServerTime: m.ServerTime}
				}
			}
		}
	}
	for key, sent := range w.acked {
		sent.Duplicate = false
		require.Equal(w.t, sent, found[key], key)
	}
}
