package integration_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	smithytime "github.com/aws/smithy-go/time"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/inorder-im/inorder/infra/local/dynamo/dynamotest"
	"github.com/inorder-im/inorder/integration/fault"
	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/wire"
)

var (
	convergenceSeed  = flag.Uint64("convergence.seed", 0, "the one `seed` that TestConvergence runs; 0 takes a new one")
	convergenceSeeds = flag.Int("convergence.seeds", 1, "how many seeds TestConvergence runs, one after the other, from -convergence.seed on; with -failfast until one fails")
	convergenceSteps = flag.Int("convergence.steps", 25, "how many actions each device takes in a run of TestConvergence")
)

const (
	// ordealTime bounds one seed, however slow the machine is.
	ordealTime = 4 * time.Minute
	// breather is the longest that a device pauses between two actions.
	breather = 30 * time.Millisecond
	// kindsInOneRun is how many kinds of fault one seed has to see at least, and
	// after allKindsAfter seeds there is none that was not seen.
	kindsInOneRun, allKindsAfter = 12, 10
)

// Several users with several devices do this and that while everything goes wrong
// that the platform allows. Then nothing goes wrong any more, and in the end every
// device has what the store has; see [ordeal.judge] for all that has to hold.
//
// A seed decides what every device does and what goes wrong. Which request is hit
// also depends on how the processes run, so that a rare failure may take some runs
// of its seed to come back.
//
// The test has to see a broken backend: see [TestConvergenceSeesABrokenBuild].
func TestConvergence(t *testing.T) {
	t.Parallel()
	converge(t, false)
}

// The same with every message by the lane of its conversation.
func TestConvergenceInTheLane(t *testing.T) {
	t.Parallel()
	converge(t, true)
}

func converge(t *testing.T, lane bool) {
	needLocal(t)
	again := t.Name() + "$"
	first := *convergenceSeed
	if first == 0 {
		first = rand.Uint64() >> 16 // short enough to be copied by hand
	}
	clock := newClock(t)
	struck := map[fault.Kind]int{}
	began, ran := time.Now(), 0
	for n := range uint64(*convergenceSeeds) {
		seed := first + n
		ok := t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Logf("again: go test ./integration -run '%s' -convergence.seed %d -convergence.steps %d", again, seed, *convergenceSteps)
			o := newOrdeal(t, seed, clock)
			o.lane = lane
			o.suffer()
			o.calm(struck)
			o.judge()
			o.audit(t.Context(), true)
		})
		ran++
		if !ok && *convergenceSeeds > 1 {
			fmt.Fprintf(os.Stderr, "%s: seed %d failed\n", again, seed)
		}
		if !ok && flag.Lookup("test.failfast").Value.String() == "true" {
			break
		}
	}
	t.Logf("%d seeds, %.1f s each; in all went wrong %v", ran, time.Since(began).Seconds()/float64(ran), struck)
	if ran >= allKindsAfter && !t.Failed() {
		for _, kind := range kindsOfFault() {
			if struck[kind] == 0 {
				t.Errorf("%s never happened in %d seeds, so nothing is known about it", kind, ran)
			}
		}
	}
}

// hurried is what goes wrong, as often as a short run needs it to.
func hurried() fault.Faults {
	faults := fault.Everything()
	faults[fault.Kill] = fault.Fault{Rate: 0.5, UpTo: time.Second}
	return faults
}

// victims are the functions that are killed.
func victims() []string { return []string{"SendFunction", "FanoutFunction"} }

// kindsOfFault are those that [fault.Plan.Counts] may name here.
func kindsOfFault() []fault.Kind {
	linux := runtime.GOOS == "linux"
	var kinds []fault.Kind
	for kind := range hurried() {
		if kind != fault.Kill && (kind != fault.ClockSet || linux) {
			kinds = append(kinds, kind)
		}
	}
	if linux {
		for _, function := range victims() {
			kinds = append(kinds, fault.KillOf(function))
		}
	}
	slices.Sort(kinds)
	return kinds
}

// newClock makes a clock for the functions that hand one over; nil where none can
// be made.
func newClock(t *testing.T) *fault.Clock {
	if runtime.GOOS != "linux" {
		return nil
	}
	clock, err := fault.NewClock(t.Context(), t.TempDir(), "../shared/store", "../functions/fanout", "../functions/default", "../shared/start")
	require.NoError(t, err)
	return clock
}

// ordeal is one run: a stack of its own behind proxies that let things go wrong,
// and those who use it.
type ordeal struct {
	t       *testing.T
	ctx     context.Context // the whole run's
	seed    uint64
	plan    *fault.Plan
	sockets *fault.Sockets
	clock   *fault.Clock // nil where there is none
	lane    bool         // everything goes by the lanes
	cloud   *localCloud
	db      *dynamodb.Client // past the proxy

	shaky    stack // what devices use
	places   []place
	actors   []*actor
	watchers []*watcher
	log      *history
}

// place is a conversation, and who may always read it.
type place struct {
	id      chat.ConversationID
	members []string
	group   bool
}

// The users. The owner makes the group and changes its roster; the guest is who
// is removed and added again. The names are the same in each run, and with them
// the ids of single conversations.
const (
	owner, second, guest, fourth = "alice", "bob", "carol", "dave"
)

