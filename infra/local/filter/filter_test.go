package filter_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/filter"
)

const change = `{"eventID": "1", "eventName": "INSERT", "eventVersion": "1.1", "eventSource": "aws:dynamodb", "awsRegion": "us-east-1",
	"dynamodb": {"SequenceNumber": "1", "SizeBytes": 26, "StreamViewType": "NEW_AND_OLD_IMAGES", "Keys": {"id": {"S": "a"}}, "NewImage": {
		"kind": {"S": "group"}, "title": {"S": ""}, "seq": {"N": "101"}, "closed": {"BOOL": false}, "gone": {"NULL": true},
		"tags": {"SS": ["red", "Green"]}, "none": {"L": []}, "owner": {"M": {"name": {"S": "Alice"}}}, "list": {"L": [{"S": "x"}, {"N": "7"}]}}}}`

func parse(t *testing.T, patterns ...string) []filter.Pattern {
	t.Helper()
	var parsed []filter.Pattern
	for _, text := range patterns {
		p, err := filter.Parse(text)
		require.NoError(t, err)
		parsed = append(parsed, p)
	}
	return parsed
}

func TestPasses(t *testing.T) {
	t.Parallel()
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
		got, err := filter.Passes(json.RawMessage(change), parse(t, test.pattern))
		require.NoError(t, err)
		require.Equal(t, test.want, got, test.name)
	}
	passes, err := filter.Passes(json.RawMessage(`{`), parse(t, `{"eventName": ["INSERT"]}`))
	require.Error(t, err)
	require.False(t, passes)
}

func TestOnePatternIsEnough(t *testing.T) {
	t.Parallel()
	yes, no := `{"eventName": ["INSERT"]}`, `{"eventName": ["REMOVE"]}`
	for _, test := range []struct {
		patterns []string
		want     bool
	}{{nil, true}, {[]string{yes, no}, true}, {[]string{no, yes}, true}, {[]string{no, no}, false}} {
		got, err := filter.Passes(json.RawMessage(change), parse(t, test.patterns...))
		require.NoError(t, err)
		require.Equal(t, test.want, got, test.patterns)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ pattern, want string }{
		"unknown operator":     {`{"eventName": [{"wildcard": "I*"}]}`, `eventName: operator "wildcard" is not supported`},
		"cidr":                 {`{"eventName": [{"cidr": "10.0.0.0/8"}]}`, `"cidr" is not supported`},
		"unknown anything-but": {`{"eventName": [{"anything-but": {"wildcard": "I*"}}]}`, `anything-but does not support "wildcard"`},
		"empty anything-but":   {`{"eventName": [{"anything-but": []}]}`, "anything-but is empty"},
		"anything-but bool":    {`{"eventName": [{"anything-but": true}]}`, "anything-but wants strings or numbers"},
		"anything-but two":     {`{"eventName": [{"anything-but": {"prefix": "a", "suffix": "b"}}]}`, "anything-but wants one operator"},
		"prefix of a number":   {`{"eventName": [{"prefix": 3}]}`, "eventName: prefix wants a string"},
		"exists maybe":         {`{"eventName": [{"exists": "yes"}]}`, "exists wants true or false"},
		"half a numeric":       {`{"eventName": [{"numeric": [">"]}]}`, "numeric wants pairs"},
		"numeric string":       {`{"eventName": [{"numeric": [">", "5"]}]}`, "numeric wants a number"},
		"numeric not equal":    {`{"eventName": [{"numeric": ["!=", 5]}]}`, `does not know the comparison "!="`},
		"two operators":        {`{"eventName": [{"prefix": "a", "suffix": "b"}]}`, "one operator in each"},
		"nested list":          {`{"eventName": [["INSERT"]]}`, "a list within a list"},
		"no list":              {`{"dynamodb": {"NewImage": {"kind": "group"}}}`, "dynamodb.NewImage.kind: want a list"},
		"empty list":           {`{"eventName": []}`, "eventName: the list of allowed values is empty"},
		"empty object":         {`{"dynamodb": {}}`, "dynamodb is empty"},
		"empty pattern":        {`{}`, "the pattern is empty"},
		"unknown field":        {`{"body": ["x"]}`, `field "body" is not in a stream record`},
		"no object":            {`["INSERT"]`, "a pattern is a JSON object"},
		"no JSON":              {`{eventName: INSERT}`, "the pattern: not JSON"},
		"text after it":        {`{"eventName": ["INSERT"]} x`, "the pattern: there is text after its end"},
		"no list of or":        {`{"$or": {"eventName": ["INSERT"]}}`, "$or in the pattern wants a list"},
	} {
		_, err := filter.Parse(test.pattern)
		require.ErrorContains(t, err, test.want, name)
	}
}
