package template

import (
	"maps"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// evaluated are the intrinsic functions that shallow and conditions evaluate.
var evaluated = set(`Ref Condition Fn::Sub Fn::GetAtt Fn::Join Fn::If Fn::Select
	Fn::Equals Fn::And Fn::Or Fn::Not`)

// call takes a node as the use of an intrinsic function, in its short form (!Sub x)
// or its long one ({Fn::Sub: x}). `Condition: x` is one only where conditions are
// written, so it is left to the caller.
func (d *document) call(n *yaml.Node) (name string, arg *yaml.Node, ok bool) {
	if strings.HasPrefix(n.Tag, "!") && !strings.HasPrefix(n.Tag, "!!") {
		arg := *n
		arg.Tag = map[yaml.Kind]string{yaml.ScalarNode: "!!str", yaml.SequenceNode: "!!seq", yaml.MappingNode: "!!map"}[n.Kind]
		d.places[&arg] = d.places[n]
		if name = n.Tag[1:]; name != "Ref" && name != "Condition" {
			name = "Fn::" + name
		}
		return name, &arg, true
	}
	if n.Kind == yaml.MappingNode && len(n.Content) == 2 {
		if name := n.Content[0].Value; name == "Ref" || strings.HasPrefix(name, "Fn::") {
			return name, n.Content[1], true
		}
	}
	return "", nil, false
}

// shallow evaluates n if it is a function; nil is AWS::NoValue.
func (e *evaluation) shallow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return broken
	}
	name, arg, ok := e.call(n)
	if !ok {
		return n
	}
	switch name {
	case "Ref":
		return e.ref(n, arg)
	case "Fn::GetAtt":
		return e.getAtt(n, arg)
	case "Fn::Sub":
		return e.sub(n, arg)
	case "Fn::Join":
		return e.join(n, arg)
	case "Fn::If":
		return e.choose(n, arg)
	case "Fn::Select":
		return e.selectItem(n, arg)
	case "Fn::Equals", "Fn::And", "Fn::Or", "Fn::Not", "Condition":
		e.fail(n, "%s is only allowed under Conditions", name)
	default:
		e.unknownFunction(n, name)
	}
	return broken
}

func (d *document) unknownFunction(n *yaml.Node, name string) {
	d.fail(n, "the local cloud does not know the function %s", name)
}

// args takes a function's argument as a list of that many elements, not yet evaluated.
func (d *document) args(n, arg *yaml.Node, name string, count int) ([]*yaml.Node, bool) {
	if arg.Kind != yaml.SequenceNode || len(arg.Content) != count {
		d.fail(n, "%s takes a list of %d values", name, count)
		return nil, false
	}
	return arg.Content, true
}

// scalar takes a function's argument as a string that is written out.
func (d *document) scalar(n, arg *yaml.Node, name string) (string, bool) {
	if arg.Kind != yaml.ScalarNode || arg.Value == "" {
		d.fail(n, "%s takes a name", name)
		return "", false
	}
	return arg.Value, true
}

// textArg evaluates an argument that must be a string.
func (e *evaluation) textArg(arg *yaml.Node) (string, bool) {
	v := e.shallow(arg)
	if v == nil {
		e.fail(arg, "want a string, not AWS::NoValue")
		return "", false
	}
	before := len(e.errs)
	s := e.text(v)
	return s, v != broken && len(e.errs) == before
}

func (e *evaluation) ref(n, arg *yaml.Node) *yaml.Node {
	name, ok := e.scalar(n, arg, "Ref")
	switch {
	case !ok:
		return broken
	case name == "AWS::NoValue":
		return nil
	}
	if p, ok := e.params[name]; ok && p.isList {
		return e.sequence(n, strings.Split(p.value, ","))
	}
	value, ok := e.valueOf(n, name)
	if !ok {
		return broken
	}
	return e.derive(n, value)
}

// sequence makes a list that stands where n stands.
func (e *evaluation) sequence(n *yaml.Node, values []string) *yaml.Node {
	out := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: n.Line}
	e.places[out] = e.places[n]
	for _, v := range values {
		out.Content = append(out.Content, e.derive(n, v))
	}
	return out
}

