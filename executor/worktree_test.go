package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
)

// TestWorkTrees leaves the work tree in every state that a command can make, and compares the
// branch after each.
func TestWorkTrees(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.layer()
	for i, c := range []struct {
		name, line string
		tree       string // git ls-tree -r --name-only -z, without what was there before; "same" when nothing changed
	}{
		{"binary and image files",
			`mkdir dist; head -c 3000 /dev/urandom >dist/a.bin; head -c 100 /dev/urandom >b.png; : >empty`,
			"b.png dist/a.bin empty greeting.txt"},
		{"ignored files stay out", `echo x >x.log`, "same"},
		{"mode bits", `chmod +x greeting.txt`, "greeting.txt"},
		{"symlinks", `ln -s greeting.txt link; ln -s /nowhere dangling`, "dangling greeting.txt link"},
		{"deletion", `rm greeting.txt`, ""},
		{"renamed folder", `mkdir d; echo 1 >d/1; git add d; git mv sub moved; mv d e`, "e/1 greeting.txt moved/a"},
		{"odd names", "printf x >'a b'; printf x >'new\nline'; printf x >\"$(printf 'bad\\377utf8')\"; printf x >-dash; printf x >'qu\"ote'", ""},
		{"file becomes folder", `rm greeting.txt; mkdir greeting.txt; echo x >greeting.txt/in`, "greeting.txt/in"},
		{"unreadable file", `echo secret >u; chmod 000 u`, "greeting.txt u"},
		{"unreadable folder", `mkdir ud; echo x >ud/x; chmod 000 ud`, "greeting.txt ud/x"},
		{"own commit", `echo c >c; git add c; git commit -qm own; echo d >d`, "c d greeting.txt"},
		{"detached HEAD", `git checkout -q --detach; echo x >detached`, "detached greeting.txt"},
		{"own branch", `git checkout -qb feature; echo x >f; git add f; git commit -qm f; echo y >g`, "f g greeting.txt"},
		{"amended", `echo x >am; git add am; git commit -q --amend -m amended`, "am greeting.txt"},
		{"git removed", `rm -rf .git; echo x >after`, "after greeting.txt"},
		{"git broken", `echo junk >.git/HEAD; echo x >after`, "after greeting.txt"},
		{"objects gone", `rm -rf .git/objects; echo x >after`, "after greeting.txt"},
		{"index gone", `rm .git/index; echo x >after`, "after greeting.txt"},
		{"index broken", `echo junk >.git/index; echo x >after`, "after greeting.txt"},
		{"lock left", `: >.git/index.lock; echo x >after`, "after greeting.txt"},
		{"hooks do not run", `mkdir -p .git/hooks; printf '#!/bin/sh\nexit 1\n' >.git/hooks/pre-commit; chmod +x .git/hooks/pre-commit; cp .git/hooks/pre-commit .git/hooks/pre-push; echo x >after`, "after greeting.txt"},
		{"hostile config", `git config core.hooksPath /tmp; git config commit.gpgSign true; git config core.bare true; echo x >after`, "after greeting.txt"},
		{"everything removed", `rm -rf ./* .gitignore`, ""},
		{"a fifo and a socket", `mkfifo p; echo x >after`, "after greeting.txt"},
		{"conflicted merge", `git checkout -qb o; echo o >greeting.txt; git commit -qam o; git checkout -q -; echo p >greeting.txt; git commit -qam p; git merge o`, "greeting.txt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := *w
			w.t = t
			name := fmt.Sprintf("run:tree-%d", i)
			res, _, errs := w.exec(name, c.line)
			branch := fmt.Sprintf("ramus/run-tree-%d", i)
			if res.Message != "" && !strings.Contains(res.Message, "warning") && c.name != "conflicted merge" &&
				c.name != "everything removed" {
				t.Errorf("message: %s", res.Message)
			}
			got := strings.ReplaceAll(w.inRepo("ls-tree", "-r", "--name-only", "-z", branch), "\x00", " ")
			if c.tree == "same" {
				if res.Commit != "" {
					t.Errorf("committed %s: %s", res.Commit, got)
				}
				return
			}
			if res.Commit == "" {
				t.Fatalf("nothing was committed; %+v, stderr %s", res, errs)
			}
			for _, want := range strings.Fields(c.tree) {
				if !strings.Contains(" "+got+" ", " "+want+" ") {
					t.Errorf("no %s on the branch: %q", want, got)
				}
			}
			// The container continues with the branch's files, and a new one gets the same.
			// Only some states check that, because a new container takes time.
			if i%4 != 0 {
				return
			}
			_, warm, _ := w.exec(name, `git status --porcelain; ls -A | LC_ALL=C sort; git symbolic-ref HEAD`)
			if err := w.x.Fleet.Remove(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			_, cold, _ := w.exec(name, `git status --porcelain; ls -A | LC_ALL=C sort; git symbolic-ref HEAD`)
			if c.name == "a fifo and a socket" {
				warm = strings.Replace(warm, "p\n", "", 1)
			}
			if warm != cold {
				t.Errorf("warm %q, cold %q", warm, cold)
			}
			if !strings.HasSuffix(cold, "refs/heads/"+branch+"\n") {
				t.Errorf("HEAD: %q", cold)
			}
		})
	}
}

