// Package browsertest is for tests that need a browser, or Node.js.
package browsertest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/inorder-im/inorder/infra/local/build/buildtest"
)

// patience is for all that one test does, which takes seconds where nothing else runs.
// What waits in a page waits less, and says for what.
const patience = 6 * time.Minute

// Node returns the path of Node.js. Without it the test is skipped, except in CI, where
// a skipped test would go unnoticed.
func Node(t *testing.T) string {
	t.Helper()
	return find(t, "node")
}

// Chromium returns the path of a browser of its kind. Without one the test is skipped,
// except in CI.
func Chromium(t *testing.T) string {
	t.Helper()
	return find(t, "chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
}

// Modules runs the tests of the modules in the test's folder, at least ten, with Node's
// runner. go test repeats them when a module changed.
func Modules(t *testing.T) {
	t.Helper()
	node := Node(t)
	require.NoError(t, buildtest.Sources("."))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	output, err := exec.CommandContext(ctx, node, "--test").CombinedOutput() //nolint:gosec // Node, as it was found
	require.NoError(t, err, "node --test (Node 20 or newer):\n%s", output)
	require.Regexp(t, `(?m)^\S+ pass [1-9]\d+$`, string(output), "too few tests were found")
}

// Open opens a page in a Chromium of its own, which has a mouse and the focus and ends
// with the test. Without Chromium the test is skipped, except in CI. What is done in
// the page ends after six minutes.
func Open(t *testing.T, url string) context.Context {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(Chromium(t)),
		chromedp.NoSandbox,
		chromedp.DisableGPU,
		chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("blink-settings", "primaryHoverType=2,availableHoverTypes=2,primaryPointerType=4,availablePointerTypes=4"), // there is a mouse
	)
	timeout, cancelTimeout := context.WithTimeout(context.Background(), patience)
	allocator, cancelAllocator := chromedp.NewExecAllocator(timeout, options...)
	page, _ := chromedp.NewContext(allocator)
	t.Cleanup(func() {
		err := chromedp.Cancel(page) // closes the browser and waits, so that its folder can be removed
		cancelAllocator()
		cancelTimeout()
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("closing the browser: %v", err)
		}
	})
	require.NoError(t, chromedp.Do(page))
	// What nobody looks at is not read, and no window of a browser without a screen has
	// the focus.
	_, err := chromedp.Call(page, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	require.NoError(t, err)
	require.NoError(t, chromedp.Do(page, chromedp.Navigate(url)))
	return page
}

func find(t *testing.T, names ...string) string {
	t.Helper()
	for _, name := range names {
		if program, err := exec.LookPath(name); err == nil {
			return program
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("none of %v is installed, and CI=true", names)
	}
	t.Skipf("none of %v is installed; install one to run this test", names)
	return ""
}
