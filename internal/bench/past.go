package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/trial"
	"github.com/ramus-dev/ramus/gateway/past"
)

// The sides of the commands that go back.
const (
	sideBisect = "git bisect run"
	sideBlame  = "two git blames"
	sideMerge  = "git merge-tree, one by one"
)

// The line of commits in which bisections search, and the first bad one of it.
const (
	lineCommits = 257
	lineBad     = 173
)

// lineRepository makes a repository with a line of commits, each of which writes its number.
func (b *bench) lineRepository(ctx context.Context) (*repository, error) {
	dir, err := os.MkdirTemp(b.dir, "line-")
	if err != nil {
		return nil, err
	}
	b.onExit(func(context.Context) error { return os.RemoveAll(dir) })
	if _, err := gitIn(ctx, "", "init", "-q", "--bare", "-b", "main", dir); err != nil {
		return nil, err
	}
	var in bytes.Buffer
	fmt.Fprintf(&in, "blob\nmark :1\ndata %d\n%s\n", len(markText), markText)
	for i := range lineCommits {
		number := fmt.Sprintln(i)
		fmt.Fprintf(&in, "commit refs/heads/main\ncommitter A Person <person@example.org> %d +0000\n", 1_750_000_000+i)
		fmt.Fprintf(&in, "data 0\nM 100644 :1 %s\nM 100644 inline number\ndata %d\n%s\n", markPath, len(number), number)
	}
	cmd := exec.CommandContext(ctx, "git", "-C", dir, "fast-import", "--quiet")
	cmd.Env, cmd.Stdin = plainEnv(), &in
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("git fast-import: %w: %s", err, said)
	}
	tip, err := gitIn(ctx, dir, "rev-parse", "refs/heads/main")
	return &repository{shape{name: "line"}, dir, tip}, err
}

// bisections finds the first bad of 256 commits. A try takes 0.2 s.
func bisections(ctx context.Context, b *bench) error {
	r, err := b.lineRepository(ctx)
	if err != nil {
		return err
	}
	h, err := b.house(ctx, "bisect", 4)
	if err != nil {
		return err
	}
	if _, err := h.take(ctx, r); err != nil {
		return err
	}
	first, err := gitIn(ctx, r.dir, "rev-list", "--max-parents=0", "main")
	if err != nil {
		return err
	}
	bad, err := gitIn(ctx, r.dir, "rev-parse", fmt.Sprintf("main~%d", lineCommits-1-lineBad))
	if err != nil {
		return err
	}
	try := fmt.Sprintf("sleep 0.2; test $(cat number) -lt %d", lineBad)
	caller := h.name()
	c := comparison{metrics: []metric{wall}, rounds: 5, sides: []side{
		{name: sideRamus, settle: h.settled, round: timed(func(ctx context.Context, _ int) error {
			found, err := h.client.Bisect(ctx, past.Bisect{Of: "main", Repo: r.name, Good: first, Fresh: true,
				Command: &record.Command{Shell: try}}, func(trial.Plan) {}, func(trial.Progress) {})
			if err == nil && (found.First == nil || string(found.First.Commit) != bad) {
				err = fmt.Errorf("the first bad commit is %+v, want %s", found.First, bad)
			}
			return err
		})},
		{name: sideBisect, settle: h.settled, round: timed(func(ctx context.Context, _ int) error {
			x, err := h.exec(ctx, caller, r.name, record.Command{Shell: "git bisect start " + r.tip + " " + first +
				" >/dev/null && git bisect run sh -c '" + try + "' >/dev/null && git rev-parse refs/bisect/bad; " +
				"git bisect reset >/dev/null 2>&1"})
			if err != nil {
				return err
			}
			return x.printed(bad + "\n")
		})},
	}}
	m, err := b.compare(ctx, c)
	if err != nil {
		return err
	}
	b.add(m, "256 commits, 4 at once", wall.what, sideBisect, atMost(1))
	return nil
}

