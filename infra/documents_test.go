// Package infra_test holds the documents to the repository that they describe.
package infra_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/inorder-im/inorder/infra/costs/bill"
)

var (
	fencedCode = regexp.MustCompile("(?ms)^```.*?^```")
	inlineCode = regexp.MustCompile("`[^`]+`")
	image      = regexp.MustCompile(`<img[^>]* src="([^"]+)"`)
	number     = regexp.MustCompile(`\d+(?:[.,]\d+)*`)
	guarantee  = regexp.MustCompile(`\*\*G(\d+) `)
	link       = regexp.MustCompile(`\[[^\]]*\]\(([^)\s]+)\)`)
	heading    = regexp.MustCompile(`(?m)^#{1,6} (.+)$`)
	scheme     = regexp.MustCompile(`^[a-z]+:`)
	notAnchor  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	ourPath    = regexp.MustCompile("(?:^|[\\s`/])((?:events|functions|infra|integration|shared)/[\\w./-]*\\w)")
	testName   = regexp.MustCompile(`\bTest[A-Z]\w*`)
	testFunc   = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	parameter  = regexp.MustCompile("`([A-Z]\\w+)`")
	ciStep     = regexp.MustCompile(`(?m)^step (?:"\$tools/venv/bin/python" )?(.+)$`)
	goProgram  = regexp.MustCompile("(?ms)^```go\n(package main\n.*?)^```")
	headline   = regexp.MustCompile(`\*\*(\$[\d.]+)\*\*`)
	setting    = regexp.MustCompile(`(-from )?\b([A-Z][a-z]\w*)=[^=]`) // -from sets a table of the operator's tool
)

// TestMain goes to the root of the repository, from which all paths are.
func TestMain(m *testing.M) {
	if err := os.Chdir(".."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// repositoryFiles are the files below this folder with one of the endings, without
// what tools have put there.
func repositoryFiles(t *testing.T, ending string) []string {
	t.Helper()
	var files []string
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && path != ".github" && (entry.Name() == "node_modules" || strings.HasPrefix(entry.Name(), ".")):
			return fs.SkipDir
		case strings.HasSuffix(path, ending):
			files = append(files, path)
		}
		return nil
	}))
	require.NotEmpty(t, files)
	return files
}

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(raw)
}

