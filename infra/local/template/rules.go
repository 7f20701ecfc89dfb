package template

import "go.yaml.in/yaml/v3"

// ruleFunctions are those of a rule that are evaluated here, which are those of a
// condition without Condition. CloudFormation has more.
var ruleFunctions = set(`Ref Fn::Equals Fn::And Fn::Or Fn::Not`)

// checkRules reports the assertions that do not hold for the parameters' values, as
// CloudFormation does before it makes anything.
func (e *evaluation) checkRules() {
	for key, n := range entries(e.section("Rules")) {
		rule, ok := e.object(n)
		if !ok {
			continue
		}
		rule.only(set("RuleCondition Assertions"), "a rule")
		if e.ruleIsReadable(n) {
			e.checkRule(key.Value, rule)
		}
	}
}

func (e *evaluation) checkRule(name string, rule object) {
	assertions := e.items(rule.need("Assertions"))
	if condition := child(rule.node, "RuleCondition"); condition != nil {
		if applies, ok := e.decide(condition); !ok || !applies {
			return
		}
	}
	for _, n := range assertions {
		assertion, ok := e.object(n)
		if !ok {
			continue
		}
		assertion.only(set("Assert AssertDescription"), "an assertion")
		why := assertion.text("AssertDescription")
		assert := child(assertion.node, "Assert")
		if assert == nil {
			e.fail(n, "has no Assert")
			continue
		}
		if holds, ok := e.decide(assert); ok && !holds {
			e.fail(n, "the parameters break the rule %s: %s", name, why)
		}
	}
}

// ruleIsReadable reports what a rule uses that is not evaluated, or not there, also
// where the rule does not apply.
func (e *evaluation) ruleIsReadable(n *yaml.Node) bool {
	before := len(e.errs)
	var walk func(n *yaml.Node)
	walk = func(n *yaml.Node) {
		if name, _, ok := e.call(n); ok && !ruleFunctions[name] {
			e.fail(n, "the local cloud does not know %s in a rule", name)
		}
		for _, c := range n.Content {
			walk(c)
		}
	}
	walk(n)
	if len(e.errs) > before {
		return false
	}
	mentions{e, func(n *yaml.Node, name string) {
		if _, isParam := e.params[name]; !isParam && e.pseudo[name] == "" {
			e.fail(n, "a rule uses parameters, and there is none named %q", name)
		}
	}}.walk(n)
	return len(e.errs) == before
}
