package gitd

import (
	"context"
	"errors"
	"slices"

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
)

const (
	// connectivityBytes bounds the bytes of commits and folders that are read for one push. Some
	// hundred bytes of deltas can produce any amount of them.
	connectivityBytes = 4 << 20
	// connectivityRebuilt bounds the work of reading them, see [pack.Files.Rebuilt]. A small object may be the end of a
	// long chain of large deltas.
	connectivityRebuilt = 256 << 20
	// connectivityDepth bounds the nesting of folders.
	connectivityDepth = 1000
)

// errUnknown means that an object is in the repository, and that it is not known whether all that it reaches
// is there.
var errUnknown = errors.New("the objects that an object reaches are not known")

// connectivity checks that no object is missing below a commit. A ref reaches nothing that is missing, so new commits
// are followed to those that refs are at, and new folders are compared with those that an older commit has at
// the same path. If that leads to no end, git goes through all that refs reach.
type connectivity struct {
	ctx   context.Context
	q     *quarantine
	repo  *Repo
	trees map[Hash]Hash   // of the commits that were visited
	known map[Hash]string // kinds of objects below which nothing is missing
	bytes int             // of commits and folders that were read
	until int64           // the work of the push's packs at which the check ends
}

func newConnectivity(ctx context.Context, q *quarantine) *connectivity {
	return &connectivity{ctx: ctx, q: q, repo: q.a.repo, trees: map[Hash]Hash{}, known: map[Hash]string{},
		until: q.packs.Rebuilt() + connectivityRebuilt}
}

// exceeded reports whether the check has read more than it may.
func (w *connectivity) exceeded() bool {
	return w.bytes > connectivityBytes || w.q.packs.Rebuilt() > w.until
}

// visited reports whether the walk came to a commit.
func (w *connectivity) visited(h Hash) bool {
	_, ok := w.trees[h]
	return ok
}

// readSent returns an object of the push, or false. If the object is larger than max bytes, it returns the kind only.
func (w *connectivity) readSent(h Hash, max int64) (obj object.Object, sent bool) {
	obj, _, err := w.q.packs.ReadBefore(h, w.q.sent, max)
	return obj, err == nil
}

// checkCommits checks a commit and all its ancestors that are not known.
func (w *connectivity) checkCommits(tip Hash) error {
	for stack := []Hash{tip}; len(stack) > 0; {
		if w.ctx.Err() != nil {
			return context.Cause(w.ctx)
		}
		h := stack[len(stack)-1]
		if w.visited(h) {
			stack = stack[:len(stack)-1]
			continue
		}
		obj, sent := w.readSent(h, pack.MaxInMemory)
		if !sent {
			if !w.repo.view.IsTip(h) {
				return errUnknown
			}
			c, err := w.repo.objects.ReadCommit(w.ctx, h)
			if err != nil {
				return errAskGit
			}
			w.trees[h], w.known[c.Tree] = c.Tree, "tree"
			continue
		}
		c, err := object.ParseCommit(obj.Data)
		if w.bytes += len(obj.Data); obj.Kind != "commit" || err != nil || w.exceeded() {
			return errAskGit
		}

		// The tree is checked after those of the parents, with which it is compared.
		var bases []Hash
		for _, p := range c.Parents {
			if tree, ok := w.trees[p]; ok {
				bases = append(bases, tree)
			} else {
				stack = append(stack, p)
			}
		}
		if len(bases) < len(c.Parents) {
			continue
		}
		if err := w.checkTree(c.Tree, bases, 0); err != nil {
			return err
		}
		w.trees[h] = c.Tree
	}
	return nil
}

// checkTree checks a folder. bases are the folders at the same path in the parents, below which nothing is
// missing.
func (w *connectivity) checkTree(h Hash, bases []Hash, depth int) error {
	if w.known[h] == "tree" {
		return nil
	}
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	obj, sent := w.readSent(h, pack.MaxInMemory)
	if !sent {
		return errUnknown
	}
	entries, err := w.parseTree(obj)
	if err != nil || depth > connectivityDepth {
		return errAskGit
	}
	below, err := w.addKnown(bases)
	if err != nil {
		return err
	}
	for _, e := range entries {
		switch linkedKind(e) {
		case "tree":
			err = w.checkTree(e.Hash, below[e.Name], depth+1)
		case "blob":
			err = w.checkBlob(e.Hash)
		}
		if err != nil {
			return err
		}
	}
	w.known[h] = "tree"
	return nil
}

// addKnown makes the entries of some folders known, and returns the folders among them by name.
func (w *connectivity) addKnown(folders []Hash) (map[string][]Hash, error) {
	below := map[string][]Hash{}
	slices.Sort(folders)
	for _, h := range slices.Compact(folders) { // a commit may have the same parent many times
		if w.ctx.Err() != nil {
			return nil, context.Cause(w.ctx)
		}
		obj, sent := w.readSent(h, pack.MaxInMemory)
		if !sent {
			var err error
			if obj, _, err = w.repo.objects.Small(w.ctx, h); err != nil {
				return nil, errAskGit
			}
		}
		entries, err := w.parseTree(obj)
		if err != nil {
			return nil, errAskGit
		}
		for _, e := range entries {
			kind := linkedKind(e)
			if w.known[e.Hash] = kind; kind == "tree" {
				below[e.Name] = append(below[e.Name], e.Hash)
			}
		}
	}
	return below, nil
}

// checkBlob checks that a file exists.
func (w *connectivity) checkBlob(h Hash) error {
	if w.known[h] == "blob" {
		return nil
	}
	obj, sent := w.readSent(h, 0)
	switch {
	case w.ctx.Err() != nil:
		return context.Cause(w.ctx)
	case w.exceeded():
		return errAskGit
	}
	if !sent {
		var err error
		if obj.Kind, err = w.repo.objects.Kind(w.ctx, h); err != nil {
			return errAskGit
		}
	}
	if obj.Kind != "blob" {
		return errAskGit
	}
	w.known[h] = "blob"
	return nil
}

func (w *connectivity) parseTree(obj object.Object) ([]object.Entry, error) {
	if w.bytes += len(obj.Data); obj.Kind != "tree" || obj.Data == nil || w.exceeded() {
		return nil, errAskGit
	}
	return object.ParseTree(obj.Data, len(pack.ObjectName{}))
}

// linkedKind returns the kind of object that git expects at an entry, with any permissions
// its mode has. The kind is blob, tree, or commit, which is in another repository.
func linkedKind(e object.Entry) string {
	switch e.Mode & 0o170000 {
	case object.ModeFolder:
		return "tree"
	case 0o100000, object.ModeSymlink:
		return "blob"
	}
	return "commit"
}
