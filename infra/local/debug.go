//go:build !windows

package main

import (
	"fmt"
	"slices"
)

// chooseDebugged finds the functions that are named on the command line.
func (c *cloud) chooseDebugged() error {
	for _, name := range c.debug {
		f, err := functionNamed(c.stack, name)
		if err != nil {
			return fmt.Errorf("-debug %s: %w", name, err)
		}
		c.debugged = append(c.debugged, f.LogicalID)
	}
	return nil
}

// tellDebugger says how to attach to a process that has started.
func (c *cloud) tellDebugger(function string, pid int) {
	if slices.Contains(c.debugged, function) {
		c.out.step("%s has no limit of time. To debug it: dlv attach %d", shortName(function), pid)
	}
}
