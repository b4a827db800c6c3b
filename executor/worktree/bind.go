package worktree

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	gitworktree "github.com/ramus-dev/ramus/gitd/worktree"
	"github.com/ramus-dev/ramus/internal/pattern"
)

// Bounds of the files that are written when a work tree is bound. A larger work tree is cloned, which is faster.
const (
	bindChanges = 4000     // paths that differ from the base layer
	bindBytes   = 64 << 20 // of their contents, and of the branch's own objects
	// bindFar is the number of paths from which on a newer layer is asked for.
	bindFar = 200
	// bindLayers is how many layers are compared with a branch.
	bindLayers = 4
)

// Names in the folder of a container that is bound, see [containers.Place].
const (
	treeFolder = "tree"      // the upper of the work tree
	leftFolder = "left"      // the upper of /artifacts
	treeRecord = "tree.json" // the record of the layer that the work tree is over
)

// binding is a caller's work tree over a base layer, in one container.
type binding struct {
	layer  *Layer
	at     layer.Binding // without Fill
	left   string        // the folder of the files in /artifacts
	config []byte        // .git/config as it was written
	cache  *gitworktree.BlobCache
	// installed are the ecosystems whose dependencies were installed when the work tree was bound.
	installed []string

	mu     sync.Mutex // guards all below
	differ map[string]gitd.TreeChange
	// sure is set if .git inside is as the host knows it, as long as it has this state.
	sure  bool
	state string
	// tokens are the paths in which indexes of the work tree differ from the layer's, by the token of the index.
	tokens map[string][]string
	order  []string // of tokens, the oldest first
}

// boundRecord is a binding as a later process finds it.
type boundRecord struct {
	Layer gitd.Hash `json:"layer"`
	// Branch is set for the layer of the caller's branch.
	Branch bool   `json:"branch,omitempty"`
	Config []byte `json:"config"`
	// At is the commit that it was bound at.
	At gitd.Hash `json:"at"`
}

// warmLeft is bindLeft for a new container. If it fails the container is used nevertheless. bind tries again, and a
// container in which that fails, too, goes the portable way.
func (st *Store) warmLeft(ctx context.Context, p containers.Place) error {
	err := st.bindLeft(ctx, p)
	if err == nil || errors.Is(err, layer.ErrGone) || ctx.Err() != nil {
		return err
	}
	left := filepath.Join(p.Dir, leftFolder)
	st.Log.Debug("files that commands leave stay in the container for now", "folder", left, "err", err)
	if err := st.layers.keeper.Remove(ctx, left); err != nil {
		st.Log.Warn("a folder that is not needed stays", "folder", left, "err", err)
	}
	return nil
}

// bindLeft gives commands a place outside of the container for the files that they leave in /artifacts.
func (st *Store) bindLeft(ctx context.Context, p containers.Place) error {
	return st.layers.keeper.Bind(ctx, layer.Binding{PID: p.PID, Start: p.Start, Dir: filepath.Join(p.Dir, leftFolder),
		Target: containers.ArtifactsDir, UID: p.UID})
}

// bind is [containers.Request].Bind for a caller. It binds the work tree of the caller's branch from outside. If it cannot, the container
// goes the portable way.
func (t *Tree) bind(ctx context.Context, p containers.Place, author gitd.Person) error {
	t.Forget()
	t.setBinding(nil)
	b, tip, err := t.lay(ctx, p, beginning{branch: t.Caller.Branch(), author: author})
	if err != nil {
		return err
	}
	t.setBinding(b)
	t.setKnown(tip)
	return nil
}

// beginning describes the start of a work tree.
type beginning struct {
	branch string
	commit gitd.Hash // of it; "": its tip
	at     gitd.Hash // the commit that the work tree begins at, once that is known
	author gitd.Person
	// scratch is set for a container of no caller. No door to it knows the work tree, or signs commits made in it.
	scratch bool
}

// lay binds a work tree. The error is [layer.ErrUnable] if the container has to go the portable way.
func (t *Tree) lay(ctx context.Context, p containers.Place, s beginning) (*binding, gitd.Hash, error) {
	b, tip, why, err := t.overlay(ctx, p, s)
	switch {
	case err == nil && why == "":
		t.store.counts.binds.Add(1)
		return b, tip, nil
	case ctx.Err() != nil:
		return nil, "", context.Cause(ctx)
	case errors.Is(err, layer.ErrGone):
		return nil, "", err
	case err != nil:
		why = "error"
	}
	t.store.counts.fellBack("bind: "+why, t, err)
	if err == nil {
		return nil, "", fmt.Errorf("%w: %s", layer.ErrUnable, why)
	}
	return nil, "", fmt.Errorf("%w: %s: %w", layer.ErrUnable, why, err)
}

