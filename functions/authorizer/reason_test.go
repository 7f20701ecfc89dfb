package main

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/golang-jwt/jwt/v5"
	"github.com/stretchr/testify/require"
)

// The log says why in a word of ours; what came from a client is not in it.
func TestTheLogSaysWhy(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	key, other := ecKey(t), ecKey(t)
	i.publish("k1", key.Public())
	signed := func(kid string, changes map[string]any) events.APIGatewayCustomAuthorizerRequestTypeRequest {
		return bearing(t, sign(t, jwt.SigningMethodES256, kid, key, claims(changes)))
	}
	withCrit := jwt.NewWithClaims(jwt.SigningMethodES256, claims(nil))
	withCrit.Header["crit"], withCrit.Header["secret"] = []string{"secret"}, true
	critToken, err := withCrit.SignedString(key)
	require.NoError(t, err)
	noDeviceAtAll := signed("k1", nil)
	noDeviceAtAll.QueryStringParameters = nil
	for want, event := range map[reason]events.APIGatewayCustomAuthorizerRequestTypeRequest{
		noDevice:     noDeviceAtAll,
		notOneToken:  withHeaders(t, map[string][]string{}),
		tooLong:      signed("k1", map[string]any{"secret": strings.Repeat("secret", 2000)}),
		malformed:    bearing(t, "secret"),
		critical:     bearing(t, critToken),
		unknownKey:   signed("secret", nil),
		badSignature: bearing(t, sign(t, jwt.SigningMethodES256, "k1", other, claims(nil))),
		expired:      signed("k1", map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}),
		notYetValid:  signed("k1", map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}),
		badClaims:    signed("k1", map[string]any{"exp": nil, "secret": "secret"}),
		badSubject:   signed("k1", map[string]any{"sub": "secret\n"}),
		foreign:      signed("k1", map[string]any{"aud": "elsewhere"}),
	} {
		t.Run(string(want), func(t *testing.T) {
			t.Parallel()
			a, _, log := newTestAuthorizer(t, i)
			_, _ = a.handle(t.Context(), event)
			require.Contains(t, log.String(), `"reason":"`+string(want)+`","AuthorizerRefusals":1`)
			require.NotContains(t, log.String(), "secret")
		})
	}
}

func TestATokenThatAsksForMoreIsRefused(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	k := ecKey(t)
	i.publish("k1", k.Public())
	a, clock, log := newTestAuthorizer(t, i)
	requireAllowed(t, a, bearing(t, sign(t, jwt.SigningMethodES256, "k1", k, claims(nil))))
	clock.now = clock.now.Add(keysMinAge) // so that nothing but the refusal keeps the keys from being read
	for name, crit := range map[string]any{
		"of another extension": []string{"http://example.com/UNDEFINED"},
		"of a known one":       []string{"b64"},
		"of a usual header":    []string{"kid"},
		"of nothing":           []string{},
		"null":                 nil,
		"a text":               "b64",
	} {
		for _, kid := range []string{"k1", ""} {
			token := jwt.NewWithClaims(jwt.SigningMethodES256, claims(nil))
			token.Header["crit"], token.Header["b64"] = crit, true
			if kid != "" {
				token.Header["kid"] = kid
			}
			signed, err := token.SignedString(k)
			require.NoError(t, err)
			_, err = a.handle(t.Context(), bearing(t, signed))
			require.EqualError(t, err, "Unauthorized", "%s, kid %q", name, kid)
		}
	}
	require.Equal(t, 12, strings.Count(log.String(), `"reason":"critical header"`))
	require.Equal(t, 1, i.readCount())
}
