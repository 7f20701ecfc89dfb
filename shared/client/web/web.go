// Package web is the browser client: ES modules without a build step and without
// dependencies. They are embedded here for a Go server that has pages which import
// them; with npm they are the package inorder-client.
package web

import (
	"embed"
	"io/fs"
)

//go:embed *.js
var modules embed.FS

// Modules are the client's modules, all in one folder. A page imports index.js.
func Modules() fs.FS {
	return modules
}