// overlay binds the work tree. If a requirement is missing, why names it.
func (t *Tree) overlay(ctx context.Context, p containers.Place, s beginning) (_ *binding, tip gitd.Hash, why string, err error) {
	st := t.store
	switch {
	case s.commit != "":
		tip = s.commit
	case s.scratch:
		tip, err = t.Repo.Resolve(ctx, "refs/heads/"+s.branch)
	default:
		tip, err = t.Tip(ctx)
	}
	if err != nil {
		return nil, "", "", err
	}
	base, err := t.Repo.Resolve(ctx, "refs/heads/"+t.Base)
	if err != nil {
		return nil, "", "", err
	}
	l, differ, err := t.chooseLayer(ctx, p.UID, s, tip, base)
	if err != nil {
		return nil, "", "", err
	}
	if l == nil || len(differ) > bindFar {
		st.MakeLater(t.Repo.Name(), t.Base, base)
	}
	switch {
	case l == nil:
		return nil, "", "no layer", nil
	case st.Identity.Key != "" && !s.scratch && !l.Signs:
		return nil, "", "old git", nil
	case !st.layers.holdLayer(l, p.Dir):
		return nil, "", "no layer", nil
	}

	b := newBinding(l, p, t.gitConfig(s, l))
	b.differ = make(map[string]gitd.TreeChange)
	fill, why, err := t.fill(ctx, l, s.branch, tip, base, differ, b.config)
	if err != nil || why != "" {
		return nil, "", why, err
	}
	for _, c := range differ {
		b.differ[c.Path] = c
	}
	if _, err := os.Stat(b.left); errors.Is(err, os.ErrNotExist) {
		if err := st.bindLeft(ctx, p); err != nil {
			return nil, "", "", err
		}
	}
	record, err := json.Marshal(boundRecord{Layer: l.Commit, Branch: l.Branch != "", Config: b.config, At: tip})
	if err == nil {
		err = os.WriteFile(filepath.Join(p.Dir, treeRecord), record, 0o600)
	}
	if err != nil {
		return nil, "", "", err
	}

	filled := b.at
	filled.Fill = fill
	s.at = tip
	filled.Lowers, b.installed = t.withInstalled(ctx, p, s, filled.Lowers)
	if err := st.layers.keeper.Bind(ctx, filled); err != nil {
		return nil, "", "", err
	}
	// From here on there is a work tree. git can repair its faults.
	if err := t.recount(ctx, b, len(differ) > 0); err != nil {
		st.Log.Debug("the index of a bound work tree is left to git", "caller", t.Caller, "err", err)
	}
	if !s.scratch {
		t.branchLater(len(differ))
	}
	return b, tip, "", nil
}

// newBinding returns the binding of a work tree over l in a container.
func newBinding(l *Layer, p containers.Place, config []byte) *binding {
	return &binding{
		layer:  l,
		config: config,
		cache:  new(gitworktree.BlobCache),
		left:   filepath.Join(p.Dir, leftFolder, "upper"),
		at: layer.Binding{
			PID:    p.PID,
			Start:  p.Start,
			Lowers: l.trees(),
			Dir:    filepath.Join(p.Dir, treeFolder),
			Target: containers.WorkDir,
			UID:    p.UID,
		},
	}
}

// chooseLayer returns the layer that a work tree is best bound over, and how the branch differs from it. The layer is nil if there is none.
func (t *Tree) chooseLayer(ctx context.Context, uid int, s beginning, tip, base gitd.Hash) (*Layer, []gitd.TreeChange, error) {
	layers := t.store.layers.of(t.Repo.Name(), uid)
	if !s.scratch {
		if own := t.store.layers.branch(t.Repo.Name(), uid, t.Caller.Slug()); own != nil {
			layers = append([]*Layer{own}, layers...)
		}
	}
	return t.fit(ctx, tip, base, layers)
}

