//go:build !windows

package main_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What is built for a template goes with it, and what is in use stays.
func TestBuiltFunctionsThatNobodyNeedsAreRemoved(t *testing.T) {
	t.Parallel()
	own := options{env: append(emptyHome(t), engine(t))}
	run := func() (app string, c *local) {
		app = copyApp(t, smallApp)
		return app, start(t, own, "-template", app)
	}
	running, inUse := run()
	gone, c := run()
	c.stop()
	unused, c := run()
	c.stop()
	kept, c := run()
	c.stop()
	for _, app := range []string{running, gone} {
		require.NoError(t, os.RemoveAll(filepath.Dir(app)))
	}
	monthAgo := time.Now().Add(-31 * 24 * time.Hour)
	require.NoError(t, os.Chtimes(builtFor(t, own)[unused], monthAgo, monthAgo))

	latest, c := run()
	c.awaitLog(`^local +\| removed built functions of templates that are gone or long unused: 2$`)
	found := builtFor(t, own)
	require.Len(t, found, 3)
	for _, app := range []string{running, kept, latest} {
		require.Contains(t, found, app)
	}
	echo := inUse.dial("")
	echo.send(`{"action":"echo","text":"still here"}`)
	require.Equal(t, "still here", echo.receive())
}

// builtFor finds the notes of what is built in a home, by the template.
func builtFor(t *testing.T, o options) map[string]string {
	t.Helper()
	notes := map[string]string{}
	for _, variable := range o.env {
		name, folder, _ := strings.Cut(variable, "=")
		if name != "HOME" && name != "XDG_CACHE_HOME" {
			continue
		}
		require.NoError(t, filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Base(path) != ".template" {
				return err
			}
			template, err := os.ReadFile(path)
			notes[string(template)] = path
			return err
		}))
	}
	return notes
}
