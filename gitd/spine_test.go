package gitd

import (
	"bytes"
	"crypto/sha1"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

// cloneKinds are the clones that are composed.
var cloneKinds = []struct {
	kind spineKind
	args []string
}{
	{spineWhole, nil},
	{spineBlobless, []string{"--filter=blob:none", "--no-checkout"}},
	{spineShallow, []string{"--depth=1"}},
	{spineWhole, []string{"--no-tags"}},
	{spineShallow, []string{"--depth=1", "--no-tags"}},
}

// TestCompose clones random branches from what is composed and from git itself, and
// compares what the clones have.
func TestCompose(t *testing.T) {
	seeds, each, kinds := 2, 3, cloneKinds[:3]
	if os.Getenv("RAMUS_SPINES") == "full" {
		seeds, each, kinds = 40, 20, cloneKinds
	}
	w := newWire(t, func(s *Server) { s.Anonymous = true })
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			ctx := t.Context()
			rnd := rand.New(rand.NewPCG(seed, 11))
			r, err := w.Create(ctx, fmt.Sprint("r", seed))
			if err != nil {
				t.Fatal(err)
			}
			commits := randomHistory(t, r, rnd, 40)
			if rnd.IntN(2) == 0 {
				if err := r.Maintain(ctx); err != nil {
					t.Fatal(err)
				}
			}
			// The base has moved on since some branches were made.
			older, base := commits[rnd.IntN(4)], commits[4+rnd.IntN(6)]
			for _, k := range kinds {
				for _, b := range []Hash{older, base} {
					if err := r.makeSpine(ctx, b, k.kind); err != nil {
						t.Fatal(err)
					}
				}
			}
			branches := strings.Fields(git(t, r.dir, "for-each-ref", "--format=%(refname:short)", "refs/heads"))
			rnd.Shuffle(len(branches), func(i, j int) { branches[i], branches[j] = branches[j], branches[i] })
			// The base itself, and a branch of nothing but it.
			git(t, r.dir, "branch", "same", string(base))
			branches = append([]string{"same"}, branches...)
			stock(t, "", "ls-remote", "-q", w.url(r.name, "")) // so that its refs are known
			for _, branch := range branches[:min(len(branches), each)] {
				fits := false
				for _, b := range []Hash{older, base} {
					_, err := gittest.Try(r.dir, "merge-base", "--is-ancestor", string(b), branch)
					fits = fits || err == nil
				}
				for _, k := range kinds {
					composed, children := compareClone(t, w, r, branch, k.kind, k.args)
					if fits && (composed != 1 || children != 0) || !fits && composed != 0 {
						t.Errorf("%s %v: descends from a base: %v, composed %d by %d processes", branch, k.args, fits, composed, children)
					}
				}
			}
		})
	}
}

// compareClone clones a branch from the server and from git itself and compares the two;
// it tells how many answers were composed, and how many processes the server started.
func compareClone(t *testing.T, w *wire, r *Repo, branch string, kind spineKind, more []string) (composed, children uint64) {
	t.Helper()
	dir := t.TempDir()
	ours, theirs := filepath.Join(dir, "ours"), filepath.Join(dir, "theirs")
	args := append([]string{"-c", "transfer.fsckObjects=true", "-c", "advice.detachedHead=false", "clone", "-q", "--single-branch", "-b", branch}, more...)
	before := w.Stats()
	stock(t, "", append(slices.Clone(args), w.url(r.name, ""), ours)...)
	after := w.Stats()
	stock(t, "", append(slices.Clone(args), "--no-local", "-u", "git -c uploadpack.allowFilter=true upload-pack", "file://"+r.dir, theirs)...)
	compareClones(t, fmt.Sprint(branch, more), ours, theirs, kind == spineShallow)
	return after.Composed - before.Composed, after.Children - before.Children
}

