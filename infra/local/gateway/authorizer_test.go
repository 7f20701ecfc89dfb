package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/gateway"
	"github.com/inorder-im/inorder/infra/local/template"
)

func startAuthorized(t *testing.T, limits gateway.Limits, fn function, sources ...template.IdentitySource) *api {
	t.Helper()
	api := app(template.Route{Key: "$connect", FunctionID: "connect", Authorize: true})
	api.Authorizer = &template.Authorizer{FunctionID: "authorizer", IdentitySources: sources}
	return start(t, gateway.Config{API: api, Limits: limits}, lifecycleFunctions(map[string]function{"authorizer": fn}))
}

func TestIdentitySourcesMustBePresent(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		sources []template.IdentitySource
		query   string
		header  http.Header
		missing string // the source that refuses the handshake
	}{
		"query present":              {sources: []template.IdentitySource{{From: template.FromQuery, Name: "device"}}, query: "?device=phone"},
		"query missing":              {sources: []template.IdentitySource{{From: template.FromQuery, Name: "device"}}, missing: "route.request.querystring.device"},
		"query empty":                {sources: []template.IdentitySource{{From: template.FromQuery, Name: "device"}}, query: "?device=", missing: "route.request.querystring.device"},
		"query names have a case":    {sources: []template.IdentitySource{{From: template.FromQuery, Name: "device"}}, query: "?Device=phone", missing: "route.request.querystring.device"},
		"header present":             {sources: []template.IdentitySource{{From: template.FromHeader, Name: "Auth"}}, header: http.Header{"Auth": {"x"}}},
		"header names have no case":  {sources: []template.IdentitySource{{From: template.FromHeader, Name: "aUTH"}}, header: http.Header{"Auth": {"x"}}},
		"header missing":             {sources: []template.IdentitySource{{From: template.FromHeader, Name: "Auth"}}, missing: "route.request.header.Auth"},
		"header empty":               {sources: []template.IdentitySource{{From: template.FromHeader, Name: "Auth"}}, header: http.Header{"Auth": {""}}, missing: "route.request.header.Auth"},
		"host header":                {sources: []template.IdentitySource{{From: template.FromHeader, Name: "Host"}}},
		"no source at all":           {},
		"one of two missing":         {sources: []template.IdentitySource{{From: template.FromHeader, Name: "Host"}, {From: template.FromHeader, Name: "Auth"}}, missing: "route.request.header.Auth"},
		"both of two present":        {sources: []template.IdentitySource{{From: template.FromQuery, Name: "device"}, {From: template.FromHeader, Name: "Auth"}}, query: "?device=a", header: http.Header{"Auth": {"x"}}},
		"missing among many queries": {sources: []template.IdentitySource{{From: template.FromQuery, Name: "device"}}, query: "?a=1&b=2", missing: "route.request.querystring.device"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := startAuthorized(t, gateway.Limits{}, returns(allowing(`{}`)), tt.sources...)
			opts := &websocket.DialOptions{HTTPHeader: tt.header}
			if tt.missing == "" {
				conn, _, err := a.tryDial(t, tt.query, opts)
				require.NoError(t, err)
				require.NoError(t, conn.CloseNow())
				require.Len(t, a.of("authorizer"), 1)
				return
			}
			status, body := a.refusal(t, tt.query, opts)
			require.Equal(t, http.StatusUnauthorized, status)
			require.Equal(t, "Unauthorized", body["message"])
			require.Empty(t, a.of("authorizer"), "the function was invoked")
			require.Empty(t, a.of("connect"))
			require.Contains(t, a.log.String(), "identity source "+tt.missing+" is missing or empty")
		})
	}
}

