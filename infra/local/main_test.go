//go:build !windows

// Package main_test tests the local cloud as its users meet it: the built program,
// its output, its exit code and what it leaves behind.
package main_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// program is the local cloud, built.
var program string

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run is TestMain with defer.
func run(m *testing.M) int {
	flag.Parse()
	// The tests wait more than they compute.
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		_ = flag.Set("test.parallel", "16")
	}
	dir, err := os.MkdirTemp("", "inorder-local-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	program = filepath.Join(dir, "local")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "building the local cloud: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// The README has every flag, and no other.
func TestFlagsAreDocumented(t *testing.T) {
	t.Parallel()
	flag := regexp.MustCompile(`(?m)^  -([a-z-]+)`)
	cell := regexp.MustCompile("`-([a-z-]+)")
	help, err := exec.CommandContext(t.Context(), program, "-h").CombinedOutput()
	require.NoError(t, err)
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	var have, documented []string
	for _, m := range flag.FindAllStringSubmatch(string(help), -1) {
		have = append(have, m[1])
	}
	_, table, found := strings.Cut(string(readme), "| flag | |\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	for row := range strings.Lines(table) {
		for _, m := range cell.FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
			documented = append(documented, m[1])
		}
	}
	require.NotEmpty(t, have)
	require.ElementsMatch(t, have, documented)
}
