package ownership

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// The lease of a replica names the repositories that it changed last, and when. So the next process knows the losses if it finds
// the data folder empty and takes it from a backup. The lease has the changes until its last renewal.

// noteChanged is the annotation with the times of changes, a JSON object.
const noteChanged = "ramus.dev/changed"

// changedMax bounds the repositories in the annotation, which has 256 KiB at most. Those that changed last are named.
const changedMax = 500

// Before is the state of the process before this one, from the lease of a replica.
type Before struct {
	// Seen is the time of its last renewal, by its own clock. Zero means that there was none.
	Seen time.Time
	// Changed has the times of the last changes of repositories.
	Changed map[string]time.Time
}

// Before returns the known state of the process before this one. It does not change after [Cluster.Open].
func (c *Cluster) Before() Before { return c.before }

// Note notes that a repository was changed.
func (c *Cluster) Note(repo string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed[repo] = c.Now()
}

// readBefore reads the state in the lease before the lease is taken.
func (c *Cluster) readBefore(is lease) {
	c.before.Seen, _ = time.Parse(microTime, is.Spec.Renewed)
	c.before.Changed = map[string]time.Time{}
	_ = json.Unmarshal([]byte(is.Metadata.Annotations[noteChanged]), &c.before.Changed) // of a later version
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changed = map[string]time.Time{}
	for repo, at := range c.before.Changed {
		c.changed[repo] = at
	}
}

// changes returns the value of the annotation.
func (c *Cluster) changes() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.changed) > changedMax {
		names := make([]string, 0, len(c.changed))
		for repo := range c.changed {
			names = append(names, repo)
		}
		slices.SortFunc(names, func(a, b string) int {
			if d := c.changed[b].Compare(c.changed[a]); d != 0 {
				return d
			}
			return strings.Compare(a, b)
		})
		for _, repo := range names[changedMax:] {
			delete(c.changed, repo)
		}
	}
	b, err := json.Marshal(c.changed)
	if err != nil {
		return ""
	}
	return string(b)
}
