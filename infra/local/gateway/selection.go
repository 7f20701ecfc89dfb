package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// selection is a parsed route selection expression: static text and paths into the message's JSON
// (API Gateway, "WebSocket selection expressions").
type selection []selectionPart

// selectionPart is static text, or the path of a variable.
type selectionPart struct {
	text string
	path []string
}

const bodyPrefix = "request.body."

// parseSelection understands $request.body.path, ${request.body.path}, static text between them
// and \$ for a dollar sign.
func parseSelection(expression string) (selection, error) {
	fail := func(why string) (selection, error) {
		return nil, fmt.Errorf("route selection expression %q: %s", expression, why)
	}
	if expression == "" {
		return fail("it is empty; the usual one is $request.body.action")
	}
	var parts selection
	for rest := expression; rest != ""; {
		if strings.HasPrefix(rest, `\$`) {
			parts = append(parts, selectionPart{text: "$"})
			rest = rest[2:]
			continue
		}
		if rest[0] != '$' {
			end := strings.IndexAny(rest[1:], `$\`) + 1
			if end == 0 {
				end = len(rest)
			}
			parts = append(parts, selectionPart{text: rest[:end]})
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
		parts = append(parts, selectionPart{path: steps})
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

// key evaluates the expression for one message. A path that leads nowhere is the empty string; so
// is every path of a message that is no JSON object.
func (s selection) key(message []byte) string {
	var key strings.Builder
	for _, part := range s {
		if part.path == nil {
			key.WriteString(part.text)
			continue
		}
		key.WriteString(valueAt(message, part.path))
	}
	return key.String()
}

func valueAt(document json.RawMessage, path []string) string {
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

// route finds the route of a message: the one whose key the expression yields, else $default. A
// message cannot name $connect or $disconnect: those belong to the connection's life.
func (g *Gateway) route(message []byte) (key string, route Route, ok bool) {
	if json.Valid(message) {
		key = g.selection.key(message)
		if route, ok = g.cfg.Routes[key]; ok && key != routeConnect && key != routeDisconnect {
			return key, route, true
		}
	}
	route, ok = g.cfg.Routes[routeDefault]
	return routeDefault, route, ok
}
