package executor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/upstream"
	"github.com/ramus-dev/ramus/gitd"
)

// origin is an upstream repository, and a world whose configuration names it.
type origin struct {
	w   *world
	dir string
}

// newUpstream returns a world whose repository app is configured and not imported.
func newUpstream(t *testing.T, opts func(*executor.Executor)) *origin {
	t.Helper()
	u := &origin{dir: filepath.Join(t.TempDir(), "upstream")}
	u.w = &world{t: t}
	u.w.sh(t.TempDir(), "git init -q -b main "+u.dir)
	for _, word := range []string{"one", "two", "three"} {
		u.push(t, word)
	}
	u.w.sh(u.dir, "git branch other HEAD~1 && git tag v1 HEAD~1")
	u.w = newWorld(t, func(x *executor.Executor) {
		x.SetRefreshEvery(time.Millisecond)
		x.Bases.Sources = map[string]upstream.Source{"app": {Schema: []string{"word"},
			Upstream: gitd.Upstream{URL: "file://" + u.dir, Branch: "main"}}}
		if opts != nil {
			opts(x)
		}
	})
	return u
}

// push pushes a commit to upstream and returns it.
func (u *origin) push(t *testing.T, word string) gitd.Hash {
	t.Helper()
	v := *u.w
	v.t = t
	v.sh(u.dir, "echo "+word+" >word && echo "+word+
		" >go.sum && git add -A && git -c user.name=T -c user.email=t@example.org commit -qm "+word)
	return gitd.Hash(strings.TrimSpace(v.sh(u.dir, "git rev-parse HEAD")))
}

func (u *origin) at(t *testing.T, rev string) gitd.Hash {
	t.Helper()
	return gitd.Hash(strings.TrimSpace(u.w.sh(u.dir, "git rev-parse "+rev)))
}

