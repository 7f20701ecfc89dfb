package integration_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"inorder/infra/local/dynamo/dynamotest"
	"inorder/integration/fault"
	"inorder/shared/chat"
	"inorder/shared/wire"
)

var (
	convergenceSeed  = flag.Uint64("convergence.seed", 0, "the one `seed` that TestConvergence runs; 0 takes a new one")
	convergenceSeeds = flag.Int("convergence.seeds", 1, "how many seeds TestConvergence runs, one after the other, from -convergence.seed on")
	convergenceSteps = flag.Int("convergence.steps", 25, "how many actions each device takes in a run of TestConvergence")
)

const (
	// ordealTime bounds one seed, however slow the machine is.
	ordealTime = 2 * time.Minute
	// breather is the longest that a device pauses between two actions.
	breather = 30 * time.Millisecond
)

// Several users with several devices do this and that while everything goes wrong
// that the platform allows. Then nothing goes wrong any more, and in the end every
// device has what the store has; see [ordeal.judge] for all that has to hold.
//
// A seed decides what every device does and what goes wrong. Which request is hit
// also depends on how the processes run, so that a rare failure may take some runs
// of its seed to come back.
//
// The test has to see a broken backend. These changes fail it with one of the
// first seeds:
//   - In store.query, resolve(ctx, conversationID, missing[:0], known): a sync
//     then passes over a message that its Query did not show yet.
//   - In store.try, take the idempotency record out of the transaction, look it up
//     before and put it after the commit: a retry then makes a second message.
func TestConvergence(t *testing.T) {
	t.Parallel()
	needLocal(t)
	first := *convergenceSeed
	if first == 0 {
		first = rand.Uint64() >> 16 // short enough to be copied by hand
	}
	for n := range uint64(*convergenceSeeds) {
		seed := first + n
		ok := t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Logf("again: go test ./integration -run 'TestConvergence$' -convergence.seed %d -convergence.steps %d", seed, *convergenceSteps)
			o := newOrdeal(t, seed)
			o.suffer()
			o.calm()
			o.judge()
			o.audit(t.Context(), true)
		})
		if !ok && *convergenceSeeds > 1 {
			fmt.Fprintf(os.Stderr, "TestConvergence: seed %d failed\n", seed)
		}
	}
}

// ordeal is one run: a stack of its own behind proxies that let things go wrong,
// and those who use it.
type ordeal struct {
	t       *testing.T
	ctx     context.Context // the whole run's
	seed    uint64
	plan    *fault.Plan
	sockets *fault.Sockets
	cloud   *localCloud
	db      *dynamodb.Client // past the proxy

	shaky  stack // what devices use
	places []place
	actors []*actor
	log    *history
}

// place is a conversation, and who may always read it.
type place struct {
	id      string
	members []string
	group   bool
}

// The users. The owner makes the group and changes its roster; the guest is who
// is removed and added again. The names are the same in each run, and with them
// the ids of single conversations.
const (
	owner, second, guest, fourth = "alice", "bob", "carol", "dave"
)

func newOrdeal(t *testing.T, seed uint64) *ordeal {
	ctx, cancel := context.WithTimeoutCause(t.Context(), ordealTime, errors.New("the run took too long"))
	t.Cleanup(cancel)
	o := &ordeal{t: t, ctx: ctx, seed: seed, log: newHistory()}
	faults := fault.Everything()
	faults[fault.Kill] = fault.Fault{Rate: 0.5, UpTo: time.Second} // a short run has to see some
	var err error
	o.plan, err = fault.NewPlan(seed, faults)
	require.NoError(t, err)
	o.start()
	o.places = []place{
		{id: chat.SingleID(owner, second), members: []string{owner, second}},
		{id: chat.SingleID(owner, guest), members: []string{owner, guest}},
		{id: chat.SingleID(guest, fourth), members: []string{guest, fourth}},
	}
	for i, who := range [][2]string{
		{owner, "phone"}, {owner, "laptop"}, {second, "phone"}, {second, "laptop"}, {guest, "phone"}, {guest, "laptop"}, {fourth, "phone"},
	} {
		o.actors = append(o.actors, newActor(o, i, who[0], who[1]))
	}
	return o
}