// TestRebase stops in the middle of a rebase. A later command can continue it, and every
// state is on the branch.
func TestRebase(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.exec("run:rebase", "echo one >greeting.txt")
	w.exec("run:rebase", "git checkout -q -b side HEAD~1; echo two >greeting.txt; git commit -qam two; git checkout -q ramus/run-rebase")
	_, out, _ := w.exec("run:rebase", "git rebase side || true; cat greeting.txt")
	if !strings.Contains(out, "<<<<<<<") {
		t.Fatalf("no conflict: %q", out)
	}
	res, out, errs := w.exec("run:rebase",
		"echo both >greeting.txt; git add greeting.txt; GIT_EDITOR=true git rebase --continue; git log --format=%s -1")
	if res.ExitCode != 0 {
		t.Fatalf("%+v %s %s", res, out, errs)
	}
	if got := w.inRepo("show", "ramus/run-rebase:greeting.txt"); got != "both" {
		t.Errorf("greeting.txt: %q", got)
	}
}

// TestPushMeanwhile pushes to the caller's branch from outside while its command runs.
func TestPushMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.exec("run:both", "echo a >a")
	repo := w.data + "/repos/demo.git"
	w.sh(t.TempDir(), `git clone -q -b ramus/run-both `+repo+
		` c && cd c && git config user.name H && git config user.email h@example.com && echo h >human && git add human && git commit -qm human && git push -q`)
	_, out, _ := w.exec("run:both", "ls")
	if !strings.Contains(out, "human") {
		t.Fatalf("the container does not see what a person pushed: %q", out)
	}
	// The command prints that it has begun, and ends with its input.
	said, saying := io.Pipe()
	input, end := io.Pipe()
	defer end.Close()
	done := make(chan error, 1)
	go func() {
		_, err := w.x.Exec(t.Context(), record.Request{Caller: caller(t, "run:both"), Repo: "demo",
			Command: &record.Command{Shell: "echo b >b; echo begun; cat", Stdin: input}}, saying, nil)
		saying.Close()
		done <- err
	}()
	if _, err := io.ReadFull(said, make([]byte, len("begun\n"))); err != nil {
		t.Fatalf("the command does not begin: %v, %v", err, <-done)
	}
	w.sh(t.TempDir(), `git clone -q -b ramus/run-both `+repo+
		` c && cd c && git config user.name H && git config user.email h@example.com && echo h >human2 && git add human2 && git commit -qm human2 && git push -q`)
	end.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	got := w.inRepo("ls-tree", "--name-only", "ramus/run-both")
	for _, want := range []string{"human2", "b"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s on the branch: %q", want, got)
		}
	}
}

