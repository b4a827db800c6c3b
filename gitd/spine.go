package gitd

import (
	"bufio"
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

// A clone of a branch is nearly all base: every caller clones a branch of its own, so that
// no two ask for the same, and yet they are sent the same history. The answer to such a
// clone is made of two parts behind one header: the spine, which is the pack of the base
// as it goes over the wire, kept in a file, and the twig, which is what the branch has
// beyond it. Deltas of the spine find their bases by how far they lie in front of them, so
// that it can be sent as it is; no object comes twice, which clients that check what they
// get would refuse. Only the checksum at the end has to be made anew, and of that all but
// the twig's part can be kept, too.
//
// Whoever may have a commit may have what it reaches: a spine is used only for wants one
// of which descends from its base, whatever has become of the refs since.

// spineKind is which kind of clone a spine is for.
type spineKind int

const (
	spineWhole    spineKind = iota
	spineBlobless           // --filter=blob:none
	spineShallow            // --depth=1: the base's tree, without its commit
)

const (
	// spinesMax and spinesBytes bound the spines of a server, spinesEach those of a
	// repository for one kind of clone: of the base as it stands, and as it stood when
	// branches were made that are still worked on.
	spinesMax   = 64
	spinesBytes = 8 << 30
	spinesEach  = 2
	// spineIdle is how long a spine that nobody uses keeps its room on the disk.
	spineIdle = time.Hour
	// spineAgain is when one that could not be made is tried again.
	spineAgain = 10 * time.Minute
	// spinesGrowing bounds those that are waiting to be made, one after another.
	spinesGrowing = 16
	// spineSums bounds the checksums that are kept of a spine, graftMax and graftsBytes one
	// and all of the grafts: for who clones the same branch again.
	spineSums   = 256
	graftMax    = 128 << 10
	graftsBytes = 1 << 20
	// composeWants bounds the wants of a clone that is composed. Who wants many branches
	// wants what others want, too, and is better served with one pack for all.
	composeWants = 64
	// composeBytes bounds a twig: what is larger is worth git's looking for deltas.
	composeBytes = 4 << 20
	// composeCommits bounds what is read to find out whether a spine fits: where none
	// does it was in vain.
	composeCommits = 1000
	// A spine that twigs of twigObjectsMany objects or twigBytesMany bytes grow on is one of
	// long ago. It still serves, while that of today's base is made.
	twigObjectsMany = 300
	twigBytesMany   = 1 << 20
)

// spine is the pack of what a base reaches, without header and checksum, in the packets
// of a side band. Its files have no names: they are gone when the process is.
type spine struct {
	spineKey
	objects uint32
	frames  *os.File
	size    int64 // of frames
	index   *pack.File

	// Guarded by the shelf's lock.
	users   int
	shelved bool
	idle    *time.Timer

	mu     sync.Mutex // guards the fields below
	sums   map[uint32]*spineSum
	grafts map[string]*graft // by what was asked for
	held   int64             // bytes of grafts
}

// graft is what stands before and behind a spine in an answer.
type graft struct {
	head, end []byte
	objects   int   // of the twig
	bytes     int64 // of the twig, before compression
}

func (g *graft) size() int64 { return int64(len(g.head) + len(g.end)) }

type spineKey struct {
	repo *Repo
	base Hash
	kind spineKind
}

// spineSum is SHA-1 over the header of a pack of some number of objects and the spine.
type spineSum struct {
	once  sync.Once
	state hash.Cloner
	err   error
}

// spineShelf keeps a server's spines.
type spineShelf struct {
	growing sync.Mutex // held while one is made
	// composing holds a token for each answer that is put together: a storm of clones
	// should not hold all its twigs in memory at once.
	composing chan struct{}

	mu     sync.Mutex                 // guards the fields below
	spines []*spine                   // the most recently used first
	making map[spineKey]chan struct{} // closed when it is made, or cannot be
	failed map[spineKey]time.Time
	closed bool
}

// take returns the spines of a repository, the most recently used first; each must be given back.
func (s *spineShelf) take(r *Repo, kind spineKind) []*spine {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*spine
	for _, p := range s.spines {
		if p.repo == r && p.kind == kind {
			p.users++
			found = append(found, p)
		}
	}
	return found
}

// give gives a spine back; used says that it was of use.
func (s *spineShelf) give(p *spine, used bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if used && p.shelved {
		s.spines = slices.DeleteFunc(s.spines, func(q *spine) bool { return q == p })
		s.spines = slices.Insert(s.spines, 0, p)
		p.idle.Reset(spineIdle)
	}
	p.users--
	p.release()
}

// put shelves a spine and takes others away that have no room beside it.
func (s *spineShelf) put(p *spine) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		p.release()
		return
	}
	p.shelved = true
	p.idle = time.AfterFunc(spineIdle, func() { s.remove(func(q *spine) bool { return q == p }) })
	s.spines = slices.Insert(s.spines, 0, p)
	each, bytes := 0, int64(0)
	s.drop(func(q *spine) bool {
		if bytes += q.size; q == p {
			return false
		}
		if q.spineKey == p.spineKey {
			return true
		}
		if q.repo == p.repo && q.kind == p.kind {
			each++
		}
		return each >= spinesEach && q.repo == p.repo && q.kind == p.kind || bytes > spinesBytes
	})
	if len(s.spines) > spinesMax {
		last := s.spines[len(s.spines)-1]
		s.drop(func(q *spine) bool { return q == last })
	}
}

