package template

import (
	"encoding/json"
	"regexp"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/inorder-im/inorder/infra/local/cron"
)

// Schedule invokes a function again and again: a Schedule event of it that is
// switched on.
type Schedule struct {
	LogicalID string // of the rule that SAM makes of the event
	ARN       string
	Every     time.Duration    // the interval of a rate, 0 if there is a Cron
	Cron      *cron.Expression // nil for a rate
	Input     string           // JSON that the function gets instead of the event, "" for that
	Line      int
}

// typeRule is what SAM makes of a Schedule event ("Schedule" in the AWS SAM developer
// guide).
const typeRule = "AWS::Events::Rule"

var scheduleProperties = set(`Enabled Input Schedule State

	DeadLetterConfig Description Name RetryPolicy`)

// addSchedule reads a Schedule event.
func (e *evaluation) addSchedule(f *Function, name string, o object) {
	n := o.need("Properties")
	props, ok := e.object(n)
	if !ok {
		return
	}
	props.only(scheduleProperties, "a Schedule event")
	if !e.enabled(props) {
		e.note(n, "the schedule is switched off")
		return
	}
	s := Schedule{
		LogicalID: f.LogicalID + name,
		Input:     props.text("Input"),
		Line:      props.line(),
	}
	s.Every, s.Cron = e.times(props.need("Schedule"))
	if s.Input != "" && !json.Valid([]byte(s.Input)) {
		e.fail(props.get("Input"), "the input of a function is JSON")
	}
	if r := e.resources[s.LogicalID]; r != nil {
		s.ARN = e.value(r, r.kind.attrs["Arn"])
	}
	f.Schedules = append(f.Schedules, s)
}

func (e *evaluation) enabled(o object) bool {
	enabled, state := o.get("Enabled"), o.get("State")
	switch {
	case enabled != nil && state != nil:
		e.fail(state, "State and Enabled say the same; SAM takes one of them")
		return true
	case state == nil:
		return o.bool("Enabled", true)
	default:
		return o.choice("State", "ENABLED", "DISABLED") != "DISABLED"
	}
}

var (
	rateForm = regexp.MustCompile(`^rate\(([1-9][0-9]*) (minute|hour|day)(s?)\)$`)
	cronForm = regexp.MustCompile(`^cron\((.*)\)$`)
)

// times reads a schedule expression ("Rate expressions" and "Cron expressions" in the
// EventBridge user guide). A rule of EventBridge wants the singular for 1 and else the
// plural.
func (e *evaluation) times(n *yaml.Node) (time.Duration, *cron.Expression) {
	s, ok := e.filled(n)
	if !ok {
		return 0, nil
	}
	if m := cronForm.FindStringSubmatch(s); m != nil {
		expression, err := cron.Parse(m[1])
		if err != nil {
			e.fail(n, "%s: %v", s, err)
		}
		return 0, expression
	}
	m := rateForm.FindStringSubmatch(s)
	if m == nil {
		e.fail(n, "the local cloud runs schedules such as rate(5 minutes), rate(1 hour), rate(2 days) or cron(0 3 * * ? *), not %s", s)
		return 0, nil
	}
	if (m[1] == "1") != (m[3] == "") {
		e.fail(n, "EventBridge wants rate(1 %s), and the plural for more than 1, not %s", m[2], s)
		return 0, nil
	}
	count, err := strconv.Atoi(m[1])
	unit := map[string]time.Duration{"minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour}[m[2]]
	if err != nil || count > maxScheduleDays*int(24*time.Hour/unit) {
		e.fail(n, "%s is longer than %d days", s, maxScheduleDays)
		return 0, nil
	}
	return time.Duration(count) * unit, nil
}

// maxScheduleDays keeps a rate within time.Duration, which is 292 years.
const maxScheduleDays = 365 * 100
