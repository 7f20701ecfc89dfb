package store

import (
	"math"
	"time"

	"github.com/inorder-im/inorder/shared/env"
)

// NoWindow is a window without an end. A window of 0 is never open.
const NoWindow time.Duration = -1

// Windows say how long after its sending a message can be changed by its sender: 0
// is never, NoWindow always.
type Windows struct {
	Recall, Edit time.Duration
}

// WindowsFromEnv reads RECALL_WINDOW_SECONDS and EDIT_WINDOW_SECONDS, which
// template.yaml sets. The error names what is wrong.
func WindowsFromEnv(getenv func(string) string) (Windows, error) {
	e := env.From(getenv)
	w := Windows{
		Recall: window(e.Int("RECALL_WINDOW_SECONDS", -1, maxWindowSeconds)),
		Edit:   window(e.Int("EDIT_WINDOW_SECONDS", -1, maxWindowSeconds)),
	}
	if err := e.Err(); err != nil {
		return Windows{}, err
	}
	return w, nil
}

// maxWindowSeconds is the longest that a time.Duration holds, 292 years.
const maxWindowSeconds = math.MaxInt64 / int(time.Second)

// window is one of so many seconds, where -1 is always.
func window(seconds int) time.Duration {
	if seconds == -1 {
		return NoWindow
	}
	return time.Duration(seconds) * time.Second
}
