package template

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/inorder-im/inorder/infra/local/selection"
)

// Limits of an integration: "WebSocket API quotas" in the API Gateway developer guide.
const (
	minIntegrationTimeoutMS = 50
	maxIntegrationTimeoutMS = 29000
)

func (e *evaluation) webSocketAPI(r *resource) *WebSocketAPI {
	o := e.properties(r)
	api := &WebSocketAPI{
		LogicalID:      r.id,
		ID:             e.apiID(r),
		Stage:          e.stage(o),
		RouteSelection: e.selection(o),
		Line:           e.line(r),
	}
	api.Authorizer = e.authorizer(o)
	n := o.need("Routes")
	if routes, ok := e.object(n); ok {
		if len(routes.node.Content) == 0 {
			e.fail(n, "an API needs at least one route")
		}
		e.routes(api, routes)
	}
	e.throttles(api, o)
	return api
}

// The limits of an account, which hold where a setting names only the other one:
// "Amazon API Gateway quotas" in the API Gateway developer guide.
const (
	accountPerSecond = 10_000
	accountBurst     = 5_000
)

var routeSettings = set(`ThrottlingBurstLimit ThrottlingRateLimit

	DataTraceEnabled DetailedMetricsEnabled LoggingLevel`)

// throttles reads DefaultRouteSettings, which holds for every route, and
// RouteSettings, which goes before it.
func (e *evaluation) throttles(api *WebSocketAPI, o object) {
	var common *Throttle
	if settings, ok := o.object("DefaultRouteSettings"); ok {
		common = throttle(settings, "DefaultRouteSettings", nil)
	}
	own := map[string]*Throttle{}
	if routes, ok := o.object("RouteSettings"); ok {
		for key, n := range routes.all() {
			if !slices.ContainsFunc(api.Routes, func(r Route) bool { return r.Key == key }) {
				e.fail(n, "there is no route %s", key)
			}
			if settings, ok := e.object(n); ok {
				own[key] = throttle(settings, "a route's settings", common)
			}
		}
	}
	for i := range api.Routes {
		api.Routes[i].Throttle = common
		if t, ok := own[api.Routes[i].Key]; ok {
			api.Routes[i].Throttle = t
		}
	}
}

func throttle(o object, what string, otherwise *Throttle) *Throttle {
	o.only(routeSettings, what)
	if child(o.node, "ThrottlingRateLimit") == nil && child(o.node, "ThrottlingBurstLimit") == nil {
		return otherwise
	}
	t := Throttle{PerSecond: accountPerSecond, Burst: accountBurst}
	if otherwise != nil {
		t = *otherwise
	}
	t.PerSecond = o.positive("ThrottlingRateLimit", t.PerSecond)
	t.Burst = o.int("ThrottlingBurstLimit", t.Burst, 1, math.MaxInt32)
	return &t
}

// stageName is what API Gateway takes, and what is one segment of a path.
var stageName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

func (e *evaluation) stage(o object) string {
	n := o.get("StageName")
	s := cmp.Or(e.text(n), defaultStage)
	if n != broken && !stageName.MatchString(s) {
		e.fail(n, "a WebSocket API's stage has letters, digits, - and _, not %q", s)
	}
	return s
}

func (e *evaluation) selection(o object) selection.Path {
	n := o.need("RouteSelectionExpression")
	s, ok := e.filled(n)
	if !ok {
		return nil
	}
	path, err := selection.Parse(s)
	if err != nil {
		e.fail(n, "%v", err)
	}
	return path
}

func (e *evaluation) identitySource(n *yaml.Node) (s IdentitySource) {
	text, ok := e.filled(n)
	if !ok {
		return s
	}
	kinds := []string{FromHeader, FromQuery}
	for _, kind := range kinds {
		if name, ok := strings.CutPrefix(text, kind); ok && name != "" {
			return IdentitySource{kind, name}
		}
	}
	e.fail(n, "%q is no identity source: want %sX", text, strings.Join(kinds, "X, "))
	return s
}

