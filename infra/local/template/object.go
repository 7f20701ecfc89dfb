package template

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// set makes a set of the words in s.
func set(s string) map[string]bool {
	words := map[string]bool{}
	for _, w := range strings.Fields(s) {
		words[w] = true
	}
	return words
}

// object reads the properties of a mapping. Its methods report what is wrong and
// then return the zero value, so that a reader can go on and find the next mistake.
type object struct {
	e    *evaluation
	node *yaml.Node
}

// only reports the keys that are not known. what names the mapping's type.
func (o object) only(known map[string]bool, what string) {
	for k := range entries(o.node) {
		if !known[k.Value] {
			o.e.fail(k, "the local cloud does not know %s of %s", k.Value, what)
		}
	}
}

// get evaluates a property: nil if it is absent, broken if that failed.
func (o object) get(name string) *yaml.Node {
	n := child(o.node, name)
	if n == nil {
		return nil
	}
	return o.e.shallow(n)
}

// need is get for a required property.
func (o object) need(name string) *yaml.Node {
	n := o.get(name)
	if n == nil {
		at := o.e.places[o.node]
		o.e.report(place{at.path + "." + name, at.line}, "is required and missing")
		return broken
	}
	return n
}

func (o object) text(name string) string { return o.e.text(o.get(name)) }

func (o object) texts(name string) []string { return o.e.texts(o.get(name)) }

func (o object) needText(name string) string {
	s, _ := o.e.filled(o.need(name))
	return s
}

// choice reads a required property that must be one of the allowed words.
func (o object) choice(name string, allowed ...string) string {
	n := o.get(name)
	s := o.needText(name)
	if s != "" && !slices.Contains(allowed, s) {
		o.e.fail(n, "%q is not understood: want %s", s, strings.Join(allowed, " or "))
		return ""
	}
	return s
}

// int reads a whole number from lowest to highest; def if it is absent or wrong.
func (o object) int(name string, def, lowest, highest int) int {
	n := o.get(name)
	if n == nil || n == broken {
		return def
	}
	i, err := strconv.Atoi(n.Value)
	switch {
	case n.Kind != yaml.ScalarNode || err != nil:
		o.e.fail(n, "want a whole number, not %s", describe(n))
	case i < lowest || i > highest:
		o.e.fail(n, "%d is outside %d to %d", i, lowest, highest)
	default:
		return i
	}
	return def
}

// positive reads a number above 0; def if it is absent or wrong.
func (o object) positive(name string, def float64) float64 {
	n := o.get(name)
	if n == nil || n == broken {
		return def
	}
	f, err := strconv.ParseFloat(n.Value, 64)
	switch {
	case n.Kind != yaml.ScalarNode || err != nil || math.IsNaN(f) || math.IsInf(f, 0):
		o.e.fail(n, "want a number, not %s", describe(n))
	case f <= 0:
		o.e.fail(n, "%s lets nothing through; leave it out for no limit of its own", n.Value)
	default:
		return f
	}
	return def
}

// bool reads a boolean; def if it is absent.
func (o object) bool(name string, def bool) bool {
	n := o.get(name)
	if n == nil {
		return def
	}
	if n == broken {
		return false
	}
	b, ok := boolean(n)
	if n.Kind != yaml.ScalarNode || !ok {
		o.e.fail(n, "want true or false, not %s", describe(n))
	}
	return b
}

func (o object) items(name string) []*yaml.Node { return o.e.items(o.get(name)) }

// object reads a property that is a mapping; ok is false if it is absent or none.
func (o object) object(name string) (_ object, ok bool) { return o.e.object(o.get(name)) }

// object takes an evaluated node as a mapping.
func (e *evaluation) object(n *yaml.Node) (_ object, ok bool) {
	if n == nil || n == broken {
		return object{}, false
	}
	if n.Kind != yaml.MappingNode {
		e.fail(n, "want a mapping, not %s", describe(n))
		return object{}, false
	}
	return object{e, n}, true
}

// all evaluates a mapping's values, leaving out AWS::NoValue and what is broken.
func (o object) all() func(yield func(key string, n *yaml.Node) bool) {
	return func(yield func(key string, n *yaml.Node) bool) {
		for k, v := range entries(o.node) {
			v = o.e.shallow(v)
			if v != nil && v != broken && !yield(k.Value, v) {
				return
			}
		}
	}
}

func (o object) line() int { return o.e.places[o.node].line }