func TestAuthorizerVerdict(t *testing.T) {
	t.Parallel()
	const arn = "arn:aws:execute-api:us-east-1:000000000000:api123/dev/$connect"
	policy := func(statements string) function {
		return returns(`{"principalId":"ann","policyDocument":{"Version":"2012-10-17","Statement":` + statements + `}}`)
	}
	allow := func(action, resource string) string {
		return fmt.Sprintf(`{"Effect":"Allow","Action":%s,"Resource":%s}`, action, resource)
	}
	deny := `{"Effect":"Deny","Action":"*","Resource":"*"}`
	invoke := `"execute-api:Invoke"`
	tests := map[string]struct {
		function function
		want     int // 101 if it opens
	}{
		"exact resource":              {policy("[" + allow(invoke, `"`+arn+`"`) + "]"), 101},
		"statement without a list":    {policy(allow(invoke, `"`+arn+`"`)), 101},
		"lists":                       {policy("[" + allow(`["x:y",`+invoke+`]`, `["arn:aws:s3:::b","`+arn+`"]`) + "]"), 101},
		"star resource":               {policy("[" + allow(invoke, `"*"`) + "]"), 101},
		"star at the end":             {policy("[" + allow(invoke, `"arn:aws:execute-api:us-east-1:000000000000:api123/*"`) + "]"), 101},
		"stars in the middle":         {policy("[" + allow(invoke, `"arn:aws:execute-api:*:*:api123/*/$connect"`) + "]"), 101},
		"star stands for nothing too": {policy("[" + allow(invoke, `"`+arn+`*"`) + "]"), 101},
		"question mark":               {policy("[" + allow(invoke, `"arn:aws:execute-api:us-east-1:000000000000:api12?/dev/$connect"`) + "]"), 101},
		"action wildcard":             {policy("[" + allow(`"execute-api:*"`, `"*"`) + "]"), 101},
		"action in another case":      {policy("[" + allow(`"Execute-API:invoke"`, `"*"`) + "]"), 101},
		"empty condition":             {policy(`[{"Effect":"Allow","Action":"*","Resource":"*","Condition":{}}]`), 101},
		"deny of something else":      {policy("[" + allow(invoke, `"*"`) + `,{"Effect":"Deny","Action":"*","Resource":"arn:aws:s3:::b"}]`), 101},

		"deny":                       {policy("[" + deny + "]"), 403},
		"deny after allow":           {policy("[" + allow(invoke, `"*"`) + "," + deny + "]"), 403},
		"deny before allow":          {policy("[" + deny + "," + allow(invoke, `"*"`) + "]"), 403},
		"other api":                  {policy("[" + allow(invoke, `"arn:aws:execute-api:us-east-1:000000000000:other/*"`) + "]"), 403},
		"other stage":                {policy("[" + allow(invoke, `"arn:aws:execute-api:us-east-1:000000000000:api123/prod/*"`) + "]"), 403},
		"resource has a case":        {policy("[" + allow(invoke, `"`+strings.ToUpper(arn)+`"`) + "]"), 403},
		"resource is only a prefix":  {policy("[" + allow(invoke, `"arn:aws:execute-api:us-east-1:000000000000:api123"`) + "]"), 403},
		"question mark is one":       {policy("[" + allow(invoke, `"arn:aws:execute-api:us-east-1:000000000000:api?/dev/$connect"`) + "]"), 403},
		"other action":               {policy("[" + allow(`"execute-api:ManageConnections"`, `"*"`) + "]"), 403},
		"error Unauthorized":         {raises("errorString", "Unauthorized"), 401},
		"another error":              {raises("errorString", "no database"), 500},
		"error unauthorized (small)": {raises("errorString", "unauthorized"), 500},
		"cannot be run": {func(context.Context, []byte) (string, string, error) {
			return "", "", errors.New("unknown function")
		}, 500},
		"result is null":             {returns(`null`), 500},
		"result is no JSON":          {returns(`yes`), 500},
		"no principal":               {returns(`{"policyDocument":{"Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}}`), 500},
		"no policy":                  {returns(`{"principalId":"ann"}`), 500},
		"no statement":               {policy("[]"), 500},
		"effect is no effect":        {policy(`[{"Effect":"allow","Action":"*","Resource":"*"}]`), 500},
		"condition is not evaluated": {policy(`[{"Effect":"Allow","Action":"*","Resource":"*","Condition":{"Bool":{"x":"true"}}}]`), 500},
		"NotAction is not evaluated": {policy(`[{"Effect":"Allow","NotAction":"x","Resource":"*"}]`), 500},
		"list in the context":        {returns(allowing(`{"roles":["a"]}`)), 500},
		"null in the context":        {returns(allowing(`{"user":null}`)), 500},
		"result just within 8 KB":    {returns(allowingBytes(8 << 10)), 101},
		"result over 8 KB":           {returns(allowingBytes(8<<10 + 1)), 500},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := startAuthorized(t, gateway.Limits{}, tt.function)
			if tt.want == 101 {
				a.dial(t, nil)
				require.Len(t, a.of("connect"), 1)
				return
			}
			status, body := a.refusal(t, "", nil)
			require.Equal(t, tt.want, status)
			require.Equal(t, map[int]string{401: "Unauthorized", 403: "Forbidden", 500: "Internal server error"}[status], body["message"])
			require.Empty(t, a.of("connect"), "$connect ran for a refused client")
			require.Contains(t, a.log.String(), "authorizer")
		})
	}
}

// allowingBytes is an allowing result of exactly n bytes.
func allowingBytes(n int) string {
	rest := n - len(allowing(`{"pad":""}`))
	return allowing(`{"pad":"` + strings.Repeat("x", rest) + `"}`)
}

func TestAuthorizerContextBecomesStrings(t *testing.T) {
	t.Parallel()
	a := startAuthorized(t, gateway.Limits{}, returns(allowing(`{"s":"text","n":7,"f":1.50,"big":12345678901234567890,"b":true,"principalId":"mallory"}`)))
	a.dial(t, nil)
	authorizer, isObject := a.await(t, "connect", 1).context(t)["authorizer"].(map[string]any)
	require.True(t, isObject)
	delete(authorizer, "integrationLatency")
	require.Equal(t, map[string]any{"s": "text", "n": "7", "f": "1.50", "big": "12345678901234567890", "b": "true", "principalId": "ann"}, authorizer)
}

func TestAuthorizerRunsForEveryHandshake(t *testing.T) {
	t.Parallel()
	a := startAuthorized(t, gateway.Limits{}, returns(allowing(`{}`)))
	a.dial(t, nil).send("x")
	a.dial(t, nil).send("x")
	a.await(t, "default", 2)
	require.Len(t, a.of("authorizer"), 2, "once for each handshake, for no message, and never cached")
}

func TestAuthorizerThatDoesNotAnswerIsAnError(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	a := startAuthorized(t, gateway.Limits{AuthorizerTimeout: 50 * time.Millisecond}, func(context.Context, []byte) (string, string, error) {
		<-release
		return allowing(`{}`), "", nil
	})
	defer close(release)
	status, _ := a.refusal(t, "", nil)
	require.Equal(t, http.StatusInternalServerError, status)
}

func TestRefusalsDoNotLogTokens(t *testing.T) {
	t.Parallel()
	a := startAuthorized(t, gateway.Limits{}, raises("errorString", "bad token my-secret"))
	a.refusal(t, "?token=my-secret", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer my-secret"}}})
	require.Equal(t, 1, strings.Count(a.log.String(), "\n"), "one line for each refused handshake")
	require.NotContains(t, a.log.String(), "my-secret")
}
