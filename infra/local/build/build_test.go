package build_test

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/build"
	"github.com/inorder-im/inorder/infra/local/template"
)

// module writes the files of a Go module without dependencies, and a template beside it.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	if _, ok := files["go.mod"]; !ok {
		write(t, root, "go.mod", "module example\n\ngo 1.26\n")
	}
	for name, text := range files {
		write(t, root, name, text)
	}
	return root
}

func write(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

func printing(text string) string {
	return fmt.Sprintf("package main\n\nfunc main() { print(%q) }\n", text)
}

// stack has a function per "LogicalID: folder" line.
func stack(root string, functions ...string) *template.Stack {
	s := &template.Stack{File: "template.yaml"}
	for i, f := range functions {
		id, folder, _ := strings.Cut(f, ": ")
		s.Functions = append(s.Functions, &template.Function{
			LogicalID: id,
			CodeURI:   filepath.Join(root, folder),
			Build:     template.Build{Method: "go1.x", Line: 10*i + 13},
			Line:      10*i + 10,
		})
	}
	return s
}

func requirePrints(t *testing.T, want, dir string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "bootstrap")).CombinedOutput()
	require.NoError(t, err)
	require.Equal(t, want, string(out))
}

func TestFunctions(t *testing.T) {
	t.Parallel()
	root := module(t, map[string]string{
		"functions/send/main.go": printing("send"),
		"functions/sync/main.go": "package main\n\nimport \"example/shared\"\n\nfunc main() { print(shared.Name) }\n",
		"shared/shared.go":       "package shared\n\nconst Name = \"sync\"\n",
		"other/send/main.go":     printing("other send"),
		"api/v2/main.go":         printing("v2"),
		"main.go":                printing("root"),
		"nested/go.mod":          "module nested.example\n\ngo 1.26\n",
		"nested/send/main.go":    printing("nested send"),
	})
	s := stack(root, "Again: functions/send", "Nested: nested/send", "Other: other/send", "Root: .",
		"Send: functions/send", "Sync: functions/sync", "Version: api/v2")
	s.Functions[0].Build.Method = "makefile"
	out := filepath.Join(t.TempDir(), "not", "there", "yet")
	type report struct{ done, total int }
	var reports []report
	named := map[string]bool{}
	dirs, err := build.Functions(t.Context(), s, build.Options{OutDir: out, Progress: func(f string, took time.Duration, done, total int) {
		named[f] = true
		reports = append(reports, report{done, total})
		if took <= 0 {
			t.Errorf("%s took %s", f, took)
		}
	}})
	require.NoError(t, err)

	want := map[string]string{"Again": "send", "Nested": "nested send", "Other": "other send", "Root": "root",
		"Send": "send", "Sync": "sync", "Version": "v2"}
	require.Len(t, dirs, len(want))
	for id, text := range want {
		require.Equal(t, filepath.Join(out, id), dirs[id])
		requirePrints(t, text, dirs[id])
		require.True(t, named[id], "%s was not reported", id)
	}
	require.Equal(t, []report{{1, 7}, {2, 7}, {3, 7}, {4, 7}, {5, 7}, {6, 7}, {7, 7}}, reports)

	again, send := stat(t, dirs["Again"]), stat(t, dirs["Send"])
	require.True(t, os.SameFile(again, send), "the same code is built once")

	// A second build changes only what has changed.
	write(t, root, "shared/shared.go", "package shared\n\nconst Name = \"sync again\"\n")
	dirs, err = build.Functions(t.Context(), s, build.Options{OutDir: out})
	require.NoError(t, err)
	requirePrints(t, "sync again", dirs["Sync"])
	require.True(t, os.SameFile(send, stat(t, dirs["Send"])), "Send is up to date and was linked again")
	files, err := os.ReadDir(dirs["Send"])
	require.NoError(t, err)
	require.Len(t, files, 1)
}

func stat(t *testing.T, dir string) os.FileInfo {
	t.Helper()
	info, err := os.Stat(filepath.Join(dir, "bootstrap"))
	require.NoError(t, err)
	return info
}

