package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
)

// errNoKeys says that a token could not be judged because the issuer's keys
// cannot be read. It is no verdict on the token.
var errNoKeys = errors.New("the JWKS cannot be read")

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
	keysTimeout = 4 * time.Second

	// keysMaxBytes bounds a JWKS document. Those of large issuers have a few KB.
	keysMaxBytes = 1 << 20
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

	mu     sync.Mutex
	find   keyfunc.Keyfunc // nil until the first read
	readAt time.Time
	tried  time.Time
	failed error // of the last read
}

func newKeys(url string, log *slog.Logger) *keys {
	return &keys{url: url, client: &http.Client{Timeout: keysTimeout, Transport: bounded{http.DefaultTransport}}, log: log, now: time.Now}
}

// keyfunc finds the key for a token. Its error is errNoKeys where there is no
// verdict on the token.
func (k *keys) keyfunc(ctx context.Context) jwt.Keyfunc {
	return func(token *jwt.Token) (any, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.find == nil || k.now().Sub(k.readAt) >= keysMaxAge {
			k.read(ctx)
		}
		if k.find == nil || k.now().Sub(k.readAt) >= keysMaxStale {
			return nil, fmt.Errorf("%w: %w", errNoKeys, k.failed)
		}
		key, err := k.find.KeyfuncCtx(ctx)(token)
		if !errors.Is(err, jwkset.ErrKeyNotFound) {
			return key, err
		}
		k.read(ctx)
		if k.failed != nil {
			return nil, fmt.Errorf("%w to see whether there is a new key: %w: %w", errNoKeys, k.failed, err)
		}
		return k.find.KeyfuncCtx(ctx)(token)
	}
}

// renew reads the keys, unless that was tried a moment ago, and reports whether
// there may be others now.
func (k *keys) renew(ctx context.Context) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.readAt
	k.read(ctx)
	return k.readAt != before
}

// bounded cuts off answers that no JWKS has the length of.
type bounded struct{ next http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, keysMaxBytes)
	}
	return resp, err
}

// read reads the keys, unless that was tried a moment ago with some at hand.
func (k *keys) read(ctx context.Context) {
	if k.find != nil && k.now().Sub(k.tried) < keysMinAge {
		return
	}
	k.tried = k.now()
	storage, err := jwkset.NewStorageFromHTTP(k.url, jwkset.HTTPClientStorageOptions{Client: k.client, Ctx: ctx, HTTPTimeout: keysTimeout})
	if err == nil {
		k.find, err = keyfunc.New(keyfunc.Options{
			Storage: storage, UseWhitelist: []jwkset.USE{jwkset.UseSig, ""}, // not the keys for encryption
		})
	}
	if k.failed = err; err != nil {
		k.log.ErrorContext(ctx, "reading the issuer's keys", "url", k.url, "err", err)
		return
	}
	k.readAt = k.tried
}
