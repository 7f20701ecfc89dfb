package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	smithytime "github.com/aws/smithy-go/time"
	"golang.org/x/sync/errgroup"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

const (
	// connectAtOnce bounds the handshakes under way: API Gateway takes 500 new
	// connections a second.
	connectAtOnce = 32
	// createTimeout bounds the making of the conversations, in which requests are
	// repeated: what was there for the handshakes may be gone.
	createTimeout = 2 * time.Minute
	// createEach is what each member adds to that: 48 of them are added at a time.
	createEach = 20 * time.Millisecond
	// tellMembers is after how many further members the making of a group says so.
	tellMembers = 5000
	// answerGrace is how long sends that are under way may take at the end.
	answerGrace = 10 * time.Second
	// drainTimeout bounds the time after the load in which devices catch up.
	drainTimeout = 30 * time.Second
)

// load is one run: users, their devices and conversations, and what they do.
type load struct {
	options
	run           string        // no other run has it
	start         time.Time     // of the clock in the messages
	createTimeout time.Duration // createTimeout, but for tests
	tell          func(format string, args ...any)

	figures       figures
	conversations []*conversation
	devices       []*device
}

// conversation is one that devices send to.
type conversation struct {
	id       chat.ConversationID
	users    []string
	watchers []string
	away     []string // members who are not connected
	maxAcked atomic.Int64
	reach    *reach
}

// grouped reports whether it is a group, not a single conversation.
func (c *conversation) grouped() bool { return len(c.users) > 2 || len(c.watchers)+len(c.away) > 0 }

func newLoad(o options) *load {
	return &load{
		options: o, run: "h" + strings.ToLower(rand.Text()[:10]), start: time.Now(),
		createTimeout: createTimeout + time.Duration(o.members)*createEach, tell: func(string, ...any) {},
		figures: figures{ack: newHistogram(), deliver: newHistogram(), reach: newHistogram()},
	}
}

// prepare makes users, connects their devices, and makes the conversations.
// Devices live until ctx ends; done waits for them.
func (l *load) prepare(ctx context.Context) (done func(), err error) {
	l.conversations = make([]*conversation, l.options.conversations)
	for i := range l.conversations {
		l.conversations[i] = &conversation{reach: newReach(l.figures.reach, l.watchers*l.options.devices)}
	}
	for u := range l.users {
		c := l.conversations[u%len(l.conversations)]
		user := fmt.Sprintf("%s-%d", l.run, u)
		c.users = append(c.users, user)
		l.addDevices(c, user, false)
	}
	for i, c := range l.conversations {
		for w := range l.watchers {
			user := fmt.Sprintf("%s-%d-w%d", l.run, i, w)
			c.watchers = append(c.watchers, user)
			l.addDevices(c, user, true)
		}
		for m := range l.members - len(c.users) - len(c.watchers) {
			c.away = append(c.away, fmt.Sprintf("%s-%d-m%d", l.run, i, m))
		}
	}
	var living sync.WaitGroup
	if err := l.connect(ctx, &living); err != nil {
		return living.Wait, err
	}
	return living.Wait, l.create(ctx)
}

func (l *load) addDevices(c *conversation, user string, watches bool) {
	for n := range l.options.devices {
		d := newDevice(l, user, fmt.Sprintf("d%d", n), c, len(l.devices))
		d.watches = watches
		l.devices = append(l.devices, d)
	}
}

