package upstream_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/upstream"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/gitd/gittest"
)

var (
	bot = gitd.Person{Name: "ramus", Email: "ramus@example.org"}
	ada = gitd.Person{Name: "Ada", Email: "ada@example.org"}
)

// landing is a repository that was imported from a bare upstream.
type landing struct {
	t     *testing.T
	up    string // upstream
	repo  *gitd.Repo
	bases *upstream.Bases
}

func newLanding(t *testing.T, change func(*upstream.Bases)) *landing {
	t.Helper()
	l := &landing{t: t, up: filepath.Join(t.TempDir(), "up.git")}
	gittest.Run(t, "", "init", "-q", "--bare", "-b", "main", l.up)
	l.theirs("begin")
	git := &gitd.Server{Root: t.TempDir()}
	if err := git.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := git.Close(); err != nil {
			t.Error(err)
		}
		gittest.Run(t, l.repo.Dir(), "fsck", "--strict", "--no-dangling")
		gittest.Run(t, l.up, "fsck", "--strict", "--no-dangling")
	})
	var err error
	if l.repo, err = git.Import(t.Context(), "app", l.up, nil); err != nil {
		t.Fatal(err)
	}
	l.bases = &upstream.Bases{Git: git, Sources: map[string]upstream.Source{}, Dir: t.TempDir(), Bot: bot, Now: time.Now,
		Moved: func(string, string, gitd.Hash) {}, Log: slog.New(slog.DiscardHandler),
		Dependencies: upstream.Dependencies{
			Lacks: func(context.Context, *gitd.Repo, gitd.Hash) (bool, error) { return false, nil },
		}}
	if change != nil {
		change(l.bases)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(func() { cancel(); l.bases.Close() })
	if err := l.bases.Open(ctx); err != nil {
		t.Fatal(err)
	}
	return l
}

// theirs adds a commit to upstream's main, as a push of a person does, and returns it. The commit writes a file. Its
// content is the name unless another one is given.
func (l *landing) theirs(name string, content ...string) gitd.Hash {
	l.t.Helper()
	text := strings.Join(append(content, name+"\n")[:1], "")
	from := ""
	if l.repo != nil {
		from = "from refs/heads/main^0\n"
	}
	cmd := exec.Command("git", "-C", l.up, "fast-import", "--quiet")
	cmd.Stdin = strings.NewReader(fmt.Sprintf("commit refs/heads/main\ncommitter T <t@example.org> %d +0000\ndata %d\n%s\n%sM 100644 inline %s\ndata %d\n%s\n",
		time.Now().Unix(), len(name), name, from, name, len(text), text))
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("%v: %s", err, out)
	}
	return l.there()
}

// ours commits a file on a branch here, from the base if the branch is new.
func (l *landing) ours(branch, name string) gitd.Hash {
	l.t.Helper()
	ref, old := "refs/heads/"+branch, gitd.Hash("")
	from, err := l.repo.Resolve(l.t.Context(), ref)
	if err == nil {
		old = from
	} else if from, err = l.repo.Resolve(l.t.Context(), "refs/heads/main"); err != nil {
		l.t.Fatal(err)
	}
	h, err := l.repo.WriteCommit(l.t.Context(),
		gitd.NewCommit{From: from, Parents: []gitd.Hash{from}, Author: ada, When: time.Now(), Message: name,
			Put: []gitd.File{{Path: name, Content: []byte(name + "\n")}}})
	if err == nil {
		err = l.repo.Update(l.t.Context(), gitd.RefUpdate{Name: ref, New: h, Old: &old})
	}
	if err != nil {
		l.t.Fatal(err)
	}
	return h
}

// merge merges the branch of run:name.
func (l *landing) merge(name string, m record.Merge) (record.Landed, error) {
	l.t.Helper()
	caller, err := record.RunCaller(name)
	if err != nil {
		l.t.Fatal(err)
	}
	if m.Into == "" {
		m.Into = "main"
	}
	if m.Strategy == "" {
		m.Strategy = gitd.StrategyRebase
	}
	return l.bases.Land(l.t.Context(), upstream.Landing{Repo: l.repo, Caller: caller, Merge: m, Committer: bot})
}

