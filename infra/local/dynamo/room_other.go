//go:build !linux

package dynamo

// room is 0: the folder in memory is Linux's.
func room(string) uint64 { return 0 }
