package executor_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/docker"
	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/remains"
)

// boundWorld returns a world that has a base layer for callers.
func boundWorld(t *testing.T, engine string, opts func(*executor.Executor)) *world {
	t.Helper()
	if os.Getenv("RAMUS_WORK_TREE") == "portable" {
		t.Skip("not with RAMUS_WORK_TREE=portable: nothing is bound from outside then")
	}
	w := newWorldOn(t, engine, func(x *executor.Executor) {
		x.SetAskFrom(1) // as in a large repository
		if opts != nil {
			opts(x)
		}
	})
	if w.x.Fleet.Keeper == nil {
		t.Skip("cannot run here: work trees cannot be bound from outside")
	}
	w.layer()
	return w
}

// TestGitAsks has git inside ask the host for changes if the layer has as many files as that takes, and look at all files itself otherwise.
func TestGitAsks(t *testing.T) {
	t.Parallel()
	for from, want := range map[int]string{1: "asks\n", 1000: "looks\n", 0: "looks\n"} {
		w := boundWorld(t, "sandbox", func(x *executor.Executor) { x.SetAskFrom(from) })
		_, out, errs := w.exec("run:one", "git config core.fsmonitor >/dev/null && echo asks || echo looks; echo x >new; git status --porcelain")
		if out != want+"?? new\n" {
			t.Errorf("from %d files: %q %s", from, out, errs)
		}
	}
}

// TestBound binds a work tree and commits from outside, on each engine, and counts the work.
func TestBound(t *testing.T) {
	t.Parallel()
	onEngines(t, bound)
}

func bound(t *testing.T, engine string) {
	w := boundWorld(t, engine, nil)
	res, out, errs := w.exec("run:one",
		"git status --porcelain; echo more >>greeting.txt; echo new >new; rm sub/a; echo x >x.log; git status --porcelain; echo made >/artifacts/left")
	if want := " M greeting.txt\n D sub/a\n?? new\n"; res.ExitCode != 0 || res.Commit == "" || out != want {
		t.Fatalf("%+v, %q, %s", res, out, errs)
	}
	if got := w.inRepo("show", "--format=%an %cn", "--name-status",
		"ramus/run-one"); got != "Ada ramus\n\nM\tgreeting.txt\nA\tnew\nD\tsub/a" {
		t.Errorf("committed: %q", got)
	}
	_, out, errs = w.exec("run:one",
		"git status --porcelain; git diff --cached; git fsck --strict && git rev-parse HEAD HEAD@{1}~0 && ls -A . sub")
	if want := string(res.Commit) + "\n" + w.inRepo("rev-parse", "main") +
		"\n.:\n.git\n.gitignore\ngreeting.txt\nnew\nsub\nx.log\n\nsub:\n"; out != want {
		t.Errorf("%q, want %q, %s", out, want, errs)
	}
	s := w.x.Stats()
	if s.Bound != 1 || s.Snapshots != 2 || s.Hashed != 2 || len(s.Portable) > 0 || s.Layers != 1 {
		t.Errorf("%+v", s)
	}
	if got := w.inRepo("show", "refs/ramus/runs/run-one/"+strings.TrimPrefix(res.Run, "run:one/")+":artifacts/left"); got != "made" {
		t.Errorf("artifact: %q", got)
	}
	// A new container has the same files, and on disk only the difference.
	if err := w.x.Fleet.Remove(t.Context(), "run:one"); err != nil {
		t.Fatal(err)
	}
	_, out, errs = w.exec("run:one",
		"git status --porcelain; git diff-files; git fsck --strict && git log --format=%H && cat new greeting.txt && ls -A sub; ls x.log")
	if want := w.inRepo("log", "--format=%H", "ramus/run-one") + "\nnew\nhello\nmore\n"; out != want {
		t.Errorf("%q, want %q, %s", out, want, errs)
	}
	if s := w.x.Stats(); s.Bound != 2 || len(s.Portable) > 0 {
		t.Errorf("%+v", s)
	}
}