func (l *landing) here() gitd.Hash {
	h, err := l.repo.Resolve(l.t.Context(), "refs/heads/main")
	if err != nil {
		l.t.Fatal(err)
	}
	return h
}

func (l *landing) there() gitd.Hash { return gitd.Hash(gittest.Run(l.t, l.up, "rev-parse", "main")) }

// files returns the names of all files of upstream's main.
func (l *landing) files() []string {
	return strings.Fields(gittest.Run(l.t, l.up, "ls-tree", "-r", "--name-only", "main"))
}

// TestPushInTheMiddle has somebody push to upstream in the middle of each of 20 merges, between the merge and its push.
// Nothing is lost, and nothing diverges.
func TestPushInTheMiddle(t *testing.T) {
	const rounds = 20
	var l *landing
	round, pushes := 0, 0
	l = newLanding(t, func(b *upstream.Bases) {
		b.Landing = func(string) {
			if pushes++; pushes <= 1+round%2 { // once or twice
				l.theirs(fmt.Sprintf("theirs-%d-%d", round, pushes))
			}
		}
	})
	want := []string{"begin"}
	for round = range rounds {
		pushes = 0
		name := fmt.Sprintf("ours-%d", round)
		l.ours("ramus/run-"+name, name)
		strategy := []gitd.Strategy{gitd.StrategyRebase, gitd.StrategyMerge, gitd.StrategySquash}[round%3]
		res, err := l.merge(name, record.Merge{By: ada, Strategy: strategy})
		if err != nil || !res.Merged || res.Policy != record.MergePush || res.Tries != 2+round%2 {
			t.Fatalf("round %d: %+v %v", round, res, err)
		}
		if l.here() != l.there() || l.here() != res.Commit {
			t.Fatalf("round %d: here %s, upstream %s, merged %s", round, l.here(), l.there(), res.Commit)
		}
		want = append(want, name)
		for n := range 1 + round%2 {
			want = append(want, fmt.Sprintf("theirs-%d-%d", round, n+1))
		}
	}
	slices.Sort(want)
	if got := l.files(); !slices.Equal(got, want) {
		t.Errorf("upstream has %v, want %v", got, want)
	}
	done, err := l.bases.Refresh(t.Context(), upstream.Deploy{Repo: "app"}, nil)
	if err != nil || done.Old != done.New {
		t.Errorf("%+v %v: the base does not follow", done, err)
	}
}

// TestPushNeverEnds has somebody push before every push. The merge is given up, and nothing is merged.
func TestPushNeverEnds(t *testing.T) {
	var l *landing
	n := 0
	l = newLanding(t, func(b *upstream.Bases) {
		b.Landing = func(string) { n++; l.theirs(fmt.Sprintf("theirs-%d", n)) }
	})
	l.ours("ramus/run-a", "a")
	_, err := l.merge("a", record.Merge{})
	if !errors.Is(err, gitd.ErrConflict) || !strings.Contains(err.Error(), "nothing was merged") || slices.Contains(l.files(), "a") {
		t.Errorf("%v %v", err, l.files())
	}
}