// TestManyCallers has many callers on one repository at once, each with several commands.
// Half of them wait for a container first. RAMUS_TEST=full makes it 20 callers with 10
// commands each.
func TestManyCallers(t *testing.T) {
	t.Parallel()
	onEngines(t, manyCallers)
}

func manyCallers(t *testing.T, engine string) {
	callers, commands := 8, 5
	if os.Getenv("RAMUS_TEST") == "full" {
		callers, commands = 20, 10
	}
	w := newWorldOn(t, engine, func(x *executor.Executor) { x.Fleet.Capacity = callers / 2 })
	base := w.inRepo("rev-parse", "main")
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for j := range commands {
				res, _, errs := w.exec(fmt.Sprintf("run:many-%d", i), fmt.Sprintf("echo %d-%d >>mine", i, j))
				if res.ExitCode != 0 || res.Commit == "" {
					t.Errorf("caller %d, command %d: %+v %s", i, j, res, errs)
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for i := range callers {
		branch := fmt.Sprintf("ramus/run-many-%d", i)
		total += len(strings.Fields(w.inRepo("rev-list", base+".."+branch)))
		var want []string
		for j := range commands {
			want = append(want, fmt.Sprintf("%d-%d", i, j))
		}
		if got := w.inRepo("show", branch+":mine"); got != strings.Join(want, "\n") {
			t.Errorf("%s: %q", branch, got)
		}
	}
	if total != callers*commands {
		t.Errorf("%d commits, want %d", total, callers*commands)
	}
}

func TestTimeoutAndStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	// The container is ready before the command's time begins, so a slow machine makes no
	// difference.
	w.exec("run:slow", "true")
	if err := w.x.Touch(t.Context(), "run:slow", "x"); err != nil {
		t.Fatal(err)
	}
	res, err := w.x.Exec(t.Context(), record.Request{Caller: caller(t, "run:slow"), Repo: "demo",
		Command: &record.Command{Shell: "trap '' TERM; sleep 100", Timeout: time.Second}}, nil, nil)
	if err != nil || !res.TimedOut || res.Commit == "" {
		t.Fatalf("%+v, %v", res, err)
	}
	r, err := w.x.Run(t.Context(), res.Run)
	if err != nil || r.Reason != record.ReasonTimedOut {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = w.x.Submit(t.Context(), record.Request{Caller: caller(t, "run:stop"), Repo: "demo",
		Command: &record.Command{Shell: "echo x >x; echo said; sleep 100"}})
	if err != nil {
		t.Fatal(err)
	}
	w.until(r.Name(), printed("said"))
	if err := w.x.Stop(t.Context(), r.Name(), gitd.Person{Name: "Ada"}); err != nil {
		t.Fatal(err)
	}
	if r = w.wait(r.Name()); r.Reason != record.ReasonCancelled || w.inRepo("show", "ramus/run-stop:x") != "x" {
		t.Errorf("%+v\n%s", r, w.journal(r.Name()))
	}
	// If the context of an Exec ends, its command is stopped.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	res, err = w.x.Exec(ctx, record.Request{Caller: caller(t, "run:stop"),
		Command: &record.Command{Shell: "echo said; sleep 100"}}, onWrite(cancel), nil)
	if r, _ := w.x.Run(t.Context(), res.Run); r.Reason != record.ReasonCancelled {
		t.Errorf("%+v, %+v, %v", r, res, err)
	}
}

// onWrite is a writer that calls the function for each write.
type onWrite func()

func (f onWrite) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

func TestIdempotentKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	names := map[string]int{}
	for range 20 {
		wg.Go(func() {
			r, err := w.x.Submit(t.Context(),
				record.Request{Key: "C1-123.456", Caller: caller(t, "conv:thread"), Repo: "demo",
					Command: &record.Command{Shell: "echo once >>log"}})
			if err != nil {
				t.Errorf("submit: %v", err)
				return
			}
			mu.Lock()
			names[r.Name()]++
			mu.Unlock()
		})
	}
	wg.Wait()
	if len(names) != 1 {
		t.Fatalf("runs: %v", names)
	}
	w.wait("conv:thread/C1-123.456")
	if got := w.inRepo("show", "ramus/conv-thread:log"); got != "once" {
		t.Errorf("log: %q", got)
	}
}

