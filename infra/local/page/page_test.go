package page_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/page"
	"github.com/inorder-im/inorder/shared/client/web/browsertest"
)

var picturesDir = flag.String("page.pictures", "", "folder to leave pictures of the page in, of every state, size and colour scheme")

// servePage serves the page as the local cloud does, and lets these modules of the
// folder testing run before it.
func servePage(t *testing.T, modules ...string) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/", page.Handler(page.Config{WebSocketURL: webSocketURL}))
	mux.Handle("/testing/", http.FileServer(http.Dir(".")))
	mux.Handle("/client/tests/", http.StripPrefix("/client/", http.FileServer(http.Dir(clientDir))))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		index := get(http.MethodGet, "/")
		for _, name := range []string{"Content-Type", "Content-Security-Policy"} {
			w.Header().Set(name, index.Header().Get(name))
		}
		const script = `<script type="module" src="page.js">`
		var before strings.Builder
		for _, module := range modules {
			fmt.Fprintf(&before, `<script type="module" src="testing/%s"></script>`, module)
		}
		_, _ = w.Write([]byte(strings.Replace(index.Body.String(), script, before.String()+script, 1))) // to a browser that waits for it
	})
	mux.HandleFunc("GET /dev/token", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{"token": r.URL.Query().Get("user")}) // likewise
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// requireInPage runs a check of the module checkpage.js.
func requireInPage(tab context.Context, t *testing.T, check string) {
	t.Helper()
	outcome, err := chromedp.Run(tab, chromedp.Evaluate[string](fmt.Sprintf(`
		import("/testing/checkpage.js").then((checks) => checks[%q]()).then(() => "as wanted", (error) => error.stack)`, check),
		chromedp.EvalAwaitPromise))
	require.NoError(t, err)
	require.Equal(t, "as wanted", outcome)
}

// The page itself, driven by what a person sees and clicks, against the tests' own server.
func TestPageInChromium(t *testing.T) {
	t.Parallel()
	tab := browsertest.Open(t, "about:blank")
	require.NoError(t, chromedp.Do(tab, sizes["desktop"]...))
	require.NoError(t, chromedp.Do(tab, chromedp.Navigate(servePage(t, "fakeserver.js")+"/#user=alice")))
	requireInPage(tab, t, "checkPage")
}

func TestPageOnAPhoneInChromium(t *testing.T) {
	t.Parallel()
	tab := browsertest.Open(t, "about:blank")
	require.NoError(t, chromedp.Do(tab, sizes["phone"]...))
	require.NoError(t, chromedp.Do(tab, chromedp.Navigate(servePage(t, "fakeserver.js")+"/#user=alice")))
	requireInPage(tab, t, "checkPhone")
}

func TestPageShowsWhatWasOpenBeforeInChromium(t *testing.T) {
	t.Parallel()
	tab := browsertest.Open(t, "about:blank")
	require.NoError(t, chromedp.Do(tab, chromedp.Navigate(servePage(t, "fakeserver.js", "reopened.js")+"/#user=alice")))
	requireInPage(tab, t, "checkReopened")
}

func TestPageWithoutStorageInChromium(t *testing.T) {
	t.Parallel()
	tab := browsertest.Open(t, "about:blank")
	require.NoError(t, chromedp.Do(tab, chromedp.Navigate(servePage(t, "fakeserver.js", "nostorage.js")+"/#user=alice")))
	requireInPage(tab, t, "checkNoStorage")
}

// pictures are taken of every scene of scenes.js.
var (
	sizes = map[string][]chromedp.Action[chromedp.Void]{
		"desktop": {chromedp.EmulateViewport(1280, 800)},
		"phone":   {chromedp.EmulateViewport(390, 844, chromedp.EmulateMobile, chromedp.EmulateTouch)},
	}
	schemes = []string{"light", "dark"}
	scenes  = []string{"welcome", "empty", "list", "chat", "group", "failed", "offline", "news", "menu", "details", "edit", "closed"}
)

// TestPagePictures leaves pictures of the page in -page.pictures, to be looked at.
// Those in the folder pictures are two of them, for the README: group-desktop-light and
// chat-phone-dark, each through `pngquant 128`.
func TestPagePictures(t *testing.T) {
	t.Parallel()
	if *picturesDir == "" {
		t.Skip("-page.pictures names no folder")
	}
	require.NoError(t, os.MkdirAll(*picturesDir, 0o750))
	address := servePage(t, "fakeserver.js", "scenes.js")
	for size, emulate := range sizes {
		for _, scheme := range schemes {
			t.Run(size+" "+scheme, func(t *testing.T) {
				tab := browsertest.Open(t, "about:blank")
				features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}
				_, err := chromedp.Call(tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
				require.NoError(t, err)
				require.NoError(t, chromedp.Do(tab, emulate...))
				for i, scene := range scenes {
					picture := pictureOf(tab, t, address, scene, i)
					file := filepath.Join(*picturesDir, fmt.Sprintf("%s-%s-%s.png", scene, size, scheme))
					require.NoError(t, os.WriteFile(file, picture, 0o600))
				}
			})
		}
	}
}

func pictureOf(tab context.Context, t *testing.T, address, scene string, device int) []byte {
	t.Helper()
	if scene != "welcome" {
		address += fmt.Sprintf("/#user=alice&device=laptop-%d", device)
	}
	require.NoError(t, chromedp.Do(tab, chromedp.Navigate("about:blank"), chromedp.Navigate(address)))
	outcome, err := chromedp.Run(tab, chromedp.Evaluate[string](fmt.Sprintf(`window.scene(%q).then(() => "ready", (error) => error.stack)`, scene), chromedp.EvalAwaitPromise))
	require.NoError(t, err)
	require.Equal(t, "ready", outcome, scene)
	picture, err := chromedp.Run(tab, chromedp.CaptureScreenshot())
	require.NoError(t, err)
	return picture
}