// whys explains a whole file of a repository with 5,000 commits.
func whys(ctx context.Context, b *bench) error {
	h, r, err := b.furnished(ctx, "why", 0, served)
	if err != nil {
		return err
	}
	// The file that was changed most often has the most commits to blame.
	log, err := gitIn(ctx, r.dir, "log", "--format=", "--name-only", "--max-count=1000", "main")
	if err != nil {
		return err
	}
	path, times := "", map[string]int{}
	for name := range strings.Lines(log) {
		name = strings.TrimSpace(name)
		if times[name]++; name != "" && times[name] > times[path] {
			path = name
		}
	}
	m, err := b.compare(ctx, comparison{metrics: []metric{wall}, sides: []side{
		{name: sideRamus, round: timed(func(ctx context.Context, _ int) error {
			a, err := h.client.Why(ctx, past.Why{Repo: r.name, Path: path, Brief: true})
			if err == nil && len(a.Lines) == 0 {
				err = fmt.Errorf("no line of %s is explained", path)
			}
			return err
		})},
		{name: sideBlame, round: timed(func(ctx context.Context, _ int) error {
			for range 2 {
				if _, err := gitIn(ctx, r.dir, "blame", "--porcelain", "main", "--", path); err != nil {
					return err
				}
			}
			return nil
		})},
	}})
	if err != nil {
		return err
	}
	b.add(m, "a whole file", wall.what, sideBlame, atMost(1))
	return nil
}

// radars compares 100 live branches of a repository of 27,000 files after one of them has moved.
func radars(ctx context.Context, b *bench) error {
	s := medium
	s.name, s.branches = "lively", 100
	h, r, err := b.furnished(ctx, "radar", 0, s)
	if err != nil {
		return err
	}
	dir := filepath.Join(h.data, "repos", r.name+".git")
	// The commits of the repository are old. Each branch gets a new one.
	moved := func(ctx context.Context, i, n int) error {
		branch := fmt.Sprintf("refs/heads/task-%d", i)
		made, err := gitIn(ctx, dir, "-c", "user.name=A", "-c", "user.email=a@example.org", "commit-tree", "-m",
			fmt.Sprint(n), "-p", branch, branch+"^{tree}")
		if err == nil {
			_, err = gitIn(ctx, dir, "update-ref", branch, made)
		}
		return err
	}
	for i := range s.branches {
		if err := moved(ctx, i, 0); err != nil {
			return err
		}
	}
	pairs := s.branches*(s.branches-1)/2 + s.branches
	look := func(ctx context.Context) error {
		rep, err := h.client.Radar(ctx, past.Radar{Repo: r.name})
		if err == nil && rep.Pairs != pairs {
			err = fmt.Errorf("%d pairs were compared, want %d", rep.Pairs, pairs)
		}
		return err
	}
	if err := look(ctx); err != nil {
		return err
	}
	moves := 0
	m, err := b.compare(ctx, comparison{metrics: []metric{wall}, rounds: 5, sides: []side{
		{name: sideRamus,
			settle: func(ctx context.Context) error { moves++; return moved(ctx, 7, moves) },
			round:  timed(func(ctx context.Context, _ int) error { return look(ctx) })},
		{name: sideMerge, round: timed(func(ctx context.Context, _ int) error {
			for i := range s.branches {
				if _, err := gitIn(ctx, dir, "merge-tree", "--write-tree", "task-7", fmt.Sprintf("task-%d", i)); err != nil &&
					!strings.Contains(err.Error(), "exit status 1") {
					return err
				}
			}
			return nil
		})},
	}})
	if err != nil {
		return err
	}
	b.add(m, "100 live branches, after one has moved", wall.what, sideMerge, below(1000))
	return nil
}