// TestOneProcess counts the cost of a command in a container that is at work already. It is one
// process inside, none outside, and no request to the engine. If the command changes files the
// commit is made without git. Only the diff in its evidence comes from git. The test counts the children of this process, so
// it runs alone.
func TestOneProcess(t *testing.T) {
	onEngines(t, oneProcess)
}

func oneProcess(t *testing.T, engine string) {
	w := boundWorld(t, engine, nil)
	w.exec("run:one", "true")
	asked := func() int64 { return 0 }
	if e, ok := w.x.Fleet.Engine.(*docker.Engine); ok {
		asked = e.Requests
	}
	for _, test := range []struct {
		line string
		git  int // for each
	}{
		{"echo $$", 0},
		{"echo $$ >>greeting.txt; echo $$", 1},
	} {
		requests, children, before := asked(), w.git.Stats().Children, reaped(t)
		// Process ids inside are assigned in order. Threads of the runner get some, too, now and
		// then. A second process per command would show between any two commands.
		last, least, times := 0, math.MaxInt, 0
		for ; times < 6 || least != 1 && times < 15; times++ {
			res, out, errs := w.exec("run:one", test.line)
			pid, err := strconv.Atoi(strings.TrimSpace(out))
			if err != nil || (res.Commit != "") != (test.git > 0) {
				t.Fatalf("%+v, %q, %s", res, out, errs)
			}
			if times > 0 {
				least = min(least, pid-last)
			}
			last = pid
		}
		if least != 1 {
			t.Errorf("%s: from one to the next %d processes are started inside, want 1", test.line, least)
		}
		if n := int(w.git.Stats().Children - children); n != test.git*times {
			t.Errorf("%s: git was started %d times for %d, want %d", test.line, n, times, test.git*times)
		}
		if test.git == 0 && reaped(t) != before {
			t.Errorf("%s: other programs were started outside", test.line)
		}
		if n := asked() - requests; n != 0 {
			t.Errorf("%s: the engine was asked %d times for %d, want never", test.line, n, times)
		}
	}
}

// reaped returns the page faults of the ended children of this process. Each further child adds
// some.
func reaped(t *testing.T) (pages int64) {
	t.Helper()
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &use); err != nil {
		t.Fatal(err)
	}
	return use.Minflt + use.Majflt
}

// look prints git's view of a work tree, and the files that exist.
const look = `git status --porcelain=v2 -b -uall | grep -v '^# branch.oid'; git status --short; git diff --cached --raw --no-abbrev; git diff --raw; ` +
	`git ls-files --stage; find . -path ./.git -prune -o -printf '%p %y %m %l\n' | LC_ALL=C sort; git stash list | wc -l; git fsck --strict 2>&1 | grep -v '^dangling'; echo`