func (l *load) connect(ctx context.Context, living *sync.WaitGroup) error {
	var connecting errgroup.Group
	connecting.SetLimit(connectAtOnce)
	for _, d := range l.devices {
		connecting.Go(func() error {
			connected := make(chan error, 1)
			living.Go(func() { d.live(ctx, func(err error) { connected <- err }) })
			select {
			case err := <-connected:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}
	return connecting.Wait()
}

// create makes the conversations: a group where there are more than two users.
func (l *load) create(ctx context.Context) error {
	creators := map[*conversation]*device{}
	for _, d := range l.devices {
		if creators[d.conversation] == nil {
			creators[d.conversation] = d
		}
	}
	limited, cancel := context.WithTimeout(ctx, l.createTimeout)
	defer cancel()
	group, working := errgroup.WithContext(limited)
	group.SetLimit(connectAtOnce)
	for c, creator := range creators {
		group.Go(func() error {
			if c.grouped() {
				return createGroup(working, creator, c)
			}
			sent, err := creator.send(working, wire.Send{To: c.users[len(c.users)-1], Text: "hello"})
			c.id = sent.ConversationID
			return err
		})
	}
	err := group.Wait()
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("making the conversations: %s did not answer within %s", l.Socket, l.createTimeout)
	}
	if err != nil {
		return fmt.Errorf("making the conversations: %w", err)
	}
	return nil
}

func createGroup(ctx context.Context, creator *device, c *conversation) error {
	others := slices.Concat(c.users[1:], c.watchers, c.away)
	first := min(len(others), chat.MaxRosterChange-1) // the creator is one of them
	var created wire.Created
	err := creator.retry(ctx, wire.ActionCreateGroup,
		wire.CreateGroup{Title: "hammer", Members: others[:first], ClientMsgID: creator.load.run + "-group-" + c.users[0]}, &created)
	if err != nil {
		return err
	}
	c.id = created.ConversationID
	for from := first; from < len(others); from += chat.MaxRosterChange {
		more := others[from:min(len(others), from+chat.MaxRosterChange)]
		if from/tellMembers != (from-chat.MaxRosterChange)/tellMembers {
			creator.load.tell("%d of %d members", from+1, len(others)+1)
		}
		err := creator.retry(ctx, wire.ActionAddMembers,
			wire.ChangeMembers{ConversationID: c.id, Members: more, ClientMsgID: creator.load.run + "-add-" + more[0]}, nil)
		if err != nil {
			return err
		}
	}
	return nil
}

// hammer sends until the time is up or ctx ends, and returns when every send is
// answered or given up. Devices follow their conversations until they have what
// was acked.
func (l *load) hammer(ctx context.Context) {
	// Sends that are under way at the end may be answered still, and gaps filled.
	working, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var following sync.WaitGroup
	for _, d := range l.devices {
		following.Go(func() { d.follow(working) })
	}
	sending, stop := ctx, context.CancelFunc(func() {})
	if l.duration > 0 {
		sending, stop = context.WithTimeout(ctx, l.duration)
	}
	defer stop()
	answering, giveUp := context.WithCancel(working)
	defer giveUp()
	context.AfterFunc(sending, func() {
		time.AfterFunc(answerGrace, giveUp)
	})
	var senders sync.WaitGroup
	var slots atomic.Int64
	begin := time.Now()
	l.figures.begin(begin)
	for _, d := range l.devices {
		if d.watches {
			continue
		}
		for range l.inflight {
			senders.Go(func() {
				for {
					due, ok := l.next(sending, begin, &slots)
					if !ok {
						return
					}
					l.sendOne(answering, d, due)
				}
			})
		}
	}
	<-sending.Done()
	l.figures.end(time.Now())
	senders.Wait()
	l.drain(working)
	cancel()
	following.Wait()
}

// next waits for the time of the next send, until the deadline of ctx: what would be
// due then is not sent, however late a machine hears of it. Where sends are late they
// do not wait for each other: the time they lose counts as theirs.
func (l *load) next(ctx context.Context, begin time.Time, slots *atomic.Int64) (due time.Time, ok bool) {
	if l.rate == 0 {
		return time.Now(), ctx.Err() == nil
	}
	slot := slots.Add(1) - 1
	due = begin.Add(time.Duration(float64(slot) / l.rate * float64(time.Second)))
	if end, limited := ctx.Deadline(); limited && !due.Before(end) {
		return due, false
	}
	_ = smithytime.SleepWithContext(ctx, time.Until(due))
	return due, ctx.Err() == nil
}

func (l *load) sendOne(ctx context.Context, d *device, due time.Time) {
	l.figures.sends.Add(1)
	sent, err := d.send(ctx, wire.Send{ConversationID: d.conversation.id, Text: l.textOf(due, l.size)})
	if err != nil {
		l.figures.failed.Add(1)
		if !errors.Is(err, context.Canceled) {
			l.figures.note(err)
		}
		return
	}
	l.figures.ack.observe(time.Since(due))
	l.figures.acks.Add(1)
	if sent.Duplicate {
		l.figures.resolved.Add(1)
	}
	for c := d.conversation; ; {
		known := c.maxAcked.Load()
		if sent.Seq <= known || c.maxAcked.CompareAndSwap(known, sent.Seq) {
			return
		}
	}
}

// drain waits until every device has every message that was acked.
func (l *load) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for l.missing() > 0 && ctx.Err() == nil {
		for _, d := range l.devices {
			if d.heard(d.conversation.maxAcked.Load()) {
				d.wake()
			}
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
}

// missing is how many messages that were acked are not on a device, over all
// devices.
func (l *load) missing() (n int64) {
	for _, d := range l.devices {
		n += d.missing(d.conversation.maxAcked.Load())
	}
	return n
}
