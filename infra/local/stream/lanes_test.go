package stream_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"
)

// ward is a function that fails for one key until it is healed, and notes what it did
// for the others.
type ward struct {
	sick string

	mu     sync.Mutex
	healed bool
	done   map[string][]int // sequence numbers by key
	held   map[string]bool  // keys that were in a batch with the sick one
}

func newWard(sick string) *ward {
	return &ward{sick: sick, done: map[string][]int{}, held: map[string]bool{}}
}

func (w *ward) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.healed = true
}

func (w *ward) handle(_ int, batch []events.DynamoDBEventRecord) (string, string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := func(r events.DynamoDBEventRecord) string { return r.Change.Keys["id"].String() }
	if !w.healed && slices.ContainsFunc(batch, func(r events.DynamoDBEventRecord) bool { return key(r) == w.sick }) {
		for _, r := range batch {
			w.held[key(r)] = true
		}
		return "", "Unhandled", nil
	}
	for _, r := range batch {
		sequence, err := strconv.Atoi(r.Change.SequenceNumber)
		if err != nil {
			return "", "", err
		}
		w.done[key(r)] = append(w.done[key(r)], sequence)
	}
	return "null", "", nil
}

func (w *ward) count(keys ...string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, key := range keys {
		n += len(w.done[key])
	}
	return n
}

// keysByLane returns a key for each of ten lanes: two keys are of one lane if a batch
// has both.
func keysByLane(t *testing.T) []string {
	t.Helper()
	var keys []string
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.mapping.ParallelizationFactor = 10
		for i := range 200 {
			s.streams.put("shard", time.Now(), fmt.Sprint("key-", i))
		}
		s.run(t, time.Second)
		for _, batch := range s.function.batches() {
			sequence, err := strconv.Atoi(strings.Fields(batch)[0])
			require.NoError(t, err)
			keys = append(keys, fmt.Sprint("key-", sequence-1))
		}
	})
	require.Len(t, keys, 10)
	return keys
}

// A lane that fails holds up nobody else, however much comes, and gets all of its own
// in the end, in order and once.
func TestG10_OneLaneThatFailsHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	keys := keysByLane(t)
	// A lane keeps 5,000 records, and the rest of a page.
	const rounds, sick, others = 20, 320, 20
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		log := s.withLog()
		s.config.CheckpointDir = t.TempDir()
		s.mapping.ParallelizationFactor, s.mapping.BatchSize = 10, 100
		w := newWard(keys[0])
		s.function.handle = w.handle
		stop := s.start(t)
		for range rounds {
			for range others {
				s.streams.put("shard", time.Now(), keys...)
			}
			for range sick - others {
				s.streams.put("shard", time.Now(), keys[0])
			}
			elapse(2 * time.Second)
		}
		require.Equal(t, 9*rounds*others, w.count(keys[1:]...), "the others go on")
		require.Zero(t, w.count(keys[0]))
		require.Contains(t, log.String(), "left behind")
		stop()

		// Its position is before the first that is not done: it is not lost by a restart.
		again := newWard(keys[0])
		s.function.handle = again.handle
		stop = s.start(t)
		elapse(time.Minute)
		require.Zero(t, again.count(keys[0]))
		again.heal()
		elapse(time.Minute)
		requireAllOnceInOrder(t, again.done[keys[0]], rounds*sick)

		// It has caught up: what comes now comes to it as to all.
		reads := s.streams.reads
		s.streams.put("shard", time.Now(), keys...)
		elapse(2 * time.Second)
		stop()
		require.Equal(t, rounds*sick+1, again.count(keys[0]))
		require.LessOrEqual(t, s.streams.reads-reads, 4, "one reader again")
		s.function.calls = nil
		s.run(t, 10*time.Second)
		require.Empty(t, s.function.batches(), "everything is done")
	})
}