func newOrdeal(t *testing.T, seed uint64, clock *fault.Clock) *ordeal {
	ctx, cancel := context.WithTimeoutCause(t.Context(), ordealTime, errors.New("the run took too long"))
	t.Cleanup(cancel)
	o := &ordeal{t: t, ctx: ctx, seed: seed, clock: clock, log: newHistory()}
	var err error
	o.plan, err = fault.NewPlan(seed, hurried())
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
	var env []string
	if o.clock != nil {
		env = o.clock.Env()
	}
	o.cloud = startCloudIn(o.t, env, "-dynamodb-endpoint", database.URL(), "-connections-endpoint", connections.URL(),
		"-param", "RejoinDays=0") // the guest comes back at once
	require.NoError(o.t, connections.SetTarget(o.cloud.Page))
	o.sockets, err = fault.NewSockets(o.plan, o.cloud.Socket)
	require.NoError(o.t, err)
	o.t.Cleanup(o.sockets.Close)
	o.shaky = stack{Socket: o.sockets.URL(), Tokens: o.cloud.Tokens}
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
	stop := o.strike()
	defer stop()
	everyone, ctx := errgroup.WithContext(o.ctx)
	for _, a := range o.actors {
		everyone.Go(func() error { return a.live(ctx) })
	}
	for i, user := range []string{owner, second} {
		w := &watcher{ordeal: o, client: len(o.actors) + i, user: user, rng: o.chance(100 + i), seen: map[chat.ConversationID]*stretch{}}
		o.watchers = append(o.watchers, w)
		everyone.Go(func() error { return w.live(ctx) })
	}
	require.NoError(o.t, everyone.Wait())
	for _, a := range o.actors {
		a.comeBack()
	}
}

// strike lets happen what no proxy can do, and audits meanwhile, until stop.
func (o *ordeal) strike() (stop func()) {
	ctx, cancel := context.WithCancel(o.ctx)
	var work sync.WaitGroup
	if runtime.GOOS == "linux" {
		k, err := fault.NewKiller(o.plan, o.cloud.PID(), victims()...)
		require.NoError(o.t, err)
		work.Go(func() { k.Run(ctx) })
	}
	work.Go(func() { o.keepAuditing(ctx) })
	if o.lane {
		work.Go(func() { o.openLanes(ctx) })
	}
	if o.clock != nil {
		work.Go(func() {
			if err := o.clock.Run(ctx, o.plan); err != nil {
				o.t.Error(err)
			}
		})
	}
	return func() {
		cancel()
		work.Wait()
	}
}

// openLanes opens the lane of each conversation for good, as soon as there is one.
func (o *ordeal) openLanes(ctx context.Context) {
	heads, rng := tableName(o.t, o.db, "Conversations"), o.chance(200)
	for _, p := range o.places {
		for {
			_, err := o.db.UpdateItem(ctx, &dynamodb.UpdateItemInput{
				TableName: &heads, Key: map[string]types.AttributeValue{"conversationId": &types.AttributeValueMemberS{Value: string(p.id)}},
				UpdateExpression: new("SET laneUntil = :until"), ConditionExpression: new("attribute_exists(conversationId)"),
				ExpressionAttributeValues: map[string]types.AttributeValue{":until": &types.AttributeValueMemberN{Value: farFuture}},
			})
			if err == nil || pause(ctx, rng) != nil {
				break
			}
		}
	}
}

// farFuture is a time, in ms, that no test lives to see.
const farFuture = "9000000000000"

func (o *ordeal) makeGroup() {
	a := o.actors[0]
	const id = "the group"
	w := o.log.begin(a.user, id, written{client: a.index, device: a.device})
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

// calm ends what goes wrong, adds up what did, and waits until every message that a
// device still had to send is answered for. From then on nothing is written any
// more.
func (o *ordeal) calm(struck map[fault.Kind]int) {
	o.plan.Off()
	o.t.Log("what went wrong: ", o.plan)
	for kind, n := range o.plan.Counts() {
		struck[kind] += n
	}
	if n := len(o.plan.Counts()); n < kindsInOneRun {
		o.t.Errorf("only %d kinds of fault happened, so this run says little", n)
	}
	o.await("the outboxes are not empty", func() string {
		for _, a := range o.actors {
			a.revive()
			if left := a.client.Outbox(); len(left) > 0 {
				state, err := a.client.State()
				return fmt.Sprintf("%s is %s (%v) and still has to send %d writes, the first is %s %s in %s",
					a, state, err, len(left), left[0].Action, left[0].ClientMsgID, left[0].ConversationID)
			}
		}
		return ""
	})
}

// await waits until problem finds none.
func (o *ordeal) await(what string, problem func() string) {
	o.t.Helper()
	ctx, cancel := context.WithTimeoutCause(o.ctx, patience, fmt.Errorf("nothing goes wrong any more, and %s were not enough", patience))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		found := problem()
		if found == "" {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			require.Fail(o.t, what, "%v: %s", context.Cause(ctx), found)
		}
	}
}

// pause waits a little, and errs if ctx ended meanwhile.
func pause(ctx context.Context, rng *rand.Rand) error {
	if smithytime.SleepWithContext(ctx, time.Duration(rng.Int64N(int64(breather)))) != nil {
		return context.Cause(ctx)
	}
	return nil
}
