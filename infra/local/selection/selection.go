// Package selection has the expression by which a WebSocket API finds the route of a
// message (API Gateway, "WebSocket selection expressions").
package selection

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Expression is static text and paths into the message's JSON.
type Expression []part

// part is static text, or the path of a variable.
type part struct {
	text string
	path []string
}

const bodyPrefix = "request.body."

// Parse understands $request.body.path, ${request.body.path}, static text between them
// and \$ for a dollar sign.
func Parse(expression string) (Expression, error) {
	fail := func(why string) (Expression, error) {
		return nil, fmt.Errorf("%q: %s", expression, why)
	}
	if expression == "" {
		return fail("it is empty; the usual one is $request.body.action")
	}
	var parts Expression
	for rest := expression; rest != ""; {
		if strings.HasPrefix(rest, `\$`) {
			parts = append(parts, part{text: "$"})
			rest = rest[2:]
			continue
		}
		if rest[0] != '$' {
			end := strings.IndexAny(rest[1:], `$\`) + 1
			if end == 0 {
				end = len(rest)
			}
			parts = append(parts, part{text: rest[:end]})
			rest = rest[end:]
			continue
		}
		name, after, err := variable(rest[1:])
		if err != nil {
			return fail(err.Error())
		}
		path, ok := strings.CutPrefix(name, bodyPrefix)
		if !ok {
			return fail(fmt.Sprintf("variable %q is not of the form request.body.path", name))
		}
		steps := strings.Split(path, ".")
		for _, step := range steps {
			if step == "" || strings.ContainsAny(step, "[]") {
				return fail(fmt.Sprintf("path %q: it is made of object keys joined by dots", path))
			}
		}
		parts = append(parts, part{path: steps})
		rest = after
	}
	return parts, nil
}

// variable splits s, which follows a dollar sign, into the variable's name and the rest.
func variable(s string) (name, rest string, err error) {
	if inner, ok := strings.CutPrefix(s, "{"); ok {
		name, rest, ok = strings.Cut(inner, "}")
		if !ok {
			return "", "", errors.New("a ${ is not closed")
		}
		return name, rest, nil
	}
	end := strings.IndexFunc(s, func(r rune) bool { return !isNameRune(r) })
	if end < 0 {
		return s, "", nil
	}
	if s[end] == '-' {
		// Where the service ends such a name is not documented, so do not guess.
		return "", "", fmt.Errorf("write ${...} to show whether $%s ends before the %q", s[:end], "-")
	}
	return s[:end], s[end:], nil
}

func isNameRune(r rune) bool {
	return r == '.' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

// Key evaluates the expression for one message. A path that leads nowhere is the empty string; so
// is every path of a message that is no JSON object.
func (e Expression) Key(message []byte) string {
	var key strings.Builder
	for _, p := range e {
		if p.path == nil {
			key.WriteString(p.text)
			continue
		}
		key.WriteString(At(message, p.path))
	}
	return key.String()
}

// At is the text at a path of object keys in a JSON document, "" if there is nothing.
func At(document json.RawMessage, path []string) string {
	for _, step := range path {
		var object map[string]json.RawMessage
		if json.Unmarshal(document, &object) != nil {
			return ""
		}
		document = object[step]
	}
	var text string
	if json.Unmarshal(document, &text) == nil {
		return text // a string; null leaves it empty
	}
	var compact bytes.Buffer
	if json.Compact(&compact, document) != nil {
		return ""
	}
	return compact.String()
}
