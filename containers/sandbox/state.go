package sandbox

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/internal/durable"
)

// state is the record of a container. It is written before the container starts, so that a container can be found after a
// crash of ramus at any moment.
type state struct {
	ID      string            `json:"id"`
	Key     string            `json:"key"`
	Owner   string            `json:"owner"`
	Dir     string            `json:"dir,omitempty"` // Spec.Dir
	Of      string            `json:"of,omitempty"`  // the container whose network a sidecar has
	Created time.Time         `json:"created"`
	Labels  map[string]string `json:"labels,omitempty"`
	// Boot is [proc.BootID] at the start: the number of a process means nothing after a reboot.
	Boot string `json:"boot"`
	// PID is the number of process 1 on the host, and Start its start time in clock ticks since boot. Together they
	// identify a process forever.
	PID   int    `json:"pid,omitempty"`
	Start uint64 `json:"start,omitempty"`
	// Cgroups are the absolute folders of the control groups.
	Cgroups []string `json:"cgroups,omitempty"`
}

const maxState = 1 << 20 // bytes of a state file; labels are the only part that grows

// load reads the state of a container or a sidecar. Returns an error that is [containers.ErrGone] if there is none.
func (s *Engine) load(id string) (state, error) {
	var st state
	if !validContainerID(id) && !validSidecarID(id) {
		return st, fmt.Errorf("cannot read the state of container %q: %w", id, containers.ErrGone)
	}
	f, err := os.Open(filepath.Join(s.home(id), "state.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return st, fmt.Errorf("no container %s: %w", id, containers.ErrGone)
	} else if err != nil {
		return st, fmt.Errorf("cannot read the state of container %s: %w", id, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxState))
	if err == nil {
		err = json.Unmarshal(b, &st)
	}
	if err == nil && st.ID != id {
		err = fmt.Errorf("it names %q", st.ID)
	}
	if err != nil {
		return st, fmt.Errorf("cannot read the state of container %s: %w", id, err)
	}
	return st, nil
}

// save writes the state of a container or a sidecar. The write survives a loss of power.
func (s *Engine) save(st state) error {
	b, err := json.Marshal(st)
	if err == nil && len(b) > maxState {
		err = fmt.Errorf("its labels take more than %d bytes", maxState)
	}
	if err == nil {
		err = durable.Replace(filepath.Join(s.home(st.ID), "state.json"), b, true)
	}
	if err != nil {
		return fmt.Errorf("cannot keep the state of container %s: %w", st.ID, err)
	}
	return nil
}

// The ids of containers and of sidecars begin differently, so that neither is taken for the other.
const containerPrefix, sidecarPrefix = "sb", "sc"

func newContainerID() string { return newID(containerPrefix) }

func newID(prefix string) string {
	var b [8]byte
	rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])
}

func validContainerID(id string) bool { return validID(containerPrefix, id) }

func validSidecarID(id string) bool { return validID(sidecarPrefix, id) }

// validID reports whether id was made by newID. An id that was not could name a file elsewhere.
func validID(prefix, id string) bool {
	rest, ok := strings.CutPrefix(id, prefix)
	if !ok || len(rest) != 16 {
		return false
	}
	_, err := hex.DecodeString(rest)
	return err == nil
}
