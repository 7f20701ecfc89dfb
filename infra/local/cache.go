//go:build !windows

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// keptFor is how long a template's built functions are kept after its last start.
const keptFor = 30 * 24 * time.Hour

// What is in a template's folder besides its functions.
const (
	pathFile  = ".template" // has the path of the template; its time is that of the last start
	buildLock = ".lock"     // of the one that builds
	useLock   = ".use"      // shared by those that run
)

// claimFolder returns the folder in the user's cache where a template's functions are
// built, and where the next start finds them. It is this process's until release.
//
// Folders that nobody needs any more are removed meanwhile, and counted: their
// template is gone, as that of a test or of a clone that was deleted, or it was not
// started for long. Each has some 170 MB.
func claimFolder(ctx context.Context, template string) (dir string, release func(), removed int, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", nil, 0, fmt.Errorf("finding a place for the built functions: %w", err)
	}
	path, err := filepath.Abs(template)
	if err != nil {
		return "", nil, 0, fmt.Errorf("finding %s: %w", template, err)
	}
	root := filepath.Join(cache, "inorder", "build")
	id := sha256.Sum256([]byte(path))
	dir = filepath.Join(root, hex.EncodeToString(id[:8]))
	if err := os.MkdirAll(root, 0o750); err != nil {
		return "", nil, 0, fmt.Errorf("making a place for the built functions: %w", err)
	}
	// One at a time, so that none removes what another is about to use.
	unlock, err := awaitLock(ctx, filepath.Join(root, ".lock"), func() {})
	if err != nil {
		return "", nil, 0, err
	}
	defer unlock()
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return "", nil, 0, fmt.Errorf("making a place for the built functions: %w", err)
	}
	if release, err = shareLock(filepath.Join(dir, useLock)); err != nil {
		return "", nil, 0, err
	}
	if err := os.WriteFile(filepath.Join(dir, pathFile), []byte(path), 0o600); err != nil {
		release()
		return "", nil, 0, fmt.Errorf("noting whose functions are built: %w", err)
	}
	return dir, release, removeUnneeded(root, time.Now()), nil
}

// removeUnneeded removes the folders that are not needed nor in use, and says how
// many. What it cannot remove is left to the next start.
func removeUnneeded(root string, now time.Time) (removed int) {
	folders, _ := filepath.Glob(filepath.Join(root, "*"))
	for _, folder := range folders {
		if needed(folder, now) {
			continue
		}
		unlock, free, err := tryLock(filepath.Join(folder, useLock))
		if err != nil || !free {
			continue
		}
		if os.RemoveAll(folder) == nil {
			removed++
		}
		unlock()
	}
	return removed
}

// needed reports whether the template is still there and was started lately. A
// folder without a note was left by one that was ended while it began.
func needed(folder string, now time.Time) bool {
	note := filepath.Join(folder, pathFile)
	info, err := os.Stat(note)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	path, err := os.ReadFile(note)
	if err != nil {
		return true
	}
	_, err = os.Stat(string(path))
	return !errors.Is(err, fs.ErrNotExist) && now.Sub(info.ModTime()) < keptFor
}
