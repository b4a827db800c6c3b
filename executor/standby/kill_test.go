package standby

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd"
)

// The process of a test starts itself again as a stand-by. childMode is what that does, childPoint where it kills itself.
const (
	childMode  = "RAMUS_STANDBY_TEST"
	childPoint = "RAMUS_STANDBY_POINT"
	childDir   = "RAMUS_STANDBY_DIR"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(childMode); mode != "" {
		if err := runChild(context.Background(), mode, os.Getenv(childDir)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// points kills the process at one of its named points, and prints the others.
type points struct {
	at   string
	seen map[string]int
	on   bool
}

func (p *points) pass(name string) {
	if !p.on {
		return
	}
	p.seen[name]++
	if name = fmt.Sprintf("%s %d", name, p.seen[name]); name == p.at {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	fmt.Println(name)
}

func openGit(ctx context.Context, data string, p *points) (*gitd.Server, error) {
	git := &gitd.Server{Root: filepath.Join(data, "repos"), ReplyCache: -1}
	if p != nil {
		git.Duty = func(context.Context, string) error { p.pass("before refs"); return nil }
		git.Settle = func(context.Context, string) error { p.pass("after refs"); return nil }
	}
	return git, git.Open(ctx)
}

// near is a leader in the same process.
type near struct {
	leader *Leader
	points *points
	change func() error // after the first round
	end    func()       // when the second round is confirmed
	asked  int
}

func (n *near) Next(ctx context.Context, have Have) (Round, error) {
	switch n.asked++; n.asked {
	case 2:
		if err := n.change(); err != nil {
			return Round{}, err
		}
		n.points.on = true
		if err := n.leader.Settle(ctx, ""); err != nil { // there is a change
			return Round{}, err
		}
	case 3:
		n.end()
		return Round{}, ctx.Err()
	}
	n.points.pass("before round")
	r, err := n.leader.Next(ctx, have)
	n.points.pass("round arrives")
	return r, err
}

func (n *near) File(ctx context.Context, session, path string, from int64, w io.Writer) error {
	n.points.pass("before file")
	return n.leader.Read(ctx, session, path, from, w)
}

func (n *near) Upstream(repo string) gitd.Upstream {
	n.points.pass("before objects")
	return gitd.Upstream{URL: filepath.Join(n.leader.Data, "repos", repo+".git")}
}

// runChild follows, or promotes a stand-by.
func runChild(ctx context.Context, mode, dir string) error {
	p := &points{at: os.Getenv(childPoint), seen: make(map[string]int)}
	data := filepath.Join(dir, "second")
	var source Source
	if mode != "promote" {
		var err error
		if err = os.MkdirAll(data, 0o700); err == nil {
			source, err = Begin(data, Source{Of: "http://first.example"})
		}
		if err != nil {
			return err
		}
	}
	git, err := openGit(ctx, data, p)
	if err != nil {
		return err
	}
	defer git.Close()
	if mode == "promote" {
		p.on = true
		p.pass("before promote")
		_, err := Promote(ctx, data, git, time.Now(), "second")
		return err
	}
	first, err := openGit(ctx, filepath.Join(dir, "first"), nil)
	if err != nil {
		return err
	}
	defer first.Close()
	l := &Leader{Data: filepath.Join(dir, "first"), Git: first, Allow: true}
	if err := l.Open(ctx); err != nil {
		return err
	}
	defer l.Close()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	from := &near{leader: l, points: p, end: stop, change: func() error { return changeLeader(ctx, l.Data, first) }}
	if mode == "follow-again" {
		from.change = func() error { return nil }
	}
	f := &Follower{Data: data, Source: source, Git: git, From: from, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Now: func() time.Time { p.pass("clock"); return time.Now() }}
	err = f.Run(ctx)
	if st := f.Status(); err == nil && st.Error != "" {
		err = errors.New(st.Error)
	}
	return err
}

func commit(ctx context.Context, r *gitd.Repo, ref, content string) error {
	h, err := r.WriteCommit(ctx, gitd.NewCommit{Put: []gitd.File{{Path: "file", Content: []byte(content)}},
		Author: gitd.Person{Name: "a", Email: "a@example.org"}, Committer: gitd.Person{Name: "a", Email: "a@example.org"},
		When: time.Unix(1, 0), Message: content})
	if err != nil {
		return err
	}
	return r.Update(ctx, gitd.RefUpdate{Name: ref, New: h})
}

func put(data, name, content string) error {
	path := filepath.Join(data, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(content), 0o600)
}

// createRepo makes a repository that serves objects by name, as servers of ramus do.
func createRepo(ctx context.Context, git *gitd.Server, name string) (*gitd.Repo, error) {
	r, err := git.Create(ctx, name)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(git.Root, name+".git", "config")
	out, err := exec.CommandContext(ctx, "git", "config", "-f", config, "uploadpack.allowAnySHA1InWant", "true").CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return r, err
}

// add appends to a file, or makes it.
func add(data, name, content string) error {
	path := filepath.Join(data, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(content)
	return errors.Join(err, f.Close())
}

// makeLeader makes a leader's data folder.
func makeLeader(ctx context.Context, data string) (err error) {
	git, err := openGit(ctx, data, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, git.Close()) }()
	for _, name := range []string{"app", "old", gitd.PeopleRepo} {
		r, err := createRepo(ctx, git, name)
		if err == nil {
			err = commit(ctx, r, "refs/heads/main", "one")
		}
		if err == nil {
			err = commit(ctx, r, "refs/heads/gone", "gone")
		}
		if err != nil {
			return err
		}
	}
	return errors.Join(put(data, "live/run-x/1.jsonl", "first line\n"), put(data, "live/run-x/0.jsonl", "ends\n"),
		put(data, "sealed/a", "sealed"), put(data, "artifacts/sha256/aa", "artifact"))
}

// changeLeader changes everything that a round can have.
func changeLeader(ctx context.Context, data string, git *gitd.Server) error {
	app, err := git.Repo("app")
	if err == nil {
		err = commit(ctx, app, "refs/heads/main", "two")
	}
	if err == nil {
		err = commit(ctx, app, "refs/heads/new", "new")
	}
	if err == nil {
		err = app.Update(ctx, gitd.RefUpdate{Name: "refs/heads/gone"})
	}
	if err == nil {
		err = commit(ctx, app, "refs/heads/gone/folder", "a name below that of a removed one")
	}
	var added *gitd.Repo
	if err == nil {
		added, err = createRepo(ctx, git, "added")
	}
	if err == nil {
		err = commit(ctx, added, "refs/heads/main", "added")
	}
	if err == nil {
		err = git.Remove(ctx, "old")
	}
	if err == nil {
		err = add(data, "live/run-x/1.jsonl", "second line\n")
	}
	return errors.Join(err, os.Remove(filepath.Join(data, "live/run-x/0.jsonl")), put(data, "sealed/a", "sealed again"),
		put(data, "sealed/b", "another"), put(data, "artifacts/sha256/bb", "more"))
}

// stateOfFolder returns the refs and the files of a data folder, without the epoch.
func stateOfFolder(t *testing.T, data string) map[string]string {
	t.Helper()
	git, err := openGit(t.Context(), data, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer git.Close()
	is := make(map[string]string)
	repos, err := git.Repos(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range repos {
		refs, err := r.Refs(t.Context(), "refs")
		if err != nil {
			t.Fatal(err)
		}
		is[r.Name()] = ""
		for _, ref := range refs {
			if ref.Name != EpochRef {
				is[r.Name()+" "+ref.Name] = string(ref.Hash)
			}
		}
	}
	for _, dir := range []string{"live", "sealed", "artifacts"} {
		err := filepath.WalkDir(filepath.Join(data, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			b, err := os.ReadFile(path)
			is[strings.TrimPrefix(path, data)] = string(b)
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return is
}

// child runs a child on the folders below dir, and returns the points that it passed and whether it was killed.
func child(t *testing.T, mode, dir, point string) (passed []string, killed bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childMode+"="+mode, childDir+"="+dir, childPoint+"="+point)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return nil, true
	}
	if err != nil {
		t.Fatalf("%s at %q: %v\n%s", mode, point, err, errs.String())
	}
	return strings.Split(strings.TrimSpace(string(out)), "\n"), false
}

// place returns whether a data folder is that of a stand-by.
func place(data string) bool { return CheckPlace(data) != nil }

// TestKilled kills a stand-by at each named point of a round, and a promotion at each of its own. A stand-by has the state
// of one round then. It follows again or is promoted, and then has all of it. A promotion is done or it is not.
// RAMUS_TEST=full takes all points instead of the first of each name and the last.
func TestKilled(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	if err := makeLeader(t.Context(), filepath.Join(base, "first")); err != nil {
		t.Fatal(err)
	}
	before := stateOfFolder(t, filepath.Join(base, "first"))
	fresh := func(of string) string {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "copy")
		if err := os.CopyFS(dir, os.DirFS(of)); err != nil {
			t.Fatal(err)
		}
		return dir
	}

	whole := fresh(base)
	passed, _ := child(t, "follow", whole, "")
	after := stateOfFolder(t, filepath.Join(whole, "first"))
	if got := stateOfFolder(t, filepath.Join(whole, "second")); !maps.Equal(got, after) {
		t.Fatalf("the stand-by has\n%v\nwant\n%v", got, after)
	}
	if maps.Equal(before, after) || len(passed) < 10 {
		t.Fatalf("the round has %d points", len(passed))
	}
	t.Logf("points of a round: %s", strings.Join(passed, ", "))
	for _, point := range some(passed) {
		dir := fresh(base)
		if _, killed := child(t, "follow", dir, point); !killed {
			t.Errorf("it is not killed at %q", point)
			continue
		}
		second := filepath.Join(dir, "second")
		taken := fileExists(filepath.Join(second, Folder, roundName))

		other := fresh(dir)
		child(t, "promote", other, "")
		got := stateOfFolder(t, filepath.Join(other, "second"))
		want := before
		if taken || strings.HasPrefix(point, "clock") && maps.Equal(got, after) {
			want = after
		}
		if !maps.Equal(got, want) {
			t.Errorf("killed at %q and promoted, it has\n%v\nwant\n%v", point, got, want)
		}

		child(t, "follow-again", dir, "")
		if got := stateOfFolder(t, second); !maps.Equal(got, stateOfFolder(t, filepath.Join(dir, "first"))) {
			t.Errorf("killed at %q, it does not get to the state of the server: %v", point, got)
		}
	}

	// A promotion that has a round to apply first.
	half := fresh(base)
	i := slices.IndexFunc(passed, func(p string) bool { return strings.HasPrefix(p, "after refs") })
	child(t, "follow", half, passed[i])
	passed, _ = child(t, "promote", fresh(half), "")
	t.Logf("points of a promotion: %s", strings.Join(passed, ", "))
	for _, point := range some(passed) {
		dir := fresh(half)
		if _, killed := child(t, "promote", dir, point); !killed {
			t.Errorf("it is not killed at %q", point)
			continue
		}
		second := filepath.Join(dir, "second")
		if !place(second) {
			t.Errorf("killed at %q, it is a server", point)
		}
		child(t, "promote", dir, "")
		if got := stateOfFolder(t, second); place(second) || !maps.Equal(got, after) {
			t.Errorf("killed at %q and promoted again, it has\n%v", point, got)
		}
	}
	// The last change of a promotion is the file that makes the folder that of a stand-by.
	git, err := openGit(t.Context(), filepath.Join(half, "second"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer git.Close()
	e, err := Promote(t.Context(), filepath.Join(half, "second"), git, time.Now(), "x")
	if err != nil || e.Number != 2 {
		t.Errorf("it begins epoch %d, %v", e.Number, err)
	}
	if _, err := Promote(t.Context(), filepath.Join(half, "second"), git, time.Now(), "x"); err == nil {
		t.Error("a server is promoted")
	}
}

// some returns the first point of each name, and the last one.
func some(all []string) (list []string) {
	if os.Getenv("RAMUS_TEST") == "full" {
		return all
	}
	for i, point := range all {
		if strings.HasSuffix(point, " 1") || i == len(all)-1 {
			list = append(list, point)
		}
	}
	return list
}

func fileExists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}
