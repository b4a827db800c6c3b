package executor_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/containers/layer"
	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/prune"
	"golang.org/x/sys/unix"
)

// depsTarball returns a tarball of npm's dependencies, with all kinds of entries and the given
// number of files.
func depsTarball(t testing.TB, files int) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	put := func(h tar.Header, text string) {
		h.Size, h.ModTime = int64(len(text)), time.Unix(1_500_000_000+int64(b.Len()), 0)
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	put(tar.Header{Name: "npm/", Typeflag: tar.TypeDir, Mode: 0o755}, "")
	put(tar.Header{Name: "npm/plain", Mode: 0o644}, "plain\n")
	put(tar.Header{Name: "npm/run", Mode: 0o755}, "#!/bin/sh\n")
	put(tar.Header{Name: "npm/odd \n\xff'", Mode: 0o600}, "odd\n")
	put(tar.Header{Name: "npm/same", Typeflag: tar.TypeLink, Linkname: "npm/plain", Mode: 0o644}, "")
	put(tar.Header{Name: "npm/link", Typeflag: tar.TypeSymlink, Linkname: "plain"}, "")
	put(tar.Header{Name: "npm/out", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}, "")
	put(tar.Header{Name: "npm/up", Typeflag: tar.TypeSymlink, Linkname: "../../../../nowhere"}, "")
	put(tar.Header{Name: "npm/pipe", Typeflag: tar.TypeFifo, Mode: 0o644}, "")
	put(tar.Header{Name: "npm/.wh.plain", Mode: 0o644}, "")
	put(tar.Header{Name: "npm/empty/", Typeflag: tar.TypeDir, Mode: 0o700}, "")
	put(tar.Header{Name: "npm/fixed/in", Mode: 0o444}, "fixed\n")
	put(tar.Header{Name: "npm/fixed/", Typeflag: tar.TypeDir, Mode: 0o555}, "")
	put(tar.Header{Name: "npm/many/", Typeflag: tar.TypeDir, Mode: 0o755}, "")
	for i := range files {
		if i%100 == 0 {
			put(tar.Header{Name: fmt.Sprintf("npm/many/%03d/", i/100), Typeflag: tar.TypeDir, Mode: 0o755}, "")
		}
		put(tar.Header{Name: fmt.Sprintf("npm/many/%03d/%d", i/100, i), Mode: 0o644}, fmt.Sprintln(i))
	}
	put(tar.Header{Name: "home/.profile", Mode: 0o644}, "no part of the ecosystem\n")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// fetched puts a lock file of npm on the base, and the fetched dependencies into the cache. It
// returns the cache's file.
func (w *world) fetched(lock string, tarball []byte) (file string) {
	w.t.Helper()
	repo, commit := w.onBase(map[string]string{"package-lock.json": lock})
	w.record(repo, commit)
	sum := sha256.Sum256(fmt.Appendf(nil, "%x  package-lock.json\n", sha256.Sum256([]byte(lock))))
	dir := filepath.Join(w.data, "artifacts", "cache", runtime.GOOS+"-"+runtime.GOARCH, "npm", "demo")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		w.t.Fatal(err)
	}
	file = filepath.Join(dir, fmt.Sprintf("%x", sum))
	if err := os.WriteFile(file, tarball, 0o600); err != nil {
		w.t.Fatal(err)
	}
	return file
}

// entries returns the number of files and folders below folders of the world's data.
func (w *world) entries(pattern string) (n int) {
	w.t.Helper()
	dirs, err := filepath.Glob(filepath.Join(w.data, pattern))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			if path != dir {
				n++
			}
			return err
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	return n
}

// lookDeps prints all files of dependencies.
const lookDeps = `cd /cache/deps && ls -A && LC_ALL=C find . -mindepth 1 -printf '%p %y %m %l %U:%G %T@\n' | LC_ALL=C sort; ` +
	`find . -type f -printf '%p %n %s\n' | LC_ALL=C sort; find . -type f -exec sha256sum {} + | LC_ALL=C sort`

