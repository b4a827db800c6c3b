package gitd

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/protocol"
	"github.com/ramus-dev/ramus/gitd/refview"
)

// nativeV2 returns git's answer to a request of protocol v2.
func nativeV2(t testing.TB, s *Server, dir string, body []byte) string {
	t.Helper()
	out, err := s.git.Output(t.Context(), gitcmd.Command{Args: []string{"upload-pack", "--stateless-rpc", dir},
		Env: []string{"GIT_PROTOCOL=version=2"}, In: bytes.NewReader(body)})
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func lsRefs(args ...string) []byte {
	b := append(protocol.AppendLine(protocol.AppendLine(nil, "command=ls-refs\n"), "object-format=sha1\n"), "0001"...)
	for _, a := range args {
		b = protocol.AppendLine(b, a, "\n")
	}
	return append(b, protocol.FlushLine...)
}

// lists compares the snapshot's answers with git's.
func lists(t testing.TB, r *Repo, args ...string) {
	t.Helper()
	body := lsRefs(args...)
	q, err := protocol.ParseRequest(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.view.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Git lists damaged refs, with a hash of zeros or of an object that does not exist.
	// Clones would fail on them.
	var want strings.Builder
	for line := range strings.Lines(nativeV2(t, r.server, r.Dir(), body)) {
		if !strings.Contains(line, "refs/heads/broken") {
			want.WriteString(line)
		}
	}
	if got, want := string(r.view.List(Grant{}, &q.Refs)), want.String(); got != want {
		t.Fatalf("%v: the snapshot says\n%s\ngit says\n%s", args, got, want)
	}
}

// TestRefSnapshot compares the snapshot with git's list after changes of refs. They are equal
// after every kind of change, by every kind of writer.
func TestRefSnapshot(t *testing.T) {
	r := newRepo(t)
	every := [][]string{
		{"peel", "symrefs", "unborn"}, {}, {"peel"}, {"symrefs"},
		{"peel", "symrefs", "ref-prefix refs/heads/", "ref-prefix refs/tags/", "ref-prefix HEAD"},
		{"peel", "symrefs", "ref-prefix refs/heads/b1", "ref-prefix refs/heads/b", "ref-prefix refs/t"},
		{"ref-prefix nothing"}, {"ref-prefix refs/ramus/"},
	}
	check := func() {
		t.Helper()
		for _, args := range every {
			lists(t, r, args...)
		}
	}
	defer func() { // the repository is checked at the end
		os.Remove(filepath.Join(r.Dir(), "refs/heads/broken"))
		git(t, r.Dir(), "symbolic-ref", "-d", "refs/remotes/origin/none")
		git(t, r.Dir(), "symbolic-ref", "-d", "refs/remotes/origin/HEAD")
		git(t, r.Dir(), "symbolic-ref", "HEAD", "refs/heads/main")
	}()
	check() // nothing but an unborn HEAD
	var tips []Hash
	for i := range 4 {
		tips = append(tips, commit(t, r, "main", fmt.Sprint("Commit ", i), "a", fmt.Sprint(i)))
	}
	check()
	git(t, r.Dir(), "tag", "-a", "-m", "One", "one", string(tips[0]))
	git(t, r.Dir(), "tag", "-a", "-m", "Two", "two", "one")
	git(t, r.Dir(), "tag", "light", string(tips[1]))
	git(t, r.Dir(), "tag", "-a", "-m", "Tree", "tree", string(tips[1])+"^{tree}")
	git(t, r.Dir(), "symbolic-ref", "refs/remotes/origin/HEAD", "refs/heads/main")
	git(t, r.Dir(), "symbolic-ref", "refs/remotes/origin/none", "refs/heads/none")
	check()
	for i := range 12 { // more refs than are read in process
		git(t, r.Dir(), "tag", "-a", "-m", "Many", fmt.Sprint("many", i), string(tips[i%4]))
	}
	git(t, r.Dir(), "pack-refs", "--all")
	check()

	seed := rand.Uint64()
	t.Log("seed", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	name := func() string {
		return []string{"refs/heads/b%d", "refs/heads/deep/er/b%d", "refs/tags/t%d", "refs/ramus/runs/c%d/1",
			"refs/heads/main"}[rnd.IntN(5)]
	}
	rounds := 60
	if testing.Short() {
		rounds = 20
	}
	for i := range rounds {
		ref, tip := name(), tips[rnd.IntN(len(tips))]
		if strings.Contains(ref, "%d") {
			ref = fmt.Sprintf(ref, rnd.IntN(6))
		}
		what := rnd.IntN(9)
		switch what {
		case 0, 1, 2:
			if err := r.Update(t.Context(), RefUpdate{Name: ref, New: tip}); err != nil {
				t.Fatal(err)
			}
		case 3:
			if err := r.Update(t.Context(), RefUpdate{Name: ref}); err != nil {
				t.Fatal(err)
			}
		case 4:
			git(t, r.Dir(), "update-ref", ref, string(tip))
		case 5:
			git(t, r.Dir(), "update-ref", "-d", ref)
		case 6:
			git(t, r.Dir(), "pack-refs", "--all", "--prune")
		case 7:
			git(t, r.Dir(), "symbolic-ref", "HEAD",
				[]string{"refs/heads/main", "refs/heads/none", "refs/heads/b1"}[rnd.IntN(3)])
		case 8: // like go-git, and people, may leave it
			dir := filepath.Join(r.Dir(), "refs/heads/broken")
			write(t, dir, []string{"", "rubbish\n", strings.Repeat("1", 40) + "\n"}[rnd.IntN(3)])
		}
		lists(t, r, every[0]...)
		lists(t, r, every[rnd.IntN(len(every))]...)
		if t.Failed() {
			t.Fatal("after", i, what, ref)
		}
	}
	git(t, r.Dir(), "update-ref", "--no-deref", "HEAD", string(tips[2]))
	check()
	// The snapshot counts the same tips as it lists.
	listed := map[Hash]bool{}
	r.view.Each(Grant{}, nil, func(ref *refview.Ref) { listed[ref.Hash], listed[ref.Peeled] = true, true })
	objects := strings.Fields(git(t, r.Dir(), "cat-file", "--batch-all-objects", "--batch-check=%(objectname)"))
	for _, h := range objects {
		if r.view.IsTip(Hash(h)) != listed[Hash(h)] {
			t.Errorf("the object %s is a tip: %v, and is listed: %v", h, r.view.IsTip(Hash(h)), listed[Hash(h)])
		}
	}
}

// TestRefSnapshotScope checks for every grant that the snapshot lists the same refs as git
// with all other refs hidden.
func TestRefSnapshotScope(t *testing.T) {
	r := newRepo(t)
	tip := commit(t, r, "main", "One", "a", "1")
	git(t, r.Dir(), "tag", "-a", "-m", "One", "one", string(tip))
	for _, ref := range []string{"refs/heads/ramus/a", "refs/heads/ramus/b", "refs/heads/ramus-a", "refs/heads/mainly",
		"refs/ramus/runs/a", "refs/ramus/state/a"} {
		git(t, r.Dir(), "update-ref", ref, string(tip))
	}
	for _, g := range []Grant{
		{},
		{Read: []string{"refs/heads/main"}},
		{Read: []string{"refs/heads/main"}, Write: []string{"refs/heads/ramus/a"}},
		{Read: []string{"refs/heads/*"}},
		{Read: []string{"refs/heads/ramus/*", "refs/tags/*"}},
		{Read: []string{"refs/heads/none"}, Write: []string{"refs/*"}},
		{Read: []string{"refs/heads/main", "refs/ramus/runs/*"}, Write: []string{"refs/ramus/runs/a"}},
		{Read: []string{"refs/heads/m"}},
	} {
		body := lsRefs("peel", "symrefs")
		out, err := r.server.git.Output(t.Context(),
			gitcmd.Command{Args: []string{"upload-pack", "--stateless-rpc", r.Dir()},
				Config: access{grant: g, dir: r.Dir()}.config(r.server.limits), Env: []string{"GIT_PROTOCOL=version=2"},
				In: bytes.NewReader(body)})
		if err != nil {
			t.Fatal(err)
		}
		q, err := protocol.ParseRequest(bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if err := r.view.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := string(r.view.List(g, &q.Refs)); got != string(out) {
			t.Errorf("%v %v:\n%s\nwant\n%s", g.Read, g.Write, got, out)
		}
	}
}

// TestRefSnapshotIncremental changes one of 10,000 branches. Only that branch is read, and no
// git is started.
func TestRefSnapshotIncremental(t *testing.T) {
	r := newRepo(t)
	tip := commit(t, r, "main", "One", "a", "1")
	next := commit(t, r, "main", "Two", "a", "2")
	var packed strings.Builder
	packed.WriteString("# pack-refs with: peeled fully-peeled sorted \n")
	for i := range 10_000 {
		fmt.Fprintf(&packed, "%s refs/heads/many/%05d\n", tip, i)
	}
	write(t, filepath.Join(r.Dir(), "packed-refs"), packed.String())
	lists(t, r, "peel", "symrefs")
	n := 0
	r.view.Each(Grant{}, nil, func(*refview.Ref) { n++ })
	if n != 10_001 {
		t.Fatal(n)
	}
	before := r.server.Stats().Children
	for i := range 20 {
		name := fmt.Sprintf("refs/heads/many/%05d", i*7)
		turn := r.view.Version()
		if err := r.Update(t.Context(), RefUpdate{Name: name, New: next}); err != nil {
			t.Fatal(err)
		}
		if err := r.view.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		var at Hash
		r.view.Each(Grant{}, []string{name}, func(ref *refview.Ref) { at = ref.Hash })
		if at != next || r.view.Version() != turn+1 {
			t.Fatal("not followed", r.view.Version()-turn)
		}
	}
	if n := r.server.Stats().Children - before; n != 0 {
		t.Errorf("%d git processes for 20 updates", n)
	}
	lists(t, r, "peel", "symrefs")
}

// v2Fetch returns a request of a fetch.
func v2Fetch(args ...string) []byte {
	b := append(protocol.AppendLine(protocol.AppendLine(protocol.AppendLine(nil, "command=fetch"), "agent=git/test"),
		"object-format=sha1"), "0001"...)
	for _, a := range args {
		b = protocol.AppendLine(b, a, "\n")
	}
	return append(b, protocol.FlushLine...)
}
