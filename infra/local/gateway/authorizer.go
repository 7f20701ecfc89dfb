package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/inorder-im/inorder/infra/local/template"
)

// maxAuthorizerResult is the size of what an authorizer may return, in bytes (API
// Gateway, "Quotas for configuring and running a WebSocket API").
const maxAuthorizerResult = 8 << 10

// value finds an identity source in a $connect event. It is "" when missing.
func value(s template.IdentitySource, connect event) string {
	if s.From == template.FromQuery {
		return connect.QueryStringParameters[s.Name]
	}
	for name, value := range connect.Headers {
		if strings.EqualFold(name, s.Name) {
			return value
		}
	}
	return ""
}

// refusal is why a handshake does not become a connection: what the client gets, and
// the reason for the log.
type refusal struct {
	status  int
	message string
	reason  string
}

func (g *Gateway) connectARN() string {
	return fmt.Sprintf("arn:aws:execute-api:%s:%s:%s/%s/%s", g.cfg.Region, g.cfg.AccountID, g.cfg.API.ID, g.cfg.API.Stage, routeConnect)
}

// authorize runs the authorizer for a handshake and returns what every event of the
// connection will carry as requestContext.authorizer. Nothing is cached: API Gateway
// does not cache for WebSocket APIs.
func (g *Gateway) authorize(connect event) (map[string]any, *refusal) {
	for _, source := range g.cfg.API.Authorizer.IdentitySources {
		if value(source, connect) == "" {
			return nil, &refusal{http.StatusUnauthorized, "Unauthorized", "identity source " + source.String() + " is missing or empty"}
		}
	}
	start := time.Now()
	arn := g.connectARN()
	result, err := g.call(g.cfg.API.Authorizer.FunctionID, newAuthorizerEvent(arn, connect), g.limits.AuthorizerTimeout)
	latency := time.Since(start).Milliseconds()
	if failure := (*functionError)(nil); errors.As(err, &failure) && failure.Message == "Unauthorized" {
		return nil, &refusal{http.StatusUnauthorized, "Unauthorized", "authorizer " + g.cfg.API.Authorizer.FunctionID + ` returned the error "Unauthorized"`}
	}
	if err != nil {
		return nil, g.brokenAuthorizer(err)
	}
	verdict, err := parseVerdict(result)
	if err != nil {
		return nil, g.brokenAuthorizer(err)
	}
	allowed, err := verdict.policy.allows(invokeAction, arn)
	if err != nil {
		return nil, g.brokenAuthorizer(err)
	}
	if !allowed {
		return nil, &refusal{http.StatusForbidden, "Forbidden", "the authorizer's policy does not allow " + invokeAction + " on " + arn}
	}
	verdict.context["principalId"] = verdict.principalID
	verdict.context["integrationLatency"] = latency // real events have it, in milliseconds
	return verdict.context, nil
}

func (g *Gateway) brokenAuthorizer(err error) *refusal {
	return &refusal{http.StatusInternalServerError, "Internal server error", fmt.Sprintf("authorizer %s: %v", g.cfg.API.Authorizer.FunctionID, err)}
}

// verdict is what an authorizer returned.
type verdict struct {
	principalID string
	policy      policy
	context     map[string]any // strings only, until authorize adds its own
}

func parseVerdict(result []byte) (verdict, error) {
	if len(result) > maxAuthorizerResult {
		return verdict{}, fmt.Errorf("it returned %d bytes and the limit is %d", len(result), maxAuthorizerResult)
	}
	var raw struct {
		PrincipalID    string         `json:"principalId"`
		PolicyDocument *policy        `json:"policyDocument"`
		Context        map[string]any `json:"context"`
	}
	decoder := json.NewDecoder(bytes.NewReader(result))
	decoder.UseNumber() // a number becomes the string it was written as
	if err := decoder.Decode(&raw); err != nil {
		return verdict{}, fmt.Errorf("its result cannot be read: %w", err)
	}
	if raw.PrincipalID == "" || raw.PolicyDocument == nil {
		return verdict{}, errors.New("its result needs a principalId and a policyDocument")
	}
	context := make(map[string]any, len(raw.Context)+2)
	for key, value := range raw.Context {
		switch value.(type) {
		case string, bool, json.Number:
			context[key] = fmt.Sprint(value)
		default:
			return verdict{}, fmt.Errorf("context value %q is no string, number or boolean", key)
		}
	}
	return verdict{raw.PrincipalID, *raw.PolicyDocument, context}, nil
}
