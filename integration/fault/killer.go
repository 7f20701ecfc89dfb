package fault

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Killer ends processes of functions with SIGKILL, at moments of its own choice.
type Killer struct {
	plan      *Plan
	pid       int
	functions []string
	killed    map[birth]bool // which may be listed for a moment more
}

// birth tells processes apart that had the same id one after the other.
type birth struct {
	pid     int
	started string
}

// errNoProc is why some of this package is for Linux.
var errNoProc = errors.New("processes are found in /proc, which only Linux has")

// NewKiller makes a Killer for the functions, named by their logical ids, that
// the process with this id runs, itself or through others. The error says that
// this is no Linux.
func NewKiller(plan *Plan, pid int, functions ...string) (*Killer, error) {
	if runtime.GOOS != "linux" {
		return nil, errNoProc
	}
	return &Killer{plan: plan, pid: pid, functions: functions, killed: map[birth]bool{}}, nil
}

// Run kills, one process at a time, until ctx ends. It is not for two goroutines
// at a time.
func (k *Killer) Run(ctx context.Context) {
	upTo := k.plan.faults[Kill].UpTo
	if upTo == 0 {
		upTo = defaultUpTo
	}
	// Twice at random times in each period, not at regular ones.
	timer := time.NewTimer(upTo / 2)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		next := upTo / 2
		if s, ok := k.plan.consider(Kill); ok {
			if function, ok := k.one(s); ok {
				k.plan.count(KillOf(function))
			}
			next = s.duration()
		}
		timer.Reset(next)
	}
}

// one kills one of the processes there are, and tells of which function it was. A
// function with few processes is as likely as one with many.
func (k *Killer) one(s strike) (function string, ok bool) {
	victims := map[string][]process{}
	for _, p := range k.find() {
		victims[p.function()] = append(victims[p.function()], p)
	}
	if len(victims) == 0 {
		return "", false
	}
	function = oneOf(s, slices.Sorted(maps.Keys(victims))...)
	victim := oneOf(s, victims[function]...)
	p, err := os.FindProcess(victim.pid)
	if err != nil {
		return "", false
	}
	defer func() { _ = p.Release() }()
	// The process is held by now, so that its id is not given to another one, but
	// it may have been before.
	if now, ok := readProcess(victim.pid); !ok || now.started != victim.started {
		return "", false
	}
	if p.Kill() != nil {
		return "", false
	}
	k.killed[birth{victim.pid, victim.started}] = true
	return function, true
}

// process is one that was running when it was looked for. Its start time tells
// it from another that got its id later.
type process struct {
	pid, parent int
	started     string
	program     string
}

// function is the logical id of the function whose process it is.
func (p process) function() string { return filepath.Base(filepath.Dir(p.program)) }

// find gives the processes of the functions that were not killed yet, in the
// order of their ids.
func (k *Killer) find() []process {
	children := map[int][]process{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if p, ok := readProcess(pid); ok {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	var found []process
	for todo := []int{k.pid}; len(todo) > 0; todo = todo[1:] {
		for _, p := range children[todo[0]] {
			todo = append(todo, p.pid)
			if filepath.Base(p.program) == "bootstrap" && slices.Contains(k.functions, p.function()) && !k.killed[birth{p.pid, p.started}] {
				found = append(found, p)
			}
		}
	}
	slices.SortFunc(found, func(a, b process) int { return a.pid - b.pid })
	return found
}

// readProcess reads /proc/PID/stat (man 5 proc): "pid (comm) state ppid …", in
// which comm may hold anything and starttime is the 22nd field. A process that
// has ended, though nobody has asked how, is none.
func readProcess(pid int) (process, bool) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	content, err := os.ReadFile(filepath.Join(dir, "stat")) //nolint:gosec // of a number
	if err != nil {
		return process{}, false
	}
	end := bytes.LastIndexByte(content, ')')
	fields := strings.Fields(string(content[end+1:]))
	if end < 0 || len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return process{}, false
	}
	parent, _ := strconv.Atoi(fields[1])
	program, _ := os.Readlink(filepath.Join(dir, "exe"))
	// Of an executable that was built anew since the start.
	program = strings.TrimSuffix(program, " (deleted)")
	return process{pid: pid, parent: parent, started: fields[19], program: program}, true
}
