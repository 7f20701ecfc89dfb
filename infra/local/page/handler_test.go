package page_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/page"
	"github.com/inorder-im/inorder/shared/client/web/browsertest"
)

const (
	webSocketURL = "ws://127.0.0.1:4242/local"
	clientDir    = "../../../shared/client/web"
)

func get(method, path string) *httptest.ResponseRecorder {
	recorder := httptest.NewRecorder()
	page.Handler(page.Config{WebSocketURL: webSocketURL}).ServeHTTP(recorder, httptest.NewRequest(method, path, nil))
	return recorder
}

// pageFiles are the files that belong to the page, by their paths in it, so that one
// that was not embedded or not given a type is noticed.
func pageFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, pattern := range []string{"*.html", "*.css", "*.svg", "*.js"} {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, name := range found {
			if !strings.HasSuffix(name, ".test.js") {
				files[name] = name
			}
		}
	}
	modules, err := filepath.Glob(clientDir + "/*.js")
	require.NoError(t, err)
	for _, module := range modules {
		files["client/"+filepath.Base(module)] = module
	}
	require.Contains(t, files, "page.js")
	require.Contains(t, files, "client/index.js")
	return files
}

func TestEveryFileIsServedWithItsTypeAndPolicy(t *testing.T) {
	t.Parallel()
	types := map[string]string{
		".html": "text/html; charset=utf-8",
		".css":  "text/css; charset=utf-8",
		".js":   "text/javascript; charset=utf-8",
		".svg":  "image/svg+xml",
	}
	for name, file := range pageFiles(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := get(http.MethodGet, "/"+name)
			require.Equal(t, http.StatusOK, response.Code)
			require.Equal(t, types[filepath.Ext(name)], response.Header().Get("Content-Type"))
			requireStrict(t, response)
			want, err := os.ReadFile(file)
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
		"the client's":       {http.MethodGet, "/client/", http.StatusNotFound, "not found"},
		"the client's Go":    {http.MethodGet, "/client/web.go", http.StatusNotFound, "not found"},
		"out of the client":  {http.MethodGet, "/client/../page.js", http.StatusNotFound, "not found"},
		"the Go source":      {http.MethodGet, "/page.go", http.StatusNotFound, "not found"},
		"a way out":          {http.MethodGet, "/../page/page.js", http.StatusNotFound, "not found"},
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
	for name, file := range pageFiles(t) {
		content, err := os.ReadFile(file)
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

func TestPageModulesInNode(t *testing.T) {
	t.Parallel()
	browsertest.Modules(t)
}
