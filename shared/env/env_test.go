package env_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/env"
)

func TestReader(t *testing.T) {
	t.Parallel()
	whole := func(r *env.Reader) any { return r.Int("V", 1, 9) }
	wholeOr := func(r *env.Reader) any { return r.IntOr(5, "V", 1, 9) }
	number := func(r *env.Reader) any { return r.Float("V") }
	choice := func(r *env.Reader) any { return r.OneOf("V", "open", "closed") }
	text := func(r *env.Reader) any { return r.Text("V", "a table's name") }
	for name, tc := range map[string]struct {
		value string
		read  func(r *env.Reader) any
		want  any
		err   string // instead of want
	}{
		"a whole number":          {"9", whole, 9, ""},
		"none":                    {"", whole, nil, "the environment variable V is not set; it has to be a whole number from 1 to 9, as template.yaml sets it"},
		"below":                   {"0", whole, nil, `the environment variable V is "0"; it has to be a whole number from 1 to 9, as template.yaml sets it`},
		"above":                   {"10", whole, nil, `V is "10"`},
		"a fraction":              {"1.5", whole, 2, ""},
		"a fraction of the least": {"0.5", whole, 1, ""},
		"a fraction below":        {"-0.5", func(r *env.Reader) any { return r.Int("V", -1, 9) }, 0, ""},
		"a fraction above":        {"9.5", whole, nil, `V is "9.5"`},
		"a whole fraction":        {"9.0", whole, 9, ""},
		"a power of ten":          {"1e0", whole, 1, ""},
		"endless and whole":       {"Inf", whole, nil, `V is "Inf"`},
		"no whole number":         {"NaN", whole, nil, `V is "NaN"`},
		"after a space":           {" 1", whole, nil, `V is " 1"`},
		"left out":                {"", wholeOr, 5, ""},
		"not left out":            {"6", wholeOr, 6, ""},
		"not left out and wrong":  {"x", wholeOr, nil, `V is "x"`},
		"a number":                {"2.5", number, 2.5, ""},
		"zero":                    {"0", number, 0.0, ""},
		"less than zero":          {"-1", number, nil, "a number of at least 0"},
		"no number":               {"NaN", number, nil, "a number of at least 0"},
		"endless":                 {"+Inf", number, nil, "a number of at least 0"},
		"no number at all":        {"", number, nil, "is not set"},
		"a choice":                {"closed", choice, "closed", ""},
		"the usual choice":        {"", choice, "open", ""},
		"no choice":               {"Closed", choice, nil, `V is "Closed"; it has to be open or closed`},
		"a text":                  {"shop", text, "shop", ""},
		"no text":                 {"", text, nil, "V is not set; it has to be a table's name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := env.From(func(asked string) string {
				require.Equal(t, "V", asked)
				return tc.value
			})
			got := tc.read(r)
			if tc.err != "" {
				require.ErrorContains(t, r.Err(), tc.err)
				return
			}
			require.NoError(t, r.Err())
			require.Equal(t, tc.want, got)
		})
	}
}

func TestAllThatIsWrongIsTold(t *testing.T) {
	t.Parallel()
	r := env.From(func(string) string { return "" })
	r.Int("A", 0, 1)
	r.Text("B", "a URL")
	require.ErrorContains(t, r.Err(), "variable A is")
	require.ErrorContains(t, r.Err(), "variable B is")
}
