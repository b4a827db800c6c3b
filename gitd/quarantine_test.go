package gitd

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/pack"
	"github.com/ramus-dev/ramus/gitd/pack/packtest"
	"github.com/ramus-dev/ramus/gitd/protocol"
)

// madeObject is an object that a test pushes, or leaves in a repository.
type madeObject struct {
	kind byte // as packs number them
	data string
	base Hash // if not empty, the object is a delta on an object outside of the pack
}

func (o madeObject) id() Hash {
	return Hash(fmt.Sprintf("%x", sha1.Sum(fmt.Appendf(nil, "%s %d\x00%s", kindNames[o.kind], len(o.data), o.data))))
}

func madeBlob(text string) madeObject { return madeObject{kind: 3, data: text} }

// madeTree returns a tree of entries like "100644 name", each followed by its object.
func madeTree(entries ...any) madeObject {
	var b strings.Builder
	for i := 0; i < len(entries); i += 2 {
		var h Hash
		switch e := entries[i+1].(type) {
		case madeObject:
			h = e.id()
		case Hash:
			h = e
		}
		raw, _ := hex.DecodeString(string(h))
		fmt.Fprintf(&b, "%s\x00%s", entries[i], raw)
	}
	return madeObject{kind: 2, data: b.String()}
}

func madeOn(message string, tree madeObject, parents ...madeObject) madeObject {
	text := fmt.Sprintf("tree %s\n", tree.id())
	for _, p := range parents {
		text += fmt.Sprintf("parent %s\n", p.id())
	}
	const who = "A <a@example.org> 1700000000 +0000"
	return madeObject{kind: pack.TypeCommit, data: fmt.Sprintf("%sauthor %s\ncommitter %s\n\n%s\n", text, who, who, message)}
}

func packOfMade(objects ...madeObject) []byte {
	b := &packtest.Builder{}
	for _, o := range objects {
		if o.base == "" {
			b.Object(o.kind, uint64(len(o.data)), []byte(o.data))
			continue
		}
		// The delta is all new bytes, and copies nothing. Only the size of the base must
		// be right.
		delta := append(deltaVarint(len(o.data)), deltaVarint(len(o.data))...)
		for rest := o.data; rest != ""; {
			n := min(len(rest), 127)
			delta = append(append(delta, byte(n)), rest[:n]...)
			rest = rest[n:]
		}
		b.Count++
		b.Header(pack.TypeRefDelta, uint64(len(delta)))
		base, _ := hex.DecodeString(string(o.base))
		b.Body.Write(base)
		b.Deflate(delta)
	}
	return b.Pack()
}

func deltaVarint(n int) []byte {
	var b []byte
	for ; n > 127; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// leave writes an object into a repository in which no ref reaches it.
func leave(t *testing.T, dir string, o madeObject) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "--git-dir="+dir, "hash-object", "-w", "--literally", "-t",
		kindNames[o.kind], "--stdin")
	cmd.Env, cmd.Stdin = stockEnv(), strings.NewReader(o.data)
	if out, err := cmd.CombinedOutput(); err != nil || strings.TrimSpace(string(out)) != string(o.id()) {
		t.Fatalf("%s: %v", out, err)
	}
}

