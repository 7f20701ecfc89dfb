package template

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// resource is one resource of the template, or one that SAM generates from it.
type resource struct {
	id, typ   string
	node      *yaml.Node // the place to report
	props     *yaml.Node // with Globals merged in; nil if there are none
	kind      kind
	condition string // the name of the condition, "" if none
	generated bool
	api       *resource // for what SAM generates from a WebSocket API

	// What the resource needs first: by name, and whatever these nodes refer to.
	needs     []string
	needNodes []*yaml.Node
}

var (
	sections = set(`AWSTemplateFormatVersion Transform Description Metadata Parameters Rules
		Conditions Globals Resources Outputs`)
	resourceAttributes = set(`Type Properties Condition DependsOn Metadata IgnoreGlobals
		Connectors CreationPolicy DeletionPolicy UpdatePolicy UpdateReplacePolicy`)
)

// samTransform is what a template declares to have its AWS::Serverless types expanded.
const samTransform = "AWS::Serverless-2016-10-31"

// readResources registers every resource, so that names can be looked up.
func (e *evaluation) readResources() {
	section := e.section("Resources")
	if section == nil {
		e.report(place{path: "Resources"}, "a template needs resources")
		return
	}
	e.checkTransform()
	e.checkGlobals()
	for key, n := range entries(section) {
		if n.Kind != yaml.MappingNode {
			e.fail(n, "want a mapping, not %s", describe(n))
			continue
		}
		e.readResource(key, n)
	}
	for _, id := range slices.Clone(e.order) {
		switch r := e.resources[id]; r.typ {
		case typeFunction:
			e.generateForFunction(r)
		case typeWebSocketAPI:
			e.generateForAPI(r)
		}
	}
}

func (e *evaluation) readResource(key, n *yaml.Node) {
	o := object{e, n}
	o.only(resourceAttributes, "a resource")
	r := &resource{id: key.Value, node: n}
	if c := child(n, "Condition"); c != nil {
		r.condition = e.conditionName(c)
	}
	e.resources[r.id] = r
	e.order = append(e.order, r.id)
	typ := child(n, "Type")
	if typ == nil {
		e.fail(n, "has no Type")
		return
	}
	r.typ = e.text(typ)
	var known bool
	if r.kind, known = kinds[r.typ]; !known {
		e.fail(typ, "the local cloud cannot run a resource of type %s, nor does it know it to have no effect there", r.typ)
	}
	props := child(n, "Properties")
	if props != nil && props.Kind != yaml.MappingNode {
		e.fail(props, "want a mapping, not %s", describe(props))
		props = nil
	}
	if r.kind.properties != nil {
		object{e, props}.only(r.kind.properties, r.typ)
	}
	r.props = e.withGlobals(r, props)
	for _, d := range dependsOn(n) {
		r.needs = append(r.needs, d.Value)
	}
	if r.props != nil {
		r.needNodes = append(r.needNodes, r.props)
	}
}

func dependsOn(n *yaml.Node) []*yaml.Node {
	switch d := child(n, "DependsOn"); {
	case d == nil:
		return nil
	case d.Kind == yaml.SequenceNode:
		return d.Content
	default:
		return []*yaml.Node{d}
	}
}

func (e *evaluation) checkTransform() {
	n := child(e.root, "Transform")
	list := []*yaml.Node{n}
	if n != nil && n.Kind == yaml.SequenceNode {
		list = n.Content
	}
	for _, t := range list {
		if t != nil && t.Value != samTransform {
			e.fail(t, "the local cloud does not know the transform %s", describe(t))
		}
	}
}

func (e *evaluation) checkGlobals() {
	for key, n := range entries(e.section("Globals")) {
		g, runs := globals[key.Value]
		switch {
		case runs && n.Kind != yaml.MappingNode:
			e.fail(n, "want a mapping, not %s", describe(n))
		case runs:
			object{e, n}.only(g.properties, "Globals."+key.Value)
		case !otherGlobals[key.Value]:
			e.fail(key, "SAM has no Globals for %s", key.Value)
		}
	}
}

// withGlobals merges the Globals for a resource's type into its properties.
func (e *evaluation) withGlobals(r *resource, props *yaml.Node) *yaml.Node {
	var global *yaml.Node
	for key, n := range entries(child(e.root, "Globals")) {
		if g, runs := globals[key.Value]; runs && g.typ == r.typ && n.Kind == yaml.MappingNode {
			global = n
		}
	}
	global = e.withoutIgnored(r, global)
	if global == nil {
		return props
	}
	if props == nil {
		props = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		at := e.places[r.node]
		e.places[props] = place{at.path + ".Properties", at.line}
	}
	return e.merge(global, props)
}