// TestSameSecond draws the same id twice for a caller. Both commands run.
func TestSameSecond(t *testing.T) {
	t.Parallel()
	now, tokens := time.Now(), []string{"aaaa", "aaaa", "bbbb"}
	w := newWorld(t, func(x *executor.Executor) {
		x.Now = func() time.Time { return now }
		x.SetTokens(func() string {
			token := tokens[0]
			tokens = tokens[1:]
			return token
		})
	})
	for _, word := range []string{"one", "two"} {
		if res, out, errs := w.exec("run:quick", "echo "+word+" >>log; cat log"); res.Commit == "" || !strings.HasSuffix(out, word+"\n") {
			t.Errorf("%s: %+v %q %q", word, res, out, errs)
		}
	}
	if got := w.inRepo("show", "ramus/run-quick:log"); got != "one\ntwo" || len(tokens) != 0 {
		t.Errorf("log: %q; tokens that were not drawn: %q", got, tokens)
	}
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	ok := &record.Command{Shell: "true"}
	for name, req := range map[string]record.Request{
		"nothing":            {Repo: "demo"},
		"two things":         {Repo: "demo", Command: ok, Workflow: "id: x\nnodes: [{id: a, run: ls}]"},
		"no repository":      {Command: ok},
		"unknown repository": {Repo: "nope", Command: ok},
		"bad repository":     {Repo: "../demo", Command: ok},
		"unknown base":       {Repo: "demo", Base: "nope", Command: ok},
		"bad base":           {Repo: "demo", Base: "-x", Command: ok},
		"bad key":            {Repo: "demo", Key: "../x", Command: ok},
		"empty command":      {Repo: "demo", Command: &record.Command{Shell: " "}},
		"unknown task":       {Repo: "demo", Task: &record.TaskCall{Name: "lib_nope"}},
		"unknown file":       {Repo: "demo", File: "nope.yaml"},
		"file outside":       {Repo: "demo", File: "../../etc/passwd"},
		"broken workflow":    {Repo: "demo", Workflow: "id: [}"},
		"missing sub":        {Repo: "demo", Workflow: "id: x\nnodes: [{id: a, workflow: nope}]"},
	} {
		if r, err := w.x.Submit(t.Context(), req); err == nil {
			t.Errorf("%s: accepted as %s", name, r.Name())
		} else if len(err.Error()) < 15 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := w.x.Submit(t.Context(), record.Request{Caller: caller(t, "run:new"), Command: ok}); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("a caller without a repository: %v", err)
	}
	for _, s := range []string{"run:", "run:-x", "run:../x", "run:a..b", "x:y", "run:A", "run:a--b", "conv:a_b",
		"run:" + strings.Repeat("a", 81)} {
		if _, err := record.ParseCaller(s); err == nil {
			t.Errorf("caller %q accepted", s)
		}
	}
}

// TestIndex deletes and damages the index and removes the containers. The results are the
// same afterwards.
func TestIndex(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for i := range 3 {
		w.exec("run:indexed", fmt.Sprintf("echo %d >>f", i))
	}
	w.submit(record.Request{Workflow: linear})
	before := w.listing()
	for _, damage := range []string{`rm -f index.db`, `head -c 100000 /dev/urandom >index.db`, `: >index.db`,
		`printf x | dd of=index.db bs=1 seek=20000 conv=notrunc 2>/dev/null`} {
		w.stop(false)
		w.sh(w.data, damage)
		w.start()
		if after := w.listing(); after != before {
			t.Errorf("after %q the lists are not as before: %d and %d bytes", damage, len(after), len(before))
		}
	}
	if n, err := w.x.Reindex(t.Context()); err != nil || n != 4 {
		t.Errorf("reindex: %d, %v", n, err)
	}
	if after := w.listing(); after != before {
		t.Error("after reindex the lists are not as before")
	}
	if res, out, _ := w.exec("run:indexed", "cat f"); out != "0\n1\n2\n" {
		t.Errorf("%+v %q", res, out)
	}
}

