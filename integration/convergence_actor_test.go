package integration_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	raw "github.com/inorder-im/inorder/integration/device"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/client"
	"github.com/inorder-im/inorder/shared/client/sqlite"
	"github.com/inorder-im/inorder/shared/wire"
)

// actor is a device, over the Go client, whose user does this and that.
type actor struct {
	*ordeal
	index        int
	user, device string
	rng          *rand.Rand
	store        *watchedStore
	client       *client.Client
	writes       int
	absent       bool        // it goes offline before the end
	replaced     int         // times that a ghost of the device took over
	sent         []wire.Sent // its own answered messages

	reading   context.Context // ends before the client of this life does
	stopReads context.CancelFunc
	readers   sync.WaitGroup

	mu         sync.Mutex
	given      map[chat.ConversationID][]chat.Message // what Messages gave, by conversation
	asked      map[chat.ConversationID]positions      // the highest that the device asked for
	acked      map[chat.ConversationID]positions      // the last that it was answered
	readPlaces map[chat.ConversationID]bool           // those that a goroutine reads
}

// positions are a user's in a conversation.
type positions struct{ delivered, read, cleared int64 }

func (p positions) max(q positions) positions {
	return positions{max(p.delivered, q.delivered), max(p.read, q.read), max(p.cleared, q.cleared)}
}

// newActor makes a device. Laptops keep what they have in a file.
func newActor(o *ordeal, index int, user, device string) *actor {
	file := ""
	if device == "laptop" {
		file = filepath.Join(o.t.TempDir(), user+".sqlite")
	}
	return &actor{
		ordeal: o, index: index, user: user, device: device, rng: o.chance(index),
		store: newWatchedStore(file), given: map[chat.ConversationID][]chat.Message{},
		asked: map[chat.ConversationID]positions{}, acked: map[chat.ConversationID]positions{},
	}
}

func (a *actor) String() string { return a.user + "/" + a.device }

// start starts the client, as a program does that has what an earlier run of it
// had stored.
func (a *actor) start() {
	require.NoError(a.t, a.store.open(a.ctx))
	c, err := client.Dial(a.ctx, client.Config{
		URL: a.shaky.Socket, UserID: a.user, DeviceID: a.device, Store: a.store,
		Token:    func(ctx context.Context) (string, error) { return a.shaky.Token(ctx, a.user, nil) },
		PageSize: 7, MaxBuffered: 20, // so that both run over
		StartWith:   client.Everything,
		BackoffBase: 20 * time.Millisecond, BackoffCap: 500 * time.Millisecond,
		HeartbeatEvery: 500 * time.Millisecond, // else a push that is lost is missed for minutes
	})
	require.NoError(a.t, err)
	a.client = c
	a.reading, a.stopReads = context.WithCancel(a.ctx)
	a.readPlaces = map[chat.ConversationID]bool{}
}

// stop ends the client as the end of its program does.
func (a *actor) stop() {
	if a.client == nil {
		return
	}
	a.client.Close()
	a.stopReads()
	a.readers.Wait()
	a.client = nil
	if err := a.store.close(); err != nil {
		a.t.Errorf("%s: %v", a, err)
	}
}

// read starts to read a conversation, from where an earlier life stopped.
func (a *actor) read(place chat.ConversationID) {
	if a.readPlaces[place] {
		return
	}
	a.readPlaces[place] = true
	messages, ctx := a.client.Messages, a.reading
	a.readers.Go(func() {
		a.mu.Lock()
		last := lastSeq(a.given[place])
		a.mu.Unlock()
		for m, err := range messages(ctx, place, last) {
			if err != nil {
				return // the client ended; why it did is asked elsewhere
			}
			if m.Seq <= last {
				a.t.Errorf("%s was given seq %d of %s after seq %d", a, m.Seq, place, last)
			}
			last = m.Seq
			a.mu.Lock()
			a.given[place] = append(a.given[place], m)
			a.mu.Unlock()
		}
	})
}

func lastSeq(messages []chat.Message) int64 {
	if len(messages) == 0 {
		return 0
	}
	return messages[len(messages)-1].Seq
}

// live acts. Some go offline before the others are through, to miss the end.
func (a *actor) live(ctx context.Context) error {
	steps := *convergenceSteps
	if a.rng.IntN(3) == 0 {
		a.absent, steps = true, steps-a.rng.IntN(steps/2+1)
		defer a.stop()
	}
	for range steps {
		if err := pause(ctx, a.rng); err != nil {
			return err
		}
		places := a.mine()
		where := places[a.rng.IntN(len(places))]
		a.revive()
		a.read(where.id)
		if err := a.act(ctx, where); err != nil && !errors.Is(err, client.ErrReplaced) {
			return fmt.Errorf("%s in %s: %w", a, where.id, err)
		}
	}
	return nil
}

