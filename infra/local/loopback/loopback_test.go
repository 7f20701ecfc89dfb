package loopback_test

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/loopback"
)

// call is a request, and where it comes from.
type call struct {
	from, host string
	at         string              // the address it came in at, if that matters
	header     map[string][]string // such as Origin
}

func (c call) through(protect func(http.Handler) http.Handler, method string) *httptest.ResponseRecorder {
	handler := protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	r := httptest.NewRequest(method, "/", nil)
	r.RemoteAddr, r.Host = c.from, c.host
	if c.at != "" {
		at := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.at))
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, at))
	}
	for name, values := range c.header {
		r.Header[name] = values
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	return w
}

func TestWhoIsLetThrough(t *testing.T) {
	t.Parallel()
	const me, here = "127.0.0.1:5000", "127.0.0.1:3000"
	origin := func(values ...string) map[string][]string { return map[string][]string{"Origin": values} }
	site := func(value string) map[string][]string { return map[string][]string{"Sec-Fetch-Site": {value}} }
	both := func(o, s string) map[string][]string {
		return map[string][]string{"Origin": {o}, "Sec-Fetch-Site": {s}}
	}
	page := loopback.NewGuard(loopback.Config{Addr: "127.0.0.1:3000", Origins: []string{"http://localhost:5173"}})
	guards := map[string]loopback.Guard{
		"zero": {},
		"page": page,
		"lan":  loopback.NewGuard(loopback.Config{Addr: "10.0.0.5:3000"}),
		"name": loopback.NewGuard(loopback.Config{Addr: "Box.example:3000"}),
		"all":  loopback.NewGuard(loopback.Config{Addr: "0.0.0.0:3000"}),
		"none": loopback.NewGuard(loopback.Config{Addr: ":3000"}),
		"host": loopback.NewGuard(loopback.Config{Addr: "127.0.0.1:3000", Hosts: []string{"box.example"}}),
	}
	for name, tc := range map[string]struct {
		guard string
		call  call
		let   bool
	}{
		"a program":                      {"zero", call{from: me, host: here}, true},
		"by name":                        {"zero", call{from: me, host: "localhost:3000"}, true},
		"by name in capitals":            {"zero", call{from: me, host: "LOCALHOST:3000"}, true},
		"without a port":                 {"zero", call{from: me, host: "localhost"}, true},
		"IPv6":                           {"zero", call{from: "[::1]:5000", host: "[::1]:3000"}, true},
		"IPv6 without a port":            {"zero", call{from: "[::1]:5000", host: "[::1]"}, true},
		"another loopback address":       {"zero", call{from: "127.8.9.1:5000", host: "127.8.9.2:3000"}, true},
		"another machine":                {"zero", call{from: "10.0.0.7:5000", host: here}, false},
		"nobody":                         {"zero", call{host: here}, false},
		"a name of the internet":         {"zero", call{from: me, host: "evil.example:3000"}, false},
		"a name that begins like ours":   {"zero", call{from: me, host: "localhost.evil.example"}, false},
		"an address in a name":           {"zero", call{from: me, host: "127.0.0.1.evil.example"}, false},
		"another address of ours":        {"zero", call{from: me, host: "10.0.0.1:3000"}, false},
		"no host":                        {"zero", call{from: me}, false},
		"the page from here":             {"zero", call{from: me, host: here, header: origin("http://127.0.0.1:3000")}, true},
		"the page from here, by name":    {"zero", call{from: me, host: "localhost:3000", header: origin("http://localhost:3000")}, true},
		"a page from another port":       {"zero", call{from: me, host: here, header: origin("http://127.0.0.1:3001")}, false},
		"a page from here by https":      {"zero", call{from: me, host: here, header: origin("https://127.0.0.1:3000")}, false},
		"a page from outside":            {"zero", call{from: me, host: here, header: origin("https://evil.example")}, false},
		"a page by its own name":         {"zero", call{from: me, host: "evil.example:3000", header: origin("http://evil.example:3000")}, false},
		"a page from nowhere":            {"zero", call{from: me, host: here, header: origin("null")}, false},
		"an empty origin":                {"zero", call{from: me, host: here, header: origin("")}, false},
		"an origin that is not let":      {"zero", call{from: me, host: here, header: origin("http://localhost:5173")}, false},
		"one that is":                    {"page", call{from: me, host: here, header: origin("http://localhost:5173")}, true},
		"one that is, across sites":      {"page", call{from: me, host: here, header: both("http://localhost:5173", "cross-site")}, true},
		"one that is, from elsewhere":    {"page", call{from: "10.0.0.7:5000", host: here, header: origin("http://localhost:5173")}, false},
		"one that is, by its own name":   {"page", call{from: me, host: "evil.example", header: origin("http://localhost:5173")}, false},
		"one that begins like it":        {"page", call{from: me, host: here, header: origin("http://localhost:51730")}, false},
		"one that ends like it":          {"page", call{from: me, host: here, header: origin("http://evil.example/http://localhost:5173")}, false},
		"two origins":                    {"page", call{from: me, host: here, header: origin("http://localhost:5173", "https://evil.example")}, false},
		"the address bar":                {"zero", call{from: me, host: here, header: site("none")}, true},
		"a link from here":               {"zero", call{from: me, host: here, header: site("same-origin")}, true},
		"an image in another page":       {"zero", call{from: me, host: here, header: site("cross-site")}, false},
		"an image in a page nearby":      {"page", call{from: me, host: here, header: site("same-site")}, false},
		"the address that is served":     {"lan", call{from: me, host: "10.0.0.5:3000"}, true},
		"from the address itself":        {"lan", call{from: "10.0.0.5:5000", at: "10.0.0.5:3000", host: "10.0.0.5:3000"}, true},
		"from one beside it":             {"lan", call{from: "10.0.0.7:5000", at: "10.0.0.5:3000", host: "10.0.0.5:3000"}, false},
		"one that is not served":         {"lan", call{from: me, host: "10.0.0.6:3000"}, false},
		"the name that is served":        {"name", call{from: me, host: "box.example:3000"}, true},
		"no other than that":             {"name", call{from: me, host: "a.box.example:3000"}, false},
		"where all addresses are served": {"all", call{from: me, host: here}, true},
		"one of them":                    {"all", call{from: me, host: "10.0.0.5:3000"}, false},
		"the unspecified one":            {"all", call{from: me, host: "0.0.0.0:3000"}, false},
		"no host where none is named":    {"none", call{from: me}, false},
		"from where all are served":      {"all", call{from: "10.0.0.7:5000", at: "10.0.0.5:3000", host: "10.0.0.5:3000"}, false},
		"an allowed name":                {"host", call{from: me, host: "box.example:3000"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := tc.call.through(guards[tc.guard].Protect, http.MethodPost)
			require.Equal(t, "Origin", w.Header().Get("Vary"))
			require.Equal(t, tc.let, w.Code == http.StatusTeapot, "%d %s", w.Code, w.Body)
			if !tc.let {
				require.Equal(t, http.StatusForbidden, w.Code)
				require.Empty(t, w.Header().Get("Access-Control-Allow-Origin"))
			}
		})
	}
}

