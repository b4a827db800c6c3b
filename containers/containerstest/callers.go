package containerstest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/layer"
)

// Callers binds callers to containers of a pool, first one at a time and then many at once, and releases them. Each
// must see its own file and the base's, and its files must be visible from outside. At the end no mount, folder,
// container, goroutine or descriptor may be left. RAMUS_TEST=full makes it 1,000 callers and 200 at once.
func Callers(t *testing.T, engine containers.Engine, keeper func(root string) layer.Keeper) {
	if err := engine.Check(t.Context()); err != nil {
		t.Skipf("cannot run here: engine %s: %v", engine.Name(), err)
	}
	sequence, once := 3, 4
	if os.Getenv("RAMUS_TEST") == "full" {
		sequence, once = 1000, 200
	}
	root := t.TempDir()
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	k := keeper(root)
	if err := k.Check(t.Context()); err != nil {
		t.Skipf("cannot run here: layers: %v", err)
	}
	base := filepath.Join(root, "base")
	if err := os.Mkdir(base, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base, "base"), []byte("base\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := k.Own(t.Context(), base, taskUID(t, engine)); err != nil {
		t.Fatal(err)
	}
	f := &containers.Fleet{
		Engine: engine, Dir: filepath.Join(root, "fleet"), Keeper: k, Pool: 2, Capacity: once,
		StartTimeout: 10 * time.Minute, // hundreds at once take the engine a while
	}
	if err := f.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	request := containers.Request{Limits: containers.Limits{Memory: 256 << 20, PIDs: 64}}
	if err := f.Warm(t.Context(), request); err != nil {
		t.Error(err)
	}
	serve := func(key string, ready *sync.WaitGroup) {
		r := request
		r.Key = "run:" + key
		r.Bind = func(ctx context.Context, p containers.Place) error {
			return k.Bind(ctx, layer.Binding{
				PID: p.PID, Start: p.Start, Lowers: []string{base}, Dir: filepath.Join(p.Dir, "tree"),
				Target: containers.WorkDir, UID: p.UID,
				Fill: []layer.File{{Path: "mine", Kind: layer.KindFile, Data: []byte(key + "\n")}},
			})
		}
		lease, err := f.Acquire(t.Context(), r)
		if ready != nil {
			ready.Done()
			ready.Wait() // all of them, before the first is released
		}
		if err != nil {
			t.Error(err)
			return
		}
		defer lease.Release()
		p, err := lease.Host.Start(t.Context(), containers.Command{ID: rand.Text(), Shell: "cat base mine; echo new > new"})
		if err != nil {
			t.Errorf("%s: %v", key, err)
			return
		}
		var out bytes.Buffer
		exit, err := p.Output(&out, &out)
		if err != nil || exit.Code != 0 || out.String() != "base\n"+key+"\n" || !lease.Bound {
			t.Errorf("%s: %+v, %v, bound %v: %q", key, exit, err, lease.Bound, out.String())
			return
		}
		changes, err := k.Changes(t.Context(), layer.Binding{Dir: filepath.Join(lease.Place.Dir, "tree")}.Upper(), 100)
		if err != nil || len(changes) != 2 || changes[0].Path != "mine" || changes[1].Path != "new" {
			t.Errorf("%s: from outside: %+v, %v", key, changes, err)
		}
	}
	remove := func(key string) {
		if err := f.Remove(context.WithoutCancel(t.Context()), "run:"+key); err != nil {
			t.Error(err)
		}
	}
	for i := range sequence {
		key := fmt.Sprint("one-", i)
		serve(key, nil)
		remove(key)
	}
	var group, ready sync.WaitGroup
	ready.Add(once)
	for i := range once {
		group.Go(func() { serve(fmt.Sprint("many-", i), &ready) })
	}
	group.Wait()
	for i := range once {
		group.Go(func() { remove(fmt.Sprint("many-", i)) })
	}
	group.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	if err := f.Close(ctx, false); err != nil {
		t.Error(err)
	}
	owner, err := os.ReadFile(filepath.Join(root, "fleet", "owner"))
	if err != nil {
		t.Fatal(err)
	}
	if list, err := engine.List(ctx, strings.TrimSpace(string(owner))); err != nil || len(list) != 0 {
		t.Errorf("containers are left: %+v, %v", list, err)
	}
	for _, name := range []string{"hosts", "old"} {
		if left, err := os.ReadDir(filepath.Join(root, "fleet", name)); err != nil || len(left) != 0 {
			t.Errorf("folders are left: %v, %v", left, err)
		}
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if err := engine.Close(); err != nil {
		t.Error(err)
	}
	eventually(t, "mounts are left", func() (left []string) {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			return []string{err.Error()}
		}
		for line := range strings.Lines(string(mounts)) {
			if strings.Contains(line, root) {
				left = append(left, line)
			}
		}
		return left
	})
	eventually(t, "descriptors are left", func() []string {
		if now := openFiles(t); len(now) > len(files) {
			return now
		}
		return nil
	})
	noGoroutinesLeft(t, goroutines)
}

// openFiles returns the files that this process has open.
func openFiles(t *testing.T) (open []string) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil && !strings.Contains(to, "anon_inode") { // the runtime's own comes at first use
			open = append(open, to)
		}
	}
	return open
}

func taskUID(t *testing.T, engine containers.Engine) int {
	t.Helper()
	user, err := containers.AsTaskUser(engine)
	if err != nil {
		t.Fatal(err)
	}
	return user.TaskUID()
}
