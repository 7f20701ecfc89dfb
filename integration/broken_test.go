package integration_test

import (
	"context"
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
			require.NotEmpty(t, where, "%s did not fail, it did not run:\n%s", b.test, out)
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
	args := []string{"test", b.of, fmt.Sprint("-count=", count), "-v", "-failfast", "-timeout=60m", "-run=^" + b.test + "$"}
	if b.of == "./integration" {
		args = append(args, fmt.Sprint("-convergence.seed=", seed), fmt.Sprint("-convergence.seeds=", brokenSeeds), fmt.Sprint("-convergence.steps=", *convergenceSteps))
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// firstFailure finds the innermost test that failed first in the output of go test
// -v, and what it said, without what its local cloud logged.
func firstFailure(output string) (where, complaint string) {
	failed := regexp.MustCompile(`(?m)^ *--- FAIL: (\S+) `).FindAllStringSubmatch(output, -1)
	for _, f := range failed {
		if len(f[1]) > len(where) {
			where = f[1]
		}
	}
	begin := "=== RUN   " + where + "\n" // the last of its runs is the one that failed
	said := output[max(strings.LastIndex(output, begin), 0):]
	said = strings.TrimPrefix(said, begin)
	said, _, _ = strings.Cut(said, "what the local cloud had to say")
	said, _, _ = strings.Cut(said, "\n=== RUN ")
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
	where, complaint := firstFailure(`=== RUN   TestX
=== RUN   TestX/seed_1
    x_test.go:1: fine
=== RUN   TestX/seed_2
    x_test.go:7: seq 3 is lost
    cloud_test.go:1: what the local cloud had to say:
        noise
--- FAIL: TestX (1.00s)
    --- PASS: TestX/seed_1 (0.50s)
    --- FAIL: TestX/seed_2 (0.50s)
FAIL
`)
	require.Equal(t, "TestX/seed_2", where)
	require.Contains(t, complaint, "seq 3 is lost")
	require.NotContains(t, complaint, "fine")
	require.NotContains(t, complaint, "noise")
	where, _ = firstFailure("# inorder/integration\nx.go:1: no\nFAIL\tinorder/integration [build failed]\n")
	require.Empty(t, where)
}
