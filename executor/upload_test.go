package executor_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/transfer"
	"github.com/ramus-dev/ramus/gitd"
)

// upload uploads files for a caller, as names and contents by turns.
func (w *world) upload(name, folder string, files ...string) (executor.Uploaded, error) {
	w.t.Helper()
	u := w.x.Uploads().Begin()
	defer u.Close()
	u.Folder = folder
	for i := 0; i < len(files); i += 2 {
		if err := u.Add(files[i], strings.NewReader(files[i+1])); err != nil {
			w.t.Fatal(err)
		}
	}
	return w.x.Upload(w.t.Context(), caller(w.t, name), bo, u)
}

// TestUpload uploads while a command is at work. The command sees the files. The upload's commit has them alone, and
// the command's has the rest.
func TestUpload(t *testing.T) {
	w := newWorld(t, nil)
	r, err := w.x.Submit(t.Context(), record.Request{Caller: caller(t, "run:up"), Repo: "demo", Asker: ada, Command: &record.Command{
		Shell: `echo half >half.txt; echo ready; while [ ! -e docs/new.txt ]; do sleep 0.05; done; cat docs/new.txt >done.txt`}})
	if err != nil {
		t.Fatal(err)
	}
	w.until(r.Name(), printed("ready"))
	done, err := w.upload("run:up", "docs", "new.txt", "new\n", "deep/one.log", "ignored\n")
	if err != nil {
		t.Fatal(err)
	}
	if r = w.ended(r.Name()); r.State != record.StateComplete {
		t.Fatalf("%+v\n%s", r, w.journal(r.Name()))
	}
	if len(done.Ignored) != 1 || done.Ignored[0] != "docs/deep/one.log" || done.Bytes != 12 || done.Commit == "" {
		t.Errorf("%+v", done)
	}
	if got := w.inRepo("show", "--format=%an|%s", "--name-only", string(done.Commit)); got != "Bo|Upload 2 files\n\ndocs/new.txt" {
		t.Errorf("the commit of the upload: %q", got)
	}
	if got := w.inRepo("show", "--format=%an", "--name-only", "ramus/run-up"); got != "Ada\n\ndone.txt\nhalf.txt" {
		t.Errorf("the commit of the command: %q", got)
	}
	if got := w.inRepo("show", "ramus/run-up:done.txt"); got != "new" {
		t.Errorf("done.txt: %q", got)
	}
	if got := w.inRepo("log", "-1", "--format=%(trailers)", string(done.Commit)); !strings.Contains(got, "Ramus-Caller: run:up") ||
		!strings.Contains(got, "Ramus-Step: upload") {
		t.Errorf("trailers %q", got)
	}

	// What people download is what the container has, also what no commit has.
	live, err := w.x.LiveTree(t.Context(), caller(t, "run:up"), ada)
	if err != nil {
		t.Fatal(err)
	}
	in, size, err := live.Open(t.Context(), "docs/deep/one.log")
	if err != nil || size != 8 {
		t.Fatalf("%d, %v", size, err)
	}
	if b, err := io.ReadAll(in); err != nil || string(b) != "ignored\n" {
		t.Errorf("%q, %v", b, err)
	}
	if err := errors.Join(in.Close(), live.Close()); err != nil {
		t.Error(err)
	}

	// A container that is gone is made again.
	if err := w.x.Stop(t.Context(), "run:up", ada); err != nil {
		t.Fatal(err)
	}
	if done, err = w.upload("run:up", "", "again.txt", "again\n"); err != nil || done.Commit == "" {
		t.Fatalf("%+v, %v", done, err)
	}
	if got := w.inRepo("show", "ramus/run-up:again.txt"); got != "again" {
		t.Errorf("again.txt: %q", got)
	}
}

// TestUploadRefused tries files that no commit may have. Nothing of them is in the container.
func TestUploadRefused(t *testing.T) {
	w := newWorld(t, nil)
	w.exec("run:up", "ln -s /etc etc")
	before := w.inRepo("rev-parse", "ramus/run-up")
	for _, c := range []struct {
		folder, name string
		kind         error
	}{
		{"", "greeting.txt", gitd.ErrExists}, {"", "Greeting.TXT", gitd.ErrExists}, {"SUB", "b", gitd.ErrInvalid}, {"etc", "x", gitd.ErrInvalid},
		{"", "etc", gitd.ErrInvalid}, {"greeting.txt", "x", gitd.ErrInvalid}, {"..", "x", gitd.ErrInvalid}, {"", ".git/hooks/x", gitd.ErrInvalid},
	} {
		_, err := w.upload("run:up", c.folder, "fine", "fine", c.name, "x")
		var refused *transfer.Refused
		if !errors.As(err, &refused) || !errors.Is(err, c.kind) {
			t.Errorf("%s in %q: %v, want %v", c.name, c.folder, err, c.kind)
		}
	}
	if _, err := w.upload("run:nobody", "", "x", "x"); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("a caller that is nowhere: %v", err)
	}
	if res, out, _ := w.exec("run:up", "git status --porcelain; ls; ls -A .git/logs"); res.ExitCode != 0 || strings.Contains(out, "fine") ||
		strings.Contains(out, "upload") || strings.Contains(out, "??") {
		t.Errorf("%+v, %q", res, out)
	}
	if after := w.inRepo("rev-parse", "ramus/run-up"); after != before {
		t.Errorf("the branch moved from %s to %s", before, after)
	}
}
