package metric_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/inorder-im/inorder/shared/metric"
)

// resource is what of the template's resources the tests look at. Values of
// intrinsic functions are their argument, as written.
type resource struct {
	Type       string `yaml:"Type"`
	Condition  string `yaml:"Condition"`
	Properties struct {
		AlarmDescription string    `yaml:"AlarmDescription"`
		MetricName       string    `yaml:"MetricName"`
		Namespace        string    `yaml:"Namespace"`
		Unit             string    `yaml:"Unit"`
		TreatMissingData string    `yaml:"TreatMissingData"`
		AlarmActions     []string  `yaml:"AlarmActions"`
		Metrics          yaml.Node `yaml:"Metrics"`
		Dimensions       []struct {
			Name  string    `yaml:"Name"`
			Value yaml.Node `yaml:"Value"`
		} `yaml:"Dimensions"`
		DashboardBody string   `yaml:"DashboardBody"`
		QueryString   string   `yaml:"QueryString"`
		LogGroupNames []string `yaml:"LogGroupNames"`

		FilterPattern         string `yaml:"FilterPattern"`
		MetricTransformations []struct {
			MetricNamespace string `yaml:"MetricNamespace"`
			MetricName      string `yaml:"MetricName"`
		} `yaml:"MetricTransformations"`
	} `yaml:"Properties"`
}

func resources(t *testing.T, typ string) map[string]resource {
	t.Helper()
	raw, err := os.ReadFile("../../template.yaml")
	require.NoError(t, err)
	var doc struct {
		Resources map[string]yaml.Node `yaml:"Resources"`
	}
	require.NoError(t, yaml.Unmarshal(raw, &doc))
	found := map[string]resource{}
	for id, node := range doc.Resources {
		var kind struct {
			Type string `yaml:"Type"`
		}
		require.NoError(t, node.Decode(&kind))
		if kind.Type != typ {
			continue
		}
		var r resource
		require.NoError(t, node.Decode(&r), id)
		found[id] = r
	}
	require.NotEmpty(t, found)
	return found
}

