package watch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/build"
	"github.com/inorder-im/inorder/infra/local/template"
)

// module is a folder with the functions send and sync, both of which need shared, and
// what is seen of it. Times are those of a synctest bubble, so waits take none.
type module struct {
	t        *testing.T
	dir      string
	clock    int64                                                  // of the files: each write is a second later
	building func(ctx context.Context, functions []string) []string // nil: done at once

	mu      sync.Mutex
	builds  []string // such as "send sync"
	sources map[string]build.Sources
	listErr error
}

func newModule(t *testing.T) *module {
	t.Helper()
	m := &module{t: t, dir: t.TempDir()}
	of := func(name string) build.Sources {
		return build.Sources{Code: m.paths(name, "shared"), Data: m.paths("shared/data"), Files: m.paths("go.mod", "go.sum")}
	}
	m.sources = map[string]build.Sources{"send": of("send"), "sync": of("sync")}
	for _, name := range []string{"send/main.go", "sync/main.go", "shared/shared.go", "shared/data/text.txt", "go.mod"} {
		m.write(name, "first")
	}
	return m
}

func (m *module) paths(names ...string) (list []string) {
	for _, name := range names {
		list = append(list, filepath.Join(m.dir, name))
	}
	return list
}

func (m *module) write(name, text string) {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	require.NoError(m.t, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(m.t, os.WriteFile(path, []byte(text), 0o600))
	m.clock++
	require.NoError(m.t, os.Chtimes(path, time.Time{}, time.Unix(m.clock, 0)))
}

// run watches while do changes things.
func (m *module) run(since time.Time, do func()) []string {
	m.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		Run(ctx, Config{
			List: m.list,
			Build: func(ctx context.Context, functions []string) []string {
				m.note(strings.Join(functions, " "))
				if m.building == nil {
					return nil
				}
				return m.building(ctx, functions)
			},
			Since: since,
			Log:   slog.New(slog.DiscardHandler),
		})
	}()
	time.Sleep(every / 2) // between two looks
	do()
	cancel()
	<-ended
	return m.builds
}

func (m *module) list(context.Context) (map[string]build.Sources, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.sources), m.listErr
}

// become changes what is listed.
func (m *module) become(err error, sources map[string]build.Sources) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listErr, m.sources = err, sources
}

// never is later than all files.
var never = time.Unix(1<<40, 0)