func TestFunctions_CodeThatDoesNotCompile(t *testing.T) {
	t.Parallel()
	root := module(t, map[string]string{
		"functions/good/main.go":  printing("good"),
		"functions/wrong/main.go": "package main\n\nfunc main() {\n\tundefined1()\n\tundefined2()\n}\n",
		"functions/one/main.go":   "package main\n\nimport \"example/shared\"\n\nfunc main() { print(shared.Name) }\n",
		"functions/two/main.go":   "package main\n\nimport \"example/shared\"\n\nfunc main() { print(shared.Name) }\n",
		"shared/shared.go":        "package shared\n\nconst Name string = 1\n",
	})
	_, err := build.Functions(t.Context(), stack(root, "Good: functions/good", "One: functions/one", "Two: functions/two",
		"Wrong: functions/wrong"), build.Options{OutDir: t.TempDir()})

	byPackage := map[string]*build.Error{}
	for _, err := range joined(t, err) {
		var e *build.Error
		require.ErrorAs(t, err, &e)
		byPackage[e.Package] = e
	}
	require.Equal(t, map[string]*build.Error{
		"example/functions/wrong": {
			Functions: []string{"Wrong"},
			Package:   "example/functions/wrong",
			Output:    "functions/wrong/main.go:4:2: undefined: undefined1\nfunctions/wrong/main.go:5:2: undefined: undefined2",
		},
		"example/shared": {
			Functions: []string{"One", "Two"},
			Package:   "example/shared",
			Output:    "shared/shared.go:3:21: cannot use 1 (untyped int constant) as string value in constant declaration",
		},
	}, byPackage)
	require.Equal(t, "building Wrong: example/functions/wrong does not compile:\n"+
		"functions/wrong/main.go:4:2: undefined: undefined1\nfunctions/wrong/main.go:5:2: undefined: undefined2",
		byPackage["example/functions/wrong"].Error())
}

func joined(t *testing.T, err error) []error {
	t.Helper()
	require.Error(t, err)
	if list, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range list.Unwrap() {
			all = append(all, joined(t, e)...)
		}
		return all
	}
	return []error{err}
}

func TestFunctions_MissingImport(t *testing.T) {
	t.Parallel()
	root := module(t, map[string]string{
		"functions/good/main.go": printing("good"),
		"functions/lost/main.go": "package main\n\nimport \"example/nowhere\"\n\nfunc main() { nowhere.Run() }\n",
	})
	_, err := build.Functions(t.Context(), stack(root, "Good: functions/good", "Lost: functions/lost"), build.Options{OutDir: t.TempDir()})
	require.ErrorContains(t, err, "building Lost: it does not compile:\nfunctions/lost/main.go:3:8: package example/nowhere is not in std")
}

func TestFunctions_MistakesInTheTemplate(t *testing.T) {
	t.Parallel()
	root := module(t, map[string]string{
		"library/library.go": "package library\n",
		"good/main.go":       printing("good"),
	})
	require.NoError(t, os.Mkdir(filepath.Join(root, "empty"), 0o755))
	s := stack(root, "Empty: empty", "Library: library", "None: good", "Python: good", "Recipe: good")
	s.Functions[2].Build.Method = ""
	s.Functions[3].Build.Method = "python3.13"
	s.Functions[4].Build.Method = "makefile"
	_, err := build.Functions(t.Context(), s, build.Options{OutDir: t.TempDir()})
	require.EqualError(t, err, strings.Join([]string{
		"template.yaml:10: Resources.Empty.Properties.CodeUri: there are no Go files in " + filepath.Join(root, "empty"),
		"template.yaml:20: Resources.Library.Properties.CodeUri: " + filepath.Join(root, "library") + " has package library, and a function needs package main",
		"template.yaml:30: Resources.None.Metadata.BuildMethod: is required and missing: want go1.x or makefile",
		`template.yaml:43: Resources.Python.Metadata.BuildMethod: "python3.13" is not understood: want go1.x or makefile`,
	}, "\n"))
	var e *template.Error
	require.ErrorAs(t, err, &e)
}

func TestFunctions_NoModule(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	write(t, root, "code/main.go", printing("x"))
	_, err := build.Functions(t.Context(), stack(root, "F: code"), build.Options{OutDir: t.TempDir()})
	require.EqualError(t, err, "template.yaml:10: Resources.F.Properties.CodeUri: there is no go.mod in "+filepath.Join(root, "code")+" or above it")
}

func TestFunctions_Cancelled(t *testing.T) {
	t.Parallel()
	root := module(t, map[string]string{"f/main.go": printing("x")})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := build.Functions(ctx, stack(root, "F: f"), build.Options{OutDir: t.TempDir()})
	require.ErrorIs(t, err, context.Canceled)
}

