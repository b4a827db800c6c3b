package gitd

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/object"
)

// Refs are read in process, from the loose files and packed-refs, and written
// as files of their own, or by native git. Reading needs no lock: git replaces both kinds of file
// by rename, and writes packed-refs before it removes a loose file, so a
// reader that looks at the loose files first misses nothing.

// Ref is a ref and what it points to.
type Ref struct {
	Name string `json:"name"`
	Hash Hash   `json:"hash"`
}

// Resolve turns a full ref name, a branch or tag name, or a (partial) object name into a
// commit. Not rev-parse syntax: text that could be read as an option or a range is [ErrInvalid].
func (r *Repo) Resolve(ctx context.Context, rev string) (Hash, error) {
	h, err := r.resolve(ctx, rev)
	if err != nil {
		return "", fmt.Errorf("cannot resolve %.200q in %s: %w", rev, r.name, err)
	}
	return h, nil
}

func (r *Repo) resolve(ctx context.Context, rev string) (Hash, error) {
	if rev == "HEAD" {
		base, err := r.Base(ctx)
		if err != nil {
			return "", err
		}
		rev = "refs/heads/" + base
	}
	names := []string{rev}
	if !strings.HasPrefix(rev, "refs/") {
		names = []string{"refs/heads/" + rev, "refs/tags/" + rev}
	}
	whole := CheckHash(Hash(rev)) == nil
	for _, name := range names {
		// A branch named like an object would hide the object.
		if whole || object.RefFault(name) != "" {
			continue
		}
		h, err := r.ref(ctx, name)
		if err == nil {
			return r.objects.Commit(ctx, h)
		} else if !errors.Is(err, ErrNotFound) {
			return "", err
		}
	}
	switch {
	case whole:
		return r.objects.Commit(ctx, Hash(rev))
	case len(rev) >= 4 && len(rev) < 64 && object.IsHex(rev):
		return r.abbreviated(ctx, rev)
	case object.RefFault(names[0]) != "":
		return "", fmt.Errorf("it %s: %w", object.RefFault(names[0]), ErrInvalid)
	case strings.HasPrefix(rev, "-"):
		return "", fmt.Errorf("it begins with '-': %w", ErrInvalid)
	}
	return "", ErrNotFound
}

// ResolveFor is [Repo.Resolve] for the bearer of a grant. A ref that the grant does not
// show, and a commit that no ref reaches which it shows, are [ErrNotFound].
func (r *Repo) ResolveFor(ctx context.Context, g Grant, rev string) (Hash, error) {
	h, err := r.resolveFor(ctx, g, rev)
	if err != nil {
		return "", fmt.Errorf("cannot resolve %.200q in %s: %w", rev, r.name, err)
	}
	return h, nil
}

func (r *Repo) resolveFor(ctx context.Context, g Grant, rev string) (Hash, error) {
	switch {
	case !g.MayRead(r.name):
		return "", ErrNotFound
	case g.ReadsAll():
		return r.resolve(ctx, rev)
	}
	if rev == "HEAD" {
		base, err := r.Base(ctx)
		if err != nil {
			return "", err
		}
		rev = "refs/heads/" + base
	}
	names := []string{rev}
	if !strings.HasPrefix(rev, "refs/") {
		names = []string{"refs/heads/" + rev, "refs/tags/" + rev}
	}
	for _, name := range names {
		if CheckHash(Hash(rev)) == nil || object.RefFault(name) != "" || !g.MayReadRef(r.name, name) {
			continue
		}
		h, err := r.ref(ctx, name)
		if err == nil {
			return r.objects.Commit(ctx, h)
		} else if !errors.Is(err, ErrNotFound) {
			return "", err
		}
	}
	if !object.IsHex(rev) {
		return "", ErrNotFound
	}
	h, err := r.resolve(ctx, rev)
	if err != nil {
		return "", err
	}
	out, err := r.output(ctx, "for-each-ref", "--contains="+string(h), "--format=%(refname)")
	if err != nil {
		return "", err
	}
	for name := range strings.Lines(string(out)) {
		if g.MayReadRef(r.name, strings.TrimSpace(name)) {
			return h, nil
		}
	}
	return "", ErrNotFound
}