// fit returns the layer that differs least from a branch, and how the branch differs from it. The layer is nil if the caller may read
// none, or all differ too much.
func (t *Tree) fit(ctx context.Context, tip, base gitd.Hash, layers []*Layer) (best *Layer, differ []gitd.TreeChange, err error) {
	rank := func(l *Layer) int {
		switch {
		case l.Branch != "" || l.Commit == tip:
			return 0
		case l.Commit == base:
			return 1
		}
		return 2
	}
	layers = slices.Clone(layers)
	slices.SortStableFunc(layers, func(a, b *Layer) int { return rank(a) - rank(b) })
	most := bindChanges
	for i, l := range layers {
		if i == bindLayers {
			break
		}
		// The layer has the histories of its branches, as far as they went when it was made.
		if ok, err := t.mayReadAll(ctx, l.heads(), tip, base); err != nil {
			return nil, nil, err
		} else if !ok {
			continue
		}
		d, err := t.Repo.Compare(ctx, l.Commit, tip, most)
		switch {
		case errors.Is(err, gitd.ErrTooLarge):
			continue
		case err != nil:
			return nil, nil, err
		}
		if best == nil || len(d) < len(differ) {
			best, differ = l, d
		}
		if len(d) == 0 {
			break
		}
		most = len(d)
	}
	return best, differ, nil
}

