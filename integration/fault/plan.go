// Package fault makes a kind cloud as weak as the real one. It is proxies that a
// test puts between the processes of a stack: in front of DynamoDB and its
// streams ([Database]), of the @connections API ([Connections]) and of the
// gateway's sockets ([Sockets]); and what a proxy cannot do: [Killer] kills
// processes and [Clock] sets a function's clock.
//
// What strikes when is decided by a [Plan] from a seed.
package fault

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind is a way to fail.
type Kind string

// What can go wrong with DynamoDB. Some of the calls that are throttled, fail or are
// dropped are so in each attempt that the SDK makes.
const (
	// Conflict cancels a transaction, or refuses a single write, because another
	// transaction is under way on one of its items. Every item is taken for one
	// that transactions write to. What there is against the other items of a
	// transaction stands beside it, as it does beside a Throttle.
	Conflict Kind = "conflict"
	// Throttle refuses a request because of its rate, in one of the ways that
	// DynamoDB has for it.
	Throttle Kind = "throttle"
	// ServerError answers 500, half of the times although the request was
	// carried out.
	ServerError Kind = "server-error"
	// DropRequest closes the connection of a request that is not carried out.
	DropRequest Kind = "drop-request"
	// DropAnswer carries a request out and closes its connection.
	DropAnswer Kind = "drop-answer"
	// Delay holds a request back for up to UpTo.
	Delay Kind = "delay"
	// Unprocessed leaves keys of a BatchGetItem for another request.
	Unprocessed Kind = "unprocessed"
	// Applying keeps a transaction in the state of being applied for up to UpTo:
	// the items that it creates do not show in the answers to Query, Scan and
	// BatchGetItem, while all its other effects do, in the stream too. Then they
	// show, and only then it is answered. (DynamoDB Developer Guide, "Isolation
	// levels for transactions": these reads are read-committed, item by item.)
	Applying Kind = "applying"
)

// What can go wrong with a stream of DynamoDB.
const (
	// StreamError refuses a request, or closes its connection.
	StreamError Kind = "stream-error"
	// StreamHold keeps new records back for up to UpTo.
	StreamHold Kind = "stream-hold"
	// StreamReorder mixes the records that came in together. Those of one item
	// stay in order, which is all that DynamoDB promises.
	StreamReorder Kind = "stream-reorder"
	// StreamRepeat returns some of the last records of a shard again.
	StreamRepeat Kind = "stream-repeat"
)

// What can go wrong with the @connections API.
const (
	// PushDrop answers that a frame was sent and does not send it.
	PushDrop Kind = "push-drop"
	// PushRepeat sends a frame twice.
	PushRepeat Kind = "push-repeat"
	// PushLate answers that a frame was sent and sends it up to UpTo later, so
	// that others overtake it.
	PushLate Kind = "push-late"
	// PushGone closes a connection before a frame is sent to it, so that the
	// answer is 410. An open connection is never called gone: API Gateway is not
	// that unkind, and its device would not hear of anything any more.
	PushGone Kind = "push-gone"
	// PushLimit answers 429, PushError a 5xx, and neither sends the frame.
	PushLimit Kind = "push-limit"
	PushError Kind = "push-error"
	// PushCut closes the connection of a request, half of the times after it was
	// carried out.
	PushCut Kind = "push-cut"
)

const (
	// SocketCut cuts a device's socket after some of its first Bytes bytes, in
	// either direction, wherever in a frame or handshake that is. A socket that
	// was opened while the plan was off is left alone; see [Sockets.Cut].
	SocketCut Kind = "socket-cut"
	// Kill is the end of a process by SIGKILL; UpTo is the longest time between
	// two looks for a victim. Each function's kills are counted, see [KillOf].
	Kill Kind = "kill"
	// ClockSet sets the clock of functions to up to UpTo before or after the real
	// time, back more often than forward.
	ClockSet Kind = "clock-set"
)

// KillOf is what [Plan.Counts] calls the kills of one function.
func KillOf(function string) Kind { return Kill + "-" + Kind(function) }

// Fault says how often something goes wrong, and how badly.
type Fault struct {
	Rate  float64       // of the occasions, from 0 to 1
	UpTo  time.Duration // the longest it takes, where it takes time; 0 means 50 ms
	Bytes int           // only for SocketCut; 0 means 64 KB
}

const (
	defaultUpTo  = 50 * time.Millisecond
	defaultBytes = 64 << 10
)

// Faults is what can go wrong.
type Faults map[Kind]Fault