// revive starts the client again if the server sent it away. A handshake that the
// device gave up, because it was cut, may be registered after the next one: the
// server then takes it for the device, and ends the one that is in use.
func (a *actor) revive() {
	state, err := a.client.State()
	if state != client.Ended {
		return
	}
	if !errors.Is(err, client.ErrReplaced) {
		a.t.Errorf("%s ended: %v", a, err)
	}
	a.replaced++
	a.stop()
	a.start()
}

// readAll starts to read all conversations that there are.
func (a *actor) readAll() {
	for _, where := range a.mine() {
		a.read(where.id)
	}
}

// mine is the conversations that the user is in; the guest is in the group at
// times.
func (a *actor) mine() []place {
	return slices.DeleteFunc(slices.Clone(a.places), func(p place) bool {
		return !p.group && !slices.Contains(p.members, a.user)
	})
}

func (a *actor) act(ctx context.Context, where place) error {
	switch n := a.rng.IntN(100); {
	case n < 38:
		return a.send(ctx, where)
	case n < 43:
		impatient, cancel := context.WithTimeout(ctx, time.Duration(a.rng.Int64N(int64(20*time.Millisecond))))
		defer cancel()
		return a.send(impatient, where)
	case n < 55:
		return a.ack(ctx, where)
	case n < 65:
		return a.edit(ctx)
	case n < 72:
		return a.recall(ctx)
	case n < 80:
		return a.look(ctx, where)
	case n < 83:
		return a.clear(ctx, where)
	case n < 89:
		return a.changeGroup(ctx)
	case n < 93:
		a.stop()
		a.start()
	case n < 96:
		return a.crash(ctx)
	case n < 99:
		a.stop()
		defer a.start()
		return a.someTime(ctx)
	default:
		a.sockets.Cut()
	}
	return nil
}

// crash starts the program, which ends while it catches up, between two commits of
// its store, and starts it again.
func (a *actor) crash(ctx context.Context) error {
	a.stop()
	a.store.endAfter(a.rng.IntN(8))
	a.start()
	err := a.someTime(ctx)
	a.stop()
	a.store.endAfter(-1)
	a.start()
	return err
}

// comeBack is what a device does that missed the end: while it catches up, it
// crashes, and only then it has the time it needs.
func (a *actor) comeBack() {
	if !a.absent {
		return
	}
	a.store.endAfter(a.rng.IntN(8))
	a.start()
	a.await(a.String()+" does not come back", func() string {
		state, err := a.client.State()
		if state == client.Online || state == client.Ended || a.store.ended() {
			return ""
		}
		return fmt.Sprintf("it is %s: %v", state, err)
	})
	a.stop()
	a.store.endAfter(-1)
	a.start()
}

// someTime lets the others do some things meanwhile.
func (a *actor) someTime(ctx context.Context) error {
	for range 5 + a.rng.IntN(10) {
		if err := pause(ctx, a.rng); err != nil {
			return err
		}
	}
	return nil
}

// write does something that adds to a ledger, under an idempotency key of its own.
func (a *actor) write(what written, do func(key, text string) (wire.Sent, error)) (wire.Sent, error) {
	a.writes++
	key := fmt.Sprintf("%s %d", a.device, a.writes)
	what.client, what.device, what.number = a.index, a.device, a.writes
	if what.text != "" {
		what.text = a.textOf(what)
	}
	w := a.log.begin(a.user, key, what)
	sent, err := do(key, what.text)
	if err == nil && sent.ConversationID != what.place {
		return sent, fmt.Errorf("what was written to %s is answered as in %s", what.place, sent.ConversationID)
	}
	return sent, a.log.end(w, sent, err)
}

// says and means begin the text of a message and of an edit.
const says, means = "says", "means"

// textOf is a text that no other write has.
func (a *actor) textOf(w written) string { return fmt.Sprintf("%s %s %d", a, w.text, w.number) }

func (a *actor) send(ctx context.Context, where place) error {
	what := written{place: where.id, send: true, text: says}
	sent, err := a.write(what, func(key, text string) (wire.Sent, error) {
		draft := client.Draft{ConversationID: where.id, Text: text, ClientMsgID: key}
		if !where.group { // the first message makes the conversation
			draft.ConversationID, draft.To = "", where.members[0]
			if draft.To == a.user {
				draft.To = where.members[1]
			}
		}
		return a.client.Send(ctx, draft)
	})
	if sent.Seq > 0 {
		a.sent = append(a.sent, sent)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return nil // the user's patience ended before anything began
	}
	return err
}

