//go:build !windows

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/gofrs/flock"
)

// lockCheck is how often a lock that is waited for is tried.
const lockCheck = 50 * time.Millisecond

// tryLock takes the file at path for this process, or tells that another one has
// it. The lock ends with the process, however it ends.
func tryLock(path string) (unlock func(), free bool, err error) {
	return outcome(flock.New(path), (*flock.Flock).TryLock)
}

// shareLock takes the file at path together with others that share it. It fails
// where one process has it alone.
func shareLock(path string) (unlock func(), err error) {
	unlock, free, err := outcome(flock.New(path), (*flock.Flock).TryRLock)
	if err == nil && !free {
		err = fmt.Errorf("%s is locked by another process", path)
	}
	return unlock, err
}

// awaitLock takes the file at path, after a wait if it must, which it announces.
func awaitLock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	unlock, free, err := tryLock(path)
	if err != nil || free {
		return unlock, err
	}
	waiting()
	unlock, _, err = outcome(flock.New(path), func(lock *flock.Flock) (bool, error) { return lock.TryLockContext(ctx, lockCheck) })
	return unlock, err
}

func outcome(lock *flock.Flock, take func(*flock.Flock) (bool, error)) (unlock func(), free bool, err error) {
	if free, err = take(lock); err != nil {
		return nil, false, fmt.Errorf("locking %s: %w", lock.Path(), err)
	}
	return func() { _ = lock.Unlock() }, free, nil
}
