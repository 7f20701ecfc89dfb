package stream_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/stretchr/testify/require"

	"inorder/infra/local/stream"
)

func filters(patterns ...string) []json.RawMessage {
	var f []json.RawMessage
	for _, p := range patterns {
		f = append(f, json.RawMessage(p))
	}
	return f
}

func TestFilters(t *testing.T) {
	t.Parallel()
	image := map[string]types.AttributeValue{
		"kind":   &types.AttributeValueMemberS{Value: "group"},
		"title":  &types.AttributeValueMemberS{Value: ""},
		"seq":    &types.AttributeValueMemberN{Value: "101"},
		"closed": &types.AttributeValueMemberBOOL{Value: false},
		"gone":   &types.AttributeValueMemberNULL{Value: true},
		"tags":   &types.AttributeValueMemberSS{Value: []string{"red", "Green"}},
		"none":   &types.AttributeValueMemberL{},
		"owner": &types.AttributeValueMemberM{Value: map[string]types.AttributeValue{
			"name": &types.AttributeValueMemberS{Value: "Alice"}}},
		"list": &types.AttributeValueMemberL{Value: []types.AttributeValue{
			&types.AttributeValueMemberS{Value: "x"}, &types.AttributeValueMemberN{Value: "7"}}},
	}
	attribute := func(name, rule string) string {
		return `{"dynamodb": {"NewImage": {"` + name + `": ` + rule + `}}}`
	}
	tests := []struct {
		name    string
		pattern string
		want    bool
	}{
		{"event name", `{"eventName": ["INSERT"]}`, true},
		{"other event name", `{"eventName": ["REMOVE"]}`, false},
		{"one of several", `{"eventName": ["MODIFY", "INSERT"]}`, true},
		{"as a string, as in a template", `"{\"eventName\": [\"REMOVE\"]}"`, false},
		{"string", attribute("kind", `{"S": ["group"]}`), true},
		{"strings have case", attribute("kind", `{"S": ["Group"]}`), false},
		{"empty string", attribute("title", `{"S": [""]}`), true},
		{"number as string", attribute("seq", `{"N": ["101"]}`), true},
		{"number is no number", attribute("seq", `{"N": [101]}`), false},
		{"numeric does not see strings", attribute("seq", `{"N": [{"numeric": [">", 100]}]}`), false},
		{"bool", attribute("closed", `{"BOOL": [false]}`), true},
		{"other bool", attribute("closed", `{"BOOL": [true]}`), false},
		{"null attribute", attribute("gone", `{"NULL": [true]}`), true},
		{"json null", attribute("gone", `{"NULL": [null]}`), false},
		{"set element", attribute("tags", `{"SS": ["red"]}`), true},
		{"no set element", attribute("tags", `{"SS": ["blue"]}`), false},
		{"list element", attribute("list", `{"L": {"N": ["7"]}}`), true},
		{"no list element", attribute("list", `{"L": {"N": ["8"]}}`), false},
		{"map", attribute("owner", `{"M": {"name": {"S": ["Alice"]}}}`), true},
		{"all fields count", `{"eventName": ["INSERT"], "dynamodb": {"NewImage": {"kind": {"S": ["single"]}}}}`, false},
		{"missing image", `{"dynamodb": {"OldImage": {"kind": {"S": ["group"]}}}}`, false},

		{"prefix", attribute("kind", `{"S": [{"prefix": "gr"}]}`), true},
		{"no prefix", attribute("kind", `{"S": [{"prefix": "si"}]}`), false},
		{"prefix of a missing field", attribute("nothing", `{"S": [{"prefix": ""}]}`), false},
		{"prefix ignoring case", attribute("kind", `{"S": [{"prefix": {"equals-ignore-case": "GR"}}]}`), true},
		{"suffix", attribute("kind", `{"S": [{"suffix": "oup"}]}`), true},
		{"suffix ignoring case", attribute("kind", `{"S": [{"suffix": {"equals-ignore-case": "OUP"}}]}`), true},
		{"no suffix", attribute("kind", `{"S": [{"suffix": "OUP"}]}`), false},
		{"ignoring case", attribute("kind", `{"S": [{"equals-ignore-case": "GROUP"}]}`), true},
		{"ignoring case in a set", attribute("tags", `{"SS": [{"equals-ignore-case": "GREEN"}]}`), true},

		{"anything but", attribute("kind", `{"S": [{"anything-but": ["single", "system"]}]}`), true},
		{"anything but this", attribute("kind", `{"S": [{"anything-but": "group"}]}`), false},
		{"anything but a prefix", attribute("kind", `{"S": [{"anything-but": {"prefix": "gr"}}]}`), false},
		{"anything but suffixes", attribute("kind", `{"S": [{"anything-but": {"suffix": ["x", "y"]}}]}`), true},
		{"anything but ignoring case", attribute("kind", `{"S": [{"anything-but": {"equals-ignore-case": ["GROUP"]}}]}`), false},
		{"anything but needs a value", attribute("nothing", `{"S": [{"anything-but": "x"}]}`), false},

		{"exists", attribute("kind", `{"S": [{"exists": true}]}`), true},
		{"does not exist", attribute("nothing", `{"S": [{"exists": true}]}`), false},
		{"exists false", attribute("nothing", `{"S": [{"exists": false}]}`), true},
		{"exists false of what is there", attribute("kind", `{"S": [{"exists": false}]}`), false},
		{"exists looks at leaves only", attribute("kind", `[{"exists": true}]`), false},
		{"not at objects", attribute("kind", `[{"exists": false}]`), true},
		{"no old image", `{"dynamodb": {"OldImage": {"kind": {"S": [{"exists": false}]}}}}`, true},
		{"an empty list has no leaf", attribute("none", `{"L": [{"exists": true}]}`), false},
		{"missing or a value", attribute("nothing", `{"S": ["x", {"exists": false}]}`), true},

		{"numeric", `{"dynamodb": {"SizeBytes": [{"numeric": ["=", 26]}]}}`, true},
		{"numeric range", `{"dynamodb": {"SizeBytes": [{"numeric": [">", 20, "<=", 26]}]}}`, true},
		{"outside of a range", `{"dynamodb": {"SizeBytes": [{"numeric": [">=", 0, "<", 26]}]}}`, false},
		{"number", `{"dynamodb": {"SizeBytes": [26]}}`, true},
		{"numbers are compared as written", `{"dynamodb": {"SizeBytes": [26.0]}}`, false},

		{"or, first", `{"$or": [{"eventName": ["INSERT"]}, {"eventName": ["REMOVE"]}]}`, true},
		{"or, none", `{"$or": [{"eventName": ["MODIFY"]}, {"eventName": ["REMOVE"]}]}`, false},
		{"or within, and another", `{"dynamodb": {"StreamViewType": ["NEW_AND_OLD_IMAGES"], "NewImage": {"$or": [{"kind": {"S": ["x"]}}, {"seq": {"N": ["101"]}}]}}}`, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newScene()
				s.mapping.Filters = filters(test.pattern)
				s.streams.putItem("shard", time.Now(), map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: "a"}}, image)
				s.run(t, 5*time.Second)
				require.Equal(t, test.want, len(s.function.batches()) == 1)
			})
		})
	}
}