// abbreviated finds the one commit whose object name begins with prefix.
func (r *Repo) abbreviated(ctx context.Context, prefix string) (Hash, error) {
	out, err := r.output(ctx, "rev-parse", "--disambiguate="+prefix)
	if err != nil {
		return "", err
	}
	var found []Hash
	for _, name := range strings.Fields(string(out)) {
		h, err := r.objects.Commit(ctx, Hash(name))
		if err == nil && !slices.Contains(found, h) {
			found = append(found, h)
		} else if err != nil && !errors.Is(err, ErrNotFound) {
			return "", err
		}
	}
	switch len(found) {
	case 0:
		return "", ErrNotFound
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("it stands for %d commits: %w", len(found), ErrInvalid)
}

// reftable says whether the repository keeps its refs in git's newer format,
// which only git reads here.
func (r *Repo) reftable() bool {
	_, err := os.Lstat(filepath.Join(r.dir, "reftable"))
	return err == nil
}

// ref reads one ref by its full name, through symbolic refs.
func (r *Repo) ref(ctx context.Context, name string) (Hash, error) {
	if r.reftable() {
		refs, err := r.nativeRefs(ctx, name)
		if err == nil && len(refs) > 0 && refs[0].Name == name {
			return refs[0].Hash, nil
		}
		return "", errors.Join(err, ErrNotFound)
	}
	for range 5 { // git follows as many symbolic refs
		if object.RefFault(name) != "" {
			return "", fmt.Errorf("ref %.200q: %w", name, ErrInvalid)
		}
		b, err := readSmall(filepath.Join(r.dir, filepath.FromSlash(name)))
		switch {
		case err == nil:
			text := strings.TrimSpace(string(b))
			if target, ok := strings.CutPrefix(text, "ref:"); ok {
				name = strings.TrimSpace(target)
				continue
			}
			if CheckHash(Hash(text)) != nil {
				return "", fmt.Errorf("ref %s is damaged: its file holds no object name", name)
			}
			return Hash(text), nil
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ENOTDIR):
		default:
			return "", err
		}
		packed, err := r.packedRefs()
		if err != nil {
			return "", err
		}
		if i, ok := slices.BinarySearchFunc(packed, name, func(p Ref, n string) int { return strings.Compare(p.Name, n) }); ok {
			return packed[i].Hash, nil
		}
		return "", ErrNotFound
	}
	return "", fmt.Errorf("ref %s: too many symbolic refs in a row: %w", name, ErrInvalid)
}

// packed is a parsed packed-refs file; it is replaced as a whole, never changed.
type packed struct {
	mu   sync.Mutex // guards all fields
	info os.FileInfo
	refs []Ref
}

