package clone

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/gitd/gitcmd"
	"github.com/ramus-dev/ramus/gitd/gittest"
	"github.com/ramus-dev/ramus/gitd/object"
	"github.com/ramus-dev/ramus/gitd/pack"
)

// testRepo is a bare repository of stock git.
type testRepo struct {
	t       testing.TB
	root    string
	dir     string
	git     *gitcmd.Runner
	objects pack.Reader
}

// newTestRepo returns an empty repository and the cache of its server.
func newTestRepo(t testing.TB) (*Cache, *testRepo) {
	t.Helper()
	r := &testRepo{t: t, root: t.TempDir(), git: &gitcmd.Runner{}}
	r.dir = filepath.Join(r.root, "r.git")
	gittest.Run(t, r.root, "init", "-q", "--bare", "-b", "main", r.dir)
	r.objects.Dir, r.objects.Git, r.objects.Packs.Dir = r.dir, r.git, filepath.Join(r.dir, pack.Folder)
	c := &Cache{Root: r.root, Git: r.git, Requests: &gitcmd.Group{}, Log: slog.New(slog.DiscardHandler), Now: time.Now}
	c.setup.Do(c.init)
	t.Cleanup(func() {
		c.Requests.Close()
		r.git.Close()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		r.objects.Close()
		gittest.Run(t, r.dir, "fsck", "--strict", "--no-dangling")
	})
	return c, r
}

func (r *testRepo) Name() string          { return "r" }
func (r *testRepo) Dir() string           { return r.dir }
func (r *testRepo) ID() string            { return "1" }
func (r *testRepo) Objects() *pack.Reader { return &r.objects }
func (r *testRepo) Tags() []Tag           { return nil }

func (r *testRepo) TagState(context.Context) (string, error) { return "", nil }

func (r *testRepo) Run(ctx context.Context, c gitcmd.Command) error {
	c.Repo = r.dir
	return r.git.Run(ctx, c)
}

func (r *testRepo) Scratch() (string, error) {
	dir := filepath.Join(r.root, "scratch")
	return dir, os.MkdirAll(dir, 0o755)
}

func (r *testRepo) BaseTip(context.Context) (object.Hash, error) {
	out, err := gittest.Try(r.dir, "rev-parse", "-q", "--verify", "refs/heads/main")
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", nil
	}
	return object.Hash(strings.TrimSpace(out)), err
}

// branch makes a branch that points to a commit.
func (r *testRepo) branch(name string, from object.Hash) {
	r.t.Helper()
	gittest.Run(r.t, r.dir, "update-ref", "refs/heads/"+name, string(from))
}

// commit adds a commit with some files to a branch. files are pairs of path and content.
func (r *testRepo) commit(branch string, files ...string) object.Hash {
	r.t.Helper()
	var in strings.Builder
	fmt.Fprintf(&in, "commit refs/heads/%s\ncommitter C <c@example.com> 1700000000 +0000\ndata 4\nWork\n", branch)
	if tip, err := gittest.Try(r.dir, "rev-parse", "-q", "--verify", "refs/heads/"+branch); err == nil {
		fmt.Fprintf(&in, "from %s\n", strings.TrimSpace(tip))
	}
	for i := 0; i < len(files); i += 2 {
		fmt.Fprintf(&in, "M 100644 inline %s\ndata %d\n%s\n", files[i], len(files[i+1]), files[i+1])
	}
	cmd := exec.Command("git", "-C", r.dir, "fast-import", "--quiet")
	cmd.Stdin = strings.NewReader(in.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		r.t.Fatalf("%v\n%s", err, out)
	}
	r.objects.Packs.Changed()
	return object.Hash(gittest.Run(r.t, r.dir, "rev-parse", "refs/heads/"+branch))
}