// mayReadAll reports whether the caller may read all of some commits.
func (t *Tree) mayReadAll(ctx context.Context, commits []gitd.Hash, tip, base gitd.Hash) (bool, error) {
	for _, h := range commits {
		if ok, err := t.mayRead(ctx, h, tip, base); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// mayRead reports whether the caller may read a commit. It may if the base or the caller's branch has the commit.
func (t *Tree) mayRead(ctx context.Context, commit, tip, base gitd.Hash) (bool, error) {
	for _, h := range []gitd.Hash{base, tip} {
		if h == commit {
			return true, nil
		}
		if ok, err := t.Repo.Descends(ctx, h, commit); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// gitConfig returns .git/config of the caller's work tree. It has the settings of a clone through the door, and the
// settings that a work tree over the layer l needs.
func (t *Tree) gitConfig(s beginning, l *Layer) []byte {
	var out bytes.Buffer
	section := func(name, sub string, pairs ...string) {
		out.WriteString("[" + name)
		if sub != "" {
			out.WriteString(` "` + configEscape.Replace(sub) + `"`)
		}
		out.WriteString("]\n")
		for i := 0; i < len(pairs); i += 2 {
			out.WriteString("\t" + pairs[i] + ` = "` + configEscape.Replace(pairs[i+1]) + "\"\n")
		}
	}
	section("core", "", "repositoryformatversion", "0", "filemode", "true", "bare", "false", "logallrefupdates", "true",
		"untrackedCache", "true")
	if !s.scratch && l.files() >= cmp.Or(t.store.Layers.AskFrom, fsmonitorFrom) {
		// git asks the host for changes, which knows them without looking at every file.
		section("core", "", "fsmonitor", containers.RunnerProgram+" fsmonitor", "fsmonitorHookVersion", "2")
	}
	// Every commit of the host brings a pack. The number of packs is no reason to repack everything.
	section("gc", "", "autoPackLimit", "0")
	section("remote", "origin", "url", t.remote(), "fetch", "+refs/heads/*:refs/remotes/origin/*")
	section("branch", s.branch, "remote", "origin", "merge", "refs/heads/"+s.branch)
	who := t.store.Identity.Author(s.author)
	section("user", "", "name", who.Name, "email", who.Email)
	if key := t.store.Identity.Key; key != "" && !s.scratch {
		section("gpg", "", "format", "ssh")
		section("gpg", "ssh", "program", containers.RunnerProgram)
		section("user", "", "signingKey", key)
		section("commit", "", "gpgSign", "true")
	}
	return out.Bytes()
}

var configEscape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\x00", "")

// converting matches attributes with which a file differs between the work tree and git.
var converting = pattern.New(`\b(eol|crlf|ident|working-tree-encoding)\b`)

// fill returns the files of a new upper: the difference, as files and whiteouts, and .git. If the difference cannot
// be written from outside, why is the reason.
func (t *Tree) fill(ctx context.Context, l *Layer, branch string, tip, base gitd.Hash, differ []gitd.TreeChange, config []byte) (_ []layer.File, why string, err error) {
	left := int64(bindBytes)
	files, why, err := t.fillTree(ctx, l, tip, differ, &left)
	if why != "" || err != nil {
		return nil, why, err
	}
	git, why, err := t.fillGit(ctx, l, branch, tip, base, config, left)
	return append(files, git...), why, err
}

// fillTree returns the files in which the work tree differs. It subtracts their bytes from left.
func (t *Tree) fillTree(ctx context.Context, l *Layer, tip gitd.Hash, differ []gitd.TreeChange, left *int64) (files []layer.File, why string, err error) {
	if len(differ) == 0 {
		return nil, "", nil
	}
	if why, err := t.converted(ctx, l, tip, differ); why != "" || err != nil {
		return nil, why, err
	}
	made, err := t.Repo.CommitTime(ctx, tip)
	if err != nil {
		return nil, "", err
	}
	put, dirs := make(map[string]bool), make(map[string]bool)
	for _, c := range differ {
		if c.NewMode == 0 {
			continue
		}
		put[c.Path] = true
		for dir := range folders(c.Path) {
			dirs[dir] = true
		}
		f := layer.File{Path: c.Path, Kind: layer.KindFile, Exec: c.NewMode == 0o100755, Time: made}
		switch c.NewMode {
		case 0o160000:
			f.Kind = layer.KindFolder
		case 0o120000:
			f.Kind = layer.KindLink
			fallthrough
		default:
			if f.Data, err = t.Repo.Blob(ctx, c.New, *left); errors.Is(err, gitd.ErrTooLarge) {
				return nil, "large difference", nil
			}
			if err != nil {
				return nil, "", err
			}
			*left -= int64(len(f.Data))
		}
		files = append(files, f)
	}
	gone := make(map[string]bool)
	there := make(map[string]bool) // folders of the branch's tree that were looked for
	for _, c := range differ {
		if c.NewMode != 0 || dirs[c.Path] {
			continue
		}
		at, hidden := c.Path, false
		for dir := range folders(c.Path) {
			hidden = hidden || put[dir]
		}
		if hidden {
			continue
		}
		for dir := range folders(c.Path) {
			is, looked := there[dir]
			if !looked {
				is = dir == "" || dirs[dir]
				if !is {
					_, err := t.Repo.Entry(ctx, string(tip), dir)
					if err != nil && !errors.Is(err, gitd.ErrNotFound) {
						return nil, "", err
					}
					is = err == nil
				}
				there[dir] = is
			}
			if is {
				break
			}
			at = dir
		}
		if !gone[at] {
			gone[at] = true
			files = append(files, layer.File{Path: at, Kind: layer.KindWhiteout})
		}
	}
	return files, "", nil
}

// fillGit returns the files in which .git differs: the branch, its objects, the configuration.
func (t *Tree) fillGit(ctx context.Context, l *Layer, branch string, tip, base gitd.Hash, config []byte, left int64) (_ []layer.File, why string, err error) {
	file := func(name, text string) layer.File {
		return layer.File{Path: ".git/" + name, Kind: layer.KindFile, Data: []byte(text)}
	}
	remote := map[string]gitd.Hash{"refs/remotes/origin/" + branch: tip, "refs/remotes/origin/" + t.Base: base}
	refs := "# pack-refs with: peeled fully-peeled sorted \n"
	for _, name := range slices.Sorted(maps.Keys(remote)) {
		refs += string(remote[name]) + " " + name + "\n"
	}
	// There are as few files as possible. Each takes longer than its content.
	began := t.reflog(strings.Repeat("0", 40), tip, "clone: from "+t.remote())
	files := []layer.File{
		file("HEAD", "ref: refs/heads/"+branch+"\n"),
		file("config", string(config)),
		file("packed-refs", refs),
		file("logs/HEAD", began),
		file("logs/refs/heads/"+branch, began),
		file("refs/heads/"+branch, string(tip)+"\n"),
	}
	packed, why, err := t.fillPack(ctx, l, tip, base, left)
	return append(files, packed...), why, err
}

// fillPack returns the objects of the branch and of the base that the layer lacks, as files.
func (t *Tree) fillPack(ctx context.Context, l *Layer, tip, base gitd.Hash, left int64) (_ []layer.File, why string, err error) {
	have := l.heads()
	if slices.Contains(have, tip) && slices.Contains(have, base) {
		return nil, "", nil
	}
	pack, err := t.Repo.PackOf(ctx, []gitd.Hash{tip, base}, have)
	if err != nil || pack == nil {
		return nil, "", err
	}
	defer pack.Close()
	packed, err := packFiles(pack, left)
	if errors.Is(err, gitd.ErrTooLarge) {
		return nil, "large difference", nil
	}
	return packed, "", err
}

// packFiles returns a pack as files of a repository, of at most max bytes.
func packFiles(p *gitd.Pack, max int64) ([]layer.File, error) {
	var files []layer.File
	for _, f := range []struct {
		ext  string
		file *os.File
	}{{"pack", p.Pack}, {"idx", p.Index}} { // in this order, because git looks for the index
		info, err := f.file.Stat()
		if err != nil {
			return nil, err
		}
		if max -= info.Size(); max < 0 {
			return nil, fmt.Errorf("the branch's own objects: %w", gitd.ErrTooLarge)
		}
		text := make([]byte, info.Size())
		if _, err := f.file.ReadAt(text, 0); err != nil {
			return nil, fmt.Errorf("cannot read a pack: %w", err)
		}
		files = append(files, layer.File{Path: ".git/objects/pack/pack-" + p.Name + "." + f.ext, Kind: layer.KindFile,
			Data: text})
	}
	return files, nil
}

// reflog returns a line of a branch's log.
func (t *Tree) reflog(from string, to gitd.Hash, what string) string {
	clean := func(s string) string {
		return strings.Map(func(r rune) rune {
			if r < ' ' || r == '<' || r == '>' || r == 0x7f {
				return -1
			}
			return r
		}, s)
	}
	return fmt.Sprintf("%s %s %s <%s> %d +0000\t%s\n", from, to, clean(t.store.Identity.Bot.Name),
		clean(t.store.Identity.Bot.Email), t.store.Now().Unix(), clean(what))
}

// converted returns a reason if git would write a file that differs with another content than is stored.
func (t *Tree) converted(ctx context.Context, l *Layer, tip gitd.Hash, differ []gitd.TreeChange) (why string, err error) {
	var written []string
	for _, c := range differ {
		if c.NewMode == 0o100644 || c.NewMode == 0o100755 {
			written = append(written, c.Path)
		}
		if path.Base(c.Path) != ".gitattributes" {
			continue
		}
		// For its rules, git may write files differently that do not differ.
		for _, rules := range []gitd.Hash{c.Old, c.New} {
			if rules == "" {
				continue
			}
			text, err := t.Repo.Blob(ctx, rules, 1<<20)
			switch {
			case errors.Is(err, gitd.ErrTooLarge), errors.Is(err, gitd.ErrInvalid), errors.Is(err, gitd.ErrNotFound),
				err == nil && converting.Match(text):
				return "attributes", nil
			case err != nil:
				return "", err
			}
		}
	}
	err = t.Repo.Verbatim(ctx, tip, written)
	if errors.Is(err, gitworktree.ErrNeedsGit) {
		return "attributes", nil
	}
	return "", err
}

// Board finds out which work tree the container of a lease has.
func (t *Tree) Board(lease *containers.Lease) {
	if !lease.Bound || lease.Place == nil || t.store.layers == nil {
		t.setBinding(nil)
		return
	}
	dir := filepath.Join(lease.Place.Dir, treeFolder)
	if b := t.binding(); b != nil && b.at.Dir == dir {
		return
	}
	b, err := t.store.readBinding(t.Repo.Name(), *lease.Place)
	if err != nil {
		t.store.Log.Debug("the layer of a work tree is not known any more", "caller", t.Caller, "err", err)
	}
	t.setBinding(b)
}

// readBinding returns the binding that an earlier process made.
func (st *Store) readBinding(repo string, p containers.Place) (*binding, error) {
	text, err := os.ReadFile(filepath.Join(p.Dir, treeRecord))
	if err != nil {
		return nil, err
	}
	var r boundRecord
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	l := st.layers.find(repo, r.Layer, p.UID)
	if r.Branch {
		l = nil
		if c, err := record.ParseCaller(p.Key); err == nil {
			l = st.layers.branchAt(repo, r.Layer, p.UID, c.Slug())
		}
	}
	if l == nil {
		return nil, fmt.Errorf("layer %s: %w", r.Layer, record.ErrNotFound)
	}
	return newBinding(l, p, r.Config), nil
}

// binding returns the binding of the caller's container, or nil if it was not bound.
func (t *Tree) binding() *binding {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bound
}

func (t *Tree) setBinding(b *binding) {
	t.mu.Lock()
	t.bound = b
	t.mu.Unlock()
}

// folders yields all folders above a path, the nearest first, and the top, "", last.
func folders(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for path != "" {
			path = path[:max(strings.LastIndexByte(path, '/'), 0)]
			if !yield(path) {
				return
			}
		}
	}
}