// settled waits until no deploy is pending.
func (u *origin) settled(t *testing.T) upstream.Status {
	t.Helper()
	for range 3000 {
		left, err := os.ReadDir(filepath.Join(u.w.data, "deploys"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if len(left) == 0 {
			repo, err := u.w.git.Repo("app")
			if err != nil {
				return upstream.Status{}
			}
			s, err := u.w.x.Bases.Status(t.Context(), repo)
			if err != nil {
				t.Fatal(err)
			}
			if s.Waiting == 0 && !s.Warming {
				return s
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the deploy is not done")
	return upstream.Status{}
}

func (u *origin) tip(t *testing.T) gitd.Hash {
	t.Helper()
	repo, err := u.w.git.Repo("app")
	if err != nil {
		t.Fatal(err)
	}
	tip, err := repo.Resolve(t.Context(), "main")
	if err != nil {
		t.Fatal(err)
	}
	return tip
}

// TestShallowFallback works on a repository that was never imported, from a
// shallow clone. Containers clone from it, commit and push. A refresh fetches the
// rest of the history.
func TestShallowFallback(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, nil)
	w := u.w
	var group sync.WaitGroup
	for i := range 3 {
		group.Go(func() {
			res, err := w.x.Exec(t.Context(), record.Request{Caller: caller(t, fmt.Sprintf("run:c%d", i)), Repo: "app",
				Command: &record.Command{Shell: "cat word && echo more >>word && git log --oneline | wc -l"}}, nil, nil)
			if err != nil || res.ExitCode != 0 || res.Commit == "" || res.Stdout.Tail != "three\n1\n" {
				t.Errorf("%+v %v", res, err)
			}
		})
	}
	group.Wait()
	repo, err := w.git.Repo("app")
	if err != nil {
		t.Fatal(err)
	}
	s, err := w.x.Bases.Status(t.Context(), repo)
	if err != nil || !s.Shallow || s.Refreshed.IsZero() {
		t.Fatalf("%+v %v", s, err)
	}
	// One command runs in the same container, and one in a new container.
	res, err := w.x.Exec(t.Context(),
		record.Request{Caller: caller(t, "run:c0"), Command: &record.Command{Shell: "echo again >>word"}}, nil, nil)
	if err != nil || res.Commit == "" {
		t.Fatalf("%+v %v", res, err)
	}
	if err := w.x.Fleet.Remove(t.Context(), "run:c0"); err != nil {
		t.Fatal(err)
	}
	res, err = w.x.Exec(t.Context(), record.Request{Caller: caller(t, "run:c0"),
		Command: &record.Command{Shell: "cat word; echo thrice >>word"}}, nil, nil)
	if err != nil || res.Commit == "" || res.Stdout.Tail != "three\nmore\nagain\n" {
		t.Fatalf("%+v %v", res, err)
	}
	four := u.push(t, "four")
	done, err := w.x.Bases.Refresh(t.Context(), upstream.Deploy{Repo: "app"}, nil)
	if err != nil || done.New != four {
		t.Fatalf("%+v %v", done, err)
	}
	if repo.Shallow() {
		t.Error("it is shallow still")
	}
	if n := strings.TrimSpace(w.sh(repo.Dir(), "git rev-list --count main")); n != "4" {
		t.Errorf("%s commits, want 4", n)
	}
	for rev, want := range map[string]string{"refs/heads/other": "HEAD~2", "refs/tags/v1": "HEAD~2"} {
		if h, err := repo.Resolve(t.Context(), rev); err != nil || h != u.at(t, want) {
			t.Errorf("%s: %s %v", rev, h, err)
		}
	}
	// The callers' branches continue, and have their whole history now.
	res, err = w.x.Exec(t.Context(),
		record.Request{Caller: caller(t, "run:c0"), Command: &record.Command{Shell: "echo last >>word"}}, nil, nil)
	if err != nil || res.Commit == "" {
		t.Fatalf("%+v %v", res, err)
	}
	if n := strings.TrimSpace(w.sh(repo.Dir(), "git rev-list --count ramus/run-c0")); n != "7" {
		t.Errorf("%s commits, want 7", n)
	}
	// Both changed the file since the common commit, which is known now.
	merged, err := w.x.Merge(t.Context(), "run:c0", record.Merge{Strategy: gitd.StrategyMerge})
	if err != nil || merged.Merged || len(merged.Conflicts) != 1 || merged.Conflicts[0] != "word" {
		t.Errorf("%+v %v", merged, err)
	}
	if _, err := w.x.Submit(t.Context(),
		record.Request{Repo: "none", Command: &record.Command{Shell: "true"}}); !errors.Is(err, gitd.ErrNotFound) {
		t.Errorf("a repository that nobody configured: %v", err)
	}
}

// TestClaimImports claims a run in a repository that does not exist yet. The claim
// imports the repository, even before the task is known.
func TestClaimImports(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, nil)
	run, fresh, err := u.w.x.Claim(t.Context(), record.Request{Key: "k", Caller: caller(t, "conv:x"), Repo: "app"})
	if err != nil || !fresh {
		t.Fatal(run, err)
	}
	if _, err := u.w.x.End(t.Context(), run.Name(), executor.Ending{}); err != nil {
		t.Fatal(err)
	}
}

// TestDeployOutlivesServerAndUpstream accepts deploys. Each is done, although the
// server is killed or upstream is away.
func TestDeployOutlivesServerAndUpstream(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, func(x *executor.Executor) { x.SetRefreshEvery(time.Hour) })
	w := u.w
	two := u.at(t, "HEAD~1")
	if err := os.Rename(u.dir, u.dir+".away"); err != nil {
		t.Fatal(err)
	}
	d := upstream.Deploy{Repo: "app", Commit: two, Environment: "dev", ImageDigest: "sha256:00",
		SentAt: time.Unix(1_700_000_000, 0)}
	if known, err := w.x.Bases.Accept(t.Context(), d); err != nil || known {
		t.Fatal(known, err)
	}
	if known, err := w.x.Bases.Accept(t.Context(), d); err != nil || !known {
		t.Error("the same news are news again", err)
	}
	w.stop(false)
	if err := os.Rename(u.dir+".away", u.dir); err != nil {
		t.Fatal(err)
	}
	w.start()
	u.settled(t)
	if _, err := w.git.Repo("app"); err != nil {
		t.Fatal(err)
	}
	repo, _ := w.git.Repo("app")
	base, err := repo.LatestBase(t.Context())
	if err != nil || base.Commit != two || base.ImageDigest != "sha256:00" || !base.SentAt.Equal(d.SentAt) ||
		base.Schema == "" ||
		base.Lockfiles["go.sum"] == "" || base.Platform == "" {
		t.Fatalf("%+v %v", base, err)
	}
	if err := repo.CheckBase(t.Context(), base.Hash); err != nil {
		t.Error(err)
	}
	if known, err := w.x.Bases.Accept(t.Context(), d); err != nil || !known {
		t.Error("what was done is news again", err)
	}

	// A replay of the first message after another deploy is still the old deploy.
	e := upstream.Deploy{Repo: "app", Commit: u.at(t, "HEAD"), SentAt: time.Unix(1_700_000_100, 0)}
	if known, err := w.x.Bases.Accept(t.Context(), e); err != nil || known {
		t.Fatal(known, err)
	}
	u.settled(t)
	if known, err := w.x.Bases.Accept(t.Context(), d); err != nil || !known {
		t.Error("a replay is news", err)
	}
	// A deploy of the same commit at another time is a new deploy.
	d.SentAt = time.Unix(1_700_000_200, 0)
	if known, err := w.x.Bases.Accept(t.Context(), d); err != nil || known {
		t.Error(known, err)
	}
	u.settled(t)
	if base, err := repo.LatestBase(t.Context()); err != nil || base.Commit != two || base.Head != e.Commit || u.tip(t) != e.Commit {
		t.Errorf("%+v %v: an older commit is recorded and moves nothing", base, err)
	}
}

func TestDeployIsTriedAgain(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, nil)
	w := u.w
	if _, err := w.x.Bases.Refresh(t.Context(), upstream.Deploy{Repo: "app"}, nil); err != nil {
		t.Fatal(err)
	}
	// The commit is not yet on upstream's branch, because a deploy may arrive
	// before the replica has it.
	late := u.push(t, "late")
	w.sh(u.dir, "git update-ref refs/heads/main HEAD~1 && git update-ref refs/heads/aside "+string(late))
	w.stop(false)
	var asked atomic.Int64
	opts := w.opts
	w.opts = func(x *executor.Executor) {
		opts(x)
		up := x.Bases.Sources["app"]
		up.URL = "http://127.0.0.1:9/app.git"
		up.Credential = func(context.Context) (gitd.Credential, error) {
			asked.Add(1)
			return gitd.Credential{}, errors.New("no credential today")
		}
		x.Bases.Sources["app"] = up
	}
	w.start()
	before := u.tip(t)
	if _, err := w.x.Bases.Accept(t.Context(), upstream.Deploy{Repo: "app", Commit: late}); err != nil {
		t.Fatal(err)
	}
	if s := u.settled(t); !strings.Contains(s.Error, "no credential today") || s.Refreshed.IsZero() {
		t.Errorf("%+v", s)
	}
	if n := asked.Load(); n != 10 {
		t.Errorf("upstream was tried %d times, want 10", n)
	}
	if u.tip(t) != before {
		t.Error("the base moved")
	}
	w.stop(false)
	w.opts = opts
	w.start()
	_, err := w.x.Bases.Refresh(t.Context(), upstream.Deploy{Repo: "app", Commit: late}, nil)
	if !errors.Is(err, gitd.ErrNotFound) {
		t.Errorf("a commit that is not on upstream's branch: %v", err)
	}

	// A diverged deploy is dropped at once, with a remedy.
	repo, _ := w.onBaseOf("app", map[string]string{"ours": "1"})
	diverged := u.push(t, "theirs")
	if _, err := w.x.Bases.Accept(t.Context(), upstream.Deploy{Repo: "app", Commit: diverged}); err != nil {
		t.Fatal(err)
	}
	if s := u.settled(t); !strings.Contains(s.Error, "diverged") || !strings.Contains(s.Error, "neither contains the other") {
		t.Errorf("%+v", s)
	}
	if list, err := repo.Bases(t.Context(), 0); err != nil || len(list) != 1 {
		t.Errorf("%d manifests, want 1: %v", len(list), err)
	}
}

func TestDeploysThatAreRefused(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, nil)
	whole := gitd.Hash(strings.Repeat("ab", 20))
	for name, d := range map[string]upstream.Deploy{
		"no repository":   {Commit: whole},
		"a path":          {Repo: "../app", Commit: whole},
		"unknown":         {Repo: "none", Commit: whole},
		"no commit":       {Repo: "app"},
		"a branch":        {Repo: "app", Commit: "main"},
		"an abbreviation": {Repo: "app", Commit: "abcdef12"},
		"two schemas":     {Repo: "app", Commit: whole, SchemaHash: "x", SchemaFiles: []string{"y"}},
		"many schemas":    {Repo: "app", Commit: whole, SchemaFiles: make([]string, 101)},
		"a long text":     {Repo: "app", Commit: whole, Environment: strings.Repeat("x", 501)},
		"two lines":       {Repo: "app", Commit: whole, ImageDigest: "a\nb"},
	} {
		if _, err := u.w.x.Bases.Accept(t.Context(), d); !errors.Is(err, record.ErrInvalid) &&
			!errors.Is(err, gitd.ErrInvalid) && !errors.Is(err, gitd.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(u.w.data, "deploys")); !errors.Is(err, os.ErrNotExist) {
		t.Error("something was accepted", err)
	}
}

// TestManyDeploys accepts many deploys at once. The base ends at the newest, and
// each has a manifest.
func TestManyDeploys(t *testing.T) {
	t.Parallel()
	u := newUpstream(t, nil)
	var commits []gitd.Hash
	for i := range 8 {
		commits = append(commits, u.push(t, fmt.Sprintf("w%d", i)))
	}
	var group sync.WaitGroup
	for _, c := range commits {
		for range 3 {
			group.Go(func() {
				if _, err := u.w.x.Bases.Accept(t.Context(), upstream.Deploy{Repo: "app", Commit: c}); err != nil {
					t.Error(err)
				}
			})
		}
	}
	group.Wait()
	u.settled(t)
	if tip := u.tip(t); tip != commits[7] {
		t.Errorf("the base is at %s, want %s", tip, commits[7])
	}
	repo, err := u.w.git.Repo("app")
	if err != nil {
		t.Fatal(err)
	}
	list, err := repo.Bases(t.Context(), 0)
	if err != nil || len(list) < len(commits) {
		t.Fatalf("%d manifests, want at least %d: %v", len(list), len(commits), err)
	}
	for _, b := range list {
		if err := repo.CheckBase(t.Context(), b.Hash); err != nil {
			t.Error(err)
		}
	}
}