// TestDependenciesBothWays compares dependencies that are mounted with unpacked ones. A caller
// sees the same files. A mount writes nothing, however many files there are.
func TestDependenciesBothWays(t *testing.T) {
	t.Parallel()
	const files = 500
	tarball := depsTarball(t, files)
	look := func(w *world) string {
		res, out, errs := w.exec("run:one", lookDeps)
		if res.ExitCode != 0 || strings.Count(out, "many/") != 3*files+files/100 || strings.Contains(out, ".profile") {
			t.Fatalf("%+v, %s, %s", res, out[:min(len(out), 2000)], errs)
		}
		if events := w.journal(res.Run); !strings.Contains(events, "dependencies from the cache: npm") {
			t.Errorf("the journal does not tell: %s", events)
		}
		return out
	}
	var unpacked string
	t.Run("portable", func(t *testing.T) {
		w := newPortableWorld(t)
		w.fetched("{}", tarball)
		unpacked = look(w)
		if s := w.x.Stats(); s.Mounted != 0 || s.Unpacked != 1 {
			t.Errorf("%+v", s)
		}
	})
	onEngines(t, func(t *testing.T, engine string) {
		w := boundWorld(t, engine, nil)
		w.fetched("{}", tarball)
		w.layer()
		before := w.entries("fleet/hosts") // the rest is removed in the background
		mounted := look(w)
		if s := w.x.Stats(); s.Mounted != 1 || s.Unpacked != 0 || s.Layers != 3 || s.Bound != 1 ||
			len(s.Portable) > 0 { // two work trees, one of dependencies
			t.Errorf("%+v", s)
		}
		// These are folders and files of the fleet, including the work tree's .git, and none of
		// the dependencies.
		if n := w.entries("fleet/hosts") - before; n > files/4 {
			t.Errorf("%d files were made for a caller", n)
		}
		if n := w.entries("fleet/hosts/*/deps/upper"); n != 0 {
			t.Errorf("%d files were made of dependencies that are mounted", n)
		}
		one, other := strings.Split(mounted, "\n"), strings.Split(unpacked, "\n")
		for i, line := range one[:min(len(one), len(other))] {
			if line != other[i] {
				t.Errorf("mounted %q, unpacked %q", line, other[i])
			}
		}
		if len(one) != len(other) {
			t.Errorf("%d lines of what is mounted, %d of what is unpacked", len(one), len(other))
		}
		changesOfOne(t, w, mounted)
	})
}

// changesOfOne has one caller change its mounted dependencies. No other caller sees a change.
func changesOfOne(t *testing.T, w *world, shown string) {
	res, out, errs := w.exec("run:two", `cd /cache/deps/npm && echo more >>plain && rm run && mv many some && chmod u+w fixed && rm fixed/in && ln -s /tmp fixed/in && rm -rf some/001 &&
		cat plain same && ls -d some/* && ls fixed && cd .. && mv npm other && cp -r other npm && rm -rf other && ls && rm -rf npm && ls -A`)
	if want := "plain\nmore\nplain\nsome/000\nsome/002\nsome/003\nsome/004\nin\nnpm\n"; out != want || res.Commit != "" {
		t.Errorf("%q, want %q, %+v %s", out, want, res, errs)
	}
	for _, name := range []string{"run:one", "run:three"} {
		if _, out, errs := w.exec(name, lookDeps); out != shown {
			t.Errorf("%s sees what another did: %.2000s %s", name, out, errs)
		}
	}
}