func TestLandRefused(t *testing.T) {
	l := newLanding(t, nil)
	l.ours("ramus/run-a", "a")
	hook := filepath.Join(l.up, "hooks", "update")
	if err := os.WriteFile(hook, []byte("#!/bin/sh\necho protected branch >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	before := l.here()
	_, err := l.merge("a", record.Merge{})
	if !errors.Is(err, gitd.ErrUpstreamRefused) || !upstream.NotLanded(err) {
		t.Fatal(err)
	}
	for _, want := range []string{"nothing was merged", "protected branch", "repos.app.merge: here", "--here", "the token of its forge"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: lacks %q", err, want)
		}
	}
	if l.here() != before || l.there() != before {
		t.Error("a merge that upstream refused is here")
	}
	// Explicitly it is merged here. Upstream takes it with the next merge, when it takes pushes again.
	res, err := l.merge("a", record.Merge{Here: true})
	if err != nil || !res.Merged || !res.Alone || l.there() != before {
		t.Fatalf("%+v %v", res, err)
	}
	if err := os.Remove(hook); err != nil {
		t.Fatal(err)
	}
	l.ours("ramus/run-b", "b")
	if res, err = l.merge("b", record.Merge{}); err != nil || !res.Merged || l.here() != l.there() {
		t.Fatalf("%+v %v", res, err)
	}
	if got := l.files(); !slices.Equal(got, []string{"a", "b", "begin"}) {
		t.Error(got)
	}
	if res, err = l.merge("b", record.Merge{}); err != nil || !res.UpToDate {
		t.Errorf("%+v %v", res, err)
	}
}

func TestLandConflict(t *testing.T) {
	l := newLanding(t, nil)
	l.ours("ramus/run-a", "same")
	before := l.theirs("same", "other\n")
	res, err := l.merge("a", record.Merge{})
	if err != nil || res.Merged || !slices.Equal(res.Conflicts, []string{"same"}) || l.there() != before {
		t.Errorf("%+v %v", res, err)
	}
}

// desk is a Host that keeps what is proposed.
type desk struct {
	up       gitd.Upstream
	proposed []upstream.Proposal
	err      error
}

func (d *desk) Writer(repo string) (gitd.Upstream, bool) { return d.up, repo == "app" }

func (d *desk) Propose(_ context.Context, p upstream.Proposal) (record.Pull, error) {
	if d.err != nil {
		return record.Pull{}, d.err
	}
	d.proposed = append(d.proposed, p)
	return record.Pull{Number: 7, URL: "https://example.org/pull/7", Branch: p.Caller.Branch(),
		Updated: len(d.proposed) > 1}, nil
}

func TestPolicies(t *testing.T) {
	for _, test := range []struct {
		name, configured string
		host, here       bool
		created          bool // here, without upstream
		want             string
		refused          string
	}{
		{name: "default", want: record.MergePush},
		{name: "default with a host", host: true, want: record.MergePull},
		{name: "push", configured: "push", host: true, want: record.MergePush},
		{name: "pull request", configured: "pull-request", host: true, want: record.MergePull},
		{name: "pull request without a host", configured: "pull-request", refused: "the token of its forge"},
		{name: "here", configured: "here", host: true, want: record.MergeHere},
		{name: "here, by word", host: true, here: true, want: record.MergeHere},
		{name: "here, by word and configuration", configured: "here", here: true, want: record.MergeHere},
		{name: "here against the configuration", configured: "push", here: true, refused: "repos.app.merge is push"},
		{name: "created", created: true, want: record.MergeHere},
		{name: "created, but push", created: true, configured: "push", refused: "has no upstream"},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := &desk{}
			l := newLanding(t, func(b *upstream.Bases) {
				if test.host {
					b.Hosts = []upstream.Host{d}
				}
				if test.configured != "" {
					b.Sources["app"] = upstream.Source{Merge: test.configured}
				}
			})
			d.up = gitd.Upstream{URL: l.up}
			if test.created {
				gittest.Run(t, l.repo.Dir(), "config", "--unset", "ramus.upstream")
			}
			before := l.there()
			l.ours("ramus/run-a", "a")
			res, err := l.merge("a", record.Merge{Here: test.here, By: ada})
			if test.refused != "" {
				if err == nil || !strings.Contains(err.Error(), test.refused) || l.here() != before {
					t.Errorf("%+v %v", res, err)
				}
				return
			}
			if err != nil || res.Policy != test.want {
				t.Fatalf("%+v %v, want %s", res, err, test.want)
			}
			if pushed := l.there() != before; pushed != (test.want == record.MergePush) {
				t.Errorf("upstream is at %s", l.there())
			}
			if merged := l.here() != before; merged == (test.want == record.MergePull) {
				t.Errorf("the base is at %s", l.here())
			}
			if test.want == record.MergePull && (len(d.proposed) != 1 || d.proposed[0].Title != "a" ||
				d.proposed[0].Base != "main" || res.Pull == nil || res.Merged) {
				t.Errorf("%+v %+v", res, d.proposed)
			}
		})
	}
}

