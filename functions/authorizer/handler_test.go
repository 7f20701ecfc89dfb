package main

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/aws/aws-lambda-go/events"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/route/routetest"
)

const (
	issuerName = "https://login.example.com/"
	audience   = "inorder"
	methodARN  = "arn:aws:execute-api:eu-central-1:123456789012:x7k2m9q4a1/v1/$connect"
)

// issuer is a token issuer with a JWKS endpoint.
type issuer struct {
	url string

	mu     sync.Mutex
	public map[string]crypto.PublicKey // by kid
	use    map[string]jwkset.USE
	raw    string // instead of public
	down   bool
	hang   bool // until the caller gives up
	reads  int
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{public: map[string]crypto.PublicKey{}, use: map[string]jwkset.USE{}}
	server := httptest.NewServer(http.HandlerFunc(i.serve))
	t.Cleanup(server.Close)
	i.url = server.URL + "/.well-known/jwks.json"
	return i
}

func (i *issuer) serve(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	hang := i.hang
	i.mu.Unlock()
	if hang {
		<-r.Context().Done()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.reads++
	if i.down {
		http.Error(w, "down", http.StatusServiceUnavailable)
		return
	}
	if i.raw != "" {
		_, _ = w.Write([]byte(i.raw))
		return
	}
	storage := jwkset.NewMemoryStorage()
	for kid, key := range i.public {
		jwk, err := jwkset.NewJWKFromKey(key, jwkset.JWKOptions{Metadata: jwkset.JWKMetadataOptions{KID: kid, USE: i.use[kid]}})
		if err == nil {
			err = storage.KeyWrite(r.Context(), jwk)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	document, err := storage.JSONPublic(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(document)
}

func (i *issuer) publish(kid string, key crypto.PublicKey) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.public[kid] = key
}

func (i *issuer) withdraw(kid string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.public, kid)
}

func (i *issuer) setDown(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

func (i *issuer) readCount() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.reads
}

func ecKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// claims are good ones, with changes; a nil value takes a claim out.
func claims(changes map[string]any) jwt.MapClaims {
	c := jwt.MapClaims{
		"iss": issuerName, "aud": audience, "sub": "alice",
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	maps.Copy(c, changes)
	maps.DeleteFunc(c, func(_ string, v any) bool { return v == nil })
	return c
}

func sign(t *testing.T, method jwt.SigningMethod, kid string, key any, c jwt.MapClaims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, c)
	if kid != "" {
		token.Header["kid"] = kid
	}
	signed, err := token.SignedString(key)
	require.NoError(t, err)
	return signed
}

// withHeaders is the sample with these headers instead of its own.
func withHeaders(t *testing.T, headers map[string][]string) events.APIGatewayCustomAuthorizerRequestTypeRequest {
	t.Helper()
	event := routetest.Sample[events.APIGatewayCustomAuthorizerRequestTypeRequest](t, "authorizer")
	event.MultiValueHeaders, event.Headers = headers, map[string]string{}
	for name, values := range headers {
		event.Headers[name] = values[len(values)-1]
	}
	return event
}

func bearing(t *testing.T, token string) events.APIGatewayCustomAuthorizerRequestTypeRequest {
	t.Helper()
	return withHeaders(t, map[string][]string{"Authorization": {"Bearer " + token}})
}

// clock is a time that a test moves.
type clock struct{ now time.Time }

func newTestAuthorizer(t *testing.T, i *issuer) (*authorizer, *clock, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	a := newAuthorizer(config{jwksURL: i.url, issuer: issuerName, audience: audience}, slog.New(slog.NewJSONHandler(&log, nil)))
	c := &clock{now: time.Now()}
	a.keys.now = func() time.Time { return c.now }
	a.keys.jitter = func(window time.Duration) time.Duration { return window }
	return a, c, &log
}

func requireAllowed(t *testing.T, a *authorizer, event events.APIGatewayCustomAuthorizerRequestTypeRequest) events.APIGatewayCustomAuthorizerResponse {
	t.Helper()
	response, err := a.handle(t.Context(), event)
	require.NoError(t, err)
	require.Equal(t, "Allow", response.PolicyDocument.Statement[0].Effect)
	return response
}

func TestAllow(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	key := ecKey(t)
	i.publish("k1", key.Public())
	exp := time.Now().Add(time.Hour).Unix()
	token := sign(t, jwt.SigningMethodES256, "k1", key, claims(map[string]any{"exp": exp}))
	a, _, _ := newTestAuthorizer(t, i)

	for name, headers := range map[string]map[string][]string{
		"a header":                      {"Authorization": {"Bearer " + token}},
		"a header in lower case":        {"authorization": {"bearer  " + token}},
		"subprotocols":                  {"Sec-WebSocket-Protocol": {"inorder.v1, bearer." + token}},
		"subprotocols, other way round": {"sec-websocket-protocol": {"bearer." + token + ",inorder.v1"}},
		"subprotocols in several lines": {"Sec-WebSocket-Protocol": {"inorder.v1", "bearer." + token}},
		"another scheme beside them":    {"Authorization": {"Basic eDp5"}, "Sec-WebSocket-Protocol": {"inorder.v1, bearer." + token}},
	} {
		t.Run("by "+name, func(t *testing.T) {
			event := withHeaders(t, headers)
			require.Equal(t, events.APIGatewayCustomAuthorizerResponse{
				PrincipalID: "alice",
				PolicyDocument: events.APIGatewayCustomAuthorizerPolicy{
					Version:   "2012-10-17",
					Statement: []events.IAMPolicyStatement{{Effect: "Allow", Action: []string{"execute-api:Invoke"}, Resource: []string{methodARN}}},
				},
				Context: map[string]any{"device": "phone", "exp": strconv.FormatInt(exp+30, 10)},
			}, requireAllowed(t, a, event))
		})
	}

	t.Run("hands a bad device on, not at any length", func(t *testing.T) {
		event := bearing(t, token)
		event.QueryStringParameters["device"] = "my phone"
		require.Equal(t, "my phone", requireAllowed(t, a, event).Context["device"])
		event.QueryStringParameters["device"] = strings.Repeat("d", 4000)
		require.Len(t, requireAllowed(t, a, event).Context["device"], 65)
	})
	require.Equal(t, 1, i.readCount())
}

func TestAllowsPublicKeyAlgorithms(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	edPublic, edKey, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	ec := ecKey(t)
	i.publish("rsa", rsaKey.Public())
	i.publish("ed", edPublic)
	i.publish("ec", ec.Public())
	a, _, _ := newTestAuthorizer(t, i)
	for _, tc := range []struct {
		method jwt.SigningMethod
		kid    string
		key    any
	}{
		{jwt.SigningMethodRS256, "rsa", rsaKey}, {jwt.SigningMethodPS512, "rsa", rsaKey},
		{jwt.SigningMethodES256, "ec", ec}, {jwt.SigningMethodEdDSA, "ed", edKey},
		{jwt.SigningMethodRS256, "", rsaKey}, // an issuer that names no key
	} {
		requireAllowed(t, a, bearing(t, sign(t, tc.method, tc.kid, tc.key, claims(nil))))
	}

	t.Run("but not the public key as a secret", func(t *testing.T) {
		der, err := x509.MarshalPKIXPublicKey(rsaKey.Public())
		require.NoError(t, err)
		secret := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
		for _, key := range [][]byte{secret, der} {
			for _, kid := range []string{"rsa", ""} {
				_, err := a.handle(t.Context(), bearing(t, sign(t, jwt.SigningMethodHS256, kid, key, claims(nil))))
				require.EqualError(t, err, "Unauthorized")
			}
		}
	})
}

func TestASecretIsNoPublicKey(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	secret := []byte("a secret that an issuer published by mistake")
	i.raw = `{"keys":[{"kty":"oct","kid":"k1","k":"` + base64.RawURLEncoding.EncodeToString(secret) + `"}]}`
	a, _, _ := newTestAuthorizer(t, i)
	_, err := a.handle(t.Context(), bearing(t, sign(t, jwt.SigningMethodHS256, "k1", secret, claims(nil))))
	require.EqualError(t, err, "Unauthorized")
}

func TestUnauthorized(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	key, other := ecKey(t), ecKey(t)
	i.publish("k1", key.Public())
	i.publish("enc", other.Public())
	i.use["enc"] = jwkset.UseEnc
	es := func(changes map[string]any) string {
		return sign(t, jwt.SigningMethodES256, "k1", key, claims(changes))
	}
	good := es(nil)
	segments := strings.Split(good, ".")
	forged := sign(t, jwt.SigningMethodES256, "k1", key, claims(map[string]any{"sub": "bob"}))

	for name, event := range map[string]events.APIGatewayCustomAuthorizerRequestTypeRequest{
		"no token":                   withHeaders(t, map[string][]string{}),
		"an empty token":             bearing(t, ""),
		"another scheme":             withHeaders(t, map[string][]string{"Authorization": {"Basic " + good}}),
		"a token without its scheme": withHeaders(t, map[string][]string{"Authorization": {good}}),
		"a subprotocol alone":        withHeaders(t, map[string][]string{"Sec-WebSocket-Protocol": {"bearer." + good}}),
		"two tokens":                 withHeaders(t, map[string][]string{"Authorization": {"Bearer " + good, "Bearer " + forged}}),
		"no JWT":                     bearing(t, "hello"),
		"one too long":               bearing(t, es(map[string]any{"more": strings.Repeat("x", 8*1024)})),
		"half a JWT":                 bearing(t, segments[0]+"."+segments[1]),
		"no signature":               bearing(t, segments[0]+"."+segments[1]+"."),
		"other claims":               bearing(t, segments[0]+"."+strings.Split(forged, ".")[1]+"."+segments[2]),
		"alg none":                   bearing(t, sign(t, jwt.SigningMethodNone, "k1", jwt.UnsafeAllowNoneSignatureType, claims(nil))),
		"another key":                bearing(t, sign(t, jwt.SigningMethodES256, "k1", other, claims(nil))),
		"another key, unnamed":       bearing(t, sign(t, jwt.SigningMethodES256, "", other, claims(nil))),
		"a key for encryption":       bearing(t, sign(t, jwt.SigningMethodES256, "enc", other, claims(nil))),
		"an unknown key":             bearing(t, sign(t, jwt.SigningMethodES256, "k9", key, claims(nil))),
		"an expired one":             bearing(t, es(map[string]any{"exp": time.Now().Add(-time.Minute).Unix()})),
		"an expired one of others":   bearing(t, es(map[string]any{"exp": time.Now().Add(-time.Minute).Unix(), "iss": "x"})),
		"no exp":                     bearing(t, es(map[string]any{"exp": nil})),
		"a text for exp":             bearing(t, es(map[string]any{"exp": "tomorrow"})),
		"one of in a minute":         bearing(t, es(map[string]any{"nbf": time.Now().Add(time.Minute).Unix()})),
		"a text for nbf":             bearing(t, es(map[string]any{"nbf": "now"})),
		"one of tomorrow":            bearing(t, es(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()})),
		"one issued tomorrow":        bearing(t, es(map[string]any{"iat": time.Now().Add(time.Hour).Unix()})),
		"no sub":                     bearing(t, es(map[string]any{"sub": nil})),
		"Sub for sub":                bearing(t, es(map[string]any{"sub": nil, "Sub": "alice"})),
		"an empty sub":               bearing(t, es(map[string]any{"sub": ""})),
		"a number for sub":           bearing(t, es(map[string]any{"sub": 7})),
		"the product's own name":     bearing(t, es(map[string]any{"sub": "system"})),
		"one that looks like it":     bearing(t, es(map[string]any{"sub": " SуS\u200btem"})),
		"a sub of half a character":  bearing(t, es(map[string]any{"sub": json.RawMessage(`"alice\ud800"`)})),
		"a sub that turns the text":  bearing(t, es(map[string]any{"sub": "\u202ealice"})),
		"a sub too long":             bearing(t, es(map[string]any{"sub": strings.Repeat("a", 129)})),
		"a sub with a line break":    bearing(t, es(map[string]any{"sub": "al\nice"})),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, _, log := newTestAuthorizer(t, i)
			_, err := a.handle(t.Context(), event)
			require.EqualError(t, err, "Unauthorized", "API Gateway compares the text")
			require.Contains(t, log.String(), `"msg":"refused"`)
			require.Contains(t, log.String(), `"reason":"`)
			require.Contains(t, log.String(), `"AuthorizerRefusals":1`)
			for _, secret := range append(segments, strings.Split(forged, ".")...) {
				require.NotContains(t, log.String(), secret)
			}
		})
	}

	t.Run("a token in the query", func(t *testing.T) {
		t.Parallel()
		a, _, _ := newTestAuthorizer(t, i)
		event := withHeaders(t, map[string][]string{})
		for _, name := range []string{"token", "access_token", "authorization", "Authorization", "bearer"} {
			event.QueryStringParameters[name] = good
			event.MultiValueQueryStringParameters[name] = []string{good}
		}
		_, err := a.handle(t.Context(), event)
		require.EqualError(t, err, "Unauthorized")
	})

	t.Run("no device", func(t *testing.T) {
		t.Parallel()
		a, _, _ := newTestAuthorizer(t, i)
		event := bearing(t, good)
		event.QueryStringParameters = nil
		_, err := a.handle(t.Context(), event)
		require.EqualError(t, err, "Unauthorized")
	})
}