// packedRefs returns the refs of the packed-refs file, sorted. The caller must not change them.
func (r *Repo) packedRefs() ([]Ref, error) {
	p := &r.refs.packed
	p.mu.Lock()
	defer p.mu.Unlock()
	f, err := os.Open(filepath.Join(r.dir, "packed-refs"))
	if errors.Is(err, fs.ErrNotExist) {
		p.info, p.refs = nil, nil
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("cannot read the packed refs: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("cannot read the packed refs: %w", err)
	}
	// Git replaces the file, it never changes one: another file or the same.
	if p.info != nil && os.SameFile(p.info, info) && p.info.ModTime().Equal(info.ModTime()) && p.info.Size() == info.Size() {
		return p.refs, nil
	}
	refs, err := parsePackedRefs(f)
	if err != nil {
		return nil, err
	}
	p.info, p.refs = info, refs
	return refs, nil
}

func parsePackedRefs(in io.Reader) ([]Ref, error) {
	var refs []Ref
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		line := lines.Text()
		if line == "" || line[0] == '#' || line[0] == '^' {
			continue
		}
		h, name, ok := strings.Cut(line, " ")
		if !ok || CheckHash(Hash(h)) != nil || name == "" {
			return nil, fmt.Errorf("the packed refs are damaged at line %.100q", line)
		}
		refs = append(refs, Ref{Name: name, Hash: Hash(h)})
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("cannot read the packed refs: %w", err)
	}
	byName := func(a, b Ref) int { return strings.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(refs, byName) {
		slices.SortFunc(refs, byName)
	}
	return refs, nil
}

// Refs lists the refs whose name is prefix or stands below it ("refs/ramus/runs"), sorted.
// An empty prefix means all.
func (r *Repo) Refs(ctx context.Context, prefix string) ([]Ref, error) {
	prefix = strings.TrimSuffix(prefix, "/")
	if prefix == "" {
		prefix = "refs"
	}
	if prefix != "refs" && (object.RefFault(prefix) != "" || !strings.HasPrefix(prefix, "refs/")) {
		return nil, fmt.Errorf("cannot list the refs below %.200q: no such place for refs: %w", prefix, ErrInvalid)
	}
	refs, err := r.listRefs(ctx, prefix)
	if err != nil {
		return nil, fmt.Errorf("cannot list the refs of %s: %w", r.name, err)
	}
	return refs, nil
}

func (r *Repo) listRefs(ctx context.Context, prefix string) ([]Ref, error) {
	if r.reftable() {
		return r.nativeRefs(ctx, prefix)
	}
	loose := map[string]Hash{}
	err := filepath.WalkDir(filepath.Join(r.dir, filepath.FromSlash(prefix)), func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
				return nil // packed or deleted meanwhile
			}
			return err
		}
		if d.IsDir() {
			return ctx.Err()
		}
		rel, err := filepath.Rel(r.dir, file)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		if object.RefFault(name) != "" {
			return nil // a lock file, or nothing of git's
		}
		h, err := r.ref(ctx, name)
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrInvalid) {
			return nil // deleted meanwhile, or a symbolic ref to nothing
		} else if err != nil {
			// One damaged file must not hide all other refs.
			r.server.log().Warn("left a ref out of a list", "repo", r.name, "ref", name, "error", err)
			return nil
		}
		loose[name] = h
		return nil
	})
	if err != nil {
		return nil, err
	}
	all, err := r.packedRefs()
	if err != nil {
		return nil, err
	}
	var refs []Ref
	for _, p := range below(all, prefix) {
		if _, ok := loose[p.Name]; !ok {
			refs = append(refs, p)
		}
	}
	for name, h := range loose {
		refs = append(refs, Ref{name, h})
	}
	slices.SortFunc(refs, func(a, b Ref) int { return strings.Compare(a.Name, b.Name) })
	return refs, nil
}

// below yields those of the sorted refs whose name is prefix or stands below it.
func below(refs []Ref, prefix string) []Ref {
	var out []Ref
	for i := sort.Search(len(refs), func(i int) bool { return refs[i].Name >= prefix }); i < len(refs); i++ {
		name := refs[i].Name
		if !strings.HasPrefix(name, prefix) {
			break
		}
		if len(name) == len(prefix) || name[len(prefix)] == '/' {
			out = append(out, refs[i])
		}
	}
	return out
}

func (r *Repo) nativeRefs(ctx context.Context, prefix string) ([]Ref, error) {
	out, err := r.output(ctx, "for-each-ref", "--format=%(objectname) %(refname)", "--", prefix)
	if err != nil {
		return nil, err
	}
	return parsePackedRefs(bytes.NewReader(out))
}

// RefUpdate changes one ref by compare-and-swap.
type RefUpdate struct {
	Name string
	New  Hash  // empty deletes the ref
	Old  *Hash // nil: whatever it is; pointing to "": it must not exist
}

// Update changes refs, all or none, and returns when that is durable. A ref
// that is not at its Old value makes the error [ErrConflict]. A symbolic ref
// is itself changed, not what it points to.
func (r *Repo) Update(ctx context.Context, updates ...RefUpdate) error {
	if len(updates) == 0 {
		return nil
	}
	err := r.update(ctx, updates)
	if err == nil {
		if slices.ContainsFunc(updates, func(u RefUpdate) bool { return u.New == "" }) {
			r.view.noteDeleted(ctx)
		}
		return nil
	}
	err = gitcmd.ExplainFullDisk(err, r.dir)
	if len(updates) == 1 {
		return fmt.Errorf("cannot change %s in %s: %w", updates[0].Name, r.name, err)
	}
	return fmt.Errorf("cannot change %d refs in %s: %w", len(updates), r.name, err)
}

