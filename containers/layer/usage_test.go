package layer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ramus-dev/ramus/containers/proc"
)

// measure is Usage of a folder below a Local's root.
func measure(t *testing.T, dir string, most int64) (Usage, error) {
	t.Helper()
	return NewLocal(filepath.Dir(dir)).Usage(t.Context(), Storage{Dir: dir}, most)
}

// du is what du says, the oracle.
func du(t *testing.T, dir string) (u Usage) {
	t.Helper()
	for _, ask := range []struct {
		flags []string
		to    *int64
	}{{[]string{"-s", "-x", "--block-size=1"}, &u.Bytes}, {[]string{"-s", "-x", "--inodes"}, &u.Files}} {
		out, err := exec.Command("du", append(ask.flags, dir)...).Output()
		if err != nil {
			t.Fatalf("du: %v", err)
		}
		number, _, _ := strings.Cut(string(out), "\t")
		if *ask.to, err = strconv.ParseInt(number, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	return u
}

// Random trees of all kinds of entries take what du says that they take.
func TestUsageIsDu(t *testing.T) {
	if _, err := exec.LookPath("du"); err != nil {
		t.Skipf("cannot run here: %v", err)
	}
	type made struct {
		top   string
		names int64
	}
	var trees []made
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 7))
		top := filepath.Join(t.TempDir(), "tree")
		folders, files := []string{top}, []string{}
		check := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		check(os.Mkdir(top, 0o700))
		names := int64(1)
		for i := range 60 {
			p := filepath.Join(folders[r.IntN(len(folders))],
				fmt.Sprintf("%d\x01\xff%s", i, strings.Repeat("x", r.IntN(100))))
			names++
			switch r.IntN(8) {
			case 0, 1:
				check(os.Mkdir(p, 0o700))
				folders = append(folders, p)
			case 2:
				check(os.Symlink(strings.Repeat("/", 1+r.IntN(200)), p))
			case 3:
				check(unix.Mknod(p, unix.S_IFIFO|0o600, 0))
			case 4:
				if len(files) > 0 {
					check(os.Link(files[r.IntN(len(files))], p))
					names-- // du counts inodes
					continue
				}
				fallthrough
			case 5: // with a hole
				f, err := os.Create(p)
				check(err)
				_, err = f.WriteAt([]byte("end"), int64(r.IntN(1<<20)))
				check(err)
				check(f.Close())
				files = append(files, p)
			default:
				check(os.WriteFile(p, make([]byte, r.IntN(100_000)), 0o600))
				files = append(files, p)
			}
		}
		trees = append(trees, made{top, names})
	}
	// Blocks are told only when they are: until then a file system may say less, or more.
	unix.Sync()
	for seed, tree := range trees {
		got, err := measure(t, tree.top, math.MaxInt64)
		want := du(t, tree.top)
		if err != nil || got.Bytes != want.Bytes || want.Files != tree.names || got.Files < tree.names {
			t.Errorf("seed %d: it takes %+v, %v; du says %+v", seed, got, err, want)
		}
	}
}