func (e *evaluation) authorizer(o object) *Authorizer {
	auth, ok := o.object("Auth")
	if !ok {
		return nil
	}
	auth.only(set("AuthArn AuthType IdentitySource InvokeRole Name"), "Auth")
	switch typ := auth.choice("AuthType", "CUSTOM", "NONE", "AWS_IAM"); typ {
	case "AWS_IAM":
		e.fail(auth.get("AuthType"), "the local cloud cannot check AWS_IAM signatures; use CUSTOM or NONE")
		return nil
	case "CUSTOM":
	default:
		return nil
	}
	a := &Authorizer{FunctionID: e.functionOfARN(auth.need("AuthArn"))}
	for _, n := range auth.items("IdentitySource") {
		a.IdentitySources = append(a.IdentitySources, e.identitySource(n))
	}
	if routes, ok := o.object("Routes"); ok && child(routes.node, "$connect") == nil {
		e.fail(auth.node, "the authorizer runs on $connect, and there is no such route")
	}
	return a
}

var routeProperties = set(`ApiKeyRequired FunctionArn IntegrationTimeout RouteResponseSelectionExpression
	OperationName`)

var alphanumeric = regexp.MustCompile(`^(\$connect|\$disconnect|\$default|[A-Za-z0-9]+)$`)

func (e *evaluation) routes(api *WebSocketAPI, routes object) {
	generatedBy := map[string]string{}
	for key, n := range routes.all() {
		o, ok := e.object(n)
		if !ok {
			continue
		}
		o.only(routeProperties, "a route")
		if !alphanumeric.MatchString(key) {
			e.fail(n, "SAM takes letters and digits in a route key, or $connect, $disconnect, $default")
		}
		if other, taken := generatedBy[routeName(key)]; taken {
			e.fail(n, "SAM gives the routes %s and %s the same logical id", other, key)
		}
		generatedBy[routeName(key)] = key
		if o.bool("ApiKeyRequired", false) {
			e.fail(o.get("ApiKeyRequired"), "the local cloud has no API keys")
		}
		if n := o.get("RouteResponseSelectionExpression"); n != nil && e.text(n) != "$default" {
			e.fail(n, "API Gateway takes $default only")
		}
		timeout := o.int("IntegrationTimeout", maxIntegrationTimeoutMS, minIntegrationTimeoutMS, maxIntegrationTimeoutMS)
		api.Routes = append(api.Routes, Route{
			Key:        key,
			FunctionID: e.functionOfARN(o.need("FunctionArn")),
			Timeout:    time.Duration(timeout) * time.Millisecond,
			Authorize:  key == "$connect" && api.Authorizer != nil,
			Line:       o.line(),
		})
	}
	slices.SortFunc(api.Routes, func(a, b Route) int { return cmp.Compare(a.Key, b.Key) })
}

// routeResponse marks the route that an AWS::ApiGatewayV2::RouteResponse belongs to.
func (e *evaluation) routeResponse(api *WebSocketAPI, r *resource) {
	o := e.properties(r)
	apiID, routeID, key := o.need("ApiId"), o.need("RouteId"), o.need("RouteResponseKey")
	if s, ok := e.filled(key); ok && s != "$default" {
		e.fail(key, "API Gateway takes $default only")
	}
	if api == nil {
		e.fail(r.node, "there is no WebSocket API")
		return
	}
	if s, ok := e.filled(apiID); ok && s != api.ID {
		e.fail(apiID, "%q is not the API %s", s, api.LogicalID)
	}
	id, ok := e.filled(routeID)
	if !ok {
		return
	}
	for i := range api.Routes {
		route := &api.Routes[i]
		if shortID(e.StackName, api.LogicalID+routeName(route.Key)+"Route") != id {
			continue
		}
		if e.responseSelection(api, *route) != nil {
			route.Reply = true
		} else {
			e.fail(r.node, "API Gateway sends no reply: the route %s needs RouteResponseSelectionExpression: $default", route.Key)
		}
		return
	}
	e.fail(routeID, "%q is no route of %s: want !Ref %s<Key>Route", id, api.LogicalID, api.LogicalID)
}

func (e *evaluation) responseSelection(api *WebSocketAPI, route Route) *yaml.Node {
	routes, _ := object{e, e.resources[api.LogicalID].props}.object("Routes")
	o, ok := routes.object(route.Key)
	if !ok {
		return nil
	}
	return o.get("RouteResponseSelectionExpression")
}

// noteUnusedResponses notes the routes that select a response and have none, which
// SAM does not make.
func (e *evaluation) noteUnusedResponses(api *WebSocketAPI) {
	if api == nil {
		return
	}
	for _, route := range api.Routes {
		if n := e.responseSelection(api, route); n != nil && !route.Reply {
			e.note(n, "without an AWS::ApiGatewayV2::RouteResponse the client gets no reply, here and in the cloud")
		}
	}
}