func (r *Repo) update(ctx context.Context, updates []RefUpdate) error {
	seen := map[string]bool{}
	for _, u := range updates {
		if err := CheckRef(u.Name); err != nil {
			return err
		}
		if seen[u.Name] {
			return fmt.Errorf("ref %s is named twice: %w", u.Name, ErrInvalid)
		}
		seen[u.Name] = true
		if u.Old != nil && *u.Old != "" {
			if err := CheckHash(*u.Old); err != nil {
				return err
			}
		}
		if u.New == "" {
			continue
		}
		if err := CheckHash(u.New); err != nil {
			return err
		}
		kind, err := r.objects.Kind(ctx, u.New)
		if err != nil {
			return fmt.Errorf("object %s: %w", u.New, err)
		}
		if kind != "commit" && strings.HasPrefix(u.Name, "refs/heads/") {
			return fmt.Errorf("object %s is a %s, a branch needs a commit: %w", u.New, kind, ErrInvalid)
		}
	}
	// A caller that is told "conflict" wants to know which ref; git's answer
	// is a text, so the refs are compared here. Git compares again, under its locks.
	if err := r.expectOld(ctx, updates); err != nil {
		return err
	}
	return r.refs.write(ctx, updates)
}

// expectOld returns ErrConflict when a ref is not at its Old value.
func (r *Repo) expectOld(ctx context.Context, updates []RefUpdate) error {
	for _, u := range updates {
		if u.Old == nil {
			continue
		}
		is, err := r.ref(ctx, u.Name)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		switch {
		case is == *u.Old:
		case *u.Old == "":
			return fmt.Errorf("%s exists, at %s: %w", u.Name, is, ErrConflict)
		case is == "":
			return fmt.Errorf("%s does not exist, expected at %s: %w", u.Name, *u.Old, ErrConflict)
		default:
			return fmt.Errorf("%s is at %s, expected at %s: %w", u.Name, is, *u.Old, ErrConflict)
		}
	}
	return nil
}

// standsInTheWay finds a ref that makes one of the updates impossible: git
// keeps refs as files, so a/b and a cannot both exist.
func (r *Repo) standsInTheWay(ctx context.Context, updates []RefUpdate) error {
	for _, u := range updates {
		if u.New == "" {
			continue
		}
		for dir := path.Dir(u.Name); strings.Count(dir, "/") >= 1; dir = path.Dir(dir) {
			if _, err := r.ref(ctx, dir); err == nil {
				return fmt.Errorf("%s cannot stand below %s, which is a ref itself: %w", u.Name, dir, ErrConflict)
			}
		}
		refs, err := r.listRefs(ctx, u.Name)
		if err != nil {
			return err
		}
		for _, ref := range refs {
			if ref.Name != u.Name {
				return fmt.Errorf("%s cannot be a ref while %s exists: %w", u.Name, ref.Name, ErrConflict)
			}
		}
	}
	return nil
}

const (
	// refWriterIdle is how long a git process waits for the next change.
	refWriterIdle = 30 * time.Second
	// refWriterMax transactions are made by one git process: it remembers
	// every commit that it has looked at.
	refWriterMax = 2000
)

// refWriting makes the changes of a repository's refs.
type refWriting struct {
	repo    *Repo
	packed  packed
	folders refFolders
	turns   refTurns
	writer  refWriter // of what is no plain change of loose refs

	configMu sync.Mutex // guards all below
	config   signature  // of the repository's configuration that was looked at
	plain    bool       // it has nothing to say about how refs are written
}

// init must be called before anything else.
func (w *refWriting) init(r *Repo) {
	w.repo, w.writer.repo = r, r
}