// remove takes spines away.
func (s *spineShelf) remove(which func(*spine) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(which)
}

// drop is remove for who holds the lock; it asks about each, in order.
func (s *spineShelf) drop(which func(*spine) bool) {
	s.spines = slices.DeleteFunc(s.spines, func(p *spine) bool {
		if !which(p) {
			return false
		}
		p.shelved = false
		p.idle.Stop()
		p.release()
		return true
	})
}

// close takes all away.
func (s *spineShelf) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.drop(func(*spine) bool { return true })
}

// release closes the files when nobody needs them; the shelf's lock is held, or the spine
// never was on it.
func (p *spine) release() {
	if p.users == 0 && !p.shelved {
		p.frames.Close()
		p.index.Close()
	}
}

// begin says whether a spine should be made, and notes that it is.
func (s *spineShelf) begin(key spineKey, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.making[key] != nil || len(s.making) >= spinesGrowing {
		return false
	}
	for failed, at := range s.failed {
		if now.Sub(at) > spineAgain {
			delete(s.failed, failed)
		}
	}
	if _, ok := s.failed[key]; ok || slices.ContainsFunc(s.spines, func(p *spine) bool { return p.spineKey == key }) {
		return false
	}
	if s.making == nil {
		s.making = map[spineKey]chan struct{}{}
	}
	s.making[key] = make(chan struct{})
	return true
}

// end notes that a spine is made, or cannot be.
func (s *spineShelf) end(key spineKey, err error, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.making[key])
	delete(s.making, key)
	if err == nil || s.closed {
		return
	}
	if s.failed == nil {
		s.failed = map[spineKey]time.Time{}
	}
	s.failed[key] = now
}

// growSpine makes a spine in the background, unless it is there or being made. Close ends it.
func (r *Repo) growSpine(base Hash, kind spineKind) {
	server, key := r.server, spineKey{r, base, kind}
	if !server.spines.begin(key, server.now()) {
		return
	}
	ctx, done, err := server.git.Enter(context.Background())
	if err != nil {
		server.spines.end(key, err, server.now())
		return
	}
	go func() {
		defer done()
		err := r.makeSpine(ctx, base, kind)
		if err != nil && ctx.Err() == nil {
			server.log().Warn("cannot prepare clones", "repo", r.name, "base", base, "error", err)
		}
		server.spines.end(key, err, server.now())
	}()
}

// makeSpine makes a spine and shelves it. Spines are made one after another: they take
// the time of those who wait for something.
func (r *Repo) makeSpine(ctx context.Context, base Hash, kind spineKind) error {
	shelf := &r.server.spines
	shelf.growing.Lock()
	defer shelf.growing.Unlock()
	c := gitcmd.Command{Args: []string{"--revs"}, In: strings.NewReader(string(base) + "\n")}
	switch kind {
	case spineBlobless:
		// pack-objects itself filters only what it sends to its output.
		list, err := r.listBlobless(ctx, base)
		if err != nil {
			return err
		}
		defer list.Close()
		c = gitcmd.Command{In: struct{ io.Reader }{list}} // a pipe, so that git's limits are set before it begins
	case spineShallow:
		tree, err := r.treeOf(ctx, base)
		if err != nil {
			return err
		}
		c.In = strings.NewReader(string(tree) + "\n")
	}
	dir, err := r.packIn(ctx, c)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	whole, err := openPack(dir)
	if err != nil {
		return err
	}
	defer whole.Close()
	p := &spine{spineKey: spineKey{r, base, kind}, objects: uint32(whole.Objects)}
	if p.index, err = pack.OpenFile(dir, madePack+whole.Name); err != nil {
		return err
	}
	if err := p.frame(whole.Pack, dir); err != nil {
		p.index.Close()
		return err
	}
	shelf.put(p)
	return nil
}

