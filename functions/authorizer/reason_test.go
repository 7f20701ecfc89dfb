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
	noDeviceAtAll := signed("k1", nil)
	noDeviceAtAll.QueryStringParameters = nil
	for want, event := range map[reason]events.APIGatewayCustomAuthorizerRequestTypeRequest{
		noDevice:     noDeviceAtAll,
		notOneToken:  withHeaders(t, map[string][]string{}),
		tooLong:      signed("k1", map[string]any{"secret": strings.Repeat("secret", 2000)}),
		malformed:    bearing(t, "secret"),
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
