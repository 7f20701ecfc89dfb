package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	real := newIssuer(t)
	k := ecKey(t)
	real.publish("k1", k.Public())
	for name, status := range map[string]int{
		"moved": http.StatusMovedPermanently, "found": http.StatusFound, "see other": http.StatusSeeOther,
		"temporary": http.StatusTemporaryRedirect, "permanent": http.StatusPermanentRedirect,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			mux := http.NewServeMux()
			mux.HandleFunc("/elsewhere", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, real.url, status) })
			mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/keys", status) })
			mux.HandleFunc("/keys", func(http.ResponseWriter, *http.Request) { asked.Add(1) })
			server := httptest.NewServer(mux)
			t.Cleanup(server.Close)
			for path, to := range map[string]string{"/elsewhere": real.url, "/here": server.URL + "/keys"} {
				i := newIssuer(t)
				i.url = server.URL + path
				a, _, log := newTestAuthorizer(t, i)
				_, err := a.handle(t.Context(), bearing(t, sign(t, jwt.SigningMethodES256, "k1", k, claims(nil))))
				require.EqualError(t, err, "the JWKS cannot be read")
				require.Contains(t, log.String(), "it redirects to "+to)
			}
			require.Zero(t, asked.Load())
			require.Zero(t, real.readCount())
		})
	}
}

func TestAnIssuerThatIsDownIsLeftAlone(t *testing.T) {
	t.Parallel()
	// The windows after which it is asked again, one longer than the other.
	windows := []int{1, 2, 4, 8, 16, 32, 60, 60, 60}
	i := newIssuer(t)
	k := ecKey(t)
	i.publish("k1", k.Public())
	i.setDown(true)
	a, clock, log := newTestAuthorizer(t, i)
	token := sign(t, jwt.SigningMethodES256, "k1", k, claims(nil))
	refused := func() {
		t.Helper()
		_, err := a.handle(t.Context(), bearing(t, token))
		require.EqualError(t, err, "the JWKS cannot be read")
	}
	for n, seconds := range windows {
		window := time.Duration(seconds) * time.Second
		refused()
		require.Equal(t, n+1, i.readCount())
		clock.now = clock.now.Add(window - 1)
		for range 3 {
			refused()
		}
		require.Equal(t, n+1, i.readCount(), "it was asked before %v were over", window)
		clock.now = clock.now.Add(1)
	}
	require.Equal(t, len(windows), strings.Count(log.String(), "reading the issuer's keys"), "a line for each try")

	i.setDown(false)
	requireAllowed(t, a, bearing(t, token))
	i.setDown(true)
	clock.now = clock.now.Add(keysMaxAge)
	requireAllowed(t, a, bearing(t, token))
	clock.now = clock.now.Add(keysMinBackoff)
	requireAllowed(t, a, bearing(t, token))
	require.Equal(t, len(windows)+3, i.readCount(), "what was good begins with the shortest window again")
}

func TestTheBackoffIsDrawn(t *testing.T) {
	t.Parallel()
	k := newKeys("https://login.example.com", nil)
	drawn := map[time.Duration]bool{}
	for range 1000 {
		pause := k.jitter(keysMinBackoff)
		require.Positive(t, pause)
		require.LessOrEqual(t, pause, keysMinBackoff)
		drawn[pause.Truncate(keysMinBackoff/4)] = true
	}
	require.GreaterOrEqual(t, len(drawn), 4, "from all of the window")
}

// hanging is an issuer that answers when the test says so.
func hanging(t *testing.T, document func() string) (i *issuer, asked *atomic.Int32, answer func()) {
	t.Helper()
	asked = &atomic.Int32{}
	gate := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		select {
		case <-gate:
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, document())
	}))
	t.Cleanup(server.Close)
	answer = sync.OnceFunc(func() { close(gate) })
	t.Cleanup(answer)
	i = newIssuer(t)
	i.url = server.URL
	return i, asked, answer
}

