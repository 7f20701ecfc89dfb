package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

var (
	// errNoKeys says that a token could not be judged because the issuer's keys
	// cannot be read. It is no verdict on the token.
	errNoKeys = errors.New("the JWKS cannot be read")

	// errUnknownKey says that the issuer has no key for a token.
	errUnknownKey = errors.New("the issuer has no such key")
)

const (
	// keysMaxAge is how long keys are used before they are read again, so that a
	// key the issuer took back stops working.
	keysMaxAge = time.Hour

	// keysMinAge is the least time between two reads once there are keys: tokens
	// with made-up key ids must not become load on the issuer.
	keysMinAge = time.Minute

	// keysMaxStale is how long keys keep working while they cannot be read again.
	// Longer, and who can keep the issuer from being reached could use a stolen key
	// for ever.
	keysMaxStale = 24 * time.Hour

	// keysTimeout bounds one read, well inside the function's own time.
	keysTimeout = 3 * time.Second

	// keysMinBackoff and keysMaxBackoff bound the time after a failed read in which
	// none is tried: it is drawn from a window that doubles with each failure.
	keysMinBackoff = time.Second
	keysMaxBackoff = time.Minute

	// keysMaxBytes bounds a JWKS document. Those of large issuers have a few KB.
	keysMaxBytes = 1 << 20

	// keysMaxLogged is how many of the keys that are not used a log line names.
	keysMaxLogged = 20
)

// keys are the public keys of the token issuer. They are read when they are
// first needed, when they are old, and when a token names one that is not there;
// never in the background, because a function is frozen between invocations. If
// the issuer cannot be reached, the keys there are keep working for a day.
type keys struct {
	url    string
	client *http.Client
	log    *slog.Logger
	now    func() time.Time
	jitter func(window time.Duration) time.Duration

	mu       sync.Mutex
	known    []key // nil if there are none
	readAt   time.Time
	next     time.Time     // no read before
	failures int           // of reads, since the last good one
	failed   error         // of the last read
	reading  chan struct{} // ends with the read under way, nil if there is none
}

func newKeys(url string, log *slog.Logger) *keys {
	return &keys{
		url:    url,
		client: &http.Client{Timeout: keysTimeout, CheckRedirect: refuseRedirect},
		log:    log,
		now:    time.Now,
		jitter: func(window time.Duration) time.Duration { return rand.N(window) + 1 }, //nolint:gosec // no secret
	}
}

// refuseRedirect makes JwksUrl the one place that keys come from. Whoever could
// make it point elsewhere, or to http, would say whose tokens are good.
func refuseRedirect(r *http.Request, _ []*http.Request) error {
	return fmt.Errorf("it redirects to %s, which is not followed: JwksUrl has to be where the keys are", r.URL.Redacted())
}

// keyfunc finds the keys for a token. Its error is errNoKeys where there is no
// verdict on the token.
func (k *keys) keyfunc(ctx context.Context) jwt.Keyfunc {
	return func(token *jwt.Token) (any, error) {
		if old, usable := k.age(); old {
			k.read(ctx, !usable)
		}
		if set, err := k.fitting(token); err != nil || len(set.Keys) > 0 {
			return set, err
		}
		k.read(ctx, true)
		set, err := k.fitting(token)
		if err != nil || len(set.Keys) > 0 {
			return set, err
		}
		if failed := k.failure(); failed != nil {
			return nil, fmt.Errorf("%w to see whether there is a new key: %w", errNoKeys, failed)
		}
		return nil, errUnknownKey
	}
}

// age says whether the keys are to be read, and whether there are some meanwhile.
func (k *keys) age() (old, usable bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	age := k.now().Sub(k.readAt)
	return k.known == nil || age >= keysMaxAge, k.known != nil && age < keysMaxStale
}

func (k *keys) failure() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failed
}

// fitting returns the keys that can check a token: those with its kid, or all if it
// names none, as far as they are for its algorithm. The error is errNoKeys.
func (k *keys) fitting(token *jwt.Token) (jwt.VerificationKeySet, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var set jwt.VerificationKeySet
	if k.known == nil || k.now().Sub(k.readAt) >= keysMaxStale {
		return set, fmt.Errorf("%w: %w", errNoKeys, k.failed)
	}
	kid, named := token.Header["kid"]
	for _, known := range k.known {
		if (!named || kid == known.kid) && slices.Contains(known.algs, token.Method.Alg()) {
			set.Keys = append(set.Keys, known.public)
		}
	}
	return set, nil
}

// renew reads the keys, unless that was tried a moment ago, and reports whether
// there may be others now.
func (k *keys) renew(ctx context.Context) bool {
	before := k.lastRead()
	k.read(ctx, true)
	return k.lastRead() != before
}

func (k *keys) lastRead() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.readAt
}

// read reads the keys, unless that was tried a moment ago. If another handshake is
// about it already, this one waits for that, or leaves it at what there is.
func (k *keys) read(ctx context.Context, wait bool) {
	k.mu.Lock()
	if reading := k.reading; reading != nil {
		k.mu.Unlock()
		if wait {
			select {
			case <-reading:
			case <-ctx.Done():
			}
		}
		return
	}
	if k.now().Before(k.next) {
		k.mu.Unlock()
		return
	}
	reading, began := make(chan struct{}), k.now()
	k.reading = reading
	k.mu.Unlock()

	// Others may wait for it, so it does not end with this handshake.
	known, err := k.fetch(context.WithoutCancel(ctx))

	k.mu.Lock()
	defer k.mu.Unlock()
	k.settle(ctx, known, err, began)
	k.reading = nil
	close(reading)
}

// settle keeps what a read gave. k.mu is held.
func (k *keys) settle(ctx context.Context, known []key, err error, began time.Time) {
	k.failed = err
	if err == nil {
		k.known, k.readAt, k.failures = known, began, 0
		k.next = k.now().Add(keysMinAge)
		return
	}
	if errors.Is(err, errNoUsableKey) {
		k.known = nil // the issuer's own word: none of those from before is good
	}
	window := min(keysMinBackoff<<min(k.failures, 16), keysMaxBackoff)
	k.failures++
	pause := k.jitter(window)
	k.next = k.now().Add(pause)
	k.log.ErrorContext(ctx, "reading the issuer's keys", "url", k.url, "err", err, "againAfterMs", pause.Milliseconds())
}

// fetch asks the issuer for its keys.
func (k *keys) fetch(ctx context.Context) ([]key, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/jwk-set+json, application/json")
	response, err := k.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %s", response.Status)
	}
	document, err := io.ReadAll(http.MaxBytesReader(nil, response.Body, keysMaxBytes))
	if err != nil {
		return nil, err
	}
	known, others, err := keysOf(document)
	k.report(ctx, others)
	return known, err
}

// report says which keys are not used. That a key is for something else is usual.
func (k *keys) report(ctx context.Context, others []ignored) {
	if len(others) == 0 {
		return
	}
	level := slog.LevelInfo
	var lines []string
	for i, other := range others {
		if !errors.Is(other.why, errOtherUse) {
			level = slog.LevelWarn
		}
		if i < keysMaxLogged {
			lines = append(lines, other.String())
		}
	}
	k.log.Log(ctx, level, "keys of the issuer that are not used", "url", k.url, "count", len(others), "keys", lines)
}