// TestOrdinaryPushes compares pushes that are taken without git's receive-pack with that
// program. Both accept the same pushes, with the same answer, and both refuse the same
// pushes.
func TestOrdinaryPushes(t *testing.T) {
	readme, a, b, f := madeBlob("read me\n"), madeBlob("a\n"), madeBlob("b\n"), madeBlob("f\n")
	x := madeTree("100644 f", f)
	deep, dir := madeTree("40000 x", x), madeTree("100644 a", a, "100644 b", b)
	root0 := madeTree("100644 README", readme)
	root1 := madeTree("100644 README", readme, "40000 deep", deep, "40000 dir", dir)
	first := madeOn("first", root0)
	second := madeOn("second", root1, first)

	added := madeBlob("new\n")
	dir2 := madeTree("100644 a", added, "100644 b", b)
	root2 := madeTree("100644 README", readme, "40000 deep", deep, "40000 dir", dir2)
	third := madeOn("third", root2, second)
	moved := madeTree("40000 elsewhere", x, "100644 twin", a)
	lost := madeBlob("nobody has it\n")
	lostDir := madeTree("100644 f", lost)
	leftRoot := madeTree("100644 lost", lost)
	left := madeOn("left behind, and the file is gone", leftRoot, second)
	fine := madeOn("left behind, and complete", root1, second)
	fourth := madeOn("fourth", root2, third)
	// The header has a second tree, where git expects none.
	twoTrees := madeObject{kind: pack.TypeCommit, data: strings.Replace(madeOn("two trees", lostDir, second).data,
		"\n\n", "\ntree "+string(root1.id())+"\n\n", 1)}
	twoParents := madeObject{kind: pack.TypeCommit, data: strings.Replace(madeOn("a parent too late", root1, second).data,
		"\n\n", "\nparent "+string(madeOn("another", root1).id())+"\n\n", 1)}
	var many []madeObject
	var folders []any
	var rows []any
	for i := range 300 {
		rows = append(rows, fmt.Sprintf("100644 b%s%05d", strings.Repeat("b", 1000), i), a)
	}
	for i := range 15 {
		rows[0] = fmt.Sprintf("100644 a %d", i)
		d := madeTree(rows...)
		many = append(many, d)
		folders = append(folders, fmt.Sprintf("40000 d%02d", i), d)
	}
	large := madeTree(folders...)
	tag := madeObject{kind: pack.TypeTag,
		data: fmt.Sprintf("object %s\ntype commit\ntag t\ntagger A <a@example.org> 1700000000 +0000\n\nt\n", second.id())}

	list := func(o ...madeObject) []madeObject { return o }
	w := newWire(t, func(s *Server) { s.Secrets = canaries(t) })
	send := func(repo, old, ref string, new madeObject, pack []byte) string {
		_, text := w.post("git-receive-pack", repo, bytes.NewReader(pushBodyFrom(old, ref, string(new.id()), pack)))
		return text
	}
	push := func(repo, old, ref string, new madeObject, pack ...madeObject) string {
		return send(repo, old, ref, new, packOfMade(pack...))
	}
	template := filepath.Join(w.Root, "template.git")
	stock(t, "", "init", "-q", "--bare", "-b", "main", template)
	if text := push("template", zeroHash, "refs/heads/main", second, second, root1, deep, x, dir, f, a, b, first, root0,
		readme); !strings.Contains(text, "ok refs/heads/main") {
		t.Fatal(text)
	}

	for n, tt := range []struct {
		name     string
		ok, fast bool
		ref      string // empty for a new branch of its own
		old      madeObject
		new      madeObject
		pack     []madeObject
		left     []madeObject
		setup    string // arguments of a git in the repository
	}{
		{name: "a commit", ok: true, fast: true, new: third, pack: list(third, root2, dir2, added)},
		{name: "two commits, the second first", ok: true, fast: true, new: fourth,
			pack: list(fourth, third, root2, dir2, added)},
		{name: "nothing new in it", ok: true, fast: true, new: madeOn("same", root1, second),
			pack: list(madeOn("same", root1, second))},
		{name: "a root of its own", ok: true, fast: true, new: madeOn("alone", x), pack: list(madeOn("alone", x), x, f)},
		{name: "an empty tree", ok: true, fast: true, new: madeOn("empty", madeTree()),
			pack: list(madeOn("empty", madeTree()), madeTree())},
		{name: "on a commit that no ref is at", ok: true, fast: true, new: madeOn("aside", root0, first),
			pack: list(madeOn("aside", root0, first))},
		{name: "what was elsewhere", ok: true, fast: true, new: madeOn("moved", moved, second),
			pack: list(madeOn("moved", moved, second), moved)},
		{name: "a submodule", ok: true, fast: true,
			new: madeOn("sub", madeTree("160000 sub", Hash(strings.Repeat("1", 40))), second),
			pack: list(madeOn("sub", madeTree("160000 sub", Hash(strings.Repeat("1", 40))), second),
				madeTree("160000 sub", Hash(strings.Repeat("1", 40))))},
		{name: "a delta on an object of the repository", ok: true, fast: true, new: third,
			pack: list(third, root2, added, madeObject{kind: 2, data: dir2.data, base: dir.id()})},
		{name: "left behind by another push", ok: true, fast: true, left: list(fine), new: madeOn("on it", root2, fine),
			pack: list(madeOn("on it", root2, fine), root2, dir2, added)},
		{name: "forward", ok: true, fast: true, ref: "refs/heads/main", old: second, new: third,
			pack: list(third, root2, dir2, added)},
		{name: "forward again", ok: true, fast: true, ref: "refs/heads/main", old: third, new: fourth, pack: list(fourth)},
		{name: "backward, with force", ok: true, ref: "refs/heads/main", old: fourth, new: third, pack: list(third)},
		{name: "old is not what it was", ref: "refs/heads/main", old: second, new: madeOn("late", root1, second),
			pack: list(madeOn("late", root1, second))},
		{name: "there already", ref: "refs/heads/main", new: madeOn("late", root1, second),
			pack: list(madeOn("late", root1, second))},
		{name: "below a branch", ref: "refs/heads/main/below", new: third, pack: list(third, root2, dir2, added)},
		{name: "a file is missing", new: third, pack: list(third, root2, dir2)},
		{name: "a folder is missing", new: third, pack: list(third, root2, added)},
		{name: "the tree is missing", new: third, pack: list(third)},
		{name: "a parent is missing", new: fourth, pack: list(fourth, root2, dir2, added)},
		{name: "left behind, incomplete", left: list(left, leftRoot), new: madeOn("on it", root1, left),
			pack: list(madeOn("on it", root1, left))},
		{name: "a folder left behind, incomplete", left: list(lostDir),
			new:  madeOn("with it", madeTree("40000 d", lostDir), second),
			pack: list(madeOn("with it", madeTree("40000 d", lostDir), second), madeTree("40000 d", lostDir))},
		{name: "a folder left behind, incomplete, and a delta on it", left: list(lostDir),
			new: madeOn("with it", madeTree("40000 d", lostDir), second),
			pack: list(madeOn("with it", madeTree("40000 d", lostDir), second), madeTree("40000 d", lostDir),
				madeObject{kind: 2, data: madeTree("100644 g", f).data, base: lostDir.id()})},
		{name: "a folder by another mode", left: list(lostDir), new: madeOn("mode", madeTree("40755 d", lostDir), second),
			pack: list(madeOn("mode", madeTree("40755 d", lostDir), second), madeTree("40755 d", lostDir))},
		{name: "a file said to be a folder", new: madeOn("kinds", madeTree("40000 a", a), second),
			pack: list(madeOn("kinds", madeTree("40000 a", a), second), madeTree("40000 a", a))},
		{name: "two trees", left: list(lostDir), new: twoTrees, pack: list(twoTrees)},
		{name: "a parent too late", ok: true, fast: true, new: twoParents, pack: list(twoParents)},
		{name: "a tag for a branch", new: tag, pack: list(tag)},
		{name: "a tag", ok: true, ref: "refs/tags/t", new: tag, pack: list(tag)},
		{name: "no sound object", new: madeObject{kind: pack.TypeCommit, data: "tree x\n"},
			pack: list(madeObject{kind: pack.TypeCommit, data: "tree x\n"})},
		{name: "more folders than are looked at", ok: true, new: madeOn("large", large, second),
			pack: append(many, large, madeOn("large", large, second))},
		{name: "another name of a branch", ok: true, ref: "refs/heads/alias",
			setup: "symbolic-ref refs/heads/alias refs/heads/other",
			new:   third, pack: list(third, root2, dir2, added)},
		{name: "a configuration of its own", ok: true, setup: "config receive.fsckObjects true", new: third,
			pack: list(third, root2, dir2, added)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			whole := packOfMade(tt.pack...)
			if len(whole) > pack.SpoolMemory {
				t.Fatal("the pack is not looked at for its size")
			}
			ref := tt.ref
			if ref == "" {
				ref = "refs/heads/branch"
			}
			old := zeroHash
			if tt.old.kind != 0 {
				old = string(tt.old.id())
			}
			var answers, refs [2]string
			for i, native := range []bool{false, true} {
				w.native = native
				name := fmt.Sprintf("a%d-%v", n, native)
				git := filepath.Join(w.Root, name+".git")
				if err := os.CopyFS(git, os.DirFS(template)); err != nil {
					t.Fatal(err)
				}
				for _, o := range tt.left {
					leave(t, git, o)
				}
				if tt.setup != "" {
					stock(t, git, strings.Fields(tt.setup)...)
				}
				if tt.ref == "refs/heads/main" && tt.old.kind != 0 && old != string(second.id()) {
					push(name, string(second.id()), ref, tt.old, third, fourth, root2, dir2, added)
				}
				// Only the way by git's receive-pack needs the hook, and makes it.
				if err := os.RemoveAll(filepath.Join(w.Root, hooksFolder)); err != nil {
					t.Fatal(err)
				}
				if tt.name == "old is not what it was" {
					push(name, string(second.id()), ref, third, third, root2, dir2, added)
				}
				answers[i] = withoutProgress(send(name, old, ref, tt.new, whole))
				refs[i] = stock(t, git, "for-each-ref", "--format=%(refname) %(objectname) %(symref)")
				stock(t, git, "rev-list", "--objects", "--quiet", "--all") // fails if an object is missing
				_, err := os.Stat(filepath.Join(w.Root, hooksFolder))
				if taken := os.IsNotExist(err); !native && tt.ok && taken != tt.fast {
					t.Errorf("taken without receive-pack: %v, want %v", taken, tt.fast)
				}
				if kept, _ := filepath.Glob(filepath.Join(git, "objects", scratchPrefix+"*")); len(kept) > 0 {
					t.Errorf("left: %q", kept)
				}
			}
			if ok := strings.Contains(answers[1], "ok "+ref+"\n"); ok != tt.ok {
				t.Errorf("git takes it: %v, want %v: %q", ok, tt.ok, answers[1])
			}
			if ok := strings.Contains(answers[0], "ok "+ref+"\n"); ok != tt.ok || tt.ok && answers[0] != answers[1] {
				t.Errorf("the answer is %q, git's %q", answers[0], answers[1])
			}
			if refs[0] != refs[1] {
				t.Errorf("the refs are\n%s\nwith git\n%s", refs[0], refs[1])
			}
		})
	}
}