// target is one of the device's own messages, as the device has it.
func (a *actor) target() (chat.Message, bool) {
	if len(a.sent) == 0 {
		return chat.Message{}, false
	}
	sent := a.sent[a.rng.IntN(len(a.sent))]
	found, err := a.client.Stored(a.ctx, sent.ConversationID, sent.Seq-1, 1)
	if err != nil || len(found) == 0 || found[0].Seq != sent.Seq {
		return chat.Message{}, false // it has not come back yet
	}
	if found[0].MessageID != sent.MessageID {
		a.t.Errorf("%s has seq %d of %s as %s, and it was answered as %s", a, sent.Seq, sent.ConversationID, found[0].MessageID, sent.MessageID)
	}
	return found[0], true
}

func (a *actor) edit(ctx context.Context) error {
	m, ok := a.target()
	if !ok {
		return nil
	}
	_, err := a.write(written{place: m.ConversationID, text: means}, func(key, text string) (wire.Sent, error) {
		edited, err := a.client.RequestEdit(ctx, wire.Edit{
			ConversationID: m.ConversationID, Seq: m.Seq, MessageID: m.MessageID, Version: m.Version,
			Text: text, ClientMsgID: key,
		})
		return edited.Sent, err
	})
	return err
}

func (a *actor) recall(ctx context.Context) error {
	m, ok := a.target()
	if !ok {
		return nil
	}
	_, err := a.write(written{place: m.ConversationID, recalls: m.Seq}, func(key, _ string) (wire.Sent, error) {
		return a.client.RequestRecall(ctx, wire.Recall{ConversationID: m.ConversationID, Seq: m.Seq, MessageID: m.MessageID, ClientMsgID: key})
	})
	return err
}

// changeGroup lets the owner, and whom the owner makes an admin, remove the guest
// from the group and add it again. The owner also changes the title, and the guest
// leaves at times.
func (a *actor) changeGroup(ctx context.Context) error {
	group := a.places[len(a.places)-1].id
	n := a.rng.IntN(10)
	_, err := a.write(written{place: group}, func(key, _ string) (wire.Sent, error) {
		change := wire.ChangeMembers{ConversationID: group, Members: []string{guest}, ClientMsgID: key}
		switch {
		case a.user == guest:
			return a.client.Leave(ctx, wire.ChangeGroup{ConversationID: group, ClientMsgID: key})
		case a.user == owner && n == 8:
			return a.client.SetTitle(ctx, wire.SetTitle{ConversationID: group, Title: key, ClientMsgID: key})
		case a.user == owner && n == 9:
			role := chat.RolePlain
			if a.writes%2 == 0 {
				role = chat.RoleAdmin
			}
			return a.client.SetRole(ctx, wire.SetRole{ConversationID: group, UserID: second, Role: role, ClientMsgID: key})
		case n%2 == 0:
			return a.client.AddMembers(ctx, change)
		default:
			return a.client.RemoveMembers(ctx, change)
		}
	})
	return err
}

// ack tells how far the user has received or read.
func (a *actor) ack(ctx context.Context, where place) error {
	line, ok := a.client.Conversation(where.id)
	if !ok || line.MaxContiguousSeq == 0 {
		return nil
	}
	want := positions{delivered: line.MaxContiguousSeq, read: 1 + a.rng.Int64N(line.MaxContiguousSeq)}
	if a.rng.IntN(2) == 0 {
		want.read = 0
	}
	a.asked[where.id] = a.asked[where.id].max(want)
	got, err := a.client.Ack(ctx, where.id, want.delivered, want.read)
	if _, refused := errors.AsType[*chat.Error](err); refused {
		return nil
	}
	if err != nil {
		return err
	}
	want.delivered = a.owed(ctx, where.id, want.delivered, got.DeliveredSeq)
	want.read = a.owed(ctx, where.id, want.read, got.ReadSeq)
	return a.answered(where, want, positions{delivered: got.DeliveredSeq, read: got.ReadSeq, cleared: a.acked[where.id].cleared})
}

