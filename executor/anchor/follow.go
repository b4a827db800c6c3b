package anchor

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/ramus-dev/ramus/gitd"
)

// Bounds of a follower.
const (
	maxSteps = 200    // commits in which a change is looked for
	maxKept  = 20_000 // places and changed files in memory
)

// Follower finds anchors in the commits of repositories, and keeps what it found in memory. The zero value is ready. It is safe for
// concurrent use.
type Follower struct {
	mu     sync.Mutex // guards the rest
	places map[placeKey]Place
	files  map[filesKey][]gitd.Change
	count  int // places, and changes of files
}

type (
	placeKey struct {
		repo   string
		anchor Anchor
		at     gitd.Hash
		deep   bool
	}
	filesKey struct {
		repo     string
		from, to gitd.Hash
	}
)

// Ends are the commits of a later comparison.
type Ends struct{ Base, Commit gitd.Hash }

// Find returns the place of an anchor in a later comparison. A changed anchor, or one that is gone, has the commit in which that happened,
// if it is one of the last 200 that the anchor's commit lacks. Returns an error if a commit of the anchor is not in the
// repository.
func (f *Follower) Find(ctx context.Context, r *gitd.Repo, a Anchor, to Ends) (Place, error) {
	at := to.Commit
	if a.Side == Old {
		at = to.Base
	}
	key := placeKey{r.Dir(), a, at, true}
	if p, ok := f.known(key); ok {
		return p, nil
	}
	p, err := f.find(ctx, r, a, at)
	if err == nil && !p.Fits() {
		p.In, err = f.changedIn(ctx, r, a, at)
	}
	if err != nil {
		return Place{}, err
	}
	f.keep(key, p)
	return p, nil
}

func (f *Follower) known(key placeKey) (Place, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.places[key]
	return p, ok
}

func (f *Follower) keep(key placeKey, p Place) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.makeRoom(1)
	f.places[key] = p
}

// makeRoom forgets all if there is no room for n more. mu is held.
func (f *Follower) makeRoom(n int) {
	if f.places == nil || f.count+n > maxKept {
		f.places, f.files, f.count = map[placeKey]Place{}, map[filesKey][]gitd.Change{}, 0
	}
	f.count += n
}

// find returns the place without the commit of a change.
func (f *Follower) find(ctx context.Context, r *gitd.Repo, a Anchor, at gitd.Hash) (Place, error) {
	same := Place{State: Same, Path: a.Path, From: a.From, To: a.To}
	if at == a.At() {
		return same, nil
	}
	key := placeKey{r.Dir(), a, at, false}
	if p, ok := f.known(key); ok {
		return p, nil
	}
	c, err := f.change(ctx, r, a, at)
	if err != nil {
		return Place{}, err
	}
	var p Place
	switch {
	case c == nil:
		return same, nil
	case c.Status == "D" || c.Blob == "":
		p = Place{State: Gone}
	case c.Blob == a.Blob && c.Path == a.Path:
		return same, nil
	case c.Blob == a.Blob:
		p = same
		p.State, p.Path = Moved, c.Path
	default:
		if p, err = carryBlob(ctx, r, a, c.Blob); err != nil {
			return Place{}, err
		}
		if p.State != Gone {
			p.Path = c.Path
		}
		if p.State == Same && p.Path != a.Path {
			p.State = Moved
		}
	}
	f.keep(key, p)
	return p, nil
}

// change returns the change of the file of an anchor, and nil if there is none.
func (f *Follower) change(ctx context.Context, r *gitd.Repo, a Anchor, at gitd.Hash) (*gitd.Change, error) {
	key := filesKey{r.Dir(), a.At(), at}
	f.mu.Lock()
	list, ok := f.files[key]
	f.mu.Unlock()
	if !ok {
		var err error
		if list, err = r.Changed(ctx, string(a.At()), string(at), false); err != nil {
			return nil, err
		}
		f.mu.Lock()
		f.makeRoom(len(list) + 1)
		f.files[key] = list
		f.mu.Unlock()
	}
	// A file of the same path comes before another one that was made of it.
	i := slices.IndexFunc(list, func(c gitd.Change) bool { return c.Path == a.Path && c.OldBlob == a.Blob })
	if i < 0 {
		i = slices.IndexFunc(list, func(c gitd.Change) bool { return c.OldPath == a.Path && c.Status == "R" })
	}
	if i < 0 {
		return nil, nil
	}
	return &list[i], nil
}

// carryBlob finds the lines of an anchor in another blob. They are gone if one of the files is too large to be compared.
func carryBlob(ctx context.Context, r *gitd.Repo, a Anchor, to gitd.Hash) (Place, error) {
	var lines [2][]string
	for i, blob := range []gitd.Hash{a.Blob, to} {
		content, err := r.Blob(ctx, blob, MaxFile)
		if errors.Is(err, gitd.ErrTooLarge) {
			return Place{State: Gone}, nil
		}
		if err != nil {
			return Place{}, err
		}
		lines[i] = SplitLines(string(content))
	}
	if sum, err := Sum(lines[0], a.From, a.To); err != nil || sum != a.Sum {
		return Place{State: Gone}, nil // it was never an anchor of this blob
	}
	return Carry(lines[0], lines[1], a.From, a.To), nil
}

// changedIn returns the first commit on the way to another one in which the anchor does not fit, and "" if it is not one of the last ones.
// It looks at commits that do not name the path, too, because the file may have had several names.
func (f *Follower) changedIn(ctx context.Context, r *gitd.Repo, a Anchor, at gitd.Hash) (string, error) {
	list, err := r.Log(ctx, string(at), gitd.LogOptions{Not: string(a.At()), Max: maxSteps, Topo: true})
	if err != nil {
		return "", err
	}
	if len(list) == maxSteps {
		return "", nil // an earlier one may have done it
	}
	for _, c := range slices.Backward(list) {
		p, err := f.find(ctx, r, a, c.Hash)
		if err != nil {
			return "", err
		}
		if !p.Fits() {
			return string(c.Hash), nil
		}
	}
	return "", nil
}

// Make returns the anchor of lines of a file, which must be text. side is [New] or [Old].
func Make(ctx context.Context, r *gitd.Repo, at Ends, side, path string, from, to int) (a Anchor, lines []string, err error) {
	a = Anchor{Commit: at.Commit, Base: at.Base, Side: cmp.Or(side, New), Path: path, From: from, To: cmp.Or(to, from)}
	entry, err := r.Entry(ctx, string(a.At()), path)
	if err != nil {
		return a, nil, err
	}
	a.Blob = entry.Hash
	content, err := r.Blob(ctx, a.Blob, MaxFile)
	if err != nil {
		return a, nil, err
	}
	lines = SplitLines(string(content))
	a.Sum, err = Sum(lines, a.From, a.To)
	return a, lines, err
}