// valueOf returns what Ref returns for a name: of a pseudo parameter, a parameter, or a
// resource, which may be one that SAM generates (Api.Stage).
func (e *evaluation) valueOf(n *yaml.Node, name string) (string, bool) {
	if v, ok := e.pseudo[name]; ok {
		return v, true
	}
	if p, ok := e.params[name]; ok {
		return p.value, true
	}
	r := e.lookup(name)
	if r == nil {
		e.unknownName(n, name)
		return "", false
	}
	if !e.usable(n, r) {
		return "", false
	}
	return e.expand(r, r.kind.ref)
}

// usable reports a resource that cannot be referred to from n.
func (e *evaluation) usable(n *yaml.Node, r *resource) bool {
	if e.conditionsOnly {
		e.fail(n, "a condition cannot use the resource %s; only parameters", r.id)
		return false
	}
	if !e.exists(r) {
		e.fail(n, "%s does not exist because its condition %s is false", r.id, r.condition)
		return false
	}
	return true
}

func (e *evaluation) unknownName(n *yaml.Node, name string) {
	e.fail(n, "unknown name %q: neither a parameter nor a resource of this template", name)
}

func (e *evaluation) getAtt(n, arg *yaml.Node) *yaml.Node {
	id, attrNode, ok := e.getAttArgs(n, arg)
	if !ok {
		return broken
	}
	attr, ok := e.textArg(attrNode)
	if !ok {
		return broken
	}
	value, ok := e.attribute(n, id, attr)
	if !ok {
		return broken
	}
	return e.derive(n, value)
}

// getAttArgs takes both forms of the argument: A.B and [A, B].
func (d *document) getAttArgs(n, arg *yaml.Node) (id string, attr *yaml.Node, ok bool) {
	if arg.Kind == yaml.ScalarNode {
		if id, name, ok := strings.Cut(arg.Value, "."); ok {
			return id, d.derive(n, name), true
		}
	}
	if arg.Kind == yaml.SequenceNode && len(arg.Content) == 2 && arg.Content[0].Kind == yaml.ScalarNode {
		return arg.Content[0].Value, arg.Content[1], true
	}
	d.fail(n, "Fn::GetAtt takes a resource and an attribute")
	return "", nil, false
}

func (e *evaluation) attribute(n *yaml.Node, id, attr string) (string, bool) {
	r, ok := e.resources[id]
	switch {
	case !ok:
		e.unknownName(n, id)
		return "", false
	case !e.usable(n, r):
		return "", false
	case attr == "StreamArn" && r.typ == typeTable && child(r.props, "StreamSpecification") == nil:
		e.fail(n, "the table %s has no stream: add a StreamSpecification", id)
		return "", false
	}
	pattern, ok := r.kind.attrs[attr]
	if !ok {
		e.fail(n, "the local cloud knows no attribute %s of %s, which is an %s", attr, id, r.typ)
		return "", false
	}
	return e.expand(r, pattern)
}

var substitution = regexp.MustCompile(`\$\{([^}]*)\}`)

func (e *evaluation) sub(n, arg *yaml.Node) *yaml.Node {
	text, vars, ok := e.subArgs(n, arg)
	if !ok {
		return broken
	}
	out := substitution.ReplaceAllStringFunc(text, func(m string) string {
		name := m[2 : len(m)-1]
		if literal, found := strings.CutPrefix(name, "!"); found {
			return "${" + literal + "}"
		}
		value, found := e.subValue(n, vars, name)
		ok = ok && found
		return value
	})
	if !ok {
		return broken
	}
	return e.derive(n, e.localize(out))
}

func (e *evaluation) subValue(n *yaml.Node, vars map[string]*yaml.Node, name string) (string, bool) {
	if v, ok := vars[name]; ok {
		return e.textArg(v)
	}
	id, attr, dotted := strings.Cut(name, ".")
	if !dotted || e.lookup(name) != nil {
		return e.valueOf(n, name)
	}
	return e.attribute(n, id, attr)
}

