package executor_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/executor/transfer"
	"github.com/ramus-dev/ramus/gitd"
)

// upload uploads files for a caller, as names and contents by turns.
func (w *world) upload(name, folder string, files ...string) (transfer.Uploaded, error) {
	w.t.Helper()
	u := w.x.Files.Uploads().Begin()
	defer u.Close()
	u.Folder = folder
	for i := 0; i < len(files); i += 2 {
		if err := u.Add(files[i], strings.NewReader(files[i+1])); err != nil {
			w.t.Fatal(err)
		}
	}
	return w.x.Files.Upload(w.t.Context(), caller(w.t, name), bo, u)
}

// TestUpload uploads while a command is at work. The command sees the files. The upload's commit has them alone, and
// the command's has the rest.
func TestUpload(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r, err := w.x.Submit(t.Context(), record.Request{Caller: caller(t, "run:up"), Repo: "demo", Asker: ada,
		Command: &record.Command{
			Shell: `echo half >half.txt; echo ready; while [ ! -e docs/new.txt ]; do sleep 0.05; done; cat ` +
				`docs/new.txt >done.txt`}})
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
	if got := w.inRepo("show", "--format=%an|%s", "--name-only",
		string(done.Commit)); got != "Bo|Upload 2 files\n\ndocs/new.txt" {
		t.Errorf("the commit of the upload: %q", got)
	}
	if got := w.inRepo("show", "--format=%an", "--name-only", "ramus/run-up"); got != "Ada\n\ndone.txt\nhalf.txt" {
		t.Errorf("the commit of the command: %q", got)
	}
	if got := w.inRepo("show", "ramus/run-up:done.txt"); got != "new" {
		t.Errorf("done.txt: %q", got)
	}
	if got := w.inRepo("log", "-1", "--format=%(trailers)", string(done.Commit)); !strings.Contains(got,
		"Ramus-Caller: run:up") ||
		!strings.Contains(got, "Ramus-Step: upload") {
		t.Errorf("trailers %q", got)
	}

	// People download the files of the container, also those that no commit has.
	err = w.x.Files.Look(t.Context(), caller(t, "run:up"), ada, func(live *transfer.Live) error {
		in, size, err := live.Open(t.Context(), "docs/deep/one.log")
		if err != nil || size != 8 {
			return fmt.Errorf("%d bytes, %w", size, err)
		}
		if b, err := io.ReadAll(in); err != nil || string(b) != "ignored\n" {
			t.Errorf("%q, %v", b, err)
		}
		return in.Close()
	})
	if err != nil {
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
	t.Parallel()
	w := newWorld(t, nil)
	w.exec("run:up", "ln -s /etc etc")
	before := w.inRepo("rev-parse", "ramus/run-up")
	for _, c := range []struct {
		folder, name string
		kind         error
	}{
		{"", "greeting.txt", gitd.ErrExists}, {"", "Greeting.TXT", gitd.ErrExists}, {"SUB", "b", gitd.ErrInvalid},
		{"etc", "x", gitd.ErrInvalid},
		{"", "etc", gitd.ErrInvalid}, {"greeting.txt", "x", gitd.ErrInvalid}, {"..", "x", gitd.ErrInvalid},
		{"", ".git/hooks/x", gitd.ErrInvalid},
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
	if res, out, _ := w.exec("run:up", "git status --porcelain; ls; ls -A .git/logs"); res.ExitCode != 0 ||
		strings.Contains(out, "fine") ||
		strings.Contains(out, "upload") || strings.Contains(out, "??") {
		t.Errorf("%+v, %q", res, out)
	}
	if after := w.inRepo("rev-parse", "ramus/run-up"); after != before {
		t.Errorf("the branch moved from %s to %s", before, after)
	}
}

// TestUploadUncommitted uploads a file that no push may bring. Neither the container nor the branch has it, nor the
// other files of the upload.
func TestUploadUncommitted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.exec("run:up", "echo first >kept.txt")
	before := w.inRepo("rev-parse", "ramus/run-up^{tree}")
	u := w.x.Files.Uploads().Begin()
	defer u.Close()
	u.Replace = true
	for name, content := range map[string]string{"fine.txt": "fine", "kept.txt": "second",
		".gitmodules": "[submodule \"x\"]\n\tpath = x\n\turl = -u./payload\n"} {
		if err := u.Add(name, strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.x.Files.Upload(t.Context(), caller(t, "run:up"), bo, u); !errors.Is(err, record.ErrConflict) ||
		strings.Contains(err.Error(), "stay") {
		t.Errorf("%v", err)
	}
	if after := w.inRepo("rev-parse", "ramus/run-up^{tree}"); after != before {
		t.Errorf("the branch has %s", w.inRepo("diff", "--stat", before, after))
	}
	if _, out, _ := w.exec("run:up", "cat kept.txt; ls -A; ls -A .git/logs; git status "+
		"--porcelain"); !strings.Contains(out, "first") ||
		strings.Contains(out, "fine.txt") || strings.Contains(out, "gitmodules") ||
		strings.Contains(out, "ramus-upload") {
		t.Errorf("%s", out)
	}
}

// TestUploadWaits uploads while a run has the turn and no command is at work. The upload ends after a while.
func TestUploadWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.exec("run:up", "true")
	w.x.SetTurn(time.Millisecond)
	free, err := w.x.TakeTurn(t.Context(), caller(t, "run:up"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.upload("run:up", "", "a", "a"); !errors.Is(err, record.ErrConflict) ||
		!strings.Contains(err.Error(), "had no time") {
		t.Errorf("%v", err)
	}
	free()
	w.x.SetTurn(time.Minute)
	if _, err := w.upload("run:up", "", "a", "a"); err != nil {
		t.Error(err)
	}
}

// TestUploadInMerge uploads a file while a command is in the middle of a merge. The upload is refused, and the merge
// has both sides.
func TestUploadInMerge(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	said, saying := io.Pipe()
	input, end := io.Pipe()
	defer end.Close()
	done := make(chan error, 1)
	go func() {
		_, err := w.x.Exec(t.Context(), record.Request{Caller: caller(t, "run:up"), Repo: "demo",
			Command: &record.Command{Stdin: input,
				Shell: `set -e; git checkout -qb other; echo theirs >side.txt; git add side.txt; git commit -qm side; ` +
					`git checkout -q -
echo ours >ours.txt; git add ours.txt; git commit -qm ours; git merge -q --no-commit other >/dev/null 2>&1; test -e .git/MERGE_HEAD; echo begun
cat; test -e .git/MERGE_HEAD; git commit -qm merged`}}, saying, nil)
		saying.CloseWithError(io.EOF)
		done <- err
	}()
	if _, err := io.ReadFull(said, make([]byte, len("begun\n"))); err != nil {
		t.Fatalf("the command does not begin: %v, %v", err, <-done)
	}
	go func() { _, _ = io.Copy(io.Discard, said) }() // ends with the command
	if _, err := w.upload("run:up", "", "notes.md", "notes"); !errors.Is(err, record.ErrConflict) ||
		!strings.Contains(err.Error(), "in progress") {
		t.Errorf("%v", err)
	}
	end.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if got := w.inRepo("ls-tree", "--name-only", "ramus/run-up"); !strings.Contains(got, "side.txt") ||
		!strings.Contains(got, "ours.txt") ||
		strings.Contains(got, "notes.md") {
		t.Errorf("%q", got)
	}
}

// TestUploadBehind uploads files while the branch has pushed changes that the container does not have. A file with such
// a change is refused, also for replacement, and another one is merged with the changes.
func TestUploadBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.exec("run:up", "echo first >mine.txt; echo 0 >same.txt")
	w.sh(t.TempDir(), "git clone -q -b ramus/run-up "+w.data+
		"/repos/demo.git . && git config user.name H && git config user.email h@example.com && mkdir -p new && echo "+
		"theirs >report.csv && echo theirs >mine.txt && "+
		"echo theirs >new/one && git rm -q same.txt && git add -A && git commit -qm push && git push -q origin HEAD")
	before := w.inRepo("rev-parse", "ramus/run-up")
	for _, c := range []struct {
		name    string
		replace bool
	}{{"report.csv", false}, {"report.csv", true}, {"mine.txt", true}, {"same.txt", true}, {"new", false},
		{"report.csv/x", false}} {
		u := w.x.Files.Uploads().Begin()
		defer u.Close()
		u.Replace = c.replace
		if err := u.Add(c.name, strings.NewReader("ours")); err != nil {
			t.Fatal(err)
		}
		_, err := w.x.Files.Upload(t.Context(), caller(t, "run:up"), bo, u)
		var refused *transfer.Refused
		if !errors.As(err, &refused) {
			t.Errorf("%s, replace %v: %v", c.name, c.replace, err)
		}
	}
	if after := w.inRepo("rev-parse", "ramus/run-up"); after != before {
		t.Errorf("the branch moved from %s to %s", before, after)
	}
	if done, err := w.upload("run:up", "new", "two", "two\n"); err != nil || done.Commit == "" ||
		len(done.Ignored) > 0 {
		t.Errorf("%+v, %v", done, err)
	}
	if got := w.inRepo("show", "ramus/run-up:mine.txt") + w.inRepo("show", "ramus/run-up:new/two"); got != "theirstwo" {
		t.Errorf("%q", got)
	}
}

// TestUploadAtOnce has several people upload to one workspace at the same moment. Each gets a commit of their own, and
// one name is given once.
func TestUploadAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.exec("run:up", "true")
	const people = 4
	results, up := make(chan error, people), caller(t, "run:up")
	for i := range people {
		go func() {
			u := w.x.Files.Uploads().Begin()
			defer u.Close()
			err := u.Add(fmt.Sprintf("own-%d.txt", i), strings.NewReader("x"))
			if err == nil {
				_, err = w.x.Files.Upload(t.Context(), up, bo, u)
			}
			both := w.x.Files.Uploads().Begin()
			defer both.Close()
			if err = errors.Join(err, both.Add("same.txt", strings.NewReader(fmt.Sprint(i)))); err == nil {
				_, err = w.x.Files.Upload(t.Context(), up, bo, both)
			}
			results <- err
		}()
	}
	first := 0
	for range people {
		if err := <-results; err == nil {
			first++
		} else if !errors.Is(err, gitd.ErrExists) {
			t.Error(err)
		}
	}
	if first != 1 {
		t.Errorf("%d people put the same file", first)
	}
	if got := w.inRepo("rev-list", "--count", "main..ramus/run-up"); got != fmt.Sprint(people+1) {
		t.Errorf("%s commits of uploads", got)
	}
}
