package process

import "syscall"

// dieWithParent asks the kernel to kill the child when the thread that started
// it ends, at the latest with the parent. It covers the moment before the
// reaper knows the child; it would not cover the child's own children.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