// withoutIgnored leaves out the globals that the resource's IgnoreGlobals names: "*" or
// a list.
func (e *evaluation) withoutIgnored(r *resource, global *yaml.Node) *yaml.Node {
	n := child(r.node, "IgnoreGlobals")
	switch {
	case n == nil || global == nil:
		return global
	case n.Kind == yaml.ScalarNode && n.Value == "*":
		return nil
	case n.Kind != yaml.SequenceNode:
		e.fail(n, `want "*" or a list of properties, not %s`, describe(n))
		return global
	}
	ignored := e.texts(n)
	rest := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	e.places[rest] = e.places[global]
	for k, v := range entries(global) {
		if !slices.Contains(ignored, k.Value) {
			rest.Content = append(rest.Content, k, v)
		}
	}
	return rest
}

// merge merges as SAM does ("Globals section of the AWS SAM template"): mappings key
// by key, else the resource's own value wins. SAM appends lists, but the only list
// that is read here is Architectures, for which SAM makes an exception.
func (e *evaluation) merge(global, local *yaml.Node) *yaml.Node {
	_, _, globalCall := e.call(global)
	_, _, localCall := e.call(local)
	if globalCall || localCall || global.Kind != yaml.MappingNode || local.Kind != yaml.MappingNode {
		return local
	}
	out := *local
	out.Content = nil
	for k, v := range entries(global) {
		if child(local, k.Value) == nil {
			out.Content = append(out.Content, k, v)
		}
	}
	for k, v := range entries(local) {
		if g := child(global, k.Value); g != nil {
			v = e.merge(g, v)
		}
		out.Content = append(out.Content, k, v)
	}
	e.places[&out] = e.places[local]
	return &out
}

// generate registers a resource that SAM makes from r, unless the template has one
// of that name.
func (e *evaluation) generate(from *resource, id, typ string, needs []string, needNodes ...*yaml.Node) {
	if _, taken := e.resources[id]; taken {
		return
	}
	g := &resource{id: id, typ: typ, node: from.node, kind: generated[typ], condition: from.condition, generated: true, needs: needs}
	if from.typ == typeWebSocketAPI {
		g.api = from
	}
	for _, n := range needNodes {
		if n != nil {
			g.needNodes = append(g.needNodes, n)
		}
	}
	e.resources[id] = g
	e.order = append(e.order, id)
}

// generateForFunction makes the role and the event source mappings of a function.
// These, not the function, refer to what its policies and events name.
func (e *evaluation) generateForFunction(r *resource) {
	r.needNodes = without(r.props, `Events Policies AssumeRolePolicyDocument PermissionsBoundary EventInvokeConfig`)
	if child(r.props, "Role") == nil {
		role := r.id + "Role"
		e.generate(r, role, "AWS::IAM::Role", nil, child(r.props, "Policies"),
			child(r.props, "AssumeRolePolicyDocument"), child(r.props, "PermissionsBoundary"))
		r.needs = append(r.needs, role)
	}
	for key, n := range entries(child(r.props, "Events")) {
		typ := child(n, "Type")
		if typ == nil {
			continue
		}
		generates := map[string]string{"Schedule": typeRule, "DynamoDB": typeMapping, "SQS": typeMapping}[typ.Value]
		if generates != "" {
			e.generate(r, r.id+key.Value, generates, []string{r.id}, child(n, "Properties"))
		}
	}
}

// generateForAPI makes the stage, routes, integrations, permissions and authorizer
// of an API, named as the SAM translator names them.
func (e *evaluation) generateForAPI(r *resource) {
	const ofStage = `AccessLogSettings DefaultRouteSettings RouteSettings StageName`
	r.needNodes = without(r.props, ofStage+" Auth Domain Routes")
	ownAPI := []string{r.id}
	e.generate(r, e.stageID(r), typeStage, ownAPI, with(r.props, ofStage)...)
	authorizer := r.id + "ConnectAuthorizer"
	e.generate(r, authorizer, "AWS::ApiGatewayV2::Authorizer", ownAPI, child(r.props, "Auth"))
	e.generate(r, r.id+"AuthorizerPermission", "AWS::Lambda::Permission", ownAPI, child(r.props, "Auth"))
	for key, n := range entries(child(r.props, "Routes")) {
		base := r.id + routeName(key.Value)
		function := child(n, "FunctionArn")
		routeNeeds := []string{r.id, base + "Integration"}
		if key.Value == "$connect" {
			routeNeeds = append(routeNeeds, authorizer)
		}
		e.generate(r, base+"Route", typeRoute, routeNeeds)
		e.generate(r, base+"Integration", "AWS::ApiGatewayV2::Integration", ownAPI, function)
		e.generate(r, base+"Permission", "AWS::Lambda::Permission", ownAPI, function)
	}
}

