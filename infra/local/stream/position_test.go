package stream_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/logtest"
	"github.com/inorder-im/inorder/infra/local/stream"
	"github.com/inorder-im/inorder/infra/local/template"
)

func (s *scene) withLog() *logtest.Log {
	log := &logtest.Log{}
	s.config.Log = slog.New(slog.NewTextHandler(log, nil))
	return log
}

func TestTrimHorizonDeliversThePast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.streams.put("shard", time.Now().Add(-time.Hour), "a", "b")
		stop := s.start(t)
		elapse(time.Minute)
		s.streams.put("shard", time.Now(), "c")
		elapse(time.Minute)
		stop()
		require.Equal(t, []string{"1 2", "3"}, s.function.batches())
	})
}

func TestLatestDeliversWhatComesAfterOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene("one", "two")
		s.mapping.StartingPosition = template.Latest
		s.streams.put("one", time.Now(), "a")
		p, err := stream.Open(t.Context(), s.config, s.mapping)
		require.NoError(t, err)
		s.streams.put("one", time.Now(), "b") // after Open, before Run
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { p.Run(ctx); close(done) }()
		elapse(time.Minute)
		// A shard that comes later is new: it is read from its beginning.
		s.streams.addShard("three", "")
		s.streams.put("three", time.Now(), "c")
		elapse(time.Minute)
		cancel()
		<-done
		require.Equal(t, []string{"2", "3"}, s.function.batches())
	})
}

// A stream of LocalStack is ENABLING for a moment after its table was made.
func TestAStreamThatIsBeingSwitchedOnIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, position := range []string{template.TrimHorizon, template.Latest} {
		t.Run(position, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScene()
				log := s.withLog()
				s.mapping.StartingPosition = position
				s.streams.enabledAt = time.Now().Add(500 * time.Millisecond)
				stop := s.start(t)
				s.streams.put("shard", time.Now(), "a")
				elapse(10 * time.Second)
				stop()
				require.Equal(t, []string{"1"}, s.function.batches())
				require.Empty(t, log.String())
			})
		})
	}
}

func TestLatestRestartedBeforeItsFirstRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.mapping.StartingPosition = template.Latest
		s.config.CheckpointDir = t.TempDir()
		s.streams.page = 1 // the rule holds beyond the first page
		s.streams.put("shard", time.Now().Add(-time.Hour), "a", "b", "c")
		s.run(t, 10*time.Second)
		s.streams.put("shard", time.Now(), "d") // while nothing runs
		s.run(t, 10*time.Second)
		require.Equal(t, []string{"4"}, s.function.batches(), "nothing of the past, and nothing lost")
	})
}

func TestRestartGoesOnAfterTheLastBatchThatWasDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		dir := filepath.Join(t.TempDir(), "positions")
		s.config.CheckpointDir = dir
		s.mapping.BatchSize = 2
		s.function.handle = poison("3")
		s.streams.put("shard", time.Now(), "a", "b", "c", "d")
		s.run(t, 10*time.Second)
		require.Equal(t, "1 2", s.function.batches()[0])

		s.function.handle, s.function.calls = nil, nil
		s.run(t, 10*time.Second)
		require.Equal(t, []string{"3 4"}, s.function.batches())
		s.run(t, 10*time.Second)
		require.Equal(t, []string{"3 4"}, s.function.batches(), "everything is done")

		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, files, 1, "one small file, and no temporary one")

		other := s.mapping
		other.LogicalID = "Another"
		s.mapping = other
		s.function.calls = nil
		s.run(t, 10*time.Second)
		require.Equal(t, []string{"1 2", "3 4"}, s.function.batches(), "each mapping has its own position")
	})
}

func TestDamagedPositionsStartAtTheOldestRecord(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{"empty": "", "garbage": "\x00\x00\x00", "half": `{"streamArn":"arn`, "no stream": "{}"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScene()
				log := s.withLog()
				s.mapping.StartingPosition = template.Latest
				s.config.CheckpointDir = t.TempDir()
				require.NoError(t, os.WriteFile(filepath.Join(s.config.CheckpointDir, "FanoutHeads.json"), []byte(content), 0o600))
				s.streams.put("shard", time.Now(), "a")
				s.run(t, 10*time.Second)
				require.Equal(t, []string{"1"}, s.function.batches(), "rather twice than never")
				require.Contains(t, log.String(), "damaged")
			})
		})
	}
}

func TestPositionsOfAnotherStreamAreNotUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.config.CheckpointDir = t.TempDir()
		s.streams.put("shard", time.Now(), "a", "b")
		s.run(t, 10*time.Second)

		// The table was made anew: the same shard id, sequence numbers from 1.
		s2 := newScene()
		s2.streams.arn = strings.Replace(streamARN, "2026-11-29", "2026-11-30", 1)
		s2.config.CheckpointDir = s.config.CheckpointDir
		log := s2.withLog()
		s2.streams.put("shard", time.Now(), "c", "d", "e")
		s2.run(t, 10*time.Second)
		require.Equal(t, []string{"1 2 3"}, s2.function.batches())
		require.Contains(t, log.String(), "new stream")
	})
}

func TestTrimmedPositionGoesOnWithTheOldestRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		log := s.withLog()
		s.config.CheckpointDir = t.TempDir()
		s.streams.put("shard", time.Now(), "a", "b", "c", "d")
		s.mapping.BatchSize = 1
		s.function.handle = poison("2")
		s.run(t, 10*time.Second)
		s.streams.trim("shard", 2)
		s.function.handle, s.function.calls = nil, nil
		s.run(t, 10*time.Second)
		require.Equal(t, []string{"3", "4"}, s.function.batches())
		require.Contains(t, log.String(), "records were lost")
	})
}

