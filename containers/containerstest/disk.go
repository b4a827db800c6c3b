package containerstest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers"
	"github.com/ramus-dev/ramus/containers/layer"
)

// DiskHog returns the number of bytes that must stay free on the disk of dir (see limits.DiskFree), and a script that
// takes more and more of it, in files fill1, fill2 and so on, until that is noticed. Others use the disk meanwhile, and
// a command that begins when too little is free may run, because it may be the one that cleans up. So the script takes
// more than others will, without writing it, and only one test at a time does so.
func DiskHog(t *testing.T, dir string) (floor int64, script string) {
	t.Helper()
	alone, err := os.Open(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { alone.Close() })
	if err := unix.Flock(int(alone.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	free := int64(st.Bavail) * st.Bsize
	most := min(4<<30, free/4)
	return free - most, fmt.Sprintf("i=0; while i=$((i+1)); do fallocate -l %d fill$i || head -c %[1]d /dev/zero > fill$i || break; sleep 0.05; done; sleep 60", most/16)
}

// Disk has commands take more of the disk than limits.Disk allows. It does so in each of their folders, in the
// foreground and in the background, with a work tree bound from outside and without one. Each is killed and gets the
// reason. The next command cleans up. If keeper is nil, no work tree is bound.
func Disk(t *testing.T, engine containers.Engine, keeper func(root string) layer.Keeper) {
	if err := engine.Check(t.Context()); err != nil {
		t.Skipf("cannot run here: engine %s: %v", engine.Name(), err)
	}
	if os.Geteuid() != 0 && engine.Name() != "sandbox" {
		t.Skipf("cannot run here: only root sees into volumes of engine %s", engine.Name())
	}
	for _, bound := range []bool{false, true} {
		if bound && keeper == nil {
			continue
		}
		name := map[bool]string{false: "Provisioned", true: "Bound"}[bound]
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			f := &containers.Fleet{Engine: engine, Dir: filepath.Join(root, "fleet"), StartTimeout: 5 * time.Minute}
			r := containers.Request{Key: "run:hog", Limits: containers.Limits{Disk: 24 << 20, Memory: 256 << 20}}
			if bound {
				f.Keeper = keeper(root)
				defer f.Keeper.Close()
				if err := f.Keeper.Check(t.Context()); err != nil {
					t.Skipf("cannot run here: layers: %v", err)
				}
				base := filepath.Join(root, "base")
				if err := os.Mkdir(base, 0o755); err != nil {
					t.Fatal(err)
				}
				// More than the bound, and nothing that the caller has taken.
				if err := os.WriteFile(filepath.Join(base, "large"), make([]byte, 32<<20), 0o644); err != nil {
					t.Fatal(err)
				}
				if err := f.Keeper.Own(t.Context(), base, taskUID(t, engine)); err != nil {
					t.Fatal(err)
				}
				r.Bind = func(ctx context.Context, p containers.Place) error {
					return f.Keeper.Bind(ctx, layer.Binding{PID: p.PID, Start: p.Start, Lowers: []string{base},
						Dir: filepath.Join(p.Dir, "tree"), Target: containers.WorkDir, UID: p.UID})
				}
			}
			if err := f.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer func() {
				ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
				defer cancel()
				if err := f.Close(ctx, false); err != nil {
					t.Error(err)
				}
			}()
			lease, err := f.Acquire(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			defer lease.Release()
			if lease.Bound != bound {
				t.Errorf("bound: %v", lease.Bound)
			}
			fill(t, lease.Host, root)
		})
	}
}

// fill goes over the bound again and again. dir is a folder on the disk of the fleet.
func fill(t *testing.T, h *containers.Host, dir string) {
	run := func(c containers.Command) (string, containers.Exit) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		p, err := h.Start(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		exit, err := p.Output(&out, &out)
		if err != nil {
			t.Fatal(err)
		}
		return out.String(), exit
	}
	ok := func(script string) string {
		t.Helper()
		out, exit := run(containers.Command{ID: rand.Text(), Shell: script})
		if exit.Code != 0 || exit.Reason != "" {
			t.Errorf("%s ends with %+v: %s", script, exit, out)
		}
		return strings.TrimSpace(out)
	}
	full := func(what string, exit containers.Exit) {
		t.Helper()
		if exit.Reason != containers.ReasonDiskFull || !strings.Contains(exit.Message, "limits.disk lets a caller have 24 MiB") {
			t.Errorf("%s: a hog of disk ends with %+v", what, exit)
		}
	}
	// The script is slow, so that the test covers the bound and not the end of the script. Links and closed folders
	// obstruct the measurement.
	hog := func(dir string) string {
		return "mkdir -p " + dir + "/hog/a/b && cd " + dir + "/hog/a && ln -s / root && i=0; " +
			"while i=$((i+1)); do head -c 4000000 /dev/zero > b/$i || exit 9; sleep 0.02; done"
	}
	for _, dir := range []string{containers.WorkDir, containers.ArtifactsDir, containers.CacheDir} {
		_, exit := run(containers.Command{ID: rand.Text(), Shell: hog(dir), Timeout: time.Minute})
		full(dir, exit)
		ok("rm -rf " + dir + "/hog; sleep 0.3; echo still here")
	}
	// The first measurement finds more than twice the bound. The next command may clean up, however long it takes, and
	// though others fill the disk, so that the container is measured again and again. The hog goes on after its first
	// files, because space that others free at the same moment conceals those.
	_, exit := run(containers.Command{ID: rand.Text(), Timeout: time.Minute,
		Shell: "mkdir hog && for i in 1 2 3 4 5 6; do " +
			"fallocate -l 16M hog/$i || head -c 16777216 /dev/zero > hog/$i || exit 9; done; " +
			"while head -c 1000000 /dev/zero >> hog/6; do sleep 0.05; done"})
	full("at once", exit)
	stop := make(chan struct{})
	var others sync.WaitGroup
	defer others.Wait()
	end := sync.OnceFunc(func() { close(stop) })
	defer end()
	others.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
			}
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprint("other", n)), make([]byte, 1<<20), 0o600); err != nil {
				t.Error(err)
				return
			}
		}
	})
	ok("for i in 1 2 3 4 5 6; do sleep 0.4; rm hog/$i; done; rmdir hog")
	end()
	// In the background, by a child that has left its command and ignores the first signal.
	id := rand.Text()
	if _, err := h.Start(t.Context(), containers.Command{ID: id, Background: true, Grace: time.Hour,
		Shell: "trap '' TERM; (" + hog(containers.WorkDir) + ") & sleep 0.1"}); err != nil {
		t.Fatal(err)
	}
	p, err := h.Attach(t.Context(), id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	exit, err = p.Output(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	full("in the background", exit)
	// Kept output counts for the caller too.
	ok("rm -rf " + containers.WorkDir + "/hog")
	id = rand.Text()
	_, exit = run(containers.Command{ID: id, Shell: "while head -c 4000000 /dev/zero; do sleep 0.02; done",
		Timeout: time.Minute})
	full("output", exit)
	if err := h.Forget(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if got := ok("sleep 0.3; echo still here"); got != "still here" {
		t.Errorf("after all that the container says %q", got)
	}
}