// anchors are the sections of the runbooks, as links name them.
func anchors(t *testing.T) []string {
	t.Helper()
	raw, err := os.ReadFile("../../infra/RUNBOOKS.md")
	require.NoError(t, err)
	var list []string
	for _, heading := range regexp.MustCompile(`(?m)^## (.+)$`).FindAllStringSubmatch(string(raw), -1) {
		anchor := regexp.MustCompile(`[^a-z0-9 -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		list = append(list, strings.ReplaceAll(anchor, " ", "-"))
	}
	return list
}

func TestAlarms(t *testing.T) {
	t.Parallel()
	sections := anchors(t)
	watched := map[string]bool{}
	for id, r := range resources(t, "AWS::CloudWatch::Alarm") {
		p := r.Properties
		require.Equal(t, "notBreaching", p.TreatMissingData, "%s: an idle product is quiet", id)
		require.Equal(t, []string{"AlarmTopic"}, p.AlarmActions, id)
		_, anchor, linked := strings.Cut(p.AlarmDescription, "${RunbookUrl}#")
		require.True(t, linked, "%s: %s", id, p.AlarmDescription)
		require.Contains(t, sections, anchor, "%s: infra/RUNBOOKS.md has no such section", id)
		watched[anchor] = true
		if p.Namespace != metric.Namespace {
			require.True(t, strings.HasPrefix(p.Namespace, "AWS/") || !p.Metrics.IsZero() || id == "ErrorLinesAlarm", id)
			require.Contains(t, []string{"AlarmsOn", "CrowdAlarmsOn"}, r.Condition, id)
			continue
		}
		require.Equal(t, "MetricAlarmsOn", r.Condition, id)
		require.Contains(t, metric.Names(), metric.Name(p.MetricName), "%s: no function emits this", id)
		require.Len(t, p.Dimensions, 1, id)
		require.Equal(t, metric.Dimension, p.Dimensions[0].Name, id)
		require.Equal(t, "!Ref AWS::StackName", p.Dimensions[0].Value.Tag+" "+p.Dimensions[0].Value.Value, id)
		require.Empty(t, p.Unit, "%s: an alarm with another unit than the line's never goes off", id)
	}
	for _, section := range sections {
		require.True(t, watched[section] || section == "what-it-costs", "no alarm leads to the runbook #%s", section)
	}
}

// What the documents say it costs is what there is. Ten metrics and ten alarms are free.
func TestCostsAreCounted(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../infra/RUNBOOKS.md")
	require.NoError(t, err)
	costs, err := os.ReadFile("../../infra/COSTS.md")
	require.NoError(t, err)
	dollars := func(many int, each float64) string { return fmt.Sprintf("$%.2f", float64(many-10)*each) }
	always := 0
	for _, name := range metric.Names() {
		if !strings.HasPrefix(string(name), "Invariant") {
			always++
		}
	}
	require.Contains(t, string(raw), fmt.Sprintf("%d custom metrics at most", always))
	require.Contains(t, string(raw), "at most "+dollars(always, 0.30)+" a month")
	require.Contains(t, string(costs), "at most "+dollars(always, 0.30)+" for metrics")
	alarms := resources(t, "AWS::CloudWatch::Alarm")
	watched, ours, ofCrowds := 0, 0, 0
	for _, r := range alarms {
		watched += max(1, len(r.Properties.Metrics.Content)-1) // one of a list is the sum
		if r.Condition == "CrowdAlarmsOn" {
			ofCrowds++
		}
		if r.Properties.Namespace == metric.Namespace {
			ours++
		}
	}
	require.Contains(t, string(raw), fmt.Sprintf("%d alarms on %d metrics", len(alarms), watched))
	require.Contains(t, string(raw), fmt.Sprintf("%s, and %s without crowds", dollars(watched, 0.10), dollars(watched-ofCrowds, 0.10)))
	require.Equal(t, 10, ours, "the runbooks say that ten need Metrics=on")
}

func TestDashboard(t *testing.T) {
	t.Parallel()
	boards := resources(t, "AWS::CloudWatch::Dashboard")
	require.Len(t, boards, 1)
	var board struct {
		Widgets []struct {
			X, Y, Width, Height int
			Properties          struct {
				Title, Region, Stat string
				Metrics             [][]any
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(boards["Dashboard"].Properties.DashboardBody), &board))
	shown, all := map[metric.Name]bool{}, 0
	for _, w := range board.Widgets {
		require.NotEmpty(t, w.Properties.Title)
		require.Equal(t, "${AWS::Region}", w.Properties.Region)
		require.NotEmpty(t, w.Properties.Metrics)
		for _, m := range w.Properties.Metrics {
			all++
			if m[0] != metric.Namespace {
				require.Contains(t, m[0], "AWS/")
				continue
			}
			name := metric.Name(m[1].(string))
			require.Contains(t, metric.Names(), name, "%s: no function emits this", w.Properties.Title)
			require.Equal(t, []any{metric.Dimension, "${AWS::StackName}"}, m[2:4], "%s: %s", w.Properties.Title, name)
			shown[name] = true
		}
	}
	for _, name := range metric.Names() {
		require.True(t, shown[name], "%s is on no widget", name)
	}
	require.LessOrEqual(t, all, 50, "a dashboard of more metrics is billed")
}

// fields are the members that lines have beside the metrics; the words of a query
// are these, or the query language's own, or made by it.
var (
	fields = strings.Fields(`level msg requestId connectionId userId conversationId seq messageId code reason err ms throttles`)
	spoken = strings.Fields(`filter ispresent and or stats count sum pct as by sort desc limit fields bin 5m
		writes attempts conflicts throttled p99 refusals timestamp logStream message ERROR WARN`)
)

func TestQueries(t *testing.T) {
	t.Parallel()
	for id, r := range resources(t, "AWS::Logs::QueryDefinition") {
		require.NotEmpty(t, r.Properties.LogGroupNames, id)
		for _, word := range regexp.MustCompile(`[A-Za-z][A-Za-z0-9]*|\d+[a-z]+`).FindAllString(r.Properties.QueryString, -1) {
			known := slices.Contains(spoken, word) || slices.Contains(fields, word) || slices.Contains(metric.Names(), metric.Name(word))
			require.True(t, known, "%s asks for %q, which no line has", id, word)
		}
		for _, group := range r.Properties.LogGroupNames {
			require.Equal(t, "Logs", group, "%s: all functions write to one group", id)
		}
	}
}

// A function that breaks off writes nothing: what a route calls is seen at the stage,
// each other function by its own errors. Who invokes publish is told of them.
func TestAFunctionThatBreaksOffIsSeen(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("../../template.yaml")
	require.NoError(t, err)
	byRoute := map[string]bool{"PublishFunction": true}
	for _, found := range regexp.MustCompile(`FunctionArn: !Select \[0, \[!GetAtt (\w+)\.Arn`).FindAllStringSubmatch(string(raw), -1) {
		byRoute[found[1]] = true
	}
	require.Len(t, byRoute, 9)
	alarms := resources(t, "AWS::CloudWatch::Alarm")
	for id := range resources(t, "AWS::Serverless::Function") {
		watched := slices.ContainsFunc(slices.Collect(maps.Values(alarms)), func(r resource) bool {
			d := r.Properties.Dimensions
			return r.Properties.MetricName == "Errors" && len(d) == 1 && d[0].Value.Value == id
		})
		require.NotEqual(t, byRoute[id], watched, id)
	}
	ofStage := alarms["ApiErrorsAlarm"].Properties.Metrics
	stage, err := yaml.Marshal(&ofStage)
	require.NoError(t, err)
	for _, name := range []string{"MetricName: IntegrationError", "MetricName: ExecutionError", "Value: !Ref Api", "Value: v1"} {
		require.Contains(t, string(stage), name)
	}
}

// Every line at error level counts, with metrics and without.
func TestErrorLinesAreCounted(t *testing.T) {
	t.Parallel()
	for _, o := range []metric.Options{on, {}} {
		require.Contains(t, write(t, o, slog.LevelError), `"level":"ERROR"`)
	}
	filter := resources(t, "AWS::Logs::MetricFilter")["ErrorLines"].Properties
	require.Equal(t, `{ $.level = "ERROR" }`, filter.FilterPattern)
	require.Len(t, filter.MetricTransformations, 1)
	alarm := resources(t, "AWS::CloudWatch::Alarm")["ErrorLinesAlarm"].Properties
	require.Equal(t, [2]string{alarm.Namespace, alarm.MetricName},
		[2]string{filter.MetricTransformations[0].MetricNamespace, filter.MetricTransformations[0].MetricName})
}
