package watch

import (
	"hash/fnv"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/inorder-im/inorder/infra/local/build"
)

// kind is what counts at a place.
type kind int

const (
	code kind = iota // a folder: what the go tool compiles
	data             // a folder: all files
	file             // a file
)

// place is a path that is looked at.
type place struct {
	path string
	kind kind
}

func places(s build.Sources) iter.Seq[place] {
	return func(yield func(place) bool) {
		for k, paths := range map[kind][]string{code: s.Code, data: s.Data, file: s.Files} {
			for _, path := range paths {
				if !yield(place{path, k}) {
					return
				}
			}
		}
	}
}

// look is what was seen at a place.
type look struct {
	changed time.Time // the folder's own time: names in it came or went
	names   []string  // of files that count
	sum     uint64    // of names, times and sizes
	newest  time.Time // of files and the folder
}

// again looks anew, and tells whether there is something else than before. What is not
// there is something, too.
func (l *look) again(p place) (differs bool) {
	before := l.sum
	sum := fnv.New64a()
	l.newest = time.Time{}
	note := func(path string) {
		info, err := os.Stat(path)
		if err != nil || info.IsDir() {
			return
		}
		var b []byte
		b = append(b, path...)
		b = append(b, 0) // is in no path
		b = strconv.AppendInt(b, info.ModTime().UnixNano(), 10)
		b = append(b, 0)
		b = strconv.AppendInt(b, info.Size(), 10)
		b = append(b, 0)
		_, _ = sum.Write(b)
		l.noteTime(info.ModTime())
	}
	if p.kind == file {
		note(p.path)
	} else {
		l.list(p)
		for _, name := range l.names {
			note(filepath.Join(p.path, name))
		}
	}
	l.sum = sum.Sum64()
	return l.sum != before
}

func (l *look) noteTime(t time.Time) {
	if t.After(l.newest) {
		l.newest = t
	}
}

// list reads the names in a folder if they may be others.
func (l *look) list(p place) {
	info, err := os.Stat(p.path)
	if err != nil {
		l.names, l.changed = nil, time.Time{}
		return
	}
	l.noteTime(info.ModTime())
	if info.ModTime().Equal(l.changed) {
		return
	}
	entries, err := os.ReadDir(p.path)
	if err != nil {
		l.names, l.changed = nil, time.Time{}
		return
	}
	l.names, l.changed = l.names[:0], info.ModTime()
	for _, e := range entries {
		if !e.IsDir() && p.kind.counts(e) {
			l.names = append(l.names, e.Name())
		}
	}
}

// compiled are the endings of what the go tool compiles.
var compiled = []string{".go", ".s", ".S", ".sx", ".c", ".cc", ".cpp", ".cxx", ".m", ".h", ".hh", ".hpp", ".hxx", ".f", ".F", ".for", ".f90", ".swig", ".swigcxx", ".syso"}

// counts leaves out tests, and what editors keep beside a file while it is open.
func (k kind) counts(e fs.DirEntry) bool {
	name := e.Name()
	if strings.HasPrefix(name, ".") {
		return false
	}
	if k == data {
		return true
	}
	return !strings.HasPrefix(name, "_") && !strings.HasSuffix(name, "_test.go") && slices.Contains(compiled, filepath.Ext(name))
}
