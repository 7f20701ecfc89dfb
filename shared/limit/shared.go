package limit

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// share is which part of a burst an environment takes from the shared bucket at a
	// time.
	share = 8

	// quietBurst and quietRate are which parts of the burst and of the rate an
	// environment admits to a key unasked: of writes with their defaults one, and one a
	// second. Who stays below that, as people do, costs nothing; who floods gets it from
	// each environment, of which there are hundreds while they start, so it is small.
	quietBurst = 64
	quietRate  = 20

	// alone is for how long a key is not charged after a charge that failed.
	alone = 5 * time.Second
)

// Charge takes n tokens of a key out of the bucket that all environments share
// and returns 0, or takes none and returns how long it will be until asking again is
// worth it. n is at most rate.Burst.
type Charge func(ctx context.Context, key string, rate Rate, n int, now time.Time) (wait time.Duration, err error)

// Shared has one token bucket for each key, in whatever environment it asks. It is
// safe for concurrent use.
//
// An environment counts in memory. It admits a 64th of the burst and a 20th of the rate
// unasked; beyond that it takes tokens of the shared bucket, an eighth of the burst with
// each charge. A refusal is remembered for as long as it says, so that a flood does not
// become one of charges. Tokens that were charged and not used within the time in which a
// burst comes back are void.
//
// So in n environments, and any stretch of time t, a key gets at most
//
//	2·burst + rate·t + n·(max(1, burst/64) + rate·t/20)
//
// and what the environments' clocks differ by, times the rate.
type Shared struct {
	rate     Rate
	tokens   int      // of one charge
	free     *Limiter // what is admitted unasked, or nil
	fallback *Limiter // what is admitted while nothing can be charged
	charge   Charge
	now      func() time.Time

	mu     sync.Mutex
	states map[string]state
}

// state is what an environment knows of a key for a time: that it has tokens, or
// cannot be charged, or, if neither, that it is refused.
type state struct {
	tokens      int
	fallback    bool
	from, until time.Time
}

// NewShared makes a Shared. now is the clock.
func NewShared(rate Rate, now func() time.Time, charge Charge) *Shared {
	tokens := max(1, rate.Burst/share)
	return &Shared{
		rate:     rate,
		tokens:   tokens,
		free:     New(Rate{PerSecond: rate.PerSecond / quietRate, Burst: max(1, rate.Burst/quietBurst)}, now),
		fallback: New(rate, now),
		charge:   charge,
		now:      now,
		states:   map[string]state{},
	}
}

// NewStrict makes a Shared that admits nothing unasked, and charges each token: what is
// rare costs little, and what comes to many environments at once is counted all the same.
func NewStrict(rate Rate, now func() time.Time, charge Charge) *Shared {
	s := NewShared(rate, now, charge)
	s.tokens, s.free = 1, nil
	return s
}

// Rate is what each key gets.
func (s *Shared) Rate() Rate { return s.rate }

// Take takes a token of the key and returns 0, or takes none and returns how long to
// wait. Where the shared bucket cannot be charged the key has, for five seconds,
// the whole rate in this environment alone; err then says why, beside an answer
// that counts.
func (s *Shared) Take(ctx context.Context, key string) (wait time.Duration, err error) {
	if s.rate.PerSecond <= 0 {
		return 0, nil
	}
	now := s.now()
	if wait, known := s.recall(key, now); known {
		return wait, nil
	}
	wait, err = s.charge(ctx, key, s.rate, s.tokens, now)
	switch {
	case err != nil:
		s.remember(key, now, state{fallback: true, until: now.Add(alone)})
		return s.fallback.Take(key), fmt.Errorf("counting the requests of %s here alone: %w", key, err)
	case wait > 0:
		s.remember(key, now, state{until: now.Add(wait)})
	case s.tokens > 1:
		s.remember(key, now, state{tokens: s.tokens - 1, until: now.Add(s.refill())})
	}
	return wait, nil
}

// refill is the time in which a burst comes back.
func (s *Shared) refill() time.Duration {
	return time.Duration(float64(s.rate.Burst) / s.rate.PerSecond * float64(time.Second))
}

// recall decides by what the environment knows, if that suffices.
func (s *Shared) recall(key string, now time.Time) (wait time.Duration, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st, known := s.states[key]
	if known && (!now.Before(st.until) || now.Before(st.from)) { // or the clock was set back
		delete(s.states, key)
		known = false
	}
	switch {
	case known && st.fallback:
		return s.fallback.Take(key), true
	case known && st.tokens == 0:
		return st.until.Sub(now), true
	case s.free != nil && s.free.Take(key) == 0:
		return 0, true
	case !known:
		return 0, false
	}
	if st.tokens--; st.tokens == 0 {
		delete(s.states, key)
	} else {
		s.states[key] = st
	}
	return 0, true
}

// remember keeps a state, in a bounded memory. Where that is full of states that
// count it starts over, at the price of a charge for each.
func (s *Shared) remember(key string, now time.Time, st state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.states) >= maxKeys {
		for other, old := range s.states {
			if !now.Before(old.until) {
				delete(s.states, other)
			}
		}
		if len(s.states) > maxKeys/2 {
			clear(s.states)
		}
	}
	st.from = now
	s.states[key] = st
}
