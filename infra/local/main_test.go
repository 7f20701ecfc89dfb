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
	"testing"
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
