package gitd

import (
	"bytes"
	"compress/zlib"
	"container/heap"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
)

// The limits of what is gathered in process. What is beyond them native git packs, which
// then has time to look for deltas.
const (
	twigCommits = 4000
	twigObjects = 2000
	twigBytes   = 8 << 20 // of the objects, before compression
	// twigTrees bounds the folders that are held in memory while they are compared.
	twigTrees = 32 << 20
)

// errTwigLarge says that native git is the better way.
var errTwigLarge = fmt.Errorf("too much for a small pack: %w", ErrTooLarge)

// twig is the objects that a branch has and its base has not, as they stand in a pack
// between its header and its checksum: whole and compressed.
type twig struct {
	buf   bytes.Buffer
	objs  []pack.IndexEntry // at counts from the beginning of buf
	bytes int64             // before compression
	most  int64             // bytes that may become; zero: twigBytes
}

// add appends an object.
func (t *twig) add(kind string, name pack.ObjectName, data []byte) error {
	k, err := plumbing.ParseObjectType(kind)
	if err != nil {
		return err
	}
	most := t.most
	if most == 0 {
		most = twigBytes
	}
	if t.bytes += int64(len(data)); t.bytes > most || len(t.objs) == twigObjects {
		return errTwigLarge
	}
	at := int64(t.buf.Len())
	entry := &pack.EntryWriter{Out: &t.buf}
	zip := pack.Deflaters.Get().(*zlib.Writer)
	defer pack.Deflaters.Put(zip)
	zip.Reset(entry)
	if _, err := entry.Write(pack.EntryHeader(byte(k), int64(len(data)))); err != nil {
		return err
	}
	if _, err := zip.Write(data); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	t.objs = append(t.objs, pack.IndexEntry{Name: name, CRC: entry.CRC, At: at})
	return nil
}

// pack makes a pack of the twig alone, in files below dir that have no names.
func (t *twig) pack(dir string) (_ *pack.Pack, err error) {
	head := pack.Header(uint32(len(t.objs)))
	sum := sha1.New()
	sum.Write(head)
	sum.Write(t.buf.Bytes())
	end := sum.Sum(nil)
	objs := slices.Clone(t.objs)
	for i := range objs {
		objs[i].At += pack.HeaderLength
	}
	p := &pack.Pack{Name: hex.EncodeToString(end), Objects: len(objs)}
	if p.Pack, err = nameless(dir, head, t.buf.Bytes(), end); err != nil {
		return nil, err
	}
	if p.Index, err = nameless(dir, pack.EncodeIndex(objs, end)); err != nil {
		p.Pack.Close()
		return nil, err
	}
	return p, nil
}

