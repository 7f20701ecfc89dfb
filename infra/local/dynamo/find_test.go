package dynamo_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/dynamo"
)

// machine is an environment for Find. Its tests set environment variables, so
// they do not run in parallel.
type machine struct {
	path  string // the only folder in PATH besides the shell's
	cache string // where dynoxide belongs
	steps []string
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{path: t.TempDir()}
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", filepath.Join(home, "cache"))
	t.Setenv("DYNOXIDE", "")
	// No npm and no dynoxide of this machine, but the shell and its tools.
	t.Setenv("PATH", m.path)
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	m.cache = filepath.Join(cache, "inorder", "dynoxide-"+dynamo.Version)
	return m
}

func (m *machine) find(t *testing.T) (string, error) {
	t.Helper()
	return dynamo.Find(t.Context(), dynamo.Options{Progress: func(s string) { m.steps = append(m.steps, s) }})
}

// binary writes a program that says it is this version of dynoxide.
func binary(t *testing.T, dir, version string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	return writeScript(t, filepath.Join(dir, "dynoxide"), fmt.Sprintf("echo dynoxide %s\n", version))
}

// npm installs, like the real one, what it is asked for below --prefix; body
// runs after that, in the folder of the package.
func (m *machine) npm(t *testing.T, body string) {
	t.Helper()
	writeScript(t, filepath.Join(m.path, "npm"), `PATH=/bin:/usr/bin
echo "$@" >> `+filepath.Join(m.path, "npm-calls")+`
[ "$1 $2" = "install --prefix" ] || exit 2
prefix=$3
for spec; do :; done
name=${spec%@*}
[ "${spec##*@}" = `+dynamo.Version+` ] || { echo "no such version"; exit 1; }
mkdir -p "$prefix/node_modules/$name" && cd "$prefix/node_modules/$name" || exit 1
printf '#!/bin/sh\necho dynoxide `+dynamo.Version+`\n' > dynoxide && chmod +x dynoxide
`+body)
}

func TestFindPrefersTheEnvironment(t *testing.T) {
	m := newMachine(t)
	binary(t, m.path, dynamo.Version)
	want := binary(t, t.TempDir(), dynamo.Version)
	t.Setenv("DYNOXIDE", want)
	got, err := m.find(t)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestFindRefusesAWrongEnvironment(t *testing.T) {
	m := newMachine(t)
	binary(t, m.path, dynamo.Version) // is no way out of an explicit mistake
	t.Setenv("DYNOXIDE", binary(t, t.TempDir(), "0.9.0"))
	_, err := m.find(t)
	require.ErrorContains(t, err, "DYNOXIDE must name the binary of dynoxide "+dynamo.Version)
	require.ErrorContains(t, err, `"dynoxide 0.9.0"`)

	t.Setenv("DYNOXIDE", filepath.Join(t.TempDir(), "missing"))
	_, err = m.find(t)
	require.ErrorContains(t, err, "missing")
}

func TestFindTakesTheRightVersionFromPath(t *testing.T) {
	m := newMachine(t)
	want := binary(t, m.path, dynamo.Version)
	binary(t, m.cache, dynamo.Version)
	got, err := m.find(t)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestFindPassesOverAnotherVersionInPath(t *testing.T) {
	m := newMachine(t)
	binary(t, m.path, "1.2.10")
	want := binary(t, m.cache, dynamo.Version)
	got, err := m.find(t)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Len(t, m.steps, 1)
	require.Contains(t, m.steps[0], `"dynoxide 1.2.10"`)
}

func TestFindInstallsOnce(t *testing.T) {
	m := newMachine(t)
	m.npm(t, "")
	got, err := m.find(t)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(m.cache, "dynoxide"), got)
	require.Len(t, m.steps, 1)
	require.Contains(t, m.steps[0], "installing dynoxide "+dynamo.Version)

	again, err := m.find(t)
	require.NoError(t, err)
	require.Equal(t, got, again)
	calls, err := os.ReadFile(filepath.Join(m.path, "npm-calls"))
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(calls), "\n"))
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[runtime.GOARCH]
	require.Contains(t, string(calls), " @dynoxide/"+runtime.GOOS+"-"+arch+"@"+dynamo.Version)
	require.Contains(t, string(calls), "--ignore-scripts")
	m.requireOnlyTheBinaryInTheCache(t)
}

func TestFindReplacesABrokenCache(t *testing.T) {
	m := newMachine(t)
	binary(t, m.cache, "half a")
	m.npm(t, "")
	got, err := m.find(t)
	require.NoError(t, err)
	require.Equal(t, filepath.Join(m.cache, "dynoxide"), got)
	m.requireOnlyTheBinaryInTheCache(t)
}

func TestFindInstallsConcurrently(t *testing.T) {
	m := newMachine(t)
	m.npm(t, "")
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			got, err := dynamo.Find(t.Context(), dynamo.Options{})
			if err != nil || got != filepath.Join(m.cache, "dynoxide") {
				t.Errorf("Find: %q, %v", got, err)
			}
		})
	}
	wg.Wait()
	m.requireOnlyTheBinaryInTheCache(t)
}

func TestFindSaysWhatToDo(t *testing.T) {
	ways := []string{"install Node.js", "on PATH", "set DYNOXIDE", "-dynamodb-endpoint ADDRESS"}
	tests := map[string]struct {
		npm  string // "" for none
		want string
	}{
		"no npm":                          {"", "npm, which would install it, is not on PATH"},
		"npm fails":                       {"echo 'npm error network is unreachable' >&2; exit 1", "network is unreachable"},
		"the binary is not the right one": {"printf '#!/bin/sh\\necho dynoxide 9.9.9\\n' > dynoxide", `"dynoxide 9.9.9"`},
		"the binary does not run":         {"printf '#!/no/such/interpreter\\n' > dynoxide", "does not run here"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			if test.npm != "" {
				m.npm(t, test.npm)
			}
			_, err := m.find(t)
			require.ErrorContains(t, err, test.want)
			for _, way := range ways {
				require.ErrorContains(t, err, way)
			}
			require.NoDirExists(t, m.cache)
		})
	}
}

func (m *machine) requireOnlyTheBinaryInTheCache(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(m.cache))
	require.NoError(t, err)
	require.Len(t, entries, 1, "temporary folders are removed")
	require.Equal(t, filepath.Base(m.cache), entries[0].Name())
}
