package dynamo

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// seed is an empty data file of dynoxide 1.2.1 with the two things that its stream
// lacks, see seed.sql: dynoxide takes what is there. So nothing of ours has to open
// the file, neither before dynoxide nor beside it. TestSeed makes it anew.
//
//go:embed seed.sqlite.gz
var seed []byte

// seedMark is in every data file that came from the seed: the name of its index.
const seedMark = "inorder_stream"

const (
	// headSize is how much of a data file is searched for the mark, in bytes. The
	// schema is at its beginning.
	headSize = 64 << 10

	// memoryFolder is kept in memory by Linux. It is used if it has roomWanted, in
	// bytes: containers often have 64 MB there.
	memoryFolder = "/dev/shm"
	roomWanted   = 1 << 30
)

// plant makes a data file that does not exist yet. It tells whether the file is one
// whose stream has the index, as those of earlier versions have not.
func plant(path string) (indexed bool, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return isIndexed(path), nil
	}
	if err != nil {
		return false, fmt.Errorf("making the data file: %w", err)
	}
	defer func() { _ = f.Close() }()
	content, err := gzip.NewReader(bytes.NewReader(seed))
	if err != nil {
		return false, fmt.Errorf("making the data file: %w", err)
	}
	if _, err := io.Copy(f, content); err != nil { //nolint:gosec // it is ours
		return false, fmt.Errorf("making the data file: %w", err)
	}
	return true, nil
}

func isIndexed(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	head, _ := io.ReadAll(io.LimitReader(f, headSize)) // a damaged file is dynoxide's to refuse
	return bytes.Contains(head, []byte(seedMark))
}

// scratchFile makes a data file for one life of an engine. In memory dynoxide has no
// index for its stream, and nobody can give it one. forget takes the file's name
// away: its content ends with the last process that has it open, however that ends.
func scratchFile() (path string, forget func(), err error) {
	parent := ""
	if room(memoryFolder) >= roomWanted {
		parent = memoryFolder
	}
	dir, err := os.MkdirTemp(parent, "inorder-dynamodb-")
	if err != nil {
		return "", nil, fmt.Errorf("making a temporary folder: %w", err)
	}
	forget = func() { _ = os.RemoveAll(dir) }
	path = filepath.Join(dir, "data.sqlite")
	if _, err := plant(path); err != nil {
		forget()
		return "", nil, err
	}
	return path, forget, nil
}