// withoutProgress removes git's progress messages from an answer.
func withoutProgress(answer string) string {
	lines := protocol.NewReader(strings.NewReader(answer))
	for kept := ""; ; {
		raw, _, err := lines.NextRaw()
		if err != nil {
			return kept
		}
		if len(raw) < 5 || raw[4] != protocol.BandProgress {
			kept += string(raw)
		}
	}
}

// kindNames are the names of the types of objects in packs.
var kindNames = [...]string{1: "commit", 2: "tree", 3: "blob", 4: "tag"}

// checkerOf returns a check of a commit in a push of objects. The check does at most so much work, see [pack.Files.Rebuilt].
func checkerOf(t *testing.T, tip madeObject, objects ...madeObject) func(budget int64) error {
	t.Helper()
	dir := t.TempDir()
	git(t, dir, "init", "-q", "--bare")
	cmd := exec.Command("git", "-C", dir, "index-pack", "--strict", "--stdin")
	cmd.Stdin = bytes.NewReader(packOfMade(objects...))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	q := &quarantine{packs: pack.Files{Dir: filepath.Join(dir, "objects/pack")}, sent: 1 << 60}
	t.Cleanup(q.packs.Close)
	return func(budget int64) error {
		w := &connectivity{ctx: t.Context(), q: q, trees: map[Hash]Hash{}, known: map[Hash]string{}, until: q.packs.Rebuilt() + budget}
		return w.checkCommits(tip.id())
	}
}