// What leads out of a folder is not followed.
func TestUsageStaysInside(t *testing.T) {
	dir := t.TempDir()
	top, outside := filepath.Join(dir, "tree"), filepath.Join(dir, "outside")
	for _, p := range []string{filepath.Join(top, "mounted"), outside} {
		if err := os.MkdirAll(p, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(outside, "large"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"root": "/", "up": "../outside", "self": ".", "proc": "/proc/self/root"} {
		if err := os.Symlink(to, filepath.Join(top, name)); err != nil {
			t.Fatal(err)
		}
	}
	before, err := measure(t, top, math.MaxInt64)
	if err != nil || before.Files != 6 || before.Bytes >= 1<<20 {
		t.Errorf("links take %+v, %v", before, err)
	}
	if _, err := measure(t, filepath.Join(top, "up"), 10); err == nil {
		t.Error("a link is taken for a folder")
	}
	if u, err := measure(t, filepath.Join(top, "never was"), 10); err != nil || u != (Usage{}) {
		t.Errorf("nothing takes %+v, %v", u, err)
	}
	var after Usage
	var cannot error
	done := make(chan struct{})
	go func() {
		defer close(done)
		proc.OnThread(func() {
			if cannot = mountMachine(filepath.Join(top, "mounted")); cannot == nil {
				after, err = measure(t, top, math.MaxInt64)
			}
		})
	}()
	if <-done; cannot != nil {
		t.Skipf("cannot run here: mount: %v", cannot)
	}
	// What is seen of the mount is its root: one name more is not there.
	if err != nil || after.Files != before.Files {
		t.Errorf("with the whole machine mounted below it takes %+v, %v", after, err)
	}
}

// mountMachine mounts all that is seen of the machine once more, in a mount namespace in which
// it leaves the calling thread. Some of it is shared, such as the roots of an engine's
// containers: a copy of those, taken off in the host's namespace, would take them off there as
// well, and a container that is about to start would start on the empty folder below.
func mountMachine(at string) error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	return unix.Mount("/", at, "", unix.MS_BIND|unix.MS_REC, "")
}

// The upper of a binding is seen in the container as well, and counted once.
func TestUsageOfBinding(t *testing.T) {
	top := t.TempDir()
	upper, volume := filepath.Join(top, "hosts", "left", "upper"), filepath.Join(top, "volume")
	for _, dir := range []string{upper, volume} {
		if err := os.MkdirAll(filepath.Join(dir, "below"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	l, s := NewLocal(top), Storage{Dir: filepath.Join(top, "hosts"), PID: os.Getpid()}
	for _, step := range []struct {
		inside []string
		files  int64
	}{{nil, 4}, {[]string{upper}, 4}, {[]string{upper, volume}, 6}} {
		s.Inside = step.inside
		if u, err := l.usage(t.Context(), s, 100); err != nil || u.Files != step.files {
			t.Errorf("with %q: %+v, %v; want %d files", step.inside, u, err, step.files)
		}
	}
}

// The bounds of a look: names, depth, and who asked.
func TestUsageBounds(t *testing.T) {
	top := filepath.Join(t.TempDir(), "tree")
	if err := os.Mkdir(top, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 3000 {
		if err := os.WriteFile(filepath.Join(top, strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if u, err := measure(t, top, 1000); err != nil || u.Files != 1001 {
		t.Errorf("of 3,000 names 1,000 may be counted: %+v, %v", u, err)
	}
	why := errors.New("given up")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := NewLocal(filepath.Dir(top)).Usage(ctx, Storage{Dir: top}, 1000); !errors.Is(err, why) {
		t.Errorf("given up, it says %v", err)
	}

	deep := filepath.Join(t.TempDir(), "tree")
	if err := os.Mkdir(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(deep, unix.O_PATH|unix.O_CLOEXEC, 0)
	for i := 0; err == nil && i < maxDepth+10; i++ {
		if err = unix.Mkdirat(fd, "d", 0o700); err == nil {
			up := fd
			fd, err = unix.Openat(up, "d", unix.O_PATH|unix.O_CLOEXEC, 0)
			unix.Close(up)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	if u, err := measure(t, deep, math.MaxInt64); !errors.Is(err, ErrTooMany) || u.Files < maxDepth {
		t.Errorf("of a tree of depth %d it says %+v, %v", maxDepth+10, u, err)
	}
	if err := RemoveTree(deep); err != nil {
		t.Error(err)
	}
}

// A look ends, without an error, however its folder is changed meanwhile.
func TestUsageWhileChanging(t *testing.T) {
	dir := t.TempDir()
	top, outside := filepath.Join(dir, "tree"), filepath.Join(dir, "outside")
	for _, p := range []string{top, outside} {
		if err := os.Mkdir(p, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// More names than a look may count; and the folder's own, for what is written through a link.
	for i := range 1001 {
		if err := os.WriteFile(filepath.Join(outside, strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stop := make(chan struct{})
	var group sync.WaitGroup
	for w := range 3 {
		group.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				// Each name is a folder, a link to another and none in turn: errors are the point of it.
				p := filepath.Join(top, strconv.Itoa((i+w)%7))
				switch i % 3 {
				case 0:
					os.MkdirAll(filepath.Join(p, "a", "b"), 0o700)
					os.WriteFile(filepath.Join(p, "a", "f"), []byte("x"), 0o600)
				case 1:
					os.RemoveAll(p)
					os.Symlink(outside, p)
				case 2:
					os.Remove(p)
					os.Rename(filepath.Join(top, strconv.Itoa((i+w+3)%7)), p)
				}
			}
		})
	}
	for range 500 {
		if u, err := measure(t, top, 1000); err != nil || u.Files > 1000 {
			t.Errorf("%+v, %v", u, err)
			break
		}
	}
	close(stop)
	group.Wait()
}