// What is for pages of the developer's: more callers and more names than for programs,
// and none of them a name that was made to point here.
func TestWhoIsWelcome(t *testing.T) {
	t.Parallel()
	const me, phone, here, lan = "127.0.0.1:5000", "192.168.1.9:5000", "127.0.0.1:3000", "192.168.1.5:3000"
	header := func(pairs ...string) map[string][]string {
		h := map[string][]string{}
		for i := 0; i < len(pairs); i += 2 {
			h[pairs[i]] = []string{pairs[i+1]}
		}
		return h
	}
	const mine = "http://localhost:5173"
	guards := map[string]loopback.Guard{
		"zero": {},
		"mine": loopback.NewGuard(loopback.Config{Addr: here, Origins: []string{mine}, Hosts: []string{"box.local", "192.168.1.200"}}),
		"all":  loopback.NewGuard(loopback.Config{Addr: "0.0.0.0:3000", Origins: []string{mine}, Hosts: []string{"box.local"}}),
		"six":  loopback.NewGuard(loopback.Config{Addr: "[::]:3000"}),
		"lan":  loopback.NewGuard(loopback.Config{Addr: lan}),
	}
	link := header("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate")
	image := header("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors")
	for name, tc := range map[string]struct {
		guard             string
		call              call
		welcome, show, in bool // in: it gets in by Open and may read, as a page of another origin
	}{
		"a program":                       {"zero", call{from: me, host: here}, true, true, false},
		"another machine":                 {"zero", call{from: phone, at: lan, host: lan}, false, false, false},
		"another machine, not served":     {"mine", call{from: phone, at: lan, host: "box.local:3000"}, false, false, false},
		"a phone":                         {"all", call{from: phone, at: lan, host: lan}, true, true, false},
		"a phone, by IPv6":                {"six", call{from: "[fd00::9]:5000", at: "[fd00::5]:3000", host: "[fd00::5]:3000"}, true, true, false},
		"a phone, by IPv4 in IPv6":        {"six", call{from: "[::ffff:192.168.1.9]:5000", at: "[::ffff:192.168.1.5]:3000", host: lan}, true, true, false},
		"a phone, where one is served":    {"lan", call{from: phone, at: lan, host: lan}, true, true, false},
		"its page":                        {"all", call{from: phone, at: lan, host: lan, header: header("Origin", "http://"+lan)}, true, true, false},
		"by a name of the internet":       {"all", call{from: phone, at: lan, host: "evil.example:3000"}, false, false, false},
		"a page made to point here":       {"all", call{from: phone, at: lan, host: "evil.example:3000", header: header("Origin", "http://evil.example:3000")}, false, false, false},
		"the same, on this machine":       {"all", call{from: me, at: here, host: "evil.example:3000"}, false, false, false},
		"an address in a name":            {"all", call{from: phone, at: lan, host: "192.168.1.5.evil.example"}, false, false, false},
		"an address that is another's":    {"all", call{from: phone, at: lan, host: "192.168.1.6:3000"}, false, false, false},
		"no address":                      {"all", call{from: phone, at: lan}, false, false, false},
		"an allowed name":                 {"all", call{from: phone, at: lan, host: "box.local:3000"}, true, true, false},
		"in capitals":                     {"all", call{from: phone, at: lan, host: "BOX.local:3000"}, true, true, false},
		"its page, by https":              {"mine", call{from: me, host: "box.local", header: header("Origin", "https://box.local")}, true, true, false},
		"an allowed address":              {"mine", call{from: me, host: "192.168.1.200:5173"}, true, true, false},
		"what ends in an allowed name":    {"all", call{from: phone, at: lan, host: "evil.box.local"}, false, false, false},
		"what begins with one":            {"all", call{from: phone, at: lan, host: "box.local.evil.example"}, false, false, false},
		"an address by https":             {"all", call{from: phone, at: lan, host: lan, header: header("Origin", "https://"+lan)}, false, false, false},
		"a page that is let":              {"mine", call{from: me, host: here, header: header("Origin", mine, "Sec-Fetch-Site", "cross-site")}, true, true, true},
		"the same, on a phone":            {"all", call{from: phone, at: lan, host: lan, header: header("Origin", mine)}, true, true, true},
		"a page that is not":              {"all", call{from: phone, at: lan, host: lan, header: header("Origin", "http://192.168.1.9")}, false, false, false},
		"a page that posts a form":        {"all", call{from: me, host: here, header: header("Origin", "https://evil.example", "Sec-Fetch-Mode", "navigate")}, false, false, false},
		"a link in any page":              {"mine", call{from: me, host: here, header: link}, false, true, false},
		"a link to a name that is not it": {"mine", call{from: me, host: "evil.example", header: link}, false, false, false},
		"a script in any page":            {"mine", call{from: me, host: here, header: image}, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := guards[tc.guard]
			for what, by := range map[string]struct {
				protect func(http.Handler) http.Handler
				let     bool
			}{"welcome": {g.Welcome, tc.welcome}, "show": {g.Show, tc.show}, "open": {g.Open, true}} {
				w := tc.call.through(by.protect, http.MethodGet)
				require.Equal(t, by.let, w.Code == http.StatusTeapot, "%s: %d %s", what, w.Code, w.Body)
				require.Equal(t, "Origin", w.Header().Get("Vary"), what)
				require.Equal(t, tc.in, w.Header().Get("Access-Control-Allow-Origin") == mine, what)
				require.Equal(t, !tc.in, w.Header().Get("Access-Control-Allow-Origin") == "", what)
			}
		})
	}
}