func (w *world) listing() string {
	w.t.Helper()
	runs, err := w.x.Runs(w.t.Context(), record.Filter{})
	if err != nil {
		w.t.Fatal(err)
	}
	callers, err := w.x.Callers(w.t.Context(), record.Filter{})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range callers {
		callers[i].Container = nil
	}
	text, err := json.MarshalIndent([]any{runs, callers}, "", " ")
	if err != nil {
		w.t.Fatal(err)
	}
	return string(text)
}

func TestEgress(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	w := newWorld(t, func(x *executor.Executor) { x.Options.Egress = []string{site.addr} })
	res, out, errs := w.exec("run:net",
		`curl -sS --noproxy "" http://`+site.addr+
			`/page; curl -sS -o /dev/null -w '%{http_code}' http://example.invalid/; curl -sS --noproxy '*' -m 2 http://`+site.addr+`/page`)
	if !strings.HasPrefix(out, "the page") || !strings.Contains(out, "403") || res.ExitCode == 0 {
		t.Fatalf("%+v %q %q", res, out, errs)
	}
	journal := w.journal(res.Run)
	for _, want := range []string{"allowed " + site.addr, "refused example.invalid:80"} {
		if !strings.Contains(journal, want) {
			t.Errorf("no %q in the journal:\n%s", want, journal)
		}
	}
	// The hint of each failed run names the refused hosts, in the same container, too.
	const want = "containers may not reach example.invalid, other.invalid:8080: list what they need under `egress` in the configuration"
	for range 2 {
		res, _, _ := w.exec("run:net",
			`curl -sf http://example.invalid/; curl -sf http://example.invalid:443/; curl -sf http://other.invalid:8080/`)
		if run, err := w.x.Run(t.Context(), res.Run); err != nil || !strings.HasPrefix(run.Hint, want) ||
			!strings.Contains(run.Hint, "ramus retry") {
			t.Errorf("the hint is %q, %v", run.Hint, err)
		}
	}
	if hint := record.EgressHint([]string{"a:80", "b:443", "c:80", "d:80", "[::1]:80"}); !strings.Contains(hint, "a, b, c, 2 more") {
		t.Errorf("the hint is %q", hint)
	}
}

func TestDoorIsTheOwnBranch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.exec("run:other", "echo secret >s")
	res, out, errs := w.exec("run:thief",
		`git ls-remote origin; git commit -q --allow-empty -m mine; git push -q origin HEAD:ramus/run-thief && echo own; git push -q origin HEAD:main; echo $?; git push -q -f origin HEAD~1:ramus/run-thief; echo $?; git push -q origin :ramus/run-thief; echo $?; git fetch -q origin ramus/run-other; echo $?; curl -sS http://127.0.0.1:7070/other.git/info/refs?service=git-upload-pack`)
	if strings.Contains(out, "run-other") {
		t.Errorf("another caller's branch is in sight: %s", out)
	}
	if strings.Contains(out, "\n0\n") || !strings.Contains(out, "own\n1\n1\n1\n") {
		t.Errorf("something was let through: %+v %s %s", res, out, errs)
	}
	if got := w.inRepo("log", "-1", "--format=%s", "main"); got != "first" {
		t.Errorf("main: %s", got)
	}
}