func TestFunctions_Flags(t *testing.T) {
	t.Parallel()
	root := module(t, map[string]string{"f/main.go": printing("x")})
	s := stack(root, "Plain: f", "Trimmed: f")
	s.Functions[1].Build.TrimPath = true
	dirs, err := build.Functions(t.Context(), s, build.Options{OutDir: t.TempDir()})
	require.NoError(t, err)
	for id, trimmed := range map[string]bool{"Plain": false, "Trimmed": true} {
		info, err := buildinfo.ReadFile(filepath.Join(dirs[id], "bootstrap"))
		require.NoError(t, err)
		settings := map[string]string{}
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		require.Equal(t, trimmed, settings["-trimpath"] == "true", id)
		require.Equal(t, runtime.GOOS, settings["GOOS"])
		require.Equal(t, runtime.GOARCH, settings["GOARCH"])
	}
}

// What is set for a deployment does not keep the functions from running here. Not
// parallel: it sets the environment.
func TestFunctions_AreForThisMachine(t *testing.T) {
	t.Setenv("GOOS", "plan9")
	t.Setenv("GOARCH", "arm64")
	root := module(t, map[string]string{"f/main.go": printing("here")})
	dirs, err := build.Functions(t.Context(), stack(root, "F: f"), build.Options{OutDir: t.TempDir()})
	require.NoError(t, err)
	requirePrints(t, "here", dirs["F"])
}

func TestFunctions_NoOutputFolder(t *testing.T) {
	t.Parallel()
	_, err := build.Functions(t.Context(), &template.Stack{}, build.Options{})
	require.EqualError(t, err, "building the functions: no output folder given")
}

// Only some are built, to where they are when all are.
func TestFunctions_Only(t *testing.T) {
	t.Parallel()
	root := module(t, map[string]string{
		"a/f/main.go": printing("a"),
		"b/f/main.go": printing("b"),
		"c/main.go":   printing("c"),
	})
	s := stack(root, "A: a/f", "B: b/f", "BToo: b/f", "C: c")
	out := t.TempDir()
	dirs, err := build.Functions(t.Context(), s, build.Options{OutDir: out})
	require.NoError(t, err)
	before := map[string]os.FileInfo{}
	for id, dir := range dirs {
		before[id] = stat(t, dir)
	}
	write(t, root, "a/f/main.go", "does not compile")
	write(t, root, "b/f/main.go", printing("changed"))
	write(t, root, "c/main.go", printing("not asked for"))
	require.NoError(t, os.RemoveAll(filepath.Join(root, "a")))
	var reports []string
	again, err := build.Functions(t.Context(), s, build.Options{OutDir: out, Only: []string{"B"},
		Progress: func(f string, _ time.Duration, _, total int) { reports = append(reports, fmt.Sprint(f, " of ", total)) }})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"B": dirs["B"], "BToo": dirs["BToo"]}, again, "they have the same code")
	require.Equal(t, []string{"B of 2", "BToo of 2"}, reports)
	requirePrints(t, "changed", dirs["B"])
	requirePrints(t, "a", dirs["A"])
	requirePrints(t, "c", dirs["C"])
	for _, id := range []string{"A", "C"} {
		require.True(t, os.SameFile(before[id], stat(t, dirs[id])), id)
	}
	_, err = build.Functions(t.Context(), s, build.Options{OutDir: out, Only: []string{}})
	require.NoError(t, err, "none is none")
}

func TestFunctions_Debug(t *testing.T) {
	t.Parallel()
	root := module(t, map[string]string{"f/main.go": printing("x")})
	s := stack(root, "Other: f", "F: f")
	s.Functions[1].Build.TrimPath = true
	out := t.TempDir()
	dirs, err := build.Functions(t.Context(), s, build.Options{OutDir: out, Debug: []string{"F"}})
	require.NoError(t, err)
	ordinary, err := build.Functions(t.Context(), s, build.Options{OutDir: out})
	require.NoError(t, err)
	require.NotEqual(t, ordinary["F"], dirs["F"], "each keeps its own")
	require.Equal(t, ordinary["Other"], dirs["Other"])
	for name, test := range map[string]struct {
		dir   string
		debug bool
	}{"to debug": {dirs["F"], true}, "ordinary": {ordinary["F"], false}, "another": {dirs["Other"], false}} {
		requirePrints(t, "x", test.dir)
		require.Equal(t, test.debug, hasLines(t, filepath.Join(test.dir, "bootstrap")), name)
		info, err := buildinfo.ReadFile(filepath.Join(test.dir, "bootstrap"))
		require.NoError(t, err)
		require.Equal(t, test.debug, slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool {
			return s.Key == "-gcflags" && s.Value == "all=-N -l"
		}), name)
	}
}

// hasLines tells whether a debugger finds the source's lines, by full path.
func hasLines(t *testing.T, file string) bool {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "tool", "objdump", "-s", "^main.main$", file).CombinedOutput()
	if err != nil {
		require.Contains(t, string(out), "no symbol section")
		return false
	}
	return strings.Contains(string(out), filepath.Join("f", "main.go"))
}

