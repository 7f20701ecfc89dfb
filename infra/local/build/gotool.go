package build

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// build runs go build and reports each executable as it appears.
func (b *batch) build(ctx context.Context, p *progress) error {
	if err := os.MkdirAll(filepath.Dir(b.packages[0].binary), 0o755); err != nil {
		return fmt.Errorf("making the output folder: %w", err)
	}
	args := []string{"build", "-buildvcs=false", "-o", b.out} // a commit alone must not relink
	if b.mode.trimPath {
		args = append(args, "-trimpath")
	}
	switch {
	case b.mode.debug:
		args = append(args, "-gcflags=all=-N -l")
	case !strings.Contains(os.Getenv("GOFLAGS"), "-ldflags"):
		args = append(args, "-ldflags=-s -w")
	}
	before := b.binaries()
	result := make(chan error, 1)
	go func() {
		_, err := b.run(ctx, append(args, b.paths()...)...)
		result <- err
	}()
	err := b.watch(p, before, result)
	var failed *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("building the functions: %w", ctx.Err())
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("building the functions needs Go (https://go.dev/dl) on the PATH: %w", err)
	case errors.As(err, &failed):
		return b.explain(ctx, string(failed.Stderr))
	default:
		return fmt.Errorf("running go build: %w", err)
	}
}

// watch waits for the result, and meanwhile tells which executables were renewed: go
// build replaces each when it is linked, or touches it if it is up to date.
func (b *batch) watch(p *progress, before []os.FileInfo, result <-chan error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	told := make([]bool, len(b.packages))
	for {
		select {
		case <-tick.C:
			for i, now := range b.binaries() {
				if !told[i] && renewed(before[i], now) {
					told[i] = true
					p.ready(b.packages[i])
				}
			}
		case err := <-result:
			for i := range told {
				if err == nil && !told[i] {
					p.ready(b.packages[i])
				}
			}
			return err
		}
	}
}

func renewed(before, now os.FileInfo) bool {
	if before == nil || now == nil {
		return now != nil
	}
	return !os.SameFile(before, now) || !before.ModTime().Equal(now.ModTime())
}

// binaries looks at the executables; nil for one that is not there.
func (b *batch) binaries() []os.FileInfo {
	var list []os.FileInfo
	for _, p := range b.packages {
		info, err := os.Stat(p.binary)
		if err != nil {
			info = nil
		}
		list = append(list, info)
	}
	return list
}

// paths are the packages as arguments of the go tool.
func (b *batch) paths() []string {
	var list []string
	for _, p := range b.packages {
		list = append(list, "."+separator+b.relative(p))
	}
	return list
}

// relative is the package's folder below the module's.
func (b *batch) relative(p *pkg) string {
	rel, err := filepath.Rel(b.root, p.dir)
	if err != nil { // cannot be: the root was found by going up from the folder
		return p.dir
	}
	return rel
}

// run runs the go tool in the module. Its error is an *exec.ExitError with all of Stderr.
func (b *batch) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = b.root
	cmd.Env = environment()
	if args[0] == "list" {
		// Else it keeps an index of each folder under the names and times of its files. One
		// that is moved away meanwhile is kept as empty, and go build believes that once it
		// is back.
		cmd.Env = append(cmd.Env, "GODEBUG=goindex=0")
	}
	// The compilers that it runs end with it: it would wait for one that hangs.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) } // it removes its work folder
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what is left
	}
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		failed.Stderr = stderr.Bytes()
	}
	return stdout.String(), err
}

// environment is this process's, made to build for this machine.
func environment() []string {
	env := append(os.Environ(), "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH)
	if os.Getenv("CGO_ENABLED") == "" {
		env = append(env, "CGO_ENABLED=0")
	}
	return env
}

// explain turns go build's output into one error per package, and names the
// functions that need it.
func (b *batch) explain(ctx context.Context, output string) error {
	deps := b.dependencies(ctx)
	var errs []error
	for _, s := range split(output) {
		e := &Error{Package: s.pkg, Output: s.lines}
		for _, p := range b.packages {
			if slices.Contains(deps[p.dir], s.pkg) || s.pkg == "" && strings.HasPrefix(s.lines, b.relative(p)+separator) {
				e.Functions = append(e.Functions, p.functions...)
			}
		}
		slices.Sort(e.Functions)
		errs = append(errs, e)
	}
	return errors.Join(errs...)
}

// dependencies lists, by folder, the import paths of each package and of all that it
// needs. What go list cannot tell is missing: the compiler's lines are shown anyway.
func (b *batch) dependencies(ctx context.Context) map[string][]string {
	args := append([]string{"list", "-e", "-f", `{{.Dir}}{{"\t"}}{{.ImportPath}}{{range .Deps}}{{"\t"}}{{.}}{{end}}`}, b.paths()...)
	output, err := b.run(ctx, args...)
	deps := map[string][]string{}
	if err != nil {
		return deps
	}
	for line := range strings.Lines(output) {
		dir, list, _ := strings.Cut(strings.TrimSpace(line), "\t")
		for _, p := range b.packages {
			if sameFile(p.dir, dir) {
				deps[p.dir] = strings.Split(list, "\t")
			}
		}
	}
	return deps
}

// section is what go build says about one package. Without a package it is about the
// loading of packages, such as a missing import, and then it is one file's.
type section struct{ pkg, lines string }

// split cuts go build's output at its headers, "# import/path". Before the first one
// every line that is not indented starts a section.
func split(output string) []section {
	var list []section
	for line := range strings.Lines(strings.TrimSpace(output)) {
		line = strings.TrimRight(line, "\r\n")
		header, isHeader := strings.CutPrefix(line, "# ")
		switch {
		case isHeader:
			pkg, _, _ := strings.Cut(header, " ")
			list = append(list, section{pkg: pkg})
		case len(list) == 0, list[len(list)-1].pkg == "" && !strings.HasPrefix(line, "\t"):
			list = append(list, section{lines: line})
		default:
			last := &list[len(list)-1]
			last.lines = strings.TrimPrefix(last.lines+"\n"+line, "\n")
		}
	}
	return list
}

// folderName makes a name of its own for what a batch builds.
func folderName(dir string, m mode, number int) string {
	id := fmt.Appendf(nil, "%s %v %d", dir, m.trimPath, number)
	if m.debug {
		id = append(id, " debug"...)
	}
	sum := sha256.Sum256(id)
	return hex.EncodeToString(sum[:6])
}