// TestDependenciesKept follows a layer of dependencies. It stays while a container has it. The
// next server takes it up, and does not remove it before the container is gone. Then the layer
// is removed.
func TestDependenciesKept(t *testing.T) {
	t.Parallel()
	w := boundWorld(t, "sandbox", nil)
	w.fetched("{}", depsTarball(t, 10))
	w.layer()
	const see = "cat /cache/deps/npm/plain; echo changed >>/cache/deps/npm/plain"
	if _, out, errs := w.exec("run:one", see); out != "plain\n" {
		t.Fatalf("%q %s", out, errs)
	}
	pruned := func() (names string) {
		list, err := w.x.Prune(context.Background(), prune.Pruning{Kinds: []string{prune.Layers}})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			if name, _, ok := strings.Cut(p.Name, "-"+runtime.GOOS); ok && p.Bytes > 0 {
				names += name + " "
			}
		}
		return names
	}
	if got := pruned(); got != "" {
		t.Errorf("pruned what a container has: %s", got)
	}
	w.stop(true)
	w.start()
	if _, out, errs := w.exec("run:one", see); out != "plain\nchanged\n" {
		t.Errorf("after a new start: %q %s", out, errs)
	}
	if _, out, errs := w.exec("run:two", see); out != "plain\n" || w.x.Stats().Mounted != 1 {
		t.Errorf("after a new start: %q %s, %+v", out, errs, w.x.Stats())
	}
	for _, name := range []string{"run:one", "run:two"} {
		if err := w.x.Fleet.Remove(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if got := pruned(); got != "npm " {
		t.Errorf("pruned %q", got)
	}
	if _, out, errs := w.exec("run:one", see); out != "plain\n" || w.x.Stats().Unpacked != 1 {
		t.Errorf("without a layer: %q %s, %+v", out, errs, w.x.Stats())
	}
}

// TestDependenciesDamaged fetches damaged and hostile tarballs. A damaged one becomes no layer,
// and a hostile one writes nothing outside its folder.
func TestDependenciesDamaged(t *testing.T) {
	t.Parallel()
	w := boundWorld(t, "sandbox", nil)
	whole := depsTarball(t, 10)
	for i, text := range [][]byte{nil, []byte("hello"), whole[:len(whole)/2], hostileTarball(t)} {
		w.fetched(fmt.Sprint(i), text)
		if err := w.x.MakeLayer(t.Context(), "demo", "main"); err == nil {
			t.Errorf("tarball %d became a layer", i)
		}
		if n := w.entries("layers/demo/npm-*") + w.entries("layers/demo/.new-*"); n != 0 {
			t.Errorf("tarball %d left %d files", i, n)
		}
		res := w.result(fmt.Sprint("after-", i),
			"test ! -e evil && test ! -e /tmp/evil && test ! -e ~/.profile && cat greeting.txt")
		if res.ExitCode != 0 || res.Commit != "" || strings.Contains(w.journal(res.Run), "from the cache") {
			t.Errorf("tarball %d: %+v", i, res)
		}
	}
}

// TestDependenciesTooMany unpacks a tarball that never ends. It is stopped when it has made
// more entries than a layer may have.
func TestDependenciesTooMany(t *testing.T) {
	t.Parallel()
	w := boundWorld(t, "sandbox", func(x *executor.Executor) { x.SetLayerEntries(1000) })
	pipe := w.fetched("{}", nil)
	if err := errors.Join(os.Remove(pipe), unix.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	var writer sync.WaitGroup
	writer.Go(func() {
		out, err := os.OpenFile(pipe, os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer out.Close()
		z := gzip.NewWriter(out)
		tarball := tar.NewWriter(z)
		for i := 0; err == nil; i = (i + 1) % 20 { // the same 2,020 folders again and again
			err = tarball.WriteHeader(&tar.Header{Name: fmt.Sprintf("npm/%d", i) + strings.Repeat("/d", 100),
				Typeflag: tar.TypeDir, Mode: 0o755})
		}
		if !errors.Is(err, syscall.EPIPE) {
			t.Error(err)
		}
	})
	if err := w.x.MakeLayer(t.Context(), "demo", "main"); !errors.Is(err, layer.ErrTooMany) {
		t.Error(err)
	}
	if in, err := os.OpenFile(pipe, os.O_RDONLY|unix.O_NONBLOCK, 0); err == nil { // in case that nothing has opened the pipe
		in.Close()
	}
	writer.Wait()
	if n := w.entries("layers/demo/npm-*") + w.entries("layers/demo/.new-*"); n != 0 {
		t.Errorf("%d files are left", n)
	}
}