// TestBothWays makes the same random changes in work trees that are bound from outside and in
// those that git made. The branches and the work trees are equal after each step.
// RAMUS_TEST=full makes many more changes.
func TestBothWays(t *testing.T) {
	t.Parallel()
	rounds, steps := 1, 12
	if os.Getenv("RAMUS_TEST") == "full" {
		rounds, steps = 20, 40
	}
	var stats [2]executor.Stats
	var shown [2][][]string // by round and step
	var done [][]string
	for i, open := range []func(t *testing.T) *world{
		// Now and then a new container finds its earlier changes in a layer of its branch.
		func(t *testing.T) *world {
			return boundWorld(t, "sandbox", func(x *executor.Executor) { x.SetBranchLayers(2) })
		},
		newPortableWorld,
	} {
		t.Run([]string{"bound", "portable"}[i], func(t *testing.T) {
			w := open(t)
			w.exec("run:base", `mkdir -p d/e f/g h; for i in 1 2 3 4 5; do echo $i >d/$i; echo $i >d/e/$i; echo $i >f/g/$i; printf "%s\r\n" $i >h/$i; done; echo "*.tmp" >f/.gitignore; ln -s d/1 link`)
			if _, err := w.x.Merge(t.Context(), "run:base",
				record.Merge{By: gitd.Person{Name: "Ada", Email: "ada@example.com"}}); err != nil {
				t.Fatal(err)
			}
			w.layer()
			for round := range rounds {
				name := fmt.Sprintf("run:both-%d", round)
				rnd := rand.New(rand.NewPCG(uint64(round), 0))
				var all, lines []string
				for range steps {
					step := randomStep(rnd, name)
					lines = append(lines, step)
					if step == "again" {
						if err := w.x.Fleet.Remove(t.Context(), name); err != nil {
							t.Fatal(err)
						}
						step = ":"
					}
					_, out, errs := w.exec(name, look+"\n{ "+step+"\n} >/dev/null 2>&1\n"+look)
					all = append(all, out+errs+w.inRepo("rev-parse",
						"ramus/run-"+strings.TrimPrefix(name, "run:")+"^{tree}"))
				}
				shown[i], done = append(shown[i], all), append(done, lines)
			}
			stats[i] = w.x.Stats()
		})
		if len(shown[i]) < rounds {
			return // it failed, or nothing can be bound here
		}
	}
	for round := range shown[1] {
		for step, want := range shown[1][round] {
			if got := shown[0][round][step]; got != want {
				t.Errorf("round %d: after\n%s\nthe fast way shows\n%s\nand git's own\n%s", round,
					strings.Join(done[round][:step+1], "\n"), got, want)
				break
			}
		}
	}
	s := stats[0]
	t.Logf("%d of %d from outside, %v", s.Snapshots, s.Commands, s.Portable)
	if s.Snapshots == 0 {
		t.Error("nothing went the fast way")
	}
}

// newPortableWorld returns a world where git in the containers does all the work.
func newPortableWorld(t *testing.T) *world {
	return newWorld(t, func(x *executor.Executor) { x.Fleet.Keeper = nil })
}

// randomStep returns a command that changes a work tree at random.
func randomStep(rnd *rand.Rand, caller string) string {
	pick := func(list ...string) string { return list[rnd.IntN(len(list))] }
	path := func() string {
		return pick("d", "d/e", "f", "f/g", "h", "n", "n/o") + "/" + pick("1", "2", "3", "x", "y.tmp", "z.log", "o o")
	}
	dir := func() string { return pick("d", "d/e", "f", "f/g", "h", "n", "n/o", "m") }
	one := func() string {
		p, q := "'"+path()+"'", "'"+path()+"'"
		switch rnd.IntN(14) {
		case 0, 1, 2:
			return "mkdir -p $(dirname " + p + "); echo " + fmt.Sprint(rnd.IntN(9)) + " >>" + p
		case 3:
			return "rm -f " + p
		case 4:
			return "mv " + p + " " + q
		case 5:
			return "mv " + dir() + " " + dir()
		case 6:
			return "rm -rf " + dir()
		case 7:
			return "chmod " + pick("+x ", "-x ") + p
		case 8:
			return "ln -sfn " + pick("1", "../h", "/nowhere") + " " + p
		case 9:
			return "rm -rf " + p + "; mkdir -p " + p + "; echo in >" + p + "/in"
		case 10:
			d := dir()
			return "rm -rf " + d + "; echo file >" + d
		case 11:
			from, to := dir(), dir()
			if strings.HasPrefix(to+"/", from+"/") {
				return ":" // the result of cp into itself depends on the order of entries
			}
			return "cp -r " + from + " " + to
		case 12:
			return "echo '" + pick("*.tmp", "!z.log", "o o", "/d") + "' >>" + pick(".gitignore", "d/.gitignore",
				"n/.gitignore")
		}
		return "cp " + p + " " + q
	}
	branch := "ramus/run-" + strings.TrimPrefix(caller, "run:")
	switch rnd.IntN(16) {
	case 0:
		return "again"
	case 1:
		return one() + "; git add -A; " + one()
	case 2:
		return one() + "; git add -A; git commit -qm own; " + one()
	case 3:
		return one() + "; git stash -u; " + one() + "; git stash pop"
	case 4:
		return one() + "; git checkout -qf " + branch + "~1 -- .; " + one()
	case 5:
		return "git gc -q; " + one()
	case 6:
		return one() + "; git mv d n; " + one()
	case 7:
		return one() + "; git reset -q --hard; " + one()
	}
	return one() + "; " + one() + "; " + one()
}

