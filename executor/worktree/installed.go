package worktree

import (
	"context"
	"fmt"
	"strings"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/layer"
)

// A layer of installed dependencies has only folders called InstalledFolder, and is over the work tree of a base in the
// work trees of callers. Its ecosystem ends with InstalledSuffix.
const (
	InstalledFolder = "node_modules"
	InstalledSuffix = "-installed"
)

// HasInstalled reports whether a repository has a layer of installed dependencies.
func (st *Store) HasInstalled(repo string) bool {
	return st.layers != nil && st.layers.newest(func(l *Layer) bool {
		return l.Repo == repo && strings.HasSuffix(l.Ecosystem, InstalledSuffix)
	}) != nil
}

// checkInstalled returns an error if a layer of installed dependencies has a file that a work tree could hold.
func checkInstalled(changes []layer.Change) error {
	for _, c := range changes {
		inside := false
		for part := range strings.SplitSeq(c.Path, "/") {
			inside = inside || part == InstalledFolder
		}
		if !inside && (c.Kind != layer.KindFolder || c.Closed) {
			return fmt.Errorf("an installation left %.200q", c.Path)
		}
	}
	return nil
}

// withInstalled returns the folders that a work tree is over: layers of installed dependencies that fit its commit, and
// the given ones. names are the ecosystems of the former.
func (t *Tree) withInstalled(ctx context.Context, p containers.Place, s beginning, lowers []string) (_ []string, names []string) {
	if s.scratch || t.Hooks.Installed == nil {
		return lowers, nil
	}
	list, err := t.Hooks.Installed(ctx, s.at, p.UID)
	if err != nil {
		t.store.Log.Warn("installed dependencies are left out of a work tree", "caller", t.Caller, "err", err)
	}
	var over []string
	for _, l := range list {
		if t.store.layers.holdLayer(l, p.Dir) {
			over = append(over, l.tree())
			names = append(names, strings.TrimSuffix(l.Ecosystem, InstalledSuffix))
		}
	}
	return append(over, lowers...), names
}

// InstalledHere returns the ecosystems whose dependencies were installed when the work tree was bound.
func (t *Tree) InstalledHere() []string {
	if b := t.binding(); b != nil {
		return b.installed
	}
	return nil
}
