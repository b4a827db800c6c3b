package executor

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/text"
)

//go:embed scripts/warm.sh
var warmScript string

// Bounds of what is written when a work tree is bound: more than that is faster cloned.
const (
	bindChanges = 4000     // paths that differ from the base layer
	bindBytes   = 64 << 20 // of their contents, and of the branch's own objects
	// bindFar is from when on a newer layer is asked for.
	bindFar = 200
	// bindLayers is how many layers are compared with a branch.
	bindLayers = 4
)

// Names in the folder of a container that is bound; see [containers.Place].
const (
	treeFolder = "tree"      // the upper of the work tree
	leftFolder = "left"      // what commands leave in /artifacts
	treeRecord = "tree.json" // what the work tree lies over
)

// binding is a caller's work tree over a base layer, in one container.
type binding struct {
	layer  *baseLayer
	at     layer.Binding // without Fill
	left   string        // what lies in /artifacts
	config []byte        // .git/config as it was written
	cache  *gitd.OverlayCache

	mu     sync.Mutex // guards all below
	differ map[string]gitd.TreeChange
	// sure says that .git inside is as the host knows it as long as it has this state.
	sure  bool
	state string
	// tokens are what the work tree's index may still say of paths, by what git was told last.
	tokens map[string][]string
	order  []string // of tokens, the oldest first
}

// boundRecord is a binding for a later process.
type boundRecord struct {
	Layer gitd.Hash `json:"layer"`
	// Branch says that it is the layer of the caller's branch.
	Branch bool   `json:"branch,omitempty"`
	Config []byte `json:"config"`
	// At is the commit that it was bound at.
	At gitd.Hash `json:"at"`
}

// warmUp does what every container needs, whoever its caller will be.
func (x *Executor) warmUp(ctx context.Context, p containers.Place) error {
	if err := x.prepare(ctx, p.Host); err != nil || x.layers == nil {
		return err
	}
	err := x.bindLeft(ctx, p)
	if err == nil || errors.Is(err, layer.ErrGone) || ctx.Err() != nil {
		return err
	}
	// No reason to do without the container: who binds a work tree tries again, and goes the
	// portable way when it fails again.
	left := filepath.Join(p.Dir, leftFolder)
	x.Log.Debug("what commands leave stays in the container for now", "folder", left, "err", err)
	if err := x.layers.keeper.Remove(ctx, left); err != nil {
		x.Log.Warn("a folder that is not needed stays", "folder", left, "err", err)
	}
	return nil
}

// bindLeft gives commands a place outside of the container for what they leave in /artifacts.
func (x *Executor) bindLeft(ctx context.Context, p containers.Place) error {
	return x.layers.keeper.Bind(ctx, layer.Binding{PID: p.PID, Start: p.Start, Dir: filepath.Join(p.Dir, leftFolder),
		Target: containers.ArtifactsDir, UID: p.UID})
}

// prepare runs scripts/warm.sh.
func (x *Executor) prepare(ctx context.Context, h *containers.Host) error {
	id := scriptPrefix + record.NewToken()
	p, err := h.Start(ctx, containers.Command{ID: id, Args: []string{"sh", "-c", warmScript}, Timeout: time.Minute})
	if err != nil {
		return fmt.Errorf("cannot prepare the container: %w", err)
	}
	said := text.Tail{Limit: 1 << 10}
	exit, err := p.Output(io.Discard, &said)
	if err != nil {
		return fmt.Errorf("cannot prepare the container: %w", err)
	}
	_ = h.Forget(context.WithoutCancel(ctx), id) // only memory is lost when the runner does not hear it
	if exit.Code != 0 {
		return &scriptError{exit.Code, said.String()}
	}
	return nil
}

// bind is [containers.Request].Bind for a caller: its branch's work tree, from outside.
// Whatever keeps it from that is a reason to go the portable way.
func (t *target) bind(ctx context.Context, p containers.Place, author gitd.Person) error {
	t.setKnown("")
	t.setBinding(nil)
	b, tip, err := t.lay(ctx, p, stand{branch: t.caller.Branch(), author: author})
	if err != nil {
		return err
	}
	t.setBinding(b)
	t.setKnown(tip)
	return nil
}

// stand is what a work tree begins as.
type stand struct {
	branch string
	commit gitd.Hash // of it; "": its tip
	author gitd.Person
	// alone: its container is of no caller, and has nobody at its door who knows the work
	// tree or signs what is committed in it.
	alone bool
}

