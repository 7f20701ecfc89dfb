package child

// ReaperPid lets tests send signals to the reaper process.
func ReaperPid(r *Reaper) int { return r.cmd.Process.Pid }