func TestAPageThatIsLetThroughMayRead(t *testing.T) {
	t.Parallel()
	const app = "http://localhost:5173"
	guard := loopback.NewGuard(loopback.Config{Addr: "127.0.0.1:3000", Origins: []string{"http://other.example", app}})
	ask := func(method, origin string, more map[string][]string) *httptest.ResponseRecorder {
		c := call{from: "127.0.0.1:5000", host: "127.0.0.1:3000", header: map[string][]string{"Origin": {origin}}}
		for name, values := range more {
			c.header[name] = values
		}
		return c.through(guard.Protect, method)
	}
	preflight := map[string][]string{
		"Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {"authorization,x-amz-target"},
	}

	w := ask(http.MethodGet, app, nil)
	require.Equal(t, http.StatusTeapot, w.Code)
	require.Equal(t, app, w.Header().Get("Access-Control-Allow-Origin"))
	require.Equal(t, "*", w.Header().Get("Access-Control-Expose-Headers"))
	require.Equal(t, "Origin", w.Header().Get("Vary"))
	require.Empty(t, w.Header().Get("Access-Control-Allow-Credentials"))

	w = ask(http.MethodOptions, app, preflight)
	require.Equal(t, http.StatusNoContent, w.Code)
	require.Equal(t, app, w.Header().Get("Access-Control-Allow-Origin"))
	require.Equal(t, "POST", w.Header().Get("Access-Control-Allow-Methods"))
	require.Equal(t, "authorization,x-amz-target", w.Header().Get("Access-Control-Allow-Headers"))

	require.Equal(t, http.StatusForbidden, ask(http.MethodOptions, "https://evil.example", preflight).Code)
	require.Equal(t, http.StatusTeapot, ask(http.MethodOptions, app, nil).Code, "OPTIONS that is no preflight")
	require.Empty(t, ask(http.MethodGet, "http://127.0.0.1:3000", nil).Header().Get("Access-Control-Allow-Origin"), "it needs no leave")
}

