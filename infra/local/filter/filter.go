// Package filter has the event patterns of an event source mapping's FilterCriteria, by
// which only some changes of a table come to a function. The operators are those that
// Lambda documents ("Control which events Lambda sends to your function"): exact values,
// prefix, suffix, equals-ignore-case, anything-but, numeric, exists and $or. Any other
// is an error.
//
// Two rules of EventBridge patterns matter for DynamoDB records. Operators,
// "exists" too, look at leaves, so an attribute is tested below its type:
// {"NewImage": {"name": {"S": [{"exists": true}]}}}. And a value has the type it
// has in the JSON: numbers of DynamoDB are strings there ({"N": "5"}), so
// "numeric" never matches one.
package filter

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Pattern says which changes pass.
type Pattern struct{ match matcher }

// matcher tells whether a part of a change fits a pattern. The part is of its JSON:
// map[string]any, []any, string, json.Number, bool or nil; or absent.
type matcher func(part any) bool

// absent stands for a field that the change does not have.
type absent struct{}

// fields are those of a change that a pattern can name.
var fields = []string{"eventID", "eventName", "eventVersion", "eventSource", "eventSourceARN", "awsRegion", "dynamodb", "userIdentity", "$or"}

// Parse reads a pattern, which is a JSON object.
func Parse(pattern string) (Pattern, error) {
	value, err := decode([]byte(pattern))
	if err != nil {
		return Pattern{}, fmt.Errorf("the pattern: %w", err)
	}
	object, ok := value.(map[string]any)
	if !ok {
		return Pattern{}, errors.New("a pattern is a JSON object")
	}
	for name := range object {
		if !slices.Contains(fields, name) {
			return Pattern{}, fmt.Errorf("field %q is not in a stream record: it has %s", name, strings.Join(fields[:len(fields)-1], ", "))
		}
	}
	match, err := compileObject(object, "")
	return Pattern{match}, err
}

// Passes is true if one of the patterns matches a change, as it is in an event, or if
// there are none.
func Passes(change json.RawMessage, patterns []Pattern) (bool, error) {
	if len(patterns) == 0 {
		return true, nil
	}
	whole, err := decode(change)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(patterns, func(p Pattern) bool { return p.match(whole) }), nil
}

func decode(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber() // numbers are compared as they are written
	var value any
	if err := d.Decode(&value); err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is text after its end")
	}
	return value, nil
}

// compileObject requires all of its fields.
func compileObject(pattern map[string]any, path string) (matcher, error) {
	if len(pattern) == 0 {
		return nil, fmt.Errorf("%s is empty: name a field in it", orRoot(path))
	}
	type field struct {
		name  string
		match matcher
	}
	var fields []field
	var either []matcher
	for name, sub := range pattern {
		at := strings.TrimPrefix(path+"."+name, ".")
		if name == "$or" {
			m, err := compileOr(sub, path)
			if err != nil {
				return nil, err
			}
			either = append(either, m)
			continue
		}
		m, err := compileField(sub, at)
		if err != nil {
			return nil, err
		}
		fields = append(fields, field{name, m})
	}
	return eachElement(func(part any) bool {
		object, _ := part.(map[string]any)
		for _, f := range fields {
			value, present := object[f.name]
			if !present {
				value = absent{}
			}
			if !f.match(value) {
				return false
			}
		}
		for _, m := range either {
			if !m(part) {
				return false
			}
		}
		return true
	}), nil
}

func orRoot(path string) string {
	if path == "" {
		return "the pattern"
	}
	return path
}

func compileOr(sub any, path string) (matcher, error) {
	alternatives, ok := sub.([]any)
	if !ok || len(alternatives) == 0 {
		return nil, fmt.Errorf("$or in %s wants a list of patterns", orRoot(path))
	}
	var patterns []matcher
	for _, a := range alternatives {
		object, ok := a.(map[string]any)
		if !ok {
			return nil, fmt.Errorf("$or in %s wants a list of patterns", orRoot(path))
		}
		m, err := compileObject(object, path)
		if err != nil {
			return nil, err
		}
		patterns = append(patterns, m)
	}
	return anyOf(patterns), nil
}

func compileField(sub any, path string) (matcher, error) {
	switch sub := sub.(type) {
	case map[string]any:
		return compileObject(sub, path)
	case []any:
		if len(sub) == 0 {
			return nil, fmt.Errorf("%s: the list of allowed values is empty", path)
		}
		var alternatives []matcher
		for _, rule := range sub {
			m, err := compileRule(rule, path)
			if err != nil {
				return nil, err
			}
			alternatives = append(alternatives, m)
		}
		return eachElement(leaf(anyOf(alternatives))), nil
	default:
		return nil, fmt.Errorf("%s: want a list of allowed values, such as [\"x\"], or an object", path)
	}
}

func anyOf(matchers []matcher) matcher {
	return func(part any) bool {
		return slices.ContainsFunc(matchers, func(m matcher) bool { return m(part) })
	}
}

// eachElement lets a list match if one of its elements does.
func eachElement(m matcher) matcher {
	return func(part any) bool {
		elements, ok := part.([]any)
		if !ok {
			return m(part)
		}
		if len(elements) == 0 {
			return m(absent{})
		}
		return slices.ContainsFunc(elements, func(e any) bool { return m(e) })
	}
}

// leaf hides objects and lists from operators.
func leaf(m matcher) matcher {
	return func(part any) bool {
		switch part.(type) {
		case map[string]any, []any:
			part = absent{}
		}
		return m(part)
	}
}

