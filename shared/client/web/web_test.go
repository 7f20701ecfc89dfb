package web_test

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/inorder-im/inorder/shared/client/web"
	"github.com/inorder-im/inorder/shared/client/web/browsertest"
)

func TestClientModulesInNode(t *testing.T) {
	t.Parallel()
	browsertest.Modules(t)
}

// A newcomer finds each module in the README's map.
func TestReadmeNamesEveryModule(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	modules, err := fs.Glob(web.Modules(), "*.js")
	require.NoError(t, err)
	for _, module := range modules {
		require.Contains(t, string(readme), "`"+module+"`")
	}
}

// newSite is a site with an empty page and the client's modules.
func newSite() *http.ServeMux {
	mux := http.NewServeMux()
	modules := http.FileServerFS(web.Modules())
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; connect-src 'self'; require-trusted-types-for 'script'")
		if r.URL.Path == "/" {
			_, _ = w.Write([]byte("<!doctype html><title>The browser client</title>"))
			return
		}
		modules.ServeHTTP(w, r)
	})
	return mux
}

// The store's contract on a real IndexedDB, in a page that trusts nothing but its own
// modules.
func TestIndexedDBStoreInChromium(t *testing.T) {
	t.Parallel()
	mux := newSite()
	mux.Handle("/tests/", http.FileServer(http.Dir(".")))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	page := browsertest.Open(t, server.URL)
	outcome, err := chromedp.Run(page, chromedp.Evaluate[string](checkStoreInPage, chromedp.EvalAwaitPromise))
	require.NoError(t, err)
	require.Equal(t, "kept", outcome)
}

// Joined by a plain slash, the two pairs of ids would share one database, and the
// second check would not find it empty.
const checkStoreInPage = `
	Promise.all([import("/tests/storecontract.js"), import("/store.js")]).then(async ([{ checkStore }, { IndexedDBStore }]) => {
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
		const { checkStoreFailures } = await import("/tests/storefailures.js");
		await checkStoreFailures();
		return "kept";
	})`

// A tab that stands still right after a write, here in a request that it waits for,
// holds up no other.
func TestIndexedDBStore_ATabThatStandsStillInChromium(t *testing.T) {
	t.Parallel()
	still, written := make(chan struct{}), make(chan struct{})
	mux := newSite()
	mux.HandleFunc("GET /still", func(w http.ResponseWriter, r *http.Request) {
		close(still)
		select {
		case <-written:
		case <-r.Context().Done():
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)

	const write = `import("/store.js")
		.then(({ IndexedDBStore }) => IndexedDBStore.open("alice", "web"))
		.then(async (store) => {
			const done = store.commit({ outboxPut: [{ clientMsgId: %q }] });
			%s
			await done;
			return (await store.load()).outbox.map(({ clientMsgId }) => clientMsgId).join();
		})`
	const stand = `const request = new XMLHttpRequest(); request.open("GET", "/still", false); request.send();`
	first := browsertest.Open(t, server.URL)
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

// A url that is relative to the page goes where the browser takes it, with the token.
func TestARelativeURLInChromium(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 1)
	mux := newSite()
	mux.HandleFunc("GET /v1", func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- r.Header.Get("Upgrade") + " " + r.Header.Get("Sec-WebSocket-Protocol"):
		default:
		}
		http.Error(w, "nobody is here", http.StatusServiceUnavailable)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	page := browsertest.Open(t, server.URL)
	state, err := chromedp.Run(page, chromedp.Evaluate[string](`
		import("/index.js").then(({ open }) => open({ url: "/v1", userId: "alice", deviceId: "web", token: () => "a.token" })).then(({ state }) => state)`,
		chromedp.EvalAwaitPromise))
	require.NoError(t, err)
	require.Equal(t, "connecting", state)
	select {
	case request := <-asked:
		require.Equal(t, "websocket inorder.v1, bearer.a.token", request)
	case <-page.Done():
		require.FailNow(t, "the browser does not connect")
	}
}
