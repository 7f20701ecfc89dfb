// Package metrictest checks log lines by the rules of CloudWatch's embedded
// metric format.
package metrictest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/inorder-im/inorder/shared/metric"
)

// document is what the rules are about (CloudWatch User Guide, "Specification:
// Embedded metric format", JSON schema).
type document struct {
	AWS *struct {
		Timestamp         *int64
		CloudWatchMetrics []struct {
			Namespace  string
			Dimensions [][]string
			Metrics    []struct{ Name, Unit string }
		}
	} `json:"_aws"`
}

var units = regexp.MustCompile(`^(Count|Milliseconds)$`) // of those there are, the ones used here

// Published returns the values of the metrics that CloudWatch would take from a
// line, none if it has no metadata. The error says which rule the line breaks, or
// that a metric is none of ours or has another dimension than ours.
func Published(line []byte) (map[metric.Name][]float64, error) {
	var doc document
	var members map[string]json.RawMessage
	if err := json.Unmarshal(line, &members); err != nil {
		return nil, fmt.Errorf("a line that is no JSON object: %w", err)
	}
	if members["_aws"] == nil {
		return nil, nil
	}
	strict := json.NewDecoder(bytes.NewReader(members["_aws"]))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&doc.AWS); err != nil {
		return nil, fmt.Errorf("_aws: %w", err)
	}
	if len(line) > 256<<10 {
		return nil, fmt.Errorf("the line has %d bytes", len(line))
	}
	// Seconds would be taken for a day in 1970: older than two weeks, and dropped.
	if doc.AWS.Timestamp == nil || *doc.AWS.Timestamp < 1e12 {
		return nil, fmt.Errorf("the Timestamp is no number of milliseconds")
	}
	if len(doc.AWS.CloudWatchMetrics) != 1 {
		return nil, fmt.Errorf("%d directives", len(doc.AWS.CloudWatchMetrics))
	}
	d := doc.AWS.CloudWatchMetrics[0]
	if d.Namespace != metric.Namespace {
		return nil, fmt.Errorf("the namespace is %q", d.Namespace)
	}
	if len(d.Dimensions) != 1 || !slices.Equal(d.Dimensions[0], []string{metric.Dimension}) {
		return nil, fmt.Errorf("the dimensions are %v; each set is billed as a metric of its own", d.Dimensions)
	}
	var stack string
	if err := json.Unmarshal(members[metric.Dimension], &stack); err != nil || stack == "" || len(stack) > 1024 {
		return nil, fmt.Errorf("the dimension's member is %s", members[metric.Dimension])
	}
	if len(d.Metrics) == 0 || len(d.Metrics) > 100 {
		return nil, fmt.Errorf("%d metrics", len(d.Metrics))
	}
	values := map[metric.Name][]float64{}
	for _, m := range d.Metrics {
		name := metric.Name(m.Name)
		switch {
		case !slices.Contains(metric.Names(), name):
			return nil, fmt.Errorf("there is no metric %q", name)
		case values[name] != nil:
			return nil, fmt.Errorf("%s is defined twice", name)
		case !units.MatchString(m.Unit):
			return nil, fmt.Errorf("%s has the unit %q", name, m.Unit)
		case bytes.Count(line, []byte(`"`+m.Name+`":`)) != 1:
			return nil, fmt.Errorf("%s is not one member of the line", name)
		}
		found, err := numbers(members[m.Name])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		values[name] = found
	}
	return values, nil
}

// numbers reads a metric's target: a number, or a list of up to a hundred.
func numbers(target json.RawMessage) ([]float64, error) {
	var one float64
	if json.Unmarshal(target, &one) == nil && string(target) != "null" {
		return []float64{one}, nil
	}
	var many []float64
	if err := json.Unmarshal(target, &many); err != nil {
		return nil, fmt.Errorf("%q is no number and no list of numbers", target)
	}
	if len(many) == 0 || len(many) > 100 {
		return nil, fmt.Errorf("%d values", len(many))
	}
	return many, nil
}