func TestClocksMayDifferALittle(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	key := ecKey(t)
	i.publish("k1", key.Public())
	a, _, _ := newTestAuthorizer(t, i)
	for name, changes := range map[string]map[string]any{
		"exp": {"exp": time.Now().Add(-20 * time.Second).Unix()},
		"nbf": {"nbf": time.Now().Add(20 * time.Second).Unix()},
		"iat": {"iat": time.Now().Add(20 * time.Second).Unix()},
	} {
		allowed := requireAllowed(t, a, bearing(t, sign(t, jwt.SigningMethodES256, "k1", key, claims(changes))))
		until, err := strconv.ParseInt(allowed.Context["exp"].(string), 10, 64)
		require.NoError(t, err)
		require.Greater(t, until, time.Now().Unix(), "%s: what is accepted now is not closed now", name)
	}
}

func TestDeny(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	key := ecKey(t)
	i.publish("k1", key.Public())
	for name, changes := range map[string]map[string]any{
		"another issuer":   {"iss": "https://evil.example.com/"},
		"no issuer":        {"iss": nil},
		"Iss for iss":      {"iss": nil, "Iss": issuerName},
		"a number for iss": {"iss": 7},
		"another audience": {"aud": "outoforder"},
		"other audiences":  {"aud": []string{"a", "b"}},
		"no audience":      {"aud": nil},
		"a number for aud": {"aud": 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, _, log := newTestAuthorizer(t, i)
			response, err := a.handle(t.Context(), bearing(t, sign(t, jwt.SigningMethodES256, "k1", key, claims(changes))))
			require.NoError(t, err)
			require.Equal(t, []events.IAMPolicyStatement{{Effect: "Deny", Action: []string{"execute-api:Invoke"}, Resource: []string{methodARN}}},
				response.PolicyDocument.Statement)
			require.NotEmpty(t, response.PrincipalID)
			require.Contains(t, log.String(), `"msg":"denied"`)
			require.Contains(t, log.String(), `"AuthorizerRefusals":1`)
		})
	}

	t.Run("not one of several audiences that is ours", func(t *testing.T) {
		t.Parallel()
		a, _, _ := newTestAuthorizer(t, i)
		requireAllowed(t, a, bearing(t, sign(t, jwt.SigningMethodES256, "k1", key, claims(map[string]any{"aud": []string{"other", audience}}))))
	})
}

