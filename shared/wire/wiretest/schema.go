package wiretest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// schemas are those of the AsyncAPI document's messages, by name.
type schemas struct{ of map[string]*jsonschema.Schema }

func loadSchemas(path string) (*schemas, error) {
	raw, err := os.ReadFile(path) //nolint:gosec // the test's own
	if err != nil {
		return nil, err
	}
	var document map[string]any
	if err := yaml.Unmarshal(raw, &document); err != nil {
		return nil, err
	}
	asJSON, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	plain, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft7) // what AsyncAPI's own schemas are
	if err := compiler.AddResource("asyncapi.json", plain); err != nil {
		return nil, err
	}
	s := &schemas{map[string]*jsonschema.Schema{}}
	messages := document["components"].(map[string]any)["messages"].(map[string]any)
	for name := range messages {
		if s.of[name], err = compiler.Compile("asyncapi.json#/components/messages/" + name + "/payload"); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// exchange checks a request and its answer. What is no request of the document is not
// carried out.
func (s *schemas) exchange(request []byte, answer any) error {
	frame, _ := answer.(map[string]any)
	if frame["type"] == "reply" {
		action, _ := frame["action"].(string)
		var asked any
		if err := json.Unmarshal(request, &asked); err != nil {
			return fmt.Errorf("what is no JSON is carried out: %w", err)
		}
		if object, ok := asked.(map[string]any); ok { // null is as if it were not there
			maps.DeleteFunc(object, func(_ string, value any) bool { return value == nil })
		}
		if err := s.check(action, asked); err != nil {
			return fmt.Errorf("a request that the document does not know is carried out: %w", err)
		}
		return s.check(action+"Reply", answer)
	}
	return s.check("error", answer)
}

func (s *schemas) check(name string, frame any) error {
	schema, ok := s.of[name]
	if !ok {
		return fmt.Errorf("the document has no %s", name)
	}
	return schema.Validate(frame)
}
