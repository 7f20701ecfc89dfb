package template

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// evaluation gives the names in a document their values. It is lazy: shallow
// evaluates one node, the nodes below it when they are read. So what has no meaning
// locally may use functions that only the cloud can evaluate.
type evaluation struct {
	*document
	Options
	params     map[string]parameter
	conditions map[string]*condition
	resources  map[string]*resource
	order      []string // of resources, as in the template
	ignored    []string
	pseudo     map[string]string

	// conditionsOnly is set while conditions are evaluated, which in
	// CloudFormation is before any resource exists.
	conditionsOnly bool
}

// broken stands for a value that could not be evaluated; the mistake is reported.
var broken = &yaml.Node{}

func newEvaluation(d *document, o Options) *evaluation {
	o.StackName = cmp.Or(o.StackName, "inorder")
	o.Region = cmp.Or(o.Region, "us-east-1")
	o.AccountID = cmp.Or(o.AccountID, "000000000000")
	e := &evaluation{
		document:   d,
		Options:    o,
		params:     map[string]parameter{},
		conditions: map[string]*condition{},
		resources:  map[string]*resource{},
	}
	partition, suffix := partition(o.Region)
	e.pseudo = map[string]string{
		"AWS::Region":    o.Region,
		"AWS::AccountId": o.AccountID,
		"AWS::StackName": o.StackName,
		"AWS::Partition": partition,
		"AWS::URLSuffix": suffix,
		"AWS::StackId": fmt.Sprintf("arn:%s:cloudformation:%s:%s:stack/%s/%s",
			partition, o.Region, o.AccountID, o.StackName, shortID(o.StackName)),
	}
	return e
}

// partition returns a region's ARN partition and its domain, as "AWS partitions" in
// the AWS Fault Isolation Boundaries paper and AWS::URLSuffix describe them.
func partition(region string) (name, suffix string) {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "aws-cn", "amazonaws.com.cn"
	case strings.HasPrefix(region, "us-gov-"):
		return "aws-us-gov", "amazonaws.com"
	default:
		return "aws", "amazonaws.com"
	}
}

// shortID makes up a physical id of ten lower-case letters and digits, the same in
// every run.
func shortID(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:10])
}

// localize replaces the cloud's addresses, of APIs and of queues, with the local ones.
func (e *evaluation) localize(s string) string {
	if e.QueueBase != "" {
		s = strings.ReplaceAll(s, fmt.Sprintf("https://sqs.%s.%s", e.Region, e.pseudo["AWS::URLSuffix"]), e.QueueBase)
	}
	for _, r := range e.resources {
		if r.typ != typeWebSocketAPI {
			continue
		}
		host := fmt.Sprintf("%s.execute-api.%s.%s", e.apiID(r), e.Region, e.pseudo["AWS::URLSuffix"])
		if e.HTTPBase != "" {
			s = strings.ReplaceAll(s, "https://"+host, e.HTTPBase)
		}
		if e.WSBase != "" {
			s = strings.ReplaceAll(s, "wss://"+host, e.WSBase)
		}
	}
	return s
}

func (e *evaluation) apiID(r *resource) string { return shortID(e.StackName, r.id) }

// text reads a scalar as CloudFormation passes it on as a string; "" if it is
// absent, broken, or (reported) no scalar.
func (e *evaluation) text(n *yaml.Node) string {
	switch {
	case n == nil || n == broken:
		return ""
	case n.Kind != yaml.ScalarNode || n.Tag == "!!null":
		e.fail(n, "want a string, not %s", describe(n))
		return ""
	case strings.Contains(n.Value, "{{resolve:"):
		e.fail(n, "a dynamic reference cannot be resolved locally; make it a parameter")
		return ""
	}
	if b, ok := boolean(n); ok && n.Style == 0 {
		return fmt.Sprint(b) // YAML's yes, On and True all arrive as "true"
	}
	return n.Value
}

// filled is text for a value that must not be empty; ok is false if it is absent or wrong.
func (e *evaluation) filled(n *yaml.Node) (_ string, ok bool) {
	before := len(e.errs)
	s := e.text(n)
	if n == nil || n == broken || len(e.errs) > before {
		return "", false
	}
	if s == "" {
		e.fail(n, "must not be empty")
	}
	return s, s != ""
}

// boolean reads the words that YAML 1.1, which CloudFormation reads, takes for a boolean.
func boolean(n *yaml.Node) (value, ok bool) {
	switch n.Value {
	case "true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON":
		return true, true
	case "false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF":
		return false, true
	}
	return false, false
}

// items evaluates a list's elements, leaving out AWS::NoValue and what is broken.
func (e *evaluation) items(n *yaml.Node) []*yaml.Node {
	switch {
	case n == nil || n == broken:
		return nil
	case n.Kind != yaml.SequenceNode:
		e.fail(n, "want a list, not %s", describe(n))
		return nil
	}
	var list []*yaml.Node
	for _, item := range n.Content {
		if v := e.shallow(item); v != nil && v != broken {
			list = append(list, v)
		}
	}
	return list
}

// texts reads a list of strings.
func (e *evaluation) texts(n *yaml.Node) []string {
	var list []string
	for _, item := range e.items(n) {
		list = append(list, e.text(item))
	}
	return list
}

// note records that something in the template has no effect locally, as a mistake
// would be reported: with file, line and path.
func (e *evaluation) note(n *yaml.Node, format string, args ...any) {
	at := e.places[n]
	e.ignored = append(e.ignored, (&Error{File: e.file, Line: at.line, Path: at.path, Message: fmt.Sprintf(format, args...)}).Error())
}