func TestWhatIsBuiltAnew(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*module)
		want   []string
	}{
		{"nothing", func(*module) {}, nil},
		{"a function's code", func(m *module) { m.write("send/main.go", "again") }, []string{"send"}},
		{"the same size", func(m *module) { m.write("send/main.go", "sixth") }, []string{"send"}},
		{"shared code", func(m *module) { m.write("shared/shared.go", "again") }, []string{"send sync"}},
		{"what is embedded", func(m *module) { m.write("shared/data/text.txt", "again") }, []string{"send sync"}},
		{"a new embedded file", func(m *module) { m.write("shared/data/more.txt", "new") }, []string{"send sync"}},
		{"go.mod", func(m *module) { m.write("go.mod", "again") }, []string{"send sync"}},
		{"a go.sum that was not there", func(m *module) { m.write("go.sum", "new") }, []string{"send sync"}},
		{"a new file", func(m *module) { m.write("send/more.go", "new") }, []string{"send"}},
		{"assembly", func(m *module) { m.write("send/fast_amd64.s", "new") }, []string{"send"}},
		{"a file less", func(m *module) { m.remove("shared/shared.go") }, []string{"send sync"}},
		{"a file with another name", func(m *module) {
			require.NoError(m.t, os.Rename(filepath.Join(m.dir, "send/main.go"), filepath.Join(m.dir, "send/other.go")))
		}, []string{"send"}},
		{"written beside and renamed, as editors do", func(m *module) {
			m.write("send/.main.go.tmp", "again")
			require.NoError(m.t, os.Rename(filepath.Join(m.dir, "send/.main.go.tmp"), filepath.Join(m.dir, "send/main.go")))
		}, []string{"send"}},
		{"a folder less", func(m *module) { m.remove("send") }, []string{"send"}},
		{"a folder less, and again there", func(m *module) {
			m.remove("send")
			time.Sleep(4 * every)
			m.write("send/main.go", "first")
		}, []string{"send", "send"}},
		{"a test", func(m *module) { m.write("send/main_test.go", "new") }, nil},
		{"an editor's files", func(m *module) {
			m.write("send/.main.go.swp", "new")
			m.write("send/4913", "new")
			m.write("send/main.go~", "new")
			m.write("send/#main.go#", "new")
			m.write("shared/data/.text.txt.swp", "new")
		}, nil},
		{"a text beside", func(m *module) { m.write("send/README.md", "new") }, nil},
		{"a folder in it", func(m *module) { m.write("send/testdata/x.go", "new") }, nil},
		{"a folder like a file", func(m *module) { m.write("send/x.go/y.txt", "new") }, nil},
		{"two, one after the other", func(m *module) {
			m.write("send/main.go", "again")
			time.Sleep(4 * every)
			m.write("sync/main.go", "again")
		}, []string{"send", "sync"}},
		{"a storm of files", func(m *module) { // a checkout of three seconds
			for i := range 300 {
				m.write(fmt.Sprintf("shared/file%d.go", i), "new")
				time.Sleep(10 * time.Millisecond)
			}
		}, []string{"send sync"}},
		{"an editor that writes at each key", func(m *module) {
			for i := range 30 {
				m.write("send/main.go", strings.Repeat("x", i))
				time.Sleep(every / 2)
			}
		}, []string{"send"}},
		{"one that never rests is seen at times", func(m *module) {
			for i := range 200 { // 25 s
				m.write("send/main.go", strings.Repeat("x", i))
				time.Sleep(every / 2)
			}
		}, []string{"send", "send", "send"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newModule(t)
				require.Equal(t, test.want, m.run(never, func() {
					test.change(m)
					time.Sleep(time.Minute)
				}))
			})
		})
	}
}

func (m *module) remove(name string) {
	m.t.Helper()
	require.NoError(m.t, os.RemoveAll(filepath.Join(m.dir, name)))
}

// slow makes builds take a minute, and counts those that run at once.
func (m *module) slow() (most func() int) {
	var mu sync.Mutex
	running, highest := 0, 0
	m.building = func(ctx context.Context, _ []string) []string {
		mu.Lock()
		running++
		highest = max(highest, running)
		mu.Unlock()
		defer func() {
			mu.Lock()
			running--
			mu.Unlock()
		}()
		select {
		case <-time.After(time.Minute):
			m.note("built")
		case <-ctx.Done():
			m.note(ctx.Err().Error())
		}
		return nil
	}
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return highest
	}
}

func (m *module) note(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.builds = append(m.builds, text)
}

func TestTheNewestChangeWins(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		change func(*module)
		want   []string
	}{
		{"a change of what is being built", func(m *module) {
			m.write("send/main.go", "again")
			time.Sleep(time.Second)
			m.write("send/main.go", "and again")
		}, []string{"send", "context canceled", "send", "built"}},
		{"more than what is being built", func(m *module) {
			m.write("send/main.go", "again")
			time.Sleep(time.Second)
			m.write("shared/shared.go", "again")
		}, []string{"send", "context canceled", "send sync", "built"}},
		{"less than what is being built", func(m *module) {
			m.write("shared/shared.go", "again")
			time.Sleep(time.Second)
			m.write("send/main.go", "again")
		}, []string{"send sync", "context canceled", "send sync", "built"}},
		{"something else", func(m *module) {
			m.write("send/main.go", "again")
			time.Sleep(time.Second)
			m.write("sync/main.go", "again")
		}, []string{"send", "built", "sync", "built"}},
		{"changes without an end", func(m *module) {
			for i := range 15 {
				m.write("send/main.go", strings.Repeat("x", i))
				time.Sleep(time.Second)
			}
		}, slices.Concat(slices.Repeat([]string{"send", "context canceled"}, 10), []string{"send", "built", "send", "built"})},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := newModule(t)
				most := m.slow()
				require.Equal(t, test.want, m.run(never, func() {
					test.change(m)
					time.Sleep(10 * time.Minute)
				}))
				require.Equal(t, 1, most())
			})
		})
	}
}

func TestABuildThatHangsIsEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModule(t)
		m.building = func(ctx context.Context, functions []string) []string {
			<-ctx.Done()
			m.note(ctx.Err().Error())
			return functions
		}
		require.Equal(t, []string{"send", "context deadline exceeded", "send sync", "context canceled"}, m.run(never, func() {
			m.write("send/main.go", "again")
			time.Sleep(2 * buildLimit)
			m.write("sync/main.go", "again")
			time.Sleep(time.Minute)
		}), "what is unfinished is built with the next, and the end ends a build")
	})
}

func TestWhatChangedBeforeTheFirstLookIsSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModule(t)
		since := time.Unix(1000, 0)
		path := filepath.Join(m.dir, "send", "main.go")
		require.NoError(t, os.Chtimes(path, time.Time{}, since.Add(time.Millisecond)))
		for _, name := range []string{"send", "sync", "shared", "shared/data"} {
			require.NoError(t, os.Chtimes(filepath.Join(m.dir, name), time.Time{}, since.Add(-time.Hour)))
		}
		require.Equal(t, []string{"send"}, m.run(since, func() { time.Sleep(time.Minute) }))
	})
}

func TestSourcesAreListedAnewAfterABuild(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newModule(t)
		m.write("added/added.go", "first")
		require.NoError(t, os.Chtimes(filepath.Join(m.dir, "added"), time.Time{}, time.Unix(1, 0)))
		require.Equal(t, []string{"send", "send", "send sync", "send"}, m.run(never, func() {
			m.write("added/added.go", "not imported yet")
			time.Sleep(time.Second)
			m.become(nil, map[string]build.Sources{
				"send": {Code: m.paths("send", "shared", "added"), Files: m.paths("go.mod")},
				"sync": {Code: m.paths("sync", "shared"), Files: m.paths("go.mod")},
			})
			m.write("send/main.go", "imports it")
			time.Sleep(time.Second)
			m.write("added/added.go", "again")
			time.Sleep(time.Second)
			// While the sources cannot be listed, all that were known count.
			m.become(errors.New("go.mod does not parse"), map[string]build.Sources{
				"send": {Files: m.paths("go.mod")}, "sync": {Files: m.paths("go.mod")},
			})
			m.write("go.mod", "does not parse")
			time.Sleep(time.Second)
			m.write("added/added.go", "and again")
			time.Sleep(time.Second)
		}))
	})
}

// BenchmarkLook is the price of a look, of which there are four a second, at all that
// the functions of this product are made of.
func BenchmarkLook(b *testing.B) {
	stack, err := template.Load("../../../template.yaml", template.Options{Parameters: map[string]string{
		"JwksUrl": "https://login.example/keys", "JwtIssuer": "https://login.example/",
	}})
	require.NoError(b, err)
	w := &watcher{
		cfg:    Config{List: func(ctx context.Context) (map[string]build.Sources, error) { return build.SourcesOf(ctx, stack) }},
		places: map[place]*look{}, dirty: map[string]bool{}, unfinished: map[string]bool{},
	}
	require.NoError(b, w.list(b.Context(), never))
	for b.Loop() {
		w.look()
	}
	files := 0
	for _, l := range w.places {
		files += max(1, len(l.names))
	}
	b.ReportMetric(float64(files), "files")
}
