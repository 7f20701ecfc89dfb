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
		{"$request.body.head.verb", `{"head":{"verb":7}}`, "7"},
		{"$request.body.list", `{"list":[1, 2]}`, "[1,2]"},
		{"$request.body.action", `{"action":null}`, ""},
		{"$request.body.a.b", `{"a":"b"}`, ""},
		{"$request.body.a", `[`, ""},
	} {
		path, err := selection.Parse(test.expression)
		require.NoError(t, err, test.expression)
		require.Equal(t, test.want, path.Key([]byte(test.message)), test)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{
		"", "static", "$request.body.", "$request.body.a..b", "${request.body.a}", "$request.header.a",
		"$request.body.a-b", "$request.body.a/$request.body.b", `\$request.body.a`,
	} {
		_, err := selection.Parse(expression)
		require.ErrorContains(t, err, "is not of the form $request.body.action", expression)
	}
}