// listBlobless lists the commits and folders that a base reaches, in a file without a name.
func (r *Repo) listBlobless(ctx context.Context, base Hash) (_ *os.File, err error) {
	dir, err := r.server.nursery()
	if err != nil {
		return nil, err
	}
	list, err := nameless(dir)
	if err != nil {
		return nil, err
	}
	err = r.limited(ctx, gitcmd.Command{Args: []string{"rev-list", "--objects", "--filter=blob:none", "--end-of-options", string(base)}, Out: list})
	if err == nil {
		_, err = list.Seek(0, io.SeekStart)
	}
	if err != nil {
		list.Close()
		return nil, err
	}
	return list, nil
}

const (
	// frameData is how much of a pack a packet holds, behind frameHead bytes of its own.
	frameData = protocol.MaxLine - frameHead
	frameHead = 5
)

// frame copies the objects of a pack into packets. All but the last are of full length.
func (p *spine) frame(whole *os.File, dir string) (err error) {
	info, err := whole.Stat()
	if err != nil {
		return err
	}
	if p.frames, err = nameless(dir); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			p.frames.Close()
		}
	}()
	in := io.NewSectionReader(whole, pack.HeaderLength, info.Size()-pack.HeaderLength-sha1.Size)
	out := bufio.NewWriterSize(p.frames, 1<<20)
	data := make([]byte, frameData)
	var packet []byte
	for {
		n, err := io.ReadFull(in, data)
		if err == io.EOF {
			break
		} else if err != nil && err != io.ErrUnexpectedEOF {
			return err
		}
		packet = protocol.AppendBand(packet[:0], protocol.BandData, data[:n], protocol.MaxLine)
		if _, err := out.Write(packet); err != nil {
			return err
		}
		p.size += int64(len(packet))
	}
	return out.Flush()
}

// has says whether an object is in the spine.
func (p *spine) has(name pack.ObjectName) (bool, error) {
	_, ok, err := p.index.Find(name[:])
	return ok, err
}

// sum is SHA-1 over the beginning of a pack of n objects whose first are the spine's. The
// number stands in front of everything, so that a sum is good for packs of that number
// only; branches of a base have few objects of their own, and often as many.
func (p *spine) sum(n uint32) (hash.Hash, error) {
	p.mu.Lock()
	s := p.sums[n]
	if s == nil {
		if p.sums == nil || len(p.sums) == spineSums {
			p.sums = map[uint32]*spineSum{}
		}
		s = &spineSum{}
		p.sums[n] = s
	}
	p.mu.Unlock()
	s.once.Do(func() {
		state := sha1.New()
		state.Write(pack.Header(n))
		if s.err = p.hash(state); s.err == nil {
			s.state = state.(hash.Cloner)
		}
	})
	if s.err != nil {
		return nil, s.err
	}
	return s.state.Clone()
}

// hash writes the spine without its packets to a hash.
func (p *spine) hash(to io.Writer) error {
	buf := make([]byte, 4*protocol.MaxLine)
	for at := int64(0); at < p.size; {
		n, err := p.frames.ReadAt(buf[:min(int64(len(buf)), p.size-at)], at)
		if err != nil && (err != io.EOF || n == 0) {
			return fmt.Errorf("cannot read what was prepared for clones: %w", err)
		}
		for packet := buf[:n]; len(packet) > frameHead; packet = packet[min(len(packet), protocol.MaxLine):] {
			to.Write(packet[frameHead:min(len(packet), protocol.MaxLine)])
		}
		at += int64(n)
	}
	return nil
}

// compose answers a clone-like fetch (no haves, and a want that descends from a base whose
// pack is kept) from the base's pack and a small pack of what else is wanted. nil: it cannot,
// and git answers. The wants were checked before: the client may have them.
func (r *Repo) compose(ctx context.Context, f *protocol.FetchRequest) (*reply, error) {
	kind, ok := composable(f)
	if !ok || !r.plain(f.Wants[0]) {
		return nil, nil
	}
	p, err := r.composeKind(ctx, f, kind)
	if err == nil || ctx.Err() != nil {
		return p, err
	}
	// Git will say better what is wrong with the repository, if anything is.
	if !errors.Is(err, errTwigLarge) {
		r.server.log().Warn("cannot compose the answer to a clone", "repo", r.name, "error", err)
	}
	return nil, nil
}