func requireAllOnceInOrder(t *testing.T, sequences []int, n int) {
	t.Helper()
	require.Len(t, sequences, n)
	require.True(t, slices.IsSorted(sequences))
	require.Len(t, slices.Compact(slices.Clone(sequences)), n)
}

// While the lane catches up, more comes for it, which it gets once and in order.
func TestALaneCatchesUpWhileMoreComes(t *testing.T) {
	t.Parallel()
	keys := keysByLane(t)
	const more = 800
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.mapping.ParallelizationFactor, s.mapping.BatchSize = 10, 10
		w := newWard(keys[0])
		s.function.handle = func(call int, batch []events.DynamoDBEventRecord) (string, string, error) {
			time.Sleep(50 * time.Millisecond)
			return w.handle(call, batch)
		}
		stop := s.start(t)
		for range 6500 {
			s.streams.put("shard", time.Now(), keys[0])
		}
		s.streams.put("shard", time.Now(), keys[1])
		elapse(5 * time.Second)
		w.heal()
		for range more {
			s.streams.put("shard", time.Now(), keys[0], keys[2])
			elapse(110 * time.Millisecond)
		}
		elapse(time.Minute)
		stop()
		requireAllOnceInOrder(t, w.done[keys[0]], 6500+more)
		requireAllOnceInOrder(t, w.done[keys[1]], 1)
		requireAllOnceInOrder(t, w.done[keys[2]], more)
	})
}

// A lane that is merely slow, as all are in a backlog, does not read it once more.
func TestABacklogIsReadOnce(t *testing.T) {
	t.Parallel()
	for _, lanes := range []int{1, 10} {
		t.Run(fmt.Sprint(lanes), func(t *testing.T) {
			t.Parallel()
			testABacklogIsReadOnce(t, lanes)
		})
	}
}

func testABacklogIsReadOnce(t *testing.T, lanes int) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.mapping.ParallelizationFactor = lanes
		s.function.handle = func(int, []events.DynamoDBEventRecord) (string, string, error) {
			time.Sleep(200 * time.Millisecond)
			return "null", "", nil
		}
		for i := range 10_000 {
			s.streams.put("shard", time.Now(), fmt.Sprint(i))
		}
		s.run(t, time.Minute)
		require.GreaterOrEqual(t, len(s.function.batches()), 100)
		require.Less(t, s.streams.reads, 20+60, "about ten pages, then one look a second")
	})
}

// What the stream has dropped while a lane was behind is lost to it; it goes on.
func TestALaneThatIsBehindByMoreThanTheStreamKeeps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		log := s.withLog()
		s.mapping.ParallelizationFactor = 2
		w := newWard("key")
		s.function.handle = w.handle
		for range 8000 {
			s.streams.put("shard", time.Now(), "key")
		}
		stop := s.start(t)
		elapse(10 * time.Second)
		s.streams.trim("shard", 7900)
		w.heal()
		elapse(time.Minute)
		s.streams.put("shard", time.Now(), "key")
		elapse(time.Minute)
		stop()
		require.Contains(t, log.String(), "records were lost")
		done := w.done["key"]
		require.True(t, slices.IsSorted(done))
		require.Equal(t, 8001, done[len(done)-1])
		require.Contains(t, done, 7901)
		require.NotContains(t, done, 7900)
	})
}

// A shard that ends is done when the last lane is, and then its child begins.
func TestAShardEndsWithItsLastLane(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene("parent")
		s.streams.addShard("child", "parent")
		s.mapping.ParallelizationFactor = 2
		w := newWard("key")
		s.function.handle = w.handle
		for range 7000 {
			s.streams.put("parent", time.Now(), "key")
		}
		s.streams.put("child", time.Now(), "key")
		s.streams.closeShard("parent")
		stop := s.start(t)
		elapse(time.Minute)
		require.Zero(t, w.count("key"))
		w.heal()
		elapse(time.Minute)
		stop()
		requireAllOnceInOrder(t, w.done["key"], 7001)
	})
}
