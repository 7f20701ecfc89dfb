package selection_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/selection"
)

func TestKey(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ expression, message, want string }{
		{"$request.body.action", `{"action":"send"}`, "send"},
		{"${request.body.area}/$request.body.head.verb", `{"area":"chat","head":{"verb":7}}`, "chat/7"},
		{`\$default-$request.body.list`, `{"list":[1, 2]}`, "$default-[1,2]"},
		{"$request.body.action", `{"action":null}`, ""},
		{"$request.body.a.b", `{"a":"b"}`, ""},
		{"$request.body.a", `[`, ""},
		{"static", `{}`, "static"},
	} {
		e, err := selection.Parse(test.expression)
		require.NoError(t, err, test.expression)
		require.Equal(t, test.want, e.Key([]byte(test.message)), test)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		"":                           "it is empty",
		"${request.body.a":           "not closed",
		"$request.header.a":          `"request.header.a"`,
		"$request.body.":             "object keys joined by dots",
		"${request.body.a[0]}":       "object keys joined by dots",
		"$request.body.a-b":          "write ${...}",
		"$request.body.a/$other":     `"other" is not of the form`,
		"${request.body.a}-${other}": `"other" is not of the form`,
	} {
		_, err := selection.Parse(expression)
		require.ErrorContains(t, err, want, expression)
	}
}
