package template

import "go.yaml.in/yaml/v3"

// condition is one of the template's conditions; it is evaluated once.
type condition struct {
	node  *yaml.Node
	state conditionState
	value bool
	ok    bool // false: evaluation failed and is reported
}

type conditionState int

const (
	unevaluated conditionState = iota
	evaluating
	finished
)

// readConditions evaluates every condition, so that mistakes in unused ones show too.
func (e *evaluation) readConditions() {
	section := e.section("Conditions")
	for key, n := range entries(section) {
		e.conditions[key.Value] = &condition{node: n}
	}
	for key, n := range entries(section) {
		e.condition(n, key.Value)
	}
}

// conditionName reads the attribute Condition of a resource or an output: as it
// stands, for a condition may be called No, which is no boolean here.
func (e *evaluation) conditionName(n *yaml.Node) string {
	if _, ok := e.filled(n); !ok {
		return ""
	}
	return n.Value
}

// condition returns the value of a condition that n uses; ok is false if that failed.
func (e *evaluation) condition(n *yaml.Node, name string) (value, ok bool) {
	c := e.conditions[name]
	switch {
	case c == nil:
		e.unknownCondition(n, name)
		return false, false
	case c.state == evaluating:
		e.fail(n, "the condition %s depends on itself", name)
		return false, false
	case c.state == unevaluated:
		c.state = evaluating
		before := e.conditionsOnly
		e.conditionsOnly = true
		c.value, c.ok = e.decide(c.node)
		e.conditionsOnly = before
		c.state = finished
	}
	return c.value, c.ok
}

func (e *evaluation) unknownCondition(n *yaml.Node, name string) {
	e.fail(n, "there is no condition %q", name)
}

// decide evaluates a condition function.
func (e *evaluation) decide(n *yaml.Node) (value, ok bool) {
	name, arg, isCall := e.call(n)
	if !isCall && n.Kind == yaml.MappingNode && len(n.Content) == 2 && n.Content[0].Value == "Condition" {
		name, arg = "Condition", n.Content[1]
	}
	switch name {
	case "Condition":
		target, ok := e.scalar(n, arg, "Condition")
		if !ok {
			return false, false
		}
		return e.condition(n, target)
	case "Fn::Equals":
		return e.equals(n, arg)
	case "Fn::Not":
		args, ok := e.args(n, arg, name, 1)
		if !ok {
			return false, false
		}
		value, ok := e.decide(args[0])
		return !value, ok
	case "Fn::And", "Fn::Or":
		return e.combine(n, arg, name)
	}
	e.fail(n, "a condition is Fn::Equals, Fn::And, Fn::Or, Fn::Not or Condition")
	return false, false
}

func (e *evaluation) equals(n, arg *yaml.Node) (value, ok bool) {
	args, ok := e.args(n, arg, "Fn::Equals", 2)
	if !ok {
		return false, false
	}
	left, ok1 := e.textArg(args[0])
	right, ok2 := e.textArg(args[1])
	return left == right, ok1 && ok2
}

func (e *evaluation) combine(n, arg *yaml.Node, name string) (value, ok bool) {
	if arg.Kind != yaml.SequenceNode || len(arg.Content) < 2 || len(arg.Content) > 10 {
		e.fail(n, "%s takes a list of 2 to 10 conditions", name)
		return false, false
	}
	and, ok := name == "Fn::And", true
	value = and
	for _, c := range arg.Content {
		v, vok := e.decide(c)
		ok = ok && vok
		if and {
			value = value && v
		} else {
			value = value || v
		}
	}
	return value, ok
}
