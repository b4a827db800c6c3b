package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/internal/programs"
	"github.com/ramus-dev/ramus/internal/standin/modeltest"
)

// npmAgent is a coding agent as it is released on npm, with its way to do the edit task.
type npmAgent struct {
	target   string   // of examples/agents/Dockerfile, and its image, ramus/TARGET
	file     string   // in examples/agents
	agents   []string // names in the file; each does all tasks
	provider string   // of the API that it uses
	// edit is the task as calls of the agent's tools. They read sum.js, edit it and run the tests.
	edit []modeltest.ToolCall
	// ramus is the call of ramus's own tool that runs the tests. Agents of kind acp get it over MCP.
	ramus []modeltest.ToolCall
}

var npmAgents = []npmAgent{
	{target: "claude-code", file: "claude-code.yaml", agents: []string{"claude-code", "claude-code-acp"},
		provider: "anthropic", edit: []modeltest.ToolCall{
			{Name: "Read", Input: map[string]any{"file_path": executor.WorkDir + "/sum.js"}},
			{Name: "Edit", Input: map[string]any{"file_path": executor.WorkDir + "/sum.js", "old_string": "a - b",
				"new_string": "a + b"}},
			{Name: "Bash", Input: map[string]any{"command": "npm test", "description": "Run the tests"}},
		}, ramus: []modeltest.ToolCall{ // it describes such tools to its model only on request
			{Name: "ToolSearch", Input: map[string]any{"query": "select:mcp__ramus__lib_run_tests", "max_results": 1}},
			{Name: "mcp__ramus__lib_run_tests"},
		}},
	{target: "opencode", file: "opencode.yaml", agents: []string{"opencode", "opencode-acp"}, provider: "anthropic",
		edit: []modeltest.ToolCall{
			{Name: "read", Input: map[string]any{"filePath": executor.WorkDir + "/sum.js"}},
			{Name: "edit", Input: map[string]any{"filePath": executor.WorkDir + "/sum.js", "oldString": "a - b",
				"newString": "a + b"}},
			{Name: "bash", Input: map[string]any{"command": "npm test", "description": "Run the tests"}},
		}, ramus: []modeltest.ToolCall{
			{Name: "ramus_lib_run_tests"},
		}},
	// Codex has one tool, which runs JavaScript. That tool calls all others.
	{target: "codex", file: "codex.yaml", agents: []string{"codex", "codex-acp"}, provider: "openai",
		edit: []modeltest.ToolCall{
			{Name: "exec", Input: map[string]any{"input": `text(await tools.exec_command({cmd: "cat sum.js"}));`}},
			{Name: "exec", Input: map[string]any{"input": `text(await tools.apply_patch("*** Begin Patch\n*** Update File: sum.js\n@@\n-exports.sum = (a, b) => a - b;\n+exports.sum = (a, b) => a + b;\n*** End Patch\n"));`}},
			{Name: "exec", Input: map[string]any{"input": `text(await tools.exec_command({cmd: "npm test"}));`}},
		}, ramus: []modeltest.ToolCall{
			{Name: "exec", Input: map[string]any{"input": `text(await tools.mcp__ramus__lib_run_tests({}));`}},
		}},
	{target: "gemini", file: "gemini.yaml", agents: []string{"gemini", "gemini-acp"}, provider: "gemini",
		edit: []modeltest.ToolCall{
			{Name: "read_file", Input: map[string]any{"file_path": "sum.js"}},
			{Name: "replace", Input: map[string]any{"file_path": "sum.js", "instruction": "Add instead of subtracting.",
				"old_string": "a - b", "new_string": "a + b"}},
			{Name: "run_shell_command", Input: map[string]any{"command": "npm test", "description": "Run the tests"}},
		}, ramus: []modeltest.ToolCall{
			{Name: "mcp_ramus_lib_run_tests"},
		}},
}