// Everything is a bad day on which work still gets done: each kind of fault,
// often enough to be seen within seconds.
func Everything() Faults {
	return Faults{
		Conflict:      {Rate: 0.05},
		Throttle:      {Rate: 0.02},
		ServerError:   {Rate: 0.01},
		DropRequest:   {Rate: 0.02},
		DropAnswer:    {Rate: 0.02},
		Delay:         {Rate: 0.05},
		Unprocessed:   {Rate: 0.1},
		Applying:      {Rate: 0.2},
		StreamError:   {Rate: 0.005},
		StreamHold:    {Rate: 0.2, UpTo: 100 * time.Millisecond},
		StreamReorder: {Rate: 0.5},
		StreamRepeat:  {Rate: 0.2},
		PushDrop:      {Rate: 0.05},
		PushRepeat:    {Rate: 0.05},
		PushLate:      {Rate: 0.05, UpTo: 100 * time.Millisecond},
		PushGone:      {Rate: 0.005},
		PushLimit:     {Rate: 0.02},
		PushError:     {Rate: 0.02},
		PushCut:       {Rate: 0.01},
		SocketCut:     {Rate: 0.3},
		Kill:          {Rate: 0.5, UpTo: 2 * time.Second},
		ClockSet:      {Rate: 0.5, UpTo: 3 * time.Hour},
	}
}

// Plan decides what goes wrong. It is off at first.
//
// The decision about the n-th occasion for a kind of fault depends on seed, kind
// and n alone, and so do its details. Which request is the n-th is up to the
// processes: where they run at the same time, two runs of one seed differ in
// that, and only in that.
type Plan struct {
	seed   uint64
	faults Faults

	mu        sync.Mutex
	on        bool
	occasions map[Kind]uint64
	struck    map[Kind]int
}

// NewPlan makes a plan. The error names a rate that is none.
func NewPlan(seed uint64, faults Faults) (*Plan, error) {
	for kind, f := range faults {
		if !(f.Rate >= 0 && f.Rate <= 1) {
			return nil, fmt.Errorf("the rate of %s is %v; it has to be from 0 to 1", kind, f.Rate)
		}
		if f.UpTo < 0 || f.Bytes < 0 {
			return nil, fmt.Errorf("the fault %s takes a negative time or number of bytes", kind)
		}
	}
	return &Plan{seed: seed, faults: maps.Clone(faults), occasions: map[Kind]uint64{}, struck: map[Kind]int{}}, nil
}

// Seed is what the plan was made from.
func (p *Plan) Seed() uint64 { return p.seed }

// On lets things go wrong from now on.
func (p *Plan) On() { p.set(true) }

// Off ends all faults, for a time of quiet: the proxies only pass on, give out
// what they hold back, and leave sockets alone.
func (p *Plan) Off() { p.set(false) }

func (p *Plan) set(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.on = on
}

func (p *Plan) isOn() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.on
}

// Counts says how often each kind of fault struck.
func (p *Plan) Counts() map[Kind]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.struck)
}

// String is the seed and the counts, for a test's log.
func (p *Plan) String() string {
	counts := p.Counts()
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d:", p.seed)
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, " %s %d", kind, counts[kind])
	}
	return b.String()
}

// strike is a fault that is to happen, with the chance for its details.
type strike struct {
	*rand.Rand
	fault Fault
}

// strikes decides about one occasion.
func (p *Plan) strikes(kind Kind) (strike, bool) {
	s, ok := p.consider(kind)
	if ok {
		p.count(kind)
	}
	return s, ok
}

// consider is strikes without counting, for a fault that may prove impossible.
func (p *Plan) consider(kind Kind) (strike, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f, ok := p.faults[kind]
	if !ok || !p.on {
		return strike{}, false
	}
	n := p.occasions[kind]
	p.occasions[kind]++
	name := fnv.New64a()
	_, _ = name.Write([]byte(kind))
	chance := rand.New(rand.NewPCG(p.seed^name.Sum64(), n)) //nolint:gosec // it has to be repeatable
	return strike{Rand: chance, fault: f}, chance.Float64() < f.Rate
}

func (p *Plan) count(kind Kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.struck[kind]++
}

// duration is how long the fault takes.
func (s strike) duration() time.Duration {
	upTo := s.fault.UpTo
	if upTo == 0 {
		upTo = defaultUpTo
	}
	return time.Duration(s.Int64N(int64(upTo))) + 1
}

// bytes is when a socket is cut: handshakes and first frames are hit too.
func (s strike) bytes() int64 {
	upTo := s.fault.Bytes
	if upTo == 0 {
		upTo = defaultBytes
	}
	return s.powers(int64(upTo))
}

// powers chooses from 1 to upTo, as likely small as large on a scale of powers.
func (s strike) powers(upTo int64) int64 {
	return int64(math.Exp(s.Float64() * math.Log(float64(upTo)+1)))
}

// offset is how far a clock is off: seconds as likely as hours.
func (s strike) offset() time.Duration {
	upTo := s.fault.UpTo
	if upTo == 0 {
		upTo = defaultUpTo
	}
	d := time.Duration(s.powers(upTo.Milliseconds())) * time.Millisecond
	if s.IntN(3) > 0 {
		d = -d
	}
	return d
}

// coin is a fifty-fifty choice.
func (s strike) coin() bool { return s.IntN(2) == 0 }

// oneOf chooses among what is not empty.
func oneOf[T any](s strike, choices ...T) T { return choices[s.IntN(len(choices))] }
