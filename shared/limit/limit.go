// Package limit bounds how often each of many callers may do something.
//
// A function runs in as many environments as API Gateway has requests at a time.
// A Limiter counts in the memory of one of them, so what a caller gets in all is
// the rate times the environments that are warm. A Shared holds in all of them
// together, and counts in memory too as long as a caller is far from the limit.
package limit

import (
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/inorder-im/inorder/shared/env"
)

// Rate is a token bucket: PerSecond tokens come in each second, up to Burst, and
// each admitted request takes one. A PerSecond of 0 is no limit.
type Rate struct {
	PerSecond float64
	Burst     int
}

// String returns the rate as an error message says it.
func (r Rate) String() string {
	return fmt.Sprintf("%s a second, and up to %d at once", strconv.FormatFloat(r.PerSecond, 'g', -1, 64), r.Burst)
}

// Times is a rate n times as high.
func (r Rate) Times(n int) Rate {
	return Rate{PerSecond: r.PerSecond * float64(n), Burst: r.Burst * n}
}

// Millis is a wait in whole milliseconds, rounded up.
func Millis(wait time.Duration) int64 {
	return (wait + time.Millisecond - 1).Milliseconds()
}

// RateFromEnv reads a rate from two variables: tokens a second, and how many at
// once.
func RateFromEnv(getenv func(string) string, perSecond, burst string) (Rate, error) {
	e := env.From(getenv)
	r := Rate{PerSecond: e.Float(perSecond), Burst: e.Int(burst, 1, math.MaxInt32)}
	if err := e.Err(); err != nil {
		return Rate{}, err
	}
	return r, nil
}

// maxKeys bounds a Limiter's memory to a few megabytes.
const maxKeys = 10_000

// Limiter has a token bucket for each key. It is safe for concurrent use. The buckets are
// not those of golang.org/x/time/rate, which note no time when they refuse: after a clock
// was set back, a caller would be refused until it is again what it was.
type Limiter struct {
	rate Rate
	now  func() time.Time

	mu      sync.Mutex
	buckets map[string]bucket
}

// bucket is how full it was, and when. A bucket that is full again is the same as
// none.
type bucket struct {
	tokens float64
	at     time.Time
}

// New makes a Limiter. now is the clock.
func New(rate Rate, now func() time.Time) *Limiter {
	return &Limiter{rate: rate, now: now, buckets: map[string]bucket{}}
}

// Rate is what each key gets.
func (l *Limiter) Rate() Rate { return l.rate }

// Take takes a token of the key and returns 0, or takes none and returns how long it
// will be until there is one. Waiting that long is no reservation.
func (l *Limiter) Take(key string) (wait time.Duration) {
	if l.rate.PerSecond <= 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	b, ok := l.buckets[key]
	if !ok {
		l.makeRoom(now)
		b = bucket{tokens: float64(l.rate.Burst)}
	} else {
		b.tokens = l.tokens(b, now)
	}
	b.at = now
	if b.tokens >= 1 {
		b.tokens--
	} else {
		wait = time.Duration(math.Ceil((1 - b.tokens) / l.rate.PerSecond * float64(time.Second)))
	}
	l.buckets[key] = b
	return wait
}

// tokens is how full a bucket has become. A clock that was set back adds nothing.
func (l *Limiter) tokens(b bucket, now time.Time) float64 {
	passed := max(0, now.Sub(b.at).Seconds())
	return min(float64(l.rate.Burst), b.tokens+passed*l.rate.PerSecond)
}

// makeRoom forgets the buckets that are full again once there are too many. If
// none are, it starts over: then that many callers are at work in one
// environment, and none of them is what fills it.
func (l *Limiter) makeRoom(now time.Time) {
	if len(l.buckets) < maxKeys {
		return
	}
	for key, b := range l.buckets {
		if l.tokens(b, now) >= float64(l.rate.Burst) {
			delete(l.buckets, key)
		}
	}
	if len(l.buckets) > maxKeys/2 { // else the next one would sweep again
		clear(l.buckets)
	}
}
