package runner_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pkg/sftp"

	"github.com/ramus-dev/ramus/containers"
)

// workDir is the work tree of a container.
const workDir = "/work"

func files(t *testing.T, h *containers.Host) *sftp.Client {
	t.Helper()
	f, err := h.Files(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func put(t *testing.T, f *sftp.Client, name string, data []byte) {
	t.Helper()
	w, err := f.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.ReadFrom(bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func get(f *sftp.Client, name string) ([]byte, error) {
	r, err := f.Open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var b bytes.Buffer
	_, err = r.WriteTo(&b)
	return b.Bytes(), err
}

func TestFiles(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		h := b.host(nil)
		f := files(t, h)
		data := bytes.Repeat([]byte{0, 1, 2, 0xff, '\n'}, 300_000)
		odd := workDir + "/d/a b\n\xff"
		if err := f.MkdirAll(workDir + "/d/e"); err != nil {
			t.Fatal(err)
		}
		put(t, f, odd, data)
		if got, err := get(f, odd); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if disk, err := f.StatVFS(workDir); err != nil || disk.Bavail == 0 || disk.Frsize == 0 {
			t.Errorf("room: %+v, %v", disk, err)
		}
		if disk, err := f.StatVFS("/etc"); err == nil {
			t.Errorf("room of a folder outside: %+v", disk)
		}
		// The task's user owns it, and may run it once it is told so.
		if _, out, _ := shell(t, h, `stat -c '%u %a' d/a*; cat d/a* | wc -c`); !strings.Contains(out, "1000 644") ||
			!strings.Contains(out, "1500000") {
			t.Errorf("seen from inside: %q", out)
		}
		put(t, f, workDir+"/run", []byte("#!/bin/sh\necho ran\n"))
		if err := f.Chmod(workDir+"/run", 0o755); err != nil {
			t.Fatal(err)
		}
		if _, out, _ := shell(t, h, "./run"); out != "ran\n" {
			t.Errorf("%q", out)
		}
		// Written again the bit stays.
		put(t, f, workDir+"/run", []byte("#!/bin/sh\necho again\n"))
		if _, out, _ := shell(t, h, "./run"); out != "again\n" {
			t.Errorf("%q", out)
		}
		if err := f.Chmod(workDir+"/run", 0o4777); err != nil {
			t.Fatal(err)
		}
		if info, err := f.Stat(workDir + "/run"); err != nil || info.Mode() != 0o777 {
			t.Errorf("set-user-id was accepted: %v %v", info, err)
		}
		for _, text := range []string{"run", "/etc/passwd", "../../x", "no/such\xff"} {
			if err := f.Symlink(text, workDir+"/link"); err != nil {
				t.Fatal(err)
			}
			if got, err := f.ReadLink(workDir + "/link"); err != nil || got != text {
				t.Errorf("link %q reads %q, %v", text, got, err)
			}
			if info, err := f.Lstat(workDir + "/link"); err != nil || info.Mode()&fs.ModeSymlink == 0 {
				t.Errorf("%v %v", info, err)
			}
			if err := f.Remove(workDir + "/link"); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Rename(workDir+"/run", odd); err == nil {
			t.Error("rename replaced a file")
		}
		if err := f.PosixRename(workDir+"/run", odd); err != nil {
			t.Error(err)
		}
		if err := f.Remove(workDir + "/d"); err == nil {
			t.Error("removed a folder with contents")
		}
		a, err := f.OpenFile(workDir+"/log", os.O_WRONLY|os.O_CREATE|os.O_APPEND)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(a, "one")
		fmt.Fprint(a, "two")
		a.Close()
		if got, err := get(f, workDir+"/log"); err != nil || string(got) != "onetwo" {
			t.Errorf("%q %v", got, err)
		}
		if err := f.Truncate(workDir+"/log", 2); err != nil {
			t.Error(err)
		}
		when := time.Unix(1_700_000_000, 0)
		if err := f.Chtimes(workDir+"/log", when, when); err != nil {
			t.Error(err)
		}
		if info, err := f.Stat(workDir + "/log"); err != nil || info.Size() != 2 || !info.ModTime().Equal(when) {
			t.Errorf("%v %v", info, err)
		}
		if _, err := f.Stat(workDir + "/none"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a missing file is: %v", err)
		}
		// A folder with more entries than one answer holds.
		shell(t, h, "mkdir many; cd many; i=0; while [ $i -lt 1500 ]; do i=$((i+1)); : > f$i; done")
		if all, err := f.ReadDir(workDir + "/many"); err != nil || len(all) != 1500 {
			t.Errorf("%d entries, %v", len(all), err)
		}
		top, err := f.ReadDir("/")
		var names []string
		for _, e := range top {
			names = append(names, e.Name())
		}
		if err != nil || !slices.Equal(names, []string{"artifacts", "cache", "tmp", "work"}) {
			t.Errorf("/ has %q, %v", names, err)
		}
		if wd, err := f.Getwd(); err != nil || wd != workDir {
			t.Errorf("%q %v", wd, err)
		}
		// The server survives the end of every command.
		if _, err := f.Stat(workDir); err != nil {
			t.Error(err)
		}
	})
}

// TestFilesCannotLeave tries every way out of the four folders.
func TestFilesCannotLeave(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		h := b.host(nil)
		f := files(t, h)
		if exit, _, errs := shell(t, h, `ln -s /etc abs; ln -s ../../etc up; ln -s /etc/passwd pw; ln -s ../etc/passwd pw2; ln -s / all
			ln -s /proc/self/root proc; ln -s `+workDir+`/inside in; mkdir inside; mkfifo fifo; mkdir -p a/b; ln -s ../../.. a/b/out; ln -s loop loop; echo ok > inside/f`); exit.Code != 0 {
			t.Fatal(errs)
		}
		for _, p := range []string{
			"/etc/passwd", workDir + "/../etc/passwd", workDir + "/../../etc/passwd", "../etc/passwd",
			workDir + "/abs/passwd", workDir + "/up/passwd",
			workDir + "/pw", workDir + "/pw2", workDir + "/all/etc/passwd", workDir + "/proc/etc/passwd",
			workDir + "/a/b/out/etc/passwd", "/proc/1/environ",
			"/run/ramus/s", "/spool", "/ramus", "/workshop", "/tmp/../etc/passwd", "//etc/passwd", workDir + "/loop",
			workDir + "/\x00", "/dev/null", "/",
		} {
			if got, err := get(f, p); err == nil {
				t.Errorf("read %s: %q", p, got)
			}
			if w, err := f.OpenFile(p, os.O_WRONLY|os.O_CREATE); err == nil {
				t.Errorf("opened %s for writing", p)
				w.Close()
			}
			if err := f.Chmod(p, 0o777); err == nil {
				t.Errorf("changed %s", p)
			}
			if err := f.Truncate(p, 0); err == nil {
				t.Errorf("truncated %s", p)
			}
			if err := f.Mkdir(path.Join(p, "new")); err == nil {
				t.Errorf("made a folder in %s", p)
			}
			if err := f.Symlink("x", p+"/new"); err == nil {
				t.Errorf("made a link in %s", p)
			}
			if err := f.Rename(workDir+"/inside/f", p+"/new"); err == nil {
				t.Errorf("moved a file to %s", p)
			}
			if err := f.Link(p, workDir+"/hard"+path.Base(p)); err == nil {
				// Of the links themselves that is harmless, of what they show it is not.
				if info, err := f.Lstat(workDir + "/hard" + path.Base(p)); err != nil || info.Mode()&fs.ModeSymlink == 0 {
					t.Errorf("linked %s: %v", p, info)
				}
			}
		}
		for _, dir := range []string{workDir + "/abs", workDir + "/up", workDir + "/all", workDir + "/a/b/out", "/etc", workDir + "/.."} {
			if got, err := f.ReadDir(dir); err == nil && dir != workDir+"/.." {
				t.Errorf("listed %s: %d entries", dir, len(got))
			}
		}
		// A FIFO without a writer holds nobody up.
		if _, err := get(f, workDir+"/fifo"); err == nil {
			t.Error("read a FIFO")
		}
		if err := f.RemoveDirectory(workDir); err == nil {
			t.Error("removed the work tree")
		}
		// A folder that keeps turning into a symlink.
		p, err := h.Start(t.Context(), containers.Command{ID: "race", Background: true, Args: []string{"python3", "-c", `
import os
os.makedirs("r1/etc"); open("r1/etc/passwd","w").write("mine")
os.symlink("/", "r2")
while True:
    os.rename("r1", "x"); os.rename("r2", "r1"); os.rename("r1", "r2"); os.rename("x", "r1")
`}})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the race begins", func() error { _, err := f.Lstat(workDir + "/r2"); return err }) // made last
		reads := 0
		for range 400 {
			got, err := get(f, workDir+"/r1/etc/passwd")
			if err == nil && string(got) != "mine" {
				t.Fatalf("won the race: %q", got)
			}
			if err == nil {
				reads++
			}
		}
		t.Logf("%d of 400 reads met the folder", reads)
		if err := h.Kill(t.Context(), "race"); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Output(nil, nil); err != nil {
			t.Error(err)
		}
	})
}

// TestFileServersEndWithTheirConnection checks that none outlives its connection.
func TestFileServersEndWithTheirConnection(t *testing.T) {
	each(t, func(t *testing.T, b *box) {
		h := b.host(nil)
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				f, err := h.Files(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := f.Stat(workDir); err != nil {
					t.Error(err)
				}
				if err := f.Close(); err != nil && !errors.Is(err, io.EOF) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if _, err := h.Files(t.Context()); err != nil { // left open
			t.Fatal(err)
		}
		h.Close()
		h = b.host(nil)
		eventually(t, "file servers end", func() error {
			if left := b.alive(h); len(left) > 0 {
				return fmt.Errorf("left: %q", left)
			}
			return nil
		})
		// A user that kills its own server hurts nobody else.
		f := files(t, h)
		shell(t, h, "kill -9 -1")
		if _, err := f.Stat(workDir); err == nil {
			t.Error("the file server outlived kill -9 -1")
		}
		if _, err := files(t, h).Stat(workDir); err != nil {
			t.Error(err)
		}
	})
}