const (
	editPrompt   = "The test of sum.js fails. Make it pass."
	resumePrompt = "What was the first thing I asked for?"
	// Each is one word, because an agent prints the words as they arrive, with other output between
	// them.
	finished   = "The-test-passes-now."
	remembered = "To-make-the-test-of-sum.js-pass."
)

// TestAgentsFromNPM runs real coding agents in containers without network, against a scripted model
// that is busy, overloaded and breaks off. Each agent reads, edits and tests, and continues its
// session in another container. An agent of ACP also uses ramus's own tools, and accepts a
// rejection. None connects to anything but its model.
func TestAgentsFromNPM(t *testing.T) {
	t.Parallel()
	if os.Getenv("RAMUS_TEST") != "npm" {
		t.Skip("only with RAMUS_TEST=npm: downloads and runs coding agents, for some minutes")
	}
	binary := filepath.Join(t.TempDir(), "ramus")
	if err := programs.Into(filepath.Dir(binary), "cmd/ramus"); err != nil {
		t.Fatal(err)
	}
	for _, a := range npmAgents {
		t.Run(a.target, func(t *testing.T) {
			image := a.build(t)
			for _, name := range a.agents {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					a.try(t, name, image, binary)
				})
			}
		})
	}
}

// build makes the agent's image. The engine's own cache makes that quick if nothing has changed, and
// possible without npm.
func (a npmAgent) build(t *testing.T) string {
	t.Helper()
	image := "ramus/" + a.target + ":test"
	if out, err := exec.CommandContext(t.Context(), "docker", "image", "inspect", "ramus/task:latest").CombinedOutput(); err != nil {
		t.Skipf("cannot run here: no image ramus/task:latest (make image): %v: %.200s", err, out)
	}
	args := []string{"build", "--network", "host", "--target", a.target, "-t", image}
	if registry, err := exec.CommandContext(t.Context(), "npm", "config", "get", "registry").Output(); err == nil &&
		!bytes.Contains(registry, []byte("@")) {
		args = append(args, "--build-arg", "NPM_CONFIG_REGISTRY="+strings.TrimSpace(string(registry)))
	}
	out, err := exec.CommandContext(t.Context(), "docker", append(args, abs(t, "../../examples/agents"))...).CombinedOutput()
	if err == nil {
		return image
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if ping := exec.CommandContext(ctx, "npm", "ping").Run(); ping != nil {
		t.Skipf("cannot run here: npm cannot be reached, and no image of %s is there: %v", a.target, ping)
	}
	t.Fatalf("cannot build %s: %v\n%s", image, err, out)
	return ""
}

// agentSite is a data folder whose containers reach a scripted model.
type agentSite struct {
	t       *testing.T
	model   *modeltest.Server
	binary  string
	data    string
	config  string // the text of ramus.yaml
	environ []string

	mu    sync.Mutex           // guards asked
	asked []modeltest.Question // only those with tools, which belong to the agent's own loop
}

func (a npmAgent) site(t *testing.T, acp bool, image, binary string) *agentSite {
	t.Helper()
	dir, err := os.MkdirTemp("", "agents") // a short path, because sockets are below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &agentSite{t: t, binary: binary, data: filepath.Join(dir, "data")}
	var answers []modeltest.Answer
	calls := a.edit
	if acp {
		calls = slices.Concat(calls, a.ramus)
	}
	for _, c := range calls {
		answers = append(answers, modeltest.Answer{Text: "I call " + c.Name + ".", Calls: []modeltest.ToolCall{c}})
	}
	play := modeltest.Play(
		modeltest.Scene{Prompt: editPrompt, Answers: append(answers, modeltest.Answer{Text: finished})},
		modeltest.Scene{Prompt: resumePrompt, Answers: []modeltest.Answer{{Text: remembered}}},
	)
	stand, remote := modeltest.New()
	t.Cleanup(remote.Close)
	stand.Answer = func(q modeltest.Question) modeltest.Answer {
		if len(q.Tools) > 0 {
			s.mu.Lock()
			s.asked = append(s.asked, q)
			s.mu.Unlock()
		}
		return play(q)
	}
	s.model = stand
	text, err := os.ReadFile(filepath.Join("..", "..", "examples", "agents", a.file))
	if err != nil {
		t.Fatal(err)
	}
	config := regexp.MustCompile(`(?m)^(    image: ramus/\S+)$`).ReplaceAllString(string(text), "${1}:test") +
		fmt.Sprintf("\nengine: docker\nimage: %s\nmodels:\n  %s:\n    base_url: %s\n    api_key_env: MODEL_KEY\n",
			image, a.provider, modeltest.BaseURL(remote.URL, a.provider))
	if err := os.Mkdir(s.data, 0o700); err != nil {
		t.Fatal(err)
	}
	s.config = config
	s.configure("\x00", "")
	s.environ = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "RAMUS_DATA=" + s.data, "NO_COLOR=1",
		"GIT_CONFIG_NOSYSTEM=1",
		"DOCKER_HOST=" + os.Getenv("DOCKER_HOST"), "MODEL_KEY=" + modeltest.Key}
	if os.Getenv("DOCKER_HOST") == "" {
		s.environ = slices.DeleteFunc(s.environ, func(kv string) bool { return kv == "DOCKER_HOST=" })
	}
	src := filepath.Join(dir, "app")
	for name, text := range map[string]string{
		"package.json": `{"name": "app", "scripts": {"test": "node --test"}}`,
		"sum.js":       "exports.sum = (a, b) => a - b;\n",
		"sum.test.js":  "const { test } = require('node:test');\nconst assert = require('node:assert');\nconst { sum } = require('./sum.js');\n\ntest('sum', () => assert.equal(sum(2, 3), 5));\n",
	} {
		if err := os.MkdirAll(src, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(src, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"},
		{"-c", "user.name=T", "-c", "user.email=t@example.org", "commit", "-qm", "begin"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir, cmd.Env = src, s.environ
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	s.ramus("repo", "import", "app", src)
	t.Cleanup(func() {
		if t.Failed() {
			for _, c := range stand.Calls() {
				t.Logf("%s %s: %d", c.Method, c.Path, c.Status)
			}
		}
		for _, c := range stand.Complaints() {
			t.Errorf("the model complains: %s", c)
		}
	})
	return s
}

// configure writes the configuration, with instead in place of thing.
func (s *agentSite) configure(thing, instead string) {
	s.t.Helper()
	if err := os.WriteFile(filepath.Join(s.data, "ramus.yaml"), []byte(strings.ReplaceAll(s.config, thing, instead)), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// command runs one command with a server of its own. The container ends with the command.
func (s *agentSite) command(args ...string) (string, error) {
	cmd := exec.CommandContext(s.t.Context(), s.binary, args...)
	cmd.Env = s.environ
	// If ramus were killed its container would remain.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("ramus %s: %w\n%s\n%s", strings.Join(args, " "), err, out, log.Bytes())
	}
	return string(out), err
}

// ramus runs a command that must succeed.
func (s *agentSite) ramus(args ...string) string {
	s.t.Helper()
	out, err := s.command(args...)
	if err != nil {
		s.t.Error(err)
	}
	return out
}

// try has one of the agents do the edit task.
func (a npmAgent) try(t *testing.T, name, image, binary string) {
	acp := strings.HasSuffix(name, "-acp")
	s := a.site(t, acp, image, binary)
	t.Run("edit", func(t *testing.T) {
		s.t = t
		// Only every second request fails, because agents wait longer after each further fault in a
		// row.
		s.model.Fail(
			modeltest.Fault{Status: http.StatusTooManyRequests, RetryAfter: "1"}, modeltest.Fault{},
			modeltest.Fault{Status: 529}, modeltest.Fault{},
			modeltest.Fault{Cut: 3}, modeltest.Fault{}, // within a stream
			modeltest.Fault{Cut: -1}, // before anything
		)
		s.edit("conv:one", name)
		var statuses []int
		for _, c := range s.model.Calls() {
			statuses = append(statuses, c.Status)
		}
		if !slices.Contains(statuses, 429) || !slices.Contains(statuses, 529) || len(statuses) < 7 {
			t.Errorf("not all faults came about: %v", statuses)
		}
		if !acp {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		told := slices.ContainsFunc(s.asked, func(q modeltest.Question) bool {
			return slices.ContainsFunc(q.Results, func(r string) bool { return strings.Contains(r, `"passed":1`) })
		})
		if !told {
			t.Errorf("the model was not told what ramus's tool found; last it was told %.2000q",
				s.asked[len(s.asked)-1].Results)
		}
	})
	t.Run("resume", func(t *testing.T) {
		s.t = t
		before := len(s.asked)
		s.model.Fail(modeltest.Fault{Status: http.StatusServiceUnavailable})
		out := s.ramus("agent", "conv:one", "--agent", name, "--", resumePrompt)
		if !strings.Contains(out, remembered) {
			t.Errorf("the answer is not shown:\n%s", out)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.asked) == before {
			t.Fatal("the model was not asked")
		}
		if last := s.asked[len(s.asked)-1]; !strings.Contains(last.Said, editPrompt) || !strings.Contains(last.Said, "pass 1") {
			t.Errorf("the model was not told what had been said, and what the tests had printed, before:\n%.4000s", last.Said)
		}
	})
	if acp && strings.Contains(s.config, "permission: allow") { // it asks for permission
		t.Run("denied", func(t *testing.T) {
			s.t = t
			s.configure("permission: allow", "permission: deny")
			out, err := s.command("agent", "conv:two", "--repo", "app", "--agent", name, "--", editPrompt)
			if err == nil || !strings.Contains(out, "check-lib_run_tests") {
				t.Errorf("the test passes, or did not run:\n%s", out)
			}
			if diff := s.ramus("diff", "conv:two"); diff != "" {
				t.Errorf("it was denied to, and changed:\n%s", diff)
			}
			if !strings.Contains(out, "deny: ") {
				t.Errorf("that it was denied is not shown:\n%s", out)
			}
		})
	}
	s.t = t
	s.silent()
}

// silent checks that the agent connected only to its model.
func (s *agentSite) silent() {
	s.t.Helper()
	git := func(args ...string) []byte {
		cmd := exec.CommandContext(s.t.Context(), "git",
			append([]string{"-C", filepath.Join(s.data, "repos", "app.git")}, args...)...)
		cmd.Env = s.environ
		out, err := cmd.Output()
		if err != nil {
			s.t.Fatalf("git %q: %v", args, err)
		}
		return out
	}
	runs := strings.Fields(string(git("for-each-ref", "--format=%(refname)", "refs/ramus/runs")))
	if len(runs) == 0 {
		s.t.Error("there are no runs")
	}
	for _, ref := range runs {
		var m record.Manifest
		if err := json.Unmarshal(git("cat-file", "blob", ref+":evidence/manifest.json"), &m); err != nil {
			s.t.Fatal(err)
		}
		if m.Usage == nil || m.Usage.Calls == 0 {
			s.t.Errorf("%s: the calls of models were not counted: %+v", ref, m.Usage)
		}
		for _, e := range m.Egress {
			s.t.Errorf("%s: it spoke to %s, %s", ref, e.Host, e.Verdict)
		}
	}
}

// edit has the agent do the edit task for a caller.
func (s *agentSite) edit(caller, agent string) {
	s.t.Helper()
	out := s.ramus("agent", caller, "--repo", "app", "--agent", agent, "--", editPrompt)
	if !strings.Contains(out, finished) || !strings.Contains(out, "check-lib_run_tests") {
		s.t.Errorf("what the agent said, and the check, are not shown:\n%s", out)
	}
	if diff := s.ramus("diff", caller); !strings.Contains(diff, "+exports.sum = (a, b) => a + b;") ||
		strings.Count(diff, "diff --git") != 1 {
		s.t.Errorf("it changed:\n%s", diff)
	}
}