// subArgs takes both forms of the argument: a string, and [string, {name: value}].
func (d *document) subArgs(n, arg *yaml.Node) (text string, vars map[string]*yaml.Node, ok bool) {
	vars = map[string]*yaml.Node{}
	if arg.Kind == yaml.SequenceNode && len(arg.Content) == 2 && arg.Content[1].Kind == yaml.MappingNode {
		for k, v := range entries(arg.Content[1]) {
			vars[k.Value] = v
		}
		arg = arg.Content[0]
	}
	if arg.Kind != yaml.ScalarNode {
		d.fail(n, "Fn::Sub takes a string, or a list of a string and a mapping")
		return "", nil, false
	}
	return arg.Value, vars, true
}

func (e *evaluation) join(n, arg *yaml.Node) *yaml.Node {
	args, ok := e.args(n, arg, "Fn::Join", 2)
	if !ok {
		return broken
	}
	before := len(e.errs)
	sep, ok := e.textArg(args[0])
	list := e.shallow(args[1])
	parts := e.texts(list)
	if !ok || list == broken || len(e.errs) > before {
		return broken
	}
	return e.derive(n, e.localize(strings.Join(parts, sep)))
}

func (e *evaluation) choose(n, arg *yaml.Node) *yaml.Node {
	branch := e.branch(n, arg)
	if branch == nil {
		return broken
	}
	return e.shallow(branch)
}

// branch returns the branch of an Fn::If that its condition takes; nil if that failed.
func (e *evaluation) branch(n, arg *yaml.Node) *yaml.Node {
	args, ok := e.args(n, arg, "Fn::If", 3)
	if !ok {
		return nil
	}
	name, ok := e.scalar(n, args[0], "Fn::If's condition")
	if !ok {
		return nil
	}
	switch value, ok := e.condition(n, name); {
	case !ok:
		return nil
	case value:
		return args[1]
	default:
		return args[2]
	}
}

func (e *evaluation) selectItem(n, arg *yaml.Node) *yaml.Node {
	args, ok := e.args(n, arg, "Fn::Select", 2)
	if !ok {
		return broken
	}
	before := len(e.errs)
	index, ok := e.textArg(args[0])
	list := e.shallow(args[1])
	items := e.items(list)
	if !ok || list == broken || len(e.errs) > before {
		return broken
	}
	i, err := strconv.Atoi(index)
	if err != nil || i < 0 || i >= len(items) {
		e.fail(n, "Fn::Select: there is no element %s in a list of %d", index, len(items))
		return broken
	}
	return items[i]
}

// mentions visits the names of parameters and resources that functions in n and below it
// use. Of Fn::If only the branch that is taken counts.
type mentions struct {
	e     *evaluation
	visit func(n *yaml.Node, name string)
}

func (m mentions) walk(n *yaml.Node) {
	name, arg, ok := m.e.call(n)
	if !ok {
		m.walkPlain(n)
		return
	}
	switch name {
	case "Ref":
		if target, ok := m.e.scalar(n, arg, "Ref"); ok {
			m.visit(n, target)
		}
	case "Fn::GetAtt":
		if id, attr, ok := m.e.getAttArgs(n, arg); ok {
			m.visit(n, id)
			m.walk(attr)
		}
	case "Fn::Sub":
		m.walkSub(n, arg)
	case "Fn::If":
		if branch := m.e.branch(n, arg); branch != nil {
			m.walk(branch)
		}
	default:
		if !evaluated[name] {
			m.e.unknownFunction(n, name)
		}
		m.walkPlain(arg)
	}
}

func (m mentions) walkPlain(n *yaml.Node) {
	for _, v := range entries(n) {
		m.walk(v)
	}
	if n.Kind != yaml.SequenceNode {
		return
	}
	for _, item := range n.Content {
		m.walk(item)
	}
}

func (m mentions) walkSub(n, arg *yaml.Node) {
	text, vars, ok := m.e.subArgs(n, arg)
	if !ok {
		return
	}
	for v := range maps.Values(vars) {
		m.walk(v)
	}
	for _, match := range substitution.FindAllStringSubmatch(text, -1) {
		name := match[1]
		if _, own := vars[name]; own || strings.HasPrefix(name, "!") {
			continue
		}
		if id, _, dotted := strings.Cut(name, "."); dotted && m.e.lookup(name) == nil {
			name = id
		}
		m.visit(n, name)
	}
}