// lay binds a work tree; [layer.ErrUnable] sends its container the portable way.
func (t *target) lay(ctx context.Context, p containers.Place, s stand) (*binding, gitd.Hash, error) {
	b, tip, why, err := t.overlay(ctx, p, s)
	switch {
	case err == nil && why == "":
		t.x.fast.binds.Add(1)
		return b, tip, nil
	case ctx.Err() != nil:
		return nil, "", context.Cause(ctx)
	case errors.Is(err, layer.ErrGone):
		return nil, "", err
	case err != nil:
		why = "error"
	}
	t.x.fast.fellBack("bind: "+why, t, err)
	return nil, "", fmt.Errorf("%w: %s: %w", layer.ErrUnable, why, orNothing(err))
}

// errNothing is the error of a work tree that cannot be bound for want of something.
var errNothing = errors.New("nothing went wrong")

func orNothing(err error) error {
	if err == nil {
		return errNothing
	}
	return err
}

// overlay binds the work tree; why says what is missing for that.
func (t *target) overlay(ctx context.Context, p containers.Place, s stand) (_ *binding, tip gitd.Hash, why string, err error) {
	x := t.x
	if tip = s.commit; tip == "" {
		if tip, err = t.repo.Resolve(ctx, "refs/heads/"+s.branch); err != nil {
			return nil, "", "", err
		}
	}
	base, err := t.repo.Resolve(ctx, "refs/heads/"+t.base)
	if err != nil {
		return nil, "", "", err
	}
	var l *baseLayer
	var differ []gitd.TreeChange
	if x.layers != nil {
		layers := x.layers.of(t.repo.Name(), p.UID)
		if !s.alone {
			if own := x.layers.branch(t.repo.Name(), p.UID, t.caller.Slug()); own != nil {
				layers = append([]*baseLayer{own}, layers...)
			}
		}
		if l, differ, err = t.fit(ctx, tip, base, layers); err != nil {
			return nil, "", "", err
		}
	}
	if l == nil || len(differ) > bindFar {
		x.layerLater(t.repo.Name(), t.base, base)
	}
	if l == nil {
		return nil, "", "no layer", nil
	}
	if x.Git.Signer != nil && !s.alone && !l.Signs {
		return nil, "", "old git", nil
	}
	if !x.layers.hold(l, p.Dir) {
		return nil, "", "no layer", nil
	}
	b := &binding{layer: l, config: t.gitConfig(s), cache: new(gitd.OverlayCache), differ: make(map[string]gitd.TreeChange),
		left: filepath.Join(p.Dir, leftFolder, "upper"),
		at: layer.Binding{PID: p.PID, Start: p.Start, Lowers: l.trees(), Dir: filepath.Join(p.Dir, treeFolder),
			Target: containers.WorkDir, UID: p.UID}}
	fill, why, err := t.fill(ctx, l, s.branch, tip, base, differ, b.config)
	if err != nil || why != "" {
		return nil, "", why, err
	}
	for _, c := range differ {
		b.differ[c.Path] = c
	}
	if _, err := os.Stat(b.left); errors.Is(err, os.ErrNotExist) {
		if err := x.bindLeft(ctx, p); err != nil {
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
	if err := x.layers.keeper.Bind(ctx, filled); err != nil {
		return nil, "", "", err
	}
	// From here on there is a work tree, and what is not right about it git can mend.
	if err := t.recount(ctx, b, len(differ) > 0); err != nil {
		x.Log.Debug("the index of a bound work tree is left to git", "caller", t.caller, "err", err)
	}
	if !s.alone {
		t.branchLater(len(differ))
	}
	return b, tip, "", nil
}

// fit finds of some layers the one that differs least from a branch, and how it differs; nil when
// there is none that the caller may read, or all differ too much.
func (t *target) fit(ctx context.Context, tip, base gitd.Hash, layers []*baseLayer) (best *baseLayer, differ []gitd.TreeChange, err error) {
	rank := func(l *baseLayer) int {
		switch {
		case l.Branch != "" || l.Commit == tip:
			return 0
		case l.Commit == base:
			return 1
		}
		return 2
	}
	layers = slices.Clone(layers)
	slices.SortStableFunc(layers, func(a, b *baseLayer) int { return rank(a) - rank(b) })
	most := bindChanges
	for i, l := range layers {
		if i == bindLayers {
			break
		}
		// The layer has the histories of its branches, as far as they went then.
		if ok, err := t.mayReadAll(ctx, l.heads(), tip, base); err != nil {
			return nil, nil, err
		} else if !ok {
			continue
		}
		d, err := t.repo.Compare(ctx, l.Commit, tip, most)
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

// mayReadAll tells whether commits are all part of what the caller may read.
func (t *target) mayReadAll(ctx context.Context, commits []gitd.Hash, tip, base gitd.Hash) (bool, error) {
	for _, h := range commits {
		if ok, err := t.mayRead(ctx, h, tip, base); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// mayRead tells whether a commit is part of what the caller may read.
func (t *target) mayRead(ctx context.Context, commit, tip, base gitd.Hash) (bool, error) {
	for _, h := range []gitd.Hash{base, tip} {
		if h == commit {
			return true, nil
		}
		if ok, err := t.repo.Descends(ctx, h, commit); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// gitConfig is .git/config in the caller's work tree: what a clone through the door
// would have, and what bound work trees need.
func (t *target) gitConfig(s stand) []byte {
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
	section("core", "", "repositoryformatversion", "0", "filemode", "true", "bare", "false", "logallrefupdates", "true", "untrackedCache", "true")
	if !s.alone {
		// What changed is asked of the host, which knows it without looking at every file.
		section("core", "", "fsmonitor", containers.RunnerProgram+" fsmonitor", "fsmonitorHookVersion", "2")
	}
	// Every commit of the host's brings a pack: their number is no reason to repack it all.
	section("gc", "", "autoPackLimit", "0")
	section("remote", "origin", "url", t.remote(), "fetch", "+refs/heads/*:refs/remotes/origin/*")
	section("branch", s.branch, "remote", "origin", "merge", "refs/heads/"+s.branch)
	who := t.x.author(s.author)
	section("user", "", "name", who.Name, "email", who.Email)
	if t.x.Git.Signer != nil && !s.alone {
		section("gpg", "", "format", "ssh")
		section("gpg", "ssh", "program", containers.RunnerProgram)
		section("user", "", "signingKey", t.x.Git.Signer.PublicKey())
		section("commit", "", "gpgSign", "true")
	}
	return out.Bytes()
}

var configEscape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\t", `\t`, "\x00", "")

// converting are attributes with which a file is another one in the work tree than in git.
var converting = regexp.MustCompile(`\b(eol|crlf|ident|working-tree-encoding)\b`)

// fill is what is written to a new upper: the difference, as files and whiteouts, and .git.
func (t *target) fill(ctx context.Context, l *baseLayer, branch string, tip, base gitd.Hash, differ []gitd.TreeChange, config []byte) (_ []layer.File, why string, err error) {
	left := int64(bindBytes)
	files, why, err := t.fillTree(ctx, l, tip, differ, &left)
	if why != "" || err != nil {
		return nil, why, err
	}
	git, why, err := t.fillGit(ctx, l, branch, tip, base, config, left)
	return append(files, git...), why, err
}

// fillTree is the difference of the work tree itself; what it holds is taken from left.
func (t *target) fillTree(ctx context.Context, l *baseLayer, tip gitd.Hash, differ []gitd.TreeChange, left *int64) (files []layer.File, why string, err error) {
	if len(differ) == 0 {
		return nil, "", nil
	}
	if why, err := t.converted(ctx, l, tip, differ); why != "" || err != nil {
		return nil, why, err
	}
	made, err := t.repo.CommitTime(ctx, tip)
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
			if f.Data, err = t.repo.Blob(ctx, c.New, *left); errors.Is(err, gitd.ErrTooLarge) {
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
					_, err := t.repo.Entry(ctx, string(tip), dir)
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

// fillGit is what differs in .git: the branch, its objects, the configuration.
func (t *target) fillGit(ctx context.Context, l *baseLayer, branch string, tip, base gitd.Hash, config []byte, left int64) (_ []layer.File, why string, err error) {
	file := func(name, text string) layer.File {
		return layer.File{Path: ".git/" + name, Kind: layer.KindFile, Data: []byte(text)}
	}
	remote := map[string]gitd.Hash{"refs/remotes/origin/" + branch: tip, "refs/remotes/origin/" + t.base: base}
	refs := "# pack-refs with: peeled fully-peeled sorted \n"
	for _, name := range slices.Sorted(maps.Keys(remote)) {
		refs += string(remote[name]) + " " + name + "\n"
	}
	// As few files as can be: each takes longer than all that is in it.
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

// fillPack is the objects of the branch and of the base that the layer lacks.
func (t *target) fillPack(ctx context.Context, l *baseLayer, tip, base gitd.Hash, left int64) (_ []layer.File, why string, err error) {
	have := l.heads()
	if slices.Contains(have, tip) && slices.Contains(have, base) {
		return nil, "", nil
	}
	pack, err := t.repo.PackOf(ctx, []gitd.Hash{tip, base}, have)
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

// packFiles are a pack as files of a repository.
func packFiles(p *gitd.Pack, max int64) ([]layer.File, error) {
	var files []layer.File
	for _, f := range []struct {
		ext  string
		file *os.File
	}{{"pack", p.Pack}, {"idx", p.Index}} { // in this order: git looks for the index
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
		files = append(files, layer.File{Path: ".git/objects/pack/pack-" + p.Name + "." + f.ext, Kind: layer.KindFile, Data: text})
	}
	return files, nil
}

// reflog is a line of a branch's log.
func (t *target) reflog(from string, to gitd.Hash, what string) string {
	clean := func(s string) string {
		return strings.Map(func(r rune) rune {
			if r < ' ' || r == '<' || r == '>' || r == 0x7f {
				return -1
			}
			return r
		}, s)
	}
	return fmt.Sprintf("%s %s %s <%s> %d +0000\t%s\n", from, to, clean(t.x.Bot.Name), clean(t.x.Bot.Email), t.x.Now().Unix(), clean(what))
}

// converted says whether git would write a file that differs otherwise than it is stored.
func (t *target) converted(ctx context.Context, l *baseLayer, tip gitd.Hash, differ []gitd.TreeChange) (why string, err error) {
	var written []string
	for _, c := range differ {
		if c.NewMode == 0o100644 || c.NewMode == 0o100755 {
			written = append(written, c.Path)
		}
		if path.Base(c.Path) != ".gitattributes" {
			continue
		}
		// Files that do not differ may be written otherwise for it.
		for _, rules := range []gitd.Hash{c.Old, c.New} {
			if rules == "" {
				continue
			}
			text, err := t.repo.Blob(ctx, rules, 1<<20)
			switch {
			case errors.Is(err, gitd.ErrTooLarge), errors.Is(err, gitd.ErrInvalid), errors.Is(err, gitd.ErrNotFound), err == nil && converting.Match(text):
				return "attributes", nil
			case err != nil:
				return "", err
			}
		}
	}
	err = t.repo.Verbatim(ctx, tip, written)
	if errors.Is(err, gitd.ErrPortable) {
		return "attributes", nil
	}
	return "", err
}

// board looks at which work tree the container of a lease has.
func (t *target) board(lease *containers.Lease) {
	if !lease.Bound || lease.Place == nil || t.x.layers == nil {
		t.setBinding(nil)
		return
	}
	dir := filepath.Join(lease.Place.Dir, treeFolder)
	if b := t.binding(); b != nil && b.at.Dir == dir {
		return
	}
	b, err := t.x.readBinding(t.repo.Name(), *lease.Place)
	if err != nil {
		t.x.Log.Debug("what a work tree lies over is not known any more", "caller", t.caller, "err", err)
	}
	t.setBinding(b)
}

// readBinding finds out what an earlier process bound.
func (x *Executor) readBinding(repo string, p containers.Place) (*binding, error) {
	text, err := os.ReadFile(filepath.Join(p.Dir, treeRecord))
	if err != nil {
		return nil, err
	}
	var r boundRecord
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, err
	}
	l := x.layers.find(repo, r.Layer, p.UID)
	if r.Branch {
		l = nil
		if c, err := record.ParseCaller(p.Key); err == nil {
			l = x.layers.branchAt(repo, r.Layer, p.UID, c.Slug())
		}
	}
	if l == nil {
		return nil, fmt.Errorf("layer %s: %w", r.Layer, record.ErrNotFound)
	}
	return &binding{layer: l, config: r.Config, cache: new(gitd.OverlayCache), left: filepath.Join(p.Dir, leftFolder, "upper"),
		at: layer.Binding{PID: p.PID, Start: p.Start, Lowers: l.trees(), Dir: filepath.Join(p.Dir, treeFolder),
			Target: containers.WorkDir, UID: p.UID}}, nil
}

// binding is the work tree of the caller's container; nil when it was not bound.
func (t *target) binding() *binding {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bound
}

func (t *target) setBinding(b *binding) {
	t.mu.Lock()
	t.bound = b
	t.mu.Unlock()
}

// folders yields all folders above a path, the nearest first and the top, "", last.
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
