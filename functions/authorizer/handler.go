package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/golang-jwt/jwt/v5"

	"github.com/inorder-im/inorder/shared/chat"
	"github.com/inorder-im/inorder/shared/env"
	"github.com/inorder-im/inorder/shared/route"
	"github.com/inorder-im/inorder/shared/wire"
)

const (
	// leeway is how far the token issuer's clock may be off.
	leeway = 30 * time.Second

	// maxTokenBytes is what a token may take, before any of it is read. API Gateway
	// lets all headers together have 10,240 bytes.
	maxTokenBytes = 8 * 1024
)

// errUnauthorized makes API Gateway refuse the handshake with 401. The text is
// its own: any other error is a 500 (API Gateway Developer Guide, "Output from
// an API Gateway Lambda authorizer").
var errUnauthorized = errors.New("Unauthorized")

// errCritical refuses a token with a header that says which others have to be
// understood: none of them is here (RFC 7515, section 4.1.11).
var errCritical = errors.New("the token has a crit header")

// config says whose tokens are accepted.
type config struct {
	jwksURL  string
	issuer   string
	audience string
}

func configFromEnv(getenv func(string) string) (config, error) {
	e := env.From(getenv)
	c := config{
		jwksURL:  getenv("JWKS_URL"),
		issuer:   e.Text("JWT_ISSUER", "the iss claim of good tokens"),
		audience: e.Text("JWT_AUDIENCE", "the aud claim of good tokens"),
	}
	if !trustworthy(c.jwksURL) {
		e.Wrong("JWKS_URL", "an https URL, or an http one of a loopback address")
	}
	if err := e.Err(); err != nil {
		return config{}, err
	}
	return c, nil
}

// trustworthy reports whether what is read at a URL is from whom the URL names: who
// can change the keys on their way can make tokens for everybody.
func trustworthy(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.User != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	loopback := u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
	return u.Scheme == "https" || u.Scheme == "http" && loopback
}

type authorizer struct {
	cfg    config
	keys   *keys
	parser *jwt.Parser
	log    *slog.Logger
}

func newAuthorizer(cfg config, log *slog.Logger) *authorizer {
	return &authorizer{
		cfg:  cfg,
		keys: newKeys(cfg.jwksURL, log),
		log:  log,
		parser: jwt.NewParser(
			// Public keys only: "none" has no signature, and with HS256 a public
			// key would pass for the secret.
			jwt.WithValidMethods([]string{
				"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
			}),
			jwt.WithExpirationRequired(),
			jwt.WithIssuedAt(),
			jwt.WithLeeway(leeway),
		),
	}
}

// handle decides on one handshake: 401 for a token that proves nothing, 403 for
// one that was made by or for somebody else, 500 if the keys cannot be read.
func (a *authorizer) handle(ctx context.Context, event events.APIGatewayCustomAuthorizerRequestTypeRequest) (events.APIGatewayCustomAuthorizerResponse, error) {
	requestID := event.RequestContext.RequestID
	refuse := func(why reason) (events.APIGatewayCustomAuthorizerResponse, error) {
		a.record(ctx, slog.LevelWarn, "refused", requestID, why)
		return events.APIGatewayCustomAuthorizerResponse{}, errUnauthorized
	}
	device := event.QueryStringParameters["device"]
	if device == "" {
		return refuse(noDevice)
	}
	token, ok := tokenOf(event)
	if !ok {
		return refuse(notOneToken)
	}
	if len(token) > maxTokenBytes {
		return refuse(tooLong)
	}
	// Claims as a map: names are compared as they are, while a struct would take
	// "Sub" for "sub".
	claims := jwt.MapClaims{}
	if err := a.parse(ctx, token, claims); err != nil {
		if errors.Is(err, errNoKeys) {
			a.record(ctx, slog.LevelError, "cannot decide", requestID, noKeys)
			return events.APIGatewayCustomAuthorizerResponse{}, errNoKeys
		}
		return refuse(reasonOf(err))
	}
	if err := a.foreign(claims); err != nil {
		// The issuer signed what this quotes.
		a.record(ctx, slog.LevelWarn, "denied", requestID, foreign, slog.Any("err", err))
		return policy("Deny", "denied", event.MethodArn), nil
	}
	userID, err := claims.GetSubject()
	if err == nil {
		err = chat.ValidateUserID("sub", userID)
	}
	if err != nil {
		return refuse(badSubject)
	}
	expires, err := claims.GetExpirationTime()
	if err != nil {
		return refuse(badClaims)
	}
	allow := policy("Allow", userID, event.MethodArn)
	allow.Context = map[string]any{
		// As it came: connect tells the client what is wrong with it, which an
		// authorizer cannot. A long one stays too long without filling the 8 KB
		// that a context may have.
		"device": device[:min(len(device), chat.MaxDeviceIDBytes+1)],
		// Until when the connection may be used. Without the leeway, a token that is
		// accepted within it would open connections that are closed at once.
		"exp": strconv.FormatInt(expires.Add(leeway).Unix(), 10),
	}
	return allow, nil
}

