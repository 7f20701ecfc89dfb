package integration_test

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// CloudFormation's Number is any number, and no other thing than its bounds stands between
// a slip of the keyboard and functions that do not start. So functions take each number
// that the template takes, in halves too.
func TestParameters_FunctionsTakeEachNumberThatTheTemplateTakes(t *testing.T) {
	t.Parallel()
	needLocal(t)
	raw, err := os.ReadFile("../template.yaml")
	require.NoError(t, err)
	var doc struct {
		Parameters map[string]struct {
			Type     string   `yaml:"Type"`
			MinValue *float64 `yaml:"MinValue"`
			MaxValue *float64 `yaml:"MaxValue"`
		} `yaml:"Parameters"`
		Resources map[string]struct {
			Type string `yaml:"Type"`
		} `yaml:"Resources"`
	}
	require.NoError(t, yaml.Unmarshal(raw, &doc))
	var least, most []string
	for _, variable := range regexp.MustCompile(`(?m)^ +[A-Z_]+: !Ref (\w+)$`).FindAllStringSubmatch(string(raw), -1) {
		name := variable[1]
		p, ok := doc.Parameters[name]
		if !ok || p.Type != "Number" {
			continue
		}
		if p.MinValue == nil || p.MaxValue == nil {
			t.Errorf("template.yaml: %s has no MinValue or no MaxValue, and functions take no number whatever it is", name)
			continue
		}
		for args, value := range map[*[]string]float64{&least: *p.MinValue + 0.5, &most: *p.MaxValue - 0.5} {
			*args = append(*args, "-param", name+"="+strconv.FormatFloat(value, 'f', -1, 64))
		}
	}
	require.Greater(t, len(most), 2*15)
	for name, args := range map[string][]string{"the least": least, "the most": most} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startCloud(t, args...)
			functions := 0
			for name, r := range doc.Resources {
				if r.Type != "AWS::Serverless::Function" {
					continue
				}
				functions++
				// What it says of an event of nothing is its own matter.
				_, err := invoke[any](t.Context(), c.Stack, name, []byte(`{}`))
				if err != nil && (strings.Contains(err.Error(), "exit") || strings.Contains(err.Error(), "start")) {
					t.Errorf("%s: %v", name, err)
				}
			}
			require.Greater(t, functions, 10)
		})
	}
}