// owed is the position that has to be in force after one was asked for: as it is, if only
// the user's own messages are between, which are not acked.
func (a *actor) owed(ctx context.Context, id chat.ConversationID, want, got int64) int64 {
	between, err := a.client.Stored(ctx, id, got, int(max(0, want-got)))
	if err != nil {
		return want
	}
	for _, m := range between {
		if m.Seq <= want && m.SenderID != a.user {
			return want
		}
	}
	return min(want, got)
}

// clear hides some of a conversation from the user.
func (a *actor) clear(ctx context.Context, where place) error {
	line, ok := a.client.Conversation(where.id)
	if !ok || line.MaxContiguousSeq == 0 {
		return nil
	}
	want := positions{cleared: 1 + a.rng.Int64N(line.MaxContiguousSeq)}
	a.asked[where.id] = a.asked[where.id].max(want)
	got, err := a.client.Clear(ctx, where.id, want.cleared)
	if _, refused := errors.AsType[*chat.Error](err); refused {
		return nil
	}
	if err != nil {
		return err
	}
	last := a.acked[where.id]
	last.cleared = got.ClearedSeq
	return a.answered(where, want, last)
}

// answered takes in which positions are in force. They never go back, and who is a
// member for good gets what was asked for.
func (a *actor) answered(where place, want, got positions) error {
	if last := a.acked[where.id]; last.max(got) != got {
		return fmt.Errorf("positions went back from %+v to %+v", last, got)
	}
	if slices.Contains(where.members, a.user) && want.max(got) != got {
		return fmt.Errorf("asked for %+v, and %+v is in force", want, got)
	}
	a.acked[where.id] = got
	return nil
}

// look asks the server how far a conversation is.
func (a *actor) look(ctx context.Context, where place) error {
	if !slices.Contains(where.members, a.user) {
		return nil // who was removed is told of an earlier end
	}
	call := a.log.now()
	page, err := a.client.History(ctx, where.id, 0, 1)
	if _, refused := errors.AsType[*chat.Error](err); refused {
		return nil // nobody wrote yet
	}
	if err == nil {
		a.log.read(a.index, where.id, call, page.CommittedMaxSeq)
	}
	return err
}

// watchedStore is a store that notes what no device may ever see.
type watchedStore struct {
	client.Store
	file string // "" is in memory

	mu        sync.Mutex
	left      int                                      // commits until it takes no more; below 0 without end
	ids       map[chat.ConversationID]map[int64]string // messageId by conversation and seq
	lines     map[string]client.Conversation
	cursor    int64
	violation error
}

func newWatchedStore(file string) *watchedStore {
	return &watchedStore{
		Store: client.NewMemory(), file: file, left: -1,
		ids: map[chat.ConversationID]map[int64]string{}, lines: map[string]client.Conversation{},
	}
}

// open opens the file, if there is one, as a program does when it starts.
func (s *watchedStore) open(ctx context.Context) error {
	if s.file == "" {
		return nil
	}
	opened, err := sqlite.Open(ctx, s.file)
	if err == nil {
		s.Store = opened
	}
	return err
}

// errEnded is what a store says whose program has ended, as far as the next one is
// concerned.
var errEnded = errors.New("the program has ended")

// endAfter lets the store take so many commits more; below 0 is no end.
func (s *watchedStore) endAfter(commits int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = commits
}

func (s *watchedStore) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left == 0
}

func (s *watchedStore) close() error {
	if opened, ok := s.Store.(*sqlite.Store); ok {
		return opened.Close()
	}
	return nil
}

// Commit is Store.Commit.
func (s *watchedStore) Commit(ctx context.Context, b client.Batch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == 0 {
		return errEnded
	}
	if err := s.Store.Commit(ctx, b); err != nil {
		return err
	}
	s.left = max(s.left-1, -1)
	for _, m := range b.Messages {
		ids := s.ids[m.ConversationID]
		if ids == nil {
			ids = map[int64]string{}
			s.ids[m.ConversationID] = ids
		}
		if before, known := ids[m.Seq]; known && before != m.MessageID {
			s.violated("seq %d of %s was %s and then %s", m.Seq, m.ConversationID, before, m.MessageID)
		}
		ids[m.Seq] = m.MessageID
	}
	for _, c := range b.Conversations {
		before := s.lines[string(c.ConversationID)]
		if c.MaxContiguousSeq < before.MaxContiguousSeq || c.ReadSeq < before.ReadSeq || c.DeliveredSeq < before.DeliveredSeq || c.ClearedSeq < before.ClearedSeq {
			s.violated("%s went back: maxContiguousSeq %d to %d, readSeq %d to %d, deliveredSeq %d to %d, clearedSeq %d to %d", c.ConversationID,
				before.MaxContiguousSeq, c.MaxContiguousSeq, before.ReadSeq, c.ReadSeq, before.DeliveredSeq, c.DeliveredSeq, before.ClearedSeq, c.ClearedSeq)
		}
		s.lines[string(c.ConversationID)] = c
	}
	if b.SyncCursor != nil {
		if *b.SyncCursor < s.cursor {
			s.violated("the syncCursor went back from %d to %d", s.cursor, *b.SyncCursor)
		}
		s.cursor = *b.SyncCursor
	}
	return nil
}