// write makes the updates in one transaction, and returns when that is durable. Those
// of one ref take turns, so that they never meet each other's locks.
func (w *refWriting) write(ctx context.Context, updates []RefUpdate) error {
	defer w.turns.take(updates)()
	r := w.repo
	if err := r.writeLoose(ctx, updates); !errors.Is(err, errNotLoose) {
		return err
	}
	if err := r.objects.Packs.SyncNames(); err != nil {
		return err
	}
	defer r.expectForeign()()
	if err := w.writer.write(ctx, updates); err != nil {
		return err
	}
	names := make([]string, len(updates))
	for i, u := range updates {
		names[i] = u.Name
	}
	return syncRefs(r.dir, names...)
}

// close ends what is idle, and awaits what is not.
func (w *refWriting) close() {
	w.writer.close()
}

// refWriter keeps one `git update-ref --stdin` for a repository: a change
// costs a third of a millisecond instead of a process start. It writes for one
// caller at a time and ends when it is idle.
type refWriter struct {
	repo *Repo

	mu   sync.Mutex // guards all fields below; held during a transaction
	p    *gitcmd.Process
	in   *os.File
	out  *bufio.Reader
	outf *os.File
	used int
	idle *time.Timer
	done context.CancelFunc
}

const (
	// refWriterFails is how often git may refuse a transaction for reasons that
	// can pass: what a kept process believes may no longer be so, and another
	// writer may hold a lock.
	refWriterFails = 3
	// refWriterDeaths is how often git may be killed from outside.
	refWriterDeaths = 20
	// refWriterWaits is how often more git may meet a lock that is younger than lockYoung:
	// somebody is at work under it, and waits for the disk, which can take longer than the
	// tenth of a second that git waits for a lock.
	refWriterWaits = 50
	lockYoung      = 5 * time.Second
)

// write makes the updates in one transaction.
func (w *refWriter) write(ctx context.Context, updates []RefUpdate) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	fails, deaths, waits := 0, 0, 0
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		kept := w.p != nil
		if !kept {
			if err := w.start(); err != nil {
				return err
			}
		}
		w.repo.locking.RLock()
		prepared, err := w.transact(updates)
		w.repo.locking.RUnlock()
		if err == nil {
			w.used++
			if w.used >= refWriterMax {
				w.end()
			} else {
				w.idle = time.AfterFunc(refWriterIdle, w.close)
			}
			return nil
		}
		ended := w.end()
		if ended != nil {
			err = ended // git's own words instead of "EOF"
		}
		if prepared {
			// Git held all locks and had found every ref at its old value: what
			// stands at New now was put there by this transaction. The rest is
			// done anew.
			left, e := w.left(ctx, updates)
			if e != nil {
				return errors.Join(err, e)
			}
			if len(left) == 0 {
				return nil
			}
			updates = left
		}
		if conflict := w.repo.expectOld(ctx, updates); conflict != nil {
			return conflict
		}
		if conflict := w.repo.standsInTheWay(ctx, updates); conflict != nil {
			return conflict
		}
		switch {
		case gitcmd.ExitCode(ended) < 0:
			deaths++
		case kept:
		case waits < refWriterWaits && w.repo.underWay(updates):
			waits++
		default:
			fails++
		}
		if deaths > 0 {
			w.repo.unlock(updates)
		}
		if deaths >= refWriterDeaths || fails >= refWriterFails {
			return err
		}
	}
}

// underWay says whether somebody else holds a lock that the updates need, and made it so
// recently that they will not have left it behind.
func (r *Repo) underWay(updates []RefUpdate) bool {
	young := func(lock string) bool {
		info, err := os.Lstat(filepath.Join(r.dir, filepath.FromSlash(lock)))
		return err == nil && time.Since(info.ModTime()) < lockYoung
	}
	return young("packed-refs.lock") || slices.ContainsFunc(updates, func(u RefUpdate) bool { return young(u.Name + ".lock") })
}

// unlock removes the locks that a git which was killed left on refs: even a git
// that is asked to end has a moment in which it forgets them, and each would
// make its ref unwritable until the next start. As long as another git may hold
// them, which a long push can, they stay.
func (r *Repo) unlock(updates []RefUpdate) {
	if !r.server.library.alone || r.server.OwnConfig {
		return
	}
	for try := 0; !r.locking.TryLock(); try++ {
		if try == unlockTries {
			return
		}
		time.Sleep(unlockPause)
	}
	defer r.locking.Unlock()
	for _, u := range updates {
		lock := filepath.Join(r.dir, filepath.FromSlash(u.Name)+".lock")
		if err := os.Remove(lock); err == nil {
			r.server.log().Warn("removed the lock of a git that was killed", "repo", r.name, "ref", u.Name)
		}
	}
}

