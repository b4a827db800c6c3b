package containers

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ramus-dev/ramus/internal/durable"
)

// record is the file in the folder of a container that names its caller. The labels of engines name the caller at the start, which a
// container of the pool does not have.
type record struct {
	Key    string            `json:"key"`
	Labels map[string]string `json:"labels,omitempty"`
	// Bound is true if the work tree is in the folder. It may have changes that are nowhere else.
	Bound bool `json:"bound,omitempty"`
	// Disk and Output are those of its Limits.
	Disk   int64 `json:"disk,omitempty"`
	Output int64 `json:"output,omitempty"`
}

const (
	recordName = "bound.json"
	maxRecord  = 1 << 20 // bytes; labels are the only part that grows
)

// keepRecord writes the record of a container.
func (f *Fleet) keepRecord(name string, r record) error {
	b, err := json.Marshal(r)
	if err == nil && len(b) > maxRecord {
		err = fmt.Errorf("its labels take more than %d bytes", maxRecord)
	}
	if err == nil {
		err = durable.Replace(filepath.Join(f.folder(name), recordName), b, false)
	}
	if err != nil {
		return fmt.Errorf("cannot note whose the container is: %w", err)
	}
	return nil
}

// record reads the record of a container. It returns false if there is none, as for a container that never had a caller.
func (f *Fleet) record(name string) (record, bool) {
	var r record
	file, err := os.Open(filepath.Join(f.folder(name), recordName))
	if err != nil {
		return r, false
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxRecord))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	return r, err == nil && r.Key != ""
}

// salvage calls Salvage once for a container that was lost.
func (f *Fleet) salvage(name string) {
	if f.Salvage == nil {
		return
	}
	r, ok := f.record(name)
	if !ok || !r.Bound {
		return
	}
	dir, err := filepath.Abs(f.folder(name))
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.base), fleetRemoving)
	defer cancel()
	f.Salvage(ctx, Place{Key: r.Key, Labels: r.Labels, Dir: dir, UID: f.TaskUID()})
	r.Bound = false
	if err := f.keepRecord(name, r); err != nil {
		f.log().Warn("a salvaged work tree may be salvaged again", "key", r.Key, "folder", name, "err", err)
	}
}