func TestAtFault(t *testing.T) {
	t.Parallel()
	root := module(t, map[string]string{
		"good/main.go":     printing("good"),
		"wrong/main.go":    "package main\n\nfunc main() { undefined() }\n",
		"shared/shared.go": "package shared\n\nconst Name string = 1\n",
		"one/main.go":      "package main\n\nimport \"example/shared\"\n\nfunc main() { print(shared.Name) }\n",
		"two/main.go":      "package main\n\nimport _ \"example/shared\"\n\nfunc main() { undefined() }\n",
		"lost/main.go":     "package main\n\nimport \"example/nowhere\"\n\nfunc main() { nowhere.Run() }\n",
	})
	tests := []struct {
		name      string
		functions []string
		want      []string
	}{
		{"one", []string{"Good: good", "Wrong: wrong"}, []string{"Wrong"}},
		{"two by one package", []string{"Good: good", "One: one", "Two: two"}, []string{"One", "Two"}},
		{"one of several by one folder", []string{"Good: good", "Wrong: wrong", "WrongToo: wrong"}, []string{"Wrong", "WrongToo"}},
		{"no such import", []string{"Good: good", "Lost: lost"}, []string{"Lost"}},
		{"no such folder", []string{"Good: good", "Gone: gone"}, []string{"Gone"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := build.Functions(t.Context(), stack(root, test.functions...), build.Options{OutDir: t.TempDir()})
			require.Equal(t, test.want, build.AtFault(err), "%v", err)
		})
	}
}

func TestSourcesOf(t *testing.T) {
	t.Parallel()
	root := module(t, map[string]string{
		"go.mod": "module example\n\ngo 1.26\n\nrequire beside.example v0.0.0\n\nreplace beside.example => ./beside\n",
		"a/main.go": "package main\n\nimport (\n\t\"fmt\"\n\n\t\"beside.example/lib\"\n\t\"example/shared\"\n)\n\n" +
			"func main() { fmt.Print(shared.Text, lib.Text) }\n",
		"shared/shared.go":     "package shared\n\nimport _ \"embed\"\n\n//go:embed data/text.txt\nvar Text string\n",
		"shared/data/text.txt": "text",
		"beside/go.mod":        "module beside.example\n\ngo 1.26\n",
		"beside/lib/lib.go":    "package lib\n\nimport \"beside.example/deeper\"\n\nconst Text = deeper.Text\n",
		"beside/deeper/d.go":   "package deeper\n\nconst Text = \"deep\"\n",
		"plain/main.go":        printing("plain"),
		"wrong/main.go":        "package main\n\nimport (\n\t\"example/not/yet\"\n\t\"example/shared\"\n)\n\nfunc main() { yet.Run( }\n",
	})
	modFiles := func(dir string) []string {
		return []string{filepath.Join(root, dir, "go.mod"), filepath.Join(root, dir, "go.sum")}
	}
	in := func(folders ...string) (list []string) {
		for _, f := range folders {
			list = append(list, filepath.Join(root, f))
		}
		return list
	}
	got, err := build.SourcesOf(t.Context(), stack(root, "A: a", "Gone: gone", "Plain: plain", "Wrong: wrong"))
	require.NoError(t, err)
	require.Equal(t, map[string]build.Sources{
		"A":     {Code: in("a", "beside/deeper", "beside/lib", "shared"), Data: in("shared/data"), Files: append(modFiles("beside"), modFiles("")...)},
		"Gone":  {Code: in("gone"), Files: modFiles("")},
		"Plain": {Code: in("plain"), Files: modFiles("")},
		"Wrong": {Code: in("not/yet", "shared", "wrong"), Data: in("shared/data"), Files: modFiles("")},
	}, got)

	write(t, root, "go.work", "go 1.26\n\nuse (\n\t.\n\t./beside\n)\n")
	got, err = build.SourcesOf(t.Context(), stack(root, "Plain: plain"))
	require.NoError(t, err)
	require.Equal(t, append(modFiles(""), in("go.work", "go.work.sum")...), got["Plain"].Files)

	write(t, root, "go.mod", "not a go.mod")
	got, err = build.SourcesOf(t.Context(), stack(root, "A: a"))
	require.ErrorContains(t, err, "listing the sources of the functions in "+root)
	require.ErrorContains(t, err, "go.mod:1")
	require.Equal(t, map[string]build.Sources{"A": {Code: in("a"), Files: modFiles("")}}, got)
}
