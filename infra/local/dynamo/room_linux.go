package dynamo

import "syscall"

// room is how many bytes a folder has left, 0 if it is not there.
func room(dir string) uint64 {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return 0
	}
	return s.Bavail * uint64(s.Bsize) //nolint:gosec // a block has a size
}
