// Package page is the demo page of the local cloud, plain ES modules that are embedded
// and served without a build step. It is built on the browser client, which is served
// with it, below /client/.
package page

import (
	"embed"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/inorder-im/inorder/shared/client/web"
)

//go:embed index.html style.css favicon.svg
//go:embed page.js arrange.js composer.js details.js device.js dom.js menu.js messages.js text.js words.js
var files embed.FS

const (
	// Index is the file that is a folder's page.
	Index = "index.html"

	configPath  = "/config.json"
	clientPath  = "/client/"
	unknownType = "application/octet-stream"
)

// Config is what the page needs to know.
type Config struct {
	// WebSocketURL is where the page connects, such as ws://127.0.0.1:8080/local,
	// without a query.
	WebSocketURL string
	// Folder has a page of the developer's own, which is served instead; nil is the page.
	Folder *os.Root
}

// Handler serves the page at "/", its modules beside it, and /config.json. Any other
// path is 404, any method but GET and HEAD 405. The page expects the same origin to
// answer GET /dev/token?user=NAME with {"token": "<jwt>"}.
//
// Of a folder it serves the files, index.html for a folder in it, and nothing whose
// name begins with a dot or that a link takes out of it. What it lacks of /client/, the
// browser client, and /config.json is served beside it.
func Handler(cfg Config) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		if cfg.Folder == nil { // else the page decides what it uses
			header.Set("Content-Security-Policy", contentSecurityPolicy(cfg.WebSocketURL))
		}
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cache-Control", "no-cache")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			header.Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD are served here", http.StatusMethodNotAllowed)
			return
		}
		if cfg.Folder != nil {
			if serveFile(w, r, cfg.Folder) {
				return
			}
			if r.URL.Path == "/" {
				http.Error(w, "the folder of -web has no "+Index, http.StatusNotFound)
				return
			}
		}
		body, contentType, ok := content(r.URL.Path, cfg)
		if !ok || cfg.Folder != nil && !besideFolder(r.URL.Path) {
			http.NotFound(w, r)
			return
		}
		header.Set("Content-Type", contentType)
		header.Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body) //nolint:gosec // embedded files and our own configuration; an error: the client went away
	})
}

func content(urlPath string, cfg Config) (body []byte, contentType string, ok bool) {
	switch urlPath {
	case configPath:
		body, err := json.Marshal(map[string]string{"webSocketUrl": cfg.WebSocketURL})
		return body, "application/json", err == nil
	case "/":
		urlPath = "/" + Index
	}
	var folder fs.FS = files
	name, ofClient := strings.CutPrefix(urlPath, clientPath)
	if ofClient {
		folder = web.Modules()
	} else {
		name = strings.TrimPrefix(urlPath, "/")
	}
	body, err := fs.ReadFile(folder, name)
	return body, typeOf(path.Ext(urlPath)), err == nil
}

// typeOf is fixed here, because mime.TypeByExtension answers from the machine's own
// tables, and a module with the wrong type is not run.
func typeOf(extension string) string {
	switch extension {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".js", ".mjs":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	case ".json", ".map":
		return "application/json"
	case ".wasm":
		return "application/wasm"
	case ".webmanifest":
		return "application/manifest+json"
	default:
		return unknownType
	}
}

// The page uses nothing but its own files and one WebSocket, and never builds HTML from
// text.
func contentSecurityPolicy(webSocketURL string) string {
	connect := "'self'"
	if u, err := url.Parse(webSocketURL); err == nil && u.Host != "" {
		connect += " " + u.Scheme + "://" + u.Host
	}
	return strings.Join([]string{
		"default-src 'none'",
		"script-src 'self'",
		"style-src 'self'",
		"img-src 'self'",
		"connect-src " + connect,
		"base-uri 'none'",
		"form-action 'none'",
		"frame-ancestors 'none'",
		"require-trusted-types-for 'script'",
	}, "; ")
}