// anchors are the names by which GitHub links to a document's headings.
func anchors(document string) []string {
	var list []string
	seen := map[string]int{}
	for _, h := range heading.FindAllStringSubmatch(fencedCode.ReplaceAllString(document, ""), -1) {
		anchor := strings.ReplaceAll(notAnchor.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")
		again := seen[anchor]
		seen[anchor]++
		if again > 0 {
			anchor += "-" + strconv.Itoa(again)
		}
		list = append(list, anchor)
	}
	return list
}

func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, path := range repositoryFiles(t, ".md") {
		document := read(t, path)
		prose := inlineCode.ReplaceAllString(fencedCode.ReplaceAllString(document, ""), "")
		for _, found := range append(link.FindAllStringSubmatch(prose, -1), image.FindAllStringSubmatch(prose, -1)...) {
			if scheme.MatchString(found[1]) {
				continue // elsewhere: a test must not depend on it
			}
			checked++
			file, anchor, anchored := strings.Cut(found[1], "#")
			target := path
			if file != "" {
				target = filepath.Join(filepath.Dir(path), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s, which is not there", path, found[1])
				continue
			}
			if anchored && !slices.Contains(anchors(read(t, target)), anchor) {
				t.Errorf("%s links to %s, but %s has no such heading", path, found[1], target)
			}
		}
	}
	require.NotZero(t, checked)
}

// Paths and tests that documents name are there. A path may be written as from the
// top or as from the document.
func TestDocumentsNameWhatIsThere(t *testing.T) {
	t.Parallel()
	var tests []string
	for _, path := range repositoryFiles(t, "_test.go") {
		for _, found := range testFunc.FindAllStringSubmatch(read(t, path), -1) {
			tests = append(tests, found[1])
		}
	}
	for _, path := range repositoryFiles(t, ".md") {
		document := read(t, path)
		for _, found := range ourPath.FindAllStringSubmatch(document, -1) {
			_, top := os.Stat(found[1])
			_, beside := os.Stat(filepath.Join(filepath.Dir(path), found[1]))
			if top != nil && beside != nil {
				t.Errorf("%s names %s, which is not there", path, found[1])
			}
		}
		for _, name := range testName.FindAllString(document, -1) {
			if !slices.ContainsFunc(tests, func(test string) bool { return strings.HasPrefix(test, name) }) {
				t.Errorf("%s names %s, but no test begins like that", path, name)
			}
		}
	}
}

// An operator finds every parameter of the template, and none that it does not have.
func TestParametersAreDocumented(t *testing.T) {
	t.Parallel()
	var template struct {
		Parameters map[string]struct {
			Default               string `yaml:"Default"`
			Description           string `yaml:"Description"`
			AllowedPattern        string `yaml:"AllowedPattern"`
			ConstraintDescription string `yaml:"ConstraintDescription"`
		} `yaml:"Parameters"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "template.yaml")), &template))
	require.NotEmpty(t, template.Parameters)
	operating, runbooks := read(t, "infra/README.md"), read(t, "infra/RUNBOOKS.md")
	for name, declared := range template.Parameters {
		require.NotEmpty(t, declared.Description, name)
		require.Equal(t, declared.AllowedPattern == "", declared.ConstraintDescription == "", "%s: who enters what the pattern refuses is told what to enter", name)
		if !strings.Contains(operating+runbooks, "`"+name+"`") {
			t.Errorf("neither infra/README.md nor infra/RUNBOOKS.md names the parameter %s", name)
		}
	}
	// A table of parameters names those that there are, with their defaults.
	rows := 0
	for path, document := range map[string]string{"infra/README.md": operating, "infra/RUNBOOKS.md": runbooks} {
		for _, row := range parameterRows(document) {
			rows++
			for i, found := range parameter.FindAllStringSubmatch(row.names, -1) {
				declared, there := template.Parameters[found[1]]
				if !there {
					t.Errorf("%s: a table has the parameter %s, which template.yaml has not", path, found[1])
					continue
				}
				documented := strings.Split(strings.ReplaceAll(row.defaults, "`", ""), ", ")
				if declared.Default != "" && (i >= len(documented) || documented[i] != declared.Default) {
					t.Errorf("%s: %s is %q by default, not as %q says", path, found[1], declared.Default, row.defaults)
				}
			}
		}
	}
	require.NotZero(t, rows)
	for _, path := range repositoryFiles(t, ".md") {
		for _, found := range setting.FindAllStringSubmatch(read(t, path), -1) {
			if _, there := template.Parameters[found[2]]; !there && found[1] == "" {
				t.Errorf("%s sets %s, which is no parameter of template.yaml", path, found[2])
			}
		}
	}
}

type parameterRow struct{ names, defaults string }

// parameterRows are the rows of the tables whose first column is "parameter".
func parameterRows(document string) []parameterRow {
	var rows []parameterRow
	defaults := -1
	for line := range strings.Lines(document) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		switch {
		case len(cells) < 4:
			defaults = -1
		case strings.TrimSpace(cells[1]) == "parameter":
			defaults = slices.IndexFunc(cells, func(cell string) bool { return strings.TrimSpace(cell) == "default" })
		case defaults > 0 && strings.Contains(cells[1], "`"):
			rows = append(rows, parameterRow{names: cells[1], defaults: strings.TrimSpace(cells[defaults])})
		}
	}
	return rows
}

// A newcomer reads the README, in any language, in a few minutes and can try it.
func TestReadmeIsForNewcomers(t *testing.T) {
	t.Parallel()
	for _, path := range readmes(t) {
		document := read(t, path)
		require.LessOrEqual(t, strings.Count(document, "\n"), 130, "%s: what is not for a newcomer's first minutes belongs elsewhere", path)
		blocks := fencedCode.FindAllString(document, -1)
		for _, command := range []string{"go run ./infra/local", "go test ./..."} {
			require.Contains(t, blocks, "```sh\n"+command+"\n```", path)
		}
	}
}

// Each guarantee that the README makes has tests that are named after it.
func TestGuaranteesHaveTests(t *testing.T) {
	t.Parallel()
	tested := map[string]bool{} // by number; a test may be of several, as TestG1G2_…
	for _, path := range repositoryFiles(t, "_test.go") {
		for _, found := range testFunc.FindAllStringSubmatch(read(t, path), -1) {
			named, _, _ := strings.Cut(found[1], "_")
			for _, n := range strings.Split(strings.TrimPrefix(named, "Test"), "G")[1:] {
				tested[n] = true
			}
		}
	}
	guarantees := guarantee.FindAllStringSubmatch(read(t, "README.md"), -1)
	require.Len(t, guarantees, 10)
	for _, found := range guarantees {
		require.True(t, tested[found[1]], "no test is named after G%s", found[1])
	}
}

