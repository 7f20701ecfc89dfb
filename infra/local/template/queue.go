package template

import (
	"regexp"
	"time"

	"go.yaml.in/yaml/v3"
)

// queueName is what SQS takes (API reference, "CreateQueue"). A queue is a file of
// that name, too.
var queueName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,80}$`)

// Limits of a queue, in seconds: "CreateQueue" in the SQS API reference.
const (
	maxDelaySeconds      = 900
	maxVisibilitySeconds = 12 * 3600
	minRetentionSeconds  = 60
	maxRetentionSeconds  = 14 * 24 * 3600
	maxReceiveCount      = 1000
)

func (e *evaluation) queue(r *resource) *Queue {
	o := e.properties(r)
	if o.bool("FifoQueue", false) {
		e.fail(o.get("FifoQueue"), "Lambda gives up records to standard queues only, and the local cloud has no others")
	}
	name := e.value(r, "{name}")
	if n := o.get("QueueName"); n != nil && name != "" && !queueName.MatchString(name) {
		e.fail(n, "a queue's name has up to 80 letters, digits, - and _, not %q", name)
	}
	q := &Queue{
		LogicalID:  r.id,
		Name:       name,
		ARN:        e.value(r, r.kind.attrs["Arn"]),
		URL:        e.value(r, r.kind.ref),
		Visibility: e.visibility(r),
		Delay:      o.seconds("DelaySeconds", 0, 0, maxDelaySeconds),
		Retention:  o.seconds("MessageRetentionPeriod", 4*24*3600, minRetentionSeconds, maxRetentionSeconds),
		Line:       e.line(r),
	}
	if policy, ok := o.object("RedrivePolicy"); ok {
		policy.only(set("deadLetterTargetArn maxReceiveCount"), "a redrive policy")
		policy.need("maxReceiveCount")
		q.MaxReceives = policy.int("maxReceiveCount", 1, 1, maxReceiveCount)
		q.DeadLetters = e.queueID(policy.need("deadLetterTargetArn"))
	}
	return q
}

func (e *evaluation) visibility(r *resource) time.Duration {
	return e.properties(r).seconds("VisibilityTimeout", 30, 0, maxVisibilitySeconds)
}

func (o object) seconds(name string, def, lowest, highest int) time.Duration {
	return time.Duration(o.int(name, def, lowest, highest)) * time.Second
}

// queueAt finds the queue that an evaluated ARN means.
func (e *evaluation) queueAt(n *yaml.Node) *resource {
	arn, ok := e.filled(n)
	if !ok {
		return nil
	}
	for r := range e.existing(typeQueue) {
		if e.value(r, r.kind.attrs["Arn"]) == arn {
			return r
		}
	}
	e.fail(n, "%q is not the ARN of a queue of this template", arn)
	return nil
}

func (e *evaluation) queueID(n *yaml.Node) string {
	if r := e.queueAt(n); r != nil {
		return r.id
	}
	return ""
}

// queueMappingProperties are those of an SQS event ("SQS" in the AWS SAM developer guide).
var queueMappingProperties = set(`BatchSize Enabled FunctionResponseTypes MaximumBatchingWindowInSeconds Queue ScalingConfig

	KmsKeyArn MetricsConfig`)

// addQueueMapping reads an SQS event. The limits are those of Lambda's API reference,
// CreateEventSourceMapping; its batches of more than ten messages are made of several
// requests, which the local cloud does not do.
func (e *evaluation) addQueueMapping(f *Function, id string, o object) {
	o.only(queueMappingProperties, "an SQS event")
	n := o.need("Queue")
	m := QueueMapping{
		LogicalID:               id,
		BatchSize:               o.int("BatchSize", 10, 1, 10),
		BatchingWindow:          o.seconds("MaximumBatchingWindowInSeconds", 0, 0, 300),
		ReportBatchItemFailures: e.reportsFailures(o),
		Line:                    o.line(),
	}
	if scaling, ok := o.object("ScalingConfig"); ok {
		scaling.only(set("MaximumConcurrency"), "ScalingConfig")
		m.MaxConcurrency = scaling.int("MaximumConcurrency", 0, 2, 1000)
	}
	if q := e.queueAt(n); q != nil {
		m.QueueID = q.id
		if visible := e.visibility(q); visible < f.Timeout {
			e.fail(n, "Lambda wants the VisibilityTimeout of %s, %d seconds, to be at least the function's Timeout, %d seconds",
				q.id, int(visible.Seconds()), int(f.Timeout.Seconds()))
		}
	}
	if !o.bool("Enabled", true) {
		e.note(o.node, "the mapping is not enabled")
		return
	}
	f.Queues = append(f.Queues, m)
}

func (e *evaluation) reportsFailures(o object) (reports bool) {
	for _, n := range o.items("FunctionResponseTypes") {
		if s := e.text(n); s != "ReportBatchItemFailures" {
			e.fail(n, "%q is not understood: want ReportBatchItemFailures", s)
		}
		reports = true
	}
	return reports
}
