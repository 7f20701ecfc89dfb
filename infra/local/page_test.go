//go:build !windows

package main_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/shared/client/web/browsertest"
)

// get asks for a path by a name of this machine, "" for its address.
func (c *local) get(path, host string, header ...string) (status int, body string, answered http.Header) {
	c.t.Helper()
	response, body := c.ask(request{method: http.MethodGet, path: path}, host, header...)
	return response.StatusCode, body, response.Header
}

// A page of one's own has all that the demo page has: the client, where to connect, and
// tokens; and none of the folder's secrets is shown.
func TestAPageOfOnesOwn(t *testing.T) {
	t.Parallel()
	site := t.TempDir()
	for name, content := range map[string]string{
		"index.html": "<h1>Mine</h1>", "app.js": "mine()", "sub/index.html": "<h1>Sub</h1>", "sub/data.json": "{}", "logo": "<svg/>",
		".env": "SECRET=1", ".git/config": "secret", "sub/.npmrc": "secret", "empty/file.txt": "text",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(site, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(site, name), []byte(content), 0o600))
	}
	outside := filepath.Join(t.TempDir(), "outside.txt")
	require.NoError(t, os.WriteFile(outside, []byte("secret"), 0o600))
	require.NoError(t, os.Symlink(outside, filepath.Join(site, "out.txt")))
	require.NoError(t, os.Symlink(filepath.Dir(outside), filepath.Join(site, "out")))
	require.NoError(t, os.Symlink("app.js", filepath.Join(site, "linked.js")))

	c := startApp(t, "-web", site)
	require.NotContains(t, c.stderr.String(), "has no index.html")
	for path, want := range map[string]struct {
		status int
		body   string
		kind   string
	}{
		"":                   {200, "<h1>Mine</h1>", "text/html; charset=utf-8"},
		"index.html":         {200, "<h1>Mine</h1>", "text/html; charset=utf-8"},
		"app.js":             {200, "mine()", "text/javascript; charset=utf-8"},
		"linked.js":          {200, "mine()", "text/javascript; charset=utf-8"},
		"sub/":               {200, "<h1>Sub</h1>", "text/html; charset=utf-8"},
		"sub":                {200, "<h1>Sub</h1>", "text/html; charset=utf-8"}, // after a redirect
		"sub/data.json":      {200, "{}", "application/json"},
		"client/index.js":    {200, "export", "text/javascript; charset=utf-8"},
		"config.json":        {200, c.socket, "application/json"},
		"empty/":             {404, "not found", ""}, // no list of files
		"empty":              {404, "not found", ""},
		"app.js/":            {404, "not found", ""},
		"page.js":            {404, "not found", ""}, // of the demo page
		".env":               {404, "not found", ""},
		".git/config":        {404, "not found", ""},
		"sub/.npmrc":         {404, "not found", ""},
		"out.txt":            {404, "not found", ""},
		"out/outside.txt":    {404, "not found", ""},
		"%2e%2e/outside.txt": {404, "not found", ""},
		"..%2foutside.txt":   {404, "not found", ""},
		"sub%2f..%2f.env":    {404, "not found", ""},
		"%2fetc/passwd":      {404, "not found", ""},
		"app.js%00":          {404, "not found", ""},
	} {
		status, body, header := c.get(path, "")
		require.Equal(t, want.status, status, path)
		require.Contains(t, body, want.body, path)
		require.NotContains(t, strings.ToLower(body), "secret", path)
		if want.status == http.StatusOK {
			require.Equal(t, want.kind, header.Get("Content-Type"), path)
			require.Equal(t, "nosniff", header.Get("X-Content-Type-Options"), path)
			require.Empty(t, header.Get("Content-Security-Policy"), "the page says what it uses")
		}
	}
	// What is edited is there at once; and a name that was made to point here reads
	// nothing.
	require.NoError(t, os.WriteFile(filepath.Join(site, "app.js"), []byte("edited()"), 0o600))
	_, body, _ := c.get("app.js", "")
	require.Equal(t, "edited()", body)
	for name, header := range map[string][]string{
		"evil.example": nil,
		"":             {"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"},
	} {
		status, body, _ := c.get("app.js", name, header...)
		require.Equal(t, http.StatusForbidden, status, "%s %v", name, header)
		require.NotContains(t, body, "edited")
	}
	status, _, _ := c.get("", "", "Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate")
	require.Equal(t, http.StatusOK, status, "a link, as of a login page that sends back")
}

