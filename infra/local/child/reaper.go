package child

import (
	"bufio"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

// ReaperArg is the hidden first argument that makes a program the reaper.
const ReaperArg = "child-process-reaper"

// readyAnswer is what the reaper writes when it is on guard.
const readyAnswer = "ready\n"

// RunReaper does nothing in an ordinary process. In the one that [StartReaper]
// made it is the whole program and does not return. It must run before anything
// else in main, or in TestMain.
func RunReaper() {
	if !isReaper() {
		return
	}
	// Whoever stops a whole session or group of processes must not stop the
	// reaper before it has done its work; the end of the pipe ends it.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	if _, err := io.WriteString(os.Stdout, readyAnswer); err != nil {
		os.Exit(1)
	}
	for pid := range readLive(os.Stdin) {
		_ = syscall.Kill(-pid, syscall.SIGKILL)
	}
	os.Exit(0)
}

func isReaper() bool { return len(os.Args) > 1 && os.Args[1] == ReaperArg }

// readLive follows the parent's notes, "+pid" and "-pid", until they end, and
// returns the process groups that were left then.
func readLive(notes io.Reader) map[int]struct{} {
	live := make(map[int]struct{})
	for lines := bufio.NewScanner(notes); lines.Scan(); {
		line := lines.Text()
		if len(line) < 2 {
			continue
		}
		// Ids 0 and 1 would mean "my own group" and "everyone" to kill(2).
		pid, err := strconv.Atoi(line[1:])
		if err != nil || pid < 2 {
			continue
		}
		if line[0] == '+' {
			live[pid] = struct{}{}
		} else {
			delete(live, pid)
		}
	}
	return live
}