func TestKeys(t *testing.T) {
	t.Parallel()

	t.Run("a new key is found", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(t)
		first, second := ecKey(t), ecKey(t)
		i.publish("k1", first.Public())
		a, clock, _ := newTestAuthorizer(t, i)
		requireAllowed(t, a, bearing(t, sign(t, jwt.SigningMethodES256, "k1", first, claims(nil))))
		i.publish("k2", second.Public())
		clock.now = clock.now.Add(keysMinAge)
		requireAllowed(t, a, bearing(t, sign(t, jwt.SigningMethodES256, "k2", second, claims(nil))))
		require.Equal(t, 2, i.readCount())
	})

	t.Run("made-up keys are no load on the issuer", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(t)
		key := ecKey(t)
		i.publish("k1", key.Public())
		a, clock, _ := newTestAuthorizer(t, i)
		requireAllowed(t, a, bearing(t, sign(t, jwt.SigningMethodES256, "k1", key, claims(nil))))
		for range 10 {
			_, err := a.handle(t.Context(), bearing(t, sign(t, jwt.SigningMethodES256, rand.Text(), key, claims(nil))))
			require.EqualError(t, err, "Unauthorized")
		}
		require.Equal(t, 1, i.readCount())
		clock.now = clock.now.Add(keysMinAge)
		for range 10 {
			_, err := a.handle(t.Context(), bearing(t, sign(t, jwt.SigningMethodES256, rand.Text(), key, claims(nil))))
			require.EqualError(t, err, "Unauthorized")
		}
		require.Equal(t, 2, i.readCount())
	})

	t.Run("keys keep working when the issuer is down", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(t)
		key := ecKey(t)
		i.publish("k1", key.Public())
		a, clock, log := newTestAuthorizer(t, i)
		token := sign(t, jwt.SigningMethodES256, "k1", key, claims(nil))
		requireAllowed(t, a, bearing(t, token))
		i.setDown(true)
		clock.now = clock.now.Add(keysMaxAge)
		requireAllowed(t, a, bearing(t, token))
		requireAllowed(t, a, bearing(t, token))
		require.Equal(t, 2, i.readCount(), "one try a minute")
		require.Contains(t, log.String(), "reading the issuer's keys")

		// Whether a key that is not there is new cannot be told now: no verdict.
		_, err := a.handle(t.Context(), bearing(t, sign(t, jwt.SigningMethodES256, "k2", key, claims(nil))))
		require.EqualError(t, err, "the JWKS cannot be read")
	})

	t.Run("keys keep working for a day when the issuer is down, not longer", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(t)
		key := ecKey(t)
		i.publish("k1", key.Public())
		a, clock, _ := newTestAuthorizer(t, i)
		token := sign(t, jwt.SigningMethodES256, "k1", key, claims(nil))
		requireAllowed(t, a, bearing(t, token))
		i.setDown(true)
		clock.now = clock.now.Add(24*time.Hour - time.Second)
		requireAllowed(t, a, bearing(t, token))
		clock.now = clock.now.Add(time.Second)
		_, err := a.handle(t.Context(), bearing(t, token))
		require.EqualError(t, err, "the JWKS cannot be read")
		i.setDown(false)
		clock.now = clock.now.Add(keysMinAge)
		requireAllowed(t, a, bearing(t, token))
	})

	t.Run("a new key is found by tokens that name none, and they are no load either", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(t)
		first, second, forged := ecKey(t), ecKey(t), ecKey(t)
		i.publish("", first.Public())
		a, clock, _ := newTestAuthorizer(t, i)
		requireAllowed(t, a, bearing(t, sign(t, jwt.SigningMethodES256, "", first, claims(nil))))
		i.publish("", second.Public())
		token := sign(t, jwt.SigningMethodES256, "", second, claims(nil))
		_, err := a.handle(t.Context(), bearing(t, token))
		require.EqualError(t, err, "Unauthorized", "the last read was a moment ago")
		clock.now = clock.now.Add(keysMinAge)
		requireAllowed(t, a, bearing(t, token))
		require.Equal(t, 2, i.readCount())
		clock.now = clock.now.Add(keysMinAge)
		for range 10 {
			_, err := a.handle(t.Context(), bearing(t, sign(t, jwt.SigningMethodES256, "", forged, claims(nil))))
			require.EqualError(t, err, "Unauthorized")
		}
		require.Equal(t, 3, i.readCount())
	})

	t.Run("an issuer that does not answer holds nobody up for long", func(t *testing.T) {
		t.Parallel()
		require.Less(t, keysTimeout, 10*time.Second, "the function's own time")
		i := newIssuer(t)
		i.hang = true
		key := ecKey(t)
		i.publish("k1", key.Public())
		a, _, _ := newTestAuthorizer(t, i)
		require.Equal(t, keysTimeout, a.keys.client.Timeout)
		a.keys.client.Timeout = 50 * time.Millisecond
		_, err := a.handle(t.Context(), bearing(t, sign(t, jwt.SigningMethodES256, "k1", key, claims(nil))))
		require.EqualError(t, err, "the JWKS cannot be read")
	})

	t.Run("a document that is too long is not read to its end", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(t)
		i.raw = `{"keys":[],"more":"` + strings.Repeat("x", 2<<20) + `"}`
		a, _, log := newTestAuthorizer(t, i)
		_, err := a.handle(t.Context(), bearing(t, sign(t, jwt.SigningMethodES256, "k1", ecKey(t), claims(nil))))
		require.EqualError(t, err, "the JWKS cannot be read")
		require.Contains(t, log.String(), "too large")
	})

	t.Run("a key that was taken back stops working", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(t)
		key := ecKey(t)
		i.publish("k1", key.Public())
		i.publish("k2", ecKey(t).Public())
		a, clock, _ := newTestAuthorizer(t, i)
		token := sign(t, jwt.SigningMethodES256, "k1", key, claims(nil))
		requireAllowed(t, a, bearing(t, token))
		i.withdraw("k1")
		requireAllowed(t, a, bearing(t, token))
		clock.now = clock.now.Add(keysMaxAge)
		_, err := a.handle(t.Context(), bearing(t, token))
		require.EqualError(t, err, "Unauthorized")
	})

	t.Run("without any keys there is no verdict, and a later one tries again", func(t *testing.T) {
		t.Parallel()
		i := newIssuer(t)
		key := ecKey(t)
		i.publish("k1", key.Public())
		i.setDown(true)
		a, clock, log := newTestAuthorizer(t, i)
		token := sign(t, jwt.SigningMethodES256, "k1", key, claims(nil))
		_, err := a.handle(t.Context(), bearing(t, token))
		require.EqualError(t, err, "the JWKS cannot be read")
		require.Contains(t, log.String(), `"msg":"cannot decide"`)
		i.setDown(false)
		clock.now = clock.now.Add(keysMinBackoff)
		requireAllowed(t, a, bearing(t, token))
	})
}

func TestConfigFromEnv(t *testing.T) {
	t.Parallel()
	env := map[string]string{"JWKS_URL": "https://login.example.com/jwks", "JWT_ISSUER": "i", "JWT_AUDIENCE": "a"}
	c, err := configFromEnv(func(name string) string { return env[name] })
	require.NoError(t, err)
	require.Equal(t, config{jwksURL: "https://login.example.com/jwks", issuer: "i", audience: "a"}, c)
	for name := range env {
		_, err := configFromEnv(func(asked string) string {
			if asked == name {
				return ""
			}
			return env[asked]
		})
		require.ErrorContains(t, err, name)
	}
}
