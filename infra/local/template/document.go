package template

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Error is one mistake in a template.
type Error struct {
	File    string // as given to Load
	Line    int    // 0 if the mistake has no place in the file
	Path    string // such as Resources.SendFunction.Properties.CodeUri; may be empty
	Message string
}

// Error formats the mistake as "file:line: path: message".
func (e *Error) Error() string {
	s := e.File
	if e.Line > 0 {
		s += ":" + strconv.Itoa(e.Line)
	}
	if e.Path != "" {
		s += ": " + e.Path
	}
	return s + ": " + e.Message
}

// document is the YAML tree of a template, where each node stands in the file,
// and the mistakes found so far.
type document struct {
	file   string
	root   *yaml.Node
	places map[*yaml.Node]place
	errs   []*Error
}

type place struct {
	path string
	line int // for a mapping's value the line of its key
}

// parse reads a template's YAML and checks what holds for every part of it.
func parse(path string) (*document, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the template: %w", err)
	}
	d := &document{file: path, places: map[*yaml.Node]place{}}
	dec := yaml.NewDecoder(bytes.NewReader(text))
	var doc, next yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.Join(&Error{File: path, Message: "the template is empty"})
		}
		return nil, errors.Join(d.syntaxError(err))
	}
	switch err := dec.Decode(&next); {
	case err == nil:
		d.report(place{line: next.Line}, "a template is one YAML document; this starts a second one")
	case !errors.Is(err, io.EOF):
		return nil, errors.Join(d.syntaxError(err))
	}
	d.root = doc.Content[0]
	d.locate(d.root, place{line: d.root.Line})
	if d.root.Kind != yaml.MappingNode {
		d.fail(d.root, "a template is a mapping with Resources")
		return nil, d.err()
	}
	return d, nil
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(?s:(.*))$`)

func (d *document) syntaxError(err error) *Error {
	e := &Error{File: d.file, Message: "not valid YAML: " + err.Error()}
	if m := yamlLine.FindStringSubmatch(err.Error()); m != nil {
		e.Line, _ = strconv.Atoi(m[1]) // no line: stays 0
		e.Message = "not valid YAML: " + m[2]
		if strings.HasPrefix(m[2], "did not find expected") {
			// The parser, unlike the scanner, counts lines from 0, leaves out line 0,
			// and mostly names the line where the surrounding block begins.
			e.Line++
			e.Message = "not valid YAML, here or in the block that begins here: " + m[2]
		}
	}
	return e
}

// locate records the place of n and all below it, and reports what
// CloudFormation's YAML does not have or what is ambiguous.
func (d *document) locate(n *yaml.Node, at place) {
	d.places[n] = at
	switch n.Kind {
	case yaml.AliasNode:
		// Not descended into: an alias can contain itself.
		d.fail(n, "CloudFormation has no YAML aliases; write the value out")
	case yaml.SequenceNode:
		for i, item := range n.Content {
			d.locate(item, place{fmt.Sprintf("%s[%d]", at.path, i), item.Line})
		}
	case yaml.MappingNode:
		d.locateMapping(n, at)
	}
}

func (d *document) locateMapping(n *yaml.Node, at place) {
	seen := map[string]int{}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		here := place{below(at.path, key.Value), key.Line}
		switch first, dup := seen[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			d.report(place{at.path, key.Line}, "a key must be a plain string")
		case key.Tag == "!!merge":
			d.report(here, "CloudFormation has no YAML merge keys; write the values out")
		case dup:
			d.report(here, "duplicate key %q; it is first on line %d", key.Value, first)
		default:
			seen[key.Value] = key.Line
		}
		d.places[key] = here
		d.locate(value, here)
	}
}

// below is the path of a key. A function in its long form has the path of what it
// stands for, so that both forms are reported alike.
func below(path, key string) string {
	if path == "" {
		return key
	}
	if key == "Ref" || strings.HasPrefix(key, "Fn::") {
		return path
	}
	return path + "." + key
}

// fail reports a mistake at n; what is wrong with a broken value is reported already.
func (d *document) fail(n *yaml.Node, format string, args ...any) {
	if n == broken {
		return
	}
	d.report(d.places[n], format, args...)
}

func (d *document) report(at place, format string, args ...any) {
	d.errs = append(d.errs, &Error{File: d.file, Line: at.line, Path: at.path, Message: fmt.Sprintf(format, args...)})
}

// derive makes a scalar that stands where n stands.
func (d *document) derive(n *yaml.Node, value string) *yaml.Node {
	out := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.DoubleQuotedStyle, Value: value, Line: n.Line}
	d.places[out] = d.places[n]
	return out
}

// err joins the mistakes by line. The same mistake seen twice, by the check of the
// whole template and by the evaluation, or by two functions in the same Globals, is one.
func (d *document) err() error {
	errs := slices.Clone(d.errs)
	slices.SortStableFunc(errs, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Path, b.Path))
	})
	var all []error
	seen := map[Error]bool{}
	for _, e := range errs {
		if !seen[*e] {
			seen[*e] = true
			all = append(all, e)
		}
	}
	return errors.Join(all...)
}

// section returns a top-level section, which must be a mapping; nil if it is absent.
func (d *document) section(name string) *yaml.Node {
	n := child(d.root, name)
	if n != nil && n.Kind != yaml.MappingNode {
		d.fail(n, "want a mapping, not %s", describe(n))
		return nil
	}
	return n
}

// child returns the value of a mapping's key; nil if n is no mapping or has no such key.
func child(n *yaml.Node, key string) *yaml.Node {
	for k, v := range entries(n) {
		if k.Value == key {
			return v
		}
	}
	return nil
}

// entries iterates over a mapping's keys and values; over nothing if n is none.
func entries(n *yaml.Node) func(yield func(k, v *yaml.Node) bool) {
	return func(yield func(k, v *yaml.Node) bool) {
		if n == nil || n.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i < len(n.Content); i += 2 {
			if !yield(n.Content[i], n.Content[i+1]) {
				return
			}
		}
	}
}

func keys(n *yaml.Node) []string {
	var names []string
	for k := range entries(n) {
		names = append(names, k.Value)
	}
	return names
}

// describe names a value in a message: its text, or what kind it is.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Tag == "!!null":
		return "nothing"
	default:
		return strconv.Quote(n.Value)
	}
}
