package stack

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Process is one that was running when it was looked for.
type Process struct {
	PID     int
	Program string // the path of the executable
	Started string // tells it from another that got its id later

	parent int
}

// Function is the logical id of the function whose process it is.
func (p Process) Function() string { return filepath.Base(filepath.Dir(p.Program)) }

// Runs reports whether it still does.
func (p Process) Runs() bool {
	now, ok := readProcess(p.PID)
	return ok && now.Started == p.Started
}

// descendants finds what a process has started, and what that has, in the order of
// their ids. It finds nothing but on Linux.
func descendants(pid int) []Process {
	var all []Process
	for _, id := range processIDs() {
		if p, ok := readProcess(id); ok {
			all = append(all, p)
		}
	}
	family := map[int]bool{pid: true}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if family[p.parent] && !family[p.PID] {
				family[p.PID], grown = true, true
			}
		}
	}
	return slices.DeleteFunc(all, func(p Process) bool { return !family[p.PID] || p.PID == pid })
}

// ProcessesOf finds the processes of functions, named by their logical ids, that a
// process runs, itself or through others, in the order of their ids. It finds nothing
// but on Linux.
//
// It asks one thing of each process of the machine: to ask all that readProcess does
// takes seconds where there is much else to do, and who is to be killed in the midst
// of a request may have given it up by then.
func ProcessesOf(pid int, functions ...string) []Process {
	var found []Process
	for _, id := range processIDs() {
		p := Process{Program: programOf(id)}
		if filepath.Base(p.Program) != "bootstrap" || !slices.Contains(functions, p.Function()) {
			continue
		}
		if p, ok := readProcess(id); ok && p.descendsFrom(pid) {
			found = append(found, p)
		}
	}
	return found
}

func (p Process) descendsFrom(ancestor int) bool {
	for ok := true; ok; p, ok = readProcess(p.parent) {
		if p.parent == ancestor {
			return true
		}
	}
	return false
}

// processIDs are those of all processes, in order.
func processIDs() []int {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = proc.Close() }()
	names, _ := proc.Readdirnames(-1)
	var ids []int
	for _, name := range names {
		if id, err := strconv.Atoi(name); err == nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// readProcess reads /proc/PID/stat (man 5 proc): "pid (comm) state ppid …", in
// which comm may hold anything and starttime is the 22nd field. A process that
// has ended, though nobody has asked how, is none.
func readProcess(pid int) (Process, bool) {
	content, err := os.ReadFile(procFile(pid, "stat"))
	if err != nil {
		return Process{}, false
	}
	end := bytes.LastIndexByte(content, ')')
	fields := strings.Fields(string(content[end+1:]))
	if end < 0 || len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return Process{}, false
	}
	parent, _ := strconv.Atoi(fields[1])
	return Process{PID: pid, Program: programOf(pid), parent: parent, Started: fields[19]}, true
}

// programOf is the path of a process's executable, "" where that cannot be seen.
func programOf(pid int) string {
	program, _ := os.Readlink(procFile(pid, "exe"))
	// Of an executable that was built anew since the start.
	return strings.TrimSuffix(program, " (deleted)")
}

func procFile(pid int, name string) string {
	return filepath.Join("/proc", strconv.Itoa(pid), name)
}
