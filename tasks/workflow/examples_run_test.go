package workflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/tasks/library"
	"github.com/ramus-dev/ramus/tasks/taskstest"
)

// stage runs workflows on a checkout of examples/sample, with sh and git and
// nothing else: one work tree a branch, one commit a command.
type stage struct {
	t     *testing.T
	trees string // where work trees of further branches are made
	count int
	log   []string // IDs of the steps that were done
	no    bool     // what people answer
}

func newStage(t *testing.T) (*stage, *taskstest.LocalShell) {
	t.Helper()
	for _, tool := range []string{"git", "sh"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("cannot run here: there is no %s", tool)
		}
	}
	s := &stage{t: t, trees: t.TempDir()}
	origin, dir := filepath.Join(s.trees, "origin.git"), filepath.Join(s.trees, "main")
	s.git(s.trees, "init", "-q", "--bare", "-b", "main", origin)
	s.git(s.trees, "clone", "-q", origin, dir)
	if err := os.CopyFS(dir, os.DirFS(filepath.FromSlash("../../examples/sample"))); err != nil {
		t.Fatal(err)
	}
	s.git(dir, "checkout", "-q", "-b", "main")
	s.git(dir, "add", "-A")
	s.git(dir, "commit", "-q", "-m", "The sample")
	s.git(dir, "push", "-q", "origin", "main")
	s.git(dir, "checkout", "-q", "-b", "ramus/run-test")
	return s, &taskstest.LocalShell{Dir: dir, Env: gitEnv()}
}

func gitEnv() []string {
	return []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "LANG=C.UTF-8", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=ramus", "GIT_AUTHOR_EMAIL=ramus@localhost", "GIT_COMMITTER_NAME=ramus",
		"GIT_COMMITTER_EMAIL=ramus@localhost",
	}
}