// nameless writes a file that is gone when it is closed, also by a crash.
func nameless(dir string, parts ...[]byte) (*os.File, error) {
	f, err := os.CreateTemp(dir, pack.TempName)
	if err != nil {
		return nil, err
	}
	err = os.Remove(f.Name())
	at := int64(0)
	for _, part := range parts {
		if err != nil {
			break
		}
		_, err = f.WriteAt(part, at)
		at += int64(len(part))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// PackOf packs the objects that the commits want reach and the commits have do not. It
// is nil when there are none. An object may be among them that a commit of have reaches
// by another path only.
func (r *Repo) PackOf(ctx context.Context, want, have []Hash) (*pack.Pack, error) {
	p, err := r.packOf(ctx, want, have)
	if err != nil {
		return nil, fmt.Errorf("cannot pack the objects of %d commits in %s: %w", len(want), r.name, fullDisk(err, r.dir))
	}
	return p, nil
}

func (r *Repo) packOf(ctx context.Context, want, have []Hash) (*pack.Pack, error) {
	for _, h := range slices.Concat(want, have) {
		if kind, err := r.objects.Kind(ctx, h); err != nil {
			return nil, err
		} else if kind != "commit" {
			return nil, fmt.Errorf("object %s is a %s, no commit: %w", h, kind, ErrInvalid)
		}
	}
	if len(want) == 0 {
		return nil, nil
	}
	if r.plain(want[0]) {
		grow := growth{repo: r, ctx: ctx}
		err := grow.history(want, have)
		switch {
		case err == nil && len(grow.twig.objs) == 0:
			return nil, nil
		case err == nil:
			return grow.twig.pack(r.dir)
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case !errors.Is(err, errTwigLarge):
			return nil, err
		}
	}
	return r.nativePack(ctx, want, have)
}

// plain says whether histories can be followed by the commits alone: nothing cuts them
// off or puts them elsewhere. h tells how objects are named.
func (r *Repo) plain(h Hash) bool {
	if len(h) != 40 {
		return false
	}
	for _, file := range []string{"shallow", "info/grafts"} {
		if _, err := os.Lstat(filepath.Join(r.dir, file)); !errors.Is(err, os.ErrNotExist) {
			return false
		}
	}
	return true
}

// nativePack is PackOf by native git.
func (r *Repo) nativePack(ctx context.Context, want, have []Hash) (_ *pack.Pack, err error) {
	var revs strings.Builder
	for _, h := range want {
		revs.WriteString(string(h) + "\n")
	}
	for _, h := range have {
		revs.WriteString("^" + string(h) + "\n")
	}
	dir, err := r.packIn(ctx, gitcmd.Command{Args: []string{"--revs"}, In: strings.NewReader(revs.String())})
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	p, err := openPack(dir)
	if err != nil || p.Objects > 0 {
		return p, err
	}
	return nil, p.Close()
}

// madePack begins the names of packs that packIn makes.
const madePack = "made-"

// packIn runs pack-objects with further arguments and an input, and returns the folder
// that it made the pack in, for the caller to remove.
func (r *Repo) packIn(ctx context.Context, c gitcmd.Command) (_ string, err error) {
	free, err := room(r.server.Root)
	if err != nil {
		return "", err
	}
	// Not in the repository: whoever looks at its objects would see some that come and go.
	nursery, err := r.server.nursery()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(nursery, "pack-")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	c.File = free
	c.Args = slices.Concat([]string{"pack-objects", "-q", "--delta-base-offset"}, c.Args,
		[]string{"--end-of-options", filepath.Join(dir, strings.TrimSuffix(madePack, "-"))})
	c.Config = []string{
		"pack.threads=1", // the cores are for the people who wait
		"pack.packSizeLimit=0", "pack.indexVersion=2", "pack.writeReverseIndex=false",
		"core.fsync=none", // it need not survive the process
	}
	if err = r.limited(ctx, c); err != nil {
		return "", err
	}
	return dir, nil
}

// limited runs a child on the repository within the limits of one that a client asked for.
func (r *Repo) limited(ctx context.Context, c gitcmd.Command) error {
	limits := r.server.limits
	ctx, stop := context.WithTimeoutCause(ctx, limits.Time, errChildTime)
	defer stop()
	c.Repo, c.CPU, c.Memory = r.dir, limits.CPU, limits.Memory
	return r.server.git.Run(ctx, c)
}

// nursery is the folder for what is made out of sight.
func (s *Server) nursery() (string, error) {
	dir := filepath.Join(s.Root, newFolder)
	return dir, os.MkdirAll(dir, 0o755)
}

// openPack opens the one pack that packIn made.
func openPack(dir string) (*pack.Pack, error) {
	names, err := filepath.Glob(filepath.Join(dir, madePack+"*.pack"))
	if err != nil || len(names) != 1 {
		return nil, fmt.Errorf("git pack-objects made %d packs: %w", len(names), errors.Join(err, ErrInvalid))
	}
	name := strings.TrimSuffix(names[0], ".pack")
	p := &pack.Pack{Name: strings.TrimPrefix(filepath.Base(name), madePack)}
	if p.Pack, err = os.Open(name + ".pack"); err != nil {
		return nil, err
	}
	if p.Index, err = os.Open(name + ".idx"); err != nil {
		p.Pack.Close()
		return nil, err
	}
	var head [pack.HeaderLength]byte
	if _, err := p.Pack.ReadAt(head[:], 0); err != nil || !bytes.HasPrefix(pack.Header(0), head[:8]) {
		p.Close()
		return nil, fmt.Errorf("git pack-objects made no pack of version 2: %w", errors.Join(err, ErrInvalid))
	}
	p.Objects = int(binary.BigEndian.Uint32(head[8:]))
	return p, nil
}

// growth gathers a twig. It reads each commit and each folder that differs once, and
// follows the rule that what stands at the same path of a parent is the parent's.
type growth struct {
	repo *Repo
	ctx  context.Context
	// base, when it is not nil, says what the other side gets anyway. It must be closed:
	// what an object in it reaches is in it, too.
	base func(pack.ObjectName) (bool, error)
	// noBlobs leaves all files out, as the filter blob:none does.
	noBlobs bool

	twig  twig
	seen  map[pack.ObjectName]bool
	trees map[pack.ObjectName][]byte
	held  int // bytes of trees
}

// history gathers what the commits want reach and the commits have do not.
func (g *growth) history(want, have []Hash) error {
	line, err := g.repo.between(g.ctx, want, have, twigCommits)
	if err != nil {
		return err
	}
	return g.commits(line)
}

// commits gathers commits, parents before children, with what is new in their trees.
//
// The order matters: an object that was seen before is left out together with all that
// it reaches, part of which may have been left to the parents of where it was seen.
func (g *growth) commits(line *lineage) error {
	for _, c := range line.order {
		var parents []pack.ObjectName
		for _, p := range c.parents {
			parents = append(parents, plumbing.NewHash(string(line.trees[p])))
		}
		if err := g.commit(c.hash, plumbing.NewHash(string(c.tree)), parents); err != nil {
			return err
		}
	}
	return nil
}

// commit gathers one commit and what its tree has that stands at the same path in none of others.
func (g *growth) commit(h Hash, tree pack.ObjectName, others []pack.ObjectName) error {
	if err := g.object(plumbing.NewHash(string(h)), "commit"); err != nil {
		return err
	}
	return g.tree(tree, others, 0)
}

// wanted says whether an object is not gathered yet and not the other side's anyway.
func (g *growth) wanted(name pack.ObjectName) (bool, error) {
	if g.seen[name] {
		return false, nil
	}
	if g.base != nil {
		if known, err := g.base(name); known || err != nil {
			return false, err
		}
	}
	if g.seen == nil {
		g.seen = map[pack.ObjectName]bool{}
	}
	g.seen[name] = true
	return true, nil
}

// object gathers a single object of a kind.
func (g *growth) object(name pack.ObjectName, kind string) error {
	if ok, err := g.wanted(name); !ok {
		return err
	}
	data, err := g.read(name, kind)
	if err != nil {
		return err
	}
	return g.twig.add(kind, name, data)
}

func (g *growth) read(name pack.ObjectName, kind string) ([]byte, error) {
	obj, _, err := g.repo.objects.Small(g.ctx, Hash(name.String()))
	if err != nil {
		if errors.Is(err, ErrTooLarge) {
			err = errTwigLarge
		}
		return nil, err
	}
	if obj.Kind != kind {
		return nil, fmt.Errorf("object %s is a %s, not a %s: %w", name, obj.Kind, kind, ErrInvalid)
	}
	return obj.Data, nil
}

// folder reads a tree that may be needed again.
func (g *growth) folder(name pack.ObjectName) ([]byte, error) {
	if data, ok := g.trees[name]; ok {
		return data, nil
	}
	data, err := g.read(name, "tree")
	if err != nil {
		return nil, err
	}
	if g.held += len(data); g.held > twigTrees {
		return nil, errTwigLarge
	}
	if g.trees == nil {
		g.trees = map[pack.ObjectName][]byte{}
	}
	g.trees[name] = data
	return data, nil
}

// tree gathers a folder and what it has that stands at the same path in none of others.
func (g *growth) tree(name pack.ObjectName, others []pack.ObjectName, depth int) error {
	if depth > 1000 {
		return errTwigLarge
	}
	if slices.Contains(others, name) {
		return nil
	}
	if ok, err := g.wanted(name); !ok {
		return err
	}
	data, err := g.folder(name)
	if err != nil {
		return err
	}
	if err := g.twig.add("tree", name, data); err != nil {
		return err
	}
	beside := make([]*treeCursor, len(others))
	for i, other := range others {
		there, err := g.folder(other)
		if err != nil {
			return err
		}
		beside[i] = &treeCursor{rest: there}
	}
	for at := (&treeCursor{rest: data}); ; {
		if ok, err := at.next(); !ok {
			return err
		}
		if at.mode == object.ModeCommit || g.noBlobs && at.mode != object.ModeFolder {
			continue
		}
		var below []pack.ObjectName
		same := false
		for _, other := range beside {
			if other.seek(at) {
				same = same || other.hash == at.hash
				if other.mode == object.ModeFolder {
					below = append(below, other.hash)
				}
			}
		}
		switch {
		case same:
		case at.mode == object.ModeFolder:
			err = g.tree(at.hash, below, depth+1)
		default:
			err = g.object(at.hash, "blob")
		}
		if err != nil {
			return err
		}
	}
}

// treeCursor reads a tree object entry by entry, without copying.
type treeCursor struct {
	rest []byte
	mode uint32
	name []byte
	hash pack.ObjectName
	held bool // the entry was read but not yet passed
	end  bool
}

// next reads an entry; it is false at the end.
func (c *treeCursor) next() (bool, error) {
	if len(c.rest) == 0 {
		c.end = true
		return false, nil
	}
	mode, rest, ok := bytes.Cut(c.rest, []byte(" "))
	name, rest, ok2 := bytes.Cut(rest, []byte{0})
	m, err := strconv.ParseUint(string(mode), 8, 32)
	if !ok || !ok2 || err != nil || len(name) == 0 || len(rest) < len(c.hash) {
		c.end = true
		return false, errors.New("damaged tree")
	}
	c.mode, c.name = uint32(m), name
	copy(c.hash[:], rest)
	c.rest = rest[len(c.hash):]
	return true, nil
}

// seek goes on to the entry that is called as to is, a folder if that is one. A
// tree that is not sorted as git sorts hides entries from it: more than needed is
// gathered then.
func (c *treeCursor) seek(to *treeCursor) bool {
	for !c.end {
		if !c.held {
			if ok, _ := c.next(); !ok {
				return false
			}
			c.held = true
		}
		switch order := compareEntries(c, to); {
		case order > 0:
			return false
		case order == 0:
			return true
		}
		c.held = false
	}
	return false
}

// compareEntries is git's order of a tree: folders stand where their name with a slash would.
func compareEntries(a, b *treeCursor) int {
	n := min(len(a.name), len(b.name))
	if order := bytes.Compare(a.name[:n], b.name[:n]); order != 0 {
		return order
	}
	return int(a.after(n)) - int(b.after(n))
}

// after is the byte at n of the name as it is sorted.
func (c *treeCursor) after(n int) byte {
	switch {
	case n < len(c.name):
		return c.name[n]
	case c.mode == object.ModeFolder:
		return '/'
	}
	return 0
}

// lineage is the commits between some and others.
type lineage struct {
	order []lineCommit  // parents before children
	trees map[Hash]Hash // of these, and of all their parents
	// reached are those of the others that the commits descend from.
	reached map[Hash]bool
}

type lineCommit struct {
	hash, tree Hash
	parents    []Hash
}

// between lists the commits that want reaches and have does not. Where the clocks of
// committers went wrong it may list some that have reaches as well; reached is exact: a
// commit that descends from one of have cannot be taken for its ancestor. Where more than
// max commits have to be read it gives up.
func (r *Repo) between(ctx context.Context, want, have []Hash, max int) (*lineage, error) {
	const wanted, known = 1, 2
	line := &lineage{trees: map[Hash]Hash{}, reached: map[Hash]bool{}}
	read := map[Hash]*markedCommit{}
	var queue commitQueue
	open := 0 // in the queue and not known
	mark := func(h Hash, flags byte) error {
		c := read[h]
		if c == nil {
			if len(read) == max {
				return errTwigLarge
			}
			raw, err := r.rawCommit(ctx, h)
			if err != nil {
				return err
			}
			c = &markedCommit{lineCommit: lineCommit{hash: h, tree: raw.tree, parents: raw.parents}, time: commitTime(raw.committer)}
			read[h], line.trees[h] = c, raw.tree
		}
		if c.flags&flags == flags {
			return nil
		}
		if c.queued && c.flags&known == 0 && flags&known != 0 {
			open--
		}
		c.flags |= flags
		if !c.queued {
			c.queued = true
			heap.Push(&queue, c)
			if c.flags&known == 0 {
				open++
			}
		}
		return nil
	}
	for _, h := range have {
		if err := mark(h, known); err != nil {
			return nil, err
		}
	}
	for _, h := range want {
		if err := mark(h, wanted); err != nil {
			return nil, err
		}
	}
	for open > 0 {
		c := heap.Pop(&queue).(*markedCommit)
		c.queued = false
		if c.flags&known == 0 {
			open--
		}
		for _, p := range c.parents {
			if err := mark(p, c.flags); err != nil {
				return nil, err
			}
		}
	}
	for _, h := range have {
		line.reached[h] = read[h].flags&wanted != 0
	}
	// Parents first, without recursion: a history may be a line of thousands.
	var todo []*markedCommit
	for _, h := range want {
		todo = append(todo, read[h])
	}
	for len(todo) > 0 {
		c := todo[len(todo)-1]
		if c.flags&known != 0 || c.listed {
			todo = todo[:len(todo)-1]
			continue
		}
		if !c.entered {
			c.entered = true
			for _, p := range c.parents {
				todo = append(todo, read[p])
			}
			continue
		}
		c.listed = true
		line.order = append(line.order, c.lineCommit)
		todo = todo[:len(todo)-1]
	}
	return line, nil
}

// markedCommit is a commit on the way through a history.
type markedCommit struct {
	lineCommit
	time   int64
	flags  byte
	queued bool // to be looked at, again perhaps
	// entered and listed are for the order: its parents were put before it; it has its place.
	entered, listed bool
}

// commitTime is the time at the end of a committer's line; 0 where there is none.
func commitTime(committer string) int64 {
	if words := strings.Fields(committer); len(words) >= 2 {
		if t, err := strconv.ParseInt(words[len(words)-2], 10, 64); err == nil {
			return t
		}
	}
	return 0
}

// commitQueue is a heap, the newest commit first.
type commitQueue []*markedCommit

func (q commitQueue) Len() int           { return len(q) }
func (q commitQueue) Less(i, j int) bool { return q[i].time > q[j].time }
func (q commitQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *commitQueue) Push(c any)        { *q = append(*q, c.(*markedCommit)) }
func (q *commitQueue) Pop() any {
	old := *q
	c := old[len(old)-1]
	*q = old[:len(old)-1]
	return c
}