// compareClones checks that a clone has what another has; more says that objects may be
// among it that nothing reaches.
func compareClones(t *testing.T, what, ours, theirs string, more bool) {
	t.Helper()
	fsck(t, ours)
	if a, b := stock(t, ours, "for-each-ref"), stock(t, theirs, "for-each-ref"); a != b {
		t.Errorf("%s: refs:\n%s\ngit has:\n%s", what, a, b)
	}
	if a, b := shallowOf(ours), shallowOf(theirs); a != b {
		t.Errorf("%s: shallow at:\n%s\ngit has:\n%s", what, a, b)
	}
	if a, b := stock(t, ours, "rev-parse", "HEAD"), stock(t, theirs, "rev-parse", "HEAD"); a != b {
		t.Errorf("%s: at %s, git at %s", what, a, b)
	}
	all := []string{"cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)"}
	a, b := strings.Split(stock(t, ours, all...), "\n"), strings.Split(stock(t, theirs, all...), "\n")
	for _, line := range b {
		if !slices.Contains(a, line) {
			t.Errorf("%s: %s is missing", what, line)
		}
	}
	for _, line := range a {
		if !more && !slices.Contains(b, line) {
			t.Errorf("%s: %s is too much", what, line)
		}
	}
	if _, err := os.Stat(filepath.Join(ours, ".git", "index")); err == nil { // it was checked out
		if st := stock(t, ours, "status", "--porcelain"); st != "" {
			t.Errorf("%s: the work tree is not clean:\n%s", what, st)
		}
	}
}