// unlock waits so often, and so long each time.
const (
	unlockTries = 50
	unlockPause = 10 * time.Millisecond
)

// left returns the updates whose ref is not at its new value.
func (w *refWriter) left(ctx context.Context, updates []RefUpdate) ([]RefUpdate, error) {
	var left []RefUpdate
	for _, u := range updates {
		is, err := w.repo.ref(ctx, u.Name)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return nil, err
		}
		if is != u.New {
			left = append(left, u)
		}
	}
	return left, nil
}

// start starts git. It outlives the call that needed it: its life is the
// server's, or until it is idle.
func (w *refWriter) start() error {
	inR, inW, err := os.Pipe()
	if err != nil {
		return err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		inR.Close()
		inW.Close()
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p, err := w.repo.server.git.Start(ctx, gitcmd.Command{
		Repo: w.repo.dir,
		Args: []string{"update-ref", "--no-deref", "--stdin", "-z"},
		In:   inR, Out: outW,
	})
	inR.Close()
	outW.Close()
	if err != nil {
		inW.Close()
		outR.Close()
		cancel()
		return err
	}
	// The server's end must find nobody idle: it waits for every child.
	context.AfterFunc(p.Context(), func() {
		if context.Cause(p.Context()) == gitcmd.ErrClosed {
			w.close()
		}
	})
	w.p, w.in, w.outf, w.out, w.used, w.done = p, inW, outR, bufio.NewReader(outR), 0, cancel
	return nil
}

// transact runs one transaction; prepared is true once git holds all locks and
// has found every ref at its old value.
func (w *refWriter) transact(updates []RefUpdate) (prepared bool, err error) {
	if w.idle != nil {
		w.idle.Stop()
		w.idle = nil
	}
	var b bytes.Buffer
	b.WriteString("start\x00")
	for _, u := range updates {
		zero := Hash(strings.Repeat("0", 40))
		if len(u.New) == 64 || u.Old != nil && len(*u.Old) == 64 {
			zero = Hash(strings.Repeat("0", 64))
		}
		old := Hash("")
		if u.Old != nil {
			if old = *u.Old; old == "" {
				old = zero
			}
		}
		switch {
		case u.New != "":
			fmt.Fprintf(&b, "update %s\x00%s\x00%s\x00", u.Name, u.New, old)
		case old == zero:
			fmt.Fprintf(&b, "verify %s\x00%s\x00", u.Name, old)
		default:
			fmt.Fprintf(&b, "delete %s\x00%s\x00", u.Name, old)
		}
	}
	b.WriteString("prepare\x00")
	if _, err := w.in.Write(b.Bytes()); err != nil {
		return false, err
	}
	for _, want := range []string{"start: ok\n", "prepare: ok\n"} {
		if err := w.answer(want); err != nil {
			return false, err
		}
	}
	if _, err := w.in.WriteString("commit\x00"); err != nil {
		return true, err
	}
	return true, w.answer("commit: ok\n")
}

func (w *refWriter) answer(want string) error {
	line, err := w.out.ReadString('\n')
	if err != nil {
		return err
	}
	if line != want {
		return fmt.Errorf("git update-ref answered %q instead of %q", line, want)
	}
	return nil
}

// end ends the process and returns its error.
func (w *refWriter) end() error {
	if w.p == nil {
		return nil
	}
	if w.idle != nil {
		w.idle.Stop()
		w.idle = nil
	}
	w.in.Close() // git rolls back what was not committed, and ends
	err := w.p.Wait()
	w.outf.Close()
	w.done()
	w.p = nil
	return err
}

// close ends the process unless a transaction is under way, which it awaits.
func (w *refWriter) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.end(); err != nil && !errors.Is(err, gitcmd.ErrClosed) {
		w.repo.server.log().Warn("the kept git update-ref failed", "repo", w.repo.name, "error", err)
	}
}