// TestDiverged repairs a base that has diverged, after it reproduces how that happens: a merge here alone, and a commit
// of somebody at upstream.
func TestDiverged(t *testing.T) {
	for _, how := range []gitd.Repair{gitd.RepairRebase, gitd.RepairReset} {
		t.Run(string(how), func(t *testing.T) {
			l := newLanding(t, nil)
			own := l.ours("ramus/run-a", "a")
			if _, err := l.merge("a", record.Merge{Here: true}); err != nil {
				t.Fatal(err)
			}
			theirs := l.theirs("theirs")
			old := l.here()
			for range 2 {
				if _, err := l.bases.Refresh(t.Context(), upstream.Deploy{Repo: "app"}, nil); !errors.Is(err, gitd.ErrDiverged) {
					t.Fatal(err)
				}
			}
			l.ours("ramus/run-b", "b")
			if _, err := l.merge("b", record.Merge{}); !errors.Is(err, gitd.ErrDiverged) {
				t.Fatal(err)
			}
			done, err := l.bases.Repair(t.Context(), "app", how, ada, nil)
			if err != nil || len(done.Own) != 1 || done.Own[0].Commit != own || done.Own[0].Subject != "a" ||
				done.Commit != theirs || done.New != l.here() {
				t.Fatalf("%+v %v", done, err)
			}
			if kept, err := l.repo.Resolve(t.Context(), done.Kept); err != nil || kept != old {
				t.Errorf("%s is at %s: %v", done.Kept, kept, err)
			}
			if how == gitd.RepairReset && (l.here() != theirs || done.Own[0].New != "") {
				t.Errorf("%+v", done)
			}
			if how == gitd.RepairRebase && (done.Own[0].New != l.here() || l.here() == theirs) {
				t.Errorf("%+v", done)
			}
			if again, err := l.bases.Repair(t.Context(), "app", how, ada, nil); err != nil || how == gitd.RepairReset &&
				len(again.Own) > 0 {
				t.Errorf("%+v %v", again, err)
			}
			// The next merge reaches upstream, and what was replayed with it.
			if res, err := l.merge("b", record.Merge{}); err != nil || l.here() != l.there() {
				t.Fatalf("%+v %v", res, err)
			}
			// run:b began from the base that had the file of run:a.
			if got := l.files(); !slices.Equal(got, []string{"a", "b", "begin", "theirs"}) {
				t.Error(got)
			}
		})
	}
}

// TestFreshen asks for a base before new work, once for each RefreshAfter, and waits no longer than RefreshWait.
func TestFreshen(t *testing.T) {
	now := time.Now()
	slow := make(chan struct{})
	var asked atomic.Int64
	l := newLanding(t, func(b *upstream.Bases) {
		b.RefreshAfter, b.RefreshWait = time.Minute, time.Minute
		b.Now = func() time.Time { return now }
		b.Sources["app"] = upstream.Source{Upstream: gitd.Upstream{URL: "http://127.0.0.1:9/",
			Credential: func(ctx context.Context) (gitd.Credential, error) {
				asked.Add(1)
				select {
				case <-slow:
				case <-ctx.Done():
				}
				return gitd.Credential{}, errors.New("no credential today")
			}}}
	})
	// The import was a moment ago.
	l.bases.Freshen(t.Context(), l.repo)
	if n := asked.Load(); n != 0 {
		t.Errorf("asked %d times", n)
	}
	now = now.Add(2 * time.Minute)
	l.bases.RefreshWait = time.Millisecond
	l.bases.Freshen(t.Context(), l.repo) // returns although upstream does not answer
	l.bases.RefreshWait = time.Minute
	close(slow)
	l.bases.Freshen(t.Context(), l.repo) // waits for the same question, or finds that it was answered
	l.bases.Freshen(t.Context(), l.repo)
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times, want once", n)
	}
	// An upstream that answers is followed.
	l.bases.Sources["app"] = upstream.Source{Upstream: gitd.Upstream{URL: l.up}}
	theirs := l.theirs("theirs")
	now = now.Add(2 * time.Minute)
	l.bases.Freshen(t.Context(), l.repo)
	if l.here() != theirs {
		t.Errorf("new work begins at %s, want %s", l.here(), theirs)
	}
}