// askedPushes pushes with options that start a run, without, and to branches whose pushes start a workflow of the base.
func askedPushes(ctx context.Context, b *bench) error {
	r, err := b.repository(ctx, small)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	address := l.Addr().String()
	l.Close()
	h, err := b.house(ctx, "asked", 2, "RAMUS_LISTEN="+address)
	if err != nil {
		return err
	}
	if _, err := h.take(ctx, r); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, b.ramus, "token", "create", "--subject", "bench", "--repo", r.name, "--scope", "write")
	cmd.Env = append(plainEnv(), "RAMUS_DATA="+h.data)
	token, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("cannot make a token: %w", err)
	}
	work, err := os.MkdirTemp(b.dir, "work-")
	if err != nil {
		return err
	}
	b.onExit(func(context.Context) error { return os.RemoveAll(work) })
	git := func(args ...string) error {
		_, err := gitIn(ctx, work, append([]string{"-c", "user.name=A", "-c", "user.email=a@example.org",
			"-c", "http.extraHeader=Authorization: Bearer " + strings.TrimSpace(string(token))}, args...)...)
		return err
	}
	if _, err := gitIn(ctx, "", "clone", "-q", r.dir, work); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, "asked.yaml"),
		fmt.Appendf(nil, "id: asked\nrepo: {id: %s}\nnodes:\n  - id: one\n    run: \"true\"\n", r.name), 0o644); err != nil {
		return err
	}
	event := filepath.Join(work, ".ramus", "workflows", "event.yaml")
	if err := os.MkdirAll(filepath.Dir(event), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(event, fmt.Appendf(nil, "id: event\nrepo: {id: %s}\non: {push: {branches: ['event-*']}}\nnodes:\n"+
		"  - id: one\n    run: \"true\"\n", r.name), 0o644); err != nil {
		return err
	}
	for _, args := range [][]string{{"remote", "set-url", "origin", "http://" + address + "/" + r.name + ".git"},
		{"add", "."}, {"commit", "-q", "-m", "asked"}, {"push", "-q", "origin", "HEAD"}} {
		if err := git(args...); err != nil {
			return err
		}
	}
	branches := func() (int, error) {
		list, err := gitIn(ctx, filepath.Join(h.data, "repos", r.name+".git"), "for-each-ref", "--format=x", "refs/heads/ramus/")
		return strings.Count(list, "x"), err
	}
	before, err := branches()
	if err != nil {
		return err
	}
	number := 0
	push := func(to string, options ...string) (float64, error) {
		number++
		if err := git("commit", "-q", "--allow-empty", "-m", fmt.Sprint(number)); err != nil {
			return 0, err
		}
		begin := time.Now()
		err := git(append(append([]string{"push", "-q"}, options...), "origin", fmt.Sprintf("HEAD:refs/heads/%s-%d", to, number))...)
		return ms(time.Since(begin)), err
	}
	more, later := metric{"more time", "ms"}, metric{"more time by a workflow", "ms"}
	m, err := b.compare(ctx, comparison{metrics: []metric{more, wall, later}, sides: []side{
		{name: sideRamus, settle: h.settled, round: func(context.Context, int) ([]float64, error) {
			plain, err := push("asked")
			if err != nil {
				return nil, err
			}
			started, err := push("event")
			if err != nil {
				return nil, err
			}
			asked, err := push("asked", "-o", "run=asked.yaml", "-o", "detach")
			return []float64{asked - plain, asked, started - plain}, err
		}},
	}})
	if err != nil {
		return err
	}
	after, err := branches()
	if err == nil && after-before != number/3*2 {
		err = fmt.Errorf("%d pushes started %d runs, want %d", number, after-before, number/3*2)
	}
	if err != nil {
		return err
	}
	b.add(m, "a push that starts a run, over a plain one", more.what, "", below(20))
	b.add(m, "a push that starts a run", wall.what, "", target{})
	b.add(m, "a push that starts a workflow of the base, over a plain one", later.what, "", below(20))
	return nil
}