func TestAFolderWithoutAPage(t *testing.T) {
	t.Parallel()
	site := t.TempDir()
	c := startApp(t, "-web", site)
	c.awaitLog(`^local      \| warning: the folder ` + site + ` has no index\.html, so there is no page at / yet$`)
	status, body, _ := c.get("", "")
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, body, "the folder of -web has no index.html")
	status, _, _ = c.get("client/index.js", "")
	require.Equal(t, http.StatusOK, status)
	require.NoError(t, os.WriteFile(filepath.Join(site, "index.html"), []byte("now"), 0o600))
	_, body, _ = c.get("", "")
	require.Equal(t, "now", body)
	runToEnd(t, options{}, "-addr", "127.0.0.1:0", "-template", smallApp, "-web", filepath.Join(site, "none")).
		requireError(t, "-web "+filepath.Join(site, "none")+": there is no folder to serve")
}

// A name that is allowed is one of this machine for pages, and nothing else: not for what
// programs use, and no other name.
func TestAllowedHosts(t *testing.T) {
	t.Parallel()
	c := startApp(t, "-allow-host", "Box.local", "-allow-host", "chat.tunnel.example")
	for host, header := range map[string][]string{
		"box.local:1234":      {"Origin", "http://box.local:1234"},
		"chat.tunnel.example": {"Origin", "https://chat.tunnel.example", "X-Forwarded-Proto", "https"},
	} {
		status, body, answered := c.get("dev/token?user=alice", host, header...)
		require.Equal(t, http.StatusOK, status, body)
		require.Empty(t, answered.Get("Access-Control-Allow-Origin"), "its own page needs no leave")
		_, body, answered = c.get("config.json", host, header...)
		socket := map[string]string{"box.local:1234": "ws://box.local:1234", "chat.tunnel.example": "wss://chat.tunnel.example"}[host]
		require.JSONEq(t, `{"webSocketUrl":"`+socket+"/"+c.stage()+`"}`, body)
		require.Contains(t, answered.Get("Content-Security-Policy"), "connect-src 'self' "+socket+";")
		for _, r := range guarded[1:] {
			response, body := c.ask(r, host)
			require.Equal(t, http.StatusForbidden, response.StatusCode, "%s: %s", r.name, body)
		}
	}
	status, _, _ := c.get("dev/token?user=alice", "other.example")
	require.Equal(t, http.StatusForbidden, status)
	_, body, _ := c.get("config.json", "other.example")
	require.Contains(t, body, c.socket, "a name that is not known is not repeated")
}

// A phone gets the page, its token and its socket by this machine's address; what
// programs use stays on this machine.
func TestAllAddressesAreServedToAPhone(t *testing.T) {
	t.Parallel()
	mine := networkAddress(t)
	c := launch(t, options{}, "-addr", "0.0.0.0:0", "-template", smallApp).awaitReady()
	page, err := url.Parse(c.page)
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", page.Hostname(), "people on this machine and its functions call it so")
	told := "http://" + net.JoinHostPort(mine, page.Port()) + "/"
	c.awaitLog(`^local      \| on your phone: ` + regexp.QuoteMeta(told) + `$`)
	c.awaitLog(`^local      \| warning: everyone on the network can open the page and get a token for any user$`)

	phone := *c
	phone.page = told
	status, body, _ := phone.get("", "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, "<title>Inorder</title>")
	_, body, _ = phone.get("config.json", "")
	var config struct{ WebSocketURL string }
	require.NoError(t, json.Unmarshal([]byte(body), &config))
	require.Equal(t, "ws://"+net.JoinHostPort(mine, page.Port())+"/"+c.stage(), config.WebSocketURL)
	require.Contains(t, phone.token("alice"), "ey")
	conn, _, err := websocket.Dial(t.Context(), config.WebSocketURL, nil)
	require.NoError(t, err)
	require.NoError(t, conn.CloseNow())

	for _, r := range guarded[1:] {
		response, body := phone.ask(r, "")
		require.Equal(t, http.StatusForbidden, response.StatusCode, "%s: %s", r.name, body)
	}
	for _, host := range []string{"evil.example", mine + ".evil.example", "192.0.2.1:" + page.Port()} {
		status, _, _ := phone.get("dev/token?user=alice", host)
		require.Equal(t, http.StatusForbidden, status, host)
		_, body, _ := phone.get("config.json", host)
		require.NotContains(t, body, "evil", host)
	}
	status, _, _ = phone.get("dev/token?user=alice", "", "Origin", "http://"+mine+":1")
	require.Equal(t, http.StatusForbidden, status, "another page of this machine")
}

func TestOnlyTheLoopbackSaysNothingOfPhones(t *testing.T) {
	t.Parallel()
	c := startApp(t)
	require.NotContains(t, c.stderr.String(), "phone")
}

// networkAddress is an address of this machine that is not the loopback's.
func networkAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	require.NoError(t, err)
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("this machine has no address but the loopback's, and CI=true")
	}
	t.Skip("this machine has no address but the loopback's")
	return ""
}