// readmes are the README and its translations, of which each links to all others.
func readmes(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("README*.md")
	require.NoError(t, err)
	require.Subset(t, paths, []string{"README.md", "README.zh-CN.md"})
	for _, path := range paths {
		for _, other := range paths {
			require.True(t, path == other || strings.Contains(read(t, path), "]("+other+")"), "%s does not link to %s", path, other)
		}
	}
	return paths
}

// A translation has what the README has, section by section: code, links, pictures,
// names, numbers, points and rows.
func TestTranslationsSayTheSame(t *testing.T) {
	t.Parallel()
	paths := readmes(t)
	original := sections(read(t, "README.md"), paths)
	for _, path := range paths {
		translated := sections(read(t, path), paths)
		require.Len(t, translated, len(original), "%s has other headings than the README", path)
		for i, want := range original {
			require.Equal(t, want.facts, translated[i].facts, "%s, %q is not what the README has under %q", path, translated[i].title, want.title)
		}
	}
}

type section struct {
	title string
	facts map[string][]string // what does not depend on the language, by its kind
}

// sections are a document's, each from its heading on. Links to the languages are left out.
func sections(document string, languages []string) []section {
	outside := fencedCode.ReplaceAllStringFunc(document, func(block string) string { return strings.Repeat("\x00", len(block)) })
	var list []section
	starts := heading.FindAllStringIndex(outside, -1)
	for i, start := range starts {
		end := len(document)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		prose := strings.ReplaceAll(outside[start[0]:end], "\x00", "")
		title, _, _ := strings.Cut(prose, "\n")
		facts := map[string][]string{
			"level":    {strings.Repeat("#", strings.IndexByte(title, ' '))},
			"code":     fencedCode.FindAllString(document[start[0]:end], -1),
			"names":    slices.Compact(slices.Sorted(slices.Values(inlineCode.FindAllString(prose, -1)))),
			"numbers":  slices.Sorted(slices.Values(number.FindAllString(prose, -1))),
			"pictures": image.FindAllString(strings.ReplaceAll(prose, "\n", " "), -1),
		}
		for _, found := range link.FindAllStringSubmatch(prose, -1) {
			if !slices.Contains(languages, found[1]) {
				facts["links"] = append(facts["links"], found[1])
			}
		}
		slices.Sort(facts["links"])
		for line := range strings.Lines(prose) {
			if strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "| ") {
				facts["points and rows"] = append(facts["points and rows"], line[:1])
			}
		}
		list = append(list, section{title, facts})
	}
	return list
}

// Whole programs in documents compile, as they are, with this module.
func TestProgramsInDocumentsCompile(t *testing.T) {
	t.Parallel()
	programs := 0
	for _, path := range repositoryFiles(t, ".md") {
		for _, found := range goProgram.FindAllStringSubmatch(read(t, path), -1) {
			programs++
			source := filepath.Join(t.TempDir(), "main.go")
			require.NoError(t, os.WriteFile(source, []byte(found[1]), 0o600))
			said, err := exec.CommandContext(t.Context(), "go", "vet", source).CombinedOutput()
			require.NoError(t, err, "%s: %s", path, said)
		}
	}
	require.NotZero(t, programs)
}

