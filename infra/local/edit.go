//go:build !windows

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/inorder-im/inorder/infra/local/build"
	"github.com/inorder-im/inorder/infra/local/watch"
)

// templateItself stands for the template among the functions that change. No function
// has an empty name.
const templateItself = ""

// editor puts functions that were edited in the place of those that run.
type editor struct {
	*cloud
	folder  string                 // where they are built
	running map[string]os.FileInfo // the executables, by logical id
	broken  map[string]bool        // functions whose sources do not compile
}

// startWatch looks after the sources of the functions, which were built since began.
func (c *cloud) startWatch(ctx context.Context, executables map[string]string, folder string, began time.Time) error {
	e := &editor{cloud: c, folder: folder, running: map[string]os.FileInfo{}, broken: map[string]bool{}}
	for id, dir := range executables {
		info, err := os.Stat(filepath.Join(dir, "bootstrap"))
		if err != nil {
			return fmt.Errorf("looking at what runs: %w", err)
		}
		e.running[id] = info
	}
	c.beside(ctx)(func(ctx context.Context) {
		watch.Run(ctx, watch.Config{List: e.list, Build: e.rebuild, Since: began, Log: c.out.logger(self)})
	})
	return nil
}

func (e *editor) list(ctx context.Context) (map[string]build.Sources, error) {
	sources, err := build.SourcesOf(ctx, e.stack)
	sources[templateItself] = build.Sources{Files: []string{e.stack.File}}
	return sources, err
}

// rebuild is for [watch.Config]. What does not compile runs on as it was; the others are
// renewed, as if they had been changed alone.
func (e *editor) rebuild(ctx context.Context, changed []string) (unfinished []string) {
	if changed[0] == templateItself {
		e.tellOfTemplate()
		changed = changed[1:]
	}
	began := time.Now()
	for len(changed) > 0 {
		dirs, err := e.buildOnly(ctx, changed, build.Options{OutDir: e.folder}, func() {})
		faulty := build.AtFault(err)
		rest := without(changed, faulty)
		switch {
		case err == nil:
			e.renew(dirs, time.Since(began)) //nolint:contextcheck // processes outlive every context
			return nil
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			e.out.failure(fmt.Errorf("building %s took longer than %v and was ended; the next change tries again",
				namesOf(changed), time.Since(began).Round(time.Second)))
			return changed
		case ctx.Err() != nil: // changed again
			return changed
		case len(rest) == len(changed): // it is nobody's fault
			e.out.failure(err)
			e.out.step("%s: as before, until the next change", namesOf(changed))
			return changed
		default:
			e.out.failure(err)
			e.out.step("%s: as before, until it compiles", namesOf(faulty))
			for _, id := range faulty {
				e.broken[id] = true
			}
			changed = rest
		}
	}
	return nil
}

// renew puts the executables that are others than before in the place of those that run.
func (e *editor) renew(dirs map[string]string, took time.Duration) {
	var renewed, mended []string
	for _, id := range slices.Sorted(maps.Keys(dirs)) {
		info, err := os.Stat(filepath.Join(dirs[id], "bootstrap"))
		if err != nil { // it was removed as soon as it was built; the next change builds it again
			e.out.failure(fmt.Errorf("looking at what was built: %w", err))
			continue
		}
		switch was := e.running[id]; {
		case !os.SameFile(was, info):
			e.running[id] = info
			_ = e.functions.Renew(id) // it is one of the template's
			renewed = append(renewed, id)
		case e.broken[id]:
			mended = append(mended, id)
		}
		delete(e.broken, id)
	}
	if len(renewed) > 0 {
		e.out.step("%s: rebuilt in %.1f s", namesOf(renewed), took.Seconds())
	}
	if len(mended) > 0 {
		e.out.step("%s: compiles again, to what runs", namesOf(mended))
	}
}

// tellOfTemplate says once what it takes to apply a change.
func (e *editor) tellOfTemplate() {
	text, err := os.ReadFile(e.stack.File)
	switch {
	case err != nil:
		e.out.step("%s is gone: what was read from it goes on until the next start", e.stack.File)
	case !bytes.Equal(text, e.text):
		e.out.step("%s has changed: restart to apply it", e.stack.File)
	}
}

// someNames is how many names are told one by one.
const someNames = 5

// namesOf is how functions are spoken of.
func namesOf(ids []string) string {
	if len(ids) > someNames {
		return fmt.Sprintf("%d functions", len(ids))
	}
	var names []string
	for _, id := range ids {
		names = append(names, shortName(id))
	}
	return strings.Join(names, ", ")
}

func without(list, others []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(others, s) })
}