func (e *evaluation) stageID(api *resource) string {
	name := child(api.props, "StageName")
	if name == nil {
		return api.id + "DefaultStage"
	}
	if _, _, isCall := e.call(name); isCall {
		return api.id + "Stage"
	}
	if name.Value == defaultStage {
		return api.id + "DefaultStage"
	}
	return api.id + name.Value + "Stage"
}

// defaultStage is the name SAM gives the stage of a WebSocket API that has none.
const defaultStage = "default"

// routeName is a route key in the logical ids that SAM generates: Python's
// capitalize, which makes createGroup Creategroup.
func routeName(key string) string {
	key = strings.ToLower(strings.TrimPrefix(key, "$"))
	if key == "" {
		return ""
	}
	return strings.ToUpper(key[:1]) + key[1:]
}

// with returns the values of some of a mapping's keys, without those of all others.
func with(n *yaml.Node, names string) []*yaml.Node {
	return values(n, func(key string) bool { return set(names)[key] })
}

func without(n *yaml.Node, names string) []*yaml.Node {
	return values(n, func(key string) bool { return !set(names)[key] })
}

func values(n *yaml.Node, keep func(key string) bool) []*yaml.Node {
	var list []*yaml.Node
	for k, v := range entries(n) {
		if keep(k.Value) {
			list = append(list, v)
		}
	}
	return list
}

// lookup finds a resource by its logical id, or by the way SAM lets a template name
// the stage that it generates: Api.Stage.
func (e *evaluation) lookup(name string) *resource {
	if id, property, ok := strings.Cut(name, "."); ok && property == "Stage" {
		if r := e.resources[id]; r != nil && r.typ == typeWebSocketAPI {
			return e.resources[e.stageID(r)]
		}
	}
	return e.resources[name]
}

// exists tells whether the resource's condition, if any, is true.
func (e *evaluation) exists(r *resource) bool {
	if r.condition == "" {
		return true
	}
	value, _ := e.condition(cmp.Or(child(r.node, "Condition"), r.node), r.condition)
	return value
}

// expand fills in a kind's pattern for r.
func (e *evaluation) expand(r *resource, pattern string) (string, bool) {
	if r.kind.ref == "" {
		return "", false // of an unknown type, which is reported
	}
	ok := true
	name := e.StackName + "-" + r.id
	if strings.Contains(pattern, "{name}") {
		name, ok = e.physicalName(r, name)
	}
	stage := defaultStage
	if r.api != nil {
		o := object{e, r.api.props}
		stage = cmp.Or(o.text("StageName"), stage)
	}
	out := strings.NewReplacer(
		"{name}", name,
		"{stage}", stage,
		"{hash}", shortID(e.StackName, r.id),
		"{apiID}", e.apiID(r),
		"{region}", e.Region,
		"{account}", e.AccountID,
		"{partition}", e.pseudo["AWS::Partition"],
		"{suffix}", e.pseudo["AWS::URLSuffix"],
	).Replace(pattern)
	return e.localize(out), ok
}

func (e *evaluation) physicalName(r *resource, made string) (string, bool) {
	if r.typ == "AWS::S3::Bucket" {
		made = strings.ToLower(made)
	}
	n := object{e, r.props}.get(r.kind.nameProperty)
	if n == nil {
		return made, true
	}
	return e.filled(n)
}

// value is expand where a failure is already reported.
func (e *evaluation) value(r *resource, pattern string) string {
	s, _ := e.expand(r, pattern)
	return s
}

// checkCycles reports resources that need each other, and tells whether there are any.
func (e *evaluation) checkCycles() (found bool) {
	const (
		unseen = iota
		open
		done
	)
	state := map[string]int{}
	var path []string
	var visit func(id string)
	visit = func(id string) {
		switch state[id] {
		case open:
			found = true
			cycle := append(slices.Clone(path[slices.Index(path, id):]), id)
			e.fail(e.resources[id].node, "these resources need each other: %s", strings.Join(cycle, " → "))
			return
		case done:
			return
		}
		state[id] = open
		path = append(path, id)
		for _, need := range e.needs(e.resources[id]) {
			visit(need)
		}
		path = path[:len(path)-1]
		state[id] = done
	}
	for _, id := range e.order {
		visit(id)
	}
	return found
}

// needs lists the existing resources that r refers to, sorted.
func (e *evaluation) needs(r *resource) []string {
	found := map[string]bool{}
	add := func(name string) {
		if target := e.lookup(name); target != nil && e.exists(target) {
			found[target.id] = true
		}
	}
	for _, id := range r.needs {
		add(id)
	}
	m := mentions{e, func(_ *yaml.Node, name string) { add(name) }}
	for _, n := range r.needNodes {
		m.walk(n)
	}
	return slices.Sorted(maps.Keys(found))
}