func (s *stage) git(dir string, args ...string) string {
	s.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = dir, gitEnv()
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// tree makes a work tree with a branch of its own.
func (s *stage) tree(from *taskstest.LocalShell) *taskstest.LocalShell {
	s.count++
	dir := filepath.Join(s.trees, fmt.Sprintf("tree-%d", s.count))
	s.git(from.Dir, "worktree", "add", "-q", "-b", fmt.Sprintf("ramus/run-test-%d", s.count), dir)
	return &taskstest.LocalShell{Dir: dir, Env: gitEnv()}
}

func (s *stage) commit(sh *taskstest.LocalShell, message string) {
	s.git(sh.Dir, "add", "-A")
	s.git(sh.Dir, "commit", "-q", "--allow-empty", "-m", message)
}

// run does what the executor does, in its simplest form.
func (s *stage) run(id string, input map[string]any, sh *taskstest.LocalShell) (Outcome, *Machine) {
	s.t.Helper()
	text, err := loadExample(id)
	if err != nil {
		s.t.Fatal(err)
	}
	w, err := Parse(s.t.Context(), id+".yaml", text, Options{Load: loadExample, LLM: true})
	if err != nil {
		s.t.Fatalf("\n%v", err)
	}
	m, err := NewMachine(w, input, map[string]any{"run_id": "test", "branch": sh.Branch(), "base_branch": "main"})
	if err != nil {
		s.t.Fatal(err)
	}
	lines := map[string]*taskstest.LocalShell{"": sh}
	for {
		if _, err := m.Next(); err != nil {
			s.t.Fatal(err)
		}
		if o, done := m.Done(); done {
			return o, m
		}
		step := m.Running()[0]
		s.log = append(s.log, id+":"+step.ID)
		if step.Kind == KindFork {
			lines[step.Line] = s.tree(sh)
		}
		tree := lines[step.Line]
		if tree == nil {
			tree = sh // a line without a branch; it has no step that needs one
		}
		r := s.step(step, tree, lines)
		if step.Kind == KindShell || step.Kind == KindTask {
			s.commit(tree, step.ID)
		}
		if err := m.Finish(step.ID, r); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *stage) step(step Step, sh *taskstest.LocalShell, lines map[string]*taskstest.LocalShell) StepResult {
	switch step.Kind {
	case KindShell:
		if step.Background {
			return StepResult{OK: true, Output: map[string]any{"exit_code": 0}}
		}
		r, err := sh.Exec(s.t.Context(), step.Command, step.Timeout)
		if err != nil {
			s.t.Fatalf("%s: %v", step.ID, err)
		}
		if r.ExitCode != 0 {
			s.t.Logf("%s ended with %d: %s%s", step.ID, r.ExitCode, r.Stdout, r.Stderr)
		}
		return StepResult{OK: r.ExitCode == 0 && !r.TimedOut, Output: asMap(s.t, r)}
	case KindTask:
		task, _ := library.Lookup(step.Task)
		out, err := task.Run(s.t.Context(), sh, step.Params)
		if err != nil {
			return StepResult{Error: err.Error()}
		}
		output := asMap(s.t, out.Value)
		if out.Result != nil {
			maps.Copy(output, asMap(s.t, out.Result))
		}
		return StepResult{OK: out.OK, Output: output}
	case KindHuman:
		return StepResult{OK: !s.no, Output: map[string]any{"approved": !s.no, "by": "anna", "comment": "looked at it"}}
	case KindWorkflow:
		tree := sh
		if !step.Sub.InheritBranch {
			tree = s.tree(sh)
		}
		o, m := s.run(step.Sub.Workflow, step.Sub.Input, tree)
		return StepResult{OK: o.OK, Error: o.Error, Output: map[string]any{"status": "complete", "state": m.State()}}
	case KindJoin:
		for _, line := range step.Lines {
			s.git(lines[""].Dir, "merge", "-q", "--no-edit", lines[line].Branch())
		}
		return StepResult{OK: true}
	case KindFork:
		return StepResult{OK: true}
	default:
		return StepResult{OK: true,
			Output: map[string]any{"json": map[string]any{"verdict": "code", "rationale": step.LLM.Prompt}}}
	}
}

func asMap(t *testing.T, v any) map[string]any {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]any{}
	if bytes.HasPrefix(raw, []byte("{")) {
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// The examples do what their comments say.
func TestExamplesRun(t *testing.T) {
	file := func(t *testing.T, sh *taskstest.LocalShell, name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(sh.Dir, name))
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
	good := func(t *testing.T, o Outcome) {
		t.Helper()
		if !o.OK {
			t.Errorf("failed at %s: %s", o.Failed, o.Error)
		}
	}
	t.Run("hello", func(t *testing.T) {
		s, sh := newStage(t)
		o, _ := s.run("hello", nil, sh)
		good(t, o)
		if got := file(t, sh, "hello.txt"); got != "Hello from ramus/run-test\n" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("everything", func(t *testing.T) {
		s, sh := newStage(t)
		name := "it's \"odd\" $HOME `id`\nand long"
		o, m := s.run("everything", map[string]any{"name": name, "words": []string{"a b", "*", "'"}}, sh)
		good(t, o)
		if got := file(t, sh, "everything/name.txt"); got != name+"\n" {
			t.Errorf("got %q", got)
		}
		if got := file(t, sh, "everything/words.txt"); got != "a b\n*\n'\n" {
			t.Errorf("got %q", got)
		}
		if got := file(t, sh, "everything/draft-1.txt"); got != "*\n" {
			t.Errorf("got %q", got)
		}
		state, _ := json.Marshal(m.State())
		for _, want := range []string{`"done":3`, `"squares":[{"square":0},{"square":1}]`,
			`"drafts":[{"draft":"draft-0.txt"}`, `"approver":"anna"`, `"greeting":"name=it's`} {
			if !bytes.Contains(state, []byte(want)) {
				t.Errorf("the state has no %s: %s", want, state)
			}
		}
		for _, want := range []string{"everything:flaky#2", "everything:slow", "everything:counter#3",
			"everything-shared:deeper", "everything-leaf:last", "everything-isolated:square", "everything:draft/join",
			"everything:long-form", "everything:push"} {
			if !strings.Contains(strings.Join(s.log, "\n")+"\n", want+"\n") {
				t.Errorf("%s was not done: %q", want, s.log)
			}
		}
		s.git(sh.Dir, "fsck", "--strict")
	})
	t.Run("everything, but a person says no", func(t *testing.T) {
		s, sh := newStage(t)
		s.no = true
		o, _ := s.run("everything", nil, sh)
		if o.OK || o.Failed != "approve" || !strings.Contains(o.Error, "rejected by anna") {
			t.Errorf("ended as %+v", o)
		}
	})
	t.Run("fanout-branches", func(t *testing.T) {
		s, sh := newStage(t)
		o, _ := s.run("fanout-branches", nil, sh)
		good(t, o)
		if got := file(t, sh, "texts/de.txt"); got != "text 1 in de\n" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("gate", func(t *testing.T) {
		s, sh := newStage(t)
		o, _ := s.run("gate", nil, sh)
		good(t, o)
		if got := file(t, sh, "release/done.txt"); got != "released by anna\n" {
			t.Errorf("got %q", got)
		}
		s.no = true
		o, _ = s.run("gate", nil, sh)
		good(t, o)
		if _, err := os.Stat(filepath.Join(sh.Dir, "release")); err == nil {
			t.Error("the release was not withdrawn")
		}
	})
	t.Run("resume", func(t *testing.T) {
		s, sh := newStage(t)
		if o, _ := s.run("resume", nil, sh); o.OK || o.Failed != "deploy" {
			t.Errorf("ended as %+v", o)
		}
		o, _ := s.run("resume", map[string]any{"target": "stage"}, sh)
		good(t, o)
	})
	t.Run("judge", func(t *testing.T) {
		s, sh := newStage(t)
		if err := os.WriteFile(filepath.Join(sh.Dir, "run-tests"), []byte("echo 'FAIL go.mod'; exit 1\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		o, _ := s.run("judge", nil, sh)
		good(t, o)
		if got := file(t, sh, "verdicts.txt"); strings.Count(got, "\n") != 5 || !strings.Contains(got, "Opinion number 4") {
			t.Errorf("got %q", got)
		}
	})
	t.Run("test-fix-lint-merge", func(t *testing.T) {
		if _, err := exec.LookPath("go"); err != nil {
			t.Skip("cannot run here: there is no go")
		}
		s, sh := newStage(t)
		o, m := s.run("test-fix-lint-merge", nil, sh)
		good(t, o)
		if state := m.State(); state["failed_before"] != int64(0) || state["failed_after"] != int64(0) {
			t.Errorf("the state is %v", state)
		}
		if got := s.git(sh.Dir, "diff", "--stat", "main", "HEAD"); !strings.Contains(got, "units/units.go") {
			t.Errorf("the diff is %q", got)
		}
	})
}