// What documents say that it costs is what was measured, at the prices that the
// calculator has.
func TestCostsAreThoseMeasured(t *testing.T) {
	t.Parallel()
	measured, err := bill.Measured()
	require.NoError(t, err)
	dollars := func(sum float64) string { return fmt.Sprintf("$%.2f", sum) }
	message := dollars(1e6 * measured[bill.Message2].Dollars())
	device := dollars(1e3 * measured[bill.DeviceMonth].Dollars())
	group := dollars(1e6 * measured[bill.Message20].Dollars())
	kept := 0.0
	for _, line := range measured[bill.Message2].Times(1e6).Storage() {
		kept += line.Dollars
	}
	keeping := dollars(kept)
	minutes := dollars(1e3 * measured[bill.DeviceMonth].ConnectionMinutes * bill.PerConnectionMinute)

	for path, want := range map[string][]string{
		"README.zh-CN.md": {message, device},
		"README.md":       {message, device},
		"infra/COSTS.md":  {message, device, group, keeping, message}, // again under what a message is made of
	} {
		var said []string
		for _, found := range headline.FindAllStringSubmatch(read(t, path), -1) {
			said = append(said, found[1])
		}
		require.Equal(t, want, said, path)
	}
	costs := strings.Join(strings.Fields(read(t, "infra/COSTS.md")), " ")
	of := func(members int) float64 { return 1e6 * bill.Message(measured, members).Dollars() }
	for _, members := range []int{20, 21, 200, 1000} {
		row := fmt.Sprintf("| %d | %s |", members, dollars(of(members)))
		require.True(t, strings.Contains(costs, row), "infra/COSTS.md lacks %q", row)
	}
	require.Contains(t, costs, dollars(of(1000)-of(999))+" for each member more")
	for _, path := range readmes(t) {
		require.Contains(t, read(t, path), keeping, path)
	}
	require.Contains(t, costs, minutes+" per thousand devices are connection minutes")
}

// sam build finds a recipe for every function, which builds its folder.
func TestMakefileBuildsEveryFunction(t *testing.T) {
	t.Parallel()
	var template struct {
		Resources map[string]struct {
			Type       string         `yaml:"Type"`
			Metadata   map[string]any `yaml:"Metadata"`
			Properties struct {
				CodeURI string `yaml:"CodeUri"`
			} `yaml:"Properties"`
		} `yaml:"Resources"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "template.yaml")), &template))
	var recipes []string
	for line := range strings.Lines(read(t, "Makefile")) {
		if strings.HasPrefix(line, "build-") {
			recipes = append(recipes, strings.TrimSpace(line))
		}
	}
	var wanted []string
	for id, r := range template.Resources {
		if r.Type != "AWS::Serverless::Function" {
			continue
		}
		require.Equal(t, "makefile", r.Metadata["BuildMethod"], id)
		folder, ours := strings.CutPrefix(r.Properties.CodeURI, "functions/")
		require.True(t, ours, id)
		wanted = append(wanted, "build-"+id+": ; $(call build,"+folder+")")
	}
	require.ElementsMatch(t, wanted, recipes)
}

// A contributor finds each step of .ci/run, and none that it does not take.
func TestStepsOfCIAreDocumented(t *testing.T) {
	t.Parallel()
	_, section, _ := strings.Cut(read(t, ".github/CONTRIBUTING.md"), "| step | looks at |\n|---|---|\n")
	section, _, _ = strings.Cut(section, "\n\n")
	var documented []string
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		require.Greater(t, len(cells), 2, line)
		for _, name := range inlineCode.FindAllString(cells[1], -1) {
			documented = append(documented, strings.Trim(name, "`"))
		}
	}
	var taken []string
	for _, step := range ciStep.FindAllStringSubmatch(read(t, ".ci/run"), -1) {
		if !strings.HasPrefix(step[1], "install_") {
			taken = append(taken, step[1])
		}
	}
	require.NotEmpty(t, taken)
	for _, step := range taken {
		require.True(t, slices.ContainsFunc(documented, func(name string) bool { return step == name || strings.HasPrefix(step, name+" ") }),
			"CONTRIBUTING.md has no step %s", step)
	}
	for _, name := range documented {
		require.True(t, slices.ContainsFunc(taken, func(step string) bool { return step == name || strings.HasPrefix(step, name+" ") }),
			"CONTRIBUTING.md has the step %s, which .ci/run does not take", name)
	}
}

// maxComment is the column that a line of comment ends at, with tabs of 4: 98 of 100 did
// so before it was a rule. A linter of line lengths does not tell comments from code.
const maxComment = 92

func TestCommentsHaveOneWidth(t *testing.T) {
	t.Parallel()
	for _, path := range repositoryFiles(t, ".go") {
		for i, line := range strings.Split(read(t, path), "\n") {
			// Programs, tables and what has no gap, such as an address, stay as they are.
			text, isComment := strings.CutPrefix(strings.TrimSpace(line), "// ")
			wraps := isComment && !strings.HasPrefix(text, " ") && strings.Contains(text, " ")
			if wraps && utf8.RuneCountInString(strings.ReplaceAll(line, "\t", "    ")) > maxComment {
				t.Errorf("%s:%d: a comment goes beyond column %d", path, i+1, maxComment)
			}
		}
	}
}
