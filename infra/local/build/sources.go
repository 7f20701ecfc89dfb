package build

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/inorder-im/inorder/infra/local/template"
)

// Sources are the files that a function is built from, without those of the standard
// library and of downloaded modules, which do not change. Each list is sorted.
type Sources struct {
	Code  []string // folders of its packages
	Data  []string // folders of what is embedded; any file in them may be
	Files []string // go.mod, go.sum, go.work, go.work.sum, whether there or not
}

// SourcesOf lists, by logical id, what the functions are built from. The sources of a
// function whose code does not compile are those that are known; what is to be, such as
// the folder of an imported package that is not there yet, is among them.
//
// With an error the function's own folder and go.mod are all that is known.
func SourcesOf(ctx context.Context, stack *template.Stack) (map[string]Sources, error) {
	found := map[string]Sources{}
	roots := map[string][]*template.Function{}
	for _, f := range stack.Functions {
		root := moduleRoot(f.CodeURI)
		if root == "" { // it may have been removed just now
			found[f.LogicalID] = Sources{Code: []string{f.CodeURI}}
			continue
		}
		found[f.LogicalID] = Sources{Code: []string{f.CodeURI}, Files: moduleFiles(root)}
		roots[root] = append(roots[root], f)
	}
	var errs []error
	for root, functions := range roots {
		g, err := list(ctx, root, functions)
		if err != nil {
			errs = append(errs, fmt.Errorf("listing the sources of the functions in %s: %w", root, err))
			continue
		}
		for _, f := range functions {
			found[f.LogicalID] = g.sources(f.CodeURI, found[f.LogicalID])
		}
	}
	return found, errors.Join(errs...)
}

func moduleFiles(root string) []string {
	return []string{filepath.Join(root, "go.mod"), filepath.Join(root, "go.sum")}
}

// listed is what go list says of a package.
type listed struct {
	ImportPath, Dir string
	Standard        bool
	Module          *struct {
		Path, Dir, GoMod string
		Main             bool
		Replace          *struct{ Version string }
	}
	Imports, EmbedFiles []string
}

// isLocal tells whether the package can change: it is in a module that is worked on,
// or in none.
func (p *listed) isLocal() bool {
	m := p.Module
	return !p.Standard && (m == nil || m.Main || m.Replace != nil && m.Replace.Version == "")
}

// graph is the packages of a module's functions, and all that they need.
type graph struct {
	packages map[string]*listed // by import path
	modules  map[string]string  // folders of those that are worked on, by path
	work     []string           // go.work and go.work.sum, if there is a workspace
}

func list(ctx context.Context, root string, functions []*template.Function) (*graph, error) {
	b := &batch{root: root}
	for _, f := range functions {
		b.packages = append(b.packages, &pkg{dir: f.CodeURI})
	}
	args := append([]string{"list", "-e", "-deps", "-json=ImportPath,Dir,Standard,Module,Imports,EmbedFiles", "--"}, b.paths()...)
	output, err := b.run(ctx, args...)
	if err != nil {
		return nil, inWords(err)
	}
	work, err := b.run(ctx, "env", "GOWORK")
	if err != nil {
		return nil, inWords(err)
	}
	g := &graph{packages: map[string]*listed{}, modules: map[string]string{}}
	if work = strings.TrimSpace(work); filepath.IsAbs(work) {
		g.work = []string{work, strings.TrimSuffix(work, ".work") + ".work.sum"}
	}
	for d := json.NewDecoder(strings.NewReader(output)); ; {
		p := &listed{}
		if err := d.Decode(p); errors.Is(err, io.EOF) {
			return g, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading go list: %w", err)
		}
		g.packages[p.ImportPath] = p
		if p.Module != nil && p.isLocal() && p.Module.Dir != "" {
			g.modules[p.Module.Path] = p.Module.Dir
		}
	}
}

// inWords adds what the go tool said.
func inWords(err error) error {
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(failed.Stderr))
	}
	return err
}

// sources adds to what is known of a function with that folder.
func (g *graph) sources(dir string, known Sources) Sources {
	known.Files = append(known.Files, g.work...)
	var next []*listed
	for _, p := range g.packages {
		if p.Dir == dir || sameFile(p.Dir, dir) {
			next = append(next, p)
		}
	}
	seen := map[*listed]bool{}
	for len(next) > 0 {
		p := next[len(next)-1]
		next = next[:len(next)-1]
		if seen[p] || p.Standard {
			continue
		}
		seen[p] = true
		if p.isLocal() {
			g.addTo(&known, p)
		}
		for _, path := range p.Imports {
			if q := g.packages[path]; q != nil {
				next = append(next, q)
			}
		}
	}
	for _, list := range []*[]string{&known.Code, &known.Data, &known.Files} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	return known
}

func (g *graph) addTo(s *Sources, p *listed) {
	dir := p.Dir
	if dir == "" {
		dir = g.placeOf(p.ImportPath)
	}
	if dir == "" {
		return
	}
	s.Code = append(s.Code, dir)
	for _, file := range p.EmbedFiles {
		s.Data = append(s.Data, filepath.Dir(filepath.Join(dir, file)))
	}
	if p.Module != nil && p.Module.GoMod != "" {
		s.Files = append(s.Files, moduleFiles(filepath.Dir(p.Module.GoMod))...)
	}
}

// placeOf is where a package would be that is not there, "" if that is not known.
func (g *graph) placeOf(importPath string) string {
	for module, dir := range g.modules {
		if rest, ok := strings.CutPrefix(importPath, module+"/"); ok {
			return filepath.Join(dir, rest)
		}
	}
	return ""
}