// composable says which kind of clone a request is, if it is one.
func composable(f *protocol.FetchRequest) (spineKind, bool) {
	switch {
	case len(f.Wants) == 0, len(f.Wants) > composeWants, len(f.Haves) > 0, len(f.Shallow) > 0,
		f.DepthRelative, f.DeepenSince != 0, len(f.DeepenNot) > 0,
		!f.OFSDelta, f.WaitForDone && !f.Done:
		return 0, false
	case f.Depth == 0 && f.Filter == "":
		return spineWhole, true
	case f.Depth == 0 && f.Filter == "blob:none":
		return spineBlobless, true
	case f.Depth == 1 && f.Filter == "":
		return spineShallow, true
	}
	return 0, false
}

func (r *Repo) composeKind(ctx context.Context, f *protocol.FetchRequest, kind spineKind) (_ *reply, err error) {
	key := string(f.Render(true))
	if f.IncludeTag {
		if err := r.view.fresh(ctx); err != nil {
			return nil, err
		}
		tags, _ := r.view.tagState(Grant{})
		key += tags
	}
	if made, err := r.grafted(key, kind); made != nil || err != nil {
		return made, err
	}
	var tips []Hash  // commits
	var notes []Hash // tags, which are objects of their own
	for _, h := range f.Wants {
		chain, tip, kind, err := r.chain(ctx, h)
		if err != nil {
			return nil, err
		}
		if kind != "commit" {
			return nil, nil
		}
		notes = append(notes, chain...)
		if !slices.Contains(tips, tip) {
			tips = append(tips, tip)
		}
	}
	done, err := turn(ctx, r.server.spines.composing)
	if err != nil {
		return nil, err
	}
	defer done()
	p, line, err := r.fittingSpine(ctx, tips, kind)
	if err != nil {
		return nil, err
	}
	if p == nil {
		return nil, r.prepare(ctx, tips, kind)
	}
	defer func() { r.server.spines.give(p, err == nil) }()
	g, err := r.graft(ctx, f, p, line, tips, notes)
	if errors.Is(err, errTwigLarge) || err == nil && (g.objects > twigObjectsMany || g.bytes > twigBytesMany) {
		if err := r.prepare(ctx, tips, kind); err != nil && !errors.Is(err, errTwigLarge) {
			r.server.log().Warn("cannot prepare clones", "repo", r.name, "error", err)
		}
	}
	if err != nil {
		return nil, err
	}
	p.keep(key, g)
	return p.answer(g)
}

// grafted answers from what was answered before; nil: it was not, or not kept.
func (r *Repo) grafted(key string, kind spineKind) (_ *reply, err error) {
	var made *reply
	for _, p := range r.server.spines.take(r, kind) {
		p.mu.Lock()
		g := p.grafts[key]
		p.mu.Unlock()
		used := g != nil && made == nil && err == nil
		if used {
			made, err = p.answer(g)
		}
		r.server.spines.give(p, used)
	}
	return made, err
}