// The proxy of a dev server, such as Vite's, passes on what a page needs: with the name
// that the browser called, as it does by default, and with ours (changeOrigin).
func TestBehindADevServersProxy(t *testing.T) {
	t.Parallel()
	c := startApp(t)
	target, err := url.Parse(c.page)
	require.NoError(t, err)
	for name, change := range map[string]bool{"host as it is": false, "changeOrigin": true} {
		dev := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			if !change {
				r.Out.Host = r.In.Host
			}
		}})
		t.Cleanup(dev.Close)
		// A browser sends its origin with a socket, and with no GET of the page's own.
		response, err := http.Get(dev.URL + "/dev/token?user=alice")
		require.NoError(t, err, name)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err, name)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode, "%s: %s", name, body)
		conn, _, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(dev.URL, "http")+"/"+c.stage(),
			&websocket.DialOptions{HTTPHeader: http.Header{"Origin": {dev.URL}}})
		require.NoError(t, err, name)
		require.NoError(t, conn.Write(t.Context(), websocket.MessageText, []byte(`{"action":"echo","text":"by proxy"}`)))
		_, answer, err := conn.Read(t.Context())
		require.NoError(t, err, name)
		require.Equal(t, "by proxy", string(answer), name)
		require.NoError(t, conn.CloseNow())
	}
}

// Two real pages: one of the developer's, from another port, that is allowed; and the demo
// page as a phone opens it, which is no secure context.
func TestPagesFromElsewhereInChromium(t *testing.T) {
	t.Parallel()
	browser := browsertest.Chromium(t)
	mine := networkAddress(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, "<title>dev</title>") // to a browser that waits for it
	})
	dev, stranger := httptest.NewServer(mux), httptest.NewServer(mux)
	t.Cleanup(dev.Close)
	t.Cleanup(stranger.Close)
	c := launch(t, options{}, "-addr", "0.0.0.0:0", "-template", product, "-allow-origin", dev.URL).awaitReady()

	tab := openTab(t, browser, dev.URL)
	const connect = `(async () => {
		const { open } = await import("%[1]sclient/index.js");
		const { webSocketUrl } = await (await fetch("%[1]sconfig.json")).json();
		const token = async () => (await (await fetch("%[1]sdev/token?user=dev")).json()).token;
		const client = await open({ url: webSocketUrl, userId: "dev", deviceId: "web", token });
		while (client.state !== "online") await new Promise((changed) => client.addEventListener("change", changed, { once: true }));
		await client.close();
		return webSocketUrl;
	})().catch((error) => String(error))`
	got, err := chromedp.Run(tab, chromedp.Evaluate[string](fmt.Sprintf(connect, c.page), chromedp.EvalAwaitPromise))
	require.NoError(t, err)
	require.Equal(t, c.socket, got)

	require.NoError(t, chromedp.Do(tab, chromedp.Navigate(stranger.URL)))
	for _, script := range []string{connect, `fetch("%[1]sdev/token?user=dev").then((r) => r.text(), (error) => String(error))`} {
		got, err = chromedp.Run(tab, chromedp.Evaluate[string](fmt.Sprintf(script, c.page), chromedp.EvalAwaitPromise))
		require.NoError(t, err)
		require.Regexp(t, "^TypeError: Failed to fetch", got, "a page that is not allowed")
	}

	page, err := url.Parse(c.page)
	require.NoError(t, err)
	require.NoError(t, chromedp.Do(tab, chromedp.Navigate("http://"+net.JoinHostPort(mine, page.Port())+"/#user=phone")))
	got, err = chromedp.Run(tab, chromedp.Evaluate[string](`(async () => {
		while (document.getElementById("state").textContent !== "online") await new Promise((later) => setTimeout(later, 10));
		return String(window.isSecureContext);
	})()`, chromedp.EvalAwaitPromise))
	require.NoError(t, err)
	require.Equal(t, "false", got)
}

func openTab(t *testing.T, browser, url string) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(browser), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-component-update", true),
	)
	timeout, cancelTimeout := context.WithTimeout(context.Background(), time.Minute)
	allocator, cancelAllocator := chromedp.NewExecAllocator(timeout, options...)
	tab, _ := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		err := chromedp.Cancel(tab) // closes the browser and waits, so that its folder can be removed
		cancelAllocator()
		cancelTimeout()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("closing the browser: %v", err)
		}
	})
	require.NoError(t, chromedp.Do(tab, chromedp.Navigate(url)))
	return tab
}
