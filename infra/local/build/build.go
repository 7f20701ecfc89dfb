// Package build makes the executables of a stack's functions for this machine.
//
// It compiles what `sam build` compiles, from the same folders by the same go tool,
// but for the local operating system and processor, and all functions in one
// command: they share the compiler's work, link side by side, and take a tenth of a
// second when nothing changed.
package build

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/build"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/inorder-im/inorder/infra/local/template"
)

// resources begins the path of what is in a function of the template.
const resources = "Resources."

// The Metadata.BuildMethod that are understood. A makefile's recipe is not read: it is
// taken to build, for the cloud's processor, the Go package that is the CodeUri.
const (
	goMethod   = "go1.x"
	makeMethod = "makefile"
)

// Options say where to build.
type Options struct {
	// OutDir takes a folder per function, and is worth keeping: what is up to date
	// in it is not linked again. It is made if it does not exist.
	OutDir string

	// Only names, by logical id, the functions to build, and nil means all. Others are
	// built with them if they have the same folder as CodeUri.
	Only []string

	// Debug names those to build for a debugger: with debug information, without the
	// compiler's optimisations, and with full paths of the sources.
	Debug []string

	// Progress, if not nil, is called in the caller's goroutine whenever a
	// function's executable is ready. took is the time since the build began; done
	// of total functions are ready.
	Progress func(function string, took time.Duration, done, total int)
}

// Functions builds all functions of a stack. It returns, by logical id, the folder
// that holds the function's executable, which is named bootstrap.
//
// Environment variables of the go tool, such as GOFLAGS, apply as they do to `sam
// build`. There are two differences from its go1.x: cgo is off unless CGO_ENABLED says
// otherwise, as it is when sam build compiles for another platform, and there is no debug
// information unless GOFLAGS has its own -ldflags, which makes linking faster by a third.
//
// A mistake in the template is a *[template.Error], code that does not compile an
// *[Error]; several are joined.
func Functions(ctx context.Context, stack *template.Stack, o Options) (map[string]string, error) {
	if o.OutDir == "" {
		return nil, errors.New("building the functions: no output folder given")
	}
	out, err := filepath.Abs(o.OutDir)
	if err != nil {
		return nil, fmt.Errorf("finding the output folder %s: %w", o.OutDir, err)
	}
	batches, err := plan(stack, out, o)
	if err != nil {
		return nil, err
	}
	p := &progress{report: o.Progress, start: time.Now()}
	for _, b := range batches {
		for _, pkg := range b.packages {
			p.total += len(pkg.functions)
		}
	}
	var errs []error
	for _, b := range batches {
		errs = append(errs, b.build(ctx, p))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return layOut(batches, out)
}

// pkg is one main package, built once for all functions that have it as CodeUri.
type pkg struct {
	dir       string
	functions []string // logical ids
	binary    string   // where go build puts the executable
	wanted    bool
}

// batch is what one go build can make.
type batch struct {
	root     string // folder of the go.mod
	mode     mode
	out      string // go build's -o
	packages []*pkg
}

// mode is how a package is compiled.
type mode struct{ trimPath, debug bool }

// plan checks the functions and sorts their packages into batches. What is not wanted
// takes part in that, so that the rest is built where it was before.
func plan(stack *template.Stack, out string, o Options) ([]*batch, error) {
	type key struct {
		dir string
		mode
	}
	packages := map[key]*pkg{}
	var order []key
	var errs []error
	for _, f := range stack.Functions {
		wanted := o.Only == nil || slices.Contains(o.Only, f.LogicalID)
		if err := check(stack.File, f); err != nil {
			if wanted {
				errs = append(errs, err)
			}
			continue
		}
		k := key{f.CodeURI, mode{trimPath: f.Build.TrimPath}}
		if slices.Contains(o.Debug, f.LogicalID) {
			k.mode = mode{debug: true}
		}
		if packages[k] == nil {
			packages[k] = &pkg{dir: f.CodeURI}
			order = append(order, k)
		}
		packages[k].functions = append(packages[k].functions, f.LogicalID)
		packages[k].wanted = packages[k].wanted || wanted
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	var batches []*batch
	for _, k := range order {
		p := packages[k]
		batches = add(batches, p, moduleRoot(k.dir), k.mode, filepath.Join(out, ".go"))
	}
	return wantedOf(batches), nil
}

// wantedOf leaves out what is not wanted.
func wantedOf(batches []*batch) []*batch {
	for _, b := range batches {
		b.packages = slices.DeleteFunc(b.packages, func(p *pkg) bool { return !p.wanted })
	}
	return slices.DeleteFunc(batches, func(b *batch) bool { return len(b.packages) == 0 })
}

// check reports what in the template keeps a function from being built.
func check(file string, f *template.Function) error {
	fail := func(line int, path, format string, args ...any) error {
		return &template.Error{File: file, Line: line, Path: resources + f.LogicalID + path, Message: fmt.Sprintf(format, args...)}
	}
	switch f.Build.Method {
	case goMethod, makeMethod:
	case "":
		return fail(f.Line, ".Metadata.BuildMethod", "is required and missing: want %s or %s", goMethod, makeMethod)
	default:
		return fail(f.Build.Line, ".Metadata.BuildMethod", "%q is not understood: want %s or %s", f.Build.Method, goMethod, makeMethod)
	}
	const codeURI = ".Properties.CodeUri"
	if files, err := filepath.Glob(filepath.Join(f.CodeURI, "*.go")); err == nil && len(files) == 0 {
		return fail(f.Line, codeURI, "there are no Go files in %s", f.CodeURI)
	}
	// Only the package clause matters here; what else is wrong go build says better.
	if p, err := build.ImportDir(f.CodeURI, 0); err == nil && p.Name != "main" {
		return fail(f.Line, codeURI, "%s has package %s, and a function needs package main", f.CodeURI, p.Name)
	}
	if moduleRoot(f.CodeURI) == "" {
		return fail(f.Line, codeURI, "there is no go.mod in %s or above it", f.CodeURI)
	}
	return nil
}

// moduleRoot finds the folder with the go.mod that dir belongs to, "" if there is none.
func moduleRoot(dir string) string {
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d
		}
		if d == filepath.Dir(d) {
			return ""
		}
	}
}