func compileRule(rule any, path string) (matcher, error) {
	object, ok := rule.(map[string]any)
	if !ok {
		if _, nested := rule.([]any); nested {
			return nil, fmt.Errorf("%s: a list within a list is not allowed", path)
		}
		return func(part any) bool { return part == rule }, nil
	}
	if len(object) != 1 {
		return nil, fmt.Errorf("%s: want one operator in each {}, found %d", path, len(object))
	}
	for operator, argument := range object {
		m, err := compileOperator(operator, argument)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return m, nil
	}
	panic("unreachable: the object has one field")
}

func compileOperator(operator string, argument any) (matcher, error) {
	switch operator {
	case "exists":
		want, ok := argument.(bool)
		if !ok {
			return nil, errors.New("exists wants true or false")
		}
		return func(part any) bool { return (part != absent{}) == want }, nil
	case "prefix", "suffix", "equals-ignore-case":
		return compileText(operator, argument)
	case "numeric":
		return compileNumeric(argument)
	case "anything-but":
		return compileAnythingBut(argument)
	default:
		return nil, fmt.Errorf("operator %q is not supported: use exact values, prefix, suffix, equals-ignore-case, anything-but, numeric or exists", operator)
	}
}

// compileText compiles an operator on strings. EventBridge also takes
// {"prefix": {"equals-ignore-case": "x"}}, and the same for suffix.
func compileText(operator string, argument any) (matcher, error) {
	fold := func(s string) string { return s }
	if object, ok := argument.(map[string]any); ok && operator != "equals-ignore-case" && len(object) == 1 && object["equals-ignore-case"] != nil {
		argument, fold = object["equals-ignore-case"], strings.ToLower
	}
	want, ok := argument.(string)
	if !ok {
		return nil, fmt.Errorf("%s wants a string", operator)
	}
	want = fold(want)
	compare := map[string]func(s, want string) bool{
		"prefix": strings.HasPrefix, "suffix": strings.HasSuffix, "equals-ignore-case": strings.EqualFold,
	}[operator]
	return func(part any) bool {
		s, ok := part.(string)
		return ok && compare(fold(s), want)
	}, nil
}

// excludedBy compiles a value or a list of values, each compared by the operator,
// or for equality if that is "".
func excludedBy(operator string, argument any) ([]matcher, error) {
	values, ok := argument.([]any)
	if !ok {
		values = []any{argument}
	}
	var excluded []matcher
	for _, v := range values {
		m := matcher(func(part any) bool { return part == v })
		switch v.(type) {
		case string, json.Number:
		default:
			return nil, errors.New("anything-but wants strings or numbers")
		}
		if operator != "" {
			var err error
			if m, err = compileText(operator, v); err != nil {
				return nil, err
			}
		}
		excluded = append(excluded, m)
	}
	return excluded, nil
}

// compileAnythingBut compiles the argument of anything-but: a value, a list of
// values, or one text operator with a string or a list.
func compileAnythingBut(argument any) (matcher, error) {
	var excluded []matcher
	add := func(operator string, argument any) error {
		matchers, err := excludedBy(operator, argument)
		excluded = append(excluded, matchers...)
		return err
	}
	object, ok := argument.(map[string]any)
	if !ok {
		if err := add("", argument); err != nil {
			return nil, err
		}
	}
	if ok && len(object) != 1 {
		return nil, errors.New("anything-but wants one operator")
	}
	for operator, argument := range object {
		switch operator {
		case "prefix", "suffix", "equals-ignore-case":
		default:
			return nil, fmt.Errorf("anything-but does not support %q: use values, prefix, suffix or equals-ignore-case", operator)
		}
		if err := add(operator, argument); err != nil {
			return nil, err
		}
	}
	if len(excluded) == 0 {
		return nil, errors.New("the list of anything-but is empty")
	}
	excludes := anyOf(excluded)
	return func(part any) bool { return part != absent{} && !excludes(part) }, nil
}

// compileNumeric compiles [">", 0, "<=", 5] and the like.
func compileNumeric(argument any) (matcher, error) {
	rules, ok := argument.([]any)
	if !ok || len(rules) == 0 || len(rules)%2 != 0 || len(rules) > 4 {
		return nil, errors.New(`numeric wants pairs of comparison and number, such as [">", 0, "<=", 5]`)
	}
	var bounds []func(float64) bool
	for pair := range slices.Chunk(rules, 2) {
		comparison, _ := pair[0].(string)
		number, ok := pair[1].(json.Number)
		if !ok {
			return nil, fmt.Errorf("numeric wants a number after %q", comparison)
		}
		bound, err := number.Float64()
		if err != nil {
			return nil, fmt.Errorf("numeric: %w", err)
		}
		compare, ok := map[string]func(float64) bool{
			"=":  func(n float64) bool { return n == bound },
			"<":  func(n float64) bool { return n < bound },
			"<=": func(n float64) bool { return n <= bound },
			">":  func(n float64) bool { return n > bound },
			">=": func(n float64) bool { return n >= bound },
		}[comparison]
		if !ok {
			return nil, fmt.Errorf("numeric does not know the comparison %q: use =, <, <=, > or >=", comparison)
		}
		bounds = append(bounds, compare)
	}
	return func(part any) bool {
		number, ok := part.(json.Number)
		if !ok {
			return false
		}
		n, err := number.Float64()
		return err == nil && !slices.ContainsFunc(bounds, func(in func(float64) bool) bool { return !in(n) })
	}, nil
}
