package template

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// parameter is a parameter's value; list is what Ref returns for the list types.
type parameter struct {
	value  string
	isList bool
}

var parameterAttributes = set(`Type Default AllowedValues AllowedPattern ConstraintDescription
	Description MinLength MaxLength MinValue MaxValue NoEcho`)

// readParameters takes each parameter's value from the options or its default and
// checks it against what the template allows.
func (e *evaluation) readParameters() {
	section := e.section("Parameters")
	for key, n := range entries(section) {
		if n.Kind != yaml.MappingNode {
			e.fail(n, "want a mapping, not %s", describe(n))
			continue
		}
		e.params[key.Value] = parameter{} // known, whatever is wrong with it
		e.readParameter(key.Value, object{e, n})
	}
	for _, name := range slices.Sorted(maps.Keys(e.Parameters)) {
		if _, ok := e.params[name]; !ok {
			e.report(place{path: "Parameters"}, "there is no parameter %s; %s", name, knownNames(keys(section)))
		}
	}
}

func knownNames(names []string) string {
	if len(names) == 0 {
		return "the template has none"
	}
	slices.Sort(names)
	return "the template has " + strings.Join(names, ", ")
}

func (e *evaluation) readParameter(name string, o object) {
	o.only(parameterAttributes, "a parameter")
	value, given := e.Parameters[name]
	if !given {
		def := o.get("Default")
		if def == nil {
			e.fail(o.node, "parameter %s has no default: give it a value", name)
			return
		}
		value = e.text(def)
	}
	before := len(e.errs)
	p := parameter{value: value}
	values := []string{value}
	switch typ := o.choice("Type", "String", "Number", "CommaDelimitedList", "List<Number>"); typ {
	case "CommaDelimitedList", "List<Number>":
		p.isList = true
		values = strings.Split(value, ",")
		for i, v := range values {
			values[i] = strings.TrimSpace(v)
		}
		p.value = strings.Join(values, ",")
		fallthrough
	default:
		if strings.Contains(typ, "Number") {
			e.checkNumbers(name, values, o)
		}
	}
	if len(e.errs) == before {
		e.checkAllowed(name, values, o)
	}
	e.params[name] = p
}

func (e *evaluation) checkNumbers(name string, values []string, o object) {
	limit := func(attr string) (float64, bool) {
		n := o.get(attr)
		if n == nil {
			return 0, false
		}
		f, err := strconv.ParseFloat(e.text(n), 64)
		if err != nil {
			e.fail(n, "want a number, not %s", describe(n))
		}
		return f, err == nil
	}
	smallest, hasMin := limit("MinValue")
	largest, hasMax := limit("MaxValue")
	for _, v := range values {
		f, err := strconv.ParseFloat(v, 64)
		switch {
		case err != nil || strings.Trim(v, "+-.0123456789eE") != "": // Go knows more numbers
			e.fail(o.node, "parameter %s: want a number, not %q", name, v)
		case hasMin && f < smallest:
			e.fail(o.node, "parameter %s: %s is below MinValue %v", name, v, smallest)
		case hasMax && f > largest:
			e.fail(o.node, "parameter %s: %s is above MaxValue %v", name, v, largest)
		}
	}
}

func (e *evaluation) checkAllowed(name string, values []string, o object) {
	minLength := o.int("MinLength", 0, 0, 4096)
	maxLength := o.int("MaxLength", 4096, 0, 4096) // a parameter's own limit in CloudFormation
	allowed := e.texts(o.get("AllowedValues"))
	pattern := e.pattern(o.get("AllowedPattern"))
	for _, v := range values {
		length := utf8.RuneCountInString(v)
		switch {
		case len(allowed) > 0 && !slices.Contains(allowed, v):
			e.fail(o.node, "parameter %s: %q is none of the AllowedValues %s", name, v, strings.Join(allowed, ", "))
		case pattern != nil && !pattern.MatchString(v):
			e.fail(o.node, "parameter %s: %q does not match AllowedPattern %s", name, v, e.text(o.get("AllowedPattern")))
		case length < minLength:
			e.fail(o.node, "parameter %s: %q is shorter than MinLength %d", name, v, minLength)
		case length > maxLength:
			e.fail(o.node, "parameter %s: its %d characters are longer than MaxLength %d", name, length, maxLength)
		}
	}
}

// pattern compiles an AllowedPattern, which must match the whole value.
func (e *evaluation) pattern(n *yaml.Node) *regexp.Regexp {
	if n == nil {
		return nil
	}
	re, err := regexp.Compile(`^(?:` + e.text(n) + `)\z`)
	if err != nil {
		e.fail(n, "Go cannot read this regular expression: %v", err)
	}
	return re
}
