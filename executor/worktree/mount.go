package worktree

import (
	"context"
	"path/filepath"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/layer"
)

// depsFolder is the upper of a container's dependencies, in its folder (see [containers.Place]).
const depsFolder = "deps"

// Dependencies returns the layer of an ecosystem's dependencies with these lock files, or nil.
func (st *Store) Dependencies(repo, ecosystem, locks string, uid int) *Layer {
	if st.layers == nil {
		return nil
	}
	return st.layers.newest(func(l *Layer) bool {
		return l.Repo == repo && l.Ecosystem == ecosystem && l.Locks == locks && l.UID == uid
	})
}

// Mount mounts layers of dependencies at target in a container, all as one tree. The container's changes stay in an
// upper of its own. Mount leaves out layers that have just been removed. It returns the mounted layers, none on
// error.
func (st *Store) Mount(ctx context.Context, p containers.Place, target string, list []*Layer) (mounted []*Layer, err error) {
	var lowers []string
	for _, l := range list {
		if st.layers.holdLayer(l, p.Dir) {
			lowers = append(lowers, l.tree())
			mounted = append(mounted, l)
		}
	}
	if len(lowers) == 0 {
		return nil, nil
	}
	err = st.layers.keeper.Bind(ctx, layer.Binding{
		PID:    p.PID,
		Start:  p.Start,
		Lowers: lowers,
		Dir:    filepath.Join(p.Dir, depsFolder),
		Target: target,
		UID:    p.UID,
	})
	if err != nil {
		return nil, err
	}
	return mounted, nil
}
