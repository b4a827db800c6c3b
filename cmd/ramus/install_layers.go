package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/docker"
	"github.com/ramus-dev/ramus/containers/kubernetes"
	"github.com/ramus-dev/ramus/containers/layer"
)

// workTree is the way in which containers get their work trees, and the reasons against better ways.
type workTree struct {
	keeper layer.Keeper // nil if git clones inside
	moby   *docker.Engine
	lower  []error // why each better way is not used
}

// newWorkTree chooses the way of the configuration, or the best that works. root is the absolute path of an existing
// folder, and has the folders of work trees. owner identifies a started helper.
func newWorkTree(ctx context.Context, want, image, root string, engine containers.Engine, owner string) (*workTree, error) {
	w := &workTree{}
	forced := func(err error) error {
		return errors.Join(fmt.Errorf("cannot give containers their work trees in the way of work_tree (%s): %w", want,
			err), w.close())
	}
	if _, ok := engine.(*kubernetes.Engine); ok {
		if want == "root" || want == "helper" {
			return nil, forced(errors.New("containers of Kubernetes are on other machines"))
		}
		return w, nil
	}
	if want == "portable" {
		return w, nil
	}
	if want != "helper" {
		err := seesProcesses(ctx, engine)
		if err == nil {
			local := layer.NewLocal(root)
			if err = local.Check(ctx); err == nil {
				w.keeper = local
				return w, nil
			}
		}
		if want == "root" {
			return nil, forced(err)
		}
		w.lower = append(w.lower, fmt.Errorf("not as root: %w", err))
	}
	moby, ok := engine.(*docker.Engine)
	if !ok && want == "helper" {
		moby = &docker.Engine{Image: image}
		w.moby = moby
	}
	if moby == nil {
		w.lower = append(w.lower, errors.New("not by a helper: only Docker starts one"))
		return w, nil
	}
	socket, _, err := moby.Near(ctx)
	if err == nil && !socket {
		err = errors.New("the Docker engine is not on this machine")
	}
	if err == nil || want == "helper" && errors.Is(err, containers.ErrUnavailable) {
		helper := layer.NewHelper(root, docker.Lift{Engine: moby, Owner: owner})
		w.keeper = helper
		if want == "helper" {
			// Otherwise the helper is started and checked when it is first needed. The check does not wait for an
			// engine that does not answer yet, and neither does any other part of the start.
			checking, cancel := context.WithTimeoutCause(ctx, helperWithin, containers.ErrUnavailable)
			if err = helper.Check(checking); errors.Is(err, containers.ErrUnavailable) ||
				context.Cause(checking) == containers.ErrUnavailable {
				err = nil
			}
			cancel()
		}
	}
	switch {
	case err != nil && want == "helper":
		return nil, forced(err)
	case err != nil:
		w.lower = append(w.lower, fmt.Errorf("not by a helper: %w", err))
	}
	return w, nil
}

// helperWithin bounds the wait for a helper at the start.
const helperWithin = 10 * time.Second

// seesProcesses returns an error if an engine numbers processes that this process cannot see.
func seesProcesses(ctx context.Context, engine containers.Engine) error {
	moby, ok := engine.(*docker.Engine)
	if !ok {
		return nil
	}
	_, processes, err := moby.Near(ctx)
	if err == nil && !processes {
		err = errors.New("this process cannot see the Docker engine's processes")
	}
	return err
}

func (w *workTree) close() error {
	if w == nil {
		return nil
	}
	var errs []error
	if w.keeper != nil {
		// An engine that does not answer keeps its helper, which the next start ends.
		if err := w.keeper.Close(); !errors.Is(err, containers.ErrUnavailable) {
			errs = append(errs, err)
		}
	}
	if w.moby != nil {
		errs = append(errs, w.moby.Close())
	}
	return errors.Join(errs...)
}

// name returns the name of the way, for people.
func (w *workTree) name() string {
	if w.keeper == nil {
		return "portable"
	}
	return w.keeper.Name()
}

// openWorkTree chooses the way of an installation.
func openWorkTree(ctx context.Context, c Config, engine containers.Engine) (*workTree, error) {
	root, err := filepath.Abs(c.Data)
	if err != nil {
		return nil, err
	}
	owner, err := containers.OwnerOf(filepath.Join(root, "hosts"))
	if err != nil {
		return nil, err
	}
	return newWorkTree(ctx, c.WorkTree, c.Image, root, engine, owner)
}

// diagnoseWorkTree tries the way that an installation would choose, in a folder of its own, because the installation
// may be in use. sees reports whether the way can read the files of containers in all their storage.
func diagnoseWorkTree(ctx context.Context, c Config, engine containers.Engine) (says string, sees bool, err error) {
	above, err := filepath.Abs(c.Data)
	if err != nil {
		return "", false, err
	}
	for above != "/" {
		if fi, err := os.Stat(above); err == nil && fi.IsDir() {
			break
		}
		above = filepath.Dir(above)
	}
	root, err := os.MkdirTemp(above, ".ramus-doctor-")
	if err != nil {
		return "", false, fmt.Errorf("cannot check how containers get their work trees: %w", err)
	}
	defer func() { err = errors.Join(err, layer.RemoveTree(root)) }()
	w, err := newWorkTree(ctx, c.WorkTree, c.Image, root, engine, filepath.Base(root))
	if err != nil {
		return "", false, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	sees = os.Geteuid() == 0 && seesProcesses(ctx, engine) == nil
	if w.keeper != nil {
		if cerr := w.keeper.Check(ctx); cerr != nil {
			w.lower = append(w.lower, fmt.Errorf("not by a %s: %w", w.keeper.Name(), cerr))
			return "", sees, fmt.Errorf("portable: git clones in each container; %w", listed(w.lower))
		}
	}
	switch w.name() {
	case "root":
		return "root: moved into running containers from outside", sees, nil
	case "helper":
		says = "helper: moved into running containers by a container with root's rights"
		if len(w.lower) > 0 {
			says += "; " + listed(w.lower).Error()
		}
		return says, true, nil
	}
	if _, ok := engine.(*kubernetes.Engine); ok {
		return "portable: git clones in each container, because containers of Kubernetes are on other machines",
			sees, nil
	}
	if len(w.lower) == 0 {
		return "portable: git clones in each container, as set by work_tree", sees, nil
	}
	return "", sees, fmt.Errorf("portable: git clones in each container; %w", listed(w.lower))
}

// listed joins errors on one line.
func listed(errs []error) error {
	err := errs[0]
	for _, e := range errs[1:] {
		err = fmt.Errorf("%w; %w", err, e)
	}
	return err
}
