package store

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// NoWindow is a window without an end. A window of 0 is never open.
const NoWindow time.Duration = -1

// Windows say how long after its sending a message can be changed by its sender: 0
// is never, NoWindow always.
type Windows struct {
	Recall, Edit time.Duration
}

// WindowsFromEnv reads RECALL_WINDOW_SECONDS and EDIT_WINDOW_SECONDS, which
// template.yaml sets. The error names the one that is wrong.
func WindowsFromEnv(getenv func(string) string) (w Windows, err error) {
	if w.Recall, err = windowFromEnv(getenv, "RECALL_WINDOW_SECONDS"); err != nil {
		return Windows{}, err
	}
	if w.Edit, err = windowFromEnv(getenv, "EDIT_WINDOW_SECONDS"); err != nil {
		return Windows{}, err
	}
	return w, nil
}

// maxWindowSeconds is the longest that a time.Duration holds, 292 years.
const maxWindowSeconds = int64(math.MaxInt64 / time.Second)

func windowFromEnv(getenv func(string) string, name string) (time.Duration, error) {
	n, err := strconv.ParseInt(getenv(name), 10, 64)
	switch {
	case err != nil || n < -1 || n > maxWindowSeconds:
		return 0, fmt.Errorf("the environment variable %s is %q; use seconds, 0 for never or -1 for always", name, getenv(name))
	case n == -1:
		return NoWindow, nil
	}
	return time.Duration(n) * time.Second, nil
}
