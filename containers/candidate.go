package containers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/ramus-dev/ramus/containers/layer"
)

// A candidate is a container that has no caller yet. It consists of a folder, a door, and, once it is built, the
// connection to its runner. One goroutine at a time owns it.
type candidate struct {
	name  string // of its folder
	door  *door
	made  Container
	host  *Host // nil until the candidate is built
	place *Place
	bound bool
	since time.Time // when the candidate entered the pool
	quota *quota
	// mounts is held from the binding of the work tree on.
	mounts mounts
}

func newCandidate() *candidate { return &candidate{name: newFolderName(), door: new(door)} }

// newQuota returns the quota of a container whose folder is being made.
func (f *Fleet) newQuota(l Limits) *quota {
	f.mu.Lock()
	defer f.mu.Unlock()
	return newQuota(l, f.spent)
}

// build starts a container, connects to it and warms it. After an error the caller discards the candidate.
func (f *Fleet) build(ctx context.Context, v *candidate, r Request) error {
	v.quota = f.newQuota(r.Limits)
	if err := os.MkdirAll(f.folder(v.name), 0o700); err != nil {
		return err
	}
	spec := Spec{
		Key: r.Key, Owner: f.owner, Image: r.Image, Dir: f.folder(v.name), ClientKey: f.clientKey,
		Env: r.Env, Limits: r.Limits, Labels: v.labels(r.Labels), Program: r.Program,
	}
	if r.Waiting != nil {
		spec.Delayed = func(why string) { r.Waiting(0, why) }
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

// labels returns the labels of a caller and the one that names the folder.
func (v *candidate) labels(callers map[string]string) map[string]string {
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

// prepare gives a candidate to a caller, together with its work tree. The work tree is bound from outside if possible.
// prepare builds a candidate that is not built. After an error the caller discards the candidate.
func (f *Fleet) prepare(ctx context.Context, v *candidate, r Request) error {
	if v.host == nil {
		if err := f.build(ctx, v, r); err != nil {
			return err
		}
	}
	v.made.Key, v.made.Labels = r.Key, v.labels(r.Labels)
	rec := record{Key: r.Key, Labels: v.made.Labels, Disk: v.quota.disk(), Output: v.quota.output}
	// From here on the container belongs to the caller, even if this process crashes.
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

// locate returns the place of a container. Returns nil without a Keeper.
func (f *Fleet) locate(ctx context.Context, c Container, name string, h *Host) (*Place, error) {
	if f.Keeper == nil {
		return nil, nil
	}
	dir, err := filepath.Abs(f.folder(name))
	if err != nil {
		return nil, err
	}
	p := &Place{Key: c.Key, Labels: c.Labels, Dir: dir, UID: f.TaskUID(), Host: h}
	_, err = bounded(f, ctx, f.startTimeout(), func(ctx context.Context) (_ struct{}, err error) {
		p.PID, p.Start, err = f.process(ctx, c.ID)
		return
	}, nil)
	if err != nil {
		return nil, err
	}
	return p, nil
}

// assign tells the engine the caller of a container of the pool, in the background. Only people who read the list of
// the engine need that label, so assign yields to callers.
func (f *Fleet) assign(v *candidate) {
	engine, ok := f.Engine.(Assigner)
	if !ok {
		return
	}
	c := v.made
	f.tasks.Go(func() {
		f.mu.Lock()
		for began := time.Now(); f.base.Err() == nil && f.yieldLocked(began); {
		}
		f.mu.Unlock()
		_, err := bounded(f, f.base, fleetRemoving, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, engine.Assign(ctx, c.ID, c.Key, c.Labels)
		}, nil)
		if err != nil && !errors.Is(err, ErrGone) && f.base.Err() == nil {
			f.log().Warn("the engine does not know whose a container is", "key", c.Key, "id", c.ID, "err", err)
		}
	})
}

// discardCandidate removes the container and the folder of a candidate.
func (f *Fleet) discardCandidate(v *candidate) error {
	if v.host != nil {
		v.host.Close()
	}
	v.mounts.release()
	return f.discard(v.made.ID, remains{folder: v.name})
}
