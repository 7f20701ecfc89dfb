// Package buildtest is for tests of programs that the test builds itself.
package buildtest

import (
	"io/fs"
	"path/filepath"
	"strings"
)

// Sources makes go test run again, instead of repeating a result that it has cached,
// when a file in these folders or below has changed.
//
// go test knows what a test binary is made of and which files of the module it opens
// ("go help test"), not what the go command and others read that it runs. To open a
// folder counts as to look at each file in it. It has to be while a test runs: what
// TestMain opens before is not noted.
func Sources(folders ...string) error {
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() && path != folder && strings.HasPrefix(entry.Name(), ".") {
				return filepath.SkipDir
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
