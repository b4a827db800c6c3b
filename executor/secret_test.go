package executor_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/ramus-dev/ramus/executor"
	"github.com/ramus-dev/ramus/executor/agent"
	"github.com/ramus-dev/ramus/executor/record"
	"github.com/ramus-dev/ramus/gitd"
	"github.com/ramus-dev/ramus/internal/redact"
	"github.com/ramus-dev/ramus/internal/redact/redacttest"
)

// canary is a value in the environment of every command, so that commands can write it anywhere. It
// is never a part of a command or a workflow.
const canary = "c4n4ry+VALUE&of='a'secret"

func newCanaryWorld(t *testing.T, opts func(*executor.Executor)) *world {
	t.Helper()
	w := newWorld(t, func(x *executor.Executor) {
		s, short := redact.New(map[string]string{"CANARY": canary})
		if len(short) > 0 {
			t.Fatal(short)
		}
		x.Secrets, x.Git.Secrets = s, s
		x.Options.Env = append(x.Options.Env, "CANARY="+canary)
		if opts != nil {
			opts(x)
		}
	})
	w.layer() // a layer made in the background would change the folder that is searched
	return w
}

// noCanary searches all remaining data for the canary. It leaves out containers, which are discarded.
func (w *world) noCanary() {
	w.t.Helper()
	hits, err := redacttest.Folder(context.Background(), w.data, canary, "sandbox", "fleet/hosts", "fleet/old")
	if err != nil || len(hits) > 0 {
		w.t.Errorf("found %q, %v", hits, err)
	}
}

// secrets returns the messages of a run's journal about removed secrets.
func (w *world) secrets(run string) (messages []string) {
	for e, err := range w.x.Events(context.Background(), run, 0, false) {
		if err != nil {
			w.t.Fatal(err)
		}
		if e.Type == record.EventSecret {
			messages = append(messages, e.Kind+": "+e.Message)
		}
	}
	return messages
}

// TestSecretsInOutput has a command print a value in several ways. No reader sees the value.
func TestSecretsInOutput(t *testing.T) {
	t.Parallel()
	w := newCanaryWorld(t, nil)
	var stdout, stderr bytes.Buffer
	res, err := w.x.Exec(t.Context(), record.Request{Repo: "demo", Command: &record.Command{Shell: `
		echo "plain $CANARY."
		printf %s "$CANARY" | head -c 10; sleep 0.3; printf %s "$CANARY" | tail -c +11; echo
		printf %s "$CANARY" | base64 -w 0; echo
		printf 'x%s' "$CANARY" | base64 -w 12
		printf %s "$CANARY" | od -An -v -tx1 | tr -d ' \n' >&2
		exit 3`}}, &stdout, &stderr)
	if err != nil || res.ExitCode != 3 {
		t.Fatal(res, err)
	}
	if !strings.HasPrefix(stdout.String(), "plain [secret CANARY].\n[secret CANARY]\n[secret CANARY]\n") ||
		!strings.HasSuffix(stderr.String(), "[secret CANARY]") {
		t.Errorf("printed %q, %q", stdout.String(), stderr.String())
	}
	if res.Stdout.Truncated || res.Stderr.Truncated {
		t.Error("what was removed is taken for lost")
	}
	if got := w.secrets(res.Run); !slices.Equal(got,
		[]string{"output: CANARY in the stdout of exec", "output: CANARY in the stderr of exec"}) {
		t.Errorf("journalled %q", got)
	}
	out, err := w.x.Output(t.Context(), res.Run, "exec", "stdout")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if b, err := io.ReadAll(out); err != nil || string(b) != stdout.String() {
		t.Errorf("kept %q, %v", b, err)
	}
	w.noCanary()
}

