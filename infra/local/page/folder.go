package page

import (
	"io/fs"
	"mime"
	"net/http"
	"os"
	"path"
	"strings"
)

// besideFolder reports whether a path is also served beside a folder of one's own.
func besideFolder(urlPath string) bool {
	return urlPath == configPath || strings.HasPrefix(urlPath, clientPath)
}

// serveFile serves a file of the folder, and reports whether there is one.
func serveFile(w http.ResponseWriter, r *http.Request, folder *os.Root) bool {
	name := strings.TrimPrefix(r.URL.Path, "/")
	isFolder := name == "" || strings.HasSuffix(name, "/")
	if name = strings.TrimSuffix(name, "/"); name == "" {
		name = "."
	}
	if !fs.ValidPath(name) || isHidden(name) {
		return false
	}
	info, err := folder.Stat(name)
	if err != nil || isFolder && !info.IsDir() {
		return false
	}
	if info.IsDir() {
		if info, err = folder.Stat(path.Join(name, Index)); err != nil {
			return false
		}
		if !isFolder { // or what the page names beside itself would be looked for above it
			http.Redirect(w, r, path.Base(name)+"/", http.StatusFound) //nolint:gosec // the name of a folder that is there
			return true
		}
		name = path.Join(name, Index)
	}
	if !info.Mode().IsRegular() { // to open a pipe would take until somebody writes into it
		return false
	}
	file, err := folder.Open(name)
	if err != nil {
		return false
	}
	defer func() { _ = file.Close() }()
	contentType := typeOf(path.Ext(name))
	if contentType == unknownType {
		contentType = mime.TypeByExtension(path.Ext(name))
	}
	if contentType != "" { // else it is told from the content
		w.Header().Set("Content-Type", contentType)
	}
	http.ServeContent(w, r, name, info.ModTime(), file)
	return true
}

// isHidden reports whether a file, or a folder that it is in, is none to show, such as
// .env and .git.
func isHidden(name string) bool {
	if name == "." {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, ".") {
			return true
		}
	}
	return false
}
