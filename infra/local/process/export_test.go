package process

// ReaperPid lets tests send signals to the reaper process.
func ReaperPid(r *Reaper) int { return r.cmd.Process.Pid }

// ReaperCommand runs the reaper without a parent's care.
var ReaperCommand = reaperCommand
