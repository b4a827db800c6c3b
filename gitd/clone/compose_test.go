package clone

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

	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

// cloneOf returns the request of a clone of one commit.
func cloneOf(h object.Hash) *protocol.FetchRequest {
	return &protocol.FetchRequest{Wants: []object.Hash{h}, OFSDelta: true, IncludeTag: true, Done: true}
}

// composes reports whether the answer to a request is composed.
func composes(t testing.TB, c *Cache, r *testRepo, f *protocol.FetchRequest) bool {
	t.Helper()
	p, err := c.compose(t.Context(), r, f)
	if err != nil {
		t.Fatal(err)
	}
	if p == nil {
		return false
	}
	if n, err := p.size(), p.writeTo(&countingWriter{}); err != nil || n < p.pieces[1].n {
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

// waitPending waits for the base packs that are being made.
func waitPending(c *Cache) {
	for {
		var wait chan struct{}
		c.bases.mu.Lock()
		for _, wait = range c.bases.pending {
		}
		c.bases.mu.Unlock()
		if wait == nil {
			return
		}
		<-wait
	}
}

// basesOf returns the bases of a repository's base packs for full clones, sorted.
func basesOf(c *Cache, r *testRepo) []object.Hash {
	var all []object.Hash
	for _, p := range c.bases.acquire(r, Full) {
		all = append(all, p.base)
		c.bases.release(p, false)
	}
	slices.Sort(all)
	return all
}

// TestBasePacksAreMade checks when base packs are made and when they are not.
func TestBasePacksAreMade(t *testing.T) {
	c, r := newTestRepo(t)
	first := r.commit("main", "a", "1\n", "b", "2\n")
	if composes(t, c, r, cloneOf(first)) {
		t.Error("composed from nothing")
	}
	if waitPending(c); len(basesOf(c, r)) != 0 {
		t.Error("made for the base itself")
	}
	branch := func(name string, from object.Hash, files ...string) object.Hash {
		t.Helper()
		r.branch(name, from)
		return r.commit(name, files...)
	}
	one := branch("one", first, "c", "3\n")
	if composes(t, c, r, cloneOf(one)) {
		t.Error("composed from nothing")
	}
	waitPending(c)
	if want := []object.Hash{first}; !slices.Equal(basesOf(c, r), want) {
		t.Error("base packs of", basesOf(c, r))
	}
	for _, h := range []object.Hash{one, first} {
		if !composes(t, c, r, cloneOf(h)) {
			t.Error("not composed:", h)
		}
	}
	// A second request finds the kept packs.
	kept := func() (p *basePack, g *envelope) {
		for _, p = range c.bases.acquire(r, Full) {
			c.bases.release(p, false)
		}
		return p, p.envelopes[string(cloneOf(one).Render(true))]
	}
	if _, g := kept(); g == nil || !composes(t, c, r, cloneOf(one)) {
		t.Error("not kept")
	}
	p, g := kept()
	p.keepEnvelope("large", &envelope{head: make([]byte, envelopeMax)})
	if p.envelopes["large"] != nil {
		t.Error("kept, too large")
	}
	for i := range 2 * envelopesMax / (envelopeMax / 2) {
		p.keepEnvelope(fmt.Sprint(i), &envelope{head: make([]byte, envelopeMax/2)})
	}
	if p.held > envelopesMax || len(p.envelopes) > envelopesMax/(envelopeMax/2) {
		t.Error(p.held, "bytes are kept")
	}
	if _, again := kept(); again == g {
		t.Error("not removed")
	}
	// If the base moves a little its base pack stays in use.
	second := r.commit("main", "d", "4\n")
	if !composes(t, c, r, cloneOf(branch("two", second, "e", "5\n"))) {
		t.Error("not composed")
	}
	if waitPending(c); len(basesOf(c, r)) != 1 {
		t.Error("base packs of", basesOf(c, r))
	}
	// If the base moves far it gets another base pack.
	var many []string
	for i := range staleObjects + 1 {
		many = append(many, fmt.Sprint("many/", i), fmt.Sprint(i, "\n"))
	}
	third := r.commit("main", many...)
	three := branch("three", third, "f", "6\n")
	if !composes(t, c, r, cloneOf(three)) {
		t.Error("not composed")
	}
	waitPending(c)
	if want := []object.Hash{first, third}; !slices.Equal(basesOf(c, r), slices.Sorted(slices.Values(want))) {
		t.Error("base packs of", basesOf(c, r))
	}
	before, _, err := c.fittingBase(t.Context(), r, []object.Hash{three}, Full)
	if err != nil || before.base != third {
		t.Error("not the nearest:", before.base, err)
	}
	c.bases.release(before, false)
	// A commit that has no common history with the base is left to git.
	orphan := r.commit("orphan", "x", "")
	if composes(t, c, r, cloneOf(orphan)) {
		t.Error("composed")
	}
	// Together with a descendant of the base the answer is composed.
	both := cloneOf(orphan)
	both.Wants = append(both.Wants, three)
	if !composes(t, c, r, both) {
		t.Error("not composed")
	}
	for what, change := range map[string]func(f *protocol.FetchRequest){
		"haves":     func(f *protocol.FetchRequest) { f.Haves = []object.Hash{first} },
		"shallow":   func(f *protocol.FetchRequest) { f.Shallow = []object.Hash{first} },
		"deeper":    func(f *protocol.FetchRequest) { f.Depth = 2 },
		"relative":  func(f *protocol.FetchRequest) { f.Depth, f.DepthRelative = 1, true },
		"since":     func(f *protocol.FetchRequest) { f.DeepenSince = 1 },
		"not":       func(f *protocol.FetchRequest) { f.DeepenNot = []string{"refs/heads/main"} },
		"filter":    func(f *protocol.FetchRequest) { f.Filter = "tree:0" },
		"both":      func(f *protocol.FetchRequest) { f.Filter, f.Depth = "blob:none", 1 },
		"no deltas": func(f *protocol.FetchRequest) { f.OFSDelta = false },
		"waiting":   func(f *protocol.FetchRequest) { f.WaitForDone, f.Done = true, false },
		"nothing":   func(f *protocol.FetchRequest) { f.Wants = nil },
		"a tree":    func(f *protocol.FetchRequest) { f.Wants = []object.Hash{object.EmptyTree} },
		"many":      func(f *protocol.FetchRequest) { f.Wants = slices.Repeat([]object.Hash{three}, composeWants+1) },
		"unknown":   func(f *protocol.FetchRequest) { f.Wants = []object.Hash{object.Hash(strings.Repeat("1", 40))} },
		"sha256":    func(f *protocol.FetchRequest) { f.Wants = []object.Hash{object.Hash(strings.Repeat("1", 64))} },
	} {
		f := cloneOf(three)
		if change(f); composes(t, c, r, f) {
			t.Errorf("%s: composed", what)
		}
	}
	if err := os.WriteFile(filepath.Join(r.dir, "shallow"), []byte(string(first)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if composes(t, c, r, cloneOf(three)) {
		t.Error("composed from a shallow repository")
	}
	if err := os.Remove(filepath.Join(r.dir, "shallow")); err != nil {
		t.Fatal(err)
	}
	// A removed repository has no kept packs.
	c.Release(r)
	r.objects.Close()
	if len(basesOf(c, r)) != 0 {
		t.Error("base packs of", basesOf(c, r))
	}
}

// TestBasePacksAreBounded checks which base packs are kept, and that all files are closed in the end.
func TestBasePacksAreBounded(t *testing.T) {
	ctx := t.Context()
	c, r := newTestRepo(t)
	// Only files below the root are counted. The process may have others that wait for the
	// garbage collector.
	root, err := filepath.EvalSymlinks(r.root)
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
	var tips []object.Hash
	for i := range basesEach + 2 {
		tips = append(tips, r.commit("main", "a", fmt.Sprint(i)))
	}
	c.Release(r)
	r.objects.Close()
	before := files()
	for _, h := range tips {
		for range 2 {
			if err := c.Prepare(ctx, r, h, Full); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := files(); n <= before {
		t.Errorf("%d files are open, before %d: nothing is tested", n, before)
	}
	if want := slices.Sorted(slices.Values(tips[2:])); !slices.Equal(basesOf(c, r), want) {
		t.Errorf("base packs of %s, not %s", basesOf(c, r), want)
	}
	// A pack in use stays open, even if it is removed.
	taken := c.bases.acquire(r, Full)
	c.bases.remove(func(*basePack) bool { return true })
	for _, p := range taken {
		if _, err := p.checksumOf(7); err != nil {
			t.Error(err)
		}
		c.bases.release(p, true)
	}
	if len(basesOf(c, r)) != 0 {
		t.Error("base packs of", basesOf(c, r))
	}
	c.Release(r)
	r.objects.Close()
	if n := files(); n != before {
		t.Errorf("%d files are open, before %d", n, before)
	}
	if err := c.Prepare(ctx, r, object.Hash(strings.Repeat("1", 40)), Full); err == nil {
		t.Error("made from nothing")
	}
	// A base pack that cannot be made is not tried by each request.
	key := baseKey{r, tips[0], Full}
	s, now := &c.bases, time.Now()
	for _, step := range []struct {
		after time.Duration
		begin bool
		err   error
	}{{0, true, object.ErrInvalid}, {baseRetry / 2, false, nil}, {2 * baseRetry, true, nil}, {2 * baseRetry, true, nil}} {
		if begin := s.beginMaking(key, now.Add(step.after)); begin != step.begin {
			t.Fatal(step, begin)
		} else if begin {
			if s.beginMaking(key, now.Add(step.after)) {
				t.Error("made twice at once")
			}
			s.endMaking(key, step.err, now.Add(step.after))
		}
	}
	if left, _ := filepath.Glob(filepath.Join(r.root, "scratch", "*")); len(left) > 0 {
		t.Error("still there:", left)
	}
}

// TestComposeStorm clones many branches at once while base packs come and go, and checks every
// pack that is sent.
func TestComposeStorm(t *testing.T) {
	ctx := t.Context()
	c, r := newTestRepo(t)
	var bases, tips []object.Hash
	for i := range 3 {
		large := make([]byte, 3*protocol.MaxLine) // so that a base pack has some packets
		rand.NewChaCha8([32]byte{byte(i)}).Read(large)
		bases = append(bases, r.commit("main", "large", string(large), "b", fmt.Sprint(i)))
	}
	for i := range 12 {
		name := fmt.Sprint("work", i)
		r.branch(name, bases[2])
		tips = append(tips, r.commit(name, "a", fmt.Sprint(i), strings.Repeat("d/", i%4)+"e", "x"))
	}
	for _, kind := range []Kind{Full, Blobless, Shallow} {
		if err := c.Prepare(ctx, r, bases[0], kind); err != nil {
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
			p, err := c.compose(ctx, r, f)
			if err != nil || p == nil {
				t.Error(p, err)
				return
			}
			defer p.close()
			var sent bytes.Buffer
			if err := p.writeTo(&sent); err != nil {
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
			if _, err := pack.Scan(pack.NewTap(&whole, io.Discard, 1<<30), sha1.Size,
				pack.Limits{Bytes: 1 << 30, Objects: 1 << 20, Object: 1 << 30}); err != nil {
				t.Error(err)
			}
		})
	}
	for _, base := range bases[1:] {
		for _, kind := range []Kind{Full, Blobless, Shallow} {
			if err := c.Prepare(ctx, r, base, kind); err != nil {
				t.Error(err)
			}
		}
	}
	clones.Wait()
}