func (s *watchedStore) violated(format string, args ...any) {
	if s.violation == nil {
		s.violation = fmt.Errorf(format, args...)
	}
}

func (s *watchedStore) fault() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.violation
}

// everSeen is the messageIds that the device ever had, by conversation and seq.
func (s *watchedStore) everSeen() map[chat.ConversationID]map[int64]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.ids)
}

// watcher is a device without a client: it syncs, from anywhere, and checks each
// page by itself.
type watcher struct {
	*ordeal
	client int
	user   string
	rng    *rand.Rand
	device *device
	seen   map[chat.ConversationID]*stretch // by conversation
}

// stretch is what a watcher saw of a conversation.
type stretch struct {
	ids     map[int64]string // messageId by seq
	through int64            // the last nextSeq
	hidden  int64            // up to here it was told that nothing is for its user
}

func (w *watcher) live(ctx context.Context) error {
	w.device = newDevice(w.shaky, w.user, "watcher")
	if err := w.connect(ctx); err != nil {
		return err
	}
	defer func() { w.device.close() }()
	for range 3 * *convergenceSteps {
		if err := pause(ctx, w.rng); err != nil {
			return err
		}
		where := w.places[w.rng.IntN(len(w.places))]
		if !slices.Contains(where.members, w.user) {
			continue
		}
		switch err := w.look(ctx, where.id); {
		case err == nil:
		case errors.Is(err, raw.ErrClosed):
			w.device.close()
			if err := w.connect(ctx); err != nil {
				return err
			}
		case mayRetry(err), codeOf(err) == chat.CodeNotFound: // nobody wrote yet
		default:
			return fmt.Errorf("a sync of %s: %w", where.id, err)
		}
	}
	return nil
}

// connect tries until it works.
func (w *watcher) connect(ctx context.Context) error {
	for {
		err := w.device.reconnect(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return err
		}
		if err := pause(ctx, w.rng); err != nil {
			return err
		}
	}
}

func (w *watcher) look(ctx context.Context, place chat.ConversationID) error {
	s := w.seen[place]
	if s == nil {
		s = &stretch{ids: map[int64]string{}}
		w.seen[place] = s
	}
	after, limit := w.rng.Int64N(s.through+1), 5+w.rng.IntN(20)
	if w.rng.IntN(2) == 0 {
		after = s.through
	}
	call := w.log.now()
	var page wire.Synced
	if err := w.device.do(ctx, wire.ActionSync, wire.Sync{ConversationID: place, AfterSeq: &after, Limit: &limit}, &page); err != nil {
		return err
	}
	w.log.read(w.client, place, call, page.CommittedMaxSeq)
	return s.add(after, page)
}

// add takes in a page, and errs if it passes over a seq, stands still, or has
// another message than an earlier one had. Nothing was ever deleted.
func (s *stretch) add(after int64, page wire.Synced) error {
	next := max(after+1, page.FirstSeq)
	for i, m := range page.Messages {
		before, known := s.ids[m.Seq]
		if m.Seq != next+int64(i) || known && before != m.MessageID {
			return fmt.Errorf("a page after %d from firstSeq %d has at place %d seq %d, which is %s, was %q", after, page.FirstSeq, i, m.Seq, m.MessageID, before)
		}
		s.ids[m.Seq] = m.MessageID
	}
	through := max(after, next-1+int64(len(page.Messages)))
	stands := page.NextSeq == after && page.CommittedMaxSeq > after
	if page.NextSeq != through || page.NextSeq > max(after, page.CommittedMaxSeq) || len(page.Skipped) > 0 || stands {
		return fmt.Errorf("a page after %d from firstSeq %d has %d messages, nextSeq %d, committedMaxSeq %d, skipped %v, and nothing was ever deleted",
			after, page.FirstSeq, len(page.Messages), page.NextSeq, page.CommittedMaxSeq, page.Skipped)
	}
	s.through = max(s.through, page.NextSeq)
	s.hidden = max(s.hidden, page.FirstSeq-1)
	return nil
}
