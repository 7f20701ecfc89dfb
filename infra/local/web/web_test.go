package web_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"inorder/infra/local/build/buildtest"
	"inorder/infra/local/web"
)

const webSocketURL = "ws://127.0.0.1:4242/local"

func get(method, path string) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	web.Handler(web.Config{WebSocketURL: webSocketURL}).ServeHTTP(recorder, httptest.NewRequest(method, path, nil))
	return recorder
}

// pageFiles are the files of this folder that belong to the page, so that one that was not embedded
// or not given a type is noticed.
func pageFiles(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, pattern := range []string{"*.html", "*.css", "*.svg", "*.js", "client/*.js"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range found {
			if !strings.HasSuffix(name, ".test.js") {
				names = append(names, name)
			}
		}
	}
	require.Contains(t, names, "page.js")
	require.Contains(t, names, "client/index.js")
	return names
}

func TestEveryFileIsServedWithItsTypeAndPolicy(t *testing.T) {
	t.Parallel()
	types := map[string]string{
		".html": "text/html; charset=utf-8",
		".css":  "text/css; charset=utf-8",
		".js":   "text/javascript; charset=utf-8",
		".svg":  "image/svg+xml",
	}
	for _, name := range pageFiles(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := get(http.MethodGet, "/"+name)
			require.Equal(t, http.StatusOK, response.Code)
			require.Equal(t, types[filepath.Ext(name)], response.Header().Get("Content-Type"))
			requireStrict(t, response)
			want, err := os.ReadFile(name)
			require.NoError(t, err)
			require.Equal(t, string(want), response.Body.String())
		})
	}
}

func requireStrict(t *testing.T, response *httptest.ResponseRecorder) {
	t.Helper()
	policy := strings.Split(response.Header().Get("Content-Security-Policy"), "; ")
	require.Contains(t, policy, "default-src 'none'")
	require.Contains(t, policy, "script-src 'self'")
	require.Contains(t, policy, "connect-src 'self' ws://127.0.0.1:4242")
	require.NotContains(t, response.Header().Get("Content-Security-Policy"), "unsafe")
	require.Equal(t, "nosniff", response.Header().Get("X-Content-Type-Options"))
	require.Equal(t, "no-cache", response.Header().Get("Cache-Control"))
}

func TestHandler(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		method, path string
		status       int
		body         string
	}{
		"the page":           {http.MethodGet, "/", http.StatusOK, "<title>Inorder</title>"},
		"its configuration":  {http.MethodGet, "/config.json", http.StatusOK, `{"webSocketUrl":"ws://127.0.0.1:4242/local"}`},
		"HEAD":               {http.MethodHead, "/client/client.js", http.StatusOK, ""},
		"an unknown path":    {http.MethodGet, "/nothing", http.StatusNotFound, "not found"},
		"an unknown folder":  {http.MethodGet, "/dev/token", http.StatusNotFound, "not found"},
		"a test":             {http.MethodGet, "/device.test.js", http.StatusNotFound, "not found"},
		"a test's helper":    {http.MethodGet, "/client/tests/world.js", http.StatusNotFound, "not found"},
		"a folder":           {http.MethodGet, "/client", http.StatusNotFound, "not found"},
		"the Go source":      {http.MethodGet, "/web.go", http.StatusNotFound, "not found"},
		"a way out":          {http.MethodGet, "/../web/page.js", http.StatusNotFound, "not found"},
		"a doubled slash":    {http.MethodGet, "//page.js", http.StatusNotFound, "not found"},
		"a method for forms": {http.MethodPost, "/", http.StatusMethodNotAllowed, "only GET and HEAD"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := get(test.method, test.path)
			require.Equal(t, test.status, response.Code)
			require.Contains(t, response.Body.String(), test.body)
			requireStrict(t, response)
		})
	}
}

// The page works offline: what it refers to is here, and it refers to nothing elsewhere.
func TestEveryReferenceIsServedFromHere(t *testing.T) {
	t.Parallel()
	reference := regexp.MustCompile(`(?:src|href)="([^"]+)"|(?m:^(?:import|export) .*from "([^"]+)")|import\("([^"]+)"\)|url\(([^)]+)\)`)
	found := 0
	for _, name := range pageFiles(t) {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, match := range reference.FindAllStringSubmatch(string(content), -1) {
			target := strings.Join(match[1:], "")
			require.NotContains(t, target, "//", "%s refers to another place", name)
			response := get(http.MethodGet, "/"+path.Join(path.Dir(name), target))
			require.Equal(t, http.StatusOK, response.Code, "%s refers to %s", name, target)
			found++
		}
	}
	require.Greater(t, found, 5)
}