func shallowOf(dir string) string {
	b, _ := os.ReadFile(filepath.Join(dir, ".git", "shallow"))
	lines := strings.Fields(string(b))
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// cloneOf is the request of a clone of one commit.
func cloneOf(h Hash) *protocol.FetchRequest {
	return &protocol.FetchRequest{Wants: []Hash{h}, OFSDelta: true, IncludeTag: true, Done: true}
}

// composes says whether the answer to a request is composed.
func composes(t testing.TB, r *Repo, f *protocol.FetchRequest) bool {
	t.Helper()
	p, err := r.compose(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	if p == nil {
		return false
	}
	if n, err := p.size(), writeReply(&countingWriter{}, p); err != nil || n < p.pieces[1].n {
		t.Error(n, err)
	}
	p.close()
	return true
}

type countingWriter struct{ n int64 }

func (w *countingWriter) Write(p []byte) (int, error) {
	w.n += int64(len(p))
	return len(p), nil
}

// grown waits for the spines that are being made.
func grown(r *Repo) {
	for {
		s := &r.server.spines
		var wait chan struct{}
		s.mu.Lock()
		for _, wait = range s.making {
		}
		s.mu.Unlock()
		if wait == nil {
			return
		}
		<-wait
	}
}

// bases are the bases of a repository's spines for whole clones, sorted.
func bases(r *Repo) []Hash {
	var all []Hash
	for _, p := range r.server.spines.take(r, spineWhole) {
		all = append(all, p.base)
		r.server.spines.give(p, false)
	}
	slices.Sort(all)
	return all
}

// TestSpineGrows is when spines are made and when they are not.
func TestSpineGrows(t *testing.T) {
	r := newRepo(t)
	first := commit(t, r, "main", "First", "a", "1\n", "b", "2\n")
	if composes(t, r, cloneOf(first)) {
		t.Error("composed from nothing")
	}
	if grown(r); len(bases(r)) != 0 {
		t.Error("made for the base itself")
	}
	branch := func(name string, from Hash, files ...string) Hash {
		t.Helper()
		if err := r.Update(t.Context(), RefUpdate{Name: "refs/heads/" + name, New: from}); err != nil {
			t.Fatal(err)
		}
		return commit(t, r, name, "Work", files...)
	}
	one := branch("one", first, "c", "3\n")
	if composes(t, r, cloneOf(one)) {
		t.Error("composed from nothing")
	}
	grown(r)
	if want := []Hash{first}; !slices.Equal(bases(r), want) {
		t.Error("spines of", bases(r))
	}
	for _, h := range []Hash{one, first} {
		if !composes(t, r, cloneOf(h)) {
			t.Error("not composed:", h)
		}
	}
	// What is asked for again is there.
	kept := func() (p *spine, g *graft) {
		for _, p = range r.server.spines.take(r, spineWhole) {
			r.server.spines.give(p, false)
		}
		return p, p.grafts[string(cloneOf(one).Render(true))]
	}
	if _, g := kept(); g == nil || !composes(t, r, cloneOf(one)) {
		t.Error("not kept")
	}
	p, g := kept()
	p.keep("large", &graft{head: make([]byte, graftMax)})
	if p.grafts["large"] != nil {
		t.Error("kept, too large")
	}
	for i := range 2 * graftsBytes / (graftMax / 2) {
		p.keep(fmt.Sprint(i), &graft{head: make([]byte, graftMax/2)})
	}
	if p.held > graftsBytes || len(p.grafts) > graftsBytes/(graftMax/2) {
		t.Error(p.held, "bytes are kept")
	}
	if _, again := kept(); again == g {
		t.Error("kept for ever")
	}
	// A base that moves a little leaves its spine as good as it was.
	second := commit(t, r, "main", "Second", "d", "4\n")
	if !composes(t, r, cloneOf(branch("two", second, "e", "5\n"))) {
		t.Error("not composed")
	}
	if grown(r); len(bases(r)) != 1 {
		t.Error("spines of", bases(r))
	}
	// One that moves far gets another.
	var many []string
	for i := range twigObjectsMany + 1 {
		many = append(many, fmt.Sprint("many/", i), fmt.Sprint(i, "\n"))
	}
	third := commit(t, r, "main", "Third", many...)
	three := branch("three", third, "f", "6\n")
	if !composes(t, r, cloneOf(three)) {
		t.Error("not composed")
	}
	grown(r)
	if want := []Hash{first, third}; !slices.Equal(bases(r), slices.Sorted(slices.Values(want))) {
		t.Error("spines of", bases(r))
	}
	before, _, err := r.fittingSpine(t.Context(), []Hash{three}, spineWhole)
	if err != nil || before.base != third {
		t.Error("not the nearest:", before.base, err)
	}
	r.server.spines.give(before, false)
	// What has no more to do with the base is git's.
	orphan, err := r.WriteCommit(t.Context(), NewCommit{Author: alice, Message: "x", Put: []File{{Path: "x"}}})
	if err != nil {
		t.Fatal(err)
	}
	if composes(t, r, cloneOf(orphan)) {
		t.Error("composed")
	}
	// Beside one that descends it is answered for.
	both := cloneOf(orphan)
	both.Wants = append(both.Wants, three)
	if !composes(t, r, both) {
		t.Error("not composed")
	}
	for what, change := range map[string]func(f *protocol.FetchRequest){
		"haves":     func(f *protocol.FetchRequest) { f.Haves = []Hash{first} },
		"shallow":   func(f *protocol.FetchRequest) { f.Shallow = []Hash{first} },
		"deeper":    func(f *protocol.FetchRequest) { f.Depth = 2 },
		"relative":  func(f *protocol.FetchRequest) { f.Depth, f.DepthRelative = 1, true },
		"since":     func(f *protocol.FetchRequest) { f.DeepenSince = 1 },
		"not":       func(f *protocol.FetchRequest) { f.DeepenNot = []string{"refs/heads/main"} },
		"filter":    func(f *protocol.FetchRequest) { f.Filter = "tree:0" },
		"both":      func(f *protocol.FetchRequest) { f.Filter, f.Depth = "blob:none", 1 },
		"no deltas": func(f *protocol.FetchRequest) { f.OFSDelta = false },
		"waiting":   func(f *protocol.FetchRequest) { f.WaitForDone, f.Done = true, false },
		"nothing":   func(f *protocol.FetchRequest) { f.Wants = nil },
		"a tree":    func(f *protocol.FetchRequest) { f.Wants = []Hash{emptyTree} },
		"many":      func(f *protocol.FetchRequest) { f.Wants = slices.Repeat([]Hash{three}, composeWants+1) },
		"unknown":   func(f *protocol.FetchRequest) { f.Wants = []Hash{Hash(strings.Repeat("1", 40))} },
		"sha256":    func(f *protocol.FetchRequest) { f.Wants = []Hash{Hash(strings.Repeat("1", 64))} },
	} {
		f := cloneOf(three)
		if change(f); composes(t, r, f) {
			t.Errorf("%s: composed", what)
		}
	}
	write(t, filepath.Join(r.dir, "shallow"), string(first)+"\n")
	if composes(t, r, cloneOf(three)) {
		t.Error("composed from a shallow repository")
	}
	if err := os.Remove(filepath.Join(r.dir, "shallow")); err != nil {
		t.Fatal(err)
	}
	// What is gone is forgotten.
	r.release()
	if len(bases(r)) != 0 {
		t.Error("spines of", bases(r))
	}
}

// TestSpineShelf is what is kept, what goes, and that all files are closed in the end.
func TestSpineShelf(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t)
	// Of the whole process it would be those, too, that others left to the garbage collector.
	root, err := filepath.EvalSymlinks(r.server.Root)
	if err != nil {
		t.Fatal(err)
	}
	files := func() (n int) {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("cannot run here: ", err)
		}
		for _, e := range entries {
			if is, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.HasPrefix(is, root+"/") {
				n++
			}
		}
		return n
	}
	var tips []Hash
	for i := range spinesEach + 2 {
		tips = append(tips, commit(t, r, "main", "Next", "a", fmt.Sprint(i)))
	}
	r.release()
	before := files()
	for _, h := range tips {
		for range 2 {
			if err := r.makeSpine(ctx, h, spineWhole); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := files(); n <= before {
		t.Errorf("%d files are open, before %d: nothing is tested", n, before)
	}
	if want := slices.Sorted(slices.Values(tips[2:])); !slices.Equal(bases(r), want) {
		t.Errorf("spines of %s, not %s", bases(r), want)
	}
	// What is in use stays open, whatever happens to it.
	taken := r.server.spines.take(r, spineWhole)
	r.server.spines.remove(func(*spine) bool { return true })
	for _, p := range taken {
		if _, err := p.sum(7); err != nil {
			t.Error(err)
		}
		r.server.spines.give(p, true)
	}
	if len(bases(r)) != 0 {
		t.Error("spines of", bases(r))
	}
	r.release()
	if n := files(); n != before {
		t.Errorf("%d files are open, before %d", n, before)
	}
	if err := r.makeSpine(ctx, Hash(strings.Repeat("1", 40)), spineWhole); err == nil {
		t.Error("made from nothing")
	}
	// One that cannot be made is not tried by everybody.
	key := spineKey{r, tips[0], spineWhole}
	s, now := &r.server.spines, r.server.now()
	for _, step := range []struct {
		after time.Duration
		begin bool
		err   error
	}{{0, true, ErrInvalid}, {spineAgain / 2, false, nil}, {2 * spineAgain, true, nil}, {2 * spineAgain, true, nil}} {
		if begin := s.begin(key, now.Add(step.after)); begin != step.begin {
			t.Fatal(step, begin)
		} else if begin {
			if s.begin(key, now.Add(step.after)) {
				t.Error("made twice at once")
			}
			s.end(key, step.err, now.Add(step.after))
		}
	}
	if left, _ := filepath.Glob(filepath.Join(r.server.Root, newFolder, "*")); len(left) > 0 {
		t.Error("left behind:", left)
	}
}

// TestComposeTags clones tags, and tags of tags.
func TestComposeTags(t *testing.T) {
	w := newWire(t, func(s *Server) { s.Anonymous = true })
	r, err := w.Create(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	first := commit(t, r, "main", "First", "a", "1\n")
	git(t, r.dir, "tag", "-a", "-m", "x", "inner", string(first))
	git(t, r.dir, "tag", "-a", "-m", "x", "outer", "inner")
	commit(t, r, "main", "Second", "b", "2\n")
	git(t, r.dir, "tag", "light", "main")
	tip := commit(t, r, "work", "Other", "c", "3\n")
	git(t, r.dir, "tag", "-a", "-m", "x", "other", string(tip))
	git(t, r.dir, "tag", "-a", "-m", "x", "tree", "main^{tree}")
	for _, k := range cloneKinds {
		if err := r.makeSpine(t.Context(), first, k.kind); err != nil {
			t.Fatal(err)
		}
	}
	for i, branch := range []string{"main", "outer", "light", "main"} {
		if i == 3 { // what was answered before is not all any more
			git(t, r.dir, "tag", "-a", "-m", "x", "later", string(first))
		}
		for _, k := range cloneKinds {
			if composed, _ := compareClone(t, w, r, branch, k.kind, k.args); composed == 0 {
				t.Errorf("%s %v: not composed", branch, k.args)
			}
		}
	}
}

// TestComposeStorm clones many branches at once while spines come and go, and checks every
// pack that is sent.
func TestComposeStorm(t *testing.T) {
	ctx := t.Context()
	r := newRepo(t)
	var bases, tips []Hash
	for i := range 3 {
		large := make([]byte, 3*protocol.MaxLine) // so that a spine has some packets
		rand.NewChaCha8([32]byte{byte(i)}).Read(large)
		bases = append(bases, commit(t, r, "main", "Base", "large", string(large), "b", fmt.Sprint(i)))
	}
	for i := range 12 {
		name := fmt.Sprint("work", i)
		if err := r.Update(ctx, RefUpdate{Name: "refs/heads/" + name, New: bases[2]}); err != nil {
			t.Fatal(err)
		}
		tips = append(tips, commit(t, r, name, "Work", "a", fmt.Sprint(i), strings.Repeat("d/", i%4)+"e", "x"))
	}
	for _, k := range cloneKinds[:3] {
		if err := r.makeSpine(ctx, bases[0], k.kind); err != nil {
			t.Fatal(err)
		}
	}
	var clones sync.WaitGroup
	for i := range 48 {
		clones.Go(func() {
			f := cloneOf(tips[i%len(tips)])
			switch i % 3 {
			case 1:
				f.Filter = "blob:none"
			case 2:
				f.Depth = 1
			}
			p, err := r.compose(ctx, f)
			if err != nil || p == nil {
				t.Error(p, err)
				return
			}
			defer p.close()
			var sent bytes.Buffer
			if err := writeReply(&sent, p); err != nil {
				t.Error(err)
			}
			lines := protocol.NewReader(&sent)
			var whole bytes.Buffer
			for inPack := false; ; {
				line, kind, err := lines.Next()
				if err != nil || kind == protocol.Flush {
					break
				}
				switch {
				case string(line) == "packfile\n":
					inPack = true
				case inPack && line[0] == protocol.BandData:
					whole.Write(line[1:])
				}
			}
			end := whole.Len() - sha1.Size
			if end < 0 || sha1.Sum(whole.Bytes()[:end]) != [sha1.Size]byte(whole.Bytes()[end:]) || sent.Len() != 0 {
				t.Error("the checksum is another's")
				return
			}
			if _, err := pack.Scan(pack.NewTap(&whole, io.Discard, 1<<30), sha1.Size, pack.Limits{Bytes: 1 << 30, Objects: 1 << 20, Object: 1 << 30}); err != nil {
				t.Error(err)
			}
		})
	}
	for _, base := range bases[1:] {
		for _, k := range cloneKinds[:3] {
			if err := r.makeSpine(ctx, base, k.kind); err != nil {
				t.Error(err)
			}
		}
	}
	clones.Wait()
}
