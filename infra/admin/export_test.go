package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Two exports into one file at a time are each whole, and one that fails leaves the file
// as it was, and nothing beside it.
func TestIntoFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "out.jsonl")
	lines := func(w io.Writer, from, to int) (err error) {
		for i := from; i < to && err == nil; i++ {
			_, err = fmt.Fprintln(w, i)
		}
		return err
	}
	content := func() string {
		written, err := os.ReadFile(path)
		require.NoError(t, err)
		return string(written)
	}
	require.NoError(t, intoFile(path, func(w io.Writer) error {
		if err := lines(w, 0, 3); err != nil {
			return err
		}
		require.NoError(t, intoFile(path, func(w io.Writer) error { return lines(w, 0, 1) }))
		require.Equal(t, "0\n", content())
		return lines(w, 3, 5)
	}))
	require.Equal(t, "0\n1\n2\n3\n4\n", content())
	require.ErrorContains(t, intoFile(path, func(io.Writer) error { return errors.New("no answer") }), "no answer")
	require.Equal(t, "0\n1\n2\n3\n4\n", content())
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1)
}