func TestTrimmedIteratorGoesOnWithTheOldestRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		stop := s.start(t)
		s.streams.put("shard", time.Now(), "a")
		elapse(10 * time.Second)
		s.streams.put("shard", time.Now(), "b", "c", "d")
		s.streams.trim("shard", 3) // before the reader comes by
		elapse(10 * time.Second)
		stop()
		require.Equal(t, []string{"1", "4"}, s.function.batches())
	})
}

func TestExpiredIteratorsAreReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		stop := s.start(t)
		s.streams.put("shard", time.Now(), "a")
		elapse(10 * time.Second)
		s.streams.expireIterators()
		s.streams.put("shard", time.Now(), "b")
		elapse(10 * time.Second)
		stop()
		require.Equal(t, []string{"1", "2"}, s.function.batches(), "nothing is lost or repeated")
	})
}

func TestErrorsOfTheStreamAreTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		log := s.withLog()
		s.streams.put("shard", time.Now(), "a")
		s.streams.fail(errors.New("connection refused"), &types.LimitExceededException{}, &types.InternalServerError{})
		s.run(t, 10*time.Second)
		require.Equal(t, []string{"1"}, s.function.batches())
		require.Contains(t, log.String(), "connection refused")
	})
}

func TestChildrenWaitForTheirParent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene("parent")
		s.streams.addShard("left", "parent")
		s.streams.addShard("right", "parent")
		s.streams.addShard("grandchild", "left")
		s.streams.addShard("orphan", "long gone")
		s.config.CheckpointDir = t.TempDir()
		s.streams.put("parent", time.Now(), "a") // 1
		s.streams.put("left", time.Now(), "a")   // 2
		s.streams.put("right", time.Now(), "b")  // 3
		s.streams.put("grandchild", time.Now(), "a")
		s.streams.put("orphan", time.Now(), "z") // 5
		for _, id := range []string{"parent", "left"} {
			s.streams.closeShard(id)
		}
		s.function.handle = poison("1")
		stop := s.start(t)
		elapse(time.Minute)
		for _, b := range s.function.batches() {
			require.Contains(t, []string{"1", "5"}, b, "children wait while the parent fails")
		}
		stop()

		s.function.handle, s.function.calls = nil, nil
		s.run(t, time.Minute)
		batches := strings.Join(s.function.batches(), " ")
		require.Regexp(t, `^1 .*2.*4`, batches)
		require.ElementsMatch(t, []string{"1", "2", "3", "4"}, s.function.batches())

		s.function.calls = nil
		s.run(t, time.Minute)
		require.Empty(t, s.function.batches(), "shards that ended are not read again")
	})
}

func TestAnEndedShardLeadsToItsChildrenAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene("parent")
		stop := s.start(t)
		elapse(500 * time.Millisecond)
		s.streams.put("parent", time.Now(), "a")
		s.streams.addShard("child", "parent")
		s.streams.put("child", time.Now(), "a")
		s.streams.closeShard("parent")
		elapse(2 * time.Second) // two polls, and less than a refresh
		stop()
		require.Equal(t, []string{"1", "2"}, s.function.batches())
	})
}

func TestAShardThatIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene("old")
		s.streams.addShard("child", "old")
		stop := s.start(t)
		elapse(2 * time.Second)
		s.streams.put("child", time.Now(), "a")
		s.streams.mu.Lock()
		s.streams.shards = s.streams.shards[1:] // after 24 hours
		s.streams.mu.Unlock()
		elapse(time.Minute)
		stop()
		require.Equal(t, []string{"1"}, s.function.batches())
	})
}

func TestIdlePolling(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.config.PollInterval = 0 // the default
		s.run(t, 10*time.Second)
		require.InDelta(t, 40, s.streams.reads, 2, "four times a second, as Lambda does")
	})
}

// Who knows that there is something wakes the mapping: the records do not wait for its
// next look.
func TestWakingAnIdleMapping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene("one", "two")
		s.config.PollInterval = time.Hour
		stop := s.start(t)
		defer stop()
		elapse(time.Second)
		before := s.streams.polls()
		elapse(time.Minute)
		require.Equal(t, before, s.streams.polls(), "an idle mapping does nothing")
		for i := range 3 {
			s.streams.put("one", time.Now(), "a")
			s.streams.put("two", time.Now(), "b")
			elapse(time.Second)
			require.Len(t, s.function.batches(), 2*i)
			s.poller.Wake()
			synctest.Wait()
			require.Len(t, s.function.batches(), 2*i+2, "both shards, at once")
			elapse(time.Second) // it looks once more after records came
		}
	})
}

// A thousand writes in a second are not a thousand polls.
func TestPollsOfABusyMappingAreFewerThanTheWrites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.config.PollInterval = time.Hour
		stop := s.start(t)
		defer stop()
		elapse(time.Second)
		before := s.streams.polls()
		for range 1000 {
			s.streams.put("shard", time.Now(), "a")
			s.poller.Wake()
			elapse(time.Millisecond)
		}
		require.InDelta(t, 200, s.streams.polls()-before, 20)
		elapse(10 * time.Millisecond)
		require.Equal(t, 1000, s.function.count(), "the last one, too")
	})
}
