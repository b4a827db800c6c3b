package containers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/internal/durable"
)

// A vessel is a container on its way to a caller: its folder, its door, and, once it is
// built, the connection to its runner. One goroutine has it at a time.
type vessel struct {
	name  string // of its folder
	door  *door
	made  Container
	host  *Host // nil until it is built
	place *Place
	bound bool
	since time.Time // in the pool
	quota *quota
	// mounts are held from when its work tree is bound.
	mounts mounts
}

func newVessel() *vessel { return &vessel{name: newFolderName(), door: new(door)} }

// newQuota is the bound of a container whose folder is being made.
func (f *Fleet) newQuota(l Limits) *quota {
	f.mu.Lock()
	defer f.mu.Unlock()
	return newQuota(l, f.spent)
}

// build starts a container, connects to it and warms it. On error what there is of it
// is left to scrap.
func (f *Fleet) build(ctx context.Context, v *vessel, r Request) error {
	v.quota = f.newQuota(r.Limits)
	if err := os.MkdirAll(f.folder(v.name), 0o700); err != nil {
		return err
	}
	spec := Spec{
		Key: r.Key, Owner: f.owner, Image: r.Image, Dir: f.folder(v.name), ClientKey: f.clientKey,
		Env: r.Env, Limits: r.Limits, Labels: v.labels(r.Labels),
	}
	if spec.Key == "" {
		spec.Key = "pool:" + v.name
		spec.Labels[labelPool] = v.name
	}
	c, err := bounded(f, ctx, f.startTimeout(), func(ctx context.Context) (Container, error) {
		return f.Engine.Start(ctx, spec)
	}, func(c Container) { f.discard(c.ID, remains{folder: v.name}) })
	if err != nil {
		return err
	}
	v.made = c
	if v.host, err = f.dial(ctx, f.startTimeout(), v.door, v.name, c.ID); err != nil {
		return err
	}
	if v.place, err = f.locate(ctx, v.made, v.name, v.host); err != nil || r.Warm == nil {
		return err
	}
	p := Place{Host: v.host}
	if v.place != nil {
		p = *v.place
		p.Key, p.Labels = "", nil
	}
	return f.provision(ctx, func(ctx context.Context) error { return r.Warm(ctx, p) })
}

// labels are a caller's with the one that leads to the folder.
func (v *vessel) labels(callers map[string]string) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, callers)
	labels[labelFolder] = v.name
	delete(labels, labelPool)
	return labels
}

func (f *Fleet) provision(ctx context.Context, do func(context.Context) error) error {
	limit := cmp.Or(f.ProvisionTimeout, 10*time.Minute)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("provisioning takes longer than %v", limit))
	defer cancel()
	return do(ctx)
}

// equip makes a vessel a caller's: built where it is not yet, with its work tree, from
// outside if that can be. On error what there is of it is left to scrap.
func (f *Fleet) equip(ctx context.Context, v *vessel, r Request) error {
	if v.host == nil {
		if err := f.build(ctx, v, r); err != nil {
			return err
		}
	}
	v.made.Key, v.made.Labels = r.Key, v.labels(r.Labels)
	rec := record{Key: r.Key, Labels: v.made.Labels, Disk: v.quota.disk(), Output: v.quota.output}
	// From here on the container is this caller's, whatever happens to this process.
	if err := f.keepRecord(v.name, rec); err != nil {
		return err
	}
	if v.place != nil {
		v.place.Key, v.place.Labels = v.made.Key, v.made.Labels
	}
	if v.place != nil && r.Bind != nil {
		err := f.provision(ctx, func(ctx context.Context) error { return r.Bind(ctx, *v.place) })
		if err == nil {
			v.bound, rec.Bound = true, true
			v.mounts = holdMounts(v.place)
			return f.keepRecord(v.name, rec)
		}
		if !errors.Is(err, layer.ErrUnable) {
			return err
		}
	}
	if r.Provision == nil {
		return nil
	}
	return f.provision(ctx, func(ctx context.Context) error { return r.Provision(ctx, v.host) })
}

// locate tells where a container can be reached from outside; nil without a Keeper.
func (f *Fleet) locate(ctx context.Context, c Container, name string, h *Host) (*Place, error) {
	if f.Keeper == nil {
		return nil, nil
	}
	dir, err := filepath.Abs(f.folder(name))
	if err != nil {
		return nil, err
	}
	p := &Place{Key: c.Key, Labels: c.Labels, Dir: dir, UID: f.Engine.TaskUID(), Host: h}
	_, err = bounded(f, ctx, f.startTimeout(), func(ctx context.Context) (_ struct{}, err error) {
		p.PID, p.Start, err = f.Engine.Process(ctx, c.ID)
		return
	}, nil)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// assign tells the engine whose a container of the pool has become, in the background:
// it is for who looks at the engine's own list, and for nothing here, so callers come first.
func (f *Fleet) assign(v *vessel) {
	c := v.made
	f.tasks.Go(func() {
		f.mu.Lock()
		for began := time.Now(); f.base.Err() == nil && f.yieldLocked(began); {
		}
		f.mu.Unlock()
		_, err := bounded(f, f.base, fleetRemoving, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, f.Engine.Assign(ctx, c.ID, c.Key, c.Labels)
		}, nil)
		if err != nil && !errors.Is(err, ErrGone) && f.base.Err() == nil {
			f.log().Warn("the engine does not know whose a container is", "key", c.Key, "id", c.ID, "err", err)
		}
	})
}

// scrap removes all there is of a vessel.
func (f *Fleet) scrap(v *vessel) error {
	if v.host != nil {
		v.host.Close()
	}
	v.mounts.release()
	return f.discard(v.made.ID, remains{folder: v.name})
}

// ended tells whether a container's last process is known to be gone. With process 1
// the kernel ends every other of its namespace, and lets it go after them.
func (f *Fleet) ended(id string) bool {
	_, err := bounded(f, context.WithoutCancel(f.base), askTimeout, func(ctx context.Context) (struct{}, error) {
		_, _, err := f.Engine.Process(ctx, id)
		return struct{}{}, err
	}, nil)
	return errors.Is(err, ErrGone)
}

// record is whose a container is, in its folder: engines' labels tell whose it was when
// it was made, which for one of the pool is nobody's.
type record struct {
	Key    string            `json:"key"`
	Labels map[string]string `json:"labels,omitempty"`
	// Bound: its work tree lies in the folder too, and may hold what nobody else has.
	Bound bool `json:"bound,omitempty"`
	// Of its Limits.
	Disk   int64 `json:"disk,omitempty"`
	Output int64 `json:"output,omitempty"`
}

const (
	recordName = "bound.json"
	maxRecord  = 1 << 20 // bytes; labels are the only part that grows
)

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

// record reads whose a container is; false when nobody's, or made before there were records.
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

// salvage hands over what was bound to a container that was lost, once.
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
	f.Salvage(ctx, Place{Key: r.Key, Labels: r.Labels, Dir: dir, UID: f.Engine.TaskUID()})
	r.Bound = false
	if err := f.keepRecord(name, r); err != nil {
		f.log().Warn("what was salvaged may be salvaged again", "key", r.Key, "folder", name, "err", err)
	}
}
