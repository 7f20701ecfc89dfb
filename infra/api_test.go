package infra_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// refs are the names that a value refers to.
func refs(n yaml.Node) []string {
	var names []string
	switch n.Tag {
	case "!Ref", "!GetAtt":
		name, _, _ := strings.Cut(n.Value, ".")
		names = append(names, name)
	}
	for _, item := range n.Content {
		names = append(names, refs(*item)...)
	}
	return names
}

// apiParts returns what the API is made of, by the names that SAM gives it, each with
// what it refers to.
func apiParts(t *testing.T, template string) map[string][]string {
	t.Helper()
	var doc struct {
		Resources map[string]struct {
			Type       string `yaml:"Type"`
			Properties struct {
				Auth          map[string]yaml.Node `yaml:"Auth"`
				Routes        map[string]yaml.Node `yaml:"Routes"`
				RouteSettings map[string]yaml.Node `yaml:"RouteSettings"`
				RouteID       yaml.Node            `yaml:"RouteId"`
			} `yaml:"Properties"`
		} `yaml:"Resources"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(template), &doc))
	parts := map[string][]string{}
	for id, r := range doc.Resources {
		switch r.Type {
		case "AWS::ApiGatewayV2::RouteResponse":
			parts[id] = refs(r.Properties.RouteID)
		case "AWS::Serverless::WebSocketApi":
			require.NotEmpty(t, r.Properties.RouteSettings, "SAM has the stage wait for the routes only if one has settings")
			authorizer := id + "ConnectAuthorizer"
			parts[authorizer] = refs(r.Properties.Auth["AuthArn"])
			stage := &[]string{}
			for key, route := range r.Properties.Routes {
				name := strings.ToLower(strings.TrimPrefix(key, "$"))
				name = id + strings.ToUpper(name[:1]) + name[1:]
				parts[name+"Integration"] = refs(route)
				parts[name+"Route"] = []string{name + "Integration"}
				if key == "$connect" {
					parts[name+"Route"] = append(parts[name+"Route"], authorizer)
				}
				*stage = append(*stage, name+"Route")
			}
			parts[id+"v1Stage"] = *stage
		}
	}
	return parts
}

// oneByOne returns the only order in which CloudFormation can make the parts, or the
// parts that it would make at once.
func oneByOne(parts map[string][]string) (order, together []string) {
	made := map[string]bool{}
	for len(order) < len(parts) {
		var ready []string
		for id, needs := range parts {
			waits := slices.ContainsFunc(needs, func(need string) bool { return parts[need] != nil && !made[need] })
			if !made[id] && !waits {
				ready = append(ready, id)
			}
		}
		if len(ready) != 1 {
			slices.Sort(ready)
			return order, ready
		}
		made[ready[0]] = true
		order = append(order, ready[0])
	}
	return order, nil
}

// API Gateway refuses changes of one API that are made in parallel.
func TestTheAPIIsMadeOnePartAfterTheOther(t *testing.T) {
	t.Parallel()
	template := read(t, "template.yaml")
	parts := apiParts(t, template)
	order, together := oneByOne(parts)
	require.Empty(t, together, "after %s these are made at once: each has to refer to the one before", order)
	require.Len(t, order, 1+22+22+19+1, "authorizer, integrations, routes, responses, stage")
	require.Equal(t, "Apiv1Stage", order[len(order)-1], "a stage before the last part is deployed anew for each that follows")

	_, together = oneByOne(apiParts(t, strings.Replace(template, "!Select [0, [!GetAtt AckFunction.Arn, !Ref ConversationsResponse]]", "!GetAtt AckFunction.Arn", 1)))
	require.Equal(t, []string{"ApiAckIntegration", "ApiConnectAuthorizer"}, together, "a link that is missing is seen")
}

// contextVariables are those that the line uses of what API Gateway knows of a
// WebSocket's request ("Configure logging for WebSocket APIs" in its guide).
var contextVariables = strings.Fields(`$context.requestId $context.connectionId $context.eventType $context.routeKey
	$context.status $context.authorizer.principalId $context.identity.sourceIp $context.error.responseType
	$context.authorizer.status $context.integration.status $context.integrationLatency`)

func TestTheAccessLogIsALineOfJSON(t *testing.T) {
	t.Parallel()
	var doc struct {
		Resources struct {
			API struct {
				Properties struct {
					AccessLogSettings yaml.Node `yaml:"AccessLogSettings"`
				} `yaml:"Properties"`
			} `yaml:"Api"`
		} `yaml:"Resources"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "template.yaml")), &doc))
	settings := doc.Resources.API.Properties.AccessLogSettings
	require.Equal(t, "!If", settings.Tag)
	require.Equal(t, "AccessLogsOn", settings.Content[0].Value)
	var log struct {
		Format string `yaml:"Format"`
	}
	require.NoError(t, settings.Content[1].Decode(&log))
	require.NotContains(t, log.Format, "\n")
	var line map[string]string
	require.NoError(t, json.Unmarshal([]byte(log.Format), &line))
	require.Contains(t, log.Format, "$context.requestId", "API Gateway wants it")
	for _, variable := range regexp.MustCompile(`\$[\w.]+`).FindAllString(log.Format, -1) {
		require.Contains(t, contextVariables, variable)
	}
}