// TestConnectivityOfRepeatedParents checks a commit that has the same parent thousands of times, and one whose check takes
// too much work.
func TestConnectivityOfRepeatedParents(t *testing.T) {
	blob := madeBlob("x")
	var entries []any
	for i := range 2000 {
		entries = append(entries, fmt.Sprintf("100644 %06d", i), blob)
	}
	first := madeTree(entries...)
	second := madeTree(append(entries, "100644 z", blob)...)
	parent := madeOn("first", first)
	parents := make([]madeObject, 5000)
	for i := range parents {
		parents[i] = parent
	}
	tip := madeOn("second", second, parents...)
	check := checkerOf(t, tip, blob, first, second, parent, tip)
	if err := check(connectivityRebuilt); err != nil {
		t.Errorf("a commit that has its parent %d times: %v", len(parents), err)
	}
	if err := check(0); !errors.Is(err, errAskGit) {
		t.Errorf("a check that may do nothing: %v", err)
	}
}

// TestConnectivityOfLongChains checks files at the ends of chains of deltas, which cost more than they are large.
func TestConnectivityOfLongChains(t *testing.T) {
	var made []madeObject
	var entries []any
	for i := range 200 {
		o := madeBlob(fmt.Sprintf("%0100d", i)) // all have the same size, as packOfMade needs
		if i > 0 {
			o.base = made[i-1].id()
		}
		made, entries = append(made, o), append(entries, fmt.Sprintf("100644 %06d", i), o)
	}
	tree := madeTree(entries...)
	tip := madeOn("m", tree)
	check := checkerOf(t, tip, append(made, tree, tip)...)
	if err := check(connectivityRebuilt); err != nil {
		t.Errorf("chains of up to %d deltas: %v", len(made)-1, err)
	}
	if err := check(1 << 20); !errors.Is(err, errAskGit) {
		t.Errorf("a check that may read 256 entries: %v", err)
	}
}
