package template

import (
	"cmp"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// stack evaluates the document. What it returns is only good if no mistake was reported.
func (e *evaluation) stack() *Stack {
	for key := range entries(e.root) {
		if !sections[key.Value] {
			e.fail(key, "the local cloud does not know the section %s", key.Value)
		}
	}
	e.readParameters()
	e.checkRules()
	e.readResources()
	e.readConditions()
	if e.checkCycles() {
		return nil // evaluating names would not end
	}
	s := &Stack{
		File:       e.file,
		Name:       e.StackName,
		Region:     e.Region,
		AccountID:  e.AccountID,
		Parameters: map[string]string{},
	}
	for name, p := range e.params {
		s.Parameters[name] = p.value
	}
	e.build(s)
	s.Outputs = e.outputs()
	s.Ignored = e.ignored
	return s
}

// build reads the resources that run: first the functions, then what refers to them.
func (e *evaluation) build(s *Stack) {
	e.uniqueNames()
	for r := range e.existing(typeFunction) {
		s.Functions = append(s.Functions, e.function(r))
	}
	for r := range e.existing(typeTable) {
		s.Tables = append(s.Tables, e.table(r))
	}
	for r := range e.existing(typeQueue) {
		s.Queues = append(s.Queues, e.queue(r))
	}
	for r := range e.existing(typeWebSocketAPI) {
		if s.API != nil {
			e.fail(r.node, "a second WebSocket API beside %s; the local cloud serves one", s.API.LogicalID)
			continue
		}
		s.API = e.webSocketAPI(r)
	}
	for r := range e.existing(typeRouteResponse) {
		e.routeResponse(s.API, r)
	}
	e.noteUnusedResponses(s.API)
	e.notePassedOver()
	slices.SortFunc(s.Functions, func(a, b *Function) int { return cmp.Compare(a.LogicalID, b.LogicalID) })
	slices.SortFunc(s.Tables, func(a, b *Table) int { return cmp.Compare(a.LogicalID, b.LogicalID) })
	slices.SortFunc(s.Queues, func(a, b *Queue) int { return cmp.Compare(a.LogicalID, b.LogicalID) })
	for _, f := range s.Functions {
		slices.SortFunc(f.Streams, func(a, b StreamMapping) int { return cmp.Compare(a.LogicalID, b.LogicalID) })
		slices.SortFunc(f.Queues, func(a, b QueueMapping) int { return cmp.Compare(a.LogicalID, b.LogicalID) })
		slices.SortFunc(f.Schedules, func(a, b Schedule) int { return cmp.Compare(a.LogicalID, b.LogicalID) })
	}
}

// notePassedOver names the resources, and the properties of others, that the user may
// expect something of that does not happen here.
func (e *evaluation) notePassedOver() {
	for _, id := range e.order {
		r := e.resources[id]
		if !e.exists(r) {
			continue
		}
		if r.kind.note != "" {
			e.note(r.node, "%s", r.kind.note)
		}
		for key := range entries(r.props) {
			if why := r.kind.passedOver[key.Value]; why != "" {
				e.note(key, "%s", why)
			}
		}
	}
}

// existing iterates over the template's resources of a type, without those that a
// condition leaves out and those that SAM generates.
func (e *evaluation) existing(typ string) func(yield func(*resource) bool) {
	return func(yield func(*resource) bool) {
		for _, id := range e.order {
			r := e.resources[id]
			if r.typ == typ && !r.generated && e.exists(r) && !yield(r) {
				return
			}
		}
	}
}

// uniqueNames reports two functions, tables or queues that have the same physical name.
func (e *evaluation) uniqueNames() {
	for _, typ := range []string{typeFunction, typeTable, typeQueue} {
		owner := map[string]string{}
		for r := range e.existing(typ) {
			name, ok := e.expand(r, "{name}")
			switch first, taken := owner[name]; {
			case !ok:
			case taken:
				e.fail(r.node, "has the same %s as %s: %s", r.kind.nameProperty, first, name)
			default:
				owner[name] = r.id
			}
		}
	}
}

// properties reads a resource's properties; a resource without any has an empty mapping.
func (e *evaluation) properties(r *resource) object {
	if r.props != nil {
		return object{e, r.props}
	}
	n := &yaml.Node{Kind: yaml.MappingNode}
	at := e.places[r.node]
	e.places[n] = place{at.path + ".Properties", at.line}
	return object{e, n}
}

func (e *evaluation) line(r *resource) int { return e.places[r.node].line }

// Limits of a function: "Lambda quotas" in the AWS Lambda developer guide.
const (
	maxTimeoutSeconds = 900
	maxMemoryMB       = 10240
)

func (e *evaluation) function(r *resource) *Function {
	o := e.properties(r)
	f := &Function{
		LogicalID:           r.id,
		Name:                e.value(r, "{name}"),
		ARN:                 e.value(r, r.kind.attrs["Arn"]),
		Handler:             o.text("Handler"),
		Architectures:       e.architectures(o),
		Timeout:             time.Duration(o.int("Timeout", 3, 1, maxTimeoutSeconds)) * time.Second,
		MemoryMB:            o.int("MemorySize", 128, 128, maxMemoryMB),
		ReservedConcurrency: e.reserved(o),
		Environment:         e.environment(o),
		Build:               e.buildOf(r),
		Line:                e.line(r),
	}
	n := o.get("PackageType")
	if s, ok := e.filled(n); ok && s != "Zip" {
		e.fail(n, "the local cloud runs functions of PackageType Zip only, not %s", s)
		return f // an image has neither a runtime nor code
	}
	f.Runtime = e.runtime(o)
	f.CodeURI = e.codeURI(o)
	if events, ok := o.object("Events"); ok {
		for name, n := range events.all() {
			e.event(f, name, n)
		}
	}
	return f
}

func (e *evaluation) runtime(o object) string {
	n := o.need("Runtime")
	s, ok := e.filled(n)
	if ok && s != "provided.al2023" && s != "provided.al2" {
		e.fail(n, "the local cloud runs provided.al2023 and provided.al2 (a Go executable), not %s", s)
	}
	return s
}

func (e *evaluation) codeURI(o object) string {
	n := o.need("CodeUri")
	uri, ok := e.filled(n)
	if !ok {
		return ""
	}
	dir := uri
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(filepath.Dir(e.file), dir)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		e.fail(n, "finding the folder %s: %v", dir, err)
		return ""
	}
	if info, err := os.Stat(abs); err != nil || !info.IsDir() {
		e.fail(n, "there is no folder %s", uri)
	}
	return abs
}

