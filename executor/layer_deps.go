package executor

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/layer"
)

// depsFolder is the upper of a container's dependencies, in its folder; see [containers.Place].
const depsFolder = "deps"

// layerOf is the layer of dependencies that a container could have mounted; nil when
// there is none.
func (t *target) layerOf(s stocked, p *containers.Place) *baseLayer {
	if t.x.layers == nil || p == nil {
		return nil
	}
	return t.x.layers.dependencies(s.repo, s.name, s.locks, p.UID)
}

// mountDependencies mounts those dependencies of which there are layers, all of them as one
// tree: what the container changes in it stays in an upper of its own. On error none is.
func (t *target) mountDependencies(ctx context.Context, p *containers.Place, list []stocked) (mounted map[string]bool, err error) {
	var lowers []string
	mounted = make(map[string]bool)
	for _, s := range list {
		if l := t.layerOf(s, p); l != nil && t.x.layers.hold(l, p.Dir) {
			lowers = append(lowers, l.tree())
			mounted[s.name] = true
		}
	}
	if len(lowers) == 0 {
		return nil, nil
	}
	err = t.x.layers.keeper.Bind(ctx, layer.Binding{PID: p.PID, Start: p.Start, Lowers: lowers, Dir: filepath.Join(p.Dir, depsFolder),
		Target: depsDir, UID: p.UID})
	if err != nil {
		return nil, fmt.Errorf("dependencies are unpacked where they could be mounted: %w", err)
	}
	t.x.fast.mounted.Add(int64(len(lowers)))
	return mounted, nil
}