// start starts the stack: the gateway and its functions reach DynamoDB, and the
// functions reach the gateway, through proxies.
func (o *ordeal) start() {
	db, engine := dynamotest.Start(o.t)
	o.db = db
	database, err := fault.NewDatabase(o.plan, engine)
	require.NoError(o.t, err)
	o.t.Cleanup(database.Close)
	connections, err := fault.NewConnections(o.plan)
	require.NoError(o.t, err)
	o.t.Cleanup(connections.Close)
	o.cloud = startCloud(o.t, "-dynamodb-endpoint", database.URL(), "-connections-endpoint", connections.URL())
	require.NoError(o.t, connections.SetTarget(o.cloud.page))
	o.sockets, err = fault.NewSockets(o.plan, o.cloud.socket)
	require.NoError(o.t, err)
	o.t.Cleanup(o.sockets.Close)
	o.shaky = stack{socket: o.sockets.URL(), tokens: o.cloud.tokens}
}

// suffer lets everyone act while things go wrong.
func (o *ordeal) suffer() {
	o.plan.On()
	for _, a := range o.actors {
		a.start()
	}
	o.t.Cleanup(func() {
		for _, a := range o.actors {
			a.stop()
		}
	})
	o.makeGroup()
	killing, spare := context.WithCancel(o.ctx)
	defer spare()
	var killer sync.WaitGroup
	if runtime.GOOS == "linux" {
		k, err := fault.NewKiller(o.plan, o.cloud.cmd.Process.Pid, "SendFunction", "FanoutFunction")
		require.NoError(o.t, err)
		killer.Go(func() { k.Run(killing) })
	}
	killer.Go(func() { o.keepAuditing(killing) })
	everyone, ctx := errgroup.WithContext(o.ctx)
	for _, a := range o.actors {
		everyone.Go(func() error { return a.live(ctx) })
	}
	for i, user := range []string{owner, second} {
		w := &watcher{ordeal: o, client: len(o.actors) + i, rng: o.chance(100 + i), ids: map[string]map[int64]string{}}
		everyone.Go(func() error { return w.live(ctx, user) })
	}
	err := everyone.Wait()
	spare()
	killer.Wait()
	require.NoError(o.t, err)
}

func (o *ordeal) makeGroup() {
	a := o.actors[0]
	const id = "the group"
	w := o.log.begin(a.user, id, written{client: a.index})
	created, err := a.client.CreateGroup(o.ctx, wire.CreateGroup{Title: "All", Members: []string{second, guest, fourth}, ClientMsgID: id})
	require.NoError(o.t, err)
	w.place = created.ConversationID
	require.NoError(o.t, o.log.end(w, wire.Sent{}, nil))
	o.places = append(o.places, place{id: created.ConversationID, members: []string{owner, second, fourth}, group: true})
}

// chance is what decides for one of those who take part.
func (o *ordeal) chance(who int) *rand.Rand {
	return rand.New(rand.NewPCG(o.seed, uint64(who)))
}

// calm ends what goes wrong, and waits until every message that a device still
// had to send is answered for. From then on nothing is written any more.
func (o *ordeal) calm() {
	o.plan.Off()
	o.t.Log("what went wrong: ", o.plan)
	if len(o.plan.Counts()) < 10 {
		o.t.Error("hardly anything went wrong, so this run says little")
	}
	o.await("the outboxes are not empty", func() string {
		for _, a := range o.actors {
			a.revive()
			if left := a.client.Outbox(); len(left) > 0 {
				state, err := a.client.State()
				return fmt.Sprintf("%s is %s (%v) and still has to send %d messages, the first is %s to %s%s",
					a, state, err, len(left), left[0].Send.ClientMsgID, left[0].Send.ConversationID, left[0].Send.To)
			}
		}
		return ""
	})
}

// await waits until problem finds none, for as long as the run may take.
func (o *ordeal) await(what string, problem func() string) {
	o.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		found := problem()
		if found == "" {
			return
		}
		select {
		case <-tick.C:
		case <-o.ctx.Done():
			require.Fail(o.t, what, "%v: %s", context.Cause(o.ctx), found)
		}
	}
}

// pause waits a little, and errs if ctx ended meanwhile.
func pause(ctx context.Context, rng *rand.Rand) error {
	timer := time.NewTimer(time.Duration(rng.Int64N(int64(breather))))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