func TestOneFilterIsEnough(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.mapping.Filters = filters(`{"dynamodb": {"Keys": {"id": {"S": ["a"]}}}}`, `{"dynamodb": {"Keys": {"id": {"S": ["c"]}}}}`)
		s.streams.put("shard", time.Now(), "a", "b", "c")
		s.run(t, 5*time.Second)
		require.Equal(t, []string{"1 3"}, s.function.batches())
	})
}

func TestTimeToLiveDeletion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScene()
		s.mapping.Filters = filters(`{"userIdentity": {"type": ["Service"], "principalId": ["dynamodb.amazonaws.com"]}}`)
		s.streams.put("shard", time.Now(), "a", "b")
		s.streams.shards[0].records[1].EventName = types.OperationTypeRemove
		s.streams.shards[0].records[1].UserIdentity = &types.Identity{Type: aws.String("Service"), PrincipalId: aws.String("dynamodb.amazonaws.com")}
		s.run(t, 5*time.Second)
		require.Equal(t, []string{"2"}, s.function.batches())
		require.Contains(t, string(s.function.calls[0].payload),
			`"userIdentity":{"type":"Service","principalId":"dynamodb.amazonaws.com"}`)
	})
}

func TestValidate(t *testing.T) {
	t.Parallel()
	filter := func(pattern string) func(*stream.Mapping) {
		return func(m *stream.Mapping) { m.Filters = filters(`{"eventName": ["INSERT"]}`, pattern) }
	}
	tests := map[string]struct {
		change func(*stream.Mapping)
		want   string // "" for valid
	}{
		"the defaults": {func(*stream.Mapping) {}, ""},
		"the limits": {func(m *stream.Mapping) {
			m.BatchSize, m.BatchingWindow, m.MaxRetries, m.MaxRecordAge, m.ParallelizationFactor = 10_000, 300*time.Second, 10_000, 604_800*time.Second, 10
		}, ""},
		"no name":              {func(m *stream.Mapping) { m.Name = "" }, "needs a name"},
		"no function":          {func(m *stream.Mapping) { m.Function = "" }, "needs a function"},
		"no stream":            {func(m *stream.Mapping) { m.StreamARN = "" }, "needs a stream or a table"},
		"starting position":    {func(m *stream.Mapping) { m.StartingPosition = "AT_TIMESTAMP" }, `StartingPosition is "AT_TIMESTAMP"`},
		"batch size":           {func(m *stream.Mapping) { m.BatchSize = 10_001 }, "BatchSize is 10001"},
		"batching window":      {func(m *stream.Mapping) { m.BatchingWindow = 301 * time.Second }, "batching window"},
		"retries":              {func(m *stream.Mapping) { m.MaxRetries = -2 }, "retries is -2"},
		"age":                  {func(m *stream.Mapping) { m.MaxRecordAge = 604_801 * time.Second }, "record age"},
		"parallelization":      {func(m *stream.Mapping) { m.ParallelizationFactor = 11 }, "ParallelizationFactor is 11"},
		"unknown operator":     {filter(`{"eventName": [{"wildcard": "I*"}]}`), `filter 2: eventName: operator "wildcard" is not supported`},
		"cidr":                 {filter(`{"eventName": [{"cidr": "10.0.0.0/8"}]}`), `"cidr" is not supported`},
		"unknown anything-but": {filter(`{"eventName": [{"anything-but": {"wildcard": "I*"}}]}`), `anything-but does not support "wildcard"`},
		"empty anything-but":   {filter(`{"eventName": [{"anything-but": []}]}`), "anything-but is empty"},
		"anything-but bool":    {filter(`{"eventName": [{"anything-but": true}]}`), "anything-but wants strings or numbers"},
		"anything-but two":     {filter(`{"eventName": [{"anything-but": {"prefix": "a", "suffix": "b"}}]}`), "anything-but wants one operator"},
		"prefix of a number":   {filter(`{"eventName": [{"prefix": 3}]}`), "eventName: prefix wants a string"},
		"exists maybe":         {filter(`{"eventName": [{"exists": "yes"}]}`), "exists wants true or false"},
		"half a numeric":       {filter(`{"eventName": [{"numeric": [">"]}]}`), "numeric wants pairs"},
		"numeric string":       {filter(`{"eventName": [{"numeric": [">", "5"]}]}`), "numeric wants a number"},
		"numeric not equal":    {filter(`{"eventName": [{"numeric": ["!=", 5]}]}`), `does not know the comparison "!="`},
		"two operators":        {filter(`{"eventName": [{"prefix": "a", "suffix": "b"}]}`), "one operator in each"},
		"nested list":          {filter(`{"eventName": [["INSERT"]]}`), "a list within a list"},
		"no list":              {filter(`{"dynamodb": {"NewImage": {"kind": "group"}}}`), "dynamodb.NewImage.kind: want a list"},
		"empty list":           {filter(`{"eventName": []}`), "eventName: the list of allowed values is empty"},
		"empty object":         {filter(`{"dynamodb": {}}`), "dynamodb is empty"},
		"empty pattern":        {filter(`{}`), "the pattern is empty"},
		"unknown field":        {filter(`{"body": ["x"]}`), `field "body" is not in a stream record`},
		"no object":            {filter(`["INSERT"]`), "a pattern is a JSON object"},
		"no JSON":              {filter(`"{eventName: INSERT}"`), "the pattern: not JSON"},
		"text after it":        {filter(`"{\"eventName\": [\"INSERT\"]} x"`), "the pattern: there is text after its end"},
		"no list of or":        {filter(`{"$or": {"eventName": ["INSERT"]}}`), "$or in the pattern wants a list"},
		"too many filters": {func(m *stream.Mapping) {
			for range 11 {
				m.Filters = append(m.Filters, filters(`{"eventName": ["INSERT"]}`)...)
			}
		}, "there are 11 filters"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene()
			test.change(&s.mapping)
			err := s.mapping.Validate()
			_, openErr := stream.Open(t.Context(), s.config, s.mapping)
			if test.want == "" {
				require.NoError(t, err)
				require.NoError(t, openErr)
				return
			}
			require.ErrorContains(t, err, test.want)
			require.ErrorContains(t, openErr, test.want)
		})
	}
}
