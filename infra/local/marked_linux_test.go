package main_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// marked finds the processes with a text in their environment, and returns their
// command lines by process id: those that a local cloud started and those that
// these started, also when their parents are gone.
func marked(text string) map[int]string {
	found := map[int]string{}
	environments, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range environments {
		// It cannot be read once the process has ended, and is empty when only its
		// exit status is left.
		environment, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(environment, []byte(text)) {
			continue
		}
		dir := filepath.Dir(file)
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		commandLine, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		found[pid] = string(bytes.ReplaceAll(commandLine, []byte{0}, []byte(" ")))
	}
	return found
}