// TestSecretsInRequests puts values into requests. They are not kept. A value in a field that cannot
// be changed is refused.
func TestSecretsInRequests(t *testing.T) {
	t.Parallel()
	w := newCanaryWorld(t, nil)
	res, err := w.x.Exec(t.Context(), record.Request{Repo: "demo", Asker: gitd.Person{Name: canary, Email: "a@example.org"},
		Input: map[string]any{"token": canary, canary: 1},
		Command: &record.Command{Args: []string{"echo", canary}, Env: []string{"X=" + canary},
			Stdin: strings.NewReader(canary)}}, nil, nil)
	if err != nil || res.ExitCode != 0 {
		t.Fatal(res, err)
	}
	run, err := w.x.Run(t.Context(), res.Run)
	if err != nil || run.Input["token"] != "[secret CANARY]" || run.Asker.Name != "[secret CANARY]" {
		t.Errorf("%+v, %v", run, err)
	}
	if _, err := w.x.Submit(t.Context(), record.Request{Repo: "demo", Key: fmt.Sprintf("%x", canary),
		Command: &record.Command{Shell: "true"}}); err == nil {
		t.Error("a key that holds a secret is taken")
	}
	origin := &record.Origin{Source: "slack", Session: "s", Key: "k", Event: json.RawMessage(`{"text":"` + canary + `"}`)}
	caller, err := record.ParseCaller("conv:c1")
	if err != nil {
		t.Fatal(err)
	}
	claimed, _, err := w.x.Claim(t.Context(), record.Request{Repo: "demo", Key: "k1", Caller: caller, Origin: origin})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.x.Note(t.Context(), claimed.Name(), record.Event{Type: record.EventNote, Message: canary,
		Data: json.RawMessage(`["` + canary + `"]`)}); err != nil {
		t.Fatal(err)
	}
	w.noCanary()
	if _, err := w.x.End(t.Context(), claimed.Name(), executor.Ending{Error: canary, Output: map[string]any{"x": canary}}); err != nil {
		t.Fatal(err)
	}
	if err := w.x.Tell(t.Context(), claimed.Name(), json.RawMessage(`{"x":"`+canary+`"}`)); err != nil {
		t.Fatal(err)
	}
	w.noCanary()
}

// TestSecretsInCommits has commands leave files with a value. The files are committed without the
// value.
func TestSecretsInCommits(t *testing.T) {
	t.Parallel()
	w := newCanaryWorld(t, nil)
	for _, c := range []struct {
		name, command string
		events, files []string
	}{
		{"file", `mkdir -p deep && printf 'a %s b' "$CANARY" >deep/f && chmod 755 deep/f`,
			[]string{`commit: CANARY in "deep/f"`}, []string{"deep/f: a [secret CANARY] b"}},
		{"name", `mkdir -p "x$H/sub" && echo 1 >"x$H/sub/$H" && echo 2 >"x$H/sub/y"`,
			[]string{`commit: CANARY in the name of a file`,
				`commit: CANARY in the name of a file in "x[secret CANARY]/sub"`},
			[]string{"x[secret CANARY]/sub/[secret CANARY]: 1\n", "x[secret CANARY]/sub/y: 2\n"}},
		{"link", `ln -s "/nowhere/$H" link`, []string{`commit: CANARY in "link"`}, nil},
		{"message", `echo new >f && git add f && git commit -q -m "about $CANARY" && echo more >>f`,
			[]string{"commit: CANARY in a commit"}, []string{"f: new\nmore\n"}},
		{"author", `echo new >f && git add f && git commit -q -m x --author "$H <a@example.org>"`,
			[]string{"commit: CANARY in a commit"}, []string{"f: new\n"}},
		{"history", `echo "$CANARY" >f && git add f && git commit -q -m one && echo clean >f && git commit -qam two`,
			[]string{`commit: CANARY in "f"`}, []string{"f: clean\n"}},
		{"own push", `echo one >f && git add f && git commit -q -m one && git push -q origin HEAD && echo "$CANARY" >>f && git commit -qam two; ! git push -q origin HEAD`,
			[]string{`commit: CANARY in "f"`}, []string{"f: one\n[secret CANARY]\n"}},
		{"rebase half way", `echo one >f && git add f && git commit -q -m one && git checkout -q HEAD~1 && echo "$CANARY" >f && git add f && git commit -q -m "two $CANARY" &&
			! git rebase -q "$(git rev-parse --abbrev-ref '@{-1}')" 2>/dev/null; true`,
			[]string{`commit: CANARY in "f"`}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := *w
			w.t = t
			res, err := w.x.Exec(t.Context(),
				record.Request{Repo: "demo", Command: &record.Command{Shell: "H=" +
					`$(printf %s "$CANARY" | od -An -v -tx1 | tr -d ' \n'); ` + c.command}}, nil, nil)
			if err != nil || res.ExitCode != 0 || res.Commit == "" {
				t.Fatalf("%+v, %v", res, err)
			}
			if !strings.Contains(res.Message, "CANARY") {
				t.Errorf("the message is %q", res.Message)
			}
			got := w.secrets(res.Run)
			for _, want := range c.events {
				if !slices.Contains(got, want) {
					t.Errorf("journalled %q, want %q", got, want)
				}
			}
			m, err := w.x.Manifest(t.Context(), res.Run)
			if err != nil || !slices.ContainsFunc(m.Unverified, func(s string) bool { return strings.Contains(s, "CANARY") }) {
				t.Errorf("unverified: %q, %v", m.Unverified, err)
			}
			repo, err := w.git.Repo("demo")
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range c.files {
				name, content, _ := strings.Cut(file, ": ")
				if b, err := repo.ReadFile(t.Context(), string(res.Commit), name, 1000); err != nil || string(b) != content {
					t.Errorf("%s is %q, %v", name, b, err)
				}
			}
			if c.name == "file" {
				entries, err := repo.Tree(t.Context(), string(res.Commit), "deep", false)
				if err != nil || len(entries) != 1 || entries[0].Mode != "100755" {
					t.Errorf("%+v, %v", entries, err)
				}
			}
			w.noCanary()
		})
	}
}

