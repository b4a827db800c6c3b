package executor_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/store/storetest"
)

// large returns a command that makes an artifact too large for git. Each letter makes another one.
func large(letter string) string {
	return "head -c 9000000 /dev/zero | tr '\\0' " + letter + " >/artifacts/" + letter + ".bin"
}

func largeSum(letter string) string {
	sum := sha256.Sum256([]byte(strings.Repeat(letter, 9_000_000)))
	return hex.EncodeToString(sum[:])
}

func (w *world) artifact(run, name string) (string, error) {
	w.t.Helper()
	f, err := w.x.Artifact(w.t.Context(), run, name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	return string(b), err
}

// sealed waits until a run's evidence is there.
func (w *world) sealed(run string) record.Manifest {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		m, err := w.x.Manifest(w.t.Context(), run)
		if err == nil {
			return m
		}
		if !errors.Is(err, record.ErrNotFound) || time.Now().After(deadline) {
			w.t.Fatalf("the evidence of %s: %v", run, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestStoreS3 keeps large artifacts in S3. The service goes away, breaks uploads, and damages and loses objects.
func TestStoreS3(t *testing.T) {
	t.Parallel()
	server := storetest.NewS3(t)
	w := newWorld(t, func(x *executor.Executor) {
		x.Store = server.Open()
		x.SetSealEvery(20 * time.Millisecond)
	})
	key := func(letter string) string { return "sha256/" + largeSum(letter)[:2] + "/" + largeSum(letter) }

	first, _, _ := w.exec("run:one", large("a"))
	m := w.sealed(first.Run)
	for _, f := range m.Files {
		if f.Name == "artifacts/a.bin" && (!f.Stored || f.SHA256 != largeSum("a") || f.Size != 9_000_000) {
			t.Errorf("%+v", f)
		}
	}
	if text, err := w.artifact(first.Run, "artifacts/a.bin"); err != nil || text != strings.Repeat("a", 9_000_000) {
		t.Errorf("a.bin: %d bytes, %v", len(text), err)
	}
	if _, err := os.Stat(filepath.Join(w.data, "artifacts")); err == nil {
		t.Error("there is a folder of artifacts, too")
	}

	// The same content again is written once.
	puts := server.Count("PUT")
	again, _, _ := w.exec("run:two", large("a"))
	w.sealed(again.Run)
	if n := server.Count("PUT"); n != puts {
		t.Errorf("%d parts were written for what was there", n-puts)
	}

	// The store is away at the end of a run. The run's result is known at once, its evidence when the store is
	// back.
	server.SetAway(true)
	later, _, _ := w.exec("run:three", large("b"))
	if r, err := w.x.Run(t.Context(), later.Run); err != nil || r.State != record.StateComplete {
		t.Errorf("%s, %v", r.State, err)
	}
	if _, err := w.x.Manifest(t.Context(), later.Run); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("it has evidence: %v", err)
	}
	if _, err := w.artifact(first.Run, "artifacts/a.bin"); !errors.Is(err, record.ErrStoreAway) {
		t.Errorf("reading while the store is away: %v", err)
	}
	// The store is back, and the connection breaks in the middle of the second part.
	server.BreakPut(2)
	server.SetAway(false)
	w.sealed(later.Run)
	if text, err := w.artifact(later.Run, "artifacts/b.bin"); err != nil || text != strings.Repeat("b", 9_000_000) {
		t.Errorf("b.bin: %d bytes, %v", len(text), err)
	}

	// The server stops while the store is away. The next process seals the runs that are left, and runs nothing
	// again.
	server.SetAway(true)
	r := w.submit(record.Request{Repo: "demo", Caller: caller(t, "run:four"),
		Workflow: "id: w\nnodes:\n  - id: a\n    run: |\n      " + large("c") +
			"\n      echo once >>count\n  - id: b\n    run: exit 3\n"})
	if r = w.wait(r.Name()); r.State != record.StateFailed {
		t.Fatalf("%+v", r)
	}
	w.stop(true)
	server.SetAway(false)
	w.start()
	m = w.sealed(r.Name())
	got, err := w.x.Run(t.Context(), r.Name())
	if err != nil || got.State != record.StateFailed || got.Reason != r.Reason || got.Error != r.Error ||
		got.Head != r.Head || got.EndedAt.IsZero() {
		t.Errorf("after the restart it is\n%+v, was\n%+v: %v", got, r, err)
	}
	if n := len(m.Commands); n != 2 || m.State != record.StateFailed {
		t.Errorf("%d commands, state %s\n%s", n, m.State, w.journal(r.Name()))
	}
	if text := w.inRepo("show", "ramus/run-four:count"); text != "once" {
		t.Errorf("count: %q", text)
	}
	if _, err := w.artifact(r.Name(), "artifacts/c.bin"); err != nil {
		t.Error(err)
	}

	// Bytes that do not fit their hash are an error, wherever the reading begins.
	server.Change(key("b"), func(b []byte) []byte { b[8_999_999] = 'x'; return b })
	if text, err := w.artifact(later.Run, "artifacts/b.bin"); !errors.Is(err, record.ErrDamaged) || len(text) == 9_000_000 && err == nil {
		t.Errorf("a damaged object: %d bytes, %v", len(text), err)
	}
	f, err := w.x.Artifact(t.Context(), later.Run, "artifacts/b.bin")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(5, io.SeekStart); err != nil {
		t.Error(err)
	}
	if n, err := f.Read(make([]byte, 10)); n != 0 || !errors.Is(err, record.ErrDamaged) {
		t.Errorf("the middle of a damaged object: %d bytes, %v", n, err)
	}
	f.Close()
	server.Change(key("b"), func(b []byte) []byte { return b[:100] })
	if _, err := w.artifact(later.Run, "artifacts/b.bin"); !errors.Is(err, record.ErrDamaged) {
		t.Errorf("a short object: %v", err)
	}
	server.Change(key("b"), func([]byte) []byte { return nil })
	if _, err := w.artifact(later.Run, "artifacts/b.bin"); !errors.Is(err, record.ErrDamaged) {
		t.Errorf("a lost object: %v", err)
	}
	// A later run with the same content repairs the artifact.
	repaired, _, _ := w.exec("run:five", large("b"))
	w.sealed(repaired.Run)
	if _, err := w.artifact(later.Run, "artifacts/b.bin"); err != nil {
		t.Error(err)
	}
}

// TestStoreHangs closes the executor while it waits for a store that does not answer. The next one seals the run.
func TestStoreHangs(t *testing.T) {
	t.Parallel()
	server := storetest.NewS3(t)
	w := newWorld(t, func(x *executor.Executor) { x.Store = server.Open() })
	server.Hang(true)
	r, err := w.x.Submit(t.Context(), record.Request{Repo: "demo", Caller: caller(t, "run:one"),
		Workflow: "id: w\nnodes:\n  - id: a\n    run: |\n      " + large("a") + "\n"})
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); server.Hanging() == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing is asked of the store")
		}
	}
	w.stop(true)
	server.Hang(false)
	w.start()
	w.sealed(r.Name())
	if text, err := w.artifact(r.Name(), "artifacts/a.bin"); err != nil || text != strings.Repeat("a", 9_000_000) {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

// TestStoreFolder reads artifacts in the folder below the data folder, also after the store has moved to a
// bucket. It repairs the remains of a crash there.
func TestStoreFolder(t *testing.T) {
	t.Parallel()
	var server *storetest.S3
	w := newWorld(t, func(x *executor.Executor) {
		if server != nil {
			x.Store = server.Open()
		}
	})
	res, _, _ := w.exec("run:one", large("a"))
	path := filepath.Join(w.data, "artifacts", "sha256", largeSum("a")[:2], largeSum("a"))
	if info, err := os.Stat(path); err != nil || info.Size() != 9_000_000 {
		t.Fatalf("%v, %v", info, err)
	}
	// It reads a part of the file, seeks, and reads to the end.
	f, err := w.x.Artifact(t.Context(), res.Run, "artifacts/a.bin")
	if err != nil {
		t.Fatal(err)
	}
	if at, err := f.Seek(-3, io.SeekEnd); err != nil || at != 8_999_997 {
		t.Errorf("%d, %v", at, err)
	}
	if b, err := io.ReadAll(f); err != nil || string(b) != "aaa" {
		t.Errorf("%q, %v", b, err)
	}
	if err := errors.Join(f.Verify(), f.Close()); err != nil {
		t.Error(err)
	}

	// The remains of a crash are half a file under a temporary name, and a file of the right size with other
	// bytes.
	unfinished := path + ".123.tmp"
	if err := os.WriteFile(unfinished, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.stop(true)
	if err := os.WriteFile(path, make([]byte, 9_000_000), 0o600); err != nil {
		t.Fatal(err)
	}
	w.start()
	if _, err := os.Stat(unfinished); err == nil {
		t.Error("an unfinished file is not removed")
	}
	if _, err := w.artifact(res.Run, "artifacts/a.bin"); !errors.Is(err, record.ErrDamaged) {
		t.Errorf("a damaged file: %v", err)
	}
	w.exec("run:two", large("a"))
	if _, err := w.artifact(res.Run, "artifacts/a.bin"); err != nil {
		t.Errorf("it is not repaired: %v", err)
	}

	w.stop(true)
	server = storetest.NewS3(t)
	w.start()
	if _, err := w.artifact(res.Run, "artifacts/a.bin"); err != nil {
		t.Errorf("after the store has moved: %v", err)
	}
}