// add puts p into a batch that can take it. With a folder as -o, go build names an
// executable by its import path's last element, so a batch holds every name once.
// A module's root, and a folder such as v2, is named otherwise and goes alone, with a
// file as -o.
func add(batches []*batch, p *pkg, root string, m mode, out string) []*batch {
	name := filepath.Base(p.dir)
	if p.dir == root || versionLike(name) {
		p.binary = filepath.Join(out, folderName(p.dir, m, 0), bootstrap)
		return append(batches, &batch{root: root, mode: m, out: p.binary, packages: []*pkg{p}})
	}
	same := func(q *pkg) bool { return filepath.Base(q.dir) == name }
	before := 0
	for _, b := range batches {
		if b.root != root || b.mode != m || !b.shared() {
			continue
		}
		if !slices.ContainsFunc(b.packages, same) {
			p.binary = filepath.Join(b.out, name)
			b.packages = append(b.packages, p)
			return batches
		}
		before++
	}
	// The next build finds the folder again, and links only what changed.
	dir := filepath.Join(out, folderName(root, m, before))
	p.binary = filepath.Join(dir, name)
	return append(batches, &batch{root: root, mode: m, out: dir + separator, packages: []*pkg{p}})
}

const separator = string(filepath.Separator)

// shared tells whether the batch builds into a folder, which takes more packages.
func (b *batch) shared() bool { return strings.HasSuffix(b.out, separator) }

// versionLike tells whether go build would name the executable after the element
// before this one.
func versionLike(name string) bool {
	digits, ok := strings.CutPrefix(name, "v")
	return ok && digits != "" && strings.Trim(digits, "0123456789") == ""
}

// bootstrap is the name of the executable that the provided runtimes start.
const bootstrap = "bootstrap"

// layOut gives every function a folder with its executable.
func layOut(batches []*batch, out string) (map[string]string, error) {
	dirs := map[string]string{}
	for _, b := range batches {
		for _, p := range b.packages {
			for _, id := range p.functions {
				dirs[id] = filepath.Join(out, id)
				if b.mode.debug { // another local cloud may run the ordinary one
					dirs[id] += ".debug"
				}
				if err := place(p.binary, dirs[id]); err != nil {
					return nil, fmt.Errorf("placing the executable of %s: %w", id, err)
				}
			}
		}
	}
	return dirs, nil
}

// place makes dir/bootstrap the file binary. A process that still runs the former
// file keeps it: it is replaced, never written to.
func place(binary, dir string) error {
	target := filepath.Join(dir, bootstrap)
	if sameFile(binary, target) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	next := target + ".next"
	if err := os.RemoveAll(next); err != nil {
		return err
	}
	if os.Link(binary, next) != nil { // a file system without hard links
		if err := copyFile(binary, next); err != nil {
			return err
		}
	}
	return os.Rename(next, target)
}

func sameFile(a, b string) bool {
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(infoA, infoB)
}

func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, content, 0o755)
}

// progress tells what is ready.
type progress struct {
	report      func(function string, took time.Duration, done, total int)
	start       time.Time
	done, total int
}

func (p *progress) ready(b *pkg) {
	for _, id := range b.functions {
		p.done++
		if p.report != nil {
			p.report(id, time.Since(p.start), p.done, p.total)
		}
	}
}

// Error is code that does not compile.
type Error struct {
	Functions []string // logical ids of those that need the code, sorted; empty if unknown
	Package   string   // import path; empty if unknown
	Output    string   // the go tool's lines
}

// Error names the functions and gives the go tool's lines.
func (e *Error) Error() string {
	who := cmp.Or(strings.Join(e.Functions, ", "), "the functions")
	what := cmp.Or(e.Package, "it")
	return fmt.Sprintf("building %s: %s does not compile:\n%s", who, what, e.Output)
}

// AtFault returns the logical ids of the functions that an error of [Functions] names. The
// others of that build could do without them.
func AtFault(err error) []string {
	var ids []string
	for _, err := range flat(err) {
		var code *Error
		var mistake *template.Error
		switch {
		case errors.As(err, &code):
			ids = append(ids, code.Functions...)
		case errors.As(err, &mistake):
			rest, _ := strings.CutPrefix(mistake.Path, resources)
			id, _, _ := strings.Cut(rest, ".")
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// flat returns the errors that were joined.
func flat(err error) (list []error) {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	for _, e := range joined.Unwrap() {
		list = append(list, flat(e)...)
	}
	return list
}
