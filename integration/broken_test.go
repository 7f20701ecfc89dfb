package integration_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var convergenceBroken = flag.String("convergence.broken", "", "the broken builds that TestConvergenceSeesABrokenBuild tries: `names`, comma-separated, of patches in testdata/broken, or all")

// brokenSeeds is how many seeds a test has to see what is wrong.
const brokenSeeds = 20

// broken is a mistake that the tests have to see: a patch with a description that
// names the test, after its package if that is another than this one, and a part of
// its complaint.
type broken struct {
	name, file, test, complaint string
	of                          string   // the test's package
	packages                    []string // that it changes
}

func brokenBuilds(t *testing.T) []broken {
	files, err := filepath.Glob(filepath.Join("testdata", "broken", "*.patch"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var builds []broken
	for _, file := range files {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		description, diff, _ := strings.Cut(string(content), "\ndiff --git ")
		b := broken{name: strings.TrimSuffix(filepath.Base(file), ".patch")}
		b.file, err = filepath.Abs(file)
		require.NoError(t, err)
		b.test, b.complaint = headerOf(t, file, description, "Test"), headerOf(t, file, description, "Complaint")
		b.of = "./integration"
		if of, test, found := strings.Cut(b.test, " "); found {
			b.of, b.test = of, test
		}
		for _, changed := range regexp.MustCompile(`(?m)^\+\+\+ b/(.*)/[^/]*\.go$`).FindAllStringSubmatch(diff, -1) {
			b.packages = append(b.packages, "./"+changed[1])
		}
		slices.Sort(b.packages)
		b.packages = slices.Compact(b.packages)
		require.NotEmpty(t, b.packages, "%s changes no package", file)
		builds = append(builds, b)
	}
	return builds
}

func headerOf(t *testing.T, file, description, name string) string {
	found := regexp.MustCompile(`(?m)^` + name + `: (.+)$`).FindStringSubmatch(description)
	require.NotNil(t, found, "%s has no line that begins with %q", file, name+": ")
	return found[1]
}

// Each broken build is still one: its patch fits the code, and what it makes of it
// compiles.
func TestBrokenBuildsAreUpToDate(t *testing.T) {
	t.Parallel()
	root := copyModule(t)
	for _, b := range brokenBuilds(t) {
		b.apply(t, root)
		vet := exec.CommandContext(t.Context(), "go", append([]string{"vet", "-trimpath"}, b.packages...)...)
		vet.Dir = root
		out, err := vet.CombinedOutput()
		require.NoError(t, err, "%s does not compile any more:\n%s", b.file, out)
		b.apply(t, root, "--reverse")
	}
}

// The tests are worth something if they see what is wrong. Each broken build has to
// fail its test, which has twenty seeds, or runs if it has no seeds, with the
// complaint that is to be expected.
func TestConvergenceSeesABrokenBuild(t *testing.T) {
	needLocal(t)
	if *convergenceBroken == "" {
		t.Skip("takes minutes; ask for it with -convergence.broken all")
	}
	builds := brokenBuilds(t)
	for name := range strings.SplitSeq(*convergenceBroken, ",") {
		known := func(b broken) bool { return b.name == name || name == "all" }
		require.True(t, slices.ContainsFunc(builds, known), "there is no testdata/broken/%s.patch", name)
	}
	for _, b := range builds {
		if *convergenceBroken != "all" && !slices.Contains(strings.Split(*convergenceBroken, ","), b.name) {
			continue
		}
		t.Run(b.name, func(t *testing.T) {
			root := copyModule(t)
			b.apply(t, root)
			out, err := b.run(t.Context(), root)
			require.Error(t, err, "%s passes:\n%s", b.test, out)
			where, complaint := firstFailure(out)
			require.NotEmpty(t, where, "%s did not fail, it did not run:\n%s", b.test, complaint)
			t.Logf("seen by %s:\n%s", where, complaint)
			require.Regexp(t, b.complaint, complaint)
		})
	}
}

// run runs the build's test in the patched copy until it fails.
func (b broken) run(ctx context.Context, root string) (output string, err error) {
	seed, count := max(*convergenceSeed, 1), brokenSeeds
	if b.test == "TestConvergence" {
		count = 1
	}
	args := []string{"test", b.of, fmt.Sprint("-count=", count), "-json", "-failfast", "-timeout=60m", "-run=^" + b.test + "$"}
	if b.of == "./integration" {
		args = append(args, fmt.Sprint("-convergence.seed=", seed), fmt.Sprint("-convergence.seeds=", brokenSeeds), fmt.Sprint("-convergence.steps=", *convergenceSteps))
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// firstFailure finds the innermost test that failed first in the output of go test
// -json, and what it said, without what its local cloud logged. Where nothing failed,
// said is all that was said, of the build too.
func firstFailure(output string) (where, said string) {
	type event struct{ Action, Test, Output string }
	saidBy := map[string]string{}
	var all strings.Builder
	for line := range strings.Lines(output) {
		var e event
		if json.Unmarshal([]byte(line), &e) != nil {
			all.WriteString(line) // of the go command itself
			continue
		}
		all.WriteString(e.Output)
		switch e.Action {
		case "run":
			saidBy[e.Test] = "" // the last of its runs is the one that failed
		case "output":
			saidBy[e.Test] += e.Output
		case "fail":
			if len(e.Test) > len(where) {
				where = e.Test
			}
		}
	}
	if where == "" {
		return "", all.String()
	}
	said, _, _ = strings.Cut(saidBy[where], "what the local cloud had to say")
	return where, said
}

// apply changes a copy of the module as the patch says.
func (b broken) apply(t *testing.T, root string, options ...string) {
	cmd := exec.CommandContext(t.Context(), "git", append(append([]string{"apply"}, options...), b.file)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(root)) // it is part of no repository
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s does not fit the code any more: make the same mistake in the code as it is now, and put the diff there\n%s", b.file, out)
}

// copyModule copies the module without what belongs to no version of it.
func copyModule(t *testing.T) (root string) {
	root = t.TempDir()
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(root, path[min(len(path), len("../")):])
		hidden := (strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules") && path != ".."
		switch {
		case hidden && d.IsDir():
			return fs.SkipDir
		case d.IsDir():
			return os.MkdirAll(to, 0o750)
		case hidden || !d.Type().IsRegular():
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, content, 0o600)
	})
	require.NoError(t, err)
	return root
}

func TestFirstFailure(t *testing.T) {
	t.Parallel()
	where, said := firstFailure(`{"Action":"run","Test":"TestX"}
{"Action":"run","Test":"TestX/seed_1"}
{"Action":"run","Test":"TestX/seed_2"}
{"Action":"output","Test":"TestX/seed_1","Output":"    x_test.go:1: fine\n"}
{"Action":"output","Test":"TestX/seed_2","Output":"    x_test.go:7: seq 3 is lost\n"}
{"Action":"output","Test":"TestX/seed_2","Output":"    cloud_test.go:1: what the local cloud had to say:\n"}
{"Action":"output","Test":"TestX/seed_2","Output":"        noise\n"}
{"Action":"pass","Test":"TestX/seed_1"}
{"Action":"fail","Test":"TestX/seed_2"}
{"Action":"fail","Test":"TestX"}
{"Action":"fail"}
`)
	require.Equal(t, "TestX/seed_2", where)
	require.Contains(t, said, "seq 3 is lost")
	require.NotContains(t, said, "fine")
	require.NotContains(t, said, "noise")
	where, said = firstFailure("# github.com/inorder-im/inorder/integration\nx.go:1: no\n{\"Action\":\"fail\"}\n")
	require.Empty(t, where)
	require.Contains(t, said, "x.go:1: no")
}
