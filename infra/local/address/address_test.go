package address_test

import (
	"bytes"
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/address"
)

func TestParse(t *testing.T) {
	t.Parallel()
	const want = "want an address such as 127.0.0.1:3000 or http://127.0.0.1:3000"
	for text, tc := range map[string]struct{ url, listen, wrong string }{
		"127.0.0.1:3000":            {url: "http://127.0.0.1:3000", listen: "127.0.0.1:3000"},
		"localhost:3000":            {url: "http://localhost:3000", listen: "localhost:3000"},
		"[::1]:3000":                {url: "http://[::1]:3000", listen: "[::1]:3000"},
		"[fe80::1%eth0]:3000":       {wrong: "the host is no name and no address"},
		":3000":                     {url: "http://127.0.0.1:3000", listen: ":3000"},
		"0.0.0.0:3000":              {url: "http://127.0.0.1:3000", listen: "0.0.0.0:3000"},
		"[::]:3000":                 {url: "http://127.0.0.1:3000", listen: "[::]:3000"},
		"127.0.0.1:0":               {url: "http://127.0.0.1:0", listen: "127.0.0.1:0"},
		"my_box.example:65535":      {url: "http://my_box.example:65535", listen: "my_box.example:65535"},
		"http://127.0.0.1:3000":     {url: "http://127.0.0.1:3000", listen: "127.0.0.1:3000"},
		"HTTP://127.0.0.1:3000/":    {url: "http://127.0.0.1:3000", listen: "127.0.0.1:3000"},
		"http://[::1]:3000":         {url: "http://[::1]:3000", listen: "[::1]:3000"},
		"http://example.com":        {url: "http://example.com", listen: "example.com:80"},
		"example.com:80":            {url: "http://example.com", listen: "example.com:80"},
		"https://example.com":       {url: "https://example.com", listen: "example.com:443"},
		"https://example.com:8443":  {url: "https://example.com:8443", listen: "example.com:8443"},
		"http://[::1]":              {url: "http://[::1]", listen: "[::1]:80"},
		"":                          {wrong: "the port is missing"},
		"3000":                      {wrong: "there is only a number; a port follows a colon"},
		"localhost":                 {wrong: "the port is missing"},
		"::1:3000":                  {wrong: "the brackets around an IPv6 address"},
		"127.0.0.1:":                {wrong: "the port is no number from 0 to 65535"},
		"127.0.0.1:http":            {wrong: "the port is no number from 0 to 65535"},
		"127.0.0.1:65536":           {wrong: "the port is no number from 0 to 65535"},
		"127.0.0.1:-1":              {wrong: "the port is no number from 0 to 65535"},
		"ws://127.0.0.1:3000/v1":    {wrong: "it begins with ws://"},
		"http://127.0.0.1:3000/v1":  {wrong: "it has a path"},
		"http://127.0.0.1:3000?a=b": {wrong: want},
		"http://127.0.0.1:3000#a":   {wrong: want},
		"http://me@127.0.0.1:3000":  {wrong: want},
		"http://":                   {wrong: want},
		"http://127.0.0.1:port":     {wrong: want},
		"127.0.0.1:3000/":           {wrong: "the port is no number"},
		"my box:3000":               {wrong: "the host is no name and no address"},
		"[box]:3000":                {url: "http://box:3000", listen: "box:3000"},
	} {
		a, err := address.Parse(text)
		if tc.wrong != "" {
			require.ErrorContains(t, err, tc.wrong, text)
			require.ErrorContains(t, err, want, text)
			require.True(t, a.IsZero(), text)
			continue
		}
		require.NoError(t, err, text)
		require.Equal(t, tc.url, a.URL(), text)
		require.Equal(t, tc.listen, a.Listen(), text)
		again, err := address.Parse(a.URL())
		require.NoError(t, err, text)
		require.Equal(t, a.URL(), again.URL(), text)
		require.Equal(t, a.IsSecure(), again.IsSecure(), text)
	}
	require.Empty(t, address.Address{}.URL())
}

func TestItIsAFlag(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	var with, without address.Address
	require.NoError(t, with.Set(":3000"))
	flags := flag.NewFlagSet("tool", flag.ContinueOnError)
	flags.SetOutput(&said)
	flags.Var(&with, "addr", "`address` of it")
	flags.Var(&without, "other", "`address` of another")
	flags.PrintDefaults()
	require.Contains(t, said.String(), "-addr address\n    \taddress of it (default http://127.0.0.1:3000)")
	require.Contains(t, said.String(), "-other address\n    \taddress of another\n")
	require.Error(t, flags.Parse([]string{"-addr", "3000"}))
	require.Contains(t, said.String(), `invalid value "3000" for flag -addr: want an address such as 127.0.0.1:3000 or http://127.0.0.1:3000: there is only a number`)
}
