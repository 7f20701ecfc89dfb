package stream

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// position is how far a shard has been worked off.
type position struct {
	Sequence string `json:"sequence,omitempty"` // of the last record that is done
	Ended    bool   `json:"ended,omitempty"`    // the shard is closed and done
}

// checkpoint is a mapping's positions, in memory and in a file.
type checkpoint struct {
	file  string // "" for none
	fresh bool   // there was none before

	mu sync.Mutex
	// StreamARN has the time of the stream's creation in it, so it tells a new
	// table from an old one of the same name.
	StreamARN string `json:"streamArn"`
	// Since is a little before the start of a mapping that started at LATEST.
	// Older records are passed over in a shard without a position.
	Since  time.Time           `json:"since,omitzero"`
	Shards map[string]position `json:"shards"`
}

// loadCheckpoint reads the file of a mapping. A file that cannot be understood,
// which can happen when the machine lost power, or that is of another stream is
// replaced; note tells what that means.
func loadCheckpoint(dir, name, streamARN string) (c *checkpoint, note string, err error) {
	c = &checkpoint{StreamARN: streamARN, Shards: make(map[string]position), fresh: true}
	if dir == "" {
		return c, "", nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, "", fmt.Errorf("making the folder of stream positions: %w", err)
	}
	c.file = filepath.Join(dir, url.PathEscape(name)+".json")
	data, err := os.ReadFile(c.file)
	if errors.Is(err, fs.ErrNotExist) {
		return c, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading the stream positions: %w", err)
	}
	stored := &checkpoint{file: c.file}
	damaged := json.Unmarshal(data, stored) != nil || stored.StreamARN == ""
	if damaged {
		c.fresh = false // start at the oldest record: rather twice than never
		return c, "the stored stream positions in " + c.file + " are damaged: starting with the oldest record", nil
	}
	if table(stored.StreamARN) != table(streamARN) {
		return c, "the table has a new stream: starting anew there", nil
	}
	if stored.Shards == nil {
		stored.Shards = make(map[string]position)
	}
	return stored, "", nil
}

// table is the part of a stream's ARN that tells it from others here: region and
// account may be others at the next start.
func table(streamARN string) string {
	_, after, found := strings.Cut(streamARN, ":table/")
	if !found {
		return streamARN
	}
	return after
}

func (c *checkpoint) get(shard string) position {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Shards[shard]
}

func (c *checkpoint) set(shard string, p position) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Shards[shard] = p
	return c.write()
}

// forget drops the positions of shards that the stream no longer has.
func (c *checkpoint) forget(present map[string]bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := len(c.Shards)
	for id := range c.Shards {
		if !present[id] {
			delete(c.Shards, id)
		}
	}
	if len(c.Shards) == before {
		return nil
	}
	return c.write()
}

func (c *checkpoint) save() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.write()
}

// write replaces the file in one step. It is not synced to disk: a position that
// is lost with the power only means that records come twice.
func (c *checkpoint) write() error {
	if c.file == "" {
		return nil
	}
	data, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encoding the stream positions: %w", err)
	}
	tmp := c.file + ".tmp"
	if err := os.WriteFile(tmp, data, 0o644); err != nil {
		return fmt.Errorf("writing the stream positions: %w", err)
	}
	if err := os.Rename(tmp, c.file); err != nil {
		return fmt.Errorf("writing the stream positions: %w", err)
	}
	return nil
}