// find gives the path of a program that a test needs. Without it the test is skipped, except in CI,
// where a skipped test would go unnoticed.
func find(t *testing.T, names ...string) string {
	t.Helper()
	for _, name := range names {
		if program, err := exec.LookPath(name); err == nil {
			return program
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("none of %v is installed, and CI=true", names)
	}
	t.Skipf("none of %v is installed; install one to run this test", names)
	return ""
}

func TestClientModulesInNode(t *testing.T) {
	t.Parallel()
	node := find(t, "node")
	require.NoError(t, buildtest.Sources("."))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // it takes seconds where nothing else runs
	defer cancel()
	output, err := exec.CommandContext(ctx, node, "--test").CombinedOutput()
	require.NoError(t, err, "node --test (Node 20 or newer):\n%s", output)
	require.Regexp(t, `(?m)^\S+ pass [1-9]\d+$`, string(output), "too few tests were found")
}

// The store's contract on a real IndexedDB, under the page's own Content-Security-Policy.
func TestIndexedDBStoreInChromium(t *testing.T) {
	t.Parallel()
	browser := find(t, "chromium", "chromium-browser", "google-chrome")
	mux := http.NewServeMux()
	mux.Handle("/", web.Handler(web.Config{WebSocketURL: webSocketURL}))
	mux.Handle("/client/tests/", http.FileServer(http.Dir(".")))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	page := openPage(t, browser, server.URL)
	heading, err := chromedp.Run(page, chromedp.Text(chromedp.CSS("h1")))
	require.NoError(t, err)
	require.Equal(t, "Inorder", heading)
	outcome, err := chromedp.Run(page, chromedp.Evaluate[string](checkStoreInPage, chromedp.EvalAwaitPromise))
	require.NoError(t, err)
	require.Equal(t, "kept", outcome)
}

// Joined by a plain slash, the two pairs of ids would share one database, and the second check would
// not find it empty.
const checkStoreInPage = `
	Promise.all([import("/client/tests/storecontract.js"), import("/client/store.js")]).then(async ([{ checkStore }, { IndexedDBStore }]) => {
		for (const [user, device] of [["a/b", "c"], ["a", "b/c"]]) {
			const open = () => IndexedDBStore.open(user, device);
			await checkStore(await open(), (store) => (store.close(), open()));
		}
		// A newer version of this code, in another tab.
		const open = () => IndexedDBStore.open("old", "web");
		const old = await open();
		await old.commit({ syncCursor: 7 });
		const newer = await new Promise((resolve, reject) => {
			const request = indexedDB.open("inorder/old/web", 2);
			request.onsuccess = () => resolve(request.result);
			request.onerror = () => reject(request.error);
		});
		const outcome = await old.commit({ syncCursor: 8 }).then(() => "written", (error) => error.message);
		if (!outcome.includes("newer version")) throw new Error("after an upgrade: " + outcome);
		const again = await open().then(() => "opened", (error) => error.name);
		if (again !== "VersionError") throw new Error("the newer database: " + again);
		newer.close();
		const { checkStoreFailures } = await import("/client/tests/storefailures.js");
		await checkStoreFailures();
		return "kept";
	})`

// A tab that stands still right after a write, here in a request that it waits for, holds up no other.
func TestIndexedDBStore_ATabThatStandsStillInChromium(t *testing.T) {
	t.Parallel()
	browser := find(t, "chromium", "chromium-browser", "google-chrome")
	still, written := make(chan struct{}), make(chan struct{})
	mux := http.NewServeMux()
	mux.Handle("/", web.Handler(web.Config{WebSocketURL: webSocketURL}))
	mux.HandleFunc("GET /still", func(w http.ResponseWriter, r *http.Request) {
		close(still)
		select {
		case <-written:
		case <-r.Context().Done():
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	const write = `import("/client/store.js")
		.then(({ IndexedDBStore }) => IndexedDBStore.open("alice", "web"))
		.then(async (store) => {
			const done = store.commit({ outboxPut: [{ clientMsgId: %q }] });
			%s
			await done;
			return (await store.load()).outbox.map(({ clientMsgId }) => clientMsgId).join();
		})`
	const stand = `const request = new XMLHttpRequest(); request.open("GET", "/still", false); request.send();`
	first := openPage(t, browser, server.URL)
	second, cancel := chromedp.NewContext(first)
	t.Cleanup(cancel)
	require.NoError(t, chromedp.Do(second, chromedp.Navigate(server.URL)))
	var group errgroup.Group
	group.Go(func() error {
		stored, err := chromedp.Run(first, chromedp.Evaluate[string](fmt.Sprintf(write, "a", stand), chromedp.EvalAwaitPromise))
		if err == nil && stored != "a,b" {
			err = fmt.Errorf("the first tab found %q stored", stored)
		}
		return err
	})
	select {
	case <-still:
	case <-first.Done():
		require.FailNow(t, "the first tab does not get as far")
	}
	stored, err := chromedp.Run(second, chromedp.Evaluate[string](fmt.Sprintf(write, "b", ""), chromedp.EvalAwaitPromise))
	close(written)
	require.NoError(t, err)
	require.Equal(t, "a,b", stored)
	require.NoError(t, group.Wait())
}

func openPage(t *testing.T, browser, url string) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(browser),
		chromedp.NoSandbox,
		chromedp.DisableGPU,
		chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("blink-settings", "primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4"), // there is a mouse
	)
	timeout, cancelTimeout := context.WithTimeout(context.Background(), 2*time.Minute)
	allocator, cancelAllocator := chromedp.NewExecAllocator(timeout, options...)
	page, _ := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		err := chromedp.Cancel(page) // closes the browser and waits, so that its folder can be removed
		cancelAllocator()
		cancelTimeout()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("closing the browser: %v", err)
		}
	})
	require.NoError(t, chromedp.Do(page))
	// What nobody looks at is not read, and no window of a browser without a screen has the focus.
	_, err := chromedp.Call(page, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	require.NoError(t, err)
	require.NoError(t, chromedp.Do(page, chromedp.Navigate(url)))
	return page
}
