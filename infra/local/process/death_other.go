//go:build !linux

package process

import "syscall"

// dieWithParent does nothing: only Linux has a parent-death signal, elsewhere
// the reaper is the only guard.
func dieWithParent(*syscall.SysProcAttr) {}