// parse checks a token's signature and times, and fills the claims. A token that
// names no key, and fits none there is, may be of a new one.
func (a *authorizer) parse(ctx context.Context, token string, claims jwt.MapClaims) error {
	parsed, err := a.parser.ParseWithClaims(token, claims, a.keyfunc(ctx))
	unfit := errors.Is(err, jwt.ErrTokenSignatureInvalid) || errors.Is(err, jwt.ErrTokenUnverifiable)
	if !unfit || errors.Is(err, errNoKeys) || errors.Is(err, errCritical) || parsed == nil {
		return err
	}
	if _, named := parsed.Header["kid"]; named || !a.keys.renew(ctx) {
		return err
	}
	clear(claims)
	_, err = a.parser.ParseWithClaims(token, claims, a.keyfunc(ctx))
	return err
}

// keyfunc finds the keys for a token, unless the token asks for more than that.
func (a *authorizer) keyfunc(ctx context.Context) jwt.Keyfunc {
	find := a.keys.keyfunc(ctx)
	return func(token *jwt.Token) (any, error) {
		if _, critical := token.Header["crit"]; critical {
			return nil, errCritical
		}
		return find(token)
	}
}

// foreign says why a valid token is not one for this API.
func (a *authorizer) foreign(claims jwt.MapClaims) error {
	issuer, err := claims.GetIssuer()
	if err != nil {
		return err
	}
	if issuer != a.cfg.issuer {
		return fmt.Errorf("the token is of issuer %q, not %q", issuer, a.cfg.issuer)
	}
	audience, err := claims.GetAudience()
	if err != nil {
		return err
	}
	if !slices.Contains(audience, a.cfg.audience) {
		return fmt.Errorf("the token is for audience %q, not %q", audience, a.cfg.audience)
	}
	return nil
}

// tokenOf finds the token in the Authorization header or, from a browser, which
// cannot set that, in the subprotocols. It never looks into the query, which
// ends up in logs.
func tokenOf(event events.APIGatewayCustomAuthorizerRequestTypeRequest) (string, bool) {
	var tokens []string
	for _, value := range route.HeaderValues(event.Headers, event.MultiValueHeaders, "Authorization") {
		scheme, token, _ := strings.Cut(value, " ")
		if token = strings.TrimSpace(token); strings.EqualFold(scheme, "Bearer") && token != "" {
			tokens = append(tokens, token)
		}
	}
	if len(tokens) == 0 {
		offered := route.Subprotocols(event.Headers, event.MultiValueHeaders)
		for _, name := range offered {
			token, ok := strings.CutPrefix(name, wire.BearerPrefix)
			if ok && token != "" && slices.Contains(offered, wire.Subprotocol) {
				tokens = append(tokens, token)
			}
		}
	}
	if len(tokens) != 1 { // of several, which one counts is anybody's guess
		return "", false
	}
	return tokens[0], true
}

func policy(effect, principalID, methodARN string) events.APIGatewayCustomAuthorizerResponse {
	return events.APIGatewayCustomAuthorizerResponse{
		PrincipalID: principalID,
		PolicyDocument: events.APIGatewayCustomAuthorizerPolicy{
			Version: "2012-10-17",
			Statement: []events.IAMPolicyStatement{{
				Action: []string{"execute-api:Invoke"}, Effect: effect, Resource: []string{methodARN},
			}},
		},
	}
}
