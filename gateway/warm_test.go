package gateway_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/gateway"
)

// TestImportWarms checks that an import fetches the dependencies of its base, like a refresh.
func TestImportWarms(t *testing.T) {
	t.Parallel()
	r := openExecutor(t, false, func(x *executor.Executor) { x.Options.Egress = []string{"proxy.example:443"} }, nil)
	source := t.TempDir()
	if err := os.WriteFile(filepath.Join(source, "go.sum"), []byte("example.org/dep v1.0.0 h1:AAAA=\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "."},
		{"-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "begin"}} {
		if out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", source}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if _, err := r.local.CreateRepo(t.Context(), gateway.CreateRepo{Name: "app", Source: source}, nil); err != nil {
		t.Fatal(err)
	}
	// The fetch waits for its next attempt, because there are no containers.
	if repo, err := r.local.Repo(t.Context(), "app"); err != nil || !repo.Status.Warming {
		t.Errorf("after the import: %+v, %v", repo.Status, err)
	}
}

// TestPushAtGitHubWarms checks that a push reported by GitHub fetches the dependencies of the new base.
func TestPushAtGitHubWarms(t *testing.T) {
	t.Parallel()
	k := openShopWith(t, []string{"proxy.example:443"}, nil)
	must[string](t)(k.repo.Push("developer", "main", "Depend",
		map[string]string{"go.sum": "example.org/dep v1.0.0 h1:AAAA=\n"}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for warming := false; !warming; <-tick.C {
		repo, err := k.local.Repo(ctx, "app")
		if err != nil {
			t.Fatal(err)
		}
		warming = repo.Status.Warming
	}
}