func (e *evaluation) architectures(o object) []string {
	n := o.get("Architectures")
	if n == nil {
		return []string{"x86_64"}
	}
	list := e.texts(n)
	if n != broken && (len(list) != 1 || list[0] != "x86_64" && list[0] != "arm64") {
		e.fail(n, "want a list of one, x86_64 or arm64")
	}
	return list
}

func (e *evaluation) reserved(o object) int {
	count := o.int("ReservedConcurrentExecutions", -1, 0, math.MaxInt32)
	if count == 0 {
		e.fail(o.get("ReservedConcurrentExecutions"), "0 keeps the function from ever running; leave it out for no limit")
	}
	return max(count, 0)
}

var variableName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]+$`)

func (e *evaluation) environment(o object) map[string]string {
	env := map[string]string{}
	section, ok := o.object("Environment")
	if !ok {
		return env
	}
	section.only(set("Variables"), "Environment")
	vars, ok := section.object("Variables")
	if !ok {
		return env
	}
	for name, n := range vars.all() {
		if !variableName.MatchString(name) {
			e.fail(n, "a variable's name is a letter, then letters, digits or _")
		}
		env[name] = e.text(n)
	}
	return env
}

// buildOf reads a function's Metadata, which only `sam build` and its like look at.
func (e *evaluation) buildOf(r *resource) Build {
	b := Build{Line: e.line(r)}
	metadata, ok := e.object(child(r.node, "Metadata"))
	if !ok {
		return b
	}
	if n := metadata.get("BuildMethod"); n != nil {
		b.Method, b.Line = e.text(n), e.places[n].line
	}
	if properties, ok := metadata.object("BuildProperties"); ok {
		b.TrimPath = properties.bool("TrimGoPath", false)
	}
	return b
}

func (e *evaluation) event(f *Function, name string, n *yaml.Node) {
	o, ok := e.object(n)
	if !ok {
		return
	}
	o.only(set("Type Properties"), "an event")
	switch typ := o.needText("Type"); typ {
	case "": // reported
	case "DynamoDB":
		n := o.need("Properties")
		if props, ok := e.object(n); ok {
			props.only(mappingProperties, "a DynamoDB event")
			e.addMapping(f, f.LogicalID+name, props, props.need("Stream"))
		}
	case "SQS":
		if props, ok := e.object(o.need("Properties")); ok {
			e.addQueueMapping(f, f.LogicalID+name, props)
		}
	case "Schedule":
		e.addSchedule(f, name, o)
	default:
		e.fail(n, "the local cloud cannot raise %s events", typ)
	}
}

// addMapping reads a stream mapping. The limits are those of Lambda's API reference,
// CreateEventSourceMapping.
func (e *evaluation) addMapping(f *Function, id string, o object, stream *yaml.Node) {
	m := StreamMapping{
		LogicalID:             id,
		TableID:               e.tableOfStream(stream),
		StartingPosition:      o.choice("StartingPosition", Latest, TrimHorizon),
		BatchSize:             o.int("BatchSize", 100, 1, 10000),
		BatchingWindow:        time.Duration(o.int("MaximumBatchingWindowInSeconds", 0, 0, 300)) * time.Second,
		MaxRetries:            o.int("MaximumRetryAttempts", -1, -1, 10000),
		MaxRecordAge:          e.maxRecordAge(o),
		BisectOnError:         o.bool("BisectBatchOnFunctionError", false),
		ParallelizationFactor: o.int("ParallelizationFactor", 1, 1, 10),
		OnFailureQueue:        e.onFailure(o),
		Line:                  o.line(),

		ReportBatchItemFailures: e.reportsFailures(o),
	}
	if !o.bool("Enabled", true) {
		e.note(o.node, "the mapping is not enabled")
		return
	}
	f.Streams = append(f.Streams, m)
}

func (e *evaluation) tableOfStream(n *yaml.Node) string {
	arn, ok := e.filled(n)
	if !ok {
		return ""
	}
	for r := range e.existing(typeTable) {
		if child(r.props, "StreamSpecification") != nil && e.value(r, r.kind.attrs["StreamArn"]) == arn {
			return r.id
		}
	}
	e.fail(n, "%q is no stream of a table of this template", arn)
	return ""
}

func (e *evaluation) maxRecordAge(o object) time.Duration {
	seconds := o.int("MaximumRecordAgeInSeconds", -1, -1, 604800)
	if seconds == -1 {
		return -1
	}
	if seconds < 60 {
		e.fail(o.get("MaximumRecordAgeInSeconds"), "want -1 or at least 60, not %d", seconds)
	}
	return time.Duration(seconds) * time.Second
}

func (e *evaluation) onFailure(o object) string {
	config, ok := o.object("DestinationConfig")
	if !ok {
		return ""
	}
	config.only(set("OnFailure"), "DestinationConfig")
	target, ok := config.object("OnFailure")
	if !ok {
		return ""
	}
	target.only(set("Destination Type"), "OnFailure") // Type is SAM's, for its policy
	return e.queueID(target.need("Destination"))
}

func (e *evaluation) outputs() map[string]string {
	out := map[string]string{}
	for key, n := range entries(e.section("Outputs")) {
		o, ok := e.object(n)
		if !ok {
			continue
		}
		o.only(set("Condition Description Export Value"), "an output")
		if c := child(n, "Condition"); c != nil {
			if value, _ := e.condition(c, e.conditionName(c)); !value {
				continue
			}
		}
		out[key.Value] = e.text(o.need("Value"))
	}
	return out
}

// qualifier matches what an alias or version adds to a function's ARN.
var qualifier = regexp.MustCompile(`^:[A-Za-z0-9$_-]+$`)

// functionOfARN finds the function that an evaluated ARN, with or without an alias, means.
func (e *evaluation) functionOfARN(n *yaml.Node) string {
	arn, ok := e.filled(n)
	if !ok {
		return ""
	}
	for r := range e.existing(typeFunction) {
		rest, ok := strings.CutPrefix(arn, e.value(r, r.kind.attrs["Arn"]))
		if ok && (rest == "" || qualifier.MatchString(rest)) {
			return r.id
		}
	}
	e.fail(n, "%q is not the ARN of a function of this template", arn)
	return ""
}
