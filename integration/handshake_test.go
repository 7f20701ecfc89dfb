package integration_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"

	raw "github.com/inorder-im/inorder/integration/device"
	"github.com/inorder-im/inorder/shared/wire"
)

func TestHandshakesThatAreRefused(t *testing.T) {
	t.Parallel()
	good := mustToken(t, nil)
	device := url.Values{"device": {"phone"}}
	for name, tt := range map[string]struct {
		token  string // in the Authorization header
		query  url.Values
		offers []string
		want   int
	}{
		"no token":                    {"", device, nil, 401},
		"no device":                   {good, nil, nil, 401},
		"an empty device":             {good, url.Values{"device": {""}}, nil, 401},
		"a device with a slash":       {good, url.Values{"device": {"my/phone"}}, nil, 400},
		"a device of 65 characters":   {good, url.Values{"device": {strings.Repeat("x", 65)}}, nil, 400},
		"a token in the query":        {"", url.Values{"device": {"phone"}, "token": {good}, "access_token": {good}, "Authorization": {"Bearer " + good}}, nil, 401},
		"no JWT":                      {"alice", device, nil, 401},
		"a signature cut off":         {good[:strings.LastIndexByte(good, '.')+1], device, nil, 401},
		"a signature with other text": {tampered(t, good), device, nil, 401},
		"alg none":                    {unsigned(t, good), device, nil, 401},
		"signed by another key":       {signedByAnother(t, good), device, nil, 401},
		"signed with a secret":        {signedSymmetrically(t, good), device, nil, 401},
		"two tokens":                  {"", device, []string{wire.Subprotocol, wire.BearerPrefix + good, wire.BearerPrefix + good}, 401},
		"only the bearer subprotocol": {"", device, []string{wire.BearerPrefix + good}, 401},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, handshake(t, shared, tt.token, tt.query, tt.offers))
		})
	}
	require.Equal(t, http.StatusSwitchingProtocols, handshake(t, shared, good, device, nil), "what the others are made of is good")
}

// These need an issuer that signs what it is asked to.
func TestTokensThatAreNotForThisAPI(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		query url.Values
		want  int
	}{
		"expired":           {url.Values{"ttl": {"-1h"}}, 401},
		"another audience":  {url.Values{"aud": {"https://elsewhere.example"}}, 403},
		"another issuer":    {url.Values{"iss": {"https://elsewhere.example/"}}, 403},
		"an empty audience": {url.Values{"aud": {""}}, 403},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			token := mustToken(t, tt.query)
			claims := claimsOf(t, token)
			expires, err := claims.GetExpirationTime()
			require.NoError(t, err)
			issuer, _ := claims.GetIssuer()
			audience, _ := claims.GetAudience()
			if q := tt.query; q.Has("ttl") && expires.After(time.Now()) || q.Has("iss") && issuer != q.Get("iss") || q.Has("aud") && audience[0] != q.Get("aud") {
				t.Skip("the token service does not make such tokens on request")
			}
			require.Equal(t, tt.want, handshake(t, shared, token, url.Values{"device": {"phone"}}, nil))
		})
	}
}

// handshake tries to connect and returns the HTTP status.
func handshake(t *testing.T, s stack, token string, query url.Values, offers []string) int {
	t.Helper()
	o := &websocket.DialOptions{Subprotocols: offers}
	if token != "" {
		o.HTTPHeader = raw.Bearer(token)
	}
	conn, status, err := raw.Handshake(t.Context(), s.Socket, query, o)
	if err == nil {
		_ = conn.CloseNow()
	}
	require.NotZero(t, status, "%v", err)
	return status
}

func mustToken(t *testing.T, query url.Values) string {
	t.Helper()
	token, err := shared.Token(t.Context(), newUser("alice"), query)
	require.NoError(t, err)
	return token
}

// parsed reads a token without judging it.
func parsed(t *testing.T, token string) *jwt.Token {
	t.Helper()
	p, _, err := jwt.NewParser().ParseUnverified(token, jwt.MapClaims{})
	require.NoError(t, err)
	return p
}

func claimsOf(t *testing.T, token string) jwt.MapClaims {
	t.Helper()
	claims, ok := parsed(t, token).Claims.(jwt.MapClaims)
	require.True(t, ok)
	return claims
}

// tampered is a token for another user with the signature it had before.
func tampered(t *testing.T, token string) string {
	t.Helper()
	claims := claimsOf(t, token)
	claims["sub"] = "someone-else"
	parts := strings.Split(token, ".")
	forged := strings.Split(unsignedOf(t, claims, parsed(t, token).Header), ".")
	return parts[0] + "." + forged[1] + "." + parts[2]
}

func unsigned(t *testing.T, token string) string {
	t.Helper()
	return unsignedOf(t, claimsOf(t, token), parsed(t, token).Header)
}

func unsignedOf(t *testing.T, claims jwt.MapClaims, header map[string]any) string {
	t.Helper()
	return sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, claims, header)
}

func signedByAnother(t *testing.T, token string) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return sign(t, jwt.SigningMethodES256, key, claimsOf(t, token), parsed(t, token).Header)
}

// signedSymmetrically takes an algorithm with which the verifier's key would be a
// secret.
func signedSymmetrically(t *testing.T, token string) string {
	t.Helper()
	return sign(t, jwt.SigningMethodHS256, []byte("public"), claimsOf(t, token), parsed(t, token).Header)
}

// sign makes a token with the claims and the key id of another.
func sign(t *testing.T, method jwt.SigningMethod, key any, claims jwt.MapClaims, header map[string]any) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	token.Header["kid"] = header["kid"]
	signed, err := token.SignedString(key)
	require.NoError(t, err)
	return signed
}