// TestSecretsThatComeBack leaves files that cannot be cleaned. They are not committed, and the run
// reports that.
func TestSecretsThatComeBack(t *testing.T) {
	t.Parallel()
	w := newCanaryWorld(t, nil)
	// A filter that would put the value into every blob is not run.
	res, err := w.x.Exec(t.Context(), record.Request{Repo: "demo", Command: &record.Command{
		Shell: `git config filter.x.clean 'cat; printenv CANARY'; echo '* filter=x' >.gitattributes; echo 1 >f`}}, nil, nil)
	if err != nil || res.Commit == "" || res.Message != "" {
		t.Errorf("%+v, %v", res, err)
	}
	// A process in the background writes the value repeatedly.
	busy := caller(t, "run:busy")
	if _, err := w.x.Exec(t.Context(), record.Request{Caller: busy, Repo: "demo", Command: &record.Command{Background: true,
		Shell: `until [ -e /tmp/go ]; do sleep 0.01; done; while :; do for i in 1 2 3 4 5 6 7 8 9; do printenv CANARY >f$i; done; done`}}, nil, nil); err != nil {
		t.Fatal(err)
	}
	// Each command is refused, or committed without the value if the process was too slow. Some are refused.
	for tries := 0; ; tries++ {
		res, err = w.x.Exec(t.Context(), record.Request{Caller: busy, Command: &record.Command{
			Shell: `touch /tmp/go; rm -f f9; until [ -s f9 ]; do sleep 0.01; done`}}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if res.Commit == "" {
			break
		}
		if w.noCanary(); tries == 20 {
			t.Fatalf("each command was committed, the last one as %+v", res)
		}
	}
	if !strings.Contains(res.Message, "could not be committed") || !strings.Contains(res.Message, "CANARY in") {
		t.Errorf("the message is %q", res.Message)
	}
	w.noCanary()
	res, err = w.x.Exec(t.Context(), record.Request{Repo: "demo", Command: &record.Command{Shell: `echo 2 >g`}}, nil, nil)
	if err != nil || res.Commit == "" {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestSecretsInArtifacts puts values into contents and names of artifacts. Two names that are equal
// without the values stay distinct.
func TestSecretsInArtifacts(t *testing.T) {
	t.Parallel()
	w := newCanaryWorld(t, nil)
	res, err := w.x.Exec(t.Context(), record.Request{Repo: "demo", Command: &record.Command{Shell: `
		H=$(printf %s "$CANARY" | od -An -v -tx1 | tr -d ' \n')
		mkdir -p /artifacts/$H && echo "is $CANARY" >/artifacts/report && echo a >/artifacts/$H/a
		echo 1 >"/artifacts/$CANARY" && echo 2 >/artifacts/x$H && echo 3 >"/artifacts/x$CANARY"`}}, nil, nil)
	if err != nil || res.ExitCode != 0 {
		t.Fatal(res, err)
	}
	m, err := w.x.Manifest(t.Context(), res.Run)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range m.Files {
		if strings.HasPrefix(f.Name, "artifacts/") {
			names = append(names, f.Name)
		}
	}
	slices.Sort(names)
	want := []string{"artifacts/[secret CANARY]-2", "artifacts/[secret CANARY]/a", "artifacts/report",
		"artifacts/x[secret CANARY]", "artifacts/x[secret CANARY]-2"}
	// File systems list the folder and the file of the same name in different orders.
	swapped := append([]string{"artifacts/[secret CANARY]", "artifacts/[secret CANARY]_a"}, want[2:]...)
	if !slices.Equal(names, want) && !slices.Equal(names, swapped) {
		t.Errorf("artifacts %q, want %q or %q", names, want, swapped)
	}
	w.noCanary()
}

// TestSecretsInWorkflows puts values into workflows. Steps get results without values. Input is
// cleaned before its use, and the output of templates before it is kept.
func TestSecretsInWorkflows(t *testing.T) {
	t.Parallel()
	w := newCanaryWorld(t, nil)
	run := w.submit(record.Request{Input: map[string]any{"token": canary, "half": canary[:10], "rest": canary[10:]}, Workflow: `
id: leaky
input: {token: {type: string}, half: {type: string}, rest: {type: string}}
nodes:
  - id: print
    run: 'printf %s "$CANARY"; printf %s "$CANARY" >&2'
    output: {said: result.stdout}
  - id: look
    run: 'test {{ state.said }} = "[secret CANARY]" && test {{ input.token }} = "[secret CANARY]"'
  - id: together
    run: 'echo {{ input.half }}{{ input.rest }} >f'
  - id: gate
    human: {message: 'go on with {{ input.half }}{{ input.rest }}?'}
`})
	if run.State != record.StateAwaitingReview || run.Gate.Message != "go on with [secret CANARY]?" {
		t.Fatalf("%+v\n%s", run, w.journal(run.Name()))
	}
	w.noCanary()
	if _, err := w.x.Decide(t.Context(), run.Name(), record.Decision{Approved: true, By: "Ada", Comment: "use " + canary}); err != nil {
		t.Fatal(err)
	}
	if run = w.wait(run.Name()); run.State != record.StateComplete {
		t.Errorf("%+v\n%s", run, w.journal(run.Name()))
	}
	w.noCanary()
}

// TestSecretsOfAgents puts values into prompts, offered files, output, and the agent's memory,
// including its file names.
func TestSecretsOfAgents(t *testing.T) {
	t.Parallel()
	scripted := agent.Agent{State: []string{".memory"}, Command: []string{"sh", "-c", `
		cat; ls "$RAMUS_FILES" && cat "$RAMUS_FILES"/*
		H=$(printf %s "$CANARY" | od -An -v -tx1 | tr -d ' \n')
		mkdir -p ~/.memory/$H && echo "I know $CANARY" >~/.memory/$H/said && printf %s "$CANARY" | base64 >>~/.memory/log
		find ~/.memory -type f | sort; echo "$CANARY" >f`}}
	w := newCanaryWorld(t, func(x *executor.Executor) { x.Options.Agents = map[string]agent.Agent{"scripted": scripted} })
	for range 2 {
		run := w.ask("conv:c1", "log in with "+canary,
			record.Attachment{Name: "x" + fmt.Sprintf("%x", canary) + ".txt", Content: []byte("file " + canary + "\n")})
		if run = w.ended(run.Name()); run.State != record.StateComplete {
			t.Fatalf("%+v\n%s", run, w.journal(run.Name()))
		}
		out := w.stdout(run.Name(), "turn-1")
		for _, want := range []string{"log in with [secret CANARY]", "x[secret CANARY].txt", "file [secret CANARY]",
			"/.memory/[secret CANARY]/said"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in %s", want, out)
			}
		}
		w.noCanary()
		// The next turn is in a new container, with the agent's memory.
		if err := w.x.Stop(t.Context(), "conv:c1", gitd.Person{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.x.Prompts.Say(t.Context(), "conv:c1", record.Prompt{Text: canary}); err == nil {
		t.Error("a run that has ended hears something")
	}
	w.noCanary()
}
