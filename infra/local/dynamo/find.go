// Package dynamo runs the DynamoDB engine of the local cloud: dynoxide, one
// static binary that speaks the DynamoDB and DynamoDB Streams APIs. It finds or
// installs the binary, starts it on a loopback port, and creates tables.
package dynamo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Version is the version of dynoxide that the local cloud is tested with. No
// other is accepted: the details of streams and of conditions differ.
const Version = "1.2.1"

// versionTimeout bounds `dynoxide --version`, which takes some milliseconds.
const versionTimeout = 20 * time.Second

// Options says how [Find] reports.
type Options struct {
	// Progress, if set, is told about every step that takes time or may
	// surprise: a binary passed over, an installation.
	Progress func(string)
}

// Find returns the path of a dynoxide binary of [Version]. It looks, in this
// order, at $DYNOXIDE (which must be right when it is set), in PATH, and in the
// cache, the folder inorder/dynoxide-1.2.1 of [os.UserCacheDir]. If there is
// none it installs one into the cache with npm, which needs the network once.
// The error says what the user can do.
func Find(ctx context.Context, opts Options) (string, error) {
	progress := opts.Progress
	if progress == nil {
		progress = func(string) {}
	}
	if path := os.Getenv("DYNOXIDE"); path != "" {
		return fromEnvironment(ctx, path)
	}
	if path, err := exec.LookPath("dynoxide"); err == nil {
		if err = check(ctx, path); err == nil {
			return filepath.Abs(path)
		}
		progress(fmt.Sprintf("passing over the dynoxide in PATH: %v", err))
	}
	if ctx.Err() != nil {
		return "", fmt.Errorf("looking for dynoxide: %w", ctx.Err())
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", unavailable(fmt.Sprintf("there is no cache folder to install it into (%v)", err))
	}
	dir := filepath.Join(cache, "inorder", "dynoxide-"+Version)
	path := filepath.Join(dir, "dynoxide")
	if _, err := os.Stat(path); err == nil {
		if err = check(ctx, path); err == nil {
			return path, nil
		}
		progress(fmt.Sprintf("replacing the dynoxide in the cache: %v", err))
	}
	if err := install(ctx, dir, progress); err != nil {
		return "", err
	}
	return path, nil
}

func fromEnvironment(ctx context.Context, path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err == nil {
		err = check(ctx, abs)
	}
	if err != nil {
		return "", fmt.Errorf("the environment variable DYNOXIDE must name the binary of dynoxide %s: %w", Version, err)
	}
	return abs, nil
}

// check runs the binary: only that shows that it suits this machine.
func check(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("running %s --version: %w", path, err)
	}
	if got := strings.TrimSpace(string(out)); got != "dynoxide "+Version {
		return fmt.Errorf("%s says it is %q, not \"dynoxide %s\"", path, firstLine(got), Version)
	}
	return nil
}

// install puts the npm package with the binary for this machine at dir. It
// unpacks beside dir and renames, so that two installing at the same time, or
// one that is killed, never leave half a binary there.
func install(ctx context.Context, dir string, progress func(string)) error {
	pkg, err := npmPackage(runtime.GOOS, runtime.GOARCH)
	if err != nil {
		return unavailable(err.Error())
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return unavailable("npm, which would install it, is not on PATH")
	}
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("making the cache folder of dynoxide: %w", err)
	}
	tmp, err := os.MkdirTemp(parent, "installing-")
	if err != nil {
		return fmt.Errorf("making a folder to install dynoxide in: %w", err)
	}
	defer func() { _ = os.RemoveAll(tmp) }()

	progress(fmt.Sprintf("installing dynoxide %s, the DynamoDB engine, with npm (once, about 8 MB) into %s", Version, dir))
	if err := runNPM(ctx, npm, tmp, pkg+"@"+Version); err != nil {
		return err
	}
	unpacked := filepath.Join(tmp, "node_modules", filepath.FromSlash(pkg))
	if err := check(ctx, filepath.Join(unpacked, "dynoxide")); err != nil {
		return unavailable(fmt.Sprintf("the binary that npm installed does not run here: %v", err))
	}
	return moveInto(ctx, unpacked, dir, filepath.Join(tmp, "replaced"))
}

// npmPackage names the package for a Go platform.
func npmPackage(goos, goarch string) (string, error) {
	arch := map[string]string{"amd64": "x64", "arm64": "arm64"}[goarch]
	if arch == "" || (goos != "linux" && goos != "darwin") {
		return "", fmt.Errorf("there is no dynoxide package for %s/%s", goos, goarch)
	}
	return "@dynoxide/" + goos + "-" + arch, nil
}

func runNPM(ctx context.Context, npm, dir, spec string) error {
	cmd := exec.CommandContext(ctx, npm, "install", "--prefix", dir, "--global=false", "--no-save", "--no-package-lock",
		"--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error", spec)
	cmd.Dir = dir
	cmd.WaitDelay = 2 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("installing dynoxide with npm: %w", ctx.Err())
		}
		return unavailable(fmt.Sprintf("\"npm install %s\" failed (%v): %s", spec, err, tail(out.String(), 800)))
	}
	return nil
}

// moveInto renames from to dir. If something is there already it is either the
// work of another installer, which is as good, or broken, and moved aside.
func moveInto(ctx context.Context, from, dir, aside string) error {
	err := os.Rename(from, dir)
	if err == nil {
		return nil
	}
	if check(ctx, filepath.Join(dir, "dynoxide")) == nil {
		return nil
	}
	if err := os.Rename(dir, aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("moving a broken dynoxide out of the way: %w", err)
	}
	if err = os.Rename(from, dir); err != nil && check(ctx, filepath.Join(dir, "dynoxide")) != nil {
		return fmt.Errorf("putting dynoxide into the cache: %w", err)
	}
	return nil
}

// unavailable is the one message for a user without dynoxide.
func unavailable(reason string) error {
	return fmt.Errorf(`dynoxide %[1]s, the DynamoDB engine of the local cloud, is not available: %[2]s.
Do one of these:
  - install Node.js, which brings npm, and run this again with a network: dynoxide %[1]s is then installed by itself;
  - put a dynoxide %[1]s binary on PATH;
  - set DYNOXIDE to the path of a dynoxide %[1]s binary;
  - use another DynamoDB that is already running: -dynamodb-endpoint ADDRESS`, Version, reason)
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// tail returns about the last n bytes of s, from the start of a line.
func tail(s string, n int) string {
	s = strings.TrimSpace(s)
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	if _, rest, ok := strings.Cut(s, "\n"); ok {
		s = rest
	}
	return "... " + s
}