func TestHandshakesShareOneRead(t *testing.T) {
	t.Parallel()
	k := ecKey(t)
	document := setOf(t, published(t, k.Public(), "k1", nil))
	i, asked, answer := hanging(t, func() string { return document })
	a, _, _ := newTestAuthorizer(t, i)
	event := bearing(t, sign(t, jwt.SigningMethodES256, "k1", k, claims(nil)))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			_, err := a.handle(t.Context(), event)
			if err != nil {
				t.Errorf("a handshake: %v", err)
			}
		})
	}
	require.Eventually(t, func() bool { return asked.Load() == 1 }, time.Minute, time.Millisecond)
	answer()
	all.Wait()
	require.EqualValues(t, 1, asked.Load())
}

func TestOldKeysAnswerWhileNewOnesAreRead(t *testing.T) {
	t.Parallel()
	k := ecKey(t)
	known := published(t, k.Public(), "k1", nil)
	i, asked, answer := hanging(t, func() string { return setOf(t, known) })
	a, _, _ := newTestAuthorizer(t, i)
	read, others, err := keysOf([]byte(setOf(t, known)))
	require.NoError(t, err)
	require.Empty(t, others)
	a.keys.known, a.keys.readAt = read, a.keys.now().Add(-2*keysMaxAge)
	event := bearing(t, sign(t, jwt.SigningMethodES256, "k1", k, claims(nil)))
	first := make(chan error, 1)
	go func() {
		_, err := a.handle(t.Context(), event)
		first <- err
	}()
	require.Eventually(t, func() bool { return asked.Load() == 1 }, time.Minute, time.Millisecond)
	requireAllowed(t, a, event) // with the read under way
	select {
	case err := <-first:
		require.Fail(t, "the read was not under way", "%v", err)
	default:
	}
	answer()
	require.NoError(t, <-first)
	require.EqualValues(t, 1, asked.Load())
}

func TestNobodyWaitsForAnIssuerThatHung(t *testing.T) {
	t.Parallel()
	i, asked, _ := hanging(t, func() string { return "" })
	a, clock, _ := newTestAuthorizer(t, i)
	a.keys.client.Timeout = 50 * time.Millisecond
	event := bearing(t, sign(t, jwt.SigningMethodES256, "k1", ecKey(t), claims(nil)))
	for range 10 {
		_, err := a.handle(t.Context(), event)
		require.EqualError(t, err, "the JWKS cannot be read")
	}
	require.EqualValues(t, 1, asked.Load())
	clock.now = clock.now.Add(keysMinBackoff)
	_, err := a.handle(t.Context(), event)
	require.EqualError(t, err, "the JWKS cannot be read")
	require.EqualValues(t, 2, asked.Load())
}

// An issuer that takes all of its keys back means it.
func TestAnEmptySetEndsTheKeysBefore(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	k := ecKey(t)
	i.publish("k1", k.Public())
	a, clock, log := newTestAuthorizer(t, i)
	event := bearing(t, sign(t, jwt.SigningMethodES256, "k1", k, claims(nil)))
	requireAllowed(t, a, event)
	i.withdraw("k1")
	clock.now = clock.now.Add(keysMaxAge)
	_, err := a.handle(t.Context(), event)
	require.EqualError(t, err, "the JWKS cannot be read")
	require.Contains(t, log.String(), "the set has no usable key")
	i.publish("k1", k.Public())
	clock.now = clock.now.Add(keysMinBackoff)
	requireAllowed(t, a, event)
}

func TestADocumentMayHaveOneMegabyte(t *testing.T) {
	t.Parallel()
	k := ecKey(t)
	set := setOf(t, published(t, k.Public(), "k1", nil))
	for size, good := range map[int]bool{keysMaxBytes: true, keysMaxBytes + 1: false} {
		i := newIssuer(t)
		i.raw = set + strings.Repeat(" ", size-len(set))
		a, _, _ := newTestAuthorizer(t, i)
		_, err := a.handle(t.Context(), bearing(t, sign(t, jwt.SigningMethodES256, "k1", k, claims(nil))))
		require.Equal(t, good, err == nil, "%d bytes: %v", size, err)
	}
}
