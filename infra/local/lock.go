//go:build !windows

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockCheck is how often a lock that is waited for is tried.
const lockCheck = 50 * time.Millisecond

// tryLock takes the file at path for this process, or tells that another one has
// it. The lock ends with the process, however it ends.
func tryLock(path string) (unlock func(), free bool, err error) {
	return flock(path, syscall.LOCK_EX)
}

// shareLock takes the file at path together with others that share it. It fails
// where one process has it alone.
func shareLock(path string) (unlock func(), err error) {
	unlock, free, err := flock(path, syscall.LOCK_SH)
	if err == nil && !free {
		err = fmt.Errorf("%s is locked by another process", path)
	}
	return unlock, err
}

func flock(path string, how int) (unlock func(), free bool, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("opening a lock: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	if err == nil {
		return func() { _ = f.Close() }, true, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("locking %s: %w", path, err)
}

// awaitLock takes the file at path, after a wait if it must, which it announces.
func awaitLock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	tick := time.NewTicker(lockCheck)
	defer tick.Stop()
	for first := true; ; first = false {
		unlock, free, err := tryLock(path)
		if err != nil || free {
			return unlock, err
		}
		if first {
			waiting()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for %s: %w", path, ctx.Err())
		}
	}
}
