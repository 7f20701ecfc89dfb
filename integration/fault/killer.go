package fault

import (
	"context"
	"errors"
	"maps"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/inorder-im/inorder/integration/stack"
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
	victims := map[string][]stack.Process{}
	for _, p := range stack.ProcessesOf(k.pid, k.functions...) {
		if !k.killed[birth{p.PID, p.Started}] {
			victims[p.Function()] = append(victims[p.Function()], p)
		}
	}
	if len(victims) == 0 {
		return "", false
	}
	function = oneOf(s, slices.Sorted(maps.Keys(victims))...)
	victim := oneOf(s, victims[function]...)
	p, err := os.FindProcess(victim.PID)
	if err != nil {
		return "", false
	}
	defer func() { _ = p.Release() }()
	// The process is held by now, so that its id is not given to another one, but
	// it may have been before.
	if !victim.Runs() || p.Kill() != nil {
		return "", false
	}
	k.killed[birth{victim.PID, victim.Started}] = true
	return function, true
}