func TestBackground(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	res, err := w.x.Exec(t.Context(), record.Request{Caller: caller(t, "run:bg"), Repo: "demo",
		Command: &record.Command{Shell: "echo ready; while :; do sleep 0.1; done", Background: true}}, nil, nil)
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	list, err := w.x.Programs.Processes(t.Context(), "run:bg")
	if err != nil || len(list) != 1 || !list[0].Running {
		t.Fatalf("%+v, %v", list, err)
	}
	w.exec("run:bg", "true")
	soon := time.Now().Add(time.Minute)
	var out strings.Builder
	for out.Len() == 0 && time.Now().Before(soon) {
		if err := w.x.Programs.ProcessOutput(t.Context(), "run:bg", list[0].ID, false, &out, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if out.String() != "ready\n" {
		t.Errorf("output %q", out.String())
	}
	if err := w.x.Programs.StopProcess(t.Context(), "run:bg", list[0].ID); err != nil {
		t.Fatal(err)
	}
	for list[0].Running && time.Now().Before(soon) {
		if list, err = w.x.Programs.Processes(t.Context(), "run:bg"); err != nil || len(list) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if list[0].Running {
		t.Errorf("%+v", list)
	}
}

func TestMergeAndRollback(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	first, _, _ := w.exec("run:m", "echo 1 >n")
	w.exec("run:m", "echo 2 >n")
	if _, err := w.x.Rollback(t.Context(), "run:m", string(first.Commit), gitd.Person{Name: "Ada", Email: "a@example.com"}); err != nil {
		t.Fatal(err)
	}
	if _, out, _ := w.exec("run:m", "cat n"); out != "1\n" {
		t.Errorf("n is %q", out)
	}
	if _, err := w.x.Rollback(t.Context(), "run:m", "refs/heads/nope", gitd.Person{}); err == nil {
		t.Error("went back to nowhere")
	}
	res, err := w.x.Merge(t.Context(), "m", record.Merge{Strategy: gitd.StrategySquash, Delete: true})
	if err != nil || !res.Merged {
		t.Fatalf("%+v, %v", res, err)
	}
	if got := w.inRepo("for-each-ref", "refs/heads/ramus"); got != "" {
		t.Errorf("the branch stays: %s", got)
	}
	if got := w.inRepo("cat-file", "-t", string(first.Commit)); got != "commit" {
		t.Errorf("the commit is gone: %s", got)
	}
}

func TestArtifacts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	res, _, _ := w.exec("run:made",
		`mkdir -p /artifacts/sub; echo report >/artifacts/sub/report.txt; head -c 9000000 /dev/zero >/artifacts/large.bin; ln -s /etc/passwd /artifacts/link; mkdir /artifacts/.git; echo x >/artifacts/.git/config`)
	m, err := w.x.Manifest(t.Context(), res.Run)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]record.ManifestFile{}
	for _, f := range m.Files {
		names[f.Name] = f
	}
	if f := names["artifacts/large.bin"]; f.Size != 9000000 || !f.Stored {
		t.Errorf("large.bin: %+v", f)
	}
	if f := names["artifacts/.git/config"]; !f.Stored {
		t.Errorf(".git/config: %+v", f)
	}
	if _, ok := names["artifacts/link"]; ok {
		t.Error("a symlink was collected")
	}
	r, err := w.x.Artifact(t.Context(), res.Run, "artifacts/sub/report.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if text, err := io.ReadAll(r); err != nil || string(text) != "report\n" {
		t.Errorf("report: %q, %v", text, err)
	}
	if _, err := w.x.Artifact(t.Context(), res.Run, "../run.json"); !errors.Is(err, record.ErrNotFound) {
		t.Errorf("a name outside: %v", err)
	}
}

// TestForgottenCallers removes a caller's container. The executor then forgets the state of
// the container.
func TestForgottenCallers(t *testing.T) {
	t.Parallel()
	onEngines(t, forgottenCallers)
}

func forgottenCallers(t *testing.T, engine string) {
	w := newWorldOn(t, engine, nil)
	w.layer()
	names := make([]string, 3)
	for i := range names {
		names[i] = fmt.Sprintf("run:once-%d", i)
		w.exec(names[i], "echo x >x")
	}
	if n := w.x.Targets(); n != len(names) {
		t.Fatalf("%d callers are known, want %d", n, len(names))
	}
	for _, name := range names {
		if err := w.x.Fleet.Remove(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	for range 1000 {
		runtime.GC()
		if w.x.Targets() == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d callers are known after their containers are gone", w.x.Targets())
}