// TestSalvage kills a container in the middle of a command. The content of its work tree is kept
// and reported, and can be forked.
func TestSalvage(t *testing.T) {
	t.Parallel()
	w := boundWorld(t, "sandbox", nil)
	r, err := w.x.Submit(t.Context(), record.Request{Caller: caller(t, "run:lost"), Repo: "demo",
		Command: &record.Command{Shell: "echo half >half; rm sub/a; echo out; sleep 1000"}})
	if err != nil {
		t.Fatal(err)
	}
	w.until(r.Name(), printed("out"))
	remains.KillContainers(w.data)
	r = w.wait(r.Name())
	if r.Reason != record.ReasonContainerLost || !strings.Contains(r.Error, "--fork run:lost@") {
		t.Errorf("%+v", r)
	}
	if got := w.inRepo("show", "--format=%s", "--name-status",
		"refs/ramus/wip/run-lost"); got != "What the work tree held when its container was lost\n\nA\thalf\nD\tsub/a" {
		t.Errorf("kept: %q", got)
	}
	if got := w.inRepo("rev-parse", "ramus/run-lost"); got != w.inRepo("rev-parse", "main") {
		t.Errorf("the branch moved to %s", got)
	}
	c, err := w.x.Caller(t.Context(), "run:lost")
	if err != nil || string(c.Kept) != w.inRepo("rev-parse", "refs/ramus/wip/run-lost") {
		t.Errorf("%+v, %v", c, err)
	}
	res, err := w.x.Exec(t.Context(), record.Request{Caller: caller(t, "run:goes-on"),
		Fork: &record.Fork{Of: "run:lost", Commit: c.Kept}, Command: &record.Command{Shell: "cat half"}}, nil, nil)
	if err != nil || res.ExitCode != 0 {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestBranchLayer changes many files on a branch. The caller's next container gets them in a layer
// of the branch. So only later changes are written to bind the work tree.
func TestBranchLayer(t *testing.T) {
	t.Parallel()
	w := boundWorld(t, "sandbox", func(x *executor.Executor) { x.SetBranchLayers(20) })
	layers := func(n int64) {
		t.Helper()
		for end := time.Now().Add(time.Minute); w.x.Stats().BranchLayers != n; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d layers of branches, want %d", w.x.Stats().BranchLayers, n)
			}
		}
	}
	w.exec("run:base", `mkdir -p d/e big; for i in 1 2 3 4 5 6 7 8 9; do echo $i >d/$i; echo $i >d/e/$i; echo $i >big/$i; done; ln -s d/1 link; echo '*.tmp' >d/.gitignore`)
	layers(1)
	if _, err := w.x.Merge(t.Context(), "run:base", record.Merge{By: gitd.Person{Name: "Ada", Email: "ada@example.com"}}); err != nil {
		t.Fatal(err)
	}
	if err := w.x.Fleet.Remove(t.Context(), "run:base"); err != nil {
		t.Fatal(err)
	}
	w.layer()
	// written returns the number of files that are written to bind the caller's work tree, by a
	// command that writes nothing.
	written := func(caller string) (n int) {
		t.Helper()
		if err := w.x.Fleet.Remove(t.Context(), caller); err != nil {
			t.Fatal(err)
		}
		w.exec(caller, "true")
		for _, upper := range glob(t, filepath.Join(w.data, "fleet", "hosts", "*", "tree", "upper")) {
			err := filepath.WalkDir(upper, func(_ string, e os.DirEntry, err error) error {
				if err == nil && !e.IsDir() {
					n++
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		return n
	}
	bound := written("run:new")
	if err := w.x.Fleet.Remove(t.Context(), "run:new"); err != nil {
		t.Fatal(err)
	}
	same := func(when string) {
		t.Helper()
		_, before, _ := w.exec("run:much", look)
		if got := written("run:much"); got != bound {
			t.Errorf("%s: %d files were written for a work tree whose layer has them all, want %d as for one that changes nothing", when, got, bound)
		}
		_, after, errs := w.exec("run:much", look)
		if after != before || errs != "" {
			t.Errorf("%s: the container shows\n%s\nand a new one over its branch's layer\n%s\n%s", when, before, after, errs)
		}
		_, tree, _ := w.exec("run:much",
			"export GIT_INDEX_FILE=/tmp/index; git read-tree --empty; git add -A . && git write-tree; rm /tmp/index")
		if want := w.inRepo("rev-parse", "ramus/run-much^{tree}") + "\n"; tree != want {
			t.Errorf("%s: the tree inside is %s, the branch's %s", when, tree, want)
		}
	}
	w.exec("run:much", `mv d moved; rm -r big; echo file >big; chmod +x greeting.txt; rm link; mkdir link; echo in >link/in; printf 'x\n' >"odd
name"; ln -s nowhere dangling; rm -r sub`)
	layers(2)
	same("at the layer's commit")
	portable := w.x.Stats().Portable
	// A few more changes are written over the layer, with an index.
	w.exec("run:much", "echo more >>moved/1; rm moved/e/2; mkdir n; echo n >n/n; rm greeting.txt")
	// The commit, its pack with its index, the two files, two whiteouts, and the index.
	if got, want := written("run:much"), bound+2+2+2+1; got != want {
		t.Errorf("%d files were written for four that differ from the layer, want %d", got, want)
	}
	hashed := w.x.Stats().Hashed
	_, out, errs := w.exec("run:much",
		"git status --porcelain; git fsck --strict; git log --format=%s | wc -l; mv moved again; echo x >again/x.tmp; echo y >again/y; git status --short; rm again/x.tmp")
	if !strings.HasPrefix(out, "4\n") || !strings.Contains(out, "?? again/") || strings.Contains(out, "x.tmp") || errs != "" {
		t.Errorf("%q %s", out, errs)
	}
	if s := w.x.Stats(); !maps.Equal(s.Portable, portable) || s.Hashed != hashed+2 {
		t.Errorf("%d files were read, want the new one and the one that was written to the folder before it was renamed: %+v", s.Hashed-hashed, s)
	}
	layers(3)
	same("over a folder of the first layer that was renamed")
	// The next server finds the layer, and the container that is over it.
	w.stop(true)
	w.start()
	_, out, errs = w.exec("run:much", "git status --porcelain; ls again; echo z >z")
	if out != "1\n2\n3\n4\n5\n6\n7\n8\n9\ne\ny\n" {
		t.Errorf("%q %s", out, errs)
	}
	if s := w.x.Stats(); s.Snapshots != 1 || len(s.Portable) > 0 {
		t.Errorf("%+v", s)
	}
	own := filepath.Join(w.data, "layers", "demo", "*.run-much")
	if list := glob(t, own); len(list) > 2 {
		t.Errorf("layers of the branch: %q, want the newest, and one that a container lay over when that was made", list)
	}
	// After another boot of the machine the layer is not used, because it was not made durable.
	w.stop(false)
	for _, dir := range glob(t, own) {
		path := filepath.Join(dir, "layer.json")
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path, []byte(strings.Replace(string(text), `"boot": "`, `"boot": "another-`, 1)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w.start()
	if _, out, errs = w.exec("run:much", "git status --porcelain; cat z"); out != "z\n" {
		t.Errorf("%q %s", out, errs)
	}
	layers(1)
	// The layers of an earlier boot are removed in the background.
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		list := glob(t, own)
		if len(list) == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("layers of the branch: %q, want the one that was made now", list)
		}
	}
	// Over the new layer git has nothing to write, so the next commit is made from outside.
	if got := written("run:much"); got != bound {
		t.Errorf("%d files were written, want %d", got, bound)
	}
	portable = w.x.Stats().Portable
	res, out, errs := w.exec("run:much", "git status --porcelain; echo q >q; git status --porcelain")
	if s := w.x.Stats(); res.Commit == "" || out != "?? q\n" || errs != "" || !maps.Equal(s.Portable, portable) {
		t.Errorf("%q %s %+v", out, errs, s)
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	list, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// leftless is a Keeper that cannot bind /artifacts.
type leftless struct{ layer.Keeper }

func (k leftless) Bind(ctx context.Context, b layer.Binding) error {
	if b.Target == containers.ArtifactsDir {
		return io.ErrUnexpectedEOF // as of a helper that has just ended
	}
	return k.Keeper.Bind(ctx, b)
}

// TestBoundNot fails to bind /artifacts. The container is used nevertheless.
func TestBoundNot(t *testing.T) {
	t.Parallel()
	w := boundWorld(t, "sandbox", func(x *executor.Executor) {
		if x.Fleet.Keeper != nil {
			x.Fleet.Keeper = leftless{x.Fleet.Keeper}
		}
	})
	res, _, errs := w.exec("run:one", "echo x >x; echo y >/artifacts/y")
	if got := w.x.Stats().Portable; res.Commit == "" || res.ExitCode != 0 || got["bind: error"] != 1 {
		t.Errorf("%+v %s %v", res, errs, got)
	}
}

// TestLayers makes layers beyond their bound. Those below containers stay, and the remains of a
// killed process are removed.
func TestLayers(t *testing.T) {
	t.Parallel()
	w := boundWorld(t, "sandbox", func(x *executor.Executor) { x.Containers.Layers = 1 })
	w.exec("run:old", "echo x >x")
	list := func() int {
		all, err := filepath.Glob(filepath.Join(w.data, "layers", "demo", "*-*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if _, err := w.x.Merge(t.Context(), "run:old", record.Merge{By: gitd.Person{Name: "Ada", Email: "ada@example.com"}}); err != nil {
		t.Fatal(err)
	}
	w.layer()
	if n := list(); n != 2 {
		t.Errorf("%d layers, want the one that a container uses and the newest", n)
	}
	left := filepath.Join(w.data, "layers", "demo", ".new-killed")
	if err := os.MkdirAll(filepath.Join(left, "upper", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	w.stop(true)
	w.start()
	res, out, errs := w.exec("run:old", "cat x; echo y >y")
	if out != "x\n" || res.Commit == "" {
		t.Errorf("%+v %q %s", res, out, errs)
	}
	// The container outlived its server, and is taken up with the layer below it.
	if res, out, errs = w.exec("run:old", "git status --porcelain; cat y; echo z >z"); out != "y\n" || res.Commit == "" {
		t.Errorf("%+v %q %s", res, out, errs)
	}
	if s := w.x.Stats(); s.Snapshots == 0 {
		t.Errorf("%+v", s)
	}
	if err := w.x.Fleet.Remove(t.Context(), "run:old"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.x.Merge(t.Context(), "run:old", record.Merge{By: gitd.Person{Name: "Ada", Email: "ada@example.com"}}); err != nil {
		t.Fatal(err)
	}
	w.layer()
	if n := list(); n != 1 {
		t.Errorf("%d layers, want the newest", n)
	}
	w.stop(true)
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("what a killed process left is there: %v", err)
	}
	w.start()
}
