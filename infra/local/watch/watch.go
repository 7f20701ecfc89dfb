// Package watch notices changes in the sources of functions and has them built anew.
//
// It looks at the times and sizes of the files a few times a second, which works on
// every file system and costs next to nothing (a benchmark says how much).
package watch

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/inorder-im/inorder/infra/local/build"
)

const (
	// every is how often files are looked at, and for how long they must rest before a
	// build begins: an editor, or git, writes several of them, each in steps.
	every = 250 * time.Millisecond

	// patience is for how long changes that go on can put off the build of the first.
	patience = 10 * time.Second

	// buildLimit bounds a build, which may have to download modules.
	buildLimit = 5 * time.Minute

	// clockStep is by how much a file's time may be behind the clock.
	clockStep = 20 * time.Millisecond
)

// Config is what to look after.
type Config struct {
	// List returns the sources by function. It is called at the beginning and after each
	// build. With an error, what it gave before counts, too.
	List func(context.Context) (map[string]build.Sources, error)

	// Build builds the functions, of which there is at least one, in alphabetical order.
	// Never two at once. Its context ends when their sources have changed again, which
	// makes it worthless, or after 5 minutes. It returns those that are to be built again
	// with the next change, because they could not be built and that is not their fault.
	Build func(ctx context.Context, functions []string) (unfinished []string)

	// Since is when the code was built that runs now.
	Since time.Time

	Log *slog.Logger
}

// watcher is in one goroutine.
type watcher struct {
	cfg     Config
	sources map[string]build.Sources
	places  map[place]*look

	dirty      map[string]bool // functions that have changed and are not built
	unfinished map[string]bool // functions to build with the next that are dirty
	dirtySince time.Time       // of the first that is dirty
}

// Run looks after the sources until ctx ends.
func Run(ctx context.Context, cfg Config) {
	w := &watcher{cfg: cfg, places: map[place]*look{}, dirty: map[string]bool{}, unfinished: map[string]bool{}}
	if err := w.list(ctx, cfg.Since); err != nil && ctx.Err() == nil {
		cfg.Log.Warn("changes are seen in the functions' own folders only", "error", err)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		moved := w.look()
		if len(w.dirty) > 0 && (len(moved) == 0 || w.isLate()) {
			w.build(ctx, tick.C)
		}
	}
}

// isLate tells whether a change has waited for as long as it may.
func (w *watcher) isLate() bool { return time.Since(w.dirtySince) >= patience }

// build builds what is dirty. A newer change ends it, unless one is late: else who
// writes without a pause would never see anything.
func (w *watcher) build(ctx context.Context, tick <-chan time.Time) {
	maps.Copy(w.dirty, w.unfinished)
	names := slices.Sorted(maps.Keys(w.dirty))
	clear(w.dirty)
	clear(w.unfinished)
	began, late, waits := time.Now(), w.isLate(), w.dirtySince
	building, cancel := context.WithTimeout(ctx, buildLimit)
	defer cancel()
	done := make(chan []string, 1)
	go func() { done <- w.cfg.Build(building, names) }()
	superseded := false
	for {
		select {
		case unfinished := <-done:
			if superseded {
				for _, name := range names {
					w.dirty[name] = true
				}
				w.dirtySince = waits
				return
			}
			for _, name := range unfinished {
				w.unfinished[name] = true
			}
			_ = w.list(ctx, began) // the build has said what is wrong
			w.dirtySince = time.Now()
			return
		case <-tick:
			moved := w.look()
			if !late && slices.ContainsFunc(names, func(name string) bool { return moved[name] }) {
				superseded = true
				cancel()
			}
		}
	}
}

// look makes functions dirty whose sources have changed since the last look, and returns
// them.
func (w *watcher) look() map[string]bool {
	changed := map[place]bool{}
	for p, l := range w.places {
		if l.again(p) {
			changed[p] = true
		}
	}
	return w.mark(changed)
}

// mark makes the functions of changed places dirty, and returns them.
func (w *watcher) mark(changed map[place]bool) map[string]bool {
	if len(changed) == 0 {
		return nil
	}
	moved := map[string]bool{}
	for name, s := range w.sources {
		for p := range places(s) {
			moved[name] = moved[name] || changed[p]
		}
	}
	maps.DeleteFunc(moved, func(_ string, is bool) bool { return !is })
	if len(w.dirty) == 0 && len(moved) > 0 {
		w.dirtySince = time.Now()
	}
	maps.Copy(w.dirty, moved)
	return moved
}

// list asks for the sources. What is new among them has changed if its time is not
// before since.
func (w *watcher) list(ctx context.Context, since time.Time) error {
	listed, err := w.cfg.List(ctx)
	if err != nil {
		for name, s := range listed {
			was := w.sources[name]
			listed[name] = build.Sources{
				Code:  slices.Concat(s.Code, was.Code),
				Data:  slices.Concat(s.Data, was.Data),
				Files: slices.Concat(s.Files, was.Files),
			}
		}
	}
	w.sources = listed
	now, changed := map[place]*look{}, map[place]bool{}
	for _, s := range listed {
		for p := range places(s) {
			if now[p] != nil {
				continue
			}
			if l := w.places[p]; l != nil {
				l.changed = time.Time{} // names that came in one step of the clock look like one
				now[p] = l
				continue
			}
			now[p] = &look{}
			now[p].again(p)
			changed[p] = now[p].newest.After(since.Add(-clockStep))
		}
	}
	w.places = now
	maps.DeleteFunc(changed, func(_ place, is bool) bool { return !is })
	w.mark(changed)
	return err
}
