//go:build !windows

package main

import (
	"fmt"
	"slices"
)

// chooseDebugged finds the functions that are named on the command line.
func (c *cloud) chooseDebugged(names []string) error {
	for _, name := range names {
		f, err := functionNamed(c.stack, name)
		if err != nil {
			return fmt.Errorf("-debug %s: %w", name, err)
		}
		c.debug = append(c.debug, f.LogicalID)
	}
	return nil
}

// tellDebugger says how to attach to a process that has started.
func (c *cloud) tellDebugger(function string, pid int, out *console) {
	if slices.Contains(c.debug, function) {
		out.step("%s has no limit of time. To debug it: dlv attach %d", shortName(function), pid)
	}
}
