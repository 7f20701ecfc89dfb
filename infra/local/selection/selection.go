// Package selection has the expression by which a WebSocket API finds the route of a
// message (API Gateway, "WebSocket selection expressions"). Of what there is in the
// cloud it is one path into the message.
package selection

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// Path is the object keys that lead to a value in the message's JSON.
type Path []string

var form = regexp.MustCompile(`^\$request\.body\.(\w+(?:\.\w+)*)$`)

// Parse understands $request.body.action, where action may be several keys joined by
// dots.
func Parse(expression string) (Path, error) {
	found := form.FindStringSubmatch(expression)
	if found == nil {
		return nil, fmt.Errorf("%q is not of the form $request.body.action", expression)
	}
	return strings.Split(found[1], "."), nil
}

// Key is the text at the path in a message. A path that leads nowhere is the empty
// string; so is every path of a message that is no JSON object.
func (p Path) Key(message []byte) string {
	for _, step := range p {
		var object map[string]json.RawMessage
		if json.Unmarshal(message, &object) != nil {
			return ""
		}
		message = object[step]
	}
	var text string
	if json.Unmarshal(message, &text) == nil {
		return text // a string; null leaves it empty
	}
	var compact bytes.Buffer
	if json.Compact(&compact, message) != nil {
		return ""
	}
	return compact.String()
}