// keep keeps a graft.
func (p *spine) keep(key string, g *graft) {
	n := g.size() + int64(len(key))
	if n > graftMax {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.grafts[key] != nil {
		return
	}
	if p.held += n; p.grafts == nil || p.held > graftsBytes {
		p.grafts, p.held = map[string]*graft{}, n
	}
	p.grafts[key] = g
}

// answer is the spine with what stands before and behind it.
func (p *spine) answer(g *graft) (*reply, error) {
	// Opened anew, for a position of its own: the name that it had is gone.
	frames, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", p.frames.Fd()))
	if err != nil {
		return nil, fmt.Errorf("cannot open what was prepared for clones: %w", err)
	}
	return &reply{
		pieces: []replyPiece{{data: g.head}, {file: frames, n: p.size}, {data: g.end}},
		close:  func() { frames.Close() },
	}, nil
}

// fittingSpine finds the spine whose base the commits descend from with the fewest
// between them; nil: there is none. It must be given back.
func (r *Repo) fittingSpine(ctx context.Context, tips []Hash, kind spineKind) (best *spine, line *lineage, err error) {
	shelf := &r.server.spines
	for _, p := range shelf.take(r, kind) {
		l, e := r.between(ctx, tips, []Hash{p.base}, composeCommits)
		switch {
		case e != nil && !errors.Is(e, errTwigLarge):
			err = e
		case e == nil && l.reached[p.base] && (best == nil || len(l.order) < len(line.order)):
			best, p, line = p, best, l
		}
		if p != nil {
			shelf.give(p, false)
		}
	}
	if err != nil && best != nil {
		shelf.give(best, false)
		best = nil
	}
	return best, line, err
}

// prepare makes a spine of the base as it is for those who come later, if one would have
// been of use.
func (r *Repo) prepare(ctx context.Context, tips []Hash, kind spineKind) error {
	base, err := r.Base(ctx)
	if err != nil {
		return nil // a repository without a base is as good as any other
	}
	tip, err := r.ref(ctx, "refs/heads/"+base)
	if errors.Is(err, ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	line, err := r.between(ctx, tips, []Hash{tip}, composeCommits)
	// Who clones the base alone asks for what everybody asks for.
	if err == nil && line.reached[tip] && len(line.order) > 0 {
		r.growSpine(tip, kind)
	}
	return err
}

// graft gathers what grows on a spine.
func (r *Repo) graft(ctx context.Context, f *protocol.FetchRequest, p *spine, line *lineage, tips, notes []Hash) (*graft, error) {
	grow := growth{repo: r, ctx: ctx, base: p.has, noBlobs: p.kind == spineBlobless}
	grow.twig.most = composeBytes
	var head []byte
	if p.kind == spineShallow {
		head = protocol.AppendLine(head, "shallow-info\n")
		tree := []pack.ObjectName{plumbing.NewHash(string(line.trees[p.base]))}
		for _, h := range tips {
			if err := grow.commit(h, plumbing.NewHash(string(line.trees[h])), tree); err != nil {
				return nil, err
			}
			head = protocol.AppendLine(head, "shallow ", string(h))
		}
		head = append(head, protocol.DelimLine...)
	} else if err := grow.commits(line); err != nil {
		return nil, err
	}
	if f.IncludeTag {
		more, err := r.tagsOf(ctx, &grow)
		if err != nil {
			return nil, err
		}
		notes = append(notes, more...)
	}
	for _, h := range notes {
		if err := grow.object(plumbing.NewHash(string(h)), "tag"); err != nil {
			return nil, err
		}
	}
	n := p.objects + uint32(len(grow.twig.objs))
	sum, err := p.sum(n)
	if err != nil {
		r.server.spines.remove(func(q *spine) bool { return q == p })
		return nil, err
	}
	own := grow.twig.buf.Bytes()
	sum.Write(own)
	head = protocol.AppendLine(head, "packfile\n")
	head = protocol.AppendBand(head, protocol.BandData, pack.Header(n), protocol.MaxLine)
	end := protocol.AppendBand(nil, protocol.BandData, own, protocol.MaxLine)
	end = protocol.AppendBand(end, protocol.BandData, sum.Sum(nil), protocol.MaxLine)
	end = append(end, protocol.FlushLine...)
	return &graft{head: head, end: end, objects: len(grow.twig.objs), bytes: grow.twig.bytes}, nil
}

// tagsOf lists the tags, and tags of tags, that stand for what is sent (include-tag): a
// client that has a commit wants to know what it is called.
func (r *Repo) tagsOf(ctx context.Context, sent *growth) ([]Hash, error) {
	var refs []shownRef
	r.view.mu.RLock()
	r.view.each(Grant{}, []string{"refs/tags/"}, func(ref *shownRef) {
		if ref.peeled != "" {
			refs = append(refs, *ref)
		}
	})
	r.view.mu.RUnlock()
	var tags []Hash
	for _, ref := range refs {
		name := plumbing.NewHash(string(ref.peeled))
		ok := sent.seen[name]
		if !ok {
			var err error
			if ok, err = sent.base(name); err != nil {
				return nil, err
			}
		}
		if !ok {
			continue
		}
		chain, _, _, err := r.chain(ctx, ref.hash)
		if err != nil {
			return nil, err
		}
		tags = append(tags, chain...)
	}
	return tags, nil
}

// chain follows tags to what is none, and tells which they were.
func (r *Repo) chain(ctx context.Context, h Hash) (chain []Hash, end Hash, kind string, err error) {
	for range 20 {
		obj, _, err := r.objects.Small(ctx, h)
		if err != nil && (obj.Kind == "" || !errors.Is(err, ErrTooLarge)) {
			return nil, "", "", err
		}
		if obj.Kind != "tag" {
			return chain, h, obj.Kind, nil
		}
		target, ok := strings.CutPrefix(pack.FirstLine(obj.Data), "object ")
		if !ok {
			return nil, "", "", fmt.Errorf("tag %s is damaged: %w", h, ErrInvalid)
		}
		chain, h = append(chain, h), Hash(target)
	}
	return nil, "", "", fmt.Errorf("too many tags of tags: %w", ErrInvalid)
}