func TestParseOrigin(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"http://localhost:5173":     "http://localhost:5173",
		"http://localhost:5173/":    "http://localhost:5173",
		"HTTP://LocalHost:5173":     "http://localhost:5173",
		"https://dev.example.com":   "https://dev.example.com",
		"https://dev.example:443":   "https://dev.example",
		"http://dev.example:80":     "http://dev.example",
		"http://dev.example:443":    "http://dev.example:443",
		"http://[::1]:8080":         "http://[::1]:8080",
		"":                          "",
		"*":                         "",
		"null":                      "",
		"localhost:5173":            "",
		"http://":                   "",
		"http://:5173":              "",
		"ftp://localhost":           "",
		"http://localhost:5173/app": "",
		"http://localhost:5173?a":   "",
		"http://localhost:5173#a":   "",
		"http://me@localhost:5173":  "",
		"http://localhost:port":     "",
	} {
		got, err := loopback.ParseOrigin(text)
		require.Equal(t, want, got, text)
		require.Equal(t, want == "", err != nil, text)
	}
}

func TestParseHost(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"box.local":             "box.local",
		"Box.Local.":            "box.local",
		"my-box_2":              "my-box_2",
		"192.168.1.5":           "192.168.1.5",
		"[FD00::5]":             "fd00::5",
		"::ffff:192.168.1.5":    "192.168.1.5",
		"":                      "",
		"*":                     "",
		"*.ngrok.app":           "",
		".ngrok.app":            "",
		"box.local:3000":        "",
		"http://box.local":      "",
		"box.local/page":        "",
		"0.0.0.0":               "",
		"::":                    "",
		"fe80::1%eth0":          "",
		"box local":             "",
		"a.example,b.example":   "",
		"me@box.local":          "",
		"xn--bcher-kva.example": "xn--bcher-kva.example",
	} {
		got, err := loopback.ParseHost(text)
		require.Equal(t, want, got, text)
		require.Equal(t, want == "", err != nil, text)
	}
}
