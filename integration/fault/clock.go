package fault

import (
	"context"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// Clock is a clock of functions that a test can set. The functions are compiled
// for it: where their sources hand over the clock, as the value time.Now, the
// compiler is given another function instead (go help build, -overlay). The
// sources stay as they are, and so do the executables that others run.
//
// Calls of time.Now() are left alone: they measure how long something takes, for
// which processes have a clock that cannot be set.
type Clock struct {
	dir     string
	goCache string
}

// handedOver is time.Now without a call.
var handedOver = regexp.MustCompile(`\btime\.Now\b([^(]|$)`)

// NewClock prepares a clock for the packages in the folders and keeps what it
// needs in dir. The error says that no package hands over a clock, or that this
// is no Linux, where alone the executables can be kept apart from those of
// others.
func NewClock(ctx context.Context, dir string, packages ...string) (*Clock, error) {
	if runtime.GOOS != "linux" {
		return nil, errors.New("a clock that can be set is for Linux only")
	}
	cache, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
	if err != nil {
		return nil, fmt.Errorf("asking go for its cache: %w", err)
	}
	c := &Clock{dir: dir, goCache: strings.TrimSpace(string(cache))}
	replace := map[string]string{}
	for _, pkg := range packages {
		if err := c.overlay(pkg, replace); err != nil {
			return nil, fmt.Errorf("giving %s a clock: %w", pkg, err)
		}
	}
	if err := os.WriteFile(c.overlayFile(), mustMarshal(map[string]any{"Replace": replace}), 0o600); err != nil {
		return nil, fmt.Errorf("writing the overlay: %w", err)
	}
	if err := c.Set(0); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Clock) overlayFile() string { return filepath.Join(c.dir, "overlay.json") }
func (c *Clock) offsetFile() string  { return filepath.Join(c.dir, "offset") }

// overlay adds the files of a package that are to be replaced.
func (c *Clock) overlay(pkg string, replace map[string]string) error {
	pkg, err := filepath.Abs(pkg)
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(pkg, "*.go"))
	if err != nil {
		return err
	}
	put := func(original, content string) error {
		replacement := filepath.Join(c.dir, fmt.Sprintf("%d.go", len(replace)))
		replace[original] = replacement
		return os.WriteFile(replacement, []byte(content), 0o600) //nolint:gosec // a number in the caller's folder
	}
	name := ""
	for _, file := range files {
		source, err := os.ReadFile(file) //nolint:gosec // a source of the project
		if err != nil {
			return err
		}
		if strings.HasSuffix(file, "_test.go") || !handedOver.Match(source) {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, source, parser.PackageClauseOnly)
		if err != nil {
			return err
		}
		name = parsed.Name.Name
		changed := handedOver.ReplaceAllString(string(source), "faultNow$1") + "\nvar _ time.Time // the import may not be needed otherwise\n"
		if err := put(file, changed); err != nil {
			return err
		}
	}
	if name == "" {
		return errors.New("no file in it uses time.Now as a value")
	}
	return put(filepath.Join(pkg, "zz_fault_clock.go"), fmt.Sprintf(clockSource, name, c.offsetFile()))
}

// clockSource is the clock: package and the file with the offset are missing. A
// time that was set has no monotonic reading.
const clockSource = `package %s

import (
	"os"
	"time"
)

func faultNow() time.Time {
	content, err := os.ReadFile(%q)
	if err != nil {
		panic(err)
	}
	offset, err := time.ParseDuration(string(content))
	if err != nil {
		panic(err)
	}
	return time.Now().Round(0).Add(offset)
}
`

// Set sets the clock to the real time plus the offset, at once.
func (c *Clock) Set(offset time.Duration) error {
	next := c.offsetFile() + ".next"
	if err := os.WriteFile(next, []byte(offset.String()), 0o600); err != nil {
		return fmt.Errorf("setting the clock: %w", err)
	}
	if err := os.Rename(next, c.offsetFile()); err != nil {
		return fmt.Errorf("setting the clock: %w", err)
	}
	return nil
}

// clockEvery is the longest time between two settings of a clock by a plan.
const clockEvery = 200 * time.Millisecond

// Run sets the clock again and again, as the plan says, until ctx ends; then it is
// right again. The error is that of the last try to set it.
func (c *Clock) Run(ctx context.Context, plan *Plan) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return c.Set(0)
		case <-timer.C:
		}
		next := clockEvery
		if s, ok := plan.consider(ClockSet); ok {
			if c.Set(s.offset()) == nil {
				plan.count(ClockSet)
			}
			next = time.Duration(s.Int64N(int64(clockEvery)))
		}
		timer.Reset(next)
	}
}

// Env is what to add to the environment of a program that builds the functions,
// such as the local cloud. It has a cache folder of its own then, so it finds no
// DynamoDB engine there: name one.
func (c *Clock) Env() []string {
	flags := strings.TrimSpace(os.Getenv("GOFLAGS") + " '-overlay=" + c.overlayFile() + "'")
	return []string{
		"GOFLAGS=" + flags,
		"GOCACHE=" + c.goCache,
		"XDG_CACHE_HOME=" + filepath.Join(c.dir, "cache"),
	}
}
