package layer_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/ramus-dev/ramus/containers/docker"
	"github.com/ramus-dev/ramus/containers/layer"
)

// The container with root's rights is started once, again when it was killed, ended by a
// successor, by Close, and by the end of whom it works for.
func TestLift(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("cannot run here: not root")
	}
	program, err := built.ramus()
	if err != nil {
		t.Fatal(err)
	}
	moby := &docker.Engine{Runner: program}
	defer moby.Close()
	needEngine(t, moby)
	api, err := client.New(client.FromEnv)
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	owner, root := rand.Text(), t.TempDir()
	running := func() []string {
		t.Helper()
		found, err := api.ContainerList(context.Background(),
			client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", "ramus.layers="+owner)})
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, c := range found.Items {
			ids = append(ids, c.ID)
		}
		return ids
	}
	upper := filepath.Join(root, "upper")
	if err := os.Mkdir(upper, 0o755); err != nil {
		t.Fatal(err)
	}
	ask := func(k layer.Keeper) {
		t.Helper()
		if _, err := k.Changes(t.Context(), upper, 10); err != nil {
			t.Fatal(err)
		}
	}
	lift := docker.Lift{Engine: moby, Owner: owner}
	one := layer.NewHelper(root, lift)
	defer one.Close()
	if ids := running(); len(ids) != 0 {
		t.Fatalf("before the first question: %v", ids)
	}
	ask(one)
	ask(one)
	first := running()
	if len(first) != 1 {
		t.Fatalf("containers: %v", first)
	}
	if _, err := api.ContainerKill(t.Context(), first[0], client.ContainerKillOptions{Signal: "KILL"}); err != nil {
		t.Fatal(err)
	}
	// Longer than a start that failed keeps others from being tried.
	for deadline := time.Now().Add(3 * time.Minute); ; {
		// What is asked while it dies may fail; what is asked after does not.
		if _, err := one.Changes(t.Context(), upper, 10); err == nil {
			if ids := running(); len(ids) == 1 && ids[0] != first[0] {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("no other one is started: %v", running())
		}
	}
	second := running()
	// A ramus that was killed left it: the next one ends it.
	two := layer.NewHelper(root, lift)
	defer two.Close()
	ask(two)
	if ids := running(); len(ids) != 1 || ids[0] == second[0] {
		t.Errorf("after the next one came: %v, before %v", ids, second)
	}
	if err := two.Close(); err != nil {
		t.Error(err)
	}
	if ids := running(); len(ids) != 0 {
		t.Errorf("after the end: %v", ids)
	}
	if _, err := os.Lstat(filepath.Join(root, "layers.sock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its socket is left: %v", err)
	}
	// What cannot be started says why.
	broken := layer.NewHelper(filepath.Join(root, "none"), docker.Lift{Engine: moby, Owner: owner})
	defer broken.Close()
	if err := broken.Check(t.Context()); !errors.Is(err, layer.ErrUnable) {
		t.Errorf("without a folder: %v", err)
	}
}
