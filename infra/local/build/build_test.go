package build_test

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inorder/infra/local/build"
	"inorder/infra/local/template"
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
	require.EqualError(t, err, "F: there is no go.mod in "+filepath.Join(root, "code")+" or above it")
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
